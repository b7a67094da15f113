/* videos.c: what the engine does with videos beside computing them (vision.c): ids by frames and by the time between
   them, one encoding of the same frames, what the tower sees, snapshots, marks of the other kind, bad input. Hidden
   counts are read: passes of the tower.
   takes: the shared fixtures (fixtures/vision).
   gives: exit code 0 or 1; 77 without fixtures. */
#include "rig.h"

#include "private/objects.h"

#include <stdlib.h>

#define WIDTH 56u
#define HEIGHT 48u
#define FRAMES 5u
#define FRAME_BYTES (WIDTH * HEIGHT * 3)
#define TEXT "Look: <|vision_start|><|video_pad|><|vision_end|> What is it?"

static const char *const families[] = { "qwen2-vl", "qwen2.5-vl", "qwen3-vl" };
static uint8_t rgb[FRAMES * FRAME_BYTES];
static rig_said said[3];

static rig open_model(const char *name)
{
    static char path[1024];
    char below[256];
    snprintf(below, sizeof below, "fixtures/vision/%s/config.json", name);
    snprintf(path, sizeof path, "%s", check_shared(below));
    *strrchr(path, '/') = 0;
    exl2_model_desc desc = { .path = path, .vision = { .images = 4, .pixels_max = 40000 } };
    return rig_open(NULL, &desc);
}

static const exl2__images *images_of(const rig *r)
{
    return &((exl2_engine *)r->engine)->models[0].images;
}

static exl2_image_desc desc_of(const rig *r, uint32_t frames, double fps)
{
    uint32_t x = 1;
    for (uint32_t i = 0; i < sizeof rgb; i++) {
        x = x * 1664525u + 1013904223u;
        rgb[i] = (uint8_t)((x >> 24) / 4 + i / FRAME_BYTES * 40);
    }
    return (exl2_image_desc){ .model = r->model, .width = WIDTH, .height = HEIGHT, .pixels = rgb, .frames = frames,
                              .fps = fps, .silent = true };
}

static exl2_image make(const rig *r, const exl2_image_desc *d)
{
    exl2_image image = { 0 };
    exl2_result result = exl2_image_make(r->engine, d, &image);
    if (result < 0) {
        rig_fail(r->engine, "exl2_image_make", result);
    }
    return image;
}

static void ask(const rig *r, exl2_session s, const exl2_image *image, const char *text, rig_said *out)
{
    memset(out, 0, sizeof *out);
    exl2_job_desc d = rig_job(r, NULL, 0, 8, out);
    d.model.id = s.id ? 0 : r->model.id;
    d.session = s;
    d.prompt = (exl2_prompt){ .text = text, .images = image, .image_count = image != NULL, .flags = EXL2_TEXT_NO_BOS };
    rig_run(r, &d);
}

static bool same(const rig_said *a, const rig_said *b)
{
    return a->count == b->count && memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0
        && memcmp(a->logprobs, b->logprobs, a->count * sizeof *a->logprobs) == 0;
}

/* The same frames are one video in any stride and format; another frame, number of frames or fps is another video, as
   is a picture of the same pixels. */
static void test_ids(const char *name)
{
    static uint8_t other[FRAMES * HEIGHT * (WIDTH * 4 + 20)];
    const uint32_t stride = WIDTH * 4 + 20;
    rig r = open_model(name);
    exl2_session none = { 0 };
    exl2_image_desc d = desc_of(&r, FRAMES, 2);
    exl2_image a = make(&r, &d), b;
    exl2_image_info first, next;
    ask(&r, none, &a, TEXT, &said[0]);
    CHECK_INT(exl2_image_get(r.engine, a, &first), EXL2_OK);
    CHECK_INT(first.grid[0], (FRAMES + 1) / 2);
    CHECK_INT(first.rows, said[0].stats.image_rows);
    for (uint32_t i = 0; i < FRAMES * HEIGHT; i++) { /* bottom up, padded, BGRX */
        uint32_t line = i / HEIGHT * HEIGHT + (HEIGHT - 1 - i % HEIGHT);
        for (uint32_t k = 0; k < WIDTH * 4; k++) {
            other[line * stride + k] = k % 4 == 3 ? 9 : rgb[i * WIDTH * 3 + k / 4 * 3 + (2 - k % 4)];
        }
    }
    d.pixels = other;
    d.format = EXL2_PIXELS_BGRX8;
    d.stride = -(int64_t)stride;
    b = make(&r, &d);
    ask(&r, none, &b, TEXT, &said[1]);
    CHECK(same(&said[0], &said[1]));
    CHECK(said[1].stats.reused_tokens + 8 > said[0].stats.prompt_tokens); /* a page's few last words are not copied */
    CHECK_INT(images_of(&r)->passes, 1);
    CHECK_INT(exl2_image_close(r.engine, b), EXL2_OK);
    for (uint32_t way = 0; way < 4; way++) {
        d = desc_of(&r, way == 1 ? FRAMES - 1 : way == 3 ? 0 : FRAMES, way == 2 ? 1 : way == 3 ? 0 : 2);
        rgb[4 * FRAME_BYTES + 77] ^= way == 0;
        b = make(&r, &d);
        CHECK_INT(exl2_image_get(r.engine, b, &next), EXL2_OK);
        CHECK(memcmp(first.id, next.id, sizeof first.id) != 0);
        if (way < 3) {
            ask(&r, none, &b, TEXT, &said[1]);
            CHECK(way == 2 || !same(&said[0], &said[1]));
            CHECK(said[1].stats.reused_tokens < said[0].stats.prompt_tokens - first.rows);
        }
        CHECK_INT(exl2_image_close(r.engine, b), EXL2_OK);
    }
    CHECK_INT(images_of(&r)->passes, 4);
    rig_close(&r);
}

/* All frames are seen, each as a picture of it is, if both have the same size; a history has the token of videos. */
static void test_seen(const char *name)
{
    static uint8_t seen[1 << 20], one[1 << 18];
    static const char mark[] = "<|video_pad|>";
    rig r = open_model(name);
    exl2_image_desc d = desc_of(&r, FRAMES, 2);
    exl2_image a = make(&r, &d), b;
    exl2_session s;
    exl2_image_info info, alone;
    exl2_picture picture;
    exl2_token ids[256], pad[4];
    size_t bytes = 0, need = 0;
    rig_drain(&r, 200);
    CHECK_INT(exl2_image_get(r.engine, a, &info), EXL2_OK);
    CHECK_INT(info.state, EXL2_IMAGE_ENCODED);
    CHECK_INT(exl2_image_seen(r.engine, a, seen, sizeof seen, &bytes), EXL2_OK);
    CHECK_INT(bytes, (long long)FRAMES * info.width * info.height * 3);
    for (uint32_t f = 0; f < FRAMES; f++) {
        d = desc_of(&r, 0, 0);
        d.pixels = rgb + (size_t)f * FRAME_BYTES;
        b = make(&r, &d);
        rig_drain(&r, 0);
        CHECK_INT(exl2_image_get(r.engine, b, &alone), EXL2_OK);
        CHECK_INT(exl2_image_seen(r.engine, b, one, sizeof one, &need), EXL2_OK);
        if (alone.width == info.width && alone.height == info.height) {
            CHECK(memcmp(seen + (size_t)f * need, one, need) == 0);
        } else {
            CHECK_TEXT(name, "qwen3-vl"); /* its rule counts the pixels of all frames */
        }
        CHECK_INT(exl2_image_close(r.engine, b), EXL2_OK);
    }
    CHECK_INT(exl2_session_open(r.engine, r.model, &s), EXL2_OK);
    ask(&r, s, &a, TEXT, &said[0]);
    CHECK_INT(exl2_session_pictures(r.engine, s, &picture, 1, &need), EXL2_OK);
    CHECK_INT(need, 1);
    CHECK_INT(picture.rows, info.rows);
    CHECK_INT(exl2_session_tokens(r.engine, s, ids, 256, &need), EXL2_OK);
    CHECK_INT(exl2_tokenize(r.engine, r.model, mark, strlen(mark), EXL2_TEXT_NO_BOS, pad, 4, &need), EXL2_OK);
    CHECK_INT(ids[picture.from], pad[0]);
    CHECK_INT(ids[picture.from + picture.count - 1], pad[0]);
    bool apart = strcmp(name, "qwen3-vl") == 0;
    CHECK(apart ? picture.count > picture.rows : picture.count == picture.rows);
    CHECK_INT(exl2_session_rewind(r.engine, s, picture.from + 1), EXL2_ERR_ARG);
    rig_close(&r);
}

/* A session with a video goes on in another engine as in its own. */
static void test_snapshots(const char *name)
{
    static const uint32_t ways[] = { 0, EXL2_SAVE_IMAGES, EXL2_SAVE_KV };
    rig r = open_model(name);
    exl2_image_desc d = desc_of(&r, FRAMES, 1.5);
    exl2_image a = make(&r, &d);
    exl2_session s;
    uint8_t *data[3];
    size_t bytes[3], again;
    CHECK_INT(exl2_session_open(r.engine, r.model, &s), EXL2_OK);
    ask(&r, s, &a, TEXT, &said[0]);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_INT(exl2_session_save(r.engine, s, ways[i], NULL, 0, &bytes[i]), EXL2_OK);
        data[i] = (uint8_t *)malloc(bytes[i]);
        CHECK_INT(exl2_session_save(r.engine, s, ways[i], data[i], bytes[i], &again), EXL2_OK);
    }
    ask(&r, s, NULL, " And then?", &said[0]);
    rig_close(&r);
    for (uint32_t i = 0; i < 3; i++) {
        exl2_session_info info;
        r = open_model(name);
        CHECK_INT(exl2_session_open(r.engine, r.model, &s), EXL2_OK);
        CHECK_INT(exl2_session_restore(r.engine, s, data[i], bytes[i]), EXL2_OK);
        CHECK_INT(exl2_session_get(r.engine, s, &info), EXL2_OK);
        CHECK_INT(info.pictures_missing, ways[i] != EXL2_SAVE_IMAGES);
        if (ways[i] == 0) { /* the same frames at another fps do not help */
            d = desc_of(&r, FRAMES, 2);
            make(&r, &d);
            CHECK_INT(exl2_session_get(r.engine, s, &info), EXL2_OK);
            CHECK_INT(info.pictures_missing, 1);
            d = desc_of(&r, FRAMES, 1.5);
            make(&r, &d);
            CHECK_INT(exl2_session_get(r.engine, s, &info), EXL2_OK);
            CHECK_INT(info.pictures_missing, 0);
        }
        ask(&r, s, NULL, " And then?", &said[1]);
        CHECK(same(&said[0], &said[1]));
        rig_close(&r);
    }
    /* Other frames and times than the grid has are damage. */
    r = open_model(name);
    CHECK_INT(exl2_session_open(r.engine, r.model, &s), EXL2_OK);
    size_t at = 40 + 4 * (size_t)exl2__load32(data[0] + 32) + 4 + 32;
    CHECK_INT(exl2__load32(data[0] + at), FRAMES);
    static const struct { uint32_t frames, fps; } wrong[] = { { 0, 0 }, { FRAMES + 2, 0x3FF80000 }, { FRAMES, 0 },
                                                              { FRAMES, 0x7FF80000 }, { 0, 0x3FF80000 } };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        exl2__store32(data[0] + at, wrong[i].frames);
        exl2__store64(data[0] + at + 4, (uint64_t)wrong[i].fps << 32); /* of a double */
        exl2__store64(data[0] + bytes[0] - 8, exl2__hash(data[0], bytes[0] - 8));
        CHECK_INT(exl2_session_restore(r.engine, s, data[0], bytes[0]), EXL2_ERR_FORMAT);
    }
    rig_close(&r);
    for (uint32_t i = 0; i < 3; i++) {
        free(data[i]);
    }
}

static void refused(const rig *r, exl2_result got, exl2_result wanted, const char *words)
{
    exl2_error error;
    CHECK_INT(got, wanted);
    exl2_last_error(r->engine, &error);
    if (!CHECK(strstr(error.text, words) != NULL)) {
        printf("  %s\n", error.text);
    }
}

/* A mark of the other kind; numbers that no video has; too many pixels. */
static void test_bad_input(void)
{
    rig r = open_model("qwen2.5-vl");
    exl2_image_desc d = desc_of(&r, 2, 1);
    exl2_image video = make(&r, &d), picture, unknown;
    exl2_image_info info;
    exl2_job job;
    d.frames = 0;
    d.fps = 0;
    picture = make(&r, &d);
    for (uint32_t way = 0; way < 4; way++) {
        exl2_token ids[64];
        size_t count = 0;
        bool wrong_video = way % 2;
        const char *text = wrong_video ? "Look: <|video_pad|>!" : "Look: <|image_pad|>!";
        exl2_job_desc j = rig_job(&r, NULL, 0, 4, &said[0]);
        CHECK_INT(exl2_tokenize(r.engine, r.model, text, strlen(text), EXL2_TEXT_NO_BOS, ids, 64, &count), EXL2_OK);
        j.prompt = (exl2_prompt){ .images = wrong_video ? &picture : &video, .image_count = 1 };
        j.prompt.text = way < 2 ? text : NULL;
        j.prompt.tokens = way < 2 ? NULL : ids;
        j.prompt.token_count = way < 2 ? 0 : count;
        refused(&r, exl2_job_start(r.engine, &j, &job), EXL2_ERR_ARG,
                wrong_video ? "is '<|video_pad|>', but its picture is not a video"
                            : "is '<|image_pad|>', but its picture is a video");
    }
    const struct { uint32_t frames; double fps; exl2_result code; const char *words; } cases[] = {
        { 2, 0, EXL2_ERR_ARG, "from 0.001 to 1000" }, { 0, 2, EXL2_ERR_ARG, "but frames is 0" },
        { UINT32_MAX, 1000, EXL2_ERR_ARG, "lasts too long" }, { 4000, 1, EXL2_ERR_ARG, "at least 2000 rows" },
        { 200, 1, EXL2_ERR_BUDGET, "raise vision.pixels_max" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        d.frames = cases[i].frames;
        d.fps = cases[i].fps;
        refused(&r, exl2_image_make(r.engine, &d, &unknown), cases[i].code, cases[i].words);
        if (cases[i].code == EXL2_ERR_ARG) {
            refused(&r, exl2_image_measure(r.engine, &d, &info), cases[i].code, cases[i].words);
        }
    }
    d.frames = 2;
    d.fps = 1;
    d.stride = INT64_MAX / HEIGHT;
    refused(&r, exl2_image_make(r.engine, &d, &unknown), EXL2_ERR_ARG, "the stride is");
    d.stride = 0;
    CHECK_INT(exl2_image_measure(r.engine, &d, &info), EXL2_OK);
    CHECK_INT(exl2_image_measure(r.engine, NULL, &info), EXL2_ERR_ARG);
    ask(&r, (exl2_session){ 0 }, &video, TEXT, &said[0]);
    CHECK_INT(said[0].count, 8);
    /* The times of a slow video are positions, too: 2 * 2 * 2 / 0.02 = 400 at the last two frames. */
    d.frames = FRAMES;
    d.fps = 0.02;
    exl2_image slow = make(&r, &d);
    exl2_job_desc j = rig_job(&r, NULL, 0, 0, &said[1]);
    exl2_job_size size;
    j.prompt = (exl2_prompt){ .text = TEXT, .images = &slow, .image_count = 1, .flags = EXL2_TEXT_NO_BOS };
    CHECK_INT(exl2_job_measure(r.engine, &j, &size), EXL2_OK);
    CHECK(size.context_tokens > size.prompt_tokens && size.context_tokens < 1024 - 350);
    j.max_tokens = 800;
    refused(&r, exl2_job_start(r.engine, &j, &job), EXL2_ERR_CONTEXT_FULL, "the times of videos");
    ask(&r, (exl2_session){ 0 }, &slow, TEXT, &said[1]);
    CHECK_INT(said[1].count, 8);
    rig_close(&r);
    r = open_model("gemma3");
    d = desc_of(&r, 2, 1);
    refused(&r, exl2_image_make(r.engine, &d, &unknown), EXL2_ERR_ARG, "Gemma 3 reads pictures, but no videos");
    rig_close(&r);
}

int main(void)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        test_ids(families[i]);
        test_seen(families[i]);
        test_snapshots(families[i]);
    }
    test_bad_input();
    return check_done();
}

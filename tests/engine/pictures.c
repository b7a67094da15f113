/* pictures.c: what the engine does with pictures beside computing them: one encoding of the same pixels, pages that are
   found and those that must not be, rows and K and V that are evicted, budgets, cuts of a history, counts that must
   agree, bad input, memory by plan, snapshots. Hidden counts are read: passes of the tower.
   takes: the shared fixtures (fixtures/vision).
   gives: exit code 0 or 1; 77 without fixtures. */
#include "picture_rig.h"

/* The second picture of a size has its own answer, and the first one's is found again. */
static void test_cache(const char *name)
{
    exl2_session none = { 0 };
    rig r = open_model(name, (exl2_model_desc){ 0 }, NULL);
    exl2_image a = make(&r, 1), b = make(&r, 2);
    const char *text = strcmp(name, "gemma3") == 0 ? "Hello <start_of_image> there, look." : PROMPT;
    ask(&r, none, &a, 1, text, 8, &said[0]);
    ask(&r, none, &b, 1, text, 8, &said[1]);
    ask(&r, none, &a, 1, text, 8, &said[2]);
    CHECK_INT(images_of(&r)->passes, 2);
    CHECK(!same(&said[0], &said[1]));
    CHECK(same(&said[0], &said[2]));
    CHECK_INT(said[0].stats.reused_tokens, 0);
    uint32_t rows = said[0].stats.image_rows, prompt = said[0].stats.prompt_tokens;
    CHECK(said[1].stats.reused_tokens < prompt - rows); /* the text before the picture at most */
    CHECK_INT(said[2].stats.reused_tokens, prompt - 1);
    rig fresh = open_model(name, (exl2_model_desc){ 0 }, NULL);
    b = make(&fresh, 2);
    ask(&fresh, none, &b, 1, text, 8, &said[3]);
    CHECK(same(&said[1], &said[3]));
    rig_close(&fresh);
    rig_close(&r);
}

/* The same pixels in other formats and strides are one picture; one pixel more or less is another one. */
static void test_formats(void)
{
    static uint8_t rgb[SIDE * SIDE * 3], other[SIDE * 2 * SIDE * 4];
    rig r = open_model("smolvlm", (exl2_model_desc){ 0 }, NULL);
    exl2_image first, next;
    exl2_image_info a, b;
    draw(rgb, SIDE, SIDE, 7);
    exl2_image_desc d = desc_of(&r, rgb, SIDE, SIDE);
    CHECK_INT(exl2_image_make(r.engine, &d, &first), EXL2_OK);
    CHECK_INT(exl2_image_get(r.engine, first, &a), EXL2_OK);
    CHECK_INT(a.state, EXL2_IMAGE_WAITING);
    for (uint32_t way = 0; way < 5; way++) { /* padded; bottom up; RGBA, BGRA; BGRX, bottom up and padded */
        uint32_t bytes = way < 2 ? 3 : 4, stride = SIDE * bytes + (way == 0 || way == 4 ? 20 : 0);
        bool up = way == 1 || way == 4, blue = way >= 3;
        for (uint32_t y = 0; y < SIDE; y++) {
            uint8_t *to = other + (size_t)(up ? SIDE - 1 - y : y) * stride;
            for (uint32_t x = 0; x < SIDE; x++) {
                const uint8_t *from = rgb + (y * SIDE + x) * 3;
                for (uint32_t c = 0; c < 3; c++) {
                    to[x * bytes + c] = from[blue ? 2 - c : c];
                }
                if (bytes == 4) {
                    to[x * 4 + 3] = way == 4 ? 17 : 255;
                }
            }
        }
        d = desc_of(&r, other, SIDE, SIDE);
        d.stride = up ? -(int64_t)stride : (int64_t)stride;
        d.format = way < 2 ? EXL2_PIXELS_RGB8 : way == 2 ? EXL2_PIXELS_RGBA8 : way == 3 ? EXL2_PIXELS_BGRA8
                                                                                       : EXL2_PIXELS_BGRX8;
        CHECK_INT(exl2_image_make(r.engine, &d, &next), EXL2_OK);
        CHECK_INT(exl2_image_get(r.engine, next, &b), EXL2_OK);
        CHECK(memcmp(a.id, b.id, sizeof a.id) == 0);
        CHECK_INT(exl2_image_close(r.engine, next), EXL2_OK);
    }
    rig_drain(&r, 0);
    CHECK_INT(images_of(&r)->passes, 1);
    CHECK_INT(exl2_image_get(r.engine, first, &a), EXL2_OK);
    CHECK_INT(a.state, EXL2_IMAGE_ENCODED);
    rgb[SIDE * SIDE] ^= 1;
    d = desc_of(&r, rgb, SIDE, SIDE);
    CHECK_INT(exl2_image_make(r.engine, &d, &next), EXL2_OK);
    CHECK_INT(exl2_image_get(r.engine, next, &b), EXL2_OK);
    CHECK(memcmp(a.id, b.id, sizeof a.id) != 0);
    rig_close(&r);
}

/* Histories: pictures are listed, and not cut. */
static void test_history(void)
{
    rig r = open_model("smolvlm", (exl2_model_desc){ 0 }, NULL);
    exl2_image two[2] = { make(&r, 3), make(&r, 4) };
    exl2_session s;
    exl2_picture pictures[4];
    exl2_session_info info;
    size_t need = 0;
    CHECK_INT(exl2_session_open(r.engine, r.model, &s), EXL2_OK);
    ask(&r, s, two, 2, "A<image>B<image>C", 4, &said[0]);
    CHECK_INT(exl2_image_close(r.engine, two[0]), EXL2_OK);
    CHECK_INT(exl2_session_pictures(r.engine, s, pictures, 1, &need), EXL2_ERR_TOO_SMALL);
    CHECK_INT(exl2_session_pictures(r.engine, s, pictures, 4, &need), EXL2_OK);
    CHECK_INT(need, 2);
    CHECK(pictures[0].from > 0 && pictures[1].from > pictures[0].from + pictures[0].count);
    CHECK(pictures[0].count > pictures[0].rows); /* tiles have marks in between */
    uint32_t begin = pictures[1].from, end = pictures[1].from + pictures[1].count;
    CHECK_INT(exl2_session_rewind(r.engine, s, begin + 1), EXL2_ERR_ARG);
    exl2_error error;
    char both[64];
    exl2_last_error(r.engine, &error);
    snprintf(both, sizeof both, "begins at token %u and ends before token %u", begin, end);
    CHECK(strstr(error.text, both) != NULL);
    CHECK_INT(exl2_session_rewind(r.engine, s, end - 1), EXL2_ERR_ARG);
    CHECK_INT(exl2_session_trim(r.engine, s, begin, 3), EXL2_ERR_ARG);
    CHECK_INT(exl2_session_trim(r.engine, s, begin - 1, 2), EXL2_ERR_ARG);
    CHECK_INT(exl2_session_trim(r.engine, s, pictures[0].from, pictures[0].count), EXL2_OK);
    CHECK_INT(exl2_session_pictures(r.engine, s, pictures, 4, &need), EXL2_OK);
    CHECK_INT(need, 1);
    CHECK_INT(exl2_session_get(r.engine, s, &info), EXL2_OK);
    CHECK_INT(info.pictures_missing, 0);
    CHECK_INT(exl2_session_rewind(r.engine, s, pictures[0].from), EXL2_OK);
    CHECK_INT(exl2_session_pictures(r.engine, s, pictures, 4, &need), EXL2_OK);
    CHECK_INT(need, 0);
    rig_close(&r);
}

static void refused(const rig *r, exl2_prompt prompt, exl2_result wanted, const char *words)
{
    exl2_job_desc d = rig_job(r, NULL, 0, 4, &said[0]);
    exl2_job job;
    exl2_error error;
    d.prompt = prompt;
    CHECK_INT(exl2_job_start(r->engine, &d, &job), wanted);
    exl2_last_error(r->engine, &error);
    if (!CHECK(strstr(error.text, words) != NULL)) {
        printf("  %s\n", error.text);
    }
}

/* Counts of marks and pictures; marks that a player typed; models without a tower. */
static void test_marks(void)
{
    rig r = open_model("smolvlm", (exl2_model_desc){ 0 }, NULL);
    exl2_image a = make(&r, 5), stale = { 77 };
    exl2_prompt p = { .text = "x<image>y<image>", .images = &a, .image_count = 1 };
    exl2_message turn = { .role = "user", .text = "Is <image> a mark?", .images = &a, .image_count = 1 };
    exl2_session s;
    exl2_picture picture;
    size_t need;
    refused(&r, p, EXL2_ERR_ARG, "2 marks for pictures ('<image>') and 1 pictures");
    p.image_count = 0;
    refused(&r, p, EXL2_ERR_ARG, "2 marks");
    p = (exl2_prompt){ .text = "x<image>", .images = &stale, .image_count = 1 };
    refused(&r, p, EXL2_ERR_STALE, "image handle");
    p = (exl2_prompt){ .text = "x", .image_count = 1 };
    refused(&r, p, EXL2_ERR_ARG, "array is NULL");
    CHECK_INT(exl2_session_open(r.engine, r.model, &s), EXL2_OK);
    memset(&said[0], 0, sizeof said[0]);
    exl2_job_desc d = rig_job(&r, NULL, 0, 4, &said[0]);
    d.model.id = 0;
    d.session = s;
    d.prompt = (exl2_prompt){ .messages = &turn, .message_count = 1 };
    rig_run(&r, &d);
    CHECK_INT(exl2_session_pictures(r.engine, s, &picture, 1, &need), EXL2_OK);
    CHECK_INT(need, 1);
    CHECK_INT(said[0].stats.image_rows, picture.rows);
    /* The next turn: the same conversation, and another picture. */
    exl2_image b = make(&r, 6);
    exl2_message turns[3] = { turn, { .role = "assistant", .text = "No." },
                              { .role = "user", .text = "And this?", .images = &b, .image_count = 1 } };
    d.prompt = (exl2_prompt){ .messages = turns, .message_count = 3 };
    memset(&said[1], 0, sizeof said[1]);
    d.user = &said[1];
    rig_run(&r, &d);
    CHECK(said[1].stats.reused_tokens >= picture.from + picture.count);
    /* A template that knows no parts. */
    d.chat.template_text = "{% for m in messages %}{{ m.role }}{% endfor %}";
    exl2_job job;
    exl2_error error;
    CHECK_INT(exl2_job_start(r.engine, &d, &job), EXL2_ERR_ARG);
    exl2_last_error(r.engine, &error);
    CHECK(strstr(error.text, "0 marks") && strstr(error.text, "2 pictures") && strstr(error.text, "template"));
    rig_close(&r);
    exl2_model_desc text = { .path = folder_of("smolvlm") };
    r = rig_open(NULL, &text);
    exl2_image_desc image = desc_of(&r, PROMPT, 1, 1);
    CHECK_INT(exl2_image_make(r.engine, &image, &a), EXL2_ERR_STATE);
    exl2_last_error(r.engine, &error);
    CHECK(strstr(error.text, "vision.images") != NULL);
    p = (exl2_prompt){ .text = "x", .images = &stale, .image_count = 1 };
    refused(&r, p, EXL2_ERR_STATE, "vision.images");
    rig_close(&r);
}

static void test_bad_input(void)
{
    static uint8_t rgb[SIDE * SIDE * 3];
    rig r = open_model("smolvlm", (exl2_model_desc){ .vision.images = 2 }, NULL);
    exl2_image image, more;
    exl2_image_info info;
    const struct { uint32_t width, height; int64_t stride; exl2_pixels format; exl2_result wanted; } cases[] = {
        { 0, 8, 0, EXL2_PIXELS_RGB8, EXL2_ERR_ARG },
        { 8, 0, 0, EXL2_PIXELS_RGB8, EXL2_ERR_ARG },
        { 65536, 65536, 0, EXL2_PIXELS_RGBA8, EXL2_ERR_ARG },
        { UINT32_MAX, UINT32_MAX, 0, EXL2_PIXELS_RGBA8, EXL2_ERR_ARG },
        { 8, 8, 23, EXL2_PIXELS_RGB8, EXL2_ERR_ARG },
        { 8, 8, -23, EXL2_PIXELS_RGB8, EXL2_ERR_ARG },
        { 8, 8, INT64_MAX, EXL2_PIXELS_RGB8, EXL2_ERR_ARG },
        { 8, 8, INT64_MIN, EXL2_PIXELS_RGB8, EXL2_ERR_ARG },
        { 8, 8, 0, (exl2_pixels)6, EXL2_ERR_ARG },
        { 1000, 1000, 0, EXL2_PIXELS_RGB8, EXL2_ERR_BUDGET },
        { 1, 1, 0, EXL2_PIXELS_RGB8, EXL2_OK },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        exl2_image_desc d = desc_of(&r, rgb, cases[i].width, cases[i].height);
        exl2_error error;
        d.stride = cases[i].stride;
        d.format = cases[i].format;
        CHECK_INT(exl2_image_make(r.engine, &d, &image), cases[i].wanted);
        exl2_last_error(r.engine, &error);
        CHECK(cases[i].wanted >= 0 || error.text[0]);
    }
    exl2_image_desc d = desc_of(&r, NULL, 8, 8);
    CHECK_INT(exl2_image_make(r.engine, &d, &more), EXL2_ERR_ARG);
    CHECK_INT(exl2_image_make(r.engine, NULL, &more), EXL2_ERR_ARG);
    CHECK_INT(exl2_image_get(r.engine, image, NULL), EXL2_ERR_ARG);
    make(&r, 1);
    d = desc_of(&r, rgb, 8, 8);
    CHECK_INT(exl2_image_make(r.engine, &d, &more), EXL2_ERR_BUDGET); /* two are open */
    CHECK_INT(exl2_image_close(r.engine, image), EXL2_OK);
    CHECK_INT(exl2_image_close(r.engine, image), EXL2_ERR_STALE);
    CHECK_INT(exl2_image_get(r.engine, image, &info), EXL2_ERR_STALE);
    CHECK_INT(exl2_image_make(r.engine, &d, &more), EXL2_OK);
    rig_drain(&r, 0);
    rig_close(&r);
    r = open_model("qwen2.5-vl", (exl2_model_desc){ 0 }, NULL);
    d = desc_of(&r, rgb, 1, 300);
    CHECK_INT(exl2_image_make(r.engine, &d, &more), EXL2_ERR_ARG); /* more than 200 : 1 */
    rig_close(&r);
}

/* Pictures of another model, closed while they are encoded, made while the model loads or is parked; rows that exceed
   the context. The engine goes on. */
static void test_states(void)
{
    static uint8_t rgb[SIDE * SIDE * 3];
    rig r = open_model("smolvlm", (exl2_model_desc){ .context_max = 64 }, NULL);
    exl2_model_desc desc = { .path = folder_of("qwen2.5-vl"), .vision = { .images = 1, .pixels_max = 40000 } };
    exl2_model other;
    exl2_image image = make(&r, 1), two[2], unknown;
    exl2_image_info info;
    exl2_image_desc d = desc_of(&r, rgb, SIDE, SIDE);
    exl2_error error;
    CHECK_INT(exl2_model_open(r.engine, &desc, &other), EXL2_OK);
    d.model = other;
    CHECK_INT(exl2_image_make(r.engine, &d, &unknown), EXL2_ERR_STATE);
    exl2_last_error(r.engine, &error);
    CHECK(strstr(error.text, "loading") != NULL);
    rig_drain(&r, 0);
    CHECK_INT(exl2_model_state(r.engine, other), EXL2_OK);
    CHECK_INT(exl2_image_make(r.engine, &d, &two[0]), EXL2_OK);
    exl2_prompt p = { .text = "x<image>", .images = two, .image_count = 1 };
    refused(&r, p, EXL2_ERR_ARG, "another model");
    CHECK_INT(exl2_model_close(r.engine, other), EXL2_OK);
    refused(&r, p, EXL2_ERR_STALE, "image handle");

    two[0] = image;
    two[1] = make(&r, 2);
    p = (exl2_prompt){ .text = "x<image>y<image>", .images = two, .image_count = 2 };
    refused(&r, p, EXL2_ERR_CONTEXT_FULL, "64");
    exl2_job_desc job = rig_job(&r, NULL, 0, 4, &said[0]);
    exl2_job_size size;
    job.prompt = p;
    CHECK_INT(exl2_job_measure(r.engine, &job, &size), EXL2_ERR_CONTEXT_FULL);
    CHECK(size.prompt_tokens > 64);

    CHECK_INT(exl2_image_close(r.engine, image), EXL2_OK);
    image = make(&r, 3);
    while (exl2_image_get(r.engine, image, &info) >= 0 && info.encode_ns == 0) { /* in the middle of the tower */
        exl2_step(r.engine, &(exl2_step_desc){ .cpu_us = 1 });
    }
    CHECK(info.state != EXL2_IMAGE_ENCODED);
    CHECK_INT(exl2_image_close(r.engine, image), EXL2_OK);
    CHECK_INT(exl2_image_close(r.engine, two[1]), EXL2_OK);
    rig_drain(&r, 0);
    CHECK_INT(exl2_model_park(r.engine, r.model, true), EXL2_OK);
    d.model = r.model;
    CHECK_INT(exl2_image_make(r.engine, &d, &image), EXL2_OK); /* it waits, as jobs do */
    rig_drain(&r, 0);
    CHECK_INT(exl2_image_get(r.engine, image, &info), EXL2_OK);
    CHECK(info.state != EXL2_IMAGE_ENCODED);
    CHECK_INT(exl2_model_park(r.engine, r.model, false), EXL2_OK);
    rig_drain(&r, 0);
    CHECK_INT(exl2_image_get(r.engine, image, &info), EXL2_OK);
    CHECK_INT(info.state, EXL2_IMAGE_ENCODED);
    ask(&r, (exl2_session){ 0 }, &image, 1, "x<image>", 4, &said[0]);
    CHECK_INT(said[0].result, EXL2_OK);
    rig_close(&r);
}

/* A session with a picture, closed and opened a hundred times while another picture takes its rows: the same words. */
static void test_again(void)
{
    rig r = open_model("smolvlm", (exl2_model_desc){ .vision = { .images = 2, .max_rows = 20, .rows = 20 } }, NULL);
    exl2_session s;
    memset(&said[0], 0, sizeof said[0]);
    for (uint32_t i = 0; i < 100; i++) {
        for (uint32_t k = 0; k < 2; k++) {
            exl2_image image = make(&r, k);
            CHECK_INT(exl2_session_open(r.engine, r.model, &s), EXL2_OK);
            ask(&r, s, &image, 1, PROMPT, 3, &said[2 + k]);
            CHECK_INT(exl2_image_close(r.engine, image), EXL2_OK);
            CHECK_INT(exl2_session_close(r.engine, s), EXL2_OK);
            CHECK(i == 0 || same(&said[k], &said[2 + k]));
        }
        memcpy(said, said + 2, 2 * sizeof *said);
    }
    CHECK(!same(&said[0], &said[1]));
    rig_close(&r);
}

/* Aspects from 1:40 to 40:1, in every family. */
static void test_aspects(void)
{
    static const char *const names[] = { "smolvlm", "pixtral",    "mistral3", "llava-clip",
                                         "qwen2-vl", "qwen2.5-vl", "qwen3-vl", "gemma3" };
    static uint8_t rgb[8 * 320 * 3];
    draw(rgb, 8, 320, 5);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        rig r = open_model(names[i], (exl2_model_desc){ 0 }, NULL);
        for (uint32_t k = 0; k < 5; k++) {
            static const uint32_t sides[5][2] = { { 8, 320 }, { 320, 8 }, { 8, 80 }, { 160, 16 }, { 50, 50 } };
            exl2_image_desc d = desc_of(&r, rgb, sides[k][0], sides[k][1]);
            exl2_image image;
            exl2_image_info made, measured;
            CHECK_INT(exl2_image_make(r.engine, &d, &image), EXL2_OK);
            rig_drain(&r, 0);
            CHECK_INT(exl2_image_get(r.engine, image, &made), EXL2_OK);
            CHECK_INT(exl2_image_measure(r.engine, &d, &measured), EXL2_OK);
            if (!CHECK(made.state == EXL2_IMAGE_ENCODED && made.rows > 0 && made.rows == measured.rows
                       && made.operations == measured.operations)) {
                printf("  %s, %u x %u\n", names[i], (unsigned)sides[k][0], (unsigned)sides[k][1]);
            }
            CHECK_INT(exl2_image_close(r.engine, image), EXL2_OK);
        }
        rig_close(&r);
    }
}

/* 1,000 pictures in a pool that holds few: rows come again bit by bit, and nothing is allocated. */
static void test_pool(void)
{
    rig r = open_model("smolvlm", (exl2_model_desc){ .vision = { .images = 8, .rows = 48 } }, NULL);
    static float rows[32 * 64];
    exl2_engine_stats before, after;
    exl2_image image = make(&r, 0);
    rig_drain(&r, 0);
    const exl2__images *g = images_of(&r);
    exl2_engine *e = (exl2_engine *)r.engine;
    const exl2__picture *first = &e->models[0].vectors.pictures.picture[g->image[0].picture];
    uint32_t floats = first->rows * 64;
    CHECK(first->data && floats <= sizeof rows / sizeof *rows);
    memcpy(rows, first->data, floats * sizeof *rows);
    exl2_stats(r.engine, &before);
    for (uint32_t i = 1; i <= 1000; i++) {
        exl2_image next = make(&r, i % 100 ? i : 0);
        rig_drain(&r, i % 3 ? 0 : 300);
        CHECK_INT(exl2_image_close(r.engine, next), EXL2_OK);
        if (i % 100 == 0) {
            first = &e->models[0].vectors.pictures.picture[g->image[0].picture];
            CHECK(first->data && memcmp(rows, first->data, floats * sizeof *rows) == 0);
        }
    }
    exl2_stats(r.engine, &after);
    CHECK_INT(after.allocations, before.allocations);
    CHECK(g->passes > 990);
    CHECK_INT(exl2_image_close(r.engine, image), EXL2_OK);
    rig_close(&r);
}

/* Two sessions with pictures in a pool for one, and K and V for one: each goes on with what it would have said. */
static void test_eviction(const char *name)
{
    exl2_session s[2] = { { 0 }, { 0 } }, alone = { 0 };
    static char text[256];
    bool small = strcmp(name, "smolvlm") != 0; /* a picture has few rows */
    snprintf(text, sizeof text, "%s%s", !small ? PROMPT : strcmp(name, "gemma3") == 0
             ? "Hello <start_of_image> there, look." : "Hello <|image_pad|> there, look.",
             small ? " And it goes on and on, until it ends in a second page." : "");
    rig r = open_model(name, (exl2_model_desc){ .context_max = 128, .cache.tokens = 128,
                                                .vision = { .images = 2, .max_rows = 32, .rows = 32 } }, NULL);
    rig big = open_model(name, (exl2_model_desc){ .vision.max_rows = 32 }, NULL);
    exl2_image one[2] = { make(&r, 11), make(&r, 12) }, other[2] = { make(&big, 11), make(&big, 12) };
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_INT(exl2_session_open(r.engine, r.model, &s[i]), EXL2_OK);
    }
    for (uint32_t turn = 0; turn < 3; turn++) {
        for (uint32_t i = 0; i < 2; i++) {
            ask(&r, s[i], &one[i], turn == 0, turn ? " And then?" : text, 6, &said[0]);
            exl2_session_info info;
            CHECK_INT(exl2_session_get(r.engine, s[i], &info), EXL2_OK);
            CHECK_INT(info.pictures_missing, 0);
            if (turn == 0) {
                CHECK_INT(exl2_image_close(r.engine, one[i]), EXL2_OK);
            }
        }
    }
    CHECK_INT(exl2_session_open(big.engine, big.model, &alone), EXL2_OK);
    for (uint32_t turn = 0; turn < 3; turn++) {
        ask(&big, alone, &other[1], turn == 0, turn ? " And then?" : text, 6, &said[1]);
    }
    CHECK(same(&said[0], &said[1]));
    CHECK(small || images_of(&r)->passes > 2); /* rows were evicted, and computed again from the resized pixels */
    rig_close(&big);
    rig_close(&r);
}

/* More jobs with pictures than there is room for, whose pictures are closed at once: each job sees its own. */
static void test_crowd(void)
{
    enum { JOBS = 12, LARGE = 2 * SIDE };
    static rig_said crowd[JOBS], alone[JOBS];
    static const char text[] = "<|im_start|>User:<image>And<image>What is this?<end_of_utterance>\nAssistant:";
    static uint8_t rgb[2][LARGE * LARGE * 3];
    rig big = open_model("smolvlm", (exl2_model_desc){ .vision.max_rows = 32 }, NULL);
    rig r = open_model("smolvlm", (exl2_model_desc){ .context_max = 128, .cache.tokens = 128,
                                                     .vision = { .images = 2, .max_rows = 32, .rows = 32,
                                                                 .pixels_max = LARGE * LARGE } }, NULL);
    memset(crowd, 0, sizeof crowd);
    for (uint32_t k = 0; k < JOBS; k++) {
        exl2_image pair[2] = { { 0 }, { 0 } }, other[2] = { { 0 }, { 0 } };
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t side = i ? LARGE : SIDE;
            draw(rgb[i], side, side, 100 + 2 * k + i);
            exl2_image_desc one = desc_of(&r, rgb[i], side, side), same_one = desc_of(&big, rgb[i], side, side);
            exl2_result made = EXL2_ERR_BUDGET;
            for (uint32_t step = 0; step < 100000 && made == EXL2_ERR_BUDGET; step++) {
                exl2_step(r.engine, &(exl2_step_desc){ .cpu_us = 50 });
                made = exl2_image_make(r.engine, &one, &pair[i]);
            }
            CHECK_INT(made, EXL2_OK);
            CHECK_INT(exl2_image_make(big.engine, &same_one, &other[i]), EXL2_OK);
        }
        exl2_job_desc d = rig_job(&r, NULL, 0, 8, &crowd[k]);
        d.prompt = (exl2_prompt){ .text = text, .images = pair, .image_count = 2, .flags = EXL2_TEXT_NO_BOS };
        CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
        ask(&big, (exl2_session){ 0 }, other, 2, text, 8, &said[0]);
        for (uint32_t i = 0; i < 2; i++) {
            CHECK_INT(exl2_image_close(r.engine, pair[i]), EXL2_OK);
            CHECK_INT(exl2_image_close(big.engine, other[i]), EXL2_OK);
        }
        alone[k] = said[0];
    }
    rig_drain(&r, 0);
    for (uint32_t k = 0; k < JOBS; k++) {
        CHECK(crowd[k].result == EXL2_OK && same(&alone[k], &crowd[k]));
    }
    rig_close(&big);
    rig_close(&r);
}

/* An open picture stays, however many histories name others that fill the area of pixels. */
static void test_open(void)
{
    enum { OTHERS = 24, LARGE = 2 * SIDE };
    static uint8_t rgb[LARGE * LARGE * 3];
    exl2_image open = { 0 };
    rig r = open_model("smolvlm", (exl2_model_desc){ .context_max = 128, .cache.no_reuse = true,
                                                     .vision = { .images = 2, .max_rows = 32, .rows = 64,
                                                                 .pixels_max = LARGE * LARGE } }, NULL);
    for (uint32_t k = 0; k < OTHERS; k++) {
        exl2_session s = { 0 };
        exl2_image other = { 0 };
        if (k == OTHERS / 3) {
            open = make(&r, 1);
            ask(&r, s, &open, 1, PROMPT, 8, &said[0]);
        }
        draw(rgb, LARGE, LARGE, 2 + k);
        exl2_image_desc d = desc_of(&r, rgb, LARGE, LARGE);
        CHECK_INT(exl2_session_open(r.engine, r.model, &s), EXL2_OK);
        CHECK_INT(exl2_image_make(r.engine, &d, &other), EXL2_OK);
        ask(&r, s, &other, 1, PROMPT, 8, &said[1]);
        CHECK_INT(exl2_image_close(r.engine, other), EXL2_OK);
    }
    ask(&r, (exl2_session){ 0 }, &open, 1, PROMPT, 8, &said[1]);
    CHECK(same(&said[0], &said[1]));
    rig_close(&r);
}

/* Steps with a budget, beside another job, with drafts, in chunks, on the worker's thread, while the model is parked in
   between: the same words. */
static void test_company(const char *name)
{
    exl2_session none = { 0 };
    const char *text = strcmp(name, "gemma3") == 0 ? "Hello <start_of_image> there, look."
                     : strncmp(name, "qwen", 4) == 0 ? "Hello <|image_pad|> there, look." : PROMPT;
    rig r = open_model(name, (exl2_model_desc){ 0 }, NULL);
    exl2_image a = make(&r, 21);
    ask(&r, none, &a, 1, text, 16, &said[0]);
    rig_close(&r);
    for (uint32_t way = 0; way < 5; way++) {
        r = open_model(name, (exl2_model_desc){ .prefill_chunk = way == 2 ? 5 : 0 }, NULL);
        if (way == 4) {
            CHECK_INT(exl2_worker_start(r.engine), EXL2_OK);
        }
        a = make(&r, 21);
        exl2_job_desc d = rig_job(&r, NULL, 0, 16, &said[1]);
        memset(&said[1], 0, sizeof said[1]);
        memset(&said[2], 0, sizeof said[2]);
        d.prompt.text = text;
        d.prompt.images = &a;
        d.prompt.image_count = 1;
        d.prompt.flags = EXL2_TEXT_NO_BOS;
        d.draft.ngram = way == 1;
        exl2_job_desc talk = d;
        talk.prompt = (exl2_prompt){ .text = "Once upon a time there was a", .flags = EXL2_TEXT_NO_BOS };
        talk.user = &said[2];
        talk.max_tokens = 60;
        CHECK_INT(exl2_job_start(r.engine, &talk, NULL), EXL2_OK);
        CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
        CHECK_INT(exl2_image_close(r.engine, a), EXL2_OK); /* the job keeps it */
        exl2_step_desc step = { .cpu_us = way == 0 ? 150 : 400 };
        for (uint32_t i = 0; i < 3; i++) {
            exl2_step(r.engine, &step);
        }
        if (way == 3) {
            CHECK_INT(exl2_model_park(r.engine, r.model, true), EXL2_OK);
            CHECK_INT(exl2_model_park(r.engine, r.model, false), EXL2_OK);
        }
        for (uint32_t i = 0; way == 4 && i < 100000 && !(said[1].done_events && said[2].done_events); i++) {
            exl2_step_desc wait = { .wait = true };
            exl2_step(r.engine, &wait);
        }
        rig_drain(&r, step.cpu_us);
        CHECK(said[1].done_events == 1 && said[2].done_events == 1);
        CHECK_INT(said[1].result, EXL2_OK);
        CHECK_INT(said[2].result, EXL2_OK);
        if (!CHECK(same(&said[0], &said[1]))) {
            printf("  %s, way %u\n", name, way);
        }
        rig_close(&r);
    }
}

/* A draft model without a tower cannot follow a picture: the text is the same, as without one, and of a text alone it
   drafts. */
static void test_draft_model(void)
{
    rig r = open_model("smolvlm", (exl2_model_desc){ 0 }, NULL);
    exl2_model_desc desc = { .path = folder_of("smolvlm") };
    exl2_model draft;
    exl2_image a = make(&r, 41);
    CHECK_INT(exl2_model_load(r.engine, &desc, &draft), EXL2_OK);
    for (uint32_t i = 0; i < 3; i++) { /* with a picture: without and with the draft model; a text with it */
        exl2_job_desc d = rig_job(&r, NULL, 0, 24, &said[i]);
        memset(&said[i], 0, sizeof said[i]);
        d.prompt = (exl2_prompt){ .text = i < 2 ? PROMPT : "Once upon a time", .images = i < 2 ? &a : NULL,
                                  .image_count = i < 2, .flags = EXL2_TEXT_NO_BOS };
        d.draft.model.id = i ? draft.id : 0;
        rig_run(&r, &d);
    }
    CHECK(said[0].count > 0 && same(&said[0], &said[1]));
    CHECK_INT(said[1].stats.drafted, 0);
    CHECK(said[2].stats.drafted > 0 && said[2].stats.accepted > 0);
    rig_close(&r);
}

/* ---- snapshots ---- */

static size_t save(const rig *r, exl2_session s, uint32_t flags, uint8_t **out)
{
    size_t need = 0, again = 0;
    CHECK_INT(exl2_session_save(r->engine, s, flags, NULL, 0, &need), EXL2_OK);
    *out = (uint8_t *)malloc(need);
    CHECK_INT(exl2_session_save(r->engine, s, flags, *out, need, &again), EXL2_OK);
    CHECK_INT(again, need);
    return need;
}

/* A session with a picture goes on in another engine as in its own. */
static void test_snapshots(const char *name)
{
    static const uint32_t ways[] = { 0, EXL2_SAVE_IMAGES, EXL2_SAVE_KV, EXL2_SAVE_KV | EXL2_SAVE_IMAGES };
    const char *text = strncmp(name, "qwen", 4) == 0 ? "Hello <|image_pad|> there, look." : PROMPT;
    rig r = open_model(name, (exl2_model_desc){ 0 }, NULL);
    exl2_image a = make(&r, 31);
    exl2_session s, copy;
    uint8_t *data[4];
    size_t bytes[4];
    CHECK_INT(exl2_session_open(r.engine, r.model, &s), EXL2_OK);
    ask(&r, s, &a, 1, text, 6, &said[0]);
    for (uint32_t i = 0; i < 4; i++) {
        bytes[i] = save(&r, s, ways[i], &data[i]);
    }
    CHECK(bytes[1] > bytes[0] + 1000);
    ask(&r, s, NULL, 0, " And then?", 8, &said[0]);
    rig_close(&r);
    for (uint32_t i = 0; i < 4; i++) {
        exl2_session_info info;
        exl2_picture picture;
        size_t need;
        r = open_model(name, (exl2_model_desc){ 0 }, NULL);
        bool image = ways[i] & EXL2_SAVE_IMAGES, kv = ways[i] & EXL2_SAVE_KV;
        CHECK_INT(exl2_session_open(r.engine, r.model, &copy), EXL2_OK);
        CHECK_INT(exl2_session_restore(r.engine, copy, data[i], bytes[i]), EXL2_OK);
        CHECK_INT(exl2_session_get(r.engine, copy, &info), EXL2_OK);
        CHECK_INT(info.pictures_missing, !image);
        CHECK_INT(exl2_session_pictures(r.engine, copy, &picture, 1, &need), EXL2_OK);
        CHECK(need == 1 && picture.missing == !image);
        if (!image && !kv) {
            exl2_job_desc d = rig_job(&r, NULL, 0, 8, &said[1]);
            exl2_error error;
            d.model.id = 0;
            d.session = copy;
            d.prompt.text = " And then?";
            CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_ERR_STATE);
            exl2_last_error(r.engine, &error);
            char words[64] = "number 1, ";
            for (uint32_t k = 0; k < sizeof picture.id; k++) {
                snprintf(words + 10 + 2 * k, 3, "%02x", picture.id[k]);
            }
            CHECK(strstr(error.text, words) != NULL);
            CHECK_INT(exl2_image_close(r.engine, make(&r, 32)), EXL2_OK); /* another one does not help */
            CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_ERR_STATE);
            CHECK_INT(exl2_image_close(r.engine, make(&r, 31)), EXL2_OK);
            CHECK_INT(exl2_session_get(r.engine, copy, &info), EXL2_OK);
            CHECK_INT(info.pictures_missing, 0);
        }
        ask(&r, copy, NULL, 0, " And then?", 8, &said[1]);
        CHECK(same(&said[0], &said[1]));
        CHECK(images_of(&r)->passes <= (image || kv ? 1 : 2));
        CHECK(!kv || images_of(&r)->passes == 0);
        /* Pixels of a snapshot are not those of exl2_image_make. */
        a = make(&r, 31);
        rig_drain(&r, 0);
        CHECK(!image || images_of(&r)->passes > 0);
        rig_close(&r);
    }
    /* Damaged in each byte of the picture's part, with a sum that fits. */
    r = open_model(name, (exl2_model_desc){ 0 }, NULL);
    CHECK_INT(exl2_session_open(r.engine, r.model, &copy), EXL2_OK);
    uint32_t tokens = exl2__load32(data[1] + 32), good = 0;
    for (size_t i = 40; i < 40 + 4u * tokens + 4 + 44 + 24; i++) {
        uint8_t was = data[1][i];
        for (uint32_t k = 0; k < 2; k++) {
            data[1][i] = k ? (uint8_t)(was + 1) : 0xFF;
            exl2__store64(data[1] + bytes[1] - 8, exl2__hash(data[1], bytes[1] - 8));
            exl2_result result = exl2_session_restore(r.engine, copy, data[1], bytes[1]);
            CHECK(result == EXL2_OK || result == EXL2_ERR_FORMAT || result == EXL2_ERR_BUDGET);
            good += result == EXL2_OK;
        }
        data[1][i] = was;
    }
    CHECK(good > 0);
    ask(&r, (exl2_session){ 0 }, NULL, 0, "Still here", 4, &said[1]);
    rig_close(&r);
    r = open_model(name, (exl2_model_desc){ 0 }, NULL);
    rig_close(&r);
    exl2_model_desc text_alone = { .path = folder_of(name) };
    r = rig_open(NULL, &text_alone);
    CHECK_INT(exl2_session_open(r.engine, r.model, &copy), EXL2_OK);
    CHECK_INT(exl2_session_restore(r.engine, copy, data[0], bytes[0]), EXL2_ERR_STATE);
    rig_close(&r);
    for (uint32_t i = 0; i < 4; i++) {
        free(data[i]);
    }
}

static uint32_t heard[2];

static exl2_flow hear(void *user, const exl2_event *event)
{
    CHECK_INT(event->kind, EXL2_EVENT_IMAGE);
    CHECK(event->image.id != 0 && user == heard);
    heard[event->result == EXL2_OK]++;
    CHECK(event->result == EXL2_PENDING || event->result == EXL2_OK);
    return EXL2_CONTINUE;
}

/* Events to callbacks and into the ring; memory as planned. */
static void test_events(void)
{
    static uint8_t rgb[SIDE * SIDE * 3];
    exl2_engine_desc engine = { 0 };
    rig r = open_model("smolvlm", (exl2_model_desc){ 0 }, &engine);
    exl2_image a, b;
    exl2_event event;
    draw(rgb, SIDE, SIDE, 1);
    exl2_image_desc d = desc_of(&r, rgb, SIDE, SIDE);
    d.silent = false;
    d.on_event = hear;
    d.user = heard;
    CHECK_INT(exl2_image_make(r.engine, &d, &a), EXL2_OK);
    d.on_event = NULL;
    CHECK_INT(exl2_image_make(r.engine, &d, &b), EXL2_OK);
    rig_drain(&r, 200);
    CHECK_INT(heard[0], 1);
    CHECK_INT(heard[1], 1);
    uint32_t events = 0;
    while (exl2_next_event(r.engine, &event)) {
        events++;
        CHECK_INT(event.kind, EXL2_EVENT_IMAGE);
        CHECK(event.image.id == b.id && event.model.id == r.model.id);
    }
    CHECK_INT(events, 2);
    exl2_model_info info, measured;
    exl2_model_desc desc = { .path = folder_of("smolvlm") };
    desc.vision.images = 8;
    desc.vision.pixels_max = 40000;
    CHECK_INT(exl2_model_get(r.engine, r.model, &info), EXL2_OK);
    CHECK_INT(exl2_model_measure(r.engine, &desc, &measured), EXL2_OK);
    CHECK(info.tower_bytes > 0 && info.image_bytes > 0 && !info.tower_skipped);
    CHECK(info.weight_bytes == measured.weight_bytes && info.scratch_bytes == measured.scratch_bytes);
    rig_close(&r);
    /* The plan is the peak, of loading and of work. */
    exl2_engine_stats before, after;
    engine.backend = EXL2_BACKEND_CPU;
    desc.vision.pixels_max = 0;
    CHECK_INT(exl2_open(&engine, &r.engine), EXL2_OK);
    exl2_stats(r.engine, &before);
    CHECK_INT(exl2_model_load(r.engine, &desc, &r.model), EXL2_OK);
    a = make(&r, 1);
    ask(&r, (exl2_session){ 0 }, &a, 1, PROMPT, 4, &said[0]);
    exl2_stats(r.engine, &after);
    CHECK_INT(exl2_model_measure(r.engine, &desc, &measured), EXL2_OK);
    double plan = (double)(measured.weight_bytes + measured.scratch_bytes + measured.cache_bytes);
    CHECK((double)(after.host_peak - before.host_bytes) <= plan * 1.01);
    CHECK((double)(after.host_peak - before.host_bytes) >= plan * 0.99);
    rig_close(&r);
}

/* Rows that were evicted and are computed again give no second event. */
static void test_events_again(void)
{
    static uint8_t rgb[SIDE * SIDE * 3];
    static const char *const texts[] = { PROMPT, "A" PROMPT, "B" PROMPT };
    rig r = open_model("smolvlm", (exl2_model_desc){ .vision = { .images = 2, .max_tiles = 1, .rows = 4 } }, NULL);
    exl2_image images[2];
    exl2_session none = { 0 };
    draw(rgb, SIDE, SIDE, 1);
    exl2_image_desc d = desc_of(&r, rgb, SIDE, SIDE);
    memset(heard, 0, sizeof heard);
    d.silent = false;
    d.on_event = hear;
    d.user = heard;
    CHECK_INT(exl2_image_make(r.engine, &d, &images[0]), EXL2_OK);
    images[1] = make(&r, 2);
    for (uint32_t i = 0; i < 3; i++) {
        ask(&r, none, &images[i % 2], 1, texts[i], 2, &said[0]);
    }
    CHECK_INT(images_of(&r)->passes, 3);
    CHECK(heard[0] == 1 && heard[1] == 1);
    rig_close(&r);
}

/* Pixels that stay for cached pages alone make room: answered pictures of any size never shut out a new one. */
static void test_pixels(void)
{
    static uint8_t rgb[200 * 200 * 3];
    exl2_session none = { 0 };
    exl2_model_desc desc = { 0 };
    desc.vision.images = 2;
    desc.vision.pixels_max = 200 * 200;
    rig r = open_model("smolvlm", desc, NULL);
    for (uint32_t i = 0; i < 12; i++) {
        uint32_t small = 40 + i, large = 170 + 2 * i;
        exl2_image images[2];
        draw(rgb, large, large, i);
        exl2_image_desc d = desc_of(&r, rgb, small, small);
        CHECK_INT(exl2_image_make(r.engine, &d, &images[0]), EXL2_OK);
        d = desc_of(&r, rgb, large, large);
        if (!CHECK_INT(exl2_image_make(r.engine, &d, &images[1]), EXL2_OK)) {
            break;
        }
        ask(&r, none, images, 2, "<|im_start|>User:<image><image>What?<end_of_utterance>\nAssistant:", 2, &said[0]);
        CHECK_INT(exl2_image_close(r.engine, images[0]), EXL2_OK);
        CHECK_INT(exl2_image_close(r.engine, images[1]), EXL2_OK);
    }
    rig_close(&r);
}

int main(void)
{
    static const char *const names[] = { "smolvlm", "qwen2.5-vl", "gemma3", "qwen3-vl" };
    test_cache("smolvlm");
    test_cache("gemma3");
    test_formats();
    test_history();
    test_marks();
    test_bad_input();
    test_states();
    test_again();
    test_aspects();
    test_pool();
    test_crowd();
    test_open();
    test_events();
    test_events_again();
    test_pixels();
    test_draft_model();
    test_snapshots("smolvlm");
    test_snapshots("qwen2.5-vl");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        test_eviction(names[i]);
        test_company(names[i]);
    }
    return check_done();
}

/* vision.c: models that read pictures, whole, against goldens of transformers in float64: expanded ids, log-sum-exps of
   all tokens, greedy ids; from ids, from text and from messages; in chunks of 1, 7 and 64 rows; one picture and two;
   videos, and one after a picture (tests/golden/video). With `host N` the CPU computes the MLPs of N layers of a
   model on a GPU.
   takes: the shared fixtures (fixtures/vision); stb_image, which reads the pictures.
   gives: exit code 0 or 1; 77 without fixtures or stb_image. */
#include "rig.h"

#include "../vision_files.h"

#define TOKENS 1024u
#define ON_GPU (RIG_BACKEND == EXL2_BACKEND_CUDA) /* tests/device: inputs of products are FP16 there, too */
#define LOGSUMEXP_BOUND (ON_GPU ? 0.05 : 0.02) /* K and V are FP16 */
#define ROWS_BOUND (ON_GPU ? 0.01 : 2e-4)      /* in parts of the root mean square of a row */
#define PICTURES_MAX 4u

/* Families that the engine reads so far. */
static const char *const families[] = { "smolvlm",  "pixtral",    "mistral3", "llava-clip",
                                        "qwen2-vl", "qwen2.5-vl", "qwen3-vl", "gemma3" };

static uint32_t host_mlps;

static rig open_model(const char *folder, uint32_t chunk)
{
    exl2_model_desc m = { 0 };
    m.offload = host_mlps ? EXL2_OFFLOAD_AUTO : EXL2_OFFLOAD_NONE;
    m.host_mlps = host_mlps;
    static char path[1024];
    snprintf(path, sizeof path, "%s", vision_path(folder, "config.json"));
    *strrchr(path, '/') = 0;
    m.path = path;
    m.vision.images = PICTURES_MAX;
    m.vision.pixels_max = 100000;
    m.prefill_chunk = chunk;
    return rig_open(NULL, &m);
}

static exl2_image make_picture(const rig *r, const char *name)
{
    vision_picture p = vision_read(vision_path("images", name));
    exl2_image_desc d = { 0 };
    exl2_image image = { 0 };
    d.model = r->model;
    d.width = p.width;
    d.height = p.height;
    d.pixels = p.rgb;
    d.silent = true;
    exl2_result result = exl2_image_make(r->engine, &d, &image);
    exl2_image_info made, measured;
    CHECK_INT(exl2_image_get(r->engine, image, &made), EXL2_OK);
    d.pixels = NULL;
    CHECK_INT(exl2_image_measure(r->engine, &d, &measured), EXL2_OK);
    CHECK(made.rows > 0 && made.rows == measured.rows);
    CHECK(made.tokens == measured.tokens && made.tiles == measured.tiles);
    CHECK(memcmp(made.grid, measured.grid, sizeof made.grid) == 0);
    if (result < 0) {
        rig_fail(r->engine, "exl2_image_make", result);
    }
    free(p.rgb);
    return image;
}

/* What the tower sees is the golden, byte by byte, and the rows are there. out: room for its rows. Returns their
   number of floats. */
static size_t check_shown(const rig *r, const char *folder, const char *name, exl2_image image, float *out)
{
    char file[256];
    exl2_image_info info = { 0 };
    size_t bytes = 0, floats = 0, need = 7;
    snprintf(file, sizeof file, "seen/%s", name);
    for (uint32_t i = 0; i < 100000 && info.state != EXL2_IMAGE_ENCODED; i++) {
        CHECK(exl2_step(r->engine, &(exl2_step_desc){ .cpu_us = 100000 }) >= 0);
        if (!CHECK_INT(exl2_image_get(r->engine, image, &info), EXL2_OK) || info.result < 0) {
            break;
        }
    }
    CHECK_INT(info.state, EXL2_IMAGE_ENCODED);
    vision_picture wanted = vision_read(vision_path(folder, file));
    CHECK_INT(exl2_image_seen(r->engine, image, NULL, 0, &bytes), EXL2_OK);
    CHECK_INT(bytes, (long long)wanted.width * wanted.height * 3);
    uint8_t *seen = (uint8_t *)malloc(bytes);
    CHECK_INT(exl2_image_seen(r->engine, image, seen, bytes - 1, &need), EXL2_ERR_TOO_SMALL);
    CHECK_INT(need, bytes);
    CHECK_INT(exl2_image_seen(r->engine, image, seen, bytes, &need), EXL2_OK);
    CHECK(memcmp(seen, wanted.rgb, bytes) == 0);
    CHECK_INT(exl2_image_rows(r->engine, image, NULL, 0, &floats), EXL2_OK);
    CHECK(floats >= info.rows * 64u && floats % (info.rows * 64u) == 0);
    float *rows = (float *)malloc(floats * sizeof *rows), sum = 0;
    CHECK_INT(exl2_image_rows(r->engine, image, rows, floats - 1, &need), EXL2_ERR_TOO_SMALL);
    CHECK_INT(exl2_image_rows(r->engine, image, rows, floats, &need), EXL2_OK);
    for (size_t i = 0; i < floats; i++) {
        sum += fabsf(rows[i]);
    }
    CHECK(sum > 1 && sum < 1e6f);
    memcpy(out, rows, floats * sizeof *out);
    CHECK_INT(exl2_image_rows(r->engine, image, NULL, 1, &need), EXL2_ERR_ARG);
    CHECK_INT(exl2_image_seen(r->engine, image, NULL, 0, NULL), EXL2_ERR_ARG);
    free(rows);
    free(seen);
    free(wanted.rgb);
    return floats;
}

static void text_of(const exl2__json *j, uint32_t object, const char *key, char *out, size_t cap)
{
    uint32_t at = exl2__json_get(j, object, key);
    size_t bytes = at ? exl2__json_text(j, at, out, cap - 1) : 0;
    CHECK(at && bytes < cap);
    out[bytes < cap ? bytes : 0] = 0;
}

static double worst, worst_row;

/* The prompt as it is given, in a job that scores it, and in one that generates. */
static void check_prompt(const rig *r, const rig_golden_file *g, uint32_t prompt, exl2_prompt given, const char *way)
{
    static rig_said said;
    static double sums[TOKENS];
    static exl2_token expanded[TOKENS], wanted[64], seen[TOKENS];
    uint32_t count = rig_golden_ids(g, exl2__json_get(&g->json, prompt, "ids_expanded"), expanded, TOKENS);
    double rows = 0;
    size_t need = 0;
    exl2_session session;
    exl2__json_f64(&g->json, exl2__json_get(&g->json, prompt, "rows"), &rows);
    memset(&said, 0, sizeof said);
    exl2_job_desc d = rig_job(r, NULL, 0, 1, &said);
    CHECK_INT(exl2_session_open(r->engine, r->model, &session), EXL2_OK);
    d.model.id = 0;
    d.session = session;
    d.prompt = given;
    d.prefill_only = d.score_prompt = true;
    rig_run(r, &d);
    CHECK_INT(said.stats.prompt_tokens, count);
    CHECK_INT(said.stats.image_rows, rows);
    CHECK_INT(exl2_session_tokens(r->engine, session, seen, TOKENS, &need), EXL2_OK);
    CHECK_INT(need, count);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < count && i < need; i++) {
        wrong += seen[i] != expanded[i];
    }
    if (!CHECK_INT(wrong, 0)) {
        printf("  %s\n", way);
    }
    /* A row has no score: those of tokens come in order. */
    rig_golden_numbers(g, exl2__json_get(&g->json, prompt, "logsumexp"), sums, TOKENS);
    uint32_t scored = 0, placeholder = 0;
    char mark[64];
    text_of(&g->json, 0, "placeholder", mark, sizeof mark);
    exl2_picture pictures[PICTURES_MAX];
    size_t found = 0;
    CHECK_INT(exl2_session_pictures(r->engine, session, pictures, PICTURES_MAX, &found), EXL2_OK);
    static bool is_row[TOKENS];
    memset(is_row, 0, sizeof is_row);
    for (size_t k = 0; k < found; k++) { /* the first place of a picture is a row */
        for (uint32_t i = pictures[k].from; i < pictures[k].from + pictures[k].count; i++) {
            is_row[i] = seen[i] == seen[pictures[k].from];
        }
    }
    for (uint32_t i = 1; i < count; i++) {
        placeholder += is_row[i];
        if (!is_row[i] && scored < said.scored) {
            double off = fabs((double)said.logsumexp[scored++] - sums[i - 1]);
            worst = fmax(worst, off);
            if (!CHECK(off < LOGSUMEXP_BOUND)) {
                printf("  %s: token %u: off by %g\n", way, i - 1, off);
                break;
            }
        }
    }
    CHECK_INT(placeholder, rows);
    uint32_t greedy = rig_golden_ids(g, exl2__json_get(&g->json, prompt, "greedy"), wanted, 64);
    memset(&said, 0, sizeof said);
    d = rig_job(r, NULL, 0, greedy, &said);
    d.prompt = given;
    rig_run(r, &d);
    CHECK_INT(said.count, greedy);
    for (uint32_t i = 0; i < greedy && i < said.count; i++) {
        CHECK_INT(said.ids[i], wanted[i]);
    }
    CHECK_INT(exl2_session_close(r->engine, session), EXL2_OK);
}

/* All prompts of a folder. */
static void check_folder(const char *folder, uint32_t chunk)
{
    rig r = open_model(folder, chunk);
    rig_golden_file g;
    rig_golden_open(vision_path(folder, "golden.json"), &g);
    uint32_t prompts = exl2__json_get(&g.json, 0, "prompts");
    for (uint32_t at = exl2__json_first(&g.json, prompts); at; at = exl2__json_next(&g.json, prompts, at)) {
        static char text[4096], name[128];
        static exl2_token ids[TOKENS];
        static float rows[VISION_ROWS_MAX * 64 * 4];
        size_t floats = 0;
        exl2_image images[PICTURES_MAX];
        uint32_t list = exl2__json_get(&g.json, at, "images"), count = 0;
        for (uint32_t i = exl2__json_first(&g.json, list); i && count < PICTURES_MAX;
             i = exl2__json_next(&g.json, list, i)) {
            size_t bytes = exl2__json_text(&g.json, i, name, sizeof name - 1);
            name[bytes] = 0;
            images[count] = make_picture(&r, name);
            if (chunk == 0) {
                floats += check_shown(&r, folder, name, images[count], rows + floats);
            }
            count++;
        }
        if (chunk == 0) {
            double number = 0, off;
            exl2__json_f64(&g.json, exl2__json_get(&g.json, at, "rows"), &number);
            uint32_t levels = (uint32_t)(floats / (64 * (size_t)number));
            off = vision_differ(&g.json, at, rows, (uint32_t)number, levels, 64, true);
            worst_row = fmax(worst_row, off);
            CHECK(off < ROWS_BOUND);
        }
        text_of(&g.json, at, "text", text, sizeof text);
        text_of(&g.json, at, "name", name, sizeof name);
        exl2_prompt prompt = { 0 };
        prompt.images = images;
        prompt.image_count = count;
        prompt.text = text;
        prompt.flags = EXL2_TEXT_NO_BOS;
        check_prompt(&r, &g, at, prompt, name);
        if (!strstr(name, "joined")) { /* there a line end joins with a mark's, which ids cannot say */
            prompt.text = NULL;
            prompt.tokens = ids;
            prompt.token_count = rig_golden_ids(&g, exl2__json_get(&g.json, at, "ids"), ids, TOKENS);
            check_prompt(&r, &g, at, prompt, name);
        }
        for (uint32_t i = 0; i < count; i++) {
            CHECK_INT(exl2_image_close(r.engine, images[i]), EXL2_OK);
        }
    }
    rig_golden_close(&g);
    rig_close(&r);
    printf("%s, chunks of %u: logsumexp within %.2g, rows within %.2g\n", folder, chunk, worst, worst_row);
}

/* ---- videos ---- */

/* given: frames, fps, width and height of the golden. */
static exl2_image make_video(const rig *r, const double given[4])
{
    uint32_t frames = (uint32_t)given[0], width = (uint32_t)given[2], height = (uint32_t)given[3];
    exl2_image_desc d = { 0 };
    exl2_image image = { 0 };
    exl2_image_info made, measured;
    uint8_t *rgb = vision_frames(frames ? frames : 1, width, height);
    d.model = r->model;
    d.width = width;
    d.height = height;
    d.frames = frames;
    d.fps = given[1];
    d.pixels = rgb;
    d.silent = true;
    exl2_result result = exl2_image_make(r->engine, &d, &image);
    free(rgb);
    if (result < 0) {
        rig_fail(r->engine, "exl2_image_make", result);
    }
    d.pixels = NULL;
    CHECK_INT(exl2_image_get(r->engine, image, &made), EXL2_OK);
    CHECK_INT(exl2_image_measure(r->engine, &d, &measured), EXL2_OK);
    CHECK(made.rows > 0 && made.rows == measured.rows && made.tokens == measured.tokens);
    CHECK_INT(made.tiles, 1);
    CHECK_INT(made.grid[0], frames ? (frames + 1) / 2 : 1);
    CHECK_INT(made.rows, made.grid[0] * made.grid[1] * made.grid[2]);
    return image;
}

/* The rows of a video, which is the only picture. */
static void check_video_rows(const rig *r, const rig_golden_file *g, uint32_t prompt, exl2_image image)
{
    static float rows[VISION_ROWS_MAX * 64 * 4];
    exl2_image_info info = { 0 };
    size_t floats = 0;
    for (uint32_t i = 0; i < 100000 && info.state != EXL2_IMAGE_ENCODED; i++) {
        CHECK(exl2_step(r->engine, &(exl2_step_desc){ .cpu_us = 1000 }) >= 0);
        CHECK_INT(exl2_image_get(r->engine, image, &info), EXL2_OK);
    }
    CHECK_INT(exl2_image_rows(r->engine, image, rows, sizeof rows / sizeof *rows, &floats), EXL2_OK);
    double off = vision_differ(&g->json, prompt, rows, info.rows, (uint32_t)(floats / (64 * (size_t)info.rows)), 64,
                               true);
    worst_row = fmax(worst_row, off);
    CHECK(off < ROWS_BOUND);
}

static void check_videos(const char *folder, uint32_t chunk)
{
    char path[256];
    rig r = open_model(folder, chunk);
    rig_golden_file g;
    snprintf(path, sizeof path, "tests/golden/video/%s.json", folder);
    rig_golden_open(path, &g);
    uint32_t prompts = exl2__json_get(&g.json, 0, "prompts");
    for (uint32_t at = exl2__json_first(&g.json, prompts); at; at = exl2__json_next(&g.json, prompts, at)) {
        static char text[1024];
        static exl2_token ids[TOKENS];
        exl2_image images[PICTURES_MAX];
        uint32_t list = exl2__json_get(&g.json, at, "given"), count = 0;
        for (uint32_t i = exl2__json_first(&g.json, list); i && count < PICTURES_MAX;
             i = exl2__json_next(&g.json, list, i)) {
            double given[4];
            CHECK_INT(vision_numbers(&g.json, i, given, 4), 4);
            images[count++] = make_video(&r, given);
        }
        if (chunk == 0 && exl2__json_get(&g.json, at, "embeddings_sum")) {
            check_video_rows(&r, &g, at, images[0]);
        }
        text_of(&g.json, at, "text", text, sizeof text);
        exl2_prompt prompt = { 0 };
        prompt.images = images;
        prompt.image_count = count;
        prompt.text = text;
        prompt.flags = EXL2_TEXT_NO_BOS;
        check_prompt(&r, &g, at, prompt, "a video in a text");
        prompt.text = NULL;
        prompt.tokens = ids;
        prompt.token_count = rig_golden_ids(&g, exl2__json_get(&g.json, at, "ids"), ids, TOKENS);
        check_prompt(&r, &g, at, prompt, "a video among ids");
        exl2_message turn = { 0 };
        turn.role = "user";
        turn.text = "What is this?";
        turn.images = images;
        turn.image_count = 1;
        prompt = (exl2_prompt){ 0 };
        prompt.messages = &turn;
        prompt.message_count = 1;
        if (count == 1) {
            check_prompt(&r, &g, at, prompt, "a video in a message");
        }
        for (uint32_t i = 0; i < count; i++) {
            CHECK_INT(exl2_image_close(r.engine, images[i]), EXL2_OK);
        }
    }
    rig_golden_close(&g);
    rig_close(&r);
    printf("%s, videos, chunks of %u: logsumexp within %.2g, rows within %.2g\n", folder, chunk, worst, worst_row);
}

int main(int argc, char **argv)
{
    static const uint32_t chunks[] = { 0, 1, 7, 64 };
    host_mlps = argc == 3 && strcmp(argv[1], "host") == 0 ? (uint32_t)atoi(argv[2]) : 0;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        for (size_t k = 0; k < sizeof chunks / sizeof chunks[0]; k++) {
            worst = worst_row = 0;
            check_folder(families[i], chunks[k]);
            worst = worst_row = 0;
            if (strncmp(families[i], "qwen", 4) == 0) {
                check_videos(families[i], chunks[k]);
            }
        }
    }
    return check_done();
}

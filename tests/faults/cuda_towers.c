/* cuda_towers.c: pictures and videos over the fake driver: memory as it was predicted, encoding at once and in slices,
   jobs with pictures, parking in the middle, what rows of pictures and after them tell the kernels, and each driver
   call failing once while a model with a tower loads and encodes.
   takes: the shared fixtures (fixtures/vision); stb_image, which reads the pictures.
   gives: exit code 0 or 1; 77 without fixtures or stb_image. */
#include "cuda_rig.h"
#include "../device/fake_tower.h"
#include "../vision_files.h"

#define SIDE 64u

static rig_said said;
static uint8_t pixels[2][SIDE * SIDE * 3];
static uint32_t host_mlps; /* of the models: the CPU computes the MLPs of so many layers */

static exl2_result load_model(exl2_engine *e, const char *folder, bool keep_packed, exl2_model *out)
{
    static char path[1200];
    snprintf(path, sizeof path, "%s/fixtures/vision/%s", check_env("EXL2_TEST_DATA"), folder);
    exl2_model_desc d = { .path = path, .prefill_chunk = 32, .batch_max = 2, .keep_packed = keep_packed };
    d.offload = host_mlps ? EXL2_OFFLOAD_AUTO : EXL2_OFFLOAD_NONE;
    d.host_mlps = host_mlps;
    d.context_max = 512;
    d.vision.images = 2;
    d.vision.pixels_max = 160 * 160;
    d.vision.max_rows = 64;
    return exl2_model_load(e, &d, out);
}

static exl2_result make_picture(exl2_engine *e, exl2_model model, uint32_t index, exl2_image *out)
{
    exl2_image_desc d = { .model = model, .width = SIDE, .height = SIDE, .pixels = pixels[index], .silent = true };
    return exl2_image_make(e, &d, out);
}

static exl2_result make_video(exl2_engine *e, exl2_model model, uint32_t index, exl2_image *out)
{
    static uint8_t frames[5][SIDE / 2 * SIDE / 2 * 3];
    memcpy(frames, pixels[index], sizeof frames[0]);
    exl2_image_desc d = { .model = model, .width = SIDE / 2, .height = SIDE / 2, .pixels = frames, .silent = true,
                          .frames = 5, .fps = 0.1 };
    return exl2_image_make(e, &d, out);
}

/* Steps until the picture has its rows, or never will. gpu_us 0: at once. Returns its result. */
static exl2_result encode(exl2_engine *e, exl2_image image, uint32_t gpu_us, uint32_t *steps)
{
    exl2_image_info info = { 0 };
    exl2_step_desc step = { .gpu_us = gpu_us, .wait = gpu_us == 0 };
    for (*steps = 0; *steps < 20000 && info.state != EXL2_IMAGE_ENCODED && info.result >= 0; ++*steps) {
        exl2_step(e, &step);
        EXL2__TRY(exl2_image_get(e, image, &info));
    }
    return info.result < 0 ? info.result : info.state == EXL2_IMAGE_ENCODED ? EXL2_OK : EXL2_PENDING;
}

/* A job whose prompt has the picture. */
static exl2_result speak(exl2_engine *e, exl2_model model, exl2_image image)
{
    exl2_session session;
    EXL2__TRY(exl2_session_open(e, model, &session));
    exl2_job_desc d = cuda_job(session, NULL, 0, 5, &said);
    d.prompt.text = "What is this?";
    d.prompt.images = &image;
    d.prompt.image_count = 1;
    d.prompt.flags = EXL2_TEXT_NO_BOS;
    exl2_result r = exl2_job_start(e, &d, NULL);
    if (r >= 0) {
        cuda_step_all(e, false, 0);
        CHECK_INT(said.done_events, 1);
        r = said.result;
    }
    exl2_session_close(e, session);
    return r;
}

static uint64_t device_bytes(exl2_engine *e)
{
    exl2_engine_stats stats;
    exl2_stats(e, &stats);
    return stats.device_bytes;
}

static void wait_loaded(exl2_engine *e, exl2_model model)
{
    for (uint32_t i = 0; i < 100000 && exl2_model_state(e, model) == EXL2_PENDING; i++) {
        exl2_step(e, NULL);
    }
}

static void check_family(const char *folder, bool keep_packed, int arch)
{
    exl2_model model;
    exl2_model_info info;
    exl2_image a, b;
    exl2_engine_stats before, after;
    uint32_t once = 0, slices = 0;
    machine_make();
    fake.devices[0].arch_major = arch / 10;
    fake.devices[0].arch_minor = arch % 10;
    fake.devices[0].shared_optin = arch == 90 ? 232448 : 101376;
    fake.run = fake_model_run;
    exl2_engine *e = cuda_open();
    if (!CHECK(e) || !CHECK_INT(load_model(e, folder, keep_packed, &model), EXL2_OK)) {
        exit(1);
    }
    CHECK_INT(exl2_model_get(e, model, &info), EXL2_OK);
    exl2_stats(e, &before);
    CHECK_INT(before.device_bytes, info.device_bytes);
    CHECK(info.tower_bytes > 0 && info.image_bytes > 0);
    CHECK_INT(make_picture(e, model, 0, &a), EXL2_OK);
    CHECK_INT(make_picture(e, model, 1, &b), EXL2_OK);
    CHECK_INT(encode(e, a, 0, &once), EXL2_OK);
    CHECK_INT(encode(e, b, 1, &slices), EXL2_OK);
    CHECK(slices > once);
    CHECK_INT(speak(e, model, a), EXL2_OK);
    CHECK_INT(said.stats.prompt_tokens > said.stats.image_rows && said.stats.image_rows > 0, 1);
    CHECK_INT(said.count, 5);
    exl2_stats(e, &after);
    CHECK_INT(after.allocations, before.allocations);
    CHECK_INT(after.device_bytes, before.device_bytes);
    /* Parked while it encodes: the picture is encoded from its beginning afterwards. */
    CHECK_INT(exl2_image_close(e, a), EXL2_OK);
    pixels[0][5]++;
    CHECK_INT(make_picture(e, model, 0, &a), EXL2_OK);
    for (uint32_t i = 0; i < 4; i++) {
        exl2_step(e, &(exl2_step_desc){ .gpu_us = 1 });
    }
    CHECK_INT(exl2_model_park(e, model, true), EXL2_OK);
    CHECK_INT(device_bytes(e), 0);
    CHECK_INT(exl2_model_park(e, model, false), EXL2_OK);
    wait_loaded(e, model);
    CHECK_INT(exl2_model_state(e, model), EXL2_OK);
    CHECK_INT(device_bytes(e), before.device_bytes);
    CHECK_INT(encode(e, a, 0, &once), EXL2_OK);
    CHECK_INT(speak(e, model, a), EXL2_OK);
    CHECK_INT(exl2_image_close(e, a), EXL2_OK);
    CHECK_INT(exl2_image_close(e, b), EXL2_OK);
    CHECK_INT(exl2_model_close(e, model), EXL2_OK);
    CHECK_INT(device_bytes(e), 0);
    exl2_close(e);
    machine_end();
}

/* ---- rows against goldens, by kernels in plain C ---- */

static float rows[VISION_ROWS_MAX * 64 * 3];

/* Compares the rows of a prompt's pictures with the golden's. */
static void check_differ(const exl2__json *j, uint32_t prompt, size_t floats, const char *folder, double *worst)
{
    double count = 0;
    exl2__json_f64(j, exl2__json_get(j, prompt, "rows"), &count);
    uint32_t levels = (uint32_t)(floats / (64 * (size_t)count));
    double off = vision_differ(j, prompt, rows, (uint32_t)count, levels, 64, true);
    if (!CHECK(off < 0.01)) {
        printf("  %s\n", folder);
    }
    *worst = fmax(*worst, off);
}

/* Encodes the pictures of a prompt. */
static void check_prompt(exl2_engine *e, exl2_model model, const exl2__json *j, uint32_t prompt, const char *folder,
                         double *worst)
{
    uint32_t images = exl2__json_get(j, prompt, "images"), steps;
    size_t floats = 0, need = 0;
    char name[128];
    for (uint32_t at = exl2__json_first(j, images); at; at = exl2__json_next(j, images, at)) {
        exl2_image image;
        name[exl2__json_text(j, at, name, sizeof name - 1)] = 0;
        vision_picture p = vision_read(vision_path("images", name));
        exl2_image_desc d = { .model = model, .width = p.width, .height = p.height, .pixels = p.rgb, .silent = true };
        CHECK_INT(exl2_image_make(e, &d, &image), EXL2_OK);
        CHECK_INT(encode(e, image, 0, &steps), EXL2_OK);
        CHECK_INT(exl2_image_rows(e, image, rows + floats, EXL2__COUNT(rows) - floats, &need), EXL2_OK);
        CHECK_INT(exl2_image_close(e, image), EXL2_OK);
        floats += need;
        free(p.rgb);
    }
    check_differ(j, prompt, floats, folder, worst);
}

/* The same for the first golden of a video (tests/golden/video), which has an odd number of frames. */
static void check_video(exl2_engine *e, exl2_model model, const char *folder, double *worst)
{
    exl2__ctx c = { .allocator = exl2__platform_allocator() };
    exl2__json j;
    exl2_image image;
    exl2_image_info info;
    double given[4];
    char path[256];
    uint32_t steps;
    size_t floats = 0;
    snprintf(path, sizeof path, "tests/golden/video/%s.json", folder);
    char *text = vision_golden_at(&c, path, &j);
    uint32_t prompt = exl2__json_first(&j, exl2__json_get(&j, 0, "prompts"));
    CHECK_INT(vision_numbers(&j, exl2__json_first(&j, exl2__json_get(&j, prompt, "given")), given, 4), 4);
    exl2_image_desc d = { .model = model, .width = (uint32_t)given[2], .height = (uint32_t)given[3], .silent = true,
                          .frames = (uint32_t)given[0], .fps = given[1] };
    uint8_t *rgb = vision_frames(d.frames, d.width, d.height);
    d.pixels = rgb;
    CHECK_INT(exl2_image_make(e, &d, &image), EXL2_OK);
    CHECK_INT(encode(e, image, 0, &steps), EXL2_OK);
    CHECK_INT(exl2_image_get(e, image, &info), EXL2_OK);
    CHECK(d.frames % 2 == 1 && info.grid[0] == (d.frames + 1) / 2);
    CHECK_INT(exl2_image_rows(e, image, rows, EXL2__COUNT(rows), &floats), EXL2_OK);
    check_differ(&j, prompt, floats, folder, worst);
    CHECK_INT(exl2_image_close(e, image), EXL2_OK);
    exl2__json_close(&c, &j);
    free(text);
    free(rgb);
}

static void check_golden(const char *folder, int arch)
{
    exl2__ctx c = { .allocator = exl2__platform_allocator() };
    exl2__json j;
    exl2_model model;
    double worst = 0;
    machine_make();
    fake.devices[0].arch_major = arch / 10;
    fake.devices[0].arch_minor = arch % 10;
    fake.devices[0].shared_optin = arch == 90 ? 232448 : 101376;
    fake.fresh = 0xFF; /* NaN: nothing is used that was not written */
    fake.run = fake_tower_run;
    exl2_engine *e = cuda_open();
    if (!CHECK(e) || !CHECK_INT(load_model(e, folder, false, &model), EXL2_OK)) {
        exit(1);
    }
    char *text = vision_golden(&c, folder, &j);
    check_prompt(e, model, &j, exl2__json_first(&j, exl2__json_get(&j, 0, "prompts")), folder, &worst);
    exl2__json_close(&c, &j);
    free(text);
    if (strncmp(folder, "qwen", 4) == 0) {
        check_video(e, model, folder, &worst);
    }
    exl2_close(e);
    machine_end();
    printf("%s: rows within %.2g\n", folder, worst);
}

/* ---- what rows tell ---- */

static uint32_t picture_passes, mixed_passes, alone_rows, decoded, turned, ahead, added, rotated, late;
static bool ends_block; /* the kernel before has written to the residual */

static void watch(const char *function, const void *arguments, const unsigned grid[3])
{
    bool store = strncmp(function, "exl2k_attend_store", 18) == 0;
    bool decode = strncmp(function, "exl2k_attend_decode", 19) == 0;
    if (store || decode) {
        const exl2k_attend_args *a = arguments;
        const exl2k_pass *step = fake_model_at(a->pass, sizeof *step);
        uint32_t vectors = 0;
        for (uint32_t i = 0; i < step->row_count; i++) {
            const exl2k_row *row = fake_model_at(a->rows + i * sizeof *row, sizeof *row);
            int moved = (int)row->flags >> EXL2K_ROW_MOVED;
            bool later = (row->flags & EXL2K_ROW_LATER) != 0;
            CHECK(!later || moved > 0);
            vectors += (row->flags & EXL2K_ROW_VECTOR) != 0;
            decoded += decode && !(row->flags & EXL2K_ROW_DONE);
            turned += decode && !(row->flags & EXL2K_ROW_DONE) && moved == -2;
            ahead += decode && !(row->flags & EXL2K_ROW_DONE) && moved == 80 + 1 - 3 * 4 && !later;
            alone_rows += store && (row->flags & EXL2K_ROW_VECTOR) && moved == (int)(step->row_count - 1 - i)
                       && later == (moved > 0);
        }
        picture_passes += store && vectors > 0;
        mixed_passes += store && vectors > 0 && vectors < step->row_count;
    }
    bool adds = strcmp(function, "exl2k_tower_add") == 0;
    added += adds;
    late += adds && !ends_block; /* rows are added before anything reads the residual */
    ends_block = strstr(function, "gemm") != NULL || strncmp(function, "exl2k_wg", 8) == 0;
    rotated += strcmp(function, "exl2k_attend_turn") == 0;
    fake_model_run(function, arguments, grid);
}

/* Two jobs with a picture each, or a video of five frames and 0.1 frames a second, and one without, at once. */
static void check_rows(const char *folder, bool videos)
{
    static rig_said all[3];
    exl2_model model;
    exl2_image images[2];
    machine_make();
    fake.run = watch;
    exl2_engine *e = cuda_open();
    if (!CHECK(e) || !CHECK_INT(load_model(e, folder, false, &model), EXL2_OK)) {
        exit(1);
    }
    picture_passes = mixed_passes = alone_rows = decoded = turned = ahead = added = rotated = late = 0;
    exl2_session sessions[3];
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_INT(exl2_session_open(e, model, &sessions[i]), EXL2_OK);
        exl2_job_desc d = cuda_job(sessions[i], NULL, 0, 20, &all[i]);
        d.prompt.text = "What is this?";
        d.prompt.flags = EXL2_TEXT_NO_BOS;
        if (i < 2) {
            CHECK_INT(videos ? make_video(e, model, i, &images[i]) : make_picture(e, model, i, &images[i]), EXL2_OK);
            d.prompt.images = &images[i];
            d.prompt.image_count = 1;
        }
        CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
    }
    cuda_step_all(e, false, 0);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_INT(all[i].count, 20);
    }
    CHECK(picture_passes > 0 && decoded > 0);
    CHECK_INT(late, 0);
    exl2_close(e);
    machine_end();
}

static void test_rows(void)
{
    check_rows("gemma3", false); /* in each of 4 layers: a pass for each picture, whose rows see up to its last one */
    CHECK_INT(picture_passes, 2 * 4);
    CHECK_INT(mixed_passes, 0);
    CHECK_INT(alone_rows, 2 * 4 * 16);
    CHECK_INT(added + rotated + turned, 0);
    check_rows("qwen2.5-vl", false); /* after 4 rows in 2 lines the angle is 2 behind, also in passes that repeat */
    CHECK(turned > 0 && turned < decoded && 3 * turned >= 2 * decoded - 3);
    CHECK(rotated >= picture_passes);
    CHECK_INT(added, 0);
    check_rows("qwen3-vl", false); /* 3 layers, after 2 of which rows are added */
    CHECK_INT(added * 3, picture_passes * 2);
    for (host_mlps = 1; host_mlps <= 3; host_mlps++) { /* the CPU adds MLPs of the last ones, of all at last */
        check_rows("qwen3-vl", false);
        CHECK_INT(added * 3, picture_passes * 2);
    }
    host_mlps = 1;
    check_rows("gemma3", false);
    CHECK_INT(picture_passes, 2 * 4);
    CHECK_INT(alone_rows, 2 * 4 * 16);
    check_rows("qwen2.5-vl", true);
    CHECK(ahead > 0 && ahead < decoded && rotated >= picture_passes);
    host_mlps = 0;
    check_rows("smolvlm", false);
    CHECK_INT(added + rotated + turned, 0);
    /* Three pairs of frames with 4 rows each; their times are 0, 40 and 80, so the angle runs ahead of the place. */
    check_rows("qwen2.5-vl", true);
    CHECK(ahead > 0 && ahead < decoded && 3 * ahead >= 2 * decoded - 3);
    CHECK(rotated >= picture_passes);
}

/* Call n fails while a model loads, encodes a picture and speaks of it. false: there are fewer calls. */
static bool check_fault(const char *folder, uint32_t n, int code, uint32_t gpu_us)
{
    exl2_model model = { 0 };
    exl2_image image = { 0 };
    uint32_t steps;
    machine_make();
    fake.run = fake_model_run;
    exl2_engine *e = cuda_open();
    if (!CHECK(e)) {
        exit(1);
    }
    fake.fail_at = n;
    fake.fail_code = code;
    exl2_result r = load_model(e, folder, false, &model);
    r = r < 0 ? r : make_picture(e, model, 0, &image);
    r = r < 0 ? r : encode(e, image, gpu_us, &steps);
    r = r < 0 ? r : speak(e, model, image);
    bool failed = fake.failed[0];
    CHECK(!failed ? r == EXL2_OK : r != EXL2_PENDING);
    fake.fail_at = 0;
    exl2_close(e);
    machine_end();
    return failed;
}

int main(void)
{
    check_shared("fixtures/vision/README.md");
    for (uint32_t i = 0; i < sizeof pixels; i++) {
        ((uint8_t *)pixels)[i] = (uint8_t)(i * 7 + i / 191);
    }
    machine_drop_cache();
    check_family("smolvlm", false, 90);
    check_family("qwen2.5-vl", true, 89);
    check_family("qwen3-vl", false, 75);
    check_family("gemma3", true, 90);
    check_family("mistral3", false, 86);
    check_family("llava-clip", false, 90);
    for (uint32_t i = 0; i < EXL2__COUNT(vision_folders); i++) {
        check_golden(vision_folders[i], i % 2 ? 89 : 90);
    }
    test_rows();
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t n = 1, step = 1;
        while (check_fault("qwen3-vl", n, i ? EXL2__CUDA_LAUNCH_FAILED : EXL2__CUDA_OUT_OF_MEMORY, i ? 3 : 0)) {
            n += step;
            step = n > 40 ? 7 : 1; /* the calls of one layer are like those of the next one */
        }
        CHECK(n > 100);
    }
    machine_drop_cache();
    fake_reset();
    return check_done();
}

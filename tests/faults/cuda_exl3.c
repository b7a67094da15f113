/* cuda_exl3.c: models of EXL3 on the fake GPU: what they are planned to need and use, parking and loading again, and
   what is refused.
   takes: $EXL2_TEST_DATA: fixtures/exl3.
   gives: exit code 0, 1, or 77 without the fixtures. */
#include "cuda_rig.h"

static const char *folder; /* of the models */
static uint32_t products, many, embeddings; /* launches of EXL3 kernels */

static void run(const char *function, const void *arguments, const unsigned grid[3])
{
    products += strncmp(function, "exl2k_exl3_gemv", 15) == 0;
    many += strncmp(function, "exl2k_exl3_gemm", 15) == 0 || strncmp(function, "exl2k_exl3_wg", 13) == 0;
    embeddings += strcmp(function, "exl2k_exl3_embed") == 0;
    CHECK(strncmp(function, "exl2k_exl3", 10) != 0 || (grid[0] > 0 && grid[1] > 0));
    if (strncmp(function, "exl2k_exl3_g", 12) == 0 || strncmp(function, "exl2k_exl3_w", 12) == 0) {
        const exl2k_exl3_args *a = (const exl2k_exl3_args *)arguments;
        CHECK(a->parts > 0 && a->splits > 0 && a->part[0].trellis % 256 == 0 && a->x % 8 == 0);
    }
    fake_model_run(function, arguments, grid);
}

static exl2_model_desc desc_of(const char *name, bool keep)
{
    static char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return (exl2_model_desc){ .path = path, .prefill_chunk = 32, .batch_max = 4,
                              .cache.tokens = 4 * EXL2__PAGE_TOKENS, .keep_packed = keep };
}

/* 20 rows of a prompt, then tokens; the model is parked in between, and its weights may come back elsewhere. */
static void test_model(const char *name, uint32_t layers, bool embeds, bool keep)
{
    static exl2_token ids[20];
    exl2_engine_stats before, parked, after;
    exl2_model_info plan;
    exl2_error error = { 0 };
    exl2_model model;
    exl2_session s;
    machine_make();
    fake.run = run;
    products = many = embeddings = 0;
    exl2_engine *e = cuda_open();
    exl2_model_desc d = desc_of(name, keep);
    if (!CHECK(e != NULL) || !CHECK_INT(exl2_model_measure(e, &d, &plan), EXL2_OK)
        || !CHECK_INT(exl2_model_load(e, &d, &model), EXL2_OK)) {
        exl2_last_error(e, &error);
        printf("    %s: %s\n", name, error.text);
        exit(1);
    }
    exl2_stats(e, &before);
    CHECK_INT(plan.device_bytes, before.device_bytes);
    printf("%s: %llu bytes planned, %llu used\n", name, (unsigned long long)plan.device_bytes,
           (unsigned long long)before.device_bytes);
    for (uint32_t i = 0; i < EXL2__COUNT(ids); i++) {
        ids[i] = (exl2_token)(3 + i);
    }
    CHECK_INT(exl2_session_open(e, model, &s), EXL2_OK);
    exl2_job_desc job = cuda_job(s, ids, EXL2__COUNT(ids), 10, &cuda_said[0]);
    CHECK_INT(exl2_job_start(e, &job, NULL), EXL2_OK);
    for (uint32_t i = 0; i < 3; i++) {
        exl2_step(e, &(exl2_step_desc){ .wait = true });
    }
    CHECK_INT(exl2_model_park(e, model, true), EXL2_OK);
    exl2_stats(e, &parked);
    CHECK_INT(parked.device_bytes, 0);
    CHECK_INT(exl2_model_park(e, model, false), EXL2_OK);
    cuda_step_all(e, false, 0);
    exl2_stats(e, &after);
    CHECK_INT(after.device_bytes, before.device_bytes);
    CHECK_INT(cuda_said[0].count, 10);
    CHECK(many >= 5 * layers); /* gate and up are two launches */
    CHECK(products >= 4 * layers + 1);
    CHECK_INT(embeddings > 0, embeds);
    exl2_close(e);
    machine_end();
}

/* What the backend does not compute is refused with one sentence, and the engine stays usable. */
static void test_refused(void)
{
    exl2_error error;
    exl2_model model;
    machine_make();
    fake.run = run;
    exl2_engine *e = cuda_open();
    exl2_model_desc d = desc_of("exl3-mixtral", false);
    CHECK_INT(exl2_model_load(e, &d, &model), EXL2_ERR_UNSUPPORTED);
    exl2_last_error(e, &error);
    CHECK(strstr(error.text, "EXL3 matrices in models with experts") != NULL);
    d = desc_of("exl3-llama", false);
    CHECK_INT(exl2_model_load(e, &d, &model), EXL2_OK);
    exl2_close(e);
    machine_end();
}

int main(void)
{
    folder = check_shared("fixtures/exl3");
    for (uint32_t keep = 0; keep < 2; keep++) {
        test_model("exl3-llama", 2, false, keep);
        test_model("exl3-qwen3", 2, true, keep);
        test_model("exl3-qwen2-padded", 2, false, keep);
    }
    test_refused();
    return check_done();
}

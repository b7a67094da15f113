/* cuda_exl3.c: models of EXL3 on the fake GPU: what they are planned to need and use, parking and loading again,
   experts.
   takes: $EXL2_TEST_DATA: fixtures/exl3.
   gives: exit code 0, 1, or 77 without the fixtures. */
#include "cuda_rig.h"

static const char *folder; /* of the models */
static uint32_t products, many, embeddings, experts, grouped; /* launches of EXL3 kernels; grouped: experts, many
                                                                  rows */

/* All memory that a product with experts may touch belongs to the model. */
static void check_experts(const exl2k_exl3_expert_args *x, bool few, uint32_t tile_rows, const unsigned grid[3])
{
    const exl2k_exl3_args *a = &x->product;
    uint64_t slots = (uint64_t)a->rows * x->active, outs = a->kind == EXL2K_EXL3_RESIDUAL ? a->rows : slots;
    uint64_t size = a->kind == EXL2K_EXL3_ACT || a->out_half ? 2 : 4;
    CHECK(fake_memory(x->experts, (uint64_t)x->count * EXL2K_EXL3_EXPERT_PARTS * sizeof(exl2k_exl3_part)) != NULL);
    CHECK(fake_memory(a->out, outs * a->out_pitch * size) != NULL);
    CHECK_INT(a->blocks, (a->in + 127) / 128);
    if (!few) {
        CHECK(fake_memory(a->rotated, (slots + tile_rows) * a->blocks * 256) != NULL);
        CHECK(grid[0] == x->strips && x->part < EXL2K_EXL3_EXPERT_PARTS);
        return;
    }
    bool down = a->kind == EXL2K_EXL3_RESIDUAL;
    CHECK(grid[0] == x->strips * a->parts && grid[1] == slots && grid[2] == a->splits && slots <= 16 * x->active);
    CHECK(fake_memory(a->partial, grid[0] * a->splits * slots * 512) != NULL);
    CHECK(fake_memory(a->tickets, (down ? 1 : slots) * x->strips * 4) != NULL);
    CHECK(fake_memory(a->x, (down ? slots : a->rows) * a->x_pitch * 2) != NULL);
}

static void run(const char *function, const void *arguments, const unsigned grid[3])
{
    products += strncmp(function, "exl2k_exl3_gemv", 15) == 0;
    many += strncmp(function, "exl2k_exl3_gemm", 15) == 0 || strncmp(function, "exl2k_exl3_wg", 13) == 0;
    embeddings += strcmp(function, "exl2k_exl3_embed") == 0;
    if (strncmp(function, "exl2k_exl3_expert", 17) == 0 && strcmp(function, "exl2k_exl3_expert_rotate") != 0) {
        bool few = strncmp(function, "exl2k_exl3_expert_", 18) != 0;
        experts += few;
        grouped += !few;
        check_experts((const exl2k_exl3_expert_args *)arguments, few, strstr(function, "_wg_") ? 128 : 64, grid);
    }
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

/* 20 rows of a prompt, then tokens; the model is parked in between, and its weights may come back elsewhere.
   least: products of few rows in a pass, without experts. */
static void test_model(const char *name, uint32_t least, bool embeds, bool sparse, bool keep)
{
    static exl2_token ids[20];
    exl2_engine_stats before, parked, after;
    exl2_model_info plan;
    exl2_error error = { 0 };
    exl2_model model;
    exl2_session s;
    machine_make();
    fake.run = run;
    products = many = embeddings = experts = grouped = 0;
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
    CHECK(many >= least); /* gate and up are two launches, but the head is none */
    CHECK(products >= least);
    CHECK(sparse ? experts >= 2 * 2 && grouped >= 2 * 3 : experts + grouped == 0);
    CHECK_INT(embeddings > 0, embeds);
    exl2_close(e);
    machine_end();
}

int main(void)
{
    folder = check_shared("fixtures/exl3");
    for (uint32_t keep = 0; keep < 2; keep++) {
        test_model("exl3-llama", 9, false, false, keep);
        test_model("exl3-qwen3", 9, true, false, keep);
        test_model("exl3-qwen2-padded", 9, false, false, keep);
        test_model("exl3-mixtral", 3, false, true, keep); /* an `out` is dense */
    }
    return check_done();
}

/* cuda_spans.c: models of two and three spans on the fake GPU: the rows that one span hands to the next arrive, pages
   are copied in all of them, a saved session has K and V of all, a pass continues between spans in any step; parking;
   and allocations and calls that fail once.
   takes: the goldens.
   gives: exit code 0 or 1. */
#include "cuda_ways.h"

#include "private/objects.h"

static uint32_t first_rows, handed_rows; /* rows that the first span has embedded; that later ones have taken */

/* Two spans, or three: the one in the middle has neither embedding nor head. */
static uint32_t cut(uint32_t layers, uint32_t *ends)
{
    uint32_t count = layers > 2 ? 3 : 2;
    ends[0] = 1;
    ends[1] = 2;
    ends[count - 1] = layers;
    return count;
}

static float *residual_of(const exl2k_embed_args *a, uint32_t row)
{
    return fake_model_at(a->residual + (uint64_t)row * a->residual_pitch * sizeof(float), sizeof(float));
}

/* A row's residual is its token, so what a span hands over is known. A later span gets it from the rows that were
   handed over, where the first one gets it from the pass; the model of pages then computes with it. */
static void run_embed(const exl2k_embed_args *a, uint32_t count)
{
    const exl2k_pass *pass = fake_model_at(a->pass, sizeof *pass);
    for (uint32_t i = 0; i < count && i < pass->row_count; i++) {
        exl2k_row *row = fake_model_at(a->rows + i * sizeof *row, sizeof *row);
        if (a->kind == EXL2K_TABLE_HANDED) {
            uint64_t at = a->table + (uint64_t)i * a->hidden * sizeof(float);
            CHECK_INT((uint32_t)*(float *)fake_model_at(at, sizeof(float)), row->token);
            handed_rows++;
        } else {
            first_rows++;
        }
        *residual_of(a, i) = (float)row->token;
    }
}

static const exl2_engine *running;

/* Index of the span whose device memory has this address; -1: none has. */
static int owner_of(uint64_t address)
{
    const exl2__spans *s = &running->models[0].spans;
    for (uint32_t i = 0; i < s->count; i++) {
        const exl2__cuda_model *m = s->span[i].device ? exl2__cuda_of(s->span[i].device) : NULL;
        const exl2__cuda_arena *arenas[] = { m ? &m->weights : NULL, m ? &m->pass_memory : NULL };
        for (uint32_t k = 0; m && k < EXL2__COUNT(arenas); k++) {
            if (address - arenas[k]->base < arenas[k]->size) {
                return (int)i;
            }
        }
    }
    return -1;
}

/* A kernel is given addresses of one span, as spans may lie on different cards. */
static void check_addresses(const char *function, const uint8_t *arguments)
{
    int owner = -1;
    bool one = true;
    const fake_kernel *kernel = machine_kernels;
    while (strcmp(kernel->function, function) != 0) {
        kernel++;
    }
    for (size_t at = 0; at + 8 <= kernel->argument_bytes; at += 8) {
        uint64_t word;
        memcpy(&word, arguments + at, sizeof word);
        int of = owner_of(word);
        one = one && (of < 0 || owner < 0 || of == owner);
        owner = of < 0 ? owner : of;
    }
    if (!CHECK(one)) {
        printf("  %s has addresses of two spans\n", function);
    }
}

static void run(const char *function, const void *arguments, const unsigned grid[3])
{
    check_addresses(function, arguments);
    if (strcmp(function, "exl2k_embed") == 0) {
        run_embed(arguments, grid[0]);
    }
    fake_model_run(function, arguments, grid);
}

/* ---- uses ---- */

static exl2_engine *open_engine(void)
{
    exl2_engine *e = NULL;
    exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &cuda_error);
    cuda_way_count_memory(&d);
    cuda_error = (exl2_error){ EXL2_OK, 0, "" };
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    running = e;
    return e;
}

static bool life(const cuda_way *w, uint32_t n)
{
    machine_make();
    fake.run = run;
    cuda_way_set(w);
    first_rows = handed_rows = 0;
    cuda_life l = { .e = open_engine(), .late = w->late };
    cuda_way_fail(w, n);
    exl2_result r = cuda_use(&l);
    bool failed = cuda_way_failed();
    CHECK(failed || handed_rows > 150);
    CHECK(handed_rows <= first_rows); /* some passes are dropped after the first span */
    cuda_way_end(w, n, &l, r, failed);
    return failed;
}

/* ---- families ---- */

/* Models whose norms are folded into products or not, with parallel blocks, experts, norms after blocks, LayerNorm,
   learned positions, and matrices of other kinds: in whole passes and unit by unit. Device memory is as planned. */
static void families(void)
{
    static const char *const models[] = { "exl2-mixed", "cohere", "exl2-qwen3-moe", "gemma2", "orion", "starcoder2",
                                          "mixed-kinds", "smollm3" };
    for (size_t i = 0; i < EXL2__COUNT(models); i++) {
        machine_make();
        fake.run = run;
        cuda_life l = { .e = open_engine() };
        exl2_model_desc m = { .path = rig_golden(models[i]), .prefill_chunk = 32, .batch_max = 4 };
        exl2_model_info info;
        exl2_engine_stats stats;
        if (!CHECK_INT(exl2_model_load(l.e, &m, &l.model), EXL2_OK)) {
            rig_fail(l.e, models[i], EXL2_ERR_INTERNAL);
        }
        CHECK_INT(exl2_model_get(l.e, l.model, &info), EXL2_OK);
        exl2_stats(l.e, &stats);
        CHECK_INT(stats.device_bytes, info.device_bytes);
        for (uint32_t gpu_us = 0; gpu_us < 2; gpu_us++) {
            CHECK_INT(exl2_session_open(l.e, l.model, &l.a), EXL2_OK);
            exl2_job_desc d = cuda_job(l.a, cuda_prompt, 8, 12, &cuda_said[0]);
            d.min_tokens = 12;
            CHECK_INT(exl2_job_start(l.e, &d, NULL), EXL2_OK);
            cuda_step_all(l.e, false, gpu_us);
            CHECK(cuda_said[0].done_events == 1 && cuda_said[0].result == EXL2_OK);
            cuda_expect_history(l.e, l.a, 8, 20);
        }
        exl2_close(l.e);
        CHECK_INT(cuda_way_host_bytes, 0);
        machine_end();
    }
}

/* ---- parking ---- */

/* The model gives all its memory back, and its job goes on after it has been loaded again. */
static void park(bool keep)
{
    machine_make();
    fake.run = run;
    cuda_life l = { .e = open_engine() };
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .prefill_chunk = 32, .batch_max = 4, .keep_packed = keep,
                          .cache.tokens = 16 * EXL2__PAGE_TOKENS, .on_event = cuda_hear_load };
    CHECK_INT(exl2_model_load(l.e, &m, &l.model), EXL2_OK);
    CHECK_INT(exl2_session_open(l.e, l.model, &l.a), EXL2_OK);
    exl2_job_desc d = cuda_job(l.a, cuda_prompt, 8, 30, &cuda_said[0]);
    CHECK_INT(exl2_job_start(l.e, &d, NULL), EXL2_OK);
    for (uint32_t i = 0; i < 9; i++) {
        exl2_step(l.e, &(exl2_step_desc){ .wait = true });
    }
    CHECK_INT(cuda_said[0].done_events, 0);
    CHECK_INT(exl2_model_park(l.e, l.model, true), EXL2_OK);
    CHECK_INT(fake.allocated, 0);
    CHECK_INT(cuda_load_again(l.e, l.model), EXL2_OK);
    cuda_step_all(l.e, false, 0);
    CHECK(cuda_said[0].done_events == 1 && cuda_said[0].result == EXL2_OK);
    cuda_expect_history(l.e, l.a, 8, 38);
    exl2_close(l.e);
    CHECK_INT(cuda_way_host_bytes, 0);
    machine_end();
}

int main(void)
{
    const cuda_way bad[] = {
        { "device allocations", "cuMemAlloc", EXL2__CUDA_OUT_OF_MEMORY, 1, true, false, false, 1 },
        { "pinned allocations", "cuMemHostAlloc", EXL2__CUDA_OUT_OF_MEMORY, 1, true, false, false, 1 },
        { "host allocations", NULL, 0, 0, true, false, true, 1 },
        { "calls", NULL, 1, 11, true, false, false, 5 * CUDA_WAY_STRIDE },
        { "calls of a late device", NULL, 1, 11, false, true, false, 11 * CUDA_WAY_STRIDE },
    };
    engine_rig.spans = cut;
    machine_drop_cache();
    cuda_ways_good(life);
    families();
    park(false);
    park(true);
    cuda_ways_sweep(life, bad, EXL2__COUNT(bad));
    machine_drop_cache();
    fake_reset();
    return check_done();
}

/* cuda_steers.c: control vectors over the fake driver: memory as it was predicted; which launches add them, and what
   they find in tables and slots; graphs are captured once; parking, closing, jobs with adapters, too; models of two
   spans, MLPs on the CPU; each driver call fails once.
   takes: the goldens; EXL2_TEST_DATA.
   gives: exit code 0 or 1. */
#include "cuda_ways.h"

#include "private/objects.h"

#define HIDDEN_MAX 512
#define LAYERS_MAX 8

static rig_said said[6];
static float values[3][LAYERS_MAX * HIDDEN_MAX]; /* of vector k */
static float factors[3]; /* of vector k in the jobs that run */
static uint32_t layers, hidden;
static uint32_t fills, additions, fused, plain, settled; /* launches since they were cleared */

/* ---- what launches find ---- */

/* A slot holds one of the vectors that were made, of the first or last layers of the model, and has its factor. */
static void check_slot(const exl2k_steer_args *a, uint32_t slot, float scale)
{
    size_t bytes = (size_t)a->layers * a->hidden * sizeof(float), later = (size_t)(layers - a->layers) * a->hidden;
    const float *in = fake_memory(a->vectors + slot * bytes, bytes);
    bool found = false;
    for (uint32_t k = 0; in && k < 3; k++) {
        bool factor = !(scale < factors[k]) && !(scale > factors[k]);
        bool has = memcmp(in, values[k], bytes) == 0 || memcmp(in, values[k] + later, bytes) == 0;
        found = found || (factor && has);
    }
    CHECK(found);
}

/* The sets of rows: their vectors are there. */
static void check_sets(const exl2k_steer_args *a)
{
    const uint32_t *rows = fake_memory(a->rows_at, sizeof *rows);
    uint32_t with = 0;
    CHECK(rows && a->hidden == hidden && a->layers <= layers);
    const uint16_t *row_sets = fake_memory(a->row_sets, *rows * sizeof *row_sets);
    for (uint32_t row = 0; CHECK(row_sets != NULL) && row < *rows; row++) {
        uint64_t at = a->sets + (row_sets[row] - 1u) * sizeof(exl2k_steer_set);
        const exl2k_steer_set *set = row_sets[row] ? fake_memory(at, sizeof *set) : NULL;
        CHECK(row_sets[row] == 0 || (set && set->count >= 1 && set->count <= 2));
        for (uint32_t i = 0; set && i < set->count; i++) {
            check_slot(a, set->slots[i], set->scale[i]);
        }
        with += set != NULL;
    }
    CHECK(with > 0);
}

static void check_added(uint64_t added)
{
    CHECK(added == 0 || fake_memory(added, EXL2K_STEER_ROWS * hidden * sizeof(float)));
    fused += added > 0;
    plain += added == 0;
}

static void run(const char *function, const void *arguments, const unsigned grid[3])
{
    if (strcmp(function, "exl2k_steer_fill") == 0) {
        const exl2k_steer_args *a = arguments;
        check_sets(a);
        CHECK(grid[1] <= EXL2K_STEER_ROWS && grid[2] == a->layers
              && fake_memory(a->added, a->layers * EXL2K_STEER_ROWS * hidden * 4ull));
        fills++;
    } else if (strcmp(function, "exl2k_steer_add") == 0) {
        const exl2k_steer_args *a = arguments;
        check_sets(a);
        CHECK(a->layer < a->layers && fake_memory(a->residual, (uint64_t)grid[1] * hidden * 4));
        additions++;
    } else if (strncmp(function, "exl2k_expert", 12) == 0 && (function[12] == '1' || function[12] == '8')) {
        const exl2k_expert_args *a = arguments;
        CHECK((strstr(function, "_steer") != NULL || a->added == 0) && (a->down || !a->added));
        a->down ? check_added(a->added) : (void)0;
    } else if (strncmp(function, "exl2k_gemv", 10) == 0 && !strstr(function, "_lora")) {
        const exl2k_gemv_args *a = arguments;
        CHECK(strstr(function, "_steer") != NULL || a->added == 0);
        if (a->kind == EXL2K_GEMV_RESIDUAL) {
            check_added(a->added);
        }
    } else if (strncmp(function, "exl2k_settle", 12) == 0) {
        const exl2k_settle_args *a = arguments;
        CHECK(strcmp(function, "exl2k_settle_steer") == 0 || a->added == 0);
        CHECK(a->added == 0 || fake_memory(a->added, EXL2K_STEER_ROWS * hidden * sizeof(float)));
        settled += a->added > 0;
    }
    fake_model_run(function, arguments, grid);
}

/* ---- jobs ---- */

static exl2_result load_model(exl2_engine *e, const char *name, uint32_t steers, uint32_t loras, exl2_model *out)
{
    exl2_model_desc d = { .path = rig_golden(name), .prefill_chunk = 32, .batch_max = 4, .steer_max = steers,
                          .lora_max = loras, .cards = cuda_cards, .card_count = cuda_card_count,
                          .host_mlps = cuda_host_mlps,
                          .offload = cuda_host_mlps ? EXL2_OFFLOAD_AUTO : EXL2_OFFLOAD_NONE };
    d.cache.tokens = 16 * EXL2__PAGE_TOKENS;
    EXL2__TRY(exl2_model_load(e, &d, out));
    exl2_model_info info;
    CHECK_INT(exl2_model_get(e, *out, &info), EXL2_OK);
    layers = info.layers;
    hidden = info.hidden;
    CHECK(layers <= LAYERS_MAX && hidden <= HIDDEN_MAX);
    return EXL2_OK;
}

/* Vector k, which layer k does not have. */
static exl2_steer make(exl2_engine *e, exl2_model model, uint32_t k)
{
    exl2_steer out = { 0 };
    for (uint32_t i = 0; i < layers * hidden; i++) {
        values[k][i] = i / hidden == k ? 0 : (float)(1 + k + i % 13);
    }
    exl2_steer_desc d = { .model = model, .values = values[k], .layer_count = layers };
    CHECK_INT(exl2_steer_make(e, &d, &out), EXL2_OK);
    return out;
}

static void clear_counts(void) { fills = additions = fused = plain = settled = 0; }

/* Jobs with a, b, both and none beside each other; `lora`: the third has an adapter, too. */
static void run_jobs(exl2_engine *e, exl2_model model, exl2_steer a, exl2_steer b, const exl2_lora_use *lora)
{
    const exl2_steer_use uses[2] = { { a, factors[0] }, { b, factors[1] } };
    exl2_session sessions[6];
    for (uint32_t i = 0; i < 6; i++) {
        CHECK_INT(exl2_session_open(e, model, &sessions[i]), EXL2_OK);
        exl2_job_desc d = cuda_job(sessions[i], cuda_prompt, EXL2__COUNT(cuda_prompt), 20, &said[i]);
        d.steers = uses + (i % 4 == 2);
        d.steer_count = i % 4 == 3 ? 2 : i % 4 > 0;
        d.loras = lora;
        d.lora_count = lora && i == 3;
        CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
    }
    cuda_step_all(e, false, 0);
    for (uint32_t i = 0; i < 6; i++) {
        CHECK(said[i].done_events == 1 && said[i].result == EXL2_OK);
        cuda_expect_history(e, sessions[i], EXL2__COUNT(cuda_prompt), EXL2__COUNT(cuda_prompt) + 20);
        CHECK_INT(exl2_session_close(e, sessions[i]), EXL2_OK);
    }
}

static exl2_engine_stats stats_of(exl2_engine *e)
{
    exl2_engine_stats stats;
    exl2_stats(e, &stats);
    return stats;
}

/* ---- tests ---- */

/* settles: norms of the model are not folded into products. */
static void check_use(const char *name, bool settles)
{
    machine_make();
    fake.run = run;
    exl2_engine *e = cuda_open();
    exl2_model model;
    exl2_model_info info[2];
    for (uint32_t i = 0; i < 2; i++) { /* to the byte: what is measured is what loading takes */
        exl2_model_desc d = { .path = rig_golden(name), .prefill_chunk = 32, .batch_max = 4, .steer_max = 3 * i };
        d.cache.tokens = 16 * EXL2__PAGE_TOKENS;
        CHECK_INT(exl2_model_measure(e, &d, &info[i]), EXL2_OK);
    }
    CHECK_INT(load_model(e, name, 3, 0, &model), EXL2_OK);
    CHECK_INT(stats_of(e).device_bytes, info[1].device_bytes);
    CHECK(info[1].device_bytes - info[0].device_bytes >= (3 + EXL2K_STEER_ROWS) * layers * hidden * 4ull);
    factors[0] = 0.5f;
    factors[1] = -2;
    exl2_steer a = make(e, model, 0), b = make(e, model, 1);
    exl2_engine_stats loaded = stats_of(e);
    clear_counts();
    fake.fail_name = "cuStreamBeginCapture"; /* no graph is captured any more */
    fake.fail_at = 1;
    fake.fail_code = 1;
    run_jobs(e, model, a, b, NULL);
    CHECK(fills > 0 && additions > 0 && additions % layers == 0 && (settles || plain > 0));
    CHECK(settles ? settled > 0 && settled % layers == 0 && fused == 0
                  : fused > 0 && fused % layers == 0 && settled == 0);
    factors[0] = -1; /* other factors and other vectors: the same graphs, and no memory */
    CHECK_INT(exl2_steer_close(e, b), EXL2_OK);
    factors[1] = 4;
    b = make(e, model, 2);
    memcpy(values[1], values[2], sizeof values[1]);
    run_jobs(e, model, a, b, NULL);
    CHECK(fake.failed[0] == 0);
    fake.fail_at = 0;
    CHECK_INT(stats_of(e).allocations, loaded.allocations);
    /* parked, the vectors stay in host memory */
    CHECK_INT(exl2_model_park(e, model, true), EXL2_OK);
    CHECK_INT(stats_of(e).device_bytes, 0);
    CHECK_INT(exl2_model_park(e, model, false), EXL2_OK);
    for (uint32_t i = 0; i < 100000 && exl2_model_state(e, model) == EXL2_PENDING; i++) {
        exl2_step(e, NULL);
    }
    CHECK_INT(stats_of(e).device_bytes, loaded.device_bytes);
    run_jobs(e, model, a, b, NULL);
    CHECK_INT(exl2_model_close(e, model), EXL2_OK);
    CHECK_INT(stats_of(e).device_bytes, 0);
    exl2_close(e);
    machine_end();
}

/* A job has an adapter, too: its passes add control vectors before `down`, in a launch of their own. */
static void check_adapters(void)
{
    static char path[1100];
    machine_make();
    fake.run = run;
    exl2_engine *e = cuda_open();
    exl2_model model;
    exl2_lora_use lora = { { 0 }, 1 };
    CHECK_INT(load_model(e, "exl2-mixed", 2, 1, &model), EXL2_OK);
    snprintf(path, sizeof path, "%s/fixtures/lora/exl2-mixed/a", check_env("EXL2_TEST_DATA"));
    exl2_lora_desc d = { .model = model, .path = path };
    CHECK_INT(exl2_lora_load(e, &d, &lora.lora), EXL2_OK);
    exl2_steer a = make(e, model, 0), b = make(e, model, 1);
    clear_counts();
    run_jobs(e, model, a, b, NULL);
    uint32_t without = additions;
    run_jobs(e, model, a, b, &lora);
    CHECK(additions > 2 * without && fused > 0);
    exl2_close(e);
    machine_end();
}

static uint32_t cut(uint32_t count, uint32_t *ends)
{
    ends[0] = 1;
    ends[1] = count;
    return 2;
}

/* Each span has the vectors of its layers, and one whose last MLP the CPU computes those of the others. */
static void check_parts(bool host)
{
    machine_make();
    fake.run = run;
    engine_rig.spans = host ? NULL : cut;
    cuda_host_mlps = host;
    exl2_engine *e = cuda_open();
    exl2_model model;
    CHECK_INT(load_model(e, "exl2-mixed", 2, 0, &model), EXL2_OK);
    exl2_steer a = make(e, model, 0), b = make(e, model, 1);
    clear_counts();
    const exl2__spans *spans = &e->models[0].spans;
    uint32_t count = spans->count, all = 0;
    for (uint32_t i = 0; i < count; i++) {
        all += exl2__cuda_steer_layers(&spans->span[i].plan);
    }
    CHECK(host ? count == 1 && all == layers - 1 : count == 2 && all == layers);
    if (!host) { /* cuda_host.c compares what the CPU adds to rows */
        run_jobs(e, model, a, b, NULL);
        CHECK(fills > 0 && additions > 0 && fused > 0);
    }
    exl2_close(e);
    engine_rig.spans = NULL;
    cuda_host_mlps = 0;
    machine_end();
}

/* A use of control vectors, in which call n fails, or none. */
static exl2_result use(cuda_life *l)
{
    EXL2__TRY(cuda_try(l, load_model(l->e, "exl2-mixed", 1, 0, &l->model)));
    exl2_steer_desc d = { .model = l->model, .values = values[0], .layer_count = layers };
    exl2_steer_use one = { { 0 }, factors[0] };
    EXL2__TRY(cuda_try(l, exl2_steer_make(l->e, &d, &one.steer)));
    EXL2__TRY(cuda_try(l, exl2_session_open(l->e, l->model, &l->a)));
    for (uint32_t i = 0; i < 2; i++) {
        exl2_job_desc job = cuda_job(l->a, cuda_prompt, 8, 6, &cuda_said[0]);
        job.steers = &one;
        job.steer_count = i;
        EXL2__TRY(cuda_run(l, &job, 1));
    }
    cuda_expect_history(l->e, l->a, 22, 28);
    return EXL2_OK;
}

static bool life(const cuda_way *w, uint32_t n)
{
    machine_make();
    fake.run = run;
    cuda_way_set(w);
    cuda_life l = { .e = cuda_open(), .late = w->late };
    cuda_way_fail(w, n);
    exl2_result r = use(&l);
    bool failed = cuda_way_failed();
    cuda_way_end(w, n, &l, r, failed);
    return failed;
}

int main(void)
{
    const cuda_way bad[] = {
        { "device allocations", "cuMemAlloc", EXL2__CUDA_OUT_OF_MEMORY, 1, true, false, false, 1 },
        { "calls", NULL, 1, 11, true, false, false, CUDA_WAY_STRIDE },
        { "calls that lose a late device", NULL, 700, 11, false, true, false, 11 * CUDA_WAY_STRIDE },
    };
    check_shared("fixtures/lora/README.md");
    machine_drop_cache();
    check_use("exl2-mixed", false);
    check_use("exl2-qwen3-moe", false);
    check_use("gemma2", true);
    check_use("cohere", true);
    check_adapters();
    check_parts(false);
    check_parts(true);
    cuda_ways_good(life);
    cuda_ways_sweep(life, bad, EXL2__COUNT(bad));
    machine_drop_cache();
    fake_reset();
    return check_done();
}

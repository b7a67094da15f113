/* memory.c: a model needs what exl2_model_measure predicts, within 1 MiB, for any cache, batch, chunk and number of
   tasks. Once the model is ready, nothing more is allocated. Under any cap the engine knows whether a model fits before
   it allocates memory for it. */
#include "rig.h"

#define SLACK (1u << 20)

static void one_by_one(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    (void)user;
    for (uint32_t i = 0; i < count; i++) {
        task(arg, i);
    }
}

static exl2_engine_stats stats_of(exl2_engine *e)
{
    exl2_engine_stats stats = { 0 };
    exl2_stats(e, &stats);
    return stats;
}

static uint64_t predicted(const exl2_model_info *info)
{
    return info->weight_bytes + info->cache_bytes + info->scratch_bytes;
}

/* Greedy, sampled and scored jobs together, a fork, and a cancelled job. */
static void work(const rig *r)
{
    static rig_said said[3];
    static const exl2_token prompt[40] = { 1, 7, 9, 200, 31, 5 };
    exl2_session world, fork;
    memset(said, 0, sizeof said);
    CHECK_INT(exl2_session_open(r->engine, r->model, &world), EXL2_OK);
    exl2_job_desc first = rig_job(r, prompt, 40, 8, &said[0]);
    first.session = world;
    rig_run(r, &first);
    CHECK_INT(said[0].done_events, 1);
    memset(said, 0, sizeof said);
    CHECK_INT(exl2_session_fork(r->engine, world, &fork), EXL2_OK);
    exl2_job_desc d[3] = { rig_job(r, prompt, 9, 8, &said[0]), rig_job(r, prompt, 3, 8, &said[1]),
                           rig_job(r, prompt, 33, 8, &said[2]) };
    d[0].session = fork;
    d[1].sampler.preset = EXL2_PRESET_BALANCED;
    d[2].score_prompt = true;
    d[2].alts_per_token = 2;
    exl2_job jobs[3];
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_INT(exl2_job_start(r->engine, &d[i], &jobs[i]), EXL2_OK);
    }
    exl2_step(r->engine, NULL);
    exl2_job_cancel(r->engine, jobs[1]);
    rig_drain(r, 0);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_INT(said[i].done_events, 1);
    }
    exl2_session_close(r->engine, fork);
    exl2_session_close(r->engine, world);
}

static void check_model_memory(const exl2_model_desc *m, uint32_t tasks)
{
    exl2_engine_desc e = { 0 };
    exl2_model_info info = { 0 }, loaded = { 0 };
    rig r = { 0 };
    e.backend = RIG_BACKEND;
    e.parallel.run = tasks ? one_by_one : NULL;
    e.parallel.width = tasks;
    CHECK_INT(exl2_open(&e, &r.engine), EXL2_OK);
    uint64_t base = stats_of(r.engine).host_bytes;
    CHECK_INT(exl2_model_measure(r.engine, m, &info), EXL2_OK);
    CHECK_INT(stats_of(r.engine).host_bytes, base);
    CHECK(stats_of(r.engine).host_peak - base <= predicted(&info));
    CHECK_INT(exl2_model_load(r.engine, m, &r.model), EXL2_OK);
    CHECK_INT(exl2_model_get(r.engine, r.model, &loaded), EXL2_OK);
    CHECK_INT(predicted(&loaded), predicted(&info));
    exl2_engine_stats ready = stats_of(r.engine);
    CHECK(ready.host_peak - base <= predicted(&info));
    CHECK(ready.host_peak - base + SLACK >= predicted(&info));
    if (!m->text_only) {
        work(&r);
        CHECK_INT(stats_of(r.engine).allocations, ready.allocations);
        CHECK_INT(stats_of(r.engine).host_peak, ready.host_peak);
    }
    CHECK_INT(exl2_model_close(r.engine, r.model), EXL2_OK);
    CHECK_INT(stats_of(r.engine).host_bytes, base);
    rig_close(&r);
}

/* ---- caps ---- */

static uint32_t model_blocks; /* blocks allocated for the model; a rejected load must allocate none */

static void *count_alloc(void *user, size_t bytes, size_t align, exl2_mem tag)
{
    (void)user;
    model_blocks += tag != EXL2_MEM_GENERAL;
    return exl2__platform_alloc(NULL, bytes, align, tag);
}

/* Loads under a cap: OK, or BUDGET without any allocation of weights, cache, scratch or staging. *cache: bytes, if
   OK. */
static bool fits(const exl2_model_desc *m, uint64_t cap, uint64_t *cache)
{
    exl2_engine *e;
    exl2_model model;
    exl2_model_info info = { 0 };
    exl2_engine_desc d = { .backend = EXL2_BACKEND_CPU, .host_bytes_max = cap };
    d.allocator.alloc_fn = count_alloc;
    d.allocator.free_fn = exl2__platform_free;
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    model_blocks = 0;
    exl2_result r = exl2_model_load(e, m, &model);
    CHECK(r == EXL2_OK || r == EXL2_ERR_BUDGET);
    if (r == EXL2_OK) {
        CHECK_INT(exl2_model_get(e, model, &info), EXL2_OK);
        CHECK(stats_of(e).host_peak <= cap);
    } else {
        CHECK_INT(model_blocks, 0);
    }
    *cache = info.cache_bytes;
    exl2_close(e);
    return r == EXL2_OK;
}

/* A model fits under every cap above the smallest one under which it fits, and its cache never gets smaller. */
static void caps(const char *name, uint64_t cache_tokens)
{
    exl2_model_desc m = { .path = rig_golden(name), .context_max = 640 };
    m.cache.tokens = cache_tokens;
    m.prefill_chunk = 32;
    uint64_t low = 1u << 20, high = 64u << 20, cache, before = 0; /* low: the engine fits, no model does */
    CHECK(fits(&m, high, &cache) && !fits(&m, low, &cache));
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        *(fits(&m, middle, &cache) ? &high : &low) = middle;
    }
    for (uint64_t less = 1; less < 1u << 17; less += less < 256 ? 1 : less < 4096 ? 61 : 997) {
        CHECK(!fits(&m, high - less, &cache));
    }
    uint32_t sizes = 0;
    for (uint64_t cap = high; cap < high + (16u << 10); cap += 61) {
        CHECK(fits(&m, cap, &cache));
        CHECK(cache >= before);
        sizes += cache > before;
        before = cache;
    }
    for (uint64_t cap = high; cap < high + (2u << 20); cap += 4099) {
        CHECK(fits(&m, cap, &cache));
        sizes += cache > before;
        before = cache > before ? cache : before;
    }
    printf("%s fits under %llu bytes; %u sizes of cache\n", name, (unsigned long long)high, sizes);
    CHECK(cache_tokens ? sizes == 1 : sizes > 10);
}

int main(void)
{
    static const char *const names[] = { "exl2-mixed", "exl2-4bit", "llama3-rope", "gptq-phi3", "awq" };
    uint32_t count = RIG_BACKEND == EXL2_BACKEND_CPU ? EXL2__COUNT(names) : 3; /* CUDA rejects the others */
    for (uint32_t i = 0; i < count; i++) {
        exl2_model_desc m = { 0 };
        m.path = rig_golden(names[i]);
        check_model_memory(&m, 0);
        m.context_max = 192;
        m.cache.tokens = 640;
        m.batch_max = 3;
        m.prefill_chunk = 17;
        check_model_memory(&m, 7);
        m.batch_max = 40;
        m.prefill_chunk = 300;
        m.cache.tokens = 65536;
        check_model_memory(&m, 64);
    }
    static const char *const exl3[] = { "exl3-llama", "exl3-qwen3", "exl3-qwen2-padded", "exl3-mixtral" };
    bool shared = RIG_BACKEND == EXL2_BACKEND_CPU && check_env("EXL2_TEST_DATA");
    for (uint32_t i = 0; shared && i < EXL2__COUNT(exl3); i++) {
        char name[64];
        snprintf(name, sizeof name, "fixtures/exl3/%s", exl3[i]);
        exl2_model_desc m = { .path = check_shared(name) };
        check_model_memory(&m, 0);
        m.context_max = 96;
        m.cache.tokens = 640;
        m.batch_max = 3;
        m.prefill_chunk = 17;
        check_model_memory(&m, 7);
    }
    exl2_model_desc text = { 0 };
    text.path = rig_golden("../smollm2");
    text.text_only = true;
    check_model_memory(&text, 0);
    if (RIG_BACKEND == EXL2_BACKEND_CPU) {
        caps("exl2-mixed", 0);
        caps("exl2-mixed", 640);
        caps("llama3-rope", 0);
        caps("gptq-phi3", 640);
    }
    return check_done();
}

/* sweep.c: makes the n-th host allocation, then the n-th file open or read, fail, for n = 0, 1, 2 ... until the whole
   scenario (open, measure, load, generate, fork, generate, close) succeeds. Each time the engine must return an error
   code with a message, or succeed; nothing may leak; and the engine must stay usable. So do grammars and adapters.
   After that, allocations are counted where there must be none. */
#include "../engine/rig.h"

/* ---- hooks that fail ---- */

static uint32_t calls_left;    /* calls before the one that fails; UINT32_MAX = none fails */
static uint32_t open_files;
static uint64_t live_bytes;
static bool failed;

static bool fails(void)
{
    if (calls_left == UINT32_MAX || calls_left-- != 0) {
        return false;
    }
    calls_left = UINT32_MAX;
    failed = true;
    return true;
}

static bool sweep_files;

static void *failing_alloc(void *user, size_t bytes, size_t align, exl2_mem tag)
{
    (void)user;
    void *memory = !sweep_files && fails() ? NULL : exl2__platform_alloc(NULL, bytes, align, tag);
    live_bytes += memory ? bytes : 0;
    return memory;
}

static void counting_free(void *user, void *memory, size_t bytes, exl2_mem tag)
{
    live_bytes -= bytes;
    exl2__platform_free(user, memory, bytes, tag);
}

static void *failing_open(void *user, const char *path, uint64_t *bytes)
{
    void *file = sweep_files && fails() ? NULL : exl2__platform_open(user, path, bytes);
    open_files += file != NULL;
    return file;
}

static int64_t failing_read(void *user, void *file, uint64_t offset, void *out, size_t bytes)
{
    return sweep_files && fails() ? -1 : exl2__platform_read(user, file, offset, out, bytes);
}

static void counting_close(void *user, void *file)
{
    open_files--;
    exl2__platform_close(user, file);
}

/* ---- the scenario ---- */

static const exl2_token prompt[] = { 5, 17, 42, 99, 3, 250, 1, 8 };

/* Checks an error: it must have a message, and a code that the failed hook explains. */
static exl2_result explain(exl2_engine *e, exl2_result r)
{
    exl2_error error = { 0 };
    exl2_last_error(e, &error);
    CHECK_INT(error.code, r);
    CHECK(strlen(error.text) > 10);
    CHECK(failed);
    CHECK(r == (sweep_files ? EXL2_ERR_IO : EXL2_ERR_MEMORY) || (sweep_files && r == EXL2_ERR_FORMAT));
    return r;
}

static exl2_result use(exl2_engine *e, const char *path)
{
    static rig_said said;
    exl2_model_desc desc = { 0 };
    exl2_model_info info;
    rig r = { e, { 0 } };
    exl2_session s, fork;
    desc.path = path;
    desc.cache.format = strstr(path, "gemma2") ? EXL2_KV_Q6 : EXL2_KV_FP16;
    exl2_result result = exl2_model_measure(e, &desc, &info);
    if (result < 0) {
        return explain(e, result);
    }
    result = exl2_model_load(e, &desc, &r.model);
    if (result < 0) {
        return explain(e, result);
    }
    memset(&said, 0, sizeof said);
    exl2_job_desc d = rig_job(&r, prompt, 8, 5, &said);
    exl2_session_open(e, r.model, &s);
    d.session = s;
    result = exl2_generate(e, &d);
    if (result < 0) {
        return explain(e, result);
    }
    exl2_session_fork(e, s, &fork);
    d.session = fork;
    d.negative_session = s; /* guidance allocates at its start */
    d.guidance = 2;
    result = exl2_generate(e, &d);
    CHECK_INT(said.done_events, result < 0 ? 1 : 2);
    exl2_session_close(e, s);
    exl2_session_close(e, fork);
    return result < 0 ? explain(e, result) : exl2_model_close(e, r.model);
}

/* Runs the scenario with its n-th call failing. Returns true if there were fewer calls and all succeeded. */
static bool scenario(const char *path, uint32_t n)
{
    exl2_error error = { 0 };
    exl2_engine_desc d = { 0 };
    exl2_engine *e = NULL;
    d.backend = EXL2_BACKEND_CPU;
    d.open_error = &error;
    d.allocator = (exl2_allocator){ .alloc_fn = failing_alloc, .free_fn = counting_free };
    d.files = (exl2_files){ failing_open, exl2__platform_list, failing_read, counting_close, NULL };
    calls_left = n;
    failed = false;
    exl2_result r = exl2_open(&d, &e);
    if (r < 0) {
        CHECK_INT(r, EXL2_ERR_MEMORY);
        CHECK(e == NULL && strlen(error.text) > 10);
    } else {
        r = use(e, path);
        calls_left = UINT32_MAX;
        if (r < 0) { /* the engine must still be usable */
            failed = true;
            CHECK_INT(use(e, path), EXL2_OK);
        }
        exl2_close(e);
    }
    CHECK_INT(live_bytes, 0);
    CHECK_INT(open_files, 0);
    return r >= 0 && !failed;
}

static void sweep(const char *path, const char *what)
{
    uint32_t n = 0;
    while (n < 5000 && !scenario(path, n)) {
        n++;
    }
    printf("%s: %u calls can fail\n", what, n);
    CHECK(n > 5 && n < 5000);
}

/* ---- no allocation once the model is ready ---- */

static uint64_t allocations(const rig *r)
{
    exl2_engine_stats stats;
    exl2_stats(r->engine, &stats);
    return stats.allocations;
}

static void check_no_allocation(const char *path)
{
    static rig_said said;
    rig r = rig_load(path);
    uint64_t before = allocations(&r);
    for (uint32_t round = 0; round < 50; round++) {
        exl2_session s, fork;
        exl2_job job;
        exl2_job_info info;
        exl2_session_info session_info;
        exl2_token ids[64];
        size_t need;
        exl2_session_open(r.engine, r.model, &s);
        exl2_job_desc d = rig_job(&r, prompt, 8, 6, &said);
        d.session = s;
        exl2_job_start(r.engine, &d, &job);
        exl2_step(r.engine, NULL);
        exl2_job_pause(r.engine, job, true);
        exl2_job_get(r.engine, job, &info);
        exl2_job_pause(r.engine, job, false);
        exl2_session_fork(r.engine, s, &fork);
        d.session = fork;
        d.on_event = NULL;
        exl2_job_start(r.engine, &d, &job);
        rig_drain(&r, 50);
        exl2_event event;
        while (exl2_next_event(r.engine, &event)) {
        }
        d.session = s;
        exl2_job_start(r.engine, &d, &job);
        exl2_step(r.engine, NULL);
        exl2_job_cancel(r.engine, job);
        rig_drain(&r, 0);
        while (exl2_next_event(r.engine, &event)) {
        }
        exl2_session_rewind(r.engine, s, 4);
        exl2_session_get(r.engine, s, &session_info);
        exl2_session_tokens(r.engine, s, ids, 64, &need);
        exl2_session_close(r.engine, s);
        exl2_session_close(r.engine, fork);
    }
    CHECK_INT(allocations(&r), before);
    rig_close(&r);
}

/* ---- loading allocates for the model, and not for each matrix ---- */

static void check_load_allocations(const char *path)
{
    rig r = rig_load(path);
    exl2_model second;
    exl2_model_info info;
    exl2_model_desc d = { .path = path, .cache.tokens = 1024 };
    uint64_t before = allocations(&r);
    CHECK_INT(exl2_model_load(r.engine, &d, &second), EXL2_OK);
    CHECK_INT(exl2_model_get(r.engine, second, &info), EXL2_OK);
    uint64_t count = allocations(&r) - before;
    printf("%s: %llu allocations while loading %u layers\n", path, (unsigned long long)count, info.layers);
    CHECK(count > 0 && count <= 8 + 8 * (uint64_t)info.layers); /* 8 for the model, 8 for a layer */
    rig_close(&r);
}

/* ---- grammars: if making one fails, nothing of it is kept ---- */

/* Makes a grammar while the n-th allocation fails. */
static exl2_result make_grammar(exl2_engine *e, exl2_model model, const char *schema, uint32_t n)
{
    exl2_grammar g;
    exl2_grammar_desc d = { .model = model, .kind = EXL2_GRAMMAR_JSON_SCHEMA, .source = schema };
    calls_left = n;
    failed = false;
    exl2_result r = exl2_grammar_make(e, &d, &g);
    calls_left = UINT32_MAX;
    return r < 0 ? explain(e, r) : exl2_grammar_close(e, g);
}

static void sweep_grammars(void)
{
    exl2_engine_desc d = { .backend = EXL2_BACKEND_CPU };
    exl2_model_desc text = { .path = EXL2_GOLDEN_DIR "/smollm2", .text_only = true };
    exl2_engine *e;
    exl2_model model;
    uint32_t n = 0, refused = 0;
    d.allocator = (exl2_allocator){ .alloc_fn = failing_alloc, .free_fn = counting_free };
    sweep_files = false;
    calls_left = UINT32_MAX;
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    CHECK_INT(exl2_model_load(e, &text, &model), EXL2_OK);
    for (failed = true; failed && n < 1000; n++) {
        const char *schema = n % 2 ? "{\"properties\":{\"a\":{},\"b\":{\"pattern\":\"x+\"}}}" : "{}";
        uint64_t before = live_bytes;
        exl2_result r = make_grammar(e, model, schema, n / 2);
        bool first = before + 1000000 < live_bytes; /* the table of tokens was made */
        CHECK(first ? refused > 2 : live_bytes == before);
        refused += r < 0;
    }
    printf("grammars: %u allocations can fail\n", refused);
    CHECK(refused > 5 && n < 1000);
    exl2_close(e);
    CHECK_INT(live_bytes, 0);
}

/* ---- adapters: a load that fails keeps nothing, and the next one succeeds ---- */

static const char *lora_file(const char *name)
{
    static char path[1024];
    const char *root = check_env("EXL2_TEST_DATA");
    snprintf(path, sizeof path, "%s/fixtures/lora/exl2-mixed/a/%s", root ? root : "../shared", name);
    return path;
}

/* Measures, loads, uses and closes an adapter while the n-th call fails. */
static exl2_result use_lora(const rig *r, uint32_t n)
{
    static rig_said said;
    exl2_lora_info info;
    exl2_lora l = { 0 };
    exl2_lora_desc d = { .model = r->model };
    d.path = lora_file("");
    calls_left = n;
    failed = false;
    exl2_result result = exl2_lora_measure(r->engine, &d, &info);
    result = result < 0 ? result : exl2_lora_load(r->engine, &d, &l);
    calls_left = UINT32_MAX;
    if (result < 0) {
        CHECK(l.id == 0);
        return explain(r->engine, result);
    }
    memset(&said, 0, sizeof said);
    exl2_lora_use use = { l, 1 };
    exl2_job_desc job = rig_job(r, prompt, 8, 3, &said);
    job.loras = &use;
    job.lora_count = 1;
    rig_run(r, &job);
    CHECK(said.done_events == 1 && said.result == EXL2_OK);
    return exl2_lora_close(r->engine, l);
}

static void sweep_loras(bool files)
{
    exl2_engine_desc d = { .backend = EXL2_BACKEND_CPU };
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .lora_max = 1 };
    d.allocator = (exl2_allocator){ .alloc_fn = failing_alloc, .free_fn = counting_free };
    d.files = (exl2_files){ failing_open, exl2__platform_list, failing_read, counting_close, NULL };
    sweep_files = files;
    calls_left = UINT32_MAX;
    rig r = rig_open(&d, &m);
    uint32_t n = 0;
    CHECK_INT(use_lora(&r, UINT32_MAX), EXL2_OK);
    uint64_t before = live_bytes;
    for (failed = true; failed && n < 1000; n++) {
        use_lora(&r, n);
        CHECK_INT(live_bytes, before);
        CHECK_INT(open_files, 0);
    }
    printf("adapters: %u %s can fail\n", n - 1, files ? "file opens and reads" : "allocations");
    CHECK(n > 6 && n < 1000);
    rig_close(&r);
    CHECK_INT(live_bytes, 0);
}

int main(void)
{
    char path[1024];
    /* mixed-kinds: GPTQ with act order beside others; exl2-qwen3-moe: experts; gemma2: norms after blocks, windows. */
    static const char *const models[] = { "exl2-mixed", "mixed-kinds", "exl2-qwen3-moe", "gemma2" };
    for (uint32_t i = 0; i < EXL2__COUNT(models); i++) {
        snprintf(path, sizeof path, "%s", rig_golden(models[i]));
        sweep_files = false;
        sweep(path, "allocations");
        sweep_files = true;
        sweep(path, "file opens and reads");
        check_no_allocation(path);
        check_load_allocations(path);
    }
    sweep_grammars();
    FILE *adapter = fopen(lora_file("adapter_config.json"), "rb"); /* shared data */
    if (adapter) {
        fclose(adapter);
        sweep_loras(false);
        sweep_loras(true);
    }
    return check_done();
}

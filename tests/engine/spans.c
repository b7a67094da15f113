/* spans.c: a model that is cut into spans gives the same bits as one that is not: ids, log-probabilities, scores of
   prompts, saved K and V. With each model of the goldens that has several layers (experts, windows, parallel blocks,
   learned positions), cut after each of its layers, and into three and four spans; with forks, a quantized cache,
   guesses, a parked model, saves that go on in a model that is cut elsewhere, and loads that are given up in any slice.
   A budget ends a step between two spans. faults/cuda_spans.c has two spans on the fake device. */
#include "../device/fake_driver.h"
#include "rig.h"

#define PROMPT 70u
#define NEW 12u
#define JOBS 5u
#define SAVED_BYTES (4u << 20)

/* fake_engine.c makes tasks small; there is no GPU. */
void machine_tables(exl2__cuda_driver *driver, exl2__cuda_nvrtc *nvrtc)
{
    (void)driver;
    (void)nvrtc;
}

/* ---- where models are cut ---- */

static uint32_t cut_count, cut_ends[4], layers_seen;

/* The ends that a test has chosen; the last one is the number of layers. */
static uint32_t cut(uint32_t layers, uint32_t *ends)
{
    layers_seen = layers;
    memcpy(ends, cut_ends, sizeof cut_ends);
    ends[cut_count - 1] = layers;
    return cut_count;
}

static void cut_at(uint32_t count, uint32_t a, uint32_t b, uint32_t c)
{
    cut_count = count;
    cut_ends[0] = a;
    cut_ends[1] = b;
    cut_ends[2] = c;
}

/* ---- memory that is counted ---- */

static uint64_t allocated;

static void *counted_alloc(void *user, size_t bytes, size_t align, exl2_mem tag)
{
    void *memory = exl2__platform_alloc(user, bytes, align, tag);
    allocated += memory ? bytes : 0;
    if (memory) {
        memset(memory, 0xA5, bytes); /* what a span forgets to write is not zero */
    }
    return memory;
}

static void counted_free(void *user, void *memory, size_t bytes, exl2_mem tag)
{
    allocated -= memory ? bytes : 0;
    exl2__platform_free(user, memory, bytes, tag);
}

/* ---- units ---- */

static struct { uint32_t embeds, ends_between; bool in_layers, fresh; } units;

/* Notes steps that ended after the last layer of a span: their next unit takes rows. */
static void hear_unit(void *user, const char *name, uint64_t predicted_ns, uint64_t ns)
{
    (void)user;
    (void)predicted_ns;
    (void)ns;
    bool embed = strcmp(name, "exl2 embed") == 0, copy = strcmp(name, "exl2 copy_pages") == 0;
    units.embeds += embed;
    units.ends_between += embed && units.in_layers && units.fresh;
    units.in_layers = !embed && !copy && strcmp(name, "exl2 head") != 0 && strcmp(name, "exl2 sample") != 0
                      && strcmp(name, "exl2 begin") != 0 && strcmp(name, "exl2 results") != 0;
    units.fresh = false;
}

static rig open_model(const char *path, exl2_kv format)
{
    exl2_engine_desc e = { .max_sessions = 12, .max_jobs = 8 };
    exl2_model_desc m = { .path = path, .prefill_chunk = 32, .batch_max = 4 };
    e.allocator = (exl2_allocator){ .alloc_fn = counted_alloc, .free_fn = counted_free };
    e.zones.unit = hear_unit;
    m.cache.format = format;
    m.cache.tokens = 2048;
    return rig_open(&e, &m);
}

/* ---- what a model says ---- */

typedef struct outcome {
    rig_said said[JOBS];
    uint8_t saved[SAVED_BYTES]; /* a session with its K and V */
    size_t saved_bytes;
    exl2_model_info info;
} outcome;

static exl2_token prompts[3][PROMPT];

static void make_prompts(void)
{
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t k = 0; k < PROMPT; k++) {
            prompts[i][k] = (exl2_token)(16 + (i * 91 + k * k * 7 + k * 31) % 230);
        }
    }
    for (uint32_t k = 0; k < PROMPT; k++) { /* for guesses */
        prompts[2][k] = (exl2_token)(20 + k % 7);
    }
}

static exl2_job_desc job_of(const rig *r, uint32_t prompt, uint32_t count, exl2_session s, rig_said *said)
{
    memset(said, 0, sizeof *said);
    exl2_job_desc d = rig_job(r, prompts[prompt], count, NEW, said);
    d.session = s;
    d.min_tokens = NEW;
    d.sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_NEUTRAL, .seed = 5 + prompt };
    return d;
}

static exl2_session session_of(const rig *r)
{
    exl2_session s = { 0 };
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    return s;
}

static void start(const rig *r, const exl2_job_desc *d)
{
    exl2_job job;
    exl2_result result = exl2_job_start(r->engine, d, &job);
    if (result < 0) {
        rig_fail(r->engine, "exl2_job_start", result);
    }
}

/* A job; its fork beside the session itself, whose page is copied; a scored prompt; guesses; a saved session. */
static void use(const rig *r, uint32_t cpu_us, outcome *out)
{
    exl2_session a = session_of(r), fork, other = session_of(r), again = session_of(r);
    memset(out, 0, sizeof *out);
    CHECK_INT(exl2_model_get(r->engine, r->model, &out->info), EXL2_OK);
    exl2_job_desc d = job_of(r, 0, PROMPT, a, &out->said[0]);
    start(r, &d);
    rig_drain(r, cpu_us);
    CHECK_INT(exl2_session_fork(r->engine, a, &fork), EXL2_OK);
    exl2_job_desc beside[3] = { job_of(r, 1, 3, a, &out->said[1]), job_of(r, 1, 12, fork, &out->said[2]),
                                job_of(r, 2, PROMPT, other, &out->said[3]) };
    beside[1].score_prompt = true;
    beside[1].alts_per_token = 3;
    beside[2].sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_GREEDY };
    beside[2].draft.ngram = true;
    for (uint32_t i = 0; i < 3; i++) {
        start(r, &beside[i]);
    }
    rig_drain(r, cpu_us);
    CHECK_INT(exl2_session_save(r->engine, fork, EXL2_SAVE_KV, out->saved, SAVED_BYTES, &out->saved_bytes), EXL2_OK);
    CHECK_INT(exl2_session_restore(r->engine, again, out->saved, out->saved_bytes), EXL2_OK);
    exl2_session_info info;
    CHECK_INT(exl2_session_get(r->engine, again, &info), EXL2_OK);
    CHECK(info.tokens_cached > PROMPT); /* K and V came back */
    exl2_job_desc last = job_of(r, 1, 2, again, &out->said[4]);
    start(r, &last);
    rig_drain(r, cpu_us);
    for (uint32_t i = 0; i < JOBS; i++) {
        CHECK(out->said[i].done_events == 1 && out->said[i].result == EXL2_OK && out->said[i].count > 0);
    }
    const exl2_session all[] = { a, fork, other, again };
    for (uint32_t i = 0; i < EXL2__COUNT(all); i++) {
        CHECK_INT(exl2_session_close(r->engine, all[i]), EXL2_OK);
    }
}

static void compare(const outcome *got, const outcome *wanted, const char *model, const char *how)
{
    bool same = got->saved_bytes == wanted->saved_bytes && memcmp(got->saved, wanted->saved, got->saved_bytes) == 0;
    for (uint32_t i = 0; i < JOBS; i++) {
        const rig_said *g = &got->said[i], *w = &wanted->said[i];
        same = same && g->count == w->count && g->scored == w->scored && g->stop == w->stop
             && memcmp(g->ids, w->ids, w->count * sizeof *w->ids) == 0
             && memcmp(g->logprobs, w->logprobs, w->count * sizeof *w->logprobs) == 0
             && memcmp(g->scores, w->scores, w->scored * sizeof *w->scores) == 0;
    }
    same = same && memcmp(got->info.content_id, wanted->info.content_id, sizeof got->info.content_id) == 0
         && got->info.cache_bytes == wanted->info.cache_bytes && got->info.pass_bytes == wanted->info.pass_bytes
         && got->info.bits_per_weight == wanted->info.bits_per_weight;
    if (!CHECK(same)) {
        printf("  %s, cut at %u %u %u into %u, %s: other bits than in one span\n", model, cut_ends[0], cut_ends[1],
               cut_ends[2], cut_count, how);
    }
}

static void close_model(rig *r)
{
    exl2_close(r->engine);
    CHECK_INT(allocated, 0);
}

/* ---- the same bits ---- */

static outcome whole, cut_whole;

static void check_cut(const char *name, exl2_kv format)
{
    rig r = open_model(rig_golden(name), format);
    use(&r, 0, &cut_whole);
    compare(&cut_whole, &whole, name, "in whole passes");
    exl2_session s = session_of(&r);
    CHECK_INT(exl2_session_restore(r.engine, s, whole.saved, whole.saved_bytes), EXL2_OK);
    exl2_session_info info;
    CHECK_INT(exl2_session_get(r.engine, s, &info), EXL2_OK);
    CHECK(info.tokens_cached > PROMPT); /* K and V that a model of one span has saved */
    CHECK_INT(exl2_session_close(r.engine, s), EXL2_OK);
    close_model(&r);
}

/* Returns the number of layers. */
static uint32_t check_cuts(const char *name, exl2_kv format)
{
    cut_at(1, 0, 0, 0);
    rig r = open_model(rig_golden(name), format);
    use(&r, 0, &whole);
    close_model(&r);
    uint32_t layers = layers_seen;
    for (uint32_t at = 1; at < layers; at++) {
        cut_at(2, at, 0, 0);
        check_cut(name, format);
    }
    if (layers > 2) {
        cut_at(3, 1, 2, 0);
        check_cut(name, format);
    }
    if (layers > 3) {
        cut_at(4, 1, 2, 3);
        check_cut(name, format);
    }
    return layers;
}

static void same_bits(void)
{
    static const char *const models[] = { "awq", "cohere", "exl2-4bit", "exl2-mixed", "exl2-qwen3-moe", "gemma2",
                                          "gptq-phi3", "granite", "llama3-rope", "minicpm", "mixed-kinds", "orion",
                                          "phi3-longrope", "qwen3", "smollm3", "starcoder2" };
    uint32_t layers = 0;
    for (size_t i = 0; i < EXL2__COUNT(models); i++) {
        layers += check_cuts(models[i], EXL2_KV_FP16);
    }
    CHECK(layers > 2 * EXL2__COUNT(models)); /* three and four spans were there */
    check_cuts("exl2-mixed", EXL2_KV_Q8);
    check_cuts("gemma2", EXL2_KV_Q4);
}

/* ---- budgets ---- */

/* Steps of any length: they end between spans, too, and the bits are the same. */
static void budgets(void)
{
    const char *name = "smollm3";
    cut_at(1, 0, 0, 0);
    rig r = open_model(rig_golden(name), EXL2_KV_FP16);
    use(&r, 0, &whole);
    close_model(&r);
    static const uint32_t budgets[] = { 1, 40 };
    for (uint32_t spans = 1; spans <= 3; spans++) {
        for (size_t i = 0; i < EXL2__COUNT(budgets); i++) {
            cut_at(spans, 1, 3, 0);
            r = open_model(rig_golden(name), EXL2_KV_FP16);
            use(&r, budgets[i], &cut_whole);
            compare(&cut_whole, &whole, name, "in short steps");
            close_model(&r);
        }
    }
    cut_at(2, 1, 0, 0);
    r = open_model(rig_golden(name), EXL2_KV_FP16);
    static rig_said said;
    exl2_job_desc d = job_of(&r, 0, PROMPT, session_of(&r), &said);
    exl2_step_desc step = { .cpu_us = 1 };
    start(&r, &d);
    memset(&units, 0, sizeof units);
    do {
        units.fresh = true;
    } while (exl2_step(r.engine, &step) != EXL2_IDLE);
    CHECK_INT(said.count, NEW);
    CHECK(units.ends_between >= NEW); /* every pass, and a prompt's of many rows */
    CHECK(units.embeds > 2 * NEW);    /* rows are taken in parts, too */
    close_model(&r);
}

/* ---- park ---- */

static void park(bool keep_packed)
{
    cut_at(2, 2, 0, 0);
    exl2_engine_desc e = { .allocator = { .alloc_fn = counted_alloc, .free_fn = counted_free } };
    exl2_model_desc m = { .path = rig_golden("gemma2"), .keep_packed = keep_packed };
    rig r = rig_open(&e, &m);
    exl2_engine_stats loaded, parked;
    exl2_step_desc few = { .cpu_us = 1 };
    static rig_said first, second;
    exl2_job_desc d = job_of(&r, 0, PROMPT, session_of(&r), &first);
    start(&r, &d);
    rig_drain(&r, 0);
    d = job_of(&r, 0, PROMPT, session_of(&r), &second);
    start(&r, &d);
    for (uint32_t i = 0; i < 200; i++) {
        exl2_step(r.engine, &few);
    }
    CHECK_INT(second.done_events, 0);
    exl2_stats(r.engine, &loaded);
    CHECK_INT(exl2_model_park(r.engine, r.model, true), EXL2_OK);
    exl2_stats(r.engine, &parked);
    exl2_model_info info;
    CHECK_INT(exl2_model_get(r.engine, r.model, &info), EXL2_OK);
    CHECK(loaded.host_bytes - parked.host_bytes >= info.cache_bytes + (keep_packed ? 0 : info.weight_bytes));
    CHECK_INT(exl2_model_park(r.engine, r.model, false), EXL2_OK);
    rig_drain(&r, 0);
    CHECK_INT(second.done_events, 1);
    CHECK(second.count == first.count && memcmp(second.ids, first.ids, first.count * sizeof *first.ids) == 0);
    CHECK(memcmp(second.logprobs, first.logprobs, first.count * sizeof *first.logprobs) == 0);
    close_model(&r);
}

/* ---- loads that are given up, and plans ---- */

/* A load is given up after `slices` slices. Returns whether it was still going on. */
static bool give_up(const char *name, uint32_t slices)
{
    exl2_engine *e = NULL;
    exl2_model model;
    exl2_engine_desc ed = { .backend = EXL2_BACKEND_CPU,
                            .allocator = { .alloc_fn = counted_alloc, .free_fn = counted_free } };
    exl2_model_desc d = { .path = rig_golden(name) };
    exl2_step_desc step = { .cpu_us = 1 };
    CHECK_INT(exl2_open(&ed, &e), EXL2_OK);
    uint64_t before = allocated;
    CHECK_INT(exl2_model_open(e, &d, &model), EXL2_OK);
    for (uint32_t i = 0; i < slices; i++) {
        exl2_step(e, &step);
    }
    bool loading = exl2_model_state(e, model) == EXL2_PENDING;
    CHECK_INT(exl2_model_close(e, model), EXL2_OK);
    CHECK_INT(allocated, before);
    exl2_close(e);
    CHECK_INT(allocated, 0);
    return loading;
}

static void given_up(void)
{
    uint32_t slices = 0;
    cut_at(2, 1, 0, 0);
    while (give_up("exl2-mixed", slices) && slices < 3000) {
        slices++;
    }
    printf("a load of %u slices\n", slices);
    CHECK(slices > 12 && slices < 3000);
}

static uint64_t predicted(const exl2_model_info *info)
{
    return info->weight_bytes + info->cache_bytes + info->scratch_bytes;
}

/* Measures and loads the model: it needs no more memory than was predicted. */
static exl2_model_info plan_of(const char *name)
{
    exl2_engine *e = NULL;
    exl2_model model;
    exl2_model_info measured, info = { 0 };
    exl2_engine_stats before, after;
    exl2_engine_desc ed = { .backend = EXL2_BACKEND_CPU,
                            .allocator = { .alloc_fn = counted_alloc, .free_fn = counted_free } };
    exl2_model_desc d = { .path = rig_golden(name), .prefill_chunk = 32, .batch_max = 4, .cache.tokens = 2048 };
    CHECK_INT(exl2_open(&ed, &e), EXL2_OK);
    exl2_stats(e, &before);
    CHECK_INT(exl2_model_measure(e, &d, &measured), EXL2_OK);
    CHECK_INT(exl2_model_load(e, &d, &model), EXL2_OK);
    CHECK_INT(exl2_model_get(e, model, &info), EXL2_OK);
    exl2_stats(e, &after);
    CHECK_INT(predicted(&measured), predicted(&info));
    CHECK(after.host_peak - before.host_bytes <= predicted(&info));
    exl2_close(e);
    CHECK_INT(allocated, 0);
    return info;
}

/* Where the embedding is the head, too, the last span has a copy of it. */
static void plans(void)
{
    for (uint32_t tied = 0; tied < 2; tied++) {
        const char *name = tied ? "qwen3" : "exl2-4bit";
        cut_at(1, 0, 0, 0);
        exl2_model_info one = plan_of(name);
        cut_at(2, 1, 0, 0);
        exl2_model_info two = plan_of(name);
        CHECK_INT(two.cache_bytes, one.cache_bytes);
        CHECK(tied ? two.weight_bytes > one.weight_bytes : two.weight_bytes == one.weight_bytes);
        CHECK(two.scratch_bytes > one.scratch_bytes); /* both devices have work memory */
    }
}

int main(void)
{
    engine_rig.spans = cut;
    make_prompts();
    same_bits();
    budgets();
    park(false);
    park(true);
    given_up();
    plans();
    return check_done();
}

/* offload.c: models whose MLPs, or experts, the CPU computes for one layer, or for all: a row has the same bits alone,
   among others, in whole passes, in frames, unit by unit, and by more threads; a saved session goes on with its K and V
   where as many layers are offloaded, and without them elsewhere; a parked model goes on, from files and from packed
   weights. Where the GPU computes rows of prompts with weights that are copied to it, they have the bits that they have
   without offload. Memory is as planned. `golden host N` compares words with the goldens. `offload NAME ...` runs these
   models alone.
   takes: the goldens; shared fixtures with experts in three layers; kernels, as all programs of this folder.
   gives: exit code 0, 1, or 77 without a GPU. */
#define RIG_BACKEND EXL2_BACKEND_CUDA
#include "../../demo/common/pool.h"
#include "../engine/rig.h"

#define JOBS 20u /* decode at once, or MANY where bits are compared: up to 16 rows have the same ones */
#define MANY 12u
#define NEW 24u
#define SAVED_BYTES (4u << 20)

typedef struct outcome {
    rig_said said[JOBS + 1];
    uint8_t saved[SAVED_BYTES];
    size_t saved_bytes;
} outcome;

static bool host_prompts, keep_packed; /* of the descs */

static rig open_with(const char *model, uint32_t host_mlps, pool *threads)
{
    exl2_engine_desc e = { .max_jobs = JOBS + 2, .max_sessions = JOBS + 4 };
    exl2_model_desc m = { .path = model, .batch_max = JOBS, .prefill_chunk = 128, .keep_packed = keep_packed,
                          .offload = host_mlps ? EXL2_OFFLOAD_AUTO : EXL2_OFFLOAD_NONE, .host_mlps = host_mlps,
                          .host_prompts = host_mlps && host_prompts };
    exl2_model_info info;
    exl2_engine_stats stats;
    e.parallel = threads ? pool_hook(threads) : e.parallel;
    m.cache.tokens = 8192;
    m.cache.no_reuse = true; /* each use computes all of its K and V */
    rig r = rig_open(&e, &m);
    CHECK_INT(exl2_model_get(r.engine, r.model, &info), EXL2_OK);
    exl2_stats(r.engine, &stats);
    CHECK_INT(stats.device_bytes, info.device_bytes);
    CHECK_INT(info.host_mlps, host_mlps < info.layers ? host_mlps : info.layers);
    CHECK_INT(info.host_prompts, host_mlps && (host_prompts || info.host_mlps <= (info.experts ? 2u : 1u)));
    return r;
}

static exl2_job_desc job_of(const rig *r, uint32_t n, exl2_token *prompt, exl2_session s, rig_said *said)
{
    memset(said, 0, sizeof *said);
    for (uint32_t k = 0; k < 10 + 3 * n; k++) { /* the models' contexts hold 128 tokens */
        prompt[k] = (exl2_token)(16 + (n * 91 + k * k * 7 + k * 31) % 230);
    }
    exl2_job_desc d = rig_job(r, prompt, 10 + 3 * n, NEW, said);
    d.session = s;
    d.min_tokens = NEW;
    d.score_prompt = true;
    d.sampler = (exl2_sampler_desc){ .preset = n % 2 ? EXL2_PRESET_NEUTRAL : EXL2_PRESET_GREEDY, .seed = 5 + n };
    return d;
}

static void drain(const rig *r, const exl2_step_desc *step)
{
    while (exl2_step(r->engine, step) != EXL2_IDLE) {
    }
}

static void check_said(const rig_said *said)
{
    CHECK(said->done_events == 1 && said->result == EXL2_OK && said->count == NEW);
}

/* Jobs at once, or one after the other; one of them is saved with its K and V. */
static void use(const rig *r, const exl2_step_desc *step, uint32_t jobs, bool alone, outcome *out)
{
    static exl2_token prompt[JOBS][256];
    exl2_session s[JOBS];
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < jobs; i++) {
        CHECK_INT(exl2_session_open(r->engine, r->model, &s[i]), EXL2_OK);
        exl2_job_desc d = job_of(r, i, prompt[i], s[i], &out->said[i]);
        CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
        if (alone) {
            drain(r, step);
        }
    }
    drain(r, step);
    CHECK_INT(exl2_session_save(r->engine, s[1], EXL2_SAVE_KV, out->saved, SAVED_BYTES, &out->saved_bytes), EXL2_OK);
    for (uint32_t i = 0; i < jobs; i++) {
        check_said(&out->said[i]);
        CHECK_INT(exl2_session_close(r->engine, s[i]), EXL2_OK);
    }
}

/* A session that another use has saved goes on. cached: its K and V are of use here. */
static void go_on(const rig *r, const outcome *saved, bool cached, rig_said *said)
{
    static exl2_token prompt[256];
    exl2_session s;
    exl2_session_info info;
    exl2_step_desc step = { .wait = true };
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    exl2_result result = exl2_session_restore(r->engine, s, saved->saved, saved->saved_bytes);
    CHECK(result >= 0);
    CHECK_INT(exl2_session_get(r->engine, s, &info), EXL2_OK);
    CHECK_INT(info.tokens, 13 + NEW);
    CHECK(cached == (info.tokens_cached > 0));
    exl2_job_desc d = job_of(r, 2, prompt, s, said);
    d.prompt.token_count = 3;
    d.score_prompt = false;
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    drain(r, &step);
    check_said(said);
    CHECK_INT(exl2_session_close(r->engine, s), EXL2_OK);
}

static bool same_words(const rig_said *a, const rig_said *b)
{
    return a->count == b->count && memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0
        && memcmp(a->logprobs, b->logprobs, a->count * sizeof *a->logprobs) == 0 && a->scored == b->scored
        && memcmp(a->scores, b->scores, a->scored * sizeof *a->scores) == 0;
}

static void check_alike(const char *what, const outcome *a, const outcome *b, uint32_t jobs)
{
    for (uint32_t i = 0; i < jobs; i++) {
        if (!CHECK(same_words(&a->said[i], &b->said[i]))) {
            printf("  %s: job %u\n", what, i);
        }
    }
}

static void park(const rig *r)
{
    exl2_engine_stats stats;
    CHECK_INT(exl2_model_park(r->engine, r->model, true), EXL2_OK);
    exl2_stats(r->engine, &stats);
    CHECK_INT(stats.device_bytes, 0);
    CHECK_INT(exl2_model_park(r->engine, r->model, false), EXL2_OK);
    drain(r, &(exl2_step_desc){ .wait = true });
}

/* Rows of prompts, and so the first token of each job, are as without offload. */
static void check_prompts(const char *path, const outcome *all)
{
    static outcome whole;
    const exl2_step_desc step = { .wait = true };
    rig r = open_with(path, 0, NULL);
    use(&r, &step, MANY, false, &whole);
    rig_close(&r);
    for (uint32_t i = 0; i < MANY; i++) {
        const rig_said *a = &whole.said[i], *b = &all->said[i];
        CHECK(a->scored == b->scored && a->scored > 0);
        CHECK(memcmp(a->scores, b->scores, a->scored * sizeof *a->scores) == 0);
        CHECK(a->ids[0] == b->ids[0] && a->logprobs[0] == b->logprobs[0]);
    }
}

static void model(const char *name, uint32_t host_mlps, pool *threads)
{
    static outcome all, other;
    static rig_said said[2];
    const exl2_step_desc whole = { .wait = true }, frame = { .cpu_us = 300, .gpu_us = 100 };
    const exl2_step_desc units = { .gpu_us = 1, .wait = true };
    const char *path = strchr(name, '/') ? check_shared(name) : rig_golden(name);
    exl2_model_info info;
    printf("%s, %u layers offloaded%s\n", name, host_mlps, host_prompts ? ", prompts, too" : "");
    rig r = open_with(path, host_mlps, NULL);
    CHECK_INT(exl2_model_get(r.engine, r.model, &info), EXL2_OK);
    use(&r, &whole, MANY, false, &all);
    use(&r, &units, MANY, false, &other);
    check_alike("unit by unit", &all, &other, MANY);
    use(&r, &frame, MANY, false, &other);
    check_alike("in frames", &all, &other, MANY);
    use(&r, &frame, MANY, true, &other);
    check_alike("alone", &all, &other, MANY);
    go_on(&r, &all, true, &said[0]);
    go_on(&r, &other, true, &said[1]);
    CHECK(same_words(&said[0], &said[1]));
    park(&r);
    go_on(&r, &all, true, &said[1]);
    CHECK(same_words(&said[0], &said[1]));
    use(&r, &whole, JOBS, false, &other);
    use(&r, &frame, JOBS, false, &other);
    rig_close(&r);
    if (!info.host_prompts) {
        check_prompts(path, &all);
    }
    r = open_with(path, host_mlps, threads);
    use(&r, &whole, MANY, false, &other);
    check_alike("by threads", &all, &other, MANY);
    rig_close(&r);
    r = open_with(path, host_mlps == 1 ? 2 : 1, threads);
    go_on(&r, &all, false, &said[1]);
    rig_close(&r);
}

/* A name from the command line is one of the goldens, or a path below the shared data. */
static bool wanted(int argc, char **argv, const char *name)
{
    bool found = argc == 1;
    for (int i = 1; i < argc; i++) {
        found = found || strcmp(argv[i], name) == 0;
    }
    return found;
}

int main(int argc, char **argv)
{
    /* With a shared expert; with a dense first layer. */
    static const char *const shared[] = { "fixtures/arch/qwen2-moe", "fixtures/arch/glm4-moe" };
    static const char *const models[] = { "exl2-mixed", "qwen3", "gemma2", "cohere", "exl2-qwen3-moe", "starcoder2",
                                          "orion", "awq", "mixed-kinds", "granite", "exl2-4bit" };
    pool *threads = pool_open(4);
    for (size_t i = 0; threads && i < EXL2__COUNT(models); i++) {
        if (!wanted(argc, argv, models[i])) {
            continue;
        }
        model(models[i], 1, threads);
        keep_packed = i % 2; /* parks from files, or from packed weights */
        model(models[i], 99, threads);
        host_prompts = i % 4 == 0;
        if (host_prompts) {
            model(models[i], 99, threads);
        }
        host_prompts = keep_packed = false;
    }
    for (size_t i = 0; threads && i < EXL2__COUNT(shared); i++) {
        keep_packed = i == 0;
        if (wanted(argc, argv, shared[i])) {
            model(shared[i], 99, threads);
        }
    }
    pool_close(threads);
    return check_done();
}

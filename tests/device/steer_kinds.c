/* steer_kinds.c: control vectors on a GPU: scores of models of many families against the CPU's, and rows with different
   vectors beside each other, which give the bits that they give alone.
   takes: the goldens; EXL2_TEST_DATA, if it is there. Arguments: folders of models, each of which says and scores texts
          with vectors, in passes of all kinds; `speed` and folders: what a vector costs a token.
   gives: exit code 0 or 1. */
#define RIG_BACKEND EXL2_BACKEND_CUDA
#include "../engine/steer_rig.h"

/* ---- against the CPU ---- */

#define SAID 24

/* Opens a model, and scores a text with two vectors, or with none. */
static void score(exl2_backend backend, const char *path, bool with, rig_said *said)
{
    exl2_token ids[TOKENS];
    exl2_error error = { EXL2_OK, 0, "" };
    exl2_engine_desc e = { .backend = backend, .open_error = &error };
    exl2_model_desc m = { .path = path, .steer_max = 2, .prefill_chunk = 32 };
    rig r = { 0 };
    e.kernel_cache = backend == EXL2_BACKEND_CUDA ? kernel_folder() : e.kernel_cache;
    exl2_result result = exl2_open(&e, &r.engine);
    if (!CHECK(result == EXL2_OK) || (result = exl2_model_load(r.engine, &m, &r.model)) < 0) {
        rig_fail(r.engine, path, result);
    }
    shape s = shape_of(&r);
    exl2_steer_use uses[2] = { { make(&r, s, 0), 0.5f }, { make(&r, s, 1), -0.25f } };
    exl2_job_desc d = rig_job(&r, ids, prompt_of(ids, TOKENS, 1), 1, said);
    memset(said, 0, sizeof *said);
    d.score_prompt = true;
    d.steers = uses;
    d.steer_count = with ? 2 : 0;
    rig_run(&r, &d);
    CHECK_INT(said->scored, TOKENS - 1);
    rig_close(&r);
}

static double largest(const float *a, const float *b, uint32_t count)
{
    double worst = 0;
    for (uint32_t i = 0; i < count; i++) {
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    }
    return worst;
}

static void against_cpu(const char *path)
{
    static rig_said cpu, gpu, none;
    score(EXL2_BACKEND_CPU, path, true, &cpu);
    score(EXL2_BACKEND_CUDA, path, true, &gpu);
    score(EXL2_BACKEND_CUDA, path, false, &none);
    double off = largest(cpu.scores, gpu.scores, cpu.scored), apart = largest(none.scores, gpu.scores, cpu.scored);
    printf("%s: off by %.2g from the CPU; vectors change %.2g\n", path, off, apart);
    CHECK(off < BOUND && apart > 2 * BOUND);
}

/* ---- kinds of passes against each other ---- */

#define LOUD 60 /* the residuals of random weights are large */

static uint32_t loud_set(uint32_t i, exl2_steer a, exl2_steer b, exl2_steer_use out[2])
{
    uint32_t count = set_of(i % SETS, a, b, out);
    for (uint32_t k = 0; k < count; k++) {
        out[k].factor *= out[k].factor <= EXL2_OFF ? 1.0f : (float)LOUD;
    }
    return count;
}

/* What is said, row by row, has the scores that the same text has as a prompt: with `rows` jobs at a time, so that all
   kernels for few rows are seen, and those for many. */
static void kinds(const char *path, uint32_t rows)
{
    static rig_said said[32], scored;
    static exl2_token ids[32][TOKENS];
    exl2_model_desc m = { .path = path, .steer_max = 2, .batch_max = rows, .context_max = 256, .cache.no_reuse = true };
    rig r = rig_open(NULL, &m);
    shape s = shape_of(&r);
    exl2_steer a = make(&r, s, 0), b = make(&r, s, 1);
    double worst = 0, least = 1e9;
    for (uint32_t i = 0; i < rows; i++) {
        exl2_steer_use uses[2];
        exl2_job_desc d = rig_job(&r, ids[i], prompt_of(ids[i], TOKENS - SAID, i), SAID, &said[i]);
        memset(&said[i], 0, sizeof said[i]);
        d.steers = uses;
        d.steer_count = loud_set(i, a, b, uses);
        CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
    }
    rig_drain(&r, 0);
    for (uint32_t i = 0; i < rows && i < SETS; i++) {
        exl2_steer_use uses[2];
        uint32_t first = TOKENS - SAID - 1, count = said[i].count;
        for (uint32_t with = 0; with < 2; with++) {
            memcpy(ids[i] + first + 1, said[i].ids, count * sizeof **ids);
            exl2_job_desc d = rig_job(&r, ids[i], first + 1 + count, 0, &scored);
            memset(&scored, 0, sizeof scored);
            d.score_prompt = d.prefill_only = true;
            d.steers = uses;
            d.steer_count = with ? loud_set(i, a, b, uses) : 0;
            rig_run(&r, &d);
            double off = largest(scored.scores + first, said[i].logprobs, count);
            worst = with ? fmax(worst, off) : worst;
            least = with || set_class[i % SETS] == 0 ? least : fmin(least, off);
        }
    }
    printf("%s, %u rows: said and scored are apart by %.2g, without vectors by %.2g\n", path, rows, worst, least);
    CHECK(worst < BOUND); /* of random weights all logits are alike: `least` is no larger */
    rig_close(&r);
}

/* ---- families ---- */

static void families(void)
{
    static const char *const names[] = { "exl2-4bit", "exl2-mixed", "exl2-qwen3-moe", "gptq-phi3", "awq", "granite",
                                         "starcoder2", "qwen3", "minicpm" };
    const char *data = getenv("EXL2_TEST_DATA");
    for (size_t i = 0; i < EXL2__COUNT(names); i++) {
        against_cpu(rig_golden(names[i]));
        beside(names[i], 24, 0, 16);
    }
    for (uint32_t i = 0; i < 3; i++) {
        static const char *const more[] = { "exl3/exl3-llama", "arch/gptq-mixtral", "arch/gpt-oss" };
        char path[1024];
        snprintf(path, sizeof path, "%s/fixtures/%s", data ? data : "", more[i]);
        data ? against_cpu(path) : (void)0;
    }
}

/* ---- speed ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Time of a token without and with a vector, by turns, in one engine: medians of five. */
static void speed(const char *path, uint32_t rows)
{
    enum { WORDS_TIMED = 96, TURNS = 5 };
    static rig_said said[32];
    exl2_token ids[8];
    double ms[2][TURNS + 1];
    exl2_model_desc m = { .path = path, .steer_max = 4, .batch_max = rows, .context_max = 512, .cache.no_reuse = true };
    rig r = rig_open(NULL, &m);
    exl2_steer_use use = { make(&r, shape_of(&r), 0), 0.01f };
    for (uint32_t turn = 0; turn < 2 * TURNS + 2; turn++) { /* the first two warm up */
        for (uint32_t i = 0; i < rows; i++) {
            exl2_job_desc d = rig_job(&r, ids, prompt_of(ids, 8, i), WORDS_TIMED, &said[i]);
            memset(&said[i], 0, sizeof said[i]);
            d.min_tokens = WORDS_TIMED;
            d.steers = &use;
            d.steer_count = turn % 2;
            CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
        }
        exl2_step_desc wait = { .wait = true };
        while (exl2_step(r.engine, &wait) != EXL2_IDLE) {
        }
        ms[turn % 2][turn / 2] = (double)said[0].stats.decode_ns / 1e6 / (double)WORDS_TIMED;
    }
    for (uint32_t with = 0; with < 2; with++) {
        qsort(ms[with] + 1, TURNS, sizeof **ms, by_value);
    }
    double without = ms[0][1 + TURNS / 2], with = ms[1][1 + TURNS / 2];
    printf("%s, %u rows: %.4f ms a token, with a vector %.4f: %.4f\n", path, rows, without, with, with / without);
    fflush(stdout);
    rig_close(&r);
}

int main(int argc, char **argv)
{
    static const uint32_t said_rows[] = { 2, 14, 28 }, timed_rows[] = { 1, 8, 16 };
    bool timed = argc > 1 && strcmp(argv[1], "speed") == 0;
    for (int i = 1 + timed; i < argc; i++) {
        for (size_t k = 0; k < 3; k++) {
            timed ? speed(argv[i], timed_rows[k]) : kinds(argv[i], said_rows[k]);
        }
    }
    argc > 1 ? (void)0 : families();
    return check_done();
}

/* frames.c: steps of the CPU keep their budget, whatever work falls into them: prompts, grammars whose masks are
   walked, guesses, several sessions in a pass, copies of pages, tokens that are sampled from almost all of a large
   vocabulary. The clock counts the basic blocks of the engine
   (counted_engine.c), so the test does not depend on how fast the machine is that runs it, but on the instruction set:
   it needs AVX2. Two machines are emulated: one on which a block lasts four nanoseconds, and one on which it lasts one,
   but each share of work of the CPU backend N = 8 times as long; EXL2_TEST_SLOW in the environment is another N, of
   which only the second machine is emulated then. The same text comes with any budget on any machine.
   takes: the tokenizer of the goldens, a model of its vocabulary.
   gives: exit code 0, 1, or 77 without AVX2.
   owns:  a folder that it removes. */
#define _POSIX_C_SOURCE 200809L
#include "../device/fake_engine.h"
#include "../model_maker.h"
#include "rig.h"

#include <unistd.h>

#define VOCAB 49152u
#define LARGE_VOCAB 151936u
#define SPEAKERS 3u
#define NEW 60u
#define SLOW 8u
#define LATE_NS 300000u /* after the budget */
#define STEPS_MAX 20000u

int counted_clock(int clock, struct timespec *time);
void counted_slow(uint64_t ns);
void __sanitizer_cov_trace_pc(void);

static uint64_t now_ns;
static uint32_t block_ns, slow; /* the machine; slow: how many times as long a share of work lasts */

void __sanitizer_cov_trace_pc(void)
{
    now_ns += block_ns;
}

int counted_clock(int clock, struct timespec *time)
{
    (void)clock;
    time->tv_sec = (time_t)(now_ns / 1000000000u);
    time->tv_nsec = (long)(now_ns % 1000000000u);
    return 0;
}

/* After a share that has lasted `ns`. */
void counted_slow(uint64_t ns)
{
    now_ns += (slow - 1) * ns;
}

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{"
    "\"say\":{\"type\":\"string\",\"pattern\":\"^[A-Z][ !#-;=?-Z_a-z]{2,60}[.!?]$\"},"
    "\"mood\":{\"enum\":[\"calm\",\"warm\",\"wary\"]},\"trust\":{\"type\":\"integer\",\"minimum\":-1,\"maximum\":1}},"
    "\"required\":[\"say\",\"mood\",\"trust\"]}";

typedef struct figures {
    uint32_t steps, late, units, predicted; /* late: more than LATE_NS over the budget */
    uint64_t unit_most_ns;                  /* the longest prediction of a unit that a shorter one could replace */
    uint64_t over_most_ns;
} figures;

static rig_said said[SPEAKERS], wanted[SPEAKERS];

static void on_unit(void *user, const char *name, uint64_t predicted_ns, uint64_t ns)
{
    figures *f = (figures *)user;
    (void)ns;
    f->units++;
    f->predicted += predicted_ns > 0;
    bool parts = strcmp(name, "exl2 head") == 0 || strcmp(name, "exl2 gate_up") == 0; /* of many small items */
    f->unit_most_ns = parts && predicted_ns > f->unit_most_ns ? predicted_ns : f->unit_most_ns;
}

/* Three people answer at once, twice: the second time their sessions are forks with a common page. */
static figures talk(const char *dir, uint32_t budget_us, bool one_by_one)
{
    figures f = { 0 };
    exl2_engine *e = NULL;
    exl2_error error;
    exl2_engine_desc d = machine_desc(EXL2_BACKEND_CPU, &error);
    d.cpu_path_max = EXL2_CPU_AVX2;
    d.zones = (exl2_zones){ .unit = on_unit, .user = &f };
    exl2_model_desc desc = { .path = dir, .grammars = true, .context_max = 128 };
    desc.cache.tokens = 2048;
    exl2_model m;
    exl2_grammar g;
    exl2_session first, sessions[SPEAKERS];
    machine_make();
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    CHECK_INT(exl2_model_load(e, &desc, &m), EXL2_OK);
    exl2_grammar_desc gd = { .model = m, .kind = EXL2_GRAMMAR_JSON_SCHEMA, .source = schema };
    CHECK_INT(exl2_grammar_make(e, &gd, &g), EXL2_OK);
    CHECK_INT(exl2_session_open(e, m, &first), EXL2_OK);
    exl2_job_desc world = { .session = first, .prompt.text = "A small tavern on the pier, and a stormy night.",
                            .prefill_only = true };
    CHECK_INT(exl2_generate(e, &world), EXL2_OK);
    f = (figures){ 0 };
    for (uint32_t i = 0; i < SPEAKERS; i++) {
        exl2_job job;
        memset(&said[i], 0, sizeof said[i]);
        CHECK_INT(exl2_session_fork(e, first, &sessions[i]), EXL2_OK);
        exl2_job_desc job_desc = { .session = sessions[i], .grammar = g, .max_tokens = NEW,
                                   .prompt.text = " Who was it?", .on_event = rig_hear, .user = &said[i] };
        job_desc.draft.ngram = !one_by_one;
        job_desc.draft.one_by_one = one_by_one;
        job_desc.sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_BALANCED, .seed = 5 + i };
        CHECK_INT(exl2_job_start(e, &job_desc, &job), EXL2_OK);
    }
    exl2_result r = EXL2_OK;
    for (; r != EXL2_IDLE && r >= 0 && f.steps < STEPS_MAX; f.steps++) {
        uint64_t begin = now_ns;
        r = exl2_step(e, &(exl2_step_desc){ .cpu_us = budget_us });
        uint64_t ns = now_ns - begin, budget_ns = budget_us * UINT64_C(1000);
        uint64_t over = ns > budget_ns ? ns - budget_ns : 0;
        f.late += over > LATE_NS;
        f.over_most_ns = over > f.over_most_ns ? over : f.over_most_ns;
    }
    CHECK_INT(r, EXL2_IDLE);
    exl2_close(e);
    machine_drop_cache();
    return f;
}

static void check_budget(const char *dir, uint32_t budget_us, bool one_by_one)
{
    figures f = talk(dir, budget_us, one_by_one);
    printf("%u ns a block, N %u, %u us: %u steps, %u late, the latest %.3f ms; ", block_ns, slow, budget_us, f.steps,
           f.late, (double)f.over_most_ns * 1e-6);
    printf("%u units, the longest predicted %.3f ms\n", f.units, (double)f.unit_most_ns * 1e-6);
    uint64_t unit_ns = budget_us * UINT64_C(1000) / 8;
    CHECK(f.units > 500 && f.predicted > f.units / 2);
    CHECK(f.unit_most_ns <= (unit_ns > 100000 ? unit_ns : 100000));
    CHECK(f.late * 200 <= f.steps && f.over_most_ns <= LATE_NS);
    for (uint32_t i = 0; i < SPEAKERS; i++) {
        CHECK(said[i].count > 5 && said[i].result >= 0);
        wanted[i] = wanted[i].count ? wanted[i] : said[i];
        CHECK_TEXT(said[i].text, wanted[i].text);
    }
}

/* ---- sampling ---- */

typedef struct sampling {
    uint64_t predicted_most_ns, most_ns; /* of a unit of sampling, or of what follows it */
    uint32_t units;
    exl2_token tokens[8];
    uint32_t count, edits; /* edits: calls of on_logits */
} sampling;

/* What a row is sampled with. */
typedef struct row_kind {
    const char *name;
    exl2_sampler_desc sampler;
    float guidance;
    bool edits;     /* on_logits */
    uint32_t whole; /* so many eighths of 4 ms, or more, would the row last as one unit, with AVX2 */
} row_kind;

static void on_sampling(void *user, const char *name, uint64_t predicted_ns, uint64_t ns)
{
    sampling *x = (sampling *)user;
    bool samples = strcmp(name, "exl2 sample") == 0;
    if (samples || strcmp(name, "exl2 results") == 0) {
        x->units += samples;
        x->predicted_most_ns = predicted_ns > x->predicted_most_ns ? predicted_ns : x->predicted_most_ns;
        x->most_ns = ns > x->most_ns ? ns : x->most_ns;
    }
}

static exl2_flow hear_token(void *user, const exl2_event *event)
{
    sampling *x = (sampling *)user;
    for (uint32_t i = 0; event->kind == EXL2_EVENT_TEXT && i < event->token_count; i++) {
        x->tokens[x->count++ % 8] = event->tokens[i].token;
    }
    return EXL2_CONTINUE;
}

static void edit_logits(void *user, exl2_job job, float *logits, uint32_t vocab)
{
    (void)job;
    ((sampling *)user)->edits++;
    logits[11 % vocab] = -INFINITY;
}

/* Samples a few tokens at a temperature that makes almost all of the vocabulary alike. budget_us 0: no budget. */
static sampling sample_flat(const char *dir, exl2_cpu_path path, uint32_t budget_us, const row_kind *kind)
{
    static const exl2_token ids[] = { 5, 6, 7 };
    sampling x = { 0 };
    exl2_engine *e = NULL;
    exl2_error error;
    exl2_engine_desc d = machine_desc(EXL2_BACKEND_CPU, &error);
    d.cpu_path_max = path;
    d.zones = (exl2_zones){ .unit = on_sampling, .user = &x };
    exl2_model_desc desc = { .path = dir, .context_max = 64 };
    exl2_model m;
    machine_make();
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    CHECK_INT(exl2_model_load(e, &desc, &m), EXL2_OK);
    exl2_job_desc job = { .model = m, .prompt = { .tokens = ids, .token_count = 3 }, .max_tokens = 4,
                          .on_event = hear_token, .user = &x, .sampler = kind->sampler };
    job.guidance = kind->guidance;
    job.negative_prompt.tokens = kind->guidance > 0 ? ids + 1 : NULL;
    job.negative_prompt.token_count = kind->guidance > 0 ? 2 : 0;
    job.on_logits = kind->edits ? edit_logits : NULL;
    exl2_job started;
    CHECK_INT(exl2_job_start(e, &job, &started), EXL2_OK);
    exl2_result r = EXL2_OK;
    for (uint32_t i = 0; r != EXL2_IDLE && r >= 0 && i < STEPS_MAX; i++) {
        r = exl2_step(e, &(exl2_step_desc){ .cpu_us = budget_us });
    }
    CHECK_INT(r, EXL2_IDLE);
    CHECK_INT(x.count, 4);
    exl2_close(e);
    machine_drop_cache();
    return x;
}

/* A row is sampled in units of at most an eighth of the budget, predicted and, as the counted time is even, nearly so
   measured. The tokens are the same. */
static void check_sampling(const char *dir, exl2_cpu_path path, const row_kind *kind)
{
    sampling at_once = sample_flat(dir, path, 0, kind), x = sample_flat(dir, path, 4000, kind);
    printf("path %d, %s: %u units, the longest predicted %.3f ms, counted %.3f ms\n", (int)path, kind->name, x.units,
           (double)x.predicted_most_ns * 1e-6, (double)x.most_ns * 1e-6);
    CHECK(x.predicted_most_ns <= 500000 && x.most_ns <= 600000);
    CHECK(x.units > x.count * kind->whole);
    CHECK(x.edits == (kind->edits ? 4 : 0) && at_once.edits == x.edits);
    CHECK(memcmp(x.tokens, at_once.tokens, sizeof x.tokens) == 0);
}

static void check_flat_rows(const char *dir)
{
    static const exl2_token banned[] = { 3 };
    static const exl2_sampler_desc hot = { .preset = EXL2_PRESET_NEUTRAL, .temperature = 100, .seed = 7 };
    row_kind kinds[] = {
        { .name = "top-k", .sampler = hot, .whole = 2 }, { .name = "top-p", .sampler = hot, .whole = 8 },
        { .name = "tail-free", .sampler = hot, .whole = 12 }, { .name = "typical", .sampler = hot, .whole = 12 },
        { .name = "top-a", .sampler = hot, .whole = 6 }, { .name = "mirostat", .sampler = hot, .whole = 6 },
        { .name = "XTC", .sampler = hot, .whole = 6 }, { .name = "temperature last", .sampler = hot, .whole = 6 },
        { .name = "dynamic temperature", .sampler = hot, .whole = 8 }, { .name = "skew", .sampler = hot, .whole = 12 },
        { .name = "adaptive-p", .sampler = hot, .whole = 8 }, { .name = "smoothing", .sampler = hot, .whole = 4 },
        { .name = "guidance", .sampler = hot, .whole = 2, .guidance = 1.5f },
        { .name = "on_logits", .sampler = hot, .whole = 2, .edits = true },
        { .name = "all of these", .sampler = hot, .whole = 20, .guidance = 1.5f, .edits = true },
    };
    kinds[0].sampler.top_k = 40;
    kinds[1].sampler.top_p = 0.9f;
    kinds[1].sampler.ban = banned;
    kinds[1].sampler.ban_count = 1;
    kinds[2].sampler.tail_free = 0.95f;
    kinds[3].sampler.typical = 0.9f;
    kinds[4].sampler.top_a = 0.1f;
    kinds[5].sampler.mirostat_tau = 12;
    kinds[6].sampler.xtc_probability = 0.5f;
    kinds[7].sampler.temperature_last = true;
    kinds[8].sampler.dynamic_min = 50;
    kinds[8].sampler.dynamic_max = 100;
    kinds[9].sampler.skew = 0.5f;
    kinds[10].sampler.adaptive_target = 0.3f;
    kinds[11].sampler.smoothing = 0.001f;
    kinds[14].sampler.tail_free = kinds[14].sampler.typical = 0.98f;
    kinds[14].sampler.skew = 0.5f;
    block_ns = 4;
    slow = 1;
    exl2_cpu_path best = exl2__cpu_path_choose(EXL2_CPU_AVX512);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        check_sampling(dir, EXL2_CPU_AVX2, &kinds[i]);
        check_sampling(dir, EXL2_CPU_C, &kinds[i]);
        if (best == EXL2_CPU_AVX512) {
            check_sampling(dir, best, &kinds[i]);
        }
    }
}

static void check_machine(const char *dir, uint32_t machine_block_ns, uint32_t machine_slow)
{
    block_ns = machine_block_ns;
    slow = machine_slow;
    check_budget(dir, 4000, false);
    check_budget(dir, 2000, false);
    check_budget(dir, 4000, true);
}

int main(void)
{
    const char *given = getenv("EXL2_TEST_SLOW");
    uint32_t n = given ? (uint32_t)strtoul(given, NULL, 10) : 0;
    if (exl2__cpu_path_choose(EXL2_CPU_AVX2) != EXL2_CPU_AVX2) {
        printf("skipped: this CPU has no AVX2\n");
        return 77;
    }
    char dir[600], command[8192];
    const char *base = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/exl2-frames-%ld", base && *base ? base : "/tmp", (long)getpid());
    snprintf(command, sizeof command, "mkdir '%s' && cp '" EXL2_GOLDEN_DIR "/smollm2'/*.json '%s'", dir, dir);
    CHECK_INT(system(command), 0);
    maker_write_wide(dir, VOCAB);
    if (!n) {
        check_machine(dir, 4, 1);
    }
    check_machine(dir, 1, n ? n : SLOW);
    maker_write_wide(dir, LARGE_VOCAB);
    check_flat_rows(dir);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    CHECK_INT(system(command), 0);
    return check_done();
}

/* grammar_real.c: the real model at temperature 1.5 generates values of schemas, several jobs at a time: 100 values, or
   $EXL2_GRAMMAR_VALUES of them, judged by Python's jsonschema. Then it measures what a grammar costs per token, in one
   round or in $EXL2_GRAMMAR_ROUNDS rounds. -DRIG_BACKEND=EXL2_BACKEND_CUDA: on a GPU. */
#define _GNU_SOURCE /* mkdtemp, clock_gettime */
#include "rig.h"

#include "../grammar_judge.h"

#include <time.h>

#define SLOTS 16u
#define TOKENS 120u       /* most tokens of a value */
#define SPEED_TOKENS 240u /* tokens of a timed job */

static const char *const schemas[] = {
    "{\"type\":\"object\",\"properties\":{\"mood\":{\"enum\":[\"calm\",\"angry\",\"afraid\"]},\"say\":{\"type\":"
    "\"string\",\"maxLength\":100},\"act\":{\"enum\":[\"none\",\"give_key\",\"leave\"]},\"target\":{\"enum\":[\"Tom\","
    "\"Ann\"]},\"trust\":{\"type\":\"integer\",\"minimum\":-2,\"maximum\":2}},\"required\":[\"mood\",\"say\",\"act\","
    "\"target\",\"trust\"]}",
    "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"pattern\":"
    "\"^[A-Z][a-z]+$\"},\"price\":{\"type\":\"number\",\"minimum\":0,\"maximum\":99.5},\"when\":{\"type\":\"string\","
    "\"format\":\"date-time\"}},\"required\":[\"name\",\"price\"]},\"minItems\":1,\"maxItems\":4}",
    "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":[\"string\",\"null\"]},"
    "\"kids\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/n\"}}},\"required\":[\"v\"]}},"
    "\"$ref\":\"#/$defs/n\"}",
    "{}",
};

/* Values can use all of SPEED_TOKENS: long strings and the text between them. */
static const char long_schema[] =
    "{\"type\":\"array\",\"minItems\":10,\"items\":{\"type\":\"object\",\"properties\":{\"mood\":{\"enum\":[\"calm\","
    "\"angry\"]},\"say\":{\"type\":\"string\"}},\"required\":[\"mood\",\"say\"]}}";

/* ---- jobs side by side ---- */

typedef struct slot { /* one job, with a grammar made for it, as a game would do */
    const char *schema;
    exl2_grammar grammar;
    char text[16384];
    size_t bytes;
    exl2_stop stop;
    exl2_result result;
    bool busy, done;
} slot;

typedef struct crowd {
    const rig *r;
    judge *j;                       /* NULL: texts are not judged */
    const char *const *schemas;     /* schemas for the jobs, one after the other; NULL: free text */
    uint32_t schema_count, jobs, slots, min_tokens, max_tokens;
    exl2_sampler_desc sampler;      /* seeds are filled in */
    uint64_t made_ns, wall_ns, tokens; /* time for making grammars; time for everything */
    clock_t processor;
} crowd;

static slot slots[SLOTS];

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static exl2_flow hear(void *user, const exl2_event *ev)
{
    slot *s = (slot *)user;
    if (ev->kind == EXL2_EVENT_TEXT && CHECK(s->bytes + ev->bytes < sizeof s->text)) {
        memcpy(s->text + s->bytes, ev->text, ev->bytes);
        s->bytes += ev->bytes;
    } else if (ev->kind == EXL2_EVENT_DONE) {
        s->stop = ev->stop;
        s->result = ev->result;
        s->busy = false;
        s->done = true;
    }
    return EXL2_CONTINUE;
}

static void begin(crowd *c, slot *s, uint32_t i)
{
    *s = (slot){ .schema = c->schemas ? c->schemas[i % c->schema_count] : NULL, .busy = true };
    uint64_t start = now_ns();
    if (s->schema) {
        exl2_grammar_desc g = { .model = c->r->model, .kind = EXL2_GRAMMAR_JSON_SCHEMA, .source = s->schema };
        CHECK_INT(exl2_grammar_make(c->r->engine, &g, &s->grammar), EXL2_OK);
        c->made_ns += now_ns() - start;
    }
    exl2_job_desc d = { .model = c->r->model, .prompt.text = "The answer as JSON:\n", .min_tokens = c->min_tokens,
                        .max_tokens = c->max_tokens, .grammar = s->grammar, .on_event = hear, .user = s };
    d.sampler = c->sampler;
    d.sampler.seed = i + 1;
    exl2_result result = exl2_job_start(c->r->engine, &d, NULL);
    if (result < 0) {
        rig_fail(c->r->engine, "exl2_job_start", result);
    }
}

static void end(const crowd *c, slot *s)
{
    s->done = false;
    CHECK_INT(s->result, EXL2_OK);
    CHECK(s->stop == EXL2_STOP_GRAMMAR || s->stop == EXL2_STOP_EOS || s->stop == EXL2_STOP_LENGTH);
    if (s->schema) {
        CHECK_INT(exl2_grammar_close(c->r->engine, s->grammar), EXL2_OK);
    }
    if (c->j) {
        judge_add(c->j, 's', s->schema, s->text, s->bytes);
    }
}

/* Runs all jobs, at most `slots` of them at a time. */
static void crowd_run(crowd *c)
{
    exl2_engine_stats before, after;
    exl2_step_desc step = { .wait = true };
    uint64_t start = now_ns();
    clock_t processor = clock();
    exl2_stats(c->r->engine, &before);
    for (uint32_t begun = 0, ended = 0; ended < c->jobs;) {
        for (uint32_t i = 0; i < c->slots; i++) {
            if (slots[i].done) {
                end(c, &slots[i]);
                ended++;
            }
            if (!slots[i].busy && begun < c->jobs) {
                begin(c, &slots[i], begun++);
            }
        }
        exl2_step(c->r->engine, &step);
    }
    exl2_stats(c->r->engine, &after);
    c->processor = clock() - processor;
    c->wall_ns = now_ns() - start;
    c->tokens = after.tokens_out - before.tokens_out;
}

/* ---- values ---- */

static void values(const rig *r, uint32_t count)
{
    judge j = judge_open();
    crowd c = { .r = r, .j = &j, .schemas = schemas, .schema_count = EXL2__COUNT(schemas), .jobs = count,
                .slots = SLOTS, .max_tokens = TOKENS };
    c.sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_NEUTRAL, .temperature = 1.5f };
    crowd_run(&c);
    CHECK(c.tokens >= count);
    printf("%u values, %u at a time: %llu tokens in %.1f s (%.0f a second); grammars made in %.2f ms each\n", count,
           SLOTS, (unsigned long long)c.tokens, (double)c.wall_ns * 1e-9, (double)c.tokens * 1e9 / (double)c.wall_ns,
           (double)c.made_ns * 1e-6 / count);
    judge_close(&j);
}

/* ---- speed ---- */

/* Alternates jobs with and without a grammar; those without are as long as those with. The best round of each counts,
   because other programs can only add time. */
static void speed(const rig *r, uint32_t at_a_time, uint32_t rounds)
{
    const char *source = long_schema;
    double wall[2] = { 1e9, 1e9 }, processor[2] = { 1e9, 1e9 }, made = 0; /* ms per token; ms */
    uint32_t tokens = SPEED_TOKENS;
    for (uint32_t i = 0; i < 2 * rounds; i++) {
        uint32_t with = i % 2 == 0;
        crowd c = { .r = r, .schemas = with ? &source : NULL, .schema_count = 1, .jobs = at_a_time, .slots = at_a_time,
                    .min_tokens = with ? 0 : tokens, .max_tokens = with ? SPEED_TOKENS : tokens,
                    .sampler = { .preset = EXL2_PRESET_BALANCED } };
        crowd_run(&c);
        tokens = (uint32_t)(c.tokens / at_a_time);
        CHECK(tokens > SPEED_TOKENS / 4);
        wall[with] = fmin(wall[with], (double)c.wall_ns * 1e-6 / (double)c.tokens);
        processor[with] = fmin(processor[with], (double)c.processor * 1e3 / CLOCKS_PER_SEC / (double)c.tokens);
        made += (double)c.made_ns * 1e-6 / at_a_time / rounds;
    }
    printf("%2u at a time, %u tokens, best of %u: %.1f tokens a second, %.1f with a grammar (%.1f %% lost); %.3f ms of "
           "processor a token, %.3f (%+.1f %%); each made in %.2f ms\n",
           at_a_time, tokens, rounds, 1e3 / wall[0], 1e3 / wall[1], 100 - 100 * wall[0] / wall[1], processor[0],
           processor[1], 100 * processor[1] / processor[0] - 100, made);
    fflush(stdout);
}

static uint32_t number_of(const char *variable, uint32_t otherwise)
{
    const char *text = check_env(variable);
    return text ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

int main(void)
{
    uint32_t count = number_of("EXL2_GRAMMAR_VALUES", 100), rounds = number_of("EXL2_GRAMMAR_ROUNDS", 1);
    exl2_model_desc m = { .path = check_model(), .batch_max = SLOTS, .grammars = true };
    rig r = rig_open(NULL, &m);
    if (count) {
        values(&r, count);
    }
    if (rounds) {
        speed(&r, 1, rounds);
    }
    if (rounds > 1) {
        speed(&r, SLOTS, rounds);
    }
    rig_close(&r);
    return check_done();
}

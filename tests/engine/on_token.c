/* on_token.c: the callback that may replace each sampled token. What it gives is what joins the history: events, text,
   penalties, grammars and bans follow it, the text is the same again, in slices and with the worker; what it must not
   give ends the job. Through the public API.
   takes: a golden model with a tokenizer made for it.
   gives: exit code 0 or 1. */
#include "text_model.h"

#define PROMPT EXL2__COUNT(text_prompt)
#define NEW 60u

static text_model model; /* global, because the files hook keeps a pointer to it */
static const char *const plan[4] = { "fox", " is", "ab", "abc" };
static rig_said said, other;

/* What the callback does, and what it has seen. */
static struct asked {
    exl2_engine *engine;
    uint32_t every;      /* replaces the tokens of positions that this divides; 0 = none */
    exl2_token by;       /* -1: by another one, which depends on token and position */
    bool cancel, negative;
    uint32_t calls;
    uint32_t positions[4 * NEW];
    exl2_token sampled[4 * NEW];
} asked;

static exl2_token answer(void *user, exl2_job job, uint32_t position, exl2_token token)
{
    exl2_job_info info;
    CHECK(user == &said || user == &other);
    CHECK_INT(exl2_job_get(asked.engine, job, &info), EXL2_OK);
    if (CHECK(asked.calls < EXL2__COUNT(asked.positions))) {
        asked.positions[asked.calls] = position;
        asked.sampled[asked.calls++] = token;
    }
    if (asked.cancel) {
        CHECK_INT(exl2_job_cancel(asked.engine, job), EXL2_OK);
    }
    if (!asked.every || position % asked.every != 0) {
        return token;
    }
    return asked.negative ? -asked.by
         : asked.by >= 0 ? asked.by : (token * 7 + (exl2_token)position) % TEXT_VOCAB;
}

static exl2_job_desc job_of(const rig *r, uint32_t every, exl2_token by)
{
    exl2_job_desc d = rig_job(r, text_prompt, PROMPT, NEW, &said);
    asked = (struct asked){ .engine = r->engine, .every = every, .by = by };
    d.sampler.preset = EXL2_PRESET_NEUTRAL;
    d.sampler.seed = 3;
    d.min_tokens = NEW;
    d.on_token = answer;
    return d;
}

/* A callback that gives what it got changes nothing, and drafts are without effect. */
static void observer(const rig *r)
{
    exl2_job_desc d = job_of(r, 0, 0);
    d.on_token = NULL;
    CHECK_INT(text_generate(r, &d, &other), EXL2_OK);
    d = job_of(r, 0, 0);
    d.draft.ngram = true;
    CHECK_INT(text_generate(r, &d, &said), EXL2_OK);
    CHECK(asked.calls == NEW && said.count == NEW && said.stats.drafted == 0);
    for (uint32_t i = 0; i < NEW; i++) {
        CHECK_INT(asked.positions[i], PROMPT + i);
        CHECK(asked.sampled[i] == said.ids[i] && said.ids[i] == other.ids[i]);
        CHECK(said.logprobs[i] == other.logprobs[i]);
    }
}

/* Each token follows from the history with the replaced ones before it; the same again in slices and by the worker. */
static void replaced(const rig *r)
{
    static exl2_token history[PROMPT + NEW];
    static struct asked first;
    char whole[4096];
    size_t need;
    uint32_t changed = 0;
    exl2_session s;
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    exl2_job_desc d = job_of(r, 3, -1);
    d.session = s;
    d.sampler.repeat_penalty = 1.3f;
    CHECK_INT(text_generate(r, &d, &said), EXL2_OK);
    first = asked;
    CHECK(said.count == NEW && asked.calls == NEW && said.stats.new_tokens == NEW);
    CHECK_INT(exl2_session_tokens(r->engine, s, history, EXL2__COUNT(history), &need), EXL2_OK);
    CHECK_INT(need, PROMPT + NEW);
    CHECK(memcmp(history + PROMPT, said.ids, sizeof said.ids[0] * NEW) == 0);
    CHECK_INT(exl2_detokenize(r->engine, r->model, said.ids, NEW, EXL2_TEXT_SKIP_MARKERS, whole, sizeof whole, &need),
              EXL2_OK);
    CHECK_TEXT(said.text, whole);
    for (uint32_t i = 0; i < NEW; i++) {
        bool other_one = (PROMPT + i) % 3 == 0 && asked.sampled[i] != said.ids[i];
        CHECK(other_one ? said.logprobs[i] == 0 : said.ids[i] == first.sampled[i] && said.logprobs[i] < 0);
        changed += other_one;
    }
    CHECK(changed > 15);
    for (uint32_t i = 1; i < NEW; i += 7) {
        exl2_job_desc one = d;
        one.session.id = 0;
        one.on_token = NULL;
        one.prompt.tokens = history;
        one.prompt.token_count = PROMPT + i;
        one.max_tokens = one.min_tokens = 1;
        CHECK_INT(text_generate(r, &one, &other), EXL2_OK);
        CHECK_INT(other.ids[0], first.sampled[i]);
    }
    for (uint32_t way = 0; way < 2; way++) {
        exl2_job_desc again = job_of(r, 3, -1);
        again.sampler.repeat_penalty = 1.3f;
        again.user = &other;
        memset(&other, 0, sizeof other);
        CHECK_INT(way ? exl2_worker_start(r->engine) : EXL2_OK, EXL2_OK);
        CHECK_INT(exl2_job_start(r->engine, &again, NULL), EXL2_OK);
        while (!other.done_events) {
            exl2_step(r->engine, way ? &(exl2_step_desc){ .wait = true } : &(exl2_step_desc){ .cpu_us = 1 });
        }
        CHECK_INT(way ? exl2_worker_stop(r->engine) : EXL2_OK, EXL2_OK);
        CHECK(other.count == NEW && memcmp(other.ids, said.ids, sizeof said.ids[0] * NEW) == 0);
        CHECK(memcmp(first.sampled, asked.sampled, sizeof first.sampled) == 0);
    }
    exl2_session_close(r->engine, s);
}

static void expect_end(const rig *r, exl2_job_desc *d, const char *piece)
{
    CHECK_INT(text_generate(r, d, &said), EXL2_ERR_ARG);
    CHECK(said.done_events == 1 && said.stop == EXL2_STOP_ERROR);
    if (!CHECK(strstr(said.error, piece) != NULL)) {
        printf("  the message is \"%s\", it should hold \"%s\"\n", said.error, piece);
    }
}

static void wrong(const rig *r)
{
    const exl2_token few[] = { 30, 31, 32, 33 };
    for (uint32_t i = 0; i < 3; i++) {
        exl2_job_desc d = job_of(r, PROMPT + 4, i ? INT32_MAX : TEXT_VOCAB);
        asked.negative = i == 2;
        expect_end(r, &d, i == 0 ? "for position 10, but the vocabulary has"
                          : i == 1 ? "on_token gave token 2147483647" : "on_token gave token -2147483647");
        CHECK_INT(said.count, 4); /* what came before is delivered */
    }
    exl2_job_desc d = job_of(r, PROMPT + 2, 34);
    d.sampler.allow = few;
    d.sampler.allow_count = 4;
    expect_end(r, &d, "allow list");
    d = job_of(r, PROMPT + 2, 33);
    d.sampler.allow = few;
    d.sampler.allow_count = 4;
    CHECK_INT(text_generate(r, &d, &said), EXL2_OK);
    CHECK_INT(said.ids[2], 33);
    d = job_of(r, 1, model.byte_ids['b']);
    d.heal_prompt = true; /* the new token must begin as the healed one */
    d.prompt = (exl2_prompt){ .text = "fox fo", .flags = 0 };
    expect_end(r, &d, "healed token");
    d = job_of(r, 0, 0);
    d.max_tokens = d.min_tokens = 0;
    d.embed.pool = EXL2_EMBED_LAST;
    text_check_refused(r, exl2_job_start(r->engine, &d, NULL), EXL2_ERR_ARG, "on_token");
    d = job_of(r, 0, 0);
    asked.cancel = true;
    CHECK_INT(text_generate(r, &d, &said), EXL2_ERR_CANCELLED);
    CHECK(asked.calls == 1 && said.done_events == 1);
}

/* The grammar goes on from the given token, and rejects one that it does not allow. */
static void grammars(const rig *r)
{
    exl2_grammar_desc g = { .model = r->model, .kind = EXL2_GRAMMAR_REGEX, .source = "(x|yy){12}" };
    exl2_job_desc d = job_of(r, 2, model.byte_ids['x']);
    d.min_tokens = 0;
    CHECK_INT(exl2_grammar_make(r->engine, &g, &d.grammar), EXL2_OK);
    const exl2_bias wish = { model.byte_ids['y'], 500 };
    d.sampler.bias = &wish;
    d.sampler.bias_count = 1;
    asked.every = 1; /* "x" is given in place of each "y" that was sampled */
    CHECK_INT(text_generate(r, &d, &said), EXL2_OK);
    CHECK_TEXT(said.text, "xxxxxxxxxxxx");
    CHECK(said.stop == EXL2_STOP_GRAMMAR && asked.sampled[0] == model.byte_ids['y']);
    exl2_job_desc bad = job_of(r, 5, model.byte_ids['z']);
    bad.min_tokens = 0;
    bad.grammar = d.grammar;
    expect_end(r, &bad, "the job's grammar");
    CHECK_INT(exl2_grammar_close(r->engine, d.grammar), EXL2_OK);
}

/* A callback that says a banned text is asked again at its place, until the text is shown. */
static void bans(const rig *r)
{
    static const char *const ban[] = { "q" };
    exl2_job_desc d = job_of(r, 9, model.byte_ids['q']);
    d.max_tokens = d.min_tokens = 6;
    d.ban_strings = ban;
    d.ban_string_count = 1;
    CHECK_INT(text_generate(r, &d, &said), EXL2_OK);
    CHECK(said.count == 6 && said.ids[3] == model.byte_ids['q'] && strchr(said.text, 'q'));
    CHECK(said.stats.bans_shown == 1 && said.stats.bans_avoided == 64);
    uint32_t there = 0;
    for (uint32_t i = 0; i < asked.calls; i++) {
        there += asked.positions[i] == 9;
    }
    CHECK_INT(there, 65);
}

int main(void)
{
    text_find_plan(&model, EXL2__COUNT(plan));
    text_write(&model, plan, EXL2__COUNT(plan), "{'eos_token':'</s>'}");
    rig r = text_load(&model);
    observer(&r);
    replaced(&r);
    wrong(&r);
    grammars(&r);
    bans(&r);
    rig_close(&r);
    return check_done();
}

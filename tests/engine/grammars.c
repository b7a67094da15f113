/* grammars.c: jobs whose text must fit a grammar, through the public API on a tiny model: every kind of grammar, ends,
   stop strings and stop tokens, token limits, many jobs at once, histories that change, masks of the application,
   rejected calls. */
#define _GNU_SOURCE /* mkdtemp */
#include "text_model.h"
#include "private/masks.h"
#include "../grammar_judge.h"

static text_model model; /* global, because the files hook keeps a pointer to it */
static rig_said said;

/* 16 ids whose bytes cross the boundaries of JSON's punctuation. */
static const char *const plan[16] = { "{\"", "\":", "\": \"", "\",\"", "\"}", "true", "null", "]}",
                                      "\xC3", "an", "\\\"", ", \"", "{}", "-1", "e", "\\u00e" };

static exl2_grammar make(const rig *r, exl2_grammar_kind kind, const char *source)
{
    exl2_grammar g = { 0 };
    exl2_grammar_desc d = { .model = r->model, .kind = kind, .source = source };
    exl2_result result = exl2_grammar_make(r->engine, &d, &g);
    if (result < 0) {
        rig_fail(r->engine, source, result);
    }
    return g;
}

/* A job with a high temperature. */
static exl2_job_desc job_of(const rig *r, exl2_grammar g, uint64_t seed, uint32_t max_tokens, rig_said *to)
{
    exl2_job_desc d = rig_job(r, text_prompt, EXL2__COUNT(text_prompt), max_tokens, to);
    memset(to, 0, sizeof *to);
    d.sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_NEUTRAL, .temperature = 1.5f, .seed = seed };
    d.grammar = g;
    return d;
}

static void run(const rig *r, const exl2_job_desc *d)
{
    rig_run(r, d);
    ((rig_said *)d->user)->text[((rig_said *)d->user)->bytes] = 0;
}

/* The fewest tokens that a text of the grammar needs, read from the message of a rejected job. */
static uint32_t least_of(const rig *r, exl2_grammar g)
{
    static rig_said none;
    exl2_job_desc d = job_of(r, g, 1, 1, &none);
    exl2_job job;
    exl2_error error;
    if (exl2_job_start(r->engine, &d, &job) == EXL2_OK) {
        exl2_job_cancel(r->engine, job);
        rig_drain(r, 0);
        return 1;
    }
    exl2_last_error(r->engine, &error);
    CHECK_INT(error.code, EXL2_ERR_BUDGET);
    const char *number = strstr(error.text, "at least ");
    return CHECK(number != NULL) ? (uint32_t)strtoul(number + 9, NULL, 10) : 1;
}

/* ---- every kind ---- */

static const struct { exl2_grammar_kind kind; char letter; const char *source; } sources[] = {
    { EXL2_GRAMMAR_JSON, 's', "{}" },
    { EXL2_GRAMMAR_JSON_SCHEMA, 's',
      "{\"type\":\"object\",\"properties\":{\"mood\":{\"enum\":[\"calm\",\"angry\"]},\"say\":{\"type\":\"string\","
      "\"maxLength\":12},\"act\":{\"type\":[\"string\",\"null\"],\"enum\":[\"none\",\"give_key\",null]},\"trust\":{"
      "\"type\":\"integer\",\"minimum\":-2,\"maximum\":2},\"to\":{\"type\":\"string\"}},\"required\":[\"mood\",\"say\","
      "\"trust\"]}" },
    { EXL2_GRAMMAR_JSON_SCHEMA, 's', "{\"type\":\"number\",\"minimum\":-1.5,\"exclusiveMaximum\":99.95}" },
    { EXL2_GRAMMAR_JSON_SCHEMA, 's', "{\"type\":\"string\",\"pattern\":\"^[a-f]{2,5}(-[0-9]+)?$\"}" },
    { EXL2_GRAMMAR_JSON_SCHEMA, 's', "{\"type\":\"string\",\"minLength\":3,\"maxLength\":5}" },
    { EXL2_GRAMMAR_JSON_SCHEMA, 's',
      "{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":2,\"maxItems\":4}" },
    { EXL2_GRAMMAR_JSON_SCHEMA, 's',
      "{\"$defs\":{\"tree\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"kids\":{\"type\":"
      "\"array\",\"items\":{\"$ref\":\"#/$defs/tree\"}}},\"required\":[\"v\"]}},\"$ref\":\"#/$defs/tree\"}" },
    { EXL2_GRAMMAR_JSON_SCHEMA, 's',
      "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"},\"x\":{\"type\":\"number\"}},"
      "\"required\":[\"k\",\"x\"]},{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"b\"}},\"required\":[\"k\"],"
      "\"additionalProperties\":{\"type\":\"boolean\"}},{\"type\":\"string\",\"maxLength\":4}]}" },
    { EXL2_GRAMMAR_JSON_SCHEMA, 's',
      "{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},"
      "{\"properties\":{\"a\":{\"minimum\":3,\"maximum\":100},\"b\":{\"type\":[\"null\",\"boolean\"]}},"
      "\"required\":[\"b\"]}]}" },
    { EXL2_GRAMMAR_JSON_SCHEMA, 's', "{\"type\":\"string\",\"format\":\"date-time\"}" },
    { EXL2_GRAMMAR_JSON_SCHEMA, 's', "{\"type\":\"string\",\"format\":\"uuid\"}" },
    { EXL2_GRAMMAR_JSON_SCHEMA, 's', "{\"type\":\"string\",\"format\":\"email\"}" },
    { EXL2_GRAMMAR_REGEX, 'r', "(foo|ba+r)[0-9]{2,3}(\\.\\d+)?|\\w+@\\w+\\.(com|org)|x{0,50}y" },
    { EXL2_GRAMMAR_REGEX, 'r', "caf\xC3\xA9 .{3,9}" },
    { EXL2_GRAMMAR_EBNF, 0, "root ::= sum \"=\" sum\nsum ::= num (\"+\" num)*\nnum ::= [1-9] [0-9]? # small\n" },
    { EXL2_GRAMMAR_CHOICES, 0, "the key\nthe crown\nnothing at all\n" },
};

static bool is_sum(const char *t)
{
    size_t bytes = strspn(t, "0123456789+=");
    return !t[bytes] && strchr(t, '=') && strchr(t, '=') == strrchr(t, '=') && !strstr(t, "++") && !strchr("+=0", t[0])
        && !strchr("+=", t[bytes - 1]);
}

static bool is_choice(const char *t)
{
    return !strcmp(t, "the key") || !strcmp(t, "the crown") || !strcmp(t, "nothing at all");
}

/* Every token limit from the shortest possible text on: each text ends within the limit and is valid. */
static void every_kind(const rig *r, judge *j)
{
    for (size_t i = 0; i < EXL2__COUNT(sources); i++) {
        exl2_grammar g = make(r, sources[i].kind, sources[i].source);
        uint32_t least = least_of(r, g);
        for (uint32_t k = 0; k < 24; k++) {
            uint32_t max_tokens = least + k * k / 8;
            exl2_job_desc d = job_of(r, g, k + 1, max_tokens, &said);
            run(r, &d);
            CHECK_INT(said.result, EXL2_OK);
            CHECK(said.count <= max_tokens && said.done_events == 1);
            CHECK(said.stop == EXL2_STOP_GRAMMAR || said.stop == EXL2_STOP_EOS || said.stop == EXL2_STOP_LENGTH);
            CHECK(exl2__unicode_valid(said.text, said.bytes));
            bool good = sources[i].kind == EXL2_GRAMMAR_EBNF ? is_sum(said.text)
                      : sources[i].kind == EXL2_GRAMMAR_CHOICES ? is_choice(said.text) : true;
            if (!CHECK(good)) {
                printf("  \"%s\"\n", said.text);
            }
            if (sources[i].letter) {
                judge_add(j, sources[i].letter, sources[i].source, said.text, said.bytes);
            }
        }
        CHECK_INT(exl2_grammar_close(r->engine, g), EXL2_OK);
    }
}

/* ---- tokens that a job never samples ---- */

/* Bans the plan's tokens of several bytes, by `ban`, by a bias or by an allow list of the bytes. */
static void ban_plan(exl2_job_desc *d, uint32_t way)
{
    static exl2_bias biases[EXL2__COUNT(plan)];
    static exl2_token ids[EXL2__COUNT(plan)], bytes[256];
    uint32_t count = 0;
    for (uint32_t i = 0; i < EXL2__COUNT(plan); i++) {
        ids[count] = model.planned[i];
        biases[count] = (exl2_bias){ model.planned[i], -INFINITY };
        count += strlen(plan[i]) > 1;
    }
    for (uint32_t i = 0; i < 256; i++) {
        bytes[i] = model.byte_ids[i];
    }
    d->sampler.ban = ids;
    d->sampler.ban_count = way == 0 ? count : 0;
    d->sampler.bias = biases;
    d->sampler.bias_count = way == 1 ? count : 0;
    d->sampler.allow = bytes;
    d->sampler.allow_count = way == 2 ? 256 : 0;
}

/* Every text ends within its limit, though its shortest end without bans needs fewer tokens. Jobs with and without bans
   use the grammar side by side. */
static void banned(const rig *r, judge *j)
{
    static rig_said other;
    uint32_t longer = 0;
    exl2_engine_stats before, after;
    exl2_stats(r->engine, &before);
    for (size_t i = 0; i < EXL2__COUNT(sources); i++) {
        exl2_grammar g = make(r, sources[i].kind, sources[i].source);
        uint32_t free_least = least_of(r, g), least = free_least;
        for (uint32_t k = 0; k < 24; k++) {
            exl2_job_desc beside = job_of(r, g, k + 1, free_least, &other);
            exl2_job_desc d = job_of(r, g, k + 1, least + k / 3, &said);
            exl2_error error;
            ban_plan(&d, k % 3);
            while (exl2_job_start(r->engine, &d, NULL) < 0 && d.max_tokens < 200) { /* the least is higher */
                exl2_last_error(r->engine, &error);
                CHECK_INT(error.code, EXL2_ERR_BUDGET);
                CHECK(strstr(error.text, "the shortest text of the grammar needs at least") && k == 0);
                least = ++d.max_tokens;
            }
            CHECK_INT(exl2_job_start(r->engine, &beside, NULL), EXL2_OK);
            rig_drain(r, 0);
            said.text[said.bytes] = other.text[other.bytes] = 0;
            CHECK_INT(said.result, EXL2_OK);
            CHECK_INT(other.result, EXL2_OK);
            CHECK(said.count <= d.max_tokens && other.count <= free_least);
            for (uint32_t n = 0; n < said.count; n++) {
                for (uint32_t b = 0; b < EXL2__COUNT(plan); b++) {
                    CHECK(said.ids[n] != model.planned[b] || strlen(plan[b]) == 1);
                }
            }
            if (sources[i].letter) {
                judge_add(j, sources[i].letter, sources[i].source, said.text, said.bytes);
            }
        }
        longer += least > free_least;
        CHECK_INT(exl2_grammar_close(r->engine, g), EXL2_OK);
    }
    CHECK(longer >= 4);
    exl2_stats(r->engine, &after);
    CHECK_INT(after.host_bytes, before.host_bytes);
}

/* Without memory for the copy of the grammar the job does not start, and nothing of it is kept. */
static void no_memory(const rig *r)
{
    exl2_grammar g = make(r, EXL2_GRAMMAR_JSON_SCHEMA, sources[1].source);
    exl2_job_desc d = job_of(r, g, 5, 200, &said);
    uint64_t held = r->engine->ctx.host_bytes, cap = r->engine->ctx.host_bytes_max;
    exl2_result result = EXL2_ERR_BUDGET;
    uint32_t failed = 0;
    ban_plan(&d, 0);
    for (uint64_t room = 64; result < 0 && CHECK(room < 64u << 20); room *= 2) {
        r->engine->ctx.host_bytes_max = held + room;
        result = exl2_job_start(r->engine, &d, NULL);
        CHECK(result == EXL2_OK || (result == EXL2_ERR_BUDGET && r->engine->ctx.host_bytes == held));
        failed += result < 0;
    }
    r->engine->ctx.host_bytes_max = cap;
    CHECK(failed > 8); /* the copy, its tokens, what computes them, states and masks */
    rig_drain(r, 0);
    CHECK_INT(said.result, EXL2_OK);
    CHECK_INT(r->engine->ctx.host_bytes, held);
    CHECK_INT(exl2_grammar_close(r->engine, g), EXL2_OK);
}

/* What only a banned token could end is not begun, and a grammar without any other text is rejected. */
static void no_end(const rig *r)
{
    exl2_grammar g = make(r, EXL2_GRAMMAR_CHOICES, "a key\na crown");
    exl2_token never[] = { model.byte_ids['k'], model.byte_ids['w'], model.marker[1] };
    for (uint32_t k = 0; k < 12; k++) {
        exl2_job_desc d = job_of(r, g, k + 1, 40, &said);
        d.sampler.ban = &never[k % 2];
        d.sampler.ban_count = 1;
        run(r, &d);
        CHECK_INT(said.result, EXL2_OK);
        CHECK_TEXT(said.text, k % 2 ? "a key" : "a crown");
    }
    exl2_job_desc d = job_of(r, g, 1, 40, &said);
    exl2_error error;
    d.sampler.ban = never;
    d.sampler.ban_count = 2;
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_ERR_ARG);
    exl2_last_error(r->engine, &error);
    CHECK(strstr(error.text, "exclude tokens that every text of its grammar needs") != NULL);
    CHECK_INT(exl2_grammar_close(r->engine, g), EXL2_OK); /* no job holds it */
}

/* ---- ends ---- */

static void ends(const rig *r)
{
    exl2_bias eos = { 2, 1000 };
    exl2_token stops[] = { model.byte_ids['b'] };
    exl2_grammar g = make(r, EXL2_GRAMMAR_REGEX, "(ab)+"), whole = make(r, EXL2_GRAMMAR_CHOICES, "abcabd");
    exl2_job_desc d = job_of(r, g, 3, 50, &said);
    d.sampler.bias = &eos; /* likely from the first token on, but allowed only where the text may end */
    d.sampler.bias_count = 1;
    run(r, &d);
    CHECK_TEXT(said.text, "ab");
    CHECK_INT(said.stop, EXL2_STOP_EOS);
    CHECK_INT(said.ids[2], 2);
    d.grammar = whole;
    run(r, &d);
    CHECK_TEXT(said.text + 2, "abcabd"); /* appended after the first job's text */
    CHECK_INT(said.stop, EXL2_STOP_GRAMMAR);
    CHECK_INT(said.count, 3 + 6);
    /* a stop token that the text also needs stops the job only where the text may end */
    d = job_of(r, whole, 3, 50, &said);
    d.stop_tokens = stops;
    d.stop_token_count = 1;
    run(r, &d);
    CHECK_TEXT(said.text, "abcabd");
    d.grammar = g;
    memset(&said, 0, sizeof said);
    run(r, &d);
    CHECK_TEXT(said.text, "ab");
    CHECK_INT(said.stop, EXL2_STOP_TOKEN);
    exl2_bias never = { model.byte_ids['b'], -INFINITY };
    d = job_of(r, g, 3, 50, &said);
    d.sampler.bias = &never;
    d.sampler.bias_count = 1;
    CHECK_INT(exl2_generate(r->engine, &d), EXL2_ERR_ARG);
    text_check_refused(r, EXL2_ERR_ARG, EXL2_ERR_ARG, "exclude tokens that every text of its grammar needs");
    exl2_grammar_close(r->engine, g);
    exl2_grammar_close(r->engine, whole);
    g = make(r, EXL2_GRAMMAR_REGEX, ""); /* the text is complete before it begins */
    d = job_of(r, g, 3, 50, &said);
    run(r, &d);
    CHECK(said.count == 0 && said.stop == EXL2_STOP_GRAMMAR && said.done_events == 1);
    exl2_grammar_close(r->engine, g);
    g = make(r, EXL2_GRAMMAR_REGEX, "a{9}"); /* stop strings work independently of grammars */
    const char *const strings[] = { "aaaa" };
    d = job_of(r, g, 3, 50, &said);
    d.stop_strings = strings;
    d.stop_string_count = 1;
    run(r, &d);
    CHECK(said.bytes == 0 && said.stop == EXL2_STOP_STRING);
    CHECK_INT(exl2_job_start(r->engine, (d.max_tokens = 8, &d), NULL), EXL2_ERR_BUDGET);
    text_check_refused(r, EXL2_ERR_BUDGET, EXL2_ERR_BUDGET, "at least 9 tokens, but max_tokens is 8");
    d.prefill_only = true; /* generates nothing */
    CHECK_INT(exl2_generate(r->engine, &d), EXL2_OK);
    exl2_grammar_close(r->engine, g);
}

/* ---- many at once ---- */

#define SPEAKERS 6

/* Jobs with the same grammar, with different grammars and with none share a batch, in small steps. Each gives the text
   that it gives alone. */
static void side_by_side(const rig *r)
{
    static rig_said alone[SPEAKERS], together[SPEAKERS];
    exl2_grammar a = make(r, EXL2_GRAMMAR_JSON_SCHEMA, sources[1].source), b = make(r, EXL2_GRAMMAR_JSON, NULL);
    exl2_grammar of[SPEAKERS] = { a, b, a, { 0 }, a, b };
    for (uint32_t slices = 0; slices < 2; slices++) {
        for (uint32_t i = 0; i < SPEAKERS; i++) {
            exl2_job_desc d = job_of(r, of[i], i + 5, 60 + 10 * i, &alone[i]);
            run(r, &d);
        }
        for (uint32_t i = 0; i < SPEAKERS; i++) {
            exl2_job_desc d = job_of(r, of[i], i + 5, 60 + 10 * i, &together[i]);
            CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
        }
        rig_drain(r, slices ? 20 : 0);
        for (uint32_t i = 0; i < SPEAKERS; i++) {
            together[i].text[together[i].bytes] = 0;
            CHECK_TEXT(together[i].text, alone[i].text);
            CHECK(together[i].stop == alone[i].stop && together[i].done_events == 1);
        }
    }
    exl2_grammar_close(r->engine, a);
    exl2_grammar_close(r->engine, b);
}

/* A closed grammar serves its jobs until they end. A block so small that states are evicted all the time gives the same
   text. */
static void closed_and_small(const rig *r)
{
    static rig_said first, second;
    exl2_grammar small, g = make(r, EXL2_GRAMMAR_JSON_SCHEMA, sources[6].source);
    exl2_grammar_desc desc = { .model = r->model, .kind = EXL2_GRAMMAR_JSON_SCHEMA, .source = sources[6].source };
    exl2_job_desc d = job_of(r, g, 9, 200, &first);
    desc.source_bytes = strlen(desc.source);
    desc.cache_bytes = 1;
    CHECK_INT(exl2_grammar_make(r->engine, &desc, &small), EXL2_OK);
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    CHECK_INT(exl2_grammar_close(r->engine, g), EXL2_OK);
    CHECK_INT(exl2_grammar_close(r->engine, g), EXL2_ERR_STALE);
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_ERR_STALE);
    text_check_refused(r, EXL2_ERR_STALE, EXL2_ERR_STALE, "grammar handle");
    rig_drain(r, 0);
    d = job_of(r, small, 9, 200, &second);
    run(r, &d);
    first.text[first.bytes] = 0;
    CHECK(first.done_events == 1 && first.bytes > 0);
    CHECK_TEXT(second.text, first.text);
    exl2_grammar_close(r->engine, small);
}

/* ---- histories ---- */

/* A cut job, a fork, a rewind: the grammar starts anew with each job, whatever the session held before. */
static void histories(const rig *r)
{
    static rig_said first, again;
    exl2_session s, fork;
    exl2_job job;
    exl2_grammar g = make(r, EXL2_GRAMMAR_JSON_SCHEMA, sources[1].source);
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    exl2_job_desc d = job_of(r, g, 4, 80, &first);
    d.model.id = 0;
    d.session = s;
    run(r, &d);
    CHECK_INT(exl2_session_fork(r->engine, s, &fork), EXL2_OK);
    CHECK_INT(exl2_session_rewind(r->engine, fork, 0), EXL2_OK);
    d = job_of(r, g, 4, 80, &again);
    d.model.id = 0;
    d.session = fork;
    d.sampler.seed = 77;
    CHECK_INT(exl2_job_start(r->engine, &d, &job), EXL2_OK);
    for (int i = 0; i < 8; i++) {
        exl2_step(r->engine, NULL);
    }
    exl2_job_cancel(r->engine, job);
    rig_drain(r, 0);
    CHECK_INT(again.stop, EXL2_STOP_CANCELLED);
    CHECK_INT(exl2_session_rewind(r->engine, fork, 0), EXL2_OK);
    d = job_of(r, g, 4, 80, &again);
    d.model.id = 0;
    d.session = fork;
    run(r, &d);
    CHECK_TEXT(again.text, first.text);
    exl2_session_close(r->engine, s);
    exl2_session_close(r->engine, fork);
    exl2_grammar_close(r->engine, g);
}

/* A draft model may have fewer tokens than the job's model: its mask is the beginning of the other, and no word after
   it is written. */
static void smaller_vocabulary(exl2_engine *e, exl2__job *job)
{
    static exl2__model small;
    static uint32_t all[TEXT_VOCAB / 32], part[TEXT_VOCAB / 32];
    static const exl2_token allowed[] = { 'b', 'c', 101, 111, 250 };
    const exl2__job_lists lists = job->lists;
    exl2__model *m = &e->models[job->model];
    bool over;
    small = *m;
    small.plan.shape.vocab = 101;
    for (uint32_t listed = 0; listed < 2; listed++) {
        job->lists.allow = allowed;
        job->lists.allow_count = listed ? EXL2__COUNT(allowed) : 0;
        memset(part, 0xFF, sizeof part);
        CHECK_INT(exl2__masks_fill_bits(e, m, job, all, &over), EXL2_OK);
        CHECK_INT(exl2__masks_fill_bits(e, &small, job, part, &over), EXL2_OK);
        CHECK(memcmp(part, all, 12) == 0 && part[3] == (all[3] & 0x1F) && part[4] == UINT32_MAX);
    }
    job->lists = lists;
}

/* Inside the engine: a history that was cut and then continued differently. */
static void cut_back(const rig *r)
{
    exl2_grammar g = make(r, EXL2_GRAMMAR_REGEX, "(ab|cd){20}");
    exl2_job_desc d = job_of(r, g, 4, 80, &said);
    exl2_job handle;
    CHECK_INT(exl2_job_start(r->engine, &d, &handle), EXL2_OK);
    for (int i = 0; i < 12; i++) {
        exl2_step(r->engine, &(exl2_step_desc){ .wait = true });
    }
    exl2__job *job = exl2__objects_job(r->engine, handle);
    exl2__table *t = job->sequence.table;
    static uint32_t one[TEXT_VOCAB / 32], other[TEXT_VOCAB / 32];
    uint32_t before = t->tokens, states = 0;
    bool over;
    CHECK(before > job->sequence.prompt_end + 5);
    for (uint32_t cut = job->sequence.prompt_end; cut <= before; cut++) { /* cut, then continue */
        t->tokens = cut;
        CHECK_INT(exl2__grammars_mask(r->engine, job, one, TEXT_VOCAB, &over), EXL2_OK);
        t->tokens = before - (cut & 1);
        CHECK_INT(exl2__grammars_mask(r->engine, job, other, TEXT_VOCAB, &over), EXL2_OK);
        t->tokens = cut;
        CHECK_INT(exl2__grammars_mask(r->engine, job, other, TEXT_VOCAB, &over), EXL2_OK);
        CHECK(memcmp(one, other, sizeof one) == 0);
        exl2_token next = exl2__table_token(t, cut < before ? cut : cut - 1);
        states += cut < before && one[next / 32] >> next % 32 & 1;
        smaller_vocabulary(r->engine, job);
    }
    CHECK_INT(states, before - job->sequence.prompt_end);
    t->tokens = before;
    rig_drain(r, 0);
    CHECK(said.done_events == 1 && said.bytes == 40);
    exl2_grammar_close(r->engine, g);
}

/* ---- the application's own masks ---- */

typedef struct own_mask {
    const rig *r;
    const char *text;
    exl2_grammar itself;
    uint32_t calls;
} own_mask;

static bool allow_text(void *user, exl2_job job, const exl2_token *out, uint32_t n, uint32_t *bits, uint32_t words)
{
    own_mask *own = (own_mask *)user;
    exl2_step_desc step = { 0 };
    CHECK_INT(words, TEXT_VOCAB / 32);
    CHECK(job.id != 0);
    CHECK_INT(exl2_step(own->r->engine, &step), EXL2_ERR_STATE);
    for (uint32_t i = 0; i < n; i++) {
        CHECK_INT(out[i], model.byte_ids[(uint8_t)own->text[i]]);
    }
    for (uint32_t i = 0; i < words; i++) {
        CHECK_INT(bits[i], 0);
    }
    if (own->calls++ == 2) {
        CHECK_INT(exl2_grammar_close(own->r->engine, own->itself), EXL2_OK);
    }
    if (!own->text[n]) {
        return false;
    }
    if (own->text[n] != '!') {
        exl2_token id = model.byte_ids[(uint8_t)own->text[n]];
        bits[id / 32] |= 1u << id % 32;
    }
    return true;
}

static void custom(const rig *r)
{
    own_mask own = { r, "hello", { 0 }, 0 };
    exl2_grammar_desc d = { .model = r->model, .kind = EXL2_GRAMMAR_CUSTOM, .allow = allow_text, .user = &own };
    CHECK_INT(exl2_grammar_make(r->engine, &d, &own.itself), EXL2_OK);
    exl2_job_desc jd = job_of(r, own.itself, 1, 50, &said);
    run(r, &jd);
    CHECK_TEXT(said.text, "hello");
    CHECK(said.stop == EXL2_STOP_GRAMMAR && said.done_events == 1 && own.calls == 6);
    CHECK_INT(exl2_job_start(r->engine, &jd, NULL), EXL2_ERR_STALE);
    own = (own_mask){ r, "caf\xC3", { 0 }, 10 }; /* ends in the middle of a code point */
    CHECK_INT(exl2_grammar_make(r->engine, &d, &own.itself), EXL2_OK);
    jd = job_of(r, own.itself, 1, 50, &said);
    run(r, &jd);
    CHECK_TEXT(said.text, "caf\xEF\xBF\xBD");
    own.text = "he!"; /* nothing is allowed */
    CHECK_INT(exl2_generate(r->engine, &jd), EXL2_ERR_ARG);
    own.text = ""; /* complete at once */
    memset(&said, 0, sizeof said);
    run(r, &jd);
    CHECK(said.count == 0 && said.stop == EXL2_STOP_GRAMMAR);
    exl2_grammar_close(r->engine, own.itself);
}

/* ---- rejected calls, memory ---- */

static void refused(const rig *r, exl2_grammar_desc d, exl2_result wanted, const char *piece)
{
    exl2_grammar g = { 77 };
    exl2_engine_stats before, after;
    exl2_stats(r->engine, &before);
    text_check_refused(r, exl2_grammar_make(r->engine, &d, &g), wanted, piece);
    CHECK_INT(g.id, 77);
    exl2_stats(r->engine, &after);
    CHECK_INT(after.host_bytes, before.host_bytes);
}

static void refusals(rig *r)
{
    exl2_grammar_desc good = { .model = r->model, .kind = EXL2_GRAMMAR_REGEX, .source = "a+" }, d = good;
    exl2_grammar g;
    exl2_model none = { 12345 };
    CHECK_INT(exl2_grammar_make(NULL, &good, &g), EXL2_ERR_ARG);
    CHECK_INT(exl2_grammar_make(r->engine, NULL, &g), EXL2_ERR_ARG);
    CHECK_INT(exl2_grammar_make(r->engine, &good, NULL), EXL2_ERR_ARG);
    CHECK_INT(exl2_grammar_close(NULL, g), EXL2_ERR_ARG);
    CHECK_INT(exl2_grammar_close(r->engine, (exl2_grammar){ 0 }), EXL2_ERR_STALE);
    d._end_canary = 1;
    refused(r, d, EXL2_ERR_ARG, "zeroed");
    d = good;
    d.model = none;
    refused(r, d, EXL2_ERR_STALE, "model");
    d.kind = EXL2_GRAMMAR_CUSTOM;
    refused(r, d, EXL2_ERR_ARG, "allow");
    d.allow = allow_text;
    refused(r, d, EXL2_ERR_STALE, "model");
    d = good;
    d.kind = (exl2_grammar_kind)6;
    refused(r, d, EXL2_ERR_ARG, "kind");
    d = good;
    d.source = NULL;
    refused(r, d, EXL2_ERR_ARG, "source");
    d.source = "a\n(\xC3\xA9";
    refused(r, d, EXL2_ERR_FORMAT, "regex line 2, column 3: ')' is missing");
    d.kind = EXL2_GRAMMAR_JSON_SCHEMA;
    d.source = "{\"type\":\"object\",\n  \"contains\":{}}";
    refused(r, d, EXL2_ERR_UNSUPPORTED,
            "schema line 2, column 4, #/contains: the keyword is not supported; found: contains");
    d.source = "{\"type\":\"null\",\n  \"x-unit\":\"m\"}"; /* ignored, unless the grammar is strict */
    d.strict = true;
    refused(r, d, EXL2_ERR_UNSUPPORTED,
            "schema line 2, column 4, #/x-unit: the keyword is not supported; found: x-unit");
    d.strict = false;
    CHECK_INT(exl2_grammar_make(r->engine, &d, &g), EXL2_OK);
    CHECK_INT(exl2_grammar_close(r->engine, g), EXL2_OK);
    d.source = "{\"type\":\"obj";
    refused(r, d, EXL2_ERR_FORMAT, "line 1");
    d.kind = EXL2_GRAMMAR_CHOICES;
    d.source = "good\n\xFF\n";
    refused(r, d, EXL2_ERR_FORMAT, "UTF-8");
    exl2_grammar all[300];
    uint32_t count = 0;
    good.cache_bytes = 1;
    while (count < 300 && exl2_grammar_make(r->engine, &good, &all[count]) == EXL2_OK) {
        count++;
    }
    CHECK_INT(count, 256);
    text_check_refused(r, exl2_grammar_make(r->engine, &good, &g), EXL2_ERR_BUDGET, "max_sessions");
    while (count > 100) { /* closing the model closes the remaining ones */
        CHECK_INT(exl2_grammar_close(r->engine, all[--count]), EXL2_OK);
    }
}

/* A grammar belongs to one model. */
static void other_models(const rig *r)
{
    exl2_model_desc desc = text_folder();
    exl2_model second;
    exl2_grammar g = make(r, EXL2_GRAMMAR_REGEX, "a");
    CHECK_INT(exl2_model_load(r->engine, &desc, &second), EXL2_OK);
    exl2_job_desc d = job_of(r, g, 1, 5, &said);
    d.model = second;
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_ERR_ARG);
    text_check_refused(r, EXL2_ERR_ARG, EXL2_ERR_ARG, "another model");
    CHECK_INT(exl2_model_close(r->engine, second), EXL2_OK);
    exl2_grammar_close(r->engine, g);
}

/* Memory use is as measured: the mask table is built while the model loads, so the first grammar allocates nothing more
   for it. */
static void planned(void)
{
    exl2_engine_desc engine = text_engine(&model);
    exl2_model_desc desc = text_folder();
    exl2_model_info with, without;
    exl2_engine_stats before, after;
    exl2_engine *e;
    CHECK_INT(exl2_open(&engine, &e), EXL2_OK);
    exl2_stats(e, &before);
    CHECK_INT(exl2_model_measure(e, &desc, &without), EXL2_OK);
    desc.grammars = true;
    CHECK_INT(exl2_model_measure(e, &desc, &with), EXL2_OK);
    CHECK(with.scratch_bytes > without.scratch_bytes);
    rig r = { e, { 0 } };
    CHECK_INT(exl2_model_load(e, &desc, &r.model), EXL2_OK);
    exl2_stats(e, &after);
    CHECK_INT(after.host_peak - before.host_bytes, with.weight_bytes + with.cache_bytes + with.scratch_bytes);
    uint64_t allocations = after.allocations;
    exl2_grammar g = make(&r, EXL2_GRAMMAR_CHOICES, "a");
    exl2_grammar_close(e, g);
    exl2_stats(e, &before);
    CHECK_INT(before.host_bytes, after.host_bytes);
    CHECK(before.allocations > allocations);
    exl2_close(e);
}

int main(void)
{
    judge j = judge_open();
    text_find_plan(&model, EXL2__COUNT(plan));
    text_write(&model, plan, EXL2__COUNT(plan), TEXT_CHAT_CONFIG);
    rig r = text_load(&model);
    every_kind(&r, &j);
    banned(&r, &j);
    judge_close(&j);
    no_end(&r);
    no_memory(&r);
    ends(&r);
    closed_and_small(&r);
    histories(&r);
    cut_back(&r);
    custom(&r);
    other_models(&r);
    refusals(&r);
    /* a GPU has memory of its own, and prompts prefilled together use another kernel */
    if (RIG_BACKEND == EXL2_BACKEND_CPU) {
        side_by_side(&r);
        planned();
    }
    rig_close(&r);
    return check_done();
}

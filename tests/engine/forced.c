/* forced.c: tokens that a grammar forces. A job that samples every token (one_by_one) and one that does not give the
   same ids, text and end, for every kind of grammar, with stops, bans and limits, alone and in a batch, in whole passes
   and in small steps. Forced tokens cost no pass. */
#define _GNU_SOURCE /* mkdtemp */
#include "text_model.h"

static text_model model; /* global, because the files hook keeps a pointer to it */

static const char *const plan[20] = { "{\"", "\":", "\": \"", "\",\"", "\"}", "true", "null", "]}", "\xC3", "an",
                                      "\\\"", ", \"", "{}", "-1", "say", "mood", "the", "the ", "ab", "abab" };

static const struct { exl2_grammar_kind kind; const char *source; } sources[] = {
    { EXL2_GRAMMAR_JSON, NULL },
    { EXL2_GRAMMAR_JSON_SCHEMA,
      "{\"type\":\"object\",\"properties\":{\"mood\":{\"enum\":[\"calm\",\"angry\"]},\"say\":{\"type\":\"string\","
      "\"maxLength\":12},\"act\":{\"enum\":[\"none\",\"give_key\",null]},\"trust\":{\"type\":\"integer\","
      "\"minimum\":-2,\"maximum\":2},\"to\":{\"type\":\"string\"}},\"required\":[\"mood\",\"say\",\"act\","
      "\"trust\"]}" },
    { EXL2_GRAMMAR_JSON_SCHEMA, "{\"const\":{\"a long name\":[\"caf\\u00e9\",true,null,{\"n\":-1.25}]}}" },
    { EXL2_GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":2,\"maxItems\":4}" },
    { EXL2_GRAMMAR_JSON_SCHEMA,
      "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"value\":{\"type\":\"null\"},\"kids\":{\"type\":"
      "\"array\",\"items\":{\"$ref\":\"#/$defs/n\"},\"maxItems\":2}},\"required\":[\"value\",\"kids\"]}},\"$ref\":"
      "\"#/$defs/n\"}" },
    { EXL2_GRAMMAR_REGEX, "(ab|cd){20}" },
    { EXL2_GRAMMAR_REGEX, "(the end|then|an){3,6}(\\.|, and so on)?" },
    { EXL2_GRAMMAR_REGEX, "a{9}b*" },
    { EXL2_GRAMMAR_EBNF,
      "root ::= word (\" and then the \" word){1,3}\nword ::= \"key\" | \"keyhole\" | [a-c]+ \"!\"" },
    { EXL2_GRAMMAR_CHOICES, "the key\nthe crown\nthe crown of the king\nnothing at all\n" },
    { EXL2_GRAMMAR_CHOICES, "only this sentence can be said, and it is longer than sixteen tokens are" },
};

#define SOURCES EXL2__COUNT(sources)
#define SETTINGS 9u
#define ON_GPU (RIG_BACKEND == EXL2_BACKEND_CUDA ? 1u : 0u)
#define ROWS_MAX (ON_GPU ? 8u : 16u) /* of a job in a pass */

static exl2_grammar make(const rig *r, uint32_t source)
{
    exl2_grammar g = { 0 };
    exl2_grammar_desc d = { .model = r->model, .kind = sources[source].kind, .source = sources[source].source };
    exl2_result result = exl2_grammar_make(r->engine, &d, &g);
    if (result < 0) {
        rig_fail(r->engine, sources[source].source, result);
    }
    return g;
}

/* A job with one of several settings, all of which may meet forced tokens. */
static exl2_job_desc job_of(const rig *r, exl2_grammar g, uint32_t setting, uint64_t seed, rig_said *to)
{
    static const char *const stops[] = { "say", "n t", "ab" };
    static exl2_bias biases[2];
    static exl2_token banned[3], stop_tokens[2], allowed[230];
    exl2_job_desc d = rig_job(r, text_prompt, EXL2__COUNT(text_prompt), 70, to);
    memset(to, 0, sizeof *to);
    d.sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_NEUTRAL, .temperature = 0.2f + 0.7f * (float)(seed % 3),
                                     .seed = seed };
    d.grammar = g;
    biases[0] = (exl2_bias){ model.planned[14], -INFINITY };
    biases[1] = (exl2_bias){ model.planned[0], 3 };
    banned[0] = model.planned[17]; /* "the " */
    banned[1] = model.planned[2];
    banned[2] = model.planned[19];
    stop_tokens[0] = model.planned[18]; /* "ab" has text, so it stops only where the text may end */
    stop_tokens[1] = model.byte_ids['!'];
    switch (setting) {
    case 1:
        d.stop_strings = stops;
        d.stop_string_count = 3;
        break;
    case 2:
        d.sampler.ban = banned;
        d.sampler.ban_count = 3;
        break;
    case 3:
        d.sampler.bias = biases;
        d.sampler.bias_count = 2;
        break;
    case 4:
        d.stop_tokens = stop_tokens;
        d.stop_token_count = 2;
        d.min_tokens = 12;
        break;
    case 5: /* single bytes only */
        for (uint32_t i = 0; i < EXL2__COUNT(allowed); i++) {
            allowed[i] = model.byte_ids[10 + i];
        }
        d.sampler.allow = allowed;
        d.sampler.allow_count = EXL2__COUNT(allowed);
        d.max_tokens = 200;
        break;
    case 6:
        d.sampler.repeat_penalty = 1.3f;
        d.sampler.dry_multiplier = 0.8f;
        d.sampler.presence_penalty = 0.5f;
        break;
    case 7:
        d.sampler.mirostat_tau = 3;
        break;
    case 8:
        d.score_prompt = true;
        break;
    default:
        break;
    }
    return d;
}

static void compare(const rig_said *with, const rig_said *without, uint32_t source, uint32_t setting, uint64_t seed)
{
    bool same = CHECK_INT(with->count, without->count);
    same = CHECK(memcmp(with->ids, without->ids, with->count * sizeof *with->ids) == 0) && same;
    same = CHECK(with->bytes == without->bytes && memcmp(with->text, without->text, with->bytes) == 0) && same;
    same = CHECK(with->stop == without->stop && with->result == without->result) && same;
    same = CHECK_INT(with->scored, without->scored) && same;
    same = CHECK(memcmp(with->scores, without->scores, with->scored * sizeof *with->scores) == 0) && same;
    same = CHECK(with->done_events == 1 && without->done_events == 1) && same;
    uint32_t certain = 0;
    for (uint32_t i = 0; i < with->count; i++) {
        certain += with->logprobs[i] == 0;
        same = same && CHECK(with->logprobs[i] == 0 || with->logprobs[i] == without->logprobs[i]);
    }
    same = CHECK(certain >= with->stats.forced_tokens || with->stop == EXL2_STOP_STRING) && same;
    if (!same) {
        printf("  source %u, setting %u, seed %u: \"%.*s\" and, one by one, \"%.*s\"\n", source, setting,
               (unsigned)seed, (int)with->bytes, with->text, (int)without->bytes, without->text);
    }
}

/* Every kind of grammar, every setting, some seeds. max_tokens: as many as the text needs, and more. */
static void the_same(const rig *r)
{
    static rig_said with, without;
    uint32_t forced = 0, sampled = 0;
    for (uint32_t i = 0; i < SOURCES; i++) {
        exl2_grammar g = make(r, i);
        for (uint32_t k = 0; k < 6 * SETTINGS; k++) {
            exl2_job_desc d = job_of(r, g, k % SETTINGS, k + 1, &with);
            exl2_result result = exl2_generate(r->engine, &d);
            CHECK_INT(result, EXL2_OK); /* whatever may not be said, the text ends in time */
            d = job_of(r, g, k % SETTINGS, k + 1, &without);
            d.draft.one_by_one = true;
            CHECK_INT(exl2_generate(r->engine, &d), result);
            compare(&with, &without, i, k % SETTINGS, k + 1);
            CHECK_INT(without.stats.forced_tokens, 0);
            CHECK(k % SETTINGS != 7 || with.stats.forced_tokens == 0);
            forced += with.stats.forced_tokens;
            sampled += with.count - with.stats.forced_tokens;
        }
        exl2_grammar_close(r->engine, g);
    }
    printf("%u tokens were forced, %u sampled\n", forced, sampled);
    CHECK(forced > sampled / 2);
}

/* Token limits from the shortest text on. */
static void limits(const rig *r)
{
    static rig_said with, without;
    for (uint32_t i = 1; i < SOURCES; i++) {
        exl2_grammar g = make(r, i);
        for (uint32_t most = 1; most < 60; most += 1 + most / 20) {
            exl2_job_desc d = job_of(r, g, 0, most, &with);
            d.max_tokens = most;
            if (exl2_generate(r->engine, &d) == EXL2_ERR_BUDGET) { /* no text is so short */
                continue;
            }
            d = job_of(r, g, 0, most, &without);
            d.max_tokens = most;
            d.draft.one_by_one = true;
            rig_run(r, &d);
            compare(&with, &without, i, most, most);
            CHECK(with.count <= most);
        }
        exl2_grammar_close(r->engine, g);
    }
}

/* ---- batches and small steps ---- */

#define SPEAKERS 8u

static void together(const rig *r)
{
    static rig_said with[SPEAKERS], without[SPEAKERS];
    exl2_grammar of[SPEAKERS];
    for (uint32_t i = 0; i < SPEAKERS; i++) {
        of[i] = i == 5 ? (exl2_grammar){ 0 } : make(r, i % SOURCES);
        exl2_job_desc d = job_of(r, of[i], i % 4, i + 40, &without[i]);
        d.draft.one_by_one = true;
        rig_run(r, &d);
    }
    for (uint32_t slices = 0; slices < 3; slices++) {
        for (uint32_t i = 0; i < SPEAKERS; i++) {
            exl2_job_desc d = job_of(r, of[i], i % 4, i + 40, &with[i]);
            d.draft.one_by_one = slices == 2 && i % 2;
            CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
        }
        rig_drain(r, slices ? 20 : 0);
        for (uint32_t i = 0; i < SPEAKERS; i++) {
            compare(&with[i], &without[i], i % (uint32_t)SOURCES, i % 4, i + 40);
        }
    }
    for (uint32_t i = 0; i < SPEAKERS; i++) {
        if (of[i].id) {
            exl2_grammar_close(r->engine, of[i]);
        }
    }
}

/* ---- passes ---- */

/* Runs the job, and returns its number of passes. */
static uint64_t passes_of(const rig *r, const exl2_job_desc *d)
{
    exl2_engine_stats before, after;
    rig_said *said = (rig_said *)d->user;
    exl2_stats(r->engine, &before);
    rig_run(r, d);
    exl2_stats(r->engine, &after);
    CHECK_INT(after.tokens_out - before.tokens_out, said->count);
    CHECK_INT(after.forced_tokens - before.forced_tokens, said->stats.forced_tokens);
    return after.forwards - before.forwards;
}

/* Each sampled token costs a pass, but the last one; forced ones ride along, up to ROWS_MAX rows a pass. The first ones
   ride with the prompt, which counts its own tokens only; on a GPU, where rows of prompts are computed in another way,
   in a pass after it. */
static void passes(const rig *r)
{
    static rig_said said;
    exl2_engine_stats before, after;
    exl2_grammar_desc gd = { .model = r->model, .kind = EXL2_GRAMMAR_REGEX, .source = "Xuvw[ab]YZ[ab]Q" };
    exl2_grammar g;
    CHECK_INT(exl2_grammar_make(r->engine, &gd, &g), EXL2_OK);
    exl2_job_desc d = job_of(r, g, 0, 1, &said);
    exl2_stats(r->engine, &before);
    CHECK_INT(passes_of(r, &d), 2 + ON_GPU);
    exl2_stats(r->engine, &after);
    CHECK_INT(after.tokens_in - before.tokens_in, EXL2__COUNT(text_prompt));
    CHECK(said.count == 9 && said.stats.forced_tokens == 7 && said.prefill_events == 1);
    memset(&said, 0, sizeof said);
    d.draft.one_by_one = true;
    CHECK_INT(passes_of(r, &d), 9);
    CHECK(said.count == 9 && said.stats.forced_tokens == 0);
    exl2_grammar_close(r->engine, g);
    gd.source = "[ab]x{70}[ab]"; /* one sampled token, then 70 that fill passes */
    CHECK_INT(exl2_grammar_make(r->engine, &gd, &g), EXL2_OK);
    d = job_of(r, g, 0, 1, &said);
    d.max_tokens = 100;
    CHECK_INT(passes_of(r, &d), 1 + (70 + ROWS_MAX) / ROWS_MAX);
    CHECK_INT(said.count, 72);
    exl2_grammar_close(r->engine, g);
    gd.source = "all this"; /* nothing is sampled */
    CHECK_INT(exl2_grammar_make(r->engine, &gd, &g), EXL2_OK);
    d = job_of(r, g, 0, 1, &said);
    CHECK_INT(passes_of(r, &d), 1 + ON_GPU);
    CHECK(said.prefill_events == 1 && said.text_events == 1);
    CHECK(said.stop == EXL2_STOP_GRAMMAR && said.count == 8 && said.stats.forced_tokens == 8);
    exl2_grammar_close(r->engine, g);
}

/* ---- histories ---- */

static exl2_flow stop_soon(void *user, const exl2_event *event)
{
    exl2_flow flow = rig_hear(user, event);
    return event->kind == EXL2_EVENT_TEXT && ((rig_said *)user)->count > 12 ? EXL2_STOP_JOB : flow;
}

static uint32_t stop_count;

static exl2_flow stop_there(void *user, const exl2_event *event)
{
    exl2_flow flow = rig_hear(user, event);
    return event->kind == EXL2_EVENT_TEXT && ((rig_said *)user)->count >= stop_count ? EXL2_STOP_JOB : flow;
}

/* A session whose history are the `count` ids of text_prompt and of what a job with seed 9 said. On a CPU it is given
   the ids. On a GPU a text that is given is another history than the same text that was sampled, so there the job says
   it again, one by one. */
static exl2_session with_history(const rig *r, exl2_grammar g, const exl2_token *ids, size_t count)
{
    static rig_said again;
    exl2_session s;
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    exl2_job_desc d = { .prompt = { .tokens = ids, .token_count = count }, .prefill_only = true };
    stop_count = (uint32_t)(count - EXL2__COUNT(text_prompt));
    bool says = ON_GPU && stop_count > 0;
    if (says) {
        d = job_of(r, g, 0, 9, &again);
        d.model.id = 0;
        d.on_event = stop_there;
        d.draft.one_by_one = true;
    }
    d.session = s;
    rig_run(r, &d);
    CHECK(!says || again.count == stop_count);
    CHECK(!says || memcmp(again.ids, ids + EXL2__COUNT(text_prompt), stop_count * sizeof *ids) == 0);
    return s;
}

/* A session goes on after a job whose last tokens were forced, after one that its callback stopped, after one that was
   cancelled, and in a fork of one that runs: the history is what was delivered, and what follows is what follows it in
   a session of that history. */
static void histories(const rig *r)
{
    static rig_said first, next, fresh;
    for (uint32_t way = 0; way < 4; way++) {
        exl2_session s, fork = { 0 }, other;
        exl2_job job;
        static exl2_token ids[600];
        size_t count = 0;
        exl2_grammar g = make(r, 1);
        CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
        exl2_job_desc d = job_of(r, g, 0, 9, &first);
        d.model.id = 0;
        d.session = s;
        d.on_event = way == 1 ? stop_soon : rig_hear;
        CHECK_INT(exl2_job_start(r->engine, &d, &job), EXL2_OK);
        for (int i = 0; i < 7 && way > 1; i++) {
            exl2_step(r->engine, NULL);
        }
        if (way == 2) {
            CHECK_INT(exl2_job_cancel(r->engine, job), EXL2_OK);
        } else if (way == 3) {
            CHECK_INT(exl2_session_fork(r->engine, s, &fork), EXL2_OK);
        }
        uint32_t delivered = first.count;
        rig_drain(r, 0);
        CHECK_INT(first.done_events, 1);
        CHECK(way == 0 || delivered < first.count || way < 3);
        s = way == 3 ? fork : s;
        CHECK_INT(exl2_session_tokens(r->engine, s, ids, EXL2__COUNT(ids), &count), EXL2_OK);
        delivered = way == 3 ? delivered : first.count;
        CHECK_INT(count, EXL2__COUNT(text_prompt) + delivered);
        CHECK(memcmp(ids + EXL2__COUNT(text_prompt), first.ids, delivered * sizeof *ids) == 0);
        d = job_of(r, g, 0, 5, &next);
        d.model.id = 0;
        d.session = s;
        rig_run(r, &d);
        other = with_history(r, g, ids, count);
        d = job_of(r, g, 0, 5, &fresh);
        d.model.id = 0;
        d.session = other;
        d.draft.one_by_one = true;
        rig_run(r, &d);
        compare(&next, &fresh, 1, way, 5);
        exl2_session_close(r->engine, s);
        exl2_session_close(r->engine, other);
        exl2_grammar_close(r->engine, g);
    }
}

int main(void)
{
    text_find_plan(&model, EXL2__COUNT(plan));
    text_write(&model, plan, EXL2__COUNT(plan), TEXT_CHAT_CONFIG);
    rig r = text_load(&model);
    the_same(&r);
    limits(&r);
    together(&r);
    passes(&r);
    histories(&r);
    rig_close(&r);
    return check_done();
}

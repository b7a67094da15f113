/* measure.c: exl2_job_measure predicts what the job's DONE reports, and rejects what exl2_job_start rejects, with the
   same message, for thousands of descs in pools that are full or not. It changes nothing. Through the public API, on a
   tiny model with a tokenizer made for it. */
#include "text_model.h"

static text_model model; /* global, because the files hook keeps a pointer to it */

static const char *const plan[4] = { "The ", "fox", " is", "." };

static rig_said said;

/* All that an application can see of the engine, except its most recent error. */
typedef struct view {
    exl2_engine_stats stats;
    exl2_session_info session;
} view;

static view look(const rig *r, exl2_session s)
{
    view v;
    memset(&v, 0, sizeof v);
    exl2_stats(r->engine, &v.stats);
    if (s.id) {
        CHECK_INT(exl2_session_get(r->engine, s, &v.session), EXL2_OK);
    }
    return v;
}

static void check_same(const view *a, const view *b, bool allocates)
{
    CHECK(memcmp(&a->session, &b->session, sizeof a->session) == 0);
    CHECK_INT(a->stats.pages_used, b->stats.pages_used);
    CHECK_INT(a->stats.pages_shared, b->stats.pages_shared);
    CHECK_INT(a->stats.jobs_active, b->stats.jobs_active);
    CHECK_INT(a->stats.jobs_waiting, b->stats.jobs_waiting);
    CHECK_INT(a->stats.host_bytes, b->stats.host_bytes);
    CHECK(allocates || a->stats.allocations == b->stats.allocations);
}

/* Measures the job, then runs it. */
static void check_job(const rig *r, exl2_job_desc *d, uint32_t prompt, uint32_t reused, uint32_t max_tokens)
{
    exl2_job_size size, again;
    exl2_job_info info;
    exl2_job job;
    view before = look(r, d->session);
    CHECK_INT(exl2_job_measure(r->engine, d, &size), EXL2_OK);
    CHECK_INT(exl2_job_measure(r->engine, d, &again), EXL2_OK);
    CHECK(memcmp(&size, &again, sizeof size) == 0);
    view after = look(r, d->session);
    check_same(&before, &after, d->guidance > 0);
    CHECK_INT(size.prompt_tokens, prompt);
    CHECK_INT(size.reused_tokens, reused);
    CHECK_INT(size.max_tokens, max_tokens);
    CHECK_INT(size.context_max, 512);
    CHECK_INT(size.pages_free, before.stats.pages_total); /* no other job runs, and all that is cached may go */

    memset(&said, 0, sizeof said);
    d->on_event = rig_hear;
    d->user = &said;
    CHECK_INT(exl2_job_start(r->engine, d, &job), EXL2_OK);
    CHECK(exl2_step(r->engine, NULL) >= 0);
    exl2_stats(r->engine, &after.stats);
    if (exl2_job_get(r->engine, job, &info) == EXL2_OK) { /* the job's pages are promised until its end */
        exl2_job_desc other = rig_job(r, text_prompt, 1, 1, NULL);
        CHECK_INT(exl2_job_measure(r->engine, &other, &again), EXL2_OK);
        CHECK_INT(size.pages_free - again.pages_free, size.pages_needed);
        CHECK(after.stats.pages_used > 0 && after.stats.pages_used <= size.pages_needed);
    }
    rig_drain(r, 0);
    CHECK_INT(said.done_events, 1);
    CHECK_INT(said.stats.prompt_tokens, size.prompt_tokens);
    CHECK_INT(said.stats.reused_tokens, size.reused_tokens);
    max_tokens += d->heal_prompt; /* new_tokens counts the token that heals the prompt, max_tokens does not */
    CHECK(said.stop == EXL2_STOP_LENGTH ? said.stats.new_tokens == max_tokens : said.stats.new_tokens <= max_tokens);
}

static void check_jobs(const rig *r)
{
    static exl2_token ids[100];
    exl2_message turns[] = { { .role = "user", .text = "hi" }, { .role = "assistant", .text = "fox" },
                             { .role = "user", .text = "and now" } };
    exl2_session s;
    exl2_session_info info;
    char text[512];
    exl2_token tokens[512];
    size_t need, first, all;
    for (int i = 0; i < 100; i++) {
        ids[i] = 40 + i % 7;
    }
    exl2_job_desc d = rig_job(r, ids, 100, 30, &said);
    check_job(r, &d, 100, 0, 30); /* 130 tokens: 3 pages */
    d.max_tokens = 0; /* 0 = the rest of the context */
    check_job(r, &d, 100, 0, 412);
    d.prefill_only = true;
    check_job(r, &d, 100, 0, 0);
    d = rig_job(r, NULL, 0, 5, &said);
    d.prompt.text = "fox is."; /* one token per byte except in the plan's texts, and BOS before it */
    CHECK_INT(exl2_tokenize(r->engine, r->model, d.prompt.text, strlen(d.prompt.text), 0, tokens, 512, &need), EXL2_OK);
    check_job(r, &d, (uint32_t)need, 0, 5);

    /* a conversation whose beginning is in the session */
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    d = rig_job(r, NULL, 0, 1, &said);
    d.session = s;
    d.prompt.messages = turns;
    d.prompt.message_count = 1;
    CHECK_INT(exl2_chat_render(r->engine, r->model, turns, 1, NULL, text, sizeof text, &need), EXL2_OK);
    CHECK_INT(exl2_tokenize(r->engine, r->model, text, need, EXL2_TEXT_NO_BOS, tokens, 512, &first), EXL2_OK);
    check_job(r, &d, (uint32_t)first, 0, 1);
    CHECK_INT(exl2_session_rewind(r->engine, s, (uint32_t)first), EXL2_OK);
    d.prompt.message_count = 3;
    CHECK_INT(exl2_chat_render(r->engine, r->model, turns, 3, NULL, text, sizeof text, &need), EXL2_OK);
    CHECK_INT(exl2_tokenize(r->engine, r->model, text, need, EXL2_TEXT_NO_BOS, tokens, 512, &all), EXL2_OK);
    CHECK_INT(exl2_session_get(r->engine, s, &info), EXL2_OK);
    CHECK(all > first && info.tokens_cached > 0);
    /* all of the first turn is reused, because the session was rewound to its end */
    check_job(r, &d, (uint32_t)all, info.tokens_cached, 1);
    d.prompt.messages = NULL;
    d.prompt.message_count = 0;
    d.prompt.tokens = ids;
    d.prompt.token_count = 3;
    check_job(r, &d, 3, 0, 1); /* appended: nothing of it was cached */

    d = rig_job(r, ids, 70, 10, &said); /* guidance: the pages of both sequences */
    d.guidance = 2;
    d.negative_prompt.text = "is";
    exl2_job_size size;
    CHECK_INT(exl2_job_measure(r->engine, &d, &size), EXL2_OK);
    CHECK_INT(size.pages_needed, 2 + 1);
    check_job(r, &d, 70, 0, 10);
    CHECK_INT(exl2_session_close(r->engine, s), EXL2_OK);
}

/* With heal_prompt the prompt's last token is sampled again, but it still counts as part of the prompt. */
static void check_healed(const rig *r)
{
    exl2_message turns[] = { { .role = "user", .text = "hi" }, { .role = "user", .text = "and now" } };
    exl2_session s;
    exl2_session_info info;
    char text[512];
    exl2_token tokens[512];
    size_t need, first, all;
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    exl2_job_desc d = rig_job(r, text_prompt, EXL2__COUNT(text_prompt), 0, &said);
    d.session = s;
    d.prefill_only = true;
    check_job(r, &d, (uint32_t)EXL2__COUNT(text_prompt), 0, 0);
    CHECK_INT(exl2_session_get(r->engine, s, &info), EXL2_OK);
    CHECK(info.tokens_cached == EXL2__COUNT(text_prompt));
    d = rig_job(r, NULL, 0, 1, &said);
    d.session = s;
    d.prompt.text = "is";
    d.heal_prompt = true;
    CHECK_INT(exl2_tokenize(r->engine, r->model, "is", 2, EXL2_TEXT_NO_BOS, tokens, 512, &need), EXL2_OK);
    check_job(r, &d, (uint32_t)need, 0, 1); /* appended: nothing of it was cached */
    CHECK_INT(exl2_session_close(r->engine, s), EXL2_OK);

    /* a conversation whose beginning is in the session */
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    d = rig_job(r, NULL, 0, 0, &said);
    d.session = s;
    d.prompt.messages = turns;
    d.prompt.message_count = 1;
    d.prefill_only = true;
    d.chat.close_reply = true;
    CHECK_INT(exl2_chat_render(r->engine, r->model, turns, 1, &d.chat, text, sizeof text, &need), EXL2_OK);
    CHECK_INT(exl2_tokenize(r->engine, r->model, text, need, EXL2_TEXT_NO_BOS, tokens, 512, &first), EXL2_OK);
    check_job(r, &d, (uint32_t)first, 0, 0);
    d.prompt.message_count = 2;
    d.max_tokens = 1;
    d.prefill_only = false;
    d.heal_prompt = true;
    CHECK_INT(exl2_chat_render(r->engine, r->model, turns, 2, &d.chat, text, sizeof text, &need), EXL2_OK);
    CHECK_INT(exl2_tokenize(r->engine, r->model, text, need, EXL2_TEXT_NO_BOS, tokens, 512, &all), EXL2_OK);
    CHECK(all > first + 2);
    check_job(r, &d, (uint32_t)all, (uint32_t)first, 1);
    CHECK_INT(exl2_session_close(r->engine, s), EXL2_OK);
}

/* The same result and the same message as exl2_job_start. */
static void check_refused(const rig *r, const exl2_job_desc *d, exl2_result wanted, exl2_job_size *size)
{
    exl2_error measured, started;
    exl2_session none = { 0 };
    view before = look(r, none);
    memset(size, 0xFF, sizeof *size);
    CHECK_INT(exl2_job_measure(r->engine, d, size), wanted);
    exl2_last_error(r->engine, &measured);
    CHECK_INT(exl2_job_start(r->engine, d, NULL), wanted);
    exl2_last_error(r->engine, &started);
    CHECK_TEXT(measured.text, started.text);
    view after = look(r, none);
    check_same(&before, &after, d->guidance > 0);
}

static void check_errors(const rig *r)
{
    static exl2_token ids[600];
    exl2_message turn = { .role = "user", .text = text_markers[0] };
    exl2_job_size size, zero;
    exl2_session s;
    memset(&zero, 0, sizeof zero);
    CHECK_INT(exl2_job_measure(NULL, NULL, &size), EXL2_ERR_ARG);
    CHECK_INT(exl2_job_measure(r->engine, NULL, &size), EXL2_ERR_ARG);
    exl2_job_desc d = rig_job(r, ids, 0, 5, &said);
    CHECK_INT(exl2_job_measure(r->engine, &d, NULL), EXL2_ERR_ARG);
    check_refused(r, &d, EXL2_ERR_ARG, &size); /* no token to continue from */
    d.model.id = 999;
    check_refused(r, &d, EXL2_ERR_STALE, &size);
    CHECK(memcmp(&size, &zero, sizeof size) == 0);
    d = rig_job(r, ids, 500, 13, &said); /* 513 tokens */
    check_refused(r, &d, EXL2_ERR_CONTEXT_FULL, &size);
    CHECK(size.prompt_tokens == 500 && size.max_tokens == 13 && size.context_tokens == 513 && size.context_max == 512);
    d.prompt.token_count = 600;
    check_refused(r, &d, EXL2_ERR_CONTEXT_FULL, &size);
    CHECK(size.prompt_tokens == 600 && size.context_max == 512);
    static char words[700];
    memset(words, 'x', 650);
    turn.text = words;
    d = rig_job(r, NULL, 0, 5, &said);
    d.prompt.messages = &turn;
    d.prompt.message_count = 1;
    check_refused(r, &d, EXL2_ERR_CONTEXT_FULL, &size);
    CHECK(size.prompt_tokens > 650);
    d.prompt.messages = NULL;
    d.prompt.message_count = 0;
    d.prompt.text = words;
    d.prompt.flags = EXL2_TEXT_NO_BOS;
    check_refused(r, &d, EXL2_ERR_CONTEXT_FULL, &size);
    CHECK_INT(size.prompt_tokens, 650);
    d = rig_job(r, ids, 5, 5, &said);
    d.sampler.temperature = -1;
    check_refused(r, &d, EXL2_ERR_ARG, &size);
    d.sampler.temperature = 0;
    d.guidance = 2; /* without a negative prompt */
    check_refused(r, &d, EXL2_ERR_ARG, &size);
    d.negative_prompt.text = "";
    d.negative_prompt.flags = EXL2_TEXT_NO_BOS;
    check_refused(r, &d, EXL2_ERR_ARG, &size); /* the negative prompt fails after the job was filled in */
    d.guidance = 0;
    d.negative_prompt.text = NULL;

    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    d.session = s;
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    check_refused(r, &d, EXL2_ERR_STATE, &size); /* the session is busy */
    rig_drain(r, 0);
    exl2_job_size many;
    /* more calls than there are slots for jobs and sessions: each call frees its slot */
    for (int i = 0; i < 300; i++) {
        CHECK_INT(exl2_job_measure(r->engine, &d, &many), EXL2_OK);
    }
    CHECK_INT(exl2_session_close(r->engine, s), EXL2_OK);
}

/* ---- many descs: a measure is what a start would be ---- */

static uint32_t state = 7;

static uint32_t below(uint32_t n)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}

#define MANY_JOBS 3u
#define MANY_SESSIONS 5u

static struct {
    rig r;
    exl2_model draft;
    exl2_session base, fork; /* with a history that is in the cache */
    exl2_grammar grammars[2];
    exl2_token ids[300];
    uint32_t accepted, rejected, drafted, guided, reused;
} many;

/* A desc of any kind. The prompts have beginnings in common. */
static exl2_job_desc many_desc(void)
{
    static const char *const text[] = { "fox is.", "The fox is.", "a", "" };
    static exl2_token own[300];
    uint32_t common = below(3) ? 60 + below(140) : 0, count = common + 1 + below(40);
    for (uint32_t i = 0; i < count; i++) {
        own[i] = i < common ? many.ids[i] : 40 + (exl2_token)below(200);
    }
    exl2_job_desc d = rig_job(&many.r, own, count, below(3) ? 2 + below(6) : 0, &said);
    if (below(4) == 0) {
        d.model.id = below(2) ? d.model.id : 0;
        d.session = below(2) ? many.base : many.fork;
        d.prompt.token_count = 1 + below(20);
    }
    d.prefill_only = below(8) == 0;
    d.score_prompt = below(8) == 0;
    d.heal_prompt = below(4) == 0;
    d.min_tokens = below(8) ? 0 : below(9);
    d.alts_per_token = below(8) ? 0 : 3;
    d.draft.model = below(3) ? d.draft.model : many.draft;
    d.draft.ngram = below(4) == 0;
    d.draft.one_by_one = below(8) == 0;
    d.sampler.mirostat_tau = below(8) ? 0 : 4;
    d.grammar = below(3) ? d.grammar : many.grammars[below(2)];
    if (below(3) == 0) {
        d.guidance = below(8) ? 2 : 0;
        d.negative_session = below(4) ? d.negative_session : many.fork;
        if (below(2)) {
            d.negative_prompt.text = text[below(4)];
        } else {
            d.negative_prompt.tokens = many.ids;
            d.negative_prompt.token_count = 1 + below(180);
        }
        d.draft.ngram = below(4) ? false : d.draft.ngram;
        d.draft.model.id = below(4) ? 0 : d.draft.model.id;
    }
    return d;
}

/* One desc, while other jobs and sessions have some of the places. */
static void many_check(void)
{
    static rig_said others[MANY_JOBS];
    exl2_session extra[MANY_SESSIONS];
    exl2_job jobs[MANY_JOBS];
    uint32_t job_count = below(2) ? 0 : below(MANY_JOBS + 1), extra_count = 0, sessions = below(MANY_SESSIONS);
    for (uint32_t i = 0; i < job_count; i++) { /* paused before they begin, so that they compute nothing */
        exl2_job_desc d = rig_job(&many.r, many.ids, 5, 3, &others[i]);
        job_count = exl2_job_start(many.r.engine, &d, &jobs[i]) == EXL2_OK ? job_count : i;
        if (i < job_count) {
            CHECK_INT(exl2_job_pause(many.r.engine, jobs[i], true), EXL2_OK);
        }
    }
    while (extra_count < sessions
           && exl2_session_open(many.r.engine, many.r.model, &extra[extra_count]) == EXL2_OK) {
        extra_count++;
    }
    exl2_job_desc d = many_desc();
    exl2_job_size size, again;
    exl2_error measured = { 0 }, started = { 0 };
    view before = look(&many.r, many.base);
    memset(&said, 0, sizeof said);
    exl2_result wanted = exl2_job_measure(many.r.engine, &d, &size);
    exl2_last_error(many.r.engine, &measured);
    CHECK_INT(exl2_job_measure(many.r.engine, &d, &again), wanted);
    CHECK(memcmp(&size, &again, sizeof size) == 0);
    view after = look(&many.r, many.base);
    check_same(&before, &after, true);
    exl2_result got = exl2_job_start(many.r.engine, &d, NULL);
    exl2_last_error(many.r.engine, &started);
    if (!CHECK(got == wanted && (got == EXL2_OK || strcmp(measured.text, started.text) == 0))) {
        printf("  measure %s, start %s: %s\n", exl2_result_name(wanted), exl2_result_name(got), started.text);
    }
    rig_drain(&many.r, 0);
    if (got == EXL2_OK && wanted == EXL2_OK) {
        CHECK_INT(said.done_events, 1);
        CHECK_INT(said.stats.prompt_tokens, size.prompt_tokens);
        if (!CHECK(said.stats.reused_tokens == size.reused_tokens)) {
            printf("  %u of %u tokens are reused, %u were measured; guidance %g\n", said.stats.reused_tokens,
                   said.stats.prompt_tokens, size.reused_tokens, (double)d.guidance);
        }
    }
    many.accepted += got == EXL2_OK;
    many.rejected += got < 0;
    many.drafted += got == EXL2_OK && d.draft.model.id != 0;
    many.guided += got == EXL2_OK && d.guidance > 0;
    many.reused += said.stats.reused_tokens > 0;
    for (uint32_t i = 0; i < job_count; i++) {
        exl2_job_cancel(many.r.engine, jobs[i]);
    }
    rig_drain(&many.r, 0);
    while (extra_count > 0) {
        CHECK_INT(exl2_session_close(many.r.engine, extra[--extra_count]), EXL2_OK);
    }
    if (below(4) == 0) {
        CHECK_INT(exl2_session_rewind(many.r.engine, many.base, 100), EXL2_OK);
        CHECK_INT(exl2_session_rewind(many.r.engine, many.fork, 100), EXL2_OK);
    }
}

static void check_many(void)
{
    exl2_engine_desc e = text_engine(&model);
    exl2_model_desc m = text_folder();
    exl2_grammar_desc g = { .kind = EXL2_GRAMMAR_JSON };
    e.max_jobs = MANY_JOBS;
    e.max_sessions = MANY_SESSIONS;
    m.context_max = 256;
    m.cache.tokens = 8192; /* nothing is evicted: a start that evicts may find less */
    many.r = rig_open(&e, &m);
    CHECK_INT(exl2_model_load(many.r.engine, &m, &many.draft), EXL2_OK);
    for (uint32_t i = 0; i < 300; i++) {
        many.ids[i] = 40 + (exl2_token)(i * 31 % 190);
    }
    CHECK_INT(exl2_session_open(many.r.engine, many.r.model, &many.base), EXL2_OK);
    exl2_job_desc d = rig_job(&many.r, many.ids, 120, 0, NULL);
    d.session = many.base;
    d.prefill_only = true;
    d.on_event = NULL;
    CHECK_INT(exl2_generate(many.r.engine, &d), EXL2_OK);
    CHECK_INT(exl2_session_fork(many.r.engine, many.base, &many.fork), EXL2_OK);
    g.model = many.r.model;
    CHECK_INT(exl2_grammar_make(many.r.engine, &g, &many.grammars[0]), EXL2_OK);
    g.kind = EXL2_GRAMMAR_REGEX;
    g.source = "[a-z]{6}";
    CHECK_INT(exl2_grammar_make(many.r.engine, &g, &many.grammars[1]), EXL2_OK);
    for (uint32_t i = 0; i < 3000; i++) {
        many_check();
    }
    printf("%u descs accepted (%u with a draft model, %u with guidance), %u rejected; %u reuse tokens\n", many.accepted,
           many.drafted, many.guided, many.rejected, many.reused);
    CHECK(many.accepted > 500 && many.rejected > 500 && many.drafted > 50 && many.guided > 50 && many.reused > 200);
    rig_close(&many.r);
}

/* The default cache: two contexts, at most 256 MiB or the bytes of the weights, at least one context. */
static void check_defaults(void)
{
    const struct {
        uint32_t context;
        uint64_t tokens;
    } cases[] = { { 128, 256 }, { 100, 256 }, { 200000, 400000 }, { 300000, 524288 }, { 1048576, 1048576 } };
    rig r = rig_load(rig_golden("exl2-mixed")); /* 512 bytes a token */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        exl2_model_desc d = { .path = rig_golden("exl2-mixed"), .context_max = cases[i].context };
        exl2_model_info info;
        CHECK_INT(exl2_model_measure(r.engine, &d, &info), EXL2_OK);
        CHECK_INT(info.cache_bytes_per_token, 512);
        CHECK_INT(info.cache_bytes, cases[i].tokens * 512);
    }
    rig_close(&r);
}

/* Bytes of a token: 2 layers, 2 K/V heads of 32; the scales are counted. A load has them, and the measure foretells its
   peak. */
static void check_formats(void)
{
    static const uint32_t bytes[] = { 512, 272, 208, 144 }; /* 16; 8.5; 8.5 and 4.5; 4.5 bits an element */
    for (uint32_t f = EXL2_KV_FP16; f <= EXL2_KV_Q4; f++) {
        exl2_model_desc d = { .path = rig_golden("exl2-mixed"), .context_max = 128 };
        exl2_model_info info;
        exl2_engine_stats stats;
        d.cache.format = (exl2_kv)f;
        rig r = rig_open(NULL, &d);
        CHECK_INT(exl2_model_measure(r.engine, &d, &info), EXL2_OK);
        CHECK_INT(info.cache_bytes_per_token, bytes[f]);
        CHECK_INT(info.cache_bytes, 256 * bytes[f]);
        exl2_stats(r.engine, &stats);
        CHECK(stats.host_bytes >= info.weight_bytes + info.cache_bytes && stats.host_peak <= stats.host_bytes
              + info.scratch_bytes);
        rig_close(&r);
    }
}

int main(void)
{
    text_find_plan(&model, 4);
    text_write(&model, plan, 4, TEXT_CHAT_CONFIG);
    rig r = text_load_apart(&model);
    check_jobs(&r);
    check_healed(&r);
    check_errors(&r);
    rig_close(&r);
    check_many();
    check_defaults();
    check_formats();
    return check_done();
}

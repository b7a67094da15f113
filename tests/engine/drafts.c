/* drafts.c: guesses of the next tokens (draft.ngram, draft.model). Jobs with guesses that are right, wrong, half
   right, or longer than what is left give the ids, text and end that they give without: sampled and greedy, over page
   ends, with stops, bans, healing, minimum lengths, penalties and grammars, alone and in a batch, in whole passes and
   in small steps. */
#define _GNU_SOURCE /* mkdtemp */
#include "text_model.h"

static text_model model; /* global, because the files hook keeps a pointer to it */

static const char *const plan[20] = { "{\"", "\":", "\": \"", "\",\"", "\"}", "true", "null", "]}", "\xC3", "an",
                                      "\\\"", ", \"", "{}", "-1", "say", "mood", "the", "the ", "ab", "abab" };

#define SETTINGS 14u
#define TOKENS 90u

static exl2_grammar schema, regex;
static exl2_draft_desc how; /* of jobs with guesses */

/* A job with one of several settings. */
static exl2_job_desc job_of(const rig *r, uint32_t setting, uint64_t seed, rig_said *to)
{
    static const char *const stops[] = { "z", "mood" }, *const bans[] = { "a", "the", "\"" };
    static exl2_token stop_tokens[12], allowed[40];
    static exl2_bias bias;
    exl2_job_desc d = rig_job(r, text_prompt, EXL2__COUNT(text_prompt), TOKENS, to);
    memset(to, 0, sizeof *to);
    d.sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_NEUTRAL, .temperature = 0.7f, .seed = seed };
    for (uint32_t i = 0; i < EXL2__COUNT(stop_tokens); i++) {
        stop_tokens[i] = (exl2_token)(20 + 7 * i);
    }
    for (uint32_t i = 0; i < EXL2__COUNT(allowed); i++) {
        allowed[i] = (exl2_token)(30 + i);
    }
    bias = (exl2_bias){ model.planned[3], -INFINITY };
    switch (setting) {
    case 1:
        d.sampler.preset = EXL2_PRESET_GREEDY;
        break;
    case 2:
        d.stop_strings = stops;
        d.stop_string_count = 2;
        break;
    case 3:
        d.ban_strings = bans;
        d.ban_string_count = 3;
        break;
    case 4:
        d.stop_tokens = stop_tokens;
        d.stop_token_count = EXL2__COUNT(stop_tokens);
        d.min_tokens = 40;
        break;
    case 5:
        d.sampler.allow = allowed;
        d.sampler.allow_count = EXL2__COUNT(allowed);
        break;
    case 6:
        d.sampler.repeat_penalty = 1.3f;
        d.sampler.penalty_range = -1;
        d.sampler.dry_multiplier = 0.8f;
        break;
    case 7:
        d.sampler.presence_penalty = 0.5f;
        d.sampler.frequency_penalty = 0.2f;
        d.sampler.penalty_range = 9;
        d.sampler.penalty_decay = 5;
        d.sampler.dry_multiplier = 0.8f;
        d.sampler.dry_range = 12;
        break;
    case 8:
        d.grammar = schema;
        break;
    case 9:
        d.grammar = regex;
        d.sampler.bias = &bias;
        d.sampler.bias_count = 1;
        break;
    case 10:
        d.heal_prompt = true;
        break;
    case 11:
        d.alts_per_token = 3;
        d.score_prompt = true;
        break;
    case 12:
        d.alts_per_token = 2;
        d.grammar = schema;
        break;
    case 13:
        d.sampler.mirostat_tau = 3; /* without drafts */
        break;
    default:
        break;
    }
    return d;
}

static bool compare(const rig_said *with, const rig_said *without, uint32_t setting, uint64_t seed)
{
    bool same = CHECK_INT(with->count, without->count);
    same = CHECK(memcmp(with->ids, without->ids, with->count * sizeof *with->ids) == 0) && same;
    same = CHECK(memcmp(with->logprobs, without->logprobs, with->count * sizeof *with->logprobs) == 0) && same;
    same = CHECK(with->bytes == without->bytes && memcmp(with->text, without->text, with->bytes) == 0) && same;
    same = CHECK(with->stop == without->stop && with->result == without->result) && same;
    same = CHECK(with->scored == without->scored && with->done_events == 1 && without->done_events == 1) && same;
    same = CHECK_INT(with->stats.forced_tokens, without->stats.forced_tokens) && same;
    same = CHECK(with->stats.accepted <= with->stats.drafted && without->stats.drafted == 0) && same;
    same = CHECK_INT(with->stats.bans_avoided, without->stats.bans_avoided) && same;
    if (!same) {
        printf("  setting %u, seed %u: \"%.*s\" and without \"%.*s\"\n", setting, (unsigned)seed, (int)with->bytes,
               with->text, (int)without->bytes, without->text);
    }
    return same;
}

/* Opens a session whose history is that of the job, with every `wrong`-th token replaced (0: none). What its jobs guess
   is then mostly right, or right up to there. */
static exl2_session model_answer(const rig *r, const rig_said *said, uint32_t wrong)
{
    static exl2_token ids[RIG_TOKENS];
    exl2_session s;
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    uint32_t count = EXL2__COUNT(text_prompt);
    memcpy(ids, text_prompt, sizeof text_prompt);
    for (uint32_t i = 0; i < said->count; i++) {
        ids[count++] = wrong && i % wrong == wrong - 1 ? (exl2_token)(100 + i % 50) : said->ids[i];
    }
    exl2_job_desc d = { .session = s, .prompt = { .tokens = ids, .token_count = count }, .prefill_only = true };
    rig_run(r, &d);
    return s;
}

static uint64_t forwards(const rig *r)
{
    exl2_engine_stats stats;
    exl2_stats(r->engine, &stats);
    return stats.forwards;
}

/* Every setting, with other sessions whose histories make the guesses right, half right and wrong. */
static void the_same(const rig *r)
{
    static rig_said with, without;
    uint32_t drafted = 0, accepted[4] = { 0 }, passes[4] = { 0 }, tokens[4] = { 0 };
    exl2_engine_stats before, after;
    exl2_stats(r->engine, &before);
    for (uint32_t k = 0; k < 5 * SETTINGS; k++) {
        exl2_job_desc d = job_of(r, k % SETTINGS, k + 1, &without);
        rig_run(r, &d);
        for (uint32_t wrong = 0; wrong < 4; wrong++) { /* 0: guesses are right; 3: only from the job's own history */
            static const uint32_t every[] = { 0, 7, 3, 0 };
            exl2_session other = { 0 };
            if (wrong < 3) {
                other = model_answer(r, &without, every[wrong]);
            }
            d = job_of(r, k % SETTINGS, k + 1, &with);
            d.draft = how;
            uint64_t start = forwards(r);
            rig_run(r, &d);
            compare(&with, &without, k % SETTINGS, k + 1);
            CHECK(k % SETTINGS != 13 || with.stats.drafted == 0);
            drafted += with.stats.drafted;
            accepted[wrong] += with.stats.accepted;
            passes[wrong] += (uint32_t)(forwards(r) - start);
            tokens[wrong] += with.count;
            if (wrong < 3) {
                exl2_session_close(r->engine, other);
            }
        }
    }
    exl2_stats(r->engine, &after);
    CHECK_INT(after.drafted - before.drafted, drafted);
    CHECK_INT(after.accepted - before.accepted, accepted[0] + accepted[1] + accepted[2] + accepted[3]);
    CHECK(accepted[0] > 200 && accepted[2] > 20 && accepted[3] > 20); /* about 2300, 520, 620; it depends on times */
    CHECK(passes[0] < tokens[0]);
    for (uint32_t i = 0; i < 4; i++) {
        printf("%u tokens in %u passes, %u of them drafts\n", tokens[i], passes[i], accepted[i]);
    }
}

/* A banned string that the grammar forces: it rewinds the job while rows of the same pass, after guesses that were
   right, have tokens for the position to which it was rewound. */
static void forced_bans(const rig *r)
{
    static rig_said with, without;
    static const char *const bans[] = { "ab", "the" };
    uint32_t accepted = 0;
    for (uint32_t k = 0; k < 60; k++) {
        exl2_job_desc d = job_of(r, 9, k + 1, &without);
        d.ban_strings = bans;
        d.ban_string_count = 2;
        d.draft.one_by_one = true;
        rig_run(r, &d);
        exl2_session other = model_answer(r, &without, 0);
        d.user = &with;
        d.draft = (exl2_draft_desc){ .ngram = true, .tokens = 5 };
        memset(&with, 0, sizeof with);
        rig_run(r, &d);
        without.stats.forced_tokens = with.stats.forced_tokens; /* none one by one, and forced tokens have logprob 0 */
        memcpy(without.logprobs, with.logprobs, sizeof with.logprobs);
        compare(&with, &without, 9, k + 1);
        accepted += with.stats.accepted;
        exl2_session_close(r->engine, other);
    }
    printf("forced bans: %u accepted\n", accepted);
    CHECK(accepted > 5); /* 20 to 300; it depends on times */
}

/* Limits that end within a draft. */
static void limits(const rig *r)
{
    static rig_said with, without, whole;
    exl2_job_desc d = job_of(r, 0, 3, &whole);
    rig_run(r, &d);
    exl2_session other = model_answer(r, &whole, 0);
    for (uint32_t most = 1; most < 70; most++) { /* across a page's end, too */
        d = job_of(r, 0, 3, &without);
        d.max_tokens = most;
        rig_run(r, &d);
        d = job_of(r, 0, 3, &with);
        d.max_tokens = most;
        d.draft = how;
        rig_run(r, &d);
        compare(&with, &without, 0, most);
    }
    exl2_session_close(r->engine, other);
}

/* ---- batches and small steps ---- */

#define SPEAKERS 9u

/* least: drafts that are accepted at least. */
static void together(const rig *r, uint32_t least)
{
    static rig_said with[SPEAKERS], without[SPEAKERS];
    exl2_session others[SPEAKERS];
    uint32_t accepted = 0;
    for (uint32_t i = 0; i < SPEAKERS; i++) {
        exl2_job_desc d = job_of(r, i, i + 60, &without[i]);
        rig_run(r, &d);
        others[i] = model_answer(r, &without[i], 11);
    }
    for (uint32_t slices = 0; slices < 3; slices++) {
        for (uint32_t i = 0; i < SPEAKERS; i++) {
            exl2_job_desc d = job_of(r, i, i + 60, &with[i]);
            d.draft = slices < 2 || i % 2 ? how : (exl2_draft_desc){ 0 };
            CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
        }
        rig_drain(r, slices ? 20 : 0);
        for (uint32_t i = 0; i < SPEAKERS; i++) {
            compare(&with[i], &without[i], i, i + 60);
            accepted += with[i].stats.accepted;
        }
    }
    CHECK(accepted >= least);
    for (uint32_t i = 0; i < SPEAKERS; i++) {
        exl2_session_close(r->engine, others[i]);
    }
}

/* ---- callbacks, the ring, histories ---- */

/* A callback stops or pauses the job at each of its tokens: nothing of the pass's later tokens is delivered, and the
   history ends there. */
static void stopped(const rig *r)
{
    static rig_said with, without;
    static exl2_token ids[RIG_TOKENS];
    exl2_job_desc d = job_of(r, 0, 8, &without);
    rig_run(r, &d);
    exl2_session other = model_answer(r, &without, 0), s;
    for (uint32_t at = 1; at < 40; at++) {
        size_t count;
        exl2_job job;
        CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
        d = job_of(r, 0, 8, &with);
        d.model.id = 0;
        d.session = s;
        d.draft = how;
        with.stop_after = at;
        with.flow = at % 2 ? EXL2_STOP_JOB : EXL2_PAUSE_JOB;
        CHECK_INT(exl2_job_start(r->engine, &d, &job), EXL2_OK);
        rig_drain(r, 0);
        CHECK_INT(with.text_events, at);
        CHECK(with.done_events == at % 2 && memcmp(with.ids, without.ids, with.count * sizeof *with.ids) == 0);
        CHECK_INT(exl2_session_tokens(r->engine, s, ids, RIG_TOKENS, &count), EXL2_OK);
        CHECK_INT(count, EXL2__COUNT(text_prompt) + with.count);
        if (at % 2 == 0) { /* goes on as if nothing had been */
            CHECK_INT(exl2_job_pause(r->engine, job, false), EXL2_OK);
            rig_drain(r, 0);
            compare(&with, &without, 0, at);
        }
        exl2_session_close(r->engine, s);
    }
    exl2_session_close(r->engine, other);
}

/* Events wait in a ring that is nearly full all the time. */
static void narrow_ring(void)
{
    static rig_said with, without;
    exl2_engine_desc engine = text_engine(&model);
    exl2_model_desc folder = text_folder();
    exl2_event ev;
    engine.max_events = 1;
    rig r = rig_open(&engine, &folder);
    exl2_job_desc d = job_of(&r, 0, 21, &without);
    rig_run(&r, &d);
    exl2_session other = model_answer(&r, &without, 0);
    d = job_of(&r, 0, 21, &with);
    d.on_event = NULL;
    d.draft.ngram = true;
    CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
    for (uint32_t i = 0; i < 10000000 && !with.done_events; i++) { /* many steps only look at a GPU that is busy */
        exl2_step(r.engine, NULL);
        exl2_step(r.engine, NULL);
        if (exl2_next_event(r.engine, &ev)) {
            rig_hear(&with, &ev);
        }
    }
    compare(&with, &without, 0, 21);
    exl2_session_close(r.engine, other);
    rig_close(&r);
}

/* ---- a draft model ---- */

static exl2_model load_draft(const rig *r, const char *name)
{
    exl2_model draft;
    exl2_model_desc d = text_folder();
    d.path = rig_golden(name);
    CHECK_INT(exl2_model_load(r->engine, &d, &draft), EXL2_OK);
    return draft;
}

static exl2_engine_stats stats_of(const rig *r)
{
    exl2_engine_stats stats;
    exl2_stats(r->engine, &stats);
    return stats;
}

/* Whether a grammar or an allow list limits what is sampled. */
static bool setting_is_masked(uint32_t setting)
{
    return setting == 5 || setting == 8 || setting == 9 || setting == 12;
}

/* A model that drafts for one with the same weights is always right; one with other weights is rarely so. The text is
   the same. The drafter counts neither as a job nor as tokens, and its K and V are found again. It samples under the
   masks of its job, so the same weights are right there, too. */
static void draft_models(const rig *r)
{
    static rig_said with, without, first;
    uint32_t drafted = 0, accepted = 0;
    exl2_model draft = load_draft(r, "exl2-mixed"), other = load_draft(r, "llama3-rope");
    for (uint32_t k = 0; k < 3 * SETTINGS; k++) {
        exl2_job_desc d = job_of(r, k % SETTINGS, k + 1, &without);
        rig_run(r, &d);
        for (uint32_t wrong = 0; wrong < 2; wrong++) {
            exl2_engine_stats before = stats_of(r);
            d = job_of(r, k % SETTINGS, k + 1, &with);
            d.draft = (exl2_draft_desc){ .model = wrong ? other : draft, .tokens = k % 3 ? 15 : 3 };
            d.draft.ngram = k % 4 == 3;
            rig_run(r, &d);
            compare(&with, &without, k % SETTINGS, k + 1);
            exl2_engine_stats after = stats_of(r);
            CHECK(after.jobs_active == 0 && after.tokens_out - before.tokens_out >= with.count);
            CHECK_INT(after.tokens_in - before.tokens_in, with.stats.prompt_tokens - with.stats.reused_tokens);
            bool certain = k % SETTINGS < 2 && !wrong && k % 4 != 3 && with.count > 60;
            uint32_t least = RIG_BACKEND == EXL2_BACKEND_CPU ? 2 : 0; /* some probes; a GPU runs ahead to the end */
            CHECK(!certain || (with.stats.drafted >= least && with.stats.accepted == with.stats.drafted));
            CHECK(!certain || after.forwards - before.forwards == with.count - with.stats.accepted);
            bool masked = setting_is_masked(k % SETTINGS) && !wrong && k % 4 != 3;
            drafted += masked ? with.stats.drafted : 0;
            accepted += masked ? with.stats.accepted : 0;
        }
    }
    printf("under masks: %u drafted, %u accepted\n", drafted, accepted);
    CHECK(drafted > 12 && accepted == drafted); /* 50 to 160, by the times of passes; with a drafter without masks 10 */
    how = (exl2_draft_desc){ .model = draft };
    limits(r);
    together(r, RIG_BACKEND == EXL2_BACKEND_CPU ? 5 : 0);
    stopped(r);
    how.model = other;
    together(r, 0);
    /* closed while it drafts: the job goes on without it */
    exl2_job_desc d = job_of(r, 0, 5, &without);
    rig_run(r, &d);
    d = job_of(r, 0, 5, &first);
    d.draft.model = draft;
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    while (first.count < 20) {
        exl2_step(r->engine, NULL);
    }
    CHECK(first.count < without.count && stats_of(r).jobs_active == 1);
    CHECK_INT(exl2_model_close(r->engine, draft), EXL2_OK);
    rig_drain(r, 0);
    compare(&first, &without, 0, 5);
    /* closed with its job's model */
    d = job_of(r, 0, 5, &first);
    d.draft.model = other;
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    exl2_step(r->engine, NULL);
    CHECK_INT(exl2_model_close(r->engine, other), EXL2_OK);
    rig_drain(r, 0);
    compare(&first, &without, 0, 5);
}

/* Few jobs, few sessions, few pages: what a draft model needs is said, and it gives way to the model's own jobs. */
static void narrow_drafts(void)
{
    static rig_said with, without, own;
    exl2_engine_desc engine = text_engine(&model);
    exl2_model_desc folder = text_folder();
    engine.max_jobs = 2;
    rig r = rig_open(&engine, &folder);
    folder.cache.tokens = 128;
    exl2_model small;
    CHECK_INT(exl2_model_load(r.engine, &folder, &small), EXL2_OK);
    exl2_job_desc d = job_of(&r, 0, 9, &without), o;
    rig_run(&r, &d);
    d = job_of(&r, 0, 9, &with);
    d.draft.model = small;
    exl2_job job, second;
    CHECK_INT(exl2_job_start(r.engine, &d, &job), EXL2_OK);
    CHECK_INT(exl2_job_start(r.engine, &d, &second), EXL2_ERR_BUDGET);
    exl2_job_cancel(r.engine, job);
    rig_drain(&r, 0);
    o = job_of(&r, 0, 9, &own);
    o.model = small;
    CHECK_INT(exl2_job_start(r.engine, &o, &second), EXL2_OK);
    CHECK_INT(exl2_job_start(r.engine, &d, &job), EXL2_ERR_BUDGET);
    text_check_refused(&r, EXL2_ERR_BUDGET, EXL2_ERR_BUDGET, "a draft model needs one");
    rig_drain(&r, 0);
    rig_close(&r);
    engine.max_jobs = 3;
    folder.cache.tokens = 0;
    r = rig_open(&engine, &folder);
    folder.cache.tokens = 128;
    CHECK_INT(exl2_model_load(r.engine, &folder, &small), EXL2_OK);
    for (uint32_t wait = 0; wait < 40; wait += 5) { /* the draft model's own job takes both of its pages */
        d = job_of(&r, 0, 9, &with);
        o = job_of(&r, 0, 9, &own);
        d.draft.model = o.model = small;
        d.model = r.model;
        CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
        for (uint32_t i = 0; i < wait; i++) {
            exl2_step(r.engine, NULL);
        }
        CHECK_INT(exl2_job_start(r.engine, &o, NULL), EXL2_OK);
        rig_drain(&r, 0);
        compare(&with, &without, 0, 9);
        CHECK(own.done_events == 1 && own.result == EXL2_OK);
    }
    rig_close(&r);
}

/* A job of the draft model takes a part of its pages, at any time of a job that drafts: the drafter gives way, and goes
   on only when it can be promised all of its own again. Asserts see a drafter that takes more than it was promised. */
static void squeezed_drafts(void)
{
    static rig_said with, without, own;
    exl2_engine_desc engine = text_engine(&model);
    exl2_model_desc folder = text_folder();
    engine.max_jobs = 3;
    rig r = rig_open(&engine, &folder);
    folder.cache.tokens = 320;
    exl2_model small;
    CHECK_INT(exl2_model_load(r.engine, &folder, &small), EXL2_OK);
    exl2_job_desc d = job_of(&r, 0, 9, &without), o;
    d.max_tokens = 240;
    rig_run(&r, &d);
    for (uint32_t wait = 0; wait < 60; wait++) {
        d = job_of(&r, 0, 9, &with);
        o = job_of(&r, 0, 9, &own);
        d.max_tokens = 240;
        o.max_tokens = 60;
        d.draft.model = o.model = small;
        CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
        for (uint32_t i = 0; i < wait; i++) {
            exl2_step(r.engine, NULL);
        }
        CHECK_INT(exl2_job_start(r.engine, &o, NULL), EXL2_OK);
        rig_drain(&r, 0);
        compare(&with, &without, 0, 9);
        CHECK(own.done_events == 1 && own.result == EXL2_OK);
    }
    rig_close(&r);
}

static void refuse(const rig *r, exl2_draft_desc draft, exl2_result wanted, const char *piece)
{
    static rig_said said;
    exl2_job_desc d = job_of(r, 0, 1, &said);
    d.draft = draft;
    text_check_refused(r, exl2_job_start(r->engine, &d, NULL), wanted, piece);
}

static void refused(const rig *r)
{
    exl2_model draft = load_draft(r, "exl2-mixed"), text, foreign;
    exl2_model_desc plain = text_folder();
    char *letter = strstr(model.tokenizer, "im_end") + 5; /* of a token */
    *letter = 'b';
    CHECK_INT(exl2_model_load(r->engine, &plain, &foreign), EXL2_OK);
    *letter = 'd';
    refuse(r, (exl2_draft_desc){ .model = r->model }, EXL2_ERR_ARG, "cannot draft for itself");
    refuse(r, (exl2_draft_desc){ .model = foreign }, EXL2_ERR_ARG, "its vocabulary is another one");
    refuse(r, (exl2_draft_desc){ .model = draft, .tokens = 16 }, EXL2_ERR_ARG, "at most 15 tokens");
    refuse(r, (exl2_draft_desc){ .model = { 77 } }, EXL2_ERR_STALE, "draft model handle");
    CHECK_INT(exl2_model_close(r->engine, foreign), EXL2_OK);
    plain = text_folder();
    plain.text_only = true;
    CHECK_INT(exl2_model_load(r->engine, &plain, &text), EXL2_OK);
    refuse(r, (exl2_draft_desc){ .model = text }, EXL2_ERR_STATE, "is not loaded");
    CHECK_INT(exl2_model_close(r->engine, text), EXL2_OK);
    CHECK_INT(exl2_model_close(r->engine, draft), EXL2_OK);
    refuse(r, (exl2_draft_desc){ .model = draft }, EXL2_ERR_STALE, "draft model handle");
    static rig_said said;
    exl2_job_desc d = job_of(r, 0, 1, &said);
    d.draft.ngram = true;
    d.guidance = 2;
    d.negative_prompt.tokens = text_prompt;
    d.negative_prompt.token_count = 2;
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_ERR_ARG);
    text_check_refused(r, EXL2_ERR_ARG, EXL2_ERR_ARG, "guidance cannot have drafts");
    d = job_of(r, 1, 1, &said);
    d.draft.ngram = d.draft.one_by_one = true;
    rig_run(r, &d);
    CHECK_INT(said.stats.drafted, 0);
}

int main(void)
{
    text_find_plan(&model, EXL2__COUNT(plan));
    text_write(&model, plan, EXL2__COUNT(plan), TEXT_CHAT_CONFIG);
    exl2_engine_desc engine = text_engine(&model);
    exl2_model_desc folder = text_folder();
    folder.cache.tokens = 8192;
    rig r = rig_open(&engine, &folder);
    exl2_grammar_desc gd = { .model = r.model, .kind = EXL2_GRAMMAR_JSON_SCHEMA };
    gd.source = "{\"type\":\"object\",\"properties\":{\"mood\":{\"enum\":[\"calm\",\"angry\"]},\"say\":{\"type\":"
                "\"string\",\"maxLength\":30},\"list\":{\"type\":\"array\",\"items\":{\"enum\":[true,false,null]},"
                "\"maxItems\":5}},\"required\":[\"mood\",\"say\",\"list\"]}";
    CHECK_INT(exl2_grammar_make(r.engine, &gd, &schema), EXL2_OK);
    gd.kind = EXL2_GRAMMAR_REGEX;
    gd.source = "([a-d]{1,9}( and then |, ))+";
    CHECK_INT(exl2_grammar_make(r.engine, &gd, &regex), EXL2_OK);
    how = (exl2_draft_desc){ .ngram = true };
    the_same(&r);
    forced_bans(&r);
    limits(&r);
    together(&r, 20);
    stopped(&r);
    draft_models(&r);
    refused(&r);
    rig_close(&r);
    narrow_ring();
    narrow_drafts();
    squeezed_drafts();
    return check_done();
}

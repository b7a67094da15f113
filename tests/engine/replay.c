/* replay.c: a job's tokens are the same however they are computed: alone, beside others, in any steps, with pages
   found, evicted or never shared, on forks, after preemptions, cancelled and continued, saved and restored, drafted.
   Four prompts, each greedy, sampled, with a grammar and with banned texts; ids and log-probabilities bit for bit.
   (bits.c compares chunks and threads.) `replay q6`: with a quantized cache. tests/device runs it on the GPU. */
#include "text_model.h"

#define PROMPTS 4u
#define KINDS 4u
#define JOBS (PROMPTS * KINDS)
#define NEW 40u

static text_model model;
static exl2_kv format; /* of K and V: the program's argument */
static const char *const plan[4] = { "fox", " is", "a", "b" };
static exl2_token prompts[PROMPTS][300];
static const uint32_t lengths[PROMPTS] = { 9, 64, 130, 290 };
static rig_said wanted[JOBS], got[JOBS];

static rig open_pool(uint64_t tokens, bool no_reuse)
{
    exl2_engine_desc e = text_engine(&model);
    exl2_model_desc m = text_folder();
    m.cache.tokens = tokens;
    m.cache.no_reuse = no_reuse;
    m.cache.format = format;
    m.prefill_chunk = 128; /* larger passes have other bits on a GPU */
    return rig_open(&e, &m);
}

/* Job i of 16. Its grammar may be closed once the job has started. */
static exl2_job_desc job_of(const rig *r, uint32_t i, rig_said *said)
{
    static const char *const bans[3] = { "a", "q", "t" };
    uint32_t p = i % PROMPTS, kind = i / PROMPTS;
    memset(said, 0, sizeof *said);
    exl2_job_desc d = rig_job(r, prompts[p], lengths[p], NEW, said);
    d.sampler.preset = kind == 0 ? EXL2_PRESET_GREEDY : EXL2_PRESET_NEUTRAL;
    d.sampler.seed = 100 + i + 17 * format; /* so that in each format banned texts come up */
    if (kind == 2) {
        exl2_grammar_desc g = { .model = r->model, .kind = EXL2_GRAMMAR_REGEX, .source = "([a-z]{3,9} )*[a-z]+\\." };
        CHECK_INT(exl2_grammar_make(r->engine, &g, &d.grammar), EXL2_OK);
    } else if (kind == 3) {
        d.ban_strings = bans;
        d.ban_string_count = 3;
    }
    return d;
}

static exl2_job start(const rig *r, exl2_job_desc *d)
{
    exl2_job job = { 0 };
    CHECK_INT(exl2_job_start(r->engine, d, &job), EXL2_OK);
    if (d->grammar.id) {
        exl2_grammar_close(r->engine, d->grammar);
    }
    return job;
}

static void check_same(uint32_t i, const char *how)
{
    const rig_said *a = &got[i], *b = &wanted[i];
    bool same = a->count == b->count && a->stop == b->stop && a->bytes == b->bytes && a->done_events == 1
             && memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0 && memcmp(a->text, b->text, a->bytes) == 0
             && memcmp(a->logprobs, b->logprobs, a->count * sizeof *a->logprobs) == 0;
    if (!CHECK(same)) {
        printf("  %s: job %u differs\n", how, (unsigned)i);
    }
}

/* One pass, or a part of it that the GPU has not finished. */
static void step_once(const rig *r)
{
    exl2_step_desc step = { .wait = true };
    exl2_step(r->engine, &step);
}

static void drain(const rig *r, uint32_t us)
{
    exl2_step_desc step = { .cpu_us = us, .gpu_us = us, .wait = us == 0 };
    while (exl2_step(r->engine, &step) != EXL2_IDLE) {
    }
}

static void check_together(const rig *r, uint32_t us, bool drafts, const char *how)
{
    for (uint32_t i = 0; i < JOBS; i++) {
        exl2_job_desc d = job_of(r, i, &got[i]);
        d.draft.ngram = drafts;
        start(r, &d);
    }
    drain(r, us);
    for (uint32_t i = 0; i < JOBS; i++) {
        check_same(i, how);
    }
}

/* Jobs of a rising priority keep taking the pages of those that run. */
static void check_preempted(const rig *r)
{
    exl2_engine_stats stats;
    for (uint32_t i = 0; i < JOBS; i++) {
        exl2_job_desc d = job_of(r, i, &got[i]);
        d.priority = (int32_t)i;
        start(r, &d);
        for (uint32_t k = 0; k < 5 + i; k++) {
            step_once(r);
        }
    }
    drain(r, 0);
    exl2_stats(r->engine, &stats);
    CHECK(stats.preemptions > 10);
    printf("%u preemptions, %u evictions\n", (unsigned)stats.preemptions, (unsigned)stats.evictions);
    for (uint32_t i = 0; i < JOBS; i++) {
        check_same(i, "preempted");
    }
}

/* A job that others preempt counts as waiting, and gets each text once. */
static void check_states(void)
{
    static rig_said low, high;
    exl2_job_info info;
    rig r = open_pool(512, false);
    memset(&high, 0, sizeof high);
    exl2_job_desc d = job_of(&r, 7, &low);
    exl2_job job = start(&r, &d);
    while (low.count < 10) {
        step_once(&r);
    }
    exl2_job_desc over = rig_job(&r, prompts[3], 290, 120, &high);
    over.priority = 1;
    CHECK_INT(exl2_job_start(r.engine, &over, NULL), EXL2_OK);
    do { /* on a GPU a pass may be under way */
        step_once(&r);
        CHECK_INT(exl2_job_get(r.engine, job, &info), EXL2_OK);
    } while (RIG_BACKEND != EXL2_BACKEND_CPU && info.state != EXL2_JOB_QUEUED && high.count == 0);
    CHECK_INT(info.state, EXL2_JOB_QUEUED);
    CHECK_INT(low.done_events, 0);
    drain(&r, 0);
    CHECK(high.done_events == 1 && high.count > 10);
    got[7] = low;
    check_same(7, "waited in between");
    rig_close(&r);
}

/* Saved after some tokens, and resumed in another session, whose K and V are computed again or come from the save. */
static void check_saved(const rig *r)
{
    static uint8_t saved[1u << 21];
    for (uint32_t i = 0; i < JOBS; i++) {
        exl2_session from, to;
        size_t bytes;
        CHECK_INT(exl2_session_open(r->engine, r->model, &from), EXL2_OK);
        CHECK_INT(exl2_session_open(r->engine, r->model, &to), EXL2_OK);
        exl2_job_desc d = job_of(r, i, &got[i]);
        d.session = from;
        exl2_job job = start(r, &d);
        while (got[i].count < 5 + i && got[i].done_events == 0) {
            step_once(r);
        }
        if (got[i].done_events == 0) {
            uint32_t had = got[i].count, had_bytes = got[i].bytes;
            static rig_said rest;
            CHECK_INT(exl2_session_save(r->engine, from, i % 2 ? EXL2_SAVE_KV : 0, saved, sizeof saved, &bytes),
                      EXL2_OK);
            exl2_job_cancel(r->engine, job);
            drain(r, 0);
            CHECK_INT(exl2_session_close(r->engine, from), EXL2_OK);
            CHECK_INT(exl2_session_restore(r->engine, to, saved, bytes), EXL2_OK);
            exl2_job_desc again = job_of(r, i, &rest);
            again.session = to;
            again.prompt = (exl2_prompt){ 0 };
            again.resume = true;
            start(r, &again);
            drain(r, 0);
            rest.count = rest.count < NEW - had ? rest.count : NEW - had;
            memcpy(got[i].ids + had, rest.ids, rest.count * sizeof rest.ids[0]);
            memcpy(got[i].logprobs + had, rest.logprobs, rest.count * sizeof rest.logprobs[0]);
            memcpy(got[i].text + had_bytes, rest.text, rest.bytes);
            got[i].count = had + rest.count;
            got[i].bytes = had_bytes + rest.bytes;
            got[i].stop = rest.stop;
            got[i].done_events = rest.done_events;
        }
        check_same(i, "saved and restored");
        exl2_session_close(r->engine, from);
        exl2_session_close(r->engine, to);
    }
}

/* Cancelled after some tokens, and continued from the history in the same session or in a fork. */
static void check_continued(const rig *r)
{
    for (uint32_t i = 0; i < 2 * PROMPTS; i++) {
        exl2_session s, fork;
        static rig_said rest;
        CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
        exl2_job_desc d = job_of(r, i, &got[i]);
        d.session = s;
        exl2_job job = start(r, &d);
        while (got[i].count < 7 + i && got[i].done_events == 0) {
            step_once(r);
        }
        exl2_job_cancel(r->engine, job);
        drain(r, 0);
        uint32_t had = got[i].count;
        CHECK_INT(exl2_session_fork(r->engine, s, &fork), EXL2_OK);
        for (uint32_t k = 0; k < 2 && had < wanted[i].count; k++) {
            exl2_job_desc again = job_of(r, i, &rest);
            again.session = k ? fork : s;
            again.prompt.tokens = NULL;
            again.prompt.token_count = 0;
            again.max_tokens = NEW - had;
            rig_run(r, &again);
            got[i].count = had;
            memcpy(got[i].ids + had, rest.ids, rest.count * sizeof rest.ids[0]);
            memcpy(got[i].logprobs + had, rest.logprobs, rest.count * sizeof rest.logprobs[0]);
            got[i].count += rest.count;
            got[i].stop = rest.stop;
            got[i].bytes = wanted[i].bytes; /* the text may have an incomplete code point at the cut */
            memcpy(got[i].text, wanted[i].text, wanted[i].bytes);
            check_same(i, k ? "continued in a fork" : "continued");
        }
        exl2_session_close(r->engine, s);
        exl2_session_close(r->engine, fork);
    }
}

int main(int argc, char **argv)
{
    static const char *const names[] = { "fp16", "q8", "q6", "q4" };
    for (uint32_t f = 0; argc > 1 && f < 4; f++) {
        format = strcmp(argv[1], names[f]) == 0 ? (exl2_kv)f : format;
    }
    text_find_plan(&model, 4);
    text_write(&model, plan, 4, TEXT_CHAT_CONFIG);
    for (uint32_t p = 0; p < PROMPTS; p++) {
        for (uint32_t k = 0; k < lengths[p]; k++) { /* the first 50 are common */
            prompts[p][k] = (exl2_token)(20 + (k * 13 + (k > 50 ? p * 7 * k : 0)) % 250);
        }
    }
    rig apart = open_pool(16384, true);
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < JOBS; i++) {
        exl2_job_desc d = job_of(&apart, i, &wanted[i]);
        start(&apart, &d);
        drain(&apart, 0);
        tokens += wanted[i].count;
        CHECK_INT(wanted[i].done_events, 1);
    }
    CHECK(tokens > JOBS * NEW / 2);
    CHECK(wanted[12].stats.bans_avoided + wanted[13].stats.bans_avoided + wanted[14].stats.bans_avoided > 0);
    check_together(&apart, 0, false, "together, nothing shared");
    rig_close(&apart);
    rig large = open_pool(16384, false), small = open_pool(512, false);
    check_together(&large, 0, false, "together");
    check_together(&large, 0, false, "together again, all found");
    check_together(&large, 1, false, "in the shortest steps");
    check_together(&large, 0, true, "with drafts");
    check_together(&large, 1, true, "with drafts, in the shortest steps");
    check_continued(&large);
    check_saved(&large);
    check_together(&small, 0, false, "in a small pool");
    check_together(&small, 1, false, "in a small pool, in the shortest steps");
    check_continued(&small);
    check_preempted(&small);
    check_states();
    rig_close(&large);
    rig_close(&small);
    return check_done();
}

/* replay_rig.h: what replay.c and replay_pictures.c share: sixteen jobs. They are four prompts, each greedy, sampled,
   with a grammar and with banned texts. What each says alone is noted in replay_wanted. However else it is computed, it
   must say the same: ids and log-probabilities bit for bit.
   takes: rig.h; REPLAY_NEW, the new tokens of a job; replay_job and replay_what, which the test sets.
   gives: replay_job, replay_what, replay_wanted, replay_got, replay_settings, replay_start, replay_rest,
          replay_check_same, replay_step, replay_drain, replay_alone, replay_together, replay_preempted, replay_join,
          replay_continued. */
#ifndef REPLAY_RIG_H
#define REPLAY_RIG_H

#include "rig.h"

#define REPLAY_PROMPTS 4u
#define REPLAY_KINDS 4u
#define REPLAY_JOBS (REPLAY_PROMPTS * REPLAY_KINDS)

/* Job i of 16; its pictures and its grammar may be closed once it has started. */
static exl2_job_desc (*replay_job)(const rig *r, uint32_t i, rig_said *said);
static const char *replay_what = ""; /* what differs between runs of all checks, for messages */
static rig_said replay_wanted[REPLAY_JOBS], replay_got[REPLAY_JOBS];

/* How the kind of job i samples. */
static void replay_settings(const rig *r, uint32_t i, const char *regex, exl2_job_desc *d)
{
    static const char *const bans[3] = { "a", "q", "t" };
    uint32_t kind = i / REPLAY_PROMPTS;
    d->sampler.preset = kind == 0 ? EXL2_PRESET_GREEDY : EXL2_PRESET_NEUTRAL;
    if (kind == 2) {
        exl2_grammar_desc g = { .model = r->model, .kind = EXL2_GRAMMAR_REGEX, .source = regex };
        CHECK_INT(exl2_grammar_make(r->engine, &g, &d->grammar), EXL2_OK);
    } else if (kind == 3) {
        d->ban_strings = bans;
        d->ban_string_count = 3;
    }
}

static void replay_close_pictures(const rig *r, const exl2_job_desc *d)
{
    for (size_t k = 0; k < d->prompt.image_count; k++) {
        CHECK_INT(exl2_image_close(r->engine, d->prompt.images[k]), EXL2_OK);
    }
}

static exl2_job replay_start(const rig *r, const exl2_job_desc *d)
{
    exl2_job job = { 0 };
    exl2_result result = exl2_job_start(r->engine, d, &job);
    if (!CHECK_INT(result, EXL2_OK)) {
        rig_fail(r->engine, "exl2_job_start", result);
    }
    replay_close_pictures(r, d);
    if (d->grammar.id) {
        exl2_grammar_close(r->engine, d->grammar);
    }
    return job;
}

/* Job i without its prompt, in a session that has begun it. */
static exl2_job_desc replay_rest(const rig *r, uint32_t i, exl2_session s, rig_said *said)
{
    exl2_job_desc d = replay_job(r, i, said);
    replay_close_pictures(r, &d);
    d.prompt = (exl2_prompt){ 0 };
    d.session = s;
    return d;
}

static void replay_check_same(uint32_t i, const char *how)
{
    const rig_said *a = &replay_got[i], *b = &replay_wanted[i];
    bool same = a->count == b->count && a->stop == b->stop && a->bytes == b->bytes && a->done_events == 1
             && memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0 && memcmp(a->text, b->text, a->bytes) == 0
             && memcmp(a->logprobs, b->logprobs, a->count * sizeof *a->logprobs) == 0;
    if (!CHECK(same)) {
        printf("  %s%s: job %u differs: %s\n", replay_what, how, (unsigned)i, a->error);
    }
}

/* One pass, or a part of it that the GPU has not finished. */
static void replay_step(const rig *r)
{
    exl2_step_desc step = { .wait = true };
    exl2_step(r->engine, &step);
}

static void replay_drain(const rig *r, uint32_t us)
{
    exl2_step_desc step = { .cpu_us = us, .gpu_us = us, .wait = us == 0 };
    while (exl2_step(r->engine, &step) != EXL2_IDLE) {
    }
}

/* Notes what each job says alone; returns how many tokens these are. */
static uint32_t replay_alone(const rig *r)
{
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < REPLAY_JOBS; i++) {
        exl2_job_desc d = replay_job(r, i, &replay_wanted[i]);
        replay_start(r, &d);
        replay_drain(r, 0);
        tokens += replay_wanted[i].count;
        CHECK_INT(replay_wanted[i].done_events, 1);
    }
    return tokens;
}

/* All jobs at the same time, in steps of so many microseconds; 0: whole passes. */
static void replay_together(const rig *r, uint32_t us, bool drafts, const char *how)
{
    for (uint32_t i = 0; i < REPLAY_JOBS; i++) {
        exl2_job_desc d = replay_job(r, i, &replay_got[i]);
        d.draft.ngram = drafts;
        replay_start(r, &d);
    }
    replay_drain(r, us);
    for (uint32_t i = 0; i < REPLAY_JOBS; i++) {
        replay_check_same(i, how);
    }
}

/* Jobs of a rising priority keep taking the pages of those that run, for which job i leaves them first + i / each
   steps. Returns how many were preempted in this engine. */
static uint64_t replay_preempted(const rig *r, uint32_t first, uint32_t each)
{
    exl2_engine_stats stats;
    for (uint32_t i = 0; i < REPLAY_JOBS; i++) {
        exl2_job_desc d = replay_job(r, i, &replay_got[i]);
        d.priority = (int32_t)i;
        replay_start(r, &d);
        for (uint32_t k = 0; k < first + i / each; k++) {
            replay_step(r);
        }
    }
    replay_drain(r, 0);
    exl2_stats(r->engine, &stats);
    printf("%s%u preemptions, %u evictions\n", replay_what, (unsigned)stats.preemptions, (unsigned)stats.evictions);
    for (uint32_t i = 0; i < REPLAY_JOBS; i++) {
        replay_check_same(i, "preempted");
    }
    return stats.preemptions;
}

/* What was said before a cut and what was said after it. */
static void replay_join(rig_said *said, const rig_said *rest, uint32_t had, uint32_t had_bytes)
{
    memcpy(said->ids + had, rest->ids, rest->count * sizeof rest->ids[0]);
    memcpy(said->logprobs + had, rest->logprobs, rest->count * sizeof rest->logprobs[0]);
    memcpy(said->text + had_bytes, rest->text, rest->bytes);
    said->count = had + rest->count;
    said->bytes = had_bytes + rest->bytes;
    said->stop = rest->stop;
    said->done_events = rest->done_events;
    memcpy(said->error, rest->error, sizeof said->error);
}

/* Cancelled after some tokens, and continued from the history in the same session or in a fork: jobs of the two kinds
   whose settings do not look back at the job's own text. */
static void replay_continued(const rig *r, uint32_t first)
{
    static rig_said rest;
    for (uint32_t i = 0; i < 2 * REPLAY_PROMPTS; i++) {
        rig_said *said = &replay_got[i];
        exl2_session s, fork;
        CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
        exl2_job_desc d = replay_job(r, i, said);
        d.session = s;
        exl2_job job = replay_start(r, &d);
        while (said->count < first + i && said->done_events == 0) {
            replay_step(r);
        }
        exl2_job_cancel(r->engine, job);
        replay_drain(r, 0);
        uint32_t had = said->count;
        CHECK_INT(exl2_session_fork(r->engine, s, &fork), EXL2_OK);
        for (uint32_t k = 0; k < 2 && had < replay_wanted[i].count; k++) {
            exl2_job_desc again = replay_rest(r, i, k ? fork : s, &rest);
            again.max_tokens = REPLAY_NEW - had;
            rig_run(r, &again);
            replay_join(said, &rest, had, 0);
            said->bytes = replay_wanted[i].bytes; /* the text may have an incomplete code point at the cut */
            memcpy(said->text, replay_wanted[i].text, said->bytes);
            replay_check_same(i, k ? "continued in a fork" : "continued");
        }
        exl2_session_close(r->engine, s);
        exl2_session_close(r->engine, fork);
    }
}

#endif

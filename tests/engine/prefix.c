/* prefix.c: what many sessions with a common beginning compute: each of its tokens once, whether the jobs start one by
   one or together, and with any order of ends. Idle sessions hold no pages, edited histories keep what comes before the
   edit, and with cache.no_reuse only forks share. On a tiny model, by ids. */
#include "rig.h"

#define SESSIONS 64u
#define WORLD 1024u
#define OWN 118u

static exl2_token world[WORLD + OWN];
static rig_said said[2];

static exl2_engine_stats stats_of(const rig *r)
{
    exl2_engine_stats stats;
    exl2_stats(r->engine, &stats);
    return stats;
}

static rig open_world(uint64_t tokens, bool no_reuse)
{
    exl2_engine_desc e = { .max_sessions = SESSIONS + 2, .max_jobs = SESSIONS };
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .context_max = 1280, .batch_max = 16 };
    m.cache.tokens = tokens;
    m.cache.no_reuse = no_reuse;
    return rig_open(&e, &m);
}

static exl2_flow count_end(void *user, const exl2_event *ev)
{
    uint64_t *sums = (uint64_t *)user; /* prompt tokens that the jobs computed; DONE events */
    if (ev->kind == EXL2_EVENT_DONE) {
        sums[0] += ev->stats.prompt_tokens - ev->stats.reused_tokens;
        sums[1]++;
        CHECK(ev->result == EXL2_OK || ev->result == EXL2_ERR_CANCELLED);
    }
    return EXL2_CONTINUE;
}

/* The prompt of session i: the world and 118 tokens of its own. */
static exl2_job_desc own_job(const rig *r, uint32_t i, exl2_session s, uint64_t *sums)
{
    for (uint32_t k = 0; k < OWN; k++) {
        world[WORLD + k] = (exl2_token)((i * 71 + k * (3 + i) + 5) % 300);
    }
    exl2_job_desc d = rig_job(r, world, WORLD + OWN, 2, NULL);
    d.session = s;
    d.on_event = count_end;
    d.user = sums;
    return d;
}

static void check_sessions(bool together, uint64_t pool, bool cancels)
{
    uint64_t sums[2] = { 0 };
    exl2_session s[SESSIONS];
    exl2_job first = { 0 };
    rig r = open_world(pool, false);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        CHECK_INT(exl2_session_open(r.engine, r.model, &s[i]), EXL2_OK);
        exl2_job_desc d = own_job(&r, i, s[i], sums);
        if (together) {
            CHECK_INT(exl2_job_start(r.engine, &d, i ? NULL : &first), EXL2_OK);
        } else {
            CHECK_INT(exl2_generate(r.engine, &d), EXL2_OK);
        }
    }
    if (cancels) { /* the job that fills the world ends in the middle of it: the next one goes on */
        exl2_step_desc tiny = { .cpu_us = 1 };
        exl2_job_info info = { 0 };
        for (uint32_t i = 0; i < 200 && info.state != EXL2_JOB_PREFILL; i++) {
            exl2_step(r.engine, &tiny);
            exl2_job_get(r.engine, first, &info);
        }
        memset(sums, 0, sizeof sums);
        exl2_session_close(r.engine, s[0]);
        exl2_step_desc small = { .cpu_us = 50 };
        while (exl2_step(r.engine, &small) != EXL2_IDLE) {
        }
    } else {
        rig_drain(&r, 0);
        CHECK_INT(sums[0], WORLD + SESSIONS * OWN);
        CHECK_INT(stats_of(&r).tokens_in, WORLD + SESSIONS * OWN);
        CHECK_INT(sums[1], SESSIONS);
    }
    CHECK_INT(stats_of(&r).pages_used, 0);
    rig_close(&r);
}

/* A pool of four pages: idle sessions never keep a job from running, and each continues with the same words, found or
   computed again. */
static void idle_sessions_hold_nothing(void)
{
    rig r = open_world(1280, false);
    exl2_session s[6];
    exl2_session_info info;
    static rig_said straight[6];
    for (uint32_t i = 0; i < 6; i++) {
        CHECK_INT(exl2_session_open(r.engine, r.model, &s[i]), EXL2_OK);
        memset(&straight[i], 0, sizeof straight[i]);
        exl2_job_desc d = rig_job(&r, world + i * 40, 900, 40, &straight[i]);
        rig_run(&r, &d);
    }
    uint64_t evictions = stats_of(&r).evictions;
    for (uint32_t part = 0; part < 4; part++) {
        for (uint32_t i = 0; i < 6; i++) {
            memset(&said[0], 0, sizeof said[0]);
            exl2_job_desc d = rig_job(&r, world + i * 40, part ? 0 : 900, 10, &said[0]);
            d.session = s[i];
            rig_run(&r, &d);
            CHECK(memcmp(said[0].ids, straight[i].ids + part * 10, 10 * sizeof(exl2_token)) == 0);
            CHECK(memcmp(said[0].logprobs, straight[i].logprobs + part * 10, 10 * sizeof(float)) == 0);
            CHECK_INT(exl2_session_get(r.engine, s[i], &info), EXL2_OK);
            CHECK_INT(info.tokens, 900 + (part + 1) * 10);
            CHECK_INT(info.tokens_cached, info.tokens - 1); /* of the newest session nothing was evicted */
        }
    }
    CHECK(stats_of(&r).evictions > evictions + 100);
    CHECK_INT(stats_of(&r).pages_used, 0);
    CHECK_INT(exl2_session_get(r.engine, s[0], &info), EXL2_OK);
    CHECK(info.tokens_cached < info.tokens - 1);
    rig_close(&r);
}

/* The number of prompt tokens that the job finds. */
static uint32_t reused(const rig *r, exl2_session s, const exl2_token *ids, uint32_t count)
{
    memset(&said[1], 0, sizeof said[1]);
    exl2_job_desc d = rig_job(r, ids, count, 1, &said[1]);
    exl2_job_size size;
    d.session = s;
    CHECK_INT(exl2_job_measure(r->engine, &d, &size), EXL2_OK);
    rig_run(r, &d);
    CHECK_INT(said[1].stats.reused_tokens, size.reused_tokens);
    return said[1].stats.reused_tokens;
}

static void edits_keep_what_is_before(void)
{
    static exl2_token ids[300];
    rig r = open_world(8192, false);
    exl2_session none = { 0 };
    memcpy(ids, world, sizeof ids);
    CHECK_INT(reused(&r, none, ids, 300), 0);
    CHECK_INT(reused(&r, none, ids, 300), 299);
    CHECK_INT(reused(&r, none, ids, 210), 209);
    for (uint32_t edit = 299; edit > 0; edit -= edit > 13 ? 13 : edit) {
        exl2_token before = ids[edit];
        ids[edit] = before == 7 ? 8 : 7;
        uint32_t got = reused(&r, none, ids, 300);
        CHECK(edit % 64 < 8 ? got == edit || got == edit / 64 * 64 : got == edit); /* fewer than 8 are not copied */
        ids[edit] = before;
    }
    rig_close(&r);
}

static void only_forks_share(void)
{
    rig r = open_world(8192, true);
    exl2_session a, b, fork;
    CHECK_INT(exl2_session_open(r.engine, r.model, &a), EXL2_OK);
    CHECK_INT(exl2_session_open(r.engine, r.model, &b), EXL2_OK);
    CHECK_INT(reused(&r, a, world, 210), 0);
    CHECK_INT(reused(&r, b, world, 210), 0);
    CHECK_INT(exl2_session_rewind(r.engine, a, 150), EXL2_OK);
    CHECK_INT(exl2_session_fork(r.engine, a, &fork), EXL2_OK);
    uint64_t in = stats_of(&r).tokens_in;
    CHECK_INT(reused(&r, fork, world + 150, 60), 59); /* its history comes from `a`, and so do these tokens */
    CHECK_INT(reused(&r, a, world + 150, 60), 59);
    CHECK_INT(stats_of(&r).tokens_in - in, 2);
    exl2_session none = { 0 };
    CHECK_INT(reused(&r, none, world, 210), 0);
    rig_close(&r);
}

int main(void)
{
    for (uint32_t i = 0; i < WORLD; i++) {
        world[i] = (exl2_token)((i * 37 + i / 64 * 11 + 3) % 300);
    }
    check_sessions(false, 16384, false);
    check_sessions(true, 16384, false);
    check_sessions(true, 2560, false); /* of the pool's 40 pages 16 have the world: 8 run at a time */
    check_sessions(true, 16384, true);
    idle_sessions_hold_nothing();
    edits_keep_what_is_before();
    only_forks_share();
    return check_done();
}

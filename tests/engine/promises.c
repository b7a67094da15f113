/* promises.c: jobs that are promised pages for a part of their tokens at a time: more of them run at once, words stay
   the same when they outgrow their promise, and the first job always gets on. On a tiny model, by ids. */
#include "rig.h"

#define JOBS 16
#define WORDS 50     /* after so many tokens an application has heard enough */

static rig_said alone[JOBS], saids[JOBS];

static exl2_token ids[JOBS + 100];

static exl2_flow hear_some(void *user, const exl2_event *ev)
{
    const rig_said *said = (const rig_said *)user;
    rig_hear(user, ev);
    return said->count >= WORDS ? EXL2_STOP_JOB : EXL2_CONTINUE;
}

static rig open_model(uint32_t cache_tokens)
{
    exl2_model_desc m = { 0 };
    m.path = rig_golden("exl2-mixed");
    m.context_max = 1024;
    m.cache.tokens = cache_tokens;
    m.batch_max = JOBS;
    m.cache.no_reuse = true; /* what begins alike would share pages */
    return rig_open(NULL, &m);
}

/* A sampled job of 20 prompt tokens, the i-th of its kind. */
static exl2_job_desc job(const rig *r, uint32_t i, uint32_t max_tokens, uint32_t reserve, rig_said *said)
{
    memset(said, 0, sizeof *said);
    exl2_job_desc d = rig_job(r, ids + i, 20, max_tokens, said);
    d.sampler = (exl2_sampler_desc){ .temperature = 1, .seed = 1 + i };
    d.reserve = reserve;
    return d;
}

static void start(const rig *r, const exl2_job_desc *d)
{
    exl2_job started;
    CHECK_INT(exl2_job_start(r->engine, d, &started), EXL2_OK);
}

/* Runs jobs that are stopped by their callbacks. Returns the number of passes; *most: of jobs that ran at once. */
static uint64_t talk(const rig *r, uint32_t max_tokens, uint32_t reserve, uint32_t *most)
{
    exl2_engine_stats before, now;
    exl2_stats(r->engine, &before);
    for (uint32_t i = 0; i < JOBS; i++) {
        exl2_job_desc d = job(r, i, max_tokens, reserve, &saids[i]);
        d.on_event = hear_some;
        start(r, &d);
    }
    *most = 0;
    do {
        exl2_stats(r->engine, &now);
        *most = now.jobs_active > *most ? now.jobs_active : *most;
    } while (exl2_step(r->engine, NULL) != EXL2_IDLE);
    exl2_stats(r->engine, &now);
    for (uint32_t i = 0; i < JOBS; i++) {
        CHECK_INT(saids[i].done_events, 1);
        CHECK(saids[i].stop == EXL2_STOP_CALLBACK || saids[i].stop == EXL2_STOP_EOS);
    }
    return now.forwards - before.forwards;
}

/* Jobs that may be long and are short run as fast as jobs that may not be long. */
static void short_texts(void)
{
    rig r = open_model(JOBS * 128);
    uint32_t small, large, reserved;
    uint64_t passes = talk(&r, 64, 0, &small);
    uint64_t queued = talk(&r, 900, 0, &large);
    CHECK(large <= 2); /* a promise of 920 tokens is 15 of the 32 pages */
    CHECK(queued > 6 * passes);
    CHECK_INT(talk(&r, 900, 64, &reserved), passes);
    CHECK_INT(reserved, small);
    CHECK_INT(small, JOBS);
    rig_close(&r);
}

static void same(const rig_said *a, const rig_said *b)
{
    CHECK_INT(a->done_events, 1);
    CHECK_INT(a->result, EXL2_OK);
    CHECK_INT(a->stop, b->stop);
    CHECK_INT(a->count, b->count);
    CHECK(memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0);
}

/* Jobs that outgrow their promises in a cache that cannot hold them all: the words that each has alone. */
static void outgrown(uint32_t reserve, bool guided)
{
    rig r = open_model(1024);
    exl2_engine_stats before, now;
    uint32_t length = guided ? 300 : 400, count = guided ? 6 : 8;
    for (uint32_t i = 0; i < 2 * count; i++) {
        rig_said *said = i < count ? &alone[i] : &saids[i - count];
        exl2_job_desc d = job(&r, i % count, length, i < count ? 0 : reserve, said);
        d.min_tokens = d.max_tokens;
        d.priority = i >= count ? (int32_t)(i % 3) : 0;
        d.guidance = guided ? 1.5f : 0;
        d.negative_prompt.tokens = guided ? ids + 30 : NULL;
        d.negative_prompt.token_count = guided ? 10 : 0;
        if (i < count) {
            rig_run(&r, &d);
        } else {
            start(&r, &d);
        }
    }
    exl2_stats(r.engine, &before);
    rig_drain(&r, 0);
    exl2_stats(r.engine, &now);
    printf("reserve %u: %u preemptions, %u passes\n", reserve, (unsigned)(now.preemptions - before.preemptions),
           (unsigned)(now.forwards - before.forwards));
    CHECK(now.preemptions > before.preemptions);
    CHECK_INT(now.jobs_active + now.jobs_waiting, 0);
    for (uint32_t i = 0; i < count; i++) {
        same(&saids[i], &alone[i]);
        CHECK_INT(saids[i].count, length);
    }
    rig_close(&r);
}

/* Of jobs of one priority the first gets all that it needs: it is never preempted, and ends first. */
static void first_goes_on(void)
{
    rig r = open_model(1024);
    exl2_job jobs[4];
    exl2_job_info info;
    for (uint32_t i = 0; i < 4; i++) {
        exl2_job_desc d = job(&r, i, 600, 64, &saids[i]);
        d.min_tokens = d.max_tokens;
        CHECK_INT(exl2_job_start(r.engine, &d, &jobs[i]), EXL2_OK);
    }
    CHECK_INT(exl2_step(r.engine, NULL), EXL2_OK);
    while (saids[0].done_events == 0) {
        CHECK_INT(exl2_job_get(r.engine, jobs[0], &info), EXL2_OK);
        CHECK(info.state != EXL2_JOB_QUEUED);
        CHECK(exl2_step(r.engine, NULL) != EXL2_IDLE);
    }
    for (uint32_t i = 1; i < 4; i++) {
        CHECK_INT(saids[i].done_events, 0);
        CHECK(saids[i].count < 600);
    }
    rig_drain(&r, 0);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_INT(saids[i].count, 600);
    }
    rig_close(&r);
}

/* A paused job gives its pages to one that grows; it has its words when it goes on. */
static void paused(void)
{
    rig r = open_model(1024);
    exl2_job other;
    exl2_job_desc d = job(&r, 0, 500, 0, &alone[0]);
    d.min_tokens = d.max_tokens;
    rig_run(&r, &d);
    d = job(&r, 0, 500, 100, &saids[0]);
    d.min_tokens = d.max_tokens;
    CHECK_INT(exl2_job_start(r.engine, &d, &other), EXL2_OK);
    while (saids[0].count < 300) {
        exl2_step(r.engine, NULL);
    }
    CHECK_INT(exl2_job_pause(r.engine, other, true), EXL2_OK);
    d = job(&r, 1, 900, 64, &saids[1]); /* 15 of 16 pages */
    d.min_tokens = d.max_tokens;
    rig_run(&r, &d);
    CHECK_INT(saids[1].count, 900);
    CHECK_INT(saids[0].done_events, 0);
    CHECK_INT(exl2_job_pause(r.engine, other, false), EXL2_OK);
    rig_drain(&r, 0);
    same(&saids[0], &alone[0]);
    rig_close(&r);
}

/* What measure says is what a start promises, and a job that can never fit is still rejected. */
static void measured(void)
{
    rig r = open_model(1024);
    exl2_job_size size;
    exl2_job_desc d = job(&r, 0, 1000, 0, &saids[0]);
    CHECK_INT(exl2_job_measure(r.engine, &d, &size), EXL2_OK);
    CHECK_INT(size.pages_needed, 16);
    d.reserve = 100;
    CHECK_INT(exl2_job_measure(r.engine, &d, &size), EXL2_OK);
    CHECK_INT(size.pages_needed, 2);
    CHECK_INT(size.max_tokens, 1000);
    d.reserve = 1; /* as 64 */
    CHECK_INT(exl2_job_measure(r.engine, &d, &size), EXL2_OK);
    CHECK_INT(size.pages_needed, 2);
    d.reserve = UINT32_MAX;
    CHECK_INT(exl2_job_measure(r.engine, &d, &size), EXL2_OK);
    CHECK_INT(size.pages_needed, 16);
    rig_close(&r);
    r = open_model(512);
    exl2_job started;
    d = job(&r, 0, 1000, 64, &saids[0]);
    CHECK_INT(exl2_job_start(r.engine, &d, &started), EXL2_ERR_BUDGET);
    rig_close(&r);
}

int main(void)
{
    for (uint32_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        ids[i] = (exl2_token)(20 + (i * 37 + i * i * 11) % 250);
    }
    short_texts();
    outgrown(64, false);
    outgrown(200, false);
    outgrown(64, true);
    first_goes_on();
    paused();
    measured();
    return check_done();
}

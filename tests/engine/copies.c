/* copies.c: shared pages are copied before a job writes to them, even if the job has no rows yet: it may be held,
   cancelled or forked from. The number of pending copies is bounded, and every session reads its own history. */
#include "rig.h"

#include "private/objects.h"

#define WORLD 70 /* tokens: a whole page and part of another */
#define NEW 12

static exl2_token world_ids[WORLD];
static const exl2_token question[3] = { 5, 9, 17 };

static exl2_session fork_of(const rig *r, exl2_session from)
{
    exl2_session fork = { 0 };
    CHECK_INT(exl2_session_fork(r->engine, from, &fork), EXL2_OK);
    return fork;
}

/* The same job for any session. */
static exl2_job_desc ask(const rig *r, exl2_session session, rig_said *said)
{
    memset(said, 0, sizeof *said);
    exl2_job_desc d = rig_job(r, question, 3, NEW, said);
    d.session = session;
    return d;
}

static exl2_session make_world(const rig *r)
{
    static rig_said said;
    exl2_session world = { 0 };
    CHECK_INT(exl2_session_open(r->engine, r->model, &world), EXL2_OK);
    exl2_job_desc fill = rig_job(r, world_ids, WORLD, 0, &said);
    fill.session = world;
    fill.prefill_only = true;
    rig_run(r, &fill);
    return world;
}

static void check_same(const rig_said *got, const rig_said *wanted)
{
    CHECK_INT(got->count, wanted->count);
    CHECK(memcmp(got->ids, wanted->ids, wanted->count * sizeof(exl2_token)) == 0);
    CHECK(memcmp(got->logprobs, wanted->logprobs, wanted->count * sizeof(float)) == 0);
}

/* A job that holds its pages but must not run yet. */
static exl2_job start_held(const rig *r, exl2_session session, rig_said *said)
{
    exl2_job job = { 0 };
    exl2_job_desc d = ask(r, session, said);
    CHECK_INT(exl2_job_start(r->engine, &d, &job), EXL2_OK);
    CHECK_INT(exl2_job_pause(r->engine, job, true), EXL2_OK);
    rig_drain(r, 0);
    CHECK_INT(said->count + said->done_events, 0);
    return job;
}

/* More held and cancelled jobs than pages. */
static void cancelled(const rig *r, exl2_session world)
{
    const exl2__model *m = &r->engine->models[0];
    static rig_said said;
    for (uint32_t i = 0; i < m->pages.count + 8; i++) {
        exl2_session fork = fork_of(r, world);
        exl2_job job = start_held(r, fork, &said);
        CHECK_INT(m->batch.copy_count, 0);
        exl2_job_cancel(r->engine, job);
        rig_drain(r, 0);
        CHECK_INT(said.stop, EXL2_STOP_CANCELLED);
        CHECK_INT(exl2_session_close(r->engine, fork), EXL2_OK);
    }
}

/* A fork of a session whose job is held: it shares a page that is to be copied for that job. */
static void chained(const rig *r, exl2_session world, const rig_said *wanted)
{
    static rig_said first, second, third;
    exl2_session a = fork_of(r, world);
    exl2_job job = start_held(r, a, &first);
    exl2_session b = fork_of(r, a), c = fork_of(r, a);
    CHECK_INT(exl2_session_rewind(r->engine, b, WORLD), EXL2_OK); /* removes the question that a's job appended */
    CHECK_INT(exl2_session_rewind(r->engine, c, WORLD), EXL2_OK);
    exl2_job_desc on_b = ask(r, b, &second), on_c = ask(r, c, &third);
    exl2_job job_b, job_c;
    CHECK_INT(exl2_job_start(r->engine, &on_b, &job_b), EXL2_OK);
    CHECK_INT(exl2_job_start(r->engine, &on_c, &job_c), EXL2_OK);
    CHECK_INT(exl2_job_pause(r->engine, job, false), EXL2_OK);
    rig_drain(r, 0);
    check_same(&first, wanted);
    check_same(&second, wanted);
    check_same(&third, wanted);
    exl2_session_close(r->engine, a);
    exl2_session_close(r->engine, b);
    exl2_session_close(r->engine, c);
}

/* The source of a copy is closed, and its page is reused, before the copying job runs. */
static void source_gone(const rig *r, const rig_said *wanted)
{
    static rig_said said, other;
    exl2_token ids[WORLD];
    exl2_session world = make_world(r), a = fork_of(r, world);
    exl2_job job = start_held(r, a, &said);
    exl2_session_close(r->engine, world);
    for (uint32_t i = 0; i < WORLD; i++) {
        ids[i] = world_ids[WORLD - 1 - i];
    }
    exl2_job_desc d = rig_job(r, ids, WORLD, NEW, &other);
    memset(&other, 0, sizeof other);
    rig_run(r, &d);
    CHECK_INT(exl2_job_pause(r->engine, job, false), EXL2_OK);
    rig_drain(r, 0);
    check_same(&said, wanted);
    exl2_session_close(r->engine, a);
}

int main(void)
{
    static rig_said wanted;
    for (uint32_t i = 0; i < WORLD; i++) {
        world_ids[i] = (exl2_token)(3 + i * 37 % 200);
    }
    exl2_model_desc m = { 0 };
    m.path = rig_golden("exl2-mixed");
    m.context_max = 128;
    m.cache.tokens = 1024;
    rig r = rig_open(NULL, &m);
    exl2_session world = make_world(&r), alone = make_world(&r);
    exl2_job_desc d = ask(&r, alone, &wanted);
    rig_run(&r, &d);
    CHECK(wanted.count > 0);
    exl2_session_close(r.engine, alone);
    cancelled(&r, world);
    chained(&r, world, &wanted);
    source_gone(&r, &wanted);
    rig_said *again = (rig_said *)calloc(1, sizeof *again);
    exl2_job_desc last = ask(&r, world, again);
    rig_run(&r, &last);
    check_same(again, &wanted);
    free(again);
    rig_close(&r);
    return check_done();
}

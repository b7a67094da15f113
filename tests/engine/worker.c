/* worker.c: the worker's thread: the same tokens as without it, with any budget; callbacks that stop, pause, fork,
   start and close; cancels from other threads; waiting calls; bad input. Run it by hand with TSan, too. */
#include "rig.h"

#include <pthread.h>

#define JOBS 6
#define LONG_TOKENS 1500

static exl2_token prompt[400];

static void make_prompt(void)
{
    for (int i = 0; i < 400; i++) {
        prompt[i] = (exl2_token)((i * 37 + 11) % 300);
    }
}

static exl2_job_desc job_of(const rig *r, uint32_t i, rig_said *said)
{
    exl2_job_desc d = rig_job(r, prompt + i, 30 + 60 * i, 24 + i, said);
    if (i % 2) {
        d.sampler.preset = EXL2_PRESET_BALANCED;
        d.sampler.seed = 100 + i;
    }
    return d;
}

static void clear(rig_said *said, uint32_t count)
{
    memset(said, 0, count * sizeof *said);
}

/* Between steps that do not wait, so that a number of steps is enough on a machine where the worker rarely runs. */
static void give_way(uint32_t steps)
{
    if (steps % 256 == 255) {
        exl2__platform_sleep_ms();
    }
}

/* Steps until all jobs have ended. */
static void run_all(const rig *r, const rig_said *said, uint32_t count, const exl2_step_desc *step)
{
    for (uint32_t done = 0, steps = 0; done < count && CHECK(steps < 4000000); steps++) {
        exl2_step(r->engine, step);
        give_way(steps);
        done = 0;
        for (uint32_t i = 0; i < count; i++) {
            done += said[i].done_events > 0;
        }
    }
}

static void check_same(const rig_said *a, const rig_said *b)
{
    CHECK_INT(a->done_events, 1);
    CHECK_INT(a->count, b->count);
    CHECK(memcmp(a->ids, b->ids, b->count * sizeof *b->ids) == 0);
    CHECK_INT(a->bytes, b->bytes);
    CHECK(memcmp(a->text, b->text, b->bytes) == 0);
    CHECK_INT(a->stop, b->stop);
    CHECK_INT(a->result, b->result);
    CHECK_INT(a->stats.new_tokens, b->stats.new_tokens);
}

static rig_said alone[JOBS], said[JOBS];

/* The words of every job without a worker. */
static void speak_alone(const rig *r)
{
    clear(alone, JOBS);
    for (uint32_t i = 0; i < JOBS; i++) {
        exl2_job_desc d = job_of(r, i, &alone[i]);
        rig_run(r, &d);
    }
}

static void same_words(const rig *r)
{
    static const exl2_step_desc steps[] = {
        { .cpu_us = 0 }, { .wait = true }, { .cpu_us = 200 }, { .cpu_us = 2000, .wait = true }, { .cpu_us = 1 },
    };
    for (uint32_t k = 0; k < EXL2__COUNT(steps); k++) {
        clear(said, JOBS);
        CHECK_INT(exl2_worker_start(r->engine), EXL2_OK);
        for (uint32_t i = 0; i < JOBS; i++) {
            exl2_job_desc d = job_of(r, i, &said[i]);
            CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
        }
        run_all(r, said, JOBS, &steps[k]);
        exl2_result last = EXL2_PENDING;
        for (uint32_t i = 0; i < 1000000 && last != EXL2_IDLE; i++) {
            last = exl2_step(r->engine, &steps[k]);
            give_way(i);
        }
        CHECK_INT(last, EXL2_IDLE);
        CHECK_INT(exl2_worker_stop(r->engine), EXL2_OK);
        for (uint32_t i = 0; i < JOBS; i++) {
            check_same(&said[i], &alone[i]);
        }
    }
}

static uint64_t tokens_out(const rig *r)
{
    exl2_engine_stats stats;
    exl2_stats(r->engine, &stats);
    return stats.tokens_out;
}

static void wait_for_tokens(const rig *r, uint64_t count)
{
    while (tokens_out(r) < count) {
        exl2__platform_sleep_ms();
    }
}

/* Without budgets the worker goes on while the application does something else. */
static void works_between_steps(const rig *r)
{
    uint64_t before = tokens_out(r);
    exl2_job_desc d = job_of(r, 0, &said[0]);
    clear(said, 1);
    CHECK_INT(exl2_worker_start(r->engine), EXL2_OK);
    exl2_step(r->engine, NULL); /* before the job: a step after its start may hear all of it */
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    wait_for_tokens(r, before + 24);
    CHECK_INT(said[0].count, 0);
    CHECK_INT(said[0].done_events, 0);
    run_all(r, said, 1, &(exl2_step_desc){ .wait = true });
    check_same(&said[0], &alone[0]);
    CHECK_INT(exl2_worker_stop(r->engine), EXL2_OK);
}

/* Events that wait for exl2_next_event. */
static void pulled(const rig *r)
{
    exl2_event event;
    CHECK_INT(exl2_worker_start(r->engine), EXL2_OK);
    clear(said, JOBS);
    for (uint32_t i = 0; i < JOBS; i++) {
        exl2_job_desc d = job_of(r, i, &said[i]);
        d.on_event = NULL;
        CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    }
    for (uint32_t done = 0; done < JOBS;) {
        exl2_step(r->engine, &(exl2_step_desc){ .wait = true });
        while (exl2_next_event(r->engine, &event)) {
            rig_hear(event.user, &event);
            done += event.kind == EXL2_EVENT_DONE;
        }
    }
    CHECK_INT(exl2_worker_stop(r->engine), EXL2_OK);
    for (uint32_t i = 0; i < JOBS; i++) {
        check_same(&said[i], &alone[i]);
    }
}

/* ---- callbacks ---- */

typedef struct actor {
    rig_said said;
    const rig *r;
    uint32_t at;             /* TEXT event at which it acts */
    exl2_session fork;
    exl2_job job;
    exl2_result results[8];
    struct actor *next;      /* started at DONE */
} actor;

static exl2_flow act(void *user, const exl2_event *event)
{
    actor *a = user;
    exl2_engine *e = a->r->engine;
    exl2_flow flow = rig_hear(&a->said, event);
    if (event->kind == EXL2_EVENT_TEXT && a->said.text_events == a->at) {
        a->results[0] = exl2_session_fork(e, event->session, &a->fork);
        a->results[1] = exl2_step(e, NULL);
        a->results[2] = exl2_worker_start(e);
        a->results[3] = exl2_worker_stop(e);
        exl2_close(e); /* must do nothing */
        a->results[4] = exl2_session_rewind(e, event->session, 0);
    }
    if (event->kind == EXL2_EVENT_DONE && a->next) {
        exl2_job_desc d = job_of(a->r, 1, NULL);
        d.on_event = act;
        d.user = a->next;
        a->results[5] = exl2_job_start(e, &d, &a->next->job);
        a->results[6] = exl2_session_close(e, event->session);
    }
    return flow;
}

static uint32_t history(const rig *r, exl2_session s, exl2_token *out, uint32_t cap)
{
    size_t need = 0;
    CHECK_INT(exl2_session_tokens(r->engine, s, out, cap, &need), EXL2_OK);
    return (uint32_t)need;
}

/* Stop, pause, fork, start and close in callbacks give what they give without a worker. */
static void callbacks(const rig *r)
{
    for (uint32_t with = 0; with < 2; with++) {
        static actor stops, forks, follows;
        static exl2_token ids[2][512];
        static uint32_t counts[2];
        exl2_session s;
        memset(&stops, 0, sizeof stops);
        memset(&forks, 0, sizeof forks);
        memset(&follows, 0, sizeof follows);
        stops.r = forks.r = follows.r = r;
        stops.said.stop_after = 5;
        stops.said.flow = EXL2_STOP_JOB;
        forks.at = 7;
        forks.next = &follows;
        uint64_t before = tokens_out(r);
        if (with) {
            CHECK_INT(exl2_worker_start(r->engine), EXL2_OK);
            exl2_step(r->engine, NULL);
        }
        CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
        exl2_job_desc d = job_of(r, 0, NULL);
        d.on_event = act;
        d.user = &stops;
        d.session = s;
        CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
        exl2_session t;
        CHECK_INT(exl2_session_open(r->engine, r->model, &t), EXL2_OK);
        d = job_of(r, 2, NULL);
        d.on_event = act;
        d.user = &forks;
        d.session = t;
        CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
        if (with) {
            wait_for_tokens(r, before + 24 + 26); /* all words of both are written before the first is heard */
        }
        for (uint32_t i = 0; i < 1000000 && (!stops.said.done_events || !follows.said.done_events); i++) {
            exl2_step(r->engine, with ? &(exl2_step_desc){ .wait = true } : NULL);
        }
        CHECK_INT(stops.said.stop, EXL2_STOP_CALLBACK);
        CHECK_INT(stops.said.result, EXL2_OK);
        CHECK_INT(stops.said.text_events, 5);
        CHECK_INT(stops.said.stats.new_tokens, stops.said.count);
        counts[0] = history(r, s, ids[0], 512);
        CHECK_INT(counts[0], 30 + stops.said.count);
        CHECK(memcmp(ids[0] + 30, alone[0].ids, stops.said.count * sizeof *ids[0]) == 0);
        CHECK_INT(forks.results[0], EXL2_OK);
        for (uint32_t k = 1; k < 5; k++) {
            CHECK_INT(forks.results[k], EXL2_ERR_STATE);
        }
        CHECK_INT(forks.results[5], EXL2_OK);
        CHECK_INT(forks.results[6], EXL2_OK);
        check_same(&forks.said, &alone[2]);
        check_same(&follows.said, &alone[1]);
        counts[1] = history(r, forks.fork, ids[1], 512);
        CHECK_INT(counts[1], 150 + 7); /* each TEXT of this model has one token */
        CHECK(memcmp(ids[1] + 150, alone[2].ids, 7 * sizeof *ids[1]) == 0);
        exl2_session_close(r->engine, s);
        exl2_session_close(r->engine, forks.fork);
        if (with) {
            CHECK_INT(exl2_worker_stop(r->engine), EXL2_OK);
        }
    }
}

typedef struct waiter { /* its DONE lasts until the worker has written this many tokens */
    rig_said said;
    const rig *r;
    uint64_t tokens;
} waiter;

static exl2_flow wait_at_done(void *user, const exl2_event *event)
{
    waiter *w = user;
    if (event->kind == EXL2_EVENT_DONE) {
        wait_for_tokens(w->r, w->tokens);
    }
    return rig_hear(&w->said, event);
}

/* While one job's DONE is heard, the worker writes the last words of another: they are heard before its DONE. */
static void long_done(const rig *r)
{
    static waiter w[2]; /* one of them has a lower slot than the job between them */
    memset(w, 0, sizeof w);
    clear(said, 1);
    uint64_t before = tokens_out(r);
    CHECK_INT(exl2_worker_start(r->engine), EXL2_OK);
    for (uint32_t i = 0; i < 3; i++) {
        exl2_job_desc d = i == 1 ? job_of(r, 0, &said[0]) : rig_job(r, prompt, 20, 2, NULL);
        if (i != 1) {
            w[i / 2].r = r;
            w[i / 2].tokens = before + 2 + 24 + 2;
            d.on_event = wait_at_done;
            d.user = &w[i / 2];
        }
        CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    }
    run_all(r, said, 1, &(exl2_step_desc){ .wait = true });
    CHECK_INT(w[0].said.done_events + w[1].said.done_events, 2);
    check_same(&said[0], &alone[0]);
    CHECK_INT(exl2_worker_stop(r->engine), EXL2_OK);
}

/* The paused job is saved where it was heard, not where the worker has come, and goes on from there. */
static void goes_on_elsewhere(const rig *r, exl2_session session)
{
    static uint8_t saved[1 << 16];
    size_t need = 0;
    exl2_session again;
    CHECK_INT(exl2_session_save(r->engine, session, 0, saved, sizeof saved, &need), EXL2_OK);
    CHECK_INT(exl2_session_open(r->engine, r->model, &again), EXL2_OK);
    CHECK_INT(exl2_session_restore(r->engine, again, saved, need), EXL2_OK);
    exl2_job_desc d = job_of(r, 0, &said[3]);
    d.model = (exl2_model){ 0 };
    d.session = again;
    d.prompt = (exl2_prompt){ .tokens = NULL };
    d.resume = true;
    d.max_tokens = 0;
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    run_all(r, &said[3], 1, &(exl2_step_desc){ .wait = true });
    CHECK_INT(said[3].count, said[1].count - 3);
    CHECK(memcmp(said[3].ids, said[1].ids + 3, said[3].count * sizeof *said[3].ids) == 0);
    CHECK_INT(exl2_session_close(r->engine, again), EXL2_OK);
}

/* The job is longer than what the worker may write ahead of the callback. */
static void pauses(const rig *r)
{
    exl2_job job;
    exl2_job_info info;
    exl2_session session;
    clear(said, 4);
    exl2_job_desc d = job_of(r, 0, &said[1]);
    d.max_tokens = LONG_TOKENS;
    rig_run(r, &d);
    CHECK_INT(exl2_worker_start(r->engine), EXL2_OK);
    CHECK_INT(exl2_session_open(r->engine, r->model, &session), EXL2_OK);
    d.model = (exl2_model){ 0 };
    d.session = session;
    d.user = &said[0];
    said[0].stop_after = 3;
    said[0].flow = EXL2_PAUSE_JOB;
    CHECK_INT(exl2_job_start(r->engine, &d, &job), EXL2_OK);
    while (said[0].text_events < 3) {
        exl2_step(r->engine, &(exl2_step_desc){ .wait = true });
    }
    while (exl2_step(r->engine, &(exl2_step_desc){ .wait = true }) != EXL2_IDLE) { /* the worker pauses, too */
    }
    CHECK_INT(exl2_job_get(r->engine, job, &info), EXL2_OK);
    CHECK_INT(info.state, EXL2_JOB_PAUSED);
    CHECK_INT(info.stats.new_tokens, 3);
    CHECK_INT(exl2_step(r->engine, NULL), EXL2_IDLE);
    CHECK_INT(said[0].count, 3);
    exl2_job_desc other = job_of(r, 1, &said[2]); /* others are heard meanwhile */
    rig_run(r, &other);
    check_same(&said[2], &alone[1]);
    CHECK_INT(said[0].count, 3);
    goes_on_elsewhere(r, session);
    CHECK_INT(exl2_job_pause(r->engine, job, false), EXL2_OK);
    run_all(r, said, 1, &(exl2_step_desc){ .wait = true });
    check_same(&said[0], &said[1]);
    CHECK_INT(exl2_worker_stop(r->engine), EXL2_OK);
    CHECK_INT(exl2_session_close(r->engine, session), EXL2_OK);
}

/* Several jobs that pause themselves at the same time, each at another word, and go on. */
static void several_pause(const rig *r)
{
    exl2_job jobs[JOBS];
    clear(said, JOBS);
    CHECK_INT(exl2_worker_start(r->engine), EXL2_OK);
    for (uint32_t i = 0; i < JOBS; i++) {
        exl2_job_desc d = job_of(r, i, &said[i]);
        said[i].stop_after = 2 * i + 1;
        said[i].flow = EXL2_PAUSE_JOB;
        CHECK_INT(exl2_job_start(r->engine, &d, &jobs[i]), EXL2_OK);
    }
    while (exl2_step(r->engine, &(exl2_step_desc){ .wait = true }) != EXL2_IDLE) {
    }
    for (uint32_t i = 0; i < JOBS; i++) {
        CHECK_INT(said[i].text_events, 2 * i + 1);
        CHECK_INT(exl2_job_pause(r->engine, jobs[i], false), EXL2_OK);
        exl2_step(r->engine, &(exl2_step_desc){ .cpu_us = 200 });
    }
    run_all(r, said, JOBS, &(exl2_step_desc){ .wait = true });
    for (uint32_t i = 0; i < JOBS; i++) {
        check_same(&said[i], &alone[i]);
    }
    CHECK_INT(exl2_worker_stop(r->engine), EXL2_OK);
}

/* ---- other threads ---- */

static void *cancel_it(void *arg)
{
    const actor *a = arg;
    exl2_job_info info;
    while (exl2_job_get(a->r->engine, a->job, &info) == EXL2_OK && info.stats.new_tokens < 4) {
        exl2__platform_sleep_ms();
    }
    exl2_job_cancel(a->r->engine, a->job);
    return NULL;
}

/* A cancel from another thread: no text follows its DONE, and the history has what was heard. */
static void cancels(const rig *r)
{
    for (uint32_t round = 0; round < 4; round++) {
        static actor a;
        static exl2_token ids[4096];
        exl2_session s;
        pthread_t other;
        memset(&a, 0, sizeof a);
        a.r = r;
        CHECK_INT(exl2_worker_start(r->engine), EXL2_OK);
        CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
        exl2_job_desc d = rig_job(r, prompt, 40, LONG_TOKENS, &a.said);
        d.session = s;
        CHECK_INT(exl2_job_start(r->engine, &d, &a.job), EXL2_OK);
        CHECK_INT(pthread_create(&other, NULL, cancel_it, &a), 0);
        while (!a.said.done_events) {
            exl2_step(r->engine, round % 2 ? &(exl2_step_desc){ .cpu_us = 300 } : &(exl2_step_desc){ .wait = true });
        }
        CHECK_INT(pthread_join(other, NULL), 0);
        CHECK_INT(exl2_worker_stop(r->engine), EXL2_OK);
        CHECK(a.said.stop == EXL2_STOP_CANCELLED || a.said.count == LONG_TOKENS);
        CHECK_INT(history(r, s, ids, 4096), 40 + a.said.count);
        CHECK(memcmp(ids + 40, a.said.ids, a.said.count * sizeof *ids) == 0);
        CHECK_INT(exl2_session_close(r->engine, s), EXL2_OK);
    }
}

typedef struct resumer { /* its first text lets another job go on */
    rig_said said;
    const rig *r;
    exl2_job other;
} resumer;

static exl2_flow resume_other(void *user, const exl2_event *event)
{
    resumer *a = user;
    if (event->kind == EXL2_EVENT_TEXT && a->said.text_events == 0) {
        CHECK_INT(exl2_job_pause(a->r->engine, a->other, false), EXL2_OK);
    }
    return rig_hear(&a->said, event);
}

/* Two paused jobs whose texts wait, one after the other in turns. The first text of one lets the other go on: its texts
   still come in their order. */
static void resumed_in_a_callback(const rig *r)
{
    static resumer second;
    exl2_job_desc d = job_of(r, 0, &said[0]);
    exl2_job jobs[2];
    clear(said, 1);
    memset(&second, 0, sizeof second);
    uint64_t before = tokens_out(r);
    CHECK_INT(exl2_worker_start(r->engine), EXL2_OK);
    exl2_step(r->engine, NULL); /* before the jobs, so that none of their texts is heard */
    CHECK_INT(exl2_job_start(r->engine, &d, &jobs[0]), EXL2_OK);
    d = job_of(r, 1, NULL);
    d.on_event = resume_other;
    d.user = &second;
    second.r = r;
    second.other = jobs[0];
    CHECK_INT(exl2_job_start(r->engine, &d, &jobs[1]), EXL2_OK);
    wait_for_tokens(r, before + 24 + 20);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_INT(exl2_job_pause(r->engine, jobs[i], true), EXL2_OK);
    }
    exl2_step(r->engine, NULL);
    CHECK_INT(exl2_job_pause(r->engine, jobs[1], false), EXL2_OK);
    for (uint32_t i = 0; i < 1000000 && (!said[0].done_events || !second.said.done_events); i++) {
        exl2_step(r->engine, &(exl2_step_desc){ .wait = true });
    }
    check_same(&said[0], &alone[0]);
    check_same(&second.said, &alone[1]);
    CHECK_INT(exl2_worker_stop(r->engine), EXL2_OK);
}

/* on_logits runs on the worker's thread, inside of its step, or in a call that waits, and may call what callbacks may
   call. */
typedef struct watcher {
    const rig *r;
    exl2_session session;
    uint32_t calls;
    exl2_result got, waited;
} watcher;

static watcher watched;

static void watch_engine(void *user, exl2_job job, float *logits, uint32_t vocab)
{
    exl2_session_info info;
    (void)user;
    (void)job;
    (void)logits;
    (void)vocab;
    watched.calls++;
    watched.got = exl2_session_get(watched.r->engine, watched.session, &info);
    watched.waited = exl2_worker_stop(watched.r->engine);
}

static void logits_on_the_worker(const rig *r)
{
    watched = (watcher){ .r = r };
    clear(said, 1);
    CHECK_INT(exl2_worker_start(r->engine), EXL2_OK);
    CHECK_INT(exl2_session_open(r->engine, r->model, &watched.session), EXL2_OK);
    exl2_job_desc d = job_of(r, 0, &said[0]);
    d.on_logits = watch_engine;
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    run_all(r, said, 1, &(exl2_step_desc){ .wait = true });
    check_same(&said[0], &alone[0]);
    clear(said, 1);
    rig_run(r, &d);
    CHECK_INT(exl2_worker_stop(r->engine), EXL2_OK);
    check_same(&said[0], &alone[0]);
    CHECK_INT(watched.calls, 2 * alone[0].count);
    CHECK_INT(watched.got, EXL2_OK);
    CHECK_INT(watched.waited, EXL2_ERR_STATE);
    CHECK_INT(exl2_session_close(r->engine, watched.session), EXL2_OK);
}

/* ---- calls that wait, and the end ---- */

/* Other calls while jobs speak: a save and a generate hold the worker; then all go on. */
static void waiting_calls(const rig *r)
{
    static uint8_t saved[1 << 16];
    size_t need = 0;
    exl2_session s;
    rig_said *between = &said[2];
    clear(said, 3);
    CHECK_INT(exl2_worker_start(r->engine), EXL2_OK);
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    exl2_job_desc d = job_of(r, 0, &said[0]);
    d.session = s;
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    d = job_of(r, 1, &said[1]);
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    for (uint32_t i = 0; i < 3; i++) {
        exl2_step(r->engine, &(exl2_step_desc){ .wait = true });
    }
    CHECK_INT(exl2_session_save(r->engine, s, 0, saved, sizeof saved, &need), EXL2_OK);
    uint32_t heard = said[0].count, over = said[0].done_events;
    d = job_of(r, 3, between);
    rig_run(r, &d);
    run_all(r, said, 2, &(exl2_step_desc){ .wait = true });
    check_same(&said[0], &alone[0]);
    check_same(&said[1], &alone[1]);
    check_same(between, &alone[3]);
    if (!over) { /* the snapshot goes on after what was heard when it was made */
        exl2_session again;
        clear(said, 1);
        CHECK_INT(exl2_session_open(r->engine, r->model, &again), EXL2_OK);
        CHECK_INT(exl2_session_restore(r->engine, again, saved, need), EXL2_OK);
        d = job_of(r, 0, &said[0]);
        d.session = again;
        d.prompt = (exl2_prompt){ .tokens = NULL };
        d.resume = true;
        CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
        run_all(r, said, 1, &(exl2_step_desc){ .cpu_us = 500 });
        CHECK_INT(said[0].count, alone[0].count - heard);
        CHECK(memcmp(said[0].ids, alone[0].ids + heard, said[0].count * sizeof *said[0].ids) == 0);
        exl2_session_close(r->engine, again);
    }
    exl2_session_close(r->engine, s);
    CHECK_INT(exl2_worker_stop(r->engine), EXL2_OK);
}

/* Scores of a long prompt go through the ring of callbacks, also when the worker stops in the middle. */
static void scores(const rig *r, bool stop)
{
    rig_said *want = &said[0], *got = &said[1];
    clear(said, 2);
    for (uint32_t with = 0; with < 2; with++) {
        exl2_job_desc d = rig_job(r, prompt, 400, 4, with ? got : want);
        d.score_prompt = true;
        d.alts_per_token = 8;
        if (!with) {
            rig_run(r, &d);
            continue;
        }
        CHECK_INT(exl2_worker_start(r->engine), EXL2_OK);
        CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
        exl2_step(r->engine, &(exl2_step_desc){ .cpu_us = 300 });
        if (stop) {
            CHECK_INT(exl2_worker_stop(r->engine), EXL2_OK);
        }
        run_all(r, got, 1, &(exl2_step_desc){ .cpu_us = 300 });
        if (!stop) {
            CHECK_INT(exl2_worker_stop(r->engine), EXL2_OK);
        }
    }
    CHECK_INT(got->scored, 399);
    CHECK(memcmp(got->scores, want->scores, 399 * sizeof *got->scores) == 0);
    check_same(got, want);
}

/* The worker stops in the middle of a pass that scores, the job is paused, and a call that waits ends the pass: the
   scores come in their order, also those that wait until the job goes on. */
static void scores_in_order(void)
{
    rig_said *want = &said[0], *got = &said[1], *other = &said[2];
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .context_max = 4096, .prefill_chunk = 16 };
    rig r = rig_open(NULL, &m);
    exl2_job_desc d = rig_job(&r, prompt, 400, 4, want);
    uint32_t waited = 0;
    clear(said, 1);
    d.score_prompt = true;
    rig_run(&r, &d);
    CHECK_INT(exl2_worker_start(r.engine), EXL2_OK);
    for (uint32_t n = 0; n < 60; n++) {
        exl2_job job;
        exl2_job_desc between = job_of(&r, 0, other);
        d.user = got;
        clear(said + 1, 2);
        d.prompt.tokens = prompt;
        CHECK_INT(exl2_job_start(r.engine, &d, &job), EXL2_OK);
        exl2_step(r.engine, &(exl2_step_desc){ .cpu_us = 100 + 40 * n });
        exl2__platform_sleep_ms();
        exl2__platform_sleep_ms();
        exl2__platform_sleep_ms();
        CHECK_INT(exl2_job_pause(r.engine, job, true), EXL2_OK);
        rig_run(&r, &between);
        uint32_t heard = got->scored;
        CHECK_INT(exl2_job_pause(r.engine, job, false), EXL2_OK);
        run_all(&r, got, 1, &(exl2_step_desc){ .wait = true });
        waited += got->scored > heard;
        CHECK_INT(got->scored, 399);
        CHECK(memcmp(got->scores, want->scores, 399 * sizeof *got->scores) == 0);
        check_same(got, want);
        check_same(other, &alone[0]);
    }
    CHECK(waited > 10);
    CHECK_INT(exl2_worker_stop(r.engine), EXL2_OK);
    rig_close(&r);
}

/* The first text of a job lets another go on, whose texts wait because it was paused. */
static void resumed_while_waiting(const rig *r)
{
    static resumer second;
    exl2_job_desc d = job_of(r, 0, &said[0]);
    exl2_job job;
    clear(said, 1);
    memset(&second, 0, sizeof second);
    uint64_t before = tokens_out(r);
    CHECK_INT(exl2_worker_start(r->engine), EXL2_OK);
    exl2_step(r->engine, NULL);
    CHECK_INT(exl2_job_start(r->engine, &d, &job), EXL2_OK);
    wait_for_tokens(r, before + 20);
    CHECK_INT(exl2_job_pause(r->engine, job, true), EXL2_OK);
    exl2_step(r->engine, NULL);
    CHECK(said[0].count < 20);
    d = job_of(r, 5, NULL);
    d.on_event = resume_other;
    d.user = &second;
    second.r = r;
    second.other = job;
    rig_run(r, &d);
    CHECK_INT(said[0].done_events, 1); /* it is shorter, and ends during that call */
    check_same(&said[0], &alone[0]);
    check_same(&second.said, &alone[5]);
    CHECK_INT(exl2_worker_stop(r->engine), EXL2_OK);
}

static void stops_and_goes_on(const rig *r)
{
    clear(said, JOBS);
    for (uint32_t i = 0; i < JOBS; i++) {
        exl2_job_desc d = job_of(r, i, &said[i]);
        CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    }
    for (uint32_t i = 0; i < 8; i++) {
        exl2_step(r->engine, &(exl2_step_desc){ .cpu_us = 300 });
        CHECK_INT(exl2_worker_start(r->engine), EXL2_OK);
        exl2_step(r->engine, i % 2 ? NULL : &(exl2_step_desc){ .cpu_us = 500 });
        exl2__platform_sleep_ms();
        CHECK_INT(exl2_worker_stop(r->engine), EXL2_OK);
    }
    run_all(r, said, JOBS, &(exl2_step_desc){ .cpu_us = 0 });
    for (uint32_t i = 0; i < JOBS; i++) {
        check_same(&said[i], &alone[i]);
    }
}

static exl2_flow hear_load(void *user, const exl2_event *event)
{
    uint32_t *ready = user;
    *ready += event->kind == EXL2_EVENT_LOAD && event->result == EXL2_OK;
    return EXL2_CONTINUE;
}

/* A model that loads, and an engine that is closed, while the worker runs. */
static void loads_and_closes(void)
{
    rig r = { 0 };
    uint32_t ready = 0;
    clear(said, 2);
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .context_max = 4096, .on_event = hear_load,
                          .user = &ready };
    exl2_engine_desc d = { .backend = RIG_BACKEND };
    CHECK_INT(exl2_open(&d, &r.engine), EXL2_OK);
    CHECK_INT(exl2_worker_stop(r.engine), EXL2_ERR_STATE);
    CHECK_INT(exl2_worker_start(r.engine), EXL2_OK);
    CHECK_INT(exl2_worker_start(r.engine), EXL2_ERR_STATE);
    CHECK_INT(exl2_step(r.engine, NULL), EXL2_PENDING);
    while (exl2_step(r.engine, &(exl2_step_desc){ .wait = true }) != EXL2_IDLE) { /* nothing to do */
    }
    CHECK_INT(exl2_model_open(r.engine, &m, &r.model), EXL2_OK);
    while (!ready) {
        exl2_step(r.engine, &(exl2_step_desc){ .wait = true });
    }
    CHECK_INT(exl2_model_state(r.engine, r.model), EXL2_OK);
    for (uint32_t i = 0; i < 2; i++) {
        exl2_job_desc job = job_of(&r, i, &said[i]);
        job.max_tokens = LONG_TOKENS;
        CHECK_INT(exl2_job_start(r.engine, &job, NULL), EXL2_OK);
    }
    for (uint32_t i = 0; i < 5; i++) {
        exl2_step(r.engine, &(exl2_step_desc){ .wait = true });
    }
    exl2_close(r.engine);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_INT(said[i].done_events, 1);
        CHECK_INT(said[i].stop, EXL2_STOP_CANCELLED);
        CHECK(memcmp(said[i].ids, alone[i].ids, (said[i].count < 24 ? said[i].count : 24) * sizeof *said[i].ids) == 0);
    }
    CHECK_INT(exl2_worker_start(NULL), EXL2_ERR_ARG);
    CHECK_INT(exl2_worker_stop(NULL), EXL2_ERR_ARG);
}

int main(void)
{
    make_prompt();
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .context_max = 4096 };
    rig r = rig_open(NULL, &m);
    speak_alone(&r);
    same_words(&r);
    works_between_steps(&r);
    pulled(&r);
    callbacks(&r);
    long_done(&r);
    pauses(&r);
    several_pause(&r);
    resumed_in_a_callback(&r);
    cancels(&r);
    logits_on_the_worker(&r);
    waiting_calls(&r);
    scores(&r, false);
    scores(&r, true);
    scores_in_order();
    resumed_while_waiting(&r);
    stops_and_goes_on(&r);
    exl2_engine_stats stats;
    exl2_stats(r.engine, &stats);
    CHECK_INT(stats.pages_used, 0);
    rig_close(&r);
    loads_and_closes();
    return check_done();
}

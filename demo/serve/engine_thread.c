/* engine_thread.c: the loop of the engine's thread, and what the I/O thread calls.
   takes: runs, batches, tasks.
   gives: what engine_thread.h declares, but for models (engine_models.c) and records (engine_records.c).
   owns:  the engine and its thread. */
#include "engine_thread.h"

#include "../common/clock.h"
#include "engine_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const double engine_step_limits[ENGINE_STEP_BUCKETS - 1] = { 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                                             0.05,   0.1,   0.25,   1.0,   5.0 };

/* ---- the thread ---- */

/* Whether some are not done. */
static bool do_tasks(engine_thread *t, exl2_engine *e)
{
    bool more = false;
    lock_take(&t->lock);
    engine_task *task = t->tasks;
    t->tasks = NULL;
    t->task_end = &t->tasks;
    lock_release(&t->lock);
    while (task) {
        engine_task *next = task->next;
        bool done = task->work(task, e) || !e;
        lock_take(&t->lock);
        if (done) {
            task->next = t->done_tasks;
            t->done_tasks = task;
        } else {
            task->next = NULL;
            *t->task_end = task;
            t->task_end = &task->next;
        }
        lock_release(&t->lock);
        more = more || !done;
        task = next;
    }
    return more;
}

static void close_sessions(engine_thread *t)
{
    for (;;) {
        lock_take(&t->lock);
        exl2_session s = { 0 };
        if (t->closing_count) {
            s = t->closing[--t->closing_count];
        }
        lock_release(&t->lock);
        if (!s.id) {
            return;
        }
        exl2_session_close(t->host->engine, s);
    }
}

/* The lock is held. */
static void count_step(engine_thread *t, uint64_t ns)
{
    engine_times *times = &t->times;
    double seconds = (double)ns * 1e-9;
    uint32_t bucket = 0;
    while (bucket < ENGINE_STEP_BUCKETS - 1 && seconds > engine_step_limits[bucket]) {
        bucket++;
    }
    times->buckets[bucket]++;
    times->step_seconds += seconds;
    times->step_us[t->steps++ % ENGINE_STEPS] = (uint32_t)(ns / 1000);
    times->step_count += times->step_count < ENGINE_STEPS;
}

/* One step, and all that it has brought. true: something was done. */
static bool step(engine_thread *t)
{
    lock_take(&t->lock);
    exl2_step_desc d = { .cpu_us = t->cpu_us, .gpu_us = t->gpu_us, .wait = true };
    lock_release(&t->lock);
    uint64_t begin = clock_ns();
    exl2_result result = exl2_step(t->host->engine, &d);
    uint64_t end = clock_ns();
    bool any = t->works = result != EXL2_IDLE;
    bool texts = engine_step_loads(t);
    lock_take(&t->lock);
    t->times.step_end_ns = end;
    if (any) {
        count_step(t, end - begin);
    }
    for (exl2_event event; exl2_next_event(t->host->engine, &event); any = true) {
        if (event.kind == EXL2_EVENT_LOAD) {
            engine_load_event(t, &event);
        } else {
            engine_put_event(t, &event);
        }
    }
    bool lost = t->lost && t->active == 0;
    lock_release(&t->lock);
    bool loads = engine_end_loads(t);
    if (lost) {
        engine_reopen(t);
    }
    return any || texts || loads || lost || t->try_again;
}

/* Wakes the I/O thread if there is something for it and it does not know yet. */
static void wake(engine_thread *t)
{
    lock_take(&t->lock);
    bool wakes = !t->woken && (t->ready || t->ready_loads || t->done_tasks);
    t->woken = t->woken || wakes;
    lock_release(&t->lock);
    if (wakes) {
        t->desc.wake(t->desc.user);
    }
}

/* Refuses what waits when there is no engine any more. The lock is held. */
static void refuse_all(engine_thread *t)
{
    static const char why[] = "the device is lost, and the engine cannot be opened again";
    const engine_record refused = { .kind = ENGINE_REFUSED, .result = EXL2_ERR_DEVICE_LOST,
                                    .refusal = ENGINE_BY_MODEL, .text = why, .bytes = sizeof why - 1 };
    while (t->urgent) {
        engine_run *run = t->urgent;
        t->urgent = run->next_urgent;
        engine_put(t, run, &refused);
    }
    t->urgent_end = &t->urgent;
    while (t->batches) {
        engine_batch *b = t->batches;
        t->batches = b->next;
        t->waiting--;
        for (uint32_t i = b->next_run, count = b->count; i < count; i++) {
            engine_put(t, b->runs[i], &refused);
        }
    }
    t->batch_end = &t->batches;
}

LOCK_THREAD(work)
{
    engine_thread *t = user;
    for (bool quit = false; !quit;) {
        lock_take(&t->lock);
        t->news = false;
        quit = t->quit;
        bool dead = !t->host;
        if (dead) {
            refuse_all(t);
        }
        lock_release(&t->lock);
        bool any = false;
        if (!quit && dead) {
            do_tasks(t, NULL);
        } else if (!quit) {
            bool more = do_tasks(t, t->host->engine);
            close_sessions(t);
            engine_begin_loads(t);
            engine_start_waiting(t);
            wake(t); /* a stream's first bytes go out while its prompt is read */
            any = step(t) || more;
        }
        wake(t);
        lock_take(&t->lock);
        while (!any && !t->news && !t->quit) {
            signal_wait(&t->more, &t->lock);
        }
        t->times.step_end_ns = clock_ns();
        lock_release(&t->lock);
    }
    engine_forget_grammars(t, (exl2_model){ 0 });
    return LOCK_THREAD_END;
}

/* ---- for the I/O thread ---- */

engine_thread *engine_open(const engine_desc *d)
{
    engine_thread *t = calloc(1, sizeof *t);
    host *h = calloc(1, sizeof *h);
    if (!t || !h) {
        fputs("out of memory\n", stderr);
        free(t);
        free(h);
        return NULL;
    }
    t->desc = *d;
    t->options = *d->host;
    t->options.max_jobs = d->max_jobs;
    t->options.max_sessions = d->max_sessions;
    t->cpu_us = d->cpu_us;
    t->gpu_us = d->gpu_us;
    t->batch_end = &t->batches;
    t->urgent_end = &t->urgent;
    t->ready_end = &t->ready;
    t->task_end = &t->tasks;
    exl2_engine_info info = { 0 };
    bool open = host_open(h, &t->options);
    if (open) {
        t->host = h;
        exl2_engine_get(h->engine, &info);
        t->max_jobs = info.max_jobs;
        t->closing_cap = info.max_sessions;
        t->closing = calloc(info.max_sessions, sizeof *t->closing);
        if (t->closing && lock_open(&t->lock) && signal_open(&t->more)) {
            t->sync_open = true;
            if (thread_open(&t->thread, work, t)) {
                return t;
            }
        }
        fputs("cannot start the engine's thread\n", stderr);
        host_close(h);
    }
    if (t->sync_open) {
        signal_close(&t->more);
        lock_close(&t->lock);
    }
    free(t->closing);
    free(h);
    free(t);
    return NULL;
}

void engine_close(engine_thread *t)
{
    if (!t) {
        return;
    }
    lock_take(&t->lock);
    t->quit = true;
    signal_one(&t->more);
    lock_release(&t->lock);
    thread_join(t->thread);
    if (t->host) {
        host_close(t->host);
    }
    signal_close(&t->more);
    lock_close(&t->lock);
    free(t->host);
    free(t->closing);
    free(t);
}

/* The lock is held: the thread has something to do. */
static void news(engine_thread *t)
{
    t->news = true;
    signal_one(&t->more);
}

void engine_submit(engine_thread *t, engine_batch *b)
{
    lock_take(&t->lock);
    b->next = NULL;
    b->next_run = 0;
    *t->batch_end = b;
    t->batch_end = &b->next;
    t->waiting++;
    news(t);
    lock_release(&t->lock);
}

void engine_continue(engine_thread *t, engine_run *run)
{
    lock_take(&t->lock);
    run->ended = false;
    run->told_end = run->taken_end = false;
    run->next_urgent = NULL;
    *t->urgent_end = run;
    t->urgent_end = &run->next_urgent;
    news(t);
    lock_release(&t->lock);
}

void engine_cancel(engine_thread *t, engine_run *run)
{
    lock_take(&t->lock);
    if (!run->cancelled && !run->ended) {
        run->cancelled = true;
        if (run->job.id && t->host) {
            exl2_job_cancel(t->host->engine, run->job);
        }
        news(t);
    }
    lock_release(&t->lock);
}

void engine_pause(engine_thread *t, engine_run *run, bool paused)
{
    lock_take(&t->lock);
    if (run->job.id && t->host) {
        exl2_job_pause(t->host->engine, run->job, paused);
        news(t);
    }
    lock_release(&t->lock);
}

void engine_run_free(engine_thread *t, engine_run *run)
{
    lock_take(&t->lock);
    if (run->session.id && run->epoch == t->epoch && t->host && t->closing_count < t->closing_cap) {
        t->closing[t->closing_count++] = run->session;
        news(t);
    }
    run->session = (exl2_session){ 0 };
    if (run->held) {
        engine_give_slots(t, run);
        news(t);
    }
    lock_release(&t->lock);
    buffer_free(&run->inbox);
    buffer_free(&run->outbox);
}

void engine_do(engine_thread *t, engine_task *task)
{
    lock_take(&t->lock);
    task->next = NULL;
    *t->task_end = task;
    t->task_end = &task->next;
    news(t);
    lock_release(&t->lock);
}

void engine_budget(engine_thread *t, uint32_t cpu_us, uint32_t gpu_us)
{
    lock_take(&t->lock);
    t->cpu_us = cpu_us;
    t->gpu_us = gpu_us;
    lock_release(&t->lock);
}

void engine_watch(engine_thread *t, engine_times *out)
{
    lock_take(&t->lock);
    *out = t->times;
    out->waiting = t->waiting;
    out->active = t->active;
    out->lost = t->lost || !t->host;
    out->cpu_us = t->cpu_us;
    out->gpu_us = t->gpu_us;
    if (t->host) {
        exl2_stats(t->host->engine, &out->stats);
        exl2_engine_get(t->host->engine, &out->info);
    }
    lock_release(&t->lock);
}

uint32_t engine_waiting(engine_thread *t)
{
    lock_take(&t->lock);
    uint32_t places = t->max_jobs > t->slots ? t->max_jobs - t->slots : 0;
    uint32_t waiting = t->waiting > places ? t->waiting - places : 0; /* the others only wait for the next step */
    lock_release(&t->lock);
    return waiting;
}

uint32_t engine_epoch(engine_thread *t)
{
    lock_take(&t->lock);
    uint32_t epoch = t->epoch;
    lock_release(&t->lock);
    return epoch;
}

bool engine_job(engine_thread *t, const engine_run *run, exl2_job_info *out)
{
    lock_take(&t->lock);
    bool known = run->job.id && t->host && exl2_job_get(t->host->engine, run->job, out) == EXL2_OK;
    lock_release(&t->lock);
    return known;
}

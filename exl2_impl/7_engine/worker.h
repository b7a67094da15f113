/* worker.h: a thread that steps the engine, so that the application's thread only delivers what it made.
   takes: what each exl2_step of the application allows.
   gives: exl2__worker_start, exl2__worker_stop, exl2__worker_step; exl2__worker_hold, exl2__worker_release around calls
          that wait, and exl2__worker_step_held in them.
   owns:  the thread, and the ring of events for callbacks.

   The worker and the application's calls take turns: each holds the gate (gate.h says who goes first). The worker calls
   no on_event: these events go into a ring of their own, and exl2_step delivers them. A job with on_event ends on the
   application's thread, once all its events were heard, so that its callback can still stop it earlier. */
#ifndef EXL2__WORKER_H
#define EXL2__WORKER_H

#include "step_park.h"

#ifndef EXL2_NO_THREADS
#define EXL2__WORKER_POLL_US 50u /* how often the worker looks whether the GPU has results */

/* ---- the worker's thread ---- */

/* Whether the worker may do something now: *out is what. */
static inline bool exl2__worker_may(const exl2_engine *e, exl2_step_desc *out)
{
    const exl2__worker *w = &e->worker;
    uint64_t now = exl2__platform_ns();
    *out = (exl2_step_desc){ .cpu_us = 0 };
    if (w->quit || w->held || (!w->unlimited && !w->granted && now >= w->deadline_ns)) {
        return false;
    }
    if (!w->unlimited) {
        uint64_t left_us = now < w->deadline_ns ? (w->deadline_ns - now) / 1000u : 0;
        out->cpu_us = (uint32_t)exl2__min64(exl2__max64(left_us, 1), UINT32_MAX);
        out->gpu_us = w->gpu_us;
    }
    return true;
}

/* One step. Returns the microseconds until the next one, unless `wake` is raised before. */
static inline uint32_t exl2__worker_work(exl2_engine *e, const exl2_step_desc *allowed)
{
    exl2__worker *w = &e->worker;
    w->stepping = true;
    w->granted = false;
    uint32_t news = exl2__atomic_load(&w->news); /* before the step looks */
    exl2_result r = exl2__step_engine(e, allowed);
    w->stepping = false;
    bool async = e->hardware.backend && exl2__backend_is_async(e->hardware.backend);
    if (async && allowed->gpu_us) { /* a step queues what it may at once */
        w->deadline_ns = 0;
    }
    w->passed = w->passed || r == EXL2_OK;
    w->worked = w->worked || r != EXL2_IDLE;
    w->idle = r == EXL2_IDLE;
    w->idle_news = news;
    if (r == EXL2_OK || w->idle) {
        exl2__signal_raise(&w->done);
    }
    return w->idle ? EXL2__FOREVER : async && r == EXL2_PENDING ? EXL2__WORKER_POLL_US : 0;
}

EXL2__PRIVATE void exl2__worker_run(void *arg)
{
    exl2_engine *e = (exl2_engine *)arg;
    exl2__worker *w = &e->worker;
    bool quit = false;
    while (!quit) {
        exl2_step_desc allowed;
        exl2__gate_take(e);
        bool may = exl2__worker_may(e, &allowed);
        uint32_t sleep_us = may ? exl2__worker_work(e, &allowed) : EXL2__FOREVER;
        if (!may) {
            exl2__signal_raise(&w->done);
        }
        quit = w->quit;
        exl2__mutex_unlock(&w->gate);
        if (sleep_us && !quit) {
            exl2__signal_wait(&w->wake, sleep_us);
        }
    }
}

/* ---- the application's thread: it holds the gate ---- */

/* Delivers one event that the worker wrote for a callback of the job. After a callback has said stop, or a cancel, the
   rest is dropped. */
static inline void exl2__worker_deliver_event(exl2_engine *e, exl2__job *job, const exl2_event *event)
{
    exl2__job_delivery *d = &job->delivery;
    uint32_t tokens = event->kind == EXL2_EVENT_TEXT ? event->token_count : 0;
    d->deferred--;
    d->deferred_bytes -= exl2__events_size(event);
    d->deferred_tokens -= tokens;
    if (exl2__jobs_is_dropped(job)) {
        return;
    }
    if (tokens) {
        exl2__jobs_set_delivered(e, job, d->delivered + tokens);
    }
    exl2_flow flow;
    exl2__jobs_deliver(e, EXL2__WAY_CALLBACK, d->on_event, event, &flow);
    exl2__jobs_flow(e, job, flow);
    if (job->ending && job->stop == EXL2_STOP_CALLBACK) {
        d->text_due = d->progress_due = false;
    }
    exl2__jobs_publish(e, job); /* it may be paused now */
}

/* Delivers a LOAD event that the worker wrote. The last one ends the load. */
static inline void exl2__worker_deliver_load(exl2_engine *e, exl2__model *m, const exl2_event *event)
{
    exl2_flow ignored;
    exl2__jobs_deliver(e, EXL2__WAY_CALLBACK, m->desc.on_event, event, &ignored);
    if (m->id == event->model.id && event->result != EXL2_PENDING) {
        m->load_deferred = false;
        exl2__loading_end(e, m);
    }
}

/* Whether the job's events wait because it is paused, and no end of the application's has dropped them. */
static inline bool exl2__worker_is_paused(exl2_engine *e, exl2__job *job)
{
    bool paused = exl2__step_read_flags(e, job);
    return paused && !exl2__jobs_is_dropped(job);
}

/* Delivers the events that a ring has now. Those of a paused job, and what follows them, go into `paused`, also from
   there: its size is what all jobs may have deferred. Returns whether anything was delivered. */
EXL2__PRIVATE bool exl2__worker_deliver_ring(exl2_engine *e, exl2__events *ring, bool paused_too)
{
    exl2__events *paused = &e->worker.paused;
    exl2_event event;
    bool any = false;
    for (uint32_t left = ring->records; left > 0 && exl2__events_pull(ring, &event); left--) {
        exl2__job *job = exl2__objects_job(e, event.job);
        exl2__model *m = exl2__objects_model(e, event.model);
        if (job) {
            job->delivery.deferred_paused -= ring == paused;
        }
        bool behind = job && (ring == paused ? job->delivery.put_back : job->delivery.deferred_paused > 0);
        bool held = job && !paused_too && (exl2__worker_is_paused(e, job) || behind);
        any = any || !held;
        if (held) {
            bool pushed = exl2__events_push(paused, &event);
            EXL2__ASSERT(pushed);
            (void)pushed;
            job->delivery.deferred_paused++;
            job->delivery.put_back = true;
        } else if (job) {
            exl2__worker_deliver_event(e, job, &event);
        } else if (event.lora.id) {
            exl2__loras_delivered(e, &event);
        } else if (m && event.kind == EXL2_EVENT_LOAD) {
            exl2__worker_deliver_load(e, m, &event);
        }
    }
    exl2__events_release(ring); /* else the next event might need the bytes of this one for ever */
    return any;
}

/* Delivers what the worker wrote for callbacks, and ends jobs that have no more of it. Returns whether there was
   anything. paused_too: also of paused jobs. */
EXL2__PRIVATE bool exl2__worker_deliver(exl2_engine *e, bool paused_too)
{
    for (uint32_t i = 0; i < e->job_ids.end; i++) {
        e->jobs[i].delivery.put_back = false;
    }
    bool any = exl2__worker_deliver_ring(e, &e->worker.paused, paused_too);
    any = exl2__worker_deliver_ring(e, &e->worker.events, paused_too) || any;
    for (uint32_t i = 0; i < e->job_ids.end; i++) {
        exl2__job *job = &e->jobs[i];
        const exl2__job_delivery *d = &job->delivery;
        if (!job->sequence.live || exl2__objects_is_hidden(job) || !d->on_event) {
            continue;
        }
        exl2__step_read_flags(e, job);
        if (job->ending && !d->deferred && !d->text_due && !d->progress_due && !d->embedding_due) {
            any = true;
            exl2__jobs_finish(e, job);
        }
    }
    return any;
}

/* The application's part of its step: it delivers, and loads what the worker may not. Returns whether there was
   anything, which may have made work for the worker. */
EXL2__PRIVATE bool exl2__worker_step_caller(exl2_engine *e, const exl2_step_desc *d)
{
    bool any = exl2__worker_deliver(e, false);
#ifndef EXL2_NO_VISION
    for (uint32_t i = 0; i < e->max_models; i++) {
        exl2__images_deliver(e, &e->models[i], &any);
    }
#endif
    any = (e->loads_on_caller && exl2__step_loads(e, d)) || any;
    e->worker.worked = e->worker.worked || any;
    exl2__atomic_add(&e->worker.news, any);
    return any;
}

/* Whether the worker can do nothing, as far as it is known: it has looked since the newest news. */
static inline bool exl2__worker_is_idle(const exl2_engine *e)
{
    return e->worker.idle && e->worker.idle_news == exl2__atomic_load(&e->worker.news);
}

/* exl2_step. While the worker runs: delivers, and allows the worker what the desc allows. IDLE: nothing was done since
   the last exl2_step, and there is nothing to do. */
static inline exl2_result exl2__worker_step(exl2_engine *e, const exl2_step_desc *d)
{
    exl2__worker *w = &e->worker;
    if (!w->runs) {
        return exl2__step_engine(e, d);
    }
    uint64_t begin_ns = exl2__platform_ns();
    bool async = e->hardware.backend && exl2__backend_is_async(e->hardware.backend);
    bool any = exl2__worker_step_caller(e, d);
    w->unlimited = !d->cpu_us && !(async && d->gpu_us);
    w->deadline_ns = d->cpu_us ? exl2__platform_ns() + (uint64_t)d->cpu_us * 1000u : UINT64_MAX;
    w->gpu_us = d->gpu_us;
    w->granted = true;
    if (d->wait && !any && !w->passed && !exl2__worker_is_idle(e)) {
        exl2__gate_open(e);
        exl2__signal_wait(&w->done, EXL2__FOREVER);
        exl2__gate_close(e);
        exl2__worker_step_caller(e, d);
    }
    bool passed = w->passed, worked = w->worked;
    w->passed = w->worked = false;
    exl2__step_count(e, begin_ns);
    exl2__objects_publish(e);
    return passed ? EXL2_OK : worked || !exl2__worker_is_idle(e) ? EXL2_PENDING : EXL2_IDLE;
}

/* A step of a call that waits. First delivers what the worker wrote for other jobs, which continue meanwhile. */
static inline exl2_result exl2__worker_step_held(exl2_engine *e)
{
    const exl2_step_desc step = { .wait = true };
    bool any = e->worker.runs && exl2__worker_deliver(e, false);
    exl2_result r = exl2__step_engine(e, &step);
    return r == EXL2_IDLE && any ? EXL2_PENDING : r;
}

/* Runs passes in flight to their end: room for the scores of a pass is reserved when it begins, for a callback only if
   the worker begins it. */
EXL2__PRIVATE void exl2__worker_end_passes(exl2_engine *e)
{
    const exl2_step_desc step = { .wait = true };
    bool active = true;
    while (active) {
        active = false;
        for (uint32_t i = 0; i < e->max_models; i++) {
            active = active || (e->models[i].id && e->models[i].forward.active);
        }
        if (active) {
            exl2__step_engine(e, &step);
        }
    }
}

/* Size of `paused` as a number of events: what all jobs may have deferred, and room for two of the largest, which one
   that is put back may need. */
static inline uint32_t exl2__worker_paused_events(const exl2_engine *e)
{
    uint32_t job_bytes = EXL2__JOB_DEFERRED_BYTES + EXL2__JOB_EVENT_BYTES;
    return (e->max_jobs * job_bytes + 2 * EXL2__EVENTS_MIN) / EXL2__EVENT_BYTES;
}

EXL2__PRIVATE exl2_result exl2__worker_start(exl2_engine *e)
{
    exl2__worker *w = &e->worker;
    exl2__worker_end_passes(e);
    exl2__arena dry = { 0 };
    exl2__events_make(&w->events, &dry, e->info.max_events);
    exl2__events_make(&w->paused, &dry, exl2__worker_paused_events(e));
    EXL2__TRY(exl2__arena_open(&e->ctx, &w->memory, dry.used, EXL2_MEM_GENERAL));
    exl2__objects_publish_memory(e);
    exl2__events_make(&w->events, &w->memory, e->info.max_events);
    exl2__events_make(&w->paused, &w->memory, exl2__worker_paused_events(e));
    w->quit = w->idle = w->passed = w->worked = w->granted = w->unlimited = false;
    w->deadline_ns = 0;
    w->asked = w->overtakes = 0;
    exl2__mutex_lock(&w->gate); /* the new thread begins its work once w->runs and w->thread are set */
    w->runs = exl2__thread_start(&w->thread, exl2__worker_run, e);
    exl2__mutex_unlock(&w->gate);
    if (!w->runs) {
        exl2__arena_close(&e->ctx, &w->memory);
        exl2__objects_publish_memory(e);
        return exl2__fail(&e->ctx, EXL2_ERR_MEMORY, "the system could not start a thread for the worker");
    }
    return EXL2_OK;
}

/* Called outside of the gate, while the worker runs. */
EXL2__PRIVATE void exl2__worker_stop(exl2_engine *e)
{
    exl2__worker *w = &e->worker;
    exl2__gate_close(e);
    w->quit = true;
    exl2__gate_open(e);
    exl2__thread_join(&w->thread);
    w->runs = false;
    exl2__worker_deliver(e, true);
    exl2__arena_close(&e->ctx, &w->memory);
    exl2__objects_publish_memory(e);
}
#else
static inline exl2_result exl2__worker_step(exl2_engine *e, const exl2_step_desc *d)
{
    return exl2__step_engine(e, d);
}

static inline exl2_result exl2__worker_step_held(exl2_engine *e)
{
    const exl2_step_desc step = { .wait = true };
    return exl2__step_engine(e, &step);
}
#endif

/* A call that waits begins: the worker stops, and what it has written is delivered. Then the call does all work itself,
   on the application's thread. e may be NULL. */
static inline void exl2__worker_hold(exl2_engine *e)
{
    exl2__gate_enter(e);
#ifndef EXL2_NO_THREADS
    if (exl2__gate_is_shared(e)) {
        e->worker.held++;
        if (!e->in_callback && exl2__worker_deliver(e, false)) {
            exl2__objects_publish(e);
        }
    }
#endif
}

/* A call that waits ends, with the result r. */
static inline exl2_result exl2__worker_release(exl2_engine *e, exl2_result r)
{
#ifndef EXL2_NO_THREADS
    if (exl2__gate_is_shared(e)) {
        e->worker.held--;
    }
#endif
    return exl2__gate_leave(e, r);
}

#endif

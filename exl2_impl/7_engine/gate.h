/* gate.h: the lock that calls of the application and the worker's steps go through, one at a time. Without a worker
   it does nothing.
   takes: calls from the application, which begin with exl2__gate_enter and end with exl2__gate_leave.
   gives: exl2__gate_enter, exl2__gate_leave; exl2__gate_call, exl2__gate_called around callbacks; exl2__gate_news.
   owns:  the lock and its signals, from exl2__gate_make to exl2__gate_end.

   A callback runs while the gate is open: it may call the engine, and the worker goes on meanwhile. On the worker's own
   thread, where `allow` and `on_logits` run, the gate stays closed, and calls pass it. */
#ifndef EXL2__GATE_H
#define EXL2__GATE_H

#include "objects.h"

#ifndef EXL2_NO_THREADS

static inline void exl2__gate_make(exl2_engine *e)
{
    exl2__mutex_make(&e->worker.gate);
    exl2__signal_make(&e->worker.wake);
    exl2__signal_make(&e->worker.done);
}

static inline void exl2__gate_end(exl2_engine *e)
{
    exl2__signal_close(&e->worker.done);
    exl2__signal_close(&e->worker.wake);
    exl2__mutex_close(&e->worker.gate);
}

/* Whether the caller has to lock the gate. */
static inline bool exl2__gate_is_shared(const exl2_engine *e)
{
    return e && e->worker.runs && !exl2__thread_is_this(&e->worker.thread);
}

static inline void exl2__gate_close(exl2_engine *e)
{
    if (exl2__gate_is_shared(e)) {
        exl2__atomic_add(&e->worker.wanted, 1); /* the worker stops after its present unit */
        exl2__mutex_lock(&e->worker.gate);
        exl2__atomic_add(&e->worker.wanted, UINT32_MAX);
    }
}

static inline void exl2__gate_open(exl2_engine *e)
{
    if (exl2__gate_is_shared(e)) {
        exl2__mutex_unlock(&e->worker.gate);
        exl2__signal_raise(&e->worker.wake);
    }
}

static inline void exl2__gate_wake(exl2_engine *e)
{
    exl2__signal_raise(&e->worker.wake);
}

#else

static inline void exl2__gate_make(exl2_engine *e)
{
    (void)e;
}

static inline void exl2__gate_end(exl2_engine *e)
{
    (void)e;
}

static inline void exl2__gate_close(exl2_engine *e)
{
    (void)e;
}

static inline void exl2__gate_open(exl2_engine *e)
{
    (void)e;
}

static inline void exl2__gate_wake(exl2_engine *e)
{
    (void)e;
}

#endif

/* There may be work that the worker has not seen; from any thread, after the change that makes it. Until the worker has
   looked again, exl2_step does not say that there is nothing to do. */
static inline void exl2__gate_news(exl2_engine *e)
{
    exl2__atomic_add(&e->worker.news, 1);
    exl2__gate_wake(e);
}

/* A call of the application begins. e may be NULL. */
static inline void exl2__gate_enter(exl2_engine *e)
{
    exl2__gate_close(e);
}

/* It ends, and gives r. There may be new work. */
static inline exl2_result exl2__gate_leave(exl2_engine *e, exl2_result r)
{
    if (e) {
        exl2__atomic_add(&e->worker.news, 1);
    }
    exl2__gate_open(e);
    return r;
}

/* A callback begins. */
static inline void exl2__gate_call(exl2_engine *e)
{
    e->in_callback++;
    exl2__gate_open(e);
}

/* It has ended. */
static inline void exl2__gate_called(exl2_engine *e)
{
    exl2__gate_close(e);
    e->in_callback--;
}

#endif

/* gate.h: the lock that calls of the application and the worker's steps go through, one at a time. Without a worker
   it does nothing.
   takes: calls from the application, which begin with exl2__gate_enter and end with exl2__gate_leave.
   gives: exl2__gate_enter, exl2__gate_leave; exl2__gate_call, exl2__gate_called around callbacks; exl2__gate_news;
          exl2__gate_yield before a step; exl2__gate_take on the worker's thread.
   owns:  the lock and its signals, from exl2__gate_make to exl2__gate_end.

   The mutex is not fair: a thread that unlocks it and locks it again usually gets it before a thread that waits. So
   each side says that it waits, and the other one lets it go first. The worker lets every call go first. exl2_step lets
   the worker go first; other calls do so only after EXL2__GATE_OVERTAKES in a row, because a frame may have many calls,
   and a turn of the worker lasts as long as one of its units.

   A callback runs while the gate is open: it may call the engine, and the worker goes on meanwhile. On the worker's own
   thread, where `allow` and `on_logits` run, the gate stays closed, and calls pass it. */
#ifndef EXL2__GATE_H
#define EXL2__GATE_H

#include "objects.h"

#ifndef EXL2_NO_THREADS
#define EXL2__GATE_OVERTAKES 64u /* calls in a row that may go before a worker that waits */

static inline void exl2__gate_make(exl2_engine *e)
{
    exl2__mutex_make(&e->worker.gate);
    exl2__signal_make(&e->worker.wake);
    exl2__signal_make(&e->worker.done);
    exl2__signal_make(&e->worker.turn);
}

static inline void exl2__gate_end(exl2_engine *e)
{
    exl2__signal_close(&e->worker.turn);
    exl2__signal_close(&e->worker.done);
    exl2__signal_close(&e->worker.wake);
    exl2__mutex_close(&e->worker.gate);
}

/* Whether the caller has to lock the gate. */
static inline bool exl2__gate_is_shared(const exl2_engine *e)
{
    return e && e->worker.runs && !exl2__thread_is_this(&e->worker.thread);
}

/* If the worker waits for the gate, returns once the worker has had it. Does not look again afterwards: the worker may
   wait for its next turn by then. */
static inline void exl2__gate_yield(exl2_engine *e)
{
    if (exl2__gate_is_shared(e)) {
        exl2__worker *w = &e->worker;
        uint32_t asked = exl2__atomic_load(&w->asked);
        while ((asked & 1) && exl2__atomic_load(&w->asked) == asked) {
            exl2__signal_wait(&w->turn, EXL2__FOREVER);
        }
        w->overtakes = 0;
    }
}

/* The worker closes the gate. A call that waits goes first, also one that began to wait while the worker closed it, and
   raises `wake` when it ends. */
static inline void exl2__gate_take(exl2_engine *e)
{
    exl2__worker *w = &e->worker;
    exl2__atomic_add(&w->asked, 1);
    exl2__mutex_lock(&w->gate);
    while (exl2__atomic_load(&w->wanted)) {
        exl2__mutex_unlock(&w->gate);
        exl2__signal_wait(&w->wake, EXL2__FOREVER);
        exl2__mutex_lock(&w->gate);
    }
    exl2__atomic_add(&w->asked, 1);
    exl2__signal_raise(&w->turn);
}

static inline void exl2__gate_close(exl2_engine *e)
{
    if (exl2__gate_is_shared(e)) {
        bool waits = exl2__atomic_load(&e->worker.asked) & 1;
        e->worker.overtakes = waits ? e->worker.overtakes + 1 : 0;
        if (e->worker.overtakes > EXL2__GATE_OVERTAKES) {
            exl2__gate_yield(e);
        }
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

static inline void exl2__gate_yield(exl2_engine *e)
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

/* api.h: what public functions have in common. They check arguments, resolve handles and call the functions of this
   folder; nothing else.
   takes: calls from the application: those that may come from any thread directly, the others through public.h.
   gives: exl2__api_outside, exl2__api_engine, exl2__api_argument, exl2__api_model; exl2__api_wait_begin and
          exl2__api_wait_end. */
#ifndef EXL2__API_H
#define EXL2__API_H

#include "job_start.h"
#include "layouts.h"
#include "worker.h"

/* ---- checks that every call makes ---- */

/* Rejects, inside callbacks, a call that may wait or that frees objects which a callback is using. */
static inline exl2_result exl2__api_outside(exl2_engine *e, const char *call)
{
    if (!e) {
        return EXL2_ERR_ARG;
    }
    if (e->in_callback) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "%s is not allowed inside a callback", call);
    }
    return EXL2_OK;
}

static inline exl2_result exl2__api_engine(const exl2_engine *e)
{
    return e ? EXL2_OK : EXL2_ERR_ARG;
}

static inline exl2_result exl2__api_argument(exl2_engine *e, bool holds, const char *call, const char *what)
{
    if (!e) {
        return EXL2_ERR_ARG;
    }
    return holds ? EXL2_OK : exl2__fail(&e->ctx, EXL2_ERR_ARG, "%s: %s", call, what);
}

/* For getters: they change nothing but a lock. */
static inline exl2_engine *exl2__api_mutable(const exl2_engine *e)
{
    return (exl2_engine *)(uintptr_t)e;
}

/* The model of a handle. */
EXL2__PRIVATE exl2_result exl2__api_model(exl2_engine *e, exl2_model handle, exl2__model **out)
{
    *out = exl2__objects_model(e, handle);
    return *out ? EXL2_OK : exl2__objects_stale(e, "model", handle.id);
}

/* ---- waiting ---- */

static inline void exl2__api_wait_begin(exl2_engine *e)
{
    exl2__atomic_store(&e->interrupted, 0);
    exl2__atomic_store(&e->waiting, 1);
}

static inline bool exl2__api_interrupted(exl2_engine *e)
{
    return exl2__atomic_load(&e->interrupted) != 0;
}

static inline void exl2__api_wait_end(exl2_engine *e)
{
    exl2__atomic_store(&e->waiting, 0);
}

#endif

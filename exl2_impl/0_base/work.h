/* work.h: how much one slice of a long task may do. A model is loaded in slices, so that a frame can go on between two
   of them. A function that works in slices keeps its position in a struct; it returns EXL2_PENDING when the slice is
   used up, and is called again.
   takes: nothing.
   gives: exl2__work, exl2__work_slice, exl2__work_all, exl2__work_spend, exl2__work_spend_all. */
#ifndef EXL2__WORK_H
#define EXL2__WORK_H

#include "result.h"

/* A slice in nanoseconds of a 3 GHz core. It is a quarter of the millisecond that a slice may last: page faults, cold
   caches and older cores need the rest. */
#define EXL2__WORK_SLICE 250000

typedef struct exl2__work {
    int64_t left; /* nanoseconds, by the costs that the code estimates for its items: no clock is read */
} exl2__work;

static inline exl2__work exl2__work_slice(void)
{
    exl2__work work = { EXL2__WORK_SLICE };
    return work;
}

/* For callers that wait until the whole task is done. */
static inline exl2__work exl2__work_all(void)
{
    exl2__work work = { INT64_MAX };
    return work;
}

/* Is there work left for one more item? If so, its cost is subtracted. The last item may exceed the slice. */
static inline bool exl2__work_spend(exl2__work *w, uint64_t cost)
{
    if (w->left <= 0) {
        return false;
    }
    w->left -= (int64_t)cost;
    return true;
}

/* The same for an item that needs a slice of its own: false unless nothing has been spent yet. */
static inline bool exl2__work_spend_all(exl2__work *w)
{
    if (w->left < EXL2__WORK_SLICE) {
        return false;
    }
    w->left -= EXL2__WORK_SLICE;
    return true;
}

#endif

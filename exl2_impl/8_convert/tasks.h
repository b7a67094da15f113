/* tasks.h: runs the parts of a conversion, in parallel if the application can.
   takes: a context with the application's exl2_parallel.
   gives: exl2__tasks_run.
   owns:  nothing. */
#ifndef EXL2__TASKS_H
#define EXL2__TASKS_H

#include "../0_base/result.h"

/* Calls task(arg, 0) ... task(arg, count - 1). */
static inline void exl2__tasks_run(const exl2__ctx *c, uint32_t count, void (*task)(void *arg, uint32_t index),
                                   void *arg)
{
    if (c->parallel.run && count > 1) {
        c->parallel.run(c->parallel.user, count, task, arg);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        task(arg, i);
    }
}

#endif

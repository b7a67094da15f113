/* tasks.h: runs the parts of a conversion, in parallel if the application can.
   takes: a context with the application's exl2_parallel.
   gives: exl2__tasks_run; exl2__tasks_try, for parts that can fail. */
#ifndef EXL2__TASKS_H
#define EXL2__TASKS_H

#include "../0_base/bytes.h"
#include "../0_base/result.h"

#define EXL2__TASKS_TRY_MAX 64u /* parts that can fail */

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

/* A part with a context of its own for its error. It allocates nothing. */
typedef exl2_result (*exl2__tasks_part)(exl2__ctx *c, void *arg, uint32_t index);

typedef struct exl2__tasks_parts {
    const exl2__ctx *c;
    exl2__tasks_part part;
    void *arg;
    exl2_result result[EXL2__TASKS_TRY_MAX];
    exl2_error error[EXL2__TASKS_TRY_MAX];
} exl2__tasks_parts;

EXL2__PRIVATE void exl2__tasks_one(void *arg, uint32_t index)
{
    exl2__tasks_parts *parts = (exl2__tasks_parts *)arg;
    exl2__ctx own = *parts->c;
    parts->result[index] = parts->part(&own, parts->arg, index);
    if (parts->result[index] < 0) {
        parts->error[index] = own.error;
    }
}

/* Calls part(.., arg, 0) ... part(.., arg, count - 1), at most EXL2__TASKS_TRY_MAX. Gives the error of the first that
   failed, as if they had run in order. */
EXL2__PRIVATE exl2_result exl2__tasks_try(exl2__ctx *c, uint32_t count, exl2__tasks_part part, void *arg)
{
    exl2__tasks_parts parts = { .c = c, .part = part, .arg = arg };
    EXL2__ASSERT(count <= EXL2__TASKS_TRY_MAX);
    exl2__tasks_run(c, count, exl2__tasks_one, &parts);
    for (uint32_t i = 0; i < count; i++) {
        if (parts.result[i] < 0) {
            c->error = parts.error[i];
            return parts.result[i];
        }
    }
    return EXL2_OK;
}

#endif

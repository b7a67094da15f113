/* vision_tasks.h: divides independent items among the threads of the application.
   takes: the CPU backend's device of the model, or NULL.
   gives: exl2__vision_tasks, exl2__vision_tasks_run. */
#ifndef EXL2__VISION_TASKS_H
#define EXL2__VISION_TASKS_H

#include "../cpu/cpu_device.h"

#ifndef EXL2_NO_VISION

/* Computes items [begin, end) with the scratch of task `task`. */
typedef void (*exl2__vision_work)(void *arg, uint32_t begin, uint32_t end, uint32_t task);

typedef struct exl2__vision_split {
    exl2__vision_work work;
    void *arg;
    uint32_t begin, items, shares;
    uint32_t next; /* the first share that no task has; atomic */
} exl2__vision_split;

/* Number of tasks that may run at once. */
static inline uint32_t exl2__vision_tasks(const exl2__device *cpu)
{
    return cpu ? exl2__cpu_of(cpu)->tasks : 1;
}

EXL2__PRIVATE void exl2__vision_split_task(void *argument, uint32_t index)
{
    exl2__vision_split *s = (exl2__vision_split *)argument;
    for (uint32_t i = index; i < s->shares; i = exl2__atomic_add(&s->next, 1)) {
        s->work(s->arg, s->begin + exl2__cpu_share_start(s->items, s->shares, i),
                s->begin + exl2__cpu_share_start(s->items, s->shares, i + 1), index);
    }
}

/* Computes items [begin, end): on the application's threads, if it provides them and `cost` (multiply-adds of all
   items) is large enough. most: tasks that have scratch. */
EXL2__PRIVATE void exl2__vision_tasks_run(const exl2__device *cpu, uint32_t most, exl2__vision_work work, void *arg,
                                          uint32_t begin, uint32_t end, uint64_t cost)
{
    uint32_t items = end - begin;
    most = exl2__min32(exl2__min32(most, exl2__vision_tasks(cpu)), items);
    uint32_t tasks = (uint32_t)exl2__min64(cost / EXL2__CPU_TASK_COST + 1, most);
    if (tasks <= 1) {
        work(arg, begin, end, 0);
    } else {
        const exl2_parallel *parallel = &exl2__cpu_of(cpu)->c->parallel;
        uint64_t each = cost / (EXL2__CPU_SHARE_COST * (uint64_t)tasks);
        each = exl2__max64(exl2__min64(each, exl2__min32(EXL2__CPU_SHARES, items / tasks)), 1);
        exl2__vision_split split = { work, arg, begin, items, (uint32_t)each * tasks, tasks };
        parallel->run(parallel->user, tasks, exl2__vision_split_task, &split);
    }
}

#endif
#endif

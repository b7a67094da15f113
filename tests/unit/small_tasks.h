/* small_tasks.h: every stage of the CPU backend is split into tasks, also those of small shapes. Include it first.
   takes: engine_rig, or a program that compiles the engine's files (TEST_WHOLE).
   gives: make_tasks_small. */
#ifndef SMALL_TASKS_H
#define SMALL_TASKS_H

#ifdef TEST_WHOLE
#define EXL2__CPU_TASK_COST 1
#else
#include "../engine_rig.h"
#endif

static inline void make_tasks_small(void)
{
#ifndef TEST_WHOLE
    engine_rig.task_cost = 1;
#endif
}

#endif

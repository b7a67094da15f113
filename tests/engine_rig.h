/* engine_rig.h: what tests replace in the engine that they link (engine.c): numbers, the clock, memory, the tables of
   driver and compiler. Include it before the engine's files.
   takes: nothing.
   gives: engine_rig. */
#ifndef ENGINE_RIG_H
#define ENGINE_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct exl2__cuda_driver;
struct exl2__cuda_nvrtc;

typedef struct engine_rig_values {
    uint32_t task_cost;   /* EXL2__CPU_TASK_COST */
    uint32_t unit_ns;     /* EXL2__CUDA_UNIT_NS */
    uint32_t part_rows;   /* EXL2__CUDA_PART_ROWS */
    uint64_t read_slice;  /* EXL2__RUNNER_READ_SLICE */
    uint64_t read_most;   /* EXL2__RUNNER_READ_MOST */
    uint64_t write_chunk; /* EXL2__WORKDIR_CHUNK */
    /* NULL: the engine's own */
    bool (*commit)(size_t bytes); /* whether a reserved part of a cache gets its memory; NULL: no cache is reserved */
    int (*sleep)(const struct timespec *time, struct timespec *left);
    int (*clock)(int clock, struct timespec *time);
    void (*nap)(void);         /* before a call that waits sleeps because it has nothing to do */
    uint64_t (*entropy)(void); /* random seeds */
    void (*tables)(struct exl2__cuda_driver *driver, struct exl2__cuda_nvrtc *nvrtc); /* as EXL2__CUDA_TABLES */
    uint32_t (*spans)(uint32_t layers, uint32_t *ends);                             /* as EXL2__TEST_SPANS */
} engine_rig_values;

/* As shipped, but for what fake_engine.c and convert_slices.c replace before main. */
extern engine_rig_values engine_rig;

#endif

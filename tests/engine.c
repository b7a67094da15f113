/* engine.c: the engine as tests link it: compiled once, with its private functions visible, so that a test calls them
   without compiling them. Its numbers, its clock, its sleep, its files and the tables of driver and compiler are those
   that it ships with, unless a test replaces them (engine_rig.h, convert_system.h). For the tests that run on a GPU it
   may stand in for another kind, or cut models into spans (other_gpu.h).
   takes: EXL2_CONVERT and an empty EXL2__PRIVATE from tests/meson.build; engine_rig; other_gpu.h's environment
          variables.
   gives: every function of the engine; convert_system; all_ops of unit/cpu_paths.h. */
#define _GNU_SOURCE
#include "engine_rig.h"

#define EXL2__PLATFORM_RESERVES (engine_rig.commit != NULL)
#define EXL2__TEST_COMMIT(bytes) (!engine_rig.commit || engine_rig.commit(bytes))

/* ---- the clock and random seeds ---- */

int ptx_driver_sleep(const struct timespec *time, struct timespec *left); /* emulated GPUs work meanwhile */

static int engine_sleep(const struct timespec *time, struct timespec *left)
{
    return engine_rig.sleep ? engine_rig.sleep(time, left) : ptx_driver_sleep(time, left);
}

static int engine_clock(int clock, struct timespec *time)
{
    return engine_rig.clock ? engine_rig.clock(clock, time) : clock_gettime(clock, time);
}

#define nanosleep(time, left) engine_sleep(time, left)
#define clock_gettime(clock, time) engine_clock(clock, time)
#define exl2__platform_entropy engine_entropy
#define exl2__platform_sleep_ms engine_sleep_ms
#define exl2__platform_ns engine_ns
#include "private/platform.h"
#undef exl2__platform_entropy
#undef exl2__platform_sleep_ms
#undef exl2__platform_ns
#include "engine_files.h"

static inline uint64_t exl2__platform_entropy(const void *salt)
{
    return engine_rig.entropy ? engine_rig.entropy() : engine_entropy(salt);
}

static inline void exl2__platform_sleep_ms(void)
{
    if (engine_rig.nap) {
        engine_rig.nap();
    }
    engine_sleep_ms();
}

/* ---- numbers, tables, spans ---- */

#include "device/other_gpu.h"
#undef EXL2__CUDA_TABLES
#undef EXL2__TEST_SPANS

#define EXL2__CPU_TASK_COST engine_rig.task_cost
#define EXL2__CUDA_UNIT_NS engine_rig.unit_ns
#define EXL2__CUDA_PART_ROWS engine_rig.part_rows
#define EXL2__RUNNER_READ_SLICE engine_rig.read_slice
#define EXL2__RUNNER_READ_MOST engine_rig.read_most
#define EXL2__WORKDIR_CHUNK engine_rig.write_chunk
#define EXL2__CUDA_TABLES(driver, nvrtc) (engine_rig.tables ? engine_rig.tables : other_gpu_tables)(driver, nvrtc)
#define EXL2__TEST_SPANS(layers, ends) (engine_rig.spans ? engine_rig.spans : other_gpu_cut)(layers, ends)
#define EXL2_IMPLEMENTATION
#include "exl2.h"

#define CPU_PATHS_OWNER
#include "unit/cpu_paths.h"

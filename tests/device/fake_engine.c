/* fake_engine.c: the engine with the fake driver and compiler, whose tables the test that links it fills in. It also
   splits the work of tiny models into tasks, and that of tiny models on a slow GPU (fake.devices) into units.
   takes: machine_tables; fake_sleep, during which the fake device works; fake_clock; fake_engine_hooks.
   gives: every function of exl2.h; fake_spans. */
#include <time.h>

int engine_sleep(const struct timespec *time, struct timespec *left);
int engine_clock(int clock, struct timespec *time);

#define nanosleep(time, left) engine_sleep(time, left)
#define clock_gettime(clock, time) engine_clock(clock, time)
#define exl2__platform_entropy engine_entropy
#define exl2__platform_sleep_ms engine_sleep_ms
#include "private/platform.h"
#undef exl2__platform_entropy
#undef exl2__platform_sleep_ms
#include "fake_driver.h"

fake_hooks fake_engine_hooks;

int engine_sleep(const struct timespec *time, struct timespec *left)
{
    return fake_engine_hooks.sleep ? fake_engine_hooks.sleep(time, left) : fake_sleep(time, left);
}

int engine_clock(int clock, struct timespec *time)
{
    return fake_engine_hooks.clock ? fake_engine_hooks.clock(clock, time) : fake_clock(clock, time);
}

/* Called only when a call that waits has nothing to do; waiting for the GPU sleeps by nanosleep. */
static inline void exl2__platform_sleep_ms(void)
{
    if (fake_engine_hooks.nap) {
        fake_engine_hooks.nap();
    }
    engine_sleep_ms();
}

static inline uint64_t exl2__platform_entropy(const void *salt)
{
    return fake_engine_hooks.entropy ? fake_engine_hooks.entropy() : engine_entropy(salt);
}

#define EXL2__CPU_TASK_COST 1
#define EXL2__CUDA_UNIT_NS 10000u
#define EXL2__CUDA_PART_ROWS 8u
#define EXL2__CUDA_TABLES(driver, nvrtc) machine_tables(driver, nvrtc)
#define EXL2__TEST_SPANS(layers, ends) (fake_spans ? fake_spans(layers, ends) : (*(ends) = (layers), 1u))
#define EXL2_IMPLEMENTATION
#include "exl2.h"

uint32_t (*fake_spans)(uint32_t layers, uint32_t *ends);

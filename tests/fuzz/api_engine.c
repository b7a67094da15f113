/* api_engine.c: the engine that api.c drives. Its clock, sleeps and random seeds come from the fuzzer, so that a
   sequence of calls depends on the fuzzer's seed alone. Driver and compiler are the fakes of tests/device.
   takes: api_clock, api_sleep, api_nap, api_entropy, machine_tables.
   gives: every function of exl2.h. */
#include <time.h>

int api_clock(int clock, struct timespec *time);
int api_sleep(const struct timespec *time, struct timespec *left);

#define nanosleep(time, left) api_sleep(time, left)
#define clock_gettime(clock, time) api_clock(clock, time)
#define exl2__platform_entropy api_real_entropy
#define exl2__platform_sleep_ms api_real_nap
#include "private/platform.h"
#undef exl2__platform_entropy
#undef exl2__platform_sleep_ms

uint64_t api_entropy(void);
void api_nap(void);

/* Called only when a call that waits has nothing to do; waiting for the GPU sleeps through api_sleep. */
static inline void exl2__platform_sleep_ms(void)
{
    api_nap();
    api_real_nap();
}

static inline uint64_t exl2__platform_entropy(const void *salt)
{
    (void)salt;
    return api_entropy();
}

#define EXL2__CPU_TASK_COST 1
#define EXL2__CUDA_TABLES(driver, nvrtc) machine_tables(driver, nvrtc)
#include "../device/fake_driver.h"
#define EXL2_IMPLEMENTATION
#include "../../exl2.h"

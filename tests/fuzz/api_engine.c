/* api_engine.c: the engine that api.c drives: its clock, its sleeps and its drawn seeds are the fuzzer's, so that a
   sequence of calls is a function of the seed alone; driver and compiler are those of tests/device.
   takes: api_clock, api_sleep, api_nap, api_entropy, machine_tables.
   gives: every function of exl2.h.
   owns:  nothing. */
#include <time.h>

int api_clock(int clock, struct timespec *time);
int api_sleep(const struct timespec *time, struct timespec *left);

#define nanosleep(time, left) api_sleep(time, left)
#define clock_gettime(clock, time) api_clock(clock, time)
#define exl2__platform_entropy api_real_entropy
#define exl2__platform_sleep_ms api_real_nap
#include "../../exl2_impl/0_base/platform.h"
#undef exl2__platform_entropy
#undef exl2__platform_sleep_ms

uint64_t api_entropy(void);
void api_nap(void);

/* Only calls that wait and have nothing to do nap; who waits for the device dozes. */
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

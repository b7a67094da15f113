/* counted_engine.c: the engine over the fake driver, with a clock that counts the basic blocks that the engine runs. It
   is compiled with -fsanitize-coverage=trace-pc, so that the compiler calls __sanitizer_cov_trace_pc in each of them.
   Each share of work of the CPU backend is followed by counted_slow, which can make it as long as on a slow core.
   takes: counted_clock, counted_slow; what fake_engine.c needs, but fake_clock.
   gives: every function of exl2.h. */
#include <stdint.h>
#include <time.h>

int counted_clock(int clock, struct timespec *time);
void counted_slow(uint64_t ns);

#define nanosleep(time, left) fake_sleep(time, left)
#define clock_gettime(clock, time) counted_clock(clock, time)
#include "../device/fake_driver.h"

#define EXL2__CUDA_TABLES(driver, nvrtc) machine_tables(driver, nvrtc)
#define EXL2__TEST_SLOW(ns) counted_slow(ns)
#define EXL2_IMPLEMENTATION
#include "exl2.h"

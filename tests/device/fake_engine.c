/* fake_engine.c: an engine whose tables of driver and compiler are filled by the test that links it, and that cuts tiny
   models into tasks, too.
   takes: machine_tables; the device works while this engine sleeps, and its clock is fake_clock.
   gives: every function of exl2.h.
   owns:  nothing. */
#include <time.h>

#define nanosleep(time, left) fake_sleep(time, left)
#define clock_gettime(clock, time) fake_clock(clock, time)
#include "fake_driver.h"

#define EXL2__CPU_TASK_COST 1
#define EXL2__CUDA_TABLES(driver, nvrtc) machine_tables(driver, nvrtc)
#define EXL2_IMPLEMENTATION
#include "exl2.h"

/* fake_engine.c: the engine with the fake driver and compiler, whose tables the test that links it fills in. It also
   splits the work of tiny models into tasks, and that of tiny models on a slow GPU (fake.devices) into units.
   takes: machine_tables; fake_sleep, during which the fake device works; fake_clock.
   gives: every function of exl2.h; fake_spans. */
#include <time.h>

#define nanosleep(time, left) fake_sleep(time, left)
#define clock_gettime(clock, time) fake_clock(clock, time)
#include "fake_driver.h"

#define EXL2__CPU_TASK_COST 1
#define EXL2__CUDA_UNIT_NS 10000u
#define EXL2__CUDA_PART_ROWS 8u
#define EXL2__CUDA_TABLES(driver, nvrtc) machine_tables(driver, nvrtc)
#define EXL2__TEST_SPANS(layers, ends) (fake_spans ? fake_spans(layers, ends) : (*(ends) = (layers), 1u))
#define EXL2_IMPLEMENTATION
#include "exl2.h"

uint32_t (*fake_spans)(uint32_t layers, uint32_t *ends);

/* fake_engine.c: an engine whose tables of driver and compiler are filled by the test that links it.
   takes: machine_tables.
   gives: every function of exl2.h.
   owns:  nothing.
   next:  fake_engine.h */
#include "fake_driver.h"

#define EXL2__CUDA_TABLES(driver, nvrtc) machine_tables(driver, nvrtc)
#define EXL2_IMPLEMENTATION
#include "exl2.h"

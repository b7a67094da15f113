/* other_gpu.c: the engine for programs of tests/device: as it ships, but the GPU may stand in for another kind.
   takes: other_gpu.h's environment variables; EXL2_CONVERT from the build.
   gives: every function of exl2.h. */
#include "other_gpu.h"

#define EXL2_IMPLEMENTATION
#include "exl2.h"

/* engine.c: the engine as tests link it: compiled once, with its private functions visible, so that a test calls them
   without compiling them. For the tests that run on a GPU it may stand in for another kind, or cut models into spans.
   takes: EXL2_CONVERT and an empty EXL2__PRIVATE from tests/meson.build; other_gpu.h's environment variables.
   gives: every function of the engine; all_ops of unit/cpu_paths.h. */
#include "device/other_gpu.h"

#define EXL2_IMPLEMENTATION
#include "exl2.h"

#define CPU_PATHS_OWNER
#include "unit/cpu_paths.h"

/* reserve.c: engine/reserve.c with an engine of its own, for Windows, where a cache is reserved without the help of
   tests.
   takes: TEST_WHOLE from hosts.c.
   gives: exit code 0 or 1. */
#include <stdbool.h>
#include <stddef.h>

static bool commit_allowed(size_t bytes);

#define EXL2__TEST_COMMIT(bytes) commit_allowed(bytes)
#define EXL2_NO_CUDA
#define EXL2_IMPLEMENTATION
#include "../engine/reserve.c"

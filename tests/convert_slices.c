/* convert_slices.c: a test of conversions that links this reads and hashes even tiny models in several slices.
   takes: engine_rig.
   gives: nothing; it works before main. */
#include "engine_rig.h"

static void __attribute__((constructor)) cut_slices(void)
{
    engine_rig.read_slice = 2048;
    engine_rig.read_most = 20000;
    engine_rig.write_chunk = 1000;
}

/* engine_rig.c: the numbers of the engine as it ships, before engine.c makes variables of them.
   takes: the engine's files.
   gives: engine_rig. */
#undef TEST_WHOLE /* engine.c compiles their functions */
#include "engine_rig.h"

#include "private/cpu_device.h"
#include "private/cuda_cross.h"
#include "private/cuda_queue.h"
#include "private/runner_read.h"
#include "private/workdir.h"

engine_rig_values engine_rig = {
    .task_cost = EXL2__CPU_TASK_COST,
    .unit_ns = EXL2__CUDA_UNIT_NS,
    .part_rows = EXL2__CUDA_PART_ROWS,
    .read_slice = EXL2__RUNNER_READ_SLICE,
    .read_most = EXL2__RUNNER_READ_MOST,
    .write_chunk = EXL2__WORKDIR_CHUNK,
};

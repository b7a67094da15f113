/* ptx_driver.h: a CUDA driver whose GPUs are the CPU: it runs kernels in PTX (ptx.h) and checks each of their accesses;
   and an NVRTC whose PTX is kept on disk. So whole models run by their real kernels on a machine without a GPU.
   takes: the machine that it stands for.
   gives: ptx_driver_fill, ptx_driver_sleep; ptx_compiler_fill.
   owns:  everything behind the driver's handles; files in $XDG_CACHE_HOME/exl2-ptx or ~/.cache/exl2-ptx, which may be
          removed at any time.

   Work is queued. A call that waits, queries, frees or sleeps lets all streams of all GPUs get on in turn, so that
   kernels of several GPUs overlap and may wait for each other. A copy or a launch that a GPU would reject is rejected;
   a kernel that faults loses its GPU. Both are described on stderr. */
#ifndef PTX_DRIVER_H
#define PTX_DRIVER_H

#include <time.h>

#include "private/cuda_api.h"

#define PTX_DRIVER_GPUS_MAX 8

typedef struct ptx_driver_machine {
    int gpus;         /* all of one kind, which reach each other's memory */
    int arch;         /* 80 = compute capability 8.0 */
    int sm_count;
    int shared_optin, shared_per_sm; /* bytes of shared memory of a block and of an SM */
    int seed;         /* 0: streams and warps take turns in order; else at random */
} ptx_driver_machine;

/* Fills the table. The machine is the process's: later calls change what GPUs report, begin the turns of the seed anew,
   and keep memory. */
void ptx_driver_fill(const ptx_driver_machine *machine, exl2__cuda_driver *driver);

/* As nanosleep, which the engine calls while it waits for a GPU: meanwhile the GPUs work. */
int ptx_driver_sleep(const struct timespec *time, struct timespec *left);

/* nvrtc: open. Programs of the new table give PTX, also in the place of machine code. */
void ptx_compiler_fill(exl2__cuda_nvrtc *nvrtc);

#endif

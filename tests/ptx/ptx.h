/* ptx.h: runs kernels in PTX on the CPU, so that the engine's kernels compute without a GPU.
   takes: PTX as NVRTC gives it for compute_75, 80, 90 and 90a, as far as kernels_src uses it.
   gives: ptx_load, ptx_kernel_of and what a kernel needs; ptx_start, ptx_advance and what a run says.
   owns:  modules and runs, until they are freed.
   Addresses of global memory are addresses of the process. */
#ifndef PTX_H
#define PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ptx_module ptx_module;
typedef struct ptx_kernel ptx_kernel;
typedef struct ptx_run ptx_run;

/* Parses a module; `text` ends with NUL. NULL: error has line and instruction. */
ptx_module *ptx_load(const char *text, char *error, size_t cap);
void ptx_free(ptx_module *module);
const ptx_kernel *ptx_kernel_of(const ptx_module *module, const char *name); /* NULL: no such kernel */
uint32_t ptx_shared_bytes(const ptx_kernel *k);    /* static shared memory */
uint32_t ptx_parameter_bytes(const ptx_kernel *k);
uint32_t ptx_threads_max(const ptx_kernel *k);     /* .maxntid, or 1024 */
uint32_t ptx_cluster(const ptx_kernel *k);         /* .reqnctapercluster, or 0: as the launch says */

typedef struct ptx_launch {
    const ptx_kernel *kernel;
    uint32_t grid[3], block[3], cluster;           /* cluster: CTAs along x; 0 and 1: none */
    uint32_t dynamic_bytes;                        /* of shared memory */
    uint32_t resident;                             /* CTAs that run at the same time, as on so many SMs; 0: all */
    const void *parameters;                        /* ptx_parameter_bytes, copied */
    /* Whether [address, address + bytes) is device memory that this kernel may read (write); NULL: everything. */
    bool (*allowed)(void *user, uint64_t address, size_t bytes, bool write);
    void *user;
    uint32_t seed;                                 /* 0: warps in order; else they take turns at random */
    const bool *gate;                              /* griddepcontrol.wait waits while it is false; NULL: it does not */
} ptx_launch;

ptx_run *ptx_start(const ptx_launch *launch);
/* Runs about so many instructions of warps. 1: more to do; 0: finished; -1: a fault, which ptx_fault describes in one
   sentence with kernel, CTA, thread, instruction and address. A run whose warps all wait (for another kernel's
   memory, say) returns 1 and uses no time. */
int ptx_advance(ptx_run *run, uint64_t instructions);
const char *ptx_fault(const ptx_run *run);
bool ptx_released(const ptx_run *run); /* every CTA has ended or said griddepcontrol.launch_dependents */
uint64_t ptx_executed(const ptx_run *run); /* instructions of warps so far, those of waiting loops, too */
void ptx_end(ptx_run *run);

#endif

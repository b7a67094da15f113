/* rig.h: runs small kernels in PTX for tests.
   takes: ptx.h, check.h.
   gives: rig_run, rig_check, rig_fault; RIG_HEAD. */
#ifndef PTX_RIG_H
#define PTX_RIG_H

#include "../check.h"
#include "ptx.h"

#define RIG_HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"
#define RIG_BUFFERS 4
#define RIG_STEPS 50000000u

/* What a test's kernel reads and writes: buffers, whose addresses are its parameters, in order; others are a fault. */
typedef struct rig {
    const char *text;
    struct { void *memory; size_t bytes; } buffers[RIG_BUFFERS];
    uint32_t threads, ctas, cluster, resident, dynamic_bytes, seed;
    char fault[600];
} rig;

static bool rig_allowed(void *user, uint64_t address, size_t bytes, bool write)
{
    const rig *r = user;
    (void)write;
    for (int i = 0; i < RIG_BUFFERS; i++) {
        uint64_t begin = (uint64_t)(uintptr_t)r->buffers[i].memory;
        if (begin && address >= begin && address + bytes <= begin + r->buffers[i].bytes) {
            return true;
        }
    }
    return false;
}

/* Runs the kernel "test" of the text. True: it ended. Else `fault` says why. */
static bool rig_run(rig *r)
{
    uint64_t parameters[RIG_BUFFERS];
    int result = -1;
    for (int i = 0; i < RIG_BUFFERS; i++) {
        parameters[i] = (uint64_t)(uintptr_t)r->buffers[i].memory;
    }
    r->fault[0] = 0;
    ptx_module *module = ptx_load(r->text, r->fault, sizeof r->fault);
    const ptx_kernel *kernel = module ? ptx_kernel_of(module, "test") : NULL;
    if (kernel) {
        CHECK(ptx_parameter_bytes(kernel) <= sizeof parameters);
        ptx_launch launch = { .kernel = kernel, .grid = { r->ctas ? r->ctas : 1, 1, 1 },
            .block = { r->threads ? r->threads : 32, 1, 1 }, .cluster = r->cluster, .dynamic_bytes = r->dynamic_bytes,
            .resident = r->resident, .parameters = parameters, .allowed = rig_allowed, .user = r, .seed = r->seed };
        ptx_run *run = ptx_start(&launch);
        result = ptx_advance(run, RIG_STEPS);
        CHECK(result <= 0); /* 1: it has not ended */
        snprintf(r->fault, sizeof r->fault, "%s", ptx_fault(run));
        ptx_end(run);
    }
    ptx_free(module);
    return result == 0;
}

static inline void rig_check(rig *r)
{
    if (!CHECK(rig_run(r))) {
        printf("    %s\n", r->fault);
    }
}

/* The run must fail with a message that has this text. */
static inline void rig_fault(rig *r, const char *wanted)
{
    CHECK(!rig_run(r));
    if (!CHECK(strstr(r->fault, wanted) != NULL)) {
        printf("    %s\n    wanted: %s\n", r->fault, wanted);
    }
}

#endif

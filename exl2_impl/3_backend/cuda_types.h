/* cuda_types.h: the host's allocator for device memory, as a struct of its own.
   takes: nothing.
   gives: exl2_device_hooks.
   owns:  nothing.
   next:  cuda_api.h */
#ifndef EXL2__CUDA_TYPES_H
#define EXL2__CUDA_TYPES_H

#include "../0_base/result.h"

typedef struct exl2_device_hooks { /* the driver's allocator */
    uint64_t (*device_alloc)(void *user, uint32_t device, uint64_t bytes, exl2_mem tag); /* 0 = refused */
    void (*device_free)(void *user, uint32_t device, uint64_t address, uint64_t bytes, exl2_mem tag);
    void *user;
} exl2_device_hooks;

#endif

/* cuda_types.h: what hosts say and learn about CUDA devices; becomes part of exl2.h together with the backend.
   takes: nothing.
   gives: exl2_pick, exl2_device_desc, exl2_device_info, exl2_device_hooks, exl2_kernel_cache, error codes of devices.
   owns:  nothing.
   next:  cuda_api.h */
#ifndef EXL2__CUDA_TYPES_H
#define EXL2__CUDA_TYPES_H

#include "../0_base/result.h"

#define EXL2_ERR_DEVICE_MEMORY ((exl2_result)-6) /* the device has no more memory, or the hook refused */
#define EXL2_ERR_NO_DEVICE ((exl2_result)-12)    /* no GPU or driver that serves */
#define EXL2_ERR_NO_COMPILER ((exl2_result)-13)  /* no NVRTC, and the kernel is not in the cache */
#define EXL2_ERR_COMPILE ((exl2_result)-14)      /* a kernel does not compile or load */
#define EXL2_ERR_DEVICE_LOST ((exl2_result)-15)  /* the device's context is dead */

typedef enum exl2_pick {
    EXL2_PICK_BEST,
    EXL2_PICK_INDEX,
    EXL2_PICK_UUID,
    EXL2_PICK_LUID,
    EXL2_PICK_CONTEXT
} exl2_pick;

typedef struct exl2_device_desc {
    exl2_pick pick;
    uint32_t index;
    uint8_t uuid[16], luid[8];  /* luid: match the D3D or Vulkan adapter */
    void *cuda_context;         /* PICK_CONTEXT: adopt the host's CUcontext, never destroy it */
    uint32_t shared_bytes_max;  /* shared memory a kernel may use; 0 = what the device has; 49152 beside graphics */
    int32_t stream_priority;    /* CUDA meaning; 0 = lowest, so that rendering goes first */
} exl2_device_desc;

typedef struct exl2_device_info {
    char name[64];
    uint8_t uuid[16], luid[8];
    uint64_t bytes_total, bytes_free; /* free: 0 = unknown before open */
    uint32_t index, arch;             /* arch: 89 = compute capability 8.9 */
    bool usable;                      /* the driver and the capability are new enough */
    char why_not[120];                /* one sentence when not usable */
} exl2_device_info;

typedef struct exl2_device_hooks { /* the driver's allocator */
    uint64_t (*device_alloc)(void *user, uint32_t device, uint64_t bytes, exl2_mem tag); /* 0 = refused */
    void (*device_free)(void *user, uint32_t device, uint64_t address, uint64_t bytes, exl2_mem tag);
    void *user;
} exl2_device_hooks;

typedef struct exl2_kernel_cache { /* none: kernels are compiled again in every run */
    size_t (*load)(void *user, const char *key, void *dst, size_t cap); /* entry's size, even above cap; 0 = miss */
    void (*store)(void *user, const char *key, const void *data, size_t bytes);
    void *user;
} exl2_kernel_cache;

#endif

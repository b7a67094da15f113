/* gpu_rig.h: the GPU of a test that uses the CUDA backend without the engine.
   takes: exl2__cuda_device; $EXL2_NVRTC, $EXL2_TEST_KERNELS; variables of other_gpu.h.
   gives: gpu, gpu_ctx; gpu_open, gpu_close.
   owns:  the device, until gpu_close. */
#ifndef GPU_RIG_H
#define GPU_RIG_H

#include "other_gpu.h"

#include "private/cuda.h"
#include "kernel_folder.h"

static exl2__cuda_device gpu;
static exl2__ctx gpu_ctx;

/* Opens the GPU; without a GPU the test ends as skipped. options: NVRTC options, ended by NULL, or NULL for none.
   shared_bytes_max: limit of shared memory per block; 0: the limit of the device. */
static inline void gpu_open(const char *const *options, uint32_t shared_bytes_max)
{
    exl2_device_desc device = { .shared_bytes_max = shared_bytes_max };
    exl2__cuda_settings settings = { .device = &device, .nvrtc_path = check_env("EXL2_NVRTC"), .cache = kernel_folder(),
                                     .optional = true };
    gpu_ctx = (exl2__ctx){ 0 };
    gpu_ctx.allocator = exl2__platform_allocator();
    gpu_ctx.files = exl2__platform_files();
    other_gpu_tables(&gpu.driver, &gpu.compiler.nvrtc);
    if (exl2__cuda_device_open(&gpu_ctx, &gpu, &settings) < 0) {
        check_skip(gpu_ctx.error.text);
    }
    while (options && *options) {
        gpu.compiler.options[gpu.compiler.option_count++] = *options++;
    }
}

static inline void gpu_close(void)
{
    CHECK_INT(gpu.bytes, 0);
    exl2__cuda_device_close(&gpu);
    CHECK_INT(gpu_ctx.host_bytes, 0);
}

#endif

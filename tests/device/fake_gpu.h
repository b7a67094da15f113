/* fake_gpu.h: an open device of the fake driver with all of the engine's kernels, for tests that launch them.
   takes: cuda.h of the backend, included before; what a launch does.
   gives: ctx, gpu; gpu_open, gpu_close.
   owns:  the device, until gpu_close. */
#ifndef FAKE_GPU_H
#define FAKE_GPU_H

#include "../check.h"
#include "fake_driver.h"

static exl2__ctx ctx;
static exl2__cuda_device gpu;

/* arch: 89 = compute capability 8.9. */
static void gpu_open(int arch, int shared_bytes,
                     void (*run)(const char *function, const void *arguments, const unsigned grid[3]))
{
    static const fake_kernel kernels[] = { EXL2__KERNELS(FAKE_KERNEL_ROW) };
    exl2__cuda_settings settings = { 0 };
    fake_reset();
    fake.kernels = kernels;
    fake.kernel_count = EXL2__COUNT(kernels);
    fake.run = run;
    fake.devices[0].arch_major = arch / 10;
    fake.devices[0].arch_minor = arch % 10;
    fake.devices[0].shared_optin = shared_bytes;
    memset(&gpu, 0, sizeof gpu);
    memset(&ctx, 0, sizeof ctx);
    ctx.allocator = exl2__platform_allocator();
    ctx.files = exl2__platform_files();
    gpu.driver = fake_driver();
    gpu.compiler.nvrtc = fake_nvrtc();
    CHECK_INT(exl2__cuda_device_open(&ctx, &gpu, &settings), EXL2_OK);
}

static void gpu_close(void)
{
    exl2__cuda_device_close(&gpu);
    CHECK_INT(ctx.host_bytes, 0);
    CHECK_INT(fake_leaks(), 0);
}

#endif

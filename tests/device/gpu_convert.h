/* gpu_convert.h: the GPU of a test that runs the converter's stages.
   takes: $EXL2_NVRTC, $EXL2_TEST_KERNELS; variables of other_gpu.h.
   gives: ctx, device, random_state; need, random_rows; gpu_convert_open, gpu_convert_close.
   owns:  the device, until gpu_convert_close. */
#ifndef GPU_CONVERT_H
#define GPU_CONVERT_H

#define EXL2_CONVERT
#include "other_gpu.h"

#include "private/platform_write.h"
#include "private/correct.h"
#include "private/measure.h"
#include "../sample_reference.h"
#include "gpu_product.h"
#include "kernel_folder.h"

static exl2__ctx ctx;
static exl2__gpu device;
static uint64_t random_state = 7;

static void need(exl2_result result)
{
    if (!CHECK_INT(result, EXL2_OK)) {
        printf("  %s\n", ctx.error.text);
        exit(check_done());
    }
}

/* Nearly normal, with a few large channels. */
static float *random_rows(uint32_t rows, uint32_t in, float size)
{
    float *x = take((size_t)rows * in * sizeof *x);
    for (size_t i = 0; i < (size_t)rows * in; i++) {
        double sum = 0;
        for (uint32_t k = 0; k < 4; k++) {
            sum += uniform(&random_state) - 0.5;
        }
        x[i] = (float)sum * size * (i % in % 61 == 5 ? 3000.0f : 1.0f);
    }
    return x;
}

/* Without a GPU the test ends as skipped. */
static void gpu_convert_open(void)
{
    ctx.allocator = exl2__platform_allocator();
    ctx.files = exl2__platform_files();
    ctx.cpu_path = exl2__cpu_path_best();
    exl2_engine_desc engine = { .backend = EXL2_BACKEND_CUDA, .nvrtc_path = check_env("EXL2_NVRTC"),
                                .kernel_cache = kernel_folder() };
    if (exl2__gpu_open(&ctx, &engine, &device) < 0) {
        check_skip(ctx.error.text);
    }
}

static void gpu_convert_close(void)
{
    exl2__gpu_close(&ctx, &device);
    CHECK_INT(ctx.host_bytes, 0);
}

#endif

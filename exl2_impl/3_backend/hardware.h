/* hardware.h: chooses what the models of an engine run on: the CPU, or a supported GPU.
   takes: exl2_engine_desc, exl2_kernel_build_desc.
   gives: exl2__hardware, exl2__hardware_open, exl2__hardware_close, exl2__hardware_describe, exl2__hardware_count,
          exl2__hardware_probe, exl2__hardware_list, exl2__hardware_build.
   owns:  the open CUDA device, until exl2__hardware_close.

   The engine sees only a backend and a pointer for it; it does not depend on CUDA. */
#ifndef EXL2__HARDWARE_H
#define EXL2__HARDWARE_H

#include "cpu/cpu.h"

#ifndef EXL2_NO_CUDA
#include "cuda/cuda.h"
#include "cuda/cuda_probe.h"

#ifndef EXL2__CUDA_TABLES /* tests replace the functions of driver and compiler */
#define EXL2__CUDA_TABLES(driver, nvrtc) ((void)0)
#endif
#endif

typedef struct exl2__hardware { /* zeroed: closed */
    const exl2__backend *backend;
    void *device; /* given to the backend's `open`; NULL: the CPU */
} exl2__hardware;

#ifndef EXL2_NO_CUDA

EXL2__PRIVATE void exl2__hardware_close(exl2__ctx *c, exl2__hardware *h)
{
    exl2__cuda_device *device = (exl2__cuda_device *)h->device;
    if (device) {
        exl2__cuda_device_close(device);
        exl2__free(c, device, sizeof *device, EXL2_MEM_GENERAL);
    }
    *h = (exl2__hardware){ 0 };
}

/* On failure *out is closed. */
EXL2__PRIVATE exl2_result exl2__hardware_cuda(exl2__ctx *c, const exl2_engine_desc *d, exl2__hardware *out)
{
    void *memory;
    exl2__cuda_settings settings = { .device = d->device_count ? d->devices : NULL, .nvrtc_path = d->nvrtc_path,
                                     .cache = d->kernel_cache, .device_bytes_max = d->device_bytes_max,
                                     .optional = d->backend == EXL2_BACKEND_AUTO };
    EXL2__TRY(exl2__alloc(c, sizeof(exl2__cuda_device), sizeof(void *), EXL2_MEM_GENERAL, &memory));
    exl2__cuda_device *device = (exl2__cuda_device *)memory;
    *device = (exl2__cuda_device){ 0 };
    EXL2__CUDA_TABLES(&device->driver, &device->compiler.nvrtc);
    *out = (exl2__hardware){ &exl2__cuda_backend, device };
    exl2_result result = exl2__cuda_device_open(c, device, &settings);
    if (result < 0) {
        exl2__hardware_close(c, out);
    }
    return result;
}

/* With AUTO, errors that the application can correct (bad argument, out of memory, budget) are returned. Any other
   error is logged, as the reason why models run on the CPU. */
EXL2__PRIVATE exl2_result exl2__hardware_open(exl2__ctx *c, const exl2_engine_desc *d, exl2__hardware *out)
{
    exl2_result result = EXL2_ERR_NO_DEVICE;
    *out = (exl2__hardware){ &exl2__cpu_backend, NULL };
    if (d->backend == EXL2_BACKEND_CPU) {
        return EXL2_OK;
    }
    result = exl2__hardware_cuda(c, d, out);
    bool correctable = result == EXL2_ERR_ARG || result == EXL2_ERR_MEMORY || result == EXL2_ERR_BUDGET;
    if (result >= 0 || correctable || d->backend == EXL2_BACKEND_CUDA) {
        return result;
    }
    exl2__log(c, EXL2_LOG_WARN, EXL2_LOG_ID_CPU_FALLBACK, "models run on the CPU: %s", c->error.text);
    c->error = (exl2_error){ EXL2_OK, 0, "" };
    *out = (exl2__hardware){ &exl2__cpu_backend, NULL };
    return EXL2_OK;
}

static inline void exl2__hardware_describe(const exl2__hardware *h, exl2_engine_info *info)
{
    const exl2__cuda_device *device = (const exl2__cuda_device *)h->device;
    info->backend = device ? EXL2_BACKEND_CUDA : EXL2_BACKEND_CPU;
    if (device) {
        info->device = device->info;
    }
}

/* Fills in the statistics of the GPU. */
static inline void exl2__hardware_count(const exl2__hardware *h, exl2_engine_stats *s)
{
    const exl2__cuda_device *device = (const exl2__cuda_device *)h->device;
    if (device) {
        s->device_bytes = device->bytes;
        s->device_peak = device->peak;
        s->kernels_compiled = device->compiler.compiled;
    }
}

/* As exl2_device_probe. */
EXL2__PRIVATE exl2_result exl2__hardware_probe(exl2__ctx *c, const exl2__hardware *h, exl2_device_speed *out)
{
    exl2__cuda_device *device = (exl2__cuda_device *)h->device;
    *out = (exl2_device_speed){ 0 };
    return device ? exl2__cuda_probe(device, out)
                  : exl2__fail(c, EXL2_ERR_NO_DEVICE, "this engine has no GPU: its models run on the CPU");
}

/* As exl2_devices. */
EXL2__PRIVATE void exl2__hardware_list(exl2_device_info *out, uint32_t cap, uint32_t *count)
{
    exl2__cuda_driver driver = { 0 };
    char why[160];
    int version;
    *count = 0;
    EXL2__CUDA_TABLES(&driver, NULL);
    if (exl2__cuda_system_open(NULL, &driver, &version, why, sizeof why) == EXL2_OK) {
        exl2__cuda_system_list(&driver, out, cap, count);
        exl2__cuda_driver_close(&driver);
    }
}

/* As exl2_kernels_build. */
EXL2__PRIVATE exl2_result exl2__hardware_build(exl2__ctx *c, const exl2_kernel_build_desc *d)
{
    exl2__cuda_compiler compiler = { .nvrtc_path = d->nvrtc_path, .cache = d->into };
    EXL2__CUDA_TABLES(NULL, &compiler.nvrtc);
    exl2_result result = exl2__cuda_kernels_build(c, &compiler, d->archs, d->arch_count, d->converter);
    exl2__cuda_compiler_close(&compiler);
    return result;
}

#else

static inline void exl2__hardware_close(exl2__ctx *c, exl2__hardware *h)
{
    (void)c;
    *h = (exl2__hardware){ 0 };
}

EXL2__PRIVATE exl2_result exl2__hardware_open(exl2__ctx *c, const exl2_engine_desc *d, exl2__hardware *out)
{
    *out = (exl2__hardware){ &exl2__cpu_backend, NULL };
    return d->backend != EXL2_BACKEND_CUDA
               ? EXL2_OK
               : exl2__fail(c, EXL2_ERR_UNSUPPORTED, "EXL2_BACKEND_CUDA is not supported: this build has EXL2_NO_CUDA");
}

static inline void exl2__hardware_describe(const exl2__hardware *h, exl2_engine_info *info)
{
    (void)h;
    info->backend = EXL2_BACKEND_CPU;
}

static inline void exl2__hardware_count(const exl2__hardware *h, exl2_engine_stats *s)
{
    (void)h;
    (void)s;
}

EXL2__PRIVATE exl2_result exl2__hardware_probe(exl2__ctx *c, const exl2__hardware *h, exl2_device_speed *out)
{
    (void)h;
    *out = (exl2_device_speed){ 0 };
    return exl2__fail(c, EXL2_ERR_NO_DEVICE, "this engine has no GPU: this build has EXL2_NO_CUDA");
}

static inline void exl2__hardware_list(exl2_device_info *out, uint32_t cap, uint32_t *count)
{
    (void)out;
    (void)cap;
    *count = 0;
}

EXL2__PRIVATE exl2_result exl2__hardware_build(exl2__ctx *c, const exl2_kernel_build_desc *d)
{
    (void)d;
    return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "kernels cannot be built: this build has EXL2_NO_CUDA");
}

#endif

#endif

/* hardware.h: chooses what the models of an engine run on: the CPU, or up to EXL2_DEVICES_MAX supported GPUs.
   takes: exl2_engine_desc, exl2_kernel_build_desc.
   gives: exl2__hardware, exl2__hardware_open, exl2__hardware_close, exl2__hardware_first, exl2__hardware_describe,
          exl2__hardware_count, exl2__hardware_probe, exl2__hardware_link, exl2__hardware_list, exl2__hardware_build;
          exl2__hardware_share, exl2__hardware_share_bytes,
          exl2__hardware_share_room.
   owns:  the open CUDA devices, until exl2__hardware_close.

   The engine sees only a backend and pointers for it; it does not depend on CUDA. */
#ifndef EXL2__HARDWARE_H
#define EXL2__HARDWARE_H

#include "cpu/cpu.h"

#ifndef EXL2_NO_CUDA
#include "cuda/cuda_group.h"
#include "cuda/cuda_peer.h"
#include "cuda/cuda_probe.h"

#ifndef EXL2__CUDA_TABLES /* tests replace the functions of driver and compiler */
#define EXL2__CUDA_TABLES(driver, nvrtc) ((void)0)
#endif
#endif

typedef struct exl2__hardware { /* zeroed: closed */
    const exl2__backend *backend;
    uint32_t count;                  /* of GPUs that the application named, at least 1; 0: the CPU */
    uint32_t gpu_us[EXL2_DEVICES_MAX]; /* [count] as exl2_device_desc.gpu_us */
    void *devices[EXL2_DEVICES_MAX]; /* [count] given to the backend's `open`; NULL: with AUTO, one that did not open */
} exl2__hardware;

/* What lies on one of several GPUs that share a model by columns. */
typedef struct exl2__share_bytes {
    uint64_t cache, buffers;
    float columns; /* its part of all columns */
} exl2__share_bytes;

/* The GPU of models that name none; NULL: the CPU. */
static inline void *exl2__hardware_first(const exl2__hardware *h)
{
    uint32_t i = 0;
    while (i < h->count && !h->devices[i]) {
        i++;
    }
    return i < h->count ? h->devices[i] : NULL;
}

#ifndef EXL2_NO_CUDA

EXL2__PRIVATE void exl2__hardware_close(exl2__ctx *c, exl2__hardware *h)
{
    for (uint32_t i = 0; i < h->count; i++) {
        exl2__cuda_device *device = (exl2__cuda_device *)h->devices[i];
        if (device) {
            exl2__cuda_device_close(device);
            exl2__free(c, device, sizeof *device, EXL2_MEM_GENERAL);
        }
    }
    *h = (exl2__hardware){ 0 };
}

/* Opens a GPU. desc NULL: the best one. slot: its index in the engine. On failure *out is NULL. */
EXL2__PRIVATE exl2_result exl2__hardware_cuda_one(exl2__ctx *c, const exl2_engine_desc *d, const exl2_device_desc *desc,
                                                  uint32_t slot, void **out)
{
    exl2__cuda_settings settings = { .device = desc, .nvrtc_path = d->nvrtc_path, .cache = d->kernel_cache,
                                     .device_bytes_max = desc && desc->bytes_max ? desc->bytes_max
                                                                                 : d->device_bytes_max,
                                     .optional = d->backend == EXL2_BACKEND_AUTO };
    EXL2__TRY(exl2__alloc(c, sizeof(exl2__cuda_device), sizeof(void *), EXL2_MEM_GENERAL, out));
    exl2__cuda_device *device = (exl2__cuda_device *)*out;
    *device = (exl2__cuda_device){ .slot = slot };
    EXL2__CUDA_TABLES(&device->driver, &device->compiler.nvrtc);
    exl2_result result = exl2__cuda_device_open(c, device, &settings);
    if (result < 0) {
        exl2__free(c, device, sizeof *device, EXL2_MEM_GENERAL);
        *out = NULL;
    }
    return result;
}

/* Errors that the application can correct are returned with AUTO, too. */
static inline bool exl2__hardware_correctable(exl2_result result)
{
    return result == EXL2_ERR_ARG || result == EXL2_ERR_MEMORY || result == EXL2_ERR_BUDGET;
}

/* Rejects a GPU that is open already. */
EXL2__PRIVATE exl2_result exl2__hardware_check_twice(exl2__ctx *c, const exl2__hardware *h, uint32_t at)
{
    const exl2__cuda_device *device = (const exl2__cuda_device *)h->devices[at];
    for (uint32_t i = 0; i < at; i++) {
        const exl2__cuda_device *other = (const exl2__cuda_device *)h->devices[i];
        if (other && other->info.index == device->info.index) {
            return exl2__fail(c, EXL2_ERR_ARG, "exl2_engine_desc.devices names GPU %u (%s) twice, as %u and %u",
                              device->info.index, device->info.name, i, at);
        }
    }
    return EXL2_OK;
}

/* Opens the GPUs. With AUTO and several of them, the engine works with those that open, and a warning names each other
   one; if none opens, the error is that of the last one. On failure *out is closed. */
EXL2__PRIVATE exl2_result exl2__hardware_cuda(exl2__ctx *c, const exl2_engine_desc *d, exl2__hardware *out)
{
    uint32_t count = exl2__max32(d->device_count, 1);
    exl2_result result = EXL2_OK, last = EXL2_OK;
    *out = (exl2__hardware){ .backend = &exl2__cuda_backend, .count = count };
    for (uint32_t i = 0; result >= 0 && i < count; i++) {
        out->gpu_us[i] = d->device_count ? d->devices[i].gpu_us : 0;
        result = exl2__hardware_cuda_one(c, d, d->device_count ? &d->devices[i] : NULL, i, &out->devices[i]);
        result = result >= 0 ? exl2__hardware_check_twice(c, out, i) : result;
        last = out->devices[i] ? last : result;
        if (result < 0 && count > 1 && d->backend == EXL2_BACKEND_AUTO && !exl2__hardware_correctable(result)) {
            exl2__log(c, EXL2_LOG_WARN, EXL2_LOG_ID_DEVICE_LEFT_OUT, "the engine works without device %u: %s", i,
                      c->error.text);
            result = EXL2_OK;
        }
    }
    result = result >= 0 && !exl2__hardware_first(out) ? last : result;
    if (result >= 0 && count > 1) {
        result = exl2__cuda_peers_open(c, out->devices, count);
    }
    if (result < 0) {
        exl2__hardware_close(c, out);
    }
    return result;
}

/* With AUTO, an error that the application cannot correct is logged, as the reason why models run on the CPU. */
EXL2__PRIVATE exl2_result exl2__hardware_open(exl2__ctx *c, const exl2_engine_desc *d, exl2__hardware *out)
{
    exl2_result result = EXL2_ERR_NO_DEVICE;
    *out = (exl2__hardware){ .backend = &exl2__cpu_backend };
    if (d->backend == EXL2_BACKEND_CPU) {
        return EXL2_OK;
    }
    result = exl2__hardware_cuda(c, d, out);
    if (result >= 0 || exl2__hardware_correctable(result) || d->backend == EXL2_BACKEND_CUDA) {
        return result;
    }
    exl2__log(c, EXL2_LOG_WARN, EXL2_LOG_ID_CPU_FALLBACK, "models run on the CPU: %s", c->error.text);
    c->error = (exl2_error){ EXL2_OK, 0, "" };
    *out = (exl2__hardware){ .backend = &exl2__cpu_backend };
    return EXL2_OK;
}

static inline void exl2__hardware_describe(const exl2__hardware *h, exl2_engine_info *info)
{
    const exl2__cuda_device *first = (const exl2__cuda_device *)exl2__hardware_first(h);
    info->backend = first ? EXL2_BACKEND_CUDA : EXL2_BACKEND_CPU;
    info->device_count = h->count;
    if (first) {
        info->device = first->info;
    }
    for (uint32_t i = 0; i < h->count; i++) {
        const exl2__cuda_device *device = (const exl2__cuda_device *)h->devices[i];
        if (device) {
            info->devices[i] = device->info;
            info->peers[i] = device->peers;
        } else {
            exl2__format(info->devices[i].why_not, sizeof info->devices[i].why_not, "it did not open");
        }
    }
}

/* Fills in the statistics of the GPUs. */
static inline void exl2__hardware_count(const exl2__hardware *h, exl2_engine_stats *s)
{
    s->device_bytes = s->device_peak = s->kernels_compiled = 0;
    for (uint32_t i = 0; i < h->count; i++) {
        const exl2__cuda_device *device = (const exl2__cuda_device *)h->devices[i];
        if (device) {
            s->device_bytes += s->devices_bytes[i] = device->bytes;
            s->device_peak += s->devices_peak[i] = device->peak;
            s->kernels_compiled += device->compiler.compiled;
        }
    }
}

/* As exl2_device_probe. */
EXL2__PRIVATE exl2_result exl2__hardware_probe(exl2__ctx *c, const exl2__hardware *h, exl2_device_speed *out)
{
    exl2__cuda_device *device = (exl2__cuda_device *)exl2__hardware_first(h);
    *out = (exl2_device_speed){ 0 };
    return device ? exl2__cuda_probe(device, out)
                  : exl2__fail(c, EXL2_ERR_NO_DEVICE, "this engine has no GPU: its models run on the CPU");
}

/* As exl2_link_probe. */
EXL2__PRIVATE exl2_result exl2__hardware_link(exl2__ctx *c, const exl2__hardware *h, uint32_t from, uint32_t to,
                                              exl2_link_speed *out)
{
    *out = (exl2_link_speed){ false, 0, 0 };
    if (!exl2__hardware_first(h)) {
        return exl2__fail(c, EXL2_ERR_NO_DEVICE, "this engine has no GPU: its models run on the CPU");
    }
    if (from == to || from >= h->count || to >= h->count || !h->devices[from] || !h->devices[to]) {
        return exl2__fail(c, EXL2_ERR_ARG, "exl2_link_probe: %u and %u are not two of the engine's %u GPUs that opened",
                          from, to, h->count);
    }
    return exl2__cuda_link_probe((exl2__cuda_device *)h->devices[from], (exl2__cuda_device *)h->devices[to], out);
}

/* Opens a model of one span on devices [count] that share it by columns. shares [count]: as exl2_card.share. */
EXL2__PRIVATE exl2_result exl2__hardware_share(exl2__ctx *c, void *const *devices, const float *shares, uint32_t count,
                                               exl2__spans *spans)
{
    exl2__cuda_group_gpus gpus = { .count = count };
    void *hardware[1] = { &gpus };
    for (uint32_t i = 0; i < count; i++) {
        gpus.of[i] = (exl2__cuda_device *)devices[i];
        gpus.shares[i] = shares[i];
    }
    return exl2__spans_open(c, spans, &exl2__cuda_group_backend, hardware);
}

/* What device `index` of them has. The span's plan is final. */
EXL2__PRIVATE exl2__share_bytes exl2__hardware_share_bytes(const exl2__span *span, uint32_t index)
{
    const exl2__cuda_group *g = exl2__cuda_group_of(span->device);
    exl2__plan p = exl2__cuda_group_plan(g, &span->plan, index);
    return (exl2__share_bytes){ exl2__cuda_cache_bytes(&p), exl2__cuda_buffer_bytes(g->of[index], &p),
                                exl2__columns_share(&p.columns, index) };
}

/* Bytes that are free on device `index` of them, within the engine's cap. */
EXL2__PRIVATE uint64_t exl2__hardware_share_room(const exl2__span *span, uint32_t index)
{
    return exl2__cuda_room(exl2__cuda_group_of(span->device)->of[index]);
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
    *out = (exl2__hardware){ .backend = &exl2__cpu_backend };
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

EXL2__PRIVATE exl2_result exl2__hardware_link(exl2__ctx *c, const exl2__hardware *h, uint32_t from, uint32_t to,
                                              exl2_link_speed *out)
{
    (void)h, (void)from, (void)to;
    *out = (exl2_link_speed){ false, 0, 0 };
    return exl2__fail(c, EXL2_ERR_NO_DEVICE, "this engine has no GPU: this build has EXL2_NO_CUDA");
}

/* Not reached: there are no devices. */
EXL2__PRIVATE exl2_result exl2__hardware_share(exl2__ctx *c, void *const *devices, const float *shares, uint32_t count,
                                               exl2__spans *spans)
{
    (void)devices, (void)shares, (void)count, (void)spans;
    return exl2__fail(c, EXL2_ERR_INTERNAL, "this build has EXL2_NO_CUDA");
}

static inline exl2__share_bytes exl2__hardware_share_bytes(const exl2__span *span, uint32_t index)
{
    (void)span, (void)index;
    return (exl2__share_bytes){ 0, 0, 1 };
}

static inline uint64_t exl2__hardware_share_room(const exl2__span *span, uint32_t index)
{
    (void)span, (void)index;
    return 0;
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

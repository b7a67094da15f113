/* cuda_device.h: one open CUDA device: its context, streams, counted device memory, and how it is lost.
   takes: the application's settings for the device, its allocator and cap.
   gives: exl2__cuda_device with open, close, enter, leave; check, alloc, free, launch; exl2__cuda_arena.
   owns:  driver and compiler libraries, the retained context, streams, kernels; memory until exl2__cuda_device_free.

   A device keeps its address while it is open: its kernels point at its driver. */
#ifndef EXL2__CUDA_DEVICE_H
#define EXL2__CUDA_DEVICE_H

#include "cuda_kernels.h"
#include "cuda_system.h"

#define EXL2__CUDA_ALIGN 256u /* alignment of every block of device memory */

typedef struct exl2__cuda_settings { /* the engine's settings */
    const exl2_device_desc *device;  /* NULL: the best device */
    const char *driver_path;         /* NULL: the usual names */
    const char *nvrtc_path;
    const char *kernel_dir;
    exl2_kernel_cache cache;
    uint64_t device_bytes_max;       /* hard cap; 0: none */
    bool optional;                   /* AUTO: if no device opens, or no kernels can be had, that is not an error */
} exl2__cuda_settings;

typedef struct exl2__cuda_device { /* the engine keeps a pointer to it */
    exl2__ctx *c;
    exl2__cuda_driver driver;
    exl2__cuda_compiler compiler;
    exl2__cuda_kernels kernels;
    exl2_device_info info;
    int driver_version, device;
    exl2__cuda_context *context;
    bool retained;                /* context is the retained primary context; else it is the application's */
    exl2__cuda_stream *stream;    /* all kernels, in order */
    exl2__cuda_stream *upload;    /* copies of weights while passes run (cuda_streamed.h) */
    uint32_t sm_count, l2_bytes;
    uint32_t memory_mbps;         /* peak read bandwidth of its memory, MB/s; 0: unknown */
    uint32_t shared_bytes;        /* shared memory that a block may use, within the application's cap */
    uint32_t shared_sm_bytes;     /* shared memory that all blocks of a multiprocessor share */
    uint64_t bytes, peak, bytes_max, allocations;
    uint32_t slot, peers;         /* its index in the engine; bit j: it writes to the memory of the engine's device j */
    int lost;                     /* the driver's result that ended the context; 0: the device works */
} exl2__cuda_device;

/* ---- failures ---- */

/* EXL2_OK for 0, EXL2_PENDING for "not ready", else an error. `what` says what the engine was doing, as the message
   needs it: "copying weights". */
EXL2__PRIVATE exl2_result exl2__cuda_device_check(exl2__cuda_device *d, int result, const char *what)
{
    if (result == 0) {
        return EXL2_OK;
    }
    if (result == EXL2__CUDA_NOT_READY) {
        return EXL2_PENDING;
    }
    const char *name = exl2__cuda_result_name(&d->driver, result);
    if (exl2__cuda_sticky(result)) {
        d->lost = d->lost ? d->lost : result;
        return exl2__cuda_fail(d->c, EXL2_ERR_DEVICE_LOST, result,
                               "GPU %u (%s) was lost while %s (%s): close the engine; the GPU may be usable again only "
                               "in a new process", d->info.index, d->info.name, what, name);
    }
    if (result == EXL2__CUDA_OUT_OF_MEMORY) {
        return exl2__cuda_fail(d->c, EXL2_ERR_DEVICE_MEMORY, result, "GPU %u (%s) has no memory left for %s (%s)",
                               d->info.index, d->info.name, what, name);
    }
    return exl2__cuda_fail(d->c, EXL2_ERR_INTERNAL, result, "GPU %u (%s): %s failed with %s", d->info.index,
                           d->info.name, what, name);
}

/* Makes the device's context current until exl2__cuda_device_leave. Fails if the device is lost. */
EXL2__PRIVATE exl2_result exl2__cuda_device_enter(exl2__cuda_device *d)
{
    if (d->lost) {
        return exl2__cuda_fail(d->c, EXL2_ERR_DEVICE_LOST, d->lost,
                               "GPU %u (%s) was lost before (%s): close the engine; the GPU may be usable again only "
                               "in a new process", d->info.index, d->info.name,
                               exl2__cuda_result_name(&d->driver, d->lost));
    }
    return exl2__cuda_device_check(d, d->driver.context_push(d->context), "making its context current");
}

/* Restores the context that was current before exl2__cuda_device_enter. */
static inline void exl2__cuda_device_leave(exl2__cuda_device *d)
{
    exl2__cuda_context *popped;
    d->driver.context_pop(&popped);
}

/* Leaves the context and returns `result`, for functions that make one call between enter and leave. */
static inline exl2_result exl2__cuda_device_leave_with(exl2__cuda_device *d, exl2_result result)
{
    exl2__cuda_device_leave(d);
    return result;
}

/* ---- memory; the context must be current ---- */

/* Bytes that the cap leaves. */
static inline uint64_t exl2__cuda_device_room(const exl2__cuda_device *d)
{
    if (!d->bytes_max) {
        return UINT64_MAX;
    }
    return d->bytes_max > d->bytes ? d->bytes_max - d->bytes : 0;
}

/* Gives address 0 for 0 bytes. The cap is checked before the device is asked. */
EXL2__PRIVATE exl2_result exl2__cuda_device_alloc(exl2__cuda_device *d, uint64_t bytes, exl2_mem tag, uint64_t *address)
{
    *address = 0;
    if (bytes == 0) {
        return EXL2_OK;
    }
    if (bytes > exl2__cuda_device_room(d)) {
        return exl2__fail(d->c, EXL2_ERR_BUDGET,
                          "%llu bytes of GPU memory would exceed device_bytes_max (%llu bytes, %llu in use)",
                          (unsigned long long)bytes, (unsigned long long)d->bytes_max, (unsigned long long)d->bytes);
    }
    const exl2_allocator *host = &d->c->allocator;
    if (host->device_alloc_fn) {
        *address = host->device_alloc_fn(host->user, d->info.index, bytes, tag);
        if (!*address) {
            return exl2__fail(d->c, EXL2_ERR_DEVICE_MEMORY,
                              "the application's device allocator returned no memory for %llu bytes",
                              (unsigned long long)bytes);
        }
    } else {
        int result = bytes <= SIZE_MAX ? d->driver.memory_alloc(address, (size_t)bytes) : EXL2__CUDA_OUT_OF_MEMORY;
        if (result == EXL2__CUDA_OUT_OF_MEMORY) {
            *address = 0;
            return exl2__cuda_fail(d->c, EXL2_ERR_DEVICE_MEMORY, result,
                                   "GPU %u (%s) could not allocate %llu bytes; this engine uses %llu bytes of its "
                                   "memory", d->info.index, d->info.name, (unsigned long long)bytes,
                                   (unsigned long long)d->bytes);
        }
        EXL2__TRY(exl2__cuda_device_check(d, result, "allocating memory"));
    }
    d->allocations++;
    d->bytes += bytes;
    d->peak = d->bytes > d->peak ? d->bytes : d->peak;
    return EXL2_OK;
}

/* Does nothing for address 0. Works on a lost device, too. */
EXL2__PRIVATE void exl2__cuda_device_free(exl2__cuda_device *d, uint64_t address, uint64_t bytes, exl2_mem tag)
{
    if (!address) {
        return;
    }
    d->bytes -= bytes;
    const exl2_allocator *host = &d->c->allocator;
    if (host->device_alloc_fn) {
        host->device_free_fn(host->user, d->info.index, address, bytes, tag);
    } else {
        d->driver.memory_free(address);
    }
}

/* A bump arena over device memory. Like exl2__arena, a zeroed one is dry and only counts. */
typedef struct exl2__cuda_arena {
    uint64_t base, size, used;
    exl2_mem tag;
} exl2__cuda_arena;

static inline exl2_result exl2__cuda_arena_open(exl2__cuda_device *d, exl2__cuda_arena *a, uint64_t bytes, exl2_mem tag)
{
    *a = (exl2__cuda_arena){ 0 };
    EXL2__TRY(exl2__cuda_device_alloc(d, bytes, tag, &a->base));
    a->size = bytes;
    a->tag = tag;
    return EXL2_OK;
}

/* An address aligned to EXL2__CUDA_ALIGN; 0 if the arena is dry, or full because the plan does not match its dry
   run. */
static inline uint64_t exl2__cuda_arena_take(exl2__cuda_arena *a, uint64_t bytes)
{
    uint64_t start = a->used, end;
    if (!exl2__add64(start, bytes, &end) || end > UINT64_MAX - EXL2__CUDA_ALIGN) {
        a->used = UINT64_MAX / 2; /* exl2__cuda_arena_open rejects a dry run of this size */
        return 0;
    }
    a->used = exl2__align_up(end, EXL2__CUDA_ALIGN);
    return a->base && a->used <= a->size ? a->base + start : 0;
}

static inline void exl2__cuda_arena_close(exl2__cuda_device *d, exl2__cuda_arena *a)
{
    exl2__cuda_device_free(d, a->base, a->size, a->tag);
    *a = (exl2__cuda_arena){ 0 };
}

/* ---- open and close ---- */

/* The lowest priority for 0, so that rendering goes first; else the application's, within the range of the device. */
EXL2__PRIVATE int exl2__cuda_device_priority(const exl2__cuda_device *d, int32_t wanted)
{
    int least = 0, greatest = 0;
    if (d->driver.priority_range(&least, &greatest) != 0) {
        return 0;
    }
    return wanted == 0 || wanted > least ? least : wanted < greatest ? greatest : wanted;
}

/* Reads the attributes that launches are planned with. The driver must report all but the memory's speed. */
EXL2__PRIVATE exl2_result exl2__cuda_device_measure(exl2__cuda_device *d, uint32_t shared_bytes_max)
{
    static const int attributes[] = { EXL2__CUDA_SM_COUNT, EXL2__CUDA_SHARED_OPTIN, EXL2__CUDA_SHARED_PER_SM,
                                      EXL2__CUDA_L2_BYTES };
    int values[EXL2__COUNT(attributes)] = { 0 }, result = 0;
    for (size_t i = 0; i < EXL2__COUNT(attributes) && result == 0; i++) {
        result = d->driver.device_attribute(&values[i], attributes[i], d->device);
    }
    EXL2__TRY(exl2__cuda_device_check(d, result, "querying its attributes"));
    d->sm_count = (uint32_t)values[0];
    d->shared_bytes = (uint32_t)values[1];
    d->shared_sm_bytes = (uint32_t)values[2];
    d->l2_bytes = (uint32_t)values[3];
    int kilohertz = 0, bits = 0;
    if (d->driver.device_attribute(&kilohertz, EXL2__CUDA_MEMORY_CLOCK, d->device) == 0
        && d->driver.device_attribute(&bits, EXL2__CUDA_MEMORY_WIDTH, d->device) == 0) {
        d->memory_mbps = (uint32_t)((uint64_t)kilohertz * (uint64_t)bits / 8 * 2 / 1000);
    }
    if (shared_bytes_max) {
        d->shared_bytes = exl2__min32(d->shared_bytes, exl2__max32(shared_bytes_max, 48u << 10));
    }
    return EXL2_OK;
}

/* Makes the context and the streams of the picked device. On success the context is current. */
EXL2__PRIVATE exl2_result exl2__cuda_device_start(exl2__cuda_device *d, const exl2_device_desc *desc)
{
    const exl2__cuda_driver *driver = &d->driver;
    EXL2__TRY(exl2__cuda_device_check(d, driver->device_get(&d->device, (int)d->info.index), "opening the device"));
    EXL2__TRY(exl2__cuda_device_measure(d, desc->shared_bytes_max));
    if (desc->pick == EXL2_PICK_CONTEXT) {
        d->context = (exl2__cuda_context *)desc->cuda_context;
    } else {
        EXL2__TRY(exl2__cuda_device_check(d, driver->primary_retain(&d->context, d->device), "creating its context"));
        d->retained = true;
    }
    EXL2__TRY(exl2__cuda_device_enter(d));
    int priority = exl2__cuda_device_priority(d, desc->stream_priority);
    int result = driver->stream_make(&d->stream, EXL2__CUDA_STREAM_NON_BLOCKING, priority);
    result = result == 0 ? driver->stream_make(&d->upload, EXL2__CUDA_STREAM_NON_BLOCKING, priority) : result;
    d->kernels = (exl2__cuda_kernels){ .driver = driver, .arch = d->info.arch, .driver_version = d->driver_version,
                                       .shared_bytes = d->shared_bytes };
    if (result != 0) {
        exl2__cuda_device_leave(d);
    }
    return exl2__cuda_device_check(d, result, "creating its streams");
}

/* Closes the device, also a zeroed, half-open or closed one. The caller has closed arenas and rings. Waits for queued
   work. Frees everything of a lost device, too, whether or not the driver still answers. */
EXL2__PRIVATE void exl2__cuda_device_close(exl2__cuda_device *d)
{
    const exl2__cuda_driver *driver = &d->driver;
    bool entered = d->context && driver->context_push(d->context) == 0;
    if (d->stream) {
        driver->stream_wait(d->stream);
    }
    if (d->upload) {
        driver->stream_wait(d->upload);
        driver->stream_free(d->upload);
    }
    exl2__cuda_kernels_close(&d->kernels);
    if (d->stream) {
        driver->stream_free(d->stream);
    }
    if (entered) {
        exl2__cuda_device_leave(d);
    }
    if (d->retained) {
        driver->primary_release(d->device);
    }
    exl2__cuda_compiler_close(&d->compiler);
    exl2__cuda_driver_close(&d->driver);
    *d = (exl2__cuda_device){ 0 };
}

/* Picks and opens a device; loads no kernels. `d` is zeroed; tests fill its tables of driver and NVRTC before. Fails
   with NO_DEVICE on a machine without a usable GPU, and the message says why. A device that did not open is closed. The
   context is not current afterwards. */
EXL2__PRIVATE exl2_result exl2__cuda_device_open(exl2__ctx *c, exl2__cuda_device *d,
                                                 const exl2__cuda_settings *settings)
{
    char why[160];
    exl2_device_desc desc = settings->device ? *settings->device : (exl2_device_desc){ 0 };
    exl2_logger logger = c->logger;
    d->c = c;
    d->bytes_max = settings->device_bytes_max;
    d->compiler.nvrtc_path = settings->nvrtc_path;
    d->compiler.kernel_dir = settings->kernel_dir;
    d->compiler.cache = settings->cache;
    c->logger.line = settings->optional ? NULL : logger.line;
    exl2_result result = exl2__cuda_system_open(settings->driver_path, &d->driver, &d->driver_version, why, sizeof why);
    if (result < 0) {
        exl2__fail(c, result, "%s", why);
    }
    result = result == EXL2_OK ? exl2__cuda_system_pick(c, &d->driver, &desc, &d->info) : result;
    if (result == EXL2_OK && settings->optional) {
        result = exl2__cuda_kernels_find(c, &d->compiler, d->info.arch);
    }
    if (result == EXL2_OK) {
        result = exl2__cuda_device_start(d, &desc);
        if (result == EXL2_OK) {
            exl2__cuda_device_leave(d);
        }
    }
    c->logger = logger;
    if (result < 0) {
        exl2__cuda_device_close(d);
    }
    return result;
}

/* Loads some of the wanted modules (NULL: all), as exl2__cuda_kernels_load. */
EXL2__PRIVATE exl2_result exl2__cuda_device_kernels_slice(exl2__cuda_device *d, const bool *wanted, uint32_t threads)
{
    exl2__zone_begin(d->c, "exl2 load kernels");
    exl2_result result = exl2__cuda_kernels_load(d->c, &d->kernels, &d->compiler, wanted, threads);
    exl2__zone_end(d->c);
    if (result == EXL2_ERR_DEVICE_LOST) {
        d->lost = d->kernels.lost;
    }
    return result;
}

static inline exl2_result exl2__cuda_device_kernels(exl2__cuda_device *d, const bool *wanted)
{
    return exl2__cuda_device_kernels_slice(d, wanted, 0);
}

/* ---- launching ---- */

typedef struct exl2__cuda_grid {
    uint32_t x, y, threads;
    uint32_t shared_bytes; /* dynamic shared memory */
    bool programmatic;     /* the kernel may start before the preceding one has ended, if the device supports it */
    uint32_t z;            /* 0 means 1 */
    uint32_t cluster;      /* CTAs of a row of the grid that form a cluster (from sm_90 on); 0: none do */
} exl2__cuda_grid;

/* Whether launches can have attributes. */
static inline bool exl2__cuda_device_launches_with(const exl2__cuda_device *d)
{
    return d->info.arch >= 90 && d->driver.launch_with;
}

/* Enqueues a kernel. arguments: its one struct, as kernels.def.h names it. */
EXL2__PRIVATE exl2_result exl2__cuda_device_launch(exl2__cuda_device *d, exl2__cuda_kernel kernel, exl2__cuda_grid grid,
                                                   const void *arguments)
{
    exl2__cuda_function *function = d->kernels.functions[kernel];
    void *parameters[1] = { (void *)(uintptr_t)arguments };
    uint32_t z = exl2__max32(grid.z, 1);
    int result;
    EXL2__ASSERT(function != NULL);
    if (exl2__cuda_device_launches_with(d)) {
        exl2__cuda_launch_attribute attributes[] = {
            { .id = EXL2__CUDA_LAUNCH_PROGRAMMATIC, .value = { .on = grid.programmatic } },
            { .id = EXL2__CUDA_LAUNCH_CLUSTER, .value = { .xyz = { grid.cluster, 1, 1 } } }
        };
        exl2__cuda_launch launch = { { grid.x, grid.y, z }, { grid.threads, 1, 1 }, grid.shared_bytes, d->stream,
                                     attributes, grid.cluster ? 2 : 1 };
        result = d->driver.launch_with(&launch, function, parameters, NULL);
    } else {
        result = d->driver.launch(function, grid.x, grid.y, z, grid.threads, 1, 1, grid.shared_bytes, d->stream,
                                  parameters, NULL);
    }
    if (result == 0) {
        return EXL2_OK;
    }
    char what[96];
    exl2__format(what, sizeof what, "launching %s", exl2__cuda_kernel_rows[kernel].function);
    return exl2__cuda_device_check(d, result, what);
}

/* The driver on Windows batches launches until it is queried. */
static inline void exl2__cuda_device_flush(exl2__cuda_device *d)
{
#if defined(_WIN32)
    d->driver.stream_query(d->upload);
    d->driver.stream_query(d->stream);
#else
    (void)d;
#endif
}

#endif

/* rig.h: what kernel tests need of CUDA: device 0, modules of kernels_src, buffers, launches, timing. A module comes
   from $EXL2_TEST_KERNELS or is compiled when it is loaded. If a call fails, the rig prints a message and ends the test
   with exit code 1; without a GPU the exit code is 77. The GPU may stand in for another kind (other_gpu.h).
   Compile with -DEXL2_KERNEL_DIR='"kernels_src"'.

       rig_open("kernels_src");
       rig_module m = rig_load("probe.cu", NULL);              NVRTC options: "-DA=1 -DB=2", or NULL
       rig_buffer b = rig_buffer_make(bytes);                  poisoned with 0xFF; rig_upload, rig_download, rig_poison
       rig_launch(&m, "exl2k_probe", grid, block, shared_bytes, &args, sizeof args);
       rig_start(); ... launches ...; double us = rig_stop();  device time
       rig_close(); */
#ifndef RIG_H
#define RIG_H

#include "other_gpu.h"

#include "private/cuda_kernels.h"
#include "kernel_folder.h"

typedef struct rig_module {
    exl2__cuda_module *module;
    double compile_ms, load_ms;
    uint64_t image_bytes;
    char name[64];
} rig_module;

typedef struct rig_buffer {
    uint64_t address, bytes;
} rig_buffer;

static struct rig {
    exl2__ctx c;
    exl2__cuda_driver driver;
    exl2__cuda_nvrtc nvrtc;
    exl2__cuda_context *context;
    exl2__cuda_stream *stream;
    exl2__cuda_event *from, *to;
    const char *dir;
    int device, driver_version, sm_count, shared_optin, l2_bytes;
    uint32_t arch; /* 90 = compute capability 9.0 */
    uint32_t cluster;  /* CTAs of a cluster of each launch; 0: there are none */
    bool programmatic; /* launches carry the attribute of programmatic dependent launch */
    char name[64];
} rig;

static void rig_line(void *user, exl2_log_level level, exl2_log_id id, exl2_result code, const char *text)
{
    (void)user;
    (void)id;
    (void)code;
    fprintf(stderr, "%s%s\n", level == EXL2_LOG_ERROR ? "error: " : "", text);
}

static void rig_try(int result, const char *what)
{
    if (result != 0) {
        const char *text = NULL;
        rig.driver.error_string(result, &text);
        printf("%s: %s (%d): %s\n", what, exl2__cuda_result_name(&rig.driver, result), result, text ? text : "");
        fflush(stdout);
        exit(1);
    }
}

static void rig_need(exl2_result result)
{
    if (result < 0) {
        printf("%s\n", rig.c.error.text);
        fflush(stdout);
        exit(1);
    }
}

static int rig_attribute(int attribute)
{
    int value = 0;
    rig_try(rig.driver.device_attribute(&value, attribute, rig.device), "cuDeviceGetAttribute");
    return value;
}

/* dir: the folder kernels_src. The context stays current until rig_close. */
static void rig_open(const char *dir)
{
    char why[200];
    int count = 0, least = 0, greatest = 0;
    rig.c.allocator = exl2__platform_allocator();
    rig.c.files = exl2__platform_files();
    rig.c.logger = (exl2_logger){ rig_line, NULL, EXL2_LOG_INFO };
    rig.dir = dir;
    other_gpu_tables(&rig.driver, &rig.nvrtc);
    if (!rig.driver.init && exl2__cuda_driver_open(NULL, &rig.driver, why, sizeof why) < 0) {
        check_skip(why);
    }
    if (rig.driver.init(0) != 0 || rig.driver.device_count(&count) != 0 || count == 0) {
        check_skip("no CUDA device");
    }
    rig_try(rig.driver.device_get(&rig.device, 0), "cuDeviceGet");
    rig_try(rig.driver.device_name(rig.name, sizeof rig.name, rig.device), "cuDeviceGetName");
    rig_try(rig.driver.driver_version(&rig.driver_version), "cuDriverGetVersion");
    rig.arch = (uint32_t)(rig_attribute(EXL2__CUDA_ARCH_MAJOR) * 10 + rig_attribute(EXL2__CUDA_ARCH_MINOR));
    rig.sm_count = rig_attribute(EXL2__CUDA_SM_COUNT);
    rig.shared_optin = rig_attribute(EXL2__CUDA_SHARED_OPTIN);
    rig.l2_bytes = rig_attribute(EXL2__CUDA_L2_BYTES);
    rig_try(rig.driver.primary_retain(&rig.context, rig.device), "cuDevicePrimaryCtxRetain");
    rig_try(rig.driver.context_push(rig.context), "cuCtxPushCurrent");
    rig_try(rig.driver.priority_range(&least, &greatest), "cuCtxGetStreamPriorityRange");
    rig_try(rig.driver.stream_make(&rig.stream, EXL2__CUDA_STREAM_NON_BLOCKING, least), "cuStreamCreateWithPriority");
    rig_try(rig.driver.event_make(&rig.from, EXL2__CUDA_EVENT_PLAIN), "cuEventCreate");
    rig_try(rig.driver.event_make(&rig.to, EXL2__CUDA_EVENT_PLAIN), "cuEventCreate");
    printf("%s, arch %u, %d SMs, %d bytes of shared memory a block, driver %d\n", rig.name, rig.arch, rig.sm_count,
           rig.shared_optin, rig.driver_version);
}

/* Opens NVRTC. Without NVRTC the test ends as skipped. */
static exl2__cuda_target rig_compiler(void)
{
    char why[200];
    exl2__cuda_target target = { 0 };
    if (!rig.nvrtc.version && exl2__cuda_nvrtc_open(check_env("EXL2_NVRTC"), &rig.nvrtc, why, sizeof why) < 0) {
        check_skip(why);
    }
    rig_need(exl2__cuda_target_pick(&rig.c, &rig.nvrtc, rig.arch, &target));
    return target;
}

/* Whether the engine has the module for this GPU. */
static bool rig_exists(const char *file) { return exl2__cuda_module_exists(file, rig.arch); }

/* Loads or compiles the module's image. Returns true if *image is a cache entry, in which the image follows a head of
   EXL2__CUDA_ENTRY_HEAD bytes. */
static bool rig_image(exl2__cuda_compile *job, exl2__blob *image)
{
    char key[EXL2__CUDA_KEY_MAX];
    exl2_kernel_cache cache = kernel_folder();
    exl2__blob log = { 0 };
    exl2__cuda_key(job->source, (exl2__cuda_target){ rig.arch, false }, job->options, job->option_count, key);
    rig_need(exl2__cuda_cache_load(&rig.c, &cache, key, image));
    if (image->data) {
        return true;
    }
    job->target = rig_compiler();
    exl2__cuda_compile_run(job);
    rig_need(exl2__cuda_compile_finish(&rig.c, job, image, &log));
    if (log.bytes) {
        printf("%s\n", log.data);
    }
    exl2__blob_close(&rig.c, &log);
    return false;
}

/* Loads a file of kernels_src. options: NVRTC options separated by blanks, or NULL. */
static rig_module rig_load(const char *file, const char *options)
{
    rig_module m = { 0 };
    char words[512] = "";
    exl2__cuda_source source;
    exl2__cuda_compile job = { .nvrtc = &rig.nvrtc, .source = &source };
    exl2__blob image = { 0 };
    snprintf(words, sizeof words, "%s", options ? options : "");
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " ")) {
        if (job.option_count < EXL2__CUDA_OPTIONS_MAX) {
            job.options[job.option_count++] = word;
        }
    }
    uint64_t start = exl2__platform_ns();
    rig_need(exl2__cuda_source_open(&rig.c, rig.dir, file, &source));
    bool found = rig_image(&job, &image);
    uint64_t compiled = exl2__platform_ns();
    rig_try(rig.driver.module_load(&m.module, image.data + (found ? EXL2__CUDA_ENTRY_HEAD : 0), 0, NULL, NULL), file);
    m.compile_ms = (double)(compiled - start) * 1e-6;
    m.load_ms = (double)(exl2__platform_ns() - compiled) * 1e-6;
    m.image_bytes = image.bytes;
    snprintf(m.name, sizeof m.name, "%s", file);
    exl2__cuda_compile_close(&job);
    exl2__blob_close(&rig.c, &image);
    exl2__cuda_source_close(&rig.c, &source);
    return m;
}

static void rig_unload(rig_module *m)
{
    rig_try(rig.driver.module_unload(m->module), "cuModuleUnload");
    *m = (rig_module){ 0 };
}

static exl2__cuda_function *rig_function(const rig_module *m, const char *name)
{
    exl2__cuda_function *function = NULL;
    rig_try(rig.driver.module_function(&function, m->module, name), name);
    return function;
}

/* Enqueues a kernel on the rig's stream. `args`: the kernel's one parameter, a struct of `bytes` bytes. */
static void rig_run(exl2__cuda_function *function, uint32_t grid_x, uint32_t grid_y, uint32_t threads,
                    uint32_t shared_bytes, const void *args, size_t bytes)
{
    _Alignas(16) char copy[4096];
    void *arguments[1] = { copy };
    if (bytes > sizeof copy) {
        printf("kernel arguments of %zu bytes\n", bytes);
        exit(1);
    }
    memcpy(copy, args, bytes);
    if ((rig.programmatic || rig.cluster) && rig.arch >= 90 && rig.driver.launch_with) {
        exl2__cuda_launch_attribute attributes[] = {
            { .id = EXL2__CUDA_LAUNCH_PROGRAMMATIC, .value.on = rig.programmatic },
            { .id = EXL2__CUDA_LAUNCH_CLUSTER, .value = { .xyz = { rig.cluster, 1, 1 } } }
        };
        exl2__cuda_launch launch = { { grid_x, grid_y, 1 }, { threads, 1, 1 }, shared_bytes, rig.stream, attributes,
                                     rig.cluster ? 2 : 1 };
        rig_try(rig.driver.launch_with(&launch, function, arguments, NULL), "cuLaunchKernelEx");
        return;
    }
    rig_try(rig.driver.launch(function, grid_x, grid_y, 1, threads, 1, 1, shared_bytes, rig.stream, arguments, NULL),
            "cuLaunchKernel");
}

/* As rig_run, for a kernel given by name; allows as much dynamic shared memory as the launch needs. */
static void rig_launch(const rig_module *m, const char *name, uint32_t grid_x, uint32_t grid_y, uint32_t threads,
                       uint32_t shared_bytes, const void *args, size_t bytes)
{
    exl2__cuda_function *function = rig_function(m, name);
    if (shared_bytes > 48 * 1024) {
        rig_try(rig.driver.function_set(function, EXL2__CUDA_FUNCTION_DYNAMIC_MAX, (int)shared_bytes), name);
    }
    rig_run(function, grid_x, grid_y, threads, shared_bytes, args, bytes);
}

static void rig_wait(void)
{
    rig_try(rig.driver.stream_wait(rig.stream), "the kernels in front of cuStreamSynchronize");
}

/* ---- buffers: every copy is synchronous ---- */

/* Fills the buffer with 0xFF bytes: NaN as fp16 and as float. */
static void rig_poison(rig_buffer b)
{
    rig_try(rig.driver.fill8(b.address, 0xFF, (size_t)b.bytes, rig.stream), "cuMemsetD8Async");
    rig_wait();
}

static rig_buffer rig_buffer_make(uint64_t bytes)
{
    rig_buffer b = { 0, bytes };
    rig_try(rig.driver.memory_alloc(&b.address, (size_t)bytes), "cuMemAlloc");
    rig_poison(b);
    return b;
}

static void rig_buffer_free(rig_buffer *b)
{
    if (b->address) {
        rig_try(rig.driver.memory_free(b->address), "cuMemFree");
    }
    *b = (rig_buffer){ 0, 0 };
}

static void rig_upload(rig_buffer b, uint64_t offset, const void *data, size_t bytes)
{
    rig_try(rig.driver.copy_up(b.address + offset, data, bytes, rig.stream), "cuMemcpyHtoD");
    rig_wait();
}

static void rig_download(rig_buffer b, uint64_t offset, void *data, size_t bytes)
{
    rig_try(rig.driver.copy_down(data, b.address + offset, bytes, rig.stream), "cuMemcpyDtoH");
    rig_wait();
}

static rig_buffer rig_buffer_of(const void *data, size_t bytes)
{
    rig_buffer b = rig_buffer_make(bytes);
    rig_upload(b, 0, data, bytes);
    return b;
}

/* ---- timing ---- */

/* Whether times say anything: not on a GPU that the CPU stands in for. */
static bool rig_is_timed(void) { return !other_gpu.emulated; }

static void rig_start(void)
{
    rig_try(rig.driver.event_record(rig.from, rig.stream), "cuEventRecord");
}

/* Waits for the stream. Returns the microseconds of device time since rig_start. */
static double rig_stop(void)
{
    float ms = 0;
    rig_try(rig.driver.event_record(rig.to, rig.stream), "cuEventRecord");
    rig_try(rig.driver.event_wait(rig.to), "the kernels in front of cuEventSynchronize");
    rig_try(rig.driver.event_ms(&ms, rig.from, rig.to), "cuEventElapsedTime");
    return (double)ms * 1e3;
}

/* ---- graphs: record launches once, replay them ---- */

static void rig_capture(void)
{
    rig_try(rig.driver.capture_begin(rig.stream, EXL2__CUDA_CAPTURE_RELAXED), "cuStreamBeginCapture");
}

static exl2__cuda_graph_exec *rig_captured(void)
{
    exl2__cuda_graph *graph = NULL;
    exl2__cuda_graph_exec *exec = NULL;
    rig_try(rig.driver.capture_end(rig.stream, &graph), "cuStreamEndCapture");
    rig_try(rig.driver.graph_make(&exec, graph, 0), "cuGraphInstantiate");
    rig_try(rig.driver.graph_free(graph), "cuGraphDestroy");
    return exec;
}

static void rig_replay(exl2__cuda_graph_exec *exec)
{
    rig_try(rig.driver.graph_launch(exec, rig.stream), "cuGraphLaunch");
}

static void rig_close(void)
{
    exl2__cuda_context *popped;
    rig_wait();
    rig.driver.event_free(rig.from);
    rig.driver.event_free(rig.to);
    rig.driver.stream_free(rig.stream);
    rig.driver.context_pop(&popped);
    rig.driver.primary_release(rig.device);
    exl2__cuda_nvrtc_close(&rig.nvrtc);
    exl2__cuda_driver_close(&rig.driver);
}

#endif

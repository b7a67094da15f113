/* cuda_api.h: the CUDA driver and NVRTC as tables of functions. The tables are declared by hand and filled at run time,
   so that the engine builds without CUDA headers and starts without CUDA libraries. Tests fill them with their own
   functions.
   takes: exl2__ctx; the name or path of a library, or NULL for the usual names.
   gives: exl2__cuda_driver and exl2__cuda_nvrtc with open and close; exl2__cuda_fail; the driver's types, constants.
   owns:  the opened library, until close. */
#ifndef EXL2__CUDA_API_H
#define EXL2__CUDA_API_H

#include "../../0_base/platform_library.h"

#if defined(_WIN32)
#define EXL2__CUDA_CALL __stdcall
/* clang-format off */
#define EXL2__CUDA_DRIVER_NAMES { "nvcuda.dll" }
#define EXL2__CUDA_NVRTC_NAMES { "nvrtc64_130_0.dll", "nvrtc64_120_0.dll" }
/* clang-format on */
#else
#define EXL2__CUDA_CALL
/* clang-format off */
#define EXL2__CUDA_DRIVER_NAMES { "libcuda.so.1" }
#define EXL2__CUDA_NVRTC_NAMES { "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so" }
/* clang-format on */
#endif

#define EXL2__CUDA_DRIVER_MIN 12000 /* oldest supported version: CUDA 12.0 */
#define EXL2__CUDA_ARCH_MIN 75u

/* ---- types and constants of the driver ---- */

typedef struct exl2__cuda_context exl2__cuda_context; /* opaque objects of the driver */
typedef struct exl2__cuda_stream exl2__cuda_stream;
typedef struct exl2__cuda_event exl2__cuda_event;
typedef struct exl2__cuda_module exl2__cuda_module;
typedef struct exl2__cuda_function exl2__cuda_function;
typedef struct exl2__cuda_graph exl2__cuda_graph;
typedef struct exl2__cuda_graph_exec exl2__cuda_graph_exec;
typedef struct exl2__cuda_program exl2__cuda_program;

/* Results of the driver that the engine distinguishes. */
enum {
    EXL2__CUDA_OUT_OF_MEMORY = 2,
    EXL2__CUDA_DEINITIALIZED = 4,
    EXL2__CUDA_DEVICE_UNAVAILABLE = 46,
    EXL2__CUDA_NO_DEVICE = 100,
    EXL2__CUDA_INVALID_IMAGE = 200,
    EXL2__CUDA_NO_BINARY = 209,
    EXL2__CUDA_ECC_UNCORRECTABLE = 214,
    EXL2__CUDA_INVALID_PTX = 218,
    EXL2__CUDA_NVLINK_UNCORRECTABLE = 220,
    EXL2__CUDA_JIT_NOT_FOUND = 221,
    EXL2__CUDA_UNSUPPORTED_PTX = 222,
    EXL2__CUDA_NOT_FOUND = 500,
    EXL2__CUDA_NOT_READY = 600,
    EXL2__CUDA_ILLEGAL_ADDRESS = 700,
    EXL2__CUDA_LAUNCH_TIMEOUT = 702,
    EXL2__CUDA_CONTEXT_DESTROYED = 709,
    EXL2__CUDA_PEER_ENABLED = 704,
    EXL2__CUDA_ASSERT = 710,
    EXL2__CUDA_HARDWARE_STACK = 714,
    EXL2__CUDA_ILLEGAL_INSTRUCTION = 715,
    EXL2__CUDA_MISALIGNED = 716,
    EXL2__CUDA_INVALID_SPACE = 717,
    EXL2__CUDA_INVALID_PC = 718,
    EXL2__CUDA_LAUNCH_FAILED = 719,
    EXL2__CUDA_NOT_PERMITTED = 800,
    EXL2__CUDA_UNKNOWN = 999
};

/* Device attributes. */
enum {
    EXL2__CUDA_SHARED_PER_BLOCK = 8,
    EXL2__CUDA_SM_COUNT = 16,
    EXL2__CUDA_COMPUTE_MODE = 20, /* 2: the device prohibits contexts */
    EXL2__CUDA_MEMORY_CLOCK = 36,
    EXL2__CUDA_MEMORY_WIDTH = 37,
    EXL2__CUDA_L2_BYTES = 38,
    EXL2__CUDA_ARCH_MAJOR = 75,
    EXL2__CUDA_ARCH_MINOR = 76,
    EXL2__CUDA_SHARED_PER_SM = 81,
    EXL2__CUDA_SHARED_OPTIN = 97
};

/* Flags, options, function and launch attributes. */
enum {
    EXL2__CUDA_STREAM_NON_BLOCKING = 1,
    EXL2__CUDA_EVENT_PLAIN = 0,
    EXL2__CUDA_EVENT_BLOCKING = 1, /* a thread that waits for it sleeps */
    EXL2__CUDA_EVENT_NO_TIMING = 2,
    EXL2__CUDA_HOST_PORTABLE = 1,
    EXL2__CUDA_MEMORY_HOST = 1,
    EXL2__CUDA_MEMORY_DEVICE = 2,
    EXL2__CUDA_CAPTURE_RELAXED = 2,
    EXL2__CUDA_JIT_ERROR_LOG = 5,
    EXL2__CUDA_JIT_ERROR_LOG_BYTES = 6,
    EXL2__CUDA_FUNCTION_SHARED_BYTES = 1,
    EXL2__CUDA_FUNCTION_DYNAMIC_MAX = 8,
    EXL2__CUDA_LAUNCH_COOPERATIVE = 2,
    EXL2__CUDA_LAUNCH_CLUSTER = 4,
    EXL2__CUDA_LAUNCH_PROGRAMMATIC = 6 /* the kernel may start before the preceding one has ended */
};

/* CUDA_MEMCPY2D: rows of bytes, each `pitch` bytes after the one before. */
typedef struct exl2__cuda_rows {
    size_t x, y; /* 0 */
    int kind;    /* of memory: HOST, with `host`, or DEVICE, with `device` */
    void *host;
    uint64_t device;
    void *array; /* NULL */
    size_t pitch;
} exl2__cuda_rows;

typedef struct exl2__cuda_copy_rows {
    exl2__cuda_rows from, to;
    size_t bytes, rows;
} exl2__cuda_copy_rows;

typedef struct exl2__cuda_launch_attribute {
    int id;
    int pad;
    union {
        char bytes[64];
        int on;            /* COOPERATIVE, PROGRAMMATIC */
        unsigned xyz[3];   /* CLUSTER */
        void *align;
    } value;
} exl2__cuda_launch_attribute;

typedef struct exl2__cuda_launch {
    unsigned grid[3], block[3], shared_bytes;
    exl2__cuda_stream *stream;
    exl2__cuda_launch_attribute *attributes;
    unsigned attribute_count;
} exl2__cuda_launch;

typedef char exl2__cuda_launch_attribute_size[sizeof(exl2__cuda_launch_attribute) == 72 ? 1 : -1];

/* ---- the tables ---- */

#define EXL2__CUDA_NEEDED true
#define EXL2__CUDA_OPTIONAL false /* the member is NULL if the driver lacks it */

/* X(member, exported name, needed, parameters). Every function returns a result; 0 is success. Names that end with
   _ptsz are never used: they make stream 0 mean the per-thread stream. */
#define EXL2__CUDA_DRIVER_FUNCTIONS(X)                                                                                 \
    X(init, "cuInit", EXL2__CUDA_NEEDED, (unsigned flags))                                                             \
    X(driver_version, "cuDriverGetVersion", EXL2__CUDA_NEEDED, (int *version))                                         \
    X(error_name, "cuGetErrorName", EXL2__CUDA_NEEDED, (int result, const char **name))                                \
    X(error_string, "cuGetErrorString", EXL2__CUDA_NEEDED, (int result, const char **text))                            \
    X(device_count, "cuDeviceGetCount", EXL2__CUDA_NEEDED, (int *count))                                               \
    X(device_get, "cuDeviceGet", EXL2__CUDA_NEEDED, (int *device, int index))                                          \
    X(device_name, "cuDeviceGetName", EXL2__CUDA_NEEDED, (char *name, int cap, int device))                            \
    X(device_uuid, "cuDeviceGetUuid_v2", EXL2__CUDA_NEEDED, (void *uuid, int device))                                  \
    X(device_luid, "cuDeviceGetLuid", EXL2__CUDA_OPTIONAL, (char *luid, unsigned *node_mask, int device))              \
    X(device_attribute, "cuDeviceGetAttribute", EXL2__CUDA_NEEDED, (int *value, int attribute, int device))            \
    X(device_bytes, "cuDeviceTotalMem_v2", EXL2__CUDA_NEEDED, (size_t *bytes, int device))                             \
    X(primary_retain, "cuDevicePrimaryCtxRetain", EXL2__CUDA_NEEDED, (exl2__cuda_context **context, int device))       \
    X(primary_release, "cuDevicePrimaryCtxRelease_v2", EXL2__CUDA_NEEDED, (int device))                                \
    X(context_push, "cuCtxPushCurrent_v2", EXL2__CUDA_NEEDED, (exl2__cuda_context *context))                           \
    X(context_pop, "cuCtxPopCurrent_v2", EXL2__CUDA_NEEDED, (exl2__cuda_context **context))                            \
    X(device_can_peer, "cuDeviceCanAccessPeer", EXL2__CUDA_OPTIONAL, (int *can, int device, int peer))                 \
    X(context_peer, "cuCtxEnablePeerAccess", EXL2__CUDA_OPTIONAL, (exl2__cuda_context *peer, unsigned flags))          \
    X(context_device, "cuCtxGetDevice", EXL2__CUDA_NEEDED, (int *device))                                              \
    X(priority_range, "cuCtxGetStreamPriorityRange", EXL2__CUDA_NEEDED, (int *least, int *greatest))                   \
    X(memory_info, "cuMemGetInfo_v2", EXL2__CUDA_NEEDED, (size_t *bytes_free, size_t *bytes_total))                    \
    X(memory_alloc, "cuMemAlloc_v2", EXL2__CUDA_NEEDED, (uint64_t *address, size_t bytes))                             \
    X(memory_free, "cuMemFree_v2", EXL2__CUDA_NEEDED, (uint64_t address))                                              \
    X(host_alloc, "cuMemHostAlloc", EXL2__CUDA_NEEDED, (void **memory, size_t bytes, unsigned flags))                  \
    X(host_free, "cuMemFreeHost", EXL2__CUDA_NEEDED, (void *memory))                                                   \
    X(host_register, "cuMemHostRegister_v2", EXL2__CUDA_OPTIONAL, (void *memory, size_t bytes, unsigned flags))        \
    X(host_unregister, "cuMemHostUnregister", EXL2__CUDA_OPTIONAL, (void *memory))                                     \
    X(copy_up, "cuMemcpyHtoDAsync_v2", EXL2__CUDA_NEEDED,                                                              \
      (uint64_t to, const void *from, size_t bytes, exl2__cuda_stream *stream))                                        \
    X(copy_down, "cuMemcpyDtoHAsync_v2", EXL2__CUDA_NEEDED,                                                            \
      (void *to, uint64_t from, size_t bytes, exl2__cuda_stream *stream))                                              \
    X(copy_rows, "cuMemcpy2DAsync_v2", EXL2__CUDA_NEEDED,                                                              \
      (const exl2__cuda_copy_rows *copy, exl2__cuda_stream *stream))                                                   \
    X(copy, "cuMemcpyDtoDAsync_v2", EXL2__CUDA_NEEDED,                                                                 \
      (uint64_t to, uint64_t from, size_t bytes, exl2__cuda_stream *stream))                                           \
    X(copy_peer, "cuMemcpyPeerAsync", EXL2__CUDA_OPTIONAL,                                                             \
      (uint64_t to, exl2__cuda_context *to_context, uint64_t from, exl2__cuda_context *from_context, size_t bytes,     \
       exl2__cuda_stream *stream))                                                                                     \
    X(fill8, "cuMemsetD8Async", EXL2__CUDA_NEEDED,                                                                     \
      (uint64_t to, unsigned char value, size_t count, exl2__cuda_stream *stream))                                     \
    X(fill32, "cuMemsetD32Async", EXL2__CUDA_NEEDED,                                                                   \
      (uint64_t to, unsigned value, size_t count, exl2__cuda_stream *stream))                                          \
    X(stream_make, "cuStreamCreateWithPriority", EXL2__CUDA_NEEDED,                                                    \
      (exl2__cuda_stream **stream, unsigned flags, int priority))                                                      \
    X(stream_free, "cuStreamDestroy_v2", EXL2__CUDA_NEEDED, (exl2__cuda_stream *stream))                               \
    X(stream_wait, "cuStreamSynchronize", EXL2__CUDA_NEEDED, (exl2__cuda_stream *stream))                              \
    X(stream_query, "cuStreamQuery", EXL2__CUDA_NEEDED, (exl2__cuda_stream *stream))                                   \
    X(stream_wait_event, "cuStreamWaitEvent", EXL2__CUDA_NEEDED,                                                       \
      (exl2__cuda_stream *stream, exl2__cuda_event *event, unsigned flags))                                            \
    X(event_make, "cuEventCreate", EXL2__CUDA_NEEDED, (exl2__cuda_event **event, unsigned flags))                      \
    X(event_free, "cuEventDestroy_v2", EXL2__CUDA_NEEDED, (exl2__cuda_event *event))                                   \
    X(event_record, "cuEventRecord", EXL2__CUDA_NEEDED, (exl2__cuda_event *event, exl2__cuda_stream *stream))          \
    X(event_query, "cuEventQuery", EXL2__CUDA_NEEDED, (exl2__cuda_event *event))                                       \
    X(event_wait, "cuEventSynchronize", EXL2__CUDA_NEEDED, (exl2__cuda_event *event))                                  \
    X(event_ms, "cuEventElapsedTime", EXL2__CUDA_NEEDED,                                                               \
      (float *milliseconds, exl2__cuda_event *start, exl2__cuda_event *end))                                           \
    X(module_load, "cuModuleLoadDataEx", EXL2__CUDA_NEEDED,                                                            \
      (exl2__cuda_module **module, const void *image, unsigned count, int *options, void **values))                    \
    X(module_unload, "cuModuleUnload", EXL2__CUDA_NEEDED, (exl2__cuda_module *module))                                 \
    X(module_function, "cuModuleGetFunction", EXL2__CUDA_NEEDED,                                                       \
      (exl2__cuda_function **function, exl2__cuda_module *module, const char *name))                                   \
    X(function_attribute, "cuFuncGetAttribute", EXL2__CUDA_NEEDED,                                                     \
      (int *value, int attribute, exl2__cuda_function *function))                                                      \
    X(function_set, "cuFuncSetAttribute", EXL2__CUDA_NEEDED,                                                           \
      (exl2__cuda_function *function, int attribute, int value))                                                       \
    X(launch, "cuLaunchKernel", EXL2__CUDA_NEEDED,                                                                     \
      (exl2__cuda_function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,             \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, exl2__cuda_stream *stream, void **arguments,         \
       void **extra))                                                                                                  \
    X(launch_with, "cuLaunchKernelEx", EXL2__CUDA_OPTIONAL,                                                            \
      (const exl2__cuda_launch *launch, exl2__cuda_function *function, void **arguments, void **extra))                \
    X(capture_begin, "cuStreamBeginCapture_v2", EXL2__CUDA_NEEDED, (exl2__cuda_stream *stream, int mode))              \
    X(capture_end, "cuStreamEndCapture", EXL2__CUDA_NEEDED, (exl2__cuda_stream *stream, exl2__cuda_graph **graph))     \
    X(graph_make, "cuGraphInstantiateWithFlags", EXL2__CUDA_NEEDED,                                                    \
      (exl2__cuda_graph_exec **exec, exl2__cuda_graph *graph, unsigned long long flags))                               \
    X(graph_free, "cuGraphDestroy", EXL2__CUDA_NEEDED, (exl2__cuda_graph *graph))                                      \
    X(graph_launch, "cuGraphLaunch", EXL2__CUDA_NEEDED, (exl2__cuda_graph_exec *exec, exl2__cuda_stream *stream))      \
    X(graph_exec_free, "cuGraphExecDestroy", EXL2__CUDA_NEEDED, (exl2__cuda_graph_exec *exec))

#define EXL2__CUDA_NVRTC_FUNCTIONS(X)                                                                                  \
    X(version, "nvrtcVersion", EXL2__CUDA_NEEDED, (int *major, int *minor))                                            \
    X(arch_count, "nvrtcGetNumSupportedArchs", EXL2__CUDA_NEEDED, (int *count))                                        \
    X(archs, "nvrtcGetSupportedArchs", EXL2__CUDA_NEEDED, (int *archs))                                                \
    X(program_make, "nvrtcCreateProgram", EXL2__CUDA_NEEDED,                                                           \
      (exl2__cuda_program **program, const char *source, const char *name, int header_count,                           \
       const char *const *headers, const char *const *header_names))                                                   \
    X(program_free, "nvrtcDestroyProgram", EXL2__CUDA_NEEDED, (exl2__cuda_program **program))                          \
    X(compile, "nvrtcCompileProgram", EXL2__CUDA_NEEDED,                                                               \
      (exl2__cuda_program *program, int option_count, const char *const *options))                                     \
    X(log_bytes, "nvrtcGetProgramLogSize", EXL2__CUDA_NEEDED, (exl2__cuda_program *program, size_t *bytes))            \
    X(log, "nvrtcGetProgramLog", EXL2__CUDA_NEEDED, (exl2__cuda_program *program, char *log))                          \
    X(cubin_bytes, "nvrtcGetCUBINSize", EXL2__CUDA_NEEDED, (exl2__cuda_program *program, size_t *bytes))               \
    X(cubin, "nvrtcGetCUBIN", EXL2__CUDA_NEEDED, (exl2__cuda_program *program, char *cubin))                           \
    X(ptx_bytes, "nvrtcGetPTXSize", EXL2__CUDA_NEEDED, (exl2__cuda_program *program, size_t *bytes))                   \
    X(ptx, "nvrtcGetPTX", EXL2__CUDA_NEEDED, (exl2__cuda_program *program, char *ptx))

#define X(member, name, needed, parameters) int(EXL2__CUDA_CALL *member) parameters;
typedef struct exl2__cuda_driver {
    void *library; /* NULL: not open, or the table was filled by a test */
    EXL2__CUDA_DRIVER_FUNCTIONS(X)
} exl2__cuda_driver;

typedef struct exl2__cuda_nvrtc {
    void *library;
    EXL2__CUDA_NVRTC_FUNCTIONS(X)
} exl2__cuda_nvrtc;
#undef X

/* ---- failures ---- */

/* As exl2__fail; `native` is the result of the driver or of NVRTC, for exl2_error.native. */
EXL2__PRINTF(4, 5)
static inline exl2_result exl2__cuda_fail(exl2__ctx *c, exl2_result code, int native, const char *format, ...)
{
    char text[sizeof c->error.text];
    va_list args;
    va_start(args, format);
    exl2__format_list(text, sizeof text, format, args);
    va_end(args);
    exl2_result result = exl2__fail(c, code, "%s", text);
    exl2__lock(&c->error_lock);
    c->error.native = native;
    exl2__unlock(&c->error_lock);
    return result;
}

/* Name of a result of the driver, such as CUDA_ERROR_OUT_OF_MEMORY. */
static inline const char *exl2__cuda_result_name(const exl2__cuda_driver *driver, int result)
{
    const char *name = NULL;
    if (!driver->error_name || driver->error_name(result, &name) != 0 || !name) {
        name = "an unknown CUDA error";
    }
    return name;
}

/* Results after which the context can never be used again. */
EXL2__PRIVATE bool exl2__cuda_sticky(int result)
{
    switch (result) {
    case EXL2__CUDA_DEINITIALIZED:
    case EXL2__CUDA_DEVICE_UNAVAILABLE:
    case EXL2__CUDA_ECC_UNCORRECTABLE:
    case EXL2__CUDA_NVLINK_UNCORRECTABLE:
    case EXL2__CUDA_ILLEGAL_ADDRESS:
    case EXL2__CUDA_LAUNCH_TIMEOUT:
    case EXL2__CUDA_CONTEXT_DESTROYED:
    case EXL2__CUDA_ASSERT:
    case EXL2__CUDA_HARDWARE_STACK:
    case EXL2__CUDA_ILLEGAL_INSTRUCTION:
    case EXL2__CUDA_MISALIGNED:
    case EXL2__CUDA_INVALID_SPACE:
    case EXL2__CUDA_INVALID_PC:
    case EXL2__CUDA_LAUNCH_FAILED:
    case EXL2__CUDA_UNKNOWN:
        return true;
    default:
        return false;
    }
}

/* ---- opening ---- */

/* Opens `given`, or, if that is NULL or empty, the first of the names that the system finds. *found: the last name
   tried. */
static inline void *exl2__cuda_library(const char *given, const char *const *names, size_t count, const char **found)
{
    void *library = NULL;
    given = given && *given ? given : NULL; /* for an empty name dlopen gives the program itself */
    for (size_t i = 0; i < (given ? 1 : count) && !library; i++) {
        *found = given ? given : names[i];
        library = exl2__platform_library(*found);
    }
    return library;
}

typedef struct exl2__cuda_symbol { /* one function of a table */
    const char *name;
    uint32_t offset; /* offset of its member in the table */
    bool needed;
} exl2__cuda_symbol;

/* Fills the table. *missing: the first needed function that the library lacks, or NULL. */
EXL2__PRIVATE void exl2__cuda_find(void *library, const exl2__cuda_symbol *symbols, size_t count, void *table,
                                   const char **missing)
{
    *missing = NULL;
    for (size_t i = 0; i < count; i++) {
        bool found = exl2__platform_symbol(library, symbols[i].name, (uint8_t *)table + symbols[i].offset);
        if (!found && symbols[i].needed && !*missing) {
            *missing = symbols[i].name;
        }
    }
}

/* Opens the driver. A failure is not logged, since a machine without a GPU is normal; `why` (cap bytes) gets the
   message. */
EXL2__PRIVATE exl2_result exl2__cuda_driver_open(const char *path, exl2__cuda_driver *out, char *why, size_t cap)
{
    static const char *const names[] = EXL2__CUDA_DRIVER_NAMES;
#define X(member, name, needed, parameters) { name, (uint32_t)offsetof(exl2__cuda_driver, member), needed },
    static const exl2__cuda_symbol symbols[] = { EXL2__CUDA_DRIVER_FUNCTIONS(X) };
#undef X
    const char *found = "", *missing;
    *out = (exl2__cuda_driver){ 0 };
    void *library = exl2__cuda_library(path, names, EXL2__COUNT(names), &found);
    if (!library) {
        exl2__format(why, cap, "no CUDA driver: %s is not installed", found);
        return EXL2_ERR_NO_DEVICE;
    }
    exl2__cuda_find(library, symbols, EXL2__COUNT(symbols), out, &missing);
    if (missing) {
        exl2__format(why, cap, "the CUDA driver %s is too old: it has no %s", found, missing);
        exl2__platform_unload(library);
        *out = (exl2__cuda_driver){ 0 };
        return EXL2_ERR_NO_DEVICE;
    }
#if !defined(_WIN32)
    out->device_luid = NULL; /* exported on Linux, but it always fails */
#endif
    out->library = library;
    return EXL2_OK;
}

static inline void exl2__cuda_driver_close(exl2__cuda_driver *driver)
{
    exl2__platform_unload(driver->library);
    *driver = (exl2__cuda_driver){ 0 };
}

/* As exl2__cuda_driver_open. path NULL or empty: the newest NVRTC among the usual names. */
EXL2__PRIVATE exl2_result exl2__cuda_nvrtc_open(const char *path, exl2__cuda_nvrtc *out, char *why, size_t cap)
{
    static const char *const names[] = EXL2__CUDA_NVRTC_NAMES;
#define X(member, name, needed, parameters) { name, (uint32_t)offsetof(exl2__cuda_nvrtc, member), needed },
    static const exl2__cuda_symbol symbols[] = { EXL2__CUDA_NVRTC_FUNCTIONS(X) };
#undef X
    const char *found = "", *missing;
    *out = (exl2__cuda_nvrtc){ 0 };
    void *library = exl2__cuda_library(path, names, EXL2__COUNT(names), &found);
    if (!library) {
        exl2__format(why, cap, "no kernel compiler: %s (NVRTC) cannot be opened",
                     path && *path ? path : names[0]);
        return EXL2_ERR_NO_COMPILER;
    }
    exl2__cuda_find(library, symbols, EXL2__COUNT(symbols), out, &missing);
    if (missing) {
        exl2__format(why, cap, "no kernel compiler: %s is too old, it has no %s", found, missing);
        exl2__platform_unload(library);
        *out = (exl2__cuda_nvrtc){ 0 };
        return EXL2_ERR_NO_COMPILER;
    }
    out->library = library;
    return EXL2_OK;
}

static inline void exl2__cuda_nvrtc_close(exl2__cuda_nvrtc *nvrtc)
{
    exl2__platform_unload(nvrtc->library);
    *nvrtc = (exl2__cuda_nvrtc){ 0 };
}

#endif

/* other_gpu.h: lets the GPU at hand stand in for one of another kind, so that its code runs here: the driver's table
   reports the attributes of the other kind, and the compiler's table gives PTX, which the driver assembles for the GPU
   at hand. It also stands in for several GPUs, or keeps those at hand apart. Or the CPU stands in for GPUs: the driver
   is tests/ptx/ptx_driver.h, which runs the PTX. Include it before any other header of the engine.
   takes: $EXL2_TEST_ARCH: 75, 80, 86, 89, 100 or 120 (86 = compute capability 8.6); $EXL2_TEST_SMS: its number of SMs;
          $EXL2_NVRTC; $EXL2_TEST_SPANS: cuts models into so many spans, on one GPU; $EXL2_TEST_APART: 1: GPUs do not
          reach each other's memory. Without these variables the tables stay as they are, and empty ones are opened by
          the engine.
          $EXL2_TEST_EMULATE: 1: the CPU stands in for $EXL2_TEST_GPUS GPUs (1) of the kind $EXL2_TEST_ARCH (80; also
          90) with $EXL2_TEST_SMS SMs (4); without NVRTC the test is skipped. $EXL2_TEST_SEED: streams and warps take
          turns at random, from this seed.
   gives: other_gpu_tables, other_gpu_cut; EXL2__CUDA_TABLES and EXL2__TEST_SPANS for the engine.
   owns:  nothing: the tables' libraries are the engine's.

   PTX for compute capability 10.0 and 12.0 does not run on an older GPU. Theirs is compute_90, so host code runs as on
   those GPUs, and kernels with clusters, bulk copies and programmatic launches, but without wgmma. Kernels' branches of
   __CUDA_ARCH__ >= 1000 do not run. */
#ifndef OTHER_GPU_H
#define OTHER_GPU_H

#include <time.h>

int ptx_driver_sleep(const struct timespec *time, struct timespec *left);
#ifndef nanosleep /* engine.c has its own */
#define nanosleep(time, left) ptx_driver_sleep(time, left) /* of the engine: emulated GPUs work meanwhile */
#endif

#include "../../exl2.h"

#include "private/cuda_api.h"
#include "../check.h"
#include "../ptx/ptx_driver.h"

#define EXL2__CUDA_TABLES(driver, nvrtc) other_gpu_tables(driver, nvrtc)
#define EXL2__TEST_SPANS(layers, ends) other_gpu_cut(layers, ends)

#define OTHER_GPU_INVALID_VALUE 1 /* what the driver returns for a setting that the GPU does not allow */
#define OTHER_GPU_OPTIONS 32
#define OTHER_GPU_EMULATED_ARCH 80
#define OTHER_GPU_EMULATED_SMS 4 /* few, so that grids are small */

typedef struct other_gpu_kind {
    int arch, sm_count;
    int shared_optin, shared_per_sm; /* bytes of shared memory of a block and of an SM */
} other_gpu_kind;

static const other_gpu_kind other_gpu_kinds[] = {
    { 75, 46, 64 << 10, 64 << 10 },     /* RTX 2080 */
    { 80, 108, 163 << 10, 164 << 10 },  /* A100 */
    { 86, 28, 99 << 10, 100 << 10 },    /* RTX 3060; 3090: 82 */
    { 89, 46, 99 << 10, 100 << 10 },    /* RTX 4070; 4090: 128 */
    { 90, 132, 227 << 10, 228 << 10 },  /* H100; only emulated: as PTX of compute_90a */
    { 100, 148, 227 << 10, 228 << 10 }, /* B200 */
    { 120, 170, 99 << 10, 100 << 10 },  /* RTX 5090 */
};

static struct other_gpu {
    const other_gpu_kind *kind; /* NULL: the GPU at hand */
    int sm_count;               /* 0: as the driver says */
    int apart;                  /* 1: GPUs do not reach each other's memory */
    int emulated;               /* number of GPUs that the CPU stands in for; 0: there is a driver */
    exl2__cuda_driver driver;   /* the libraries' own functions */
    exl2__cuda_nvrtc nvrtc;
    char target[48];            /* the option that replaces the engine's */
} other_gpu;

/* A variable's number, which is 0 if it is not set. */
static int other_gpu_number(const char *name)
{
    const char *text = check_env(name);
    char *end = NULL;
    long number = text ? strtol(text, &end, 10) : 0;
    if (text && (*end || number <= 0 || number > 1000)) {
        printf("%s must be a number from 1 to 1000, not '%s'\n", name, text);
        exit(1);
    }
    return (int)number;
}

/* ---- the driver ---- */

static int EXL2__CUDA_CALL other_gpu_attribute(int *value, int attribute, int device)
{
    const other_gpu_kind *kind = other_gpu.kind;
    int result = other_gpu.driver.device_attribute(value, attribute, device);
    if (attribute == EXL2__CUDA_SM_COUNT && other_gpu.sm_count > 0) {
        *value = other_gpu.sm_count;
    }
    if (!kind) {
        return result;
    }
    switch (attribute) {
    case EXL2__CUDA_ARCH_MAJOR: *value = kind->arch / 10; break;
    case EXL2__CUDA_ARCH_MINOR: *value = kind->arch % 10; break;
    case EXL2__CUDA_SHARED_OPTIN: *value = kind->shared_optin; break;
    case EXL2__CUDA_SHARED_PER_SM: *value = kind->shared_per_sm; break;
    default: break;
    }
    return result;
}

/* Rejects more shared memory than the other GPU has. */
static int EXL2__CUDA_CALL other_gpu_set(exl2__cuda_function *function, int attribute, int value)
{
    int fixed = 0;
    if (attribute == EXL2__CUDA_FUNCTION_DYNAMIC_MAX) {
        int result = other_gpu.driver.function_attribute(&fixed, EXL2__CUDA_FUNCTION_SHARED_BYTES, function);
        if (result != 0 || fixed + value > other_gpu.kind->shared_optin) {
            return result != 0 ? result : OTHER_GPU_INVALID_VALUE;
        }
    }
    return other_gpu.driver.function_set(function, attribute, value);
}

static void other_gpu_driver(exl2__cuda_driver *driver)
{
    char why[200];
    if (other_gpu.emulated) {
        const other_gpu_kind *kind = other_gpu.kind;
        ptx_driver_machine machine = { other_gpu.emulated, kind->arch, other_gpu.sm_count, kind->shared_optin,
                                       kind->shared_per_sm, other_gpu_number("EXL2_TEST_SEED") };
        ptx_driver_fill(&machine, driver);
    } else if (!driver->init && exl2__cuda_driver_open(NULL, driver, why, sizeof why) < 0) {
        *driver = (exl2__cuda_driver){ 0 }; /* the engine tries again and says why */
        return;
    }
    other_gpu.driver = *driver;
    driver->device_attribute = other_gpu_attribute;
    driver->copy_peer = other_gpu.apart ? NULL : driver->copy_peer;
    driver->function_set = other_gpu.kind ? other_gpu_set : driver->function_set;
}

/* ---- the compiler ---- */

static int EXL2__CUDA_CALL other_gpu_compile(exl2__cuda_program *program, int count, const char *const *options)
{
    const char *mine[OTHER_GPU_OPTIONS];
    for (int i = 0; i < count && i < OTHER_GPU_OPTIONS; i++) {
        mine[i] = strncmp(options[i], "--gpu-architecture=", 19) == 0 ? other_gpu.target : options[i];
    }
    return count <= OTHER_GPU_OPTIONS ? other_gpu.nvrtc.compile(program, count, mine) : -1;
}

static void other_gpu_nvrtc(exl2__cuda_nvrtc *nvrtc)
{
    char why[200];
    int arch = other_gpu.kind->arch;
    if (!nvrtc->version && exl2__cuda_nvrtc_open(check_env("EXL2_NVRTC"), nvrtc, why, sizeof why) < 0) {
        if (other_gpu.emulated) {
            check_skip(why);
        }
        *nvrtc = (exl2__cuda_nvrtc){ 0 };
        return;
    }
    if (other_gpu.emulated) {
        ptx_compiler_fill(nvrtc);
    }
    other_gpu.nvrtc = *nvrtc;
    snprintf(other_gpu.target, sizeof other_gpu.target, "--gpu-architecture=compute_%d%s", arch > 90 ? 90 : arch,
             arch == 90 ? "a" : "");
    nvrtc->compile = other_gpu_compile;
    nvrtc->cubin_bytes = nvrtc->ptx_bytes;
    nvrtc->cubin = nvrtc->ptx;
}

/* ---- both ---- */

static void other_gpu_read(void)
{
    int arch = other_gpu_number("EXL2_TEST_ARCH");
    other_gpu.sm_count = other_gpu_number("EXL2_TEST_SMS");
    other_gpu.apart = other_gpu_number("EXL2_TEST_APART");
    other_gpu.emulated = 0;
    if (other_gpu_number("EXL2_TEST_EMULATE")) {
        int gpus = other_gpu_number("EXL2_TEST_GPUS");
        other_gpu.emulated = gpus == 0 ? 1 : gpus;
        other_gpu.sm_count = other_gpu.sm_count ? other_gpu.sm_count : OTHER_GPU_EMULATED_SMS;
        arch = arch ? arch : OTHER_GPU_EMULATED_ARCH;
    }
    other_gpu.kind = NULL;
    for (size_t i = 0; i < sizeof other_gpu_kinds / sizeof other_gpu_kinds[0] && arch > 0; i++) {
        if (other_gpu_kinds[i].arch == arch && (arch != 90 || other_gpu.emulated)) {
            other_gpu.kind = &other_gpu_kinds[i];
        }
    }
    if (arch > 0 && !other_gpu.kind) {
        printf("EXL2_TEST_ARCH must be 75, 80, 86, 89, 100 or 120 (or 90 if emulated), not %d\n", arch);
        exit(1);
    }
    if (other_gpu.emulated > PTX_DRIVER_GPUS_MAX) {
        printf("EXL2_TEST_GPUS must be at most %d\n", PTX_DRIVER_GPUS_MAX);
        exit(1);
    }
    if (other_gpu.kind && other_gpu.sm_count == 0) {
        other_gpu.sm_count = other_gpu.kind->sm_count;
    }
}

/* Opens the libraries and replaces functions of the tables, if a variable asks for it. driver and nvrtc: zeroed, or
   open; or NULL. */
static void other_gpu_tables(exl2__cuda_driver *driver, exl2__cuda_nvrtc *nvrtc)
{
    other_gpu_read();
    if (driver && (other_gpu.sm_count > 0 || other_gpu.apart)) {
        other_gpu_driver(driver);
    }
    if (nvrtc && other_gpu.kind) {
        other_gpu_nvrtc(nvrtc);
    }
}

/* As EXL2__TEST_SPANS: spans of nearly equal numbers of layers. */
static uint32_t other_gpu_cut(uint32_t layers, uint32_t *ends)
{
    int wanted = other_gpu_number("EXL2_TEST_SPANS");
    uint32_t count = wanted <= 1 ? 1 : (uint32_t)wanted < layers ? (uint32_t)wanted : layers;
    count = count < EXL2_DEVICES_MAX ? count : EXL2_DEVICES_MAX;
    for (uint32_t i = 0; i < count; i++) {
        ends[i] = layers * (i + 1) / count;
    }
    return count;
}

#endif

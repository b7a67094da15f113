/* backend.c: which backend an engine gets: why AUTO falls back to the CPU, what EXL2_BACKEND_CUDA reports then, kernels
   from a compiler, from a cache, and from a set that was built elsewhere. Over the fake driver.
   takes: the goldens.
   gives: exit code 0 or 1. */
#include "../device/fake_engine.h"

#include <math.h>

static exl2_error open_error;

static const char *model_path(void)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/models/exl2-mixed", EXL2_GOLDEN_DIR);
    return path;
}

/* Opens an engine and loads the golden model: EXL2_OK, or the error. *on_gpu: the model is on the GPU. */
static exl2_result live(exl2_backend backend, bool *on_gpu, exl2_error *error)
{
    exl2_engine *e = NULL;
    exl2_model m;
    exl2_model_info info = { .device_bytes = 0 };
    exl2_engine_desc d = machine_desc(backend, error);
    exl2_model_desc model = { .path = model_path() };
    exl2_result result = exl2_open(&d, &e);
    CHECK((result < 0) == (e == NULL));
    if (e) {
        exl2_last_error(e, error);
        CHECK_INT(error->code, EXL2_OK);
        result = exl2_model_load(e, &model, &m);
        exl2_last_error(e, error);
        CHECK_INT(error->code, result);
    }
    if (result == EXL2_OK) {
        exl2_engine_stats stats;
        CHECK_INT(exl2_model_get(e, m, &info), EXL2_OK);
        exl2_stats(e, &stats);
        CHECK_INT(stats.kernels_compiled, fake.compiles);
        CHECK(info.device_bytes <= stats.device_bytes && (info.device_bytes > 0) == (stats.device_bytes > 0));
        CHECK(info.device_bytes <= info.weight_bytes + info.cache_bytes + info.scratch_bytes);
    }
    *on_gpu = info.device_bytes > 0;
    exl2_close(e);
    machine_end();
    return result;
}

/* AUTO: the CPU, one warning with the reason, no error. CUDA: the code, with the reason as its message. */
static void check_without(const char *reason, exl2_result wanted)
{
    bool on_gpu;
    machine.warnings = machine.errors = 0;
    CHECK_INT(live(EXL2_BACKEND_AUTO, &on_gpu, &open_error), EXL2_OK);
    CHECK(!on_gpu);
    CHECK_INT(machine.warnings, 1);
    CHECK_INT(machine.warning_id, EXL2_LOG_ID_CPU_FALLBACK);
    CHECK_INT(machine.errors, 0);
    if (!CHECK(strstr(machine.warning, "models run on the CPU: ") == machine.warning
               && strstr(machine.warning, reason) != NULL)) {
        printf("  the warning is \"%s\", it should name \"%s\"\n", machine.warning, reason);
    }
    machine.warnings = 0;
    CHECK_INT(live(EXL2_BACKEND_CUDA, &on_gpu, &open_error), wanted);
    CHECK_INT(open_error.code, wanted);
    CHECK_INT(machine.errors, 1);
    if (!CHECK(strstr(open_error.text, reason) != NULL && strcmp(machine.error, open_error.text) == 0)) {
        printf("  the message is \"%s\", it should name \"%s\"\n", open_error.text, reason);
    }
}

static void test_without(void)
{
    machine_drop_cache();
    machine_make();
    void *real = exl2__platform_library("libcuda.so.1");
    if (!real) {
        machine.driver = false;
        check_without("no CUDA driver: ", EXL2_ERR_NO_DEVICE);
    }
    exl2__platform_unload(real);
    machine_make();
    fake.driver_version = 11080;
    check_without("the NVIDIA driver is too old: it supports CUDA 11.8, at least 12.0 is needed", EXL2_ERR_NO_DEVICE);
    machine_make();
    fake.device_count = 0;
    check_without("no CUDA device: the driver (CUDA 13.0) lists none", EXL2_ERR_NO_DEVICE);
    machine_make();
    fake.devices[0].arch_major = 7;
    fake.devices[0].arch_minor = 0;
    check_without("GPU FakeForce 4090 cannot be used: its compute capability is 7.0, at least 7.5 is needed",
                  EXL2_ERR_NO_DEVICE);
    machine_make();
    machine.compiler = false;
    check_without("for sm_89 is not in the kernel cache, and there is no kernel compiler: /nowhere/libnvrtc.so",
                  EXL2_ERR_NO_COMPILER);
    machine_make();
    fake.arch_count = 1;
    fake.archs[0] = 100;
    check_without("this NVRTC supports no architecture from 75 to 89", EXL2_ERR_COMPILE);
    machine_make();
    fake.fail_at = 1; /* cuDriverGetVersion or cuInit: a driver that does not start */
    fake.fail_code = 999;
    exl2_device_info info;
    uint32_t count = 9;
    CHECK_INT(exl2_devices(&info, 1, &count), EXL2_OK);
    CHECK_INT(count, 0);
}

static void test_devices(void)
{
    exl2_device_info info[2] = { { .name = "" } };
    uint32_t count = 0;
    machine_make();
    fake.device_count = 3;
    fake.devices[1] = fake.devices[2] = fake.devices[0];
    fake.devices[0].arch_major = 6;
    fake.devices[2].memory_width = 512;
    CHECK_INT(exl2_devices(info, 2, &count), EXL2_OK);
    CHECK_INT(count, 3);
    CHECK(!info[0].usable && strlen(info[0].why_not) > 10);
    CHECK(info[1].usable && info[1].index == 1 && info[1].arch == 89 && info[1].bytes_total == 1 << 30);
    CHECK_INT(exl2_devices(NULL, 0, &count), EXL2_OK);
    CHECK_INT(exl2_devices(NULL, 1, &count), EXL2_ERR_ARG);
    CHECK_INT(exl2_devices(info, 2, NULL), EXL2_ERR_ARG);
    exl2_device_desc pick = { .pick = EXL2_PICK_INDEX };
    exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &open_error);
    exl2_engine *e;
    d.devices = &pick;
    d.device_count = 1;
    CHECK_INT(exl2_open(&d, &e), EXL2_ERR_NO_DEVICE);
    pick.index = 1;
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    CHECK_INT(fake.devices[1].retained, 1);
    exl2_engine_info used;
    exl2_engine_get(e, &used);
    CHECK(used.backend == EXL2_BACKEND_CUDA && used.device.index == 1 && used.device.arch == 89 && used.device.usable);
    CHECK(used.device.name[0] && strcmp(used.device.name, info[1].name) == 0);
    CHECK(memcmp(used.device.uuid, info[1].uuid, sizeof used.device.uuid) == 0);
    exl2_close(e);
    pick.pick = (exl2_pick)9; /* a mistake of the application is an error for AUTO, too */
    d.backend = EXL2_BACKEND_AUTO;
    CHECK_INT(exl2_open(&d, &e), EXL2_ERR_ARG);
    machine_end();
}

/* First with an empty cache, then from the cache that this run filled. */
static void test_cache(void)
{
    bool on_gpu;
    machine_drop_cache();
    machine_make();
    CHECK_INT(live(EXL2_BACKEND_AUTO, &on_gpu, &open_error), EXL2_OK);
    CHECK(on_gpu && fake.compiles > 0 && machine.stores == fake.compiles);
    CHECK_INT(machine.warnings + machine.errors, 0);
    machine_make();
    machine.compiler = false;
    CHECK_INT(live(EXL2_BACKEND_AUTO, &on_gpu, &open_error), EXL2_OK);
    CHECK(on_gpu && fake.compiles == 0);
}

static void side_by_side(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    (void)user;
    for (uint32_t i = count; i-- > 0;) {
        task(arg, i);
    }
}

/* Steps while a model loads: each compiles at most one module, or one per thread, or with four threads all of them.
   Modules for other head sizes are not compiled, and after loading nothing is compiled. */
static void test_slices(uint32_t width)
{
    exl2_engine *e;
    exl2_model m;
    exl2_model_desc model = { .path = model_path() };
    exl2_step_desc step = { .cpu_us = 1 };
    uint32_t slices = 0, most = width < 4 ? width : 100;
    machine_drop_cache();
    machine_make();
    exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &open_error);
    d.parallel = (exl2_parallel){ width > 1 ? side_by_side : NULL, width, NULL };
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    CHECK_INT(exl2_model_open(e, &model, &m), EXL2_OK);
    while (exl2_model_state(e, m) == EXL2_PENDING) {
        uint32_t before = fake.compiles;
        CHECK(exl2_step(e, &step) >= 0);
        CHECK(fake.compiles - before <= most);
        slices += fake.compiles > before;
    }
    CHECK_INT(exl2_model_state(e, m), EXL2_OK);
    CHECK_INT(slices, (fake.compiles + most - 1) / most);
    for (uint32_t i = 0; i < machine.entry_count; i++) {
        const char *key = machine.entries[i].key;
        CHECK(!strstr(key, "probe") && !strstr(key, "128-") && !strstr(key, "256-"));
    }
    exl2_close(e);
    machine_end();
}

static exl2_result build(const uint32_t *archs, uint32_t count)
{
    exl2_kernel_build_desc d = { .archs = archs, .arch_count = count, .error = &open_error };
    d.into.store = machine_store;
    d.nvrtc_path = machine.compiler ? NULL : "/nowhere/libnvrtc.so";
    d.log.line = machine_line;
    return exl2_kernels_build(&d);
}

/* A set made on a machine without a GPU works on one without a compiler: for its architecture, and for a later minor
   version. */
static void test_prebuilt(void)
{
    static const struct {
        int arch, serves; /* 1: the GPU, 0: the CPU */
    } rows[] = { { 75, 1 }, { 80, 0 }, { 86, 1 }, { 89, 1 }, { 90, 1 }, { 91, 0 }, { 100, 0 }, { 120, 1 }, { 121, 1 } };
    static const uint32_t archs[] = { 75, 86, 90, 120 }, odd[] = { 87 }, old = 70;
    bool on_gpu;
    machine_drop_cache();
    machine_make();
    machine.driver = false;
    CHECK_INT(build(archs, 4), EXL2_OK);
    CHECK_INT(machine.stores, fake.compiles);
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        machine_make();
        machine.compiler = false;
        fake.devices[0].arch_major = rows[i].arch / 10;
        fake.devices[0].arch_minor = rows[i].arch % 10;
        CHECK_INT(live(EXL2_BACKEND_AUTO, &on_gpu, &open_error), EXL2_OK);
        if (!CHECK_INT(on_gpu, rows[i].serves)) {
            printf("  architecture %d: %s\n", rows[i].arch, machine.warning);
        }
        CHECK_INT(machine.warnings, !rows[i].serves);
    }
    machine_make();
    CHECK_INT(build(odd, 1), EXL2_ERR_UNSUPPORTED);
    CHECK_TEXT(open_error.text, "this NVRTC (13.0) generates no machine code for compute capability 8.7");
    CHECK_INT(build(&old, 1), EXL2_ERR_UNSUPPORTED);
    CHECK_TEXT(open_error.text, "architecture 70 is not supported; the lowest one is 75");
    CHECK_INT(build(archs, 0), EXL2_ERR_ARG);
    machine.compiler = false;
    CHECK_INT(build(archs, 4), EXL2_ERR_NO_COMPILER);
    CHECK_TEXT(open_error.text,
               "kernels cannot be built: no kernel compiler: /nowhere/libnvrtc.so (NVRTC) cannot be opened");
}

/* Entries that are cut, flipped, or of another architecture are compiled again or, without a compiler, rejected. */
static void test_damaged(void)
{
    static const uint32_t archs[] = { 89, 80 };
    bool on_gpu;
    for (int kind = 0; kind < 3; kind++) {
        machine_drop_cache();
        machine_make();
        CHECK_INT(build(archs, 2), EXL2_OK);
        machine_entry *first = NULL, *other = NULL;
        for (uint32_t i = 0; i < machine.entry_count; i++) {
            first = !first && strncmp(machine.entries[i].key, "norm-sm_89", 10) == 0 ? &machine.entries[i] : first;
            other = !other && strncmp(machine.entries[i].key, "norm-sm_80", 10) == 0 ? &machine.entries[i] : other;
        }
        if (!CHECK(first && other)) {
            return;
        }
        if (kind == 0) {
            first->bytes -= 3;
        } else if (kind == 1) {
            first->data[first->bytes / 2] ^= 16;
        } else {
            memcpy(first->data, other->data, first->bytes < other->bytes ? first->bytes : other->bytes);
        }
        other->key[0] = 'x'; /* otherwise it would match */
        uint32_t stores = machine.stores;
        machine_make();
        machine.compiler = false;
        check_without("kernel norm.cu for sm_89 is not in the kernel cache", EXL2_ERR_NO_COMPILER);
        machine_make();
        CHECK_INT(live(EXL2_BACKEND_CUDA, &on_gpu, &open_error), EXL2_OK);
        CHECK(on_gpu);
        CHECK_INT(fake.compiles, 1);
        CHECK_INT(machine.stores, stores + 1);
        CHECK_INT(machine.warnings, 1);
        CHECK_INT(machine.warning_id, EXL2_LOG_ID_KERNEL_ENTRY_DAMAGED);
        machine_make();
        CHECK_INT(live(EXL2_BACKEND_CUDA, &on_gpu, &open_error), EXL2_OK);
        CHECK_INT(fake.compiles + machine.warnings, 0);
    }
}

static uint64_t refuse_device(void *user, uint32_t device, uint64_t bytes, exl2_mem tag)
{
    (void)user, (void)device, (void)bytes, (void)tag;
    return 0;
}

static void never_freed(void *user, uint32_t device, uint64_t address, uint64_t bytes, exl2_mem tag)
{
    (void)user, (void)device, (void)address, (void)bytes, (void)tag;
    CHECK(false);
}

/* Caps and hooks of device memory. */
static void test_memory(void)
{
    exl2_engine *e;
    exl2_model m;
    exl2_model_desc model = { .path = model_path() };
    machine_make();
    exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &open_error);
    d.device_bytes_max = 65536;
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    CHECK_INT(exl2_model_load(e, &model, &m), EXL2_ERR_BUDGET);
    exl2_close(e);
    d.allocator.device_alloc_fn = refuse_device;
    CHECK_INT(exl2_open(&d, &e), EXL2_ERR_ARG);
    d.allocator.device_free_fn = never_freed;
    d.device_bytes_max = 0;
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    CHECK_INT(exl2_model_load(e, &model, &m), EXL2_ERR_DEVICE_MEMORY);
    exl2_close(e);
    machine_end();
}

/* A quantized cache needs the memory that the measure says, which counts one layer's fp16 pages, too. */
static void test_quantized_cache(void)
{
    static const uint32_t bytes[] = { 0, 272, 208, 144 }; /* of a token: 2 layers, 2 K/V heads of 32 */
    for (uint32_t f = EXL2_KV_Q8; f <= EXL2_KV_Q4; f++) {
        exl2_engine *e;
        exl2_model m;
        exl2_model_info info, plain;
        exl2_model_desc model = { .path = model_path(), .cache.tokens = 4096 };
        machine_make();
        exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &open_error);
        CHECK_INT(exl2_open(&d, &e), EXL2_OK);
        CHECK_INT(exl2_model_measure(e, &model, &plain), EXL2_OK);
        model.cache.format = (exl2_kv)f;
        CHECK_INT(exl2_model_measure(e, &model, &info), EXL2_OK);
        CHECK_INT(info.cache_bytes_per_token, bytes[f]);
        CHECK_INT(info.cache_bytes, 4096 * bytes[f]);
        CHECK_INT(info.device_bytes - info.cache_bytes, plain.device_bytes - plain.cache_bytes + 4096 * 256);
        d.device_bytes_max = info.device_bytes;
        exl2_close(e);
        CHECK_INT(exl2_open(&d, &e), EXL2_OK);
        CHECK_INT(exl2_model_load(e, &model, &m), EXL2_OK);
        exl2_close(e);
        d.device_bytes_max = info.device_bytes - 1;
        CHECK_INT(exl2_open(&d, &e), EXL2_OK);
        CHECK(exl2_model_load(e, &model, &m) < 0);
        exl2_close(e);
        machine_end();
    }
}

/* Models of GPTQ and AWQ are measured and loaded: info foretells the device memory that the load takes. */
static void test_affine(void)
{
    static const char *const folders[] = { "awq", "gptq-phi3" };
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        exl2_engine *e;
        exl2_model m;
        exl2_model_info before, after;
        exl2_model_desc model = { 0 };
        char path[1024];
        snprintf(path, sizeof path, "%s/models/%s", EXL2_GOLDEN_DIR, folders[i]);
        model.path = path;
        machine_make();
        exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &open_error);
        CHECK_INT(exl2_open(&d, &e), EXL2_OK);
        CHECK_INT(exl2_model_measure(e, &model, &before), EXL2_OK);
        CHECK_INT(exl2_model_load(e, &model, &m), EXL2_OK);
        CHECK_INT(exl2_model_get(e, m, &after), EXL2_OK);
        CHECK(before.device_bytes > 0);
        CHECK_INT(before.device_bytes, after.device_bytes);
        exl2_close(e);
        machine_end();
    }
}

/* ---- the probe: the fake clock advances 10 us at each timestamp ---- */

static struct { uint32_t reads; uint64_t bytes; } probed;

static void on_probe(const char *function, const void *arguments, const unsigned grid[3])
{
    exl2k_probe_args a;
    memcpy(&a, arguments, sizeof a);
    (void)grid;
    CHECK(strcmp(function, "exl2k_probe_read") == 0);
    CHECK(fake_memory(a.from, a.words * 16) != NULL);
    probed.reads++;
    probed.bytes = a.words * 16;
}

static void test_probe(void)
{
    const uint64_t mib = (uint64_t)1 << 20;
    exl2_engine *e;
    exl2_device_speed speed;
    exl2_engine_stats stats;
    machine_drop_cache();
    machine_make();
    fake.devices[0].bytes_total = 64 * mib;
    fake.run = on_probe;
    exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &open_error);
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    CHECK_INT(exl2_device_probe(e, NULL), EXL2_ERR_ARG);
    CHECK_INT(exl2_device_probe(NULL, &speed), EXL2_ERR_ARG);
    CHECK_INT(exl2_device_probe(e, &speed), EXL2_OK);
    CHECK_INT(speed.index, 0);
    CHECK(probed.reads > 1);
    CHECK_INT(probed.bytes, 32 * mib); /* half of the free memory */
    CHECK_INT(fake.copied, probed.reads * 16 * mib);
    CHECK(fabs((double)speed.read_bytes_s - (double)(32 * mib) * 1e5) < 1e7);
    CHECK(fabs((double)speed.copy_bytes_s - (double)(32 * mib) * 1e5) < 1e7);
    CHECK_INT(fake.compiles, 1); /* no kernel that only models need */
    exl2_stats(e, &stats);
    CHECK_INT(stats.device_bytes, 0);
    CHECK_INT(stats.device_peak, 32 * mib);
    CHECK_INT(stats.kernels_compiled, 1);
    exl2_close(e);
    machine_end();
    d.device_bytes_max = 5 * mib;
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    CHECK_INT(exl2_device_probe(e, &speed), EXL2_OK);
    CHECK_INT(probed.bytes, 2 * mib);
    exl2_close(e);
    d.device_bytes_max = mib / 2;
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    CHECK_INT(exl2_device_probe(e, &speed), EXL2_ERR_BUDGET);
    exl2_close(e);
    d.backend = EXL2_BACKEND_CPU;
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    CHECK_INT(exl2_device_probe(e, &speed), EXL2_ERR_NO_DEVICE);
    CHECK(speed.read_bytes_s == 0 && speed.copy_bytes_s == 0);
    exl2_close(e);
    machine_end();
}

/* Every driver call of a probe fails once: a code, a message, nothing kept. */
static void test_probe_failures(void)
{
    exl2_device_speed speed;
    bool failed = true;
    uint32_t failures = 0;
    for (uint32_t at = 1; failed && at < 1000; at++) {
        exl2_engine *e;
        exl2_error error;
        machine_make();
        fake.devices[0].bytes_total = 8 << 20;
        exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &open_error);
        CHECK_INT(exl2_open(&d, &e), EXL2_OK);
        fake.fail_at = at;
        fake.fail_code = at % 2 ? 2 : 719; /* 2: out of memory; 719: a fault, which destroys the context */
        exl2_result result = exl2_device_probe(e, &speed);
        failed = fake.fail_at == 0;
        fake.fail_at = 0;
        exl2_last_error(e, &error);
        CHECK_INT(error.code, result);
        CHECK(result == EXL2_OK || strlen(error.text) > 20);
        failures += result < 0;
        exl2_close(e);
        machine_end();
    }
    CHECK(!failed && failures > 60); /* 20 launches, each between two timestamps */
}

int main(void)
{
    test_without();
    test_devices();
    test_cache();
    test_slices(1);
    test_slices(3);
    test_slices(4);
    test_prebuilt();
    test_damaged();
    test_memory();
    test_quantized_cache();
    test_affine();
    test_probe();
    test_probe_failures();
    machine_drop_cache();
    fake_reset();
    return check_done();
}

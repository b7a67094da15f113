/* host.c: the CPU code of the CUDA backend on a real GPU: opening, compiling and loading through the cache, copies
   through the pinned ring, launches, graphs. Prints the bandwidths and the cost of a launch.
   takes: a GPU; NVRTC ($EXL2_NVRTC or the system's); run it in the root of the tree.
   gives: exit code 0, 1, or 77 without a GPU. */
#define EXL2__KERNELS(X) X(exl2k_probe_read, "probe.cu", exl2k_probe_args, NONE)
#define EXL2_KERNEL_DIR "kernels_src"
#include "other_gpu.h"

#include "private/cuda_ring.h"
#include "../../kernels_src/probe_args.h"

static struct entry { /* a cache of one entry */
    char key[80];
    void *data;
    size_t bytes;
    int stores;
} entry;

static size_t load(void *user, const char *key, void *out, size_t cap)
{
    (void)user;
    if (strcmp(key, entry.key) != 0) {
        return 0;
    }
    if (cap >= entry.bytes) {
        memcpy(out, entry.data, entry.bytes);
    }
    return entry.bytes;
}

static void store(void *user, const char *key, const void *data, size_t bytes)
{
    (void)user;
    free(entry.data);
    snprintf(entry.key, sizeof entry.key, "%s", key);
    entry.data = malloc(bytes);
    memcpy(entry.data, data, bytes);
    entry.bytes = bytes;
    entry.stores++;
}

static void line(void *user, exl2_log_level level, exl2_log_id id, exl2_result code, const char *text)
{
    (void)user;
    printf("log %d %d %d: %s\n", (int)level, (int)id, (int)code, text);
}

static exl2__ctx context_of_hooks(void)
{
    exl2__ctx c = { 0 };
    c.allocator = exl2__platform_allocator();
    c.files = exl2__platform_files();
    c.logger = (exl2_logger){ line, NULL, EXL2_LOG_WARN };
    return c;
}

static exl2_result open_gpu(exl2__ctx *c, exl2__cuda_device *d, const exl2__cuda_settings *settings)
{
    other_gpu_tables(&d->driver, &d->compiler.nvrtc);
    return exl2__cuda_device_open(c, d, settings);
}

static double ms_since(uint64_t start)
{
    return (double)(exl2__platform_ns() - start) * 1e-6;
}

/* Best bandwidth of ten runs, in GB/s: of a copy by the driver if `copies`, else of reading by the probe kernel. */
static double probe(exl2__cuda_device *d, exl2k_probe_args args, bool copies)
{
    exl2__cuda_event *from = NULL, *to = NULL;
    exl2__cuda_grid grid = { .x = d->sm_count * 4, .y = 1, .threads = 512 };
    float ms = 0, best = 1e9f;
    CHECK_INT(d->driver.event_make(&from, EXL2__CUDA_EVENT_PLAIN), 0);
    CHECK_INT(d->driver.event_make(&to, EXL2__CUDA_EVENT_PLAIN), 0);
    for (int i = 0; i < 10; i++) {
        d->driver.event_record(from, d->stream);
        if (copies) {
            CHECK_INT(d->driver.copy(args.to, args.from, args.words * 16, d->stream), 0);
        } else {
            CHECK_INT(exl2__cuda_device_launch(d, EXL2__KERNEL_exl2k_probe_read, grid, &args), EXL2_OK);
        }
        d->driver.event_record(to, d->stream);
        CHECK_INT(d->driver.event_wait(to), 0);
        CHECK_INT(d->driver.event_ms(&ms, from, to), 0);
        best = ms < best ? ms : best;
    }
    d->driver.event_free(from);
    d->driver.event_free(to);
    return (double)args.words * 16 * (copies ? 2 : 1) / (double)best * 1e-6;
}

/* Uploads through the ring, copies from device memory to device memory, downloads, and compares. */
static void test_copies(exl2__cuda_device *d, uint64_t bytes)
{
    exl2__cuda_ring ring;
    uint64_t slot = (uint64_t)8 << 20, a, b, mismatches = 0;
    void *back;
    CHECK_INT(exl2__cuda_device_alloc(d, bytes, EXL2_MEM_WEIGHTS, &a), EXL2_OK);
    CHECK_INT(exl2__cuda_device_alloc(d, bytes, EXL2_MEM_WEIGHTS, &b), EXL2_OK);
    CHECK_INT(exl2__cuda_ring_open(d, &ring, 4, slot, d->upload), EXL2_OK);
    CHECK_INT(exl2__cuda_pin(d, bytes, &back), EXL2_OK);
    uint8_t *source = malloc((size_t)bytes);
    for (uint64_t i = 0; i < bytes; i++) {
        source[i] = (uint8_t)(i * 2654435761u >> 24);
    }
    uint64_t start = exl2__platform_ns();
    for (uint64_t at = 0; at < bytes; at += slot) {
        void *memory;
        CHECK_INT(exl2__cuda_ring_take(d, &ring, slot, true, &memory), EXL2_OK);
        memcpy(memory, source + at, (size_t)slot);
        CHECK_INT(exl2__cuda_ring_send(d, &ring, a + at, slot), EXL2_OK);
    }
    CHECK_INT(d->driver.stream_wait(d->upload), 0);
    double ring_ms = ms_since(start);
    start = exl2__platform_ns();
    for (uint64_t at = 0; at < bytes; at += slot) {
        CHECK_INT(d->driver.copy_up(b + at, ring.memory, (size_t)slot, d->upload), 0);
    }
    CHECK_INT(d->driver.stream_wait(d->upload), 0);
    printf("upload: %.1f GB/s through the ring, %.1f GB/s without filling it\n", (double)bytes / ring_ms * 1e-6,
           (double)bytes / ms_since(start) * 1e-6);
    exl2k_probe_args args = { a, b, bytes / 16, 1, 0 };
    CHECK_INT(d->driver.fill8(b, 0xFF, (size_t)bytes, d->stream), 0);
    CHECK_INT(d->driver.copy(b, a, (size_t)bytes, d->stream), 0);
    CHECK_INT(d->driver.copy_down(back, b, (size_t)bytes, d->stream), 0);
    CHECK_INT(d->driver.stream_wait(d->stream), 0);
    for (uint64_t i = 0; i < bytes; i++) {
        mismatches += ((uint8_t *)back)[i] != source[i];
    }
    CHECK_INT(mismatches, 0);
    printf("read %.0f GB/s, copy %.0f GB/s over %.1f GB\n", probe(d, args, false), probe(d, args, true),
           (double)bytes * 1e-9);
    free(source);
    exl2__cuda_unpin(d, back, bytes);
    exl2__cuda_ring_close(d, &ring);
    exl2__cuda_device_free(d, a, bytes, EXL2_MEM_WEIGHTS);
    exl2__cuda_device_free(d, b, bytes, EXL2_MEM_WEIGHTS);
}

/* Bandwidth over more bytes than any cache holds. */
static void test_bandwidth(exl2__cuda_device *d, uint64_t bytes)
{
    uint64_t a, b;
    CHECK_INT(exl2__cuda_device_alloc(d, bytes, EXL2_MEM_WEIGHTS, &a), EXL2_OK);
    CHECK_INT(exl2__cuda_device_alloc(d, bytes, EXL2_MEM_WEIGHTS, &b), EXL2_OK);
    exl2k_probe_args args = { a, b, bytes / 16, 1, 0 };
    printf("read %.0f GB/s, copy %.0f GB/s over %.1f GB\n", probe(d, args, false), probe(d, args, true),
           (double)bytes * 1e-9);
    exl2__cuda_device_free(d, a, bytes, EXL2_MEM_WEIGHTS);
    exl2__cuda_device_free(d, b, bytes, EXL2_MEM_WEIGHTS);
}

/* Measures the cost of one launch inside a graph, over 1,000 empty launches, with or without programmatic edges. */
static void test_graph(exl2__cuda_device *d, bool programmatic)
{
    exl2__cuda_graph *graph = NULL;
    exl2__cuda_graph_exec *exec = NULL;
    exl2k_probe_args args = { 0, 0, 0, 1, 0 };
    exl2__cuda_grid grid = { .x = d->sm_count, .y = 1, .threads = 512, .programmatic = programmatic };
    CHECK_INT(d->driver.capture_begin(d->stream, EXL2__CUDA_CAPTURE_RELAXED), 0);
    for (int i = 0; i < 1000; i++) {
        CHECK_INT(exl2__cuda_device_launch(d, EXL2__KERNEL_exl2k_probe_read, grid, &args), EXL2_OK);
    }
    CHECK_INT(d->driver.capture_end(d->stream, &graph), 0);
    CHECK_INT(d->driver.graph_make(&exec, graph, 0), 0);
    CHECK_INT(d->driver.graph_free(graph), 0);
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        uint64_t start = exl2__platform_ns();
        CHECK_INT(d->driver.graph_launch(exec, d->stream), 0);
        CHECK_INT(d->driver.stream_wait(d->stream), 0);
        best = ms_since(start) < best ? ms_since(start) : best;
    }
    printf("graph of 1,000 launches%s: %.2f us a launch\n", programmatic ? ", programmatic" : "", best);
    CHECK_INT(d->driver.graph_exec_free(exec), 0);
}

/* Opens a device, uses and closes it. cached: the modules come from the cache entry that an earlier call stored. */
static void test_life(bool cached)
{
    exl2__ctx c = context_of_hooks();
    exl2__cuda_device d = { 0 };
    exl2__cuda_settings settings = { .nvrtc_path = cached ? "no compiler" : check_env("EXL2_NVRTC"),
                                     .cache = { load, store, NULL } };
    uint64_t start = exl2__platform_ns();
    exl2_result result = open_gpu(&c, &d, &settings);
    if (result == EXL2_ERR_NO_DEVICE) {
        check_skip(c.error.text);
    }
    if (!CHECK_INT(result, EXL2_OK)) {
        return;
    }
    double open_ms = ms_since(start);
    size_t free_before = 0, free_after = 0, total;
    CHECK_INT(exl2__cuda_device_enter(&d), EXL2_OK);
    start = exl2__platform_ns();
    CHECK_INT(exl2__cuda_device_kernels(&d, NULL), EXL2_OK);
    printf("%s, arch %u, driver %d, NVRTC %u: open %.0f ms, kernels %s %.1f ms\n", d.info.name, d.info.arch,
           d.driver_version, d.compiler.version, open_ms, cached ? "from the cache" : "compiled", ms_since(start));
    CHECK_INT(d.compiler.compiled, cached ? 0 : 1);
    d.driver.memory_info(&free_before, &total);
    test_copies(&d, (uint64_t)256 << 20);
    if (!cached) {
        test_bandwidth(&d, (uint64_t)4 << 30);
        test_graph(&d, false);
        test_graph(&d, true);
    }
    d.driver.memory_info(&free_after, &total);
    printf("device memory kept after use: %lld bytes\n", (long long)free_before - (long long)free_after);
    CHECK_INT(d.bytes, 0);
    exl2__cuda_device_leave(&d);
    start = exl2__platform_ns();
    exl2__cuda_device_close(&d);
    printf("close %.0f ms\n", ms_since(start));
    CHECK_INT(c.host_bytes, 0);
}

/* A cache entry whose hash is right but whose image the driver rejects: the module is compiled again and the entry is
   replaced. */
static void test_refused(void)
{
    exl2__ctx c = context_of_hooks();
    exl2__cuda_device d = { 0 };
    exl2__cuda_settings settings = { .nvrtc_path = check_env("EXL2_NVRTC"), .cache = { load, store, NULL } };
    uint8_t *data = entry.data;
    memset(data + EXL2__CUDA_ENTRY_HEAD, 0x55, entry.bytes - EXL2__CUDA_ENTRY_HEAD);
    exl2__store64(data + 32, exl2__cuda_entry_hash(data, data + EXL2__CUDA_ENTRY_HEAD,
                                                   entry.bytes - EXL2__CUDA_ENTRY_HEAD));
    CHECK_INT(open_gpu(&c, &d, &settings), EXL2_OK);
    CHECK_INT(exl2__cuda_device_enter(&d), EXL2_OK);
    int stores = entry.stores;
    CHECK_INT(exl2__cuda_device_kernels(&d, NULL), EXL2_OK);
    CHECK_INT(entry.stores, stores + 1);
    exl2__cuda_device_leave(&d);
    exl2__cuda_device_close(&d);
    CHECK_INT(c.host_bytes, 0);
}

/* A kernel that reads from an unmapped address: the wait for it fails with DEVICE_LOST and a message, each later call
   fails with DEVICE_LOST at once, and closing works. Driver 580 gives the same process no new context after that, so
   opening the device again may either succeed or fail with DEVICE_LOST and a message. */
static void test_lost(void)
{
    exl2__ctx c = context_of_hooks();
    exl2__cuda_device d = { 0 };
    exl2__cuda_settings settings = { .nvrtc_path = check_env("EXL2_NVRTC"), .cache = { load, store, NULL } };
    exl2k_probe_args nowhere = { 4096, 4096, 1 << 20, 1, 0 };
    exl2__cuda_ring ring;
    uint64_t a;
    c.logger.line = NULL;
    CHECK_INT(open_gpu(&c, &d, &settings), EXL2_OK);
    CHECK_INT(exl2__cuda_device_enter(&d), EXL2_OK);
    CHECK_INT(exl2__cuda_device_kernels(&d, NULL), EXL2_OK);
    CHECK_INT(exl2__cuda_device_alloc(&d, 1 << 20, EXL2_MEM_KV, &a), EXL2_OK);
    CHECK_INT(exl2__cuda_ring_open(&d, &ring, 4, 1 << 20, d.upload), EXL2_OK);
    exl2__cuda_grid grid = { .x = 8, .y = 1, .threads = 512 };
    CHECK_INT(exl2__cuda_device_launch(&d, EXL2__KERNEL_exl2k_probe_read, grid, &nowhere), EXL2_OK);
    exl2_result result = exl2__cuda_device_check(&d, d.driver.stream_wait(d.stream), "running a forward pass");
    CHECK_INT(result, EXL2_ERR_DEVICE_LOST);
    printf("%s\n", c.error.text);
    CHECK_INT(exl2__cuda_device_enter(&d), EXL2_ERR_DEVICE_LOST);
    exl2__cuda_ring_close(&d, &ring);
    exl2__cuda_device_free(&d, a, 1 << 20, EXL2_MEM_KV);
    exl2__cuda_device_leave(&d);
    exl2__cuda_device_close(&d);
    CHECK_INT(c.host_bytes, 0);
    result = open_gpu(&c, &d, &settings);
    CHECK(result == EXL2_OK || result == EXL2_ERR_DEVICE_LOST);
    printf("opened anew: %s\n", result == EXL2_OK ? "it works" : c.error.text);
    exl2__cuda_device_close(&d);
    CHECK_INT(c.host_bytes, 0);
}

/* With any argument the tests that fail on purpose are left out, for compute-sanitizer. */
int main(int argc, char **argv)
{
    (void)argv;
    test_life(false);
    test_life(true);
    if (argc == 1) {
        test_refused();
        test_lost();
    }
    free(entry.data);
    return check_done();
}

/* load_speed.c: the speed of loading weights from page-cached files to the GPU, compared with reading alone and with
   uploading alone; and the memory that loading needs.
   takes: the folder of a model of at least a gigabyte; a GPU; $EXL2_TEST_KERNELS.
   gives: exit code 0, 1, or 77 without a GPU or a model; speeds, times and bytes. */
#include "../../exl2.h"

#include "private/model_config_read.h"
#include "private/weights_load.h"
#include "private/cuda.h"
#include "../check.h"
#include "../weights_measure.h"
#include "kernel_folder.h"

#define SLICE ((size_t)1 << 20)

static exl2__ctx c;
static exl2__cuda_device gpu;
static exl2__weights load;
static exl2__plan plan;
static exl2__layer layers[256];
static double slowest_us;
static uint32_t slow, slices;

static void need(exl2_result r)
{
    if (r < 0) {
        printf("%s\n", c.error.text);
        exit(1);
    }
}

static double gigabytes_per_s(uint64_t bytes, uint64_t ns)
{
    return (double)bytes / (double)ns;
}

/* Reads all tensors in slices into one pinned buffer, twice: the second time they are certainly in the page cache.
   Returns the nanoseconds of the second time. */
static uint64_t read_all(void *slot)
{
    uint64_t start = 0;
    for (uint32_t turn = 0; turn < 2; turn++) {
        start = exl2__platform_ns();
        for (uint32_t i = 0; i < load.tensors.count; i++) {
            const exl2__tensor *t = &load.tensors.entries[i];
            for (uint64_t at = 0; at < t->bytes; at += SLICE) {
                need(exl2__tensors_read(&c, &load.tensors, t, at, slot, exl2__min64(SLICE, t->bytes - at)));
            }
        }
    }
    return exl2__platform_ns() - start;
}

static uint64_t upload_all(const void *slot, uint64_t to, uint64_t bytes)
{
    uint64_t start = exl2__platform_ns();
    for (uint64_t at = 0; at < bytes; at += SLICE) {
        int copied = gpu.driver.copy_up(to + at % (SLICE * 16), slot, SLICE, gpu.stream);
        need(exl2__cuda_device_check(&gpu, copied, "copying"));
    }
    need(exl2__cuda_device_check(&gpu, gpu.driver.stream_wait(gpu.stream), "copy"));
    return exl2__platform_ns() - start;
}

static uint64_t load_all(exl2__device *d, const exl2__backend *b)
{
    exl2__arena none = { 0 };
    uint64_t start = exl2__platform_ns(), before = start;
    need(exl2__weights_begin(&c, &load));
    exl2_result r = EXL2_PENDING;
    while (r == EXL2_PENDING) {
        exl2__work work = exl2__work_slice();
        r = exl2__weights_slice(&c, &load, &plan, b, d, &none, &work);
        need(r);
        uint64_t now = exl2__platform_ns();
        double us = (double)(now - before) * 1e-3;
        slowest_us = us > slowest_us ? us : slowest_us;
        slow += us > 1000.0;
        slices++;
        before = now;
    }
    need(exl2__cuda_device_enter(&gpu));
    need(exl2__cuda_device_check(&gpu, gpu.driver.stream_wait(gpu.stream), "packing"));
    exl2__cuda_device_leave(&gpu);
    return exl2__platform_ns() - start;
}

int main(int argc, char **argv)
{
    const exl2__backend *b = &exl2__cuda_backend;
    exl2__cuda_settings settings = { .optional = true, .cache = kernel_folder() };
    exl2__device *d;
    uint64_t bytes = 0, scratch, to;
    void *slot;
    if (argc < 2) {
        check_skip("no model is named");
    }
    c.allocator = exl2__platform_allocator();
    c.files = exl2__platform_files();
    c.cpu_path = exl2__cpu_path_best(); /* it hashes what is read */
    if (exl2__cuda_device_open(&c, &gpu, &settings) < 0) {
        check_skip(c.error.text);
    }
    need(exl2__config_read(&c, argv[1], &load.config));
    need(b->open(&c, &gpu, &d));
    uint64_t start = exl2__platform_ns();
    need(weights_measure(&c, &load, argv[1], b, d));
    double measure_ms = (double)(exl2__platform_ns() - start) * 1e-6;
    exl2__plan_make(&plan, &load.config, load.embed_rows, 4096, 512, 8);
    plan.layers = layers;
    CHECK(plan.shape.layers <= EXL2__COUNT(layers));
    for (uint32_t i = 0; i < load.tensors.count; i++) {
        bytes += load.tensors.entries[i].bytes;
    }
    exl2_result r = EXL2_PENDING;
    while (r == EXL2_PENDING) { /* each call prepares a few kernels */
        need(r = b->memory->reserve(d, &load.weight_bytes));
    }
    need(exl2__cuda_device_enter(&gpu));
    need(exl2__cuda_pin(&gpu, SLICE, &slot));
    need(exl2__cuda_device_alloc(&gpu, 16 * SLICE, EXL2_MEM_SCRATCH, &scratch));
    to = scratch;
    uint64_t read_ns = read_all(slot), upload_ns = upload_all(slot, to, bytes);
    exl2__cuda_device_free(&gpu, scratch, 16 * SLICE, EXL2_MEM_SCRATCH);
    exl2__cuda_unpin(&gpu, slot, SLICE);
    exl2__cuda_device_leave(&gpu);
    gpu.peak = gpu.bytes;
    uint64_t load_ns = load_all(d, b);
    double share = (double)exl2__max64(read_ns, upload_ns) / (double)load_ns;
    printf("%s: %.2f GB in files; measuring %.1f ms\n", argv[1], (double)bytes * 1e-9, measure_ms);
    printf("reading %.2f GB/s, upload %.2f GB/s, loading %.2f GB/s: %.0f %% of the slower\n",
           gigabytes_per_s(bytes, read_ns), gigabytes_per_s(bytes, upload_ns), gigabytes_per_s(bytes, load_ns),
           share * 100);
    printf("%u slices, %u over 1 ms, the slowest %.0f us\n", slices, slow, slowest_us);
    printf("device bytes: weights %.3f GB, %.3f of the files; peak while loading %.1f MB more\n",
           (double)load.weight_bytes * 1e-9, (double)load.weight_bytes / (double)bytes,
           (double)(gpu.peak - load.weight_bytes) * 1e-6);
    CHECK((double)gpu.peak <= (double)bytes * 1.02 + 64e6);
    exl2__weights_close(&c, &load);
    b->close(d);
    CHECK_INT(gpu.bytes, 0);
    exl2__cuda_device_close(&gpu);
    CHECK_INT(c.host_bytes, 0);
    return check_done();
}

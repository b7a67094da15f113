/* convert_speed.c: times of the converter's stages on the GPU, at the sizes of an 8B model and of experts.
   takes: a GPU.
   gives: figures; exit code 0, or 77 without a GPU. */
#include "gpu_convert.h"

static double seconds_since(uint64_t start) { return (double)(exl2__platform_ns() - start) * 1e-9; }

static void speed(uint32_t in, uint32_t columns)
{
    float *x = random_rows(2048, in, 1), *gram = take((size_t)in * in * sizeof *gram);
    float *w = random_rows(columns / 32 * in, 32, 0.05f);
    double *losses = take(EXL2__LOSSES_WIDTHS * (in / 32) * sizeof *losses);
    exl2__group *groups = take(in / 32 * sizeof *groups);
    exl2__factor f;
    exl2__solve s;
    for (uint32_t i = 0; i < in / 32; i++) {
        groups[i] = (exl2__group){ i * 32, 32, 0, i < in / 64 ? 4 : 3 };
    }
    exl2__gram g = { .gpu = &device, .number = 1, .sum = gram };
    need(exl2__gpu_rows(&device, x, 2048, in));
    need(exl2__gram_begin(&g, in));
    need(exl2__gram_add(&ctx, &g, 2048));
    device.d->driver.stream_wait(device.d->stream);
    uint64_t start = exl2__platform_ns();
    for (uint32_t i = 0; i < 8; i++) {
        need(exl2__gram_add(&ctx, &g, 2048));
    }
    device.d->driver.stream_wait(device.d->stream);
    double moments = seconds_since(start) / 8;
    need(exl2__gram_finish(&ctx, &g));
    start = exl2__platform_ns();
    need(exl2__factor_make(&ctx, &device, "speed", gram, in, &f));
    double factor = seconds_since(start);
    exl2__cpu_part p = { .source = EXL2__CPU_BF16, .in = in, .out = columns, .strips = columns / 32 };
    float *y = take((size_t)2048 * columns * sizeof *y);
    double run[2], load = 0, blocks = 0;
    p.strip_bytes = (uint64_t)in * 64;
    p.data = (uint8_t *)w; /* any */
    for (size_t i = 0; i < (size_t)in * columns; i++) {
        uint32_t bits = exl2__float_bits(w[i]) >> 16;
        memcpy(p.data + i * 2, &bits, 2);
    }
    for (uint32_t i = 0; i < 2; i++) {
        need(exl2__solve_open(&ctx, &f, columns, groups, in / 32, &s));
        start = exl2__platform_ns();
        need(exl2__solve_load(&ctx, &s, &p, columns));
        load = seconds_since(start);
        start = exl2__platform_ns();
        need(exl2__losses_run(&ctx, &s, losses));
        blocks = seconds_since(start);
        s.passes = i ? EXL2__SOLVE_PASSES : 0;
        start = exl2__platform_ns();
        need(exl2__solve_run(&ctx, &s));
        run[i] = seconds_since(start);
        exl2__solve_close(&ctx, &s);
    }
    need(exl2__gpu_rows(&device, x, 2048, in));
    need(gpu_product(&device, &p, y));
    start = exl2__platform_ns();
    for (uint32_t i = 0; i < 4; i++) {
        need(exl2__gpu_rows(&device, x, 2048, in));
        need(gpu_product(&device, &p, y));
    }
    double product = seconds_since(start) / 4;
    exl2k_u64 out;
    need(exl2__cuda_device_enter(device.d));
    need(exl2__gpu_need(&device, (uint64_t)2048 * columns * sizeof *y, EXL2__GPU_Y, &out));
    start = exl2__platform_ns();
    for (uint32_t i = 0; i < 8; i++) {
        need(exl2__gpu_multiply(&device, &p, out, 0));
    }
    device.d->driver.stream_wait(device.d->stream);
    double alone = seconds_since(start) / 8;
    exl2__cuda_device_leave(device.d);
    printf("%5u x %5u: 2,048 rows: moments %.2f ms (%.0f TFLOP/s), product %.2f ms (%.0f TFLOP/s), with copies %.1f "
           "ms; factor %.0f ms, load %.0f ms, losses %.0f ms, loop %.0f ms, four passes %.0f ms\n", in, columns,
           moments * 1e3, 2048.0 * in * in * 1e-12 / moments, alone * 1e3, 4096.0 * in * columns * 1e-12 / alone,
           product * 1e3, factor * 1e3, load * 1e3, blocks * 1e3, run[0] * 1e3, (run[1] - run[0]) * 1e3);
    exl2__factor_close(&ctx, &f);
    free(x);
    free(gram);
    free(w);
    free(y);
    free(losses);
    free(groups);
}

static void speed_attend(uint32_t heads, uint32_t group, uint32_t dim, uint32_t each, uint32_t sequences)
{
    uint64_t count = (uint64_t)each * sequences * heads * dim;
    exl2__gpu_buffer q, k, v, out;
    need(exl2__cuda_device_enter(device.d));
    need(exl2__gpu_alloc(&device, count * 2, &q));
    need(exl2__gpu_alloc(&device, count * 2, &k));
    need(exl2__gpu_alloc(&device, count * 2, &v));
    need(exl2__gpu_alloc(&device, count * 4, &out));
    need(exl2__gpu_fill(&device, q.address, count * 2));
    need(exl2__gpu_fill(&device, k.address, count * 2));
    need(exl2__gpu_fill(&device, v.address, count * 2));
    exl2k_pass_attend_args a = { .q = q.address, .k = k.address, .v = v.address, .out = out.address, .heads = heads,
                                 .group = group, .dim = dim, .each = each, .window = UINT32_MAX };
    exl2__cuda_grid grid = { .x = (each + 63) / 64, .y = heads, .z = sequences, .threads = 128 };
    uint64_t start = 0;
    for (uint32_t i = 0; i < 9; i++) {
        need(exl2__cuda_device_launch(device.d, EXL2__KERNEL_exl2k_pass_attend128, grid, &a));
        device.d->driver.stream_wait(device.d->stream);
        start = i ? start : exl2__platform_ns();
    }
    double seconds = seconds_since(start) / 8;
    printf("attention of %u x %u tokens, %u heads of %u: %.2f ms (%.0f TFLOP/s)\n", sequences, each, heads, dim,
           seconds * 1e3, 2.0 * each * (double)count * 1e-12 / seconds);
    exl2__gpu_free(&device, &q);
    exl2__gpu_free(&device, &k);
    exl2__gpu_free(&device, &v);
    exl2__gpu_free(&device, &out);
    exl2__cuda_device_leave(device.d);
}

int main(void)
{
    gpu_convert_open();
    speed(768, 2048);
    speed(4096, 4096);
    speed(4096, 14336);
    speed(14336, 4096);
    speed_attend(32, 4, 128, 2048, 2);
    gpu_convert_close();
    return check_done();
}

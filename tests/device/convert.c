/* convert.c: the converter's stages on the GPU that tests/unit/solve.c has no goldens for, compared with sums in double
   on the CPU: moments of inputs, products of rows with dense weights, an MLP's activation, the factor of a matrix of
   several tiles. All twice, with equal bits.
   takes: nothing; a GPU.
   gives: exit code 0, 1, or 77 without a GPU. `convert speed` prints times of the stages at an 8B model's sizes.
   owns:  nothing that outlives the program. */
#define EXL2_CONVERT
#include "../../exl2_impl/0_base/platform.h"
#include "../../exl2_impl/8_convert/quantizer/gram.h"
#include "../../exl2_impl/8_convert/quantizer/losses.h"
#include "../../exl2_impl/8_convert/quantizer/solve.h"
#include "../sample_reference.h"
#include "kernel_folder.h"

static exl2__ctx ctx;
static exl2__gpu device;
static uint64_t random_state = 7;

static void need(exl2_result result)
{
    if (!CHECK_INT(result, EXL2_OK)) {
        printf("  %s\n", ctx.error.text);
        exit(check_done());
    }
}

/* Nearly normal, with a few large channels. */
static float *random_rows(uint32_t rows, uint32_t in, float size)
{
    float *x = take((size_t)rows * in * sizeof *x);
    for (size_t i = 0; i < (size_t)rows * in; i++) {
        double sum = 0;
        for (uint32_t k = 0; k < 4; k++) {
            sum += uniform(&random_state) - 0.5;
        }
        x[i] = (float)sum * size * (i % in % 61 == 5 ? 3000.0f : 1.0f);
    }
    return x;
}

/* ---- moments ---- */

static void sum_moments(const float *x, uint32_t rows, uint32_t in, uint32_t chunk, float *strips)
{
    exl2__gram g = { .gpu = &device, .number = 1, .sum = strips };
    need(exl2__gram_begin(&g, in));
    for (uint32_t at = 0; at < rows; at += chunk) {
        uint32_t some = exl2__min32(chunk, rows - at);
        need(exl2__gpu_rows(&device, x + (size_t)at * in, some, in));
        need(exl2__gram_add(&ctx, &g, some));
    }
    need(exl2__gram_finish(&g));
    CHECK_INT(g.tokens, rows);
}

/* The largest difference from x'x / rows in double, in units of the roots of the diagonal. */
static double moments_off(const float *x, const float *strips, uint32_t rows, uint32_t in)
{
    double worst = 0, *sum = take((size_t)in * in * sizeof *sum);
    memset(sum, 0, (size_t)in * in * sizeof *sum);
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t i = 0; i < in; i++) {
            double xi = (double)x[(size_t)r * in + i];
            for (uint32_t j = 0; j < in; j++) {
                sum[(size_t)i * in + j] += xi * (double)x[(size_t)r * in + j];
            }
        }
    }
    for (uint32_t i = 0; i < in; i++) {
        for (uint32_t j = 0; j < in; j++) {
            double wanted = sum[(size_t)i * in + j] / rows;
            double got = (double)strips[((size_t)(j / 32) * in + i) * 32 + j % 32];
            double unit = sqrt(sum[(size_t)i * in + i] * sum[(size_t)j * in + j]) / rows;
            worst = fmax(worst, fabs(got - wanted) / (unit > 0 ? unit : 1));
        }
    }
    free(sum);
    return worst;
}

static void test_moments(uint32_t rows, uint32_t in, uint32_t chunk)
{
    float *x = random_rows(rows, in, 0.01f);
    float *a = take((size_t)in * in * sizeof *a), *b = take((size_t)in * in * sizeof *b);
    for (uint32_t r = 0; r < rows; r++) {
        x[(size_t)r * in + 3] = 0; /* a dead channel */
    }
    sum_moments(x, rows, in, chunk, a);
    double off = moments_off(x, a, rows, in);
    sum_moments(x, rows, in, chunk, b);
    CHECK(memcmp(a, b, (size_t)in * in * sizeof *a) == 0);
    if (!CHECK(off < 2e-4)) { /* two roundings to halves: 2^-11 each, averaged */
        printf("  moments of %u rows of %u: %.2g off\n", rows, in, off);
    }
    free(x);
    free(a);
    free(b);
}

/* ---- products ---- */

static void test_product(exl2__cpu_source source, uint32_t rows, uint32_t in, uint32_t out, float size)
{
    exl2__cpu_part p = { .source = source, .in = in, .out = out, .strips = (out + 31) / 32 };
    uint32_t columns = p.strips * 32, bytes = exl2__cpu_matrix_dense_bytes(source);
    size_t count = (size_t)columns * in;
    float *x = random_rows(rows, in, size), *w = take(count * sizeof *w);
    float *y = take((size_t)rows * columns * sizeof *y), *again = take((size_t)rows * columns * sizeof *y);
    double worst = 0;
    p.strip_bytes = (uint64_t)in * 32 * bytes;
    p.data = take(count * bytes);
    for (size_t i = 0; i < count; i++) {
        bool padding = i / 32 / in * 32 + i % 32 >= out;
        float v = padding ? 0 : (float)(uniform(&random_state) - 0.5) * 0.1f;
        uint16_t half = source == EXL2__CPU_BF16 ? (uint16_t)(exl2__float_bits(v) >> 16) : exl2__f32_to_f16(v);
        w[i] = source == EXL2__CPU_F32 ? v : source == EXL2__CPU_BF16 ? exl2__bits_float((uint32_t)half << 16)
                                                                       : exl2__f16_to_f32(half);
        memcpy(p.data + i * bytes, source == EXL2__CPU_F32 ? (void *)&v : (void *)&half, bytes);
    }
    need(exl2__gpu_rows(&device, x, rows, in));
    need(exl2__gpu_product(&device, &p, y));
    need(exl2__gpu_product(&device, &p, again));
    CHECK(memcmp(y, again, (size_t)rows * columns * sizeof *y) == 0);
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t n = 0; n < columns; n++) {
            double sum = 0, square = 0;
            for (uint32_t i = 0; i < in; i++) {
                double term = (double)x[(size_t)r * in + i] * (double)w[((size_t)(n / 32) * in + i) * 32 + n % 32];
                sum += term;
                square += term * term;
            }
            double off = fabs((double)y[(size_t)r * columns + n] - sum);
            worst = fmax(worst, square > 0 ? off / sqrt(square) : off > 0 ? 1 : 0);
        }
    }
    if (!CHECK(worst < 2e-3)) { /* of the root of the sum of squares: halves of x, of weights that are floats */
        printf("  product of %u rows, %u to %u, source %d: %.2g off\n", rows, in, out, (int)source, worst);
    }
    exl2__cuda_device_enter(device.d);
    exl2__gpu_forget(&device, &p);
    exl2__cuda_device_leave(device.d);
    free(x);
    free(w);
    free(y);
    free(again);
    free(p.data);
}

/* ---- activation ---- */

/* The input of an MLP's last product, seen through a product with the identity, against f(gate) * up in double of the
   products that are copied to the host. */
static void test_act(uint32_t act, bool gated, bool biased)
{
    enum { COUNT = 70, IN = 64, OUT = 96 };
    float *x = random_rows(COUNT, IN, 0.02f), *bias = random_rows(1, 2 * OUT, 0.1f);
    float *w = random_rows(2 * OUT, IN, 1), *one = take(OUT * OUT * sizeof *one);
    float *g = take(COUNT * OUT * sizeof *g), *u = take(COUNT * OUT * sizeof *u), *y = take(COUNT * OUT * sizeof *y);
    double worst = 0;
    exl2__cpu_part p[3] = { { .source = EXL2__CPU_F32, .in = IN, .out = OUT, .strips = OUT / 32 } };
    p[0].strip_bytes = IN * 128;
    p[0].data = (uint8_t *)w;
    p[0].bias = biased ? bias : NULL;
    p[1] = p[0];
    p[1].data = (uint8_t *)(w + OUT * IN);
    p[1].bias = biased ? bias + OUT : NULL;
    p[2] = (exl2__cpu_part){ .source = EXL2__CPU_F32, .in = OUT, .out = OUT, .strips = OUT / 32 };
    p[2].strip_bytes = OUT * 128;
    p[2].data = (uint8_t *)one;
    for (uint32_t i = 0; i < OUT * OUT; i++) {
        one[i] = i / 32 % OUT == i / 32 / OUT * 32 + i % 32 ? 1 : 0;
    }
    need(exl2__gpu_rows(&device, x, COUNT, IN));
    need(exl2__gpu_product(&device, &p[0], g));
    need(exl2__gpu_product(&device, &p[1], u));
    need(exl2__gpu_act(&device, &p[0], gated ? &p[1] : NULL, act, 0));
    need(exl2__gpu_product(&device, &p[2], y));
    for (uint32_t i = 0; i < COUNT * OUT; i++) {
        double a = (double)g[i] + (biased ? (double)bias[i % OUT] : 0);
        double b = gated ? (double)u[i] + (biased ? (double)bias[OUT + i % OUT] : 0) : 1;
        double f = act == EXL2K_ACT_SILU ? a / (1 + exp(-a)) : act == EXL2K_ACT_GELU ? a * 0.5 * erfc(-a * sqrt(0.5))
                 : a > 0 ? a * a : 0;
        worst = fmax(worst, fabs((double)y[i] - f * b) / (fabs(f * b) + 1e-3));
    }
    if (!CHECK(worst < 2e-3)) { /* y is rounded to halves */
        printf("  activation %u: %.2g off\n", act, worst);
    }
    need(exl2__cuda_device_enter(device.d));
    for (uint32_t i = 0; i < 3; i++) {
        exl2__gpu_forget(&device, &p[i]);
    }
    exl2__cuda_device_leave(device.d);
    free(x);
    free(bias);
    free(w);
    free(one);
    free(g);
    free(u);
    free(y);
}

/* ---- factor ---- */

/* The factors of the CPU and of the GPU, and what both make of the same weights. */
static void test_factor(uint32_t in, uint32_t columns)
{
    uint32_t rows = in * 2;
    float *x = random_rows(rows, in, 1), *gram = take((size_t)in * in * sizeof *gram);
    double *losses[3], energy[3][2];
    exl2__group *groups = take(in / 32 * sizeof *groups);
    uint16_t *first = NULL;
    for (uint32_t i = 0; i < in / 32; i++) {
        groups[i] = (exl2__group){ i * 32, 32, 0, i < in / 64 ? 4 : 3 };
    }
    sum_moments(x, rows, in, 1024, gram);
    float *w = random_rows(columns / 32 * in, 32, 0.05f);
    exl2__cpu_part p = { .source = EXL2__CPU_F32, .in = in, .out = columns, .strips = columns / 32 };
    p.strip_bytes = (uint64_t)in * 128;
    p.data = (uint8_t *)w;
    for (uint32_t i = 0; i < 3; i++) { /* the CPU, the GPU twice */
        exl2__factor f;
        exl2__solve s;
        need(exl2__factor_make(&ctx, i ? &device : NULL, "test", gram, in, &f));
        losses[i] = take(EXL2__LOSSES_WIDTHS * (in / 32) * sizeof *losses[i]);
        need(exl2__solve_open(&ctx, &f, columns, groups, in / 32, &s));
        need(exl2__solve_load(&ctx, &s, &p, columns));
        need(exl2__losses_run(&ctx, &s, losses[i]));
        need(exl2__solve_run(&ctx, &s));
        need(exl2__solve_energy(&ctx, &s, true, &energy[i][0]));
        need(exl2__solve_energy(&ctx, &s, false, &energy[i][1]));
        uint16_t *values = take((size_t)in * columns * sizeof *values);
        need(exl2__solve_values(&ctx, &s, values));
        if (i == 2) {
            CHECK(memcmp(first, values, (size_t)in * columns * sizeof *values) == 0);
        }
        free(first);
        first = values;
        exl2__solve_close(&ctx, &s);
        exl2__factor_close(&ctx, &f);
    }
    double worst = 0;
    for (uint32_t i = 0; i < EXL2__LOSSES_WIDTHS * (in / 32); i++) {
        worst = fmax(worst, fabs(losses[1][i] / losses[0][i] - 1));
    }
    printf("%u x %u: losses of blocks %.2g apart, loss of the GPU's codes %.5f of the CPU's, power %.2g apart\n", in,
           columns, worst, energy[1][0] / energy[0][0], fabs(energy[1][1] / energy[0][1] - 1));
    CHECK(worst < 1e-3);
    CHECK(fabs(energy[1][0] / energy[0][0] - 1) < 0.01);
    CHECK(fabs(energy[1][1] / energy[0][1] - 1) < 1e-4);
    CHECK(energy[1][0] == energy[2][0] && energy[1][1] == energy[2][1]);
    for (uint32_t i = 0; i < 3; i++) {
        free(losses[i]);
    }
    free(first);
    free(groups);
    free(gram);
    free(x);
    free(w);
}

/* ---- speed ---- */

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
    need(exl2__gram_finish(&g));
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
    need(exl2__gpu_product(&device, &p, y));
    start = exl2__platform_ns();
    for (uint32_t i = 0; i < 4; i++) {
        need(exl2__gpu_rows(&device, x, 2048, in));
        need(exl2__gpu_product(&device, &p, y));
    }
    double product = seconds_since(start) / 4;
    need(exl2__cuda_device_enter(device.d));
    start = exl2__platform_ns();
    for (uint32_t i = 0; i < 8; i++) {
        need(exl2__gpu_multiply(&device, &p, &device.y));
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

int main(int argc, char **argv)
{
    ctx.allocator = exl2__platform_allocator();
    ctx.files = exl2__platform_files();
    ctx.cpu_path = exl2__cpu_path_best();
    exl2_engine_desc engine = { .backend = EXL2_BACKEND_CUDA, .nvrtc_path = getenv("EXL2_NVRTC"),
                                .kernel_cache = kernel_folder() };
    if (exl2__gpu_open(&ctx, &engine, &device) < 0) {
        check_skip(ctx.error.text);
    }
    if (argc > 1 && strcmp(argv[1], "speed") == 0) {
        speed(4096, 4096);
        speed(4096, 14336);
        speed(14336, 4096);
    } else {
        test_moments(100, 32, 100);
        test_moments(300, 160, 128);
        test_moments(1000, 416, 333);
        test_product(EXL2__CPU_F16, 1, 32, 32, 1);
        test_product(EXL2__CPU_F16, 33, 64, 100, 1e6f);
        test_product(EXL2__CPU_BF16, 130, 288, 320, 1e-6f);
        test_product(EXL2__CPU_F32, 257, 576, 131, 1);
        test_act(EXL2K_ACT_SILU, true, false);
        test_act(EXL2K_ACT_GELU, true, true);
        test_act(EXL2K_ACT_RELU_SQUARED, false, true);
        test_factor(64, 32);
        test_factor(352, 96);
        test_factor(1536, 576);
    }
    exl2__gpu_close(&ctx, &device);
    CHECK_INT(ctx.host_bytes, 0);
    return check_done();
}

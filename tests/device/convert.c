/* convert.c: the converter's stages on the GPU that tests/unit/solve.c has no goldens for, compared with sums in double
   on the CPU: moments of inputs, products of rows with dense weights, an MLP's activation, attention, divergences, the
   factor of a matrix of several tiles. Most twice, with equal bits. Whole models: states after each layer, and logits,
   against the CPU's.
   takes: EXL2_GOLDEN_DIR; EXL2_TEST_DATA: more models in fixtures/arch; a GPU.
   gives: exit code 0, 1, or 77 without a GPU. */
#include "gpu_convert.h"

#include "private/measure_moments.h"

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
    need(exl2__gram_finish(&ctx, &g));
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
    need(gpu_product(&device, &p, y));
    need(gpu_product(&device, &p, again));
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

/* The input of an MLP's last product against f(gate) * up in double of the products that are copied to the host. */
static void test_act(uint32_t act, bool gated, bool biased)
{
    enum { COUNT = 70, IN = 64, OUT = 96 };
    float *x = random_rows(COUNT, IN, 0.02f), *bias = random_rows(1, 2 * OUT, 0.1f);
    float *w = random_rows(2 * OUT, IN, 1);
    float *g = take(COUNT * OUT * sizeof *g), *u = take(COUNT * OUT * sizeof *u), *y = take(COUNT * OUT * sizeof *y);
    exl2k_u64 active;
    double worst = 0;
    exl2__cpu_part p[2] = { { .source = EXL2__CPU_F32, .in = IN, .out = OUT, .strips = OUT / 32 } };
    p[0].strip_bytes = IN * 128;
    p[0].data = (uint8_t *)w;
    p[0].bias = biased ? bias : NULL;
    p[1] = p[0];
    p[1].data = (uint8_t *)(w + OUT * IN);
    p[1].bias = biased ? bias + OUT : NULL;
    need(exl2__gpu_rows(&device, x, COUNT, IN));
    need(gpu_product(&device, &p[0], g));
    need(gpu_product(&device, &p[1], u));
    need(exl2__cuda_device_enter(device.d));
    need(exl2__gpu_act(&device, &p[0], gated ? &p[1] : NULL, act, 0, &active));
    need(exl2__gpu_down(&device, y, active, COUNT * OUT * sizeof *y));
    exl2__cuda_device_leave(device.d);
    for (uint32_t i = 0; i < COUNT * OUT; i++) {
        double a = (double)g[i], b = gated ? (double)u[i] : 1;
        double f = act == EXL2K_ACT_SILU ? a / (1 + exp(-a)) : act == EXL2K_ACT_GELU ? a * 0.5 * erfc(-a * sqrt(0.5))
                 : a > 0 ? a * a : 0;
        double unit = fabs(f * b) + 2e-3 * fabs(a * b) + 1e-6; /* GELU's tail has an absolute error (exl2k_gelu) */
        worst = fmax(worst, fabs((double)y[i] - f * b) / unit);
    }
    if (!CHECK(worst < 1e-4)) {
        printf("  activation %u: %.2g off\n", act, worst);
    }
    need(exl2__cuda_device_enter(device.d));
    for (uint32_t i = 0; i < 2; i++) {
        exl2__gpu_forget(&device, &p[i]);
    }
    exl2__cuda_device_leave(device.d);
    free(x);
    free(bias);
    free(w);
    free(g);
    free(u);
    free(y);
}

/* ---- attention ---- */

typedef struct attend_case {
    uint32_t heads, group, dim, each, sequences, window;
    float softcap;
    bool sinks;
} attend_case;

static uint16_t *random_halves(size_t count, float size)
{
    uint16_t *x = take(count * sizeof *x);
    for (size_t i = 0; i < count; i++) {
        x[i] = exl2__f32_to_f16((float)(uniform(&random_state) - 0.5) * size);
    }
    return x;
}

/* One output row of one head, in double. */
static void attend_row(const attend_case *t, const uint16_t *q, const uint16_t *k, const uint16_t *v,
                       const float *sinks, uint32_t row, uint32_t head, double *out)
{
    uint32_t position = row % t->each, first = row - position, kv = t->heads / t->group;
    uint32_t begin = position + 1 > t->window ? position + 1 - t->window : 0;
    double score[1024], most = t->sinks ? (double)sinks[head] : -1e300, sum = 0;
    for (uint32_t i = begin; i <= position; i++) {
        score[i] = 0;
        for (uint32_t d = 0; d < t->dim; d++) {
            score[i] += (double)exl2__f16_to_f32(q[((size_t)row * t->heads + head) * t->dim + d])
                      * (double)exl2__f16_to_f32(k[((size_t)(first + i) * kv + head / t->group) * t->dim + d]);
        }
        score[i] = t->softcap > 0 ? (double)t->softcap * tanh(score[i] / (double)t->softcap) : score[i];
        most = fmax(most, score[i]);
    }
    memset(out, 0, t->dim * sizeof *out);
    for (uint32_t i = begin; i <= position; i++) {
        double weight = exp(score[i] - most);
        sum += weight;
        for (uint32_t d = 0; d < t->dim; d++) {
            out[d] += weight * (double)exl2__f16_to_f32(v[((size_t)(first + i) * kv + head / t->group) * t->dim + d]);
        }
    }
    sum += t->sinks ? exp((double)sinks[head] - most) : 0;
    for (uint32_t d = 0; d < t->dim; d++) {
        out[d] /= sum;
    }
}

static void up(exl2__gpu_buffer *b, const void *from, uint64_t bytes)
{
    need(exl2__gpu_alloc(&device, bytes, b));
    need(exl2__gpu_up(&device, b->address, from, bytes));
}

static void test_attend(attend_case t)
{
    uint32_t rows = t.each * t.sequences, kv = t.heads / t.group;
    size_t count = (size_t)rows * t.heads * t.dim;
    uint16_t *q = random_halves(count, 2), *k = random_halves((size_t)rows * kv * t.dim, 2);
    uint16_t *v = random_halves((size_t)rows * kv * t.dim, 2);
    float *sinks = random_rows(1, t.heads, 1), *y = take(count * sizeof *y), *again = take(count * sizeof *again);
    double worst = 0, wanted[256];
    exl2__gpu_buffer b[5] = { { 0, 0 } };
    uint32_t queries = t.dim > 128 ? 32 : 64;
    exl2__cuda_kernel kernel = t.dim > 128 ? EXL2__KERNEL_exl2k_pass_attend256
                             : t.dim > 64 ? EXL2__KERNEL_exl2k_pass_attend128 : EXL2__KERNEL_exl2k_pass_attend64;
    exl2__cuda_grid grid = { .x = (t.each + queries - 1) / queries, .y = t.heads, .z = t.sequences,
                             .threads = 2 * queries };
    need(exl2__cuda_device_enter(device.d));
    up(&b[0], q, count * 2);
    up(&b[1], k, (uint64_t)rows * kv * t.dim * 2);
    up(&b[2], v, (uint64_t)rows * kv * t.dim * 2);
    up(&b[3], sinks, t.heads * sizeof *sinks);
    up(&b[4], y, count * sizeof *y);
    exl2k_pass_attend_args a = { .q = b[0].address, .k = b[1].address, .v = b[2].address, .out = b[4].address,
                                 .sinks = t.sinks ? b[3].address : 0, .heads = t.heads, .group = t.group,
                                 .dim = t.dim, .each = t.each, .window = t.window, .softcap = t.softcap };
    need(exl2__cuda_device_launch(device.d, kernel, grid, &a));
    need(exl2__gpu_down(&device, y, b[4].address, count * sizeof *y));
    need(exl2__cuda_device_launch(device.d, kernel, grid, &a));
    need(exl2__gpu_down(&device, again, b[4].address, count * sizeof *y));
    CHECK(memcmp(y, again, count * sizeof *y) == 0);
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t head = 0; head < t.heads; head++) {
            attend_row(&t, q, k, v, sinks, row, head, wanted);
            for (uint32_t d = 0; d < t.dim; d++) {
                worst = fmax(worst, fabs((double)y[((size_t)row * t.heads + head) * t.dim + d] - wanted[d]));
            }
        }
    }
    if (!CHECK(worst < 6e-4)) { /* weights are rounded to halves; values are up to 1 */
        printf("  attention of %u x %u rows, %u heads of %u, window %u: %.2g off\n", t.sequences, t.each, t.heads,
               t.dim, t.window, worst);
    }
    for (uint32_t i = 0; i < 5; i++) {
        exl2__gpu_free(&device, &b[i]);
    }
    exl2__cuda_device_leave(device.d);
    free(q);
    free(k);
    free(v);
    free(sinks);
    free(y);
    free(again);
}

/* ---- divergences ---- */

static void test_kl(uint32_t vocab, float scale, float cap)
{
    enum { ROWS = 5 };
    uint32_t pitch = vocab + 32;
    float *x = random_rows(ROWS, pitch, 0.3f), *y = random_rows(ROWS, pitch, 0.3f);
    double kl[ROWS], worst = 0;
    exl2__gpu_buffer b[3] = { { 0, 0 } };
    for (uint32_t i = 0; i < ROWS * pitch; i++) { /* near each other, the last row equal */
        y[i] = x[i] + (i / pitch + 1 < ROWS ? 0.02f * y[i] : 0);
    }
    need(exl2__cuda_device_enter(device.d));
    up(&b[0], x, (uint64_t)ROWS * pitch * sizeof *x);
    up(&b[1], y, (uint64_t)ROWS * pitch * sizeof *y);
    up(&b[2], kl, sizeof kl);
    exl2k_pass_kl_args a = { .x = b[0].address, .y = b[1].address, .kl = b[2].address, .vocab = vocab,
                             .pitch = pitch, .scale = scale, .cap = cap };
    need(exl2__gpu_launch(&device, EXL2__KERNEL_exl2k_pass_kl, ROWS, 1, EXL2K_PASS_THREADS, 0, &a));
    need(exl2__gpu_down(&device, kl, b[2].address, sizeof kl));
    for (uint32_t row = 0; row < ROWS; row++) {
        double most[2] = { -1e300, -1e300 }, sum[2] = { 0, 0 }, wanted = 0;
        const float *both[2] = { x + (size_t)row * pitch, y + (size_t)row * pitch };
        for (uint32_t pass = 0; pass < 3; pass++) {
            for (uint32_t i = 0; i < vocab; i++) {
                double z[2];
                for (uint32_t k = 0; k < 2; k++) {
                    z[k] = (double)both[k][i] * (double)scale;
                    z[k] = cap > 0 ? (double)cap * tanh(z[k] / (double)cap) : z[k];
                    most[k] = pass == 0 ? fmax(most[k], z[k]) : most[k];
                    sum[k] += pass == 1 ? exp(z[k] - most[k]) : 0;
                }
                double log_p = z[0] - most[0] - log(sum[0]), log_q = z[1] - most[1] - log(sum[1]);
                wanted += pass == 2 ? exp(log_p) * (log_p - log_q) : 0;
            }
        }
        worst = fmax(worst, fabs(kl[row] - wanted) / (wanted + 1e-6));
    }
    if (!CHECK(worst < 1e-3)) {
        printf("  divergences of %u logits: %.2g off\n", vocab, worst);
    }
    for (uint32_t i = 0; i < 3; i++) {
        exl2__gpu_free(&device, &b[i]);
    }
    exl2__cuda_device_leave(device.d);
    free(x);
    free(y);
}

/* ---- models ---- */

#define TOKENS 80u
#define LOGITS_OFF 0.25 /* of random weights; with experts that are chosen otherwise, as in tests/engine/golden.c */

static float *kept_logits;
static double logits_off;

static void keep_logits(void *user, uint32_t row, const float *logits)
{
    memcpy(kept_logits + (size_t)row * *(uint32_t *)user, logits, *(uint32_t *)user * sizeof *logits);
}

static void compare_logits(void *user, uint32_t row, const float *logits)
{
    uint32_t vocab = *(uint32_t *)user;
    for (uint32_t i = 0; i < vocab; i++) {
        logits_off = fmax(logits_off, fabs((double)(logits[i] - kept_logits[(size_t)row * vocab + i])));
    }
}

/* Did the row choose other experts than on the CPU? Only where the logits of two experts are nearly equal. choice: of
   the other run. */
static bool chose_otherwise(const exl2__runner *cpu, const uint32_t *choice, const exl2__layer *layer, uint32_t row)
{
    const exl2__cpu_routed *routed = &exl2__runner_cpu(cpu)->routed;
    uint32_t active = cpu->plan.shape.experts.active;
    for (uint32_t i = 0; layer->matrix[EXL2__ROLE_ROUTER] && i < active; i++) {
        uint32_t a = routed->choice[row * active + i], b = choice[row * active + i];
        const float *logits = routed->logits + (size_t)row * routed->router_stride;
        if (a != b) {
            printf("  row %u: expert %u in place of %u, logits %.4f and %.4f\n", row, b, a, (double)logits[b],
                   (double)logits[a]);
            return true;
        }
    }
    return false;
}

/* How far states are from the CPU's, over all rows that chose the same experts. */
typedef struct distance {
    double norm; /* root of the mean square, of the CPU's */
    double most; /* of one value, in the same unit */
    uint32_t others; /* rows that chose other experts */
} distance;

static distance distance_of(const exl2__runner *cpu, const uint32_t *choice, const exl2__layer *layer, const float *a,
                            const float *b)
{
    distance d = { 0, 0, 0 };
    uint32_t hidden = cpu->plan.shape.hidden;
    double square = 0, off = 0;
    for (uint32_t row = 0; row < TOKENS; row++) {
        bool other = chose_otherwise(cpu, choice, layer, row);
        d.others += other;
        for (size_t i = (size_t)row * hidden; i < (size_t)(row + 1) * hidden; i++) {
            double apart = other ? 0 : (double)a[i] - (double)b[i];
            square += (double)a[i] * (double)a[i];
            off += apart * apart;
            d.most = fmax(d.most, fabs(apart));
        }
    }
    d.most /= sqrt(square / ((double)TOKENS * hidden));
    d.norm = sqrt(off / square);
    return d;
}

/* The layer of the CPU with inputs that are off by up to 2^-11 each, as if they were rounded to fp16 once. */
static void run_rounded(exl2__runner *cpu, uint32_t layer, const float *inputs, uint32_t *choice, float *out)
{
    uint64_t state = 11 + layer;
    const exl2__shape *s = &cpu->plan.shape;
    size_t count = (size_t)TOKENS * s->hidden;
    float *rounded = take(count * sizeof *rounded);
    exl2__runner_states from = { rounded, 0 }, to = { out, 0 };
    for (size_t i = 0; i < count; i++) {
        rounded[i] = inputs[i] * (1 + (float)(2 * uniform(&state) - 1) / 2048);
    }
    need(exl2__runner_get(cpu, &from, 0, true));
    need(exl2__runner_layer(cpu, layer, NULL, NULL));
    need(exl2__runner_put(cpu, &to, 0));
    if (cpu->plan.layers[layer].matrix[EXL2__ROLE_ROUTER]) {
        memcpy(choice, exl2__runner_cpu(cpu)->routed.choice, TOKENS * s->experts.active * sizeof *choice);
    }
    free(rounded);
}

/* The states of one sequence after each layer on the CPU and on the GPU; each layer begins with the CPU's. Then all of
   it at once: logits.

   How far the states may be apart depends on the model: attention and the activation of random weights enlarge the
   rounding of their inputs, and some values are ten times the mean. So the unit is what an error of up to 2^-11 in each
   of the layer's inputs moves on the CPU. The GPU rounds to fp16 about a dozen times in a layer (inputs and weights of
   products, q, k, v, attention weights), by 2^-12 to 2^-11 at most, and most of it affects only a part of the layer:
   together they are 0.8 to 1.3 such errors, with all models. The largest of 10,000 values varies more from one sequence
   of roundings to another: 0.6 to 2.2. */
#define STATES_OFF 2.0

static void test_model(const char *dir)
{
    exl2__runner cpu, gpu;
    exl2_token ids[TOKENS];
    if (exl2__runner_headers(&ctx, dir, TOKENS, NULL, &cpu) < 0) { /* no model, or one that is not converted */
        return;
    }
    need(exl2__runner_load(&cpu));
    need(exl2__runner_open(&ctx, dir, TOKENS, NULL, &gpu));
    need(exl2__runner_use(&gpu, &device, 0));
    uint32_t vocab = cpu.plan.shape.vocab, hidden = cpu.plan.shape.hidden, layers = cpu.plan.shape.layers, fits = 0;
    uint32_t others = 0, swapped = 0, active = cpu.plan.shape.experts.active;
    uint64_t ids_state = 7; /* the same ids whatever the order of the folders is */
    size_t count = (size_t)TOKENS * hidden;
    float *before = take(count * sizeof *before), *a = take(count * sizeof *a), *b = take(count * sizeof *b);
    float *rounded = take(count * sizeof *rounded);
    uint32_t *choice = take(((size_t)TOKENS * active + 1) * sizeof *choice);
    exl2__runner_states from = { before, 0 }, to_a = { a, 0 }, to_b = { b, 0 };
    distance worst = { 0, 0, 0 };
    for (uint32_t i = 0; i < TOKENS; i++) {
        ids[i] = (exl2_token)(uniform(&ids_state) * vocab);
    }
    need(exl2__runner_begin(&cpu, ids, TOKENS));
    need(exl2__runner_embed(&cpu));
    need(exl2__runner_put(&cpu, &from, 0));
    for (uint32_t layer = 0; layer < layers; layer++) {
        fits += exl2__runner_fits(&gpu, layer);
        run_rounded(&cpu, layer, before, choice, rounded);
        need(exl2__runner_get(&cpu, &from, 0, true));
        need(exl2__runner_layer(&cpu, layer, NULL, NULL));
        need(exl2__runner_put(&cpu, &to_a, 0));
        need(exl2__runner_begin(&gpu, ids, TOKENS));
        need(exl2__runner_get(&gpu, &from, 0, true));
        need(exl2__runner_layer(&gpu, layer, NULL, NULL));
        need(exl2__runner_put(&gpu, &to_b, 0));
        distance once = distance_of(&cpu, choice, &cpu.plan.layers[layer], a, rounded);
        distance off = distance_of(&cpu, gpu.routed.choice, &cpu.plan.layers[layer], a, b);
        others += off.others;
        if (!CHECK(off.norm <= STATES_OFF * once.norm && off.most <= 2 * STATES_OFF * once.most)) {
            printf("  layer %u: %.2g, at most %.2g; one rounding %.2g, %.2g\n", layer, off.norm, off.most, once.norm,
                   once.most);
        }
        worst.norm = fmax(worst.norm, off.norm / once.norm);
        worst.most = fmax(worst.most, off.most / once.most);
        memcpy(before, a, count * sizeof *a);
    }
    kept_logits = take((size_t)TOKENS * vocab * sizeof *kept_logits);
    logits_off = 0;
    need(exl2__runner_begin(&cpu, ids, TOKENS));
    need(exl2__runner_embed(&cpu));
    need(exl2__runner_begin(&gpu, ids, TOKENS));
    need(exl2__runner_embed(&gpu));
    for (uint32_t layer = 0; layer < layers; layer++) {
        uint32_t count_now = 0;
        need(exl2__runner_layer(&cpu, layer, NULL, NULL));
        need(exl2__runner_layer(&gpu, layer, NULL, NULL));
        for (uint32_t row = 0; row < TOKENS && swapped == 0; row++) {
            count_now += chose_otherwise(&cpu, gpu.routed.choice, &cpu.plan.layers[layer], row);
        }
        swapped += count_now; /* in the first such layer: what follows reads what these rows became */
    }
    need(exl2__runner_logits(&cpu, keep_logits, &vocab));
    need(exl2__runner_logits(&gpu, compare_logits, &vocab));
    printf("%s: %u of %u layers on the GPU; states %.2g, at most %.2g roundings apart, logits %.2g\n", dir, fits,
           layers, worst.norm, worst.most, logits_off);
    CHECK(others <= 2 && swapped <= 2);
    CHECK(swapped > 0 || logits_off < LOGITS_OFF);
    need(exl2__cuda_device_enter(device.d));
    exl2__gpu_forget(&device, NULL);
    exl2__cuda_device_leave(device.d);
    free(before);
    free(a);
    free(b);
    free(rounded);
    free(choice);
    free(kept_logits);
    exl2__runner_close(&gpu);
    exl2__runner_close(&cpu);
}

/* ---- experts ---- */

/* The moments of a layer's inputs, of the embeddings of some rows. gpu: NULL, or where. The caller closes *memory. */
static void layer_moments(const char *dir, exl2__gpu *gpu, uint32_t layer, exl2__runner *r, exl2__measure *m,
                          exl2__arena *memory)
{
    enum { ROWS = 4 };
    static exl2_token ids[ROWS * TOKENS];
    exl2__arena dry = { 0 };
    need(exl2__runner_open(&ctx, dir, TOKENS, NULL, r));
    for (uint32_t i = 0; i < ROWS * TOKENS; i++) {
        ids[i] = (exl2_token)(i * 37 % r->plan.shape.vocab);
    }
    if (gpu) {
        need(exl2__runner_use(r, gpu, 0));
    }
    *m = (exl2__measure){ .r = r, .ids = ids, .rows = ROWS, .length = TOKENS, .probes = 1, .probe_length = 32,
                          .gpu = gpu };
    exl2__measure_layout(m, &dry);
    need(exl2__arena_open(&ctx, memory, dry.used, EXL2_MEM_SCRATCH));
    exl2__measure_layout(m, memory);
    if (gpu) {
        need(exl2__measure_open(m));
    }
    need(exl2__measure_begin(m));
    need(exl2__measure_layer(m, layer));
}

/* Moments of experts on the CPU and on the GPU, in units of the roots of their diagonals. Where the logits of two
   experts are nearly equal, a row may choose another one there. */
static void test_experts(const char *dir, uint32_t layer)
{
    exl2__runner r[2];
    exl2__measure m[2];
    exl2__arena memory[2];
    uint64_t moved = 0, compared = 0;
    double worst = 0;
    for (uint32_t i = 0; i < 2; i++) {
        layer_moments(dir, i ? &device : NULL, layer, &r[i], &m[i], &memory[i]);
    }
    CHECK(exl2__runner_fits(&r[1], layer));
    for (uint32_t e = 0; e < r[0].plan.shape.experts.count; e++) {
        const exl2__gram *a = &m[0].grams[EXL2__RUNNER_EXPERTS + e], *b = &m[1].grams[EXL2__RUNNER_EXPERTS + e];
        moved += a->tokens > b->tokens ? a->tokens - b->tokens : b->tokens - a->tokens;
        for (uint64_t i = 0; a->tokens == b->tokens && i < (uint64_t)a->in * a->in; i++) {
            uint32_t row = (uint32_t)(i / 32 % a->in), column = (uint32_t)(i / 32 / a->in * 32 + i % 32);
            double x = (double)a->sum[((uint64_t)(row / 32) * a->in + row) * 32 + row % 32];
            double y = (double)a->sum[((uint64_t)(column / 32) * a->in + column) * 32 + column % 32];
            worst = fmax(worst, fabs((double)(a->sum[i] - b->sum[i])) / sqrt(x * y));
            compared++;
        }
    }
    printf("%s, layer %u: moments of experts %.2g apart, %llu rows chose otherwise\n", dir, layer, worst,
           (unsigned long long)moved / 2);
    CHECK(compared > 0 && worst < 2e-2 && moved <= 8);
    for (uint32_t i = 0; i < 2; i++) {
        exl2__arena_close(&ctx, &memory[i]);
        exl2__runner_close(&r[i]);
    }
    need(exl2__cuda_device_enter(device.d));
    exl2__gpu_forget(&device, NULL);
    exl2__cuda_device_leave(device.d);
}

/* ---- all models of a folder ---- */

static void test_models(const char *folder)
{
    char name[EXL2__FILE_NAME_MAX], path[EXL2__FILE_PATH_MAX];
    for (uint32_t i = 0; exl2__platform_entry(folder, i, name, sizeof name); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, name);
        test_model(path);
        ctx.error = (exl2_error){ EXL2_OK, 0, "" };
    }
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

/* ---- corrected targets ---- */

/* The targets of the same inputs on the CPU and on the GPU: how far they are apart, in units of how far they are from
   the weights. */
static void test_correct(uint32_t in, uint32_t columns)
{
    enum { ROWS = 700 };
    float *x = random_rows(ROWS, in, 0.01f), *y = random_rows(ROWS, in, 0.002f), *w = random_rows(in, columns, 0.05f);
    float *targets[2], *strips = take((size_t)in * ROWS * sizeof *strips);
    float *panels = take((size_t)in * ROWS * sizeof *panels);
    exl2__group groups[1] = { { 0, 32, 0, 4 } };
    exl2__cpu_part p = { .source = EXL2__CPU_F32, .in = in, .out = columns, .strips = columns / 32 };
    double apart = 0, moved = 0;
    p.strip_bytes = (uint64_t)in * 128;
    p.data = (uint8_t *)w;
    for (size_t i = 0; i < (size_t)ROWS * in; i++) {
        y[i] += x[i];
    }
    for (uint32_t i = 0; i < 2; i++) {
        exl2__arena dry = { 0 }, memory = { 0 };
        exl2__correct k;
        exl2__gram g;
        exl2__factor f;
        exl2__solve s;
        const exl2__cpu_ops *ops = exl2__cpu_choose(ctx.cpu_path);
        for (uint32_t pass = 0; pass < 2; pass++) {
            exl2__arena *a = pass ? &memory : &dry;
            exl2__gram_layout(&g, ops, in, ROWS, strips, panels, a);
            exl2__correct_layout(&k, i ? &device : NULL, in, ROWS, a);
            need(pass ? EXL2_OK : exl2__arena_open(&ctx, &memory, dry.used, EXL2_MEM_SCRATCH));
        }
        g.gpu = k.gpu;
        need(exl2__correct_begin(&k, &g, in));
        if (i) {
            need(exl2__gpu_rows(&device, x, ROWS, in));
            need(exl2__gpu_correct_keep(&device));
            need(exl2__gpu_rows(&device, y, ROWS, in));
        }
        for (uint32_t row = 0; row < ROWS && !i; row++) {
            exl2__correct_row(&k, row, x + (size_t)row * in, y + (size_t)row * in);
        }
        need(exl2__correct_add(&ctx, &k, ROWS));
        need(exl2__gram_finish(&ctx, &g));
        need(exl2__factor_make(&ctx, k.gpu, "test", g.sum, in, &f));
        need(exl2__correct_finish(&k, &f));
        need(exl2__solve_open(&ctx, &f, columns, groups, 1, &s));
        need(exl2__solve_load(&ctx, &s, &p, columns));
        need(exl2__correct_weights(&ctx, &k, &s));
        targets[i] = take((size_t)in * columns * sizeof *w);
        if (i) {
            need(exl2__cuda_device_enter(device.d));
            need(exl2__gpu_down(&device, targets[i], s.on_gpu.a.weights, (uint64_t)in * columns * sizeof *w));
            exl2__cuda_device_leave(device.d);
        } else {
            memcpy(targets[i], s.weights, (size_t)in * columns * sizeof *w);
        }
        /* back to the order of inputs: both factors order equal sums differently */
        float *turned = take((size_t)in * columns * sizeof *w);
        for (size_t n = 0; n < (size_t)in * columns; n++) {
            size_t strip = n / 32 / in, row = n / 32 % in;
            turned[(strip * in + f.order[row]) * 32 + n % 32] = targets[i][n];
        }
        free(targets[i]);
        targets[i] = turned;
        exl2__solve_close(&ctx, &s);
        exl2__factor_close(&ctx, &f);
        exl2__arena_close(&ctx, &memory);
    }
    for (size_t n = 0; n < (size_t)in * columns; n++) {
        apart += pow((double)(targets[1][n] - targets[0][n]), 2);
        moved += pow((double)(targets[0][n] - w[n]), 2);
    }
    printf("%u x %u: corrected targets %.2g apart, of how far they moved (%.2g)\n", in, columns, sqrt(apart / moved),
           sqrt(moved));
    CHECK(moved > 0 && apart / moved < 1e-4);
    free(x);
    free(y);
    free(w);
    free(strips);
    free(panels);
    free(targets[0]);
    free(targets[1]);
}

int main(void)
{
    const char *more = check_env("EXL2_TEST_DATA");
    char folder[EXL2__FILE_PATH_MAX];
    gpu_convert_open();
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
    test_attend((attend_case){ 4, 2, 64, 200, 2, UINT32_MAX, 0, false });
    test_attend((attend_case){ 3, 3, 48, 33, 3, 7, 0, true });
    test_attend((attend_case){ 2, 1, 128, 130, 1, 64, 5, false });
    test_attend((attend_case){ 4, 4, 80, 65, 2, 1, 0, true });
    test_attend((attend_case){ 2, 2, 256, 100, 2, 40, 30, true });
    test_attend((attend_case){ 2, 1, 168, 70, 1, UINT32_MAX, 0, false });
    test_kl(320, 1, 0);
    test_kl(50000, 0.7f, 20);
    test_models(EXL2_GOLDEN_DIR "/models");
    snprintf(folder, sizeof folder, "%s/fixtures/arch", more ? more : "");
    if (more) {
        test_models(folder);
    }
    test_experts(EXL2_GOLDEN_DIR "/models/exl2-qwen3-moe", 0);
    for (uint32_t i = 0; more && i < 5; i++) {
        static const char *const names[] = { "olmoe", "mixtral", "qwen2-moe", "glm4-moe", "gpt-oss" };
        snprintf(folder, sizeof folder, "%s/fixtures/arch/%s", more, names[i]);
        test_experts(folder, i == 3 ? 1 : 0); /* glm4-moe's first layer is dense */
    }
    test_factor(64, 32);
    test_factor(352, 96);
    test_factor(1536, 576);
    test_correct(96, 32);
    test_correct(416, 96);
    test_moments(1024, 416, 512); /* several tiles, also of wgmma */
    test_product(EXL2__CPU_F16, 700, 1024, 416, 1);
    gpu_convert_close();
    return check_done();
}

/* cpu_vector.h: the parts of the fast paths that are not products: norms, gathers, RoPE, softmax, activations.
   takes: rows of activations.
   gives: exl2__cpu_vector_norm, exl2__cpu_vector_gather, exl2__cpu_vector_rope,
          exl2__cpu_vector_softmax, exl2__cpu_vector_activate and their like.

   These functions have eight lanes for every instruction set, so that the order of sums is the same. A sum has 16
   partial sums by index mod 16; then 8..15 are added to 0..7, 4..7 to 0..3, 2..3 to 0..1, and 1 to 0. */
#ifndef EXL2__CPU_VECTOR_H
#define EXL2__CPU_VECTOR_H

#include "../../0_base/simd.h"
#include "cpu_exl3.h"
#include "cpu_fields.h"
#include "cpu_lanes.h"

#ifdef EXL2__CPU_FAST

#define EXL2__CPU_VECTOR EXL2__TARGET_LANES static
#define EXL2__CPU_VECTOR_INLINE EXL2__FORCE_INLINE EXL2__TARGET_LANES

EXL2__CPU_VECTOR_INLINE exl2__lanes exl2__cpu_vector_load_upto(const float *from, uint32_t i, uint32_t count)
{
    return i + 8 <= count ? exl2__lanes_load(from + i)
         : i < count ? exl2__lanes_load_first(from + i, count - i) : exl2__lanes_set(0);
}

/* e^x with an error of at most 2 ulp; 0 below -87.3, finite above 88. */
EXL2__CPU_VECTOR_INLINE exl2__lanes exl2__cpu_vector_exp(exl2__lanes x)
{
    const exl2__lanes least = exl2__lanes_set(-87.3f), all = x;
    x = exl2__lanes_min(exl2__lanes_max(x, least), exl2__lanes_set(88.0f));
    exl2__lanes n = exl2__lanes_round(exl2__lanes_mul(x, exl2__lanes_set(1.44269504f)));
    /* ln 2 in two parts; n times the first is exact */
    exl2__lanes r = exl2__lanes_fnma(n, exl2__lanes_set(0.693145752f), x);
    r = exl2__lanes_fnma(n, exl2__lanes_set(1.42860677e-6f), r);
    exl2__lanes y = exl2__lanes_set(1.0f / 5040);
    y = exl2__lanes_fma(y, r, exl2__lanes_set(1.0f / 720));
    y = exl2__lanes_fma(y, r, exl2__lanes_set(1.0f / 120));
    y = exl2__lanes_fma(y, r, exl2__lanes_set(1.0f / 24));
    y = exl2__lanes_fma(y, r, exl2__lanes_set(1.0f / 6));
    y = exl2__lanes_fma(y, r, exl2__lanes_set(0.5f));
    y = exl2__lanes_fma(y, r, exl2__lanes_set(1.0f));
    y = exl2__lanes_fma(y, r, exl2__lanes_set(1.0f));
    return exl2__lanes_unless_below(all, least, exl2__lanes_mul(y, exl2__lanes_power(n)));
}

EXL2__CPU_VECTOR void exl2__cpu_vector_norm(const float *x, const float *weight, uint32_t count, float eps, float *out)
{
    EXL2__UNALIGNED_MOVES();
    exl2__lanes low = exl2__lanes_set(0), high = exl2__lanes_set(0);
    for (uint32_t i = 0; i < count; i += 16) {
        exl2__lanes a = exl2__cpu_vector_load_upto(x, i, count), b = exl2__cpu_vector_load_upto(x, i + 8, count);
        low = exl2__lanes_fma(a, a, low);
        high = exl2__lanes_fma(b, b, high);
    }
    float mean = exl2__lanes_sum(low, high) / (float)count, factor = 1.0f / sqrtf(mean + eps);
    exl2__lanes by = exl2__lanes_set(factor);
    uint32_t i = 0;
    for (; i + 8 <= count; i += 8) {
        exl2__lanes y = exl2__lanes_mul(exl2__lanes_load(x + i), by);
        exl2__lanes_store(out + i, exl2__lanes_mul(y, exl2__lanes_load(weight + i)));
    }
    for (; i < count; i++) {
        out[i] = x[i] * factor * weight[i];
    }
}

/* One block of one row: scaled [32] = the features of the packed rows times the scales of their fields. Returns the
   start value of the block's chain. */
EXL2__CPU_VECTOR_INLINE float exl2__cpu_vector_gather_block(const exl2__cpu_fields *fields, const uint16_t *order,
                                                           const float *x, float *scaled)
{
    exl2__lanes sum[2] = { exl2__lanes_set(0), exl2__lanes_set(0) };
    for (uint32_t i = 0; i < EXL2__CPU_BLOCK; i += 8) {
        exl2__lanes value = exl2__lanes_gather(x, order + i);
        sum[i / 8 % 2] = exl2__lanes_fma(value, exl2__lanes_load(fields->centre + i), sum[i / 8 % 2]);
        exl2__lanes_store(scaled + i, exl2__lanes_mul(value, exl2__lanes_load(fields->scale + i)));
    }
    return exl2__lanes_sum(sum[0], sum[1]);
}

/* The sum of the features of one block of one row, in the same order of sums. */
EXL2__CPU_VECTOR_INLINE float exl2__cpu_vector_gather_sum(const uint16_t *order, const float *x)
{
    exl2__lanes sum[2] = { exl2__lanes_set(0), exl2__lanes_set(0) };
    for (uint32_t i = 0; i < EXL2__CPU_BLOCK; i += 8) {
        sum[i / 8 % 2] = exl2__lanes_add(exl2__lanes_gather(x, order + i), sum[i / 8 % 2]);
    }
    return exl2__lanes_sum(sum[0], sum[1]);
}

EXL2__CPU_VECTOR void exl2__cpu_vector_gather(const exl2__cpu_part *p, const float *x, size_t stride, uint32_t n,
                                              float *out, float *centre)
{
    EXL2__UNALIGNED_MOVES();
    if (!exl2__cpu_matrix_is_codes(p->source)) {
        exl2__cpu_phases_gather(p, x, stride, n, out, centre);
        return;
    }
    for (uint32_t b = 0; b < p->blocks; b++, out += (size_t)EXL2__CPU_BLOCK * n, centre += n) {
        const exl2__cpu_fields *fields = &exl2__cpu_fields_of[p->block[b].bits];
        const uint16_t *order = p->order + b * EXL2__CPU_BLOCK;
        float scaled[4][EXL2__CPU_BLOCK]; /* of four rows, whose columns are written together */
        for (uint32_t r = 0; r < n; r++) {
            float *row = n == 1 ? out : scaled[r % 4];
            centre[r] = exl2__cpu_vector_gather_block(fields, order, x + r * stride, row);
            for (uint32_t i = 0; r % 4 == 3 && i < EXL2__CPU_BLOCK; i += 8) {
                exl2__lanes_store_columns(out + i * n + r - 3, n, scaled[0] + i, EXL2__CPU_BLOCK);
            }
            for (uint32_t i = 0; n > 1 && r >= n / 4 * 4 && i < EXL2__CPU_BLOCK; i++) {
                out[i * n + r] = row[i];
            }
        }
        if (exl2__cpu_matrix_is_affine(p->source)) {
            centre += n;
            for (uint32_t r = 0; r < n; r++) {
                centre[r] = exl2__cpu_vector_gather_sum(order, x + r * stride);
            }
        }
    }
}

EXL2__CPU_VECTOR void exl2__cpu_vector_rope(float *x, const float *cosine, const float *sine, uint32_t half,
                                            float scale)
{
    EXL2__UNALIGNED_MOVES();
    const exl2__lanes by = exl2__lanes_set(scale);
    for (uint32_t i = 0; i < half; i += 8) {
        uint32_t n = exl2__min32(half - i, 8);
        exl2__lanes c = exl2__cpu_vector_load_upto(cosine, i, half), s = exl2__cpu_vector_load_upto(sine, i, half);
        exl2__lanes a = exl2__cpu_vector_load_upto(x, i, half), b = exl2__cpu_vector_load_upto(x + half, i, half);
        exl2__lanes_store_first(x + i, exl2__lanes_mul(exl2__lanes_fms(a, c, exl2__lanes_mul(b, s)), by), n);
        exl2__lanes_store_first(x + half + i, exl2__lanes_mul(exl2__lanes_fma(b, c, exl2__lanes_mul(a, s)), by), n);
    }
}

EXL2__CPU_VECTOR void exl2__cpu_vector_half(const float *x, uint32_t count, uint16_t *out)
{
    EXL2__UNALIGNED_MOVES();
    uint32_t i = 0;
    for (; i + 8 <= count; i += 8) {
        exl2__lanes_store_half(out + i, exl2__lanes_load(x + i));
    }
    for (; i < count; i++) {
        out[i] = exl2__f32_to_f16(x[i]);
    }
}

EXL2__CPU_VECTOR float exl2__cpu_vector_softmax(float *scores, uint32_t keys, uint32_t end)
{
    EXL2__UNALIGNED_MOVES();
    float largest = scores[0];
    uint32_t i = 0;
    exl2__lanes best = exl2__lanes_set(largest);
    for (; i + 8 <= keys; i += 8) {
        best = exl2__lanes_max(best, exl2__lanes_load(scores + i));
    }
    for (; i < keys; i++) {
        best = exl2__lanes_max(best, exl2__lanes_set(scores[i]));
    }
    float lanes[8];
    exl2__lanes_store(lanes, best);
    for (uint32_t j = 0; j < 8; j++) {
        largest = lanes[j] > largest ? lanes[j] : largest;
    }
    exl2__lanes sum[2] = { exl2__lanes_set(0), exl2__lanes_set(0) }, shift = exl2__lanes_set(largest);
    for (i = 0; i < keys; i += 8) {
        exl2__lanes y = exl2__cpu_vector_exp(exl2__lanes_sub(exl2__lanes_load(scores + i), shift));
        y = exl2__lanes_first(y, keys - i);
        sum[i / 8 % 2] = exl2__lanes_add(sum[i / 8 % 2], y);
        exl2__lanes_store(scores + i, y);
    }
    for (; i < end; i += 8) {
        exl2__lanes_store(scores + i, exl2__lanes_set(0));
    }
    return 1.0f / exl2__lanes_sum(sum[0], sum[1]);
}

/* Activations of the form x / (1 + e^-z). SILU: z = x. GELU_TANH: z = 1.5957691 (x + 0.044715 x^3). */
EXL2__CPU_VECTOR void exl2__cpu_vector_activate(exl2__act act, float *gate, const float *up, uint32_t count)
{
    EXL2__UNALIGNED_MOVES();
    const exl2__lanes one = exl2__lanes_set(1.0f), zero = exl2__lanes_set(0);
    if (act != EXL2__ACT_SILU && act != EXL2__ACT_GELU_TANH) {
        exl2__cpu_phases_activate(act, gate, up, count);
        return;
    }
    for (uint32_t i = 0; i < count; i += 8) {
        exl2__lanes g = exl2__lanes_load(gate + i), z = g;
        if (act == EXL2__ACT_GELU_TANH) {
            exl2__lanes cube = exl2__lanes_mul(exl2__lanes_mul(g, g), g);
            z = exl2__lanes_fma(cube, exl2__lanes_set(0.044715f), g);
            z = exl2__lanes_mul(z, exl2__lanes_set(1.59576912f));
        }
        exl2__lanes y = exl2__lanes_add(one, exl2__cpu_vector_exp(exl2__lanes_sub(zero, z)));
        y = exl2__lanes_div(g, y);
        exl2__lanes_store(gate + i, up ? exl2__lanes_mul(y, exl2__lanes_load(up + i)) : y);
    }
}

/* tanh(x) = 1 - 2 / (e^2x + 1), which has the absolute error of a rounding. */
EXL2__CPU_VECTOR void exl2__cpu_vector_softcap(float *x, uint32_t count, float cap)
{
    EXL2__UNALIGNED_MOVES();
    const exl2__lanes one = exl2__lanes_set(1.0f), two = exl2__lanes_set(2.0f), by = exl2__lanes_set(2.0f / cap);
    for (uint32_t i = 0; i < count; i += 8) {
        exl2__lanes e = exl2__cpu_vector_exp(exl2__lanes_mul(exl2__lanes_load(x + i), by));
        exl2__lanes y = exl2__lanes_sub(one, exl2__lanes_div(two, exl2__lanes_add(e, one)));
        exl2__lanes_store(x + i, exl2__lanes_mul(y, exl2__lanes_set(cap)));
    }
}

/* `n` rows of A at once, 1 or 4. Each has two chains, of i mod 16 below 8 and above. */
EXL2__CPU_VECTOR_INLINE void exl2__cpu_vector_shrink_rows(const uint16_t *a, size_t stride, uint32_t n, uint32_t in,
                                                          const float *x, float factor, float *t)
{
    exl2__lanes low[4], high[4];
    for (uint32_t k = 0; k < n; k++) {
        low[k] = high[k] = exl2__lanes_set(0);
    }
    for (uint32_t i = 0; i < in; i += 16) { /* A has zeros after its rows */
        exl2__lanes x0 = exl2__cpu_vector_load_upto(x, i, in), x1 = exl2__cpu_vector_load_upto(x, i + 8, in);
        EXL2__UNROLL
        for (uint32_t k = 0; k < n; k++) {
            low[k] = exl2__lanes_fma(exl2__lanes_load_half(a + k * stride + i), x0, low[k]);
            high[k] = exl2__lanes_fma(exl2__lanes_load_half(a + k * stride + i + 8), x1, high[k]);
        }
    }
    for (uint32_t k = 0; k < n; k++) {
        t[k] = factor * exl2__lanes_sum(low[k], high[k]);
    }
}

EXL2__CPU_VECTOR void exl2__cpu_vector_shrink(const uint16_t *a, size_t stride, uint32_t rank, uint32_t in,
                                              const float *x, float factor, float *t)
{
    EXL2__UNALIGNED_MOVES();
    uint32_t k = 0;
    for (; k + 4 <= rank; k += 4) {
        exl2__cpu_vector_shrink_rows(a + k * stride, stride, 4, in, x, factor, t + k);
    }
    for (; k < rank; k++) {
        exl2__cpu_vector_shrink_rows(a + k * stride, stride, 1, in, x, factor, t + k);
    }
}

EXL2__CPU_VECTOR void exl2__cpu_vector_expand(const uint16_t *b, size_t stride, uint32_t rank, uint32_t count,
                                              const float *t, float add, float *out)
{
    EXL2__UNALIGNED_MOVES();
    const exl2__lanes by = exl2__lanes_set(add);
    for (uint32_t i = 0; i < count; i += 32) {
        exl2__lanes sum[4] = { exl2__lanes_set(0), exl2__lanes_set(0), exl2__lanes_set(0), exl2__lanes_set(0) };
        for (uint32_t k = 0; k < rank; k++) {
            exl2__lanes tk = exl2__lanes_set(t[k]);
            EXL2__UNROLL
            for (uint32_t j = 0; j < 4; j++) {
                sum[j] = exl2__lanes_fma(exl2__lanes_load_half(b + k * stride + i + 8 * j), tk, sum[j]);
            }
        }
        for (uint32_t j = 0; j < 4; j++) {
            float *to = out + i + 8 * j;
            exl2__lanes_store(to, exl2__lanes_fma(sum[j], by, exl2__lanes_load(to)));
        }
    }
}

#endif
#endif

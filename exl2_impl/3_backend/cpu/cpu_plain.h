/* cpu_plain.h: the path of every CPU that has none of its own: vectors of eight lanes in plain C.
   takes: cpu_simd_template.h.
   gives: exl2__cpu_plain_ops.

   A vector is a struct of eight lanes, and an operation is a loop over them. gcc and clang make SSE2, NEON or the like
   of these loops at -O2 (gcc from version 12 on). There is no fused multiply-add: a product is rounded before it is
   added. So the bits differ from those of the SIMD paths, but are the same for every compiler and CPU. The order of
   sums is that of cpu_matrix.h; a sum over a row has eight partial sums by index mod 8, then 4..7 are added to 0..3,
   2..3 to 0..1, and 1 to 0. */
#ifndef EXL2__CPU_PLAIN_H
#define EXL2__CPU_PLAIN_H

#include "cpu_exl3.h"
#include "cpu_fields.h"

#ifdef EXL2__CPU_AS_SHIPPED

EXL2__ROUND_TWICE_BEGIN

#define EXL2__CPU_LANES 8u

typedef struct exl2__cpu_lanes {
    float lane[EXL2__CPU_LANES];
} exl2__cpu_lanes;

typedef struct exl2__cpu_lanes_int {
    uint32_t lane[EXL2__CPU_LANES];
} exl2__cpu_lanes_int;

#define EXL2__CPU_LANES_FN EXL2__FORCE_INLINE exl2__cpu_lanes
#define EXL2__CPU_LANES_INT_FN EXL2__FORCE_INLINE exl2__cpu_lanes_int
#define EXL2__EACH_LANE(j) for (uint32_t j = 0; j < EXL2__CPU_LANES; j++)

EXL2__CPU_LANES_FN exl2__cpu_lanes_set(float x)
{
    exl2__cpu_lanes y = { { 0 } };
    EXL2__EACH_LANE(j) { y.lane[j] = x; }
    return y;
}

EXL2__CPU_LANES_FN exl2__cpu_lanes_load(const float *from)
{
    exl2__cpu_lanes y = { { 0 } };
    EXL2__EACH_LANE(j) { y.lane[j] = from[j]; }
    return y;
}

EXL2__FORCE_INLINE void exl2__cpu_lanes_store(float *to, exl2__cpu_lanes x)
{
    EXL2__EACH_LANE(j) { to[j] = x.lane[j]; }
}

EXL2__CPU_LANES_FN exl2__cpu_lanes_add(exl2__cpu_lanes a, exl2__cpu_lanes b)
{
    EXL2__EACH_LANE(j) { a.lane[j] += b.lane[j]; }
    return a;
}

/* a * b + c, rounded twice. */
EXL2__CPU_LANES_FN exl2__cpu_lanes_multiply_add(exl2__cpu_lanes a, exl2__cpu_lanes b, exl2__cpu_lanes c)
{
    EXL2__EACH_LANE(j) { c.lane[j] += a.lane[j] * b.lane[j]; }
    return c;
}

/* Widens f16 without a subnormal float, which may be slow or count as 0: a subnormal f16 becomes 2^-14 + its value, as
   if its exponent were 1, and then 2^-14 is subtracted. Comparisons are shifts: gcc does not vectorize choices here. */
EXL2__CPU_LANES_FN exl2__cpu_lanes_half(const uint16_t *from)
{
    exl2__cpu_lanes y = { { 0 } };
    EXL2__EACH_LANE(j) {
        uint32_t half = from[j], size = half & 0x7FFFu;
        uint32_t is_small = 0u - ((size - 0x400u) >> 31), is_large = 0u - ((0x7BFFu - size) >> 31); /* 0 or ~0 */
        uint32_t exponent = (112u << 23) + (is_small & 1u << 23) + (is_large & 112u << 23);
        float value = exl2__bits_float((size << 13) + exponent) - exl2__bits_float(is_small & 113u << 23);
        y.lane[j] = exl2__bits_float(exl2__float_bits(value) | (half & 0x8000u) << 16);
    }
    return y;
}

EXL2__CPU_LANES_FN exl2__cpu_lanes_bf16(const uint16_t *from)
{
    exl2__cpu_lanes y = { { 0 } };
    EXL2__EACH_LANE(j) { y.lane[j] = exl2__bf16_to_f32(from[j]); }
    return y;
}

EXL2__CPU_LANES_INT_FN exl2__cpu_lanes_bits(const uint32_t *from)
{
    exl2__cpu_lanes_int y = { { 0 } };
    EXL2__EACH_LANE(j) { y.lane[j] = from[j]; }
    return y;
}

EXL2__CPU_LANES_INT_FN exl2__cpu_lanes_set_bits(uint32_t x)
{
    exl2__cpu_lanes_int y = { { 0 } };
    EXL2__EACH_LANE(j) { y.lane[j] = x; }
    return y;
}

EXL2__CPU_LANES_INT_FN exl2__cpu_lanes_and(exl2__cpu_lanes_int a, exl2__cpu_lanes_int b)
{
    EXL2__EACH_LANE(j) { a.lane[j] &= b.lane[j]; }
    return a;
}

EXL2__CPU_LANES_INT_FN exl2__cpu_lanes_tops(exl2__cpu_lanes_int tops, exl2__cpu_lanes_int word)
{
    EXL2__EACH_LANE(j) { tops.lane[j] = tops.lane[j] >> 2 | (word.lane[j] & 0xC0000000u); }
    return tops;
}

EXL2__CPU_LANES_INT_FN exl2__cpu_lanes_shift(exl2__cpu_lanes_int x, uint32_t bits)
{
    EXL2__EACH_LANE(j) { x.lane[j] <<= bits; }
    return x;
}

EXL2__CPU_LANES_INT_FN exl2__cpu_lanes_bytes(const uint8_t *from)
{
    exl2__cpu_lanes_int y = { { 0 } };
    EXL2__EACH_LANE(j) { y.lane[j] = from[j]; }
    return y;
}

EXL2__CPU_LANES_FN exl2__cpu_lanes_float(exl2__cpu_lanes_int x)
{
    exl2__cpu_lanes y = { { 0 } };
    EXL2__EACH_LANE(j) { y.lane[j] = (float)(int32_t)x.lane[j]; }
    return y;
}

#if EXL2__EXL3

/* Shifts by a count for each lane, 0 to 32. */
EXL2__CPU_LANES_INT_FN exl2__cpu_lanes_shift_each(exl2__cpu_lanes_int x, exl2__cpu_lanes_int n, bool right)
{
    EXL2__EACH_LANE(j) {
        uint32_t once = x.lane[j], count = n.lane[j] & 31u, all = 0u - (n.lane[j] >> 5); /* 32: ~0 */
        x.lane[j] = (right ? once >> count : once << count) & ~all;
    }
    return x;
}

EXL2__CPU_LANES_INT_FN exl2__cpu_lanes_shift_right(exl2__cpu_lanes_int x, uint32_t bits)
{
    EXL2__EACH_LANE(j) { x.lane[j] >>= bits; }
    return x;
}

EXL2__CPU_LANES_INT_FN exl2__cpu_lanes_shift_signed(exl2__cpu_lanes_int x, uint32_t bits)
{
    EXL2__EACH_LANE(j) { x.lane[j] = x.lane[j] >> bits | (0u - (x.lane[j] >> 31)) << (32 - bits); }
    return x;
}

#define EXL2__LANES_INT_2(name, op) \
    EXL2__CPU_LANES_INT_FN exl2__cpu_lanes_##name(exl2__cpu_lanes_int a, exl2__cpu_lanes_int b) \
    { \
        EXL2__EACH_LANE(j) { a.lane[j] = a.lane[j] op b.lane[j]; } \
        return a; \
    }
EXL2__LANES_INT_2(or, |)
EXL2__LANES_INT_2(int_add, +)
EXL2__LANES_INT_2(int_sub, -)
EXL2__LANES_INT_2(int_mul, *)
#undef EXL2__LANES_INT_2

EXL2__CPU_LANES_INT_FN exl2__cpu_lanes_mask_xor(exl2__cpu_lanes_int v, exl2__cpu_lanes_int m, exl2__cpu_lanes_int c)
{
    EXL2__EACH_LANE(j) { v.lane[j] = (v.lane[j] & m.lane[j]) ^ c.lane[j]; }
    return v;
}

EXL2__CPU_LANES_FN exl2__cpu_lanes_bits_float(exl2__cpu_lanes_int x)
{
    exl2__cpu_lanes y;
    memcpy(&y, &x, sizeof y);
    return y;
}

EXL2__CPU_LANES_FN exl2__cpu_lanes_sum_bytes(exl2__cpu_lanes_int x)
{
    EXL2__EACH_LANE(j) {
        uint32_t two = (x.lane[j] & 0x00FF00FFu) + (x.lane[j] >> 8 & 0x00FF00FFu);
        x.lane[j] = (two & 0xFFFFu) + (two >> 16) + 1024;
    }
    return exl2__cpu_lanes_float(x);
}

EXL2__CPU_LANES_FN exl2__cpu_lanes_sub(exl2__cpu_lanes a, exl2__cpu_lanes b)
{
    EXL2__EACH_LANE(j) { a.lane[j] -= b.lane[j]; }
    return a;
}

EXL2__CPU_LANES_FN exl2__cpu_lanes_mul(exl2__cpu_lanes a, exl2__cpu_lanes b)
{
    EXL2__EACH_LANE(j) { a.lane[j] *= b.lane[j]; }
    return a;
}

EXL2__CPU_LANES_INT_FN exl2__cpu_lanes_words(const exl2__cpu_lanes_int *a, const exl2__cpu_lanes_int *b,
                                            exl2__cpu_lanes_int i)
{
    uint32_t words[2 * EXL2__CPU_LANES];
    memcpy(words, a, sizeof *a);
    memcpy(words + EXL2__CPU_LANES, b, sizeof *b);
    EXL2__EACH_LANE(j) { i.lane[j] = words[i.lane[j] % (2 * EXL2__CPU_LANES)]; }
    return i;
}

EXL2__CPU_LANES_INT_FN exl2__cpu_lanes_with_first(exl2__cpu_lanes_int x, uint32_t first)
{
    x.lane[0] = first;
    return x;
}

EXL2__CPU_LANES_FN exl2__cpu_lanes_fours(const float *from)
{
    exl2__cpu_lanes y = { { 0 } };
    EXL2__EACH_LANE(j) { y.lane[j] = from[j % 4]; }
    return y;
}

EXL2__CPU_LANES_FN exl2__cpu_lanes_swap(exl2__cpu_lanes x, uint32_t n)
{
    exl2__cpu_lanes y = { { 0 } };
    EXL2__EACH_LANE(j) { y.lane[j] = x.lane[j ^ n]; }
    return y;
}

EXL2__FORCE_INLINE void exl2__cpu_lanes_fold(float *to, exl2__cpu_lanes x)
{
    for (uint32_t j = 0; j < EXL2__CPU_LANES; j += 4) {
        to[j / 4] = (x.lane[j] + x.lane[j + 1]) + (x.lane[j + 2] + x.lane[j + 3]);
    }
}

#endif

/* Baseline x86-64 has 16 registers of four lanes. So one row computes two vectors of columns at a time, and more rows
   one: then 4 rows by 2 registers of sums, and what they need beside them, stay in registers. */
#define EXL2__V_NAME(name) exl2__cpu_plain_##name
#define EXL2__V_TARGET
#define EXL2__V exl2__cpu_lanes
#define EXL2__V_INT exl2__cpu_lanes_int
#define EXL2__V_LANES EXL2__CPU_LANES
#define EXL2__V_ROWS 4u
#define EXL2__V_ALONE 2u
#define EXL2__V_TWO 1u
#define EXL2__V_ACROSS 1u
#define EXL2__V_TILES(X) X(1) X(2) X(3) X(4)
#define EXL2__V_QUERIES(X) X(1) X(2) X(3) X(4)
#define EXL2__V_QUERIES_MOST 4u
#define EXL2__V_CODE_QUERIES(X) X(1)
#define EXL2__V_CODE_QUERIES_MOST 1u
#define EXL2__V_SET(x) exl2__cpu_lanes_set(x)
#define EXL2__V_LOAD(p) exl2__cpu_lanes_load(p)
#define EXL2__V_STORE(p, v) exl2__cpu_lanes_store(p, v)
#define EXL2__V_ADD(a, b) exl2__cpu_lanes_add(a, b)
#define EXL2__V_FMA(a, b, c) exl2__cpu_lanes_multiply_add(a, b, c)
#define EXL2__V_HALF(p) exl2__cpu_lanes_half((const uint16_t *)(p))
#define EXL2__V_BF16(p) exl2__cpu_lanes_bf16((const uint16_t *)(p))
#define EXL2__V_BITS(p) exl2__cpu_lanes_bits(p)
#define EXL2__V_SET_BITS(u) exl2__cpu_lanes_set_bits(u)
#define EXL2__V_AND(a, b) exl2__cpu_lanes_and(a, b)
#define EXL2__V_FLOAT(i) exl2__cpu_lanes_float(i)
#define EXL2__V_PREFETCH(p) ((void)(p))
#define EXL2__V_TOPS(t, w) exl2__cpu_lanes_tops(t, w)
#define EXL2__V_SHIFT(v, n) exl2__cpu_lanes_shift(v, n)
#define EXL2__V_BYTES(p) exl2__cpu_lanes_bytes(p)

#define EXL2__V_FUNNEL(a, b, l, r) \
    exl2__cpu_lanes_or(exl2__cpu_lanes_shift_each(a, l, false), exl2__cpu_lanes_shift_each(b, r, true))
#define EXL2__V_JOIN(a, b, n) \
    exl2__cpu_lanes_or(exl2__cpu_lanes_shift(a, 32 - (n)), exl2__cpu_lanes_shift_right(b, n))
#define EXL2__V_TAKE(v, n) exl2__cpu_lanes_and(exl2__cpu_lanes_shift_right(v, n), exl2__cpu_lanes_set_bits(0xFFFF))
#define EXL2__V_TAKE_AT(v, i) \
    exl2__cpu_lanes_and(exl2__cpu_lanes_shift_each(v, i, true), exl2__cpu_lanes_set_bits(0xFFFF))
#define EXL2__V_TAKE_INDEX(n) exl2__cpu_lanes_set_bits(n)
#define EXL2__V_TAKES false
#define EXL2__V_SHRI(v, n) exl2__cpu_lanes_shift_right(v, n)
#define EXL2__V_SRAI(v, n) exl2__cpu_lanes_shift_signed(v, n)
#define EXL2__V_INT_ADD(a, b) exl2__cpu_lanes_int_add(a, b)
#define EXL2__V_INT_SUB(a, b) exl2__cpu_lanes_int_sub(a, b)
#define EXL2__V_INT_MUL(a, b) exl2__cpu_lanes_int_mul(a, b)
#define EXL2__V_MASK_XOR(v, m, c) exl2__cpu_lanes_mask_xor(v, m, c)
#define EXL2__V_BITS_FLOAT(v) exl2__cpu_lanes_bits_float(v)
#define EXL2__V_LOW(v) EXL2__V_SRAI(EXL2__V_SHIFT(v, 16), 3)
#define EXL2__V_SUM_BASE 1024.0f /* so that the product that follows is exact, too */
#define EXL2__V_SUM_BYTES(v) exl2__cpu_lanes_sum_bytes(v)
#define EXL2__V_SUB(a, b) exl2__cpu_lanes_sub(a, b)
#define EXL2__V_MUL(a, b) exl2__cpu_lanes_mul(a, b)
#define EXL2__V_PICK(a, b, i) exl2__cpu_lanes_words(&a, &b, i)
#define EXL2__V_PICK_NEAR(a, i) exl2__cpu_lanes_words(&a, &a, i)
#define EXL2__V_PICK_INDEX(i) (i)
#define EXL2__V_BY_BYTES 0
#define EXL2__V_NEAR true
#define EXL2__V_FIRST(v, u) exl2__cpu_lanes_with_first(v, u)
#define EXL2__V_FOURS(p) exl2__cpu_lanes_fours(p)
#define EXL2__V_SWAP1(v) exl2__cpu_lanes_swap(v, 1)
#define EXL2__V_SWAP2(v) exl2__cpu_lanes_swap(v, 2)
#define EXL2__V_SWAP4(v) exl2__cpu_lanes_swap(v, 4)
#define EXL2__V_SWAP8(v) (v)
#define EXL2__V_FOLD(to, v) exl2__cpu_lanes_fold(to, v)
#define EXL2__V_UNROLL /* a lane is an instruction on some CPUs */
#define EXL2__V_EXL3_ROWS(X) X(2) X(1)
#define EXL2__V_EXL3_ROWS_MOST 2u

#include "cpu_exl3_template.h"
#include "cpu_simd_template.h"

/* ---- what is not a product ---- */

EXL2__FORCE_INLINE float exl2__cpu_lanes_sum(exl2__cpu_lanes x)
{
    for (uint32_t j = 0; j < 4; j++) {
        x.lane[j] += x.lane[j + 4];
    }
    return (x.lane[0] + x.lane[2]) + (x.lane[1] + x.lane[3]);
}

/* Loads the elements from i on of [count]; lanes after the last one are 0. */
EXL2__CPU_LANES_FN exl2__cpu_lanes_load_upto(const float *from, uint32_t i, uint32_t count)
{
    float some[EXL2__CPU_LANES] = { 0 };
    if (i + EXL2__CPU_LANES <= count) {
        return exl2__cpu_lanes_load(from + i);
    }
    for (uint32_t j = 0; i + j < count; j++) {
        some[j] = from[i + j];
    }
    return exl2__cpu_lanes_load(some);
}

EXL2__PRIVATE void exl2__cpu_plain_norm(const float *x, const float *weight, uint32_t count, float eps, float *out)
{
    exl2__cpu_lanes sum = exl2__cpu_lanes_set(0);
    for (uint32_t i = 0; i < count; i += EXL2__CPU_LANES) {
        exl2__cpu_lanes a = exl2__cpu_lanes_load_upto(x, i, count);
        sum = exl2__cpu_lanes_multiply_add(a, a, sum);
    }
    float factor = 1.0f / sqrtf(exl2__cpu_lanes_sum(sum) / (float)count + eps);
    for (uint32_t i = 0; i < count; i++) {
        out[i] = x[i] * factor * weight[i];
    }
}

/* The features of eight packed rows of one row of x. */
EXL2__CPU_LANES_FN exl2__cpu_lanes_pick(const uint16_t *order, const float *x)
{
    exl2__cpu_lanes y = { { 0 } };
    EXL2__EACH_LANE(j) { y.lane[j] = x[order[j]]; }
    return y;
}

/* As exl2__cpu_vector_gather. */
EXL2__PRIVATE void exl2__cpu_plain_gather(const exl2__cpu_part *p, const float *x, size_t stride, uint32_t n,
                                          float *out, float *centre)
{
    if (!exl2__cpu_matrix_is_codes(p->source)) {
        exl2__cpu_phases_gather(p, x, stride, n, out, centre);
        return;
    }
    for (uint32_t b = 0; b < p->blocks; b++, out += (size_t)EXL2__CPU_BLOCK * n, centre += n) {
        const exl2__cpu_fields *fields = &exl2__cpu_fields_of[p->block[b].bits];
        float *sums = centre + n; /* of an affine part */
        for (uint32_t r = 0; r < n; r++) {
            exl2__cpu_lanes start = exl2__cpu_lanes_set(0), sum = start;
            for (uint32_t i = 0; i < EXL2__CPU_BLOCK; i += EXL2__CPU_LANES) {
                exl2__cpu_lanes value = exl2__cpu_lanes_pick(p->order + b * EXL2__CPU_BLOCK + i, x + r * stride);
                start = exl2__cpu_lanes_multiply_add(value, exl2__cpu_lanes_load(fields->centre + i), start);
                sum = exl2__cpu_lanes_add(value, sum);
                EXL2__EACH_LANE(j) { out[(i + j) * n + r] = value.lane[j] * fields->scale[i + j]; }
            }
            centre[r] = exl2__cpu_lanes_sum(start);
            if (exl2__cpu_matrix_is_affine(p->source)) {
                sums[r] = exl2__cpu_lanes_sum(sum);
            }
        }
        centre = exl2__cpu_matrix_is_affine(p->source) ? sums : centre;
    }
}

/* Eight lanes of e^x, with an error of a few ulp; 0 below -87.3, finite above 88. */
EXL2__CPU_LANES_FN exl2__cpu_lanes_exp(exl2__cpu_lanes x)
{
    EXL2__EACH_LANE(j) {
        float z = x.lane[j] > -87.3f ? x.lane[j] : -87.3f;
        z = z < 88.0f ? z : 88.0f;
        int32_t n = (int32_t)(z * 1.44269504f + (z < 0 ? -0.5f : 0.5f));
        float r = z - (float)n * 0.693145752f; /* ln 2 in two parts; n times the first is exact */
        r = r - (float)n * 1.42860677e-6f;
        float y = 1.0f / 5040;
        y = y * r + 1.0f / 720;
        y = y * r + 1.0f / 120;
        y = y * r + 1.0f / 24;
        y = y * r + 1.0f / 6;
        y = y * r + 0.5f;
        y = y * r + 1.0f;
        y = y * r + 1.0f;
        y *= exl2__bits_float((uint32_t)(n + 127) << 23);
        x.lane[j] = x.lane[j] < -87.3f ? 0 : y;
    }
    return x;
}

EXL2__PRIVATE float exl2__cpu_plain_softmax(float *scores, uint32_t keys, uint32_t end)
{
    exl2__cpu_lanes best = exl2__cpu_lanes_set(scores[0]), sum = exl2__cpu_lanes_set(0);
    const float unseen = exl2__minus_infinity();
    for (uint32_t i = 0; i < end; i += EXL2__CPU_LANES) { /* unseen keys get a weight of 0 */
        EXL2__EACH_LANE(j) { scores[i + j] = i + j < keys ? scores[i + j] : unseen; }
        EXL2__EACH_LANE(j) { best.lane[j] = scores[i + j] > best.lane[j] ? scores[i + j] : best.lane[j]; }
    }
    float largest = best.lane[0];
    EXL2__EACH_LANE(j) { largest = best.lane[j] > largest ? best.lane[j] : largest; }
    for (uint32_t i = 0; i < end; i += EXL2__CPU_LANES) {
        exl2__cpu_lanes y = exl2__cpu_lanes_load(scores + i);
        EXL2__EACH_LANE(j) { y.lane[j] -= largest; }
        y = exl2__cpu_lanes_exp(y);
        sum = exl2__cpu_lanes_add(sum, y);
        exl2__cpu_lanes_store(scores + i, y);
    }
    return 1.0f / exl2__cpu_lanes_sum(sum);
}

/* As exl2__cpu_vector_activate. */
EXL2__PRIVATE void exl2__cpu_plain_activate(exl2__act act, float *gate, const float *up, uint32_t count)
{
    if (act != EXL2__ACT_SILU && act != EXL2__ACT_GELU_TANH) {
        exl2__cpu_phases_activate(act, gate, up, count);
        return;
    }
    for (uint32_t i = 0; i < count; i += EXL2__CPU_LANES) {
        exl2__cpu_lanes g = exl2__cpu_lanes_load(gate + i), z = g;
        if (act == EXL2__ACT_GELU_TANH) {
            EXL2__EACH_LANE(j) {
                float x = g.lane[j];
                z.lane[j] = (x * x * x * 0.044715f + x) * 1.59576912f;
            }
        }
        EXL2__EACH_LANE(j) { z.lane[j] = -z.lane[j]; }
        z = exl2__cpu_lanes_exp(z);
        EXL2__EACH_LANE(j) { g.lane[j] /= z.lane[j] + 1; }
        if (up) {
            EXL2__EACH_LANE(j) { g.lane[j] *= up[i + j]; }
        }
        exl2__cpu_lanes_store(gate + i, g);
    }
}

/* tanh(x) = 1 - 2 / (e^2x + 1), which has the absolute error of a rounding. */
EXL2__PRIVATE void exl2__cpu_plain_softcap(float *x, uint32_t count, float cap)
{
    float by = 2.0f / cap;
    for (uint32_t i = 0; i < count; i += EXL2__CPU_LANES) {
        exl2__cpu_lanes e = exl2__cpu_lanes_load(x + i);
        EXL2__EACH_LANE(j) { e.lane[j] *= by; }
        e = exl2__cpu_lanes_exp(e);
        EXL2__EACH_LANE(j) { e.lane[j] = (1 - 2 / (e.lane[j] + 1)) * cap; }
        exl2__cpu_lanes_store(x + i, e);
    }
}

static const exl2__cpu_ops exl2__cpu_plain_ops = {
    "c", 4, 4,
    exl2__cpu_plain_norm, exl2__cpu_plain_gather, exl2__cpu_plain_product,
    exl2__cpu_phases_rope, exl2__cpu_phases_kv,
    exl2__cpu_plain_scores, exl2__cpu_plain_softmax, exl2__cpu_plain_weighted_sum,
    exl2__cpu_plain_scores_of_codes, exl2__cpu_plain_weighted_codes, exl2__cpu_plain_activate, exl2__cpu_plain_softcap,
    EXL2__CPU_EXL3_OPS(plain)
    exl2__cpu_phases_shrink, exl2__cpu_phases_expand,
};

#undef EXL2__EACH_LANE

EXL2__ROUND_TWICE_END

#endif
#endif

/* cpu_lanes.h: eight lanes of float, with the same bits on every instruction set: a register of AVX2, two of NEON.
   takes: config.h.
   gives: exl2__lanes and its operations.

   Products and sums are rounded one by one, except in fma, fms and fnma, which round once. Compilers may make one
   fused operation of exl2__lanes_add and a product that it adds; so no sum in cpu_vector.h has a product in it. */
#ifndef EXL2__CPU_LANES_H
#define EXL2__CPU_LANES_H

#include "../../0_base/simd.h"
#include "cpu_phases.h"

#ifdef EXL2__CPU_FAST
#if EXL2__X86_SIMD

#define EXL2__TARGET_LANES EXL2__TARGET_AVX2
#define EXL2__LANES_FN EXL2__FORCE_INLINE EXL2__TARGET_LANES

typedef __m256 exl2__lanes;

EXL2__LANES_FN exl2__lanes exl2__lanes_set(float x) { return _mm256_set1_ps(x); }
EXL2__LANES_FN exl2__lanes exl2__lanes_load(const float *p) { return _mm256_loadu_ps(p); }
EXL2__LANES_FN void exl2__lanes_store(float *p, exl2__lanes a) { _mm256_storeu_ps(p, a); }
EXL2__LANES_FN exl2__lanes exl2__lanes_add(exl2__lanes a, exl2__lanes b) { return _mm256_add_ps(a, b); }
EXL2__LANES_FN exl2__lanes exl2__lanes_sub(exl2__lanes a, exl2__lanes b) { return _mm256_sub_ps(a, b); }
EXL2__LANES_FN exl2__lanes exl2__lanes_mul(exl2__lanes a, exl2__lanes b) { return _mm256_mul_ps(a, b); }
EXL2__LANES_FN exl2__lanes exl2__lanes_div(exl2__lanes a, exl2__lanes b) { return _mm256_div_ps(a, b); }

/* a * b + c; a * b - c; c - a * b */
EXL2__LANES_FN exl2__lanes exl2__lanes_fma(exl2__lanes a, exl2__lanes b, exl2__lanes c)
{
    return _mm256_fmadd_ps(a, b, c);
}

EXL2__LANES_FN exl2__lanes exl2__lanes_fms(exl2__lanes a, exl2__lanes b, exl2__lanes c)
{
    return _mm256_fmsub_ps(a, b, c);
}

EXL2__LANES_FN exl2__lanes exl2__lanes_fnma(exl2__lanes a, exl2__lanes b, exl2__lanes c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

/* a > b ? a : b; a < b ? a : b. So of two values of which one is NaN it is b. */
EXL2__LANES_FN exl2__lanes exl2__lanes_max(exl2__lanes a, exl2__lanes b) { return _mm256_max_ps(a, b); }
EXL2__LANES_FN exl2__lanes exl2__lanes_min(exl2__lanes a, exl2__lanes b) { return _mm256_min_ps(a, b); }

/* To the nearest integer, ties to even. */
EXL2__LANES_FN exl2__lanes exl2__lanes_round(exl2__lanes a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* 2^n; n has integers of -126 to 127. */
EXL2__LANES_FN exl2__lanes exl2__lanes_power(exl2__lanes n)
{
    __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}

/* x < least ? 0 : y */
EXL2__LANES_FN exl2__lanes exl2__lanes_unless_below(exl2__lanes x, exl2__lanes least, exl2__lanes y)
{
    return _mm256_andnot_ps(_mm256_cmp_ps(x, least, _CMP_LT_OQ), y);
}

/* The first `count` lanes; the other lanes become 0. */
EXL2__LANES_FN exl2__lanes exl2__lanes_first(exl2__lanes y, uint32_t count)
{
    __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_and_ps(y, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), lanes)));
}

/* Loads the first `count` lanes, 1..8; the other lanes are 0. */
EXL2__LANES_FN exl2__lanes exl2__lanes_load_first(const float *from, uint32_t count)
{
    __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(from, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), lanes));
}

/* Stores the first `count` lanes, 1..8. */
EXL2__LANES_FN void exl2__lanes_store_first(float *to, exl2__lanes a, uint32_t count)
{
    __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    _mm256_maskstore_ps(to, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), lanes), a);
}

/* x[o[0]], ..., x[o[7]] */
EXL2__LANES_FN exl2__lanes exl2__lanes_gather(const float *x, const uint16_t *o)
{
    return _mm256_setr_ps(x[o[0]], x[o[1]], x[o[2]], x[o[3]], x[o[4]], x[o[5]], x[o[6]], x[o[7]]);
}

/* Writes four rows from [4, stride] as the columns of to [8, pitch]. */
EXL2__LANES_FN void exl2__lanes_store_columns(float *to, size_t pitch, const float *from, size_t stride)
{
    __m256 a = _mm256_loadu_ps(from), b = _mm256_loadu_ps(from + stride);
    __m256 c = _mm256_loadu_ps(from + 2 * stride), d = _mm256_loadu_ps(from + 3 * stride);
    __m256 ac = _mm256_unpacklo_ps(a, c), bd = _mm256_unpacklo_ps(b, d); /* a0 c0 a1 c1, and 4, 5 above */
    __m256 top[2] = { _mm256_unpackhi_ps(a, c), _mm256_unpackhi_ps(b, d) };
    __m256 column[4] = { _mm256_unpacklo_ps(ac, bd), _mm256_unpackhi_ps(ac, bd),
                         _mm256_unpacklo_ps(top[0], top[1]), _mm256_unpackhi_ps(top[0], top[1]) };
    EXL2__UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        _mm_storeu_ps(to + i * pitch, _mm256_castps256_ps128(column[i]));
        _mm_storeu_ps(to + (i + 4) * pitch, _mm256_extractf128_ps(column[i], 1));
    }
}

/* Rounded to f16, ties to even. */
EXL2__LANES_FN void exl2__lanes_store_half(uint16_t *p, exl2__lanes a)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

/* Eight f16. */
EXL2__LANES_FN exl2__lanes exl2__lanes_load_half(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* The sum of 16 partial sums: 8..15 are added to 0..7, 4..7 to 0..3, 2..3 to 0..1, and 1 to 0. */
EXL2__LANES_FN float exl2__lanes_sum(exl2__lanes low, exl2__lanes high)
{
    __m256 eight = _mm256_add_ps(low, high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#else /* NEON */

#define EXL2__TARGET_LANES
#define EXL2__LANES_FN EXL2__FORCE_INLINE

typedef struct exl2__lanes {
    float32x4_t a, b; /* lanes 0..3, 4..7 */
} exl2__lanes;

/* An operation of two, one or three values, from that of four lanes. */
#define EXL2__LANES_1(name, four) \
    EXL2__LANES_FN exl2__lanes exl2__lanes_##name(exl2__lanes x) { return (exl2__lanes){ four(x.a), four(x.b) }; }
#define EXL2__LANES_2(name, four) \
    EXL2__LANES_FN exl2__lanes exl2__lanes_##name(exl2__lanes x, exl2__lanes y) \
    { \
        return (exl2__lanes){ four(x.a, y.a), four(x.b, y.b) }; \
    }
#define EXL2__LANES_3(name, four) \
    EXL2__LANES_FN exl2__lanes exl2__lanes_##name(exl2__lanes x, exl2__lanes y, exl2__lanes z) \
    { \
        return (exl2__lanes){ four(x.a, y.a, z.a), four(x.b, y.b, z.b) }; \
    }
#define EXL2__FOUR_FMA(x, y, z) vfmaq_f32(z, x, y)
#define EXL2__FOUR_FMS(x, y, z) vfmaq_f32(vnegq_f32(z), x, y)
#define EXL2__FOUR_FNMA(x, y, z) vfmsq_f32(z, x, y)
#define EXL2__FOUR_MAX(x, y) vbslq_f32(vcgtq_f32(x, y), x, y)
#define EXL2__FOUR_MIN(x, y) vbslq_f32(vcltq_f32(x, y), x, y)
#define EXL2__FOUR_POWER(n) vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23))
#define EXL2__FOUR_UNLESS_BELOW(x, least, y) \
    vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(y), vcltq_f32(x, least)))

EXL2__LANES_2(add, vaddq_f32)
EXL2__LANES_2(sub, vsubq_f32)
EXL2__LANES_2(mul, vmulq_f32)
EXL2__LANES_2(div, vdivq_f32)
EXL2__LANES_2(max, EXL2__FOUR_MAX)
EXL2__LANES_2(min, EXL2__FOUR_MIN)
EXL2__LANES_3(fma, EXL2__FOUR_FMA)
EXL2__LANES_3(fms, EXL2__FOUR_FMS)
EXL2__LANES_3(fnma, EXL2__FOUR_FNMA)
EXL2__LANES_1(round, vrndnq_f32)
EXL2__LANES_1(power, EXL2__FOUR_POWER)
EXL2__LANES_3(unless_below, EXL2__FOUR_UNLESS_BELOW)

#undef EXL2__LANES_1
#undef EXL2__LANES_2
#undef EXL2__LANES_3
#undef EXL2__FOUR_FMA
#undef EXL2__FOUR_FMS
#undef EXL2__FOUR_FNMA
#undef EXL2__FOUR_MAX
#undef EXL2__FOUR_MIN
#undef EXL2__FOUR_POWER
#undef EXL2__FOUR_UNLESS_BELOW

EXL2__LANES_FN exl2__lanes exl2__lanes_set(float x) { return (exl2__lanes){ vdupq_n_f32(x), vdupq_n_f32(x) }; }
EXL2__LANES_FN exl2__lanes exl2__lanes_load(const float *p) { return (exl2__lanes){ vld1q_f32(p), vld1q_f32(p + 4) }; }

EXL2__LANES_FN void exl2__lanes_store(float *p, exl2__lanes x)
{
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
}

EXL2__LANES_FN exl2__lanes exl2__lanes_first(exl2__lanes y, uint32_t count)
{
    static const uint32_t lanes[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    uint32x4_t most = vdupq_n_u32(count);
    uint32x4_t a = vandq_u32(vreinterpretq_u32_f32(y.a), vcgtq_u32(most, vld1q_u32(lanes)));
    uint32x4_t b = vandq_u32(vreinterpretq_u32_f32(y.b), vcgtq_u32(most, vld1q_u32(lanes + 4)));
    return (exl2__lanes){ vreinterpretq_f32_u32(a), vreinterpretq_f32_u32(b) };
}

EXL2__LANES_FN exl2__lanes exl2__lanes_load_first(const float *from, uint32_t count)
{
    float lanes[8] = { 0 };
    memcpy(lanes, from, count * sizeof *lanes);
    return exl2__lanes_load(lanes);
}

EXL2__LANES_FN void exl2__lanes_store_first(float *to, exl2__lanes x, uint32_t count)
{
    float lanes[8];
    exl2__lanes_store(lanes, x);
    memcpy(to, lanes, count * sizeof *lanes);
}

EXL2__LANES_FN exl2__lanes exl2__lanes_gather(const float *x, const uint16_t *o)
{
    return (exl2__lanes){ { x[o[0]], x[o[1]], x[o[2]], x[o[3]] }, { x[o[4]], x[o[5]], x[o[6]], x[o[7]] } };
}

EXL2__LANES_FN void exl2__lanes_store_columns(float *to, size_t pitch, const float *from, size_t stride)
{
    for (uint32_t i = 0; i < 8; i += 4, to += 4 * pitch, from += 4) {
        float32x4x2_t ac = vzipq_f32(vld1q_f32(from), vld1q_f32(from + 2 * stride));
        float32x4x2_t bd = vzipq_f32(vld1q_f32(from + stride), vld1q_f32(from + 3 * stride));
        float32x4x2_t low = vzipq_f32(ac.val[0], bd.val[0]), high = vzipq_f32(ac.val[1], bd.val[1]);
        vst1q_f32(to, low.val[0]);
        vst1q_f32(to + pitch, low.val[1]);
        vst1q_f32(to + 2 * pitch, high.val[0]);
        vst1q_f32(to + 3 * pitch, high.val[1]);
    }
}

EXL2__LANES_FN void exl2__lanes_store_half(uint16_t *p, exl2__lanes x)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x.a)));
    vst1_u16(p + 4, vreinterpret_u16_f16(vcvt_f16_f32(x.b)));
}

EXL2__LANES_FN exl2__lanes exl2__lanes_load_half(const uint16_t *p)
{
    exl2__lanes x = { vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))),
                      vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4))) };
    return x;
}

EXL2__LANES_FN float exl2__lanes_sum(exl2__lanes low, exl2__lanes high)
{
    float32x4_t four = vaddq_f32(vaddq_f32(low.a, high.a), vaddq_f32(low.b, high.b));
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

#endif
#endif
#endif

/* cpu_vector.h: the parts of the fast paths that are not products: norms, gathers, RoPE, softmax, activations.
   takes: rows of activations.
   gives: exl2__cpu_vector_norm, exl2__cpu_vector_gather, exl2__cpu_vector_rope,
          exl2__cpu_vector_softmax, exl2__cpu_vector_activate and their like.
   owns:  nothing.

   These functions have eight lanes for every instruction set, so that the order of sums is the same. A sum has 16
   partial sums by index mod 16; then 8..15 are added to 0..7, 4..7 to 0..3, 2..3 to 0..1, and 1 to 0. */
#ifndef EXL2__CPU_VECTOR_H
#define EXL2__CPU_VECTOR_H

#include "cpu_fields.h"
#include "cpu_phases.h"

#ifdef EXL2__CPU_FAST

#define EXL2__CPU_VECTOR EXL2__TARGET_AVX2 static
#define EXL2__CPU_VECTOR_INLINE EXL2__FORCE_INLINE EXL2__TARGET_AVX2

EXL2__CPU_VECTOR_INLINE float exl2__cpu_vector_sum(__m256 low, __m256 high)
{
    __m256 eight = _mm256_add_ps(low, high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* Loads the first `count` lanes, 1..8; the other lanes are 0. */
EXL2__CPU_VECTOR_INLINE __m256 exl2__cpu_vector_load_some(const float *from, uint32_t count)
{
    __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(from, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), lanes));
}

EXL2__CPU_VECTOR_INLINE __m256 exl2__cpu_vector_load_upto(const float *from, uint32_t i, uint32_t count)
{
    return i + 8 <= count ? _mm256_loadu_ps(from + i)
         : i < count ? exl2__cpu_vector_load_some(from + i, count - i) : _mm256_setzero_ps();
}

/* e^x with an error of at most 2 ulp; 0 below -87.3, finite above 88. */
EXL2__CPU_VECTOR_INLINE __m256 exl2__cpu_vector_exp(__m256 x)
{
    const __m256 least = _mm256_set1_ps(-87.3f);
    __m256 tiny = _mm256_cmp_ps(x, least, _CMP_LT_OQ);
    x = _mm256_min_ps(_mm256_max_ps(x, least), _mm256_set1_ps(88.0f));
    __m256 n = _mm256_mul_ps(x, _mm256_set1_ps(1.44269504f));
    n = _mm256_round_ps(n, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693145752f), x); /* ln 2 in two parts; n times the first is exact */
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860677e-6f), r);
    __m256 y = _mm256_set1_ps(1.0f / 5040);
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f / 720));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f / 120));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f / 24));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f / 6));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(0.5f));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f));
    __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_andnot_ps(tiny, _mm256_mul_ps(y, _mm256_castsi256_ps(power)));
}

EXL2__CPU_VECTOR void exl2__cpu_vector_norm(const float *x, const float *weight, uint32_t count, float eps, float *out)
{
    EXL2__UNALIGNED_MOVES();
    __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
    for (uint32_t i = 0; i < count; i += 16) {
        __m256 a = exl2__cpu_vector_load_upto(x, i, count), b = exl2__cpu_vector_load_upto(x, i + 8, count);
        low = _mm256_fmadd_ps(a, a, low);
        high = _mm256_fmadd_ps(b, b, high);
    }
    float mean = exl2__cpu_vector_sum(low, high) / (float)count;
    __m256 factor = _mm256_set1_ps(1.0f / sqrtf(mean + eps));
    uint32_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256 y = _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), factor), _mm256_loadu_ps(weight + i));
        _mm256_storeu_ps(out + i, y);
    }
    for (; i < count; i++) {
        out[i] = x[i] * _mm256_cvtss_f32(factor) * weight[i];
    }
}

/* One block of one row: scaled [32] = the features of the packed rows times the scales of their fields. Returns the
   start value of the block's chain. */
EXL2__CPU_VECTOR_INLINE float exl2__cpu_vector_gather_block(const exl2__cpu_fields *fields, const uint16_t *order,
                                                           const float *x, float *scaled)
{
    __m256 sum[2] = { _mm256_setzero_ps(), _mm256_setzero_ps() };
    for (uint32_t i = 0; i < EXL2__CPU_BLOCK; i += 8) {
        const uint16_t *o = order + i;
        __m256 value = _mm256_setr_ps(x[o[0]], x[o[1]], x[o[2]], x[o[3]], x[o[4]], x[o[5]], x[o[6]], x[o[7]]);
        sum[i / 8 % 2] = _mm256_fmadd_ps(value, _mm256_loadu_ps(fields->centre + i), sum[i / 8 % 2]);
        _mm256_storeu_ps(scaled + i, _mm256_mul_ps(value, _mm256_loadu_ps(fields->scale + i)));
    }
    return exl2__cpu_vector_sum(sum[0], sum[1]);
}

/* The sum of the features of one block of one row, in the same order of sums. */
EXL2__CPU_VECTOR_INLINE float exl2__cpu_vector_gather_sum(const uint16_t *order, const float *x)
{
    __m256 sum[2] = { _mm256_setzero_ps(), _mm256_setzero_ps() };
    for (uint32_t i = 0; i < EXL2__CPU_BLOCK; i += 8) {
        const uint16_t *o = order + i;
        __m256 value = _mm256_setr_ps(x[o[0]], x[o[1]], x[o[2]], x[o[3]], x[o[4]], x[o[5]], x[o[6]], x[o[7]]);
        sum[i / 8 % 2] = _mm256_add_ps(value, sum[i / 8 % 2]);
    }
    return exl2__cpu_vector_sum(sum[0], sum[1]);
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
        for (uint32_t r = 0; r < n; r++) {
            float scaled[EXL2__CPU_BLOCK], *to = n == 1 ? out : scaled;
            centre[r] = exl2__cpu_vector_gather_block(fields, order, x + r * stride, to);
            for (uint32_t i = 0; n > 1 && i < EXL2__CPU_BLOCK; i++) {
                out[i * n + r] = scaled[i];
            }
        }
        if (p->shift) {
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
    uint32_t i = 0;
    for (; i + 8 <= half; i += 8) {
        __m256 c = _mm256_loadu_ps(cosine + i), s = _mm256_loadu_ps(sine + i), by = _mm256_set1_ps(scale);
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + half);
        _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)), by));
        _mm256_storeu_ps(x + i + half, _mm256_mul_ps(_mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)), by));
    }
    for (; i < half; i++) {
        float a = x[i], b = x[i + half];
        x[i] = (a * cosine[i] - b * sine[i]) * scale;
        x[i + half] = (b * cosine[i] + a * sine[i]) * scale;
    }
}

EXL2__CPU_VECTOR void exl2__cpu_vector_half(const float *x, uint32_t count, uint16_t *out)
{
    EXL2__UNALIGNED_MOVES();
    uint32_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(out + i), halves);
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
    __m256 best = _mm256_set1_ps(largest);
    for (; i + 8 <= keys; i += 8) {
        best = _mm256_max_ps(best, _mm256_loadu_ps(scores + i));
    }
    for (; i < keys; i++) {
        best = _mm256_max_ps(best, _mm256_set1_ps(scores[i]));
    }
    float lanes[8];
    _mm256_storeu_ps(lanes, best);
    for (uint32_t j = 0; j < 8; j++) {
        largest = lanes[j] > largest ? lanes[j] : largest;
    }
    __m256 sum[2] = { _mm256_setzero_ps(), _mm256_setzero_ps() }, shift = _mm256_set1_ps(largest);
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (i = 0; i < keys; i += 8) {
        __m256 inside = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32((int)(keys - i)), index));
        __m256 y = exl2__cpu_vector_exp(_mm256_sub_ps(_mm256_loadu_ps(scores + i), shift));
        y = _mm256_and_ps(y, inside);
        sum[i / 8 % 2] = _mm256_add_ps(sum[i / 8 % 2], y);
        _mm256_storeu_ps(scores + i, y);
    }
    for (; i < end; i += 8) {
        _mm256_storeu_ps(scores + i, _mm256_setzero_ps());
    }
    return 1.0f / exl2__cpu_vector_sum(sum[0], sum[1]);
}

/* Activations of the form x / (1 + e^-z). SILU: z = x. GELU_TANH: z = 1.5957691 (x + 0.044715 x^3). */
EXL2__CPU_VECTOR void exl2__cpu_vector_activate(exl2__act act, float *gate, const float *up, uint32_t count)
{
    EXL2__UNALIGNED_MOVES();
    const __m256 one = _mm256_set1_ps(1.0f), zero = _mm256_setzero_ps();
    if (act != EXL2__ACT_SILU && act != EXL2__ACT_GELU_TANH) {
        exl2__cpu_phases_activate(act, gate, up, count);
        return;
    }
    for (uint32_t i = 0; i < count; i += 8) {
        __m256 g = _mm256_loadu_ps(gate + i), z = g;
        if (act == EXL2__ACT_GELU_TANH) {
            __m256 cube = _mm256_mul_ps(_mm256_mul_ps(g, g), g);
            z = _mm256_mul_ps(_mm256_fmadd_ps(cube, _mm256_set1_ps(0.044715f), g), _mm256_set1_ps(1.59576912f));
        }
        __m256 y = _mm256_div_ps(g, _mm256_add_ps(one, exl2__cpu_vector_exp(_mm256_sub_ps(zero, z))));
        _mm256_storeu_ps(gate + i, up ? _mm256_mul_ps(y, _mm256_loadu_ps(up + i)) : y);
    }
}

/* tanh(x) = 1 - 2 / (e^2x + 1), which has the absolute error of a rounding. */
EXL2__CPU_VECTOR void exl2__cpu_vector_softcap(float *x, uint32_t count, float cap)
{
    EXL2__UNALIGNED_MOVES();
    const __m256 one = _mm256_set1_ps(1.0f), two = _mm256_set1_ps(2.0f), by = _mm256_set1_ps(2.0f / cap);
    for (uint32_t i = 0; i < count; i += 8) {
        __m256 e = exl2__cpu_vector_exp(_mm256_mul_ps(_mm256_loadu_ps(x + i), by));
        __m256 y = _mm256_sub_ps(one, _mm256_div_ps(two, _mm256_add_ps(e, one)));
        _mm256_storeu_ps(x + i, _mm256_mul_ps(y, _mm256_set1_ps(cap)));
    }
}

#endif
#endif

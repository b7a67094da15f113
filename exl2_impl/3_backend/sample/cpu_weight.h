/* cpu_weight.h: the arithmetic of sampling: logits as ordered integer keys, probabilities as integer weights.
   takes: a row of logits [vocab] f32, any bit pattern.
   gives: exl2__weight_key, exl2__weight_curve, exl2__weight_of, exl2__weight_least_key; in parts exl2__weight_maxima_of
          and _most, _sums_of and _total; exl2__weight_sums. */
#ifndef EXL2__CPU_WEIGHT_H
#define EXL2__CPU_WEIGHT_H

#include "../../0_base/bytes.h"
#include "../../0_base/cpu_path.h"
#include "../../0_base/half.h"
#include "../../0_base/simd.h"

#include <math.h>

/* Sums of integers do not depend on their order, so every backend that does the same arithmetic samples the same token
   from the same logits. The only float operations are one subtraction and one multiplication, in an order that cannot
   be contracted, and comparisons compare bits. So -ffast-math does not change results. */

/* ---- keys: integers in the order of the logits ---- */

#define EXL2__WEIGHT_KEY_INF 0x7F800000                /* of +infinity */
#define EXL2__WEIGHT_KEY_NONE (-EXL2__WEIGHT_KEY_INF)  /* of -infinity and NaN: the token is not allowed */
#define EXL2__WEIGHT_KEY_LEAST (-0x7F7FFFFF)           /* of the smallest finite logit */

/* Key of a logit: the bits of its magnitude, negated if it is negative; so -0 and +0 are equal. */
static inline int32_t exl2__weight_key(float logit)
{
    uint32_t bits = exl2__float_bits(logit), size = bits & 0x7FFFFFFFu;
    if (size > 0x7F800000u) {
        return EXL2__WEIGHT_KEY_NONE;
    }
    return bits >> 31 ? -(int32_t)size : (int32_t)size;
}

static inline float exl2__weight_key_logit(int32_t key)
{
    return exl2__bits_float(key < 0 ? 0x80000000u | (0u - (uint32_t)key) : (uint32_t)key);
}

/* ---- weights: 2^40 * exp((x - top) / T), in integers ---- */

#define EXL2__WEIGHT_ONE_LOG2 40
#define EXL2__WEIGHT_ONE ((uint64_t)1 << EXL2__WEIGHT_ONE_LOG2) /* weight of the top logit; 2^24 of them fit 64 bits */

#define EXL2__WEIGHT_STEP_LOG2 25           /* exponents are counted in steps of 2^-25 */
#define EXL2__WEIGHT_STEPS_MAX 1358954496u      /* 40.5 * 2^25: steps from which on weights are 0 */
#define EXL2__WEIGHT_STEPS_MAX_BITS 0x4EA20000u /* the same as the bits of a float */

/* 2^(31 - j / 8), rounded. */
static const uint32_t exl2__weight_eighths[8] = { 0x80000000u, 0x75606374u, 0x6BA27E65u, 0x62B39509u,
                                                  0x5A82799Au, 0x52FF6B55u, 0x4C1BF829u, 0x45CAE0F2u };

/* 2^(-t / 8) = 1 - t (C1 - t (C2 - t C3)) for t in [0, 1], in 0.32 fixed point; exact at both ends, elsewhere within
   2.6e-8. (The polynomial interpolates at the Chebyshev nodes, stretched so that the outermost are 0 and 1.) */
#define EXL2__WEIGHT_C1 372128541u
#define EXL2__WEIGHT_C2 16109532u
#define EXL2__WEIGHT_C3 445911u

/* 2^40 * 2^(-steps / 2^25) for steps < 41 * 2^25. It never increases with `steps`, is exactly 2^40 at 0, and has a
   relative error of at most 2.7e-8 plus an absolute error of at most 1. */
static inline uint64_t exl2__weight_exp2(uint32_t steps)
{
    uint64_t t = (uint32_t)(steps << 10); /* position within the eighth, in 0.32 fixed point */
    uint64_t eighth = exl2__weight_eighths[steps >> 22 & 7];
    uint64_t part = EXL2__WEIGHT_C2 - (t * EXL2__WEIGHT_C3 >> 32);
    part = t * (EXL2__WEIGHT_C1 - (t * part >> 32)) >> 32; /* 1 - 2^(-t / 8), 0.32 */
    return ((eighth << 32) - eighth * part) >> (63 - EXL2__WEIGHT_ONE_LOG2 + (steps >> EXL2__WEIGHT_STEP_LOG2));
}

/* How a weight depends on its logit x: steps = min((top - x) * slope, 40.5 * 2^25), rounded down. */
typedef struct exl2__weight_curve {
    int32_t top_key; /* key of the largest logit; above EXL2__WEIGHT_KEY_NONE */
    float top;
    float slope;     /* 2^25 * log2(e) / T */
    bool square;     /* smoothing: (top - x)^2 in place of top - x */
} exl2__weight_curve;

static inline exl2__weight_curve exl2__weight_curve_make(int32_t top_key, float temperature)
{
    exl2__weight_curve curve;
    curve.top_key = top_key;
    curve.top = exl2__weight_key_logit(top_key);
    /* The quotient is computed in double, because -ffast-math approximates float quotients. */
    curve.slope = (float)(48408812.646245942 / (double)temperature);
    curve.square = false;
    return curve;
}

/* The curve 2^40 * exp(-(factor / T) (x - top)^2). exl2__weight_sums does not support it. */
static inline exl2__weight_curve exl2__weight_curve_smooth(int32_t top_key, float temperature, float factor)
{
    exl2__weight_curve curve = exl2__weight_curve_make(top_key, temperature);
    curve.slope = (float)(48408812.646245942 / (double)temperature * (double)factor);
    curve.square = true;
    return curve;
}

/* The steps of a logit. If the row contains +infinity, the weights of such tokens are 2^40 and all others are 0. Else
   the relative error of the weight is at most 2^-25 + u * 2^-23 for a weight of 2^-u relative to the top (two roundings
   of 2^-24 times u ln 2, and the polynomial), plus less than 1 by rounding down. NaN and -infinity have the weight 0.
   */
static inline uint32_t exl2__weight_steps(const exl2__weight_curve *curve, float logit)
{
    if (curve->top_key == EXL2__WEIGHT_KEY_INF) {
        return exl2__weight_key(logit) == EXL2__WEIGHT_KEY_INF ? 0 : EXL2__WEIGHT_STEPS_MAX;
    }
    float distance = curve->top - logit;
    float below = (curve->square ? distance * distance : distance) * curve->slope;
    /* As integers, the bits of NaN and infinity are larger than those of every non-negative number. */
    uint32_t bits = exl2__min32(exl2__float_bits(below), EXL2__WEIGHT_STEPS_MAX_BITS);
    return (uint32_t)(int32_t)exl2__bits_float(bits);
}

static inline uint64_t exl2__weight_of(const exl2__weight_curve *curve, float logit)
{
    return exl2__weight_exp2(exl2__weight_steps(curve, logit));
}

/* The smallest key whose weight is at least `weight`, which is at most 2^40. (Weights never decrease with the key.) */
static inline int32_t exl2__weight_least_key(const exl2__weight_curve *curve, uint64_t weight)
{
    int64_t low = EXL2__WEIGHT_KEY_LEAST, high = curve->top_key;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (exl2__weight_of(curve, exl2__weight_key_logit((int32_t)middle)) >= weight) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return (int32_t)low;
}

/* The high half of the product: floor(a * b / 2^64). */
static inline uint64_t exl2__weight_scale(uint64_t a, uint64_t b)
{
    uint64_t a0 = a & 0xFFFFFFFFu, a1 = a >> 32, b0 = b & 0xFFFFFFFFu, b1 = b >> 32;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
    uint64_t other = a0 * b1 + (middle & 0xFFFFFFFFu);
    return a1 * b1 + (middle >> 32) + (other >> 32);
}

/* Natural logarithm of weight / 2^40; weight > 0. */
static inline double exl2__weight_log(uint64_t weight)
{
    return log((double)weight) - 27.725887222397812; /* 40 ln 2 */
}

/* ---- passes over the row, in blocks of 64 logits; the last block may be shorter ---- */

#define EXL2__WEIGHT_BLOCK 64u

static inline uint32_t exl2__weight_blocks(uint32_t vocab)
{
    return vocab / EXL2__WEIGHT_BLOCK + (vocab % EXL2__WEIGHT_BLOCK != 0);
}

EXL2__PRIVATE void exl2__weight_maxima_scalar(const float *logits, uint32_t begin, uint32_t end, int32_t *block_keys)
{
    for (uint32_t i = begin; i < end; i += EXL2__WEIGHT_BLOCK) {
        uint32_t stop = exl2__min32(end, i + EXL2__WEIGHT_BLOCK);
        int32_t most = EXL2__WEIGHT_KEY_NONE;
        for (uint32_t j = i; j < stop; j++) {
            int32_t key = exl2__weight_key(logits[j]);
            most = key > most ? key : most;
        }
        block_keys[i / EXL2__WEIGHT_BLOCK] = most;
    }
}

EXL2__PRIVATE void exl2__weight_sums_scalar(const exl2__weight_curve *curve, const float *logits, uint32_t begin,
                                            uint32_t end, uint64_t *block_sums)
{
    for (uint32_t i = begin; i < end; i += EXL2__WEIGHT_BLOCK) {
        uint32_t stop = exl2__min32(end, i + EXL2__WEIGHT_BLOCK);
        uint64_t sum = 0;
        for (uint32_t j = i; j < stop; j++) {
            sum += exl2__weight_of(curve, logits[j]);
        }
        block_sums[i / EXL2__WEIGHT_BLOCK] = sum;
    }
}

#if EXL2__X86_SIMD
/* The two passes over whole blocks with AVX2, eight logits at a time; the results are the same integers. */
EXL2__TARGET_AVX2
EXL2__PRIVATE void exl2__weight_maxima_avx2(const float *logits, uint32_t blocks, int32_t *block_keys)
{
    EXL2__UNALIGNED_MOVES();
    const __m256i size_mask = _mm256_set1_epi32(0x7FFFFFFF), infinity = _mm256_set1_epi32(EXL2__WEIGHT_KEY_INF);
    const __m256i none = _mm256_set1_epi32(EXL2__WEIGHT_KEY_NONE);
    for (uint32_t b = 0; b < blocks; b++) {
        __m256i most = none;
        for (uint32_t j = 0; j < EXL2__WEIGHT_BLOCK; j += 8) {
            __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)(logits + b * EXL2__WEIGHT_BLOCK + j));
            __m256i size = _mm256_and_si256(bits, size_mask);
            __m256i key = _mm256_blendv_epi8(_mm256_sign_epi32(size, bits), none, _mm256_cmpgt_epi32(size, infinity));
            most = _mm256_max_epi32(most, key);
        }
        __m128i half = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
        half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4E));
        half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0xB1));
        block_keys[b] = _mm_cvtsi128_si32(half);
    }
}

/* Four weights. t, eighth and part are 0.32 fixed point in the low halves of 64-bit lanes; the high halves are ignored.
   `base` is eighth << 32, `shift` is at most 63. */
EXL2__FORCE_INLINE EXL2__TARGET_AVX2
__m256i exl2__weight_exp2_avx2(__m256i t, __m256i eighth, __m256i base, __m256i shift)
{
    __m256i part = _mm256_srli_epi64(_mm256_mul_epu32(t, _mm256_set1_epi64x(EXL2__WEIGHT_C3)), 32);
    part = _mm256_sub_epi64(_mm256_set1_epi64x(EXL2__WEIGHT_C2), part);
    part = _mm256_srli_epi64(_mm256_mul_epu32(t, part), 32);
    part = _mm256_sub_epi64(_mm256_set1_epi64x(EXL2__WEIGHT_C1), part);
    part = _mm256_srli_epi64(_mm256_mul_epu32(t, part), 32);
    return _mm256_srlv_epi64(_mm256_sub_epi64(base, _mm256_mul_epu32(eighth, part)), shift);
}

/* curve->top must be finite. */
EXL2__TARGET_AVX2
EXL2__PRIVATE void exl2__weight_sums_avx2(const exl2__weight_curve *curve, const float *logits, uint32_t blocks,
                                          uint64_t *block_sums)
{
    EXL2__UNALIGNED_MOVES();
    const __m256 top = _mm256_set1_ps(curve->top), slope = _mm256_set1_ps(curve->slope);
    const __m256i max_bits = _mm256_set1_epi32((int)EXL2__WEIGHT_STEPS_MAX_BITS), low = _mm256_set1_epi64x(0xFFFFFFFF);
    const __m256i unit_shift = _mm256_set1_epi32(63 - EXL2__WEIGHT_ONE_LOG2);
    const __m256i eighths = _mm256_loadu_si256((const __m256i *)(const void *)exl2__weight_eighths);
    for (uint32_t b = 0; b < blocks; b++) {
        __m256i sum = _mm256_setzero_si256();
        for (uint32_t j = 0; j < EXL2__WEIGHT_BLOCK; j += 8) {
            __m256 x = _mm256_loadu_ps(logits + b * EXL2__WEIGHT_BLOCK + j);
            __m256 below = _mm256_mul_ps(_mm256_sub_ps(top, x), slope);
            __m256i bits = _mm256_min_epu32(_mm256_castps_si256(below), max_bits);
            __m256i steps = _mm256_cvttps_epi32(_mm256_castsi256_ps(bits));
            __m256i t = _mm256_slli_epi32(steps, 10);
            __m256i eighth = _mm256_permutevar8x32_epi32(eighths, _mm256_srli_epi32(steps, 22));
            __m256i shift = _mm256_add_epi32(_mm256_srli_epi32(steps, EXL2__WEIGHT_STEP_LOG2), unit_shift);
            __m256i even = exl2__weight_exp2_avx2(t, eighth, _mm256_slli_epi64(eighth, 32),
                                                  _mm256_and_si256(shift, low));
            __m256i odd = exl2__weight_exp2_avx2(_mm256_srli_epi64(t, 32), _mm256_srli_epi64(eighth, 32),
                                                 _mm256_andnot_si256(low, eighth), _mm256_srli_epi64(shift, 32));
            sum = _mm256_add_epi64(sum, _mm256_add_epi64(even, odd));
        }
        uint64_t lanes[4];
        _mm256_storeu_si256((__m256i *)(void *)lanes, sum);
        block_sums[b] = lanes[0] + lanes[1] + lanes[2] + lanes[3];
    }
}
#endif

/* Writes the largest key of each of the blocks [first, last). */
EXL2__PRIVATE void exl2__weight_maxima_of(exl2_cpu_path path, const float *logits, uint32_t vocab, uint32_t first,
                                          uint32_t last, int32_t *block_keys)
{
    uint32_t begin = first * EXL2__WEIGHT_BLOCK;
    (void)path;
#if EXL2__X86_SIMD
    uint32_t whole = exl2__min32(last, vocab / EXL2__WEIGHT_BLOCK);
    if (path >= EXL2_CPU_AVX2 && first < whole) {
        exl2__weight_maxima_avx2(logits + begin, whole - first, block_keys + first);
        begin = whole * EXL2__WEIGHT_BLOCK;
    }
#endif
    exl2__weight_maxima_scalar(logits, begin, exl2__min32(vocab, last * EXL2__WEIGHT_BLOCK), block_keys);
}

/* The largest of the blocks' keys. */
static inline int32_t exl2__weight_most(const int32_t *block_keys, uint32_t blocks)
{
    int32_t most = EXL2__WEIGHT_KEY_NONE;
    for (uint32_t b = 0; b < blocks; b++) {
        most = block_keys[b] > most ? block_keys[b] : most;
    }
    return most;
}

/* Writes the sum of the weights of each of the blocks [first, last). */
EXL2__PRIVATE void exl2__weight_sums_of(exl2_cpu_path path, const exl2__weight_curve *curve, const float *logits,
                                        uint32_t vocab, uint32_t first, uint32_t last, uint64_t *block_sums)
{
    uint32_t begin = first * EXL2__WEIGHT_BLOCK;
    (void)path;
#if EXL2__X86_SIMD
    uint32_t whole = exl2__min32(last, vocab / EXL2__WEIGHT_BLOCK);
    if (path >= EXL2_CPU_AVX2 && curve->top_key != EXL2__WEIGHT_KEY_INF && first < whole) {
        exl2__weight_sums_avx2(curve, logits + begin, whole - first, block_sums + first);
        begin = whole * EXL2__WEIGHT_BLOCK;
    }
#endif
    exl2__weight_sums_scalar(curve, logits, begin, exl2__min32(vocab, last * EXL2__WEIGHT_BLOCK), block_sums);
}

static inline uint64_t exl2__weight_total(const uint64_t *block_sums, uint32_t blocks)
{
    uint64_t sum = 0;
    for (uint32_t b = 0; b < blocks; b++) {
        sum += block_sums[b];
    }
    return sum;
}

/* Writes the sum of the weights of each block, and returns that of the row. */
EXL2__PRIVATE uint64_t exl2__weight_sums(exl2_cpu_path path, const exl2__weight_curve *curve, const float *logits,
                                         uint32_t vocab, uint64_t *block_sums)
{
    exl2__weight_sums_of(path, curve, logits, vocab, 0, exl2__weight_blocks(vocab), block_sums);
    return exl2__weight_total(block_sums, exl2__weight_blocks(vocab));
}

#endif

/* cpu_exl3_pairs.h: products of one row with matrices of EXL3 of 4 bits and the codebook MUL1, with AVX2, on CPUs whose
   products of 32-bit integers are two operations.
   takes: cpu_avx2.h, whose operations do all else; parts of the source EXL3.
   gives: exl2__cpu_avx2_pairs_ops. The bits are the same.

   A lane's 32 bits hold two states of 16: those of q and of q + 4, as their 4 * 4 bits lie between them. So no state is
   cut out, and three products of 16 bits give both halves of x = state * factor for 16 states, in place of four
   operations for two products of 32 bits: the upper half is that of state * (lower half of the factor) plus state *
   (upper half). Two products sum the bytes, times 64. A word of these sums below 486A is y of cpu_exl3_template.h as a
   float. So vectors of floats have the two states of each of four lanes, and factors of x are stored twice.
   In all 77 operations decode and multiply 64 weights. 50 of them are products and shifts, for which a CPU has two
   pipes, the others have a third one, too. The template has 87 and 54, as a product of 32 bits counts twice. */
#ifndef EXL2__CPU_EXL3_PAIRS_H
#define EXL2__CPU_EXL3_PAIRS_H

#include "cpu_avx2.h"

#if defined(EXL2__CPU_FAST) && EXL2__X86_SIMD && EXL2__EXL3

#define EXL2__CPU_PAIRS_PANEL 64u /* tiles whose factors are stored twice, then multiplied by eight columns of tiles */

/* The weights of y, as exl2__cpu_avx2_exl3_value. */
EXL2__FORCE_INLINE EXL2__TARGET_AVX2 __m256 exl2__cpu_pairs_value(__m256i y)
{
    const float times = EXL2__EXL3_MUL1_TIMES, less = EXL2__EXL3_MUL1_LESS, more = 8193.0f / 8192;
    __m256 sum = _mm256_castsi256_ps(y);
    __m256 wide = _mm256_fmadd_ps(sum, _mm256_set1_ps(times), _mm256_set1_ps(-less));
    EXL2__OPAQUE("x", wide);
    return _mm256_sub_ps(_mm256_fmadd_ps(sum, _mm256_set1_ps(times * more), _mm256_set1_ps(-less * more)), wide);
}

/* Adds to sums [2][8] the products of tiles [count][32] with x [count][4][2][4] for a group of eight lanes L. The lanes
   of the sums are L % 4 = 0 with q + 4 and q, then L % 4 = 1, of the group's first and second four; then those of 2
   and 3. */
EXL2__PRIVATE EXL2__NOINLINE EXL2__TARGET_AVX2 void exl2__cpu_pairs_tiles(const uint32_t *u, uint32_t group,
                                                                    uint32_t count, const float *x, float *sums)
{
    EXL2__UNALIGNED_MOVES();
    const __m256i low = _mm256_set1_epi16((short)(EXL2__EXL3_MUL1_FACTOR & 0xFFFF));
    const __m256i high = _mm256_set1_epi16((short)(EXL2__EXL3_MUL1_FACTOR >> 16));
    const __m256i times = _mm256_set1_epi8(64), base = _mm256_set1_epi16(EXL2__EXL3_MUL1_BASE >> 16);
    __m256 sum[2] = { _mm256_loadu_ps(sums), _mm256_loadu_ps(sums + 8) };
    for (uint32_t i = 0; i < count; i++, u += 32, x += 32) {
        __m256i own = _mm256_loadu_si256((const __m256i *)(const void *)(u + 8 * group));
        __m256i before = _mm256_loadu_si256((const __m256i *)(const void *)(u + 8 * group - 1));
        if (group == 0) { /* the ring's last word */
            before = _mm256_blend_epi32(before, _mm256_castsi128_si256(_mm_cvtsi32_si128((int)u[31])), 1);
        }
        __m256i pairs[4] = { _mm256_or_si256(_mm256_slli_epi32(before, 20), _mm256_srli_epi32(own, 12)),
                             _mm256_or_si256(_mm256_slli_epi32(before, 24), _mm256_srli_epi32(own, 8)),
                             _mm256_or_si256(_mm256_slli_epi32(before, 28), _mm256_srli_epi32(own, 4)), own };
        EXL2__UNROLL
        for (uint32_t q = 0; q < 4; q++) {
            __m256i lower = _mm256_mullo_epi16(pairs[q], low);
            __m256i upper = _mm256_add_epi16(_mm256_mulhi_epu16(pairs[q], low), _mm256_mullo_epi16(pairs[q], high));
            __m256i n = _mm256_add_epi16(_mm256_maddubs_epi16(lower, times), _mm256_maddubs_epi16(upper, times));
            __m256 a = exl2__cpu_pairs_value(_mm256_unpacklo_epi16(n, base));
            __m256 b = exl2__cpu_pairs_value(_mm256_unpackhi_epi16(n, base));
            sum[0] = _mm256_fmadd_ps(_mm256_broadcast_ps((const __m128 *)(const void *)(x + 8 * q)), a, sum[0]);
            sum[1] = _mm256_fmadd_ps(_mm256_broadcast_ps((const __m128 *)(const void *)(x + 8 * q + 4)), b, sum[1]);
        }
    }
    _mm256_storeu_ps(sums, sum[0]);
    _mm256_storeu_ps(sums + 8, sum[1]);
}

/* Sums of a row x [tiles][16] for eight columns of tiles, `pitch` words apart: z [128]. */
EXL2__PRIVATE EXL2__TARGET_AVX2 void exl2__cpu_pairs_columns(const uint32_t *u, size_t pitch, uint32_t tiles,
                                                             const float *x, float *z)
{
    EXL2__UNALIGNED_MOVES();
    float sums[8][4][16], twice[EXL2__CPU_PAIRS_PANEL * 32];
    memset(sums, 0, sizeof sums);
    for (uint32_t i = 0, count; i < tiles; i += count) {
        count = exl2__min32(tiles - i, EXL2__CPU_PAIRS_PANEL);
        for (uint32_t k = 0; k < count * 4; k++) {
            __m128 four = _mm_loadu_ps(x + 16 * (size_t)i + 4 * k);
            _mm_storeu_ps(twice + 8 * k, _mm_unpacklo_ps(four, four));
            _mm_storeu_ps(twice + 8 * k + 4, _mm_unpackhi_ps(four, four));
        }
        for (uint32_t column = 0; column < 8; column++) {
            for (uint32_t group = 0; group < 4; group++) {
                exl2__cpu_pairs_tiles(u + column * pitch + 32 * (size_t)i, group, count, twice, sums[column][group]);
            }
        }
    }
    for (uint32_t i = 0; i < 32; i++) { /* output L / 4 + 8 c: (0 + 1) + (2 + 3) by L % 4; c = 1 is first */
        const float *of = sums[i / 4][i % 4];
        float *to = z + i / 4 * 16 + i % 4 * 2;
        for (uint32_t half = 0; half < 2; half++, of += 4) {
            to[half] = (of[1] + of[3]) + (of[9] + of[11]);
            to[half + 8] = (of[0] + of[2]) + (of[8] + of[10]);
        }
    }
}

EXL2__PRIVATE EXL2__TARGET_AVX2 void exl2__cpu_pairs_exl3_product(const exl2__cpu_part *p, const exl2__cpu_input *input,
                                                                  uint32_t begin, uint32_t end, float *out,
                                                                  size_t stride, float add)
{
    EXL2__UNALIGNED_MOVES();
    if (input->rows != 1 || p->exl3.words != 64 || p->exl3.codebook != EXL2__EXL3_MUL1) {
        exl2__cpu_avx2_exl3_product(p, input, begin, end, out, stride, add);
        return;
    }
    for (uint32_t strip = begin; strip < end; strip += EXL2__CPU_EXL3_STRIPS) {
        float z[EXL2__EXL3_BLOCK];
        uint32_t count = exl2__min32(end - strip, EXL2__CPU_EXL3_STRIPS) * EXL2__CPU_STRIP;
        exl2__cpu_pairs_columns(exl2__cpu_avx2_exl3_column(p, 2 * strip), (size_t)p->in / 16 * 32, p->in / 16, input->x,
                                z);
        exl2__cpu_avx2_exl3_finish(p, strip, count, z, out, add);
    }
}

EXL2__PRIVATE EXL2__TARGET_AVX2 void exl2__cpu_pairs_exl3_gather(const exl2__cpu_part *p, const float *x, size_t stride,
                                                                 uint32_t n, float *out)
{
    exl2__cpu_avx2_exl3_gather(p, x, stride, n, out);
}

static const exl2__cpu_ops exl2__cpu_avx2_pairs_ops = EXL2__CPU_AVX2_OPS("avx2pairs", pairs);

#undef EXL2__CPU_PAIRS_PANEL
#endif
#endif

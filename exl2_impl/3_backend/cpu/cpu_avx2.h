/* cpu_avx2.h: products and attention in eight lanes, for CPUs with AVX2, FMA and F16C.
   takes: cpu_simd_template.h.
   gives: exl2__cpu_avx2_ops. */
#ifndef EXL2__CPU_AVX2_H
#define EXL2__CPU_AVX2_H

#include "cpu_vector.h"

#if defined(EXL2__CPU_FAST) && EXL2__X86_SIMD

#define EXL2__V_NAME(name) exl2__cpu_avx2_##name
#define EXL2__V_TARGET EXL2__TARGET_AVX2
#define EXL2__V __m256
#define EXL2__V_INT __m256i
#define EXL2__V_LANES 8u
#define EXL2__V_ROWS 6u
#define EXL2__V_ALONE 8u
#define EXL2__V_TWO 4u
#define EXL2__V_ACROSS 2u
#define EXL2__V_TILES(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define EXL2__V_QUERIES(X) X(1) X(2) X(3) X(4)
#define EXL2__V_QUERIES_MOST 4u
#define EXL2__V_CODE_QUERIES(X) X(1) X(2) X(3)
#define EXL2__V_CODE_QUERIES_MOST 3u
#define EXL2__V_SET(x) _mm256_set1_ps(x)
#define EXL2__V_LOAD(p) _mm256_loadu_ps(p)
#define EXL2__V_STORE(p, v) _mm256_storeu_ps(p, v)
#define EXL2__V_ADD(a, b) _mm256_add_ps(a, b)
#define EXL2__V_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define EXL2__V_HALF(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define EXL2__V_BF16(p) \
    _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p))), 16))
#define EXL2__V_BITS(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define EXL2__V_SET_BITS(u) _mm256_set1_epi32((int)(u))
#define EXL2__V_AND(a, b) _mm256_and_si256(a, b)
#define EXL2__V_FLOAT(i) _mm256_cvtepi32_ps(i)
#define EXL2__V_PREFETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
#define EXL2__V_TOPS(t, w) \
    _mm256_or_si256(_mm256_srli_epi32(t, 2), _mm256_and_si256(w, _mm256_set1_epi32((int)0xC0000000)))
#define EXL2__V_SHIFT(v, n) _mm256_sll_epi32(v, _mm_cvtsi32_si128((int)(n)))
#define EXL2__V_BYTES(p) _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p)))

#include "cpu_simd_template.h"

static const exl2__cpu_ops exl2__cpu_avx2_ops = {
    "avx2", 6, 12,
    exl2__cpu_vector_norm, exl2__cpu_vector_gather, exl2__cpu_avx2_product,
    exl2__cpu_vector_rope, exl2__cpu_vector_half,
    exl2__cpu_avx2_scores, exl2__cpu_vector_softmax, exl2__cpu_avx2_weighted_sum,
    exl2__cpu_avx2_scores_of_codes, exl2__cpu_avx2_weighted_codes, exl2__cpu_vector_activate, exl2__cpu_vector_softcap,
    exl2__cpu_vector_shrink, exl2__cpu_vector_expand,
};

#endif
#endif

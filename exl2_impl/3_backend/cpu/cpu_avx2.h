/* cpu_avx2.h: products and attention in eight lanes, for CPUs with AVX2, FMA and F16C.
   takes: cpu_simd_template.h.
   gives: exl2__cpu_avx2_ops, exl2__cpu_avxvnni_ops. */
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

#define EXL2__V_JOIN(a, b, n) _mm256_or_si256(_mm256_slli_epi32(a, 32 - (n)), _mm256_srli_epi32(b, n))
#define EXL2__V_MIDDLES \
    _mm256_setr_epi32((int)0x80800201, (int)0x80800605, (int)0x80800A09, (int)0x80800E0D, (int)0x80800201, \
                      (int)0x80800605, (int)0x80800A09, (int)0x80800E0D)
#define EXL2__V_TAKE(v, n) /* 8: bytes 1 and 2 of each word, by a shuffle */ \
    ((n) == 8 ? _mm256_shuffle_epi8(v, EXL2__V_MIDDLES) \
              : _mm256_and_si256(_mm256_srli_epi32(v, n), _mm256_set1_epi32(0xFFFF)))
#define EXL2__V_TAKE_AT(v, i) _mm256_and_si256(_mm256_srlv_epi32(v, i), _mm256_set1_epi32(0xFFFF))
#define EXL2__V_TAKES false
#define EXL2__V_SHRI(v, n) _mm256_srli_epi32(v, n)
#define EXL2__V_SRAI(v, n) _mm256_srai_epi32(v, n)
#define EXL2__V_INT_ADD(a, b) _mm256_add_epi32(a, b)
#define EXL2__V_INT_SUB(a, b) _mm256_sub_epi32(a, b)
#define EXL2__V_INT_MUL(a, b) _mm256_mullo_epi32(a, b)
#define EXL2__V_MASK_XOR(v, m, c) _mm256_xor_si256(_mm256_and_si256(v, m), c)
#define EXL2__V_BITS_FLOAT(v) _mm256_castsi256_ps(v)
#define EXL2__V_LOW(v) _mm256_madd_epi16(v, _mm256_set1_epi32(8192))
#define EXL2__V_SUM_TIMES 1.0f
#define EXL2__V_SUM_LESS 159360.0f
#define EXL2__V_SUM_BYTES(v) \
    _mm256_castsi256_ps(_mm256_or_si256(_mm256_madd_epi16(_mm256_maddubs_epi16(v, _mm256_set1_epi8(1)), \
                                                          _mm256_set1_epi16(4 * 887)), _mm256_set1_epi32(0x48000000)))
#define EXL2__V_OPAQUE(v) EXL2__OPAQUE("x", v)
#define EXL2__V_SUB(a, b) _mm256_sub_ps(a, b)
#define EXL2__V_MUL(a, b) _mm256_mul_ps(a, b)
#define EXL2__V_BY_BYTES 1
#define EXL2__V_HALVES(a, b) \
    _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(a))), \
                            _mm_loadu_si128((const __m128i *)(const void *)(b)), 1)
#define EXL2__V_SHUFFLE(v, i) _mm256_shuffle_epi8(v, i)
#define EXL2__V_OR(a, b) _mm256_or_si256(a, b)
#define EXL2__V_FIRST(v, u) _mm256_blend_epi32(v, _mm256_castsi128_si256(_mm_cvtsi32_si128((int)(u))), 1)
#define EXL2__V_FOURS(p) _mm256_broadcast_ps((const __m128 *)(const void *)(p))
#define EXL2__V_SWAP1(v) _mm256_permute_ps(v, 0xB1)
#define EXL2__V_SWAP2(v) _mm256_permute_ps(v, 0x4E)
#define EXL2__V_SWAP4(v) _mm256_permute2f128_ps(v, v, 1)
#define EXL2__V_SWAP8(v) (v)
#define EXL2__V_FOLD(to, v) exl2__cpu_avx2_fold(to, v)
#define EXL2__V_UNROLL EXL2__UNROLL
#define EXL2__V_EXL3_ROWS(X) X(6) X(5) X(4) X(3) X(2) X(1)
#define EXL2__V_EXL3_ROWS_MOST 6u

EXL2__FORCE_INLINE EXL2__TARGET_AVX2 void exl2__cpu_avx2_fold(float *to, __m256 v)
{
    __m256 two = _mm256_hadd_ps(v, v), one = _mm256_hadd_ps(two, two);
    to[0] = _mm_cvtss_f32(_mm256_castps256_ps128(one));
    to[1] = _mm_cvtss_f32(_mm256_extractf128_ps(one, 1));
}

#include "cpu_exl3_template.h"

#if EXL2__AVX_VNNI
/* Matrices of EXL3 once more, for CPUs that sum bytes (Alder Lake and later). The bits are the same. */
#undef EXL2__V_NAME
#undef EXL2__V_TARGET
#undef EXL2__V_SUM_TIMES
#undef EXL2__V_SUM_LESS
#undef EXL2__V_SUM_BYTES
#define EXL2__V_NAME(name) exl2__cpu_avxvnni_##name
#define EXL2__V_TARGET EXL2__TARGET_AVX_VNNI
#define EXL2__V_SUM_BYTES(v) \
    _mm256_castsi256_ps(_mm256_dpbusd_avx_epi32(_mm256_set1_epi32(EXL2__EXL3_MUL1_BASE), v, _mm256_set1_epi8(64)))
#define EXL2__V_SUM_TIMES EXL2__EXL3_MUL1_TIMES
#define EXL2__V_SUM_LESS EXL2__EXL3_MUL1_LESS

#include "cpu_exl3_template.h"

#undef EXL2__V_NAME
#undef EXL2__V_TARGET
#define EXL2__V_NAME(name) exl2__cpu_avx2_##name
#define EXL2__V_TARGET EXL2__TARGET_AVX2
#endif

#include "cpu_simd_template.h"
#undef EXL2__V_MIDDLES

/* All but EXL3 is the same. */
#define EXL2__CPU_AVX2_OPS(name, isa) { \
    name, 6, 12, \
    exl2__cpu_vector_norm, exl2__cpu_vector_gather, exl2__cpu_avx2_product, \
    exl2__cpu_vector_rope, exl2__cpu_vector_half, \
    exl2__cpu_avx2_scores, exl2__cpu_vector_softmax, exl2__cpu_avx2_weighted_sum, \
    exl2__cpu_avx2_scores_of_codes, exl2__cpu_avx2_weighted_codes, exl2__cpu_vector_activate, \
    exl2__cpu_vector_softcap, EXL2__CPU_EXL3_OPS(isa) \
    exl2__cpu_vector_shrink, exl2__cpu_vector_expand, \
}

static const exl2__cpu_ops exl2__cpu_avx2_ops = EXL2__CPU_AVX2_OPS("avx2", avx2);
#if EXL2__AVX_VNNI
static const exl2__cpu_ops exl2__cpu_avxvnni_ops = EXL2__CPU_AVX2_OPS("avxvnni", avxvnni);
#endif

#endif
#endif

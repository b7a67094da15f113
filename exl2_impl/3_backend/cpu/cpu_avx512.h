/* cpu_avx512.h: products and attention in sixteen lanes, for CPUs with AVX-512 (F, BW, DQ, VL).
   takes: cpu_simd_template.h.
   gives: exl2__cpu_avx512_ops, exl2__cpu_vnni_ops. */
#ifndef EXL2__CPU_AVX512_H
#define EXL2__CPU_AVX512_H

#include "cpu_vector.h"

#if defined(EXL2__CPU_FAST) && EXL2__X86_SIMD

#define EXL2__V_NAME(name) exl2__cpu_avx512_##name
#define EXL2__V_TARGET EXL2__TARGET_AVX512
#define EXL2__V __m512
#define EXL2__V_INT __m512i
#define EXL2__V_LANES 16u
#define EXL2__V_ROWS 12u
#define EXL2__V_ALONE 4u
#define EXL2__V_TWO 2u
#define EXL2__V_ACROSS 2u
#define EXL2__V_TILES(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(12)
#define EXL2__V_QUERIES(X) X(1) X(2) X(3) X(4) X(8)
#define EXL2__V_QUERIES_MOST 8u
#define EXL2__V_CODE_QUERIES(X) X(1) X(2) X(3)
#define EXL2__V_CODE_QUERIES_MOST 3u
#define EXL2__V_SET(x) _mm512_set1_ps(x)
#define EXL2__V_LOAD(p) _mm512_loadu_ps(p)
#define EXL2__V_STORE(p, v) _mm512_storeu_ps(p, v)
#define EXL2__V_ADD(a, b) _mm512_add_ps(a, b)
#define EXL2__V_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define EXL2__V_HALF(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define EXL2__V_BF16(p) \
    _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(p))), 16))
#define EXL2__V_BITS(p) _mm512_loadu_si512(p)
#define EXL2__V_SET_BITS(u) _mm512_set1_epi32((int)(u))
#define EXL2__V_AND(a, b) _mm512_and_si512(a, b)
#define EXL2__V_FLOAT(i) _mm512_cvtepi32_ps(i)
#define EXL2__V_PREFETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
#define EXL2__V_TOPS(t, w) /* t >> 2 | (w & C): 0xF8 of a, b, c is a | (b & c) */ \
    _mm512_ternarylogic_epi32(_mm512_srli_epi32(t, 2), w, _mm512_set1_epi32((int)0xC0000000), 0xF8)
#define EXL2__V_SHIFT(v, n) _mm512_sll_epi32(v, _mm_cvtsi32_si128((int)(n)))
#define EXL2__V_BYTES(p) _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p)))

#define EXL2__V_FUNNEL(a, b, l, r) _mm512_or_si512(_mm512_sllv_epi32(a, l), _mm512_srlv_epi32(b, r))
#define EXL2__V_JOIN(a, b, n) _mm512_or_si512(_mm512_slli_epi32(a, 32 - (n)), _mm512_srli_epi32(b, n))
#define EXL2__V_TAKE(v, n) /* 8: bytes 1 and 2 of each word, by a shuffle */ \
    ((n) == 8 ? _mm512_shuffle_epi8(v, _mm512_set4_epi32((int)0x80800E0D, (int)0x80800A09, (int)0x80800605, \
                                                         (int)0x80800201)) \
              : _mm512_and_si512(_mm512_srli_epi32(v, n), _mm512_set1_epi32(0xFFFF)))
#define EXL2__V_TAKE_AT(v, i) _mm512_and_si512(_mm512_srlv_epi32(v, i), _mm512_set1_epi32(0xFFFF))
#define EXL2__V_TAKE_INDEX(n) _mm512_set1_epi32((int)(n))
#define EXL2__V_TAKES false
#define EXL2__V_SHRI(v, n) _mm512_srli_epi32(v, n)
#define EXL2__V_SRAI(v, n) _mm512_srai_epi32(v, n)
#define EXL2__V_INT_ADD(a, b) _mm512_add_epi32(a, b)
#define EXL2__V_INT_SUB(a, b) _mm512_sub_epi32(a, b)
#define EXL2__V_INT_MUL(a, b) _mm512_mullo_epi32(a, b)
#define EXL2__V_MASK_XOR(v, m, c) _mm512_ternarylogic_epi32(v, m, c, 0x6A) /* (v & m) ^ c */
#define EXL2__V_BITS_FLOAT(v) _mm512_castsi512_ps(v)
#define EXL2__V_LOW(v) _mm512_madd_epi16(v, _mm512_set1_epi32(8192))
#define EXL2__V_SUM_TIMES 1.0f
#define EXL2__V_SUM_LESS 159360.0f
#define EXL2__V_SUM_BYTES(v) \
    _mm512_castsi512_ps(_mm512_or_si512(_mm512_madd_epi16(_mm512_maddubs_epi16(v, _mm512_set1_epi8(1)), \
                                                          _mm512_set1_epi16(4 * 887)), _mm512_set1_epi32(0x48000000)))
#define EXL2__V_OPAQUE(v) EXL2__OPAQUE("v", v)
#define EXL2__V_SUB(a, b) _mm512_sub_ps(a, b)
#define EXL2__V_MUL(a, b) _mm512_mul_ps(a, b)
#define EXL2__V_PICK(a, b, i) _mm512_permutex2var_epi32(a, i, b)
#define EXL2__V_PICK_NEAR(a, i) _mm512_permutexvar_epi32(i, a)
#define EXL2__V_PICK_INDEX(i) (i)
#define EXL2__V_BY_BYTES 0
#define EXL2__V_NEAR true
#define EXL2__V_FIRST(v, u) _mm512_mask_set1_epi32(v, 1, (int)(u))
#define EXL2__V_FOURS(p) _mm512_broadcast_f32x4(_mm_loadu_ps(p))
#define EXL2__V_SWAP1(v) _mm512_permute_ps(v, 0xB1)
#define EXL2__V_SWAP2(v) _mm512_permute_ps(v, 0x4E)
#define EXL2__V_SWAP4(v) _mm512_shuffle_f32x4(v, v, 0xB1)
#define EXL2__V_SWAP8(v) _mm512_shuffle_f32x4(v, v, 0x4E)
#define EXL2__V_FOLD(to, v) exl2__cpu_avx512_fold(to, v)
#define EXL2__V_UNROLL EXL2__UNROLL
#define EXL2__V_EXL3_ROWS(X) X(8) X(6) X(4) X(3) X(2) X(1)
#define EXL2__V_EXL3_ROWS_MOST 8u

EXL2__FORCE_INLINE EXL2__TARGET_AVX512 void exl2__cpu_avx512_fold(float *to, __m512 v)
{
    v = _mm512_add_ps(v, _mm512_permute_ps(v, 0xB1));
    v = _mm512_add_ps(v, _mm512_permute_ps(v, 0x4E));
    _mm_storeu_ps(to, _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, v)));
}

#include "cpu_exl3_template.h"

/* Matrices of EXL3 once more, for CPUs that sum bytes and move bits across them (VNNI, VBMI, VBMI2: Ice Lake, Zen 4).
   The bits are the same. */
#undef EXL2__V_NAME
#undef EXL2__V_TARGET
#undef EXL2__V_FUNNEL
#undef EXL2__V_JOIN
#undef EXL2__V_TAKE
#undef EXL2__V_TAKE_AT
#undef EXL2__V_TAKE_INDEX
#undef EXL2__V_TAKES
#undef EXL2__V_SUM_TIMES
#undef EXL2__V_SUM_LESS
#undef EXL2__V_SUM_BYTES
#define EXL2__V_SUM_TIMES EXL2__EXL3_MUL1_TIMES
#define EXL2__V_SUM_LESS EXL2__EXL3_MUL1_LESS
#define EXL2__V_NAME(name) exl2__cpu_vnni_##name
#define EXL2__V_TARGET EXL2__TARGET_VNNI
#define EXL2__V_FUNNEL(a, b, l, r) _mm512_shldv_epi32(a, b, l)
#define EXL2__V_JOIN(a, b, n) _mm512_shldi_epi32(a, b, 32 - (n))
#define EXL2__V_TAKE(v, n) EXL2__V_TAKE_AT(v, EXL2__V_TAKE_INDEX(n))
#define EXL2__V_TAKE_AT(v, i) _mm512_maskz_multishift_epi64_epi8(0x3333333333333333, i, v)
#define EXL2__V_TAKE_INDEX(n) /* first bits of bytes 0, 1 of both halves of 64 bits */ \
    _mm512_set1_epi64((long long)(0x0000282000000800 + (n) * 0x0101010101010101ull))
#define EXL2__V_TAKES true
#define EXL2__V_SUM_BYTES(v) \
    _mm512_castsi512_ps(_mm512_dpbusd_epi32(_mm512_set1_epi32(EXL2__EXL3_MUL1_BASE), v, _mm512_set1_epi8(64)))

#include "cpu_exl3_template.h"

#undef EXL2__V_NAME
#undef EXL2__V_TARGET
#define EXL2__V_NAME(name) exl2__cpu_avx512_##name
#define EXL2__V_TARGET EXL2__TARGET_AVX512

#include "cpu_simd_template.h"

/* All but EXL3 is the same. */
#define EXL2__CPU_AVX512_OPS(name, isa) { \
    name, 12, 12, \
    exl2__cpu_vector_norm, exl2__cpu_vector_gather, exl2__cpu_avx512_product, \
    exl2__cpu_vector_rope, exl2__cpu_vector_half, \
    exl2__cpu_avx512_scores, exl2__cpu_vector_softmax, exl2__cpu_avx512_weighted_sum, \
    exl2__cpu_avx512_scores_of_codes, exl2__cpu_avx512_weighted_codes, exl2__cpu_vector_activate, \
    exl2__cpu_vector_softcap, EXL2__CPU_EXL3_OPS(isa) \
    exl2__cpu_vector_shrink, exl2__cpu_vector_expand, \
}

static const exl2__cpu_ops exl2__cpu_avx512_ops = EXL2__CPU_AVX512_OPS("avx512", avx512);
static const exl2__cpu_ops exl2__cpu_vnni_ops = EXL2__CPU_AVX512_OPS("vnni", vnni);

#endif
#endif

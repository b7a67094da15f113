/* cpu_neon.h: products and attention in four lanes, for every aarch64 CPU.
   takes: cpu_simd_template.h.
   gives: exl2__cpu_neon_ops. */
#ifndef EXL2__CPU_NEON_H
#define EXL2__CPU_NEON_H

#include "cpu_vector.h"

#if defined(EXL2__CPU_FAST) && EXL2__NEON_SIMD

#define EXL2__V_NAME(name) exl2__cpu_neon_##name
#define EXL2__V_TARGET
#define EXL2__V float32x4_t
#define EXL2__V_INT uint32x4_t
#define EXL2__V_LANES 4u
#define EXL2__V_ROWS 12u
#define EXL2__V_ALONE 8u
#define EXL2__V_TWO 4u
#define EXL2__V_ACROSS 2u
#define EXL2__V_TILES(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(12)
#define EXL2__V_QUERIES(X) X(1) X(2) X(3) X(4) X(8)
#define EXL2__V_QUERIES_MOST 8u
#define EXL2__V_CODE_QUERIES(X) X(1) X(2) X(3)
#define EXL2__V_CODE_QUERIES_MOST 3u
#define EXL2__V_SET(x) vdupq_n_f32(x)
#define EXL2__V_LOAD(p) vld1q_f32(p)
#define EXL2__V_STORE(p, v) vst1q_f32(p, v)
#define EXL2__V_ADD(a, b) vaddq_f32(a, b)
#define EXL2__V_FMA(a, b, c) vfmaq_f32(c, a, b)
#define EXL2__V_HALF(p) vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)(const void *)(p))))
#define EXL2__V_BF16(p) vreinterpretq_f32_u32(vshll_n_u16(vld1_u16((const uint16_t *)(p)), 16))
#define EXL2__V_BITS(p) vld1q_u32(p)
#define EXL2__V_SET_BITS(u) vdupq_n_u32(u)
#define EXL2__V_AND(a, b) vandq_u32(a, b)
#define EXL2__V_FLOAT(i) vcvtq_f32_s32(vreinterpretq_s32_u32(i))
#define EXL2__V_PREFETCH(p) ((void)(p))
#define EXL2__V_TOPS(t, w) vorrq_u32(vshrq_n_u32(t, 2), vandq_u32(w, vdupq_n_u32(0xC0000000u)))
#define EXL2__V_SHIFT(v, n) vshlq_u32(v, vdupq_n_s32((int32_t)(n)))
#define EXL2__V_BYTES(p) \
    vreinterpretq_u32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(exl2__load32(p)))))))

#define EXL2__V_RIGHT(v, n) vshlq_u32(v, vnegq_s32(vreinterpretq_s32_u32(n)))
#define EXL2__V_FUNNEL(a, b, l, r) vorrq_u32(vshlq_u32(a, vreinterpretq_s32_u32(l)), EXL2__V_RIGHT(b, r))
#define EXL2__V_JOIN(a, b, n) vsliq_n_u32(vshrq_n_u32(b, n), a, 32 - (n))
#define EXL2__V_TAKE(v, n) vandq_u32(vshrq_n_u32(v, n), vdupq_n_u32(0xFFFF))
#define EXL2__V_TAKE_AT(v, i) vandq_u32(vshlq_u32(v, vreinterpretq_s32_u32(i)), vdupq_n_u32(0xFFFF))
#define EXL2__V_TAKE_INDEX(n) vreinterpretq_u32_s32(vdupq_n_s32(-(int32_t)(n)))
#define EXL2__V_TAKES false
#define EXL2__V_SHRI(v, n) vshrq_n_u32(v, n)
#define EXL2__V_SRAI(v, n) vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(v), n))
#define EXL2__V_INT_ADD(a, b) vaddq_u32(a, b)
#define EXL2__V_INT_SUB(a, b) vsubq_u32(a, b)
#define EXL2__V_INT_MUL(a, b) vmulq_u32(a, b)
#define EXL2__V_MASK_XOR(v, m, c) veorq_u32(vandq_u32(v, m), c)
#define EXL2__V_BITS_FLOAT(v) vreinterpretq_f32_u32(v)
#define EXL2__V_LOW(v) EXL2__V_SRAI(EXL2__V_SHIFT(v, 16), 3)
#define EXL2__V_SUM_BASE 8388608.0f /* 2^23, whose bits are those of the sum's float */
#define EXL2__V_SUM_BYTES(v) \
    vreinterpretq_f32_u32(vorrq_u32(vpaddlq_u16(vpaddlq_u8(vreinterpretq_u8_u32(v))), vdupq_n_u32(0x4B000000)))
#define EXL2__V_SUB(a, b) vsubq_f32(a, b)
#define EXL2__V_MUL(a, b) vmulq_f32(a, b)
#define EXL2__V_PICK(a, b, i) \
    vreinterpretq_u32_u8(vqtbl2q_u8((uint8x16x2_t){ { vreinterpretq_u8_u32(a), vreinterpretq_u8_u32(b) } }, \
                                    vreinterpretq_u8_u32(i)))
#define EXL2__V_PICK_NEAR(a, i) vreinterpretq_u32_u8(vqtbl1q_u8(vreinterpretq_u8_u32(a), vreinterpretq_u8_u32(i)))
#define EXL2__V_PICK_INDEX(i) vaddq_u32(vmulq_u32(i, vdupq_n_u32(0x04040404)), vdupq_n_u32(0x03020100)) /* bytes */
#define EXL2__V_BY_BYTES 0
#define EXL2__V_NEAR false
#define EXL2__V_FIRST(v, u) vsetq_lane_u32(u, v, 0)
#define EXL2__V_FOURS(p) vld1q_f32(p)
#define EXL2__V_SWAP1(v) vrev64q_f32(v)
#define EXL2__V_SWAP2(v) vextq_f32(v, v, 2)
#define EXL2__V_SWAP4(v) (v)
#define EXL2__V_SWAP8(v) (v)
#define EXL2__V_FOLD(to, v) (*(to) = vaddvq_f32(v))
#define EXL2__V_UNROLL EXL2__UNROLL
#define EXL2__V_EXL3_ROWS(X) X(8) X(6) X(4) X(3) X(2) X(1)
#define EXL2__V_EXL3_ROWS_MOST 8u

#include "cpu_exl3_template.h"
#include "cpu_simd_template.h"
#undef EXL2__V_RIGHT

static const exl2__cpu_ops exl2__cpu_neon_ops = {
    "neon", 12, 8,
    exl2__cpu_vector_norm, exl2__cpu_vector_gather, exl2__cpu_neon_product,
    exl2__cpu_vector_rope, exl2__cpu_vector_half,
    exl2__cpu_neon_scores, exl2__cpu_vector_softmax, exl2__cpu_neon_weighted_sum,
    exl2__cpu_neon_scores_of_codes, exl2__cpu_neon_weighted_codes, exl2__cpu_vector_activate, exl2__cpu_vector_softcap,
    EXL2__CPU_EXL3_OPS(neon)
    exl2__cpu_vector_shrink, exl2__cpu_vector_expand,
};

#endif
#endif

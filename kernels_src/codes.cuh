/* codes.cuh: K and V of a quantized cache: Hadamard rotation, codes to halves, halves to codes, addresses in pages.
   takes: attend.cuh, attend_args.h.
   gives: exl2k_groups, exl2k_group_short, exl2k_codes_at, exl2k_scales_at, exl2k_rotate, exl2k_word_pairs,
          exl2k_code_pairs, exl2k_code_unit, exl2k_unpack8, exl2k_quantize, exl2k_quantize_row,
          exl2k_codes_store.
   owns:  nothing. */
#ifndef EXL2K_CODES_CUH
#define EXL2K_CODES_CUH

#include "attend.cuh"

EXL2K_FN u32 exl2k_groups(const exl2k_attend_args &a) { return EXL2K_CODES_GROUPS(a.dim); }

/* Whether a group has 16 elements: the last one may. */
EXL2K_FN bool exl2k_group_short(const exl2k_attend_args &a, u32 group) { return group * 32 + 16 == a.dim; }

EXL2K_FN u64 exl2k_codes_head(const exl2k_attend_args &a, u32 page, u32 head)
{
    return a.pages + (u64)page * a.page_bytes + (u64)head * exl2k_groups(a) * 256 * (a.key_bits + a.value_bits + 1);
}

/* Address of the codes of K or V of a head in a page, and of their scales. */
EXL2K_FN u64 exl2k_codes_at(const exl2k_attend_args &a, u32 page, u32 head, bool value)
{
    return exl2k_codes_head(a, page, head) + (value ? exl2k_groups(a) * 256 * a.key_bits : 0);
}

EXL2K_FN u64 exl2k_scales_at(const exl2k_attend_args &a, u32 page, u32 head, bool value)
{
    return exl2k_codes_head(a, page, head) + exl2k_groups(a) * (256 * (a.key_bits + a.value_bits) + (value ? 128 : 0));
}

/* Multiplies a group by the orthonormal Hadamard matrix of its size, in the order of exl2__cpu_codes_rotate. The lane
   has N adjacent elements of it, and 32 / N adjacent lanes have all; of a short group, the second half is not used.
   lanes: those of the warp that call this. */
template <u32 N> EXL2K_FN void exl2k_rotate(f32 v[N], bool is_short, u32 lanes)
{
#pragma unroll
    for (u32 half = 1; half < N; half *= 2) {
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            if (!(i & half)) {
                f32 x = v[i], y = v[i + half];
                v[i] = x + y;
                v[i + half] = x - y;
            }
        }
    }
#pragma unroll
    for (u32 step = 1; step < 32 / N; step *= 2) {
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            f32 other = __shfl_xor_sync(lanes, v[i], step), sum = threadIdx.x & step ? other - v[i] : v[i] + other;
            v[i] = is_short && step * N == 16 ? v[i] : sum;
        }
    }
#pragma unroll
    for (u32 i = 0; i < N; i++) {
        v[i] *= is_short ? 0.25f : 0.17677669529663688f; /* 1 / sqrt(n) */
    }
}

/* Four codes of 4 bits in each half-word become pairs of halves, exactly: 1024 + code, 1024 + 16 code. */
EXL2K_FN void exl2k_word_pairs(u32 low, u32 pairs[4])
{
    u32 high = low >> 8;
    pairs[0] = exl2k_sub2(exl2k_and_or(low, 0x000F000Fu, 0x64006400u), 0x64086408u);
    pairs[1] = exl2k_fma2(exl2k_and_or(low, 0x00F000F0u, 0x64006400u), 0x2C002C00u, 0xD480D480u);
    pairs[2] = exl2k_sub2(exl2k_and_or(high, 0x000F000Fu, 0x64006400u), 0x64086408u);
    pairs[3] = exl2k_fma2(exl2k_and_or(high, 0x00F000F0u, 0x64006400u), 0x2C002C00u, 0xD480D480u);
}

/* Four codes of each of two tokens (or of two halves of 8 elements) become pairs of halves, exactly: codes of 4 bits,
   which are in the low half-words, as they are, codes of 8 bits divided by 16. */
template <u32 BITS> EXL2K_FN void exl2k_code_pairs(u32 first, u32 second, u32 pairs[4])
{
    if (BITS == 4) {
        exl2k_word_pairs(exl2k_permute_bytes(first, second, 0x5410), pairs);
    } else { /* 64 + code / 16 */
        u32 low = exl2k_permute_bytes(first, second, 0x5410), high = exl2k_permute_bytes(first, second, 0x7632);
        pairs[0] = exl2k_sub2(exl2k_permute_bytes(low, 0x54545454u, 0x4240), 0x54805480u);
        pairs[1] = exl2k_sub2(exl2k_permute_bytes(low, 0x54545454u, 0x4341), 0x54805480u);
        pairs[2] = exl2k_sub2(exl2k_permute_bytes(high, 0x54545454u, 0x4240), 0x54805480u);
        pairs[3] = exl2k_sub2(exl2k_permute_bytes(high, 0x54545454u, 0x4341), 0x54805480u);
    }
}

/* What a half of exl2k_code_pairs is a multiple of. */
EXL2K_FN f32 exl2k_code_unit(u32 bits) { return bits == 8 ? 16.0f : 1.0f; }

/* The 8 elements of a group whose codes are `codes` (4 bits: .x). */
EXL2K_FN void exl2k_unpack8(uint2 codes, u32 bits, u32 scale, f32 v[8])
{
    u32 pairs[4];
    if (bits == 8) {
        exl2k_code_pairs<8>(codes.x, codes.y, pairs);
    } else {
        exl2k_word_pairs(codes.x, pairs);
    }
    f32 factor = exl2k_f16_to_f32(scale) * exl2k_code_unit(bits);
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        v[2 * i] = exl2k_low(pairs[i]) * factor;
        v[2 * i + 1] = exl2k_high(pairs[i]) * factor;
    }
}

/* Codes of a rotated group, of which the lane has 8 elements and 4 adjacent lanes have all; of a short group, the
   second half is 0. Returns the scale. The arithmetic is that of exl2__cpu_codes_make, with the same bits. */
EXL2K_FN u32 exl2k_quantize(const f32 v[8], u32 bits, uint2 &codes)
{
    f32 most = bits == 8 ? 128.0f : 8.0f, farthest = v[0];
    /* Find the element farthest from 0; of several, the first. */
#pragma unroll
    for (u32 i = 1; i < 8; i++) {
        farthest = __fmul_rn(v[i], v[i]) > __fmul_rn(farthest, farthest) ? v[i] : farthest;
    }
#pragma unroll
    for (u32 step = 1; step < 4; step *= 2) {
        f32 other = __shfl_xor_sync(EXL2K_ALL, farthest, step);
        f32 own = __fmul_rn(farthest, farthest), others = __fmul_rn(other, other);
        farthest = others > own || (others == own && (threadIdx.x & step)) ? other : farthest;
    }
    u32 scale = exl2k_f32_to_f16(farthest * (-1.0f / most)), halves[2] = { 0, 0 };
    bool usable = (scale & 0x7FFFu) > 0 && (scale & 0x7C00u) < 0x7C00u;
    f32 inverse = usable ? __frcp_rn(exl2k_f16_to_f32(scale)) : 0.0f;
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        f32 code = usable ? __fmul_rn(v[i], inverse) : 0.0f;
        code = code > most - 1.0f ? most - 1.0f : code < -most ? -most : code;
        int rounded = (int)(code + (code < 0.0f ? -0.5f : 0.5f)) + (int)most;
        halves[i % 2] |= (u32)rounded << i / 2 * bits;
    }
    codes = bits == 8 ? make_uint2(halves[0], halves[1]) : make_uint2(halves[0] | halves[1] << 16, 0);
    return scale;
}

/* Codes of 8 elements of K or V of a row of this launch, from element 32 group + 8 part of the head on. Four adjacent
   lanes have the parts of a group. Returns the group's scale. */
EXL2K_FN u32 exl2k_quantize_row(const exl2k_attend_args &a, u32 row, u32 position, u32 kv_head, bool value, u32 group,
                                u32 part, uint2 &codes)
{
    /* Load 8 elements, which are all first or all second elements of their pairs. */
    exl2k_rope_input inputs[8];
    u32 half = a.dim / 2, first = group * 32 + part * 8;
    u32 feature = (a.heads + (value ? a.kv_heads : 0) + kv_head) * a.dim;
    bool second = first >= half, inside = first < a.dim;
    u32 from = inside ? first - (second ? half : 0) : 0;
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        exl2k_rope_load_elements(a, row, feature, from + i, value ? half : a.rope_split, inputs[i]);
        exl2k_rope_load_angle(a, position, from + i, inputs[i].c, inputs[i].s);
    }
    /* Quantize the halves that a page of fp16 would hold. */
    f32 v[8];
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        u32 pair = value ? exl2k_pack_f16(exl2k_clamp_f16(inputs[i].x), exl2k_clamp_f16(inputs[i].y))
                         : exl2k_rope_apply(inputs[i]);
        v[i] = inside ? second ? exl2k_high(pair) : exl2k_low(pair) : 0.0f;
    }
    exl2k_rotate<8>(v, exl2k_group_short(a, group), EXL2K_ALL);
    return exl2k_quantize(v, value ? a.value_bits : a.key_bits, codes);
}

/* Stores them into a page. */
EXL2K_FN void exl2k_codes_store(const exl2k_attend_args &a, u32 page, u32 position, u32 kv_head, bool value, u32 group,
                                u32 part, uint2 codes, u32 scale)
{
    u32 bits = value ? a.value_bits : a.key_bits, slot = position % EXL2K_PAGE_TOKENS;
    u64 to = exl2k_codes_at(a, page, kv_head, value) + (slot * exl2k_groups(a) + group) * 4 * bits + part * bits;
    if (bits == 8) {
        exl2k_store2(to, codes.x, codes.y);
    } else {
        exl2k_store(to, codes.x);
    }
    if (part == 0) {
        exl2k_store_u16(exl2k_scales_at(a, page, kv_head, value) + (group * EXL2K_PAGE_TOKENS + slot) * 2, scale);
    }
}

#endif

/* codes.cuh: K and V of a quantized cache: Hadamard rotation, codes to halves, halves to codes, addresses in pages.
   takes: attend.cuh, attend_args.h.
   gives: exl2k_groups, exl2k_group_short, exl2k_codes_at, exl2k_scales_at, exl2k_rotate, exl2k_unpack8,
          exl2k_head_elements, exl2k_quantize, exl2k_codes_make, exl2k_codes_store. */
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
            f32 sum = fmaf(v[i], threadIdx.x & step ? -1.0f : 1.0f, __shfl_xor_sync(lanes, v[i], step));
            v[i] = is_short && step * N == 16 ? v[i] : sum;
        }
    }
#pragma unroll
    for (u32 i = 0; i < N; i++) {
        v[i] *= is_short ? 0.25f : 0.17677669529663688f; /* 1 / sqrt(n) */
    }
}

/* The 8 elements of a group whose codes are `codes` (4 bits: .x). */
EXL2K_FN void exl2k_unpack8(uint2 codes, u32 bits, u32 scale, f32 v[8])
{
    f32 factor = exl2k_f16_to_f32(scale), zero = bits == 8 ? 8388736.0f : 8388616.0f; /* 2^23 + 2^(bits - 1) */
    u32 words[2] = { codes.x, bits == 8 ? codes.y : codes.x >> 16 }, mask = bits == 8 ? 0xFF : 0xF;
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        u32 code = words[i % 2] >> i / 2 * bits & mask;
        v[i] = (__uint_as_float(0x4B000000u | code) - zero) * factor; /* 2^23 + code */
    }
}

/* A head of a row, whose q, K or V begins at `feature` of qkv: lane l gets element 32 b + l of group b as a page of
   fp16 would hold it, 0 after the last one, and the groups are rotated. staged: room of the warp for a head in shared
   memory. */
template <u32 GROUPS>
EXL2K_FN void exl2k_head_elements(const exl2k_attend_args &a, u32 row, u32 position, u32 feature, bool value,
                                  u16 *staged, f32 v[GROUPS])
{
    exl2k_rope_input pairs[GROUPS / 2];
    u32 lane = threadIdx.x % 32, half = a.dim / 2;
#pragma unroll
    for (u32 k = 0; k < GROUPS / 2; k++) {
        u32 i = exl2k_min(lane + 32 * k, half - 1);
        exl2k_rope_load_elements(a, row, feature, i, value ? half : a.rope_split, pairs[k]);
        exl2k_rope_load_angle(a, position, i, pairs[k].c, pairs[k].s);
    }
#pragma unroll
    for (u32 k = 0; k < GROUPS / 2; k++) {
        u32 i = lane + 32 * k, pair = value ? exl2k_pack_f16(exl2k_clamp_f16(pairs[k].x), exl2k_clamp_f16(pairs[k].y))
                                            : exl2k_rope_apply(pairs[k]);
        if (i < half) {
            staged[i] = (u16)pair;
            staged[i + half] = (u16)(pair >> 16);
        }
    }
    __syncwarp();
#pragma unroll
    for (u32 b = 0; b < GROUPS; b++) {
        v[b] = 32 * b + lane < a.dim ? exl2k_f16_to_f32(staged[32 * b + lane]) : 0.0f;
    }
    __syncwarp();
#pragma unroll
    for (u32 b = 0; b < GROUPS; b++) {
        exl2k_rotate<1>(&v[b], exl2k_group_short(a, b), EXL2K_ALL);
    }
}

/* Quantizes a rotated group, of which each lane has an element; of a short group, the second half is 0. Returns the
   lane's code plus 2^(bits - 1). The arithmetic is that of exl2__cpu_codes_make, with the same bits. */
EXL2K_FN u32 exl2k_quantize(f32 v, u32 bits, u32 &scale)
{
    /* The scale comes from the element farthest from 0; of several, the first. */
    f32 most = bits == 8 ? 128.0f : 8.0f;
    u32 square = __float_as_uint(__fmul_rn(v, v));
    u32 farthest = __ballot_sync(EXL2K_ALL, square == exl2k_warp_most(square));
    scale = exl2k_f32_to_f16(__shfl_sync(EXL2K_ALL, v, (int)(__ffs((int)farthest) - 1)) * (-1.0f / most));
    bool usable = (scale & 0x7FFFu) > 0 && (scale & 0x7C00u) < 0x7C00u;
    /* The rounded reciprocal, for every half: exl2k_reciprocal is off by one unit at most. */
    f32 of = exl2k_f16_to_f32(scale), inverse = exl2k_reciprocal(of);
    inverse = fmaf(inverse, fmaf(-of, inverse, 1.0f), inverse);
    f32 code = usable ? __fmul_rn(v, inverse) : 0.0f;
    code = code > most - 1.0f ? most - 1.0f : code < -most ? -most : code;
    return (u32)((int)(code + (code < 0.0f ? -0.5f : 0.5f)) + (int)most);
}

/* Quantizes a head that the warp has rotated, into shared memory: codes as a token's in a page, and after 32 * GROUPS
   bytes the scales. No branches, so that the groups overlap; those after the last one are 0. */
template <u32 GROUPS> EXL2K_FN void exl2k_codes_make(const f32 v[GROUPS], u32 bits, u16 *to)
{
    u32 lane = threadIdx.x % 32, i = lane % 8;
    u8 *codes = (u8 *)to + lane / 8 * bits + (bits == 8 ? i % 2 * 4 + i / 2 : i % 2 * 2 + i / 4);
#pragma unroll
    for (u32 b = 0; b < GROUPS; b++) {
        u32 scale, code = exl2k_quantize(v[b], bits, scale), other = __shfl_xor_sync(EXL2K_ALL, code, 2);
        code |= bits == 8 ? 0 : other << 4;
        if (bits == 8 || !(i & 2)) {
            codes[b * 4 * bits] = (u8)code;
        }
        to[16 * GROUPS + b] = (u16)scale; /* every lane has the same */
    }
    __syncwarp();
}

/* The warp stores them into a page. */
template <u32 GROUPS>
EXL2K_FN void exl2k_codes_store(const exl2k_attend_args &a, u32 page, u32 position, u32 kv_head, bool value,
                                const u16 *from)
{
    u32 lane = threadIdx.x % 32, bits = value ? a.value_bits : a.key_bits, words = exl2k_groups(a) * bits;
    u64 to = exl2k_codes_at(a, page, kv_head, value) + position % EXL2K_PAGE_TOKENS * words * 4;
    u64 scales = exl2k_scales_at(a, page, kv_head, value) + position % EXL2K_PAGE_TOKENS * 2;
    for (u32 i = lane; i < words; i += 32) {
        exl2k_store(to + i * 4, ((const u32 *)from)[i]);
    }
    if (lane < exl2k_groups(a)) {
        exl2k_store_u16(scales + lane * EXL2K_PAGE_TOKENS * 2, from[16 * GROUPS + lane]);
    }
}

#endif

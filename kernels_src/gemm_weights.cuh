/* gemm_weights.cuh: weights of a product of many rows: from global memory to operands of the tensor cores.
   takes: base.cuh, unpack.cuh, gemm_args.h; EXL2K_WIDTHS_MASK as in gemv_chunk.cuh.
   gives: exl2k_table_make, exl2k_weights with begin, fill and decode.
   owns:  nothing.
   next:  gemm.cu

   Inputs are walked in halves: runs of 32, half a record. A table in shared memory has an entry for each, so that no
   warp reads chunk tables on its way:
       x   bits 0..19 place of the record in the strip, 20..23 its bytes / 128, 24..29 from it to the scale words of
           its chunk, / 128; all in units of 16 bytes but for the factors named
       y   bits 0..15 fp16 maximum of the group, 16..18 its scale word, 20..23 scale words of the chunk, 24..27 width,
           28 which half of the record, 29 the first of a record
   Of dense matrices each half counts as a record. A warp copies the records of its two strips into slots of its own,
   with the scale words of their chunk, `ahead` halves before it decodes them. */
#ifndef EXL2K_GEMM_WEIGHTS_CUH
#define EXL2K_GEMM_WEIGHTS_CUH

#include "base.cuh"
#include "unpack.cuh"
#include "gemm_args.h"

#ifndef EXL2K_WIDTHS_MASK
#define EXL2K_WIDTHS_MASK 127
#endif

/* ---- the table ---- */

/* Entries of the halves [first, end) of a part. All threads take part; a barrier must follow. */
EXL2K_FN void exl2k_table_make(u32 at, const exl2k_part &p, u32 ways, u32 first, u32 end)
{
    u32 count = (u32)p.slice[ways] * 8;
    for (u32 i = threadIdx.x; i < count; i += EXL2K_GEMM_THREADS) {
        u64 chunk = p.chunks + i / 8 * sizeof(exl2k_chunk);
        uint4 c = exl2k_load_constant4(chunk);
        u32 half = i % 8, row = (c.y & 0xFFFF) + half, record = half / 2, width = c.z & 255;
        if (half >= (c.w >> 8 & 255) || row < first || row >= end) {
            continue;
        }
        u32 bits = exl2k_bits(width), records = c.z >> 8 & 255, groups = c.z >> 16 & 255, by_half = c.z >> 24;
        u32 place = c.x + record * bits * 8, odd = half % 2, group = by_half ? half : __popc(c.w & ((1u << record) - 1));
        if (width == EXL2K_W16) {
            place += odd * 64;
            odd = 0;
            bits = 8;
        }
        u32 maximum = exl2k_load_constant(chunk + 16 + record * 4) >> half % 2 * 16 & 0xFFFF;
        u32 to = at + (row - first) * 8;
        exl2k_shared_store(to, place | bits << 20 | (records - record) * bits << 24);
        exl2k_shared_store(to + 4, maximum | (group & 7) << 16 | groups << 20 | width << 24 | odd << 28 | !odd << 29);
    }
}

/* ---- slots ---- */

typedef struct exl2k_weights { /* of one strip */
    u64 strip;
    u32 table;                 /* entry of half 0, which may lie before the table */
    u32 slots, end;            /* shared addresses */
    u32 fill, use;             /* slots */
    u32 first;                 /* half where the CTA begins */
} exl2k_weights;

EXL2K_FN u32 exl2k_slot_next(const exl2k_weights &w, u32 slot, u32 bytes)
{
    return slot + bytes == w.end ? w.slots : slot + bytes;
}

/* Begins to copy the record that half `half` is the first to need. A warp calls it. */
EXL2K_FN void exl2k_weights_fill(exl2k_weights &w, u32 half, u32 slot_bytes, u32 lane)
{
    uint2 entry = exl2k_shared_load2(w.table + half * 8);
    if ((entry.y >> 29 & 1) == 0 && half != w.first) {
        return;
    }
    u32 units = (entry.x >> 20 & 15) * 8, to = w.fill + lane * 16;
    u64 from = w.strip + (u64)(entry.x & 0xFFFFF) * 16 + lane * 16;
    if (lane < units) {
        exl2k_copy16(to, from);
    }
    if (lane + 32 < units) {
        exl2k_copy16(to + 512, from + 512);
    }
    if (lane < ((entry.y >> 20 & 15) + 1) / 2) {
        exl2k_copy16(to + units * 16, from + (entry.x >> 24) * 128);
    }
    w.fill = exl2k_slot_next(w, w.fill, slot_bytes);
}

/* ---- decoding ---- */

typedef u32 exl2k_operand[2][4]; /* [step of the half]: 16 columns x 16 inputs */

/* The lane words that half H of a record needs; others are not set. */
template <u32 W, u32 H> EXL2K_FN void exl2k_half_words(u32 at, u32 lane, u32 *w)
{
    constexpr u32 bits = exl2k_width<W>::bits;
    if constexpr (W == EXL2K_W8 || W == EXL2K_W16 || W == EXL2K_W4) {
        constexpr u32 quads = W == EXL2K_W16 ? 2 : 1, first = W == EXL2K_W8 ? H : 0;
        for (u32 q = first; q < first + quads; q++) {
            uint4 v = exl2k_shared_load4(at + q * 512 + lane * 16);
            w[4 * q] = v.x;
            w[4 * q + 1] = v.y;
            w[4 * q + 2] = v.z;
            w[4 * q + 3] = v.w;
        }
    } else if constexpr (H == 1 || W == EXL2K_W2) {
        exl2k_lane_words<W>(at, lane, w);
    } else if constexpr (W == EXL2K_W3) {
        uint2 v = exl2k_shared_load2(at + lane * 8);
        w[0] = v.x;
        w[1] = v.y;
    } else {
        uint4 v = exl2k_shared_load4(at + lane * 16);
        w[0] = v.x;
        w[1] = v.y;
        w[2] = v.z;
        w[3] = v.w;
    }
    (void)bits;
}

/* fp16(code * scale): what the format defines. */
template <u32 W, u32 H> EXL2K_FN void exl2k_half_decode(exl2k_operand &a, u32 slot, uint2 entry, u32 lane)
{
    if constexpr ((EXL2K_WIDTHS_MASK >> W & 1) != 0) {
        u32 w[16], g = lane / 4, pair = 0;
        if constexpr (W != EXL2K_W16) {
            u32 word = (entry.y >> 16 & 7) + g / 4 * (entry.y >> 20 & 15);
            u32 scales = exl2k_shared_load(slot + exl2k_width<W>::bits * 128 + word * 4);
            pair = exl2k_scale_pair(scales, g, exl2k_permute(entry.y, 0, 0x1010u));
        }
        exl2k_half_words<W, H>(slot, lane, w);
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
            exl2k_decode<W>(w, 2 * H + j, a[j]);
            if constexpr (W != EXL2K_W16) {
                u32 low = exl2k_permute(pair, 0, 0x1010u), high = exl2k_permute(pair, 0, 0x3232u);
                a[j][0] = exl2k_mul2(a[j][0], low);
                a[j][1] = exl2k_mul2(a[j][1], high);
                a[j][2] = exl2k_mul2(a[j][2], low);
                a[j][3] = exl2k_mul2(a[j][3], high);
            }
        }
    }
}

/* Operands of half `half`; its record has arrived. */
EXL2K_FN void exl2k_weights_decode(exl2k_weights &w, exl2k_operand &a, u32 half, u32 slot_bytes, u32 lane)
{
    uint2 entry = exl2k_shared_load2(w.table + half * 8);
    if ((entry.y >> 29 & 1) != 0 && half != w.first) {
        w.use = exl2k_slot_next(w, w.use, slot_bytes);
    }
    switch (entry.y >> 24 & 31) {
    case EXL2K_W2: exl2k_half_decode<EXL2K_W2, 0>(a, w.use, entry, lane); break;
    case EXL2K_W3: exl2k_half_decode<EXL2K_W3, 0>(a, w.use, entry, lane); break;
    case EXL2K_W4: exl2k_half_decode<EXL2K_W4, 0>(a, w.use, entry, lane); break;
    case EXL2K_W5: exl2k_half_decode<EXL2K_W5, 0>(a, w.use, entry, lane); break;
    case EXL2K_W6: exl2k_half_decode<EXL2K_W6, 0>(a, w.use, entry, lane); break;
    case EXL2K_W8: exl2k_half_decode<EXL2K_W8, 0>(a, w.use, entry, lane); break;
    case EXL2K_W16: exl2k_half_decode<EXL2K_W16, 0>(a, w.use, entry, lane); break;
    case EXL2K_W2 + 16: exl2k_half_decode<EXL2K_W2, 1>(a, w.use, entry, lane); break;
    case EXL2K_W3 + 16: exl2k_half_decode<EXL2K_W3, 1>(a, w.use, entry, lane); break;
    case EXL2K_W4 + 16: exl2k_half_decode<EXL2K_W4, 1>(a, w.use, entry, lane); break;
    case EXL2K_W5 + 16: exl2k_half_decode<EXL2K_W5, 1>(a, w.use, entry, lane); break;
    case EXL2K_W6 + 16: exl2k_half_decode<EXL2K_W6, 1>(a, w.use, entry, lane); break;
    default: exl2k_half_decode<EXL2K_W8, 1>(a, w.use, entry, lane); break;
    }
}

#endif

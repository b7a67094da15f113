/* gemm_weights.cuh: weights of a product of many rows: from global memory to operands of the tensor cores.
   takes: base.cuh, unpack.cuh, gemm_args.h; EXL2K_WIDTHS_MASK as in gemv_chunk.cuh.
   gives: exl2k_weights with begin, fill, wait; exl2k_record_decode.
   owns:  nothing.
   next:  gemm.cu

   A warp copies the chunks of its two strips into slots of its own: the entry of the chunk table, then the chunk of
   either strip. Records are decoded as a whole, so that only this depends on their width. */
#ifndef EXL2K_GEMM_WEIGHTS_CUH
#define EXL2K_GEMM_WEIGHTS_CUH

#include "base.cuh"
#include "unpack.cuh"
#include "gemm_args.h"

#ifndef EXL2K_WIDTHS_MASK
#define EXL2K_WIDTHS_MASK 127
#endif

/* ---- slots ---- */

typedef struct exl2k_weights {
    u64 strip[2];            /* of this lane: 16 bytes each */
    u64 table, table_end;    /* entry of the next chunk to copy */
    u32 place, bytes16;      /* of that chunk */
    u32 ring, fill, use;     /* shared addresses; the slots to copy to and to decode next */
} exl2k_weights;

/* Chunks of [first, end), of which records begin in the halves [low, high). */
EXL2K_FN void exl2k_weights_range(const exl2k_part &p, u32 ways, u32 low, u32 high, u32 &first, u32 &end)
{
    u32 count = p.slice[ways];
    first = end = 0;
#pragma unroll 1
    for (u32 i = 0; i < count; i += EXL2K_GEMM_THREADS) {
        bool before = false, inside = false;
        if (i + threadIdx.x < count) {
            uint4 c = exl2k_load_constant4(p.chunks + (i + threadIdx.x) * sizeof(exl2k_chunk));
            u32 row = c.y & 0xFFFF;
            before = row + 2 * (c.z >> 8 & 255) <= low + 1; /* the last record begins 2 before, or lower */
            inside = row < high;
        }
        first += __syncthreads_count(before);
        end += __syncthreads_count(inside);
    }
}

EXL2K_FN void exl2k_weights_peek(exl2k_weights &w)
{
    if (w.table < w.table_end) {
        w.place = exl2k_load_constant(w.table);
        w.bytes16 = exl2k_load_constant(w.table + 4) >> 16;
    }
}

EXL2K_FN u32 exl2k_slot_next(const exl2k_weights &w, const exl2k_gemm_args &a, u32 slot)
{
    slot += a.slot_bytes;
    return slot == w.ring + a.slots * a.slot_bytes ? w.ring : slot;
}

/* Begins to copy the next chunk, if there is one; a group of copies all the same. */
EXL2K_FN void exl2k_weights_fill(exl2k_weights &w, const exl2k_gemm_args &a, u32 lane)
{
    if (w.table < w.table_end) {
        u32 to = w.fill + EXL2K_GEMM_ENTRY + lane * 16, other = (a.slot_bytes - EXL2K_GEMM_ENTRY) / 2;
        u64 from = w.strip[0] + (u64)w.place * 16, from_other = w.strip[1] + (u64)w.place * 16;
        if (lane < 2) {
            exl2k_copy16(w.fill + lane * 16, w.table + lane * 16);
        }
#pragma unroll 1
        for (u32 i = lane; i < w.bytes16; i += 32, to += 512, from += 512, from_other += 512) {
            exl2k_copy16_once(to, from);
            exl2k_copy16_once(to + other, from_other);
        }
        w.fill = exl2k_slot_next(w, a, w.fill);
        w.table += sizeof(exl2k_chunk);
        exl2k_weights_peek(w);
    }
    exl2k_copy_commit();
}

/* The chunk at w.use has arrived; all but the copies of the latest slots - 1 fills have. */
EXL2K_FN void exl2k_weights_wait(u32 slots)
{
    if (slots == 1) {
        exl2k_copy_wait<0>();
    } else if (slots == 2) {
        exl2k_copy_wait<1>();
    } else {
        exl2k_copy_wait<2>();
    }
    __syncwarp();
}

/* ---- decoding ---- */

typedef u32 exl2k_operand[4][4]; /* [step of a record]: 16 columns x 16 inputs */

typedef struct exl2k_record { /* where things are in shared memory, for this lane */
    u32 codes, scales; /* of strip 0 */
    u32 other;         /* bytes from strip 0 to strip 1 */
    u32 maximum;       /* halves of both halves */
    u32 by_half;
} exl2k_record;

/* fp16(code * scale): what the format defines. */
template <u32 W> EXL2K_FN void exl2k_record_as(exl2k_operand a[2], const exl2k_record &r, u32 lane)
{
    if constexpr ((EXL2K_WIDTHS_MASK >> W & 1) != 0) {
        u32 low = exl2k_permute(r.maximum, 0, 0x1010u), high = exl2k_permute(r.maximum, 0, 0x3232u);
#pragma unroll
        for (u32 s = 0; s < 2; s++) {
            u32 w[16], pair[2] = { 0, 0 };
            exl2k_lane_words<W>(r.codes + s * r.other, lane, w);
            if constexpr (W != EXL2K_W16) {
                u32 word = exl2k_shared_load(r.scales + s * r.other), next = word;
                if (r.by_half) {
                    next = exl2k_shared_load(r.scales + s * r.other + 4);
                }
                pair[0] = exl2k_scale_pair(word, lane / 4, low);
                pair[1] = exl2k_scale_pair(next, lane / 4, high);
            }
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                exl2k_decode<W>(w, j, a[s][j]);
                if constexpr (W != EXL2K_W16) {
                    u32 even = exl2k_permute(pair[j / 2], 0, 0x1010u), odd = exl2k_permute(pair[j / 2], 0, 0x3232u);
                    a[s][j][0] = exl2k_mul2(a[s][j][0], even);
                    a[s][j][1] = exl2k_mul2(a[s][j][1], odd);
                    a[s][j][2] = exl2k_mul2(a[s][j][2], even);
                    a[s][j][3] = exl2k_mul2(a[s][j][3], odd);
                }
            }
        }
    }
}

EXL2K_FN void exl2k_record_decode(exl2k_operand a[2], const exl2k_record &r, u32 width, u32 lane)
{
    switch (width) {
    case EXL2K_W2: exl2k_record_as<EXL2K_W2>(a, r, lane); break;
    case EXL2K_W3: exl2k_record_as<EXL2K_W3>(a, r, lane); break;
    case EXL2K_W4: exl2k_record_as<EXL2K_W4>(a, r, lane); break;
    case EXL2K_W5: exl2k_record_as<EXL2K_W5>(a, r, lane); break;
    case EXL2K_W6: exl2k_record_as<EXL2K_W6>(a, r, lane); break;
    case EXL2K_W8: exl2k_record_as<EXL2K_W8>(a, r, lane); break;
    default: exl2k_record_as<EXL2K_W16>(a, r, lane); break;
    }
}

#endif

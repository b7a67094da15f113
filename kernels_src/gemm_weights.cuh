/* gemm_weights.cuh: the weights of a product of many rows: from global memory to operands of the tensor cores.
   takes: base.cuh, unpack.cuh, gemm_args.h; EXL2K_WIDTHS_MASK as in gemv_chunk.cuh.
   gives: exl2k_weights, exl2k_weights_begin, _range, _start, _fill, _wait, _discard; exl2k_record_decode.

   A warp copies the chunks of its two strips into slots of its own. A slot holds the chunk's table entry, then the
   chunk of each strip. Records are decoded as a whole, so that only exl2k_record_codes depends on their width.
   ARGS: a kernel's arguments, exl2k_gemm_args or those of grouped_gemm.cuh. */
#ifndef EXL2K_GEMM_WEIGHTS_CUH
#define EXL2K_GEMM_WEIGHTS_CUH

#include "base.cuh"
#include "unpack.cuh"
#include "gemm_args.h"

#ifndef EXL2K_WIDTHS_MASK
#define EXL2K_WIDTHS_MASK 127
#endif

/* Chunks are copied by bulk copies (sm_90 on), which cost a warp almost nothing, or by cp.async. */
#ifndef EXL2K_BULK
#define EXL2K_BULK 1
#endif
#define EXL2K_GEMM_BULK (EXL2K_BULK && __CUDA_ARCH__ >= 900)

/* ---- slots ---- */

typedef struct exl2k_weights {
    u32 offset16, bytes16; /* the next chunk to copy; bytes16 0: there is none */
    u32 ring, state;       /* shared addresses. state: bulk copies: a barrier for each slot; at 32: addresses of both
                              strips; at 48: u64 address of the next chunk's table entry, u64 end of the entries; the
                              rest belongs to gemm.cuh */
    u32 filled, used;      /* chunks of the kernel so far; their slot is this number modulo the number of slots */
} exl2k_weights;

template <class ARGS> EXL2K_FN u32 exl2k_slot_index(const ARGS &a, u32 chunk) { return chunk & a.slot_mask; }

template <class ARGS> EXL2K_FN u32 exl2k_slot(const exl2k_weights &w, const ARGS &a, u32 chunk)
{
    return w.ring + exl2k_slot_index(a, chunk) * a.slot_bytes;
}

template <class ARGS> EXL2K_FN void exl2k_weights_begin(const exl2k_weights &w, const ARGS &a, u32 lane)
{
#if EXL2K_GEMM_BULK
    if (lane <= a.slot_mask) {
        exl2k_barrier_init(w.state + lane * 8, 1);
    }
    exl2k_barrier_init_fence();
#endif
}

/* Finds the chunks [first, end) that have records beginning in the halves [low, high). All threads of the CTA call
   it. */
EXL2K_FN void exl2k_weights_range(const exl2k_part &p, u32 low, u32 high, u32 &first, u32 &end)
{
    u32 count = p.chunk_count;
    first = end = 0;
    /* Each thread checks one chunk. `first` counts the chunks before the range, `end` the chunks that begin before its
       end. */
#pragma unroll 1
    for (u32 i = 0; i < count; i += EXL2K_GEMM_THREADS) {
        bool before = false, inside = false;
        if (i + threadIdx.x < count) {
            uint4 c = exl2k_load_constant4(p.chunks + (i + threadIdx.x) * sizeof(exl2k_chunk));
            u32 row = c.y & 0xFFFF;
            before = row + 2 * (c.z >> 8 & 255) <= low + 1; /* the last record begins at row + 2 * records - 2, which
                                                               is below `low` */
            inside = row < high;
        }
        first += __syncthreads_count(before);
        end += __syncthreads_count(inside);
    }
}

/* Starts to load the table entry at `table`. */
EXL2K_FN void exl2k_weights_read_entry(exl2k_weights &w, u64 table, u64 end)
{
    w.bytes16 = 0;
    if (table < end) {
        w.offset16 = exl2k_load_constant(table);
        w.bytes16 = exl2k_load_constant(table + 4) >> 16;
    }
}

EXL2K_FN uint4 exl2k_pack_u64s(u64 a, u64 b) { return make_uint4((u32)a, (u32)(a >> 32), (u32)b, (u32)(b >> 32)); }
EXL2K_FN u64 exl2k_first_u64(uint4 v) { return (u64)v.y << 32 | v.x; }
EXL2K_FN u64 exl2k_second_u64(uint4 v) { return (u64)v.w << 32 | v.z; }

#if EXL2K_GEMM_BULK
EXL2K_FN void exl2k_weights_bulk(u32 to, u64 from, u32 bytes, u32 barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier) : "memory");
}
#endif

/* Sets the addresses of the warp's strips and of the entries of their chunks. */
EXL2K_FN void exl2k_weights_start(exl2k_weights &w, u64 first, u64 second, u64 table, u64 end, u32 lane)
{
    __syncwarp();
    if (lane == 0) {
        exl2k_shared_store4(w.state + 32, exl2k_pack_u64s(first, second));
        exl2k_shared_store4(w.state + 48, exl2k_pack_u64s(table, end));
    }
    __syncwarp();
    exl2k_weights_read_entry(w, table, end);
}

/* Starts to copy the next chunk, if there is one. With cp.async it commits a group in either case. */
template <class ARGS> EXL2K_FN void exl2k_weights_fill(exl2k_weights &w, const ARGS &a, u32 lane)
{
    if (w.bytes16 > 0) {
        /* Compute the addresses of the slot, of the chunk in both strips, and of its table entry. */
        u32 slot = exl2k_slot(w, a, w.filled), to = slot + EXL2K_GEMM_ENTRY;
        u32 other = (a.slot_bytes - EXL2K_GEMM_ENTRY) / 2;
        uint4 strips = exl2k_shared_load4(w.state + 32), entries = exl2k_shared_load4(w.state + 48);
        u64 from = exl2k_first_u64(strips) + (u64)w.offset16 * 16;
        u64 from_other = exl2k_second_u64(strips) + (u64)w.offset16 * 16;
        u64 table = exl2k_first_u64(entries), next = table + sizeof(exl2k_chunk);
        __syncwarp(); /* all lanes have read the old content of the slot */
#if EXL2K_GEMM_BULK
        if (lane == 0) {
            u32 barrier = w.state + exl2k_slot_index(a, w.filled) * 8, bytes = w.bytes16 * 16;
            exl2k_barrier_expect(barrier, EXL2K_GEMM_ENTRY + 2 * bytes);
            exl2k_weights_bulk(slot, table, EXL2K_GEMM_ENTRY, barrier);
            exl2k_weights_bulk(to, from, bytes, barrier);
            exl2k_weights_bulk(to + other, from_other, bytes, barrier);
        }
#else
        if (lane < EXL2K_GEMM_ENTRY / 16) {
            exl2k_copy16(slot + lane * 16, table + lane * 16);
        }
#pragma unroll 1
        for (u32 i = lane * 16; i < w.bytes16 * 16; i += 512) {
            exl2k_copy16_once(to + i, from + i);
            exl2k_copy16_once(to + other + i, from_other + i);
        }
#endif
        /* Move to the next entry. */
        w.filled++;
        __syncwarp();
        if (lane == 0) {
            exl2k_shared_store4(w.state + 48, exl2k_pack_u64s(next, exl2k_second_u64(entries)));
        }
        __syncwarp();
        exl2k_weights_read_entry(w, next, exl2k_second_u64(entries));
    }
#if !EXL2K_GEMM_BULK
    exl2k_copy_commit();
#endif
}

/* Waits for chunk w.used. With cp.async the chunk's group is the oldest of as many groups as there are slots. */
template <class ARGS> EXL2K_FN void exl2k_weights_wait(const exl2k_weights &w, const ARGS &a)
{
#if EXL2K_GEMM_BULK
    exl2k_barrier_wait(w.state + exl2k_slot_index(a, w.used) * 8, w.used >> a.slots_log & 1);
#else
    if (a.slots_log == 0) {
        exl2k_copy_wait<0>();
    } else if (a.slots_log == 1) {
        exl2k_copy_wait<1>();
    } else {
        exl2k_copy_wait<3>();
    }
    __syncwarp();
#endif
}

/* Waits for all copies in flight and discards them. */
EXL2K_FN void exl2k_weights_discard(exl2k_weights &w, const exl2k_gemm_args &a)
{
#if EXL2K_GEMM_BULK
#pragma unroll 1
    for (; w.used < w.filled; w.used++) {
        exl2k_weights_wait(w, a);
    }
#else
    exl2k_copy_wait<0>();
    w.used = w.filled;
#endif
}

/* ---- decoding ---- */

typedef u32 exl2k_operand[4][4]; /* [step of a record]: 16 columns x 16 inputs */

typedef struct exl2k_record { /* addresses in shared memory, for this lane */
    u32 codes, scales; /* of strip 0 */
    u32 other;         /* bytes from strip 0 to strip 1 */
    u32 maximum;       /* half pair: the maxima of the record's two halves */
    u32 by_half;
} exl2k_record;

/* Decodes the codes of both strips, centred. Only this function depends on the width. */
template <u32 W> EXL2K_FN void exl2k_record_codes(exl2k_operand a[2], const exl2k_record &r, u32 lane)
{
    if constexpr ((EXL2K_WIDTHS_MASK >> W & 1) != 0) {
#pragma unroll
        for (u32 s = 0; s < 2; s++) {
            u32 w[16];
            exl2k_lane_words<W>(r.codes + s * r.other, lane, w);
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                exl2k_decode<W, false>(w, j, a[s][j]);
            }
        }
    }
}

/* Multiplies half of a record by its scales: fp16(code * scale), as the EXL2 format defines it. */
EXL2K_FN void exl2k_half_scale(u32 a[2][4], u32 word, u32 maximum, u32 lane)
{
    u32 pair = exl2k_scale_pair(word, lane / 4, maximum);
    u32 even = exl2k_permute_bytes(pair, 0, 0x1010u), odd = exl2k_permute_bytes(pair, 0, 0x3232u);
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        a[j][0] = exl2k_mul2(a[j][0], even);
        a[j][1] = exl2k_mul2(a[j][1], odd);
        a[j][2] = exl2k_mul2(a[j][2], even);
        a[j][3] = exl2k_mul2(a[j][3], odd);
    }
}

/* Affine: fp16(fp16(code - zero) * scale) for half of a record and one of the lane's two columns: side 0 is column g,
   side 1 column g + 8. */
EXL2K_FN void exl2k_half_affine(u32 a[2][4], u32 side, u32 word)
{
    u32 scale = exl2k_permute_bytes(word, 0, 0x1010u), zero = exl2k_permute_bytes(word, 0, 0x3232u);
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        a[j][side] = exl2k_mul2(exl2k_sub2(a[j][side], zero), scale);
        a[j][side + 2] = exl2k_mul2(exl2k_sub2(a[j][side + 2], zero), scale);
    }
}

/* Decodes a record of both strips to weights. Dense records have no scale words; level 1 and a maximum of 1 leave
   their values unchanged. */
EXL2K_FN void exl2k_record_decode(exl2k_operand a[2], const exl2k_record &r, u32 width, u32 lane)
{
    u32 words[2][2] = { { 0, 0 }, { 0, 0 } }, maxima = 0x3C003C00u;
    /* Load the scale words of both halves of both strips. */
    if (!EXL2K_AFFINE && width != EXL2K_W16) {
        maxima = r.maximum;
#pragma unroll
        for (u32 s = 0; s < 2; s++) {
            words[s][0] = exl2k_shared_load(r.scales + s * r.other);
            words[s][1] = exl2k_shared_load(r.scales + s * r.other + r.by_half * 4);
        }
    }
    /* Decode the codes of the four steps. */
    switch (width) {
    case EXL2K_W2: exl2k_record_codes<EXL2K_W2>(a, r, lane); break;
    case EXL2K_W3: exl2k_record_codes<EXL2K_W3>(a, r, lane); break;
    case EXL2K_W4: exl2k_record_codes<EXL2K_W4>(a, r, lane); break;
    case EXL2K_W5: exl2k_record_codes<EXL2K_W5>(a, r, lane); break;
    case EXL2K_W6: exl2k_record_codes<EXL2K_W6>(a, r, lane); break;
    case EXL2K_W8: exl2k_record_codes<EXL2K_W8>(a, r, lane); break;
    default: exl2k_record_codes<EXL2K_W16>(a, r, lane); break;
    }
    /* Scale each half: steps 0 and 1, then steps 2 and 3. Affine: words are loaded here, because registers are few. */
    if (EXL2K_AFFINE) {
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            u32 strip = i / 4, half = i / 2 % 2, side = i % 2;
            u32 at = r.scales + strip * r.other + half * r.by_half * EXL2K_AFFINE_BYTES;
            exl2k_half_affine(a[strip] + 2 * half, side, exl2k_shared_load(at + side * 4));
        }
        return;
    }
    u32 low = exl2k_permute_bytes(maxima, 0, 0x1010u), high = exl2k_permute_bytes(maxima, 0, 0x3232u);
#pragma unroll
    for (u32 s = 0; s < 2; s++) {
        exl2k_half_scale(a[s], words[s][0], low, lane);
        exl2k_half_scale(a[s] + 2, words[s][1], high, lane);
    }
}

#endif

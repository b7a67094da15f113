/* gemm_wg.cuh: the product of many rows by wgmma, on sm_90a: 32, 64, 128 or 256 rows x 128 columns per CTA, weights
   decoded in registers.
   takes: gemm_wg_job.cuh, gemm_wg_out.cuh, gemm_weights.cuh (part of it), gemm_wg_args.h, wg.cuh.
   gives: exl2k_wg_products: the body of a kernel.
   owns:  nothing; included by gemm_wg32.cu to gemm_wg256.cu, by their twins for affine matrices and any family, by
          gemm_wg_roles.cuh, where other warps decode, and by gemm_wg_lora.cuh, whose products add what adapters add
          (LORAS: exl2k_lora_wg_args).

   A CTA has three warp groups of 128 threads. Groups 0 and 1 multiply: each has 64 columns, and each of its warps one
   strip. The third group copies: warp 0 the inputs, warps 1 and 2 the weights of groups 0 and 1.

   OPERANDS. A of wgmma is 64 columns of the matrix x 16 inputs, in registers: the lane words of a record decode to it
   as they are. B is N rows x 16 inputs in shared memory. It has the inputs in the order of the record's steps:
   position 16 j + 8 i + 2 t + e of 32 inputs is input 8 t + 4 j + 2 i + e (t 0..3, the others 0 or 1), which is input
   e of pair 2 i of step j in lane t (unpack.cuh).

   Whoever writes the inputs writes them in this order, as tiles (wg_tiles.cuh): then 32 inputs of all rows of a CTA,
   which is what half of a record needs, are one bulk copy.

   PIPELINE. For half of a record a warp group decodes 64 columns x 32 inputs, starts two products, and waits for those
   of the half before. So the operands of the two halves take turns, and decoding overlaps with the products of both
   groups. The words of the next record are loaded meanwhile. There is a loop for each width. Where the assembler does
   not see which operands are in use, it waits after each product (remarks C7513, C7520; tests/kernels.c looks for
   them).

   Tiles of up to 64 rows: issuing instructions is what counts, and products are short. Two CTAs run on an SM, and a
   warp waits for all products of a record before it decodes the next one, so that the loops of all widths share the
   registers of their operands.

   BITS. The sums of a row are one chain over K in every size of tile, so they depend on the matrix and, if K is split,
   on the splits; never on the other rows and not on N.

   WHERE TIME GOES: see tests/device/NOTES.md. Products alone take 1,190 us for a layer of 8B and 2,048 rows on an H100,
   decoding adds little, and the inputs, which come from L2, a fifth. */
#ifndef EXL2K_GEMM_WG_CUH
#define EXL2K_GEMM_WG_CUH

#include "gemm_weights.cuh"
#include "gemm_wg_out.cuh"

#if __CUDA_ARCH__ == 900

/* ---- what adapters add: nothing; gemm_wg_lora.cuh has the other functions of these names ---- */

/* The first adapter of a tile. */
template <u32 N>
EXL2K_FN u32 exl2k_wg_lora_first(const exl2k_gemm_args &, const exl2k_wg_no_loras &, const exl2k_wg_job &)
{
    return 0;
}

/* Copies t of a tile, from the first adapter on. count: stages before, and then after it. */
template <u32 N>
EXL2K_FN void exl2k_wg_copy_t(const exl2k_gemm_args &, const exl2k_wg_no_loras &, const exl2k_wg_shared &,
                              const exl2k_wg_job &, u32, u32 &)
{
}

/* Copies B of a warp group's columns of a tile. count: slots before, and then after it. */
template <u32 N>
EXL2K_FN void exl2k_wg_copy_b(const exl2k_gemm_args &, const exl2k_wg_no_loras &, const exl2k_wg_shared &,
                              const exl2k_wg_job &, u32, u32 &)
{
}

/* d += B t over all blocks of the tile. Returns after the last product has ended. */
template <u32 N, class CURSOR>
EXL2K_FN void exl2k_wg_add_loras(f32 *, CURSOR &, const exl2k_wg_no_loras &, const exl2k_wg_shared &, bool)
{
}

/* ---- the warps that copy ---- */

/* Copies the inputs of all tiles of this CTA, two halves at a time. One thread runs it; with adapters one warp. */
template <u32 N, class LORAS>
EXL2K_FN void exl2k_wg_copy_inputs(const exl2k_gemm_args &a, const LORAS &l, const exl2k_wg_shared &s)
{
    u32 count = 0, copies = !exl2k_wg_adapts<LORAS>() || threadIdx.x % EXL2K_WARP == 0;
#pragma unroll 1
    for (u32 i = exl2k_wg_item_first<N>(); exl2k_wg_item_of<N>(a, i).work < exl2k_wg_works(a);
         i += exl2k_wg_item_step<N>()) {
        exl2k_wg_item item = exl2k_wg_item_of<N>(a, i);
        exl2k_wg_job p = exl2k_wg_job_of<N>(a, item, 0);
        auto use = exl2k_wg_lora_first<N>(a, l, p);
        if (exl2k_wg_adapts<LORAS>() && i == exl2k_wg_item_first<N>()) {
            exl2k_dependency_wait(); /* sets and tables are older than the kernel before */
        }
        u32 bytes = exl2k_min(N, a.x_pitch - p.row) * 64;
        u64 from = a.x + ((u64)p.low * a.x_pitch + p.row) * 64, next = (u64)a.x_pitch * 64;
#pragma unroll 1
        for (u32 half = p.low; half < p.end && copies; half += 2, count++, from += 2 * next) {
            exl2k_wg_place stage = exl2k_wg_place_of<EXL2K_WG_STAGES(N)>(count);
            u32 full = s.base + stage.index * 8, to = s.inputs + stage.index * N * 128, two = half + 1 < p.end;
            exl2k_barrier_wait(full + EXL2K_WG_EMPTY, stage.parity ^ 1); /* passes in the first round */
            exl2k_barrier_expect(full, bytes << two);
            exl2k_weights_bulk(to, from, bytes, full);
            if (two) {
                exl2k_weights_bulk(to + N * 64, from + next, bytes, full);
            }
        }
        if (exl2k_wg_adapts<LORAS>()) {
            count += copies ? 0 : (p.end - p.low + 1) / 2;
            if (exl2k_wg_is_last(a, item.work)) {
                exl2k_wg_copy_t<N>(a, l, s, p, use, count);
            }
        }
    }
}

/* Copies the chunks of a warp group's four strips: lanes 0 to 3 a strip each, lane 4 the table entry. */
template <u32 N, class LORAS>
EXL2K_FN void exl2k_wg_copy_weights(const exl2k_gemm_args &a, const LORAS &l, const exl2k_wg_shared &s, u32 group)
{
    u32 lane = threadIdx.x % EXL2K_WARP, count = 0;
#pragma unroll 1
    for (u32 i = exl2k_wg_item_first<N>(); exl2k_wg_item_of<N>(a, i).work < exl2k_wg_works(a);
         i += exl2k_wg_item_step<N>()) {
        exl2k_wg_item item = exl2k_wg_item_of<N>(a, i);
        exl2k_wg_job p = exl2k_wg_job_of<N>(a, item, group);
        const exl2k_part &q = a.matrix.part[p.part];
        auto use = exl2k_wg_lora_first<N>(a, l, p);
        /* strips beyond the last repeat the last, and are never stored */
        u64 strip = q.base + (u64)exl2k_min(p.strip + lane % 4, q.strips - 1) * q.pitch;
        u32 to = lane == 4 ? 0 : EXL2K_GEMM_ENTRY + lane * EXL2K_WG_CHUNK_BYTES(EXL2K_AFFINE);
        /* Each lane reads one table entry; then the warp copies those chunks that the split has records of. */
#pragma unroll 1
        for (u32 first = 0; first < q.chunk_count; first += EXL2K_WARP) {
            uint4 c = make_uint4(0, 0, 0, 0);
            if (first + lane < q.chunk_count) {
                c = exl2k_load_constant4(q.chunks + (first + lane) * sizeof(exl2k_chunk));
            }
            u32 row = c.y & 0xFFFF, after = row + 2 * (c.z >> 8 & 255); /* the last record begins at after - 2 */
            u32 wanted = __ballot_sync(EXL2K_ALL, c.y >> 16 && row < p.high && after >= p.low + 2);
#pragma unroll 1
            for (; wanted; wanted &= wanted - 1, count++) {
                exl2k_wg_place slot = exl2k_wg_place_of<EXL2K_WG_SLOTS(N, EXL2K_AFFINE)>(count);
                u32 index = __ffs(wanted) - 1, offset16 = __shfl_sync(EXL2K_ALL, c.x, index);
                u32 bytes = (__shfl_sync(EXL2K_ALL, c.y, index) >> 16) * 16, full = s.full + slot.index * 8;
                exl2k_barrier_wait(full + EXL2K_WG_SLOT_EMPTY, slot.parity ^ 1);
                if (lane == 0) {
                    exl2k_barrier_expect(full, EXL2K_GEMM_ENTRY + 4 * bytes);
                }
                __syncwarp();
                if (lane < 5) {
                    u64 from = lane == 4 ? q.chunks + (first + index) * sizeof(exl2k_chunk) : strip + offset16 * 16ull;
                    exl2k_weights_bulk(s.weights + slot.index * EXL2K_WG_SLOT_BYTES(EXL2K_AFFINE) + to, from,
                                       lane == 4 ? EXL2K_GEMM_ENTRY : bytes, full);
                }
            }
        }
        if (exl2k_wg_adapts<LORAS>() && exl2k_wg_is_last(a, item.work)) {
            exl2k_wg_copy_b<N>(a, l, s, p, use, count);
        }
    }
}

/* ---- records ---- */

/* Where a warp group is. */
typedef struct exl2k_wg_cursor {
    u32 slots;        /* slots before the open one */
    u32 halves;       /* halves before the next record */
    u32 released;     /* stages released so far */
    u32 slot, codes, scales; /* shared addresses: of the open slot, of this warp's codes, of this lane's scale words */
    u32 offsets;      /* a byte for each record: offset of its scale words, + 1 if its second half has others */
    u32 record;       /* the next record */
#if EXL2K_WG_PACKED
    u32 packed;       /* width, last << 8, whole << 16 */
#else
    u32 width;        /* of the open chunk */
    u32 whole;        /* records that have two halves */
    u32 last;         /* the chunk's records that begin in the tile's halves end here */
#endif
} exl2k_wg_cursor;

#if EXL2K_WG_PACKED
EXL2K_FN u32 exl2k_wg_width(const exl2k_wg_cursor &c) { return c.packed & 255; }
EXL2K_FN u32 exl2k_wg_last(const exl2k_wg_cursor &c) { return c.packed >> 8 & 255; }
EXL2K_FN u32 exl2k_wg_whole(const exl2k_wg_cursor &c) { return c.packed >> 16; }
EXL2K_FN void exl2k_wg_set(exl2k_wg_cursor &c, u32 width, u32 last, u32 whole)
{
    c.packed = width | last << 8 | whole << 16;
}
#else
EXL2K_FN u32 exl2k_wg_width(const exl2k_wg_cursor &c) { return c.width; }
EXL2K_FN u32 exl2k_wg_last(const exl2k_wg_cursor &c) { return c.last; }
EXL2K_FN u32 exl2k_wg_whole(const exl2k_wg_cursor &c) { return c.whole; }
EXL2K_FN void exl2k_wg_set(exl2k_wg_cursor &c, u32 width, u32 last, u32 whole)
{
    c.width = width;
    c.last = last;
    c.whole = whole;
}
#endif

/* A record on its way to operands: its words, and its inputs. */
typedef struct exl2k_wg_record {
    u32 w[8], scales[2], maxima; /* scale words of both halves */
    u32 others[2];               /* affine: those of column g + 8; the ones above are of column g */
    u32 half;                    /* number of its first half */
} exl2k_wg_record;

/* The codes of this warp's strip in a slot. */
EXL2K_FN u32 exl2k_wg_codes(u32 slot)
{
    return slot + EXL2K_GEMM_ENTRY + threadIdx.x / EXL2K_WARP % 4 * EXL2K_WG_CHUNK_BYTES(EXL2K_AFFINE);
}

/* Low word of the descriptor of a half of the inputs. The high word is that of all (EXL2K_WGMMA): 64-byte swizzle, 512
   bytes from 8 rows to the next 8. */
template <u32 N> EXL2K_FN u32 exl2k_wg_inputs(const exl2k_wg_shared &s, u32 number)
{
    return (1u << 16 | s.inputs >> 4) + number % (2 * EXL2K_WG_STAGES(N)) * (N * 4);
}

/* Whether a half has arrived; exl2k_wg_wait_inputs waits for it. */
template <u32 N> EXL2K_FN u32 exl2k_wg_inputs_arrived(const exl2k_wg_shared &s, u32 number)
{
    exl2k_wg_place stage = exl2k_wg_place_of<EXL2K_WG_STAGES(N)>(number / 2);
    u32 done;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done) : "r"(s.base + stage.index * 8), "r"(stage.parity) : "memory");
    return done;
}

template <u32 N> EXL2K_FN void exl2k_wg_wait_inputs(const exl2k_wg_shared &s, u32 number)
{
    exl2k_wg_place stage = exl2k_wg_place_of<EXL2K_WG_STAGES(N)>(number / 2);
    exl2k_barrier_wait(s.base + stage.index * 8, stage.parity);
}

/* Releases the stage before the one that has half `until`, unless it has been: a record ends at most one. Each warp
   arrives for itself, as only its own products are known to have ended. */
template <u32 N> EXL2K_FN void exl2k_wg_release(exl2k_wg_cursor &c, const exl2k_wg_shared &s, u32 until)
{
    u32 due = c.released != until / 2 && threadIdx.x % EXL2K_WARP == 0;
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %1, 0;\n@p mbarrier.arrive.shared.b64 _, [%0];\n}"
                 ::"r"(s.base + EXL2K_WG_EMPTY + c.released % EXL2K_WG_STAGES(N) * 8), "r"(due) : "memory");
    c.released = until / 2;
}

/* The offsets of the scale words of a chunk's records, from `ends` and `by_half` of its table entry. */
EXL2K_FN u32 exl2k_wg_offsets(u32 ends, u32 by_half)
{
    u32 offsets = 0x19110901u; /* 2 words for each record */
    if (!by_half) {
        u32 ended = ends * 4; /* a byte for each record: 4 if a group ended with the record before */
        offsets = (ended & 4) << 8 | (ended & 8) << 15 | (ended & 16) << 22;
        offsets += offsets << 8;
        offsets += offsets << 16;
    }
    return offsets;
}

/* Opens the chunk whose first half is at most `half`, at its first record that begins in the tile's halves. */
template <u32 N>
EXL2K_FN void exl2k_wg_open(exl2k_wg_cursor &c, const exl2k_wg_shared &s, const exl2k_wg_job &p, u32 half)
{
    exl2k_wg_place slot = exl2k_wg_place_of<EXL2K_WG_SLOTS(N, EXL2K_AFFINE)>(c.slots);
    exl2k_barrier_wait(s.full + slot.index * 8, slot.parity);
    c.slot = s.weights + slot.index * EXL2K_WG_SLOT_BYTES(EXL2K_AFFINE);
    uint4 entry = exl2k_shared_load4(c.slot);
    u32 row = entry.y & 0xFFFF, records = entry.z >> 8 & 255, groups = entry.z >> 16 & 255;
    u32 width = __shfl_sync(EXL2K_ALL, entry.z & 255, 0);
    c.offsets = exl2k_wg_offsets(entry.w & 255, entry.z >> 24);
    c.record = row < p.low ? (p.low - row + 1) / 2 : 0;
    exl2k_wg_set(c, width, exl2k_min(records, (p.high - row + 1) / 2), (entry.w >> 8 & 255) / 2);
    c.codes = exl2k_wg_codes(c.slot);
    c.scales = c.codes + records * exl2k_bits(width) * 128
               + exl2k_scales_of_lane(groups, threadIdx.x % EXL2K_WARP);
    if (row + 2 * c.record > half) { /* the first half belongs to a record of the split before */
        exl2k_wg_wait_inputs<N>(s, c.halves++);
    }
}

/* Opens the next chunk after the last record of a chunk; false at the end of the tile. */
template <u32 N> EXL2K_FN bool exl2k_wg_next(exl2k_wg_cursor &c, const exl2k_wg_shared &s, const exl2k_wg_job &p)
{
    uint4 entry = exl2k_shared_load4(c.slot);
    u32 half = (entry.y & 0xFFFF) + exl2k_min(2 * exl2k_wg_last(c), entry.w >> 8 & 255);
    exl2k_barrier_arrive(s.full + EXL2K_WG_SLOT_EMPTY + c.slots % EXL2K_WG_SLOTS(N, EXL2K_AFFINE) * 8);
    c.slots++;
    if (half >= p.high) {
        return false;
    }
    exl2k_wg_open<N>(c, s, p, half);
    return true;
}

template <u32 W> EXL2K_FN void exl2k_wg_load(exl2k_wg_record &r, exl2k_wg_cursor &c)
{
    u32 offset = exl2k_permute_bytes(c.offsets, 0, 0x4440u + c.record);
    u32 at = c.scales + (offset & 0xFC) * (EXL2K_GROUP_BYTES / 4);
    exl2k_lane_words<W>(c.codes + c.record * (exl2k_width<W>::bits * 128), threadIdx.x % EXL2K_WARP, r.w);
    if (EXL2K_AFFINE) {
#pragma unroll
        for (u32 half = 0; half < 2; half++, at += (offset & 1) * EXL2K_GROUP_BYTES) {
            uint2 words = exl2k_shared_load2(at);
            r.scales[half] = words.x;
            r.others[half] = words.y;
        }
    } else {
        r.scales[0] = exl2k_shared_load(at);
        r.scales[1] = exl2k_shared_load(at + (offset & 1) * 4);
        r.maxima = exl2k_shared_load(c.slot + 16 + c.record * 4);
    }
    r.half = c.halves;
    c.halves += c.record < exl2k_wg_whole(c) ? 2 : 1;
    c.record++;
}

/* The scales of half of a record: of column g, and of column g + 8, in both halves of a pair; affine: then the
   zeros. */
EXL2K_FN uint4 exl2k_wg_scales(const exl2k_wg_record &r, u32 half)
{
    if (EXL2K_AFFINE) {
        u32 left = r.scales[half], right = r.others[half];
        return make_uint4(exl2k_permute_bytes(left, 0, 0x1010u), exl2k_permute_bytes(right, 0, 0x1010u),
                          exl2k_permute_bytes(left, 0, 0x3232u), exl2k_permute_bytes(right, 0, 0x3232u));
    }
    u32 maximum = exl2k_permute_bytes(r.maxima, 0, half ? 0x3232u : 0x1010u);
    u32 pair = exl2k_scale_pair(r.scales[half], threadIdx.x % EXL2K_WARP / 4, maximum);
    return make_uint4(exl2k_permute_bytes(pair, 0, 0x1010u), exl2k_permute_bytes(pair, 0, 0x3232u), 0, 0);
}

/* Decodes step j of a record to weights: fp16(code * scale), affine: fp16(fp16(code - zero) * scale). */
template <u32 W> EXL2K_FN void exl2k_wg_decode(u32 a[4], const exl2k_wg_record &r, u32 j, const uint4 &scales)
{
    exl2k_decode<W, false>(r.w, j, a);
#pragma unroll
    for (u32 i = 0; EXL2K_AFFINE && i < 4; i++) {
        a[i] = exl2k_sub2(a[i], i % 2 ? scales.w : scales.z);
    }
    a[0] = exl2k_mul2(a[0], scales.x);
    a[1] = exl2k_mul2(a[1], scales.y);
    a[2] = exl2k_mul2(a[2], scales.x);
    a[3] = exl2k_mul2(a[3], scales.y);
}

/* ---- sums ---- */

/* Decodes half of a record, starts its products, and waits for those of the half before. */
template <u32 N, u32 W> EXL2K_FN void exl2k_wg_half(f32 *d, u32 op[2][4], const exl2k_wg_record &r, u32 half,
                                                    u32 number, u32 last, const exl2k_wg_shared &s)
{
    /* Ask for the inputs before decoding, so that the answer is ready after it. The record's second half may be in the
       next stage. */
    u32 arrived = half == 1 || exl2k_wg_inputs_arrived<N>(s, last);
    uint4 scales = exl2k_wg_scales(r, half);
    exl2k_wg_decode<W>(op[0], r, 2 * half, scales);
    exl2k_wg_decode<W>(op[1], r, 2 * half + 1, scales);
    if (!arrived) {
        exl2k_wg_wait_inputs<N>(s, last);
    }
    u32 b = exl2k_wg_inputs<N>(s, number);
    exl2k_wg_begin();
    exl2k_wgmma<N>(d, op[0], b);
    exl2k_wgmma<N>(d, op[1], b + 2); /* the next 16 inputs: 32 bytes */
    exl2k_wg_commit();
    exl2k_wg_wait<1>();
}

/* d += W x over the records from the cursor's on that have the width W; false at the end of the tile. */
template <u32 N, u32 W>
EXL2K_FN bool exl2k_wg_region(f32 *d, exl2k_wg_cursor &c, const exl2k_wg_shared &s, const exl2k_wg_job &p)
{
    if constexpr ((EXL2K_WIDTHS_MASK >> W & 1) == 0) {
        return false;
    }
    exl2k_operand op;
    exl2k_wg_record r;
    exl2k_wg_load<W>(r, c);
#pragma unroll 1
    for (;;) {
        exl2k_wg_half<N, W>(d, op, r, 0, r.half, c.halves - 1, s);
        exl2k_wg_release<N>(c, s, r.half);
        /* A missing second half has weights of 0, so any finite inputs serve. */
        exl2k_wg_half<N, W>(d, op + 2, r, 1, c.halves - 1, c.halves - 1, s);
        if (c.record == exl2k_wg_last(c)) {
            bool more = exl2k_wg_next<N>(c, s, p);
            if (!more || exl2k_wg_width(c) != W) {
                exl2k_wg_wait<0>();
                return more;
            }
        }
        exl2k_wg_load<W>(r, c);
        if (N <= 64) {
            exl2k_wg_wait<0>();
        }
    }
}

/* After the last product of a tile: releases its inputs, which end before half `end`. */
template <u32 N> EXL2K_FN void exl2k_wg_sum_ends(f32 *d, exl2k_wg_cursor &c, const exl2k_wg_shared &s, u32 end)
{
    /* Without this the compiler may copy sums before the wait. */
#pragma unroll
    for (u32 i = 0; i < N / 2; i++) {
        asm volatile("" : "+f"(d[i])::"memory");
    }
    /* The last half may belong to a record of the next split. */
    if (c.halves != end) {
        exl2k_wg_wait_inputs<N>(s, c.halves++);
    }
    c.halves = end + end % 2;
#pragma unroll 1
    while (c.released != c.halves / 2) {
        exl2k_wg_release<N>(c, s, 2 * c.released + 2);
    }
}

/* d += W x over the records that begin in the tile's halves. */
template <u32 N>
EXL2K_FN void exl2k_wg_sum(f32 *d, exl2k_wg_cursor &c, const exl2k_wg_shared &s, const exl2k_wg_job &p)
{
    u32 end = c.halves + p.end - p.low;
    exl2k_wg_open<N>(c, s, p, p.low);
    bool more = true;
#pragma unroll 1
    while (more) {
        switch (exl2k_wg_width(c)) {
        case EXL2K_W2: more = exl2k_wg_region<N, EXL2K_W2>(d, c, s, p); break;
        case EXL2K_W3: more = exl2k_wg_region<N, EXL2K_W3>(d, c, s, p); break;
        case EXL2K_W4: more = exl2k_wg_region<N, EXL2K_W4>(d, c, s, p); break;
        case EXL2K_W5: more = exl2k_wg_region<N, EXL2K_W5>(d, c, s, p); break;
        case EXL2K_W6: more = exl2k_wg_region<N, EXL2K_W6>(d, c, s, p); break;
        default: more = exl2k_wg_region<N, EXL2K_W8>(d, c, s, p); break;
        }
    }
    exl2k_wg_sum_ends<N>(d, c, s, end);
}

/* ---- the kernel ---- */

/* exl2k_wg_sum of records that other warps decode (gemm_wg_roles.cuh). */
template <u32 N>
EXL2K_FN void exl2k_role_sum(f32 *, exl2k_wg_cursor &, const exl2k_wg_shared &, const exl2k_wg_job &, u32);

/* All tiles of a warp group that multiplies. ROLES: and does not decode. */
template <u32 N, bool ROLES, class LORAS>
EXL2K_FN void exl2k_wg_multiply(const exl2k_gemm_args &a, const LORAS &l, const exl2k_wg_shared &s, u32 group)
{
    exl2k_wg_cursor c = { 0 };
#pragma unroll 1
    for (u32 i = exl2k_wg_item_first<N>(); exl2k_wg_item_of<N>(a, i).work < exl2k_wg_works(a);
         i += exl2k_wg_item_step<N>()) {
        f32 d[N / 2];
        exl2k_wg_item item = exl2k_wg_item_of<N>(a, i);
        if constexpr (ROLES) {
            exl2k_role_sum<N>(d, c, s, exl2k_wg_job_of<N>(a, item, group), group);
        } else {
#pragma unroll
            for (u32 k = 0; k < N / 2; k++) {
                d[k] = 0.0f;
            }
            if (N >= 128 && item.part == EXL2K_WG_SECOND) {
                exl2k_wg_continue<N>(d, a, item.work);
            }
            exl2k_wg_sum<N>(d, c, s, exl2k_wg_job_of<N>(a, item, group));
        }
        asm volatile("" : "+r"(i)); /* the tile is computed again, as the sums need the registers */
        item = exl2k_wg_item_of<N>(a, i);
        u32 work = item.work;
        if (N >= 128 && !ROLES && item.part == EXL2K_WG_FIRST) {
            exl2k_wg_hand_over<N>(d, a, work);
            continue;
        }
        if (exl2k_wg_adapts<LORAS>() && exl2k_wg_is_last(a, work)) {
            exl2k_wg_add_loras<N>(d, c, l, s, a.kind == EXL2K_GEMM_ACT);
        }
        exl2k_wg_job p = exl2k_wg_job_of<N>(a, item, group);
        if (a.splits > 1 && exl2k_cluster_size() > 1) { /* the plan has no clusters for ACT */
            constexpr bool few = EXL2K_AFFINE || EXL2K_ANY || ROLES || exl2k_wg_adapts<LORAS>();
            exl2k_wg_share<N, N == 64 && few ? 2 : 4>(d, a, s, p);
            return;
        }
        if (a.splits > 1) {
            if (!exl2k_wg_split_ends<N>(d, a, s, work)) {
                continue;
            }
            if (a.kind != EXL2K_GEMM_ACT) { /* stored as they are added up: that leaves registers for loads */
                /* Few registers are left. */
                constexpr bool few = EXL2K_AFFINE || EXL2K_ANY || ROLES || exl2k_wg_adapts<LORAS>();
                constexpr u32 batch = N == 64 && few ? 2 : 4, blocks = exl2k_wg_some<N>() * (N >= 128 && !few ? 2 : 1);
#pragma unroll 1
                for (u32 b = 0; b < N / 8; b += blocks) {
                    f32 some[4 * blocks];
                    exl2k_wg_join<N, blocks, batch>(some, a, work, b);
                    exl2k_wg_store<4 * blocks>(some, a, p, b * 8);
                }
                continue;
            }
#pragma unroll
            for (u32 b = 0; b < N / 8; b += exl2k_wg_some<N>()) {
                exl2k_wg_join<N, exl2k_wg_some<N>(), 1>(d + 4 * b, a, work, b);
            }
        }
        if (a.kind == EXL2K_GEMM_ACT) {
            exl2k_wg_act<N>(d, a, s, p);
        } else {
            exl2k_wg_store<N / 2>(d, a, p, 0);
        }
    }
}

template <u32 N, class LORAS> EXL2K_FN void exl2k_wg_products(const exl2k_gemm_args &a, const LORAS &l)
{
    constexpr u32 copying = !exl2k_wg_adapts<LORAS>() ? 40 : N <= 64 ? 64 : 56; /* registers of a thread */
    constexpr u32 multiplying = (N <= 64 ? 96 : 232) - (exl2k_wg_adapts<LORAS>() ? 8 : 0);
    extern __shared__ __align__(1024) uint4 exl2k_dynamic[];
    u32 group = threadIdx.x / 128, warp = threadIdx.x / EXL2K_WARP % 4, copied = group < 2 ? group : warp == 2;
    exl2k_wg_shared s = exl2k_wg_shared_of<N>(exl2k_shared(exl2k_dynamic), copied);
    if (threadIdx.x < 16) { /* stages: one thread that copies, eight warps that read */
        exl2k_barrier_init(s.base + threadIdx.x * 8, 1);
        exl2k_barrier_init(s.base + EXL2K_WG_EMPTY + threadIdx.x * 8, 8);
    } else if (threadIdx.x < 16 + 2 * EXL2K_WG_SLOTS(N, EXL2K_AFFINE)) { /* slots of both groups: one warp that copies,
                                                              four that read; their lanes arrive one by one, as
                                                              racecheck needs */
        u32 i = threadIdx.x - 16, full = s.base + EXL2K_WG_SLOT_BARRIERS + i / EXL2K_WG_SLOTS(N, EXL2K_AFFINE) * 128;
        exl2k_barrier_init(full + i % EXL2K_WG_SLOTS(N, EXL2K_AFFINE) * 8, 1);
        exl2k_barrier_init(full + EXL2K_WG_SLOT_EMPTY + i % EXL2K_WG_SLOTS(N, EXL2K_AFFINE) * 8, 4 * EXL2K_WARP);
    }
    exl2k_barrier_init_fence();
    __syncthreads();
    exl2k_dependency_release();
    if (group == 2) {
        exl2k_registers_less<copying>();
        if (warp == 0) {
            if (!exl2k_wg_adapts<LORAS>()) {
                exl2k_dependency_wait();
            }
            if (exl2k_wg_adapts<LORAS>() || threadIdx.x % EXL2K_WARP == 0) {
                exl2k_wg_copy_inputs<N>(a, l, s);
            }
        } else if (warp < 3) {
            exl2k_wg_copy_weights<N>(a, l, s, copied);
        }
    } else {
        exl2k_registers_more<multiplying>();
        exl2k_dependency_wait();
        exl2k_wg_multiply<N, false>(a, l, s, group);
    }
}

template <u32 N> EXL2K_FN void exl2k_wg_products(const exl2k_gemm_args &a)
{
    exl2k_wg_products<N>(a, exl2k_wg_no_loras());
}

#endif
#endif

/* exl3_expert.cuh: products of 1 to 16 rows with the experts in EXL3 that they have chosen (exl3_expert_args.h).
   takes: exl3_out.cuh, exl3_expert_args.h.
   gives: exl2k_exl3_expert_at, exl2k_exl3_expert_part; exl2k_exl3_expert<TILES, BOOK>: the body of a kernel for 8 or 16
          rows (TILES 1, 2) and one codebook; EXL2K_EXL3_THREADS threads; EXL2K_EXL3_EXPERT_SHARED bytes of dynamic
          shared memory.

   A CTA has a split of a strip, over the rows of all slots of one expert: each warp decodes one column of tiles, in
   registers, and multiplies a tile by all of these rows at once. The last CTA to arrive adds up the splits, and transforms the outputs. Each slot of `down` has CTAs that arrive, also where
   another slot's CTAs compute it, so that every strip has the same number of arrivals. */
#ifndef EXL2K_EXL3_EXPERT_CUH
#define EXL2K_EXL3_EXPERT_CUH

#include "exl3_out.cuh"
#include "exl3_expert_args.h"

#define EXL2K_EXL3_SLOT_BATCH 4 /* slots of which the sums are loaded together */

/* ---- a column of tiles ---- */

/* sum[n][c] += the products of `tiles` tiles, `pitch` bytes apart, with inputs in shared memory. Two chains of sums, so
   that a product need not wait for the one before. */
template <u32 TILES, u32 RATE, u32 BOOK>
EXL2K_FN void exl2k_exl3_expert_column(f32 sum[TILES][4], u64 tile, u32 pitch, u32 tiles, const u32 inputs[TILES],
                                       u32 lane)
{
    exl2k_exl3_place_of<RATE> place = exl2k_exl3_places<RATE>(lane);
    f32 odd[TILES][4] = { 0 };
    u32 words[2][exl2k_exl3_words<RATE>()], at = 0;
    exl2k_exl3_fetch<RATE>(words[0], tile, place);
    exl2k_exl3_fetch<RATE>(words[1], tile + pitch, place);
#pragma unroll 1
    for (u32 left = tiles; left > 0; left -= 2) { /* a short loop stays in the first cache of instructions */
        u32 first[4], second[4];
        tile += left > 2 ? 2 * pitch : 0;
        exl2k_exl3_decode<RATE, BOOK>(first, words[0], place.shift);
        exl2k_exl3_fetch<RATE>(words[0], tile, place);
        exl2k_exl3_decode<RATE, BOOK>(second, words[1], place.shift);
        exl2k_exl3_fetch<RATE>(words[1], tile + pitch, place);
#pragma unroll
        for (u32 n = 0; n < TILES; n++) {
            uint4 b = exl2k_shared_load4(inputs[n] + at);
            exl2k_mma(sum[n], first, b.x, b.y);
            exl2k_mma(odd[n], second, b.z, b.w);
        }
        at += 64;
    }
#pragma unroll
    for (u32 n = 0; n < TILES; n++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            sum[n][i] += odd[n][i];
        }
    }
}

/* A rate is the same for a whole CTA. */
template <u32 TILES, u32 BOOK>
EXL2K_FN void exl2k_exl3_expert_any_rate(u32 rate, f32 sum[TILES][4], u64 tile, u32 pitch, u32 tiles,
                                         const u32 inputs[TILES], u32 lane)
{
#define EXL2K_EXL3_CASE(R) \
    case R: exl2k_exl3_expert_column<TILES, R, BOOK>(sum, tile, pitch, tiles, inputs, lane); break;
    EXL2K_EXL3_RATES(rate, BOOK, EXL2K_EXL3_CASE)
#undef EXL2K_EXL3_CASE
}

/* Brings `tiles` tiles of a column, at most 64, into L2. */
EXL2K_FN void exl2k_exl3_expert_prefetch(u64 tile, u32 pitch, u32 tiles, u32 lane)
{
    for (u32 i = lane; i < tiles; i += EXL2K_WARP) {
        exl2k_prefetch(tile + (u64)i * pitch);
    }
}

/* v, as a value of its own in each turn of a loop: what each rate derives from the lane is not kept through it. */
EXL2K_FN u32 exl2k_exl3_expert_again(u32 v)
{
    u32 d;
    asm volatile("mov.u32 %0, %1;" : "=r"(d) : "r"(v));
    return d;
}

/* ---- slots ---- */

/* The expert of a slot. */
EXL2K_FN u32 exl2k_exl3_expert_at(const exl2k_exl3_expert_args &x, u32 slot)
{
    return exl2k_min(exl2k_load(x.choice + slot * 4), x.count - 1);
}

EXL2K_FN const exl2k_exl3_part &exl2k_exl3_expert_part(u64 experts, u32 expert, u32 part)
{
    return ((const exl2k_exl3_part *)experts)[expert * EXL2K_EXL3_EXPERT_PARTS + part];
}

/* Writes the slots of an expert to shared memory, one of each row at most, and returns their number. */
EXL2K_FN u32 exl2k_exl3_expert_slots(const exl2k_exl3_expert_args &x, u32 *own, u32 expert, u32 slots)
{
    __shared__ u32 count;
    if (threadIdx.x < EXL2K_EXL3_ROWS) {
        own[threadIdx.x] = ~0u;
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < slots; i += EXL2K_EXL3_THREADS) {
        if (exl2k_exl3_expert_at(x, i) == expert) {
            atomicMin(&own[i / x.active], i);
        }
    }
    __syncthreads();
    if (threadIdx.x < EXL2K_WARP) {
        u32 slot = threadIdx.x < EXL2K_EXL3_ROWS ? own[threadIdx.x] : ~0u;
        u32 bits = __ballot_sync(EXL2K_ALL, slot != ~0u);
        if (slot != ~0u) {
            own[__popc(bits & ((1u << threadIdx.x) - 1))] = slot;
        }
        if (threadIdx.x == 0) {
            count = __popc(bits);
        }
    }
    __syncthreads();
    return count;
}

/* Transforms the inputs of `count` blocks from `block` on, for all slots of the expert, into shared memory. */
EXL2K_FN void exl2k_exl3_expert_inputs(const exl2k_exl3_expert_args &x, const exl2k_exl3_part &part, u32 shared,
                                       u32 row_bytes, const u32 *own, u32 rows, u32 block, u32 count, u32 warp,
                                       u32 lane)
{
    const exl2k_exl3_args &a = x.product;
    for (u32 i = warp; i < rows * count; i += EXL2K_EXL3_WARPS) {
        u32 done = i / rows, row = i % rows, k = done * EXL2K_EXL3_BLOCK + 4 * lane;
        u32 from = a.kind == EXL2K_EXL3_ACT ? own[row] / x.active : own[row];
        uint2 pairs = exl2k_exl3_input(a.x + (u64)from * a.x_pitch * 2, part.suh, block + done, a.in, lane);
        exl2k_shared_store(shared + row * row_bytes + exl2k_exl3_place(k), pairs.x);
        exl2k_shared_store(shared + row * row_bytes + exl2k_exl3_place(k + 2), pairs.y);
    }
}

/* ---- sums of splits ---- */

/* Address of the sums of a strip (gate's come before up's), split and slot. */
EXL2K_FN u64 exl2k_exl3_expert_partial(const exl2k_exl3_expert_args &x, u32 strip, u32 split, u32 slot)
{
    const exl2k_exl3_args &a = x.product;
    return a.partial + (((u64)strip * a.splits + split) * a.rows * x.active + slot) * (EXL2K_EXL3_BLOCK * 4);
}

/* A lane's four sums of a slot, over all splits. */
EXL2K_FN void exl2k_exl3_expert_sums(f32 v[4], const exl2k_exl3_expert_args &x, u32 strip, u32 slot, u32 lane)
{
    v[0] = v[1] = v[2] = v[3] = 0;
#pragma unroll 4
    for (u32 split = 0; split < x.product.splits; split++) {
        uint4 s = exl2k_load4(exl2k_exl3_expert_partial(x, strip, split, slot) + lane * 16);
        v[0] += __uint_as_float(s.x);
        v[1] += __uint_as_float(s.y);
        v[2] += __uint_as_float(s.z);
        v[3] += __uint_as_float(s.w);
    }
}

/* h of a slot, whose expert has the part `up`. */
EXL2K_FN void exl2k_exl3_expert_h(const exl2k_exl3_expert_args &x, u32 expert, u32 strip, u32 slot, u32 lane)
{
    const exl2k_exl3_args &a = x.product;
    const exl2k_exl3_part &up = exl2k_exl3_expert_part(x.experts, expert, a.first + a.parts - 1);
    f32 v[4], gate[4] = { 0, 0, 0, 0 };
    if (a.parts == 2) {
        exl2k_exl3_expert_sums(gate, x, strip, slot, lane);
        exl2k_exl3_output(gate, exl2k_exl3_expert_part(x.experts, expert, a.first), strip, lane);
    }
    exl2k_exl3_expert_sums(v, x, (a.parts - 1) * x.strips + strip, slot, lane);
    exl2k_exl3_output(v, up, strip, lane);
    exl2k_exl3_result(a, up, strip, slot, v, gate, lane);
}

/* Adds the results of a row's experts to the residual. */
EXL2K_FN void exl2k_exl3_expert_add(const exl2k_exl3_expert_args &x, u32 strip, u32 row, u32 lane)
{
    const exl2k_exl3_args &a = x.product;
    f32 sum[4] = { 0, 0, 0, 0 }, none[4] = { 0, 0, 0, 0 };
#pragma unroll 1
    for (u32 i = 0; i < x.active; i += EXL2K_EXL3_SLOT_BATCH) {
        f32 v[EXL2K_EXL3_SLOT_BATCH][4];
        u32 experts[EXL2K_EXL3_SLOT_BATCH], slot = row * x.active + i;
        f32 weights[EXL2K_EXL3_SLOT_BATCH];
        /* Slots after the row's last one repeat it. */
#pragma unroll
        for (u32 n = 0; n < EXL2K_EXL3_SLOT_BATCH; n++) {
            u32 own = slot + exl2k_min(n, x.active - 1 - i);
            experts[n] = exl2k_exl3_expert_at(x, own);
            weights[n] = exl2k_load_f32(x.weight + own * 4);
            exl2k_exl3_expert_sums(v[n], x, strip, own, lane);
        }
#pragma unroll
        for (u32 n = 0; n < EXL2K_EXL3_SLOT_BATCH; n++) {
            if (i + n < x.active) {
                exl2k_exl3_output(v[n], exl2k_exl3_expert_part(x.experts, experts[n], a.first), strip, lane);
#pragma unroll
                for (u32 k = 0; k < 4; k++) {
                    sum[k] = fmaf(weights[n], v[n][k], sum[k]);
                }
            }
        }
    }
    exl2k_exl3_result(a, exl2k_exl3_expert_part(x.experts, 0, a.first), strip, row, sum, none, lane);
}

/* The sums of a CTA's split, for all slots of its expert, go to memory. */
template <u32 TILES, u32 BOOK>
EXL2K_FN void exl2k_exl3_expert_multiply(const exl2k_exl3_expert_args &x, const exl2k_exl3_part &part, u32 which,
                                         u32 strip, u32 split, const u32 *own, u32 rows)
{
    extern __shared__ uint4 exl2k_dynamic[];
    const exl2k_exl3_args &a = x.product;
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP, shared = exl2k_shared(exl2k_dynamic);
    u32 begin = a.blocks * split / a.splits, blocks = a.blocks * (split + 1) / a.splits - begin;
    u32 slab = exl2k_min(blocks, EXL2K_EXL3_SLAB), row_bytes = slab * (EXL2K_EXL3_BLOCK * 2) + EXL2K_EXL3_SPARE;
    u32 tile_bytes = 16 * part.rate, pitch = part.row_tiles * tile_bytes;
    u64 tile = part.trellis + (u64)begin * 8 * pitch + (u64)(strip * 8 + warp) * tile_bytes;
    exl2k_exl3_expert_prefetch(tile, pitch, slab * 8, lane);
    /* Rows beyond the last repeat it; nothing reads their sums. */
    u32 inputs[TILES];
    f32 sum[TILES][4];
#pragma unroll
    for (u32 n = 0; n < TILES; n++) {
        inputs[n] = shared + exl2k_min(8 * n + lane / 4, rows - 1) * row_bytes + lane % 4 * 16;
        sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
    }
#pragma unroll 1
    for (u32 done = 0; done < blocks; done += slab) {
        u32 count = exl2k_min(slab, blocks - done);
        exl2k_exl3_expert_inputs(x, part, shared, row_bytes, own, rows, begin + done, count, warp, lane);
        u32 more = exl2k_min(slab, blocks - done - count); /* of the next slab */
        exl2k_exl3_expert_prefetch(tile + (u64)(done + count) * 8 * pitch, pitch, more * 8, lane);
        __syncthreads();
        exl2k_exl3_expert_any_rate<TILES, BOOK>(part.rate, sum, tile + (u64)done * 8 * pitch, pitch, count * 8, inputs,
                                                exl2k_exl3_expert_again(lane));
        __syncthreads(); /* all warps have read the inputs */
    }
#pragma unroll
    for (u32 n = 0; n < TILES; n++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 row = 8 * n + lane % 4 * 2 + i % 2, column = warp * EXL2K_EXL3_TILE + lane / 4 + i / 2 * 8;
            if (row < rows) {
                u64 to = exl2k_exl3_expert_partial(x, which * x.strips + strip, split, own[row]);
                exl2k_store_f32(to + column * 4, sum[n][i]);
            }
        }
    }
}

template <u32 TILES, u32 BOOK> EXL2K_FN void exl2k_exl3_expert(const exl2k_exl3_expert_args &x)
{
    __shared__ u32 own[EXL2K_EXL3_ROWS], arrived;
    const exl2k_exl3_args &a = x.product;
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP;
    u32 which = blockIdx.x / x.strips, strip = blockIdx.x % x.strips, slot = blockIdx.y / a.splits;
    bool down = a.kind != EXL2K_EXL3_ACT;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u32 rows = exl2k_exl3_rows(a.rows_at, a.rows, a.before), slots = rows * x.active;
    if (slot >= slots) {
        return;
    }
    u32 expert = exl2k_exl3_expert_at(x, slot);
    const exl2k_exl3_part &part = exl2k_exl3_expert_part(x.experts, expert, a.first + which);
    if (part.book != BOOK) {
        return;
    }
    u32 count = exl2k_exl3_expert_slots(x, own, expert, slots);
    if (own[0] == slot) {
        exl2k_exl3_expert_multiply<TILES, BOOK>(x, part, which, strip, blockIdx.y % a.splits, own, count);
    } else if (!down) {
        return;
    }
    /* The last CTA of the strip makes the outputs. */
    u64 ticket = a.tickets + (down ? strip : slot * x.strips + strip) * 4;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        arrived = atomicAdd((u32 *)ticket, 1u);
    }
    __syncthreads();
    if (arrived + 1 < a.splits * (down ? slots : a.parts)) {
        return;
    }
    __threadfence();
    if (threadIdx.x == 0) {
        exl2k_store(ticket, 0);
    }
    if (down) {
        for (u32 row = warp; row < rows; row += EXL2K_EXL3_WARPS) {
            exl2k_exl3_expert_add(x, strip, row, lane);
        }
    } else {
        for (u32 i = warp; i < count; i += EXL2K_EXL3_WARPS) {
            exl2k_exl3_expert_h(x, expert, strip, own[i], lane);
        }
    }
}

#endif

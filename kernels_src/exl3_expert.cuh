/* exl3_expert.cuh: products of 1 to 16 rows with the experts in EXL3 that they have chosen (exl3_expert_args.h).
   takes: exl3_out.cuh, exl3_expert_args.h.
   gives: exl2k_exl3_expert_at, exl2k_exl3_expert_part; exl2k_exl3_expert<TILES, BOOK>: the body of a kernel for 8 or 16
          rows (TILES 1, 2) and one codebook; EXL2K_EXL3_THREADS threads; EXL2K_EXL3_EXPERT_SHARED bytes of dynamic
          shared memory.

   A CTA has a split of a strip, over the rows of all slots of one expert: each warp decodes one column of tiles, in
   registers, and multiplies a tile by all of these rows at once. The last CTA to arrive adds up the splits, and
   transforms the outputs. Each slot of `down` has CTAs that arrive, also where another slot's CTAs compute it, so that
   every strip has the same number of arrivals. */
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

/* Adds to a lane's four outputs of a strip what adapters add to part `which` of the launch. */
EXL2K_FN void exl2k_exl3_expert_adapt(f32 v[4], const exl2k_exl3_expert_args &x, u32 slot, u32 which, u32 columns,
                                      u32 strip, u32 lane)
{
    u64 at = x.added + (u64)(slot * 2 + which) * columns * 4;
    u32 n = strip * EXL2K_EXL3_BLOCK + 4 * lane;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        v[i] += n + i < columns ? exl2k_load_f32(at + (n + i) * 4) : 0.0f;
    }
}

/* h of a slot, whose expert has the part `up`. */
EXL2K_FN void exl2k_exl3_expert_h(const exl2k_exl3_expert_args &x, u32 expert, u32 strip, u32 slot, u32 lane)
{
    const exl2k_exl3_args &a = x.product;
    const exl2k_exl3_part &up = exl2k_exl3_expert_part(x.experts, expert, a.first + a.parts - 1);
    f32 v[4], gate[4] = { 0, 0, 0, 0 };
    exl2k_exl3_expert_sums(v, x, (a.parts - 1) * x.strips + strip, slot, lane);
    if (a.parts == 2) {
        exl2k_exl3_expert_sums(gate, x, strip, slot, lane);
        exl2k_exl3_output(gate, exl2k_exl3_expert_part(x.experts, expert, a.first), strip, lane);
    }
    exl2k_exl3_output(v, up, strip, lane);
    if (x.added) {
        exl2k_exl3_expert_adapt(gate, x, slot, 0, up.columns, strip, lane);
        exl2k_exl3_expert_adapt(v, x, slot, a.parts - 1, up.columns, strip, lane);
    }
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

/* The same for a pass of one row, whose slots are shared among the warps of the CTA. */
EXL2K_FN void exl2k_exl3_expert_add_one(const exl2k_exl3_expert_args &x, u32 strip, u32 warp, u32 lane)
{
    __shared__ uint4 outputs[EXL2K_EXL3_WARPS][EXL2K_WARP];
    const exl2k_exl3_args &a = x.product;
    f32 sum[4] = { 0, 0, 0, 0 }, none[4] = { 0, 0, 0, 0 };
#pragma unroll 1
    for (u32 i = 0; i < x.active; i += EXL2K_EXL3_WARPS) {
        if (i + warp < x.active) {
            f32 v[4];
            u32 expert = exl2k_exl3_expert_at(x, i + warp);
            exl2k_exl3_expert_sums(v, x, strip, i + warp, lane);
            exl2k_exl3_output(v, exl2k_exl3_expert_part(x.experts, expert, a.first), strip, lane);
            outputs[warp][lane] = make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                                             __float_as_uint(v[3]));
        }
        __syncthreads();
        for (u32 n = 0; warp == 0 && n < EXL2K_EXL3_WARPS && i + n < x.active; n++) {
            uint4 v = outputs[n][lane];
            f32 weight = exl2k_load_f32(x.weight + (i + n) * 4);
            sum[0] = fmaf(weight, __uint_as_float(v.x), sum[0]);
            sum[1] = fmaf(weight, __uint_as_float(v.y), sum[1]);
            sum[2] = fmaf(weight, __uint_as_float(v.z), sum[2]);
            sum[3] = fmaf(weight, __uint_as_float(v.w), sum[3]);
        }
        __syncthreads();
    }
    if (warp == 0) {
        exl2k_exl3_result(a, exl2k_exl3_expert_part(x.experts, 0, a.first), strip, 0, sum, none, lane);
    }
}

/* ---- the product ---- */

/* The place of a CTA's split in its part, for a warp. */
typedef struct exl2k_exl3_expert_column_of {
    u64 tile;          /* its first tile */
    u32 pitch;         /* bytes from one tile to the next */
    u32 begin, blocks; /* blocks of inputs */
} exl2k_exl3_expert_column_of;

EXL2K_FN exl2k_exl3_expert_column_of exl2k_exl3_expert_find(const exl2k_exl3_args &a, const exl2k_exl3_part &part,
                                                            u32 strip, u32 split, u32 warp)
{
    exl2k_exl3_expert_column_of c;
    u32 tile_bytes = 16 * part.rate;
    c.begin = a.blocks * split / a.splits;
    c.blocks = a.blocks * (split + 1) / a.splits - c.begin;
    c.pitch = part.row_tiles * tile_bytes;
    c.tile = part.trellis + (u64)c.begin * 8 * c.pitch + (u64)(strip * 8 + warp) * tile_bytes;
    return c;
}

/* The sums of a CTA's split, for all slots of its expert, go to memory. */
template <u32 TILES, u32 BOOK>
EXL2K_FN void exl2k_exl3_expert_multiply(const exl2k_exl3_expert_args &x, const exl2k_exl3_part &part, u32 which,
                                         u32 strip, u32 split, const u32 *own, u32 rows)
{
    extern __shared__ uint4 exl2k_dynamic[];
    const exl2k_exl3_args &a = x.product;
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP, shared = exl2k_shared(exl2k_dynamic);
    exl2k_exl3_expert_column_of c = exl2k_exl3_expert_find(a, part, strip, split, warp);
    u32 slab = exl2k_min(c.blocks, EXL2K_EXL3_SLAB), row_bytes = slab * (EXL2K_EXL3_BLOCK * 2) + EXL2K_EXL3_SPARE;
    /* Rows beyond the last repeat it; nothing reads their sums. */
    u32 inputs[TILES];
    f32 sum[TILES][4];
#pragma unroll
    for (u32 n = 0; n < TILES; n++) {
        inputs[n] = shared + exl2k_min(8 * n + lane / 4, rows - 1) * row_bytes + lane % 4 * 16;
        sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
    }
#pragma unroll 1
    for (u32 done = 0; done < c.blocks; done += slab) {
        u32 count = exl2k_min(slab, c.blocks - done);
        exl2k_exl3_expert_inputs(x, part, shared, row_bytes, own, rows, c.begin + done, count, warp, lane);
        u32 more = exl2k_min(slab, c.blocks - done - count); /* of the next slab */
        exl2k_exl3_expert_prefetch(c.tile + (u64)(done + count) * 8 * c.pitch, c.pitch, more * 8, lane);
        __syncthreads();
        exl2k_exl3_expert_any_rate<TILES, BOOK>(part.rate, sum, c.tile + (u64)done * 8 * c.pitch, c.pitch, count * 8,
                                                inputs, exl2k_exl3_again(lane));
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

/* The last CTA of a strip makes the outputs. What it needs comes from shared memory: registers are for the product.
   own: the slots of its expert, `count` of them. */
EXL2K_FN void exl2k_exl3_expert_end(const exl2k_exl3_expert_args &x, const u32 *own, u32 rows, u32 count)
{
    const exl2k_exl3_args &a = x.product;
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP;
    u32 strip = exl2k_exl3_again(blockIdx.x) % x.strips;
    bool down = a.kind != EXL2K_EXL3_ACT;
    u64 ticket = a.tickets + (down ? strip : own[0] * x.strips + strip) * 4;
    if (!exl2k_exl3_is_last(ticket, a.splits * (down ? rows * x.active : a.parts))) {
        return;
    }
    if (!down) {
        u32 expert = exl2k_exl3_expert_at(x, own[0]);
        for (u32 i = warp; i < count; i += EXL2K_EXL3_WARPS) {
            exl2k_exl3_expert_h(x, expert, strip, own[i], lane);
        }
    } else if (rows == 1) {
        exl2k_exl3_expert_add_one(x, strip, warp, lane);
    } else {
        for (u32 row = warp; row < rows; row += EXL2K_EXL3_WARPS) {
            exl2k_exl3_expert_add(x, strip, row, lane);
        }
    }
}

template <u32 TILES, u32 BOOK> EXL2K_FN void exl2k_exl3_expert(const exl2k_exl3_expert_args &x)
{
    __shared__ u32 own[EXL2K_EXL3_ROWS], kept[2];
    const exl2k_exl3_args &a = x.product;
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP;
    u32 which = blockIdx.x / x.strips, strip = blockIdx.x % x.strips, slot = blockIdx.y / a.splits;
    bool down = a.kind != EXL2K_EXL3_ACT;
    /* The kernels in front of down are up's, which let it start once there are choices. So it needs to wait for h only,
       and brings its weights into L2 before. */
    if (!down) {
        exl2k_dependency_wait();
    }
    exl2k_dependency_release();
    u32 rows = exl2k_exl3_rows(a.rows_at, a.rows, a.before), slots = rows * x.active, count = 1;
    bool has = slot < slots;
    u32 expert = has ? exl2k_exl3_expert_at(x, slot) : 0;
    const exl2k_exl3_part &part = exl2k_exl3_expert_part(x.experts, expert, a.first + which);
    has = has && part.book == BOOK;
    if (has) {
        exl2k_exl3_expert_column_of c = exl2k_exl3_expert_find(a, part, strip, blockIdx.y % a.splits, warp);
        exl2k_exl3_expert_prefetch(c.tile, c.pitch, exl2k_min(c.blocks, EXL2K_EXL3_SLAB) * 8, lane);
    }
    if (down) {
        exl2k_dependency_wait();
    }
    if (!has) { /* every CTA has waited: the next kernel waits for this one alone */
        return;
    }
    if (rows > 1) {
        count = exl2k_exl3_expert_slots(x, own, expert, slots);
    } else if (threadIdx.x == 0) {
        own[0] = slot;
    }
    if (threadIdx.x == 0) {
        kept[0] = rows;
        kept[1] = count;
    }
    __syncthreads();
    if (own[0] == slot) {
        exl2k_exl3_expert_multiply<TILES, BOOK>(x, part, which, strip, blockIdx.y % a.splits, own, count);
    } else if (!down) {
        return;
    }
    exl2k_exl3_expert_end(x, own, kept[0], kept[1]);
}

#endif

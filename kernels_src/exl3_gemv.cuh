/* exl3_gemv.cuh: the product of 1 to 16 rows with an EXL3 matrix (exl3_args.h).
   takes: exl3.cuh, exl3_out.cuh.
   gives: exl2k_exl3_gemv<TILES, BOOK>: the body of a kernel for 8 or 16 rows (TILES 1, 2) and one codebook. Grid:
          strips of the launch's parts, splits; EXL2K_EXL3_THREADS threads; EXL2K_EXL3_SHARED bytes of dynamic shared
          memory.

   Each CTA transforms the inputs of its split itself, a warp a block: for one row this is 1/50 of the work on the
   block. Each warp then decodes one column of tiles, in registers, and multiplies a tile by all rows at once. The last
   CTA of a strip to arrive adds up the splits and transforms the outputs. A row's bits do not depend on the other
   rows. */
#ifndef EXL2K_EXL3_GEMV_CUH
#define EXL2K_EXL3_GEMV_CUH

#include "exl3_out.cuh"

/* sum[n][c] += the products of `tiles` tiles, `pitch` bytes apart, with inputs in shared memory. Two chains of sums, so
   that a product need not wait for the one before. */
template <u32 TILES, u32 RATE, u32 BOOK>
EXL2K_FN void exl2k_exl3_column(f32 sum[TILES][4], u64 tile, u32 pitch, u32 tiles, const u32 inputs[TILES], u32 lane)
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

/* A rate is the same for a whole CTA. Only MUL1 has half rates. */
template <u32 TILES, u32 BOOK>
EXL2K_FN void exl2k_exl3_any_rate(u32 rate, f32 sum[TILES][4], u64 tile, u32 pitch, u32 tiles,
                                  const u32 inputs[TILES], u32 lane)
{
    switch (rate) {
    case 2: exl2k_exl3_column<TILES, 2, BOOK>(sum, tile, pitch, tiles, inputs, lane); break;
    case 4: exl2k_exl3_column<TILES, 4, BOOK>(sum, tile, pitch, tiles, inputs, lane); break;
    case 6: exl2k_exl3_column<TILES, 6, BOOK>(sum, tile, pitch, tiles, inputs, lane); break;
    case 8: exl2k_exl3_column<TILES, 8, BOOK>(sum, tile, pitch, tiles, inputs, lane); break;
    case 10: exl2k_exl3_column<TILES, 10, BOOK>(sum, tile, pitch, tiles, inputs, lane); break;
    case 12: exl2k_exl3_column<TILES, 12, BOOK>(sum, tile, pitch, tiles, inputs, lane); break;
    case 14: exl2k_exl3_column<TILES, 14, BOOK>(sum, tile, pitch, tiles, inputs, lane); break;
    case 16: exl2k_exl3_column<TILES, 16, BOOK>(sum, tile, pitch, tiles, inputs, lane); break;
    }
    if constexpr (BOOK == EXL2K_EXL3_MUL1) {
        switch (rate) {
        case 3: exl2k_exl3_column<TILES, 3, BOOK>(sum, tile, pitch, tiles, inputs, lane); break;
        case 5: exl2k_exl3_column<TILES, 5, BOOK>(sum, tile, pitch, tiles, inputs, lane); break;
        case 7: exl2k_exl3_column<TILES, 7, BOOK>(sum, tile, pitch, tiles, inputs, lane); break;
        }
    }
}

/* A strip of the launch. */
typedef struct exl2k_exl3_unit {
    u32 part, strip; /* strip of the part */
    u32 before;      /* strips of the parts before it, of the whole matrix */
} exl2k_exl3_unit;

EXL2K_FN exl2k_exl3_unit exl2k_exl3_unit_of(const exl2k_exl3_args &a, u32 index)
{
    exl2k_exl3_unit u = { 0, index, 0 };
    for (; u.part < a.first; u.part++) {
        u.before += a.part[u.part].out / EXL2K_EXL3_BLOCK;
    }
    for (; u.strip >= a.part[u.part].out / EXL2K_EXL3_BLOCK; u.part++) {
        u.strip -= a.part[u.part].out / EXL2K_EXL3_BLOCK;
        u.before += a.part[u.part].out / EXL2K_EXL3_BLOCK;
    }
    return u;
}

/* Address of the sums of a strip (of the whole matrix), split and row. */
EXL2K_FN u64 exl2k_exl3_partial(const exl2k_exl3_args &a, u32 strip, u32 split, u32 row)
{
    return a.partial + (((u64)strip * a.splits + split) * a.rows + row) * (EXL2K_EXL3_BLOCK * 4);
}

/* The outputs of a row of a strip, from the sums of all splits. */
EXL2K_FN void exl2k_exl3_total(f32 v[4], const exl2k_exl3_args &a, u32 part, u32 strip, u32 before, u32 row, u32 lane)
{
    u64 at = exl2k_exl3_partial(a, before + strip, 0, row) + lane * 16;
    v[0] = v[1] = v[2] = v[3] = 0;
#pragma unroll 4
    for (u32 split = 0; split < a.splits; split++) {
        uint4 s = exl2k_load4(at + (u64)split * a.rows * (EXL2K_EXL3_BLOCK * 4));
        v[0] += __uint_as_float(s.x);
        v[1] += __uint_as_float(s.y);
        v[2] += __uint_as_float(s.z);
        v[3] += __uint_as_float(s.w);
    }
    exl2k_exl3_output(v, a.part[part], strip, lane);
}

/* Brings `tiles` tiles of a column, at most 64, into L2. */
EXL2K_FN void exl2k_exl3_prefetch(u64 tile, u32 pitch, u32 tiles, u32 lane)
{
    for (u32 i = lane; i < tiles; i += EXL2K_WARP) {
        exl2k_prefetch(tile + (u64)i * pitch);
    }
}

/* v, as a value of its own in each turn of a loop. */
EXL2K_FN u32 exl2k_exl3_again(u32 v)
{
    u32 d;
    asm volatile("mov.u32 %0, %1;" : "=r"(d) : "r"(v));
    return d;
}

/* Transforms the inputs of `count` blocks from `block` on, for all rows, into shared memory. */
EXL2K_FN void exl2k_exl3_inputs(const exl2k_exl3_args &a, const exl2k_exl3_part &part, u32 shared, u32 row_bytes,
                                u32 rows, u32 block, u32 count, u32 warp, u32 lane)
{
    for (u32 i = warp; i < rows * count; i += EXL2K_EXL3_WARPS) {
        u32 own = i / rows, row = i % rows, k = own * EXL2K_EXL3_BLOCK + 4 * lane;
        uint2 pairs = exl2k_exl3_input(a.x + (u64)row * a.x_pitch * 2, part.suh, block + own, a.in, lane);
        exl2k_shared_store(shared + row * row_bytes + exl2k_exl3_place(k), pairs.x);
        exl2k_shared_store(shared + row * row_bytes + exl2k_exl3_place(k + 2), pairs.y);
    }
}

template <u32 TILES, u32 BOOK> EXL2K_FN void exl2k_exl3_gemv(const exl2k_exl3_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    __shared__ u32 arrived;
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP, split = blockIdx.y;
    u32 shared = exl2k_shared(exl2k_dynamic);
    exl2k_exl3_unit u = exl2k_exl3_unit_of(a, blockIdx.x);
    const exl2k_exl3_part &part = a.part[u.part];
    u32 begin = a.blocks * split / a.splits, blocks = a.blocks * (split + 1) / a.splits - begin;
    u32 slab = exl2k_min(blocks, EXL2K_EXL3_SLAB), row_bytes = slab * (EXL2K_EXL3_BLOCK * 2) + EXL2K_EXL3_SPARE;
    u32 tile_bytes = 16 * part.rate, pitch = part.row_tiles * tile_bytes;
    u64 tile = part.trellis + (u64)begin * 8 * pitch + (u64)(u.strip * 8 + warp) * tile_bytes;
    /* Bring the first slab into L2, while preceding kernels may still run. */
    exl2k_exl3_prefetch(tile, pitch, exl2k_min(slab, blocks) * 8, lane);
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u32 rows = exl2k_exl3_rows(a.rows_at, a.rows, a.before);
    if (rows == 0) {
        return;
    }
    /* Rows beyond the last repeat it; nothing reads their sums. */
    u32 inputs[TILES];
    f32 sum[TILES][4];
#pragma unroll
    for (u32 n = 0; n < TILES; n++) {
        inputs[n] = shared + exl2k_min(8 * n + lane / 4, rows - 1) * row_bytes + lane % 4 * 16;
        sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
    }
    for (u32 done = 0; done < blocks; done += slab) {
        u32 count = exl2k_min(slab, blocks - done);
        exl2k_exl3_inputs(a, part, shared, row_bytes, rows, begin + done, count, warp, lane);
        u32 more = exl2k_min(slab, blocks - done - count); /* of the next slab */
        exl2k_exl3_prefetch(tile + (u64)(done + count) * 8 * pitch, pitch, more * 8, lane);
        __syncthreads();
        u32 again = exl2k_exl3_again(lane); /* what each rate derives from the lane is not kept through the loop */
        exl2k_exl3_any_rate<TILES, BOOK>(part.rate, sum, tile + (u64)done * 8 * pitch, pitch, count * 8, inputs, again);
        __syncthreads(); /* all warps have read the inputs */
    }
    bool pairs = a.kind == EXL2K_EXL3_ACT && a.parts == 2;
    if (a.splits == 1 && !pairs) {
        exl2k_exl3_gather<TILES>(shared, sum, warp, lane, rows);
        __syncthreads();
        for (u32 row = warp; row < rows; row += EXL2K_EXL3_WARPS) {
            f32 v[4], gate[4] = { 0, 0, 0, 0 };
            exl2k_exl3_sums(v, shared, row, lane);
            exl2k_exl3_output(v, part, u.strip, lane);
            exl2k_exl3_result(a, part, u.strip, row, v, gate, lane);
        }
        return;
    }
#pragma unroll
    for (u32 n = 0; n < TILES; n++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 row = 8 * n + lane % 4 * 2 + i % 2, column = warp * EXL2K_EXL3_TILE + lane / 4 + i / 2 * 8;
            if (row < rows) {
                exl2k_store_f32(exl2k_exl3_partial(a, u.before + u.strip, split, row) + column * 4, sum[n][i]);
            }
        }
    }
    /* The last CTA of the strip makes the outputs. */
    u64 ticket = a.tickets + (pairs ? u.strip : u.before + u.strip) * 4;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        arrived = atomicAdd((u32 *)ticket, 1u);
    }
    __syncthreads();
    if (arrived + 1 < a.splits << pairs) {
        return;
    }
    __threadfence();
    if (threadIdx.x == 0) {
        exl2k_store(ticket, 0);
    }
    for (u32 row = warp; row < rows; row += EXL2K_EXL3_WARPS) {
        f32 v[4], gate[4] = { 0, 0, 0, 0 };
        if (pairs) {
            u32 ups = a.part[0].out / EXL2K_EXL3_BLOCK;
            exl2k_exl3_total(gate, a, 0, u.strip, 0, row, lane);
            exl2k_exl3_total(v, a, 1, u.strip, ups, row, lane);
            exl2k_exl3_result(a, a.part[1], u.strip, row, v, gate, lane);
        } else {
            exl2k_exl3_total(v, a, u.part, u.strip, u.before, row, lane);
            exl2k_exl3_result(a, part, u.strip, row, v, gate, lane);
        }
    }
}

#endif

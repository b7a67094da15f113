/* exl3_expert_wg.cuh: products of many rows with experts in EXL3 by wgmma, on sm_90a (exl3_expert_args.h).
   takes: exl3_out.cuh, exl3_expert.cuh, wg.cuh.
   gives: exl2k_exl3_expert_wg<BOOK>: the body of a kernel for one codebook and tiles of 128 rows; EXL2K_EXL3_THREADS
          threads; EXL2K_EXL3_EXPERT_WG_SHARED bytes of dynamic shared memory.

   Two warpgroups have 64 outputs of the strip each; a warp decodes one column of tiles, and a tile is its operand A of
   16 inputs. Transformed inputs, in natural order, come by asynchronous copies, 64 inputs a stage, two stages in
   advance. While a product runs, its warps decode the operand of the next one: a product of 16 inputs is a group, and a
   warp waits for the last but one before it decodes into that one's registers. When a stage begins, all groups but the
   last one have ended, so no product reads the stage that is copied over, which is two stages back.

   A tile of up to 32 rows is multiplied as one of 32: most experts have few rows where a pass has few. A CTA has all
   inputs of its rows, in one order: a row's bits do not depend on the number of rows. */
#ifndef EXL2K_EXL3_EXPERT_WG_CUH
#define EXL2K_EXL3_EXPERT_WG_CUH

#include "exl3_expert.cuh"
#include "wg.cuh"

/* Starts to copy stage `index`, 64 inputs of ROWS rows. rows: address of the first row's first input. */
template <u32 ROWS> EXL2K_FN void exl2k_exl3_expert_stage(u32 shared, u64 rows, u32 row_bytes, u32 index, u32 stages)
{
    if (index < stages) {
        u32 to = shared + index % EXL2K_EXL3_EXPERT_STAGES * (ROWS * 128);
#pragma unroll
        for (u32 i = 0; i < ROWS / 32; i++) {
            u32 row = i * 32 + threadIdx.x / 8, piece = threadIdx.x % 8;
            u64 from = rows + (u64)row * row_bytes + index * 128 + piece * 16;
            exl2k_copy16(to + row * 128 + (piece ^ row % 8) * 16, from);
        }
    }
    exl2k_copy_commit();
}

/* Leaves the products of all tiles of a column with the inputs of ROWS rows in shared memory: f32 [ROWS,
   EXL2K_EXL3_PITCH]. The sums do not leave this function: where those of several rates meet, the assembler would make
   products wait for one another. */
template <u32 ROWS, u32 RATE, u32 BOOK>
EXL2K_FN void exl2k_exl3_expert_wg_column(u64 tile, u32 pitch, u32 stages, u64 inputs, u32 row_bytes, u32 shared,
                                          u32 warp, u32 lane)
{
    f32 sum[ROWS / 8][4];
#pragma unroll
    for (u32 i = 0; i < ROWS / 2; i++) {
        sum[i / 4][i % 4] = 0;
    }
    exl2k_exl3_place_of<RATE> place = exl2k_exl3_places<RATE>(lane);
    u32 words[4][exl2k_exl3_words<RATE>()], a[2][4];
    exl2k_exl3_expert_stage<ROWS>(shared, inputs, row_bytes, 0, stages);
    exl2k_exl3_expert_stage<ROWS>(shared, inputs, row_bytes, 1, stages);
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        exl2k_exl3_fetch<RATE>(words[k], tile + (u64)k * pitch, place);
    }
#pragma unroll 1
    for (u32 i = 0; i < stages; i++) {
        tile += i + 1 < stages ? (u64)pitch * 4 : 0;
        exl2k_copy_wait<1>();
        exl2k_async_fence();
        __syncthreads(); /* the stage is there, and all warps have begun the stage before */
        exl2k_exl3_expert_stage<ROWS>(shared, inputs, row_bytes, i + 2, stages);
        u64 at = exl2k_wg_tile(shared + i % EXL2K_EXL3_EXPERT_STAGES * (ROWS * 128));
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            exl2k_wg_wait<1>(); /* the group that read a[k % 2] has ended */
            exl2k_exl3_decode<RATE, BOOK>(a[k % 2], words[k], place.shift);
            exl2k_exl3_fetch<RATE>(words[k], tile + (u64)k * pitch, place);
            exl2k_wg_begin();
            exl2k_wg_multiply<false>(sum, a[k % 2], at + 2 * k, false);
            exl2k_wg_commit();
        }
    }
    exl2k_wg_wait<0>();
    exl2k_wg_hold(sum);
    exl2k_copy_wait<0>();
    __syncthreads(); /* nothing reads inputs any more */
    exl2k_exl3_gather<ROWS / 8>(shared, sum, warp, lane, ROWS);
}

template <u32 ROWS, u32 BOOK>
EXL2K_FN void exl2k_exl3_expert_wg_rate(u32 rate, u64 tile, u32 pitch, u32 stages, u64 inputs, u32 row_bytes,
                                        u32 shared, u32 warp, u32 lane)
{
#define EXL2K_EXL3_CASE(R)                                                                                             \
    case R:                                                                                                            \
        exl2k_exl3_expert_wg_column<ROWS, R, BOOK>(tile, pitch, stages, inputs, row_bytes, shared, warp, lane);        \
        break;
    EXL2K_EXL3_RATES(rate, BOOK, EXL2K_EXL3_CASE)
#undef EXL2K_EXL3_CASE
}

template <u32 BOOK> EXL2K_FN void exl2k_exl3_expert_wg(const exl2k_exl3_expert_args &x)
{
    extern __shared__ uint4 exl2k_dynamic[];
    const exl2k_exl3_args &a = x.product;
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP, strip = blockIdx.x;
    u32 shared = (exl2k_shared(exl2k_dynamic) + 1023) & ~1023u, row_bytes = a.blocks * (EXL2K_EXL3_BLOCK * 2);
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (blockIdx.y >= exl2k_load(x.tile_count)) {
        return;
    }
    uint4 rows = exl2k_load4(x.tiles + (u64)blockIdx.y * sizeof(exl2k_grouped_tile)); /* expert, first, count */
    const exl2k_exl3_part &part = exl2k_exl3_expert_part(x.experts, rows.x, x.part);
    if (part.book != BOOK) {
        return;
    }
    u32 tile_bytes = 16 * part.rate, pitch = part.row_tiles * tile_bytes;
    u64 tile = part.trellis + (u64)(strip * 8 + warp) * tile_bytes, inputs = a.rotated + (u64)rows.y * row_bytes;
    if (rows.z <= 32) {
        exl2k_exl3_expert_wg_rate<32, BOOK>(part.rate, tile, pitch, a.blocks * 2, inputs, row_bytes, shared, warp,
                                            lane);
    } else {
        exl2k_exl3_expert_wg_rate<128, BOOK>(part.rate, tile, pitch, a.blocks * 2, inputs, row_bytes, shared, warp,
                                             lane);
    }
    __syncthreads();
    for (u32 i = 0; i < 128 && i < rows.z; i += EXL2K_EXL3_GEMM_ROWS) {
        exl2k_exl3_store_rows(a, part, strip, shared + i * (EXL2K_EXL3_PITCH * 4), rows.y + i, rows.y + rows.z, warp,
                              lane);
    }
}

#endif

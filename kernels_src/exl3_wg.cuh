/* exl3_wg.cuh: the product of many rows with an EXL3 matrix by wgmma, on sm_90a (exl3_args.h).
   takes: exl3.cuh, exl3_out.cuh, exl3_gemv.cuh (strips), wg.cuh.
   gives: exl2k_exl3_wg<HALVES, BOOK>: the body of a kernel for tiles of 128 HALVES rows (1, 2) and one codebook. Grid:
          strips of the launch's parts, rotated_rows / (128 HALVES); EXL2K_EXL3_THREADS threads; EXL2K_EXL3_WG_SHARED
          bytes of dynamic shared memory.

   Two warpgroups have 64 outputs of the strip each; a warp decodes one column of tiles, and a tile is its operand A of
   16 inputs. Transformed inputs, in natural order, come by asynchronous copies, 64 inputs a stage, two stages in
   advance. While a product runs, its warps decode the operand of the next one: a product of 16 inputs is a group, and a
   warp waits for the last but one before it decodes into that one's registers. When a stage begins, all groups but the
   last one have ended, so no product reads the stage that is copied over, which is two stages back.

   A CTA has all inputs of its rows, in one order: a row's bits do not depend on the number of rows. */
#ifndef EXL2K_EXL3_WG_CUH
#define EXL2K_EXL3_WG_CUH

#include "exl3_gemv.cuh"
#include "wg.cuh"

/* Starts to copy stage `index`. rows: address of the first row's first input. */
template <u32 HALVES> EXL2K_FN void exl2k_exl3_wg_stage(u32 shared, u64 rows, u32 row_bytes, u32 index, u32 stages)
{
    if (index < stages) {
        u32 to = shared + index % EXL2K_EXL3_WG_STAGES * (HALVES * 128 * 128);
#pragma unroll
        for (u32 i = 0; i < HALVES * 4; i++) {
            u32 row = i * 32 + threadIdx.x / 8, piece = threadIdx.x % 8;
            exl2k_copy16(to + row * 128 + (piece ^ row % 8) * 16, rows + (u64)row * row_bytes + index * 128 + piece *
        16); }
    }
    exl2k_copy_commit();
}

/* Leaves the products of all tiles of a column with the inputs of the CTA's rows in shared memory: f32 [128 HALVES,
   EXL2K_EXL3_PITCH]. The sums do not leave this function: where those of several rates meet, the assembler would make
   products wait for one another. */
template <u32 HALVES, u32 RATE, u32 BOOK>
EXL2K_FN void exl2k_exl3_wg_column(u64 tile, u32 pitch, u32 stages, u64 inputs, u32 row_bytes, u32 shared, u32 warp,
                                   u32 lane)
{
    f32 sum[HALVES][16][4];
#pragma unroll
    for (u32 i = 0; i < HALVES * 64; i++) {
        sum[i / 64][i / 4 % 16][i % 4] = 0;
    }
    exl2k_exl3_place_of<RATE> place = exl2k_exl3_places<RATE>(lane);
    u32 words[4][exl2k_exl3_words<RATE>()], a[2][4];
    exl2k_exl3_wg_stage<HALVES>(shared, inputs, row_bytes, 0, stages);
    exl2k_exl3_wg_stage<HALVES>(shared, inputs, row_bytes, 1, stages);
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
        exl2k_exl3_wg_stage<HALVES>(shared, inputs, row_bytes, i + 2, stages);
        u32 at = shared + i % EXL2K_EXL3_WG_STAGES * (HALVES * 128 * 128);
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            exl2k_wg_wait<1>(); /* the group that read a[k % 2] has ended */
            exl2k_exl3_decode<RATE, BOOK>(a[k % 2], words[k], place.shift);
            exl2k_exl3_fetch<RATE>(words[k], tile + (u64)k * pitch, place);
            exl2k_wg_begin();
#pragma unroll
            for (u32 half = 0; half < HALVES; half++) {
                exl2k_wg_multiply<false>(sum[half], a[k % 2], exl2k_wg_tile(at + half * (128 * 128)) + 2 * k, false);
            }
            exl2k_wg_commit();
        }
    }
    exl2k_wg_wait<0>();
#pragma unroll
    for (u32 half = 0; half < HALVES; half++) {
        exl2k_wg_hold(sum[half]);
    }
    exl2k_copy_wait<0>();
    __syncthreads(); /* nothing reads inputs any more */
#pragma unroll
    for (u32 half = 0; half < HALVES; half++) {
        u32 to = shared + half * (128 * EXL2K_EXL3_PITCH * 4);
        exl2k_exl3_gather<16>(to, sum[half], warp, lane, 128);
    }
}

template <u32 HALVES, u32 BOOK>
EXL2K_FN void exl2k_exl3_wg_any_rate(u32 rate, u64 tile, u32 pitch, u32 stages, u64 inputs, u32 row_bytes,
                                     u32 shared, u32 warp, u32 lane)
{
#define EXL2K_EXL3_CASE(R)                                                                                           \
    case R: exl2k_exl3_wg_column<HALVES, R, BOOK>(tile, pitch, stages, inputs, row_bytes, shared, warp, lane); break;
    EXL2K_EXL3_RATES(rate, BOOK, EXL2K_EXL3_CASE)
#undef EXL2K_EXL3_CASE
}

template <u32 HALVES, u32 BOOK> EXL2K_FN void exl2k_exl3_wg(const exl2k_exl3_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP, first = blockIdx.y * (128 * HALVES);
    u32 shared = (exl2k_shared(exl2k_dynamic) + 1023) & ~1023u;
    exl2k_exl3_unit u = exl2k_exl3_unit_of(a, blockIdx.x);
    const exl2k_exl3_part &part = a.part[u.part];
    u32 tile_bytes = 16 * part.rate, pitch = part.row_tiles * tile_bytes;
    u32 row_bytes = a.blocks * (EXL2K_EXL3_BLOCK * 2);
    u64 tile = part.trellis + (u64)(u.strip * 8 + warp) * tile_bytes;
    u64 inputs = a.rotated + ((u64)u.part * a.rotated_rows + first) * row_bytes;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u32 rows = exl2k_exl3_rows(a.rows_at, a.rows, a.before);
    if (rows <= first) {
        return;
    }
    exl2k_exl3_wg_any_rate<HALVES, BOOK>(part.rate, tile, pitch, a.blocks * 2, inputs, row_bytes, shared, warp, lane);
    __syncthreads();
    for (u32 i = 0; i < 2 * HALVES; i++) {
        exl2k_exl3_store_rows(a, part, u.strip, shared + i * (64 * EXL2K_EXL3_PITCH * 4), first + i * 64, rows, warp,
                              lane);
    }
}

#endif

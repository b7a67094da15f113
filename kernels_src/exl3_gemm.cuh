/* exl3_gemm.cuh: the product of many rows with an EXL3 matrix, on any GPU (exl3_args.h).
   takes: exl3.cuh, exl3_out.cuh, exl3_gemv.cuh (strips).
   gives: exl2k_exl3_gemm<BOOK>: the body of a kernel for one codebook. Grid: strips of the launch's parts,
          rotated_rows / 64; EXL2K_EXL3_THREADS threads; EXL2K_EXL3_GEMM_SHARED bytes of dynamic shared memory.

   A CTA has a strip and 64 rows over all inputs, so a row's bits do not depend on the number of rows. Transformed
   inputs come by asynchronous copies, EXL2K_EXL3_STEP inputs a stage: a row of a stage is 128 bytes, two halves of
   which are swapped in odd rows, against bank conflicts. Each warp decodes one column of tiles. */
#ifndef EXL2K_EXL3_GEMM_CUH
#define EXL2K_EXL3_GEMM_CUH

#include "exl3_gemv.cuh"

#define EXL2K_EXL3_STAGES 4u
#define EXL2K_EXL3_STAGE (EXL2K_EXL3_GEMM_ROWS * 128u)

/* Starts to copy stage `index`. rows: address of the first row's first input. */
EXL2K_FN void exl2k_exl3_stage(u32 shared, u64 rows, u32 row_bytes, u32 index, u32 stages)
{
    if (index < stages) {
        u32 to = shared + index % EXL2K_EXL3_STAGES * EXL2K_EXL3_STAGE;
#pragma unroll
        for (u32 i = threadIdx.x; i < EXL2K_EXL3_GEMM_ROWS * 8; i += EXL2K_EXL3_THREADS) {
            u32 row = i / 8, piece = i % 8;
            exl2k_copy16(to + row * 128 + (piece ^ (row & 1) * 4) * 16,
                         rows + (u64)row * row_bytes + index * 128 + piece * 16);
        }
    }
    exl2k_copy_commit();
}

/* sum += the products of all tiles of a column with the inputs of 64 rows. */
template <u32 RATE, u32 BOOK>
EXL2K_FN void exl2k_exl3_rows_column(f32 sum[8][4], u64 tile, u32 pitch, u32 stages, u64 inputs, u32 row_bytes,
                                     u32 shared, u32 lane)
{
    constexpr u32 count = exl2k_exl3_words<RATE>();
    exl2k_exl3_place_of<RATE> place = exl2k_exl3_places<RATE>(lane);
    u32 next[2][count];
    for (u32 i = 0; i + 1 < EXL2K_EXL3_STAGES; i++) {
        exl2k_exl3_stage(shared, inputs, row_bytes, i, stages);
    }
    exl2k_exl3_fetch<RATE>(next[0], tile, place);
    exl2k_exl3_fetch<RATE>(next[1], tile + pitch, place);
    u32 row = lane / 4, own = shared + row * 128 + lane % 4 * 16;
#pragma unroll 1
    for (u32 i = 0; i < 2 * stages; i++) { /* 32 inputs, half a stage */
        u32 first[4], second[4];
        exl2k_exl3_decode<RATE, BOOK>(first, next[0], place.shift);
        exl2k_exl3_decode<RATE, BOOK>(second, next[1], place.shift);
        tile += i + 1 < 2 * stages ? (u64)pitch * 2 : 0;
        exl2k_exl3_fetch<RATE>(next[0], tile, place);
        exl2k_exl3_fetch<RATE>(next[1], tile + pitch, place);
        if (i % 2 == 0) {
            exl2k_copy_wait<EXL2K_EXL3_STAGES - 2>();
            __syncthreads(); /* the stage is there, and all warps have read the one before, which is copied over now */
            exl2k_exl3_stage(shared, inputs, row_bytes, i / 2 + EXL2K_EXL3_STAGES - 1, stages);
        }
        u32 at = own + i / 2 % EXL2K_EXL3_STAGES * EXL2K_EXL3_STAGE + ((i ^ row) & 1) * 64;
#pragma unroll
        for (u32 n = 0; n < 8; n++) {
            uint4 b = exl2k_shared_load4(at + n * 1024);
            exl2k_mma(sum[n], first, b.x, b.y);
            exl2k_mma(sum[n], second, b.z, b.w);
        }
    }
}

template <u32 BOOK>
EXL2K_FN void exl2k_exl3_rows_any_rate(u32 rate, f32 sum[8][4], u64 tile, u32 pitch, u32 stages, u64 inputs,
                                       u32 row_bytes, u32 shared, u32 lane)
{
#define EXL2K_EXL3_CASE(R) \
    case R: exl2k_exl3_rows_column<R, BOOK>(sum, tile, pitch, stages, inputs, row_bytes, shared, lane); break;
    EXL2K_EXL3_RATES(rate, BOOK, EXL2K_EXL3_CASE)
#undef EXL2K_EXL3_CASE
}

template <u32 BOOK> EXL2K_FN void exl2k_exl3_gemm(const exl2k_exl3_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP, first = blockIdx.y * EXL2K_EXL3_GEMM_ROWS;
    u32 shared = exl2k_shared(exl2k_dynamic);
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
    f32 sum[8][4];
#pragma unroll
    for (u32 n = 0; n < 8; n++) {
        sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
    }
    exl2k_exl3_rows_any_rate<BOOK>(part.rate, sum, tile, pitch, a.blocks * (EXL2K_EXL3_BLOCK / EXL2K_EXL3_STEP),
                                   inputs, row_bytes, shared, lane);
    /* Rows meet their 128 columns in shared memory, where inputs were. */
    exl2k_copy_wait<0>();
    __syncthreads();
    exl2k_exl3_gather<8>(shared, sum, warp, lane, EXL2K_EXL3_GEMM_ROWS);
    __syncthreads();
    exl2k_exl3_store_rows(a, part, u.strip, shared, first, rows, warp, lane);
}

#endif

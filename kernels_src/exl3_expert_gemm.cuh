/* exl3_expert_gemm.cuh: products of many rows with experts in EXL3, on any GPU (exl3_expert_args.h).
   takes: exl3_gemm.cuh, exl3_expert.cuh.
   gives: exl2k_exl3_expert_gemm<BOOK>: the body of a kernel for one codebook and tiles of EXL2K_EXL3_GEMM_ROWS rows;
          EXL2K_EXL3_THREADS threads; EXL2K_EXL3_GEMM_SHARED bytes of dynamic shared memory.

   A CTA has a strip and a tile of one expert's rows over all inputs, as exl2k_exl3_gemm, so a row's bits do not depend
   on the other rows. */
#ifndef EXL2K_EXL3_EXPERT_GEMM_CUH
#define EXL2K_EXL3_EXPERT_GEMM_CUH

#include "exl3_gemm.cuh"
#include "exl3_expert.cuh"

template <u32 BOOK> EXL2K_FN void exl2k_exl3_expert_gemm(const exl2k_exl3_expert_args &x)
{
    extern __shared__ uint4 exl2k_dynamic[];
    const exl2k_exl3_args &a = x.product;
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP, strip = blockIdx.x;
    u32 shared = exl2k_shared(exl2k_dynamic), row_bytes = a.blocks * (EXL2K_EXL3_BLOCK * 2);
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
    f32 sum[8][4];
#pragma unroll
    for (u32 n = 0; n < 8; n++) {
        sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
    }
    exl2k_exl3_rows_any_rate<BOOK>(part.rate, sum, part.trellis + (u64)(strip * 8 + warp) * tile_bytes, pitch,
                                   a.blocks * (EXL2K_EXL3_BLOCK / EXL2K_EXL3_STEP),
                                   a.rotated + (u64)rows.y * row_bytes, row_bytes, shared, lane);
    /* Rows meet their 128 columns in shared memory, where inputs were. */
    exl2k_copy_wait<0>();
    __syncthreads();
    exl2k_exl3_gather<8>(shared, sum, warp, lane, EXL2K_EXL3_GEMM_ROWS);
    __syncthreads();
    exl2k_exl3_store_rows(a, part, strip, shared, rows.y, rows.y + rows.z, warp, lane);
}

#endif

/* exl3_expert_wg.cuh: products of many rows with experts in EXL3 by wgmma, on sm_90a (exl3_expert_args.h).
   takes: exl3_wg.cuh, exl3_expert.cuh.
   gives: exl2k_exl3_expert_wg<BOOK>: the body of a kernel for one codebook and tiles of 128 rows;
          EXL2K_EXL3_WG_THREADS threads; EXL2K_EXL3_WG_SHARED(128) bytes of dynamic shared memory. As
          exl2k_exl3_wg, but for the origin of a tile. */
#ifndef EXL2K_EXL3_EXPERT_WG_CUH
#define EXL2K_EXL3_EXPERT_WG_CUH

#include "exl3_wg.cuh"
#include "exl3_expert.cuh"

template <u32 BOOK> EXL2K_FN void exl2k_exl3_expert_wg(const exl2k_exl3_expert_args &x)
{
    extern __shared__ uint4 exl2k_dynamic[];
    const exl2k_exl3_args &a = x.product;
    u32 strip = blockIdx.x;
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
    if (!exl2k_exl3_wg_multiply<EXL2K_EXL3_EXPERT_TILE_MAX, BOOK>(
            part.rate, part.trellis + (u64)strip * 8 * 16 * part.rate, part.row_tiles * 16 * part.rate, a.blocks * 2,
            a.rotated + (u64)rows.y * row_bytes, row_bytes, shared)) {
        return;
    }
    for (u32 i = 0; i < EXL2K_EXL3_EXPERT_TILE_MAX && i < rows.z; i += EXL2K_EXL3_GEMM_ROWS) {
        exl2k_exl3_store_rows(a, part, strip, shared + i * (EXL2K_EXL3_PITCH * 4), rows.y + i, rows.y + rows.z,
                              threadIdx.x / EXL2K_WARP, threadIdx.x % EXL2K_WARP);
    }
}

#endif

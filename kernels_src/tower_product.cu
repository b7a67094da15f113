/* tower_product.cu: products of a tower: rows of halves with rows of weights.
   takes: tower_product.cuh.
   gives: exl2k_tower_product. */
#include "tower_product.cuh"

#define EXL2K_TOWER_PITCH 80u /* bytes of a line of 32 halves in shared memory: ldmatrix then has no conflicts */
#define EXL2K_TOWER_STAGES 3u

/* Starts the copies of one stage: 32 of k of both tiles, in pieces of 16 bytes. */
EXL2K_FN void exl2k_tower_fetch(const exl2k_tower_product_args &a, u32 to, u32 row0, u32 column0, u32 k)
{
    for (u32 i = threadIdx.x; i < 2 * EXL2K_TOWER_TILE * 4; i += 256) {
        u32 line = i / 4 % EXL2K_TOWER_TILE, element = k + i % 4 * 8;
        u64 from = i < EXL2K_TOWER_TILE * 4 ? a.x + exl2k_tower_at(exl2k_min(row0 + line, a.rows_max - 1), element,
                                                                   a.rows_max)
                                            : a.weight + exl2k_tower_at(column0 + line, element,
                                                                        EXL2K_TOWER_LINES(a.columns));
        exl2k_copy16(to + i / 4 * EXL2K_TOWER_PITCH + i % 4 * 16, from);
    }
}

/* A warp computes 64 rows x 32 columns of the tile: 4 x 4 products of 16 x 8. */
EXL2K_FN void exl2k_tower_multiply(f32 sums[4][4][4], u32 stage, u32 warp, u32 lane)
{
    u32 rows = stage + (warp / 4 * 64 + lane % 16) * EXL2K_TOWER_PITCH + lane / 16 * 16;
    u32 columns = stage + (EXL2K_TOWER_TILE + warp % 4 * 32 + lane % 8 + lane / 16 * 8) * EXL2K_TOWER_PITCH
                  + lane / 8 % 2 * 16;
#pragma unroll
    for (u32 k = 0; k < 2; k++) {
        u32 left[4][4];
        uint4 right[2];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            uint4 v = exl2k_ldmatrix4(rows + i * 16 * EXL2K_TOWER_PITCH + k * 32);
            left[i][0] = v.x;
            left[i][1] = v.y;
            left[i][2] = v.z;
            left[i][3] = v.w;
        }
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            right[i] = exl2k_ldmatrix4(columns + i * 16 * EXL2K_TOWER_PITCH + k * 32);
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
#pragma unroll
            for (u32 j = 0; j < 2; j++) {
                exl2k_mma(sums[i][2 * j], left[i], right[j].x, right[j].y);
                exl2k_mma(sums[i][2 * j + 1], left[i], right[j].z, right[j].w);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 2) exl2k_tower_product(exl2k_tower_product_args a)
{
    extern __shared__ uint4 exl2k_tower_stages[];
    u32 shared = exl2k_shared(exl2k_tower_stages), bytes = 2 * EXL2K_TOWER_TILE * EXL2K_TOWER_PITCH;
    u32 row0 = a.row + blockIdx.x * EXL2K_TOWER_TILE, column0 = blockIdx.y * EXL2K_TOWER_TILE;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, steps = a.k / 32;
    f32 sums[4][4][4] = {};
    exl2k_dependency_release();
    exl2k_dependency_wait();
    for (u32 i = 0; i < EXL2K_TOWER_STAGES - 1; i++) {
        if (i < steps) {
            exl2k_tower_fetch(a, shared + i * bytes, row0, column0, i * 32);
        }
        exl2k_copy_commit();
    }
    for (u32 i = 0; i < steps; i++) {
        exl2k_copy_wait<EXL2K_TOWER_STAGES - 2>();
        __syncthreads(); /* stage i has arrived, and nobody reads the one before it any more */
        u32 next = i + EXL2K_TOWER_STAGES - 1;
        if (next < steps) {
            exl2k_tower_fetch(a, shared + next % EXL2K_TOWER_STAGES * bytes, row0, column0, next * 32);
        }
        exl2k_copy_commit();
        exl2k_tower_multiply(sums, shared + i % EXL2K_TOWER_STAGES * bytes, warp, lane);
    }
    exl2k_copy_wait<0>();
    __syncthreads(); /* nobody reads the stages any more */
    u32 results = shared + warp * 16 * exl2k_tower_results_pitch<32>();
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            exl2k_tower_put<32>(results, j * 8, sums[i][j]);
        }
        exl2k_tower_finish<32>(a, results, row0 + warp / 4 * 64 + i * 16, column0 + warp % 4 * 32);
    }
}

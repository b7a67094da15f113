/* tower_wg.cu: exl2k_tower_product by wgmma.
   takes: wg.cuh, tower_product.cuh.
   gives: exl2k_tower_wg_pair, exl2k_tower_wg_narrow.

   A CTA computes a tile of 128 rows, 64 of each of two warpgroups, and one more warp copies: lines of a stage, 64 of
   k, are two copies of contiguous memory, as TILES of tower_args.h have the order of wgmma. Two CTAs run on an SM, so
   that one multiplies while the other one finishes its results. What bounds large products is the bandwidth of L2;
   clusters that share what they copy, and tiles of 256 rows, were slower (tests/device/NOTES.md). */
#include "wg.cuh"
#include "tower_product.cuh"

/* One thread copies all stages: lines of rows, then of columns. */
template <u32 COLUMNS, u32 STAGES>
EXL2K_FN void exl2k_tower_wg_copy(const exl2k_tower_product_args &a, u32 shared, u32 full, u32 empty, u32 row0,
                                  u32 column0)
{
    const u32 rows = EXL2K_TOWER_TILE * 128, columns = COLUMNS * 128, steps = a.k / 64;
    u32 lines = EXL2K_TOWER_LINES(a.columns);
    u64 x = a.x + (u64)row0 * 128, w = a.weight + (u64)column0 * 128;
    for (u32 i = 0; i < steps; i++, x += (u64)a.rows_max * 128, w += (u64)lines * 128) {
        u32 slot = i % STAGES, to = shared + slot * (rows + columns);
        exl2k_barrier_wait(empty + slot * 8, i / STAGES % 2 ^ 1); /* passes in the first round */
        exl2k_barrier_expect(full + slot * 8, rows + columns);
        exl2k_copy_whole(to, x, rows, full + slot * 8);
        exl2k_copy_whole(to + rows, w, columns, full + slot * 8);
    }
}

template <u32 COLUMNS, u32 STAGES> EXL2K_FN void exl2k_tower_wg(const exl2k_tower_product_args &a)
{
    extern __shared__ uint4 exl2k_tower_wg_stages[];
    const u32 rows = EXL2K_TOWER_TILE, bytes = (rows + COLUMNS) * 128;
    u32 shared = (exl2k_shared(exl2k_tower_wg_stages) + 1023) & ~1023u, steps = a.k / 64;
    u32 full = shared + STAGES * bytes, empty = full + STAGES * 8, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 row0 = a.row + blockIdx.x * rows, column0 = blockIdx.y * COLUMNS;
    exl2k_dependency_release();
    if (threadIdx.x < STAGES) {
        exl2k_barrier_init(full + threadIdx.x * 8, 1);
        exl2k_barrier_init(empty + threadIdx.x * 8, 8); /* warps that multiply */
        exl2k_barrier_init_fence();
    }
    __syncthreads();
    exl2k_dependency_wait();
    if (warp == 8) {
        if (lane == 0) {
            exl2k_tower_wg_copy<COLUMNS, STAGES>(a, shared, full, empty, row0, column0);
        }
        return;
    }
    u32 part = warp / 4 * 64;
    f32 d[COLUMNS / 8][4];
#pragma unroll 1
    for (u32 i = 0; i < steps; i++) {
        u32 stage = shared + i % STAGES * bytes;
        u64 left = exl2k_wg_tile(stage + part * 128), right = exl2k_wg_tile(stage + rows * 128);
        exl2k_barrier_wait(full + i % STAGES * 8, i / STAGES % 2);
        exl2k_wg_begin();
#pragma unroll
        for (u32 k = 0; k < 8; k += 2) {
            exl2k_wg_product(d, left + k, right + k, i + k);
        }
        exl2k_wg_commit();
        exl2k_wg_wait<1>();
        if (i > 0 && lane == 0) { /* the stage before has been read */
            exl2k_barrier_arrive(empty + (i - 1) % STAGES * 8);
        }
    }
    exl2k_wg_wait<0>();
    exl2k_wg_hold(d);
    asm volatile("bar.sync 1, 256;" ::: "memory"); /* nobody reads the stages any more */
    u32 results = shared + warp * 16 * exl2k_tower_results_pitch<COLUMNS>();
#pragma unroll
    for (u32 j = 0; j < COLUMNS / 8; j++) {
        exl2k_tower_put<COLUMNS>(results, j * 8, d[j]);
    }
    exl2k_tower_finish<COLUMNS>(a, results, row0 + part + warp % 4 * 16, column0);
}

extern "C" __global__ void __launch_bounds__(EXL2K_TOWER_WG_THREADS, 2)
exl2k_tower_wg_pair(exl2k_tower_product_args a)
{
    exl2k_tower_wg<128, EXL2K_TOWER_PAIR_STAGES>(a);
}

extern "C" __global__ void __launch_bounds__(EXL2K_TOWER_WG_THREADS, 2)
exl2k_tower_wg_narrow(exl2k_tower_product_args a)
{
    exl2k_tower_wg<64, EXL2K_TOWER_NARROW_STAGES>(a);
}

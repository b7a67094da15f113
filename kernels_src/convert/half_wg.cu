/* convert/half_wg.cu: exl2k_half_product by wgmma: tiles of 256 x 128, of which a warpgroup computes 128 rows. k is a
   multiple of 64.
   takes: wg.cuh, half.cuh.
   gives: exl2k_half_wg. */
#include "wg.cuh"
#include "convert/half.cuh"

/* Starts the copies of one stage, lines of 64 of k: 256 rows of a, then 128 of b. */
EXL2K_FN void exl2k_half_wg_fetch(const exl2k_half_product_args &a, u32 to, u32 row0, u32 column0, u32 k)
{
    u32 last = (a.m + 127) / 128 * 128 - 1; /* of a in memory; what is stored is no product of the rows after it */
    for (u32 i = threadIdx.x; i < 384 * 8; i += 256) {
        u32 line = i / 8, piece = i % 8;
        u64 from = line < 256 ? a.a + (u64)exl2k_min(row0 + line, last) * a.k * 2
                              : a.b + (u64)(column0 + line - 256) * a.k * 2;
        exl2k_copy16(to + line * 128 + (piece ^ line % 8) * 16, from + k * 2 + piece * 16);
    }
}

/* Grid: tiles of rows, tiles of columns. */
extern "C" __global__ void __launch_bounds__(256, 1) exl2k_half_wg(exl2k_half_product_args a)
{
    extern __shared__ uint4 exl2k_half_wg_stages[];
    u32 shared = (exl2k_shared(exl2k_half_wg_stages) + 1023) & ~1023u, steps = a.k / 64;
    u32 row0 = blockIdx.x * 256, column0 = blockIdx.y * 128, part = threadIdx.x / 128 * 128; /* rows of the warpgroup */
    f32 d[2][16][4] = {};
    if (a.lower && column0 >= row0 + 256) {
        return;
    }
    for (u32 i = 0; i < 2; i++) {
        if (i < steps) {
            exl2k_half_wg_fetch(a, shared + i * EXL2K_HALF_WG_STAGE, row0, column0, i * 64);
        }
        exl2k_copy_commit();
    }
    for (u32 i = 0; i < steps; i++) {
        exl2k_copy_wait<1>();
        exl2k_async_fence();
        __syncthreads(); /* stage i has arrived, and the products of stage i - 2 have ended */
        if (i + 2 < steps) {
            exl2k_half_wg_fetch(a, shared + (i + 2) % 4 * EXL2K_HALF_WG_STAGE, row0, column0, (i + 2) * 64);
        }
        exl2k_copy_commit();
        u32 stage = shared + i % 4 * EXL2K_HALF_WG_STAGE;
        u64 left = exl2k_wg_tile(stage + part * 128), right = exl2k_wg_tile(stage + 256 * 128);
        exl2k_wg_begin();
#pragma unroll
        for (u32 k = 0; k < 8; k += 2) {
            exl2k_wg_product(d[0], left + k, right + k, 1);
            exl2k_wg_product(d[1], left + 512 + k, right + k, 1); /* 64 lines on */
        }
        exl2k_wg_commit();
        exl2k_wg_wait<1>();
    }
    exl2k_wg_wait<0>();
    u32 row = row0 + part + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4, column = column0 + threadIdx.x % 4 * 2;
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        exl2k_wg_hold(d[i]);
#pragma unroll
        for (u32 n = 0; n < 16; n++) {
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                exl2k_half_store(a, row + i * 64 + k / 2 * 8, column + n * 8 + k % 2, d[i][n][k]);
            }
        }
    }
}

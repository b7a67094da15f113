/* tower_wg.cu: exl2k_tower_product by wgmma.
   takes: wg.cuh, tower_product.cuh.
   gives: exl2k_tower_wg_pair, exl2k_tower_wg_alone, exl2k_tower_wg_narrow. */
#include "wg.cuh"
#include "tower_product.cuh"

/* Starts the copies of one stage, lines of 64 of k: ROWS rows of x, then COLUMNS of the weights. */
template <u32 ROWS, u32 COLUMNS>
EXL2K_FN void exl2k_tower_wg_fetch(const exl2k_tower_product_args &a, u32 to, u32 row0, u32 column0, u32 k)
{
#pragma unroll
    for (u32 n = 0; n < (ROWS + COLUMNS) * 8; n += 256) {
        u32 i = n + threadIdx.x, line = i / 8, piece = i % 8;
        u64 from = line < ROWS ? a.x + (u64)exl2k_min(row0 + line, a.rows_max - 1) * a.k * 2
                               : a.weight + (u64)(column0 + line - ROWS) * a.k * 2;
        exl2k_copy16(to + line * 128 + (piece ^ line % 8) * 16, from + k * 2 + piece * 16);
    }
}

/* d += a b with 16 elements of k, 64 rows and 128 or 64 columns; both are descriptors. */
EXL2K_FN void exl2k_tower_wg_multiply(f32 (&d)[16][4], u64 a, u64 b)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
                 EXL2K_WG_64 ", %64, %65, p, 1, 1, 0, 0;\n}"
                 : EXL2K_WG_16(d), EXL2K_WG_16(d + 4), EXL2K_WG_16(d + 8), EXL2K_WG_16(d + 12)
                 : "l"(a), "l"(b), "r"(1u) : "memory");
}

EXL2K_FN void exl2k_tower_wg_multiply(f32 (&d)[8][4], u64 a, u64 b)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
                 "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0;\n}"
                 : EXL2K_WG_16(d), EXL2K_WG_16(d + 4)
                 : "l"(a), "l"(b), "r"(1u) : "memory");
}

/* A CTA computes a tile of 128 rows, 64 of each warpgroup. With three stages the products of one end before the next one
   is filled: two CTAs on an SM take turns. With more, they still run while those of the next one begin. */
template <u32 COLUMNS, u32 STAGES> EXL2K_FN void exl2k_tower_wg(const exl2k_tower_product_args &a)
{
    extern __shared__ uint4 exl2k_tower_wg_stages[];
    const u32 rows = EXL2K_TOWER_TILE, bytes = (rows + COLUMNS) * 128, ahead = STAGES == 3 ? 2 : STAGES - 2;
    u32 shared = (exl2k_shared(exl2k_tower_wg_stages) + 1023) & ~1023u, steps = a.k / 64;
    u32 row0 = a.row + blockIdx.x * rows, column0 = blockIdx.y * COLUMNS, part = threadIdx.x / 128 * 64;
    f32 d[COLUMNS / 8][4] = {};
    exl2k_dependency_release();
    exl2k_dependency_wait();
    for (u32 i = 0; i < ahead; i++) {
        if (i < steps) {
            exl2k_tower_wg_fetch<rows, COLUMNS>(a, shared + i * bytes, row0, column0, i * 64);
        }
        exl2k_copy_commit();
    }
    for (u32 i = 0; i < steps; i++) {
        exl2k_copy_wait<ahead - 1>();
        exl2k_async_fence();
        if (STAGES == 3) {
            exl2k_wg_wait<0>();
        }
        __syncthreads(); /* stage i has arrived, and nothing reads the one that is filled next */
        if (i + ahead < steps) {
            exl2k_tower_wg_fetch<rows, COLUMNS>(a, shared + (i + ahead) % STAGES * bytes, row0, column0,
                                                (i + ahead) * 64);
        }
        exl2k_copy_commit();
        u32 stage = shared + i % STAGES * bytes;
        u64 left = exl2k_wg_tile(stage + part * 128), right = exl2k_wg_tile(stage + rows * 128);
        exl2k_wg_begin();
#pragma unroll
        for (u32 k = 0; k < 8; k += 2) {
            exl2k_tower_wg_multiply(d, left + k, right + k);
        }
        exl2k_wg_commit();
        if (STAGES > 3) {
            exl2k_wg_wait<1>();
        }
    }
    exl2k_wg_wait<0>();
    exl2k_copy_wait<0>();
    __syncthreads(); /* nobody reads the stages any more */
    u32 warp = threadIdx.x / 32, results = shared + warp * 16 * exl2k_tower_results_pitch<COLUMNS>();
    exl2k_wg_hold(d);
#pragma unroll
    for (u32 j = 0; j < COLUMNS / 8; j++) {
        exl2k_tower_put<COLUMNS>(results, j * 8, d[j]);
    }
    exl2k_tower_finish<COLUMNS>(a, results, row0 + part + warp % 4 * 16, column0);
}

extern "C" __global__ void __launch_bounds__(256, 2) exl2k_tower_wg_pair(exl2k_tower_product_args a)
{
    exl2k_tower_wg<128, EXL2K_TOWER_PAIR_STAGES>(a);
}

extern "C" __global__ void __launch_bounds__(256, 1) exl2k_tower_wg_alone(exl2k_tower_product_args a)
{
    exl2k_tower_wg<128, EXL2K_TOWER_ALONE_STAGES>(a);
}

extern "C" __global__ void __launch_bounds__(256, 2) exl2k_tower_wg_narrow(exl2k_tower_product_args a)
{
    exl2k_tower_wg<64, EXL2K_TOWER_NARROW_STAGES>(a);
}

/* tower_wg.cu: exl2k_tower_product by wgmma.
   takes: wg.cuh, tower_product.cuh.
   gives: exl2k_tower_wg_pair, exl2k_tower_wg_narrow.

   A CTA computes a tile of 128 rows, 64 of each of two warpgroups, and one more warp copies: lines of a stage, 64 of
   k, are two copies of contiguous memory, as TILES of tower_args.h have the order of wgmma. Two CTAs run on an SM, so
   that one multiplies while the other one finishes its results. What bounds large products is the bandwidth of L2;
   clusters that share what they copy, and tiles of 256 rows, were slower (tests/device/NOTES.md).

   SPLITS  Where tiles are fewer than SMs, the CTAs of a cluster compute the same tile, each for a part of k. Each then
           finishes some of the tile's rows: it adds the sums of all CTAs, in the order of k. */
#include "wg.cuh"
#include "tower_product.cuh"

/* Loads from shared memory of the cluster's CTA `cta`, at the address that corresponds to this CTA's `at`. */
EXL2K_FN float4 exl2k_tower_wg_load4(u32 at, u32 cta)
{
    float4 v;
    asm volatile("{\n.reg .b32 from;\nmapa.shared::cluster.u32 from, %4, %5;\n"
                 "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [from];\n}"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at), "r"(cta) : "memory");
    return v;
}

/* Rows that a warp finishes at once, where several CTAs share a tile. */
#define EXL2K_TOWER_WG_SHARE 4u

/* Adds the sums of all parts of k of SHARE rows at `results`, which no other warp reads. */
template <u32 COLUMNS> EXL2K_FN void exl2k_tower_wg_add(u32 results, u32 splits, u32 lane)
{
    const u32 pitch = exl2k_tower_results_pitch<COLUMNS>(), pieces = COLUMNS / 4;
    const u32 count = EXL2K_TOWER_WG_SHARE * COLUMNS / 128; /* of a lane */
    float4 sum[count];
    u32 at[count];
#pragma unroll
    for (u32 i = 0; i < count; i++) {
        u32 piece = i * 32 + lane;
        at[i] = results + piece / pieces * pitch + piece % pieces * 16;
        sum[i] = exl2k_tower_wg_load4(at[i], 0);
    }
#pragma unroll 1
    for (u32 cta = 1; cta < splits; cta++) {
#pragma unroll
        for (u32 i = 0; i < count; i++) {
            float4 v = exl2k_tower_wg_load4(at[i], cta);
            sum[i] = make_float4(sum[i].x + v.x, sum[i].y + v.y, sum[i].z + v.z, sum[i].w + v.w);
        }
    }
#pragma unroll
    for (u32 i = 0; i < count; i++) {
        exl2k_shared_store4(at[i], make_uint4(__float_as_uint(sum[i].x), __float_as_uint(sum[i].y),
                                              __float_as_uint(sum[i].z), __float_as_uint(sum[i].w)));
    }
}

/* The CTAs of a cluster finish their tile together. `shared`: the sums of the warps, one after the other. */
template <u32 COLUMNS>
EXL2K_FN void exl2k_tower_wg_share(const exl2k_tower_product_args &a, u32 shared, u32 row0, u32 column0, u32 splits,
                                   u32 split)
{
    const u32 shares = EXL2K_TOWER_TILE / EXL2K_TOWER_WG_SHARE, of_16 = 16 / EXL2K_TOWER_WG_SHARE;
    const u32 pitch = exl2k_tower_results_pitch<COLUMNS>();
    u32 end = shares * (split + 1) / splits;
    exl2k_cluster_arrive();
    exl2k_cluster_wait();
#pragma unroll 1
    for (u32 i = shares * split / splits + threadIdx.x / 32; i < end; i += 8) {
        u32 from = i % of_16 * EXL2K_TOWER_WG_SHARE, slot = shared + i / of_16 * 16 * pitch;
        exl2k_tower_wg_add<COLUMNS>(slot + from * pitch, splits, threadIdx.x % 32);
        exl2k_tower_finish<COLUMNS>(a, slot, row0 + i / of_16 * 16, column0, from, from + EXL2K_TOWER_WG_SHARE);
    }
    exl2k_cluster_arrive(); /* other CTAs may still read this one's sums */
    exl2k_cluster_wait();
}

/* One thread copies all stages, from the one of k = 64 `first` on: lines of rows, then of columns. */
template <u32 COLUMNS, u32 STAGES>
EXL2K_FN void exl2k_tower_wg_copy(const exl2k_tower_product_args &a, u32 shared, u32 full, u32 empty, u32 row0,
                                  u32 column0, u32 first, u32 steps)
{
    const u32 rows = EXL2K_TOWER_TILE * 128, columns = COLUMNS * 128;
    u32 lines = EXL2K_TOWER_LINES(a.columns);
    u64 x = a.x + ((u64)first * a.rows_max + row0) * 128, w = a.weight + ((u64)first * lines + column0) * 128;
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
    u32 shared = (exl2k_shared(exl2k_tower_wg_stages) + 1023) & ~1023u;
    u32 full = shared + STAGES * bytes, empty = full + STAGES * 8, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 splits = exl2k_cluster_size(), split = blockIdx.x % splits;
    u32 row0 = a.row + blockIdx.x / splits * rows, column0 = blockIdx.y * COLUMNS;
    u32 first = a.k / 64 * split / splits, steps = a.k / 64 * (split + 1) / splits - first;
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
            exl2k_tower_wg_copy<COLUMNS, STAGES>(a, shared, full, empty, row0, column0, first, steps);
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
    if (splits > 1) {
        exl2k_tower_wg_share<COLUMNS>(a, shared, row0, column0, splits, split);
    } else {
        exl2k_tower_finish<COLUMNS>(a, results, row0 + part + warp % 4 * 16, column0);
    }
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

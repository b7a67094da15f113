/* exl3_wg.cuh: the product of many rows with an EXL3 matrix by wgmma, on sm_90a (exl3_args.h).
   takes: exl3.cuh, exl3_out.cuh, exl3_gemv.cuh (strips, rings), wg.cuh.
   gives: exl2k_exl3_wg_multiply; exl2k_exl3_wg<T, BOOK>: the body of a kernel for tiles of T rows (128, 256) and one
          codebook. Grid: strips of the launch's parts, rotated_rows / T; EXL2K_EXL3_WG_THREADS threads;
          EXL2K_EXL3_WG_SHARED(T) bytes of dynamic shared memory.

   A CTA has a strip and T rows. Its first eight warps multiply, the others decode: registers leave room for two warps
   that multiply on a scheduler, and if these decode, too, each waits for its own instructions most of the time. A stage
   has 64 inputs: of all rows (B), and of the 128 outputs (A), both in tiles as wgmma reads them (wg.cuh).

   DECODE   Eight warps, a group, have one column of tiles each, whose words come through a ring (exl3_gemv.cuh); two
            groups take stages in turn. A group also copies its stages' inputs, a stage of its own in advance.
   MULTIPLY Two warpgroups have 64 outputs each. A stage's products are one group; when it has ended, the stage before
            is free.

   A CTA has all inputs of its rows, in one order: a row's bits do not depend on the number of rows. */
#ifndef EXL2K_EXL3_WG_CUH
#define EXL2K_EXL3_WG_CUH

#include "exl3_gemv.cuh"
#include "wg.cuh"

/* Shared memory: stages of T lines of 128 bytes of B, then 128 lines of A; rings; barriers: full, then empty. */
template <u32 T> struct exl2k_exl3_wg_plan {
    static constexpr u32 groups = EXL2K_EXL3_WG_GROUPS, slot = EXL2K_EXL3_WG_SLOT(T);
    static constexpr u32 rings = EXL2K_EXL3_WG_STAGES * slot;
    static constexpr u32 full = rings + groups * EXL2K_EXL3_WARPS * EXL2K_EXL3_RING(EXL2K_EXL3_RATE_MAX);
    static constexpr u32 empty = full + EXL2K_EXL3_WG_STAGES * 8;
};

/* A barrier of the warps that multiply. */
EXL2K_FN void exl2k_exl3_wg_sync(void) { asm volatile("bar.sync 1, 256;" ::: "memory"); }

/* ---- the warps that decode ---- */

/* Waits until stage `index` is free, and starts to copy its inputs; those of a thread begin at `from`. */
template <u32 T> EXL2K_FN void exl2k_exl3_wg_inputs(u32 shared, u64 from, u32 row_bytes, u32 index, u32 stages)
{
    if (index < stages) {
        u32 slot = index % EXL2K_EXL3_WG_STAGES, row = threadIdx.x % 256 / 8, piece = threadIdx.x % 8;
        u32 to = shared + slot * exl2k_exl3_wg_plan<T>::slot + row * 128 + (piece ^ row % 8) * 16;
        exl2k_barrier_wait(shared + exl2k_exl3_wg_plan<T>::empty + slot * 8, (index / EXL2K_EXL3_WG_STAGES & 1) ^ 1);
        from += (u64)index * (EXL2K_EXL3_STEP * 2);
#pragma unroll
        for (u32 i = 0; i < T / 32; i++, from += 32 * row_bytes) {
            exl2k_copy16(to + i * (32 * 128), from);
        }
    }
}

/* tile: the first one of the warp's column; rows: the tile's first row. */
template <u32 T, u32 RATE, u32 BOOK>
EXL2K_FN void exl2k_exl3_wg_decode(u64 tile, u32 pitch, u32 stages, u64 rows, u32 row_bytes, u32 shared, u32 warp,
                                   u32 lane)
{
    using plan = exl2k_exl3_wg_plan<T>;
    constexpr u32 count = exl2k_exl3_words<RATE>();
    u32 group = warp / EXL2K_EXL3_WARPS, column = warp % EXL2K_EXL3_WARPS;
    exl2k_exl3_place_of<RATE> place = exl2k_exl3_places<RATE>(lane);
    exl2k_exl3_ring ring = exl2k_exl3_ring_open(shared + plan::rings + warp * EXL2K_EXL3_RING(RATE),
                                                tile + (u64)group * EXL2K_EXL3_BATCH * pitch, pitch, RATE,
                                                (stages + plan::groups - 1 - group) / plan::groups, plan::groups, lane);
    u64 from = rows + (u64)(threadIdx.x % 256 / 8) * row_bytes + threadIdx.x % 8 * 16;
    exl2k_exl3_wg_inputs<T>(shared, from, row_bytes, group, stages);
    exl2k_copy_commit();
    /* Lane l gives the address of line l % 8 of the quarter l / 8 of a tile (exl2k_stmatrix4). */
    u32 line = column * EXL2K_EXL3_TILE + lane / 8 % 2 * 8 + lane % 8, half = (lane / 16 ^ lane % 8) * 16;
    u32 own = shared + T * 128 + line * 128;
#pragma unroll 1
    for (u32 i = group; i < stages; i += plan::groups) {
        exl2k_exl3_wg_inputs<T>(shared, from, row_bytes, i + plan::groups, stages);
        u32 at = exl2k_exl3_ring_next(ring, EXL2K_EXL3_BATCH * RATE, lane), words[EXL2K_EXL3_BATCH][count];
        u32 slot = i % EXL2K_EXL3_WG_STAGES, to = own + slot * plan::slot;
#pragma unroll
        for (u32 n = 0; n < count; n++) {
#pragma unroll
            for (u32 k = 0; k < EXL2K_EXL3_BATCH; k++) {
                words[k][n] = exl2k_shared_load(at + place.at[n] + k * 16 * RATE);
            }
        }
#pragma unroll
        for (u32 k = 0; k < EXL2K_EXL3_BATCH; k++) {
            u32 a[4];
            exl2k_exl3_decode<RATE, BOOK>(a, words[k], place.shift);
            exl2k_stmatrix4(to + (half ^ k * 32), a);
        }
        exl2k_copy_wait<1>(); /* the inputs of this stage, which were started a turn before */
        exl2k_async_fence();
        __syncwarp();
        if (lane == 0) {
            exl2k_barrier_arrive(shared + plan::full + slot * 8);
        }
    }
    exl2k_copy_wait<0>();
}

template <u32 T, u32 BOOK>
EXL2K_FN void exl2k_exl3_wg_any_rate(u32 rate, u64 tile, u32 pitch, u32 stages, u64 rows, u32 row_bytes, u32 shared,
                                     u32 warp, u32 lane)
{
#define EXL2K_EXL3_CASE(R) \
    case R: exl2k_exl3_wg_decode<T, R, BOOK>(tile, pitch, stages, rows, row_bytes, shared, warp, lane); break;
    EXL2K_EXL3_RATES(rate, BOOK, EXL2K_EXL3_CASE)
#undef EXL2K_EXL3_CASE
}

/* ---- the warps that multiply ---- */

/* Leaves all sums in shared memory: f32 [T, EXL2K_EXL3_PITCH]. */
template <u32 T> EXL2K_FN void exl2k_exl3_wg_sums(u32 stages, u32 shared, u32 warp, u32 lane)
{
    using plan = exl2k_exl3_wg_plan<T>;
    constexpr u32 halves = T / 128; /* products of 256 rows need more registers than 512 threads may begin with */
    f32 sum[halves][16][4];
#pragma unroll
    for (u32 i = 0; i < T / 2; i++) {
        sum[i / 64][i / 4 % 16][i % 4] = 0;
    }
    u32 own = T * 128 + warp / 4 * (64 * 128);
#pragma unroll 1
    for (u32 i = 0; i < stages; i++) {
        u32 slot = i % EXL2K_EXL3_WG_STAGES, at = shared + slot * plan::slot;
        exl2k_barrier_wait(shared + plan::full + slot * 8, i / EXL2K_EXL3_WG_STAGES & 1);
        exl2k_wg_begin();
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
#pragma unroll
            for (u32 h = 0; h < halves; h++) {
                exl2k_wg_multiply_tiles(sum[h], exl2k_wg_tile(at + own) + 2 * k,
                                        exl2k_wg_tile(at + h * (128 * 128)) + 2 * k);
            }
        }
        exl2k_wg_commit();
        exl2k_wg_wait<1>(); /* the stage before */
        if (i > 0 && lane == 0) {
            exl2k_barrier_arrive(shared + plan::empty + (i - 1) % EXL2K_EXL3_WG_STAGES * 8);
        }
    }
    exl2k_wg_wait<0>();
#pragma unroll
    for (u32 h = 0; h < halves; h++) {
        exl2k_wg_hold(sum[h]);
    }
    exl2k_exl3_wg_sync(); /* nothing reads stages any more */
#pragma unroll
    for (u32 h = 0; h < halves; h++) {
        exl2k_exl3_gather<16>(shared + h * (128 * EXL2K_EXL3_PITCH * 4), sum[h], warp, lane, 128);
    }
    exl2k_exl3_wg_sync();
}

/* The products of a strip with T rows. All threads call it; it returns true in those of the first eight warps, for
   which the sums lie in shared memory: f32 [T, EXL2K_EXL3_PITCH]. tile: the strip's first one; rows: the first row's
   inputs, transformed, in natural order. */
template <u32 T, u32 BOOK>
EXL2K_FN bool exl2k_exl3_wg_multiply(u32 rate, u64 tile, u32 pitch, u32 stages, u64 rows, u32 row_bytes, u32 shared)
{
    using plan = exl2k_exl3_wg_plan<T>;
    u32 lane = threadIdx.x % EXL2K_WARP, warp = __shfl_sync(EXL2K_ALL, threadIdx.x / EXL2K_WARP, 0);
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < 2 * EXL2K_EXL3_WG_STAGES; i++) {
            exl2k_barrier_init(shared + plan::full + i * 8, EXL2K_EXL3_WARPS);
        }
        exl2k_barrier_init_fence();
    }
    __syncthreads();
    if (warp >= EXL2K_EXL3_WARPS) {
        u32 column = warp % EXL2K_EXL3_WARPS;
        if constexpr (T == 256) {
            exl2k_registers_less<88>();
        }
        exl2k_exl3_wg_any_rate<T, BOOK>(rate, tile + (u64)column * 16 * rate, pitch, stages, rows, row_bytes, shared,
                                        warp - EXL2K_EXL3_WARPS, lane);
        return false;
    }
    if constexpr (T == 256) {
        exl2k_registers_more<168>();
    }
    exl2k_exl3_wg_sums<T>(stages, shared, warp, lane);
    return true;
}

template <u32 T, u32 BOOK> EXL2K_FN void exl2k_exl3_wg(const exl2k_exl3_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    u32 first = blockIdx.y * T, shared = (exl2k_shared(exl2k_dynamic) + 1023) & ~1023u;
    exl2k_exl3_unit u = exl2k_exl3_unit_of(a, blockIdx.x);
    const exl2k_exl3_part &part = a.part[u.part];
    u32 pitch = part.row_tiles * 16 * part.rate, row_bytes = a.blocks * (EXL2K_EXL3_BLOCK * 2);
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u32 rows = exl2k_exl3_rows(a.rows_at, a.rows, a.before);
    if (rows <= first) {
        return;
    }
    if (!exl2k_exl3_wg_multiply<T, BOOK>(part.rate, part.trellis + (u64)u.strip * 8 * 16 * part.rate, pitch,
                                         a.blocks * 2, a.rotated + ((u64)u.part * a.rotated_rows + first) * row_bytes,
                                         row_bytes, shared)) {
        return;
    }
#pragma unroll 1
    for (u32 i = 0; i < T; i += EXL2K_EXL3_GEMM_ROWS) {
        exl2k_exl3_store_rows(a, part, u.strip, shared + i * (EXL2K_EXL3_PITCH * 4), first + i, rows,
                              threadIdx.x / EXL2K_WARP, threadIdx.x % EXL2K_WARP);
    }
}

#endif

/* exl3_wide.cuh: the product of many rows with strips of an EXL3 matrix that lie decoded in memory (exl3_args.h), by
   wgmma, on sm_90a.
   takes: exl3_wg.cuh.
   gives: exl2k_exl3_wide_all: the body of a kernel. Grid: rotated_rows / 256, strips of the launch;
          EXL2K_EXL3_WIDE_THREADS threads; EXL2K_EXL3_WIDE_SHARED bytes of dynamic shared memory.

   It has the bits of exl3_wg.cuh, which decodes a strip once for each 256 rows. Here exl2k_exl3_strips has decoded it,
   and one warp copies what two warpgroups multiply. A warpgroup has 64 outputs of all rows. Neighbours of the grid have
   the same strip, which so comes from the slow memory once.

   OUTPUTS  A thread transforms all 128 sums of its row in registers, without shuffles. Then a warp has a row at a time.
            Results of ACT may go the same way again, as inputs of the next product. */
#ifndef EXL2K_EXL3_WIDE_CUH
#define EXL2K_EXL3_WIDE_CUH

#include "exl3_wg.cuh"

#define EXL2K_EXL3_WIDE_ROWS 256u
#define EXL2K_EXL3_WIDE_FULL (EXL2K_EXL3_WIDE_STAGES * EXL2K_EXL3_WIDE_SLOT)
#define EXL2K_EXL3_WIDE_EMPTY (EXL2K_EXL3_WIDE_FULL + EXL2K_EXL3_WIDE_STAGES * 8)

/* One thread of the warp that copies. inputs: of the CTA's rows, tiles of 128 rows; strip: decoded. */
EXL2K_FN void exl2k_exl3_wide_copy(u32 shared, u64 inputs, u64 strip, u32 stages)
{
#pragma unroll 1
    for (u32 i = 0; i < stages; i++) {
        u32 slot = i % EXL2K_EXL3_WIDE_STAGES, to = shared + slot * EXL2K_EXL3_WIDE_SLOT;
        u32 full = shared + EXL2K_EXL3_WIDE_FULL + slot * 8;
        exl2k_barrier_wait(shared + EXL2K_EXL3_WIDE_EMPTY + slot * 8, (i / EXL2K_EXL3_WIDE_STAGES & 1) ^ 1);
        exl2k_barrier_expect(full, EXL2K_EXL3_WIDE_SLOT);
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            exl2k_copy_whole(to + h * EXL2K_EXL3_WG_INPUTS, inputs + ((u64)h * stages + i) * EXL2K_EXL3_WG_INPUTS,
                             EXL2K_EXL3_WG_INPUTS, full);
        }
        exl2k_copy_whole(to + 2 * EXL2K_EXL3_WG_INPUTS, strip + (u64)i * EXL2K_EXL3_WIDE_STRIP, EXL2K_EXL3_WIDE_STRIP,
                         full);
    }
}

/* The warps that multiply: leaves the sums of all rows in shared memory, f32 [256, EXL2K_EXL3_PITCH]. */
EXL2K_FN void exl2k_exl3_wide_sums(u32 shared, u32 stages, const exl2k_exl3_wg_before &before, u32 warp, u32 lane)
{
    f32 sum[EXL2K_EXL3_WIDE_ROWS / 8][4];
    u32 own = 2 * EXL2K_EXL3_WG_INPUTS + warp / 4 * (64 * 128);
#pragma unroll 1
    for (u32 i = 0; i < stages; i++) {
        u32 slot = i % EXL2K_EXL3_WIDE_STAGES, at = shared + slot * EXL2K_EXL3_WIDE_SLOT;
        if (i == before.turn) {
            exl2k_exl3_wg_prefetch<EXL2K_EXL3_WIDE_ROWS, EXL2K_EXL3_BLOCK>(before);
        }
        exl2k_barrier_wait(shared + EXL2K_EXL3_WIDE_FULL + slot * 8, i / EXL2K_EXL3_WIDE_STAGES & 1);
        exl2k_wg_begin();
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            exl2k_wg_product(sum, exl2k_wg_tile(at + own) + 2 * k, exl2k_wg_tile(at) + 2 * k, i + k);
        }
        exl2k_wg_commit();
        exl2k_wg_wait<1>(); /* the stage before, whose slot is free now */
        if (i > 0 && lane == 0) {
            exl2k_barrier_arrive(shared + EXL2K_EXL3_WIDE_EMPTY + (i - 1) % EXL2K_EXL3_WIDE_STAGES * 8);
        }
        __syncwarp();
    }
    exl2k_wg_wait<0>();
    exl2k_wg_hold(sum);
    exl2k_exl3_wg_sync<EXL2K_EXL3_BLOCK>(); /* nothing reads stages any more */
    exl2k_exl3_gather<EXL2K_EXL3_WIDE_ROWS / 8>(shared, sum, warp, lane, EXL2K_EXL3_WIDE_ROWS);
}

/* ---- outputs ---- */

/* H of the 128 values at `at` in shared memory, but for its factor, in the order of exl2k_exl3_hadamard. */
EXL2K_FN void exl2k_exl3_wide_hadamard(u32 at)
{
    f32 v[EXL2K_EXL3_BLOCK];
#pragma unroll
    for (u32 i = 0; i < EXL2K_EXL3_BLOCK; i += 4) {
        uint4 s = exl2k_shared_load4(at + i * 4);
        v[i] = __uint_as_float(s.x);
        v[i + 1] = __uint_as_float(s.y);
        v[i + 2] = __uint_as_float(s.z);
        v[i + 3] = __uint_as_float(s.w);
    }
#pragma unroll
    for (u32 step = 1; step < EXL2K_EXL3_BLOCK; step *= 2) {
#pragma unroll
        for (u32 i = 0; i < EXL2K_EXL3_BLOCK; i++) {
            if (!(i & step)) {
                f32 a = v[i], b = v[i + step];
                v[i] = a + b;
                v[i + step] = a - b;
            }
        }
    }
#pragma unroll
    for (u32 i = 0; i < EXL2K_EXL3_BLOCK; i += 4) {
        exl2k_shared_store4(at + i * 4, make_uint4(__float_as_uint(v[i]), __float_as_uint(v[i + 1]),
                                                   __float_as_uint(v[i + 2]), __float_as_uint(v[i + 3])));
    }
}

/* Makes the outputs of a strip, whose transformed sums lie in shared memory, of rows first .. first + count - 1. Results
   of ACT for the next product stay in shared memory, times its suh. */
template <u32 KIND, bool HALF>
EXL2K_FN void exl2k_exl3_wide_rows(const exl2k_exl3_args &a, const exl2k_exl3_part &part, u32 strip, u32 shared,
                                   u32 first, u32 count, u32 warp, u32 lane)
{
    constexpr u32 size = HALF ? 2 : 4, rows = 4;
    constexpr u32 step = EXL2K_EXL3_WIDE_THREADS / EXL2K_WARP;
    u32 n = strip * EXL2K_EXL3_BLOCK + lane * 4;
    u64 to = a.out + ((u64)first * a.out_pitch + (KIND == EXL2K_EXL3_ACT ? 0 : part.column) + n) * size;
    uint2 scale = exl2k_exl3_scales(part.svh + (u64)n * 2), suh = make_uint2(0, 0);
    bool turns = KIND == EXL2K_EXL3_ACT && a.next_suh;
    if (turns) {
        suh = exl2k_exl3_scales(a.next_suh + (u64)n * 2);
    }
#pragma unroll 1
    for (u32 turn = warp; turn < count; turn += rows * step) {
        uint4 before[rows];
#pragma unroll
        for (u32 j = 0; j < rows; j++) { /* rows beyond the last repeat it, and are not stored */
            u64 at = to + (u64)exl2k_min(turn + j * step, count - 1) * a.out_pitch * size;
            if constexpr (KIND == EXL2K_EXL3_RESIDUAL) {
                before[j] = exl2k_load4(at);
            } else if constexpr (KIND == EXL2K_EXL3_ACT) {
                before[j].x = exl2k_load(at);
                before[j].y = exl2k_load(at + 4);
            }
        }
#pragma unroll
        for (u32 j = 0; j < rows; j++) {
            u32 row = turn + j * step;
            if (row >= count) {
                break;
            }
            u32 from = shared + (row * EXL2K_EXL3_PITCH + lane * 4) * 4;
            uint4 s = exl2k_shared_load4(from);
            f32 w[4] = { __uint_as_float(s.x), __uint_as_float(s.y), __uint_as_float(s.z), __uint_as_float(s.w) };
            exl2k_exl3_wg_four<KIND>(a, part, n, w, scale, before[j]);
            if (!turns) {
                exl2k_exl3_wg_store<HALF>(to + (u64)row * a.out_pitch * size, w);
                continue;
            }
            u32 low = exl2k_pack_f16(exl2k_clamp_f16(w[0]), exl2k_clamp_f16(w[1]));
            u32 high = exl2k_pack_f16(exl2k_clamp_f16(w[2]), exl2k_clamp_f16(w[3]));
            exl2k_shared_store4(from, make_uint4(__float_as_uint(exl2k_low(low) * exl2k_low(suh.x)),
                                                 __float_as_uint(exl2k_high(low) * exl2k_high(suh.x)),
                                                 __float_as_uint(exl2k_low(high) * exl2k_low(suh.y)),
                                                 __float_as_uint(exl2k_high(high) * exl2k_high(suh.y))));
        }
    }
}

/* Stores rows in shared memory, which are transformed, as inputs of the next product. */
EXL2K_FN void exl2k_exl3_wide_next(const exl2k_exl3_args &a, u32 strip, u32 shared, u32 first, u32 count, u32 warp,
                                   u32 lane)
{
    constexpr f32 factor = 0.08838834764831845f;
#pragma unroll 4
    for (u32 row = warp; row < count; row += EXL2K_EXL3_WIDE_THREADS / EXL2K_WARP) {
        uint4 s = exl2k_shared_load4(shared + (row * EXL2K_EXL3_PITCH + lane * 4) * 4);
        u64 at = exl2k_exl3_tile_at(a.next_rotated, first + row, strip * EXL2K_EXL3_BLOCK + lane * 4, a.next_blocks);
        exl2k_store2(at, exl2k_pack_f16(__uint_as_float(s.x) * factor, __uint_as_float(s.y) * factor),
                     exl2k_pack_f16(__uint_as_float(s.z) * factor, __uint_as_float(s.w) * factor));
    }
}

/* Stores the outputs of a strip, whose sums lie in shared memory. All threads call it. */
EXL2K_FN void exl2k_exl3_wide_outputs(const exl2k_exl3_args &a, const exl2k_exl3_part &part, u32 strip, u32 shared,
                                      u32 first, u32 rows, u32 warp, u32 lane)
{
    u32 count = exl2k_min(rows - first, EXL2K_EXL3_WIDE_ROWS), own = threadIdx.x;
    if (!exl2k_exl3_wg_plain(a, part, strip)) {
        exl2k_exl3_wg_outputs<EXL2K_EXL3_WIDE_ROWS>(a, part, strip, shared, first, rows, warp, lane,
                                                    EXL2K_EXL3_WIDE_THREADS / EXL2K_WARP);
        return;
    }
    own = shared + own * (EXL2K_EXL3_PITCH * 4);
    if (warp < EXL2K_EXL3_WARPS) {
        exl2k_exl3_wide_hadamard(own);
    }
    __syncthreads();
    if (a.kind == EXL2K_EXL3_RESIDUAL) {
        exl2k_exl3_wide_rows<EXL2K_EXL3_RESIDUAL, false>(a, part, strip, shared, first, count, warp, lane);
    } else if (a.kind == EXL2K_EXL3_ACT) {
        exl2k_exl3_wide_rows<EXL2K_EXL3_ACT, true>(a, part, strip, shared, first, count, warp, lane);
    } else if (a.out_half) {
        exl2k_exl3_wide_rows<EXL2K_EXL3_STORE, true>(a, part, strip, shared, first, count, warp, lane);
    } else {
        exl2k_exl3_wide_rows<EXL2K_EXL3_STORE, false>(a, part, strip, shared, first, count, warp, lane);
    }
    if (a.kind == EXL2K_EXL3_ACT && a.next_suh) {
        __syncthreads();
        if (warp < EXL2K_EXL3_WARPS) {
            exl2k_exl3_wide_hadamard(own);
        }
        __syncthreads();
        exl2k_exl3_wide_next(a, strip, shared, first, count, warp, lane);
    }
}

EXL2K_FN void exl2k_exl3_wide_all(const exl2k_exl3_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    u32 lane = threadIdx.x % EXL2K_WARP, warp = __shfl_sync(EXL2K_ALL, threadIdx.x / EXL2K_WARP, 0);
    u32 first = blockIdx.x * EXL2K_EXL3_WIDE_ROWS, stages = a.blocks * 2;
    u32 shared = (exl2k_shared(exl2k_dynamic) + 1023) & ~1023u;
    exl2k_exl3_unit u = exl2k_exl3_unit_of(a, blockIdx.y);
    const exl2k_exl3_part &part = a.part[u.part];
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < EXL2K_EXL3_WIDE_STAGES; i++) {
            exl2k_barrier_init(shared + EXL2K_EXL3_WIDE_FULL + i * 8, 1);
            exl2k_barrier_init(shared + EXL2K_EXL3_WIDE_EMPTY + i * 8, EXL2K_EXL3_WARPS);
        }
        exl2k_barrier_init_fence();
    }
    exl2k_dependency_wait();
    exl2k_dependency_release(); /* from now on strips may be decoded where those of the product before lay */
    __syncthreads();
    u32 rows = exl2k_exl3_rows(a.rows_at, a.rows, a.before);
    if (rows <= first) {
        return;
    }
    if (warp == EXL2K_EXL3_WARPS) {
        if (exl2k_elect()) {
            u64 inputs = a.rotated + ((u64)u.part * a.rotated_rows + first) * a.blocks * (EXL2K_EXL3_BLOCK * 2);
            exl2k_exl3_wide_copy(shared, inputs, a.decoded + (u64)blockIdx.y * stages * EXL2K_EXL3_WIDE_STRIP, stages);
        }
        __syncwarp();
    } else if (warp < EXL2K_EXL3_WARPS) { /* the others only make outputs */
        exl2k_exl3_wide_sums(shared, stages,
                             exl2k_exl3_wg_before_of<EXL2K_EXL3_WIDE_ROWS>(a, part, u.strip, first, rows), warp, lane);
    }
    __syncthreads();
    exl2k_exl3_wide_outputs(a, part, u.strip, shared, first, rows, warp, lane);
}

#endif

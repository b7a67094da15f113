/* lora_rows.cu: what adapters add to products of many rows, before and after the base's product.
   takes: lora_rows_args.h, lora_use.cuh.
   gives: exl2k_lora_rows_t, exl2k_lora_rows_add, exl2k_lora_rows_act.

   A CTA has some neighbouring rows, and goes over the sets that these have. A row's values depend on its own adapters
   alone: a value of t is the sum of 8 slices of the inputs, and B t is a sum along the rank, adapter by adapter. */
#include "lora_rows_args.h"
#include "lora_use.cuh"

/* The set of a row; 0: none, or there is no such row. */
EXL2K_FN u32 exl2k_lora_set_of(const exl2k_lora_rows_args &a, u32 row)
{
    return row < a.rows ? exl2k_load_u16(a.row_sets + (u64)row * 2) : 0;
}

/* The least set above `set` that one of `rows` (at most 32) rows from `first` on has; 0: none. The same in all
   lanes. */
EXL2K_FN u32 exl2k_lora_next_set(const exl2k_lora_rows_args &a, u32 first, u32 rows, u32 set)
{
    u32 lane = threadIdx.x % EXL2K_WARP, own = lane < rows ? exl2k_lora_set_of(a, first + lane) : 0;
    u32 least = own > set ? own : 0xFFFFu;
#pragma unroll
    for (u32 step = 16; step > 0; step /= 2) {
        least = exl2k_min(least, __shfl_xor_sync(EXL2K_ALL, least, step));
    }
    return least == 0xFFFFu ? 0 : least;
}

/* What use `u` of a set (from 1 on) adds to a part. */
EXL2K_FN exl2k_lora_use exl2k_lora_rows_use(const exl2k_lora_rows_args &a, u32 set, u32 u, u32 part)
{
    return exl2k_lora_use_of(a.sets, a.tables, a.table, set, u, a.place + part);
}

EXL2K_FN u64 exl2k_lora_rows_t_at(const exl2k_lora_rows_args &a, u32 row, u32 u, u32 part, u32 k)
{
    return a.t + ((((u64)row * a.uses + u) * a.parts + part) * a.rank_stride + k) * 4;
}

/* ---- t = factor A x ---- */

/* The lane's inputs of 32 for the two products of 16: eight neighbours from 8 t on, for t = lane % 4. */
EXL2K_FN uint4 exl2k_lora_rows_x(const exl2k_lora_rows_args &a, u32 row, u32 half)
{
    u32 t = threadIdx.x % 4;
    row = exl2k_min(row, a.rows - 1);
    return exl2k_load4(a.x + (u64)row * a.x_pitch * 2 + half * 64 + t * 16);
}

/* A's inputs in the same order. A has zeros behind its inputs, up to its pitch. */
EXL2K_FN uint4 exl2k_lora_rows_a(u64 row_at, u32 half, u32 pitch)
{
    u32 n = half * 32 + threadIdx.x % 4 * 8;
    return n < pitch ? exl2k_load_constant4(row_at + n * 2) : make_uint4(0, 0, 0, 0);
}

extern "C" __global__ void __launch_bounds__(EXL2K_LORA_ROWS_THREADS) exl2k_lora_rows_t(exl2k_lora_rows_args a)
{
    constexpr u32 warps = EXL2K_LORA_ROWS_THREADS / EXL2K_WARP, tiles = EXL2K_LORA_ROWS_T / 8;
    __shared__ f32 sums[warps][EXL2K_LORA_TILE][EXL2K_LORA_ROWS_T + 1];
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP;
    u32 first = blockIdx.x * EXL2K_LORA_ROWS_T, part = blockIdx.y, pitch = (a.in + 15) / 16 * 16;
    u32 halves = (pitch + 31) / 32, begin = warp * halves / warps, end = (warp + 1) * halves / warps;
    exl2k_dependency_release();
    exl2k_dependency_wait();
#pragma unroll 1
    for (u32 set = 0; (set = exl2k_lora_next_set(a, first, EXL2K_LORA_ROWS_T, set)) > 0;) {
#pragma unroll 1
        for (u32 u = 0; u < exl2k_lora_uses(a.sets, set); u++) {
            exl2k_lora_use m = exl2k_lora_rows_use(a, set, u, part);
#pragma unroll 1
            for (u32 k0 = 0; k0 < m.rank; k0 += EXL2K_LORA_TILE) {
                f32 sum[tiles][4] = {};
                u64 low_at = m.a + (u64)exl2k_min(k0 + lane / 4, m.rank - 1) * pitch * 2;
                u64 high_at = m.a + (u64)exl2k_min(k0 + lane / 4 + 8, m.rank - 1) * pitch * 2;
#pragma unroll 1
                for (u32 half = begin; half < end; half++) {
                    uint4 low = exl2k_lora_rows_a(low_at, half, pitch);
                    uint4 high = exl2k_lora_rows_a(high_at, half, pitch);
                    const u32 even[4] = { low.x, high.x, low.y, high.y }, odd[4] = { low.z, high.z, low.w, high.w };
#pragma unroll
                    for (u32 i = 0; i < tiles; i++) {
                        uint4 x = exl2k_lora_rows_x(a, first + i * 8 + lane / 4, half);
                        exl2k_mma(sum[i], even, x.x, x.y);
                        exl2k_mma(sum[i], odd, x.z, x.w);
                    }
                }
                __syncthreads(); /* the sums before these are read */
#pragma unroll
                for (u32 i = 0; i < tiles; i++) {
#pragma unroll
                    for (u32 e = 0; e < 4; e++) {
                        sums[warp][lane / 4 + e / 2 * 8][i * 8 + lane % 4 * 2 + e % 2] = sum[i][e];
                    }
                }
                __syncthreads();
                for (u32 i = threadIdx.x; i < EXL2K_LORA_TILE * EXL2K_LORA_ROWS_T; i += EXL2K_LORA_ROWS_THREADS) {
                    u32 k = i % EXL2K_LORA_TILE, row = i / EXL2K_LORA_TILE;
                    f32 total = 0.0f;
                    for (u32 w = 0; w < warps; w++) {
                        total += sums[w][k][row];
                    }
                    if (k0 + k < m.rank && exl2k_lora_set_of(a, first + row) == set) {
                        exl2k_store_f32(exl2k_lora_rows_t_at(a, first + row, u, part, k0 + k),
                                        total * m.factor);
                    }
                }
            }
        }
    }
}

/* ---- B t ---- */

/* What the sets of rows [first, first + 16) add to columns n and n + 1 of a part. t_tile: of one adapter. Returns
   whether one of them has something for the part. */
EXL2K_FN bool exl2k_lora_rows_sum(const exl2k_lora_rows_args &a, u32 part, u32 n, u32 first,
                                  f32 (*t_tile)[EXL2K_LORA_ROWS_OUT], f32 sum[EXL2K_LORA_ROWS_OUT][2])
{
    u32 pitch = (a.columns[part] + 31) / 32 * 32;
    bool inside = n < a.columns[part], any = false;
#pragma unroll
    for (u32 r = 0; r < EXL2K_LORA_ROWS_OUT; r++) {
        sum[r][0] = sum[r][1] = 0.0f;
    }
#pragma unroll 1
    for (u32 set = 0; (set = exl2k_lora_next_set(a, first, EXL2K_LORA_ROWS_OUT, set)) > 0;) {
#pragma unroll 1
        for (u32 u = 0; u < exl2k_lora_uses(a.sets, set); u++) {
            f32 one[EXL2K_LORA_ROWS_OUT][2] = {};
            exl2k_lora_use m = exl2k_lora_rows_use(a, set, u, part);
            any = any || m.rank > 0;
            __syncthreads(); /* the tile before this one is read */
            for (u32 i = threadIdx.x; i < m.rank * EXL2K_LORA_ROWS_OUT; i += EXL2K_LORA_ROWS_THREADS) {
                u32 k = i % m.rank, row = i / m.rank;
                bool has = exl2k_lora_set_of(a, first + row) == set;
                t_tile[k][row] = has ? exl2k_load_f32(exl2k_lora_rows_t_at(a, first + row, u, part, k)) : 0.0f;
            }
            __syncthreads();
#pragma unroll 4
            for (u32 k = 0; k < m.rank; k++) {
                u32 pair = inside ? exl2k_load_constant(m.b + ((u64)k * pitch + n) * 2) : 0;
                f32 low = exl2k_low(pair), high = exl2k_high(pair);
#pragma unroll
                for (u32 r = 0; r < EXL2K_LORA_ROWS_OUT; r++) {
                    one[r][0] = fmaf(low, t_tile[k][r], one[r][0]);
                    one[r][1] = fmaf(high, t_tile[k][r], one[r][1]);
                }
            }
#pragma unroll
            for (u32 r = 0; r < EXL2K_LORA_ROWS_OUT; r++) {
                sum[r][0] += one[r][0];
                sum[r][1] += one[r][1];
            }
        }
    }
    return any;
}

extern "C" __global__ void __launch_bounds__(EXL2K_LORA_ROWS_THREADS) exl2k_lora_rows_add(exl2k_lora_rows_args a)
{
    __shared__ f32 t_tile[EXL2K_LORA_RANK_MAX][EXL2K_LORA_ROWS_OUT];
    u32 part = blockIdx.y, first = blockIdx.z * EXL2K_LORA_ROWS_OUT;
    u32 n = (blockIdx.x * EXL2K_LORA_ROWS_THREADS + threadIdx.x) * 2;
    f32 sum[EXL2K_LORA_ROWS_OUT][2];
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (!exl2k_lora_rows_sum(a, part, n, first, t_tile, sum)) {
        return;
    }
#pragma unroll
    for (u32 r = 0; r < EXL2K_LORA_ROWS_OUT; r++) {
        u64 out = a.out + ((u64)(first + r) * a.out_pitch + a.column[part] + n) * 4;
        for (u32 i = 0; i < 2 && exl2k_lora_set_of(a, first + r) && n + i < a.columns[part]; i++) {
            exl2k_store_f32(out + i * 4, fmaf(a.scale, sum[r][i], exl2k_load_f32(out + i * 4)));
        }
    }
}

/* act(gate) * up, or act(gate) alone, with the SiLU of products of many rows (exl2k_silu_quick of gemm_results.cuh), so
   that rows without adapters have the bits that they have in passes without. */
EXL2K_FN f32 exl2k_lora_rows_gated(const exl2k_lora_rows_args &a, f32 gate, f32 up)
{
    if (a.act == EXL2K_ACT_SILU) {
        return __fdividef(gate, 1.0f + __expf(-gate)) * up;
    }
    return a.parts == 2 ? exl2k_gated(a.act, a.act_limit, gate, up) : exl2k_act(a.act, gate);
}

extern "C" __global__ void __launch_bounds__(EXL2K_LORA_ROWS_THREADS) exl2k_lora_rows_act(exl2k_lora_rows_args a)
{
    __shared__ f32 t_tile[EXL2K_LORA_RANK_MAX][EXL2K_LORA_ROWS_OUT];
    u32 first = a.row0 + blockIdx.z * EXL2K_LORA_ROWS_OUT, count = a.columns[0];
    u32 n = (blockIdx.x * EXL2K_LORA_ROWS_THREADS + threadIdx.x) * 2;
    f32 gate[EXL2K_LORA_ROWS_OUT][2], up[EXL2K_LORA_ROWS_OUT][2];
    exl2k_dependency_release();
    exl2k_dependency_wait();
    exl2k_lora_rows_sum(a, 0, n, first, t_tile, gate);
    if (a.parts == 2) {
        exl2k_lora_rows_sum(a, 1, n, first, t_tile, up);
    }
#pragma unroll
    for (u32 r = 0; r < EXL2K_LORA_ROWS_OUT; r++) {
        u64 from = a.from + ((u64)(first + r - a.row0) * a.parts * count + n) * 4;
        for (u32 i = 0; i < 2 && first + r < a.rows && n + i < count; i++) {
            f32 g = exl2k_load_f32(from + i * 4) + gate[r][i];
            f32 u = a.parts == 2 ? exl2k_load_f32(from + (count + i) * 4) + up[r][i] : 1.0f;
            f32 h = exl2k_lora_rows_gated(a, g, u);
            exl2k_store_u16(a.out + ((u64)(first + r) * a.out_pitch + n + i) * 2, exl2k_f32_to_f16(exl2k_clamp_f16(h)));
        }
    }
}

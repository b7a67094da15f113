/* lora_experts.cu: what adapters add to the products of experts: t = factor A x, then B t.
   takes: lora_experts_args.h, lora_use.cuh.
   gives: exl2k_lora_experts_t, exl2k_lora_experts_up, exl2k_lora_experts_down.

   A row's values depend on its own experts and adapters alone: a value of t is a sum over the lanes of a warp, B t a
   sum along the rank, adapter by adapter, expert by expert. */
#include "lora_experts_args.h"
#include "lora_use.cuh"

/* Rows of the slice. */
EXL2K_FN u32 exl2k_lora_experts_rows(const exl2k_lora_experts_args &a)
{
    u32 rows = exl2k_load(a.rows.rows_at);
    return exl2k_min(rows > a.rows.first ? rows - a.rows.first : 0, EXL2K_EXPERT_ROWS);
}

/* The set of a row of the slice; 0: none. */
EXL2K_FN u32 exl2k_lora_experts_set(const exl2k_lora_experts_args &a, u32 row)
{
    return exl2k_load_u16(a.row_sets + (u64)(a.rows.first + row) * 2);
}

/* The expert of a slot. */
EXL2K_FN u32 exl2k_lora_experts_of(const exl2k_lora_experts_args &a, u32 slot)
{
    return exl2k_load(a.rows.choice + ((u64)a.rows.first * a.rows.active + slot) * 4);
}

/* Number of the expert among those in use: how many lower ones the slice's rows have chosen. */
EXL2K_FN u32 exl2k_lora_experts_index(const exl2k_lora_experts_args &a, u32 expert, u32 slots)
{
    u32 below = 0;
    for (u32 i = 0; i < slots; i++) {
        u32 other = exl2k_lora_experts_of(a, i);
        bool known = other >= expert;
        for (u32 k = 0; k < i && !known; k++) {
            known = exl2k_lora_experts_of(a, k) == other;
        }
        below += !known;
    }
    return below;
}

/* What use `u` of a set (from 1 on) adds to a part of an expert. */
EXL2K_FN exl2k_lora_use exl2k_lora_experts_use(const exl2k_lora_experts_args &a, u32 set, u32 u, u32 expert, u32 part)
{
    return exl2k_lora_use_of(a.sets, a.tables, a.table, set, u, a.place + expert * a.step + part);
}

EXL2K_FN u64 exl2k_lora_experts_t_at(const exl2k_lora_experts_args &a, u32 slot, u32 u, u32 part, u32 k)
{
    return a.t + ((((u64)slot * a.uses + u) * a.parts + part) * a.rank_stride + k) * 4;
}

extern "C" __global__ void __launch_bounds__(EXL2K_LORA_EXPERTS_THREADS)
exl2k_lora_experts_t(const __grid_constant__ exl2k_lora_experts_args a)
{
    u32 slot = blockIdx.x, part = blockIdx.y, row = slot / a.rows.active, pitch = (a.in + 15) / 16 * 16;
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u32 rows = exl2k_lora_experts_rows(a);
    if (row >= rows) {
        return;
    }
    u32 set = exl2k_lora_experts_set(a, row), expert = exl2k_lora_experts_of(a, slot);
    u32 uses = exl2k_lora_uses(a.sets, set);
    u64 line = a.by_slot ? slot : a.rows.first + row;
    f32 weight = 1.0f;
    if (a.by_slot && uses > 0) {
        weight = exl2k_load_f32(a.rows.weight + ((u64)a.rows.first * a.rows.active + slot) * 4);
    } else if (a.down && uses > 0) {
        line = (u64)exl2k_lora_experts_index(a, expert, rows * a.rows.active) * EXL2K_EXPERT_ROWS + row;
    }
    u64 x = a.x + line * a.x_pitch * 2;
    for (u32 u = 0; u < uses; u++) {
        exl2k_lora_use m = exl2k_lora_experts_use(a, set, u, expert, part);
        for (u32 k = warp; k < m.rank; k += EXL2K_LORA_EXPERTS_THREADS / EXL2K_WARP) {
            f32 sum = 0.0f;
            for (u32 n = lane * 2; n < a.in; n += EXL2K_WARP * 2) {
                u32 w = exl2k_load_constant(m.a + ((u64)k * pitch + n) * 2), v = exl2k_load(x + n * 2);
                sum = fmaf(exl2k_low(w), exl2k_low(v), sum);
                sum = n + 1 < a.in ? fmaf(exl2k_high(w), exl2k_high(v), sum) : sum;
            }
            sum = exl2k_warp_sum(sum);
            if (lane == 0) {
                exl2k_store_f32(exl2k_lora_experts_t_at(a, slot, u, part, k), sum * (m.factor * weight));
            }
        }
    }
}

/* B t of a slot for output n, of all adapters of the row. */
EXL2K_FN f32 exl2k_lora_experts_sum(const exl2k_lora_experts_args &a, u32 set, u32 slot, u32 part, u32 n)
{
    u32 expert = exl2k_lora_experts_of(a, slot), pitch = (a.columns + 31) / 32 * 32;
    f32 sum = 0.0f;
    for (u32 u = 0; u < exl2k_lora_uses(a.sets, set); u++) {
        f32 one = 0.0f;
        exl2k_lora_use m = exl2k_lora_experts_use(a, set, u, expert, part);
        for (u32 k = 0; k < m.rank; k++) {
            u32 b = exl2k_load_u16(m.b + ((u64)k * pitch + n) * 2);
            one = fmaf(exl2k_low(b), exl2k_load_f32(exl2k_lora_experts_t_at(a, slot, u, part, k)), one);
        }
        sum += one;
    }
    return sum;
}

extern "C" __global__ void __launch_bounds__(EXL2K_LORA_EXPERTS_THREADS)
exl2k_lora_experts_up(const __grid_constant__ exl2k_lora_experts_args a)
{
    u32 n = blockIdx.x * EXL2K_LORA_EXPERTS_THREADS + threadIdx.x, slot = blockIdx.y, part = blockIdx.z;
    u32 row = slot / a.rows.active;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (n < a.columns && row < exl2k_lora_experts_rows(a)) {
        f32 sum = exl2k_lora_experts_sum(a, exl2k_lora_experts_set(a, row), slot, part, n);
        exl2k_store_f32(a.out + (((u64)slot * 2 + part) * a.columns + n) * 4, sum);
    }
}

extern "C" __global__ void __launch_bounds__(EXL2K_LORA_EXPERTS_THREADS)
exl2k_lora_experts_down(const __grid_constant__ exl2k_lora_experts_args a)
{
    u32 n = blockIdx.x * EXL2K_LORA_EXPERTS_THREADS + threadIdx.x, row = blockIdx.y;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u32 set = n < a.columns && row < exl2k_lora_experts_rows(a) ? exl2k_lora_experts_set(a, row) : 0;
    if (set) {
        u64 at = a.out + ((u64)(a.rows.first + row) * a.out_pitch + n) * 4;
        f32 sum = 0.0f;
        for (u32 k = 0; k < a.rows.active; k++) {
            sum += exl2k_lora_experts_sum(a, set, row * a.rows.active + k, 0, n);
        }
        exl2k_store_f32(at, fmaf(a.scale, sum, exl2k_load_f32(at)));
    }
}

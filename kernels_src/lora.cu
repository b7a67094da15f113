/* lora.cu: what adapters add to products of few rows.
   takes: lora_args.h.
   gives: exl2k_lora_shrink, exl2k_lora_expand, exl2k_lora_act.

   A row's values depend on its own adapters alone: sums have one order, by lanes and then over a warp (shrink), or
   along the rank (expand). */
#include "base.cuh"
#include "gemv_args.h"
#include "lora_args.h"

EXL2K_FN u64 exl2k_lora_row_of(const exl2k_lora_args &a, u32 row)
{
    return a.rows + (u64)row * sizeof(exl2k_lora_row);
}

/* What use `u` of a row adds to a part. *scale: that of the use. */
EXL2K_FN exl2k_lora_matrix exl2k_lora_matrix_of(const exl2k_lora_args &a, u64 row, u32 u, u32 part, f32 *scale)
{
    u64 use = row + 16 + (u64)u * sizeof(exl2k_lora_use);
    uint4 v = exl2k_load4(use);
    u64 at = ((u64)v.y << 32 | v.x) + (u64)(a.place + part) * sizeof(exl2k_lora_matrix);
    uint4 low = exl2k_load4(at), high = exl2k_load4(at + 16);
    exl2k_lora_matrix m;
    *scale = __uint_as_float(v.z);
    m.rank = low.x;
    m.factor = __uint_as_float(low.y);
    m.a = (u64)low.w << 32 | low.z;
    m.b = (u64)high.y << 32 | high.x;
    m.shares = high.z;
    return m;
}

/* sum(slots) / hidden + eps of a row: every lane has it. */
EXL2K_FN f32 exl2k_lora_mean(const exl2k_lora_args &a, u64 sums, u32 row)
{
    f32 sum = 0.0f;
    for (u32 i = threadIdx.x % EXL2K_WARP; i < a.slots; i += EXL2K_WARP) {
        sum += exl2k_load_f32(sums + ((u64)row * EXL2K_SLOTS_MAX + i) * 4);
    }
    return fmaf(exl2k_warp_sum(sum), a.inverse_hidden, a.eps);
}

/* The factor that x lacks: rho_now / rho_before, rho = 1 / sqrt(mean). */
EXL2K_FN f32 exl2k_lora_missing(const exl2k_lora_args &a, u32 row)
{
    f32 now = a.sums_now ? exl2k_lora_mean(a, a.sums_now, row) : 1.0f;
    f32 before = a.sums_now && a.sums_before ? exl2k_lora_mean(a, a.sums_before, row) : 1.0f;
    return a.sums_now ? __fsqrt_rn(__fdiv_rn(before, now)) : 1.0f;
}

/* Products of eight pairs of halves, added in order. */
EXL2K_FN f32 exl2k_lora_dot(uint4 w, uint4 x, f32 sum)
{
    sum = fmaf(exl2k_low(w.x), exl2k_low(x.x), sum);
    sum = fmaf(exl2k_high(w.x), exl2k_high(x.x), sum);
    sum = fmaf(exl2k_low(w.y), exl2k_low(x.y), sum);
    sum = fmaf(exl2k_high(w.y), exl2k_high(x.y), sum);
    sum = fmaf(exl2k_low(w.z), exl2k_low(x.z), sum);
    sum = fmaf(exl2k_high(w.z), exl2k_high(x.z), sum);
    sum = fmaf(exl2k_low(w.w), exl2k_low(x.w), sum);
    return fmaf(exl2k_high(w.w), exl2k_high(x.w), sum);
}

extern "C" __global__ void __launch_bounds__(EXL2K_LORA_THREADS) exl2k_lora_shrink(exl2k_lora_args a)
{
    u32 lane = threadIdx.x % EXL2K_WARP, part = blockIdx.y, row = blockIdx.z;
    u32 index = blockIdx.x * (EXL2K_LORA_THREADS / EXL2K_WARP) + threadIdx.x / EXL2K_WARP;
    u32 use = index / a.rank_stride, k = index % a.rank_stride;
    u64 adapters = exl2k_lora_row_of(a, row);
    exl2k_dependency_wait();
    if (index >= a.stride || use >= exl2k_load(adapters)) {
        return;
    }
    f32 scale, sum = 0.0f;
    exl2k_lora_matrix m = exl2k_lora_matrix_of(a, adapters, use, part, &scale);
    if (k >= m.rank) {
        return;
    }
    u32 pitch = (a.in + 15) / 16 * 16;
    u64 from = m.a + (u64)k * pitch * 2, x = a.x + (u64)row * a.x_pitch * 2;
    for (u32 i = lane * 8; i < pitch; i += EXL2K_WARP * 8) { /* A has zeros behind its inputs, and x is finite there */
        uint4 xs = exl2k_load4(x + (u64)(i / 32) * a.x_step + i % 32 * 2);
        sum = exl2k_lora_dot(exl2k_load_constant4(from + i * 2), xs, sum);
    }
    sum = exl2k_warp_sum(sum);
    f32 missing = exl2k_lora_missing(a, row);
    if (lane == 0) {
        u64 to = a.t + (((u64)row * EXL2K_LORA_PARTS + part) * a.stride + index) * 4;
        exl2k_store_f32(to, sum * (scale * m.factor) * missing);
    }
}

/* What all adapters of a row add to columns n and n + 1 of a part. */
EXL2K_FN void exl2k_lora_add(const exl2k_lora_args &a, u32 row, u32 part, u32 n, f32 *first, f32 *second)
{
    u64 adapters = exl2k_lora_row_of(a, row), t = a.t + ((u64)row * EXL2K_LORA_PARTS + part) * a.stride * 4;
    u32 count = exl2k_load(adapters), pitch = (a.columns[part] + 31) / 32 * 32;
    f32 unused;
    *first = *second = 0.0f;
    for (u32 u = 0; u < count; u++, t += a.rank_stride * 4) {
        exl2k_lora_matrix m = exl2k_lora_matrix_of(a, adapters, u, part, &unused);
        f32 low = 0.0f, high = 0.0f;
        for (u32 k = 0; k < m.rank; k++) {
            u32 pair = exl2k_load_constant(m.b + ((u64)k * pitch + n) * 2);
            f32 tk = exl2k_load_f32(t + k * 4);
            low = fmaf(exl2k_low(pair), tk, low);
            high = fmaf(exl2k_high(pair), tk, high);
        }
        *first += low;
        *second += high;
    }
}

extern "C" __global__ void __launch_bounds__(EXL2K_LORA_THREADS) exl2k_lora_expand(exl2k_lora_args a)
{
    u32 part = blockIdx.y, row = blockIdx.z, n = (blockIdx.x * EXL2K_LORA_THREADS + threadIdx.x) * 2;
    exl2k_dependency_wait();
    if (n >= a.columns[part] || exl2k_load(exl2k_lora_row_of(a, row)) == 0) {
        return;
    }
    f32 add[2];
    exl2k_lora_add(a, row, part, n, &add[0], &add[1]);
    u64 out = a.out + ((u64)row * a.out_pitch + a.column[part] + n) * 4;
    exl2k_store_f32(out, fmaf(a.scale, add[0], exl2k_load_f32(out)));
    if (n + 1 < a.columns[part]) {
        exl2k_store_f32(out + 4, fmaf(a.scale, add[1], exl2k_load_f32(out + 4)));
    }
}

extern "C" __global__ void __launch_bounds__(EXL2K_LORA_THREADS) exl2k_lora_act(exl2k_lora_args a)
{
    u32 row = blockIdx.z, n = (blockIdx.x * EXL2K_LORA_THREADS + threadIdx.x) * 2, count = a.columns[0];
    exl2k_dependency_wait();
    if (n >= count || exl2k_load(exl2k_lora_row_of(a, row)) == 0) {
        return;
    }
    f32 gate[2], up[2] = { 0.0f, 0.0f };
    exl2k_lora_add(a, row, 0, n, &gate[0], &gate[1]);
    if (a.parts == 2) {
        exl2k_lora_add(a, row, 1, n, &up[0], &up[1]);
    }
    for (u32 i = 0; i < 2 && n + i < count; i++) {
        u64 from = a.from + ((u64)row * a.parts * count + n + i) * 4;
        f32 g = exl2k_load_f32(from) + gate[i], h;
        h = a.parts == 2 ? exl2k_gated(a.act, a.act_limit, g, exl2k_load_f32(from + (u64)count * 4) + up[i])
                         : exl2k_act(a.act, g);
        u64 to = a.out + (u64)row * a.out_pitch * 2 + (u64)((n + i) / 32) * a.out_step + (n + i) % 32 * 2;
        exl2k_store_u16(to, exl2k_f32_to_f16(exl2k_clamp_f16(h)));
    }
}

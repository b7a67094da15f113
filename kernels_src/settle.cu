/* settle.cu: adds a block's normalised result to the residual, and normalises the residual for the next products.
   takes: settle_args.h.
   gives: exl2k_settle.
   owns:  nothing. */
#include "base.cuh"
#include "settle_args.h"

/* A row of f32 that a CTA works on. Thread t has elements t, t + 1024, and so on, the first ones in `held`. */
typedef struct exl2k_settle_row {
    u64 at;
    f32 held[EXL2K_SETTLE_HELD];
} exl2k_settle_row;

/* The thread's first elements of tables that no kernel writes. They are loaded before the wait for the preceding kernel,
   so that only the row itself is loaded after it. */
typedef struct exl2k_settle_fixed {
    f32 weight[EXL2K_SETTLE_EARLY], bias[EXL2K_SETTLE_EARLY];
    f32 post_weight[EXL2K_SETTLE_EARLY], post_bias[EXL2K_SETTLE_EARLY];
    u32 map[EXL2K_SETTLE_EARLY]; /* of the first order */
} exl2k_settle_fixed;

typedef struct exl2k_settle_norm {
    f32 mean, rho; /* rho: 1 / sqrt(variance + eps) */
} exl2k_settle_norm;

/* Calls f(n, i, value) for each of the thread's elements: n is its place in the row, i its place in `held`, or
   EXL2K_SETTLE_HELD where the value was read from memory. */
template <typename F> EXL2K_FN void exl2k_settle_each(exl2k_settle_row &row, u32 hidden, F f)
{
#pragma unroll
    for (u32 i = 0; i < EXL2K_SETTLE_HELD; i++) {
        u32 n = i * EXL2K_SETTLE_THREADS + threadIdx.x;
        if (n < hidden) {
            f(n, i, row.held[i]);
        }
    }
#pragma unroll 1
    for (u32 n = EXL2K_SETTLE_HELD * EXL2K_SETTLE_THREADS + threadIdx.x; n < hidden; n += EXL2K_SETTLE_THREADS) {
        f32 value = exl2k_load_f32(row.at + n * 4);
        f(n, EXL2K_SETTLE_HELD, value);
    }
}

EXL2K_FN void exl2k_settle_load(exl2k_settle_row &row, u64 at, u32 hidden)
{
    row.at = at;
#pragma unroll
    for (u32 i = 0; i < EXL2K_SETTLE_HELD; i++) {
        u32 n = i * EXL2K_SETTLE_THREADS + threadIdx.x;
        row.held[i] = n < hidden ? exl2k_load_f32(at + n * 4) : 0.0f;
    }
}

/* Sum over the CTA in a fixed order; every thread gets it. */
EXL2K_FN f32 exl2k_settle_sum(f32 value, f32 *partial)
{
    value = exl2k_warp_sum(value);
    __syncthreads(); /* the preceding sum has been read */
    if (threadIdx.x % EXL2K_WARP == 0) {
        partial[threadIdx.x / EXL2K_WARP] = value;
    }
    __syncthreads();
    return exl2k_warp_sum(partial[threadIdx.x % EXL2K_WARP]);
}

/* Mean and deviation of a row. The mean comes first, from differences to `shift`, and the variance from differences to
   the mean: a mean that is large against the deviation would cost the bits of both. */
EXL2K_FN exl2k_settle_norm exl2k_settle_norm_of(const exl2k_settle_args &a, exl2k_settle_row &row, f32 shift,
                                                f32 *partial)
{
    exl2k_settle_norm norm = { 0.0f, 0.0f };
    if (a.layer_norm) {
        f32 sum = 0.0f;
        exl2k_settle_each(row, a.hidden, [&](u32, u32, f32 v) { sum += v - shift; });
        norm.mean = shift + exl2k_settle_sum(sum, partial) / (f32)a.hidden;
    }
    f32 square = 0.0f, mean = norm.mean;
    exl2k_settle_each(row, a.hidden, [&](u32, u32, f32 v) { square = fmaf(v - mean, v - mean, square); });
    norm.rho = 1.0f / sqrtf(exl2k_settle_sum(square, partial) / (f32)a.hidden + a.eps);
    return norm;
}

/* Element n of a table, which is the thread's element i; 0 without a table. */
EXL2K_FN f32 exl2k_settle_at(const f32 early[EXL2K_SETTLE_EARLY], u64 table, u32 n, u32 i)
{
    return i < EXL2K_SETTLE_EARLY ? early[i] : table ? exl2k_load_f32(table + n * 4) : 0.0f;
}

EXL2K_FN void exl2k_settle_early(f32 early[EXL2K_SETTLE_EARLY], u64 table, u32 hidden)
{
#pragma unroll
    for (u32 i = 0; i < EXL2K_SETTLE_EARLY; i++) {
        u32 n = i * EXL2K_SETTLE_THREADS + threadIdx.x;
        early[i] = table && n < hidden ? exl2k_load_f32(table + n * 4) : 0.0f;
    }
}

EXL2K_FN void exl2k_settle_load_fixed(exl2k_settle_fixed &fixed, const exl2k_settle_args &a)
{
    exl2k_settle_early(fixed.weight, a.weight, a.hidden);
    exl2k_settle_early(fixed.bias, a.bias, a.hidden);
    exl2k_settle_early(fixed.post_weight, a.post_weight, a.hidden);
    exl2k_settle_early(fixed.post_bias, a.post_bias, a.hidden);
#pragma unroll
    for (u32 i = 0; i < EXL2K_SETTLE_EARLY; i++) {
        u32 n = i * EXL2K_SETTLE_THREADS + threadIdx.x;
        fixed.map[i] = a.map[0] && n < a.hidden ? exl2k_load_u16(a.map[0] + n * 2) : n;
    }
}

EXL2K_FN f32 exl2k_settle_value(exl2k_settle_norm norm, f32 weight, f32 bias, f32 v)
{
    return (v - norm.mean) * norm.rho * weight + bias;
}

/* Prefetches a table of `bytes` bytes into L2, which no kernel writes. */
EXL2K_FN void exl2k_settle_prefetch(u64 table, u32 bytes)
{
    for (u32 at = threadIdx.x * 128; table && at < bytes; at += EXL2K_SETTLE_THREADS * 128) {
        exl2k_prefetch(table + at);
    }
}

/* Writes the normalised residual to the row at `to`, in the order of the map. The row goes through shared memory: the
   permutation scatters there, so that global memory is accessed in whole lines. */
EXL2K_FN void exl2k_settle_write(const exl2k_settle_args &a, const exl2k_settle_fixed &fixed, u32 order, u64 to,
                                 exl2k_settle_row &residual, exl2k_settle_norm norm, u16 *staged)
{
    u64 map = order == 0 ? a.map[0] : a.map[1];
    bool stage = a.hidden <= EXL2K_SETTLE_STAGED;
    exl2k_settle_each(residual, a.hidden, [&](u32 n, u32 i, f32 v) {
        f32 y = v;
        if (a.weight) {
            y = exl2k_settle_value(norm, exl2k_settle_at(fixed.weight, a.weight, n, i),
                                   exl2k_settle_at(fixed.bias, a.bias, n, i), v);
        }
        bool early = order == 0 && i < EXL2K_SETTLE_EARLY;
        u32 index = early ? fixed.map[i % EXL2K_SETTLE_EARLY] : map ? exl2k_load_u16(map + n * 2) : n;
        u32 half = exl2k_f32_to_f16(exl2k_clamp_f16(y));
        if (stage) {
            staged[index] = (u16)half;
        } else {
            exl2k_store_u16(to + index * 2, half);
        }
    });
    if (!stage) {
        return;
    }
    /* Store the staged row, two elements at a time. */
    __syncthreads();
    for (u32 n = 2 * threadIdx.x; n + 1 < a.hidden; n += 2 * EXL2K_SETTLE_THREADS) {
        exl2k_store(to + n * 2, staged[n] | (u32)staged[n + 1] << 16);
    }
    if ((a.hidden & 1) && threadIdx.x == 0) {
        exl2k_store_u16(to + (a.hidden - 1) * 2, staged[a.hidden - 1]);
    }
    __syncthreads(); /* before the other order is staged */
}

/* Settles one row. */
extern "C" __global__ void __launch_bounds__(EXL2K_SETTLE_THREADS, 1) exl2k_settle(exl2k_settle_args a)
{
    __shared__ u16 staged[EXL2K_SETTLE_STAGED];
    __shared__ f32 partial[EXL2K_SETTLE_THREADS / EXL2K_WARP];
    u32 row = blockIdx.x;
    exl2k_settle_fixed fixed;
    exl2k_settle_row residual, branch = { 0 };
    exl2k_settle_load_fixed(fixed, a);
    exl2k_settle_prefetch(a.map[1], a.hidden * 2);
    exl2k_dependency_release();
    exl2k_dependency_wait();
    /* Load the row before the number of rows is known: there is memory for every row of the launch. */
    u32 rows = exl2k_load(a.rows_at);
    if (a.samplings && row >= rows) {
        return;
    }
    u64 source = a.samplings ? exl2k_load(a.samplings + row * sizeof(exl2k_sampling)) : row;
    u64 at = a.residual + source * a.hidden * 4;
    f32 shift = exl2k_load_f32(at); /* all threads read it before the sums below, and it is written after them */
    exl2k_settle_load(residual, at, a.hidden);
    if (a.branch) {
        exl2k_settle_load(branch, a.branch + source * a.hidden * 4, a.hidden);
    }
    if (row >= rows) {
        return;
    }
    /* Add the normalised branch. */
    if (a.branch) {
        exl2k_settle_norm norm = exl2k_settle_norm_of(a, branch, exl2k_load_f32(branch.at), partial);
        exl2k_settle_each(residual, a.hidden, [&](u32 n, u32 i, f32 &r) {
            f32 o = i < EXL2K_SETTLE_HELD ? branch.held[i] : exl2k_load_f32(branch.at + n * 4);
            f32 y = exl2k_settle_value(norm, exl2k_settle_at(fixed.post_weight, a.post_weight, n, i),
                                       exl2k_settle_at(fixed.post_bias, a.post_bias, n, i), o);
            r = fmaf(a.scale, y, r);
            exl2k_store_f32(at + n * 4, r);
        });
    }
    /* Normalise the residual. */
    exl2k_settle_norm norm = { 0.0f, 1.0f };
    if (a.weight && a.out[0]) {
        norm = exl2k_settle_norm_of(a, residual, shift, partial);
    }
#pragma unroll 1
    for (u32 k = 0; k < 2; k++) {
        u64 to = k == 0 ? a.out[0] : a.out[1];
        if (to) {
            exl2k_settle_write(a, fixed, k, to + (u64)row * a.out_pitch * 2, residual, norm, staged);
        }
    }
}

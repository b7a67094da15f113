/* settle.cuh: adds a block's normalised result to the residual, and normalises the residual for the next products.
   takes: settle_args.h.
   gives: exl2k_settle_settle, exl2k_settle_orders.

   One CTA works on a row, and all that counts is how long its steps last one after the other. So a thread has V
   consecutive elements at a time, 4 where the row allows it, and each sum has one barrier. */
#ifndef EXL2K_SETTLE_CUH
#define EXL2K_SETTLE_CUH

#include "base.cuh"
#include "settle_args.h"
#include "wg_tiles.cuh"

/* A row of f32 that a CTA works on. Its runs of V elements go to the threads in turn; a thread holds its first ones. */
typedef struct exl2k_settle_row {
    u64 at;
    f32 held[EXL2K_SETTLE_HELD];
} exl2k_settle_row;

/* The thread's first elements of tables that no kernel writes. They are loaded before the wait for the preceding
   kernel, so that only the row itself is loaded after it. */
typedef struct exl2k_settle_fixed {
    f32 weight[EXL2K_SETTLE_EARLY], bias[EXL2K_SETTLE_EARLY];
    f32 post_weight[EXL2K_SETTLE_EARLY], post_bias[EXL2K_SETTLE_EARLY];
    u32 map[EXL2K_SETTLE_EARLY]; /* of the first order */
} exl2k_settle_fixed;

typedef struct exl2k_settle_norm {
    f32 mean, rho; /* rho: 1 / sqrt(variance + eps) */
} exl2k_settle_norm;

/* ---- runs of V elements ---- */

template <u32 V> EXL2K_FN void exl2k_settle_load(f32 *v, u64 at)
{
    if constexpr (V == 4) {
        uint4 words = exl2k_load4(at);
        v[0] = __uint_as_float(words.x);
        v[1] = __uint_as_float(words.y);
        v[2] = __uint_as_float(words.z);
        v[3] = __uint_as_float(words.w);
    } else {
        v[0] = exl2k_load_f32(at);
    }
}

template <u32 V> EXL2K_FN void exl2k_settle_store(u64 at, const f32 *v)
{
    if constexpr (V == 4) {
        exl2k_store4(at, make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                                    __float_as_uint(v[3])));
    } else {
        exl2k_store_f32(at, v[0]);
    }
}

/* Elements n to n + V - 1 of a table of f32; 0 without a table. */
template <u32 V> EXL2K_FN void exl2k_settle_table(f32 *v, u64 table, u32 n)
{
#pragma unroll
    for (u32 j = 0; j < V; j++) {
        v[j] = 0.0f;
    }
    if (table) {
        exl2k_settle_load<V>(v, table + n * 4);
    }
}

/* The places of elements n to n + V - 1; without a map their own. */
template <u32 V> EXL2K_FN void exl2k_settle_places(u32 *place, u64 map, u32 n)
{
#pragma unroll
    for (u32 j = 0; j < V; j++) {
        place[j] = n + j;
    }
    if (V == 4 && map) {
        u32 low = exl2k_load(map + n * 2), high = exl2k_load(map + n * 2 + 4);
        place[0] = low & 0xFFFFu;
        place[1 % V] = low >> 16;
        place[2 % V] = high & 0xFFFFu;
        place[3 % V] = high >> 16;
    } else if (map) {
        place[0] = exl2k_load_u16(map + n * 2);
    }
}

/* Calls f(n, i, values) for each of the thread's runs of V elements: n is the first one's place in the row, i its place
   in `held`, or EXL2K_SETTLE_HELD where the values were read from memory. */
template <u32 V, typename F> EXL2K_FN void exl2k_settle_each(exl2k_settle_row &row, u32 hidden, F f)
{
#pragma unroll
    for (u32 i = 0; i < EXL2K_SETTLE_HELD; i += V) {
        u32 n = i * blockDim.x + threadIdx.x * V;
        if (n < hidden) {
            f(n, i, &row.held[i]);
        }
    }
#pragma unroll 1
    for (u32 n = EXL2K_SETTLE_HELD * blockDim.x + threadIdx.x * V; n < hidden; n += blockDim.x * V) {
        f32 v[V];
        exl2k_settle_load<V>(v, row.at + n * 4);
        f(n, EXL2K_SETTLE_HELD, v);
    }
}

template <u32 V> EXL2K_FN void exl2k_settle_hold(exl2k_settle_row &row, u64 at, u32 hidden)
{
    row.at = at;
#pragma unroll
    for (u32 i = 0; i < EXL2K_SETTLE_HELD; i += V) {
        u32 n = i * blockDim.x + threadIdx.x * V;
        if (n < hidden) {
            exl2k_settle_load<V>(&row.held[i], at + n * 4);
        }
    }
}

template <u32 V> EXL2K_FN void exl2k_settle_load_fixed(exl2k_settle_fixed &fixed, const exl2k_settle_args &a)
{
#pragma unroll
    for (u32 i = 0; i < EXL2K_SETTLE_EARLY; i += V) {
        u32 n = i * blockDim.x + threadIdx.x * V;
        if (n < a.hidden) {
            exl2k_settle_table<V>(&fixed.post_weight[i], a.post_weight, n);
            exl2k_settle_table<V>(&fixed.post_bias[i], a.post_bias, n);
            exl2k_settle_table<V>(&fixed.weight[i], a.weight, n);
            exl2k_settle_table<V>(&fixed.bias[i], a.bias, n);
            exl2k_settle_places<V>(&fixed.map[i], a.map[0], n);
        }
    }
}

/* ---- norms ---- */

/* Sum over the CTA in a fixed order; every thread gets it. partial: [32], other ones than those of the preceding sum,
   so that one barrier is enough. */
EXL2K_FN f32 exl2k_settle_sum(f32 value, f32 *partial)
{
    u32 lane = threadIdx.x % EXL2K_WARP;
    value = exl2k_warp_sum(value);
    if (lane == 0) {
        partial[threadIdx.x / EXL2K_WARP] = value;
    }
    __syncthreads();
    return exl2k_warp_sum(lane < blockDim.x / EXL2K_WARP ? partial[lane] : 0.0f);
}

/* Mean and deviation of a row. The mean comes first, from differences to the first element, and the variance from
   differences to the mean: a mean that is large against the deviation would cost the bits of both. partial: [2][32]. */
template <u32 V>
EXL2K_FN exl2k_settle_norm exl2k_settle_norm_of(const exl2k_settle_args &a, exl2k_settle_row &row, f32 first,
                                                f32 *partial)
{
    f32 square = 0.0f, mean = 0.0f, inverse = 1.0f / (f32)a.hidden;
    if (a.layer_norm) {
        f32 sum = 0.0f;
        exl2k_settle_each<V>(row, a.hidden, [&](u32, u32, const f32 *v) {
#pragma unroll
            for (u32 j = 0; j < V; j++) {
                sum += v[j] - first;
            }
        });
        mean = fmaf(exl2k_settle_sum(sum, partial), inverse, first);
    }
    exl2k_settle_each<V>(row, a.hidden, [&](u32, u32, const f32 *v) {
#pragma unroll
        for (u32 j = 0; j < V; j++) {
            square = fmaf(v[j] - mean, v[j] - mean, square);
        }
    });
    return exl2k_settle_norm{ mean, rsqrtf(fmaf(exl2k_settle_sum(square, partial + EXL2K_WARP), inverse, a.eps)) };
}

EXL2K_FN f32 exl2k_settle_value(exl2k_settle_norm norm, f32 weight, f32 bias, f32 v)
{
    return fmaf((v - norm.mean) * norm.rho, weight, bias);
}

/* residual += scale * norm(branch). */
template <u32 V>
EXL2K_FN void exl2k_settle_add(const exl2k_settle_args &a, const exl2k_settle_fixed &fixed, exl2k_settle_row &residual,
                               const exl2k_settle_row &branch, exl2k_settle_norm norm)
{
    exl2k_settle_each<V>(residual, a.hidden, [&](u32 n, u32 i, f32 *r) {
        f32 o[V], weight[V], bias[V];
        if (i < EXL2K_SETTLE_HELD) {
#pragma unroll
            for (u32 j = 0; j < V; j++) {
                o[j] = branch.held[i + j];
            }
        } else {
            exl2k_settle_load<V>(o, branch.at + n * 4);
        }
        if (i >= EXL2K_SETTLE_EARLY) {
            exl2k_settle_table<V>(weight, a.post_weight, n);
            exl2k_settle_table<V>(bias, a.post_bias, n);
        }
#pragma unroll
        for (u32 j = 0; j < V; j++) {
            bool early = i < EXL2K_SETTLE_EARLY;
            f32 y = exl2k_settle_value(norm, early ? fixed.post_weight[i % EXL2K_SETTLE_EARLY + j] : weight[j],
                                       early ? fixed.post_bias[i % EXL2K_SETTLE_EARLY + j] : bias[j], o[j]);
            r[j] = fmaf(a.scale, y, r[j]);
        }
        exl2k_settle_store<V>(residual.at + n * 4, r);
    });
}

/* residual += added. */
template <u32 V>
EXL2K_FN void exl2k_settle_add_row(const exl2k_settle_args &a, exl2k_settle_row &residual, u64 added)
{
    exl2k_settle_each<V>(residual, a.hidden, [&](u32 n, u32, f32 *r) {
        f32 more[V];
        exl2k_settle_load<V>(more, added + n * 4);
#pragma unroll
        for (u32 j = 0; j < V; j++) {
            r[j] += more[j];
        }
        exl2k_settle_store<V>(residual.at + n * 4, r);
    });
}

/* ---- results ---- */

/* Prefetches a table of `bytes` bytes into L2, which no kernel writes. */
EXL2K_FN void exl2k_settle_prefetch(u64 table, u32 bytes)
{
    for (u32 at = threadIdx.x * 128; table && at < bytes; at += blockDim.x * 128) {
        exl2k_prefetch(table + at);
    }
}

/* Writes the normalised residual to the row, or the tiles, at `to`, in the order of the map. The row goes through
   shared memory: the permutation scatters there, so that global memory is accessed in whole lines. */
template <u32 V>
EXL2K_FN void exl2k_settle_write(const exl2k_settle_args &a, const exl2k_settle_fixed &fixed, u32 order, u64 to,
                                 exl2k_settle_row &residual, exl2k_settle_norm norm, u16 *staged)
{
    u64 map = order == 0 ? a.map[0] : a.map[1];
    bool stage = a.hidden <= EXL2K_SETTLE_STAGED;
    exl2k_settle_each<V>(residual, a.hidden, [&](u32 n, u32 i, const f32 *v) {
        f32 weight[V], bias[V];
        u32 place[V];
        bool early = i < EXL2K_SETTLE_EARLY;
        if (!early) {
            exl2k_settle_table<V>(weight, a.weight, n);
            exl2k_settle_table<V>(bias, a.bias, n);
        }
        if (!early || order > 0) {
            exl2k_settle_places<V>(place, map, n);
        }
#pragma unroll
        for (u32 j = 0; j < V; j++) {
            u32 own = i % EXL2K_SETTLE_EARLY + j;
            f32 y = a.weight ? exl2k_settle_value(norm, early ? fixed.weight[own] : weight[j],
                                                  early ? fixed.bias[own] : bias[j], v[j]) : v[j];
            u32 index = early && order == 0 ? fixed.map[own] : place[j];
            u32 half = exl2k_f32_to_f16(exl2k_clamp_f16(y));
            if (stage) {
                staged[index] = (u16)half;
            } else {
                exl2k_store_u16(to + index * 2, half);
            }
        }
    });
    if (!stage) {
        return;
    }
    /* Store the staged row: eight elements at a time, or two. */
    __syncthreads();
    if constexpr (V == 4) {
        for (u32 n = 8 * threadIdx.x; n < a.hidden; n += 8 * blockDim.x) {
            if (a.tile_rows) {
                exl2k_wg_store_chunk(to, n / 8, exl2k_shared(staged), blockIdx.x, a.tile_rows);
            } else {
                exl2k_store4(to + n * 2, *(const uint4 *)&staged[n]);
            }
        }
    } else {
        for (u32 n = 2 * threadIdx.x; n + 1 < a.hidden; n += 2 * blockDim.x) {
            exl2k_store(to + n * 2, staged[n] | (u32)staged[n + 1] << 16);
        }
        if ((a.hidden & 1) && threadIdx.x == 0) {
            exl2k_store_u16(to + (a.hidden - 1) * 2, staged[a.hidden - 1]);
        }
    }
    __syncthreads(); /* before the other order is staged */
}

/* ---- the body of a kernel ---- */

/* Calls write(fixed, residual, norm) for the row when it is to be normalised and written. */
template <u32 V, bool STEER, typename F>
EXL2K_FN void exl2k_settle_settle(const exl2k_settle_args &a, f32 *partial, F write)
{
    u32 row = blockIdx.x;
    exl2k_settle_fixed fixed;
    exl2k_settle_row residual, branch;
    exl2k_settle_load_fixed<V>(fixed, a);
    exl2k_settle_prefetch(a.map[1], a.hidden * 2);
    if (!a.late) {
        exl2k_dependency_release();
    }
    exl2k_dependency_wait();
    /* Load the row before the number of rows is known: there is memory for every row of the launch. */
    u32 rows = exl2k_load(a.rows_at);
    if (a.samplings && row >= rows) {
        return;
    }
    u64 source = a.samplings ? exl2k_load(a.samplings + row * sizeof(exl2k_sampling)) : row;
    u64 at = a.residual + source * a.hidden * 4, branch_at = a.branch + source * a.hidden * 4;
    f32 first = exl2k_load_f32(at); /* all threads read it before the sums below, and it is written after them */
    f32 branch_first = a.branch ? exl2k_load_f32(branch_at) : 0.0f;
    if (a.branch) {
        exl2k_settle_hold<V>(branch, branch_at, a.hidden);
    }
    exl2k_settle_hold<V>(residual, at, a.hidden);
    /* By the next launch the weights that the products prefetch would delay these tables. */
    if (row == 0) {
#pragma unroll
        for (u32 i = 0; i < EXL2K_SETTLE_SOON; i++) {
            exl2k_settle_prefetch(a.soon[i], a.hidden * 4);
        }
        exl2k_settle_prefetch(a.soon_map, a.hidden * 2);
    }
    if (row >= rows) {
        return;
    }
    if (a.late) {
        exl2k_dependency_release();
    }
    if (a.branch) {
        exl2k_settle_norm norm = exl2k_settle_norm_of<V>(a, branch, branch_first, partial);
        exl2k_settle_add<V>(a, fixed, residual, branch, norm);
    }
    if (STEER && a.added) {
        u64 added = a.added + (u64)row * a.hidden * 4;
        first = a.branch ? first : first + exl2k_load_f32(added); /* as if the row had been read with it */
        __syncthreads(); /* all threads have read what was element 0 */
        exl2k_settle_add_row<V>(a, residual, added);
    }
    /* Normalise the residual. */
    exl2k_settle_norm norm = { 0.0f, 1.0f };
    if (a.weight && a.out[0]) {
        norm = exl2k_settle_norm_of<V>(a, residual, first, a.layer_norm || !a.branch ? partial : partial + EXL2K_WARP);
    }
    write(fixed, residual, norm);
}

/* Writes the normalised row in both orders. */
template <u32 V, bool STEER>
EXL2K_FN void exl2k_settle_orders(const exl2k_settle_args &a, u16 *staged, f32 *partial)
{
    exl2k_settle_settle<V, STEER>(a, partial, [&](const exl2k_settle_fixed &fixed, exl2k_settle_row &residual,
                                                  exl2k_settle_norm norm) {
#pragma unroll 1
        for (u32 k = 0; k < 2; k++) {
            u64 to = k == 0 ? a.out[0] : a.out[1];
            if (to) {
                to += a.tile_rows ? 0 : (u64)blockIdx.x * a.out_pitch * 2;
                exl2k_settle_write<V>(a, fixed, k, to, residual, norm, staged);
            }
        }
    });
}

#endif

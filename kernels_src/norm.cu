/* norm.cu: RMSNorm with its output in the packed order of a product, and the table of RoPE.
   takes: norm_args.h.
   gives: exl2k_norm, exl2k_rope_table. */
#include "base.cuh"
#include "norm_args.h"
#include "wg_tiles.cuh"

/* Sum over the CTA in a fixed order; every thread gets it. */
EXL2K_FN f32 exl2k_norm_sum(f32 value, f32 *partial)
{
    f32 sum = 0.0f;
    value = exl2k_warp_sum(value);
    if (threadIdx.x % 32 == 0) {
        partial[threadIdx.x / 32] = value;
    }
    __syncthreads();
    for (u32 i = 0; i < EXL2K_NORM_THREADS / 32; i++) {
        sum += partial[i];
    }
    return sum;
}

/* Elements of a thread whose loads are in flight. More would spill registers on some architectures. */
#define EXL2K_NORM_BATCH (__CUDA_ARCH__ == 900 ? 16u : 8u)
#define EXL2K_NORM_CHUNK (EXL2K_NORM_BATCH * EXL2K_NORM_THREADS)

/* Loads the thread's elements of a chunk that begins at element `first`: every EXL2K_NORM_THREADS-th one. Elements
   after the last are 0. */
EXL2K_FN void exl2k_norm_load(const exl2k_norm_args &a, u64 from, u32 first, f32 values[EXL2K_NORM_BATCH])
{
#pragma unroll
    for (u32 k = 0; k < EXL2K_NORM_BATCH; k++) {
        u32 n = first + k * EXL2K_NORM_THREADS + threadIdx.x;
        values[k] = n < a.hidden ? exl2k_load_f32(from + n * 4) : 0.0f;
    }
}

/* Loads weights and permuted indices of the same elements. */
EXL2K_FN void exl2k_norm_constants(const exl2k_norm_args &a, u32 first, f32 weights[EXL2K_NORM_BATCH],
                                   u32 indices[EXL2K_NORM_BATCH])
{
#pragma unroll
    for (u32 k = 0; k < EXL2K_NORM_BATCH; k++) {
        u32 n = exl2k_min(first + k * EXL2K_NORM_THREADS + threadIdx.x, a.hidden - 1);
        weights[k] = __uint_as_float(exl2k_load_constant(a.weight + n * 4));
        indices[k] = n;
    }
#pragma unroll
    for (u32 k = 0; k < EXL2K_NORM_BATCH && a.map; k++) {
        indices[k] = exl2k_load_u16(a.map + indices[k] * 2);
    }
}

/* Normalises one row. The row goes through shared memory: the permutation scatters there, so that global memory is
   accessed in whole lines. */
extern "C" __global__ void __launch_bounds__(EXL2K_NORM_THREADS) exl2k_norm(exl2k_norm_args a)
{
    __shared__ __align__(16) u16 staged[EXL2K_NORM_STAGED];
    __shared__ f32 partial[EXL2K_NORM_THREADS / 32];
    f32 values[EXL2K_NORM_BATCH], weights[EXL2K_NORM_BATCH];
    u32 row = blockIdx.x, indices[EXL2K_NORM_BATCH];
    bool once = a.hidden <= EXL2K_NORM_CHUNK && a.hidden <= EXL2K_NORM_STAGED;
    /* While the kernel before ends. The number of rows is older than the pass's first kernel. */
    u32 rows = exl2k_load(a.rows_at);
    if (once) {
        exl2k_norm_constants(a, 0, weights, indices);
    }
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (row >= rows) {
        return;
    }
    u64 source = a.samplings ? exl2k_load(a.samplings + row * sizeof(exl2k_sampling)) : row;
    u64 from = a.residual + source * a.residual_pitch * 4, to = a.out + (a.tile_rows ? 0 : (u64)row * a.out_pitch * 2);
    bool stage = a.hidden <= EXL2K_NORM_STAGED;
    f32 square = 0.0f;
    /* The sum of squares gives the scale of the row. */
    for (u32 first = 0; first < a.hidden; first += EXL2K_NORM_CHUNK) {
        exl2k_norm_load(a, from, first, values);
#pragma unroll
        for (u32 k = 0; k < EXL2K_NORM_BATCH; k++) {
            square = fmaf(values[k], values[k], square);
        }
    }
    f32 mean = exl2k_norm_sum(square, partial) / (f32)a.hidden, rho = 1.0f / sqrtf(mean + a.eps);
    /* Scale each element and put it at its permuted index. A row of one chunk is still in registers. */
    for (u32 first = 0; first < a.hidden && stage; first += EXL2K_NORM_CHUNK) {
        if (!once) {
            exl2k_norm_constants(a, first, weights, indices);
        }
        if (a.hidden > EXL2K_NORM_CHUNK) {
            exl2k_norm_load(a, from, first, values);
        }
#pragma unroll
        for (u32 k = 0; k < EXL2K_NORM_BATCH; k++) {
            if (first + k * EXL2K_NORM_THREADS + threadIdx.x < a.hidden) {
                staged[indices[k]] = (u16)exl2k_f32_to_f16(exl2k_clamp_f16(values[k] * rho * weights[k]));
            }
        }
    }
#pragma unroll 1
    for (u32 n = threadIdx.x; n < a.hidden && !stage; n += EXL2K_NORM_THREADS) {
        f32 weight = __uint_as_float(exl2k_load_constant(a.weight + n * 4));
        u32 index = a.map ? exl2k_load_u16(a.map + n * 2) : n;
        u32 half = exl2k_f32_to_f16(exl2k_clamp_f16(exl2k_load_f32(from + n * 4) * rho * weight));
        exl2k_store_u16(to + (a.tile_rows ? exl2k_wg_offset(index, row, a.tile_rows) : index * 2), half);
    }
    __syncthreads();
    /* Store the staged row: by 16 bytes if there are only whole tiles (or lines), else one element at a time. */
    bool whole = a.tile_rows ? a.hidden % 32 == 0 : (a.hidden | a.out_pitch) % 8 == 0;
    for (u32 n = 8 * threadIdx.x; n < a.hidden && stage && whole; n += 8 * EXL2K_NORM_THREADS) {
        if (a.tile_rows) {
            exl2k_wg_store_chunk(to, n / 8, exl2k_shared(staged), row, a.tile_rows);
        } else {
            exl2k_store4(to + n * 2, *(const uint4 *)&staged[n]);
        }
    }
    for (u32 n = threadIdx.x; n < a.hidden && stage && !whole; n += EXL2K_NORM_THREADS) {
        exl2k_store_u16(to + (a.tile_rows ? exl2k_wg_offset(n, row, a.tile_rows) : n * 2), staged[n]);
    }
}

/* Makes the table of cosines and sines. The angle is counted in revolutions in double precision, and whole
   revolutions are dropped. The remaining fraction has an error of at most 1e-10 at a million positions. */
extern "C" __global__ void __launch_bounds__(256) exl2k_rope_table(exl2k_rope_args a)
{
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (i >= (u64)a.positions * a.half) {
        return;
    }
    /* Find the position and the pair of the thread. Pairs that are not rotated have an angle of 0. */
    u32 position = (u32)(i / a.half) * a.step, pair = (u32)(i % a.half);
    if (pair >= a.rotated) {
        exl2k_store_f32(a.table + 8 * i, 1.0f);
        exl2k_store_f32(a.table + 8 * i + 4, 0.0f);
        return;
    }
    double frequency = __longlong_as_double((long long)(exl2k_load(a.frequency + pair * 8ull)
                                                        | (u64)exl2k_load(a.frequency + pair * 8ull + 4) << 32));
    /* The fraction of a revolution gives cosine and sine. */
    double revolutions = (double)position * (frequency * 0.15915494309189533577), sine, cosine; /* 1 / (2 pi) */
    sincospi(2.0 * (revolutions - rint(revolutions)), &sine, &cosine);
    exl2k_store_f32(a.table + 8 * i, (f32)(a.magnitude * cosine));
    exl2k_store_f32(a.table + 8 * i + 4, (f32)(a.magnitude * sine));
}

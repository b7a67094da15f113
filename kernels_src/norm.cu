/* norm.cu: RMSNorm into the packed order of a product, and the table of RoPE.
   takes: norm_args.h.
   gives: exl2k_norm, exl2k_rope_table.
   owns:  nothing.
   next:  copy_args.h */
#include "base.cuh"
#include "norm_args.h"

/* Sum over the CTA, in one order; for all threads. */
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

/* Rows go through shared memory, so that the permutation scatters there and global memory sees whole lines. */
extern "C" __global__ void __launch_bounds__(EXL2K_NORM_THREADS) exl2k_norm(exl2k_norm_args a)
{
    __shared__ u16 staged[EXL2K_NORM_STAGED];
    __shared__ f32 partial[EXL2K_NORM_THREADS / 32];
    u32 row = blockIdx.x;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (row >= exl2k_load(a.rows_at)) {
        return;
    }
    u64 source = a.samplings ? exl2k_load(a.samplings + row * sizeof(exl2k_sampling)) : row;
    u64 from = a.residual + source * a.residual_pitch * 4, to = a.out + (u64)row * a.out_pitch * 2;
    bool stage = a.hidden <= EXL2K_NORM_STAGED;
    f32 square = 0.0f;
    for (u32 n = threadIdx.x; n < a.hidden; n += EXL2K_NORM_THREADS) {
        f32 r = exl2k_load_f32(from + n * 4);
        square = fmaf(r, r, square);
    }
    f32 mean = exl2k_norm_sum(square, partial) / (f32)a.hidden, rho = 1.0f / sqrtf(mean + a.eps);
    for (u32 n = threadIdx.x; n < a.hidden; n += EXL2K_NORM_THREADS) {
        f32 weight = __uint_as_float(exl2k_load_constant(a.weight + n * 4));
        u32 place = a.map ? exl2k_load_u16(a.map + n * 2) : n;
        u32 half = exl2k_f32_to_f16(exl2k_clamp_f16(exl2k_load_f32(from + n * 4) * rho * weight));
        if (stage) {
            staged[place] = (u16)half;
        } else {
            exl2k_store_u16(to + place * 2, half);
        }
    }
    if (stage) {
        __syncthreads();
        for (u32 n = 2 * threadIdx.x; n + 1 < a.hidden; n += 2 * EXL2K_NORM_THREADS) {
            exl2k_store(to + n * 2, staged[n] | (u32)staged[n + 1] << 16);
        }
        if ((a.hidden & 1) && threadIdx.x == 0) {
            exl2k_store_u16(to + (a.hidden - 1) * 2, staged[a.hidden - 1]);
        }
    }
}

/* Turns are counted in double, and the whole ones dropped: what is left is good to 1e-10 at a million positions. */
extern "C" __global__ void __launch_bounds__(256) exl2k_rope_table(exl2k_rope_args a)
{
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (i >= (u64)a.positions * a.half) {
        return;
    }
    u32 position = (u32)(i / a.half), pair = (u32)(i % a.half);
    double frequency = __longlong_as_double((long long)(exl2k_load(a.frequency + pair * 8ull)
                                                        | (u64)exl2k_load(a.frequency + pair * 8ull + 4) << 32));
    double turns = (double)position * (frequency * 0.15915494309189533577), sine, cosine; /* 1 / (2 pi) */
    sincospi(2.0 * (turns - rint(turns)), &sine, &cosine);
    exl2k_store_f32(a.table + 8 * i, (f32)cosine);
    exl2k_store_f32(a.table + 8 * i + 4, (f32)sine);
}

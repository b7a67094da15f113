/* gather.cu: permutes rows for one part of a matrix, and combines gate and up, for matrices whose parts are multiplied
   separately.
   takes: gather_args.h.
   gives: exl2k_gather, exl2k_act_mul. */
#include "base.cuh"
#include "gather_args.h"

/* Permutes one row. */
extern "C" __global__ void __launch_bounds__(EXL2K_GATHER_THREADS) exl2k_gather(exl2k_gather_args a)
{
    u64 row = (u64)blockIdx.x * a.pitch * 2;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (a.rows_at && blockIdx.x >= exl2k_load(a.rows_at)) {
        return;
    }
    for (u32 n = threadIdx.x; n < a.count; n += EXL2K_GATHER_THREADS) {
        exl2k_store_u16(a.to + row + exl2k_load_u16(a.map + n * 2) * 2, exl2k_load_u16(a.from + row + n * 2));
    }
    for (u32 n = a.count + threadIdx.x; n < a.pitch; n += EXL2K_GATHER_THREADS) {
        exl2k_store_u16(a.to + row + n * 2, 0);
    }
}

/* Computes act(gate) * up of one row. */
extern "C" __global__ void __launch_bounds__(EXL2K_GATHER_THREADS) exl2k_act_mul(exl2k_act_mul_args a)
{
    u64 from = a.from + (u64)blockIdx.x * a.count * 8, to = a.to + (u64)blockIdx.x * a.pitch * 2;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (a.rows_at && blockIdx.x >= exl2k_load(a.rows_at)) {
        return;
    }
    for (u32 n = threadIdx.x; n < a.count; n += EXL2K_GATHER_THREADS) {
        f32 gate = exl2k_load_f32(from + n * 4), up = exl2k_load_f32(from + ((u64)a.count + n) * 4);
        f32 h = exl2k_gated(a.act, a.act_limit, gate, up);
        exl2k_store_u16(to + n * 2, exl2k_f32_to_f16(exl2k_clamp_f16(h)));
    }
}

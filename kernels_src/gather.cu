/* gather.cu: rows into the order of one part of a matrix, and gate with up, where parts are multiplied one by one.
   takes: gather_args.h.
   gives: exl2k_gather, exl2k_join.
   owns:  nothing.
   next:  copy_args.h */
#include "base.cuh"
#include "gather_args.h"

extern "C" __global__ void __launch_bounds__(EXL2K_GATHER_THREADS) exl2k_gather(exl2k_gather_args a)
{
    u64 row = (u64)blockIdx.x * a.pitch * 2;
    exl2k_dependency_wait();
    exl2k_dependency_release();
    if (a.rows_at && blockIdx.x >= exl2k_load(a.rows_at)) {
        return;
    }
    for (u32 n = threadIdx.x; n < a.count; n += EXL2K_GATHER_THREADS) {
        exl2k_store_u16(a.to + row + exl2k_load_u16(a.map + n * 2) * 2, exl2k_load_u16(a.from + row + n * 2));
    }
}

/* As the products do it that have gate and up in one warp. */
EXL2K_FN f32 exl2k_gated(f32 gate, f32 up) { return gate / (1.0f + __expf(-gate)) * up; }

extern "C" __global__ void __launch_bounds__(EXL2K_GATHER_THREADS) exl2k_join(exl2k_join_args a)
{
    u64 from = a.from + (u64)blockIdx.x * a.count * 8, to = a.to + (u64)blockIdx.x * a.pitch * 2;
    exl2k_dependency_wait();
    exl2k_dependency_release();
    if (a.rows_at && blockIdx.x >= exl2k_load(a.rows_at)) {
        return;
    }
    for (u32 n = threadIdx.x; n < a.count; n += EXL2K_GATHER_THREADS) {
        f32 h = exl2k_gated(exl2k_load_f32(from + n * 4), exl2k_load_f32(from + ((u64)a.count + n) * 4));
        u32 place = a.map ? exl2k_load_u16(a.map + n * 2) : n;
        exl2k_store_u16(to + place * 2, exl2k_f32_to_f16(exl2k_clamp_f16(h)));
    }
}

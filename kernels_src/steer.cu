/* steer.cu: control vectors of the rows of a pass.
   takes: steer_args.h.
   gives: exl2k_steer_fill, exl2k_steer_add.

   Each product is rounded before it is added, as on the CPU. */
#include "base.cuh"
#include "steer_args.h"

/* Address of the row's set; 0: it has none. */
EXL2K_FN u64 exl2k_steer_set_of(const exl2k_steer_args &a, u32 row)
{
    u32 set = exl2k_load_u16(a.row_sets + row * 2);
    return set ? a.sets + (u64)(set - 1) * (u32)sizeof(exl2k_steer_set) : 0;
}

/* Adds element n of the products of a set, in layer `layer`, to `sum`. */
EXL2K_FN f32 exl2k_steer_sum(const exl2k_steer_args &a, u64 set, u32 layer, u32 n, f32 sum)
{
    u32 count = exl2k_load(set), slots = exl2k_load(set + 4);
#pragma unroll
    for (u32 i = 0; i < EXL2K_STEER_USES; i++) {
        u32 slot = slots >> 8 * i & 0xFFu;
        if (i < count) {
            f32 vector = exl2k_load_f32(a.vectors + (((u64)slot * a.layers + layer) * a.hidden + n) * 4);
            sum = __fadd_rn(sum, __fmul_rn(exl2k_load_f32(set + 8 + i * 4), vector));
        }
    }
    return sum;
}

extern "C" __global__ void __launch_bounds__(EXL2K_STEER_THREADS) exl2k_steer_fill(exl2k_steer_args a)
{
    u32 n = blockIdx.x * EXL2K_STEER_THREADS + threadIdx.x, row = blockIdx.y, layer = blockIdx.z;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (n >= a.hidden || row >= exl2k_load(a.rows_at)) {
        return;
    }
    u64 set = exl2k_steer_set_of(a, row);
    f32 sum = set ? exl2k_steer_sum(a, set, layer, n, -0.0f) : -0.0f;
    exl2k_store_f32(a.added + (((u64)layer * EXL2K_STEER_ROWS + row) * a.hidden + n) * 4, sum);
}

extern "C" __global__ void __launch_bounds__(EXL2K_STEER_THREADS) exl2k_steer_add(exl2k_steer_args a)
{
    u32 n = blockIdx.x * EXL2K_STEER_THREADS + threadIdx.x, row = blockIdx.y;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u64 set = n < a.hidden && row < exl2k_load(a.rows_at) ? exl2k_steer_set_of(a, row) : 0;
    if (set) {
        u64 at = a.residual + ((u64)row * a.hidden + n) * 4;
        exl2k_store_f32(at, exl2k_steer_sum(a, set, a.layer, n, exl2k_load_f32(at)));
    }
}

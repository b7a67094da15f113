/* settle.cu: adds a block's normalised result to the residual, and normalises the residual for the next products.
   takes: settle.cuh.
   gives: exl2k_settle, exl2k_settle_steer. */
#include "settle.cuh"

/* Settles one row. */
extern "C" __global__ void __launch_bounds__(EXL2K_SETTLE_THREADS, 1) exl2k_settle(exl2k_settle_args a)
{
    __shared__ alignas(16) u16 staged[EXL2K_SETTLE_STAGED];
    __shared__ f32 partial[3 * EXL2K_WARP];
    if (exl2k_settle_run(a.hidden) == 4) {
        exl2k_settle_orders<4, false>(a, staged, partial);
    } else {
        exl2k_settle_orders<1, false>(a, staged, partial);
    }
}

/* The same with control vectors. */
extern "C" __global__ void __launch_bounds__(EXL2K_SETTLE_THREADS, 1) exl2k_settle_steer(exl2k_settle_args a)
{
    __shared__ alignas(16) u16 staged[EXL2K_SETTLE_STAGED];
    __shared__ f32 partial[3 * EXL2K_WARP];
    if (exl2k_settle_run(a.hidden) == 4) {
        exl2k_settle_orders<4, true>(a, staged, partial);
    } else {
        exl2k_settle_orders<1, true>(a, staged, partial);
    }
}

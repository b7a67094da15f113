/* gemv16_steer.cu: the product of gemv16.cu, with control vectors (gemv_args.h).
   takes: gemv.cuh.
   gives: exl2k_gemv16_steer. */
#define EXL2K_STEER 1
#include "gemv.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_GEMV_THREADS, 1)
exl2k_gemv16_steer(const __grid_constant__ exl2k_gemv_args a)
{
    exl2k_gemv<16>(a);
}

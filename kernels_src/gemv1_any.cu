/* gemv1_any.cu: the product of one row with one matrix, for any family (gemv_args.h).
   takes: gemv.cuh.
   gives: exl2k_gemv1_any. */
#define EXL2K_ANY 1
#include "gemv.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_GEMV_THREADS, 1)
exl2k_gemv1_any(const __grid_constant__ exl2k_gemv_args a)
{
    exl2k_gemv<1>(a);
}

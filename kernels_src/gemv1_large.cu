/* gemv1_large.cu: the product of one row with one large matrix, for Llama (gemv_args.h).
   takes: gemv.cuh.
   gives: exl2k_gemv1_large. */
#define EXL2K_LARGE 1
#include "gemv.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_GEMV_THREADS, 1)
exl2k_gemv1_large(const __grid_constant__ exl2k_gemv_args a)
{
    exl2k_gemv<1>(a);
}

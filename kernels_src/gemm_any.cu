/* gemm_any.cu: the product of 9 and more rows with one matrix, for any family (gemm_args.h).
   takes: gemm.cuh.
   gives: exl2k_gemm_any. */
#define EXL2K_ANY 1
#include "gemm.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_GEMM_THREADS, 1)
exl2k_gemm_any(const __grid_constant__ exl2k_gemm_args a)
{
    exl2k_products(a);
}

/* gemm_affine.cu: the product of 9 and more rows with one matrix, for any family; the matrix is affine (gemm_args.h).
   takes: gemm.cuh.
   gives: exl2k_gemm_affine. */
#define EXL2K_ANY 1
#define EXL2K_AFFINE 1
#define EXL2K_WIDTHS_MASK 39 /* 2, 3, 4 and 8 bits */
#include "gemm.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_GEMM_THREADS, 1)
exl2k_gemm_affine(const __grid_constant__ exl2k_gemm_args a)
{
    exl2k_products(a);
}

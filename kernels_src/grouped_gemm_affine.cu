/* grouped_gemm_affine.cu: the products of many rows with experts whose matrices are affine, in tiles of up to 128 rows.
   takes: grouped_gemm.cuh.
   gives: exl2k_grouped_gemm_affine. */
#define EXL2K_AFFINE 1
#define EXL2K_WIDTHS_MASK 39 /* 2, 3, 4 and 8 bits */
#define EXL2K_GROUPED_BLOCKS 4
#include "grouped_gemm.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_GEMM_THREADS, 1)
exl2k_grouped_gemm_affine(const __grid_constant__ exl2k_grouped_gemm_args a)
{
    exl2k_grouped_products(a);
}

/* gemm_wg32_affine.cu: gemm_wg32.cu for affine matrices.
   takes: gemm_wg.cuh.
   gives: exl2k_gemm_wg32_affine. */
#define EXL2K_AFFINE 1
#define EXL2K_WIDTHS_MASK 39 /* 2, 3, 4 and 8 bits */
#include "gemm_wg.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_WG_THREADS, 2)
exl2k_gemm_wg32_affine(const __grid_constant__ exl2k_gemm_args a)
{
    exl2k_wg_products<32>(a);
}

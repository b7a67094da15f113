/* gemm_wg64.cu: the product of many rows with one matrix by wgmma, for Llama on sm_90a, in tiles of 64 rows.
   takes: gemm_wg.cuh.
   gives: exl2k_gemm_wg64. */
#include "gemm_wg.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_WG_THREADS, 2)
exl2k_gemm_wg64(const __grid_constant__ exl2k_gemm_args a)
{
    exl2k_wg_products<64>(a);
}

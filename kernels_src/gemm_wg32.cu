/* gemm_wg32.cu: the product of up to 32 rows with one matrix by wgmma, for Llama on sm_90a.
   takes: gemm_wg.cuh.
   gives: exl2k_gemm_wg32. */
#include "gemm_wg.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_WG_THREADS, 2)
exl2k_gemm_wg32(const __grid_constant__ exl2k_gemm_args a)
{
    exl2k_wg_products<32>(a);
}

/* gemm_wg64_any.cu: gemm_wg64.cu for any family.
   takes: gemm_wg.cuh.
   gives: exl2k_gemm_wg64_any. */
#define EXL2K_ANY 1
#include "gemm_wg.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_WG_THREADS, 2)
exl2k_gemm_wg64_any(const __grid_constant__ exl2k_gemm_args a)
{
    exl2k_wg_products<64>(a);
}

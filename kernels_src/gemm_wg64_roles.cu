/* gemm_wg64_roles.cu: the product of up to 64 rows of a prompt by wgmma, for Llama on sm_90a: some warps decode.
   takes: gemm_wg_roles.cuh.
   gives: exl2k_gemm_wg64_roles. */
#include "gemm_wg_roles.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_WG_ROLE_THREADS, 1)
exl2k_gemm_wg64_roles(const __grid_constant__ exl2k_gemm_args a)
{
    exl2k_wg_role_products<64>(a);
}

/* gemm_wg256_any_lora.cu: gemm_wg256_any.cu with what adapters add.
   takes: gemm_wg_lora.cuh.
   gives: exl2k_gemm_wg256_any_lora. */
#define EXL2K_ANY 1
#include "gemm_wg_lora.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_WG_THREADS, 1)
exl2k_gemm_wg256_any_lora(const __grid_constant__ exl2k_gemm_lora_args a)
{
    exl2k_wg_lora_products<256>(a);
}

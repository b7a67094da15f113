/* gemm_wg128_affine_lora.cu: gemm_wg128_affine.cu with what adapters add.
   takes: gemm_wg_lora.cuh.
   gives: exl2k_gemm_wg128_affine_lora. */
#define EXL2K_AFFINE 1
#define EXL2K_WIDTHS_MASK 39 /* 2, 3, 4 and 8 bits */
#include "gemm_wg_lora.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_WG_THREADS, 1)
exl2k_gemm_wg128_affine_lora(const __grid_constant__ exl2k_gemm_lora_args a)
{
    exl2k_wg_lora_products<128>(a);
}

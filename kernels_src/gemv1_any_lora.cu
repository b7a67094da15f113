/* gemv1_any_lora.cu: the product of one row with one matrix, for any family, with adapters (gemv_lora.cuh).
   takes: gemv.cuh.
   gives: exl2k_gemv1_any_lora. */
#define EXL2K_ANY 1
#define EXL2K_LORA 1
#include "gemv.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_GEMV_THREADS, 1)
exl2k_gemv1_any_lora(const __grid_constant__ exl2k_lora_gemv_args a)
{
    exl2k_gemv<1>(a);
}

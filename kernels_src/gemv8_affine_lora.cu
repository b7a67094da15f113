/* gemv8_affine_lora.cu: the product of 2 to 8 rows with one affine matrix, for any family, with adapters
   (gemv_lora.cuh).
   takes: gemv.cuh.
   gives: exl2k_gemv8_affine_lora. */
#define EXL2K_ANY 1
#define EXL2K_AFFINE 1
#define EXL2K_WIDTHS_MASK 39 /* 2, 3, 4 and 8 bits */
#define EXL2K_LORA 1
#include "gemv.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_GEMV_THREADS, 1)
exl2k_gemv8_affine_lora(const __grid_constant__ exl2k_lora_gemv_args a)
{
    exl2k_gemv<8>(a);
}

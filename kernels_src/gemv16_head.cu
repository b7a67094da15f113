/* gemv16_head.cu: the product of 9 to 16 rows with a head, for Llama: chunks add to running sums (gemv.cuh).
   takes: gemv.cuh.
   gives: exl2k_gemv16_head. */
#define EXL2K_CHAIN 1
#include "gemv.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_GEMV_THREADS, 1)
exl2k_gemv16_head(const __grid_constant__ exl2k_gemv_args a)
{
    exl2k_gemv<16>(a);
}

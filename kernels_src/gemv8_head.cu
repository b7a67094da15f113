/* gemv8_head.cu: the product of 2 to 8 rows with a head, for large models of Llama's on sm_90a: chunks add to running
   sums (gemv.cuh).
   takes: gemv.cuh.
   gives: exl2k_gemv8_head. */
#define EXL2K_CHAIN 1
#define EXL2K_LARGE 1
#include "gemv.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_GEMV_THREADS, 1)
exl2k_gemv8_head(const __grid_constant__ exl2k_gemv_args a)
{
    exl2k_gemv<8>(a);
}

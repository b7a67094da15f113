/* gemv16.cu: the product of 9 to 16 rows with one matrix, for Llama (gemv_args.h).
   takes: gemv.cuh.
   gives: exl2k_gemv16. */
#include "gemv.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_GEMV_THREADS, 1)
exl2k_gemv16(const __grid_constant__ exl2k_gemv_args a)
{
    exl2k_gemv<16>(a);
}

/* exl3_gemv_mcg.cu: products of 1 to 16 rows with EXL3 matrices of the codebook MCG (exl3_args.h).
   takes: exl3_gemv.cuh.
   gives: exl2k_exl3_gemv8_mcg, exl2k_exl3_gemv16_mcg. */
#include "exl3_gemv.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS, EXL2K_EXL3_CTAS8)
exl2k_exl3_gemv8_mcg(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_gemv<1, EXL2K_EXL3_MCG>(a);
}

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS, 3)
exl2k_exl3_gemv16_mcg(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_gemv<2, EXL2K_EXL3_MCG>(a);
}

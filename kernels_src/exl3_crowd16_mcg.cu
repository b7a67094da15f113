/* exl3_crowd16_mcg.cu: products of 2 to 16 rows with EXL3 matrices of the codebook MCG, on sm_90 (exl3_args.h).
   takes: exl3_crowd.cuh.
   gives: exl2k_exl3_crowd8_mcg, exl2k_exl3_crowd16_mcg. */
#include "exl3_crowd.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS, 3)
exl2k_exl3_crowd8_mcg(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_crowd<1, EXL2K_EXL3_MCG>(a);
}

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS, 3)
exl2k_exl3_crowd16_mcg(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_crowd<2, EXL2K_EXL3_MCG>(a);
}

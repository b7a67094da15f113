/* exl3_crowd16_mul1.cu: products of 2 to 16 rows with EXL3 matrices of the codebook MUL1, on sm_90 (exl3_args.h).
   takes: exl3_crowd.cuh.
   gives: exl2k_exl3_crowd8_mul1, exl2k_exl3_crowd16_mul1. */
#include "exl3_crowd.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS, 3)
exl2k_exl3_crowd8_mul1(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_crowd<1, EXL2K_EXL3_MUL1>(a);
}

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS, 3)
exl2k_exl3_crowd16_mul1(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_crowd<2, EXL2K_EXL3_MUL1>(a);
}

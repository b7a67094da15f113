/* exl3_expert_mul1.cu: products of 1 to 16 rows with experts in EXL3 of the codebook MUL1 (exl3_expert_args.h).
   takes: exl3_expert.cuh.
   gives: exl2k_exl3_expert8_mul1, exl2k_exl3_expert16_mul1. */
#include "exl3_expert.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS, 3)
exl2k_exl3_expert8_mul1(const __grid_constant__ exl2k_exl3_expert_args a)
{
    exl2k_exl3_expert<1, EXL2K_EXL3_MUL1>(a);
}

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS, 3)
exl2k_exl3_expert16_mul1(const __grid_constant__ exl2k_exl3_expert_args a)
{
    exl2k_exl3_expert<2, EXL2K_EXL3_MUL1>(a);
}

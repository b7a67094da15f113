/* exl3_expert_mcg.cu: products of 1 to 16 rows with experts in EXL3 of the codebook MCG (exl3_expert_args.h).
   takes: exl3_expert.cuh.
   gives: exl2k_exl3_expert8_mcg, exl2k_exl3_expert16_mcg. */
#include "exl3_expert.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS, 3)
exl2k_exl3_expert8_mcg(const __grid_constant__ exl2k_exl3_expert_args a)
{
    exl2k_exl3_expert<1, EXL2K_EXL3_MCG>(a);
}

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS, 3)
exl2k_exl3_expert16_mcg(const __grid_constant__ exl2k_exl3_expert_args a)
{
    exl2k_exl3_expert<2, EXL2K_EXL3_MCG>(a);
}

/* exl3_expert_3inst.cu: products of 1 to 16 rows with experts in EXL3 of the codebook 3INST (exl3_expert_args.h).
   takes: exl3_expert.cuh.
   gives: exl2k_exl3_expert8_3inst, exl2k_exl3_expert16_3inst. */
#include "exl3_expert.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS, 3)
exl2k_exl3_expert8_3inst(const __grid_constant__ exl2k_exl3_expert_args a)
{
    exl2k_exl3_expert<1, EXL2K_EXL3_3INST>(a);
}

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS, 3)
exl2k_exl3_expert16_3inst(const __grid_constant__ exl2k_exl3_expert_args a)
{
    exl2k_exl3_expert<2, EXL2K_EXL3_3INST>(a);
}

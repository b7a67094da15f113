/* exl3_crowd_3inst.cu: products of 17 to 64 rows with EXL3 matrices of the codebook 3INST (exl3_args.h).
   takes: exl3_crowd.cuh.
   gives: exl2k_exl3_crowd32_3inst, exl2k_exl3_crowd64_3inst. */
#include "exl3_crowd.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS, 3)
exl2k_exl3_crowd32_3inst(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_crowd<4, EXL2K_EXL3_3INST>(a);
}

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS, 2)
exl2k_exl3_crowd64_3inst(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_crowd<8, EXL2K_EXL3_3INST>(a);
}

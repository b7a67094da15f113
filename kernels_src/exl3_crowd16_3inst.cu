/* exl3_crowd16_3inst.cu: products of 2 to 16 rows with EXL3 matrices of the codebook 3INST, on sm_90 (exl3_args.h).
   takes: exl3_crowd.cuh.
   gives: exl2k_exl3_crowd8_3inst, exl2k_exl3_crowd16_3inst. */
#include "exl3_crowd.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS, 3)
exl2k_exl3_crowd8_3inst(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_crowd<1, EXL2K_EXL3_3INST>(a);
}

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS, 3)
exl2k_exl3_crowd16_3inst(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_crowd<2, EXL2K_EXL3_3INST>(a);
}

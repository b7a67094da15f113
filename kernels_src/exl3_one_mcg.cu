/* exl3_one_mcg.cu: products of one row with EXL3 matrices of the codebook MCG, on sm_90 (exl3_args.h).
   takes: exl3_one.cuh.
   gives: exl2k_exl3_one_mcg. */
#include "exl3_one.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS, EXL2K_EXL3_CTAS8)
exl2k_exl3_one_mcg(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_one<EXL2K_EXL3_MCG>(a);
}

/* exl3_expert_wg_mul1.cu: products of many rows with experts in EXL3 of the codebook MUL1, by wgmma
   (exl3_expert_args.h).
   takes: exl3_expert_wg.cuh.
   gives: exl2k_exl3_expert_wg_mul1. */
#include "exl3_expert_wg.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS, 2)
exl2k_exl3_expert_wg_mul1(const __grid_constant__ exl2k_exl3_expert_args a)
{
    exl2k_exl3_expert_wg<EXL2K_EXL3_MUL1>(a);
}

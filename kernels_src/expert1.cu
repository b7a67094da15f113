/* expert1.cu: the products of one row with the experts that it has chosen.
   takes: expert.cuh.
   gives: exl2k_expert1. */
#include "expert.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_EXPERT_THREADS, 1)
exl2k_expert1(const __grid_constant__ exl2k_expert_args a)
{
    exl2k_expert_products<1>(a);
}

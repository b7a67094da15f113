/* expert1_steer.cu: the products of expert1.cu, with control vectors (expert_args.h).
   takes: expert.cuh.
   gives: exl2k_expert1_steer. */
#define EXL2K_STEER 1
#include "expert.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_EXPERT_THREADS, 1)
exl2k_expert1_steer(const __grid_constant__ exl2k_expert_args a)
{
    exl2k_expert_products<1>(a);
}

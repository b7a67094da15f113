/* expert1_affine_steer.cu: the products of expert1_affine.cu, with control vectors (expert_args.h).
   takes: expert.cuh.
   gives: exl2k_expert1_affine_steer. */
#define EXL2K_AFFINE 1
#define EXL2K_WIDTHS_MASK 39 /* 2, 3, 4 and 8 bits */
#define EXL2K_STEER 1
#include "expert.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_EXPERT_THREADS, 1)
exl2k_expert1_affine_steer(const __grid_constant__ exl2k_expert_args a)
{
    exl2k_expert_products<1>(a);
}

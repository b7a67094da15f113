/* expert8_affine.cu: the products of 2 to 8 rows with the experts that they have chosen; their matrices are affine.
   takes: expert.cuh.
   gives: exl2k_expert8_affine. */
#define EXL2K_AFFINE 1
#define EXL2K_WIDTHS_MASK 39 /* 2, 3, 4 and 8 bits */
#include "expert.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_EXPERT_THREADS, 1)
exl2k_expert8_affine(const __grid_constant__ exl2k_expert_args a)
{
    exl2k_expert_products<8>(a);
}

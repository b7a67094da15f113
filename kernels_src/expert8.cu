/* expert8.cu: the products of 2 to 8 rows with the experts that they have chosen.
   takes: expert.cuh.
   gives: exl2k_expert8. */
#include "expert.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_EXPERT_THREADS, 1)
exl2k_expert8(const __grid_constant__ exl2k_expert_args a)
{
    exl2k_expert_products<8>(a);
}

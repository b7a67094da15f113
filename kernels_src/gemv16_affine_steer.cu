/* gemv16_affine_steer.cu: the product of gemv16_affine.cu, with control vectors (gemv_args.h).
   takes: gemv.cuh.
   gives: exl2k_gemv16_affine_steer. */
#define EXL2K_AFFINE 1
#define EXL2K_WIDTHS_MASK 39 /* 2, 3, 4 and 8 bits */
#define EXL2K_STEER 1
#define EXL2K_TEAM 1
#include "gemv.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_TEAM_THREADS, 1)
exl2k_gemv16_affine_steer(const __grid_constant__ exl2k_gemv_args a)
{
    exl2k_gemv_team(a);
}

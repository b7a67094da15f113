/* gemv16_affine.cu: the product of 9 to 16 rows with one affine matrix, for Llama (gemv_args.h).
   takes: gemv.cuh.
   gives: exl2k_gemv16_affine. */
#define EXL2K_AFFINE 1
#define EXL2K_WIDTHS_MASK 39 /* 2, 3, 4 and 8 bits */
#include "gemv.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_GEMV_THREADS, 1)
exl2k_gemv16_affine(const __grid_constant__ exl2k_gemv_args a)
{
    exl2k_gemv<16>(a);
}

/* exl3_wide_wg.cu: products of many rows with strips of EXL3 matrices that are decoded already, by wgmma (exl3_args.h).
   takes: exl3_wide.cuh.
   gives: exl2k_exl3_wide. */
#include "exl3_wide.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_WIDE_THREADS, 1)
exl2k_exl3_wide(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_wide_all(a);
}

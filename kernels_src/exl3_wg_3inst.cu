/* exl3_wg_3inst.cu: products of many rows with EXL3 matrices of the codebook 3INST, by wgmma (exl3_args.h).
   takes: exl3_wg.cuh, exl3_strips.cuh.
   gives: exl2k_exl3_wg128_half_3inst, exl2k_exl3_wg128_3inst, exl2k_exl3_wg256_3inst, exl2k_exl3_strips_3inst. */
#include "exl3_strips.cuh"
#include "exl3_wg.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_WG_THREADS(64), 1)
exl2k_exl3_wg128_half_3inst(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_wg<128, 64, EXL2K_EXL3_3INST>(a);
}

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_WG_THREADS(128), 1)
exl2k_exl3_wg128_3inst(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_wg<128, 128, EXL2K_EXL3_3INST>(a);
}

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_WG_THREADS(128), 1)
exl2k_exl3_wg256_3inst(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_wg<256, 128, EXL2K_EXL3_3INST>(a);
}

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS)
exl2k_exl3_strips_3inst(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_strips_of<EXL2K_EXL3_3INST>(a);
}

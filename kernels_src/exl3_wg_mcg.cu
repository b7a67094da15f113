/* exl3_wg_mcg.cu: products of many rows with EXL3 matrices of the codebook MCG, by wgmma (exl3_args.h).
   takes: exl3_wg.cuh, exl3_strips.cuh.
   gives: exl2k_exl3_wg128_half_mcg, exl2k_exl3_wg128_mcg, exl2k_exl3_wg256_mcg, exl2k_exl3_strips_mcg. */
#include "exl3_strips.cuh"
#include "exl3_wg.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_WG_THREADS(64), 1)
exl2k_exl3_wg128_half_mcg(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_wg<128, 64, EXL2K_EXL3_MCG>(a);
}

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_WG_THREADS(128), 1)
exl2k_exl3_wg128_mcg(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_wg<128, 128, EXL2K_EXL3_MCG>(a);
}

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_WG_THREADS(128), 1)
exl2k_exl3_wg256_mcg(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_wg<256, 128, EXL2K_EXL3_MCG>(a);
}

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS)
exl2k_exl3_strips_mcg(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_strips_of<EXL2K_EXL3_MCG>(a);
}

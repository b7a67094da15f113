/* exl3_wg_mul1.cu: products of many rows with EXL3 matrices of the codebook MUL1, by wgmma (exl3_args.h).
   takes: exl3_wg.cuh, exl3_strips.cuh.
   gives: exl2k_exl3_wg128_half_mul1, exl2k_exl3_wg128_mul1, exl2k_exl3_wg256_mul1, exl2k_exl3_strips_mul1. */
#include "exl3_strips.cuh"
#include "exl3_wg.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_WG_THREADS(64), 1)
exl2k_exl3_wg128_half_mul1(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_wg<128, 64, EXL2K_EXL3_MUL1>(a);
}

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_WG_THREADS(128), 1)
exl2k_exl3_wg128_mul1(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_wg<128, 128, EXL2K_EXL3_MUL1>(a);
}

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_WG_THREADS(128), 1)
exl2k_exl3_wg256_mul1(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_wg<256, 128, EXL2K_EXL3_MUL1>(a);
}

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS)
exl2k_exl3_strips_mul1(const __grid_constant__ exl2k_exl3_args a)
{
    exl2k_exl3_strips_of<EXL2K_EXL3_MUL1>(a);
}

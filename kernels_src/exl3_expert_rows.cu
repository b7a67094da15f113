/* exl3_expert_rows.cu: transformed inputs of many rows for experts in EXL3 (exl3_expert_args.h).
   takes: exl3.cuh, exl3_expert_args.h.
   gives: exl2k_exl3_expert_rotate. */
#include "exl3.cuh"
#include "exl3_expert_args.h"

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS)
exl2k_exl3_expert_rotate(const __grid_constant__ exl2k_exl3_expert_rotate_args a)
{
    u32 groups = (a.blocks + EXL2K_EXL3_WARPS - 1) / EXL2K_EXL3_WARPS, part = blockIdx.y / groups, place = blockIdx.x;
    u32 lane = threadIdx.x % EXL2K_WARP;
    u32 block = blockIdx.y % groups * EXL2K_EXL3_WARPS + threadIdx.x / EXL2K_WARP;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (block >= a.blocks) {
        return;
    }
    u64 pair = a.pairs + (u64)place * sizeof(exl2k_grouped_pair);
    u32 row = a.by_place ? place : exl2k_load(pair), expert = exl2k_load(pair + 4);
    u64 suh = ((const exl2k_exl3_part *)a.experts)[expert * EXL2K_EXL3_EXPERT_PARTS + a.first + part].suh;
    uint2 pairs = exl2k_exl3_input(a.x + (u64)row * a.x_pitch * 2, suh, block, a.in, lane);
    u64 to = a.rotated + part * a.step + (u64)place * a.blocks * (EXL2K_EXL3_BLOCK * 2);
    u32 k = block * EXL2K_EXL3_BLOCK + 4 * lane;
    exl2k_store(to + (a.natural ? k * 2 : exl2k_exl3_place(k)), pairs.x);
    exl2k_store(to + (a.natural ? k * 2 + 4 : exl2k_exl3_place(k + 2)), pairs.y);
}

/* lora_use.cuh: what the adapters of a row's set add to a part of a matrix.
   takes: base.cuh, lora_rows_args.h.
   gives: exl2k_lora_uses, exl2k_lora_use, exl2k_lora_use_of.
   owns:  nothing; included by kernels that read exl2k_lora_set. */
#ifndef EXL2K_LORA_USE_CUH
#define EXL2K_LORA_USE_CUH

#include "base.cuh"
#include "lora_rows_args.h"

/* Number of adapters of a set; 0 for set 0, which is none. sets: exl2k_lora_set, of which set 1 is the first. */
EXL2K_FN u32 exl2k_lora_uses(u64 sets, u32 set)
{
    return set ? exl2k_load(sets + (u64)(set - 1) * sizeof(exl2k_lora_set)) : 0;
}

/* What one adapter adds to the part. */
typedef struct exl2k_lora_use {
    u32 rank;   /* 0: nothing */
    f32 factor; /* of t: that of the matrix times the scale of the row */
    u64 b, a;   /* as in exl2k_lora_matrix */
} exl2k_lora_use;

/* What use `u` of a set (from 1 on) adds to place `place` of a table. tables: exl2k_lora_matrix [slots, table]. */
EXL2K_FN exl2k_lora_use exl2k_lora_use_of(u64 sets, u64 tables, u32 table, u32 set, u32 u, u32 place)
{
    u64 at = sets + (u64)(set - 1) * sizeof(exl2k_lora_set);
    u32 slot = exl2k_load(at + 4 + u / 4 * 4) >> u % 4 * 8 & 255;
    u64 matrix = tables + ((u64)slot * table + place) * sizeof(exl2k_lora_matrix);
    uint4 low = exl2k_load4(matrix);
    uint4 high = exl2k_load4(matrix + 16);
    f32 scale = exl2k_load_f32(at + 16 + u * 4);
    return exl2k_lora_use{ low.x, scale * __uint_as_float(low.y), (u64)low.w << 32 | low.z,
                           (u64)high.y << 32 | high.x };
}

#endif

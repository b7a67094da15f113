/* lora_wg.cuh: where t of products by wgmma lies, and which sets the rows of a tile have.
   takes: base.cuh, lora_wg_args.h, wg_tiles.cuh.
   gives: exl2k_lora_wg_t_at, exl2k_lora_wg_sets, exl2k_lora_wg_set and functions that look into them.

   All lanes of a warp call these functions. */
#ifndef EXL2K_LORA_WG_CUH
#define EXL2K_LORA_WG_CUH

#include "base.cuh"
#include "lora_wg_args.h"
#include "wg_tiles.cuh"

/* Address of the line of a row in a block's larger terms; the smaller ones lie 64 * tile_rows bytes behind. */
EXL2K_FN u64 exl2k_lora_wg_t_at(const exl2k_lora_wg_args &a, u32 u, u32 part, u32 block, u32 row)
{
    return a.t + (((u64)(u * a.parts + part) * a.blocks + block) * 2 * a.tile_rows + row) * 64;
}

/* The sets of up to 256 rows: a lane has those of eight neighbours. 0xFFFF: there is no such row. */
typedef struct exl2k_lora_wg_sets {
    u32 pair[4];
} exl2k_lora_wg_sets;

/* Of `rows` rows from `first` on; both are multiples of 8. */
EXL2K_FN exl2k_lora_wg_sets exl2k_lora_wg_sets_of(const exl2k_lora_wg_args &a, u32 first, u32 rows)
{
    u32 lane = threadIdx.x % EXL2K_WARP, row = first + lane * 8;
    exl2k_lora_wg_sets s = { { ~0u, ~0u, ~0u, ~0u } };
    if (lane * 8 < rows && row < a.rows) {
        uint4 v = exl2k_load4(a.row_sets + (u64)row * 2);
        u32 pair[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 after = row + 2 * i >= a.rows ? ~0u : row + 2 * i + 1 >= a.rows ? 0xFFFF0000u : 0;
            s.pair[i] = pair[i] | after;
        }
    }
    return s;
}

/* The least set above `set` that one of the rows has; 0: none. */
EXL2K_FN u32 exl2k_lora_wg_next(const exl2k_lora_wg_sets &s, u32 set)
{
    u32 least = 0xFFFFu;
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        u32 own = s.pair[i / 2] >> i % 2 * 16 & 0xFFFFu;
        least = own > set ? exl2k_min(least, own) : least;
    }
    asm volatile("redux.sync.min.u32 %0, %0, 0xFFFFFFFF;" : "+r"(least));
    return least == 0xFFFFu ? 0 : least;
}

/* Bit i: the lane's row i has the set, or does not exist. */
EXL2K_FN u32 exl2k_lora_wg_with(const exl2k_lora_wg_sets &s, u32 set)
{
    u32 with = 0;
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        u32 own = s.pair[i / 2] >> i % 2 * 16 & 0xFFFFu;
        with |= own == set || own == 0xFFFFu ? 1u << i : 0;
    }
    return with;
}

/* The adapters of a set: how many, and their slots. */
typedef struct exl2k_lora_wg_set {
    u32 count, slots[2];
} exl2k_lora_wg_set;

EXL2K_FN exl2k_lora_wg_set exl2k_lora_wg_set_of(const exl2k_lora_wg_args &a, u32 set)
{
    uint4 v = exl2k_load4(a.sets + (u64)(set - 1) * sizeof(exl2k_lora_set));
    exl2k_lora_wg_set s = { v.x, { v.y, v.z } };
    return s;
}

/* Address of what adapter u of a set adds to a part: exl2k_lora_matrix. */
EXL2K_FN u64 exl2k_lora_wg_matrix_at(const exl2k_lora_wg_args &a, const exl2k_lora_wg_set &s, u32 u, u32 part)
{
    u32 slot = (u < 4 ? s.slots[0] : s.slots[1]) >> u % 4 * 8 & 255;
    return a.tables + ((u64)slot * a.table + a.place + part) * sizeof(exl2k_lora_matrix);
}

#endif

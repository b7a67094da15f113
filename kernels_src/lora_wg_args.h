/* lora_wg_args.h: arguments of products of many rows by wgmma that add what adapters add, and of the kernel before
   them, which computes t.
   takes: lora_rows_args.h, gemm_wg_args.h.
   gives: exl2k_lora_wg_args, exl2k_gemm_lora_args, EXL2K_LORA_WG_*.

   T       t = scale * factor * (A x) in f32 is the sum of two terms of 11 bits, as TF32 has them: 22 bits of t.
           A block is 16 values of t of one part, for all rows: two halves as wg_tiles.cuh has them, the larger terms
           and then the smaller ones. A line of 64 bytes is 16 values of a row. t: [uses, parts, blocks] such blocks of
           tile_rows rows. A row has values in the blocks of its own adapters.
   ORDER   The product of a tile is W x and then, for each set that a row of the tile has, in their order, and for each
           adapter of the set, in its order, one more block of K for 16 values of t. Rows of other sets have 0 there. A
           sum to which zeros are added keeps its bits, so those of a row depend on its own set.

   exl2k_lora_wg_t16, _t32, _t64: that many rows for each cluster of EXL2K_LORA_WG_CLUSTER CTAs. Grid
   (EXL2K_LORA_WG_CLUSTER, ceil(rows / that)), EXL2K_LORA_WG_THREADS threads. The bits of t do not depend on which. */
#ifndef EXL2K_LORA_WG_ARGS_H
#define EXL2K_LORA_WG_ARGS_H

#include "gemm_wg_args.h"
#include "lora_rows_args.h"

#define EXL2K_LORA_WG_THREADS 256
#define EXL2K_LORA_WG_CLUSTER 4   /* CTAs that each have a quarter of the inputs */
#define EXL2K_LORA_WG_BLOCK 16    /* values of t in a block */
#define EXL2K_LORA_WG_ZEROS 512   /* bytes of zeros: eight rows of half of a block */
#define EXL2K_LORA_WG_LINE 144    /* bytes from a line of B, 64 columns, to the next in a slot */

typedef struct exl2k_lora_wg_args {
    exl2k_u64 row_sets;  /* u16 [rows] 1 + index into sets; 0: none. 16 bytes for each 8 rows can be read */
    exl2k_u64 sets;      /* exl2k_lora_set */
    exl2k_u64 tables;    /* as in exl2k_lora_gemv_args */
    exl2k_u64 t;
    exl2k_u64 zeros;     /* EXL2K_LORA_WG_ZEROS bytes of 0 */
    exl2k_u64 x;         /* as in exl2k_gemm_args: tiles of tile_rows rows */
    exl2k_u32 rows, tile_rows;
    exl2k_u32 table, place, parts, in; /* as in exl2k_lora_gemv_args */
    exl2k_u32 blocks;    /* of a part in t */
    exl2k_u32 unused;
} exl2k_lora_wg_args;

typedef struct exl2k_gemm_lora_args {
    exl2k_gemm_args gemm;
    exl2k_lora_wg_args lora; /* x is not used */
} exl2k_gemm_lora_args;

#endif

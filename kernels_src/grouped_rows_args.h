/* grouped_rows_args.h: arguments of the kernels around the products of many rows with experts.
   takes: types.h.
   gives: exl2k_grouped_pair, exl2k_grouped_tile; exl2k_grouped_sort_args, _gather_args, _sum_args.

   Each row has chosen k experts. A pair of a row and one of its experts is a slot: slot row * k + i. The path has five
   launches: sort, gather, the product with up, the product with down (grouped_gemm_args.h), sum. Sorting gives
   each slot a place, so that the slots of an expert have consecutive places. Inputs, h and results lie at the places.

   SCRATCH  pairs          exl2k_grouped_pair [rows * k]
            places         u32 [rows * k]
            tiles          exl2k_grouped_tile [rows * k / tile_rows + min(rows * k, experts)], and their number, u32
            h              fp16 [rows * k, h_pitch]
            results        f32 [rows * k, pitch]; the inputs, fp16 [rows * k, pitch], lie in the same memory, because
                           they are read for the last time before the first result is written
            pitch and h_pitch are hidden and inter, rounded up to 64. */
#ifndef EXL2K_GROUPED_ROWS_ARGS_H
#define EXL2K_GROUPED_ROWS_ARGS_H

#include "types.h"

#define EXL2K_GROUPED_MAX 4096       /* experts of a layer */
#define EXL2K_GROUPED_SORT_THREADS 1024
#define EXL2K_GROUPED_ROW_THREADS 64 /* few threads for each row, so that an SM works on many rows */
#define EXL2K_GROUPED_SUM_THREADS 256
#define EXL2K_GROUPED_SUM_COLUMNS 4  /* columns of a thread of exl2k_grouped_sum */

/* What lies at a place. */
typedef struct exl2k_grouped_pair {
    exl2k_u32 row, expert;
} exl2k_grouped_pair;

/* A tile of the products: places [first, first + rows) of one expert. */
typedef struct exl2k_grouped_tile {
    exl2k_u32 expert, first, rows, unused;
} exl2k_grouped_tile;

/* exl2k_grouped_sort: the places of all slots, and the tiles, the largest first. Grid (rows * k /
   EXL2K_GROUPED_SORT_THREADS, rounded up), EXL2K_GROUPED_SORT_THREADS. The order of an expert's slots may differ from
   run to run, and no result depends on it; with `ordered` it is that of the slots. */
typedef struct exl2k_grouped_sort_args {
    exl2k_u64 choice;             /* u32 [rows, k]: experts of each row; an index beyond the last means the last */
    exl2k_u64 pairs, places;      /* written: pair of each place, place of each slot */
    exl2k_u64 tiles, tile_count;  /* written */
    exl2k_u32 slot_count, k, experts;
    exl2k_u32 tile_rows;          /* rows of a tile: 32 or 128 */
    exl2k_u32 ordered;            /* 1: where several GPUs give each other rows by their places */
    exl2k_u32 unused;
} exl2k_grouped_sort_args;

/* exl2k_grouped_gather: copies each slot's inputs to its place, in the order of its expert's up_map, and clears what
   follows the columns of a row of inputs and of h, because products read it. Grid (rows * k),
   EXL2K_GROUPED_ROW_THREADS; dynamic shared memory: `staged` bytes. */
typedef struct exl2k_grouped_gather_args {
    exl2k_u64 experts;            /* exl2k_expert [experts] */
    exl2k_u64 pairs;
    exl2k_u64 x;                  /* fp16 [rows, x_pitch], normalised */
    exl2k_u64 to, h;
    exl2k_u32 x_pitch, columns, pitch;
    exl2k_u32 h_columns, h_pitch;
    exl2k_u32 staged;             /* 2 * columns, rounded up to 16: rows are permuted in shared memory; 0: they do not
                                     fit */
    exl2k_u32 packed;             /* 1: x is in the order of `up`, which all experts share; 0: in natural order */
    exl2k_u32 unused;
} exl2k_grouped_gather_args;

/* exl2k_grouped_sum: scale * sum of weight * result over the slots of a row, in their order. The sum is added to `out`,
   or replaces it. Grid (rows, columns / (EXL2K_GROUPED_SUM_THREADS * EXL2K_GROUPED_SUM_COLUMNS), rounded up),
   EXL2K_GROUPED_SUM_THREADS. */
typedef struct exl2k_grouped_sum_args {
    exl2k_u64 weight;             /* f32 [rows, k] */
    exl2k_u64 places;
    exl2k_u64 results;            /* f32 [rows * k, pitch] */
    exl2k_u64 out;                /* f32 [rows, out_pitch] */
    exl2k_u32 k, columns, pitch, out_pitch;
    exl2k_f32 scale;
    exl2k_u32 add;                /* 1: the sum is added to `out` */
} exl2k_grouped_sum_args;

#endif

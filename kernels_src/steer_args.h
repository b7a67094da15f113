/* steer_args.h: arguments of the kernels that add control vectors: r += factor * vector, for each vector of a row.
   takes: types.h.
   gives: exl2k_steer_set, exl2k_steer_args.

   In passes of few rows the kernel that ends a layer adds a row of its own to the residual (gemv_args.h, expert_args.h,
   settle_args.h: `added`). exl2k_steer_fill makes these rows at the beginning of the pass: of all layers, as a launch
   in each layer would cost more. In passes of many rows exl2k_steer_add adds to the residual itself. Which rows have
   which vectors, and the factors, is data in device memory, so captured graphs serve all of them. */
#ifndef EXL2K_STEER_ARGS_H
#define EXL2K_STEER_ARGS_H

#include "types.h"

#define EXL2K_STEER_USES 4    /* control vectors of a row */
#define EXL2K_STEER_SLOTS 256 /* of a model */
#define EXL2K_STEER_ROWS 16   /* rows of a layer in `added`: of a pass of few rows */
#define EXL2K_STEER_THREADS 256

/* The control vectors of rows, in the order of their sums. */
typedef struct exl2k_steer_set {
    exl2k_u32 count;
    exl2k_u8 slots[EXL2K_STEER_USES];
    exl2k_f32 scale[EXL2K_STEER_USES];
} exl2k_steer_set;

/* exl2k_steer_fill: grid (ceil(hidden / 256), rows, layers). added = the sum of the row's products; -0 where it has
                     none, as adding that changes no bit.
   exl2k_steer_add:  grid (ceil(hidden / 256), rows, 1). residual += each product, one after the other, of layer
                     `layer`. */
typedef struct exl2k_steer_args {
    exl2k_u64 rows_at;    /* address of the number of rows of the pass, u32 in device memory */
    exl2k_u64 row_sets;   /* u16 [rows] 1 + index into sets; 0: none */
    exl2k_u64 sets;       /* exl2k_steer_set */
    exl2k_u64 vectors;    /* f32 [slots, layers, hidden] */
    exl2k_u64 added;      /* fill: f32 [layers, EXL2K_STEER_ROWS, hidden] */
    exl2k_u64 residual;   /* add: f32 [rows, hidden] */
    exl2k_u32 layers, hidden;
    exl2k_u32 layer;      /* add: index among `layers` */
    exl2k_u32 unused;
} exl2k_steer_args;

#endif

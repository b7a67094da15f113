/* gather_args.h: arguments of the kernels for matrices whose parts have different permutations of the inputs.
   takes: types.h.
   gives: exl2k_gather_args, exl2k_act_mul_args. */
#ifndef EXL2K_GATHER_ARGS_H
#define EXL2K_GATHER_ARGS_H

#include "types.h"

#define EXL2K_GATHER_THREADS 256

/* Grid (rows), block EXL2K_GATHER_THREADS. to[map[n]] = from[n]; elements from `count` on become 0. */
typedef struct exl2k_gather_args {
    exl2k_u64 from, to; /* fp16 [rows, pitch] */
    exl2k_u64 map;      /* u16 [count] */
    exl2k_u64 rows_at;  /* address of the number of rows, u32 in device memory; further CTAs exit. 0: all rows */
    exl2k_u32 count, pitch;
} exl2k_gather_args;

/* Grid (rows), block EXL2K_GATHER_THREADS. to[n] = fp16(act(gate[n]) * up[n]). */
typedef struct exl2k_act_mul_args {
    exl2k_u64 from;    /* f32 [rows, 2, count]: gate, up */
    exl2k_u64 to;      /* fp16 [rows, pitch] */
    exl2k_u64 rows_at; /* as above */
    exl2k_u32 count, pitch;
    exl2k_u32 act;       /* EXL2K_ACT_* */
    exl2k_f32 act_limit; /* of EXL2K_ACT_CLAMPED */
} exl2k_act_mul_args;

#endif

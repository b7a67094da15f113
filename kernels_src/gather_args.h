/* gather_args.h: arguments of the kernels for matrices whose parts order their inputs differently.
   takes: types.h.
   gives: exl2k_gather_args, exl2k_silu_mul_args.
   owns:  nothing.
   next:  gather.cu */
#ifndef EXL2K_GATHER_ARGS_H
#define EXL2K_GATHER_ARGS_H

#include "types.h"

#define EXL2K_GATHER_THREADS 256

/* Grid (rows), block EXL2K_GATHER_THREADS. to[map[n]] = from[n]; what lies behind `count` stays. */
typedef struct exl2k_gather_args {
    exl2k_u64 from, to; /* fp16 [rows, pitch] */
    exl2k_u64 map;      /* u16 [count] */
    exl2k_u64 rows_at;  /* u32 in device memory: rows of the step, others leave; 0: all */
    exl2k_u32 count, pitch;
} exl2k_gather_args;

/* Grid (rows), block EXL2K_GATHER_THREADS. to[map[n]] = fp16(silu(gate[n]) * up[n]). */
typedef struct exl2k_silu_mul_args {
    exl2k_u64 from; /* f32 [rows, 2, count]: gate, up */
    exl2k_u64 to;   /* fp16 [rows, pitch] */
    exl2k_u64 map;  /* u16 [count]; 0: identity */
    exl2k_u64 rows_at; /* as above */
    exl2k_u32 count, pitch;
} exl2k_silu_mul_args;

#endif

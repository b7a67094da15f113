/* settle_args.h: arguments of the kernel that adds a block's result and normalises the residual.
   takes: pass_args.h.
   gives: exl2k_settle_args.
   owns:  nothing. */
#ifndef EXL2K_SETTLE_ARGS_H
#define EXL2K_SETTLE_ARGS_H

#include "pass_args.h"

#define EXL2K_SETTLE_THREADS 1024
#define EXL2K_SETTLE_HELD 8       /* elements of a row that a thread holds in registers; further ones are read again */
#define EXL2K_SETTLE_EARLY 4      /* elements of tables that a thread loads before it waits for the preceding kernel */
#define EXL2K_SETTLE_STAGED 16384 /* wider rows are stored directly, not through shared memory */

/* Grid (rows), block EXL2K_SETTLE_THREADS. With a branch: residual += scale * post_norm(branch). Then, for each order
   k whose out[k] is not 0: out[k][map[k][n]] = fp16(norm(residual)[n]). A norm is RMSNorm or LayerNorm:
   (x - mean) / sqrt(variance + eps) * weight + bias, where RMSNorm has mean 0. */
typedef struct exl2k_settle_args {
    exl2k_u64 rows_at;   /* address of the number of rows, u32 in device memory; further CTAs exit */
    exl2k_u64 samplings; /* exl2k_sampling: row i is row samplings[i].row of the residual; 0: row i is row i. With a
                            branch it is 0 */
    exl2k_u64 residual;  /* f32 [rows, hidden] */
    exl2k_u64 branch;    /* f32 [rows, hidden]: a block's result; 0: none */
    exl2k_u64 post_weight, post_bias; /* of the norm of the branch, f32 [hidden]; post_bias 0: none */
    exl2k_u64 weight;    /* of the norm of the residual, f32 [hidden]; 0: the residual is written as it is */
    exl2k_u64 bias;      /* f32 [hidden]; 0: none */
    exl2k_u64 out[2];    /* fp16 [rows, out_pitch] */
    exl2k_u64 map[2];    /* u16 [hidden]; 0: identity */
    exl2k_u32 hidden, out_pitch; /* out_pitch in elements, even */
    exl2k_u32 layer_norm;        /* 1: both norms are LayerNorm */
    exl2k_f32 eps, scale;
    exl2k_u32 unused;
} exl2k_settle_args;

#endif

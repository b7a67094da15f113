/* settle_args.h: arguments of the kernel that adds a block's result and normalises the residual.
   takes: pass_args.h.
   gives: exl2k_settle_args, exl2k_settle_run, exl2k_settle_threads. */
#ifndef EXL2K_SETTLE_ARGS_H
#define EXL2K_SETTLE_ARGS_H

#include "pass_args.h"

#define EXL2K_SETTLE_THREADS 1024 /* at most */
#define EXL2K_SETTLE_HELD 8       /* elements of a row that a thread holds in registers; further ones are read again */
#define EXL2K_SETTLE_EARLY 4      /* elements of tables that a thread loads before it waits for the preceding kernel */
#define EXL2K_SETTLE_STAGED 16384 /* wider rows are stored directly, not through shared memory */

#define EXL2K_SETTLE_SOON 3       /* tables that the next launch of this kernel reads */

/* Grid (rows), block exl2k_settle_threads. With a branch: residual += scale * post_norm(branch). Then, for each order
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
    exl2k_u64 soon[EXL2K_SETTLE_SOON], soon_map; /* f32 [hidden], u16 [hidden]: brought into L2; 0: none */
    exl2k_u32 hidden, out_pitch; /* out_pitch in elements, a multiple of 8 */
    exl2k_u32 layer_norm;        /* 1: both norms are LayerNorm */
    exl2k_f32 eps, scale;
    exl2k_u32 tile_rows;         /* rows of tiles: out has tiles as in wg_tiles.cuh, and hidden is a multiple of 32 of
                                    at most EXL2K_SETTLE_STAGED; 0: it has rows */
    exl2k_u32 late;              /* 1: the next kernel starts only when the row has arrived */
    exl2k_u64 added;             /* exl2k_settle_steer: f32 [rows, hidden] that is added to the residual before its norm
                                    (steer_args.h); 0: nothing */
} exl2k_settle_args;

/* Consecutive elements that a thread works on. */
static inline exl2k_u32 exl2k_settle_run(exl2k_u32 hidden) { return hidden % 8 == 0 ? 4 : 1; }

static inline exl2k_u32 exl2k_settle_threads(exl2k_u32 hidden)
{
    exl2k_u32 runs = hidden / exl2k_settle_run(hidden), threads = (runs + 31) / 32 * 32;
    return threads < EXL2K_SETTLE_THREADS ? threads : EXL2K_SETTLE_THREADS;
}

#endif

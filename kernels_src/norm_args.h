/* norm_args.h: arguments of RMSNorm (for passes of many rows, and before the head) and of the RoPE table.
   takes: pass_args.h.
   gives: exl2k_norm_args, exl2k_rope_args. */
#ifndef EXL2K_NORM_ARGS_H
#define EXL2K_NORM_ARGS_H

#include "pass_args.h"

#define EXL2K_NORM_THREADS 256
#define EXL2K_NORM_STAGED 16384 /* wider rows are stored directly, not through shared memory */

/* Grid (rows), block EXL2K_NORM_THREADS. out[map[n]] = fp16(residual[n] * weight[n] / sqrt(mean of squares + eps)). */
typedef struct exl2k_norm_args {
    exl2k_u64 rows_at;   /* address of the number of rows, u32 in device memory; further CTAs exit */
    exl2k_u64 residual;  /* f32 [rows, residual_pitch] */
    exl2k_u64 samplings; /* exl2k_sampling: row i is row samplings[i].row of the residual; 0: row i is row i */
    exl2k_u64 weight;    /* f32 [hidden] */
    exl2k_u64 out;       /* fp16 [rows, out_pitch] */
    exl2k_u64 map;       /* u16 [hidden]; 0: identity */
    exl2k_u32 hidden, residual_pitch, out_pitch; /* pitches in elements; out_pitch even */
    exl2k_f32 eps;
    exl2k_u32 tile_rows; /* rows of tiles: out has tiles as in wg_tiles.cuh; 0: it has rows */
} exl2k_norm_args;

/* Grid (ceil(positions * half / 256)), block 256. Launched once per table of a model. */
typedef struct exl2k_rope_args {
    exl2k_u64 frequency; /* f64 [rotated]: radians per position */
    exl2k_u64 table;     /* f32 [positions, half, 2]: cosine, sine */
    exl2k_u32 half, positions;
    exl2k_u32 step;      /* entry n of the table is of position n * step */
    exl2k_u32 rotated;   /* the pairs from here on are not rotated: cosine 1, sine 0 */
    exl2k_f32 magnitude; /* factor of cosine and sine of rotated pairs */
} exl2k_rope_args;

#endif

/* embed_args.h: arguments of the kernel that looks tokens up.
   takes: pass_args.h.
   gives: exl2k_embed_args.
   owns:  nothing.
   next:  embed.cu */
#ifndef EXL2K_EMBED_ARGS_H
#define EXL2K_EMBED_ARGS_H

#include "pass_args.h"

#define EXL2K_EMBED_THREADS 256

enum { EXL2K_TABLE_F16, EXL2K_TABLE_BF16, EXL2K_TABLE_F32 };

/* Grid (rows, parts of a row: at most `slots`), block EXL2K_EMBED_THREADS. Tokens without a line of the table give
   zeros. */
typedef struct exl2k_embed_args {
    exl2k_u64 pass, rows;   /* exl2k_pass, exl2k_row [rows] */
    exl2k_u64 table;        /* [table_rows, hidden] of `kind` */
    exl2k_u64 residual;     /* f32 [rows, residual_pitch] */
    exl2k_u64 out;          /* fp16 [rows, out_pitch]: residual * weight at map[n]; 0: not wanted */
    exl2k_u64 map;          /* u16 [hidden]; 0: identity */
    exl2k_u64 weight;       /* f32 [hidden] of the first norm */
    exl2k_u64 sums;         /* f32 [rows, slots_pitch]: a slot of each part = sum of its squares, the others 0 */
    exl2k_u32 table_rows, hidden, kind;
    exl2k_u32 residual_pitch, out_pitch, slots_pitch, slots; /* pitches in elements */
    exl2k_u32 unused;
} exl2k_embed_args;

#endif

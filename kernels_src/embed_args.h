/* embed_args.h: arguments of the kernel that looks up embeddings.
   takes: pass_args.h.
   gives: exl2k_embed_args. */
#ifndef EXL2K_EMBED_ARGS_H
#define EXL2K_EMBED_ARGS_H

#include "pass_args.h"

#define EXL2K_EMBED_THREADS 256

enum { EXL2K_TABLE_F16, EXL2K_TABLE_BF16, EXL2K_TABLE_F32, EXL2K_TABLE_GIVEN, EXL2K_TABLE_HANDED };

/* Grid (rows, parts of a row: at most `slots`), block EXL2K_EMBED_THREADS. residual = table[token] * scale +
   positions[position]; a row beyond the end of a table gives zeros. Of a row with EXL2K_ROW_VECTOR, and of all
   rows of a table EXL2K_TABLE_GIVEN, the residual is in place of table[token] * scale.
   EXL2K_TABLE_HANDED: the rows of the pass go on from layers of another device. table = its residual [rows, hidden],
   residual = table[row]. With handed_now, out and sums are what the last product of that device has written for a
   product there: out = residual * weight * rho, where rho is that of its last norm (gemv_args.h). */
typedef struct exl2k_embed_args {
    exl2k_u64 pass, rows; /* exl2k_pass, exl2k_row [rows] */
    exl2k_u64 table;      /* [table_rows, hidden] of `kind` */
    exl2k_u64 positions;  /* [position_rows, hidden] of `position_kind` */
    exl2k_u64 residual;   /* f32 [rows, residual_pitch] */
    exl2k_u64 out;        /* fp16 [rows, out_pitch]: residual * weight at map[n]; 0: not needed */
    exl2k_u64 map;        /* u16 [hidden]; 0: identity */
    exl2k_u64 weight;     /* weight of the first norm, f32 [hidden] */
    exl2k_u64 sums;       /* f32 [rows, slots_pitch]: each part of a row writes its sum of squares to a slot; the
                             other slots are 0 */
    exl2k_u64 handed_now, handed_before; /* as sums and sums_before, of the other device; 0: not wanted */
    exl2k_u64 sums_before; /* with handed_now: gets handed_before */
    exl2k_u64 turn;       /* u32: number of the pass, to which 1 is added; 0: the pass has no adapters (lora_args.h) */
    exl2k_u32 table_rows, hidden, kind;
    exl2k_u32 residual_pitch, out_pitch, slots_pitch, slots; /* pitches in elements */
    exl2k_u32 position_rows, position_kind;      /* position_rows 0: no learned positions */
    exl2k_f32 scale;
    exl2k_u32 by_lanes;   /* handed_now: rho adds up its slots as experts do (expert.cuh), else as products do */
    exl2k_f32 eps, inverse_hidden; /* handed_now */
} exl2k_embed_args;

#endif

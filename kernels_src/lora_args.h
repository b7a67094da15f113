/* lora_args.h: arguments of the kernels of adapters: t = factor A x, then y += B t.
   takes: types.h.
   gives: exl2k_lora_matrix, exl2k_lora_row, exl2k_lora_args. */
#ifndef EXL2K_LORA_ARGS_H
#define EXL2K_LORA_ARGS_H

#include "types.h"

#define EXL2K_LORA_THREADS 256
#define EXL2K_LORA_USES 8  /* adapters of a row */
#define EXL2K_LORA_PARTS 3 /* of a matrix */

/* What an adapter adds to one part of a matrix; as exl2__lora_matrix (2_graph/lora.h). */
typedef struct exl2k_lora_matrix {
    exl2k_u32 rank;       /* 0: nothing */
    exl2k_f32 factor;
    exl2k_u64 a, b;       /* fp16 [rank, inputs rounded up to 16], [rank, columns rounded up to 32] */
    exl2k_u32 shares, unused;
} exl2k_lora_matrix;

/* The adapters of a row of the pass, in the order of their sums. */
typedef struct exl2k_lora_use {
    exl2k_u64 table;      /* exl2k_lora_matrix [layers * places] */
    exl2k_f32 scale;
    exl2k_u32 unused;
} exl2k_lora_use;

typedef struct exl2k_lora_row {
    exl2k_u32 count, unused[3];
    exl2k_lora_use uses[EXL2K_LORA_USES];
} exl2k_lora_row;

/* exl2k_lora_shrink: grid (ceil(stride / 8), parts, rows). A warp computes one value of t.
   exl2k_lora_expand: grid (ceil(columns / 512), parts, rows). out += scale * B t, for rows with adapters.
   exl2k_lora_act:    grid (ceil(columns / 512), 1, rows). out = fp16 of act(gate + B t) * (up + B t), or of
                      act(value + B t) of a matrix of one part, for rows with adapters. */
typedef struct exl2k_lora_args {
    exl2k_u64 rows;       /* exl2k_lora_row [rows] */
    exl2k_u64 t;          /* f32 [rows, EXL2K_LORA_PARTS, stride] */
    exl2k_u64 x;          /* fp16, as x of exl2k_gemv_args, with its pitch and step */
    exl2k_u64 sums_now, sums_before; /* as there */
    exl2k_u64 from;       /* act: f32 [rows, parts, columns[0]]: gate, up */
    exl2k_u64 out;        /* f32 [rows, out_pitch]; act: fp16, with out_pitch and out_step */
    exl2k_u32 place;      /* of the operand's first part in an adapter's table */
    exl2k_u32 parts, in, x_pitch, x_step, out_pitch, out_step;
    exl2k_u32 rank_stride, stride; /* values of t of one adapter, of a part */
    exl2k_u32 columns[EXL2K_LORA_PARTS], column[EXL2K_LORA_PARTS]; /* of each part; where they begin in a row of out */
    exl2k_u32 slots;      /* slots in use in the sums */
    exl2k_f32 eps, inverse_hidden, scale;
    exl2k_u32 act;        /* EXL2K_ACT_* */
    exl2k_f32 act_limit;
} exl2k_lora_args;

#endif

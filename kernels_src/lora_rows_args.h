/* lora_rows_args.h: arguments of the kernels that add what adapters add to products of many rows: t = A x, then B t.
   takes: lora_args.h.
   gives: exl2k_lora_set, exl2k_lora_rows_args. */
#ifndef EXL2K_LORA_ROWS_ARGS_H
#define EXL2K_LORA_ROWS_ARGS_H

#include "lora_args.h"

#define EXL2K_LORA_ROWS_THREADS 256
#define EXL2K_LORA_ROWS_T 32   /* rows whose t a CTA computes */
#define EXL2K_LORA_ROWS_OUT 16 /* rows whose B t a CTA computes */
#define EXL2K_LORA_RANK_MAX 256

/* The adapters of rows, in the order of their sums. */
typedef struct exl2k_lora_set {
    exl2k_u32 count;
    exl2k_u8 slots[EXL2K_LORA_USES];
    exl2k_u32 unused;
    exl2k_f32 scale[EXL2K_LORA_USES];
} exl2k_lora_set;

/* exl2k_lora_rows_t:   grid (ceil(rows / 32), parts). t of all sets.
   exl2k_lora_rows_add: grid (ceil(columns / 512), parts, ceil(rows / 16)). out += scale * B t.
   exl2k_lora_rows_act: the same grid with one part. out = act(gate + B t) * (up + B t), or act(value + B t) of a matrix
                        of one part, of gate and up in `from`. */
typedef struct exl2k_lora_rows_args {
    exl2k_u64 row_sets;   /* u16 [rows] 1 + index into sets; 0: none */
    exl2k_u64 sets;       /* exl2k_lora_set */
    exl2k_u64 tables;     /* as in exl2k_lora_gemv_args */
    exl2k_u64 t;          /* f32 [rows, uses, parts, rank_stride] */
    exl2k_u64 x;          /* fp16 [rows, x_pitch] */
    exl2k_u64 from;       /* act: f32 [rows - row0, parts, columns[0]] */
    exl2k_u64 out;        /* add: f32 [rows, out_pitch]; act: fp16 [rows, out_pitch] */
    exl2k_u32 rows;
    exl2k_u32 row0;       /* act: the first row; rows before it are not computed */
    exl2k_u32 table, place, parts, in; /* as there */
    exl2k_u32 uses;       /* of a row in t */
    exl2k_u32 rank_stride;
    exl2k_u32 x_pitch, out_pitch;
    exl2k_u32 columns[EXL2K_LORA_PARTS], column[EXL2K_LORA_PARTS]; /* of each part; where they begin in a row of out */
    exl2k_f32 scale;
    exl2k_u32 act;        /* EXL2K_ACT_* */
    exl2k_f32 act_limit;
} exl2k_lora_rows_args;

#endif

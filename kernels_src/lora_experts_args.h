/* lora_experts_args.h: arguments of the kernels that compute what adapters add to the products of experts.
   takes: lora_rows_args.h, expert_args.h.
   gives: exl2k_lora_experts_args. */
#ifndef EXL2K_LORA_EXPERTS_ARGS_H
#define EXL2K_LORA_EXPERTS_ARGS_H

#include "expert_args.h"
#include "lora_rows_args.h"

#define EXL2K_LORA_EXPERTS_THREADS 256

/* A row of a slice and one of the experts that it has chosen are a SLOT: row * active + its number among the row's
   choices. Each expert's matrices are EXL2K_LORA_EXPERT_PARTS places of a table: gate, up, down.

   exl2k_lora_experts_t:   grid (slots, parts). t = factor A x of gate and up (or up alone), or of down, whose x is h.
   exl2k_lora_experts_up:  grid (ceil(columns / 256), slots, parts). out[slot][part] = B t, 0 where nothing is added.
   exl2k_lora_experts_down: grid (ceil(columns / 256), rows). residual += scale * the sum of B t of all slots of a
   row. */
typedef struct exl2k_lora_experts_args {
    exl2k_expert_choice rows; /* of a slice */
    exl2k_u64 row_sets;   /* u16 [rows of the pass] 1 + index into sets; 0: none */
    exl2k_u64 sets;       /* exl2k_lora_set */
    exl2k_u64 tables;     /* as in exl2k_lora_gemv_args */
    exl2k_u64 x;          /* fp16: row of the pass r at r * x_pitch; down: row r of the slice, for expert in use i, at
                             (i * EXL2K_EXPERT_ROWS + r) * x_pitch, or as by_slot says */
    exl2k_u64 t;          /* f32 [slots, uses, parts, rank_stride] */
    exl2k_u64 out;        /* up: f32 [slots, 2, columns]; down: the residual, f32 [rows of the pass, out_pitch] */
    exl2k_u32 down;
    exl2k_u32 parts;      /* 1 or 2; down: 1 */
    exl2k_u32 table;      /* matrices of a table */
    exl2k_u32 place;      /* of the first part of expert 0 in a table: of gate, or of down */
    exl2k_u32 step;       /* places of an expert */
    exl2k_u32 in, columns;
    exl2k_u32 uses, rank_stride;
    exl2k_u32 x_pitch, out_pitch;
    exl2k_u32 by_slot;    /* down: 1: h of slot i is at i * x_pitch, and lacks the weight of the row's expert */
    exl2k_f32 scale;
} exl2k_lora_experts_args;

#endif

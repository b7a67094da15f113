/* expert_args.h: the kernels' view of the experts of one layer.
   takes: types.h, matrix_args.h.
   gives: exl2k_expert: an array [experts] in device memory for each layer; exl2k_expert_args, exl2k_expert_gather_args,
          exl2k_expert_switch_args.
   owns:  nothing; the addresses point to device memory that the backend owns.

   Experts of a layer may differ in everything but the numbers of inputs and outputs. A kernel copies the matrix of its
   expert to shared memory. The inputs of `up` are rows of norm(r) in natural order, fp16. Element i of a natural row
   goes to place map[i] of the packed row, which the matrix reads. */
#ifndef EXL2K_EXPERT_ARGS_H
#define EXL2K_EXPERT_ARGS_H

#include "matrix_args.h"

typedef struct exl2k_expert {
    exl2k_matrix up;    /* gate and up, interleaved; or one part without a gate */
    exl2k_matrix down;  /* one part */
    exl2k_u64 up_map;   /* u16 [inputs of up]: place in the packed row of each input; 0: the same place */
} exl2k_expert;

#define EXL2K_EXPERT_THREADS 512
#define EXL2K_EXPERT_WARPS 16
#define EXL2K_EXPERT_ROWS 8       /* rows of a slice: those that one launch multiplies */
#define EXL2K_EXPERT_STAGES_MAX 8
#define EXL2K_EXPERT_PARTS 3      /* chunk tables of an expert: of gate, of up, of down */
#define EXL2K_EXPERT_PART_BYTES 32 /* of an exl2k_expert_part in shared memory */
#define EXL2K_EXPERT_GATHER_THREADS 256

/* The experts that rows have chosen. */
typedef struct exl2k_expert_choice {
    exl2k_u64 choice;   /* u32 [rows, active]: experts, ascending in each row */
    exl2k_u64 weight;   /* f32 [rows, active] */
    exl2k_u64 rows_at;  /* address of the number of rows of the pass, u32 in device memory */
    exl2k_u32 first;    /* first row of the slice; it ends after EXL2K_EXPERT_ROWS rows, or with the pass */
    exl2k_u32 count, active; /* experts of the layer, and those of a row */
    exl2k_u32 unused;
} exl2k_expert_choice;

/* Products of the rows of a slice with the experts that they have chosen. The chosen experts of all rows of the slice,
   in ascending order, are the slice's EXPERTS IN USE 0, 1, ...
   INPUT   x: fp16 rows in the packed order of the expert. Row r of the slice, for expert in use i: x + (i * x_step + r
           * x_pitch) elements.
   OUTPUT  up    h = fp16(weight of the row * act(gate) * up), for row r and expert in use i at out + (i *
                 EXL2K_EXPERT_ROWS + r) * out_pitch elements; columns are stored in the order of `down`
           down  r += scale * sum over the row's experts, in ascending order, of (value + weight * bias); with next,
                 also what a residual product writes (gemv_args.h): next = fp16(r * norm * rho_before) at map[n], and
                 this CTA's slot of sums_out
   Grid: at most one CTA for each SM; block EXL2K_EXPERT_THREADS. */
typedef struct exl2k_expert_args {
    exl2k_expert_choice rows;
    exl2k_u64 experts;  /* exl2k_expert [count] */
    exl2k_u64 tables;   /* exl2k_chunk [count, EXL2K_EXPERT_PARTS, table_chunks] */
    exl2k_u64 x, out;
    exl2k_u64 residual; /* down: f32 [rows of the pass, residual_pitch] */
    exl2k_u64 next;     /* down: fp16 [rows of the pass, next_pitch]; 0: not wanted */
    exl2k_u64 norm;     /* down: weight of the next norm, f32 [columns] */
    exl2k_u64 map;      /* down: u16 [columns]; 0: identity */
    exl2k_u64 sums_before, sums_out; /* down: f32 [rows of the pass, slots_pitch] */
    exl2k_u64 added;    /* of kernels with EXL2K_STEER; 0: nothing. down: f32 [rows of the pass, residual_pitch] that is
                           added to r first (steer_args.h). up: f32 [slots, 2, columns] that is added to gate and up
                           (lora_experts_args.h) */
    exl2k_u32 x_pitch, x_step, out_pitch, residual_pitch, next_pitch, slots_pitch; /* in elements */
    exl2k_u32 slots;    /* slots in use in all sums */
    exl2k_f32 eps, inverse_hidden;
    exl2k_u32 down;     /* 1: down, else up */
    exl2k_u32 parts;    /* up: 2, or 1 without a gate; down: 1 */
    exl2k_u32 inputs, columns; /* of each part */
    exl2k_u32 act;      /* up: EXL2K_ACT_* */
    exl2k_f32 act_limit; /* of EXL2K_ACT_CLAMPED */
    exl2k_f32 scale;    /* down */
    exl2k_u32 table_chunks; /* entries from one table to the next */
    exl2k_u32 chunks;   /* most chunks of a part */
    /* Dynamic shared memory (expert.cuh): */
    exl2k_u32 stages, slot_bytes; /* of the ring of a warp: a slot holds one chunk */
    exl2k_u32 unit;     /* chunks whose products are added up before they are stored */
    exl2k_u32 units;    /* partial sums that there is room for */
    exl2k_u32 runs;     /* experts that are worked on at a time */
    exl2k_u32 unused;
    exl2k_u32 items;    /* strips of a part that are worked on at a time, over all of these experts (down: of each) */
} exl2k_expert_args;

/* Grid (experts in use at most, rows of the slice), block EXL2K_EXPERT_GATHER_THREADS: writes rows in the packed orders
   of the experts that they have chosen, for layers whose experts have different orders. */
typedef struct exl2k_expert_gather_args {
    exl2k_expert_choice rows;
    exl2k_u64 experts;
    exl2k_u64 from; /* fp16 [rows of the pass, pitch] in natural order */
    exl2k_u64 to;   /* fp16 [experts in use, EXL2K_EXPERT_ROWS, pitch] */
    exl2k_u32 pitch, inputs;
} exl2k_expert_gather_args;

/* Grid (rows), block EXL2K_EXPERT_GATHER_THREADS: multiplies each row of h by a number. */
typedef struct exl2k_expert_switch_args {
    exl2k_u64 rows_at;
    exl2k_u64 h;      /* fp16 [rows, pitch] */
    exl2k_u64 weight; /* f32 [rows] */
    exl2k_u32 pitch, count;
} exl2k_expert_switch_args;

#endif

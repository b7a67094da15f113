/* meet_args.h: arguments of the kernels by which several GPUs give each other the columns that each has computed.
   takes: types.h.
   gives: exl2k_meet_state, exl2k_meet_args, exl2k_meet_norm_args.

   Each GPU launches the same meetings in the same order, so each counts them alike. A meeting begins when all GPUs
   have arrived: each writes the number of the meeting to its flag in the state of each other GPU, once the kernels
   before are done. Then it reads the others' columns from their memory. A buffer that others read is written again only
   after a further meeting, at which they have arrived because they have read it. A GPU that has waited for 2 s gives
   up, which ends its context. If the CPU could not launch a kernel on one of them, it sets `stop`: then nobody waits,
   until the CPU has cleared all states. */
#ifndef EXL2K_MEET_ARGS_H
#define EXL2K_MEET_ARGS_H

#include "types.h"

#define EXL2K_MEET_GPUS 8u
#define EXL2K_MEET_THREADS 256
#define EXL2K_MEET_BATCH 4u /* loads of a thread that are on their way */

typedef struct exl2k_meet_flag {
    exl2k_u32 number; /* of the last meeting at which the GPU has arrived */
    exl2k_u32 unused[31];
} exl2k_meet_flag;

typedef struct exl2k_meet_state { /* of each GPU, zero at first */
    exl2k_meet_flag flags[EXL2K_MEET_GPUS]; /* of each GPU, written by it */
    exl2k_u32 number; /* of the last meeting that has ended here */
    exl2k_u32 ended;  /* CTAs of this meeting that have ended */
    exl2k_u32 unused[30];
} exl2k_meet_state;

/* Copies columns. Grid: (CTAs that share a row, rows), EXL2K_MEET_THREADS. GPU i has the bytes [ends[i - 1], ends[i])
   of a row. Rows begin, and all ends lie, at multiples of 16. */
typedef struct exl2k_meet_args {
    exl2k_u64 state;                   /* exl2k_meet_state of this GPU */
    exl2k_u64 flags[EXL2K_MEET_GPUS];  /* exl2k_meet_flag of this GPU in the state of each other one */
    exl2k_u64 from[EXL2K_MEET_GPUS];   /* [rows, from_pitch] what each GPU has computed, in its memory */
    exl2k_u64 to;                      /* [rows, to_pitch] */
    exl2k_u64 stop;                    /* u32 in pinned host memory: 1: do not wait */
    exl2k_u64 map;                     /* u16 [halves of a row]: half n goes to map[n]; 0: it stays */
    exl2k_u32 ends[EXL2K_MEET_GPUS];
    exl2k_u32 count, own;              /* GPUs; the number of this one */
    exl2k_u32 from_pitch, to_pitch;    /* bytes */
} exl2k_meet_args;

/* Copies columns of the residual, and writes what products of few rows leave for the norm that follows (gemv_args.h):
   inputs of the next product, and the sums of squares of the CTAs that a residual product of all columns has, also one
   with experts. So all bits are those of one GPU. Grid: (slots / 8 rounded up, rows), EXL2K_MEET_THREADS. */
typedef struct exl2k_meet_norm_args {
    exl2k_meet_args meet;              /* from, to: the residual, f32; map: of out, u16 [hidden] or 0 */
    exl2k_u64 rows_at;                 /* address of the number of rows; 0: all rows of the grid */
    exl2k_u64 out, weight;             /* exl2k_gemv_args.out, .weight */
    exl2k_u64 sums_before, sums_out;   /* f32 [rows, EXL2K_SLOTS_MAX] */
    exl2k_u32 out_pitch, out_step;     /* elements, bytes */
    exl2k_u32 slots;                   /* slots of all sums */
    exl2k_u32 strips, slots_with_more; /* strips of each slot; number of slots that have one more */
    exl2k_u32 hidden;
    exl2k_f32 eps, inverse_hidden;
    exl2k_u32 by_lanes;                /* 1: sums_before are added up as products with experts do (expert.cuh) */
} exl2k_meet_norm_args;

#endif

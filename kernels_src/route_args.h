/* route_args.h: arguments of the kernels that choose the experts of each row.
   takes: pass_args.h.
   gives: exl2k_route_args, exl2k_route_choose_args, exl2k_route_one_args. */
#ifndef EXL2K_ROUTE_ARGS_H
#define EXL2K_ROUTE_ARGS_H

#include "pass_args.h"

#define EXL2K_ROUTE_THREADS 512
#define EXL2K_ROUTE_WARPS 16
#define EXL2K_ROUTE_QUARTERS 4u /* parts of an output's sum */
#define EXL2K_ROUTE_RUN 256u    /* consecutive inputs of a part */
#define EXL2K_ROUTE_OUTPUTS 4u  /* outputs of a CTA of exl2k_route_one */
#define EXL2K_ROUTE_LOADED 4    /* runs whose weights a warp loads before it waits: all up to 4096 inputs */
#define EXL2K_ROUTE_HELD 8      /* elements of a row that a thread holds in registers; further ones are read again */
#define EXL2K_ROUTE_ROWS 8      /* rows of a CTA of exl2k_route_many */
#define EXL2K_ROUTE_BATCH 4     /* logits that a lane loads at a time for the choice */

/* Rows of weights in their natural order. */
typedef struct exl2k_route_table {
    exl2k_u64 weights; /* [outputs, hidden] of `type` */
    exl2k_u64 bias;    /* f32 [outputs] or 0 */
    exl2k_u32 type;    /* 0: fp16, 1: bf16, 2: f32, as EXL2K_FROM_* */
    exl2k_u32 outputs;
} exl2k_route_table;

/* exl2k_route_many: grid (ceil(outputs of all tables / EXL2K_ROUTE_WARPS), ceil(rows / EXL2K_ROUTE_ROWS)), block
   EXL2K_ROUTE_THREADS. logits = norm(residual) * W + bias, in f32 throughout; out[k][map[k][n]] =
   fp16(norm(residual)[n]). The norm is RMSNorm or LayerNorm, as in settle_args.h. */
typedef struct exl2k_route_args {
    exl2k_u64 rows_at;      /* address of the number of rows; further CTAs exit */
    exl2k_u64 residual;     /* f32 [rows, hidden] */
    exl2k_u64 weight, bias; /* of the norm, f32 [hidden]; weight 0: no norm; bias 0: none */
    exl2k_route_table table[2]; /* the router; the shared expert's switch, or no outputs */
    exl2k_u64 logits;       /* f32 [rows, logits_pitch] */
    exl2k_u64 out[2];       /* fp16 [rows, out_pitch]; 0: none */
    exl2k_u64 map[2];       /* u16 [hidden]; 0: identity */
    exl2k_u32 hidden, out_pitch, logits_pitch;
    exl2k_u32 layer_norm;
    exl2k_f32 eps;
    exl2k_u32 unused;
} exl2k_route_args;

/* exl2k_route_choose: grid (rows), block of one warp, dynamic shared memory: exl2k_route_choose_bytes. Chooses the
   `active` experts of the highest scores (ties: the lowest index) of each row, ascending, and their weights. Logits
   that are not finite give weights of NaN. */
typedef struct exl2k_route_choose_args {
    exl2k_u64 rows_at;
    exl2k_u64 logits;       /* f32 [rows, logits_pitch]; with has_switch, number `count` is the switch's */
    exl2k_u64 choice_bias;  /* f32 [count], added to scores for the choice only; 0: none */
    exl2k_u64 choice;       /* u32 [rows, active] */
    exl2k_u64 weight;       /* f32 [rows, active] */
    exl2k_u64 shared;       /* f32 [rows]: sigmoid of the switch's logit; 0: there is no switch */
    exl2k_u32 logits_pitch, count, active;
    exl2k_u32 sigmoid;      /* scores are sigmoids of logits, else their softmax */
    exl2k_u32 renormalized;
    exl2k_u32 groups, groups_active; /* experts are chosen from the groups whose two best scores have the largest
                                        sums */
    exl2k_f32 scale;
} exl2k_route_choose_args;

/* Scores, scores with the bias for the choice, bits of experts and of groups. */
static inline exl2k_u32 exl2k_route_choose_bytes(exl2k_u32 count, exl2k_u32 groups)
{
    return 8 * count + (count + 31) / 32 * 8 + groups * 4 + (groups + 31) / 32 * 4;
}

/* exl2k_route_one: both for few rows. Grid (ceil(outputs of all tables / EXL2K_ROUTE_OUTPUTS), rows), block
   EXL2K_ROUTE_THREADS, dynamic shared memory: the larger one of hidden floats, rounded up to 8, and
   exl2k_route_choose_bytes. */
typedef struct exl2k_route_one_args {
    exl2k_route_args route;
    exl2k_route_choose_args choose;
    exl2k_u64 tickets; /* u32 [rows]; 0 between launches */
} exl2k_route_one_args;

#endif

/* sample_args.h: arguments of the kernels that draw tokens.
   takes: pass_args.h.
   gives: exl2k_sample_args, sizes of its scratch.
   owns:  nothing.
   next:  sample.cu */
#ifndef EXL2K_SAMPLE_ARGS_H
#define EXL2K_SAMPLE_ARGS_H

#include "pass_args.h"

#ifndef EXL2K_SAMPLE_THREADS
#define EXL2K_SAMPLE_THREADS 256
#endif
#define EXL2K_SAMPLE_CHUNK 4096 /* logits of a CTA */
#define EXL2K_SAMPLE_BLOCK 64   /* logits of which the largest key and the sum of weights are kept */
#define EXL2K_SAMPLE_BINS 2048  /* of weights, 64 an octave; the last has what weighs less than 2^-32 of the largest */

/* Both kernels: grid (ceil(vocab / CHUNK), rows of logits), block THREADS. exl2k_sample_keys, then
   exl2k_sample_token. C chunks, B = C * 64 blocks, R = rows that the launch has. */
/* Of a row; zero once, and again when the row is done. */
typedef struct exl2k_sample_state {
    exl2k_u64 best[2]; /* (key + 2^31) << 32 | ~id, the largest: of the logits, of the draw */
    exl2k_u64 sum[2];  /* of all weights: at temperature 1, of the draw */
    exl2k_u32 ticket, unused; /* CTAs that have come */
} exl2k_sample_state;

/* Of a row that asks for top-p of everything; zero once, and again when the row is done. */
typedef struct exl2k_sample_bins {
    exl2k_u64 weights[EXL2K_SAMPLE_BINS];
    exl2k_u32 counts[EXL2K_SAMPLE_BINS];
} exl2k_sample_bins;

typedef struct exl2k_sample_args {
    exl2k_u64 pass;       /* exl2k_pass */
    exl2k_u64 rows;       /* exl2k_row [rows] */
    exl2k_u64 samplings;      /* exl2k_sampling [R] */
    exl2k_u64 logits;     /* f32 [R, stride]; stays as it is */
    exl2k_u64 adjusted;   /* f32 [R, stride]: with penalty and bias; written where a row has them */
    exl2k_u64 keys;       /* i32 [R, 2, B]: largest keys of logits and of adjusted */
    exl2k_u64 sums;       /* u64 [R, B]: sums of the draw's weights */
    exl2k_u64 states;     /* exl2k_sample_state [R], zero once */
    exl2k_u64 bins;       /* exl2k_sample_bins [R], zero once */
    exl2k_u64 results;    /* exl2k_result [EXL2K_RESULT_SETS, R]: of tickets by their lowest bits */
    exl2k_u32 vocab, stride; /* stride: a multiple of 64, in floats; vocab <= 2^24 */
    exl2k_u32 rows_max;   /* R */
    exl2k_u32 unused;
} exl2k_sample_args;

#endif

/* sample_args.h: arguments of the kernels that sample tokens.
   takes: pass_args.h.
   gives: exl2k_sample_args, exl2k_sample_state, exl2k_sample_bins. */
#ifndef EXL2K_SAMPLE_ARGS_H
#define EXL2K_SAMPLE_ARGS_H

#include "pass_args.h"

#ifndef EXL2K_SAMPLE_THREADS
#define EXL2K_SAMPLE_THREADS 256
#endif
#define EXL2K_SAMPLE_CHUNK 4096 /* logits of a chunk */
#define EXL2K_SAMPLE_BLOCK 64   /* logits per block; each block has its largest key and its sum of weights */
/* Bins of weights, 64 per octave; the last bin has all weights below 2^-32 of the largest. */
#define EXL2K_SAMPLE_BINS 2048

/* exl2k_sample_keys: grid (chunks, rows of logits), block THREADS. Then exl2k_sample_token: grid (1 to chunks, rows of
   logits); a CTA has every gridDim.x-th chunk of its row. Below, B = chunks * 64 blocks, R = rows of the launch. */
/* State of a row: zero at first, and reset to zero when the row is done. */
typedef struct exl2k_sample_state {
    exl2k_u64 best[2];        /* the largest (key + 2^31) << 32 | ~id: [0] of the logits, [1] of the adjusted logits */
    exl2k_u64 sum[2];         /* sum of all weights: [0] at temperature 1, [1] at the row's temperature */
    exl2k_u32 ticket, unused; /* CTAs that have finished their chunks */
} exl2k_sample_state;

/* Bins of a row that uses top-p without top-k: zero at first, and reset to zero when the row is done. */
typedef struct exl2k_sample_bins {
    exl2k_u64 weights[EXL2K_SAMPLE_BINS];
    exl2k_u32 counts[EXL2K_SAMPLE_BINS];
} exl2k_sample_bins;

typedef struct exl2k_sample_args {
    exl2k_u64 pass;          /* exl2k_pass */
    exl2k_u64 rows;          /* exl2k_row [rows] */
    exl2k_u64 samplings;     /* exl2k_sampling [R] */
    exl2k_u64 logits;        /* f32 [R, stride]; never modified */
    exl2k_u64 adjusted; /* f32 [R, stride]: logits with mask, penalty and bias; written only for rows that use them */
    exl2k_u64 keys;          /* i32 [R, 2, B]: largest key of each block, of the logits and of the adjusted logits */
    exl2k_u64 sums;          /* u64 [R, B]: sum of the weights of each block */
    exl2k_u64 states;        /* exl2k_sample_state [R], zero at first */
    exl2k_u64 bins;          /* exl2k_sample_bins [R], zero at first */
    exl2k_u64 results;       /* exl2k_result [EXL2K_RESULT_SETS, R]: the set is ticket % EXL2K_RESULT_SETS */
    exl2k_u32 vocab, stride; /* stride: a multiple of 64, in floats; vocab <= 2^24 */
    exl2k_u32 rows_max;      /* R */
    exl2k_u32 chunks;        /* of a row: ceil(vocab / CHUNK) */
} exl2k_sample_args;

#endif

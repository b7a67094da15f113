/* pass_args.h: what changes from pass to pass, in device memory at fixed addresses, so that graphs stay as they are.
   takes: types.h; the host uploads it, the kernels of `sample` advance it.
   gives: exl2k_pass, exl2k_row, exl2k_tile, exl2k_sampling, exl2k_bias, exl2k_result.
   owns:  nothing.
   next:  embed_args.h

   RUN-AHEAD. A draw with EXL2K_ADVANCE writes its token into its row and moves the row one position on, so that the
   next pass may be queued before the host knows the token. The page of that position must be in the table already.
   A row whose draw was the last (stop token, no tokens left, nothing allowed) gets EXL2K_ROW_DONE and is from then on
   not there: nothing of it is read or written but its result, which says EXL2K_NO_TOKEN. */
#ifndef EXL2K_PASS_ARGS_H
#define EXL2K_PASS_ARGS_H

#include "types.h"

#define EXL2K_PAGE_TOKENS 64 /* tokens of a KV page */
#define EXL2K_ALTS_MAX 64
#define EXL2K_NO_TOKEN 0xFFFFFFFFu
#define EXL2K_RESULT_SETS 4u /* samplings whose results are kept: three may be under way */

/* The head of a pass; one per model. 48 bytes, at a multiple of 16. */
typedef struct exl2k_pass {
    exl2k_u32 row_count;   /* rows of the pass; launches may be made for more, which then leave */
    exl2k_u32 logit_count;  /* rows of logits */
    exl2k_u32 tile_count;  /* attend_prefill: tiles */
    exl2k_u32 table_pitch; /* of the page tables: pages of a line */
    exl2k_u64 tables;      /* u32 [sequences, table_pitch]: page numbers */
    exl2k_u64 tiles;       /* exl2k_tile [tile_count] */
    exl2k_u32 ticket;      /* number of the sampling; the last row to be sampled adds 1 */
    exl2k_u32 sampled;     /* rows sampled so far; 0 between passes */
    exl2k_u32 unused[2];
} exl2k_pass;

#define EXL2K_ROW_DONE 1u

/* One position of one sequence. Rows of a sequence are neighbours and ascend. */
typedef struct exl2k_row {
    exl2k_u32 token, position;
    exl2k_u32 sequence; /* line of the page tables */
    exl2k_u32 flags;
} exl2k_row;

/* 128 pairs (row, query head of one K/V head), counted row by row, of one sequence: pairs [pair, pair + 128) of its
   rows [row, row + rows). */
typedef struct exl2k_tile {
    exl2k_u32 row, rows, pair, unused;
} exl2k_tile;

typedef struct exl2k_bias {
    exl2k_u32 token;
    exl2k_f32 add;
} exl2k_bias;

enum { EXL2K_SAMPLE, EXL2K_SCORE };

/* Bits of exl2k_sampling.flags. */
#define EXL2K_GREEDY 1u
#define EXL2K_TOP_P 2u
#define EXL2K_ADVANCE 4u

/* How a row of logits becomes a token: exl2__logit_row and exl2__sampling, with all that needs a quotient or a double
   already computed. 128 bytes. */
typedef struct exl2k_sampling {
    exl2k_u32 row;                   /* of the pass */
    exl2k_u32 use;                   /* EXL2K_SAMPLE, EXL2K_SCORE */
    exl2k_u32 target;                /* SCORE */
    exl2k_u32 alts;                  /* at most EXL2K_ALTS_MAX */
    exl2k_u32 flags, top_k;
    exl2k_f32 slope;                 /* of exl2__weight_curve_make */
    exl2k_f32 penalty, penalty_inverse; /* 1, 1: off */
    exl2k_u32 left;                  /* ADVANCE: tokens that may still be drawn */
    exl2k_u32 history_count, history_size, history_next; /* ring: tokens in it, its size, where the next one goes */
    exl2k_u32 bias_count, unused[2];
    exl2k_u64 seed, position;        /* of the random number; ADVANCE adds 1 to the position */
    exl2k_u64 top_p;                 /* TOP_P: floor(top_p * 2^32) * 2^32 */
    exl2k_u64 least_weight;          /* max(1, floor(min_p * 2^40)) */
    exl2k_u64 history;               /* u32 [history_size] */
    exl2k_u64 bias;                  /* exl2k_bias [bias_count] */
    exl2k_u64 mask;                  /* u32 [ceil(vocab / 32)]: a bit for each token that may be drawn; 0 = all may */
    exl2k_u64 unused_address;
} exl2k_sampling;

typedef struct exl2k_result_alt {
    exl2k_u32 token;
    exl2k_f32 logit; /* before penalty and bias */
} exl2k_result_alt;

/* What the host reads, in pinned host memory. Probabilities are made of the integers by the host, so that they too are
   those of the CPU backend. */
typedef struct exl2k_result {
    exl2k_u64 stamp;     /* written last: token | (ticket + 1) << 32 */
    exl2k_u64 sum;       /* weights of the row at temperature 1, before penalty and bias */
    int top_key;         /* largest key of it */
    exl2k_f32 logit;     /* of the token, before penalty and bias */
    exl2k_u32 alt_count, unused;
    exl2k_result_alt alts[EXL2K_ALTS_MAX];
} exl2k_result;

#endif

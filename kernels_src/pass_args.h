/* pass_args.h: data that changes from pass to pass. It lies at fixed addresses in device memory, so that CUDA graphs
   need no update.
   takes: types.h. The backend uploads this data, and the kernels of phase `sample` advance it.
   gives: exl2k_pass, exl2k_row, exl2k_tile, exl2k_sampling, exl2k_bias, exl2k_result.

   RUN-AHEAD. A sampling with EXL2K_ADVANCE writes its token into its row and moves the row to the next position, so
   that the backend can enqueue the next pass before the CPU knows the token. The page of that position must already be
   in the page table. When a row has sampled its last token (a stop token, no tokens left, or no token allowed), the
   row gets EXL2K_ROW_DONE. From then on all kernels skip the row, except that its result says EXL2K_NO_TOKEN. */
#ifndef EXL2K_PASS_ARGS_H
#define EXL2K_PASS_ARGS_H

#include "types.h"

#define EXL2K_PAGE_TOKENS 64 /* tokens in a KV page */
#define EXL2K_ALTS_MAX 64
#define EXL2K_NO_TOKEN 0xFFFFFFFFu
#define EXL2K_RESULT_SETS 4u /* passes whose results are kept; three passes may be in flight */

/* The header of a pass; one per model. 48 bytes, aligned to 16 bytes. */
typedef struct exl2k_pass {
    exl2k_u32 row_count;   /* rows of the pass; a launch may have CTAs for more rows, and those CTAs exit */
    exl2k_u32 logit_count; /* rows of the pass that want logits */
    exl2k_u32 tile_count;  /* number of tiles for attend_prefill */
    exl2k_u32 table_pitch; /* pages in one line of the page tables */
    exl2k_u64 tables;      /* u32 [sequences, table_pitch]: page numbers */
    exl2k_u64 tiles;       /* exl2k_tile [tile_count] */
    exl2k_u32 ticket;      /* number of this pass's sampling; the last row to be sampled adds 1 */
    exl2k_u32 sampled;     /* rows sampled so far; 0 between passes */
    exl2k_u32 unused[2];
} exl2k_pass;

#define EXL2K_ROW_DONE 1u
/* The bits from EXL2K_ROW_MOVED on are a signed number. With EXL2K_ROW_LATER the row attends to so many later
   positions, too; else its angle is that of its position and this number, as after a picture or a video. */
#define EXL2K_ROW_MOVED 8
#define EXL2K_ROW_LATER 4u
#define EXL2K_ROW_VECTOR 2u /* the row's input is no token: the backend has put it into the row's residual */

/* One position of one sequence. Rows of a sequence are adjacent, in ascending order of positions. */
typedef struct exl2k_row {
    exl2k_u32 token, position;
    exl2k_u32 sequence; /* line of the page tables */
    exl2k_u32 flags;
} exl2k_row;

/* 128 pairs (row, query head of one K/V head) of one sequence, counted row by row. The tile holds pairs [pair, pair
   + 128) of the sequence's rows [row, row + rows). */
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

/* The sampling settings of a row of logits: exl2__logit_row and exl2__sampling, with every value that needs a
   division or double precision computed in advance. 128 bytes. */
typedef struct exl2k_sampling {
    exl2k_u32 row;                      /* index of the row in the pass */
    exl2k_u32 use;                      /* EXL2K_SAMPLE or EXL2K_SCORE */
    exl2k_u32 target;                   /* SCORE: the token whose logit is reported */
    exl2k_u32 alts;                     /* alternatives to report, at most EXL2K_ALTS_MAX */
    exl2k_u32 flags, top_k;
    exl2k_f32 slope;                    /* slope of the weight curve, from exl2__weight_curve_make */
    exl2k_f32 penalty, penalty_inverse; /* 1 and 1: no penalty */
    exl2k_u32 left;                     /* ADVANCE: tokens that may still be sampled */
    exl2k_u32 history_count, history_size, history_next; /* ring buffer: tokens in it, its size, index of the next
                                                            write */
    exl2k_u32 bias_count, unused[2];
    exl2k_u64 seed, position;           /* input of the random number; ADVANCE adds 1 to the position */
    exl2k_u64 top_p;                    /* TOP_P: floor(top_p * 2^32) * 2^32 */
    exl2k_u64 least_weight;             /* min-p: max(1, floor(min_p * 2^40)) */
    exl2k_u64 history;                  /* u32 [history_size] */
    exl2k_u64 bias;                     /* exl2k_bias [bias_count] */
    exl2k_u64 mask;                     /* u32 [ceil(vocab / 32)]: a bit for each allowed token; 0: all are allowed */
    exl2k_u64 unused_address;
} exl2k_sampling;

typedef struct exl2k_result_alt {
    exl2k_u32 token;
    exl2k_f32 logit; /* before penalty and bias */
} exl2k_result_alt;

/* The result that the CPU reads, in pinned host memory. The CPU computes probabilities from these integers, so that
   they equal the probabilities of the CPU backend. */
typedef struct exl2k_result {
    exl2k_u64 stamp; /* written last: token | (ticket + 1) << 32 */
    exl2k_u64 sum;   /* sum of the row's weights at temperature 1, before penalty and bias */
    int top_key;     /* the row's largest key, before penalty and bias */
    exl2k_f32 logit; /* logit of the token, before penalty and bias */
    exl2k_u32 alt_count, unused;
    exl2k_result_alt alts[EXL2K_ALTS_MAX];
} exl2k_result;

#endif

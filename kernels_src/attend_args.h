/* attend_args.h: arguments of attention. In decode a CTA has one query row, in prefill a tile of rows.
   takes: pass_args.h.
   gives: exl2k_attend_args, exl2k_turn_args, exl2k_prepare_args.

   PAGES   of one layer: fp16 K [kv_heads][64][dim], then V with the same shape; page p lies at pages + p * page_bytes.
   PAIRS   RoPE rotates dim / 2 pairs of elements of a head. Pair i has elements i and i + rope_split if i < rope_split,
           otherwise 2i and 2i + 1. Rotating halves: rope_split = dim / 2. Rotating only the first r elements, in
           halves: r / 2, with an angle of 0 in the pairs from r / 2 on. Rotating neighbours: 0.
           K lies in its page with the two elements of pair i at i and i + dim / 2, and q is read into the same order,
           so that scores do not depend on the order.
   CODES   Pages of a quantized cache; cpu_codes.h says what codes and scales mean. A page has for each K/V head: codes
           of K [64][groups][4 * key_bits bytes], those of V with value_bits, fp16 scales of K [groups][64], those of V;
           groups: ceil(dim / 32). A code is stored plus 2^(bits - 1). Of 8 elements of a group the codes of elements 0,
           2, 4, 6 come first, then those of 1, 3, 5, 7, each from the lowest bits on: four codes are what a lane has of
           a token in an MMA. Elements are in the order of PAIRS. K and V are quantized as the halves that PAGES would
           hold.
   WINDOW  A row at position p attends to its last min(p + 1, window) tokens. Pages without such tokens are not read.
   LATER   In prefill a row may attend to so many tokens after its own, too, all of which have rows in the pass or
           before (EXL2K_ROW_MOVED). The last token that a row attends to never falls from one row of a tile to the next
           one, and the rows of a warp attend up to tokens at most 15 apart.
   SPLITS  Up to EXL2K_SPLIT_SINGLE of a row's tokens form one split. With more tokens each split has
           EXL2K_SPLIT_TOKENS, or tokens / 16 rounded up to a multiple of 64 if that is larger. There are at most 16
           splits, and a row's sums do not depend on the launch: 200 tokens are one split, 1,000 are 8 of 128, 5,000 are
           16 of 320. With a window the first split begins up to 15 tokens earlier, at a multiple of 16, without
           attending to these tokens, and the last one may be as much longer. A launch may have more splits than its
           rows need. */
#ifndef EXL2K_ATTEND_ARGS_H
#define EXL2K_ATTEND_ARGS_H

#include "meet_args.h"
#include "pass_args.h"

#define EXL2K_SPLITS_MAX 16u
#define EXL2K_WINDOW_MAX 0x7FFFFFFFu
#define EXL2K_ROPE_BLOCK 128u /* see rope_divided */
#ifndef EXL2K_SPLIT_TOKENS
#define EXL2K_SPLIT_TOKENS 128 /* a multiple of 64; shorter splits use more SMs, but each costs a partial sum */
#endif
#define EXL2K_SPLIT_SINGLE 256 /* adding up a second split costs more time than these tokens */
#define EXL2K_SPLIT_LENGTH(tokens)                                                                  \
    ((tokens) <= EXL2K_SPLIT_SINGLE                      ? EXL2K_SPLIT_SINGLE                       \
     : (tokens) <= EXL2K_SPLIT_TOKENS * EXL2K_SPLITS_MAX ? EXL2K_SPLIT_TOKENS                       \
                                                         : ((tokens) + 64 * EXL2K_SPLITS_MAX - 1) / \
                                                               (64 * EXL2K_SPLITS_MAX) * 64)
#ifndef EXL2K_WARPS64
#define EXL2K_WARPS64 8 /* warps in a CTA of exl2k_attend_decode64 */
#endif
#define EXL2K_WARPS128 8
#define EXL2K_WARPS256 4
#define EXL2K_CROWD_CTAS 4 /* of exl2k_attend_decode_crowd128 that run on an SM */
#define EXL2K_CLUSTER_MAX 8u /* largest number of splits that may form a cluster (sm_90 and later) */
#define EXL2K_SPLIT_EXTRA 4  /* floats after a split's sums: largest score, total, two zeros */
#define EXL2K_KEPT 16u       /* rows of a sequence whose K and V a CTA of decode keeps: its own and those before it */
#define EXL2K_CODES_GROUPS(dim) (((dim) + 31) / 32)
/* Bytes between tokens of K or V in shared memory: eight tokens lie in different banks. */
#define EXL2K_CODES_PITCH(bits, groups) (4 * (bits) * (groups) + 16)
/* Bytes of 16 tokens of K and V; groups: dims / 32, for dims = 64, 128 or 256. */
#define EXL2K_CODES_SLOT(key_bits, value_bits, groups) \
    (16 * (EXL2K_CODES_PITCH(key_bits, groups) + EXL2K_CODES_PITCH(value_bits, groups)) + 64 * (groups))
#define EXL2K_SUMS_BYTES(dims) (32u * (dims)) /* a warp's sums; dims: 64, 128 or 256 */
#define EXL2K_HEAD_TILE 8   /* query heads of a K/V head that one CTA of decode has */
#define EXL2K_INBOX_BYTES(splits, dim) ((splits) * EXL2K_HEAD_TILE * ((dim) + EXL2K_SPLIT_EXTRA) * 4)
#define EXL2K_TILE_PAIRS 128 /* pairs in an exl2k_tile */
/* Prefill; each CTA has half as many pairs as threads, a quarter as many if dim > 128. */
#define EXL2K_ATTEND_THREADS 128
/* Prefill by wgmma; dims: 64 or 128. */
#define EXL2K_ATTEND_WG_THREADS 384
#define EXL2K_ATTEND_SLOTS(dims) ((dims) == 64 ? 8u : 4u) /* blocks of 64 tokens of K, and of V, in shared memory */
#define EXL2K_ATTEND_SHARED(dims) ((3 * EXL2K_TILE_PAIRS + 128u * EXL2K_ATTEND_SLOTS(dims)) * (dims) * 2 + 1536)
#define EXL2K_QUERIES_THREADS 128
#define EXL2K_PERMUTE_MAX 16384
#define EXL2K_PERMUTE_PARTS 8
#define EXL2K_ATTEND_PARTS (2 * EXL2K_TILE_PAIRS / EXL2K_ATTEND_THREADS)

/* exl2k_attend_decode{64,128,256} (the smallest one that holds dim): grid (splits, kv_heads * H, rows) with H =
   ceil(heads / kv_heads / 8); block 256, 256, 128; dynamic shared memory warps * stages * 32 * {64,128,256} bytes.
   From sm_90 on up to EXL2K_CLUSTER_MAX splits may be launched as clusters (splits, 1, 1), with EXL2K_INBOX_BYTES
   more. Decode stores K and V of its rows itself.

   exl2k_attend_decode_few{64,128,256}: the same with the same bits, for a launch of at most EXL2K_KEPT rows without
   `norm`. Without the code for other launches it is about 1 % faster in short contexts.

   exl2k_attend_decode_crowd128: the same with the same bits on sm_90a, by CTAs half as large, of which EXL2K_CROWD_CTAS
   run on an SM: block 128, dynamic shared memory 4 * (stages + 1) * 4096 bytes, no clusters.

   exl2k_attend_codes{64,128,256}: decode from CODES, for a dim that is a multiple of 16. As above, but with
   dynamic shared memory warps * ring_bytes, without `norm`, and after exl2k_attend_quantize or with `stores`.

   exl2k_attend_quantize: grid (rows, ceil(kv_heads / 2)), block 128. Stores K and V of all rows as CODES.

   exl2k_attend_expand: grid (tiles, kv_heads, any), block 256. Before prefill from CODES: writes the pages that rows
   attend to, as PAGES, to `expanded`.

   exl2k_attend_store: grid (rows), block 256. Stores K and V of all rows, before prefill.

   exl2k_attend_store_queries: grid (rows, ceil((heads + 2 * kv_heads) * dim / 16 / EXL2K_QUERIES_THREADS)), block
   EXL2K_QUERIES_THREADS. For qkv of f32, rope_split dim / 2, and a dim that is a multiple of 16. The same, with the same
   bits, and it rotates the queries of all rows in place: the floats of elements i to i + 7 of a head (i a multiple of 8,
   below dim / 2) become 8 halves, elements i to i + 7, and 8 more, elements i + dim / 2 to i + dim / 2 + 7.

   exl2k_attend_prefill{64,128,256}: grid (tiles, kv_heads, EXL2K_ATTEND_PARTS, for dim > 128 twice that), block
   EXL2K_ATTEND_THREADS. With up to EXL2K_PERMUTE_MAX outputs it is faster to launch prefill with map 0 and
   exl2k_attend_permute after it: grid (tiles, EXL2K_PERMUTE_PARTS), block 256.

   exl2k_attend_wg{64,128}: prefill on sm_90a; dim <= 128, map and qkv_half 0. Grid: up to tiles * kv_heads CTAs, one on
   each SM; block EXL2K_ATTEND_WG_THREADS; dynamic shared memory EXL2K_ATTEND_SHARED(64 or 128). */
typedef struct exl2k_attend_args {
    exl2k_u64 pass, rows;           /* exl2k_pass, exl2k_row [rows] */
    exl2k_u64 qkv;                  /* [rows, qkv_pitch] f32 or fp16: q [heads][dim], k [kv_heads][dim], v like k;
                                       RoPE not applied yet */
    exl2k_u64 rope;                 /* f32 [positions, rope_pitch, 2]: cosine and sine of each pair of elements */
    exl2k_u64 pages;                /* pages of this layer */
    exl2k_u64 out;                  /* fp16 [rows, out_pitch]: element i of head h goes to map[h * dim + i] */
    exl2k_u64 map;                  /* u16 [heads * dim]; 0: identity */
    exl2k_u64 partial;              /* decode: f32 [rows, heads, 16, dim + EXL2K_SPLIT_EXTRA] */
    exl2k_u64 tickets;              /* decode: u32 [rows, grid y], zero at first */
    exl2k_u64 sinks;                /* f32 [heads]: exp(sink) is one more term of the sum of a head's weights; 0:
                                       none */
    exl2k_u32 qkv_pitch, out_pitch; /* elements */
    exl2k_u32 qkv_half;             /* 1: qkv is fp16 */
    exl2k_u32 page_bytes;           /* bytes of a page of one layer */
    exl2k_u32 heads, kv_heads, group, dim; /* group: heads / kv_heads; dim: a multiple of 8 */
    exl2k_u32 rope_pitch;           /* dim / 2; 0: every position has the dim / 2 angles at `rope` */
    exl2k_u32 rope_split;           /* see PAIRS */
    exl2k_u32 rope_divided;         /* 1: the lines of `rope` are the positions below EXL2K_ROPE_BLOCK, then the
                                       multiples of EXL2K_ROPE_BLOCK; 0: all positions */
    exl2k_u32 window;               /* see WINDOW; EXL2K_WINDOW_MAX: a row attends to all tokens up to its own */
    exl2k_u32 stages;               /* decode: 1 to 8: blocks of K or V (CODES: of both) that each warp has in flight */
    exl2k_f32 scale;                /* factor of scores, or of their tanh */
    exl2k_f32 tanh_scale;           /* a score becomes scale * tanh(tanh_scale * score); 0: scale * score */
    exl2k_u64 norm[2];              /* decode: weights of the RMSNorms of each head of q and of k, as in
                                       exl2k_prepare_args; 0: none, or attend_prepare has applied them */
    exl2k_f32 norm_eps;
    exl2k_u32 early;                /* 1: no kernel of the current chain of overlapping launches writes pass, rows,
                                       tables or (decode) pages, so these are read before the dependency wait; of
                                       CODES: none but exl2k_attend_quantize of this launch's rows */
    exl2k_u64 expanded;             /* pages of fp16, of one layer: page p lies at expanded + p * kv_heads * dim *
                                       256 */
    exl2k_u32 key_bits, value_bits; /* of CODES: 8 or 4 */
    exl2k_u32 ring_bytes;           /* decode from CODES: at least EXL2K_SUMS_BYTES, and stages times
                                       EXL2K_CODES_SLOT; a multiple of 16 */
    exl2k_u32 stores;               /* decode from CODES: 1: the launch has at most EXL2K_KEPT rows, and decode stores
                                       K and V itself; 0: exl2k_attend_quantize has done it */
    exl2k_u32 others;               /* decode: GPUs that get the outputs, too (peers_args.h) */
    exl2k_u64 apart[EXL2K_MEET_GPUS - 1]; /* [others] as in exl2k_peers */
    /* Several rows that other GPUs get: to their inboxes, and from this one's, fp16 [16 rows, all_columns]. */
    exl2k_u64 inbox;                /* 0: one row, which has none */
    exl2k_u64 all_out, all_map;     /* out, map of the outputs of all GPUs */
    exl2k_u64 stop;                 /* as in exl2k_peers */
    exl2k_u32 all_columns, first_column, own_columns;
    exl2k_u32 out_gap;              /* decode: bytes between 32 outputs of a row and its next 32: tiles of
                                       gemv_args.h */
    exl2k_u32 rotated;              /* exl2k_attend_wg*: 1: exl2k_attend_store_queries has rotated the queries */
} exl2k_attend_args;

/* exl2k_attend_turn: grid (rows, heads + kv_heads), block EXL2K_TURN_THREADS. Rotates q and k in place, before
   attention with angles of 0: pair i of a row by the position of the row + turns[row][axes[i]]. */
#define EXL2K_TURN_THREADS 64
typedef struct exl2k_turn_args {
    exl2k_u64 pass, rows;           /* exl2k_pass, exl2k_row [rows] */
    exl2k_u64 turns;                /* i32 [rows, 3] */
    exl2k_u64 axes;                 /* u8 [dim / 2] 0 to 2 */
    exl2k_u64 qkv;                  /* f32 [rows, pitch]: as in exl2k_attend_args */
    exl2k_u64 rope;                 /* as in exl2k_attend_args */
    exl2k_u32 rope_pitch, rope_split, rope_divided;
    exl2k_u32 pitch, dim, unused;
} exl2k_turn_args;

/* exl2k_attend_prepare: grid (rows, parts of q + parts of k + parts of v), where q, k and v have a part for each
   `part_heads` of their heads, and v has none if clip is 0; block EXL2K_PREPARE_THREADS. What q, k, v need before
   attention besides RoPE, in place, in this order: norms of q and k, bounds, growth of q. With a table of RoPE:
   bounds, RoPE, norms, growth. Launched only for layers that need one of these, and not where decode applies the norms:
   both give the same bits. */
#define EXL2K_PREPARE_THREADS 256
#define EXL2K_PREPARE_HEADS (EXL2K_PREPARE_THREADS / 32)
typedef struct exl2k_prepare_args {
    exl2k_u64 pass, rows;           /* exl2k_pass, exl2k_row [rows] */
    exl2k_u64 qkv;                  /* f32 [rows, pitch]: as in exl2k_attend_args */
    exl2k_u64 weight[2], bias[2];   /* norms of q and k: f32 [heads, dim], [kv_heads, dim]; 0: none */
    exl2k_u64 rope;                 /* as in exl2k_attend_args; 0: attention rotates */
    exl2k_u64 all;                  /* f32 [rows, all_pitch]: q and k of all heads of the model for a norm of all of
                                       them, where qkv has those of one of several GPUs; 0: qkv has all heads */
    exl2k_u32 all_pitch, all_heads, all_kv_heads, unused;
    exl2k_u32 rope_pitch, rope_split, rope_divided; /* rope_split: also without a table: the order of sums */
    exl2k_u32 pitch, heads, kv_heads, dim;
    exl2k_u32 part_heads;           /* EXL2K_PREPARE_HEADS; at least `heads` if a norm is of all heads together */
    exl2k_u32 whole, layer_norm;    /* 1: a norm is of all heads together; 1: LayerNorm, else RMSNorm */
    exl2k_f32 eps;
    exl2k_f32 clip;                 /* q, k, v are clamped to this absolute value; 0: not */
    exl2k_f32 growth, context;      /* q *= 1 + growth * ln(1 + floor(position / context)); growth 0: not */
} exl2k_prepare_args;

#endif

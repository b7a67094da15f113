/* attend_rows.cuh: attention in prefill: what its kernels share: tiles of pairs (row, query head), and the softmax.
   takes: attend.cuh; from the kernel's file: EXL2K_DIM, EXL2K_KEYS (tokens of a tile of K or V), EXL2K_PAIRS (pairs of
          a CTA) and EXL2K_PAIR_WARPS (warps that share 16 pairs, each with a part of the output).
   gives: exl2k_prefill with open; exl2k_load_queries; exl2k_rows_sums with clear and scale; exl2k_tile_cap, _mask,
          _softmax, _weights.

   Each warp has 16 pairs. A pair adds exact zeros for tokens after its own position and before its window, and decides
   alone when its sums are rescaled, so its bits do not depend on its tile. */
#ifndef EXL2K_ATTEND_ROWS_CUH
#define EXL2K_ATTEND_ROWS_CUH

#include "attend.cuh"

#define EXL2K_KV_BYTES (EXL2K_KEYS * EXL2K_TOKEN_BYTES)
#define EXL2K_STEPS (EXL2K_DIM / 16)
#define EXL2K_OUT_STEPS (EXL2K_STEPS / EXL2K_PAIR_WARPS) /* steps of 16 dims in a warp's output */

typedef struct exl2k_prefill {
    u64 table;                 /* the sequence's line of the page tables */
    u32 row;                   /* first of the sequence's rows in the pass */
    u32 group, kv_head;        /* heads / kv_heads; K/V head of the CTA */
    u32 first_pair, pairs;     /* first pair of the CTA; number of its pairs */
    u32 begin, last;           /* first and last position that any pair of the CTA attends to */
    u32 lane, slice, half;     /* the warp has pairs 16 slice .. + 15, and this half of the output */
    u32 warp_last;             /* last position of the warp's last pair; that of its first pair is at most 15 less */
    u32 warp_window;           /* positions that the warp's last pair attends to, up to its last one */
    u32 position[2], window[2]; /* the same of this lane's pairs g and g + 8 */
} exl2k_prefill;

typedef struct exl2k_rows_sums { /* lane 4g + t has pairs g and g + 8 */
    f32 out[2 * EXL2K_OUT_STEPS][4]; /* dims 8n + 2t, + 1 of pair g, then of pair g + 8 */
    f32 max_score[2], total[2];      /* max_score: reference score (see EXL2K_GROWTH), times log2(e) */
} exl2k_rows_sums;

/* Row in the pass of a pair of this CTA. */
EXL2K_FN u32 exl2k_pair_row(const exl2k_prefill &p, u32 pair) { return p.row + (p.first_pair + pair) / p.group; }

EXL2K_FN u32 exl2k_pair_head(const exl2k_prefill &p, u32 pair)
{
    return p.kv_head * p.group + (p.first_pair + pair) % p.group;
}

EXL2K_FN u32 exl2k_row_position(const exl2k_attend_args &a, u32 row)
{
    return exl2k_load(a.rows + row * sizeof(exl2k_row) + 4);
}

/* Number of positions after its own that a row attends to. */
EXL2K_FN u32 exl2k_row_later(const exl2k_attend_args &a, u32 row)
{
    u32 flags = exl2k_load(a.rows + row * sizeof(exl2k_row) + 12);
    return flags & EXL2K_ROW_LATER ? flags >> EXL2K_ROW_MOVED : 0;
}

/* Finds part `part` of a tile, for a K/V head; false: there is none. The last tiles of a sequence have the most tokens,
   so they are the first ones. */
EXL2K_FN bool exl2k_prefill_open(exl2k_prefill &p, const exl2k_attend_args &a, u32 index, u32 kv_head, u32 part)
{
    uint4 counts = exl2k_load4(a.pass), addresses = exl2k_load4(a.pass + 16);
    if (index >= counts.z) {
        return false;
    }
    u64 tiles = addresses.z | (u64)addresses.w << 32;
    uint4 tile = exl2k_load4(tiles + (u64)(counts.z - 1 - index) * sizeof(exl2k_tile));
    p.row = tile.x;
    p.group = a.group;
    p.kv_head = kv_head;
    p.first_pair = tile.z + part * EXL2K_PAIRS;
    u32 all = tile.y * p.group;
    if (p.first_pair >= all) {
        return false;
    }
    /* Find the pairs of this CTA, and the last position that they attend to. */
    p.pairs = exl2k_min(all - p.first_pair, EXL2K_PAIRS);
    p.table = exl2k_table_line(a, exl2k_load(a.rows + p.row * sizeof(exl2k_row) + 8));
    u32 last_row = exl2k_pair_row(p, p.pairs - 1);
    p.last = exl2k_row_position(a, last_row) + exl2k_row_later(a, last_row);
    p.begin = exl2k_window_begin(a, exl2k_row_position(a, exl2k_pair_row(p, 0))) / EXL2K_KEYS * EXL2K_KEYS;
    return true;
}

/* Loads the warp's queries into registers, as A operands. */
EXL2K_FN void exl2k_load_queries(const exl2k_prefill &p, u32 query[EXL2K_STEPS][4], u32 from)
{
#pragma unroll
    for (u32 k = 0; k < EXL2K_STEPS; k++) {
        uint4 tile = exl2k_ldmatrix4(exl2k_tile_rows(from + p.slice * 16 * EXL2K_TOKEN_BYTES, k));
        query[k][0] = tile.x;
        query[k][1] = tile.y;
        query[k][2] = tile.z;
        query[k][3] = tile.w;
    }
}

/* Caps the scores of a tile, before they are scaled. */
EXL2K_FN void exl2k_tile_cap(f32 score[EXL2K_KEYS / 8][4], f32 tanh_scale)
{
#pragma unroll
    for (u32 n = 0; n < EXL2K_KEYS / 8; n++) {
        for (u32 i = 0; i < 4; i++) {
            score[n][i] = exl2k_tanh(score[n][i] * (tanh_scale * 2.0f * EXL2K_LOG2E));
        }
    }
}

/* Masks the scores of tokens after a pair's last one and before its window; the tile begins at token `first`. */
EXL2K_FN void exl2k_tile_mask(const exl2k_prefill &p, f32 score[EXL2K_KEYS / 8][4], u32 first)
{
#pragma unroll
    for (u32 n = 0; n < EXL2K_KEYS / 8; n++) {
        for (u32 i = 0; i < 4; i++) {
            u32 key = first + 8 * n + 2 * (p.lane % 4) + (i & 1);
            score[n][i] = p.position[i / 2] - key < p.window[i / 2] ? score[n][i] : EXL2K_MINUS_INF;
        }
    }
}

/* The sums are rescaled only if a pair's largest score exceeds the reference score by more than this; weights are
   therefore at most 2^8. */
#define EXL2K_GROWTH 8.0f
/* The first reference score: finite, because a pair's first tiles may be masked as a whole, and below any score. */
#define EXL2K_MIN_SCORE -1e30f

EXL2K_FN void exl2k_sums_clear(exl2k_rows_sums &s)
{
#pragma unroll
    for (u32 n = 0; n < 2 * EXL2K_OUT_STEPS; n++) {
        for (u32 i = 0; i < 4; i++) {
            s.out[n][i] = 0.0f;
        }
    }
    s.max_score[0] = s.max_score[1] = EXL2K_MIN_SCORE;
    s.total[0] = s.total[1] = 0.0f;
}

/* New reference scores. max_score: this lane's largest scores. A pair's largest score is the maximum over four lanes,
   and each pair decides for itself whether its reference score changes. factor: what its outputs are multiplied by. */
EXL2K_FN void exl2k_sums_grow(exl2k_rows_sums &s, const f32 max_score[2], f32 factor[2])
{
    for (u32 j = 0; j < 2; j++) {
        f32 now = fmaxf(max_score[j], __shfl_xor_sync(EXL2K_ALL, max_score[j], 1));
        now = fmaxf(now, __shfl_xor_sync(EXL2K_ALL, now, 2));
        now = now > s.max_score[j] + EXL2K_GROWTH ? now : s.max_score[j];
        factor[j] = exl2k_exp2(s.max_score[j] - now);
        s.total[j] *= factor[j];
        s.max_score[j] = now;
    }
}

EXL2K_FN void exl2k_sums_scale(exl2k_rows_sums &s, const f32 factor[2])
{
#pragma unroll
    for (u32 n = 0; n < 2 * EXL2K_OUT_STEPS; n++) {
        for (u32 i = 0; i < 4; i++) {
            s.out[n][i] *= factor[i / 2];
        }
    }
}

/* Turns the scores of a tile into weights relative to s.max_score. True: the outputs so far must be scaled by
   `factor`. */
EXL2K_FN bool exl2k_tile_softmax(exl2k_rows_sums &s, f32 score[EXL2K_KEYS / 8][4], f32 scale, f32 factor[2])
{
    f32 max_score[2];
    /* Find the largest score of each of the lane's pairs, and whether it has grown too much. */
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        max_score[j] = fmaxf(score[0][2 * j], score[0][2 * j + 1]);
#pragma unroll
        for (u32 n = 1; n < EXL2K_KEYS / 8; n++) {
            max_score[j] = fmaxf(max_score[j], fmaxf(score[n][2 * j], score[n][2 * j + 1]));
        }
        max_score[j] *= scale;
    }
    bool grown = __any_sync(EXL2K_ALL, max_score[0] > s.max_score[0] + EXL2K_GROWTH ||
                                           max_score[1] > s.max_score[1] + EXL2K_GROWTH);
    if (grown) {
        exl2k_sums_grow(s, max_score, factor);
    }
    /* Compute the weights, and add them to their sums. */
#pragma unroll
    for (u32 n = 0; n < EXL2K_KEYS / 8; n++) {
        for (u32 i = 0; i < 4; i++) {
            score[n][i] = exl2k_exp2(fmaf(score[n][i], scale, -s.max_score[i / 2]));
            s.total[i / 2] += score[n][i];
        }
    }
    return grown;
}

/* The weights of tokens 16 m .. + 15 as an A operand. */
EXL2K_FN void exl2k_tile_weights(const f32 weight[EXL2K_KEYS / 8][4], u32 m, u32 operand[4])
{
    operand[0] = exl2k_pack_f16(weight[2 * m][0], weight[2 * m][1]);
    operand[1] = exl2k_pack_f16(weight[2 * m][2], weight[2 * m][3]);
    operand[2] = exl2k_pack_f16(weight[2 * m + 1][0], weight[2 * m + 1][1]);
    operand[3] = exl2k_pack_f16(weight[2 * m + 1][2], weight[2 * m + 1][3]);
}

#endif

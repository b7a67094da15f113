/* attend_prefill.cuh: attention in prefill: tiles of 128 pairs (row, query head) that share a K/V head.
   takes: attend_rows.cuh; EXL2K_DIM and EXL2K_PREFILL (the kernel's name) from the file that includes it; pages that
          already hold K and V of the pass.
   gives: the kernel EXL2K_PREFILL.

   Each warp has 16 pairs, from their queries (in registers) to their outputs. K and V are loaded in tiles of 4,096
   elements each; the next tile is in flight while the warps work on the current one. With 256 dims two warps share 16
   pairs and each has half of the output. */
#ifndef EXL2K_ATTEND_PREFILL_CUH
#define EXL2K_ATTEND_PREFILL_CUH

#include "attend_args.h"

#define EXL2K_PREFILL_THREADS (u32)EXL2K_ATTEND_THREADS
#define EXL2K_PAIR_WARPS (EXL2K_DIM == 256 ? 2u : 1u) /* warps that share the same pairs */
#define EXL2K_PAIRS (EXL2K_PREFILL_THREADS / 2 / EXL2K_PAIR_WARPS) /* pairs of the CTA */
#ifndef EXL2K_PREFILL_CTAS
#define EXL2K_PREFILL_CTAS /* CTAs per SM that the registers allow */                                               \
    (EXL2K_DIM == 64 || (EXL2K_DIM == 128 && __CUDA_ARCH__ >= 800 && __CUDA_ARCH__ < 900) ? 3 : 2)
#endif
#define EXL2K_KEYS (4096u / EXL2K_DIM)              /* tokens of a tile of K or V: 64, 32, 16 */

#include "attend_rows.cuh"

/* Finds the work of this CTA and warp; false: there is none. */
EXL2K_FN bool exl2k_prefill_find(exl2k_prefill &p, const exl2k_attend_args &a)
{
    if (!exl2k_prefill_open(p, a, blockIdx.x, blockIdx.y, blockIdx.z)) {
        return false;
    }
    p.lane = threadIdx.x % 32;
    p.slice = threadIdx.x / 32 / EXL2K_PAIR_WARPS;
    p.half = threadIdx.x / 32 % EXL2K_PAIR_WARPS;
    /* Load the positions of the warp's pairs. */
    u32 warp_row = exl2k_pair_row(p, exl2k_min(p.slice * 16 + 15, p.pairs - 1)),
        warp_later = exl2k_row_later(a, warp_row);
    p.warp_last = exl2k_row_position(a, warp_row) + warp_later;
    p.warp_window = a.window + warp_later;
    for (u32 j = 0; j < 2; j++) {
        u32 pair = p.slice * 16 + p.lane / 4 + 8 * j, row = pair < p.pairs ? exl2k_pair_row(p, pair) : warp_row;
        u32 later = exl2k_row_later(a, row);
        p.position[j] = exl2k_row_position(a, row) + later;
        p.window[j] = a.window + later;
    }
    return true;
}

#define EXL2K_QUERY_BATCH 8u

/* Stores the rotated queries of the CTA in shared memory, where K and V will be later. Missing pairs become zeros.
   The warps divide the pairs among them, and each warp handles eight pairs at a time. */
EXL2K_FN void exl2k_stage_queries(const exl2k_prefill &p, const exl2k_attend_args &a, u32 to)
{
    u32 half = a.dim / 2;
    for (u32 first = threadIdx.x / 32; first < EXL2K_PAIRS; first += EXL2K_QUERY_BATCH * EXL2K_PREFILL_THREADS / 32) {
        /* Find row, position and first feature of each of the eight pairs. */
        u32 rows[EXL2K_QUERY_BATCH], positions[EXL2K_QUERY_BATCH], features[EXL2K_QUERY_BATCH];
#pragma unroll
        for (u32 j = 0; j < EXL2K_QUERY_BATCH; j++) {
            u32 pair = exl2k_min(first + j * EXL2K_PREFILL_THREADS / 32, p.pairs - 1);
            rows[j] = exl2k_pair_row(p, pair);
            positions[j] = exl2k_row_position(a, rows[j]);
            features[j] = exl2k_pair_head(p, pair) * a.dim;
        }
        for (u32 i = p.lane; i < EXL2K_DIM / 2; i += 32) {
            exl2k_rope_input inputs[EXL2K_QUERY_BATCH];
            bool inside = i < half; /* dims from dim to EXL2K_DIM become zeros, in pairs like the others */
            u32 second = inside ? i + half : i + EXL2K_DIM / 2, from = inside ? i : i + half;
            /* All loads are issued first, then all pairs are rotated. */
#pragma unroll
            for (u32 j = 0; j < EXL2K_QUERY_BATCH; j++) {
                inputs[j] = exl2k_rope_load(a, rows[j], positions[j], features[j], inside ? i : 0);
            }
#pragma unroll
            for (u32 j = 0; j < EXL2K_QUERY_BATCH; j++) {
                u32 pair = first + j * EXL2K_PREFILL_THREADS / 32;
                u32 both = inside && pair < p.pairs ? exl2k_rope_apply(inputs[j]) : 0;
                exl2k_shared_store_u16(to + exl2k_tile_element(pair, from), both);
                exl2k_shared_store_u16(to + exl2k_tile_element(pair, second), both >> 16);
            }
        }
    }
}

/* Starts to copy K and V of tokens [first, first + KEYS), which lie in one page. Tokens after the last become zeros. */
EXL2K_FN void exl2k_load_tile(const exl2k_prefill &p, const exl2k_attend_args &a, u32 first, u32 page, u32 to)
{
    if (first <= p.last) {
        /* Each thread copies one piece of several tokens, of K and of V. */
        u32 piece = threadIdx.x % EXL2K_PIECES, line = threadIdx.x / EXL2K_PIECES;
        u64 from = exl2k_page_of(a, page, p.kv_head) + (u64)(first % EXL2K_PAGE_TOKENS) * a.dim * 2;
        u64 offset = exl2k_value_offset(a);
#pragma unroll
        for (u32 i = 0; i < EXL2K_KEYS; i += EXL2K_PREFILL_THREADS / EXL2K_PIECES) {
            u32 at = to + exl2k_tile_at(line + i, piece);
            bool valid = piece * 8 < a.dim && first + line + i <= p.last;
            u64 token = from + (u64)(line + i) * a.dim * 2 + (valid ? piece : 0) * 16;
            exl2k_copy16_or_zeros(at, token, valid);
            exl2k_copy16_or_zeros(at + EXL2K_KV_BYTES, token + offset, valid);
        }
    }
    exl2k_copy_commit();
}

EXL2K_FN u32 exl2k_tile_page(const exl2k_prefill &p, u32 first)
{
    return first <= p.last ? exl2k_load(p.table + first / EXL2K_PAGE_TOKENS * 4) : 0;
}

/* Scores of a tile. score[n]: keys 8n + 2t, + 1 of pair g, then of pair g + 8. */
EXL2K_FN void exl2k_tile_scores(f32 score[EXL2K_KEYS / 8][4], const u32 query[EXL2K_STEPS][4], u32 keys)
{
#pragma unroll
    for (u32 n = 0; n < EXL2K_KEYS / 8; n++) {
        for (u32 j = 0; j < 4; j++) {
            score[n][j] = 0.0f;
        }
    }
    /* K is the B operand: each load gives 16 dims of 16 tokens. */
#pragma unroll
    for (u32 k = 0; k < EXL2K_STEPS; k++) {
#pragma unroll
        for (u32 n = 0; n < EXL2K_KEYS / 16; n++) {
            uint4 tile = exl2k_ldmatrix4(exl2k_tile_columns(keys + n * 16 * EXL2K_TOKEN_BYTES, k));
            exl2k_mma(score[2 * n], query[k], tile.x, tile.y);
            exl2k_mma(score[2 * n + 1], query[k], tile.z, tile.w);
        }
    }
}

/* Adds the weighted sum of a tile's V to the output. */
EXL2K_FN void exl2k_tile_weighted_sum(const exl2k_prefill &p, exl2k_rows_sums &s, f32 weight[EXL2K_KEYS / 8][4],
                                      u32 values)
{
    /* The weights of 16 tokens are an A operand; V gives the B operands. */
#pragma unroll
    for (u32 m = 0; m < EXL2K_KEYS / 16; m++) {
        u32 rows[4];
        exl2k_tile_weights(weight, m, rows);
#pragma unroll
        for (u32 k = 0; k < EXL2K_OUT_STEPS; k++) {
            u32 step = p.half * EXL2K_OUT_STEPS + k;
            uint4 tile = exl2k_ldmatrix4_transposed(exl2k_tile_rows(values + m * 16 * EXL2K_TOKEN_BYTES, step));
            exl2k_mma(s.out[2 * k], rows, tile.x, tile.y);
            exl2k_mma(s.out[2 * k + 1], rows, tile.z, tile.w);
        }
    }
}

/* Divides the outputs by the sums of weights, and stores them. */
EXL2K_FN void exl2k_prefill_store(const exl2k_prefill &p, const exl2k_attend_args &a, exl2k_rows_sums &s)
{
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        u32 pair = p.slice * 16 + p.lane / 4 + 8 * j;
        /* Add up the weights of the pair's four lanes. */
        f32 total = s.total[j];
        total += __shfl_xor_sync(EXL2K_ALL, total, 1);
        total += __shfl_xor_sync(EXL2K_ALL, total, 2);
        if (pair < p.pairs) {
            u32 feature = exl2k_pair_head(p, pair) * a.dim;
            u64 to = a.out + (u64)exl2k_pair_row(p, pair) * a.out_pitch * 2;
            f32 inverse = 1.0f / (total + exl2k_sink_weight(a, exl2k_pair_head(p, pair), s.max_score[j]));
            /* Without a permutation, store two elements at a time. */
#pragma unroll
            for (u32 n = 0; n < 2 * EXL2K_OUT_STEPS && !a.map; n++) {
                u32 i = p.half * 16 * EXL2K_OUT_STEPS + n * 8 + p.lane % 4 * 2;
                u32 both = exl2k_pack_f16(exl2k_clamp_f16(s.out[n][2 * j] * inverse),
                                          exl2k_clamp_f16(s.out[n][2 * j + 1] * inverse));
                if (i < a.dim) {
                    exl2k_store(to + (feature + i) * 2, both);
                }
            }
            /* With a permutation, load 16 indices at a time, then store 16 elements. */
#pragma unroll
            for (u32 n = 0; n < 4 * EXL2K_OUT_STEPS && a.map; n += 16) {
                u32 first = p.half * 16 * EXL2K_OUT_STEPS + n / 2 * 8 + p.lane % 4 * 2, indices[16];
#pragma unroll
                for (u32 k = 0; k < 16; k++) {
                    u32 i = first + k / 2 * 8 + k % 2;
                    indices[k] = exl2k_out_index(a, i < a.dim ? feature + i : 0);
                }
#pragma unroll
                for (u32 k = 0; k < 16; k++) {
                    u32 i = first + k / 2 * 8 + k % 2;
                    u32 value = exl2k_f32_to_f16(exl2k_clamp_f16(s.out[(n + k) / 2][2 * j + k % 2] * inverse));
                    if (i < a.dim) {
                        exl2k_store_u16(to + indices[k] * 2, value);
                    }
                }
            }
        }
    }
}

/* Works through all tiles of K and V. A tile's buffer is refilled when every warp is done with it: after the barrier
   of the next tile. */
EXL2K_FN void exl2k_prefill_tiles(const exl2k_prefill &p, const exl2k_attend_args &a, exl2k_rows_sums &s,
                                  const u32 query[EXL2K_STEPS][4], u32 shared)
{
    u32 page = exl2k_tile_page(p, p.begin + EXL2K_KEYS), at = shared, other = shared + 2 * EXL2K_KV_BYTES;
    exl2k_load_tile(p, a, p.begin, exl2k_tile_page(p, p.begin), at);
    /* Wait for a tile, start to copy the next one, then compute scores, weights and the weighted sum. */
    for (u32 first = p.begin; first <= p.last; first += EXL2K_KEYS) {
        exl2k_copy_wait<0>();
        __syncthreads();
        exl2k_load_tile(p, a, first + EXL2K_KEYS, page, other);
        page = exl2k_tile_page(p, first + 2 * EXL2K_KEYS);
        if (first <= p.warp_last && first + EXL2K_KEYS + p.warp_window + 14 > p.warp_last) {
            f32 score[EXL2K_KEYS / 8][4];
            exl2k_tile_scores(score, query, at);
            if (a.tanh_scale > 0.0f) {
                exl2k_tile_cap(score, a.tanh_scale);
            }
            if (first + EXL2K_KEYS + 14 > p.warp_last || first + p.warp_window <= p.warp_last) {
                exl2k_tile_mask(p, score, first);
            }
            f32 factor[2];
            if (exl2k_tile_softmax(s, score, a.scale * EXL2K_LOG2E, factor)) {
                exl2k_sums_scale(s, factor);
            }
            exl2k_tile_weighted_sum(p, s, score, at + EXL2K_KV_BYTES);
        }
        u32 swap = at;
        at = other;
        other = swap;
    }
}

extern "C" __global__ void __launch_bounds__(EXL2K_PREFILL_THREADS, EXL2K_PREFILL_CTAS)
EXL2K_PREFILL(exl2k_attend_args a)
{
    __shared__ __align__(128) u8 shared[4 * EXL2K_KV_BYTES]; /* first the queries, then the tiles */
    exl2k_prefill p;
    exl2k_rows_sums s;
    u32 query[EXL2K_STEPS][4], at = exl2k_shared(shared);
    /* Wait for q, k, v and the pages, and find the CTA's work. */
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (!exl2k_prefill_find(p, a)) {
        return;
    }
    /* Rotate the queries into shared memory, and load the warp's queries into registers. */
    exl2k_stage_queries(p, a, at);
    __syncthreads();
    exl2k_load_queries(p, query, at);
    exl2k_sums_clear(s);
    /* When all warps have read their queries, the tiles may overwrite them. */
    __syncthreads();
    exl2k_prefill_tiles(p, a, s, query, at);
    exl2k_prefill_store(p, a, s);
}

#endif

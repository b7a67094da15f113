/* attend_wg.cuh: attention in prefill by wgmma, for heads of up to 128 elements on sm_90a.
   takes: attend_rows.cuh, wg.cuh; EXL2K_DIM (64, 128) and EXL2K_PREFILL (the kernel's name) from the file that includes
          it; pages that already hold K and V of the pass.
   gives: the kernel EXL2K_PREFILL.

   A CTA works through tiles of 128 pairs with one K/V head. Its first four warps only copy: one copies K and one V, in
   blocks of 64 tokens (a page), as far ahead as there are slots; two find the next tile and copy its queries. The other
   eight warps are two warpgroups that multiply, with 64 pairs each. While one of them turns scores into weights, the
   products of the other one run.

   A slot has EXL2K_DIM / 64 tiles of B, each with 64 elements of all 64 tokens. */
#ifndef EXL2K_ATTEND_WG_CUH
#define EXL2K_ATTEND_WG_CUH

#define EXL2K_KEYS 64u /* EXL2K_PAGE_TOKENS */
#define EXL2K_PAIRS 128u
#define EXL2K_PAIR_WARPS 1u

#include "attend_rows.cuh"
#include "wg.cuh"

#define EXL2K_SLOTS EXL2K_ATTEND_SLOTS(EXL2K_DIM)
#define EXL2K_SLOT_TILE (EXL2K_KEYS * 128u) /* bytes of a tile */
#define EXL2K_COPY_WARPS 4u
#define EXL2K_RAW_BYTES (EXL2K_DIM * 4u) /* of a query that is not rotated yet, f32 */

/* What the warps that find tiles tell all others. */
typedef struct exl2k_wg_work {
    u64 table; /* as in exl2k_prefill */
    u32 row, first_pair, kv_head, begin, last;
    u32 pairs; /* 0: there are no more tiles */
    u32 position[EXL2K_PAIRS], later[EXL2K_PAIRS]; /* of the row of each pair, as in exl2k_row_later */
} exl2k_wg_work;

typedef struct exl2k_wg_barriers {
    u64 keys_full[EXL2K_SLOTS], keys_empty[EXL2K_SLOTS], values_full[EXL2K_SLOTS], values_empty[EXL2K_SLOTS];
    u64 work_full, work_empty, queries_full; /* work_empty: of the work and its queries */
} exl2k_wg_barriers;

typedef struct exl2k_wg_memory {
    u8 keys[EXL2K_SLOTS * EXL2K_KV_BYTES], values[EXL2K_SLOTS * EXL2K_KV_BYTES];
    u8 raw[EXL2K_PAIRS * EXL2K_RAW_BYTES], queries[EXL2K_PAIRS * EXL2K_TOKEN_BYTES];
    exl2k_wg_work work;
    exl2k_wg_barriers barriers;
} exl2k_wg_memory;
static_assert(sizeof(exl2k_wg_memory) <= EXL2K_ATTEND_SHARED(EXL2K_DIM), "attend_args.h knows the size");

typedef struct exl2k_wg_ring { /* of K or of V */
    u32 slots, full, empty; /* shared addresses */
    u32 slot, parity;       /* the next slot to fill, or to read */
} exl2k_wg_ring;

EXL2K_FN exl2k_wg_ring exl2k_wg_ring_of(exl2k_wg_memory *m, bool values)
{
    exl2k_wg_ring r = { exl2k_shared(values ? m->values : m->keys),
                        exl2k_shared(values ? m->barriers.values_full : m->barriers.keys_full),
                        exl2k_shared(values ? m->barriers.values_empty : m->barriers.keys_empty), 0, 0 };
    return r;
}

EXL2K_FN void exl2k_wg_ring_next(exl2k_wg_ring &r)
{
    r.slot++;
    if (r.slot == EXL2K_SLOTS) {
        r.slot = 0;
        r.parity ^= 1;
    }
}

/* ---- the warps that copy ---- */

/* Finds the CTA's next tile. The longest come first. They go to the CTAs upwards, then downwards, and so on, so that
   each CTA has long and short ones. */
EXL2K_FN bool exl2k_wg_open(exl2k_prefill &p, const exl2k_attend_args &a, u32 round)
{
    u32 place = round & 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x, item = round * gridDim.x + place;
    return exl2k_prefill_open(p, a, item / a.kv_heads, item % a.kv_heads, 0);
}

/* Stores the positions of pairs first .. first + 63; missing pairs are the last one. Each lane does it for two pairs.
   from: where their queries are. */
EXL2K_FN void exl2k_wg_find_pairs(const exl2k_prefill &p, const exl2k_attend_args &a, exl2k_wg_memory *m, u32 first,
                                  u64 from[2])
{
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 i = 0; i < 2; i++, first += 32) {
        u32 pair = exl2k_min(first + lane, p.pairs - 1), row = exl2k_pair_row(p, pair);
        from[i] = a.qkv + ((u64)row * a.qkv_pitch + exl2k_pair_head(p, pair) * a.dim) * 4;
        m->work.position[first + lane] = exl2k_row_position(a, row);
        m->work.later[first + lane] = exl2k_row_later(a, row);
    }
}

/* Starts to copy the queries of these pairs: all lanes copy them, one pair after another. */
EXL2K_FN void exl2k_wg_copy_queries(const exl2k_attend_args &a, exl2k_wg_memory *m, u32 first, const u64 places[2])
{
    u32 lane = threadIdx.x % 32, raw = exl2k_shared(m->raw) + first * EXL2K_RAW_BYTES + lane * 16;
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
#pragma unroll 1
        for (u32 j = 0; j < 32; j += 8, raw += 8 * EXL2K_RAW_BYTES) {
            u64 from[8];
#pragma unroll
            for (u32 k = 0; k < 8; k++) {
                from[k] = __shfl_sync(EXL2K_ALL, places[i], (int)(j + k)) + lane * 16;
            }
#pragma unroll
            for (u32 k = 0; k < 8; k++) {
                if (lane * 4 < a.dim) {
                    exl2k_copy16(raw + k * EXL2K_RAW_BYTES, from[k]);
                }
            }
        }
    }
}

/* The same for rotated queries, 16 bytes a lane, to where they are read as tiles of halves. */
EXL2K_FN void exl2k_wg_copy_rotated(const exl2k_attend_args &a, exl2k_wg_memory *m, u32 first, const u64 places[2])
{
    u32 piece = threadIdx.x % EXL2K_PIECES, line = threadIdx.x % 32 / EXL2K_PIECES, half = a.dim / 16;
    bool inside = piece < 2 * half; /* else zeros */
    u32 from = inside ? piece % half * 32 + piece / half * 16 : 0, raw = exl2k_shared(m->raw);
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
#pragma unroll 2
        for (u32 j = line; j < 32; j += 32 / EXL2K_PIECES) {
            u64 at = __shfl_sync(EXL2K_ALL, places[i], (int)j) + from;
            exl2k_copy16_or_zeros(raw + exl2k_tile_at(first + i * 32 + j, piece), at, inside);
        }
    }
}

/* Finds all tiles, and copies the queries of the warp's half of the pairs. */
EXL2K_FN void exl2k_wg_find(const exl2k_attend_args &a, exl2k_wg_memory *m, u32 half)
{
    u32 full = exl2k_shared(&m->barriers.work_full), empty = exl2k_shared(&m->barriers.work_empty);
    u32 queries = exl2k_shared(&m->barriers.queries_full);
    bool more = true;
    for (u32 round = 0; more; round++) {
        exl2k_prefill p = {};
        u64 from[2] = { 0, 0 };
        more = exl2k_wg_open(p, a, round);
        exl2k_barrier_wait(empty, (round & 1) ^ 1);
        if (threadIdx.x % 32 == 0 && half == 0) {
            m->work.table = p.table;
            m->work.row = p.row;
            m->work.first_pair = p.first_pair;
            m->work.kv_head = p.kv_head;
            m->work.begin = p.begin;
            m->work.last = p.last;
            m->work.pairs = more ? p.pairs : 0;
        }
        if (more) {
            exl2k_wg_find_pairs(p, a, m, half * (EXL2K_PAIRS / 2), from);
        }
        exl2k_barrier_arrive(full);
        if (round == 0 && a.early) {
            exl2k_dependency_wait();
        }
        if (more && a.rotated) {
            exl2k_wg_copy_rotated(a, m, half * (EXL2K_PAIRS / 2), from);
        } else if (more) {
            exl2k_wg_copy_queries(a, m, half * (EXL2K_PAIRS / 2), from);
        }
        exl2k_copied_arrive(queries);
    }
}

/* Waits for the tile of this round. false: there are no more. */
EXL2K_FN bool exl2k_wg_work_wait(exl2k_prefill &p, const exl2k_attend_args &a, exl2k_wg_memory *m, u32 round)
{
    exl2k_barrier_wait(exl2k_shared(&m->barriers.work_full), round & 1);
    const exl2k_wg_work *w = &m->work;
    p.table = w->table;
    p.row = w->row;
    p.group = a.group;
    p.first_pair = w->first_pair;
    p.kv_head = w->kv_head;
    p.begin = w->begin;
    p.last = w->last;
    p.pairs = w->pairs;
    return p.pairs > 0;
}

/* The lane has read the work and its queries. Each lane arrives for itself, so that racecheck can follow it. */
EXL2K_FN void exl2k_wg_work_release(exl2k_wg_memory *m)
{
    exl2k_barrier_arrive(exl2k_shared(&m->barriers.work_empty));
}

/* Starts to copy K or V of a block of one head, from `from`. WHOLE: all tokens are there, and heads have EXL2K_DIM
   elements, so that every offset is a constant and a copy is one instruction. Otherwise tokens after the last become
   zeros, and so do elements after the last. */
template <bool WHOLE> EXL2K_FN void exl2k_wg_copy_block(const exl2k_attend_args &a, u64 from, u32 to, u32 tokens)
{
    u32 piece = threadIdx.x % EXL2K_PIECES, line = threadIdx.x % 32 / EXL2K_PIECES;
    u32 pitch = WHOLE ? EXL2K_TOKEN_BYTES : a.dim * 2;
    bool inside = WHOLE || piece * 8 < a.dim;
    from += line * pitch + (inside ? piece * 16 : 0);
    to += piece / 8 * EXL2K_SLOT_TILE + line * 128;
#pragma unroll(WHOLE ? EXL2K_KEYS * EXL2K_PIECES / 32 : 4)
    for (u32 i = 0; i < EXL2K_KEYS; i += 32 / EXL2K_PIECES) {
        u32 at = to + i * 128 + (((piece ^ line ^ i) & 7) << 4);
        if (WHOLE) {
            exl2k_copy16(at, from + i * pitch);
        } else {
            exl2k_copy16_or_zeros(at, from + i * pitch, inside && line + i < tokens);
        }
    }
}

EXL2K_FN u32 exl2k_wg_page(const exl2k_prefill &p, u32 first)
{
    return first <= p.last ? exl2k_load(p.table + first / EXL2K_PAGE_TOKENS * 4) : 0;
}

/* The lane's copies into the slot have ended, and wgmma may read them. */
EXL2K_FN void exl2k_wg_copied(exl2k_wg_ring &r)
{
    exl2k_async_fence();
    exl2k_barrier_arrive(r.full + r.slot * 8);
    exl2k_wg_ring_next(r);
}

/* Copies K (or V) of all blocks of all tiles. The copies of a block are waited for when those of the next one have
   started. */
EXL2K_FN void exl2k_wg_copy(const exl2k_attend_args &a, exl2k_wg_memory *m, bool values)
{
    exl2k_prefill p;
    exl2k_wg_ring filled = exl2k_wg_ring_of(m, values), copied = filled;
    u64 offset = values ? exl2k_value_offset(a) : 0;
    for (u32 round = 0; exl2k_wg_work_wait(p, a, m, round); round++) {
        exl2k_wg_work_release(m);
        u32 page = exl2k_wg_page(p, p.begin);
        if (round == 0 && a.early) {
            exl2k_dependency_wait();
        }
        for (u32 first = p.begin; first <= p.last; first += EXL2K_KEYS) {
            u64 from = exl2k_page_of(a, page, p.kv_head) + offset;
            u32 to = filled.slots + filled.slot * EXL2K_KV_BYTES, tokens = p.last + 1 - first;
            page = exl2k_wg_page(p, first + EXL2K_KEYS);
            exl2k_barrier_wait(filled.empty + filled.slot * 8, filled.parity ^ 1);
            if (a.dim == EXL2K_DIM && tokens >= EXL2K_KEYS) {
                exl2k_wg_copy_block<true>(a, from, to, tokens);
            } else {
                exl2k_wg_copy_block<false>(a, from, to, tokens);
            }
            exl2k_copy_commit();
            exl2k_wg_ring_next(filled);
            if (first > p.begin) {
                exl2k_copy_wait<1>();
                exl2k_wg_copied(copied);
            }
        }
        exl2k_copy_wait<0>();
        exl2k_wg_copied(copied);
    }
}

/* ---- the warps that multiply ---- */

/* Waits until the next slot is full. */
EXL2K_FN void exl2k_wg_full(const exl2k_wg_ring &r) { exl2k_barrier_wait(r.full + r.slot * 8, r.parity); }

/* The warp has read the slot. */
EXL2K_FN void exl2k_wg_release(const exl2k_prefill &p, exl2k_wg_ring &r)
{
    if (p.lane == 0) {
        exl2k_barrier_arrive(r.empty + r.slot * 8);
    }
    exl2k_wg_ring_next(r);
}

/* Starts the scores of a block. */
EXL2K_FN void exl2k_wg_scores(f32 (&score)[EXL2K_KEYS / 8][4], const u32 query[EXL2K_STEPS][4],
                              const exl2k_wg_ring &keys)
{
    u64 tile = exl2k_wg_tile(keys.slots + keys.slot * EXL2K_KV_BYTES);
#pragma unroll
    for (u32 k = 0; k < EXL2K_STEPS; k++) {
        exl2k_wg_multiply<false>(score, query[k], tile + k / 4 * (EXL2K_SLOT_TILE / 16) + k % 4 * 2, k == 0);
    }
    exl2k_wg_commit();
}

/* Starts to add the weighted sum of a block's V to the outputs. */
EXL2K_FN void exl2k_wg_weighted_sum(exl2k_rows_sums &s, const u32 weight[EXL2K_KEYS / 16][4],
                                    const exl2k_wg_ring &values)
{
    u64 tile = exl2k_wg_rows(values.slots + values.slot * EXL2K_KV_BYTES, EXL2K_SLOT_TILE);
#pragma unroll
    for (u32 m = 0; m < EXL2K_KEYS / 16; m++) {
        exl2k_wg_multiply<true>(s.out, weight[m], tile + m * 128, false);
    }
    exl2k_wg_commit();
}

/* Turns scores into weights. True: outputs must be scaled by `factor`. */
EXL2K_FN bool exl2k_wg_softmax(const exl2k_prefill &p, const exl2k_attend_args &a, exl2k_rows_sums &s,
                               f32 (&score)[EXL2K_KEYS / 8][4], u32 first, f32 factor[2])
{
    if (a.tanh_scale > 0.0f) {
        exl2k_tile_cap(score, a.tanh_scale);
    }
    if (first + EXL2K_KEYS + 14 > p.warp_last || first + p.warp_window <= p.warp_last) {
        exl2k_tile_mask(p, score, first);
    }
    return exl2k_tile_softmax(s, score, a.scale * EXL2K_LOG2E, factor);
}

EXL2K_FN void exl2k_wg_weights(const f32 (&score)[EXL2K_KEYS / 8][4], u32 weight[EXL2K_KEYS / 16][4])
{
#pragma unroll
    for (u32 m = 0; m < EXL2K_KEYS / 16; m++) {
        exl2k_tile_weights(score, m, weight[m]);
    }
}

/* Works through all blocks of a tile. The scores of a block are computed while the weighted sum of the block before
   still runs. */
EXL2K_FN void exl2k_wg_blocks(const exl2k_prefill &p, const exl2k_attend_args &a, exl2k_rows_sums &s,
                              const u32 query[EXL2K_STEPS][4], exl2k_wg_ring &keys, exl2k_wg_ring &values)
{
    f32 score[EXL2K_KEYS / 8][4], factor[2];
    u32 weight[EXL2K_KEYS / 16][4];
    /* The first block: there are no outputs yet that could need a factor. */
    exl2k_wg_full(keys);
    exl2k_wg_begin();
    exl2k_wg_scores(score, query, keys);
    exl2k_wg_wait<0>();
    exl2k_wg_hold(score);
    exl2k_wg_release(p, keys);
    exl2k_wg_softmax(p, a, s, score, p.begin, factor);
    exl2k_wg_weights(score, weight);
    for (u32 first = p.begin + EXL2K_KEYS; first <= p.last; first += EXL2K_KEYS) {
        exl2k_wg_full(keys);
        exl2k_wg_begin();
        exl2k_wg_scores(score, query, keys);
        exl2k_wg_full(values);
        exl2k_wg_begin();
        exl2k_wg_weighted_sum(s, weight, values);
        exl2k_wg_wait<1>();
        exl2k_wg_hold(score);
        exl2k_wg_release(p, keys);
        bool grown = exl2k_wg_softmax(p, a, s, score, first, factor);
        exl2k_wg_wait<0>();
        exl2k_wg_hold(s.out);
        exl2k_wg_release(p, values);
        if (grown) {
            exl2k_sums_scale(s, factor);
        }
        exl2k_wg_weights(score, weight);
    }
    exl2k_wg_full(values);
    exl2k_wg_begin();
    exl2k_wg_weighted_sum(s, weight, values);
    exl2k_wg_wait<0>();
    exl2k_wg_hold(s.out);
    exl2k_wg_release(p, values);
}

/* Rotates the warp's queries, through shared memory, into A operands. All loads are issued first: those of angles need
   not wait for the queries. */
EXL2K_FN void exl2k_wg_queries(const exl2k_prefill &p, const exl2k_attend_args &a, exl2k_wg_memory *m, u32 round,
                               u32 query[EXL2K_STEPS][4])
{
    u32 half = a.dim / 2, first = p.slice * 16, queries = exl2k_shared(m->queries);
    u32 raw = exl2k_shared(m->raw) + first * EXL2K_RAW_BYTES;
    exl2k_rope_input inputs[EXL2K_DIM / 64][16];
#pragma unroll
    for (u32 n = 0; n < EXL2K_DIM / 64; n++) {
        u32 i = p.lane + n * 32;
#pragma unroll
        for (u32 j = 0; j < 16; j++) {
            exl2k_rope_load_line(a, m->work.position[first + j], i < half ? i : 0, inputs[n][j].c, inputs[n][j].s);
        }
    }
    exl2k_barrier_wait(exl2k_shared(&m->barriers.queries_full), round & 1);
#pragma unroll
    for (u32 n = 0; n < EXL2K_DIM / 64; n++) {
        u32 i = p.lane + n * 32, x = i < a.rope_split ? i : 2 * i, y = i < a.rope_split ? i + a.rope_split : 2 * i + 1;
#pragma unroll
        for (u32 j = 0; j < 16; j++) {
            inputs[n][j].x = exl2k_shared_load_f32(raw + (i < half ? x : 0) * 4 + j * EXL2K_RAW_BYTES);
            inputs[n][j].y = exl2k_shared_load_f32(raw + (i < half ? y : 0) * 4 + j * EXL2K_RAW_BYTES);
        }
#pragma unroll
        for (u32 j = 0; j < 16 && a.rope_divided; j++) {
            exl2k_rope_add_block(a, m->work.position[first + j], i < half ? i : 0, inputs[n][j].c, inputs[n][j].s);
        }
        /* Dims from dim to EXL2K_DIM become zeros, in pairs like the others. */
        u32 second = i < half ? i + half : i + EXL2K_DIM / 2, from = i < half ? i : i + half;
        u32 mask = i < half ? EXL2K_ALL : 0;
#pragma unroll
        for (u32 j = 0; j < 16; j++) {
            u32 both = exl2k_rope_apply(inputs[n][j]) & mask;
            exl2k_shared_store_u16(queries + exl2k_tile_element(first + j, from), both);
            exl2k_shared_store_u16(queries + exl2k_tile_element(first + j, second), both >> 16);
        }
    }
    __syncwarp();
    exl2k_load_queries(p, query, queries);
}

/* Divides the outputs by the sums of weights, and stores them: through shared memory, so that each thread stores 16
   bytes at once. Each lane finds the place of one pair. */
EXL2K_FN void exl2k_wg_store(const exl2k_prefill &p, const exl2k_attend_args &a, exl2k_wg_memory *m, exl2k_rows_sums &s)
{
    u32 first = p.slice * 16, staged = exl2k_shared(m->queries) + first * EXL2K_TOKEN_BYTES;
    u32 own = exl2k_min(first + p.lane % 16, p.pairs - 1), head = exl2k_pair_head(p, own);
    u64 line = a.out + ((u64)exl2k_pair_row(p, own) * a.out_pitch + head * a.dim) * 2;
    f32 inverse[2];
    for (u32 j = 0; j < 2; j++) {
        /* Add up the weights of the pair's four lanes. */
        f32 total = s.total[j];
        total += __shfl_xor_sync(EXL2K_ALL, total, 1);
        total += __shfl_xor_sync(EXL2K_ALL, total, 2);
        u32 its_head = __shfl_sync(EXL2K_ALL, head, (int)(p.lane / 4 + 8 * j));
        inverse[j] = 1.0f / (total + exl2k_sink_weight(a, its_head, s.max_score[j]));
    }
#pragma unroll
    for (u32 k = 0; k < EXL2K_STEPS; k++) {
        u32 tile[4];
        for (u32 i = 0; i < 4; i++) {
            f32 *pair = &s.out[2 * k + i / 2][i % 2 * 2];
            tile[i] = exl2k_pack_f16(exl2k_clamp_f16(pair[0] * inverse[i % 2]),
                                     exl2k_clamp_f16(pair[1] * inverse[i % 2]));
        }
        exl2k_stmatrix4(exl2k_tile_rows(staged, k), tile);
    }
    __syncwarp();
    u32 i = p.lane % EXL2K_PIECES * 8; /* the lane stores elements i .. i + 7 of several pairs */
    u64 to[EXL2K_PIECES / 2];
    uint4 values[EXL2K_PIECES / 2];
#pragma unroll
    for (u32 n = 0; n < EXL2K_PIECES / 2; n++) {
        u32 pair = (n * 32 + p.lane) / EXL2K_PIECES;
        to[n] = __shfl_sync(EXL2K_ALL, line, (int)pair) + i * 2;
        values[n] = exl2k_shared_load4(staged + exl2k_tile_at(pair, i / 8));
    }
#pragma unroll
    for (u32 n = 0; n < EXL2K_PIECES / 2; n++) {
        if (first + (n * 32 + p.lane) / EXL2K_PIECES < p.pairs && i < a.dim) {
            exl2k_store4(to[n], values[n]);
        }
    }
    __syncwarp();
}

/* Works through all tiles. warp: 0 to 7. */
EXL2K_FN void exl2k_wg_multiply_all(const exl2k_attend_args &a, exl2k_wg_memory *m, u32 warp)
{
    exl2k_wg_ring keys = exl2k_wg_ring_of(m, false), values = exl2k_wg_ring_of(m, true);
    exl2k_prefill p;
    p.lane = threadIdx.x % 32;
    p.slice = warp;
    p.half = 0;
    for (u32 round = 0; exl2k_wg_work_wait(p, a, m, round); round++) {
        exl2k_rows_sums s;
        u32 query[EXL2K_STEPS][4];
        p.warp_last = m->work.position[warp * 16 + 15] + m->work.later[warp * 16 + 15];
        p.warp_window = a.window + m->work.later[warp * 16 + 15];
        for (u32 j = 0; j < 2; j++) {
            u32 pair = warp * 16 + p.lane / 4 + 8 * j, later = m->work.later[pair];
            p.position[j] = m->work.position[pair] + later;
            p.window[j] = a.window + later;
        }
        if (a.rotated) {
            exl2k_barrier_wait(exl2k_shared(&m->barriers.queries_full), round & 1);
            exl2k_load_queries(p, query, exl2k_shared(m->raw));
        } else {
            exl2k_wg_queries(p, a, m, round, query);
        }
        exl2k_wg_work_release(m);
        exl2k_sums_clear(s);
        exl2k_wg_blocks(p, a, s, query, keys, values);
        exl2k_wg_store(p, a, m, s);
    }
}

extern "C" __global__ void __launch_bounds__(EXL2K_ATTEND_WG_THREADS, 1) EXL2K_PREFILL(exl2k_attend_args a)
{
    extern __shared__ __align__(1024) u8 exl2k_dynamic[];
    exl2k_wg_memory *m = (exl2k_wg_memory *)exl2k_dynamic;
    u32 warp = threadIdx.x / 32;
    exl2k_dependency_release();
    if (threadIdx.x < EXL2K_SLOTS) {
        exl2k_barrier_init(exl2k_shared(&m->barriers.keys_full[threadIdx.x]), 32); /* lanes of the warp that copies */
        exl2k_barrier_init(exl2k_shared(&m->barriers.values_full[threadIdx.x]), 32);
        exl2k_barrier_init(exl2k_shared(&m->barriers.keys_empty[threadIdx.x]), 8); /* warps that read */
        exl2k_barrier_init(exl2k_shared(&m->barriers.values_empty[threadIdx.x]), 8);
        exl2k_barrier_init_fence();
    }
    if (threadIdx.x == EXL2K_SLOTS) {
        exl2k_barrier_init(exl2k_shared(&m->barriers.work_full), 64); /* lanes that store */
        exl2k_barrier_init(exl2k_shared(&m->barriers.queries_full), 64); /* lanes that copy */
        exl2k_barrier_init(exl2k_shared(&m->barriers.work_empty), 10 * 32); /* lanes that read */
        exl2k_barrier_init_fence();
    }
    __syncthreads();
    /* Wait for q, k, v and the pages: at once, or (early) where warps have found what they copy. Those that multiply
       read nothing but tables before others have copied. */
    if (!a.early) {
        exl2k_dependency_wait();
    }
    if (warp < EXL2K_COPY_WARPS) {
        exl2k_registers_less<56>();
        if (warp < 2) {
            exl2k_wg_copy(a, m, warp == 1);
        } else {
            exl2k_wg_find(a, m, warp - 2);
        }
    } else {
        exl2k_registers_more<224>();
        exl2k_wg_multiply_all(a, m, warp - EXL2K_COPY_WARPS);
    }
}

#endif

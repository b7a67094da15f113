/* attend_decode.cuh: attention of single rows over their pages: RoPE, K and V into the page, softmax, split contexts.
   takes: attend.cuh; EXL2K_DIM and EXL2K_DECODE (the kernel's name) from the file that includes it.
   gives: the kernel.
   owns:  nothing.
   next:  attend_decode128.cu

   CTA = (split, K/V head and up to 8 of its query heads, row). Its warps take turns at units of 16 tokens; each has its
   own ring of units of K and V, its own running maximum, sum and output, which are added up at the end, in the order of
   the warps; the splits' in the order of the splits, by the CTA that comes last.
       scores [16 tokens x 8 heads] = K [16 x dim] * q    output [dim x 8 heads] += V^T [dim x 16] * weights
   K and V of the rows of this launch are taken from qkv, not from the page: other CTAs are only now writing them. */
#ifndef EXL2K_ATTEND_DECODE_CUH
#define EXL2K_ATTEND_DECODE_CUH

#include "attend.cuh"

#define EXL2K_UNIT 16u
#define EXL2K_UNIT_BYTES (EXL2K_UNIT * EXL2K_TOKEN_BYTES) /* K or V of a unit; or outputs of a warp, f32 [8][dim] */
#define EXL2K_DECODE_WARPS (EXL2K_DIM == 256 ? 4u : 8u)
#define EXL2K_DECODE_THREADS (EXL2K_DECODE_WARPS * 32)
#define EXL2K_STEPS (EXL2K_DIM / 16)
#define EXL2K_QUERY_PITCH (EXL2K_DIM + 8) /* halves */

typedef struct exl2k_decode {
    u32 row, position, sequence, back;   /* back: rows before this one that are its direct predecessors */
    u32 head, kv_head, heads;            /* first query head, their number */
    u32 begin, end, splits;              /* tokens of this split */
    u32 lane, warp, units, ring, stages; /* units of this warp; its ring in shared memory */
    u32 pages, batch;                    /* lane l has page 32 batch + l of the split */
    bool writes;                         /* this CTA stores K and V of its row */
} exl2k_decode;

typedef struct exl2k_decode_shared {
    __align__(16) u16 query[EXL2K_HEAD_TILE][EXL2K_QUERY_PITCH];
    u32 fresh[2][EXL2K_DIM / 2]; /* K and V of this row: elements i and i + dim / 2 */
    f32 most[EXL2K_DECODE_WARPS][EXL2K_HEAD_TILE], total[EXL2K_DECODE_WARPS][EXL2K_HEAD_TILE];
    f32 factor[EXL2K_SPLITS_MAX][EXL2K_HEAD_TILE]; /* of a split, and 1 / total in it */
    u32 ticket;
} exl2k_decode_shared;

/* ---- what the CTA has to do ---- */

/* Number of rows right before this one that have the positions right before its own. Lane l looks at row - l. */
EXL2K_FN u32 exl2k_rows_back(const exl2k_attend_args &a, u32 row, u32 position, u32 sequence)
{
    u32 lane = threadIdx.x % 32;
    for (u32 back = 0;; back += 32) {
        u32 distance = back + lane + 1;
        bool same = distance <= row && distance <= position;
        if (same) {
            uint4 other = exl2k_load4(a.rows + (row - distance) * sizeof(exl2k_row));
            same = other.z == sequence && other.y + distance == position;
        }
        u32 others = __ballot_sync(EXL2K_ALL, !same);
        if (others) {
            return back + (u32)__ffs((int)others) - 1;
        }
    }
}

/* False: nothing to do. */
EXL2K_FN bool exl2k_decode_open(exl2k_decode &d, const exl2k_attend_args &a, u32 ring)
{
    u32 group = a.heads / a.kv_heads, tiles = (group + EXL2K_HEAD_TILE - 1) / EXL2K_HEAD_TILE;
    d.row = blockIdx.z;
    u32 rows = exl2k_load(a.step);
    uint4 row = exl2k_load4(a.rows + d.row * sizeof(exl2k_row));
    d.position = row.y;
    d.sequence = row.z;
    u32 tokens = d.position + 1;
    u32 each = exl2k_max(EXL2K_SPLIT_TOKENS, (tokens + 64 * EXL2K_SPLITS_MAX - 1) / (64 * EXL2K_SPLITS_MAX) * 64);
    d.splits = (tokens + each - 1) / each;
    if (d.row >= rows || (row.w & EXL2K_ROW_DONE) || blockIdx.x >= d.splits) {
        return false;
    }
    d.begin = blockIdx.x * each;
    d.end = exl2k_min(d.begin + each, tokens);
    d.kv_head = blockIdx.y / tiles;
    u32 tile = blockIdx.y % tiles;
    d.head = d.kv_head * group + tile * EXL2K_HEAD_TILE;
    d.heads = exl2k_min(group - tile * EXL2K_HEAD_TILE, EXL2K_HEAD_TILE);
    d.writes = tile == 0;
    d.lane = threadIdx.x % 32;
    d.warp = threadIdx.x / 32;
    u32 units = (d.end - d.begin + EXL2K_UNIT - 1) / EXL2K_UNIT;
    d.units = units > d.warp ? (units - d.warp - 1) / EXL2K_DECODE_WARPS + 1 : 0;
    d.stages = a.stages;
    d.ring = ring + d.warp * a.stages * EXL2K_UNIT_BYTES;
    d.batch = EXL2K_ALL;
    return true;
}

/* First token of the warp's unit u. */
EXL2K_FN u32 exl2k_unit_token(const exl2k_decode &d, u32 u) { return d.begin + (u * EXL2K_DECODE_WARPS + d.warp) * EXL2K_UNIT; }

/* ---- the ring ---- */

EXL2K_FN u32 exl2k_unit_page(exl2k_decode &d, const exl2k_attend_args &a, u32 token)
{
    u32 index = (token - d.begin) / EXL2K_PAGE_TOKENS;
    if (index / 32 != d.batch) {
        u32 at = d.begin / EXL2K_PAGE_TOKENS + index / 32 * 32 + d.lane;
        d.batch = index / 32;
        d.pages = at * EXL2K_PAGE_TOKENS < d.end ? exl2k_table_page(a, d.sequence, at) : 0;
    }
    return __shfl_sync(EXL2K_ALL, d.pages, index % 32);
}

/* Element e of the ring: K of unit e / 2, or V of it. Tokens behind the end are zeros: 0 * NaN would be NaN. */
EXL2K_FN void exl2k_ring_fill(exl2k_decode &d, const exl2k_attend_args &a, u32 e, u32 slot)
{
    if (e < 2 * d.units) {
        u32 token = exl2k_unit_token(d, e / 2), piece = d.lane % EXL2K_PIECES;
        u64 from = exl2k_page_of(a, exl2k_unit_page(d, a, token), d.kv_head);
        from += (e & 1 ? exl2k_value_offset(a) : 0) + (u64)(token % EXL2K_PAGE_TOKENS) * a.dim * 2;
#pragma unroll 4
        for (u32 i = 0; i < EXL2K_UNIT; i += 32 / EXL2K_PIECES) {
            u32 line = i + d.lane / EXL2K_PIECES, to = slot + exl2k_tile_at(line, piece);
            if (piece * 8 < a.dim && token + line < d.end) {
                exl2k_copy16(to, from + (u64)line * a.dim * 2 + piece * 16);
            } else {
                exl2k_shared_store4(to, make_uint4(0, 0, 0, 0));
            }
        }
    }
    exl2k_copy_commit();
}

/* Until the oldest element is there. */
EXL2K_FN void exl2k_ring_wait(u32 stages)
{
    if (stages >= 6) {
        exl2k_copy_wait<5>();
    } else if (stages >= 4) {
        exl2k_copy_wait<3>();
    } else if (stages >= 2) {
        exl2k_copy_wait<1>();
    } else {
        exl2k_copy_wait<0>();
    }
    __syncwarp();
}

/* Elements i and i + dim / 2 of K (rotated) or V of a row. */
EXL2K_FN u32 exl2k_fresh(const exl2k_attend_args &a, u32 row, u32 position, u32 kv_head, u32 i, bool value)
{
    return value ? exl2k_value(a, row, kv_head, i) | exl2k_value(a, row, kv_head, i + a.dim / 2) << 16
                 : exl2k_rope_pair(a, row, position, (a.heads + kv_head) * a.dim, i);
}

/* Overwrites the tokens of this launch in a unit of K or V, and stores those of this row into the page. */
EXL2K_FN void exl2k_ring_patch(exl2k_decode &d, const exl2k_attend_args &a, u32 token, u32 slot, bool value,
                               const u32 *fresh)
{
    u32 first = d.position - d.back, begin = exl2k_max(first, token);
    u32 end = exl2k_min(d.end, token + EXL2K_UNIT), half = a.dim / 2;
    if (begin >= end) {
        return;
    }
    for (u32 position = begin; position < end; position++) {
        u32 row = d.row - (d.position - position), line = position - token;
        bool store = position == d.position && d.writes;
        u64 page = 0;
        if (store) {
            page = exl2k_page_of(a, exl2k_unit_page(d, a, token), d.kv_head);
            page += (value ? exl2k_value_offset(a) : 0) + (u64)(position % EXL2K_PAGE_TOKENS) * a.dim * 2;
        }
        for (u32 i = d.lane; i < half; i += 32) {
            u32 pair = row == d.row ? fresh[i] : exl2k_fresh(a, row, position, d.kv_head, i, value);
            exl2k_shared_store_u16(slot + exl2k_tile_element(line, i), pair);
            exl2k_shared_store_u16(slot + exl2k_tile_element(line, i + half), pair >> 16);
            if (store) {
                exl2k_store_u16(page + i * 2, pair);
                exl2k_store_u16(page + (i + half) * 2, pair >> 16);
            }
        }
    }
    __syncwarp();
}

/* ---- a warp's sums ---- */

typedef struct exl2k_sums { /* lane 4g + t: heads 2t and 2t + 1 */
    f32 out[EXL2K_STEPS][4]; /* dims 16 step + g: heads 2t, 2t + 1; dims + 8: the same */
    f32 most[2], total[2];   /* total: of this lane's tokens */
} exl2k_sums;

/* Scores of 16 tokens -> weights against the maximum so far, as the B operand; old sums are scaled to it. */
EXL2K_FN void exl2k_soften(exl2k_sums &s, f32 score[4], u32 token, u32 end, f32 scale, u32 weights[2])
{
    u32 g = threadIdx.x % 32 / 4;
    bool changed = false;
    f32 factor[2];
    for (u32 j = 0; j < 2; j++) {
        score[j] = token + g < end ? score[j] * scale : EXL2K_MINUS_INF;
        score[2 + j] = token + g + 8 < end ? score[2 + j] * scale : EXL2K_MINUS_INF;
        f32 most = fmaxf(score[j], score[2 + j]);
        for (u32 step = 4; step < 32; step *= 2) {
            most = fmaxf(most, __shfl_xor_sync(EXL2K_ALL, most, step));
        }
        most = fmaxf(most, s.most[j]);
        factor[j] = exl2k_exp2(s.most[j] - most);
        changed = changed || most != s.most[j];
        s.most[j] = most;
        score[j] = exl2k_exp2(score[j] - most);
        score[2 + j] = exl2k_exp2(score[2 + j] - most);
        s.total[j] = s.total[j] * factor[j] + (score[j] + score[2 + j]);
    }
    if (__any_sync(EXL2K_ALL, changed)) {
#pragma unroll
        for (u32 k = 0; k < EXL2K_STEPS; k++) {
            for (u32 j = 0; j < 4; j++) {
                s.out[k][j] *= factor[j & 1];
            }
        }
    }
    weights[0] = exl2k_mirror(exl2k_pack_f16(score[0], score[1]));
    weights[1] = exl2k_mirror(exl2k_pack_f16(score[2], score[3]));
}

EXL2K_FN void exl2k_scores(f32 score[4], u32 slot, const u32 query[EXL2K_STEPS][2], u32 dim)
{
    f32 odd[4] = { 0.0f, 0.0f, 0.0f, 0.0f }; /* two chains are done sooner than one */
    for (u32 j = 0; j < 4; j++) {
        score[j] = 0.0f;
    }
#pragma unroll
    for (u32 k = 0; k < EXL2K_STEPS; k++) {
        if (k * 16 < dim) {
            uint4 tile = exl2k_ldmatrix4(exl2k_tile_rows(slot, k));
            u32 rows[4] = { tile.x, tile.y, tile.z, tile.w };
            exl2k_mma(k & 1 ? odd : score, rows, query[k][0], query[k][1]);
        }
    }
    for (u32 j = 0; j < 4; j++) {
        score[j] += odd[j];
    }
}

EXL2K_FN void exl2k_mix(exl2k_sums &s, u32 slot, const u32 weights[2], u32 dim)
{
#pragma unroll
    for (u32 k = 0; k < EXL2K_STEPS; k++) {
        if (k * 16 < dim) {
            uint4 tile = exl2k_ldmatrix4_transposed(exl2k_tile_columns(slot, k));
            u32 rows[4] = { tile.x, tile.y, tile.z, tile.w };
            exl2k_mma(s.out[k], rows, weights[0], weights[1]);
        }
    }
}

/* All units of the warp. */
EXL2K_FN void exl2k_decode_units(exl2k_decode &d, const exl2k_attend_args &a, exl2k_sums &s,
                                 const u32 query[EXL2K_STEPS][2], const exl2k_decode_shared *shared)
{
    u32 slot = 0, e = 0;
    for (u32 u = 0; u < d.units; u++) {
        u32 token = exl2k_unit_token(d, u), weights[2];
        f32 score[4];
        for (u32 value = 0; value < 2; value++, e++) {
            u32 at = d.ring + slot * EXL2K_UNIT_BYTES;
            exl2k_ring_wait(d.stages);
            exl2k_ring_patch(d, a, token, at, value, shared->fresh[value]);
            if (value) {
                exl2k_mix(s, at, weights, a.dim);
            } else {
                exl2k_scores(score, at, query, a.dim);
                exl2k_soften(s, score, token, d.end, a.scale * EXL2K_LOG2E, weights);
            }
            __syncwarp();
            exl2k_ring_fill(d, a, e + d.stages, at);
            slot = slot + 1 < d.stages ? slot + 1 : 0;
        }
    }
    for (u32 j = 0; j < 2; j++) {
        for (u32 step = 4; step < 32; step *= 2) {
            s.total[j] += __shfl_xor_sync(EXL2K_ALL, s.total[j], step);
        }
    }
}

/* ---- sums of warps and splits ---- */

EXL2K_FN void exl2k_load_query(const exl2k_decode &d, const exl2k_attend_args &a, exl2k_decode_shared *shared)
{
    u32 half = a.dim / 2;
    for (u32 head = d.warp; head < EXL2K_HEAD_TILE; head += EXL2K_DECODE_WARPS) {
#pragma unroll 2
        for (u32 i = d.lane; i < half; i += 32) {
            u32 pair = head < d.heads ? exl2k_rope_pair(a, d.row, d.position, (d.head + head) * a.dim, i) : 0;
            shared->query[head][i] = (u16)pair;
            shared->query[head][i + half] = (u16)(pair >> 16);
        }
    }
    for (u32 i = threadIdx.x; i < 2 * half && d.end == d.position + 1; i += EXL2K_DECODE_THREADS) {
        bool value = i >= half;
        u32 j = value ? i - half : i;
        shared->fresh[value][j] = exl2k_fresh(a, d.row, d.position, d.kv_head, j, value);
    }
}

/* Eight dims of four pairs of heads lie in different banks. */
EXL2K_FN u32 exl2k_parked(u32 head, u32 dim) { return (head * EXL2K_DIM + (dim ^ head / 2 * 8)) * 4; }

/* The warp's sums, where its ring was. */
EXL2K_FN void exl2k_park_sums(const exl2k_decode &d, const exl2k_sums &s, exl2k_decode_shared *shared)
{
    u32 g = d.lane / 4, t = d.lane % 4;
#pragma unroll
    for (u32 k = 0; k < EXL2K_STEPS; k++) {
        for (u32 j = 0; j < 4; j++) {
            u32 dim = k * 16 + g + (j >> 1) * 8, head = 2 * t + (j & 1);
            exl2k_shared_store_f32(d.ring + exl2k_parked(head, dim), s.out[k][j]);
        }
    }
    for (u32 j = 0; j < 2 && g == 0; j++) {
        shared->most[d.warp][2 * t + j] = s.most[j];
        shared->total[d.warp][2 * t + j] = s.total[j];
    }
}

EXL2K_FN void exl2k_store_out(const exl2k_decode &d, const exl2k_attend_args &a, u32 head, u32 i, f32 value)
{
    u32 feature = (d.head + head) * a.dim + i, place = a.map ? exl2k_load_u16(a.map + feature * 2) : feature;
    exl2k_store_u16(a.out + ((u64)d.row * a.out_pitch + place) * 2, exl2k_f32_to_f16(exl2k_clamp_f16(value)));
}

/* Where the sums of a split are: out [dim], most, total. */
EXL2K_FN u64 exl2k_split_at(const exl2k_decode &d, const exl2k_attend_args &a, u32 head, u32 split)
{
    return a.partial + (((u64)d.row * a.heads + d.head + head) * EXL2K_SPLITS_MAX + split) * (a.dim + 2) * 4;
}

/* Sums of all warps: the result, or what the last CTA adds up. */
EXL2K_FN void exl2k_merge_warps(const exl2k_decode &d, const exl2k_attend_args &a, exl2k_decode_shared *shared,
                                u32 rings)
{
    for (u32 item = threadIdx.x; item < d.heads * EXL2K_DIM; item += EXL2K_DECODE_THREADS) {
        u32 head = item / EXL2K_DIM, i = item % EXL2K_DIM;
        f32 most = EXL2K_MINUS_INF, total = 0.0f, value = 0.0f;
        for (u32 w = 0; w < EXL2K_DECODE_WARPS; w++) {
            most = fmaxf(most, shared->most[w][head]);
        }
        for (u32 w = 0; w < EXL2K_DECODE_WARPS; w++) {
            if (shared->total[w][head] > 0.0f) { /* else the warp had no unit */
                u32 at = rings + w * d.stages * EXL2K_UNIT_BYTES + exl2k_parked(head, i);
                f32 factor = exl2k_exp2(shared->most[w][head] - most);
                total += shared->total[w][head] * factor;
                value += exl2k_shared_load_f32(at) * factor;
            }
        }
        if (i < a.dim && d.splits == 1) {
            exl2k_store_out(d, a, head, i, value / total);
        } else if (i < a.dim) {
            u64 to = exl2k_split_at(d, a, head, blockIdx.x);
            exl2k_store_f32(to + i * 4, value);
            if (i == 0) {
                exl2k_store_f32(to + a.dim * 4, most);
                exl2k_store_f32(to + a.dim * 4 + 4, total);
            }
        }
    }
}

/* Sums of all splits, in their order. */
EXL2K_FN void exl2k_merge_splits(const exl2k_decode &d, const exl2k_attend_args &a, exl2k_decode_shared *shared)
{
    if (threadIdx.x < EXL2K_HEAD_TILE * EXL2K_SPLITS_MAX) { /* 16 lanes have the splits of a head */
        u32 head = threadIdx.x / EXL2K_SPLITS_MAX, split = threadIdx.x % EXL2K_SPLITS_MAX;
        bool there = head < d.heads && split < d.splits;
        u64 from = exl2k_split_at(d, a, head, split) + a.dim * 4;
        f32 own = there ? exl2k_load_f32(from) : EXL2K_MINUS_INF, most = own;
        f32 total = there ? exl2k_load_f32(from + 4) : 0.0f;
        for (u32 step = 8; step > 0; step /= 2) {
            most = fmaxf(most, __shfl_xor_sync(EXL2K_ALL, most, step));
        }
        f32 factor = there ? exl2k_exp2(own - most) : 0.0f;
        total = exl2k_half_warp_sum(total * factor);
        shared->factor[split][head] = there ? factor / total : 0.0f;
    }
    __syncthreads();
    for (u32 item = threadIdx.x; item < d.heads * EXL2K_DIM; item += EXL2K_DECODE_THREADS) {
        u32 head = item / EXL2K_DIM, i = item % EXL2K_DIM;
        f32 value = 0.0f;
        for (u32 split = 0; split < d.splits && i < a.dim; split++) {
            value += exl2k_load_f32(exl2k_split_at(d, a, head, split) + i * 4) * shared->factor[split][head];
        }
        if (i < a.dim) {
            exl2k_store_out(d, a, head, i, value);
        }
    }
}

/* Has every split of this row and head been stored? True for one CTA. */
EXL2K_FN bool exl2k_last_split(const exl2k_decode &d, const exl2k_attend_args &a, exl2k_decode_shared *shared)
{
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        shared->ticket = atomicInc((u32 *)a.tickets + (u64)d.row * gridDim.y + blockIdx.y, d.splits - 1);
    }
    __syncthreads();
    __threadfence();
    return shared->ticket == d.splits - 1;
}

extern "C" __global__ void __launch_bounds__(EXL2K_DECODE_THREADS, 1) EXL2K_DECODE(exl2k_attend_args a)
{
    extern __shared__ __align__(128) u8 rings[];
    __shared__ exl2k_decode_shared shared;
    exl2k_decode d;
    exl2k_sums s;
    u32 query[EXL2K_STEPS][2];
    exl2k_dependency_wait();
    exl2k_dependency_release();
    if (!exl2k_decode_open(d, a, exl2k_shared(rings))) {
        return;
    }
    for (u32 e = 0; e < d.stages; e++) {
        exl2k_ring_fill(d, a, e, d.ring + e * EXL2K_UNIT_BYTES);
    }
    exl2k_load_query(d, a, &shared);
    d.back = exl2k_rows_back(a, d.row, d.position, d.sequence);
    __syncthreads();
#pragma unroll
    for (u32 k = 0; k < EXL2K_STEPS; k++) {
        const u16 *from = &shared.query[d.lane / 4][k * 16 + d.lane % 4 * 2];
        query[k][0] = *(const u32 *)from;
        query[k][1] = *(const u32 *)(from + 8);
        for (u32 j = 0; j < 4; j++) {
            s.out[k][j] = 0.0f;
        }
    }
    s.most[0] = s.most[1] = EXL2K_MINUS_INF;
    s.total[0] = s.total[1] = 0.0f;
    exl2k_decode_units(d, a, s, query, &shared);
    exl2k_copy_wait<0>();
    __syncwarp();
    exl2k_park_sums(d, s, &shared);
    __syncthreads();
    exl2k_merge_warps(d, a, &shared, exl2k_shared(rings));
    if (d.splits > 1 && exl2k_last_split(d, a, &shared)) {
        exl2k_merge_splits(d, a, &shared);
    }
}

#endif

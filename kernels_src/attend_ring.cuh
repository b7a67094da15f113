/* attend_ring.cuh: attention in decode: the work of a CTA, and its rings of K and V in shared memory.
   takes: attend.cuh; EXL2K_DIM; EXL2K_CODES (default 0): 1: pages are CODES (attend_args.h), and attend_codes.cuh
          fills the ring; EXL2K_FEW (default 0): 1: a launch has at most EXL2K_KEPT rows and no norms; EXL2K_CROWD
          (default 0): 1: for launches of many CTAs: these are half as large.
   gives: exl2k_decode, exl2k_decode_shared, exl2k_decode_open, exl2k_slot_bytes, exl2k_ring_bytes, exl2k_ring_fill,
          _wait, _keep, _patch.

   The tokens of a split are cut into UNITS of 16, and chain c of sums has units c, c + chains, .. of the split. A warp
   has one chain, or with EXL2K_CROWD two, one after the other, so that CTAs of both sizes give the same bits. Each
   warp has a RING in shared memory with `stages` slots. The elements of the ring are K of the warp's unit 0, V of unit
   0, K of unit 1, V of unit 1, .. and element e lies in slot e % stages. Example with 4 stages, while the warp works on
   V of its unit 1:

     element       0      1      2      3      4      5      6      7
                +------+------+------+------+------+------+------+------+
                | K u0 | V u0 | K u1 | V u1 | K u2 | V u2 | K u3 | V u3 |
                +------+------+------+------+------+------+------+------+
                | used | used | used | NOW  |  copies in flight  | next |
     slot          0      1      2      3      0      1      2      3

   When all lanes have read V u1, the warp starts the copy of V u3 into the same slot. The warp waits for an element by
   waiting for its oldest group of copies. Therefore each fill commits one group, even if there is nothing to copy.

   K and V of this launch's rows come from qkv, not from their pages: other CTAs may still be writing the pages. CODES
   that exl2k_attend_quantize has stored come from the pages. */
#ifndef EXL2K_ATTEND_RING_CUH
#define EXL2K_ATTEND_RING_CUH

#include "attend.cuh"

#ifndef EXL2K_CODES
#define EXL2K_CODES 0
#endif
#ifndef EXL2K_FEW
#define EXL2K_FEW 0
#endif
#ifndef EXL2K_CROWD
#define EXL2K_CROWD 0
#endif

#define EXL2K_UNIT 16u
/* Bytes of K or V of a unit; also of a warp's outputs, f32 [8][dim]. */
#define EXL2K_UNIT_BYTES (EXL2K_UNIT * EXL2K_TOKEN_BYTES)
#define EXL2K_CHAINS (u32)(EXL2K_DIM == 64 ? EXL2K_WARPS64 : EXL2K_DIM == 128 ? EXL2K_WARPS128 : EXL2K_WARPS256)
#define EXL2K_DECODE_WARPS (EXL2K_CHAINS >> EXL2K_CROWD)
/* Rows of the row's sequence whose K and V are kept. */
#define EXL2K_KEEPS (EXL2K_CROWD ? 4u : EXL2K_KEPT)
/* Queries that a warp rotates. */
#define EXL2K_QUERIES ((EXL2K_HEAD_TILE + EXL2K_DECODE_WARPS - 1) / EXL2K_DECODE_WARPS)
#define EXL2K_DECODE_THREADS (EXL2K_DECODE_WARPS * 32)
#define EXL2K_STEPS (EXL2K_DIM / 16)
#define EXL2K_QUERY_PITCH (EXL2K_DIM + 8) /* in halves */
/* Pairs of the row's own K and V per thread. */
#define EXL2K_OWN ((EXL2K_DIM + EXL2K_DECODE_THREADS - 1) / EXL2K_DECODE_THREADS)

typedef struct exl2k_decode {
    u64 table;                           /* the sequence's line of the page tables */
    u32 row, position, back;             /* back: number of rows directly before this one that hold the positions
                                            directly before its own */
    u32 turn;                            /* what is added to positions for their angles */
    u32 head, kv_head, heads;            /* first query head; number of query heads */
    u32 begin, end, splits;              /* tokens of this split; number of splits */
    u32 first;                           /* the first token that the row attends to; begin may lie before it */
    u32 lane, warp, units, ring, stages; /* units of this warp; shared address of its ring */
    u32 first_units;                     /* of the units, those of the warp's first chain */
    u32 pages, batch;                    /* lane l has the number of page 32 batch + l of the split */
    bool writes;                         /* this CTA stores K and V of its row */
} exl2k_decode;

typedef struct exl2k_decode_shared {
    __align__(16) u16 query[EXL2K_HEAD_TILE][EXL2K_QUERY_PITCH];
#if EXL2K_CODES
    __align__(16) u16 new_kv[EXL2K_KEPT][2][EXL2K_DIM / 2 + 16]; /* as exl2k_codes_make writes them */
    u16 staged[EXL2K_DECODE_WARPS][EXL2K_DIM];
    u32 page; /* of the row */
#else
    __align__(16) u16 new_kv[EXL2K_KEEPS][2][EXL2K_DIM]; /* K and V of this row, of the one before it, and so on */
#endif
    f32 max_score[EXL2K_CHAINS][EXL2K_HEAD_TILE], total[EXL2K_CHAINS][EXL2K_HEAD_TILE];
    u32 ticket;
} exl2k_decode_shared;

/* Bytes of a slot, and of the rings of so many warps. */
EXL2K_FN u32 exl2k_slot_bytes(const exl2k_attend_args &a)
{
    return EXL2K_CODES ? EXL2K_CODES_SLOT(a.key_bits, a.value_bits, EXL2K_DIM / 32) : EXL2K_UNIT_BYTES;
}

EXL2K_FN u32 exl2k_ring_bytes(const exl2k_attend_args &a, u32 warps)
{
    return EXL2K_CODES ? warps * a.ring_bytes : warps * a.stages * EXL2K_UNIT_BYTES;
}

/* Shared address of the sums of a chain: the memory of the warp's ring, or after all rings if the warp needs its ring
   for another chain. rings: of the CTA. */
EXL2K_FN u32 exl2k_chain_at(const exl2k_attend_args &a, u32 rings, u32 chain)
{
    if (EXL2K_CROWD && chain < EXL2K_DECODE_WARPS) {
        return rings + exl2k_ring_bytes(a, EXL2K_DECODE_WARPS) + chain * EXL2K_SUMS_BYTES(EXL2K_DIM);
    }
    return rings + exl2k_ring_bytes(a, chain % EXL2K_DECODE_WARPS);
}

/* ---- the work of a CTA ---- */

/* Units of a chain, of those of a split. */
EXL2K_FN u32 exl2k_chain_units(u32 units, u32 chain)
{
    return units > chain ? (units - chain - 1) / EXL2K_CHAINS + 1 : 0;
}

/* Number of rows directly before this row that hold the positions directly before its position. `near`: row - lane. */
EXL2K_FN u32 exl2k_rows_back(const exl2k_attend_args &a, u32 row, u32 position, u32 sequence, uint4 near)
{
    u32 lane = threadIdx.x % 32;
    for (u32 first = 0;; first += 32) {
        /* Lane l checks the row `first` + l before this one; the first 32 are loaded already. */
        u32 distance = first + lane;
        if (first > 0 && distance <= row) {
            near = exl2k_load4(a.rows + (row - distance) * sizeof(exl2k_row));
        }
        /* The first row that breaks the chain ends the search. */
        bool same = distance <= row && near.z == sequence && near.y + distance == position;
        u32 others = __ballot_sync(EXL2K_ALL, !same);
        if (others) {
            return first + (u32)__ffs((int)others) - 2; /* distance 0 is the row itself */
        }
    }
}

/* Finds the work of this CTA; false: it has none. */
EXL2K_FN bool exl2k_decode_open(exl2k_decode &d, const exl2k_attend_args &a, u32 ring)
{
    u32 group = a.group, tiles = (group + EXL2K_HEAD_TILE - 1) / EXL2K_HEAD_TILE;
    d.lane = threadIdx.x % 32;
    d.warp = threadIdx.x / 32;
    d.row = blockIdx.z;
    d.stages = a.stages;
    /* Load the row, its position and its sequence. Lane l loads the row l before this one. */
    uint4 counts = exl2k_load4(a.pass), addresses = exl2k_load4(a.pass + 16);
    uint4 near = exl2k_load4(a.rows + (d.row - exl2k_min(d.lane, d.row)) * sizeof(exl2k_row));
    u32 flags = __shfl_sync(EXL2K_ALL, near.w, 0);
    d.position = __shfl_sync(EXL2K_ALL, near.y, 0);
    d.turn = exl2k_rope_position(0, flags);
    u32 sequence = __shfl_sync(EXL2K_ALL, near.z, 0);
    d.table = (addresses.x | (u64)addresses.y << 32) + (u64)sequence * counts.w * 4;
    /* Compute the number of splits and their length, as attend_args.h defines them. */
    d.first = exl2k_window_begin(a, d.position);
    u32 tokens = d.position + 1 - d.first;
    u32 each = EXL2K_SPLIT_LENGTH(tokens);
    d.splits = tokens <= EXL2K_SPLIT_SINGLE                    ? 1
             : tokens <= EXL2K_SPLIT_TOKENS * EXL2K_SPLITS_MAX ? (tokens - 1) / EXL2K_SPLIT_TOKENS + 1
                                                               : (tokens + each - 1) / each;
    if (d.row >= counts.x || (flags & EXL2K_ROW_DONE) || blockIdx.x >= d.splits) {
        return false;
    }
    /* Find the tokens, heads and units of this CTA. */
    d.back = exl2k_rows_back(a, d.row, d.position, sequence, near);
    d.back = exl2k_min(d.back, d.position - d.first);
    d.begin = d.first / EXL2K_UNIT * EXL2K_UNIT + blockIdx.x * each;
    d.end = blockIdx.x + 1 < d.splits ? d.begin + each : d.position + 1;
    d.kv_head = blockIdx.y / tiles;
    u32 tile = blockIdx.y % tiles;
    d.head = d.kv_head * group + tile * EXL2K_HEAD_TILE;
    d.heads = exl2k_min(group - tile * EXL2K_HEAD_TILE, EXL2K_HEAD_TILE);
    d.writes = tile == 0;
    u32 units = (d.end - d.begin + EXL2K_UNIT - 1) / EXL2K_UNIT;
    d.units = d.first_units = exl2k_chain_units(units, d.warp);
    d.units += EXL2K_CROWD ? exl2k_chain_units(units, d.warp + EXL2K_DECODE_WARPS) : 0;
    d.ring = ring + exl2k_ring_bytes(a, d.warp);
    d.batch = EXL2K_ALL;
    return true;
}

/* First token of the warp's unit u. */
EXL2K_FN u32 exl2k_unit_token(const exl2k_decode &d, u32 u)
{
    bool second = EXL2K_CROWD && u >= d.first_units;
    u32 nth = second ? u - d.first_units : u, chain = d.warp + (second ? EXL2K_DECODE_WARPS : 0);
    return d.begin + (nth * EXL2K_CHAINS + chain) * EXL2K_UNIT;
}

/* ---- norms of q and k ---- */

/* Weights of pair i of a head whose weights begin at `weight`. */
EXL2K_FN float2 exl2k_norm_weights(const exl2k_attend_args &a, u64 weight, u32 i)
{
    u32 first = i < a.rope_split ? i : 2 * i, second = i < a.rope_split ? i + a.rope_split : 2 * i + 1;
    return make_float2(exl2k_load_f32(weight + first * 4), exl2k_load_f32(weight + second * 4));
}

EXL2K_FN void exl2k_norm_apply(exl2k_rope_input &u, float2 weights, f32 rho)
{
    u.x = __fmul_rn(u.x, rho) * weights.x;
    u.y = __fmul_rn(u.y, rho) * weights.y;
}

/* 1 / sqrt(mean square + eps) of a head; pair k of the lane is u[k]. The order is that of attend_prepare.cu. */
EXL2K_FN f32 exl2k_norm_rho(const exl2k_decode &d, const exl2k_attend_args &a, const exl2k_rope_input *u)
{
    f32 sum = 0.0f;
#pragma unroll
    for (u32 k = 0; k < EXL2K_DIM / 64; k++) {
        if (d.lane + 32 * k < a.dim / 2) {
            sum = fmaf(u[k].y, u[k].y, fmaf(u[k].x, u[k].x, sum));
        }
    }
    return 1.0f / sqrtf(exl2k_warp_sum(sum) / (f32)a.dim + a.norm_eps);
}

/* ---- the ring ---- */

/* Number of the page that holds a token. The warp loads 32 page numbers at a time. */
EXL2K_FN u32 exl2k_unit_page(exl2k_decode &d, u32 token)
{
    u32 index = token / EXL2K_PAGE_TOKENS - d.begin / EXL2K_PAGE_TOKENS;
    if (index / 32 != d.batch) {
        u32 at = d.begin / EXL2K_PAGE_TOKENS + index / 32 * 32 + d.lane;
        d.batch = index / 32;
        d.pages = at * EXL2K_PAGE_TOKENS < d.end ? exl2k_load(d.table + at * 4) : 0;
    }
    return __shfl_sync(EXL2K_ALL, d.pages, index % 32);
}

/* Waits until the oldest element has arrived. */
EXL2K_FN void exl2k_ring_wait(u32 stages)
{
    /* The number of groups that may stay in flight is a constant of the instruction. */
    if (stages >= 8) {
        exl2k_copy_wait<7>();
    } else if (stages >= 6) {
        exl2k_copy_wait<5>();
    } else if (stages >= 4) {
        exl2k_copy_wait<3>();
    } else if (stages >= 3) {
        exl2k_copy_wait<2>();
    } else if (stages >= 2) {
        exl2k_copy_wait<1>();
    } else {
        exl2k_copy_wait<0>();
    }
    __syncwarp();
}

#if !EXL2K_CODES
/* Starts to copy element e of the ring: K (e even) or V (e odd) of unit e / 2. Tokens outside of the window
   and after the end become zeros, because 0 * NaN would be NaN. Commits a group even if there is no such element. */
EXL2K_FN void exl2k_ring_fill(exl2k_decode &d, const exl2k_attend_args &a, u32 e, u32 slot)
{
    if (e < 2 * d.units) {
        /* Compute the address of the lane's piece of its first token. */
        u32 token = exl2k_unit_token(d, e / 2), piece = d.lane % EXL2K_PIECES;
        u64 from = exl2k_page_of(a, exl2k_unit_page(d, token), d.kv_head);
        from += (e & 1 ? exl2k_value_offset(a) : 0) + (u64)(token % EXL2K_PAGE_TOKENS) * a.dim * 2;
        u32 line = d.lane / EXL2K_PIECES, seen = piece * 8 < a.dim ? d.end - d.first : 0;
        u32 nth = token + line - d.first; /* counted from the first token that the row attends to; wraps before it */
        from += (u64)line * a.dim * 2 + (seen > 0 ? piece : 0) * 16;
        /* The lanes copy whole tokens, several at a time. */
#pragma unroll
        for (u32 i = 0; i < EXL2K_UNIT; i += 32 / EXL2K_PIECES) {
            exl2k_copy16_or_zeros(slot + exl2k_tile_at(line + i, piece), from + i * a.dim * 2, nth + i < seen);
        }
    }
    exl2k_copy_commit();
}

/* The factor of the norm of a row's K; 0 if there is no norm. */
EXL2K_FN f32 exl2k_new_key_rho(const exl2k_decode &d, const exl2k_attend_args &a, u32 row)
{
#if EXL2K_FEW
    return 0.0f;
#else
    exl2k_rope_input head[EXL2K_DIM / 64];
    if (a.norm[1] == 0) {
        return 0.0f;
    }
#pragma unroll
    for (u32 k = 0; k < EXL2K_DIM / 64; k++) {
        u32 i = exl2k_min(d.lane + 32 * k, a.dim / 2 - 1);
        exl2k_rope_load_elements(a, row, (a.heads + d.kv_head) * a.dim, i, a.rope_split, head[k]);
    }
    return exl2k_norm_rho(d, a, head);
#endif
}

/* What a page holds at i and i + dim / 2, of a row of this launch: a rotated pair of K, whose norm has the factor rho.
   Or two elements of V. */
EXL2K_FN u32 exl2k_new_kv(const exl2k_decode &d, const exl2k_attend_args &a, u32 row, u32 position, u32 i, bool value,
                          f32 rho)
{
    if (value) {
        return exl2k_value(a, row, d.kv_head, i) | exl2k_value(a, row, d.kv_head, i + a.dim / 2) << 16;
    }
    exl2k_rope_input key = exl2k_rope_load(a, row, position + d.turn, (a.heads + d.kv_head) * a.dim, i);
    if (!EXL2K_FEW && a.norm[1]) {
        exl2k_norm_apply(key, exl2k_norm_weights(a, a.norm[1] + (u64)d.kv_head * a.dim * 4, i), rho);
    }
    return exl2k_rope_apply(key);
}

/* Computes K and V of the rows before this one that are of its sequence: a warp has every EXL2K_DECODE_WARPS-th. */
EXL2K_FN void exl2k_ring_keep(const exl2k_decode &d, const exl2k_attend_args &a, exl2k_decode_shared *shared)
{
#pragma unroll 1
    for (u32 n = 1 + d.warp; n <= exl2k_min(d.back, EXL2K_KEEPS - 1); n += EXL2K_DECODE_WARPS) {
        u32 position = d.position - n, half = a.dim / 2;
        if (position < d.begin || position >= d.end) {
            continue;
        }
        f32 rho = exl2k_new_key_rho(d, a, d.row - n);
#pragma unroll
        for (u32 k = 0; k < 2 * (EXL2K_DIM / 64); k++) {
            u32 i = d.lane + k / 2 * 32;
            if (i < half) {
                u32 pair = exl2k_new_kv(d, a, d.row - n, position, i, k % 2, rho);
                shared->new_kv[n][k % 2][i] = (u16)pair;
                shared->new_kv[n][k % 2][i + half] = (u16)(pair >> 16);
            }
        }
    }
}

/* Overwrites the tokens of this launch in a unit of K or V. */
EXL2K_FN void exl2k_ring_patch(exl2k_decode &d, const exl2k_attend_args &a, u32 token, u32 slot, bool value,
                               const exl2k_decode_shared *shared)
{
    u32 begin = exl2k_max(d.position - d.back, token), end = exl2k_min(d.end, token + EXL2K_UNIT);
    if (begin >= end) {
        return;
    }
#pragma unroll 1
    for (u32 position = begin; position < end; position++) {
        u32 n = d.position - position, half = a.dim / 2;
        if (EXL2K_FEW || n < EXL2K_KEEPS) {
            if (d.lane * 8 < a.dim) {
                uint4 piece = *(const uint4 *)(shared->new_kv[n][value] + d.lane * 8);
                exl2k_shared_store4(slot + exl2k_tile_at(position - token, d.lane), piece);
            }
            continue;
        }
        /* Tokens of rows that are not kept are computed again from qkv. */
        f32 rho = value ? 0.0f : exl2k_new_key_rho(d, a, d.row - n);
#pragma unroll 1
        for (u32 i = d.lane; i < half; i += 32) {
            u32 pair = exl2k_new_kv(d, a, d.row - n, position, i, value, rho);
            exl2k_shared_store_u16(slot + exl2k_tile_element(position - token, i), pair);
            exl2k_shared_store_u16(slot + exl2k_tile_element(position - token, i + half), pair >> 16);
        }
    }
    __syncwarp();
}

/* Stores K and V of this row into its page. The last warp does this, because it has the fewest units. */
EXL2K_FN void exl2k_store_new_kv(exl2k_decode &d, const exl2k_attend_args &a, const exl2k_decode_shared *shared)
{
    if (d.warp == EXL2K_DECODE_WARPS - 1 && d.writes && d.end == d.position + 1) {
        u64 to = exl2k_page_of(a, exl2k_unit_page(d, d.position), d.kv_head);
        to += (u64)(d.position % EXL2K_PAGE_TOKENS) * a.dim * 2 + d.lane * 16;
        if (d.lane * 8 < a.dim) {
            exl2k_store4(to, *(const uint4 *)(shared->new_kv[0][0] + d.lane * 8));
            exl2k_store4(to + exl2k_value_offset(a), *(const uint4 *)(shared->new_kv[0][1] + d.lane * 8));
        }
    }
}
#endif

#endif

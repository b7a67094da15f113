/* attend_prefill.cuh: attention of many rows: tiles of 128 pairs (row, query head) that share a K/V head.
   takes: attend.cuh; EXL2K_DIM and EXL2K_PREFILL (the kernel's name) from the file that includes it; pages that hold K
          and V of the pass already.
   gives: the kernel.
   owns:  nothing.
   next:  attend_prefill128.cu

   A warp has 16 pairs, from their queries (in registers) to their outputs; K and V come by tiles of 8,192 elements, one
   ahead of the one that is worked on. With 256 dims two warps share 16 pairs and have half of the output each. A pair
   adds exact zeros for tokens behind its own position, so its bits do not depend on its tile. */
#ifndef EXL2K_ATTEND_PREFILL_CUH
#define EXL2K_ATTEND_PREFILL_CUH

#include "attend.cuh"

#define EXL2K_PREFILL_THREADS (u32)EXL2K_ATTEND_THREADS
#define EXL2K_SHARERS (EXL2K_DIM == 256 ? 2u : 1u) /* warps with the same pairs */
#define EXL2K_PAIRS (EXL2K_PREFILL_THREADS / 2 / EXL2K_SHARERS) /* of the CTA */
#ifndef EXL2K_PREFILL_CTAS
#define EXL2K_PREFILL_CTAS /* of an SM, by registers */                                                           \
    (EXL2K_DIM == 64 || (EXL2K_DIM == 128 && __CUDA_ARCH__ >= 800 && __CUDA_ARCH__ < 1000) ? 3 : 2)
#endif
#define EXL2K_KEYS (4096u / EXL2K_DIM)              /* tokens of a tile of K or V: 64, 32, 16 */
#define EXL2K_KV_BYTES (EXL2K_KEYS * EXL2K_TOKEN_BYTES)
#define EXL2K_STEPS (EXL2K_DIM / 16)
#define EXL2K_OUT_STEPS (EXL2K_STEPS / EXL2K_SHARERS) /* of 16 dims, of a warp */

typedef struct exl2k_prefill {
    exl2k_tile tile;
    u64 table;                                       /* the sequence's line */
    u32 group, kv_head, first_pair, pairs;           /* of this CTA */
    u32 last;                                        /* last position that anyone looks at */
    u32 lane, slice, half;                           /* pairs 16 slice .. + 15; half of the output */
    u32 warp_first, warp_last;                       /* positions of the warp's first and last pair */
    u32 shared;                                      /* two times a tile of K and one of V */
    u32 position[2];                                 /* of this lane's pairs g and g + 8 */
} exl2k_prefill;

typedef struct exl2k_rows_sums { /* lane 4g + t: pairs g and g + 8 */
    f32 out[2 * EXL2K_OUT_STEPS][4]; /* dims 8n + 2t, + 1 of pair g, then of pair g + 8 */
    f32 most[2], total[2];           /* most: about the largest score, times log2(e) */
} exl2k_rows_sums;

/* Row of a pair of this CTA, as the pass counts them. */
EXL2K_FN u32 exl2k_pair_row(const exl2k_prefill &p, u32 pair) { return p.tile.row + (p.first_pair + pair) / p.group; }

EXL2K_FN u32 exl2k_pair_head(const exl2k_prefill &p, u32 pair)
{
    return p.kv_head * p.group + (p.first_pair + pair) % p.group;
}

EXL2K_FN u32 exl2k_row_position(const exl2k_attend_args &a, u32 row)
{
    return exl2k_load(a.rows + row * sizeof(exl2k_row) + 4);
}

EXL2K_FN bool exl2k_prefill_open(exl2k_prefill &p, const exl2k_attend_args &a, u32 shared)
{
    uint4 counts = exl2k_load4(a.pass), addresses = exl2k_load4(a.pass + 16);
    if (blockIdx.x >= counts.z) {
        return false;
    }
    u64 tiles = addresses.z | (u64)addresses.w << 32;
    /* The last tiles of a sequence have the longest way to go. */
    uint4 tile = exl2k_load4(tiles + (u64)(counts.z - 1 - blockIdx.x) * sizeof(exl2k_tile));
    p.tile.row = tile.x;
    p.group = a.group;
    p.kv_head = blockIdx.y;
    p.first_pair = tile.z + blockIdx.z * EXL2K_PAIRS;
    u32 all = tile.y * p.group;
    if (p.first_pair >= all) {
        return false;
    }
    p.pairs = exl2k_min(all - p.first_pair, EXL2K_PAIRS);
    p.table = exl2k_table_line(a, exl2k_load(a.rows + p.tile.row * sizeof(exl2k_row) + 8));
    p.last = exl2k_row_position(a, exl2k_pair_row(p, p.pairs - 1));
    p.lane = threadIdx.x % 32;
    p.slice = threadIdx.x / 32 / EXL2K_SHARERS;
    p.half = threadIdx.x / 32 % EXL2K_SHARERS;
    p.shared = shared;
    u32 first = exl2k_min(p.slice * 16, p.pairs - 1), last = exl2k_min(p.slice * 16 + 15, p.pairs - 1);
    p.warp_first = exl2k_row_position(a, exl2k_pair_row(p, first));
    p.warp_last = exl2k_row_position(a, exl2k_pair_row(p, last));
    for (u32 j = 0; j < 2; j++) {
        u32 pair = p.slice * 16 + p.lane / 4 + 8 * j;
        p.position[j] = pair < p.pairs ? exl2k_row_position(a, exl2k_pair_row(p, pair)) : p.warp_last;
    }
    return true;
}

#define EXL2K_STAGED 8u

/* Queries of the CTA, rotated, where K and V will be; pairs that are not there are zeros. The warps take turns at
   pairs, each has eight at a time. */
EXL2K_FN void exl2k_stage_queries(const exl2k_prefill &p, const exl2k_attend_args &a)
{
    u32 half = a.dim / 2;
    for (u32 first = threadIdx.x / 32; first < EXL2K_PAIRS; first += EXL2K_STAGED * EXL2K_PREFILL_THREADS / 32) {
        u32 rows[EXL2K_STAGED], positions[EXL2K_STAGED], features[EXL2K_STAGED];
#pragma unroll
        for (u32 j = 0; j < EXL2K_STAGED; j++) {
            u32 pair = exl2k_min(first + j * EXL2K_PREFILL_THREADS / 32, p.pairs - 1);
            rows[j] = exl2k_pair_row(p, pair);
            positions[j] = exl2k_row_position(a, rows[j]);
            features[j] = exl2k_pair_head(p, pair) * a.dim;
        }
        for (u32 i = p.lane; i < EXL2K_DIM / 2; i += 32) {
            exl2k_unturned unturned[EXL2K_STAGED];
            bool inside = i < half; /* behind it zeros, on both ends of what the class has more */
            u32 second = inside ? i + half : i + EXL2K_DIM / 2, from = inside ? i : i + half;
#pragma unroll
            for (u32 j = 0; j < EXL2K_STAGED; j++) {
                unturned[j] = exl2k_unturned_load(a, rows[j], positions[j], features[j], inside ? i : 0);
            }
#pragma unroll
            for (u32 j = 0; j < EXL2K_STAGED; j++) {
                u32 pair = first + j * EXL2K_PREFILL_THREADS / 32;
                u32 both = inside && pair < p.pairs ? exl2k_turn(unturned[j]) : 0;
                exl2k_shared_store_u16(p.shared + exl2k_tile_element(pair, from), both);
                exl2k_shared_store_u16(p.shared + exl2k_tile_element(pair, second), both >> 16);
            }
        }
    }
}

/* K and V of tokens [first, first + KEYS), which lie in one page; zeros behind the last. */
EXL2K_FN void exl2k_load_tile(const exl2k_prefill &p, const exl2k_attend_args &a, u32 first, u32 page, u32 to)
{
    if (first <= p.last) {
        u32 piece = threadIdx.x % EXL2K_PIECES, line = threadIdx.x / EXL2K_PIECES;
        u64 from = exl2k_page_of(a, page, p.kv_head) + (u64)(first % EXL2K_PAGE_TOKENS) * a.dim * 2;
        u64 offset = exl2k_value_offset(a);
#pragma unroll
        for (u32 i = 0; i < EXL2K_KEYS; i += EXL2K_PREFILL_THREADS / EXL2K_PIECES) {
            u32 at = to + exl2k_tile_at(line + i, piece);
            bool there = piece * 8 < a.dim && first + line + i <= p.last;
            u64 token = from + (u64)(line + i) * a.dim * 2 + (there ? piece : 0) * 16;
            exl2k_copy16_or_zeros(at, token, there);
            exl2k_copy16_or_zeros(at + EXL2K_KV_BYTES, token + offset, there);
        }
    }
    exl2k_copy_commit();
}

EXL2K_FN u32 exl2k_tile_page(const exl2k_prefill &p, u32 first)
{
    return first <= p.last ? exl2k_load(p.table + first / EXL2K_PAGE_TOKENS * 4) : 0;
}

/* score[n]: keys 8n + 2t, + 1 of pair g, then of pair g + 8. */
EXL2K_FN void exl2k_tile_scores(f32 score[EXL2K_KEYS / 8][4], const u32 query[EXL2K_STEPS][4], u32 keys)
{
#pragma unroll
    for (u32 n = 0; n < EXL2K_KEYS / 8; n++) {
        for (u32 j = 0; j < 4; j++) {
            score[n][j] = 0.0f;
        }
    }
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

/* Scores of tokens behind a pair's position, in the tile at token `first`, count nothing. */
EXL2K_FN void exl2k_tile_mask(const exl2k_prefill &p, f32 score[EXL2K_KEYS / 8][4], u32 first)
{
#pragma unroll
    for (u32 n = 0; n < EXL2K_KEYS / 8; n++) {
        for (u32 i = 0; i < 4; i++) {
            u32 key = first + 8 * n + 2 * (p.lane % 4) + (i & 1);
            score[n][i] = key <= p.position[i / 2] ? score[n][i] : EXL2K_MINUS_INF;
        }
    }
}

/* Sums are scaled anew only when a pair's largest score has grown by more than this since; so weights are up to 2^8. */
#define EXL2K_GROWTH 8.0f

/* most: this lane's largest scores. A pair's largest one is that of four lanes, and each pair decides for itself. */
EXL2K_FN void exl2k_sums_scale(exl2k_rows_sums &s, const f32 most[2])
{
    f32 factor[2];
    for (u32 j = 0; j < 2; j++) {
        f32 now = fmaxf(most[j], __shfl_xor_sync(EXL2K_ALL, most[j], 1));
        now = fmaxf(now, __shfl_xor_sync(EXL2K_ALL, now, 2));
        now = now > s.most[j] + EXL2K_GROWTH ? now : s.most[j];
        factor[j] = exl2k_exp2(s.most[j] - now);
        s.total[j] *= factor[j];
        s.most[j] = now;
    }
#pragma unroll
    for (u32 n = 0; n < 2 * EXL2K_OUT_STEPS; n++) {
        for (u32 i = 0; i < 4; i++) {
            s.out[n][i] *= factor[i / 2];
        }
    }
}

/* Scores -> weights against s.most. */
EXL2K_FN void exl2k_tile_soften(exl2k_rows_sums &s, f32 score[EXL2K_KEYS / 8][4], f32 scale)
{
    f32 most[2];
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        most[j] = fmaxf(score[0][2 * j], score[0][2 * j + 1]);
#pragma unroll
        for (u32 n = 1; n < EXL2K_KEYS / 8; n++) {
            most[j] = fmaxf(most[j], fmaxf(score[n][2 * j], score[n][2 * j + 1]));
        }
        most[j] *= scale;
    }
    if (__any_sync(EXL2K_ALL, most[0] > s.most[0] + EXL2K_GROWTH || most[1] > s.most[1] + EXL2K_GROWTH)) {
        exl2k_sums_scale(s, most);
    }
#pragma unroll
    for (u32 n = 0; n < EXL2K_KEYS / 8; n++) {
        for (u32 i = 0; i < 4; i++) {
            score[n][i] = exl2k_exp2(fmaf(score[n][i], scale, -s.most[i / 2]));
            s.total[i / 2] += score[n][i];
        }
    }
}

EXL2K_FN void exl2k_tile_mix(const exl2k_prefill &p, exl2k_rows_sums &s, f32 weight[EXL2K_KEYS / 8][4], u32 values)
{
#pragma unroll
    for (u32 m = 0; m < EXL2K_KEYS / 16; m++) {
        u32 rows[4] = { exl2k_pack_f16(weight[2 * m][0], weight[2 * m][1]),
                        exl2k_pack_f16(weight[2 * m][2], weight[2 * m][3]),
                        exl2k_pack_f16(weight[2 * m + 1][0], weight[2 * m + 1][1]),
                        exl2k_pack_f16(weight[2 * m + 1][2], weight[2 * m + 1][3]) };
#pragma unroll
        for (u32 k = 0; k < EXL2K_OUT_STEPS; k++) {
            u32 step = p.half * EXL2K_OUT_STEPS + k;
            uint4 tile = exl2k_ldmatrix4_transposed(exl2k_tile_rows(values + m * 16 * EXL2K_TOKEN_BYTES, step));
            exl2k_mma(s.out[2 * k], rows, tile.x, tile.y);
            exl2k_mma(s.out[2 * k + 1], rows, tile.z, tile.w);
        }
    }
}

EXL2K_FN void exl2k_prefill_store(const exl2k_prefill &p, const exl2k_attend_args &a, exl2k_rows_sums &s)
{
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        u32 pair = p.slice * 16 + p.lane / 4 + 8 * j;
        f32 total = s.total[j];
        total += __shfl_xor_sync(EXL2K_ALL, total, 1);
        total += __shfl_xor_sync(EXL2K_ALL, total, 2);
        if (pair < p.pairs) {
            u32 feature = exl2k_pair_head(p, pair) * a.dim;
            u64 to = a.out + (u64)exl2k_pair_row(p, pair) * a.out_pitch * 2;
            f32 inverse = 1.0f / total;
#pragma unroll
            for (u32 n = 0; n < 2 * EXL2K_OUT_STEPS && !a.map; n++) { /* two at a time */
                u32 i = p.half * 16 * EXL2K_OUT_STEPS + n * 8 + p.lane % 4 * 2;
                u32 both = exl2k_pack_f16(exl2k_clamp_f16(s.out[n][2 * j] * inverse),
                                          exl2k_clamp_f16(s.out[n][2 * j + 1] * inverse));
                if (i < a.dim) {
                    exl2k_store(to + (feature + i) * 2, both);
                }
            }
#pragma unroll
            for (u32 n = 0; n < 4 * EXL2K_OUT_STEPS && a.map; n += 16) {
                u32 first = p.half * 16 * EXL2K_OUT_STEPS + n / 2 * 8 + p.lane % 4 * 2, places[16];
#pragma unroll
                for (u32 k = 0; k < 16; k++) {
                    u32 i = first + k / 2 * 8 + k % 2;
                    places[k] = exl2k_out_place(a, i < a.dim ? feature + i : 0);
                }
#pragma unroll
                for (u32 k = 0; k < 16; k++) {
                    u32 i = first + k / 2 * 8 + k % 2;
                    u32 value = exl2k_f32_to_f16(exl2k_clamp_f16(s.out[(n + k) / 2][2 * j + k % 2] * inverse));
                    if (i < a.dim) {
                        exl2k_store_u16(to + places[k] * 2, value);
                    }
                }
            }
        }
    }
}

/* A tile's place is filled again once every warp is done with it: at the barrier of the next tile. */
EXL2K_FN void exl2k_prefill_tiles(const exl2k_prefill &p, const exl2k_attend_args &a, exl2k_rows_sums &s,
                                  const u32 query[EXL2K_STEPS][4])
{
    u32 page = exl2k_tile_page(p, EXL2K_KEYS), at = p.shared, other = p.shared + 2 * EXL2K_KV_BYTES;
    exl2k_load_tile(p, a, 0, exl2k_tile_page(p, 0), at);
    for (u32 first = 0; first <= p.last; first += EXL2K_KEYS) {
        exl2k_copy_wait<0>();
        __syncthreads();
        exl2k_load_tile(p, a, first + EXL2K_KEYS, page, other);
        page = exl2k_tile_page(p, first + 2 * EXL2K_KEYS);
        if (first <= p.warp_last) {
            f32 score[EXL2K_KEYS / 8][4];
            exl2k_tile_scores(score, query, at);
            if (first + EXL2K_KEYS > p.warp_first + 1) {
                exl2k_tile_mask(p, score, first);
            }
            exl2k_tile_soften(s, score, a.scale * EXL2K_LOG2E);
            exl2k_tile_mix(p, s, score, at + EXL2K_KV_BYTES);
        }
        u32 swap = at;
        at = other;
        other = swap;
    }
}

extern "C" __global__ void __launch_bounds__(EXL2K_PREFILL_THREADS, EXL2K_PREFILL_CTAS)
EXL2K_PREFILL(exl2k_attend_args a)
{
    __shared__ __align__(128) u8 shared[4 * EXL2K_KV_BYTES]; /* at first the queries */
    exl2k_prefill p;
    exl2k_rows_sums s;
    u32 query[EXL2K_STEPS][4];
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (!exl2k_prefill_open(p, a, exl2k_shared(shared))) {
        return;
    }
    exl2k_stage_queries(p, a);
    __syncthreads();
#pragma unroll
    for (u32 k = 0; k < EXL2K_STEPS; k++) {
        uint4 tile = exl2k_ldmatrix4(exl2k_tile_rows(p.shared + p.slice * 16 * EXL2K_TOKEN_BYTES, k));
        query[k][0] = tile.x;
        query[k][1] = tile.y;
        query[k][2] = tile.z;
        query[k][3] = tile.w;
    }
#pragma unroll
    for (u32 n = 0; n < 2 * EXL2K_OUT_STEPS; n++) {
        for (u32 i = 0; i < 4; i++) {
            s.out[n][i] = 0.0f;
        }
    }
    s.most[0] = s.most[1] = EXL2K_MINUS_INF;
    s.total[0] = s.total[1] = 0.0f;
    __syncthreads();
    exl2k_prefill_tiles(p, a, s, query);
    exl2k_prefill_store(p, a, s);
}

#endif

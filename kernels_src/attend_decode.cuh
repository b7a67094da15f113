/* attend_decode.cuh: attention of single rows over their pages: RoPE, K and V into the page, softmax, split contexts.
   takes: attend_merge.cuh; EXL2K_DIM and EXL2K_DECODE (the kernel's name) from the file that includes it.
   gives: the kernel.
   owns:  nothing.
   next:  attend_decode128.cu

   CTA = (split, K/V head and up to 8 of its query heads, row). Its warps take turns at units of 16 tokens; each has its
   own ring of units of K and V, its own running maximum, sum and output, which are added up at the end, in the order of
   the warps; then those of the splits in theirs, by one of their CTAs.
       scores [16 tokens x 8 heads] = K [16 x dim] * q    output [dim x 8 heads] += V^T [dim x 16] * weights */
#ifndef EXL2K_ATTEND_DECODE_CUH
#define EXL2K_ATTEND_DECODE_CUH

#include "attend_merge.cuh"

/* ---- a warp's sums ---- */

typedef struct exl2k_sums { /* lane 4g + t: heads 2t and 2t + 1 */
    f32 out[EXL2K_STEPS][4]; /* dims 16 step + g: heads 2t, 2t + 1; dims + 8: the same */
    f32 most[2], total[2];   /* total: of this lane's tokens */
} exl2k_sums;

#define EXL2K_BATCH (EXL2K_STEPS < 8 ? EXL2K_STEPS : 8) /* steps of which the operands are loaded together */

/* Operands of steps [first, first + BATCH) of K or, mirrored, of V. All loads are issued before anything needs them. */
template <bool VALUE> EXL2K_FN void exl2k_load_tiles(uint4 tiles[EXL2K_BATCH], u32 slot, u32 first)
{
#pragma unroll
    for (u32 k = 0; k < EXL2K_BATCH; k++) {
        tiles[k] = VALUE ? exl2k_ldmatrix4_transposed(exl2k_tile_columns(slot, first + k))
                         : exl2k_ldmatrix4(exl2k_tile_rows(slot, first + k));
    }
}

EXL2K_FN void exl2k_multiply(f32 d[4], const uint4 &tile, const u32 b[2])
{
    u32 rows[4] = { tile.x, tile.y, tile.z, tile.w };
    exl2k_mma(d, rows, b[0], b[1]);
}

/* Four chains of products are done sooner than one. */
EXL2K_FN void exl2k_scores(f32 score[4], u32 slot, const u32 query[EXL2K_STEPS][2])
{
    f32 chains[4][4];
#pragma unroll
    for (u32 j = 0; j < 16; j++) {
        chains[j / 4][j % 4] = 0.0f;
    }
#pragma unroll
    for (u32 first = 0; first < EXL2K_STEPS; first += EXL2K_BATCH) {
        uint4 tiles[EXL2K_BATCH];
        exl2k_load_tiles<false>(tiles, slot, first);
#pragma unroll
        for (u32 k = 0; k < EXL2K_BATCH; k++) {
            exl2k_multiply(chains[k % 4], tiles[k], query[first + k]);
        }
    }
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
        score[j] = (chains[0][j] + chains[1][j]) + (chains[2][j] + chains[3][j]);
    }
}

/* Scores of 16 tokens -> weights against the maximum so far, as the B operand; old sums are scaled to it. */
EXL2K_FN void exl2k_soften(exl2k_sums &s, f32 score[4], u32 token, u32 end, f32 scale, u32 weights[2])
{
    u32 g = threadIdx.x % 32 / 4;
    f32 factor[2], most[2];
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        score[j] = token + g < end ? score[j] * scale : EXL2K_MINUS_INF;
        score[2 + j] = token + g + 8 < end ? score[2 + j] * scale : EXL2K_MINUS_INF;
        most[j] = fmaxf(score[j], score[2 + j]);
    }
#pragma unroll
    for (u32 step = 4; step < 32; step *= 2) { /* both heads at once */
        f32 other[2] = { __shfl_xor_sync(EXL2K_ALL, most[0], step), __shfl_xor_sync(EXL2K_ALL, most[1], step) };
        most[0] = fmaxf(most[0], other[0]);
        most[1] = fmaxf(most[1], other[1]);
    }
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        most[j] = fmaxf(most[j], s.most[j]);
        factor[j] = exl2k_exp2(s.most[j] - most[j]);
        s.most[j] = most[j];
        score[j] = exl2k_exp2(score[j] - most[j]);
        score[2 + j] = exl2k_exp2(score[2 + j] - most[j]);
        s.total[j] = s.total[j] * factor[j] + (score[j] + score[2 + j]);
    }
    weights[0] = exl2k_mirror(exl2k_pack_f16(score[0], score[1]));
    weights[1] = exl2k_mirror(exl2k_pack_f16(score[2], score[3]));
#pragma unroll
    for (u32 k = 0; k < EXL2K_STEPS; k++) {
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            s.out[k][j] *= factor[j & 1];
        }
    }
}

EXL2K_FN void exl2k_mix(exl2k_sums &s, u32 slot, const u32 weights[2])
{
#pragma unroll
    for (u32 first = 0; first < EXL2K_STEPS; first += EXL2K_BATCH) {
        uint4 tiles[EXL2K_BATCH];
        exl2k_load_tiles<true>(tiles, slot, first);
#pragma unroll
        for (u32 k = 0; k < EXL2K_BATCH; k++) {
            exl2k_multiply(s.out[first + k], tiles[k], weights);
        }
    }
}

/* All units of the warp. */
EXL2K_FN void exl2k_decode_units(exl2k_decode &d, const exl2k_attend_args &a, exl2k_sums &s,
                                 const u32 query[EXL2K_STEPS][2], const exl2k_decode_shared *shared)
{
    u32 slot = 0, e = 0;
#pragma unroll 1
    for (u32 u = 0; u < d.units; u++) {
        u32 token = exl2k_unit_token(d, u), weights[2];
#pragma unroll 1 /* K and V share the code around them: instructions must be fetched, too */
        for (u32 value = 0; value < 2; value++, e++) {
            u32 at = d.ring + slot * EXL2K_UNIT_BYTES;
            exl2k_ring_wait(d.stages);
            exl2k_ring_patch(d, a, token, at, value, shared->fresh[value]);
            if (value) {
                exl2k_mix(s, at, weights);
            } else {
                f32 score[4];
                exl2k_scores(score, at, query);
                exl2k_soften(s, score, token, d.end, a.scale * EXL2K_LOG2E, weights);
            }
            __syncwarp();
            exl2k_ring_fill(d, a, e + d.stages, at);
            slot = slot + 1 < d.stages ? slot + 1 : 0;
        }
    }
#pragma unroll
    for (u32 step = 4; step < 32; step *= 2) {
        f32 other[2] = { __shfl_xor_sync(EXL2K_ALL, s.total[0], step), __shfl_xor_sync(EXL2K_ALL, s.total[1], step) };
        s.total[0] += other[0];
        s.total[1] += other[1];
    }
}

/* ---- queries, and K and V of the row ---- */

/* What a thread turns: queries of the heads warp, warp + WARPS, ..., and elements of the row's own K and V. */
typedef struct exl2k_turning {
    exl2k_unturned query[EXL2K_QUERIES][EXL2K_DIM / 64], own[EXL2K_OWN];
} exl2k_turning;

/* Element of the own K (below half) or V that is a thread's number n. */
EXL2K_FN u32 exl2k_own_element(u32 n) { return threadIdx.x + n * EXL2K_DECODE_THREADS; }

/* angles: of constant tables, by themselves; else what the kernel before has written. */
EXL2K_FN void exl2k_turning_load(const exl2k_decode &d, const exl2k_attend_args &a, bool angles, exl2k_turning &q)
{
    u32 half = a.dim / 2;
#pragma unroll
    for (u32 n = 0; n < EXL2K_OWN; n++) {
        u32 element = exl2k_min(exl2k_own_element(n), 2 * half - 1);
        bool value = element >= half;
        u32 feature = (a.heads + (value ? a.kv_heads : 0) + d.kv_head) * a.dim, i = value ? element - half : element;
        if (angles) {
            exl2k_angle_load(a, d.position, i, q.own[n]);
        } else {
            exl2k_elements_load(a, d.row, feature, i, q.own[n]);
        }
    }
#pragma unroll
    for (u32 n = 0; n < EXL2K_QUERIES; n++) {
        u32 head = d.head + exl2k_min(d.warp + n * EXL2K_DECODE_WARPS, d.heads - 1);
#pragma unroll
        for (u32 k = 0; k < EXL2K_DIM / 64; k++) {
            u32 i = exl2k_min(d.lane + 32 * k, half - 1);
            if (angles) {
                exl2k_angle_load(a, d.position, i, q.query[n][k]);
            } else {
                exl2k_elements_load(a, d.row, head * a.dim, i, q.query[n][k]);
            }
        }
    }
}

/* Into shared memory; heads that are not there, and dims behind the last, are zeros. */
EXL2K_FN void exl2k_turning_store(const exl2k_decode &d, const exl2k_attend_args &a, const exl2k_turning &q,
                                  exl2k_decode_shared *shared)
{
    u32 half = a.dim / 2;
#pragma unroll
    for (u32 n = 0; n < EXL2K_OWN; n++) {
        u32 element = exl2k_own_element(n);
        bool value = element >= half;
        u32 pair = value ? exl2k_pack_f16(exl2k_clamp_f16(q.own[n].x), exl2k_clamp_f16(q.own[n].y))
                         : exl2k_turn(q.own[n]);
        if (element < 2 * half) {
            shared->fresh[value][value ? element - half : element] = (u16)pair;
            shared->fresh[value][value ? element : element + half] = (u16)(pair >> 16);
        }
    }
#pragma unroll
    for (u32 n = 0; n < EXL2K_QUERIES; n++) {
        u32 head = d.warp + n * EXL2K_DECODE_WARPS;
#pragma unroll
        for (u32 k = 0; k < EXL2K_DIM / 64 && head < EXL2K_HEAD_TILE; k++) {
            u32 i = d.lane + 32 * k, pair = head < d.heads ? exl2k_turn(q.query[n][k]) : 0;
            if (i < half) {
                shared->query[head][i] = (u16)pair;
                shared->query[head][i + half] = (u16)(pair >> 16);
            } else { /* the zeros have as many pairs as the class has more than dim */
                shared->query[head][i + half] = 0;
                shared->query[head][i + EXL2K_DIM / 2] = 0;
            }
        }
    }
}

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

/* Of an SM, by registers. */
#define EXL2K_DECODE_CTAS (EXL2K_DIM == 256 || EXL2K_DECODE_WARPS > 8 || __CUDA_ARCH__ < 800 ? 1 : 2)

extern "C" __global__ void __launch_bounds__(EXL2K_DECODE_THREADS, EXL2K_DECODE_CTAS)
EXL2K_DECODE(exl2k_attend_args a)
{
    extern __shared__ __align__(128) u8 rings[];
    __shared__ exl2k_decode_shared shared;
    exl2k_decode d;
    exl2k_sums s;
    u32 query[EXL2K_STEPS][2];
    uint2 places[EXL2K_ITEMS];
    exl2k_turning turning;
    exl2k_cluster_arrive();
    exl2k_dependency_release();
    if (!a.early) {
        exl2k_dependency_wait();
    }
    bool there = exl2k_decode_open(d, a, exl2k_shared(rings));
    if (there) {
        exl2k_turning_load(d, a, true, turning);
#pragma unroll 1
        for (u32 e = 0; e < d.stages; e++) {
            exl2k_ring_fill(d, a, e, d.ring + e * EXL2K_UNIT_BYTES);
        }
        exl2k_load_places(d, a, places);
    }
    if (a.early) {
        exl2k_dependency_wait();
    }
    if (!there) {
        return;
    }
    exl2k_turning_load(d, a, false, turning);
    exl2k_turning_store(d, a, turning, &shared);
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
    exl2k_store_fresh(d, a, &shared);
    s.most[0] = s.most[1] = EXL2K_MINUS_INF;
    s.total[0] = s.total[1] = 0.0f;
    exl2k_decode_units(d, a, s, query, &shared);
    exl2k_copy_wait<0>();
    __syncwarp();
    exl2k_park_sums(d, s, &shared);
    __syncthreads();
    exl2k_add_all(d, a, &shared, exl2k_shared(rings), places);
}

#endif

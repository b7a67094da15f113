/* attend_decode.cuh: attention in decode, for single rows over their pages: RoPE, storing K and V, softmax, splits.
   takes: attend_merge.cuh; EXL2K_DIM, EXL2K_DECODE (the kernel's name), EXL2K_CODES, EXL2K_FEW and EXL2K_CROWD
          (attend_ring.cuh) from the file that includes it.
   gives: the kernel EXL2K_DECODE.

   Each CTA computes one split of one row, for one K/V head and up to 8 of its query heads. The warps of a CTA share the
   units of 16 tokens. Each warp has its own ring of K and V, its own running maximum, sum and output (as in
   FlashAttention), or with EXL2K_CROWD two of these. At the end they are merged in their order (EXL2K_CHAINS), then in
   the order of the splits by one CTA.
       scores [16 tokens x 8 heads] = K [16 x dim] * q    output [dim x 8 heads] += V^T [dim x 16] * weights */
#ifndef EXL2K_ATTEND_DECODE_CUH
#define EXL2K_ATTEND_DECODE_CUH

#include "attend_merge.cuh"
#if EXL2K_CODES
#include "attend_codes.cuh"
#else

/* ---- the running sums of a warp ---- */

#define EXL2K_BATCH (EXL2K_STEPS < 8 ? EXL2K_STEPS : 8) /* steps whose operands are loaded together */

/* Loads the operands of steps [first, first + BATCH) of K, or transposed of V. All loads are issued before the first
   use. */
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

/* Scores of a unit. Four independent chains of products finish sooner than one. */
EXL2K_FN void exl2k_scores(f32 score[4], u32 slot, const u32 query[EXL2K_STEPS][2])
{
    f32 chains[4][4];
#pragma unroll
    for (u32 j = 0; j < 16; j++) {
        chains[j / 4][j % 4] = 0.0f;
    }
    /* Step k of the dims goes to chain k % 4. */
#pragma unroll
    for (u32 first = 0; first < EXL2K_STEPS; first += EXL2K_BATCH) {
        uint4 tiles[EXL2K_BATCH];
        exl2k_load_tiles<false>(tiles, slot, first);
#pragma unroll
        for (u32 k = 0; k < EXL2K_BATCH; k++) {
            exl2k_multiply(chains[k % 4], tiles[k], query[first + k]);
        }
    }
    /* The chains are added up in a fixed order. */
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
        score[j] = (chains[0][j] + chains[1][j]) + (chains[2][j] + chains[3][j]);
    }
}

/* One step of the online softmax: turns the scores of 16 tokens into weights relative to the running maximum, as the
   B operand of the next product, and rescales the sums so far. The row attends to `seen` tokens up to the end of the
   split; the unit begins with the `nth` of them, counted from 0. If it begins before all of them, nth wraps. */
EXL2K_FN void exl2k_softmax_step(exl2k_warp_sums &s, f32 score[4], u32 nth, u32 seen, f32 scale, u32 weights[2])
{
    u32 g = threadIdx.x % 32 / 4;
    f32 factor[2], max_score[2];
    /* Scale the scores, mask tokens that the row does not attend to, and find the lane's maximum for each of its two
       heads. */
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        score[j] = nth + g < seen ? score[j] * scale : EXL2K_MINUS_INF;
        score[2 + j] = nth + g + 8 < seen ? score[2 + j] * scale : EXL2K_MINUS_INF;
        max_score[j] = fmaxf(score[j], score[2 + j]);
    }
    /* Find the maximum over the lanes of a head, for both heads at once. */
#pragma unroll
    for (u32 step = 4; step < 32; step *= 2) {
        f32 other[2] = { __shfl_xor_sync(EXL2K_ALL, max_score[0], step),
                         __shfl_xor_sync(EXL2K_ALL, max_score[1], step) };
        max_score[0] = fmaxf(max_score[0], other[0]);
        max_score[1] = fmaxf(max_score[1], other[1]);
    }
    /* Compute the new running maximum, the factor of the old sums, and the weights. */
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        max_score[j] = fmaxf(max_score[j], s.max_score[j]);
        factor[j] = exl2k_exp2(s.max_score[j] - max_score[j]);
        s.max_score[j] = max_score[j];
        score[j] = exl2k_exp2(score[j] - max_score[j]);
        score[2 + j] = exl2k_exp2(score[2 + j] - max_score[j]);
        s.total[j] = s.total[j] * factor[j] + (score[j] + score[2 + j]);
    }
    /* The weights become halves, in the layout of the B operand. */
    weights[0] = exl2k_transpose(exl2k_pack_f16(score[0], score[1]));
    weights[1] = exl2k_transpose(exl2k_pack_f16(score[2], score[3]));
    /* The output so far is rescaled to the new maximum. */
#pragma unroll
    for (u32 k = 0; k < EXL2K_STEPS; k++) {
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            s.out[k][j] *= factor[j & 1];
        }
    }
}

/* Adds the weighted sum of a unit's V to the output. */
EXL2K_FN void exl2k_weighted_sum(exl2k_warp_sums &s, u32 slot, const u32 weights[2])
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

/* Works through units [u, end) of the warp. slot: that of the next unit's K, and then of the unit after it. */
EXL2K_FN void exl2k_decode_units(exl2k_decode &d, const exl2k_attend_args &a, exl2k_warp_sums &s,
                                 const u32 query[EXL2K_STEPS][2], const exl2k_decode_shared *shared, u32 u, u32 end,
                                 u32 &slot)
{
    u32 e = 2 * u;
    /* For each unit: wait for K, compute the weights, wait for V, add the weighted sum. A used slot is refilled. */
#pragma unroll 1
    for (; u < end; u++) {
        u32 token = exl2k_unit_token(d, u), weights[2];
#pragma unroll 1 /* one loop for K and V halves the code to fetch */
        for (u32 value = 0; value < 2; value++, e++) {
            u32 at = d.ring + slot * EXL2K_UNIT_BYTES;
            exl2k_ring_wait(d.stages);
            exl2k_ring_patch(d, a, token, at, value, shared);
            if (value) {
                exl2k_weighted_sum(s, at, weights);
            } else {
                f32 score[4];
                exl2k_scores(score, at, query);
                if (a.tanh_scale > 0.0f) {
#pragma unroll
                    for (u32 j = 0; j < 4; j++) {
                        score[j] = exl2k_tanh(score[j] * (a.tanh_scale * 2.0f * EXL2K_LOG2E));
                    }
                }
                exl2k_softmax_step(s, score, token - d.first, d.end - d.first, a.scale * EXL2K_LOG2E, weights);
            }
            __syncwarp();
            exl2k_ring_fill(d, a, e + d.stages, at);
            slot = slot + 1 < d.stages ? slot + 1 : 0;
        }
    }
}

/* ---- queries, and K and V of the row ---- */

/* The elements that a thread rotates: queries of heads warp, warp + WARPS, .. and elements of the row's own K and V. */
typedef struct exl2k_rope_work {
    exl2k_rope_input query[EXL2K_QUERIES][EXL2K_DIM / 64], own[EXL2K_OWN];
} exl2k_rope_work;

/* A thread's n-th element of the row's own K (below half) or V. */
EXL2K_FN u32 exl2k_own_element(u32 n) { return threadIdx.x + n * EXL2K_DECODE_THREADS; }

/* angles: loads the angles, from a constant table. Otherwise loads the elements, which the preceding kernel has
   written. */
EXL2K_FN void exl2k_rope_work_load(const exl2k_decode &d, const exl2k_attend_args &a, bool angles, exl2k_rope_work &q)
{
    u32 half = a.dim / 2;
    /* Load the row's own K and V. */
#pragma unroll
    for (u32 n = 0; n < EXL2K_OWN; n++) {
        u32 element = exl2k_min(exl2k_own_element(n), 2 * half - 1);
        bool value = element >= half;
        u32 feature = (a.heads + (value ? a.kv_heads : 0) + d.kv_head) * a.dim, i = value ? element - half : element;
        if (angles) {
            exl2k_rope_load_angle(a, d.position + d.turn, i, q.own[n].c, q.own[n].s);
        } else {
            exl2k_rope_load_elements(a, d.row, feature, i, value ? half : a.rope_split, q.own[n]);
        }
    }
    /* Load the queries of the warp's heads. */
#pragma unroll
    for (u32 n = 0; n < EXL2K_QUERIES; n++) {
        u32 head = d.head + exl2k_min(d.warp + n * EXL2K_DECODE_WARPS, d.heads - 1);
#pragma unroll
        for (u32 k = 0; k < EXL2K_DIM / 64; k++) {
            u32 i = exl2k_min(d.lane + 32 * k, half - 1);
            if (angles) {
                exl2k_rope_load_angle(a, d.position + d.turn, i, q.query[n][k].c, q.query[n][k].s);
            } else {
                exl2k_rope_load_elements(a, d.row, head * a.dim, i, a.rope_split, q.query[n][k]);
            }
        }
    }
}

/* Applies the norms of the heads. Every warp computes the factor of the row's own K. All loads are issued first. */
EXL2K_FN void exl2k_rope_work_norm(const exl2k_decode &d, const exl2k_attend_args &a, exl2k_rope_work &q)
{
    u32 half = a.dim / 2;
    exl2k_rope_input k_head[EXL2K_DIM / 64];
    float2 own[EXL2K_OWN], query[EXL2K_QUERIES][EXL2K_DIM / 64];
    u64 k_weight = a.norm[1] + (u64)d.kv_head * a.dim * 4;
    if (a.norm[1]) {
#pragma unroll
        for (u32 k = 0; k < EXL2K_DIM / 64; k++) {
            u32 i = exl2k_min(d.lane + 32 * k, half - 1);
            exl2k_rope_load_elements(a, d.row, (a.heads + d.kv_head) * a.dim, i, a.rope_split, k_head[k]);
        }
#pragma unroll
        for (u32 n = 0; n < EXL2K_OWN; n++) {
            own[n] = exl2k_norm_weights(a, k_weight, exl2k_min(exl2k_own_element(n), half - 1));
        }
    }
#pragma unroll
    for (u32 n = 0; n < EXL2K_QUERIES; n++) {
        u32 head = d.head + exl2k_min(d.warp + n * EXL2K_DECODE_WARPS, d.heads - 1);
#pragma unroll
        for (u32 k = 0; k < EXL2K_DIM / 64; k++) {
            u32 i = exl2k_min(d.lane + 32 * k, half - 1);
            query[n][k] = make_float2(1.0f, 1.0f);
            if (a.norm[0]) {
                query[n][k] = exl2k_norm_weights(a, a.norm[0] + (u64)head * a.dim * 4, i);
            }
        }
    }
    if (a.norm[1]) {
        f32 rho = exl2k_norm_rho(d, a, k_head);
#pragma unroll
        for (u32 n = 0; n < EXL2K_OWN; n++) {
            if (exl2k_own_element(n) < half) {
                exl2k_norm_apply(q.own[n], own[n], rho);
            }
        }
    }
    if (a.norm[0]) {
#pragma unroll
        for (u32 n = 0; n < EXL2K_QUERIES; n++) {
            f32 rho = exl2k_norm_rho(d, a, q.query[n]);
#pragma unroll
            for (u32 k = 0; k < EXL2K_DIM / 64; k++) {
                exl2k_norm_apply(q.query[n][k], query[n][k], rho);
            }
        }
    }
}

/* Stores the rotated elements in shared memory. Heads beyond the last and dims beyond the last become zeros. */
EXL2K_FN void exl2k_rope_work_store(const exl2k_decode &d, const exl2k_attend_args &a, const exl2k_rope_work &q,
                                    exl2k_decode_shared *shared)
{
    u32 half = a.dim / 2;
    /* K is rotated, V is only converted. */
#pragma unroll
    for (u32 n = 0; n < EXL2K_OWN; n++) {
        u32 element = exl2k_own_element(n);
        bool value = element >= half;
        u32 pair = value ? exl2k_pack_f16(exl2k_clamp_f16(q.own[n].x), exl2k_clamp_f16(q.own[n].y))
                         : exl2k_rope_apply(q.own[n]);
        if (element < 2 * half) {
            shared->new_kv[0][value][value ? element - half : element] = (u16)pair;
            shared->new_kv[0][value][value ? element : element + half] = (u16)(pair >> 16);
        }
    }
    /* The queries are rotated. */
#pragma unroll
    for (u32 n = 0; n < EXL2K_QUERIES; n++) {
        u32 head = d.warp + n * EXL2K_DECODE_WARPS;
#pragma unroll
        for (u32 k = 0; k < EXL2K_DIM / 64 && head < EXL2K_HEAD_TILE; k++) {
            u32 i = d.lane + 32 * k, pair = head < d.heads ? exl2k_rope_apply(q.query[n][k]) : 0;
            if (i < half) {
                shared->query[head][i] = (u16)pair;
                shared->query[head][i + half] = (u16)(pair >> 16);
            } else { /* dims from dim to EXL2K_DIM become zeros, in pairs like the others */
                shared->query[head][i + half] = 0;
                shared->query[head][i + EXL2K_DIM / 2] = 0;
            }
        }
    }
}

#endif

EXL2K_FN void exl2k_sums_clear(exl2k_warp_sums &s)
{
#pragma unroll
    for (u32 k = 0; k < EXL2K_STEPS; k++) {
        for (u32 j = 0; j < 4; j++) {
            s.out[k][j] = 0.0f;
        }
    }
    s.max_score[0] = s.max_score[1] = EXL2K_MINUS_INF;
    s.total[0] = s.total[1] = 0.0f;
}

/* Adds up the totals of all lanes of a head. */
EXL2K_FN void exl2k_add_totals(exl2k_warp_sums &s)
{
#pragma unroll
    for (u32 step = 4; step < 32; step *= 2) {
        f32 other[2] = { __shfl_xor_sync(EXL2K_ALL, s.total[0], step), __shfl_xor_sync(EXL2K_ALL, s.total[1], step) };
        s.total[0] += other[0];
        s.total[1] += other[1];
    }
}

/* Stores the sums of a chain at `to`. */
EXL2K_FN void exl2k_store_sums(const exl2k_decode &d, const exl2k_attend_args &a, const exl2k_warp_sums &s,
                               exl2k_decode_shared *shared, u32 chain, u32 to)
{
    u32 g = d.lane / 4, t = d.lane % 4;
    /* Every lane stores its part of the output. One lane per pair of heads also stores maximum and total. */
#pragma unroll
    for (u32 k = 0; k < EXL2K_STEPS; k++) {
        for (u32 j = 0; j < 4; j++) {
            u32 dim = k * 16 + g + (j >> 1) * 8, head = 2 * t + (j & 1);
            f32 sum = s.out[k][j];
#if EXL2K_CODES
            dim = exl2k_codes_dim(k, g, j >> 1, a.value_bits);
            sum *= a.value_bits == 4 && j >> 1 ? 1048576.0f : 16777216.0f; /* see exl2k_codes_sum */
#endif
            exl2k_shared_store_f32(to + exl2k_sum_offset(head, dim), sum);
        }
    }
    for (u32 j = 0; j < 2 && g == 0; j++) {
        shared->max_score[chain][2 * t + j] = s.max_score[j];
        shared->total[chain][2 * t + j] = s.total[j];
    }
}

/* CTAs per SM that the registers allow. For sm_100 and later, ptxas 13.0 lacks one register for two. */
#define EXL2K_DECODE_CTAS \
    (EXL2K_CROWD ? EXL2K_CROWD_CTAS \
     : EXL2K_DIM == 256 || EXL2K_DECODE_WARPS > 8 || __CUDA_ARCH__ < 800 || (EXL2K_CODES && __CUDA_ARCH__ >= 1000) \
     ? 1 : 2)

extern "C" __global__ void __launch_bounds__(EXL2K_DECODE_THREADS, EXL2K_DECODE_CTAS)
EXL2K_DECODE(exl2k_attend_args a)
{
    extern __shared__ __align__(128) u8 rings[];
    __shared__ exl2k_decode_shared shared;
    exl2k_decode d;
    exl2k_warp_sums s;
    uint2 indices[EXL2K_ITEMS];
#if EXL2K_CODES
    u32 filled = 0, page = 0;
#else
    u32 query[EXL2K_STEPS][2];
    exl2k_rope_work rope;
#endif
    /* Let the next kernel start. If `early` is set, the wait for preceding kernels comes later, before qkv is read. */
    exl2k_cluster_arrive();
    exl2k_dependency_release();
    if (!a.early) {
        exl2k_dependency_wait();
    }
    /* Find the CTA's work, load angles, and start to fill the ring. */
    bool valid = exl2k_decode_open(d, a, exl2k_shared(rings));
    if (valid) {
#if EXL2K_CODES
        page = exl2k_codes_early(d, a);
        filled = exl2k_ring_start(d, a, 0, a.early && !a.stores);
#else
        exl2k_rope_work_load(d, a, true, rope);
#pragma unroll 1
        for (u32 e = 0; e < d.stages; e++) {
            exl2k_ring_fill(d, a, e, d.ring + e * EXL2K_UNIT_BYTES);
        }
        exl2k_load_out_indices(d, a, indices);
#endif
    }
    /* From here on, qkv can be read. */
    if (a.early) {
        exl2k_dependency_wait();
    }
    if (!valid) {
        exl2k_store_no_outs(d, a);
        return;
    }
    /* Rotate the queries and the row's own K into shared memory. */
#if EXL2K_CODES
    exl2k_ring_start(d, a, filled, false);
    exl2k_codes_prepare(d, a, page, &shared);
#else
    exl2k_rope_work_load(d, a, false, rope);
    if (!EXL2K_FEW) {
        exl2k_rope_work_norm(d, a, rope);
    }
    exl2k_rope_work_store(d, a, rope, &shared);
    exl2k_ring_keep(d, a, &shared);
#endif
    __syncthreads();
    /* Each warp loads all queries as operands, and clears its sums. */
#if !EXL2K_CODES
#pragma unroll
    for (u32 k = 0; k < EXL2K_STEPS; k++) {
        const u16 *from = &shared.query[d.lane / 4][k * 16 + d.lane % 4 * 2];
        query[k][0] = *(const u32 *)from;
        query[k][1] = *(const u32 *)(from + 8);
    }
#endif
    exl2k_sums_clear(s);
#if !EXL2K_CODES
    /* Store the row's K and V into its page, then attend to all tokens of the split. */
    exl2k_store_new_kv(d, a, &shared);
#endif
#if EXL2K_CODES
    if (a.value_bits == 8) {
        exl2k_codes_units<8, 8>(d, a, s, &shared);
    } else if (a.key_bits == 8) {
        exl2k_codes_units<8, 4>(d, a, s, &shared);
    } else {
        exl2k_codes_units<4, 4>(d, a, s, &shared);
    }
    exl2k_load_out_indices(d, a, indices); /* only now are there registers for them */
#else
    u32 slot = 0;
    exl2k_decode_units(d, a, s, query, &shared, 0, d.first_units, slot);
    if (EXL2K_CROWD) {
        exl2k_add_totals(s);
        exl2k_store_sums(d, a, s, &shared, d.warp, exl2k_chain_at(a, exl2k_shared(rings), d.warp));
        exl2k_sums_clear(s);
        exl2k_decode_units(d, a, s, query, &shared, d.first_units, d.units, slot);
    }
#endif
    exl2k_add_totals(s);
    /* When no copy into the ring is in flight, the warp stores its last sums in the ring's memory. Then all sums are
       merged. */
    exl2k_copy_wait<0>();
    __syncwarp();
    exl2k_store_sums(d, a, s, &shared, d.warp + EXL2K_CHAINS - EXL2K_DECODE_WARPS, d.ring);
    __syncthreads();
#if EXL2K_CODES
    exl2k_codes_store_own(d, a, &shared);
#endif
    exl2k_merge_all(d, a, &shared, exl2k_shared(rings), indices);
}

#endif

/* attend_decode.cuh: attention of single rows over their pages: RoPE, K and V into the page, softmax, split contexts.
   takes: attend_ring.cuh; EXL2K_DIM and EXL2K_DECODE (the kernel's name) from the file that includes it.
   gives: the kernel.
   owns:  nothing.
   next:  attend_decode128.cu

   CTA = (split, K/V head and up to 8 of its query heads, row). Its warps take turns at units of 16 tokens; each has its
   own ring of units of K and V, its own running maximum, sum and output, which are added up at the end, in the order of
   the warps; the splits' in the order of the splits, by the CTA that comes last.
       scores [16 tokens x 8 heads] = K [16 x dim] * q    output [dim x 8 heads] += V^T [dim x 16] * weights */
#ifndef EXL2K_ATTEND_DECODE_CUH
#define EXL2K_ATTEND_DECODE_CUH

#include "attend_ring.cuh"

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

EXL2K_FN void exl2k_scores(f32 score[4], u32 slot, const u32 query[EXL2K_STEPS][2])
{
    f32 odd[4] = { 0.0f, 0.0f, 0.0f, 0.0f }; /* two chains are done sooner than one */
    for (u32 j = 0; j < 4; j++) {
        score[j] = 0.0f;
    }
#pragma unroll
    for (u32 k = 0; k < EXL2K_STEPS; k++) {
        uint4 tile = exl2k_ldmatrix4(exl2k_tile_rows(slot, k));
        u32 rows[4] = { tile.x, tile.y, tile.z, tile.w };
        exl2k_mma(k & 1 ? odd : score, rows, query[k][0], query[k][1]);
    }
    for (u32 j = 0; j < 4; j++) {
        score[j] += odd[j];
    }
}

EXL2K_FN void exl2k_mix(exl2k_sums &s, u32 slot, const u32 weights[2])
{
#pragma unroll
    for (u32 k = 0; k < EXL2K_STEPS; k++) {
        uint4 tile = exl2k_ldmatrix4_transposed(exl2k_tile_columns(slot, k));
        u32 rows[4] = { tile.x, tile.y, tile.z, tile.w };
        exl2k_mma(s.out[k], rows, weights[0], weights[1]);
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
        f32 score[4];
#pragma unroll 1 /* K and V share the code around them: instructions must be fetched, too */
        for (u32 value = 0; value < 2; value++, e++) {
            u32 at = d.ring + slot * EXL2K_UNIT_BYTES;
            exl2k_ring_wait(d.stages);
            exl2k_ring_patch(d, a, token, at, value, shared->fresh[value]);
            if (value) {
                exl2k_mix(s, at, weights);
            } else {
                exl2k_scores(score, at, query);
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

/* What a thread turns: queries of the heads warp, warp + WARPS, ..., and elements of the row's own K and V. */
typedef struct exl2k_turning {
    exl2k_unturned query[EXL2K_HEAD_TILE / EXL2K_DECODE_WARPS][EXL2K_DIM / 64], own[EXL2K_OWN];
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
    for (u32 n = 0; n < EXL2K_HEAD_TILE / EXL2K_DECODE_WARPS; n++) {
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
    for (u32 n = 0; n < EXL2K_HEAD_TILE / EXL2K_DECODE_WARPS; n++) {
        u32 head = d.warp + n * EXL2K_DECODE_WARPS;
#pragma unroll
        for (u32 k = 0; k < EXL2K_DIM / 64; k++) {
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

/* Outputs of a thread: four dims of a head at a time, of [8 heads][EXL2K_DIM]. */
#define EXL2K_ITEMS ((EXL2K_HEAD_TILE * EXL2K_DIM / 4 + EXL2K_DECODE_THREADS - 1) / EXL2K_DECODE_THREADS)

EXL2K_FN u32 exl2k_item_head(u32 n) { return (threadIdx.x + n * EXL2K_DECODE_THREADS) * 4 / EXL2K_DIM; }
EXL2K_FN u32 exl2k_item_dim(u32 n) { return (threadIdx.x + n * EXL2K_DECODE_THREADS) * 4 % EXL2K_DIM; }

EXL2K_FN bool exl2k_item_there(const exl2k_decode &d, const exl2k_attend_args &a, u32 n)
{
    return exl2k_item_head(n) < d.heads && exl2k_item_dim(n) < a.dim;
}

EXL2K_FN void exl2k_load_places(const exl2k_decode &d, const exl2k_attend_args &a, uint2 places[EXL2K_ITEMS])
{
#pragma unroll
    for (u32 n = 0; n < EXL2K_ITEMS; n++) {
        u32 feature = (d.head + exl2k_item_head(n)) * a.dim + exl2k_item_dim(n);
        places[n] = exl2k_out_places(a, exl2k_item_there(d, a, n) ? feature : 0);
    }
}

EXL2K_FN void exl2k_store_out(const exl2k_decode &d, const exl2k_attend_args &a, u32 place, f32 value)
{
    exl2k_store_u16(a.out + ((u64)d.row * a.out_pitch + place) * 2, exl2k_f32_to_f16(exl2k_clamp_f16(value)));
}

EXL2K_FN void exl2k_store_outs(const exl2k_decode &d, const exl2k_attend_args &a, uint2 places, float4 values)
{
    exl2k_store_out(d, a, places.x & 0xFFFFu, values.x);
    exl2k_store_out(d, a, places.x >> 16, values.y);
    exl2k_store_out(d, a, places.y & 0xFFFFu, values.z);
    exl2k_store_out(d, a, places.y >> 16, values.w);
}

EXL2K_FN float4 exl2k_floats(uint4 v)
{
    return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
}

EXL2K_FN void exl2k_add_scaled(float4 &sum, float4 v, f32 factor)
{
    sum.x += v.x * factor;
    sum.y += v.y * factor;
    sum.z += v.z * factor;
    sum.w += v.w * factor;
}

/* Where the sums of a split are: out [dim], most, total. */
EXL2K_FN u64 exl2k_split_at(const exl2k_decode &d, const exl2k_attend_args &a, u32 head, u32 split)
{
    u64 index = ((u64)d.row * a.heads + d.head + head) * EXL2K_SPLITS_MAX + split;
    return a.partial + index * (a.dim + EXL2K_SPLIT_EXTRA) * 4;
}

/* Sums of all warps: the result, or what the last CTA adds up. Warps without a unit have sums of 0. */
EXL2K_FN void exl2k_merge_warps(const exl2k_decode &d, const exl2k_attend_args &a, exl2k_decode_shared *shared,
                                u32 rings, const uint2 places[EXL2K_ITEMS])
{
#pragma unroll
    for (u32 n = 0; n < EXL2K_ITEMS; n++) {
        u32 head = exl2k_item_head(n), i = exl2k_item_dim(n), at = rings + exl2k_parked(head, i);
        f32 most = EXL2K_MINUS_INF, total = 0.0f;
        float4 values = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (!exl2k_item_there(d, a, n)) {
            continue;
        }
#pragma unroll
        for (u32 w = 0; w < EXL2K_DECODE_WARPS; w++) {
            most = fmaxf(most, shared->most[w][head]);
        }
#pragma unroll
        for (u32 w = 0; w < EXL2K_DECODE_WARPS; w++, at += d.stages * EXL2K_UNIT_BYTES) {
            f32 factor = exl2k_exp2(shared->most[w][head] - most);
            total += shared->total[w][head] * factor;
            exl2k_add_scaled(values, exl2k_floats(exl2k_shared_load4(at)), factor);
        }
        if (d.splits == 1) {
            float4 result = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            exl2k_add_scaled(result, values, 1.0f / total);
            exl2k_store_outs(d, a, places[n], result);
            continue;
        }
        u64 to = exl2k_split_at(d, a, head, blockIdx.x);
        exl2k_store4(to + i * 4, make_uint4(__float_as_uint(values.x), __float_as_uint(values.y),
                                            __float_as_uint(values.z), __float_as_uint(values.w)));
        if (i == 0) {
            exl2k_store_f32(to + a.dim * 4, most);
            exl2k_store_f32(to + a.dim * 4 + 4, total);
        }
    }
}

#define EXL2K_EARLY 4 /* splits whose sums are on their way before their factors are known */

/* Factors of the splits, 1 / total in them: 16 lanes have the splits of a head. */
EXL2K_FN void exl2k_split_factors(const exl2k_decode &d, const exl2k_attend_args &a, exl2k_decode_shared *shared)
{
    u32 head = threadIdx.x / EXL2K_SPLITS_MAX, split = threadIdx.x % EXL2K_SPLITS_MAX;
    if (threadIdx.x < EXL2K_HEAD_TILE * EXL2K_SPLITS_MAX) {
        bool there = head < d.heads && split < d.splits;
        u64 from = exl2k_split_at(d, a, there ? head : 0, there ? split : 0) + a.dim * 4;
        f32 own = exl2k_load_f32(from), total = exl2k_load_f32(from + 4), most;
        own = there ? own : EXL2K_MINUS_INF;
        most = own;
        for (u32 step = 8; step > 0; step /= 2) {
            most = fmaxf(most, __shfl_xor_sync(EXL2K_ALL, most, step));
        }
        f32 factor = there ? exl2k_exp2(own - most) : 0.0f;
        total = exl2k_half_warp_sum(there ? total * factor : 0.0f);
        shared->factor[split][head] = there ? factor / total : 0.0f;
    }
    __syncthreads();
}

/* Sums of all splits, in their order. */
EXL2K_FN void exl2k_merge_splits(const exl2k_decode &d, const exl2k_attend_args &a, exl2k_decode_shared *shared,
                                 const uint2 places[EXL2K_ITEMS])
{
    u32 pitch = (a.dim + EXL2K_SPLIT_EXTRA) * 4;
    uint4 early[EXL2K_ITEMS][EXL2K_EARLY];
#pragma unroll
    for (u32 n = 0; n < EXL2K_ITEMS; n++) {
        bool there = exl2k_item_there(d, a, n);
        u64 from = exl2k_split_at(d, a, there ? exl2k_item_head(n) : 0, 0) + (there ? exl2k_item_dim(n) * 4 : 0);
#pragma unroll
        for (u32 split = 0; split < EXL2K_EARLY; split++) {
            early[n][split] = exl2k_load4(from + exl2k_min(split, d.splits - 1) * pitch);
        }
    }
    exl2k_split_factors(d, a, shared);
#pragma unroll
    for (u32 n = 0; n < EXL2K_ITEMS; n++) {
        float4 values = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        u32 head = exl2k_item_head(n);
        if (!exl2k_item_there(d, a, n)) {
            continue;
        }
#pragma unroll
        for (u32 split = 0; split < EXL2K_EARLY; split++) {
            if (split < d.splits) {
                exl2k_add_scaled(values, exl2k_floats(early[n][split]), shared->factor[split][head]);
            }
        }
        u64 from = exl2k_split_at(d, a, head, 0) + exl2k_item_dim(n) * 4;
#pragma unroll 4
        for (u32 split = EXL2K_EARLY; split < d.splits; split++) {
            exl2k_add_scaled(values, exl2k_floats(exl2k_load4(from + split * pitch)), shared->factor[split][head]);
        }
        exl2k_store_outs(d, a, places[n], values);
    }
}

/* Has every split of this row and head been stored? True for one CTA. */
EXL2K_FN bool exl2k_last_split(const exl2k_decode &d, const exl2k_attend_args &a, exl2k_decode_shared *shared)
{
    __syncthreads();
    if (threadIdx.x == 0) { /* fences of one thread order what the barriers have brought before and after it */
        __threadfence();
        shared->ticket = atomicInc((u32 *)a.tickets + (u64)d.row * gridDim.y + blockIdx.y, d.splits - 1);
        __threadfence();
    }
    __syncthreads();
    return shared->ticket == d.splits - 1;
}

extern "C" __global__ void __launch_bounds__(EXL2K_DECODE_THREADS, 1) EXL2K_DECODE(exl2k_attend_args a)
{
    extern __shared__ __align__(128) u8 rings[];
    __shared__ exl2k_decode_shared shared;
    exl2k_decode d;
    exl2k_sums s;
    u32 query[EXL2K_STEPS][2];
    uint2 places[EXL2K_ITEMS];
    exl2k_turning turning;
    exl2k_dependency_release();
    if (!a.early) {
        exl2k_dependency_wait();
    }
    bool there = exl2k_decode_open(d, a, exl2k_shared(rings));
    for (u32 e = 0; e < d.stages && there; e++) {
        exl2k_ring_fill(d, a, e, d.ring + e * EXL2K_UNIT_BYTES);
    }
    if (there) {
        exl2k_turning_load(d, a, true, turning);
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
    exl2k_merge_warps(d, a, &shared, exl2k_shared(rings), places);
    if (d.splits > 1 && exl2k_last_split(d, a, &shared)) {
        exl2k_merge_splits(d, a, &shared, places);
    }
}

#endif

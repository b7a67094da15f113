/* attend_merge.cuh: attention in decode: merges the sums of the warps, then of the splits, into the row's output.
   takes: attend_ring.cuh; EXL2K_DIM; the sums of every warp in the memory of its ring.
   gives: exl2k_warp_sums, exl2k_sum_offset, exl2k_load_out_indices, exl2k_merge_all.

   SPLITS  of a cluster store their sums in shared memory of the cluster's first CTA, which merges them. Without a
           cluster, splits store their sums in global memory, and the last CTA to arrive merges them. Both ways merge
           in the order of the splits, with the same bits. */
#ifndef EXL2K_ATTEND_MERGE_CUH
#define EXL2K_ATTEND_MERGE_CUH

#include "attend_ring.cuh"
#include "peers.cuh"
#if EXL2K_CODES
#include "codes.cuh"
#endif

typedef struct exl2k_warp_sums { /* of a warp; lane 4g + t has heads 2t and 2t + 1 */
    f32 out[EXL2K_STEPS][4];    /* dims 16 step + g of heads 2t, 2t + 1; then dims + 8 of the same heads */
    f32 max_score[2], total[2]; /* running maximum; sum of the weights of this lane's tokens */
} exl2k_warp_sums;

/* Byte offset of a sum. The XOR puts eight dims of four pairs of heads into different banks. */
EXL2K_FN u32 exl2k_sum_offset(u32 head, u32 dim) { return (head * EXL2K_DIM + (dim ^ head / 2 * 8)) * 4; }

/* Items of a thread. An item is four dims of one head, out of [heads][EXL2K_DIM]; a half-warp has dims of one head. */
#define EXL2K_ITEMS ((EXL2K_HEAD_TILE * EXL2K_DIM / 4 + EXL2K_DECODE_THREADS - 1) / EXL2K_DECODE_THREADS)

typedef struct exl2k_item {
    u32 head, dim;
    bool valid;
} exl2k_item;

EXL2K_FN exl2k_item exl2k_item_of(const exl2k_decode &d, const exl2k_attend_args &a, u32 n)
{
    u32 index = threadIdx.x + n * EXL2K_DECODE_THREADS;
    exl2k_item item = { index / (EXL2K_DIM / 4), index % (EXL2K_DIM / 4) * 4, false };
    item.valid = item.head < d.heads && item.dim < a.dim;
    return item;
}

EXL2K_FN void exl2k_load_out_indices(const exl2k_decode &d, const exl2k_attend_args &a, uint2 indices[EXL2K_ITEMS])
{
#pragma unroll
    for (u32 n = 0; n < EXL2K_ITEMS; n++) {
        exl2k_item item = exl2k_item_of(d, a, n);
        indices[n] = exl2k_out_indices(a, item.valid ? (d.head + item.head) * a.dim + item.dim : 0);
    }
}

EXL2K_FN void exl2k_store_out(const exl2k_decode &d, const exl2k_attend_args &a, u32 index, f32 value)
{
    u64 at = a.out + ((u64)d.row * a.out_pitch + index) * 2 + index / 32 * a.out_gap;
    u32 half = exl2k_f32_to_f16(exl2k_clamp_f16(value));
    exl2k_store_u16(at, half);
    if (!a.inbox) {
        exl2k_peers_store_u16(a.apart, a.others, at, half);
    }
}

/* Several rows: gives four outputs of this GPU, from the first one on, to the others. */
EXL2K_FN void exl2k_give_outs(const exl2k_decode &d, const exl2k_attend_args &a, u32 first, float4 v)
{
    u64 at = a.inbox + ((u64)d.row * a.all_columns + a.first_column + first) * 2;
    u32 low = exl2k_f32_to_f16(exl2k_clamp_f16(v.x)) | exl2k_f32_to_f16(exl2k_clamp_f16(v.y)) << 16;
    u32 high = exl2k_f32_to_f16(exl2k_clamp_f16(v.z)) | exl2k_f32_to_f16(exl2k_clamp_f16(v.w)) << 16;
    exl2k_peers_store2(a.apart, a.others, at, low, high);
}

/* Several rows: the CTA that has stored outputs takes as large a part of the others' outputs of its row. */
EXL2K_FN void exl2k_take_outs(const exl2k_decode &d, const exl2k_attend_args &a)
{
    u32 all = a.inbox ? (a.all_columns - a.own_columns) / 8 : 0;
    u32 begin = all * blockIdx.y / gridDim.y, end = all * (blockIdx.y + 1) / gridDim.y;
#pragma unroll 1
    for (u32 i = begin + threadIdx.x; i < end; i += EXL2K_DECODE_THREADS) {
        u32 n = i * 8 < a.first_column ? i * 8 : i * 8 + a.own_columns;
        u64 at = a.inbox + ((u64)d.row * a.all_columns + n) * 2;
        uint4 v = exl2k_peers_load4(at), map = make_uint4(0, 0, 0, 0);
        if (a.all_map) {
            map = exl2k_load_constant4(a.all_map + n * 2);
        }
        v = exl2k_peers_take(v, at, a.stop);
        u64 to = a.all_out + (u64)d.row * a.out_pitch * 2;
        if (!a.all_map) {
            exl2k_store4(to + n * 2, v);
            continue;
        }
        u32 index[4] = { map.x, map.y, map.z, map.w }, pair[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            exl2k_store_u16(to + (index[k / 2] >> k % 2 * 16 & 0xFFFFu) * 2, pair[k / 2] >> k % 2 * 16);
        }
    }
}

/* The CTA has no work. If other GPUs wait for its heads, as the row has ended in a pass that was enqueued before that
   was known, they get zeros. */
EXL2K_FN void exl2k_store_no_outs(exl2k_decode &d, const exl2k_attend_args &a)
{
    u32 tiles = (a.group + EXL2K_HEAD_TILE - 1) / EXL2K_HEAD_TILE, tile = blockIdx.y % tiles;
    if (a.others == 0 || blockIdx.x > 0 || d.row >= exl2k_load(a.pass)) {
        return;
    }
    d.head = blockIdx.y / tiles * a.group + tile * EXL2K_HEAD_TILE;
    u32 count = exl2k_min(a.group - tile * EXL2K_HEAD_TILE, EXL2K_HEAD_TILE) * a.dim;
    for (u32 i = threadIdx.x; i < count; i += EXL2K_DECODE_THREADS) {
        u32 n = d.head * a.dim + i;
        exl2k_store_out(d, a, a.map ? exl2k_load_u16(a.map + n * 2) : n, 0.0f);
        if (a.inbox && i % 4 == 0) {
            exl2k_give_outs(d, a, n, make_float4(0.0f, 0.0f, 0.0f, 0.0f));
        }
    }
    exl2k_take_outs(d, a);
}

/* lanes: those that store outputs. */
EXL2K_FN void exl2k_store_outs(const exl2k_decode &d, const exl2k_attend_args &a, const exl2k_item &item, u32 lanes,
                               uint2 indices, float4 values)
{
#if EXL2K_CODES
    f32 v[4] = { values.x, values.y, values.z, values.w };
    exl2k_rotate<4>(v, exl2k_group_short(a, item.dim / 32), lanes);
    values = make_float4(v[0], v[1], v[2], v[3]);
#endif
    exl2k_store_out(d, a, indices.x & 0xFFFFu, values.x);
    exl2k_store_out(d, a, indices.x >> 16, values.y);
    exl2k_store_out(d, a, indices.y & 0xFFFFu, values.z);
    exl2k_store_out(d, a, indices.y >> 16, values.w);
    if (a.inbox) {
        exl2k_give_outs(d, a, (d.head + item.head) * a.dim + item.dim, values);
    }
}

EXL2K_FN void exl2k_add_scaled(float4 &sum, uint4 v, f32 factor)
{
    sum.x += __uint_as_float(v.x) * factor;
    sum.y += __uint_as_float(v.y) * factor;
    sum.z += __uint_as_float(v.z) * factor;
    sum.w += __uint_as_float(v.w) * factor;
}

/* Merges an item's sums of all chains. Chains without a unit have sums of 0. */
EXL2K_FN float4 exl2k_merge_warps(const exl2k_attend_args &a, const exl2k_decode_shared *shared, u32 rings,
                                  const exl2k_item &item, f32 &max_score, f32 &total)
{
    float4 values = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    u32 at = exl2k_sum_offset(item.head, item.dim);
    max_score = EXL2K_MINUS_INF;
    total = 0.0f;
    /* Find the maximum over all chains. */
#pragma unroll
    for (u32 w = 0; w < EXL2K_CHAINS; w++) {
        max_score = fmaxf(max_score, shared->max_score[w][item.head]);
    }
    /* Add up the chains' sums, rescaled to that maximum. */
#pragma unroll
    for (u32 w = 0; w < EXL2K_CHAINS; w++) {
        f32 factor = exl2k_exp2(shared->max_score[w][item.head] - max_score);
        total += shared->total[w][item.head] * factor;
        exl2k_add_scaled(values, exl2k_shared_load4(exl2k_chain_at(a, rings, w) + at), factor);
    }
    return values;
}

/* ---- splits ---- */

/* Bytes of the sums of a split: values [dim], max_score, total, and padding. */
EXL2K_FN u32 exl2k_split_pitch(const exl2k_attend_args &a) { return (a.dim + EXL2K_SPLIT_EXTRA) * 4; }

/* Address of a split's sums in global memory. */
EXL2K_FN u64 exl2k_split_at(const exl2k_decode &d, const exl2k_attend_args &a, u32 head, u32 split)
{
    u64 index = ((u64)d.row * a.heads + d.head + head) * EXL2K_SPLITS_MAX + split;
    return a.partial + index * exl2k_split_pitch(a);
}

/* Address of a split's sums in shared memory of the cluster's first CTA, after its rings. */
EXL2K_FN u32 exl2k_inbox_at(const exl2k_attend_args &a, u32 rings, u32 head, u32 split)
{
    u32 inbox = rings + exl2k_ring_bytes(a, EXL2K_DECODE_WARPS);
    return inbox + (head * exl2k_cluster_size() + split) * exl2k_split_pitch(a);
}

/* Stores an item's sums of this split: into the first CTA of the cluster, or into global memory. */
EXL2K_FN void exl2k_store_split(const exl2k_decode &d, const exl2k_attend_args &a, u32 rings, const exl2k_item &item,
                                float4 values, f32 max_score, f32 total)
{
    uint4 v = make_uint4(__float_as_uint(values.x), __float_as_uint(values.y), __float_as_uint(values.z),
                         __float_as_uint(values.w));
    uint4 scalars = make_uint4(__float_as_uint(max_score), __float_as_uint(total), 0, 0);
    /* The thread with dim 0 also stores the maximum and the total. */
    if (exl2k_cluster_size() > 1) {
        u32 to = exl2k_inbox_at(a, rings, item.head, blockIdx.x);
        exl2k_cluster_store4(to + item.dim * 4, v);
        if (item.dim == 0) {
            exl2k_cluster_store4(to + a.dim * 4, scalars);
        }
        return;
    }
    u64 to = exl2k_split_at(d, a, item.head, blockIdx.x);
    exl2k_store4(to + item.dim * 4, v);
    if (item.dim == 0) {
        exl2k_store4(to + a.dim * 4, scalars);
    }
}

/* Whether every split of this row and head has been stored; true for exactly one CTA. */
EXL2K_FN bool exl2k_last_split(const exl2k_decode &d, const exl2k_attend_args &a, exl2k_decode_shared *shared)
{
    /* In a cluster all CTAs meet at its barrier, and the first CTA merges. */
    if (exl2k_cluster_size() > 1) {
        exl2k_cluster_arrive();
        exl2k_cluster_wait();
        return blockIdx.x == 0;
    }
    /* Otherwise each CTA takes a ticket, and the CTA with the last ticket merges. */
    __syncthreads();
    /* Between the two barriers, the fences of this one thread's atomic order the stores of all threads. */
    if (threadIdx.x == 0) {
        u64 at = a.tickets + ((u64)d.row * gridDim.y + blockIdx.y) * 4;
        asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                     : "=r"(shared->ticket) : "l"(at), "r"(d.splits - 1) : "memory");
    }
    __syncthreads();
    return shared->ticket == d.splits - 1;
}

/* The factor of split lane % 16 of the half-warp's head, divided by the sum of all weights. */
EXL2K_FN f32 exl2k_split_factor(const exl2k_attend_args &a, u32 head, uint4 scalars, bool valid)
{
    f32 own = valid ? __uint_as_float(scalars.x) : EXL2K_MINUS_INF, max_score = own;
    for (u32 step = 8; step > 0; step /= 2) {
        max_score = fmaxf(max_score, __shfl_xor_sync(EXL2K_ALL, max_score, step));
    }
    f32 factor = valid ? exl2k_exp2(own - max_score) : 0.0f;
    f32 total = exl2k_half_warp_sum(valid ? __uint_as_float(scalars.y) * factor : 0.0f);
    return factor / (total + exl2k_sink_weight(a, head, max_score));
}

/* Merges the sums of all splits of an item, in their order. All loads are issued before the first use. */
EXL2K_FN float4 exl2k_merge_splits(const exl2k_decode &d, const exl2k_attend_args &a, u32 rings, const exl2k_item &item)
{
    u32 own = d.lane % EXL2K_SPLITS_MAX, pitch = exl2k_split_pitch(a), head = exl2k_min(item.head, d.heads - 1);
    u32 mine = exl2k_min(own, d.splits - 1) * pitch + a.dim * 4, offset = (item.valid ? item.dim : 0) * 4;
    uint4 v[EXL2K_SPLITS_MAX], scalars;
    /* Load the scalars of the lane's split and the values of all splits. */
    if (exl2k_cluster_size() > 1) {
        u32 from = exl2k_inbox_at(a, rings, head, 0);
        scalars = exl2k_shared_load4(from + mine);
#pragma unroll
        for (u32 i = 0; i < EXL2K_SPLITS_MAX; i++) {
            bool valid = i < EXL2K_CLUSTER_MAX && i < d.splits;
            v[i] = valid ? exl2k_shared_load4(from + offset + i * pitch) : make_uint4(0, 0, 0, 0);
        }
    } else {
        u64 from = exl2k_split_at(d, a, head, 0);
        scalars = exl2k_load4(from + mine);
#pragma unroll
        for (u32 i = 0; i < EXL2K_SPLITS_MAX; i++) {
            v[i] = i < d.splits ? exl2k_load4(from + offset + i * pitch) : make_uint4(0, 0, 0, 0);
        }
    }
    /* Add the values, each with the factor of its split. */
    f32 factor = exl2k_split_factor(a, d.head + head, scalars, own < d.splits);
    float4 values = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (u32 i = 0; i < EXL2K_SPLITS_MAX; i++) {
        exl2k_add_scaled(values, v[i], __shfl_sync(EXL2K_ALL, factor, (d.lane & 16) + i));
    }
    return values;
}

/* Merges warps into the split, and splits into the row, each in its order, and stores the output. */
EXL2K_FN void exl2k_merge_all(const exl2k_decode &d, const exl2k_attend_args &a, exl2k_decode_shared *shared, u32 rings,
                              const uint2 indices[EXL2K_ITEMS])
{
    if (d.splits > 1 && exl2k_cluster_size() > 1) {
        exl2k_cluster_wait(); /* The first CTA must be running before the others store into its shared memory. */
    }
    /* Merge the warps. A single split is the output already; otherwise its sums are stored. */
#pragma unroll
    for (u32 n = 0; n < EXL2K_ITEMS; n++) {
        exl2k_item item = exl2k_item_of(d, a, n);
        u32 lanes = EXL2K_CODES ? __ballot_sync(EXL2K_ALL, item.valid) : 0;
        if (item.valid) {
            f32 max_score, total;
            float4 values = exl2k_merge_warps(a, shared, rings, item, max_score, total);
            if (d.splits == 1) {
                f32 part = 1.0f / (total + exl2k_sink_weight(a, d.head + item.head, max_score));
                values = make_float4(values.x * part, values.y * part, values.z * part, values.w * part);
                exl2k_store_outs(d, a, item, lanes, indices[n], values);
            } else {
                exl2k_store_split(d, a, rings, item, values, max_score, total);
            }
        }
    }
    if (d.splits == 1) {
        exl2k_take_outs(d, a);
    }
    /* The last CTA merges all splits. */
    if (d.splits > 1 && exl2k_last_split(d, a, shared)) {
#pragma unroll
        for (u32 n = 0; n < EXL2K_ITEMS; n++) {
            exl2k_item item = exl2k_item_of(d, a, n);
            float4 values = exl2k_merge_splits(d, a, rings, item);
            u32 lanes = EXL2K_CODES ? __ballot_sync(EXL2K_ALL, item.valid) : 0;
            if (item.valid) {
                exl2k_store_outs(d, a, item, lanes, indices[n], values);
            }
        }
        exl2k_take_outs(d, a);
    }
}

#endif

/* attend_merge.cuh: attention of single rows: sums of warps, then of splits -> the row's output.
   takes: attend_ring.cuh; EXL2K_DIM; sums of every warp where its ring was.
   gives: exl2k_parked, exl2k_load_places, exl2k_add_all.
   owns:  nothing.
   next:  attend_decode.cuh

   SPLITS  that are a cluster leave their sums in shared memory of their first CTA, which adds them up; others pass them
           through global memory, and the CTA that comes last adds them up. In their order, with the same bits. */
#ifndef EXL2K_ATTEND_MERGE_CUH
#define EXL2K_ATTEND_MERGE_CUH

#include "attend_ring.cuh"

/* Eight dims of four pairs of heads lie in different banks. */
EXL2K_FN u32 exl2k_parked(u32 head, u32 dim) { return (head * EXL2K_DIM + (dim ^ head / 2 * 8)) * 4; }

/* Outputs of a thread, four dims of a head at a time, of [heads][EXL2K_DIM]: a half-warp has dims of one head. */
#define EXL2K_ITEMS ((EXL2K_HEAD_TILE * EXL2K_DIM / 4 + EXL2K_DECODE_THREADS - 1) / EXL2K_DECODE_THREADS)

typedef struct exl2k_item {
    u32 head, dim;
    bool there;
} exl2k_item;

EXL2K_FN exl2k_item exl2k_item_of(const exl2k_decode &d, const exl2k_attend_args &a, u32 n)
{
    u32 index = threadIdx.x + n * EXL2K_DECODE_THREADS;
    exl2k_item item = { index / (EXL2K_DIM / 4), index % (EXL2K_DIM / 4) * 4, false };
    item.there = item.head < d.heads && item.dim < a.dim;
    return item;
}

EXL2K_FN void exl2k_load_places(const exl2k_decode &d, const exl2k_attend_args &a, uint2 places[EXL2K_ITEMS])
{
#pragma unroll
    for (u32 n = 0; n < EXL2K_ITEMS; n++) {
        exl2k_item item = exl2k_item_of(d, a, n);
        places[n] = exl2k_out_places(a, item.there ? (d.head + item.head) * a.dim + item.dim : 0);
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

EXL2K_FN void exl2k_add_scaled(float4 &sum, uint4 v, f32 factor)
{
    sum.x += __uint_as_float(v.x) * factor;
    sum.y += __uint_as_float(v.y) * factor;
    sum.z += __uint_as_float(v.z) * factor;
    sum.w += __uint_as_float(v.w) * factor;
}

/* Sums of all warps. Warps without a unit have sums of 0. */
EXL2K_FN float4 exl2k_add_warps(const exl2k_decode &d, const exl2k_decode_shared *shared, u32 rings,
                                const exl2k_item &item, f32 &most, f32 &total)
{
    float4 values = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    u32 at = rings + exl2k_parked(item.head, item.dim);
    most = EXL2K_MINUS_INF;
    total = 0.0f;
#pragma unroll
    for (u32 w = 0; w < EXL2K_DECODE_WARPS; w++) {
        most = fmaxf(most, shared->most[w][item.head]);
    }
#pragma unroll
    for (u32 w = 0; w < EXL2K_DECODE_WARPS; w++, at += d.stages * EXL2K_UNIT_BYTES) {
        f32 factor = exl2k_exp2(shared->most[w][item.head] - most);
        total += shared->total[w][item.head] * factor;
        exl2k_add_scaled(values, exl2k_shared_load4(at), factor);
    }
    return values;
}

/* ---- splits ---- */

/* Bytes of the sums of a split: values [dim], most, total. */
EXL2K_FN u32 exl2k_split_pitch(const exl2k_attend_args &a) { return (a.dim + EXL2K_SPLIT_EXTRA) * 4; }

/* Where they are in global memory. */
EXL2K_FN u64 exl2k_split_at(const exl2k_decode &d, const exl2k_attend_args &a, u32 head, u32 split)
{
    u64 index = ((u64)d.row * a.heads + d.head + head) * EXL2K_SPLITS_MAX + split;
    return a.partial + index * exl2k_split_pitch(a);
}

/* And in shared memory of the first CTA of a cluster, behind the rings. */
EXL2K_FN u32 exl2k_inbox_at(const exl2k_attend_args &a, u32 rings, u32 head, u32 split)
{
    u32 inbox = rings + EXL2K_DECODE_WARPS * a.stages * EXL2K_UNIT_BYTES;
    return inbox + (head * exl2k_cluster_size() + split) * exl2k_split_pitch(a);
}

EXL2K_FN void exl2k_store_split(const exl2k_decode &d, const exl2k_attend_args &a, u32 rings, const exl2k_item &item,
                                float4 values, f32 most, f32 total)
{
    uint4 v = make_uint4(__float_as_uint(values.x), __float_as_uint(values.y), __float_as_uint(values.z),
                         __float_as_uint(values.w));
    uint4 scalars = make_uint4(__float_as_uint(most), __float_as_uint(total), 0, 0);
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

/* Has every split of this row and head been stored? True for one CTA. */
EXL2K_FN bool exl2k_last_split(const exl2k_decode &d, const exl2k_attend_args &a, exl2k_decode_shared *shared)
{
    if (exl2k_cluster_size() > 1) {
        exl2k_cluster_arrive();
        exl2k_cluster_wait();
        return blockIdx.x == 0;
    }
    __syncthreads();
    if (threadIdx.x == 0) { /* fences of one thread order what the barriers have brought before and after it */
        __threadfence();
        shared->ticket = atomicInc((u32 *)a.tickets + (u64)d.row * gridDim.y + blockIdx.y, d.splits - 1);
        __threadfence();
    }
    __syncthreads();
    return shared->ticket == d.splits - 1;
}

/* Factor of split lane % 16 of the half-warp's head, 1 / total in it. */
EXL2K_FN f32 exl2k_split_factor(uint4 scalars, bool there)
{
    f32 own = there ? __uint_as_float(scalars.x) : EXL2K_MINUS_INF, most = own;
    for (u32 step = 8; step > 0; step /= 2) {
        most = fmaxf(most, __shfl_xor_sync(EXL2K_ALL, most, step));
    }
    f32 factor = there ? exl2k_exp2(own - most) : 0.0f;
    return factor / exl2k_half_warp_sum(there ? __uint_as_float(scalars.y) * factor : 0.0f);
}

/* Sums of all splits of a thread's item, in their order. All loads are issued before anything waits for one. */
EXL2K_FN float4 exl2k_add_splits(const exl2k_decode &d, const exl2k_attend_args &a, u32 rings, const exl2k_item &item)
{
    u32 own = d.lane % EXL2K_SPLITS_MAX, pitch = exl2k_split_pitch(a), head = exl2k_min(item.head, d.heads - 1);
    u32 mine = exl2k_min(own, d.splits - 1) * pitch + a.dim * 4, offset = (item.there ? item.dim : 0) * 4;
    uint4 v[EXL2K_SPLITS_MAX], scalars;
    if (exl2k_cluster_size() > 1) {
        u32 from = exl2k_inbox_at(a, rings, head, 0);
        scalars = exl2k_shared_load4(from + mine);
#pragma unroll
        for (u32 i = 0; i < EXL2K_SPLITS_MAX; i++) {
            bool there = i < EXL2K_CLUSTER_MAX && i < d.splits;
            v[i] = there ? exl2k_shared_load4(from + offset + i * pitch) : make_uint4(0, 0, 0, 0);
        }
    } else {
        u64 from = exl2k_split_at(d, a, head, 0);
        scalars = exl2k_load4(from + mine);
#pragma unroll
        for (u32 i = 0; i < EXL2K_SPLITS_MAX; i++) {
            v[i] = i < d.splits ? exl2k_load4(from + offset + i * pitch) : make_uint4(0, 0, 0, 0);
        }
    }
    f32 factor = exl2k_split_factor(scalars, own < d.splits);
    float4 values = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (u32 i = 0; i < EXL2K_SPLITS_MAX; i++) {
        exl2k_add_scaled(values, v[i], __shfl_sync(EXL2K_ALL, factor, (d.lane & 16) + i));
    }
    return values;
}

/* Warps -> split -> row, each in its order. */
EXL2K_FN void exl2k_add_all(const exl2k_decode &d, const exl2k_attend_args &a, exl2k_decode_shared *shared, u32 rings,
                            const uint2 places[EXL2K_ITEMS])
{
    if (d.splits > 1 && exl2k_cluster_size() > 1) {
        exl2k_cluster_wait(); /* for the first CTA to be there */
    }
#pragma unroll
    for (u32 n = 0; n < EXL2K_ITEMS; n++) {
        exl2k_item item = exl2k_item_of(d, a, n);
        if (item.there) {
            f32 most, total;
            float4 values = exl2k_add_warps(d, shared, rings, item, most, total);
            if (d.splits == 1) {
                f32 part = 1.0f / total;
                values = make_float4(values.x * part, values.y * part, values.z * part, values.w * part);
                exl2k_store_outs(d, a, places[n], values);
            } else {
                exl2k_store_split(d, a, rings, item, values, most, total);
            }
        }
    }
    if (d.splits > 1 && exl2k_last_split(d, a, shared)) {
#pragma unroll
        for (u32 n = 0; n < EXL2K_ITEMS; n++) {
            exl2k_item item = exl2k_item_of(d, a, n);
            float4 values = exl2k_add_splits(d, a, rings, item);
            if (item.there) {
                exl2k_store_outs(d, a, places[n], values);
            }
        }
    }
}

#endif

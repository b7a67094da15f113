/* attend_prepare.cu: norms of q and k, bounds of q, k, v, and q's growth with the position, before attention.
   takes: base.cuh, attend_args.h.
   gives: exl2k_attend_prepare.

   A warp has the heads w, w + 8, and so on of a part, and holds the first EXL2K_HEADS_HELD of them in registers, with
   the weights of their norms, which it loads before the wait for the preceding kernel. All loads are volatile, also
   those of weights and angles: the compiler may move other loads before the test of whether there are weights or
   angles. */
#include "attend_args.h"
#include "base.cuh"
#include "rope.cuh"

#define EXL2K_LANE_PAIRS 4 /* pairs of a lane: pair lane + 32 k; a head has at most 256 elements */
#define EXL2K_HEADS_HELD 2

typedef struct exl2k_part { /* some heads of q, k or v of a row */
    u64 at;             /* address of the first head */
    u64 weight, bias;   /* of the first head */
    u64 all;            /* the first head of all that a norm is of, if they lie elsewhere; else 0 */
    u32 count;          /* heads that a norm of all heads is of */
    u32 heads, kind;    /* kind: 0 q, 1 k, 2 v */
    u32 position;       /* of the row */
    bool rotates;
    f32 factor;
} exl2k_part;

typedef struct exl2k_head {
    f32 v[EXL2K_LANE_PAIRS][2];
} exl2k_head;

/* The part of this CTA, without what depends on the row. */
EXL2K_FN exl2k_part exl2k_part_of(const exl2k_prepare_args &a)
{
    exl2k_part p;
    u32 of_q = (a.heads + a.part_heads - 1) / a.part_heads, of_k = (a.kv_heads + a.part_heads - 1) / a.part_heads;
    u32 kind = blockIdx.y < of_q ? 0 : blockIdx.y < of_q + of_k ? 1 : 2;
    u32 first = (blockIdx.y - (kind == 0 ? 0 : kind == 1 ? of_q : of_q + of_k)) * a.part_heads;
    u32 before = kind == 0 ? 0 : kind == 1 ? a.heads : a.heads + a.kv_heads;
    p.kind = kind;
    p.heads = exl2k_min((kind == 0 ? a.heads : a.kv_heads) - first, a.part_heads);
    p.at = a.qkv + ((u64)blockIdx.x * a.pitch + (before + first) * a.dim) * 4;
    p.weight = kind == 0 ? a.weight[0] : kind == 1 ? a.weight[1] : 0;
    p.bias = kind == 0 ? a.bias[0] : kind == 1 ? a.bias[1] : 0;
    p.all = a.all ? a.all + ((u64)blockIdx.x * a.all_pitch + (kind == 0 ? 0 : a.all_heads * a.dim)) * 4 : 0;
    p.count = !a.all ? p.heads : kind == 0 ? a.all_heads : a.all_kv_heads;
    p.weight += p.weight ? (u64)first * a.dim * 4 : 0;
    p.bias += p.bias ? (u64)first * a.dim * 4 : 0;
    p.position = 0;
    p.rotates = a.rope && kind < 2;
    p.factor = 1.0f;
    return p;
}

/* What depends on the row. */
EXL2K_FN void exl2k_part_place(exl2k_part &p, const exl2k_prepare_args &a, u32 position)
{
    p.position = position;
    if (p.kind == 0 && a.growth > 0.0f) {
        p.factor += a.growth * logf(1.0f + floorf((f32)position / a.context));
    }
}

/* The lane's k-th pair, which may lie after the last one, and the index of one of its elements in the head. */
EXL2K_FN u32 exl2k_lane_pair(u32 k) { return threadIdx.x % 32 + 32 * k; }

EXL2K_FN u32 exl2k_pair_element(const exl2k_prepare_args &a, u32 pair, u32 second)
{
    return pair < a.rope_split ? pair + second * a.rope_split : 2 * pair + second;
}

EXL2K_FN void exl2k_head_clip(const exl2k_prepare_args &a, exl2k_head &h)
{
    if (a.clip > 0.0f) {
#pragma unroll
        for (u32 i = 0; i < 2 * EXL2K_LANE_PAIRS; i++) {
            f32 v = h.v[i / 2][i % 2];
            h.v[i / 2][i % 2] = v > a.clip ? a.clip : v < -a.clip ? -a.clip : v; /* a NaN stays a NaN */
        }
    }
}

/* Loads the elements of head `head` at `at`. Elements after the last one are 0. */
EXL2K_FN void exl2k_head_load(const exl2k_part &p, const exl2k_prepare_args &a, u64 at, u32 head, exl2k_head &h)
{
#pragma unroll
    for (u32 k = 0; k < EXL2K_LANE_PAIRS; k++) {
        u32 pair = exl2k_lane_pair(k);
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
            u32 i = head * a.dim + exl2k_pair_element(a, pair, j);
            h.v[k][j] = pair < a.dim / 2 ? exl2k_load_f32(at + i * 4) : 0.0f;
        }
    }
}

/* Rotates a head, if attention is not going to. */
EXL2K_FN void exl2k_head_rotate(const exl2k_part &p, const exl2k_prepare_args &a, exl2k_head &h)
{
    if (p.rotates) {
        exl2k_head_clip(a, h);
#pragma unroll
        for (u32 k = 0; k < EXL2K_LANE_PAIRS; k++) {
            u32 pair = exl2k_lane_pair(k);
            f32 c, s, x = h.v[k][0], y = h.v[k][1];
            exl2k_rope_load_angle(a, p.position, pair < a.dim / 2 ? pair : 0, c, s);
            h.v[k][0] = x * c - y * s;
            h.v[k][1] = y * c + x * s;
        }
    }
}

/* The lane's part of the sum of a head's elements, or of the squares of their distances from `mean`. */
EXL2K_FN f32 exl2k_head_sum(const exl2k_prepare_args &a, const exl2k_head &h, bool squares, f32 mean)
{
    f32 sum = 0.0f;
#pragma unroll
    for (u32 i = 0; i < 2 * EXL2K_LANE_PAIRS; i++) {
        f32 off = h.v[i / 2][i % 2] - mean, other = squares ? off : 1.0f;
        sum = exl2k_lane_pair(i / 2) < a.dim / 2 ? fmaf(squares ? off : h.v[i / 2][i % 2], other, sum) : sum;
    }
    return sum;
}

/* Sum over all heads that the norm is of, for every thread. held: the warp's first heads, rotated. */
EXL2K_FN f32 exl2k_part_sum(const exl2k_part &p, const exl2k_prepare_args &a, const exl2k_head *held, bool squares,
                            f32 mean, f32 *partial)
{
    f32 sum = 0.0f;
    u32 warp = threadIdx.x / 32;
#pragma unroll
    for (u32 i = 0; i < EXL2K_HEADS_HELD; i++) {
        if (!p.all && warp + i * EXL2K_PREPARE_HEADS < p.heads) {
            sum += exl2k_head_sum(a, held[i], squares, mean);
        }
    }
    u32 first = p.all ? warp : warp + EXL2K_HEADS_HELD * EXL2K_PREPARE_HEADS;
#pragma unroll 1
    for (u32 head = first; head < p.count; head += EXL2K_PREPARE_HEADS) {
        exl2k_head h;
        exl2k_head_load(p, a, p.all ? p.all : p.at, head, h);
        exl2k_head_rotate(p, a, h);
        sum += exl2k_head_sum(a, h, squares, mean);
    }
    sum = exl2k_warp_sum(sum);
    __syncthreads();
    partial[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0.0f;
    for (u32 i = 0; i < EXL2K_PREPARE_HEADS; i++) {
        sum += partial[i];
    }
    return sum;
}

/* Applies the norm, bounds and growth, and stores the head. whole: mean and factor of all heads together. */
EXL2K_FN void exl2k_head_finish(const exl2k_part &p, const exl2k_prepare_args &a, u32 head, exl2k_head &h,
                                const exl2k_head &weight, float2 whole)
{
    f32 mean = whole.x, rho = whole.y;
    if (!a.whole && p.weight) {
        mean = a.layer_norm ? exl2k_warp_sum(exl2k_head_sum(a, h, false, 0.0f)) / (f32)a.dim : 0.0f;
        rho = 1.0f / sqrtf(exl2k_warp_sum(exl2k_head_sum(a, h, true, mean)) / (f32)a.dim + a.eps);
    }
    if (p.weight) {
#pragma unroll
        for (u32 i = 0; i < 2 * EXL2K_LANE_PAIRS; i++) {
            u32 pair = exl2k_lane_pair(i / 2), n = head * a.dim + exl2k_pair_element(a, pair, i % 2);
            f32 bias = p.bias && pair < a.dim / 2 ? exl2k_load_f32(p.bias + n * 4) : 0.0f;
            f32 v = __fmul_rn(h.v[i / 2][i % 2] - mean, rho); /* rounded as attend_decode does */
            h.v[i / 2][i % 2] = fmaf(v, weight.v[i / 2][i % 2], bias);
        }
    }
    if (!p.rotates) {
        exl2k_head_clip(a, h);
    }
#pragma unroll
    for (u32 i = 0; i < 2 * EXL2K_LANE_PAIRS; i++) {
        u32 pair = exl2k_lane_pair(i / 2), n = head * a.dim + exl2k_pair_element(a, pair, i % 2);
        if (pair < a.dim / 2) {
            exl2k_store_f32(p.at + n * 4, h.v[i / 2][i % 2] * p.factor);
        }
    }
}

extern "C" __global__ void __launch_bounds__(EXL2K_PREPARE_THREADS, 2) exl2k_attend_prepare(exl2k_prepare_args a)
{
    __shared__ f32 partial[EXL2K_PREPARE_HEADS];
    exl2k_part p = exl2k_part_of(a);
    exl2k_head held[EXL2K_HEADS_HELD], weight[EXL2K_HEADS_HELD];
    float2 whole = make_float2(0.0f, 1.0f);
    u32 warp = threadIdx.x / 32;
#pragma unroll
    for (u32 i = 0; i < EXL2K_HEADS_HELD; i++) {
        if (p.weight && warp + i * EXL2K_PREPARE_HEADS < p.heads) {
            exl2k_head_load(p, a, p.weight, warp + i * EXL2K_PREPARE_HEADS, weight[i]);
        }
    }
    exl2k_dependency_release();
    exl2k_dependency_wait();
    /* Load the heads before the number of rows is known: there is memory for every row of the launch. */
    uint4 row = exl2k_load4(a.rows + blockIdx.x * sizeof(exl2k_row)); /* token, position, sequence, flags */
    u32 rows = exl2k_load(a.pass);
#pragma unroll
    for (u32 i = 0; i < EXL2K_HEADS_HELD; i++) {
        if (warp + i * EXL2K_PREPARE_HEADS < p.heads) {
            exl2k_head_load(p, a, p.at, warp + i * EXL2K_PREPARE_HEADS, held[i]);
        }
    }
    if (blockIdx.x >= rows || (row.w & EXL2K_ROW_DONE)) {
        return;
    }
    exl2k_part_place(p, a, row.y);
#pragma unroll
    for (u32 i = 0; i < EXL2K_HEADS_HELD; i++) {
        if (warp + i * EXL2K_PREPARE_HEADS < p.heads) {
            exl2k_head_rotate(p, a, held[i]);
        }
    }
    /* A norm of all heads together has one mean and one factor. */
    if (a.whole && p.weight) {
        f32 count = (f32)(p.count * a.dim);
        whole.x = a.layer_norm ? exl2k_part_sum(p, a, held, false, 0.0f, partial) / count : 0.0f;
        whole.y = 1.0f / sqrtf(exl2k_part_sum(p, a, held, true, whole.x, partial) / count + a.eps);
        __syncthreads(); /* the heads are overwritten from here on */
    }
#pragma unroll
    for (u32 i = 0; i < EXL2K_HEADS_HELD; i++) {
        if (warp + i * EXL2K_PREPARE_HEADS < p.heads) {
            exl2k_head_finish(p, a, warp + i * EXL2K_PREPARE_HEADS, held[i], weight[i], whole);
        }
    }
#pragma unroll 1
    for (u32 head = warp + EXL2K_HEADS_HELD * EXL2K_PREPARE_HEADS; head < p.heads; head += EXL2K_PREPARE_HEADS) {
        exl2k_head h, w;
        exl2k_head_load(p, a, p.at, head, h);
        exl2k_head_rotate(p, a, h);
        if (p.weight) {
            exl2k_head_load(p, a, p.weight, head, w);
        }
        exl2k_head_finish(p, a, head, h, w, whole);
    }
}

/* attend_prepare.cu: norms of q and k, bounds of q, k, v, and q's growth with the position, before attention.
   takes: base.cuh, attend_args.h.
   gives: exl2k_attend_prepare.
   owns:  nothing.

   A warp has one head at a time. All loads are volatile, also those of weights and angles: the compiler may move other
   loads before the test of whether there are weights or angles. */
#include "attend_args.h"
#include "base.cuh"
#include "rope.cuh"

#define EXL2K_LANE_PAIRS 4 /* pairs of a lane: pair lane + 32 k; a head has at most 256 elements */

typedef struct exl2k_part { /* some heads of q, k or v of a row */
    u64 at;             /* address of the first head */
    u64 weight, bias;   /* of the first head */
    u32 heads, position;
    bool rotates;
    f32 factor;
} exl2k_part;

typedef struct exl2k_head {
    f32 v[EXL2K_LANE_PAIRS][2];
} exl2k_head;

/* Finds the part of this CTA; false: it has none. */
EXL2K_FN bool exl2k_part_open(exl2k_part &p, const exl2k_prepare_args &a)
{
    uint4 row = exl2k_load4(a.rows + blockIdx.x * sizeof(exl2k_row)); /* token, position, sequence, flags */
    if (blockIdx.x >= exl2k_load(a.pass) || (row.w & EXL2K_ROW_DONE)) {
        return false;
    }
    u32 of_q = (a.heads + a.part_heads - 1) / a.part_heads, of_k = (a.kv_heads + a.part_heads - 1) / a.part_heads;
    u32 kind = blockIdx.y < of_q ? 0 : blockIdx.y < of_q + of_k ? 1 : 2; /* q, k, v */
    u32 first = (blockIdx.y - (kind == 0 ? 0 : kind == 1 ? of_q : of_q + of_k)) * a.part_heads;
    u32 before = kind == 0 ? 0 : kind == 1 ? a.heads : a.heads + a.kv_heads;
    p.heads = exl2k_min((kind == 0 ? a.heads : a.kv_heads) - first, a.part_heads);
    p.at = a.qkv + ((u64)blockIdx.x * a.pitch + (before + first) * a.dim) * 4;
    p.weight = kind == 0 ? a.weight[0] : kind == 1 ? a.weight[1] : 0;
    p.bias = kind == 0 ? a.bias[0] : kind == 1 ? a.bias[1] : 0;
    p.weight += p.weight ? (u64)first * a.dim * 4 : 0;
    p.bias += p.bias ? (u64)first * a.dim * 4 : 0;
    p.position = row.y;
    p.rotates = a.rope && kind < 2;
    p.factor = 1.0f;
    if (kind == 0 && a.growth > 0.0f) {
        p.factor += a.growth * logf(1.0f + floorf((f32)row.y / a.context));
    }
    return true;
}

/* The lane's k-th pair, which may lie after the last one, and the index of one of its elements in the head. */
EXL2K_FN u32 exl2k_lane_pair(u32 k) { return threadIdx.x % 32 + 32 * k; }

EXL2K_FN u32 exl2k_pair_element(const exl2k_part &p, const exl2k_prepare_args &a, u32 pair, u32 second)
{
    u32 split = p.rotates ? a.rope_split : 0;
    return pair < split ? pair + second * split : 2 * pair + second;
}

EXL2K_FN void exl2k_head_clip(const exl2k_prepare_args &a, exl2k_head &h)
{
#pragma unroll
    for (u32 k = 0; k < EXL2K_LANE_PAIRS && a.clip > 0.0f; k++) {
        h.v[k][0] = fminf(fmaxf(h.v[k][0], -a.clip), a.clip);
        h.v[k][1] = fminf(fmaxf(h.v[k][1], -a.clip), a.clip);
    }
}

/* Loads a head: rotated, if attention is not going to rotate it. Elements after the last one are 0. */
EXL2K_FN void exl2k_head_load(const exl2k_part &p, const exl2k_prepare_args &a, u32 head, exl2k_head &h)
{
#pragma unroll
    for (u32 k = 0; k < EXL2K_LANE_PAIRS; k++) {
        u32 pair = exl2k_lane_pair(k);
        bool valid = pair < a.dim / 2;
        for (u32 j = 0; j < 2; j++) {
            u32 i = head * a.dim + exl2k_pair_element(p, a, pair, j);
            h.v[k][j] = valid ? exl2k_load_f32(p.at + i * 4) : 0.0f;
        }
    }
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
    for (u32 k = 0; k < EXL2K_LANE_PAIRS; k++) {
        for (u32 j = 0; j < 2 && exl2k_lane_pair(k) < a.dim / 2; j++) {
            f32 off = h.v[k][j] - mean;
            sum += squares ? off * off : h.v[k][j];
        }
    }
    return sum;
}

/* Sum over all heads of the part, for every thread. */
EXL2K_FN f32 exl2k_part_sum(const exl2k_part &p, const exl2k_prepare_args &a, bool squares, f32 mean, f32 *partial)
{
    f32 sum = 0.0f;
    exl2k_head h;
    for (u32 head = threadIdx.x / 32; head < p.heads; head += EXL2K_PREPARE_HEADS) {
        exl2k_head_load(p, a, head, h);
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

/* Applies the norm with this mean and this factor, bounds and growth, and stores the head. */
EXL2K_FN void exl2k_head_store(const exl2k_part &p, const exl2k_prepare_args &a, u32 head, exl2k_head &h, f32 mean,
                               f32 rho)
{
#pragma unroll
    for (u32 k = 0; k < EXL2K_LANE_PAIRS; k++) {
        for (u32 j = 0; j < 2 && p.weight && exl2k_lane_pair(k) < a.dim / 2; j++) {
            u32 i = head * a.dim + exl2k_pair_element(p, a, exl2k_lane_pair(k), j);
            f32 weight = exl2k_load_f32(p.weight + i * 4);
            f32 bias = p.bias ? exl2k_load_f32(p.bias + i * 4) : 0.0f;
            h.v[k][j] = fmaf((h.v[k][j] - mean) * rho, weight, bias);
        }
    }
    if (!p.rotates) {
        exl2k_head_clip(a, h);
    }
#pragma unroll
    for (u32 k = 0; k < EXL2K_LANE_PAIRS; k++) {
        for (u32 j = 0; j < 2 && exl2k_lane_pair(k) < a.dim / 2; j++) {
            u32 i = head * a.dim + exl2k_pair_element(p, a, exl2k_lane_pair(k), j);
            exl2k_store_f32(p.at + i * 4, h.v[k][j] * p.factor);
        }
    }
}

extern "C" __global__ void __launch_bounds__(EXL2K_PREPARE_THREADS) exl2k_attend_prepare(exl2k_prepare_args a)
{
    __shared__ f32 partial[EXL2K_PREPARE_HEADS];
    exl2k_part p;
    f32 mean = 0.0f, rho = 1.0f;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (!exl2k_part_open(p, a)) {
        return;
    }
    /* A norm of all heads together has one mean and one factor. */
    if (a.whole && p.weight) {
        f32 count = (f32)(p.heads * a.dim);
        mean = a.layer_norm ? exl2k_part_sum(p, a, false, 0.0f, partial) / count : 0.0f;
        rho = 1.0f / sqrtf(exl2k_part_sum(p, a, true, mean, partial) / count + a.eps);
        __syncthreads(); /* the heads are overwritten from here on */
    }
    for (u32 head = threadIdx.x / 32; head < p.heads; head += EXL2K_PREPARE_HEADS) {
        exl2k_head h;
        exl2k_head_load(p, a, head, h);
        if (!a.whole && p.weight) {
            mean = a.layer_norm ? exl2k_warp_sum(exl2k_head_sum(a, h, false, 0.0f)) / (f32)a.dim : 0.0f;
            rho = 1.0f / sqrtf(exl2k_warp_sum(exl2k_head_sum(a, h, true, mean)) / (f32)a.dim + a.eps);
        }
        exl2k_head_store(p, a, head, h, mean, rho);
    }
}

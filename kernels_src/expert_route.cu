/* expert_route.cu: the router: scores of experts, from rows normalised in f32, and the choice of each row.
   takes: route_args.h.
   gives: exl2k_route_one, exl2k_route_many, exl2k_route_choose.
   owns:  nothing. */
#include "base.cuh"
#include "route_args.h"

/* ---- logits ---- */

/* Sum over the CTA in a fixed order; every thread gets it. */
EXL2K_FN f32 exl2k_route_sum(f32 value, f32 *partial)
{
    value = exl2k_warp_sum(value);
    __syncthreads(); /* the preceding sum has been read */
    if (threadIdx.x % EXL2K_WARP == 0) {
        partial[threadIdx.x / EXL2K_WARP] = value;
    }
    __syncthreads();
    u32 lane = threadIdx.x % EXL2K_WARP;
    return exl2k_warp_sum(lane < EXL2K_ROUTE_WARPS ? partial[lane] : 0.0f);
}

/* Mean, and 1 / sqrt(variance + eps), of a row. The mean is computed from differences to the first element, and the
   variance from differences to the mean. */
EXL2K_FN float2 exl2k_route_norm(const exl2k_route_args &a, u64 row, f32 *partial)
{
    f32 mean = 0.0f, square = 0.0f;
    if (a.weight == 0) {
        return make_float2(0.0f, 1.0f);
    }
    if (a.layer_norm) {
        f32 shift = exl2k_load_f32(row), sum = 0.0f;
        for (u32 n = threadIdx.x; n < a.hidden; n += EXL2K_ROUTE_THREADS) {
            sum += exl2k_load_f32(row + n * 4) - shift;
        }
        mean = shift + exl2k_route_sum(sum, partial) / (f32)a.hidden;
    }
#pragma unroll 4
    for (u32 n = threadIdx.x; n < a.hidden; n += EXL2K_ROUTE_THREADS) {
        f32 v = exl2k_load_f32(row + n * 4) - mean;
        square = fmaf(v, v, square);
    }
    return make_float2(mean, 1.0f / sqrtf(exl2k_route_sum(square, partial) / (f32)a.hidden + a.eps));
}

/* One element of the normalised row; keeps it, and writes the inputs of the experts if this CTA is to. */
EXL2K_FN f32 exl2k_route_element(const exl2k_route_args &a, float2 norm, u64 from, u32 row, u32 n, bool writes)
{
    f32 y = exl2k_load_f32(from + n * 4);
    if (a.weight) {
        y = (y - norm.x) * norm.y * exl2k_load_f32(a.weight + n * 4);
        y += a.bias ? exl2k_load_f32(a.bias + n * 4) : 0.0f;
    }
    u32 half = exl2k_f32_to_f16(exl2k_clamp_f16(y));
#pragma unroll
    for (u32 k = 0; k < 2; k++) {
        if (writes && a.out[k]) {
            u32 index = a.map[k] ? exl2k_load_u16(a.map[k] + n * 2) : n;
            exl2k_store_u16(a.out[k] + ((u64)row * a.out_pitch + index) * 2, half);
        }
    }
    return y;
}

/* Eight weights from element `at` on, of which the first `left` exist. */
EXL2K_FN void exl2k_route_weights(f32 w[8], const exl2k_route_table &t, u64 at, u32 left, bool aligned)
{
    if (aligned && t.type < 2) {
        uint4 v = exl2k_load_constant4(t.weights + at * 2);
        u32 pairs[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            u32 half = i % 2 ? pairs[i / 2] >> 16 : pairs[i / 2] & 0xFFFFu;
            w[i] = t.type == 0 ? exl2k_f16_to_f32(half) : exl2k_bf16_to_f32(half);
        }
        return;
    }
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        w[i] = 0.0f;
        if (i < left && t.type == 2) {
            w[i] = exl2k_load_f32(t.weights + (at + i) * 4);
        } else if (i < left) {
            u32 half = exl2k_load_u16(t.weights + (at + i) * 2);
            w[i] = t.type == 0 ? exl2k_f16_to_f32(half) : exl2k_bf16_to_f32(half);
        }
    }
}

/* Warp w of the CTA has output 16 blockIdx.x + w, of R rows. A row has the same bits for every R: each lane adds up the
   same elements in the same order. */
template <u32 R> EXL2K_FN void exl2k_route(const exl2k_route_args &a)
{
    constexpr u32 tile = EXL2K_ROUTE_TILE / R;
    __shared__ alignas(16) f32 y[R][tile];
    __shared__ f32 partial[EXL2K_ROUTE_WARPS];
    __shared__ float2 norm[R];
    u32 lane = threadIdx.x % EXL2K_WARP, output = blockIdx.x * EXL2K_ROUTE_WARPS + threadIdx.x / EXL2K_WARP;
    u32 first = blockIdx.y * R;
    bool is_router = output < a.table[0].outputs;
    const exl2k_route_table &table = a.table[is_router ? 0 : 1];
    u32 own = is_router ? output : output - a.table[0].outputs;
    bool works = own < table.outputs, aligned = a.hidden % 8 == 0;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u32 rows = exl2k_load(a.rows_at);
    if (first >= rows) {
        return;
    }
    rows = exl2k_min(R, rows - first);
    f32 sum[R];
#pragma unroll
    for (u32 r = 0; r < R; r++) {
        sum[r] = 0.0f;
    }
#pragma unroll 1
    for (u32 r = 0; r < rows; r++) {
        float2 own_norm = exl2k_route_norm(a, a.residual + (u64)(first + r) * a.hidden * 4, partial);
        if (threadIdx.x == 0) {
            norm[r] = own_norm; /* read after the barriers below */
        }
    }
    for (u32 begin = 0; begin < a.hidden; begin += tile) {
        u32 end = exl2k_min(begin + tile, a.hidden);
        bool writes = begin / tile % gridDim.x == blockIdx.x;
        __syncthreads();
#pragma unroll 1
        for (u32 r = 0; r < R; r++) {
            u64 from = a.residual + (u64)(first + r) * a.hidden * 4;
#pragma unroll 2
            for (u32 n = begin + threadIdx.x; n < begin + tile; n += EXL2K_ROUTE_THREADS) {
                bool is_real = n < end && r < rows;
                y[r][n - begin] = is_real ? exl2k_route_element(a, norm[r], from, first + r, n, writes) : 0.0f;
            }
        }
        __syncthreads();
#pragma unroll 1
        for (u32 n = begin + lane * 8; works && n < end; n += EXL2K_WARP * 8) {
            f32 w[8];
            exl2k_route_weights(w, table, (u64)own * a.hidden + n, end - n, aligned);
#pragma unroll
            for (u32 r = 0; r < R; r++) {
                const float4 *values = (const float4 *)&y[r][n - begin];
                float4 low = values[0], high = values[1];
                sum[r] = fmaf(low.x, w[0], sum[r]);
                sum[r] = fmaf(low.y, w[1], sum[r]);
                sum[r] = fmaf(low.z, w[2], sum[r]);
                sum[r] = fmaf(low.w, w[3], sum[r]);
                sum[r] = fmaf(high.x, w[4], sum[r]);
                sum[r] = fmaf(high.y, w[5], sum[r]);
                sum[r] = fmaf(high.z, w[6], sum[r]);
                sum[r] = fmaf(high.w, w[7], sum[r]);
            }
        }
    }
#pragma unroll
    for (u32 r = 0; r < R; r++) {
        f32 total = exl2k_warp_sum(sum[r]);
        if (works && lane == 0 && r < rows) {
            total += table.bias ? exl2k_load_f32(table.bias + own * 4) : 0.0f;
            exl2k_store_f32(a.logits + ((u64)(first + r) * a.logits_pitch + output) * 4, total);
        }
    }
}

extern "C" __global__ void __launch_bounds__(EXL2K_ROUTE_THREADS) exl2k_route_one(exl2k_route_args a)
{
    exl2k_route<1>(a);
}

extern "C" __global__ void __launch_bounds__(EXL2K_ROUTE_THREADS) exl2k_route_many(exl2k_route_args a)
{
    exl2k_route<EXL2K_ROUTE_ROWS>(a);
}

/* ---- the choice ---- */

EXL2K_FN bool exl2k_route_is_nan(f32 v) { return !(v == v); }

/* A NaN is worse than all numbers. Of equal scores the lowest index is better. */
EXL2K_FN bool exl2k_route_better(f32 a, u32 a_index, f32 b, u32 b_index)
{
    if (a_index == ~0u || b_index == ~0u) {
        return b_index == ~0u && a_index != ~0u;
    }
    bool equal = a == b || (exl2k_route_is_nan(a) && exl2k_route_is_nan(b));
    return equal ? a_index < b_index : a > b || (exl2k_route_is_nan(b) && !exl2k_route_is_nan(a));
}

/* Sets the bits of the `wanted` best of scores [count] whose bits in taken are 0. */
EXL2K_FN void exl2k_route_pick(const f32 *score, u32 count, u32 wanted, u32 *taken)
{
    u32 lane = threadIdx.x;
#pragma unroll 1
    for (; wanted > 0; wanted--) {
        f32 best = 0.0f;
        u32 index = ~0u;
        for (u32 i = lane; i < count; i += EXL2K_WARP) {
            if (!(taken[i / 32] >> lane & 1) && exl2k_route_better(score[i], i, best, index)) {
                best = score[i];
                index = i;
            }
        }
        for (u32 step = 16; step > 0; step /= 2) {
            f32 other = __shfl_xor_sync(EXL2K_ALL, best, step);
            u32 other_index = __shfl_xor_sync(EXL2K_ALL, index, step);
            if (exl2k_route_better(other, other_index, best, index)) {
                best = other;
                index = other_index;
            }
        }
        if (lane == 0 && index != ~0u) {
            taken[index / 32] |= 1u << index % 32;
        }
        __syncwarp();
    }
}

/* Sets the bits of all experts outside of the best groups. sum [groups], chosen [ceil(groups / 32)]: scratch. */
EXL2K_FN void exl2k_route_groups(const exl2k_route_choose_args &a, const f32 *biased, f32 *sum, u32 *chosen, u32 *taken)
{
    u32 lane = threadIdx.x, size = a.count / a.groups;
    for (u32 g = lane; g < a.groups; g += EXL2K_WARP) {
        const f32 *of = biased + g * size;
        f32 best = of[0], second = 0.0f;
        for (u32 i = 1; i < size; i++) {
            second = i == 1 || of[i] > second ? of[i] : second;
            if (second > best) {
                f32 held = best;
                best = second;
                second = held;
            }
        }
        sum[g] = best + second;
        chosen[g / 32] = 0; /* all of these lanes write 0 */
    }
    __syncwarp();
    exl2k_route_pick(sum, a.groups, a.groups_active, chosen);
    for (u32 word = lane; word < (a.count + 31) / 32; word += EXL2K_WARP) {
        u32 bits = 0;
        for (u32 i = word * 32; i < exl2k_min(word * 32 + 32, a.count); i++) {
            u32 group = i / size;
            bits |= (chosen[group / 32] >> group % 32 & 1 ? 0u : 1u) << i % 32;
        }
        taken[word] = bits;
    }
    __syncwarp();
}

/* Replaces logits by scores, in shared memory. false: one of them is not finite. */
EXL2K_FN bool exl2k_route_scores(const exl2k_route_choose_args &a, u64 logits, f32 *score, f32 *biased)
{
    u32 lane = threadIdx.x;
    f32 largest = -__uint_as_float(0x7F800000u), sum = 0.0f;
    bool finite = true;
    for (u32 i = lane; i < a.count; i += EXL2K_WARP) {
        f32 v = exl2k_load_f32(logits + i * 4);
        finite = finite && fabsf(v) < __uint_as_float(0x7F800000u);
        largest = fmaxf(largest, v);
        score[i] = v;
    }
    largest = exl2k_warp_max(largest);
    for (u32 i = lane; i < a.count; i += EXL2K_WARP) {
        f32 v = a.sigmoid ? 1.0f / (1.0f + expf(-score[i])) : expf(score[i] - largest);
        score[i] = v;
        sum += v;
    }
    sum = exl2k_warp_sum(sum);
    for (u32 i = lane; i < a.count; i += EXL2K_WARP) {
        f32 v = a.sigmoid ? score[i] : score[i] / sum;
        score[i] = v;
        biased[i] = a.choice_bias ? v + exl2k_load_f32(a.choice_bias + i * 4) : v;
    }
    return __all_sync(EXL2K_ALL, finite);
}

extern "C" __global__ void __launch_bounds__(EXL2K_WARP) exl2k_route_choose(exl2k_route_choose_args a)
{
    extern __shared__ f32 exl2k_route_shared[];
    u32 lane = threadIdx.x, words = (a.count + 31) / 32, row = blockIdx.x;
    f32 *score = exl2k_route_shared, *biased = score + a.count, *sums = biased + a.count;
    u32 *taken = (u32 *)(sums + a.groups), *outside = taken + words, *chosen = outside + words;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (row >= exl2k_load(a.rows_at)) {
        return;
    }
    u64 logits = a.logits + (u64)row * a.logits_pitch * 4, at = (u64)row * a.active * 4;
    bool finite = exl2k_route_scores(a, logits, score, biased);
    for (u32 i = lane; i < words; i += EXL2K_WARP) {
        outside[i] = 0;
    }
    __syncwarp();
    if (a.groups_active < a.groups) {
        exl2k_route_groups(a, biased, sums, chosen, outside);
    }
    for (u32 i = lane; i < words; i += EXL2K_WARP) {
        taken[i] = outside[i];
    }
    __syncwarp();
    exl2k_route_pick(biased, a.count, a.active, taken);
    /* The sum of the chosen scores, in ascending order, which is the same in every lane. */
    f32 sum = 0.0f;
    u32 before = 0; /* experts chosen in preceding words */
    for (u32 i = 0; i < words && a.renormalized; i++) {
        for (u32 left = taken[i] & ~outside[i]; left; left &= left - 1) {
            sum += score[i * 32 + __ffs(left) - 1];
        }
    }
    f32 over = a.renormalized ? sum + (a.sigmoid ? 1e-20f : 0.0f) : 1.0f;
    for (u32 i = 0; i < words; i++) {
        u32 bits = taken[i] & ~outside[i], place = before + __popc(bits & ((1u << lane) - 1));
        if (bits >> lane & 1 && place < a.active) {
            f32 w = score[i * 32 + lane] * a.scale / over;
            exl2k_store(a.choice + at + place * 4, i * 32 + lane);
            exl2k_store_f32(a.weight + at + place * 4, finite ? w : __uint_as_float(0x7FC00000u));
        }
        before += __popc(bits);
    }
    if (a.shared && lane == 0) {
        f32 v = exl2k_load_f32(logits + a.count * 4);
        exl2k_store_f32(a.shared + row * 4, 1.0f / (1.0f + expf(-v)));
    }
}

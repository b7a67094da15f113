/* expert_route.cu: the router: scores of experts, from rows normalised in f32, and the choice of each row.
   takes: route_args.h.
   gives: exl2k_route_one, exl2k_route_many, exl2k_route_choose. */
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

/* Calls f(n, i, value) for each of this thread's elements of a row, of which it holds the first ones: element n is
   held[i], or was read from memory if i is EXL2K_ROUTE_HELD. */
template <typename F> EXL2K_FN void exl2k_route_each(const f32 *held, u64 row, u32 hidden, F f)
{
#pragma unroll
    for (u32 i = 0; i < EXL2K_ROUTE_HELD; i++) {
        u32 n = i * EXL2K_ROUTE_THREADS + threadIdx.x;
        if (n < hidden) {
            f(n, i, held[i]);
        }
    }
#pragma unroll 1
    for (u32 n = EXL2K_ROUTE_HELD * EXL2K_ROUTE_THREADS + threadIdx.x; n < hidden; n += EXL2K_ROUTE_THREADS) {
        f(n, EXL2K_ROUTE_HELD, exl2k_load_f32(row + n * 4));
    }
}

EXL2K_FN void exl2k_route_hold(f32 *held, u64 row, u32 hidden)
{
#pragma unroll
    for (u32 i = 0; i < EXL2K_ROUTE_HELD; i++) {
        u32 n = i * EXL2K_ROUTE_THREADS + threadIdx.x;
        held[i] = n < hidden ? exl2k_load_f32(row + n * 4) : 0.0f;
    }
}

/* Mean, and 1 / sqrt(variance + eps), of a row. The mean is computed from differences to the first element, and the
   variance from differences to the mean. */
EXL2K_FN float2 exl2k_route_norm(const exl2k_route_args &a, const f32 *held, u64 row, f32 *partial)
{
    f32 mean = 0.0f, square = 0.0f;
    if (a.weight == 0) {
        return make_float2(0.0f, 1.0f);
    }
    if (a.layer_norm) {
        f32 shift = exl2k_load_f32(row), sum = 0.0f;
        exl2k_route_each(held, row, a.hidden, [&](u32, u32, f32 v) { sum += v - shift; });
        mean = shift + exl2k_route_sum(sum, partial) / (f32)a.hidden;
    }
    exl2k_route_each(held, row, a.hidden, [&](u32, u32, f32 v) { square = fmaf(v - mean, v - mean, square); });
    return make_float2(mean, 1.0f / sqrtf(exl2k_route_sum(square, partial) / (f32)a.hidden + a.eps));
}

/* What no kernel writes and element n of every row needs. */
typedef struct exl2k_route_fixed {
    f32 weight, bias;
    u32 place; /* in the first output */
} exl2k_route_fixed;

EXL2K_FN exl2k_route_fixed exl2k_route_fixed_of(const exl2k_route_args &a, u32 n, bool writes)
{
    exl2k_route_fixed f = { 1.0f, 0.0f, n };
    if (a.weight && n < a.hidden) {
        f.weight = exl2k_load_f32(a.weight + n * 4);
        f.bias = a.bias ? exl2k_load_f32(a.bias + n * 4) : 0.0f;
    }
    if (writes && a.map[0] && n < a.hidden) {
        f.place = exl2k_load_u16(a.map[0] + n * 2);
    }
    return f;
}

/* Element n of the normalised row, whose residual is y; writes the inputs of the experts if this CTA is to. */
EXL2K_FN f32 exl2k_route_element(const exl2k_route_args &a, float2 norm, const exl2k_route_fixed &f, f32 y, u32 row,
                                 u32 n, bool writes)
{
    y = a.weight ? (y - norm.x) * norm.y * f.weight + f.bias : y;
    u32 half = exl2k_f32_to_f16(exl2k_clamp_f16(y));
#pragma unroll
    for (u32 k = 0; k < 2; k++) {
        if (writes && a.out[k]) {
            u32 index = k == 0 ? f.place : a.map[k] ? exl2k_load_u16(a.map[k] + n * 2) : n;
            exl2k_store_u16(a.out[k] + ((u64)row * a.out_pitch + index) * 2, half);
        }
    }
    return y;
}

/* The output of a table that a warp computes. */
typedef struct exl2k_route_output {
    u64 weights, bias;
    u32 type;
    bool exists;
} exl2k_route_output;

EXL2K_FN exl2k_route_output exl2k_route_output_of(const exl2k_route_args &a, u32 output)
{
    bool is_router = output < a.table[0].outputs;
    const exl2k_route_table &t = a.table[is_router ? 0 : 1];
    u32 own = is_router ? output : output - a.table[0].outputs;
    exl2k_route_output o;
    o.type = t.type;
    o.exists = own < t.outputs;
    o.weights = t.weights + (u64)own * a.hidden * (t.type == 2 ? 4 : 2);
    o.bias = t.bias ? t.bias + own * 4 : 0;
    return o;
}

/* Eight weights of fp16 or bf16, as loaded. */
EXL2K_FN void exl2k_route_unpack(f32 w[8], uint4 v, u32 type)
{
    u32 pairs[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        u32 half = i % 2 ? pairs[i / 2] >> 16 : pairs[i / 2] & 0xFFFFu;
        w[i] = type == 0 ? exl2k_f16_to_f32(half) : exl2k_bf16_to_f32(half);
    }
}

/* Eight weights from element n on, one by one: those of f32, and those of rows that are not aligned. */
EXL2K_FN void exl2k_route_weights(f32 w[8], const exl2k_route_output &o, u32 n, u32 hidden)
{
#pragma unroll 1
    for (u32 i = 0; i < 8; i++) {
        f32 v = 0.0f;
        if (n + i < hidden && o.type == 2) {
            v = exl2k_load_f32(o.weights + (n + i) * 4);
        } else if (n + i < hidden) {
            u32 half = exl2k_load_u16(o.weights + (n + i) * 2);
            v = o.type == 0 ? exl2k_f16_to_f32(half) : exl2k_bf16_to_f32(half);
        }
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            w[k] = k == i ? v : w[k];
        }
    }
}

EXL2K_FN f32 exl2k_route_dot(f32 sum, const f32 *y, const f32 w[8])
{
    const float4 *values = (const float4 *)y;
    float4 low = values[0], high = values[1];
    sum = fmaf(low.x, w[0], sum);
    sum = fmaf(low.y, w[1], sum);
    sum = fmaf(low.z, w[2], sum);
    sum = fmaf(low.w, w[3], sum);
    sum = fmaf(high.x, w[4], sum);
    sum = fmaf(high.y, w[5], sum);
    sum = fmaf(high.z, w[6], sum);
    return fmaf(high.w, w[7], sum);
}

/* An output is the sum of four quarters, in their order, and the bias. Quarter q has the runs of 256 inputs q, q + 4,
   ..; lane i of a warp adds up inputs 8 i to 8 i + 7 of each. So a row has the same bits in both kernels. */
/* ---- the choice ---- */

/* A number whose order is that of scores: a NaN comes before all numbers, and 0 is no score. */
EXL2K_FN u32 exl2k_route_key(f32 v)
{
    u32 bits = __float_as_uint(v + 0.0f); /* -0 becomes 0 */
    return v != v ? 1 : bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* The same as exl2k_route_pick for few keys: every lane holds its own ones. */
EXL2K_FN void exl2k_route_pick_few(const u32 *key, u32 count, u32 wanted, u32 *taken)
{
    u32 lane = threadIdx.x, held[EXL2K_ROUTE_BATCH], bits[EXL2K_ROUTE_BATCH];
#pragma unroll
    for (u32 k = 0; k < EXL2K_ROUTE_BATCH; k++) {
        held[k] = lane + k * EXL2K_WARP < count ? key[lane + k * EXL2K_WARP] : 0;
        bits[k] = 0;
    }
#pragma unroll 1
    for (; wanted > 0; wanted--) {
        u32 best = held[0], found = 0;
#pragma unroll
        for (u32 k = 1; k < EXL2K_ROUTE_BATCH; k++) {
            best = exl2k_max(best, held[k]);
        }
        best = exl2k_warp_most(best);
#pragma unroll
        for (u32 k = 0; k < EXL2K_ROUTE_BATCH; k++) {
            u32 equal = __ballot_sync(EXL2K_ALL, held[k] == best), first = found || best == 0 ? 0 : equal & (0 - equal);
            found |= equal;
            bits[k] |= first;
            held[k] = first >> lane & 1 ? 0 : held[k];
        }
    }
#pragma unroll
    for (u32 k = 0; k < EXL2K_ROUTE_BATCH; k++) {
        if (lane == 0 && k * EXL2K_WARP < count) {
            taken[k] = bits[k];
        }
    }
    __syncwarp();
}

/* Sets the bits of the `wanted` best of the keys [count] in `taken`: of equal keys the first one. The keys are used up.
   One warp calls it. */
EXL2K_FN void exl2k_route_pick(u32 *key, u32 count, u32 wanted, u32 *taken)
{
    u32 lane = threadIdx.x;
    if (count <= EXL2K_ROUTE_BATCH * EXL2K_WARP) {
        exl2k_route_pick_few(key, count, wanted, taken);
        return;
    }
#pragma unroll 1
    for (; wanted > 0; wanted--) {
        u32 best = 0, index = ~0u;
#pragma unroll 2
        for (u32 i = lane; i < count; i += EXL2K_WARP) {
            index = key[i] > best ? i : index;
            best = exl2k_max(best, key[i]);
        }
        u32 most = exl2k_warp_most(best);
        index = ~exl2k_warp_most(best == most ? ~index : 0); /* the lowest one */
        if (most == 0) {
            break;
        }
        if (index % EXL2K_WARP == lane) { /* this lane alone reads the key */
            key[index] = 0;
        }
        if (lane == 0) {
            taken[index / 32] |= 1u << index % 32;
        }
    }
    __syncwarp();
}

/* Sets the bits of all experts outside of the best groups. key [groups], chosen [ceil(groups / 32)]: scratch. */
EXL2K_FN void exl2k_route_groups(const exl2k_route_choose_args &a, const f32 *biased, u32 *key, u32 *chosen,
                                 u32 *outside)
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
        key[g] = exl2k_route_key(best + second);
        chosen[g / 32] = 0; /* all of these lanes write 0 */
    }
    __syncwarp();
    exl2k_route_pick(key, a.groups, a.groups_active, chosen);
    for (u32 word = lane; word < (a.count + 31) / 32; word += EXL2K_WARP) {
        u32 bits = 0;
        for (u32 i = word * 32; i < exl2k_min(word * 32 + 32, a.count); i++) {
            u32 group = i / size;
            bits |= (chosen[group / 32] >> group % 32 & 1 ? 0u : 1u) << i % 32;
        }
        outside[word] = bits;
    }
    __syncwarp();
}

/* Replaces logits by scores, in shared memory. false: one of them is not finite. */
EXL2K_FN bool exl2k_route_scores(const exl2k_route_choose_args &a, u64 logits, f32 *score, f32 *biased)
{
    u32 lane = threadIdx.x;
    f32 largest = -__uint_as_float(0x7F800000u), sum = 0.0f;
    bool finite = true;
#pragma unroll 1
    for (u32 base = lane; base < a.count; base += EXL2K_ROUTE_BATCH * EXL2K_WARP) {
        f32 v[EXL2K_ROUTE_BATCH], bias[EXL2K_ROUTE_BATCH]; /* loaded together, then stored */
#pragma unroll
        for (u32 k = 0; k < EXL2K_ROUTE_BATCH; k++) {
            u32 i = exl2k_min(base + k * EXL2K_WARP, a.count - 1);
            v[k] = exl2k_load_f32(logits + i * 4);
            bias[k] = a.choice_bias ? exl2k_load_f32(a.choice_bias + i * 4) : 0.0f;
        }
#pragma unroll
        for (u32 k = 0; k < EXL2K_ROUTE_BATCH; k++) {
            u32 i = base + k * EXL2K_WARP;
            if (i < a.count) {
                finite = finite & (fabsf(v[k]) < __uint_as_float(0x7F800000u));
                largest = fmaxf(largest, v[k]);
                score[i] = v[k];
                biased[i] = bias[k];
            }
        }
    }
    largest = exl2k_warp_max(largest);
    /* This warp runs alone, and fetching instructions is most of its time: loops are short. */
#pragma unroll 1
    for (u32 i = lane; i < a.count; i += EXL2K_WARP) {
        f32 v = a.sigmoid ? 1.0f / (1.0f + expf(-score[i])) : expf(score[i] - largest);
        score[i] = v;
        sum += v;
    }
    sum = exl2k_warp_sum(sum);
    f32 over = a.sigmoid ? 1.0f : 1.0f / sum;
#pragma unroll 1
    for (u32 i = lane; i < a.count; i += EXL2K_WARP) {
        f32 v = score[i] * over;
        score[i] = v;
        biased[i] = a.choice_bias ? v + biased[i] : v;
    }
    return __all_sync(EXL2K_ALL, finite);
}

/* Chooses the experts of a row; one warp calls it. memory: exl2k_route_choose_bytes. */
EXL2K_FN void exl2k_route_choose_row(const exl2k_route_choose_args &a, f32 *memory, u32 row)
{
    u32 lane = threadIdx.x, words = (a.count + 31) / 32;
    f32 *score = memory, *biased = score + a.count;
    u32 *keys = (u32 *)biased, *group_keys = keys + a.count; /* keys replace biased scores */
    u32 *taken = group_keys + a.groups, *outside = taken + words, *chosen = outside + words;
    u64 logits = a.logits + (u64)row * a.logits_pitch * 4, at = (u64)row * a.active * 4;
    f32 switch_logit = a.shared ? exl2k_load_f32(logits + a.count * 4) : 0.0f;
    bool finite = exl2k_route_scores(a, logits, score, biased);
    for (u32 i = lane; i < words; i += EXL2K_WARP) {
        taken[i] = outside[i] = 0;
    }
    __syncwarp();
    if (a.groups_active < a.groups) {
        exl2k_route_groups(a, biased, group_keys, chosen, outside);
    }
#pragma unroll 1
    for (u32 i = lane; i < a.count; i += EXL2K_WARP) {
        keys[i] = outside[i / 32] >> lane & 1 ? 0 : exl2k_route_key(biased[i]);
    }
    __syncwarp();
    exl2k_route_pick(keys, a.count, a.active, taken);
    /* The sum of the chosen scores, in ascending order, which is the same in every lane. */
    f32 sum = 0.0f;
    u32 before = 0; /* experts chosen in preceding words */
#pragma unroll 1
    for (u32 i = 0; i < words && a.renormalized; i++) {
#pragma unroll 1
        for (u32 left = taken[i]; left; left &= left - 1) {
            sum += score[i * 32 + __ffs(left) - 1];
        }
    }
    f32 factor = a.renormalized ? a.scale / (sum + (a.sigmoid ? 1e-20f : 0.0f)) : a.scale;
#pragma unroll 1
    for (u32 i = 0; i < words; i++) {
        u32 bits = taken[i], place = before + __popc(bits & ((1u << lane) - 1));
        if (bits >> lane & 1 && place < a.active) {
            f32 w = score[i * 32 + lane] * factor;
            exl2k_store(a.choice + at + place * 4, i * 32 + lane);
            exl2k_store_f32(a.weight + at + place * 4, finite ? w : __uint_as_float(0x7FC00000u));
        }
        before += __popc(bits);
    }
    if (a.shared && lane == 0) {
        exl2k_store_f32(a.shared + row * 4, 1.0f / (1.0f + expf(-switch_logit)));
    }
}

/* ---- the kernels ---- */

/* Loads this warp's weights of the first runs, while preceding kernels may still run. */
EXL2K_FN void exl2k_route_preload(uint4 *loaded, const exl2k_route_args &a, const exl2k_route_output &o, u32 first)
{
    bool whole = o.exists && o.type < 2 && a.hidden % 8 == 0;
#pragma unroll
    for (u32 i = 0; i < EXL2K_ROUTE_LOADED; i++) {
        u32 n = first + i * EXL2K_ROUTE_QUARTERS * EXL2K_ROUTE_RUN;
        loaded[i] = whole && n < a.hidden ? exl2k_load_constant4(o.weights + n * 2) : make_uint4(0, 0, 0, 0);
    }
}

/* Four warps compute an output of one row: a quarter each. The last CTA of a row chooses its experts. */
extern "C" __global__ void __launch_bounds__(EXL2K_ROUTE_THREADS, 1)
exl2k_route_one(const __grid_constant__ exl2k_route_one_args all)
{
    extern __shared__ uint4 exl2k_route_shared[];
    __shared__ f32 partial[EXL2K_ROUTE_WARPS], quarter_sum[EXL2K_ROUTE_WARPS];
    __shared__ u32 is_last;
    const exl2k_route_args &a = all.route;
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP, row = blockIdx.y;
    u32 output = blockIdx.x * EXL2K_ROUTE_OUTPUTS + warp / EXL2K_ROUTE_QUARTERS;
    u32 first = warp % EXL2K_ROUTE_QUARTERS * EXL2K_ROUTE_RUN + lane * 8;
    exl2k_route_output o = exl2k_route_output_of(a, output);
    f32 held[EXL2K_ROUTE_HELD], *y = (f32 *)exl2k_route_shared;
    uint4 loaded[EXL2K_ROUTE_LOADED];
    exl2k_route_fixed fixed[EXL2K_ROUTE_HELD];
    exl2k_route_preload(loaded, a, o, first);
    u32 mine = 0; /* bits of the `held` that this CTA writes */
#pragma unroll
    for (u32 i = 0; i < EXL2K_ROUTE_HELD; i++) {
        bool writes = i % gridDim.x == blockIdx.x;
        fixed[i] = exl2k_route_fixed_of(a, i * EXL2K_ROUTE_THREADS + threadIdx.x, writes);
        mine |= writes ? 1u << i : 0;
    }
    exl2k_dependency_release();
    exl2k_dependency_wait();
    /* Load the row before the number of rows is known: there is memory for every row of the launch. */
    u64 from = a.residual + (u64)row * a.hidden * 4;
    u32 rows = exl2k_load(a.rows_at);
    exl2k_route_hold(held, from, a.hidden);
    if (row >= rows) {
        return;
    }
    /* Normalise the row. */
    float2 norm = exl2k_route_norm(a, held, from, partial);
    exl2k_route_each(held, from, a.hidden, [&](u32 n, u32 i, f32 v) {
        bool held_one = i < EXL2K_ROUTE_HELD;
        bool writes = held_one ? mine >> i & 1 : n / EXL2K_ROUTE_THREADS % gridDim.x == blockIdx.x;
        exl2k_route_fixed own = held_one ? fixed[i % EXL2K_ROUTE_HELD] : exl2k_route_fixed_of(a, n, writes);
        y[n] = exl2k_route_element(a, norm, own, v, row, n, writes);
    });
    for (u32 n = a.hidden + threadIdx.x; n < (a.hidden + 7) / 8 * 8; n += EXL2K_ROUTE_THREADS) {
        y[n] = 0.0f;
    }
    __syncthreads();
    /* Multiply. */
    f32 sum = 0.0f;
    bool whole = o.type < 2 && a.hidden % 8 == 0;
#pragma unroll
    for (u32 i = 0; i < EXL2K_ROUTE_LOADED; i++) {
        u32 n = first + i * EXL2K_ROUTE_QUARTERS * EXL2K_ROUTE_RUN;
        if (o.exists && whole && n < a.hidden) {
            f32 w[8];
            exl2k_route_unpack(w, loaded[i], o.type);
            sum = exl2k_route_dot(sum, y + n, w);
        }
    }
    u32 done = whole ? EXL2K_ROUTE_LOADED : 0;
#pragma unroll 1
    for (u32 n = first + done * EXL2K_ROUTE_QUARTERS * EXL2K_ROUTE_RUN; o.exists && n < a.hidden;
         n += EXL2K_ROUTE_QUARTERS * EXL2K_ROUTE_RUN) {
        f32 w[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
        if (whole) {
            exl2k_route_unpack(w, exl2k_load_constant4(o.weights + n * 2), o.type);
        } else {
            exl2k_route_weights(w, o, n, a.hidden);
        }
        sum = exl2k_route_dot(sum, y + n, w);
    }
    sum = exl2k_warp_sum(sum);
    if (lane == 0) {
        quarter_sum[warp] = sum;
    }
    __syncthreads();
    if (o.exists && warp % EXL2K_ROUTE_QUARTERS == 0 && lane == 0) {
        f32 total = ((sum + quarter_sum[warp + 1]) + quarter_sum[warp + 2]) + quarter_sum[warp + 3];
        total += o.bias ? exl2k_load_f32(o.bias) : 0.0f;
        exl2k_store_f32(a.logits + ((u64)row * a.logits_pitch + output) * 4, total);
    }
    /* The last CTA of the row chooses. */
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        u32 *ticket = (u32 *)(all.tickets + row * 4);
        is_last = atomicAdd(ticket, 1) + 1 == gridDim.x;
        if (is_last) {
            *ticket = 0;
            __threadfence();
        }
    }
    __syncthreads();
    if (is_last && warp == 0) {
        exl2k_route_choose_row(all.choose, (f32 *)exl2k_route_shared, row);
    }
}

/* Each warp computes an output of several rows. */
extern "C" __global__ void __launch_bounds__(EXL2K_ROUTE_THREADS, 1)
exl2k_route_many(const __grid_constant__ exl2k_route_args a)
{
    constexpr u32 tile = EXL2K_ROUTE_QUARTERS * EXL2K_ROUTE_RUN;
    __shared__ alignas(16) f32 y[EXL2K_ROUTE_ROWS][tile];
    __shared__ f32 partial[EXL2K_ROUTE_WARPS];
    __shared__ float2 norm[EXL2K_ROUTE_ROWS];
    u32 lane = threadIdx.x % EXL2K_WARP, output = blockIdx.x * EXL2K_ROUTE_WARPS + threadIdx.x / EXL2K_WARP;
    u32 first = blockIdx.y * EXL2K_ROUTE_ROWS;
    exl2k_route_output o = exl2k_route_output_of(a, output);
    bool whole = o.type < 2 && a.hidden % 8 == 0;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u32 rows = exl2k_load(a.rows_at);
    if (first >= rows) {
        return;
    }
    rows = exl2k_min(EXL2K_ROUTE_ROWS, rows - first);
#pragma unroll 1
    for (u32 r = 0; r < rows; r++) {
        u64 from = a.residual + (u64)(first + r) * a.hidden * 4;
        f32 held[EXL2K_ROUTE_HELD];
        exl2k_route_hold(held, from, a.hidden);
        float2 own = exl2k_route_norm(a, held, from, partial);
        if (threadIdx.x == 0) {
            norm[r] = own; /* read after the barriers below */
        }
    }
    f32 sum[EXL2K_ROUTE_QUARTERS][EXL2K_ROUTE_ROWS];
#pragma unroll
    for (u32 i = 0; i < EXL2K_ROUTE_QUARTERS * EXL2K_ROUTE_ROWS; i++) {
        sum[i / EXL2K_ROUTE_ROWS][i % EXL2K_ROUTE_ROWS] = 0.0f;
    }
#pragma unroll 1
    for (u32 begin = 0; begin < a.hidden; begin += tile) {
        bool writes = begin / tile % gridDim.x == blockIdx.x;
        __syncthreads();
#pragma unroll 1
        for (u32 r = 0; r < EXL2K_ROUTE_ROWS; r++) {
            u64 from = a.residual + (u64)(first + r) * a.hidden * 4;
#pragma unroll 2
            for (u32 n = begin + threadIdx.x; n < begin + tile; n += EXL2K_ROUTE_THREADS) {
                bool is_real = n < a.hidden && r < rows;
                f32 v = is_real ? exl2k_load_f32(from + n * 4) : 0.0f;
                exl2k_route_fixed own = exl2k_route_fixed_of(a, n, writes);
                y[r][n - begin] = is_real ? exl2k_route_element(a, norm[r], own, v, first + r, n, writes) : 0.0f;
            }
        }
        __syncthreads();
#pragma unroll
        for (u32 q = 0; q < EXL2K_ROUTE_QUARTERS; q++) {
            u32 n = begin + q * EXL2K_ROUTE_RUN + lane * 8;
            if (o.exists && n < a.hidden) {
                f32 w[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
                if (whole) {
                    exl2k_route_unpack(w, exl2k_load_constant4(o.weights + n * 2), o.type);
                } else {
                    exl2k_route_weights(w, o, n, a.hidden);
                }
#pragma unroll
                for (u32 r = 0; r < EXL2K_ROUTE_ROWS; r++) {
                    sum[q][r] = exl2k_route_dot(sum[q][r], &y[r][n - begin], w);
                }
            }
        }
    }
#pragma unroll
    for (u32 r = 0; r < EXL2K_ROUTE_ROWS; r++) {
        f32 total = exl2k_warp_sum(sum[0][r]);
#pragma unroll
        for (u32 q = 1; q < EXL2K_ROUTE_QUARTERS; q++) {
            total += exl2k_warp_sum(sum[q][r]);
        }
        if (o.exists && lane == 0 && r < rows) {
            total += o.bias ? exl2k_load_f32(o.bias) : 0.0f;
            exl2k_store_f32(a.logits + ((u64)(first + r) * a.logits_pitch + output) * 4, total);
        }
    }
}

/* Chooses the experts of rows whose logits exl2k_route_many has computed. */
extern "C" __global__ void __launch_bounds__(EXL2K_WARP)
exl2k_route_choose(const __grid_constant__ exl2k_route_choose_args a)
{
    extern __shared__ uint4 exl2k_route_shared[];
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (blockIdx.x < exl2k_load(a.rows_at)) {
        exl2k_route_choose_row(a, (f32 *)exl2k_route_shared, blockIdx.x);
    }
}

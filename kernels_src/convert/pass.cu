/* convert/pass.cu: what a layer of the calibration pass needs besides products: norms, heads of q, k and v, attention
   over whole sequences, and KL divergences of logits. Activations are f32; q, k and v of the heads are halves.
   takes: convert_args.h.
   gives: exl2k_pass_norm, exl2k_pass_heads, exl2k_pass_attend64, _128, _256; exl2k_pass_kl. */
#include "base.cuh"
#include "convert/convert_args.h"

/* Sum over a CTA of THREADS, in a fixed order; every thread gets it. */
template <u32 THREADS, typename T> EXL2K_FN T exl2k_pass_sum(T v, T *partial)
{
    T sum = 0;
    for (u32 step = 16; step > 0; step /= 2) {
        v += __shfl_xor_sync(EXL2K_ALL, v, step);
    }
    __syncthreads(); /* nobody reads what an earlier sum has left */
    if (threadIdx.x % 32 == 0) {
        partial[threadIdx.x / 32] = v;
    }
    __syncthreads();
    for (u32 i = 0; i < THREADS / 32; i++) {
        sum += partial[i];
    }
    return sum;
}

/* ---- norms ---- */

/* One row a CTA. In place is fine: a thread reads and writes the same elements. */
extern "C" __global__ void __launch_bounds__(EXL2K_PASS_THREADS) exl2k_pass_norm(exl2k_pass_norm_args a)
{
    __shared__ f32 partial[EXL2K_PASS_THREADS / 32];
    const f32 *x = (const f32 *)a.x + (u64)blockIdx.x * a.count;
    f32 *out = (f32 *)a.out + (u64)blockIdx.x * a.count;
    const f32 *weight = (const f32 *)a.weight, *bias = (const f32 *)a.bias;
    f32 mean = 0, square = 0;
    if (a.layer_norm) {
        for (u32 i = threadIdx.x; i < a.count; i += EXL2K_PASS_THREADS) {
            mean += x[i];
        }
        mean = exl2k_pass_sum<EXL2K_PASS_THREADS>(mean, partial) / (f32)a.count;
    }
    for (u32 i = threadIdx.x; i < a.count; i += EXL2K_PASS_THREADS) {
        f32 v = x[i] - mean;
        square = fmaf(v, v, square);
    }
    square = exl2k_pass_sum<EXL2K_PASS_THREADS>(square, partial) / (f32)a.count;
    f32 factor = 1.0f / sqrtf(square + a.eps);
    for (u32 i = threadIdx.x; i < a.count; i += EXL2K_PASS_THREADS) {
        f32 y = weight ? (x[i] - mean) * factor * weight[i] + (bias ? bias[i] : 0.0f) : x[i];
        out[i] = a.add != 0.0f ? fmaf(a.add, y, out[i]) : y;
    }
}

/* ---- heads ---- */

/* The norm of one head v [dim] in shared memory, by a warp. */
EXL2K_FN void exl2k_pass_head_norm(const exl2k_pass_heads_args &a, f32 *v, u32 head)
{
    f32 mean = 0, square = 0;
    u32 lane = threadIdx.x % 32;
    __syncwarp();
    for (u32 i = lane; i < a.dim && a.layer_norm; i += 32) {
        mean += v[i];
    }
    for (u32 step = 16; step > 0; step /= 2) {
        mean += __shfl_xor_sync(EXL2K_ALL, mean, step);
    }
    mean /= (f32)a.dim;
    for (u32 i = lane; i < a.dim; i += 32) {
        square = fmaf(v[i] - mean, v[i] - mean, square);
    }
    for (u32 step = 16; step > 0; step /= 2) {
        square += __shfl_xor_sync(EXL2K_ALL, square, step);
    }
    f32 factor = 1.0f / sqrtf(square / (f32)a.dim + a.eps);
    for (u32 i = lane; i < a.dim; i += 32) {
        f32 y = (v[i] - mean) * factor * ((const f32 *)a.weight)[head * a.dim + i];
        v[i] = a.bias ? y + ((const f32 *)a.bias)[head * a.dim + i] : y;
    }
    __syncwarp();
}

/* Norm, bound, RoPE and factor of one head, by a warp. Grid: heads in groups of four, rows. */
extern "C" __global__ void __launch_bounds__(EXL2K_PASS_HEAD_THREADS) exl2k_pass_heads(exl2k_pass_heads_args a)
{
    __shared__ f32 heads[2][EXL2K_PASS_HEAD_THREADS / 32][EXL2K_PASS_DIM_MAX];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = blockIdx.y;
    u32 head = blockIdx.x * (EXL2K_PASS_HEAD_THREADS / 32) + warp, half = a.rotary / 2, position = row % a.each;
    f32 *v = heads[0][warp], *rotated = heads[1][warp], scale = a.scale;
    if (head >= a.heads) {
        return;
    }
    for (u32 i = lane; i < a.dim; i += 32) {
        v[i] = ((const f32 *)a.x)[(u64)row * a.pitch + head * a.dim + i];
    }
    if (a.weight && !a.after) {
        exl2k_pass_head_norm(a, v, head);
    }
    if (a.growth > 0.0f) {
        scale *= 1.0f + a.growth * logf(1.0f + floorf((f32)position / a.context));
    }
    __syncwarp();
    for (u32 i = lane; i < a.dim && a.clip > 0.0f; i += 32) {
        v[i] = v[i] > a.clip ? a.clip : v[i] < -a.clip ? -a.clip : v[i];
    }
    __syncwarp();
    const f32 *angles = (const f32 *)a.angles + (u64)position * a.rotary;
    for (u32 i = lane; i < half; i += 32) { /* pairs (2i, 2i + 1) move to (i, i + half), in q and in k */
        f32 x = v[a.pairs ? 2 * i : i], y = v[a.pairs ? 2 * i + 1 : i + half];
        f32 cosine = angles[i], sine = angles[i + half];
        rotated[i] = x * cosine - y * sine;
        rotated[i + half] = y * cosine + x * sine;
    }
    for (u32 i = a.rotary + lane; i < a.dim; i += 32) {
        rotated[i] = v[i];
    }
    if (a.weight && a.after) {
        exl2k_pass_head_norm(a, rotated, head);
    }
    __syncwarp();
    for (u32 i = lane; i < a.dim; i += 32) {
        ((u16 *)a.out)[((u64)row * a.heads + head) * a.dim + i] = (u16)exl2k_f32_to_f16(rotated[i] * scale);
    }
}

/* ---- attention ---- */

#define EXL2K_PASS_MASKED -3e38f /* score of a key that a row does not see: below the first largest score */

/* Copies rows [first, first + COUNT) of a head into shared memory; rows from `end` on, and dims from a.dim on, are
   zeros. from: the head in the sequence's first row; pitch: bytes from row to row. */
template <u32 DIM, u32 COUNT, u32 THREADS>
EXL2K_FN void exl2k_pass_fetch(const exl2k_pass_attend_args &a, u32 to, u64 from, u32 pitch, u32 first, u32 end)
{
    for (u32 i = threadIdx.x; i < COUNT * (DIM / 8); i += THREADS) {
        u32 row = i / (DIM / 8), piece = i % (DIM / 8), at = to + row * (DIM + 8) * 2 + piece * 16;
        if (first + row < end && piece * 8 < a.dim) {
            exl2k_copy16(at, from + (u64)(first + row) * pitch + piece * 16);
        } else {
            exl2k_shared_store4(at, make_uint4(0, 0, 0, 0));
        }
    }
}

/* Softmax of a tile's scores: `most` and `total` of the lane's rows g and g + 8 grow; outputs so far are scaled. */
template <u32 DIM, u32 KEYS>
EXL2K_FN void exl2k_pass_softmax(f32 score[KEYS / 8][4], f32 out[DIM / 8][4], f32 most[2], f32 total[2])
{
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        f32 now = most[j];
#pragma unroll
        for (u32 n = 0; n < KEYS / 8; n++) {
            now = fmaxf(now, fmaxf(score[n][2 * j], score[n][2 * j + 1]));
        }
        now = fmaxf(now, __shfl_xor_sync(EXL2K_ALL, now, 1));
        now = fmaxf(now, __shfl_xor_sync(EXL2K_ALL, now, 2));
        f32 factor = __expf(most[j] - now);
        most[j] = now;
        total[j] *= factor;
#pragma unroll
        for (u32 n = 0; n < KEYS / 8; n++) {
            score[n][2 * j] = __expf(score[n][2 * j] - now);
            score[n][2 * j + 1] = __expf(score[n][2 * j + 1] - now);
            total[j] += score[n][2 * j] + score[n][2 * j + 1];
        }
#pragma unroll
        for (u32 n = 0; n < DIM / 8; n++) {
            out[n][2 * j] *= factor;
            out[n][2 * j + 1] *= factor;
        }
    }
}

/* A CTA has QUERIES rows of one sequence and one head, 16 a warp; K and V come in tiles of KEYS rows. A row sees the
   keys up to itself, at most the last a.window. Grid: tiles of rows, heads, sequences. */
template <u32 DIM> EXL2K_FN void exl2k_pass_attend(const exl2k_pass_attend_args &a)
{
    constexpr u32 QUERIES = DIM == 256 ? 32 : 64, KEYS = DIM == 256 ? 16 : 32, THREADS = 2 * QUERIES;
    constexpr u32 PITCH = (DIM + 8) * 2; /* bytes of a row: ldmatrix then has no conflicts */
    __shared__ uint4 memory[(QUERIES + 2 * KEYS) * PITCH / 16];
    u32 queries = exl2k_shared(memory), keys = queries + QUERIES * PITCH, values = keys + KEYS * PITCH;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y, kv_head = head / a.group;
    u32 first = (gridDim.x - 1 - blockIdx.x) * QUERIES; /* the longest rows begin first */
    u32 last = exl2k_min(first + QUERIES, a.each) - 1, row = first + warp * 16 + lane / 4;
    u32 begin = first + 1 > a.window ? (first + 1 - a.window) / KEYS * KEYS : 0;
    u32 q_pitch = a.heads * a.dim * 2, kv_pitch = q_pitch / a.group;
    u64 sequence = (u64)blockIdx.z * a.each;
    u64 k = a.k + sequence * kv_pitch + kv_head * a.dim * 2, v = a.v + sequence * kv_pitch + kv_head * a.dim * 2;
    f32 out[DIM / 8][4] = {}, most[2] = { -1e30f, -1e30f }, total[2] = { 0, 0 };
    if (a.sinks) { /* one more score in the sum, of a key without a value */
        most[0] = most[1] = ((const f32 *)a.sinks)[head];
        total[0] = total[1] = lane % 4 == 0 ? 1.0f : 0.0f;
    }
    exl2k_pass_fetch<DIM, QUERIES, THREADS>(a, queries, a.q + sequence * q_pitch + head * a.dim * 2, q_pitch, first,
                                            a.each);
    for (u32 key = begin; key <= last; key += KEYS) {
        f32 score[KEYS / 8][4] = {};
        __syncthreads(); /* nobody reads the tile before any more */
        exl2k_pass_fetch<DIM, KEYS, THREADS>(a, keys, k, kv_pitch, key, last + 1);
        exl2k_pass_fetch<DIM, KEYS, THREADS>(a, values, v, kv_pitch, key, last + 1);
        exl2k_copy_commit();
        exl2k_copy_wait<0>();
        __syncthreads();
#pragma unroll
        for (u32 d = 0; d < DIM / 16; d++) {
            uint4 q = exl2k_ldmatrix4(queries + (warp * 16 + lane % 16) * PITCH + lane / 16 * 16 + d * 32);
            u32 left[4] = { q.x, q.y, q.z, q.w };
#pragma unroll
            for (u32 n = 0; n < KEYS / 16; n++) {
                uint4 tile = exl2k_ldmatrix4(keys + (n * 16 + lane % 8 + lane / 16 * 8) * PITCH + lane / 8 % 2 * 16
                                             + d * 32);
                exl2k_mma(score[2 * n], left, tile.x, tile.y);
                exl2k_mma(score[2 * n + 1], left, tile.z, tile.w);
            }
        }
#pragma unroll
        for (u32 n = 0; n < KEYS / 8; n++) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                u32 at = key + 8 * n + 2 * (lane % 4) + i % 2, behind = row + i / 2 * 8 - at; /* huge after the row */
                f32 s = a.softcap > 0.0f ? exl2k_softcap(score[n][i], a.softcap) : score[n][i];
                score[n][i] = behind < a.window && at <= row + i / 2 * 8 ? s : EXL2K_PASS_MASKED;
            }
        }
        exl2k_pass_softmax<DIM, KEYS>(score, out, most, total);
#pragma unroll
        for (u32 n = 0; n < KEYS / 16; n++) {
            u32 weights[4] = { exl2k_pack_f16(score[2 * n][0], score[2 * n][1]),
                               exl2k_pack_f16(score[2 * n][2], score[2 * n][3]),
                               exl2k_pack_f16(score[2 * n + 1][0], score[2 * n + 1][1]),
                               exl2k_pack_f16(score[2 * n + 1][2], score[2 * n + 1][3]) };
#pragma unroll
            for (u32 d = 0; d < DIM / 16; d++) {
                uint4 tile =
                    exl2k_ldmatrix4_transposed(values + (n * 16 + lane % 16) * PITCH + lane / 16 * 16 + d * 32);
                exl2k_mma(out[2 * d], weights, tile.x, tile.y);
                exl2k_mma(out[2 * d + 1], weights, tile.z, tile.w);
            }
        }
    }
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        f32 sum = total[j] + __shfl_xor_sync(EXL2K_ALL, total[j], 1);
        sum += __shfl_xor_sync(EXL2K_ALL, sum, 2);
        f32 *to = (f32 *)a.out + (sequence + row + 8 * j) * a.heads * a.dim + head * a.dim;
#pragma unroll
        for (u32 n = 0; n < DIM / 8; n++) {
            u32 column = 8 * n + 2 * (lane % 4);
            if (row + 8 * j < a.each && column < a.dim) {
                *(float2 *)(to + column) = make_float2(out[n][2 * j] / sum, out[n][2 * j + 1] / sum);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(128) exl2k_pass_attend64(exl2k_pass_attend_args a)
{
    exl2k_pass_attend<64>(a);
}

extern "C" __global__ void __launch_bounds__(128) exl2k_pass_attend128(exl2k_pass_attend_args a)
{
    exl2k_pass_attend<128>(a);
}

extern "C" __global__ void __launch_bounds__(64) exl2k_pass_attend256(exl2k_pass_attend_args a)
{
    exl2k_pass_attend<256>(a);
}

/* ---- divergences ---- */

EXL2K_FN f32 exl2k_pass_logit(const exl2k_pass_kl_args &a, u64 row, u32 i)
{
    f32 x = ((const f32 *)row)[i] * a.scale;
    return a.cap > 0.0f ? exl2k_softcap(x, a.cap) : x;
}

/* The largest logit of a row, and the log of the sum of exp(logit - largest). */
EXL2K_FN double exl2k_pass_log_sum(const exl2k_pass_kl_args &a, u64 row, double *partial)
{
    __shared__ f32 largest[EXL2K_PASS_THREADS / 32];
    f32 most = -3e38f;
    for (u32 i = threadIdx.x; i < a.vocab; i += EXL2K_PASS_THREADS) {
        most = fmaxf(most, exl2k_pass_logit(a, row, i));
    }
    for (u32 step = 16; step > 0; step /= 2) {
        most = fmaxf(most, __shfl_xor_sync(EXL2K_ALL, most, step));
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        largest[threadIdx.x / 32] = most;
    }
    __syncthreads();
    for (u32 i = 0; i < EXL2K_PASS_THREADS / 32; i++) {
        most = fmaxf(most, largest[i]);
    }
    double sum = 0;
    for (u32 i = threadIdx.x; i < a.vocab; i += EXL2K_PASS_THREADS) {
        sum += (double)__expf(exl2k_pass_logit(a, row, i) - most);
    }
    return (double)most + log(exl2k_pass_sum<EXL2K_PASS_THREADS>(sum, partial));
}

/* KL divergence of one row of logits from another: sum of p ((x - log sum e^x) - (y - log sum e^y)). */
extern "C" __global__ void __launch_bounds__(EXL2K_PASS_THREADS) exl2k_pass_kl(exl2k_pass_kl_args a)
{
    __shared__ double partial[EXL2K_PASS_THREADS / 32];
    u64 x = a.x + (u64)blockIdx.x * a.pitch * 4, y = a.y + (u64)blockIdx.x * a.pitch * 4;
    double x_sum = exl2k_pass_log_sum(a, x, partial), y_sum = exl2k_pass_log_sum(a, y, partial), kl = 0;
    for (u32 i = threadIdx.x; i < a.vocab; i += EXL2K_PASS_THREADS) {
        double one = (double)exl2k_pass_logit(a, x, i) - x_sum;
        kl += (double)__expf((f32)one) * (one - ((double)exl2k_pass_logit(a, y, i) - y_sum));
    }
    kl = exl2k_pass_sum<EXL2K_PASS_THREADS>(kl, partial);
    if (threadIdx.x == 0) {
        ((double *)a.kl)[blockIdx.x] = kl > 0 ? kl : 0;
    }
}

/* tower.cu: towers for pictures: what stands between their products: weights and patches as halves, norms and
   positions, patches that become rows.
   takes: tower_tiles.cuh, pass_args.h.
   gives: exl2k_tower_weights, exl2k_tower_patches, exl2k_tower_norm, exl2k_tower_merge,
          exl2k_tower_check, exl2k_tower_add. */
#include "base.cuh"
#include "pass_args.h"
#include "tower_tiles.cuh"

#define EXL2K_TOWER_INVERSE (1.0f / EXL2K_TOWER_SCALE)

extern "C" __global__ void __launch_bounds__(256) exl2k_tower_weights(exl2k_tower_weights_args a)
{
    u32 i = blockIdx.x * 256 + threadIdx.x, n = a.first + blockIdx.y;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (i >= a.in) {
        return;
    }
    u64 from = (u64)blockIdx.y * a.in + i;
    f32 v = a.type == EXL2K_TOWER_F32    ? exl2k_load_f32(a.from + from * 4)
            : a.type == EXL2K_TOWER_BF16 ? exl2k_bf16_to_f32(exl2k_load_u16(a.from + from * 2))
                                         : exl2k_f16_to_f32(exl2k_load_u16(a.from + from * 2));
    u32 line = a.transposed ? i : n, element = a.transposed ? n : i;
    u32 place = a.offset + line / 8 * a.step + line % 8;
    if (place < a.turned) {
        u32 of = place % a.dim, half = a.dim / 2;
        place = place - of + (of < half ? 2 * of : 2 * (of - half) + 1);
    }
    if (a.lines) {
        exl2k_store_u16(a.to + exl2k_tower_at(place, element, a.lines), exl2k_f32_to_f16(v));
    } else {
        exl2k_store_f32(a.to + ((u64)place * a.pitch + element) * 4, v);
    }
}

extern "C" __global__ void __launch_bounds__(256) exl2k_tower_patches(exl2k_tower_patches_args a)
{
    u32 row = a.row + blockIdx.x, area = a.patch * a.patch, inputs = 3 * a.frames * area;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u32 patch = row < a.before ? 0 : exl2k_load(a.order + (u64)(row - a.before) * 4);
    inputs = row < a.before ? 0 : inputs;
    const u8 *from = (const u8 *)a.pixels + (u64)(patch / a.columns) * a.patch * a.line_bytes
                     + patch % a.columns * a.patch * 3;
    for (u32 i = threadIdx.x; i < a.pitch; i += 256) {
        u32 channel = i / (a.frames * area), frame = i / area % a.frames, y = i % area / a.patch, x = i % a.patch;
        f32 v = 0.0f;
        if (i < inputs) {
            u64 at = (u64)frame * a.frame_bytes + (u64)y * a.line_bytes + x * 3 + channel;
            v = exl2k_load_f32(a.levels + (channel * 256 + from[at]) * 4);
        }
        exl2k_store_u16(a.out + exl2k_tower_at(row, i, a.rows_max), exl2k_f32_to_f16(v * EXL2K_TOWER_INVERSE));
    }
}

/* ---- norms and positions ---- */

EXL2K_FN float4 exl2k_tower_load4(u64 at)
{
    uint4 v = exl2k_load4(at);
    return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
}

/* Sum over a CTA of `threads` threads. Every thread gets it. */
EXL2K_FN f32 exl2k_tower_sum(f32 v, f32 *partial, u32 threads)
{
    f32 sum = 0.0f;
    v = exl2k_warp_sum(v);
    __syncthreads(); /* the sum before has been read */
    if (threadIdx.x % 32 == 0) {
        partial[threadIdx.x / 32] = v;
    }
    __syncthreads();
    for (u32 i = 0; i < threads / 32; i++) {
        sum += partial[i];
    }
    return sum;
}

/* Element i of the place of a patch in the table, whose corners lie on those of the picture. */
EXL2K_FN f32 exl2k_tower_stretched(const exl2k_tower_norm_args &a, u32 patch, u32 i)
{
    f32 y = a.lines > 1 ? (f32)(patch / a.columns * (a.side - 1)) / (f32)(a.lines - 1) : 0.0f;
    f32 x = a.columns > 1 ? (f32)(patch % a.columns * (a.side - 1)) / (f32)(a.columns - 1) : 0.0f;
    u32 y0 = exl2k_min((u32)y, a.side - 1), x0 = exl2k_min((u32)x, a.side - 1);
    u32 y1 = exl2k_min(y0 + 1, a.side - 1), x1 = exl2k_min(x0 + 1, a.side - 1);
    f32 fy = y - (f32)y0, fx = x - (f32)x0;
    u64 upper = a.table + ((u64)(y0 * a.side) * a.width + i) * 4;
    u64 lower = a.table + ((u64)(y1 * a.side) * a.width + i) * 4;
    f32 up = exl2k_load_f32(upper + (u64)x0 * a.width * 4) * (1.0f - fx)
             + exl2k_load_f32(upper + (u64)x1 * a.width * 4) * fx;
    f32 low = exl2k_load_f32(lower + (u64)x0 * a.width * 4) * (1.0f - fx)
              + exl2k_load_f32(lower + (u64)x1 * a.width * 4) * fx;
    return up * (1.0f - fy) + low * fy;
}

/* Elements at .. at + 3 of a norm's weight or bias, if there is one; those after the last are not loaded. */
EXL2K_FN void exl2k_tower_four(u64 vector, u32 at, u32 count, bool fours, f32 four[4])
{
    if (vector && fours) {
        uint4 v = exl2k_load_constant4(vector + at * 4);
        four[0] = __uint_as_float(v.x);
        four[1] = __uint_as_float(v.y);
        four[2] = __uint_as_float(v.z);
        four[3] = __uint_as_float(v.w);
    }
    for (u32 k = 0; vector && !fours && k < 4 && at + k < count; k++) {
        four[k] = __uint_as_float(exl2k_load_constant(vector + (at + k) * 4));
    }
}

/* A thread has four neighbouring elements of every 512, of which a row has PARTS at most. */
template <u32 PARTS> EXL2K_FN void exl2k_tower_norm_row(const exl2k_tower_norm_args &a)
{
    __shared__ f32 partial[EXL2K_TOWER_NORM_THREADS / 32];
    u32 row = a.row + blockIdx.x, first = threadIdx.x * 4;
    bool classed = row < a.before;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u32 patch = a.kind && !classed ? exl2k_load(a.order + (u64)(row - a.before) * 4) : 0;
    u32 place = classed ? 0 : patch + a.before;
    bool fours = a.width % 4 == 0; /* four neighbours of every vector lie in one piece of 16 bytes */
    f32 v[PARTS][4], sum = 0.0f;
#pragma unroll
    for (u32 n = 0; n < PARTS; n++) {
        u32 at = first + n * 4 * EXL2K_TOWER_NORM_THREADS;
        if (at < a.width) {
            float4 x = exl2k_tower_load4(a.x + ((u64)row * a.pitch + at) * 4);
            v[n][0] = x.x;
            v[n][1] = x.y;
            v[n][2] = x.z;
            v[n][3] = x.w;
        }
    }
    if (a.kind || classed) { /* once in a tower, so element by element */
#pragma unroll
        for (u32 n = 0; n < PARTS; n++) {
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                u32 i = first + n * 4 * EXL2K_TOWER_NORM_THREADS + k;
                if (i < a.width) {
                    v[n][k] = classed ? exl2k_load_f32(a.class_row + i * 4) : v[n][k];
                    v[n][k] += a.kind == EXL2K_TOWER_TABLE_PLACES
                                   ? exl2k_load_f32(a.table + ((u64)place * a.width + i) * 4)
                               : a.kind == EXL2K_TOWER_TABLE_BILINEAR ? exl2k_tower_stretched(a, patch, i)
                                                                      : 0.0f;
                }
            }
        }
    }
    f32 mean = 0.0f, factor = 1.0f;
    if (a.weight) { /* the same for the whole CTA */
        f32 square = 0.0f;
#pragma unroll
        for (u32 n = 0; n < PARTS; n++) {
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                u32 i = first + n * 4 * EXL2K_TOWER_NORM_THREADS + k;
                sum += i < a.width ? v[n][k] : 0.0f;
            }
        }
        mean = a.rms ? 0.0f : exl2k_tower_sum(sum, partial, EXL2K_TOWER_NORM_THREADS) / (f32)a.width;
#pragma unroll
        for (u32 n = 0; n < PARTS; n++) {
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                u32 i = first + n * 4 * EXL2K_TOWER_NORM_THREADS + k;
                f32 apart = i < a.width ? v[n][k] - mean : 0.0f;
                square = fmaf(apart, apart, square);
            }
        }
        square = exl2k_tower_sum(square, partial, EXL2K_TOWER_NORM_THREADS);
        factor = rsqrtf(square / (f32)a.width + a.eps);
    }
#pragma unroll
    for (u32 n = 0; n < PARTS; n++) {
        u32 at = first + n * 4 * EXL2K_TOWER_NORM_THREADS;
        if (at >= a.out_pitch) {
            break;
        }
        f32 y[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
        if (at < a.width) {
            f32 weight[4] = { 1.0f, 1.0f, 1.0f, 1.0f }, bias[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
            exl2k_tower_four(a.weight, at, a.width, fours, weight);
            exl2k_tower_four(a.bias, at, a.width, fours, bias);
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                y[k] = at + k < a.width ? fmaf((v[n][k] - mean) * factor, weight[k], bias[k]) : 0.0f;
            }
        }
        if (a.rows_max) {
            const f32 inverse = EXL2K_TOWER_INVERSE;
            exl2k_store2(a.out + exl2k_tower_at(row, at, a.rows_max), exl2k_pack_f16(y[0] * inverse, y[1] * inverse),
                         exl2k_pack_f16(y[2] * inverse, y[3] * inverse));
        } else {
            exl2k_store4(a.out + ((u64)row * a.out_pitch + at) * 4,
                         make_uint4(__float_as_uint(y[0]), __float_as_uint(y[1]), __float_as_uint(y[2]),
                                    __float_as_uint(y[3])));
        }
    }
}

extern "C" __global__ void __launch_bounds__(EXL2K_TOWER_NORM_THREADS) exl2k_tower_norm(exl2k_tower_norm_args a)
{
    if (a.width <= 3 * 4 * EXL2K_TOWER_NORM_THREADS) {
        exl2k_tower_norm_row<3>(a);
    } else {
        exl2k_tower_norm_row<EXL2K_TOWER_WIDTH_MAX / 4 / EXL2K_TOWER_NORM_THREADS>(a);
    }
}

/* ---- patches become rows ---- */

/* Element j of the inputs of a row of the result. */
EXL2K_FN f32 exl2k_tower_merged(const exl2k_tower_merge_args &a, u32 row, u32 j)
{
    u32 many = a.side * a.side;
    if (a.direct) {
        return exl2k_load_f32(a.x + ((u64)row * a.pitch + j) * 4);
    }
    u32 line = row / a.cells * a.side, column = row % a.cells * a.side;
    u32 first = a.kind == EXL2K_TOWER_MEAN ? 0 : a.kind == EXL2K_TOWER_DYX ? j / a.width : j % many;
    u32 end = a.kind == EXL2K_TOWER_MEAN ? many : first + 1;
    u32 i = a.kind == EXL2K_TOWER_MEAN ? j : a.kind == EXL2K_TOWER_DYX ? j % a.width : j / many;
    f32 v = 0.0f;
    for (u32 k = first; k < end; k++) {
        u32 patch = (line + k / a.side) * a.columns + column + k % a.side;
        u32 from = a.before + exl2k_load(a.at + (u64)patch * 4);
        v += exl2k_load_f32(a.x + ((u64)from * a.pitch + i) * 4);
    }
    return a.kind == EXL2K_TOWER_MEAN ? v / (f32)many : v;
}

extern "C" __global__ void __launch_bounds__(256) exl2k_tower_merge(exl2k_tower_merge_args a)
{
    __shared__ f32 partial[8];
    u32 row = a.row + blockIdx.x;
    u32 count = a.direct || a.kind == EXL2K_TOWER_MEAN ? a.width : a.width * a.side * a.side;
    f32 mean = 0.0f, factor = 1.0f;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (a.weight) { /* the same for the whole CTA */
        f32 sum = 0.0f, square = 0.0f;
        for (u32 j = threadIdx.x; j < count && !a.rms; j += 256) {
            sum += exl2k_tower_merged(a, row, j);
        }
        mean = a.rms ? 0.0f : exl2k_tower_sum(sum, partial, 256) / (f32)count;
        for (u32 j = threadIdx.x; j < count; j += 256) {
            f32 apart = exl2k_tower_merged(a, row, j) - mean;
            square = fmaf(apart, apart, square);
        }
        factor = rsqrtf(exl2k_tower_sum(square, partial, 256) / (f32)count + a.eps);
    }
    for (u32 j = blockIdx.y * 256 + threadIdx.x; j < a.out_pitch; j += gridDim.y * 256) {
        f32 y = j < count ? exl2k_tower_merged(a, row, j) : 0.0f;
        if (a.weight && j < count) {
            y = (y - mean) * factor * exl2k_load_f32(a.weight + j * 4);
            y += a.bias ? exl2k_load_f32(a.bias + j * 4) : 0.0f;
        }
        exl2k_store_u16(a.out + exl2k_tower_at(row, j, a.rows_max), exl2k_f32_to_f16(y * EXL2K_TOWER_INVERSE));
    }
}

/* ---- rows of a picture in the text model ---- */

extern "C" __global__ void __launch_bounds__(256) exl2k_tower_check(exl2k_tower_check_args a)
{
    bool bad = false;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < a.count; i += (u64)gridDim.x * 256) {
        bad = bad || (exl2k_load(a.x + i * 4) & 0x7F800000u) == 0x7F800000u;
    }
    if (bad) {
        exl2k_store(a.bad, 1);
    }
}

extern "C" __global__ void __launch_bounds__(256) exl2k_tower_add(exl2k_tower_add_args a)
{
    u32 row = blockIdx.x;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    uint4 own = exl2k_load4(a.rows + row * sizeof(exl2k_row)); /* token, position, sequence, flags */
    if (row >= exl2k_load(a.pass) || !(own.w & EXL2K_ROW_VECTOR)) {
        return;
    }
    for (u32 i = threadIdx.x; i < a.hidden; i += 256) {
        u64 at = ((u64)row * a.hidden + i) * 4;
        exl2k_store_f32(a.residual + at, exl2k_load_f32(a.residual + at) + exl2k_load_f32(a.added + at));
    }
}

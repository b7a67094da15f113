/* convert/half.cu: products on tensor cores, of halves into floats: the moments of inputs (a matrix with itself), and
   rows of activations with weights; and what makes halves of floats.
   takes: half.cuh.
   gives: exl2k_half_rows, exl2k_half_act, exl2k_half_columns, exl2k_half_weights, exl2k_half_product,
          exl2k_gram_finish. */
#include "convert/half.cuh"

/* ---- floats to halves ---- */

/* The power of two that makes a largest size of 2^13 to 2^14, and its inverse. An infinity stays one. */
EXL2K_FN f32 exl2k_half_scale(u32 most, f32 *inverse)
{
    u32 exponent = exl2k_min(exl2k_max(most >> 23, 14), 254);
    *inverse = __uint_as_float((267 - exponent) << 23);
    return __uint_as_float((exponent - 13) << 23);
}

/* One row a CTA. */
extern "C" __global__ void __launch_bounds__(128) exl2k_half_rows(exl2k_half_rows_args a)
{
    __shared__ u32 most[4];
    u32 from = a.list ? ((const u32 *)a.list)[blockIdx.x] / a.each : blockIdx.x;
    const u32 *x = (const u32 *)a.x + (u64)from * a.in;
    u16 *out = (u16 *)a.out + (u64)blockIdx.x * a.in;
    u32 size = 0;
    for (u32 i = threadIdx.x; i < a.in; i += 128) {
        size = exl2k_max(size, x[i] & 0x7FFFFFFF);
    }
    size = exl2k_warp_most(size);
    if (threadIdx.x % 32 == 0) {
        most[threadIdx.x / 32] = size;
    }
    __syncthreads();
    f32 inverse;
    f32 scale = exl2k_half_scale(exl2k_max(exl2k_max(most[0], most[1]), exl2k_max(most[2], most[3])), &inverse);
    for (u32 i = threadIdx.x; i < a.in; i += 128) {
        out[i] = (u16)exl2k_f32_to_f16(__uint_as_float(x[i]) * inverse);
    }
    if (threadIdx.x == 0) {
        ((f32 *)a.scale)[blockIdx.x] = scale;
    }
}

/* The activation between the products of an MLP. */
extern "C" __global__ void __launch_bounds__(256) exl2k_half_act(exl2k_half_act_args a)
{
    const f32 *gate = (const f32 *)a.gate, *up = (const f32 *)a.up;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < a.count; i += (u64)gridDim.x * 256) {
        ((f32 *)a.x)[i] = up ? exl2k_gated(a.act, a.limit, gate[i], up[i]) : exl2k_act(a.act, gate[i]);
    }
}

EXL2K_FN f32 exl2k_half_value(const exl2k_half_columns_args &a, u64 at)
{
    f32 x = ((const f32 *)a.x)[at];
    return a.minus ? x - ((const f32 *)a.minus)[at] : x;
}

/* 32 columns a CTA of 256 threads: first their largest values, then 32 rows at a time through shared memory. */
extern "C" __global__ void __launch_bounds__(256) exl2k_half_columns(exl2k_half_columns_args a)
{
    __shared__ u32 most[8][32];
    __shared__ f32 tile[32][33];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.x * 32 + lane, size = 0;
    for (u32 row = warp; row < a.rows; row += 8) {
        size = exl2k_max(size, __float_as_uint(exl2k_half_value(a, (u64)row * a.in + column)) & 0x7FFFFFFF);
    }
    most[warp][lane] = size;
    __syncthreads();
    for (u32 i = 0; i < 8; i++) {
        size = exl2k_max(size, most[i][lane]);
    }
    f32 inverse;
    f32 scale = exl2k_half_scale(size, &inverse);
    if (warp == 0) {
        ((f32 *)a.scale)[column] = scale;
    }
    for (u32 first = 0; first < a.pitch; first += 32) {
        for (u32 i = warp; i < 32; i += 8) {
            u32 row = first + i;
            tile[i][lane] = row < a.rows ? exl2k_half_value(a, (u64)row * a.in + column) * inverse : 0.0f;
        }
        __syncthreads();
        for (u32 i = warp; i < 32; i += 8) {
            ((u16 *)a.out)[(u64)(blockIdx.x * 32 + i) * a.pitch + first + lane] = (u16)exl2k_f32_to_f16(tile[lane][i]);
        }
        __syncthreads();
    }
}

/* 32 inputs of a strip a CTA of 256 threads. */
extern "C" __global__ void __launch_bounds__(256) exl2k_half_weights(exl2k_half_weights_args a)
{
    __shared__ u16 tile[32][34];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * 32;
    u64 strip = (u64)blockIdx.y * a.in * 32;
    for (u32 i = warp; i < 32 && first + i < a.in; i += 8) {
        u64 at = strip + (u64)(first + i) * 32 + lane;
        tile[i][lane] = a.source == EXL2K_HALF_F16 ? ((const u16 *)a.strips)[at]
                      : (u16)exl2k_f32_to_f16(a.source == EXL2K_HALF_F32 ? ((const f32 *)a.strips)[at]
                                                        : exl2k_bf16_to_f32(((const u16 *)a.strips)[at]));
    }
    __syncthreads();
    for (u32 i = warp; i < 32 && first + lane < a.in; i += 8) {
        ((u16 *)a.out)[(u64)(blockIdx.y * 32 + i) * a.in + first + lane] = tile[lane][i];
    }
}

/* ---- the product ---- */

/* Starts the copies of one stage: DEPTH of k of both tiles, in pieces of 16 bytes. */
EXL2K_FN void exl2k_half_fetch(const exl2k_half_product_args &a, u32 to, u64 from_a, u64 from_b, u32 k)
{
    for (u32 i = threadIdx.x; i < 2 * EXL2K_HALF_TILE * 4; i += EXL2K_HALF_THREADS) {
        u32 row = i / 4 % EXL2K_HALF_TILE, piece = i % 4;
        u64 from = (i < EXL2K_HALF_TILE * 4 ? from_a : from_b) + ((u64)row * a.k + k) * 2 + piece * 16;
        exl2k_copy16(to + i / 4 * EXL2K_HALF_PITCH + piece * 16, from);
    }
}

/* A warp computes 64 rows x 32 columns of the tile: 4 x 4 products of 16 x 8. */
EXL2K_FN void exl2k_half_multiply(f32 sums[4][4][4], u32 stage, u32 warp, u32 lane)
{
    u32 rows = stage + (warp / 4 * 64 + lane % 16) * EXL2K_HALF_PITCH + lane / 16 * 16;
    u32 columns = stage + (EXL2K_HALF_TILE + warp % 4 * 32 + lane % 8 + lane / 16 * 8) * EXL2K_HALF_PITCH
                + lane / 8 % 2 * 16;
#pragma unroll
    for (u32 k = 0; k < 2; k++) {
        u32 left[4][4];
        uint4 right[2];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            uint4 v = exl2k_ldmatrix4(rows + i * 16 * EXL2K_HALF_PITCH + k * 32);
            left[i][0] = v.x;
            left[i][1] = v.y;
            left[i][2] = v.z;
            left[i][3] = v.w;
        }
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            right[i] = exl2k_ldmatrix4(columns + i * 16 * EXL2K_HALF_PITCH + k * 32);
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
#pragma unroll
            for (u32 j = 0; j < 2; j++) {
                exl2k_mma(sums[i][2 * j], left[i], right[j].x, right[j].y);
                exl2k_mma(sums[i][2 * j + 1], left[i], right[j].z, right[j].w);
            }
        }
    }
}

/* Grid: tiles of rows, tiles of columns. */
extern "C" __global__ void __launch_bounds__(EXL2K_HALF_THREADS, 2) exl2k_half_product(exl2k_half_product_args a)
{
    extern __shared__ uint4 exl2k_half_stages[];
    u32 shared = exl2k_shared(exl2k_half_stages), bytes = 2 * EXL2K_HALF_TILE * EXL2K_HALF_PITCH;
    u32 row0 = blockIdx.x * EXL2K_HALF_TILE, column0 = blockIdx.y * EXL2K_HALF_TILE;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, steps = a.k / EXL2K_HALF_DEPTH;
    u64 from_a = a.a + (u64)row0 * a.k * 2, from_b = a.b + (u64)column0 * a.k * 2;
    f32 sums[4][4][4] = {};
    if (a.lower && column0 > row0) {
        return;
    }
    for (u32 i = 0; i < EXL2K_HALF_STAGES - 1; i++) {
        if (i < steps) {
            exl2k_half_fetch(a, shared + i * bytes, from_a, from_b, i * EXL2K_HALF_DEPTH);
        }
        exl2k_copy_commit();
    }
    for (u32 i = 0; i < steps; i++) {
        exl2k_copy_wait<EXL2K_HALF_STAGES - 2>();
        __syncthreads(); /* stage i has arrived, and nobody reads the one before it any more */
        u32 next = i + EXL2K_HALF_STAGES - 1;
        if (next < steps) {
            exl2k_half_fetch(a, shared + next % EXL2K_HALF_STAGES * bytes, from_a, from_b, next * EXL2K_HALF_DEPTH);
        }
        exl2k_copy_commit();
        exl2k_half_multiply(sums, shared + i % EXL2K_HALF_STAGES * bytes, warp, lane);
    }
    u32 row = row0 + warp / 4 * 64 + lane / 4, column = column0 + warp % 4 * 32 + lane % 4 * 2;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                exl2k_half_store(a, row + i * 16 + k / 2 * 8, column + j * 8 + k % 2, sums[i][j][k]);
            }
        }
    }
}

/* ---- moments ---- */

/* A tile of 32 x 32 below the diagonal a CTA of 256 threads, and its mirror image. */
extern "C" __global__ void __launch_bounds__(256) exl2k_gram_finish(exl2k_gram_args a)
{
    __shared__ f32 tile[32][33];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, rows = blockIdx.y * 32, columns = blockIdx.x * 32;
    if (columns > rows) {
        return;
    }
    for (u32 i = warp; i < 32; i += 8) {
        tile[i][lane] = ((const f32 *)a.sum)[(u64)(rows + i) * a.in + columns + lane] * a.factor;
    }
    __syncthreads();
    for (u32 i = warp; i < 32; i += 8) {
        bool below = rows > columns || i >= lane;
        f32 *strips = (f32 *)a.strips;
        strips[((u64)blockIdx.x * a.in + rows + i) * 32 + lane] = below ? tile[i][lane] : tile[lane][i];
        if (rows > columns) {
            strips[((u64)blockIdx.y * a.in + columns + i) * 32 + lane] = tile[lane][i];
        }
    }
}

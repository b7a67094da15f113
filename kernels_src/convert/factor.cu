/* convert/factor.cu: products of matrices of floats, and the factorization of the moments of an input (8_convert's
   factor.h has the formulas): blocks of 32 rows from the last to the first; each one is factored, then its columns to
   the left are solved, then what it accounts for is subtracted from the rows above it.
   takes: convert_args.h.
   gives: exl2k_float_product; exl2k_factor_read, exl2k_factor_diagonal, exl2k_factor_solve, exl2k_factor_feedback. */
#include "base.cuh"
#include "convert/convert_args.h"

/* ---- the product ---- */

/* Address of four floats of a row. */
EXL2K_FN u64 exl2k_float_at(u64 base, u64 strip, u32 width, u32 row, u32 column)
{
    return base + (column / width * strip + (u64)row * width + column % width) * 4;
}

/* Starts the copies of DEPTH rows of both tiles. What lies beyond the matrix is some other number, whose products
   nobody stores. */
EXL2K_FN void exl2k_float_fetch(const exl2k_float_product_args &a, u32 to, u32 row0, u32 column0, u32 k)
{
    for (u32 i = threadIdx.x; i < EXL2K_FLOAT_DEPTH * (EXL2K_FLOAT_ROWS / 4); i += EXL2K_FLOAT_THREADS) {
        u32 row = i / (EXL2K_FLOAT_ROWS / 4), at = exl2k_min(row0 + i % (EXL2K_FLOAT_ROWS / 4) * 4, a.m - 4);
        exl2k_copy16(to + i * 16, a.a + ((u64)(k + row) * a.a_pitch + at) * 4);
    }
    to += EXL2K_FLOAT_DEPTH * EXL2K_FLOAT_ROWS * 4;
    for (u32 i = threadIdx.x; i < EXL2K_FLOAT_DEPTH * (EXL2K_FLOAT_COLUMNS / 4); i += EXL2K_FLOAT_THREADS) {
        u32 row = i / (EXL2K_FLOAT_COLUMNS / 4), at = exl2k_min(column0 + i % (EXL2K_FLOAT_COLUMNS / 4) * 4, a.n - 4);
        exl2k_copy16(to + i * 16, exl2k_float_at(a.b, a.b_strip, a.b_width, k + row, at));
    }
}

/* A thread computes 8 x 8: four rows or columns, and the four that are half a tile further. */
EXL2K_FN void exl2k_float_multiply(f32 sums[8][8], const f32 *left, const f32 *right)
{
    u32 row = threadIdx.x / 8 * 4, column = threadIdx.x % 8 * 4;
#pragma unroll
    for (u32 k = 0; k < EXL2K_FLOAT_DEPTH; k++) {
        const float4 *l = (const float4 *)(left + k * EXL2K_FLOAT_ROWS + row);
        const float4 *r = (const float4 *)(right + k * EXL2K_FLOAT_COLUMNS + column);
        float4 l0 = l[0], l1 = l[EXL2K_FLOAT_ROWS / 8], r0 = r[0], r1 = r[EXL2K_FLOAT_COLUMNS / 8];
        f32 x[8] = { l0.x, l0.y, l0.z, l0.w, l1.x, l1.y, l1.z, l1.w };
        f32 y[8] = { r0.x, r0.y, r0.z, r0.w, r1.x, r1.y, r1.z, r1.w };
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
#pragma unroll
            for (u32 j = 0; j < 8; j++) {
                sums[i][j] = fmaf(x[i], y[j], sums[i][j]);
            }
        }
    }
}

/* Grid: tiles of columns, tiles of rows, slices of k. */
extern "C" __global__ void __launch_bounds__(EXL2K_FLOAT_THREADS) exl2k_float_product(exl2k_float_product_args a)
{
    __shared__ uint4 stages[2][EXL2K_FLOAT_DEPTH * (EXL2K_FLOAT_ROWS + EXL2K_FLOAT_COLUMNS) / 4];
    u32 row0 = blockIdx.y * EXL2K_FLOAT_ROWS, column0 = blockIdx.x * EXL2K_FLOAT_COLUMNS;
    u32 begin = blockIdx.z * a.k_slice, end = exl2k_min(begin + a.k_slice, a.k);
    f32 sums[8][8] = {};
    if (a.lower && column0 >= row0 + EXL2K_FLOAT_ROWS) {
        return;
    }
    if (begin < end) {
        exl2k_float_fetch(a, exl2k_shared(stages[0]), row0, column0, begin);
    }
    exl2k_copy_commit();
    for (u32 k = begin, stage = 0; k < end; k += EXL2K_FLOAT_DEPTH, stage ^= 1) {
        exl2k_copy_wait<0>();
        __syncthreads(); /* this stage has arrived, and nobody reads the other one any more */
        if (k + EXL2K_FLOAT_DEPTH < end) {
            exl2k_float_fetch(a, exl2k_shared(stages[stage ^ 1]), row0, column0, k + EXL2K_FLOAT_DEPTH);
        }
        exl2k_copy_commit();
        const f32 *left = (const f32 *)stages[stage];
        exl2k_float_multiply(sums, left, left + EXL2K_FLOAT_DEPTH * EXL2K_FLOAT_ROWS);
    }
    u32 row = row0 + threadIdx.x / 8 * 4, column = column0 + threadIdx.x % 8 * 4;
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        u32 r = row + i % 4 + i / 4 * (EXL2K_FLOAT_ROWS / 2);
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
            u32 c = column + j * (EXL2K_FLOAT_COLUMNS / 2);
            if (r < a.m && c < a.n) {
                float4 *to = (float4 *)exl2k_float_at(a.c + blockIdx.z * a.c_slice * 4, a.c_strip, a.c_width, r, c);
                float4 v = a.add != 0.0f ? *to : make_float4(0, 0, 0, 0);
                v.x = a.add * v.x + a.factor * sums[i][4 * j];
                v.y = a.add * v.y + a.factor * sums[i][4 * j + 1];
                v.z = a.add * v.z + a.factor * sums[i][4 * j + 2];
                v.w = a.add * v.w + a.factor * sums[i][4 * j + 3];
                *to = v;
            }
        }
    }
}

/* ---- the factorization ---- */

/* Hd / mean in packed order, from the lower half of H. Grid: columns in blocks of 256, rows. */
extern "C" __global__ void __launch_bounds__(256) exl2k_factor_read(exl2k_factor_args a)
{
    u32 column = blockIdx.x * 256 + threadIdx.x, row = blockIdx.y;
    if (column < a.in) {
        u32 from = ((const u32 *)a.order)[column], at = ((const u32 *)a.order)[row];
        u64 right = exl2k_min(from, at), down = exl2k_max(from, at);
        f32 h = ((const f32 *)a.gram)[a.strips ? (right / 32 * a.in + down) * 32 + right % 32 : down * a.in + right];
        h *= a.factor;
        ((f32 *)a.hessian)[(u64)row * a.in + column] = row == column ? h + a.damp : h;
    }
}

/* Factors the block on the diagonal, M = L'L, from the last row up: one warp, a column a lane. */
extern "C" __global__ void __launch_bounds__(32) exl2k_factor_diagonal(exl2k_factor_args a)
{
    __shared__ double block[EXL2K_FACTOR_BLOCK][EXL2K_FACTOR_BLOCK];
    u32 lane = threadIdx.x;
    f32 *at = (f32 *)a.lower + (u64)a.first * a.in + a.first;
    for (u32 i = 0; i < EXL2K_FACTOR_BLOCK; i++) {
        block[i][lane] = (double)at[(u64)i * a.in + lane];
    }
    __syncwarp();
    for (u32 i = EXL2K_FACTOR_BLOCK; i-- > 0;) {
        double left = block[i][lane];
        for (u32 j = i + 1; j < EXL2K_FACTOR_BLOCK; j++) {
            left -= block[j][i] * block[j][lane];
        }
        double pivot = __shfl_sync(EXL2K_ALL, left, i);
        if (!(pivot > (double)a.damp * 1e-3)) { /* less than what damping alone leaves is lost in rounding */
            *(u32 *)a.failed = 1;
            pivot = 1;
        }
        block[i][lane] = lane <= i ? left / sqrt(pivot) : 0.0;
        at[(u64)i * a.in + lane] = (f32)block[i][lane];
        block[i][lane] = (double)(f32)block[i][lane];
        __syncwarp();
    }
}

/* Solves L' X = M for the block's columns to the left of the diagonal, from the last row up; a column a thread. */
extern "C" __global__ void __launch_bounds__(EXL2K_FACTOR_THREADS) exl2k_factor_solve(exl2k_factor_args a)
{
    __shared__ f32 lower[EXL2K_FACTOR_BLOCK][EXL2K_FACTOR_BLOCK], inverse[EXL2K_FACTOR_BLOCK];
    u32 column = blockIdx.x * EXL2K_FACTOR_THREADS + threadIdx.x;
    const f32 *from = (const f32 *)a.lower + (u64)a.first * a.in + a.first;
    for (u32 i = threadIdx.x; i < EXL2K_FACTOR_BLOCK * EXL2K_FACTOR_BLOCK; i += EXL2K_FACTOR_THREADS) {
        lower[i / EXL2K_FACTOR_BLOCK][i % EXL2K_FACTOR_BLOCK] = from[(u64)(i / EXL2K_FACTOR_BLOCK) * a.in
                                                                     + i % EXL2K_FACTOR_BLOCK];
    }
    if (threadIdx.x < EXL2K_FACTOR_BLOCK) {
        inverse[threadIdx.x] = 1.0f / from[(u64)threadIdx.x * a.in + threadIdx.x];
    }
    __syncthreads();
    if (column >= a.first) {
        return;
    }
    f32 *at = (f32 *)a.lower + (u64)a.first * a.in + column, x[EXL2K_FACTOR_BLOCK];
#pragma unroll
    for (u32 n = 0; n < EXL2K_FACTOR_BLOCK; n++) {
        const u32 i = EXL2K_FACTOR_BLOCK - 1 - n;
        f32 left = at[(u64)i * a.in];
#pragma unroll
        for (u32 j = i + 1; j < EXL2K_FACTOR_BLOCK; j++) {
            left = fmaf(-lower[j][i], x[j], left);
        }
        x[i] = left * inverse[i];
        at[(u64)i * a.in] = x[i];
    }
}

/* F and D from A': a tile of 32 x 32 a CTA of 256 threads. */
extern "C" __global__ void __launch_bounds__(256) exl2k_factor_feedback(exl2k_factor_args a)
{
    __shared__ f32 tile[32][33], root[32];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, rows = blockIdx.y * 32, columns = blockIdx.x * 32;
    const f32 *lower = (const f32 *)a.lower;
    for (u32 i = warp; i < 32; i += 8) { /* A'[column of F][row of F] */
        tile[i][lane] = lower[(u64)(columns + i) * a.in + rows + lane];
    }
    if (warp == 0) {
        root[lane] = lower[(u64)(columns + lane) * a.in + columns + lane];
    }
    __syncthreads();
    for (u32 i = warp; i < 32; i += 8) {
        f32 v = rows + i < columns + lane ? tile[lane][i] / root[lane] : 0.0f;
        ((f32 *)a.feedback)[(u64)(rows + i) * a.in + columns + lane] = v;
    }
    if (rows == columns && warp == 0) {
        ((f32 *)a.diagonal)[columns + lane] = root[lane] * root[lane];
    }
}

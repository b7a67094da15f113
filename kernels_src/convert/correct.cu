/* convert/correct.cu: corrected targets (8_convert's correct.h has the formulas): what is needed besides products.
   takes: convert_args.h.
   gives: exl2k_correct_read, exl2k_correct_turn, exl2k_correct_solve, exl2k_correct_add. */
#include "base.cuh"
#include "convert/convert_args.h"

/* out = factor * cross, both [in, in], in packed order. Grid: columns in blocks of 256, rows. */
extern "C" __global__ void __launch_bounds__(256) exl2k_correct_read(exl2k_correct_args a)
{
    u32 column = blockIdx.x * 256 + threadIdx.x, row = blockIdx.y;
    if (column < a.in) {
        u32 x = ((const u32 *)a.order)[row], y = ((const u32 *)a.order)[column];
        ((f32 *)a.turned)[(u64)row * a.in + column] = ((const f32 *)a.cross)[(u64)x * a.in + y] * a.factor;
    }
}

/* lower = F transposed: a tile of 32 x 32 a CTA of 256 threads. */
extern "C" __global__ void __launch_bounds__(256) exl2k_correct_turn(exl2k_correct_args a)
{
    __shared__ f32 tile[32][33];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, rows = blockIdx.y * 32, columns = blockIdx.x * 32;
    for (u32 i = warp; i < 32; i += 8) {
        tile[i][lane] = ((const f32 *)a.feedback)[(u64)(rows + i) * a.in + columns + lane];
    }
    __syncthreads();
    for (u32 i = warp; i < 32; i += 8) {
        ((f32 *)a.lower)[(u64)(columns + i) * a.in + rows + lane] = tile[lane][i];
    }
}

/* One block of rows of g = inverse(1 + F) g, from the last row up, or with `down` of g = inverse(1 + F') (g / D). What
   the blocks before account for comes as slices of a product. A CTA of 128 threads is a strip; its warps share the
   rows. Shared memory: [rows, 32] f32. */
extern "C" __global__ void __launch_bounds__(EXL2K_SOLVE_THREADS) exl2k_correct_solve(exl2k_correct_args a)
{
    extern __shared__ f32 exl2k_correct_shared[];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    f32 *x = exl2k_correct_shared + lane, *g = (f32 *)a.g + ((u64)blockIdx.x * a.in + a.row) * 32 + lane;
    const f32 *feedback = (const f32 *)a.feedback + (u64)a.row * a.in + a.row;
    for (u32 row = warp; row < a.rows; row += 4) {
        f32 done = 0;
        for (u32 i = 0; i < a.slices; i++) {
            done += ((const f32 *)a.partial)[((u64)(i * gridDim.x + blockIdx.x) * EXL2K_SOLVE_ROWS + row) * 32 + lane];
        }
        x[row * 32] = (a.down ? g[row * 32] / ((const f32 *)a.diagonal)[a.row + row] : g[row * 32]) - done;
    }
    for (u32 n = 0; n < a.rows; n++) {
        u32 i = a.down ? n : a.rows - 1 - n;
        __syncthreads();
        f32 known = x[i * 32];
        for (u32 row = warp; row < a.rows; row += 4) {
            if (a.down ? row > i : row < i) {
                f32 f = a.down ? feedback[(u64)i * a.in + row] : feedback[(u64)row * a.in + i];
                x[row * 32] = fmaf(-f, known, x[row * 32]);
            }
        }
    }
    __syncthreads();
    for (u32 row = warp; row < a.rows; row += 4) {
        g[row * 32] = x[row * 32];
    }
}

/* weights += factor * g in one strip, unless a sum is larger than `most`, or no number. */
extern "C" __global__ void __launch_bounds__(EXL2K_SOLVE_THREADS) exl2k_correct_add(exl2k_correct_args a)
{
    const f32 *g = (const f32 *)a.g + (u64)blockIdx.x * a.in * 32;
    f32 *w = (f32 *)a.weights + (u64)blockIdx.x * a.in * 32;
    bool fits = true;
    for (u32 i = threadIdx.x; i < a.in * 32; i += EXL2K_SOLVE_THREADS) {
        fits = fits && fabsf(w[i] + a.factor * g[i]) <= a.most; /* a NaN does not */
    }
    if (!__syncthreads_and(fits)) {
        return;
    }
    for (u32 i = threadIdx.x; i < a.in * 32; i += EXL2K_SOLVE_THREADS) {
        w[i] += a.factor * g[i];
    }
}

/* convert/losses.cu: what each block of 32 rows of a matrix would lose at each width (8_convert's losses.h).
   takes: convert_args.h.
   gives: exl2k_losses_peaks, exl2k_losses_tries, exl2k_losses_errors, exl2k_losses_totals. */
#include "convert/levels.cuh"

/* The largest size in a block of one strip: a warp each. Grid: strips, blocks / 4. */
extern "C" __global__ void __launch_bounds__(EXL2K_LOSSES_THREADS) exl2k_losses_peaks(exl2k_losses_args a)
{
    u32 lane = threadIdx.x % 32, block = blockIdx.y * 4 + threadIdx.x / 32;
    if (block >= a.in / EXL2K_LOSSES_BLOCK) {
        return;
    }
    const f32 *x = (const f32 *)a.weights + ((u64)blockIdx.x * a.in + block * EXL2K_LOSSES_BLOCK) * 32 + lane;
    f32 most = 0;
    for (u32 i = 0; i < EXL2K_LOSSES_BLOCK; i++) {
        most = fmaxf(most, fabsf(x[i * 32]));
    }
    most = exl2k_warp_max(most);
    if (lane == 0) {
        ((f32 *)a.peaks)[(u64)block * a.strips + blockIdx.x] = most;
    }
}

/* The scales to try for a block. Grid: blocks. */
extern "C" __global__ void __launch_bounds__(EXL2K_LOSSES_THREADS) exl2k_losses_tries(exl2k_losses_args a)
{
    __shared__ f32 peaks[EXL2K_LOSSES_THREADS / 32];
    const f32 *from = (const f32 *)a.peaks + (u64)blockIdx.x * a.strips;
    f32 most = 0;
    for (u32 i = threadIdx.x; i < a.strips; i += EXL2K_LOSSES_THREADS) {
        most = fmaxf(most, from[i]);
    }
    most = exl2k_warp_max(most);
    if (threadIdx.x % 32 == 0) {
        peaks[threadIdx.x / 32] = most;
    }
    __syncthreads();
    if (threadIdx.x < EXL2K_LOSSES_CELLS) {
        u32 width = threadIdx.x / EXL2K_LOSSES_TRIES, bits = width == 5 ? 8 : width + 2;
        most = fmaxf(fmaxf(peaks[0], peaks[1]), fmaxf(peaks[2], peaks[3]));
        ((u32 *)a.tries)[blockIdx.x * EXL2K_LOSSES_CELLS + threadIdx.x] =
            exl2k_levels_try(most, bits, threadIdx.x % EXL2K_LOSSES_TRIES, EXL2K_LOSSES_TRIES);
    }
}

struct exl2k_losses_column {
    const f32 (*x)[32];
    u32 lane;
    __device__ f32 operator()(u32 row) const { return x[row][lane]; }
};

/* All widths and tries of a block in one strip: a warp has every fourth of them. Grid: strips, blocks. */
extern "C" __global__ void __launch_bounds__(EXL2K_LOSSES_THREADS) exl2k_losses_errors(exl2k_losses_args a)
{
    __shared__ f32 x[EXL2K_LOSSES_BLOCK][32], weights[EXL2K_LOSSES_BLOCK];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, row0 = blockIdx.y * EXL2K_LOSSES_BLOCK;
    const f32 *from = (const f32 *)a.weights + ((u64)blockIdx.x * a.in + row0) * 32;
    for (u32 i = warp; i < EXL2K_LOSSES_BLOCK; i += 4) {
        x[i][lane] = from[i * 32 + lane];
    }
    if (warp == 0) {
        weights[lane] = ((const f32 *)a.diagonal)[row0 + lane];
    }
    __syncthreads();
    f32 peak = 0;
    for (u32 i = 0; i < EXL2K_LOSSES_BLOCK; i++) {
        peak = fmaxf(peak, fabsf(x[i][lane]));
    }
    exl2k_losses_column column = { x, lane };
    for (u32 cell = warp; cell < EXL2K_LOSSES_CELLS; cell += 4) {
        u32 width = cell / EXL2K_LOSSES_TRIES, bits = width == 5 ? 8 : width + 2;
        u32 scale_max = ((const u32 *)a.tries)[blockIdx.y * EXL2K_LOSSES_CELLS + cell];
        f32 least;
        exl2k_levels_least(column, weights, EXL2K_LOSSES_BLOCK, peak, bits, scale_max, &least);
        double sum = exl2k_levels_sum((double)least);
        if (lane == 0) {
            ((double *)a.sums)[((u64)blockIdx.x * gridDim.y + blockIdx.y) * EXL2K_LOSSES_CELLS + cell] = sum;
        }
    }
}

/* Sums over the strips, in order. Grid: blocks. */
extern "C" __global__ void __launch_bounds__(EXL2K_LOSSES_CELLS) exl2k_losses_totals(exl2k_losses_args a)
{
    u64 cell = (u64)blockIdx.x * EXL2K_LOSSES_CELLS + threadIdx.x, step = (u64)gridDim.x * EXL2K_LOSSES_CELLS;
    double sum = 0;
    for (u32 strip = 0; strip < a.strips; strip++) {
        sum += ((const double *)a.sums)[strip * step + cell];
    }
    ((double *)a.totals)[cell] = sum;
}

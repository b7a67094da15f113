/* convert/solve.cu: the quantizer of one matrix (8_convert's solve.h has the formulas). A column is a lane, a strip of
   32 columns a CTA; blocks of at most 128 rows, each some whole groups, come one after the other. Products with all
   rows outside of a block are those of exl2k_float_product.
   takes: convert_args.h.
   gives: exl2k_solve_load, exl2k_solve_values; exl2k_solve_aim, exl2k_solve_peaks, exl2k_solve_search,
          exl2k_solve_pick, exl2k_solve_round, exl2k_solve_descend, exl2k_solve_energy. */
#include "convert/levels.cuh"

typedef struct exl2k_solve_group { /* exl2__group */
    u32 row, rows, word, bits;
} exl2k_solve_group;

EXL2K_FN exl2k_solve_group exl2k_solve_group_of(const exl2k_solve_args &a, u32 group)
{
    return ((const exl2k_solve_group *)a.groups)[group];
}

/* The sum of the slices of a product, at a row of the block in this CTA's strip. */
EXL2K_FN f32 exl2k_solve_product(const exl2k_solve_args &a, u32 row, u32 lane)
{
    u64 at = ((u64)blockIdx.x * EXL2K_SOLVE_ROWS + row) * 32 + lane;
    f32 sum = 0;
    for (u32 i = 0; i < a.slices; i++) {
        sum += ((const f32 *)a.partial)[(u64)i * a.strips * EXL2K_SOLVE_ROWS * 32 + at];
    }
    return sum;
}

/* Where the block's rows begin in this CTA's strip of a matrix. */
EXL2K_FN u64 exl2k_solve_first(const exl2k_solve_args &a) { return ((u64)blockIdx.x * a.in + a.row) * 32; }

/* ---- weights ---- */

/* Where a packed row lies in the model's strip. Grid: strips, rows in fours; a warp a row. */
EXL2K_FN u64 exl2k_solve_source(const exl2k_solve_args &a, u32 row)
{
    return ((u64)blockIdx.x * a.in + ((const u32 *)a.order)[row]) * 32 + threadIdx.x % 32;
}

/* The model's weights in packed order. */
extern "C" __global__ void __launch_bounds__(EXL2K_SOLVE_THREADS) exl2k_solve_load(exl2k_solve_args a)
{
    u32 lane = threadIdx.x % 32, row = blockIdx.y * 4 + threadIdx.x / 32;
    u64 from = exl2k_solve_source(a, row);
    f32 w = a.source == EXL2K_HALF_F16 ? exl2k_f16_to_f32(((const u16 *)a.strips_of)[from])
          : a.source == EXL2K_HALF_F32 ? ((const f32 *)a.strips_of)[from]
                                       : exl2k_bf16_to_f32(((const u16 *)a.strips_of)[from]);
    ((f32 *)a.weights)[((u64)blockIdx.x * a.in + row) * 32 + lane] = blockIdx.x * 32 + lane < a.used ? w : 0.0f;
}

/* What the codes stand for, as the model has its weights. */
extern "C" __global__ void __launch_bounds__(EXL2K_SOLVE_THREADS) exl2k_solve_values(exl2k_solve_args a)
{
    u32 lane = threadIdx.x % 32, row = blockIdx.y * 4 + threadIdx.x / 32;
    u64 at = ((u64)blockIdx.x * a.in + row) * 32 + lane;
    f32 value = ((const f32 *)a.weights)[at] + ((const f32 *)a.errors)[at];
    ((u16 *)a.strips_of)[exl2k_solve_source(a, row)] = (u16)exl2k_f32_to_f16(value);
}

/* ---- the groups' loop ---- */

/* What the rows of the block aim at: W minus what compensates the errors of the rows before the block. */
extern "C" __global__ void __launch_bounds__(EXL2K_SOLVE_THREADS) exl2k_solve_aim(exl2k_solve_args a)
{
    u32 lane = threadIdx.x % 32;
    const f32 *w = (const f32 *)a.weights + exl2k_solve_first(a);
    for (u32 row = threadIdx.x / 32; row < a.rows; row += 4) {
        ((f32 *)a.targets)[((u64)blockIdx.x * EXL2K_SOLVE_ROWS + row) * 32 + lane] =
            w[row * 32 + lane] - exl2k_solve_product(a, row, lane);
    }
}

/* The targets of the group in this CTA's strip. */
EXL2K_FN f32 *exl2k_solve_targets(const exl2k_solve_args &a, const exl2k_solve_group &g)
{
    return (f32 *)a.targets + ((u64)blockIdx.x * EXL2K_SOLVE_ROWS + (g.row - a.row)) * 32;
}

/* The peak of each column of the group, and of the strip. */
extern "C" __global__ void __launch_bounds__(EXL2K_SOLVE_THREADS) exl2k_solve_peaks(exl2k_solve_args a)
{
    __shared__ f32 peaks[4][32];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    exl2k_solve_group g = exl2k_solve_group_of(a, a.group);
    const f32 *x = exl2k_solve_targets(a, g);
    f32 most = 0;
    for (u32 row = warp; row < g.rows; row += 4) {
        most = fmaxf(most, fabsf(x[row * 32 + lane]));
    }
    peaks[warp][lane] = most;
    __syncthreads();
    if (warp == 0) {
        most = fmaxf(fmaxf(peaks[0][lane], peaks[1][lane]), fmaxf(peaks[2][lane], peaks[3][lane]));
        ((f32 *)a.peaks)[blockIdx.x * 32 + lane] = most;
        most = exl2k_warp_max(most);
        if (lane == 0) {
            ((f32 *)a.peaks)[a.columns + blockIdx.x] = most;
        }
    }
}

struct exl2k_solve_column {
    const f32 *x; /* of the lane, rows 32 apart */
    __device__ f32 operator()(u32 row) const { return x[row * 32]; }
};

/* The largest peak of all strips; every lane of a warp gets it. */
EXL2K_FN f32 exl2k_solve_peak(const exl2k_solve_args &a)
{
    f32 most = 0;
    for (u32 i = threadIdx.x % 32; i < a.strips; i += 32) {
        most = fmaxf(most, ((const f32 *)a.peaks)[a.columns + i]);
    }
    return exl2k_warp_max(most);
}

/* The weighted squared error of each scale to try, in one strip: a warp has every eighth try. */
extern "C" __global__ void __launch_bounds__(256) exl2k_solve_search(exl2k_solve_args a)
{
    __shared__ f32 x[EXL2K_SOLVE_ROWS][32];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    exl2k_solve_group g = exl2k_solve_group_of(a, a.group);
    const f32 *from = exl2k_solve_targets(a, g), *weights = (const f32 *)a.diagonal + g.row;
    for (u32 row = warp; row < g.rows; row += 8) {
        x[row][lane] = from[row * 32 + lane];
    }
    __syncthreads();
    f32 peak = ((const f32 *)a.peaks)[blockIdx.x * 32 + lane], most = exl2k_solve_peak(a), least;
    exl2k_solve_column column = { &x[0][lane] };
    for (u32 i = warp; i < EXL2K_SOLVE_TRIES; i += 8) {
        u32 scale_max = exl2k_levels_try(most, g.bits, i, EXL2K_SOLVE_TRIES);
        exl2k_levels_least(column, weights, g.rows, peak, g.bits, scale_max, &least);
        double sum = exl2k_levels_sum((double)least);
        if (lane == 0) {
            ((double *)a.sums)[blockIdx.x * EXL2K_SOLVE_TRIES + i] = sum;
        }
    }
}

/* Picks the try with the least error, the first of equal ones: one CTA, a warp a try. */
extern "C" __global__ void __launch_bounds__(EXL2K_SOLVE_TRIES * 32) exl2k_solve_pick(exl2k_solve_args a)
{
    __shared__ double sums[EXL2K_SOLVE_TRIES];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    double sum = 0;
    for (u32 i = lane; i < a.strips; i += 32) {
        sum += ((const double *)a.sums)[i * EXL2K_SOLVE_TRIES + warp];
    }
    sum = exl2k_levels_sum(sum);
    if (lane == 0) {
        sums[warp] = sum;
    }
    __syncthreads();
    if (warp == 0) {
        f32 peak = exl2k_solve_peak(a);
        u32 best = 0;
        for (u32 i = 1; i < EXL2K_SOLVE_TRIES; i++) {
            best = sums[i] < sums[best] ? i : best;
        }
        if (lane == 0) {
            ((u32 *)a.scale_max)[a.group] = exl2k_levels_try(peak, exl2k_solve_group_of(a, a.group).bits, best,
                                                             EXL2K_SOLVE_TRIES);
        }
    }
}

/* Levels, codes and errors of the group: each warp rounds the strip with another level of each column, and each row
   compensates those before it. Shared memory: [LEVELS, rows, 32] f32. */
extern "C" __global__ void __launch_bounds__(EXL2K_SOLVE_THREADS) exl2k_solve_round(exl2k_solve_args a)
{
    extern __shared__ f32 exl2k_solve_shared[];
    __shared__ f32 losses[EXL2K_SOLVE_LEVELS][32];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    exl2k_solve_group g = exl2k_solve_group_of(a, a.group);
    const f32 *weights = (const f32 *)a.diagonal + g.row, *from = exl2k_solve_targets(a, g);
    const f32 *feedback = (const f32 *)a.feedback + (u64)g.row * a.in + g.row;
    u64 first = ((u64)blockIdx.x * a.in + g.row) * 32 + lane;
    const f32 *w = (const f32 *)a.weights + first;
    f32 *x = exl2k_solve_shared + warp * g.rows * 32 + lane;
    for (u32 row = 0; row < g.rows; row++) {
        x[row * 32] = from[row * 32 + lane];
    }
    u32 scale_max = ((const u32 *)a.scale_max)[a.group];
    exl2k_solve_column column = { x };
    f32 loss = 0, least;
    int found = (int)exl2k_levels_least(column, weights, g.rows, ((const f32 *)a.peaks)[blockIdx.x * 32 + lane], g.bits,
                                        scale_max, &least);
    int level = min(max(found + (int)warp - 2, 1), 16);
    f32 step = exl2k_levels_step(scale_max, (u32)level), inverse = 1.0f / step;
    for (u32 row = 0; row < g.rows; row++) {
        f32 at = x[row * 32], code = exl2k_levels_code(at, inverse, g.bits), value = exl2k_levels_half(code * step);
        f32 error = value - w[row * 32], missed = at - value;
        loss += weights[row] * missed * missed;
        x[row * 32] = code;
        for (u32 next = row + 1; next < g.rows; next++) {
            x[next * 32] = fmaf(-feedback[(u64)row * a.in + next], error, x[next * 32]);
        }
    }
    losses[warp][lane] = loss;
    __syncthreads();
    u32 best = 0;
    for (u32 i = 1; i < EXL2K_SOLVE_LEVELS; i++) {
        best = losses[i][lane] < losses[best][lane] ? i : best;
    }
    level = min(max(found + (int)best - 2, 1), 16);
    step = exl2k_levels_step(scale_max, (u32)level);
    x = exl2k_solve_shared + best * g.rows * 32 + lane;
    for (u32 row = warp; row < g.rows; row += EXL2K_SOLVE_LEVELS) {
        f32 code = x[row * 32];
        ((f32 *)a.errors)[first + row * 32] = exl2k_levels_half(code * step) - w[row * 32];
        ((u8 *)a.codes)[first + row * 32] = (u8)(int)(code + (f32)(1u << (g.bits - 1)));
    }
    if (warp == 0) {
        ((u8 *)a.levels)[(u64)a.group * a.columns + blockIdx.x * 32 + lane] = (u8)level;
    }
}

/* ---- descent ---- */

/* Chooses the level of a column again, given its codes: with the step s + t the loss changes by
   2 t q'R + t^2 q'Hd q. */
EXL2K_FN u32 exl2k_solve_relevel(u32 scale_max, u32 level, f32 slope, f32 bend, f32 *change)
{
    f32 step = exl2k_levels_step(scale_max, level), least = 0;
    u32 best = level;
    *change = 0;
    for (u32 i = 1; i <= 16; i++) {
        f32 t = exl2k_levels_step(scale_max, i) - step, loss = (2 * slope + t * bend) * t;
        if (loss < least) {
            least = loss;
            best = i;
            *change = t;
        }
    }
    return best;
}

/* The descent in one block. R = Hd E comes as slices of a product, and is kept up to date. A CTA is a strip; its warps
   share the rows. Shared memory: three times [rows, 32] f32. */
extern "C" __global__ void __launch_bounds__(EXL2K_SOLVE_THREADS) exl2k_solve_descend(exl2k_solve_args a)
{
    extern __shared__ f32 exl2k_solve_shared[];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    f32 *r = exl2k_solve_shared + lane, *q = r + a.rows * 32, *h = q + a.rows * 32;
    for (u32 row = warp; row < a.rows; row += 4) {
        r[row * 32] = exl2k_solve_product(a, row, lane);
    }
    for (u32 number = a.group; number < a.group + a.group_count; number++) {
        exl2k_solve_group g = exl2k_solve_group_of(a, number);
        const f32 *hessian = (const f32 *)a.hessian + (u64)g.row * a.in + g.row;
        u64 first = ((u64)blockIdx.x * a.in + g.row) * 32 + lane;
        const f32 *w = (const f32 *)a.weights + first;
        f32 *errors = (f32 *)a.errors + first, *own = r + (g.row - a.row) * 32;
        u8 *codes = (u8 *)a.codes + first, *levels = (u8 *)a.levels + (u64)number * a.columns + blockIdx.x * 32 + lane;
        f32 zero = (f32)(1u << (g.bits - 1)), slope = 0, bend = 0, change;
        u32 scale_max = ((const u32 *)a.scale_max)[number], level = *levels;
        for (u32 row = warp; row < g.rows; row += 4) {
            q[row * 32] = (f32)codes[row * 32] - zero;
        }
        __syncthreads();
        for (u32 row = warp; row < g.rows; row += 4) {
            f32 sum = 0;
            for (u32 i = 0; i < g.rows; i++) {
                sum = fmaf(hessian[(u64)i * a.in + row], q[i * 32], sum);
            }
            h[row * 32] = sum;
        }
        __syncthreads();
        for (u32 row = 0; row < g.rows; row++) {
            slope = fmaf(q[row * 32], own[row * 32], slope);
            bend = fmaf(q[row * 32], h[row * 32], bend);
        }
        __syncthreads(); /* every warp has read R and the level */
        level = exl2k_solve_relevel(scale_max, level, slope, bend, &change);
        f32 step = exl2k_levels_step(scale_max, level), inverse = 1.0f / step;
        for (u32 row = warp; row < g.rows; row += 4) {
            own[row * 32] = fmaf(change, h[row * 32], own[row * 32]);
            h[row * 32] = errors[row * 32]; /* as it was before */
        }
        if (warp == 0) {
            *levels = (u8)level;
        }
        __syncthreads();
        f32 code = 0;
        for (u32 row = 0; row < g.rows; row++) {
            /* Every warp computes the row's code; R of the rows after it is shared out. */
            f32 value = exl2k_levels_half(q[row * 32] * step);
            f32 x = value - own[row * 32] / hessian[(u64)row * a.in + row];
            code = exl2k_levels_code(x, inverse, g.bits);
            f32 less = value - exl2k_levels_half(code * step);
            for (u32 next = row + 1 + warp; next < g.rows; next += 4) {
                own[next * 32] = fmaf(-hessian[(u64)row * a.in + next], less, own[next * 32]);
            }
            __syncthreads();
            if (row % 4 == warp) {
                q[row * 32] = code;
            }
        }
        __syncthreads();
        for (u32 row = warp; row < g.rows; row += 4) {
            f32 error = exl2k_levels_half(q[row * 32] * step) - w[row * 32];
            h[row * 32] = error - h[row * 32];
            errors[row * 32] = error;
            codes[row * 32] = (u8)(int)(q[row * 32] + zero);
        }
        __syncthreads();
        for (u32 next = g.row - a.row + g.rows + warp; next < a.rows; next += 4) {
            f32 sum = r[next * 32];
            for (u32 i = 0; i < g.rows; i++) {
                sum = fmaf(hessian[(u64)i * a.in + next - (g.row - a.row)], h[i * 32], sum);
            }
            r[next * 32] = sum;
        }
        __syncthreads();
    }
}

/* ---- energy ---- */

/* Adds to [0] the sum over the block's rows of D y^2, y = F'x + x, and to [1] that of x^2, in one strip. */
extern "C" __global__ void __launch_bounds__(EXL2K_SOLVE_THREADS) exl2k_solve_energy(exl2k_solve_args a)
{
    __shared__ double parts[4][2];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    double energy = 0, square = 0;
    for (u32 row = warp; row < a.rows; row += 4) {
        f32 x = ((const f32 *)a.x)[exl2k_solve_first(a) + row * 32 + lane];
        f32 y = exl2k_solve_product(a, row, lane) + x;
        energy += (double)(((const f32 *)a.diagonal)[a.row + row] * y * y);
        square += (double)x * (double)x;
    }
    energy = exl2k_levels_sum(energy);
    square = exl2k_levels_sum(square);
    if (lane == 0) {
        parts[warp][0] = energy;
        parts[warp][1] = square;
    }
    __syncthreads();
    if (threadIdx.x < 2) {
        double *sum = (double *)a.sums + blockIdx.x * 2 + threadIdx.x;
        *sum += (parts[0][threadIdx.x] + parts[1][threadIdx.x]) + (parts[2][threadIdx.x] + parts[3][threadIdx.x]);
    }
}

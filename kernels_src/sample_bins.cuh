/* sample_bins.cuh: bins of a row's weights. All CTAs of the row fill them, and one CTA then finds the end of a prefix
   with a single scan.
   takes: sample_select.cuh.
   gives: exl2k_clear_bins, exl2k_count_weight, exl2k_add_bins, exl2k_find_bin. */
#ifndef EXL2K_SAMPLE_BINS_CUH
#define EXL2K_SAMPLE_BINS_CUH

#include "sample_select.cuh"

/* ---- filling ---- */

EXL2K_FN u64 exl2k_bins_at(const exl2k_sample_args *a) { return a->bins + blockIdx.y * sizeof(exl2k_sample_bins); }

EXL2K_FN void exl2k_clear_bins(void)
{
    for (u32 i = threadIdx.x; i < sizeof exl2k_w.bins / 16; i += EXL2K_SAMPLE_THREADS) {
        ((uint4 *)&exl2k_w.bins)[i] = make_uint4(0, 0, 0, 0);
    }
    __syncthreads();
}

EXL2K_FN void exl2k_add_bin(const exl2k_sample_args *a, u32 bin, u64 weight, u32 count)
{
    exl2k_sample_bins *to = (exl2k_sample_bins *)exl2k_bins_at(a);
    if (count > 0) {
        atomicAdd(&to->weights[bin], weight);
        atomicAdd(&to->counts[bin], count);
    }
}

/* A thread's tokens that are not counted in shared memory: tokens of the largest weight, whose sums might overflow,
   and tokens of the last bin, where atomics of all threads would collide. */
typedef struct exl2k_outer_bins {
    u64 weight[2];
    u32 count[2];
} exl2k_outer_bins;

/* Counts a token in its bin. */
EXL2K_FN void exl2k_count_weight(exl2k_outer_bins *outer, u32 steps, u64 weight)
{
    u32 bin = exl2k_steps_bin(steps);
    if (steps == 0 || bin == EXL2K_SAMPLE_BINS - 1) {
        outer->weight[0] += steps == 0 ? weight : 0;
        outer->count[0] += steps == 0;
        outer->weight[1] += steps > 0 ? weight : 0;
        outer->count[1] += steps > 0;
    } else {
        atomicAdd(&exl2k_w.bins.low[bin], (u32)weight & 0xFFFFFu);
        atomicAdd(&exl2k_w.bins.high[bin], (u32)(weight >> 20));
        atomicAdd(&exl2k_w.bins.counts[bin], 1);
    }
}

/* Adds this CTA's bins to the bins of the row. */
EXL2K_FN void exl2k_add_bins(const exl2k_sample_args *a, exl2k_outer_bins *outer)
{
    /* Sum the outer bins over each warp. */
#pragma unroll 1
    for (u32 step = 16; step > 0; step /= 2) {
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
            outer->weight[j] += __shfl_xor_sync(EXL2K_ALL, outer->weight[j], step);
            outer->count[j] += __shfl_xor_sync(EXL2K_ALL, outer->count[j], step);
        }
    }
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        if (threadIdx.x % 32 == 0) {
            exl2k_add_bin(a, j ? EXL2K_SAMPLE_BINS - 1 : 0, outer->weight[j], outer->count[j]);
        }
    }
    __syncthreads();
    /* Add the bins in shared memory. */
#pragma unroll 1
    for (u32 i = threadIdx.x; i < EXL2K_SAMPLE_BINS; i += EXL2K_SAMPLE_THREADS) {
        exl2k_add_bin(a, i, exl2k_w.bins.low[i] + ((u64)exl2k_w.bins.high[i] << 20), exl2k_w.bins.counts[i]);
    }
}

/* ---- the bin in which a prefix of all tokens ends ---- */

typedef struct exl2k_cut_bin {
    u32 bin, count, before; /* tokens in the bin; tokens in bins of larger weights */
    u64 weight_before;
} exl2k_cut_bin;

#define EXL2K_BINS_EACH (EXL2K_SAMPLE_BINS / EXL2K_SAMPLE_THREADS)

/* Finds the first bin at which the running sum of weights reaches `need`; the sum of all bins does. Resets the row's
   bins to zero. */
EXL2K_FN exl2k_cut_bin exl2k_find_bin(u64 at, u64 need)
{
    u64 weights[EXL2K_BINS_EACH], counts_at = at + EXL2K_SAMPLE_BINS * 8, own = 0;
    u32 counts[EXL2K_BINS_EACH], own_count = 0, first = threadIdx.x * EXL2K_BINS_EACH;
    /* Each thread loads and clears its bins. */
#pragma unroll
    for (u32 i = 0; i < EXL2K_BINS_EACH; i += 2) {
        uint4 two = exl2k_load4(at + 8 * (first + i));
        weights[i] = two.x | (u64)two.y << 32;
        weights[i + 1] = two.z | (u64)two.w << 32;
        own += weights[i] + weights[i + 1];
        exl2k_store4(at + 8 * (first + i), make_uint4(0, 0, 0, 0));
    }
#pragma unroll
    for (u32 i = 0; i < EXL2K_BINS_EACH; i++) {
        counts[i] = exl2k_load(counts_at + 4 * (first + i));
        own_count += counts[i];
        exl2k_store(counts_at + 4 * (first + i), 0);
    }
    /* The thread in whose bins the running sum reaches `need` reports the bin. */
    u64 before = exl2k_block_scan(own), count = exl2k_block_scan(own_count);
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < EXL2K_BINS_EACH; i++) {
        if (before < need && before + weights[i] >= need) {
            exl2k_w.found = first + i;
            exl2k_w.partial[1][0] = before;
            exl2k_w.partial[1][1] = counts[i];
            exl2k_w.partial[1][2] = count;
        }
        before += weights[i];
        count += counts[i];
    }
    __syncthreads();
    /* All threads read the result. */
    exl2k_cut_bin cut = { exl2k_w.found, (u32)exl2k_w.partial[1][1], (u32)exl2k_w.partial[1][2],
                          exl2k_w.partial[1][0] };
    __syncthreads();
    return cut;
}

#endif

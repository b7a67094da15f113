/* convert/levels.cuh: scales and levels of a group, with rows weighted by D, as 8_convert's quantize.h and pack.h
   choose and round them.
   takes: convert_args.h.
   gives: exl2k_levels_try, exl2k_levels_step, exl2k_levels_half, exl2k_levels_code, exl2k_levels_least. */
#ifndef EXL2K_CONVERT_LEVELS_CUH
#define EXL2K_CONVERT_LEVELS_CUH

#include "base.cuh"
#include "convert/convert_args.h"

#define EXL2K_LEVELS_MAX 32752.0f /* larger numbers are clipped */

EXL2K_FN f32 exl2k_levels_half(f32 x) { return exl2k_f16_to_f32(exl2k_f32_to_f16(x)); }

/* The smallest step with which a column of this peak is not clipped. */
EXL2K_FN f32 exl2k_levels_wide(f32 peak, u32 bits)
{
    return fminf(peak, EXL2K_LEVELS_MAX) / ((f32)(1u << (bits - 1)) - 0.5f);
}

/* Try `index` of `count` of the search for q_scale_max (f16): see exl2__quantize_range_of for the limits. */
EXL2K_FN u32 exl2k_levels_try(f32 peak, u32 bits, u32 index, u32 count)
{
    f32 lowest = bits == 2 ? 0.25f * 0.8f : bits == 3 ? 0.40f * 0.8f : bits == 4 ? 0.60f * 0.8f
               : bits == 5 ? 0.70f * 0.95f : bits == 6 ? 0.80f * 0.95f : 0.90f * 0.95f;
    f32 factor = lowest + (1.05f - lowest) * (f32)index / (f32)(count - 1);
    return exl2k_f32_to_f16(fmaxf(exl2k_levels_wide(peak, bits) * factor, 256.0f / 16777216.0f));
}

/* A column's step is at least this fraction of the one that does not clip it. */
EXL2K_FN f32 exl2k_levels_clip(u32 bits)
{
    return 0.7f * (bits == 2 ? 0.30f : bits == 3 ? 0.45f : bits == 4 ? 0.60f : bits == 5 ? 0.70f
                   : bits == 6 ? 0.78f : 0.92f);
}

/* The decoder's step at a level of 1 to 16. */
EXL2K_FN f32 exl2k_levels_step(u32 scale_max, u32 level)
{
    f32 unit = exl2k_levels_half(exl2k_f16_to_f32(scale_max) * (1.0f / 256));
    return exl2k_levels_half((f32)(level * level) * unit);
}

/* The lowest level whose step is at least `wanted`, or 16. */
EXL2K_FN u32 exl2k_levels_for(u32 scale_max, f32 wanted)
{
    u32 level = 1;
    for (u32 i = 1; i < 16; i++) {
        level += exl2k_levels_step(scale_max, i) < wanted;
    }
    return level;
}

/* code - 2^(bits - 1), to nearest. */
EXL2K_FN f32 exl2k_levels_code(f32 x, f32 inverse, u32 bits)
{
    f32 zero = (f32)(1u << (bits - 1)), top = (f32)((1u << bits) - 1);
    return (f32)(int)fminf(fmaxf(x * inverse + (zero + 0.5f), 0.0f), top) - zero;
}

/* The best level of a column for this scale, and the least weighted squared error. x(row): the column's numbers. */
template <typename COLUMN>
EXL2K_FN u32 exl2k_levels_least(const COLUMN &x, const f32 *weights, u32 rows, f32 peak, u32 bits, u32 scale_max,
                                f32 *least)
{
    f32 wide = exl2k_levels_wide(peak, bits);
    u32 low = exl2k_levels_for(scale_max, wide * exl2k_levels_clip(bits)), high = exl2k_levels_for(scale_max, wide);
    u32 best = low;
    *least = 0;
    for (u32 level = low; level <= high; level++) {
        f32 step = exl2k_levels_step(scale_max, level), inverse = 1.0f / step, sum = 0;
        for (u32 row = 0; row < rows; row++) {
            f32 at = x(row), error = exl2k_levels_code(at, inverse, bits) * step - at;
            sum += weights[row] * error * error;
        }
        if (level == low || sum < *least) {
            *least = sum;
            best = level;
        }
    }
    return best;
}

EXL2K_FN double exl2k_levels_sum(double v) /* over a warp */
{
    for (u32 step = 16; step > 0; step /= 2) {
        v += __shfl_xor_sync(EXL2K_ALL, v, step);
    }
    return v;
}

#endif

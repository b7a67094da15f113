/* quantize.h: quantizes the weights of a group. It searches for the group scale and the column levels with the least
   squared error, computed with the fp16 arithmetic of the decoder, and then makes the codes.
   takes: strips: rows of 32 columns, [rows, 32] float, finite; a weight for the error of each row, or none.
   gives: exl2__quantize_peaks, _tries, _errors, _pick, _levels, _codes: called for a group in this order.

   Numbers above EXL2__QUANTIZE_MAX are clipped. `weights` [rows] may be NULL everywhere: all are 1. Where some rows
   weigh more than others, smaller scales can win, so that the search goes further down. `path` is the instruction set;
   results do not depend on it. */
#ifndef EXL2__QUANTIZE_H
#define EXL2__QUANTIZE_H

#include "../0_base/cpu_path.h"
#include "pack.h"

#include <math.h>

#define EXL2__QUANTIZE_LANES 32u   /* columns of a strip; inner loops of this fixed length vectorize */
#define EXL2__QUANTIZE_TRIES 24u   /* most group scales that are tried */
#define EXL2__QUANTIZE_MAX 32752.0f /* half the largest fp16, so that no code times its step is infinite */

/* The search range for a bit width. With the step peak / (2^(bits - 1) - 1/2) a column is not clipped. At small widths,
   a smaller step that clips the peak has less error. The limits were found on normally distributed and real weights:
   beyond them the least error no longer falls. */
typedef struct exl2__quantize_range {
    float lowest, highest; /* group scales to try, as factors of the step that clips no column */
    float clip;            /* a column's step is at least this fraction of the step that does not clip it */
} exl2__quantize_range;

static inline exl2__quantize_range exl2__quantize_range_of(uint32_t bits, bool weighted)
{
    static const exl2__quantize_range ranges[9] = {
        { 0, 0, 0 }, { 0, 0, 0 }, { 0.25f, 1.1f, 0.30f }, { 0.40f, 1.1f, 0.45f }, { 0.60f, 1.1f, 0.60f },
        { 0.70f, 1.1f, 0.70f }, { 0.80f, 1.1f, 0.78f }, { 0, 0, 0 }, { 0.90f, 1.1f, 0.92f },
    };
    exl2__quantize_range range = ranges[bits];
    if (weighted) {
        range.lowest *= bits <= 4 ? 0.8f : 0.95f;
        range.highest = 1.05f;
        range.clip *= 0.7f;
    }
    return range;
}

/* The smallest step with which a column of this peak is not clipped. */
static inline float exl2__quantize_wide_step(float peak, uint32_t bits)
{
    return (peak < EXL2__QUANTIZE_MAX ? peak : EXL2__QUANTIZE_MAX) / ((float)(1u << (bits - 1)) - 0.5f);
}

/* peaks [32]: largest absolute value in each column of the strip. A NaN or infinity makes its column's peak
   infinite. */
EXL2__PRIVATE void exl2__quantize_peaks(const float *strip, uint32_t rows, float *peaks)
{
    int32_t most[EXL2__QUANTIZE_LANES] = { 0 }; /* floats without a sign are ordered like their bits */
    for (uint32_t r = 0; r < rows; r++) {
        int32_t bits[EXL2__QUANTIZE_LANES];
        memcpy(bits, strip + (size_t)r * EXL2__QUANTIZE_LANES, sizeof bits);
        for (uint32_t k = 0; k < EXL2__QUANTIZE_LANES; k++) {
            int32_t size = bits[k] & 0x7FFFFFFF;
            most[k] = most[k] > size ? most[k] : size;
        }
    }
    for (uint32_t k = 0; k < EXL2__QUANTIZE_LANES; k++) {
        peaks[k] = exl2__bits_float((uint32_t)(most[k] < 0x7F800000 ? most[k] : 0x7F800000));
    }
}

/* tries [count] f16: values of q_scale_max to try for a group whose largest absolute value is `peak`. They are never 0,
   even for a group of zeros, because readers warn of 0. */
EXL2__PRIVATE void exl2__quantize_tries(float peak, uint32_t bits, bool weighted, uint32_t count, uint16_t *tries)
{
    exl2__quantize_range range = exl2__quantize_range_of(bits, weighted);
    for (uint32_t i = 0; i < count; i++) {
        float factor = range.lowest + (range.highest - range.lowest) * (float)i / (float)(count - 1);
        float scale = exl2__quantize_wide_step(peak, bits) * factor;
        float least = 256.0f / (float)(1u << 24); /* below this, q_scale_max / 256 could be 0 in fp16 */
        tries[i] = exl2__f32_to_f16(scale > least ? scale : least);
    }
}

/* steps [17]: the decoder's step at levels 1..16; not 0 if scale_max is from exl2__quantize_tries. */
static inline void exl2__quantize_steps(uint16_t scale_max, float *steps)
{
    steps[0] = 0;
    for (uint32_t level = 1; level <= 16; level++) {
        steps[level] = exl2__pack_scale(scale_max, level);
    }
}

EXL2__ROUND_TWICE_BEGIN /* with AVX2 the bits are those of plain C */

/* errors [32]: squared error of each column with steps [32]. */
EXL2__FORCE_INLINE void exl2__quantize_columns(const float *strip, const float *weights, uint32_t rows,
                                               const float *steps, uint32_t bits, float *errors)
{
    const float zero = (float)(1u << (bits - 1)), top = (float)((1u << bits) - 1);
    float inverse[EXL2__QUANTIZE_LANES], sum[EXL2__QUANTIZE_LANES] = { 0 };
    for (uint32_t k = 0; k < EXL2__QUANTIZE_LANES; k++) {
        inverse[k] = 1.0f / steps[k];
    }
    for (uint32_t r = 0; r < rows; r++) {
        const float *x = strip + (size_t)r * EXL2__QUANTIZE_LANES;
        const float weight = weights ? weights[r] : 1.0f;
        for (uint32_t k = 0; k < EXL2__QUANTIZE_LANES; k++) {
            float code = x[k] * inverse[k] + (zero + 0.5f); /* + 1/2 and truncation round to nearest */
            code = code > 0.0f ? code : 0.0f;
            code = code < top ? code : top;
            float error = ((float)(int32_t)code - zero) * steps[k] - x[k];
            sum[k] += weight * error * error;
        }
    }
    memcpy(errors, sum, sizeof sum);
}

/* levels [32]: of each column with a step of at least `wanted` [32], the lowest one, or 16. */
EXL2__FORCE_INLINE void exl2__quantize_levels_for(const float *steps, const float *wanted, int32_t *levels)
{
    for (uint32_t k = 0; k < EXL2__QUANTIZE_LANES; k++) {
        levels[k] = 1;
    }
    for (uint32_t i = 1; i < 16; i++) {
        float step = steps[i];
        for (uint32_t k = 0; k < EXL2__QUANTIZE_LANES; k++) {
            levels[k] += step < wanted[k] ? 1 : 0;
        }
    }
}

/* levels [32]: the best level of each column with these steps [17]. least [32]: its squared error. */
EXL2__FORCE_INLINE void exl2__quantize_search(const float *strip, const float *weights, uint32_t rows,
                                              const float *peaks, uint32_t bits, const float *steps, uint8_t *levels,
                                              float *least)
{
    float clip = exl2__quantize_range_of(bits, weights != NULL).clip;
    float wide[EXL2__QUANTIZE_LANES], narrow[EXL2__QUANTIZE_LANES], fewest[EXL2__QUANTIZE_LANES];
    int32_t low[EXL2__QUANTIZE_LANES], high[EXL2__QUANTIZE_LANES], best[EXL2__QUANTIZE_LANES], spread = 0;
    for (uint32_t k = 0; k < EXL2__QUANTIZE_LANES; k++) {
        wide[k] = exl2__quantize_wide_step(peaks[k], bits);
        narrow[k] = wide[k] * clip;
        fewest[k] = INFINITY;
        best[k] = 0;
    }
    exl2__quantize_levels_for(steps, narrow, low);
    exl2__quantize_levels_for(steps, wide, high);
    for (uint32_t k = 0; k < EXL2__QUANTIZE_LANES; k++) {
        spread = spread > high[k] - low[k] ? spread : high[k] - low[k];
    }
    for (int32_t i = 0; i <= spread; i++) {
        float column_steps[EXL2__QUANTIZE_LANES], errors[EXL2__QUANTIZE_LANES];
        int32_t tried[EXL2__QUANTIZE_LANES];
        for (uint32_t k = 0; k < EXL2__QUANTIZE_LANES; k++) {
            tried[k] = low[k] + i < high[k] ? low[k] + i : high[k];
            column_steps[k] = steps[tried[k]];
        }
        exl2__quantize_columns(strip, weights, rows, column_steps, bits, errors);
        for (uint32_t k = 0; k < EXL2__QUANTIZE_LANES; k++) {
            best[k] = i == 0 || errors[k] < fewest[k] ? tried[k] : best[k];
            fewest[k] = i == 0 || errors[k] < fewest[k] ? errors[k] : fewest[k];
        }
    }
    for (uint32_t k = 0; k < EXL2__QUANTIZE_LANES; k++) {
        levels[k] = (uint8_t)best[k];
        least[k] = fewest[k];
    }
}

EXL2__PRIVATE void exl2__quantize_search_plain(const float *strip, const float *weights, uint32_t rows,
                                               const float *peaks, uint32_t bits, const float *steps, uint8_t *levels,
                                               float *least)
{
    exl2__quantize_search(strip, weights, rows, peaks, bits, steps, levels, least);
}

#if EXL2__X86_SIMD
EXL2__PRIVATE EXL2__TARGET_AVX2 void exl2__quantize_search_avx2(const float *strip, const float *weights, uint32_t rows,
                                                                const float *peaks, uint32_t bits, const float *steps,
                                                                uint8_t *levels, float *least)
{
    EXL2__UNALIGNED_MOVES();
    exl2__quantize_search(strip, weights, rows, peaks, bits, steps, levels, least);
}
#else
#define exl2__quantize_search_avx2 exl2__quantize_search_plain
#endif

EXL2__ROUND_TWICE_END

static inline void exl2__quantize_best_levels(exl2_cpu_path path, const float *strip, const float *weights,
                                              uint32_t rows, const float *peaks, uint32_t bits, const float *steps,
                                              uint8_t *levels, float *least)
{
    (path >= EXL2_CPU_AVX2 ? exl2__quantize_search_avx2 : exl2__quantize_search_plain)(strip, weights, rows, peaks,
                                                                                       bits, steps, levels, least);
}

/* errors [count]: adds the squared error that each try leaves in these columns. */
EXL2__PRIVATE void exl2__quantize_errors(exl2_cpu_path path, const float *strip, const float *weights, uint32_t rows,
                                         const float *peaks, uint32_t bits, const uint16_t *tries, uint32_t count,
                                         double *errors)
{
    for (uint32_t i = 0; i < count; i++) {
        float steps[17], least[EXL2__QUANTIZE_LANES];
        uint8_t levels[EXL2__QUANTIZE_LANES];
        exl2__quantize_steps(tries[i], steps);
        exl2__quantize_best_levels(path, strip, weights, rows, peaks, bits, steps, levels, least);
        for (uint32_t k = 0; k < EXL2__QUANTIZE_LANES; k++) {
            errors[i] += (double)least[k];
        }
    }
}

/* The try with the least error, the first of equal ones. */
static inline uint16_t exl2__quantize_pick(const uint16_t *tries, uint32_t count, const double *errors)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++) {
        best = errors[i] < errors[best] ? i : best;
    }
    return tries[best];
}

/* levels [32]: the best levels, 1..16, with the chosen q_scale_max. */
EXL2__PRIVATE void exl2__quantize_levels(exl2_cpu_path path, const float *strip, const float *weights, uint32_t rows,
                                         const float *peaks, uint32_t bits, uint16_t scale_max, uint8_t *levels)
{
    float steps[17], least[EXL2__QUANTIZE_LANES];
    exl2__quantize_steps(scale_max, steps);
    exl2__quantize_best_levels(path, strip, weights, rows, peaks, bits, steps, levels, least);
}

/* codes [rows, stride], the first 32 of each row: the nearest code, stored as code + 2^(bits - 1). */
EXL2__PRIVATE void exl2__quantize_codes(const float *strip, uint32_t rows, const uint8_t *levels, uint32_t bits,
                                        uint16_t scale_max, uint8_t *codes, size_t stride)
{
    const float zero = (float)(1u << (bits - 1)), top = (float)((1u << bits) - 1);
    float inverse[EXL2__QUANTIZE_LANES];
    for (uint32_t k = 0; k < EXL2__QUANTIZE_LANES; k++) {
        inverse[k] = 1.0f / exl2__pack_scale(scale_max, levels[k]);
    }
    for (uint32_t r = 0; r < rows; r++) {
        const float *x = strip + (size_t)r * EXL2__QUANTIZE_LANES;
        uint8_t *out = codes + r * stride;
        for (uint32_t k = 0; k < EXL2__QUANTIZE_LANES; k++) {
            float code = x[k] * inverse[k] + (zero + 0.5f);
            code = code > 0.0f ? code : 0.0f;
            code = code < top ? code : top;
            out[k] = (uint8_t)(int32_t)code;
        }
    }
}

#endif

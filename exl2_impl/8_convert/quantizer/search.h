/* search.h: the search for the scale of a group and the levels of its columns, as quantize.h does it, but with a weight
   for each row.
   takes: strips [rows, 32] of targets, finite; weights [rows]; peaks of the columns.
   gives: exl2__search_peaks, exl2__search_tries, exl2__search_errors, exl2__search_levels.
   owns:  nothing. */
#ifndef EXL2__SEARCH_H
#define EXL2__SEARCH_H

#include "../quantize.h"
#include "panels.h"

#define EXL2__SEARCH_TRIES 24u  /* number of group scales that are tried */
#define EXL2__SEARCH_CLIP 0.7f  /* a column may be clipped by so much more than without weights */
#define EXL2__SEARCH_LEAST (256.0f / (float)(1u << 24)) /* below this, q_scale_max / 256 could be 0 in fp16 */

/* peaks [32]: largest absolute value in each column, at most EXL2__QUANTIZE_MAX. */
static void exl2__search_peaks(const float *strip, uint32_t rows, float *peaks)
{
    float most[EXL2__PANELS_LANES] = { 0 };
    for (uint32_t r = 0; r < rows; r++) {
        const float *x = strip + (size_t)r * EXL2__PANELS_LANES;
        for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
            float size = x[k] < 0 ? -x[k] : x[k];
            most[k] = most[k] > size ? most[k] : size;
        }
    }
    for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
        peaks[k] = most[k] < EXL2__QUANTIZE_MAX ? most[k] : EXL2__QUANTIZE_MAX;
    }
}

/* tries [count] f16: values of q_scale_max to try for a group whose largest absolute value is `peak`. The weights of
   the rows let smaller scales win than in quantize.h. */
static void exl2__search_tries(float peak, uint32_t bits, uint32_t count, uint16_t *tries)
{
    float lowest = exl2__quantize_range_of(bits).lowest * (bits <= 4 ? 0.8f : 0.95f), highest = 1.05f;
    for (uint32_t i = 0; i < count; i++) {
        float factor = lowest + (highest - lowest) * (float)i / (float)(count - 1);
        float scale = exl2__quantize_wide_step(peak, bits) * factor;
        tries[i] = exl2__f32_to_f16(scale > EXL2__SEARCH_LEAST ? scale : EXL2__SEARCH_LEAST);
    }
}

/* errors [32]: weighted squared error of each column with steps [32]. */
static void exl2__search_strip_errors(const float *strip, const float *weights, uint32_t rows, const float *steps,
                                      uint32_t bits, float *errors)
{
    const float zero = (float)(1u << (bits - 1)), top = (float)((1u << bits) - 1);
    float inverse[EXL2__PANELS_LANES], sum[EXL2__PANELS_LANES] = { 0 };
    for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
        inverse[k] = 1.0f / steps[k];
    }
    for (uint32_t r = 0; r < rows; r++) {
        const float *x = strip + (size_t)r * EXL2__PANELS_LANES;
        const float weight = weights[r];
        for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
            float code = x[k] * inverse[k] + (zero + 0.5f); /* + 1/2 and truncation round to nearest */
            code = code > 0.0f ? code : 0.0f;
            code = code < top ? code : top;
            float error = ((float)(int32_t)code - zero) * steps[k] - x[k];
            sum[k] += weight * error * error;
        }
    }
    memcpy(errors, sum, sizeof sum);
}

/* levels [32]: the best level of each column with these steps [17]. least [32]: its weighted squared error. */
static void exl2__search_best_levels(const float *strip, const float *weights, uint32_t rows, const float *peaks,
                                     uint32_t bits, const float *steps, uint8_t *levels, float *least)
{
    float clip = EXL2__SEARCH_CLIP * exl2__quantize_range_of(bits).clip;
    uint32_t low[EXL2__PANELS_LANES], high[EXL2__PANELS_LANES], spread = 0;
    for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
        float wide = exl2__quantize_wide_step(peaks[k], bits);
        low[k] = exl2__quantize_level_for(steps, wide * clip);
        high[k] = exl2__quantize_level_for(steps, wide);
        spread = exl2__max32(spread, high[k] - low[k]);
    }
    for (uint32_t i = 0; i <= spread; i++) {
        float column_steps[EXL2__PANELS_LANES], errors[EXL2__PANELS_LANES];
        for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
            column_steps[k] = steps[exl2__min32(low[k] + i, high[k])];
        }
        exl2__search_strip_errors(strip, weights, rows, column_steps, bits, errors);
        for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
            if (i == 0 || errors[k] < least[k]) {
                least[k] = errors[k];
                levels[k] = (uint8_t)exl2__min32(low[k] + i, high[k]);
            }
        }
    }
}

/* errors [count]: adds the weighted squared error that each try leaves in these columns. */
static void exl2__search_errors(const float *strip, const float *weights, uint32_t rows, const float *peaks,
                                uint32_t bits, const uint16_t *tries, uint32_t count, double *errors)
{
    for (uint32_t i = 0; i < count; i++) {
        float steps[17], least[EXL2__PANELS_LANES];
        uint8_t levels[EXL2__PANELS_LANES];
        exl2__quantize_steps(tries[i], steps);
        exl2__search_best_levels(strip, weights, rows, peaks, bits, steps, levels, least);
        for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
            errors[i] += (double)least[k];
        }
    }
}

/* levels [32]: the best levels, 1..16, with the chosen q_scale_max. */
static void exl2__search_levels(const float *strip, const float *weights, uint32_t rows, const float *peaks,
                                uint32_t bits, uint16_t scale_max, uint8_t *levels)
{
    float steps[17], least[EXL2__PANELS_LANES];
    exl2__quantize_steps(scale_max, steps);
    exl2__search_best_levels(strip, weights, rows, peaks, bits, steps, levels, least);
}

#endif

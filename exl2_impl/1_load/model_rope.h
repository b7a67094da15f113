/* model_rope.h: the frequencies of RoPE, with the scalings that Llama models with long contexts use.
   takes: numbers that model_config.h has checked.
   gives: exl2__rope_kind, exl2__rope, exl2__rope_frequencies.
   owns:  nothing. */
#ifndef EXL2__MODEL_ROPE_H
#define EXL2__MODEL_ROPE_H

#include "../0_base/config.h"

#include <math.h>

typedef enum exl2__rope_kind { EXL2__ROPE_PLAIN, EXL2__ROPE_LINEAR, EXL2__ROPE_LLAMA3 } exl2__rope_kind;

typedef struct exl2__rope {
    exl2__rope_kind kind;
    double theta;
    double factor;               /* LINEAR, LLAMA3 */
    double low, high;            /* LLAMA3: low_freq_factor < high_freq_factor */
    double original_context_max; /* LLAMA3: tokens */
} exl2__rope;

/* The scaling of Llama 3.1 (rope_type "llama3"): wavelengths well below the original context stay as they are, long
   ones are multiplied by `factor`, and those between are interpolated. */
static inline double exl2__rope_llama3(const exl2__rope *r, double frequency)
{
    double wavelength = 2.0 * 3.14159265358979323846 / frequency;
    if (wavelength < r->original_context_max / r->high) {
        return frequency;
    }
    if (wavelength > r->original_context_max / r->low) {
        return frequency / r->factor;
    }
    double t = (r->original_context_max / wavelength - r->low) / (r->high - r->low);
    return (1.0 - t) * frequency / r->factor + t * frequency;
}

/* frequency: [head_dim / 2] radians per position; theta^(-2i / head_dim) before scaling. LINEAR divides all of them by
   `factor`. Example for LLAMA3 with theta 500,000, head_dim 128, factor 8, low 1, high 4, original context 8,192:
   frequency 28 is 0.00321144599, unscaled; 29 is 0.00216657076; from 35 on all are an eighth of the unscaled value. */
static inline void exl2__rope_frequencies(const exl2__rope *r, uint32_t head_dim, double *frequency)
{
    for (uint32_t i = 0; i < head_dim / 2; i++) {
        double f = pow(r->theta, -2.0 * i / head_dim);
        frequency[i] = r->kind == EXL2__ROPE_LINEAR ? f / r->factor
                     : r->kind == EXL2__ROPE_LLAMA3 ? exl2__rope_llama3(r, f) : f;
    }
}

#endif

/* model_rope.h: the frequencies of RoPE, with the scalings that models with long contexts use.
   takes: numbers that model_rope_read.h has checked.
   gives: exl2__rope_kind, exl2__rope, exl2__rope_frequencies, exl2__rope_override, exl2__rope_name. */
#ifndef EXL2__MODEL_ROPE_H
#define EXL2__MODEL_ROPE_H

#include "../0_base/config.h"

#include <math.h>

/* DYNAMIC: a larger theta for contexts above the trained one (NTK). ALPHA: a larger theta for all contexts. LONGROPE: a
   divisor for each frequency, which Phi-3 calls "su". */
typedef enum exl2__rope_kind {
    EXL2__ROPE_PLAIN, EXL2__ROPE_LINEAR, EXL2__ROPE_LLAMA3, EXL2__ROPE_DYNAMIC, EXL2__ROPE_ALPHA, EXL2__ROPE_YARN,
    EXL2__ROPE_LONGROPE
} exl2__rope_kind;

#define EXL2__ROPE_HALF_MAX 128u /* half of the largest number of rotated elements */

typedef struct exl2__rope {
    exl2__rope_kind kind;
    double theta;
    double factor;               /* LINEAR, LLAMA3, DYNAMIC, YARN; of ALPHA alpha; of LONGROPE only for the magnitude */
    double low, high;            /* LLAMA3: low_freq_factor < high_freq_factor. YARN: beta_slow, beta_fast */
    double original_context_max; /* LLAMA3, DYNAMIC, YARN, LONGROPE: tokens of the first training */
    double attention_factor;     /* YARN, LONGROPE: the magnitude; 0: computed */
    double mscale, mscale_all;   /* YARN: 0 = not given */
    bool rounded;                /* YARN: the bounds of the ramp are rounded to whole frequencies (`truncate`) */
    uint32_t section[3];         /* M-RoPE: frequencies of the first, second and third axis; 0, 0, 0: one axis */
    bool interleaved;            /* the axes take turns, as long as the second and third have frequencies left */
    float short_factor[EXL2__ROPE_HALF_MAX], long_factor[EXL2__ROPE_HALF_MAX]; /* LONGROPE */
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
    return (1.0 - t) * frequency / r->factor + exl2__mul_double(t, frequency);
}

/* YaRN (arXiv:2309.00071): index of the frequency that turns `turns` times within the original context. */
static inline double exl2__rope_yarn_index(const exl2__rope *r, uint32_t rotary, double turns)
{
    return rotary * log(r->original_context_max / (turns * 2.0 * 3.14159265358979323846)) / (2.0 * log(r->theta));
}

/* Frequencies below the ramp stay, those above it are divided by `factor`, and those inside are interpolated. */
static inline double exl2__rope_yarn(const exl2__rope *r, uint32_t rotary, uint32_t i, double frequency)
{
    double low = exl2__rope_yarn_index(r, rotary, r->high), high = exl2__rope_yarn_index(r, rotary, r->low);
    low = r->rounded ? floor(low) : low;
    high = r->rounded ? ceil(high) : high;
    low = low < 0 ? 0 : low;
    high = high > rotary - 1.0 ? rotary - 1.0 : high;
    high += high <= low ? 0.001 + low - high : 0;
    double ramp = (i - low) / (high - low);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return exl2__mul_double(frequency, 1 - ramp) + exl2__mul_double(frequency / r->factor, ramp);
}

/* YaRN's magnitude for a scale of mscale. */
static inline double exl2__rope_yarn_magnitude(const exl2__rope *r, double mscale)
{
    return r->factor > 1 ? exl2__mul_double(0.1 * mscale, log(r->factor)) + 1 : 1;
}

/* The factor of cosine and sine. */
static inline double exl2__rope_magnitude(const exl2__rope *r)
{
    if (r->attention_factor > 0 || (r->kind != EXL2__ROPE_YARN && r->kind != EXL2__ROPE_LONGROPE)) {
        return r->attention_factor > 0 ? r->attention_factor : 1;
    }
    if (r->kind == EXL2__ROPE_LONGROPE) {
        return r->factor > 1 ? sqrt(1 + log(r->factor) / log(r->original_context_max)) : 1;
    }
    return r->mscale > 0 && r->mscale_all > 0
               ? exl2__rope_yarn_magnitude(r, r->mscale) / exl2__rope_yarn_magnitude(r, r->mscale_all)
               : exl2__rope_yarn_magnitude(r, 1);
}

/* frequency: [rotary / 2] radians per position; theta^(-2i / rotary) before scaling. `context`: tokens that a sequence
   may have; DYNAMIC and LONGROPE depend on it. *magnitude: the factor of cosine and sine. LINEAR divides all of them
   by `factor`. YARN applies at every context, because the model was trained with it. Example for LLAMA3 with theta
   500,000, rotary 128, factor 8, low 1, high 4, original context 8,192: frequency 28 is 0.00321144599, unscaled; 29 is
   0.00216657076; from 35 on all are an eighth of the unscaled value. */
static inline void exl2__rope_frequencies(const exl2__rope *r, uint32_t rotary, uint32_t context, double *frequency,
                                          double *magnitude)
{
    bool longer = (double)context > r->original_context_max;
    double theta = r->theta, power = rotary > 2 ? (double)rotary / (rotary - 2.0) : 1;
    *magnitude = exl2__rope_magnitude(r);
    if (r->kind == EXL2__ROPE_DYNAMIC && longer) {
        theta *= pow(r->factor * context / r->original_context_max - (r->factor - 1), power);
    } else if (r->kind == EXL2__ROPE_ALPHA) {
        theta *= pow(r->factor, power);
    }
    for (uint32_t i = 0; i < rotary / 2; i++) {
        double f = pow(theta, -2.0 * i / rotary);
        frequency[i] = r->kind == EXL2__ROPE_LINEAR ? f / r->factor
                     : r->kind == EXL2__ROPE_LLAMA3 ? exl2__rope_llama3(r, f)
                     : r->kind == EXL2__ROPE_YARN ? exl2__rope_yarn(r, rotary, i, f)
                     : r->kind == EXL2__ROPE_LONGROPE ? f / (double)(longer ? r->long_factor : r->short_factor)[i] : f;
    }
}

/* Settings of the application: 0 = as the model has it. alpha: theta * alpha^(rotary / (rotary - 2)), which every other
   scaling starts from. scale and yarn: LINEAR or YARN by this factor replaces the model's own scaling, 1 = plain RoPE.
   They are factors of the original context of the model's own scaling, or else of `context_max`, the tokens that the
   model was trained for. Returns the context that the model has with them. */
static inline double exl2__rope_override(exl2__rope *r, uint32_t rotary, uint32_t context_max, double scale,
                                         double alpha, double yarn)
{
    if (alpha > 0) {
        r->theta *= pow(alpha, rotary > 2 ? (double)rotary / (rotary - 2.0) : 1);
    }
    if (scale > 0) {
        r->kind = EXL2__ROPE_LINEAR;
        r->factor = scale;
    }
    if (scale > 0 || yarn > 0) {
        r->original_context_max = r->original_context_max > 0 ? r->original_context_max : context_max;
        r->attention_factor = r->mscale = r->mscale_all = 0;
    }
    if (yarn > 0) {
        r->kind = EXL2__ROPE_YARN;
        r->factor = yarn;
        r->low = 1;
        r->high = 32;
        r->rounded = true;
    }
    double context = scale > 0 || yarn > 0 ? r->original_context_max : context_max;
    return context * (scale > 0 ? scale : yarn > 0 ? yarn : 1) * (alpha > 0 ? alpha : 1);
}

/* The name of what is computed for a context: a scaling that changes nothing there is "plain". */
static inline const char *exl2__rope_name(const exl2__rope *r, uint32_t context)
{
    static const char *const names[] = { "plain", "linear", "llama3", "dynamic", "alpha", "yarn", "longrope" };
    bool nothing = r->kind == EXL2__ROPE_DYNAMIC ? (double)context <= r->original_context_max
                 : r->kind != EXL2__ROPE_LONGROPE && r->factor == 1 && r->attention_factor <= 0;
    return names[nothing ? EXL2__ROPE_PLAIN : r->kind];
}

#endif

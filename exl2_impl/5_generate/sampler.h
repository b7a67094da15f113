/* sampler.h: what a host's sampler settings mean: presets, the model's own defaults, range checks.
   takes: exl2_sampler_desc, what generation_config.json says.
   gives: exl2__sampler_resolve, exl2__sampler_make, exl2__sampler_penalty_range.
   owns:  nothing; the bias list stays the host's.
   next:  ../3_backend/cpu_sample.h */
#ifndef EXL2__SAMPLER_H
#define EXL2__SAMPLER_H

#include "../0_base/half.h"
#include "../2_graph/phases.h"

/* generation_config.json, as far as it samples: has_x = the key is there. */
typedef struct exl2__generation_defaults {
    bool has_do_sample, has_temperature, has_top_k, has_top_p, has_min_p, has_repetition_penalty;
    bool do_sample;
    int32_t top_k;
    float temperature, top_p, min_p, repetition_penalty;
} exl2__generation_defaults;

#define EXL2__SAMPLER_COLDEST 0.01f /* a lower temperature means the likeliest token */

/* ---- presets: numbers for every field, EXL2_OFF for a filter that is off ---- */

static inline exl2_sampler_desc exl2__sampler_neutral(void)
{
    exl2_sampler_desc d = { .preset = EXL2_PRESET_NEUTRAL, .temperature = 1.0f, .top_k = EXL2_OFF, .top_p = EXL2_OFF,
                            .min_p = EXL2_OFF, .repeat_penalty = EXL2_OFF, .penalty_range = 256 };
    return d;
}

static inline exl2_sampler_desc exl2__sampler_greedy(void)
{
    exl2_sampler_desc d = exl2__sampler_neutral();
    d.preset = EXL2_PRESET_GREEDY;
    d.top_k = 1;
    return d;
}

static inline exl2_sampler_desc exl2__sampler_balanced(void)
{
    exl2_sampler_desc d = exl2__sampler_neutral();
    d.preset = EXL2_PRESET_BALANCED;
    d.temperature = 0.8f;
    d.min_p = 0.05f;
    d.repeat_penalty = 1.1f;
    return d;
}

/* ---- one field at a time ---- */

static inline bool exl2__sampler_between(float value, float low, float high)
{
    return exl2__float_is_finite(value) && value >= low && value <= high;
}

/* Fields of `over` that are not 0 replace those of *out, after a range check; `origin` begins the sentence. */
static exl2_result exl2__sampler_overlay(exl2__ctx *c, exl2_result code, const char *origin, const exl2_sampler_desc *over,
                                         exl2_sampler_desc *out)
{
    const float off = EXL2_OFF;
    if (over->temperature != off && !exl2__sampler_between(over->temperature, 0, 1e6f)) {
        return exl2__fail(c, code, "%s: temperature must lie in 0 to 1000000, or be EXL2_OFF", origin);
    }
    if (over->top_k != EXL2_OFF && over->top_k < 0) {
        return exl2__fail(c, code, "%s: top_k is %d; it must be positive, or EXL2_OFF", origin, (int)over->top_k);
    }
    if (over->top_p != off && !exl2__sampler_between(over->top_p, 0, 1)) {
        return exl2__fail(c, code, "%s: top_p must lie in 0 to 1, or be EXL2_OFF", origin);
    }
    if (over->min_p != off && !exl2__sampler_between(over->min_p, 0, 1)) {
        return exl2__fail(c, code, "%s: min_p must lie in 0 to 1, or be EXL2_OFF", origin);
    }
    if (over->repeat_penalty != off && !exl2__sampler_between(over->repeat_penalty, 0, 1e6f)) {
        return exl2__fail(c, code, "%s: the repeat penalty must lie in 0 to 1000000, or be EXL2_OFF", origin);
    }
    if (over->penalty_range != EXL2_OFF && over->penalty_range < -1) {
        return exl2__fail(c, code, "%s: penalty_range is %d; it must be positive, -1 for all, or EXL2_OFF", origin,
                          (int)over->penalty_range);
    }
    if (over->temperature != 0) {
        out->temperature = over->temperature == off ? 1.0f : over->temperature;
    }
    if (over->top_k != 0) {
        out->top_k = over->top_k;
    }
    if (over->top_p != 0) {
        out->top_p = over->top_p == 1.0f ? off : over->top_p;
    }
    if (over->min_p != 0) {
        out->min_p = over->min_p;
    }
    if (over->repeat_penalty != 0) {
        out->repeat_penalty = over->repeat_penalty == 1.0f ? off : over->repeat_penalty;
    }
    if (over->penalty_range != 0) {
        out->penalty_range = over->penalty_range;
    }
    return EXL2_OK;
}

/* generation_config.json over BALANCED. do_sample false is greedy, where only the model's own repetition penalty
   stays. In that file 0 is a value: temperature 0 is greedy, and a filter of 0 is off. */
static exl2_result exl2__sampler_model(exl2__ctx *c, const exl2__generation_defaults *model, exl2_sampler_desc *out)
{
    bool greedy = (model->has_do_sample && !model->do_sample) || (model->has_temperature && model->temperature == 0);
    exl2_sampler_desc over = { 0 };
    if (!greedy) {
        over.temperature = model->has_temperature ? model->temperature : 0;
        over.top_k = !model->has_top_k ? 0 : model->top_k == 0 ? EXL2_OFF : model->top_k;
        over.top_p = !model->has_top_p ? 0 : model->top_p == 0 ? EXL2_OFF : model->top_p;
        over.min_p = !model->has_min_p ? 0 : model->min_p == 0 ? EXL2_OFF : model->min_p;
    }
    if (model->has_repetition_penalty) {
        over.repeat_penalty = model->repetition_penalty == 0 ? EXL2_OFF : model->repetition_penalty;
    }
    *out = greedy ? exl2__sampler_greedy() : exl2__sampler_balanced();
    out->preset = EXL2_PRESET_MODEL;
    return exl2__sampler_overlay(c, EXL2_ERR_FORMAT, "generation_config.json (choose another preset to do without it)", &over, out);
}

static exl2_result exl2__sampler_check_bias(exl2__ctx *c, const exl2_sampler_desc *d)
{
    if (d->bias_count > 0 && !d->bias) {
        return exl2__fail(c, EXL2_ERR_ARG, "sampler: bias is NULL, but bias_count is %u", (unsigned)d->bias_count);
    }
    for (uint32_t i = 0; i < d->bias_count; i++) {
        if (d->bias[i].token < 0) {
            return exl2__fail(c, EXL2_ERR_ARG, "sampler: bias %u is for token %d; ids begin at 0", (unsigned)i, (int)d->bias[i].token);
        }
        if (exl2__float_is_nan(d->bias[i].add)) {
            return exl2__fail(c, EXL2_ERR_ARG, "sampler: bias %u, for token %d, is not a number", (unsigned)i, (int)d->bias[i].token);
        }
    }
    return EXL2_OK;
}

/* ---- for the engine ---- */

/* *out: d with every 0 replaced by the preset's number (d NULL: all 0). In it temperature is a number above 0 (off
   is 1), and a filter that is off says EXL2_OFF, also where its value was the neutral one (top_p 1, repeat_penalty 1).
   Greedy is top_k 1. Preset, seed and the bias list are d's own; resolving *out again changes nothing.
   EXL2_ERR_ARG: a setting out of range; EXL2_ERR_FORMAT: one of the model's is. */
static exl2_result exl2__sampler_resolve(exl2__ctx *c, const exl2__generation_defaults *model, const exl2_sampler_desc *d,
                                         exl2_sampler_desc *out)
{
    const exl2_sampler_desc zeroed = { 0 };
    exl2_sampler_desc resolved;
    *out = zeroed;
    d = d ? d : &zeroed;
    EXL2__TRY(exl2__sampler_check_bias(c, d));
    switch (d->preset) {
    case EXL2_PRESET_MODEL:
        EXL2__TRY(exl2__sampler_model(c, model, &resolved));
        break;
    case EXL2_PRESET_NEUTRAL:
        resolved = exl2__sampler_neutral();
        break;
    case EXL2_PRESET_GREEDY:
        resolved = exl2__sampler_greedy();
        break;
    case EXL2_PRESET_BALANCED:
        resolved = exl2__sampler_balanced();
        break;
    default:
        return exl2__fail(c, EXL2_ERR_ARG, "sampler: there is no preset %d", (int)d->preset);
    }
    EXL2__TRY(exl2__sampler_overlay(c, EXL2_ERR_ARG, "sampler", d, &resolved));
    resolved.seed = d->seed;
    resolved.bias = d->bias;
    resolved.bias_count = d->bias_count;
    *out = resolved;
    return EXL2_OK;
}

/* How many tokens back the repeat penalty looks: 0 = none, -1 = all. */
static inline int32_t exl2__sampler_penalty_range(const exl2_sampler_desc *resolved)
{
    bool off = resolved->repeat_penalty == (float)EXL2_OFF || resolved->penalty_range == EXL2_OFF;
    return off ? 0 : resolved->penalty_range;
}

/* *out: the same for a backend; it points to the bias list of `resolved`. */
static inline void exl2__sampler_make(const exl2_sampler_desc *resolved, uint64_t seed, exl2__sampling *out)
{
    const float off = EXL2_OFF;
    out->greedy = resolved->top_k == 1 || resolved->temperature < EXL2__SAMPLER_COLDEST;
    out->top_k = resolved->top_k == EXL2_OFF ? 0 : (uint32_t)resolved->top_k;
    out->temperature = resolved->temperature;
    out->top_p = resolved->top_p == off ? 1.0f : resolved->top_p;
    out->min_p = resolved->min_p == off ? 0.0f : resolved->min_p;
    out->repeat_penalty = exl2__sampler_penalty_range(resolved) == 0 ? 1.0f : resolved->repeat_penalty;
    out->seed = seed;
    out->bias = resolved->bias;
    out->bias_count = resolved->bias_count;
}

#endif

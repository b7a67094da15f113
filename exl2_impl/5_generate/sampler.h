/* sampler.h: what a host's sampler settings mean: presets, the model's own defaults, range checks.
   takes: exl2_sampler_desc, the defaults of generation_config.json (checked by the loader).
   gives: exl2__sampler_resolve, exl2__sampler_make, exl2__sampler_penalty_range.
   owns:  nothing; the bias list stays the host's.
   next:  ../3_backend/cpu_sample.h */
#ifndef EXL2__SAMPLER_H
#define EXL2__SAMPLER_H

#include "../0_base/half.h"
#include "../1_load/model_config.h"
#include "../2_graph/phases.h"

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

/* 0, off, or low..high. Bits come first: under -ffast-math any comparison with a NaN may be taken as true. */
static inline bool exl2__sampler_fits(float value, float low, float high)
{
    return exl2__float_is_finite(value) && (value == 0 || value == (float)EXL2_OFF || (value >= low && value <= high));
}

static exl2_result exl2__sampler_check_bias(exl2__ctx *c, const exl2_sampler_desc *d)
{
    if (d->bias_count > 0 && !d->bias) {
        return exl2__fail(c, EXL2_ERR_ARG, "sampler: bias is NULL, but bias_count is %u", (unsigned)d->bias_count);
    }
    for (uint32_t i = 0; i < d->bias_count; i++) {
        if (d->bias[i].token < 0) {
            return exl2__fail(c, EXL2_ERR_ARG, "sampler: bias %u is for token %d; ids begin at 0", (unsigned)i,
                              (int)d->bias[i].token);
        }
        if (exl2__float_is_nan(d->bias[i].add)) {
            return exl2__fail(c, EXL2_ERR_ARG, "sampler: bias %u, for token %d, is not a number", (unsigned)i,
                              (int)d->bias[i].token);
        }
    }
    return EXL2_OK;
}

/* The host's desc. The loader has checked the same of generation_config.json. */
static exl2_result exl2__sampler_check(exl2__ctx *c, const exl2_sampler_desc *d)
{
    if (!exl2__sampler_fits(d->temperature, 0, 1000)) {
        return exl2__fail(c, EXL2_ERR_ARG, "sampler: temperature must lie in 0 to 1000, or be EXL2_OFF");
    }
    if (d->top_k != EXL2_OFF && d->top_k < 0) {
        return exl2__fail(c, EXL2_ERR_ARG, "sampler: top_k is %d; it must be positive, or EXL2_OFF", (int)d->top_k);
    }
    if (!exl2__sampler_fits(d->top_p, 0, 1)) {
        return exl2__fail(c, EXL2_ERR_ARG, "sampler: top_p must lie in 0 to 1, or be EXL2_OFF");
    }
    if (!exl2__sampler_fits(d->min_p, 0, 1)) {
        return exl2__fail(c, EXL2_ERR_ARG, "sampler: min_p must lie in 0 to 1, or be EXL2_OFF");
    }
    if (!exl2__sampler_fits(d->repeat_penalty, 0.01f, 100)) {
        return exl2__fail(c, EXL2_ERR_ARG, "sampler: repeat_penalty must lie in 0.01 to 100, or be EXL2_OFF");
    }
    if (d->penalty_range != EXL2_OFF && d->penalty_range < -1) {
        return exl2__fail(c, EXL2_ERR_ARG, "sampler: penalty_range is %d; it must be positive, -1 for all, or EXL2_OFF",
                          (int)d->penalty_range);
    }
    return exl2__sampler_check_bias(c, d);
}

/* Numbers of `over` that are not 0 replace those of *out; neutral ones become EXL2_OFF. */
static void exl2__sampler_overlay(const exl2_sampler_desc *over, exl2_sampler_desc *out)
{
    const float off = EXL2_OFF;
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
}

/* A number of generation_config.json as a field of a desc: there 0 is a value and means off. */
static inline float exl2__sampler_model_field(bool has, float value)
{
    return !has ? 0.0f : value == 0 ? (float)EXL2_OFF : value;
}

/* generation_config.json over BALANCED. do_sample false or temperature 0 is greedy, where only the model's own
   repetition penalty stays. */
static exl2_sampler_desc exl2__sampler_model(const exl2__config_defaults *model)
{
    bool greedy = (model->has_do_sample && !model->do_sample) || (model->has_temperature && model->temperature == 0);
    exl2_sampler_desc d = greedy ? exl2__sampler_greedy() : exl2__sampler_balanced(), over = { 0 };
    if (!greedy) {
        over.temperature = model->has_temperature ? model->temperature : 0;
        over.top_k = !model->has_top_k ? 0 : model->top_k == 0 ? EXL2_OFF : (int32_t)model->top_k;
        over.top_p = exl2__sampler_model_field(model->has_top_p, model->top_p);
        over.min_p = exl2__sampler_model_field(model->has_min_p, model->min_p);
    }
    over.repeat_penalty = exl2__sampler_model_field(model->has_repeat_penalty, model->repeat_penalty);
    exl2__sampler_overlay(&over, &d);
    d.preset = EXL2_PRESET_MODEL;
    return d;
}

/* ---- for the engine ---- */

/* *out: d with every 0 replaced by the preset's number (d NULL: all 0). In it temperature is a number above 0 (off
   is 1), and a filter that is off says EXL2_OFF, also where its value was the neutral one (top_p 1, repeat_penalty 1).
   Greedy is top_k 1 or a temperature below 0.01. Preset, seed and the bias list are d's own; resolving *out again
   changes nothing. EXL2_ERR_ARG: a setting out of range; *out is then zeroed. It may be *d. */
EXL2__COLD
static exl2_result exl2__sampler_resolve(exl2__ctx *c, const exl2__config_defaults *model, const exl2_sampler_desc *d,
                                         exl2_sampler_desc *out)
{
    const exl2_sampler_desc zeroed = { 0 };
    exl2_sampler_desc given = d ? *d : zeroed, resolved; /* out may be d */
    *out = zeroed;
    EXL2__TRY(exl2__sampler_check(c, &given));
    switch (given.preset) {
    case EXL2_PRESET_MODEL:
        resolved = exl2__sampler_model(model);
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
        return exl2__fail(c, EXL2_ERR_ARG, "sampler: there is no preset %d", (int)given.preset);
    }
    exl2__sampler_overlay(&given, &resolved);
    resolved.seed = given.seed;
    resolved.bias = given.bias;
    resolved.bias_count = given.bias_count;
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

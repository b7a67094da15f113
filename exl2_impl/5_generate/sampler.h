/* sampler.h: resolves the application's sampler settings: presets, the model's own defaults, range checks.
   takes: exl2_sampler_desc, the defaults of generation_config.json (checked by the loader).
   gives: exl2__sampler_resolve, exl2__sampler_make, exl2__sampler_dry, exl2__sampler_penalty_range.
   owns:  nothing; lists belong to the application. */
#ifndef EXL2__SAMPLER_H
#define EXL2__SAMPLER_H

#include "../0_base/half.h"
#include "../1_load/model_config.h"
#include "dry.h"

#include <stddef.h>

#define EXL2__SAMPLER_GREEDY_BELOW 0.01f /* a lower temperature means greedy sampling */

/* ---- the numbers of a desc ---- */

/* usual: default of all presets. off: the value that replaces EXL2_OFF. neutral: a value with the meaning of EXL2_OFF.
   */
typedef struct exl2__sampler_number {
    uint16_t at; /* offset in exl2_sampler_desc */
    const char *name, *range;
    float low, high, usual, off, neutral;
} exl2__sampler_number;

/* clang-format off */
#define EXL2__SAMPLER_FLOAT(name, low, high, range, usual, off, neutral) \
    { (uint16_t)offsetof(exl2_sampler_desc, name), #name, range, low, high, usual, off, neutral }
/* clang-format on */

static const exl2__sampler_number exl2__sampler_floats[] = {
    EXL2__SAMPLER_FLOAT(temperature, 0, 1000, "0 to 1000", 1, 1, EXL2_OFF),
    EXL2__SAMPLER_FLOAT(top_p, 0, 1, "0 to 1", EXL2_OFF, EXL2_OFF, 1),
    EXL2__SAMPLER_FLOAT(min_p, 0, 1, "0 to 1", EXL2_OFF, EXL2_OFF, EXL2_OFF),
    EXL2__SAMPLER_FLOAT(top_a, 0, 1, "0 to 1", EXL2_OFF, EXL2_OFF, EXL2_OFF),
    EXL2__SAMPLER_FLOAT(tail_free, 0, 1, "0 to 1", EXL2_OFF, EXL2_OFF, 1),
    EXL2__SAMPLER_FLOAT(typical, 0, 1, "0 to 1", EXL2_OFF, EXL2_OFF, 1),
    EXL2__SAMPLER_FLOAT(smoothing, 0, 100, "0 to 100", EXL2_OFF, EXL2_OFF, EXL2_OFF),
    EXL2__SAMPLER_FLOAT(skew, -10, 10, "-10 to 10", EXL2_OFF, EXL2_OFF, EXL2_OFF),
    EXL2__SAMPLER_FLOAT(dynamic_min, 0, 1000, "0 to 1000", EXL2_OFF, EXL2_OFF, EXL2_OFF),
    EXL2__SAMPLER_FLOAT(dynamic_max, 0, 1000, "0 to 1000", EXL2_OFF, EXL2_OFF, EXL2_OFF),
    EXL2__SAMPLER_FLOAT(dynamic_exponent, 0, 100, "0 to 100", 1, 1, EXL2_OFF),
    EXL2__SAMPLER_FLOAT(repeat_penalty, 0.01f, 100, "0.01 to 100", EXL2_OFF, EXL2_OFF, 1),
    EXL2__SAMPLER_FLOAT(frequency_penalty, -100, 100, "-100 to 100", EXL2_OFF, EXL2_OFF, EXL2_OFF),
    EXL2__SAMPLER_FLOAT(presence_penalty, -100, 100, "-100 to 100", EXL2_OFF, EXL2_OFF, EXL2_OFF),
    EXL2__SAMPLER_FLOAT(dry_multiplier, 0, 1000, "0 to 1000", EXL2_OFF, EXL2_OFF, EXL2_OFF),
    EXL2__SAMPLER_FLOAT(dry_base, 1, 100, "1 to 100", 1.75f, 1.75f, EXL2_OFF),
    EXL2__SAMPLER_FLOAT(xtc_probability, 0, 1, "0 to 1", EXL2_OFF, EXL2_OFF, EXL2_OFF),
    EXL2__SAMPLER_FLOAT(xtc_threshold, 0, 1, "0 to 1", 0.1f, 0.1f, EXL2_OFF),
    EXL2__SAMPLER_FLOAT(mirostat_tau, 0, 100, "0 to 100", EXL2_OFF, EXL2_OFF, EXL2_OFF),
    EXL2__SAMPLER_FLOAT(mirostat_eta, 0, 10, "0 to 10", 0.1f, 0.1f, EXL2_OFF),
    EXL2__SAMPLER_FLOAT(adaptive_target, 0, 1, "0 to 1", EXL2_OFF, EXL2_OFF, EXL2_OFF),
    EXL2__SAMPLER_FLOAT(adaptive_decay, 0, 0.99f, "0 to 0.99", 0.9f, EXL2_OFF, EXL2_OFF),
};

typedef struct exl2__sampler_count { /* a number of tokens; all: -1 is allowed and means all tokens */
    uint16_t at;
    bool all;
    const char *name;
    int32_t usual, off;
} exl2__sampler_count;

/* clang-format off */
#define EXL2__SAMPLER_INT(name, all, usual, off) \
    { (uint16_t)offsetof(exl2_sampler_desc, name), all, #name, usual, off }
/* clang-format on */

static const exl2__sampler_count exl2__sampler_ints[] = {
    EXL2__SAMPLER_INT(top_k, false, EXL2_OFF, EXL2_OFF),
    EXL2__SAMPLER_INT(penalty_range, true, 256, EXL2_OFF),
    EXL2__SAMPLER_INT(penalty_decay, false, EXL2_OFF, EXL2_OFF),
    EXL2__SAMPLER_INT(dry_allowed, false, 2, 2),
    EXL2__SAMPLER_INT(dry_range, true, -1, -1),
    EXL2__SAMPLER_INT(dry_match_max, false, 20, 20),
};

static inline float *exl2__sampler_float(exl2_sampler_desc *d, uint32_t i)
{
    return (float *)(void *)((char *)d + exl2__sampler_floats[i].at);
}

static inline int32_t *exl2__sampler_int(exl2_sampler_desc *d, uint32_t i)
{
    return (int32_t *)(void *)((char *)d + exl2__sampler_ints[i].at);
}

/* ---- presets: a number for every field; EXL2_OFF for a filter that is off ---- */

EXL2__PRIVATE exl2_sampler_desc exl2__sampler_neutral(void)
{
    exl2_sampler_desc d = { .preset = EXL2_PRESET_NEUTRAL };
    for (uint32_t i = 0; i < EXL2__COUNT(exl2__sampler_floats); i++) {
        *exl2__sampler_float(&d, i) = exl2__sampler_floats[i].usual;
    }
    for (uint32_t i = 0; i < EXL2__COUNT(exl2__sampler_ints); i++) {
        *exl2__sampler_int(&d, i) = exl2__sampler_ints[i].usual;
    }
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

/* ---- checks ---- */

/* Is it 0, EXL2_OFF, or low..high? NaN is excluded first, by its bits: under -ffast-math comparisons with a NaN may be
   true. */
static inline bool exl2__sampler_fits(float value, float low, float high)
{
    return exl2__float_is_finite(value) && (value == 0 || value == (float)EXL2_OFF || (value >= low && value <= high));
}

EXL2__PRIVATE exl2_result exl2__sampler_check_bias(exl2__ctx *c, const exl2_sampler_desc *d)
{
    for (uint32_t i = 0; i < d->bias_count; i++) {
        if (d->bias[i].token < 0) {
            return exl2__fail(c, EXL2_ERR_ARG, "sampler: bias %u is for token %d, but ids begin at 0", (unsigned)i,
                              (int)d->bias[i].token);
        }
        if (exl2__float_is_nan(d->bias[i].add)) {
            return exl2__fail(c, EXL2_ERR_ARG, "sampler: bias %u, for token %d, is not a number", (unsigned)i,
                              (int)d->bias[i].token);
        }
    }
    return EXL2_OK;
}

/* Fails if a list has a count but no items. Token ids in the lists are checked later, against the vocabulary. */
EXL2__PRIVATE exl2_result exl2__sampler_check_lists(exl2__ctx *c, const exl2_sampler_desc *d)
{
    const struct {
        const char *name;
        const void *items;
        uint32_t count;
    } lists[] = { { "bias", d->bias, d->bias_count },
                  { "allow", d->allow, d->allow_count },
                  { "ban", d->ban, d->ban_count },
                  { "xtc_keep", d->xtc_keep, d->xtc_keep_count },
                  { "dry_breaker", d->dry_breakers, d->dry_breaker_count } };
    for (uint32_t i = 0; i < EXL2__COUNT(lists); i++) {
        if (lists[i].count > 0 && !lists[i].items) {
            return exl2__fail(c, EXL2_ERR_ARG, "sampler: %s is NULL, but %s_count is %u", lists[i].name, lists[i].name,
                              (unsigned)lists[i].count);
        }
    }
    return exl2__sampler_check_bias(c, d);
}

/* Checks the application's desc. (The loader has checked the values of generation_config.json.) */
EXL2__PRIVATE exl2_result exl2__sampler_check(exl2__ctx *c, exl2_sampler_desc *d)
{
    for (uint32_t i = 0; i < EXL2__COUNT(exl2__sampler_floats); i++) {
        const exl2__sampler_number *n = &exl2__sampler_floats[i];
        if (!exl2__sampler_fits(*exl2__sampler_float(d, i), n->low, n->high)) {
            return exl2__fail(c, EXL2_ERR_ARG, "sampler: %s must be in the range %s, or be EXL2_OFF", n->name,
                              n->range);
        }
    }
    for (uint32_t i = 0; i < EXL2__COUNT(exl2__sampler_ints); i++) {
        int32_t value = *exl2__sampler_int(d, i);
        if (value != EXL2_OFF && value < (exl2__sampler_ints[i].all ? -1 : 0)) {
            return exl2__fail(c, EXL2_ERR_ARG, "sampler: %s is %d; it must be positive, %sor EXL2_OFF",
                              exl2__sampler_ints[i].name, (int)value, exl2__sampler_ints[i].all ? "-1 for all, " : "");
        }
    }
    return exl2__sampler_check_lists(c, d);
}

/* ---- one desc over another ---- */

/* Numbers of `over` that are not 0 replace those of *out; a neutral value becomes EXL2_OFF. */
EXL2__PRIVATE void exl2__sampler_overlay(exl2_sampler_desc *over, exl2_sampler_desc *out)
{
    for (uint32_t i = 0; i < EXL2__COUNT(exl2__sampler_floats); i++) {
        const exl2__sampler_number *n = &exl2__sampler_floats[i];
        float value = *exl2__sampler_float(over, i);
        if (value != 0) {
            *exl2__sampler_float(out, i) = value == (float)EXL2_OFF || value == n->neutral ? n->off : value;
        }
    }
    for (uint32_t i = 0; i < EXL2__COUNT(exl2__sampler_ints); i++) {
        int32_t value = *exl2__sampler_int(over, i);
        if (value != 0) {
            *exl2__sampler_int(out, i) = value == EXL2_OFF ? exl2__sampler_ints[i].off : value;
        }
    }
}

/* Converts a number of generation_config.json, where 0 means off, to a field of a desc, where 0 means "not set". */
static inline float exl2__sampler_model_field(bool has, float value)
{
    return !has ? 0.0f : value == 0 ? (float)EXL2_OFF : value;
}

/* The values of generation_config.json over BALANCED. With do_sample false or temperature 0 it is GREEDY, and only the
   model's repetition penalty is used. */
EXL2__PRIVATE exl2_sampler_desc exl2__sampler_model(const exl2__config_defaults *model)
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

static inline bool exl2__sampler_is_greedy(const exl2_sampler_desc *resolved)
{
    return resolved->greedy || resolved->top_k == 1 || resolved->temperature < EXL2__SAMPLER_GREEDY_BELOW;
}

/* *out: a copy of *d (NULL: all 0) in which the preset's number replaces every 0. Its temperature is greater than 0
   (off is 1), and a filter that is off has the value EXL2_OFF, also where its value was neutral (top_p 1,
   repeat_penalty 1). Its greedy is true if d says so, and with top_k 1 or a temperature below 0.01. Resolving *out
   again changes nothing. `out` may be `d`. EXL2_ERR_ARG: a setting is out of range; *out is then zeroed. */
EXL2__PRIVATE exl2_result exl2__sampler_resolve(exl2__ctx *c, const exl2__config_defaults *model,
                                                const exl2_sampler_desc *d, exl2_sampler_desc *out)
{
    const exl2_sampler_desc zeroed = { 0 };
    exl2_sampler_desc given = d ? *d : zeroed, preset, resolved = given; /* out may be d */
    *out = zeroed;
    EXL2__TRY(exl2__sampler_check(c, &given));
    switch (given.preset) {
    case EXL2_PRESET_MODEL:
        preset = exl2__sampler_model(model);
        break;
    case EXL2_PRESET_NEUTRAL:
        preset = exl2__sampler_neutral();
        break;
    case EXL2_PRESET_GREEDY:
        preset = exl2__sampler_greedy();
        break;
    case EXL2_PRESET_BALANCED:
        preset = exl2__sampler_balanced();
        break;
    default:
        return exl2__fail(c, EXL2_ERR_ARG, "sampler: preset %d does not exist", (int)given.preset);
    }
    preset = given.greedy ? exl2__sampler_greedy() : preset;
    exl2__sampler_overlay(&given, &preset);
    if (preset.mirostat_tau > 0 && preset.adaptive_target > 0) {
        return exl2__fail(c, EXL2_ERR_ARG, "sampler: mirostat_tau and adaptive_target are both set; set one of them");
    }
    exl2__sampler_overlay(&preset, &resolved); /* no number of a preset is 0, so all are copied */
    resolved.greedy = exl2__sampler_is_greedy(&resolved);
    *out = resolved;
    return EXL2_OK;
}

/* The value, or 0 for a filter that is off. */
static inline float exl2__sampler_or_0(float value)
{
    return value == (float)EXL2_OFF ? 0 : value;
}

/* Number of last tokens that the penalties look at: 0 = none, -1 = all. */
static inline int32_t exl2__sampler_penalty_range(const exl2_sampler_desc *resolved)
{
    const float off = EXL2_OFF;
    if ((resolved->repeat_penalty == off && resolved->frequency_penalty == off && resolved->presence_penalty == off)
        || resolved->penalty_range == EXL2_OFF) {
        return 0;
    }
    int32_t decay = resolved->penalty_decay == EXL2_OFF ? 0 : resolved->penalty_decay;
    return resolved->penalty_range < 0 ? -1 : (int32_t)exl2__min64((uint64_t)resolved->penalty_range
                                                                       + (uint64_t)decay, INT32_MAX);
}

/* *out: the same settings in the form that backends use; it points to the lists of `resolved`. out->xtc_keeps is left
   NULL. */
EXL2__PRIVATE void exl2__sampler_make(const exl2_sampler_desc *resolved, uint64_t seed, exl2__sampling *out)
{
    const float off = EXL2_OFF;
    bool looks_back = exl2__sampler_penalty_range(resolved) != 0;
    *out = (exl2__sampling){ 0 };
    out->greedy = exl2__sampler_is_greedy(resolved);
    out->top_k = resolved->top_k == EXL2_OFF ? 0 : (uint32_t)resolved->top_k;
    out->temperature = resolved->temperature;
    out->top_p = resolved->top_p == off ? 1.0f : resolved->top_p;
    out->min_p = exl2__sampler_or_0(resolved->min_p);
    out->repeat_penalty = !looks_back || resolved->repeat_penalty == off ? 1.0f : resolved->repeat_penalty;
    out->seed = seed;
    out->bias = resolved->bias;
    out->bias_count = resolved->bias_count;
    if (looks_back) {
        out->frequency_penalty = exl2__sampler_or_0(resolved->frequency_penalty);
        out->presence_penalty = exl2__sampler_or_0(resolved->presence_penalty);
    }
    if (resolved->penalty_range > 0 && resolved->penalty_decay > 0) {
        out->penalty_range = (uint32_t)resolved->penalty_range;
        out->penalty_decay = (uint32_t)resolved->penalty_decay;
    }
    if (out->greedy) { /* no filter removes the most likely token */
        return;
    }
    out->temperature_last = resolved->temperature_last;
    out->smoothing = exl2__sampler_or_0(resolved->smoothing);
    out->top_a = exl2__sampler_or_0(resolved->top_a);
    out->tail_free = exl2__sampler_or_0(resolved->tail_free);
    out->typical = exl2__sampler_or_0(resolved->typical);
    out->skew = exl2__sampler_or_0(resolved->skew);
    out->dynamic_min = exl2__sampler_or_0(resolved->dynamic_min);
    out->dynamic_max = exl2__sampler_or_0(resolved->dynamic_max);
    out->dynamic_exponent = resolved->dynamic_exponent;
    out->xtc_probability = exl2__sampler_or_0(resolved->xtc_probability);
    out->xtc_threshold = resolved->xtc_threshold;
    out->mirostat_tau = exl2__sampler_or_0(resolved->mirostat_tau);
    out->mirostat_eta = resolved->mirostat_eta;
    out->adaptive_target = exl2__sampler_or_0(resolved->adaptive_target);
    out->adaptive_decay = exl2__sampler_or_0(resolved->adaptive_decay);
    out->state = out->mirostat_tau > 0 ? 2 * out->mirostat_tau : out->adaptive_target;
}

/* DRY settings; out->breaks is left NULL. */
static inline void exl2__sampler_dry(const exl2_sampler_desc *resolved, exl2__dry *out)
{
    *out = (exl2__dry){ .multiplier = exl2__sampler_or_0(resolved->dry_multiplier), .base = resolved->dry_base,
                        .allowed = (uint32_t)resolved->dry_allowed, .match_max = (uint32_t)resolved->dry_match_max,
                        .range = resolved->dry_range < 0 ? 0 : (uint32_t)resolved->dry_range };
}

#endif

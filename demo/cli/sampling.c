/* sampling.c: see sampling.h.
   takes: flags.
   gives: what sampling.h declares. */
#include "sampling.h"

#include <stdlib.h>
#include <string.h>

static bool given(float value)
{
    return value < SAMPLING_NOT_GIVEN || value > SAMPLING_NOT_GIVEN;
}

sampling_options sampling_defaults(void)
{
    sampling_options o = { 0 };
#define X(flag, name, low, high, help) o.name = SAMPLING_NOT_GIVEN;
    SAMPLING_NUMBERS(X)
#undef X
#define X(flag, name, all, help) o.name = UINT32_MAX;
    SAMPLING_COUNTS(X)
#undef X
    return o;
}

/* In a desc 0 means the preset's value; here 0 is a value, too. */
static args_result take_number(const args_desc *d, const char *flag, float value, float low, float high, float *out)
{
    if (!given(value)) {
        return ARGS_OK;
    }
    if (!(value >= low && value <= high)) {
        return args_wrong(d, "%s must be %g to %g", flag, (double)low, (double)high);
    }
    *out = value < 0 || value > 0 ? value : EXL2_OFF;
    return ARGS_OK;
}

static args_result take_count(const args_desc *d, const char *flag, uint32_t value, bool all, int32_t *out)
{
    if (value == UINT32_MAX) {
        return ARGS_OK;
    }
    if (value > INT32_MAX) {
        return args_wrong(d, "%s must be at most %d", flag, INT32_MAX);
    }
    *out = value ? (int32_t)value : all ? -1 : EXL2_OFF;
    return ARGS_OK;
}

static const exl2_token *take_tokens(const arg_numbers *from, exl2_token *to, uint32_t *count)
{
    for (uint32_t i = 0; i < from->count; i++) {
        to[i] = (exl2_token)from->items[i];
    }
    *count = from->count;
    return to;
}

/* "ID=X" */
static bool read_bias(const char *text, exl2_bias *out)
{
    char *end;
    const char *equals = strchr(text, '=');
    size_t digits = strspn(text, "0123456789");
    if (!equals || digits == 0 || digits > 9 || text + digits != equals || !equals[1]
        || strspn(equals + 1, "0123456789+-.eE") != strlen(equals + 1)) {
        return false;
    }
    out->token = (exl2_token)strtol(text, NULL, 10);
    out->add = strtof(equals + 1, &end);
    return *end == 0 && out->add >= -FLT_MAX && out->add <= FLT_MAX;
}

static args_result take_biases(const args_desc *d, sampling_options *o, exl2_sampler_desc *out)
{
    for (uint32_t i = 0; i < o->biases.count; i++) {
        if (!read_bias(o->biases.items[i], &o->bias[i])) {
            return args_wrong(d, "--bias must be a token id, '=' and a number, not '%s'", o->biases.items[i]);
        }
    }
    out->bias = o->bias;
    out->bias_count = o->biases.count;
    return ARGS_OK;
}

args_result sampling_desc(const args_desc *d, sampling_options *o, exl2_sampler_desc *out)
{
    static const exl2_preset presets[] = { EXL2_PRESET_MODEL, EXL2_PRESET_NEUTRAL, EXL2_PRESET_GREEDY,
                                           EXL2_PRESET_BALANCED };
    bool greedy = o->greedy || presets[o->preset] == EXL2_PRESET_GREEDY;
    *out = (exl2_sampler_desc){ .preset = presets[o->preset], .seed = o->seed,
                                .temperature_last = o->temperature_last };
    args_result result = take_biases(d, o, out);
    if (given(o->top_p) && !(o->top_p > 0)) {
        return args_wrong(d, "--top-p must be above 0 and at most 1");
    }
#define X(flag, name, low, high, help)                                       \
    if (result == ARGS_OK) {                                                 \
        result = take_number(d, flag, o->name, low, high, &out->name);       \
    }
    SAMPLING_NUMBERS(X)
#undef X
#define X(flag, name, all, help)                                             \
    if (result == ARGS_OK) {                                                 \
        result = take_count(d, flag, o->name, all, &out->name);              \
    }
    SAMPLING_COUNTS(X)
#undef X
    if (result != ARGS_OK) {
        return result;
    }
    bool filters = o->top_k != UINT32_MAX || given(o->top_p) || given(o->min_p);
    if (greedy && (filters || (given(o->temperature) && o->temperature > 0))) {
        return args_wrong(d, "%s cannot be combined with --temperature, --top-k, --top-p and --min-p",
                          o->greedy ? "--greedy" : "--preset greedy");
    }
    if (o->greedy && o->preset) {
        return args_wrong(d, "--greedy and --preset cannot be combined");
    }
    if (greedy || (given(o->temperature) && o->temperature <= 0)) { /* greedy: no filter changes the result */
        out->preset = EXL2_PRESET_GREEDY;
        out->temperature = 0;
        out->top_k = 0;
    }
    out->allow = take_tokens(&o->allow, o->tokens[0], &out->allow_count);
    out->ban = take_tokens(&o->ban, o->tokens[1], &out->ban_count);
    out->xtc_keep = take_tokens(&o->xtc_keep, o->tokens[2], &out->xtc_keep_count);
    out->dry_breakers = o->dry_breakers.items;
    out->dry_breaker_count = o->dry_breakers.count;
    return ARGS_OK;
}

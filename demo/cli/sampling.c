/* sampling.c: see sampling.h.
   takes: flags.
   gives: what sampling.h declares.
   owns:  nothing.
   next:  ids.c */
#include "sampling.h"

static bool given(float value)
{
    return value < SAMPLING_NOT_GIVEN || value > SAMPLING_NOT_GIVEN;
}

args_result sampling_desc(const args_desc *d, const sampling_options *o, exl2_sampler_desc *out)
{
    *out = (exl2_sampler_desc){ .seed = o->seed };
    if (o->top_k != UINT32_MAX && o->top_k > INT32_MAX) {
        return args_wrong(d, "--top-k is at most %d", INT32_MAX);
    }
    if (given(o->temperature) && !(o->temperature >= 0 && o->temperature <= 1000)) {
        return args_wrong(d, "--temperature is 0 to 1000");
    }
    if (given(o->top_p) && !(o->top_p > 0 && o->top_p <= 1)) {
        return args_wrong(d, "--top-p is above 0 and at most 1");
    }
    if (given(o->min_p) && !(o->min_p >= 0 && o->min_p <= 1)) {
        return args_wrong(d, "--min-p is 0 to 1");
    }
    bool filters = o->top_k != UINT32_MAX || given(o->top_p) || given(o->min_p);
    if (o->greedy && (filters || (given(o->temperature) && o->temperature > 0))) {
        return args_wrong(d, "--greedy leaves no choice to --temperature, --top-k, --top-p and --min-p");
    }
    if (o->greedy || (given(o->temperature) && o->temperature <= 0)) {
        out->preset = EXL2_PRESET_GREEDY;
        return ARGS_OK;
    }
    if (given(o->temperature)) {
        out->temperature = o->temperature;
    }
    if (o->top_k != UINT32_MAX) {
        out->top_k = o->top_k ? (int32_t)o->top_k : EXL2_OFF;
    }
    if (given(o->top_p)) {
        out->top_p = o->top_p;
    }
    if (given(o->min_p)) {
        out->min_p = o->min_p > 0 ? o->min_p : EXL2_OFF;
    }
    return ARGS_OK;
}

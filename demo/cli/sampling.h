/* sampling.h: the sampling flags that generate and chat share.
   takes: flags.
   gives: SAMPLING_ARGS, sampling_desc.
   owns:  nothing.
   next:  ids.h */
#ifndef DEMO_CLI_SAMPLING_H
#define DEMO_CLI_SAMPLING_H

#include "../common/args.h"
#include "exl2.h"

#include <float.h>

#define SAMPLING_NOT_GIVEN (-FLT_MAX)

typedef struct sampling_options {
    bool greedy;
    float temperature, top_p, min_p; /* SAMPLING_NOT_GIVEN: the model's own */
    uint32_t top_k;                  /* UINT32_MAX: the model's own */
    uint64_t seed;
} sampling_options;

#define SAMPLING_DEFAULTS { false, SAMPLING_NOT_GIVEN, SAMPLING_NOT_GIVEN, SAMPLING_NOT_GIVEN, UINT32_MAX, 0 }

/* Rows of a flag table. */
#define SAMPLING_ARGS(o)                                                                                            \
    { "--greedy", ARG_BOOL, &(o).greedy, NULL, "always the likeliest token" },                                      \
    { "--temperature", ARG_FLOAT, &(o).temperature, "X", "above 1 wilder, below 1 safer, 0 greedy (the model's)" }, \
    { "--top-k", ARG_U32, &(o).top_k, "N", "only the N likeliest tokens; 0 = off (the model's)" },                  \
    { "--top-p", ARG_FLOAT, &(o).top_p, "X", "the likeliest that reach X together; 1 = off (the model's)" },        \
    { "--min-p", ARG_FLOAT, &(o).min_p, "X", "those of X times the best's share; 0 = off (the model's)" },          \
    { "--seed", ARG_U64, &(o).seed, "N", "the same seed, the same text; 0 = drawn (0)" }

/* What the flags ask for; a value out of range, or filters beside --greedy, is ARGS_USAGE with a sentence. */
args_result sampling_desc(const args_desc *d, const sampling_options *o, exl2_sampler_desc *out);

#endif

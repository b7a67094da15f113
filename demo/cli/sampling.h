/* sampling.h: the sampling flags that generate and chat share.
   takes: flags.
   gives: SAMPLING_ARGS, sampling_desc.
   owns:  nothing.
   next:  ids.h */
#ifndef DEMO_CLI_SAMPLING_H
#define DEMO_CLI_SAMPLING_H

#include "../common/args.h"
#include "exl2.h"

#define SAMPLING_NOT_GIVEN (-1.0f)

typedef struct sampling_options {
    bool greedy;
    float temperature, top_p, min_p; /* SAMPLING_NOT_GIVEN: the model's own */
    uint32_t top_k;                  /* UINT32_MAX: the model's own */
    uint64_t seed;
} sampling_options;

#define SAMPLING_DEFAULTS { false, SAMPLING_NOT_GIVEN, SAMPLING_NOT_GIVEN, SAMPLING_NOT_GIVEN, UINT32_MAX, 0 }

/* Rows of a flag table. */
#define SAMPLING_ARGS(o)                                                                                        \
    { "--greedy", ARG_BOOL, &(o).greedy, NULL, "always the likeliest token" },                      \
    { "--temperature", ARG_FLOAT, &(o).temperature, "X", "0 = greedy (the model's own, as below)" }, \
    { "--top-k", ARG_U32, &(o).top_k, "N", "0 = off" },                                            \
    { "--top-p", ARG_FLOAT, &(o).top_p, "X", "1 = off" },                                          \
    { "--min-p", ARG_FLOAT, &(o).min_p, "X", "0 = off" },                                          \
    { "--seed", ARG_U64, &(o).seed, "N", "0 = drawn (0)" }

/* What the flags ask for; a value out of range is ARGS_USAGE, with a sentence on stderr. */
args_result sampling_desc(const args_desc *d, const sampling_options *o, exl2_sampler_desc *out);

#endif

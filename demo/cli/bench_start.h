/* bench_start.h: what it costs until a model is ready: time of opening, kernels and reading; memory used and predicted.
   takes: options, a model's desc.
   gives: bench_start_run, bench_start_print, bench_start_json.
   owns:  nothing; the host is the caller's. */
#ifndef BENCH_START_H
#define BENCH_START_H

#include "../common/host.h"
#include "../common/json_out.h"

typedef struct bench_start {
    double open_seconds, kernel_seconds, load_seconds; /* load: including the kernels */
    double first_token_seconds;                        /* from opening to the first token; 0: not measured */
    uint64_t kernels_compiled;                         /* modules that were not in the cache */
    exl2_model_info plan;                              /* prediction before loading */
    uint64_t device_bytes, device_peak;                /* GPU memory used: now, peak */
    /* while kernels are loaded: */
    uint32_t depth, kernel_depth; /* of zones; depth of the kernels' zone, 0 = outside of it */
    uint64_t zone_ns;
} bench_start;

/* Opens the host and loads the model; *s must not move while the host is open. false: failed, message printed. */
bool bench_start_run(bench_start *s, host *h, const host_options *o, const exl2_model_desc *d);
void bench_start_print(const bench_start *s);
void bench_start_json(const bench_start *s, json_out *j); /* writes members into the open object */

#endif

/* bench_start.h: what it takes until a model is ready: opening, kernels, reading, memory against the plan.
   takes: options, a model's desc.
   gives: bench_start_run, bench_start_print, bench_start_json.
   owns:  nothing; the host is the caller's. */
#ifndef BENCH_START_H
#define BENCH_START_H

#include "../common/host.h"
#include "../common/json_out.h"

typedef struct bench_start {
    double open_seconds, kernel_seconds, load_seconds; /* load: with the kernels */
    uint64_t kernels_compiled;                         /* modules that no cache held */
    exl2_model_info plan;                              /* what was foretold before loading */
    uint64_t device_bytes, device_peak;                /* what it took of the GPU's memory */
    /* while kernels are loaded: */
    uint32_t depth, kernel_depth; /* of zones; where the kernels' zone began, 0 = outside */
    uint64_t zone_ns;
} bench_start;

/* Opens the host and loads the model; *s stays where it is as long as the host is open. False with a sentence. */
bool bench_start_run(bench_start *s, host *h, const host_options *o, const exl2_model_desc *d);
void bench_start_print(const bench_start *s);
void bench_start_json(const bench_start *s, json_out *j); /* members of the open object */

#endif

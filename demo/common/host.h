/* host.h: what every program does around the engine: open it with a thread pool, load a model with a progress line,
   keep how a job ended, print the sentence of a failure.
   takes: --backend and --threads, a model folder.
   gives: host_open, host_load, host_step, host_end, host_failed, host_close, HOST_ARGS.
   owns:  the engine and the pool.
   next:  text_file.h */
#ifndef DEMO_HOST_H
#define DEMO_HOST_H

#include "args.h"
#include "exl2.h"
#include "pool.h"
#include "progress.h"

typedef struct host_options {
    uint32_t backend; /* 0 = auto, 1 = cuda, 2 = cpu */
    uint32_t threads; /* 0 = one a processor */
} host_options;

exl2_backend host_backend(const host_options *o);

/* Two rows of a flag table. */
#define HOST_ARGS(options)                                                                               \
    { "--backend", ARG_CHOICE, &(options).backend, "auto|cuda|cpu", "what computes (auto)" }, \
    { "--threads", ARG_U32, &(options).threads, "N", "threads, this one included; at most 64 (one a processor)" }

typedef struct host { /* zeroed: closed */
    exl2_engine *engine;
    pool *pool;
    exl2_model model;
    exl2_model_info info;
    progress bar;
    double load_seconds;
} host;

typedef struct host_end { /* how a job ended; zeroed before it starts */
    bool done;
    exl2_stop stop;
    exl2_result result;
    exl2_job_stats stats;
    char error[sizeof(((exl2_error *)0)->text)]; /* "" unless result < 0 */
} host_end;

/* These three print one sentence to stderr when they fail. host_load: a cache for `sequences` full contexts, if d names
   no size; Ctrl-C ends it. host_load_text: tokenizer and template alone. */
bool host_open(host *h, const host_options *o);
bool host_load(host *h, const exl2_model_desc *d, uint32_t sequences);
bool host_load_text(host *h, const char *path);

exl2_result host_step(host *h, exl2_job job, uint32_t cpu_us); /* one step; Ctrl-C cancels the job first */
void host_end_take(host_end *end, const exl2_event *event);    /* of a DONE event; the others change nothing */
bool host_end_good(host *h, const host_end *end);              /* false with a sentence: failed, or Ctrl-C */
int host_failed(host *h);                                      /* prints the newest error's sentence; 1 */
void host_close(host *h);                                      /* zeroed and half-open ones too */
const char *host_stop_name(exl2_stop stop);                    /* "eos", "length" ... */

#endif

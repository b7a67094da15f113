/* bench_runs.h: times prefill and decode, on random ids.
   takes: a host with a loaded model.
   gives: bench_runs_prefill, bench_runs_decode, bench_runs_first_token, bench_runs_free.
   owns:  the ids. */
#ifndef BENCH_RUNS_H
#define BENCH_RUNS_H

#include "../common/host.h"

#define BENCH_BATCH_MAX 64u

typedef struct bench_run { /* medians */
    bool prefill;
    uint32_t tokens, batch, context; /* tokens: of the prompt, or generated per sequence */
    double tokens_per_second, cpu_us; /* cpu_us: CPU time per token, of all threads */
    double tokens_per_pass;  /* of decode */
    double first_ms;         /* of decode: from the start of the jobs to the first token, after `context` tokens */
    const char *cache;       /* format of K and V, as --cache names it */
} bench_run;

typedef struct bench_runs { /* zeroed, except for host */
    host *host;
    exl2_token *ids; /* [id_count] random, the same in every run */
    uint32_t id_count;
    exl2_draft_desc draft; /* of all jobs */
    loras rows[ARGS_LIST_MAX]; /* [row_count] adapters of sequence i: those of i modulo row_count, beside --lora's */
    uint32_t row_count;
    bool no_end;     /* the end token ended a round too early; from then on it is banned */
    uint32_t jobs_open;
    uint64_t new_tokens;
    uint64_t first_token_at; /* of the jobs that have ended, the earliest first token, by clock_ns; 0: none has ended */
    host_end end;    /* end of the newest job that has ended, or of the first job that failed */
} bench_runs;

/* These return false with a printed message if they fail. Prefill: from the start of the prompt to the first token.
   Decode: `batch` sessions of `context` tokens generate `tokens` tokens (at least 2) each, at the same time. Its speed
   counts the tokens after each session's first one, from the earliest first token on: the pass that gives the first
   tokens computes a row of a prompt, by other kernels. */
bool bench_runs_prefill(bench_runs *b, uint32_t tokens, bench_run *out);
bool bench_runs_decode(bench_runs *b, uint32_t tokens, uint32_t batch, uint32_t context, bench_run *out);
bool bench_runs_first_token(bench_runs *b, double *seconds); /* of one job with a short prompt */
void bench_runs_free(bench_runs *b);

#endif

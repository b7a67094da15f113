/* bench_runs.c: see bench_runs.h.
   takes: a host with a loaded model.
   gives: what bench_runs.h declares.
   owns:  the ids. */
#include "bench_runs.h"

#include "../common/clock.h"
#include "../common/interrupt.h"
#include "../common/memory.h"
#include "../common/samples.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define BENCH_REPEATS 5 /* the median is reported */

static exl2_flow on_event(void *user, const exl2_event *event)
{
    bench_runs *b = user;
    if (event->kind == EXL2_EVENT_DONE) {
        uint64_t first = clock_ns() - event->stats.decode_ns;
        b->jobs_open--;
        b->new_tokens += event->stats.new_tokens;
        b->first_token_at = b->first_token_at && b->first_token_at < first ? b->first_token_at : first;
    }
    if (b->end.result >= 0) {
        host_end_take(&b->end, event);
    }
    return EXL2_CONTINUE;
}

/* Makes random ids, until there are at least `count`. */
static void make_ids(bench_runs *b, uint32_t count)
{
    uint64_t state = 1;
    if (count <= b->id_count) {
        return;
    }
    b->ids = memory_grow(b->ids, count, sizeof *b->ids);
    b->id_count = count;
    for (uint32_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        b->ids[i] = (exl2_token)((state >> 33) % b->host->info.vocab);
    }
}

/* Starts a job on the session of a sequence of the batch. false: failed, message printed. */
static bool start(bench_runs *b, uint32_t sequence, exl2_session session, uint32_t prompt_tokens, uint32_t new_tokens)
{
    exl2_job job;
    loras all = b->host->loras;
    if (b->row_count && all.count < EXL2_JOB_LORAS) {
        all.uses[all.count++] = b->rows[sequence % b->row_count].uses[0];
    }
    exl2_bias ban = { b->host->info.eos, -INFINITY };
    make_ids(b, prompt_tokens);
    exl2_job_desc d = { .session = session, .prompt = { .tokens = b->ids, .token_count = prompt_tokens },
                        .max_tokens = new_tokens, .prefill_only = new_tokens == 0, .draft = b->draft,
                        .loras = all.uses, .lora_count = all.count,
                        .steers = b->host->steers.uses, .steer_count = b->host->steers.count,
                        .on_event = on_event, .user = b };
    d.sampler.preset = EXL2_PRESET_GREEDY;
    if (b->no_end && b->host->info.eos >= 0) {
        d.sampler.bias = &ban;
        d.sampler.bias_count = 1;
    }
    if (exl2_job_start(b->host->engine, &d, &job) < 0) {
        host_failed(b->host);
        return false;
    }
    b->jobs_open++;
    return true;
}

/* Steps until every job has ended. false: failed, message printed. */
static bool finish(bench_runs *b)
{
    exl2_step_desc step = { .wait = true };
    while (b->jobs_open && !interrupted()) {
        if (exl2_step(b->host->engine, &step) < 0) {
            host_failed(b->host);
            return false;
        }
    }
    if (interrupted()) {
        progress_end(&b->host->bar);
        fputs("interrupted\n", stderr);
        return false;
    }
    return host_end_good(b->host, &b->end);
}

static bool open_session(bench_runs *b, exl2_session *session)
{
    bool good = exl2_session_open(b->host->engine, b->host->model, session) >= 0;
    if (!good) {
        host_failed(b->host);
    }
    return good;
}

bool bench_runs_first_token(bench_runs *b, double *seconds)
{
    exl2_session session;
    uint64_t begin = clock_ns();
    bool good = open_session(b, &session);
    if (good) {
        good = start(b, 0, session, 8, 1) && finish(b);
        exl2_session_close(b->host->engine, session);
    }
    *seconds = clock_seconds_since(begin);
    return good;
}

bool bench_runs_prefill(bench_runs *b, uint32_t tokens, bench_run *out)
{
    samples speeds = { 0 }, cpu = { 0 };
    bool good = true;
    char what[40];
    snprintf(what, sizeof what, "prefill %u", tokens);
    for (int repeat = 0; good && repeat < BENCH_REPEATS; repeat++) {
        exl2_session session;
        progress_show_stage(&b->host->bar, (double)repeat / BENCH_REPEATS, what);
        good = open_session(b, &session);
        if (good) {
            uint64_t cpu_ns = clock_cpu_ns();
            good = start(b, 0, session, tokens, 1) && finish(b);
            samples_add(&cpu, (double)(clock_cpu_ns() - cpu_ns) * 1e-3 / tokens);
            samples_add(&speeds, tokens / ((double)b->end.stats.prefill_ns * 1e-9));
            exl2_session_close(b->host->engine, session);
        }
    }
    *out = (bench_run){ .prefill = true, .tokens = tokens, .batch = 1, .tokens_per_second = samples_median(&speeds),
                        .cpu_us = samples_median(&cpu), .cache = host_cache_name(b->host) };
    samples_free(&speeds);
    samples_free(&cpu);
    return good;
}

/* The rounds of a run: tokens/s; us of CPU time per token; ms to the first token. */
typedef struct decode_rounds {
    samples speeds, cpu, first;
} decode_rounds;

static void rounds_free(decode_rounds *r)
{
    samples_free(&r->speeds);
    samples_free(&r->cpu);
    samples_free(&r->first);
}

/* Runs one round of all sessions, and rewinds them. */
static bool decode_once(bench_runs *b, const exl2_session *sessions, const bench_run *run, decode_rounds *rounds)
{
    bool good = true;
    b->new_tokens = b->first_token_at = 0;
    uint64_t begin = clock_ns(), cpu_ns = clock_cpu_ns();
    for (uint32_t i = 0; good && i < run->batch; i++) {
        good = start(b, i, sessions[i], 1, run->tokens);
    }
    good = good && finish(b);
    if (good && b->new_tokens > run->batch) {
        samples_add(&rounds->cpu, (double)(clock_cpu_ns() - cpu_ns) * 1e-3 / (double)b->new_tokens);
        samples_add(&rounds->speeds, (double)(b->new_tokens - run->batch) / clock_seconds_since(b->first_token_at));
        samples_add(&rounds->first, (double)(b->first_token_at - begin) * 1e-6);
    }
    for (uint32_t i = 0; good && i < run->batch; i++) {
        good = exl2_session_rewind(b->host->engine, sessions[i], run->context) >= 0;
        if (!good) {
            host_failed(b->host);
        }
    }
    return good;
}

/* The first round is not counted: it shows whether the end token would end the other rounds early. */
static bool decode_all(bench_runs *b, const exl2_session *sessions, bench_run *run)
{
    decode_rounds rounds = { { 0 }, { 0 }, { 0 } };
    b->no_end = false;
    bool good = decode_once(b, sessions, run, &rounds);
    b->no_end = b->new_tokens < (uint64_t)run->tokens * run->batch;
    rounds_free(&rounds);
    exl2_engine_stats before, after;
    char what[40];
    snprintf(what, sizeof what, "decode %u x %u at %u", run->tokens, run->batch, run->context);
    exl2_stats(b->host->engine, &before);
    for (int repeat = 0; good && repeat < BENCH_REPEATS; repeat++) {
        progress_show_stage(&b->host->bar, (double)repeat / BENCH_REPEATS, what);
        good = decode_once(b, sessions, run, &rounds);
    }
    exl2_stats(b->host->engine, &after);
    double passes = (double)(after.forwards - before.forwards);
    run->tokens_per_pass = passes > 0 ? (double)(after.tokens_out - before.tokens_out) / passes : 0;
    run->tokens_per_second = samples_median(&rounds.speeds);
    run->cpu_us = samples_median(&rounds.cpu);
    run->first_ms = samples_median(&rounds.first);
    rounds_free(&rounds);
    return good;
}

bool bench_runs_decode(bench_runs *b, uint32_t tokens, uint32_t batch, uint32_t context, bench_run *out)
{
    exl2_session sessions[BENCH_BATCH_MAX] = { { 0 } };
    bool good = true;
    *out = (bench_run){ .tokens = tokens, .batch = batch, .context = context,
                        .cache = host_cache_name(b->host) };
    for (uint32_t i = 0; good && i < batch; i++) {
        good = open_session(b, &sessions[i]) && (!context || (start(b, i, sessions[i], context, 0) && finish(b)));
    }
    good = good && decode_all(b, sessions, out);
    for (uint32_t i = 0; i < batch && sessions[i].id; i++) {
        exl2_session_close(b->host->engine, sessions[i]);
    }
    return good;
}

void bench_runs_free(bench_runs *b)
{
    free(b->ids);
    b->ids = NULL;
    b->id_count = 0;
}

/* bench.c: `exl2 bench`: tokens a second of prefill and decoding, on random ids.
   takes: a model folder; lengths, contexts and batch sizes.
   gives: cli_bench.
   owns:  nothing beyond the call.
   next:  import.c */
#include "../common/clock.h"
#include "../common/host.h"
#include "../common/interrupt.h"
#include "../common/json_out.h"
#include "../common/memory.h"
#include "../common/samples.h"
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define BENCH_REPEATS 5 /* the median is reported */
#define BENCH_BATCH_MAX 64u

typedef struct bench_options {
    const char *path;
    arg_numbers prefill, context, batch;
    uint32_t decode;
    bool json;
    host_options host;
} bench_options;

typedef struct bench_run { /* one line of the result */
    bool prefill;
    uint32_t tokens, batch, context; /* tokens: read, or written by each sequence */
    double tokens_per_second;
} bench_run;

typedef struct bench {
    const bench_options *options;
    host host;
    exl2_token *ids; /* [longest prompt] random, the same in every run */
    uint32_t jobs_open;
    uint64_t new_tokens;
    host_end end; /* of the job that ended last, or of the first that failed */
    bench_run runs[ARGS_LIST_MAX + ARGS_LIST_MAX * ARGS_LIST_MAX];
    uint32_t run_count;
} bench;

static exl2_flow on_event(void *user, const exl2_event *event)
{
    bench *b = user;
    if (event->kind == EXL2_EVENT_DONE) {
        b->jobs_open--;
        b->new_tokens += event->stats.new_tokens;
    }
    if (b->end.result >= 0) {
        host_end_take(&b->end, event);
    }
    return EXL2_CONTINUE;
}

/* Starts a job on the session; false with a sentence. */
static bool start(bench *b, exl2_session session, uint32_t prompt_tokens, uint32_t new_tokens)
{
    exl2_job job;
    exl2_bias no_end = { b->host.info.eos, -INFINITY };
    exl2_job_desc d = { .session = session, .tokens = b->ids, .token_count = prompt_tokens, .max_tokens = new_tokens,
                        .prefill_only = new_tokens == 0, .on_event = on_event, .user = b };
    d.sampler.preset = EXL2_PRESET_GREEDY;
    if (b->host.info.eos >= 0) {
        d.sampler.bias = &no_end;
        d.sampler.bias_count = 1;
    }
    if (exl2_job_start(b->host.engine, &d, &job) < 0) {
        host_failed(&b->host);
        return false;
    }
    b->jobs_open++;
    return true;
}

/* Steps until every job has ended; false with a sentence. */
static bool finish(bench *b)
{
    while (b->jobs_open && !interrupted()) {
        if (exl2_step(b->host.engine, NULL) < 0) {
            host_failed(&b->host);
            return false;
        }
    }
    if (interrupted()) {
        progress_end(&b->host.bar);
        fputs("interrupted\n", stderr);
        return false;
    }
    return host_end_good(&b->host, &b->end);
}

static void add_run(bench *b, bool prefill, uint32_t tokens, uint32_t batch, uint32_t context, double speed)
{
    uint32_t threads = pool_width(b->host.pool);
    if (!b->options->json && b->run_count == 0) {
        printf("%-8s %7s %6s %8s %7s %10s\n", "", "tokens", "batch", "context", "threads", "tokens/s");
    }
    b->runs[b->run_count++] = (bench_run){ prefill, tokens, batch, context, speed };
    progress_end(&b->host.bar);
    if (!b->options->json) {
        printf("%-8s %7u %6u %8u %7u %10.1f\n", prefill ? "prefill" : "decode", tokens, batch, context, threads, speed);
        fflush(stdout);
    }
}

static bool measure_prefill(bench *b, uint32_t tokens)
{
    samples speeds = { 0 };
    bool good = true;
    for (int repeat = 0; good && repeat < BENCH_REPEATS; repeat++) {
        exl2_session session;
        progress_show(&b->host.bar, (double)repeat / BENCH_REPEATS, "prefill");
        if (exl2_session_open(b->host.engine, b->host.model, &session) < 0) {
            host_failed(&b->host);
            good = false;
            break;
        }
        uint64_t begin = clock_ns();
        good = start(b, session, tokens, 0) && finish(b);
        samples_add(&speeds, tokens / clock_seconds_since(begin));
        exl2_session_close(b->host.engine, session);
    }
    if (good) {
        add_run(b, true, tokens, 1, 0, samples_median(&speeds));
    }
    samples_free(&speeds);
    return good;
}

/* `batch` sessions of `context` tokens each go on together. The first of a job's passes reads one prompt token, so
   a job of n tokens takes n passes that are all alike. */
static bool measure_decode(bench *b, uint32_t batch, uint32_t context)
{
    exl2_session sessions[BENCH_BATCH_MAX] = { { 0 } };
    samples speeds = { 0 };
    bool good = true;
    for (uint32_t i = 0; good && i < batch; i++) {
        good = exl2_session_open(b->host.engine, b->host.model, &sessions[i]) >= 0;
        if (!good) {
            host_failed(&b->host);
        } else if (context) {
            good = start(b, sessions[i], context, 0) && finish(b);
        }
    }
    for (int repeat = 0; good && repeat < BENCH_REPEATS; repeat++) {
        progress_show(&b->host.bar, (double)repeat / BENCH_REPEATS, "decode");
        b->new_tokens = 0;
        uint64_t begin = clock_ns();
        for (uint32_t i = 0; good && i < batch; i++) {
            good = start(b, sessions[i], 1, b->options->decode);
        }
        good = good && finish(b);
        samples_add(&speeds, (double)b->new_tokens / clock_seconds_since(begin));
        for (uint32_t i = 0; good && i < batch; i++) {
            good = exl2_session_rewind(b->host.engine, sessions[i], context) >= 0;
            if (!good) {
                host_failed(&b->host);
            }
        }
    }
    if (good) {
        add_run(b, false, b->options->decode, batch, context, samples_median(&speeds));
    }
    for (uint32_t i = 0; i < batch && sessions[i].id; i++) {
        exl2_session_close(b->host.engine, sessions[i]);
    }
    samples_free(&speeds);
    return good;
}

static void print_json(const bench *b)
{
    json_out j = { .file = stdout };
    json_out_object(&j, NULL);
    json_out_number(&j, "load_s", b->host.load_seconds);
    json_out_array(&j, "runs");
    for (uint32_t i = 0; i < b->run_count; i++) {
        const bench_run *r = &b->runs[i];
        json_out_object(&j, NULL);
        json_out_number(&j, r->prefill ? "prefill_tok_s" : "decode_tok_s", r->tokens_per_second);
        json_out_uint(&j, "tokens", r->tokens);
        json_out_uint(&j, "threads", pool_width(b->host.pool));
        json_out_uint(&j, "batch", r->batch);
        json_out_uint(&j, "context", r->context);
        json_out_end(&j);
    }
    json_out_end(&j);
    for (int prefill = 1; prefill >= 0; prefill--) { /* the first of each kind, for those who ran one */
        for (uint32_t i = 0; i < b->run_count; i++) {
            if (b->runs[i].prefill == (prefill != 0)) {
                json_out_number(&j, prefill ? "prefill_tok_s" : "decode_tok_s", b->runs[i].tokens_per_second);
                break;
            }
        }
    }
    json_out_end(&j);
}

static uint32_t largest(const arg_numbers *list)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        most = list->items[i] > most ? list->items[i] : most;
    }
    return most;
}

static void make_ids(bench *b, uint32_t count)
{
    uint64_t state = 1;
    b->ids = memory_take(count, sizeof *b->ids);
    for (uint32_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        b->ids[i] = (exl2_token)((state >> 33) % b->host.info.vocab);
    }
}

static int run(bench *b)
{
    const bench_options *o = b->options;
    uint32_t prefill = largest(&o->prefill), context = largest(&o->context), batch = largest(&o->batch);
    uint64_t decode_need = o->decode ? (uint64_t)context + o->decode + 1 : 0;
    uint64_t need = decode_need > prefill ? decode_need : prefill; /* tokens of a session */
    exl2_model_desc model = { .path = o->path, .batch_max = batch > 16 ? batch : 0 };
    model.context_max = need > 8192 && need <= UINT32_MAX ? (uint32_t)need : 0;
    uint64_t decode_pool = (decode_need + 64) * batch;
    model.cache.tokens = decode_pool > prefill + 64u ? decode_pool : prefill + 64u;
    if (!host_load(&b->host, &model, 1)) {
        return 1;
    }
    if (need > b->host.info.context_max) {
        fprintf(stderr, "%llu tokens are asked for in one sequence and the model's context holds %u\n",
                (unsigned long long)need, b->host.info.context_max);
        return 1;
    }
    if (!o->json) {
        printf("loaded in %.2f s\n", b->host.load_seconds);
        fflush(stdout);
    }
    make_ids(b, (prefill > context ? prefill : context) + 1);
    bool good = true;
    for (uint32_t i = 0; good && !ferror(stdout) && i < o->prefill.count; i++) {
        good = o->prefill.items[i] == 0 || measure_prefill(b, o->prefill.items[i]);
    }
    for (uint32_t i = 0; good && o->decode && i < o->context.count; i++) {
        for (uint32_t k = 0; good && !ferror(stdout) && k < o->batch.count; k++) {
            good = measure_decode(b, o->batch.items[k], o->context.items[i]);
        }
    }
    progress_end(&b->host.bar);
    if (good && o->json) {
        print_json(b);
    }
    return good ? 0 : 1;
}

static args_result check(const args_desc *d, const bench_options *o)
{
    for (uint32_t i = 0; i < o->batch.count; i++) {
        if (o->batch.items[i] == 0 || o->batch.items[i] > BENCH_BATCH_MAX) {
            return args_wrong(d, "--batch is 1 to %u", BENCH_BATCH_MAX);
        }
    }
    return ARGS_OK;
}

int cli_bench(int argc, char **argv)
{
    bench_options o = { .prefill = { { 512 }, 1 }, .context = { { 0 }, 1 }, .batch = { { 1 }, 1 }, .decode = 128 };
    const arg positional[] = { { "MODEL", ARG_TEXT, &o.path, NULL, "model folder" } };
    const arg flags[] = {
        { "--prefill", ARG_NUMBERS, &o.prefill, "N,..", "prompt lengths to measure; 0 = none (512)" },
        { "--decode", ARG_U32, &o.decode, "N", "tokens each sequence writes; 0 = none (128)" },
        { "--context", ARG_NUMBERS, &o.context, "N,..", "tokens before them (0)" },
        { "--batch", ARG_NUMBERS, &o.batch, "N,..", "sequences side by side (1)" },
        HOST_ARGS(o.host),
        { "--json", ARG_BOOL, &o.json, NULL, "for machines" },
    };
    const args_desc d = { "exl2 bench",
                          "Measures load time and tokens a second (median of five).",
                          positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    args_result parsed = args_parse(&d, argc, argv);
    if (parsed == ARGS_OK) {
        parsed = check(&d, &o);
    }
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    bench *b = memory_take(1, sizeof *b);
    b->options = &o;
    int code = host_open(&b->host, &o.host) ? run(b) : 1;
    host_close(&b->host);
    free(b->ids);
    free(b);
    return code;
}

/* bench.c: `exl2 bench`: tokens/s and CPU time of prefill and decode; speed of a tower for pictures, of the GPU's
   memory, or of a core's reads.
   takes: a model folder; lengths, contexts, batch sizes and formats of the cache.
   gives: cli_bench. */
#define _POSIX_C_SOURCE 200809L
#include "../common/clock.h"
#include "../common/cpu_name.h"
#include "../common/images.h"
#include "../common/interrupt.h"
#include "../common/memory.h"
#include "bench_image.h"
#include "bench_runs.h"
#include "bench_start.h"
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define CONTEXT_MAX (1u << 30) /* tokens; memory for more is not asked for, because systems that overcommit grant it */

typedef struct bench_options {
    const char *path;
    arg_numbers prefill, context, batch, cache;
    uint32_t decode;
    bool json, probe, first_start;
    exl2_draft_desc guesses;
    host_options host;
    arg_texts lora_rows;   /* adapters of single sequences */
    const char *image;     /* WxH; NULL: none */
    images_options images; /* limits alone */
    exl2_model_desc model; /* RoPE alone */
} bench_options;

typedef struct bench {
    const bench_options *options;
    host host;
    uint32_t cache; /* the present one of --cache */
    bench_start start, first, later; /* first: the start without kernels from the cache; later: with other caches */
    bool probed;
    exl2_device_info device;
    exl2_device_speed speed;
    double core_read_s; /* bytes per second that one core reads from memory; 0: not measured */
    uint64_t lora_bytes; /* of adapters that a pass of the largest batch reads */
    bench_runs work;
    bench_image picture; /* of --image */
    bench_run *runs; /* [run_count] */
    uint32_t run_count;
} bench;

/* ---- the GPU's memory ---- */

/* false: failed, message printed. */
static bool probe(bench *b)
{
    exl2_device_info devices[16];
    uint32_t count = 0;
    if (exl2_device_probe(b->host.engine, &b->speed) < 0) {
        host_failed(&b->host);
        return false;
    }
    exl2_devices(devices, ARGS_COUNT(devices), &count);
    if (b->speed.index < count && b->speed.index < ARGS_COUNT(devices)) {
        b->device = devices[b->speed.index];
    }
    b->probed = true;
    if (!b->options->json) {
        printf("GPU %u: %s, compute capability %u.%u; its memory reads %.0f GB/s, copies %.0f GB/s\n", b->speed.index,
               b->device.name, b->device.arch / 10, b->device.arch % 10, (double)b->speed.read_bytes_s * 1e-9,
               (double)b->speed.copy_bytes_s * 1e-9);
        fflush(stdout);
    }
    return true;
}

/* ---- one core's reads ---- */

#define CORE_READ_WORDS (32u << 20) /* 256 MiB, more than caches hold */

/* The best of five passes, by CPU time, as other programs may want the core, too. */
static void probe_core(bench *b)
{
    uint64_t *words = memory_take(CORE_READ_WORDS, sizeof *words);
    for (uint32_t i = 0; i < CORE_READ_WORDS; i++) { /* pages that were never written share one page of zeros */
        words[i] = i;
    }
    for (uint32_t pass = 0; pass < 5; pass++) {
        uint64_t begin = clock_cpu_ns(), sums[4] = { 0 };
        for (uint32_t i = 0; i < CORE_READ_WORDS; i += 4) {
            for (uint32_t k = 0; k < 4; k++) {
                sums[k] += words[i + k];
            }
        }
        double speed = (double)CORE_READ_WORDS * sizeof *words * 1e9 / (double)(clock_cpu_ns() - begin + 1);
        b->core_read_s = speed > b->core_read_s ? speed : b->core_read_s;
        words[pass] = sums[0] + sums[1] + sums[2] + sums[3]; /* so that no pass is optimized out */
    }
    free(words);
    if (!b->options->json) {
        printf("one core reads %.1f GB/s from memory\n", b->core_read_s * 1e-9);
        fflush(stdout);
    }
}

/* ---- what a report of CPU speeds must say ---- */

#if defined(__clang__)
#define COMPILER __VERSION__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

static void print_cpu(const bench *b)
{
    char name[64];
    cpu_name(name, sizeof name);
    printf("CPU: %s, path %s, %u threads; compiler: %s\n", name[0] ? name : "unknown", host_cpu_path(&b->host),
           pool_width(b->host.pool), COMPILER);
    fflush(stdout);
}

static void print_cpu_json(json_out *j, const bench *b)
{
    char name[64];
    cpu_name(name, sizeof name);
    json_out_string(j, "cpu", name[0] ? name : NULL);
    json_out_string(j, "cpu_path", host_cpu_path(&b->host));
    json_out_string(j, "compiler", COMPILER);
}

/* ---- one run ---- */

/* Whether jobs guess tokens, so that a pass may give several. */
static bool guesses(const bench *b)
{
    return b->options->guesses.ngram || b->options->host.draft;
}

/* Whether it is known which weights a token reads: those of the experts that a batch uses are not. */
static bool reads_known(const bench *b, const bench_run *r)
{
    return !r->prefill && (r->batch == 1 || b->host.info.experts == 0) && !guesses(b);
}

/* Bytes of weights read per second: a pass reads them once for the whole batch. */
static double read_speed(const bench *b, const bench_run *r)
{
    return reads_known(b, r) ? (double)b->host.info.pass_bytes * r->tokens_per_second / r->batch : 0;
}

/* Experts of a layer that a batch uses, by chance: if the router chooses each of them equally often. A backend does not
   count them. */
static double experts_touched(const bench *b, const bench_run *r)
{
    double count = b->host.info.experts;
    return count * (1 - pow(1 - b->host.info.experts_active / count, r->batch));
}

/* Share of the device's memory speed; on a CPU, for one thread, of what a core reads, by CPU time. 0: unknown. */
static double read_share(const bench *b, const bench_run *r)
{
    if (b->core_read_s > 0 && pool_width(b->host.pool) == 1 && reads_known(b, r) && r->batch == 1) {
        return (double)b->host.info.pass_bytes / (r->cpu_us * 1e-6) / b->core_read_s;
    }
    return b->probed && b->speed.read_bytes_s ? read_speed(b, r) / (double)b->speed.read_bytes_s : 0;
}

static void add_run(bench *b, const bench_run *r)
{
    b->runs = memory_grow(b->runs, b->run_count + 1, sizeof *b->runs);
    b->runs[b->run_count++] = *r;
    progress_end(&b->host.bar);
    if (b->options->json) {
        return;
    }
    if (b->run_count == 1) {
        printf("%-8s %7s %6s %8s %5s %7s %10s %8s %8s %10s%s\n", "", "tokens", "batch", "context", "cache", "threads",
               "tokens/s", "CPU us", "first ms", "GB/s", b->probed || b->core_read_s > 0 ? "  of reads" : "");
    }
    printf("%-8s %7u %6u %8u %5s %7u %10.1f %8.1f", r->prefill ? "prefill" : "decode", r->tokens, r->batch,
           r->context, r->cache, pool_width(b->host.pool), r->tokens_per_second, r->cpu_us);
    if (!r->prefill) {
        printf(" %8.1f", r->first_ms);
    }
    if (reads_known(b, r)) {
        printf(" %10.1f", read_speed(b, r) * 1e-9);
    }
    if (read_share(b, r) > 0) {
        printf(" %8.1f%%", read_share(b, r) * 100);
    }
    if (!r->prefill && guesses(b)) {
        printf(" %10.2f tokens a pass", r->tokens_per_pass);
    }
    printf("\n");
    fflush(stdout);
}

/* ---- JSON ---- */

static void print_run(json_out *j, const bench *b, const bench_run *r)
{
    json_out_object(j, NULL);
    json_out_number(j, r->prefill ? "prefill_tok_s" : "decode_tok_s", r->tokens_per_second);
    json_out_uint(j, "tokens", r->tokens);
    json_out_uint(j, "threads", pool_width(b->host.pool));
    json_out_uint(j, "batch", r->batch);
    json_out_uint(j, "context", r->context);
    json_out_string(j, "cache", r->cache);
    json_out_number(j, "cpu_us_per_token", r->cpu_us);
    if (!r->prefill) {
        json_out_number(j, "tokens_per_pass", r->tokens_per_pass);
        json_out_number(j, "first_token_ms", r->first_ms);
    }
    if (!r->prefill && b->host.info.experts) {
        json_out_number(j, "experts_touched", experts_touched(b, r));
    }
    if (reads_known(b, r)) {
        json_out_number(j, "gb_s", read_speed(b, r) * 1e-9);
    }
    if (read_share(b, r) > 0) {
        json_out_number(j, "read_share", read_share(b, r));
    }
    json_out_end(j);
}

static void print_probe(json_out *j, const bench *b)
{
    json_out_object(j, "device");
    json_out_uint(j, "index", b->speed.index);
    json_out_string(j, "name", b->device.name);
    json_out_uint(j, "arch", b->device.arch);
    json_out_number(j, "read_gb_s", (double)b->speed.read_bytes_s * 1e-9);
    json_out_number(j, "copy_gb_s", (double)b->speed.copy_bytes_s * 1e-9);
    json_out_end(j);
}

static void print_json(const bench *b)
{
    json_out j = { .file = stdout };
    json_out_object(&j, NULL);
    if (b->probed) {
        print_probe(&j, b);
    }
    if (b->core_read_s > 0) {
        json_out_number(&j, "core_read_gb_s", b->core_read_s * 1e-9);
    }
    if (b->options->path) {
        json_out_string(&j, "backend", host_on_gpu(&b->host) ? "cuda" : "cpu");
        print_cpu_json(&j, b);
        bench_start_json(&b->start, &j);
        if (b->options->first_start) {
            json_out_object(&j, "first_start");
            bench_start_json(&b->first, &j);
            json_out_end(&j);
        }
        json_out_string(&j, "family", b->host.info.family);
        json_out_string(&j, "cache", b->options->cache.count == 1 ? host_cache_name(&b->host) : NULL);
        json_out_uint(&j, "pass_bytes", b->host.info.pass_bytes);
        json_out_uint(&j, "bytes_per_token", b->host.info.pass_bytes);
        if (b->lora_bytes) {
            json_out_uint(&j, "lora_bytes", b->lora_bytes);
        }
        json_out_array(&j, "runs");
        for (uint32_t i = 0; i < b->run_count; i++) {
            print_run(&j, b, &b->runs[i]);
        }
        json_out_end(&j);
        if (b->options->image) {
            bench_image_json(&b->picture, &j);
        }
    }
    for (int prefill = 1; prefill >= 0; prefill--) { /* the first of each kind, for scripts with one run */
        for (uint32_t i = 0; i < b->run_count; i++) {
            if (b->runs[i].prefill == (prefill != 0)) {
                json_out_number(&j, prefill ? "prefill_tok_s" : "decode_tok_s", b->runs[i].tokens_per_second);
                break;
            }
        }
    }
    json_out_end(&j);
}

/* ---- the whole benchmark ---- */

static uint32_t largest(const arg_numbers *list)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        most = list->items[i] > most ? list->items[i] : most;
    }
    return most;
}

/* Turns off NVRTC's own cache of compiled kernels. */
static void forget_compiled(void)
{
#ifdef _WIN32
    _putenv_s("CUDA_CACHE_DISABLE", "1");
#else
    setenv("CUDA_CACHE_DISABLE", "1", 1);
#endif
}

/* With --first-start starts once without the cached kernels; then starts normally. Of several caches only the first
   start is reported. false: failed, message printed. */
static bool start(bench *b, const exl2_model_desc *model)
{
    const bench_options *o = b->options;
    host_options normal = o->host;
    normal.cache = b->cache;
    if (b->host.engine) {
        host_close(&b->host);
        return bench_start_run(&b->later, &b->host, &normal, model);
    }
    if (o->first_start) {
        host_options anew = normal;
        anew.first_start = true;
        forget_compiled();
        double token_seconds;
        if (!bench_start_run(&b->first, &b->host, &anew, model)
            || !bench_runs_first_token(&b->work, &token_seconds)) {
            return false;
        }
        b->first.first_token_seconds = b->first.open_seconds + b->first.load_seconds + token_seconds;
        host_close(&b->host);
        if (!o->json) {
            printf("first start: ");
            bench_start_print(&b->first);
            printf("later start: ");
        }
    }
    bool good = bench_start_run(&b->start, &b->host, &normal, model);
    if (good && !o->json) {
        bench_start_print(&b->start);
    }
    return good;
}

/* false: failed, message printed. */
static bool load(bench *b)
{
    const bench_options *o = b->options;
    uint32_t prefill = largest(&o->prefill), context = largest(&o->context), batch = largest(&o->batch);
    prefill = o->image && prefill < BENCH_IMAGE_PROMPT ? BENCH_IMAGE_PROMPT : prefill;
    uint64_t decode_need = o->decode ? (uint64_t)context + o->decode + 1 : 0;
    uint64_t prefill_need = prefill ? (uint64_t)prefill + 1 : 0;
    uint64_t need = decode_need > prefill_need ? decode_need : prefill_need; /* tokens of a session */
    exl2_model_desc model = o->model;
    model.path = o->path;
    model.batch_max = batch > 16 ? batch : 0;
    model.experts_active = o->host.experts;
    loras_plan(&model, o->lora_rows.count);
    if (o->image) {
        images_room(&(images){ 0 }, &o->images, 1, &model);
        model.vision.pixels_max = b->picture.width * b->picture.height;
    }
    model.cache.no_reuse = true; /* every round computes its whole prompt */
    if (need > CONTEXT_MAX) {
        fprintf(stderr, "a sequence would have %llu tokens, at most %u are supported\n", (unsigned long long)need,
                CONTEXT_MAX);
        return false;
    }
    model.context_max = need > 8192 ? (uint32_t)need : 0;
    uint64_t decode_pool = (decode_need + 64) * batch;
    model.cache.tokens = decode_pool > prefill_need + 64 ? decode_pool : prefill_need + 64;
    if (!start(b, &model)) {
        return false;
    }
    if (need > b->host.info.context_max) {
        fprintf(stderr, "a sequence would have %llu tokens, but the model's context holds %u\n",
                (unsigned long long)need, b->host.info.context_max);
        return false;
    }
    return true;
}

static bool run_all(bench *b)
{
    const bench_options *o = b->options;
    bool good = true;
    bench_run run;
    for (uint32_t i = 0; good && !ferror(stdout) && i < o->prefill.count; i++) {
        if (o->prefill.items[i]) {
            good = bench_runs_prefill(&b->work, o->prefill.items[i], &run);
            if (good) {
                add_run(b, &run);
            }
        }
    }
    for (uint32_t i = 0; good && o->decode && i < o->context.count; i++) {
        for (uint32_t k = 0; good && !ferror(stdout) && k < o->batch.count; k++) {
            good = bench_runs_decode(&b->work, o->decode, o->batch.items[k], o->context.items[i], &run);
            if (good) {
                add_run(b, &run);
            }
        }
    }
    return good;
}

/* Loads the adapters of single sequences, and adds up the bytes of adapters that a pass reads. */
static bool load_rows(bench *b)
{
    const arg_texts *rows = &b->options->lora_rows;
    const host *h = &b->host;
    uint32_t batch = largest(&b->options->batch), read = rows->count < batch ? rows->count : batch;
    exl2_lora_info info;
    b->lora_bytes = 0;
    for (uint32_t i = 0; i < rows->count; i++) {
        const arg_texts one = { { rows->items[i] }, 1 };
        if (!loras_load(h->engine, h->model, &one, &b->work.rows[i])) {
            return false;
        }
    }
    b->work.row_count = rows->count;
    for (uint32_t i = 0; i < h->loras.count + read; i++) {
        exl2_lora l = i < h->loras.count ? h->loras.uses[i].lora : b->work.rows[i - h->loras.count].uses[0].lora;
        b->lora_bytes += exl2_lora_get(h->engine, l, &info) >= 0 ? info.bytes : 0;
    }
    if (b->lora_bytes && !b->options->json) {
        printf("adapters: a pass of %u sequences reads %.1f MB of them\n", batch, (double)b->lora_bytes * 1e-6);
    }
    return true;
}

/* Loads the model with the present cache, and the draft model beside it. */
static bool load_all(bench *b)
{
    const bench_options *o = b->options;
    b->work.draft = o->guesses;
    exl2_model *draft = &b->work.draft.model;
    const char *folder = o->host.draft;
    return load(b) && load_rows(b) && (!folder || host_load_draft(&b->host, folder, largest(&o->batch), draft));
}

static bool run(bench *b)
{
    const bench_options *o = b->options;
    b->cache = o->cache.items[0];
    bool good = o->path ? load_all(b) : host_open(&b->host, &o->host);
    bool gpu = o->path ? host_on_gpu(&b->host) : o->host.backend != HOST_CPU;
    if (good && gpu) {
        good = probe(b);
    } else if (good && o->probe) {
        probe_core(b);
    }
    if (good && o->path && !o->json && !host_on_gpu(&b->host)) {
        print_cpu(b);
    }
    for (uint32_t i = 0; good && o->path && i < o->cache.count; i++) {
        b->cache = o->cache.items[i];
        good = (i == 0 || load_all(b)) && run_all(b);
    }
    if (good && o->image) {
        good = bench_image_run(&b->host, &b->work, &b->picture);
    }
    progress_end(&b->host.bar);
    if (good && o->image && !o->json) {
        bench_image_print(&b->picture);
    }
    if (good && o->json) {
        print_json(b);
    }
    return good;
}

static args_result check(const args_desc *d, const bench_options *o)
{
    uint32_t width, height;
    if (o->image && (!o->path || !bench_image_size(o->image, &width, &height) || width > 16384 || height > 16384)) {
        return args_wrong(d, o->path ? "--image must be WxH, such as 512x288, with sides of 1 to 16384"
                                     : "--image needs MODEL");
    }
    for (uint32_t i = 0; i < o->batch.count; i++) {
        if (o->batch.items[i] == 0 || o->batch.items[i] > BENCH_BATCH_MAX) {
            return args_wrong(d, "--batch must be 1 to %u", BENCH_BATCH_MAX);
        }
    }
    if (o->decode == 1) {
        return args_wrong(d, "--decode must be 0, or at least 2: the speed is that of the tokens after the first one");
    }
    if (o->lora_rows.count && o->host.loras.count == EXL2_JOB_LORAS) {
        return args_wrong(d, "with --lora-row, --lora may be given %d times at most", EXL2_JOB_LORAS - 1);
    }
    return o->path || o->probe ? ARGS_OK : args_wrong(d, "MODEL is missing");
}

int cli_bench(int argc, char **argv)
{
    bench_options o = { .prefill = { { 512 }, 1 }, .context = { { 0 }, 1 }, .batch = { { 1 }, 1 }, .decode = 128,
                        .cache = { { 0 }, 1 } };
    const arg positional[] = { { "MODEL", ARG_TEXT, &o.path, NULL, "model folder; may be left out with --probe" } };
    const arg flags[] = {
        { "--prefill", ARG_NUMBERS, &o.prefill, "N,..", "prompt lengths to measure; 0 = none (512)" },
        { "--decode", ARG_U32, &o.decode, "N", "tokens to generate per sequence, at least 2; 0 = none (128)" },
        { "--context", ARG_NUMBERS, &o.context, "N,..", "tokens in the context before what is measured (0)" },
        { "--batch", ARG_NUMBERS, &o.batch, "N,..", "sequences in a pass (1)" },
        { "--probe", ARG_BOOL, &o.probe, NULL, "measures the GPU's memory, as runs on a GPU do, or a core's reads" },
        { "--ngram", ARG_BOOL, &o.guesses.ngram, NULL, "guesses tokens by what the text said before; same text" },
        { "--draft", ARG_TEXT, &o.host.draft, "DIR[@N]",
          "a smaller model of the same vocabulary that guesses tokens; @N: on GPU N" },
        { "--draft-tokens", ARG_U32, &o.guesses.tokens, "N", "most guesses in a pass (as many as pay, up to 15)" },
        { "--image", ARG_TEXT, &o.image, "WxH", "encodes pictures of this size, too, such as 512x288" },
        IMAGES_LIMITS(o.images),
        { "--first-start", ARG_BOOL, &o.first_start, NULL, "also measures a start that compiles all kernels" },
        HOST_LORA_ARG(o.host),
        HOST_STEER_ARG(o.host),
        { "--lora-row", ARG_TEXTS, &o.lora_rows, "DIR[:S]", "adapter of one sequence; may be repeated" },
        HOST_GPU_ARGS(o.host),
        { "--cache", ARG_CHOICES, &o.cache, "fp16|q8|q6|q4", "formats of the KV cache, such as fp16,q6 (fp16)" },
        { "--cache-tokens", ARG_U64, &o.host.cache_tokens, "N", "tokens of the KV cache (what the program needs)" },
        { "--full-cache", ARG_BOOL, &o.host.full_cache, NULL, "layers with a window keep K and V of all tokens, too" },
        HOST_WORK_ARGS(o.host),
        HOST_ROPE_ARGS(o.model),
        { "--json", ARG_BOOL, &o.json, NULL, "prints JSON" },
    };
    const args_desc d = { "exl2 bench",
                          "Measures tokens per second and CPU time per token (medians of five), loading, pictures, "
                          "GPU memory.",
                          positional, ARGS_COUNT(positional), 0, flags, ARGS_COUNT(flags) };
    args_result parsed = host_parse(&d, argc, argv, &o.host);
    if (parsed == ARGS_OK) {
        parsed = check(&d, &o);
    }
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    bench *b = memory_take(1, sizeof *b);
    b->options = &o;
    b->work.host = &b->host;
    if (o.image) {
        bench_image_size(o.image, &b->picture.width, &b->picture.height);
    }
    bool good = run(b);
    host_close(&b->host);
    bench_runs_free(&b->work);
    free(b->runs);
    free(b);
    return good ? 0 : 1;
}

/* host.c: see host.h.
   takes: options, a model folder.
   gives: what host.h declares.
   owns:  the engine and the pool of a host, until host_close. */
#include "host.h"

#include "clock.h"
#include "hash.h"
#include "interrupt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Is the warning new? Measuring and loading a model give the same warnings, and each is printed once. */
static bool is_new(host *h, const char *text)
{
    uint64_t hash = hash_bytes(HASH_BEGIN, text, strlen(text));
    uint32_t known = h->warnings < HOST_WARNINGS ? h->warnings : HOST_WARNINGS;
    for (uint32_t i = 0; i < known; i++) {
        if (h->warned[i] == hash) {
            return false;
        }
    }
    h->warned[h->warnings++ % HOST_WARNINGS] = hash;
    return true;
}

/* Prints warnings only, because the code that made a failed call prints its error. A machine without any GPU is no
   reason for a warning. */
static void on_line(void *user, exl2_log_level level, exl2_log_id id, exl2_result code, const char *text)
{
    static const char none[] = "no CUDA d"; /* "no CUDA driver" and "no CUDA device" */
    host *h = user;
    (void)code;
    if (level != EXL2_LOG_WARN) {
        return;
    }
    if (id == EXL2_LOG_ID_CPU_FALLBACK) {
        const char *why = strstr(text, ": ");
        snprintf(h->why_cpu, sizeof h->why_cpu, "%s", why ? why + 2 : text);
        if (h->says_place || strncmp(h->why_cpu, none, sizeof none - 1) == 0) {
            return;
        }
    }
    if (!is_new(h, text)) {
        return;
    }
    progress_end(&h->bar);
    if (h->on_warning) {
        h->on_warning(h->warning_user, text);
    } else {
        fflush(stdout);
        fprintf(stderr, "warning: %s\n", text);
    }
}

/* The GPU of "DIR@N". false: the text names none. */
static bool draft_device(const char *draft, uint32_t *out)
{
    const char *at = draft ? strrchr(draft, '@') : NULL;
    if (!at || !at[1] || strspn(at + 1, "0123456789") != strlen(at + 1) || strlen(at + 1) > 9) {
        return false;
    }
    *out = (uint32_t)strtoul(at + 1, NULL, 10);
    return true;
}

/* Adds a GPU to the engine's list [EXL2_DEVICES_MAX], unless the list has it. Returns its index; EXL2_DEVICES_MAX: the
   list is full. */
static uint32_t add_device(exl2_device_desc *devices, uint32_t *count, uint32_t index)
{
    uint32_t i = 0;
    while (i < *count && devices[i].index != index) {
        i++;
    }
    if (i == *count && i < EXL2_DEVICES_MAX) {
        devices[(*count)++] = (exl2_device_desc){ .pick = EXL2_PICK_INDEX, .index = index };
    }
    return i;
}

/* Checks --cards, and the flags that give a value for each of its GPUs. */
static args_result check_cards(const args_desc *d, const host_options *o)
{
    uint32_t cards = o->cards.count, draft;
    if (cards > EXL2_DEVICES_MAX) {
        return args_wrong(d, "--cards names more than %u GPUs", EXL2_DEVICES_MAX);
    }
    bool draft_found = !draft_device(o->draft, &draft);
    for (uint32_t i = 0; i < cards; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (o->cards.items[k] == o->cards.items[i]) {
                return args_wrong(d, "--cards names GPU %u twice", o->cards.items[i]);
            }
        }
        draft_found = draft_found || o->cards.items[i] == draft;
    }
    if (cards == EXL2_DEVICES_MAX && !draft_found) {
        return args_wrong(d, "--draft and --cards name more than %u GPUs", EXL2_DEVICES_MAX);
    }
    if (o->split == HOST_SPLIT_COLUMNS && cards < 2) {
        return args_wrong(d, "--split columns needs at least two GPUs in --cards");
    }
    bool short_shares = o->shares.count && o->shares.count != cards;
    if (short_shares || (o->card_bytes.count && o->card_bytes.count != cards)) {
        return args_wrong(d, "%s needs a value for each of the GPUs of --cards",
                          short_shares ? "--shares" : "--card-bytes");
    }
    for (uint32_t i = 0; i < o->shares.count; i++) {
        if (!(o->shares.items[i] > 0 && o->shares.items[i] <= 1e6f)) {
            return args_wrong(d, "--shares must be above 0 and at most 1000000");
        }
    }
    return ARGS_OK;
}

args_result host_parse(const args_desc *d, int argc, char **argv, const host_options *o)
{
    args_result parsed = args_parse(d, argc, argv);
    if (parsed != ARGS_OK) {
        return parsed;
    }
    if (o->device.count > 1 || (o->cards.count && o->device.count)) {
        return args_wrong(d, o->cards.count ? "--device and --cards are both set"
                                            : "--device names one GPU; --cards names several");
    }
    if (o->split == HOST_SPLIT_AUTO && (o->shares.count || o->device.count)) {
        return args_wrong(d, "%s and --split auto are both set", o->shares.count ? "--shares" : "--device");
    }
    if (o->cards.count && o->backend == HOST_CPU) {
        return args_wrong(d, "--cards and --backend cpu contradict each other");
    }
    if ((o->host_mlps || o->host_prompts) && o->offload == HOST_OFFLOAD_NONE) {
        return args_wrong(d, "--host-%s and --offload none contradict each other", o->host_mlps ? "mlps" : "prompts");
    }
    return check_cards(d, o);
}

/* With --split auto: fills in the engine's GPUs: the ones in --cards with their caps, or every usable GPU. */
static void list_auto(host *h, const host_options *o, exl2_device_desc *devices, uint32_t *count)
{
    static exl2_device_info all[EXL2_DEVICES_MAX];
    uint32_t found = 0, listed = h->card_count;
    h->split_auto = o->split == HOST_SPLIT_AUTO;
    if (!h->split_auto) {
        return;
    }
    for (uint32_t i = 0; i < h->card_count; i++) {
        devices[i].bytes_max = h->cards[i].bytes_max;
    }
    if (!listed && o->backend != HOST_CPU && exl2_devices(all, EXL2_DEVICES_MAX, &found) >= 0) {
        for (uint32_t i = 0; i < found && i < EXL2_DEVICES_MAX; i++) {
            if (all[i].usable) {
                devices[listed++] = (exl2_device_desc){ .pick = EXL2_PICK_INDEX, .index = all[i].index };
            }
        }
    }
    *count = listed;
    h->card_count = 0;
}

/* Fills in the engine's GPUs and the models' cards. false: there are too many; a message was printed. */
static bool list_cards(host *h, const host_options *o, exl2_device_desc *devices, uint32_t *count)
{
    uint32_t draft, cards = o->cards.count;
    for (uint32_t i = 0; i < cards; i++) {
        devices[i] = (exl2_device_desc){ .pick = EXL2_PICK_INDEX, .index = o->cards.items[i] };
        h->cards[i] = (exl2_card){ .device = i, .bytes_max = o->card_bytes.count ? o->card_bytes.items[i] : 0,
                                   .share = o->shares.count ? o->shares.items[i] : 0 };
    }
    *count = h->card_count = cards;
    h->columns = o->split == HOST_SPLIT_COLUMNS;
    list_auto(h, o, devices, count);
    h->has_draft_card = draft_device(o->draft, &draft);
    if (*count == 0 && (o->device.count || h->has_draft_card)) { /* the model's GPU comes first */
        add_device(devices, count, o->device.items[0]);
    }
    if (h->has_draft_card) {
        h->draft_card.device = add_device(devices, count, draft);
        if (h->draft_card.device == EXL2_DEVICES_MAX) {
            fprintf(stderr, "GPU %u of --draft is none of the %u that --split auto lists\n", draft, EXL2_DEVICES_MAX);
            return false;
        }
    }
    return true;
}

bool host_open(host *h, const host_options *o)
{
    static const exl2_backend backends[] = { EXL2_BACKEND_AUTO, EXL2_BACKEND_CUDA, EXL2_BACKEND_CPU };
    exl2_error error = { 0 };
    exl2_device_desc devices[EXL2_DEVICES_MAX];
    uint32_t device_count;
    *h = (host){ .pool = pool_open(o->threads), .says_place = o->says_place, .experts = o->experts,
                 .cache = o->cache, .cache_tokens = o->cache_tokens, .full_cache = o->full_cache,
                 .cache_host = o->cache_host, .lora_texts = o->loras, .steer_texts = o->steers,
                 .offload = o->offload == HOST_OFFLOAD_AUTO ? EXL2_OFFLOAD_AUTO : EXL2_OFFLOAD_NONE,
                 .host_mlps = o->host_mlps, .host_prompts = o->host_prompts };
    if (o->threads > POOL_WIDTH_MAX) {
        fprintf(stderr, "--threads must be at most %u, not %u\n", POOL_WIDTH_MAX, o->threads);
        host_close(h);
        return false;
    }
    if (!h->pool) {
        fprintf(stderr, "cannot start %u threads\n", o->threads ? o->threads : pool_processors());
        return false;
    }
    if (!list_cards(h, o, devices, &device_count)) {
        host_close(h);
        return false;
    }
    if (!kernel_folder_open(&h->kernels, o->kernels)) {
        fputs("the path of the kernel folder is too long\n", stderr);
        host_close(h);
        return false;
    }
    exl2_engine_desc d = { .backend = backends[o->backend], .cpu_path_max = (exl2_cpu_path)o->cpu_path,
                           .devices = devices, .device_count = device_count,
                           .max_jobs = o->max_jobs, .max_sessions = o->max_sessions,
                           .parallel = pool_hook(h->pool), .zones = o->zones, .host_bytes_max = o->bytes_max,
                           .device_bytes_max = o->gpu_bytes, .open_error = &error };
    d.kernel_cache = kernel_folder_hook(&h->kernels);
    d.kernel_cache.load = o->first_start ? NULL : d.kernel_cache.load;
    d.log.line = on_line;
    d.log.user = h;
    uint64_t start = clock_ns();
    if (exl2_open(&d, &h->engine) < 0) {
        fprintf(stderr, "%s\n", error.text);
        host_close(h);
        return false;
    }
    exl2_engine_info info;
    exl2_engine_get(h->engine, &info);
    if (h->card_count && info.backend == EXL2_BACKEND_CPU) {
        fprintf(stderr, "--cards names GPUs, but models run on the CPU here: %s\n", h->why_cpu);
        host_close(h);
        return false;
    }
    h->open_seconds = clock_seconds_since(start);
    return true;
}

static exl2_flow on_load(void *user, const exl2_event *event)
{
    host *h = user;
    if (event->kind == EXL2_EVENT_LOAD) {
        progress_show(&h->bar, (double)event->progress, "loading the model");
    }
    if (interrupted()) {
        exl2_interrupt(h->engine);
    }
    return EXL2_CONTINUE;
}

void host_place(const host *h, exl2_model_desc *d)
{
    d->cards = h->cards;
    d->card_count = h->card_count;
    d->split_auto = h->split_auto;
    d->split = h->columns ? EXL2_SPLIT_COLUMNS : EXL2_SPLIT_LAYERS;
    d->offload = h->columns ? EXL2_OFFLOAD_NONE : h->offload; /* the CPU has no part in it */
    d->host_mlps = h->host_mlps;
    d->host_prompts = h->host_prompts && d->offload == EXL2_OFFLOAD_AUTO;
    d->cache.format = (exl2_kv)h->cache;
    d->cache.full = h->full_cache;
    d->cache.host_bytes = h->cache_host;
    d->cache.tokens = h->cache_tokens ? h->cache_tokens : d->cache.tokens;
}

bool host_offload_text(const exl2_model_info *info, char *out, size_t size)
{
    snprintf(out, size, "the CPU computes the %s of %u of %u layers (%.2f GB)%s", info->experts ? "experts" : "MLPs",
             info->host_mlps, info->layers, (double)info->host_weight_bytes * 1e-9,
             info->host_prompts ? ", of prompts, too" : ", but not of prompts");
    return info->host_mlps > 0;
}

const char *host_cache_name(const host *h)
{
    static const char *const names[] = { "fp16", "q8", "q6", "q4" };
    return names[h->cache];
}

bool host_load(host *h, const exl2_model_desc *d, uint32_t sequences)
{
    exl2_model_desc with_progress = *d;
    with_progress.experts_active = h->experts ? h->experts : d->experts_active;
    host_place(h, &with_progress);
    loras_plan(&with_progress, h->lora_texts.count);
    with_progress.steer_max += h->steer_texts.count;
    if (!with_progress.cache.tokens && exl2_model_measure(h->engine, &with_progress, &h->info) >= 0) {
        with_progress.cache.tokens = (uint64_t)h->info.context_max * sequences;
    }
    with_progress.on_event = on_load;
    with_progress.user = h;
    interrupt_watch();
    uint64_t start = clock_ns();
    exl2_result result = exl2_model_load(h->engine, &with_progress, &h->model);
    h->load_seconds = clock_seconds_since(start);
    progress_end(&h->bar);
    if (result >= 0) {
        result = exl2_model_get(h->engine, h->model, &h->info);
    }
    if (result == EXL2_ERR_CANCELLED) {
        fputs("interrupted\n", stderr);
    } else if (result < 0) {
        host_failed(h);
    }
    return result >= 0 && loras_load(h->engine, h->model, &h->lora_texts, &h->loras)
        && steers_load(h->engine, h->model, &h->steer_texts, &h->steers);
}

bool host_load_text(host *h, const char *path)
{
    exl2_model_desc d = { .path = path, .text_only = true };
    if (exl2_model_load(h->engine, &d, &h->model) < 0) {
        host_failed(h);
        return false;
    }
    return true;
}

bool host_load_draft(host *h, const char *path, uint32_t sequences, exl2_model *out)
{
    char folder[1024];
    size_t bytes = h->has_draft_card ? (size_t)(strrchr(path, '@') - path) : strlen(path);
    if (bytes >= sizeof folder) {
        fprintf(stderr, "the path of --draft is longer than %zu bytes\n", sizeof folder - 1);
        return false;
    }
    snprintf(folder, sizeof folder, "%.*s", (int)bytes, path);
    exl2_model_desc d = { .path = folder, .context_max = h->info.context_max, .on_event = on_load, .user = h,
                          .cards = &h->draft_card, .card_count = h->has_draft_card };
    d.cache.tokens = (uint64_t)d.context_max * sequences;
    d.cache.format = (exl2_kv)h->cache;
    d.cache.full = h->full_cache;
    exl2_result result = exl2_model_load(h->engine, &d, out);
    progress_end(&h->bar);
    if (result < 0) {
        host_failed(h);
    }
    return result >= 0;
}

exl2_result host_step(host *h, exl2_job job, uint32_t cpu_us)
{
    exl2_step_desc d = { .cpu_us = cpu_us, .wait = true };
    if (interrupted()) {
        exl2_job_cancel(h->engine, job);
    }
    return exl2_step(h->engine, &d);
}

void host_end_take(host_end *end, const exl2_event *event)
{
    if (event->kind == EXL2_EVENT_DONE) {
        *end = (host_end){ true, event->stop, event->result, event->stats, "" };
        snprintf(end->error, sizeof end->error, "%s", event->error ? event->error : "");
    }
}

bool host_end_good(host *h, const host_end *end)
{
    bool cancelled = end->stop == EXL2_STOP_CANCELLED;
    if (!cancelled && end->result >= 0) {
        return true;
    }
    progress_end(&h->bar);
    fprintf(stderr, "%s\n", cancelled ? "interrupted" : end->error);
    return false;
}

bool host_on_gpu(const host *h)
{
    return h->info.device_bytes > 0;
}

const char *host_cpu_path(const host *h)
{
    static const char *const names[] = { "", "c", "avx2", "avx512", "neon" };
    exl2_engine_info info;
    exl2_engine_get(h->engine, &info);
    return names[info.cpu_path];
}

int host_failed(host *h)
{
    exl2_error error;
    exl2_last_error(h->engine, &error);
    progress_end(&h->bar);
    fprintf(stderr, "%s\n", error.text);
    return 1;
}

void host_close(host *h)
{
    exl2_close(h->engine);
    pool_close(h->pool);
    *h = (host){ 0 };
}

const char *host_stop_name(exl2_stop stop)
{
    static const char *const names[] = { "none",    "eos",      "string",    "token", "length",
                                         "grammar", "callback", "cancelled", "error", "loop" };
    size_t at = (size_t)stop;
    return at < sizeof names / sizeof names[0] ? names[at] : "unknown";
}

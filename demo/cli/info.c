/* info.c: `exl2 info`: lists the GPUs; says what a model is, what it needs and where it would run, from file headers
   alone.
   takes: a model folder, or none.
   gives: cli_info. */
#include "../common/host.h"
#include "../common/json_out.h"
#include "cli.h"
#include "exl3.h"

#include <stdio.h>

#define INFO_DEVICES 16u
#define INFO_WARNINGS 16u

typedef struct info {
    host_options options;
    exl2_model_desc desc; /* path NULL: GPUs only */
    host host;
    exl2_device_info devices[INFO_DEVICES]; /* [device_count] */
    uint32_t device_count;
    exl2_engine_info engine;
    exl2_link_speed links[EXL2_DEVICES_MAX][EXL2_DEVICES_MAX]; /* from, to: GPUs of --cards */
    exl2_model_info model;
    exl2_lora_info loras[ARGS_LIST_MAX]; /* of --lora */
    char warnings[INFO_WARNINGS][256]; /* [warning_count] with --json */
    uint32_t warning_count;
    bool has_exl3;
    exl3_summary exl3;
    exl2_model_info sees;        /* with room for one picture; tower NULL: there is none, or why_blind says why */
    exl2_image_info pictures[2]; /* of the sizes of info_pictures */
    char why_blind[256];
} info;

static const uint32_t info_pictures[2][2] = { { 512, 512 }, { 1280, 720 } };

/* ---- JSON ---- */

static void print_json_devices(json_out *j, const info *i)
{
    json_out_array(j, "devices");
    for (uint32_t n = 0; n < i->device_count; n++) {
        const exl2_device_info *d = &i->devices[n];
        json_out_object(j, NULL);
        json_out_uint(j, "index", d->index);
        json_out_string(j, "name", d->name);
        json_out_uint(j, "arch", d->arch);
        json_out_uint(j, "bytes_total", d->bytes_total);
        json_out_bool(j, "usable", d->usable);
        json_out_string(j, "why_not", d->usable ? NULL : d->why_not);
        json_out_end(j);
    }
    json_out_end(j);
}

static void print_json_links(json_out *j, const info *i)
{
    json_out_array(j, "links");
    for (uint32_t n = 0; n < i->engine.device_count * i->engine.device_count; n++) {
        uint32_t from = n / i->engine.device_count, to = n % i->engine.device_count;
        const exl2_link_speed *speed = &i->links[from][to];
        if (from != to && speed->bytes_s) {
            json_out_object(j, NULL);
            json_out_uint(j, "from", i->engine.devices[from].index);
            json_out_uint(j, "to", i->engine.devices[to].index);
            json_out_bool(j, "direct", speed->direct);
            json_out_number(j, "us", (double)speed->us);
            json_out_number(j, "gb_s", (double)speed->bytes_s * 1e-9);
            json_out_end(j);
        }
    }
    json_out_end(j);
}

static bool has_window(const exl2_model_info *m, uint32_t layer)
{
    return m->windowed[layer / 32] >> (layer % 32) & 1u;
}

static void print_json_layers(json_out *j, const exl2_model_info *m)
{
    json_out_array(j, "windows");
    for (uint32_t n = 0; n < m->layers; n++) {
        json_out_uint(j, NULL, has_window(m, n) ? m->window : 0);
    }
    json_out_end(j);
    json_out_array(j, "rope");
    for (uint32_t n = 0; n < m->rope_count; n++) {
        json_out_object(j, NULL);
        json_out_string(j, "kind", m->ropes[n].kind);
        json_out_number(j, "theta", m->ropes[n].theta);
        json_out_number(j, "factor", m->ropes[n].factor);
        json_out_end(j);
    }
    json_out_end(j);
}

static void print_json_model(json_out *j, const info *i)
{
    const exl2_model_info *m = &i->model;
    bool on_gpu = i->engine.backend == EXL2_BACKEND_CUDA;
    json_out_string(j, "runs_on", on_gpu ? "cuda" : "cpu");
    if (on_gpu) {
        json_out_uint(j, "device", i->engine.device.index);
    }
    json_out_string(j, "why_cpu", i->host.why_cpu[0] ? i->host.why_cpu : NULL);
    json_out_string(j, "cpu_path", host_cpu_path(&i->host));
    json_out_string(j, "arch", m->arch);
    json_out_string(j, "family", m->family);
    json_out_string(j, "format", m->format);
    json_out_uint(j, "dequantized", m->dequantized);
    if (i->has_exl3) {
        exl3_print_json(j, &i->exl3);
    }
    json_out_uint(j, "vocab", m->vocab);
    json_out_uint(j, "hidden", m->hidden);
    json_out_uint(j, "layers", m->layers);
    json_out_uint(j, "heads", m->heads);
    json_out_uint(j, "kv_heads", m->kv_heads);
    json_out_uint(j, "head_dim", m->head_dim);
    json_out_string(j, "norms", m->norms);
    json_out_bool(j, "parallel", m->parallel);
    print_json_layers(j, m);
    json_out_bool(j, "tower_skipped", m->tower_skipped);
    json_out_bool(j, "needs_bos", m->needs_bos);
    json_out_uint(j, "context_max", m->context_max);
    json_out_uint(j, "experts", m->experts);
    json_out_uint(j, "experts_active", m->experts_active);
    json_out_number(j, "bits_per_weight", (double)m->bits_per_weight);
    json_out_uint(j, "weight_bytes", m->weight_bytes);
    json_out_uint(j, "cache_bytes", m->cache_bytes);
    json_out_uint(j, "scratch_bytes", m->scratch_bytes);
    json_out_uint(j, "device_bytes", m->device_bytes);
    json_out_uint(j, "host_mlps", m->host_mlps);
    json_out_bool(j, "host_prompts", m->host_prompts);
    json_out_uint(j, "host_weight_bytes", m->host_weight_bytes);
    json_out_array(j, "cards");
    for (uint32_t n = 0; n < m->card_count; n++) {
        const exl2_card_info *card = &m->cards[n];
        json_out_object(j, NULL);
        json_out_uint(j, "device", i->engine.devices[card->device].index);
        json_out_uint(j, "first_layer", card->first_layer);
        json_out_uint(j, "layers", card->layers);
        json_out_number(j, "columns", (double)card->columns);
        json_out_uint(j, "host_mlps", card->host_mlps);
        json_out_bool(j, "host_prompts", card->host_prompts);
        json_out_uint(j, "weight_bytes", card->weight_bytes);
        json_out_uint(j, "cache_bytes", card->cache_bytes);
        json_out_uint(j, "scratch_bytes", card->scratch_bytes);
        json_out_end(j);
    }
    json_out_end(j);
    json_out_uint(j, "cache_bytes_per_token", m->cache_bytes_per_token);
    json_out_uint(j, "cache_tokens", m->cache_tokens);
    json_out_uint(j, "window_tokens", m->window_tokens);
    json_out_uint(j, "window_bytes", m->window_bytes);
    json_out_string(j, "cache_format", host_cache_name(&i->host));
    json_out_uint(j, "pass_bytes", m->pass_bytes);
    json_out_int(j, "bos", m->bos);
    json_out_int(j, "eos", m->eos);
    json_out_bool(j, "has_tokenizer", m->has_tokenizer);
    json_out_bool(j, "has_chat_template", m->has_chat_template);
    json_out_bool(j, "reads_tools", m->reads_tools);
    json_out_bool(j, "reads_tool_calls", m->reads_tool_calls);
    json_out_array(j, "warnings");
    for (uint32_t n = 0; n < i->warning_count; n++) {
        json_out_string(j, NULL, i->warnings[n]);
    }
    json_out_end(j);
}

static void print_json_tower(json_out *j, const info *i)
{
    const exl2_model_info *m = &i->sees;
    json_out_object(j, "tower");
    json_out_string(j, "family", m->tower);
    json_out_uint(j, "weight_bytes", m->tower_bytes);
    json_out_uint(j, "image_bytes", m->image_bytes);
    json_out_uint(j, "total_bytes", m->weight_bytes + m->scratch_bytes + m->cache_bytes);
    json_out_array(j, "pictures");
    for (uint32_t n = 0; n < 2; n++) {
        json_out_object(j, NULL);
        json_out_uint(j, "width", info_pictures[n][0]);
        json_out_uint(j, "height", info_pictures[n][1]);
        json_out_uint(j, "tiles", i->pictures[n].tiles);
        json_out_uint(j, "rows", i->pictures[n].rows);
        json_out_end(j);
    }
    json_out_end(j);
    json_out_end(j);
}

static void print_json_loras(json_out *j, const info *i)
{
    json_out_array(j, "loras");
    for (uint32_t n = 0; n < i->options.loras.count; n++) {
        const exl2_lora_info *l = &i->loras[n];
        json_out_object(j, NULL);
        json_out_string(j, "lora", i->options.loras.items[n]);
        json_out_uint(j, "rank_max", l->rank_max);
        json_out_uint(j, "matrices", l->matrices);
        json_out_uint(j, "bytes", l->bytes);
        json_out_string(j, "warning", l->warning[0] ? l->warning : NULL);
        json_out_end(j);
    }
    json_out_end(j);
}

static void print_json(const info *i)
{
    json_out j = { .file = stdout };
    json_out_object(&j, NULL);
    if (i->desc.path) {
        print_json_model(&j, i);
    }
    if (i->sees.tower) {
        print_json_tower(&j, i);
    }
    if (i->options.loras.count) {
        print_json_loras(&j, i);
    }
    print_json_devices(&j, i);
    print_json_links(&j, i);
    json_out_end(&j);
}

/* ---- text ---- */

static void print_bytes(const char *what, uint64_t bytes)
{
    printf("%-18s %.1f MiB (%llu bytes)\n", what, (double)bytes / (1024.0 * 1024.0), (unsigned long long)bytes);
}

static void print_text_devices(const info *i)
{
    for (uint32_t n = 0; n < i->device_count; n++) {
        const exl2_device_info *d = &i->devices[n];
        printf("GPU %-14u %s, compute capability %u.%u, %.1f GiB", d->index, d->name, d->arch / 10, d->arch % 10,
               (double)d->bytes_total / (1024.0 * 1024.0 * 1024.0));
        printf("%s%s\n", d->usable ? "" : ": ", d->usable ? "" : d->why_not);
    }
    if (i->device_count == 0) {
        printf("%-18s none\n", "GPUs");
    }
}

/* The pairs of GPUs of --cards. */
static void print_text_links(const info *i)
{
    for (uint32_t n = 0; n < i->engine.device_count * i->engine.device_count; n++) {
        uint32_t from = n / i->engine.device_count, to = n % i->engine.device_count;
        const exl2_link_speed *speed = &i->links[from][to];
        if (from != to && speed->bytes_s) {
            printf("GPU %u to GPU %-6u %s: 16 KiB in %.1f us, %.1f GB/s\n", i->engine.devices[from].index,
                   i->engine.devices[to].index, speed->direct ? "directly" : "through host memory", (double)speed->us,
                   (double)speed->bytes_s * 1e-9);
        }
    }
}

/* false: failed, message printed. */
static bool measure_links(info *i)
{
    uint32_t count = i->engine.device_count;
    for (uint32_t n = 0; n < count * count && count > 1; n++) {
        if (n / count != n % count
            && exl2_link_probe(i->host.engine, n / count, n % count, &i->links[n / count][n % count]) < 0) {
            host_failed(&i->host);
            return false;
        }
    }
    return true;
}

static void print_text_place(const info *i)
{
    const exl2_engine_info *e = &i->engine;
    if (e->backend == EXL2_BACKEND_CPU) {
        const char *why = i->host.why_cpu;
        printf("%-18s CPU (%s)%s%s\n", "would run on", host_cpu_path(&i->host), why[0] ? ": " : "", why);
    } else {
        printf("%-18s GPU %u, %s\n", "would run on", e->device.index, e->device.name);
    }
}

/* What the family computes. */
static void print_text_family(const exl2_model_info *m)
{
    uint32_t windowed = 0;
    for (uint32_t n = 0; n < m->layers; n++) {
        windowed += has_window(m, n);
    }
    printf("%-18s %s%s\n", "architecture", m->arch, m->tower_skipped ? ", the text model alone" : "");
    printf("%-18s %s%s%s\n", "family", m->family, m->parallel ? ", attention and MLP in parallel" : "",
           m->needs_bos ? ", needs BOS" : "");
    printf("%-18s %s\n", "format", m->format);
    if (m->dequantized) {
        printf("%-18s %u quantized matrices are FP16 on the GPU\n", "dequantized", m->dequantized);
    }
    printf("%-18s %u layers, hidden %u, %u heads of %u, %u for K and V\n", "shape", m->layers, m->hidden, m->heads,
           m->head_dim, m->kv_heads);
    printf("%-18s %s\n", "norms", m->norms);
    if (m->window) {
        printf("%-18s %u tokens in %u of %u layers\n", "window", m->window, windowed, m->layers);
    }
    for (uint32_t n = 0; n < m->rope_count; n++) {
        printf("%-18s %s, theta %.9g, factor %.9g\n", n ? "RoPE with window" : "RoPE", m->ropes[n].kind,
               m->ropes[n].theta, m->ropes[n].factor);
    }
    if (m->rope_count == 0) {
        printf("%-18s learned\n", "positions");
    }
}

static void print_text_model(const info *i)
{
    const exl2_model_info *m = &i->model;
    print_text_family(m);
    if (i->has_exl3) {
        exl3_print(&i->exl3);
    }
    printf("%-18s %u tokens, bos %d, eos %d\n", "vocabulary", m->vocab, m->bos, m->eos);
    printf("%-18s %s\n", "tokenizer", m->has_tokenizer ? "yes" : "no");
    printf("%-18s %s\n", "chat template", m->has_chat_template ? "yes" : "no");
    if (m->has_chat_template) {
        printf("%-18s the chat template %s them\n", "tools", m->reads_tools ? "reads" : "ignores");
        printf("%-18s the chat template %s them\n", "tool calls", m->reads_tool_calls ? "reads" : "ignores");
    }
    printf("%-18s %.3f\n", "bits per weight", (double)m->bits_per_weight);
    print_bytes("weights", m->weight_bytes);
    print_bytes("scratch", m->scratch_bytes);
    print_bytes("cache", m->cache_bytes);
    if (m->device_bytes == 0) {
        printf("%-18s at the first use of each page\n", "cache is resident");
    }
    printf("%-18s %llu tokens of all sessions, as %s\n", "cache holds",
           (unsigned long long)m->cache_tokens, host_cache_name(&i->host));
    if (m->window_tokens) {
        printf("%-18s of %llu tokens in the layers with a window\n", "", (unsigned long long)m->window_tokens);
    }
    print_bytes("total memory", m->weight_bytes + m->scratch_bytes + m->cache_bytes);
    if (m->device_bytes) {
        print_bytes("of it on the GPU", m->device_bytes);
    }
    char offload[160];
    if (host_offload_text(m, offload, sizeof offload)) {
        printf("%-18s %s\n", "offload", offload);
    }
    for (uint32_t n = 0; n < m->card_count && m->card_count > 1; n++) {
        const exl2_card_info *card = &m->cards[n];
        char part[48] = "";
        if (card->columns < 1) {
            snprintf(part, sizeof part, "%.0f %% of the columns of ", 100 * (double)card->columns);
        }
        printf("%-18s %slayers %u to %u: %.1f MiB of weights, %.1f of cache, %.1f of buffers\n",
               i->engine.devices[card->device].name, part, card->first_layer, card->first_layer + card->layers - 1,
               (double)card->weight_bytes / 1048576.0, (double)card->cache_bytes / 1048576.0,
               (double)card->scratch_bytes / 1048576.0);
    }
    printf("%-18s %u tokens, %llu bytes per token\n", "context", m->context_max,
           (unsigned long long)m->cache_bytes_per_token);
}

static void print_text_tower(const info *i)
{
    const exl2_model_info *m = &i->sees;
    if (i->why_blind[0]) {
        printf("%-18s %s\n", "pictures", i->why_blind);
    }
    if (!m->tower) {
        return;
    }
    printf("%-18s of %s\n", "tower", m->tower);
    print_bytes("its weights", m->tower_bytes);
    for (uint32_t n = 0; n < 2; n++) {
        const exl2_image_info *p = &i->pictures[n];
        printf("a picture %4u x %-3u %u rows, %u tile%s of %u x %u, %.2f TFLOP\n", info_pictures[n][0],
               info_pictures[n][1], p->rows, p->tiles, p->tiles == 1 ? "" : "s", p->width, p->height,
               (double)p->operations * 1e-12);
    }
    print_bytes("for one picture", m->image_bytes);
    print_bytes("total with it", m->weight_bytes + m->scratch_bytes + m->cache_bytes);
}

/* Measures the model again with room for one picture, if it has a tower. */
static void measure_tower(info *i)
{
    exl2_engine *e = i->host.engine;
    exl2_model model = { 0 };
    exl2_model_desc d = i->desc;
    exl2_step_desc step = { .cpu_us = 1 };
    exl2_error error;
    if (!i->model.tower_skipped) {
        return;
    }
    d.vision.images = 1;
    exl2_result r = exl2_model_measure(e, &d, &i->sees);
    r = r < 0 ? r : exl2_model_open(e, &d, &model);
    for (uint32_t n = 0; n < 2 && r >= 0; n++) {
        const exl2_image_desc size = { .model = model, .width = info_pictures[n][0], .height = info_pictures[n][1] };
        while ((r = exl2_image_measure(e, &size, &i->pictures[n])) == EXL2_ERR_STATE
               && exl2_model_state(e, model) == EXL2_PENDING) { /* its headers are not read yet */
            exl2_step(e, &step);
        }
    }
    if (r < 0) {
        exl2_last_error(e, &error);
        snprintf(i->why_blind, sizeof i->why_blind, "%s", error.text);
        i->sees.tower = NULL;
    }
    if (model.id) {
        exl2_model_close(e, model);
    }
}

/* Keeps a warning for the JSON, and prints it, too. */
static void on_warning(void *user, const char *text)
{
    info *i = user;
    fflush(stdout);
    fprintf(stderr, "warning: %s\n", text);
    if (i->warning_count < INFO_WARNINGS) {
        snprintf(i->warnings[i->warning_count++], sizeof i->warnings[0], "%s", text);
    }
}

/* Reads the headers of the adapters, and those of the model for them. false: failed, message printed. */
static bool measure_loras(info *i)
{
    exl2_model model;
    exl2_engine *e = i->host.engine;
    bool good = i->options.loras.count == 0 || exl2_model_open(e, &i->desc, &model) >= 0;
    for (uint32_t n = 0; good && n < i->options.loras.count; n++) {
        char path[LORAS_PATH];
        float scale;
        exl2_lora_desc d = { .model = model, .path = path };
        exl2_step_desc step = { .cpu_us = 1 };
        if (!loras_split(i->options.loras.items[n], path, &scale)) {
            fprintf(stderr, "the path of --lora is longer than %d bytes\n", LORAS_PATH - 1);
            return false;
        }
        exl2_result r;
        while ((r = exl2_lora_measure(e, &d, &i->loras[n])) == EXL2_ERR_STATE
               && exl2_model_state(e, model) == EXL2_PENDING) { /* the model's headers are not read yet */
            exl2_step(e, &step);
        }
        good = r >= 0;
    }
    if (!good) {
        host_failed(&i->host);
    }
    return good;
}

static void print_text_loras(const info *i)
{
    for (uint32_t n = 0; n < i->options.loras.count; n++) {
        const exl2_lora_info *l = &i->loras[n];
        printf("adapter %s: rank %u, %u matrices, %.1f MB%s%s\n", i->options.loras.items[n], l->rank_max, l->matrices,
               (double)l->bytes * 1e-6, l->warning[0] ? "; warning: " : "", l->warning);
    }
}

static int run(info *i, bool json)
{
    if (exl2_devices(i->devices, INFO_DEVICES, &i->device_count) < 0) {
        fputs("the GPUs of this machine cannot be listed\n", stderr);
        return 1;
    }
    i->device_count = i->device_count < INFO_DEVICES ? i->device_count : INFO_DEVICES;
    if (i->desc.path || i->options.cards.count > 1) {
        if (!host_open(&i->host, &i->options)) {
            return 1;
        }
        i->host.on_warning = json ? on_warning : NULL;
        i->host.warning_user = i;
        exl2_engine_get(i->host.engine, &i->engine);
        if (i->engine.backend == EXL2_BACKEND_CPU && !i->desc.path) {
            fputs("--cards names GPUs, but models would run on the CPU of this machine\n", stderr);
            return 1;
        }
        if (!measure_links(i)) {
            return 1;
        }
    }
    if (i->desc.path) {
        host_place(&i->host, &i->desc);
        loras_plan(&i->desc, i->options.loras.count);
        if (exl2_model_measure(i->host.engine, &i->desc, &i->model) < 0) {
            return host_failed(&i->host);
        }
        if (!measure_loras(i)) {
            return 1;
        }
        measure_tower(i);
        i->has_exl3 = exl3_read(i->desc.path, &i->exl3);
    }
    if (json) {
        print_json(i);
        return 0;
    }
    if (i->desc.path) {
        print_text_model(i);
        print_text_tower(i);
        print_text_place(i);
        print_text_loras(i);
    }
    print_text_devices(i);
    print_text_links(i);
    return 0;
}

int cli_info(int argc, char **argv)
{
    info i = { .options = { .threads = 1, .says_place = true } };
    bool json = false;
    const arg positional[] = {
        { "MODEL", ARG_TEXT, &i.desc.path, NULL, "model folder; without one, only GPUs are listed" },
    };
    const arg flags[] = {
        HOST_LORA_ARG(i.options),
        HOST_CONTEXT_ARGS(i.desc),
        { "--experts", ARG_U32, &i.desc.experts_active, "N", "experts that a token uses (the model's own number)" },
        HOST_GPU_ARGS(i.options),
        HOST_CACHE_ARGS(i.options),
        { "--json", ARG_BOOL, &json, NULL, "prints JSON" },
    };
    const args_desc d = { "exl2 info",
                          "Lists the GPUs, describes a model, shows how much memory it needs and where it would run.",
                          positional, ARGS_COUNT(positional), 0, flags, ARGS_COUNT(flags) };
    args_result parsed = host_parse(&d, argc, argv, &i.options);
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    int code = run(&i, json);
    host_close(&i.host);
    return code;
}

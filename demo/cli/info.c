/* info.c: `exl2 info`: what a model is and what it needs, from file headers alone; which GPUs there are.
   takes: a model folder.
   gives: cli_info.
   owns:  nothing.
   next:  chat.c */
#include "../common/host.h"
#include "../common/json_out.h"
#include "cli.h"

#include <stdio.h>

#define GPUS_MAX 16

typedef struct gpu_list {
    exl2_device_info items[GPUS_MAX];
    uint32_t count; /* in items */
} gpu_list;

static void list_gpus(gpu_list *g)
{
    if (exl2_devices(g->items, GPUS_MAX, &g->count) < 0) {
        g->count = 0;
    }
    g->count = g->count < GPUS_MAX ? g->count : GPUS_MAX;
}

static void print_json(const exl2_model_info *i, const gpu_list *gpus)
{
    json_out j = { .file = stdout };
    json_out_object(&j, NULL);
    json_out_string(&j, "arch", i->arch);
    json_out_uint(&j, "vocab", i->vocab);
    json_out_uint(&j, "hidden", i->hidden);
    json_out_uint(&j, "layers", i->layers);
    json_out_uint(&j, "heads", i->heads);
    json_out_uint(&j, "kv_heads", i->kv_heads);
    json_out_uint(&j, "context_max", i->context_max);
    json_out_number(&j, "bits_per_weight", (double)i->bits_per_weight);
    json_out_uint(&j, "weight_bytes", i->weight_bytes);
    json_out_uint(&j, "cache_bytes", i->cache_bytes);
    json_out_uint(&j, "scratch_bytes", i->scratch_bytes);
    json_out_uint(&j, "cache_bytes_per_token", i->cache_bytes_per_token);
    json_out_int(&j, "bos", i->bos);
    json_out_int(&j, "eos", i->eos);
    json_out_bool(&j, "has_tokenizer", i->has_tokenizer);
    json_out_bool(&j, "has_chat_template", i->has_chat_template);
    json_out_uint(&j, "device_bytes", i->device_bytes);
    json_out_array(&j, "gpus");
    for (uint32_t g = 0; g < gpus->count; g++) {
        const exl2_device_info *gpu = &gpus->items[g];
        json_out_object(&j, NULL);
        json_out_string(&j, "name", gpu->name);
        json_out_uint(&j, "arch", gpu->arch);
        json_out_uint(&j, "bytes", gpu->bytes_total);
        json_out_bool(&j, "usable", gpu->usable);
        json_out_string(&j, "why_not", gpu->why_not);
        json_out_end(&j);
    }
    json_out_end(&j);
    json_out_end(&j);
}

static void print_bytes(const char *what, uint64_t bytes)
{
    printf("%-18s %.1f MiB (%llu bytes)\n", what, (double)bytes / (1024.0 * 1024.0), (unsigned long long)bytes);
}

static void print_gpus(const gpu_list *gpus)
{
    for (uint32_t g = 0; g < gpus->count; g++) {
        const exl2_device_info *gpu = &gpus->items[g];
        printf("GPU %-14u %s, compute capability %u.%u, %.1f GiB%s%s\n", gpu->index, gpu->name, gpu->arch / 10,
               gpu->arch % 10, (double)gpu->bytes_total / (1024.0 * 1024.0 * 1024.0), gpu->usable ? "" : ": ",
               gpu->why_not);
    }
}

static void print_text(const exl2_model_info *i, const char *why_cpu)
{
    printf("%-18s %s\n", "architecture", i->arch);
    printf("%-18s %u layers, hidden %u, %u heads, %u for K and V\n", "shape", i->layers, i->hidden, i->heads,
           i->kv_heads);
    printf("%-18s %u tokens, bos %d, eos %d\n", "vocabulary", i->vocab, i->bos, i->eos);
    printf("%-18s %s\n", "tokenizer", i->has_tokenizer ? "yes" : "no");
    printf("%-18s %s\n", "chat template", i->has_chat_template ? "yes" : "no");
    printf("%-18s %.3f\n", "bits per weight", (double)i->bits_per_weight);
    print_bytes("weights", i->weight_bytes);
    print_bytes("scratch", i->scratch_bytes);
    print_bytes("cache", i->cache_bytes);
    print_bytes("memory in all", i->weight_bytes + i->scratch_bytes + i->cache_bytes);
    if (i->device_bytes) {
        print_bytes("of it on the GPU", i->device_bytes);
    } else {
        printf("%-18s the processor%s%s\n", "runs on", *why_cpu ? ": " : "", why_cpu);
    }
    printf("%-18s %u tokens, %llu bytes a token\n", "context", i->context_max,
           (unsigned long long)i->cache_bytes_per_token);
}

int cli_info(int argc, char **argv)
{
    exl2_model_desc model = { 0 };
    bool json = false;
    host_options options = { .threads = 1 };
    const arg positional[] = { { "MODEL", ARG_TEXT, &model.path, NULL, "model folder" } };
    const arg flags[] = {
        { "--context", ARG_U32, &model.context_max, "N", "tokens of a session (the model's own, at most 8192)" },
        { "--cache", ARG_U64, &model.cache.tokens, "N", "tokens of the cache (4 x context)" },
        { "--json", ARG_BOOL, &json, NULL, "for machines" },
        HOST_ARGS(options),
    };
    const args_desc d = { "exl2 info",
                          "Says what a model is and what it needs in memory; reads file headers alone.",
                          positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    args_result parsed = args_parse(&d, argc, argv);
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    host h;
    exl2_model_info info;
    gpu_list gpus = { .count = 0 };
    if (!host_open(&h, &options)) {
        return 1;
    }
    int code = 0;
    if (exl2_model_measure(h.engine, &model, &info) < 0) {
        code = host_failed(&h);
    } else {
        list_gpus(&gpus);
        if (json) {
            print_json(&info, &gpus);
        } else {
            print_text(&info, h.why_cpu);
            print_gpus(&gpus);
        }
    }
    host_close(&h);
    return code;
}

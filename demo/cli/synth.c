/* synth.c: `exl2 synth`: makes a model of random weights, or an adapter, for measurements without a real model.
   takes: a folder, a shape, a format, a bit rate; or the model that an adapter is for.
   gives: cli_synth. */
#include "../common/interrupt.h"
#include "../common/json_in.h"
#include "../common/json_out.h"
#include "../common/text_file.h"
#include "cli.h"
#include "synth_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS_MAX 1000u

typedef struct synth_options {
    const char *folder;
    const char *shape, *format_name, *codebook_name;
    const char *adapter, *target_names; /* adapter: the model that it is for */
    uint32_t rank, targets;
    synth_format format;
    synth_codebook codebook;
    float bpw;
    uint32_t layers, seed;
    bool json;
} synth_options;

static void report_adapter(const synth_options *o, const synth_plan *p, uint64_t file_bytes)
{
    if (!o->json) {
        printf("%s: adapter of rank %u, %u matrices, %.1f MiB\n", o->folder, p->rank, p->count / 2,
               (double)file_bytes / (1024 * 1024.0));
        return;
    }
    json_out j = { .file = stdout };
    json_out_object(&j, NULL);
    json_out_uint(&j, "rank", p->rank);
    json_out_uint(&j, "matrices", p->count / 2);
    json_out_uint(&j, "file_bytes", file_bytes);
    json_out_end(&j);
}

static void report(const synth_options *o, const synth_plan *p, uint64_t file_bytes)
{
    double bpw = (double)p->layer_bits / (double)p->layer_weights;
    uint64_t layer_bytes = p->layer_bits / 8, head_bytes = p->head_bits / 8;
    uint64_t token_bytes = p->token_bits / 8 + head_bytes;
    if (!o->json) {
        printf("%s: %s, %s, %.4f bits per weight, %.1f MiB, %.1f MiB read per token\n", o->folder, p->shape.name,
               o->format_name, bpw, (double)file_bytes / (1024 * 1024.0), (double)token_bytes / (1024 * 1024.0));
        return;
    }
    json_out j = { .file = stdout };
    json_out_object(&j, NULL);
    json_out_string(&j, "shape", p->shape.name);
    json_out_string(&j, "format", o->format_name);
    json_out_number(&j, "bpw", bpw);
    json_out_uint(&j, "layer_bytes", layer_bytes);
    json_out_uint(&j, "head_bytes", head_bytes);
    json_out_uint(&j, "file_bytes", file_bytes);
    json_out_uint(&j, "read_per_token", token_bytes);
    json_out_end(&j);
}

/* ---- adapters ---- */

/* Sets bits of o->targets. */
static args_result find_targets(const args_desc *d, synth_options *o)
{
    o->targets = strcmp(o->target_names, "all") == 0 ? (1u << SYNTH_TARGETS) - 1 : 0;
    for (const char *at = o->target_names; o->targets != (1u << SYNTH_TARGETS) - 1 && *at;) {
        size_t bytes = strcspn(at, ",");
        uint32_t i = 0;
        while (i < SYNTH_TARGETS && (strlen(synth_targets[i]) != bytes || memcmp(synth_targets[i], at, bytes) != 0)) {
            i++;
        }
        if (i == SYNTH_TARGETS) {
            return args_wrong(d, "--targets must be 'all' or a list of q_proj, k_proj, v_proj, o_proj, gate_proj, "
                              "up_proj, down_proj, not '%s'", o->target_names);
        }
        o->targets |= 1u << i;
        at += bytes + (at[bytes] == ',');
    }
    return o->targets ? ARGS_OK : args_wrong(d, "--targets is empty");
}

static args_result check_adapter(const args_desc *d, synth_options *o)
{
    if (o->shape) {
        return args_wrong(d, "--adapter has the shape of its model: --shape cannot be given, too");
    }
    if (o->rank < 1 || o->rank > 256) {
        return args_wrong(d, "--rank must be 1 to 256");
    }
    return find_targets(d, o);
}

static uint32_t number_of(const json_value *config, const char *key, uint32_t otherwise)
{
    const json_value *v = json_member(config, key);
    return v && v->kind == JSON_NUMBER && v->number >= 1 && v->number < 1e9 ? (uint32_t)v->number : otherwise;
}

/* Reads the sizes of matrices from the config.json of the model. false: a message was printed. */
static bool read_shape(const char *model, uint32_t targets, synth_shape *s)
{
    char path[4096];
    const char *error = NULL;
    size_t bytes;
    snprintf(path, sizeof path, "%s/config.json", model);
    char *text = text_file_read(path, &bytes);
    json_value *config = text ? json_read(text, bytes, &error) : NULL;
    *s = (synth_shape){ .hidden = number_of(config, "hidden_size", 0),
                        .inter = number_of(config, "intermediate_size", 0),
                        .layers = number_of(config, "num_hidden_layers", 0),
                        .heads = number_of(config, "num_attention_heads", 0) };
    s->kv_heads = number_of(config, "num_key_value_heads", s->heads);
    s->head_dim = number_of(config, "head_dim", s->heads ? s->hidden / s->heads : 0);
    bool experts = number_of(config, "num_experts", 0) || number_of(config, "num_local_experts", 0);
    bool good = s->hidden && s->inter && s->layers && s->head_dim;
    json_free(config);
    free(text);
    if (text && error) {
        fprintf(stderr, "%s: %s\n", path, error);
    } else if (text && !good) {
        fprintf(stderr, "%s lacks hidden_size, intermediate_size, num_hidden_layers or num_attention_heads\n", path);
    } else if (good && experts && targets >> 4) {
        fprintf(stderr, "%s has experts: --targets may name q_proj, k_proj, v_proj and o_proj alone\n", model);
    }
    return good && !(experts && targets >> 4);
}

/* ---- both ---- */

static args_result check(const args_desc *d, synth_options *o)
{
    if (o->adapter) {
        return check_adapter(d, o);
    }
    if (!o->shape) {
        return args_wrong(d, "--shape or --adapter is missing");
    }
    if (!synth_shape_find(o->shape)) {
        return args_wrong(d, "--shape must be one of " SYNTH_SHAPES ", not '%s'", o->shape);
    }
    if (!synth_format_find(o->format_name, &o->format)) {
        return args_wrong(d, "--format must be exl2, gptq, awq, dense or exl3, not '%s'", o->format_name);
    }
    if (!synth_bpw_known(o->format, (double)o->bpw)) {
        static const char *const rates[] = { "one of 2.5, 3, 4, 4.5, 5, 6, 8", "one of 2, 3, 4, 8", "4", "",
                                             "one of 1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8" };
        return args_wrong(d, "--bpw must be %s with --format %s", rates[o->format], o->format_name);
    }
    static const char *const codebooks[SYNTH_CODEBOOKS] = { "mul1", "mcg", "3inst" };
    while (o->codebook < SYNTH_CODEBOOKS && strcmp(codebooks[o->codebook], o->codebook_name) != 0) {
        o->codebook++;
    }
    bool half = o->format == SYNTH_EXL3 && o->bpw != (float)(uint32_t)o->bpw;
    if (o->codebook == SYNTH_CODEBOOKS || (half && o->codebook != SYNTH_MUL1)) {
        return args_wrong(d, half ? "--codebook must be mul1 with half rates, not '%s'"
                                  : "--codebook must be mul1, mcg or 3inst, not '%s'", o->codebook_name);
    }
    if (o->layers > LAYERS_MAX) {
        return args_wrong(d, "--layers must be at most %u", LAYERS_MAX);
    }
    return ARGS_OK;
}

int cli_synth(int argc, char **argv)
{
    synth_options o = { .format_name = "exl2", .codebook_name = "mul1", .bpw = 4, .seed = 1, .rank = 16,
                        .target_names = "all" };
    const arg positional[] = { { "OUT", ARG_TEXT, &o.folder, NULL, "folder to make" } };
    const arg flags[] = {
        { "--shape", ARG_TEXT, &o.shape, "NAME", SYNTH_SHAPES },
        { "--format", ARG_TEXT, &o.format_name, "NAME", "exl2, gptq, awq, dense or exl3 (exl2)" },
        { "--bpw", ARG_FLOAT, &o.bpw, "X",
          "bits per weight: 2.5, 3, 4, 4.5, 5, 6, 8; GPTQ 2, 3, 4, 8; AWQ 4; EXL3 1 to 8, 1.5, 2.5, 3.5 (4)" },
        { "--codebook", ARG_TEXT, &o.codebook_name, "NAME", "of EXL3: mul1, mcg or 3inst (mul1)" },
        { "--layers", ARG_U32, &o.layers, "N", "number of layers (as the shape has)" },
        { "--adapter", ARG_TEXT, &o.adapter, "MODEL", "makes an adapter (LoRA) for this model, not a model" },
        { "--rank", ARG_U32, &o.rank, "N", "rank of the adapter, 1 to 256 (16)" },
        { "--targets", ARG_TEXT, &o.target_names, "LIST",
          "matrices of the adapter: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj (all)" },
        { "--seed", ARG_U32, &o.seed, "N", "seed of the random weights (1)" },
        { "--json", ARG_BOOL, &o.json, NULL, "prints JSON" },
    };
    const args_desc d = { "exl2 synth",
                          "Makes a model with random weights, which generates noise, or an adapter. --shape or "
                          "--adapter is required.",
                          positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    args_result parsed = args_parse(&d, argc, argv);
    if (parsed == ARGS_OK) {
        parsed = check(&d, &o);
    }
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    uint64_t file_bytes;
    synth_shape shape;
    synth_plan plan;
    if (o.adapter) {
        if (!read_shape(o.adapter, o.targets, &shape)) {
            return 1;
        }
        plan = synth_plan_adapter(&shape, o.targets, o.rank, o.seed);
    } else {
        shape = *synth_shape_find(o.shape);
        shape.layers = o.layers ? o.layers : shape.layers;
        plan = synth_plan_make(&shape, o.format, o.codebook, (double)o.bpw, o.seed);
    }
    interrupt_watch();
    interrupt_watch_ends();
    bool good = synth_write(&plan, o.folder, &file_bytes);
    if (good && o.adapter) {
        report_adapter(&o, &plan, file_bytes);
    } else if (good) {
        report(&o, &plan, file_bytes);
    }
    free(plan.tensors);
    return good ? 0 : 1;
}

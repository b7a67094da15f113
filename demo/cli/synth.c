/* synth.c: `exl2 synth`: makes an EXL2 model of random weights, for measurements without a real model.
   takes: a folder, a shape, a bit rate.
   gives: cli_synth.
   owns:  nothing beyond the call. */
#include "../common/interrupt.h"
#include "../common/json_out.h"
#include "cli.h"
#include "synth_write.h"

#include <stdio.h>
#include <stdlib.h>

#define SHAPE_NAMES "smollm2-135m, tinyllama-1.1b, llama3.2-3b, llama2-7b, llama3-8b, llama2-13b, llama2-70b"

typedef struct synth_options {
    const char *folder;
    const char *shape;
    float bpw;
    uint32_t seed;
    bool json;
} synth_options;

static void report(const synth_options *o, const synth_plan *p, uint64_t file_bytes)
{
    double bpw = (double)p->layer_bits / (double)p->layer_weights;
    uint64_t layer_bytes = p->layer_bits / 8, head_bytes = p->head_bits / 8;
    if (!o->json) {
        printf("%s: %s, %.4f bits per weight, %.1f MiB, %.1f MiB read per token\n", o->folder, p->shape->name, bpw,
               (double)file_bytes / (1024 * 1024.0), (double)(layer_bytes + head_bytes) / (1024 * 1024.0));
        return;
    }
    json_out j = { .file = stdout };
    json_out_object(&j, NULL);
    json_out_string(&j, "shape", p->shape->name);
    json_out_number(&j, "bpw", bpw);
    json_out_uint(&j, "layer_bytes", layer_bytes);
    json_out_uint(&j, "head_bytes", head_bytes);
    json_out_uint(&j, "file_bytes", file_bytes);
    json_out_uint(&j, "read_per_token", layer_bytes + head_bytes);
    json_out_end(&j);
}

static args_result check(const args_desc *d, const synth_options *o)
{
    if (!o->shape) {
        return args_wrong(d, "--shape is missing");
    }
    if (!synth_shape_find(o->shape)) {
        return args_wrong(d, "--shape must be one of " SHAPE_NAMES ", not '%s'", o->shape);
    }
    if (!synth_bpw_known((double)o->bpw)) {
        return args_wrong(d, "--bpw must be one of 2.5, 3, 4, 4.5, 5, 6, 8");
    }
    return ARGS_OK;
}

int cli_synth(int argc, char **argv)
{
    synth_options o = { .bpw = 4, .seed = 1 };
    const arg positional[] = { { "OUT", ARG_TEXT, &o.folder, NULL, "folder to make" } };
    const arg flags[] = {
        { "--shape", ARG_TEXT, &o.shape, "S", SHAPE_NAMES },
        { "--bpw", ARG_FLOAT, &o.bpw, "X", "bits per weight: 2.5, 3, 4, 4.5, 5, 6, 8 (4)" },
        { "--seed", ARG_U32, &o.seed, "N", "seed of the random weights (1)" },
        { "--json", ARG_BOOL, &o.json, NULL, "prints JSON" },
    };
    const args_desc d = { "exl2 synth",
                          "Makes an EXL2 model with random weights, which generates noise. --shape is required.",
                          positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    args_result parsed = args_parse(&d, argc, argv);
    if (parsed == ARGS_OK) {
        parsed = check(&d, &o);
    }
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    uint64_t file_bytes;
    synth_plan plan = synth_plan_make(synth_shape_find(o.shape), (double)o.bpw, o.seed);
    interrupt_watch();
    interrupt_watch_ends();
    bool good = synth_write(&plan, o.folder, &file_bytes);
    if (good) {
        report(&o, &plan, file_bytes);
    }
    free(plan.tensors);
    return good ? 0 : 1;
}

/* compare.c: `exl2 compare`: how far the predictions of models are from those of another one.
   takes: two or more model folders; a text or ids.
   gives: cli_compare. */
#include "../common/host.h"
#include "../common/interrupt.h"
#include "../common/json_out.h"
#include "../common/text_file.h"
#include "cli.h"
#include "ids.h"

#include <stdio.h>
#include <stdlib.h>

static bool on_progress(void *user, const char *stage, float done)
{
    progress_show_stage(user, (double)done, stage);
    return !interrupted();
}

/* The ids of a text, by the tokenizer of model A. */
static bool read_text(const char *model, const char *path, ids *out)
{
    host h;
    host_options options = { .backend = HOST_CPU, .threads = 1 };
    size_t bytes;
    char *text = text_file_read(path, &bytes);
    bool good = text && host_open(&h, &options);
    if (good) {
        good = host_load_text(&h, model);
        if (good && ids_from_text(h.engine, h.model, text, bytes, 0, out) < 0) {
            good = host_failed(&h) == 0;
        }
        host_close(&h);
    }
    free(text);
    return good;
}

/* What each layer has to do with the difference of the two models. */
static void report_layers(const exl2_compare_layer *layers, uint32_t count, json_out *j)
{
    if (!j) {
        printf("error of the residual after each layer, and KL of A with that layer of B\nlayer    error       KL\n");
    } else {
        json_out_array(j, "layers");
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!j) {
            printf("%5u  %7.5f  %7.5f\n", i, layers[i].error, layers[i].kl);
            continue;
        }
        json_out_object(j, NULL);
        json_out_number(j, "error", layers[i].error);
        json_out_number(j, "kl", layers[i].kl);
        json_out_end(j);
    }
    if (j) {
        json_out_end(j);
    }
}

static void report_json(const char *const *folders, const exl2_compare_info *infos, uint32_t count,
                        const exl2_compare_layer *layers)
{
    json_out j = { .file = stdout };
    json_out_object(&j, NULL);
    json_out_uint(&j, "tokens", infos[0].tokens);
    json_out_number(&j, "nll_a", infos[0].nll_a);
    if (count > 1) {
        json_out_array(&j, "models");
    }
    for (uint32_t i = 0; i < count; i++) {
        if (count > 1) {
            json_out_object(&j, NULL);
            json_out_string(&j, "folder", folders[i]);
        }
        json_out_number(&j, "nll_b", infos[i].nll_b);
        json_out_number(&j, "kl", infos[i].kl);
        json_out_number(&j, "kl_p99", infos[i].kl_p99);
        json_out_number(&j, "top1", infos[i].top1);
        if (count > 1) {
            json_out_end(&j);
        }
    }
    if (count > 1) {
        json_out_end(&j);
    }
    if (layers) {
        report_layers(layers, infos[0].layers, &j);
    }
    json_out_end(&j);
}

static void report(const char *a, const char *const *folders, const exl2_compare_info *infos, uint32_t count)
{
    const exl2_compare_info *first = infos;
    if (count == 1) {
        printf("%llu tokens: nll of A %.4f, of B %.4f; KL of B from A %.5f, 99 %% of positions below %.4f; same top "
               "token %.1f %%\n", (unsigned long long)first->tokens, first->nll_a, first->nll_b, first->kl,
               first->kl_p99, 100 * first->top1);
        return;
    }
    printf("%llu tokens; KL from A, its 99th percentile over positions, and how often the top token is A's\n"
           "    nll       KL    99 %%  top %%  model\n%7.4f                         %s\n",
           (unsigned long long)first->tokens, first->nll_a, a);
    for (uint32_t i = 0; i < count; i++) {
        printf("%7.4f  %7.5f %7.4f  %5.1f  %s\n", infos[i].nll_b, infos[i].kl, infos[i].kl_p99, 100 * infos[i].top1,
               folders[i]);
    }
}

int cli_compare(int argc, char **argv)
{
    exl2_error error = { 0 };
    exl2_compare_info infos[ARGS_LIST_MAX];
    progress bar = { 0 };
    exl2_compare_desc d = { .progress = on_progress, .user = &bar, .error = &error };
    const char *text_file = NULL, *ids_file = NULL;
    uint32_t threads = 0;
    static exl2_compare_layer layers[EXL2_LAYERS_MAX];
    bool json = false, by_layer = false;
    ids tokens = { 0 };
    arg_texts others = { 0 };
    const arg positional[] = {
        { "A", ARG_TEXT, &d.a_dir, NULL, "model folder, such as the original" },
        { "B", ARG_TEXTS, &others, NULL, "folders of models with the same vocabulary, one or more" },
    };
    const arg flags[] = {
        { "--text", ARG_TEXT, &text_file, "FILE", "file with a text; this or --ids-file is required" },
        { "--ids-file", ARG_TEXT, &ids_file, "FILE", "file with a JSON array of ids" },
        { "--rows-of", ARG_U32, &d.row, "N", "tokens of a sequence; longer texts are cut (512)" },
        { "--by-layer", ARG_BOOL, &by_layer, NULL, "of one B: how far its residual is from A's after each layer, and "
          "the KL of A with that layer of B; as slow as half as many comparisons as there are layers" },
        { "--memory", ARG_MIB, &d.host_bytes_max, "SIZE",
          "most memory, in MiB or such as 8GB; models that do not fit are read layer by layer (no limit)" },
        { "--json", ARG_BOOL, &json, NULL, "prints JSON" },
        POOL_THREADS_ARG(threads),
    };
    const args_desc args = { "exl2 compare",
                             "Runs models over a text, on the CPU, and compares their probabilities with those of A.",
                             positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    args_result parsed = args_parse(&args, argc, argv);
    if (parsed == ARGS_OK && !text_file == !ids_file) {
        parsed = args_wrong(&args, "either --text or --ids-file is needed");
    }
    if (parsed == ARGS_OK && by_layer && others.count > 1) {
        parsed = args_wrong(&args, "--by-layer compares two models, not %u", others.count + 1);
    }
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    d.layers = by_layer ? layers : NULL;
    d.layer_max = EXL2_LAYERS_MAX;
    int code = 1;
    if (ids_file ? ids_from_json_file(ids_file, &tokens) : read_text(d.a_dir, text_file, &tokens)) {
        pool *threads_pool = pool_open(threads);
        d.parallel = pool_hook(threads_pool);
        d.tokens = tokens.items;
        d.token_count = tokens.count;
        interrupt_watch();
        exl2_result result = EXL2_OK;
        for (uint32_t i = 0; i < others.count && result >= 0; i++) {
            d.b_dir = others.items[i];
            result = exl2_compare(&d, &infos[i]);
            progress_end(&bar);
        }
        pool_close(threads_pool);
        code = result == EXL2_ERR_ARG ? CLI_EXIT_USAGE : result < 0;
        if (result < 0) {
            fprintf(stderr, "%s\n", error.text);
        } else if (json) {
            report_json(others.items, infos, others.count, d.layers);
        } else {
            report(d.a_dir, others.items, infos, others.count);
            if (by_layer) {
                report_layers(layers, infos[0].layers, NULL);
            }
        }
    }
    free(tokens.items);
    return code;
}

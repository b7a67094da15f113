/* compare.c: `exl2 compare`: how far the predictions of two models are apart.
   takes: two model folders; a text or ids.
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
    progress_show(user, (double)done, stage);
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

static void report(const exl2_compare_info *info, bool json)
{
    if (json) {
        json_out j = { .file = stdout };
        json_out_object(&j, NULL);
        json_out_uint(&j, "tokens", info->tokens);
        json_out_number(&j, "nll_a", info->nll_a);
        json_out_number(&j, "nll_b", info->nll_b);
        json_out_number(&j, "kl", info->kl);
        json_out_number(&j, "kl_p99", info->kl_p99);
        json_out_number(&j, "top1", info->top1);
        json_out_end(&j);
    } else {
        printf("%llu tokens: nll of A %.4f, of B %.4f; KL of B from A %.5f, 99 %% of positions below %.4f; same top "
               "token %.1f %%\n", (unsigned long long)info->tokens, info->nll_a, info->nll_b, info->kl, info->kl_p99,
               100 * info->top1);
    }
}

int cli_compare(int argc, char **argv)
{
    exl2_error error = { 0 };
    exl2_compare_info info;
    progress bar = { 0 };
    exl2_compare_desc d = { .progress = on_progress, .user = &bar, .error = &error };
    const char *text_file = NULL, *ids_file = NULL;
    uint32_t threads = 0;
    bool json = false;
    ids tokens = { 0 };
    const arg positional[] = {
        { "A", ARG_TEXT, &d.a_dir, NULL, "model folder, such as the original" },
        { "B", ARG_TEXT, &d.b_dir, NULL, "model folder with the same vocabulary" },
    };
    const arg flags[] = {
        { "--text", ARG_TEXT, &text_file, "F", "file with a text" },
        { "--ids-file", ARG_TEXT, &ids_file, "F", "file with a JSON array of ids" },
        { "--rows-of", ARG_U32, &d.row, "N", "tokens of a sequence; longer texts are cut (512)" },
        { "--json", ARG_BOOL, &json, NULL, "prints JSON" },
        { "--threads", ARG_U32, &threads, "N", "CPU threads, with the main one (all cores)" },
    };
    const args_desc args = { "exl2 compare",
                             "Runs two models over a text, on the CPU, and compares their probabilities.",
                             positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    args_result parsed = args_parse(&args, argc, argv);
    if (parsed == ARGS_OK && !text_file == !ids_file) {
        parsed = args_wrong(&args, "either --text or --ids-file is needed");
    }
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    int code = 1;
    if (ids_file ? ids_from_json_file(ids_file, &tokens) : read_text(d.a_dir, text_file, &tokens)) {
        pool *threads_pool = pool_open(threads);
        d.parallel = pool_hook(threads_pool);
        d.tokens = tokens.items;
        d.token_count = tokens.count;
        interrupt_watch();
        exl2_result result = exl2_compare(&d, &info);
        progress_end(&bar);
        pool_close(threads_pool);
        code = result == EXL2_ERR_ARG ? CLI_EXIT_USAGE : result < 0;
        if (result < 0) {
            fprintf(stderr, "%s\n", error.text);
        } else {
            report(&info, json);
        }
    }
    free(tokens.items);
    return code;
}

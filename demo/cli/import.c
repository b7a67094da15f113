/* import.c: `exl2 import`: makes a model folder, EXL2 or dense, from a GGUF file.
   takes: a GGUF file, a folder that does not exist yet or is empty.
   gives: cli_import. */
#define _POSIX_C_SOURCE 200809L
#include "../common/clock.h"
#include "../common/folder.h"
#include "../common/host.h"
#include "../common/interrupt.h"
#include "../common/json_out.h"
#include "cli.h"

#include <stdio.h>

#ifndef EXL2_CONVERT
#error "build the program exl2 with EXL2_CONVERT defined"
#endif

static bool on_progress(void *user, float done, const char *what)
{
    progress_show_stage(user, (double)done, what);
    return !interrupted();
}

static void report_json(const exl2_import_info *info)
{
    json_out j = { .file = stdout };
    json_out_object(&j, NULL);
    json_out_string(&j, "arch", info->arch);
    json_out_string(&j, "from", info->from);
    json_out_uint(&j, "tensors", info->tensors);
    json_out_uint(&j, "bits", info->bits);
    json_out_string(&j, "tokenizer", info->tokenizer);
    json_out_array(&j, "warnings");
    if (info->warning[0]) {
        json_out_string(&j, NULL, info->warning);
    }
    json_out_end(&j);
    json_out_end(&j);
}

/* Measures the new folder by its headers, as an application does, and prints what it is. */
static int report(const exl2_import_desc *import, double seconds, bool json)
{
    host h;
    exl2_model_info info;
    exl2_model_desc model = { .path = import->out_dir };
    host_options options = { .backend = HOST_CPU, .threads = 1 };
    int code = 0;
    if (import->info->warning[0]) {
        fprintf(stderr, "warning: %s: %s\n", import->gguf_path, import->info->warning);
    }
    if (!host_open(&h, &options)) {
        return 1;
    }
    if (exl2_model_measure(h.engine, &model, &info) < 0) {
        code = host_failed(&h);
    } else if (json) {
        report_json(import->info);
    } else {
        printf("%s: made from %s (%s) in %.1f s: %s, %.2f bits per weight, %.1f MiB\n", import->out_dir,
               import->gguf_path, import->info->from, seconds, import->info->arch, (double)info.bits_per_weight,
               (double)folder_bytes(import->out_dir) / (1024.0 * 1024.0));
    }
    host_close(&h);
    return code;
}

int cli_import(int argc, char **argv)
{
    exl2_import_info info = { 0 };
    exl2_import_desc import = { .info = &info };
    uint32_t threads = 0;
    bool json = false;
    const arg positional[] = {
        { "FILE.gguf", ARG_TEXT, &import.gguf_path, NULL, "GGUF file to read" },
        { "OUT", ARG_TEXT, &import.out_dir, NULL, "folder to make" },
    };
    const arg flags[] = {
        { "--bits", ARG_U32, &import.bits, "B", "bits per weight: 2, 3, 4, 5, 6 or 8, or 16 for FP16 (8)" },
        { "--group", ARG_U32, &import.group, "G", "rows that share a scale: 32, 64 or 128 (32)" },
        { "--head-bits", ARG_U32, &import.head_bits, "B", "bits per weight of the output head (8)" },
        { "--json", ARG_BOOL, &json, NULL, "prints JSON" },
        { "--no-tokenizer", ARG_BOOL, &import.no_tokenizer, NULL, "leaves the tokenizer out, supported or not" },
        POOL_THREADS_ARG(threads),
    };
    const args_desc d = { "exl2 import",
                          "Makes a model folder from a GGUF file.",
                          positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    args_result parsed = args_parse(&d, argc, argv);
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    exl2_error error = { 0 };
    progress bar = { 0 };
    pool *threads_pool = pool_open(threads);
    import.parallel = pool_hook(threads_pool);
    import.progress = on_progress;
    import.user = &bar;
    import.error = &error;
    interrupt_watch();
    interrupt_watch_ends();
    uint64_t start = clock_ns();
    exl2_result result = exl2_import_gguf(&import);
    progress_end(&bar);
    pool_close(threads_pool);
    if (result < 0) {
        fprintf(stderr, "%s\n", error.text);
        return result == EXL2_ERR_ARG ? CLI_EXIT_USAGE : 1;
    }
    return report(&import, clock_seconds_since(start), json);
}

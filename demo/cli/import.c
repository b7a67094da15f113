/* import.c: `exl2 import`: makes an EXL2 model folder from a GGUF file.
   takes: a GGUF file, a folder that does not exist yet or is empty.
   gives: cli_import.
   owns:  nothing beyond the call.
   next:  synth.c */
#include "../common/clock.h"
#include "../common/host.h"
#include "../common/interrupt.h"
#include "cli.h"

#include <stdio.h>

#ifndef EXL2_CONVERT
#error "build the program exl2 with EXL2_CONVERT defined"
#endif

static bool on_progress(void *user, float done, const char *what)
{
    progress_show(user, (double)done, what);
    return !interrupted();
}

int cli_import(int argc, char **argv)
{
    exl2_import_desc import = { 0 };
    uint32_t threads = 0;
    const arg positional[] = {
        { "FILE.gguf", ARG_TEXT, &import.gguf_path, NULL, "what to read" },
        { "OUT", ARG_TEXT, &import.out_dir, NULL, "folder to make" },
    };
    const arg flags[] = {
        { "--bits", ARG_U32, &import.bits, "B", "2, 3, 4, 5, 6 or 8 bits a weight (8)" },
        { "--group", ARG_U32, &import.group, "G", "32, 64 or 128 rows share a scale (32)" },
        { "--head-bits", ARG_U32, &import.head_bits, "B", "bits of the output head (8)" },
        { "--threads", ARG_U32, &threads, "N", "threads, this one included (one a processor)" },
    };
    const args_desc d = { "exl2 import",
                          "Makes an EXL2 model from a GGUF file.",
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
    uint64_t start = clock_ns();
    exl2_result result = exl2_import_gguf(&import);
    progress_end(&bar);
    pool_close(threads_pool);
    if (result < 0) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    printf("%s: made from %s in %.1f s\n", import.out_dir, import.gguf_path, clock_seconds_since(start));
    return 0;
}

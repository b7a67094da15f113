/* kernels.c: `exl2 kernels build`: compiles kernels for GPUs that need not be present, to ship them with a program.
   takes: architectures, a folder.
   gives: cli_kernels. */
#include "../common/clock.h"
#include "../common/kernel_folder.h"
#include "../common/pool.h"
#include "cli.h"

#include <stdio.h>
#include <string.h>

/* Counts the modules that the folder has, and prints warnings. The message of an error is printed at the end, by
   build_one. */
static void on_line(void *user, exl2_log_level level, exl2_log_id id, exl2_result code, const char *text)
{
    uint32_t *modules = user;
    (void)code;
    *modules += id == EXL2_LOG_ID_KERNEL_BUILT;
    if (id != EXL2_LOG_ID_FAILED && level <= EXL2_LOG_WARN) {
        fprintf(stderr, "%s\n", text);
    }
}

static bool build_one(kernel_folder *folder, uint32_t arch, exl2_kernel_build_desc d)
{
    exl2_error error = { EXL2_OK, 0, "" };
    uint32_t stored = folder->stored, modules = 0;
    uint64_t stored_bytes = folder->stored_bytes, start = clock_ns();
    d.archs = &arch;
    d.arch_count = 1;
    d.into = kernel_folder_hook(folder);
    d.log.line = on_line;
    d.log.user = &modules;
    d.log.max_level = EXL2_LOG_INFO;
    d.error = &error;
    if (exl2_kernels_build(&d) < 0 || folder->error[0]) {
        fprintf(stderr, "%s\n", folder->error[0] ? folder->error : error.text);
        return false;
    }
    stored = folder->stored - stored;
    printf("%u.%u: %u modules, %.2f MiB, %.1f s", arch / 10, arch % 10, stored,
           (double)(folder->stored_bytes - stored_bytes) / (1024.0 * 1024.0), clock_seconds_since(start));
    if (modules > stored) {
        printf("; %u were there already", modules - stored);
    }
    putchar('\n');
    fflush(stdout);
    return true;
}

static int build(const char *out, const arg_numbers *archs, bool converter, const char *nvrtc, uint32_t threads)
{
    kernel_folder folder;
    if (!kernel_folder_open(&folder, out)) {
        fputs("the path of the folder is too long\n", stderr);
        return 1;
    }
    pool *workers = pool_open(threads);
    exl2_kernel_build_desc d = { .converter = converter, .nvrtc_path = nvrtc, .parallel = pool_hook(workers) };
    bool good = true;
    for (uint32_t i = 0; i < archs->count && good; i++) {
        good = build_one(&folder, archs->items[i], d);
    }
    pool_close(workers);
    return good ? 0 : 1;
}

int cli_kernels(int argc, char **argv)
{
    arg_numbers archs = { .count = 0 };
    const char *verb = NULL, *out = NULL, *nvrtc = NULL;
    uint32_t threads = 0;
    bool converter = false;
    const arg positional[] = {
        { "build", ARG_TEXT, &verb, NULL, "the action" },
        { "OUT", ARG_TEXT, &out, NULL, "folder for the kernels; its other files are kept" },
    };
    const arg flags[] = {
        { "--arch", ARG_NUMBERS, &archs, "N,..",
          "architectures, required; 75: RTX 20, 80: A100, 86: RTX 30, 89: RTX 40, 90: H100, 100: B200, "
          "120: RTX 50; all of them: 75,80,86,89,90,100,120" },
        { "--converter", ARG_BOOL, &converter, NULL, "also compiles the kernels of 'exl2 convert'" },
        { "--nvrtc", ARG_TEXT, &nvrtc, "PATH", "the kernel compiler, libnvrtc (the system's)" },
        POOL_THREADS_ARG(threads),
    };
    const args_desc d = { "exl2 kernels",
                          "Compiles the GPU kernels into a folder that --kernels and kernel_folder.h read, so that a\n"
                          "program needs no compiler where it runs. What the folder holds is not compiled again.\n"
                          "Needs no GPU.",
                          positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    args_result parsed = args_parse(&d, argc, argv);
    if (parsed == ARGS_OK && strcmp(verb, "build") != 0) {
        parsed = args_wrong(&d, "unknown action '%s'; the only one is build", verb);
    } else if (parsed == ARGS_OK && archs.count == 0) {
        parsed = args_wrong(&d, "--arch is missing");
    }
    return parsed == ARGS_OK ? build(out, &archs, converter, nvrtc, threads) : cli_exit(parsed);
}

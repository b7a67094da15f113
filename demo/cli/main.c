/* main.c: the program `exl2`: picks the subcommand.
   takes: argv.
   gives: main. */
#include "../common/console.h"
#include "../common/text_file.h"
#include "../serve/serve.h"
#include "cli.h"
#include "exl2.h"

#include <stdio.h>
#include <string.h>

typedef struct subcommand {
    const char *name, *about;
    int (*run)(int argc, char **argv);
} subcommand;

static const subcommand subcommands[] = {
    { "info", "what a model is and what it needs", cli_info },
    { "archs", "the families of models, and those that are rejected", cli_archs },
    { "chat", "talk to a model", cli_chat },
    { "serve", "answer clients of OpenAI and TabbyAPI over HTTP, with a page", cli_serve },
    { "generate", "continue a text or ids, or answer a chat message", cli_generate },
    { "replay", "run conversations from a script of JSON lines", cli_replay },
    { "score", "how well a model predicts a text", cli_score },
    { "embed", "make vectors of texts", cli_embed },
    { "steer", "make a control vector of pairs of texts", cli_steer },
    { "tokenize", "text to ids and back, JSON lines", cli_tokenize },
    { "render", "chat messages to the model's prompt, JSON lines", cli_render },
    { "vision", "what a model sees of pictures", cli_vision },
    { "bench", "measure tokens per second", cli_bench },
    { "import", "make an EXL2 model from a GGUF file", cli_import },
    { "convert", "make an EXL2 model from a dense one, with calibration", cli_convert },
    { "compare", "how far the predictions of two models are apart", cli_compare },
    { "dump", "write a matrix of EXL3 as it is decoded", cli_dump },
    { "kernels", "compile the GPU kernels ahead of time", cli_kernels },
    { "synth", "make a model with random weights, for measurements", cli_synth },
};

static void print_help(FILE *file)
{
    fputs("Runs EXL2 language models.\n\nusage: exl2 COMMAND ...\n\n", file);
    for (size_t i = 0; i < ARGS_COUNT(subcommands); i++) {
        fprintf(file, "  %-10s %s\n", subcommands[i].name, subcommands[i].about);
    }
    fputs("\n'exl2 COMMAND --help' lists the flags of a command; 'exl2 --version' prints the version.\n", file);
}

int main(int argc, char **argv)
{
    argv = console_start(argc, argv);
    if (argc < 2) {
        fputs("a command is missing; see 'exl2 --help'\n", stderr);
        return CLI_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return text_stdout_end(0);
    }
    if (strcmp(argv[1], "--version") == 0) {
        uint32_t version = exl2_version();
        printf("exl2 %u.%u.%u\n", version / 10000, version / 100 % 100, version % 100);
        return text_stdout_end(0);
    }
    for (size_t i = 0; i < ARGS_COUNT(subcommands); i++) {
        if (strcmp(argv[1], subcommands[i].name) == 0) {
            return text_stdout_end(subcommands[i].run(argc - 2, argv + 2));
        }
    }
    const char *nearest = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < ARGS_COUNT(subcommands); i++) {
        size_t distance = args_distance(argv[1], strlen(argv[1]), subcommands[i].name);
        if (distance < least) {
            least = distance;
            nearest = subcommands[i].name;
        }
    }
    fprintf(stderr, "unknown command '%s'%s%s%s; see 'exl2 --help'\n", argv[1], nearest ? " (did you mean " : "",
            nearest ? nearest : "", nearest ? "?)" : "");
    return CLI_EXIT_USAGE;
}

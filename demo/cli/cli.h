/* cli.h: the subcommands of the program `exl2`. Each gets the arguments after its name and returns the exit code:
   0, 1 (failed, a message was printed to stderr) or 2 (usage).
   takes: argv.
   gives: one function for each subcommand, cli_exit. */
#ifndef DEMO_CLI_H
#define DEMO_CLI_H

#include "../common/args.h"

int cli_info(int argc, char **argv);
int cli_archs(int argc, char **argv);
int cli_chat(int argc, char **argv);
int cli_generate(int argc, char **argv);
int cli_replay(int argc, char **argv);
int cli_score(int argc, char **argv);
int cli_embed(int argc, char **argv);
int cli_steer(int argc, char **argv);
int cli_tokenize(int argc, char **argv);
int cli_render(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_import(int argc, char **argv);
int cli_convert(int argc, char **argv);
int cli_compare(int argc, char **argv);
int cli_dump(int argc, char **argv);
int cli_kernels(int argc, char **argv);
int cli_synth(int argc, char **argv);
int cli_vision(int argc, char **argv);

#define CLI_EXIT_USAGE 2

static inline int cli_exit(args_result r) /* exit code for a result other than ARGS_OK */
{
    return r == ARGS_HELP ? 0 : CLI_EXIT_USAGE;
}

#endif

/* serve.h: the subcommand `exl2 serve`.
   takes: argv.
   gives: cli_serve. */
#ifndef DEMO_SERVE_H
#define DEMO_SERVE_H

int cli_serve(int argc, char **argv); /* as the functions of cli.h */

#endif

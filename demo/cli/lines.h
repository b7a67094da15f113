/* lines.h: JSON lines in, JSON lines out: the frame of tokenize and render.
   takes: stdin, one JSON object a line.
   gives: lines_run, lines_text, lines_error, lines_engine_error.
   owns:  the tree of a line while its function runs.
   next:  tokenize.c */
#ifndef DEMO_CLI_LINES_H
#define DEMO_CLI_LINES_H

#include "../common/host.h"
#include "../common/json_in.h"
#include "../common/json_out.h"

/* Answers every line with one line, in order; a line that is no JSON object gets {"error": ...}. Ends with stdin,
   or when stdout cannot be written. Exit code. */
int lines_run(host *h, void (*answer)(host *h, const json_value *request, void *user), void *user);
void lines_text(const host *h, exl2_result result, const char *key, const char *text, size_t bytes); /* or the error */
void lines_error(const char *sentence);
void lines_engine_error(const host *h); /* the newest */

#endif

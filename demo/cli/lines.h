/* lines.h: reads and writes JSON lines, for tokenize and render.
   takes: a folder with tokenizer files; stdin, one JSON object per line.
   gives: lines_run, lines_text, lines_error, lines_engine_error.
   owns:  the tree of a line while its function runs. */
#ifndef DEMO_CLI_LINES_H
#define DEMO_CLI_LINES_H

#include "../common/host.h"
#include "../common/json_in.h"
#include "../common/json_out.h"

/* Answers every line of stdin with one line, in order. A line that is no JSON object gets {"error": ...}. Ends early if
   stdout cannot be written. Returns the exit code. */
int lines_run(const char *path, void (*answer)(host *h, const json_value *request, void *user), void *user);

/* These print the line of an answer. lines_text: {key: text}, or the engine's newest error if result < 0. lines_error:
   this message as the error. lines_engine_error: the engine's newest error. */
void lines_text(const host *h, exl2_result result, const char *key, const char *text, size_t bytes);
void lines_error(const char *sentence);
void lines_engine_error(const host *h);

#endif

/* lines.h: JSON lines in, JSON lines out: the frame of tokenize and render.
   takes: a folder with tokenizer files; stdin, one JSON object a line.
   gives: lines_run, lines_text, lines_error, lines_engine_error.
   owns:  the tree of a line while its function runs. */
#ifndef DEMO_CLI_LINES_H
#define DEMO_CLI_LINES_H

#include "../common/host.h"
#include "../common/json_in.h"
#include "../common/json_out.h"

/* Answers every line of stdin with one line, in order; what is no JSON object gets {"error": ...}. Ends early when
   stdout cannot be written. Exit code. */
int lines_run(const char *path, void (*answer)(host *h, const json_value *request, void *user), void *user);

/* The one line of an answer: {key: text} or, where result < 0, the engine's newest error; a sentence; that error. */
void lines_text(const host *h, exl2_result result, const char *key, const char *text, size_t bytes);
void lines_error(const char *sentence);
void lines_engine_error(const host *h);

#endif

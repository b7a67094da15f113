/* lines.c: see lines.h.
   takes: stdin.
   gives: what lines.h declares.
   owns:  the line and its tree. */
#include "lines.h"

#include "../common/text_file.h"

#include <stdlib.h>

void lines_error(const char *sentence)
{
    json_out j = { .file = stdout };
    json_out_object(&j, NULL);
    json_out_string(&j, "error", sentence);
    json_out_end(&j);
}

void lines_engine_error(const host *h)
{
    exl2_error error;
    exl2_last_error(h->engine, &error);
    lines_error(error.text);
}

void lines_text(const host *h, exl2_result result, const char *key, const char *text, size_t bytes)
{
    if (result < 0) {
        lines_engine_error(h);
        return;
    }
    json_out j = { .file = stdout };
    json_out_object(&j, NULL);
    json_out_text(&j, key, text, bytes);
    json_out_end(&j);
}

static int answer_all(host *h, void (*answer)(host *h, const json_value *request, void *user), void *user)
{
    char *line = NULL;
    size_t cap = 0, bytes;
    while (!ferror(stdout) && text_line_read(stdin, &line, &cap, &bytes)) {
        const char *error;
        json_value *request = json_read(line, bytes, &error);
        if (request && request->kind == JSON_OBJECT) {
            answer(h, request, user);
        } else {
            lines_error(request ? "the line is not a JSON object" : error);
        }
        json_free(request);
    }
    free(line);
    if (ferror(stdin)) {
        fputs("stdin cannot be read\n", stderr);
        return 1;
    }
    return 0;
}

int lines_run(const char *path, void (*answer)(host *h, const json_value *request, void *user), void *user)
{
    host h = { 0 };
    host_options options = { .backend = HOST_CPU, .threads = 1 };
    int code = 1;
    if (host_open(&h, &options) && host_load_text(&h, path)) {
        code = answer_all(&h, answer, user);
    }
    host_close(&h);
    return code;
}

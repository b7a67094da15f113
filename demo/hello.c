/* hello.c: the shortest program: a model continues a text.
   takes: a model folder, as its only argument.
   gives: main.
   owns:  the engine, until exl2_close. */
#define EXL2_IMPLEMENTATION
#include "exl2.h"

#include <stdio.h>

static exl2_flow say(void *user, const exl2_event *event)
{
    (void)user;
    if (event->text) {
        fputs(event->text, stdout);
        fflush(stdout);
    }
    return EXL2_CONTINUE;
}

int main(int argc, char **argv)
{
    exl2_engine *e = NULL;
    exl2_model m;
    exl2_error error = { EXL2_OK, 0, "" };
    if (argc != 2) {
        fputs("usage: hello MODEL\n", stderr);
        return 2;
    }
    exl2_open(&(exl2_engine_desc){ .open_error = &error }, &e);
    if (e && exl2_model_load(e, &(exl2_model_desc){ .path = argv[1] }, &m) == EXL2_OK &&
        exl2_generate(e, &(exl2_job_desc){ .model = m, .prompt.text = "Once upon a time", .on_event = say })
            == EXL2_OK) {
        putchar('\n');
    } else if (e) {
        exl2_last_error(e, &error);
    }
    exl2_close(e);
    if (error.code == EXL2_OK && ferror(stdout)) {
        error = (exl2_error){ EXL2_ERR_IO, 0, "stdout cannot be written" };
    }
    if (error.code < 0) {
        fprintf(stderr, "%s\n", error.text);
    }
    return error.code < 0;
}

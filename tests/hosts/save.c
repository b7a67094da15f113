/* save.c: the program around the recipe of the manual that saves and loads in mid-sentence; hosts.c copies the recipe.
   takes: save MODEL whole; save MODEL save BYTES FILE: a talk is saved once so many bytes were heard, and the process
          ends; save MODEL load FILE: another process goes on with it.
   gives: on stdout what was heard: the whole text, the text before the save, or the text after it.
   owns:  the engine, until the process ends. */
#define EXL2_IMPLEMENTATION
#include "exl2.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "save_recipe.h"

static int fail(exl2_engine *e)
{
    exl2_error error;
    exl2_last_error(e, &error);
    fprintf(stderr, "%s\n", error.text);
    return 1;
}

int main(int argc, char **argv)
{
    static talk t;
    exl2_engine *e = NULL;
    exl2_model m;
    bool saves = argc == 5 && strcmp(argv[2], "save") == 0, loads = argc == 4 && strcmp(argv[2], "load") == 0;
    if (!saves && !loads && !(argc == 3 && strcmp(argv[2], "whole") == 0)) {
        return 2;
    }
    exl2_open(&(exl2_engine_desc){ .backend = EXL2_BACKEND_CPU }, &e);
    if (!e || exl2_model_load(e, &(exl2_model_desc){ .path = argv[1], .context_max = 512 }, &m) < 0 ||
        exl2_session_open(e, m, &t.session) < 0) {
        return fail(e);
    }
    exl2_job_desc d = { .session = t.session, .prompt.text = "Once upon a time", .max_tokens = 60, .sampler.seed = 7,
                        .on_event = hear, .user = &t };
    size_t before = 0;
    if (loads) {
        FILE *file = fopen(argv[3], "rb");
        if (!file || !load_talk(e, d, &t, file)) {
            return fail(e);
        }
        fclose(file);
        before = t.bytes;
    } else {
        t.speaks = true;
        if (exl2_job_start(e, &d, NULL) < 0) {
            return fail(e);
        }
    }
    size_t until = saves ? strtoul(argv[3], NULL, 10) : sizeof t.heard;
    while (t.speaks && t.bytes < until) {
        exl2_step(e, &(exl2_step_desc){ .cpu_us = 100 });
    }
    if (saves) {
        FILE *file = fopen(argv[4], "wb");
        if (!t.speaks || !file || !save_talk(e, &t, file) || fclose(file) != 0) {
            return fail(e);
        }
    }
    fputs(t.heard + before, stdout);
    return ferror(stdout) != 0;
}

/* memory.c: the program around the recipe of the manual for an NPC's memory; hosts.c copies the recipe.
   takes: memory MODEL: a model with a tokenizer.
   gives: the three sentences that are nearest to one of a thousand, the nearest first. That one is the first, as its
          vector is the same.
   owns:  the engine, until the process ends. */
#define EXL2_IMPLEMENTATION
#include "exl2.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory_recipe.h"

#define FACTS 1000
#define ASKED 517

static fact facts[FACTS];
static char texts[FACTS][64];

static int fail(exl2_engine *e)
{
    exl2_error error;
    exl2_last_error(e, &error);
    fprintf(stderr, "%s\n", error.text);
    return 1;
}

/* Embeds `count` facts, as many at a time as the engine has jobs. */
static bool embed_all(exl2_engine *e, exl2_model m, fact *list, int count)
{
    for (int i = 0; i < count; i++) {
        exl2_result r;
        while ((r = embed(e, m, EXL2_EMBED_MEAN, &list[i])) == EXL2_ERR_BUDGET) {
            exl2_step(e, NULL);
        }
        if (r < 0) {
            return false;
        }
    }
    while (exl2_step(e, NULL) != EXL2_IDLE) {
    }
    for (int i = 0; i < count; i++) {
        if (!list[i].known) {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    static const char *const who[] = { "Marla", "the smith", "an old sailor", "nobody", "the king's spy" };
    static const char *const what[] = { "hides the key", "sells bread", "saw the ship", "fears the well" };
    static fact said;
    const fact *found[3] = { 0 };
    exl2_engine *e = NULL;
    exl2_model m;
    if (argc != 2) {
        return 2;
    }
    for (int i = 0; i < FACTS; i++) {
        snprintf(texts[i], sizeof texts[i], "%s %s on day %d.", who[i % 5], what[i / 5 % 4], i);
        facts[i].text = texts[i];
    }
    exl2_open(&(exl2_engine_desc){ .backend = EXL2_BACKEND_CPU }, &e);
    if (!e || exl2_model_load(e, &(exl2_model_desc){ .path = argv[1], .context_max = 512 }, &m) < 0) {
        return fail(e);
    }
    said.text = texts[ASKED];
    exl2_engine_stats before, after;
    exl2_stats(e, &before);
    if (!embed_all(e, m, facts, FACTS) || !embed_all(e, m, &said, 1)) {
        return fail(e);
    }
    exl2_stats(e, &after);
    if (after.allocations != before.allocations) {
        fputs("something was allocated\n", stderr);
        return 1;
    }
    nearest(facts, FACTS, &said, found);
    for (int i = 0; i < 3; i++) {
        printf("%s\n", found[i]->text);
    }
    return strcmp(found[0]->text, said.text) != 0 || found[1] == found[0] || found[2] == found[1];
}

/* cast.h: who is in the tavern, read from plain text files.
   takes: a folder with world.txt and one file a person.
   gives: cast_read, cast_free.
   owns:  the texts, until cast_free. */
#ifndef NPC_CAST_H
#define NPC_CAST_H

#include <stdbool.h>
#include <stdint.h>

#define CAST_SIZE 3
#define CAST_EXAMPLES_MAX 16
#define CAST_ASIDES_MAX 16

typedef struct example { /* how a person talks */
    const char *question, *answer;
    const char *act;       /* what he does with it, NULL = nothing */
    const char *at;        /* whom he does it to, NULL = the stranger */
} example;

/* A file has "key: value" lines, an empty line, the persona, and then examples: "> " and what a stranger says, on the
   next line the answer, which may end with [act] or [act at NAME]. The line "For what nobody asked before:" begins the
   asides: examples for questions that no example above fits. Their questions differ in how they begin ("Do you have",
   "Where can I"), as a question brings the aside to mind that begins alike. */
typedef struct character {
    char *file;                               /* all texts below point into it */
    const char *name, *role, *mood, *topic;
    const char *holds;                        /* words: things that he can give; NULL = none */
    uint32_t colour;                          /* of the 256 that terminals have */
    const char *persona;
    example examples[CAST_EXAMPLES_MAX];
    example asides[CAST_ASIDES_MAX];
    uint32_t example_count, aside_count;
} character;

typedef struct cast { /* zeroed: empty */
    char *world;          /* what everybody knows; its first paragraph is the room that the player sees */
    character people[CAST_SIZE];
} cast;

bool cast_read(cast *c, const char *folder); /* false: one sentence was printed to stderr */
void cast_free(cast *c);

#endif

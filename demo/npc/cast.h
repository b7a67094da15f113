/* cast.h: who is in the tavern, read from plain text files.
   takes: a folder with world.txt and one file for each person.
   gives: cast_is_plot, cast_read, cast_free.
   owns:  the texts, until cast_free. */
#ifndef NPC_CAST_H
#define NPC_CAST_H

#include <stdbool.h>
#include <stdint.h>

#define CAST_SIZE 3
#define CAST_EXAMPLES_MAX 16
#define CAST_EVASIONS_MAX 16

typedef struct example { /* a question, and how the person answers it */
    const char *question, *answer;
    const char *act;       /* act that goes with the answer; NULL = none */
    const char *at;        /* target of the act; NULL = the stranger */
} example;

/* A file has "key: value" lines, an empty line, the persona, and then examples: a line "> " with what a stranger
   says, and a line with the answer, which may end with [act] or [act at NAME]. The line "For what nobody asked before:"
   begins the evasions: each line is an answer to any question that no example fits. */
typedef struct character {
    char *file;                               /* all texts below point into it */
    const char *name, *role, *mood, *topic;
    const char *holds;                        /* things that the person can give, separated by blanks; NULL = none */
    const char *plot;                         /* words, separated by blanks, of which the person only says what the file
                                                 has word for word; NULL = none */
    uint32_t colour;                          /* number of a terminal colour, 0..255 */
    const char *persona;
    example examples[CAST_EXAMPLES_MAX];
    const char *evasions[CAST_EVASIONS_MAX];
    uint32_t example_count, evasion_count;
} character;

typedef struct cast { /* zeroed: empty */
    char *world;          /* what everybody knows; its first paragraph describes the room to the player */
    character people[CAST_SIZE];
} cast;

bool cast_is_plot(const character *who, const char *text); /* a word of the text is one of who->plot */
bool cast_read(cast *c, const char *folder); /* false: a message was printed to stderr */
void cast_free(cast *c);

#endif

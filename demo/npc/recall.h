/* recall.h: finds what a small model should read before a question: the example of the person's talk that shares the
   most words with it or, if none fits, asides that begin like the question, in rotation.
   takes: a character, a question.
   gives: recall, recall_aside, recall_turns.
   owns:  nothing. */
#ifndef NPC_RECALL_H
#define NPC_RECALL_H

#include "cast.h"

#include <stddef.h>

typedef struct recollection { /* examples and asides that were used; zeroed: none */
    const example *last;              /* the newest example, which is not used twice in a row */
    uint32_t used[CAST_ASIDES_MAX];   /* value of `count` when each aside was used last; 0 = never */
    uint32_t count;                   /* asides used so far */
} recollection;

const example *recall(const character *who, recollection *m, const char *question);       /* NULL: none fits */
const example *recall_aside(const character *who, recollection *m, const char *question); /* NULL: all rest */
/* Writes the turns that a small model reads before the question. It repeats what it has just read. So if an example
   fits the question, the model reads that example, and may well repeat it. Otherwise it reads two different asides, so
   that it copies their manner but the words of neither. true: asides were written, and the answer is an aside, too. */
bool recall_turns(const character *who, recollection *m, const char *question, const char *visitor, char *out,
                  size_t cap);

#endif

/* recall.h: finds what an answer follows: the example of the person's talk that shares the most words with the question
   or, if none fits, asides that begin like the question, in rotation.
   takes: a character, a question.
   gives: recall, recall_aside, recall_asides. */
#ifndef NPC_RECALL_H
#define NPC_RECALL_H

#include "cast.h"

#include <stddef.h>

typedef struct recollection { /* examples and asides that were used; zeroed: none */
    const example *last;              /* the newest example, which is not used twice in a row */
    uint32_t used[CAST_ASIDES_MAX];   /* value of `count` when each aside was used last; 0 = never */
    uint32_t count;                   /* asides used so far */
} recollection;

/* NULL: none fits, and the question is not about the plot: then an example about it fits in any case. */
const example *recall(const character *who, recollection *m, const char *question);
const example *recall_aside(const character *who, recollection *m, const char *question); /* NULL: all rest */
/* Writes two different asides, which a small model reads before a question that no example fits. It repeats what it has
   just read: so it copies their manner but the words of neither. */
void recall_asides(const character *who, recollection *m, const char *question, const char *visitor, char *out,
                   size_t cap);

#endif

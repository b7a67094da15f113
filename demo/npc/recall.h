/* recall.h: finds what an answer follows: the example of the person's talk that shares the most words with the question
   or, if none fits, the evasions that were not used lately.
   takes: a character, a question.
   gives: recall, recall_evasions, recall_used. */
#ifndef NPC_RECALL_H
#define NPC_RECALL_H

#include "cast.h"

#include <stddef.h>

typedef struct recollection { /* examples and evasions that were used; zeroed: none */
    const example *last;              /* the newest example, which is not used twice in a row */
    uint32_t used[CAST_EVASIONS_MAX]; /* value of `count` when each evasion was used last; 0 = never */
    uint32_t count;                   /* evasions used so far */
} recollection;

/* NULL: none fits, and the question is not about the plot: then an example about it fits in any case. */
const example *recall(const character *who, recollection *m, const char *question);
/* Writes the evasions that do not rest: the half that was used last rests. Returns their number. */
uint32_t recall_evasions(const character *who, const recollection *m, const char *out[CAST_EVASIONS_MAX]);
/* Notes that the person has said this evasion, or its beginning. Other texts change nothing. */
void recall_used(const character *who, recollection *m, const char *said);

#endif

/* recall.h: what a question brings to mind: the example of a person's talk that shares the most words with it; where
   none does, asides that begin as the question does, others every time.
   takes: a character, a question.
   gives: recall, recall_aside, recall_turns.
   owns:  nothing. */
#ifndef NPC_RECALL_H
#define NPC_RECALL_H

#include "cast.h"

#include <stddef.h>

typedef struct recollection { /* of what came to mind; zeroed: nothing yet */
    const example *last;              /* it does not come twice running */
    uint32_t used[CAST_ASIDES_MAX];   /* when each aside came last, */
    uint32_t count;                   /* by this clock; 0 = never */
} recollection;

const example *recall(const character *who, recollection *m, const char *question);       /* NULL: nothing */
const example *recall_aside(const character *who, recollection *m, const char *question); /* NULL: all of them rest */
/* Writes what a small model reads before the question. It says what it has just read, so it reads a turn that answers
   such a question, which it may well say again; for what nobody asked before it reads two turns that differ, so that it
   takes their manner and neither's words. true: the latter; so the answer is an aside. */
bool recall_turns(const character *who, recollection *m, const char *question, const char *visitor, char *out,
                  size_t cap);

#endif

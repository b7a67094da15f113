/* recall.h: what a question brings to mind: the example of a person's talk that shares the most words with it; where
   none does, asides that begin as the question does, others every time.
   takes: a character, a question.
   gives: recall, recall_aside.
   owns:  nothing.
   next:  tavern.h */
#ifndef NPC_RECALL_H
#define NPC_RECALL_H

#include "cast.h"

typedef struct recollection { /* of what came to mind; zeroed: nothing yet */
    const example *last;              /* it does not come twice running */
    uint32_t used[CAST_ASIDES_MAX];   /* when each aside came last, */
    uint32_t count;                   /* by this clock; 0 = never */
} recollection;

const example *recall(const character *who, recollection *m, const char *question);       /* NULL: nothing */
const example *recall_aside(const character *who, recollection *m, const char *question); /* NULL: all of them rest */

#endif

/* recall.h: what a question brings to mind: the example of a person's talk that shares the most words with it.
   takes: a character, a question.
   gives: recall.
   owns:  nothing.
   next:  tavern.h */
#ifndef NPC_RECALL_H
#define NPC_RECALL_H

#include "cast.h"

const example *recall(const character *who, const char *question); /* NULL: nothing */

#endif

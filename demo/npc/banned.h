/* banned.h: what an answer in the model's own words may not have: words of the plot, names of the others, phrases that
   admit or deny something, and copies of what the model has just read.
   takes: people of the tavern.
   gives: banned_learn, banned_note_copies, banned_phrases. */
#ifndef NPC_BANNED_H
#define NPC_BANNED_H

#include "tavern.h"

/* Collects the words of the plot, and words such as " Pike" and " smuggler", which Marla and Osric never say of
   themselves, in n->banned. */
exl2_result banned_learn(npc *n);
/* Notes the first sentences of the asides that the model reads. */
void banned_note_copies(npc *n, const example *const asides[2]);
/* Lists n->never: the phrases of the person's file, and in an aside those sentences. */
void banned_phrases(npc *n);

#endif

/* saved.h: an evening as a file: the state of the game, and the three sessions with the turns that are being spoken.
   takes: a tavern; a file, which may come from anywhere.
   gives: saved_write, saved_read.
   owns:  nothing. What is read belongs to the tavern. */
#ifndef NPC_SAVED_H
#define NPC_SAVED_H

#include "tavern.h"

#define SAVED_WHY_BYTES 512

/* false: `why` has a sentence, and the tavern is as it was. partner: whom the player talks with, NULL = nobody.
   saved_write may run a few steps, until every turn has begun. saved_read replaces the evening; turns that were being
   spoken at the save continue with the same words. */
bool saved_write(tavern *t, const npc *partner, const char *path, char why[SAVED_WHY_BYTES]);
bool saved_read(tavern *t, npc **partner, const char *path, char why[SAVED_WHY_BYTES]);

#endif

/* transcript.h: the conversation as a text.
   takes: a tavern.
   gives: transcript_text, transcript_save, transcript_hash. */
#ifndef NPC_TRANSCRIPT_H
#define NPC_TRANSCRIPT_H

#include "tavern.h"

#define TRANSCRIPT_CUT "\xE2\x80\x94" /* a dash marks a line that was cut off */

bool transcript_was_cut(const tavern_line *l);
char *transcript_text(const tavern *t, size_t *bytes);         /* a paragraph for each line; free() it */
bool transcript_save(const tavern *t, const char *path);       /* false: errno says why */
uint64_t transcript_hash(const tavern *t);                     /* FNV-1a of the text */

#endif

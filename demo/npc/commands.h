/* commands.h: runs what the player, or a script, types.
   takes: one line at a time.
   gives: command_run. */
#ifndef NPC_COMMANDS_H
#define NPC_COMMANDS_H

#include "screen.h"
#include "tavern.h"

typedef struct visitor {
    tavern *tavern;
    screen *screen;
    const char *transcript_path; /* path for /transcript without a name */
    npc *partner;  /* person whom lines without a name are for; NULL = nobody */
    bool quits;
    bool failed;   /* a file could not be written or read */
} visitor;

bool command_run(visitor *v, const char *line); /* false: failed; the message is in tavern->error */

#endif

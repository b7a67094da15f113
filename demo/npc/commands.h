/* commands.h: runs what the player, or a script, types. It knows neither terminal nor window: what it has to say goes
   to a view.
   takes: one line at a time.
   gives: command_run, visitor_note. */
#ifndef NPC_COMMANDS_H
#define NPC_COMMANDS_H

#include "tavern.h"

typedef struct visitor_view { /* how the player learns of things; all members are set */
    void *user;
    void (*note)(void *user, const char *text);  /* a paragraph that stays */
    void (*show)(void *user, bool anew);         /* what was said so far; anew: another evening was loaded */
} visitor_view;

typedef struct visitor {
    tavern *tavern;
    visitor_view view;
    const char *transcript_path; /* path for /transcript without a name */
    npc *partner;  /* person whom lines without a name are for; NULL = nobody */
    bool quits;
    bool failed;   /* a file could not be written or read */
} visitor;

void visitor_note(const visitor *v, const char *format, ...);
bool command_run(visitor *v, const char *line); /* false: failed; the message is in tavern->error */

#endif

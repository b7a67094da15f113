/* script.h: a text file that plays the visitor. script.txt shows all that it can say.
   takes: a file, the state of the tavern.
   gives: script_read, script_line, script_listen, script_close.
   owns:  the text. */
#ifndef NPC_SCRIPT_H
#define NPC_SCRIPT_H

#include "tavern.h"

typedef struct script { /* zeroed: none */
    char *text, *at;
    bool waits;         /* until everybody is silent */
    uint32_t frames;    /* to pass before the next line */
    bool ended;
} script;

bool script_read(script *s, const char *path);        /* false: one sentence was printed to stderr */
void script_make(script *s, uint32_t turns);          /* a visitor who asks until so many turns were answered */
const char *script_line(script *s, tavern *t);        /* what the visitor does now, or NULL: nothing in this frame */
void script_listen(script *s, tavern *t);             /* a "hear" right behind that line holds from the first word on */
void script_close(script *s);

#endif

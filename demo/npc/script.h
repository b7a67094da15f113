/* script.h: a text file that plays the visitor. script.txt shows every command.
   takes: a file, the state of the tavern.
   gives: script_read, script_line, script_listen, script_close.
   owns:  the text. */
#ifndef NPC_SCRIPT_H
#define NPC_SCRIPT_H

#include "tavern.h"

typedef struct script { /* zeroed: none */
    char *text, *at;
    bool waits;         /* no line is read until everybody is silent */
    uint32_t frames;    /* frames to wait before the next line */
    bool ended;
} script;

bool script_read(script *s, const char *path);        /* false: a message was printed to stderr */
void script_make(script *s, uint32_t turns);          /* makes a script that gets `turns` answers */
const char *script_line(script *s, tavern *t);        /* next command, or NULL: none in this frame */
void script_listen(script *s, tavern *t);             /* applies a "hear" that follows that line at once */
void script_close(script *s);

#endif

/* keyboard.h: a line editor that never waits, so that a frame loop can ask it.
   takes: a terminal at stdin.
   gives: keyboard_open, keyboard_line, keyboard_close.
   owns:  the terminal's mode, until keyboard_close.
   next:  screen.h */
#ifndef NPC_KEYBOARD_H
#define NPC_KEYBOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <termios.h>

typedef struct keyboard { /* zeroed: closed */
    bool open, at_end;    /* at_end: Ctrl-D on an empty line, or the terminal is gone */
    char text[400];       /* [bytes] being typed, NUL behind it */
    size_t bytes;
    char line[400];       /* the finished one */
    int escape;           /* inside the sequence of an arrow key or the like: how far */
    struct termios before;
} keyboard;

void keyboard_open(keyboard *k);         /* keys come at once and show nothing; Ctrl-C stays a signal */
const char *keyboard_line(keyboard *k);  /* a line that Enter ended since the last call, or NULL; until the next call */
void keyboard_close(keyboard *k);

#endif

/* keyboard.h: lines from a terminal, without waiting for them, so that a frame loop can ask.
   takes: a terminal at stdin.
   gives: keyboard_open, keyboard_line, keyboard_close.
   owns:  the terminal's mode, until keyboard_close. */
#ifndef NPC_KEYBOARD_H
#define NPC_KEYBOARD_H

#include "line_edit.h"

#include <stdbool.h>
#include <termios.h>

typedef struct keyboard { /* zeroed: closed */
    bool open, at_end;    /* at_end: Ctrl-D on an empty line, or the terminal is gone */
    line_edit line;
    struct termios before;
} keyboard;

void keyboard_open(keyboard *k);         /* keys come at once and show nothing; Ctrl-C stays a signal */
const char *keyboard_line(keyboard *k);  /* a line that Enter ended since the last call, or NULL; until the next call */
void keyboard_close(keyboard *k);

#endif

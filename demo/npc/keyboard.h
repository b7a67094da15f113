/* keyboard.h: reads lines from a terminal without blocking, for a frame loop.
   takes: a terminal at stdin.
   gives: keyboard_open, keyboard_line, keyboard_close.
   owns:  the terminal's mode, until keyboard_close. */
#ifndef NPC_KEYBOARD_H
#define NPC_KEYBOARD_H

#include "line_edit.h"

#include <stdbool.h>
#include <termios.h>

typedef struct keyboard { /* zeroed: closed */
    bool open, at_end;    /* at_end: Ctrl-D on an empty line, or the terminal was closed */
    line_edit line;
    struct termios before;
} keyboard;

void keyboard_open(keyboard *k);         /* no line buffer and no echo; Ctrl-C stays a signal */
const char *keyboard_line(keyboard *k);  /* a new line, or NULL; valid until the next call */
void keyboard_close(keyboard *k);

#endif

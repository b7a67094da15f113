/* keyboard.h: reads lines from a terminal without blocking, for a frame loop.
   takes: a terminal at stdin; the Win32 console.
   gives: keyboard_open, keyboard_line, keyboard_close.
   owns:  the terminal's mode, until keyboard_close. */
#ifndef NPC_KEYBOARD_H
#define NPC_KEYBOARD_H

#include "line_edit.h"

#include <stdbool.h>
#include <stdint.h>
#ifndef _WIN32
#include <termios.h>
#endif

typedef struct keyboard { /* zeroed: closed */
    bool open, at_end;    /* at_end: Ctrl-D on an empty line, or the terminal was closed */
    line_edit line;
#ifdef _WIN32
    unsigned long before;
    uint32_t high;         /* first half of a UTF-16 pair, whose second half follows; 0 = none */
#else
    struct termios before; /* the terminal's mode */
#endif
} keyboard;

void keyboard_open(keyboard *k);         /* no line buffer and no echo; Ctrl-C stays a signal */
const char *keyboard_line(keyboard *k);  /* a new line, or NULL; valid until the next call */
void keyboard_close(keyboard *k);

#endif

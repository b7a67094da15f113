/* window.h: a window of the system with a picture in it. window_x11.c and window_win32.c are the two systems.
   takes: the display.
   gives: window_open, window_next, window_show, window_close.
   owns:  the window. */
#ifndef ROOM_WINDOW_H
#define ROOM_WINDOW_H

#include "canvas.h"

typedef enum window_key {
    KEY_NONE,
    KEY_TEXT, /* `text` was typed */
    KEY_LEFT, KEY_RIGHT, KEY_UP, KEY_DOWN,
    KEY_ENTER, KEY_BACKSPACE, KEY_DELETE, KEY_HOME, KEY_END, KEY_PAGE_UP, KEY_PAGE_DOWN, KEY_ESCAPE,
    KEY_F1, KEY_F2, KEY_F3, KEY_F5, KEY_F9,
    KEY_BLUR, /* the window no longer gets keys: none is held any more */
    KEY_CLOSE, /* the player closes the window */
    KEY_COUNT
} window_key;

typedef struct window_event {
    window_key key;
    bool down;    /* false: the key was released; only the arrow keys are reported then */
    char text[8]; /* UTF-8, ends with NUL */
} window_event;

typedef struct window window;

/* The picture is enlarged by a whole number: as often as it fits into the window. NULL: there is no display, or it
   cannot show a picture; a message was printed to stderr. */
window *window_open(const char *title, const canvas *picture);
bool window_next(window *w, window_event *out); /* false: no more events now */
void window_show(window *w, const canvas *picture);
void window_close(window *w); /* NULL is allowed */

#endif

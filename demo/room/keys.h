/* keys.h: a script that plays the keyboard. Besides the lines that npc/script.h reads, which are typed letter by
   letter, it has: "press KEY", where KEY is f1, f2, f3, f5, f9 or escape; and "hold KEY N", where KEY is left, right,
   up or down: it is held for N frames.
   takes: a line of a script.
   gives: keys_begin, keys_next, keys_wait.
   owns:  nothing. */
#ifndef ROOM_KEYS_H
#define ROOM_KEYS_H

#include "window.h"

#include <stddef.h>

typedef struct keys { /* zeroed: none */
    const char *at;      /* rest of the line that is typed; NULL = none */
    bool enter;          /* Enter comes after it */
    window_key held;     /* KEY_NONE = none */
    uint32_t frames;     /* for which it is held */
    window_key pressed;  /* is pressed next */
} keys;

/* The line must stay as it is until the keys have no more. false: it begins like a key's line, but is none. */
bool keys_begin(keys *k, const char *line);
bool keys_next(keys *k, window_event *out); /* false: no more keys in this frame */
bool keys_wait(keys *k);                    /* once a frame, after keys_next; true: keys come in later frames */

#endif

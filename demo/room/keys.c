/* keys.c: see keys.h.
   takes: nothing.
   gives: what keys.h declares. */
#include "keys.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    window_key key;
} names[] = { { "left", KEY_LEFT }, { "right", KEY_RIGHT }, { "up", KEY_UP }, { "down", KEY_DOWN }, { "f1", KEY_F1 },
              { "f2", KEY_F2 }, { "f3", KEY_F3 }, { "f5", KEY_F5 }, { "f9", KEY_F9 }, { "escape", KEY_ESCAPE } };

static window_key key_named(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i].name, name) == 0) {
            return names[i].key;
        }
    }
    return KEY_NONE;
}

bool keys_begin(keys *k, const char *line)
{
    char name[16] = "", more;
    unsigned frames = 0;
    *k = (keys){ 0 };
    if (strncmp(line, "press ", 6) == 0) {
        k->pressed = sscanf(line, "press %15s %c", name, &more) == 1 ? key_named(name) : KEY_NONE;
        return k->pressed > KEY_DOWN;
    }
    if (strncmp(line, "hold ", 5) == 0) {
        window_key key = sscanf(line, "hold %15s %6u %c", name, &frames, &more) == 2 ? key_named(name) : KEY_NONE;
        bool good = key >= KEY_LEFT && key <= KEY_DOWN && frames > 0;
        k->pressed = k->held = good ? key : KEY_NONE;
        k->frames = good ? frames : 0;
        return good;
    }
    k->at = line;
    k->enter = true;
    return true;
}

bool keys_next(keys *k, window_event *out)
{
    *out = (window_event){ .down = true };
    if (k->pressed != KEY_NONE) {
        out->key = k->pressed;
        k->pressed = KEY_NONE;
        return true;
    }
    if (k->at && *k->at) {
        size_t bytes = 1;
        while (bytes < 4 && ((unsigned char)k->at[bytes] & 0xC0) == 0x80) { /* the rest of the code point */
            bytes++;
        }
        out->key = KEY_TEXT;
        memcpy(out->text, k->at, bytes);
        k->at += bytes;
        return true;
    }
    if (k->enter) {
        k->enter = false;
        out->key = KEY_ENTER;
        return true;
    }
    if (k->held != KEY_NONE && k->frames == 0) {
        *out = (window_event){ .key = k->held };
        k->held = KEY_NONE;
        return true;
    }
    return false;
}

bool keys_wait(keys *k)
{
    k->frames -= k->frames > 0;
    return k->held != KEY_NONE;
}

/* line_edit.h: edits the line that is being typed: bytes of keys in, text and cursor out. It does not use a terminal,
   so a test can type, too.
   takes: the bytes that a terminal sends for keys.
   gives: line_edit_byte, line_edit_view.
   owns:  its texts, in place. */
#ifndef NPC_LINE_EDIT_H
#define NPC_LINE_EDIT_H

#include "wrap.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINE_BYTES_MAX 800 /* longest line; further bytes are ignored, and `full` is set */
#define LINE_HISTORY 32    /* lines that the up key brings back */

/* CLOSED: Ctrl-D on an empty line. SAVE, LESS, MORE, LOAD: F5, F6, F7 and F9, which leave the line as it is. */
typedef enum line_key {
    LINE_TYPING, LINE_ENTERED, LINE_CLOSED, LINE_SAVE, LINE_LESS, LINE_MORE, LINE_LOAD
} line_key;

typedef struct line_text {
    char text[LINE_BYTES_MAX + 1]; /* [bytes] UTF-8, ends with NUL */
    size_t bytes;
} line_text;

typedef struct line_edit { /* zeroed: empty */
    line_text now;         /* the line being typed */
    size_t at;             /* the cursor is before this byte of `now` */
    bool full;             /* the newest key found no room */
    line_text entered;     /* the newest line that Enter ended */
    line_text history[LINE_HISTORY]; /* line i is history[i % LINE_HISTORY] */
    size_t history_count;  /* lines so far */
    size_t back;           /* how many lines the up key has gone back; 0 = at the new line */
    line_text draft;       /* the new line, while back > 0 */
    char part[4];          /* [part_bytes] bytes of an incomplete code point */
    size_t part_bytes, part_wanted;
    char sequence[8];      /* [sequence_bytes] escape sequence with its ESC; longer ones are truncated */
    size_t sequence_bytes;
} line_edit;

line_key line_edit_byte(line_edit *l, unsigned char byte);

typedef struct line_view { /* part of the line that fits on a row and contains the cursor */
    const char *text;
    size_t bytes;
    size_t cursor;         /* the cursor is before this byte of the part */
} line_view;

line_view line_edit_view(const line_edit *l, uint32_t columns);

#endif

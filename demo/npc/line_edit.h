/* line_edit.h: the line that is being typed: bytes of keys in, text and cursor out. It asks no terminal for anything,
   so that a test can type.
   takes: the bytes that a terminal sends for keys.
   gives: line_edit_byte, line_edit_view.
   owns:  its texts, in place. */
#ifndef NPC_LINE_EDIT_H
#define NPC_LINE_EDIT_H

#include "wrap.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINE_BYTES_MAX 800 /* of a line; what is longer does not come in, and `full` says so */
#define LINE_HISTORY 32    /* lines that the up key brings back */

typedef enum line_key { LINE_TYPING, LINE_ENTERED, LINE_CLOSED } line_key; /* CLOSED: Ctrl-D on an empty line */

typedef struct line_text {
    char text[LINE_BYTES_MAX + 1]; /* [bytes] UTF-8 and a NUL */
    size_t bytes;
} line_text;

typedef struct line_edit { /* zeroed: empty */
    line_text now;         /* being typed */
    size_t at;             /* the cursor stands before this byte of it */
    bool full;             /* a key was refused */
    line_text entered;     /* the newest line that Enter ended */
    line_text history[LINE_HISTORY]; /* line i is at i % LINE_HISTORY */
    size_t history_count;  /* lines so far */
    size_t back;           /* how far back the up key has gone; 0 = at the line of one's own, */
    line_text draft;       /* which waits here meanwhile */
    char part[4];          /* [part_bytes] of a code point that is not complete */
    size_t part_bytes, part_wanted;
    char sequence[8];      /* [sequence_bytes] of an escape sequence, ESC included; longer ones are cut */
    size_t sequence_bytes;
} line_edit;

line_key line_edit_byte(line_edit *l, unsigned char byte);

typedef struct line_view { /* the part of the line that fits on a row, with the cursor in it */
    const char *text;
    size_t bytes;
    size_t cursor;         /* stands before this byte of the part */
} line_view;

line_view line_edit_view(const line_edit *l, uint32_t columns);

#endif

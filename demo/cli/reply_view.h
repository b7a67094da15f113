/* reply_view.h: a reply as it streams to the terminal: prose is broken between words, code blocks are not, and have a
   colour. Where stdout is no terminal the text passes unchanged.
   takes: pieces of UTF-8 text as they come.
   gives: reply_view, reply_view_open, reply_view_text, reply_view_end, reply_view_color, reply_view_plain. */
#ifndef DEMO_CLI_REPLY_VIEW_H
#define DEMO_CLI_REPLY_VIEW_H

#include "../common/wrap.h"

typedef struct reply_view {
    wrap wrap;
    bool code;      /* inside a block, between two rows that begin with ``` */
    bool verbatim;  /* the present row is of a block, or begins or ends one */
    uint32_t ticks; /* ` at the beginning of a row that are not written yet, at most 2; UINT32_MAX: the row goes on */
} reply_view;

void reply_view_open(reply_view *v); /* call it at the beginning of a row */
void reply_view_text(reply_view *v, const char *text, size_t bytes);
void reply_view_end(reply_view *v);  /* writes what is left and ends the row */

/* Sequences that begin and end a colour on stdout, or "" where there is none: no terminal, or NO_COLOR is set
   (no-color.org). */
const char *reply_view_color(void); /* what the user types, and code */
const char *reply_view_plain(void);

#endif

/* reasoning.h: parts the text of a reply into reasoning and content, at tags that may be cut at any byte.
   takes: the reply's text, piece by piece.
   gives: reasoning_tags_read, reasoning_opens, reasoning_begin, reasoning_add, reasoning_next, reasoning_finish,
          reasoning_free.
   owns:  text that is held back, until reasoning_free.

   Tags are no text of either part, nor is white space beside them. What might be the beginning of a tag, or white space
   before one, is held back until more text or the end decides. */
#ifndef DEMO_REASONING_H
#define DEMO_REASONING_H

#include "buffer.h"

#include <stdbool.h>
#include <stddef.h>

#define REASONING_TAG_MAX 64 /* bytes of a tag with its NUL */

typedef struct reasoning_tags { /* zeroed: none; all text is content */
    char open[REASONING_TAG_MAX], close[REASONING_TAG_MAX];
} reasoning_tags;

/* word: "auto" (by the template's text; <think> and </think> if it names no other), "none", or "START,END". template
   may be NULL. false: it is none of these. */
bool reasoning_tags_read(const char *word, const char *template_text, reasoning_tags *out);
/* Does a rendered prompt end inside of an open tag? The last tag is an opening one, begins at most 256 bytes before the
   end, and nothing that looks like another tag follows. */
bool reasoning_opens(const reasoning_tags *tags, const char *prompt, size_t bytes);

typedef enum reasoning_kind { REASONING_CONTENT, REASONING_THOUGHT } reasoning_kind;

typedef struct reasoning_part { /* valid until the next call with the same reasoning */
    reasoning_kind kind;
    const char *text;
    size_t bytes; /* never 0 */
} reasoning_part;

typedef struct reasoning { /* zeroed: nothing to free */
    reasoning_tags tags;
    reasoning_kind kind; /* of the next text: THOUGHT between the tags */
    bool trims;          /* white space is skipped: a tag was just read */
    bool finished;
    size_t used;         /* bytes of `held` that were given already */
    buffer held;
} reasoning;

/* inside: the prompt ended inside of an open tag. */
void reasoning_begin(reasoning *r, const reasoning_tags *tags, bool inside);
void reasoning_add(reasoning *r, const char *text, size_t bytes);
/* No more text comes: what was held back is text. Then reasoning_next gives the rest. */
void reasoning_finish(reasoning *r);
/* The next part that is certain; false: none, or held.failed. */
bool reasoning_next(reasoning *r, reasoning_part *out);
void reasoning_free(reasoning *r);

#endif

/* wrap.h: streamed text on a terminal, broken between words.
   takes: pieces of UTF-8 text as they come; the width of the terminal behind stdout.
   gives: wrap, wrap_open, wrap_text, wrap_end.
   owns:  nothing. */
#ifndef DEMO_WRAP_H
#define DEMO_WRAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WRAP_WORD_BYTES 256

typedef struct wrap {
    bool on;                    /* stdout is a terminal; otherwise text passes as it is */
    uint32_t columns, column;   /* width; where the cursor is */
    uint32_t blanks;            /* before the word, not written yet */
    char word[WRAP_WORD_BYTES]; /* the word that may go on */
    size_t bytes;
    uint32_t word_columns;
} wrap;

void wrap_open(wrap *w);                                   /* at the beginning of a row */
void wrap_text(wrap *w, const char *text, size_t bytes);   /* a word is written when what follows it is known */
void wrap_end(wrap *w);                                    /* writes the last word and ends the row */

#endif

/* wrap.h: streamed text on a terminal, broken between words.
   takes: pieces of UTF-8 text as they come; the width of the terminal at stdout.
   gives: wrap, wrap_open, wrap_text, wrap_end. */
#ifndef DEMO_WRAP_H
#define DEMO_WRAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WRAP_WORD_BYTES 256

typedef struct wrap {
    bool on;                    /* stdout is a terminal; otherwise text is not changed */
    uint32_t columns, column;   /* width; column of the cursor */
    uint32_t blanks;            /* blanks before the word, not written yet */
    char word[WRAP_WORD_BYTES]; /* [bytes] the word, which the next piece may continue */
    size_t bytes;
    uint32_t word_columns;
} wrap;

void wrap_open(wrap *w);                                   /* call it at the beginning of a row */
void wrap_text(wrap *w, const char *text, size_t bytes);   /* a word is written when its end is known */
void wrap_end(wrap *w);                                    /* writes the last word and ends the row */

#endif

/* wrap.h: text that breaks into rows between words, whatever pieces it comes in.
   takes: a stream to write to, its columns.
   gives: wrap_words, wrap_style, wrap_row, wrap_end, wrap_code_point.
   owns:  the word that is not written yet, until wrap_end. */
#ifndef NPC_WRAP_H
#define NPC_WRAP_H

#include "../common/memory.h"

#include <stdint.h>
#include <stdio.h>

#define WRAP_INDENT 2 /* of all rows of a paragraph but its first */

typedef struct wrap { /* zeroed but for file and columns */
    FILE *file;
    uint32_t columns;          /* the last one stays empty */
    uint32_t column, rows;     /* where the cursor is; rows that ended */
    memory_text word;          /* may go on in the next piece, */
    uint32_t word_columns;     /* is so wide, */
    uint32_t blanks;           /* and comes after so many blanks */
} wrap;

void wrap_words(wrap *w, const char *text);           /* control characters count as blanks */
void wrap_style(wrap *w, const char *sequence);       /* takes no columns and parts no word */
void wrap_row(wrap *w);                               /* ends a row */
void wrap_end(wrap *w);                               /* writes what is left; the stream stays open */
size_t wrap_code_point(const char *text, uint32_t *columns); /* its bytes, and the columns that it needs at most */

#endif

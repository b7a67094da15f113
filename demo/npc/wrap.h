/* wrap.h: breaks text into rows between words; the text may arrive in pieces of any size.
   takes: the columns of a terminal.
   gives: wrap_words, wrap_style, wrap_row, wrap_end, wrap_print, wrap_code_point.
   owns:  the rows, and the word that is not in them yet, until wrap_print or wrap_end. */
#ifndef NPC_WRAP_H
#define NPC_WRAP_H

#include "../common/memory.h"

#include <stdint.h>

#define WRAP_INDENT 2 /* indent of all rows of a paragraph except the first */

typedef struct wrap { /* zeroed, except for columns */
    uint32_t columns;          /* the last column stays empty */
    memory_text out;           /* the rows */
    uint32_t column, rows;     /* column of the cursor; rows that have ended */
    memory_text word;          /* word that the next piece may continue */
    uint32_t word_columns;     /* width of the word */
    uint32_t blanks;           /* blanks before the word */
} wrap;

void wrap_words(wrap *w, const char *text);           /* control characters count as blanks */
void wrap_style(wrap *w, const char *sequence);       /* has no columns and does not end a word */
void wrap_row(wrap *w);                               /* ends a row */
void wrap_end(wrap *w);                               /* adds the last word; the caller frees out.data */
void wrap_print(wrap *w);                             /* ends, writes the rows to stdout and frees them */
size_t wrap_code_point(const char *text, uint32_t *columns); /* its bytes; *columns: an upper bound */

#endif

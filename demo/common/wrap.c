/* wrap.c: see wrap.h.
   takes: text, the terminal's width.
   gives: what wrap.h declares. */
#define _DEFAULT_SOURCE
#include "wrap.h"

#include "console.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WRAP_COLUMNS_DEFAULT 80
#define WRAP_COLUMNS_LEAST 10

/* Reads the current width: the terminal may be resized while a reply streams. */
static void measure(wrap *w)
{
    uint32_t columns, rows;
    w->columns = console_size(&columns, &rows) && columns ? columns : WRAP_COLUMNS_DEFAULT;
    w->columns = w->columns < WRAP_COLUMNS_LEAST ? WRAP_COLUMNS_LEAST : w->columns;
}

void wrap_open(wrap *w)
{
    *w = (wrap){ .on = isatty(STDOUT_FILENO) != 0 };
}

static void new_row(wrap *w)
{
    fputc('\n', stdout);
    w->column = 0;
}

/* Writes the blanks and the word after them; blanks at the end of a row are left out. */
static void put_word(wrap *w)
{
    measure(w);
    if (w->column > 0 && w->column + w->blanks + w->word_columns > w->columns) {
        new_row(w);
        w->blanks = 0;
    }
    fprintf(stdout, "%*s", (int)w->blanks, "");
    fwrite(w->word, 1, w->bytes, stdout);
    w->column += w->blanks + w->word_columns;
    if (w->column > w->columns) { /* the terminal itself breaks a word that is longer than a row */
        w->column = (w->column - 1) % w->columns + 1;
    }
    w->blanks = 0;
    w->bytes = 0;
    w->word_columns = 0;
}

void wrap_text(wrap *w, const char *text, size_t bytes)
{
    if (!w->on) {
        fwrite(text, 1, bytes, stdout);
        return;
    }
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\n' || c == ' ' || c == '\t') {
            if (w->bytes) {
                put_word(w);
            }
            if (c == '\n') {
                new_row(w);
                w->blanks = 0;
            } else {
                w->blanks += c == ' ' ? 1 : 4;
            }
            continue;
        }
        bool begins = (c & 0xC0) != 0x80, wide = c >= 0xE3; /* from U+3000 on most characters have two columns */
        if (begins && w->bytes && (wide || w->bytes + 4 > sizeof w->word)) { /* wide text may break anywhere */
            put_word(w);
        }
        w->word[w->bytes++] = (char)c;
        w->word_columns += !begins ? 0 : wide ? 2 : 1;
    }
}

void wrap_end(wrap *w)
{
    if (w->bytes) {
        put_word(w);
    }
    new_row(w);
    w->blanks = 0;
}

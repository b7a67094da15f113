/* wrap.c: see wrap.h.
   takes: UTF-8.
   gives: what wrap.h declares. */
#include "wrap.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t wrap_code_point(const char *text, uint32_t *columns)
{
    size_t bytes = 1;
    while (((unsigned char)text[bytes] & 0xC0) == 0x80) {
        bytes++;
    }
    *columns = bytes >= 3 ? 2 : 1; /* from U+0800 on some are wide; an overestimate does no harm */
    return bytes;
}

static void put_blanks(wrap *w, uint32_t count)
{
    w->column += count;
    while (count-- > 0) {
        memory_text_add(&w->out, " ", 1);
    }
}

static void next_row(wrap *w)
{
    memory_text_add(&w->out, "\n", 1);
    w->rows++;
    w->column = 0;
}

/* Writes the word; one longer than a row is broken at the end of the row. Styles inside the word have no columns. */
static void put_letters(wrap *w)
{
    const char *at = w->word.data, *end = at + w->word.bytes;
    while (at < end) {
        uint32_t columns = 0;
        size_t bytes = 1;
        if (*at == '\x1b') {
            while (at[bytes - 1] != 'm') {
                bytes++;
            }
        } else {
            bytes = wrap_code_point(at, &columns);
        }
        if (w->column + columns >= w->columns) {
            next_row(w);
            put_blanks(w, WRAP_INDENT);
        }
        memory_text_add(&w->out, at, bytes);
        w->column += columns;
        at += bytes;
    }
}

/* Writes the complete word after its blanks, or at the beginning of a new row. */
static void put_word(wrap *w)
{
    bool fits = w->column + w->blanks + w->word_columns < w->columns;
    if (w->word_columns && !fits && w->column && w->column + w->blanks > WRAP_INDENT) {
        next_row(w);
        put_blanks(w, WRAP_INDENT);
    } else if (w->word_columns && w->column + w->blanks < w->columns) {
        put_blanks(w, w->blanks);
    }
    if (w->word.bytes) {
        memory_text_add(&w->word, "", 1);
        w->word.bytes--;
        put_letters(w);
    }
    w->blanks = w->word_columns ? 0 : w->blanks;
    w->word.bytes = 0;
    w->word_columns = 0;
}

void wrap_words(wrap *w, const char *text)
{
    while (*text) {
        if ((unsigned char)*text <= ' ') {
            put_word(w);
            w->blanks++;
            text++;
            continue;
        }
        uint32_t columns;
        size_t bytes = wrap_code_point(text, &columns);
        memory_text_add(&w->word, text, bytes);
        w->word_columns += columns;
        text += bytes;
    }
}

void wrap_style(wrap *w, const char *sequence)
{
    memory_text_add(&w->word, sequence, strlen(sequence));
}

void wrap_row(wrap *w)
{
    put_word(w);
    w->blanks = 0;
    next_row(w);
}

void wrap_end(wrap *w)
{
    put_word(w);
    free(w->word.data);
    w->word = (memory_text){ 0 };
}

void wrap_print(wrap *w)
{
    wrap_end(w);
    if (w->out.bytes) {
        fwrite(w->out.data, 1, w->out.bytes, stdout);
    }
    free(w->out.data);
    w->out = (memory_text){ 0 };
}

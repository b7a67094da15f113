/* screen.c: see screen.h.
   takes: stdout, ANSI sequences where it is a terminal.
   gives: what screen.h declares.
   owns:  the copy of what is drawn.
   next:  commands.c */
#define _DEFAULT_SOURCE
#include "screen.h"

#include "transcript.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define COLUMNS_DEFAULT 100
#define COLUMNS_LEAST 30
#define INDENT 2
#define DIM "\x1b[2m"
#define BOLD "\x1b[1m"
#define PLAIN "\x1b[0m"

/* ---- text that knows where it is ---- */

typedef struct ink {
    FILE *file;
    uint32_t columns, column, rows; /* width; where the cursor is; rows that are full */
} ink;

/* Bytes of the code point at text, and the columns that it may take. */
static uint32_t code_point_bytes(const char *text, uint32_t *columns)
{
    uint32_t bytes = 1;
    while (((unsigned char)text[bytes] & 0xC0) == 0x80) {
        bytes++;
    }
    *columns = bytes >= 3 ? 2 : 1; /* from U+0800 on some are wide; too much does no harm */
    return bytes;
}

static void new_row(ink *i)
{
    fputc('\n', i->file);
    i->rows++;
    i->column = 0;
}

static void put_blanks(ink *i, uint32_t count)
{
    fprintf(i->file, "%*s", (int)count, "");
    i->column += count;
}

/* Words up to the right edge, further rows indented. Control characters become blanks. */
static void put_words(ink *i, const char *text)
{
    while (*text) {
        uint32_t word_columns = 0, columns;
        bool blank = (unsigned char)*text <= ' ';
        size_t bytes = 0;
        while (!blank && (unsigned char)text[bytes] > ' ') {
            bytes += code_point_bytes(text + bytes, &columns);
            word_columns += columns;
        }
        if (i->column > INDENT && i->column + (blank ? 1 : word_columns) >= i->columns) {
            new_row(i);
            put_blanks(i, INDENT);
            if (blank) {
                text++;
                continue;
            }
        }
        if (blank) {
            put_blanks(i, 1);
            text++;
        }
        for (const char *end = text + bytes; text < end;) {
            uint32_t length = code_point_bytes(text, &columns);
            if (i->column + columns >= i->columns) { /* a word longer than a row */
                new_row(i);
                put_blanks(i, INDENT);
            }
            fwrite(text, 1, length, i->file);
            i->column += columns;
            text += length;
        }
    }
}

static void put_style(const screen *s, ink *i, const char *sequence)
{
    if (s->colours) {
        fputs(sequence, i->file);
    }
}

/* ---- lines of the tavern ---- */

static void put_line(const screen *s, ink *i, const tavern_line *l)
{
    char style[24] = BOLD;
    if (l->by) {
        snprintf(style, sizeof style, "\x1b[1;38;5;%um", l->by->who->colour);
    }
    put_style(s, i, style);
    put_words(i, l->by ? l->by->who->name : "You");
    put_style(s, i, l->by ? PLAIN : PLAIN DIM);
    if (!l->by) {
        put_words(i, " to ");
        put_words(i, l->to);
    }
    put_words(i, ": ");
    put_words(i, l->text);
    if (!l->ended) {
        put_words(i, l->by->waits ? " ..." : "_");
    } else if (transcript_was_cut(l)) {
        put_words(i, TRANSCRIPT_CUT);
    } else if (l->deed[0]) {
        put_style(s, i, DIM);
        put_words(i, " (");
        put_words(i, l->deed);
        put_words(i, ")");
    }
    put_style(s, i, PLAIN);
    new_row(i);
}

/* ---- the part that is drawn again ---- */

static void erase_drawn(screen *s)
{
    if (s->rows > 1) {
        printf("\x1b[%uA", s->rows - 1);
    }
    if (s->rows) {
        fputs("\r\x1b[J", stdout);
    }
    s->rows = 0;
    free(s->drawn);
    s->drawn = NULL;
}

static void measure(screen *s)
{
    struct winsize size;
    s->columns = COLUMNS_DEFAULT;
    if (s->live && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= COLUMNS_LEAST) {
        s->columns = size.ws_col < 120 ? size.ws_col : 120;
    }
}

/* The tail of what is being typed, as much of it as fits. */
static const char *visible_tail(const char *typed, uint32_t columns)
{
    size_t bytes = strlen(typed), from = bytes > columns ? bytes - columns : 0;
    while (((unsigned char)typed[from] & 0xC0) == 0x80) {
        from++;
    }
    return typed + from;
}

/* Bytes of the parts, two blanks apart, that fit as a whole. */
static size_t whole_parts(const char *status, size_t columns)
{
    size_t bytes = strlen(status);
    while (bytes > columns) {
        do {
            bytes--;
        } while (bytes && !(status[bytes] == ' ' && status[bytes - 1] != ' ' && status[bytes + 1] == ' '));
    }
    return bytes;
}

static char *compose(const screen *s, const tavern *t, const char *status, const char *typed, uint32_t *rows)
{
    char *text = NULL;
    size_t bytes;
    ink i = { open_memstream(&text, &bytes), s->columns, 0, 0 };
    if (!i.file) {
        return NULL;
    }
    for (size_t at = s->stands; at < t->count; at++) {
        put_line(s, &i, &t->lines[at]);
    }
    if (status) {
        put_style(s, &i, DIM);
        fwrite(status, 1, whole_parts(status, s->columns - 1), i.file);
        put_style(s, &i, PLAIN);
        new_row(&i);
    }
    if (typed) {
        fprintf(i.file, "> %s", visible_tail(typed, s->columns - 4));
    }
    fclose(i.file);
    *rows = i.rows + 1;
    return text;
}

/* ---- what the game calls ---- */

void screen_open(screen *s)
{
    const char *kind = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    *s = (screen){ 0 };
    s->live = isatty(STDOUT_FILENO) && kind && strcmp(kind, "dumb") != 0;
    s->colours = s->live && !(no_colour && no_colour[0]);
    measure(s);
}

void screen_note(screen *s, const char *format, ...)
{
    char text[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    ink i = { stdout, s->columns, 0, 0 };
    erase_drawn(s);
    put_words(&i, text);
    new_row(&i);
}

void screen_heading(screen *s, const char *text)
{
    ink i = { stdout, s->columns, 0, 0 };
    erase_drawn(s);
    put_style(s, &i, BOLD);
    fprintf(stdout, "\n%s\n", text);
    put_style(s, &i, PLAIN);
}

void screen_draw(screen *s, const tavern *t, const char *status, const char *typed)
{
    measure(s);
    ink i = { stdout, s->columns, 0, 0 };
    while (s->stands < t->count && t->lines[s->stands].ended) {
        const tavern_line *l = &t->lines[s->stands];
        erase_drawn(s);
        if (!l->by) {
            new_row(&i);
        }
        put_line(s, &i, l);
        s->stands++;
    }
    if (s->live) {
        uint32_t rows = 0;
        char *text = compose(s, t, status, typed, &rows);
        if (text && (!s->drawn || strcmp(text, s->drawn) != 0)) {
            erase_drawn(s);
            fputs(text, stdout);
            s->drawn = text;
            s->rows = rows;
            text = NULL;
        }
        free(text);
    }
    fflush(stdout);
}

void screen_close(screen *s)
{
    erase_drawn(s);
    fflush(stdout);
}

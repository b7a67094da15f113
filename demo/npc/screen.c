/* screen.c: see screen.h.
   takes: stdout, ANSI sequences where it is a terminal.
   gives: what screen.h declares.
   owns:  the copy of the live part. */
#include "screen.h"

#include "../common/console.h"
#include "transcript.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_DEFAULT 100
#define COLUMNS_LEAST 30
#define HEIGHT_DEFAULT 24
#define DOTS_DRAWS 15    /* draws, at 60 a second, until the dots of somebody who thinks change */
#define DRAWN_HEIGHT 8   /* rows reserved for the live part */
#define DIM "\x1b[2m"
#define BOLD "\x1b[1m"
#define PLAIN "\x1b[0m"
#define CLEAR "\x1b[H\x1b[2J"
#define CURSOR_KEEP "\x1b" "7"
#define CURSOR_BACK "\x1b" "8"

static void put_style(const screen *s, wrap *w, const char *sequence)
{
    if (s->colours) {
        wrap_style(w, sequence);
    }
}

/* ---- lines of the tavern ---- */

/* Somebody who has not said a word yet has moving dots. */
static const char *dots(const screen *s)
{
    static const char *const all[] = { ".", "..", "..." };
    return all[s->draws / DOTS_DRAWS % 3];
}

static void put_line(const screen *s, wrap *w, const tavern_line *l)
{
    char style[24] = BOLD;
    if (tavern_is_unsaid(l)) {
        return;
    }
    if (l->by) {
        snprintf(style, sizeof style, "\x1b[1;38;5;%um", l->by->who->colour);
    }
    put_style(s, w, style);
    wrap_words(w, l->by ? l->by->who->name : "You");
    put_style(s, w, l->by ? PLAIN : PLAIN DIM);
    if (!l->by) {
        wrap_words(w, " to ");
        wrap_words(w, l->to);
    }
    wrap_words(w, ": ");
    wrap_words(w, l->text);
    if (!l->ended) {
        wrap_words(w, l->bytes == 0 ? dots(s) : l->by->waits ? " ..." : "_");
    } else if (transcript_was_cut(l)) {
        wrap_words(w, TRANSCRIPT_CUT);
    } else if (l->deed[0]) {
        put_style(s, w, DIM);
        wrap_words(w, " (");
        wrap_words(w, l->deed);
        wrap_words(w, ")");
    }
    put_style(s, w, PLAIN);
    wrap_row(w);
}

/* ---- the live part, which is redrawn ---- */

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
    uint32_t columns, rows;
    s->columns = COLUMNS_DEFAULT;
    s->height = HEIGHT_DEFAULT;
    if (s->live && console_size(&columns, &rows) && columns >= COLUMNS_LEAST) {
        s->columns = columns < 120 ? columns : 120;
        s->height = rows;
    }
}

/* Bytes of the status that fit without cutting a part; parts are separated by two blanks. */
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

static void put_typed(wrap *w, const line_edit *typed)
{
    const char *sign = typed->full ? "  (the line is full)" : "";
    line_view v = line_edit_view(typed, w->columns - 3 - (uint32_t)strlen(sign));
    memory_text_format(&w->out, "> %.*s" CURSOR_KEEP "%.*s%s" CURSOR_BACK, (int)v.cursor, v.text,
                       (int)(v.bytes - v.cursor), v.text + v.cursor, sign);
}

static char *compose(const screen *s, const tavern *t, const screen_foot *foot, uint32_t *rows)
{
    wrap w = { .columns = s->columns };
    for (size_t at = s->stands; at < t->count; at++) {
        put_line(s, &w, &t->lines[at]);
    }
    if (foot->murmur && foot->murmur[0]) {
        put_style(s, &w, DIM);
        wrap_words(&w, "From another table: ");
        wrap_words(&w, foot->murmur);
        put_style(s, &w, PLAIN);
        wrap_row(&w);
    }
    if (foot->status) {
        put_style(s, &w, DIM);
        wrap_end(&w);
        memory_text_add(&w.out, foot->status, whole_parts(foot->status, s->columns - 1));
        put_style(s, &w, PLAIN);
        wrap_row(&w);
    }
    wrap_end(&w);
    if (foot->typed) {
        put_typed(&w, foot->typed);
    }
    memory_text_add(&w.out, "", 1);
    *rows = w.rows + 1;
    return w.out.data;
}

/* Prints a finished line, with an empty row before each question. */
static void put_standing(const screen *s, wrap *w, const tavern_line *l)
{
    if (!l->by) {
        wrap_row(w);
    }
    put_line(s, w, l);
}

static uint32_t rows_of(const screen *s, const tavern_line *l)
{
    wrap w = { .columns = s->columns };
    put_standing(s, &w, l);
    wrap_end(&w);
    free(w.out.data);
    return w.rows;
}

/* After a change of size the terminal may have moved rows: prints as many of the newest finished lines as fit again. */
static void write_anew(screen *s, const tavern *t)
{
    size_t from = s->stands;
    uint32_t rows = DRAWN_HEIGHT;
    while (from && (rows += rows_of(s, &t->lines[from - 1])) <= s->height) {
        from--;
    }
    s->rows = 0;
    free(s->drawn);
    s->drawn = NULL;
    fputs(CLEAR, stdout);
    wrap w = { .columns = s->columns };
    for (; from < s->stands; from++) {
        put_standing(s, &w, &t->lines[from]);
    }
    wrap_print(&w);
}

/* ---- what the game calls ---- */

void screen_open(screen *s)
{
    const char *no_colour = getenv("NO_COLOR");
    *s = (screen){ .live = console_is_live() };
    setvbuf(stdout, NULL, _IOFBF, 1 << 16); /* screen_draw writes a frame at once, on Windows too */
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
    wrap w = { .columns = s->columns };
    erase_drawn(s);
    wrap_words(&w, text);
    wrap_row(&w);
    wrap_print(&w);
}

void screen_heading(screen *s, const char *text)
{
    wrap w = { .columns = s->columns };
    erase_drawn(s);
    wrap_row(&w);
    put_style(s, &w, BOLD);
    wrap_words(&w, text);
    put_style(s, &w, PLAIN);
    wrap_row(&w);
    wrap_print(&w);
}

void screen_draw(screen *s, const tavern *t, const screen_foot *foot)
{
    uint32_t columns = s->columns, height = s->height;
    s->draws++;
    measure(s);
    if (s->live && (s->columns != columns || s->height != height)) {
        write_anew(s, t);
    }
    wrap w = { .columns = s->columns };
    while (s->stands < t->count && t->lines[s->stands].ended) {
        erase_drawn(s);
        put_standing(s, &w, &t->lines[s->stands++]);
    }
    wrap_print(&w);
    if (s->live) {
        uint32_t rows = 0;
        char *text = compose(s, t, foot, &rows);
        if (!s->drawn || strcmp(text, s->drawn) != 0) {
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

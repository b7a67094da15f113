/* bubbles.c: see bubbles.h.
   takes: nothing.
   gives: what bubbles.h declares. */
#include "bubbles.h"

#include "../npc/transcript.h"
#include "figures.h"
#include "palette.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

#define BUBBLE_WIDTH 126 /* of its text */
#define BUBBLE_EDGE 5
#define BUBBLE_ROWS 12   /* at most; a sentence has 142 letters */
#define HEAD_PIXELS 54   /* from the feet to above the head */
#define PAGE_WIDTH 400
#define PAGE_ROWS 18
#define PAGE_COLUMN 11 /* half pixels of a column of the terminal */

/* ---- rows ---- */

typedef struct rows {
    const char *from[PAGE_ROWS]; /* [count] */
    size_t bytes[PAGE_ROWS];
    int count, width;            /* width of the widest row */
} rows;

static rows break_rows(const char *text, int width, int most)
{
    rows r = { 0 };
    while (*text && r.count < most) {
        const char *next;
        r.from[r.count] = text;
        r.bytes[r.count] = text_break(text, width, &next);
        int wide = text_width(text, r.bytes[r.count]);
        r.width = wide > r.width ? wide : r.width;
        r.count++;
        text = next;
    }
    return r;
}

static void draw_rows(canvas *c, const rows *r, int x, int y, uint32_t colour)
{
    for (int i = 0; i < r->count; i++) {
        text_draw(c, x, y + i * TEXT_ROW, colour, r->from[i], r->bytes[i]);
    }
}

/* ---- bubbles ---- */

/* First and last column of each person's bubbles: when all three speak, no bubble hides another one. */
static const int lanes[CAST_SIZE][2] = { { 334, 477 }, { 3, 184 }, { 188, 328 } };

/* The words, and what comes after them: a mark of the pen while they arrive, a dash where they were cut off. */
static void write_words(const tavern_line *l, char *out, size_t cap)
{
    const char *after = !l->ended ? l->by->waits ? " ..." : "_" : transcript_was_cut(l) ? TRANSCRIPT_CUT : "";
    snprintf(out, cap, "%s%s", l->text, l->bytes ? after : "");
}

/* The person has not begun to speak: three dots, one of which is higher. */
static void draw_dots(canvas *c, int x, int y, uint32_t frame)
{
    for (int i = 0; i < 3; i++) {
        int up = (int)(frame / 10 % 4) == i ? 2 : 0;
        canvas_disc(c, x + i * 9, y - up, 2, BUBBLE_INK);
    }
}

static void draw_bubble(canvas *c, const actor *a, const tavern_line *l, int who, uint32_t frame)
{
    char words[TURN_BYTES + 16];
    const character *person = l->by->who;
    write_words(l, words, sizeof words);
    rows r = break_rows(words, BUBBLE_WIDTH, BUBBLE_ROWS);
    int name = text_width(person->name, strlen(person->name)), deed = text_width(l->deed, strlen(l->deed));
    int text = l->bytes ? r.width : 24, least = name > deed ? name : deed;
    int width = (text > least ? text : least) + 2 * BUBBLE_EDGE;
    int height = (1 + (l->bytes ? r.count : 1) + (deed > 0)) * TEXT_ROW + 2 * BUBBLE_EDGE - 2;
    int tip_x = (int)a->x + (a->left ? -4 : 4), tip_y = (int)a->y - HEAD_PIXELS;
    int x = tip_x - width / 2, y = tip_y - 8 - height;
    x = x + width > lanes[who][1] ? lanes[who][1] - width : x;
    x = x < lanes[who][0] ? lanes[who][0] : x;
    y = y < 3 ? 3 : y;
    canvas_round_box(c, x - 2, y - 2, width + 4, height + 4, BUBBLE_INK);
    canvas_triangle(c, tip_x - 7, y + height, tip_x + 7, y + height, tip_x, tip_y + 2, BUBBLE_INK);
    canvas_round_box(c, x, y, width, height, BUBBLE_PAPER);
    canvas_triangle(c, tip_x - 4, y + height - 1, tip_x + 4, y + height - 1, tip_x, tip_y - 2, BUBBLE_PAPER);
    text_draw(c, x + BUBBLE_EDGE, y + BUBBLE_EDGE, figure_colour(who), person->name, strlen(person->name));
    if (l->bytes) {
        draw_rows(c, &r, x + BUBBLE_EDGE, y + BUBBLE_EDGE + TEXT_ROW, BUBBLE_INK);
    } else {
        draw_dots(c, x + BUBBLE_EDGE + 4, y + BUBBLE_EDGE + TEXT_ROW + 4, frame);
    }
    if (deed) {
        int last = y + height - BUBBLE_EDGE - TEXT_ROW + 3;
        text_draw(c, x + BUBBLE_EDGE, last, COLOUR_LEATHER, l->deed, strlen(l->deed));
    }
}

/* A name and a mark above the head: whom the player talks with. */
static void draw_mark(canvas *c, const actor *a, const char *name, uint32_t frame)
{
    int x = (int)a->x, y = (int)a->y - HEAD_PIXELS - 8 - (int)(frame / 20 % 2), width = text_width(name, strlen(name));
    canvas_triangle(c, x - 5, y, x + 5, y, x, y + 5, COLOUR_INK);
    canvas_triangle(c, x - 3, y, x + 3, y, x, y + 3, COLOUR_FLAME);
    canvas_round_box(c, x - width / 2 - 3, y - 13, width + 6, 12, COLOUR_INK);
    text_draw(c, x - width / 2, y - 11, COLOUR_FLAME, name, strlen(name));
}

void bubbles_draw(canvas *c, const stage *s, const tavern *t, int partner, uint32_t frame)
{
    for (int i = 0; i < CAST_SIZE; i++) {
        const tavern_line *l = stage_line(s, t, i);
        if (l) {
            draw_bubble(c, &s->actors[i], l, i, frame);
        } else if (i == partner) {
            draw_mark(c, &s->actors[i], t->npcs[i].who->name, frame);
        }
    }
}

/* ---- a page ---- */

/* Draws a row, unless c is NULL; returns its width. Two blanks or more lead to a column, as in a terminal. */
static int page_row(canvas *c, int x, int y, const char *text, size_t bytes)
{
    int at = 0;
    for (size_t from = 0, end; from < bytes; from = end) {
        const char *gap = strstr(text + from, "  ");
        end = gap && (size_t)(gap - text) < bytes ? (size_t)(gap - text) : bytes;
        if (c) {
            text_draw(c, x + at, y, COLOUR_INK, text + from, end - from);
        }
        at += text_width(text + from, end - from);
        end += strspn(text + end, " ");
        int column = (int)end * PAGE_COLUMN / 2;
        at = end < bytes && column > at + PAGE_COLUMN ? column : at + PAGE_COLUMN;
    }
    return at - PAGE_COLUMN;
}

void bubbles_page(canvas *c, const char *text)
{
    rows r = break_rows(text, PAGE_WIDTH, PAGE_ROWS);
    int width = 0;
    for (int i = 0; i < r.count; i++) {
        int row = page_row(NULL, 0, 0, r.from[i], r.bytes[i]);
        width = row > width ? row : width;
    }
    int height = r.count * TEXT_ROW + 16, x = (c->width - width) / 2, y = 18;
    canvas_round_box(c, x - 12, y - 2, width + 24, height + 4, COLOUR_INK);
    canvas_round_box(c, x - 10, y, width + 20, height, COLOUR_PAPER);
    canvas_box(c, x - 6, y + height - 3, width + 12, 1, COLOUR_PAPER_DARK);
    for (int i = 0; i < r.count; i++) {
        page_row(c, x, y + 9 + i * TEXT_ROW, r.from[i], r.bytes[i]);
    }
}

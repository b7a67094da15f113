/* figures.c: see figures.h.
   takes: nothing.
   gives: what figures.h declares. */
#include "figures.h"

#include "palette.h"

#include <string.h>

#define SHOULDER_Y 29 /* above the feet */
#define HEAD_Y 38

typedef struct look {
    uint32_t name, coat, coat_dark, sleeve, legs, hair;
    int skirt; /* half the width of the coat's lower edge */
} look;

/* Marla, Osric, Pike, the stranger. */
static const look looks[STAGE_ACTORS] = {
    { 0xB4541Fu, COLOUR_GREEN, COLOUR_GREEN_DARK, COLOUR_WHITE, COLOUR_GREEN_DARK, COLOUR_EMBER, 11 },
    { 0x2F5C96u, COLOUR_BLUE, COLOUR_BLUE_DARK, COLOUR_STEEL_DARK, COLOUR_STEEL_DARK, COLOUR_LEATHER_DARK, 9 },
    { 0x7A3F8Au, COLOUR_LEATHER, COLOUR_LEATHER_DARK, COLOUR_RED, COLOUR_INK, COLOUR_INK, 9 },
    { 0x4F5A66u, COLOUR_CLOAK, COLOUR_CLOAK_DARK, COLOUR_CLOAK_DARK, COLOUR_LEATHER_DARK, COLOUR_CLOAK_DARK, 11 },
};

uint32_t figure_colour(int who)
{
    return looks[who].name;
}

/* ---- the body ---- */

static void draw_legs(canvas *c, const look *l, const actor *a, int x, int y)
{
    static const int stride[4] = { 0, 2, 0, -2 };
    int step = a->steps ? stride[a->steps / 6 % 4] : 0;
    canvas_box(c, x - 5, y - 10, 4, 9 - (step > 0 ? step : 0), l->legs);
    canvas_box(c, x + 1, y - 10, 4, 9 + (step < 0 ? step : 0), l->legs);
    canvas_box(c, x - 6, y - 2 - (step > 0 ? step : 0), 6, 2, COLOUR_INK);
    canvas_box(c, x + 1, y - 2 + (step < 0 ? step : 0), 6, 2, COLOUR_INK);
}

static void draw_coat(canvas *c, const look *l, int x, int y)
{
    for (int i = 0; i < 24; i++) { /* wider from row to row */
        int half = 6 + (l->skirt - 6) * i / 23;
        canvas_box(c, x - half, y - SHOULDER_Y - 2 + i, 2 * half + 1, 1, l->coat);
        canvas_box(c, x + half - 3, y - SHOULDER_Y - 2 + i, 4, 1, l->coat_dark);
    }
}

/* What only this person wears. */
static void draw_clothes(canvas *c, int who, int x, int y)
{
    if (who == 0) { /* an apron */
        canvas_box(c, x - 4, y - 28, 9, 5, COLOUR_WHITE);
        canvas_box(c, x - 6, y - 20, 13, 13, COLOUR_WHITE);
        canvas_box(c, x - 7, y - 21, 15, 2, COLOUR_PAPER_DARK);
    } else if (who == 1) { /* a tabard with a lantern, a belt */
        canvas_box(c, x - 2, y - 26, 5, 6, COLOUR_BRASS);
        canvas_box(c, x - 1, y - 25, 3, 4, COLOUR_FLAME);
        canvas_box(c, x - 8, y - 17, 17, 2, COLOUR_LEATHER_DARK);
    } else if (who == 2) { /* an open coat over a striped shirt */
        for (int i = 0; i < 7; i++) {
            canvas_box(c, x - 3, y - 30 + i * 2, 6, 1, i % 2 ? COLOUR_WHITE : COLOUR_RED);
        }
        canvas_box(c, x - 8, y - 16, 17, 2, COLOUR_INK);
        canvas_box(c, x - 1, y - 17, 3, 4, COLOUR_BRASS);
    } else { /* a clasp */
        canvas_box(c, x - 1, y - 30, 3, 3, COLOUR_BRASS);
    }
}

/* Where the hand of the arm on this side is; side: -1 or 1. */
static void hand_of(const stage *s, int who, int side, int *x, int *y)
{
    const actor *a = &s->actors[who];
    static const int swing[4] = { 0, 2, 0, -2 };
    bool front = (side < 0) == a->left;
    int step = a->steps ? swing[a->steps / 6 % 4] * side : 0;
    *x = (int)a->x + side * 10 + step;
    *y = (int)a->y - 14;
    if (front && (a->gesture == GESTURE_POINT || a->gesture == GESTURE_GIVE)) {
        *x = (int)a->x + side * (a->gesture == GESTURE_POINT ? 19 : 15);
        *y = (int)a->y - (a->gesture == GESTURE_POINT ? 30 : 22);
    }
}

static void draw_arm(canvas *c, const stage *s, int who, int side, int y)
{
    int x = (int)s->actors[who].x, hand_x, hand_y;
    hand_of(s, who, side, &hand_x, &hand_y);
    canvas_line(c, x + side * 7, y - SHOULDER_Y + 1, hand_x, hand_y, 4, looks[who].sleeve);
    canvas_disc(c, hand_x, hand_y, 2, COLOUR_SKIN);
    if (s->actors[who].gesture == GESTURE_POINT && hand_y < y - 25) {
        canvas_box(c, side < 0 ? hand_x - 5 : hand_x + 2, hand_y - 1, 4, 2, COLOUR_SKIN);
    }
}

/* ---- the head ---- */

static void draw_face(canvas *c, const actor *a, int who, int x, int y, uint32_t frame)
{
    int look_x = a->left ? -2 : 2;
    bool blinks = (frame + (uint32_t)who * 67) % 210 < 6;
    bool open = a->gesture == GESTURE_LAUGH || (a->speaks && frame / 5 % 2);
    canvas_box(c, x - 3 + look_x, y + (blinks ? 2 : 1), 2, blinks ? 1 : 2, COLOUR_INK);
    canvas_box(c, x + 2 + look_x, y + (blinks ? 2 : 1), 2, blinks ? 1 : 2, COLOUR_INK);
    canvas_box(c, x - 1 + look_x, y + 5, open ? 4 : 3, open ? 3 : 1, open ? COLOUR_RED_DARK : COLOUR_SKIN_DARK);
}

static void draw_marla(canvas *c, int x, int y)
{
    canvas_disc(c, x, y - 10, 4, COLOUR_EMBER);
    canvas_oval(c, x, y - 6, 8, 5, COLOUR_EMBER);
    canvas_box(c, x - 8, y - 5, 3, 10, COLOUR_EMBER);
    canvas_box(c, x + 6, y - 5, 3, 10, COLOUR_EMBER);
    canvas_box(c, x - 3, y - 8, 7, 2, COLOUR_RED);
}

static void draw_osric(canvas *c, int x, int y)
{
    canvas_oval(c, x, y - 6, 8, 6, COLOUR_STEEL);
    canvas_box(c, x - 8, y - 3, 17, 2, COLOUR_STEEL_DARK);
    canvas_box(c, x - 1, y - 12, 3, 9, COLOUR_STEEL_DARK);
    canvas_box(c, x - 4, y + 7, 9, 2, COLOUR_LEATHER_DARK);
}

static void draw_pike(canvas *c, int x, int y)
{
    canvas_box(c, x - 7, y + 2, 3, 5, COLOUR_INK);
    canvas_box(c, x + 5, y + 2, 3, 5, COLOUR_INK);
    canvas_box(c, x - 5, y + 7, 11, 2, COLOUR_INK);
    canvas_oval(c, x, y - 9, 8, 5, COLOUR_INK);
    canvas_triangle(c, x - 13, y - 9, x + 13, y - 9, x, y - 3, COLOUR_INK);
    canvas_box(c, x - 7, y - 7, 15, 1, COLOUR_BRASS);
    canvas_disc(c, x + 8, y + 2, 1, COLOUR_BRASS);
}

static void draw_hood(canvas *c, int x, int y)
{
    canvas_oval(c, x, y - 5, 9, 6, COLOUR_CLOAK);
    canvas_box(c, x - 9, y - 4, 4, 12, COLOUR_CLOAK);
    canvas_box(c, x + 6, y - 4, 4, 12, COLOUR_CLOAK_DARK);
    canvas_box(c, x - 5, y - 2, 11, 1, COLOUR_CLOAK_DARK);
}

static void draw_head(canvas *c, const actor *a, int who, int x, int y, uint32_t frame)
{
    static void (*const hats[STAGE_ACTORS])(canvas *, int, int) = { draw_marla, draw_osric, draw_pike, draw_hood };
    canvas_oval(c, x, y, 7, 8, COLOUR_SKIN);
    canvas_box(c, x + 4, y - 3, 3, 7, COLOUR_SKIN_DARK);
    canvas_box(c, x - 2, y + 7, 5, 4, COLOUR_SKIN_DARK);
    draw_face(c, a, who, x, y, frame);
    hats[who](c, x, y);
}

void figure_draw(canvas *c, const stage *s, int who, uint32_t frame)
{
    static const int nod[8] = { 0, 2, 3, 2, 0, 2, 3, 2 };
    const actor *a = &s->actors[who];
    int x = (int)a->x, y = (int)a->y, breath = (frame / 40 + (uint32_t)who) % 2 ? 1 : 0, head = 0;
    breath = a->steps ? (int)(a->steps / 6 % 2) : breath;
    breath = a->gesture == GESTURE_LAUGH ? (int)(a->gesture_frames / 4 % 2) * 2 : breath;
    head = a->gesture == GESTURE_NOD ? nod[a->gesture_frames / 5 % 8] : 0;
    canvas_shade(c, x - 12, y - 2, 25, 4, 60);
    if (who == 1) { /* his spear leans on the wall */
        canvas_line(c, x - 16, y, x - 14, y - 62, 2, COLOUR_WOOD_LIGHT);
        canvas_triangle(c, x - 17, y - 60, x - 11, y - 60, x - 14, y - 70, COLOUR_STEEL);
    }
    draw_legs(c, &looks[who], a, x, y);
    draw_arm(c, s, who, a->left ? 1 : -1, y - breath);
    draw_coat(c, &looks[who], x, y - breath);
    draw_clothes(c, who, x, y - breath);
    draw_head(c, a, who, x, y - HEAD_Y - breath + head, frame);
    draw_arm(c, s, who, a->left ? -1 : 1, y - breath);
}

void figure_hand(const stage *s, int who, int *x, int *y)
{
    hand_of(s, who, s->actors[who].left ? -1 : 1, x, y);
}

/* ---- things ---- */

static void draw_ale(canvas *c, int x, int y)
{
    canvas_box(c, x - 3, y - 9, 7, 9, COLOUR_BRASS);
    canvas_box(c, x + 4, y - 7, 2, 5, COLOUR_STEEL);
    canvas_box(c, x - 4, y - 10, 9, 3, COLOUR_WHITE);
}

static void draw_soup(canvas *c, int x, int y)
{
    canvas_box(c, x - 6, y - 6, 13, 2, COLOUR_FIRE);
    canvas_box(c, x - 6, y - 4, 13, 2, COLOUR_STEEL);
    canvas_box(c, x - 4, y - 2, 9, 2, COLOUR_STEEL_DARK);
}

static void draw_bread(canvas *c, int x, int y)
{
    canvas_oval(c, x, y - 3, 6, 3, COLOUR_WOOD_LIGHT);
    canvas_box(c, x - 3, y - 6, 1, 3, COLOUR_WOOD_DARK);
    canvas_box(c, x, y - 6, 1, 3, COLOUR_WOOD_DARK);
    canvas_box(c, x + 3, y - 6, 1, 3, COLOUR_WOOD_DARK);
}

static void draw_whistle(canvas *c, int x, int y)
{
    canvas_disc(c, x - 2, y - 4, 3, COLOUR_STEEL);
    canvas_box(c, x - 2, y - 7, 8, 3, COLOUR_STEEL);
    canvas_box(c, x - 2, y - 4, 1, 1, COLOUR_INK);
}

static void draw_hook(canvas *c, int x, int y)
{
    canvas_box(c, x + 2, y - 10, 2, 8, COLOUR_STEEL);
    canvas_box(c, x - 3, y - 2, 6, 2, COLOUR_STEEL);
    canvas_box(c, x - 4, y - 5, 2, 4, COLOUR_STEEL);
}

static void draw_penny(canvas *c, int x, int y)
{
    canvas_disc(c, x, y - 3, 3, COLOUR_BRASS);
    canvas_disc(c, x, y - 3, 1, COLOUR_FLAME);
}

void figure_thing(canvas *c, int x, int y, const char *name)
{
    static const struct {
        const char *name;
        void (*draw)(canvas *c, int x, int y);
    } things[] = { { "ale", draw_ale }, { "soup", draw_soup }, { "bread", draw_bread }, { "whistle", draw_whistle },
                   { "hook", draw_hook }, { "penny", draw_penny } };
    for (size_t i = 0; i < sizeof things / sizeof things[0]; i++) {
        if (strcmp(things[i].name, name) == 0) {
            things[i].draw(c, x, y);
            return;
        }
    }
    canvas_disc(c, x, y - 4, 4, COLOUR_LEATHER); /* a bag with any other thing */
    canvas_box(c, x - 1, y - 10, 3, 3, COLOUR_LEATHER_DARK);
}

/* scenery.c: see scenery.h.
   takes: nothing.
   gives: what scenery.h declares. */
#include "scenery.h"

#include "palette.h"

#define LAMPS 3
#define LAMP_Y 44

#define HEARTH_X 196 /* left edge of its stones */
#define HEARTH_Y 62
#define HEARTH_WIDTH 76
#define WINDOW_X 112
#define WINDOW_Y 52
#define WINDOW_WIDTH 56
#define WINDOW_HEIGHT 44

static const int lamps[LAMPS] = { 84, 300, 420 };

/* A number that looks random, but is the same for the same i. */
static uint32_t noise(uint32_t i)
{
    i = (i ^ 61u ^ (i >> 16)) * 9u;
    i = (i ^ (i >> 4)) * 0x27D4EB2Du;
    return i ^ (i >> 15);
}

/* ---- what never moves ---- */

static void paint_wall(canvas *c)
{
    canvas_box(c, 0, 0, SCENERY_WIDTH, SCENERY_FLOOR, COLOUR_WALL);
    for (int x = 0; x < SCENERY_WIDTH; x += 20) { /* upright planks, with knots */
        canvas_box(c, x, 0, 1, SCENERY_FLOOR, COLOUR_WALL_SEAM);
        canvas_box(c, x + 4 + (int)(noise((uint32_t)x) % 10), 30 + (int)(noise((uint32_t)x + 7) % 80), 2, 3,
                   COLOUR_WALL_SEAM);
    }
    canvas_box(c, 0, 0, SCENERY_WIDTH, 16, COLOUR_BEAM);
    canvas_box(c, 0, 16, SCENERY_WIDTH, 2, COLOUR_INK);
    for (int x = 28; x < SCENERY_WIDTH; x += 106) { /* beams that carry the ceiling */
        canvas_box(c, x, 0, 12, 26, COLOUR_BEAM);
        canvas_box(c, x, 26, 12, 2, COLOUR_INK);
    }
    canvas_box(c, 0, SCENERY_FLOOR - 8, SCENERY_WIDTH, 8, COLOUR_WOOD_DARK);
    canvas_box(c, 0, SCENERY_FLOOR - 8, SCENERY_WIDTH, 1, COLOUR_WOOD);
}

static void paint_floor(canvas *c)
{
    int height = 8;
    canvas_box(c, 0, SCENERY_FLOOR, SCENERY_WIDTH, SCENERY_HEIGHT - SCENERY_FLOOR, COLOUR_FLOOR);
    for (int y = SCENERY_FLOOR, i = 0; y < SCENERY_HEIGHT; y += height, height += 2, i++) { /* nearer ones are wider */
        canvas_box(c, 0, y, SCENERY_WIDTH, 1, COLOUR_FLOOR_SEAM);
        for (int x = i * 37 % 90; x < SCENERY_WIDTH; x += 96) {
            canvas_box(c, x, y, 1, height, COLOUR_FLOOR_SEAM);
            canvas_box(c, x + 3, y + 3, 1, 1, COLOUR_INK);
        }
    }
    canvas_oval(c, 152, 190, 62, 15, COLOUR_RED_DARK); /* a rug */
    canvas_oval(c, 152, 190, 58, 13, COLOUR_RED);
    canvas_oval(c, 152, 190, 50, 10, COLOUR_RED_DARK);
    canvas_oval(c, 152, 190, 47, 9, COLOUR_RED);
    canvas_oval(c, 152, 190, 20, 4, COLOUR_BRASS);
    canvas_oval(c, 152, 190, 17, 3, COLOUR_RED);
}

static void paint_door(canvas *c)
{
    int x = SCENERY_DOOR_X - 20, y = 52;
    canvas_box(c, x - 4, y - 4, 48, SCENERY_FLOOR - y + 6, COLOUR_BEAM);
    canvas_box(c, x, y, 40, SCENERY_FLOOR - y + 2, COLOUR_WOOD_DARK);
    for (int i = 0; i < 4; i++) {
        canvas_box(c, x + 1 + i * 10, y + 1, 8, SCENERY_FLOOR - y, COLOUR_WOOD);
    }
    canvas_box(c, x, y + 12, 26, 4, COLOUR_STEEL_DARK);
    canvas_box(c, x, y + 54, 26, 4, COLOUR_STEEL_DARK);
    canvas_disc(c, x + 33, y + 40, 2, COLOUR_BRASS);
    canvas_box(c, x - 4, SCENERY_FLOOR, 48, 3, COLOUR_STONE_DARK);
}

static void paint_window(canvas *c)
{
    canvas_box(c, WINDOW_X - 4, WINDOW_Y - 4, WINDOW_WIDTH + 8, WINDOW_HEIGHT + 8, COLOUR_BEAM);
    canvas_box(c, WINDOW_X - 7, WINDOW_Y + WINDOW_HEIGHT + 3, WINDOW_WIDTH + 14, 4, COLOUR_WOOD);
}

static void paint_hearth(canvas *c)
{
    canvas_box(c, HEARTH_X + 12, 18, HEARTH_WIDTH - 24, HEARTH_Y - 18, COLOUR_STONE_DARK);
    canvas_box(c, HEARTH_X, HEARTH_Y, HEARTH_WIDTH, SCENERY_FLOOR - HEARTH_Y + 4, COLOUR_STONE);
    for (int y = 18, i = 0; y < SCENERY_FLOOR + 4; y += 9, i++) { /* joints of the stones */
        int left = y < HEARTH_Y ? HEARTH_X + 12 : HEARTH_X, width = y < HEARTH_Y ? HEARTH_WIDTH - 24 : HEARTH_WIDTH;
        canvas_box(c, left, y, width, 1, COLOUR_STONE_DARK);
        for (int x = left + (i % 2 ? 6 : 13); x < left + width; x += 15) {
            canvas_box(c, x, y, 1, 9, y < HEARTH_Y ? COLOUR_INK : COLOUR_STONE_DARK);
        }
    }
    canvas_box(c, HEARTH_X - 5, HEARTH_Y - 4, HEARTH_WIDTH + 10, 6, COLOUR_WOOD);
    canvas_box(c, HEARTH_X - 5, HEARTH_Y - 4, HEARTH_WIDTH + 10, 1, COLOUR_WOOD_LIGHT);
    canvas_round_box(c, HEARTH_X + 16, HEARTH_Y + 16, HEARTH_WIDTH - 32, SCENERY_FLOOR - HEARTH_Y - 16, COLOUR_INK);
    canvas_box(c, HEARTH_X - 2, SCENERY_FLOOR, HEARTH_WIDTH + 4, 6, COLOUR_STONE_DARK);
    canvas_disc(c, HEARTH_X + 14, HEARTH_Y - 9, 4, COLOUR_BRASS); /* a clock, and two jugs, on the mantel */
    canvas_disc(c, HEARTH_X + 14, HEARTH_Y - 9, 3, COLOUR_PAPER);
    canvas_box(c, HEARTH_X + 14, HEARTH_Y - 11, 1, 3, COLOUR_INK);
    canvas_box(c, HEARTH_X + 54, HEARTH_Y - 11, 6, 7, COLOUR_BLUE_DARK);
    canvas_box(c, HEARTH_X + 63, HEARTH_Y - 9, 5, 5, COLOUR_GREEN_DARK);
}

static void paint_shelf(canvas *c, int y)
{
    static const uint32_t glass[] = { COLOUR_GREEN, COLOUR_RED, COLOUR_BLUE, COLOUR_BRASS, COLOUR_GREEN_DARK,
                                      COLOUR_STEEL_DARK, COLOUR_EMBER };
    for (int x = SCENERY_BAR_X + 26, i = y; x < SCENERY_WIDTH - 10; x += 9, i++) {
        int height = 8 + (int)(noise((uint32_t)i) % 6);
        uint32_t colour = glass[noise((uint32_t)i + 99) % 7];
        canvas_box(c, x, y - height, 5, height, colour);
        canvas_box(c, x + 1, y - height - 3, 3, 3, colour);
        canvas_box(c, x + 1, y - height + 2, 1, height - 3, COLOUR_WHITE);
    }
    canvas_box(c, SCENERY_BAR_X + 20, y, SCENERY_WIDTH - SCENERY_BAR_X - 20, 3, COLOUR_WOOD_LIGHT);
    canvas_box(c, SCENERY_BAR_X + 20, y + 3, SCENERY_WIDTH - SCENERY_BAR_X - 20, 2, COLOUR_WOOD_DARK);
}

/* The nail behind the bar, and the pale mark of the key that hung on it. */
static void paint_nail(canvas *c)
{
    int x = SCENERY_BAR_X + 6, y = 62;
    canvas_box(c, x - 8, y - 6, 18, 32, COLOUR_WOOD_DARK);
    canvas_box(c, x - 7, y - 5, 16, 30, COLOUR_WOOD);
    canvas_disc(c, x, y + 6, 3, COLOUR_WOOD_LIGHT);
    canvas_disc(c, x, y + 6, 1, COLOUR_WOOD);
    canvas_box(c, x, y + 9, 1, 10, COLOUR_WOOD_LIGHT);
    canvas_box(c, x + 1, y + 15, 3, 1, COLOUR_WOOD_LIGHT);
    canvas_box(c, x + 1, y + 18, 3, 1, COLOUR_WOOD_LIGHT);
    canvas_box(c, x - 1, y, 3, 2, COLOUR_STEEL);
}

static void paint_barrels(canvas *c)
{
    for (int i = 0; i < 2; i++) {
        int x = 290 + i * 24, y = SCENERY_FLOOR + 6 + i * 2;
        canvas_oval(c, x, y, 11, 3, COLOUR_INK);
        canvas_round_box(c, x - 10, y - 28, 21, 30, COLOUR_WOOD_DARK);
        canvas_box(c, x - 8, y - 27, 4, 28, COLOUR_WOOD);
        canvas_box(c, x - 2, y - 27, 5, 28, COLOUR_WOOD);
        canvas_box(c, x + 5, y - 27, 3, 28, COLOUR_WOOD);
        canvas_box(c, x - 10, y - 22, 21, 2, COLOUR_STEEL_DARK);
        canvas_box(c, x - 10, y - 6, 21, 2, COLOUR_STEEL_DARK);
        canvas_oval(c, x, y - 28, 9, 2, COLOUR_WOOD_LIGHT);
    }
}

/* The room is dark, and each lamp lights a part of it. */
static void paint_light(canvas *c)
{
    canvas_shade(c, 0, 0, SCENERY_WIDTH, SCENERY_HEIGHT, 62);
    for (int i = 0; i < LAMPS; i++) {
        canvas_glow(c, lamps[i], LAMP_Y + 8, 96, COLOUR_FIRE, 42);
    }
    canvas_glow(c, HEARTH_X + HEARTH_WIDTH / 2, SCENERY_FLOOR - 6, 120, COLOUR_EMBER, 40);
}

void scenery_paint(canvas *c)
{
    paint_wall(c);
    paint_floor(c);
    paint_door(c);
    paint_window(c);
    paint_hearth(c);
    paint_nail(c);
    paint_shelf(c, 62);
    paint_shelf(c, 88);
    paint_barrels(c);
    paint_light(c);
}

/* ---- what moves ---- */

static void move_window(canvas *c, uint32_t frame)
{
    uint32_t since = frame % 540; /* lightning, every nine seconds */
    bool flash = since < 4 || (since > 9 && since < 12);
    canvas_box(c, WINDOW_X, WINDOW_Y, WINDOW_WIDTH, WINDOW_HEIGHT, flash ? COLOUR_RAIN : COLOUR_NIGHT);
    canvas_box(c, WINDOW_X, WINDOW_Y + 30, WINDOW_WIDTH, WINDOW_HEIGHT - 30, flash ? COLOUR_STORM : COLOUR_INK);
    canvas_box(c, WINDOW_X + 38, WINDOW_Y + 14, 5, 18, flash ? COLOUR_NIGHT : COLOUR_STORM); /* the dark lighthouse */
    canvas_box(c, WINDOW_X + 37, WINDOW_Y + 11, 7, 3, flash ? COLOUR_NIGHT : COLOUR_STORM);
    for (uint32_t i = 0; i < 26; i++) {
        uint32_t drop = noise(i) % 97, speed = 3 + i % 3;
        int y = (int)((drop + frame * speed / 2) % (WINDOW_HEIGHT - 4));
        int x = (int)((noise(i + 40) + frame / 2) % (WINDOW_WIDTH - 3));
        canvas_line(c, WINDOW_X + x + 1, WINDOW_Y + y, WINDOW_X + x, WINDOW_Y + y + 3, 1,
                    flash ? COLOUR_WHITE : COLOUR_RAIN);
    }
    canvas_box(c, WINDOW_X + WINDOW_WIDTH / 2 - 1, WINDOW_Y, 3, WINDOW_HEIGHT, COLOUR_BEAM);
    canvas_box(c, WINDOW_X, WINDOW_Y + WINDOW_HEIGHT / 2 - 1, WINDOW_WIDTH, 3, COLOUR_BEAM);
}

static void move_fire(canvas *c, uint32_t frame)
{
    int middle = HEARTH_X + HEARTH_WIDTH / 2, ground = SCENERY_FLOOR - 2;
    canvas_line(c, middle - 14, ground, middle + 12, ground - 4, 4, COLOUR_WOOD_DARK);
    canvas_line(c, middle - 12, ground - 4, middle + 14, ground, 4, COLOUR_WOOD_DARK);
    for (int i = -3; i <= 3; i++) {
        uint32_t tick = frame / 5 + (uint32_t)(i + 8) * 31;
        int height = 26 - 5 * (i < 0 ? -i : i) + (int)(noise(tick) % 7), x = middle + i * 5;
        int lean = (int)(noise(tick + 5) % 5) - 2;
        canvas_triangle(c, x - 5, ground - 3, x + 5, ground - 3, x + lean, ground - 3 - height, COLOUR_EMBER);
        canvas_triangle(c, x - 3, ground - 3, x + 3, ground - 3, x + lean, ground - 3 - height * 2 / 3, COLOUR_FIRE);
        canvas_triangle(c, x - 2, ground - 3, x + 2, ground - 3, x, ground - 3 - height / 3, COLOUR_FLAME);
    }
    for (uint32_t i = 0; i < 3; i++) { /* sparks */
        uint32_t age = (frame + i * 23) % 60;
        canvas_box(c, middle - 8 + (int)(noise(i + frame / 60) % 17), ground - 12 - (int)age / 2, 1, 1,
                   age < 50 ? COLOUR_FLAME : COLOUR_EMBER);
    }
    canvas_glow(c, middle, ground - 4, 70, COLOUR_FIRE, 16 + (int)(noise(frame / 6) % 7));
}

static void move_lamp(canvas *c, int i, uint32_t frame)
{
    static const int swing[16] = { 0, 1, 1, 2, 2, 2, 1, 1, 0, -1, -1, -2, -2, -2, -1, -1 };
    int x = lamps[i] + swing[(frame / 12 + (uint32_t)i * 5) % 16], y = LAMP_Y;
    canvas_line(c, lamps[i], 16, x, y - 10, 1, COLOUR_INK);
    canvas_triangle(c, x - 6, y - 4, x + 6, y - 4, x, y - 11, COLOUR_STEEL_DARK);
    canvas_box(c, x - 5, y - 4, 11, 13, COLOUR_BRASS);
    canvas_box(c, x - 3, y - 3, 7, 11, COLOUR_FIRE);
    canvas_oval(c, x, y + 3, 2, 3 + (int)(noise(frame / 7 + (uint32_t)i) & 1), COLOUR_FLAME);
    canvas_box(c, x - 6, y + 9, 13, 2, COLOUR_STEEL_DARK);
    canvas_glow(c, x, y + 3, 34, COLOUR_FLAME, 26 + (int)(noise(frame / 8 + (uint32_t)i * 9) % 6));
}

void scenery_move(canvas *c, uint32_t frame)
{
    move_window(c, frame);
    move_fire(c, frame);
    for (int i = 0; i < LAMPS; i++) {
        move_lamp(c, i, frame);
    }
}

/* ---- what hides people ---- */

void scenery_bar(canvas *c)
{
    int y = SCENERY_BAR_Y - 34, width = SCENERY_WIDTH - SCENERY_BAR_X;
    canvas_box(c, SCENERY_BAR_X, y + 6, width, 28, COLOUR_WOOD_DARK);
    for (int x = SCENERY_BAR_X + 4; x < SCENERY_WIDTH; x += 24) {
        canvas_box(c, x, y + 9, 20, 22, COLOUR_WOOD);
        canvas_box(c, x + 2, y + 11, 16, 18, COLOUR_LEATHER_DARK);
    }
    canvas_box(c, SCENERY_BAR_X - 4, y, width + 4, 6, COLOUR_WOOD_LIGHT);
    canvas_box(c, SCENERY_BAR_X - 4, y + 5, width + 4, 2, COLOUR_WOOD_DARK);
    canvas_box(c, SCENERY_BAR_X, SCENERY_BAR_Y, width, 2, COLOUR_INK);
}

void scenery_table(canvas *c)
{
    int x = SCENERY_TABLE_X, y = SCENERY_TABLE_Y - 16;
    canvas_oval(c, x, SCENERY_TABLE_Y + 2, 22, 4, COLOUR_INK);
    canvas_box(c, x - 3, y, 7, 17, COLOUR_WOOD_DARK);
    canvas_line(c, x, y + 12, x - 14, SCENERY_TABLE_Y + 2, 3, COLOUR_WOOD_DARK);
    canvas_line(c, x, y + 12, x + 14, SCENERY_TABLE_Y + 2, 3, COLOUR_WOOD_DARK);
    canvas_oval(c, x, y + 2, 30, 8, COLOUR_WOOD_DARK);
    canvas_oval(c, x, y, 30, 8, COLOUR_WOOD_LIGHT);
    canvas_oval(c, x, y, 27, 6, COLOUR_WOOD);
    canvas_box(c, x + 12, y - 9, 3, 8, COLOUR_PAPER); /* a candle */
    canvas_box(c, x + 13, y - 12, 1, 3, COLOUR_FLAME);
}

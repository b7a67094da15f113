/* panel.c: see panel.h.
   takes: nothing.
   gives: what panel.h declares. */
#include "panel.h"

#include "../common/pace.h"
#include "figures.h"
#include "palette.h"
#include "scenery.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

#define TALK_X 8
#define TALK_WIDTH 318
#define GRAPH_X 338
#define GRAPH_Y (SCENERY_HEIGHT + 5)
#define GRAPH_HEIGHT 28
#define FRAME_PIXELS 20     /* of a frame that is in time */
#define FIGURES_FRAMES 30u
#define LATE_MS 18.0f       /* as in the end card */
#define MEMORY_WIDTH 60

#define COLOUR_PANEL 0x221820u
#define COLOUR_FIELD 0x150F16u
#define COLOUR_FAINT 0x9C8B7Fu
#define COLOUR_FRAME 0x3E4A5Eu
#define COLOUR_ENGINE 0x62B5E5u
#define COLOUR_LATE 0xE4572Eu

static int put(canvas *c, int x, int y, uint32_t colour, const char *text)
{
    return text_draw(c, x, y, colour, text, strlen(text));
}

/* ---- notes ---- */

void panel_note(panel *p, const char *text)
{
    size_t used = strlen(p->note);
    snprintf(p->note + used, sizeof p->note - used, "%s%s", used ? "\n" : "", text);
    p->note_frames = 240 + 4 * (uint32_t)strlen(p->note);
}

bool panel_note_is_long(const panel *p)
{
    const char *next;
    size_t first = text_break(p->note, TALK_WIDTH, &next);
    return p->note[first] != 0 && (text_break(next, TALK_WIDTH, &next), *next != 0);
}

/* ---- figures ---- */

static uint64_t memory_now(const evening *e)
{
    return e->now.host_bytes + e->now.device_bytes;
}

void panel_measure(panel *p, const evening *e, double frame_ms, double step_ms)
{
    p->frame_ms[p->at] = (float)frame_ms;
    p->step_ms[p->at] = (float)step_ms;
    p->at = (p->at + 1) % PANEL_FRAMES;
    p->note_frames -= p->note_frames > 0;
    p->worst_ms = (float)step_ms > p->worst_ms ? (float)step_ms : p->worst_ms;
    if (p->count++ % FIGURES_FRAMES == 0) {
        snprintf(p->figures, sizeof p->figures, "engine %.1f of %.1f ms", (double)p->worst_ms,
                 e->options->cpu_us * 1e-3);
        p->worst_ms = 0;
    }
}

static int pixels_of(float ms)
{
    int pixels = (int)(ms * FRAME_PIXELS / (PACE_FRAME_NS * 1e-6f) + 0.5f);
    return pixels < GRAPH_HEIGHT ? pixels : GRAPH_HEIGHT;
}

static void draw_graph(canvas *c, const panel *p, const evening *e)
{
    int ground = GRAPH_Y + GRAPH_HEIGHT, budget = pixels_of((float)e->options->cpu_us * 1e-3f);
    canvas_box(c, GRAPH_X - 1, GRAPH_Y - 1, PANEL_FRAMES + 2, GRAPH_HEIGHT + 2, COLOUR_FIELD);
    for (uint32_t i = 0; i < PANEL_FRAMES; i++) {
        uint32_t k = (p->at + i) % PANEL_FRAMES;
        int frame = pixels_of(p->frame_ms[k]), step = pixels_of(p->step_ms[k]);
        uint32_t colour = p->frame_ms[k] > LATE_MS ? COLOUR_LATE : COLOUR_FRAME;
        canvas_box(c, GRAPH_X + (int)i, ground - frame, 1, frame, colour);
        canvas_box(c, GRAPH_X + (int)i, ground - step, 1, step, COLOUR_ENGINE);
    }
    canvas_box(c, GRAPH_X, ground - FRAME_PIXELS, PANEL_FRAMES, 1, COLOUR_FAINT);
    for (int x = 0; x < PANEL_FRAMES && !e->unlimited; x += 4) {
        canvas_box(c, GRAPH_X + x, ground - budget - 1, 2, 1, COLOUR_FLAME);
    }
}

static void draw_memory(canvas *c, const evening *e)
{
    char text[64];
    uint64_t cap = evening_memory_cap(e), now = memory_now(e);
    int y = GRAPH_Y + GRAPH_HEIGHT + 14, filled = cap ? (int)(now * MEMORY_WIDTH / cap) : 0;
    filled = filled < MEMORY_WIDTH ? filled : MEMORY_WIDTH;
    canvas_box(c, GRAPH_X - 1, y, MEMORY_WIDTH + 2, 7, COLOUR_FIELD);
    canvas_box(c, GRAPH_X, y + 1, filled, 5, now > cap + cap / 16 ? COLOUR_LATE : COLOUR_GREEN);
    snprintf(text, sizeof text, "%.0f of %.0f MB", (double)now * 1e-6, (double)cap * 1e-6);
    put(c, GRAPH_X + MEMORY_WIDTH + 6, y, COLOUR_FAINT, text);
}

/* ---- the talk ---- */

static void draw_lines(canvas *c, int y, int most, int width, uint32_t colour, const char *text)
{
    for (int i = 0; i < most && *text; i++) {
        const char *next;
        size_t bytes = text_break(text, width, &next);
        text_draw(c, TALK_X, y + i * TEXT_ROW, colour, text, bytes);
        text = next;
    }
}

/* The newest line of the player, as much of it as fits on these rows. */
static void draw_asked(canvas *c, const tavern *t, int y, int most)
{
    const tavern_line *asked = NULL;
    for (size_t i = t->count; i > 0 && !asked; i--) {
        asked = t->lines[i - 1].by ? NULL : &t->lines[i - 1];
    }
    if (asked) {
        char text[1024];
        snprintf(text, sizeof text, "You, to %s: %s", asked->to, asked->text);
        draw_lines(c, y, most, TALK_WIDTH - 50, COLOUR_FAINT, text);
    }
}

static void draw_typed(canvas *c, const evening *e, const line_edit *typed, int y, uint32_t frame)
{
    int x = TALK_X + 4;
    char prompt[64];
    snprintf(prompt, sizeof prompt, "%s%s: ", e->visitor.partner ? "To " : "To whom",
             e->visitor.partner ? e->visitor.partner->who->name : "");
    canvas_round_box(c, TALK_X - 2, y - 3, TALK_WIDTH + 6, 14, COLOUR_FIELD);
    x = put(c, x, y, e->visitor.partner ? COLOUR_FLAME : COLOUR_FAINT, prompt);
    if (typed->now.bytes == 0) {
        put(c, x + 4, y, COLOUR_FAINT, "type to talk, walk with the arrow keys, F1: all keys");
    }
    line_view v = line_edit_view(typed, 46);
    x = text_draw(c, x, y, COLOUR_WHITE, v.text, v.cursor);
    if (frame / 30 % 2 == 0) {
        canvas_box(c, x, y - 1, 1, 10, COLOUR_FLAME);
    }
    text_draw(c, x + 1, y, COLOUR_WHITE, v.text + v.cursor, v.bytes - v.cursor);
}

static void draw_things(canvas *c, const tavern *t, const stage *s, int y)
{
    int x = TALK_X + TALK_WIDTH - 4;
    for (uint32_t i = 0; i < t->thing_count; i++) {
        if (!t->things[i].owner && !stage_is_flying(s, t->things[i].name)) {
            figure_thing(c, x, y + 9, t->things[i].name);
            x -= 16;
        }
    }
}

void panel_draw(canvas *c, const panel *p, const evening *e, const stage *s, const line_edit *typed, uint32_t frame)
{
    int y = SCENERY_HEIGHT;
    canvas_box(c, 0, y, c->width, c->height - y, COLOUR_PANEL);
    canvas_box(c, 0, y, c->width, 2, COLOUR_WOOD_DARK);
    bool notes = p->note_frames && !panel_note_is_long(p);
    draw_asked(c, &e->tavern, y + 7, notes ? 1 : 3);
    draw_things(c, &e->tavern, s, y + 5);
    if (notes) {
        draw_lines(c, y + 19, 2, TALK_WIDTH, COLOUR_PAPER_DARK, p->note);
    }
    draw_typed(c, e, typed, y + 45, frame);
    draw_graph(c, p, e);
    put(c, GRAPH_X, GRAPH_Y + GRAPH_HEIGHT + 4, e->unlimited ? COLOUR_LATE : COLOUR_FAINT,
        e->unlimited ? "no budget (F2)" : p->figures);
    draw_memory(c, e);
}

/* ---- loading ---- */

static void centre(canvas *c, int y, int scale, uint32_t colour, const char *text)
{
    int width = text_width(text, strlen(text)) * scale;
    text_draw_large(c, (c->width - width) / 2, y, scale, colour, text, strlen(text));
}

void panel_draw_loading(canvas *c, const evening *e, const char *status, float share, uint32_t frame)
{
    const char *world = e->cast.world, *end = strstr(world, "\n\n");
    char first[1024];
    int width = 300, x = (c->width - width) / 2, y = 132;
    snprintf(first, sizeof first, "%.*s", end ? (int)(end - world) : (int)strlen(world), world);
    canvas_shade(c, 0, 0, c->width, c->height, 34);
    canvas_box(c, 0, SCENERY_HEIGHT, c->width, c->height - SCENERY_HEIGHT, COLOUR_PANEL);
    canvas_box(c, 0, SCENERY_HEIGHT, c->width, 2, COLOUR_WOOD_DARK);
    centre(c, 32, 4, COLOUR_INK, "The Drowned Lantern");
    centre(c, 30, 4, COLOUR_FLAME, "The Drowned Lantern");
    const char *text = first;
    for (int row = 0; *text && row < 5; row++) {
        const char *next;
        size_t bytes = text_break(text, width, &next);
        text_draw(c, x, 76 + row * TEXT_ROW, COLOUR_PAPER, text, bytes);
        text = next;
    }
    canvas_round_box(c, x - 2, y, width + 4, 14, COLOUR_INK);
    canvas_box(c, x + 1, y + 3, (int)((float)(width - 2) * share), 8, COLOUR_FIRE);
    canvas_box(c, x + 1, y + 3, (int)((float)(width - 2) * share), 2, COLOUR_FLAME);
    centre(c, y + 20, 1, COLOUR_PAPER_DARK, status);
    centre(c, SCENERY_HEIGHT + 18, 1, COLOUR_PAPER_DARK,
           "A larger model talks better: sh demo/run.sh --window --model FOLDER");
    centre(c, SCENERY_HEIGHT + 38, 1, COLOUR_FAINT,
           frame / 120 % 2 ? "F5: save    F9: load    F2: no budget" : "arrow keys: walk    letters: talk");
}

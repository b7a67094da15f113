/* panel.h: the lower part of the window: what was asked, the line that is typed, what the player holds; a graph of
   frame times with the engine's part, memory against its cap. And the page that is shown while the model is loaded.
   takes: an evening, what is typed.
   gives: panel_measure, panel_note, panel_note_is_long, panel_draw, panel_draw_loading.
   owns:  nothing. */
#ifndef ROOM_PANEL_H
#define ROOM_PANEL_H

#include "../npc/evening.h"
#include "../npc/line_edit.h"
#include "canvas.h"
#include "stage.h"

#define PANEL_FRAMES 136 /* of the graph: one column each */
#define PANEL_NOTE_BYTES 4096

typedef struct panel {
    float frame_ms[PANEL_FRAMES], step_ms[PANEL_FRAMES]; /* ring; the newest is before `at` */
    uint32_t at, count;        /* count: frames since the figures changed */
    float worst_ms;            /* engine, in these frames */
    char figures[64];          /* the row below the graph */
    char note[PANEL_NOTE_BYTES]; /* what the newest command had to say; rows end with '\n' */
    uint32_t note_frames;      /* for which it is still shown */
} panel;

void panel_measure(panel *p, const evening *e, double frame_ms, double step_ms);
void panel_note(panel *p, const char *text); /* adds a row */
bool panel_note_is_long(const panel *p);     /* it needs a page */
void panel_draw(canvas *c, const panel *p, const evening *e, const stage *s, const line_edit *typed, uint32_t frame);
/* share: 0..1 of loading. */
void panel_draw_loading(canvas *c, const evening *e, const char *status, float share, uint32_t frame);

#endif

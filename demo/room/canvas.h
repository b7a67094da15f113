/* canvas.h: the picture that a window shows: a framebuffer in memory, and shapes without smoothing.
   takes: places in pixels, (0,0) at the top left; colours 0xRRGGBB.
   gives: canvas_open, canvas_copy, canvas_box, canvas_round_box, canvas_line, canvas_disc, canvas_oval,
          canvas_triangle, canvas_shade, canvas_glow, canvas_save_png, canvas_close.
   owns:  its pixels. */
#ifndef ROOM_CANVAS_H
#define ROOM_CANVAS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct canvas {
    int width, height;
    uint32_t *pixels; /* [height, width] 0x00RRGGBB */
} canvas;

canvas canvas_open(int width, int height);
void canvas_copy(canvas *to, const canvas *from); /* of the same size */
/* All shapes are filled, and clipped to the canvas. */
void canvas_box(canvas *c, int x, int y, int width, int height, uint32_t colour);
void canvas_round_box(canvas *c, int x, int y, int width, int height, uint32_t colour); /* without its corners */
void canvas_line(canvas *c, int x0, int y0, int x1, int y1, int thick, uint32_t colour);
void canvas_disc(canvas *c, int x, int y, int radius, uint32_t colour);
void canvas_oval(canvas *c, int x, int y, int radius_x, int radius_y, uint32_t colour);
void canvas_triangle(canvas *c, int x0, int y0, int x1, int y1, int x2, int y2, uint32_t colour);
/* Darkens a box: percent 100 leaves it as it is, 0 makes it black. */
void canvas_shade(canvas *c, int x, int y, int width, int height, int percent);
/* Light around a lamp: brightens a disc towards the colour, most at its centre, by `percent` there. */
void canvas_glow(canvas *c, int x, int y, int radius, uint32_t colour, int percent);
bool canvas_save_png(const canvas *c, int scale, const char *path); /* false: errno says why */
void canvas_close(canvas *c);

#endif

/* picture.h: a small canvas for charts: boxes, lines, a 5x7 font, PNG.
   takes: sizes and places in pixels, (0,0) at the top left; colours 0xRRGGBB.
   gives: picture_open, picture_box, picture_line, picture_text, picture_save_png, picture_close.
   owns:  its pixels. */
#ifndef DEMO_PICTURE_H
#define DEMO_PICTURE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct picture {
    int width, height;
    uint8_t *pixels; /* [height, width, 3] */
} picture;

picture picture_open(int width, int height, uint32_t background);
void picture_box(picture *p, int x, int y, int width, int height, uint32_t colour); /* filled; clipped to the picture */
void picture_line(picture *p, int x0, int y0, int x1, int y1, uint32_t colour);
void picture_text(picture *p, int x, int y, int scale, uint32_t colour, const char *ascii); /* x, y: top left */
int picture_text_width(const char *ascii, int scale); /* 6 columns for each letter; 7 rows high */
bool picture_can_save(void);                          /* false: this build has no stb_image_write */
bool picture_save_png(const picture *p, const char *path); /* false: errno says why */
void picture_close(picture *p);

#endif

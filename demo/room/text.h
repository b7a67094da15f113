/* text.h: text on a canvas: the letters of charts, but each as wide as it is.
   takes: UTF-8. Letters of Latin with accents lose them, as there is no glyph; quotes and dashes become plain ones.
   gives: text_width, text_draw, text_draw_large, text_break.
   owns:  nothing. */
#ifndef ROOM_TEXT_H
#define ROOM_TEXT_H

#include "canvas.h"

#include <stddef.h>

#define TEXT_ROW 10 /* pixels from one row to the next */

int text_width(const char *text, size_t bytes);
int text_draw(canvas *c, int x, int y, uint32_t colour, const char *text, size_t bytes); /* returns the x after it */
int text_draw_large(canvas *c, int x, int y, int scale, uint32_t colour, const char *text, size_t bytes);
/* Bytes of the first row if no row is wider than `width`: up to a blank, or as many as fit. *next: where the following
   row begins; at least one byte further, unless the text is empty. */
size_t text_break(const char *text, int width, const char **next);

#endif

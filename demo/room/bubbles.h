/* bubbles.h: what people say, above their heads: the words so far, moving dots before the first word; and a page of
   paper for longer texts.
   takes: the stage, the tavern.
   gives: bubbles_draw, bubbles_page.
   owns:  nothing. */
#ifndef ROOM_BUBBLES_H
#define ROOM_BUBBLES_H

#include "canvas.h"
#include "stage.h"

#define BUBBLE_PAPER 0xFBF3DCu /* only bubbles have this colour: tests count its pixels */
#define BUBBLE_INK 0x241A20u

/* partner: index of the person whom the player talks with; -1: nobody. */
void bubbles_draw(canvas *c, const stage *s, const tavern *t, int partner, uint32_t frame);
void bubbles_page(canvas *c, const char *text); /* rows end with '\n' */

#endif

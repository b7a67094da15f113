/* figures.h: people and things, drawn from a few shapes each.
   takes: an actor of the stage; the number of the frame.
   gives: figure_draw, figure_colour, figure_hand, figure_thing.
   owns:  nothing. */
#ifndef ROOM_FIGURES_H
#define ROOM_FIGURES_H

#include "canvas.h"
#include "stage.h"

#define FIGURE_HEIGHT 50

void figure_draw(canvas *c, const stage *s, int who, uint32_t frame);
uint32_t figure_colour(int who);                       /* of the name */
void figure_hand(const stage *s, int who, int *x, int *y); /* where a thing leaves the hand, or comes to it */
void figure_thing(canvas *c, int x, int y, const char *name); /* x, y: the middle of its lower edge */

#endif

/* scenery.h: the room that people stand in: walls, door, window, hearth, bar, lamps, a table.
   takes: a canvas of SCENERY_WIDTH columns; the number of the frame, which moves fire, rain and lamps.
   gives: scenery_paint, scenery_move, scenery_bar, scenery_table, the places of the room.
   owns:  nothing. */
#ifndef ROOM_SCENERY_H
#define ROOM_SCENERY_H

#include "canvas.h"

#define SCENERY_WIDTH 480
#define SCENERY_HEIGHT 212 /* the panel is below it */
#define SCENERY_FLOOR 126  /* first row of the floor */
#define SCENERY_DOOR_X 38
#define SCENERY_BAR_X 334  /* left end of the bar */
#define SCENERY_BAR_Y 158  /* its lower edge: who stands above it is behind it */
#define SCENERY_TABLE_X 246
#define SCENERY_TABLE_Y 176

void scenery_paint(canvas *c);                 /* what never moves, once */
void scenery_move(canvas *c, uint32_t frame);  /* what moves, and light */
void scenery_bar(canvas *c);                   /* what hides people: the bar */
void scenery_table(canvas *c);                 /* and the table */

#endif

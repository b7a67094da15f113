/* screen.h: what the player sees. On a terminal: lines that are being said grow side by side at the bottom, above a
   status row and the prompt; a line that has ended scrolls up and stands. Elsewhere: lines as they end, in order.
   takes: a tavern, a status, what is being typed.
   gives: screen_open, screen_note, screen_draw, screen_close.
   owns:  the lower end of the terminal. */
#ifndef NPC_SCREEN_H
#define NPC_SCREEN_H

#include "line_edit.h"
#include "tavern.h"

typedef struct screen {
    bool live, colours;
    uint32_t columns, height; /* as the terminal has them now */
    size_t stands;       /* lines of the tavern that are printed for good */
    uint32_t rows;       /* of the part that is drawn again and again; 0 = not there */
    char *drawn;         /* what that part shows */
} screen;

void screen_open(screen *s);
void screen_note(screen *s, const char *format, ...); /* a paragraph that stands */
void screen_heading(screen *s, const char *text);
/* status and typed: NULL = none. Writes only what changed; all that fits, after the terminal changed its size. */
void screen_draw(screen *s, const tavern *t, const char *status, const line_edit *typed);
void screen_close(screen *s);                         /* the drawn part goes away */

#endif

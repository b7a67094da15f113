/* screen.h: what the player sees. On a terminal the live part is at the bottom: lines that are being spoken, a
   murmur, a status row and the prompt. It is redrawn; finished lines scroll up above it. Elsewhere each line is printed
   when it ends.
   takes: a tavern, a status, a murmur, what is being typed.
   gives: screen_open, screen_note, screen_draw, screen_close.
   owns:  the lower end of the terminal. */
#ifndef NPC_SCREEN_H
#define NPC_SCREEN_H

#include "line_edit.h"
#include "tavern.h"

typedef struct screen {
    bool live, colours;
    uint32_t columns, height; /* current size of the terminal */
    size_t stands;       /* lines of the tavern that are printed as finished */
    uint32_t draws;      /* calls of screen_draw */
    uint32_t rows;       /* rows of the live part; 0 = not drawn */
    char *drawn;         /* text of the live part */
} screen;

typedef struct screen_foot { /* what stands below the lines; zeroed: nothing */
    const char *status;      /* NULL: none */
    const char *murmur;      /* words from another table; NULL, "": none */
    const line_edit *typed;  /* NULL: none */
} screen_foot;

void screen_open(screen *s);
void screen_note(screen *s, const char *format, ...); /* prints a paragraph that stays */
void screen_heading(screen *s, const char *text);
/* Redraws only on a change; prints everything again if the terminal changed its size. */
void screen_draw(screen *s, const tavern *t, const screen_foot *foot);
void screen_close(screen *s);                         /* erases the live part */

#endif

/* glyphs.h: the letters of charts and of the window: the printable ASCII characters, 5 columns of 8 pixels each.
   takes: a character.
   gives: glyph_of. */
#ifndef DEMO_GLYPHS_H
#define DEMO_GLYPHS_H

#include <stdint.h>

#define GLYPH_COLUMNS 5
#define GLYPH_ROWS 8 /* the eighth row is for descenders */

const uint8_t *glyph_of(char ascii); /* [GLYPH_COLUMNS] bit 0 is the top row; '?' for what is not printable */

#endif

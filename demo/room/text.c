/* text.c: see text.h.
   takes: nothing.
   gives: what text.h declares. */
#include "text.h"

#include "../common/glyphs.h"

#include <string.h>

#define BLANK_PIXELS 3

/* ---- characters ---- */

/* Reads a code point and returns its bytes; bytes that are not UTF-8 count as one each. */
static size_t read_point(const char *text, size_t bytes, uint32_t *point)
{
    unsigned char lead = (unsigned char)text[0];
    size_t length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    *point = length == 1 ? lead : lead & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if (i >= bytes || ((unsigned char)text[i] & 0xC0) != 0x80) {
            *point = '?';
            return i;
        }
        *point = *point << 6 | ((unsigned char)text[i] & 0x3Fu);
    }
    return length;
}

/* The printable ASCII character that looks most like it. */
static char plain_of(uint32_t point)
{
    static const char latin[] = "AAAAAAACEEEEIIIIDNOOOOOxOUUUUYPsaaaaaaaceeeeiiiidnooooo/ouuuuypy"; /* from U+00C0 */
    if (point < 0x80) {
        return point < ' ' ? ' ' : (char)point;
    }
    if (point >= 0xC0 && point < 0xC0 + sizeof latin - 1) {
        return latin[point - 0xC0];
    }
    switch (point) {
    case 0xA0: return ' ';
    case 0x2018: case 0x2019: return '\'';
    case 0x201C: case 0x201D: case 0xAB: case 0xBB: return '"';
    case 0x2010: case 0x2011: case 0x2012: case 0x2013: case 0x2014: return '-';
    case 0x2026: return '.';
    default: return '?';
    }
}

/* First column with pixels, and their number. */
static int columns_of(const uint8_t *glyph, int *first)
{
    int from = 0, end = GLYPH_COLUMNS;
    while (from < end && !glyph[from]) {
        from++;
    }
    while (end > from && !glyph[end - 1]) {
        end--;
    }
    *first = from;
    return end - from;
}

/* Draws the letter unless c is NULL; returns its width. A dash that cuts a line off is a long one. */
static int letter(canvas *c, int x, int y, int scale, uint32_t colour, uint32_t point)
{
    const uint8_t *glyph = glyph_of(plain_of(point));
    int first, columns = columns_of(glyph, &first);
    if (point == 0x2014) {
        if (c) {
            canvas_box(c, x, y + 3 * scale, 7 * scale, scale, colour);
        }
        return 8 * scale;
    }
    for (int i = 0; c && i < columns; i++) {
        for (int j = 0; j < GLYPH_ROWS; j++) {
            if (glyph[first + i] >> j & 1) {
                canvas_box(c, x + i * scale, y + j * scale, scale, scale, colour);
            }
        }
    }
    return (columns ? columns + 1 : BLANK_PIXELS) * scale;
}

/* ---- rows ---- */

int text_draw_large(canvas *c, int x, int y, int scale, uint32_t colour, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        uint32_t point;
        at += read_point(text + at, bytes - at, &point);
        x += letter(c, x, y, scale, colour, point);
    }
    return x;
}

int text_draw(canvas *c, int x, int y, uint32_t colour, const char *text, size_t bytes)
{
    return text_draw_large(c, x, y, 1, colour, text, bytes);
}

int text_width(const char *text, size_t bytes)
{
    return text_draw(NULL, 0, 0, 0, text, bytes);
}

size_t text_break(const char *text, int width, const char **next)
{
    size_t bytes = strlen(text), at = 0, blank = 0;
    int x = 0;
    while (at < bytes && text[at] != '\n') {
        uint32_t point;
        size_t length = read_point(text + at, bytes - at, &point);
        x += letter(NULL, 0, 0, 1, 0, point);
        blank = point == ' ' ? at : blank;
        if (x - 1 > width && point != ' ' && at > 0) {
            at = blank ? blank : at;
            break;
        }
        at += length;
    }
    *next = text + at + (at < bytes && strchr(" \n", text[at]) != NULL);
    return at;
}

/* picture.c: see picture.h.
   takes: stb_image_write where HAVE_STB_IMAGE_WRITE is defined.
   gives: what picture.h declares.
   owns:  the pixels of a picture. */
#include "picture.h"

#include "glyphs.h"
#include "memory.h"
#include "text_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_STB_IMAGE_WRITE
#define STB_WRITES
#include "stb.h"
#endif

picture picture_open(int width, int height, uint32_t background)
{
    picture p = { width, height, memory_take((size_t)width * (size_t)height, 3) };
    picture_box(&p, 0, 0, width, height, background);
    return p;
}

static void set_pixel(picture *p, int x, int y, uint32_t colour)
{
    if (x < 0 || y < 0 || x >= p->width || y >= p->height) {
        return;
    }
    uint8_t *pixel = p->pixels + ((size_t)y * (size_t)p->width + (size_t)x) * 3;
    pixel[0] = (uint8_t)(colour >> 16);
    pixel[1] = (uint8_t)(colour >> 8);
    pixel[2] = (uint8_t)colour;
}

void picture_box(picture *p, int x, int y, int width, int height, uint32_t colour)
{
    int right = x + width < p->width ? x + width : p->width, bottom = y + height < p->height ? y + height : p->height;
    for (int row = y > 0 ? y : 0; row < bottom; row++) {
        for (int column = x > 0 ? x : 0; column < right; column++) {
            set_pixel(p, column, row, colour);
        }
    }
}

void picture_line(picture *p, int x0, int y0, int x1, int y1, uint32_t colour)
{
    int dx = abs(x1 - x0), dy = abs(y1 - y0);
    int steps = dx > dy ? dx : dy;
    for (int i = 0; i <= steps; i++) {
        double share = steps ? (double)i / steps : 0;
        set_pixel(p, (int)lround(x0 + (x1 - x0) * share), (int)lround(y0 + (y1 - y0) * share), colour);
    }
}

void picture_text(picture *p, int x, int y, int scale, uint32_t colour, const char *ascii)
{
    for (; *ascii; ascii++, x += 6 * scale) {
        const uint8_t *glyph = glyph_of(*ascii);
        for (int column = 0; column < GLYPH_COLUMNS; column++) {
            for (int row = 0; row < GLYPH_ROWS; row++) {
                if (glyph[column] >> row & 1) {
                    picture_box(p, x + column * scale, y + row * scale, scale, scale, colour);
                }
            }
        }
    }
}

int picture_text_width(const char *ascii, int scale)
{
    size_t letters = strlen(ascii);
    return letters ? ((int)letters * 6 - 1) * scale : 0;
}

bool picture_can_save(void)
{
#ifdef HAVE_STB_IMAGE_WRITE
    return true;
#else
    return false;
#endif
}

#ifdef HAVE_STB_IMAGE_WRITE
static void add_bytes(void *user, void *data, int bytes)
{
    memory_text_add(user, data, (size_t)bytes);
}
#endif

bool picture_save_png(const picture *p, const char *path)
{
#ifdef HAVE_STB_IMAGE_WRITE
    memory_text png = { 0 };
    bool good = stbi_write_png_to_func(add_bytes, &png, p->width, p->height, 3, p->pixels, p->width * 3) != 0
             && text_file_replace(path, png.data, png.bytes);
    free(png.data);
    return good;
#else
    (void)p;
    (void)path;
    return false;
#endif
}

void picture_close(picture *p)
{
    free(p->pixels);
    *p = (picture){ 0 };
}

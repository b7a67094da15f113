/* canvas.c: see canvas.h.
   takes: nothing.
   gives: what canvas.h declares.
   owns:  the pixels of a canvas. */
#include "canvas.h"

#include "../common/memory.h"
#include "../common/picture.h"

#include <stdlib.h>
#include <string.h>

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int most(int a, int b)
{
    return a > b ? a : b;
}

canvas canvas_open(int width, int height)
{
    return (canvas){ width, height, memory_take((size_t)width * (size_t)height, sizeof(uint32_t)) };
}

void canvas_copy(canvas *to, const canvas *from)
{
    memcpy(to->pixels, from->pixels, (size_t)to->width * (size_t)to->height * sizeof *to->pixels);
}

static void row(canvas *c, int y, int from, int end, uint32_t colour)
{
    from = most(from, 0);
    end = least(end, c->width);
    for (int x = from; y >= 0 && y < c->height && x < end; x++) {
        c->pixels[y * c->width + x] = colour;
    }
}

void canvas_box(canvas *c, int x, int y, int width, int height, uint32_t colour)
{
    for (int i = most(y, 0); i < least(y + height, c->height); i++) {
        row(c, i, x, x + width, colour);
    }
}

void canvas_round_box(canvas *c, int x, int y, int width, int height, uint32_t colour)
{
    for (int i = 0; i < height; i++) {
        int edge = least(i, height - 1 - i), cut = edge == 0 ? 2 : edge == 1;
        row(c, y + i, x + cut, x + width - cut, colour);
    }
}

void canvas_line(canvas *c, int x0, int y0, int x1, int y1, int thick, uint32_t colour)
{
    int steps = most(most(abs(x1 - x0), abs(y1 - y0)), 1);
    for (int i = 0; i <= steps; i++) {
        int x = x0 + ((x1 - x0) * i * 2 + steps) / (2 * steps), y = y0 + ((y1 - y0) * i * 2 + steps) / (2 * steps);
        canvas_box(c, x - thick / 2, y - thick / 2, thick, thick, colour);
    }
}

void canvas_oval(canvas *c, int x, int y, int radius_x, int radius_y, uint32_t colour)
{
    for (int i = -radius_y; i <= radius_y; i++) {
        int half = radius_x; /* the widest row half that is inside of the oval; half a pixel rounder at its ends */
        while (half > 0 && half * half * radius_y * radius_y + i * i * radius_x * radius_x
                               > radius_x * radius_x * radius_y * radius_y + radius_x * radius_y) {
            half--;
        }
        row(c, y + i, x - half, x + half + 1, colour);
    }
}

void canvas_disc(canvas *c, int x, int y, int radius, uint32_t colour)
{
    canvas_oval(c, x, y, radius, radius, colour);
}

/* On which side of the line from a to b the point is. */
static int side(int ax, int ay, int bx, int by, int x, int y)
{
    return (bx - ax) * (y - ay) - (by - ay) * (x - ax);
}

void canvas_triangle(canvas *c, int x0, int y0, int x1, int y1, int x2, int y2, uint32_t colour)
{
    for (int y = least(least(y0, y1), y2); y <= most(most(y0, y1), y2); y++) {
        for (int x = least(least(x0, x1), x2); x <= most(most(x0, x1), x2); x++) {
            int a = side(x0, y0, x1, y1, x, y), b = side(x1, y1, x2, y2, x, y), d = side(x2, y2, x0, y0, x, y);
            if ((a >= 0 && b >= 0 && d >= 0) || (a <= 0 && b <= 0 && d <= 0)) {
                row(c, y, x, x + 1, colour);
            }
        }
    }
}

/* Each part of the colour goes `share` of 256 of the way to the other colour. */
static uint32_t mix(uint32_t from, uint32_t to, uint32_t share)
{
    uint32_t out = 0;
    for (int shift = 0; shift < 24; shift += 8) {
        uint32_t a = from >> shift & 0xFF, b = to >> shift & 0xFF;
        out |= ((a * (256 - share) + b * share) >> 8) << shift;
    }
    return out;
}

void canvas_shade(canvas *c, int x, int y, int width, int height, int percent)
{
    for (int i = most(y, 0); i < least(y + height, c->height); i++) {
        for (int j = most(x, 0); j < least(x + width, c->width); j++) {
            uint32_t *pixel = &c->pixels[i * c->width + j];
            *pixel = mix(0, *pixel, (uint32_t)percent * 256 / 100);
        }
    }
}

void canvas_glow(canvas *c, int x, int y, int radius, uint32_t colour, int percent)
{
    for (int i = most(y - radius, 0); i < least(y + radius, c->height); i++) {
        for (int j = most(x - radius, 0); j < least(x + radius, c->width); j++) {
            int far = (i - y) * (i - y) + (j - x) * (j - x), all = radius * radius;
            if (far < all) {
                uint32_t share = (uint32_t)((all - far) * 256 / all);
                uint32_t *pixel = &c->pixels[i * c->width + j];
                *pixel = mix(*pixel, colour, share * share / 256 * (uint32_t)percent / 100);
            }
        }
    }
}

bool canvas_save_png(const canvas *c, int scale, const char *path)
{
    picture p = picture_open(c->width * scale, c->height * scale, 0);
    for (int y = 0; y < c->height; y++) {
        for (int x = 0; x < c->width; x++) {
            picture_box(&p, x * scale, y * scale, scale, scale, c->pixels[y * c->width + x]);
        }
    }
    bool saved = picture_save_png(&p, path);
    picture_close(&p);
    return saved;
}

void canvas_close(canvas *c)
{
    free(c->pixels);
    *c = (canvas){ 0 };
}

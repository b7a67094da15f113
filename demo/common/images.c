/* images.c: see images.h.
   takes: paths, an engine.
   gives: what images.h declares.
   owns:  what images.h says. */
#include "images.h"

#include <stdio.h>

bool images_read(images *i, const images_options *o)
{
    char error[256];
    for (i->count = 0; i->count < o->files.count; i->count++) {
        const char *path = o->files.items[i->count];
        if (!picture_file_read(path, &i->files[i->count], error, sizeof error)) {
            fprintf(stderr, "%s: %s\n", path, error);
            return false;
        }
    }
    return true;
}

void images_room(const images *i, const images_options *o, uint32_t needed, exl2_model_desc *d)
{
    uint32_t open = needed > o->open ? needed : o->open;
    uint64_t pixels = 0;
    d->vision.images = open;
    d->vision.rows = o->rows;
    d->vision.max_rows = o->max_rows;
    d->vision.max_tiles = o->max_tiles;
    for (uint32_t k = 0; k < i->count; k++) { /* no side may be longer than the number of pixels */
        uint64_t area = (uint64_t)i->files[k].width * i->files[k].height;
        pixels = open > 1 || area < pixels ? pixels + (open > 1 ? area : 0) : area;
    }
    pixels = open > i->count && pixels < IMAGES_PIXELS ? IMAGES_PIXELS : pixels;
    d->vision.pixels_max = (uint32_t)(pixels > 1u << 28 ? 1u << 28 : pixels);
}

exl2_result images_make_one(exl2_engine *e, exl2_model m, const picture_file *p, exl2_image *out)
{
    static const exl2_pixels formats[] = { EXL2_PIXELS_GRAY8, EXL2_PIXELS_GRAY8, EXL2_PIXELS_GRAY8, EXL2_PIXELS_RGB8,
                                           EXL2_PIXELS_RGBA8 };
    exl2_image_desc d = { .model = m, .format = formats[p->channels], .width = p->width, .height = p->height,
                          .pixels = p->pixels, .silent = true };
    return exl2_image_make(e, &d, out);
}

exl2_result images_make_file(exl2_engine *e, exl2_model m, const char *path, exl2_image *out, char *sentence,
                             size_t cap)
{
    char why[256];
    picture_file p;
    exl2_error error;
    if (!picture_file_read(path, &p, why, sizeof why)) {
        snprintf(sentence, cap, "%s: %s", path, why);
        return EXL2_ERR_IO;
    }
    exl2_result r = images_make_one(e, m, &p, out);
    picture_file_close(&p);
    if (r < 0) {
        exl2_last_error(e, &error);
        snprintf(sentence, cap, "%s: %s", path, error.text);
    }
    return r;
}

bool images_make(images *i, exl2_engine *e, exl2_model m)
{
    for (; i->made < i->count; i->made++) {
        if (images_make_one(e, m, &i->files[i->made], &i->handles[i->made]) < 0) {
            return false;
        }
        picture_file_close(&i->files[i->made]);
    }
    return true;
}

void images_close(images *i, exl2_engine *e)
{
    for (uint32_t k = 0; k < i->count; k++) {
        picture_file_close(&i->files[k]);
        if (e && k < i->made) {
            exl2_image_close(e, i->handles[k]);
        }
    }
    *i = (images){ 0 };
}

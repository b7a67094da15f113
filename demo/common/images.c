/* images.c: see images.h.
   takes: paths, an engine.
   gives: what images.h declares.
   owns:  what images.h says. */
#include "images.h"

#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FPS "2" /* the default, which is that of the Qwen families */

/* As a double, so that 0.1 is what a program would give; 0: it is no number. */
static double fps_of(const images_options *o)
{
    const char *text = o->fps ? o->fps : FPS;
    char *end;
    double fps = strtod(text, &end);
    return *end ? 0 : fps;
}

const char *images_wrong(const images_options *o)
{
    return o->video && o->files.count == 0 ? "--video needs pictures, its frames"
         : o->fps && !o->video ? "--fps needs --video"
         : o->fps && !(fps_of(o) > 0) ? "--fps must be a number above 0" : NULL;
}

/* The files become the frames of one picture_file. false: they have different sizes, message on stderr. */
static bool join_frames(images *i, const images_options *o)
{
    const picture_file *first = &i->files[0];
    size_t bytes = (size_t)first->width * first->height * first->channels;
    for (uint32_t k = 1; k < i->count; k++) {
        const picture_file *p = &i->files[k];
        if (p->width != first->width || p->height != first->height || p->channels != first->channels) {
            fprintf(stderr, "%s: a frame of %u x %u pixels and %u channels, but the first one has %u x %u and %u\n",
                    o->files.items[k], p->width, p->height, p->channels, first->width, first->height,
                    first->channels);
            return false;
        }
    }
    i->files[0].pixels = memory_grow(i->files[0].pixels, bytes * i->count, 1);
    for (uint32_t k = 1; k < i->count; k++) {
        memcpy(i->files[0].pixels + k * bytes, i->files[k].pixels, bytes);
        picture_file_close(&i->files[k]);
    }
    i->frames = i->count;
    i->fps = fps_of(o);
    i->count = 1;
    return true;
}

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
    return !o->video || join_frames(i, o);
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
        uint64_t area = (uint64_t)i->files[k].width * i->files[k].height * (i->frames ? i->frames : 1);
        pixels = open > 1 || area < pixels ? pixels + (open > 1 ? area : 0) : area;
    }
    pixels = open > i->count && pixels < IMAGES_PIXELS ? IMAGES_PIXELS : pixels;
    d->vision.pixels_max = (uint32_t)(pixels > 1u << 28 ? 1u << 28 : pixels);
}

static exl2_image_desc desc_of(exl2_model m, const picture_file *p)
{
    static const exl2_pixels formats[] = { EXL2_PIXELS_GRAY8, EXL2_PIXELS_GRAY8, EXL2_PIXELS_GRAY8, EXL2_PIXELS_RGB8,
                                           EXL2_PIXELS_RGBA8 };
    return (exl2_image_desc){ .model = m, .format = formats[p->channels], .width = p->width, .height = p->height,
                              .pixels = p->pixels, .silent = true };
}

exl2_result images_make_one(exl2_engine *e, exl2_model m, const picture_file *p, exl2_image *out)
{
    exl2_image_desc d = desc_of(m, p);
    return exl2_image_make(e, &d, out);
}

exl2_result images_make_at(const images *i, uint32_t k, exl2_engine *e, exl2_model m, exl2_image *out)
{
    exl2_image_desc d = desc_of(m, &i->files[k]);
    d.frames = i->frames;
    d.fps = i->fps;
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
        if (images_make_at(i, i->made, e, m, &i->handles[i->made]) < 0) {
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

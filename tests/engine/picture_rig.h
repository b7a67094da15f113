/* picture_rig.h: models that see, and pictures for them.
   takes: the shared fixtures (fixtures/vision).
   gives: SIDE, PROMPT, folder_of, open_model, images_of, draw, desc_of, make, passes_of, ask, same, said. */
#ifndef PICTURE_RIG_H
#define PICTURE_RIG_H

#include "rig.h"

#include "private/objects.h"

#include <stdlib.h>

#define SIDE 64u
#define PROMPT "<|im_start|>User:<image>What is this?<end_of_utterance>\nAssistant:"

static const char *folder_of(const char *name)
{
    static char path[1024];
    char below[256];
    snprintf(below, sizeof below, "fixtures/vision/%s/config.json", name);
    snprintf(path, sizeof path, "%s", check_shared(below));
    *strrchr(path, '/') = 0;
    return path;
}

static rig open_model(const char *name, exl2_model_desc desc, const exl2_engine_desc *engine)
{
    desc.path = folder_of(name);
    desc.vision.images = desc.vision.images ? desc.vision.images : 8;
    desc.vision.pixels_max = desc.vision.pixels_max ? desc.vision.pixels_max : 40000;
    return rig_open(engine, &desc);
}

static const exl2__images *images_of(const rig *r)
{
    return &((exl2_engine *)r->engine)->models[0].images;
}

/* Pixels that a seed names. */
static void draw(uint8_t *rgb, uint32_t width, uint32_t height, uint32_t seed)
{
    uint32_t x = seed * 2654435761u + 1;
    for (uint32_t i = 0; i < width * height * 3; i++) {
        x = x * 1664525u + 1013904223u;
        rgb[i] = (uint8_t)(x >> 24);
    }
}

static exl2_image_desc desc_of(const rig *r, const void *pixels, uint32_t width, uint32_t height)
{
    exl2_image_desc d = { 0 };
    d.model = r->model;
    d.width = width;
    d.height = height;
    d.pixels = pixels;
    d.silent = true;
    return d;
}

static exl2_image make(const rig *r, uint32_t seed)
{
    static uint8_t rgb[SIDE * SIDE * 3];
    exl2_image image = { 0 };
    draw(rgb, SIDE, SIDE, seed);
    exl2_image_desc d = desc_of(r, rgb, SIDE, SIDE);
    exl2_result result = exl2_image_make(r->engine, &d, &image);
    if (result < 0) {
        rig_fail(r->engine, "exl2_image_make", result);
    }
    return image;
}

static void ask(const rig *r, exl2_session s, const exl2_image *images, uint32_t count, const char *text,
                uint32_t new_tokens, rig_said *said)
{
    memset(said, 0, sizeof *said);
    exl2_job_desc d = rig_job(r, NULL, 0, new_tokens, said);
    d.model.id = s.id ? 0 : r->model.id;
    d.session = s;
    d.prompt.text = text;
    d.prompt.images = images;
    d.prompt.image_count = count;
    d.prompt.flags = EXL2_TEXT_NO_BOS;
    rig_run(r, &d);
}

static bool same(const rig_said *a, const rig_said *b)
{
    return a->count == b->count && memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0
        && memcmp(a->logprobs, b->logprobs, a->count * sizeof *a->logprobs) == 0;
}

static rig_said said[4];

#endif

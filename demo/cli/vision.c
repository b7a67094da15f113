/* vision.c: `exl2 vision`: says what the tower of a model sees of pictures, and what it gives to the text model: how a
   user finds out why a model does not see.
   takes: a model folder, pictures.
   gives: cli_vision. */
#include "../common/host.h"
#include "../common/images.h"
#include "../common/interrupt.h"
#include "../common/json_out.h"
#include "../common/memory.h"
#include "../common/picture.h"
#include "../common/text_file.h"
#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct vision_options {
    const char *path, *seen, *rows;
    images_options images;
    bool json;
    host_options host;
    exl2_model_desc model;
} vision_options;

typedef struct vision {
    const vision_options *options;
    host host;
    images pictures;
    json_out json;
} vision;

static int fail_file(const char *file, const char *why)
{
    fprintf(stderr, "%s: %s\n", file, why);
    return 1;
}

static bool load(vision *v)
{
    const vision_options *o = v->options;
    exl2_model_desc d = o->model;
    d.path = o->path;
    d.context_max = 64; /* no text is written */
    images_room(&v->pictures, &o->images, 1, &d);
    return host_load(&v->host, &d, 1);
}

/* Encodes a picture. false: a message was printed. */
static bool encode(vision *v, const char *file, uint32_t number, exl2_image *image, exl2_image_info *info)
{
    exl2_engine *e = v->host.engine;
    exl2_error error;
    exl2_result r = images_make_at(&v->pictures, number, e, v->host.model, image);
    while (r >= 0 && (r = exl2_image_get(e, *image, info)) >= 0 && info->state != EXL2_IMAGE_ENCODED) {
        r = info->result < 0 ? info->result : exl2_step(e, &(exl2_step_desc){ .cpu_us = 100000, .wait = true });
        if (interrupted()) {
            fputs("interrupted\n", stderr);
            return false;
        }
    }
    if (r < 0) {
        exl2_last_error(e, &error);
        fail_file(file, error.text);
    }
    return r >= 0;
}

/* The tiles or frames, one below the other. */
static bool save_seen(vision *v, exl2_image image, const exl2_image_info *info)
{
    size_t bytes = 0;
    uint32_t parts = v->pictures.frames ? v->pictures.frames : info->tiles;
    picture seen = { (int)info->width, (int)(info->height * parts), NULL };
    if (exl2_image_seen(v->host.engine, image, NULL, 0, &bytes) < 0) {
        return host_failed(&v->host) == 0;
    }
    seen.pixels = memory_take(bytes, 1);
    bool good = exl2_image_seen(v->host.engine, image, seen.pixels, bytes, &bytes) >= 0;
    good = good && picture_save_png(&seen, v->options->seen);
    if (!good) {
        fail_file(v->options->seen, strerror(errno));
    }
    picture_close(&seen);
    return good;
}

/* The rows as little-endian floats. */
static bool save_rows(vision *v, exl2_image image)
{
    size_t count = 0;
    if (exl2_image_rows(v->host.engine, image, NULL, 0, &count) < 0) {
        return host_failed(&v->host) == 0;
    }
    float *rows = memory_take(count, sizeof *rows);
    uint8_t *bytes = memory_take(count, 4);
    bool good = exl2_image_rows(v->host.engine, image, rows, count, &count) >= 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &rows[i], sizeof bits);
        for (uint32_t k = 0; k < 4; k++) {
            bytes[i * 4 + k] = (uint8_t)(bits >> 8 * k);
        }
    }
    good = good && text_file_write(v->options->rows, bytes, count * 4);
    free(bytes);
    free(rows);
    return good;
}

static void print(vision *v, const char *file, const picture_file *p, const exl2_image_info *info)
{
    char id[33];
    double ms = (double)info->encode_ns / 1e6;
    for (uint32_t i = 0; i < 16; i++) {
        snprintf(id + 2 * i, 3, "%02x", info->id[i]);
    }
    uint32_t frames = v->pictures.frames;
    if (!v->options->json && frames) {
        printf("video of %u frames of %u x %u, %g a second, seen as %u x %u; %u rows (%u x %u x %u), %u tokens; "
               "%.1f ms; %s\n", frames, p->width, p->height, v->pictures.fps, info->width, info->height,
               info->rows, info->grid[0], info->grid[1], info->grid[2], info->tokens, ms, id);
        return;
    }
    if (!v->options->json) {
        printf("%s: %u x %u, seen as %u tile%s of %u x %u; %u rows (%u x %u a tile), %u tokens; %.1f ms; %s\n", file,
               p->width, p->height, info->tiles, info->tiles == 1 ? "" : "s", info->width, info->height, info->rows,
               info->grid[1], info->grid[2], info->tokens, ms, id);
        return;
    }
    json_out *j = &v->json;
    json_out_object(j, NULL);
    json_out_string(j, "file", file);
    json_out_uint(j, "file_width", p->width);
    json_out_uint(j, "file_height", p->height);
    json_out_uint(j, "width", info->width);
    json_out_uint(j, "height", info->height);
    if (frames) {
        json_out_uint(j, "frames", frames);
        json_out_number(j, "fps", v->pictures.fps);
    }
    json_out_uint(j, "tiles", info->tiles);
    json_out_uint(j, "rows", info->rows);
    json_out_uint(j, "tokens", info->tokens);
    json_out_array(j, "grid");
    for (uint32_t i = 0; i < 3; i++) {
        json_out_uint(j, NULL, info->grid[i]);
    }
    json_out_end(j);
    json_out_string(j, "id", id);
    json_out_number(j, "encode_ms", ms);
    json_out_end(j);
}

static int run(vision *v)
{
    const vision_options *o = v->options;
    if (!images_read(&v->pictures, &o->images) || !host_open(&v->host, &o->host) || !load(v)) {
        return 1;
    }
    v->json = (json_out){ .file = stdout };
    if (o->json) {
        json_out_array(&v->json, NULL);
    }
    for (uint32_t i = 0; i < v->pictures.count; i++) {
        const char *file = o->images.files.items[i];
        exl2_image image;
        exl2_image_info info;
        if (!encode(v, file, i, &image, &info)
            || (o->seen && !save_seen(v, image, &info)) || (o->rows && !save_rows(v, image))) {
            return 1;
        }
        print(v, file, &v->pictures.files[i], &info);
        exl2_image_close(v->host.engine, image);
    }
    if (o->json) {
        json_out_end(&v->json);
    }
    return 0;
}

int cli_vision(int argc, char **argv)
{
    static vision_options o;
    static vision v;
    const arg positional[] = { { "MODEL", ARG_TEXT, &o.path, NULL, "folder of a model with a tower for pictures" },
                               { "FILE", ARG_TEXTS, &o.images.files, NULL, "pictures" } };
    const arg flags[] = {
        { "--seen", ARG_TEXT, &o.seen, "OUT.png",
          "file to write: what the tower sees of one picture, tiles one below the other" },
        { "--rows", ARG_TEXT, &o.rows, "OUT.f32",
          "file to write: its rows as floats, little-endian, one row after the other" },
        IMAGES_VIDEO(o.images),
        IMAGES_LIMITS(o.images),
        { "--json", ARG_BOOL, &o.json, NULL, "prints JSON" },
        HOST_BACKEND_ARG(o.host, "(cpu)"),
        HOST_DEVICE_ARGS(o.host),
        HOST_CACHE_ARGS(o.host),
        HOST_WORK_ARGS(o.host),
    };
    char about[256];
    snprintf(about, sizeof about, "Says what a model sees of pictures, and how many tokens they are. Reads %s.",
             picture_file_formats());
    const args_desc d = { "exl2 vision", about, positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags,
                          ARGS_COUNT(flags) };
    o.host.backend = HOST_CPU;
    args_result parsed = host_parse(&d, argc, argv, &o.host);
    if (parsed == ARGS_OK && images_wrong(&o.images)) {
        parsed = args_wrong(&d, "%s", images_wrong(&o.images));
    }
    if (parsed == ARGS_OK && (o.seen || o.rows) && o.images.files.count > 1 && !o.images.video) {
        parsed = args_wrong(&d, "--seen and --rows are of one picture, not of %u", o.images.files.count);
    }
    if (parsed == ARGS_OK && o.seen && !picture_can_save()) {
        parsed = args_wrong(&d, "--seen needs stb_image_write, which this build does not have");
    }
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    v.options = &o;
    int code = run(&v);
    images_close(&v.pictures, NULL);
    host_close(&v.host);
    return code;
}

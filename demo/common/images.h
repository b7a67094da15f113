/* images.h: files that become pictures or a video of a model: --image, --video, --fps, --images, --image-rows,
   --max-rows, --max-tiles.
   takes: paths, an engine with a loaded model.
   gives: images, images_wrong, images_read, images_room, images_make_one, images_make_file, images_make_at,
          images_make, images_close, IMAGES_ARGS, IMAGES_VIDEO, IMAGES_ROOM, IMAGES_LIMITS.
   owns:  the pixels of files until images_make, and then handles, until images_close. */
#ifndef DEMO_IMAGES_H
#define DEMO_IMAGES_H

#include "args.h"
#include "exl2.h"
#include "picture_file.h"

typedef struct images_options { /* zeroed: no pictures */
    arg_texts files;
    uint32_t max_rows, max_tiles; /* 0 = the engine's, the model's own */
    uint32_t open, rows;          /* pictures at a time, 0 = as many as are named; rows of the pool, 0 = the engine's */
    bool video;                   /* the files are frames of one video */
    const char *fps;              /* its frames in a second, a number; NULL = 2 */
} images_options;

#define IMAGES_PIXELS 24000000u /* of pictures that are named later, at a time */

/* Rows of a flag table. */
#define IMAGES_LIMITS(options)                                                                                        \
    { "--max-rows", ARG_U32, &(options).max_rows, "N", "most rows of a picture, each of which is a token (1280)" },   \
    { "--max-tiles", ARG_U32, &(options).max_tiles, "N",                                                              \
      "most tiles of a picture; 1 = the whole picture alone (the model's)" }
#define IMAGES_ROOM(options, usual)                                                                                   \
    { "--images", ARG_U32, &(options).open, "N", "pictures at a time, for which the tower is loaded " usual },        \
    { "--image-rows", ARG_U32, &(options).rows, "N", "rows of pictures that are kept (those of 8 pictures)" },        \
    IMAGES_LIMITS(options)
#define IMAGES_VIDEO(options)                                                                                         \
    { "--video", ARG_BOOL, &(options).video, NULL, "the pictures are the frames of one video" },                      \
    { "--fps", ARG_TEXT, &(options).fps, "X", "with --video: its frames in a second (2)" }
#define IMAGES_ARGS(options)                                                                                          \
    { "--image", ARG_TEXTS, &(options).files, "FILE", "a picture of the prompt; may be repeated" },                   \
    IMAGES_VIDEO(options), IMAGES_ROOM(options, "(those of --image)")

typedef struct images { /* zeroed: none */
    picture_file files[ARGS_LIST_MAX];
    exl2_image handles[ARGS_LIST_MAX];
    uint32_t count, made;
    uint32_t frames; /* of the video, which is files[0]: its frames one after the other; 0: none is a video */
    double fps;
} images;

/* What is wrong with the flags --video and --fps, or NULL. */
const char *images_wrong(const images_options *o);

/* Reads all files; those of a video must have the same size. false: failed, message on stderr. */
bool images_read(images *i, const images_options *o);

/* Room in the model for `needed` pictures at a time, or for as many as --images says, if these are more. Without any
   the tower is not loaded. */
void images_room(const images *i, const images_options *o, uint32_t needed, exl2_model_desc *d);

/* Makes a picture, without events. Results as exl2_image_make. */
exl2_result images_make_one(exl2_engine *e, exl2_model m, const picture_file *p, exl2_image *out);

/* Reads a file and makes its picture. IO: it cannot be read; else as exl2_image_make. sentence [cap]: why it failed,
   with the path. */
exl2_result images_make_file(exl2_engine *e, exl2_model m, const char *path, exl2_image *out, char *sentence,
                             size_t cap);

/* Makes picture number k, or the video, without events. Results as exl2_image_make. */
exl2_result images_make_at(const images *i, uint32_t k, exl2_engine *e, exl2_model m, exl2_image *out);

/* Makes all pictures, and frees the pixels. false: failed; the engine's newest error says why. */
bool images_make(images *i, exl2_engine *e, exl2_model m);

void images_close(images *i, exl2_engine *e); /* e NULL: the engine is closed, and its pictures with it */

#endif

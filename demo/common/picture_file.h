/* picture_file.h: reads pictures: PPM and PGM; PNG and JPEG by stb_image where the build has it.
   takes: paths, or the bytes of a file, untrusted.
   gives: picture_file, picture_file_read, picture_file_decode, picture_file_formats, picture_file_close.
   owns:  its pixels. */
#ifndef DEMO_PICTURE_FILE_H
#define DEMO_PICTURE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PICTURE_FILE_BYTES ((size_t)64 << 20)   /* of a file, at most */
#define PICTURE_FILE_PIXELS ((uint64_t)64 << 20) /* width times height, at most */
#define PICTURE_FILE_SIDE 16384u                /* width and height, at most */

typedef struct picture_file {
    uint32_t width, height, channels; /* channels: 1 gray, 3 RGB, 4 RGBA */
    uint8_t *pixels;                  /* [height, width, channels] */
} picture_file;

/* Limits are checked before pixels are decoded: those above, and pixels_max. The orientation that a PNG or JPEG file
   states is applied. false: error [error_bytes] has one sentence without the path. */
bool picture_file_read(const char *path, picture_file *out, char *error, size_t error_bytes);
bool picture_file_decode(const uint8_t *bytes, size_t count, uint64_t pixels_max, picture_file *out, char *error,
                         size_t error_bytes);

const char *picture_file_formats(void); /* "PNG, JPEG, PPM and PGM", or what this build reads */
void picture_file_close(picture_file *p);

#endif

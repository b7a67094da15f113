/* picture_file.c: see picture_file.h.
   takes: stb_image where HAVE_STB_IMAGE is defined.
   gives: what picture_file.h declares.
   owns:  the pixels of a picture.

   The orientation of a JPEG file is the tag 0x0112 of the first directory of its Exif segment, a TIFF file; that of a
   PNG file stands in its chunk eXIf. 1 = as it is, 2 = mirrored, 3 = upside down, 4 = both, and 5 to 8 the same with
   lines and columns exchanged. */
#include "picture_file.h"

#include "text_file.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_STB_IMAGE
#define STB_READS
#define STBI_ONLY_PNG
#define STBI_ONLY_JPEG
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_FAILURE_USERMSG /* the other reasons may have bytes of the file */
#define STBI_MAX_DIMENSIONS 16384
#include "stb.h"
#endif

static bool picture_fail(char *error, size_t bytes, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error, bytes, format, args);
    va_end(args);
    return false;
}

const char *picture_file_formats(void)
{
#ifdef HAVE_STB_IMAGE
    return "PNG, JPEG, PPM and PGM";
#else
    return "PPM and PGM (this build has no stb_image, which reads PNG and JPEG)";
#endif
}

static bool check_size(uint64_t width, uint64_t height, uint64_t pixels_max, char *error, size_t bytes)
{
    if (width == 0 || height == 0 || width > PICTURE_FILE_SIDE || height > PICTURE_FILE_SIDE
        || width * height > pixels_max) {
        return picture_fail(error, bytes,
                            "it has %llu x %llu pixels; sides of 1 to %u and %llu pixels in all are accepted",
                            (unsigned long long)width, (unsigned long long)height, PICTURE_FILE_SIDE,
                            (unsigned long long)pixels_max);
    }
    return true;
}

static bool no_memory(char *error, size_t bytes)
{
    return picture_fail(error, bytes, "there is no memory for its pixels");
}

/* ---- PPM and PGM ---- */

/* The next number of a header, after blanks and comments. false: there is none, or it is above a million. */
static bool header_number(const uint8_t *bytes, size_t count, size_t *at, uint32_t *out)
{
    uint32_t value = 0, digits = 0;
    while (*at < count && (strchr(" \t\r\n", bytes[*at]) || bytes[*at] == '#') && bytes[*at]) {
        bool comment = bytes[*at] == '#';
        while (comment && *at < count && bytes[*at] != '\n') {
            ++*at;
        }
        *at += *at < count;
    }
    for (; *at < count && bytes[*at] >= '0' && bytes[*at] <= '9' && value <= 1000000; ++*at, digits++) {
        value = value * 10 + (bytes[*at] - '0');
    }
    *out = value;
    return digits > 0 && value <= 1000000;
}

static bool decode_pnm(const uint8_t *bytes, size_t count, uint64_t pixels_max, picture_file *out, char *error,
                       size_t error_bytes)
{
    uint32_t most = 0;
    size_t at = 2;
    out->channels = bytes[1] == '6' ? 3 : 1;
    if (!header_number(bytes, count, &at, &out->width) || !header_number(bytes, count, &at, &out->height)
        || !header_number(bytes, count, &at, &most) || most == 0 || most > 255) {
        return picture_fail(error, error_bytes, "its header has no width, height and maximum of at most 255");
    }
    if (!check_size(out->width, out->height, pixels_max, error, error_bytes)) {
        return false;
    }
    at++; /* one blank */
    size_t wanted = (size_t)out->width * out->height * out->channels, have = at < count ? count - at : 0;
    if (have < wanted) {
        return picture_fail(error, error_bytes, "it is cut short: %zu bytes of pixels, of %zu", have, wanted);
    }
    out->pixels = malloc(wanted);
    if (!out->pixels) {
        return no_memory(error, error_bytes);
    }
    for (size_t i = 0; i < wanted; i++) {
        uint32_t value = bytes[at + i] < most ? bytes[at + i] : most;
        out->pixels[i] = (uint8_t)((value * 255 + most / 2) / most);
    }
    return true;
}

/* ---- PNG and JPEG ---- */

#ifdef HAVE_STB_IMAGE
static uint32_t load(const uint8_t *bytes, uint32_t count, bool big)
{
    uint32_t value = 0;
    for (uint32_t i = 0; i < count; i++) {
        value |= (uint32_t)bytes[i] << 8 * (big ? count - 1 - i : i);
    }
    return value;
}

/* The orientation in a TIFF file; 1 if it says none. */
static uint32_t tiff_orientation(const uint8_t *tiff, size_t count)
{
    if (count < 8 || (memcmp(tiff, "II*\0", 4) != 0 && memcmp(tiff, "MM\0*", 4) != 0)) {
        return 1;
    }
    bool big = tiff[0] == 'M';
    size_t at = load(tiff + 4, 4, big);
    if (at > count - 2) {
        return 1;
    }
    uint32_t entries = load(tiff + at, 2, big);
    at += 2;
    for (uint32_t i = 0; i < entries && count - at >= 12; i++, at += 12) {
        if (load(tiff + at, 2, big) == 0x0112 && load(tiff + at + 2, 2, big) == 3) { /* one number of 16 bits */
            uint32_t value = load(tiff + at + 8, 2, big);
            return value >= 1 && value <= 8 ? value : 1;
        }
    }
    return 1;
}

/* Walks over the segments of a JPEG file before its pixels. */
static uint32_t jpeg_orientation(const uint8_t *bytes, size_t count)
{
    for (size_t at = 2; count - at >= 4 && bytes[at] == 0xFF && bytes[at + 1] != 0xDA;) {
        size_t size = load(bytes + at + 2, 2, true);
        if (bytes[at + 1] == 0xFF) { /* a fill byte */
            at++;
            continue;
        }
        if (size < 2 || count - at - 2 < size) {
            return 1;
        }
        if (bytes[at + 1] == 0xE1 && size >= 8 && memcmp(bytes + at + 4, "Exif\0\0", 6) == 0) {
            return tiff_orientation(bytes + at + 10, size - 8);
        }
        at += 2 + size;
    }
    return 1;
}

/* The data of a PNG file's first chunk of this type; NULL: there is none. A chunk is its length, its type, data and a
   sum. */
static const uint8_t *png_chunk(const uint8_t *bytes, size_t count, const char *type, size_t *size)
{
    for (size_t at = 8; count - at >= 12;) {
        *size = load(bytes + at, 4, true);
        if (*size > count - at - 12) {
            return NULL;
        }
        if (memcmp(bytes + at + 4, type, 4) == 0) {
            return bytes + at + 8;
        }
        at += 12 + *size;
    }
    return NULL;
}

static uint32_t png_orientation(const uint8_t *bytes, size_t count)
{
    size_t size = 0;
    const uint8_t *tiff = png_chunk(bytes, count, "eXIf", &size);
    return tiff ? tiff_orientation(tiff, size) : 1;
}

/* Whether no Huffman table of a DHT segment has more than 256 symbols. What the file lacks of it, stb_image reads as
   zeros. */
static bool jpeg_tables_fit(const uint8_t *at, size_t count)
{
    for (size_t used = 0; count > 0; at += used, count -= used) {
        uint32_t symbols = 0;
        for (uint32_t i = 1; i <= 16 && i < count; i++) {
            symbols += at[i];
        }
        if (symbols > 256) {
            return false;
        }
        used = 17 + symbols < count ? 17 + symbols : count;
    }
    return true;
}

/* Walks over all segments of a JPEG file, as stb_image does. Version 2.27 of it writes as many symbols as a table
   claims to have, and has room for 256. Where no segment begins are pixels, or padding, in which FF stands before 0 and
   before the numbers of restarts. */
static bool jpeg_fits(const uint8_t *bytes, size_t count)
{
    size_t at = 2;
    while (count - at >= 4) {
        uint8_t kind = bytes[at + 1];
        bool alone = kind == 0 || kind == 0xFF || (kind >= 0xD0 && kind <= 0xD7);
        if (bytes[at] != 0xFF || alone) {
            at++;
            continue;
        }
        size_t size = load(bytes + at + 2, 2, true), rest = count - at - 2;
        if (kind == 0xD9 || size < 2 || size > rest) {
            rest = rest < size ? rest : size;
            return kind != 0xC4 || rest < 2 || jpeg_tables_fit(bytes + at + 4, rest - 2);
        }
        if (kind == 0xC4 && !jpeg_tables_fit(bytes + at + 4, size - 2)) {
            return false;
        }
        at += 2 + size;
    }
    return true;
}

/* Turns the picture as its orientation says. false: there is no memory. */
static bool orient(picture_file *p, uint32_t orientation)
{
    bool exchange = orientation >= 5;
    bool mirror = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    bool flip = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    uint32_t width = exchange ? p->height : p->width, height = exchange ? p->width : p->height;
    if (orientation == 1) {
        return true;
    }
    uint8_t *turned = malloc((size_t)width * height * p->channels);
    if (!turned) {
        return false;
    }
    for (uint32_t y = 0; y < p->height; y++) {
        for (uint32_t x = 0; x < p->width; x++) {
            /* 5 to 8: the stored line is a column of what is shown; mirror and flip are of what is stored */
            uint32_t from_x = mirror ? p->width - 1 - x : x;
            uint32_t from_y = flip ? p->height - 1 - y : y;
            uint32_t to_x = exchange ? y : x, to_y = exchange ? x : y;
            memcpy(turned + ((size_t)to_y * width + to_x) * p->channels,
                   p->pixels + ((size_t)from_y * p->width + from_x) * p->channels, p->channels);
        }
    }
    free(p->pixels);
    p->pixels = turned;
    p->width = width;
    p->height = height;
    return true;
}

/* stb's reason, as a sentence about the file. */
static bool stb_fail(char *error, size_t bytes, const char *what)
{
    const char *reason = stbi_failure_reason();
    if (reason && strcmp(reason, "Out of memory") == 0) {
        return no_memory(error, bytes);
    }
    return picture_fail(error, bytes, "%s: %s", what, reason ? reason : "no reason is known");
}

static bool decode_stb(const uint8_t *bytes, size_t count, uint64_t pixels_max, picture_file *out, char *error,
                       size_t error_bytes)
{
    int width = 0, height = 0, channels = 0, w = 0, h = 0, stored = 0;
    bool jpeg = bytes[0] == 0xFF;
    if (jpeg && !jpeg_fits(bytes, count)) {
        return picture_fail(error, error_bytes, "it is damaged: a Huffman table has more than 256 symbols");
    }
    if (!stbi_info_from_memory(bytes, (int)count, &width, &height, &channels) || width < 0 || height < 0) {
        return stb_fail(error, error_bytes, "it is damaged, or larger than 16384 pixels");
    }
    if (!check_size((uint64_t)width, (uint64_t)height, pixels_max, error, error_bytes)) {
        return false;
    }
    size_t color_bytes = 0; /* one color of a PNG file may be transparent, which stbi_info does not say */
    bool transparent = !jpeg && png_chunk(bytes, count, "tRNS", &color_bytes);
    int wanted = channels == 2 || transparent ? 4 : channels == 1 || channels == 4 ? channels : 3;
    uint8_t *pixels = stbi_load_from_memory(bytes, (int)count, &w, &h, &stored, wanted);
    if (!pixels) {
        return stb_fail(error, error_bytes, "it cannot be decoded");
    }
    if (w != width || h != height) {
        stbi_image_free(pixels);
        return picture_fail(error, error_bytes, "it cannot be decoded: its size changed");
    }
    out->width = (uint32_t)width;
    out->height = (uint32_t)height;
    out->channels = (uint32_t)wanted;
    out->pixels = pixels; /* stb takes it from malloc */
    uint32_t orientation = jpeg ? jpeg_orientation(bytes, count) : png_orientation(bytes, count);
    return orient(out, orientation) || no_memory(error, error_bytes);
}
#endif

static bool decode_any(const uint8_t *bytes, size_t count, uint64_t pixels_max, picture_file *out, char *error,
                       size_t error_bytes)
{
    static const uint8_t png[8] = { 0x89, 'P', 'N', 'G', 13, 10, 26, 10 };
    bool coded = (count >= 8 && memcmp(bytes, png, 8) == 0) || (count >= 4 && bytes[0] == 0xFF && bytes[1] == 0xD8);
    if (count > PICTURE_FILE_BYTES) {
        return picture_fail(error, error_bytes, "it has more than 64 MiB");
    }
    if (count >= 2 && bytes[0] == 'P' && (bytes[1] == '6' || bytes[1] == '5')) {
        return decode_pnm(bytes, count, pixels_max, out, error, error_bytes);
    }
#ifdef HAVE_STB_IMAGE
    if (coded) {
        return decode_stb(bytes, count, pixels_max, out, error, error_bytes);
    }
#endif
    return picture_fail(error, error_bytes, coded ? "this build cannot read it: it reads %s"
                                                  : "it is not a picture of a format that is read: %s",
                        picture_file_formats());
}

bool picture_file_decode(const uint8_t *bytes, size_t count, uint64_t pixels_max, picture_file *out, char *error,
                         size_t error_bytes)
{
    *out = (picture_file){ 0 };
    bool good = decode_any(bytes, count, pixels_max, out, error, error_bytes);
    if (!good) {
        picture_file_close(out);
    }
    return good;
}

bool picture_file_read(const char *path, picture_file *out, char *error, size_t error_bytes)
{
    size_t count = 0;
    char *bytes = text_file_load(path, PICTURE_FILE_BYTES, &count);
    *out = (picture_file){ 0 };
    if (!bytes) {
        return errno == EFBIG ? picture_fail(error, error_bytes, "it has more than 64 MiB")
                              : picture_fail(error, error_bytes, "%s", strerror(errno));
    }
    bool decoded = picture_file_decode((const uint8_t *)bytes, count, PICTURE_FILE_PIXELS, out, error, error_bytes);
    free(bytes);
    return decoded;
}

void picture_file_close(picture_file *p)
{
    free(p->pixels);
    *p = (picture_file){ 0 };
}

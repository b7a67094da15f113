/* picture_file.c: the pictures that programs read: PPM, PGM, PNG, JPEG with each orientation, limits before decoding,
   files that are cut or changed at any byte; a transparent color; what stb_image has no room or no words for. */
#if defined(__has_include)
#if __has_include(<stb/stb_image.h>) && __has_include(<stb/stb_image_write.h>)
#define HAVE_STB_IMAGE
#define HAVE_STB_IMAGE_WRITE
#endif
#endif
#include "../../demo/common/text_file.c"

#include "../../demo/common/folder.c"
#include "../../demo/common/memory.c"
#include "../../demo/common/picture_file.c"
#include "../check.h"

#ifdef HAVE_STB_IMAGE_WRITE
#define STB_WRITES
#include "../../demo/common/stb.h"
#endif

static char error[256];

static bool decode(const void *bytes, size_t count, picture_file *out)
{
    error[0] = 0;
    bool good = picture_file_decode((const uint8_t *)bytes, count, PICTURE_FILE_PIXELS, out, error, sizeof error);
    CHECK(good ? out->pixels != NULL : !out->pixels && strlen(error) > 10);
    return good;
}

static void bad(const void *bytes, size_t count, const char *piece)
{
    picture_file p;
    CHECK(!decode(bytes, count, &p));
    if (!CHECK(strstr(error, piece) != NULL)) {
        printf("  %s\n", error);
    }
}

static void bad_text(const char *text, const char *piece) { bad(text, strlen(text), piece); }

static void pnm(void)
{
    picture_file p;
    static const uint8_t ppm[] = "P6\n# a comment\n2 1\n255\n\x01\x02\x03\xFF\x80\x00";
    CHECK(decode(ppm, sizeof ppm - 1, &p));
    CHECK(p.width == 2 && p.height == 1 && p.channels == 3 && memcmp(p.pixels, "\x01\x02\x03\xFF\x80", 5) == 0);
    picture_file_close(&p);
    static const uint8_t pgm[] = "P5 1 2 100 \x00\x64";
    CHECK(decode(pgm, sizeof pgm - 1, &p));
    CHECK(p.width == 1 && p.height == 2 && p.channels == 1 && p.pixels[0] == 0 && p.pixels[1] == 255);
    picture_file_close(&p);
    bad_text("P6 2 2 255 123", "cut short");
    bad_text("P6", "header");
    bad_text("P6 2 2 65535 ", "header");
    bad_text("P6 -2 2 255 ", "header");
    bad_text("P6 99999999999 2 255 ", "header");
    bad_text("P6 0 2 255 ", "0 x 2");
    bad_text("P6 16385 2 255 ", "16385 x 2");
    bad_text("P6 16384 16384 255 ", "67108864 pixels in all");
    bad_text("GIF89a", "not a picture");
    bad_text("", "not a picture");
    CHECK(!picture_file_read("tests/unit/none.png", &p, error, sizeof error) && strlen(error) > 5);
}

#if defined(HAVE_STB_IMAGE) && defined(HAVE_STB_IMAGE_WRITE)
static void add_bytes(void *context, void *data, int count)
{
    memory_text_add(context, data, (size_t)count);
}

/* 16 x 24, a quarter each red, green, blue, white, from the top left on. */
static void quarters(uint8_t *rgb)
{
    static const uint8_t colors[4][3] = { { 255, 0, 0 }, { 0, 255, 0 }, { 0, 0, 255 }, { 255, 255, 255 } };
    for (int i = 0; i < 16 * 24; i++) {
        memcpy(rgb + i * 3, colors[(i / 16 >= 12) * 2 + (i % 16 >= 8)], 3);
    }
}

/* quarters() as JPEG, by Pillow. */
static const uint8_t quarters_jpeg[] = {
    255, 216, 255, 224, 0, 16, 74, 70, 73, 70, 0, 1, 1, 0, 0, 1, 0, 1, 0, 0, 255, 219, 0, 67, 0, 13, 9, 10, 11, 10, 8,
    13, 11, 10, 11, 14, 14, 13, 15, 19, 32, 21, 19, 18, 18, 19, 39, 28, 30, 23, 32, 46, 41, 49, 48, 46, 41, 45, 44, 51,
    58, 74, 62, 51, 54, 70, 55, 44, 45, 64, 87, 65, 70, 76, 78, 82, 83, 82, 50, 62, 90, 97, 90, 80, 96, 74, 81, 82, 79,
    255, 219, 0, 67, 1, 14, 14, 14, 19, 17, 19, 38, 21, 21, 38, 79, 53, 45, 53, 79, 79, 79, 79, 79, 79, 79, 79, 79, 79,
    79, 79, 79, 79, 79, 79, 79, 79, 79, 79, 79, 79, 79, 79, 79, 79, 79, 79, 79, 79, 79, 79, 79, 79, 79, 79, 79, 79, 79,
    79, 79, 79, 79, 79, 79, 79, 79, 79, 79, 79, 255, 192, 0, 17, 8, 0, 24, 0, 16, 3, 1, 17, 0, 2, 17, 1, 3, 17, 1, 255,
    196, 0, 22, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 7, 8, 255, 196, 0, 27, 16, 1, 0, 1, 5, 1, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 225, 21, 22, 99, 100, 162, 163, 255, 196, 0, 24, 1, 0, 3, 1, 1, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 5, 6, 7, 4, 8, 255, 196, 0, 28, 17, 1, 0, 0, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 21, 22, 98,
    99, 161, 162, 225, 226, 255, 218, 0, 12, 3, 1, 0, 2, 17, 3, 17, 0, 63, 0, 62, 12, 164, 151, 4, 57, 228, 14, 163,
    139, 168, 82, 37, 59, 218, 250, 86, 230, 107, 91, 113, 92, 182, 119, 60, 164, 159, 9, 175, 29, 33, 64, 238, 99,
    168, 162, 194, 38, 209, 105, 179, 99, 255, 217,
};

/* The color at a corner: 'r', 'g', 'b' or 'w'. */
static char corner(const picture_file *p, bool bottom, bool right)
{
    const uint8_t *at = p->pixels + ((size_t)(bottom ? p->height - 2 : 1) * p->width + (right ? p->width - 2 : 1)) * 3;
    return at[0] > 128 ? at[1] > 128 ? 'w' : 'r' : at[1] > 128 ? 'g' : 'b';
}

/* The file with an Exif segment; big: in the other order of bytes. */
static memory_text with_exif(const memory_text *jpeg, uint32_t orientation, bool big)
{
    uint8_t exif[36] = { 0xFF, 0xE1, 0, 34, 'E', 'x', 'i', 'f', 0, 0 };
    static const uint8_t little[] = { 'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0 };
    static const uint8_t large[] = { 'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1 };
    memory_text out = { 0 };
    memcpy(exif + 10, big ? large : little, sizeof large);
    exif[28 + big] = (uint8_t)orientation;
    memory_text_add(&out, jpeg->data, 2);
    memory_text_add(&out, (const char *)exif, sizeof exif);
    memory_text_add(&out, jpeg->data + 2, jpeg->bytes - 2);
    return out;
}

/* Corners of what is shown: top left, top right, bottom left, bottom right. Exif 2.3, table of Orientation. */
static const char shown[9][5] = { "", "rgbw", "grwb", "wbgr", "bwrg", "rbgw", "brwg", "wgbr", "gwrb" };

static void orientations(void)
{
    memory_text jpeg = { 0 };
    memory_text_add(&jpeg, (const char *)quarters_jpeg, sizeof quarters_jpeg);
    for (uint32_t i = 1; i <= 8; i++) {
        for (uint32_t big = 0; big < 2; big++) {
            memory_text file = with_exif(&jpeg, i, big != 0);
            picture_file p;
            CHECK(decode(file.data, file.bytes, &p));
            CHECK_INT(p.width, i >= 5 ? 24 : 16);
            CHECK_INT(p.height, i >= 5 ? 16 : 24);
            char got[5] = { corner(&p, false, false), corner(&p, false, true), corner(&p, true, false),
                            corner(&p, true, true), 0 };
            CHECK_TEXT(got, shown[i]);
            picture_file_close(&p);
            free(file.data);
        }
    }
    for (uint32_t i = 0; i < 300; i++) { /* 0 and 9 are none; then bytes of the segment that are damaged */
        memory_text file = with_exif(&jpeg, i == 0 ? 0 : i == 1 ? 9 : 6, false);
        picture_file p;
        file.data[4 + i % 34] = (char)(i < 2 ? file.data[4 + i % 34] : file.data[4 + i % 34] ^ (1 << i % 8));
        if (decode(file.data, file.bytes, &p)) {
            CHECK(i >= 2 || p.width == 16);
        }
        picture_file_close(&p);
        free(file.data);
    }
    free(jpeg.data);
}

/* Every prefix, and a changed byte at every place: an error, or a picture. */
static void damaged(const memory_text *file)
{
    picture_file p;
    for (size_t i = 0; i < file->bytes; i += 1 + i / 64) {
        char *copy = memory_copy_text(file->data, file->bytes);
        decode(copy, i, &p);
        picture_file_close(&p);
        copy[i] = (char)(copy[i] ^ 0x55);
        decode(copy, file->bytes, &p);
        picture_file_close(&p);
        free(copy);
    }
}

/* A chunk of a PNG file; stb_image does not read the sum at its end. */
static void add_chunk(memory_text *png, const char *type, const void *data, uint32_t count)
{
    char head[8] = { 0, 0, (char)(count >> 8), (char)count, type[0], type[1], type[2], type[3] };
    memory_text_add(png, head, 8);
    memory_text_add(png, data, count);
    memory_text_add(png, "\0\0\0", 4);
}

/* Two pixels, gray (kind 0) or RGB (kind 2), with a chunk before them: zlib's stored block. */
static memory_text two_pixels(uint8_t kind, const char *type, const void *data, uint32_t count)
{
    memory_text png = { 0 };
    uint8_t header[13] = { 0, 0, 0, 2, 0, 0, 0, 1, 8, kind }, bytes = kind ? 7 : 3;
    uint8_t stored[18] = { 0x78, 1, 1, bytes, 0, (uint8_t)~bytes, 0xFF, 0, 9, 9, 9, 50, 60, 70 };
    stored[9] = kind ? 9 : 50;
    memory_text_add(&png, "\x89PNG\r\n\x1a\n", 8);
    add_chunk(&png, "IHDR", header, 13);
    add_chunk(&png, type, data, count);
    add_chunk(&png, "IDAT", stored, 7u + bytes + 4u);
    add_chunk(&png, "IEND", "", 0);
    return png;
}

/* The PNG file with a chunk eXIf: after its header, or before its end. */
static memory_text with_exif_chunk(const memory_text *png, const uint8_t *tiff, uint32_t count, bool late)
{
    memory_text out = { 0 };
    size_t at = late ? png->bytes - 12 : 33;
    memory_text_add(&out, png->data, at);
    add_chunk(&out, "eXIf", tiff, count);
    memory_text_add(&out, png->data + at, png->bytes - at);
    return out;
}

static void png_orientations(void)
{
    uint8_t rgb[16 * 24 * 3];
    uint8_t tiff[] = { 'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0 };
    memory_text png = { 0 };
    picture_file p;
    quarters(rgb);
    CHECK(stbi_write_png_to_func(add_bytes, &png, 16, 24, 3, rgb, 48) != 0);
    for (uint32_t i = 0; i <= 9; i++) {
        tiff[19] = (uint8_t)i;
        memory_text file = with_exif_chunk(&png, tiff, sizeof tiff, i % 2 == 0);
        CHECK(decode(file.data, file.bytes, &p) && p.width == (i >= 5 && i <= 8 ? 24 : 16));
        char got[5] = { corner(&p, false, false), corner(&p, false, true), corner(&p, true, false),
                        corner(&p, true, true), 0 };
        CHECK_TEXT(got, shown[i >= 1 && i <= 8 ? i : 1]);
        picture_file_close(&p);
        damaged(&file);
        free(file.data);
    }
    for (uint32_t i = 0; i < sizeof tiff; i++) { /* a directory that is cut short says nothing */
        memory_text file = with_exif_chunk(&png, tiff, i, false);
        CHECK(decode(file.data, file.bytes, &p) && p.width == 16);
        picture_file_close(&p);
        free(file.data);
    }
    free(png.data);
}

/* A color that a PNG file calls transparent is composed over white as other alpha is: it has four channels. Messages
   have no bytes of the file. */
static void chunks(void)
{
    picture_file p;
    memory_text rgb = two_pixels(2, "tRNS", "\0\x09\0\x09\0\x09", 6), gray = two_pixels(0, "tRNS", "\0\x09", 2);
    memory_text other = two_pixels(2, "tRNS", "\0\x01\0\x02\0\x03", 6), odd = two_pixels(2, "A\nB\x1B", "", 0);
    memory_text zero = two_pixels(2, "\0\0\0\0", "", 0);
    CHECK(decode(rgb.data, rgb.bytes, &p) && p.channels == 4);
    CHECK(memcmp(p.pixels, "\x09\x09\x09\x00\x32\x3C\x46\xFF", 8) == 0);
    picture_file_close(&p);
    CHECK(decode(gray.data, gray.bytes, &p) && p.channels == 4);
    CHECK(memcmp(p.pixels, "\x09\x09\x09\x00\x32\x32\x32\xFF", 8) == 0);
    picture_file_close(&p);
    CHECK(decode(other.data, other.bytes, &p) && p.pixels[p.channels - 1] == 0xFF);
    picture_file_close(&p);
    bad(odd.data, odd.bytes, "unknown PNG chunk type");
    CHECK(!strchr(error, '\n') && !strchr(error, 0x1B));
    bad(zero.data, zero.bytes, "unknown PNG chunk type");
    free(rgb.data);
    free(gray.data);
    free(other.data);
    free(odd.data);
    free(zero.data);
}

/* A Huffman table with more symbols than there are bytes, for which stb_image has no room: before the frame and after
   it, after pixels, behind bytes of padding, as the second of a segment, and where the file ends in it. */
static void tables(void)
{
    uint8_t table[4 + 2 * 17 + 1] = { 0xFF, 0xC4, 0, 0, 0x11, 1 };
    memset(table + 22 + 1, 255, 16);
    table[22] = 0x12;
    table[3] = 2 + 17 + 1 + 17;
    for (size_t at = 2, more = 0; at < sizeof quarters_jpeg; at = more) {
        bool segment = quarters_jpeg[at] == 0xFF && quarters_jpeg[at + 1] >= 0xC0 && quarters_jpeg[at + 1] != 0xD9;
        for (uint32_t way = 0; segment && way < 3; way++) {
            memory_text file = { 0 };
            memory_text_add(&file, (const char *)quarters_jpeg, at);
            memory_text_add(&file, "\xFF\xFF\xFF", way == 1 ? 3 : 0);
            memory_text_add(&file, (const char *)table, sizeof table - (way == 2 ? 1 : 0));
            memory_text_add(&file, (const char *)quarters_jpeg + at, way == 2 ? 0 : sizeof quarters_jpeg - at);
            bad(file.data, file.bytes, "more than 256 symbols");
            free(file.data);
        }
        more = segment ? at + 2 + load(quarters_jpeg + at + 2, 2, true) : at + 1;
    }
}

static void coded(void)
{
    uint8_t rgb[16 * 24 * 3];
    memory_text png = { 0 }, jpeg = { 0 }, gray = { 0 };
    picture_file p;
    quarters(rgb);
    CHECK(stbi_write_png_to_func(add_bytes, &png, 16, 24, 3, rgb, 48) != 0);
    memory_text_add(&jpeg, (const char *)quarters_jpeg, sizeof quarters_jpeg);
    CHECK(stbi_write_png_to_func(add_bytes, &gray, 8, 4, 2, rgb, 16) != 0);
    CHECK(decode(png.data, png.bytes, &p));
    CHECK(p.width == 16 && p.height == 24 && p.channels == 3 && memcmp(p.pixels, rgb, sizeof rgb) == 0);
    picture_file_close(&p);
    CHECK(decode(gray.data, gray.bytes, &p)); /* gray and alpha: four channels */
    CHECK(p.channels == 4 && p.pixels[0] == p.pixels[1] && p.pixels[3] == rgb[1]);
    picture_file_close(&p);
    damaged(&png);
    damaged(&jpeg);
    memcpy(png.data + 16, "\x00\x00\xFF\xFF\x00\x00\xFF\xFF", 8); /* 65535 x 65535: refused before it is decoded */
    bad(png.data, png.bytes, "larger than 16384");
    memcpy(png.data + 16, "\x00\x00\x40\x00\x00\x00\x40\x00", 8);
    bad(png.data, png.bytes, "67108864 pixels in all");
    free(png.data);
    free(jpeg.data);
    free(gray.data);
}
#endif

int main(void)
{
    pnm();
#if defined(HAVE_STB_IMAGE) && defined(HAVE_STB_IMAGE_WRITE)
    orientations();
    png_orientations();
    chunks();
    tables();
    coded();
#else
    printf("no PNG and JPEG: there is no stb_image\n");
#endif
    return check_done();
}

/* pixels.h: pixels of an application's format become bytes of RGB.
   takes: a line of pixels.
   gives: exl2__pixels_format, exl2__pixels_bytes, exl2__pixels_line. */
#ifndef EXL2__PIXELS_H
#define EXL2__PIXELS_H

#include "../../0_base/bytes.h"

#ifndef EXL2_NO_VISION

/* Bytes of a pixel in the order of memory. A: composed over white; X: ignored. The numbers are those of exl2.h. */
typedef enum exl2__pixels_format {
    EXL2__PIXELS_RGB8, EXL2__PIXELS_RGBA8, EXL2__PIXELS_BGRA8, EXL2__PIXELS_RGBX8, EXL2__PIXELS_BGRX8,
    EXL2__PIXELS_GRAY8
} exl2__pixels_format;

static inline uint32_t exl2__pixels_bytes(exl2__pixels_format format)
{
    return format == EXL2__PIXELS_GRAY8 ? 1 : format == EXL2__PIXELS_RGB8 ? 3 : 4;
}

/* Four pixels of four bytes, whose fourth byte is not read, become three words; a game calls it within a frame. */
static inline void exl2__pixels_four(bool blue_first, const uint8_t *from, uint8_t *rgb)
{
    uint32_t p[4];
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t x = exl2__load32(from + 4 * i);
        p[i] = blue_first ? (x >> 16 & 0xFF) | (x & 0xFF00) | (x & 0xFF) << 16 : x & 0xFFFFFF;
    }
    exl2__store32(rgb, p[0] | p[1] << 24);
    exl2__store32(rgb + 4, p[1] >> 8 | p[2] << 16);
    exl2__store32(rgb + 8, p[2] >> 16 | p[3] << 8);
}

/* rgb [width, 3] */
static inline void exl2__pixels_line(exl2__pixels_format format, const uint8_t *from, uint32_t width, uint8_t *rgb)
{
    bool blue_first = format == EXL2__PIXELS_BGRA8 || format == EXL2__PIXELS_BGRX8;
    bool alpha = format == EXL2__PIXELS_RGBA8 || format == EXL2__PIXELS_BGRA8;
    uint32_t bytes = exl2__pixels_bytes(format);
    if (format == EXL2__PIXELS_RGB8) {
        memcpy(rgb, from, (size_t)width * 3);
        return;
    }
    uint32_t x = 0;
    for (; bytes == 4 && !alpha && x + 4 <= width; x += 4, from += 16, rgb += 12) {
        exl2__pixels_four(blue_first, from, rgb);
    }
    for (; x < width; x++, from += bytes, rgb += 3) {
        for (uint32_t channel = 0; channel < 3; channel++) {
            uint32_t value = from[bytes == 1 ? 0 : blue_first ? 2 - channel : channel];
            rgb[channel] = (uint8_t)(alpha ? (value * from[3] + 255 * (255u - from[3]) + 127) / 255 : value);
        }
    }
}

#endif
#endif

/* vision_files.h: pictures, as PNG, and towers of the shared fixtures (fixtures/vision), for tests of vision. */
#ifndef VISION_FILES_H
#define VISION_FILES_H

#include "private/json.h"
#include "private/pixels.h"
#include "private/platform.h"
#include "check.h"

#include <math.h>

#if defined(__has_include)
#if __has_include(<stb/stb_image.h>)
#define VISION_FILES_READ 1
#endif
#endif

#ifdef VISION_FILES_READ
#define STB_READS
#define STBI_ONLY_PNG
#include "../demo/common/stb.h"
#endif

static const char *const vision_folders[] = { "smolvlm", "qwen2.5-vl", "qwen2-vl", "gemma3", "mistral3", "pixtral",
                                              "qwen3-vl", "llava-clip" };

typedef struct vision_picture {
    uint32_t width, height;
    uint8_t *rgb;
} vision_picture;

/* A path below the fixtures. */
static inline const char *vision_path(const char *folder, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "fixtures/vision/%s/%s", folder, name);
    return check_shared(path);
}

/* A PNG file of 1, 3 or 4 channels, through the engine's formats. Skips the test if there is no stb_image. */
static inline vision_picture vision_read(const char *path)
{
    vision_picture p = { 0, 0, NULL };
#ifdef VISION_FILES_READ
    int width = 0, height = 0, channels = 0;
    unsigned char *pixels = stbi_load(path, &width, &height, &channels, 0);
    exl2__pixels_format format = channels == 1 ? EXL2__PIXELS_GRAY8 : channels == 4 ? EXL2__PIXELS_RGBA8
                                                                                    : EXL2__PIXELS_RGB8;
    if (!CHECK(pixels && channels != 2)) {
        printf("  %s\n", path);
        exit(1);
    }
    p.width = (uint32_t)width;
    p.height = (uint32_t)height;
    p.rgb = (uint8_t *)malloc((size_t)width * (size_t)height * 3);
    for (uint32_t y = 0; y < p.height; y++) {
        exl2__pixels_line(format, pixels + (size_t)y * p.width * exl2__pixels_bytes(format), p.width,
                          p.rgb + (size_t)y * p.width * 3);
    }
    stbi_image_free(pixels);
#else
    (void)path;
    check_skip("no stb_image, which reads the pictures (Debian: libstb-dev)");
#endif
    return p;
}

/* RGB of frames as tests/golden/video/make.py draws them; to be freed. */
static inline uint8_t *vision_frames(uint32_t frames, uint32_t width, uint32_t height)
{
    uint8_t *rgb = (uint8_t *)malloc((size_t)frames * width * height * 3), *to = rgb;
    for (uint32_t f = 0; f < frames; f++) {
        for (uint32_t y = 0; y < height; y++) {
            for (uint32_t x = 0; x < width; x++) {
                for (uint32_t c = 0; c < 3; c++) {
                    *to++ = (uint8_t)(x * (2 + c) + y * (3 + f) + (x * y >> 5) * (c + 1) + 40 * f);
                }
            }
        }
    }
    return rgb;
}

/* A golden; the text must be freed after exl2__json_close. */
static inline char *vision_golden_at(exl2__ctx *c, const char *path, exl2__json *out)
{
    size_t bytes;
    char *text = check_read(path, &bytes);
    if (!CHECK_INT(exl2__json_open(c, "golden.json", text, bytes, out), EXL2_OK)) {
        exit(1);
    }
    return text;
}

/* golden.json of a folder. */
static inline char *vision_golden(exl2__ctx *c, const char *folder, exl2__json *out)
{
    return vision_golden_at(c, vision_path(folder, "golden.json"), out);
}

/* Numbers of a list, at most `most`. */
static inline uint32_t vision_numbers(const exl2__json *j, uint32_t list, double *out, uint32_t most)
{
    uint32_t n = 0;
    for (uint32_t at = list ? exl2__json_first(j, list) : 0; at && n < most; at = exl2__json_next(j, list, at)) {
        CHECK(exl2__json_f64(j, at, &out[n++]));
    }
    return n;
}

#define VISION_ROWS_MAX 256

/* The largest difference of the rows of a prompt's pictures from its golden: of elements, and of sums per root of the
   width. relative: in parts of the row's root mean square. rows [count, levels, hidden], at most VISION_ROWS_MAX */
static inline double vision_differ(const exl2__json *j, uint32_t prompt, const float *rows, uint32_t count,
                                   uint32_t levels, uint32_t hidden, bool relative)
{
    double first[256], last[256], sum[VISION_ROWS_MAX], square[VISION_ROWS_MAX], worst = 0;
    double root = sqrt((double)hidden);
    CHECK_INT(vision_numbers(j, exl2__json_get(j, prompt, "embeddings_first"), first, 256), hidden);
    CHECK_INT(vision_numbers(j, exl2__json_get(j, prompt, "embeddings_last"), last, 256), hidden);
    CHECK_INT(vision_numbers(j, exl2__json_get(j, prompt, "embeddings_sum"), sum, VISION_ROWS_MAX), count);
    CHECK_INT(vision_numbers(j, exl2__json_get(j, prompt, "embeddings_square"), square, VISION_ROWS_MAX), count);
    uint32_t deep = exl2__json_get(j, prompt, "deepstack_sum");
    CHECK_INT(deep ? j->tokens[deep].count : 0, levels - 1);
    uint32_t list = deep ? exl2__json_first(j, deep) : 0;
    for (uint32_t level = 0; level < levels; level++) {
        if (level) {
            vision_numbers(j, list, sum, VISION_ROWS_MAX);
            list = exl2__json_next(j, deep, list);
        }
        for (uint32_t r = 0; r < count; r++) {
            const float *row = rows + ((size_t)r * levels + level) * hidden;
            double total = 0, squares = 0;
            for (uint32_t i = 0; i < hidden; i++) {
                total += (double)row[i];
                squares += (double)row[i] * (double)row[i];
            }
            double unit = relative ? sqrt(squares / hidden) : 1;
            worst = fmax(worst, fabs(total - sum[r]) / root / unit);
            worst = fmax(worst, level ? 0 : fabs(squares - square[r]) / (2 * sqrt(square[r]) + 1) / unit);
            for (uint32_t i = 0; level == 0 && i < hidden; i++) {
                worst = fmax(worst, r == 0 ? fabs(first[i] - (double)row[i]) / unit : 0);
                worst = fmax(worst, r + 1 == count ? fabs(last[i] - (double)row[i]) / unit : 0);
            }
        }
    }
    return worst;
}

#endif

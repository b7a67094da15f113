/* vision_size.h: what becomes of a picture of some size: how it is resized and cut, and how many rows it has.
   takes: an exl2__vision_config, an application's limits.
   gives: exl2__vision_sizes, exl2__vision_largest.

   The rules are those of the families' image processors in transformers, and so are the roundings: quotients of
   integers are doubles there. Where a limit is exceeded, the picture is made smaller by the same rule with a smaller
   number. */
#ifndef EXL2__VISION_SIZE_H
#define EXL2__VISION_SIZE_H

#include "../0_base/half.h"
#include "vision_config.h"

#include <math.h>

#ifndef EXL2_NO_VISION

/* Rows of a tile of some size in pixels. */
static inline uint64_t exl2__vision_tile_rows(const exl2__vision_config *v, uint32_t width, uint32_t height)
{
    uint64_t cell = (uint64_t)v->patch * v->merge;
    return width / cell * (height / cell) + (v->class_row && v->keeps_class);
}

/* To the nearest integer, ties to even. */
static inline uint64_t exl2__vision_round(double x)
{
    double low = floor(x), rest = x - low;
    bool up = rest > 0.5 || (rest >= 0.5 && fmod(low, 2) != 0);
    return (uint64_t)low + up;
}

static inline void exl2__vision_size_add(exl2__vision_size *s, uint64_t width, uint64_t height)
{
    s->resize[s->resizes].width = (uint32_t)width;
    s->resize[s->resizes].height = (uint32_t)height;
    s->resizes++;
}

/* PIXELS with a minimum and a maximum. frames: 1 for a picture; those that the numbers are of. */
static inline void exl2__vision_size_pixels(const exl2__vision_config *v, double least, double most, uint32_t frames,
                                            double w, double h, uint64_t *width, uint64_t *height)
{
    double f = (double)(v->patch * v->merge), n = frames, all = frames > 1 ? 2 * (double)exl2__vision_round(n / 2) : 1;
    least = least < most ? least : most;
    if (frames > 1 && (h < f || w < f)) { /* videos are made larger first, in whole pixels */
        double by = f / h > f / w ? f / h : f / w;
        w = floor(w * by);
        h = floor(h * by);
    }
    double W = (double)exl2__vision_round(w / f) * f, H = (double)exl2__vision_round(h / f) * f;
    if (all * H * W > most) {
        double b = sqrt(n * h * w / most);
        W = floor(w / b / f) * f;
        H = floor(h / b / f) * f;
        W = W < f ? f : W;
        H = H < f ? f : H;
    } else if (all * H * W < least) {
        double b = sqrt(least / (n * h * w));
        W = ceil(w * b / f) * f;
        H = ceil(h * b / f) * f;
    }
    *width = (uint64_t)W;
    *height = (uint64_t)H;
}

/* frames: of a video, or 0. */
EXL2__PRIVATE exl2_result exl2__vision_size_by_pixels(exl2__ctx *c, const exl2__vision_config *v, uint32_t max_rows,
                                                      uint32_t w, uint32_t h, uint32_t frames, exl2__vision_size *out)
{
    uint64_t cell = (uint64_t)v->patch * v->merge, W, H;
    uint64_t pairs = frames ? exl2__div_up(frames, 2) : 1, most = frames ? v->video_max : v->pixels_max;
    uint32_t longer = exl2__max32(w, h), shorter = exl2__min32(w, h), counted = v->row->video_in_all ? frames : 0;
    counted = exl2__max32(counted, 1);
    if (longer > 200ull * shorter) {
        return exl2__fail(c, EXL2_ERR_ARG, "a picture of %u x %u pixels is more than 200 times as long as wide, which "
                          "%s does not accept", w, h, v->family);
    }
    double least = (double)(frames ? v->video_min : v->pixels_min);
    uint64_t step = cell * cell * (counted > 1 ? 2 * pairs : 1); /* pixels for one row of each pair */
    most = max_rows ? exl2__min64(most, max_rows / pairs * step) : most;
    exl2__vision_size_pixels(v, least, (double)most, counted, w, h, &W, &H);
    while (max_rows && W / cell * (H / cell) * pairs > max_rows && most > step) { /* narrow pictures keep one line */
        most -= step;
        exl2__vision_size_pixels(v, least, (double)most, counted, w, h, &W, &H);
    }
    exl2__vision_size_add(out, W, H);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__vision_size_by_edge(exl2__ctx *c, const exl2__vision_config *v, uint32_t max_rows,
                                                    uint32_t w, uint32_t h, exl2__vision_size *out)
{
    uint64_t cell = (uint64_t)v->patch * v->merge, W = 0, H = 0;
    for (uint32_t edge = v->edge; edge > 0; edge--) {
        double k = (double)exl2__max32(w, h) / edge;
        W = k > 1 ? (uint64_t)floor(w / k) : w;
        H = k > 1 ? (uint64_t)floor(h / k) : h;
        if (W == 0 || H == 0) {
            return exl2__fail(c, EXL2_ERR_ARG, "a picture of %u x %u pixels is too narrow: made smaller to %u pixels, "
                              "its shorter side has none", w, h, edge);
        }
        W = exl2__div_up(W, cell) * cell;
        H = exl2__div_up(H, cell) * cell;
        if (!max_rows || W / cell * (H / cell) <= max_rows) {
            break;
        }
    }
    exl2__vision_size_add(out, W, H);
    return EXL2_OK;
}

/* The longer side to `edge`, the other one even. */
static inline void exl2__vision_size_scale(uint32_t edge, uint32_t w, uint32_t h, uint64_t *width, uint64_t *height)
{
    double ratio = (double)w / h;
    if (w >= h) {
        *width = edge;
        *height = (uint64_t)(edge / ratio);
        *height += *height % 2;
    } else {
        *height = edge;
        *width = (uint64_t)(edge * ratio);
        *width += *width % 2;
    }
    *width = exl2__max64(*width, 1);
    *height = exl2__max64(*height, 1);
}

/* The same up to whole tiles. */
static inline void exl2__vision_size_cover(uint32_t tile, uint64_t w, uint64_t h, uint64_t *width, uint64_t *height)
{
    double ratio = (double)w / (double)h;
    if (w >= h) {
        *width = exl2__div_up(w, tile) * tile;
        *height = exl2__div_up((uint64_t)((double)*width / ratio), tile) * tile;
    } else {
        *height = exl2__div_up(h, tile) * tile;
        *width = exl2__div_up((uint64_t)((double)*height * ratio), tile) * tile;
    }
    *width = exl2__max64(*width, tile);
    *height = exl2__max64(*height, tile);
}

EXL2__PRIVATE void exl2__vision_size_by_tiles(const exl2__vision_config *v, uint32_t most, uint32_t w, uint32_t h,
                                              exl2__vision_size *out)
{
    uint32_t tile = v->high;
    uint64_t W, H, columns = 1, lines = 1;
    uint32_t edge = v->edge;
    for (;; edge = (edge - 1) / tile * tile) { /* k whole tiles, with k smaller and smaller */
        exl2__vision_size_scale(edge, w, h, &W, &H);
        if (!v->splits) {
            break;
        }
        uint64_t wide, high;
        exl2__vision_size_cover(tile, W, H, &wide, &high);
        columns = wide / tile;
        lines = high / tile;
        if (columns * lines == 1 || columns * lines + 1 <= most || edge <= tile) {
            break;
        }
    }
    exl2__vision_size_add(out, W, H);
    if (v->splits) {
        exl2__vision_size_add(out, columns * tile, lines * tile);
    }
    if (!v->splits || columns * lines > 1) {
        exl2__vision_size_add(out, tile, tile);
    }
    out->tile_columns = columns * lines > 1 ? (uint32_t)columns : 0;
    out->tile_rows = columns * lines > 1 ? (uint32_t)lines : 0;
}

/* The most tiles of a picture. */
static inline uint32_t exl2__vision_size_tiles(const exl2__vision_config *v, const exl2__vision_limits *limits)
{
    uint64_t rows = exl2__vision_tile_rows(v, v->wide, v->high);
    uint64_t most = limits->max_tiles ? limits->max_tiles : UINT32_MAX;
    most = limits->max_rows ? exl2__min64(most, limits->max_rows / rows) : most;
    return (uint32_t)exl2__max64(most, 1);
}

/* Fails for a video that cannot be; frames 0: a picture. */
EXL2__PRIVATE exl2_result exl2__vision_size_frames(exl2__ctx *c, const exl2__vision_config *v, uint32_t max_rows,
                                                   uint32_t frames, double fps)
{
    uint32_t least = v->row->video_in_all ? 2 : 1, most = max_rows ? exl2__min32(max_rows, 1u << 16) : 1u << 16;
    const double none = 0;
    if (frames == 0 && memcmp(&fps, &none, sizeof fps) == 0) {
        return EXL2_OK;
    }
    if (frames == 0) {
        return exl2__fail(c, EXL2_ERR_ARG, "fps is set, but frames is 0: only a video has fps");
    }
    if (!v->marks.video) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s reads pictures, but no videos: frames must be 0", v->family);
    }
    if (!exl2__float_is_finite((float)fps) || fps < EXL2__VISION_FPS_MIN || fps > EXL2__VISION_FPS_MAX) {
        return exl2__fail(c, EXL2_ERR_ARG, "fps, the frames of a video in a second, must be from 0.001 to 1000");
    }
    if ((double)frames * v->ticks / fps > EXL2__VISION_TIME_MAX) {
        return exl2__fail(c, EXL2_ERR_ARG, "a video of %u frames lasts too long for %s at its fps", frames, v->family);
    }
    if (frames < least) {
        return exl2__fail(c, EXL2_ERR_ARG, "a video of %s has at least %u frames, not %u", v->family, least, frames);
    }
    if (frames > 2 * most) {
        return exl2__fail(c, EXL2_ERR_ARG, "a video of %u frames has at least %u rows, but it can have %u", frames,
                          (uint32_t)exl2__div_up(frames, 2), most);
    }
    return EXL2_OK;
}

/* frames: of a video, of which fps are a second; both 0: a picture. ARG for a size that the family does not accept. */
static inline exl2_result exl2__vision_sizes(exl2__ctx *c, const exl2__vision_config *v,
                                             const exl2__vision_limits *limits, uint32_t width, uint32_t height,
                                             uint32_t frames, double fps, exl2__vision_size *out)
{
    exl2__vision_size s = { 0 };
    if (width == 0 || height == 0 || width > EXL2__VISION_SIDE_MAX || height > EXL2__VISION_SIDE_MAX) {
        return exl2__fail(c, EXL2_ERR_ARG, "a picture of %u x %u pixels: each side must have 1 to %u", width, height,
                          EXL2__VISION_SIDE_MAX);
    }
    EXL2__TRY(exl2__vision_size_frames(c, v, limits->max_rows, frames, fps));
    switch (v->row->rule) {
    case EXL2__VISION_RULE_FIXED:
        exl2__vision_size_add(&s, v->wide, v->high);
        break;
    case EXL2__VISION_RULE_CROP:
        if (height <= width) {
            exl2__vision_size_add(&s, (uint64_t)v->edge * width / height, v->edge);
        } else {
            exl2__vision_size_add(&s, v->edge, (uint64_t)v->edge * height / width);
        }
        break;
    case EXL2__VISION_RULE_EDGE:
        EXL2__TRY(exl2__vision_size_by_edge(c, v, limits->max_rows, width, height, &s));
        break;
    case EXL2__VISION_RULE_PIXELS:
        EXL2__TRY(exl2__vision_size_by_pixels(c, v, limits->max_rows, width, height, frames, &s));
        break;
    case EXL2__VISION_RULE_TILES:
        exl2__vision_size_by_tiles(v, exl2__vision_size_tiles(v, limits), width, height, &s);
        break;
    }
    bool fixed = v->row->rule != EXL2__VISION_RULE_EDGE && v->row->rule != EXL2__VISION_RULE_PIXELS;
    s.width = fixed ? v->wide : s.resize[0].width;
    s.height = fixed ? v->high : s.resize[0].height;
    s.frames = frames;
    s.fps = fps;
    s.grid[0] = frames ? (uint32_t)exl2__div_up(frames, 2) : 1;
    s.tiles = s.tile_rows * s.tile_columns + s.grid[0];
    s.grid[1] = s.height / (v->patch * v->merge);
    s.grid[2] = s.width / (v->patch * v->merge);
    s.patches = s.height / v->patch * (s.width / v->patch);
    s.rows = s.tiles * (uint32_t)exl2__vision_tile_rows(v, s.width, s.height);
    s.seen_bytes = (frames ? frames : s.tiles) * exl2__vision_tile_bytes(&s);
    if (limits->max_rows && s.rows > limits->max_rows) {
        return exl2__fail(c, EXL2_ERR_ARG, "a %s of %u x %u pixels has %u rows, and max_rows is %u; %s cannot "
                          "make it smaller", frames ? "video" : "picture", width, height, s.rows, limits->max_rows,
                          v->family);
    }
    *out = s;
    return EXL2_OK;
}

/* The most that any picture can need, and a pair of frames of any video: patches of a tile, rows, tiles, bytes; width
   and height are those of the longest side. A video has at most as many rows, but may have twice the bytes. */
EXL2__PRIVATE void exl2__vision_largest(const exl2__vision_config *v, const exl2__vision_limits *limits,
                                        exl2__vision_size *out)
{
    exl2__vision_size s = { .tiles = 1 };
    uint64_t cell = (uint64_t)v->patch * v->merge, rows, longest;
    if (v->row->rule == EXL2__VISION_RULE_EDGE) {
        longest = exl2__div_up(v->edge, cell);
        rows = longest * longest;
    } else if (v->row->rule == EXL2__VISION_RULE_PIXELS) { /* at least one line of 200 times its height, rounded up */
        uint64_t pixels = exl2__max64(v->pixels_max, v->row->video_in_all ? v->video_max / 2 : v->video_max);
        longest = (uint64_t)sqrt(200.0 * (double)pixels) / cell + 2;
        rows = exl2__max64(pixels / (cell * cell), 2 * longest);
    } else {
        longest = exl2__max32(v->wide, v->high) / cell;
        rows = exl2__vision_tile_rows(v, v->wide, v->high);
    }
    if (limits->max_rows && v->row->rule != EXL2__VISION_RULE_TILES) {
        rows = exl2__min64(rows, limits->max_rows);
        longest = exl2__min64(longest, limits->max_rows);
    }
    if (v->row->rule == EXL2__VISION_RULE_TILES && v->splits) {
        uint64_t side = exl2__div_up(v->edge, v->wide);
        s.tiles = exl2__min32(exl2__vision_size_tiles(v, limits), (uint32_t)(side * side + 1));
    }
    s.width = s.height = (uint32_t)(longest * cell);
    s.rows = (uint32_t)rows * s.tiles;
    s.patches = (uint32_t)(rows * v->merge * v->merge);
    s.seen_bytes = s.tiles * rows * cell * cell * 3;
    if (v->row->rule == EXL2__VISION_RULE_FIXED) { /* its last pixels may belong to no patch */
        s.width = s.height = exl2__max32(v->wide, v->high);
        s.seen_bytes = (uint64_t)v->wide * v->high * 3;
    }
    s.grid[0] = 1;
    s.grid[1] = s.grid[2] = (uint32_t)longest;
    *out = s;
}

#endif
#endif

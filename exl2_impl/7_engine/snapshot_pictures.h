/* snapshot_pictures.h: pictures in the snapshot of a session.
   takes: a session's words; bytes of a snapshot, untrusted.
   gives: exl2__snapshot_pictures with exl2__snapshot_pictures_number, _word, _slot, _put, _read,
          _check, _take, _enter, _leave.

   The part of pictures, in bytes:

       4      number of pictures
       44     of each: its id (16), rows (4), grid (12), and of a video frames (4), fps (8), which else are 0
       ...    with EXL2_SAVE_IMAGES, of each: width and height of the source, max_rows, max_tiles (16), and then
              0 (4), or 1 (4) and its RGB bytes as the tower sees them, or 2 (4) and its rows as floats, if that is less

   A picture's word has its number in the place of its slot. Pixels and rows of a snapshot cannot be compared with the
   picture's id, so that they make a picture of their own, which exl2_image_make does not find. */
#ifndef EXL2__SNAPSHOT_PICTURES_H
#define EXL2__SNAPSHOT_PICTURES_H

#include "images.h"

#define EXL2__SNAPSHOT_PICTURE_BYTES 44u
#define EXL2__SNAPSHOT_IMAGE_BYTES 20u /* before pixels or rows */

typedef struct exl2__snapshot_pictures {
    uint32_t count;
    bool images;         /* with pixels or rows */
    uint64_t bytes;      /* of the part */
    const uint8_t *data; /* when reading: the part */
} exl2__snapshot_pictures;

#ifndef EXL2_NO_VISION

/* ---- save ---- */

/* The kind of what is saved of a picture: 1 pixels, 2 rows, 0 neither is there. */
EXL2__PRIVATE uint32_t exl2__snapshot_pictures_kind(const exl2__model *m, uint32_t slot, uint64_t *bytes)
{
    const exl2__image_data *d = &m->images.data[slot];
    const exl2__picture *p = &m->vectors.pictures.picture[slot];
    uint64_t rows = (uint64_t)p->rows * m->vectors.pictures.row_floats * sizeof(float);
    bool pixels = d->resized && d->seen.count && (!p->data || d->seen.count < rows);
    *bytes = pixels ? d->seen.count : p->data ? rows : 0;
    return pixels ? 1 : p->data ? 2 : 0;
}

/* Numbers the pictures of the words in the order in which they first occur. */
EXL2__PRIVATE void exl2__snapshot_pictures_number(exl2__model *m, const uint32_t *words, uint32_t count, bool images,
                                                  exl2__snapshot_pictures *out)
{
    *out = (exl2__snapshot_pictures){ .images = images };
    for (uint32_t i = 0; i < m->vectors.pictures.count; i++) {
        m->images.data[i].number = UINT32_MAX;
    }
    for (uint32_t i = 0; i < count && m->vectors.pictures.live > 0; i++) {
        uint32_t slot = exl2__pictures_of(words[i]);
        if (exl2__pictures_is(words[i]) && m->images.data[slot].number == UINT32_MAX) {
            uint64_t bytes;
            exl2__snapshot_pictures_kind(m, slot, &bytes);
            m->images.data[slot].number = out->count++;
            out->bytes += EXL2__SNAPSHOT_PICTURE_BYTES + (images ? EXL2__SNAPSHOT_IMAGE_BYTES + bytes : 0);
        }
    }
    out->bytes += out->count ? 4 : 0;
}

/* The word of a row, with the picture's number. */
static inline uint32_t exl2__snapshot_pictures_word(const exl2__model *m, uint32_t word)
{
    return exl2__pictures_word(m->images.data[exl2__pictures_of(word)].number, exl2__pictures_row(word));
}

static inline uint32_t exl2__snapshot_pictures_slot(const exl2__model *m, uint32_t number)
{
    uint32_t slot = 0;
    while (m->vectors.pictures.picture[slot].rows == 0 || m->images.data[slot].number != number) {
        slot++;
    }
    return slot;
}

/* Writes the part. Returns its end. */
EXL2__PRIVATE uint8_t *exl2__snapshot_pictures_put(uint8_t *at, const exl2__model *m, const exl2__snapshot_pictures *x)
{
    exl2__store32(at, x->count);
    at += 4;
    for (uint32_t i = 0; i < x->count; i++, at += EXL2__SNAPSHOT_PICTURE_BYTES) {
        const exl2__picture *p = &m->vectors.pictures.picture[exl2__snapshot_pictures_slot(m, i)];
        uint64_t fps;
        exl2__images_put_id(p->id, at);
        exl2__store32(at + 16, p->rows);
        for (uint32_t k = 0; k < 3; k++) {
            exl2__store32(at + 20 + 4 * k, p->grid[k]);
        }
        exl2__store32(at + 32, p->frames);
        memcpy(&fps, &p->fps, sizeof fps);
        exl2__store64(at + 36, fps);
    }
    for (uint32_t i = 0; x->images && i < x->count; i++) {
        uint32_t slot = exl2__snapshot_pictures_slot(m, i);
        const exl2__image_data *d = &m->images.data[slot];
        const exl2__picture *p = &m->vectors.pictures.picture[slot];
        uint64_t bytes;
        uint32_t kind = exl2__snapshot_pictures_kind(m, slot, &bytes);
        const uint32_t head[5] = { d->width, d->height, d->limits.max_rows, d->limits.max_tiles, kind };
        for (uint32_t k = 0; k < 5; k++, at += 4) {
            exl2__store32(at, head[k]);
        }
        if (kind == 1) {
            memcpy(at, m->images.pixels + d->seen.at, (size_t)bytes);
        }
        for (uint64_t k = 0; kind == 2 && k < bytes / 4; k++) {
            exl2__store32(at + 4 * k, exl2__float_bits(p->data[k]));
        }
        at += bytes;
    }
    return at;
}

/* ---- restore ---- */

/* One picture of a snapshot. */
typedef struct exl2__snapshot_picture {
    uint64_t id[2];
    uint32_t rows, grid[3], frames;
    double fps;
    uint32_t width, height, kind;
    exl2__vision_limits limits;
    exl2__vision_size size; /* of a picture with kind 1 or 2 */
    const uint8_t *data;
    uint64_t bytes;
} exl2__snapshot_picture;

EXL2__PRIVATE exl2_result exl2__snapshot_pictures_bad(exl2_engine *e, const char *what)
{
    return exl2__fail(&e->ctx, EXL2_ERR_FORMAT, "the snapshot is damaged: %s", what);
}

static inline void exl2__snapshot_pictures_at(const exl2__snapshot_pictures *x, uint32_t number,
                                              exl2__snapshot_picture *out)
{
    const uint8_t *at = x->data + 4 + (size_t)number * EXL2__SNAPSHOT_PICTURE_BYTES;
    uint64_t fps;
    *out = (exl2__snapshot_picture){ .id = { exl2__load64(at), exl2__load64(at + 8) }, .rows = exl2__load32(at + 16) };
    for (uint32_t k = 0; k < 3; k++) {
        out->grid[k] = exl2__load32(at + 20 + 4 * k);
    }
    out->frames = exl2__load32(at + 32);
    fps = exl2__load64(at + 36);
    memcpy(&out->fps, &fps, sizeof fps);
}

/* Reads a picture's pixels or rows at `at`, of which `left` bytes are left. */
EXL2__PRIVATE exl2_result exl2__snapshot_pictures_image(exl2_engine *e, const exl2__model *m, const uint8_t *at,
                                                        uint64_t left, exl2__snapshot_picture *p)
{
    if (left < EXL2__SNAPSHOT_IMAGE_BYTES) {
        return exl2__snapshot_pictures_bad(e, "it ends in a picture");
    }
    p->width = exl2__load32(at);
    p->height = exl2__load32(at + 4);
    p->limits = (exl2__vision_limits){ exl2__load32(at + 8), exl2__load32(at + 12) };
    p->kind = exl2__load32(at + 16);
    p->data = at + EXL2__SNAPSHOT_IMAGE_BYTES;
    if (p->kind == 0) {
        return EXL2_OK;
    }
    bool whole = p->kind <= 2 && p->width && p->height && p->width <= EXL2__VISION_SIDE_MAX &&
                 p->height <= EXL2__VISION_SIDE_MAX &&
                 exl2__vision_sizes(&e->ctx, &m->images.config, &p->limits, p->width, p->height, p->frames,
                                    p->fps, &p->size) >= 0;
    whole = whole && p->size.rows == p->rows && memcmp(p->size.grid, p->grid, sizeof p->grid) == 0;
    p->bytes = !whole         ? 0
               : p->kind == 1 ? p->size.seen_bytes
                              : (uint64_t)p->rows * m->vectors.pictures.row_floats * sizeof(float);
    if (!whole || p->bytes > left - EXL2__SNAPSHOT_IMAGE_BYTES) {
        return exl2__snapshot_pictures_bad(e, "a picture's size does not fit its rows");
    }
    for (uint64_t k = 0; p->kind == 2 && k < p->bytes; k += 4) {
        if (!exl2__float_is_finite(exl2__bits_float(exl2__load32(p->data + k)))) {
            return exl2__snapshot_pictures_bad(e, "a row of a picture is not finite");
        }
    }
    return EXL2_OK;
}

/* Checks the part at `at`, of which `left` bytes are left, and measures it. */
EXL2__PRIVATE exl2_result exl2__snapshot_pictures_read(exl2_engine *e, const exl2__model *m, const uint8_t *at,
                                                       uint64_t left, bool images, exl2__snapshot_pictures *out)
{
    *out = (exl2__snapshot_pictures){ .count = left < 4 ? 0 : exl2__load32(at), .images = images, .data = at };
    if (!m->images.on) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE,
                          "the snapshot has pictures, but %s was opened without its tower: set "
                          "vision.images of exl2_model_desc",
                          m->path);
    }
    if (out->count == 0 || out->count > (left - 4) / EXL2__SNAPSHOT_PICTURE_BYTES || out->count > EXL2__PICTURES_MAX) {
        return exl2__snapshot_pictures_bad(e, "it ends in the part of pictures");
    }
    out->bytes = 4 + (uint64_t)out->count * EXL2__SNAPSHOT_PICTURE_BYTES;
    for (uint32_t i = 0; i < out->count; i++) {
        exl2__snapshot_picture p;
        exl2__snapshot_pictures_at(out, i, &p);
        uint64_t tile = (uint64_t)p.grid[1] * p.grid[2];
        bool fits = p.rows > 0 && p.rows < EXL2__PICTURE_ROWS_MAX && p.grid[0] > 0 &&
                    p.grid[1] < EXL2__PICTURE_ROWS_MAX && p.grid[2] < EXL2__PICTURE_ROWS_MAX && tile > 0 &&
                    tile <= p.rows;
        fits = fits && (!m->images.config.mrope || tile * p.grid[0] == p.rows)
            && (p.frames ? exl2__div_up(p.frames, 2) : 1) == p.grid[0]
            && exl2__vision_size_frames(&e->ctx, &m->images.config, 0, p.frames, p.fps) >= 0;
        if (!fits) {
            return exl2__snapshot_pictures_bad(e, "a picture has no such rows");
        }
        if (images) {
            EXL2__TRY(exl2__snapshot_pictures_image(e, m, at + out->bytes, left - out->bytes, &p));
            out->bytes += EXL2__SNAPSHOT_IMAGE_BYTES + p.bytes;
        }
    }
    return EXL2_OK;
}

/* Checks the words of rows: each picture is whole, in order, and numbers begin in order. words: [count] as bytes. */
EXL2__PRIVATE exl2_result exl2__snapshot_pictures_check(exl2_engine *e, const exl2__snapshot_pictures *x,
                                                        const uint8_t *words, uint32_t count)
{
    uint32_t next = 0, number = 0, row = 0, rows = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t word = exl2__load32(words + 4 * (size_t)i);
        if (!exl2__pictures_is(word)) {
            continue;
        }
        if (row == rows) { /* a picture begins */
            exl2__snapshot_picture p;
            number = exl2__pictures_of(word);
            if (number >= x->count || number > next) {
                return exl2__snapshot_pictures_bad(e, "a row is of no picture");
            }
            exl2__snapshot_pictures_at(x, number, &p);
            next += number == next;
            rows = p.rows;
            row = 0;
        }
        if (exl2__pictures_of(word) != number || exl2__pictures_row(word) != row++) {
            return exl2__snapshot_pictures_bad(e, "a picture is not whole");
        }
    }
    return row == rows && next == x->count ? EXL2_OK : exl2__snapshot_pictures_bad(e, "a picture is not whole");
}

/* Puts pixels or rows of a snapshot into a new picture. Without room the picture is missing. */
EXL2__PRIVATE void exl2__snapshot_pictures_fill(exl2_engine *e, exl2__model *m, uint32_t slot,
                                                const exl2__snapshot_picture *p)
{
    exl2__images *g = &m->images;
    exl2__image_data *d = &g->data[slot];
    uint64_t room = p->kind == 1 ? exl2__images_room_for_pixels(e, m, p->bytes)
                                 : exl2__images_room_for_rows(e, m, p->rows);
    if (room == EXL2__IMAGE_NOWHERE) {
        return;
    }
    d->size = p->size;
    d->limits = p->limits;
    d->width = p->width;
    d->height = p->height;
    m->vectors.pictures.picture[slot].given = true;
    if (p->kind == 1) {
        d->seen = (exl2__image_room){ room, p->bytes };
        d->resized = true;
        memcpy(g->pixels + room, p->data, (size_t)p->bytes);
        return;
    }
    float *rows = g->pool + room * m->vectors.pictures.row_floats;
    for (uint64_t k = 0; k < p->bytes / 4; k++) {
        rows[k] = exl2__bits_float(exl2__load32(p->data + 4 * k));
    }
    d->rows = (exl2__image_room){ room, p->rows };
    m->vectors.pictures.picture[slot].data = rows;
}

/* Ends what _enter has kept of the first `count` pictures. */
EXL2__PRIVATE void exl2__snapshot_pictures_leave(exl2__model *m, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = exl2__snapshot_pictures_slot(m, i);
        m->vectors.pictures.picture[slot].handles--;
        m->images.data[slot].number = UINT32_MAX;
    }
}

/* The slot of a picture: the engine's own, if that has its rows or pixels, or else a new one with those of the
   snapshot. EXL2__NO_PICTURE: there is none. */
EXL2__PRIVATE uint32_t exl2__snapshot_pictures_one(exl2_engine *e, exl2__model *m, const exl2__snapshot_picture *p)
{
    uint32_t slot = exl2__pictures_find(&m->vectors.pictures, p->id);
    bool known = slot != EXL2__NO_PICTURE && m->images.data[slot].number == UINT32_MAX &&
                 exl2__pictures_fits(&m->vectors.pictures.picture[slot], p->rows, p->grid, p->frames, p->fps);
    if (known && (p->kind == 0 || exl2__images_can_return(m, slot))) {
        m->vectors.pictures.picture[slot].handles++;
        return slot;
    }
    exl2__vision_size size = { .rows = p->rows, .frames = p->frames, .fps = p->fps };
    memcpy(size.grid, p->grid, sizeof size.grid);
    slot = exl2__images_slot_for(m, p->id, &size);
    if (slot != EXL2__NO_PICTURE && p->kind) {
        exl2__snapshot_pictures_fill(e, m, slot, p);
    }
    return slot;
}

/* Gives each picture a slot, which has its number and is kept until _leave. BUDGET: nothing has changed. */
EXL2__PRIVATE exl2_result exl2__snapshot_pictures_enter(exl2_engine *e, exl2__model *m,
                                                        const exl2__snapshot_pictures *x)
{
    uint64_t at = 4 + (uint64_t)x->count * EXL2__SNAPSHOT_PICTURE_BYTES;
    for (uint32_t i = 0; i < m->vectors.pictures.count; i++) {
        m->images.data[i].number = UINT32_MAX;
    }
    for (uint32_t i = 0; i < x->count; i++) {
        exl2__snapshot_picture p;
        exl2__snapshot_pictures_at(x, i, &p);
        if (x->images) {
            exl2_result r = exl2__snapshot_pictures_image(e, m, x->data + at, x->bytes - at, &p);
            EXL2__ASSERT(r >= 0); /* _read has checked it */
            (void)r;
            at += EXL2__SNAPSHOT_IMAGE_BYTES + p.bytes;
        }
        uint32_t slot = exl2__snapshot_pictures_one(e, m, &p);
        if (slot == EXL2__NO_PICTURE) {
            exl2__snapshot_pictures_leave(m, i);
            return exl2__fail(&e->ctx, EXL2_ERR_BUDGET,
                              "histories name %u pictures already: close sessions, or raise "
                              "vision.images",
                              m->vectors.pictures.live);
        }
        m->images.data[slot].number = i;
    }
    return EXL2_OK;
}

/* Reads and checks the part of pictures at `at`, of which `left` bytes are left; out->images is set. words: [tokens] as
   bytes. */
EXL2__PRIVATE exl2_result exl2__snapshot_pictures_take(exl2_engine *e, const exl2__model *m, const uint8_t *at,
                                                       uint64_t left, const uint8_t *words, uint32_t tokens,
                                                       exl2__snapshot_pictures *out)
{
    EXL2__TRY(exl2__snapshot_pictures_read(e, m, at, left, out->images, out));
    return exl2__snapshot_pictures_check(e, out, words, tokens);
}

#else

EXL2__PRIVATE exl2_result exl2__snapshot_pictures_take(exl2_engine *e, const exl2__model *m, const uint8_t *at,
                                                       uint64_t left, const uint8_t *words, uint32_t tokens,
                                                       exl2__snapshot_pictures *out)
{
    (void)m, (void)at, (void)left, (void)words, (void)tokens, (void)out;
    return exl2__fail(&e->ctx, EXL2_ERR_UNSUPPORTED, "the snapshot has pictures, which are not part of this build "
                      "(EXL2_NO_VISION)");
}

#endif
#endif

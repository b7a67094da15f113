/* images.h: the pictures of a model: their handles, their memory, and what is evicted for others.
   takes: pixels of the application; the words of histories.
   gives: exl2__images_layout, _measure; exl2__images_handle, _make, _close, _info; exl2__images_room_for_rows,
          exl2__images_can_return, exl2__images_ahead.
   owns:  nothing; exl2__images is part of the model.

   A slot of pictures.h lives while a word, a handle or rows in the pool need it. Rows are evicted for others, those
   first that were used longest ago; then the picture can be encoded again from `seen`, which stays while the picture
   has a name and the area has room. */
#ifndef EXL2__IMAGES_H
#define EXL2__IMAGES_H

#include "../3_backend/vision/pixels.h"
#include "jobs.h"

#ifndef EXL2_NO_VISION

static inline exl2__pictures *exl2__images_pictures(exl2__model *m)
{
    return &m->vectors.pictures;
}

/* The backend's functions for towers; NULL: the CPU's tower is used. */
static inline const exl2__backend_towers *exl2__images_towers(const exl2__model *m)
{
    return exl2__objects_backend(m)->towers;
}

/* The CPU backend's device, whose threads share work on pictures; NULL: the model has none. */
static inline exl2__device *exl2__images_cpu(const exl2__model *m)
{
    return exl2__objects_has_memory(m) ? NULL : m->spans.span[0].device;
}

/* ---- loading ---- */

/* Fails for a text model that does not fit its pictures. */
EXL2__PRIVATE exl2_result exl2__images_supports(exl2__ctx *c, const exl2__model *m)
{
    const exl2__vision_config *v = &m->images.config;
    const exl2__config *text = &m->weights.config;
    const uint32_t *section = text->rope.section;
    if (v->mrope && section[0] + section[1] + section[2] == 0) {
        return exl2__fail(c, EXL2_ERR_FORMAT,
                          "%s/config.json: mrope_section has no three numbers whose sum is half of a "
                          "head (%u), which pictures of %s need",
                          m->path, text->rotary / 2, v->family);
    }
    if (v->levels > text->layers) {
        return exl2__fail(c, EXL2_ERR_FORMAT,
                          "%s/config.json: rows of pictures are added after %u layers, but the text "
                          "model has %u",
                          m->path, v->levels - 1, text->layers);
    }
    if (v->levels > 1 && exl2__experts_any(&text->experts)) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: pictures of %s are not supported in a text model with experts",
                          m->path, v->family);
    }
    return EXL2_OK;
}

/* The id of a mark: config.json's, or the tokenizer's. */
EXL2__PRIVATE exl2_token exl2__images_mark(const exl2__model *m, const char *text, uint32_t id)
{
    exl2_token found = m->vocab.present && text[0] ? exl2__vocab_token(&m->vocab, text, strlen(text)) : -1;
    return found >= 0 || id == UINT32_MAX ? found : (exl2_token)id;
}

/* Finds the ids of the family's marks. Every mark must be a token of the tokenizer, if there is one. */
EXL2__PRIVATE exl2_result exl2__images_find_marks(exl2__ctx *c, exl2__model *m)
{
    exl2__images *g = &m->images;
    const exl2__vision_marks *marks = &g->config.marks;
    const char *video = marks->video ? marks->video : "";
    const char *const tokens[] = { marks->mark, marks->row, marks->line, marks->open, marks->close, video };
    for (uint32_t i = 0; m->vocab.present && i < EXL2__COUNT(tokens); i++) {
        if (tokens[i][0] && exl2__vocab_token(&m->vocab, tokens[i], strlen(tokens[i])) < 0) {
            return exl2__fail(c, EXL2_ERR_FORMAT,
                              "%s/tokenizer.json has no token '%s', which stands for pictures of %s", m->path,
                              tokens[i], g->config.family);
        }
    }
    g->row_token = exl2__images_mark(m, marks->row, g->config.row_id);
    g->mark_token = exl2__images_mark(m, marks->mark, g->config.mark_id);
    g->video_token = exl2__images_mark(m, video, g->config.video_id);
    g->open_token = exl2__images_mark(m, marks->open, UINT32_MAX);
    g->close_token = exl2__images_mark(m, marks->close, UINT32_MAX);
    return EXL2_OK;
}

/* ---- memory ---- */

/* Slots: for all handles, and for pictures that histories name. */
static inline uint32_t exl2__images_slots(const exl2__model *m)
{
    return exl2__min32(m->images.count + exl2__max32(m->images.count, 64), EXL2__PICTURES_MAX);
}

/* Sizes of all areas, from the desc and the tower's config. */
EXL2__PRIVATE exl2_result exl2__images_sizes(exl2__ctx *c, exl2__model *m)
{
    exl2__images *g = &m->images;
    const exl2_vision_desc *d = &m->desc.vision;
    g->count = d->images;
    g->limits = (exl2__vision_limits){ d->max_rows ? d->max_rows : EXL2__IMAGE_ROWS, d->max_tiles };
    exl2__vision_largest(&g->config, &g->limits, &g->largest);
    g->rows_max = d->rows ? d->rows : (uint64_t)g->largest.rows * exl2__min32(d->images, 8);
    if (g->largest.rows == 0 || g->largest.rows >= EXL2__PICTURE_ROWS_MAX) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s: vision.max_rows is %u, but a picture of %s can have from 1 to %u rows",
                          m->path, g->limits.max_rows, g->config.family, EXL2__PICTURE_ROWS_MAX - 1);
    }
    if (g->rows_max < g->largest.rows) {
        return exl2__fail(c, EXL2_ERR_ARG,
                          "%s: vision.rows is %u, but one picture can have %u rows: raise it, or lower "
                          "max_rows or max_tiles",
                          m->path, d->rows, g->largest.rows);
    }
    uint64_t pixels = d->pixels_max ? d->pixels_max : EXL2__IMAGE_PIXELS, seen;
    exl2__mul64(g->largest.seen_bytes, exl2__max32(d->images, 8), &seen);
    g->pixel_bytes = pixels * 3 + seen;
    return EXL2_OK;
}

/* The longest side of a picture. */
static inline uint32_t exl2__images_side(const exl2__model *m)
{
    uint32_t pixels = m->desc.vision.pixels_max ? m->desc.vision.pixels_max : EXL2__IMAGE_PIXELS;
    return exl2__min32(pixels, EXL2__VISION_SIDE_MAX);
}

/* The parts of the scratch arena that pictures need; a dry run only counts. */
EXL2__PRIVATE void exl2__images_layout(exl2__model *m, exl2__arena *scratch)
{
    exl2__images *g = &m->images;
    if (!g->on) {
        return;
    }
    uint32_t slots = exl2__images_slots(m), row_floats = g->config.hidden * g->config.levels;
    exl2__pictures *p = exl2__images_pictures(m);
    exl2__pictures_make(p, scratch, slots, row_floats);
    p->turns = g->config.mrope;
    p->whole = g->config.whole;
    p->apart = g->config.row->video_apart;
    p->ticks = g->config.ticks;
    g->image = (exl2__image *)exl2__arena_alloc_zeroed(scratch, (uint64_t)g->count * sizeof *g->image);
    g->data = (exl2__image_data *)exl2__arena_alloc_zeroed(scratch, (uint64_t)slots * sizeof *g->data);
    g->pool = (float *)exl2__arena_alloc(scratch, g->rows_max * row_floats * sizeof *g->pool);
    g->pixels = (uint8_t *)exl2__arena_alloc(scratch, g->pixel_bytes);
    g->prompt_slots = (uint32_t *)exl2__arena_alloc(scratch, EXL2__IMAGE_PROMPT_MAX * sizeof *g->prompt_slots);
    g->prompt_text = (char *)exl2__arena_alloc(scratch, EXL2__IMAGE_PROMPT_BYTES);
    exl2__device *cpu = exl2__images_cpu(m);
    g->resize_scratch =
        exl2__arena_alloc(scratch, exl2__resize_scratch_bytes(&g->config, &g->limits, exl2__images_side(m), cpu));
    g->prepared_at = scratch->used;
    if (!exl2__images_towers(m)) {
        exl2__tower_prepare(&g->tower, cpu, &g->limits, scratch);
    }
}

/* Tells a backend that computes the tower where rows will be written; held false: nowhere any more. */
static inline void exl2__images_hold(exl2__model *m, bool held)
{
    exl2__images *g = &m->images;
    if (g->on && m->spans.span[0].device && exl2__images_towers(m)) {
        uint64_t row_bytes = (uint64_t)g->config.hidden * g->config.levels * sizeof *g->pool;
        exl2__images_towers(m)->hold(m->spans.span[0].device, held ? g->pool : NULL, g->rows_max * row_bytes);
    }
}

/* Drops the pass through the tower that is running; it begins again later. */
static inline void exl2__images_interrupt(exl2__model *m)
{
    exl2__images *g = &m->images;
    if (g->stage == EXL2__IMAGE_ENCODES) {
        g->data[g->at].rows = (exl2__image_room){ 0 };
        g->stage = EXL2__IMAGE_IDLE;
    }
}

/* The model is parked, and its weights are freed: the tower's, too. A picture that was being encoded begins again. */
static inline void exl2__images_park(exl2__ctx *c, exl2__model *m)
{
    exl2__images *g = &m->images;
    exl2__tower_read_end(&g->reader);
    exl2__arena_close(c, &g->weights);
    exl2__images_interrupt(m);
}

/* Bytes of the parts of the scratch arena that pictures need. */
EXL2__PRIVATE uint64_t exl2__images_bytes(exl2__model *m)
{
    exl2__arena dry = { 0 };
    exl2__images_layout(m, &dry);
    return dry.used;
}

/* ---- areas ---- */

/* The first gap of `count` units in an area of `all`: that of pixels, or that of rows. EXL2__IMAGE_NOWHERE: none. */
EXL2__PRIVATE uint64_t exl2__images_gap(exl2__model *m, bool pixels, uint64_t count)
{
    const exl2__images *g = &m->images;
    uint64_t all = pixels ? g->pixel_bytes : g->rows_max, at = 0;
    bool moved = true;
    while (moved && at + count <= all) {
        moved = false;
        for (uint32_t i = 0; i < exl2__images_pictures(m)->count; i++) {
            const exl2__image_data *d = &g->data[i];
            const exl2__image_room *rooms[2] = { pixels ? &d->source : &d->rows, pixels ? &d->seen : &d->rows };
            for (uint32_t k = 0; k < 2; k++) {
                if (rooms[k]->count && rooms[k]->at < at + count && at < rooms[k]->at + rooms[k]->count) {
                    at = rooms[k]->at + rooms[k]->count;
                    moved = true;
                }
            }
        }
    }
    return count <= all && at + count <= all ? at : EXL2__IMAGE_NOWHERE;
}

static inline void exl2__images_drop_rows(exl2__model *m, uint32_t slot)
{
    m->images.data[slot].rows = (exl2__image_room){ 0 };
    exl2__images_pictures(m)->picture[slot].data = NULL;
}

/* Whether the picture is being worked on. */
static inline bool exl2__images_is_busy(const exl2__model *m, uint32_t slot)
{
    return m->images.stage != EXL2__IMAGE_IDLE && m->images.at == slot;
}

/* Frees a slot that no word or handle names, with all that it holds. */
static inline void exl2__images_free_slot(exl2__model *m, uint32_t slot)
{
    exl2__images_drop_rows(m, slot);
    m->images.data[slot] = (exl2__image_data){ 0 };
    exl2__pictures_free(exl2__images_pictures(m), slot);
}

/* Of the slots that no word or handle names, the one that was used longest ago, or EXL2__NO_PICTURE. */
EXL2__PRIVATE uint32_t exl2__images_oldest_unused(exl2__model *m)
{
    exl2__pictures *p = exl2__images_pictures(m);
    uint32_t oldest = EXL2__NO_PICTURE;
    for (uint32_t i = 0; i < p->count; i++) {
        bool unused = exl2__pictures_is_unused(p, i) && !exl2__images_is_busy(m, i);
        if (unused && (oldest == EXL2__NO_PICTURE || m->images.data[i].age < m->images.data[oldest].age)) {
            oldest = i;
        }
    }
    return oldest;
}

/* The first picture that a running job needs from its next row on, or EXL2__NO_PICTURE. */
EXL2__PRIVATE uint32_t exl2__images_next_of(const exl2__job *job, uint32_t *at)
{
    const exl2__table *t = job->sequence.table;
    for (*at = t->cached; job->sequence.active && *at < t->tokens; ++*at) {
        if (exl2__pictures_is(t->words[*at])) {
            return exl2__pictures_of(t->words[*at]);
        }
    }
    return EXL2__NO_PICTURE;
}

EXL2__PRIVATE bool exl2__images_is_needed(exl2_engine *e, const exl2__model *m, uint32_t slot)
{
    uint32_t at;
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        if (exl2__images_next_of(job, &at) == slot) {
            return true;
        }
    }
    return false;
}

static inline bool exl2__images_names(const uint32_t *words, uint32_t count, uint32_t slot)
{
    for (uint32_t i = 0; i < count; i++) {
        if (exl2__pictures_is(words[i]) && exl2__pictures_of(words[i]) == slot) {
            return true;
        }
    }
    return false;
}

/* Whether the picture must stay: it is open, or a job that has not ended still has to read it. */
EXL2__PRIVATE bool exl2__images_is_promised(exl2_engine *e, const exl2__model *m, uint32_t slot)
{
    bool promised = m->vectors.pictures.picture[slot].handles > 0;
    for (exl2__job *job = NULL; !promised && (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        const exl2__sequence *s = &job->sequence;
        uint32_t read = exl2__min32(s->table->cached, s->table->tokens);
        promised = exl2__images_names(s->table->words + read, s->table->tokens - read, slot)
                || (!s->begun && exl2__images_names(s->prompt, s->prompt_count, slot));
    }
    return promised;
}

/* What the loss of a picture's rows means. 0: nothing, as they can be computed again, or no word names them; 1: a
   history lacks them if it loses its K and V, too; 2: a job fails, or a picture that is open is gone. */
EXL2__PRIVATE uint32_t exl2__images_loss(exl2_engine *e, exl2__model *m, uint32_t slot)
{
    bool returns = m->images.data[slot].seen.count || exl2__pictures_is_unused(exl2__images_pictures(m), slot);
    return returns ? 0 : exl2__images_is_promised(e, m, slot) ? 2 : 1;
}

/* Whether rows of picture `a` are evicted before those of `b`: those whose loss means less come first; then those that
   were used longest ago. */
EXL2__PRIVATE bool exl2__images_goes_before(exl2_engine *e, exl2__model *m, uint32_t a, uint32_t b)
{
    uint32_t loss_a = exl2__images_loss(e, m, a), loss_b = exl2__images_loss(e, m, b);
    return loss_a != loss_b ? loss_a < loss_b : m->images.data[a].age < m->images.data[b].age;
}

/* Room for the rows of a picture, for which rows of others are evicted: never those that running jobs need next, nor
   any while a pass runs, which may read them. EXL2__IMAGE_NOWHERE: not now. */
EXL2__PRIVATE uint64_t exl2__images_room_for_rows(exl2_engine *e, exl2__model *m, uint32_t rows)
{
    exl2__pictures *p = exl2__images_pictures(m);
    uint64_t at;
    while ((at = exl2__images_gap(m, false, rows)) == EXL2__IMAGE_NOWHERE && !m->forward.active) {
        uint32_t oldest = EXL2__NO_PICTURE;
        for (uint32_t i = 0; i < p->count; i++) {
            bool may = p->picture[i].data && !exl2__images_is_needed(e, m, i);
            oldest = may && (oldest == EXL2__NO_PICTURE || exl2__images_goes_before(e, m, i, oldest)) ? i : oldest;
        }
        if (oldest == EXL2__NO_PICTURE) {
            break;
        }
        exl2__images_drop_rows(m, oldest);
    }
    return at;
}

/* Moves pixels together, so that what is free becomes one gap. Those of the picture that is worked on stay. */
EXL2__PRIVATE void exl2__images_gather(exl2__model *m)
{
    exl2__images *g = &m->images;
    for (uint64_t at = 0;;) {
        exl2__image_room *next = NULL;
        bool busy = false;
        for (uint32_t i = 0; i < exl2__images_pictures(m)->count; i++) {
            exl2__image_room *rooms[2] = { &g->data[i].source, &g->data[i].seen };
            for (uint32_t k = 0; k < 2; k++) {
                if (rooms[k]->count && rooms[k]->at >= at && (!next || rooms[k]->at < next->at)) {
                    next = rooms[k];
                    busy = exl2__images_is_busy(m, i);
                }
            }
        }
        if (!next) {
            return;
        }
        if (!busy && next->at > at) {
            memmove(g->pixels + at, g->pixels + next->at, (size_t)next->count);
            next->at = at;
        }
        at = next->at + next->count;
    }
}

/* Room for pixels. Pixels are dropped in this order: of pictures that no word or handle names, of pictures that have
   their rows, of pictures that histories name; among equals, those that were used longest ago first. Pixels of open
   pictures, and of pictures that jobs still have to read, stay, as the rows may be evicted. */
EXL2__PRIVATE uint64_t exl2__images_room_for_pixels(exl2_engine *e, exl2__model *m, uint64_t bytes)
{
    exl2__pictures *p = exl2__images_pictures(m);
    uint64_t at;
    while ((at = exl2__images_gap(m, true, bytes)) == EXL2__IMAGE_NOWHERE) {
        uint32_t oldest = EXL2__NO_PICTURE, loss = 0;
        for (uint32_t i = 0; i < p->count; i++) {
            const exl2__image_data *d = &m->images.data[i];
            uint32_t lost = exl2__pictures_is_unused(p, i) ? 0 : p->picture[i].data ? 1 : 2;
            bool may = d->seen.count && !exl2__images_is_busy(m, i) && !exl2__images_is_promised(e, m, i);
            if (may && (oldest == EXL2__NO_PICTURE || lost < loss ||
                        (lost == loss && d->age < m->images.data[oldest].age))) {
                oldest = i;
                loss = lost;
            }
        }
        if (oldest == EXL2__NO_PICTURE) {
            exl2__images_gather(m);
            return exl2__images_gap(m, true, bytes);
        }
        m->images.data[oldest].seen = m->images.data[oldest].source = (exl2__image_room){ 0 };
        m->images.data[oldest].resized = m->images.data[oldest].fresh = false;
    }
    return at;
}

/* Whether the picture's rows are computed, or can be. */
static inline bool exl2__images_can_return(exl2__model *m, uint32_t slot)
{
    return exl2__images_pictures(m)->picture[slot].data || m->images.data[slot].seen.count;
}

/* A slot for the picture. Pictures that no word or handle names give way, then cached pages that name pictures. */
EXL2__PRIVATE uint32_t exl2__images_slot_for(exl2__model *m, const uint64_t id[2], const exl2__vision_size *size)
{
    exl2__pictures *p = exl2__images_pictures(m);
    uint32_t slot, page, unused;
    while ((slot = exl2__pictures_add(p, id, size->rows, size->grid, size->frames, size->fps)) ==
           EXL2__NO_PICTURE) {
        if ((unused = exl2__images_oldest_unused(m)) != EXL2__NO_PICTURE) {
            exl2__images_free_slot(m, unused);
        } else if ((page = exl2__pages_oldest(&m->pages)) != EXL2__NO_PAGE) {
            exl2__table_drop_page(&m->pages, page);
        } else {
            return EXL2__NO_PICTURE;
        }
    }
    m->images.data[slot] = (exl2__image_data){ .size = *size };
    return slot;
}

/* ---- handles ---- */

static inline uint64_t exl2__images_id(uint32_t serial, uint32_t model, uint32_t index)
{
    return (uint64_t)serial << 32 | ((uint64_t)model << 16 | (index + 1));
}

/* The picture and the model of a handle; NULL: it is stale. */
EXL2__PRIVATE exl2__image *exl2__images_handle(exl2_engine *e, exl2_image handle, exl2__model **model)
{
    uint32_t slot = (uint32_t)handle.id >> 16, index = ((uint32_t)handle.id & 0xFFFF) - 1;
    exl2__model *m = slot < e->max_models && e->models[slot].id ? &e->models[slot] : NULL;
    if (!m || m->state != EXL2_OK || !m->images.on || index >= m->images.count ||
        m->images.image[index].id != handle.id) {
        return NULL;
    }
    *model = m;
    return &m->images.image[index];
}

/* Fails if the model can have no pictures. headers: it is enough that its headers are read. */
EXL2__PRIVATE exl2_result exl2__images_check(exl2_engine *e, const exl2__model *m, bool headers)
{
    if (m->state != EXL2_OK && !(headers && m->state == EXL2_PENDING && m->images.on)) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE,
                          m->state == EXL2_PENDING ? "%s: the model is still loading" : "%s: the model did not load",
                          m->path);
    }
    if (!m->images.on) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE,
                          "%s: the model was opened without its tower: set vision.images of "
                          "exl2_model_desc to the number of pictures",
                          m->path);
    }
    return EXL2_OK;
}

/* Pictures of RGB: the frames of a video, or one. */
static inline uint32_t exl2__images_frames(const exl2_image_desc *d)
{
    return exl2__max32(d->frames, 1);
}

/* Checks format, size and stride; *limits: those of this picture; *size: what it becomes. */
EXL2__PRIVATE exl2_result exl2__images_check_desc(exl2_engine *e, const exl2__model *m, const exl2_image_desc *d,
                                                  exl2__vision_limits *limits, exl2__vision_size *size)
{
    exl2__ctx *c = &e->ctx;
    if ((uint32_t)d->format > EXL2_PIXELS_GRAY8) {
        return exl2__fail(c, EXL2_ERR_ARG, "exl2_image_make: the format %u is none of exl2_pixels",
                          (uint32_t)d->format);
    }
    uint32_t most = exl2__images_side(m);
    if (d->width == 0 || d->height == 0 || d->width > most || d->height > most) {
        return exl2__fail(c, EXL2_ERR_ARG, "a picture has sides of 1 to %u pixels, but this one is %u x %u", most,
                          d->width, d->height);
    }
    uint64_t line = (uint64_t)d->width * exl2__pixels_bytes((exl2__pixels_format)d->format);
    uint64_t stride = d->stride < 0 ? 0 - (uint64_t)d->stride : (uint64_t)d->stride;
    uint64_t lines = (uint64_t)d->height * exl2__images_frames(d);
    if (stride && (stride < line || stride > (uint64_t)PTRDIFF_MAX / lines)) {
        return exl2__fail(c, EXL2_ERR_ARG, "exl2_image_make: the stride is %lld bytes, but a line has %llu",
                          (long long)d->stride, (unsigned long long)line);
    }
    *limits = m->images.limits;
    limits->max_rows = d->max_rows ? exl2__min32(d->max_rows, limits->max_rows) : limits->max_rows;
    limits->max_tiles = !d->max_tiles       ? limits->max_tiles
                        : limits->max_tiles ? exl2__min32(d->max_tiles, limits->max_tiles)
                                            : d->max_tiles;
    return exl2__vision_sizes(c, &m->images.config, limits, d->width, d->height, d->frames, d->fps, size);
}

/* Copies the pixels as RGB, lines from the top, frame by frame. */
EXL2__PRIVATE void exl2__images_copy(const exl2_image_desc *d, uint8_t *rgb)
{
    uint64_t line = (uint64_t)d->width * exl2__pixels_bytes((exl2__pixels_format)d->format);
    uint64_t stride = d->stride < 0 ? 0 - (uint64_t)d->stride : d->stride ? (uint64_t)d->stride : line;
    for (uint64_t i = 0; i < (uint64_t)d->height * exl2__images_frames(d); i++) {
        uint64_t y = i % d->height, from = i - y + (d->stride < 0 ? d->height - 1 - y : y);
        exl2__pixels_line((exl2__pixels_format)d->format, (const uint8_t *)d->pixels + from * stride, d->width,
                          rgb + (size_t)i * d->width * 3);
    }
}

/* Names the picture: its bytes as RGB, its size, and what changes its rows. */
EXL2__PRIVATE void exl2__images_name(const exl2_image_desc *d, const exl2__vision_size *size, const uint8_t *rgb,
                                     uint64_t id[2])
{
    uint32_t head[11] = { d->width,        d->height,          size->width, size->height, size->tile_rows,
                          size->tile_columns, size->tiles, size->rows, d->frames };
    memcpy(&head[9], &d->fps, sizeof d->fps);
    size_t bytes = d->frames ? sizeof head : 8 * sizeof *head; /* a picture has no frames and no fps */
    const uint64_t seeds[2] = { exl2__hash_words(head, bytes, 0xBB67AE8584CAA73Bu),
                                exl2__hash_words(head, bytes, 0x6A09E667F3BCC908u) };
    exl2__hash_words_twice(rgb, (size_t)d->width * d->height * 3 * exl2__images_frames(d), seeds, id);
    id[0] = exl2__hash_mix(id[0]);
    id[1] = exl2__hash_mix(id[1]);
}

/* Pictures of snapshots that have the same id, but no pixels, get them: their rows may be evicted, and else would be
   gone. Without room in the area they stay as they are. */
EXL2__PRIVATE void exl2__images_supply(exl2_engine *e, exl2__model *m, uint32_t from)
{
    exl2__images *g = &m->images;
    const exl2__pictures *p = exl2__images_pictures(m);
    for (uint32_t i = 0; i < p->count; i++) {
        const exl2__picture *a = &p->picture[i], *b = &p->picture[from];
        exl2__image_data *to = &g->data[i];
        bool same = a->given && a->id[0] == b->id[0] && a->id[1] == b->id[1] &&
                    exl2__pictures_fits(a, b->rows, b->grid, b->frames, b->fps);
        if (!same || to->seen.count || exl2__images_is_busy(m, i)) {
            continue;
        }
        uint64_t source = g->data[from].source.count, at;
        at = exl2__images_room_for_pixels(e, m, source + g->data[from].size.seen_bytes);
        const exl2__image_data *d = &g->data[from];
        if (at == EXL2__IMAGE_NOWHERE || !d->seen.count) {
            return;
        }
        memcpy(g->pixels + at, g->pixels + d->source.at, (size_t)source);
        memcpy(g->pixels + at + source, g->pixels + d->seen.at, (size_t)d->seen.count);
        to->size = d->size;
        to->limits = d->limits;
        to->width = d->width;
        to->height = d->height;
        to->source = (exl2__image_room){ at, source };
        to->seen = (exl2__image_room){ at + source, d->seen.count };
        to->resized = d->resized;
        to->result = EXL2_OK;
    }
}

/* Whether a handle, a history or a prompt needs the picture. Else only cached pages name it, which need no rows. */
EXL2__PRIVATE bool exl2__images_is_kept(exl2_engine *e, const exl2__model *m, uint32_t slot)
{
    bool kept = m->vectors.pictures.picture[slot].handles > 0;
    for (uint32_t i = 0; i < e->max_sessions && !kept; i++) {
        const exl2__session *s = &e->sessions[i];
        kept = s->id && &e->models[s->model] == m && exl2__images_names(s->table.words, s->table.tokens, slot);
    }
    for (exl2__job *job = NULL; !kept && (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        kept = !job->sequence.begun && exl2__images_names(job->sequence.prompt, job->sequence.prompt_count, slot);
    }
    return kept;
}

/* Drops pixels of pictures that only cached pages name: a job that finds these pages has made the picture again. */
EXL2__PRIVATE void exl2__images_drop_cached(exl2_engine *e, exl2__model *m)
{
    for (uint32_t i = 0; i < exl2__images_pictures(m)->count; i++) {
        exl2__image_data *d = &m->images.data[i];
        if (d->seen.count && !exl2__images_is_busy(m, i) && !exl2__images_is_kept(e, m, i)) {
            d->seen = d->source = (exl2__image_room){ 0 };
            d->resized = d->fresh = false;
        }
    }
}

/* Makes the picture known, or finds it. *slot has one handle more. */
EXL2__PRIVATE exl2_result exl2__images_enter(exl2_engine *e, exl2__model *m, const exl2_image_desc *d, uint32_t *slot)
{
    exl2__images *g = &m->images;
    exl2__pictures *p = exl2__images_pictures(m);
    exl2__vision_limits limits;
    exl2__vision_size size;
    uint64_t id[2];
    EXL2__TRY(exl2__images_check_desc(e, m, d, &limits, &size));
    exl2__image_room source = { 0, (uint64_t)d->width * d->height * 3 * exl2__images_frames(d) };
    source.at = exl2__images_room_for_pixels(e, m, source.count + size.seen_bytes);
    if (source.at == EXL2__IMAGE_NOWHERE) {
        exl2__images_drop_cached(e, m);
        source.at = exl2__images_room_for_pixels(e, m, source.count + size.seen_bytes);
    }
    if (source.at == EXL2__IMAGE_NOWHERE) {
        return exl2__fail(&e->ctx, EXL2_ERR_BUDGET,
                          "exl2_image_make: there is no room for %llu pixels beside pictures that are open, or that "
                          "jobs have not read yet: step the engine, close some, or raise vision.pixels_max",
                          (unsigned long long)source.count / 3);
    }
    exl2__images_copy(d, g->pixels + source.at);
    exl2__images_name(d, &size, g->pixels + source.at, id);
    *slot = exl2__pictures_find(p, id);
    if (*slot != EXL2__NO_PICTURE &&
        !exl2__pictures_fits(&p->picture[*slot], size.rows, size.grid, size.frames, size.fps)) {
        p->picture[*slot].given = true; /* a snapshot's, which has the id of a picture that is another one */
        *slot = exl2__pictures_find(p, id);
    }
    if (*slot != EXL2__NO_PICTURE) {
        p->picture[*slot].handles++;
    } else if ((*slot = exl2__images_slot_for(m, id, &size)) == EXL2__NO_PICTURE) {
        return exl2__fail(&e->ctx, EXL2_ERR_BUDGET,
                          "exl2_image_make: histories name %u pictures: close sessions, or "
                          "raise vision.images",
                          p->live);
    }
    exl2__image_data *data = &g->data[*slot];
    data->age = ++g->clock;
    if (!data->seen.count && !exl2__images_is_busy(m, *slot)) { /* new, or its pixels are gone, if not its rows */
        data->size = size;
        data->limits = limits;
        data->width = d->width;
        data->height = d->height;
        data->source = source;
        data->seen = (exl2__image_room){ source.at + source.count, size.seen_bytes };
        data->resized = false;
        data->result = EXL2_OK;
    }
    data->fresh = data->fresh || !p->picture[*slot].data;
    exl2__images_supply(e, m, *slot);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__images_make(exl2_engine *e, exl2__model *m, const exl2_image_desc *d, exl2_image *out)
{
    exl2__images *g = &m->images;
    uint32_t index = 0, slot;
    EXL2__TRY(exl2__images_check(e, m, false));
    EXL2__TRY(exl2__objects_not_closing(e, m));
    while (index < g->count && g->image[index].id) {
        index++;
    }
    if (index == g->count) {
        return exl2__fail(&e->ctx, EXL2_ERR_BUDGET, "all %u pictures are open: close some, or raise vision.images",
                          g->count);
    }
    EXL2__TRY(exl2__images_enter(e, m, d, &slot));
    uint64_t id = exl2__images_id(++e->image_serial, (uint32_t)(m - e->models), index);
    g->image[index] = (exl2__image){ .id = id,
                                     .picture = slot,
                                     .on_event = d->on_event,
                                     .user = d->user,
                                     .silent = d->silent,
                                     .begun_due = !exl2__images_pictures(m)->picture[slot].data,
                                     .end_due = exl2__images_pictures(m)->picture[slot].data != NULL,
                                     .ended = exl2__images_pictures(m)->picture[slot].data != NULL };
    out->id = id;
    return EXL2_OK;
}

static inline void exl2__images_close(exl2__model *m, exl2__image *image)
{
    exl2__pictures *p = exl2__images_pictures(m);
    p->picture[image->picture].handles--;
    *image = (exl2__image){ 0 };
}

/* The id as hexadecimal digits of its bytes in order, as exl2_image_info.id has them. */
static inline void exl2__images_id_text(const uint64_t id[2], char out[33])
{
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t byte = (uint32_t)(id[i / 16] >> 8 * (i / 2 % 8)) & 0xFF;
        out[i] = "0123456789abcdef"[i % 2 ? byte & 15 : byte >> 4];
    }
    out[32] = 0;
}

/* How many positions the next token's angle is ahead of its place, after the history and the prompt that a job begins
   with: the times of videos may take more positions than their rows. */
EXL2__PRIVATE uint64_t exl2__images_ahead(const exl2__model *m, const exl2__sequence *s)
{
    const exl2__pictures *p = &m->vectors.pictures;
    const exl2__table *t = s->table;
    exl2__pictures_turner turner = { 0 };
    int64_t position[3];
    uint32_t keep = s->begun ? t->tokens : exl2__min32(s->keep, t->tokens), prompt = s->begun ? 0 : s->prompt_count;
    for (uint32_t i = 0; p->turns && p->live > 0 && i < keep + prompt; i++) {
        exl2__pictures_pass(p, &turner, i < keep ? t->words[i] : s->prompt[i - keep], position);
    }
    return turner.next > turner.at ? (uint64_t)(turner.next - turner.at) : 0;
}

/* Fails if the history that a job begins with needs a picture that is gone: one whose K and V are not in the cache. */
EXL2__PRIVATE exl2_result exl2__images_check_history(exl2_engine *e, exl2__model *m, const exl2__job *job)
{
    const exl2__table *t = job->sequence.table;
    uint64_t ahead = exl2__images_ahead(m, &job->sequence);
    if (ahead + job->sequence.tokens_end > m->info.context_max) {
        return exl2__fail(&e->ctx, EXL2_ERR_CONTEXT_FULL,
                          "the job needs a context of %u tokens, and the times of videos %llu positions more than "
                          "their rows, but a session holds %u",
                          job->sequence.tokens_end, (unsigned long long)ahead, m->info.context_max);
    }
    uint32_t keep = job->sequence.begun ? t->tokens : exl2__min32(job->sequence.keep, t->tokens);
    uint32_t missing = 0, first = 0, number = 0, at_first = 0;
    for (uint32_t i = 0; exl2__images_pictures(m)->live > 0 && i < keep; i++) {
        bool begins = exl2__pictures_is(t->words[i]) && exl2__pictures_row(t->words[i]) == 0;
        number += begins;
        if (begins && !exl2__images_can_return(m, exl2__pictures_of(t->words[i]))) {
            at_first = missing == 0 ? i : at_first;
            first = missing == 0 ? number : first;
            missing++;
        }
    }
    if (missing == 0) {
        return EXL2_OK;
    }
    exl2__table_text text = exl2__sequence_text(&job->sequence);
    uint32_t found = exl2__table_find(&m->pages, &text, exl2__sequence_shared(&job->sequence, text.tokens),
                                      exl2__sequence_reuse(&job->sequence, text.tokens));
    for (uint32_t i = found; i < keep; i++) {
        if (exl2__pictures_is(t->words[i]) && !exl2__images_can_return(m, exl2__pictures_of(t->words[i]))) {
            char id[33];
            exl2__images_id_text(exl2__images_pictures(m)->picture[exl2__pictures_of(t->words[at_first])].id, id);
            return exl2__fail(&e->ctx, EXL2_ERR_STATE,
                              "%u pictures of the history are gone; the first is number %u, "
                              "%s, at token %u: make it again with exl2_image_make",
                              missing, first, id, at_first);
        }
    }
    return EXL2_OK;
}

/* ---- what is known ---- */

static inline void exl2__images_put_id(const uint64_t id[2], uint8_t out[16])
{
    exl2__store64(out, id[0]);
    exl2__store64(out + 8, id[1]);
}

EXL2__PRIVATE void exl2__images_info_of(const exl2__model *m, const exl2__vision_size *size, exl2_image_info *out)
{
    memset(out, 0, sizeof *out);
    out->width = size->width;
    out->height = size->height;
    out->tiles = size->frames ? 1 : size->tiles;
    memcpy(out->grid, size->grid, sizeof out->grid);
    out->rows = size->rows;
    out->operations = exl2__tower_operations(&m->images.config, size);
    out->bytes = size->seen_bytes + (uint64_t)size->rows * m->images.config.hidden * m->images.config.levels * 4;
}

EXL2__PRIVATE void exl2__images_info(exl2__model *m, uint32_t slot, exl2_image_info *out)
{
    const exl2__image_data *d = &m->images.data[slot];
    exl2__images_info_of(m, &d->size, out);
    exl2__images_put_id(exl2__images_pictures(m)->picture[slot].id, out->id);
    out->state = exl2__images_pictures(m)->picture[slot].data ? EXL2_IMAGE_ENCODED
                 : d->resized                                 ? EXL2_IMAGE_RESIZED
                                                              : EXL2_IMAGE_WAITING;
    out->result = d->result;
    out->encode_ns = d->encode_ns;
}

#endif
#endif

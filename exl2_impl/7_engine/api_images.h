/* api_images.h: the public functions of pictures, and what pictures are to sessions.
   takes: calls from the application, as api.h says.
   gives: exl2__api_images_cut, _missing; what public.h calls. */
#ifndef EXL2__API_IMAGES_H
#define EXL2__API_IMAGES_H

#include "api.h"
#include "image_work.h"

#define EXL2__API_NO_PICTURES "pictures are not part of this build (EXL2_NO_VISION)"

/* The id that stands for the row of a picture in a history. */
static inline exl2_token exl2__api_images_row(const exl2__model *m, uint32_t word)
{
#ifndef EXL2_NO_VISION
    bool video = m->vectors.pictures.picture[exl2__pictures_of(word)].frames > 0;
    return video ? m->images.video_token : m->images.row_token;
#else
    (void)m, (void)word;
    return -1;
#endif
}

/* Fails if the session's history would be cut at `at` within a picture. */
EXL2__PRIVATE exl2_result exl2__api_images_cut(exl2_engine *e, const exl2__session *s, uint32_t at)
{
    const exl2__table *t = &s->table;
    uint32_t begin, end;
    if (!exl2__pictures_cuts(&e->models[s->model].vectors.pictures, t->words, t->tokens, at, &begin, &end)) {
        return EXL2_OK;
    }
    return exl2__fail(&e->ctx, EXL2_ERR_ARG,
                      "the history cannot be cut at token %u, within a picture: it begins at token "
                      "%u and ends before token %u",
                      at, begin, end);
}

/* The picture of a history that begins at or after *at, which then is where it ends. false: there is none. */
EXL2__PRIVATE bool exl2__api_images_next(exl2__model *m, const exl2__table *t, uint32_t *at, exl2_picture *out,
                                         uint32_t *slot)
{
    memset(out, 0, sizeof *out);
    while (*at < t->tokens && !exl2__pictures_is(t->words[*at])) {
        ++*at;
    }
    if (*at == t->tokens) {
        return false;
    }
    *slot = exl2__pictures_of(t->words[*at]);
    const exl2__picture *picture = &m->vectors.pictures.picture[*slot];
    out->from = *at;
    out->rows = picture->rows;
    bool last = false;
    for (; *at < t->tokens && !last; ++*at) {
        uint32_t word = t->words[*at];
        last = exl2__pictures_is(word) && exl2__pictures_row(word) + 1 == picture->rows;
    }
    out->count = *at - out->from;
    exl2__store64(out->id, picture->id[0]);
    exl2__store64(out->id + 8, picture->id[1]);
#ifndef EXL2_NO_VISION
    out->missing = !exl2__images_can_return(m, *slot);
#endif
    return true;
}

/* Pictures of the history whose rows and pixels are gone; each counts once. */
EXL2__PRIVATE uint32_t exl2__api_images_missing(exl2__model *m, const exl2__table *t)
{
    uint32_t at = 0, slot, missing = 0;
    exl2_picture picture, other;
    while (m->vectors.pictures.live > 0 && exl2__api_images_next(m, t, &at, &picture, &slot)) {
        uint32_t before = 0, again = 0;
        while (before < picture.from && exl2__api_images_next(m, t, &before, &other, &again) &&
               other.from < picture.from && again != slot) {
        }
        bool repeated = again == slot && other.from < picture.from;
        missing += picture.missing && !repeated;
    }
    return missing;
}

EXL2__PRIVATE exl2_result exl2__api_session_pictures(exl2_engine *e, exl2_session handle, exl2_picture *out, size_t cap,
                                                     size_t *need)
{
    EXL2__TRY(exl2__api_argument(e, (out || !cap) && need, "exl2_session_pictures", "out or need is NULL"));
    exl2__session *s = exl2__objects_session(e, handle);
    if (!s) {
        return exl2__objects_stale(e, "session", handle.id);
    }
    exl2_picture picture;
    uint32_t at = 0, slot;
    *need = 0;
    while (exl2__api_images_next(&e->models[s->model], &s->table, &at, &picture, &slot)) {
        if (*need < cap) {
            out[*need] = picture;
        }
        ++*need;
    }
    if (*need > cap && out) { /* with out NULL only the size is asked for */
        return exl2__fail(&e->ctx, EXL2_ERR_TOO_SMALL, "the history has %zu pictures, but the buffer holds %zu", *need,
                          cap);
    }
    return EXL2_OK;
}

#ifndef EXL2_NO_VISION

EXL2__PRIVATE exl2_result exl2__api_image(exl2_engine *e, exl2_image handle, exl2__model **m, exl2__image **out)
{
    EXL2__TRY(exl2__api_engine(e));
    *out = exl2__images_handle(e, handle, m);
    return *out ? EXL2_OK : exl2__objects_stale(e, "image", handle.id);
}

EXL2__PRIVATE exl2_result exl2__api_image_make(exl2_engine *e, const exl2_image_desc *d, exl2_image *out)
{
    static const char *const call = "exl2_image_make";
    exl2__model *m;
    EXL2__TRY(exl2__api_argument(e, d && out, call, "the desc or out is NULL"));
    EXL2__TRY(EXL2__CHECK_ZEROED(&e->ctx, d, exl2_image_desc));
    EXL2__TRY(exl2__api_argument(e, d->pixels != NULL, call, "pixels is NULL"));
    EXL2__TRY(exl2__api_model(e, d->model, &m));
    exl2_result r = exl2__images_make(e, m, d, out);
    exl2__objects_publish(e);
    return r;
}

EXL2__PRIVATE exl2_result exl2__api_image_get(exl2_engine *e, exl2_image handle, exl2_image_info *out)
{
    exl2__model *m;
    exl2__image *image;
    EXL2__TRY(exl2__api_argument(e, out != NULL, "exl2_image_get", "out is NULL"));
    EXL2__TRY(exl2__api_image(e, handle, &m, &image));
    exl2__images_info(m, image->picture, out);
    exl2_result r = m->vocab.present
                        ? exl2__image_prompt_tokens(e, m, &m->images.data[image->picture].size, &out->tokens)
                        : EXL2_OK;
    exl2__objects_publish_memory(e);
    return r;
}

EXL2__PRIVATE exl2_result exl2__api_image_measure(exl2_engine *e, const exl2_image_desc *d, exl2_image_info *out)
{
    exl2__model *m;
    exl2__vision_size size;
    exl2__vision_limits limits;
    EXL2__TRY(exl2__api_argument(e, d && out, "exl2_image_measure", "the desc or out is NULL"));
    EXL2__TRY(EXL2__CHECK_ZEROED(&e->ctx, d, exl2_image_desc));
    EXL2__TRY(exl2__api_model(e, d->model, &m));
    EXL2__TRY(exl2__images_check(e, m, true));
    EXL2__TRY(exl2__images_check_desc(e, m, d, &limits, &size));
    exl2__images_info_of(m, &size, out);
    bool reads = m->state == EXL2_OK && m->vocab.present;
    exl2_result r = reads ? exl2__image_prompt_tokens(e, m, &size, &out->tokens) : EXL2_OK;
    exl2__objects_publish_memory(e);
    return r;
}

EXL2__PRIVATE exl2_result exl2__api_image_seen(exl2_engine *e, exl2_image handle, void *out, size_t cap, size_t *need)
{
    exl2__model *m;
    exl2__image *image;
    EXL2__TRY(exl2__api_argument(e, (out || !cap) && need, "exl2_image_seen", "out or need is NULL"));
    EXL2__TRY(exl2__api_image(e, handle, &m, &image));
    const exl2__image_data *d = &m->images.data[image->picture];
    if (!d->resized || !d->seen.count) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "exl2_image_seen: the picture is not resized yet, or its bytes made "
                          "room for others");
    }
    *need = (size_t)d->size.seen_bytes;
    if (out && cap < *need) {
        return exl2__fail(&e->ctx, EXL2_ERR_TOO_SMALL, "the tower sees %zu bytes, but the buffer holds %zu", *need,
                          cap);
    }
    if (out) {
        memcpy(out, m->images.pixels + d->seen.at, *need);
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__api_image_rows(exl2_engine *e, exl2_image handle, float *out, size_t cap, size_t *need)
{
    exl2__model *m;
    exl2__image *image;
    EXL2__TRY(exl2__api_argument(e, (out || !cap) && need, "exl2_image_rows", "out or need is NULL"));
    EXL2__TRY(exl2__api_image(e, handle, &m, &image));
    const float *rows = exl2__images_pictures(m)->picture[image->picture].data;
    if (!rows) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "exl2_image_rows: the picture is not encoded, or its rows made room "
                          "for others");
    }
    uint32_t each = m->images.config.hidden * m->images.config.levels;
    *need = (size_t)m->images.data[image->picture].size.rows * each;
    if (out && cap < *need) {
        return exl2__fail(&e->ctx, EXL2_ERR_TOO_SMALL, "the rows are %zu floats, but the buffer holds %zu", *need, cap);
    }
    if (out) {
        memcpy(out, rows, *need * sizeof *out);
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__api_image_close(exl2_engine *e, exl2_image handle)
{
    exl2__model *m;
    exl2__image *image;
    EXL2__TRY(exl2__api_image(e, handle, &m, &image));
    exl2__images_close(m, image);
    return EXL2_OK;
}

#else

EXL2__PRIVATE exl2_result exl2__api_image_make(exl2_engine *e, const exl2_image_desc *d, exl2_image *out)
{
    (void)d, (void)out;
    return exl2__api_argument(e, e != NULL, "", "") < 0
               ? EXL2_ERR_ARG
               : exl2__fail(&e->ctx, EXL2_ERR_UNSUPPORTED, "exl2_image_make: " EXL2__API_NO_PICTURES);
}

EXL2__PRIVATE exl2_result exl2__api_image_get(exl2_engine *e, exl2_image handle, exl2_image_info *out)
{
    (void)out;
    return e ? exl2__objects_stale(e, "image", handle.id) : EXL2_ERR_ARG;
}

EXL2__PRIVATE exl2_result exl2__api_image_measure(exl2_engine *e, const exl2_image_desc *d, exl2_image_info *out)
{
    (void)d, (void)out;
    return e ? exl2__fail(&e->ctx, EXL2_ERR_UNSUPPORTED, "exl2_image_measure: " EXL2__API_NO_PICTURES) : EXL2_ERR_ARG;
}

EXL2__PRIVATE exl2_result exl2__api_image_seen(exl2_engine *e, exl2_image handle, void *out, size_t cap, size_t *need)
{
    (void)out, (void)cap, (void)need;
    return e ? exl2__objects_stale(e, "image", handle.id) : EXL2_ERR_ARG;
}

EXL2__PRIVATE exl2_result exl2__api_image_rows(exl2_engine *e, exl2_image handle, float *out, size_t cap, size_t *need)
{
    (void)out, (void)cap, (void)need;
    return e ? exl2__objects_stale(e, "image", handle.id) : EXL2_ERR_ARG;
}

EXL2__PRIVATE exl2_result exl2__api_image_close(exl2_engine *e, exl2_image handle)
{
    return e ? exl2__objects_stale(e, "image", handle.id) : EXL2_ERR_ARG;
}

#endif
#endif

/* image_prompt.h: pictures in a prompt: marks become what a family writes for a picture, and its rows become words.
   takes: a prompt's pictures and its text or ids; the family's marks.
   gives: exl2__image_prompt with exl2__image_prompt_open, _close, _rendered, _text, _ids, _words;
          exl2__image_prompt_tokens.
   owns:  while a call lasts, the expanded text, if it does not fit the memory that the model has for it.

   The text is expanded first and tokenized as a whole then, as line ends beside a mark may join with those of the
   text. Every row is written as the family's token of a row; so the k-th such id is the k-th row. What a message says
   is never a mark. */
#ifndef EXL2__IMAGE_PROMPT_H
#define EXL2__IMAGE_PROMPT_H

#include "images.h"

#ifndef EXL2_NO_VISION

/* A text that is being written; data NULL: its bytes are only counted. */
typedef struct exl2__image_writer {
    char *data;
    uint8_t *from_message; /* bits; NULL: none */
    uint64_t used;
} exl2__image_writer;

typedef struct exl2__image_prompt {
    uint32_t *slots; /* [count] the pictures, in order */
    uint32_t count;
    uint64_t rows; /* of all of them */
    void *block;   /* the expanded text */
    uint64_t block_bytes;
    const char *text;
    size_t bytes;
    const uint8_t *from_message;
} exl2__image_prompt;

static inline void exl2__image_put(exl2__image_writer *w, const char *text, size_t bytes)
{
    if (w->data && bytes) {
        memcpy(w->data + w->used, text, bytes);
    }
    w->used += bytes;
}

static inline void exl2__image_puts(exl2__image_writer *w, const char *text)
{
    exl2__image_put(w, text, strlen(text));
}

static inline void exl2__image_put_rows(exl2__image_writer *w, const char *row, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        exl2__image_puts(w, row);
    }
}

/* Tiles line by line, each with its place, and the whole picture (transformers, SmolVLMProcessor). */
EXL2__PRIVATE void exl2__image_put_tiles(exl2__image_writer *w, const exl2__vision_marks *marks,
                                         const exl2__vision_size *s)
{
    static const char around[] = "<fake_token_around_image>";
    uint32_t rows = s->rows / s->tiles;
    for (uint32_t y = 0; y < s->tile_rows; y++) {
        for (uint32_t x = 0; x < s->tile_columns; x++) {
            char place[48];
            exl2__format(place, sizeof place, "<row_%u_col_%u>", y + 1, x + 1);
            exl2__image_puts(w, around);
            exl2__image_puts(w, place);
            exl2__image_put_rows(w, marks->row, rows);
        }
        exl2__image_puts(w, "\n");
    }
    exl2__image_puts(w, s->tile_rows ? "\n" : "");
    exl2__image_puts(w, around);
    exl2__image_puts(w, "<global-img>");
    exl2__image_put_rows(w, marks->row, rows);
    exl2__image_puts(w, around);
}

/* "<1.5 seconds>": the mean of the times of a pair's frames, rounded as Python's format does: the exact value to the
   nearest tenth, of two the even one. Times below 1/256 of a second are 0.0. */
EXL2__PRIVATE void exl2__image_put_time(exl2__image_writer *w, const exl2__vision_size *s, uint32_t pair)
{
    const uint64_t one = 1ull << 60;
    double fps = s->fps, first = 2 * (double)pair, last = exl2__min32(2 * pair + 1, s->frames - 1);
    double time = (first / fps + last / fps) / 2, whole = floor(time);
    uint64_t tenths = (uint64_t)((time - whole) * (double)one) * 10, rest = tenths % one; /* in parts of `one` */
    char text[48];
    tenths = tenths / one + (rest > one / 2 || (rest == one / 2 && tenths / one % 2));
    exl2__format(text, sizeof text, "<%llu.%u seconds>", (unsigned long long)whole + tenths / 10,
                 (uint32_t)(tenths % 10));
    exl2__image_puts(w, text);
}

/* A video: its rows, or each pair of frames with its time and marks (transformers, Qwen3VLProcessor). */
EXL2__PRIVATE void exl2__image_put_video(exl2__image_writer *w, const exl2__vision_marks *marks, bool apart,
                                         const exl2__vision_size *s)
{
    for (uint32_t pair = 0; apart && pair < s->tiles; pair++) {
        exl2__image_put_time(w, s, pair);
        exl2__image_puts(w, marks->open);
        exl2__image_put_rows(w, marks->video, s->rows / s->tiles);
        exl2__image_puts(w, marks->close);
    }
    exl2__image_put_rows(w, marks->video, apart ? 0 : s->rows);
}

/* What stands for a picture. */
EXL2__PRIVATE void exl2__image_put_picture(exl2__image_writer *w, const exl2__vision_config *v,
                                           const exl2__vision_size *s)
{
    const exl2__vision_marks *marks = &v->marks;
    if (s->frames) {
        exl2__image_put_video(w, marks, v->row->video_apart, s);
        return;
    }
    if (marks->expand == EXL2__VISION_EXPAND_TILES) {
        exl2__image_put_tiles(w, marks, s);
        return;
    }
    bool lines = marks->expand == EXL2__VISION_EXPAND_LINES;
    uint32_t count = lines ? s->grid[1] : 1, rows = s->rows / count;
    exl2__image_puts(w, marks->before);
    for (uint32_t i = 0; i < count; i++) {
        exl2__image_put_rows(w, marks->row, rows);
        exl2__image_puts(w, i + 1 < count ? marks->line : marks->after);
    }
}

static inline void exl2__image_prompt_close(exl2_engine *e, exl2__image_prompt *p)
{
    exl2__free(&e->ctx, p->block, p->block_bytes, EXL2_MEM_GENERAL);
    *p = (exl2__image_prompt){ 0 };
}

/* The slot of the k-th picture of a prompt: those of its messages in order, or its own. */
EXL2__PRIVATE const exl2_image *exl2__image_prompt_at(const exl2_prompt *given, uint64_t k)
{
    for (size_t i = 0; given->messages && i < given->message_count; i++) {
        if (k < given->messages[i].image_count) {
            return &given->messages[i].images[k];
        }
        k -= given->messages[i].image_count;
    }
    return k < given->image_count ? &given->images[k] : NULL;
}

/* Finds the pictures of a prompt. *out has none if the prompt has none. */
EXL2__PRIVATE exl2_result exl2__image_prompt_open(exl2_engine *e, exl2__model *m, const exl2_prompt *given,
                                                  exl2__image_prompt *out)
{
    uint64_t count = exl2__min64(given->image_count, EXL2__IMAGE_PROMPT_MAX + 1);
    *out = (exl2__image_prompt){ 0 };
    for (size_t i = 0; given->messages && i < given->message_count; i++) {
        const exl2_message *message = &given->messages[i];
        if (message->image_count && !message->images) {
            return exl2__fail(&e->ctx, EXL2_ERR_ARG, "message %zu has %zu pictures, but images is NULL", i,
                              message->image_count);
        }
        count += exl2__min64(message->image_count, EXL2__IMAGE_PROMPT_MAX + 1);
    }
    if (count == 0) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__images_check(e, m, false));
    if ((given->image_count && !given->images) || count > EXL2__IMAGE_PROMPT_MAX ||
        (given->image_count && given->messages)) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG,
                          given->image_count && given->messages
                              ? "the prompt has messages: its pictures belong to them, not to the prompt"
                          : count > EXL2__IMAGE_PROMPT_MAX ? "the prompt has more than 4,096 pictures"
                                                           : "the prompt has pictures, but images is NULL");
    }
    out->slots = m->images.prompt_slots;
    out->count = (uint32_t)count;
    for (uint32_t i = 0; i < out->count; i++) {
        exl2__model *other = NULL;
        exl2_image handle = *exl2__image_prompt_at(given, i);
        const exl2__image *image = exl2__images_handle(e, handle, &other);
        exl2_result r = !image       ? exl2__objects_stale(e, "image", handle.id)
                        : other != m ? exl2__fail(&e->ctx, EXL2_ERR_ARG, "picture %u belongs to another model", i)
                                     : EXL2_OK;
        const exl2__image_data *data = image && other == m ? &m->images.data[image->picture] : NULL;
        if (data && data->result < 0) {
            r = exl2__fail(&e->ctx, data->result, "%s", data->error);
        }
        if (r < 0) {
            exl2__image_prompt_close(e, out);
            return r;
        }
        out->slots[i] = image->picture;
        out->rows += data->size.rows;
    }
    return EXL2_OK;
}

/* A text with marks that stand for pictures. */
typedef struct exl2__image_source {
    const char *text;
    size_t bytes;
    const uint8_t *from_message; /* a bit for each byte that a message gave; NULL: none */
    bool plain;                  /* its bytes form no special tokens, so it has no marks */
} exl2__image_source;

/* A mark in a text: bytes [at, end) of it stand for a picture or a video. */
typedef struct exl2__image_place {
    size_t at, end;
    bool video;
} exl2__image_place;

/* Whether `mark`, which is not of a message, stands at `at`. */
static inline bool exl2__image_prompt_is(const exl2__image_source *s, const char *mark, size_t at)
{
    size_t length = mark ? strlen(mark) : 0;
    bool same = length > 0 && at + length <= s->bytes && s->text[at] == mark[0];
    same = same && memcmp(s->text + at, mark, length) == 0;
    for (size_t i = at; same && s->from_message && i < at + length; i++) {
        same = !(s->from_message[i / 8] >> (i % 8) & 1);
    }
    return same;
}

/* The next mark from `from` on; at = s->bytes: there is none. A video whose pairs of frames have marks of their own
   takes the place of those around its mark, too. */
EXL2__PRIVATE exl2__image_place exl2__image_prompt_mark(const exl2__image_source *s, const exl2__vision_config *v,
                                                        size_t from)
{
    const exl2__vision_marks *marks = &v->marks;
    size_t open = strlen(marks->open);
    for (size_t at = from; at < s->bytes; at++) {
        bool video = exl2__image_prompt_is(s, marks->video, at);
        if (!video && !exl2__image_prompt_is(s, marks->mark, at)) {
            continue;
        }
        exl2__image_place p = { at, at + strlen(video ? marks->video : marks->mark), video };
        if (video && v->row->video_apart && at - from >= open && exl2__image_prompt_is(s, marks->open, at - open)
            && exl2__image_prompt_is(s, marks->close, p.end)) {
            p.at -= open;
            p.end += strlen(marks->close);
        }
        return p;
    }
    return (exl2__image_place){ s->bytes, s->bytes, false };
}

/* Number of marks in the text. */
static inline uint64_t exl2__image_prompt_marks(const exl2__image_source *s, const exl2__vision_config *v)
{
    exl2__image_place place = { 0, 0, false };
    uint64_t count = 0;
    while (!s->plain && (place = exl2__image_prompt_mark(s, v, place.end)).at < s->bytes) {
        count++;
    }
    return count;
}

/* Fails if a mark is of the other kind than its picture, number k from 0. */
EXL2__PRIVATE exl2_result exl2__image_prompt_kind(exl2_engine *e, const exl2__model *m, const exl2__image_prompt *p,
                                                  uint32_t k, bool video)
{
    const exl2__vision_marks *marks = &m->images.config.marks;
    bool is_video = m->images.data[p->slots[k]].size.frames > 0;
    return is_video == video ? EXL2_OK
                             : exl2__fail(&e->ctx, EXL2_ERR_ARG, "mark %u of the prompt is '%s', but its picture is %s",
                                          k + 1, video ? marks->video : marks->mark,
                                          is_video ? "a video" : "not a video");
}

EXL2__PRIVATE exl2_result exl2__image_prompt_disagree(exl2_engine *e, const exl2__model *m, uint64_t marks,
                                                      uint32_t count, bool rendered)
{
    return exl2__fail(&e->ctx, EXL2_ERR_ARG, "the prompt has %llu marks for pictures ('%s') and %u pictures%s",
                      (unsigned long long)marks, m->images.config.marks.mark, count,
                      rendered && marks < count ? ": the chat template writes no mark for parts; use another template, "
                                                  "or a text with marks"
                                                : "");
}

/* Writes bytes [from, end) of the text, with the bits that say which of them form no marks. */
static inline void exl2__image_put_text(exl2__image_writer *w, const exl2__image_source *s, size_t from, size_t end)
{
    for (size_t i = from; w->from_message && (s->from_message || s->plain) && i < end; i++) {
        uint64_t bit = w->used + (i - from);
        bool marked = s->plain || (s->from_message[i / 8] >> (i % 8) & 1);
        w->from_message[bit / 8] = (uint8_t)(w->from_message[bit / 8] | (unsigned)marked << (bit % 8));
    }
    exl2__image_put(w, s->text + from, end - from);
}

/* Writes the text with what stands for the pictures: in the place of its marks or, if it has none, before it. */
EXL2__PRIVATE exl2_result exl2__image_prompt_write(exl2_engine *e, const exl2__model *m, const exl2__image_prompt *p,
                                                   const exl2__image_source *s, bool before, exl2__image_writer *w)
{
    const exl2__vision_config *v = &m->images.config;
    exl2__image_place place = { 0, 0, false };
    size_t from = 0;
    w->used = 0;
    for (uint32_t i = 0; i < p->count; i++, from = place.end) {
        const exl2__vision_size *size = &m->images.data[p->slots[i]].size;
        bool around = before && !(size->frames && v->row->video_apart);
        if (!before) {
            place = exl2__image_prompt_mark(s, v, from);
            EXL2__TRY(exl2__image_prompt_kind(e, m, p, i, place.video));
        }
        exl2__image_put_text(w, s, from, place.at);
        exl2__image_puts(w, around ? v->marks.open : "");
        exl2__image_put_picture(w, v, size);
        exl2__image_puts(w, around ? v->marks.close : "");
    }
    exl2__image_put_text(w, s, from, s->bytes);
    return EXL2_OK;
}

/* Gives a writer that has counted its bytes memory for them and their bits: the model's, or a block of its own. */
EXL2__PRIVATE exl2_result exl2__image_prompt_room(exl2_engine *e, exl2__model *m, exl2__image_prompt *p,
                                                  exl2__image_writer *w)
{
    if (w->used >= EXL2__ENCODE_BYTES_MAX) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG,
                          "the prompt's text has %llu bytes with its pictures, at most %u can be tokenized at once",
                          (unsigned long long)w->used, EXL2__ENCODE_BYTES_MAX - 1);
    }
    uint64_t all = w->used + w->used / 8 + 2;
    w->data = m->images.prompt_text;
    if (all > EXL2__IMAGE_PROMPT_BYTES) {
        EXL2__TRY(exl2__alloc(&e->ctx, all, 1, EXL2_MEM_GENERAL, &p->block));
        p->block_bytes = all;
        w->data = (char *)p->block;
    }
    memset(w->data, 0, (size_t)all);
    w->from_message = (uint8_t *)w->data + w->used;
    return EXL2_OK;
}

/* Replaces the text of p by one with what stands for its pictures. rendered: it comes from a template; else a text
   without marks has the pictures before it. plain: it forms no special tokens. A text without pictures stays. */
EXL2__PRIVATE exl2_result exl2__image_prompt_text(exl2_engine *e, exl2__model *m, exl2__image_prompt *p, bool rendered,
                                                  bool plain)
{
    const exl2__image_source source = { p->text, p->bytes, p->from_message, plain };
    uint64_t found = exl2__image_prompt_marks(&source, &m->images.config);
    bool before = !rendered && found == 0;
    if (p->count == 0 && found == 0) {
        return EXL2_OK;
    }
    if (!before && found != p->count) {
        return exl2__image_prompt_disagree(e, m, found, p->count, rendered);
    }
    exl2__image_writer w = { 0 };
    EXL2__TRY(exl2__image_prompt_write(e, m, p, &source, before, &w)); /* counts */
    EXL2__TRY(exl2__image_prompt_room(e, m, p, &w));
    EXL2__TRY(exl2__image_prompt_write(e, m, p, &source, before, &w));
    p->text = w.data;
    p->bytes = (size_t)w.used;
    p->from_message = w.from_message;
    return EXL2_OK;
}

/* Is the id that of a row of a picture, or of a video? */
static inline bool exl2__image_prompt_is_row(const exl2__images *g, uint32_t id)
{
    return id == (uint32_t)g->row_token || (g->video_token >= 0 && id == (uint32_t)g->video_token);
}

/* Puts words of rows in the place of the ids of rows. */
EXL2__PRIVATE exl2_result exl2__image_prompt_words(exl2_engine *e, exl2__model *m, const exl2__image_prompt *p,
                                                   uint32_t *ids, uint32_t count)
{
    const exl2__images *g = &m->images;
    uint32_t picture = 0, row = 0;
    uint64_t rows = 0;
    for (uint32_t i = 0; i < count; i++) {
        rows += exl2__image_prompt_is_row(g, ids[i]);
    }
    if (rows != p->rows) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG,
                          "the prompt has %llu rows of pictures ('%s'), but its pictures have %llu",
                          (unsigned long long)rows, m->images.config.marks.row, (unsigned long long)p->rows);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (exl2__image_prompt_is_row(g, ids[i])) {
            ids[i] = exl2__pictures_word(p->slots[picture], row++);
            bool last = row == m->images.data[p->slots[picture]].size.rows;
            picture += last;
            row = last ? 0 : row;
        }
    }
    return EXL2_OK;
}

/* The ids that stand for a picture. */
EXL2__PRIVATE exl2_result exl2__image_prompt_encode(exl2_engine *e, exl2__model *m, const exl2__vision_size *size,
                                                    exl2_token *out, size_t cap, size_t *need)
{
    exl2__image_writer w = { 0 };
    void *block = NULL;
    exl2__image_put_picture(&w, &m->images.config, size);
    uint64_t bytes = w.used;
    if (bytes > EXL2__IMAGE_PROMPT_BYTES) {
        EXL2__TRY(exl2__alloc(&e->ctx, bytes, 1, EXL2_MEM_GENERAL, &block));
    }
    w = (exl2__image_writer){ .data = block ? (char *)block : m->images.prompt_text };
    exl2__image_put_picture(&w, &m->images.config, size);
    exl2_result r = exl2__encode(&e->ctx, &m->vocab, w.data, (size_t)bytes, NULL, EXL2_TEXT_NO_BOS, out, cap, need);
    exl2__free(&e->ctx, block, bytes, EXL2_MEM_GENERAL);
    return r;
}

static inline bool exl2__image_prompt_is_mark(const exl2__images *g, exl2_token id)
{
    return id >= 0 && (id == g->mark_token || id == g->video_token);
}

/* A prompt of ids, with what stands for pictures in the place of marks. *count may exceed the room. */
EXL2__PRIVATE exl2_result exl2__image_prompt_ids(exl2_engine *e, exl2__model *m, const exl2__image_prompt *p,
                                                 const exl2_prompt *given, exl2_token *out, uint32_t cap,
                                                 uint64_t *count)
{
    const exl2__images *g = &m->images;
    uint64_t marks = 0, used = 0;
    for (size_t i = 0; i < given->token_count; i++) {
        marks += exl2__image_prompt_is_mark(g, given->tokens[i]);
    }
    if (marks != p->count) {
        return exl2__image_prompt_disagree(e, m, marks, p->count, false);
    }
    for (size_t i = 0, from = 0, k = 0; p->count > 0 && i < given->token_count; i++) {
        if (!exl2__image_prompt_is_mark(g, given->tokens[i])) {
            if (used < cap) {
                out[used] = given->tokens[i];
            }
            used++;
            continue;
        }
        bool video = given->tokens[i] != g->mark_token;
        EXL2__TRY(exl2__image_prompt_kind(e, m, p, (uint32_t)k, video));
        if (video && g->config.row->video_apart && i > from && i + 1 < given->token_count &&
            given->tokens[i - 1] == g->open_token && given->tokens[i + 1] == g->close_token) {
            used--; /* as exl2__image_prompt_mark */
            i++;
        }
        from = i + 1;
        size_t need = 0, room = used < cap ? (size_t)(cap - used) : 0;
        exl2_result r =
            exl2__image_prompt_encode(e, m, &g->data[p->slots[k++]].size, room ? out + used : NULL, room, &need);
        EXL2__TRY(r == EXL2_ERR_TOO_SMALL ? EXL2_OK : r);
        used += need;
    }
    *count = p->count ? used : given->token_count;
    return EXL2_OK;
}

/* Tokens of a prompt of this picture alone, without BOS. */
EXL2__PRIVATE exl2_result exl2__image_prompt_tokens(exl2_engine *e, exl2__model *m, const exl2__vision_size *size,
                                                    uint32_t *tokens)
{
    size_t need = 0;
    exl2_result r = exl2__image_prompt_encode(e, m, size, NULL, 0, &need);
    *tokens = (uint32_t)need;
    return r == EXL2_ERR_TOO_SMALL ? EXL2_OK : r;
}

#endif
#endif

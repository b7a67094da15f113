/* text_goldens.h: rows of encode, decode and stream goldens, each compared with the engine's tokenizer. */
#ifndef TEXT_GOLDENS_H
#define TEXT_GOLDENS_H

#include "text_rows.h"
#include "private/encode.h"
#include "private/stream.h"
#include "vocab_open.h"

typedef struct rows_state {
    exl2__ctx *c;
    exl2__vocab *v;
    const char *path;
} rows_state;

static inline size_t encode(rows_state *s, const char *text, size_t bytes, const uint8_t *marks, uint32_t flags,
                     exl2_token **out)
{
    size_t need, again;
    exl2__encode_marks from = { marks, NULL };
    exl2_result result = exl2__encode(s->c, s->v, text, bytes, &from, flags, NULL, 0, &need);
    CHECK(result == (need ? EXL2_ERR_TOO_SMALL : EXL2_OK));
    *out = malloc((need + 1) * sizeof **out);
    (*out)[need] = -7;
    CHECK(exl2__encode(s->c, s->v, text, bytes, &from, flags, *out, need, &again) == EXL2_OK);
    CHECK(again == need && (*out)[need] == -7);
    return need;
}

static inline void encode_row(void *user, const exl2__json *j, int line)
{
    rows_state *s = user;
    size_t bytes, wanted_count;
    char *text = rows_text(j, exl2__json_get(j, 0, "text"), &bytes);
    exl2_token *wanted = rows_ids(j, exl2__json_get(j, 0, "ids"), &wanted_count), *got;
    size_t skip = rows_flag(j, "add_bos") ? 1 : 0;
    CHECK(skip == 0 || (s->v->prefix_count == 1 && wanted_count > 0 && wanted[0] == s->v->bos));
    size_t count = encode(s, text, bytes, NULL, rows_flag(j, "special") ? 0 : EXL2_TEXT_PLAIN, &got);
    if (!CHECK(count == wanted_count - skip && memcmp(got, wanted + skip, count * sizeof *got) == 0)) {
        printf("    %s:%d: \"%s\"\n", s->path, line, text);
    }
    free(text);
    free(wanted);
    free(got);
}

static inline void check_row(rows_state *s, int line, const char *what, const char *got, size_t got_bytes,
                      const exl2__json *j, uint32_t wanted)
{
    size_t bytes;
    char *text = rows_text(j, wanted, &bytes);
    if (!CHECK(wanted && bytes == got_bytes && memcmp(text, got, bytes) == 0)) {
        printf("    %s:%d: %s is \"%.*s\"\n", s->path, line, what, (int)got_bytes, got);
    }
    free(text);
}

static inline void decode_row(void *user, const exl2__json *j, int line)
{
    rows_state *s = user;
    size_t count, need, again;
    exl2_token *ids = rows_ids(j, exl2__json_get(j, 0, "ids"), &count);
    bool skip = rows_flag(j, "skip_special");
    exl2_result result = exl2__stream_decode(s->v, ids, count, skip, NULL, 0, &need);
    CHECK(result == (need ? EXL2_ERR_TOO_SMALL : EXL2_OK));
    char *text = malloc(need + 1);
    text[need] = 'Z';
    CHECK(exl2__stream_decode(s->v, ids, count, skip, text, need, &again) == EXL2_OK);
    CHECK(again == need && text[need] == 'Z');
    check_row(s, line, "text", text, need, j, exl2__json_get(j, 0, "text"));
    free(text);
    free(ids);
}

static inline void stream_row(void *user, const exl2__json *j, int line)
{
    rows_state *s = user;
    size_t count, room = exl2__stream_room(s->v);
    exl2_token *ids = rows_ids(j, exl2__json_get(j, 0, "ids"), &count);
    exl2__stream stream;
    exl2__stream_make(&stream, !rows_flag(j, "skip_special"), false);
    char *text = malloc(room);
    uint32_t chunks = exl2__json_get(j, 0, "chunks"), chunk = exl2__json_first(j, chunks);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = exl2__stream_push(&stream, s->v, ids[i], text, room);
        CHECK(bytes <= room && exl2__unicode_valid(text, bytes) && chunk);
        check_row(s, line, "chunk", text, bytes, j, chunk);
        chunk = exl2__json_next(j, chunks, chunk);
    }
    CHECK(chunk == 0);
    check_row(s, line, "tail", text, exl2__stream_flush(&stream, text, room), j, exl2__json_get(j, 0, "tail"));
    CHECK_INT(exl2__stream_flush(&stream, text, room), 0);
    free(text);
    free(ids);
}

#endif

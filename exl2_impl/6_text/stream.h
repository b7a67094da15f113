/* stream.h: token ids -> text in whole code points, one id at a time or all at once.
   takes: ids, an open exl2__vocab.
   gives: exl2__stream with _make, _push, _flush, _pending, _room; exl2__decode.
   owns:  nothing; exl2__stream is plain data, a copy of it is a checkpoint.
   next:  stops.h */
#ifndef EXL2__STREAM_H
#define EXL2__STREAM_H

#include "vocab.h"

/* Zeroed: the start of a text, special tokens left out. */
typedef struct exl2__stream {
    bool show_special;  /* else they give no bytes, and those on both sides of one join */
    uint8_t held_bytes;
    char held[4];       /* the beginning of a code point: up to 3 bytes */
} exl2__stream;

typedef struct exl2__stream_out {
    char *data;
    size_t cap, used;   /* used goes on beyond cap */
} exl2__stream_out;

static inline void exl2__stream_make(exl2__stream *s, bool show_special)
{
    *s = (exl2__stream){ show_special, 0, { 0 } };
}

/* Bytes that are held back. */
static inline uint32_t exl2__stream_pending(const exl2__stream *s)
{
    return s->held_bytes;
}

/* Bytes that one push can give at most: all of a piece and of what was held as U+FFFD. Flush needs 3. */
static inline size_t exl2__stream_room(const exl2__vocab *v)
{
    return 3 * ((size_t)v->piece_bytes_max + 3);
}

static inline void exl2__stream_write(exl2__stream_out *out, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++, out->used++) {
        if (out->used < out->cap) {
            out->data[out->used] = text[i];
        }
    }
}

/* One byte more. A byte that cannot follow what is held turns that into one U+FFFD, and begins anew. */
static inline void exl2__stream_byte(exl2__stream *s, char byte, exl2__stream_out *out)
{
    s->held[s->held_bytes++] = byte;
    while (s->held_bytes) {
        uint32_t code, length = exl2__unicode_next(s->held, s->held_bytes, &code);
        if (code == EXL2__UNICODE_CUT) {
            return;
        }
        if (code == EXL2__UNICODE_BAD) {
            exl2__stream_write(out, EXL2__UNICODE_REPLACEMENT, 3);
        } else {
            exl2__stream_write(out, s->held, length);
        }
        s->held_bytes = (uint8_t)(s->held_bytes - length);
        memmove(s->held, s->held + length, s->held_bytes);
    }
}

static inline void exl2__stream_token(exl2__stream *s, const exl2__vocab *v, exl2_token id, exl2__stream_out *out)
{
    size_t bytes;
    bool special;
    const char *piece = exl2__vocab_piece(v, id, &bytes, &special);
    for (size_t i = 0; i < bytes && (s->show_special || !special); i++) {
        exl2__stream_byte(s, piece[i], out);
    }
}

/* Adds a token; writes what is now settled, in whole code points, and returns its bytes. cap: exl2__stream_room, else
   bytes beyond cap are lost and the result is above cap. Ids without a piece give nothing. */
static inline size_t exl2__stream_push(exl2__stream *s, const exl2__vocab *v, exl2_token id, char *out, size_t cap)
{
    exl2__stream_out sink = { out, cap, 0 };
    exl2__stream_token(s, v, id, &sink);
    return sink.used;
}

/* The end of the text: the beginning of a code point that is still held is one U+FFFD. */
static inline size_t exl2__stream_flush(exl2__stream *s, char *out, size_t cap)
{
    exl2__stream_out sink = { out, cap, 0 };
    if (s->held_bytes) {
        exl2__stream_write(&sink, EXL2__UNICODE_REPLACEMENT, 3);
    }
    s->held_bytes = 0;
    return sink.used;
}

/* Text of the ids, in valid UTF-8, up to cap bytes of it; *need: all of them. No NUL is added. EXL2_ERR_TOO_SMALL when
   cap is below *need (the error record stays as it is). */
static inline exl2_result exl2__decode(const exl2__vocab *v, const exl2_token *ids, size_t n, bool skip_special,
                                       char *out, size_t cap, size_t *need)
{
    exl2__stream stream;
    exl2__stream_make(&stream, !skip_special);
    exl2__stream_out sink = { out, cap, 0 };
    for (size_t i = 0; i < n; i++) {
        exl2__stream_token(&stream, v, ids[i], &sink);
    }
    if (stream.held_bytes) {
        exl2__stream_write(&sink, EXL2__UNICODE_REPLACEMENT, 3);
    }
    *need = sink.used;
    return sink.used > cap ? EXL2_ERR_TOO_SMALL : EXL2_OK;
}

#endif

/* stream.h: token ids -> text in whole code points, one id at a time or all at once.
   takes: ids, an open exl2__vocab.
   gives: exl2__stream with _make, _push, _flush, _pending, _room; exl2__stream_decode, exl2__stream_bytes.
   owns:  nothing; exl2__stream is plain data, and a copy of it is a checkpoint. */
#ifndef EXL2__STREAM_H
#define EXL2__STREAM_H

#include "vocab.h"

/* Zeroed: the start of a text, special tokens left out. */
typedef struct exl2__stream {
    bool show_special;  /* else special tokens give no bytes, and bytes before and after one can form a character */
    bool begun;         /* not at the beginning of the text: no space is stripped */
    bool single;        /* the held bytes are from raw-byte tokens: each invalid one becomes a U+FFFD */
    uint8_t stripped;   /* number of spaces stripped */
    uint8_t held_bytes;
    char held[4];       /* the beginning of a code point: up to 3 bytes */
} exl2__stream;

typedef struct exl2__stream_out {
    char *data;
    size_t cap, used;   /* used continues to grow beyond cap */
} exl2__stream_out;

/* `begun`: other text comes before, such as a prompt's. */
static inline void exl2__stream_make(exl2__stream *s, bool show_special, bool begun)
{
    *s = (exl2__stream){ show_special, begun, false, 0, 0, { 0 } };
}

/* Bytes that are held back. */
static inline uint32_t exl2__stream_pending(const exl2__stream *s)
{
    return s->held_bytes;
}

/* The most bytes that one push can write: a U+FFFD for each byte of a piece and each held byte. A flush can write 9. */
static inline size_t exl2__stream_room(const exl2__vocab *v)
{
    return 3 * ((size_t)v->piece_bytes_max + 3);
}

EXL2__NOINLINE
EXL2__PRIVATE void exl2__stream_write(exl2__stream_out *out, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++, out->used++) {
        if (out->used < out->cap) {
            out->data[out->used] = text[i];
        }
    }
}

/* Writes whole code points, without the spaces that the decoder strips at the beginning of the text. */
static inline void exl2__stream_release(exl2__stream *s, const exl2__vocab *v, exl2__stream_out *out, const char *text,
                                       size_t bytes)
{
    for (; !s->begun && bytes && *text == ' ' && s->stripped < v->strip; text++, bytes--) {
        s->stripped = (uint8_t)(s->stripped + (v->strip != EXL2__VOCAB_STRIP_FIRST));
    }
    s->begun = s->begun || bytes > 0 || s->stripped == v->strip;
    exl2__stream_write(out, text, bytes);
}

/* The first `bytes` held bytes cannot become a code point: writes one U+FFFD for them or, if `single`, one for each. */
static inline void exl2__stream_replace(exl2__stream *s, uint32_t bytes, exl2__stream_out *out)
{
    for (uint32_t i = 0; i < (s->single ? bytes : bytes > 0); i++) {
        exl2__stream_write(out, EXL2__UNICODE_REPLACEMENT, 3);
    }
    s->begun = s->begun || bytes > 0;
    s->held_bytes = (uint8_t)(s->held_bytes - bytes);
    memmove(s->held, s->held + bytes, s->held_bytes);
}

/* Adds a byte. If it cannot continue the held bytes, U+FFFD is written for them, and the byte begins a new code
   point. */
static inline void exl2__stream_byte(exl2__stream *s, const exl2__vocab *v, char byte, exl2__stream_out *out)
{
    s->held[s->held_bytes++] = byte;
    while (s->held_bytes) {
        uint32_t code, length = exl2__unicode_next(s->held, s->held_bytes, &code);
        if (code == EXL2__UNICODE_CUT) {
            return;
        }
        if (code == EXL2__UNICODE_BAD) {
            exl2__stream_replace(s, length, out);
        } else {
            exl2__stream_release(s, v, out, s->held, length);
            s->held_bytes = (uint8_t)(s->held_bytes - length);
            memmove(s->held, s->held + length, s->held_bytes);
        }
    }
}

/* The token's bytes, or NULL when it gives none. *raw: the token is a raw byte such as <0xE2>. */
static inline const char *exl2__stream_piece(const exl2__stream *s, const exl2__vocab *v, exl2_token id, size_t *bytes,
                                             bool *raw)
{
    bool special;
    const char *piece = exl2__vocab_piece(v, id, bytes, &special);
    *raw = piece && (v->pieces.flags[id] & EXL2__PIECES_RAW);
    return piece && (s->show_special || !special) ? piece : NULL;
}

static inline void exl2__stream_token(exl2__stream *s, const exl2__vocab *v, exl2_token id, exl2__stream_out *out)
{
    size_t bytes;
    bool raw;
    const char *piece = exl2__stream_piece(s, v, id, &bytes, &raw);
    if (piece == NULL) {
        return;
    }
    if (v->pieces.marked && !raw) {
        exl2__stream_replace(s, s->held_bytes, out);
        exl2__stream_release(s, v, out, piece, bytes);
        s->begun = s->begun || v->strip == EXL2__VOCAB_STRIP_FIRST;
        return;
    }
    s->single = raw;
    for (size_t i = 0; i < bytes; i++) {
        exl2__stream_byte(s, v, piece[i], out);
    }
}

/* Adds a token, writes the code points that are now complete, and returns their bytes. `cap` must be at least
   exl2__stream_room; else bytes beyond it are lost, and the result may be above it. Ids without a piece give
   nothing. */
static inline size_t exl2__stream_push(exl2__stream *s, const exl2__vocab *v, exl2_token id, char *out, size_t cap)
{
    exl2__stream_out sink = { out, cap, 0 };
    exl2__stream_token(s, v, id, &sink);
    return sink.used;
}

/* Ends the text. The beginning of a code point that is still held becomes one U+FFFD, or one for each raw byte. */
static inline size_t exl2__stream_flush(exl2__stream *s, char *out, size_t cap)
{
    exl2__stream_out sink = { out, cap, 0 };
    exl2__stream_replace(s, s->held_bytes, &sink);
    return sink.used;
}

/* Index of the first token after the run of raw bytes that begins at ids[at]. *valid: the whole run is valid UTF-8. */
static inline size_t exl2__stream_run(const exl2__stream *s, const exl2__vocab *v, const exl2_token *ids, size_t at,
                                      size_t n, bool *valid)
{
    char held[4];
    uint32_t count = 0, code = 0;
    *valid = true;
    for (; at < n; at++) {
        size_t bytes;
        bool raw;
        const char *piece = exl2__stream_piece(s, v, ids[at], &bytes, &raw);
        if (piece && !raw) {
            break;
        }
        if (piece && *valid) {
            held[count++] = *piece;
            exl2__unicode_next(held, count, &code);
            *valid = code != EXL2__UNICODE_BAD;
            count = code < EXL2__UNICODE_BAD ? 0 : count;
        }
    }
    *valid = *valid && count == 0;
    return at;
}

/* Writes the text of the ids in valid UTF-8, at most `cap` bytes, and its full size to *need. No NUL is added. If a run
   of raw bytes is not valid as a whole, each of its bytes becomes a U+FFFD, as in the library; a stream cannot look
   ahead and decides for each code point. EXL2_ERR_TOO_SMALL when cap is below *need (the error record stays as it
   is). */
static inline exl2_result exl2__stream_decode(const exl2__vocab *v, const exl2_token *ids, size_t n, bool skip_special,
                                       char *out, size_t cap, size_t *need)
{
    exl2__stream stream;
    exl2__stream_make(&stream, !skip_special, false);
    exl2__stream_out sink = { out, cap, 0 };
    size_t run_end = 0;
    bool valid = true;
    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        bool raw;
        const char *piece = exl2__stream_piece(&stream, v, ids[i], &bytes, &raw);
        if (piece && raw && i >= run_end) {
            run_end = exl2__stream_run(&stream, v, ids, i, n, &valid);
        }
        if (piece && raw && !valid) {
            stream.begun = true;
            exl2__stream_write(&sink, EXL2__UNICODE_REPLACEMENT, 3);
        } else {
            exl2__stream_token(&stream, v, ids[i], &sink);
        }
    }
    exl2__stream_replace(&stream, stream.held_bytes, &sink);
    *need = sink.used;
    return sink.used > cap ? EXL2_ERR_TOO_SMALL : EXL2_OK;
}

/* Writes the bytes of each id as they are: parts of characters, and spaces that the decoder would strip. Otherwise as
   exl2__stream_decode. */
static inline exl2_result exl2__stream_bytes(const exl2__vocab *v, const exl2_token *ids, size_t n, bool skip_special,
                                             char *out, size_t cap, size_t *need)
{
    exl2__stream stream;
    exl2__stream_make(&stream, !skip_special, true);
    exl2__stream_out sink = { out, cap, 0 };
    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        bool raw;
        const char *piece = exl2__stream_piece(&stream, v, ids[i], &bytes, &raw);
        exl2__stream_write(&sink, piece, piece ? bytes : 0);
    }
    *need = sink.used;
    return sink.used > cap ? EXL2_ERR_TOO_SMALL : EXL2_OK;
}

#endif

/* normal.h: the normalizer of tokenizer.json: steps that rewrite text before it is cut into words.
   takes: valid UTF-8, and a mark for each byte that comes from a message.
   gives: exl2__normal_rules, exl2__normal_text, exl2__normal_allowance, exl2__normal_run, exl2__normal_free.
   owns:  the rewritten text, until exl2__normal_free. Memory of the caller is used first. */
#ifndef EXL2__NORMAL_H
#define EXL2__NORMAL_H

#include "../../0_base/alloc.h"
#include "../../0_base/json/json.h"
#include "../unicode/lower.h"
#include "../unicode/nfc.h"
#include "regex_parse.h"

#define EXL2__NORMAL_STEPS_MAX 8
#define EXL2__NORMAL_NFC_GROWTH 3 /* NFC and NFD: most output bytes per input byte (U+0390, U+1D160) */
#define EXL2__NORMAL_NFKC_GROWTH 11 /* the same for NFKC and NFKD (U+FDFA) */

/* A Replace can multiply a text, and each of eight steps multiplies the result of the step before. So the result of
   every step is limited to 16 times the text. Real normalizers stay below: NFKC, with U+2581 for each space, makes at
   most 13 bytes of one. */
#define EXL2__NORMAL_TIMES 16
#define EXL2__NORMAL_EXTRA 4096
#define EXL2__NORMAL_BYTES_MAX ((1u << 30) - 1) /* regex.h cannot search longer texts */

typedef enum exl2__normal_kind {
    EXL2__NORMAL_PREPEND, /* puts `by` before text that is not empty */
    EXL2__NORMAL_REPLACE, /* replaces `text`, or every match of `regex`, by `by` */
    EXL2__NORMAL_LOWER,   /* upper case to lower case */
    EXL2__NORMAL_NFC,
    EXL2__NORMAL_NFD,
    EXL2__NORMAL_STRIP    /* removes white space at the ends */
} exl2__normal_kind;

typedef struct exl2__normal_step {
    exl2__normal_kind kind;
    bool left, right;           /* STRIP: at which ends */
    bool compatible;            /* NFC means NFKC, NFD means NFKD */
    const char *text, *by;
    uint32_t text_bytes, by_bytes;
    exl2__regex *regex;
} exl2__normal_step;

typedef struct exl2__normal_rules {
    exl2__normal_step steps[EXL2__NORMAL_STEPS_MAX];
    uint32_t count;
    bool needs_nfc, needs_nfkc;
    exl2__nfc nfc;
} exl2__normal_rules;

/* A buffer for rewritten text. Zeroed: no memory. */
typedef struct exl2__normal_text {
    char *text;
    uint8_t *marks; /* bit per byte, stored after the text; text made from a marked character is marked */
    size_t cap, used;
    bool borrowed;  /* the caller frees the memory */
} exl2__normal_text;

static inline uint64_t exl2__normal_bytes(size_t cap)
{
    return (uint64_t)cap + cap / 8 + 1;
}

static inline void exl2__normal_free(exl2__ctx *c, exl2__normal_text *t)
{
    if (t->text && !t->borrowed) {
        exl2__free(c, t->text, exl2__normal_bytes(t->cap), EXL2_MEM_GENERAL);
    }
    *t = (exl2__normal_text){ 0 };
}

/* A buffer for texts of up to `cap` bytes in the caller's memory, exl2__normal_bytes(cap) of it. */
static inline exl2__normal_text exl2__normal_borrow(char *memory, size_t cap)
{
    return (exl2__normal_text){ memory, NULL, memory ? cap : 0, 0, memory != NULL };
}

/* Makes room for `cap` bytes; the old text is lost. */
static inline exl2_result exl2__normal_reserve(exl2__ctx *c, exl2__normal_text *t, size_t cap)
{
    if (cap > t->cap) {
        void *memory;
        exl2__normal_free(c, t);
        EXL2__TRY(exl2__alloc(c, exl2__normal_bytes(cap), 1, EXL2_MEM_GENERAL, &memory));
        t->text = (char *)memory;
        t->cap = cap;
    }
    t->marks = (uint8_t *)t->text + t->cap;
    memset(t->marks, 0, t->cap / 8 + 1);
    t->used = 0;
    return EXL2_OK;
}

/* The limit for texts that have `bytes` bytes together. The constant allows for Prepend before a short text. */
static inline uint64_t exl2__normal_allowance(uint64_t bytes)
{
    uint64_t allowed = bytes * EXL2__NORMAL_TIMES + EXL2__NORMAL_EXTRA;
    return allowed < EXL2__NORMAL_BYTES_MAX ? allowed : EXL2__NORMAL_BYTES_MAX;
}

/* Appends. Text that does not fit is only counted. */
EXL2__NOINLINE
EXL2__PRIVATE void exl2__normal_put(exl2__normal_text *t, const char *text, size_t bytes, bool marked)
{
    if (t->used + bytes > t->cap) {
        t->used += bytes;
        return;
    }
    for (size_t i = 0; i < bytes; i++, t->used++) {
        t->text[t->used] = text[i];
        if (marked) {
            t->marks[t->used >> 3] = (uint8_t)(t->marks[t->used >> 3] | 1u << (t->used & 7));
        }
    }
}

/* Text between two steps. Bit marks_at of `marks` belongs to text[0]. */
typedef struct exl2__normal_view {
    const char *text;
    size_t bytes;
    const uint8_t *marks; /* NULL: no marks */
    size_t marks_at;
} exl2__normal_view;

static inline bool exl2__normal_marked(const exl2__normal_view *v, size_t at)
{
    size_t bit = v->marks_at + at;
    return v->marks && (v->marks[bit >> 3] >> (bit & 7) & 1);
}

/* Removes white space at the ends, without a copy. */
static inline void exl2__normal_strip(const exl2__normal_step *s, exl2__normal_view *v)
{
    uint32_t code;
    while (s->right && v->bytes) {
        size_t before = exl2__unicode_before(v->text, v->bytes);
        exl2__unicode_next(v->text + before, v->bytes - before, &code);
        if (exl2__unicode_class(code) != EXL2__UNICODE_SPACE) {
            break;
        }
        v->bytes = before;
    }
    while (s->left && v->bytes) {
        uint32_t length = exl2__unicode_next(v->text, v->bytes, &code);
        if (exl2__unicode_class(code) != EXL2__UNICODE_SPACE) {
            break;
        }
        v->text += length;
        v->bytes -= length;
        v->marks_at += length;
    }
}

/* Length of the match at `at` that is to be replaced, or 0. */
static inline size_t exl2__normal_hit(const exl2__normal_step *s, const exl2__normal_view *v, size_t at)
{
    if (s->regex) {
        return (size_t)(exl2__regex_match(s->regex, v->text + at) - (v->text + at));
    }
    return v->text[at] == s->text[0] && v->bytes - at >= s->text_bytes &&
           memcmp(v->text + at, s->text, s->text_bytes) == 0 ? s->text_bytes : 0;
}

/* Stops as soon as out->used is above `most`. */
EXL2__COLD
EXL2__PRIVATE void exl2__normal_replace(const exl2__normal_step *s, const exl2__normal_view *v, uint64_t most,
                                        exl2__normal_text *out)
{
    if (s->regex) {
        exl2__regex_begin(s->regex, v->text, v->bytes);
    }
    for (size_t at = 0; at < v->bytes && out->used <= most;) {
        uint32_t code;
        size_t hit = exl2__normal_hit(s, v, at);
        size_t length = hit ? hit : exl2__unicode_next(v->text + at, v->bytes - at, &code);
        bool marked = false; /* the replacement of a match with a marked byte is marked */
        for (size_t i = at; i < at + length; i++) {
            marked = marked || exl2__normal_marked(v, i);
        }
        exl2__normal_put(out, hit ? s->by : v->text + at, hit ? s->by_bytes : length, marked);
        at += length;
    }
}

static inline void exl2__normal_lower(const exl2__normal_view *v, exl2__normal_text *out)
{
    for (size_t at = 0; at < v->bytes;) {
        char utf8[8];
        uint32_t code, more, length = exl2__unicode_next(v->text + at, v->bytes - at, &code);
        uint32_t bytes = exl2__json_encode_utf8(exl2__lower(code, &more), utf8);
        bytes += more ? exl2__json_encode_utf8(more, utf8 + bytes) : 0;
        exl2__normal_put(out, utf8, bytes, exl2__normal_marked(v, at));
        at += length;
    }
}

/* Appends the normal form of one stretch. `codes` has room for 2 * EXL2__NFC_PER_BYTE code points per byte of text. */
EXL2__PRIVATE void exl2__normal_stretch(const exl2__nfc *n, bool compose, const char *text, size_t bytes, bool marked,
                                        uint32_t *codes, exl2__normal_text *out)
{
    size_t count = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t code;
        at += exl2__unicode_next(text + at, bytes - at, &code);
        count += exl2__nfc_decompose(n, code, codes + count);
    }
    exl2__nfc_order(n, codes, count, codes + count);
    count = compose ? exl2__nfc_compose(n, codes, count) : count;
    for (size_t i = 0; i < count; i++) {
        char utf8[4];
        exl2__normal_put(out, utf8, exl2__json_encode_utf8(codes[i], utf8), marked);
    }
}

/* Appends the normal form of the whole text. */
EXL2__COLD
EXL2__PRIVATE exl2_result exl2__normal_form(exl2__ctx *c, const exl2__nfc *n, bool compose, const exl2__normal_view *v,
                                            exl2__normal_text *out)
{
    uint32_t own[64 * 2 * EXL2__NFC_PER_BYTE];
    bool plain;
    for (size_t at = 0, length; at < v->bytes; at += length) {
        length = exl2__nfc_stretch(n, v->text + at, v->bytes - at, &plain);
        if (plain) {
            for (size_t i = at; i < at + length; i++) {
                exl2__normal_put(out, v->text + i, 1, exl2__normal_marked(v, i));
            }
            continue;
        }
        bool marked = false;
        for (size_t i = at; i < at + length; i++) {
            marked = marked || exl2__normal_marked(v, i);
        }
        void *codes = own;
        uint64_t bytes = (uint64_t)length * 2 * EXL2__NFC_PER_BYTE * sizeof own[0];
        if (length > 64) {
            EXL2__TRY(exl2__alloc(c, bytes, sizeof own[0], EXL2_MEM_GENERAL, &codes));
        }
        exl2__normal_stretch(n, compose, v->text + at, length, marked, (uint32_t *)codes, out);
        if (codes != own) {
            exl2__free(c, codes, bytes, EXL2_MEM_GENERAL);
        }
    }
    return EXL2_OK;
}

/* The most bytes that the step can make of *v. For Replace they are counted; counting stops once they are more than
   `most`. */
static inline uint64_t exl2__normal_growth(const exl2__normal_step *s, const exl2__normal_view *v, uint64_t most)
{
    exl2__normal_text count = { 0 };
    switch (s->kind) {
    case EXL2__NORMAL_REPLACE:
        exl2__normal_replace(s, v, most, &count);
        return count.used;
    case EXL2__NORMAL_LOWER:
        return (uint64_t)v->bytes * EXL2__LOWER_GROWTH;
    case EXL2__NORMAL_PREPEND:
        return (uint64_t)v->bytes + s->by_bytes;
    default:
        return (uint64_t)v->bytes * (s->compatible ? EXL2__NORMAL_NFKC_GROWTH : EXL2__NORMAL_NFC_GROWTH);
    }
}

/* Whether the view's text lies in the buffer, perhaps not at its beginning, as Strip moves that. */
static inline bool exl2__normal_inside(const exl2__normal_text *t, const exl2__normal_view *v)
{
    uintptr_t at = (uintptr_t)v->text, begin = (uintptr_t)t->text;
    return t->text && at >= begin && at <= begin + t->cap;
}

/* Runs all steps over *v, which then points into its own text or one of the two buffers. *allowed, at first from
   exl2__normal_allowance, is how many bytes a step may still produce. The size of the largest step's result is
   subtracted from it, so that many texts can share one allowance. Fails with FORMAT when the allowance is exceeded. */
EXL2__COLD
EXL2__PRIVATE exl2_result exl2__normal_run(exl2__ctx *c, const exl2__normal_rules *rules, exl2__normal_text buffers[2],
                                           exl2__normal_view *v, uint64_t *allowed)
{
    uint64_t largest = v->bytes;
    for (uint32_t i = 0; i < rules->count; i++) {
        const exl2__normal_step *s = &rules->steps[i];
        if (s->kind == EXL2__NORMAL_STRIP) {
            exl2__normal_strip(s, v);
            continue;
        }
        exl2__normal_text *out = &buffers[exl2__normal_inside(&buffers[0], v)];
        bool form = s->kind == EXL2__NORMAL_NFC || s->kind == EXL2__NORMAL_NFD, plain;
        exl2__nfc nfc = rules->nfc;
        nfc.compatible.codes = s->compatible ? nfc.compatible.codes : NULL;
        if (form && (v->bytes == 0 ||
                     (exl2__nfc_stretch(&nfc, v->text, v->bytes, &plain) == v->bytes && plain))) {
            continue;
        }
        uint64_t room = exl2__normal_growth(s, v, *allowed);
        room = room < *allowed ? room : *allowed; /* exl2__normal_put only counts what does not fit */
        EXL2__TRY(exl2__normal_reserve(c, out, (size_t)room + 1));
        if (form) {
            EXL2__TRY(exl2__normal_form(c, &nfc, s->kind == EXL2__NORMAL_NFC, v, out));
        } else if (s->kind == EXL2__NORMAL_LOWER) {
            exl2__normal_lower(v, out);
        } else if (s->kind == EXL2__NORMAL_REPLACE) {
            exl2__normal_replace(s, v, *allowed, out);
        } else {
            exl2__normal_put(out, s->by, v->bytes ? s->by_bytes : 0, false);
            for (size_t at = 0; at < v->bytes; at++) {
                exl2__normal_put(out, v->text + at, 1, exl2__normal_marked(v, at));
            }
        }
        largest = out->used > largest ? out->used : largest;
        if (largest > *allowed) {
            return exl2__fail(c, EXL2_ERR_FORMAT,
                              "tokenizer.json: the normalizer makes too much of a text: it reads and writes more "
                              "than the allowed %llu bytes", (unsigned long long)*allowed);
        }
        *v = (exl2__normal_view){ out->text, out->used, v->marks ? out->marks : NULL, 0 };
    }
    *allowed -= largest < *allowed ? largest : *allowed;
    return EXL2_OK;
}

#endif

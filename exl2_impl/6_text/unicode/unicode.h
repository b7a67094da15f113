/* unicode.h: decodes UTF-8 one code point at a time, and gives the character classes by which text is split into words.
   takes: untrusted bytes, code points.
   gives: exl2__unicode_next, exl2__unicode_valid, exl2__unicode_class, and masks of classes. */
#ifndef EXL2__UNICODE_H
#define EXL2__UNICODE_H

#include "unicode_table.h"

/* ---- UTF-8 ---- */

#define EXL2__UNICODE_BAD 0x110000u /* bytes that can never become a code point */
#define EXL2__UNICODE_CUT 0x110001u /* the data ends within a code point */
#define EXL2__UNICODE_REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD replaces BAD and, at the end of a text, CUT */

/* exl2__unicode_next for bytes that are not ASCII. */
EXL2__NOINLINE
EXL2__PRIVATE uint32_t exl2__unicode_long(const char *text, size_t bytes, uint32_t *code)
{
    const uint8_t *p = (const uint8_t *)text;
    uint8_t lead = p[0];
    if (lead < 0xC2 || lead > 0xF4) {
        *code = EXL2__UNICODE_BAD;
        return 1;
    }
    uint32_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    uint32_t value = lead & (0x7Fu >> length);
    /* the limits of the second byte exclude overlong forms, surrogates and values above U+10FFFF */
    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    for (uint32_t i = 1; i < length; i++) {
        if (i == bytes) {
            *code = EXL2__UNICODE_CUT;
            return i;
        }
        if (p[i] < low || p[i] > high) {
            *code = EXL2__UNICODE_BAD;
            return i;
        }
        value = value << 6 | (p[i] & 0x3Fu);
        low = 0x80;
        high = 0xBF;
    }
    *code = value;
    return length;
}

/* Length of the code point at text[0], or of the maximal invalid part (Unicode 3.9, U+FFFD substitution): F0 9F 99 41
   is BAD of 3 bytes, C0 80 is BAD of 1, F0 9F is CUT of 2. `bytes` > 0; the result is 1..4. */
static inline uint32_t exl2__unicode_next(const char *text, size_t bytes, uint32_t *code)
{
    *code = (uint8_t)*text;
    return *code < 0x80 ? 1 : exl2__unicode_long(text, bytes, code);
}

static inline bool exl2__unicode_valid(const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        uint32_t code;
        at += exl2__unicode_next(text + at, bytes - at, &code);
        if (code >= EXL2__UNICODE_BAD) {
            return false;
        }
    }
    return true;
}

/* Start of the code point that ends at text[at], in valid UTF-8; at > 0. */
static inline size_t exl2__unicode_before(const char *text, size_t at)
{
    do {
        at--;
    } while (at > 0 && ((uint8_t)text[at] & 0xC0) == 0x80);
    return at;
}

/* ---- classes ---- */

/* The first 16 are single bits, so that a mask is a set of classes. They are general categories, split where \w
   contains only a part of one. The last four are such masks. */
typedef enum exl2__unicode_kind {
    EXL2__UNICODE_OTHER = 1,             /* controls, unassigned */
    EXL2__UNICODE_WORD_OTHER = 1 << 1,   /* U+200C, U+200D */
    EXL2__UNICODE_UPPER = 1 << 2,        /* \p{Lu} */
    EXL2__UNICODE_LOWER = 1 << 3,        /* \p{Ll} */
    EXL2__UNICODE_TITLE = 1 << 4,        /* \p{Lt} */
    EXL2__UNICODE_MODIFIER = 1 << 5,     /* \p{Lm} */
    EXL2__UNICODE_CASELESS = 1 << 6,     /* \p{Lo} */
    EXL2__UNICODE_MARK = 1 << 7,         /* \p{M} */
    EXL2__UNICODE_DIGIT = 1 << 8,        /* \p{Nd} */
    EXL2__UNICODE_LETTER_NUMBER = 1 << 9, /* \p{N} that is also \w: U+2167 */
    EXL2__UNICODE_NUMERAL = 1 << 10,     /* \p{N} that is not \w: U+00BD, U+00B2 */
    EXL2__UNICODE_PUNCTUATION = 1 << 11, /* \p{P} without \p{Pc} */
    EXL2__UNICODE_CONNECTOR = 1 << 12,   /* \p{Pc}: '_' */
    EXL2__UNICODE_SYMBOL = 1 << 13,      /* \p{S} without the next */
    EXL2__UNICODE_WORD_SYMBOL = 1 << 14, /* \p{S} that is also \w: U+24B6 */
    EXL2__UNICODE_SPACE = 1 << 15,       /* \s */
    EXL2__UNICODE_LETTER = 0x7C,         /* \p{L} */
    EXL2__UNICODE_NUMBERS = 0x700,       /* \p{N} */
    EXL2__UNICODE_SIGNS = 0x7883,        /* [^\s\p{L}\p{N}] */
    EXL2__UNICODE_WORD = 0x53FE          /* \w */
} exl2__unicode_kind;

EXL2__NOINLINE
EXL2__PRIVATE uint32_t exl2__unicode_class_search(uint32_t code)
{
    if (code >= 0x20000) {
        uint32_t at = (uint32_t)EXL2__COUNT(exl2__unicode_high) - 1;
        while (exl2__unicode_high[at] >> 5 > code) {
            at--;
        }
        return 1u << (exl2__unicode_high[at] & 31);
    }
    const uint8_t *run = exl2__unicode_stream + exl2__unicode_blocks[code >> 8];
    uint32_t left = code & 255, kind, length;
    for (;; left -= length) {
        kind = *run & 31;
        length = *run++ >> 5;
        if (length == 0) {
            length = *run++ + 1u;
        }
        if (left < length) {
            break;
        }
    }
    return kind < 16 ? 1u << kind : (code & 1) == kind - 16 ? EXL2__UNICODE_UPPER : EXL2__UNICODE_LOWER;
}

/* One of the 16 single bits of exl2__unicode_kind; BAD and CUT are OTHER. */
static inline uint32_t exl2__unicode_class(uint32_t code)
{
    static const uint8_t ascii[128] = { /* number of the bit */
        0, 0, 0, 0, 0, 0, 0, 0, 0, 15, 15, 15, 15, 15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        15, 11, 11, 11, 13, 11, 11, 11, 11, 11, 11, 13, 11, 11, 11, 11,
        8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 11, 11, 13, 13, 13, 11,
        11, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 11, 11, 11, 13, 12,
        13, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 11, 13, 11, 13, 0
    };
    return code < 0x80 ? 1u << ascii[code] : exl2__unicode_class_search(code);
}

/* Line and column, from 1, of an offset in a text; columns count code points. */
static inline void exl2__unicode_place(const char *text, size_t at, uint32_t *line, uint32_t *column)
{
    *line = 1;
    *column = 1;
    for (size_t i = 0; i < at; i++) {
        if (text[i] == '\n') {
            (*line)++;
            *column = 1;
        } else {
            *column += ((uint8_t)text[i] & 0xC0) != 0x80;
        }
    }
}

#endif

/* words.h: cuts text into the words that byte-pair merging works on; hand-written scanners in place of the regular
   expressions of tokenizer.json (leftmost match, ordered alternatives, as Oniguruma runs them).
   takes: valid UTF-8, the rules that vocab_rules.h read.
   gives: exl2__words_rules, exl2__words, exl2__words_next.
   owns:  nothing; words point into the text.
   next:  pieces.h */
#ifndef EXL2__WORDS_H
#define EXL2__WORDS_H

#include "unicode.h"

typedef enum exl2__words_split {
    EXL2__WORDS_WHOLE,       /* no first step */
    EXL2__WORDS_DIGITS,      /* Digits(individual_digits = true) */
    EXL2__WORDS_DIGIT_RUNS,  /* Digits(individual_digits = false) */
    EXL2__WORDS_CL100K       /* Split with one of the two patterns below, Isolated */
} exl2__words_split;

/* The pre-tokenizer: a first step makes pieces, ByteLevel works on each of them. */
typedef struct exl2__words_rules {
    exl2__words_split split;
    uint32_t digits_max;  /* CL100K: digits in a word */
    bool gpt2;            /* ByteLevel.use_regex: cut pieces with GPT-2's pattern, else a piece is a word */
    bool prefix_space;    /* ByteLevel.add_prefix_space: put ' ' before a piece that does not begin with one */
} exl2__words_rules;

#define EXL2__WORDS_CL100K_HEAD "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define EXL2__WORDS_CL100K_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define EXL2__WORDS_LLAMA3 EXL2__WORDS_CL100K_HEAD "\\p{N}{1,3}" EXL2__WORDS_CL100K_TAIL /* digits_max 3 */
#define EXL2__WORDS_QWEN2 EXL2__WORDS_CL100K_HEAD "\\p{N}" EXL2__WORDS_CL100K_TAIL       /* digits_max 1 */

/* ---- scanning; p..end is valid UTF-8 ---- */

/* Class of the code point at p, p < end. */
static inline uint32_t exl2__words_class(const char *p, const char *end, uint32_t *bytes)
{
    uint32_t code;
    *bytes = exl2__unicode_next(p, (size_t)(end - p), &code);
    return exl2__unicode_class(code);
}

/* End of the longest run of code points whose class is in `mask`. */
static inline const char *exl2__words_run(const char *p, const char *end, uint32_t mask)
{
    uint32_t bytes;
    while (p < end && (exl2__words_class(p, end, &bytes) & mask)) {
        p += bytes;
    }
    return p;
}

static inline const char *exl2__words_newlines(const char *p, const char *end)
{
    while (p < end && (*p == '\r' || *p == '\n')) {
        p++;
    }
    return p;
}

/* \s+(?!\S)|\s+ at whitespace: all of it at the end of the text, else all but its last character, which the next word
   may want; a single one as it is. `lead`: a space that is not in the text comes before p. */
static inline const char *exl2__words_space_end(const char *p, const char *end, bool lead)
{
    const char *e = exl2__words_run(p, end, EXL2__UNICODE_SPACE);
    if (e == end) {
        return e;
    }
    const char *last = p + exl2__unicode_before(p, (size_t)(e - p));
    return last == p && !lead ? e : last;
}

/* Bytes of 's 't 're 've 'm 'll 'd at p, or 0. any_case also takes capitals and U+017F, which folds to s. */
static inline uint32_t exl2__words_contraction(const char *p, const char *end, bool any_case)
{
    if (end - p < 2 || p[0] != '\'') {
        return 0;
    }
    char fold = any_case ? 32 : 0;
    char a = (char)(p[1] | fold), b = end - p > 2 ? (char)(p[2] | fold) : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') {
        return 2;
    }
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) {
        return 3;
    }
    return any_case && end - p > 2 && memcmp(p + 1, "\xC5\xBF", 2) == 0 ? 3 : 0;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static inline const char *exl2__words_gpt2(const char *p, const char *end, bool lead)
{
    uint32_t contraction = lead ? 0 : exl2__words_contraction(p, end, false);
    if (contraction) {
        return p + contraction;
    }
    const char *q = !lead && *p == ' ' ? p + 1 : p;
    if (q < end) {
        uint32_t bytes, kind = exl2__words_class(q, end, &bytes);
        if (kind != EXL2__UNICODE_SPACE) {
            uint32_t mask = kind & EXL2__UNICODE_NUMBERS ? EXL2__UNICODE_NUMBERS
                          : kind & EXL2__UNICODE_SIGNS ? EXL2__UNICODE_SIGNS : EXL2__UNICODE_LETTER;
            return exl2__words_run(q + bytes, end, mask);
        }
    }
    return exl2__words_space_end(p, end, lead);
}

static inline const char *exl2__words_cl100k(const char *p, const char *end, uint32_t digits_max)
{
    uint32_t contraction = exl2__words_contraction(p, end, true);
    if (contraction) {
        return p + contraction;
    }
    uint32_t bytes, kind = exl2__words_class(p, end, &bytes);
    if (kind == EXL2__UNICODE_LETTER) {
        return exl2__words_run(p, end, EXL2__UNICODE_LETTER);
    }
    if (kind & EXL2__UNICODE_NUMBERS) {
        for (uint32_t n = 0; n < digits_max && p < end; n++) {
            if (!(exl2__words_class(p, end, &bytes) & EXL2__UNICODE_NUMBERS)) {
                break;
            }
            p += bytes;
        }
        return p;
    }
    bool newline = *p == '\r' || *p == '\n';
    if (!newline && p + bytes < end) {
        uint32_t next_bytes;
        if (exl2__words_class(p + bytes, end, &next_bytes) == EXL2__UNICODE_LETTER) {
            return exl2__words_run(p + bytes, end, EXL2__UNICODE_LETTER);
        }
    }
    const char *q = *p == ' ' ? p + 1 : p;
    const char *signs = exl2__words_run(q, end, EXL2__UNICODE_SIGNS);
    if (signs > q) {
        return exl2__words_newlines(signs, end);
    }
    /* \s*[\r\n]+ ends behind the last newline of the whitespace */
    const char *spaces = exl2__words_run(p, end, EXL2__UNICODE_SPACE);
    for (const char *s = spaces; s > p; s--) {
        if (s[-1] == '\r' || s[-1] == '\n') {
            return s;
        }
    }
    return exl2__words_space_end(p, end, false);
}

/* ---- the walk ---- */

typedef struct exl2__words {
    const exl2__words_rules *rules;
    const char *at, *piece_end, *end;
    bool lead;  /* the piece's first word gets a space that is not in the text */
} exl2__words;

typedef struct exl2__word {
    const char *text;
    size_t bytes;
    bool lead;  /* ' ' comes before text; bytes may then be 0 */
} exl2__word;

/* Zeroes of `bytes` give no words. */
static inline exl2__words exl2__words_of(const exl2__words_rules *rules, const char *text, size_t bytes)
{
    exl2__words w = { rules, text, text, text + bytes, false };
    return w;
}

static inline const char *exl2__words_piece_end(const exl2__words_rules *r, const char *p, const char *end)
{
    if (r->split == EXL2__WORDS_WHOLE) {
        return end;
    }
    if (r->split == EXL2__WORDS_CL100K) {
        return exl2__words_cl100k(p, end, r->digits_max);
    }
    uint32_t bytes;
    if (!(exl2__words_class(p, end, &bytes) & EXL2__UNICODE_NUMBERS)) {
        return exl2__words_run(p, end, ~(uint32_t)EXL2__UNICODE_NUMBERS);
    }
    return r->split == EXL2__WORDS_DIGITS ? p + bytes : exl2__words_run(p, end, EXL2__UNICODE_NUMBERS);
}

/* false behind the last word. */
static inline bool exl2__words_next(exl2__words *w, exl2__word *out)
{
    if (w->at == w->end) {
        return false;
    }
    if (w->at == w->piece_end) {
        w->piece_end = exl2__words_piece_end(w->rules, w->at, w->end);
        w->lead = w->rules->prefix_space && *w->at != ' ';
    }
    const char *begin = w->at;
    w->at = w->rules->gpt2 ? exl2__words_gpt2(begin, w->piece_end, w->lead) : w->piece_end;
    *out = (exl2__word){ begin, (size_t)(w->at - begin), w->lead };
    w->lead = false;
    return true;
}

#endif

/* added.h: finds added tokens such as <|im_end|> in text, as the tokenizers library finds them.
   takes: the added_tokens of tokenizer.json, valid UTF-8.
   gives: exl2__added, exl2__added_sort, exl2__added_find, exl2__added_scan, exl2__added_next.
   owns:  nothing; the list comes from the caller's arena. */
#ifndef EXL2__ADDED_H
#define EXL2__ADDED_H

#include "../../0_base/sort.h"
#include "../unicode/unicode.h"

#define EXL2__ADDED_BYTES_MAX 1024 /* bytes of one token; a search costs at worst text bytes x this */
#define EXL2__ADDED_NONE UINT32_MAX

typedef struct exl2__added_token {
    uint32_t id, at, bytes;   /* text[at .. at + bytes) is its content, normalized if the flag says so */
    bool special, single_word, lstrip, rstrip;
    bool normalized;          /* searched second, in the normalized text between the raw tokens */
} exl2__added_token;

/* Sorted by (normalized, content). Tokens that become equal by normalization are sorted by id, the lowest first. */
typedef struct exl2__added {
    const char *text;
    exl2__added_token *tokens;
    uint32_t count, raw_count; /* tokens[0 .. raw_count) have normalized = false ("raw") */
    uint32_t firsts[2][8];     /* per set (raw, normalized): bit b = some content begins with byte b */
} exl2__added;

/* ---- the sorted list ---- */

static inline int exl2__added_compare(const exl2__added *a, const exl2__added_token *x, const exl2__added_token *y)
{
    if (x->normalized != y->normalized) {
        return x->normalized ? 1 : -1;
    }
    uint32_t shared = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = memcmp(a->text + x->at, a->text + y->at, shared);
    return order ? order : x->bytes != y->bytes ? (x->bytes < y->bytes ? -1 : 1)
                 : !x->normalized ? 0 : x->id < y->id ? -1 : x->id > y->id;
}

static inline bool exl2__added_less(const void *items, uint32_t x, uint32_t y)
{
    const exl2__added *a = (const exl2__added *)items;
    return exl2__added_compare(a, &a->tokens[x], &a->tokens[y]) < 0;
}

static inline void exl2__added_swap(void *items, uint32_t x, uint32_t y)
{
    exl2__added_token *tokens = ((exl2__added *)items)->tokens, held = tokens[x];
    tokens[x] = tokens[y];
    tokens[y] = held;
}

/* Sorts in slices (*at is 0 at first), and fills raw_count and firsts. No content is empty. *twice: the index of a
   token whose content occurs twice in its set, or EXL2__ADDED_NONE. */
static inline exl2_result exl2__added_sort(exl2__added *a, uint32_t *at, exl2__work *work, uint32_t *twice)
{
    exl2__sort_items items = { a, exl2__added_less, exl2__added_swap };
    EXL2__TRY_DONE(exl2__sort_slice(&items, a->count, at, work));
    *twice = EXL2__ADDED_NONE;
    a->raw_count = 0;
    memset(a->firsts, 0, sizeof a->firsts);
    for (uint32_t i = 0; i < a->count; i++) {
        uint8_t first = (uint8_t)a->text[a->tokens[i].at];
        a->firsts[a->tokens[i].normalized][first >> 5] |= 1u << (first & 31);
        a->raw_count += !a->tokens[i].normalized;
        if (i > 0 && exl2__added_compare(a, &a->tokens[i - 1], &a->tokens[i]) == 0) {
            *twice = i;
        }
    }
    return EXL2_OK;
}

/* First token of tokens[low .. high) whose byte `depth` is at least `byte` (0..256). The tokens agree in all bytes
   before `depth`; a token that ends there sorts first. */
static inline uint32_t exl2__added_bound(const exl2__added *a, uint32_t low, uint32_t high, uint32_t depth,
                                         uint32_t byte)
{
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const exl2__added_token *t = &a->tokens[middle];
        if (t->bytes <= depth || (uint8_t)a->text[t->at + depth] < byte) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Longest token of tokens[low .. high) whose bytes from `depth` on are a prefix of `text`, or EXL2__ADDED_NONE. The
   tokens agree in all bytes before `depth`. */
static inline uint32_t exl2__added_longest_of(const exl2__added *a, uint32_t low, uint32_t high, uint32_t depth,
                                              const char *text, size_t bytes)
{
    uint32_t found = EXL2__ADDED_NONE;
    for (size_t at = 0; at < bytes && low < high; at++, depth++) {
        uint32_t byte = (uint8_t)text[at];
        low = exl2__added_bound(a, low, high, depth, byte);
        high = exl2__added_bound(a, low, high, depth, byte + 1);
        if (low < high && a->tokens[low].bytes == depth + 1) {
            found = low;
        }
    }
    return found;
}

/* Longest token of the set (0 raw, 1 normalized) with which `text` begins, or EXL2__ADDED_NONE. */
static inline uint32_t exl2__added_longest(const exl2__added *a, uint32_t set, const char *text, size_t bytes)
{
    return exl2__added_longest_of(a, set ? a->raw_count : 0, set ? a->count : a->raw_count, 0, text, bytes);
}

/* The token with this content, or NULL. */
static inline const exl2__added_token *exl2__added_find(const exl2__added *a, const char *content, size_t bytes)
{
    for (uint32_t set = 0; set < 2; set++) {
        uint32_t found = exl2__added_longest(a, set, content, bytes);
        if (found != EXL2__ADDED_NONE && a->tokens[found].bytes == bytes) {
            return &a->tokens[found];
        }
    }
    return NULL;
}

/* ---- searching ---- */

/* A search through text[0 .. bytes). Zero all members, then set those from `added` to `plain`. */
typedef struct exl2__added_scan {
    const exl2__added *added;
    uint32_t set;
    const char *text;
    size_t bytes;
    const uint8_t
        *forbidden; /* bit per byte, text[0] at bit forbidden_at: special and guarded tokens may not touch set bytes */
    size_t forbidden_at;
    const uint32_t *guarded;  /* bit per token: treated like a special token where bytes are forbidden; or NULL */
    bool plain;               /* special tokens are never matched */
    size_t at;                /* the search continues here */
    size_t done;              /* end of the last match, including the white space it stripped */
    size_t space_end;         /* [at .. space_end) is known to be white space */
} exl2__added_scan;

typedef struct exl2__added_match {
    const exl2__added_token *token;
    size_t gap, begin;        /* text[gap .. begin) lies between the previous match and this one */
} exl2__added_match;

/* The leftmost match, the longest one there, with its place in *begin; EXL2__ADDED_NONE at the end of the text. */
static inline uint32_t exl2__added_search(const exl2__added_scan *s, size_t *begin)
{
    const uint32_t *firsts = s->added->firsts[s->set];
    for (size_t at = s->at; at < s->bytes; at++) {
        uint8_t first = (uint8_t)s->text[at];
        if (firsts[first >> 5] >> (first & 31) & 1) {
            uint32_t found = exl2__added_longest(s->added, s->set, s->text + at, s->bytes - at);
            if (found != EXL2__ADDED_NONE) {
                *begin = at;
                return found;
            }
        }
    }
    return EXL2__ADDED_NONE;
}

static inline bool exl2__added_forbidden(const exl2__added_scan *s, uint32_t token, size_t begin, size_t end)
{
    const uint32_t *guarded = s->guarded;
    bool special = s->added->tokens[token].special;
    bool asked = s->forbidden && (special || (guarded && (guarded[token / 32] >> token % 32 & 1)));
    for (size_t at = begin; asked && at < end; at++) {
        size_t bit = s->forbidden_at + at;
        if (s->forbidden[bit >> 3] >> (bit & 7) & 1) {
            return true;
        }
    }
    return special && s->plain;
}

static inline uint32_t exl2__added_class(const exl2__added_scan *s, size_t at)
{
    uint32_t code;
    exl2__unicode_next(s->text + at, s->bytes - at, &code);
    return exl2__unicode_class(code);
}

/* Is there a word character right before `begin` or right at `end`? */
static inline bool exl2__added_inside_word(const exl2__added_scan *s, size_t begin, size_t end)
{
    uint32_t before = begin > 0 ? exl2__added_class(s, exl2__unicode_before(s->text, begin)) : 0;
    uint32_t after = end < s->bytes ? exl2__added_class(s, end) : 0;
    return ((before | after) & EXL2__UNICODE_WORD) != 0;
}

static inline size_t exl2__added_strip_left(const exl2__added_scan *s, size_t begin)
{
    while (begin > s->done) {
        size_t before = exl2__unicode_before(s->text, begin);
        if (exl2__added_class(s, before) != EXL2__UNICODE_SPACE) {
            break;
        }
        begin = before;
    }
    return begin;
}

static inline size_t exl2__added_strip_right(exl2__added_scan *s, size_t end)
{
    size_t at = end < s->space_end ? s->space_end : end; /* so that a run of spaces is scanned only once */
    while (at < s->bytes && exl2__added_class(s, at) == EXL2__UNICODE_SPACE) {
        uint32_t code;
        at += exl2__unicode_next(s->text + at, s->bytes - at, &code);
    }
    s->space_end = at;
    return at;
}

/* Finds the next token. false: there is none, and text[done .. bytes) is the rest. A match may be rejected (a special
   token that is forbidden, or single_word inside a word). The search then continues after it, as in the library, so
   shorter tokens at the same place are not found. */
static inline bool exl2__added_next(exl2__added_scan *s, exl2__added_match *out)
{
    size_t begin = 0;
    for (uint32_t found; (found = exl2__added_search(s, &begin)) != EXL2__ADDED_NONE;) {
        const exl2__added_token *t = &s->added->tokens[found];
        size_t end = begin + t->bytes;
        s->at = end;
        if (exl2__added_forbidden(s, found, begin, end) ||
            (t->single_word && exl2__added_inside_word(s, begin, end))) {
            continue;
        }
        if (t->lstrip) {
            begin = exl2__added_strip_left(s, begin);
        }
        *out = (exl2__added_match){ t, s->done, begin > s->done ? begin : s->done };
        s->done = t->rstrip ? exl2__added_strip_right(s, end) : end;
        return true;
    }
    return false;
}

#endif

/* json_part.h: reads one value out of a JSON text that is not complete yet: as much of the value as has arrived.
   Strict, without recursion.
   takes: untrusted bytes, a JSON Pointer.
   gives: exl2__json_part, exl2__json_part_pointer_is, exl2__json_part_read. */
#ifndef EXL2__JSON_PART_H
#define EXL2__JSON_PART_H

#include "json.h"

#define EXL2__JSON_PART_DEPTH_MAX 256u /* nesting, the same limit as for texts of a grammar */

/* What is expected at `at`, after white space. */
typedef enum exl2__json_part_next {
    EXL2__JSON_PART_VALUE,
    EXL2__JSON_PART_VALUE_OR_END, /* after '[' */
    EXL2__JSON_PART_KEY,
    EXL2__JSON_PART_KEY_OR_END,   /* after '{' */
    EXL2__JSON_PART_COLON,
    EXL2__JSON_PART_AFTER_VALUE
} exl2__json_part_next;

/* How reading a string, a number or a word has ended. */
typedef enum exl2__json_part_end {
    EXL2__JSON_PART_WHOLE,
    EXL2__JSON_PART_CUT,          /* the text ends too early; `at` is the end of the last complete piece */
    EXL2__JSON_PART_BAD           /* not valid JSON, whatever follows */
} exl2__json_part_end;

/* What to do with the bytes of a string. */
typedef enum exl2__json_part_use { EXL2__JSON_PART_SKIP, EXL2__JSON_PART_COMPARE, EXL2__JSON_PART_WRITE }
    exl2__json_part_use;

/* The caller zeroes the struct and sets text, bytes, path, out and cap. */
typedef struct exl2__json_part {
    const uint8_t *text;
    size_t bytes;
    const char *path;     /* part of the JSON Pointer that is still to be found: "" or from a '/' on; NULL: done */
    char *out;            /* [cap] decoded text of the value; bytes beyond `cap` are only counted */
    size_t cap;
    size_t used;          /* result: bytes of the value so far */
    bool whole;           /* result: the value is complete */
    size_t at;
    exl2__json_part_next next;
    exl2__json_part_use use;
    const char *name;     /* COMPARE: rest of the name to compare with; NULL: the key differs */
    uint64_t objects[EXL2__JSON_PART_DEPTH_MAX / 64]; /* bit d: container d is an object */
    uint32_t depth;       /* number of open containers */
    uint32_t level;       /* depth of the container whose children are compared with the path; 0: the root value */
    uint64_t index;       /* index of that container's next element, if it is an array */
    bool key_matches;     /* the next value belongs to a key that is on the path */
    bool copies;          /* the value is a container; its text is copied to `out` unchanged */
    uint32_t copy_depth;  /* copies: number of open containers around the value */
    size_t copy_begin;    /* copies: where the value begins in the text */
} exl2__json_part;

/* Is it a valid JSON Pointer (RFC 6901): empty, or beginning with '/', and every '~' part of ~0 or ~1? */
static inline bool exl2__json_part_pointer_is(const char *pointer)
{
    for (const char *at = pointer; *at; at++) {
        if (*at == '~' && at[1] != '0' && at[1] != '1') {
            return false;
        }
    }
    return *pointer == 0 || *pointer == '/';
}

/* ---- strings ---- */

/* The next byte of a name in a pointer, or 0 at its end. */
static inline char exl2__json_part_name(const char **name)
{
    const char *at = *name;
    if (*at == 0 || *at == '/') {
        return 0;
    }
    *name += *at == '~' ? 2 : 1;
    return *at != '~' ? *at : at[1] == '0' ? '~' : '/';
}

/* Handles `bytes` decoded bytes of a string, which are whole code points. */
static inline void exl2__json_part_add(exl2__json_part *p, const char *piece, size_t bytes)
{
    if (p->use == EXL2__JSON_PART_WRITE) {
        size_t room = p->used < p->cap ? p->cap - p->used : 0, fits = bytes < room ? bytes : room;
        if (fits) {
            memcpy(p->out + p->used, piece, fits);
        }
        p->used += bytes;
    }
    for (size_t i = 0; p->use == EXL2__JSON_PART_COMPARE && p->name && i < bytes; i++) {
        if (piece[i] == 0 || exl2__json_part_name(&p->name) != piece[i]) {
            p->name = NULL;
        }
    }
}

/* Reads the four digits after the \u at `at`. */
EXL2__PRIVATE exl2__json_part_end exl2__json_part_hex4(const exl2__json_part *p, size_t at, uint32_t *code)
{
    uint32_t digits = exl2__hex_read(p->text + at + 2, p->bytes - at - 2, 4, code);
    return digits == 4 ? EXL2__JSON_PART_WHOLE
         : at + 2 + digits == p->bytes ? EXL2__JSON_PART_CUT : EXL2__JSON_PART_BAD;
}

/* At \u. A high surrogate at the end of the text is CUT, because a low one may follow. */
EXL2__NOINLINE
EXL2__PRIVATE exl2__json_part_end exl2__json_part_unicode(exl2__json_part *p)
{
    uint32_t code, low = 0;
    size_t end = p->at + 6;
    exl2__json_part_end r = exl2__json_part_hex4(p, p->at, &code);
    if (r == EXL2__JSON_PART_WHOLE && code >= 0xD800 && code < 0xDC00) {
        bool cut = end + 1 >= p->bytes && (end >= p->bytes || p->text[end] == '\\');
        bool pair = !cut && p->text[end] == '\\' && p->text[end + 1] == 'u';
        r = cut ? EXL2__JSON_PART_CUT : pair ? exl2__json_part_hex4(p, end, &low) : r;
    }
    if (r != EXL2__JSON_PART_WHOLE) {
        return r;
    }
    if (low >= 0xDC00 && low < 0xE000) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        end += 6;
    } else if (code >= 0xD800 && code < 0xE000) {
        code = 0xFFFD;
    }
    char piece[4];
    exl2__json_part_add(p, piece, exl2__json_encode_utf8(code, piece));
    p->at = end;
    return r;
}

/* At a backslash. */
static inline exl2__json_part_end exl2__json_part_escape(exl2__json_part *p)
{
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    char c = p->at + 1 < p->bytes ? (char)p->text[p->at + 1] : 0;
    if (p->at + 1 == p->bytes) {
        return EXL2__JSON_PART_CUT;
    }
    if (c == 'u') {
        return exl2__json_part_unicode(p);
    }
    const char *known = c ? strchr(escapes, c) : NULL;
    if (!known) {
        return EXL2__JSON_PART_BAD;
    }
    exl2__json_part_add(p, meant + (known - escapes), 1);
    p->at += 2;
    return EXL2__JSON_PART_WHOLE;
}

/* At a byte that is not ASCII. */
static inline exl2__json_part_end exl2__json_part_utf8(exl2__json_part *p)
{
    uint8_t four[4] = { 0x80, 0x80, 0x80, 0x80 }; /* valid as third and fourth byte of every sequence */
    uint32_t room = (uint32_t)exl2__min64(p->bytes - p->at, 4), length = 0;
    memcpy(four, p->text + p->at, room);
    if (exl2__json_scan_utf8(four, &length, room)) {
        exl2__json_part_add(p, (const char *)four, length);
        p->at += length;
        return EXL2__JSON_PART_WHOLE;
    }
    length = 0;
    bool cut = room == 1 ? four[0] >= 0xC2 && four[0] <= 0xF4
                         : room < 4 && exl2__json_scan_utf8(four, &length, 4) && length > room;
    return cut ? EXL2__JSON_PART_CUT : EXL2__JSON_PART_BAD;
}

/* From the byte after the opening quote to the byte after the closing one. */
EXL2__HOT
EXL2__PRIVATE exl2__json_part_end exl2__json_part_string(exl2__json_part *p)
{
    for (;;) {
        size_t room = p->bytes - p->at;
        uint32_t run = exl2__json_scan_plain(p->text + p->at, 0, room < 8 ? (uint32_t)room : 8);
        exl2__json_part_add(p, (const char *)p->text + p->at, run);
        p->at += run;
        if (p->at == p->bytes) {
            return EXL2__JSON_PART_CUT;
        }
        uint8_t c = p->text[p->at];
        if (run == 8) {
            continue;
        }
        if (c == '"') {
            p->at++;
            return EXL2__JSON_PART_WHOLE;
        }
        exl2__json_part_end r = EXL2__JSON_PART_BAD; /* a control character */
        if (c == '\\') {
            r = exl2__json_part_escape(p);
        } else if (c >= 0x80) {
            r = exl2__json_part_utf8(p);
        }
        if (r != EXL2__JSON_PART_WHOLE) {
            return r;
        }
    }
}

/* ---- numbers and words ---- */

static inline uint8_t exl2__json_part_peek(const exl2__json_part *p)
{
    return p->at < p->bytes ? p->text[p->at] : 0;
}

/* Skips digits; there must be at least `least`. */
static inline exl2__json_part_end exl2__json_part_digits(exl2__json_part *p, size_t least)
{
    size_t begin = p->at;
    while (exl2__json_part_peek(p) >= '0' && exl2__json_part_peek(p) <= '9') {
        p->at++;
    }
    return p->at == p->bytes ? EXL2__JSON_PART_CUT
         : p->at - begin < least ? EXL2__JSON_PART_BAD : EXL2__JSON_PART_WHOLE;
}

/* A number at the end of the text is CUT, because more digits may follow. */
static inline exl2__json_part_end exl2__json_part_number(exl2__json_part *p)
{
    p->at += p->text[p->at] == '-';
    bool zero = exl2__json_part_peek(p) == '0'; /* a digit after it is an error, which the next token shows */
    p->at += zero;
    exl2__json_part_end r = p->at == p->bytes ? EXL2__JSON_PART_CUT
                          : zero ? EXL2__JSON_PART_WHOLE : exl2__json_part_digits(p, 1);
    if (r == EXL2__JSON_PART_WHOLE && exl2__json_part_peek(p) == '.') {
        p->at++;
        r = exl2__json_part_digits(p, 1);
    }
    if (r == EXL2__JSON_PART_WHOLE && (exl2__json_part_peek(p) | 0x20) == 'e') {
        p->at++;
        p->at += exl2__json_part_peek(p) == '+' || exl2__json_part_peek(p) == '-';
        r = exl2__json_part_digits(p, 1);
    }
    return r;
}

static inline exl2__json_part_end exl2__json_part_word(exl2__json_part *p)
{
    uint8_t c = p->text[p->at];
    const char *word = c == 't' ? "true" : c == 'f' ? "false" : "null";
    for (; *word && p->at < p->bytes; word++, p->at++) {
        if (p->text[p->at] != (uint8_t)*word) {
            return EXL2__JSON_PART_BAD;
        }
    }
    return *word ? EXL2__JSON_PART_CUT : EXL2__JSON_PART_WHOLE;
}

/* ---- values ---- */

/* Copies the text from `begin` to `at`, which is the value so far. */
static inline void exl2__json_part_copy(exl2__json_part *p, size_t begin)
{
    size_t bytes = p->at - begin, fits = bytes < p->cap ? bytes : p->cap;
    if (fits) {
        memcpy(p->out, p->text + begin, fits);
    }
    p->used = bytes;
}

/* Is the innermost container an object? */
static inline bool exl2__json_part_in_object(const exl2__json_part *p)
{
    uint32_t inner = p->depth - 1;
    return p->depth && (p->objects[inner / 64] >> inner % 64 & 1);
}

/* Is the next name of the path the index of the element that begins here? */
static inline bool exl2__json_part_is_index(const exl2__json_part *p)
{
    char digits[24];
    size_t bytes = strcspn(p->path + 1, "/");
    exl2__format(digits, sizeof digits, "%llu", (unsigned long long)p->index);
    return strlen(digits) == bytes && memcmp(digits, p->path + 1, bytes) == 0;
}

/* Is the value at `at` on the path? If so, the path moves to its next name. */
static inline bool exl2__json_part_on_path(exl2__json_part *p)
{
    bool ours = p->path && p->depth == p->level;
    bool object = exl2__json_part_in_object(p);
    bool hit = ours && (p->depth == 0 || (object ? p->key_matches : exl2__json_part_is_index(p)));
    p->index += ours && !object;
    if (hit && p->depth) {
        p->path += 1 + strcspn(p->path + 1, "/");
    }
    return hit;
}

/* Opens the container at `at`. `step`: the next name of the path is one of its keys or indices. */
static inline exl2__json_part_end exl2__json_part_open(exl2__json_part *p, bool step)
{
    if (p->depth == EXL2__JSON_PART_DEPTH_MAX) {
        return EXL2__JSON_PART_BAD;
    }
    bool object = p->text[p->at] == '{';
    uint64_t *word = &p->objects[p->depth / 64], bit = (uint64_t)1 << p->depth % 64;
    *word = object ? *word | bit : *word & ~bit;
    p->depth++;
    p->at++;
    p->next = object ? EXL2__JSON_PART_KEY_OR_END : EXL2__JSON_PART_VALUE_OR_END;
    if (step) {
        p->level = p->depth;
        p->index = 0;
    }
    return EXL2__JSON_PART_WHOLE;
}

static inline exl2__json_part_end exl2__json_part_value(exl2__json_part *p)
{
    uint8_t c = p->text[p->at];
    bool hit = exl2__json_part_on_path(p), target = hit && *p->path == 0, container = c == '{' || c == '[';
    size_t begin = p->at;
    p->path = target || (hit && !container) ? NULL : p->path; /* if a name is repeated, its first value counts */
    p->next = EXL2__JSON_PART_AFTER_VALUE;
    if (container) {
        if (target) {
            p->copies = true;
            p->copy_depth = p->depth;
            p->copy_begin = begin;
        }
        return exl2__json_part_open(p, hit && !target);
    }
    exl2__json_part_end r = EXL2__JSON_PART_BAD;
    if (c == '"') {
        p->use = target ? EXL2__JSON_PART_WRITE : EXL2__JSON_PART_SKIP;
        p->at++;
        r = exl2__json_part_string(p);
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        r = exl2__json_part_number(p);
    } else if (c == 't' || c == 'f' || c == 'n') {
        r = exl2__json_part_word(p);
    }
    if (target && c != '"') {
        exl2__json_part_copy(p, begin);
    }
    p->whole = p->whole || (target && r == EXL2__JSON_PART_WHOLE);
    return r;
}

static inline exl2__json_part_end exl2__json_part_key(exl2__json_part *p)
{
    if (p->text[p->at] != '"') {
        return EXL2__JSON_PART_BAD;
    }
    bool compare = p->path && p->depth == p->level;
    p->use = compare ? EXL2__JSON_PART_COMPARE : EXL2__JSON_PART_SKIP;
    p->name = compare ? p->path + 1 : NULL;
    p->at++;
    exl2__json_part_end r = exl2__json_part_string(p);
    p->key_matches = compare && p->name && (*p->name == 0 || *p->name == '/');
    p->next = EXL2__JSON_PART_COLON;
    return r;
}

/* At the bracket that ends the innermost container. */
static inline exl2__json_part_end exl2__json_part_close(exl2__json_part *p)
{
    p->at++;
    p->depth--;
    p->next = EXL2__JSON_PART_AFTER_VALUE;
    p->path = p->depth < p->level ? NULL : p->path;
    if (p->copies && p->depth == p->copy_depth) {
        exl2__json_part_copy(p, p->copy_begin);
        p->copies = false;
        p->whole = true;
    }
    return EXL2__JSON_PART_WHOLE;
}

static inline exl2__json_part_end exl2__json_part_mark(exl2__json_part *p, char mark, exl2__json_part_next next)
{
    if (p->text[p->at] != (uint8_t)mark) {
        return EXL2__JSON_PART_BAD;
    }
    p->at++;
    p->next = next;
    return EXL2__JSON_PART_WHOLE;
}

/* Reads one token at `at`, which is not white space. */
EXL2__HOT
EXL2__PRIVATE exl2__json_part_end exl2__json_part_token(exl2__json_part *p)
{
    bool object = exl2__json_part_in_object(p);
    bool ends = p->depth && p->text[p->at] == (object ? '}' : ']');
    switch (p->next) {
    case EXL2__JSON_PART_KEY_OR_END:
        return ends ? exl2__json_part_close(p) : exl2__json_part_key(p);
    case EXL2__JSON_PART_KEY:
        return exl2__json_part_key(p);
    case EXL2__JSON_PART_COLON:
        return exl2__json_part_mark(p, ':', EXL2__JSON_PART_VALUE);
    case EXL2__JSON_PART_VALUE_OR_END:
        return ends ? exl2__json_part_close(p) : exl2__json_part_value(p);
    case EXL2__JSON_PART_VALUE:
        return exl2__json_part_value(p);
    default: /* EXL2__JSON_PART_AFTER_VALUE */
        return ends ? exl2__json_part_close(p)
             : p->depth == 0 ? EXL2__JSON_PART_BAD
                             : exl2__json_part_mark(p, ',', object ? EXL2__JSON_PART_KEY : EXL2__JSON_PART_VALUE);
    }
}

/* Reads all of the text, and sets `used` and `whole`. false: the text is not the beginning of valid JSON. */
EXL2__HOT
EXL2__PRIVATE bool exl2__json_part_read(exl2__json_part *p)
{
    exl2__json_part_end r = EXL2__JSON_PART_WHOLE;
    while (r == EXL2__JSON_PART_WHOLE) {
        uint8_t c = exl2__json_part_peek(p);
        if (p->at == p->bytes) {
            r = EXL2__JSON_PART_CUT;
        } else if (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
            p->at++;
        } else {
            r = exl2__json_part_token(p);
        }
    }
    if (p->copies) {
        exl2__json_part_copy(p, p->copy_begin);
    }
    return r == EXL2__JSON_PART_CUT;
}

#endif

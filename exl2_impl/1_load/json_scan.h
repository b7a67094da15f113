/* json_scan.h: the JSON grammar (RFC 8259, strict, without recursion): text -> tokens, or what is wrong where.
   takes: untrusted bytes, and room for the tokens once they are counted.
   gives: exl2__json_kind, exl2__json_token, exl2__json_scan, exl2__json_scan_all, exl2__json_scan_child.
   owns:  nothing.
   next:  json.h */
#ifndef EXL2__JSON_SCAN_H
#define EXL2__JSON_SCAN_H

#include "../0_base/bytes.h"

#define EXL2__JSON_DEPTH_MAX 64

typedef enum exl2__json_kind {
    EXL2__JSON_OBJECT,
    EXL2__JSON_ARRAY,
    EXL2__JSON_STRING,
    EXL2__JSON_NUMBER,
    EXL2__JSON_TRUE,
    EXL2__JSON_FALSE,
    EXL2__JSON_NULL
} exl2__json_kind;

typedef struct exl2__json_token {
    uint32_t begin, end; /* bytes of the value in the text; strings without quotes */
    uint32_t after;      /* token after this subtree */
    uint32_t count;      /* children: members or elements */
    exl2__json_kind kind;
} exl2__json_token;

#define EXL2__JSON_FLAT_MAX 2

/* A container whose contents became no tokens: exl2__json_walk reads them, and checks them as it goes. */
typedef struct exl2__json_flat {
    uint32_t begin, end; /* begin 0: none */
    uint32_t members;    /* at most so many */
    uint32_t longest;    /* bytes of its longest string, quotes and escapes included */
} exl2__json_flat;

/* The same code counts (tokens NULL) and then fills. */
typedef struct exl2__json_scan {
    const uint8_t *text;
    uint32_t bytes, at;
    exl2__json_token *tokens; /* NULL: count only */
    uint32_t token_count, depth;
    uint32_t open[EXL2__JSON_DEPTH_MAX]; /* the containers that `at` is in */
    bool is_object[EXL2__JSON_DEPTH_MAX];
    const char *wanted; /* after a failure: what should have been at `at` */
    const char *const *flat_keys; /* [EXL2__JSON_FLAT_MAX] containers with these keys in an object of the root's stay
                                     unread; NULL: none */
    exl2__json_flat flat[EXL2__JSON_FLAT_MAX];
} exl2__json_scan;

static inline bool exl2__json_scan_fail(exl2__json_scan *s, uint32_t at, const char *wanted)
{
    s->at = at;
    s->wanted = wanted;
    return false;
}

/* Goes over white space; files are often indented. */
static inline uint32_t exl2__json_scan_blank(const uint8_t *text, uint32_t at, uint32_t bytes)
{
    for (; at < bytes && text[at] <= ' '; at++) {
        if (text[at] == ' ') {
            uint32_t room = bytes - at;
            at += room >= 8 && memcmp(text + at, "        ", 8) == 0 ? 7
                : room >= 4 && memcmp(text + at, "    ", 4) == 0 ? 3 : 0;
        } else if (text[at] != '\n' && text[at] != '\r' && text[at] != '\t') {
            break;
        }
    }
    return at;
}

static inline void exl2__json_scan_space(exl2__json_scan *s)
{
    s->at = exl2__json_scan_blank(s->text, s->at, s->bytes);
}

/* The byte at `at`, or 0 at the end: no byte that JSON allows outside strings is 0. */
static inline uint8_t exl2__json_scan_peek(const exl2__json_scan *s)
{
    return s->at < s->bytes ? s->text[s->at] : 0;
}

static inline uint32_t exl2__json_scan_token(exl2__json_scan *s, exl2__json_kind kind, uint32_t begin, uint32_t end)
{
    uint32_t token = s->token_count++;
    if (s->tokens) {
        exl2__json_token t = { begin, end, token + 1, 0, kind };
        s->tokens[token] = t;
    }
    return token;
}

/* Bytes of the well-formed UTF-8 sequence at p (Unicode 15, table 3-7), or 0. */
static inline uint32_t exl2__json_scan_utf8(const uint8_t *p, uint32_t room)
{
    if (p[0] < 0x80) {
        return 1;
    }
    uint32_t bytes = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4 || room < bytes) {
        return 0;
    }
    uint8_t low = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
    uint8_t high = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < low || p[1] > high) {
        return 0;
    }
    for (uint32_t i = 2; i < bytes; i++) {
        if ((p[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    return bytes;
}

/* Value of a hexadecimal digit, or 16. */
static inline uint32_t exl2__json_scan_hex(uint8_t c)
{
    if (c >= '0' && c <= '9') {
        return c - (uint32_t)'0';
    }
    uint32_t letter = (uint32_t)(c | 0x20) - 'a';
    return letter < 6 ? letter + 10 : 16;
}

static inline bool exl2__json_scan_escape(exl2__json_scan *s)
{
    uint8_t c = s->at + 1 < s->bytes ? s->text[s->at + 1] : 0;
    if (c == 'u') {
        for (uint32_t i = 2; i < 6; i++) {
            if (s->at + i >= s->bytes || exl2__json_scan_hex(s->text[s->at + i]) == 16) {
                return exl2__json_scan_fail(s, s->at, "four hexadecimal digits after \\u");
            }
        }
        s->at += 6;
        return true;
    }
    if (c == 0 || !strchr("\"\\/bfnrt", c)) {
        return exl2__json_scan_fail(s, s->at, "one of \"\\/bfnrtu after a backslash");
    }
    s->at += 2;
    return true;
}

/* At a quote; ends behind the closing one. */
static inline bool exl2__json_scan_string(exl2__json_scan *s)
{
    uint32_t quote = s->at++;
    while (s->at < s->bytes && s->text[s->at] != '"') {
        if (s->text[s->at] - 0x20u < 0x60 && s->text[s->at] != '\\') {
            s->at++;
            continue;
        }
        if (s->text[s->at] == '\\') {
            if (!exl2__json_scan_escape(s)) {
                return false;
            }
            continue;
        }
        if (s->text[s->at] < 0x20) {
            return exl2__json_scan_fail(s, s->at, "an escape instead of a control character");
        }
        uint32_t bytes = exl2__json_scan_utf8(s->text + s->at, s->bytes - s->at);
        if (bytes == 0) {
            return exl2__json_scan_fail(s, s->at, "valid UTF-8");
        }
        s->at += bytes;
    }
    if (s->at == s->bytes) {
        return exl2__json_scan_fail(s, quote, "a closing quote for the string that begins here");
    }
    s->at++;
    exl2__json_scan_token(s, EXL2__JSON_STRING, quote + 1, s->at - 1);
    return true;
}

static inline bool exl2__json_scan_digits(exl2__json_scan *s)
{
    uint32_t begin = s->at;
    while (exl2__json_scan_peek(s) >= '0' && exl2__json_scan_peek(s) <= '9') {
        s->at++;
    }
    return s->at > begin || exl2__json_scan_fail(s, s->at, "a digit");
}

static inline bool exl2__json_scan_number(exl2__json_scan *s)
{
    uint32_t begin = s->at;
    s->at += exl2__json_scan_peek(s) == '-';
    if (exl2__json_scan_peek(s) == '0') {
        s->at++; /* a digit here would be a leading zero; the caller then misses a comma */
    } else if (!exl2__json_scan_digits(s)) {
        return false;
    }
    if (exl2__json_scan_peek(s) == '.') {
        s->at++;
        if (!exl2__json_scan_digits(s)) {
            return false;
        }
    }
    if ((exl2__json_scan_peek(s) | 0x20) == 'e') {
        s->at++;
        s->at += exl2__json_scan_peek(s) == '+' || exl2__json_scan_peek(s) == '-';
        if (!exl2__json_scan_digits(s)) {
            return false;
        }
    }
    exl2__json_scan_token(s, EXL2__JSON_NUMBER, begin, s->at);
    return true;
}

static inline bool exl2__json_scan_word(exl2__json_scan *s, const char *word, exl2__json_kind kind)
{
    uint32_t bytes = (uint32_t)strlen(word);
    if (s->bytes - s->at < bytes || memcmp(s->text + s->at, word, bytes) != 0) {
        return exl2__json_scan_fail(s, s->at, "a value");
    }
    exl2__json_scan_token(s, kind, s->at, s->at + bytes);
    s->at += bytes;
    return true;
}

static inline bool exl2__json_scan_open(exl2__json_scan *s)
{
    if (s->depth == EXL2__JSON_DEPTH_MAX) {
        return exl2__json_scan_fail(s, s->at, "at most 64 levels of nesting");
    }
    bool is_object = s->text[s->at] == '{';
    s->open[s->depth] = exl2__json_scan_token(s, is_object ? EXL2__JSON_OBJECT : EXL2__JSON_ARRAY, s->at, s->at);
    s->is_object[s->depth++] = is_object;
    s->at++;
    return true;
}

/* Behind the string whose quote is at `at`, without a look inside; the end of the text if it does not close. */
static inline uint32_t exl2__json_scan_skip(const exl2__json_scan *s, uint32_t at)
{
    for (at++; at < s->bytes && s->text[at] != '"'; at++) {
        at += s->text[at] == '\\';
    }
    return at + 1 < s->bytes ? at + 1 : s->bytes;
}

/* At the opening of a container that stays unread: finds its end. */
EXL2__HOT
static bool exl2__json_scan_flat(exl2__json_scan *s, exl2__json_flat *f)
{
    uint32_t begin = s->at, at = begin, depth = 0;
    exl2__json_kind kind = s->text[begin] == '{' ? EXL2__JSON_OBJECT : EXL2__JSON_ARRAY;
    while (f->begin != begin && at < s->bytes) { /* else the counting pass has been here */
        uint8_t c = s->text[at];
        if (c == ' ' || c == '\n') {
            at = exl2__json_scan_blank(s->text, at, s->bytes);
            continue;
        }
        if (c == '"') {
            uint32_t end = exl2__json_scan_skip(s, at);
            f->longest = f->longest > end - at ? f->longest : end - at;
            at = end;
            continue;
        }
        at++;
        depth += c == '{' || c == '[';
        f->members += depth == 1 && (c == ',' || at == begin + 1);
        if ((c == '}' || c == ']') && --depth == 0) {
            f->begin = begin;
            f->end = at;
        }
    }
    if (f->begin != begin) {
        return exl2__json_scan_fail(s, begin, "a closing bracket for the one that is here");
    }
    s->at = f->end;
    exl2__json_scan_token(s, kind, begin, f->end);
    return true;
}

/* The one for a container that is to stay unread, or NULL; the key is the string text[begin .. end). */
static inline exl2__json_flat *exl2__json_scan_flat_of(exl2__json_scan *s, uint32_t begin, uint32_t end)
{
    for (int i = 0; s->flat_keys && s->depth == 2 && i < EXL2__JSON_FLAT_MAX; i++) {
        if (end - begin == strlen(s->flat_keys[i]) && memcmp(s->text + begin, s->flat_keys[i], end - begin) == 0 &&
            (exl2__json_scan_peek(s) == '{' || exl2__json_scan_peek(s) == '[')) {
            return &s->flat[i];
        }
    }
    return NULL;
}

/* A whole scalar, or the opening of a container. */
static inline bool exl2__json_scan_value(exl2__json_scan *s)
{
    switch (exl2__json_scan_peek(s)) {
    case '{':
    case '[':
        return exl2__json_scan_open(s);
    case '"':
        return exl2__json_scan_string(s);
    case 't':
        return exl2__json_scan_word(s, "true", EXL2__JSON_TRUE);
    case 'f':
        return exl2__json_scan_word(s, "false", EXL2__JSON_FALSE);
    case 'n':
        return exl2__json_scan_word(s, "null", EXL2__JSON_NULL);
    case '-': case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
        return exl2__json_scan_number(s);
    default:
        return exl2__json_scan_fail(s, s->at, "a value");
    }
}

/* The next child of the innermost open container: with its key in an object. Or its end. */
static inline bool exl2__json_scan_child(exl2__json_scan *s, bool first)
{
    bool is_object = s->is_object[s->depth - 1];
    exl2__json_scan_space(s);
    if (exl2__json_scan_peek(s) == (is_object ? '}' : ']')) {
        s->at++;
        s->depth--;
        if (s->tokens) {
            s->tokens[s->open[s->depth]].end = s->at;
            s->tokens[s->open[s->depth]].after = s->token_count;
        }
        return true;
    }
    if (!first) {
        if (exl2__json_scan_peek(s) != ',') {
            return exl2__json_scan_fail(s, s->at, is_object ? "',' or '}'" : "',' or ']'");
        }
        s->at++;
        exl2__json_scan_space(s);
    }
    if (s->tokens) {
        s->tokens[s->open[s->depth - 1]].count++;
    }
    if (is_object) {
        if (exl2__json_scan_peek(s) != '"') {
            return exl2__json_scan_fail(s, s->at, first ? "a key in quotes or '}'" : "a key in quotes");
        }
        uint32_t key = s->at + 1;
        if (!exl2__json_scan_string(s)) {
            return false;
        }
        uint32_t key_end = s->at - 1;
        exl2__json_scan_space(s);
        if (exl2__json_scan_peek(s) != ':') {
            return exl2__json_scan_fail(s, s->at, "':' after a key");
        }
        s->at++;
        exl2__json_scan_space(s);
        exl2__json_flat *flat = exl2__json_scan_flat_of(s, key, key_end);
        if (flat) {
            return exl2__json_scan_flat(s, flat);
        }
    }
    return exl2__json_scan_value(s);
}

/* The whole text. false: `wanted` and `at` say what is wrong. */
static inline bool exl2__json_scan_all(exl2__json_scan *s)
{
    exl2__json_scan_space(s);
    if (!exl2__json_scan_value(s)) {
        return false;
    }
    uint32_t depth = 0; /* before the newest child: a greater one now means that a container was opened */
    while (s->depth > 0) {
        bool first = s->depth > depth;
        depth = s->depth;
        if (!exl2__json_scan_child(s, first)) {
            return false;
        }
    }
    exl2__json_scan_space(s);
    return s->at == s->bytes || exl2__json_scan_fail(s, s->at, "nothing after the value");
}

#endif

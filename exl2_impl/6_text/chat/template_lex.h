/* template_lex.h: splits a template into tokens, with Jinja's white space control: trim_blocks, lstrip_blocks, - and +.
   takes: source with "\n" as line ends and without the final one.
   gives: exl2__template_lex, exl2__template_lex_next; exl2__template_space.
   owns:  nothing; tokens point into the source. */
#ifndef EXL2__TEMPLATE_LEX_H
#define EXL2__TEMPLATE_LEX_H

#include "template_code.h"

typedef enum exl2__template_token_kind {
    EXL2__TEMPLATE_TOKEN_END,
    EXL2__TEMPLATE_TOKEN_DATA,  /* text between tags */
    EXL2__TEMPLATE_TOKEN_BLOCK, /* {% */
    EXL2__TEMPLATE_TOKEN_BLOCK_END,
    EXL2__TEMPLATE_TOKEN_PRINT, /* {{ */
    EXL2__TEMPLATE_TOKEN_PRINT_END,
    EXL2__TEMPLATE_TOKEN_NAME,
    EXL2__TEMPLATE_TOKEN_INT,
    EXL2__TEMPLATE_TOKEN_REAL,
    EXL2__TEMPLATE_TOKEN_STRING, /* without its quotes; escapes are not decoded */
    EXL2__TEMPLATE_TOKEN_OPERATOR
} exl2__template_token_kind;

typedef struct exl2__template_token {
    exl2__template_token_kind kind;
    uint32_t at, begin, bytes; /* `at`: offset for messages; the text is source[begin, begin + bytes) */
} exl2__template_token;

typedef struct exl2__template_lex {
    const char *source;
    uint32_t bytes, at;
    exl2__template_token_kind inside; /* END: between tags; BLOCK or PRINT: inside such a tag */
    bool line_start;                  /* a line starts at `at` (for lstrip_blocks) */
    bool in_raw;
    uint32_t open;                    /* open brackets in this tag */
    char brackets[EXL2__TEMPLATE_DEPTH_MAX];
    const char *problem;              /* after a failure: the message, about the source at `problem_at` */
    uint32_t problem_at;
} exl2__template_lex;

/* White space as in Python's str.isspace and \s. */
static inline bool exl2__template_space(uint32_t code)
{
    return (code >= 9 && code <= 13) || (code >= 0x1C && code <= 0x20) || code == 0x85 || code == 0xA0 ||
           code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
           code == 0x202F || code == 0x205F || code == 0x3000;
}

/* The code point at p; *bytes: its length, at most `room`. Each byte of invalid UTF-8 is one U+FFFD. */
static inline uint32_t exl2__template_code_point(const char *p, size_t room, size_t *bytes)
{
    const uint8_t *u = (const uint8_t *)p;
    size_t need = u[0] < 0x80 ? 1 : u[0] >= 0xF0 ? 4 : u[0] >= 0xE0 ? 3 : 2;
    *bytes = 1;
    if (need == 1) {
        return u[0];
    }
    if (u[0] < 0xC0 || u[0] > 0xF7 || need > room) {
        return 0xFFFD;
    }
    uint32_t code = u[0] & (0x7Fu >> need);
    for (size_t i = 1; i < need; i++) {
        if ((u[i] & 0xC0) != 0x80) {
            return 0xFFFD;
        }
        code = code << 6 | (u[i] & 0x3Fu);
    }
    *bytes = need;
    return code;
}

/* Bytes of leading white space. */
static inline size_t exl2__template_space_front(const char *text, size_t bytes)
{
    size_t at = 0, step;
    while (at < bytes && exl2__template_space(exl2__template_code_point(text + at, bytes - at, &step))) {
        at += step;
    }
    return at;
}

/* Bytes of the text without trailing white space. */
static inline size_t exl2__template_space_back(const char *text, size_t bytes)
{
    while (bytes > 0) {
        size_t start = bytes - 1, step;
        while (start > 0 && bytes - start < 4 && ((uint8_t)text[start] & 0xC0) == 0x80) {
            start--;
        }
        if (!exl2__template_space(exl2__template_code_point(text + start, bytes - start, &step)) ||
            start + step != bytes) {
            break;
        }
        bytes = start;
    }
    return bytes;
}

static inline bool exl2__template_lex_fail(exl2__template_lex *l, uint32_t at, const char *problem)
{
    l->problem = problem;
    l->problem_at = at;
    return false;
}

/* The byte at l->at + ahead, or 0 past the end. */
static inline char exl2__template_lex_peek(const exl2__template_lex *l, uint32_t ahead)
{
    return ahead < l->bytes - l->at ? l->source[l->at + ahead] : 0;
}

static inline uint32_t exl2__template_lex_space(const exl2__template_lex *l, uint32_t at)
{
    return at + (uint32_t)exl2__template_space_front(l->source + at, l->bytes - at);
}

static inline bool exl2__template_lex_word_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* If a tag ends at `at` with `close` ('%', '#' or '}') and a brace: the offset after the tag and after the white space
   that it removes; else 0. */
static inline uint32_t exl2__template_lex_close(const exl2__template_lex *l, uint32_t at, char close)
{
    char sign = l->source[at];
    bool has_sign = sign == '-' || (sign == '+' && close != '}');
    uint32_t end = at + has_sign;
    if (l->bytes - end < 2 || l->source[end] != close || l->source[end + 1] != '}') {
        return 0;
    }
    end += 2;
    if (has_sign) {
        return sign == '-' ? exl2__template_lex_space(l, end) : end;
    }
    return close != '}' && end < l->bytes && l->source[end] == '\n' ? end + 1 : end; /* trim_blocks */
}

/* If {% raw %} or {% endraw %} (`word`) begins at `at`: the offset after it; else 0. */
static inline uint32_t exl2__template_lex_raw(const exl2__template_lex *l, uint32_t at, const char *word)
{
    uint32_t bytes = (uint32_t)strlen(word), start = at + 2;
    start += start < l->bytes && (l->source[start] == '-' || l->source[start] == '+');
    start = exl2__template_lex_space(l, start);
    if (l->bytes - start < bytes || memcmp(l->source + start, word, bytes) != 0) {
        return 0;
    }
    start = exl2__template_lex_space(l, start + bytes);
    if (start >= l->bytes) {
        return 0;
    }
    uint32_t end = exl2__template_lex_close(l, start, '%');
    if (bytes == 3 && end) { /* as in Jinja, {% raw %} has no trim_blocks and may not end with '+' */
        return l->source[start] == '+' ? 0 : l->source[start] == '-' ? end : start + 2;
    }
    return end;
}

/* Bytes of the text [begin, end) that remain before a tag with this sign. lstrip: the tag is not {{. */
static inline uint32_t exl2__template_lex_strip(const exl2__template_lex *l, uint32_t begin, uint32_t end, char sign,
                                                bool lstrip)
{
    const char *text = l->source + begin;
    uint32_t bytes = end - begin, line = bytes;
    if (sign == '-') {
        return (uint32_t)exl2__template_space_back(text, bytes);
    }
    while (line > 0 && text[line - 1] != '\n') {
        line--;
    }
    bool at_line_start = line > 0 || l->line_start;
    if (sign == '+' || !lstrip || !at_line_start ||
        line + exl2__template_space_front(text + line, bytes - line) != bytes) {
        return bytes;
    }
    return line;
}

static inline void exl2__template_lex_make(exl2__template_token *t, exl2__template_token_kind kind, uint32_t at,
                                           uint32_t begin, uint32_t bytes)
{
    exl2__template_token made = { kind, at, begin, bytes };
    *t = made;
}

/* Continues after a tag that ended at `end`. */
static inline void exl2__template_lex_leave(exl2__template_lex *l, uint32_t end)
{
    l->line_start = end > 0 && l->source[end - 1] == '\n';
    l->at = end;
}

/* In a raw block: returns its text and skips {% endraw %}. */
EXL2__PRIVATE bool exl2__template_lex_in_raw(exl2__template_lex *l, exl2__template_token *t)
{
    uint32_t begin = l->at;
    for (uint32_t at = begin; l->bytes - at >= 2; at++) {
        uint32_t end = 0;
        if (l->source[at] == '{' && l->source[at + 1] == '%') {
            end = exl2__template_lex_raw(l, at, "endraw");
        }
        if (end) {
            uint32_t bytes = exl2__template_lex_strip(l, begin, at, l->source[at + 2], true);
            exl2__template_lex_make(t, EXL2__TEMPLATE_TOKEN_DATA, begin, begin, bytes);
            exl2__template_lex_leave(l, end);
            l->in_raw = false;
            return true;
        }
    }
    return exl2__template_lex_fail(l, begin, "this raw block has no endraw");
}

/* Between tags: returns the text before the next tag, or the tag's opening if there is no text. A comment becomes an
   empty text. */
EXL2__PRIVATE bool exl2__template_lex_between(exl2__template_lex *l, exl2__template_token *t)
{
    uint32_t begin = l->at, at = begin;
    while (l->bytes - at >= 2 && !(l->source[at] == '{' && strchr("{%#", l->source[at + 1]) && l->source[at + 1])) {
        at++;
    }
    if (l->bytes - at < 2) {
        exl2__template_lex_make(t, begin < l->bytes ? EXL2__TEMPLATE_TOKEN_DATA : EXL2__TEMPLATE_TOKEN_END, begin,
                                begin, l->bytes - begin);
        l->at = l->bytes;
        return true;
    }
    char kind = l->source[at + 1], sign = at + 2 < l->bytes ? l->source[at + 2] : 0;
    uint32_t text_bytes = exl2__template_lex_strip(l, begin, at, sign, kind != '{');
    if (at > begin) { /* the next call returns the tag */
        exl2__template_lex_make(t, EXL2__TEMPLATE_TOKEN_DATA, begin, begin, text_bytes);
        l->at = at;
        return true;
    }
    uint32_t body = at + 2 + (sign == '-' || sign == '+');
    if (kind == '#') {
        for (uint32_t i = body; i < l->bytes; i++) {
            uint32_t end = exl2__template_lex_close(l, i, '#');
            if (end) {
                exl2__template_lex_make(t, EXL2__TEMPLATE_TOKEN_DATA, at, at, 0);
                exl2__template_lex_leave(l, end);
                return true;
            }
        }
        return exl2__template_lex_fail(l, at, "this comment has no end");
    }
    uint32_t raw_end = kind == '%' ? exl2__template_lex_raw(l, at, "raw") : 0;
    if (raw_end) {
        exl2__template_lex_make(t, EXL2__TEMPLATE_TOKEN_DATA, at, at, 0);
        exl2__template_lex_leave(l, raw_end);
        l->in_raw = true;
        return true;
    }
    l->inside = kind == '%' ? EXL2__TEMPLATE_TOKEN_BLOCK : EXL2__TEMPLATE_TOKEN_PRINT;
    l->open = 0;
    exl2__template_lex_make(t, l->inside, at, at, 2);
    l->at = body;
    return true;
}

/* ---- inside a tag ---- */

static inline bool exl2__template_lex_digit(const exl2__template_lex *l, uint32_t at)
{
    return at < l->bytes && l->source[at] >= '0' && l->source[at] <= '9';
}

/* Offset after the digits at `at`; single underscores between digits belong to the number. */
static inline uint32_t exl2__template_lex_digits(const exl2__template_lex *l, uint32_t at)
{
    uint32_t begin = at;
    while (exl2__template_lex_digit(l, at) ||
           (at > begin && at < l->bytes && l->source[at] == '_' && exl2__template_lex_digit(l, at + 1))) {
        at++;
    }
    return at;
}

/* A number: 1, 1_000, 0x1f, 0b1, 0o7, 1.5, 1e3. After a dot only integers are read, so that "a.0.1" has two indices. */
EXL2__PRIVATE bool exl2__template_lex_number(exl2__template_lex *l, exl2__template_token *t)
{
    uint32_t begin = l->at, end = exl2__template_lex_digits(l, begin);
    char letter = (char)(exl2__template_lex_peek(l, 1) | 0x20);
    exl2__template_token_kind kind = EXL2__TEMPLATE_TOKEN_INT;
    bool after_dot = begin > 0 && l->source[begin - 1] == '.';
    if (l->source[begin] == '0' && (letter == 'x' || letter == 'b' || letter == 'o')) {
        end = begin + 2;
        while (end < l->bytes && exl2__template_lex_word_byte(l->source[end])) {
            end++;
        }
    } else if (!after_dot) {
        if (end < l->bytes && l->source[end] == '.' && exl2__template_lex_digit(l, end + 1)) {
            end = exl2__template_lex_digits(l, end + 1);
            kind = EXL2__TEMPLATE_TOKEN_REAL;
        }
        if (end < l->bytes && (l->source[end] | 0x20) == 'e') {
            uint32_t power = end + 1;
            power += power < l->bytes && (l->source[power] == '+' || l->source[power] == '-');
            if (exl2__template_lex_digit(l, power)) {
                end = exl2__template_lex_digits(l, power);
                kind = EXL2__TEMPLATE_TOKEN_REAL;
            }
        }
    }
    exl2__template_lex_make(t, kind, begin, begin, end - begin);
    l->at = end;
    return true;
}

EXL2__PRIVATE bool exl2__template_lex_string(exl2__template_lex *l, exl2__template_token *t)
{
    uint32_t begin = l->at;
    for (uint32_t at = begin + 1; at < l->bytes; at++) {
        if (l->source[at] == '\\') {
            at++;
        } else if (l->source[at] == l->source[begin]) {
            exl2__template_lex_make(t, EXL2__TEMPLATE_TOKEN_STRING, begin, begin + 1, at - begin - 1);
            l->at = at + 1;
            return true;
        }
    }
    return exl2__template_lex_fail(l, begin, "this string literal has no end");
}

EXL2__PRIVATE bool exl2__template_lex_operator(exl2__template_lex *l, exl2__template_token *t)
{
    static const char pairs[][3] = { "//", "**", "==", "!=", ">=", "<=" };
    char c = l->source[l->at], next = exl2__template_lex_peek(l, 1);
    uint32_t bytes = 1;
    for (size_t i = 0; i < EXL2__COUNT(pairs); i++) {
        bytes = c == pairs[i][0] && next == pairs[i][1] ? 2 : bytes;
    }
    if (bytes == 1 && (c == 0 || !strchr("+-/*%~[](){}><=.:|,;", c))) {
        return exl2__template_lex_fail(l, l->at, "this character is not allowed in a tag");
    }
    if (strchr("([{", c)) {
        if (l->open == EXL2__TEMPLATE_DEPTH_MAX) {
            return exl2__template_lex_fail(l, l->at, "brackets are nested deeper than 64 levels");
        }
        l->brackets[l->open++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (strchr(")]}", c)) {
        if (l->open == 0 || l->brackets[l->open - 1] != c) {
            return exl2__template_lex_fail(l, l->at, "this closing bracket matches no opening bracket");
        }
        l->open--;
    }
    exl2__template_lex_make(t, EXL2__TEMPLATE_TOKEN_OPERATOR, l->at, l->at, bytes);
    l->at += bytes;
    return true;
}

EXL2__PRIVATE bool exl2__template_lex_inside(exl2__template_lex *l, exl2__template_token *t)
{
    bool block = l->inside == EXL2__TEMPLATE_TOKEN_BLOCK;
    l->at = exl2__template_lex_space(l, l->at);
    if (l->at == l->bytes) {
        return exl2__template_lex_fail(l, l->at, "the last tag has no end");
    }
    uint32_t end = l->open ? 0 : exl2__template_lex_close(l, l->at, block ? '%' : '}');
    if (end) {
        exl2__template_lex_make(t, block ? EXL2__TEMPLATE_TOKEN_BLOCK_END : EXL2__TEMPLATE_TOKEN_PRINT_END, l->at,
                                l->at, 2);
        l->inside = EXL2__TEMPLATE_TOKEN_END;
        exl2__template_lex_leave(l, end);
        return true;
    }
    char c = l->source[l->at];
    if (exl2__template_lex_digit(l, l->at)) {
        return exl2__template_lex_number(l, t);
    }
    if (exl2__template_lex_word_byte(c)) {
        uint32_t begin = l->at;
        while (l->at < l->bytes && exl2__template_lex_word_byte(l->source[l->at])) {
            l->at++;
        }
        exl2__template_lex_make(t, EXL2__TEMPLATE_TOKEN_NAME, begin, begin, l->at - begin);
        return true;
    }
    if (c == '"' || c == '\'') {
        return exl2__template_lex_string(l, t);
    }
    return exl2__template_lex_operator(l, t);
}

/* Reads the next token. false: l->problem says what is wrong at l->problem_at. */
EXL2__PRIVATE bool exl2__template_lex_next(exl2__template_lex *l, exl2__template_token *t)
{
    if (l->in_raw) {
        return exl2__template_lex_in_raw(l, t);
    }
    return l->inside == EXL2__TEMPLATE_TOKEN_END ? exl2__template_lex_between(l, t) : exl2__template_lex_inside(l, t);
}

#endif

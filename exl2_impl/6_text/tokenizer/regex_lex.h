/* regex_lex.h: the characters, escapes and counts of regular expressions, for both compilers of them: regex_parse.h for
   tokenizers, grammar_regex.h for grammars. What they make of these, and their messages, is their own.
   takes: untrusted text and a dialect.
   gives: exl2__regex_lex, exl2__regex_dialect, exl2__regex_token, exl2__regex_lex_skip, peek, escape, number, range. */
#ifndef EXL2__REGEX_LEX_H
#define EXL2__REGEX_LEX_H

#include "../../0_base/json/json_scan.h"
#include "../unicode/unicode.h"

/* In what the escapes of dialects differ. */
typedef struct exl2__regex_dialect {
    const char *letters, *values; /* letters that stand for a control character, and these characters */
    char braced;                  /* \x{..} or \u{..} */
    uint8_t braced_digits;        /* most hexadecimal digits in these braces */
    bool exact;                   /* \x and \u need 2 and 4 digits, there is \U with 8, and two surrogates are a pair */
    bool properties;              /* \p and \P begin a property */
} exl2__regex_dialect;

typedef struct exl2__regex_lex {
    const exl2__regex_dialect *dialect;
    const char *text;
    size_t bytes, at;
} exl2__regex_lex;

typedef enum exl2__regex_token_kind {
    EXL2__REGEX_TOKEN_CHAR,     /* code */
    EXL2__REGEX_TOKEN_CLASS,    /* code: one of d w s D W S, or p or P, after which the name of a property follows */
    EXL2__REGEX_TOKEN_NO_ESCAPE, /* the escape is none of the dialect */
    EXL2__REGEX_TOKEN_NO_DIGIT, /* a hexadecimal digit is missing */
    EXL2__REGEX_TOKEN_NO_BRACE  /* the } is missing */
} exl2__regex_token_kind;

typedef struct exl2__regex_token {
    exl2__regex_token_kind kind;
    uint32_t code;
} exl2__regex_token;

/* The byte `ahead` bytes after the current one, or 0 after the end. */
static inline char exl2__regex_lex_peek(const exl2__regex_lex *x, size_t ahead)
{
    return x->bytes - x->at > ahead ? x->text[x->at + ahead] : 0;
}

/* Skips `text` if it comes next. */
EXL2__PRIVATE bool exl2__regex_lex_skip(exl2__regex_lex *x, const char *text)
{
    size_t bytes = strlen(text);
    bool found = x->bytes - x->at >= bytes && memcmp(x->text + x->at, text, bytes) == 0;
    x->at += found ? bytes : 0;
    return found;
}

/* Reads `least` to `most` (at most 8) hexadecimal digits. */
EXL2__PRIVATE exl2__regex_token exl2__regex_lex_hex(exl2__regex_lex *x, uint32_t least, uint32_t most)
{
    exl2__regex_token t = { EXL2__REGEX_TOKEN_CHAR, 0 };
    uint32_t digits = exl2__hex_read(x->text + x->at, x->bytes - x->at, most, &t.code);
    x->at += digits;
    t.kind = digits < least ? EXL2__REGEX_TOKEN_NO_DIGIT : EXL2__REGEX_TOKEN_CHAR;
    return t;
}

/* Reads the code point after \x, \u or \U. */
EXL2__PRIVATE exl2__regex_token exl2__regex_lex_code(exl2__regex_lex *x, char letter)
{
    const exl2__regex_dialect *d = x->dialect;
    if (letter == d->braced && exl2__regex_lex_skip(x, "{")) {
        exl2__regex_token t = exl2__regex_lex_hex(x, 1, d->braced_digits);
        if (t.kind == EXL2__REGEX_TOKEN_CHAR && !exl2__regex_lex_skip(x, "}")) {
            t.kind = EXL2__REGEX_TOKEN_NO_BRACE;
        }
        return t;
    }
    uint32_t most = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
    exl2__regex_token t = exl2__regex_lex_hex(x, d->exact ? most : 1, most);
    if (d->exact && t.kind == EXL2__REGEX_TOKEN_CHAR && t.code >= 0xD800 && t.code < 0xDC00
        && exl2__regex_lex_peek(x, 0) == '\\') {
        x->at = exl2__min64(x->at + 2, x->bytes);
        exl2__regex_token low = exl2__regex_lex_hex(x, 4, 4);
        t.kind = low.kind;
        t.code = 0x10000 + ((t.code - 0xD800) << 10) + ((low.code - 0xDC00) & 0x3FF);
    }
    return t;
}

/* Reads an escape after its backslash. An escape that the dialect does not have is not read. */
EXL2__PRIVATE exl2__regex_token exl2__regex_lex_escape(exl2__regex_lex *x)
{
    const exl2__regex_dialect *d = x->dialect;
    exl2__regex_token t = { EXL2__REGEX_TOKEN_NO_ESCAPE, 0 };
    if (x->at == x->bytes) {
        return t;
    }
    char c = x->text[x->at++];
    bool digit = (uint8_t)(c - '0') < 10, alone = !digit && (uint8_t)((c | 32) - 'a') >= 26 && (uint8_t)c < 0x80;
    const char *letter = c ? strchr(d->letters, c) : NULL;
    if (c == 'x' || c == 'u' || (c == 'U' && d->exact)) {
        return exl2__regex_lex_code(x, c);
    }
    if (letter || alone) {
        t.kind = EXL2__REGEX_TOKEN_CHAR;
        t.code = letter ? (uint8_t)d->values[letter - d->letters] : (uint8_t)c;
    } else if (strchr("dDsSwW", c) || (d->properties && (c == 'p' || c == 'P'))) {
        t.kind = EXL2__REGEX_TOKEN_CLASS;
        t.code = (uint8_t)c;
    }
    if (digit && (uint8_t)(exl2__regex_lex_peek(x, 0) - '0') < 10) { /* \07: octal in some dialects */
        t.kind = EXL2__REGEX_TOKEN_NO_ESCAPE;
    }
    x->at -= t.kind == EXL2__REGEX_TOKEN_NO_ESCAPE;
    return t;
}

/* In a class, after a character: skips the '-' of a range. A '-' before the ']' is a character. */
static inline bool exl2__regex_lex_range(exl2__regex_lex *x)
{
    bool range = exl2__regex_lex_peek(x, 0) == '-' && exl2__regex_lex_peek(x, 1) != ']';
    x->at += range;
    return range;
}

/* Reads a decimal number; a larger one counts as UINT32_MAX. Returns its digits; 0: there is no number. */
EXL2__PRIVATE size_t exl2__regex_lex_number(exl2__regex_lex *x, uint32_t *out)
{
    uint64_t value = 0;
    size_t begin = x->at;
    for (; (uint8_t)(exl2__regex_lex_peek(x, 0) - '0') < 10; x->at++) {
        value = exl2__min64(value * 10 + (uint64_t)(exl2__regex_lex_peek(x, 0) - '0'), UINT32_MAX);
    }
    *out = (uint32_t)value;
    return x->at - begin;
}

#endif

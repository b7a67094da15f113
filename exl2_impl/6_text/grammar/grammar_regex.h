/* grammar_regex.h: compiles regular expressions to pieces of an automaton, in the dialect that JavaScript and Python
   share.
   takes: untrusted UTF-8.
   gives: exl2__grammar_regex_read; for grammar_ebnf.h also the reader, character classes and counts. */
#ifndef EXL2__GRAMMAR_REGEX_H
#define EXL2__GRAMMAR_REGEX_H

#include "../tokenizer/regex_lex.h"
#include "grammar_code.h"

#define EXL2__GRAMMAR_REGEX_DEPTH_MAX 64u

typedef struct exl2__grammar_regex {
    exl2__grammar_code *g;
    exl2__regex_lex x;
    uint32_t depth;
} exl2__grammar_regex;

/* What JavaScript and Python share; \e and \U as well. */
static const exl2__regex_dialect exl2__grammar_regex_dialect = { "nrtfv0abe", "\n\r\t\f\v\0\a\b\x1B", 'u', 6, true,
                                                                 false };

static inline exl2__grammar_regex exl2__grammar_regex_of(exl2__grammar_code *g, const char *text, size_t bytes)
{
    exl2__grammar_regex r = { g, { &exl2__grammar_regex_dialect, text, bytes, 0 }, 0 };
    return r;
}

static inline bool exl2__grammar_regex_more(const exl2__grammar_regex *r)
{
    return r->x.at < r->x.bytes && r->g->result == EXL2_OK;
}

/* Rejects the expression. If it is rejected twice, the first error stays. */
EXL2__PRIVATE void exl2__grammar_regex_reject(exl2__grammar_regex *r, exl2_result code, const char *what)
{
    if (r->g->result == EXL2_OK) {
        uint32_t line, column;
        exl2__unicode_place(r->x.text, r->x.at, &line, &column);
        r->g->result = exl2__fail(r->g->c, code, "%s line %u, column %u: %s", r->g->label, line, column, what);
    }
}

/* ---- characters and classes ----

   Above each parser function stands its production: "x" is text, [x] is optional, {x} repeats, a | b is a choice. */

typedef struct exl2__grammar_regex_shorthand {
    char letter;
    uint8_t count;
    exl2__grammar_code_range ranges[13];
} exl2__grammar_regex_shorthand;

/* JavaScript and Python differ outside ASCII. Each list holds the characters that are in the class in both. */
static const exl2__grammar_regex_shorthand exl2__grammar_regex_classes[] = {
    { 'd', 1, { { '0', '9' } } },
    { 'w', 4, { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } } },
    { 's', 2, { { 9, 13 }, { ' ', ' ' } } },
    { 'D', 6, { { 0, '/' }, { ':', 0x65F }, { 0x2000, 0x9FFF }, { 0xAC00, 0xD7A3 }, { 0xE000, 0xF8FF },
                { 0x1F300, 0x1FAFF } } },
    { 'W', 8, { { 0, '/' }, { ':', '@' }, { '[', '^' }, { '`', '`' }, { '{', 0x7F }, { 0x2010, 0x2027 },
                { 0x3001, 0x3003 }, { 0x1F300, 0x1FAFF } } },
    { 'S', 10, { { 0, 8 }, { 14, 0x1B }, { 0x21, 0x84 }, { 0x86, 0x9F }, { 0xA1, 0x167F }, { 0x1681, 0x180D },
                 { 0x180F, 0x1FFF }, { 0x200B, 0x2027 }, { 0x2060, 0x2FFF }, { 0x3001, 0xFEFE } } },
};

EXL2__PRIVATE const exl2__grammar_regex_shorthand *exl2__grammar_regex_find_class(char letter)
{
    for (size_t i = 0; i < EXL2__COUNT(exl2__grammar_regex_classes); i++) {
        if (exl2__grammar_regex_classes[i].letter == letter) {
            return &exl2__grammar_regex_classes[i];
        }
    }
    return NULL;
}

EXL2__PRIVATE void exl2__grammar_regex_add(exl2__grammar_regex *r, exl2__grammar_code_class *s, uint32_t low,
                                           uint32_t high)
{
    if (!exl2__grammar_code_class_add(s, low, high)) {
        exl2__grammar_regex_reject(r, EXL2_ERR_BUDGET, "a character class has more than 512 ranges");
    }
}

/* Adds a class such as \d. If the surrounding class will be negated, \d must hold every character that is a digit in
   some dialect; this is the complement of the list of \D. */
EXL2__PRIVATE void exl2__grammar_regex_add_class(exl2__grammar_regex *r, exl2__grammar_code_class *s, char letter,
                                                 bool negated)
{
    negated = negated != r->g->wide;
    const exl2__grammar_regex_shorthand *list = exl2__grammar_regex_find_class(negated ? (char)(letter ^ 32) : letter);
    uint32_t low = 0; /* beginning of the gap before the next range; the ranges ascend */
    for (uint32_t i = 0; i < list->count; i++) {
        exl2__grammar_code_range range = list->ranges[i];
        if (!negated) {
            exl2__grammar_regex_add(r, s, range.low, range.high);
        } else if (range.low > low) {
            exl2__grammar_regex_add(r, s, low, range.low - 1);
        }
        low = range.high + 1;
    }
    if (negated) {
        exl2__grammar_regex_add(r, s, low, 0x10FFFF);
    }
}

/* char: character | "\\" ("x" hex | "u" hex | "u{" hex "}" | "U" hex | letter of names | punctuation). A high surrogate
   takes the low one that follows. Other escaped letters, such as those of classes, are an error. */
EXL2__PRIVATE uint32_t exl2__grammar_regex_char(exl2__grammar_regex *r)
{
    exl2__regex_lex *x = &r->x;
    uint32_t code = EXL2__UNICODE_BAD;
    if (!exl2__regex_lex_skip(x, "\\")) {
        if (exl2__grammar_regex_more(r)) {
            x->at += exl2__unicode_next(x->text + x->at, x->bytes - x->at, &code);
        }
        if (code >= EXL2__UNICODE_BAD) {
            exl2__grammar_regex_reject(r, EXL2_ERR_FORMAT, "expected a character in valid UTF-8");
        }
        return code;
    }
    exl2__regex_token t = exl2__regex_lex_escape(x);
    if (t.kind == EXL2__REGEX_TOKEN_NO_DIGIT) {
        exl2__grammar_regex_reject(r, EXL2_ERR_FORMAT, "expected a hexadecimal digit");
    } else if (t.kind == EXL2__REGEX_TOKEN_NO_BRACE) {
        exl2__grammar_regex_reject(r, EXL2_ERR_FORMAT, "'}' is missing after \\u{");
    } else if (t.kind != EXL2__REGEX_TOKEN_CHAR || (t.code == 0 && x->text[x->at - 1] == 0)) { /* a NUL is none */
        x->at -= t.kind == EXL2__REGEX_TOKEN_CLASS;
        exl2__grammar_regex_reject(r, EXL2_ERR_UNSUPPORTED, "the escape is not supported");
        return 0;
    }
    return t.code;
}

/* class: "[" ["^"] {shorthand | char ["-" char]} "]". NOINLINE here and below: a set of ranges needs 4 KB of stack,
   which functions that recurse must not have. */
EXL2__NOINLINE
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_regex_class(exl2__grammar_regex *r)
{
    exl2__grammar_code_class s = { 0 };
    r->x.at++;
    bool negated = exl2__regex_lex_skip(&r->x, "^");
    while (exl2__grammar_regex_more(r) && exl2__regex_lex_peek(&r->x, 0) != ']') {
        char c = exl2__regex_lex_peek(&r->x, 0), escaped = exl2__regex_lex_peek(&r->x, 1);
        if (c == '\\' && exl2__grammar_regex_find_class(escaped)) {
            r->x.at += 2;
            exl2__grammar_regex_add_class(r, &s, escaped, negated);
            continue;
        }
        if (c == '[' && (escaped == ':' || escaped == '.' || escaped == '=')) {
            exl2__grammar_regex_reject(r, EXL2_ERR_UNSUPPORTED, "a named class like [:alpha:] is not supported");
        }
        uint32_t low = exl2__grammar_regex_char(r), high = low;
        if (exl2__regex_lex_range(&r->x)) {
            high = exl2__grammar_regex_char(r);
        }
        if (low > high || high > 0x10FFFF) {
            exl2__grammar_regex_reject(r, EXL2_ERR_FORMAT, "a range of characters ends before it begins");
        }
        exl2__grammar_regex_add(r, &s, low, high);
    }
    if (!exl2__regex_lex_skip(&r->x, "]")) {
        exl2__grammar_regex_reject(r, EXL2_ERR_FORMAT, "']' is missing");
    }
    if (negated) {
        exl2__grammar_code_class_negate(&s);
    }
    return exl2__grammar_code_one_of(r->g, &s);
}

/* A class of any character; without `line_ends`, of any but the line ends. */
EXL2__NOINLINE
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_regex_any(exl2__grammar_code *g, bool line_ends)
{
    exl2__grammar_code_class s = { 0 };
    if (!line_ends) {
        exl2__grammar_code_class_add(&s, '\n', '\n');
        exl2__grammar_code_class_add(&s, '\r', '\r');
        exl2__grammar_code_class_add(&s, 0x2028, 0x2029);
    }
    exl2__grammar_code_class_negate(&s);
    return exl2__grammar_code_one_of(g, &s);
}

/* shorthand: "\\" ("d" | "w" | "s" | "D" | "W" | "S"). */
EXL2__NOINLINE
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_regex_shorthand_class(exl2__grammar_regex *r)
{
    exl2__grammar_code_class s = { 0 };
    exl2__grammar_regex_add_class(r, &s, exl2__regex_lex_peek(&r->x, 1), false);
    r->x.at += 2;
    return exl2__grammar_code_one_of(r->g, &s);
}

EXL2__NOINLINE
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_regex_one(exl2__grammar_code *g, uint32_t code)
{
    exl2__grammar_code_class s = { 0 };
    exl2__grammar_code_class_add(&s, code, code);
    return exl2__grammar_code_one_of(g, &s);
}

/* ---- counts ---- */

/* number: digit {digit}. */
EXL2__PRIVATE uint32_t exl2__grammar_regex_number(exl2__grammar_regex *r)
{
    uint32_t value;
    if (!exl2__regex_lex_number(&r->x, &value)) {
        exl2__grammar_regex_reject(r, EXL2_ERR_FORMAT, "expected a count");
    } else if (value > EXL2__GRAMMAR_CODE_COUNT_MAX) {
        exl2__grammar_regex_reject(r, EXL2_ERR_BUDGET, "a count of more than 1,000,000 is not supported");
    }
    return value;
}

/* Does a repetition in braces begin here? {,n} and {,} are rejected. */
EXL2__PRIVATE bool exl2__grammar_regex_counted(exl2__grammar_regex *r)
{
    char first = exl2__regex_lex_peek(&r->x, 1);
    size_t end = 2;
    if (exl2__regex_lex_peek(&r->x, 0) != '{') {
        return false;
    }
    while ((uint8_t)(exl2__regex_lex_peek(&r->x, end) - '0') < 10) {
        end++;
    }
    if (first == ',' && exl2__regex_lex_peek(&r->x, end) == '}') {
        exl2__grammar_regex_reject(r, EXL2_ERR_UNSUPPORTED,
                                   "{,n} is a repetition in some dialects (Python) and plain text in others "
                                   "(JavaScript); write {0,n}, or \\{,n} for the text");
    }
    return (uint8_t)(first - '0') < 10;
}

/* counts: [("*" | "+" | "?" | "{m}" | "{m,}" | "{m,n}") ["?"]]. A second repetition is rejected. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_regex_counts(exl2__grammar_regex *r, exl2__grammar_code_piece part)
{
    for (uint32_t times = 0; exl2__grammar_regex_more(r); times++) {
        char c = exl2__regex_lex_peek(&r->x, 0);
        uint32_t min = c == '+', max = c == '?' ? 1 : EXL2__GRAMMAR_CODE_ENDLESS;
        bool counted = exl2__grammar_regex_counted(r);
        if (c != '*' && c != '+' && c != '?' && !counted) {
            break;
        }
        r->x.at++;
        if (times) {
            exl2__grammar_regex_reject(r, EXL2_ERR_UNSUPPORTED,
                                       "a second repetition directly after the first is not supported");
        }
        if (counted) {
            min = max = exl2__grammar_regex_number(r);
            if (exl2__regex_lex_skip(&r->x, ",")) {
                bool open = exl2__regex_lex_peek(&r->x, 0) == '}';
                max = open ? EXL2__GRAMMAR_CODE_ENDLESS : exl2__grammar_regex_number(r);
            }
            if (!exl2__regex_lex_skip(&r->x, "}") || max < min) {
                exl2__grammar_regex_reject(r, EXL2_ERR_FORMAT, "expected {m}, {m,} or {m,n} with m <= n");
            }
        }
        part = exl2__grammar_code_repeat(r->g, part, min, max);
        exl2__regex_lex_skip(&r->x, "?"); /* a lazy repetition matches the same texts */
    }
    return part;
}

/* ---- expressions ---- */

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_regex_either(exl2__grammar_regex *r);

/* group: "(" ["?:" | "?<" name ">" | "?P<" name ">"] either ")". */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_regex_group(exl2__grammar_regex *r)
{
    r->x.at++;
    if (exl2__regex_lex_skip(&r->x, "?")) {
        exl2__regex_lex_skip(&r->x, "P");
        char c = exl2__regex_lex_peek(&r->x, 0), after = exl2__regex_lex_peek(&r->x, 1);
        if (c == '<' && after != '=' && after != '!') {
            while (exl2__grammar_regex_more(r) && !exl2__regex_lex_skip(&r->x, ">")) {
                r->x.at++;
            }
        } else if (!exl2__regex_lex_skip(&r->x, ":")) {
            exl2__grammar_regex_reject(r, EXL2_ERR_UNSUPPORTED,
                                       "look-around, flags and conditions, (?...), are not supported");
        }
    }
    if (++r->depth > EXL2__GRAMMAR_REGEX_DEPTH_MAX) {
        exl2__grammar_regex_reject(r, EXL2_ERR_UNSUPPORTED, "at most 64 nested groups are supported");
        return exl2__grammar_code_empty(r->g);
    }
    exl2__grammar_code_piece inner = exl2__grammar_regex_either(r);
    r->depth--;
    if (!exl2__regex_lex_skip(&r->x, ")")) {
        exl2__grammar_regex_reject(r, EXL2_ERR_FORMAT, "')' is missing");
    }
    return inner;
}

/* atom: group | class | "." | shorthand | char. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_regex_atom(exl2__grammar_regex *r)
{
    char c = exl2__regex_lex_peek(&r->x, 0);
    switch (c) {
    case '(':
        return exl2__grammar_regex_group(r);
    case '[':
        return exl2__grammar_regex_class(r);
    case '.':
        r->x.at++;
        return exl2__grammar_regex_any(r->g, false);
    case '*':
    case '+':
    case '?':
        exl2__grammar_regex_reject(r, EXL2_ERR_FORMAT, "a repetition must follow what it repeats");
        break;
    case '{':
        if (exl2__grammar_regex_counted(r)) {
            exl2__grammar_regex_reject(r, EXL2_ERR_FORMAT, "a repetition must follow what it repeats");
        }
        break;
    case '^':
    case '$':
        exl2__grammar_regex_reject(r, EXL2_ERR_UNSUPPORTED,
                                   "^ and $ are supported at the ends of the outermost alternatives only");
        break;
    case '\\': {
        char escaped = exl2__regex_lex_peek(&r->x, 1);
        if (exl2__grammar_regex_find_class(escaped)) {
            return exl2__grammar_regex_shorthand_class(r);
        }
        if (escaped == 'b' || escaped == 'B') {
            exl2__grammar_regex_reject(r, EXL2_ERR_UNSUPPORTED, "word borders, \\b and \\B, are not supported");
        }
        break;
    }
    default:
        break;
    }
    return exl2__grammar_regex_one(r->g, exl2__grammar_regex_char(r));
}

/* sequence: {atom counts}. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_regex_sequence(exl2__grammar_regex *r)
{
    exl2__grammar_code_piece all = exl2__grammar_code_empty(r->g);
    while (exl2__grammar_regex_more(r)) {
        char c = exl2__regex_lex_peek(&r->x, 0);
        if (c == '|' || c == ')' || (c == '$' && r->depth == 0)) {
            break;
        }
        exl2__grammar_code_piece part = exl2__grammar_regex_atom(r);
        all = exl2__grammar_code_cat(r->g, all, exl2__grammar_regex_counts(r, part));
    }
    return all;
}

/* either: sequence {"|" sequence}. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_regex_either(exl2__grammar_regex *r)
{
    exl2__grammar_code_piece list = { 0, 0 };
    do {
        exl2__grammar_code_or(r->g, &list, exl2__grammar_regex_sequence(r));
    } while (r->g->result == EXL2_OK && exl2__regex_lex_skip(&r->x, "|"));
    return list;
}

/* expression: ["^"] sequence ["$"] {"|" ["^"] sequence ["$"]}. With `whole`, the whole text must match. Without it, the
   text must contain a match, and ^ and $ say that a match must begin or end where the text does. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_regex_read(exl2__grammar_code *g, const char *text, size_t bytes,
                                                                bool whole)
{
    exl2__grammar_regex r = exl2__grammar_regex_of(g, text, bytes);
    exl2__grammar_code_piece list = { 0, 0 };
    do {
        bool from_start = exl2__regex_lex_skip(&r.x, "^") || whole;
        exl2__grammar_code_piece part = exl2__grammar_regex_sequence(&r);
        bool to_end = exl2__regex_lex_skip(&r.x, "$") || whole;
        if (!from_start) {
            part = exl2__grammar_code_cat(
                g, exl2__grammar_code_star(g, exl2__grammar_regex_any(g, true), true), part);
        }
        if (!to_end) {
            part = exl2__grammar_code_cat(
                g, part, exl2__grammar_code_star(g, exl2__grammar_regex_any(g, true), true));
        }
        exl2__grammar_code_or(g, &list, part);
    } while (g->result == EXL2_OK && exl2__regex_lex_skip(&r.x, "|"));
    if (exl2__grammar_regex_more(&r)) {
        exl2__grammar_regex_reject(&r, EXL2_ERR_FORMAT,
                                   r.x.text[r.x.at] == ')' ? "')' has no matching '('"
                                       : "^ and $ are supported at the ends of the outermost alternatives only");
    }
    return list;
}

#endif

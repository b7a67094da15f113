/* template_emit.h: helpers of the parser: read the next token, emit code and literals, report errors. In a dry run the
   parser has no code and only counts, so that the second run can write into a block of exactly that size.
   takes: exl2__template_lex.
   gives: exl2__template_parser and its token, name, code and text helpers.
   owns:  nothing; code and text belong to the caller. */
#ifndef EXL2__TEMPLATE_EMIT_H
#define EXL2__TEMPLATE_EMIT_H

#include "../../0_base/json/json.h"
#include "../unicode/unicode.h"
#include "template_lex.h"

#define EXL2__TEMPLATE_MOVES_MAX (16u << 20) /* instructions moved for all `a if b` of a template */

/* The loop that break and continue refer to. */
typedef struct exl2__template_parser_loop {
    uint32_t next;  /* index of its NEXT instruction */
    uint32_t exits; /* chain of jumps to its end; 0 = none */
} exl2__template_parser_loop;

/* A position of the parser, to return to. */
typedef struct exl2__template_parser_place {
    exl2__template_lex lex;
    exl2__template_token token;
} exl2__template_parser_place;

typedef struct exl2__template_parser {
    exl2__template_lex lex;
    exl2__template_token token; /* the next token */
    exl2__template_ins *code;   /* NULL: dry run */
    char *pool;                 /* decoded literals that had escapes; NULL: dry run */
    uint32_t code_count, pool_bytes, name_count;
    exl2__template_name names[EXL2__TEMPLATE_NAMES_MAX];
    uint32_t depth;             /* nested statements and expressions */
    uint32_t frames;            /* frames open at run time at this point of the code */
    uint32_t stack, stack_max;  /* values on the stack at this point, and the most so far */
    uint64_t moves;             /* instructions moved, up to EXL2__TEMPLATE_MOVES_MAX */
    exl2__template_parser_loop *loop; /* the innermost loop; NULL: outside loops */
    bool in_loop_filter;
    bool in_loop_macro;         /* inside a macro that a loop's body defines, outside loops of its own */
    bool soft;                  /* as Jinja's soft frames: a name that it does not know fails only when it runs */
    exl2__template_token unknown; /* the first such name outside soft frames; bytes 0: none */
    const char *unknown_what;   /* "filter" or "test" */
    uint32_t unknown_code;      /* index of its FAIL instruction */
    uint32_t macro_uses;        /* exl2__template_macro_use of the macro that is being parsed */
    exl2__template_ins last;    /* the last instruction emitted */
    exl2_error *error;
} exl2__template_parser;

/* ---- failing ---- */

EXL2__PRINTF(4, 5)
EXL2__PRIVATE exl2_result exl2__template_emit_fail(exl2__template_parser *p, exl2_result code, uint32_t at,
                                                   const char *format, ...)
{
    uint32_t line, column;
    exl2__unicode_place(p->lex.source, at, &line, &column);
    size_t used =
        exl2__format(p->error->text, sizeof p->error->text, "chat template line %u, column %u: ", line, column);
    va_list args;
    va_start(args, format);
    exl2__format_list(p->error->text + used, sizeof p->error->text - used, format, args);
    va_end(args);
    p->error->code = code;
    return code;
}

/* "filter 'x' is not supported" */
EXL2__PRIVATE exl2_result exl2__template_emit_unsupported(exl2__template_parser *p, const exl2__template_token *t,
                                                          const char *what)
{
    return exl2__template_emit_fail(p, EXL2_ERR_UNSUPPORTED, t->at, "%s '%.*s' is not supported", what, (int)t->bytes,
                                    p->lex.source + t->begin);
}

/* Fails because the next token is not what the grammar expects. */
EXL2__PRIVATE exl2_result exl2__template_emit_unexpected(exl2__template_parser *p, const char *wanted)
{
    const exl2__template_token *t = &p->token;
    switch (t->kind) {
    case EXL2__TEMPLATE_TOKEN_END:
        return exl2__template_emit_fail(p, EXL2_ERR_FORMAT, t->at, "expected %s, found the end of the template",
                                        wanted);
    case EXL2__TEMPLATE_TOKEN_DATA:
        return exl2__template_emit_fail(p, EXL2_ERR_FORMAT, t->at, "expected %s, found text", wanted);
    case EXL2__TEMPLATE_TOKEN_STRING:
        return exl2__template_emit_fail(p, EXL2_ERR_FORMAT, t->at, "expected %s, found a string", wanted);
    default:
        return exl2__template_emit_fail(p, EXL2_ERR_FORMAT, t->at, "expected %s, found '%.*s'", wanted, (int)t->bytes,
                                        p->lex.source + t->begin);
    }
}

/* ---- tokens ---- */

EXL2__PRIVATE exl2_result exl2__template_emit_advance(exl2__template_parser *p)
{
    if (!exl2__template_lex_next(&p->lex, &p->token)) {
        return exl2__template_emit_fail(p, EXL2_ERR_FORMAT, p->lex.problem_at, "%s", p->lex.problem);
    }
    return EXL2_OK;
}

/* Whether the token is this operator or name. */
EXL2__PRIVATE bool exl2__template_emit_is(const exl2__template_parser *p, exl2__template_token_kind kind,
                                          const char *word)
{
    return p->token.kind == kind && exl2__template_same(p->lex.source + p->token.begin, p->token.bytes, word);
}

EXL2__PRIVATE bool exl2__template_emit_is_operator(const exl2__template_parser *p, const char *word)
{
    return exl2__template_emit_is(p, EXL2__TEMPLATE_TOKEN_OPERATOR, word);
}

EXL2__PRIVATE bool exl2__template_emit_is_name(const exl2__template_parser *p, const char *word)
{
    return exl2__template_emit_is(p, EXL2__TEMPLATE_TOKEN_NAME, word);
}

/* Whether the token after the next one is this operator or name. */
EXL2__PRIVATE bool exl2__template_emit_next_is(const exl2__template_parser *p, exl2__template_token_kind kind,
                                               const char *word)
{
    exl2__template_lex ahead = p->lex;
    exl2__template_token t;
    return exl2__template_lex_next(&ahead, &t) && t.kind == kind &&
           exl2__template_same(p->lex.source + t.begin, t.bytes, word);
}

EXL2__PRIVATE exl2_result exl2__template_emit_expect(exl2__template_parser *p, exl2__template_token_kind kind,
                                                     const char *word)
{
    if (!exl2__template_emit_is(p, kind, word)) {
        char quoted[24];
        exl2__format(quoted, sizeof quoted, "'%s'", word);
        return exl2__template_emit_unexpected(p, quoted);
    }
    return exl2__template_emit_advance(p);
}

EXL2__PRIVATE exl2_result exl2__template_emit_operator(exl2__template_parser *p, const char *word)
{
    return exl2__template_emit_expect(p, EXL2__TEMPLATE_TOKEN_OPERATOR, word);
}

/* Enters a nested statement or expression; exl2__template_emit_leave leaves it. */
EXL2__PRIVATE exl2_result exl2__template_emit_enter(exl2__template_parser *p)
{
    if (p->depth == EXL2__TEMPLATE_DEPTH_MAX) {
        return exl2__template_emit_fail(p, EXL2_ERR_UNSUPPORTED, p->token.at,
                                        "nesting deeper than %u levels is not supported", EXL2__TEMPLATE_DEPTH_MAX);
    }
    p->depth++;
    return EXL2_OK;
}

EXL2__PRIVATE void exl2__template_emit_leave(exl2__template_parser *p)
{
    p->depth--;
}

/* ---- code ---- */

/* Appends an instruction and returns its index. `effect`: values that it pushes minus values that it pops. */
EXL2__PRIVATE uint32_t exl2__template_emit_ins(exl2__template_parser *p, exl2__template_ins ins, int effect)
{
    if (p->code) {
        p->code[p->code_count] = ins;
    }
    p->last = ins;
    p->stack = (uint32_t)((int)p->stack + effect);
    p->stack_max = exl2__max32(p->stack_max, p->stack);
    return p->code_count++;
}

EXL2__PRIVATE uint32_t exl2__template_emit(exl2__template_parser *p, exl2__template_op op, uint32_t a, uint32_t b,
                                           uint32_t at, int effect)
{
    exl2__template_ins ins = { (uint8_t)op, 0, 0, a, b, at };
    return exl2__template_emit_ins(p, ins, effect);
}

/* Appends an instruction with the number of frames that stay open. */
EXL2__PRIVATE uint32_t exl2__template_emit_frames(exl2__template_parser *p, exl2__template_op op, uint32_t frames,
                                                  uint32_t at, int effect)
{
    exl2__template_ins ins = { (uint8_t)op, 0, (uint16_t)frames, 0, 0, at };
    return exl2__template_emit_ins(p, ins, effect);
}

/* Sets the target of a jump. */
EXL2__PRIVATE void exl2__template_emit_patch(exl2__template_parser *p, uint32_t jump, uint32_t target)
{
    if (p->code) {
        p->code[jump].a = target - jump; /* modulo 2^32, so backward jumps work, too */
    }
}

/* Adds a jump to a chain of jumps that will get the same target. Index 0, which is never a jump, ends the chain. */
EXL2__PRIVATE void exl2__template_emit_chain(exl2__template_parser *p, uint32_t *chain, uint32_t jump)
{
    if (p->code) {
        p->code[jump].a = *chain;
    }
    *chain = jump;
}

/* Sets the target of every jump of the chain to the next instruction. */
EXL2__PRIVATE void exl2__template_emit_patch_chain(exl2__template_parser *p, uint32_t chain)
{
    while (p->code && chain) {
        uint32_t next = p->code[chain].a;
        exl2__template_emit_patch(p, chain, p->code_count);
        chain = next;
    }
}

EXL2__PRIVATE void exl2__template_emit_reverse(exl2__template_ins *code, uint32_t count)
{
    for (uint32_t i = 0; i < count / 2; i++) {
        exl2__template_ins swap = code[i];
        code[i] = code[count - 1 - i];
        code[count - 1 - i] = swap;
    }
}

/* Exchanges the finished code [first, second) and [second, end). */
EXL2__PRIVATE exl2_result exl2__template_emit_swap(exl2__template_parser *p, uint32_t first, uint32_t second,
                                                   uint32_t at)
{
    p->moves += p->code_count - first;
    if (p->moves > EXL2__TEMPLATE_MOVES_MAX) {
        return exl2__template_emit_fail(p, EXL2_ERR_UNSUPPORTED, at,
                                        "inline conditions that move more than %u instructions are not supported",
                                        EXL2__TEMPLATE_MOVES_MAX);
    }
    if (p->code) {
        exl2__template_emit_reverse(p->code + first, second - first);
        exl2__template_emit_reverse(p->code + second, p->code_count - second);
        exl2__template_emit_reverse(p->code + first, p->code_count - first);
    }
    return EXL2_OK;
}

/* The index of a variable's name, which is added if it is new. */
EXL2__PRIVATE exl2_result exl2__template_emit_name(exl2__template_parser *p, const exl2__template_token *t,
                                                   uint32_t *index)
{
    const char *source = p->lex.source;
    for (*index = 0; *index < p->name_count; (*index)++) {
        const exl2__template_name *n = &p->names[*index];
        if (n->bytes == t->bytes && memcmp(source + n->at, source + t->begin, t->bytes) == 0) {
            return EXL2_OK;
        }
    }
    if (p->name_count == EXL2__TEMPLATE_NAMES_MAX) {
        return exl2__template_emit_fail(p, EXL2_ERR_UNSUPPORTED, t->at, "more than %u variables are not supported",
                                        EXL2__TEMPLATE_NAMES_MAX);
    }
    exl2__template_name made = { t->begin, t->bytes };
    p->names[p->name_count++] = made;
    return EXL2_OK;
}

/* ---- literals ---- */

EXL2__PRIVATE void exl2__template_emit_byte(exl2__template_parser *p, uint32_t byte)
{
    if (p->pool) {
        p->pool[p->pool_bytes] = (char)byte;
    }
    p->pool_bytes++;
}

EXL2__PRIVATE void exl2__template_emit_code_point(exl2__template_parser *p, uint32_t code)
{
    char utf8[4];
    uint32_t bytes = exl2__json_encode_utf8(code, utf8);
    for (uint32_t i = 0; i < bytes; i++) {
        exl2__template_emit_byte(p, (uint8_t)utf8[i]);
    }
}

/* Decodes \xHH, \uXXXX or \UXXXXXXXX at text[*at] and moves *at past it. */
EXL2__PRIVATE exl2_result exl2__template_emit_hex_escape(exl2__template_parser *p, const exl2__template_token *t,
                                                         uint32_t *at)
{
    const char *text = p->lex.source + t->begin;
    char kind = text[*at + 1];
    uint32_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : 8, begin = exl2__min32(*at + 2, t->bytes), code;
    if (exl2__hex_read(text + begin, t->bytes - begin, digits, &code) < digits) {
        return exl2__template_emit_fail(p, EXL2_ERR_FORMAT, t->begin + *at, "\\%c needs %u hexadecimal digits", kind,
                                        digits);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
        return exl2__template_emit_fail(p, EXL2_ERR_UNSUPPORTED, t->begin + *at, "code point U+%x is not supported",
                                        code);
    }
    exl2__template_emit_code_point(p, code);
    *at += 2 + digits;
    return EXL2_OK;
}

/* Decodes one escape at text[*at] as Python does: an undefined escape is copied with its backslash. */
EXL2__PRIVATE exl2_result exl2__template_emit_escape(exl2__template_parser *p, const exl2__template_token *t,
                                                     uint32_t *at)
{
    static const char names[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v"; /* pairs: letter, meaning */
    const char *text = p->lex.source + t->begin;
    char c = text[*at + 1];
    if (c == 'x' || c == 'u' || c == 'U') {
        return exl2__template_emit_hex_escape(p, t, at);
    }
    if (c == 'N' || (uint8_t)c >= 0x80) {
        return exl2__template_emit_fail(p, EXL2_ERR_UNSUPPORTED, t->begin + *at,
                                        "this escape sequence in a string is not supported");
    }
    if (c >= '0' && c <= '7') {
        uint32_t code = 0, i = *at + 1;
        while (i < t->bytes && i < *at + 4 && text[i] >= '0' && text[i] <= '7') {
            code = code * 8 + (uint32_t)(text[i++] - '0');
        }
        exl2__template_emit_code_point(p, code);
        *at = i;
        return EXL2_OK;
    }
    *at += 2;
    if (c == '\n') {
        return EXL2_OK;
    }
    for (size_t i = 0; i + 1 < sizeof names; i += 2) {
        if (c == names[i]) {
            exl2__template_emit_byte(p, (uint8_t)names[i + 1]);
            return EXL2_OK;
        }
    }
    exl2__template_emit_byte(p, '\\');
    exl2__template_emit_byte(p, (uint8_t)c);
    return EXL2_OK;
}

/* Adjacent string literals become one text. */
EXL2__PRIVATE exl2_result exl2__template_emit_string(exl2__template_parser *p)
{
    exl2__template_token first = p->token;
    uint32_t pool_begin = p->pool_bytes;
    EXL2__TRY(exl2__template_emit_advance(p));
    bool single = p->token.kind != EXL2__TEMPLATE_TOKEN_STRING;
    if (single && !memchr(p->lex.source + first.begin, '\\', first.bytes)) {
        exl2__template_emit(p, EXL2__TEMPLATE_TEXT, first.begin, first.bytes, first.at, 1);
        return EXL2_OK;
    }
    for (exl2__template_token t = first;;) {
        for (uint32_t at = 0; at < t.bytes;) {
            if (p->lex.source[t.begin + at] == '\\') {
                EXL2__TRY(exl2__template_emit_escape(p, &t, &at));
            } else {
                exl2__template_emit_byte(p, (uint8_t)p->lex.source[t.begin + at++]);
            }
        }
        if (p->token.kind != EXL2__TEMPLATE_TOKEN_STRING) {
            break;
        }
        t = p->token;
        EXL2__TRY(exl2__template_emit_advance(p));
    }
    exl2__template_emit(p, EXL2__TEMPLATE_TEXT, p->lex.bytes + pool_begin, p->pool_bytes - pool_begin, first.at, 1);
    return EXL2_OK;
}

/* Parses 12, 1_000, 0x1f, 0b101 or 0o17. *fits: it is below 2^64. false: malformed. */
EXL2__PRIVATE bool exl2__template_emit_int_value(const char *text, uint32_t bytes, uint64_t *out, bool *fits)
{
    char letter = (char)(bytes > 2 ? text[1] | 0x20 : 0);
    uint32_t base = letter == 'x' ? 16 : letter == 'b' ? 2 : letter == 'o' ? 8 : 10, at = base == 10 ? 0 : 2;
    bool after_digit = base != 10;
    *out = 0;
    *fits = true;
    for (; at < bytes; at++) {
        uint32_t digit = exl2__hex_digit((uint8_t)text[at]);
        if (text[at] == '_' && after_digit && at + 1 < bytes) {
            after_digit = false;
            continue;
        }
        if (digit >= base) {
            return false;
        }
        *fits = *fits && exl2__mul64(*out, base, out) && exl2__add64(*out, digit, out);
        after_digit = true;
    }
    return base != 10 || (*fits && *out == 0) || text[0] != '0';
}

/* An integer literal. Beyond int64_t its decimal digits are kept; a longer one that is not decimal fails when it
   runs. */
EXL2__PRIVATE exl2_result exl2__template_emit_integer(exl2__template_parser *p)
{
    exl2__template_token t = p->token;
    const char *text = p->lex.source + t.begin;
    uint32_t begin = p->pool_bytes;
    uint64_t value;
    bool fits;
    if (!exl2__template_emit_int_value(text, t.bytes, &value, &fits)) {
        return exl2__template_emit_unsupported(p, &t, "integer");
    }
    bool decimal = t.bytes < 3 || (text[1] >= '0' && text[1] <= '9') || text[1] == '_';
    if (fits && value <= INT64_MAX) {
        exl2__template_emit(p, EXL2__TEMPLATE_INT, (uint32_t)value, (uint32_t)(value >> 32), t.at, 1);
    } else if (!fits && (!decimal || t.bytes > EXL2__TEMPLATE_DIGITS_MAX)) {
        exl2__template_ins fail = { EXL2__TEMPLATE_FAIL, EXL2__TEMPLATE_BIG, 0, 0, 0, t.at };
        exl2__template_emit_ins(p, fail, 1);
    } else {
        char digits[24];
        uint32_t bytes = t.bytes;
        if (!decimal) {
            bytes = (uint32_t)exl2__format(digits, sizeof digits, "%llu", (unsigned long long)value);
            text = digits;
        }
        for (uint32_t i = 0; i < bytes; i++) {
            if (text[i] != '_') {
                exl2__template_emit_byte(p, (uint8_t)text[i]);
            }
        }
        exl2__template_emit(p, EXL2__TEMPLATE_BIG, p->lex.bytes + begin, p->pool_bytes - begin, t.at, 1);
    }
    return exl2__template_emit_advance(p);
}

EXL2__PRIVATE exl2_result exl2__template_emit_number(exl2__template_parser *p)
{
    exl2__template_token t = p->token;
    const char *text = p->lex.source + t.begin;
    uint64_t bits;
    if (t.kind == EXL2__TEMPLATE_TOKEN_INT) {
        return exl2__template_emit_integer(p);
    }
    char plain[48] = { 0 }; /* without underscores */
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < t.bytes && bytes < sizeof plain; i++) {
        plain[bytes] = text[i];
        bytes += text[i] != '_';
    }
    exl2__json_number number = exl2__json_number_read(plain, bytes);
    double value;
    if (bytes == sizeof plain || !exl2__json_number_f64_all(&number, &value)) {
        return exl2__template_emit_unsupported(p, &t, "number");
    }
    memcpy(&bits, &value, sizeof bits);
    exl2__template_emit(p, EXL2__TEMPLATE_REAL, (uint32_t)bits, (uint32_t)(bits >> 32), t.at, 1);
    return exl2__template_emit_advance(p);
}

#endif

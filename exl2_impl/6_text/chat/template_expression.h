/* template_expression.h: parses expressions into code by recursive descent. Jinja's order of precedence, loosest first,
   is `a if b else c`, or, and, not, comparisons, + -, ~, * / // %, **, signs, operands. Operands are literals,
   variables and calls, and the . [] | is that follow them.
   takes: exl2__template_parser at the first token of an expression.
   gives: exl2__template_expression, exl2__template_expression_tuple. */
#ifndef EXL2__TEMPLATE_EXPRESSION_H
#define EXL2__TEMPLATE_EXPRESSION_H

#include "template_emit.h"

#define EXL2__TEMPLATE_ALLOW_IF 1u    /* `a if b` is allowed */
#define EXL2__TEMPLATE_ALLOW_EMPTY 2u /* () is allowed */

EXL2__PRIVATE exl2_result exl2__template_expression(exl2__template_parser *p);
EXL2__PRIVATE exl2_result exl2__template_expression_tuple(exl2__template_parser *p, uint32_t flags);

/* ---- calls ---- */

/* A call whose arguments are being parsed. */
typedef struct exl2__template_call {
    const char *what; /* "filter" */
    exl2__template_signature signature;
    exl2__template_token name;
    uint32_t given, seen, map; /* arguments so far; a bit per parameter given; four bits per argument: its parameter */
    uint32_t pairs;            /* arguments given by name to a parameter "**" */
    bool keyword;              /* an argument was given by name, so all following ones must be, too */
    bool unknown;              /* the name is in no table */
    exl2__template_token wrong; /* the first argument that is not supported; kind END: none */
} exl2__template_call;

EXL2__PRIVATE exl2_result exl2__template_operand_argument(exl2__template_parser *p, exl2__template_call *call)
{
    const char *parameters = call->signature.parameters;
    exl2__template_token t = p->token;
    uint32_t parameter = call->given;
    if (exl2__template_emit_is_operator(p, "*") || exl2__template_emit_is_operator(p, "**")) {
        return exl2__template_emit_unsupported(p, &t, "unpacking with");
    }
    if (t.kind == EXL2__TEMPLATE_TOKEN_NAME && exl2__template_emit_next_is(p, EXL2__TEMPLATE_TOKEN_OPERATOR, "=")) {
        parameter = exl2__template_parameter_number(parameters, p->lex.source + t.begin, t.bytes);
        call->keyword = true;
        EXL2__TRY(exl2__template_emit_advance(p));
        EXL2__TRY(exl2__template_emit_advance(p));
        size_t length = strlen(parameters);
        if (length > 2 && memcmp(parameters + length - 2, "**", 2) == 0) {
            exl2__template_emit(p, EXL2__TEMPLATE_TEXT, t.begin, t.bytes, t.at, 1);
            call->pairs++;
            return exl2__template_expression(p);
        }
    } else if (call->keyword) {
        return exl2__template_emit_unexpected(p, "a keyword argument");
    }
    bool beyond = !call->keyword && parameter >= exl2__template_parameter_count(parameters);
    bool wrong = parameter == UINT32_MAX || beyond || (call->seen >> parameter & 1);
    if (wrong && call->wrong.kind == EXL2__TEMPLATE_TOKEN_END) {
        call->wrong = t;
    }
    EXL2__TRY(exl2__template_expression(p));
    if (call->wrong.kind == EXL2__TEMPLATE_TOKEN_END) {
        call->seen |= 1u << parameter;
        call->map |= parameter << 4 * call->given;
    }
    call->given++;
    return EXL2_OK;
}

/* "(", arguments, ")". */
EXL2__PRIVATE exl2_result exl2__template_operand_arguments(exl2__template_parser *p, exl2__template_call *call)
{
    EXL2__TRY(exl2__template_emit_operator(p, "("));
    while (!exl2__template_emit_is_operator(p, ")")) {
        EXL2__TRY(exl2__template_operand_argument(p, call));
        if (!exl2__template_emit_is_operator(p, ",")) {
            break;
        }
        EXL2__TRY(exl2__template_emit_advance(p));
    }
    if (call->pairs) { /* a dict for the last parameter */
        exl2__template_emit(p, EXL2__TEMPLATE_DICT, call->pairs, 0, call->name.at, 1 - 2 * (int)call->pairs);
        call->map |= call->given < EXL2__TEMPLATE_ARGS_MAX ? (EXL2__TEMPLATE_ARGS_MAX - 1) << 4 * call->given : 0;
        call->given++;
    }
    return exl2__template_emit_operator(p, ")");
}

/* Emits the call with the operand `a`; the code of its object and arguments precedes it. `pushed`: 1 with an object,
   else 0. What is not supported fails when it runs, so that a template works whose other branches run. */
EXL2__PRIVATE void exl2__template_operand_call(exl2__template_parser *p, exl2__template_op op,
                                               const exl2__template_call *call, uint32_t a, int pushed)
{
    uint32_t needed = (1u << call->signature.mandatory) - 1;
    bool wrong = call->wrong.kind != EXL2__TEMPLATE_TOKEN_END;
    exl2__template_ins ins = { (uint8_t)op, call->signature.id, (uint16_t)call->given, a, call->map, call->name.at };
    if (call->unknown || wrong || (call->seen & needed) != needed) {
        bool unknown = call->unknown || call->signature.id == EXL2__TEMPLATE_METHOD_UNKNOWN;
        const exl2__template_token *t = wrong && !unknown ? &call->wrong : &call->name;
        bool few = !unknown && !wrong;
        exl2__template_ins fail = { EXL2__TEMPLATE_FAIL, (uint8_t)op, unknown ? 0 : call->signature.id + 1u,
                                    few ? call->given : t->begin, few ? 0 : exl2__max32(t->bytes, 1), t->at };
        ins = fail;
    }
    exl2__template_emit_ins(p, ins, 1 - pushed - (int)call->given);
}

/* Notes a name that Jinja does not know either, outside the soft frames. An inline condition that follows forgives
   it. */
EXL2__PRIVATE void exl2__template_operand_note(exl2__template_parser *p, const exl2__template_call *call)
{
    static const char known[] = "filesizeformat pprint random striptags urlencode urlize wordwrap xmlattr";
    const char *name = p->lex.source + call->name.begin;
    bool jinja = exl2__template_parameter_number(known, name, call->name.bytes) != UINT32_MAX;
    if (call->unknown && !jinja && !p->soft && p->unknown.bytes == 0) {
        p->unknown = call->name;
        p->unknown_what = call->what;
        p->unknown_code = p->code_count;
    }
}

/* Finds the signature of the name that is the next token and skips the name. Dotted names are in no table. */
EXL2__PRIVATE exl2_result exl2__template_operand_callee(exl2__template_parser *p, exl2__template_op op,
                                                        const char *what, exl2__template_call *call)
{
    exl2__template_call made = { what, { "", "- - - - - - - -", 0, EXL2__TEMPLATE_METHOD_UNKNOWN }, p->token, 0, 0, 0,
                                 0, false, false, { EXL2__TEMPLATE_TOKEN_END, 0, 0, 0 } };
    *call = made;
    if (p->token.kind != EXL2__TEMPLATE_TOKEN_NAME) {
        return exl2__template_emit_unexpected(p, "a name");
    }
    EXL2__TRY(exl2__template_emit_advance(p));
    while (op != EXL2__TEMPLATE_METHOD && exl2__template_emit_is_operator(p, ".")) {
        EXL2__TRY(exl2__template_emit_advance(p));
        if (p->token.kind != EXL2__TEMPLATE_TOKEN_NAME) {
            return exl2__template_emit_unexpected(p, "a name");
        }
        call->name.bytes = p->token.begin + p->token.bytes - call->name.begin;
        EXL2__TRY(exl2__template_emit_advance(p));
    }
    bool known = exl2__template_signature_find(op, p->lex.source + call->name.begin, call->name.bytes,
                                               &call->signature);
    call->unknown = !known && op != EXL2__TEMPLATE_METHOD; /* the message about a method depends on the object */
    exl2__template_operand_note(p, call);
    return EXL2_OK;
}

/* ---- the parts of an operand ---- */

/* Parses "(", values, then pairs of name and value, ")". *values and *pairs: how many were pushed. `room`: most values
   that are allowed. */
EXL2__PRIVATE exl2_result exl2__template_operand_pairs(exl2__template_parser *p, uint32_t room, uint32_t *values,
                                                       uint32_t *pairs)
{
    *values = *pairs = 0;
    EXL2__TRY(exl2__template_emit_operator(p, "("));
    while (!exl2__template_emit_is_operator(p, ")")) {
        exl2__template_token name = p->token;
        bool pair = name.kind == EXL2__TEMPLATE_TOKEN_NAME &&
                    exl2__template_emit_next_is(p, EXL2__TEMPLATE_TOKEN_OPERATOR, "=");
        if (exl2__template_emit_is_operator(p, "*") || exl2__template_emit_is_operator(p, "**")) {
            return exl2__template_emit_unsupported(p, &name, "unpacking with");
        }
        if (pair) {
            exl2__template_emit(p, EXL2__TEMPLATE_TEXT, name.begin, name.bytes, name.at, 1);
            EXL2__TRY(exl2__template_emit_advance(p));
            EXL2__TRY(exl2__template_emit_advance(p));
        } else if (*pairs || *values == room) {
            return exl2__template_emit_unexpected(p, *pairs ? "a keyword argument" : "')'");
        }
        EXL2__TRY(exl2__template_expression(p));
        *pairs += pair;
        *values += !pair;
        if (!exl2__template_emit_is_operator(p, ",")) {
            break;
        }
        EXL2__TRY(exl2__template_emit_advance(p));
    }
    return exl2__template_emit_operator(p, ")");
}

EXL2__PRIVATE exl2_result exl2__template_operand_load(exl2__template_parser *p, const exl2__template_token *t)
{
    uint32_t index, use = exl2__template_parameter_number("varargs kwargs caller", p->lex.source + t->begin, t->bytes);
    p->macro_uses |= use < 3 ? 1u << use : 0;
    EXL2__TRY(exl2__template_emit_name(p, t, &index));
    exl2__template_emit(p, EXL2__TEMPLATE_LOAD, index, 0, t->at, 1);
    return exl2__template_emit_advance(p);
}

/* (..) after a macro or a function, whose value is on the stack; `bytes` of its name at `at`, 0: it has none. */
EXL2__PRIVATE exl2_result exl2__template_operand_value_call(exl2__template_parser *p, uint32_t at, uint32_t bytes)
{
    uint32_t values, pairs;
    EXL2__TRY(exl2__template_operand_pairs(p, UINT16_MAX, &values, &pairs));
    exl2__template_ins ins = { EXL2__TEMPLATE_CALL, 0, (uint16_t)values, pairs, bytes, at };
    exl2__template_emit_ins(p, ins, -(int)values - 2 * (int)pairs);
    return EXL2_OK;
}

/* name(..) */
EXL2__PRIVATE exl2_result exl2__template_operand_macro(exl2__template_parser *p)
{
    exl2__template_token t = p->token;
    EXL2__TRY(exl2__template_operand_load(p, &t));
    return exl2__template_operand_value_call(p, t.at, t.bytes);
}

/* Whether the next token names something that cannot be assigned to here. */
EXL2__PRIVATE bool exl2__template_operand_fixed(const exl2__template_parser *p)
{
    const char *word = p->lex.source + p->token.begin;
    return exl2__template_parameter_number("self super true false none True False None", word, p->token.bytes) !=
               UINT32_MAX || (p->loop && exl2__template_emit_is_name(p, "loop"));
}

EXL2__PRIVATE bool exl2__template_operand_keyword(const char *name, uint32_t bytes)
{
    static const char keywords[] = "and elif else for if in is not or";
    return exl2__template_parameter_number(keywords, name, bytes) != UINT32_MAX;
}

/* A word: constant, call or variable. Not inlined, because its locals would need stack at each of 64 nesting levels. */
EXL2__NOINLINE
EXL2__PRIVATE exl2_result exl2__template_operand_word(exl2__template_parser *p)
{
    exl2__template_token t = p->token;
    const char *word = p->lex.source + t.begin;
    if (exl2__template_operand_keyword(word, t.bytes)) { /* Jinja reads it as a variable */
        return exl2__template_emit_unsupported(p, &t, "this use of");
    }
    bool loop = exl2__template_same(word, t.bytes, "loop"), own_loop = loop && p->loop;
    if (exl2__template_parameter_number("self super", word, t.bytes) != UINT32_MAX ||
        (loop && ((p->in_loop_filter && p->loop) || p->in_loop_macro))) {
        return exl2__template_emit_unsupported(p, &t, "this use of");
    }
    bool is_true = exl2__template_same(word, t.bytes, "true") || exl2__template_same(word, t.bytes, "True");
    bool is_false = exl2__template_same(word, t.bytes, "false") || exl2__template_same(word, t.bytes, "False");
    bool is_none = exl2__template_same(word, t.bytes, "none") || exl2__template_same(word, t.bytes, "None");
    if (!is_true && !is_false && !is_none && !own_loop) {
        bool called = exl2__template_emit_next_is(p, EXL2__TEMPLATE_TOKEN_OPERATOR, "(");
        return called ? exl2__template_operand_macro(p) : exl2__template_operand_load(p, &t);
    }
    if (is_true || is_false) {
        exl2__template_emit(p, EXL2__TEMPLATE_BOOL, is_true, 0, t.at, 1);
    } else {
        exl2__template_emit(p, is_none ? EXL2__TEMPLATE_NONE : EXL2__TEMPLATE_LOOP, 0, 0, t.at, 1);
    }
    return exl2__template_emit_advance(p);
}

/* [a, b] and {k: v}, at the opening bracket. */
EXL2__NOINLINE
EXL2__PRIVATE exl2_result exl2__template_operand_literal(exl2__template_parser *p, bool dict)
{
    const char *close = dict ? "}" : "]";
    uint32_t at = p->token.at, count = 0;
    EXL2__TRY(exl2__template_emit_advance(p));
    while (!exl2__template_emit_is_operator(p, close)) {
        EXL2__TRY(exl2__template_expression(p));
        if (dict) {
            EXL2__TRY(exl2__template_emit_operator(p, ":"));
            EXL2__TRY(exl2__template_expression(p));
        }
        count++;
        if (!exl2__template_emit_is_operator(p, ",")) {
            break;
        }
        EXL2__TRY(exl2__template_emit_advance(p));
    }
    exl2__template_emit(p, dict ? EXL2__TEMPLATE_DICT : EXL2__TEMPLATE_LIST, count, 0, at,
                        1 - (int)count * (dict ? 2 : 1));
    return exl2__template_emit_operator(p, close);
}

EXL2__PRIVATE exl2_result exl2__template_operand_primary(exl2__template_parser *p)
{
    switch (p->token.kind) {
    case EXL2__TEMPLATE_TOKEN_NAME:
        return exl2__template_operand_word(p);
    case EXL2__TEMPLATE_TOKEN_STRING:
        return exl2__template_emit_string(p);
    case EXL2__TEMPLATE_TOKEN_INT:
    case EXL2__TEMPLATE_TOKEN_REAL:
        return exl2__template_emit_number(p);
    default:
        break;
    }
    if (exl2__template_emit_is_operator(p, "(")) {
        EXL2__TRY(exl2__template_emit_advance(p));
        EXL2__TRY(exl2__template_expression_tuple(p, EXL2__TEMPLATE_ALLOW_IF | EXL2__TEMPLATE_ALLOW_EMPTY));
        return exl2__template_emit_operator(p, ")");
    }
    if (exl2__template_emit_is_operator(p, "[") || exl2__template_emit_is_operator(p, "{")) {
        return exl2__template_operand_literal(p, exl2__template_emit_is_operator(p, "{"));
    }
    return exl2__template_emit_unexpected(p, "an expression");
}

/* .name  .name(arguments)  .0, after the dot. */
EXL2__PRIVATE exl2_result exl2__template_operand_attribute(exl2__template_parser *p)
{
    exl2__template_token t = p->token;
    if (t.kind == EXL2__TEMPLATE_TOKEN_INT) {
        EXL2__TRY(exl2__template_emit_number(p));
        exl2__template_emit(p, EXL2__TEMPLATE_ITEM, 0, 0, t.at, -1);
        return EXL2_OK;
    }
    if (t.kind != EXL2__TEMPLATE_TOKEN_NAME) {
        return exl2__template_emit_unexpected(p, "a name or a number");
    }
    if (exl2__template_emit_next_is(p, EXL2__TEMPLATE_TOKEN_OPERATOR, "(")) {
        exl2__template_call call;
        EXL2__TRY(exl2__template_operand_callee(p, EXL2__TEMPLATE_METHOD, "method", &call));
        EXL2__TRY(exl2__template_operand_arguments(p, &call));
        exl2__template_operand_call(p, EXL2__TEMPLATE_METHOD, &call, t.bytes, 1);
        return EXL2_OK;
    }
    exl2__template_emit(p, EXL2__TEMPLATE_ATTR, t.begin, t.bytes, t.at, 0);
    return exl2__template_emit_advance(p);
}

/* [key] and [start:stop:step], at the bracket. */
EXL2__PRIVATE exl2_result exl2__template_operand_subscript(exl2__template_parser *p)
{
    uint32_t at = p->token.at, given = 0, part = 0;
    EXL2__TRY(exl2__template_emit_advance(p));
    for (;;) {
        if (exl2__template_emit_is_operator(p, ":") && part < 2) {
            part++;
            EXL2__TRY(exl2__template_emit_advance(p));
        } else if (exl2__template_emit_is_operator(p, "]") && (part > 0 || given)) {
            break;
        } else if (given >> part) {
            return exl2__template_emit_unexpected(p, "']'");
        } else {
            EXL2__TRY(exl2__template_expression(p));
            given |= 1u << part;
        }
    }
    if (part == 0) {
        exl2__template_emit(p, EXL2__TEMPLATE_ITEM, 0, 0, at, -1);
    } else {
        exl2__template_ins ins = { EXL2__TEMPLATE_SLICE, (uint8_t)given, 0, 0, 0, at };
        exl2__template_emit_ins(p, ins, -(int)((given & 1) + (given >> 1 & 1) + (given >> 2)));
    }
    return exl2__template_emit_operator(p, "]");
}

EXL2__PRIVATE exl2_result exl2__template_operand_postfix(exl2__template_parser *p)
{
    for (;;) {
        if (exl2__template_emit_is_operator(p, ".")) {
            EXL2__TRY(exl2__template_emit_advance(p));
            EXL2__TRY(exl2__template_operand_attribute(p));
        } else if (exl2__template_emit_is_operator(p, "[")) {
            EXL2__TRY(exl2__template_operand_subscript(p));
        } else if (exl2__template_emit_is_operator(p, "(")) {
            EXL2__TRY(exl2__template_operand_value_call(p, p->token.at, 0));
        } else {
            return EXL2_OK;
        }
    }
}

/* | name(arguments), after the bar. */
EXL2__PRIVATE exl2_result exl2__template_operand_filter(exl2__template_parser *p)
{
    exl2__template_call call;
    EXL2__TRY(exl2__template_operand_callee(p, EXL2__TEMPLATE_FILTER, "filter", &call));
    if (exl2__template_emit_is_operator(p, "(")) {
        EXL2__TRY(exl2__template_operand_arguments(p, &call));
    }
    exl2__template_operand_call(p, EXL2__TEMPLATE_FILTER, &call, 0, 1);
    return EXL2_OK;
}

/* is [not] name [argument], after `is`. A single argument needs no parentheses. */
EXL2__NOINLINE
EXL2__PRIVATE exl2_result exl2__template_operand_test(exl2__template_parser *p)
{
    exl2__template_call call;
    uint32_t negated = 0;
    if (exl2__template_emit_is_name(p, "not")) {
        negated = 1;
        EXL2__TRY(exl2__template_emit_advance(p));
    }
    EXL2__TRY(exl2__template_operand_callee(p, EXL2__TEMPLATE_TEST, "test", &call));
    bool word = p->token.kind == EXL2__TEMPLATE_TOKEN_NAME && !exl2__template_emit_is_name(p, "else") &&
                !exl2__template_emit_is_name(p, "or") && !exl2__template_emit_is_name(p, "and");
    if (exl2__template_emit_is_operator(p, "(")) {
        EXL2__TRY(exl2__template_operand_arguments(p, &call));
    } else if (word || p->token.kind == EXL2__TEMPLATE_TOKEN_STRING || p->token.kind == EXL2__TEMPLATE_TOKEN_INT ||
               p->token.kind == EXL2__TEMPLATE_TOKEN_REAL || exl2__template_emit_is_operator(p, "[") ||
               exl2__template_emit_is_operator(p, "{")) {
        if (call.signature.parameters[0] == 0) {
            call.wrong = p->token;
        }
        EXL2__TRY(exl2__template_operand_primary(p));
        EXL2__TRY(exl2__template_operand_postfix(p));
        call.given = 1;
        call.seen = 1;
    }
    exl2__template_operand_call(p, EXL2__TEMPLATE_TEST, &call, negated, 1);
    return EXL2_OK;
}

/* ---- operators ---- */

EXL2__PRIVATE exl2_result exl2__template_expression_unary(exl2__template_parser *p, bool with_filter)
{
    uint32_t at = p->token.at;
    bool minus = exl2__template_emit_is_operator(p, "-"), plus = exl2__template_emit_is_operator(p, "+");
    if (minus || plus) {
        EXL2__TRY(exl2__template_emit_enter(p));
        EXL2__TRY(exl2__template_emit_advance(p));
        EXL2__TRY(exl2__template_expression_unary(p, false));
        exl2__template_emit_leave(p);
        exl2__template_emit(p, minus ? EXL2__TEMPLATE_NEGATE : EXL2__TEMPLATE_POSITIVE, 0, 0, at, 0);
    } else {
        EXL2__TRY(exl2__template_operand_primary(p));
    }
    EXL2__TRY(exl2__template_operand_postfix(p));
    while (with_filter) {
        if (exl2__template_emit_is_operator(p, "|")) {
            EXL2__TRY(exl2__template_emit_advance(p));
            EXL2__TRY(exl2__template_operand_filter(p));
        } else if (exl2__template_emit_is_name(p, "is")) {
            EXL2__TRY(exl2__template_emit_advance(p));
            EXL2__TRY(exl2__template_operand_test(p));
        } else if (exl2__template_emit_is_operator(p, "(")) {
            EXL2__TRY(exl2__template_operand_value_call(p, p->token.at, 0));
        } else {
            break;
        }
    }
    return EXL2_OK;
}

#define EXL2__TEMPLATE_LEVELS 4u

/* A binary operator that waits for its right operand. */
typedef struct exl2__template_pending {
    uint32_t at, joined; /* joined: operands of a concatenation so far */
    uint8_t op, level;   /* a higher level binds tighter */
} exl2__template_pending;

/* Whether a binary operator is next; *next describes it. */
EXL2__PRIVATE bool exl2__template_expression_binary(const exl2__template_parser *p, exl2__template_pending *next)
{
    static const struct {
        char text[3];
        uint8_t level, op;
    } rows[] = {
        { "+", 0, EXL2__TEMPLATE_ADD },       { "-", 0, EXL2__TEMPLATE_SUBTRACT },
        { "~", 1, EXL2__TEMPLATE_CONCAT },    { "*", 2, EXL2__TEMPLATE_MULTIPLY },
        { "/", 2, EXL2__TEMPLATE_DIVIDE },    { "//", 2, EXL2__TEMPLATE_FLOOR_DIVIDE },
        { "%", 2, EXL2__TEMPLATE_MODULO },    { "**", 3, EXL2__TEMPLATE_POWER },
    };
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        if (exl2__template_emit_is_operator(p, rows[i].text)) {
            *next = (exl2__template_pending){ p->token.at, 2, rows[i].op, rows[i].level };
            return true;
        }
    }
    return false;
}

/* All levels are left-associative, even **, as in Jinja. They share one loop: with one function per level, an
   expression in 64 parentheses would need 12 KiB more stack. Each waiting operator binds tighter than the one before
   it, so at most one operator per level waits. */
EXL2__PRIVATE exl2_result exl2__template_expression_arithmetic(exl2__template_parser *p)
{
    exl2__template_pending waiting[EXL2__TEMPLATE_LEVELS], next = { 0, 0, 0, 0 };
    uint32_t count = 0;
    for (bool more = true; more;) {
        EXL2__TRY(exl2__template_expression_unary(p, true));
        more = exl2__template_expression_binary(p, &next);
        while (count > 0 && (!more || waiting[count - 1].level >= next.level)) {
            const exl2__template_pending *last = &waiting[--count];
            bool concat = last->op == EXL2__TEMPLATE_CONCAT;
            if (concat && more && next.op == EXL2__TEMPLATE_CONCAT) { /* a ~ b ~ c is one concatenation */
                next.joined = last->joined + 1;
            } else {
                exl2__template_emit(p, (exl2__template_op)last->op, concat ? last->joined : 0, 0, last->at,
                                    concat ? 1 - (int)last->joined : -1);
            }
        }
        if (more) {
            waiting[count++] = next;
            EXL2__TRY(exl2__template_emit_advance(p));
        }
    }
    return EXL2_OK;
}

/* Skips a comparison operator if one is next. */
EXL2__PRIVATE exl2_result exl2__template_expression_comparison(exl2__template_parser *p, bool *found,
                                                               exl2__template_compare *compare)
{
    static const char operators[][3] = {
        "==", "!=", "<", "<=", ">", ">="
    }; /* in the order of exl2__template_compare */
    *found = true;
    for (size_t i = 0; i < EXL2__COUNT(operators); i++) {
        if (exl2__template_emit_is_operator(p, operators[i])) {
            *compare = (exl2__template_compare)i;
            return exl2__template_emit_advance(p);
        }
    }
    *compare = EXL2__TEMPLATE_IN;
    if (exl2__template_emit_is_name(p, "not") && exl2__template_emit_next_is(p, EXL2__TEMPLATE_TOKEN_NAME, "in")) {
        *compare = EXL2__TEMPLATE_NOT_IN;
        EXL2__TRY(exl2__template_emit_advance(p));
    }
    *found = exl2__template_emit_is_name(p, "in");
    return *found ? exl2__template_emit_advance(p) : EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_expression_compare(exl2__template_parser *p)
{
    bool found;
    uint32_t chain = 0;
    exl2__template_ins ins = { EXL2__TEMPLATE_COMPARE, 0, 0, 0, 0, p->token.at };
    exl2__template_compare compare;
    EXL2__TRY(exl2__template_expression_arithmetic(p));
    ins.at = p->token.at;
    EXL2__TRY(exl2__template_expression_comparison(p, &found, &compare));
    while (found) {
        ins.id = (uint8_t)compare;
        EXL2__TRY(exl2__template_expression_arithmetic(p));
        uint32_t at = p->token.at;
        EXL2__TRY(exl2__template_expression_comparison(p, &found, &compare));
        ins.op = found ? EXL2__TEMPLATE_CHAIN : EXL2__TEMPLATE_COMPARE;
        uint32_t index = exl2__template_emit_ins(p, ins, -1);
        if (found) {
            exl2__template_emit_chain(p, &chain, index);
        }
        ins.at = at;
    }
    exl2__template_emit_patch_chain(p, chain);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_expression_not(exl2__template_parser *p)
{
    uint32_t count = 0, at = p->token.at;
    while (exl2__template_emit_is_name(p, "not")) {
        EXL2__TRY(exl2__template_emit_advance(p));
        count++;
    }
    EXL2__TRY(exl2__template_expression_compare(p));
    for (; count > 0; count--) {
        exl2__template_emit(p, EXL2__TEMPLATE_NOT, 0, 0, at, 0);
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_expression_and(exl2__template_parser *p)
{
    EXL2__TRY(exl2__template_expression_not(p));
    while (exl2__template_emit_is_name(p, "and")) {
        uint32_t jump = exl2__template_emit(p, EXL2__TEMPLATE_AND, 0, 0, p->token.at, -1);
        EXL2__TRY(exl2__template_emit_advance(p));
        EXL2__TRY(exl2__template_expression_not(p));
        exl2__template_emit_patch(p, jump, p->code_count);
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_expression_or(exl2__template_parser *p)
{
    EXL2__TRY(exl2__template_expression_and(p));
    while (exl2__template_emit_is_name(p, "or")) {
        uint32_t jump = exl2__template_emit(p, EXL2__TEMPLATE_OR, 0, 0, p->token.at, -1);
        EXL2__TRY(exl2__template_emit_advance(p));
        EXL2__TRY(exl2__template_expression_and(p));
        exl2__template_emit_patch(p, jump, p->code_count);
    }
    return EXL2_OK;
}

/* `a if b else c`: a is parsed first but runs after b, so the code of the two is exchanged. */
EXL2__PRIVATE exl2_result exl2__template_expression(exl2__template_parser *p)
{
    uint32_t first = p->code_count;
    bool soft = p->soft;
    EXL2__TRY(exl2__template_emit_enter(p));
    EXL2__TRY(exl2__template_expression_or(p));
    while (exl2__template_emit_is_name(p, "if")) {
        uint32_t at = p->token.at, second = p->code_count;
        p->soft = true;
        p->unknown.bytes = p->unknown_code >= first ? 0 : p->unknown.bytes; /* it is in a soft frame after all */
        EXL2__TRY(exl2__template_emit_advance(p));
        EXL2__TRY(exl2__template_expression_or(p));
        exl2__template_emit(p, EXL2__TEMPLATE_UNLESS, 0, 0, at, -1);
        uint32_t unless = first + (p->code_count - second) - 1;
        EXL2__TRY(exl2__template_emit_swap(p, first, second, at));
        uint32_t jump = exl2__template_emit(p, EXL2__TEMPLATE_JUMP, 0, 0, at, -1);
        exl2__template_emit_patch(p, unless, p->code_count);
        if (exl2__template_emit_is_name(p, "else")) {
            EXL2__TRY(exl2__template_emit_advance(p));
            EXL2__TRY(exl2__template_expression(p));
        } else {
            exl2__template_emit(p, EXL2__TEMPLATE_NO_ELSE, 0, 0, at, 1);
        }
        exl2__template_emit_patch(p, jump, p->code_count);
    }
    p->soft = soft;
    exl2__template_emit_leave(p);
    return EXL2_OK;
}

EXL2__PRIVATE bool exl2__template_expression_tuple_ends(const exl2__template_parser *p)
{
    return p->token.kind == EXL2__TEMPLATE_TOKEN_BLOCK_END || p->token.kind == EXL2__TEMPLATE_TOKEN_PRINT_END ||
           exl2__template_emit_is_operator(p, ")") || exl2__template_emit_is_name(p, "recursive");
}

/* One expression, or a tuple: expressions separated by commas. */
EXL2__PRIVATE exl2_result exl2__template_expression_tuple(exl2__template_parser *p, uint32_t flags)
{
    uint32_t count = 0, at = p->token.at;
    bool comma = false;
    while (!exl2__template_expression_tuple_ends(p)) {
        if (flags & EXL2__TEMPLATE_ALLOW_IF) {
            EXL2__TRY(exl2__template_expression(p));
        } else {
            EXL2__TRY(exl2__template_emit_enter(p));
            EXL2__TRY(exl2__template_expression_or(p));
            exl2__template_emit_leave(p);
        }
        count++;
        if (!exl2__template_emit_is_operator(p, ",")) {
            break;
        }
        comma = true;
        EXL2__TRY(exl2__template_emit_advance(p));
    }
    if (count == 0 && !(flags & EXL2__TEMPLATE_ALLOW_EMPTY)) {
        return exl2__template_emit_unexpected(p, "an expression");
    }
    if (comma || count == 0) {
        exl2__template_emit(p, EXL2__TEMPLATE_TUPLE, count, 0, at, 1 - (int)count);
    }
    return EXL2_OK;
}

#endif

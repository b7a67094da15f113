/* template_expression.h: parses expressions into code by recursive descent. Jinja's order of precedence, loosest first,
   is `a if b else c`, or, and, not, comparisons, + -, ~, * / // %, **, signs, operands.
   takes: exl2__template_parser at the first token of an expression.
   gives: exl2__template_expression, exl2__template_expression_tuple. */
#ifndef EXL2__TEMPLATE_EXPRESSION_H
#define EXL2__TEMPLATE_EXPRESSION_H

#include "template_operand.h"

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

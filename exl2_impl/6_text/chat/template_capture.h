/* template_capture.h: parses the targets of for and set, and the statements set, filter, with, macro and call.
   takes: exl2__template_parser after the name of such a statement.
   gives: exl2__template_statement_target, set, filter, with, macro, call. */
#ifndef EXL2__TEMPLATE_CAPTURE_H
#define EXL2__TEMPLATE_CAPTURE_H

#include "template_expression.h"

#define EXL2__TEMPLATE_TARGETS_MAX 32u

EXL2__PRIVATE exl2_result exl2__template_statement_body(exl2__template_parser *p, const char *stops);

/* Skips "%}". */
EXL2__PRIVATE exl2_result exl2__template_statement_close(exl2__template_parser *p)
{
    if (p->token.kind != EXL2__TEMPLATE_TOKEN_BLOCK_END) {
        return exl2__template_emit_unexpected(p, "'%}'");
    }
    return exl2__template_emit_advance(p);
}

/* Skips the word that ended a body, and "%}" if `close`. */
EXL2__PRIVATE exl2_result exl2__template_statement_end(exl2__template_parser *p, bool close)
{
    EXL2__TRY(exl2__template_emit_advance(p));
    return close ? exl2__template_statement_close(p) : EXL2_OK;
}

/* ---- targets of for and set ---- */

/* The code that binds a value: (a, (b, c)) is UNPACK 2, BIND a, UNPACK 2, BIND b, BIND c. */
typedef struct exl2__template_target {
    exl2__template_ins ins[EXL2__TEMPLATE_TARGETS_MAX];
    uint32_t count;
    bool of_loop; /* of a for statement */
} exl2__template_target;

EXL2__PRIVATE exl2_result exl2__template_statement_target_add(exl2__template_parser *p, exl2__template_target *target,
                                                              exl2__template_op op, uint32_t a, uint32_t b, uint32_t at)
{
    exl2__template_ins ins = { (uint8_t)op, 0, 0, a, b, at };
    if (target->count == EXL2__TEMPLATE_TARGETS_MAX) {
        return exl2__template_emit_fail(p, EXL2_ERR_UNSUPPORTED, at, "more than %u targets are not supported",
                                        EXL2__TEMPLATE_TARGETS_MAX);
    }
    target->ins[target->count++] = ins;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_statement_target_name(exl2__template_parser *p, exl2__template_target *target)
{
    exl2__template_token t = p->token;
    const char *word = p->lex.source + t.begin;
    uint32_t index, attribute;
    if (t.kind != EXL2__TEMPLATE_TOKEN_NAME || exl2__template_operand_keyword(word, t.bytes)) {
        return exl2__template_emit_unexpected(p, "a variable");
    }
    if (exl2__template_operand_fixed(p) || (target->of_loop && exl2__template_emit_is_name(p, "loop"))) {
        return exl2__template_emit_unsupported(p, &t, "assigning to");
    }
    EXL2__TRY(exl2__template_emit_name(p, &t, &index));
    EXL2__TRY(exl2__template_emit_advance(p));
    if (!exl2__template_emit_is_operator(p, ".")) {
        return exl2__template_statement_target_add(p, target, EXL2__TEMPLATE_BIND, index, 0, t.at);
    }
    EXL2__TRY(exl2__template_emit_advance(p));
    if (p->token.kind != EXL2__TEMPLATE_TOKEN_NAME) {
        return exl2__template_emit_unexpected(p, "a name");
    }
    EXL2__TRY(exl2__template_emit_name(p, &p->token, &attribute));
    EXL2__TRY(exl2__template_emit_advance(p));
    return exl2__template_statement_target_add(p, target, EXL2__TEMPLATE_BIND_ATTR, index, attribute, t.at);
}

/* a   a, b   (a, b)   a, (b, c)   ns.a */
EXL2__PRIVATE exl2_result exl2__template_statement_target(exl2__template_parser *p, exl2__template_target *target)
{
    uint32_t unpack = target->count, at = p->token.at, count = 0;
    bool comma = false;
    EXL2__TRY(exl2__template_emit_enter(p));
    EXL2__TRY(exl2__template_statement_target_add(p, target, EXL2__TEMPLATE_UNPACK, 0, 0, at));
    for (;;) {
        if (exl2__template_emit_is_operator(p, "(")) {
            EXL2__TRY(exl2__template_emit_advance(p));
            EXL2__TRY(exl2__template_statement_target(p, target));
            EXL2__TRY(exl2__template_emit_operator(p, ")"));
        } else if (!comma || p->token.kind == EXL2__TEMPLATE_TOKEN_NAME) {
            EXL2__TRY(exl2__template_statement_target_name(p, target));
        } else {
            break;
        }
        count++;
        if (!exl2__template_emit_is_operator(p, ",")) {
            break;
        }
        comma = true;
        EXL2__TRY(exl2__template_emit_advance(p));
        if (exl2__template_emit_is_name(p, "in")) {
            break;
        }
    }
    if (comma) {
        target->ins[unpack].a = count;
    } else { /* a single target without a comma is bound to the value itself */
        target->count--;
        memmove(&target->ins[unpack], &target->ins[unpack + 1], (target->count - unpack) * sizeof target->ins[0]);
    }
    exl2__template_emit_leave(p);
    return EXL2_OK;
}

/* Emits the code that binds the value on the stack to the target. */
EXL2__PRIVATE void exl2__template_statement_bind(exl2__template_parser *p, const exl2__template_target *target)
{
    for (uint32_t i = 0; i < target->count; i++) {
        exl2__template_ins ins = target->ins[i];
        exl2__template_emit_ins(p, ins, ins.op == EXL2__TEMPLATE_UNPACK ? (int)ins.a - 1 : -1);
    }
}

/* ---- blocks that turn their output into a value ---- */

/* Skips the rest of this tag; *head keeps the present position, so that the rest can be parsed later. */
EXL2__PRIVATE exl2_result exl2__template_statement_skip(exl2__template_parser *p, exl2__template_parser_place *head)
{
    head->lex = p->lex;
    head->token = p->token;
    while (p->token.kind != EXL2__TEMPLATE_TOKEN_BLOCK_END && p->token.kind != EXL2__TEMPLATE_TOKEN_END) {
        EXL2__TRY(exl2__template_emit_advance(p));
    }
    return exl2__template_statement_close(p);
}

/* Moves the parser to *place and stores its old position there. */
EXL2__PRIVATE void exl2__template_statement_seek(exl2__template_parser *p, exl2__template_parser_place *place)
{
    exl2__template_parser_place here = { p->lex, p->token };
    p->lex = place->lex;
    p->token = place->token;
    *place = here;
}

/* Parses a body up to `stop` and, if `filtered`, the filters of the opening tag. The parser is at the name of the first
   filter. The filters are parsed after the body, because they apply to its text. */
EXL2__PRIVATE exl2_result exl2__template_statement_capture(exl2__template_parser *p, const char *stop, bool filtered)
{
    exl2__template_parser_place head;
    uint32_t at = p->token.at;
    p->soft = false;
    EXL2__TRY(exl2__template_statement_skip(p, &head));
    exl2__template_emit(p, EXL2__TEMPLATE_CAPTURE, 0, 0, at, 0);
    p->frames++;
    EXL2__TRY(exl2__template_statement_body(p, stop));
    EXL2__TRY(exl2__template_statement_end(p, true));
    p->frames--;
    exl2__template_emit_frames(p, EXL2__TEMPLATE_CAPTURED, p->frames, at, 1);
    exl2__template_statement_seek(p, &head);
    while (filtered) {
        EXL2__TRY(exl2__template_operand_filter(p));
        filtered = exl2__template_emit_is_operator(p, "|");
        if (filtered) {
            EXL2__TRY(exl2__template_emit_advance(p));
        }
    }
    EXL2__TRY(exl2__template_statement_close(p));
    exl2__template_statement_seek(p, &head);
    return EXL2_OK;
}

/* filter name | name .. endfilter */
EXL2__PRIVATE exl2_result exl2__template_statement_filter(exl2__template_parser *p)
{
    uint32_t at = p->token.at;
    EXL2__TRY(exl2__template_statement_capture(p, "endfilter", true));
    exl2__template_emit(p, EXL2__TEMPLATE_PRINT, 0, 0, at, -1);
    return EXL2_OK;
}

/* set a = value, or set a [| filter] .. endset */
EXL2__PRIVATE exl2_result exl2__template_statement_set(exl2__template_parser *p)
{
    exl2__template_target target = { 0 };
    EXL2__TRY(exl2__template_statement_target(p, &target));
    if (exl2__template_emit_is_operator(p, "=")) {
        EXL2__TRY(exl2__template_emit_advance(p));
        EXL2__TRY(exl2__template_expression_tuple(p, EXL2__TEMPLATE_ALLOW_IF));
        exl2__template_statement_bind(p, &target);
        return exl2__template_statement_close(p);
    }
    bool filtered = exl2__template_emit_is_operator(p, "|");
    if (target.ins[0].op == EXL2__TEMPLATE_UNPACK || (!filtered && p->token.kind != EXL2__TEMPLATE_TOKEN_BLOCK_END)) {
        return exl2__template_emit_unexpected(p, "'='");
    }
    if (filtered) {
        EXL2__TRY(exl2__template_emit_advance(p));
    }
    EXL2__TRY(exl2__template_statement_capture(p, "endset", filtered));
    exl2__template_statement_bind(p, &target);
    return EXL2_OK;
}

/* with a = 1, b = 2 .. endwith: all values are computed before the first is set. */
EXL2__PRIVATE exl2_result exl2__template_statement_with(exl2__template_parser *p)
{
    exl2__template_target target = { 0 };
    uint32_t at = p->token.at, count = 0, first[EXL2__TEMPLATE_TARGETS_MAX + 1] = { 0 };
    while (p->token.kind != EXL2__TEMPLATE_TOKEN_BLOCK_END) {
        EXL2__TRY(exl2__template_statement_target_name(p, &target));
        EXL2__TRY(exl2__template_emit_operator(p, "="));
        EXL2__TRY(exl2__template_expression(p));
        first[++count] = target.count;
        if (!exl2__template_emit_is_operator(p, ",")) {
            break;
        }
        EXL2__TRY(exl2__template_emit_advance(p));
    }
    p->soft = false;
    EXL2__TRY(exl2__template_statement_close(p));
    exl2__template_emit(p, EXL2__TEMPLATE_SCOPE, 0, 0, at, 0);
    p->frames++;
    while (count-- > 0) {
        exl2__template_emit_ins(p, target.ins[first[count]], -1);
    }
    EXL2__TRY(exl2__template_statement_body(p, "endwith"));
    EXL2__TRY(exl2__template_statement_end(p, true));
    p->frames--;
    exl2__template_emit_frames(p, EXL2__TEMPLATE_LEAVE, p->frames, at, 0);
    return EXL2_OK;
}

/* [(a, b=default)] */
EXL2__PRIVATE exl2_result exl2__template_statement_parameters(exl2__template_parser *p)
{
    bool defaults = false;
    if (!exl2__template_emit_is_operator(p, "(")) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__template_emit_advance(p));
    for (uint32_t i = 0; !exl2__template_emit_is_operator(p, ")"); i++) {
        exl2__template_target target = { 0 };
        uint32_t at = p->token.at;
        p->in_loop_macro = p->in_loop_macro && !exl2__template_emit_is_name(p, "loop");
        EXL2__TRY(exl2__template_statement_target_name(p, &target));
        if (target.ins[0].op != EXL2__TEMPLATE_BIND || i > UINT16_MAX) {
            return exl2__template_emit_unexpected(p, "')'");
        }
        bool has_default = exl2__template_emit_is_operator(p, "=");
        if (defaults && !has_default) {
            return exl2__template_emit_unexpected(p, "'='");
        }
        defaults = has_default;
        exl2__template_ins ins = { EXL2__TEMPLATE_PARAMETER, has_default, (uint16_t)i, 0, target.ins[0].a, at };
        uint32_t parameter = exl2__template_emit_ins(p, ins, 0);
        if (has_default) {
            EXL2__TRY(exl2__template_emit_advance(p));
            EXL2__TRY(exl2__template_expression(p));
            exl2__template_emit_ins(p, target.ins[0], -1);
        }
        exl2__template_emit_patch(p, parameter, p->code_count);
        if (!exl2__template_emit_is_operator(p, ",")) {
            break;
        }
        EXL2__TRY(exl2__template_emit_advance(p));
    }
    return exl2__template_emit_operator(p, ")");
}

/* Parses parameters, "%}" and body of a macro. In a call block the call stands between parameters and "%}"; it is
   skipped, and *head keeps its position, so that it can be parsed later. *macro is the instruction that pushes the
   macro; exl2__template_statement_push emits it. */
EXL2__PRIVATE exl2_result exl2__template_statement_body_macro(exl2__template_parser *p, const char *stop,
                                                              exl2__template_parser_place *head,
                                                              exl2__template_ins *macro)
{
    uint32_t at = p->token.at, frames = p->frames, stack = p->stack, uses = p->macro_uses;
    uint32_t skip = exl2__template_emit(p, EXL2__TEMPLATE_JUMP, 0, 0, at, 0);
    exl2__template_parser_loop *loop = p->loop;
    bool soft = p->soft, in_loop_macro = p->in_loop_macro;
    p->in_loop_macro = in_loop_macro || loop;
    p->soft = false;
    p->frames = 1;
    p->stack = p->macro_uses = 0;
    p->loop = NULL;
    EXL2__TRY(exl2__template_statement_parameters(p));
    EXL2__TRY(head ? exl2__template_statement_skip(p, head) : exl2__template_statement_close(p));
    EXL2__TRY(exl2__template_statement_body(p, stop));
    EXL2__TRY(exl2__template_statement_end(p, true));
    exl2__template_emit(p, EXL2__TEMPLATE_RETURN, 0, 0, at, 0);
    exl2__template_emit_patch(p, skip, p->code_count);
    exl2__template_ins made = { EXL2__TEMPLATE_MACRO, 0, (uint16_t)p->macro_uses, skip + 1, 0, at };
    *macro = made;
    p->frames = frames;
    p->stack = stack;
    p->loop = loop;
    p->soft = soft;
    p->in_loop_macro = in_loop_macro;
    p->macro_uses |= uses;
    return EXL2_OK;
}

EXL2__PRIVATE void exl2__template_statement_push(exl2__template_parser *p, exl2__template_ins macro)
{
    uint32_t first = macro.a;
    exl2__template_emit_patch(p, exl2__template_emit_ins(p, macro, 1), first);
}

/* macro name(parameters) .. endmacro */
EXL2__PRIVATE exl2_result exl2__template_statement_macro(exl2__template_parser *p)
{
    exl2__template_target target = { 0 };
    exl2__template_ins macro;
    EXL2__TRY(exl2__template_statement_target_name(p, &target));
    if (target.ins[0].op != EXL2__TEMPLATE_BIND) {
        return exl2__template_emit_unexpected(p, "'('");
    }
    EXL2__TRY(exl2__template_statement_body_macro(p, "endmacro", NULL, &macro));
    macro.b = target.ins[0].a + 1;
    exl2__template_statement_push(p, macro);
    exl2__template_statement_bind(p, &target);
    return EXL2_OK;
}

/* call[(parameters)] name(arguments) .. endcall: the body is a macro called `caller`. */
EXL2__PRIVATE exl2_result exl2__template_statement_call(exl2__template_parser *p)
{
    exl2__template_parser_place head;
    exl2__template_ins macro;
    uint32_t at = p->token.at;
    EXL2__TRY(exl2__template_statement_body_macro(p, "endcall", &head, &macro));
    exl2__template_statement_seek(p, &head);
    if (p->token.kind != EXL2__TEMPLATE_TOKEN_NAME ||
        !exl2__template_emit_next_is(p, EXL2__TEMPLATE_TOKEN_OPERATOR, "(")) {
        return exl2__template_emit_unexpected(p, "a call of a macro");
    }
    EXL2__TRY(exl2__template_operand_macro(p));
    EXL2__TRY(exl2__template_statement_close(p));
    exl2__template_statement_seek(p, &head);
    exl2__template_ins call = p->last; /* emitted again after the macro */
    p->code_count--;
    exl2__template_statement_push(p, macro);
    call.id = 1;
    exl2__template_emit_ins(p, call, -1);
    exl2__template_emit(p, EXL2__TEMPLATE_PRINT, 0, 0, at, -1);
    return EXL2_OK;
}

#endif

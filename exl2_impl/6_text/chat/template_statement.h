/* template_statement.h: parses text, {{ }} and {% %} into code. First the targets of for and set, and the statements
   that bind names or capture output; then the others. Loop bodies, set blocks and generation blocks are scopes:
   variables that are set inside them end with them. `if` is no scope.
   takes: exl2__template_parser at the first token of a template.
   gives: exl2__template_statement_all. */
#ifndef EXL2__TEMPLATE_STATEMENT_H
#define EXL2__TEMPLATE_STATEMENT_H

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

/* ---- statements, after their name ---- */

EXL2__PRIVATE exl2_result exl2__template_statement_if(exl2__template_parser *p)
{
    uint32_t ends = 0;
    p->soft = true;
    for (;;) {
        uint32_t at = p->token.at;
        EXL2__TRY(exl2__template_expression_tuple(p, 0));
        EXL2__TRY(exl2__template_statement_close(p));
        uint32_t unless = exl2__template_emit(p, EXL2__TEMPLATE_UNLESS, 0, 0, at, -1);
        EXL2__TRY(exl2__template_statement_body(p, "elif else endif"));
        bool more = !exl2__template_emit_is_name(p, "endif"), last = exl2__template_emit_is_name(p, "else");
        if (more) {
            exl2__template_emit_chain(p, &ends, exl2__template_emit(p, EXL2__TEMPLATE_JUMP, 0, 0, at, 0));
        }
        exl2__template_emit_patch(p, unless, p->code_count);
        EXL2__TRY(exl2__template_statement_end(p, !more || last));
        if (last) {
            EXL2__TRY(exl2__template_statement_body(p, "endif"));
            EXL2__TRY(exl2__template_statement_end(p, true));
        }
        if (!more || last) {
            break;
        }
    }
    exl2__template_emit_patch_chain(p, ends);
    return EXL2_OK;
}

/* for target in value [if condition]: FOR, [NEXT, bind, condition, KEEP, JUMP NEXT, AGAIN,] NEXT, bind, body, RAN,
   JUMP NEXT, ELSE or LEAVE. The condition is tested for all elements before the body first runs, because loop.length
   and loop.last depend on the result. */
EXL2__PRIVATE exl2_result exl2__template_statement_loop_head(exl2__template_parser *p, exl2__template_parser_loop *loop)
{
    exl2__template_target target = { .of_loop = true };
    uint32_t at = p->token.at;
    EXL2__TRY(exl2__template_statement_target(p, &target));
    EXL2__TRY(exl2__template_emit_expect(p, EXL2__TEMPLATE_TOKEN_NAME, "in"));
    EXL2__TRY(exl2__template_expression_tuple(p, 0));
    p->soft = false;
    exl2__template_ins open = { EXL2__TEMPLATE_FOR, exl2__template_emit_is_name(p, "if"), 0, 0, 0, at };
    exl2__template_emit_ins(p, open, -1);
    p->frames++;
    if (open.id) {
        bool outer = p->in_loop_filter;
        uint32_t next = exl2__template_emit_frames(p, EXL2__TEMPLATE_NEXT, p->frames, at, 1);
        exl2__template_statement_bind(p, &target);
        p->in_loop_filter = true;
        EXL2__TRY(exl2__template_emit_advance(p));
        EXL2__TRY(exl2__template_expression(p));
        p->in_loop_filter = outer;
        exl2__template_emit_patch(p, exl2__template_emit(p, EXL2__TEMPLATE_UNLESS, 0, 0, at, -1), next);
        exl2__template_emit(p, EXL2__TEMPLATE_KEEP, 0, 0, at, 0);
        exl2__template_emit_patch(p, exl2__template_emit(p, EXL2__TEMPLATE_JUMP, 0, 0, at, 0), next);
        exl2__template_emit_patch(p, next, p->code_count);
        exl2__template_emit(p, EXL2__TEMPLATE_AGAIN, 0, 0, at, 0);
    }
    loop->next = exl2__template_emit_frames(p, EXL2__TEMPLATE_NEXT, p->frames, at, 1);
    exl2__template_emit_chain(p, &loop->exits, loop->next);
    exl2__template_statement_bind(p, &target);
    if (exl2__template_emit_is_name(p, "recursive")) {
        return exl2__template_emit_unsupported(p, &p->token, "a loop that is");
    }
    return exl2__template_statement_close(p);
}

EXL2__PRIVATE exl2_result exl2__template_statement_for(exl2__template_parser *p)
{
    exl2__template_parser_loop loop = { 0, 0 }, *outer = p->loop;
    uint32_t at = p->token.at;
    EXL2__TRY(exl2__template_statement_loop_head(p, &loop));
    bool in_loop_macro = p->in_loop_macro;
    p->in_loop_macro = false;
    p->loop = &loop;
    EXL2__TRY(exl2__template_statement_body(p, "else endfor"));
    p->loop = outer;
    p->in_loop_macro = in_loop_macro;
    bool has_else = exl2__template_emit_is_name(p, "else");
    if (has_else) {
        exl2__template_emit(p, EXL2__TEMPLATE_RAN, 0, 0, at, 0);
    }
    exl2__template_emit_patch(p, exl2__template_emit(p, EXL2__TEMPLATE_JUMP, 0, 0, at, 0), loop.next);
    exl2__template_emit_patch_chain(p, loop.exits);
    p->frames--;
    EXL2__TRY(exl2__template_statement_end(p, true));
    if (!has_else) {
        exl2__template_emit_frames(p, EXL2__TEMPLATE_LEAVE, p->frames, at, 0);
        return EXL2_OK;
    }
    uint32_t skip = exl2__template_emit_frames(p, EXL2__TEMPLATE_ELSE, p->frames, at, 0);
    exl2__template_emit(p, EXL2__TEMPLATE_SCOPE, 0, 0, at, 0);
    p->frames++;
    EXL2__TRY(exl2__template_statement_body(p, "endfor"));
    EXL2__TRY(exl2__template_statement_end(p, true));
    p->frames--;
    exl2__template_emit_frames(p, EXL2__TEMPLATE_LEAVE, p->frames, at, 0);
    exl2__template_emit_patch(p, skip, p->code_count);
    return EXL2_OK;
}

/* generation .. endgeneration, which marks the reply for transformers: its output is kept, its variables are not. */
EXL2__PRIVATE exl2_result exl2__template_statement_generation(exl2__template_parser *p)
{
    uint32_t at = p->token.at;
    p->soft = false;
    EXL2__TRY(exl2__template_statement_close(p));
    exl2__template_emit(p, EXL2__TEMPLATE_SCOPE, 0, 0, at, 0);
    p->frames++;
    EXL2__TRY(exl2__template_statement_body(p, "endgeneration"));
    EXL2__TRY(exl2__template_statement_end(p, true));
    p->frames--;
    exl2__template_emit_frames(p, EXL2__TEMPLATE_LEAVE, p->frames, at, 0);
    return EXL2_OK;
}

/* break and continue: the NEXT or LEAVE at the target closes the frames that are open here. */
EXL2__PRIVATE exl2_result exl2__template_statement_jump(exl2__template_parser *p, const exl2__template_token *t,
                                                        bool is_break)
{
    if (!p->loop) {
        return exl2__template_emit_fail(p, EXL2_ERR_FORMAT, t->at, "'%s' outside of a loop",
                                        is_break ? "break" : "continue");
    }
    uint32_t jump = exl2__template_emit(p, EXL2__TEMPLATE_JUMP, 0, 0, t->at, 0);
    if (is_break) {
        exl2__template_emit_chain(p, &p->loop->exits, jump);
    } else {
        exl2__template_emit_patch(p, jump, p->loop->next);
    }
    return exl2__template_statement_close(p);
}

/* Parses a statement after its "{%"; the next token is its name. */
EXL2__PRIVATE exl2_result exl2__template_statement(exl2__template_parser *p)
{
    exl2__template_token t = p->token;
    const char *word = p->lex.source + t.begin;
    EXL2__TRY(exl2__template_emit_advance(p));
    static const struct {
        char name[11];
        exl2_result (*parse)(exl2__template_parser *p);
    } rows[] = {
        { "if", exl2__template_statement_if },         { "for", exl2__template_statement_for },
        { "set", exl2__template_statement_set },       { "macro", exl2__template_statement_macro },
        { "call", exl2__template_statement_call },     { "filter", exl2__template_statement_filter },
        { "with", exl2__template_statement_with },     { "generation", exl2__template_statement_generation },
    };
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        if (exl2__template_same(word, t.bytes, rows[i].name)) {
            bool soft = p->soft;
            exl2_result result = rows[i].parse(p);
            p->soft = soft;
            return result;
        }
    }
    if (exl2__template_same(word, t.bytes, "break") || exl2__template_same(word, t.bytes, "continue")) {
        return exl2__template_statement_jump(p, &t, word[0] == 'b');
    }
    bool closes = (t.bytes > 3 && memcmp(word, "end", 3) == 0) || exl2__template_operand_keyword(word, t.bytes);
    if (closes) {
        return exl2__template_emit_fail(p, EXL2_ERR_FORMAT, t.at, "'%.*s' ends no open statement", (int)t.bytes, word);
    }
    return exl2__template_emit_unsupported(p, &t, "statement");
}

/* {{ value }}, after the opening. */
EXL2__PRIVATE exl2_result exl2__template_statement_print(exl2__template_parser *p)
{
    uint32_t at = p->token.at;
    EXL2__TRY(exl2__template_expression_tuple(p, EXL2__TEMPLATE_ALLOW_IF));
    if (p->token.kind != EXL2__TEMPLATE_TOKEN_PRINT_END) {
        return exl2__template_emit_unexpected(p, "'}}'");
    }
    exl2__template_emit(p, EXL2__TEMPLATE_PRINT, 0, 0, at, -1);
    return exl2__template_emit_advance(p);
}

/* Parses up to a tag whose name is one of `stops`, which are separated by spaces; that name is then the next token.
   stops "": parses to the end of the template. */
EXL2__PRIVATE exl2_result exl2__template_statement_body(exl2__template_parser *p, const char *stops)
{
    EXL2__TRY(exl2__template_emit_enter(p));
    for (;;) {
        exl2__template_token t = p->token;
        if (t.kind == EXL2__TEMPLATE_TOKEN_END) {
            if (stops[0]) {
                return exl2__template_emit_unexpected(p, stops + (strrchr(stops, ' ') ? strrchr(stops, ' ') - stops + 1
                                                                                      : 0));
            }
            break;
        }
        EXL2__TRY(exl2__template_emit_advance(p));
        if (t.kind == EXL2__TEMPLATE_TOKEN_DATA) {
            if (t.bytes) {
                exl2__template_emit(p, EXL2__TEMPLATE_WRITE, t.begin, t.bytes, t.at, 0);
            }
        } else if (t.kind == EXL2__TEMPLATE_TOKEN_PRINT) {
            EXL2__TRY(exl2__template_statement_print(p));
        } else if (p->token.kind != EXL2__TEMPLATE_TOKEN_NAME) {
            return exl2__template_emit_unexpected(p, "the name of a statement");
        } else if (exl2__template_parameter_number(stops, p->lex.source + p->token.begin, p->token.bytes) !=
                   UINT32_MAX) {
            break;
        } else {
            EXL2__TRY(exl2__template_statement(p));
        }
    }
    exl2__template_emit_leave(p);
    return EXL2_OK;
}

/* Parses the whole template; p->lex and p->error are set. */
EXL2__PRIVATE exl2_result exl2__template_statement_all(exl2__template_parser *p)
{
    EXL2__TRY(exl2__template_emit_advance(p));
    EXL2__TRY(exl2__template_statement_body(p, ""));
    if (p->unknown.bytes) {
        return exl2__template_emit_unsupported(p, &p->unknown, p->unknown_what);
    }
    exl2__template_emit(p, EXL2__TEMPLATE_END, 0, 0, p->token.at, 0);
    return EXL2_OK;
}

#endif

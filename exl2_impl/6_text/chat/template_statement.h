/* template_statement.h: parses text, {{ }} and {% %} into code. Loop bodies, set blocks and generation blocks are
   scopes: variables that are set inside them end with them. `if` is no scope.
   takes: exl2__template_parser at the first token of a template.
   gives: exl2__template_statement_all. */
#ifndef EXL2__TEMPLATE_STATEMENT_H
#define EXL2__TEMPLATE_STATEMENT_H

#include "template_capture.h"

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

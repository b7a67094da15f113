/* template_run.h: the stack machine: one loop over the instructions, without recursion; every step is counted.
   takes: exl2__template_run as exl2__template_frame_open makes it, with its variables set.
   gives: exl2__template_run_all. */
#ifndef EXL2__TEMPLATE_RUN_H
#define EXL2__TEMPLATE_RUN_H

#include "template_macro.h"

/* ---- instructions that pop several values ---- */

EXL2__PRIVATE exl2_result exl2__template_run_unpack(exl2__template_run *r, uint32_t count)
{
    exl2__template_value items;
    EXL2__TRY(exl2__template_sequence(r, &r->stack[r->top - 1], &items));
    if (items.count != count) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT,
                                   items.count > count ? "too many values to unpack (expected %u)"
                                                       : "not enough values to unpack (expected %u, got %u)",
                                   count, items.count);
    }
    r->top--;
    for (uint32_t i = count; i-- > 0;) {
        r->stack[r->top++] = items.as.items[i];
    }
    return EXL2_OK;
}

/* [..], (..), {..} from the values on the stack. */
EXL2__PRIVATE exl2_result exl2__template_run_literal(exl2__template_run *r, const exl2__template_ins *ins)
{
    bool dict = ins->op == EXL2__TEMPLATE_DICT;
    uint32_t pushed = dict ? ins->a * 2 : ins->a, room;
    exl2__template_value *from = &r->stack[r->top - pushed], made, *items = NULL;
    if (dict) {
        EXL2__TRY(exl2__template_function_dict(r, NULL, from, ins->a, &room, &made));
    } else {
        EXL2__TRY(exl2__template_alloc_values(r, ins->a, &items));
        if (ins->a) {
            memcpy(items, from, ins->a * sizeof *items);
        }
        made = exl2__template_items(ins->op == EXL2__TEMPLATE_LIST ? EXL2__TEMPLATE_KIND_LIST
                                                                   : EXL2__TEMPLATE_KIND_TUPLE, items, ins->a);
    }
    r->top -= pushed;
    r->stack[r->top++] = made;
    return EXL2_OK;
}

/* a ~ b ~ c */
EXL2__PRIVATE exl2_result exl2__template_run_concat(exl2__template_run *r, uint32_t count)
{
    exl2__template_value *from = &r->stack[r->top - count];
    for (uint32_t i = 0; i < count; i++) {
        EXL2__TRY(exl2__template_string(r, &from[i], &from[i]));
    }
    size_t start = r->used;
    for (uint32_t i = 0; i < count; i++) {
        EXL2__TRY(exl2__template_put_copy(r, from[i].as.text, from[i].count));
    }
    r->top -= count;
    r->stack[r->top++] = exl2__template_written(r, start);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_run_slice(exl2__template_run *r, uint32_t given)
{
    const exl2__template_value *bound[3];
    uint32_t at = r->top;
    for (uint32_t i = 3; i-- > 0;) {
        bound[i] = given >> i & 1 ? &r->stack[--at] : NULL;
    }
    exl2__template_value result;
    EXL2__TRY(exl2__template_slice(r, &r->stack[at - 1], bound[0], bound[1], bound[2], &result));
    r->stack[at - 1] = result;
    r->top = at;
    return EXL2_OK;
}

/* Something that is not supported in a branch that runs. */
EXL2__PRIVATE exl2_result exl2__template_run_fail(exl2__template_run *r, const exl2__template_ins *ins)
{
    const char *what = ins->id == EXL2__TEMPLATE_FILTER ? "filter" : ins->id == EXL2__TEMPLATE_TEST ? "test" : "method";
    const char *text = r->program->text + ins->a;
    size_t count;
    if (ins->id == EXL2__TEMPLATE_BIG) {
        return exl2__template_unsupported(r, "an integer of this size");
    }
    if (ins->count == 0) {
        return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "%s '%.*s' is not supported", what, (int)ins->b, text);
    }
    const exl2__template_signature_row *row =
        &exl2__template_signature_table((exl2__template_op)ins->id, &count)[ins->count - 1];
    if (ins->b == 0) {
        return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "%s '%s' with %u argument(s) is not supported: it needs %u",
                                   what, row->name, ins->a, row->mandatory);
    }
    return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "%s '%s' with the argument '%.*s' is not supported", what,
                               row->name, (int)ins->b, text);
}

/* Filter, test or method: the arguments are on the stack, the object below them. */
EXL2__PRIVATE exl2_result exl2__template_run_call(exl2__template_run *r, const exl2__template_ins *ins)
{
    const exl2__template_value *args[EXL2__TEMPLATE_ARGS_MAX] = { NULL };
    uint32_t base = r->top - ins->count;
    exl2__template_value result = exl2__template_none();
    bool truth = false;
    for (uint32_t i = 0; i < ins->count; i++) {
        args[ins->b >> 4 * i & 15] = &r->stack[base + i];
    }
    exl2__template_value name = exl2__template_text(r->program->text + ins->at, ins->a);
    switch (ins->op) {
    case EXL2__TEMPLATE_FILTER:
        EXL2__TRY(exl2__template_filter_call(r, ins->id, &r->stack[--base], args, &result));
        break;
    case EXL2__TEMPLATE_TEST:
        EXL2__TRY(exl2__template_test_call(r, ins->id, &r->stack[--base], args, &truth));
        result = exl2__template_bool(truth != (ins->a != 0));
        break;
    default: /* METHOD */
        EXL2__TRY(exl2__template_method_call(r, ins->id, &name, &r->stack[--base], args, &result));
        break;
    }
    r->top = base;
    r->stack[r->top++] = result;
    return EXL2_OK;
}

/* ---- the machine ---- */

/* Instructions without a jump. */
EXL2__PRIVATE exl2_result exl2__template_run_plain(exl2__template_run *r, const exl2__template_ins *ins)
{
    exl2__template_value *top = r->stack + r->top, result = exl2__template_none(); /* top[-1] is the value on top */
    const char *text = r->program->text;
    uint64_t bits = (uint64_t)ins->b << 32 | ins->a;
    bool truth = false;
    switch (ins->op) {
    case EXL2__TEMPLATE_WRITE:
        return exl2__template_frame_write(r, text + ins->a, ins->b);
    case EXL2__TEMPLATE_PRINT:
        EXL2__TRY(exl2__template_string(r, &top[-1], &result));
        r->top--;
        return exl2__template_frame_write(r, result.as.text, result.count);
    case EXL2__TEMPLATE_TEXT:
        *top = exl2__template_text(text + ins->a, ins->b);
        break;
    case EXL2__TEMPLATE_BIG:
        *top = exl2__template_big(text + ins->a, ins->b);
        break;
    case EXL2__TEMPLATE_FAIL:
        return exl2__template_run_fail(r, ins);
    case EXL2__TEMPLATE_INT:
        *top = exl2__template_int((int64_t)bits);
        break;
    case EXL2__TEMPLATE_REAL:
        *top = exl2__template_real(0);
        memcpy(&top->as.real, &bits, sizeof bits);
        break;
    case EXL2__TEMPLATE_NONE:
        *top = exl2__template_none();
        break;
    case EXL2__TEMPLATE_BOOL:
        *top = exl2__template_bool(ins->a != 0);
        break;
    case EXL2__TEMPLATE_NO_ELSE:
        *top = exl2__template_undefined(EXL2__TEMPLATE_NO_BRANCH, NULL, "", ins->at);
        break;
    case EXL2__TEMPLATE_LOAD:
        *top = exl2__template_frame_load(r, ins->a);
        break;
    case EXL2__TEMPLATE_LOOP:
        *top = exl2__template_frame_loop(r);
        break;
    case EXL2__TEMPLATE_BIND:
        r->top--;
        return exl2__template_frame_bind(r, ins->a, &top[-1]);
    case EXL2__TEMPLATE_BIND_ATTR:
        r->top--;
        return exl2__template_frame_bind_attribute(r, ins, &top[-1]);
    case EXL2__TEMPLATE_UNPACK:
        return exl2__template_run_unpack(r, ins->a);
    case EXL2__TEMPLATE_ATTR:
        EXL2__TRY(exl2__template_attribute(r, &top[-1], text + ins->a, ins->b, &result));
        top[-1] = result;
        return EXL2_OK;
    case EXL2__TEMPLATE_ITEM:
        EXL2__TRY(exl2__template_item(r, &top[-2], &top[-1], &result));
        top[-2] = result;
        r->top--;
        return EXL2_OK;
    case EXL2__TEMPLATE_SLICE:
        return exl2__template_run_slice(r, ins->id);
    case EXL2__TEMPLATE_LIST:
    case EXL2__TEMPLATE_TUPLE:
    case EXL2__TEMPLATE_DICT:
        return exl2__template_run_literal(r, ins);
    case EXL2__TEMPLATE_NEGATE:
    case EXL2__TEMPLATE_POSITIVE:
        EXL2__TRY(exl2__template_sign(r, ins->op == EXL2__TEMPLATE_NEGATE, &top[-1], &result));
        top[-1] = result;
        return EXL2_OK;
    case EXL2__TEMPLATE_NOT:
        top[-1] = exl2__template_bool(!exl2__template_truth(&top[-1]));
        return EXL2_OK;
    case EXL2__TEMPLATE_CONCAT:
        return exl2__template_run_concat(r, ins->a);
    case EXL2__TEMPLATE_COMPARE:
        EXL2__TRY(exl2__template_comparison(r, (exl2__template_compare)ins->id, &top[-2], &top[-1], &truth));
        top[-2] = exl2__template_bool(truth);
        r->top--;
        return EXL2_OK;
    case EXL2__TEMPLATE_FILTER:
    case EXL2__TEMPLATE_TEST:
    case EXL2__TEMPLATE_METHOD:
        return exl2__template_run_call(r, ins);
    case EXL2__TEMPLATE_FOR:
        r->top--;
        return exl2__template_frame_for(r, &top[-1], ins->id != 0);
    case EXL2__TEMPLATE_SCOPE:
        return exl2__template_frame_push(r, NULL, false);
    case EXL2__TEMPLATE_CAPTURE:
        return exl2__template_frame_push(r, NULL, true);
    case EXL2__TEMPLATE_CAPTURED:
        EXL2__TRY(exl2__template_frame_gather(r, exl2__template_frame_top(r)->pieces, top));
        exl2__template_frame_pop(r, ins->count);
        break;
    case EXL2__TEMPLATE_LEAVE:
        exl2__template_frame_pop(r, ins->count);
        return EXL2_OK;
    case EXL2__TEMPLATE_RAN:
        exl2__template_frame_top(r)->loop->ran = true;
        return EXL2_OK;
    case EXL2__TEMPLATE_KEEP: {
        exl2__template_loop *loop = exl2__template_frame_top(r)->loop;
        loop->kept[loop->kept_count++] = loop->items[loop->at - 1];
        return EXL2_OK;
    }
    case EXL2__TEMPLATE_AGAIN: {
        exl2__template_loop *loop = exl2__template_frame_top(r)->loop;
        loop->items = loop->kept;
        loop->count = loop->kept_count;
        loop->at = 0;
        return EXL2_OK;
    }
    case EXL2__TEMPLATE_MACRO:
        EXL2__TRY(exl2__template_macro_make(r, ins, top));
        break;
    case EXL2__TEMPLATE_CALL:
        return exl2__template_macro_call(r, ins);
    case EXL2__TEMPLATE_RETURN:
        return exl2__template_macro_return(r);
    default: /* ADD .. POWER */
        if (ins->op == EXL2__TEMPLATE_MODULO && top[-2].kind == EXL2__TEMPLATE_KIND_TEXT) {
            bool several = top[-1].kind == EXL2__TEMPLATE_KIND_TUPLE;
            EXL2__TRY(exl2__template_format(r, &top[-2], several ? top[-1].as.items : &top[-1],
                                            several ? top[-1].count : 1, &result));
            top[-2] = result;
            r->top--;
            return EXL2_OK;
        }
        EXL2__TRY(exl2__template_arithmetic(r, (exl2__template_op)ins->op, &top[-2], &top[-1], &result));
        top[-2] = result;
        r->top--;
        return EXL2_OK;
    }
    r->top++;
    return EXL2_OK;
}

/* Runs an instruction that may jump; *jump: whether it jumps. false: `ins` is none of these instructions. */
EXL2__PRIVATE bool exl2__template_run_jump(exl2__template_run *r, const exl2__template_ins *ins, bool *jump)
{
    exl2__template_value *top = r->stack + r->top;
    *jump = true;
    switch (ins->op) {
    case EXL2__TEMPLATE_JUMP:
        return true;
    case EXL2__TEMPLATE_UNLESS:
        *jump = !exl2__template_truth(&top[-1]);
        r->top--;
        return true;
    case EXL2__TEMPLATE_AND:
    case EXL2__TEMPLATE_OR:
        *jump = exl2__template_truth(&top[-1]) == (ins->op == EXL2__TEMPLATE_OR);
        r->top -= !*jump;
        return true;
    case EXL2__TEMPLATE_NEXT: {
        exl2__template_frame_pop(r, ins->count);
        exl2__template_frame_unbind(r);
        exl2__template_loop *loop = exl2__template_frame_top(r)->loop;
        *jump = loop->at == loop->count;
        if (!*jump) {
            r->stack[r->top++] = loop->items[loop->at++];
        }
        return true;
    }
    case EXL2__TEMPLATE_ELSE:
        *jump = r->frame[r->base + ins->count + 1].loop->ran;
        exl2__template_frame_pop(r, ins->count);
        return true;
    case EXL2__TEMPLATE_PARAMETER:
        *jump = exl2__template_macro_parameter(r, ins);
        return true;
    default:
        *jump = false;
        return false;
    }
}

/* Runs the program from the first instruction to END. */
EXL2__PRIVATE exl2_result exl2__template_run_all(exl2__template_run *r)
{
    const exl2__template_ins *ins = r->program->code;
    while (ins->op != EXL2__TEMPLATE_END) {
        bool jump = false, truth = false;
        r->now = ins;
        r->next = NULL;
        EXL2__TRY(exl2__template_step(r, 1));
        if (ins->op == EXL2__TEMPLATE_CHAIN) {
            exl2__template_value *top = r->stack + r->top;
            EXL2__TRY(exl2__template_comparison(r, (exl2__template_compare)ins->id, &top[-2], &top[-1], &truth));
            jump = !truth;
            top[-2] = jump ? exl2__template_bool(false) : top[-1];
            r->top--;
        } else if (!exl2__template_run_jump(r, ins, &jump)) {
            EXL2__TRY(exl2__template_run_plain(r, ins));
        }
        ins = r->next ? r->next : ins + (jump ? (int32_t)ins->a : 1);
    }
    return EXL2_OK;
}

#endif

/* template_run.h: the stack machine: one loop over the instructions, no recursion, every step counted.
   takes: exl2__template, a block, variables that are set before it runs.
   gives: exl2__template_run_open, exl2__template_run_set, exl2__template_run_all.
   owns:  nothing.
   next:  template.h */
#ifndef EXL2__TEMPLATE_RUN_H
#define EXL2__TEMPLATE_RUN_H

#include "template_call.h"

/* ---- before the run ---- */

/* Lays the machine's parts out in the block. */
static exl2_result exl2__template_run_open(exl2__ctx *c, const exl2__template *program, void *block, size_t bytes,
                                           exl2__template_run **out)
{
    exl2__template_run shape, *r = &shape;
    void *run = NULL, *stack = NULL, *variables = NULL;
    size_t skip = (size_t)(0 - (uintptr_t)block) % 16, size = (size_t)exl2__min64(bytes, EXL2__TEMPLATE_BLOCK_MAX);
    memset(r, 0, sizeof *r);
    if (size < skip + 16) {
        return EXL2_ERR_TOO_SMALL;
    }
    r->c = c;
    r->program = program;
    r->largest = bytes >= EXL2__TEMPLATE_BLOCK_MAX;
    r->block = (uint8_t *)block + skip;
    r->room = (size - skip) / 9 * 8 / 16 * 16; /* 8 of 9 bytes; the ninth holds their marks */
    r->marks = r->block + r->room;
    EXL2__TRY(exl2__template_take(r, sizeof *r, 16, &run));
    EXL2__TRY(exl2__template_take(r, (uint64_t)program->stack_max * sizeof *r->stack, 8, &stack));
    EXL2__TRY(exl2__template_take(r, (uint64_t)program->name_count * sizeof *r->variables, 8, &variables));
    memset(variables, 0, program->name_count * sizeof *r->variables);
    r->stack = (exl2__template_value *)stack;
    r->variables = (exl2__template_binding *)variables;
    r->frames = 1;
    memcpy(run, r, sizeof *r);
    *out = (exl2__template_run *)run;
    return EXL2_OK;
}

/* Gives a variable a value, if the template knows one called so. */
static void exl2__template_run_set(exl2__template_run *r, const char *name, const exl2__template_value *value)
{
    for (uint32_t i = 0; i < r->program->name_count; i++) {
        const exl2__template_name *n = &r->program->names[i];
        if (exl2__template_same(r->program->text + n->at, n->bytes, name)) {
            r->variables[i].value = *value;
            r->variables[i].bound = true;
        }
    }
}

/* ---- output ---- */

static exl2__template_piece *exl2__template_run_piece(const exl2__template_run *r, uint32_t index)
{
    return (exl2__template_piece *)(void *)(r->block + r->room) - 1 - index;
}

static exl2_result exl2__template_run_write(exl2__template_run *r, const char *text, size_t bytes)
{
    if (bytes == 0) {
        return EXL2_OK;
    }
    if ((uint64_t)r->used + ((uint64_t)r->pieces + 1) * sizeof(exl2__template_piece) > r->room) {
        return exl2__template_full(r);
    }
    exl2__template_piece *piece = exl2__template_run_piece(r, r->pieces++);
    piece->text = text;
    piece->bytes = bytes;
    return EXL2_OK;
}

/* The pieces from `first` on become one text, aligned to 8 bytes, and are no longer output. A NUL follows it. */
static exl2_result exl2__template_run_gather(exl2__template_run *r, uint32_t first, exl2__template_value *out)
{
    uint64_t bytes = 0;
    void *memory = NULL;
    for (uint32_t i = first; i < r->pieces; i++) {
        bytes += exl2__template_run_piece(r, i)->bytes;
    }
    EXL2__TRY(exl2__template_step(r, (size_t)exl2__min64(bytes / 16 + r->pieces, UINT32_MAX)));
    EXL2__TRY(exl2__template_take(r, bytes + 1, 8, &memory));
    char *text = (char *)memory, *at = text;
    for (uint32_t i = first; i < r->pieces; i++) {
        const exl2__template_piece *piece = exl2__template_run_piece(r, i);
        exl2__template_copy(r, at, piece->text, piece->bytes);
        at += piece->bytes;
    }
    *at = 0;
    exl2__template_mark(r, at, 1, false);
    r->pieces = first;
    *out = exl2__template_text(text, (size_t)bytes);
    return EXL2_OK;
}

/* ---- frames and variables ---- */

static exl2__template_frame *exl2__template_run_frame(exl2__template_run *r)
{
    return &r->frame[r->frames - 1];
}

static exl2_result exl2__template_run_push_frame(exl2__template_run *r, exl2__template_loop *loop, bool capture)
{
    if (r->frames == EXL2__COUNT(r->frame)) {
        return exl2__template_refuse(r, "nesting that deeply");
    }
    exl2__template_frame frame = { NULL, loop, r->pieces, capture };
    r->frame[r->frames++] = frame;
    return EXL2_OK;
}

/* Puts back what the innermost frame has bound. */
static void exl2__template_run_unbind(exl2__template_run *r)
{
    exl2__template_frame *frame = exl2__template_run_frame(r);
    while (frame->undo) {
        exl2__template_undo *undo = frame->undo;
        r->variables[undo->name] = undo->before;
        frame->undo = undo->next;
        undo->next = r->free_undo;
        r->free_undo = undo;
    }
}

/* Closes frames until `count` are open above the template's own; output that they captured is dropped. */
static void exl2__template_run_pop_frames(exl2__template_run *r, uint32_t count)
{
    while (r->frames > count + 1) {
        exl2__template_run_unbind(r);
        if (exl2__template_run_frame(r)->capture) {
            r->pieces = exl2__template_run_frame(r)->pieces;
        }
        r->frames--;
    }
}

static exl2_result exl2__template_run_bind(exl2__template_run *r, uint32_t name, const exl2__template_value *value)
{
    exl2__template_binding *variable = &r->variables[name];
    uint32_t frame = r->frames - 1;
    if (frame > 0 && (variable->frame != frame || !variable->bound)) {
        exl2__template_undo *undo = r->free_undo;
        if (undo) {
            r->free_undo = undo->next;
        } else {
            void *memory = NULL;
            EXL2__TRY(exl2__template_take(r, sizeof *undo, 8, &memory));
            undo = (exl2__template_undo *)memory;
        }
        undo->name = name;
        undo->before = *variable;
        undo->next = exl2__template_run_frame(r)->undo;
        exl2__template_run_frame(r)->undo = undo;
    }
    variable->value = *value;
    variable->frame = frame;
    variable->bound = true;
    return EXL2_OK;
}

static exl2__template_value exl2__template_run_load(const exl2__template_run *r, uint32_t name)
{
    const exl2__template_name *n = &r->program->names[name];
    return r->variables[name].bound ? r->variables[name].value
                                    : exl2__template_undefined(EXL2__TEMPLATE_NO_VARIABLE, NULL, r->program->text + n->at, n->bytes);
}

static exl2_result exl2__template_run_bind_attribute(exl2__template_run *r, const exl2__template_ins *ins,
                                                     const exl2__template_value *value)
{
    exl2__template_value space = exl2__template_run_load(r, ins->a);
    const exl2__template_name *n = &r->program->names[ins->b];
    exl2__template_value name = exl2__template_text(r->program->text + n->at, n->bytes);
    if (space.kind != EXL2__TEMPLATE_KIND_NAMESPACE) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "cannot assign attribute on non-namespace object");
    }
    return exl2__template_space_put(r, space.as.space, &name, value);
}

/* ---- loops ---- */

static exl2_result exl2__template_run_for(exl2__template_run *r, const exl2__template_value *over, bool filtered)
{
    exl2__template_value items;
    void *memory = NULL;
    EXL2__TRY(exl2__template_sequence(r, over, &items));
    EXL2__TRY(exl2__template_take(r, sizeof(exl2__template_loop), 8, &memory));
    exl2__template_loop *loop = (exl2__template_loop *)memory;
    memset(loop, 0, sizeof *loop);
    loop->items = items.as.items;
    loop->count = items.count;
    loop->filtered = filtered;
    for (uint32_t i = 0; i < r->frames; i++) {
        loop->depth += r->frame[i].loop != NULL;
    }
    return exl2__template_run_push_frame(r, loop, false);
}

/* The innermost loop, or undefined. */
static exl2__template_value exl2__template_run_loop(const exl2__template_run *r, const exl2__template_ins *ins)
{
    for (uint32_t i = r->frames; i-- > 0;) {
        if (r->frame[i].loop) {
            exl2__template_value v = exl2__template_none();
            v.kind = EXL2__TEMPLATE_KIND_LOOP;
            v.as.loop = r->frame[i].loop;
            return v;
        }
    }
    return exl2__template_undefined(EXL2__TEMPLATE_NO_VARIABLE, NULL, r->program->text + ins->a, ins->b);
}

/* ---- values that take several from the stack ---- */

static exl2_result exl2__template_run_unpack(exl2__template_run *r, uint32_t count)
{
    exl2__template_value items;
    EXL2__TRY(exl2__template_sequence(r, &r->stack[r->top - 1], &items));
    if (items.count != count) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, items.count > count ? "too many values to unpack (expected %u)"
                                                                           : "not enough values to unpack (expected %u, got %u)",
                                   count, items.count);
    }
    r->top--;
    for (uint32_t i = count; i-- > 0;) {
        r->stack[r->top++] = items.as.items[i];
    }
    return EXL2_OK;
}

/* [..], (..), {..}, namespace(..) from the values on the stack. */
static exl2_result exl2__template_run_literal(exl2__template_run *r, const exl2__template_ins *ins)
{
    bool list = ins->op == EXL2__TEMPLATE_LIST || ins->op == EXL2__TEMPLATE_TUPLE;
    uint32_t pushed = list ? ins->a : ins->a * 2, count = 0;
    exl2__template_value *from = &r->stack[r->top - pushed], made;
    if (list) {
        exl2__template_value *items = NULL;
        EXL2__TRY(exl2__template_take_values(r, ins->a, &items));
        if (ins->a) {
            memcpy(items, from, ins->a * sizeof *items);
        }
        made = exl2__template_items(ins->op == EXL2__TEMPLATE_LIST ? EXL2__TEMPLATE_KIND_LIST : EXL2__TEMPLATE_KIND_TUPLE, items, ins->a);
    } else {
        exl2__template_entry *entries = NULL;
        EXL2__TRY(exl2__template_take_entries(r, ins->a, &entries));
        for (uint32_t i = 0; i < ins->a; i++) {
            EXL2__TRY(exl2__template_entry_put(r, entries, &count, &from[i * 2], &from[i * 2 + 1]));
        }
        made = exl2__template_none();
        made.kind = EXL2__TEMPLATE_KIND_DICT;
        made.count = count;
        made.as.entries = entries;
        if (ins->op == EXL2__TEMPLATE_NAMESPACE) {
            void *memory = NULL;
            EXL2__TRY(exl2__template_take(r, sizeof(exl2__template_space_of), 8, &memory));
            made.kind = EXL2__TEMPLATE_KIND_NAMESPACE;
            made.as.space = (exl2__template_space_of *)memory;
            made.as.space->entries = entries;
            made.as.space->count = count;
            made.as.space->room = ins->a;
        }
    }
    r->top -= pushed;
    r->stack[r->top++] = made;
    return EXL2_OK;
}

/* a ~ b ~ c */
static exl2_result exl2__template_run_concat(exl2__template_run *r, uint32_t count)
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
    r->stack[r->top++] = exl2__template_since(r, start);
    return EXL2_OK;
}

static exl2_result exl2__template_run_slice(exl2__template_run *r, uint32_t given)
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

/* Filter, test, method or function: the arguments lie on the stack, the object below them. */
static exl2_result exl2__template_run_call(exl2__template_run *r, const exl2__template_ins *ins)
{
    const exl2__template_value *args[EXL2__TEMPLATE_ARGS_MAX] = { NULL };
    uint32_t base = r->top - ins->count;
    exl2__template_value result = exl2__template_none();
    bool truth = false;
    for (uint32_t i = 0; i < ins->count; i++) {
        args[ins->b >> 4 * i & 15] = &r->stack[base + i];
    }
    switch (ins->op) {
    case EXL2__TEMPLATE_FILTER:
        EXL2__TRY(exl2__template_filter_call(r, (exl2__template_filter)ins->id, &r->stack[--base], args, &result));
        break;
    case EXL2__TEMPLATE_TEST:
        EXL2__TRY(exl2__template_test_call(r, (exl2__template_test)ins->id, &r->stack[--base], args, &truth));
        result = exl2__template_bool(truth != (ins->a != 0));
        break;
    case EXL2__TEMPLATE_METHOD:
        EXL2__TRY(exl2__template_method_call(r, (exl2__template_method)ins->id, &r->stack[--base], args, &result));
        break;
    default:
        EXL2__TRY(exl2__template_function_call(r, (exl2__template_function)ins->id, args, &result));
        break;
    }
    r->top = base;
    r->stack[r->top++] = result;
    return EXL2_OK;
}

/* ---- the machine ---- */

/* Instructions without a jump. */
static exl2_result exl2__template_run_plain(exl2__template_run *r, const exl2__template_ins *ins)
{
    exl2__template_value *top = r->stack + r->top, result = exl2__template_none(); /* top[-1] is the newest value */
    const char *text = r->program->text;
    uint64_t bits = (uint64_t)ins->b << 32 | ins->a;
    bool truth = false;
    switch (ins->op) {
    case EXL2__TEMPLATE_WRITE:
        return exl2__template_run_write(r, text + ins->a, ins->b);
    case EXL2__TEMPLATE_PRINT:
        EXL2__TRY(exl2__template_string(r, &top[-1], &result));
        r->top--;
        return exl2__template_run_write(r, result.as.text, result.count);
    case EXL2__TEMPLATE_TEXT:
        *top = exl2__template_text(text + ins->a, ins->b);
        break;
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
        *top = exl2__template_undefined(EXL2__TEMPLATE_NO_BRANCH, NULL, "", 0);
        break;
    case EXL2__TEMPLATE_LOAD:
        *top = exl2__template_run_load(r, ins->a);
        break;
    case EXL2__TEMPLATE_LOOP:
        *top = exl2__template_run_loop(r, ins);
        break;
    case EXL2__TEMPLATE_BIND:
        r->top--;
        return exl2__template_run_bind(r, ins->a, &top[-1]);
    case EXL2__TEMPLATE_BIND_ATTR:
        r->top--;
        return exl2__template_run_bind_attribute(r, ins, &top[-1]);
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
    case EXL2__TEMPLATE_NAMESPACE:
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
    case EXL2__TEMPLATE_CALL:
        return exl2__template_run_call(r, ins);
    case EXL2__TEMPLATE_FOR:
        r->top--;
        return exl2__template_run_for(r, &top[-1], ins->id != 0);
    case EXL2__TEMPLATE_SCOPE:
        return exl2__template_run_push_frame(r, NULL, false);
    case EXL2__TEMPLATE_CAPTURE:
        return exl2__template_run_push_frame(r, NULL, true);
    case EXL2__TEMPLATE_CAPTURED:
        EXL2__TRY(exl2__template_run_gather(r, exl2__template_run_frame(r)->pieces, top));
        exl2__template_run_pop_frames(r, ins->count);
        break;
    case EXL2__TEMPLATE_LEAVE:
        exl2__template_run_pop_frames(r, ins->count);
        return EXL2_OK;
    case EXL2__TEMPLATE_ENTER: {
        exl2__template_loop *loop = exl2__template_run_frame(r)->loop;
        loop->taken++;
        loop->previous = loop->current;
        loop->current = loop->items[loop->at - 1];
        return EXL2_OK;
    }
    default: /* ADD .. POWER */
        EXL2__TRY(exl2__template_arithmetic(r, (exl2__template_op)ins->op, &top[-2], &top[-1], &result));
        top[-2] = result;
        r->top--;
        return EXL2_OK;
    }
    r->top++;
    return EXL2_OK;
}

/* Instructions that may jump: *jump tells. false: not one of them. */
static bool exl2__template_run_jump(exl2__template_run *r, const exl2__template_ins *ins, bool *jump)
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
        exl2__template_run_pop_frames(r, ins->count);
        exl2__template_run_unbind(r);
        exl2__template_loop *loop = exl2__template_run_frame(r)->loop;
        *jump = loop->at == loop->count;
        if (!*jump) {
            r->stack[r->top++] = loop->items[loop->at++];
        }
        return true;
    }
    case EXL2__TEMPLATE_ELSE:
        *jump = r->frame[ins->count + 1].loop->taken > 0;
        exl2__template_run_pop_frames(r, ins->count);
        return true;
    default:
        *jump = false;
        return false;
    }
}

/* From the first instruction to END. */
static exl2_result exl2__template_run_all(exl2__template_run *r)
{
    const exl2__template_ins *ins = r->program->code;
    while (ins->op != EXL2__TEMPLATE_END) {
        bool jump = false, truth = false;
        r->now = ins;
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
        ins += jump ? (int32_t)ins->a : 1;
    }
    return EXL2_OK;
}

#endif

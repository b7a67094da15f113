/* template_frame.h: the state of a running template: layout of the block, output, frames, variables, loops. A variable
   that is set inside a frame has its old value again when the frame closes.
   takes: exl2__template, a block.
   gives: exl2__template_frame_open, set, write, gather, push, pop, bind, load, loop. */
#ifndef EXL2__TEMPLATE_FRAME_H
#define EXL2__TEMPLATE_FRAME_H

#include "template_function.h"

/* ---- before the run ---- */

/* Lays out the machine in the block. */
EXL2__PRIVATE exl2_result exl2__template_frame_open(exl2__ctx *c, const exl2__template *program, void *block,
                                                    size_t bytes, exl2__template_run **out)
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
    EXL2__TRY(exl2__template_alloc(r, sizeof *r, 16, &run));
    EXL2__TRY(exl2__template_alloc(r, (uint64_t)program->stack_max * sizeof *r->stack, 8, &stack));
    EXL2__TRY(exl2__template_alloc(r, (uint64_t)program->name_count * sizeof *r->variables, 8, &variables));
    memset(variables, 0, program->name_count * sizeof *r->variables);
    r->stack = (exl2__template_value *)stack;
    r->variables = (exl2__template_binding *)variables;
    r->frames = 1;
    r->context[0].variables = r->variables;
    r->context[0].stack = r->stack;
    memcpy(run, r, sizeof *r);
    *out = (exl2__template_run *)run;
    return EXL2_OK;
}

/* Sets the variable `name` if the template uses one of that name. */
EXL2__PRIVATE void exl2__template_frame_set_text(exl2__template_run *r, const char *name, size_t bytes,
                                                 const exl2__template_value *value)
{
    for (uint32_t i = 0; i < r->program->name_count; i++) {
        const exl2__template_name *n = &r->program->names[i];
        if (n->bytes == bytes && memcmp(r->program->text + n->at, name, bytes) == 0) {
            r->variables[i].value = *value;
            r->variables[i].bound = true;
        }
    }
}

EXL2__PRIVATE void exl2__template_frame_set(exl2__template_run *r, const char *name, const exl2__template_value *value)
{
    exl2__template_frame_set_text(r, name, strlen(name), value);
}

/* ---- output ---- */

EXL2__PRIVATE exl2__template_piece *exl2__template_frame_piece(const exl2__template_run *r, uint32_t index)
{
    return (exl2__template_piece *)(void *)(r->block + r->room) - 1 - index;
}

EXL2__PRIVATE exl2_result exl2__template_frame_write(exl2__template_run *r, const char *text, size_t bytes)
{
    if (bytes == 0) {
        return EXL2_OK;
    }
    if ((uint64_t)r->used + ((uint64_t)r->pieces + 1) * sizeof(exl2__template_piece) > r->room) {
        return exl2__template_no_room(r);
    }
    exl2__template_piece *piece = exl2__template_frame_piece(r, r->pieces++);
    piece->text = text;
    piece->bytes = bytes;
    return EXL2_OK;
}

/* Removes the pieces from `first` on from the output and joins them to one text, aligned to 8 bytes and followed by a
   NUL. */
EXL2__PRIVATE exl2_result exl2__template_frame_gather(exl2__template_run *r, uint32_t first, exl2__template_value *out)
{
    uint64_t bytes = 0;
    void *memory = NULL;
    for (uint32_t i = first; i < r->pieces; i++) {
        bytes += exl2__template_frame_piece(r, i)->bytes;
    }
    EXL2__TRY(exl2__template_step(r, (size_t)exl2__min64(bytes / 16 + r->pieces - first, UINT32_MAX)));
    EXL2__TRY(exl2__template_alloc(r, bytes + 1, 8, &memory));
    char *text = (char *)memory, *at = text;
    for (uint32_t i = first; i < r->pieces; i++) {
        const exl2__template_piece *piece = exl2__template_frame_piece(r, i);
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

EXL2__PRIVATE exl2__template_frame *exl2__template_frame_top(exl2__template_run *r)
{
    return &r->frame[r->frames - 1];
}

EXL2__PRIVATE exl2_result exl2__template_frame_push(exl2__template_run *r, exl2__template_loop *loop, bool capture)
{
    if (r->frames == EXL2__COUNT(r->frame)) {
        return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "nesting more than %u loops and blocks is not supported",
                                   EXL2__TEMPLATE_FRAMES_MAX);
    }
    exl2__template_frame frame = { NULL, loop, r->pieces, capture };
    r->frame[r->frames++] = frame;
    return EXL2_OK;
}

/* Restores the variables that the innermost frame has bound. */
EXL2__PRIVATE void exl2__template_frame_unbind(exl2__template_run *r)
{
    exl2__template_frame *frame = exl2__template_frame_top(r);
    while (frame->undo) {
        exl2__template_undo *undo = frame->undo;
        r->variables[undo->name] = undo->before;
        frame->undo = undo->next;
        undo->next = r->free_undo;
        r->free_undo = undo;
    }
}

/* Closes frames until `count` are open above the lowest frame of this macro call. Output that the closed frames
   captured is dropped. */
EXL2__PRIVATE void exl2__template_frame_pop(exl2__template_run *r, uint32_t count)
{
    while (r->frames > r->base + count + 1) {
        exl2__template_frame_unbind(r);
        if (exl2__template_frame_top(r)->capture) {
            r->pieces = exl2__template_frame_top(r)->pieces;
        }
        r->frames--;
    }
}

EXL2__PRIVATE exl2_result exl2__template_frame_bind(exl2__template_run *r, uint32_t name,
                                                    const exl2__template_value *value)
{
    exl2__template_binding *variable = &r->variables[name];
    uint32_t frame = r->frames - 1;
    if (frame > 0 && (variable->frame != frame || !variable->bound)) {
        exl2__template_undo *undo = r->free_undo;
        if (undo) {
            r->free_undo = undo->next;
        } else {
            void *memory = NULL;
            EXL2__TRY(exl2__template_alloc(r, sizeof *undo, 8, &memory));
            undo = (exl2__template_undo *)memory;
        }
        undo->name = name;
        undo->before = *variable;
        undo->next = exl2__template_frame_top(r)->undo;
        exl2__template_frame_top(r)->undo = undo;
    }
    variable->value = *value;
    variable->frame = frame;
    variable->bound = true;
    return EXL2_OK;
}

EXL2__PRIVATE exl2__template_value exl2__template_frame_load(const exl2__template_run *r, uint32_t name)
{
    const exl2__template_name *n = &r->program->names[name];
    exl2__template_value function;
    if (r->variables[name].bound) {
        return r->variables[name].value;
    }
    return exl2__template_function_find(r->program->text + n->at, n->bytes, &function)
               ? function
               : exl2__template_undefined(EXL2__TEMPLATE_NO_VARIABLE, NULL, r->program->text + n->at, n->bytes);
}

EXL2__PRIVATE exl2_result exl2__template_frame_bind_attribute(exl2__template_run *r, const exl2__template_ins *ins,
                                                              const exl2__template_value *value)
{
    exl2__template_value space = exl2__template_frame_load(r, ins->a);
    const exl2__template_name *n = &r->program->names[ins->b];
    exl2__template_value name = exl2__template_text(r->program->text + n->at, n->bytes);
    if (space.kind != EXL2__TEMPLATE_KIND_NAMESPACE) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "cannot assign attribute on non-namespace object");
    }
    return exl2__template_namespace_put(r, space.as.space, &name, value);
}

/* ---- loops ---- */

EXL2__PRIVATE exl2_result exl2__template_frame_for(exl2__template_run *r, const exl2__template_value *over,
                                                   bool filtered)
{
    exl2__template_value items;
    void *memory = NULL;
    EXL2__TRY(exl2__template_step(r, (r->frames - r->base) / 16));
    EXL2__TRY(exl2__template_sequence(r, over, &items));
    EXL2__TRY(exl2__template_alloc(r, sizeof(exl2__template_loop), 8, &memory));
    exl2__template_loop *loop = (exl2__template_loop *)memory;
    memset(loop, 0, sizeof *loop);
    loop->items = items.as.items;
    loop->count = items.count;
    if (filtered) {
        EXL2__TRY(exl2__template_alloc_values(r, items.count, &loop->kept));
    }
    for (uint32_t i = r->base; i < r->frames; i++) {
        loop->depth += r->frame[i].loop != NULL;
    }
    return exl2__template_frame_push(r, loop, false);
}

/* The innermost loop, or undefined. */
EXL2__PRIVATE exl2__template_value exl2__template_frame_loop(const exl2__template_run *r)
{
    for (uint32_t i = r->frames; i-- > r->base;) {
        if (r->frame[i].loop) {
            exl2__template_value v = exl2__template_none();
            v.kind = EXL2__TEMPLATE_KIND_LOOP;
            v.as.loop = r->frame[i].loop;
            return v;
        }
    }
    return exl2__template_undefined(EXL2__TEMPLATE_NO_VARIABLE, NULL, "loop", 4);
}

#endif

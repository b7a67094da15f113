/* template_macro.h: macros: the variables that a call sees, its arguments, its result.
   takes: exl2__template_run at an instruction MACRO, CALL, PARAMETER or RETURN.
   gives: exl2__template_macro_make, call, parameter, return. */
#ifndef EXL2__TEMPLATE_MACRO_H
#define EXL2__TEMPLATE_MACRO_H

#include "template_frame.h"

EXL2__PRIVATE exl2_result exl2__template_macro_make(exl2__template_run *r, const exl2__template_ins *ins,
                                                    exl2__template_value *out)
{
    void *memory = NULL;
    EXL2__TRY(exl2__template_alloc(r, sizeof(exl2__template_macro), 8, &memory));
    exl2__template_macro *macro = (exl2__template_macro *)memory;
    macro->first = ins + (int32_t)ins->a;
    macro->frames = r->frames;
    macro->depth = r->depth;
    macro->serial = r->context[r->depth].serial;
    macro->uses = ins->count;
    macro->name = ins->b;
    *out = exl2__template_none();
    out->kind = EXL2__TEMPLATE_KIND_MACRO;
    out->as.macro = macro;
    return EXL2_OK;
}

/* The variables that are visible at the macro's definition, with their present values: the variables of its context
   without those that frames inside the definition's frame have set. */
EXL2__PRIVATE exl2_result exl2__template_macro_variables(exl2__template_run *r, const exl2__template_macro *macro,
                                                         exl2__template_binding *out)
{
    uint32_t end = macro->depth < r->depth ? r->context[macro->depth + 1].base + 1 : r->frames;
    memcpy(out, r->context[macro->depth].variables, r->program->name_count * sizeof *out);
    for (uint32_t i = end; i > macro->frames; i--) {
        for (const exl2__template_undo *undo = r->frame[i - 1].undo; undo; undo = undo->next) {
            EXL2__TRY(exl2__template_step(r, 1));
            out[undo->name] = undo->before;
        }
    }
    return EXL2_OK;
}

/* Memory for one more nested call. It is allocated when calls first nest that deeply, then reused. */
EXL2__PRIVATE exl2_result exl2__template_macro_context(exl2__template_run *r, exl2__template_context **out)
{
    exl2__template_context *made = &r->context[r->depth + 1];
    void *memory = NULL;
    if (!made->variables) {
        uint64_t stack_bytes = (uint64_t)r->program->stack_max * sizeof *made->stack;
        uint64_t variable_bytes = (uint64_t)r->program->name_count * sizeof *made->variables;
        EXL2__TRY(exl2__template_alloc(r, stack_bytes + variable_bytes, 8, &memory));
        made->stack = (exl2__template_value *)memory;
        made->variables = (exl2__template_binding *)(void *)((uint8_t *)memory + stack_bytes);
    }
    *out = made;
    return EXL2_OK;
}

/* The call's argument for parameter `number`, called `name`; NULL: not given. */
EXL2__PRIVATE const exl2__template_value *exl2__template_macro_given(const exl2__template_context *x, uint32_t number,
                                                                     const char *name, uint32_t bytes)
{
    const exl2__template_value *pairs = x->given + x->count;
    if (number < x->count) {
        return &x->given[number];
    }
    for (uint32_t i = 0; i < x->pairs; i++) {
        const exl2__template_value *key = &pairs[i * 2];
        if (key->count == bytes && memcmp(key->as.text, name, bytes) == 0) {
            return key + 1;
        }
    }
    return NULL;
}

/* Number of the macro's parameter `key`; if there is none or key is NULL, the count of parameters. */
EXL2__PRIVATE uint32_t exl2__template_macro_number(const exl2__template_run *r, const exl2__template_ins *first,
                                                   const exl2__template_value *key)
{
    uint32_t count = 0;
    for (; first->op == EXL2__TEMPLATE_PARAMETER; first += first->a, count++) {
        const exl2__template_name *n = &r->program->names[first->b];
        if (key && key->count == n->bytes && memcmp(r->program->text + n->at, key->as.text, n->bytes) == 0) {
            break;
        }
    }
    return count;
}

/* Binds varargs, kwargs and caller if the body uses them; if not, arguments without a parameter are an error. */
EXL2__PRIVATE exl2_result exl2__template_macro_rest(exl2__template_run *r, const exl2__template_macro *macro,
                                                    const exl2__template_context *x, const exl2__template_value *caller)
{
    const exl2__template_value *pairs = x->given + x->count;
    uint32_t count = exl2__template_macro_number(r, macro->first, NULL), unknown = 0;
    uint32_t extra = x->count > count ? x->count - count : 0;
    exl2__template_entry *entries = NULL;
    exl2__template_value value = exl2__template_items(EXL2__TEMPLATE_KIND_TUPLE, x->given + (x->count - extra), extra);
    if (macro->uses & EXL2__TEMPLATE_USES_VARARGS) {
        exl2__template_value *items = NULL;
        EXL2__TRY(exl2__template_alloc_values(r, extra, &items));
        if (extra) {
            memcpy(items, value.as.items, extra * sizeof *items);
        }
        value.as.items = items;
        exl2__template_frame_set(r, "varargs", &value);
    } else if (extra) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "a macro got %u positional arguments, expected at most %u",
                                   x->count, count);
    }
    EXL2__TRY(exl2__template_alloc_entries(r, x->pairs, &entries));
    for (uint32_t i = 0; i < x->pairs; i++) {
        const exl2__template_value *key = &pairs[i * 2];
        EXL2__TRY(exl2__template_step(r, (size_t)count * (key->count / 16 + 1))); /* this search and the parameters' */
        uint32_t number = exl2__template_macro_number(r, macro->first, key);
        if (number < x->count && number < count) {
            return exl2__template_fail(r, EXL2_ERR_FORMAT, "a macro got multiple values for argument '%.*s'",
                                       (int)key->count, key->as.text);
        }
        if (number == count) {
            EXL2__TRY(exl2__template_entry_put(r, entries, &unknown, key, key + 1));
        }
    }
    if (unknown && !(macro->uses & EXL2__TEMPLATE_USES_KWARGS)) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "a macro has no parameter '%.*s'",
                                   (int)entries->key.count, entries->key.as.text);
    }
    value = exl2__template_none();
    value.kind = EXL2__TEMPLATE_KIND_DICT;
    value.count = unknown;
    value.as.entries = entries;
    if (macro->uses & EXL2__TEMPLATE_USES_KWARGS) {
        exl2__template_frame_set(r, "kwargs", &value);
    }
    value = exl2__template_undefined(EXL2__TEMPLATE_NO_VARIABLE, NULL, "caller", 6);
    if (caller && !(macro->uses & EXL2__TEMPLATE_USES_CALLER)) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "a macro that a call block calls does not use `caller`");
    }
    if (macro->uses & EXL2__TEMPLATE_USES_CALLER) {
        exl2__template_frame_set(r, "caller", caller ? caller : &value);
    }
    return EXL2_OK;
}

/* Calls a function. Fails for a value that cannot be called. */
EXL2__PRIVATE exl2_result exl2__template_macro_call_other(exl2__template_run *r, const exl2__template_ins *ins,
                                                          const exl2__template_value *callee)
{
    exl2__template_given given = { callee + 1, ins->count, ins->a };
    exl2__template_value result;
    if (callee->kind == EXL2__TEMPLATE_KIND_UNDEFINED && ins->b == 0) {
        return exl2__template_fail_undefined(r, callee);
    }
    if (callee->kind == EXL2__TEMPLATE_KIND_UNDEFINED) {
        return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "function '%.*s' is not supported", (int)ins->b,
                                   r->program->text + ins->at);
    }
    if (callee->kind == EXL2__TEMPLATE_KIND_METHOD || callee->kind == EXL2__TEMPLATE_KIND_LOOP || ins->id) {
        return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "calling a %s%s is not supported",
                                   exl2__template_type(callee), ins->id ? " in a call block" : "");
    }
    if (callee->kind != EXL2__TEMPLATE_KIND_FUNCTION && callee->kind != EXL2__TEMPLATE_KIND_JOINER) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "'%s' object is not callable", exl2__template_type(callee));
    }
    EXL2__TRY(exl2__template_function_call(r, callee, &given, &result));
    r->top -= 2 * ins->a + ins->count + 1;
    r->stack[r->top++] = result;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_macro_call(exl2__template_run *r, const exl2__template_ins *ins)
{
    exl2__template_context *now = &r->context[r->depth], *made = NULL;
    const exl2__template_value *caller = ins->id ? &r->stack[r->top - 1] : NULL;
    uint32_t bottom = r->top - ins->id - 2 * ins->a - ins->count - 1;
    const exl2__template_value *callee = &r->stack[bottom];
    if (callee->kind != EXL2__TEMPLATE_KIND_MACRO) {
        return exl2__template_macro_call_other(r, ins, callee);
    }
    const exl2__template_macro *macro = callee->as.macro;
    if (macro->depth > r->depth || macro->serial != r->context[macro->depth].serial) {
        return exl2__template_unsupported(r, "calling a macro after the end of the macro that defines it");
    }
    if (r->depth == EXL2__TEMPLATE_CALLS_MAX) {
        return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "nesting more than %u calls of macros is not supported",
                                   EXL2__TEMPLATE_CALLS_MAX);
    }
    EXL2__TRY(exl2__template_step(r, r->program->name_count));
    EXL2__TRY(exl2__template_macro_context(r, &made));
    EXL2__TRY(exl2__template_macro_variables(r, macro, made->variables));
    now->top = bottom;
    now->base = r->base;
    made->given = callee + 1;
    made->count = ins->count;
    made->pairs = ins->a;
    made->back = ins;
    made->serial = ++r->serial;
    made->base = r->base = r->frames - 1;
    r->depth++;
    r->variables = made->variables;
    r->stack = made->stack;
    r->top = 0;
    r->next = macro->first;
    EXL2__TRY(exl2__template_frame_push(r, NULL, true));
    return exl2__template_macro_rest(r, macro, made, caller);
}

/* Binds a parameter. true: it was given or has no default, so that nothing is left to compute. */
EXL2__PRIVATE bool exl2__template_macro_parameter(exl2__template_run *r, const exl2__template_ins *ins)
{
    const exl2__template_name *n = &r->program->names[ins->b];
    const char *name = r->program->text + n->at;
    const exl2__template_value *given = exl2__template_macro_given(&r->context[r->depth], ins->count, name, n->bytes);
    exl2__template_binding *variable = &r->variables[ins->b];
    variable->value =
        given ? *given : exl2__template_undefined(EXL2__TEMPLATE_NO_VARIABLE, NULL, name, n->bytes);
    variable->frame = r->frames - 1;
    variable->bound = true;
    return given || !ins->id;
}

EXL2__PRIVATE exl2_result exl2__template_macro_return(exl2__template_run *r)
{
    exl2__template_value text;
    EXL2__TRY(exl2__template_frame_gather(r, exl2__template_frame_top(r)->pieces, &text));
    exl2__template_frame_pop(r, 0);
    r->next = r->context[r->depth].back + 1;
    r->depth--;
    const exl2__template_context *x = &r->context[r->depth];
    r->base = x->base;
    r->variables = x->variables;
    r->stack = x->stack;
    r->top = x->top;
    r->stack[r->top++] = text;
    return EXL2_OK;
}

#endif

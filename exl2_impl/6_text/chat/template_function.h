/* template_function.h: calls the functions that Jinja and transformers predefine: range, namespace, dict, cycler,
   joiner, raise_exception, strftime_now. Their names are those of ordinary variables until a template or a
   conversation sets them.
   takes: exl2__template_run; values and pairs of name and value.
   gives: exl2__template_function_call, exl2__template_function_find, exl2__template_function_dict. */
#ifndef EXL2__TEMPLATE_FUNCTION_H
#define EXL2__TEMPLATE_FUNCTION_H

#include "template_call.h"

#define EXL2__TEMPLATE_RANGE_MAX 100000 /* elements; MAX_RANGE of Jinja's sandbox */

/* The predefined function of this name. false: there is none. */
EXL2__PRIVATE bool exl2__template_function_find(const char *name, uint32_t bytes, exl2__template_value *out)
{
    *out = exl2__template_text(name, bytes);
    out->kind = EXL2__TEMPLATE_KIND_FUNCTION;
    return exl2__template_listed("cycler dict joiner lipsum namespace raise_exception range strftime_now", name, bytes);
}

/* The values of a call: `count` by position, then `pairs` of a name and a value. */
typedef struct exl2__template_given {
    const exl2__template_value *values;
    uint32_t count, pairs;
} exl2__template_given;

EXL2__PRIVATE exl2_result exl2__template_function_range(exl2__template_run *r, const exl2__template_operands *in,
                                                        exl2__template_value *out)
{
    const exl2__template_value *const *args = in->args; /* range(stop) or range(start, stop, step) */
    exl2__template_value *items = NULL;
    for (uint32_t i = 0; i < 3; i++) {
        if (args[i] && !exl2__template_is_integer(args[i])) {
            return exl2__template_bad_argument(r, "range", "an integer", args[i]);
        }
    }
    int64_t start = args[1] ? args[0]->as.integer : 0;
    int64_t stop = args[1] ? args[1]->as.integer : args[0]->as.integer;
    int64_t step = args[2] ? args[2]->as.integer : 1;
    if (step == 0) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "range() arg 3 must not be zero");
    }
    uint64_t span = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    bool empty = step > 0 ? stop <= start : start <= stop;
    uint64_t count = empty ? 0 : (span - 1) / stride + 1;
    if (count > EXL2__TEMPLATE_RANGE_MAX) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT,
                                   "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                                   EXL2__TEMPLATE_RANGE_MAX);
    }
    EXL2__TRY(exl2__template_alloc_values(r, count, &items));
    for (uint64_t i = 0; i < count; i++) {
        items[i] = exl2__template_int((int64_t)((uint64_t)start + i * (uint64_t)step));
    }
    *out = exl2__template_items(EXL2__TEMPLATE_KIND_RANGE, items, (uint32_t)count);
    return EXL2_OK;
}

/* The message is the template's text alone. The code is EXL2_ERR_ARG, because templates raise when they do not accept
   the conversation. */
EXL2__PRIVATE exl2_result exl2__template_function_raise(exl2__template_run *r, const exl2__template_operands *in,
                                                        exl2__template_value *out)
{
    (void)out;
    exl2__template_value text;
    EXL2__TRY(exl2__template_string(r, in->args[0], &text));
    if (exl2__template_space_front(text.as.text, text.count) == text.count) {
        return exl2__template_fail(r, EXL2_ERR_ARG, "the template rejects the messages without saying why");
    }
    return exl2__fail(r->c, EXL2_ERR_ARG, "%.*s", (int)text.count, text.as.text);
}

EXL2__PRIVATE exl2_result exl2__template_function_strftime(exl2__template_run *r, const exl2__template_operands *in,
                                                           exl2__template_value *out)
{
    EXL2__TRY(exl2__template_text_argument(r, "strftime_now", in->args[0]));
    return exl2__template_strftime(r, in->args[0], out);
}

/* A dict of a base (NULL: none), which is a dict or has pairs as elements, and of pairs. `room`: its entries. */
EXL2__PRIVATE exl2_result exl2__template_function_dict(exl2__template_run *r, const exl2__template_value *base,
                                                       const exl2__template_value *pairs, uint32_t pair_count,
                                                       uint32_t *room, exl2__template_value *out)
{
    exl2__template_entry *entries = NULL;
    exl2__template_value pair, items = exl2__template_items(EXL2__TEMPLATE_KIND_LIST, NULL, 0);
    bool dict = base && base->kind == EXL2__TEMPLATE_KIND_DICT;
    uint32_t count = 0;
    if (base && !dict) {
        EXL2__TRY(exl2__template_sequence(r, base, &items));
    }
    uint32_t base_count = dict ? base->count : items.count;
    EXL2__TRY(exl2__template_alloc_entries(r, (uint64_t)base_count + pair_count, &entries));
    for (uint32_t i = 0; i < base_count; i++) {
        pair = dict ? exl2__template_items(EXL2__TEMPLATE_KIND_LIST, &base->as.entries[i].key, 2) : items.as.items[i];
        EXL2__TRY(exl2__template_sequence(r, &pair, &pair));
        if (pair.count != 2) {
            return exl2__template_fail(r, EXL2_ERR_FORMAT, "dictionary update sequence element #%u has length %u; "
                                       "2 is required", i, pair.count);
        }
        EXL2__TRY(exl2__template_entry_put(r, entries, &count, &pair.as.items[0], &pair.as.items[1]));
    }
    for (uint32_t i = 0; i < pair_count; i++) {
        EXL2__TRY(exl2__template_entry_put(r, entries, &count, &pairs[i * 2], &pairs[i * 2 + 1]));
    }
    *room = base_count + pair_count;
    *out = exl2__template_none();
    out->kind = EXL2__TEMPLATE_KIND_DICT;
    out->count = count;
    out->as.entries = entries;
    return EXL2_OK;
}

/* namespace(..) */
EXL2__PRIVATE exl2_result exl2__template_function_namespace(exl2__template_run *r, const exl2__template_value *dict,
                                                            uint32_t room, exl2__template_value *out)
{
    void *memory = NULL;
    EXL2__TRY(exl2__template_alloc(r, sizeof(exl2__template_namespace), 8, &memory));
    exl2__template_namespace *space = (exl2__template_namespace *)memory;
    space->entries = (exl2__template_entry *)(uintptr_t)dict->as.entries;
    space->count = dict->count;
    space->room = room;
    *out = exl2__template_none();
    out->kind = EXL2__TEMPLATE_KIND_NAMESPACE;
    out->as.space = space;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_function_mapping(exl2__template_run *r, const exl2__template_given *given,
                                                          bool space, exl2__template_value *out)
{
    const exl2__template_value *pairs = given->values + given->count;
    exl2__template_value dict;
    uint32_t room;
    if (given->count > 1) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "%s expected at most 1 argument, got %u",
                                   space ? "namespace" : "dict", given->count);
    }
    for (uint32_t i = 0; space && i < given->pairs; i++) {
        const exl2__template_value *key = &pairs[i * 2];
        if (key->as.text[0] == '_') {
            return exl2__template_fail(r, EXL2_ERR_FORMAT, "a namespace cannot hold '%.*s'", (int)key->count,
                                       key->as.text);
        }
    }
    EXL2__TRY(exl2__template_function_dict(r, given->count ? given->values : NULL, pairs, given->pairs, &room, &dict));
    *out = dict;
    return space ? exl2__template_function_namespace(r, &dict, room, out) : EXL2_OK;
}

/* cycler(a, b) and joiner(separator) */
EXL2__PRIVATE exl2_result exl2__template_function_loop(exl2__template_run *r, const exl2__template_given *given,
                                                       bool cycler, exl2__template_value *out)
{
    exl2__template_value *items = NULL, separator = exl2__template_text(", ", 2);
    const exl2__template_value *pairs = given->values + given->count;
    bool named = !cycler && given->pairs == 1 && exl2__template_same(pairs->as.text, pairs->count, "sep");
    uint32_t count = cycler ? given->count : 1;
    if (count == 0 || (given->pairs && !named) || (!cycler && given->count + given->pairs > 1)) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, cycler ? "cycler needs values" : "joiner accepts one separator");
    }
    EXL2__TRY(exl2__template_alloc_values(r, count, &items));
    for (uint32_t i = 0; i < count; i++) {
        items[i] = given->count ? given->values[i] : named ? pairs[1] : separator;
    }
    EXL2__TRY(exl2__template_generator(r, items, count, false, out));
    out->kind = cycler ? EXL2__TEMPLATE_KIND_CYCLER : EXL2__TEMPLATE_KIND_JOINER;
    return EXL2_OK;
}

/* Sorts the values of a call by the function's parameters. */
EXL2__PRIVATE exl2_result exl2__template_function_arguments(exl2__template_run *r, const exl2__template_signature *row,
                                                            const exl2__template_given *given,
                                                            const exl2__template_value **args)
{
    const exl2__template_value *pairs = given->values + given->count;
    uint32_t needed = 0;
    bool good = given->count <= exl2__template_parameter_count(row->parameters);
    for (uint32_t i = 0; good && i < given->count; i++) {
        args[i] = &given->values[i];
    }
    for (uint32_t i = 0; good && i < given->pairs; i++) {
        const exl2__template_value *key = &pairs[i * 2];
        uint32_t parameter = exl2__template_parameter_number(row->parameters, key->as.text, key->count);
        good = parameter != UINT32_MAX && !args[parameter];
        args[good ? parameter : 0] = &pairs[i * 2 + 1];
    }
    while (needed < row->mandatory && args[needed]) {
        needed++;
    }
    if (!good || needed < row->mandatory) {
        return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "function '%s' with these arguments is not supported",
                                   row->name);
    }
    return EXL2_OK;
}

/* Calls a value of kind FUNCTION or JOINER. */
EXL2__PRIVATE exl2_result exl2__template_function_call(exl2__template_run *r, const exl2__template_value *callee,
                                                       const exl2__template_given *given, exl2__template_value *out)
{
#define X(name, parameters, mandatory, function, with) { exl2__template_function_##function, with },
    static const exl2__template_function_row rows[] = { EXL2__TEMPLATE_FUNCTIONS(X) };
#undef X
    const exl2__template_value *args[EXL2__TEMPLATE_ARGS_MAX] = { NULL };
    exl2__template_signature row;
    const char *name = callee->as.text;
    uint32_t bytes = callee->count;
    if (callee->kind == EXL2__TEMPLATE_KIND_JOINER) {
        exl2__template_loop *joiner = callee->as.loop;
        *out = joiner->at ? joiner->items[0] : exl2__template_text("", 0);
        joiner->at = 1;
        return EXL2_OK;
    }
    bool space = exl2__template_same(name, bytes, "namespace"), cycler = exl2__template_same(name, bytes, "cycler");
    if (space || exl2__template_same(name, bytes, "dict")) {
        return exl2__template_function_mapping(r, given, space, out);
    }
    if (cycler || exl2__template_same(name, bytes, "joiner")) {
        return exl2__template_function_loop(r, given, cycler, out);
    }
    if (!exl2__template_signature_find(EXL2__TEMPLATE_CALL, name, bytes, &row)) {
        return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "function '%.*s' is not supported", (int)bytes, name);
    }
    EXL2__TRY(exl2__template_function_arguments(r, &row, given, args));
    exl2__template_operands in = { NULL, args, rows[row.id].with };
    return rows[row.id].function(r, &in, out);
}

#endif

/* template_call.h: calls the filters and tests of template_code.h's tables, also by a name that a template computes.
   takes: exl2__template_run, the value on the left of a filter or test, the arguments (NULL: not given).
   gives: exl2__template_filter_call, test_call. */
#ifndef EXL2__TEMPLATE_CALL_H
#define EXL2__TEMPLATE_CALL_H

#include "template_method.h"

#define EXL2__TEMPLATE_SIGNATURE_STEPS 8u /* cost of a search in a table of names */

EXL2__PRIVATE exl2_result exl2__template_filter_call(exl2__template_run *r, uint32_t id, const exl2__template_value *v,
                                                     exl2__template_args args, exl2__template_value *out);
EXL2__PRIVATE exl2_result exl2__template_test_call(exl2__template_run *r, uint32_t id, const exl2__template_value *v,
                                                   exl2__template_args args, bool *out);

/* ---- map, select and their like ---- */

/* The filter or test that the first argument names; `rest` receives the other arguments, which are passed to it.
   row->name NULL: there are no arguments. */
EXL2__PRIVATE exl2_result exl2__template_named(exl2__template_run *r, exl2__template_op op, exl2__template_args args,
                                               const exl2__template_value **rest, exl2__template_signature *row)
{
    uint32_t given = 0;
    row->name = NULL;
    if (!args[0]) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__template_step(r, EXL2__TEMPLATE_SIGNATURE_STEPS));
    if (args[0]->kind != EXL2__TEMPLATE_KIND_TEXT) {
        return exl2__template_unsupported(r, "a filter or test whose name is not a text");
    }
    if (!exl2__template_signature_find(op, args[0]->as.text, args[0]->count, row)) {
        return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "%s '%.*s' is not supported",
                                   op == EXL2__TEMPLATE_TEST ? "test" : "filter", (int)args[0]->count,
                                   args[0]->as.text);
    }
    memset(rest, 0, EXL2__TEMPLATE_ARGS_MAX * sizeof *rest);
    for (uint32_t i = 1; i < EXL2__TEMPLATE_ARGS_MAX && args[i]; i++) {
        rest[given++] = args[i];
    }
    uint32_t room = row->parameters[0] != 0;
    for (const char *c = row->parameters; *c; c++) {
        room += *c == ' ';
    }
    if (given < row->mandatory || given > room) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT,
                                   row->mandatory == room ? "'%s' got %u argument(s), expected %u"
                                                          : "'%s' got %u argument(s), expected %u to %u",
                                   row->name, given, row->mandatory, room);
    }
    return EXL2_OK;
}

/* map(attribute=path, default=fallback): the attribute of each element. */
EXL2__PRIVATE exl2_result exl2__template_map_attribute(exl2__template_run *r, const exl2__template_value *v,
                                                       const exl2__template_value *path,
                                                       const exl2__template_value *fallback, exl2__template_value *out)
{
    exl2__template_value items, *made = NULL;
    EXL2__TRY(exl2__template_sequence(r, v, &items));
    EXL2__TRY(exl2__template_alloc_values(r, items.count, &made));
    for (uint32_t i = 0; i < items.count; i++) {
        EXL2__TRY(exl2__template_path(r, &items.as.items[i], path, fallback, &made[i]));
    }
    return exl2__template_generator(r, made, items.count, v->marked, out);
}

/* map(attribute=..) or map(filter, arguments ..). */
EXL2__PRIVATE exl2_result exl2__template_filter_map(exl2__template_run *r, const exl2__template_operands *in,
                                                    exl2__template_value *out)
{
    const exl2__template_value *v = in->value, *const *args = in->args;
    const exl2__template_value *rest[EXL2__TEMPLATE_ARGS_MAX], *filter[EXL2__TEMPLATE_ARGS_MAX] = { NULL };
    const exl2__template_value *path = args[EXL2__TEMPLATE_MAP_ATTRIBUTE];
    exl2__template_signature row;
    exl2__template_value items, *made = NULL;
    if (!exl2__template_truth(v)) { /* as in Jinja: none, too */
        return exl2__template_generator(r, v, 0, v->marked, out);
    }
    if (!path == !args[EXL2__TEMPLATE_MAP_FILTER]) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "map requires a filter argument");
    }
    if (path) {
        return exl2__template_map_attribute(r, v, path, args[EXL2__TEMPLATE_MAP_DEFAULT], out);
    }
    for (uint32_t i = 0; i < EXL2__TEMPLATE_MAP_ATTRIBUTE; i++) {
        filter[i] = args[i];
    }
    EXL2__TRY(exl2__template_named(r, EXL2__TEMPLATE_FILTER, filter, rest, &row));
    EXL2__TRY(exl2__template_sequence(r, v, &items));
    EXL2__TRY(exl2__template_alloc_values(r, items.count, &made));
    for (uint32_t i = 0; i < items.count; i++) {
        EXL2__TRY(exl2__template_filter_call(r, row.id, &items.as.items[i], rest, &made[i]));
    }
    return exl2__template_generator(r, made, items.count, v->marked, out);
}

typedef enum exl2__template_select_how {
    EXL2__TEMPLATE_SELECT_ATTRIBUTE = 1, /* tests the attribute that the first argument names */
    EXL2__TEMPLATE_SELECT_TRUE = 2       /* keeps the elements that pass; else those that fail */
} exl2__template_select_how;

/* select, reject and their like: keeps elements by a test (none given: truth). */
EXL2__PRIVATE exl2_result exl2__template_filter_select(exl2__template_run *r, const exl2__template_operands *in,
                                                       exl2__template_value *out)
{
    const exl2__template_value *v = in->value, *const *args = in->args;
    bool by_attribute = in->with & EXL2__TEMPLATE_SELECT_ATTRIBUTE, wanted = in->with & EXL2__TEMPLATE_SELECT_TRUE;
    const exl2__template_value *rest[EXL2__TEMPLATE_ARGS_MAX], *own[EXL2__TEMPLATE_ARGS_MAX] = { NULL };
    exl2__template_signature row;
    exl2__template_value items, part, *made = NULL;
    uint32_t count = 0;
    if (!exl2__template_truth(v)) { /* as in Jinja: none, too */
        return exl2__template_generator(r, v, 0, v->marked, out);
    }
    for (uint32_t i = 0; i + by_attribute < EXL2__TEMPLATE_ARGS_MAX; i++) {
        own[i] = args[i + by_attribute];
    }
    EXL2__TRY(exl2__template_named(r, EXL2__TEMPLATE_TEST, own, rest, &row));
    EXL2__TRY(exl2__template_sequence(r, v, &items));
    EXL2__TRY(exl2__template_alloc_values(r, items.count, &made));
    for (uint32_t i = 0; i < items.count; i++) {
        part = items.as.items[i];
        EXL2__TRY(exl2__template_step(r, 1));
        if (by_attribute) {
            EXL2__TRY(exl2__template_path(r, &items.as.items[i], args[0], NULL, &part));
        }
        bool holds = !row.name && exl2__template_truth(&part);
        if (row.name) {
            EXL2__TRY(exl2__template_test_call(r, row.id, &part, rest, &holds));
        }
        if (holds == wanted) {
            made[count++] = items.as.items[i];
        }
    }
    return exl2__template_generator(r, made, count, v->marked, out);
}

/* ---- filters ---- */

EXL2__PRIVATE exl2_result exl2__template_filter_default(exl2__template_run *r, const exl2__template_operands *in,
                                                        exl2__template_value *out)
{
    const exl2__template_value *v = in->value, *fallback = in->args[0], *boolean = in->args[1];
    (void)r;
    bool replaced = v->kind == EXL2__TEMPLATE_KIND_UNDEFINED ||
                    (exl2__template_flag(boolean) && !exl2__template_truth(v));
    *out = !replaced ? *v : fallback ? *fallback : exl2__template_text("", 0);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_filter_end(exl2__template_run *r, const exl2__template_operands *in,
                                                    exl2__template_value *out)
{
    const exl2__template_value *v = in->value;
    bool last = in->with;
    exl2__template_value items;
    if (v->kind == EXL2__TEMPLATE_KIND_GENERATOR && !last) { /* consumes one element */
        exl2__template_loop *rest = v->as.loop;
        *out = rest->at < rest->count ? rest->items[rest->at++]
                                      : exl2__template_undefined(EXL2__TEMPLATE_NO_ELEMENT, v, "", 0);
        return EXL2_OK;
    }
    if (v->kind == EXL2__TEMPLATE_KIND_GENERATOR) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "'generator' object is not reversible");
    }
    EXL2__TRY(exl2__template_sequence(r, v, &items));
    *out = items.count ? items.as.items[last ? items.count - 1 : 0]
                       : exl2__template_undefined(EXL2__TEMPLATE_NO_ELEMENT, v, "", 0);
    if (last && items.count && v->kind == EXL2__TEMPLATE_KIND_TEXT) {
        out->why = v->why; /* Python reverses a text by its index, which keeps a safe text safe */
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_filter_replace(exl2__template_run *r, const exl2__template_operands *in,
                                                        exl2__template_value *out)
{
    const exl2__template_value *search = in->args[0], *by = in->args[1], *count = in->args[2];
    exl2__template_value text, before, after;
    uint64_t limit;
    EXL2__TRY(exl2__template_string(r, in->value, &text));
    EXL2__TRY(exl2__template_string(r, search, &before));
    EXL2__TRY(exl2__template_string(r, by, &after));
    EXL2__TRY(exl2__template_limit(r, "replace", count, &limit));
    return exl2__template_replace(r, &text, &before, &after, limit, out);
}

EXL2__PRIVATE exl2_result exl2__template_filter_tojson(exl2__template_run *r, const exl2__template_operands *in,
                                                       exl2__template_value *out)
{
    const exl2__template_value *ensure_ascii = in->args[0], *indent = in->args[1], *separators = in->args[2];
    const exl2__template_value *sort_keys = in->args[3];
    exl2__template_json_style style = { -1, exl2__template_flag(ensure_ascii), exl2__template_flag(sort_keys),
                                        { 0 }, { 0 } };
    bool indented = indent && indent->kind != EXL2__TEMPLATE_KIND_NONE;
    if (indented) {
        if (!exl2__template_is_integer(indent) || indent->as.integer < 0 || indent->as.integer > 64) {
            return exl2__template_unsupported(r, "tojson with an indent that is not an integer from 0 to 64");
        }
        style.indent = indent->as.integer;
    }
    style.between = exl2__template_text(", ", indented ? 1 : 2);
    style.after_key = exl2__template_text(": ", 2);
    if (separators && separators->kind != EXL2__TEMPLATE_KIND_NONE) {
        const exl2__template_value *pair = separators->as.items;
        if (!exl2__template_is_sequence(separators) || separators->count != 2 ||
            pair[0].kind != EXL2__TEMPLATE_KIND_TEXT || pair[1].kind != EXL2__TEMPLATE_KIND_TEXT) {
            return exl2__template_unsupported(r, "tojson with separators that are not two texts");
        }
        style.between = pair[0];
        style.after_key = pair[1];
    }
    return exl2__template_to_json(r, in->value, &style, out);
}

/* A generator of (key, value) pairs. */
EXL2__PRIVATE exl2_result exl2__template_filter_items(exl2__template_run *r, const exl2__template_operands *in,
                                                      exl2__template_value *out)
{
    const exl2__template_value *v = in->value;
    exl2__template_operands pairs = { v, in->args, EXL2__TEMPLATE_VIEW_ITEMS };
    exl2__template_value view = exl2__template_items(EXL2__TEMPLATE_KIND_LIST, v, 0); /* empty if v is undefined */
    if (v->kind == EXL2__TEMPLATE_KIND_DICT) {
        EXL2__TRY(exl2__template_method_view(r, &pairs, &view));
    } else if (v->kind != EXL2__TEMPLATE_KIND_UNDEFINED) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "Can only get item pairs from a mapping.");
    }
    return exl2__template_generator(r, view.as.items, view.count, v->marked, out);
}

EXL2__PRIVATE exl2_result exl2__template_filter_reverse(exl2__template_run *r, const exl2__template_operands *in,
                                                        exl2__template_value *out)
{
    const exl2__template_value *v = in->value;
    exl2__template_value step = exl2__template_int(-1), items, list;
    if (v->kind == EXL2__TEMPLATE_KIND_TEXT) {
        return exl2__template_slice(r, v, NULL, NULL, &step, out);
    }
    EXL2__TRY(exl2__template_sequence(r, v, &items));
    list = exl2__template_items(EXL2__TEMPLATE_KIND_LIST, items.as.items, items.count);
    EXL2__TRY(exl2__template_slice(r, &list, NULL, NULL, &step, &items));
    return exl2__template_generator(r, items.as.items, items.count, v->marked, out);
}

/* The absolute value. */
EXL2__PRIVATE exl2_result exl2__template_filter_absolute(exl2__template_run *r, const exl2__template_operands *in,
                                                         exl2__template_value *out)
{
    const exl2__template_value *v = in->value;
    bool big = v->kind == EXL2__TEMPLATE_KIND_BIG;
    bool minus = big ? v->as.text[0] == '-' : exl2__template_is_number(v) && exl2__template_as_real(v) < 0;
    return exl2__template_sign(r, minus, v, out);
}

EXL2__PRIVATE exl2_result exl2__template_filter_words(exl2__template_run *r, const exl2__template_operands *in,
                                                      exl2__template_value *out)
{
    exl2__template_value text;
    size_t step;
    int64_t count = 0;
    bool inside = false;
    EXL2__TRY(exl2__template_string(r, in->value, &text));
    EXL2__TRY(exl2__template_step(r, text.count));
    for (size_t at = 0; at < text.count; at += step) {
        uint32_t class = exl2__unicode_class(exl2__template_code_point(text.as.text + at, text.count - at, &step));
        bool word = (class & (EXL2__UNICODE_WORD | EXL2__UNICODE_NUMERAL)) != 0;
        count += word && !inside;
        inside = word;
    }
    *out = exl2__template_int(count);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_filter_dictsort(exl2__template_run *r, const exl2__template_operands *in,
                                                         exl2__template_value *out)
{
    const exl2__template_value *case_sensitive = in->args[0], *by = in->args[1], *reverse = in->args[2];
    exl2__template_operands items = { in->value, in->args, EXL2__TEMPLATE_VIEW_ITEMS };
    bool values = by && by->kind == EXL2__TEMPLATE_KIND_TEXT && exl2__template_same(by->as.text, by->count, "value");
    exl2__template_value pairs, *keys = NULL, index = exl2__template_int(values);
    if (in->value->kind != EXL2__TEMPLATE_KIND_DICT) {
        return exl2__template_bad_argument(r, "dictsort", "a dict", in->value);
    }
    EXL2__TRY(exl2__template_method_view(r, &items, &pairs));
    if (by && !values &&
        !(by->kind == EXL2__TEMPLATE_KIND_TEXT && exl2__template_same(by->as.text, by->count, "key"))) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "You can only sort by either \"key\" or \"value\"");
    }
    return exl2__template_sorted(r, &pairs, &index, NULL, exl2__template_flag(case_sensitive),
                                 exl2__template_flag(reverse), out, &keys);
}

EXL2__PRIVATE exl2_result exl2__template_filter_length(exl2__template_run *r, const exl2__template_operands *in,
                                                       exl2__template_value *out)
{
    return exl2__template_length(r, in->value, out);
}

EXL2__PRIVATE exl2_result exl2__template_filter_join(exl2__template_run *r, const exl2__template_operands *in,
                                                     exl2__template_value *out)
{
    const exl2__template_value *between = in->args[0], *path = in->args[1];
    exl2__template_value parts = *in->value, separator = exl2__template_text("", 0);
    if (between) {
        EXL2__TRY(exl2__template_string(r, between, &separator));
    }
    if (path) {
        EXL2__TRY(exl2__template_map_attribute(r, in->value, path, NULL, &parts));
    }
    return exl2__template_join(r, &parts, &separator, false, out);
}

EXL2__PRIVATE exl2_result exl2__template_filter_list(exl2__template_run *r, const exl2__template_operands *in,
                                                     exl2__template_value *out)
{
    EXL2__TRY(exl2__template_sequence(r, in->value, out));
    out->kind = EXL2__TEMPLATE_KIND_LIST;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_filter_attribute(exl2__template_run *r, const exl2__template_operands *in,
                                                          exl2__template_value *out)
{
    const exl2__template_value *name = in->args[0];
    EXL2__TRY(exl2__template_text_argument(r, "attr", name));
    return exl2__template_attribute(r, in->value, name->as.text, name->count, out);
}

/* float and int */
EXL2__PRIVATE exl2_result exl2__template_filter_number(exl2__template_run *r, const exl2__template_operands *in,
                                                       exl2__template_value *out)
{
    bool real = in->with;
    const exl2__template_value *fallback = in->args[0], *base = in->args[1]; /* float has no base */
    return exl2__template_number(r, in->value, real, fallback, base, out);
}

EXL2__PRIVATE exl2_result exl2__template_filter_round(exl2__template_run *r, const exl2__template_operands *in,
                                                      exl2__template_value *out)
{
    const exl2__template_value *precision = in->args[0], *method = in->args[1];
    return exl2__template_round(r, in->value, precision, method, out);
}

/* ---- filters of the value's text ---- */

/* Where Jinja's filter calls a method of a safe text, the result is safe, too. */
EXL2__PRIVATE void exl2__template_filter_keep_safe(const exl2__template_value *v, exl2__template_value *out)
{
    if (v->kind == EXL2__TEMPLATE_KIND_TEXT) {
        out->why = v->why;
    }
}

EXL2__PRIVATE exl2_result exl2__template_filter_case(exl2__template_run *r, const exl2__template_operands *in,
                                                     exl2__template_value *out)
{
    exl2__template_value text;
    EXL2__TRY(exl2__template_string(r, in->value, &text));
    EXL2__TRY(exl2__template_case(r, &text, (exl2__template_case_kind)in->with, out));
    if (in->with != EXL2__TEMPLATE_CASE_WORDS) {
        exl2__template_filter_keep_safe(in->value, out);
    }
    return EXL2_OK;
}

/* with: safe texts are escaped, too. */
EXL2__PRIVATE exl2_result exl2__template_filter_escape(exl2__template_run *r, const exl2__template_operands *in,
                                                       exl2__template_value *out)
{
    exl2__template_value text;
    EXL2__TRY(exl2__template_string(r, in->value, &text));
    text.why = text.why != 0 && !in->with;
    return exl2__template_escape(r, &text, out);
}

EXL2__PRIVATE exl2_result exl2__template_filter_trim(exl2__template_run *r, const exl2__template_operands *in,
                                                     exl2__template_value *out)
{
    const exl2__template_value *set;
    exl2__template_value text;
    EXL2__TRY(exl2__template_string(r, in->value, &text));
    EXL2__TRY(exl2__template_strip_set(r, in->args[0], &set));
    EXL2__TRY(exl2__template_strip(r, &text, set, EXL2__TEMPLATE_FRONT | EXL2__TEMPLATE_BACK, out));
    exl2__template_filter_keep_safe(in->value, out);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_filter_indent(exl2__template_run *r, const exl2__template_operands *in,
                                                       exl2__template_value *out)
{
    exl2__template_value text;
    EXL2__TRY(exl2__template_string(r, in->value, &text));
    EXL2__TRY(exl2__template_indent(r, &text, in->args, out));
    exl2__template_filter_keep_safe(in->value, out);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_filter_truncate(exl2__template_run *r, const exl2__template_operands *in,
                                                         exl2__template_value *out)
{
    exl2__template_value text;
    EXL2__TRY(exl2__template_string(r, in->value, &text));
    return exl2__template_truncate(r, &text, in->args, out);
}

EXL2__PRIVATE exl2_result exl2__template_filter_center(exl2__template_run *r, const exl2__template_operands *in,
                                                       exl2__template_value *out)
{
    exl2__template_value text, width = in->args[0] ? *in->args[0] : exl2__template_int(80);
    exl2__template_value fill = exl2__template_text(" ", 1);
    EXL2__TRY(exl2__template_string(r, in->value, &text));
    if (!exl2__template_is_integer(&width)) {
        return exl2__template_bad_argument(r, "center", "an integer", &width);
    }
    EXL2__TRY(exl2__template_pad(r, &text, width.as.integer, 'c', &fill, out));
    exl2__template_filter_keep_safe(in->value, out);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_filter_format(exl2__template_run *r, const exl2__template_operands *in,
                                                       exl2__template_value *out)
{
    exl2__template_value text, values[EXL2__TEMPLATE_ARGS_MAX];
    uint32_t count = exl2__template_given_count(in->args);
    EXL2__TRY(exl2__template_string(r, in->value, &text));
    for (uint32_t i = 0; i < count; i++) {
        values[i] = *in->args[i];
    }
    return exl2__template_format(r, &text, values, count, out);
}

/* with: the text becomes safe. */
EXL2__PRIVATE exl2_result exl2__template_filter_string(exl2__template_run *r, const exl2__template_operands *in,
                                                       exl2__template_value *out)
{
    EXL2__TRY(exl2__template_string(r, in->value, out));
    out->why = in->with || out->why != 0;
    return EXL2_OK;
}

/* `id`: row of EXL2__TEMPLATE_FILTERS. */
EXL2__PRIVATE exl2_result exl2__template_filter_call(exl2__template_run *r, uint32_t id, const exl2__template_value *v,
                                                     exl2__template_args args, exl2__template_value *out)
{
#define X(name, parameters, mandatory, function, with) { exl2__template_filter_##function, with },
    static const exl2__template_function_row rows[] = { EXL2__TEMPLATE_FILTERS(X) };
#undef X
    exl2__template_operands in = { v, args, rows[id].with };
    return rows[id].function(r, &in, out);
}

/* ---- tests ---- */

/* v % divisor == wanted */
EXL2__PRIVATE exl2_result exl2__template_test_modulo(exl2__template_run *r, const exl2__template_value *v,
                                                     const exl2__template_value *divisor, int64_t wanted, bool *out)
{
    exl2__template_value rest, number = exl2__template_int(wanted);
    EXL2__TRY(exl2__template_arithmetic(r, EXL2__TEMPLATE_MODULO, v, divisor, &rest));
    return exl2__template_equal(r, &rest, &number, 0, out);
}

/* How a test is computed. `with` is the row's last column. */
typedef enum exl2__template_test_how {
    EXL2__TEMPLATE_TEST_KIND,      /* the value's kind is one of the bits `with` */
    EXL2__TEMPLATE_TEST_COMPARE,   /* value and argument are compared by `with`, an exl2__template_compare */
    EXL2__TEMPLATE_TEST_TRUTH,     /* the value is the boolean `with` */
    EXL2__TEMPLATE_TEST_PARITY,    /* value % 2 is `with` */
    EXL2__TEMPLATE_TEST_DIVISIBLE, /* value % argument is 0 */
    EXL2__TEMPLATE_TEST_CASE,      /* the value's text has upper or lower case only: `with`, see is_kind */
    EXL2__TEMPLATE_TEST_NAME,      /* the value is the name of a filter or test: `with` says which */
    EXL2__TEMPLATE_TEST_SAFE,      /* the value is a safe text */
    EXL2__TEMPLATE_TEST_SAME       /* value and argument are the same object */
} exl2__template_test_how;

#define EXL2__TEMPLATE_BIT(kind) (1u << EXL2__TEMPLATE_KIND_##kind)
#define EXL2__TEMPLATE_SEQUENCES \
    (EXL2__TEMPLATE_BIT(UNDEFINED) | EXL2__TEMPLATE_BIT(TEXT) | EXL2__TEMPLATE_BIT(LIST) | \
     EXL2__TEMPLATE_BIT(TUPLE) | EXL2__TEMPLATE_BIT(RANGE) | EXL2__TEMPLATE_BIT(DICT))
#define EXL2__TEMPLATE_NUMBERS \
    (EXL2__TEMPLATE_BIT(BOOL) | EXL2__TEMPLATE_BIT(INT) | EXL2__TEMPLATE_BIT(BIG) | EXL2__TEMPLATE_BIT(REAL))
#define EXL2__TEMPLATE_CALLABLES \
    (EXL2__TEMPLATE_BIT(UNDEFINED) | EXL2__TEMPLATE_BIT(METHOD) | EXL2__TEMPLATE_BIT(FUNCTION) | \
     EXL2__TEMPLATE_BIT(MACRO) | EXL2__TEMPLATE_BIT(LOOP) | EXL2__TEMPLATE_BIT(JOINER))
#define EXL2__TEMPLATE_ITERABLES \
    (EXL2__TEMPLATE_SEQUENCES | EXL2__TEMPLATE_BIT(VIEW) | EXL2__TEMPLATE_BIT(LOOP) | EXL2__TEMPLATE_BIT(GENERATOR))

/* `id`: row of EXL2__TEMPLATE_TESTS. */
EXL2__PRIVATE exl2_result exl2__template_test_call(exl2__template_run *r, uint32_t id, const exl2__template_value *v,
                                                   exl2__template_args args, bool *out)
{
#define X(name, parameters, mandatory, how, with) { EXL2__TEMPLATE_TEST_##how, with },
    static const struct {
        exl2__template_test_how how;
        uint32_t with;
    } tests[] = { EXL2__TEMPLATE_TESTS(X) };
#undef X
    exl2__template_signature row;
    exl2__template_value text, two = exl2__template_int(2);
    uint32_t with = tests[id].with;
    switch (tests[id].how) {
    case EXL2__TEMPLATE_TEST_KIND:
        *out = with >> v->kind & 1;
        return EXL2_OK;
    case EXL2__TEMPLATE_TEST_COMPARE:
        return exl2__template_comparison(r, (exl2__template_compare)with, v, args[0], out);
    case EXL2__TEMPLATE_TEST_TRUTH:
        *out = v->kind == EXL2__TEMPLATE_KIND_BOOL && v->as.integer == (int64_t)with;
        return EXL2_OK;
    case EXL2__TEMPLATE_TEST_PARITY:
        return exl2__template_test_modulo(r, v, &two, with, out);
    case EXL2__TEMPLATE_TEST_DIVISIBLE:
        return exl2__template_test_modulo(r, v, args[0], 0, out);
    case EXL2__TEMPLATE_TEST_CASE:
        EXL2__TRY(exl2__template_string(r, v, &text));
        return exl2__template_is_kind(r, &text, (char)with, out);
    case EXL2__TEMPLATE_TEST_NAME:
        EXL2__TRY(exl2__template_text_argument(r, "a test of a name", v));
        EXL2__TRY(exl2__template_step(r, EXL2__TEMPLATE_SIGNATURE_STEPS));
        *out = exl2__template_signature_find((exl2__template_op)with, v->as.text, v->count, &row);
        return EXL2_OK;
    case EXL2__TEMPLATE_TEST_SAFE:
        *out = v->kind == EXL2__TEMPLATE_KIND_TEXT && v->why;
        return EXL2_OK;
    case EXL2__TEMPLATE_TEST_SAME: /* only of None and booleans: the identity of other values is up to Python */
        if (v->kind == args[0]->kind && v->kind > EXL2__TEMPLATE_KIND_BOOL) {
            return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "sameas of two values of type %s is not supported",
                                       exl2__template_type(v));
        }
        *out = v->kind == args[0]->kind && v->as.integer == args[0]->as.integer;
        return EXL2_OK;
    }
    return exl2__template_unsupported(r, "this test");
}

#endif

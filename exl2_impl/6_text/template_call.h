/* template_call.h: the filters, tests, methods and functions of template_code.h's tables, at work.
   takes: exl2__template_run, the value in question and its arguments (NULL: left out).
   gives: exl2__template_filter_call, test_call, method_call, function_call.
   owns:  nothing.
   next:  template_frame.h */
#ifndef EXL2__TEMPLATE_CALL_H
#define EXL2__TEMPLATE_CALL_H

#include "template_json.h"

#define EXL2__TEMPLATE_RANGE_MAX 100000 /* as Jinja's sandbox */

typedef const exl2__template_value *const *exl2__template_args; /* [EXL2__TEMPLATE_ARGS_MAX] */

static exl2_result exl2__template_bad_argument(exl2__template_run *r, const char *what, const exl2__template_value *v)
{
    if (v->kind == EXL2__TEMPLATE_KIND_UNDEFINED) {
        return exl2__template_fail_undefined(r, v);
    }
    return exl2__template_fail(r, EXL2_ERR_FORMAT, "%s got a %s", what, exl2__template_type(v));
}

/* A count that is left out, None or negative means all. */
static exl2_result exl2__template_limit(exl2__template_run *r, const char *what, const exl2__template_value *v,
                                        uint64_t *out)
{
    *out = UINT64_MAX;
    if (v && v->kind != EXL2__TEMPLATE_KIND_NONE) {
        if (!exl2__template_is_integer(v)) {
            return exl2__template_bad_argument(r, what, v);
        }
        *out = v->as.integer < 0 ? UINT64_MAX : (uint64_t)v->as.integer;
    }
    return EXL2_OK;
}

/* *out: the characters to strip, or NULL for white space. */
static exl2_result exl2__template_strip_set(exl2__template_run *r, const exl2__template_value *v,
                                            const exl2__template_value **out)
{
    *out = v && v->kind == EXL2__TEMPLATE_KIND_TEXT ? v : NULL;
    return !v || *out || v->kind == EXL2__TEMPLATE_KIND_NONE ? EXL2_OK : exl2__template_bad_argument(r, "strip", v);
}

/* ---- shared by filters and methods ---- */

static exl2_result exl2__template_length(exl2__template_run *r, const exl2__template_value *v,
                                         exl2__template_value *out)
{
    uint32_t count = 0;
    if (v->kind == EXL2__TEMPLATE_KIND_TEXT) {
        EXL2__TRY(exl2__template_text_length(r, v, &count));
    } else if (exl2__template_is_sequence(v) || v->kind == EXL2__TEMPLATE_KIND_DICT) {
        count = v->count;
    } else if (v->kind != EXL2__TEMPLATE_KIND_UNDEFINED) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "object of type '%s' has no len()", exl2__template_type(v));
    }
    *out = exl2__template_int(count);
    return EXL2_OK;
}

/* The elements with a separator between them; `strict`: they must be texts, else they are printed. */
static exl2_result exl2__template_join(exl2__template_run *r, const exl2__template_value *v,
                                       const exl2__template_value *separator, bool strict, exl2__template_value *out)
{
    exl2__template_value items, *texts = NULL;
    EXL2__TRY(exl2__template_sequence(r, v, &items));
    EXL2__TRY(exl2__template_take_values(r, items.count, &texts));
    for (uint32_t i = 0; i < items.count; i++) {
        if (strict && items.as.items[i].kind != EXL2__TEMPLATE_KIND_TEXT) {
            return exl2__template_fail(r, EXL2_ERR_FORMAT, "sequence item %u: expected str instance, %s found", i,
                                       exl2__template_type(&items.as.items[i]));
        }
        EXL2__TRY(exl2__template_string(r, &items.as.items[i], &texts[i]));
    }
    size_t start = r->used;
    for (uint32_t i = 0; i < items.count; i++) {
        if (i) {
            EXL2__TRY(exl2__template_put_copy(r, separator->as.text, separator->count));
        }
        EXL2__TRY(exl2__template_put_copy(r, texts[i].as.text, texts[i].count));
    }
    *out = exl2__template_since(r, start);
    return EXL2_OK;
}

/* ---- filters ---- */

static exl2_result exl2__template_filter_default(const exl2__template_value *v, exl2__template_args args,
                                                 exl2__template_value *out)
{
    bool replaced = v->kind == EXL2__TEMPLATE_KIND_UNDEFINED ||
                    (args[1] && exl2__template_truth(args[1]) && !exl2__template_truth(v));
    *out = !replaced ? *v : args[0] ? *args[0] : exl2__template_text("", 0);
    return EXL2_OK;
}

static exl2_result exl2__template_filter_end(exl2__template_run *r, const exl2__template_value *v, bool last,
                                             exl2__template_value *out)
{
    exl2__template_value items;
    EXL2__TRY(exl2__template_sequence(r, v, &items));
    *out = items.count ? items.as.items[last ? items.count - 1 : 0]
                       : exl2__template_undefined(EXL2__TEMPLATE_NO_ELEMENT, v, "", 0);
    return EXL2_OK;
}

static exl2_result exl2__template_filter_replace(exl2__template_run *r, const exl2__template_value *v,
                                                 exl2__template_args args, exl2__template_value *out)
{
    exl2__template_value text, before, after;
    uint64_t limit;
    EXL2__TRY(exl2__template_string(r, v, &text));
    EXL2__TRY(exl2__template_string(r, args[0], &before));
    EXL2__TRY(exl2__template_string(r, args[1], &after));
    EXL2__TRY(exl2__template_limit(r, "replace", args[2], &limit));
    return exl2__template_replace(r, &text, &before, &after, limit, out);
}

static exl2_result exl2__template_filter_tojson(exl2__template_run *r, const exl2__template_value *v,
                                                exl2__template_args args, exl2__template_value *out)
{
    exl2__template_json_style style = { -1, args[0] && exl2__template_truth(args[0]) };
    if (args[1] && args[1]->kind != EXL2__TEMPLATE_KIND_NONE) {
        if (args[1]->kind != EXL2__TEMPLATE_KIND_INT || args[1]->as.integer < 0 || args[1]->as.integer > 64) {
            return exl2__template_refuse(r, "tojson with this indent");
        }
        style.indent = args[1]->as.integer;
    }
    return exl2__template_to_json(r, v, &style, out);
}

static exl2_result exl2__template_filter_call(exl2__template_run *r, exl2__template_filter id,
                                              const exl2__template_value *v, exl2__template_args args,
                                              exl2__template_value *out)
{
    exl2__template_value text, separator = exl2__template_text("", 0);
    const exl2__template_value *set;
    switch (id) {
    case EXL2__TEMPLATE_FILTER_COUNT:
    case EXL2__TEMPLATE_FILTER_LENGTH:
        return exl2__template_length(r, v, out);
    case EXL2__TEMPLATE_FILTER_D:
    case EXL2__TEMPLATE_FILTER_DEFAULT:
        return exl2__template_filter_default(v, args, out);
    case EXL2__TEMPLATE_FILTER_FIRST:
    case EXL2__TEMPLATE_FILTER_LAST:
        return exl2__template_filter_end(r, v, id == EXL2__TEMPLATE_FILTER_LAST, out);
    case EXL2__TEMPLATE_FILTER_JOIN:
        if (args[0]) {
            EXL2__TRY(exl2__template_string(r, args[0], &separator));
        }
        return exl2__template_join(r, v, &separator, false, out);
    case EXL2__TEMPLATE_FILTER_LIST:
        EXL2__TRY(exl2__template_sequence(r, v, out));
        out->kind = EXL2__TEMPLATE_KIND_LIST;
        return EXL2_OK;
    case EXL2__TEMPLATE_FILTER_REPLACE:
        return exl2__template_filter_replace(r, v, args, out);
    case EXL2__TEMPLATE_FILTER_STRING:
        return exl2__template_string(r, v, out);
    case EXL2__TEMPLATE_FILTER_TOJSON:
        return exl2__template_filter_tojson(r, v, args, out);
    case EXL2__TEMPLATE_FILTER_TRIM:
        EXL2__TRY(exl2__template_strip_set(r, args[0], &set));
        EXL2__TRY(exl2__template_string(r, v, &text));
        return exl2__template_strip(r, &text, set, EXL2__TEMPLATE_FRONT | EXL2__TEMPLATE_BACK, out);
    }
    return exl2__template_refuse(r, "this filter");
}

/* ---- tests ---- */

/* v % divisor == wanted */
static exl2_result exl2__template_test_modulo(exl2__template_run *r, const exl2__template_value *v,
                                              const exl2__template_value *divisor, int64_t wanted, bool *out)
{
    exl2__template_value rest, number = exl2__template_int(wanted);
    EXL2__TRY(exl2__template_arithmetic(r, EXL2__TEMPLATE_MODULO, v, divisor, &rest));
    return exl2__template_equal(r, &rest, &number, 0, out);
}

static exl2_result exl2__template_test_call(exl2__template_run *r, exl2__template_test id,
                                            const exl2__template_value *v, exl2__template_args args, bool *out)
{
    exl2__template_value two = exl2__template_int(2);
    bool loop = v->kind == EXL2__TEMPLATE_KIND_LOOP,
         listed = exl2__template_is_sequence(v) || v->kind == EXL2__TEMPLATE_KIND_DICT ||
                  v->kind == EXL2__TEMPLATE_KIND_TEXT || v->kind == EXL2__TEMPLATE_KIND_UNDEFINED;
    switch (id) {
    case EXL2__TEMPLATE_TEST_BOOLEAN:
        *out = v->kind == EXL2__TEMPLATE_KIND_BOOL;
        return EXL2_OK;
    case EXL2__TEMPLATE_TEST_DEFINED:
    case EXL2__TEMPLATE_TEST_UNDEFINED:
        *out = (v->kind == EXL2__TEMPLATE_KIND_UNDEFINED) == (id == EXL2__TEMPLATE_TEST_UNDEFINED);
        return EXL2_OK;
    case EXL2__TEMPLATE_TEST_DIVISIBLEBY:
        return exl2__template_test_modulo(r, v, args[0], 0, out);
    case EXL2__TEMPLATE_TEST_EQ:
    case EXL2__TEMPLATE_TEST_EQUALTO:
        return exl2__template_comparison(r, EXL2__TEMPLATE_EQ, v, args[0], out);
    case EXL2__TEMPLATE_TEST_EVEN:
    case EXL2__TEMPLATE_TEST_ODD:
        return exl2__template_test_modulo(r, v, &two, id == EXL2__TEMPLATE_TEST_ODD, out);
    case EXL2__TEMPLATE_TEST_FALSE:
    case EXL2__TEMPLATE_TEST_TRUE:
        *out = v->kind == EXL2__TEMPLATE_KIND_BOOL && v->as.integer == (id == EXL2__TEMPLATE_TEST_TRUE);
        return EXL2_OK;
    case EXL2__TEMPLATE_TEST_FLOAT:
        *out = v->kind == EXL2__TEMPLATE_KIND_REAL;
        return EXL2_OK;
    case EXL2__TEMPLATE_TEST_IN:
        return exl2__template_contains(r, v, args[0], out);
    case EXL2__TEMPLATE_TEST_INTEGER:
        *out = v->kind == EXL2__TEMPLATE_KIND_INT;
        return EXL2_OK;
    case EXL2__TEMPLATE_TEST_ITERABLE:
        *out = listed || loop;
        return EXL2_OK;
    case EXL2__TEMPLATE_TEST_MAPPING:
        *out = v->kind == EXL2__TEMPLATE_KIND_DICT;
        return EXL2_OK;
    case EXL2__TEMPLATE_TEST_NE:
        return exl2__template_comparison(r, EXL2__TEMPLATE_NE, v, args[0], out);
    case EXL2__TEMPLATE_TEST_NONE:
        *out = v->kind == EXL2__TEMPLATE_KIND_NONE;
        return EXL2_OK;
    case EXL2__TEMPLATE_TEST_NUMBER:
        *out = exl2__template_is_number(v);
        return EXL2_OK;
    case EXL2__TEMPLATE_TEST_SEQUENCE:
        *out = listed && v->kind != EXL2__TEMPLATE_KIND_VIEW;
        return EXL2_OK;
    case EXL2__TEMPLATE_TEST_STRING:
        *out = v->kind == EXL2__TEMPLATE_KIND_TEXT;
        return EXL2_OK;
    }
    return exl2__template_refuse(r, "this test");
}

/* ---- methods ---- */

static exl2_result exl2__template_text_argument(exl2__template_run *r, const char *what, const exl2__template_value *v)
{
    return v->kind == EXL2__TEMPLATE_KIND_TEXT ? EXL2_OK : exl2__template_bad_argument(r, what, v);
}

/* startswith and endswith: one text, or a tuple of which one must fit. */
static exl2_result exl2__template_method_affix(exl2__template_run *r, const exl2__template_value *v,
                                               const exl2__template_value *affix, bool end, exl2__template_value *out)
{
    const exl2__template_value *texts = affix->kind == EXL2__TEMPLATE_KIND_TUPLE ? affix->as.items : affix;
    uint32_t count = affix->kind == EXL2__TEMPLATE_KIND_TUPLE ? affix->count : 1;
    bool found = false;
    for (uint32_t i = 0; i < count && !found; i++) {
        EXL2__TRY(exl2__template_text_argument(r, end ? "endswith" : "startswith", &texts[i]));
        EXL2__TRY(exl2__template_step(r, texts[i].count / 16 + 1));
        const char *at = v->as.text + (end ? v->count - texts[i].count : 0);
        found =
            texts[i].count <= v->count && (texts[i].count == 0 || memcmp(at, texts[i].as.text, texts[i].count) == 0);
    }
    *out = exl2__template_bool(found);
    return EXL2_OK;
}

static exl2_result exl2__template_method_text(exl2__template_run *r, exl2__template_method id,
                                              const exl2__template_value *v, exl2__template_args args,
                                              exl2__template_value *out)
{
    const exl2__template_value *set;
    uint64_t limit;
    switch (id) {
    case EXL2__TEMPLATE_METHOD_STRIP:
    case EXL2__TEMPLATE_METHOD_LSTRIP:
    case EXL2__TEMPLATE_METHOD_RSTRIP:
        EXL2__TRY(exl2__template_strip_set(r, args[0], &set));
        return exl2__template_strip(r, v, set, (id != EXL2__TEMPLATE_METHOD_RSTRIP ? EXL2__TEMPLATE_FRONT : 0) |
                                               (id != EXL2__TEMPLATE_METHOD_LSTRIP ? EXL2__TEMPLATE_BACK : 0), out);
    case EXL2__TEMPLATE_METHOD_STARTSWITH:
    case EXL2__TEMPLATE_METHOD_ENDSWITH:
        return exl2__template_method_affix(r, v, args[0], id == EXL2__TEMPLATE_METHOD_ENDSWITH, out);
    case EXL2__TEMPLATE_METHOD_SPLIT:
        set = args[0] && args[0]->kind != EXL2__TEMPLATE_KIND_NONE ? args[0] : NULL;
        if (set) {
            EXL2__TRY(exl2__template_text_argument(r, "split", set));
        }
        EXL2__TRY(exl2__template_limit(r, "split", args[1], &limit));
        return exl2__template_split(r, v, set, limit, out);
    case EXL2__TEMPLATE_METHOD_REPLACE:
        EXL2__TRY(exl2__template_text_argument(r, "replace", args[0]));
        EXL2__TRY(exl2__template_text_argument(r, "replace", args[1]));
        EXL2__TRY(exl2__template_limit(r, "replace", args[2], &limit));
        return exl2__template_replace(r, v, args[0], args[1], limit, out);
    default:
        return exl2__template_join(r, args[0], v, true, out);
    }
}

static exl2_result exl2__template_method_dict(exl2__template_run *r, exl2__template_method id,
                                              const exl2__template_value *v, exl2__template_args args,
                                              exl2__template_value *out)
{
    exl2__template_value *items = NULL, *pairs = NULL;
    if (id == EXL2__TEMPLATE_METHOD_GET) {
        const exl2__template_entry *entry;
        EXL2__TRY(exl2__template_check_key(r, args[0], 0));
        EXL2__TRY(exl2__template_entry_find(r, v->as.entries, v->count, args[0], &entry));
        *out = entry ? entry->value : args[1] ? *args[1] : exl2__template_none();
        return EXL2_OK;
    }
    EXL2__TRY(exl2__template_take_values(r, v->count, &items));
    if (id == EXL2__TEMPLATE_METHOD_ITEMS) {
        EXL2__TRY(exl2__template_take_values(r, (uint64_t)v->count * 2, &pairs));
    }
    for (uint32_t i = 0; i < v->count; i++) {
        const exl2__template_entry *e = &v->as.entries[i];
        if (id == EXL2__TEMPLATE_METHOD_ITEMS) {
            pairs[i * 2] = e->key;
            pairs[i * 2 + 1] = e->value;
            items[i] = exl2__template_items(EXL2__TEMPLATE_KIND_TUPLE, pairs + i * 2, 2);
            items[i].marked = v->marked;
        } else {
            items[i] = id == EXL2__TEMPLATE_METHOD_KEYS ? e->key : e->value;
        }
    }
    *out = exl2__template_items(EXL2__TEMPLATE_KIND_VIEW, items, v->count);
    out->marked = v->marked;
    return EXL2_OK;
}

static exl2_result exl2__template_method_call(exl2__template_run *r, exl2__template_method id,
                                              const exl2__template_value *v, exl2__template_args args,
                                              exl2__template_value *out)
{
#define X(id, name, parameters, mandatory) name,
    static const char *const names[] = { EXL2__TEMPLATE_METHODS(X) };
#undef X
    exl2__template_value name = exl2__template_text(names[id], strlen(names[id]));
    bool known = exl2__template_listed(exl2__template_attributes(v), names[id], name.count);
    if (known && v->kind == EXL2__TEMPLATE_KIND_TEXT) {
        return exl2__template_method_text(r, id, v, args, out);
    }
    if (known && v->kind == EXL2__TEMPLATE_KIND_DICT) {
        return exl2__template_method_dict(r, id, v, args, out);
    }
    EXL2__TRY(exl2__template_attribute(r, v, name.as.text, name.count, out));
    if (out->kind == EXL2__TEMPLATE_KIND_UNDEFINED) {
        return exl2__template_fail_undefined(r, out);
    }
    return exl2__template_fail(r, EXL2_ERR_FORMAT, "'%s' object is not callable", exl2__template_type(out));
}

/* ---- functions ---- */

static exl2_result exl2__template_function_range(exl2__template_run *r, exl2__template_args args,
                                                 exl2__template_value *out)
{
    int64_t bounds[3] = { 0, 0, 1 }; /* start, stop, step */
    exl2__template_value *items = NULL;
    for (uint32_t i = 0; i < 3; i++) {
        if (args[i] && !exl2__template_is_integer(args[i])) {
            return exl2__template_bad_argument(r, "range", args[i]);
        }
        bounds[i] = args[i] ? args[i]->as.integer : bounds[i];
    }
    if (!args[1]) {
        bounds[1] = bounds[0];
        bounds[0] = 0;
    }
    if (bounds[2] == 0) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "range() arg 3 must not be zero");
    }
    uint64_t span =
        bounds[2] > 0 ? (uint64_t)bounds[1] - (uint64_t)bounds[0] : (uint64_t)bounds[0] - (uint64_t)bounds[1];
    uint64_t pace = bounds[2] > 0 ? (uint64_t)bounds[2] : 0 - (uint64_t)bounds[2];
    bool empty = bounds[2] > 0 ? bounds[1] <= bounds[0] : bounds[0] <= bounds[1];
    uint64_t count = empty ? 0 : (span - 1) / pace + 1;
    if (count > EXL2__TEMPLATE_RANGE_MAX) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT,
                                   "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                                   EXL2__TEMPLATE_RANGE_MAX);
    }
    EXL2__TRY(exl2__template_take_values(r, count, &items));
    for (uint64_t i = 0; i < count; i++) {
        items[i] = exl2__template_int((int64_t)((uint64_t)bounds[0] + i * (uint64_t)bounds[2]));
    }
    *out = exl2__template_items(EXL2__TEMPLATE_KIND_RANGE, items, (uint32_t)count);
    return EXL2_OK;
}

/* The template's own words are the whole sentence; it is the conversation that they find fault with. */
static exl2_result exl2__template_function_raise(exl2__template_run *r, const exl2__template_value *message)
{
    exl2__template_value text;
    EXL2__TRY(exl2__template_string(r, message, &text));
    return exl2__fail(r->c, EXL2_ERR_ARG, "%.*s", (int)text.count, text.as.text);
}

static exl2_result exl2__template_function_call(exl2__template_run *r, exl2__template_function id,
                                                exl2__template_args args, exl2__template_value *out)
{
    return id == EXL2__TEMPLATE_FUNCTION_RANGE ? exl2__template_function_range(r, args, out)
                                               : exl2__template_function_raise(r, args[0]);
}

#endif

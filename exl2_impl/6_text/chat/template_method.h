/* template_method.h: the methods of texts, dicts, lists and `loop`, and functions that they share with filters.
   takes: exl2__template_run, the object, the arguments (NULL: not given).
   gives: exl2__template_method_call, exl2__template_method_view, exl2__template_length, join, strip_set, limit. */
#ifndef EXL2__TEMPLATE_METHOD_H
#define EXL2__TEMPLATE_METHOD_H

#include "template_list.h"

EXL2__PRIVATE exl2_result exl2__template_bad_argument(exl2__template_run *r, const char *what, const char *expected,
                                                      const exl2__template_value *v)
{
    if (v->kind == EXL2__TEMPLATE_KIND_UNDEFINED) {
        return exl2__template_fail_undefined(r, v);
    }
    return exl2__template_fail(r, EXL2_ERR_FORMAT, "%s expected %s, got a value of type %s", what, expected,
                               exl2__template_type(v));
}

/* An optional count: not given, None or negative means no limit. */
EXL2__PRIVATE exl2_result exl2__template_limit(exl2__template_run *r, const char *what, const exl2__template_value *v,
                                               uint64_t *out)
{
    *out = UINT64_MAX;
    if (v && v->kind != EXL2__TEMPLATE_KIND_NONE) {
        if (!exl2__template_is_integer(v)) {
            return exl2__template_bad_argument(r, what, "an integer", v);
        }
        *out = v->as.integer < 0 ? UINT64_MAX : (uint64_t)v->as.integer;
    }
    return EXL2_OK;
}

/* *out: the characters to strip, or NULL for white space. */
EXL2__PRIVATE exl2_result exl2__template_strip_set(exl2__template_run *r, const exl2__template_value *v,
                                                   const exl2__template_value **out)
{
    *out = v && v->kind == EXL2__TEMPLATE_KIND_TEXT ? v : NULL;
    bool good = !v || *out || v->kind == EXL2__TEMPLATE_KIND_NONE;
    return good ? EXL2_OK : exl2__template_bad_argument(r, "strip", "a text", v);
}

/* ---- shared by filters and methods ---- */

EXL2__PRIVATE exl2_result exl2__template_length(exl2__template_run *r, const exl2__template_value *v,
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

/* Joins the elements with a separator. strict: they must be texts; otherwise they are converted to text. */
EXL2__PRIVATE exl2_result exl2__template_join(exl2__template_run *r, const exl2__template_value *v,
                                              const exl2__template_value *separator, bool strict,
                                              exl2__template_value *out)
{
    exl2__template_value items, *texts = NULL;
    EXL2__TRY(exl2__template_sequence(r, v, &items));
    EXL2__TRY(exl2__template_alloc_values(r, items.count, &texts));
    for (uint32_t i = 0; i < items.count; i++) {
        if (strict && !separator->why && items.as.items[i].kind != EXL2__TEMPLATE_KIND_TEXT) {
            return exl2__template_fail(r, EXL2_ERR_FORMAT, "sequence item %u: expected str instance, %s found", i,
                                       exl2__template_type(&items.as.items[i]));
        }
        EXL2__TRY(exl2__template_string(r, &items.as.items[i], &texts[i]));
        if (strict && separator->why) { /* as Markup.join */
            exl2__template_value text = texts[i];
            EXL2__TRY(exl2__template_escape(r, &text, &texts[i]));
        }
    }
    size_t start = r->used;
    for (uint32_t i = 0; i < items.count; i++) {
        if (i) {
            EXL2__TRY(exl2__template_put_copy(r, separator->as.text, separator->count));
        }
        EXL2__TRY(exl2__template_put_copy(r, texts[i].as.text, texts[i].count));
    }
    *out = exl2__template_written(r, start);
    return EXL2_OK;
}

/* ---- texts ---- */

EXL2__PRIVATE exl2_result exl2__template_text_argument(exl2__template_run *r, const char *what,
                                                       const exl2__template_value *v)
{
    return v->kind == EXL2__TEMPLATE_KIND_TEXT ? EXL2_OK : exl2__template_bad_argument(r, what, "a text", v);
}

/* Does the text begin (`end`: end) with `affix`, which is a text, or a tuple of texts of which one must match? */
EXL2__PRIVATE exl2_result exl2__template_has_affix(exl2__template_run *r, const exl2__template_value *v,
                                                   const exl2__template_value *affix, bool end, bool *out)
{
    const exl2__template_value *texts = affix->kind == EXL2__TEMPLATE_KIND_TUPLE ? affix->as.items : affix;
    uint32_t count = affix->kind == EXL2__TEMPLATE_KIND_TUPLE ? affix->count : 1;
    bool found = false;
    for (uint32_t i = 0; i < count && !found; i++) {
        EXL2__TRY(exl2__template_text_argument(r, end ? "endswith" : "startswith", &texts[i]));
        EXL2__TRY(exl2__template_step(r, texts[i].count / 16 + 1));
        found = texts[i].count <= v->count && (texts[i].count == 0 ||
                                               memcmp(v->as.text + (end ? v->count - texts[i].count : 0),
                                                      texts[i].as.text, texts[i].count) == 0);
    }
    *out = found;
    return EXL2_OK;
}

/* *out: offset of the first or last occurrence of `part`, or v->count + 1. *places: number of occurrences without
   overlap. */
EXL2__PRIVATE exl2_result exl2__template_occurrences(exl2__template_run *r, const exl2__template_value *v,
                                                     const exl2__template_value *part, bool last, size_t *out,
                                                     uint32_t *places)
{
    size_t at = 0, free_at = 0;
    *out = (size_t)v->count + 1;
    *places = 0;
    if (part->count == 0) {
        *out = last ? v->count : 0;
        return EXL2_OK;
    }
    while (at <= v->count) {
        EXL2__TRY(exl2__template_find(r, v, part, at, &at));
        if (at > v->count) {
            break;
        }
        *out = *places == 0 || last ? at : *out;
        *places += at >= free_at;
        free_at = at >= free_at ? at + part->count : free_at;
        at++;
    }
    return EXL2_OK;
}

/* *window: the part v[start:end] of a text, in which a method searches; args[1] and args[2] are its bounds. *before:
   code points before it; UINT32_MAX: it begins after the end of the text, where nothing is found, not even "". */
EXL2__PRIVATE exl2_result exl2__template_method_window(exl2__template_run *r, const exl2__template_value *v,
                                                       exl2__template_args args, exl2__template_value *window,
                                                       uint32_t *before)
{
    exl2__template_value front = *v;
    uint32_t count = 0;
    *window = *v;
    *before = 0;
    if (!args[1]) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__template_slice(r, v, args[1], args[2], NULL, window));
    front.count = (uint32_t)(window->as.text - v->as.text);
    EXL2__TRY(exl2__template_text_length(r, &front, before));
    EXL2__TRY(exl2__template_text_length(r, v, &count));
    bool beyond = exl2__template_is_integer(args[1]) && args[1]->as.integer > (int64_t)count;
    *before = beyond ? UINT32_MAX : *before;
    return EXL2_OK;
}

typedef enum exl2__template_find_how {
    EXL2__TEMPLATE_FIND_LAST = 1, /* the last occurrence, else the first */
    EXL2__TEMPLATE_FIND_MUST = 2, /* fails if there is none */
    EXL2__TEMPLATE_FIND_COUNT = 4 /* counts the occurrences */
} exl2__template_find_how;

/* index and count of a list. */
EXL2__PRIVATE exl2_result exl2__template_find_element(exl2__template_run *r, const exl2__template_operands *in,
                                                      exl2__template_value *out)
{
    const exl2__template_value *v = in->value;
    bool counts = in->with == EXL2__TEMPLATE_FIND_COUNT;
    uint32_t count = 0;
    if (in->args[1]) {
        return exl2__template_unsupported(r, "searching only a part of a list");
    }
    for (uint32_t i = 0; i < v->count; i++) {
        bool same;
        EXL2__TRY(exl2__template_equal(r, &v->as.items[i], in->args[0], 0, &same));
        if (same && !counts) {
            *out = exl2__template_int(i);
            return EXL2_OK;
        }
        count += same;
    }
    *out = exl2__template_int(count);
    return counts ? EXL2_OK : exl2__template_fail(r, EXL2_ERR_FORMAT, "the value is not in the list");
}

/* find, rfind, index, rindex (all in code points) and count. */
EXL2__PRIVATE exl2_result exl2__template_method_find(exl2__template_run *r, const exl2__template_operands *in,
                                                     exl2__template_value *out)
{
    const exl2__template_value *part = in->args[0];
    bool last = in->with & EXL2__TEMPLATE_FIND_LAST, must = in->with & EXL2__TEMPLATE_FIND_MUST;
    size_t at;
    uint32_t places, before, skipped; /* skipped: code points before the window */
    exl2__template_value v, front;
    if (in->value->kind != EXL2__TEMPLATE_KIND_TEXT) {
        return exl2__template_find_element(r, in, out);
    }
    EXL2__TRY(exl2__template_method_window(r, in->value, in->args, &v, &skipped));
    EXL2__TRY(exl2__template_text_argument(r, "find", part));
    EXL2__TRY(exl2__template_occurrences(r, &v, part, last, &at, &places));
    at = skipped == UINT32_MAX ? (size_t)v.count + 1 : at;
    front = v;
    front.count = at <= v.count ? (uint32_t)at : v.count;
    EXL2__TRY(exl2__template_text_length(r, &front, &before));
    if (in->with & EXL2__TEMPLATE_FIND_COUNT) {
        EXL2__TRY(exl2__template_text_length(r, &v, &before));
        *out = exl2__template_int(skipped == UINT32_MAX ? 0 : part->count ? places : (int64_t)before + 1);
        return EXL2_OK;
    }
    if (must && at > v.count) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "substring not found");
    }
    *out = exl2__template_int(at <= v.count ? (int64_t)before + skipped : -1);
    return EXL2_OK;
}

/* (before, separator, after); not found: (text, '', '') or, if `last`, ('', '', text). */
EXL2__PRIVATE exl2_result exl2__template_method_partition(exl2__template_run *r, const exl2__template_operands *in,
                                                          exl2__template_value *out)
{
    const exl2__template_value *v = in->value, *separator = in->args[0];
    bool last = in->with;
    exl2__template_value *parts = NULL;
    size_t at;
    uint32_t places;
    EXL2__TRY(exl2__template_text_argument(r, "partition", separator));
    if (separator->count == 0) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "empty separator");
    }
    EXL2__TRY(exl2__template_occurrences(r, v, separator, last, &at, &places));
    EXL2__TRY(exl2__template_alloc_values(r, 3, &parts));
    bool found = at <= v->count;
    size_t end = found ? at + separator->count : v->count;
    at = found ? at : last ? 0 : v->count;
    end = found || !last ? end : 0;
    parts[0] = exl2__template_text(v->as.text, at);
    parts[1] = exl2__template_text(v->as.text + at, end - at);
    parts[2] = exl2__template_text(v->as.text + end, v->count - end);
    *out = exl2__template_items(EXL2__TEMPLATE_KIND_TUPLE, parts, 3);
    out->marked = v->marked;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_method_split(exl2__template_run *r, const exl2__template_operands *in,
                                                      exl2__template_value *out)
{
    const exl2__template_value *v = in->value, *separator = in->args[0], *count = in->args[1];
    bool last = in->with;
    uint64_t limit;
    separator = separator && separator->kind != EXL2__TEMPLATE_KIND_NONE ? separator : NULL;
    if (separator) {
        EXL2__TRY(exl2__template_text_argument(r, "split", separator));
    }
    EXL2__TRY(exl2__template_limit(r, "split", count, &limit));
    EXL2__TRY(exl2__template_split(r, v, separator, last ? UINT64_MAX : limit, out));
    if (last && out->count > 0 && limit < out->count - 1) { /* the first pieces stay together */
        exl2__template_value *kept = NULL;
        uint32_t joined = out->count - 1 - (uint32_t)limit;
        EXL2__TRY(exl2__template_alloc_values(r, limit + 1, &kept));
        memcpy(kept, out->as.items + joined, (size_t)(limit + 1) * sizeof *kept);
        kept[0].count = (uint32_t)(kept[0].as.text + kept[0].count - v->as.text);
        kept[0].as.text = v->as.text;
        out->as.items = kept;
        out->count = (uint32_t)limit + 1;
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_method_lines(exl2__template_run *r, const exl2__template_operands *in,
                                                      exl2__template_value *out)
{
    const exl2__template_value *v = in->value;
    bool keep_ends = exl2__template_flag(in->args[0]);
    exl2__template_value *lines = NULL;
    uint32_t count = 0;
    size_t broken;
    EXL2__TRY(exl2__template_step(r, (size_t)v->count * 2));
    for (size_t at = 0; at < v->count; count++) {
        exl2__template_line(v, &at, &broken);
    }
    EXL2__TRY(exl2__template_alloc_values(r, count, &lines));
    count = 0;
    for (size_t at = 0; at < v->count; count++) {
        lines[count] = exl2__template_line(v, &at, &broken);
        lines[count].count += keep_ends ? (uint32_t)broken : 0;
    }
    *out = exl2__template_items(EXL2__TEMPLATE_KIND_LIST, lines, count);
    out->marked = v->marked;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_method_pad(exl2__template_run *r, const exl2__template_operands *in,
                                                    exl2__template_value *out)
{
    const exl2__template_value *v = in->value, *width = in->args[0], *wanted = in->args[1];
    bool zeros = in->with == '0';
    exl2__template_value fill = exl2__template_text(zeros ? "0" : " ", 1);
    if (!exl2__template_is_integer(width)) {
        return exl2__template_bad_argument(r, "padding", "an integer", width);
    }
    if (wanted) {
        EXL2__TRY(exl2__template_text_argument(r, "padding", wanted));
        fill = *wanted;
    }
    uint32_t sign = zeros && v->count && (v->as.text[0] == '-' || v->as.text[0] == '+');
    if (sign) { /* the zeros follow the sign */
        size_t start = r->used;
        exl2__template_value number = exl2__template_text(v->as.text + 1, v->count - 1);
        EXL2__TRY(exl2__template_put_copy(r, v->as.text, 1));
        EXL2__TRY(exl2__template_pad(r, &number, width->as.integer - (width->as.integer > 0), 'r', &fill, out));
        *out = exl2__template_written(r, start);
        return EXL2_OK;
    }
    return exl2__template_pad(r, v, width->as.integer, zeros ? 'r' : (char)in->with, &fill, out);
}

EXL2__PRIVATE exl2_result exl2__template_method_strip(exl2__template_run *r, const exl2__template_operands *in,
                                                      exl2__template_value *out)
{
    const exl2__template_value *set;
    EXL2__TRY(exl2__template_strip_set(r, in->args[0], &set));
    return exl2__template_strip(r, in->value, set, in->with, out);
}

/* startswith and endswith */
EXL2__PRIVATE exl2_result exl2__template_method_affix(exl2__template_run *r, const exl2__template_operands *in,
                                                      exl2__template_value *out)
{
    exl2__template_value window;
    uint32_t before;
    bool found;
    EXL2__TRY(exl2__template_method_window(r, in->value, in->args, &window, &before));
    EXL2__TRY(exl2__template_has_affix(r, &window, in->args[0], in->with, &found));
    *out = exl2__template_bool(found && before != UINT32_MAX);
    return EXL2_OK;
}

/* removeprefix and removesuffix */
EXL2__PRIVATE exl2_result exl2__template_method_cut_affix(exl2__template_run *r, const exl2__template_operands *in,
                                                          exl2__template_value *out)
{
    const exl2__template_value *v = in->value, *affix = in->args[0];
    bool end = in->with, found;
    EXL2__TRY(exl2__template_text_argument(r, "removeprefix", affix));
    EXL2__TRY(exl2__template_has_affix(r, v, affix, end, &found));
    uint32_t removed = found ? affix->count : 0;
    *out = exl2__template_text(v->as.text + (end ? 0 : removed), v->count - removed);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_method_replace(exl2__template_run *r, const exl2__template_operands *in,
                                                        exl2__template_value *out)
{
    const exl2__template_value *v = in->value, *before = in->args[0], *after = in->args[1], *count = in->args[2];
    exl2__template_value escaped;
    uint64_t limit;
    EXL2__TRY(exl2__template_text_argument(r, "replace", before));
    EXL2__TRY(exl2__template_text_argument(r, "replace", after));
    EXL2__TRY(exl2__template_limit(r, "replace", count, &limit));
    escaped = *after;
    if (v->why) {
        EXL2__TRY(exl2__template_escape(r, after, &escaped));
    }
    return exl2__template_replace(r, v, before, &escaped, limit, out);
}

EXL2__PRIVATE exl2_result exl2__template_method_case(exl2__template_run *r, const exl2__template_operands *in,
                                                     exl2__template_value *out)
{
    return exl2__template_case(r, in->value, (exl2__template_case_kind)in->with, out);
}

EXL2__PRIVATE exl2_result exl2__template_method_format(exl2__template_run *r, const exl2__template_operands *in,
                                                       exl2__template_value *out)
{
    return exl2__template_spec_format(r, in->value, in->args, out);
}

EXL2__PRIVATE exl2_result exl2__template_method_join(exl2__template_run *r, const exl2__template_operands *in,
                                                     exl2__template_value *out)
{
    return exl2__template_join(r, in->args[0], in->value, true, out);
}

EXL2__PRIVATE exl2_result exl2__template_method_is(exl2__template_run *r, const exl2__template_operands *in,
                                                   exl2__template_value *out)
{
    bool truth = false;
    EXL2__TRY(exl2__template_is_kind(r, in->value, (char)in->with, &truth));
    *out = exl2__template_bool(truth);
    return EXL2_OK;
}

/* ---- dicts, lists, loops ---- */

EXL2__PRIVATE exl2_result exl2__template_method_get(exl2__template_run *r, const exl2__template_operands *in,
                                                    exl2__template_value *out)
{
    const exl2__template_value *v = in->value, *key = in->args[0], *fallback = in->args[1];
    const exl2__template_entry *entry;
    EXL2__TRY(exl2__template_check_key(r, key, 0));
    EXL2__TRY(exl2__template_entry_find(r, v->as.entries, v->count, key, &entry));
    *out = entry ? entry->value : fallback ? *fallback : exl2__template_none();
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_method_copy(exl2__template_run *r, const exl2__template_operands *in,
                                                     exl2__template_value *out)
{
    (void)r;
    *out = *in->value;
    return EXL2_OK;
}

/* items, keys and values of a dict. */
EXL2__PRIVATE exl2_result exl2__template_method_view(exl2__template_run *r, const exl2__template_operands *in,
                                                     exl2__template_value *out)
{
    const exl2__template_value *v = in->value;
    bool pairwise = in->with == EXL2__TEMPLATE_VIEW_ITEMS;
    exl2__template_value *items = NULL, *pairs = NULL;
    EXL2__TRY(exl2__template_alloc_values(r, v->count, &items));
    if (pairwise) {
        EXL2__TRY(exl2__template_alloc_values(r, (uint64_t)v->count * 2, &pairs));
    }
    for (uint32_t i = 0; i < v->count; i++) {
        const exl2__template_entry *e = &v->as.entries[i];
        if (pairwise) {
            pairs[i * 2] = e->key;
            pairs[i * 2 + 1] = e->value;
            items[i] = exl2__template_items(EXL2__TEMPLATE_KIND_TUPLE, pairs + i * 2, 2);
            items[i].marked = v->marked;
        } else {
            items[i] = in->with == EXL2__TEMPLATE_VIEW_KEYS ? e->key : e->value;
        }
    }
    *out = exl2__template_items(EXL2__TEMPLATE_KIND_VIEW, items, v->count);
    out->why = (uint8_t)in->with;
    out->marked = v->marked;
    return EXL2_OK;
}

/* next and reset */
EXL2__PRIVATE exl2_result exl2__template_method_cycler(exl2__template_run *r, const exl2__template_operands *in,
                                                       exl2__template_value *out)
{
    exl2__template_loop *cycler = in->value->as.loop;
    (void)r;
    *out = in->with ? cycler->items[cycler->at] : exl2__template_none();
    cycler->at = in->with ? (cycler->at + 1) % cycler->count : 0;
    return EXL2_OK;
}

EXL2__PRIVATE uint32_t exl2__template_given_count(exl2__template_args args)
{
    uint32_t count = 0;
    while (count < EXL2__TEMPLATE_ARGS_MAX && args[count]) {
        count++;
    }
    return count;
}

EXL2__PRIVATE exl2_result exl2__template_method_cycle(exl2__template_run *r, const exl2__template_operands *in,
                                                      exl2__template_value *out)
{
    (void)r;
    *out = *in->args[(in->value->as.loop->at - 1) % exl2__template_given_count(in->args)];
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_method_changed(exl2__template_run *r, const exl2__template_operands *in,
                                                        exl2__template_value *out)
{
    exl2__template_loop *loop = in->value->as.loop;
    exl2__template_value *items = NULL;
    uint32_t count = exl2__template_given_count(in->args);
    bool same = false;
    EXL2__TRY(exl2__template_alloc_values(r, count, &items));
    for (uint32_t i = 0; i < count; i++) {
        items[i] = *in->args[i];
    }
    exl2__template_value asked = exl2__template_items(EXL2__TEMPLATE_KIND_TUPLE, items, count);
    EXL2__TRY(exl2__template_equal(r, &asked, &loop->changed, 0, &same));
    loop->changed = asked;
    *out = exl2__template_bool(!same);
    return EXL2_OK;
}

/* The results of a safe text's methods are safe, too. */
EXL2__PRIVATE void exl2__template_method_safe(const exl2__template_value *v, exl2__template_value *out)
{
    exl2__template_value *items = out;
    uint32_t count = out->kind == EXL2__TEMPLATE_KIND_TEXT;
    if (out->kind == EXL2__TEMPLATE_KIND_LIST || out->kind == EXL2__TEMPLATE_KIND_TUPLE) {
        items = (exl2__template_value *)(uintptr_t)out->as.items; /* made by the method */
        count = out->count;
    }
    for (uint32_t i = 0; v->why && i < count; i++) {
        items[i].why = 1;
    }
}

/* `id`: row of the table of methods, or EXL2__TEMPLATE_METHOD_UNKNOWN. */
EXL2__PRIVATE exl2_result exl2__template_method_call(exl2__template_run *r, uint32_t id,
                                                     const exl2__template_value *name, const exl2__template_value *v,
                                                     exl2__template_args args, exl2__template_value *out)
{
#define X(name, parameters, mandatory, function, with) { exl2__template_method_##function, with },
    static const exl2__template_function_row rows[] = { EXL2__TEMPLATE_METHODS(X) };
#undef X
    EXL2__TRY(exl2__template_step(r, EXL2__TEMPLATE_LISTED_STEPS));
    bool known = exl2__template_listed(exl2__template_attributes(v), name->as.text, name->count);
    bool text = v->kind == EXL2__TEMPLATE_KIND_TEXT, loop = v->kind == EXL2__TEMPLATE_KIND_LOOP;
    bool has_methods = text || v->kind == EXL2__TEMPLATE_KIND_CYCLER || v->kind == EXL2__TEMPLATE_KIND_DICT
        || exl2__template_is_sequence(v);
    if (id != EXL2__TEMPLATE_METHOD_UNKNOWN) {
        const exl2__template_function_row *row = &rows[id];
        exl2__template_operands in = { v, args, row->with };
        bool of_loop = row->function == exl2__template_method_cycle || row->function == exl2__template_method_changed;
        if ((known && has_methods) || (loop && of_loop)) {
            EXL2__TRY(row->function(r, &in, out));
            if (text) {
                exl2__template_method_safe(v, out);
            }
            return EXL2_OK;
        }
    }
    bool unsafe = exl2__template_listed("append clear extend insert pop popitem remove reverse setdefault sort update",
                                        name->as.text, name->count);
    if (known && unsafe) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "access to attribute '%.*s' of '%s' object is unsafe.",
                                   (int)name->count, name->as.text, exl2__template_type(v));
    }
    if (known) {
        return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "method '%.*s' of a %s is not supported", (int)name->count,
                                   name->as.text, exl2__template_type(v));
    }
    EXL2__TRY(exl2__template_attribute(r, v, name->as.text, name->count, out));
    if (out->kind == EXL2__TEMPLATE_KIND_UNDEFINED) {
        return exl2__template_fail_undefined(r, out);
    }
    if (out->kind == EXL2__TEMPLATE_KIND_MACRO || out->kind >= EXL2__TEMPLATE_KIND_METHOD) {
        return exl2__template_unsupported(r, "calling a macro or function that is a part of a value");
    }
    return exl2__template_fail(r, EXL2_ERR_FORMAT, "'%s' object is not callable", exl2__template_type(out));
}

#endif

/* template_list.h: filters over iterables: sort, groupby, unique, batch, slice, sum, min, max.
   takes: exl2__template_run, a value, the arguments (NULL: not given).
   gives: exl2__template_generator, path, sorted, exl2__template_filter_group, sort, extreme, unique, sum, chunks. */
#ifndef EXL2__TEMPLATE_LIST_H
#define EXL2__TEMPLATE_LIST_H

#include "../../0_base/sort.h"
#include "template_clock.h"

/* A generator: the elements can be iterated over once. */
EXL2__PRIVATE exl2_result exl2__template_generator(exl2__template_run *r, const exl2__template_value *items,
                                                   uint32_t count, bool marked, exl2__template_value *out)
{
    void *memory = NULL;
    EXL2__TRY(exl2__template_alloc(r, sizeof(exl2__template_loop), 8, &memory));
    exl2__template_loop *state = (exl2__template_loop *)memory;
    memset(state, 0, sizeof *state);
    state->items = items;
    state->count = count;
    *out = exl2__template_none();
    out->kind = EXL2__TEMPLATE_KIND_GENERATOR;
    out->marked = marked;
    out->as.loop = state;
    return EXL2_OK;
}

/* The attribute of a value at the path 'a.b.0' (or at an index). `fallback`, if not NULL, replaces undefined parts. */
EXL2__PRIVATE exl2_result exl2__template_path(exl2__template_run *r, const exl2__template_value *v,
                                              const exl2__template_value *path, const exl2__template_value *fallback,
                                              exl2__template_value *out)
{
    exl2__template_value at = *v, next;
    bool text = path->kind == EXL2__TEMPLATE_KIND_TEXT;
    for (uint32_t begin = 0, end; !text || begin <= path->count; begin = end + 1) {
        const char *dot = text ? (const char *)memchr(path->as.text + begin, '.', path->count - begin) : NULL;
        end = dot ? (uint32_t)(dot - path->as.text) : path->count;
        exl2__template_value key = *path;
        if (text) {
            key = exl2__template_text(path->as.text + begin, end - begin);
            int64_t index = 0;
            uint32_t digits = 0;
            while (digits < key.count && digits < 9 && key.as.text[digits] >= '0' && key.as.text[digits] <= '9') {
                index = index * 10 + (key.as.text[digits++] - '0');
            }
            key = digits && digits == key.count ? exl2__template_int(index) : key;
        }
        EXL2__TRY(exl2__template_step(r, (end - begin) / 16 + 1));
        EXL2__TRY(exl2__template_item(r, &at, &key, &next));
        at = next.kind == EXL2__TEMPLATE_KIND_UNDEFINED && fallback ? *fallback : next;
        if (!text) {
            break;
        }
    }
    *out = at;
    return EXL2_OK;
}

/* The key of an element: the attribute at `path`, or without a path the element itself. A text is converted to lower
   case unless `case_counts`. */
EXL2__PRIVATE exl2_result exl2__template_sort_key(exl2__template_run *r, const exl2__template_value *v,
                                                  const exl2__template_value *path,
                                                  const exl2__template_value *fallback, bool case_counts,
                                                  exl2__template_value *out)
{
    *out = *v;
    if (path && path->kind != EXL2__TEMPLATE_KIND_NONE) {
        EXL2__TRY(exl2__template_path(r, v, path, fallback, out));
    }
    if (!case_counts && out->kind == EXL2__TEMPLATE_KIND_TEXT) {
        exl2__template_value key = *out;
        return exl2__template_case(r, &key, EXL2__TEMPLATE_CASE_LOWER, out);
    }
    return EXL2_OK;
}

/* ---- order ---- */

typedef struct exl2__template_sorting {
    exl2__template_run *r;
    const exl2__template_value *keys;
    uint32_t *order;
    bool down;
    exl2_result result;
} exl2__template_sorting;

/* Equal keys keep their order. */
EXL2__PRIVATE bool exl2__template_sort_less(const void *items, uint32_t a, uint32_t b)
{
    exl2__template_sorting *s = (exl2__template_sorting *)(uintptr_t)items;
    int order = 0;
    if (s->result == EXL2_OK) {
        s->result = exl2__template_step(s->r, 1);
    }
    if (s->result == EXL2_OK) {
        s->result = exl2__template_order(s->r, &s->keys[s->order[a]], &s->keys[s->order[b]], "<", &order);
    }
    order = s->down ? -order : order;
    return order ? order < 0 : s->order[a] < s->order[b];
}

EXL2__PRIVATE void exl2__template_sort_swap(void *items, uint32_t a, uint32_t b)
{
    uint32_t *order = ((exl2__template_sorting *)items)->order, swap = order[a];
    order[a] = order[b];
    order[b] = swap;
}

/* *order: indices of the keys in ascending (`down`: descending) order. */
EXL2__PRIVATE exl2_result exl2__template_sort_keys(exl2__template_run *r, const exl2__template_value *keys,
                                                   uint32_t count, bool down, uint32_t **order)
{
    void *memory = NULL;
    EXL2__TRY(exl2__template_alloc(r, (uint64_t)count * sizeof **order, 8, &memory));
    *order = (uint32_t *)memory;
    for (uint32_t i = 0; i < count; i++) {
        (*order)[i] = i;
    }
    exl2__template_sorting s = { r, keys, *order, down, EXL2_OK };
    exl2__sort_items items = { &s, exl2__template_sort_less, exl2__template_sort_swap };
    exl2__sort(&items, count);
    return s.result;
}

/* The elements sorted by their keys, and the sorted keys. */
EXL2__PRIVATE exl2_result exl2__template_sorted(exl2__template_run *r, const exl2__template_value *v,
                                                const exl2__template_value *path, const exl2__template_value *fallback,
                                                bool case_counts, bool down, exl2__template_value *out,
                                                exl2__template_value **sorted_keys)
{
    exl2__template_value items, *keys = NULL, *made = NULL;
    uint32_t *order = NULL;
    if (path && path->kind == EXL2__TEMPLATE_KIND_TEXT && memchr(path->as.text, ',', path->count)) {
        return exl2__template_unsupported(r, "sorting by several attributes");
    }
    EXL2__TRY(exl2__template_sequence(r, v, &items));
    EXL2__TRY(exl2__template_alloc_values(r, (uint64_t)items.count * 2, &keys));
    EXL2__TRY(exl2__template_alloc_values(r, items.count, &made));
    for (uint32_t i = 0; i < items.count; i++) {
        EXL2__TRY(exl2__template_sort_key(r, &items.as.items[i], path, fallback, case_counts, &keys[i]));
    }
    EXL2__TRY(exl2__template_sort_keys(r, keys, items.count, down, &order));
    for (uint32_t i = 0; i < items.count; i++) {
        made[i] = items.as.items[order[i]];
        keys[items.count + i] = keys[order[i]];
    }
    *sorted_keys = keys + items.count;
    *out = exl2__template_items(EXL2__TEMPLATE_KIND_LIST, made, items.count);
    out->marked = v->marked;
    return EXL2_OK;
}

/* One tuple (key, [elements]) for each key, in ascending order. */
EXL2__PRIVATE exl2_result exl2__template_filter_group(exl2__template_run *r, const exl2__template_operands *in,
                                                      exl2__template_value *out)
{
    const exl2__template_value *v = in->value, *path = in->args[0], *fallback = in->args[1];
    const exl2__template_value *case_sensitive = in->args[2];
    exl2__template_value items, *keys = NULL, *made = NULL;
    uint32_t count = 0;
    EXL2__TRY(exl2__template_sorted(r, v, path, fallback, exl2__template_flag(case_sensitive), false, &items, &keys));
    EXL2__TRY(exl2__template_alloc_values(r, (uint64_t)items.count * 3, &made));
    for (uint32_t i = 0, first = 0; i < items.count; i++) {
        bool same = false;
        if (i + 1 < items.count) {
            EXL2__TRY(exl2__template_equal(r, &keys[i], &keys[i + 1], 0, &same));
        }
        if (!same) {
            exl2__template_value *pair = made + items.count + (size_t)count * 2;
            EXL2__TRY(exl2__template_path(r, &items.as.items[first], path, fallback, &pair[0]));
            pair[1] = exl2__template_items(EXL2__TEMPLATE_KIND_LIST, items.as.items + first, i + 1 - first);
            pair[1].marked = v->marked;
            made[count] = exl2__template_items(EXL2__TEMPLATE_KIND_TUPLE, pair, 2);
            made[count].why = 1; /* has .grouper and .list */
            made[count++].marked = v->marked;
            first = i + 1;
        }
    }
    *out = exl2__template_items(EXL2__TEMPLATE_KIND_LIST, made, count);
    out->marked = v->marked;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_filter_sort(exl2__template_run *r, const exl2__template_operands *in,
                                                     exl2__template_value *out)
{
    const exl2__template_value *reverse = in->args[0], *case_sensitive = in->args[1], *path = in->args[2];
    exl2__template_value *keys = NULL;
    return exl2__template_sorted(r, in->value, path, NULL, exl2__template_flag(case_sensitive),
                                 exl2__template_flag(reverse), out, &keys);
}

/* min and max */
EXL2__PRIVATE exl2_result exl2__template_filter_extreme(exl2__template_run *r, const exl2__template_operands *in,
                                                        exl2__template_value *out)
{
    const exl2__template_value *v = in->value, *case_sensitive = in->args[0], *path = in->args[1];
    bool largest = in->with;
    exl2__template_value items, best = exl2__template_none(), key;
    EXL2__TRY(exl2__template_sequence(r, v, &items));
    *out = exl2__template_undefined(EXL2__TEMPLATE_NO_ELEMENT, v, "", 0);
    for (uint32_t i = 0; i < items.count; i++) {
        int order = -1;
        EXL2__TRY(exl2__template_step(r, 1));
        EXL2__TRY(
            exl2__template_sort_key(r, &items.as.items[i], path, NULL, exl2__template_flag(case_sensitive), &key));
        if (i) {
            EXL2__TRY(exl2__template_order(r, &key, &best, largest ? ">" : "<", &order));
            order = largest ? -order : order;
        }
        if (order < 0) {
            best = key;
            *out = items.as.items[i];
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_filter_unique(exl2__template_run *r, const exl2__template_operands *in,
                                                       exl2__template_value *out)
{
    const exl2__template_value *v = in->value, *case_sensitive = in->args[0], *path = in->args[1];
    exl2__template_value items, *made = NULL, *keys = NULL;
    uint32_t count = 0;
    EXL2__TRY(exl2__template_sequence(r, v, &items));
    EXL2__TRY(exl2__template_alloc_values(r, items.count, &made));
    EXL2__TRY(exl2__template_alloc_values(r, items.count, &keys));
    for (uint32_t i = 0; i < items.count; i++) {
        bool same = false;
        EXL2__TRY(exl2__template_sort_key(r, &items.as.items[i], path, NULL, exl2__template_flag(case_sensitive),
                                          &keys[count]));
        EXL2__TRY(exl2__template_check_key(r, &keys[count], 0));
        for (uint32_t k = 0; k < count && !same; k++) {
            EXL2__TRY(exl2__template_equal(r, &keys[k], &keys[count], 0, &same));
        }
        made[count] = items.as.items[i];
        count += !same;
    }
    return exl2__template_generator(r, made, count, v->marked, out);
}

EXL2__PRIVATE exl2_result exl2__template_filter_sum(exl2__template_run *r, const exl2__template_operands *in,
                                                    exl2__template_value *out)
{
    const exl2__template_value *path = in->args[0], *start = in->args[1];
    exl2__template_value items, part;
    *out = start ? *start : exl2__template_int(0);
    if (out->kind == EXL2__TEMPLATE_KIND_TEXT) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "sum() can't sum strings");
    }
    EXL2__TRY(exl2__template_sequence(r, in->value, &items));
    for (uint32_t i = 0; i < items.count; i++) {
        exl2__template_value sum = *out;
        EXL2__TRY(exl2__template_step(r, 1));
        EXL2__TRY(exl2__template_sort_key(r, &items.as.items[i], path, NULL, true, &part));
        EXL2__TRY(exl2__template_arithmetic(r, EXL2__TEMPLATE_ADD, &sum, &part, out));
    }
    return EXL2_OK;
}

/* batch: lists of `size` elements; slice: `size` lists. The second argument, if given, fills up shorter lists. */
EXL2__PRIVATE exl2_result exl2__template_filter_chunks(exl2__template_run *r, const exl2__template_operands *in,
                                                       exl2__template_value *out)
{
    const exl2__template_value *v = in->value, *wanted = in->args[0], *filler = in->args[1];
    bool batch = in->with;
    exl2__template_value items, *made = NULL, *part = NULL;
    bool fill = filler && filler->kind != EXL2__TEMPLATE_KIND_NONE;
    EXL2__TRY(exl2__template_sequence(r, v, &items));
    if (!exl2__template_is_integer(wanted) || wanted->as.integer <= 0 || wanted->as.integer > UINT32_MAX) {
        return exl2__template_unsupported(r, "batch or slice with a size that is not an integer above 0");
    }
    uint32_t size = (uint32_t)wanted->as.integer, at = 0;
    uint32_t lists = batch ? (uint32_t)(((uint64_t)items.count + size - 1) / size) : size;
    EXL2__TRY(exl2__template_alloc_values(r, lists, &made));
    for (uint32_t i = 0; i < lists; i++) {
        uint32_t left = items.count - at;
        bool longer = !batch && i < items.count % size;
        uint32_t taken = batch ? exl2__min32(size, left) : items.count / size + longer;
        uint32_t room = batch ? (fill ? size : taken) : taken + (fill && !longer);
        EXL2__TRY(exl2__template_alloc_values(r, room, &part));
        for (uint32_t k = 0; k < room; k++) {
            part[k] = k < taken ? items.as.items[at + k] : *filler;
        }
        at += taken;
        made[i] = exl2__template_items(EXL2__TEMPLATE_KIND_LIST, part, room);
        made[i].marked = v->marked;
    }
    return exl2__template_generator(r, made, lists, v->marked, out);
}

#endif

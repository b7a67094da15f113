/* template_part.h: parts of values: a.b, a['b'], a[0], a[1:], and the fields of `loop`. As in Jinja, a.b looks for a
   method and then for a key, a['b'] for a key and then for a method, and a missing part is undefined.
   takes: exl2__template_run and values.
   gives: exl2__template_attribute, exl2__template_item, exl2__template_slice, exl2__template_entry_put. */
#ifndef EXL2__TEMPLATE_PART_H
#define EXL2__TEMPLATE_PART_H

#include "template_operator.h"

#define EXL2__TEMPLATE_LISTED_STEPS 4u /* cost of a search in the attributes of a kind */

#define EXL2__TEMPLATE_TEXT_ATTRIBUTES \
    "capitalize casefold center count encode endswith expandtabs find format format_map index isalnum isalpha " \
    "isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower " \
    "lstrip maketrans partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split " \
    "splitlines startswith strip swapcase title translate upper zfill"

/* The public attributes of this kind of value in Python, separated by spaces. */
EXL2__PRIVATE const char *exl2__template_attributes(const exl2__template_value *v)
{
    switch (v->kind) {
    case EXL2__TEMPLATE_KIND_TEXT:
        return v->why ? EXL2__TEMPLATE_TEXT_ATTRIBUTES " escape striptags unescape" : EXL2__TEMPLATE_TEXT_ATTRIBUTES;
    case EXL2__TEMPLATE_KIND_GENERATOR:
        return "close send throw";
    case EXL2__TEMPLATE_KIND_LIST:
        return "append clear copy count extend index insert pop remove reverse sort";
    case EXL2__TEMPLATE_KIND_TUPLE:
        return "count index";
    case EXL2__TEMPLATE_KIND_RANGE:
        return "count index start step stop";
    case EXL2__TEMPLATE_KIND_VIEW:
        return "isdisjoint mapping";
    case EXL2__TEMPLATE_KIND_DICT:
        return "clear copy fromkeys get items keys pop popitem setdefault update values";
    case EXL2__TEMPLATE_KIND_BOOL:
    case EXL2__TEMPLATE_KIND_INT:
    case EXL2__TEMPLATE_KIND_BIG:
        return "as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag is_integer numerator real "
               "to_bytes";
    case EXL2__TEMPLATE_KIND_REAL:
        return "as_integer_ratio conjugate fromhex hex imag is_integer real";
    case EXL2__TEMPLATE_KIND_CYCLER:
        return "next reset";
    default:
        return "";
    }
}

/* Whether `word` is one of the words of `list`. */
EXL2__PRIVATE bool exl2__template_listed(const char *list, const char *word, size_t bytes)
{
    while (*list) {
        size_t length = strcspn(list, " ");
        if (length == bytes && memcmp(list, word, bytes) == 0) {
            return true;
        }
        list += length + (list[length] == ' ');
    }
    return false;
}

/* ---- dicts ---- */

/* Sets a key; `entries` has room for one more. Keys keep the order of their first appearance. */
EXL2__PRIVATE exl2_result exl2__template_entry_put(exl2__template_run *r, exl2__template_entry *entries,
                                                   uint32_t *count, const exl2__template_value *key,
                                                   const exl2__template_value *value)
{
    const exl2__template_entry *found;
    EXL2__TRY(exl2__template_check_key(r, key, 0));
    EXL2__TRY(exl2__template_entry_find(r, entries, *count, key, &found));
    if (found) {
        entries[found - entries].value = *value;
    } else {
        entries[*count].key = *key;
        entries[(*count)++].value = *value;
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_alloc_entries(exl2__template_run *r, uint64_t count,
                                                       exl2__template_entry **out)
{
    void *memory = NULL;
    EXL2__TRY(exl2__template_step(r, (size_t)exl2__min64(count, UINT32_MAX)));
    EXL2__TRY(exl2__template_alloc(r, count * sizeof **out, 8, &memory));
    *out = (exl2__template_entry *)memory;
    return EXL2_OK;
}

/* namespace.name = value */
EXL2__PRIVATE exl2_result exl2__template_namespace_put(exl2__template_run *r, exl2__template_namespace *space,
                                                       const exl2__template_value *name,
                                                       const exl2__template_value *value)
{
    if (space->count == space->room) {
        exl2__template_entry *grown = NULL;
        EXL2__TRY(exl2__template_alloc_entries(r, (uint64_t)space->room * 2 + 4, &grown));
        if (space->count) {
            memcpy(grown, space->entries, space->count * sizeof *grown);
        }
        space->entries = grown;
        space->room = space->room * 2 + 4;
    }
    return exl2__template_entry_put(r, space->entries, &space->count, name, value);
}

/* ---- loop.name ---- */

#define EXL2__TEMPLATE_LOOP_FIELDS(X) \
    X(INDEX, "index") \
    X(INDEX0, "index0") \
    X(FIRST, "first") \
    X(LAST, "last") \
    X(LENGTH, "length") \
    X(REVINDEX, "revindex") \
    X(REVINDEX0, "revindex0") \
    X(PREVITEM, "previtem") \
    X(NEXTITEM, "nextitem") \
    X(DEPTH, "depth") \
    X(DEPTH0, "depth0")

#define X(id, name) EXL2__TEMPLATE_LOOP_##id,
typedef enum exl2__template_loop_field {
    EXL2__TEMPLATE_LOOP_FIELDS(X) EXL2__TEMPLATE_LOOP_FIELD_COUNT
} exl2__template_loop_field;
#undef X

EXL2__PRIVATE exl2_result exl2__template_loop_part(exl2__template_run *r, const exl2__template_loop *l,
                                                   const exl2__template_value *name, exl2__template_value *out)
{
#define X(id, name) name,
    static const char *const names[] = { EXL2__TEMPLATE_LOOP_FIELDS(X) };
#undef X
    uint32_t field = 0;
    while (field < EXL2__TEMPLATE_LOOP_FIELD_COUNT &&
           !exl2__template_same(name->as.text, name->count, names[field])) {
        field++;
    }
    exl2__template_value absent =
        exl2__template_undefined(EXL2__TEMPLATE_NO_ATTRIBUTE, NULL, name->as.text, name->count);
    absent.owner = EXL2__TEMPLATE_KIND_LOOP;
    switch ((exl2__template_loop_field)field) { /* the present element is number at - 1, from 0 */
    case EXL2__TEMPLATE_LOOP_INDEX: *out = exl2__template_int(l->at); return EXL2_OK;
    case EXL2__TEMPLATE_LOOP_INDEX0: *out = exl2__template_int((int64_t)l->at - 1); return EXL2_OK;
    case EXL2__TEMPLATE_LOOP_FIRST: *out = exl2__template_bool(l->at == 1); return EXL2_OK;
    case EXL2__TEMPLATE_LOOP_LAST: *out = exl2__template_bool(l->at == l->count); return EXL2_OK;
    case EXL2__TEMPLATE_LOOP_LENGTH: *out = exl2__template_int(l->count); return EXL2_OK;
    case EXL2__TEMPLATE_LOOP_REVINDEX: *out = exl2__template_int((int64_t)l->count - l->at + 1); return EXL2_OK;
    case EXL2__TEMPLATE_LOOP_REVINDEX0: *out = exl2__template_int((int64_t)l->count - l->at); return EXL2_OK;
    case EXL2__TEMPLATE_LOOP_PREVITEM: *out = l->at > 1 ? l->items[l->at - 2] : absent; return EXL2_OK;
    case EXL2__TEMPLATE_LOOP_NEXTITEM: *out = l->at < l->count ? l->items[l->at] : absent; return EXL2_OK;
    case EXL2__TEMPLATE_LOOP_DEPTH: *out = exl2__template_int((int64_t)l->depth + 1); return EXL2_OK;
    case EXL2__TEMPLATE_LOOP_DEPTH0: *out = exl2__template_int(l->depth); return EXL2_OK;
    case EXL2__TEMPLATE_LOOP_FIELD_COUNT: break;
    }
    return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "'loop.%.*s' is not supported", (int)name->count,
                               name->as.text);
}

/* ---- v.name and v[key] ---- */

/* The key of a dict or the attribute of a namespace, else undefined. */
EXL2__PRIVATE exl2_result exl2__template_key(exl2__template_run *r, const exl2__template_value *v,
                                             const exl2__template_value *key, exl2__template_value *out)
{
    const exl2__template_entry *entry = NULL;
    bool text = key->kind == EXL2__TEMPLATE_KIND_TEXT;
    if (v->kind == EXL2__TEMPLATE_KIND_DICT) {
        EXL2__TRY(exl2__template_entry_find(r, v->as.entries, v->count, key, &entry));
    } else if (v->kind == EXL2__TEMPLATE_KIND_NAMESPACE) {
        EXL2__TRY(exl2__template_entry_find(r, v->as.space->entries, v->as.space->count, key, &entry));
    }
    if (entry) {
        *out = entry->value;
    } else {
        *out = exl2__template_undefined(text ? EXL2__TEMPLATE_NO_ATTRIBUTE : EXL2__TEMPLATE_NO_ELEMENT, v,
                                        text ? key->as.text : "", text ? key->count : 0);
    }
    return EXL2_OK;
}

/* macro.name and macro.arguments */
EXL2__PRIVATE exl2_result exl2__template_macro_attribute(exl2__template_run *r, const exl2__template_macro *macro,
                                                         bool name, exl2__template_value *out)
{
    const exl2__template_name *names = r->program->names;
    exl2__template_value *items = NULL;
    uint32_t count = 0;
    if (name) {
        const exl2__template_name *n = &names[macro->name ? macro->name - 1 : 0];
        *out = macro->name ? exl2__template_text(r->program->text + n->at, n->bytes) : exl2__template_none();
        return EXL2_OK;
    }
    for (const exl2__template_ins *i = macro->first; i->op == EXL2__TEMPLATE_PARAMETER; i += i->a) {
        EXL2__TRY(exl2__template_alloc_values(r, 1, &items)); /* one after the other: nothing else is allocated here */
        *items = exl2__template_text(r->program->text + names[i->b].at, names[i->b].bytes);
        count++;
    }
    *out = exl2__template_items(EXL2__TEMPLATE_KIND_TUPLE, count ? items + 1 - count : NULL, count);
    return EXL2_OK;
}

/* An attribute that a value of Python or Jinja has beside its keys: a method as a value, or a part. One of Python's
   internal attributes ("__class__") is undefined in templates. One that exists, but is not implemented, fails, because
   silently empty text would be worse. *found false: there is no such attribute. */
EXL2__PRIVATE exl2_result exl2__template_python_attribute(exl2__template_run *r, const exl2__template_value *v,
                                                          const exl2__template_value *name, bool *found,
                                                          exl2__template_value *out)
{
    const char *text = name->as.text;
    uint32_t bytes = name->count;
    *found = true;
    if (bytes > 4 && memcmp(text, "__", 2) == 0) {
        *out = exl2__template_undefined(EXL2__TEMPLATE_NO_ATTRIBUTE, v, text, bytes);
        return EXL2_OK;
    }
    if (v->kind == EXL2__TEMPLATE_KIND_TUPLE && v->why && exl2__template_listed("grouper list", text, bytes)) {
        *out = v->as.items[text[0] == 'l'];
        return EXL2_OK;
    }
    if (v->kind == EXL2__TEMPLATE_KIND_MACRO && exl2__template_listed("arguments name", text, bytes)) {
        return exl2__template_macro_attribute(r, v->as.macro, text[0] == 'n', out);
    }
    if (v->kind == EXL2__TEMPLATE_KIND_CYCLER && exl2__template_same(text, bytes, "current")) {
        *out = v->as.loop->items[v->as.loop->at];
        return EXL2_OK;
    }
    const char *hidden = exl2__template_is_numeric(v)           ? "denominator imag numerator real"
                         : v->kind == EXL2__TEMPLATE_KIND_RANGE ? "start step stop"
                         : v->kind == EXL2__TEMPLATE_KIND_VIEW  ? "mapping"
                         : v->kind == EXL2__TEMPLATE_KIND_MACRO
                             ? "caller catch_kwargs catch_varargs explicit_caller"
                         : v->kind >= EXL2__TEMPLATE_KIND_CYCLER ? "items pos sep used"
                                                                 : "";
    bool function = v->kind == EXL2__TEMPLATE_KIND_METHOD || v->kind == EXL2__TEMPLATE_KIND_FUNCTION;
    if (function || exl2__template_listed(hidden, text, bytes)) {
        return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "attribute '%.*s' of a %s is not supported", (int)bytes,
                                   text, exl2__template_type(v));
    }
    *found = exl2__template_listed(exl2__template_attributes(v), text, bytes);
    *out = *name;
    out->kind = EXL2__TEMPLATE_KIND_METHOD;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_attribute(exl2__template_run *r, const exl2__template_value *v,
                                                   const char *name, uint32_t bytes, exl2__template_value *out)
{
    exl2__template_value key = exl2__template_text(name, bytes);
    if (v->kind == EXL2__TEMPLATE_KIND_UNDEFINED) {
        return exl2__template_fail_undefined(r, v);
    }
    if (v->kind == EXL2__TEMPLATE_KIND_LOOP) {
        return exl2__template_loop_part(r, v->as.loop, &key, out);
    }
    bool found;
    EXL2__TRY(exl2__template_step(r, EXL2__TEMPLATE_LISTED_STEPS));
    EXL2__TRY(exl2__template_python_attribute(r, v, &key, &found, out));
    return found ? EXL2_OK : exl2__template_key(r, v, &key, out);
}

/* The position that `index` (negative: from the end) means among `count` elements, or `count` if out of range. */
EXL2__PRIVATE uint32_t exl2__template_index(int64_t index, uint32_t count)
{
    index += index < 0 ? count : 0;
    return index < 0 || index >= count ? count : (uint32_t)index;
}

EXL2__PRIVATE exl2_result exl2__template_item(exl2__template_run *r, const exl2__template_value *v,
                                              const exl2__template_value *key, exl2__template_value *out)
{
    if (v->kind == EXL2__TEMPLATE_KIND_UNDEFINED) {
        return exl2__template_fail_undefined(r, v);
    }
    if (v->kind == EXL2__TEMPLATE_KIND_LOOP) {
        return exl2__template_unsupported(r, "a loop object with []");
    }
    bool indexed =
        (exl2__template_is_sequence(v) && v->kind != EXL2__TEMPLATE_KIND_VIEW) || v->kind == EXL2__TEMPLATE_KIND_TEXT;
    if (indexed && exl2__template_is_integer(key)) {
        exl2__template_value items = *v;
        if (v->kind == EXL2__TEMPLATE_KIND_TEXT) {
            EXL2__TRY(exl2__template_characters(r, v, &items));
        }
        uint32_t at = exl2__template_index(key->as.integer, items.count);
        *out = at < items.count ? items.as.items[at] : exl2__template_undefined(EXL2__TEMPLATE_NO_ELEMENT, v, "", 0);
        bool safe = v->kind == EXL2__TEMPLATE_KIND_TEXT && at < items.count && v->why;
        out->why = safe ? 1 : out->why; /* a part of a safe text is safe */
        return EXL2_OK;
    }
    EXL2__TRY(exl2__template_key(r, v, key, out));
    if (out->kind == EXL2__TEMPLATE_KIND_UNDEFINED && key->kind == EXL2__TEMPLATE_KIND_TEXT) {
        exl2__template_value attribute;
        bool found;
        EXL2__TRY(exl2__template_step(r, EXL2__TEMPLATE_LISTED_STEPS));
        EXL2__TRY(exl2__template_python_attribute(r, v, key, &found, &attribute));
        *out = found ? attribute : *out;
    }
    return EXL2_OK;
}

/* ---- v[start:stop:step] ---- */

/* Adjusts a bound as Python does: a negative one counts from the end, and the result is clamped to [low, high]. */
EXL2__PRIVATE exl2_result exl2__template_bound(exl2__template_run *r, const exl2__template_value *bound, int64_t absent,
                                               int64_t low, int64_t high, uint32_t count, int64_t *out)
{
    *out = absent;
    if (!bound || bound->kind == EXL2__TEMPLATE_KIND_NONE) {
        return EXL2_OK;
    }
    if (!exl2__template_is_integer(bound)) {
        return exl2__template_unsupported(r, "a slice with a bound that is not an integer");
    }
    int64_t at = bound->as.integer;
    at += at < 0 ? count : 0;
    *out = at < low ? low : at > high ? high : at;
    return EXL2_OK;
}

/* start, stop, step: NULL if not given. */
EXL2__PRIVATE exl2_result exl2__template_slice(exl2__template_run *r, const exl2__template_value *v,
                                               const exl2__template_value *start, const exl2__template_value *stop,
                                               const exl2__template_value *step, exl2__template_value *out)
{
    exl2__template_value items = *v, *picked = NULL;
    int64_t by = 1, first, last;
    if (v->kind == EXL2__TEMPLATE_KIND_UNDEFINED) {
        return exl2__template_fail_undefined(r, v);
    }
    if (v->kind == EXL2__TEMPLATE_KIND_TEXT) {
        EXL2__TRY(exl2__template_characters(r, v, &items));
    } else if (v->kind != EXL2__TEMPLATE_KIND_LIST && v->kind != EXL2__TEMPLATE_KIND_TUPLE) {
        return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "a slice of a %s is not supported", exl2__template_type(v));
    }
    if (step && step->kind != EXL2__TEMPLATE_KIND_NONE) {
        if (!exl2__template_is_integer(step)) {
            return exl2__template_unsupported(r, "a slice with a step that is not an integer");
        }
        by = step->as.integer;
    }
    if (by == 0 || by == INT64_MIN) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "slice step cannot be zero");
    }
    int64_t count = items.count, low = by < 0 ? -1 : 0, high = by < 0 ? count - 1 : count;
    EXL2__TRY(exl2__template_bound(r, start, by < 0 ? high : low, low, high, items.count, &first));
    EXL2__TRY(exl2__template_bound(r, stop, by < 0 ? low : high, low, high, items.count, &last));
    int64_t span = by < 0 ? first - last : last - first, stride = by < 0 ? -by : by;
    uint32_t taken = span > 0 ? (uint32_t)((span - 1) / stride + 1) : 0;
    if (v->kind == EXL2__TEMPLATE_KIND_TEXT && by == 1) { /* a view */
        const char *end = v->as.text + v->count;
        const char *from = first < count ? items.as.items[first].as.text : end;
        const char *to =
            taken ? items.as.items[first + taken - 1].as.text + items.as.items[first + taken - 1].count : from;
        *out = exl2__template_text(from, (size_t)(to - from));
        out->marked = v->marked;
        out->why = v->why;
        return EXL2_OK;
    }
    EXL2__TRY(exl2__template_alloc_values(r, taken, &picked));
    for (uint32_t i = 0; i < taken; i++) {
        picked[i] = items.as.items[first + (int64_t)i * by];
    }
    *out = exl2__template_items((exl2__template_kind)items.kind, picked, taken);
    if (v->kind == EXL2__TEMPLATE_KIND_TEXT) {
        size_t begin = r->used;
        for (uint32_t i = 0; i < taken; i++) {
            EXL2__TRY(exl2__template_put_copy(r, picked[i].as.text, picked[i].count));
        }
        *out = exl2__template_written(r, begin);
        out->why = v->why;
    }
    out->marked = v->marked;
    return EXL2_OK;
}

#endif

/* template_json.h: parses JSON into values, which are marked unless r->trusted, and writes values as JSON like
   transformers' `tojson`: separators ", " and ": ", no escapes for HTML, characters beyond ASCII kept.
   takes: untrusted JSON; values.
   gives: exl2__template_parse_json, exl2__template_to_json. */
#ifndef EXL2__TEMPLATE_JSON_H
#define EXL2__TEMPLATE_JSON_H

#include "../../0_base/json/json.h"
#include "template_part.h"

/* ---- reading ---- */

EXL2__PRIVATE exl2_result exl2__template_json_string(exl2__template_run *r, const exl2__json *j, uint32_t token,
                                                     exl2__template_value *out)
{
    char *text = NULL;
    size_t bytes = exl2__json_text(j, token, NULL, 0);
    EXL2__TRY(exl2__template_alloc_text(r, bytes, out, &text));
    exl2__json_text(j, token, text, bytes);
    exl2__template_mark(r, text, bytes, !r->trusted);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_json_number(exl2__template_run *r, const exl2__json *j, uint32_t token,
                                                     exl2__template_value *out)
{
    const exl2__json_token *t = &j->tokens[token];
    const char *text = j->text + t->begin;
    size_t bytes = t->end - t->begin;
    bool real = memchr(text, '.', bytes) || memchr(text, 'e', bytes) || memchr(text, 'E', bytes);
    exl2__json_number number = exl2__json_number_read(text, bytes);
    int64_t integer;
    double value;
    int64_t size = number.exponent < 0 ? -(int64_t)number.exponent : (int64_t)number.exponent;
    EXL2__TRY(exl2__template_step(r, real ? 16 + (size_t)exl2__min64((uint64_t)size, 400) : 1));
    if (!real && exl2__json_i64(j, token, &integer)) {
        *out = exl2__template_int(integer);
        return EXL2_OK;
    }
    if (!real && bytes <= EXL2__TEMPLATE_DIGITS_MAX) {
        EXL2__TRY(exl2__template_copy_text(r, text, bytes, !r->trusted, out));
        out->kind = EXL2__TEMPLATE_KIND_BIG;
        return EXL2_OK;
    }
    if (!real || !exl2__json_number_f64_all(&number, &value)) {
        return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "the number %.*s in JSON is not supported",
                                   (int)exl2__min64(bytes, 60), text);
    }
    *out = exl2__template_real(value);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_json_value(exl2__template_run *r, const exl2__json *j, uint32_t token,
                                                    exl2__template_value *out)
{
    const exl2__json_token *t = &j->tokens[token];
    switch (t->kind) {
    case EXL2__JSON_STRING:
        EXL2__TRY(exl2__template_json_string(r, j, token, out));
        break;
    case EXL2__JSON_NUMBER:
        EXL2__TRY(exl2__template_json_number(r, j, token, out));
        break;
    case EXL2__JSON_TRUE:
    case EXL2__JSON_FALSE:
        *out = exl2__template_bool(t->kind == EXL2__JSON_TRUE);
        break;
    case EXL2__JSON_ARRAY: {
        exl2__template_value *items = NULL;
        uint32_t count = 0;
        EXL2__TRY(exl2__template_alloc_values(r, t->count, &items));
        for (uint32_t child = exl2__json_first(j, token); child; child = exl2__json_next(j, token, child)) {
            EXL2__TRY(exl2__template_json_value(r, j, child, &items[count++])); /* at most EXL2__JSON_DEPTH_MAX deep */
        }
        *out = exl2__template_items(EXL2__TEMPLATE_KIND_LIST, items, count);
        break;
    }
    case EXL2__JSON_OBJECT: {
        exl2__template_entry *entries = NULL;
        uint32_t count = 0;
        EXL2__TRY(exl2__template_alloc_entries(r, t->count, &entries));
        for (uint32_t child = exl2__json_first(j, token); child; child = exl2__json_next(j, token, child)) {
            exl2__template_value key, value;
            EXL2__TRY(exl2__template_json_value(r, j, child, &key));
            EXL2__TRY(exl2__template_json_value(r, j, child + 1, &value));
            EXL2__TRY(exl2__template_entry_put(r, entries, &count, &key, &value));
        }
        *out = exl2__template_none();
        out->kind = EXL2__TEMPLATE_KIND_DICT;
        out->count = count;
        out->as.entries = entries;
        break;
    }
    default:
        *out = exl2__template_none();
        break;
    }
    out->marked = !r->trusted;
    return EXL2_OK;
}

/* Parses a JSON text; `label` names it in messages. The value does not point into the text. */
EXL2__PRIVATE exl2_result exl2__template_parse_json(exl2__template_run *r, const char *label, const char *text,
                                                    size_t bytes, exl2__template_value *out)
{
    exl2__json_scan scan = { 0 };
    void *memory = NULL;
    scan.text = (const uint8_t *)text;
    scan.bytes = (uint32_t)bytes;
    if (bytes >= UINT32_MAX || !exl2__json_scan_all(&scan)) {
        return exl2__template_fail(r, EXL2_ERR_ARG, "%s is not valid JSON: expected %s at byte %u", label,
                                   scan.wanted ? scan.wanted : "less than 4 GiB", scan.at);
    }
    EXL2__TRY(exl2__template_step(r, bytes / 8 + scan.token_count));
    EXL2__TRY(exl2__template_alloc(r, (uint64_t)scan.token_count * sizeof(exl2__json_token), 8, &memory));
    exl2__json j = { .text = text, .bytes = bytes, .tokens = (exl2__json_token *)memory };
    j.token_count = scan.token_count;
    exl2__json_scan_fill(&scan, j.tokens);
    exl2__json_scan_all(&scan);
    return exl2__template_json_value(r, &j, 0, out);
}

/* ---- writing ---- */

typedef struct exl2__template_json_style {
    int64_t indent;  /* spaces per level; below 0: all in one line */
    bool ascii_only; /* write other characters as \uXXXX */
    bool sorted;     /* sort entries by key */
    exl2__template_value between, after_key; /* separators after an element and after a key */
} exl2__template_json_style;

EXL2__PRIVATE exl2_result exl2__template_json_escape(exl2__template_run *r, uint32_t code, bool mark)
{
    char text[7] = { '\\', 'u', 0, 0, 0, 0, 0 };
    for (uint32_t i = 0; i < 4; i++) {
        text[2 + i] = "0123456789abcdef"[code >> (12 - 4 * i) & 15];
    }
    return exl2__template_put(r, text, 6, mark);
}

EXL2__PRIVATE exl2_result exl2__template_json_put_text(exl2__template_run *r, const exl2__template_value *v,
                                                       const exl2__template_json_style *style)
{
    static const char letters[] = "\"\"\\\\\nn\rr\tt\bb\ff"; /* pairs: byte, letter */
    size_t step;
    EXL2__TRY(exl2__template_put(r, "\"", 1, v->marked));
    for (size_t at = 0; at < v->count; at += step) {
        const char *from = v->as.text + at;
        bool mark = exl2__template_marked(r, from);
        uint32_t code = exl2__template_code_point(from, v->count - at, &step);
        char escape[2] = { '\\', 0 };
        for (size_t i = 0; i + 1 < sizeof letters; i += 2) {
            escape[1] = (uint8_t)letters[i] == code ? letters[i + 1] : escape[1];
        }
        if (escape[1]) {
            EXL2__TRY(exl2__template_put(r, escape, 2, mark));
        } else if (code >= 0x10000 && style->ascii_only) {
            EXL2__TRY(exl2__template_json_escape(r, 0xD800 + ((code - 0x10000) >> 10), mark));
            EXL2__TRY(exl2__template_json_escape(r, 0xDC00 + ((code - 0x10000) & 0x3FF), mark));
        } else if (code < 0x20 || (code > 0x7E && style->ascii_only)) {
            EXL2__TRY(exl2__template_json_escape(r, code, mark));
        } else {
            EXL2__TRY(exl2__template_put_copy(r, from, step));
        }
    }
    return exl2__template_put(r, "\"", 1, v->marked);
}

EXL2__PRIVATE exl2_result exl2__template_json_line(exl2__template_run *r, const exl2__template_json_style *style,
                                                   uint32_t depth, bool mark)
{
    if (style->indent < 0) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__template_put(r, "\n", 1, mark));
    for (uint64_t i = 0; i < depth * (uint64_t)style->indent; i++) {
        EXL2__TRY(exl2__template_step(r, 1));
        EXL2__TRY(exl2__template_put(r, " ", 1, mark));
    }
    return EXL2_OK;
}

/* The entry with the smallest key above that of `last` (NULL: with the smallest key of all); the caller knows that it
   exists. The entries are not sorted into a list, because the output is growing at the end of the used room. */
EXL2__PRIVATE exl2_result exl2__template_json_above(exl2__template_run *r, const exl2__template_value *v,
                                                    const exl2__template_entry *last, const exl2__template_entry **out)
{
    const exl2__template_entry *best = NULL;
    for (uint32_t i = 0; i < v->count; i++) {
        const exl2__template_entry *e = &v->as.entries[i];
        int above = 1, below = -1;
        EXL2__TRY(exl2__template_step(r, 1));
        if (last) {
            EXL2__TRY(exl2__template_order(r, &e->key, &last->key, "<", &above));
        }
        if (best && above > 0) {
            EXL2__TRY(exl2__template_order(r, &e->key, &best->key, "<", &below));
        }
        best = above > 0 && below < 0 ? e : best;
    }
    *out = best;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_json_put(exl2__template_run *r, const exl2__template_value *v,
                                                  const exl2__template_json_style *style, uint32_t depth)
{
    EXL2__TRY(exl2__template_step(r, 1));
    if (depth == EXL2__TEMPLATE_VALUE_DEPTH) {
        return exl2__template_too_deep(r);
    }
    switch (v->kind) {
    case EXL2__TEMPLATE_KIND_NONE:
        return exl2__template_put(r, "null", 4, v->marked);
    case EXL2__TEMPLATE_KIND_BOOL:
        return exl2__template_put(r, v->as.integer ? "true" : "false", v->as.integer ? 4 : 5, v->marked);
    case EXL2__TEMPLATE_KIND_INT:
    case EXL2__TEMPLATE_KIND_REAL:
        return exl2__template_put_number(r, v);
    case EXL2__TEMPLATE_KIND_BIG:
        return exl2__template_put_copy(r, v->as.text, v->count);
    case EXL2__TEMPLATE_KIND_TEXT:
        return exl2__template_json_put_text(r, v, style);
    case EXL2__TEMPLATE_KIND_LIST:
    case EXL2__TEMPLATE_KIND_TUPLE:
    case EXL2__TEMPLATE_KIND_DICT:
        break;
    default:
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "Object of type %s is not JSON serializable",
                                   exl2__template_type(v));
    }
    bool dict = v->kind == EXL2__TEMPLATE_KIND_DICT;
    const exl2__template_entry *entry = NULL;
    EXL2__TRY(exl2__template_put(r, dict ? "{" : "[", 1, v->marked));
    for (uint32_t i = 0; i < v->count; i++) {
        if (i) {
            EXL2__TRY(exl2__template_put(r, style->between.as.text, style->between.count, v->marked));
        }
        EXL2__TRY(exl2__template_json_line(r, style, depth + 1, v->marked));
        if (dict && style->sorted) {
            EXL2__TRY(exl2__template_json_above(r, v, entry, &entry));
        } else {
            entry = dict ? &v->as.entries[i] : NULL;
        }
        if (dict) {
            bool text = entry->key.kind == EXL2__TEMPLATE_KIND_TEXT;
            if (entry->key.kind > EXL2__TEMPLATE_KIND_TEXT) {
                return exl2__template_fail(r, EXL2_ERR_FORMAT, "keys must be str, int, float, bool or None, not %s",
                                           exl2__template_type(&entry->key));
            }
            EXL2__TRY(exl2__template_put(r, "\"", !text, v->marked));
            EXL2__TRY(text ? exl2__template_json_put_text(r, &entry->key, style)
                           : exl2__template_json_put(r, &entry->key, style, depth + 1));
            EXL2__TRY(exl2__template_put(r, "\"", !text, v->marked));
            EXL2__TRY(exl2__template_put(r, style->after_key.as.text, style->after_key.count, v->marked));
        }
        EXL2__TRY(exl2__template_json_put(r, dict ? &entry->value : &v->as.items[i], style, depth + 1));
    }
    if (v->count) {
        EXL2__TRY(exl2__template_json_line(r, style, depth, v->marked));
    }
    return exl2__template_put(r, dict ? "}" : "]", 1, v->marked);
}

EXL2__PRIVATE exl2_result exl2__template_to_json(exl2__template_run *r, const exl2__template_value *v,
                                                 const exl2__template_json_style *style, exl2__template_value *out)
{
    size_t start = r->used;
    EXL2__TRY(exl2__template_json_put(r, v, style, 0));
    *out = exl2__template_written(r, start);
    return EXL2_OK;
}

#endif

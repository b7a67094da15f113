/* template_text.h: the operations of Python's str on UTF-8 whose bytes have marks: printing values, strip, find, split,
   replace. A part of a text is a view of that text; only new text is written.
   takes: exl2__template_run and values.
   gives: exl2__template_string, exl2__template_put and the operations below. */
#ifndef EXL2__TEMPLATE_TEXT_H
#define EXL2__TEMPLATE_TEXT_H

#include "template_lex.h"
#include "template_number.h"
#include "template_value.h"

/* ---- a text that grows at the end of the used room: store r->used, put pieces, call exl2__template_written ---- */

EXL2__PRIVATE exl2_result exl2__template_put(exl2__template_run *r, const char *text, size_t bytes, bool mark)
{
    exl2__template_value unused;
    return exl2__template_copy_text(r, text, bytes, mark, &unused);
}

/* Appends a text with its marks. */
EXL2__PRIVATE exl2_result exl2__template_put_copy(exl2__template_run *r, const char *text, size_t bytes)
{
    exl2__template_value unused;
    char *to = NULL;
    EXL2__TRY(exl2__template_alloc_text(r, bytes, &unused, &to));
    exl2__template_copy(r, to, text, bytes);
    return EXL2_OK;
}

EXL2__PRIVATE exl2__template_value exl2__template_written(const exl2__template_run *r, size_t start)
{
    return exl2__template_text((const char *)r->block + start, r->used - start);
}

EXL2__PRIVATE bool exl2__template_marked(const exl2__template_run *r, const char *text)
{
    size_t at = (size_t)(text - (const char *)r->block);
    return exl2__template_owned(r, text) && (r->marks[at / 8] >> at % 8 & 1);
}

/* ---- values as text ---- */

EXL2__PRIVATE exl2_result exl2__template_put_number(exl2__template_run *r, const exl2__template_value *v)
{
    char text[EXL2__TEMPLATE_NUMBER_BYTES];
    bool real = v->kind == EXL2__TEMPLATE_KIND_REAL;
    EXL2__TRY(exl2__template_step(r, real ? 192 + 4 * exl2__template_real_size(v->as.real) : 2));
    size_t bytes = v->kind == EXL2__TEMPLATE_KIND_REAL
                       ? exl2__template_number_print(v->as.real, text)
                       : exl2__format(text, sizeof text, "%lld", (long long)v->as.integer);
    return exl2__template_put(r, text, bytes, v->marked);
}

/* Whether Python's repr writes a code point beyond ASCII as an escape, as it does with controls, formats, separators,
   private use and unassigned code points. This is an approximation for the code points that chats are likely to
   contain. */
EXL2__PRIVATE bool exl2__template_escaped(uint32_t code)
{
    return code < 0xA1 || code == 0xAD || (code >= 0x600 && code <= 0x605) || code == 0x61C || code == 0x6DD ||
           code == 0x70F || code == 0x180E || code == 0x1680 || (code >= 0x2000 && code <= 0x200F) ||
           (code >= 0x2028 && code <= 0x202F) || (code >= 0x205F && code <= 0x206F) || code == 0x3000 ||
           (code >= 0xD800 && code <= 0xF8FF) || code == 0xFEFF || (code >= 0xFFF0 && code <= 0xFFFB) ||
           (code & 0xFFFE) == 0xFFFE || code >= 0xE0000;
}

/* Appends a text in quotes, as Python's repr prints it. */
EXL2__PRIVATE exl2_result exl2__template_put_quoted(exl2__template_run *r, const exl2__template_value *v)
{
    const char *quote = memchr(v->as.text, '\'', v->count) && !memchr(v->as.text, '"', v->count) ? "\"" : "'";
    EXL2__TRY(exl2__template_put(r, quote, 1, v->marked));
    size_t step;
    for (uint32_t i = 0; i < v->count; i += (uint32_t)step) {
        const char *at = v->as.text + i;
        uint32_t c = exl2__template_code_point(at, v->count - i, &step);
        bool mark = exl2__template_marked(r, at);
        const char *escape = c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : c == '\\' ? "\\\\" : NULL;
        if (escape) {
            EXL2__TRY(exl2__template_put(r, escape, 2, mark));
        } else if (c == (uint8_t)*quote) {
            EXL2__TRY(exl2__template_put(r, "\\'", 2, mark));
        } else if (c < 0x20 || (c >= 0x7F && exl2__template_escaped(c))) {
            char hex[11] = { '\\', c > 0xFFFF ? 'U' : c > 0xFF ? 'u' : 'x' };
            uint32_t digits = c > 0xFFFF ? 8 : c > 0xFF ? 4 : 2;
            for (uint32_t k = 0; k < digits; k++) {
                hex[2 + k] = "0123456789abcdef"[c >> 4 * (digits - 1 - k) & 15];
            }
            EXL2__TRY(exl2__template_put(r, hex, 2 + digits, mark));
        } else {
            EXL2__TRY(exl2__template_put_copy(r, at, step));
        }
    }
    return exl2__template_put(r, quote, 1, v->marked);
}

/* Appends a value as Python's repr prints it: 'a', 1.0, True, [1, 2], (1,), {'k': None}. */
EXL2__PRIVATE exl2_result exl2__template_put_repr(exl2__template_run *r, const exl2__template_value *v, uint32_t depth)
{
    EXL2__TRY(exl2__template_step(r, 1));
    if (depth == EXL2__TEMPLATE_VALUE_DEPTH) {
        return exl2__template_too_deep(r);
    }
    switch (v->kind) {
    case EXL2__TEMPLATE_KIND_UNDEFINED:
        return exl2__template_put(r, "Undefined", 9, false);
    case EXL2__TEMPLATE_KIND_NONE:
        return exl2__template_put(r, "None", 4, v->marked);
    case EXL2__TEMPLATE_KIND_BOOL:
        return exl2__template_put(r, v->as.integer ? "True" : "False", v->as.integer ? 4 : 5, v->marked);
    case EXL2__TEMPLATE_KIND_INT:
    case EXL2__TEMPLATE_KIND_REAL:
        return exl2__template_put_number(r, v);
    case EXL2__TEMPLATE_KIND_BIG:
        return exl2__template_put_copy(r, v->as.text, v->count);
    case EXL2__TEMPLATE_KIND_TEXT:
        EXL2__TRY(exl2__template_put(r, "Markup(", v->why ? 7 : 0, v->marked));
        EXL2__TRY(exl2__template_put_quoted(r, v));
        return exl2__template_put(r, ")", v->why, v->marked);
    case EXL2__TEMPLATE_KIND_LIST:
    case EXL2__TEMPLATE_KIND_TUPLE:
    case EXL2__TEMPLATE_KIND_DICT:
        break;
    case EXL2__TEMPLATE_KIND_VIEW: {
        static const char *const views[] = { "dict_items(", "dict_keys(", "dict_values(" };
        exl2__template_value list = exl2__template_items(EXL2__TEMPLATE_KIND_LIST, v->as.items, v->count);
        list.marked = v->marked;
        EXL2__TRY(exl2__template_put(r, views[v->why], strlen(views[v->why]), v->marked));
        EXL2__TRY(exl2__template_put_repr(r, &list, depth + 1));
        return exl2__template_put(r, ")", 1, v->marked);
    }
    default:
        return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "printing a %s is not supported", exl2__template_type(v));
    }
    bool dict = v->kind == EXL2__TEMPLATE_KIND_DICT, tuple = v->kind == EXL2__TEMPLATE_KIND_TUPLE;
    EXL2__TRY(exl2__template_put(r, dict ? "{" : tuple ? "(" : "[", 1, v->marked));
    for (uint32_t i = 0; i < v->count; i++) {
        if (i) {
            EXL2__TRY(exl2__template_put(r, ", ", 2, v->marked));
        }
        if (dict) {
            EXL2__TRY(exl2__template_put_repr(r, &v->as.entries[i].key, depth + 1));
            EXL2__TRY(exl2__template_put(r, ": ", 2, v->marked));
        }
        EXL2__TRY(exl2__template_put_repr(r, dict ? &v->as.entries[i].value : &v->as.items[i], depth + 1));
    }
    if (tuple && v->count == 1) {
        EXL2__TRY(exl2__template_put(r, ",", 1, v->marked));
    }
    return exl2__template_put(r, dict ? "}" : tuple ? ")" : "]", 1, v->marked);
}

/* The text that {{ v }} prints. */
EXL2__PRIVATE exl2_result exl2__template_string(exl2__template_run *r, const exl2__template_value *v,
                                                exl2__template_value *out)
{
    size_t start = r->used;
    if (v->kind == EXL2__TEMPLATE_KIND_TEXT) {
        *out = *v;
        return EXL2_OK;
    }
    if (v->kind != EXL2__TEMPLATE_KIND_UNDEFINED) {
        EXL2__TRY(exl2__template_put_repr(r, v, 0));
    }
    *out = exl2__template_written(r, start);
    return EXL2_OK;
}

/* Escapes & < > ' " for HTML; the result is marked as safe. A safe text is not escaped again. */
EXL2__PRIVATE exl2_result exl2__template_escape(exl2__template_run *r, const exl2__template_value *v,
                                                exl2__template_value *out)
{
    static const char *const rows[] = { "&amp;", "&lt;", "&gt;", "&#39;", "&#34;" };
    size_t start = r->used;
    uint32_t plain = 0;
    EXL2__TRY(exl2__template_step(r, v->count / 4 + 1));
    while (!v->why && plain < v->count && !(v->as.text[plain] && strchr("&<>'\"", v->as.text[plain]))) {
        plain++;
    }
    if (v->why || plain == v->count) {
        *out = *v;
        out->why = 1;
        return EXL2_OK;
    }
    EXL2__TRY(exl2__template_put_copy(r, v->as.text, plain));
    for (uint32_t i = plain; i < v->count; i++) {
        const char *at = v->as.text + i, *hit = *at ? strchr("&<>'\"", *at) : NULL;
        if (hit) {
            const char *text = rows[hit - strchr("&<>'\"", '&')];
            EXL2__TRY(exl2__template_put(r, text, strlen(text), exl2__template_marked(r, at)));
        } else {
            EXL2__TRY(exl2__template_put_copy(r, at, 1));
        }
    }
    *out = exl2__template_written(r, start);
    out->why = 1;
    return EXL2_OK;
}

/* a + b. If a ends at the end of the used room, only b is written, so that a chain of + takes linear time. As Markup
   does, a safe text escapes the other one. */
EXL2__PRIVATE exl2_result exl2__template_append(exl2__template_run *r, const exl2__template_value *a,
                                                const exl2__template_value *b, exl2__template_value *out)
{
    exl2__template_value escaped;
    if (a->why != b->why) {
        EXL2__TRY(exl2__template_escape(r, a->why ? b : a, &escaped));
        b = a->why ? &escaped : b;
        a = a->why ? a : &escaped;
    }
    size_t start = r->used;
    uint64_t bytes = (uint64_t)a->count + b->count;
    if (a->count && a->as.text + a->count == (const char *)r->block + r->used && exl2__template_owned(r, a->as.text)) {
        start = (size_t)(a->as.text - (const char *)r->block);
    } else {
        EXL2__TRY(exl2__template_put_copy(r, a->as.text, a->count));
    }
    EXL2__TRY(exl2__template_put_copy(r, b->as.text, b->count));
    bool safe = a->why || b->why;
    *out = exl2__template_text((const char *)r->block + start, (size_t)bytes);
    out->why = safe;
    return EXL2_OK;
}

/* ---- code points ---- */

/* Number of code points. */
EXL2__PRIVATE exl2_result exl2__template_text_length(exl2__template_run *r, const exl2__template_value *v,
                                                     uint32_t *out)
{
    size_t step;
    EXL2__TRY(exl2__template_step(r, v->count / 16 + 1));
    *out = 0;
    for (size_t at = 0; at < v->count; at += step) {
        exl2__template_code_point(v->as.text + at, v->count - at, &step);
        (*out)++;
    }
    return EXL2_OK;
}

/* A list of the code points, each as a text. */
EXL2__PRIVATE exl2_result exl2__template_characters(exl2__template_run *r, const exl2__template_value *v,
                                                    exl2__template_value *out)
{
    uint32_t count = 0;
    size_t step;
    exl2__template_value *items = NULL;
    EXL2__TRY(exl2__template_text_length(r, v, &count));
    EXL2__TRY(exl2__template_alloc_values(r, count, &items));
    for (size_t at = 0, i = 0; at < v->count; at += step, i++) {
        exl2__template_code_point(v->as.text + at, v->count - at, &step);
        items[i] = exl2__template_text(v->as.text + at, step);
        items[i].marked = v->marked;
    }
    *out = exl2__template_items(EXL2__TEMPLATE_KIND_LIST, items, count);
    out->marked = v->marked;
    return EXL2_OK;
}

/* ---- str methods ---- */

EXL2__PRIVATE bool exl2__template_in_set(const char *p, size_t bytes, const exl2__template_value *set)
{
    size_t step;
    for (size_t at = 0; at < set->count; at += step) {
        exl2__template_code_point(set->as.text + at, set->count - at, &step);
        if (step == bytes && memcmp(set->as.text + at, p, bytes) == 0) {
            return true;
        }
    }
    return false;
}

#define EXL2__TEMPLATE_FRONT 1u
#define EXL2__TEMPLATE_BACK 2u

/* Removes the code points of `set` (NULL: white space) at these sides. */
EXL2__PRIVATE exl2_result exl2__template_strip(exl2__template_run *r, const exl2__template_value *v,
                                               const exl2__template_value *set, uint32_t sides,
                                               exl2__template_value *out)
{
    size_t begin = 0, end = v->count, step;
    EXL2__TRY(exl2__template_step(r, v->count / 16 + 1));
    if (!set) {
        begin = sides & EXL2__TEMPLATE_FRONT ? exl2__template_space_front(v->as.text, v->count) : 0;
        end =
            sides & EXL2__TEMPLATE_BACK ? begin + exl2__template_space_back(v->as.text + begin, v->count - begin) : end;
    }
    while (set && (sides & EXL2__TEMPLATE_FRONT) && begin < end) {
        exl2__template_code_point(v->as.text + begin, end - begin, &step);
        EXL2__TRY(exl2__template_step(r, set->count / 16 + 1));
        if (!exl2__template_in_set(v->as.text + begin, step, set)) {
            break;
        }
        begin += step;
    }
    while (set && (sides & EXL2__TEMPLATE_BACK) && begin < end) {
        size_t last = end - 1;
        while (last > begin && end - last < 4 && ((uint8_t)v->as.text[last] & 0xC0) == 0x80) {
            last--;
        }
        EXL2__TRY(exl2__template_step(r, set->count / 16 + 1));
        if (!exl2__template_in_set(v->as.text + last, end - last, set)) {
            break;
        }
        end = last;
    }
    *out = exl2__template_text(v->as.text + begin, end - begin);
    out->marked = v->marked;
    return EXL2_OK;
}

/* *at: offset of the first `part` in v at or after `from`, or v->count + 1 if there is none. `part` is not empty. */
EXL2__PRIVATE exl2_result exl2__template_find(exl2__template_run *r, const exl2__template_value *v,
                                              const exl2__template_value *part, size_t from, size_t *at)
{
    *at = (size_t)v->count + 1;
    while (from + part->count <= v->count) {
        size_t room = v->count - part->count - from + 1; /* only the bytes up to the hit are counted as steps */
        const char *hit = (const char *)memchr(v->as.text + from, part->as.text[0], room);
        EXL2__TRY(exl2__template_step(r, (hit ? (size_t)(hit - v->as.text) - from : room) / 16 + 1));
        if (!hit) {
            return EXL2_OK;
        }
        from = (size_t)(hit - v->as.text);
        EXL2__TRY(exl2__template_step(r, part->count / 16));
        if (memcmp(hit, part->as.text, part->count) == 0) {
            *at = from;
            return EXL2_OK;
        }
        from++;
    }
    return EXL2_OK;
}

/* The pieces between separators (NULL: runs of white space), with at most `limit` cuts. items NULL: only counts. */
EXL2__PRIVATE exl2_result exl2__template_split_pieces(exl2__template_run *r, const exl2__template_value *v,
                                                      const exl2__template_value *separator, uint64_t limit,
                                                      exl2__template_value *items, uint32_t *count)
{
    EXL2__TRY(exl2__template_step(r, separator ? 0 : v->count / 8));
    size_t at = separator ? 0 : exl2__template_space_front(v->as.text, v->count);
    for (*count = 0; separator || at < v->count; (*count)++) {
        size_t end = v->count, next = (size_t)v->count + 1;
        EXL2__TRY(exl2__template_step(r, 1));
        if (*count < limit && separator) {
            EXL2__TRY(exl2__template_find(r, v, separator, at, &end));
            next = end <= v->count ? end + separator->count : end;
            end = end <= v->count ? end : v->count;
        } else if (*count < limit) {
            size_t step;
            for (end = at; end < v->count; end += step) {
                if (exl2__template_space(exl2__template_code_point(v->as.text + end, v->count - end, &step))) {
                    break;
                }
            }
            next = end + exl2__template_space_front(v->as.text + end, v->count - end);
        }
        if (items) {
            items[*count] = exl2__template_text(v->as.text + at, end - at);
            items[*count].marked = v->marked;
        }
        at = next;
        if (at > v->count) {
            (*count)++;
            break;
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_split(exl2__template_run *r, const exl2__template_value *v,
                                               const exl2__template_value *separator, uint64_t limit,
                                               exl2__template_value *out)
{
    uint32_t count = 0;
    exl2__template_value *items = NULL;
    if (separator && separator->count == 0) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "empty separator");
    }
    EXL2__TRY(exl2__template_split_pieces(r, v, separator, limit, NULL, &count));
    EXL2__TRY(exl2__template_alloc_values(r, count, &items));
    EXL2__TRY(exl2__template_split_pieces(r, v, separator, limit, items, &count));
    *out = exl2__template_items(EXL2__TEMPLATE_KIND_LIST, items, count);
    out->marked = v->marked;
    return EXL2_OK;
}

/* Replaces `before` by `after`, at most `limit` times. An empty `before` matches between all code points. */
EXL2__PRIVATE exl2_result exl2__template_replace(exl2__template_run *r, const exl2__template_value *v,
                                                 const exl2__template_value *before, const exl2__template_value *after,
                                                 uint64_t limit, exl2__template_value *out)
{
    size_t start = r->used, at = 0;
    for (; limit > 0; limit--) {
        size_t hit = at;
        if (before->count) {
            EXL2__TRY(exl2__template_find(r, v, before, at, &hit));
            if (hit > v->count) {
                break;
            }
        }
        EXL2__TRY(exl2__template_put_copy(r, v->as.text + at, hit - at));
        EXL2__TRY(exl2__template_put_copy(r, after->as.text, after->count));
        EXL2__TRY(exl2__template_step(r, 1));
        at = hit + before->count;
        if (before->count == 0) {
            size_t step = 0;
            if (at == v->count) {
                break;
            }
            exl2__template_code_point(v->as.text + at, v->count - at, &step);
            EXL2__TRY(exl2__template_put_copy(r, v->as.text + at, step));
            at += step;
        }
    }
    EXL2__TRY(exl2__template_put_copy(r, v->as.text + at, v->count - at));
    *out = exl2__template_written(r, start);
    return EXL2_OK;
}

#endif

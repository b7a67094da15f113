/* grammar_value.h: helpers for all values of a schema: rules for any value, texts of constants, and counts.
   takes: a schema that is being compiled.
   gives: exl2__grammar_value_shared, _call, _list, _mark, _quoted, _escape, _text, _same, _listed,
          _spell, _count_of, _count, _regex, _never. */
#ifndef EXL2__GRAMMAR_VALUE_H
#define EXL2__GRAMMAR_VALUE_H

#include "grammar_range.h"
#include "grammar_types.h"

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_value_regex(exl2__grammar_code *g, const char *regex)
{
    return exl2__grammar_regex_read(g, regex, strlen(regex), true);
}

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_value_quoted(exl2__grammar_code *g, exl2__grammar_code_piece inner)
{
    inner = exl2__grammar_code_cat(g, exl2__grammar_code_word(g, "\""), inner);
    return exl2__grammar_code_cat(g, inner, exl2__grammar_code_word(g, "\""));
}

/* ',' or ':' and an optional space. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_value_mark(exl2__grammar_code *g, char mark)
{
    exl2__grammar_code_piece space = exl2__grammar_code_option(g, exl2__grammar_code_bytes(g, ' ', ' '));
    return exl2__grammar_code_cat(g, exl2__grammar_code_bytes(g, (uint8_t)mark, (uint8_t)mark), space);
}

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_value_call(exl2__grammar_schema *s,
                                                                exl2__grammar_schema_shared which);

/* list: open [item {"," item}] close, with min to max items, each by `rule`. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_value_list(exl2__grammar_code *g, char open, char close,
                                                                uint32_t rule, uint32_t min, uint32_t max)
{
    exl2__grammar_code_piece list = exl2__grammar_code_empty(g);
    if (max > 0) {
        exl2__grammar_code_piece more = exl2__grammar_value_mark(g, ',');
        more = exl2__grammar_code_cat(g, more, exl2__grammar_code_call(g, rule));
        more = exl2__grammar_code_repeat(g, more, min ? min - 1 : 0,
                                         max == EXL2__GRAMMAR_CODE_ENDLESS ? max : max - 1);
        list = exl2__grammar_code_cat(g, exl2__grammar_code_call(g, rule), more);
        list = min ? list : exl2__grammar_code_option(g, list);
    }
    list = exl2__grammar_code_cat(g, exl2__grammar_code_bytes(g, (uint8_t)open, (uint8_t)open), list);
    return exl2__grammar_code_cat(g, list, exl2__grammar_code_bytes(g, (uint8_t)close, (uint8_t)close));
}

/* One code point as a JSON string holds it: as it is, or as any escape. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_value_char(exl2__grammar_code *g)
{
    return exl2__grammar_value_regex(
        g, "[^\"\\\\\\x00-\\x1F]|\\\\([\"\\\\/bfnrt]|u([0-9A-CE-Fa-ce-f][0-9A-Fa-f]{3}|[Dd][0-7][0-9A-Fa-f][0-9A-Fa-f]"
           "|[Dd][89ABab][0-9A-Fa-f][0-9A-Fa-f]\\\\u[Dd][C-Fc-f][0-9A-Fa-f][0-9A-Fa-f]))");
}

/* A rule that many schemas need. It is made at the first call. */
EXL2__PRIVATE uint32_t exl2__grammar_value_shared(exl2__grammar_schema *s, exl2__grammar_schema_shared which)
{
    exl2__grammar_code *g = s->g;
    if (s->shared[which] || g->result < 0) {
        return s->shared[which];
    }
    uint32_t rule = s->shared[which] = exl2__grammar_code_rule(g), item;
    exl2__grammar_range_bound none = { 0 };
    exl2__grammar_code_piece piece = { 0, 0 };
    switch (which) {
    case EXL2__GRAMMAR_SCHEMA_SHARED_CHAR:
        piece = exl2__grammar_value_char(g);
        break;
    case EXL2__GRAMMAR_SCHEMA_SHARED_STRING:
        piece = exl2__grammar_value_quoted(g, exl2__grammar_code_star(g, exl2__grammar_value_char(g), true));
        break;
    case EXL2__GRAMMAR_SCHEMA_SHARED_NUMBER:
        piece = exl2__grammar_range_piece(g, none, none, EXL2__GRAMMAR_RANGE_DIGITS);
        piece = exl2__grammar_code_cat(
            g, piece, exl2__grammar_code_option(g, exl2__grammar_value_regex(g, "[eE][+-]?[0-9][0-9]?")));
        break;
    case EXL2__GRAMMAR_SCHEMA_SHARED_INTEGER:
        piece = exl2__grammar_range_piece(g, none, none, 0);
        break;
    case EXL2__GRAMMAR_SCHEMA_SHARED_ARRAY:
        item = exl2__grammar_value_shared(s, EXL2__GRAMMAR_SCHEMA_SHARED_VALUE); /* recurses once at most */
        piece = exl2__grammar_value_list(g, '[', ']', item, 0, EXL2__GRAMMAR_CODE_ENDLESS);
        break;
    case EXL2__GRAMMAR_SCHEMA_SHARED_OBJECT:
        item = exl2__grammar_code_rule(g);
        exl2__grammar_code_define(
            g, item, exl2__grammar_code_cat(
                         g, exl2__grammar_code_cat(g, exl2__grammar_value_call(s, EXL2__GRAMMAR_SCHEMA_SHARED_STRING),
                                                   exl2__grammar_value_mark(g, ':')),
                         exl2__grammar_value_call(s, EXL2__GRAMMAR_SCHEMA_SHARED_VALUE)));
        piece = exl2__grammar_value_list(g, '{', '}', item, 0, EXL2__GRAMMAR_CODE_ENDLESS);
        break;
    default:
        piece = exl2__grammar_value_regex(g, "true|false|null");
        exl2__grammar_code_or(g, &piece, exl2__grammar_value_call(s, EXL2__GRAMMAR_SCHEMA_SHARED_STRING));
        exl2__grammar_code_or(g, &piece, exl2__grammar_value_call(s, EXL2__GRAMMAR_SCHEMA_SHARED_NUMBER));
        exl2__grammar_code_or(g, &piece, exl2__grammar_value_call(s, EXL2__GRAMMAR_SCHEMA_SHARED_OBJECT));
        exl2__grammar_code_or(g, &piece, exl2__grammar_value_call(s, EXL2__GRAMMAR_SCHEMA_SHARED_ARRAY));
        break;
    }
    exl2__grammar_code_define(g, rule, piece);
    return rule;
}

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_value_call(exl2__grammar_schema *s,
                                                                exl2__grammar_schema_shared which)
{
    return exl2__grammar_code_call(s->g, exl2__grammar_value_shared(s, which));
}

/* ---- constants ---- */

/* Writes a string token as JSON with the fewest escapes. A byte of the string needs at most six bytes. */
EXL2__PRIVATE size_t exl2__grammar_value_escape(const exl2__grammar_schema *s, uint32_t token, char *out)
{
    static const char codes[] = "\b\f\n\r\t\"\\", letters[] = "bfnrt\"\\", digits[] = "0123456789abcdef";
    exl2__json_bytes bytes = exl2__json_bytes_of(&s->j, token);
    size_t used = 0;
    out[used++] = '"';
    for (int next; (next = exl2__json_bytes_next(&bytes)) >= 0;) {
        const char *code = next ? strchr(codes, next) : NULL;
        if (code) {
            out[used++] = '\\';
            out[used++] = letters[code - codes];
        } else if (next < 0x20) {
            memcpy(out + used, "\\u00", 4);
            out[used + 4] = digits[next >> 4];
            out[used + 5] = digits[next & 15];
            used += 6;
        } else {
            out[used++] = (char)next;
        }
    }
    out[used++] = '"';
    return used;
}

/* Writes a value as JSON text, with one space after ',' and ':'. `out` needs six times the bytes of the source. */
EXL2__PRIVATE size_t exl2__grammar_value_text(const exl2__grammar_schema *s, uint32_t token, char *out)
{
    const exl2__json *j = &s->j;
    uint32_t open[EXL2__JSON_DEEP_MAX], left[EXL2__JSON_DEEP_MAX], depth = 0, end = j->tokens[token].after;
    size_t used = 0;
    bool key_done = false;
    for (uint32_t at = token; at < end || depth; ) {
        if (depth && left[depth - 1] == 0) {
            depth--;
            out[used++] = j->tokens[open[depth]].kind == EXL2__JSON_OBJECT ? '}' : ']';
            key_done = false;
            continue;
        }
        const exl2__json_token *t = &j->tokens[at];
        bool in_object = depth && j->tokens[open[depth - 1]].kind == EXL2__JSON_OBJECT;
        if (depth && !key_done) {
            if (left[depth - 1] < j->tokens[open[depth - 1]].count) {
                out[used++] = ',';
                out[used++] = ' ';
            }
            if (in_object) {
                used += exl2__grammar_value_escape(s, at++, out + used);
                out[used++] = ':';
                out[used++] = ' ';
                key_done = true;
                continue;
            }
        }
        key_done = false;
        if (depth) {
            left[depth - 1]--;
        }
        at++;
        if (t->kind == EXL2__JSON_STRING) {
            used += exl2__grammar_value_escape(s, at - 1, out + used);
        } else if (t->kind > EXL2__JSON_STRING) {
            memcpy(out + used, j->text + t->begin, t->end - t->begin);
            used += t->end - t->begin;
        } else {
            out[used++] = t->kind == EXL2__JSON_OBJECT ? '{' : '[';
            open[depth] = at - 1;
            left[depth++] = t->count;
        }
    }
    return used;
}

EXL2__PRIVATE bool exl2__grammar_value_same(const exl2__grammar_schema *s, uint32_t a, uint32_t b)
{
    size_t bytes = exl2__grammar_value_text(s, a, s->buffer);
    char *other = s->buffer + bytes;
    return exl2__grammar_value_text(s, b, other) == bytes && memcmp(s->buffer, other, bytes) == 0;
}

/* The number of values that the part's const or enum lists, or 0; *token: the token of the const or enum, or 0. */
EXL2__PRIVATE uint32_t exl2__grammar_value_count_of(const exl2__grammar_schema *s, uint32_t part, bool is_enum,
                                                    uint32_t *token)
{
    *token = exl2__grammar_schema_get(s, part, is_enum ? "enum" : "const");
    return !*token ? 0 : !is_enum ? 1 : s->j.tokens[*token].kind == EXL2__JSON_ARRAY ? s->j.tokens[*token].count : 0;
}

/* Adds the values of `types` that a const or an enum lists. Writes their texts to `room`, which needs six times the
   bytes of the source. Returns the end of the texts. */
EXL2__PRIVATE char *exl2__grammar_value_spell(exl2__grammar_schema *s, uint32_t token, bool is_enum, uint32_t types,
                                              char *room, exl2__grammar_choice *list)
{
    bool is_list = is_enum && s->j.tokens[token].kind == EXL2__JSON_ARRAY;
    for (uint32_t k = is_list ? exl2__json_first(&s->j, token) : is_enum ? 0 : token; k;
         k = is_list ? exl2__json_next(&s->j, token, k) : 0) {
        if (exl2__grammar_types_value(s, k) & types) {
            size_t bytes = exl2__grammar_value_text(s, k, room);
            exl2__grammar_choice_add(list, room, bytes);
            room += bytes;
        }
    }
    return room;
}

/* The values of `types` that every const and enum of the set lists, sorted. The caller closes the list. */
EXL2__PRIVATE void exl2__grammar_value_listed(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                              uint32_t types, exl2__grammar_choice *list)
{
    char *room = s->buffer;
    bool found = false;
    exl2__grammar_choice_open(s->g, 0, list);
    for (uint32_t i = 0; i < 2 * set->count && s->g->result == EXL2_OK; i++) {
        uint32_t token, count = exl2__grammar_value_count_of(s, set->parts[i / 2].token, i % 2, &token);
        exl2__grammar_choice values;
        if (!token) {
            continue;
        }
        exl2__grammar_choice_open(s->g, count, &values);
        char *end = exl2__grammar_value_spell(s, token, i % 2, types, room, &values);
        exl2__grammar_choice_sort(&values);
        if (found) {
            exl2__grammar_choice_intersect(list, &values);
            exl2__grammar_choice_close(&values);
        } else {
            *list = values;
            room = end;
            found = true;
        }
    }
}

/* ---- counts ---- */

/* The strictest value of a keyword such as minLength: the least if `upper`, otherwise the greatest. */
EXL2__PRIVATE uint32_t exl2__grammar_value_count(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                                 const char *name, bool upper)
{
    uint32_t count = upper ? EXL2__GRAMMAR_CODE_ENDLESS : 0;
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t token = exl2__grammar_schema_get_kind(s, set->parts[i].token, name, EXL2__JSON_NUMBER);
        uint64_t value = 0;
        if (!token) {
            continue;
        }
        if (!exl2__json_u64(&s->j, token, &value)) {
            exl2__grammar_schema_reject(s, EXL2_ERR_FORMAT, token, "a count must be a whole number of at least 0");
        } else if (!upper && value > EXL2__GRAMMAR_CODE_COUNT_MAX) {
            exl2__grammar_schema_reject(s, EXL2_ERR_BUDGET, token, "a minimum count must be at most 1,000,000");
        }
        value = exl2__min64(value, value > EXL2__GRAMMAR_CODE_COUNT_MAX ? EXL2__GRAMMAR_CODE_ENDLESS : value);
        count = upper ? exl2__min32(count, (uint32_t)value) : exl2__max32(count, (uint32_t)value);
    }
    return count;
}

/* A piece that matches nothing. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_value_never(exl2__grammar_code *g)
{
    return exl2__grammar_code_bytes(g, 1, 0);
}

#endif

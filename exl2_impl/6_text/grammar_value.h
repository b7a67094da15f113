/* grammar_value.h: values that schemas describe, but for objects: any value, constants, numbers, strings, arrays.
   takes: expanded sets of subschemas.
   gives: exl2__grammar_value_shared, _call, _text, _constants, _number, _string, _array.
   owns:  nothing.
   next:  grammar_keys.h */
#ifndef EXL2__GRAMMAR_VALUE_H
#define EXL2__GRAMMAR_VALUE_H

#include "grammar_number.h"
#include "grammar_schema.h"

static exl2__grammar_code_piece exl2__grammar_value_regex(exl2__grammar_code *g, const char *regex)
{
    return exl2__grammar_regex_read(g, regex, strlen(regex), true);
}

static exl2__grammar_code_piece exl2__grammar_value_quoted(exl2__grammar_code *g, exl2__grammar_code_piece inner)
{
    inner = exl2__grammar_code_cat(g, exl2__grammar_code_word(g, "\""), inner);
    return exl2__grammar_code_cat(g, inner, exl2__grammar_code_word(g, "\""));
}

/* ',' or ':' and perhaps a space. */
static exl2__grammar_code_piece exl2__grammar_value_mark(exl2__grammar_code *g, char mark)
{
    exl2__grammar_code_piece space = exl2__grammar_code_option(g, exl2__grammar_code_bytes(g, ' ', ' '));
    return exl2__grammar_code_cat(g, exl2__grammar_code_bytes(g, (uint8_t)mark, (uint8_t)mark), space);
}

static exl2__grammar_code_piece exl2__grammar_value_call(exl2__grammar_schema *s, exl2__grammar_schema_shared which);

/* open (item (, item)*) close; min counts items. */
EXL2__COLD
static exl2__grammar_code_piece exl2__grammar_value_list(exl2__grammar_code *g, char open, char close, uint32_t rule,
                                                         uint32_t min, uint32_t max)
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

/* A character as strings hold it, with any escape: one code point. */
static exl2__grammar_code_piece exl2__grammar_value_char(exl2__grammar_code *g)
{
    return exl2__grammar_value_regex(
        g, "[^\"\\\\\\x00-\\x1F]|\\\\([\"\\\\/bfnrt]|u([0-9A-CE-Fa-ce-f][0-9A-Fa-f]{3}|[Dd][0-7][0-9A-Fa-f][0-9A-Fa-f]"
           "|[Dd][89ABab][0-9A-Fa-f][0-9A-Fa-f]\\\\u[Dd][C-Fc-f][0-9A-Fa-f][0-9A-Fa-f]))");
}

/* Rules that many schemas need: made when first asked for. */
EXL2__COLD
static uint32_t exl2__grammar_value_shared(exl2__grammar_schema *s, exl2__grammar_schema_shared which)
{
    exl2__grammar_code *g = s->g;
    if (s->shared[which] || g->result < 0) {
        return s->shared[which];
    }
    uint32_t rule = s->shared[which] = exl2__grammar_code_rule(g), item;
    exl2__grammar_number_bound none = { 0 };
    exl2__grammar_code_piece piece = { 0, 0 };
    switch (which) {
    case EXL2__GRAMMAR_SCHEMA_SHARED_CHAR:
        piece = exl2__grammar_value_char(g);
        break;
    case EXL2__GRAMMAR_SCHEMA_SHARED_STRING:
        piece = exl2__grammar_value_quoted(g, exl2__grammar_code_star(g, exl2__grammar_value_char(g), true));
        break;
    case EXL2__GRAMMAR_SCHEMA_SHARED_NUMBER:
        piece = exl2__grammar_number_piece(g, none, none, false);
        piece = exl2__grammar_code_cat(
            g, piece, exl2__grammar_code_option(g, exl2__grammar_value_regex(g, "[eE][+-]?[0-9][0-9]?")));
        break;
    case EXL2__GRAMMAR_SCHEMA_SHARED_INTEGER:
        piece = exl2__grammar_number_piece(g, none, none, true);
        break;
    case EXL2__GRAMMAR_SCHEMA_SHARED_ARRAY:
        item = exl2__grammar_value_shared(s, EXL2__GRAMMAR_SCHEMA_SHARED_VALUE); /* calls this once at most */
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

static exl2__grammar_code_piece exl2__grammar_value_call(exl2__grammar_schema *s, exl2__grammar_schema_shared which)
{
    return exl2__grammar_code_call(s->g, exl2__grammar_value_shared(s, which));
}

/* ---- constants ---- */

/* The string token as JSON that needs no other escapes than these; at most six bytes for one. */
static size_t exl2__grammar_value_escape(const exl2__grammar_schema *s, uint32_t token, char *out)
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

/* A value as text: containers with one space after , and :. Fits where six times the source fits. */
EXL2__COLD
static size_t exl2__grammar_value_text(const exl2__grammar_schema *s, uint32_t token, char *out)
{
    const exl2__json *j = &s->j;
    uint32_t open[EXL2__JSON_DEPTH_MAX], left[EXL2__JSON_DEPTH_MAX], depth = 0, end = j->tokens[token].after;
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

/* How many values the part's const or enum lists; 0 = it has none. *token: where. */
static uint32_t exl2__grammar_value_count_of(const exl2__grammar_schema *s, uint32_t part, bool is_enum,
                                             uint32_t *token)
{
    *token = exl2__grammar_schema_get(s, part, is_enum ? "enum" : "const");
    return !*token ? 0 : !is_enum ? 1 : s->j.tokens[*token].kind == EXL2__JSON_ARRAY ? s->j.tokens[*token].count : 0;
}

/* Adds the texts of the values of `types` that a const or an enum lists, written to `room`, of six times the source.
   Returns where they end. */
EXL2__COLD
static char *exl2__grammar_value_spell(exl2__grammar_schema *s, uint32_t token, bool is_enum, uint32_t types,
                                       char *room, exl2__grammar_choice *list)
{
    bool is_list = is_enum && s->j.tokens[token].kind == EXL2__JSON_ARRAY;
    for (uint32_t k = is_list ? exl2__json_first(&s->j, token) : is_enum ? 0 : token; k;
         k = is_list ? exl2__json_next(&s->j, token, k) : 0) {
        if (exl2__grammar_schema_type_of(s, k) & types) {
            size_t bytes = exl2__grammar_value_text(s, k, room);
            exl2__grammar_choice_add(list, room, bytes);
            room += bytes;
        }
    }
    return room;
}

/* The values of `types` that all the consts and enums of the set list, sorted. The list is the caller's to close. */
EXL2__COLD
static void exl2__grammar_value_listed(exl2__grammar_schema *s, const exl2__grammar_schema_set *set, uint32_t types,
                                       exl2__grammar_choice *list)
{
    char *room = s->buffer;
    bool found = false;
    exl2__grammar_choice_open(s->g, 0, list);
    for (uint32_t i = 0; i < 2 * set->count && s->g->result == EXL2_OK; i++) {
        uint32_t token, count = exl2__grammar_value_count_of(s, set->parts[i / 2] / 4, i % 2, &token);
        exl2__grammar_choice values;
        if (!token) {
            continue;
        }
        exl2__grammar_choice_open(s->g, count, &values);
        char *end = exl2__grammar_value_spell(s, token, i % 2, types, room, &values);
        exl2__grammar_choice_sort(&values);
        if (found) {
            exl2__grammar_choice_meet(list, &values);
            exl2__grammar_choice_close(&values);
        } else {
            *list = values;
            room = end;
            found = true;
        }
    }
}

/* Values that const or enum list; false: the set lists none. */
EXL2__COLD
static bool exl2__grammar_value_constants(exl2__grammar_schema *s, const exl2__grammar_schema_set *set, uint32_t types,
                                          exl2__grammar_code_piece *out)
{
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t part = set->parts[i] / 4, one = exl2__grammar_schema_get(s, part, "const");
        uint32_t list = exl2__grammar_schema_get(s, part, "enum");
        if (!one && !list) {
            continue;
        }
        for (uint32_t k = 0; k < set->count; k++) { /* other keywords about their types would have to be checked */
            for (size_t w = 0; w < EXL2__COUNT(exl2__grammar_schema_keywords); w++) {
                const exl2__grammar_schema_keyword *word = &exl2__grammar_schema_keywords[w];
                uint32_t value = exl2__grammar_schema_get(s, set->parts[k] / 4, word->name);
                if (value && (word->types & types)) {
                    exl2__grammar_schema_refuse(s, EXL2_ERR_UNSUPPORTED, value - 1,
                                                "a keyword that is not supported beside enum or const");
                }
            }
        }
        exl2__grammar_choice values;
        exl2__grammar_value_listed(s, set, types, &values);
        *out = exl2__grammar_choice_piece(&values);
        exl2__grammar_choice_close(&values);
        return true;
    }
    return false;
}

/* ---- numbers ---- */

/* Is bound a stricter than b? */
static bool exl2__grammar_value_stricter(const exl2__grammar_number_bound *a, const exl2__grammar_number_bound *b,
                                         bool upper)
{
    if (!b->present || a->negative != b->negative) {
        return !b->present || a->negative == upper;
    }
    int order = a->digits != b->digits ? (a->digits < b->digits ? -1 : 1) : memcmp(a->whole, b->whole, a->digits);
    order = order ? order : memcmp(a->part, b->part, sizeof a->part);
    order = a->negative ? -order : order;
    return order == 0 ? a->exclusive && !b->exclusive : (order < 0) == upper;
}

static exl2__grammar_code_piece exl2__grammar_value_number(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                                           bool integer)
{
    static const char *const names[] = { "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum" };
    exl2__grammar_number_bound bounds[2] = { { 0 } };
    for (uint32_t i = 0; i < set->count; i++) {
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t token =
                exl2__grammar_schema_get_kind(s, set->parts[i] / 4, names[k], EXL2__JSON_NUMBER);
            exl2__json_number n;
            exl2__grammar_number_bound bound;
            if (!token || !exl2__json_number_of(&s->j, token, &n)) {
                continue;
            }
            bool upper = k >= 2, huge = n.exponent >= 0;
            if (exl2__grammar_number_set(&bound, &n, k & 1)) {
                if (exl2__grammar_value_stricter(&bound, &bounds[upper], upper)) {
                    bounds[upper] = bound;
                }
            } else if (!huge || n.negative == upper) { /* beyond all numbers of 15 digits, a bound says nothing */
                exl2__grammar_schema_refuse(s, EXL2_ERR_UNSUPPORTED, token, "a bound of more than 15 digits");
            }
        }
    }
    if (!bounds[0].present && !bounds[1].present) {
        return exl2__grammar_value_call(
            s, integer ? EXL2__GRAMMAR_SCHEMA_SHARED_INTEGER : EXL2__GRAMMAR_SCHEMA_SHARED_NUMBER);
    }
    return exl2__grammar_number_piece(s->g, bounds[0], bounds[1], integer);
}

/* ---- counts, strings, arrays ---- */

/* The strictest of a keyword that counts. */
static uint32_t exl2__grammar_value_count(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                          const char *name, bool upper)
{
    uint32_t count = upper ? EXL2__GRAMMAR_CODE_ENDLESS : 0;
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t token = exl2__grammar_schema_get_kind(s, set->parts[i] / 4, name, EXL2__JSON_NUMBER);
        uint64_t value = 0;
        if (!token) {
            continue;
        }
        if (!exl2__json_u64(&s->j, token, &value)) {
            exl2__grammar_schema_refuse(s, EXL2_ERR_FORMAT, token, "a count must be a whole number, 0 or more");
        } else if (!upper && value > EXL2__GRAMMAR_CODE_COUNT_MAX) {
            exl2__grammar_schema_refuse(s, EXL2_ERR_BUDGET, token, "a least count may be at most 1,000,000");
        }
        value = exl2__min64(value, value > EXL2__GRAMMAR_CODE_COUNT_MAX ? EXL2__GRAMMAR_CODE_ENDLESS : value);
        count = upper ? exl2__min32(count, (uint32_t)value) : exl2__max32(count, (uint32_t)value);
    }
    return count;
}

/* Nothing at all matches. */
static exl2__grammar_code_piece exl2__grammar_value_never(exl2__grammar_code *g)
{
    return exl2__grammar_code_bytes(g, 1, 0);
}

static const char *exl2__grammar_value_format(const exl2__grammar_schema *s, uint32_t format)
{
#define D "(0[1-9]|1[0-9]|2[0-8])"
#define T "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define Y "(19|20)[0-9][0-9]-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-" D ")"
    static const char *const formats[][2] = {
        { "date-time", Y "T" T }, { "date", Y }, { "time", T },
        { "uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}" },
        { "email", "[a-z0-9_]([a-z0-9._+-]{0,30}[a-z0-9_])?@([a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?\\.){1,3}[a-z]{2,10}" },
    };
#undef D
#undef T
#undef Y
    for (size_t i = 0; i < EXL2__COUNT(formats); i++) {
        if (exl2__json_is(&s->j, format, formats[i][0])) {
            return formats[i][1];
        }
    }
    return NULL;
}

EXL2__COLD
static exl2__grammar_code_piece exl2__grammar_value_string(exl2__grammar_schema *s, const exl2__grammar_schema_set *set)
{
    exl2__grammar_code *g = s->g;
    uint32_t min = exl2__grammar_value_count(s, set, "minLength", false);
    uint32_t max = exl2__grammar_value_count(s, set, "maxLength", true), shape = 0;
    bool pattern = false;
    for (uint32_t i = 0; i < set->count; i++) {
        for (uint32_t k = 0; k < 2; k++) {
            uint32_t token = exl2__grammar_schema_get_kind(s, set->parts[i] / 4, k ? "pattern" : "format",
                                                           EXL2__JSON_STRING);
            if (token && (shape || min || max != EXL2__GRAMMAR_CODE_ENDLESS)) {
                exl2__grammar_schema_refuse(s, EXL2_ERR_UNSUPPORTED, token,
                                            "pattern and format are supported alone, not with each other or a length");
            }
            pattern = token ? k == 1 : pattern;
            shape = token ? token : shape;
        }
    }
    if (min > max) {
        return exl2__grammar_value_never(g);
    }
    if (!shape && min == 0 && max == EXL2__GRAMMAR_CODE_ENDLESS) {
        return exl2__grammar_value_call(s, EXL2__GRAMMAR_SCHEMA_SHARED_STRING);
    }
    if (!shape) {
        exl2__grammar_code_piece one = exl2__grammar_value_call(s, EXL2__GRAMMAR_SCHEMA_SHARED_CHAR);
        return exl2__grammar_value_quoted(g, exl2__grammar_code_repeat(g, one, min, max));
    }
    const char *text = s->buffer;
    size_t bytes = exl2__json_text(&s->j, shape, s->buffer, SIZE_MAX);
    if (!pattern) {
        text = exl2__grammar_value_format(s, shape);
        if (!text) {
            exl2__grammar_schema_refuse(s, EXL2_ERR_UNSUPPORTED, shape, "an unsupported format");
            return exl2__grammar_value_never(g);
        }
        bytes = strlen(text);
    }
    const char *label = g->label;
    g->label = pattern ? "schema: pattern" : label;
    g->json = true;
    exl2__grammar_code_piece piece = exl2__grammar_regex_read(g, text, bytes, !pattern);
    g->json = false;
    g->label = label;
    return exl2__grammar_value_quoted(g, piece);
}

static exl2__grammar_code_piece exl2__grammar_value_array(exl2__grammar_schema *s, const exl2__grammar_schema_set *set)
{
    exl2__grammar_schema_set items = { { 0 }, 0, false };
    uint32_t min = exl2__grammar_value_count(s, set, "minItems", false);
    uint32_t max = exl2__grammar_value_count(s, set, "maxItems", true);
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t token = exl2__grammar_schema_get(s, set->parts[i] / 4, "items");
        if (token && s->j.tokens[token].kind == EXL2__JSON_ARRAY) {
            exl2__grammar_schema_refuse(s, EXL2_ERR_UNSUPPORTED, token - 1, "a list of schemas in items");
        } else if (token) {
            exl2__grammar_schema_add(s, &items, token * 4);
        }
    }
    if (min > max) {
        return exl2__grammar_value_never(s->g);
    }
    return exl2__grammar_value_list(s->g, '[', ']', exl2__grammar_schema_rule(s, &items), min, max);
}

#endif

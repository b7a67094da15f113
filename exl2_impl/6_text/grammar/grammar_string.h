/* grammar_string.h: strings of a schema, by format, pattern, length, constants and nots, alone or combined.
   takes: expanded sets of subschemas.
   gives: exl2__grammar_string_language, exl2__grammar_string_piece. */
#ifndef EXL2__GRAMMAR_STRING_H
#define EXL2__GRAMMAR_STRING_H

#include "grammar_value.h"

/* A format. `regex` matches texts that every validator accepts, but not all of them; they have `shortest` to `longest`
   characters. `brief` is a simpler expression for fewer texts, used where other conditions must hold as well; NULL: use
   `regex`. */
typedef struct exl2__grammar_string_format_row {
    const char *name, *regex, *brief;
    uint16_t shortest, longest;
} exl2__grammar_string_format_row;

/* Expressions that several formats share. */
#define EXL2__FORMAT_DATE /* years 1900 to 2099, without February 29 */ \
    "(19|20)[0-9][0-9]-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])" \
    "|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
#define EXL2__FORMAT_TIME \
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define EXL2__FORMAT_EMAIL \
    "[a-z0-9_]([a-z0-9._+-]{0,30}[a-z0-9_])?@([a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?\\.){1,3}[a-z]{2,10}"
#define EXL2__FORMAT_HOST \
    "[a-z][a-z0-9]{0,20}(-[a-z0-9]{1,20})?(\\.[a-z][a-z0-9]{0,20}(-[a-z0-9]{1,20})?){0,3}"
#define EXL2__FORMAT_LABEL "[a-z]([a-z0-9]|-[a-z0-9])*" /* one part of a host name */
#define EXL2__FORMAT_BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define EXL2__FORMAT_HEX "[0-9a-f]{1,4}"
#define EXL2__FORMAT_CHAR "([A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-F][0-9A-F])"
#define EXL2__FORMAT_TAIL /* query and fragment */ \
    "(\\?([/?:]|" EXL2__FORMAT_CHAR "){0,60})?(#([/?:]|" EXL2__FORMAT_CHAR "){0,40})?"
#define EXL2__FORMAT_URL \
    "[a-z][a-z0-9+.-]{1,10}://" EXL2__FORMAT_HOST "(:[1-9][0-9]{0,3})?(/(:|" EXL2__FORMAT_CHAR "){0,40}){0,8}"
#define EXL2__FORMAT_URI \
    "(" EXL2__FORMAT_URL "|urn:[a-z0-9]{2,10}:" EXL2__FORMAT_CHAR "{1,50}" \
    "|(mailto|tel):" EXL2__FORMAT_CHAR "{1,60})" EXL2__FORMAT_TAIL
#define EXL2__FORMAT_PATH \
    "/?(" EXL2__FORMAT_CHAR "{1,40}(/(:|" EXL2__FORMAT_CHAR "){1,40}){0,8}/?)?" EXL2__FORMAT_TAIL
#define EXL2__FORMAT_PLAIN_URL "https?://" EXL2__FORMAT_LABEL "\\.[a-z]{2,6}(/[A-Za-z0-9._~-]+)*/?"
#define EXL2__FORMAT_POINTER "(/([A-Za-z0-9_ .-]|~[01]){0,40}){0,9}"
#define EXL2__FORMAT_DAYS /* of a duration: years, months and days */ \
    "([0-9]{1,3}Y([0-9]{1,2}M([0-9]{1,2}D)?)?|[0-9]{1,3}M([0-9]{1,3}D)?|[0-9]{1,4}D)"
#define EXL2__FORMAT_HOURS /* of a duration: hours, minutes and seconds */ \
    "T([0-9]{1,3}H([0-9]{1,2}M([0-9]{1,2}S)?)?|[0-9]{1,4}M([0-9]{1,2}S)?|[0-9]{1,5}S)"

static const exl2__grammar_string_format_row exl2__grammar_string_formats[] = {
    { "date-time", EXL2__FORMAT_DATE "T" EXL2__FORMAT_TIME, NULL, 20, 32 },
    { "date", EXL2__FORMAT_DATE, NULL, 10, 10 },
    { "time", EXL2__FORMAT_TIME, NULL, 9, 21 },
    { "uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", NULL, 36, 36 },
    { "email", EXL2__FORMAT_EMAIL, NULL, 6, 112 },
    { "idn-email", EXL2__FORMAT_EMAIL, NULL, 6, 112 },
    { "hostname", EXL2__FORMAT_HOST, EXL2__FORMAT_LABEL "(\\." EXL2__FORMAT_LABEL ")?", 1, 171 },
    { "idn-hostname", EXL2__FORMAT_HOST, EXL2__FORMAT_LABEL "(\\." EXL2__FORMAT_LABEL ")?", 1, 171 },
    { "ipv4", "(" EXL2__FORMAT_BYTE "\\.){3}" EXL2__FORMAT_BYTE, NULL, 7, 15 },
    { "ipv6",
      "(" EXL2__FORMAT_HEX ":){7}" EXL2__FORMAT_HEX "|(" EXL2__FORMAT_HEX ":){1,6}:(" EXL2__FORMAT_HEX ")?"
      "|(" EXL2__FORMAT_HEX ":){1,4}(:" EXL2__FORMAT_HEX "){2}"
      "|::(" EXL2__FORMAT_HEX "(:" EXL2__FORMAT_HEX "){0,5})?",
      "(" EXL2__FORMAT_HEX ":){7}" EXL2__FORMAT_HEX "|::(" EXL2__FORMAT_HEX ")?", 2, 39 },
    { "uri", EXL2__FORMAT_URI, EXL2__FORMAT_PLAIN_URL, 5, 1460 },
    { "iri", EXL2__FORMAT_URI, EXL2__FORMAT_PLAIN_URL, 5, 1460 },
    { "uri-reference", EXL2__FORMAT_URI "|" EXL2__FORMAT_PATH, EXL2__FORMAT_PLAIN_URL "|[A-Za-z0-9._~/-]*", 0, 1460 },
    { "iri-reference", EXL2__FORMAT_URI "|" EXL2__FORMAT_PATH, EXL2__FORMAT_PLAIN_URL "|[A-Za-z0-9._~/-]*", 0, 1460 },
    { "uri-template", "(/?[A-Za-z0-9._~-]{1,40}|/?\\{[a-z][a-z0-9_]{0,40}\\}){0,9}", "(/?[a-z0-9]+|/\\{[a-z]+\\})*",
      0, 396 },
    { "json-pointer", EXL2__FORMAT_POINTER, "(/[a-z0-9]*)*", 0, 729 },
    { "relative-json-pointer", "(0|[1-9][0-9]{0,2})(#|" EXL2__FORMAT_POINTER ")",
      "(0|[1-9][0-9]?)(#|(/[a-z0-9]*)*)", 1, 732 },
    { "duration", "P(" EXL2__FORMAT_DAYS "(" EXL2__FORMAT_HOURS ")?|" EXL2__FORMAT_HOURS "|[0-9]{1,3}W)", NULL, 3, 22 },
    { "regex", "\\^?(([A-Za-z0-9 _@/:,=-]|\\.|\\\\[.dws]|\\[\\^?[a-z0-9]{1,20}\\])[*+?]?){0,40}\\$?",
      "\\^?[A-Za-z0-9 _@/:,=-]*\\$?", 0, 962 },
};

/* The row of the format that the token names, or NULL. */
EXL2__PRIVATE const exl2__grammar_string_format_row *exl2__grammar_string_format(const exl2__grammar_schema *s,
                                                                                 uint32_t token)
{
    for (size_t i = 0; i < EXL2__COUNT(exl2__grammar_string_formats); i++) {
        if (exl2__json_is(&s->j, token, exl2__grammar_string_formats[i].name)) {
            return &exl2__grammar_string_formats[i];
        }
    }
    return NULL;
}

/* The part's format or pattern, or 0. An unknown format is ignored, or rejected if `strict`. */
EXL2__PRIVATE uint32_t exl2__grammar_string_shape(exl2__grammar_schema *s, uint32_t part, bool pattern)
{
    uint32_t token = exl2__grammar_schema_get_kind(s, part, pattern ? "pattern" : "format", EXL2__JSON_STRING);
    if (!token || pattern || exl2__grammar_string_format(s, token)) {
        return token;
    }
    if (s->strict) {
        exl2__grammar_schema_reject(s, EXL2_ERR_UNSUPPORTED, token, "the format is not supported");
    }
    return 0;
}

/* ---- languages ---- */

/* Adds to *w, by `role`, the strings of an enum or of a list of keys; with `one`, a single string. */
EXL2__PRIVATE void exl2__grammar_string_choice(exl2__grammar_schema *s, exl2__grammar_product *w, uint32_t list,
                                               bool one, exl2__grammar_product_role role)
{
    exl2__grammar_code code;
    exl2__grammar_choice texts;
    char *room = s->buffer;
    if (s->g->result < 0) {
        return;
    }
    w->g->work += 20;
    s->g->result = exl2__grammar_code_open(s->g->c, &code, s->g->label);
    exl2__grammar_choice_open(&code, one ? 1 : s->j.tokens[list].count, &texts);
    for (uint32_t k = one ? list : exl2__json_first(&s->j, list); k; k = one ? 0 : exl2__json_next(&s->j, list, k)) {
        if (s->j.tokens[k].kind == EXL2__JSON_STRING) {
            size_t bytes = exl2__json_text(&s->j, k, room, SIZE_MAX);
            exl2__grammar_choice_add(&texts, room, bytes);
            room += bytes;
        }
    }
    exl2__grammar_choice_sort(&texts);
    uint32_t count = texts.count;
    exl2__grammar_code_define(&code, exl2__grammar_code_rule(&code), exl2__grammar_choice_piece(&texts));
    exl2__grammar_choice_close(&texts);
    if (count || code.result < 0) {
        exl2__grammar_product_add(w, &code, role);
        return;
    }
    w->max = role == EXL2__GRAMMAR_PRODUCT_MUST ? 0 : w->max; /* min > max: the language is empty */
    w->min = role == EXL2__GRAMMAR_PRODUCT_MUST ? 1 : w->min;
    exl2__grammar_code_close(&code);
}

/* Makes the strings violate one condition of a set that must not hold. The first condition that can be violated is
   chosen. false: there is none. */
EXL2__PRIVATE bool exl2__grammar_string_not(exl2__grammar_schema *s, exl2__grammar_product *w,
                                            const exl2__grammar_schema_set *set)
{
    uint32_t least = exl2__grammar_value_count(s, set, "minLength", false);
    uint32_t most = exl2__grammar_value_count(s, set, "maxLength", true);
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t part = set->parts[i].token, list = exl2__grammar_schema_get(s, part, "enum");
        uint32_t one = exl2__grammar_schema_get(s, part, "const");
        uint32_t pattern = exl2__grammar_string_shape(s, part, true);
        if (list || one) {
            exl2__grammar_string_choice(s, w, one ? one : list, one != 0, EXL2__GRAMMAR_PRODUCT_NOT);
            return true;
        }
        if (pattern) {
            size_t bytes = exl2__json_text(&s->j, pattern, s->buffer, SIZE_MAX);
            exl2__grammar_product_regex(w, s->buffer, bytes, false, true, EXL2__GRAMMAR_PRODUCT_NOT);
            return true;
        }
    }
    if (most != EXL2__GRAMMAR_CODE_ENDLESS) {
        w->min = exl2__max32(w->min, most + 1);
    } else if (least > 0) {
        w->max = exl2__min32(w->max, least - 1);
    }
    return most != EXL2__GRAMMAR_CODE_ENDLESS || least > 0;
}

/* Limits texts to characters on which all dialects agree. Languages that consist only of nots need this. */
EXL2__PRIVATE void exl2__grammar_string_plain(exl2__grammar_product *w)
{
    static const char plain[] = "[^\\x00-\\x1F\\x7F\\u2028\\u2029]*";
    exl2__grammar_product_regex(w, plain, sizeof plain - 1, true, false, EXL2__GRAMMAR_PRODUCT_MUST);
}

/* Adds all conditions of the set on strings. */
EXL2__PRIVATE void exl2__grammar_string_language(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                                 exl2__grammar_product *w)
{
    const char *label = s->g->label;
    w->min = exl2__max32(w->min, exl2__grammar_value_count(s, set, "minLength", false));
    w->max = exl2__min32(w->max, exl2__grammar_value_count(s, set, "maxLength", true));
    for (uint32_t i = 0; i < set->count && s->g->result == EXL2_OK; i++) {
        uint32_t part = set->parts[i].token, list = exl2__grammar_schema_get(s, part, "enum");
        uint32_t one = exl2__grammar_schema_get(s, part, "const");
        if (list || one) {
            exl2__grammar_string_choice(s, w, one ? one : list, one != 0, EXL2__GRAMMAR_PRODUCT_MUST);
        }
        for (uint32_t pattern = 0; pattern < 2; pattern++) {
            uint32_t shape = exl2__grammar_string_shape(s, part, pattern);
            if (shape && pattern) {
                size_t bytes = exl2__json_text(&s->j, shape, s->buffer, SIZE_MAX);
                s->g->label = "schema: pattern";
                exl2__grammar_product_pattern(w, s->buffer, bytes, s->buffer + bytes);
                s->g->label = label;
            } else if (shape) {
                const exl2__grammar_string_format_row *format = exl2__grammar_string_format(s, shape);
                const char *text = format->brief ? format->brief : format->regex;
                exl2__grammar_product_regex(w, text, strlen(text), true, false, EXL2__GRAMMAR_PRODUCT_MUST);
            }
        }
    }
    for (uint32_t i = 0; i < set->not_count && s->g->result == EXL2_OK; i++) {
        exl2__grammar_schema_set other;
        uint32_t types = exl2__grammar_types_not(s, set->nots[i], EXL2__GRAMMAR_SCHEMA_STRING, &other);
        if (types && !exl2__grammar_string_not(s, w, &other)) {
            exl2__grammar_types_reject_not(s, set->nots[i]);
        } else if (types && exl2__grammar_types_conditions(s, &other, EXL2__GRAMMAR_SCHEMA_STRING) > 1) {
            exl2__grammar_types_doubt_not(s, set->nots[i]);
        }
    }
    bool plain = w->count == 0;
    for (uint32_t i = 0; i < w->count; i++) {
        plain = plain || w->parts[i].role != EXL2__GRAMMAR_PRODUCT_MUST;
    }
    if (plain) {
        exl2__grammar_string_plain(w);
    }
}

/* ---- strings ---- */

/* A string of one format or pattern, and any length. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_string_one(exl2__grammar_schema *s, uint32_t shape, bool pattern)
{
    exl2__grammar_code *g = s->g;
    const char *text = pattern ? s->buffer : exl2__grammar_string_format(s, shape)->regex, *label = g->label;
    size_t bytes = pattern ? exl2__json_text(&s->j, shape, s->buffer, SIZE_MAX) : strlen(text);
    g->label = pattern ? "schema: pattern" : label;
    g->json = true;
    exl2__grammar_code_piece piece = exl2__grammar_regex_read(g, text, bytes, !pattern);
    g->json = false;
    g->label = label;
    return exl2__grammar_value_quoted(g, piece);
}

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_string_piece(exl2__grammar_schema *s,
                                                                  const exl2__grammar_schema_set *set)
{
    exl2__grammar_code *g = s->g;
    uint32_t min = exl2__grammar_value_count(s, set, "minLength", false), shape = 0, shapes = 0, nots = 0;
    uint32_t max = exl2__grammar_value_count(s, set, "maxLength", true);
    bool pattern = false, ahead = false;
    for (uint32_t i = 0; i < set->count; i++) {
        for (uint32_t k = 0; k < 2; k++) {
            uint32_t token = exl2__grammar_string_shape(s, set->parts[i].token, k);
            shapes += token != 0;
            pattern = token ? k == 1 : pattern;
            shape = token ? token : shape;
        }
    }
    for (uint32_t i = 0; i < set->not_count; i++) {
        exl2__grammar_schema_set other;
        nots += exl2__grammar_types_not(s, set->nots[i], EXL2__GRAMMAR_SCHEMA_STRING, &other) != 0;
    }
    if (shapes == 1 && !pattern && s->g->result == EXL2_OK) { /* drop limits that the format implies */
        const exl2__grammar_string_format_row *format = exl2__grammar_string_format(s, shape);
        min = min <= format->shortest ? 0 : min;
        max = max >= format->longest ? EXL2__GRAMMAR_CODE_ENDLESS : max;
    }
    const exl2__json_token *t = &s->j.tokens[shape];
    for (uint32_t i = t->begin; shape && pattern && i + 2 < t->end; i++) {
        ahead = ahead || (s->j.text[i] == '(' && s->j.text[i + 1] == '?' && strchr("=!", s->j.text[i + 2]));
    }
    if (min > max || g->result < 0) {
        return exl2__grammar_value_never(g);
    }
    if (shapes == 0 && nots == 0 && min == 0 && max == EXL2__GRAMMAR_CODE_ENDLESS) {
        return exl2__grammar_value_call(s, EXL2__GRAMMAR_SCHEMA_SHARED_STRING);
    }
    if (shapes == 0 && nots == 0) {
        exl2__grammar_code_piece one = exl2__grammar_value_call(s, EXL2__GRAMMAR_SCHEMA_SHARED_CHAR);
        return exl2__grammar_value_quoted(g, exl2__grammar_code_repeat(g, one, min, max));
    }
    if (shapes == 1 && nots == 0 && min == 0 && max == EXL2__GRAMMAR_CODE_ENDLESS && !ahead) {
        return exl2__grammar_string_one(s, shape, pattern);
    }
    exl2__grammar_product w;
    exl2__grammar_product_open(g, s->vocab, &w);
    exl2__grammar_string_language(s, set, &w);
    exl2__grammar_code_piece piece = exl2__grammar_product_piece(&w, true);
    exl2__grammar_product_close(&w);
    return exl2__grammar_value_quoted(g, piece);
}

#endif

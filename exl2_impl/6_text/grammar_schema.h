/* grammar_schema.h: JSON schema -> an automaton: schemas are read as sets of parts that must all hold, one rule a set.
   takes: untrusted JSON.
   gives: exl2__grammar_schema and what grammar_value.h builds on: sets, keywords, types; exl2__grammar_schema_rule.
   owns:  nothing; grammar_value.h opens and closes it.
   next:  grammar_value.h */
#ifndef EXL2__GRAMMAR_SCHEMA_H
#define EXL2__GRAMMAR_SCHEMA_H

#include "../1_load/json.h"
#include "grammar_ebnf.h"

#define EXL2__GRAMMAR_SCHEMA_PARTS_MAX 64u
#define EXL2__GRAMMAR_SCHEMA_BRANCHES_MAX 256u

typedef enum exl2__grammar_schema_type { /* bits */
    EXL2__GRAMMAR_SCHEMA_NULL = 1,
    EXL2__GRAMMAR_SCHEMA_BOOLEAN = 2,
    EXL2__GRAMMAR_SCHEMA_INTEGER = 4,
    EXL2__GRAMMAR_SCHEMA_FRACTION = 8, /* numbers that are no integers */
    EXL2__GRAMMAR_SCHEMA_STRING = 16,
    EXL2__GRAMMAR_SCHEMA_ARRAY = 32,
    EXL2__GRAMMAR_SCHEMA_OBJECT = 64,
    EXL2__GRAMMAR_SCHEMA_NUMBER = 12,
    EXL2__GRAMMAR_SCHEMA_ANY = 127
} exl2__grammar_schema_type;

/* Tokens of subschemas, ascending; the low bits say which of its branches another part stands for. */
typedef struct exl2__grammar_schema_set {
    uint32_t parts[EXL2__GRAMMAR_SCHEMA_PARTS_MAX]; /* token * 4 + 1 (anyOf is chosen) + 2 (oneOf is) */
    uint32_t count;
    bool never; /* a part is `false` */
} exl2__grammar_schema_set;

typedef enum exl2__grammar_schema_shared {
    EXL2__GRAMMAR_SCHEMA_SHARED_CHAR,
    EXL2__GRAMMAR_SCHEMA_SHARED_STRING,
    EXL2__GRAMMAR_SCHEMA_SHARED_NUMBER,
    EXL2__GRAMMAR_SCHEMA_SHARED_INTEGER,
    EXL2__GRAMMAR_SCHEMA_SHARED_VALUE,
    EXL2__GRAMMAR_SCHEMA_SHARED_OBJECT,
    EXL2__GRAMMAR_SCHEMA_SHARED_ARRAY,
    EXL2__GRAMMAR_SCHEMA_SHARED_COUNT
} exl2__grammar_schema_shared;

typedef struct exl2__grammar_schema_made {
    uint32_t hash, rule, parts, count; /* parts: where in `pool` */
} exl2__grammar_schema_made;

typedef struct exl2__grammar_schema {
    exl2__grammar_code *g;
    exl2__json j;
    char *buffer;                      /* room for the source's longest string, escaped again, or number */
    uint32_t shared[EXL2__GRAMMAR_SCHEMA_SHARED_COUNT]; /* rule; 0 = not made */
    exl2__grammar_schema_made *made;   /* sets that have a rule, in the order in which they were asked for */
    uint32_t *pool;
    uint32_t made_count, made_room, pool_used, pool_room;
} exl2__grammar_schema;

typedef struct exl2__grammar_schema_keyword {
    const char *name;
    uint32_t types; /* that it is about; 0: about all, or an annotation */
} exl2__grammar_schema_keyword;

static const exl2__grammar_schema_keyword exl2__grammar_schema_keywords[] = {
    { "type", 0 }, { "enum", 0 }, { "const", 0 }, { "anyOf", 0 }, { "oneOf", 0 }, { "allOf", 0 }, { "$ref", 0 },
    { "$defs", 0 }, { "definitions", 0 }, { "title", 0 }, { "description", 0 }, { "default", 0 }, { "examples", 0 },
    { "$schema", 0 }, { "$id", 0 }, { "$comment", 0 }, { "deprecated", 0 }, { "readOnly", 0 }, { "writeOnly", 0 },
    { "properties", EXL2__GRAMMAR_SCHEMA_OBJECT }, { "required", EXL2__GRAMMAR_SCHEMA_OBJECT },
    { "additionalProperties", EXL2__GRAMMAR_SCHEMA_OBJECT }, { "items", EXL2__GRAMMAR_SCHEMA_ARRAY },
    { "minItems", EXL2__GRAMMAR_SCHEMA_ARRAY }, { "maxItems", EXL2__GRAMMAR_SCHEMA_ARRAY },
    { "minLength", EXL2__GRAMMAR_SCHEMA_STRING }, { "maxLength", EXL2__GRAMMAR_SCHEMA_STRING },
    { "pattern", EXL2__GRAMMAR_SCHEMA_STRING }, { "format", EXL2__GRAMMAR_SCHEMA_STRING },
    { "minimum", EXL2__GRAMMAR_SCHEMA_NUMBER }, { "maximum", EXL2__GRAMMAR_SCHEMA_NUMBER },
    { "exclusiveMinimum", EXL2__GRAMMAR_SCHEMA_NUMBER }, { "exclusiveMaximum", EXL2__GRAMMAR_SCHEMA_NUMBER },
};

/* Refuses the schema because of `token`; the first refusal stays. */
EXL2__COLD
static void exl2__grammar_schema_refuse(exl2__grammar_schema *s, exl2_result code, uint32_t token, const char *what)
{
    if (s->g->result == EXL2_OK) {
        const exl2__json_token *t = &s->j.tokens[token];
        uint32_t bytes = t->end - t->begin;
        bytes = bytes > 60 ? (uint32_t)exl2__utf8_cut(s->j.text + t->begin, 60) : bytes;
        uint32_t line, column;
        exl2__unicode_place(s->j.text, t->begin, &line, &column);
        s->g->result = exl2__fail(s->g->c, code, "%s line %u, column %u: %s: %.*s", s->g->label, line, column, what,
                                  (int)bytes, s->j.text + t->begin);
    }
}

/* The keyword's value in a subschema, or 0; null is a value here. */
static uint32_t exl2__grammar_schema_get(const exl2__grammar_schema *s, uint32_t object, const char *key)
{
    if (s->j.tokens[object].kind != EXL2__JSON_OBJECT) {
        return 0;
    }
    for (uint32_t k = exl2__json_first(&s->j, object); k; k = exl2__json_next(&s->j, object, k)) {
        if (exl2__json_is(&s->j, k, key)) {
            return k + 1;
        }
    }
    return 0;
}

/* As _get, refusing a value that is not of `kind`. */
static uint32_t exl2__grammar_schema_get_kind(exl2__grammar_schema *s, uint32_t object, const char *key,
                                              exl2__json_kind kind)
{
    uint32_t value = exl2__grammar_schema_get(s, object, key);
    if (value && s->j.tokens[value].kind != kind) {
        exl2__grammar_schema_refuse(s, EXL2_ERR_FORMAT, value - 1, "a keyword's value is of the wrong type");
        return 0;
    }
    return value;
}

/* ---- references ---- */

static bool exl2__grammar_schema_step_is(const exl2__grammar_schema *s, uint32_t key, const char *step, uint32_t bytes)
{
    exl2__json_bytes name = exl2__json_bytes_of(&s->j, key);
    uint32_t at = 0;
    for (int next; (next = exl2__json_bytes_next(&name)) >= 0;) {
        if (at == bytes) {
            return false;
        }
        char c = step[at++];
        if (c == '%' && bytes - at >= 2) {
            c = (char)(exl2__json_scan_hex((uint8_t)step[at]) << 4 | exl2__json_scan_hex((uint8_t)step[at + 1]));
            at += 2;
        }
        if (c == '~' && at < bytes) {
            c = step[at++] == '1' ? '/' : '~';
        }
        if (c != (char)next) {
            return false;
        }
    }
    return at == bytes;
}

/* What "#/$defs/x" names, or UINT32_MAX. */
EXL2__COLD
static uint32_t exl2__grammar_schema_target(exl2__grammar_schema *s, uint32_t ref)
{
    uint32_t bytes = (uint32_t)exl2__json_text(&s->j, ref, s->buffer, SIZE_MAX), at = 0;
    if (s->j.tokens[ref].kind != EXL2__JSON_STRING || bytes == 0 || s->buffer[0] != '#'
        || (bytes > 1 && s->buffer[1] != '/')) {
        exl2__grammar_schema_refuse(s, EXL2_ERR_UNSUPPORTED, ref, "a $ref that is no path in this schema, #/...");
        return UINT32_MAX;
    }
    for (uint32_t i = 1; i < bytes;) {
        uint32_t end = ++i, found = 0;
        while (end < bytes && s->buffer[end] != '/') {
            end++;
        }
        exl2__json_kind kind = s->j.tokens[at].kind;
        uint32_t child = kind == EXL2__JSON_OBJECT || kind == EXL2__JSON_ARRAY ? exl2__json_first(&s->j, at) : 0;
        uint64_t index = 0;
        for (uint32_t k = i; k < end; k++) {
            index = (uint8_t)(s->buffer[k] - '0') < 10 ? index * 10 + (uint64_t)(s->buffer[k] - '0') : UINT32_MAX;
        }
        for (; child && !found; child = exl2__json_next(&s->j, at, child)) {
            if (kind == EXL2__JSON_OBJECT) {
                found = exl2__grammar_schema_step_is(s, child, s->buffer + i, end - i) ? child + 1 : 0;
            } else {
                found = index-- == 0 ? child : 0;
            }
        }
        if (!found) {
            exl2__grammar_schema_refuse(s, EXL2_ERR_FORMAT, ref, "a $ref to something that is not there");
            return UINT32_MAX;
        }
        at = found;
        i = end;
    }
    return at;
}

/* ---- sets ---- */

EXL2__COLD
static void exl2__grammar_schema_add(exl2__grammar_schema *s, exl2__grammar_schema_set *set, uint32_t part)
{
    uint32_t at = 0;
    while (at < set->count && set->parts[at] / 4 < part / 4) {
        at++;
    }
    if (at < set->count && set->parts[at] / 4 == part / 4) {
        set->parts[at] |= part;
        return;
    }
    if (set->count == EXL2__GRAMMAR_SCHEMA_PARTS_MAX) {
        exl2__grammar_schema_refuse(s, EXL2_ERR_BUDGET, part / 4, "more than 64 subschemas that must hold together");
        return;
    }
    memmove(set->parts + at + 1, set->parts + at, (set->count - at) * sizeof *set->parts);
    set->parts[at] = part;
    set->count++;
}

static void exl2__grammar_schema_check(exl2__grammar_schema *s, uint32_t object)
{
    for (uint32_t k = exl2__json_first(&s->j, object); k; k = exl2__json_next(&s->j, object, k)) {
        bool known = false;
        for (size_t i = 0; i < EXL2__COUNT(exl2__grammar_schema_keywords) && !known; i++) {
            known = exl2__json_is(&s->j, k, exl2__grammar_schema_keywords[i].name);
        }
        bool off = exl2__json_is(&s->j, k, "uniqueItems") && s->j.tokens[k + 1].kind == EXL2__JSON_FALSE;
        if (!known && !off) {
            exl2__grammar_schema_refuse(s, EXL2_ERR_UNSUPPORTED, k, "an unsupported keyword");
        }
    }
}

/* Follows $ref and allOf, and drops parts that say nothing, until the set holds all that it stands for. Depth first:
   after what a part refers to, a mark (bit 31) says that the part is done; one that is met before has led back to
   itself. */
EXL2__COLD
static void exl2__grammar_schema_expand(exl2__grammar_schema *s, exl2__grammar_schema_set *set)
{
    exl2__grammar_schema_set done = { { 0 }, 0, set->never };
    uint32_t todo[EXL2__GRAMMAR_SCHEMA_BRANCHES_MAX + EXL2__GRAMMAR_SCHEMA_PARTS_MAX], count = 0;
    uint32_t begun[EXL2__GRAMMAR_SCHEMA_PARTS_MAX], begun_count = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        todo[count++] = set->parts[i];
    }
    while (count && s->g->result == EXL2_OK) {
        uint32_t part = todo[--count], token = part / 4, before = done.count;
        if (part >> 31) {
            begun_count--;
            continue;
        }
        exl2__json_kind kind = s->j.tokens[token].kind;
        done.never = done.never || kind == EXL2__JSON_FALSE;
        if (kind != EXL2__JSON_OBJECT) {
            if (kind != EXL2__JSON_FALSE && kind != EXL2__JSON_TRUE) {
                exl2__grammar_schema_refuse(s, EXL2_ERR_FORMAT, token, "a schema must be an object, true or false");
            }
            continue;
        }
        exl2__grammar_schema_add(s, &done, part);
        uint32_t ref = exl2__grammar_schema_get(s, token, "$ref");
        for (uint32_t i = 0; i < begun_count; i++) {
            if (begun[i] == token) {
                exl2__grammar_schema_refuse(s, EXL2_ERR_FORMAT, ref ? ref : token,
                                            "a $ref that leads back to itself with no value in between");
            }
        }
        if (done.count == before) { /* it was there: so is what it refers to */
            continue;
        }
        exl2__grammar_schema_check(s, token);
        uint32_t all = exl2__grammar_schema_get_kind(s, token, "allOf", EXL2__JSON_ARRAY);
        uint32_t target = ref ? exl2__grammar_schema_target(s, ref) : UINT32_MAX;
        uint32_t children = (all ? s->j.tokens[all].count : 0) + (target != UINT32_MAX);
        if (children >= EXL2__COUNT(todo) - count) {
            exl2__grammar_schema_refuse(s, EXL2_ERR_BUDGET, token, "too many subschemas that must hold together");
            break;
        }
        todo[count++] = 1u << 31;
        begun[begun_count++] = token;
        for (uint32_t k = all ? exl2__json_first(&s->j, all) : 0; k; k = exl2__json_next(&s->j, all, k)) {
            todo[count++] = k * 4;
        }
        if (target != UINT32_MAX) {
            todo[count++] = target * 4;
        }
    }
    *set = done;
}

/* ---- rules ---- */

/* The rule of a set, which is expanded here; it is built later, if it is new. */
EXL2__COLD
static uint32_t exl2__grammar_schema_rule(exl2__grammar_schema *s, exl2__grammar_schema_set *set)
{
    exl2__grammar_schema_expand(s, set);
    if (set->never) {
        set->count = 0;
    }
    uint32_t hash = set->never;
    for (uint32_t i = 0; i < set->count; i++) {
        hash = (hash ^ set->parts[i]) * 0x9E3779B1u;
        hash ^= hash >> 15;
    }
    for (uint32_t i = 0; i < s->made_count; i++) {
        const exl2__grammar_schema_made *made = &s->made[i];
        if (made->hash == hash && made->count == set->count + set->never * 1000
            && memcmp(s->pool + made->parts, set->parts, set->count * sizeof *set->parts) == 0) {
            return made->rule;
        }
    }
    while (s->pool_room - s->pool_used <= set->count && s->g->result == EXL2_OK) { /* there is a pool for none, too */
        void *pool = s->pool;
        exl2__grammar_code_grow(s->g, &pool, &s->pool_room, 1u << 20, sizeof *s->pool, "subschemas");
        s->pool = (uint32_t *)pool;
    }
    if (s->made_count == s->made_room) {
        void *made = s->made;
        exl2__grammar_code_grow(s->g, &made, &s->made_room, EXL2__GRAMMAR_CODE_RULES_MAX, sizeof *s->made,
                                "subschemas");
        s->made = (exl2__grammar_schema_made *)made;
    }
    uint32_t rule = exl2__grammar_code_rule(s->g);
    if (s->g->result == EXL2_OK) {
        exl2__grammar_schema_made made = { hash, rule, s->pool_used, set->count + set->never * 1000 };
        s->made[s->made_count++] = made;
        memcpy(s->pool + s->pool_used, set->parts, set->count * sizeof *set->parts);
        s->pool_used += set->count;
    }
    return rule;
}

/* ---- types ---- */

static uint32_t exl2__grammar_schema_type_named(exl2__grammar_schema *s, uint32_t token)
{
    static const struct { const char *name; uint32_t types; } names[] = {
        { "null", 1 }, { "boolean", 2 }, { "integer", 4 }, { "number", 12 }, { "string", 16 }, { "array", 32 },
        { "object", 64 },
    };
    for (size_t i = 0; i < EXL2__COUNT(names); i++) {
        if (exl2__json_is(&s->j, token, names[i].name)) {
            return names[i].types;
        }
    }
    exl2__grammar_schema_refuse(s, EXL2_ERR_FORMAT, token, "an unknown type");
    return 0;
}

static uint32_t exl2__grammar_schema_type_of(const exl2__grammar_schema *s, uint32_t value)
{
    static const uint8_t types[] = { 64, 32, 16, 12, 2, 2, 1 }; /* by exl2__json_kind */
    int64_t number;
    uint32_t type = types[s->j.tokens[value].kind];
    return type == EXL2__GRAMMAR_SCHEMA_NUMBER && exl2__json_i64(&s->j, value, &number)
        ? EXL2__GRAMMAR_SCHEMA_INTEGER : type == EXL2__GRAMMAR_SCHEMA_NUMBER ? EXL2__GRAMMAR_SCHEMA_FRACTION : type;
}

/* Types that a value of the expanded set may have. Without `type`, keywords about some types allow just these. */
EXL2__COLD
static uint32_t exl2__grammar_schema_types(exl2__grammar_schema *s, const exl2__grammar_schema_set *set)
{
    uint32_t types = EXL2__GRAMMAR_SCHEMA_ANY, about = 0;
    bool said = false;
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t part = set->parts[i] / 4, here = 0;
        uint32_t type = exl2__grammar_schema_get(s, part, "type");
        uint32_t values = exl2__grammar_schema_get_kind(s, part, "enum", EXL2__JSON_ARRAY);
        uint32_t value = exl2__grammar_schema_get(s, part, "const");
        if (type && s->j.tokens[type].kind == EXL2__JSON_ARRAY) {
            for (uint32_t k = exl2__json_first(&s->j, type); k; k = exl2__json_next(&s->j, type, k)) {
                here |= exl2__grammar_schema_type_named(s, k);
            }
        } else if (type) {
            here = exl2__grammar_schema_type_named(s, type);
        }
        types &= type ? here : EXL2__GRAMMAR_SCHEMA_ANY;
        here = value ? exl2__grammar_schema_type_of(s, value) : 0;
        for (uint32_t k = values ? exl2__json_first(&s->j, values) : 0; k; k = exl2__json_next(&s->j, values, k)) {
            here |= exl2__grammar_schema_type_of(s, k);
        }
        types &= value || values ? here : EXL2__GRAMMAR_SCHEMA_ANY;
        said = said || type || value || values;
        for (size_t k = 0; k < EXL2__COUNT(exl2__grammar_schema_keywords); k++) {
            const exl2__grammar_schema_keyword *word = &exl2__grammar_schema_keywords[k];
            about |= word->types && exl2__grammar_schema_get(s, part, word->name) ? word->types : 0;
        }
    }
    return set->never ? 0 : said || !about ? types : types & about;
}

#endif

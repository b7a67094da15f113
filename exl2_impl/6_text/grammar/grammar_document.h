/* grammar_document.h: a JSON schema while it is compiled: its tokens, its sets of subschemas, the table of keywords,
   and the messages about a place in it.
   takes: untrusted JSON.
   gives: exl2__grammar_schema, exl2__grammar_schema_sub, exl2__grammar_schema_set, exl2__grammar_schema_keywords,
          exl2__grammar_schema_message, _reject, _get, _get_kind.
   owns:  nothing; grammar_branch.h opens and closes exl2__grammar_schema. */
#ifndef EXL2__GRAMMAR_DOCUMENT_H
#define EXL2__GRAMMAR_DOCUMENT_H

#include "../../0_base/json/json.h"
#include "grammar_ebnf.h"
#include "grammar_unroll.h"

#define EXL2__GRAMMAR_SCHEMA_PARTS_MAX 64u
#define EXL2__GRAMMAR_SCHEMA_BRANCHES_MAX 256u
#define EXL2__GRAMMAR_SCHEMA_NOTS_MAX 64u

/* Types as bits, so that a schema may allow several. */
typedef enum exl2__grammar_schema_type {
    EXL2__GRAMMAR_SCHEMA_NULL = 1,
    EXL2__GRAMMAR_SCHEMA_BOOLEAN = 2,
    EXL2__GRAMMAR_SCHEMA_INTEGER = 4,
    EXL2__GRAMMAR_SCHEMA_FRACTION = 8, /* numbers that are not integers */
    EXL2__GRAMMAR_SCHEMA_STRING = 16,
    EXL2__GRAMMAR_SCHEMA_ARRAY = 32,
    EXL2__GRAMMAR_SCHEMA_OBJECT = 64,
    EXL2__GRAMMAR_SCHEMA_NUMBER = 12,
    EXL2__GRAMMAR_SCHEMA_ANY = 127
} exl2__grammar_schema_type;

/* A subschema: the JSON token where it begins, and what the compiler has decided about it. All 32 bits are used, so
   that memcmp can compare subschemas. */
typedef struct exl2__grammar_schema_sub {
    uint32_t token : 29;
    uint32_t any_of_done : 1;  /* of a part: a branch of its anyOf has been chosen and is a part of the set, too */
    uint32_t one_of_done : 1;  /* of a part: the same for its oneOf */
    uint32_t other_branch : 1; /* of a not: it is a branch of a oneOf from which another branch has been chosen */
} exl2__grammar_schema_sub;

typedef struct exl2__grammar_schema_set {
    exl2__grammar_schema_sub parts[EXL2__GRAMMAR_SCHEMA_PARTS_MAX]; /* subschemas that must hold, tokens ascending */
    exl2__grammar_schema_sub nots[EXL2__GRAMMAR_SCHEMA_NOTS_MAX];   /* subschemas that must not hold, ascending */
    uint32_t count, not_count;
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
    uint32_t hash, rule, parts; /* parts: index in `pool`; the nots follow the parts there */
    uint16_t count, not_count;
    bool never;
} exl2__grammar_schema_made;

typedef struct exl2__grammar_schema {
    exl2__grammar_code *g;
    exl2__json j;
    const exl2__grammar_vocab *vocab;
    bool strict;                       /* reject every keyword that would be ignored otherwise */
    uint32_t *targets;                 /* [tokens] for each $ref, the subschema that it names + 1; 0 = not resolved */
    uint32_t *named;                   /* objects with an $id, id or $anchor, ascending */
    uint32_t named_count;
    char *buffer;                      /* scratch: room for five copies of all values of the source, escaped */
    size_t lists;                      /* bytes of `buffer` that two lists of constants need */
    uint32_t shared[EXL2__GRAMMAR_SCHEMA_SHARED_COUNT]; /* rule; 0 = not made */
    exl2__grammar_schema_made *made;   /* sets that have a rule, in the order of the rules */
    exl2__grammar_schema_sub *pool;
    uint32_t made_count, made_room, pool_used, pool_room;
} exl2__grammar_schema;

typedef enum exl2__grammar_schema_use {
    EXL2__GRAMMAR_SCHEMA_ENFORCED,
    EXL2__GRAMMAR_SCHEMA_NOTE,    /* an annotation of the standard: ignored */
    EXL2__GRAMMAR_SCHEMA_LAX,     /* ignored, or rejected if `strict` */
    EXL2__GRAMMAR_SCHEMA_REJECTED /* rejected: it restricts values in a way that is not supported */
} exl2__grammar_schema_use;

typedef struct exl2__grammar_schema_keyword {
    const char *name;
    uint8_t types; /* types of the values that the keyword restricts; 0: any type, or an annotation */
    uint8_t use;
} exl2__grammar_schema_keyword;

/* Rows of keywords that restrict values of some types, that restrict values of all types, and that do neither. */
/* clang-format off */
#define EXL2__GRAMMAR_SCHEMA_WORD(name, types) { name, EXL2__GRAMMAR_SCHEMA_##types, EXL2__GRAMMAR_SCHEMA_ENFORCED }
#define EXL2__GRAMMAR_SCHEMA_FOR_ALL(name) { name, 0, EXL2__GRAMMAR_SCHEMA_ENFORCED }
#define EXL2__GRAMMAR_SCHEMA_OTHER(name, use) { name, 0, EXL2__GRAMMAR_SCHEMA_##use }
/* clang-format on */

/* Keywords that are not listed are ignored, or rejected if `strict`. */
static const exl2__grammar_schema_keyword exl2__grammar_schema_keywords[] = {
    EXL2__GRAMMAR_SCHEMA_FOR_ALL("type"), EXL2__GRAMMAR_SCHEMA_FOR_ALL("enum"), EXL2__GRAMMAR_SCHEMA_FOR_ALL("const"),
    EXL2__GRAMMAR_SCHEMA_FOR_ALL("anyOf"), EXL2__GRAMMAR_SCHEMA_FOR_ALL("oneOf"), EXL2__GRAMMAR_SCHEMA_FOR_ALL("allOf"),
    EXL2__GRAMMAR_SCHEMA_FOR_ALL("$ref"), EXL2__GRAMMAR_SCHEMA_FOR_ALL("not"), EXL2__GRAMMAR_SCHEMA_FOR_ALL("nullable"),
    EXL2__GRAMMAR_SCHEMA_WORD("properties", OBJECT), EXL2__GRAMMAR_SCHEMA_WORD("required", OBJECT),
    EXL2__GRAMMAR_SCHEMA_WORD("additionalProperties", OBJECT), EXL2__GRAMMAR_SCHEMA_WORD("patternProperties", OBJECT),
    EXL2__GRAMMAR_SCHEMA_WORD("propertyNames", OBJECT), EXL2__GRAMMAR_SCHEMA_WORD("minProperties", OBJECT),
    EXL2__GRAMMAR_SCHEMA_WORD("maxProperties", OBJECT), EXL2__GRAMMAR_SCHEMA_WORD("unevaluatedProperties", OBJECT),
    EXL2__GRAMMAR_SCHEMA_WORD("dependentRequired", OBJECT), EXL2__GRAMMAR_SCHEMA_WORD("dependencies", OBJECT),
    EXL2__GRAMMAR_SCHEMA_WORD("items", ARRAY), EXL2__GRAMMAR_SCHEMA_WORD("prefixItems", ARRAY),
    EXL2__GRAMMAR_SCHEMA_WORD("additionalItems", ARRAY), EXL2__GRAMMAR_SCHEMA_WORD("minItems", ARRAY),
    EXL2__GRAMMAR_SCHEMA_WORD("maxItems", ARRAY), EXL2__GRAMMAR_SCHEMA_WORD("uniqueItems", ARRAY),
    EXL2__GRAMMAR_SCHEMA_WORD("minLength", STRING), EXL2__GRAMMAR_SCHEMA_WORD("maxLength", STRING),
    EXL2__GRAMMAR_SCHEMA_WORD("pattern", STRING), EXL2__GRAMMAR_SCHEMA_WORD("format", STRING),
    EXL2__GRAMMAR_SCHEMA_WORD("minimum", NUMBER), EXL2__GRAMMAR_SCHEMA_WORD("maximum", NUMBER),
    EXL2__GRAMMAR_SCHEMA_WORD("exclusiveMinimum", NUMBER), EXL2__GRAMMAR_SCHEMA_WORD("exclusiveMaximum", NUMBER),
    EXL2__GRAMMAR_SCHEMA_WORD("multipleOf", NUMBER), EXL2__GRAMMAR_SCHEMA_OTHER("title", NOTE),
    EXL2__GRAMMAR_SCHEMA_OTHER("description", NOTE), EXL2__GRAMMAR_SCHEMA_OTHER("default", NOTE),
    EXL2__GRAMMAR_SCHEMA_OTHER("examples", NOTE), EXL2__GRAMMAR_SCHEMA_OTHER("$schema", NOTE),
    EXL2__GRAMMAR_SCHEMA_OTHER("$id", NOTE), EXL2__GRAMMAR_SCHEMA_OTHER("id", NOTE),
    EXL2__GRAMMAR_SCHEMA_OTHER("$comment", NOTE), EXL2__GRAMMAR_SCHEMA_OTHER("deprecated", NOTE),
    EXL2__GRAMMAR_SCHEMA_OTHER("readOnly", NOTE), EXL2__GRAMMAR_SCHEMA_OTHER("writeOnly", NOTE),
    EXL2__GRAMMAR_SCHEMA_OTHER("$defs", NOTE), EXL2__GRAMMAR_SCHEMA_OTHER("definitions", NOTE),
    EXL2__GRAMMAR_SCHEMA_OTHER("$anchor", NOTE), EXL2__GRAMMAR_SCHEMA_OTHER("$vocabulary", NOTE),
    EXL2__GRAMMAR_SCHEMA_OTHER("if", REJECTED), EXL2__GRAMMAR_SCHEMA_OTHER("then", LAX),
    EXL2__GRAMMAR_SCHEMA_OTHER("else", LAX), EXL2__GRAMMAR_SCHEMA_OTHER("dependentSchemas", REJECTED),
    EXL2__GRAMMAR_SCHEMA_OTHER("contains", REJECTED), EXL2__GRAMMAR_SCHEMA_OTHER("minContains", LAX),
    EXL2__GRAMMAR_SCHEMA_OTHER("maxContains", LAX), EXL2__GRAMMAR_SCHEMA_OTHER("unevaluatedItems", REJECTED),
    EXL2__GRAMMAR_SCHEMA_OTHER("$dynamicRef", REJECTED), EXL2__GRAMMAR_SCHEMA_OTHER("$recursiveRef", REJECTED),
    EXL2__GRAMMAR_SCHEMA_OTHER("divisibleBy", REJECTED), EXL2__GRAMMAR_SCHEMA_OTHER("disallow", REJECTED),
    EXL2__GRAMMAR_SCHEMA_OTHER("extends", REJECTED),
};

/* Writes the path of a token, such as #/properties/age: a JSON pointer, but with keys as the source spells them. It is
   cut where `out` is full. */
EXL2__PRIVATE void exl2__grammar_schema_path(const exl2__grammar_schema *s, uint32_t token, char *out, size_t room)
{
    size_t used = exl2__format(out, room, "#");
    for (uint32_t at = 0; at < token && used + 1 < room;) {
        bool is_object = s->j.tokens[at].kind == EXL2__JSON_OBJECT;
        uint32_t child = exl2__json_first(&s->j, at), index = 0;
        while (s->j.tokens[child + is_object].after <= token) {
            child = exl2__json_next(&s->j, at, child);
            index++;
        }
        const exl2__json_token *key = &s->j.tokens[child];
        if (is_object) {
            used += exl2__format(out + used, room - used, "/%.*s", (int)(key->end - key->begin),
                                 s->j.text + key->begin);
        } else {
            used += exl2__format(out + used, room - used, "/%u", index);
        }
        at = child == token ? token : child + is_object;
    }
}

/* Writes a message about `token`: its place and path, `what`, which ends with `expected`, and its text. */
EXL2__PRIVATE void exl2__grammar_schema_message(const exl2__grammar_schema *s, uint32_t token, const char *what,
                                                const char *expected, char out[EXL2__GRAMMAR_CODE_DOUBT])
{
    const exl2__json_token *t = &s->j.tokens[token];
    uint32_t bytes = t->end - t->begin, line, column;
    char path[64];
    bytes = bytes > 60 ? (uint32_t)exl2__utf8_cut(s->j.text + t->begin, 60) : bytes;
    exl2__unicode_place(s->j.text, t->begin, &line, &column);
    exl2__grammar_schema_path(s, token, path, sizeof path);
    exl2__format(out, EXL2__GRAMMAR_CODE_DOUBT, "%s line %u, column %u, %s: %s%s; found: %.*s", s->g->label, line,
                 column, path, what, expected, (int)bytes, s->j.text + t->begin);
}

/* Rejects the schema because of `token`. If the schema is rejected twice, the first error stays. */
EXL2__PRIVATE void exl2__grammar_schema_reject_for(exl2__grammar_schema *s, exl2_result code, uint32_t token,
                                                   const char *what, const char *expected)
{
    if (s->g->result == EXL2_OK) {
        char message[EXL2__GRAMMAR_CODE_DOUBT];
        exl2__grammar_schema_message(s, token, what, expected, message);
        s->g->result = exl2__fail(s->g->c, code, "%s", message);
    }
}

EXL2__PRIVATE void exl2__grammar_schema_reject(exl2__grammar_schema *s, exl2_result code, uint32_t token,
                                               const char *what)
{
    exl2__grammar_schema_reject_for(s, code, token, what, "");
}

/* The token of the keyword's value in a subschema, or 0 if the keyword is missing. A null is a value. */
EXL2__PRIVATE uint32_t exl2__grammar_schema_get(const exl2__grammar_schema *s, uint32_t object, const char *key)
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

/* Like _get, but rejects a value that is not of `kind`. */
EXL2__PRIVATE uint32_t exl2__grammar_schema_get_kind(exl2__grammar_schema *s, uint32_t object, const char *key,
                                                     exl2__json_kind kind)
{
    static const char *const kinds[] = { "an object", "an array", "a string", "a number", "true", "false", "null" };
    uint32_t value = exl2__grammar_schema_get(s, object, key);
    if (value && s->j.tokens[value].kind != kind) {
        exl2__grammar_schema_reject_for(s, EXL2_ERR_FORMAT, value, "the value of this keyword must be ", kinds[kind]);
        return 0;
    }
    return value;
}

#endif

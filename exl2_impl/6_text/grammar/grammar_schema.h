/* grammar_schema.h: the compiler from JSON schema to an automaton. A schema is read as a set of subschemas ("parts")
   that must all hold, and each set becomes one rule.
   takes: untrusted JSON.
   gives: exl2__grammar_schema, its sets and its keyword table; exl2__grammar_schema_expand, _rule.
   owns:  nothing; grammar_branch.h opens and closes exl2__grammar_schema. */
#ifndef EXL2__GRAMMAR_SCHEMA_H
#define EXL2__GRAMMAR_SCHEMA_H

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

/* Writes a message about `token`: its place and path, the sentence `what` that ends with `expected`, and its text. */
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

EXL2__PRIVATE uint32_t exl2__grammar_ref_target(exl2__grammar_schema *s, uint32_t ref); /* grammar_ref.h */

/* ---- sets ---- */

EXL2__PRIVATE exl2__grammar_schema_sub exl2__grammar_schema_sub_of(uint32_t token)
{
    exl2__grammar_schema_sub sub = { 0 };
    sub.token = token & 0x1FFFFFFFu;
    return sub;
}

/* A set of one part. */
EXL2__PRIVATE exl2__grammar_schema_set exl2__grammar_schema_set_of(uint32_t token)
{
    exl2__grammar_schema_set set = { .count = 1 };
    set.parts[0] = exl2__grammar_schema_sub_of(token);
    return set;
}

/* Adds a part. If the set has it already, what was decided about either holds for it. */
EXL2__PRIVATE void exl2__grammar_schema_add(exl2__grammar_schema *s, exl2__grammar_schema_set *set,
                                            exl2__grammar_schema_sub part)
{
    uint32_t at = 0;
    while (at < set->count && set->parts[at].token < part.token) {
        at++;
    }
    if (at < set->count && set->parts[at].token == part.token) {
        set->parts[at].any_of_done = set->parts[at].any_of_done || part.any_of_done;
        set->parts[at].one_of_done = set->parts[at].one_of_done || part.one_of_done;
        return;
    }
    if (set->count == EXL2__GRAMMAR_SCHEMA_PARTS_MAX) {
        exl2__grammar_schema_reject(s, EXL2_ERR_BUDGET, part.token,
                                    "at most 64 subschemas that must hold together are supported");
        return;
    }
    memmove(set->parts + at + 1, set->parts + at, (set->count - at) * sizeof *set->parts);
    set->parts[at] = part;
    set->count++;
}

/* Does the key differ from the name by one letter that is added, missing or replaced, or by two letters that are
   swapped? Upper and lower case are equal here. */
EXL2__PRIVATE bool exl2__grammar_schema_near(const char *key, size_t bytes, const char *name)
{
    size_t length = strlen(name), head = 0, tail = 0;
    while (head < bytes && head < length && (key[head] | 32) == (name[head] | 32)) {
        head++;
    }
    while (tail + head < bytes && tail + head < length
           && (key[bytes - 1 - tail] | 32) == (name[length - 1 - tail] | 32)) {
        tail++;
    }
    size_t mine = bytes - head - tail, others = length - head - tail;
    return (mine <= 1 && others <= 1)
        || (mine == 2 && others == 2 && (key[head] | 32) == (name[head + 1] | 32)
            && (key[head + 1] | 32) == (name[head] | 32));
}

/* An unknown keyword is ignored, unless it differs by one letter from a keyword that restricts values: `requird` is an
   error, not an annotation. */
EXL2__PRIVATE void exl2__grammar_schema_check_unknown(exl2__grammar_schema *s, uint32_t key)
{
    const exl2__json_token *t = &s->j.tokens[key];
    if (s->strict) {
        exl2__grammar_schema_reject(s, EXL2_ERR_UNSUPPORTED, key, "the keyword is not supported");
    }
    for (size_t i = 0; i < EXL2__COUNT(exl2__grammar_schema_keywords); i++) {
        const exl2__grammar_schema_keyword *word = &exl2__grammar_schema_keywords[i];
        if (word->types && strlen(word->name) >= 6
            && exl2__grammar_schema_near(s->j.text + t->begin, t->end - t->begin, word->name)) {
            exl2__grammar_schema_reject_for(s, EXL2_ERR_UNSUPPORTED, key,
                                            "the keyword is unknown, and one letter away from ", word->name);
        }
    }
}

EXL2__PRIVATE void exl2__grammar_schema_check(exl2__grammar_schema *s, uint32_t object)
{
    for (uint32_t k = exl2__json_first(&s->j, object); k; k = exl2__json_next(&s->j, object, k)) {
        size_t i = 0;
        while (i < EXL2__COUNT(exl2__grammar_schema_keywords)
               && !exl2__json_is(&s->j, k, exl2__grammar_schema_keywords[i].name)) {
            i++;
        }
        if (i == EXL2__COUNT(exl2__grammar_schema_keywords)) {
            exl2__grammar_schema_check_unknown(s, k);
            continue;
        }
        uint32_t use = exl2__grammar_schema_keywords[i].use;
        bool idle = exl2__json_is(&s->j, k, "if") && !exl2__grammar_schema_get(s, object, "then")
            && !exl2__grammar_schema_get(s, object, "else");
        if ((use == EXL2__GRAMMAR_SCHEMA_REJECTED && !idle) || (use == EXL2__GRAMMAR_SCHEMA_LAX && s->strict)) {
            exl2__grammar_schema_reject(s, EXL2_ERR_UNSUPPORTED, k, "the keyword is not supported");
        }
    }
}

EXL2__PRIVATE void exl2__grammar_schema_add_not(exl2__grammar_schema *s, exl2__grammar_schema_set *set,
                                                exl2__grammar_schema_sub not)
{
    uint32_t at = 0;
    while (at < set->not_count && set->nots[at].token < not.token) {
        at++;
    }
    if (at < set->not_count && set->nots[at].token == not.token) {
        return;
    }
    if (set->not_count == EXL2__GRAMMAR_SCHEMA_NOTS_MAX) {
        exl2__grammar_schema_reject(s, EXL2_ERR_BUDGET, not.token,
                                    "at most 64 subschemas that must not hold are supported");
        return;
    }
    memmove(set->nots + at + 1, set->nots + at, (set->not_count - at) * sizeof *set->nots);
    set->nots[at] = not;
    set->not_count++;
}

/* The only keyword of a subschema that is not an annotation; 0 if there is none (*others is 0) or more than one. */
EXL2__PRIVATE uint32_t exl2__grammar_schema_only(const exl2__grammar_schema *s, uint32_t object, uint32_t *others)
{
    uint32_t only = 0;
    *others = 0;
    for (uint32_t k = exl2__json_first(&s->j, object); k; k = exl2__json_next(&s->j, object, k)) {
        for (size_t i = 0; i < EXL2__COUNT(exl2__grammar_schema_keywords); i++) {
            const exl2__grammar_schema_keyword *word = &exl2__grammar_schema_keywords[i];
            if (word->use != EXL2__GRAMMAR_SCHEMA_NOTE && exl2__json_is(&s->j, k, word->name)) {
                only = k;
                ++*others;
            }
        }
    }
    return *others == 1 ? only : 0;
}

/* ---- expanding a set ---- */

/* A part, and how many parts were still to do when the search came to it. While more than these are to do, the search
   is among the parts that this part refers to. */
typedef struct exl2__grammar_schema_open {
    uint32_t token, level;
} exl2__grammar_schema_open;

/* The depth-first search of exl2__grammar_schema_expand. `parts` and `nots` are stacks of subschemas to do. */
typedef struct exl2__grammar_schema_search {
    exl2__grammar_schema_set done;
    exl2__grammar_schema_sub parts[EXL2__GRAMMAR_SCHEMA_BRANCHES_MAX + EXL2__GRAMMAR_SCHEMA_PARTS_MAX];
    exl2__grammar_schema_sub nots[EXL2__GRAMMAR_SCHEMA_NOTS_MAX + 1];
    exl2__grammar_schema_open open[EXL2__GRAMMAR_SCHEMA_PARTS_MAX];
    uint32_t part_count, not_count, open_count;
} exl2__grammar_schema_search;

/* Rewrites a subschema that must not hold, if a single keyword makes it up: `not not` becomes a part that must hold;
   `not anyOf` becomes one not for each branch; $ref is followed. Any other not goes to done.nots, where the files that
   write values deal with it. `steps`: number of nots done before. */
EXL2__PRIVATE void exl2__grammar_schema_expand_not(exl2__grammar_schema *s, exl2__grammar_schema_search *x,
                                                   exl2__grammar_schema_sub not, uint32_t steps)
{
    uint32_t token = not.token, others = 0;
    exl2__json_kind kind = s->j.tokens[token].kind;
    uint32_t only = kind == EXL2__JSON_OBJECT ? exl2__grammar_schema_only(s, token, &others) : 0;
    if (kind == EXL2__JSON_FALSE) { /* never holds anyway */
        return;
    }
    if (kind == EXL2__JSON_TRUE || (kind == EXL2__JSON_OBJECT && !only && !others)) {
        x->done.never = true;
        return;
    }
    if (kind != EXL2__JSON_OBJECT) {
        exl2__grammar_schema_reject(s, EXL2_ERR_FORMAT, token, "a schema must be an object, true or false");
        return;
    }
    bool either = only && (exl2__json_is(&s->j, only, "anyOf")
                           || (exl2__json_is(&s->j, only, "allOf") && s->j.tokens[only + 1].count == 1));
    if (steps > EXL2__GRAMMAR_SCHEMA_BRANCHES_MAX
        || (either && s->j.tokens[only + 1].count > EXL2__GRAMMAR_SCHEMA_NOTS_MAX - x->not_count)) {
        exl2__grammar_schema_reject(s, EXL2_ERR_BUDGET, token, "`not` leads to too many subschemas");
    } else if (only && exl2__json_is(&s->j, only, "$ref")) {
        uint32_t target = exl2__grammar_ref_target(s, only + 1);
        x->nots[x->not_count] = exl2__grammar_schema_sub_of(target);
        x->nots[x->not_count].other_branch = not.other_branch;
        x->not_count += target != UINT32_MAX;
    } else if (only && exl2__json_is(&s->j, only, "not") && x->part_count < EXL2__GRAMMAR_SCHEMA_BRANCHES_MAX) {
        x->parts[x->part_count++] = exl2__grammar_schema_sub_of(only + 1);
    } else if (either) {
        for (uint32_t k = exl2__json_first(&s->j, only + 1); k; k = exl2__json_next(&s->j, only + 1, k)) {
            x->nots[x->not_count] = exl2__grammar_schema_sub_of(k);
            x->nots[x->not_count++].other_branch = not.other_branch;
        }
    } else {
        exl2__grammar_schema_add_not(s, &x->done, not);
    }
}

/* Adds a part to the set, and to the search what the part refers to by $ref, allOf and not. */
EXL2__PRIVATE void exl2__grammar_schema_expand_part(exl2__grammar_schema *s, exl2__grammar_schema_search *x,
                                                    exl2__grammar_schema_sub part)
{
    uint32_t token = part.token, before = x->done.count;
    exl2__json_kind kind = s->j.tokens[token].kind;
    x->done.never = x->done.never || kind == EXL2__JSON_FALSE;
    if (kind != EXL2__JSON_OBJECT) {
        if (kind != EXL2__JSON_FALSE && kind != EXL2__JSON_TRUE) {
            exl2__grammar_schema_reject(s, EXL2_ERR_FORMAT, token, "a schema must be an object, true or false");
        }
        return;
    }
    exl2__grammar_schema_add(s, &x->done, part);
    uint32_t ref = exl2__grammar_schema_get(s, token, "$ref"), not = exl2__grammar_schema_get(s, token, "not");
    for (uint32_t i = 0; i < x->open_count; i++) {
        if (x->open[i].token == token) {
            exl2__grammar_schema_reject(s, EXL2_ERR_FORMAT, ref ? ref : token,
                                        "the subschema leads back to itself with no value in between");
        }
    }
    if (x->done.count == before) { /* the part was in the set already, and so is everything that it refers to */
        return;
    }
    exl2__grammar_schema_check(s, token);
    uint32_t all = exl2__grammar_schema_get_kind(s, token, "allOf", EXL2__JSON_ARRAY);
    uint32_t target = ref ? exl2__grammar_ref_target(s, ref) : UINT32_MAX;
    uint32_t children = (all ? s->j.tokens[all].count : 0) + (target != UINT32_MAX);
    if (children >= EXL2__COUNT(x->parts) - x->part_count - x->open_count
        || (not && x->not_count == EXL2__GRAMMAR_SCHEMA_NOTS_MAX)) {
        exl2__grammar_schema_reject(s, EXL2_ERR_BUDGET, token, "allOf and $ref lead to too many subschemas");
        return;
    }
    x->open[x->open_count++] = (exl2__grammar_schema_open){ token, x->part_count };
    for (uint32_t k = all ? exl2__json_first(&s->j, all) : 0; k; k = exl2__json_next(&s->j, all, k)) {
        x->parts[x->part_count++] = exl2__grammar_schema_sub_of(k);
    }
    if (target != UINT32_MAX) {
        x->parts[x->part_count++] = exl2__grammar_schema_sub_of(target);
    }
    if (not) {
        x->nots[x->not_count++] = exl2__grammar_schema_sub_of(not);
    }
}

/* Adds to the set everything that its parts refer to by $ref, allOf and not, and drops parts that are true. Nots are
   rewritten when all parts are done. */
EXL2__PRIVATE void exl2__grammar_schema_expand(exl2__grammar_schema *s, exl2__grammar_schema_set *set)
{
    exl2__grammar_schema_search x;
    x.done = (exl2__grammar_schema_set){ .never = set->never };
    x.part_count = set->count;
    x.not_count = set->not_count;
    x.open_count = 0;
    memcpy(x.parts, set->parts, sizeof set->parts);
    memcpy(x.nots, set->nots, sizeof set->nots);
    while ((x.part_count || x.not_count) && s->g->result == EXL2_OK) {
        while (x.open_count && x.part_count <= x.open[x.open_count - 1].level) {
            x.open_count--;
        }
        if (x.part_count) {
            x.part_count--;
            exl2__grammar_schema_expand_part(s, &x, x.parts[x.part_count]);
            continue;
        }
        for (uint32_t steps = 0; x.not_count && s->g->result == EXL2_OK; steps++) {
            x.not_count--;
            exl2__grammar_schema_expand_not(s, &x, x.nots[x.not_count], steps);
        }
    }
    *set = x.done;
}

/* ---- rules ---- */

/* Expands the set and returns its rule. The body of a new rule is compiled later, by grammar_branch.h. */
EXL2__PRIVATE uint32_t exl2__grammar_schema_rule(exl2__grammar_schema *s, exl2__grammar_schema_set *set)
{
    exl2__grammar_schema_expand(s, set);
    if (set->never) {
        set->count = set->not_count = 0;
    }
    uint32_t hash = exl2__grammar_state_mix(set->never, set->count);
    size_t bytes = set->count * sizeof *set->parts, not_bytes = set->not_count * sizeof *set->nots;
    for (uint32_t i = 0; i < set->count; i++) {
        hash = exl2__grammar_state_mix(hash, set->parts[i].token);
    }
    for (uint32_t i = 0; i < set->not_count; i++) {
        hash = exl2__grammar_state_mix(hash, set->nots[i].token);
    }
    for (uint32_t i = 0; i < s->made_count; i++) {
        const exl2__grammar_schema_made *made = &s->made[i];
        if (made->hash == hash && made->never == set->never && made->count == set->count
            && made->not_count == set->not_count && memcmp(s->pool + made->parts, set->parts, bytes) == 0
            && memcmp(s->pool + made->parts + set->count, set->nots, not_bytes) == 0) {
            return made->rule;
        }
    }
    while (s->pool_room - s->pool_used <= set->count + set->not_count && s->g->result == EXL2_OK) {
        void *pool = s->pool; /* `<=` above: even an empty set gets a pool */
        exl2__grammar_code_grow(s->g, &pool, &s->pool_room, 1u << 20, sizeof *s->pool, "subschemas");
        s->pool = (exl2__grammar_schema_sub *)pool;
    }
    if (s->made_count == s->made_room) {
        void *made = s->made;
        exl2__grammar_code_grow(s->g, &made, &s->made_room, EXL2__GRAMMAR_CODE_RULES_MAX, sizeof *s->made,
                                "subschemas");
        s->made = (exl2__grammar_schema_made *)made;
    }
    uint32_t rule = exl2__grammar_code_rule(s->g);
    if (s->g->result == EXL2_OK) {
        exl2__grammar_schema_made made = { hash, rule, s->pool_used, (uint16_t)set->count, (uint16_t)set->not_count,
                                           set->never };
        s->made[s->made_count++] = made;
        memcpy(s->pool + s->pool_used, set->parts, bytes);
        memcpy(s->pool + s->pool_used + set->count, set->nots, not_bytes);
        s->pool_used += set->count + set->not_count;
    }
    return rule;
}

#endif

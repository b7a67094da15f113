/* grammar_schema.h: the compiler from JSON schema to an automaton. A schema is read as a set of subschemas ("parts")
   that must all hold, and each set becomes one rule.
   takes: exl2__grammar_schema.
   gives: exl2__grammar_schema_expand, _rule and the other functions of sets. */
#ifndef EXL2__GRAMMAR_SCHEMA_H
#define EXL2__GRAMMAR_SCHEMA_H

#include "grammar_ref.h"

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

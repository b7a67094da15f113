/* grammar_branch.h: anyOf and oneOf, values of all types, and the compilation of a whole schema to an automaton.
   takes: untrusted JSON.
   gives: exl2__grammar_branch_read. */
#ifndef EXL2__GRAMMAR_BRANCH_H
#define EXL2__GRAMMAR_BRANCH_H

#include "grammar_object.h"

/* ---- anyOf and oneOf ---- */

/* Adds to a branch of oneOf that no other branch may hold, without the branches that are disjoint from it anyway.
   `apart`: one bit for each pair of branches that is known to be disjoint. */
EXL2__PRIVATE void exl2__grammar_branch_exclude_others(exl2__grammar_schema *s, exl2__grammar_schema_set *branch,
                                                       uint32_t list, uint32_t at, uint32_t *apart)
{
    uint32_t count = s->j.tokens[list].count, own = exl2__json_first(&s->j, list), other = own;
    for (uint32_t i = 0; i < at; i++) {
        own = exl2__json_next(&s->j, list, own);
    }
    for (uint32_t i = 0; i < count && s->g->result == EXL2_OK; i++, other = exl2__json_next(&s->j, list, other)) {
        uint32_t low = i < at ? i : at, high = i < at ? at : i, pair = high * EXL2__GRAMMAR_SCHEMA_BRANCHES_MAX + low;
        if (i > at && exl2__grammar_apart_disjoint(s, own, other)) {
            apart[pair / 32] |= 1u << pair % 32;
        }
        if (i != at && !(apart[pair / 32] >> pair % 32 & 1)) {
            exl2__grammar_schema_sub not = exl2__grammar_schema_sub_of(other);
            not.other_branch = 1;
            exl2__grammar_schema_add_not(s, branch, not);
        }
    }
}

/* Rejects a branch that refers to the set itself with no value in between. */
EXL2__PRIVATE void exl2__grammar_branch_check(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                              uint32_t part, uint32_t list, uint32_t token)
{
    exl2__grammar_schema_set branch = exl2__grammar_schema_set_of(token);
    exl2__grammar_schema_expand(s, &branch);
    for (uint32_t i = 0; i < branch.count; i++) {
        for (uint32_t o = 0; o < set->count; o++) {
            exl2__grammar_schema_sub own = set->parts[o];
            if (own.token == branch.parts[i].token && (own.token == part || own.any_of_done || own.one_of_done)) {
                exl2__grammar_schema_reject(s, EXL2_ERR_UNSUPPORTED, list - 1,
                                            "the schema refers to itself with no value in between");
            }
        }
    }
}

/* Are all keys of the object in `words`? */
EXL2__PRIVATE bool exl2__grammar_branch_only(const exl2__grammar_schema *s, uint32_t object, const char *const *words,
                                             size_t count)
{
    for (uint32_t k = exl2__json_first(&s->j, object); k; k = exl2__json_next(&s->j, object, k)) {
        bool known = false;
        for (size_t i = 0; i < count && !known; i++) {
            known = exl2__json_is(&s->j, k, words[i]);
        }
        if (!known) {
            return false;
        }
    }
    return true;
}

/* The simple case: all branches only list constants, and the schema around them has at most a type. The constants
   become one list of any length. false: this is not the case, or branches of oneOf share a constant. */
EXL2__PRIVATE bool exl2__grammar_branch_values(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                               uint32_t list, exl2__grammar_code_piece *out)
{
    static const char *const words[] = { "const", "enum", "type", "title", "description", "$comment", "deprecated" };
    static const char *const outer[] = { "anyOf", "oneOf", "type", "title", "description", "$comment", "deprecated",
                                         "$defs", "definitions", "$schema", "$id", "default", "examples" };
    uint32_t part = set->parts[0].token, total = 0, token;
    bool is_one_of = exl2__json_is(&s->j, list - 1, "oneOf");
    if (set->count != 1 || set->not_count || !exl2__grammar_branch_only(s, part, outer, EXL2__COUNT(outer))
        || exl2__grammar_schema_get(s, part, is_one_of ? "anyOf" : "oneOf")) {
        return false;
    }
    for (uint32_t k = exl2__json_first(&s->j, list); k; k = exl2__json_next(&s->j, list, k)) {
        uint32_t one = exl2__grammar_value_count_of(s, k, false, &token);
        uint32_t many = exl2__grammar_value_count_of(s, k, true, &token);
        if ((one > 0) == (many > 0) || !exl2__grammar_branch_only(s, k, words, EXL2__COUNT(words))) {
            return false;
        }
        total += one + many;
    }
    exl2__grammar_choice values;
    exl2__grammar_choice_open(s->g, total, &values);
    uint32_t types = exl2__grammar_types_of(s, set, true);
    char *room = s->buffer;
    for (uint32_t k = exl2__json_first(&s->j, list); k; k = exl2__json_next(&s->j, list, k)) {
        exl2__grammar_schema_set branch = exl2__grammar_schema_set_of(k);
        bool is_enum = exl2__grammar_value_count_of(s, k, true, &token) > 0;
        exl2__grammar_value_count_of(s, k, is_enum, &token);
        room = exl2__grammar_value_spell(s, token, is_enum, types & exl2__grammar_types_of(s, &branch, true), room,
                                         &values);
    }
    bool twice = exl2__grammar_choice_sort(&values) > 0;
    if (!twice || !is_one_of) {
        *out = exl2__grammar_choice_piece(&values);
    }
    exl2__grammar_choice_close(&values);
    return !twice || !is_one_of;
}

/* One alternative for each branch of the list, which is the part's anyOf or oneOf: the set with the branch. There the
   part is marked as done, so that the list is not expanded again. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_branch_list(exl2__grammar_schema *s,
                                                                 const exl2__grammar_schema_set *set,
                                                                 exl2__grammar_schema_sub part, uint32_t list,
                                                                 bool is_one_of)
{
    exl2__grammar_code *g = s->g;
    exl2__grammar_code_piece all = { 0, 0 };
    uint32_t count = s->j.tokens[list].count, at = 0;
    void *memory = NULL;
    uint64_t bytes = EXL2__GRAMMAR_SCHEMA_BRANCHES_MAX * EXL2__GRAMMAR_SCHEMA_BRANCHES_MAX / 8;
    if (exl2__grammar_branch_values(s, set, list, &all)) {
        return all;
    }
    if (count == 0 || count > EXL2__GRAMMAR_SCHEMA_BRANCHES_MAX) {
        exl2__grammar_schema_reject(s, EXL2_ERR_FORMAT, list - 1, "anyOf and oneOf must have 1 to 256 branches");
        return exl2__grammar_value_never(g);
    }
    if (is_one_of && g->result == EXL2_OK) {
        g->result = exl2__alloc(g->c, bytes, 4, EXL2_MEM_GENERAL, &memory);
    }
    if (g->result < 0) {
        return exl2__grammar_value_never(g);
    }
    if (memory) {
        memset(memory, 0, bytes);
    }
    part.any_of_done = part.any_of_done || !is_one_of;
    part.one_of_done = part.one_of_done || is_one_of;
    for (uint32_t k = exl2__json_first(&s->j, list); k && g->result == EXL2_OK;
         k = exl2__json_next(&s->j, list, k)) {
        exl2__grammar_branch_check(s, set, part.token, list, k);
        exl2__grammar_schema_set branch = *set;
        exl2__grammar_schema_add(s, &branch, part);
        exl2__grammar_schema_add(s, &branch, exl2__grammar_schema_sub_of(k));
        if (memory) {
            exl2__grammar_branch_exclude_others(s, &branch, list, at++, (uint32_t *)memory);
        }
        exl2__grammar_code_or(g, &all, exl2__grammar_code_call(g, exl2__grammar_schema_rule(s, &branch)));
    }
    exl2__free(g->c, memory, memory ? bytes : 0, EXL2_MEM_GENERAL);
    return all;
}

/* ---- values of all types ---- */

/* true, false or both, without those that a not of the set excludes. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_branch_boolean(exl2__grammar_schema *s,
                                                                    const exl2__grammar_schema_set *set)
{
    static const exl2__json_kind kinds[] = { EXL2__JSON_FALSE, EXL2__JSON_TRUE };
    bool may[2] = { true, true };
    for (uint32_t i = 0; i < set->not_count && s->g->result == EXL2_OK; i++) {
        exl2__grammar_schema_set other;
        bool one;
        if (!exl2__grammar_types_not(s, set->nots[i], EXL2__GRAMMAR_SCHEMA_BOOLEAN, &other)) {
            continue;
        }
        uint32_t list = exl2__grammar_number_lists(s, &other, &one);
        if (!list) {
            exl2__grammar_types_reject_not(s, set->nots[i]);
        }
        for (uint32_t k = one ? list : list ? exl2__json_first(&s->j, list) : 0; k;
             k = one ? 0 : exl2__json_next(&s->j, list, k)) {
            for (uint32_t b = 0; b < 2; b++) {
                may[b] = may[b] && s->j.tokens[k].kind != kinds[b];
            }
        }
    }
    return may[0] || may[1] ? exl2__grammar_value_regex(s->g, may[0] && may[1] ? "true|false" : may[1] ? "true"
                                                                  : "false")
        : exl2__grammar_value_never(s->g);
}

/* Is null allowed by the set's nots? */
EXL2__PRIVATE bool exl2__grammar_branch_null(exl2__grammar_schema *s, const exl2__grammar_schema_set *set)
{
    bool may = true;
    for (uint32_t i = 0; i < set->not_count && s->g->result == EXL2_OK; i++) {
        exl2__grammar_schema_set other;
        bool one;
        if (!exl2__grammar_types_not(s, set->nots[i], EXL2__GRAMMAR_SCHEMA_NULL, &other)) {
            continue;
        }
        may = false; /* `other` accepts null: its types include null, and other keywords do not restrict null */
        if (!exl2__grammar_number_lists(s, &other, &one)) {
            exl2__grammar_types_reject_not(s, set->nots[i]);
        }
    }
    return may;
}

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_branch_body(exl2__grammar_schema *s,
                                                                 const exl2__grammar_schema_set *set)
{
    exl2__grammar_code *g = s->g;
    exl2__grammar_code_piece all = { 0, 0 };
    for (uint32_t i = 0; i < set->count; i++) {
        exl2__grammar_schema_sub part = set->parts[i];
        uint32_t any_of = exl2__grammar_schema_get_kind(s, part.token, "anyOf", EXL2__JSON_ARRAY);
        if (any_of && !part.any_of_done) {
            return exl2__grammar_branch_list(s, set, part, any_of, false);
        }
        uint32_t one_of = exl2__grammar_schema_get_kind(s, part.token, "oneOf", EXL2__JSON_ARRAY);
        if (one_of && !part.one_of_done) {
            return exl2__grammar_branch_list(s, set, part, one_of, true);
        }
    }
    uint32_t types = exl2__grammar_types_of(s, set, true);
    if (types == 0) {
        return exl2__grammar_value_never(g);
    }
    if (set->count == 0 && set->not_count == 0) {
        return exl2__grammar_value_call(s, EXL2__GRAMMAR_SCHEMA_SHARED_VALUE);
    }
    if (exl2__grammar_number_constants(s, set, types, &all)) {
        return all;
    }
    if ((types & EXL2__GRAMMAR_SCHEMA_NULL) && exl2__grammar_branch_null(s, set)) {
        exl2__grammar_code_or(g, &all, exl2__grammar_code_word(g, "null"));
    }
    if (types & EXL2__GRAMMAR_SCHEMA_BOOLEAN) {
        exl2__grammar_code_or(g, &all, exl2__grammar_branch_boolean(s, set));
    }
    if (types & EXL2__GRAMMAR_SCHEMA_NUMBER) {
        exl2__grammar_code_or(g, &all, exl2__grammar_number_piece(s, set, types));
    }
    if (types & EXL2__GRAMMAR_SCHEMA_STRING) {
        exl2__grammar_code_or(g, &all, exl2__grammar_string_piece(s, set));
    }
    if (types & EXL2__GRAMMAR_SCHEMA_ARRAY) {
        exl2__grammar_code_or(g, &all, exl2__grammar_array_piece(s, set));
    }
    if (types & EXL2__GRAMMAR_SCHEMA_OBJECT) {
        exl2__grammar_code_or(g, &all, exl2__grammar_object_piece(s, set));
    }
    return all.first ? all : exl2__grammar_value_never(g);
}

/* ---- schemas ---- */

EXL2__PRIVATE void exl2__grammar_branch_rules(exl2__grammar_schema *s)
{
    exl2__grammar_schema_set root = exl2__grammar_schema_set_of(0);
    exl2__grammar_schema_rule(s, &root); /* rule 0 */
    for (uint32_t i = 0; i < s->made_count && s->g->result == EXL2_OK; i++) {
        exl2__grammar_schema_made made = s->made[i];
        exl2__grammar_schema_set set = { .count = made.count, .not_count = made.not_count, .never = made.never };
        memcpy(set.parts, s->pool + made.parts, set.count * sizeof *set.parts);
        memcpy(set.nots, s->pool + made.parts + made.count, set.not_count * sizeof *set.nots);
        exl2__grammar_code_define(s->g, made.rule, exl2__grammar_branch_body(s, &set));
    }
}

/* The schema in a wrapper of chat APIs, {"name", "strict", "schema"} or {"type": "json_schema", "json_schema"}; 0: the
   root is a schema itself. */
EXL2__PRIVATE uint32_t exl2__grammar_branch_wrapped(const exl2__grammar_schema *s)
{
    uint32_t others, type = exl2__grammar_schema_get(s, 0, "type"), inner = exl2__grammar_schema_get(s, 0, "schema");
    uint32_t format = exl2__grammar_schema_get(s, 0, "json_schema");
    exl2__grammar_schema_only(s, 0, &others);
    inner = others == 0 ? inner : 0;
    inner = format && (!type || exl2__json_is(&s->j, type, "json_schema")) ? format : inner;
    return inner && s->j.tokens[inner].kind == EXL2__JSON_OBJECT ? inner : 0;
}

/* Compiles a schema to *g, which has just been opened. `strict`: no keyword that may restrict values is ignored. */
EXL2__PRIVATE void exl2__grammar_branch_read(exl2__grammar_code *g, const char *text, size_t bytes,
                                             const exl2__grammar_vocab *vocab, bool strict)
{
    exl2__grammar_schema s = { 0 };
    void *buffer;
    uint64_t room = 32 * (uint64_t)bytes + 64;
    exl2__arena refs = { 0 };
    s.g = g;
    s.vocab = vocab;
    s.strict = strict;
    s.lists = 13 * bytes;
    g->result = exl2__json_open_deep(g->c, g->label, text, bytes, &s.j);
    for (uint32_t inner; g->result == EXL2_OK && (inner = exl2__grammar_branch_wrapped(&s)) != 0;) {
        const exl2__json_token *t = &s.j.tokens[inner];
        bytes = t->end - t->begin;
        text += t->begin;
        exl2__json_close(g->c, &s.j);
        g->result = exl2__json_open_deep(g->c, g->label, text, bytes, &s.j);
    }
    if (g->result < 0) {
        return;
    }
    g->result = exl2__alloc(g->c, room, 8, EXL2_MEM_GENERAL, &buffer);
    if (g->result == EXL2_OK) {
        s.buffer = (char *)buffer;
        exl2__grammar_ref_open(&s, &refs);
        if (g->result == EXL2_OK) {
            exl2__grammar_branch_rules(&s);
        }
        exl2__arena_close(g->c, &refs);
        exl2__free(g->c, buffer, room, EXL2_MEM_GENERAL);
    }
    exl2__free(g->c, s.made, (uint64_t)s.made_room * sizeof *s.made, EXL2_MEM_GENERAL);
    exl2__free(g->c, s.pool, (uint64_t)s.pool_room * sizeof *s.pool, EXL2_MEM_GENERAL);
    exl2__json_close(g->c, &s.j);
}

#endif

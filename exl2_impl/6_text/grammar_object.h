/* grammar_object.h: objects of a schema, choices between schemas; and the whole way from a schema to an automaton.
   takes: untrusted JSON.
   gives: exl2__grammar_object_read.
   owns:  nothing that outlives the call.
   next:  grammar.h */
#ifndef EXL2__GRAMMAR_OBJECT_H
#define EXL2__GRAMMAR_OBJECT_H

#include "grammar_keys.h"

/* ---- keys ---- */

/* The key's value in one part's properties, or 0. */
static uint32_t exl2__grammar_object_property(exl2__grammar_schema *s, uint32_t part, uint32_t key)
{
    uint32_t list = exl2__grammar_schema_get_kind(s, part, "properties", EXL2__JSON_OBJECT);
    for (uint32_t k = list ? exl2__json_first(&s->j, list) : 0; k; k = exl2__json_next(&s->j, list, k)) {
        if (k == key || exl2__json_same(&s->j, k, key)) {
            return k + 1;
        }
    }
    return 0;
}

static bool exl2__grammar_object_requires(exl2__grammar_schema *s, const exl2__grammar_schema_set *set, uint32_t key)
{
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t list = exl2__grammar_schema_get_kind(s, set->parts[i] / 4, "required", EXL2__JSON_ARRAY);
        for (uint32_t k = list ? exl2__json_first(&s->j, list) : 0; k; k = exl2__json_next(&s->j, list, k)) {
            if (s->j.tokens[k].kind != EXL2__JSON_STRING) {
                exl2__grammar_schema_refuse(s, EXL2_ERR_FORMAT, k, "required must list names");
            } else if (exl2__json_same(&s->j, k, key)) {
                return true;
            }
        }
    }
    return false;
}

/* All that the value of a key must be; false: the key is forbidden. */
static bool exl2__grammar_object_value(exl2__grammar_schema *s, const exl2__grammar_schema_set *set, uint32_t key,
                                       exl2__grammar_schema_set *value)
{
    *value = (exl2__grammar_schema_set){ { 0 }, 0, false };
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t part = set->parts[i] / 4, token = exl2__grammar_object_property(s, part, key);
        token = token ? token : exl2__grammar_schema_get(s, part, "additionalProperties");
        if (token && s->j.tokens[token].kind == EXL2__JSON_FALSE) {
            return false;
        }
        if (token) {
            exl2__grammar_schema_add(s, value, token * 4);
        }
    }
    return true;
}

/* ---- objects ---- */

typedef struct exl2__grammar_object_maker {
    exl2__grammar_schema *s;
    uint32_t none, some; /* JUMPs whose way on is open: no member is written yet (0 = cannot be); some are */
} exl2__grammar_object_maker;

/* A member that begins at its key: reached at once, or after a comma. `need`: it cannot be left out. */
static void exl2__grammar_object_member(exl2__grammar_object_maker *m, exl2__grammar_code_piece member, bool need)
{
    exl2__grammar_code *g = m->s->g;
    uint32_t none = need ? 0 : exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_JUMP, 0, 0);
    uint32_t some = exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_JUMP, 0, 0);
    exl2__grammar_code_join(g, member.last, some);
    if (m->some) {
        exl2__grammar_code_piece comma = exl2__grammar_value_mark(g, ',');
        exl2__grammar_code_join(g, comma.last, member.first);
        exl2__grammar_code_join(g, m->some, need ? comma.first
                                    : exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_SPLIT, comma.first, some));
    }
    if (m->none) {
        exl2__grammar_code_join(g, m->none, need ? member.first
                                    : exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_SPLIT, member.first, none));
    }
    m->none = m->none ? none : 0;
    m->some = some;
}

static exl2__grammar_code_piece exl2__grammar_object_pair(exl2__grammar_schema *s, exl2__grammar_code_piece key,
                                                          exl2__grammar_schema_set *value)
{
    exl2__grammar_code_piece pair = exl2__grammar_code_cat(s->g, key, exl2__grammar_value_mark(s->g, ':'));
    return exl2__grammar_code_cat(s->g, pair, exl2__grammar_code_call(s->g, exl2__grammar_schema_rule(s, value)));
}

/* Schema of members that properties do not name; false: there are none. Absent, it allows none, but for an object
   without any properties, which may hold anything. */
static bool exl2__grammar_object_rest(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                      exl2__grammar_schema_set *value)
{
    bool named = false, rest = false;
    *value = (exl2__grammar_schema_set){ { 0 }, 0, false };
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t token = exl2__grammar_schema_get(s, set->parts[i] / 4, "additionalProperties");
        named = named || exl2__grammar_schema_get(s, set->parts[i] / 4, "properties")
            || exl2__grammar_schema_get(s, set->parts[i] / 4, "required");
        if (token && s->j.tokens[token].kind == EXL2__JSON_FALSE) {
            return false;
        }
        if (token) {
            rest = true;
            exl2__grammar_schema_add(s, value, token * 4);
        }
    }
    return rest || !named;
}

static exl2__grammar_code_piece exl2__grammar_object_key_piece(exl2__grammar_schema *s, uint32_t key)
{
    return exl2__grammar_code_text(s->g, s->buffer, exl2__grammar_value_escape(s, key, s->buffer));
}

/* The members that the list of names or properties declares, unless an earlier part did. */
EXL2__COLD
static void exl2__grammar_object_members(exl2__grammar_object_maker *m, const exl2__grammar_schema_set *set,
                                         uint32_t part, const char *name, bool *never)
{
    exl2__grammar_schema *s = m->s;
    bool is_required = strcmp(name, "required") == 0;
    uint32_t list = exl2__grammar_schema_get(s, set->parts[part] / 4, name);
    for (uint32_t k = list ? exl2__json_first(&s->j, list) : 0; k; k = exl2__json_next(&s->j, list, k)) {
        exl2__grammar_schema_set value;
        bool seen = false;
        for (uint32_t i = 0; i < (is_required ? set->count : part) && !seen; i++) {
            seen = exl2__grammar_object_property(s, set->parts[i] / 4, k) != 0;
        }
        for (uint32_t i = 0; is_required && i < part && !seen; i++) {
            uint32_t other = exl2__grammar_schema_get(s, set->parts[i] / 4, name);
            for (uint32_t o = other ? exl2__json_first(&s->j, other) : 0; o && !seen;
                 o = exl2__json_next(&s->j, other, o)) {
                seen = exl2__json_same(&s->j, o, k);
            }
        }
        if (seen) {
            continue;
        }
        bool need = is_required || exl2__grammar_object_requires(s, set, k);
        bool may = exl2__grammar_object_value(s, set, k, &value);
        *never = *never || (need && !may);
        if (may && s->g->result == EXL2_OK) {
            exl2__grammar_object_member(
                m, exl2__grammar_object_pair(s, exl2__grammar_object_key_piece(s, k), &value), need);
        }
    }
}

EXL2__COLD
static exl2__grammar_code_piece exl2__grammar_object_piece(exl2__grammar_schema *s, const exl2__grammar_schema_set *set)
{
    exl2__grammar_code *g = s->g;
    bool plain = true, never = false;
    for (uint32_t i = 0; i < set->count; i++) {
        static const char *const names[] = { "properties", "required", "additionalProperties" };
        for (uint32_t k = 0; k < 3; k++) {
            plain = plain && !exl2__grammar_schema_get(s, set->parts[i] / 4, names[k]);
        }
        exl2__grammar_schema_get_kind(s, set->parts[i] / 4, "properties", EXL2__JSON_OBJECT);
        exl2__grammar_schema_get_kind(s, set->parts[i] / 4, "required", EXL2__JSON_ARRAY);
    }
    if (plain) {
        return exl2__grammar_value_call(s, EXL2__GRAMMAR_SCHEMA_SHARED_OBJECT);
    }
    exl2__grammar_code_piece open = exl2__grammar_code_word(g, "{"), close = exl2__grammar_code_word(g, "}");
    exl2__grammar_object_maker m = { s, open.last, 0 };
    for (uint32_t i = 0; i < set->count && g->result == EXL2_OK; i++) {
        exl2__grammar_object_members(&m, set, i, "properties", &never);
    }
    for (uint32_t i = 0; i < set->count && g->result == EXL2_OK; i++) {
        exl2__grammar_object_members(&m, set, i, "required", &never);
    }
    exl2__grammar_schema_set value;
    if (g->result == EXL2_OK && exl2__grammar_object_rest(s, set, &value)) {
        uint32_t rule = exl2__grammar_code_rule(g); /* a pair; the list of them is the last member */
        exl2__grammar_code_piece key = exl2__grammar_keys_other(s, set);
        exl2__grammar_code_define(g, rule, exl2__grammar_object_pair(s, key, &value));
        exl2__grammar_code_piece more =
            exl2__grammar_code_cat(g, exl2__grammar_value_mark(g, ','), exl2__grammar_code_call(g, rule));
        more = exl2__grammar_code_cat(g, exl2__grammar_code_call(g, rule), exl2__grammar_code_star(g, more, true));
        exl2__grammar_object_member(&m, more, false);
    }
    exl2__grammar_code_join(g, m.none, close.first);
    exl2__grammar_code_join(g, m.some, close.first);
    if (never) {
        return exl2__grammar_value_never(g);
    }
    exl2__grammar_code_piece piece = { open.first, close.last };
    return piece;
}

/* ---- oneOf ---- */

/* Do the two sets name different constants for the value, or for a property that both require? */
static bool exl2__grammar_object_tags(exl2__grammar_schema *s, const exl2__grammar_schema_set *a,
                                      const exl2__grammar_schema_set *b)
{
    for (uint32_t i = 0; i < a->count; i++) {
        uint32_t part = a->parts[i] / 4, one = exl2__grammar_schema_get(s, part, "const");
        uint32_t list = exl2__grammar_schema_get(s, part, "enum");
        if (!one && !list) {
            continue;
        }
        for (uint32_t k = 0; k < b->count; k++) {
            uint32_t other = b->parts[k] / 4;
            if (!exl2__grammar_schema_get(s, other, "const") && !exl2__grammar_schema_get(s, other, "enum")) {
                continue;
            }
            exl2__grammar_schema_set both = { { part * 4, other * 4 }, 2, false };
            exl2__grammar_choice values;
            exl2__grammar_value_listed(s, &both, EXL2__GRAMMAR_SCHEMA_ANY, &values);
            bool shared = values.count || s->g->result < 0;
            exl2__grammar_choice_close(&values);
            if (!shared) {
                return true;
            }
        }
    }
    return false;
}

EXL2__COLD
static bool exl2__grammar_object_disjoint(exl2__grammar_schema *s, uint32_t left, uint32_t right)
{
    exl2__grammar_schema_set a = { { left * 4 }, 1, false }, b = { { right * 4 }, 1, false };
    exl2__grammar_schema_expand(s, &a);
    exl2__grammar_schema_expand(s, &b);
    uint32_t both = exl2__grammar_schema_types(s, &a) & exl2__grammar_schema_types(s, &b);
    if (both == 0 || exl2__grammar_object_tags(s, &a, &b)) {
        return true;
    }
    for (uint32_t i = 0; both == EXL2__GRAMMAR_SCHEMA_OBJECT && i < a.count; i++) {
        uint32_t list = exl2__grammar_schema_get_kind(s, a.parts[i] / 4, "properties", EXL2__JSON_OBJECT);
        for (uint32_t k = list ? exl2__json_first(&s->j, list) : 0; k; k = exl2__json_next(&s->j, list, k)) {
            exl2__grammar_schema_set x, y;
            if (exl2__grammar_object_requires(s, &a, k) && exl2__grammar_object_requires(s, &b, k)
                && exl2__grammar_object_value(s, &a, k, &x) && exl2__grammar_object_value(s, &b, k, &y)) {
                exl2__grammar_schema_expand(s, &x);
                exl2__grammar_schema_expand(s, &y);
                if (exl2__grammar_object_tags(s, &x, &y)) {
                    return true;
                }
            }
        }
    }
    return false;
}

/* ---- all kinds of values ---- */

/* Does the object have keys of these words only? */
static bool exl2__grammar_object_only(const exl2__grammar_schema *s, uint32_t object, const char *const *words,
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

/* Branches that list values and nothing else, in a schema that says no more than a type: their values are one list,
   however many there are. false: the schema is not of this kind, or branches of oneOf share a value. */
EXL2__COLD
static bool exl2__grammar_object_values(exl2__grammar_schema *s, const exl2__grammar_schema_set *set, uint32_t list,
                                        exl2__grammar_code_piece *out)
{
    static const char *const words[] = { "const", "enum", "type", "title", "description", "$comment", "deprecated" };
    static const char *const outer[] = { "anyOf", "oneOf", "type", "title", "description", "$comment", "deprecated",
                                         "$defs", "definitions", "$schema", "$id", "default", "examples" };
    uint32_t part = set->parts[0] / 4, total = 0, token;
    bool is_one_of = exl2__json_is(&s->j, list - 1, "oneOf");
    if (set->count > 1 || !exl2__grammar_object_only(s, part, outer, EXL2__COUNT(outer))
        || exl2__grammar_schema_get(s, part, is_one_of ? "anyOf" : "oneOf")) {
        return false;
    }
    for (uint32_t k = exl2__json_first(&s->j, list); k; k = exl2__json_next(&s->j, list, k)) {
        uint32_t one = exl2__grammar_value_count_of(s, k, false, &token);
        uint32_t many = exl2__grammar_value_count_of(s, k, true, &token);
        if ((one > 0) == (many > 0) || !exl2__grammar_object_only(s, k, words, EXL2__COUNT(words))) {
            return false;
        }
        total += one + many;
    }
    exl2__grammar_choice values;
    exl2__grammar_choice_open(s->g, total, &values);
    uint32_t types = exl2__grammar_schema_types(s, set);
    char *room = s->buffer;
    for (uint32_t k = exl2__json_first(&s->j, list); k; k = exl2__json_next(&s->j, list, k)) {
        exl2__grammar_schema_set branch = { { k * 4 }, 1, false };
        bool is_enum = exl2__grammar_value_count_of(s, k, true, &token) > 0;
        exl2__grammar_value_count_of(s, k, is_enum, &token);
        room = exl2__grammar_value_spell(s, token, is_enum, types & exl2__grammar_schema_types(s, &branch), room,
                                         &values);
    }
    bool twice = exl2__grammar_choice_sort(&values) > 0;
    if (!twice || !is_one_of) {
        *out = exl2__grammar_choice_piece(&values);
    }
    exl2__grammar_choice_close(&values);
    return !twice || !is_one_of;
}

/* The set with each branch of a list, `chosen` marking that this list is dealt with. */
EXL2__COLD
static exl2__grammar_code_piece exl2__grammar_object_branches(exl2__grammar_schema *s,
                                                              const exl2__grammar_schema_set *set, uint32_t part,
                                                              uint32_t list, uint32_t chosen)
{
    exl2__grammar_code_piece all = { 0, 0 };
    uint32_t count = s->j.tokens[list].count;
    if (exl2__grammar_object_values(s, set, list, &all)) {
        return all;
    }
    if (count == 0 || count > EXL2__GRAMMAR_SCHEMA_BRANCHES_MAX) {
        exl2__grammar_schema_refuse(s, EXL2_ERR_FORMAT, list - 1, "a list of branches must have 1 to 256");
        return exl2__grammar_value_never(s->g);
    }
    for (uint32_t k = exl2__json_first(&s->j, list); k && s->g->result == EXL2_OK;
         k = exl2__json_next(&s->j, list, k)) {
        for (uint32_t o = chosen == 2 ? exl2__json_first(&s->j, list) : k; o != k && s->g->result == EXL2_OK;
             o = exl2__json_next(&s->j, list, o)) {
            if (!exl2__grammar_object_disjoint(s, o, k)) {
                exl2__grammar_schema_refuse(s, EXL2_ERR_UNSUPPORTED, k,
                                            "oneOf with branches that do not differ by type, or by a const or enum of "
                                            "a required property");
            }
        }
        exl2__grammar_schema_set branch = { { k * 4 }, 1, false };
        exl2__grammar_schema_expand(s, &branch);
        for (uint32_t i = 0; i < branch.count; i++) {
            for (uint32_t o = 0; o < set->count; o++) {
                if (set->parts[o] / 4 == branch.parts[i] / 4 && (set->parts[o] / 4 == part / 4 || set->parts[o] % 4)) {
                    exl2__grammar_schema_refuse(s, EXL2_ERR_UNSUPPORTED, list - 1,
                                                "a schema that refers to itself with no value in between");
                }
            }
        }
        branch = *set;
        exl2__grammar_schema_add(s, &branch, part | chosen);
        exl2__grammar_schema_add(s, &branch, k * 4);
        exl2__grammar_code_or(s->g, &all, exl2__grammar_code_call(s->g, exl2__grammar_schema_rule(s, &branch)));
    }
    return all;
}

EXL2__COLD
static exl2__grammar_code_piece exl2__grammar_object_body(exl2__grammar_schema *s, const exl2__grammar_schema_set *set)
{
    exl2__grammar_code *g = s->g;
    exl2__grammar_code_piece all = { 0, 0 };
    for (uint32_t i = 0; i < set->count; i++) {
        for (uint32_t chosen = 1; chosen <= 2; chosen++) {
            uint32_t list = exl2__grammar_schema_get_kind(s, set->parts[i] / 4, chosen == 1 ? "anyOf" : "oneOf",
                                                          EXL2__JSON_ARRAY);
            if (list && !(set->parts[i] & chosen)) {
                return exl2__grammar_object_branches(s, set, set->parts[i], list, chosen);
            }
        }
    }
    uint32_t types = exl2__grammar_schema_types(s, set);
    if (types == 0) {
        return exl2__grammar_value_never(g);
    }
    if (set->count == 0) {
        return exl2__grammar_value_call(s, EXL2__GRAMMAR_SCHEMA_SHARED_VALUE);
    }
    if (exl2__grammar_value_constants(s, set, types, &all)) {
        return all;
    }
    if (types & EXL2__GRAMMAR_SCHEMA_NULL) {
        exl2__grammar_code_or(g, &all, exl2__grammar_code_word(g, "null"));
    }
    if (types & EXL2__GRAMMAR_SCHEMA_BOOLEAN) {
        exl2__grammar_code_or(g, &all, exl2__grammar_value_regex(g, "true|false"));
    }
    if (types & EXL2__GRAMMAR_SCHEMA_NUMBER) {
        bool integer = !(types & EXL2__GRAMMAR_SCHEMA_FRACTION);
        exl2__grammar_code_or(g, &all, exl2__grammar_value_number(s, set, integer));
    }
    if (types & EXL2__GRAMMAR_SCHEMA_STRING) {
        exl2__grammar_code_or(g, &all, exl2__grammar_value_string(s, set));
    }
    if (types & EXL2__GRAMMAR_SCHEMA_ARRAY) {
        exl2__grammar_code_or(g, &all, exl2__grammar_value_array(s, set));
    }
    if (types & EXL2__GRAMMAR_SCHEMA_OBJECT) {
        exl2__grammar_code_or(g, &all, exl2__grammar_object_piece(s, set));
    }
    return all;
}

/* ---- schemas ---- */

static void exl2__grammar_object_rules(exl2__grammar_schema *s)
{
    exl2__grammar_schema_set root = { { 0 }, 1, false };
    exl2__grammar_schema_rule(s, &root); /* rule 0 */
    for (uint32_t i = 0; i < s->made_count && s->g->result == EXL2_OK; i++) {
        exl2__grammar_schema_made made = s->made[i];
        exl2__grammar_schema_set set = { { 0 }, made.count % 1000, made.count >= 1000 };
        memcpy(set.parts, s->pool + made.parts, set.count * sizeof *set.parts);
        exl2__grammar_code_define(s->g, made.rule, exl2__grammar_object_body(s, &set));
    }
}

/* Fills a code that is just opened. */
EXL2__COLD
static void exl2__grammar_object_read(exl2__grammar_code *g, const char *text, size_t bytes)
{
    exl2__grammar_schema s = { 0 };
    void *buffer;
    uint64_t room = 16 * (uint64_t)bytes + 64;
    s.g = g;
    g->result = exl2__json_open(g->c, g->label, text, bytes, &s.j);
    if (g->result < 0) {
        return;
    }
    g->result = exl2__alloc(g->c, room, 8, EXL2_MEM_GENERAL, &buffer);
    if (g->result == EXL2_OK) {
        s.buffer = (char *)buffer;
        exl2__grammar_object_rules(&s);
        exl2__free(g->c, buffer, room, EXL2_MEM_GENERAL);
    }
    exl2__free(g->c, s.made, (uint64_t)s.made_room * sizeof *s.made, EXL2_MEM_GENERAL);
    exl2__free(g->c, s.pool, (uint64_t)s.pool_room * sizeof *s.pool, EXL2_MEM_GENERAL);
    exl2__json_close(g->c, &s.j);
}

#endif

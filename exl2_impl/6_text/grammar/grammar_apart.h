/* grammar_apart.h: which subschemas are disjoint, and how objects avoid a subschema that must not hold.
   takes: expanded sets of subschemas.
   gives: exl2__grammar_apart_disjoint, exl2__grammar_apart_exclude. */
#ifndef EXL2__GRAMMAR_APART_H
#define EXL2__GRAMMAR_APART_H

#include "grammar_object_keys.h"

/* Do two parts that both list constants share one? */
EXL2__PRIVATE bool exl2__grammar_apart_shared(exl2__grammar_schema *s, uint32_t part, uint32_t other)
{
    exl2__grammar_schema_set both = exl2__grammar_schema_set_of(part);
    both.parts[both.count++] = exl2__grammar_schema_sub_of(other);
    exl2__grammar_choice values;
    exl2__grammar_value_listed(s, &both, EXL2__GRAMMAR_SCHEMA_ANY, &values);
    bool shared = values.count || s->g->result < 0;
    exl2__grammar_choice_close(&values);
    return shared;
}

/* Do the two sets have constants, and share none? */
EXL2__PRIVATE bool exl2__grammar_apart_constants(exl2__grammar_schema *s, const exl2__grammar_schema_set *a,
                                                 const exl2__grammar_schema_set *b)
{
    for (uint32_t i = 0; i < a->count; i++) {
        uint32_t part = a->parts[i].token;
        if (!exl2__grammar_schema_get(s, part, "const") && !exl2__grammar_schema_get(s, part, "enum")) {
            continue;
        }
        for (uint32_t k = 0; k < b->count; k++) {
            uint32_t other = b->parts[k].token;
            bool lists = exl2__grammar_schema_get(s, other, "const") || exl2__grammar_schema_get(s, other, "enum");
            if (lists && !exl2__grammar_apart_shared(s, part, other)) {
                return true;
            }
        }
    }
    return false;
}

/* Are two expanded sets disjoint, by their types or by their constants? */
EXL2__PRIVATE bool exl2__grammar_apart_values(exl2__grammar_schema *s, const exl2__grammar_schema_set *a,
                                              const exl2__grammar_schema_set *b)
{
    return (exl2__grammar_types_of(s, a, false) & exl2__grammar_types_of(s, b, false)) == 0
        || exl2__grammar_apart_constants(s, a, b);
}

/* Does `a` require a key that `b` forbids, or a key for which the two sets have disjoint values? */
EXL2__PRIVATE bool exl2__grammar_apart_members(exl2__grammar_schema *s, const exl2__grammar_schema_set *a,
                                               const exl2__grammar_schema_set *b)
{
    for (uint32_t i = 0; i < a->count; i++) {
        uint32_t list = exl2__grammar_schema_get_kind(s, a->parts[i].token, "required", EXL2__JSON_ARRAY);
        for (uint32_t k = list ? exl2__json_first(&s->j, list) : 0; k; k = exl2__json_next(&s->j, list, k)) {
            exl2__grammar_schema_set x, y;
            bool patterns = false; /* patternProperties of b, which could match the key */
            for (uint32_t p = 0; p < b->count; p++) {
                patterns = patterns || exl2__grammar_schema_get(s, b->parts[p].token, "patternProperties");
            }
            if (s->j.tokens[k].kind != EXL2__JSON_STRING || !exl2__grammar_object_value(s, a, k, NULL, 0, &x)) {
                continue;
            }
            for (uint32_t p = 0; p < b->count && patterns; p++) { /* no matter, if properties declare the key */
                patterns = !exl2__grammar_object_property(s, b->parts[p].token, k);
            }
            if (patterns) {
                continue;
            }
            if (!exl2__grammar_object_value(s, b, k, NULL, 0, &y)) {
                return true;
            }
            exl2__grammar_schema_expand(s, &x);
            exl2__grammar_schema_expand(s, &y);
            if (exl2__grammar_apart_values(s, &x, &y)) {
                return true;
            }
        }
    }
    return false;
}

/* Are two subschemas certainly disjoint? */
EXL2__PRIVATE bool exl2__grammar_apart_disjoint(exl2__grammar_schema *s, uint32_t left, uint32_t right)
{
    exl2__grammar_schema_set a = exl2__grammar_schema_set_of(left), b = exl2__grammar_schema_set_of(right);
    exl2__grammar_schema_expand(s, &a);
    exl2__grammar_schema_expand(s, &b);
    uint32_t both = exl2__grammar_types_of(s, &a, false) & exl2__grammar_types_of(s, &b, false);
    return both == 0 || exl2__grammar_apart_constants(s, &a, &b)
        || (!(both & ~(uint32_t)EXL2__GRAMMAR_SCHEMA_NUMBER) && exl2__grammar_number_apart(s, &a, &b))
        || (both == EXL2__GRAMMAR_SCHEMA_OBJECT
            && (exl2__grammar_apart_members(s, &a, &b) || exl2__grammar_apart_members(s, &b, &a)));
}

/* ---- objects that avoid a subschema ---- */

/* Does the other set require a member that the object cannot have? */
EXL2__PRIVATE bool exl2__grammar_apart_lacks(exl2__grammar_schema *s, exl2__grammar_object *o,
                                             const exl2__grammar_schema_set *set, const exl2__grammar_schema_set *other)
{
    for (uint32_t i = 0; i < other->count; i++) {
        uint32_t list = exl2__grammar_schema_get_kind(s, other->parts[i].token, "required", EXL2__JSON_ARRAY);
        for (uint32_t k = list ? exl2__json_first(&s->j, list) : 0; k; k = exl2__json_next(&s->j, list, k)) {
            if (!exl2__grammar_object_possible(s, o, set, k)) {
                return true;
            }
        }
    }
    return false;
}

/* Chooses a member that the set requires; its value must then not match the other set's property. With `constants`,
   only properties with constants, or with nothing but a type, are tried; without it, only the other properties. */
EXL2__PRIVATE bool exl2__grammar_apart_member(exl2__grammar_schema *s, exl2__grammar_object *o,
                                              const exl2__grammar_schema_set *set,
                                              const exl2__grammar_schema_set *other, exl2__grammar_schema_sub not,
                                              bool constants)
{
    for (uint32_t i = 0; i < other->count; i++) {
        uint32_t list = exl2__grammar_schema_get_kind(s, other->parts[i].token, "properties", EXL2__JSON_OBJECT);
        for (uint32_t k = list ? exl2__json_first(&s->j, list) : 0; k; k = exl2__json_next(&s->j, list, k)) {
            exl2__grammar_schema_set value = exl2__grammar_schema_set_of(k + 1);
            bool one;
            if (!exl2__grammar_object_requires(s, set, k)) {
                continue;
            }
            exl2__grammar_schema_expand(s, &value);
            uint32_t types = exl2__grammar_types_of(s, &value, false);
            bool plain = exl2__grammar_number_lists(s, &value, &one)
                || (types && !exl2__grammar_types_restricts(s, &value, types));
            if (plain == constants && value.count && o->not_count < EXL2__GRAMMAR_SCHEMA_NOTS_MAX) {
                o->not_keys[o->not_count] = k;
                o->not_values[o->not_count] = exl2__grammar_schema_sub_of(k + 1);
                o->not_values[o->not_count++].other_branch = not.other_branch;
                return true;
            }
        }
    }
    return false;
}

/* Forbids a member that the other set requires and this one does not. */
EXL2__PRIVATE bool exl2__grammar_apart_forbid(exl2__grammar_schema *s, exl2__grammar_object *o,
                                              const exl2__grammar_schema_set *set,
                                              const exl2__grammar_schema_set *other)
{
    for (uint32_t i = 0; i < other->count; i++) {
        uint32_t list = exl2__grammar_schema_get_kind(s, other->parts[i].token, "required", EXL2__JSON_ARRAY);
        for (uint32_t k = list ? exl2__json_first(&s->j, list) : 0; k; k = exl2__json_next(&s->j, list, k)) {
            if (!exl2__grammar_object_requires(s, set, k) && o->forbidden_count < EXL2__GRAMMAR_SCHEMA_NOTS_MAX) {
                o->forbidden[o->forbidden_count++] = k;
                return true;
            }
        }
    }
    return false;
}

/* Changes the object's counts so that it violates maxProperties or minProperties of the other set. false: it has
   neither. */
EXL2__PRIVATE bool exl2__grammar_apart_count(exl2__grammar_schema *s, exl2__grammar_object *o,
                                             const exl2__grammar_schema_set *other)
{
    uint32_t least = exl2__grammar_value_count(s, other, "minProperties", false);
    uint32_t most = exl2__grammar_value_count(s, other, "maxProperties", true);
    if (most != EXL2__GRAMMAR_CODE_ENDLESS) {
        o->min = exl2__max32(o->min, most + 1);
    } else if (least) {
        o->max = exl2__min32(o->max, least - 1);
    }
    return least || most != EXL2__GRAMMAR_CODE_ENDLESS;
}

/* For each subschema that must not hold, chooses a condition of it that the object violates: one that the object
   violates anyway, or else the one that excludes the fewest objects. false: an error. */
EXL2__PRIVATE bool exl2__grammar_apart_exclude(exl2__grammar_schema *s, exl2__grammar_object *o,
                                               const exl2__grammar_schema_set *set)
{
    for (uint32_t i = 0; i < set->not_count && s->g->result == EXL2_OK; i++) {
        exl2__grammar_schema_set other;
        if (!exl2__grammar_types_not(s, set->nots[i], EXL2__GRAMMAR_SCHEMA_OBJECT, &other)) {
            continue;
        }
        if (exl2__grammar_apart_constants(s, set, &other) || exl2__grammar_apart_members(s, set, &other)
            || exl2__grammar_apart_lacks(s, o, set, &other)) {
            continue;
        }
        bool apart = exl2__grammar_apart_member(s, o, set, &other, set->nots[i], true)
            || exl2__grammar_apart_forbid(s, o, set, &other)
            || exl2__grammar_apart_member(s, o, set, &other, set->nots[i], false)
            || exl2__grammar_apart_count(s, o, &other);
        if (!apart) {
            exl2__grammar_types_reject_not(s, set->nots[i]);
        } else if (exl2__grammar_types_conditions(s, &other, EXL2__GRAMMAR_SCHEMA_OBJECT) > 1) {
            exl2__grammar_types_doubt_not(s, set->nots[i]);
        }
    }
    return s->g->result == EXL2_OK;
}

#endif

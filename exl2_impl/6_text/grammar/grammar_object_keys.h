/* grammar_object_keys.h: which keys an object of a schema can have, and the subschemas that hold for their values.
   takes: expanded sets of subschemas.
   gives: exl2__grammar_object, exl2__grammar_object_property, requires, value, declared, rest, possible. */
#ifndef EXL2__GRAMMAR_OBJECT_KEYS_H
#define EXL2__GRAMMAR_OBJECT_KEYS_H

#include "grammar_depend.h"
#include "grammar_keys.h"

/* What is decided about an object before its members are written. */
typedef struct exl2__grammar_object {
    exl2__grammar_keys keys;
    exl2__grammar_depend depend;
    uint32_t forbidden[EXL2__GRAMMAR_SCHEMA_NOTS_MAX]; /* keys that the object must not have */
    uint32_t not_keys[EXL2__GRAMMAR_SCHEMA_NOTS_MAX];  /* keys whose values must not match not_values */
    exl2__grammar_schema_sub not_values[EXL2__GRAMMAR_SCHEMA_NOTS_MAX];
    uint32_t forbidden_count, not_count, min, max;
} exl2__grammar_object;

/* The subschema for the key in one part's properties, or 0. */
EXL2__PRIVATE uint32_t exl2__grammar_object_property(exl2__grammar_schema *s, uint32_t part, uint32_t key)
{
    uint32_t list = exl2__grammar_schema_get_kind(s, part, "properties", EXL2__JSON_OBJECT);
    for (uint32_t k = list ? exl2__json_first(&s->j, list) : 0; k; k = exl2__json_next(&s->j, list, k)) {
        if (k == key || exl2__json_same(&s->j, k, key)) {
            return k + 1;
        }
    }
    return 0;
}

EXL2__PRIVATE bool exl2__grammar_object_requires(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                                 uint32_t key)
{
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t list = exl2__grammar_schema_get_kind(s, set->parts[i].token, "required", EXL2__JSON_ARRAY);
        for (uint32_t k = list ? exl2__json_first(&s->j, list) : 0; k; k = exl2__json_next(&s->j, list, k)) {
            if (s->j.tokens[k].kind != EXL2__JSON_STRING) {
                exl2__grammar_schema_reject(s, EXL2_ERR_FORMAT, k, "required must be a list of strings");
            } else if (exl2__json_same(&s->j, k, key)) {
                return true;
            }
        }
    }
    return false;
}

/* Adds the part's subschemas for a key that matches the patterns of `mask`: `property` (0 = none), those of the
   patterns, or if there are none additionalProperties. false: one of them is `false`. */
EXL2__PRIVATE bool exl2__grammar_object_part(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                             uint32_t part, const exl2__grammar_keys *keys, uint32_t mask,
                                             uint32_t property, exl2__grammar_schema_set *value, bool *has_schema)
{
    uint32_t tokens[EXL2__GRAMMAR_PRODUCT_REPORTS_MAX + 1], count = 0;
    if (property) {
        tokens[count++] = property;
    }
    for (uint32_t i = 0; keys && i < keys->count; i++) {
        if (keys->parts[i] == part && (mask >> i & 1)) {
            tokens[count++] = keys->patterns[i] + 1;
        }
    }
    if (!count) {
        tokens[0] = exl2__grammar_schema_get(s, set->parts[part].token, "additionalProperties");
        count = tokens[0] != 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (s->j.tokens[tokens[i]].kind == EXL2__JSON_FALSE) {
            return false;
        }
        exl2__grammar_schema_add(s, value, exl2__grammar_schema_sub_of(tokens[i]));
    }
    *has_schema = *has_schema || count;
    return true;
}

/* Adds unevaluatedProperties, for a key that nothing else applies to. false: the key is forbidden. */
EXL2__PRIVATE bool exl2__grammar_object_unevaluated(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                                    exl2__grammar_schema_set *value, bool *has_schema)
{
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t token = exl2__grammar_schema_get(s, set->parts[i].token, "unevaluatedProperties");
        if (token && s->j.tokens[token].kind == EXL2__JSON_FALSE) {
            return false;
        }
        if (token) {
            exl2__grammar_schema_add(s, value, exl2__grammar_schema_sub_of(token));
            *has_schema = true;
        }
    }
    return true;
}

/* All subschemas for the value of a key that matches the patterns of `mask`. false: the key is forbidden. Without
   `keys`, patterns and unevaluatedProperties are left out. */
EXL2__PRIVATE bool exl2__grammar_object_value(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                              uint32_t key, const exl2__grammar_keys *keys, uint32_t mask,
                                              exl2__grammar_schema_set *value)
{
    bool has_schema = false;
    *value = (exl2__grammar_schema_set){ .count = 0 };
    if (mask == EXL2__GRAMMAR_PRODUCT_NONE) {
        return false;
    }
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t property = exl2__grammar_object_property(s, set->parts[i].token, key);
        if (!exl2__grammar_object_part(s, set, i, keys, mask, property, value, &has_schema)) {
            return false;
        }
    }
    return has_schema || !keys || exl2__grammar_object_unevaluated(s, set, value, &has_schema);
}

EXL2__PRIVATE bool exl2__grammar_object_forbids(const exl2__grammar_schema *s, const exl2__grammar_object *o,
                                                uint32_t key)
{
    bool found = false;
    for (uint32_t i = 0; i < o->forbidden_count && !found; i++) {
        found = exl2__json_same(&s->j, o->forbidden[i], key);
    }
    return found;
}

/* All subschemas for the value of a declared key in the object `o`. false: the object must not have the key. */
EXL2__PRIVATE bool exl2__grammar_object_declared(exl2__grammar_schema *s, exl2__grammar_object *o,
                                                 const exl2__grammar_schema_set *set, uint32_t key,
                                                 exl2__grammar_schema_set *value)
{
    if (exl2__grammar_object_forbids(s, o, key)) {
        return false;
    }
    if (!exl2__grammar_object_value(s, set, key, &o->keys, exl2__grammar_keys_match(s, &o->keys, key), value)) {
        return false;
    }
    for (uint32_t i = 0; i < o->not_count; i++) {
        if (exl2__json_same(&s->j, o->not_keys[i], key)) {
            exl2__grammar_schema_add_not(s, value, o->not_values[i]);
        }
    }
    return true;
}

/* All subschemas for members that are not declared and whose keys match the patterns of `mask`. false: there are no
   such members. If no part has a subschema for them there are none either, unless no part declares any members: then
   the object may hold anything. */
EXL2__PRIVATE bool exl2__grammar_object_rest(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                             const exl2__grammar_keys *keys, uint32_t mask,
                                             exl2__grammar_schema_set *value)
{
    static const char *const names[] = { "properties", "required", "patternProperties", "additionalProperties" };
    bool named = false, has_schema = false;
    *value = (exl2__grammar_schema_set){ .count = 0 };
    for (uint32_t i = 0; i < set->count; i++) {
        for (uint32_t k = 0; k < 4; k++) {
            named = named || exl2__grammar_schema_get(s, set->parts[i].token, names[k]);
        }
        if (!exl2__grammar_object_part(s, set, i, keys, mask, 0, value, &has_schema)) {
            return false;
        }
    }
    return (has_schema || exl2__grammar_object_unevaluated(s, set, value, &has_schema)) && (has_schema || !named);
}

static const char *const exl2__grammar_object_dependencies[] = { "dependentRequired", "dependencies" };

/* Is the key in a list of dependentRequired or dependencies? It may then be written, as a required key may. */
EXL2__PRIVATE bool exl2__grammar_object_needed(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                               uint32_t key)
{
    bool found = false;
    for (uint32_t i = 0; i < 2 * set->count && !found; i++) {
        uint32_t list = exl2__grammar_schema_get(s, set->parts[i / 2].token, exl2__grammar_object_dependencies[i % 2]);
        for (uint32_t k = list ? exl2__json_first(&s->j, list) : 0; k && !found; k = exl2__json_next(&s->j, list, k)) {
            for (uint32_t r = exl2__json_first(&s->j, k + 1); r && !found; r = exl2__json_next(&s->j, k + 1, r)) {
                found = s->j.tokens[k + 1].kind == EXL2__JSON_ARRAY && exl2__json_same(&s->j, r, key);
            }
        }
    }
    return found;
}

/* Can the object have a member with this key? */
EXL2__PRIVATE bool exl2__grammar_object_possible(exl2__grammar_schema *s, exl2__grammar_object *o,
                                                 const exl2__grammar_schema_set *set, uint32_t key)
{
    exl2__grammar_schema_set value;
    bool declared = exl2__grammar_object_requires(s, set, key) || exl2__grammar_object_needed(s, set, key);
    for (uint32_t i = 0; i < set->count && !declared; i++) {
        declared = exl2__grammar_object_property(s, set->parts[i].token, key) != 0;
    }
    uint32_t mask = exl2__grammar_keys_match(s, &o->keys, key);
    return declared ? exl2__grammar_object_declared(s, o, set, key, &value)
        : !exl2__grammar_object_forbids(s, o, key) && mask != EXL2__GRAMMAR_PRODUCT_NONE
            && exl2__grammar_object_rest(s, set, &o->keys, mask, &value);
}

#endif

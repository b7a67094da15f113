/* grammar_types.h: which types of values a set of subschemas allows, also where a subschema must not hold (`not`).
   takes: expanded sets of subschemas.
   gives: exl2__grammar_types_of, exl2__grammar_types_value, exl2__grammar_types_not, exl2__grammar_types_restricts,
          exl2__grammar_types_conditions, exl2__grammar_types_reject_not, exl2__grammar_types_doubt_not. */
#ifndef EXL2__GRAMMAR_TYPES_H
#define EXL2__GRAMMAR_TYPES_H

#include "grammar_schema.h"

EXL2__PRIVATE uint32_t exl2__grammar_types_named(exl2__grammar_schema *s, uint32_t token)
{
    static const struct { const char *name; uint32_t types; } names[] = {
        { "null", EXL2__GRAMMAR_SCHEMA_NULL }, { "boolean", EXL2__GRAMMAR_SCHEMA_BOOLEAN },
        { "integer", EXL2__GRAMMAR_SCHEMA_INTEGER }, { "number", EXL2__GRAMMAR_SCHEMA_NUMBER },
        { "string", EXL2__GRAMMAR_SCHEMA_STRING }, { "array", EXL2__GRAMMAR_SCHEMA_ARRAY },
        { "object", EXL2__GRAMMAR_SCHEMA_OBJECT }, { "any", EXL2__GRAMMAR_SCHEMA_ANY }, /* "any": draft 3 */
    };
    for (size_t i = 0; i < EXL2__COUNT(names); i++) {
        if (exl2__json_is(&s->j, token, names[i].name)) {
            return names[i].types;
        }
    }
    exl2__grammar_schema_reject(s, EXL2_ERR_FORMAT, token,
                                "the type must be null, boolean, integer, number, string, array or object");
    return 0;
}

EXL2__PRIVATE uint32_t exl2__grammar_types_value(const exl2__grammar_schema *s, uint32_t value)
{
    static const uint8_t types[] = { /* by exl2__json_kind */
        EXL2__GRAMMAR_SCHEMA_OBJECT, EXL2__GRAMMAR_SCHEMA_ARRAY, EXL2__GRAMMAR_SCHEMA_STRING,
        EXL2__GRAMMAR_SCHEMA_NUMBER, EXL2__GRAMMAR_SCHEMA_BOOLEAN, EXL2__GRAMMAR_SCHEMA_BOOLEAN,
        EXL2__GRAMMAR_SCHEMA_NULL,
    };
    int64_t number;
    uint32_t type = types[s->j.tokens[value].kind];
    return type == EXL2__GRAMMAR_SCHEMA_NUMBER && exl2__json_i64(&s->j, value, &number)
        ? EXL2__GRAMMAR_SCHEMA_INTEGER : type == EXL2__GRAMMAR_SCHEMA_NUMBER ? EXL2__GRAMMAR_SCHEMA_FRACTION : type;
}

/* Types that one part allows. Adds to *restricted the types that its other keywords restrict; sets *named if the part
   names types itself, by type, const or enum. */
EXL2__PRIVATE uint32_t exl2__grammar_types_part(exl2__grammar_schema *s, uint32_t part, uint32_t *restricted,
                                                bool *named)
{
    uint32_t types = EXL2__GRAMMAR_SCHEMA_ANY, here = 0;
    uint32_t type = exl2__grammar_schema_get(s, part, "type"), value = exl2__grammar_schema_get(s, part, "const");
    uint32_t values = exl2__grammar_schema_get_kind(s, part, "enum", EXL2__JSON_ARRAY);
    uint32_t nullable = exl2__grammar_schema_get(s, part, "nullable");
    if (type && s->j.tokens[type].kind == EXL2__JSON_ARRAY) {
        for (uint32_t k = exl2__json_first(&s->j, type); k; k = exl2__json_next(&s->j, type, k)) {
            here |= exl2__grammar_types_named(s, k);
        }
    } else if (type) {
        here = exl2__grammar_types_named(s, type);
    }
    here |= nullable && s->j.tokens[nullable].kind == EXL2__JSON_TRUE ? EXL2__GRAMMAR_SCHEMA_NULL : 0;
    types &= type ? here : EXL2__GRAMMAR_SCHEMA_ANY;
    here = value ? exl2__grammar_types_value(s, value) : 0;
    for (uint32_t k = values ? exl2__json_first(&s->j, values) : 0; k; k = exl2__json_next(&s->j, values, k)) {
        here |= exl2__grammar_types_value(s, k);
    }
    *named = *named || type || value || values;
    for (size_t k = 0; k < EXL2__COUNT(exl2__grammar_schema_keywords); k++) {
        const exl2__grammar_schema_keyword *word = &exl2__grammar_schema_keywords[k];
        *restricted |= word->types && exl2__grammar_schema_get(s, part, word->name) ? word->types : 0u;
    }
    return types & (value || values ? here : EXL2__GRAMMAR_SCHEMA_ANY);
}

/* Does the set restrict values of these types by anything but the type? */
EXL2__PRIVATE bool exl2__grammar_types_restricts(const exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                                 uint32_t types)
{
    static const char *const choices[] = { "enum", "const", "anyOf", "oneOf" };
    for (uint32_t i = 0; i < set->count; i++) {
        for (size_t k = 0; k < EXL2__COUNT(exl2__grammar_schema_keywords); k++) {
            const exl2__grammar_schema_keyword *word = &exl2__grammar_schema_keywords[k];
            if ((word->types & types) && exl2__grammar_schema_get(s, set->parts[i].token, word->name)) {
                return true;
            }
        }
        for (uint32_t k = 0; k < 4; k++) {
            if (exl2__grammar_schema_get(s, set->parts[i].token, choices[k])) {
                return true;
            }
        }
    }
    return set->not_count > 0;
}

/* Types that the set's parts allow, without its nots. With `narrow`, parts that name no types allow only the types that
   their keywords restrict. */
EXL2__PRIVATE uint32_t exl2__grammar_types_positive(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                                    bool narrow)
{
    uint32_t types = EXL2__GRAMMAR_SCHEMA_ANY, restricted = 0;
    bool named = false;
    for (uint32_t i = 0; i < set->count; i++) {
        types &= exl2__grammar_types_part(s, set->parts[i].token, &restricted, &named);
    }
    return set->never ? 0 : named || !restricted || !narrow ? types : types & restricted;
}

/* Expands a subschema that must not hold into *out. Returns which of `types` it may accept: no value of the other types
   matches it. */
EXL2__PRIVATE uint32_t exl2__grammar_types_not(exl2__grammar_schema *s, exl2__grammar_schema_sub not, uint32_t types,
                                               exl2__grammar_schema_set *out)
{
    *out = exl2__grammar_schema_set_of(not.token);
    exl2__grammar_schema_expand(s, out);
    return types & exl2__grammar_types_positive(s, out, false);
}

/* Types that a value of the expanded set may have. With `narrow`: the types that are generated. Without: all types that
   are possible, so no matching value has another type. */
EXL2__PRIVATE uint32_t exl2__grammar_types_of(exl2__grammar_schema *s, const exl2__grammar_schema_set *set, bool narrow)
{
    uint32_t types = exl2__grammar_types_positive(s, set, narrow);
    for (uint32_t i = 0; i < set->not_count && types && s->g->result == EXL2_OK; i++) {
        exl2__grammar_schema_set other;
        uint32_t both = exl2__grammar_types_not(s, set->nots[i], types, &other);
        for (uint32_t type = 1; type < EXL2__GRAMMAR_SCHEMA_ANY; type *= 2) {
            if ((both & type) && !exl2__grammar_types_restricts(s, &other, type)) {
                types &= ~type;
            }
        }
    }
    return types;
}

/* The number of conditions of the set on values of these types, besides the type itself. Choices and nots are at least
   two: a value can violate them in several ways. */
EXL2__PRIVATE uint32_t exl2__grammar_types_conditions(const exl2__grammar_schema *s,
                                                      const exl2__grammar_schema_set *set, uint32_t types)
{
    uint32_t conditions = 2 * set->not_count;
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t part = set->parts[i].token;
        for (size_t k = 0; k < EXL2__COUNT(exl2__grammar_schema_keywords); k++) {
            const exl2__grammar_schema_keyword *word = &exl2__grammar_schema_keywords[k];
            uint32_t value = word->types & types ? exl2__grammar_schema_get(s, part, word->name) : 0;
            conditions += !value ? 0 : s->j.tokens[value].kind > EXL2__JSON_ARRAY ? 1 : s->j.tokens[value].count;
        }
        conditions += exl2__grammar_schema_get(s, part, "enum") || exl2__grammar_schema_get(s, part, "const");
        conditions += exl2__grammar_schema_get(s, part, "anyOf") || exl2__grammar_schema_get(s, part, "oneOf") ? 2 : 0;
    }
    return conditions;
}

EXL2__PRIVATE const char *exl2__grammar_types_cannot(exl2__grammar_schema_sub not)
{
    return not.other_branch ? "the other branches of oneOf cannot exclude the values of this one"
        : "`not` cannot exclude the values of this subschema";
}

/* Rejects the schema: the automaton cannot exclude the values of this `not` or of this branch of oneOf. */
EXL2__PRIVATE void exl2__grammar_types_reject_not(exl2__grammar_schema *s, exl2__grammar_schema_sub not)
{
    exl2__grammar_schema_reject(s, EXL2_ERR_UNSUPPORTED, not.token, exl2__grammar_types_cannot(not));
}

/* Notes that the automaton excludes more values than those of this `not` or branch. That is the reason to give if no
   text is left; while texts are left, the first such subschema is only kept. */
EXL2__PRIVATE void exl2__grammar_types_doubt_not(exl2__grammar_schema *s, exl2__grammar_schema_sub not)
{
    if (!s->g->doubt[0]) {
        exl2__grammar_schema_message(s, not.token, exl2__grammar_types_cannot(not), "", s->g->doubt);
    }
}

#endif

/* grammar_object.h: objects of a schema: declared members in the schema's order, then other members; counts.
   takes: expanded sets of subschemas.
   gives: exl2__grammar_object_piece. */
#ifndef EXL2__GRAMMAR_OBJECT_H
#define EXL2__GRAMMAR_OBJECT_H

#include "grammar_apart.h"

/* ---- members ---- */

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_object_pair(exl2__grammar_schema *s, exl2__grammar_code_piece key,
                                                                 exl2__grammar_schema_set *value)
{
    exl2__grammar_code_piece pair = exl2__grammar_code_cat(s->g, key, exl2__grammar_value_mark(s->g, ':'));
    return exl2__grammar_code_cat(s->g, pair, exl2__grammar_code_call(s->g, exl2__grammar_schema_rule(s, value)));
}

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_object_key_piece(exl2__grammar_schema *s, uint32_t key)
{
    return exl2__grammar_code_text(s->g, s->buffer, exl2__grammar_value_escape(s, key, s->buffer));
}

/* Has a key of the part's properties, or of its required list, been declared before? */
EXL2__PRIVATE bool exl2__grammar_object_seen(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                             uint32_t part, bool is_required, uint32_t key)
{
    bool seen = false;
    for (uint32_t i = 0; i < (is_required ? set->count : part) && !seen; i++) {
        seen = exl2__grammar_object_property(s, set->parts[i].token, key) != 0;
    }
    for (uint32_t i = 0; is_required && i <= part && !seen; i++) {
        uint32_t other = exl2__grammar_schema_get(s, set->parts[i].token, "required");
        for (uint32_t o = other ? exl2__json_first(&s->j, other) : 0; o && o != key && !seen;
             o = exl2__json_next(&s->j, other, o)) {
            seen = exl2__json_same(&s->j, o, key);
        }
    }
    return seen;
}

/* Adds the members that the part's keyword `name` declares, without those declared before. Returns their number.
   Without `write`, only counts them. *never: a required member is impossible. */
EXL2__PRIVATE uint32_t exl2__grammar_object_members(exl2__grammar_schema *s, exl2__grammar_object *o,
                                                    const exl2__grammar_schema_set *set, uint32_t part,
                                                    const char *name, bool write, bool *never)
{
    bool is_required = strcmp(name, "required") == 0;
    uint32_t list = exl2__grammar_schema_get(s, set->parts[part].token, name), count = 0;
    for (uint32_t k = list ? exl2__json_first(&s->j, list) : 0; k && s->g->result == EXL2_OK;
         k = exl2__json_next(&s->j, list, k)) {
        exl2__grammar_schema_set value;
        if (exl2__grammar_object_seen(s, set, part, is_required, k)) {
            continue;
        }
        bool need = is_required || exl2__grammar_object_requires(s, set, k);
        bool may = exl2__grammar_object_declared(s, o, set, k, &value);
        *never = *never || (need && !may);
        count += may;
        if (may && write && s->g->result == EXL2_OK) {
            exl2__grammar_depend_member(
                &o->depend, k, exl2__grammar_object_pair(s, exl2__grammar_object_key_piece(s, k), &value), need);
        }
    }
    return count;
}

/* The same for keys that only dependencies name. */
EXL2__PRIVATE uint32_t exl2__grammar_object_extras(exl2__grammar_schema *s, exl2__grammar_object *o,
                                                   const exl2__grammar_schema_set *set, bool write)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < o->depend.count && s->g->result == EXL2_OK; i++) {
        uint32_t key = o->depend.keys[i];
        exl2__grammar_schema_set value;
        bool seen = exl2__grammar_object_requires(s, set, key);
        for (uint32_t p = 0; p < set->count && !seen; p++) {
            seen = exl2__grammar_object_property(s, set->parts[p].token, key) != 0;
        }
        if (seen || !exl2__grammar_object_declared(s, o, set, key, &value)) {
            continue;
        }
        count++;
        if (write) {
            exl2__grammar_depend_member(
                &o->depend, key, exl2__grammar_object_pair(s, exl2__grammar_object_key_piece(s, key), &value), false);
        }
    }
    return count;
}

/* The rule for members that are not declared, by the patterns that their keys match; 0: there are none. */
EXL2__PRIVATE uint32_t exl2__grammar_object_others(exl2__grammar_schema *s, exl2__grammar_object *o,
                                                   const exl2__grammar_schema_set *set)
{
    exl2__grammar_code *g = s->g;
    uint32_t ends[EXL2__GRAMMAR_PRODUCT_OUTCOMES_MAX];
    if (!o->keys.open) { /* needed to exclude the forbidden keys */
        exl2__grammar_product_open(g, s->vocab, &o->keys.product);
        o->keys.open = true;
        exl2__grammar_string_plain(&o->keys.product);
    }
    for (uint32_t i = 0; i < set->count; i++) {
        static const char *const names[] = { "properties", "required" };
        for (uint32_t n = 0; n < 2; n++) {
            uint32_t list = exl2__grammar_schema_get(s, set->parts[i].token, names[n]);
            if (list && s->j.tokens[list].count) {
                exl2__grammar_string_choice(s, &o->keys.product, list, false, EXL2__GRAMMAR_PRODUCT_NOT);
            }
        }
    }
    for (uint32_t i = 0; i < o->forbidden_count; i++) {
        exl2__grammar_string_choice(s, &o->keys.product, o->forbidden[i], true, EXL2__GRAMMAR_PRODUCT_NOT);
    }
    for (uint32_t i = 0; i < o->depend.count; i++) {
        exl2__grammar_string_choice(s, &o->keys.product, o->depend.keys[i], true, EXL2__GRAMMAR_PRODUCT_NOT);
    }
    if (!exl2__grammar_product_run(&o->keys.product)) {
        return 0;
    }
    uint32_t rule = exl2__grammar_code_rule(g), any = 0;
    exl2__grammar_code_piece open = exl2__grammar_code_word(g, "\"");
    for (uint32_t i = 0; i < o->keys.product.outcome_count; i++) {
        exl2__grammar_schema_set value;
        ends[i] = 0;
        if (exl2__grammar_object_rest(s, set, &o->keys, o->keys.product.outcomes[i], &value)) {
            exl2__grammar_code_piece pair = exl2__grammar_object_pair(s, exl2__grammar_code_word(g, "\""), &value);
            ends[i] = pair.first;
            any++;
        }
    }
    uint32_t begin = exl2__grammar_product_emit(&o->keys.product, ends, true, NULL);
    if (any) {
        exl2__grammar_code_define(g, rule, open);
        exl2__grammar_code_join(g, open.last, begin);
    } else {
        exl2__grammar_code_define(g, rule, exl2__grammar_value_never(g));
    }
    return any ? rule : 0;
}

/* ---- conditions on several members ---- */

/* Does the part refer to all other parts of the set, by $ref, allOf, anyOf or oneOf? Only then does its
   unevaluatedProperties see their properties. *reached: bits of the parts that it refers to. */
EXL2__PRIVATE bool exl2__grammar_object_below(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                              uint32_t part, uint64_t *reached)
{
    static const char *const lists[] = { "allOf", "anyOf", "oneOf" };
    uint32_t stack[EXL2__GRAMMAR_SCHEMA_PARTS_MAX], top = 0;
    *reached = 1ull << part;
    stack[top++] = part;
    while (top && s->g->result == EXL2_OK) {
        uint32_t at = set->parts[stack[--top]].token, ref = exl2__grammar_schema_get(s, at, "$ref");
        uint32_t target = ref ? exl2__grammar_ref_target(s, ref) : UINT32_MAX;
        for (uint32_t i = 0; i < set->count; i++) {
            uint32_t other = set->parts[i].token;
            bool below = other == target;
            for (uint32_t l = 0; l < 3 && !below; l++) {
                uint32_t list = exl2__grammar_schema_get(s, at, lists[l]);
                for (uint32_t k = list ? exl2__json_first(&s->j, list) : 0; k && !below;
                     k = exl2__json_next(&s->j, list, k)) {
                    below = k == other;
                }
            }
            if (below && !(*reached >> i & 1)) {
                *reached |= 1ull << i;
                stack[top++] = i;
            }
        }
    }
    return *reached == (set->count == 64 ? ~0ull : (1ull << set->count) - 1);
}

/* Rejects an unevaluatedProperties that does not see all members. */
EXL2__PRIVATE void exl2__grammar_object_check(exl2__grammar_schema *s, const exl2__grammar_schema_set *set)
{
    for (uint32_t i = 0; i < set->count && s->g->result == EXL2_OK; i++) {
        uint32_t part = set->parts[i].token, token = exl2__grammar_schema_get(s, part, "unevaluatedProperties");
        uint64_t reached;
        if (token && s->j.tokens[token].kind != EXL2__JSON_TRUE && !exl2__grammar_object_below(s, set, i, &reached)) {
            exl2__grammar_schema_reject(s, EXL2_ERR_UNSUPPORTED, token - 1,
                                        "unevaluatedProperties does not see all subschemas of the object");
        }
    }
}

/* Looking for a key costs a walk over the dependencies. Rejects schemas for which all walks would need seconds. */
EXL2__PRIVATE void exl2__grammar_object_spend(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                              uint32_t key)
{
    for (uint32_t i = 0; i < 2 * set->count; i++) {
        uint32_t list = exl2__grammar_schema_get(s, set->parts[i / 2].token, exl2__grammar_object_dependencies[i % 2]);
        s->g->work += list ? 1 + (s->j.tokens[list].after - list) / 64 : 0;
    }
    if (s->g->work > EXL2__GRAMMAR_PRODUCT_WORK_MAX) {
        exl2__grammar_schema_reject(s, EXL2_ERR_BUDGET, key, "too many members depend on each other");
    }
}

/* Adds what the key needs to the object's dependencies. Returns true if the key becomes forbidden, because the object
   cannot have a member that the key needs. */
EXL2__PRIVATE bool exl2__grammar_object_need(exl2__grammar_schema *s, exl2__grammar_object *o,
                                             const exl2__grammar_schema_set *set, uint32_t key)
{
    uint32_t list = key + 1;
    if (s->j.tokens[list].kind != EXL2__JSON_ARRAY) {
        exl2__grammar_schema_reject(s, EXL2_ERR_UNSUPPORTED, key,
                                    "a subschema that applies only where a member is present is not supported");
        return false;
    }
    for (uint32_t r = exl2__json_first(&s->j, list); r; r = exl2__json_next(&s->j, list, r)) {
        if (s->j.tokens[r].kind != EXL2__JSON_STRING) {
            exl2__grammar_schema_reject(s, EXL2_ERR_FORMAT, r, "the value of this member must be a list of strings");
            return false;
        }
        exl2__grammar_object_spend(s, set, r);
        if (s->g->result < 0 || exl2__grammar_object_possible(s, o, set, r)) {
            continue;
        }
        if (o->forbidden_count == EXL2__GRAMMAR_SCHEMA_NOTS_MAX) {
            exl2__grammar_schema_reject(s, EXL2_ERR_BUDGET, key,
                                        "at most 64 members that must be absent are supported");
            return false;
        }
        o->forbidden[o->forbidden_count++] = key;
        return true;
    }
    for (uint32_t r = exl2__json_first(&s->j, list); r; r = exl2__json_next(&s->j, list, r)) {
        if (!exl2__grammar_object_requires(s, set, r) && !exl2__json_same(&s->j, r, key)) {
            exl2__grammar_depend_add(&o->depend, key, r);
        }
    }
    return false;
}

/* Reads dependentRequired and dependencies. A key that becomes forbidden may forbid others, so it begins again. */
EXL2__PRIVATE void exl2__grammar_object_depend(exl2__grammar_schema *s, exl2__grammar_object *o,
                                               const exl2__grammar_schema_set *set)
{
    bool again = true;
    while (again && s->g->result == EXL2_OK) {
        again = false;
        o->depend = (exl2__grammar_depend){ .g = s->g, .j = &s->j };
        for (uint32_t i = 0; i < 2 * set->count && !again; i++) {
            uint32_t list = exl2__grammar_schema_get_kind(
                s, set->parts[i / 2].token, exl2__grammar_object_dependencies[i % 2], EXL2__JSON_OBJECT);
            for (uint32_t k = list ? exl2__json_first(&s->j, list) : 0; k && !again && s->g->result == EXL2_OK;
                 k = exl2__json_next(&s->j, list, k)) {
                exl2__grammar_object_spend(s, set, k);
                again = exl2__grammar_object_possible(s, o, set, k) && exl2__grammar_object_need(s, o, set, k);
            }
        }
    }
}

/* ---- objects ---- */

/* Does no part have a keyword for objects? Also checks the kinds of properties and required. */
EXL2__PRIVATE bool exl2__grammar_object_plain(exl2__grammar_schema *s, const exl2__grammar_schema_set *set)
{
    bool plain = true;
    for (uint32_t i = 0; i < set->count; i++) {
        for (size_t k = 0; k < EXL2__COUNT(exl2__grammar_schema_keywords) && plain; k++) {
            const exl2__grammar_schema_keyword *word = &exl2__grammar_schema_keywords[k];
            plain = !(word->types & EXL2__GRAMMAR_SCHEMA_OBJECT)
                || !exl2__grammar_schema_get(s, set->parts[i].token, word->name);
        }
        exl2__grammar_schema_get_kind(s, set->parts[i].token, "properties", EXL2__JSON_OBJECT);
        exl2__grammar_schema_get_kind(s, set->parts[i].token, "required", EXL2__JSON_ARRAY);
    }
    return plain;
}

/* Writes the object that `o` describes. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_object_write(exl2__grammar_schema *s, exl2__grammar_object *o,
                                                                  const exl2__grammar_schema_set *set)
{
    exl2__grammar_code *g = s->g;
    exl2__grammar_sequence q;
    exl2__grammar_schema_set value;
    bool never = false;
    uint32_t declared = exl2__grammar_object_extras(s, o, set, false), rule = 0;
    uint64_t always = 0;
    for (uint32_t i = 0; i < set->count && g->result == EXL2_OK; i++) {
        declared += exl2__grammar_object_members(s, o, set, i, "properties", false, &never);
        declared += exl2__grammar_object_members(s, o, set, i, "required", false, &never);
    }
    for (uint32_t i = 0; i < o->depend.count; i++) {
        always |= (uint64_t)exl2__grammar_object_requires(s, set, o->depend.keys[i]) << i;
    }
    exl2__grammar_code_piece open = exl2__grammar_code_word(g, "{"), close = exl2__grammar_code_word(g, "}");
    bool rest = o->keys.open || exl2__grammar_object_rest(s, set, &o->keys, 0, &value);
    if (never || !exl2__grammar_sequence_open(g, open, o->min, o->max, rest ? EXL2__GRAMMAR_CODE_ENDLESS : declared,
                                              &q)) {
        return exl2__grammar_value_never(g);
    }
    exl2__grammar_depend_begin(&o->depend, &q, always);
    for (uint32_t i = 0; i < set->count && g->result == EXL2_OK; i++) {
        exl2__grammar_object_members(s, o, set, i, "properties", true, &never);
    }
    for (uint32_t i = 0; i < set->count && g->result == EXL2_OK; i++) {
        exl2__grammar_object_members(s, o, set, i, "required", true, &never);
    }
    exl2__grammar_object_extras(s, o, set, true);
    q = o->depend.worlds[0].list; /* all members have been passed, so this is the only world */
    exl2__grammar_depend_close(&o->depend);
    if (rest && (o->keys.open || o->forbidden_count || o->depend.count)) { /* o->keys.product excludes declared keys */
        rule = exl2__grammar_object_others(s, o, set);
    } else if (rest && g->result == EXL2_OK) {
        rule = exl2__grammar_code_rule(g);
        exl2__grammar_code_piece key = exl2__grammar_keys_other(s, set);
        exl2__grammar_code_define(g, rule, exl2__grammar_object_pair(s, key, &value));
    }
    if (rule && g->result == EXL2_OK) {
        exl2__grammar_sequence_rest(&q, rule);
    }
    exl2__grammar_sequence_end(&q, close.first);
    exl2__grammar_code_piece piece = { open.first, close.last };
    return piece;
}

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_object_piece(exl2__grammar_schema *s,
                                                                  const exl2__grammar_schema_set *set)
{
    exl2__grammar_object o = { .min = exl2__grammar_value_count(s, set, "minProperties", false),
                               .max = exl2__grammar_value_count(s, set, "maxProperties", true) };
    if (exl2__grammar_object_plain(s, set) && set->not_count == 0) {
        return exl2__grammar_value_call(s, EXL2__GRAMMAR_SCHEMA_SHARED_OBJECT);
    }
    exl2__grammar_keys_open(s, set, &o.keys);
    exl2__grammar_code_piece piece = exl2__grammar_value_never(s->g);
    if (s->g->result == EXL2_OK && exl2__grammar_apart_exclude(s, &o, set)) {
        exl2__grammar_object_check(s, set);
        exl2__grammar_object_depend(s, &o, set);
        piece = exl2__grammar_object_write(s, &o, set);
    }
    exl2__grammar_keys_close(&o.keys);
    return piece;
}

#endif

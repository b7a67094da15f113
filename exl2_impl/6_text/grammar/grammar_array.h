/* grammar_array.h: arrays of a schema: items and prefixItems, counts, and uniqueItems.
   takes: expanded sets of subschemas.
   gives: exl2__grammar_array_piece. */
#ifndef EXL2__GRAMMAR_ARRAY_H
#define EXL2__GRAMMAR_ARRAY_H

#include "grammar_number.h"
#include "grammar_sequence.h"

#define EXL2__GRAMMAR_ARRAY_VALUES_MAX 1024u /* possible values of unique items */
#define EXL2__GRAMMAR_ARRAY_ORDERS_MAX 6u    /* up to 6 values may come in any order; more keep the schema's order */
#define EXL2__GRAMMAR_ARRAY_DEPTH_MAX 8u

/* ---- unique items from a finite set ---- */

enum { EXL2__GRAMMAR_ARRAY_NULL = 0x7FFFFFF0, EXL2__GRAMMAR_ARRAY_FALSE, EXL2__GRAMMAR_ARRAY_TRUE };

typedef struct exl2__grammar_array_values {
    uint32_t tokens[EXL2__GRAMMAR_ARRAY_VALUES_MAX]; /* tokens of constants, or one of the three values above */
    uint32_t count;
    uint32_t place; /* token of the keyword uniqueItems, for messages */
} exl2__grammar_array_values;

EXL2__PRIVATE size_t exl2__grammar_array_text(const exl2__grammar_schema *s, uint32_t value, char *out)
{
    static const char *const words[] = { "null", "false", "true" };
    if (value < EXL2__GRAMMAR_ARRAY_NULL) {
        return exl2__grammar_value_text(s, value, out);
    }
    const char *word = words[value - EXL2__GRAMMAR_ARRAY_NULL];
    memcpy(out, word, strlen(word));
    return strlen(word);
}

/* Adds a value, unless the list holds an equal one. 1 and 1.0 are equal. */
EXL2__PRIVATE void exl2__grammar_array_add(exl2__grammar_schema *s, exl2__grammar_array_values *v, uint32_t value)
{
    size_t bytes = exl2__grammar_array_text(s, value, s->buffer);
    for (uint32_t i = 0; i < v->count; i++) {
        exl2__json_number a, b;
        char *other = s->buffer + bytes;
        bool numbers = value < EXL2__GRAMMAR_ARRAY_NULL && v->tokens[i] < EXL2__GRAMMAR_ARRAY_NULL
            && exl2__json_number_of(&s->j, value, &a) && exl2__json_number_of(&s->j, v->tokens[i], &b);
        bool equal = numbers && a.digits == b.digits
            && (a.digits == 0 || (a.exponent == b.exponent && a.negative == b.negative));
        if (equal
            || (exl2__grammar_array_text(s, v->tokens[i], other) == bytes && memcmp(s->buffer, other, bytes) == 0)) {
            return;
        }
    }
    if (v->count == EXL2__GRAMMAR_ARRAY_VALUES_MAX) {
        exl2__grammar_schema_reject(s, EXL2_ERR_BUDGET, v->place,
                                    "uniqueItems of more than 1,024 possible values is not supported");
        return;
    }
    v->tokens[v->count++] = value;
}

/* Adds the constants of `list` that match the expanded set; with `one`, `list` is a single constant. */
EXL2__PRIVATE void exl2__grammar_array_constants(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                                 uint32_t types, uint32_t list, bool one, exl2__grammar_array_values *v)
{
    exl2__grammar_product product, *w = exl2__grammar_number_strings(s, set, types, &product);
    exl2__grammar_choice common, kept;
    char *room = s->buffer;
    exl2__grammar_value_listed(s, set, types, &common);
    exl2__grammar_choice_open(s->g, 1, &kept);
    s->buffer += s->lists; /* after the texts of `common` */
    for (uint32_t k = one ? list : exl2__json_first(&s->j, list); k && s->g->result == EXL2_OK;
         k = one ? 0 : exl2__json_next(&s->j, list, k)) {
        kept.count = 0;
        exl2__grammar_number_keep(s, set, types, k, w, &common, &kept);
        if (kept.count) {
            exl2__grammar_array_add(s, v, k);
        }
    }
    s->buffer = room;
    exl2__grammar_choice_close(&kept);
    exl2__grammar_choice_close(&common);
    if (w) {
        exl2__grammar_product_close(w);
    }
}

/* Adds all values of an expanded set to *v. false: the values cannot be listed. */
EXL2__PRIVATE bool exl2__grammar_array_list(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                            uint32_t depth, exl2__grammar_array_values *v)
{
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t list = exl2__grammar_schema_get_kind(s, set->parts[i].token, "anyOf", EXL2__JSON_ARRAY);
        if (exl2__grammar_schema_get(s, set->parts[i].token, "oneOf")) {
            return false;
        }
        for (uint32_t k = list && !set->parts[i].any_of_done ? exl2__json_first(&s->j, list) : 0; k;
             k = exl2__json_next(&s->j, list, k)) {
            exl2__grammar_schema_set branch = *set;
            branch.parts[i].any_of_done = 1;
            exl2__grammar_schema_add(s, &branch, exl2__grammar_schema_sub_of(k));
            exl2__grammar_schema_expand(s, &branch);
            if (depth == EXL2__GRAMMAR_ARRAY_DEPTH_MAX || !exl2__grammar_array_list(s, &branch, depth + 1, v)) {
                return false;
            }
        }
        if (list && !set->parts[i].any_of_done) {
            return true;
        }
    }
    uint32_t types = exl2__grammar_types_of(s, set, true);
    bool one;
    uint32_t list = exl2__grammar_number_lists(s, set, &one);
    if (list) {
        exl2__grammar_array_constants(s, set, types, list, one, v);
        return true;
    }
    if ((types & ~(uint32_t)(EXL2__GRAMMAR_SCHEMA_NULL | EXL2__GRAMMAR_SCHEMA_BOOLEAN)) || set->not_count) {
        return false;
    }
    if (types & EXL2__GRAMMAR_SCHEMA_NULL) {
        exl2__grammar_array_add(s, v, EXL2__GRAMMAR_ARRAY_NULL);
    }
    if (types & EXL2__GRAMMAR_SCHEMA_BOOLEAN) {
        exl2__grammar_array_add(s, v, EXL2__GRAMMAR_ARRAY_FALSE);
        exl2__grammar_array_add(s, v, EXL2__GRAMMAR_ARRAY_TRUE);
    }
    return true;
}

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_array_value(exl2__grammar_schema *s, uint32_t value)
{
    size_t bytes = exl2__grammar_array_text(s, value, s->buffer);
    return exl2__grammar_code_text(s->g, s->buffer, bytes);
}

/* Writes lists of a few unique values in any order, from node `open` to node `close`. There is a place for each subset
   of values that has been written. */
EXL2__PRIVATE void exl2__grammar_array_orders(exl2__grammar_schema *s, const exl2__grammar_array_values *v,
                                              uint32_t open, uint32_t close, uint32_t min, uint32_t max)
{
    exl2__grammar_code *g = s->g;
    uint32_t places[1u << EXL2__GRAMMAR_ARRAY_ORDERS_MAX], rules[EXL2__GRAMMAR_ARRAY_ORDERS_MAX];
    for (uint32_t i = 0; i < v->count; i++) {
        rules[i] = exl2__grammar_code_rule(g);
        exl2__grammar_code_define(g, rules[i], exl2__grammar_array_value(s, v->tokens[i]));
    }
    for (uint32_t set = 0; set < 1u << v->count; set++) {
        places[set] = set ? exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_JUMP, 0, 0) : open;
    }
    for (uint32_t set = 0; set < 1u << v->count && g->result == EXL2_OK; set++) {
        uint32_t written = 0, node = 0;
        for (uint32_t i = 0; i < v->count; i++) {
            written += set >> i & 1;
        }
        for (uint32_t i = 0; i < v->count && written < max; i++) {
            if (!(set >> i & 1)) {
                exl2__grammar_code_piece one = exl2__grammar_code_call(g, rules[i]);
                exl2__grammar_code_join(g, one.last, places[set | 1u << i]);
                node = node ? exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_SPLIT, one.first, node) : one.first;
            }
        }
        if (node && written) {
            exl2__grammar_code_piece comma = exl2__grammar_value_mark(g, ',');
            exl2__grammar_code_join(g, comma.last, node);
            node = comma.first;
        }
        if (written >= min) {
            node = node ? exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_SPLIT, close, node) : close;
        }
        exl2__grammar_code_join(g, places[set], node ? node : exl2__grammar_code_bytes(g, 1, 0).first);
    }
}

/* ---- unique strings and integers ---- */

/* The group of an item by its first byte. Items of different groups differ. Each digit, each letter (in dictionary
   order) and each lead byte of other scripts is a group; all other bytes are one group. */
EXL2__PRIVATE uint32_t exl2__grammar_array_group(uint32_t byte)
{
    bool letter = (uint8_t)((byte | 32) - 'a') < 26 && byte < 0x80, digit = byte >= '0' && byte <= '9';
    return digit || byte == '-' ? 1 + byte : letter ? 64 + 2 * ((byte | 32) - 'a') + (byte >> 5 & 1)
        : byte >= 0xC0 ? byte : 0;
}

/* Adds strings or integers in ascending order of their groups, at most one of each group, so that no two are equal. */
EXL2__PRIVATE void exl2__grammar_array_ascending(exl2__grammar_schema *s, const exl2__grammar_schema_set *items,
                                                 uint32_t types, exl2__grammar_sequence *q)
{
    exl2__grammar_code *g = s->g;
    exl2__grammar_product w;
    bool strings = types == EXL2__GRAMMAR_SCHEMA_STRING;
    uint32_t ends[EXL2__GRAMMAR_PRODUCT_OUTCOMES_MAX], rules[256], nodes[256];
    exl2__grammar_product_open(g, s->vocab, &w);
    if (strings) {
        exl2__grammar_string_language(s, items, &w);
    } else {
        exl2__grammar_number_language(s, items, types, &w);
    }
    bool any = exl2__grammar_product_run(&w);
    exl2__grammar_code_piece end = strings ? exl2__grammar_code_word(g, "\"") : exl2__grammar_code_empty(g);
    for (uint32_t i = 0; i < EXL2__GRAMMAR_PRODUCT_OUTCOMES_MAX; i++) {
        ends[i] = end.first;
    }
    if (any) {
        exl2__grammar_product_emit(&w, ends, strings, nodes);
    }
    for (uint32_t k = 0; any && k < w.places[0].edge_count && g->result == EXL2_OK; k++) {
        rules[k] = exl2__grammar_code_rule(g);
        exl2__grammar_code_piece body = { nodes[k] ? nodes[k] : exl2__grammar_code_bytes(g, 1, 0).first, 0 };
        if (g->result == EXL2_OK) {
            g->rules[rules[k]] = body.first;
        }
    }
    for (uint32_t group = 0; group < 256 && any && g->result == EXL2_OK; group++) {
        exl2__grammar_code_piece list = { 0, 0 };
        for (uint32_t k = 0; k < w.places[0].edge_count; k++) {
            const exl2__grammar_product_edge *edge = &w.edges[w.places[0].edges + k];
            for (uint32_t byte = edge->low; byte <= edge->high && nodes[k]; byte++) {
                if (exl2__grammar_array_group(byte) != group) {
                    continue;
                }
                uint32_t low = byte; /* the first of a run of bytes of one group */
                while (byte < edge->high && byte + 1 != '"' && byte + 1 != '\\' && byte != '"' && byte != '\\'
                       && byte >= 0x20 && exl2__grammar_array_group(byte + 1) == group) {
                    byte++;
                }
                exl2__grammar_code_piece tail = exl2__grammar_code_call(g, rules[k]);
                tail.first = exl2__grammar_product_byte(g, low, byte, tail.first, strings);
                if (tail.first) {
                    exl2__grammar_code_or(g, &list, tail);
                }
            }
        }
        if (list.first) {
            list = strings ? exl2__grammar_code_cat(g, exl2__grammar_code_word(g, "\""), list) : list;
            exl2__grammar_sequence_member(q, list, false);
        }
    }
    exl2__grammar_product_close(&w);
}

/* An array with unique items. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_array_unique(exl2__grammar_schema *s,
                                                                  exl2__grammar_schema_set *items, uint32_t place,
                                                                  uint32_t min, uint32_t max)
{
    exl2__grammar_code *g = s->g;
    exl2__grammar_sequence q;
    void *memory = NULL;
    exl2__grammar_code_piece open = exl2__grammar_code_word(g, "["), close = exl2__grammar_code_word(g, "]");
    exl2__grammar_schema_expand(s, items);
    g->result = g->result < 0 ? g->result
        : exl2__alloc(g->c, sizeof(exl2__grammar_array_values), 8, EXL2_MEM_GENERAL, &memory);
    if (g->result < 0) {
        return open;
    }
    exl2__grammar_array_values *v = (exl2__grammar_array_values *)memory;
    v->count = 0;
    v->place = place;
    bool one, listed = exl2__grammar_array_list(s, items, 0, v), good = true;
    uint32_t types = exl2__grammar_types_of(s, items, true);
    bool either = exl2__grammar_number_lists(s, items, &one) != 0;
    for (uint32_t i = 0; i < items->count; i++) {
        either = either || exl2__grammar_schema_get(s, items->parts[i].token, "anyOf")
            || exl2__grammar_schema_get(s, items->parts[i].token, "oneOf");
    }
    if (listed && v->count <= EXL2__GRAMMAR_ARRAY_ORDERS_MAX) {
        exl2__grammar_array_orders(s, v, open.last, close.first, min, max);
    } else if (listed) {
        good = exl2__grammar_sequence_open(g, open, min, max, v->count, &q);
        for (uint32_t i = 0; i < v->count && good && g->result == EXL2_OK; i++) {
            exl2__grammar_sequence_member(&q, exl2__grammar_array_value(s, v->tokens[i]), false);
        }
    } else if (!either && (types == EXL2__GRAMMAR_SCHEMA_STRING || types == EXL2__GRAMMAR_SCHEMA_INTEGER)) {
        good = exl2__grammar_sequence_open(g, open, min, max, 256, &q);
        if (good) {
            exl2__grammar_array_ascending(s, items, types, &q);
        }
    } else {
        exl2__grammar_schema_reject(s, EXL2_ERR_UNSUPPORTED, place,
                                    "uniqueItems is supported only for constants, strings and integers");
    }
    if (good && !(listed && v->count <= EXL2__GRAMMAR_ARRAY_ORDERS_MAX) && g->result == EXL2_OK) {
        exl2__grammar_sequence_end(&q, close.first);
    }
    exl2__free(g->c, memory, sizeof(exl2__grammar_array_values), EXL2_MEM_GENERAL);
    exl2__grammar_code_piece piece = { open.first, close.last };
    return good ? piece : exl2__grammar_value_never(g);
}

/* ---- arrays ---- */

/* The part's subschema for the item at index `at`, or 0; *prefix: the number of items that have their own subschema. */
EXL2__PRIVATE uint32_t exl2__grammar_array_item(exl2__grammar_schema *s, uint32_t part, uint32_t at, uint32_t *prefix)
{
    uint32_t items = exl2__grammar_schema_get(s, part, "items");
    uint32_t list = exl2__grammar_schema_get_kind(s, part, "prefixItems", EXL2__JSON_ARRAY);
    if (!list && items && s->j.tokens[items].kind == EXL2__JSON_ARRAY) {
        list = items;
        items = exl2__grammar_schema_get(s, part, "additionalItems");
    }
    *prefix = list ? s->j.tokens[list].count : 0;
    if (at >= *prefix) {
        return items;
    }
    uint32_t item = exl2__json_first(&s->j, list);
    for (uint32_t i = 0; i < at; i++) {
        item = exl2__json_next(&s->j, list, item);
    }
    return item;
}

/* All subschemas for the item at index `at`; *has_schema: some part has one. false: there can be no such item. */
EXL2__PRIVATE bool exl2__grammar_array_item_set(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                                uint32_t at, exl2__grammar_schema_set *item, bool *has_schema)
{
    *item = (exl2__grammar_schema_set){ .count = 0 };
    *has_schema = false;
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t prefix, token = exl2__grammar_array_item(s, set->parts[i].token, at, &prefix);
        *has_schema = *has_schema || token;
        if (token && s->j.tokens[token].kind == EXL2__JSON_FALSE) {
            return false;
        }
        if (token) {
            exl2__grammar_schema_add(s, item, exl2__grammar_schema_sub_of(token));
        }
    }
    return true;
}

/* An array of `prefix` items that have their own subschemas, then any others. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_array_tuple(exl2__grammar_schema *s,
                                                                 const exl2__grammar_schema_set *set, uint32_t prefix,
                                                                 uint32_t min, uint32_t max)
{
    exl2__grammar_code *g = s->g;
    exl2__grammar_schema_set item;
    exl2__grammar_code_piece open = exl2__grammar_code_word(g, "["), close = exl2__grammar_code_word(g, "]");
    uint32_t here = open.last, at = 0;
    bool has_schema, some = true;
    for (; at < prefix && at < max && g->result == EXL2_OK; at++) {
        some = exl2__grammar_array_item_set(s, set, at, &item, &has_schema);
        if (!some) {
            break;
        }
        exl2__grammar_code_piece one = exl2__grammar_code_call(g, exl2__grammar_schema_rule(s, &item));
        one = at ? exl2__grammar_code_cat(g, exl2__grammar_value_mark(g, ','), one) : one;
        exl2__grammar_code_join(g, here, at < min ? one.first
                                    : exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_SPLIT, one.first, close.first));
        here = one.last;
    }
    bool more = some && at < max && exl2__grammar_array_item_set(s, set, at, &item, &has_schema)
        && (has_schema || min > at);
    if (more && g->result == EXL2_OK) {
        uint32_t rule = exl2__grammar_schema_rule(s, &item);
        exl2__grammar_code_piece list = exl2__grammar_value_mark(g, ',');
        list = exl2__grammar_code_cat(g, list, exl2__grammar_code_call(g, rule));
        list = exl2__grammar_code_repeat(g, list, min > at ? min - at : 0,
                                         max == EXL2__GRAMMAR_CODE_ENDLESS ? max : max - at);
        exl2__grammar_code_join(g, here, list.first);
        here = list.last;
    }
    exl2__grammar_code_join(g, here, more || at >= min ? close.first : exl2__grammar_value_never(g).first);
    exl2__grammar_code_piece piece = { open.first, close.last };
    return piece;
}

/* Changes *min or *max so that arrays violate maxItems or minItems of a set that must not hold. false: the set has
   neither. */
EXL2__PRIVATE bool exl2__grammar_array_not(exl2__grammar_schema *s, const exl2__grammar_schema_set *set, uint32_t *min,
                                           uint32_t *max)
{
    uint32_t least = exl2__grammar_value_count(s, set, "minItems", false);
    uint32_t most = exl2__grammar_value_count(s, set, "maxItems", true);
    if (most != EXL2__GRAMMAR_CODE_ENDLESS) {
        *min = exl2__max32(*min, most + 1);
    } else if (least) {
        *max = exl2__min32(*max, least - 1);
    }
    return least || most != EXL2__GRAMMAR_CODE_ENDLESS;
}

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_array_piece(exl2__grammar_schema *s,
                                                                 const exl2__grammar_schema_set *set)
{
    uint32_t min = exl2__grammar_value_count(s, set, "minItems", false), prefix = 0, unique = 0, longest = 0;
    uint32_t max = exl2__grammar_value_count(s, set, "maxItems", true);
    exl2__grammar_schema_set item;
    bool has_schema;
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t token = exl2__grammar_schema_get(s, set->parts[i].token, "uniqueItems");
        unique = token && s->j.tokens[token].kind == EXL2__JSON_TRUE ? token - 1 : unique;
        exl2__grammar_array_item(s, set->parts[i].token, 0, &prefix);
        longest = exl2__max32(longest, prefix);
    }
    for (uint32_t i = 0; i < set->not_count && s->g->result == EXL2_OK; i++) {
        exl2__grammar_schema_set other;
        uint32_t types = exl2__grammar_types_not(s, set->nots[i], EXL2__GRAMMAR_SCHEMA_ARRAY, &other);
        if (types && !exl2__grammar_array_not(s, &other, &min, &max)) {
            exl2__grammar_types_reject_not(s, set->nots[i]);
        } else if (types && exl2__grammar_types_conditions(s, &other, types) > 1) {
            exl2__grammar_types_doubt_not(s, set->nots[i]);
        }
    }
    if (min > max) {
        return exl2__grammar_value_never(s->g);
    }
    if (longest == 0 && !exl2__grammar_array_item_set(s, set, 0, &item, &has_schema)) {
        max = 0;
    }
    if (unique && max > 1 && longest) {
        exl2__grammar_schema_reject(s, EXL2_ERR_UNSUPPORTED, unique,
                                    "uniqueItems is not supported where single items have their own subschemas");
    }
    if (unique && max > 1 && s->g->result == EXL2_OK) {
        return exl2__grammar_array_unique(s, &item, unique, min, max);
    }
    if (longest) {
        return exl2__grammar_array_tuple(s, set, longest, min, max);
    }
    return min > max ? exl2__grammar_value_never(s->g)
        : exl2__grammar_value_list(s->g, '[', ']', exl2__grammar_schema_rule(s, &item), min, max);
}

#endif

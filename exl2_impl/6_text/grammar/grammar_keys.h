/* grammar_keys.h: keys of an object that its properties do not declare; patternProperties and propertyNames.
   takes: an expanded set of subschemas.
   gives: exl2__grammar_keys_other, exl2__grammar_keys, exl2__grammar_keys_open, _match, _close.
   owns:  the language of keys, from _open to _close. */
#ifndef EXL2__GRAMMAR_KEYS_H
#define EXL2__GRAMMAR_KEYS_H

#include "grammar_array.h"

typedef struct exl2__grammar_keys_one {
    const char *text;
    size_t bytes;
} exl2__grammar_keys_one;

EXL2__PRIVATE bool exl2__grammar_keys_less(const void *items, uint32_t left, uint32_t right)
{
    const exl2__grammar_keys_one *a = (const exl2__grammar_keys_one *)items + left;
    const exl2__grammar_keys_one *b = (const exl2__grammar_keys_one *)items + right;
    int order = memcmp(a->text, b->text, a->bytes < b->bytes ? a->bytes : b->bytes);
    return order ? order < 0 : a->bytes < b->bytes;
}

EXL2__PRIVATE void exl2__grammar_keys_swap(void *items, uint32_t a, uint32_t b)
{
    exl2__grammar_keys_one *list = (exl2__grammar_keys_one *)items, item = list[a];
    list[a] = list[b];
    list[b] = item;
}

/* Keys first..end - 1 begin with the same `shared` bytes. The node `place`, a JUMP, is reached after these bytes. */
typedef struct exl2__grammar_keys_fork {
    uint32_t first, end, place;
    size_t shared;
} exl2__grammar_keys_fork;

/* Writes the place of the last fork. Characters with which no key continues lead to `rest`, where any characters may
   follow. A quote is allowed unless the text is a key. For the other characters, adds forks to `forks`. */
EXL2__PRIVATE void exl2__grammar_keys_part(exl2__grammar_code *g, const exl2__grammar_keys_one *keys,
                                           exl2__grammar_keys_fork *forks, uint32_t *count, uint32_t rest, uint32_t end)
{
    exl2__grammar_keys_fork fork = forks[--*count];
    exl2__grammar_code_class others = { 0 };
    exl2__grammar_code_piece list = { 0, 0 };
    uint32_t i = fork.first, code;
    bool is_key = keys[i].bytes == fork.shared;
    exl2__grammar_code_class_add(&others, 0, 0x1F);
    exl2__grammar_code_class_add(&others, '"', '"');
    exl2__grammar_code_class_add(&others, '\\', '\\');
    for (i += is_key; i < fork.end;) {
        const char *text = keys[i].text + fork.shared;
        size_t bytes = exl2__unicode_next(text, keys[i].bytes - fork.shared, &code);
        exl2__grammar_keys_fork next = { i, i + 1, 0, fork.shared + bytes };
        while (next.end < fork.end && keys[next.end].bytes >= next.shared
               && memcmp(keys[next.end].text + fork.shared, text, bytes) == 0) {
            next.end++;
        }
        i = next.end;
        if (!exl2__grammar_code_class_add(&others, code, code)) {
            g->result = exl2__fail(g->c, EXL2_ERR_UNSUPPORTED,
                                   "%s: an object has too many properties to allow additional ones; set "
                                   "additionalProperties to false", g->label);
        }
        if (code >= 0x20 && code != '"' && code != '\\') { /* others would need an escape, which is never written */
            exl2__grammar_code_piece same = exl2__grammar_code_text(g, text, bytes);
            next.place = exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_JUMP, 0, 0);
            exl2__grammar_code_join(g, same.last, next.place);
            same.last = exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_JUMP, 0, 0); /* the fork continues it instead */
            exl2__grammar_code_or(g, &list, same);
            forks[(*count)++] = next;
        }
    }
    exl2__grammar_code_class_negate(&others);
    exl2__grammar_code_piece other = exl2__grammar_code_one_of(g, &others);
    exl2__grammar_code_join(g, other.last, rest);
    uint32_t node = list.first ? exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_SPLIT, other.first, list.first)
        : other.first;
    node = is_key ? node : exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_SPLIT, node, end);
    exl2__grammar_code_join(g, fork.place, node);
}

/* A quoted key, without escapes, that is not in the properties of any part. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_keys_other(exl2__grammar_schema *s,
                                                                const exl2__grammar_schema_set *set)
{
    exl2__grammar_code *g = s->g;
    uint32_t total = 0, count = 0, forks = 0;
    size_t used = 0;
    void *memory = NULL;
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t list = exl2__grammar_schema_get(s, set->parts[i].token, "properties");
        total += list ? s->j.tokens[list].count : 0;
    }
    exl2__grammar_code_piece open = exl2__grammar_code_word(g, "\""), close = exl2__grammar_code_word(g, "\"");
    exl2__grammar_code_piece rest = exl2__grammar_code_star(g, exl2__grammar_value_regex(g, "[^\"\\\\\\x00-\\x1F]"),
                                                            true);
    exl2__grammar_code_join(g, rest.last, close.first);
    uint64_t each = sizeof(exl2__grammar_keys_one) + sizeof(exl2__grammar_keys_fork);
    g->result = g->result < 0 ? g->result : exl2__alloc(g->c, (total + 1) * each, 8, EXL2_MEM_GENERAL, &memory);
    if (g->result < 0) {
        return open;
    }
    exl2__grammar_keys_one *keys = (exl2__grammar_keys_one *)memory;
    exl2__grammar_keys_fork *list = (exl2__grammar_keys_fork *)(void *)(keys + total + 1);
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t object = exl2__grammar_schema_get(s, set->parts[i].token, "properties");
        for (uint32_t k = object ? exl2__json_first(&s->j, object) : 0; k; k = exl2__json_next(&s->j, object, k)) {
            keys[count].text = s->buffer + used;
            keys[count].bytes = exl2__json_text(&s->j, k, s->buffer + used, SIZE_MAX);
            used += keys[count++].bytes;
        }
    }
    exl2__sort_items order = { keys, exl2__grammar_keys_less, exl2__grammar_keys_swap };
    exl2__sort(&order, count);
    uint32_t distinct = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool twice = distinct && keys[distinct - 1].bytes == keys[i].bytes
            && memcmp(keys[distinct - 1].text, keys[i].text, keys[i].bytes) == 0;
        keys[distinct] = keys[i];
        distinct += !twice;
    }
    if (distinct) {
        list[forks].first = 0;
        list[forks].end = distinct;
        list[forks].shared = 0;
        list[forks++].place = open.last;
    } else {
        exl2__grammar_code_join(g, open.last, rest.first);
    }
    while (forks && g->result == EXL2_OK) {
        exl2__grammar_keys_part(g, keys, list, &forks, rest.first, close.first);
    }
    exl2__free(g->c, memory, (total + 1) * each, EXL2_MEM_GENERAL);
    open.last = close.last;
    return open;
}

/* ---- patternProperties and propertyNames ---- */

typedef struct exl2__grammar_keys {
    exl2__grammar_product product; /* the patterns are REPORTs; propertyNames are MUSTs */
    /* token of each pattern; index in set->parts of the part that has it */
    uint32_t patterns[EXL2__GRAMMAR_PRODUCT_REPORTS_MAX], parts[EXL2__GRAMMAR_PRODUCT_REPORTS_MAX];
    uint32_t count;
    bool open; /* `product` is open */
} exl2__grammar_keys;

/* Can dialects differ in what the expression matches? They do for classes such as \d. */
EXL2__PRIVATE bool exl2__grammar_keys_differ(const char *text, size_t bytes)
{
    for (size_t i = 0; i + 1 < bytes; i++) {
        if (text[i] == '\\' && strchr("dwsDWS", text[i + 1])) {
            return true;
        }
        i += text[i] == '\\';
    }
    return false;
}

EXL2__PRIVATE void exl2__grammar_keys_patterns(exl2__grammar_schema *s, exl2__grammar_keys *k, uint32_t part,
                                               uint32_t list)
{
    for (uint32_t key = exl2__json_first(&s->j, list); key && s->g->result == EXL2_OK;
         key = exl2__json_next(&s->j, list, key)) {
        if (k->count == EXL2__GRAMMAR_PRODUCT_REPORTS_MAX) {
            exl2__grammar_schema_reject(s, EXL2_ERR_BUDGET, key,
                                        "at most 12 patternProperties of one object are supported");
            return;
        }
        const char *label = s->g->label;
        size_t bytes = exl2__json_text(&s->j, key, s->buffer, SIZE_MAX);
        s->g->label = "schema: patternProperties";
        exl2__grammar_product_regex(&k->product, s->buffer, bytes, false, false, EXL2__GRAMMAR_PRODUCT_REPORT);
        if (exl2__grammar_keys_differ(s->buffer, bytes)) {
            exl2__grammar_product_regex(&k->product, s->buffer, bytes, false, true, EXL2__GRAMMAR_PRODUCT_REPORT_WIDE);
        }
        s->g->label = label;
        k->patterns[k->count] = key;
        k->parts[k->count++] = part;
    }
}

/* Opens the language of keys if the set has patternProperties or propertyNames. */
EXL2__PRIVATE void exl2__grammar_keys_open(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                           exl2__grammar_keys *k)
{
    exl2__grammar_schema_set names = { .count = 0 };
    memset(k, 0, sizeof *k);
    k->product.g = s->g;
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t part = set->parts[i].token, token = exl2__grammar_schema_get(s, part, "propertyNames");
        k->open = k->open || token || exl2__grammar_schema_get(s, part, "patternProperties");
        if (token) {
            exl2__grammar_schema_add(s, &names, exl2__grammar_schema_sub_of(token));
        }
    }
    if (!k->open) {
        return;
    }
    exl2__grammar_product_open(s->g, s->vocab, &k->product);
    for (uint32_t i = 0; i < set->count && s->g->result == EXL2_OK; i++) {
        uint32_t list = exl2__grammar_schema_get_kind(s, set->parts[i].token, "patternProperties", EXL2__JSON_OBJECT);
        if (list) {
            exl2__grammar_keys_patterns(s, k, i, list);
        }
    }
    exl2__grammar_schema_expand(s, &names);
    for (uint32_t i = 0; i < names.count; i++) {
        static const char *const choices[] = { "anyOf", "oneOf" };
        for (uint32_t c = 0; c < 2; c++) {
            uint32_t token = exl2__grammar_schema_get(s, names.parts[i].token, choices[c]);
            if (token) {
                exl2__grammar_schema_reject(s, EXL2_ERR_UNSUPPORTED, token - 1,
                                            "propertyNames with anyOf or oneOf is not supported");
            }
        }
    }
    if (!(exl2__grammar_types_of(s, &names, false) & EXL2__GRAMMAR_SCHEMA_STRING)) {
        k->product.min = 1;
        k->product.max = 0;
    }
    exl2__grammar_string_language(s, &names, &k->product);
    exl2__grammar_string_plain(&k->product);
}

EXL2__PRIVATE void exl2__grammar_keys_close(exl2__grammar_keys *k)
{
    if (k->open) {
        exl2__grammar_product_close(&k->product);
    }
}

/* The mask of patterns that match a key; NONE: the object cannot have this key. */
EXL2__PRIVATE uint32_t exl2__grammar_keys_match(exl2__grammar_schema *s, exl2__grammar_keys *k, uint32_t key)
{
    size_t bytes = k->open ? exl2__json_text(&s->j, key, s->buffer, SIZE_MAX) : 0;
    return k->open ? exl2__grammar_product_accepts(&k->product, s->buffer, bytes) : 0;
}

#endif

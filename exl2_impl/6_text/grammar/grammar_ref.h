/* grammar_ref.h: resolves the $refs of a schema: paths in the document, names by $anchor and addresses by $id.
   takes: untrusted JSON.
   gives: exl2__grammar_ref_open, exl2__grammar_ref_target. */
#ifndef EXL2__GRAMMAR_REF_H
#define EXL2__GRAMMAR_REF_H

#include "grammar_document.h"

#define EXL2__GRAMMAR_REF_NAMES_MAX 4096u

/* ---- $id ---- */

/* The value of $id (in draft 4: id) if it gives the object an address, and not only an anchor that begins with '#'; or
   0. */
EXL2__PRIVATE uint32_t exl2__grammar_ref_id(const exl2__grammar_schema *s, uint32_t object)
{
    static const char *const names[] = { "$id", "id" };
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t id = exl2__grammar_schema_get(s, object, names[i]);
        const exl2__json_token *t = &s->j.tokens[id];
        if (id && t->kind == EXL2__JSON_STRING && t->end > t->begin && s->j.text[t->begin] != '#') {
            return id;
        }
    }
    return 0;
}

/* The value of the k-th keyword that can name an object, or 0. */
EXL2__PRIVATE uint32_t exl2__grammar_ref_name(const exl2__grammar_schema *s, uint32_t object, uint32_t k)
{
    static const char *const words[] = { "$anchor", "$dynamicAnchor", "$id", "id" };
    uint32_t value = exl2__grammar_schema_get(s, object, words[k]);
    return value && s->j.tokens[value].kind == EXL2__JSON_STRING ? value : 0;
}

/* Lists the objects that have a name. The memory belongs to `a`, which the caller closes. */
EXL2__PRIVATE void exl2__grammar_ref_open(exl2__grammar_schema *s, exl2__arena *a)
{
    uint64_t tokens = s->j.token_count;
    s->g->result = exl2__arena_open(s->g->c, a, (tokens + EXL2__GRAMMAR_REF_NAMES_MAX) * 4 + 64 * 2, EXL2_MEM_GENERAL);
    if (s->g->result < 0) {
        return;
    }
    s->targets = (uint32_t *)exl2__arena_alloc_zeroed(a, tokens * 4);
    s->named = (uint32_t *)exl2__arena_alloc(a, EXL2__GRAMMAR_REF_NAMES_MAX * 4);
    for (uint32_t i = 0; i < tokens && s->g->result == EXL2_OK; i++) {
        bool named = false;
        for (uint32_t k = 0; k < 4 && !named; k++) {
            named = exl2__grammar_ref_name(s, i, k) != 0;
        }
        if (named && s->named_count == EXL2__GRAMMAR_REF_NAMES_MAX) {
            exl2__grammar_schema_reject(s, EXL2_ERR_BUDGET, i,
                                        "at most 4,096 subschemas with an $id or $anchor are supported");
        } else if (named) {
            s->named[s->named_count++] = i;
        }
    }
}

/* Writes the address `text`, which has no '#', resolved relative to the root's address. Returns its bytes. */
EXL2__PRIVATE size_t exl2__grammar_ref_address(const exl2__grammar_schema *s, const char *text, size_t bytes, char *out)
{
    uint32_t root = exl2__grammar_ref_id(s, 0);
    size_t used = 0, folder = 0;
    bool whole = bytes >= 4 && memcmp(text, "urn:", 4) == 0;
    for (size_t i = 0; i + 2 < bytes; i++) {
        whole = whole || memcmp(text + i, "://", 3) == 0;
    }
    if (root && !whole) {
        used = exl2__json_text(&s->j, root, out, SIZE_MAX);
        bool from_host = bytes && text[0] == '/';
        for (size_t i = 0, slashes = 0; i < used && out[i] != '#'; i++) {
            slashes += out[i] == '/';
            folder = out[i] == '/' && (!from_host || slashes <= 3) ? i + !from_host : folder;
        }
        used = folder;
    }
    memcpy(out + used, text, bytes);
    return used + bytes;
}

/* The object whose address is `text`, or UINT32_MAX. */
EXL2__PRIVATE uint32_t exl2__grammar_ref_resource(exl2__grammar_schema *s, char *text, size_t bytes)
{
    char *wanted = text + bytes;
    size_t wanted_bytes = exl2__grammar_ref_address(s, text, bytes, wanted);
    for (uint32_t n = 0; n < s->named_count; n++) {
        uint32_t i = s->named[n], id = exl2__grammar_ref_id(s, i);
        if (!id) {
            continue;
        }
        char *raw = wanted + wanted_bytes;
        size_t raw_bytes = exl2__json_text(&s->j, id, raw, SIZE_MAX);
        raw_bytes -= raw_bytes && raw[raw_bytes - 1] == '#';
        char *name = raw + raw_bytes;
        size_t name_bytes = i ? exl2__grammar_ref_address(s, raw, raw_bytes, name) : raw_bytes;
        name = i ? name : raw;
        if (name_bytes == wanted_bytes && memcmp(name, wanted, name_bytes) == 0) {
            return i;
        }
    }
    return UINT32_MAX;
}

/* The innermost object with an address that contains the token, or the root. */
EXL2__PRIVATE uint32_t exl2__grammar_ref_around(const exl2__grammar_schema *s, uint32_t token)
{
    for (uint32_t n = s->named_count; n-- > 0;) {
        uint32_t i = s->named[n];
        if (i < token && s->j.tokens[i].after > token && exl2__grammar_ref_id(s, i)) {
            return i;
        }
    }
    return 0;
}

/* ---- what follows '#' ---- */

EXL2__PRIVATE bool exl2__grammar_ref_step_is(const exl2__grammar_schema *s, uint32_t key, const char *step,
                                             uint32_t bytes)
{
    exl2__json_bytes name = exl2__json_bytes_of(&s->j, key);
    uint32_t at = 0;
    for (int next; (next = exl2__json_bytes_next(&name)) >= 0;) {
        if (at == bytes) {
            return false;
        }
        char c = step[at++];
        if (c == '%' && bytes - at >= 2) {
            c = (char)(exl2__hex_digit((uint8_t)step[at]) << 4 | exl2__hex_digit((uint8_t)step[at + 1]));
            at += 2;
        }
        if (c == '~' && at < bytes) {
            c = step[at++] == '1' ? '/' : '~';
        }
        if (c != (char)next) {
            return false;
        }
    }
    return at == bytes;
}

/* The token that a path such as /$defs/x names below `at`, or UINT32_MAX. */
EXL2__PRIVATE uint32_t exl2__grammar_ref_path(const exl2__grammar_schema *s, uint32_t at, const char *path,
                                              size_t bytes)
{
    for (size_t i = 0; i < bytes;) {
        size_t end = ++i;
        uint32_t found = 0;
        while (end < bytes && path[end] != '/') {
            end++;
        }
        exl2__json_kind kind = s->j.tokens[at].kind;
        uint32_t child = kind == EXL2__JSON_OBJECT || kind == EXL2__JSON_ARRAY ? exl2__json_first(&s->j, at) : 0;
        uint64_t index = 0;
        for (size_t k = i; k < end; k++) {
            index = (uint8_t)(path[k] - '0') < 10 ? index * 10 + (uint64_t)(path[k] - '0') : UINT32_MAX;
        }
        for (; child && !found; child = exl2__json_next(&s->j, at, child)) {
            if (kind == EXL2__JSON_OBJECT) {
                found = exl2__grammar_ref_step_is(s, child, path + i, (uint32_t)(end - i)) ? child + 1 : 0;
            } else {
                found = index-- == 0 ? child : 0;
            }
        }
        if (!found) {
            return UINT32_MAX;
        }
        at = found;
        i = end;
    }
    return at;
}

/* The subschema at or below `at` with this $anchor, or whose $id or id is "#" and this name; or UINT32_MAX. */
EXL2__PRIVATE uint32_t exl2__grammar_ref_anchor(const exl2__grammar_schema *s, uint32_t at, const char *name,
                                                size_t bytes)
{
    for (uint32_t n = 0; n < s->named_count; n++) {
        uint32_t i = s->named[n];
        for (uint32_t k = 0; k < 4 && i >= at && i < s->j.tokens[at].after; k++) {
            uint32_t value = exl2__grammar_ref_name(s, i, k);
            const exl2__json_token *t = &s->j.tokens[value];
            size_t mark = k >= 2;
            if (value && t->end - t->begin == bytes + mark && (!mark || s->j.text[t->begin] == '#')
                && memcmp(s->j.text + t->begin + mark, name, bytes) == 0) {
                return i;
            }
        }
    }
    return UINT32_MAX;
}

/* The subschema that a $ref names, or UINT32_MAX. */
EXL2__PRIVATE uint32_t exl2__grammar_ref_target(exl2__grammar_schema *s, uint32_t ref)
{
    if (s->targets[ref]) {
        return s->targets[ref] - 1;
    }
    size_t bytes = exl2__json_text(&s->j, ref, s->buffer, SIZE_MAX), mark = 0;
    if (s->j.tokens[ref].kind != EXL2__JSON_STRING) {
        exl2__grammar_schema_reject(s, EXL2_ERR_FORMAT, ref, "a $ref must be a string");
        return UINT32_MAX;
    }
    while (mark < bytes && s->buffer[mark] != '#') {
        mark++;
    }
    const char *place = s->buffer + mark + (mark < bytes);
    size_t place_bytes = bytes - (size_t)(place - s->buffer);
    uint32_t at = exl2__grammar_ref_around(s, ref);
    if (mark > 0) {
        char *address = s->buffer + bytes;
        memcpy(address, s->buffer, mark);
        at = exl2__grammar_ref_resource(s, address, mark);
    }
    if (at == UINT32_MAX) {
        exl2__grammar_schema_reject(s, EXL2_ERR_UNSUPPORTED, ref, "a $ref to another document is not supported");
        return UINT32_MAX;
    }
    at = place_bytes && place[0] != '/' ? exl2__grammar_ref_anchor(s, at, place, place_bytes)
        : exl2__grammar_ref_path(s, at, place, place_bytes);
    if (at == UINT32_MAX) {
        exl2__grammar_schema_reject(s, EXL2_ERR_FORMAT, ref, "the $ref names a subschema that does not exist");
        return UINT32_MAX;
    }
    s->targets[ref] = at + 1;
    return at;
}

#endif

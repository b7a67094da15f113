/* json.h: parses strict JSON text (RFC 8259) into one flat array of tokens that point into the text.
   takes: untrusted text, which must outlive the tokens.
   gives: exl2__json, exl2__json_open, exl2__json_open_flat, exl2__json_open_deep, exl2__json_open_whole,
          exl2__json_close; exl2__json_parse and its functions, which work in slices; exl2__json_get, exl2__json_first,
          exl2__json_next; exl2__json_text, exl2__json_is, exl2__json_u64 and similar; exl2__json_walk.
   owns:  the token array, until exl2__json_close. */
#ifndef EXL2__JSON_H
#define EXL2__JSON_H

#include "../arena.h"
#include "json_number.h"
#include "json_scan.h"

/* {"a":[1,true]} has the tokens 0 {..}, 1 a, 2 [..], 3 1, 4 true. Token 0 is the root; the members of an object are
   key, value, key, value ... Only the root is token 0, so functions that return a token return 0 for "none". */
typedef struct exl2__json {
    const char *text;
    size_t bytes;
    exl2__json_token *tokens;
    uint32_t token_count;
    exl2__json_flat flat[EXL2__JSON_FLAT_MAX]; /* containers that were left unparsed, in the order of their keys */
} exl2__json;

/* ---- strings ---- */

static inline uint32_t exl2__json_encode_utf8(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    uint32_t bytes = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (uint32_t i = bytes - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3F));
        code >>= 6;
    }
    out[0] = (char)((0xF00u >> bytes) | code);
    return bytes;
}

/* Returns the code point of the \uXXXX escape at text[*at], and moves *at past it. \uD83D\uDE00 is one code point; an
   unpaired surrogate gives U+FFFD. */
static inline uint32_t exl2__json_unescape_u(const char *text, uint32_t end, uint32_t *at)
{
    uint32_t code, low = 0;
    exl2__hex_read(text + *at + 2, 4, 4, &code); /* the scan has found four digits */
    *at += 6;
    if (code < 0xD800 || code >= 0xE000) {
        return code;
    }
    bool pair = code < 0xDC00 && end - *at >= 6 && text[*at] == '\\' && text[*at + 1] == 'u';
    if (pair) {
        exl2__hex_read(text + *at + 2, 4, 4, &low);
    }
    if (low < 0xDC00 || low >= 0xE000) {
        return 0xFFFD;
    }
    *at += 6;
    return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
}

/* Reads the bytes of a string token one by one, unescaped. */
typedef struct exl2__json_bytes {
    const char *text;
    uint32_t at, end;
    char piece[4];          /* UTF-8 of the last escape */
    uint32_t returned, pieces; /* bytes of `piece` returned so far, and bytes in all */
} exl2__json_bytes;

static inline exl2__json_bytes exl2__json_bytes_of(const exl2__json *j, uint32_t token)
{
    exl2__json_bytes b = { j->text, j->tokens[token].begin, j->tokens[token].end, { 0 }, 0, 0 };
    return b;
}

/* The next byte, 0..255, or -1 at the end. */
EXL2__NOINLINE
EXL2__PRIVATE int exl2__json_bytes_next(exl2__json_bytes *b)
{
    if (b->returned < b->pieces) {
        return (uint8_t)b->piece[b->returned++];
    }
    if (b->at == b->end) {
        return -1;
    }
    char c = b->text[b->at];
    if (c != '\\') {
        b->at++;
        return (uint8_t)c;
    }
    c = b->text[b->at + 1];
    if (c == 'u') {
        b->pieces = exl2__json_encode_utf8(exl2__json_unescape_u(b->text, b->end, &b->at), b->piece);
        b->returned = 1;
        return (uint8_t)b->piece[0];
    }
    b->at += 2;
    return c == 'b' ? '\b' : c == 'f' ? '\f' : c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : c;
}

/* The unescaped UTF-8 of a string, which may contain NUL bytes. Writes at most `cap` bytes, and returns the length of
   the whole text; 0 for other tokens. */
EXL2__NOINLINE
EXL2__PRIVATE size_t exl2__json_text(const exl2__json *j, uint32_t token, char *out, size_t cap)
{
    size_t used = 0;
    if (j->tokens[token].kind != EXL2__JSON_STRING) {
        return 0;
    }
    const exl2__json_token *t = &j->tokens[token];
    if (!t->escaped) {
        used = t->end - t->begin;
        if (cap) {
            memcpy(out, j->text + t->begin, used < cap ? used : cap);
        }
        return used;
    }
    exl2__json_bytes bytes = exl2__json_bytes_of(j, token);
    for (int next; (next = exl2__json_bytes_next(&bytes)) >= 0; used++) {
        if (used < cap) {
            out[used] = (char)next;
        }
    }
    return used;
}

/* The same without a copy, unless the text has to be unescaped: that is done into `room`. *bytes: its length. The token
   must be a string. */
static inline const char *exl2__json_view(const exl2__json *j, uint32_t token, char *room, size_t *bytes)
{
    const exl2__json_token *t = &j->tokens[token];
    *bytes = t->escaped ? exl2__json_text(j, token, room, SIZE_MAX) : t->end - t->begin;
    return t->escaped ? room : j->text + t->begin;
}

/* Is the token a string whose unescaped text is `wanted`? */
static inline bool exl2__json_is(const exl2__json *j, uint32_t token, const char *wanted)
{
    size_t used = 0;
    const exl2__json_token *t = &j->tokens[token];
    char first = t->end > t->begin ? j->text[t->begin] : 0;
    if (t->kind != EXL2__JSON_STRING || (first != *wanted && first != '\\')) {
        return false;
    }
    if (!t->escaped) {
        used = strlen(wanted);
        return t->end - t->begin == used && memcmp(j->text + t->begin, wanted, used) == 0;
    }
    exl2__json_bytes bytes = exl2__json_bytes_of(j, token);
    for (int next; (next = exl2__json_bytes_next(&bytes)) >= 0; used++) {
        if (next == 0 || (uint8_t)wanted[used] != next) {
            return false;
        }
    }
    return wanted[used] == 0;
}

/* Do two strings have the same unescaped text? */
static inline bool exl2__json_same(const exl2__json *j, uint32_t token, uint32_t other)
{
    const exl2__json_token *t = &j->tokens[token], *o = &j->tokens[other];
    if (!t->escaped && !o->escaped) {
        return t->end - t->begin == o->end - o->begin &&
               exl2__eight_same(j->text + t->begin, j->text + o->begin, t->end - t->begin);
    }
    exl2__json_bytes a = exl2__json_bytes_of(j, token), b = exl2__json_bytes_of(j, other);
    int next;
    do {
        next = exl2__json_bytes_next(&a);
        if (next != exl2__json_bytes_next(&b)) {
            return false;
        }
    } while (next >= 0);
    return true;
}

/* ---- opening ---- */

static inline void exl2__json_close(exl2__ctx *c, exl2__json *j)
{
    exl2__free(c, j->tokens, (uint64_t)j->token_count * sizeof *j->tokens, EXL2_MEM_GENERAL);
    *j = (exl2__json){ 0 };
}

static inline uint32_t exl2__json_line(const char *text, size_t at)
{
    uint32_t line = 1;
    for (size_t i = 0; i < at; i++) {
        line += text[i] == '\n';
    }
    return line;
}

/* A hash table with open addressing; it holds the keys of all objects. */
typedef struct exl2__json_keys {
    uint32_t *slots;   /* [mask + 1] token of the key; 0 = empty (token 0 is never a key) */
    uint32_t *objects; /* [mask + 1] token of the object that has the key */
    uint32_t mask;
    uint64_t probes, probes_max;
} exl2__json_keys;

static inline uint32_t exl2__json_key_hash(const exl2__json *j, uint32_t object, uint32_t key)
{
    uint64_t hash = 0xCBF29CE484222325u ^ object;
    const exl2__json_token *t = &j->tokens[key];
    exl2__json_bytes bytes = exl2__json_bytes_of(j, key);
    for (uint32_t at = t->begin; !t->escaped && at < t->end; at++) {
        hash = (hash ^ (uint8_t)j->text[at]) * 0x100000001B3u;
    }
    for (int next; t->escaped && (next = exl2__json_bytes_next(&bytes)) >= 0;) {
        hash = (hash ^ (uint64_t)next) * 0x100000001B3u;
    }
    return (uint32_t)(hash ^ hash >> 32);
}

/* false: the object has this key already, or probes exceeds probes_max. */
static inline bool exl2__json_keys_add(const exl2__json *j, exl2__json_keys *k, uint32_t object, uint32_t key)
{
    uint32_t at = exl2__json_key_hash(j, object, key) & k->mask;
    for (; k->slots[at]; at = (at + 1) & k->mask) {
        if (++k->probes > k->probes_max || (k->objects[at] == object && exl2__json_same(j, k->slots[at], key))) {
            return false;
        }
    }
    k->slots[at] = key;
    k->objects[at] = object;
    return true;
}

static inline exl2_result exl2__json_reject_key(exl2__ctx *c, const char *label, const exl2__json *j, uint32_t key,
                                                bool twice)
{
    const exl2__json_token *t = &j->tokens[key];
    uint32_t bytes = t->end - t->begin;
    bytes = bytes > 80 ? (uint32_t)exl2__utf8_cut(j->text + t->begin, 80) : bytes;
    return exl2__fail(c, EXL2_ERR_FORMAT,
                      twice ? "%s has the key \"%.*s\" twice in one object, again at byte %u (line %u)"
                            : "%s: too many keys have the same hash as \"%.*s\" at byte %u (line %u)",
                      label, (int)bytes, j->text + t->begin, t->begin, exl2__json_line(j->text, t->begin));
}

EXL2__PRIVATE exl2_result exl2__json_reject(exl2__ctx *c, const char *label, const exl2__json_scan *scan)
{
    return exl2__fail(c, EXL2_ERR_FORMAT, "%s is not valid JSON: expected %s at byte %u (line %u)", label, scan->wanted,
                      scan->at, exl2__json_line((const char *)scan->text, scan->at));
}

/* A text that is parsed in slices. */
typedef struct exl2__json_parse {
    const char *label;     /* the file's name for messages */
    exl2__json j;          /* the result */
    exl2__json_scan scan;  /* counts the tokens; then scan.tokens is set, and it fills them in */
    exl2__json_keys keys;
    exl2__arena key_slots; /* after the scans */
    uint64_t cleared;      /* bytes of key_slots */
    uint32_t object, key;  /* the next key to check; key 0: the first of the object */
} exl2__json_parse;

static inline void exl2__json_parse_close(exl2__ctx *c, exl2__json_parse *p)
{
    exl2__json_close(c, &p->j);
    exl2__arena_close(c, &p->key_slots);
}

/* Large containers can be left unparsed: those with a key of flat_keys[EXL2__JSON_FLAT_MAX], in an object that is a
   member of the root. Each has one token, without children; exl2__json_walk reads its members. flat_keys NULL: none. */
EXL2__PRIVATE exl2_result exl2__json_parse_begin(exl2__ctx *c, exl2__json_parse *p, const char *label, const char *text,
                                                 size_t bytes, const char *const *flat_keys)
{
    memset(p, 0, sizeof *p);
    if (bytes >= UINT32_MAX) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s has %llu bytes, but at most 2^32 - 2 are accepted", label,
                          (unsigned long long)bytes);
    }
    p->label = label;
    p->j.text = text;
    p->j.bytes = bytes;
    p->scan.text = (const uint8_t *)text;
    p->scan.bytes = (uint32_t)bytes;
    p->scan.flat_keys = flat_keys;
    return EXL2_OK;
}

/* Scans the text twice: first to count the tokens, then to fill them in. */
EXL2__PRIVATE exl2_result exl2__json_parse_tokens(exl2__ctx *c, exl2__json_parse *p, exl2__work *work)
{
    exl2__json_scan *scan = &p->scan;
    exl2_result r = exl2__json_scan_slice(scan, work);
    if (r == EXL2_OK && !scan->tokens) {
        void *memory;
        p->j.token_count = scan->token_count;
        memcpy(p->j.flat, scan->flat, sizeof p->j.flat);
        EXL2__TRY(exl2__alloc(c, (uint64_t)p->j.token_count * sizeof *p->j.tokens, sizeof(uint64_t), EXL2_MEM_GENERAL,
                              &memory));
        p->j.tokens = (exl2__json_token *)memory;
        exl2__json_scan_fill(scan, p->j.tokens);
        r = exl2__json_scan_slice(scan, work);
    }
    return r < 0 ? exl2__json_reject(c, p->label, scan) : r;
}

EXL2__PRIVATE exl2_result exl2__json_parse_open_keys(exl2__ctx *c, exl2__json_parse *p)
{
    uint32_t members = 0;
    for (uint32_t i = 0; i < p->j.token_count; i++) {
        members += p->j.tokens[i].kind == EXL2__JSON_OBJECT ? p->j.tokens[i].count : 0;
    }
    uint64_t slots = 16;
    while (slots < (uint64_t)members * 2) {
        slots *= 2;
    }
    EXL2__TRY(exl2__arena_open(c, &p->key_slots, slots * 2 * sizeof(uint32_t), EXL2_MEM_GENERAL));
    p->keys.slots = (uint32_t *)exl2__arena_alloc(&p->key_slots, slots * 2 * sizeof(uint32_t));
    p->keys.objects = p->keys.slots + slots;
    p->keys.mask = (uint32_t)(slots - 1);
    p->keys.probes_max = 32u * (uint64_t)members + 4096;
    return EXL2_OK;
}

/* Rejects an object that has the same key twice. To stay linear, it also rejects texts whose keys collide far more
   often than by chance. */
EXL2__PRIVATE exl2_result exl2__json_parse_keys(exl2__ctx *c, exl2__json_parse *p, exl2__work *work)
{
    const exl2__json *j = &p->j;
    for (; p->object < j->token_count; p->object++, p->key = 0) {
        const exl2__json_token *object = &j->tokens[p->object];
        if (p->key == 0 && !exl2__work_spend(work, 2)) {
            return EXL2_PENDING;
        }
        p->key = p->key ? p->key : p->object + 1;
        for (; object->kind == EXL2__JSON_OBJECT && p->key < object->after; p->key = j->tokens[p->key + 1].after) {
            if (!exl2__work_spend(work, 40)) {
                return EXL2_PENDING;
            }
            if (!exl2__json_keys_add(j, &p->keys, p->object, p->key)) {
                return exl2__json_reject_key(c, p->label, j, p->key, p->keys.probes <= p->keys.probes_max);
            }
        }
    }
    return EXL2_OK;
}

/* OK: p->j is the parsed text. Whatever the result, the caller closes p at the end, or zeroes p->j to keep it. */
EXL2__PRIVATE exl2_result exl2__json_parse_slice(exl2__ctx *c, exl2__json_parse *p, exl2__work *work)
{
    if (!p->key_slots.base) {
        EXL2__TRY_DONE(exl2__json_parse_tokens(c, p, work));
        EXL2__TRY(exl2__json_parse_open_keys(c, p));
    }
    EXL2__TRY_DONE(exl2__arena_clear(&p->key_slots, &p->cleared, work));
    EXL2__TRY_DONE(exl2__json_parse_keys(c, p, work));
    exl2__arena_close(c, &p->key_slots);
    return EXL2_OK;
}

/* The rest of an open parse at once. Closes p. On failure *out is zeroed. */
EXL2__PRIVATE exl2_result exl2__json_parse_all(exl2__ctx *c, exl2__json_parse *p, exl2__json *out)
{
    exl2__work all = exl2__work_all();
    exl2_result r = exl2__json_parse_slice(c, p, &all);
    *out = (exl2__json){ 0 };
    if (r == EXL2_OK) {
        *out = p->j;
        p->j = (exl2__json){ 0 };
    }
    exl2__json_parse_close(c, p);
    return r;
}

/* The same at once. nonfinite: NaN and Infinity are accepted (EXL2__JSON_NONFINITE). On failure *out is zeroed. */
EXL2__PRIVATE exl2_result exl2__json_open_whole(exl2__ctx *c, const char *label, const char *text, size_t bytes,
                                                const char *const *flat_keys, bool nonfinite, exl2__json *out)
{
    exl2__json_parse p;
    *out = (exl2__json){ 0 };
    EXL2__TRY(exl2__json_parse_begin(c, &p, label, text, bytes, flat_keys));
    p.scan.nonfinite = nonfinite;
    return exl2__json_parse_all(c, &p, out);
}

/* Like exl2__json_open, for callers that do not recurse: accepts EXL2__JSON_DEEP_MAX levels of nesting. */
EXL2__PRIVATE exl2_result exl2__json_open_deep(exl2__ctx *c, const char *label, const char *text, size_t bytes,
                                               exl2__json *out)
{
    exl2__json_parse p;
    *out = (exl2__json){ 0 };
    EXL2__TRY(exl2__json_parse_begin(c, &p, label, text, bytes, NULL));
    p.scan.deep = true;
    return exl2__json_parse_all(c, &p, out);
}

static inline exl2_result exl2__json_open_flat(exl2__ctx *c, const char *label, const char *text, size_t bytes,
                                               const char *const *flat_keys, exl2__json *out)
{
    return exl2__json_open_whole(c, label, text, bytes, flat_keys, false, out);
}

/* Parses `text`; `label` is the file's name for messages. On failure *out is zeroed. */
EXL2__PRIVATE exl2_result exl2__json_open(exl2__ctx *c, const char *label, const char *text, size_t bytes,
                                          exl2__json *out)
{
    return exl2__json_open_whole(c, label, text, bytes, NULL, false, out);
}

/* ---- walking ---- */

/* The first key of an object, or the first element of an array; 0 = it is empty, or not a container. */
static inline uint32_t exl2__json_first(const exl2__json *j, uint32_t container)
{
    return j->tokens[container].count ? container + 1 : 0;
}

/* The key or element after `child`, or 0. The value of a key is the token after it. */
static inline uint32_t exl2__json_next(const exl2__json *j, uint32_t container, uint32_t child)
{
    uint32_t value = j->tokens[container].kind == EXL2__JSON_OBJECT ? child + 1 : child;
    uint32_t next = j->tokens[value].after;
    return next < j->tokens[container].after ? next : 0;
}

/* The value of `key`; 0 if it is absent or null, or if `object` is no object. Compares with every member, so loops
   should use exl2__json_first and exl2__json_next. */
static inline uint32_t exl2__json_get(const exl2__json *j, uint32_t object, const char *key)
{
    if (j->tokens[object].kind != EXL2__JSON_OBJECT) {
        return 0;
    }
    for (uint32_t member = exl2__json_first(j, object); member; member = exl2__json_next(j, object, member)) {
        if (exl2__json_is(j, member, key)) {
            return j->tokens[member + 1].kind == EXL2__JSON_NULL ? 0 : member + 1;
        }
    }
    return 0;
}

/* ---- scalars: if the token has another type, false, and *out is unchanged ---- */

static inline bool exl2__json_number_of(const exl2__json *j, uint32_t token, exl2__json_number *out)
{
    const exl2__json_token *t = &j->tokens[token];
    if (t->kind != EXL2__JSON_NUMBER) {
        return false;
    }
    *out = exl2__json_number_read(j->text + t->begin, t->end - t->begin);
    return true;
}

/* Floats with an integral value are accepted: 8192.0 is 8192. */
static inline bool exl2__json_u64(const exl2__json *j, uint32_t token, uint64_t *out)
{
    const exl2__json_token *t = &j->tokens[token];
    exl2__json_number n;
    uint64_t value = 0;
    uint32_t at = t->begin;
    for (uint32_t digit; at < t->end && at < t->begin + 19 && (digit = (uint8_t)j->text[at] - 48u) < 10; at++) {
        value = value * 10 + digit;
    }
    if (at == t->end && t->kind == EXL2__JSON_NUMBER) { /* the usual case: digits only */
        *out = value;
        return true;
    }
    if (!exl2__json_number_of(j, token, &n) || !exl2__json_number_u64(&n, &value) || (n.negative && value)) {
        return false;
    }
    *out = value;
    return true;
}

static inline bool exl2__json_i64(const exl2__json *j, uint32_t token, int64_t *out)
{
    exl2__json_number n;
    uint64_t size;
    if (!exl2__json_number_of(j, token, &n) || !exl2__json_number_u64(&n, &size) ||
        size > (uint64_t)INT64_MAX + n.negative) {
        return false;
    }
    *out = !n.negative ? (int64_t)size : size ? -(int64_t)(size - 1) - 1 : 0;
    return true;
}

static inline bool exl2__json_f64(const exl2__json *j, uint32_t token, double *out)
{
    exl2__json_number n;
    return exl2__json_number_of(j, token, &n) && exl2__json_number_f64(&n, out);
}

static inline bool exl2__json_bool(const exl2__json *j, uint32_t token, bool *out)
{
    exl2__json_kind kind = j->tokens[token].kind;
    if (kind == EXL2__JSON_TRUE || kind == EXL2__JSON_FALSE) {
        *out = kind == EXL2__JSON_TRUE;
        return true;
    }
    return false;
}

/* ---- containers that were left unparsed ---- */

#define EXL2__JSON_WALK_TOKENS 8

/* Reads one member after another. `view` holds the current one: of an object, token 1 is the key and token 2 the value;
   of an array, token 1 is the element. */
typedef struct exl2__json_walk {
    exl2__json view;
    exl2__json_token tokens[EXL2__JSON_WALK_TOKENS];
    exl2__json_scan scan;
    uint32_t at;
    bool begun;
} exl2__json_walk;

static inline void exl2__json_walk_begin(exl2__json_walk *w, const exl2__json *j, const exl2__json_flat *flat)
{
    memset(w, 0, sizeof *w);
    w->scan.text = (const uint8_t *)j->text;
    w->scan.bytes = flat->end;
    w->scan.tokens = w->tokens;
    w->view.text = j->text;
    w->view.bytes = j->bytes;
    w->view.tokens = w->tokens;
    w->at = exl2__json_scan_open(&w->scan, flat->begin);
}

/* Reads the next member. false: there is none, or scan.wanted is set and the text is not valid. */
static inline bool exl2__json_walk_next(exl2__json_walk *w)
{
    exl2__json_scan *s = &w->scan;
    s->token_count = 1;
    uint32_t at = exl2__json_scan_child(s, w->at, !w->begun);
    for (uint32_t depth = 1; s->depth > 1 && at != EXL2__JSON_BAD;) {
        bool first = s->depth > depth;
        depth = s->depth;
        at = depth > 2 || s->token_count + 2 > EXL2__JSON_WALK_TOKENS
           ? exl2__json_scan_fail(s, at, "a smaller value") : exl2__json_scan_child(s, at, first);
    }
    w->at = at;
    w->begun = true;
    w->view.token_count = s->token_count;
    return s->depth == 1 && at != EXL2__JSON_BAD;
}

/* After exl2__json_walk_next has returned false: fails if the text is not valid. */
EXL2__PRIVATE exl2_result exl2__json_walk_end(exl2__ctx *c, const char *label, const exl2__json_walk *w)
{
    return w->scan.wanted ? exl2__json_reject(c, label, &w->scan) : EXL2_OK;
}

#endif

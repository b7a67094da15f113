/* grammar_code.h: an automaton over bytes with rule calls and counted loops, stored as nodes. Front ends build it by
   joining pieces.
   takes: bytes, code point ranges and rules, from front ends.
   gives: exl2__grammar_code, exl2__grammar_code_piece and the functions that make pieces from texts, classes,
          alternatives, loops and calls.
   owns:  its arrays, until exl2__grammar_code_close. */
#ifndef EXL2__GRAMMAR_CODE_H
#define EXL2__GRAMMAR_CODE_DOUBT 320u /* bytes of a message */
#define EXL2__GRAMMAR_CODE_H

#include "../../0_base/alloc.h"
#include "../unicode/unicode.h"

#define EXL2__GRAMMAR_CODE_NODES_MAX 300000u
#define EXL2__GRAMMAR_CODE_RULES_MAX 10000u
#define EXL2__GRAMMAR_CODE_COUNT_MAX 1000000u /* highest count of a repetition */
#define EXL2__GRAMMAR_CODE_ENDLESS UINT32_MAX /* a repetition without an upper count */
#define EXL2__GRAMMAR_CODE_RANGES_MAX 512u    /* ranges of one character class */

typedef enum exl2__grammar_code_kind {
    EXL2__GRAMMAR_CODE_RETURN, /* the end of a rule or of a loop's body */
    EXL2__GRAMMAR_CODE_BYTES,  /* one byte of low..high, then next */
    EXL2__GRAMMAR_CODE_JUMP,   /* next */
    EXL2__GRAMMAR_CODE_SPLIT,  /* next or other */
    EXL2__GRAMMAR_CODE_CALL,   /* rule `other` (after linking: its first node), then next */
    EXL2__GRAMMAR_CODE_REPEAT  /* body `other`, min..max times, then next */
} exl2__grammar_code_kind;

typedef struct exl2__grammar_code_node {
    uint8_t kind, low, high;
    uint32_t next, other, min, max;
} exl2__grammar_code_node;

/* Errors stick: after the first error all functions return harmless pieces, and `result` keeps the error. */
typedef struct exl2__grammar_code {
    exl2__ctx *c;
    const char *label;              /* for messages: "schema", "regex" ... */
    exl2__grammar_code_node *nodes; /* node 0 is RETURN, so a piece whose end is not joined returns */
    uint32_t *rules;                /* first node of each rule; 0 = not defined yet */
    uint32_t node_count, node_room, rule_count, rule_room;
    bool json;                      /* classes are for text inside a JSON string: some characters become escapes */
    bool wide;                      /* \d, \w, \s: the union of the regex dialects instead of their intersection */
    uint32_t work;                  /* cost so far of the products of grammar_product.h, which is bounded */
    char doubt[EXL2__GRAMMAR_CODE_DOUBT]; /* why the automaton may lack texts of its source, as a message; or "" */
    exl2_result result;
} exl2__grammar_code;

/* A part of the automaton. It begins at node `first`; joining it to another piece sets the `next` of node `last`. */
typedef struct exl2__grammar_code_piece {
    uint32_t first, last;
} exl2__grammar_code_piece;

typedef struct exl2__grammar_code_range {
    uint32_t low, high; /* code points, both included */
} exl2__grammar_code_range;

/* A set of code points. Ranges may overlap and have any order until exl2__grammar_code_class_tidy. */
typedef struct exl2__grammar_code_class {
    exl2__grammar_code_range ranges[EXL2__GRAMMAR_CODE_RANGES_MAX];
    uint32_t count;
} exl2__grammar_code_class;

EXL2__PRIVATE void exl2__grammar_code_close(exl2__grammar_code *g)
{
    exl2__free(g->c, g->nodes, (uint64_t)g->node_room * sizeof *g->nodes, EXL2_MEM_GENERAL);
    exl2__free(g->c, g->rules, (uint64_t)g->rule_room * sizeof *g->rules, EXL2_MEM_GENERAL);
    *g = (exl2__grammar_code){ 0 };
}

/* Doubles the room of an array, up to `most` items of `size` bytes. false: an error, which is stored. */
EXL2__PRIVATE bool exl2__grammar_code_grow(exl2__grammar_code *g, void **items, uint32_t *room, uint32_t most,
                                           size_t size, const char *what)
{
    void *grown;
    if (g->result < 0) {
        return false;
    }
    if (*room >= most) {
        g->result = exl2__fail(g->c, EXL2_ERR_BUDGET, "%s: at most %u %s are supported", g->label, most, what);
        return false;
    }
    uint32_t wanted = exl2__min32(exl2__max32(*room * 2, 256), most);
    g->result = exl2__alloc(g->c, (uint64_t)wanted * size, 8, EXL2_MEM_GENERAL, &grown);
    if (g->result < 0) {
        return false;
    }
    if (*room) {
        memcpy(grown, *items, *room * size);
    }
    exl2__free(g->c, *items, (uint64_t)*room * size, EXL2_MEM_GENERAL);
    *items = grown;
    *room = wanted;
    return true;
}

EXL2__PRIVATE uint32_t exl2__grammar_code_add(exl2__grammar_code *g, exl2__grammar_code_kind kind, uint32_t next,
                                              uint32_t other)
{
    if (g->node_count >= g->node_room) {
        void *nodes = g->nodes;
        if (!exl2__grammar_code_grow(g, &nodes, &g->node_room, EXL2__GRAMMAR_CODE_NODES_MAX, sizeof *g->nodes,
                                     "nodes of the automaton")) {
            return 0;
        }
        g->nodes = (exl2__grammar_code_node *)nodes;
    }
    exl2__grammar_code_node node = { (uint8_t)kind, 0, 0, next, other, 0, 0 };
    g->nodes[g->node_count] = node;
    return g->node_count++;
}

EXL2__PRIVATE exl2_result exl2__grammar_code_open(exl2__ctx *c, exl2__grammar_code *g, const char *label)
{
    *g = (exl2__grammar_code){ 0 };
    g->c = c;
    g->label = label;
    exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_RETURN, 0, 0);
    return g->result;
}

static inline void exl2__grammar_code_join(exl2__grammar_code *g, uint32_t node, uint32_t next)
{
    if (node) {
        g->nodes[node].next = next;
    }
}

static inline exl2__grammar_code_piece exl2__grammar_code_single(uint32_t node)
{
    exl2__grammar_code_piece piece = { node, node };
    return piece;
}

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_code_empty(exl2__grammar_code *g)
{
    return exl2__grammar_code_single(exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_JUMP, 0, 0));
}

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_code_bytes(exl2__grammar_code *g, uint32_t low, uint32_t high)
{
    uint32_t node = exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_BYTES, 0, 0);
    if (node) {
        g->nodes[node].low = (uint8_t)low;
        g->nodes[node].high = (uint8_t)high;
    }
    return exl2__grammar_code_single(node);
}

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_code_cat(exl2__grammar_code *g, exl2__grammar_code_piece a,
                                                              exl2__grammar_code_piece b)
{
    exl2__grammar_code_join(g, a.last, b.first);
    exl2__grammar_code_piece both = { a.first, b.last };
    return both;
}

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_code_text(exl2__grammar_code *g, const char *text, size_t bytes)
{
    exl2__grammar_code_piece all = exl2__grammar_code_empty(g);
    for (size_t i = 0; i < bytes && g->result == EXL2_OK; i++) {
        all = exl2__grammar_code_cat(g, all, exl2__grammar_code_bytes(g, (uint8_t)text[i], (uint8_t)text[i]));
    }
    return all;
}

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_code_word(exl2__grammar_code *g, const char *text)
{
    return exl2__grammar_code_text(g, text, strlen(text));
}

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_code_alt(exl2__grammar_code *g, exl2__grammar_code_piece a,
                                                              exl2__grammar_code_piece b)
{
    uint32_t join = exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_JUMP, 0, 0);
    uint32_t split = exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_SPLIT, a.first, b.first);
    exl2__grammar_code_join(g, a.last, join);
    exl2__grammar_code_join(g, b.last, join);
    exl2__grammar_code_piece either = { split, join };
    return either;
}

/* Adds an alternative to a list. A list with `first` 0 is empty. */
EXL2__PRIVATE void exl2__grammar_code_or(exl2__grammar_code *g, exl2__grammar_code_piece *list,
                                         exl2__grammar_code_piece a)
{
    if (list->first == 0) {
        *list = a;
        return;
    }
    /* reuse the JUMP at which the alternatives so far end */
    if (g->nodes[list->first].kind == EXL2__GRAMMAR_CODE_SPLIT
        && g->nodes[list->last].kind == EXL2__GRAMMAR_CODE_JUMP) {
        exl2__grammar_code_join(g, a.last, list->last);
        list->first = exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_SPLIT, a.first, list->first);
    } else {
        *list = exl2__grammar_code_alt(g, a, *list);
    }
}

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_code_option(exl2__grammar_code *g, exl2__grammar_code_piece a)
{
    return exl2__grammar_code_alt(g, a, exl2__grammar_code_empty(g));
}

/* a*, if `none`; otherwise a+. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_code_star(exl2__grammar_code *g, exl2__grammar_code_piece a,
                                                               bool none)
{
    uint32_t end = exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_JUMP, 0, 0);
    uint32_t split = exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_SPLIT, end, a.first);
    exl2__grammar_code_join(g, a.last, split);
    exl2__grammar_code_piece loop = { none ? split : a.first, end };
    return loop;
}

/* a{min,max}; max may be ENDLESS. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_code_repeat(exl2__grammar_code *g, exl2__grammar_code_piece a,
                                                                 uint32_t min, uint32_t max)
{
    if (max == EXL2__GRAMMAR_CODE_ENDLESS && min <= 1) {
        return exl2__grammar_code_star(g, a, min == 0);
    }
    if (max == 1) {
        return min ? a : exl2__grammar_code_option(g, a);
    }
    if (max == 0) {
        return exl2__grammar_code_empty(g);
    }
    uint32_t node = exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_REPEAT, 0, a.first);
    exl2__grammar_code_join(g, a.last, 0);
    if (node) {
        g->nodes[node].min = min;
        g->nodes[node].max = max;
    }
    return exl2__grammar_code_single(node);
}

/* ---- rules ---- */

EXL2__PRIVATE uint32_t exl2__grammar_code_rule(exl2__grammar_code *g)
{
    if (g->rule_count >= g->rule_room) {
        void *rules = g->rules;
        if (!exl2__grammar_code_grow(g, &rules, &g->rule_room, EXL2__GRAMMAR_CODE_RULES_MAX, sizeof *g->rules,
                                     "rules")) {
            return 0;
        }
        g->rules = (uint32_t *)rules;
    }
    g->rules[g->rule_count] = 0;
    return g->rule_count++;
}

EXL2__PRIVATE void exl2__grammar_code_define(exl2__grammar_code *g, uint32_t rule, exl2__grammar_code_piece body)
{
    exl2__grammar_code_join(g, body.last, 0);
    if (rule < g->rule_count) {
        g->rules[rule] = body.first;
    }
}

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_code_call(exl2__grammar_code *g, uint32_t rule)
{
    return exl2__grammar_code_single(exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_CALL, 0, rule));
}

/* ---- classes of characters ---- */

EXL2__PRIVATE bool exl2__grammar_code_class_add(exl2__grammar_code_class *s, uint32_t low, uint32_t high)
{
    if (s->count == EXL2__GRAMMAR_CODE_RANGES_MAX || low > high) {
        return low > high;
    }
    exl2__grammar_code_range range = { low, high };
    s->ranges[s->count++] = range;
    return true;
}

/* Sorts the ranges and merges those that overlap or touch. */
EXL2__PRIVATE void exl2__grammar_code_class_tidy(exl2__grammar_code_class *s)
{
    for (uint32_t i = 1; i < s->count; i++) {
        exl2__grammar_code_range range = s->ranges[i];
        uint32_t at = i;
        for (; at > 0 && s->ranges[at - 1].low > range.low; at--) {
            s->ranges[at] = s->ranges[at - 1];
        }
        s->ranges[at] = range;
    }
    uint32_t used = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        if (used && s->ranges[i].low <= s->ranges[used - 1].high + 1) {
            s->ranges[used - 1].high = exl2__max32(s->ranges[used - 1].high, s->ranges[i].high);
        } else {
            s->ranges[used++] = s->ranges[i];
        }
    }
    s->count = used;
}

/* Replaces a class by its complement. The result may need one range more. */
EXL2__PRIVATE void exl2__grammar_code_class_negate(exl2__grammar_code_class *s)
{
    exl2__grammar_code_class_tidy(s);
    uint32_t low = 0, used = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        exl2__grammar_code_range range = s->ranges[i];
        if (range.low > low) {
            s->ranges[used].low = low;
            s->ranges[used++].high = range.low - 1;
        }
        low = range.high + 1;
    }
    if (low <= 0x10FFFF && used < EXL2__GRAMMAR_CODE_RANGES_MAX) {
        s->ranges[used].low = low;
        s->ranges[used++].high = 0x10FFFF;
    }
    s->count = used;
}

/* Adds the code points low..high, all of `length` bytes in UTF-8. They are cut into runs whose encodings are a product
   of byte ranges: one range for each byte. */
EXL2__PRIVATE void exl2__grammar_code_utf8(exl2__grammar_code *g, exl2__grammar_code_piece *list, uint32_t low,
                                           uint32_t high, uint32_t length)
{
    while (low <= high && g->result == EXL2_OK) {
        uint32_t end = high;
        for (uint32_t shift = 6; shift < 6 * length; shift += 6) { /* find the longest such run that begins at low */
            uint32_t mask = (1u << shift) - 1;
            if ((low & ~mask) == (end & ~mask)) {
                break;
            }
            if (low & mask) {
                end = exl2__min32(end, low | mask);
                break;
            }
            if ((end & mask) != mask) {
                end = (end & ~mask) - 1;
            }
        }
        exl2__grammar_code_piece piece = { 0, 0 };
        for (uint32_t i = 0; i < length; i++) {
            uint32_t shift = 6 * (length - 1 - i);
            uint32_t mark = i ? 0x80 : length == 1 ? 0 : (0xF00u >> length) & 0xFF, mask = i ? 0x3F : 0xFF;
            exl2__grammar_code_piece byte =
                exl2__grammar_code_bytes(g, mark | ((low >> shift) & mask), mark | ((end >> shift) & mask));
            piece = i ? exl2__grammar_code_cat(g, piece, byte) : byte;
        }
        exl2__grammar_code_or(g, list, piece);
        low = end + 1;
    }
}

/* Adds the part of `range` that lies in from..to; from..to have `length` bytes in UTF-8. */
EXL2__PRIVATE void exl2__grammar_code_within(exl2__grammar_code *g, exl2__grammar_code_piece *list,
                                             exl2__grammar_code_range range, uint32_t from, uint32_t to,
                                             uint32_t length)
{
    uint32_t low = exl2__max32(range.low, from), high = exl2__min32(range.high, to);
    if (low <= high) {
        exl2__grammar_code_utf8(g, list, low, high, length);
    }
}

/* Adds the characters of `range` that have a short escape in JSON, such as \n and \". Control characters without one
   are left out. */
EXL2__PRIVATE void exl2__grammar_code_escapes(exl2__grammar_code *g, exl2__grammar_code_piece *list,
                                              exl2__grammar_code_range range)
{
    static const char codes[] = "\b\f\n\r\t\"\\", letters[] = "bfnrt\"\\";
    for (uint32_t i = 0; codes[i]; i++) {
        if (range.low <= (uint8_t)codes[i] && (uint8_t)codes[i] <= range.high) {
            char text[2] = { '\\', letters[i] };
            exl2__grammar_code_or(g, list, exl2__grammar_code_text(g, text, 2));
        }
    }
}

/* One character of the class as UTF-8. Tidies the class. Surrogates are left out. An empty class matches nothing. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_code_one_of(exl2__grammar_code *g, exl2__grammar_code_class *s)
{
    static const struct { uint32_t from, to, length; } parts[] = {
        { 0, 0x7F, 1 }, { 0x80, 0x7FF, 2 }, { 0x800, 0xD7FF, 3 }, { 0xE000, 0xFFFF, 3 }, { 0x10000, 0x10FFFF, 4 },
    };
    exl2__grammar_code_piece list = { 0, 0 };
    exl2__grammar_code_class_tidy(s);
    for (uint32_t i = 0; i < s->count && g->result == EXL2_OK; i++) {
        exl2__grammar_code_range range = s->ranges[i];
        if (g->json) {
            exl2__grammar_code_escapes(g, &list, range);
            exl2__grammar_code_within(g, &list, range, 0x20, 0x21, 1);
            exl2__grammar_code_within(g, &list, range, 0x23, 0x5B, 1);
            exl2__grammar_code_within(g, &list, range, 0x5D, 0x7F, 1);
        }
        for (uint32_t p = g->json; p < EXL2__COUNT(parts); p++) {
            exl2__grammar_code_within(g, &list, range, parts[p].from, parts[p].to, parts[p].length);
        }
    }
    if (list.first == 0) { /* low > high: matches no byte */
        list = exl2__grammar_code_bytes(g, 1, 0);
    }
    return list;
}

#endif

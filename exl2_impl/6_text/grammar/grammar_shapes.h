/* grammar_shapes.h: a model's tokens by the shapes of their texts, as a trie. In a shape, all letters a to z are one
   byte, and so are the capital letters, the digits, and bytes with the same place in UTF-8: " the" and " cat" have one
   shape, " The" has another. 49,152 tokens of English have 1,400 shapes. Mostly a grammar does the same with all bytes
   of such a range, and then one walk says what becomes of all tokens of a shape. Tokens of one kind, those that hold
   whole characters of a JSON string, come first.
   takes: the texts of tokens.
   gives: exl2__grammar_shapes; exl2__grammar_shapes_maker and, in this order, _make_begin, _find for each token,
          _make_sort, _make_count, _make_layout, _make_nodes, _add for each token, _make_end.
   owns:  scratch memory from _make_begin to _make_end. The table lies in the caller's memory. */
#ifndef EXL2__GRAMMAR_SHAPES_H
#define EXL2__GRAMMAR_SHAPES_H

#include "../../0_base/arena.h"
#include "../../0_base/sort.h"

/* Nodes are stored in depth-first order: the nodes below a node follow it and end before `skip`. */
typedef struct exl2__grammar_shape {
    uint32_t skip;
    uint32_t first;    /* index in `ids` of the first token of this shape; those of the nodes below follow */
    uint8_t low, high; /* the last byte of the shape is in this range */
    uint8_t depth;     /* bytes of the shape */
    uint8_t chars;     /* characters that begin in the shape */
    uint8_t height;    /* how many more bytes the longest shape below it has */
} exl2__grammar_shape;

typedef struct exl2__grammar_shapes {
    exl2__grammar_shape *nodes; /* [count + 1]; the last one only says where the ids end */
    uint32_t count, text_count; /* nodes; those of the first kind */
    uint32_t *ids;              /* the tokens by shape */
} exl2__grammar_shapes;

/* One shape, by the text of some token that has it. */
typedef struct exl2__grammar_shapes_one {
    const char *text;
    uint32_t bytes, number;
    bool other;           /* of the second kind */
} exl2__grammar_shapes_one;

typedef struct exl2__grammar_shapes_maker {
    exl2__ctx *c;
    exl2__grammar_shapes_one *all; /* [count] by number; then sorted */
    uint32_t count, nodes, at;     /* at: position in a stage, 0 at its begin */
    uint32_t *tokens;              /* [number] how many have the shape; then where in `ids` the next of them goes */
    uint32_t *of;                  /* [id] number of the token's shape */
    uint32_t *slots, slot_mask;    /* hash table of the shapes: number + 1 */
    uint8_t low[256], high[256];   /* [byte] the range that it belongs to */
    uint32_t path[256];            /* [depth] the nodes of the last shape */
    exl2__arena memory;
} exl2__grammar_shapes_maker;

EXL2__PRIVATE void exl2__grammar_shapes_set_ranges(exl2__grammar_shapes_maker *m)
{
    static const uint8_t ranges[][2] = { { 'a', 'z' }, { 'A', 'Z' }, { '0', '9' }, { 0x80, 0xBF }, { 0xC2, 0xDF },
                                         { 0xE1, 0xEC }, { 0xEE, 0xEF }, { 0xF1, 0xF3 } };
    for (uint32_t byte = 0; byte < 256; byte++) {
        m->low[byte] = m->high[byte] = (uint8_t)byte;
    }
    for (size_t i = 0; i < EXL2__COUNT(ranges); i++) {
        memset(m->low + ranges[i][0], ranges[i][0], ranges[i][1] - ranges[i][0] + 1u);
        memset(m->high + ranges[i][0], ranges[i][1], ranges[i][1] - ranges[i][0] + 1u);
    }
}

/* The bytes that two shapes begin with. */
EXL2__PRIVATE uint32_t exl2__grammar_shapes_shared(const exl2__grammar_shapes_maker *m,
                                                   const exl2__grammar_shapes_one *a, const exl2__grammar_shapes_one *b)
{
    uint32_t shared = 0;
    while (a->other == b->other && shared < a->bytes && shared < b->bytes
           && m->low[(uint8_t)a->text[shared]] == m->low[(uint8_t)b->text[shared]]) {
        shared++;
    }
    return shared;
}

EXL2__PRIVATE bool exl2__grammar_shapes_less(const void *items, uint32_t left, uint32_t right)
{
    const exl2__grammar_shapes_maker *m = (const exl2__grammar_shapes_maker *)items;
    const exl2__grammar_shapes_one *a = &m->all[left], *b = &m->all[right];
    if (a->other != b->other) {
        return b->other;
    }
    uint32_t at = exl2__grammar_shapes_shared(m, a, b);
    return at < b->bytes && (at == a->bytes || m->low[(uint8_t)a->text[at]] < m->low[(uint8_t)b->text[at]]);
}

EXL2__PRIVATE void exl2__grammar_shapes_swap(void *items, uint32_t a, uint32_t b)
{
    exl2__grammar_shapes_maker *m = (exl2__grammar_shapes_maker *)items;
    exl2__grammar_shapes_one one = m->all[a];
    m->all[a] = m->all[b];
    m->all[b] = one;
}

/* *m is zeroed; after a failure, too. */
EXL2__PRIVATE exl2_result exl2__grammar_shapes_make_begin(exl2__grammar_shapes_maker *m, exl2__ctx *c,
                                                          uint32_t id_count)
{
    uint64_t most = exl2__max32(id_count, 1), slots = 64;
    while (slots < 2 * most) {
        slots *= 2;
    }
    EXL2__TRY(exl2__arena_open(c, &m->memory, most * (sizeof *m->all + 8) + slots * 4 + 64 * 4, EXL2_MEM_GENERAL));
    m->c = c;
    m->slot_mask = (uint32_t)slots - 1;
    m->all = (exl2__grammar_shapes_one *)exl2__arena_alloc(&m->memory, most * sizeof *m->all);
    m->tokens = (uint32_t *)exl2__arena_alloc(&m->memory, most * 4);
    m->of = (uint32_t *)exl2__arena_alloc(&m->memory, most * 4);
    m->slots = (uint32_t *)exl2__arena_alloc_zeroed(&m->memory, slots * 4);
    exl2__grammar_shapes_set_ranges(m);
    return EXL2_OK;
}

/* Finds or makes the shape of a token, and counts it. other: of the second kind. */
EXL2__PRIVATE void exl2__grammar_shapes_find(exl2__grammar_shapes_maker *m, const char *text, uint32_t bytes,
                                             bool other, uint32_t id)
{
    exl2__grammar_shapes_one one = { text, bytes, m->count, other };
    uint64_t hash = other;
    for (uint32_t i = 0; i < bytes; i++) {
        hash = (hash + m->low[(uint8_t)text[i]] + 1) * 0x9E3779B97F4A7C15u;
    }
    uint32_t at = (uint32_t)(hash >> 32) & m->slot_mask;
    for (; m->slots[at]; at = (at + 1) & m->slot_mask) {
        const exl2__grammar_shapes_one *same = &m->all[m->slots[at] - 1];
        if (same->bytes == bytes && exl2__grammar_shapes_shared(m, same, &one) == bytes) {
            m->tokens[same->number]++;
            m->of[id] = same->number;
            return;
        }
    }
    m->of[id] = m->count;
    m->tokens[m->count] = 1;
    m->all[m->count++] = one;
    m->slots[at] = m->count;
}

EXL2__PRIVATE exl2_result exl2__grammar_shapes_make_sort(exl2__grammar_shapes_maker *m, exl2__work *work)
{
    exl2__sort_items order = { m, exl2__grammar_shapes_less, exl2__grammar_shapes_swap };
    EXL2__TRY_DONE(exl2__sort_slice(&order, m->count, &m->at, work));
    m->at = 0;
    return EXL2_OK;
}

/* Bytes of a sorted shape that the shape before it does not begin with: each has a node of its own. */
static inline uint32_t exl2__grammar_shapes_new_bytes(const exl2__grammar_shapes_maker *m, uint32_t i)
{
    return m->all[i].bytes - (i ? exl2__grammar_shapes_shared(m, &m->all[i - 1], &m->all[i]) : 0);
}

EXL2__PRIVATE exl2_result exl2__grammar_shapes_make_count(exl2__grammar_shapes_maker *m, exl2__work *work)
{
    for (; m->at < m->count; m->at++) {
        if (!exl2__work_spend(work, 30)) {
            return EXL2_PENDING;
        }
        m->nodes += exl2__grammar_shapes_new_bytes(m, m->at);
    }
    m->at = 0;
    return EXL2_OK;
}

/* Allocates the table for `tokens` tokens. With a dry arena this only counts bytes. */
EXL2__PRIVATE void exl2__grammar_shapes_make_layout(const exl2__grammar_shapes_maker *m, uint32_t tokens,
                                                    exl2__arena *a, exl2__grammar_shapes *s)
{
    s->nodes = (exl2__grammar_shape *)exl2__arena_alloc(a, ((uint64_t)m->nodes + 1) * sizeof *s->nodes);
    s->ids = (uint32_t *)exl2__arena_alloc(a, (uint64_t)tokens * 4);
}

/* Writes the nodes in slices. */
EXL2__PRIVATE exl2_result exl2__grammar_shapes_make_nodes(exl2__grammar_shapes_maker *m, exl2__grammar_shapes *s,
                                                          exl2__work *work)
{
    uint32_t *first = &s->nodes[m->nodes].first; /* the end of the ids so far */
    for (; m->at < m->count; m->at++) {
        const exl2__grammar_shapes_one *one = &m->all[m->at];
        if (!exl2__work_spend(work, 80)) {
            return EXL2_PENDING;
        }
        for (uint32_t depth = one->bytes - exl2__grammar_shapes_new_bytes(m, m->at); depth < one->bytes; depth++) {
            uint8_t byte = (uint8_t)one->text[depth];
            uint32_t chars = (depth ? s->nodes[m->path[depth - 1]].chars : 0u) + ((byte & 0xC0) != 0x80);
            s->nodes[s->count] = (exl2__grammar_shape){ 0, *first, m->low[byte], m->high[byte], (uint8_t)(depth + 1),
                                                        (uint8_t)chars, 0 };
            m->path[depth] = s->count++;
        }
        s->text_count = one->other ? s->text_count : s->count;
        for (uint32_t depth = 0; depth < one->bytes; depth++) {
            exl2__grammar_shape *node = &s->nodes[m->path[depth]];
            node->skip = s->count;
            node->height = (uint8_t)exl2__max32(node->height, one->bytes - depth - 1);
        }
        uint32_t tokens = m->tokens[one->number];
        m->tokens[one->number] = *first;
        *first += tokens;
    }
    return EXL2_OK;
}

/* Enters a token, of which _find has been told. */
static inline void exl2__grammar_shapes_add(exl2__grammar_shapes_maker *m, exl2__grammar_shapes *s, uint32_t id)
{
    s->ids[m->tokens[m->of[id]]++] = id;
}

EXL2__PRIVATE void exl2__grammar_shapes_make_end(exl2__grammar_shapes_maker *m)
{
    exl2__arena_close(m->c, &m->memory);
    memset(m, 0, sizeof *m);
}

#endif

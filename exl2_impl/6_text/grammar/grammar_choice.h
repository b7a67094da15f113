/* grammar_choice.h: compiles a list of texts to an automaton that shares equal beginnings and equal ends. The cost is
   that of sorting n texts, n log n, and a step for each byte.
   takes: texts in any order, which must outlive the list.
   gives: exl2__grammar_choice, exl2__grammar_choice_open, _close, _add, _sort, _intersect, _piece.
   owns:  the list, from open to close. */
#ifndef EXL2__GRAMMAR_CHOICE_H
#define EXL2__GRAMMAR_CHOICE_H

#include "../../0_base/sort.h"
#include "grammar_code.h"

#define EXL2__GRAMMAR_CHOICE_PROBES 16u /* slots of the node table that are tried before a node is not shared */

typedef struct exl2__grammar_choice_text {
    const char *text;
    size_t bytes;
} exl2__grammar_choice_text;

typedef struct exl2__grammar_choice {
    exl2__grammar_code *g;
    exl2__grammar_choice_text *texts;
    uint32_t count, room;
} exl2__grammar_choice;

EXL2__PRIVATE void exl2__grammar_choice_close(exl2__grammar_choice *list)
{
    exl2__free(list->g->c, list->texts, (uint64_t)list->room * sizeof *list->texts, EXL2_MEM_GENERAL);
    list->texts = NULL;
    list->count = list->room = 0;
}

/* Opens a list with room for `room` texts; after an error it has no room. */
EXL2__PRIVATE void exl2__grammar_choice_open(exl2__grammar_code *g, uint32_t room, exl2__grammar_choice *list)
{
    void *texts = NULL;
    *list = (exl2__grammar_choice){ g, NULL, 0, 0 };
    if (g->result == EXL2_OK && room) {
        g->result = exl2__alloc(g->c, (uint64_t)room * sizeof *list->texts, 8, EXL2_MEM_GENERAL, &texts);
        list->texts = (exl2__grammar_choice_text *)texts;
        list->room = g->result == EXL2_OK ? room : 0;
    }
}

static inline void exl2__grammar_choice_add(exl2__grammar_choice *list, const char *text, size_t bytes)
{
    if (list->count < list->room) {
        exl2__grammar_choice_text one = { text, bytes };
        list->texts[list->count++] = one;
    }
}

EXL2__PRIVATE int exl2__grammar_choice_order(const exl2__grammar_choice_text *a, const exl2__grammar_choice_text *b)
{
    int order = memcmp(a->text, b->text, a->bytes < b->bytes ? a->bytes : b->bytes);
    return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

EXL2__PRIVATE bool exl2__grammar_choice_less(const void *items, uint32_t a, uint32_t b)
{
    const exl2__grammar_choice_text *texts = (const exl2__grammar_choice_text *)items;
    return exl2__grammar_choice_order(&texts[a], &texts[b]) < 0;
}

EXL2__PRIVATE void exl2__grammar_choice_swap(void *items, uint32_t a, uint32_t b)
{
    exl2__grammar_choice_text *texts = (exl2__grammar_choice_text *)items, text = texts[a];
    texts[a] = texts[b];
    texts[b] = text;
}

/* Sorts the texts and removes duplicates. Returns the number of texts that were removed. */
EXL2__PRIVATE uint32_t exl2__grammar_choice_sort(exl2__grammar_choice *list)
{
    exl2__sort_items order = { list->texts, exl2__grammar_choice_less, exl2__grammar_choice_swap };
    uint32_t used = 0, count = list->count;
    exl2__sort(&order, count);
    for (uint32_t i = 0; i < count; i++) {
        bool twice = used && exl2__grammar_choice_order(&list->texts[used - 1], &list->texts[i]) == 0;
        list->texts[used] = list->texts[i];
        used += !twice;
    }
    list->count = used;
    return count - used;
}

/* Keeps only the texts that the other list holds too. Both lists are sorted. */
EXL2__PRIVATE void exl2__grammar_choice_intersect(exl2__grammar_choice *list, const exl2__grammar_choice *other)
{
    uint32_t used = 0, at = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        while (at < other->count && exl2__grammar_choice_order(&other->texts[at], &list->texts[i]) < 0) {
            at++;
        }
        if (at < other->count && exl2__grammar_choice_order(&other->texts[at], &list->texts[i]) == 0) {
            list->texts[used++] = list->texts[i];
        }
    }
    list->count = used;
}

/* ---- the automaton ---- */

/* A state that the current text passes. Its transitions come in ascending order of their bytes. Adjacent bytes that
   lead to the same node are one range. */
typedef struct exl2__grammar_choice_place {
    uint32_t list;     /* node of the finished transitions; 0 = none */
    uint32_t target;   /* node to which bytes low..high, the newest transition, lead; 0 = no transition yet */
    uint8_t low, high;
    uint8_t byte;      /* byte with which the current text continues */
} exl2__grammar_choice_place;

/* `slots` is a hash table of the nodes made so far, by their contents, so that equal nodes are shared. */
typedef struct exl2__grammar_choice_maker {
    exl2__grammar_code *g;
    exl2__grammar_choice_place *places; /* [longest text + 1] */
    uint32_t *slots;                    /* [mask + 1] 0 = empty */
    uint32_t mask;
} exl2__grammar_choice_maker;

EXL2__PRIVATE uint32_t exl2__grammar_choice_node(exl2__grammar_choice_maker *m, exl2__grammar_code_node wanted)
{
    uint32_t hash = wanted.kind * 0x9E3779B1u ^ (wanted.low | (uint32_t)wanted.high << 8) * 0x85EBCA6Bu;
    hash = (hash ^ hash >> 15 ^ wanted.next) * 0x9E3779B1u;
    hash = (hash ^ hash >> 15 ^ wanted.other) * 0x9E3779B1u;
    hash ^= hash >> 15;
    uint32_t probes = 0;
    for (; m->slots[hash & m->mask] && probes < EXL2__GRAMMAR_CHOICE_PROBES; hash++, probes++) {
        const exl2__grammar_code_node *n = &m->g->nodes[m->slots[hash & m->mask]];
        if (n->kind == wanted.kind && n->low == wanted.low && n->high == wanted.high && n->next == wanted.next
            && n->other == wanted.other) {
            return m->slots[hash & m->mask];
        }
    }
    uint32_t node = exl2__grammar_code_add(m->g, (exl2__grammar_code_kind)wanted.kind, wanted.next, wanted.other);
    if (node) {
        m->g->nodes[node].low = wanted.low;
        m->g->nodes[node].high = wanted.high;
    }
    if (probes < EXL2__GRAMMAR_CHOICE_PROBES) {
        m->slots[hash & m->mask] = node;
    }
    return node;
}

/* Finishes the newest transition. Returns the node of all finished transitions. */
EXL2__PRIVATE uint32_t exl2__grammar_choice_flush(exl2__grammar_choice_maker *m, exl2__grammar_choice_place *place)
{
    if (place->target) {
        exl2__grammar_code_node byte = { EXL2__GRAMMAR_CODE_BYTES, place->low, place->high, place->target, 0, 0, 0 };
        exl2__grammar_code_node split = { EXL2__GRAMMAR_CODE_SPLIT, 0, 0, 0, place->list, 0, 0 };
        split.next = exl2__grammar_choice_node(m, byte);
        place->list = place->list ? exl2__grammar_choice_node(m, split) : split.next;
        place->target = 0;
    }
    return place->list;
}

/* Adds the transition from the place's byte to `target`. */
EXL2__PRIVATE void exl2__grammar_choice_transition(exl2__grammar_choice_maker *m, exl2__grammar_choice_place *place,
                                                   uint32_t target)
{
    if (place->target != target || place->high + 1 != place->byte) {
        exl2__grammar_choice_flush(m, place);
        place->target = target;
        place->low = place->byte;
    }
    place->high = place->byte;
}

EXL2__PRIVATE uint32_t exl2__grammar_choice_make(exl2__grammar_choice_maker *m, const exl2__grammar_choice *list,
                                                 uint32_t end)
{
    static const exl2__grammar_choice_place empty = { 0, 0, 0, 0, 0 };
    size_t depth = 0;
    m->places[0] = empty;
    for (uint32_t i = 0; i <= list->count && m->g->result == EXL2_OK; i++) {
        const exl2__grammar_choice_text *now = i < list->count ? &list->texts[i] : NULL;
        size_t shared = 0;
        while (i && now && shared < depth && shared < now->bytes
               && list->texts[i - 1].text[shared] == now->text[shared]) {
            shared++;
        }
        for (; depth > shared; depth--) { /* these places are finished: later texts do not pass them */
            exl2__grammar_choice_transition(m, &m->places[depth - 1], exl2__grammar_choice_flush(m, &m->places[depth]));
        }
        for (; now && depth < now->bytes; depth++) {
            m->places[depth].byte = (uint8_t)now->text[depth];
            m->places[depth + 1] = empty;
        }
        if (now) {
            m->places[depth].list = end; /* a text is sorted before the texts that begin with it */
        }
    }
    return exl2__grammar_choice_flush(m, &m->places[0]);
}

/* A piece that matches one of the texts of a sorted list, or nothing if the list is empty. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_choice_piece(const exl2__grammar_choice *list)
{
    exl2__grammar_code *g = list->g;
    exl2__grammar_choice_maker m = { g, NULL, NULL, 0 };
    uint64_t longest = 0, bytes = 0, slots = 16;
    void *memory;
    for (uint32_t i = 0; i < list->count; i++) {
        longest = exl2__max64(longest, list->texts[i].bytes);
        bytes += list->texts[i].bytes;
    }
    if (g->result < 0 || list->count == 0) {
        return exl2__grammar_code_bytes(g, 1, 0);
    }
    while (slots < 4 * bytes && slots < 2 * EXL2__GRAMMAR_CODE_NODES_MAX) { /* a byte needs two nodes at most */
        slots *= 2;
    }
    uint64_t room = slots * 4 + (longest + 1) * sizeof *m.places;
    g->result = exl2__alloc(g->c, room, 8, EXL2_MEM_GENERAL, &memory);
    if (g->result < 0) {
        return exl2__grammar_code_bytes(g, 1, 0);
    }
    memset(memory, 0, slots * 4);
    m.slots = (uint32_t *)memory;
    m.mask = (uint32_t)slots - 1;
    m.places = (exl2__grammar_choice_place *)(void *)(m.slots + slots);
    exl2__grammar_code_piece piece = exl2__grammar_code_empty(g);
    piece.first = exl2__grammar_choice_make(&m, list, piece.last);
    exl2__free(g->c, memory, room, EXL2_MEM_GENERAL);
    return piece;
}

#endif

/* grammar_unroll.h: writes a language of short texts as nodes of an automaton. If lengths are limited, the language is
   unrolled: it gets a copy of its places for each number of characters.
   takes: exl2__grammar_product after exl2__grammar_product_run.
   gives: exl2__grammar_product_emit, exl2__grammar_product_piece. */
#ifndef EXL2__GRAMMAR_UNROLL_H
#define EXL2__GRAMMAR_UNROLL_H

#include "grammar_product.h"

/* ---- characters ---- */

/* All characters that lead from a place to `target`, as one rule. */
typedef struct exl2__grammar_product_char {
    uint32_t target, rule;
} exl2__grammar_product_char;

/* Places are unrolled by the number of characters before them. Only places between characters are unrolled. */
typedef struct exl2__grammar_product_roll {
    exl2__grammar_product *w;
    const uint32_t *ends;
    bool escape;
    exl2__grammar_product_char *chars;
    uint32_t char_count, char_room;
    uint32_t *begin;         /* [places + 1] index in `chars` of each place's first entry */
    uint32_t *least;         /* [places] fewest characters to an end */
    uint32_t *nodes, *after; /* [places] JUMPs at this length and at the next; 0 = not reached */
    uint32_t *list, *later;  /* places reached at this length and at the next */
    uint32_t count, later_count;
} exl2__grammar_product_roll;

/* Is the place inside a UTF-8 sequence? */
EXL2__PRIVATE bool exl2__grammar_product_within(const exl2__grammar_product *w, uint32_t place)
{
    const exl2__grammar_product_place *p = &w->places[place];
    for (uint32_t k = 0; k < p->edge_count; k++) {
        const exl2__grammar_product_edge *edge = &w->edges[p->edges + k];
        if (w->places[edge->target].node) {
            return edge->low >= 0x80 && edge->high < 0xC0;
        }
    }
    return false;
}

/* `place` is `from`, or lies inside a character that began at `from`. Adds the places at which the character can end
   to the list of `from`. */
EXL2__PRIVATE void exl2__grammar_product_list_chars(exl2__grammar_product_roll *r, uint32_t place, uint32_t from)
{
    const exl2__grammar_product_place *p = &r->w->places[place];
    for (uint32_t k = 0; k < p->edge_count && r->w->g->result == EXL2_OK; k++) {
        uint32_t target = r->w->places[r->w->edges[p->edges + k].target].same, known = r->begin[from];
        if (!r->w->places[target].node) {
            continue;
        }
        if (exl2__grammar_product_within(r->w, target)) { /* at most three deep, because the text is UTF-8 */
            exl2__grammar_product_list_chars(r, target, from);
            continue;
        }
        while (known < r->char_count && r->chars[known].target != target) {
            known++;
        }
        if (known < r->char_count) {
            continue;
        }
        if (r->char_count == r->char_room) {
            void *chars = r->chars;
            if (!exl2__grammar_code_grow(r->w->g, &chars, &r->char_room, EXL2__GRAMMAR_CODE_NODES_MAX,
                                         sizeof *r->chars, "transitions of expressions that must hold together")) {
                return;
            }
            r->chars = (exl2__grammar_product_char *)chars;
        }
        exl2__grammar_product_char one = { target, UINT32_MAX };
        r->chars[r->char_count++] = one;
    }
}

/* Node for the rest of a character that leads from `place` to `target`, where the rule ends; 0: no character does. */
EXL2__PRIVATE uint32_t exl2__grammar_product_rest(exl2__grammar_product_roll *r, uint32_t place, uint32_t target)
{
    exl2__grammar_product *w = r->w;
    exl2__grammar_code *g = w->g;
    uint32_t node = 0;
    for (uint32_t k = 0; k < w->places[place].edge_count && g->result == EXL2_OK; k++) {
        const exl2__grammar_product_edge *edge = &w->edges[w->places[place].edges + k];
        uint32_t to = w->places[edge->target].same, next = 0, low = edge->low, high = edge->high;
        if (!w->places[to].node) {
            continue;
        }
        if (exl2__grammar_product_within(w, to)) {
            next = exl2__grammar_product_rest(r, to, target);
        } else if (to == target) {
            next = exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_JUMP, 0, 0);
        }
        node = next ? exl2__grammar_product_emit_run(g, low, high, next, node, r->escape) : node;
    }
    return node;
}

/* A call of the rule for chars[index]. The rule is made at the first call. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_product_call(exl2__grammar_product_roll *r, uint32_t from,
                                                                  uint32_t index)
{
    exl2__grammar_code *g = r->w->g;
    if (r->chars[index].rule == UINT32_MAX && g->result == EXL2_OK) {
        uint32_t node = exl2__grammar_product_rest(r, from, r->chars[index].target);
        exl2__grammar_code_piece body = { node ? node : exl2__grammar_code_bytes(g, 1, 0).first, 0 };
        r->chars[index].rule = exl2__grammar_code_rule(g);
        exl2__grammar_code_define(g, r->chars[index].rule, body);
    }
    return exl2__grammar_code_call(g, r->chars[index].rule);
}

/* The JUMP of a place at the next length. */
EXL2__PRIVATE uint32_t exl2__grammar_product_later(exl2__grammar_product_roll *r, uint32_t place)
{
    if (!r->after[place]) {
        r->after[place] = exl2__grammar_code_add(r->w->g, EXL2__GRAMMAR_CODE_JUMP, 0, 0);
        r->later[r->later_count++] = place;
    }
    return r->after[place];
}

/* Writes one place after `length` characters. */
EXL2__PRIVATE void exl2__grammar_product_roll_place(exl2__grammar_product_roll *r, uint32_t place, uint32_t length)
{
    exl2__grammar_product *w = r->w;
    exl2__grammar_code *g = w->g;
    uint32_t first = r->begin[place], last = r->begin[place + 1], outcome = w->places[place].outcome, node = 0;
    uint32_t end = outcome == EXL2__GRAMMAR_PRODUCT_NONE ? 0 : r->ends[outcome];
    if (last == first + 1 && r->chars[first].target == place && end) { /* from here only the length matters */
        uint32_t most = w->max == EXL2__GRAMMAR_CODE_ENDLESS ? w->max : w->max - length;
        exl2__grammar_code_piece all = exl2__grammar_product_call(r, place, first);
        all = exl2__grammar_code_repeat(g, all, w->min > length ? w->min - length : 0, most);
        exl2__grammar_code_join(g, all.last, end);
        exl2__grammar_code_join(g, r->nodes[place], all.first);
        return;
    }
    if (w->max == EXL2__GRAMMAR_CODE_ENDLESS && length >= w->min) {
        exl2__grammar_code_join(g, r->nodes[place], w->places[place].node);
        return;
    }
    node = length >= w->min ? end : 0;
    for (uint32_t i = first; i < last && g->result == EXL2_OK; i++) {
        uint32_t target = r->chars[i].target;
        if (r->least[target] >= EXL2__GRAMMAR_LINK_NEVER
            || (w->max != EXL2__GRAMMAR_CODE_ENDLESS && length + 1 + r->least[target] > w->max)) {
            continue;
        }
        exl2__grammar_code_piece one = exl2__grammar_product_call(r, place, i);
        exl2__grammar_code_join(g, one.last, exl2__grammar_product_later(r, target));
        node = node ? exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_SPLIT, one.first, node) : one.first;
    }
    exl2__grammar_code_join(g, r->nodes[place], node ? node : exl2__grammar_code_bytes(g, 1, 0).first);
}

/* Computes, for every place, the characters that leave it and the fewest characters to an end. */
EXL2__PRIVATE void exl2__grammar_product_measure(exl2__grammar_product_roll *r)
{
    exl2__grammar_product *w = r->w;
    bool moved = true;
    for (uint32_t i = 0; i < w->place_count && w->g->result == EXL2_OK; i++) {
        bool counts = w->places[i].node && w->places[i].same == i && !exl2__grammar_product_within(w, i);
        r->begin[i] = r->char_count;
        r->least[i] = w->places[i].outcome == EXL2__GRAMMAR_PRODUCT_NONE ? EXL2__GRAMMAR_LINK_NEVER : 0;
        if (counts) {
            exl2__grammar_product_list_chars(r, i, i);
        }
    }
    r->begin[w->place_count] = r->char_count;
    while (moved && w->g->result == EXL2_OK) { /* backwards, because later places are nearly always nearer to an end */
        moved = false;
        for (uint32_t i = w->place_count; i-- > 0;) {
            for (uint32_t k = r->begin[i]; k < r->begin[i + 1]; k++) {
                uint32_t sum = r->least[r->chars[k].target] + 1;
                if (sum < r->least[i]) {
                    r->least[i] = sum;
                    moved = true;
                }
            }
        }
    }
}

/* Lowers the greatest length so that about LENGTH_NODES nodes are enough, but never so far that no text is left. Loops
   at the end of a text are free: they do not need a node for each length. */
EXL2__PRIVATE void exl2__grammar_product_cap(exl2__grammar_product_roll *r)
{
    exl2__grammar_product *w = r->w;
    uint32_t each = 0;
    for (uint32_t i = 0; i < w->place_count; i++) {
        uint32_t count = r->begin[i + 1] - r->begin[i];
        bool loop = count == 1 && r->chars[r->begin[i]].target == i
            && w->places[i].outcome != EXL2__GRAMMAR_PRODUCT_NONE;
        each += loop ? 0 : 2 * count;
    }
    uint32_t most = EXL2__GRAMMAR_PRODUCT_LENGTH_NODES / (each + 1);
    most = exl2__max32(exl2__max32(most, EXL2__GRAMMAR_PRODUCT_LENGTH_MIN), w->min + r->least[0]);
    w->max = each ? exl2__min32(w->max, most) : w->max;
}

/* Writes the places in `later`, which are reached after `length` characters, and all places after them. */
EXL2__PRIVATE void exl2__grammar_product_unroll(exl2__grammar_product_roll *r, uint32_t length)
{
    exl2__grammar_product *w = r->w;
    for (; r->later_count && w->g->result == EXL2_OK; length++) {
        uint32_t *swap = r->nodes;
        r->nodes = r->after;
        r->after = swap;
        swap = r->list;
        r->list = r->later;
        r->later = swap;
        r->count = r->later_count;
        r->later_count = 0;
        for (uint32_t i = 0; i < r->count && w->g->result == EXL2_OK; i++) {
            exl2__grammar_product_roll_place(r, r->list[i], length);
            r->nodes[r->list[i]] = 0;
        }
    }
}

/* The node after a text's first byte, if this byte leads to `place`; 0: no text is short enough. */
EXL2__PRIVATE uint32_t exl2__grammar_product_enter(exl2__grammar_product_roll *r, uint32_t place)
{
    exl2__grammar_product *w = r->w;
    exl2__grammar_code *g = w->g;
    uint32_t node = 0;
    if (!exl2__grammar_product_within(w, place)) {
        bool too_long = r->least[place] >= EXL2__GRAMMAR_LINK_NEVER
            || (w->max != EXL2__GRAMMAR_CODE_ENDLESS && 1 + r->least[place] > w->max);
        return too_long ? 0 : exl2__grammar_product_later(r, place);
    }
    for (uint32_t i = r->begin[0]; i < r->begin[1]; i++) {
        uint32_t target = r->chars[i].target, rest = exl2__grammar_product_rest(r, place, target);
        if (!rest || (w->max != EXL2__GRAMMAR_CODE_ENDLESS && 1 + r->least[target] > w->max)) {
            continue;
        }
        uint32_t rule = exl2__grammar_code_rule(g);
        exl2__grammar_code_piece body = { rest, 0 };
        exl2__grammar_code_define(g, rule, body);
        exl2__grammar_code_piece one = exl2__grammar_code_call(g, rule);
        exl2__grammar_code_join(g, one.last, exl2__grammar_product_later(r, target));
        node = node ? exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_SPLIT, one.first, node) : one.first;
    }
    return node;
}

/* Writes the product as nodes. `ends`: for each outcome, the node to which its texts lead; 0: texts do not end with
   this outcome. Returns the node at which texts begin. If `first` is not NULL, writes to first[i] the node after the
   i-th edge of place 0 instead. */
EXL2__PRIVATE uint32_t exl2__grammar_product_emit(exl2__grammar_product *w, const uint32_t *ends, bool escape,
                                                  uint32_t *first)
{
    exl2__grammar_code *g = w->g;
    exl2__grammar_product_roll r = { .w = w, .ends = ends, .escape = escape };
    uint64_t n = w->place_count;
    exl2__arena a = { 0 };
    uint32_t begin = 0, count = w->places[0].edge_count;
    bool counts = w->min > 0 || w->max != EXL2__GRAMMAR_CODE_ENDLESS;
    if (counts && g->result == EXL2_OK) {
        g->result = exl2__arena_open(g->c, &a, (n * 6 + 1) * 4 + 64 * 6, EXL2_MEM_GENERAL);
    }
    if (g->result < 0) {
        return 0;
    }
    if (counts) {
        r.begin = (uint32_t *)exl2__arena_alloc(&a, (n + 1) * 4);
        r.least = (uint32_t *)exl2__arena_alloc(&a, n * 4);
        r.list = (uint32_t *)exl2__arena_alloc(&a, n * 4);
        r.later = (uint32_t *)exl2__arena_alloc(&a, n * 4);
        r.nodes = (uint32_t *)exl2__arena_alloc_zeroed(&a, n * 4);
        r.after = (uint32_t *)exl2__arena_alloc_zeroed(&a, n * 4);
        exl2__grammar_product_measure(&r);
    }
    if (counts && w->max != EXL2__GRAMMAR_CODE_ENDLESS && g->result == EXL2_OK) {
        exl2__grammar_product_cap(&r);
    }
    if (w->max == EXL2__GRAMMAR_CODE_ENDLESS) {
        exl2__grammar_product_emit_all(w, ends, escape);
    }
    for (uint32_t i = 0; first && i < count && g->result == EXL2_OK; i++) {
        uint32_t place = w->places[w->edges[w->places[0].edges + i].target].same;
        first[i] = !w->places[place].node ? 0 : counts ? exl2__grammar_product_enter(&r, place) : w->places[place].node;
    }
    if (!first) {
        begin = counts ? exl2__grammar_product_later(&r, 0) : w->places[0].node;
    }
    if (counts) {
        exl2__grammar_product_unroll(&r, first != NULL);
        exl2__free(g->c, r.chars, (uint64_t)r.char_room * sizeof *r.chars, EXL2_MEM_GENERAL);
        exl2__arena_close(g->c, &a);
    }
    return begin;
}

/* Writes a language without REPORTs as a piece, which matches nothing if the language is empty. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_product_piece(exl2__grammar_product *w, bool escape)
{
    uint32_t ends[EXL2__GRAMMAR_PRODUCT_OUTCOMES_MAX];
    if (!exl2__grammar_product_run(w)) {
        return exl2__grammar_code_bytes(w->g, 1, 0);
    }
    exl2__grammar_code_piece piece = exl2__grammar_code_empty(w->g);
    for (uint32_t i = 0; i < EXL2__GRAMMAR_PRODUCT_OUTCOMES_MAX; i++) {
        ends[i] = piece.last;
    }
    piece.first = exl2__grammar_product_emit(w, ends, escape, NULL);
    return piece;
}

#endif

/* grammar_check.h: checks the bits of tokens that all factors of a grammar allow.

   Such a token may lead to a dead end, or to a text that needs too many tokens to end. The grammar of their common
   texts says which do; all its states are there. TEXT tokens are checked in one of two ways: by lengths
   (grammar_lengths.h), or by shapes (grammar_shapes.h), if too many would be followed one by one.

   By shapes means down to where all that is below stays, or nothing does. Where the bytes of a shape lead to different
   states, the tokens of the shape are followed one by one.
   takes: a walk with the bits that all factors allow.
   gives: exl2__grammar_mask_begin_check, exl2__grammar_mask_check. */
#ifndef EXL2__GRAMMAR_CHECK_H
#define EXL2__GRAMMAR_CHECK_H

#include "grammar_lengths.h"

#define EXL2__GRAMMAR_MASK_CLEARED 8u  /* bits that are cleared in the time of a node */

/* The state after any byte of a shape's range, if all of them lead to one state, dead or not; else FULL. */
static inline uint32_t exl2__grammar_mask_next(const exl2__grammar_mask *m, uint32_t state,
                                               const exl2__grammar_shape *shape)
{
    const exl2__grammar_state *s = &m->states;
    const uint32_t *row = s->pool + s->states[state].row;
    uint32_t k = s->link->class_of[shape->low], last = s->link->class_of[shape->high], next = row[k];
    for (; k < last; k++) {
        if (row[k + 1] != next) {
            return EXL2__GRAMMAR_STATE_FULL;
        }
    }
    return next;
}

/* Up to how many bytes after a state all tokens stay that the factors allow. text: of TEXT tokens. */
static inline uint32_t exl2__grammar_mask_sure(const exl2__grammar_mask *m, const exl2__grammar_mask_walk *w,
                                               uint32_t state, bool text)
{
    const exl2__grammar_mask_bound *bound = &m->bounds[state];
    return bound->needs > w->left ? 0 : text ? bound->text : bound->reach;
}

/* Characters of the longest TEXT token whose bit is set; UINT32_MAX: more than SHORT. */
EXL2__PRIVATE uint32_t exl2__grammar_mask_longest(const exl2__grammar_mask *m, const uint32_t *bits)
{
    const exl2__grammar_vocab *v = m->vocab;
    const uint32_t *all = v->masks[EXL2__GRAMMAR_VOCAB_LENGTHS - 1];
    uint32_t lengths = 0;
    for (uint32_t i = 0; i < v->words; i++) {
        for (; bits[i] & all[i] & ~(lengths ? v->masks[lengths - 1][i] : 0); lengths++) {
        }
    }
    return lengths > EXL2__GRAMMAR_VOCAB_SHORT ? UINT32_MAX : lengths;
}

/* Begins to check the bits of what factors allow. */
EXL2__PRIVATE void exl2__grammar_mask_begin_check(exl2__grammar_mask *m, exl2__grammar_mask_walk *w, uint32_t state,
                                                  uint32_t left, uint32_t *bits)
{
    const exl2__grammar_vocab *v = m->vocab;
    const uint32_t *all = v->masks[EXL2__GRAMMAR_VOCAB_LENGTHS - 1];
    *w = (exl2__grammar_mask_walk){ .path = { state }, .left = left, .needs = m->bounds[state].needs, .bits = bits,
                                    .checks = true, .range_count = 1, .shapes_end = v->shapes.count };
    w->due = m->bits + (size_t)(m->slot_count + (w == &m->part ? 3 : 4)) * v->words;
    if (exl2__grammar_mask_sure(m, w, state, false) >= v->longest) {
        w->range = 1; /* no token leads to a dead end */
        return;
    }
    uint32_t sure = exl2__grammar_mask_sure(m, w, state, true), others = 0, any = 0;
    const uint32_t *less = v->masks[exl2__min32(exl2__max32(sure, 1), EXL2__GRAMMAR_VOCAB_SHORT) - 1];
    uint32_t keep = sure ? 0 : UINT32_MAX; /* without `less` */
    for (uint32_t i = 0; i < v->words; i += EXL2__GRAMMAR_VOCAB_BLOCK) {
        uint32_t due[EXL2__GRAMMAR_VOCAB_BLOCK], other[EXL2__GRAMMAR_VOCAB_BLOCK];
        for (uint32_t n = 0; n < EXL2__GRAMMAR_VOCAB_BLOCK; n++) {
            due[n] = bits[i + n] & all[i + n] & (~less[i + n] | keep);
            other[n] = bits[i + n] & ~all[i + n];
            any |= due[n];
        }
        memcpy(w->due + i, due, sizeof due);
        others += exl2__grammar_mask_count(other);
    }
    bool each = others <= EXL2__GRAMMAR_MASK_EACH, lists = !any || exl2__grammar_mask_by_lengths(m, w, sure);
    w->longest = lists ? 0 : exl2__grammar_mask_longest(m, bits);
    w->node = lists ? v->shapes.text_count : 0;
    w->shapes_end = each ? v->shapes.text_count : v->shapes.count;
    w->word = (lists && any) || each ? 0 : v->words;
    for (uint32_t i = 0; i < v->words && each; i++) {
        w->due[i] = (lists ? w->due[i] : 0) | (bits[i] & ~all[i]);
    }
}

/* Follows a token of which `from` bytes have led to the state, and clears its bit if it may not come. Returns how many
   bytes it has followed. */
static inline uint32_t exl2__grammar_mask_check_one(exl2__grammar_mask *m, const exl2__grammar_mask_walk *w,
                                                    uint32_t state, uint32_t from, uint32_t id)
{
    const exl2__grammar_state_one *states = m->states.states;
    const uint8_t *class_of = m->states.link->class_of;
    size_t bytes, i = from;
    bool special;
    const char *text = exl2__vocab_piece(m->vocab->vocab, (exl2_token)id, &bytes, &special);
    for (; i < bytes && state != EXL2__GRAMMAR_STATE_DEAD; i++) {
        state = m->states.pool[states[state].row + class_of[(uint8_t)text[i]]];
    }
    bool stays = state != EXL2__GRAMMAR_STATE_DEAD && states[state].tokens <= w->left;
    w->bits[id / 32] &= stays ? UINT32_MAX : ~(1u << id % 32);
    return (uint32_t)i - from;
}

/* Checks a shape whose bytes lead to different states, and those below it: each token of the shape by itself. Returns
   how much that costs. */
EXL2__PRIVATE uint32_t exl2__grammar_mask_check_shape(exl2__grammar_mask *m, exl2__grammar_mask_walk *w, bool text,
                                                      const exl2__grammar_shape *n)
{
    const uint32_t *ids = m->vocab->shapes.ids;
    uint32_t followed = 0, from = n->depth - 1u;
    while (w->path[from] == EXL2__GRAMMAR_STATE_FULL) {
        from--;
    }
    uint32_t sure = exl2__grammar_mask_sure(m, w, w->path[from], text);
    w->node = (uint32_t)n->depth + n->height - from <= sure ? n->skip : w->node + 1;
    for (uint32_t k = n->first; k < n[1].first && n->depth - from > sure; k++) {
        if (w->bits[ids[k] / 32] >> ids[k] % 32 & 1) {
            followed += exl2__grammar_mask_check_one(m, w, w->path[from], from, ids[k]);
        }
    }
    return followed;
}

/* Checks the tokens of the next shape; if they lead to a dead end, of those below, too. Returns how much that costs. */
static inline uint32_t exl2__grammar_mask_check_node(exl2__grammar_mask *m, exl2__grammar_mask_walk *w)
{
    const exl2__grammar_shapes *shapes = &m->vocab->shapes;
    const exl2__grammar_shape *n = &shapes->nodes[w->node];
    bool text = w->node < shapes->text_count;
    if (text && n->chars > w->longest) {
        w->node = n->skip;
        return 1;
    }
    uint32_t before = w->path[n->depth - 1], full = EXL2__GRAMMAR_STATE_FULL;
    uint32_t next = before == full ? full : exl2__grammar_mask_next(m, before, n), cleared = 0;
    w->path[n->depth] = next;
    if (next == full) {
        return 1 + exl2__grammar_mask_check_shape(m, w, text, n);
    }
    if (next == EXL2__GRAMMAR_STATE_DEAD) {
        w->node = n->skip;
        cleared = shapes->nodes[n->skip].first - n->first;
    } else {
        w->node = exl2__grammar_mask_sure(m, w, next, text) >= n->height ? n->skip : w->node + 1;
        cleared = m->states.states[next].tokens > w->left ? n[1].first - n->first : 0;
    }
    for (uint32_t k = n->first; k < n->first + cleared; k++) {
        w->bits[shapes->ids[k] / 32] &= ~(1u << shapes->ids[k] % 32);
    }
    return 1 + cleared / EXL2__GRAMMAR_MASK_CLEARED;
}

/* Follows the listed tokens of the next word that has some. Returns how much that costs. */
static inline uint32_t exl2__grammar_mask_check_word(exl2__grammar_mask *m, exl2__grammar_mask_walk *w)
{
    uint32_t followed = 0, word = w->word, words = m->vocab->words;
    while (word < words && !w->due[word]) {
        word++;
    }
    for (uint32_t rest = word < words ? w->due[word] : 0; rest; rest &= rest - 1) {
        followed += exl2__grammar_mask_check_one(m, w, w->path[0], 0, word * 32 + exl2__lowest_bit(rest));
    }
    w->word = word < words ? word + 1 : words;
    return followed;
}

/* Clears the bits of tokens that lead to a dead end, or after which more than w->left tokens are needed to end the
   text. most: about the number of nodes to visit. */
EXL2__PRIVATE void exl2__grammar_mask_check(exl2__grammar_mask *m, exl2__grammar_mask_walk *w, uint32_t most)
{
    uint32_t visited = 0;
    while (w->range == 0 && visited < most) {
        visited += w->word < m->vocab->words ? exl2__grammar_mask_check_word(m, w)
            : w->node < w->shapes_end ? exl2__grammar_mask_check_node(m, w) : 0;
        w->range = w->word == m->vocab->words && w->node >= w->shapes_end;
    }
    m->nodes += visited;
}

#endif

/* grammar_far.h: one state for all that differ only in how often loops have run, far from where that matters.
   takes: states.
   gives: exl2__grammar_far_state.
   owns:  nothing.

   Inside [a-z]{2,140} every character leads to a new state, as it counts. A loop that has run often enough may end, or
   begin again until it has run `max` times; a body has at least one character, so while texts of up to max - count
   characters are looked at, the count says nothing. With it set back to `min`, the fewest at which that holds, the
   states are one. */
#ifndef EXL2__GRAMMAR_FAR_H
#define EXL2__GRAMMAR_FAR_H

#include "grammar_state.h"

#define EXL2__GRAMMAR_FAR_ITEMS_MAX 64u /* of states that are looked at */

/* Can the frame's count be set back, for texts of up to VOCAB_SHORT characters? */
static inline bool exl2__grammar_far_counts(const exl2__grammar_code_node *n, uint32_t count)
{
    return n->kind == EXL2__GRAMMAR_CODE_REPEAT && n->max != EXL2__GRAMMAR_CODE_ENDLESS
        && count > exl2__max32(n->min, 1) && n->max - count >= EXL2__GRAMMAR_VOCAB_SHORT;
}

/* The frame with all counts set back; 0: as far as there was room. *reach: see below. */
EXL2__COLD
static uint32_t exl2__grammar_far_frame(exl2__grammar_state *s, uint32_t frame, uint32_t *reach)
{
    uint32_t chain[EXL2__GRAMMAR_LINK_DEPTH_MAX + 1], levels = 0, below = 0;
    for (uint32_t at = frame; at; at = s->frames[at].below) {
        chain[levels++] = at;
    }
    bool same = true;
    while (levels) {
        uint32_t now = chain[--levels];
        exl2__grammar_state_frame f = s->frames[now];
        const exl2__grammar_code_node *n = &s->link->nodes[f.node];
        if (exl2__grammar_far_counts(n, f.count)) {
            *reach = exl2__min32(*reach, n->max - f.count);
            f.count = exl2__max32(n->min, 1);
            same = false;
        }
        below = same ? now : exl2__grammar_state_frame_of(s, f.node, f.count, below);
        if (s->full) {
            return 0;
        }
    }
    return below;
}

/* The state that allows the same texts of up to *reach characters, needs the same number of tokens behind them, and has
   counts set back; `state` itself if none can be. FULL: no room. */
EXL2__COLD
static uint32_t exl2__grammar_far_state(exl2__grammar_state *s, uint32_t state, uint32_t *reach)
{
    uint32_t first = s->states[state].items, count = s->states[state].count, used = 0;
    *reach = UINT32_MAX;
    if (count > EXL2__GRAMMAR_FAR_ITEMS_MAX) {
        return state;
    }
    exl2__grammar_state_begin_set(s);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t frame = s->pool[first + 2 * i + 1];
        s->items[i].node = s->pool[first + 2 * i];
        s->items[i].frame = frame ? exl2__grammar_far_frame(s, frame, reach) : 0;
    }
    if (*reach == UINT32_MAX) {
        return state;
    }
    for (uint32_t i = 0; i < count; i++) { /* two readings may have become one */
        uint32_t k = 0;
        while (k < used && (s->items[k].node != s->items[i].node || s->items[k].frame != s->items[i].frame)) {
            k++;
        }
        s->items[k] = s->items[i];
        used += k == used;
    }
    s->item_count = used;
    s->may_end = s->states[state].may_end;
    return exl2__grammar_state_finish_set(s);
}

#endif

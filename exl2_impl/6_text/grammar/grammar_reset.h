/* grammar_reset.h: maps states that differ only in loop counts to one state, as long as the counts do not matter yet.
   takes: states.
   gives: exl2__grammar_reset_state.

   Inside [a-z]{2,140} every character leads to a new state, because the state holds the count. A loop that has run at
   least `min` times may end, or run again until it has run `max` times. A body has at least one character. So the count
   makes no difference for texts of up to max - count characters. When the count is reset to `min`, the lowest count
   for which this holds, all these states become one state, and that state's mask can be shared. */
#ifndef EXL2__GRAMMAR_RESET_H
#define EXL2__GRAMMAR_RESET_H

#include "grammar_state.h"

#define EXL2__GRAMMAR_RESET_ITEMS_MAX 64u /* states with more parses are left as they are */

/* Can the frame's count be reset without a difference for texts of up to VOCAB_SHORT characters? */
static inline bool exl2__grammar_reset_counts(const exl2__grammar_code_node *n, uint32_t count)
{
    return n->kind == EXL2__GRAMMAR_CODE_REPEAT && n->max != EXL2__GRAMMAR_CODE_ENDLESS
        && count > exl2__max32(n->min, 1) && n->max - count >= EXL2__GRAMMAR_VOCAB_SHORT;
}

/* The frame with all counts reset where possible; 0: full. Lowers *reach, as described at exl2__grammar_reset_state. */
EXL2__COLD
EXL2__PRIVATE uint32_t exl2__grammar_reset_frame(exl2__grammar_state *s, uint32_t frame, uint32_t *reach)
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
        if (exl2__grammar_reset_counts(n, f.count)) {
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

/* The state with counts reset. It allows the same texts of up to *reach characters, and needs the same number of tokens
   after them. Returns `state` itself if no count can be reset, or FULL if there is no room. */
EXL2__COLD
EXL2__PRIVATE uint32_t exl2__grammar_reset_state(exl2__grammar_state *s, uint32_t state, uint32_t *reach)
{
    uint32_t first = s->states[state].items, count = s->states[state].count, used = 0;
    *reach = UINT32_MAX;
    if (s->whole || count > EXL2__GRAMMAR_RESET_ITEMS_MAX) {
        return state;
    }
    exl2__grammar_state_begin_set(s);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t frame = s->pool[first + 2 * i + 1];
        s->items[i].node = s->pool[first + 2 * i];
        s->items[i].frame = frame ? exl2__grammar_reset_frame(s, frame, reach) : 0;
    }
    if (*reach == UINT32_MAX) {
        return state;
    }
    for (uint32_t i = 0; i < count; i++) { /* two parses may have become equal */
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

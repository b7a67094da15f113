/* grammar_mask.h: masks of the tokens that a grammar allows next after each of its states, one bit per token. Most
   tokens need no walk of the vocabulary (grammar_levels.h). grammar_place.h makes the masks of texts.
   takes: a linked automaton, a model's token table.
   gives: exl2__grammar_mask_begin, _share, _run, _cached, _slot_of, _free_slot, _use_slot. */
#ifndef EXL2__GRAMMAR_MASK_H
#define EXL2__GRAMMAR_MASK_H

#include "grammar_check.h"
#include "grammar_reset.h"

/* Walks at most `most` nodes: sets the bits of those tokens after which at most w->left tokens are needed to end the
   text. It has ended when w->range is w->range_count. A collection may change the path's states. false: full. */
EXL2__PRIVATE bool exl2__grammar_mask_run(exl2__grammar_mask *m, exl2__grammar_mask_walk *w, uint32_t most)
{
    if (w->checks) {
        exl2__grammar_mask_check(m, w, most);
        return true;
    }
    exl2__grammar_state *s = &m->states;
    const exl2__grammar_vocab_node *nodes = m->vocab->nodes;
    const uint8_t *class_of = s->link->class_of;
    const uint32_t *rows[EXL2__GRAMMAR_VOCAB_BYTES_MAX + 1] = { NULL };
    uint32_t visited = 0;
    while (w->range < w->range_count) {
        uint32_t i = exl2__max32(w->node, w->begin[w->range]), end = w->end[w->range];
        for (; i < end && visited < most; visited++) {
            exl2__grammar_vocab_node n = nodes[i];
            const uint32_t *row = rows[n.depth - 1];
            if (!row) { /* rows are filled when the first byte is looked up */
                row = exl2__grammar_mask_row(m, w->path, rows, n.depth);
                if (!row) {
                    return false;
                }
            }
            uint32_t next = row[class_of[n.byte]];
            if (next == EXL2__GRAMMAR_STATE_DEAD) {
                i = n.skip;
                continue;
            }
            w->path[n.depth] = next;
            const exl2__grammar_state_one *one = &s->states[next];
            rows[n.depth] = one->row ? s->pool + one->row : NULL;
            if (n.token != EXL2__GRAMMAR_VOCAB_NONE && one->tokens <= w->left) {
                w->bits[n.token / 32] |= 1u << n.token % 32;
                w->needs = exl2__max32(w->needs, one->tokens);
            }
            i++;
        }
        w->node = i < end ? i : 0; /* of the next range, which may lie before this one */
        if (i < end) {
            break;
        }
        w->range++;
    }
    m->nodes += visited;
    return true;
}

/* Sets the bits of TEXT tokens that need no walk. `most` never falls from one length to the next, so the lengths with
   the verdict ALL come first. */
EXL2__PRIVATE void exl2__grammar_mask_texts(const exl2__grammar_mask *m, const exl2__grammar_levels_groups *g,
                                            exl2__grammar_mask_walk *w)
{
    static const struct { uint8_t end, group; } parts[] = {
        { 4, EXL2__GRAMMAR_VOCAB_TEXT4 }, { 8, EXL2__GRAMMAR_VOCAB_TEXT8 }, { 16, EXL2__GRAMMAR_VOCAB_TEXT16 },
        { 17, EXL2__GRAMMAR_VOCAB_TEXT32 }, { EXL2__GRAMMAR_VOCAB_LENGTHS, EXL2__GRAMMAR_VOCAB_TEXT },
    };
    uint32_t all = 0;
    while (all < EXL2__GRAMMAR_VOCAB_LENGTHS && g->verdicts[all] == EXL2__GRAMMAR_LEVELS_ALL) {
        all++;
    }
    if (all) {
        memcpy(w->bits, m->vocab->masks[all - 1], (size_t)m->vocab->words * 4);
        w->needs = g->most[all - 1];
    }
    for (uint32_t i = all, part = 0; i < EXL2__GRAMMAR_VOCAB_LENGTHS; i++) {
        while (i >= parts[part].end) {
            part++;
        }
        if (g->verdicts[i] == EXL2__GRAMMAR_LEVELS_WALK) {
            exl2__grammar_mask_add(m, w, parts[part].group, parts[part].group);
            i = parts[part].end - 1u;
        }
    }
}

/* Begins the mask of a state. false: full. */
EXL2__COLD
EXL2__PRIVATE bool exl2__grammar_mask_begin(exl2__grammar_mask *m, exl2__grammar_mask_walk *w, uint32_t state,
                                            uint32_t left, uint32_t *bits)
{
    exl2__grammar_levels_groups g;
    *w = (exl2__grammar_mask_walk){ .path = { state }, .left = left, .bits = bits };
    memset(bits, 0, (size_t)m->vocab->words * 4);
    if (!exl2__grammar_levels_explore(&m->states, state, left, &g)) {
        return false;
    }
    exl2__grammar_mask_texts(m, &g, w);
    exl2__grammar_mask_add(m, w, g.no_control ? EXL2__GRAMMAR_VOCAB_OTHER : EXL2__GRAMMAR_VOCAB_CONTROL,
                           EXL2__GRAMMAR_VOCAB_OTHER);
    exl2__grammar_mask_add(m, w, EXL2__GRAMMAR_VOCAB_OTHER_LONG, EXL2__GRAMMAR_VOCAB_OTHER_LONG);
    m->walks++;
    return true;
}

/* Begins the mask of a state with a copy of the mask of a state that allows the same texts of up to `reach` characters.
   Only longer tokens are walked. */
EXL2__PRIVATE void exl2__grammar_mask_share(exl2__grammar_mask *m, exl2__grammar_mask_walk *w, uint32_t state,
                                            const exl2__grammar_mask_slot *from, uint32_t reach, uint32_t *bits)
{
    uint32_t words = m->vocab->words, beyond = reach >= EXL2__GRAMMAR_VOCAB_LONG;
    const uint32_t *shared = exl2__grammar_mask_bits(m, from), *longs = m->vocab->longs[beyond];
    *w = (exl2__grammar_mask_walk){ .path = { state }, .left = EXL2__GRAMMAR_LINK_NEVER, .bits = bits };
    w->needs = m->factor_count ? m->bounds[state].needs : from->needs;
    for (uint32_t i = 0; i < words; i++) {
        bits[i] = shared[i] & ~longs[i];
    }
    exl2__grammar_mask_add(m, w, beyond ? EXL2__GRAMMAR_VOCAB_TEXT : EXL2__GRAMMAR_VOCAB_TEXT32,
                           EXL2__GRAMMAR_VOCAB_OTHER_LONG);
    m->shares++;
}

/* Writes the mask of a state to `bits`. A collection may change *state. false: full. */
EXL2__PRIVATE bool exl2__grammar_mask_make(exl2__grammar_mask *m, uint32_t *state, uint32_t left, uint32_t *bits)
{
    exl2__grammar_mask_walk w;
    bool made = exl2__grammar_mask_begin(m, &w, *state, left, bits) && exl2__grammar_mask_run(m, &w, UINT32_MAX);
    *state = made ? w.path[0] : *state;
    return made;
}

/* Frees the next slot; not that of the state `keep`, from whose mask another one is made. */
EXL2__PRIVATE exl2__grammar_mask_slot *exl2__grammar_mask_free_slot(exl2__grammar_mask *m, uint32_t keep)
{
    m->slot_next = (m->slot_next + (keep && m->slots[m->slot_next].state == keep)) % m->slot_count;
    exl2__grammar_mask_slot *slot = &m->slots[m->slot_next];
    m->states.states[slot->state].mask = 0; /* the state that had this slot loses its mask */
    slot->state = 0;
    return slot;
}

/* Gives the slot to the state of a walk that has ended. */
EXL2__PRIVATE void exl2__grammar_mask_use_slot(exl2__grammar_mask *m, exl2__grammar_mask_slot *slot,
                                               const exl2__grammar_mask_walk *w)
{
    *slot = (exl2__grammar_mask_slot){ w->path[0], w->needs, ++m->serial };
    m->states.states[w->path[0]].mask = (uint32_t)(slot - m->slots) + 1;
    for (uint32_t i = 0; i < EXL2__GRAMMAR_MASK_ALIKE && m->factor_count; i++) {
        m->alike[i][m->bounds[w->path[0]].alike[i]] = (uint16_t)(slot - m->slots + 1);
    }
    m->slot_next = (m->slot_next + 1) % m->slot_count;
}

/* Makes the mask of a state, for any number of tokens left, in the next slot. `from`: slot with a mask to copy from, or
   NULL. Returns NULL if full. */
EXL2__COLD
EXL2__PRIVATE const exl2__grammar_mask_slot *exl2__grammar_mask_new_slot(exl2__grammar_mask *m, uint32_t *state,
                                                                         const exl2__grammar_mask_slot *from,
                                                                         uint32_t reach)
{
    exl2__grammar_mask_walk w;
    exl2__grammar_mask_slot *slot = exl2__grammar_mask_free_slot(m, from ? from->state : 0);
    uint32_t *bits = m->bits + (size_t)m->slot_next * m->vocab->words;
    if (from) {
        exl2__grammar_mask_share(m, &w, *state, from, reach, bits);
    } else if (!exl2__grammar_mask_begin(m, &w, *state, EXL2__GRAMMAR_LINK_NEVER, bits)) {
        return NULL;
    }
    if (!exl2__grammar_mask_run(m, &w, UINT32_MAX)) {
        return NULL;
    }
    *state = w.path[0];
    exl2__grammar_mask_use_slot(m, slot, &w);
    return slot;
}

/* The slot with the mask of a state, or NULL if the mask is not cached. */
static inline const exl2__grammar_mask_slot *exl2__grammar_mask_cached(exl2__grammar_mask *m, uint32_t state)
{
    uint32_t mask = m->states.states[state].mask;
    m->hits += mask > 0;
    return mask ? &m->slots[mask - 1] : NULL;
}

/* In a grammar with factors: the slot of a state that allows the same texts of up to *reach characters, the longest
   that there is. NULL: there is none. */
static inline const exl2__grammar_mask_slot *exl2__grammar_mask_alike(const exl2__grammar_mask *m, uint32_t state,
                                                                      uint32_t *reach)
{
    static const uint32_t reaches[] = { EXL2__GRAMMAR_VOCAB_SHORT, EXL2__GRAMMAR_VOCAB_LONG, UINT32_MAX };
    for (uint32_t i = EXL2__GRAMMAR_MASK_ALIKE; i-- > 0;) {
        uint32_t number = m->bounds[state].alike[i], slot = m->alike[i][number];
        uint32_t other = slot ? m->slots[slot - 1].state : 0;
        if (other && m->bounds[other].alike[i] == number) {
            *reach = reaches[i];
            return &m->slots[slot - 1];
        }
    }
    return NULL;
}

/* The slot with the mask of a state, for any number of tokens left; makes the mask if needed. NULL: full. */
EXL2__COLD
EXL2__PRIVATE const exl2__grammar_mask_slot *exl2__grammar_mask_slot_of(exl2__grammar_mask *m, uint32_t *state)
{
    const exl2__grammar_mask_slot *slot = exl2__grammar_mask_cached(m, *state);
    uint32_t reach = 0;
    if (!slot && m->factor_count) {
        slot = exl2__grammar_mask_alike(m, *state, &reach);
        return slot && reach == UINT32_MAX ? slot : exl2__grammar_mask_new_slot(m, state, slot, reach);
    }
    uint32_t base = slot ? *state : exl2__grammar_reset_state(&m->states, *state, &reach);
    if (slot || base == EXL2__GRAMMAR_STATE_FULL) {
        return slot;
    }
    if (base == *state) {
        return exl2__grammar_mask_new_slot(m, state, NULL, 0);
    }
    slot = exl2__grammar_mask_cached(m, base);
    slot = slot ? slot : exl2__grammar_mask_new_slot(m, &base, NULL, 0);
    return !slot || reach >= m->vocab->longest ? slot : exl2__grammar_mask_new_slot(m, state, slot, reach);
}

#endif

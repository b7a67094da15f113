/* grammar_place.h: the place of a text in a grammar, and the mask of the tokens that may come next there.
   takes: a linked automaton, or what several grammars have in common; a model's token table; sampled tokens.
   gives: exl2__grammar_mask_open, _open_slots, _close; of a place exl2__grammar_mask_join, _leave, _copy, _cost,
          _walks, _prepare, _get, _accept, _after, _shortest, _is_complete, _may_end.
   owns:  two blocks, from open to close: the states, and the masks of states. Places belong to the caller. */
#ifndef EXL2__GRAMMAR_PLACE_H
#define EXL2__GRAMMAR_PLACE_H

#include "grammar_mask.h"

/* ---- masks of what several grammars allow ----

   A text has a place in the common grammar (grammar_common.h) and in each of its factors. A mask is what the factors'
   masks have in common, without tokens that lead to a dead end, or to a text that cannot end within the job's tokens.
   The factors' masks are shared by all jobs, and by states that differ in counts, which the common grammar's states do
   not know of. Its own walk is faster where few tokens may begin. A mask far from the end of the tokens serves all
   states after which the same texts may follow (grammar_alike.h), and those of tokens up to a length. */

#define EXL2__GRAMMAR_MASK_FEW 8u /* part of all nodes */

/* Whether some text that may follow, in a grammar with factors, needs more tokens than may follow the next one. */
static inline bool exl2__grammar_mask_is_close(const exl2__grammar_mask *m, const exl2__grammar_mask_place *place,
                                               uint32_t after)
{
    return m->factor_count && m->bounds[place->state].needs > after;
}

/* Whether the factors' masks are used: where many tokens may begin. */
static inline bool exl2__grammar_mask_by_factors(const exl2__grammar_mask *m, const exl2__grammar_mask_place *place)
{
    return m->factor_count
        && m->bounds[place->state].nodes > m->vocab->begin[EXL2__GRAMMAR_VOCAB_GROUPS] / EXL2__GRAMMAR_MASK_FEW;
}

/* What the factors' masks have in common [words]; NULL: a factor is full. */
EXL2__PRIVATE const uint32_t *exl2__grammar_mask_common(exl2__grammar_mask *m, exl2__grammar_mask_place *place)
{
    const uint32_t *factors[EXL2__GRAMMAR_MASK_FACTORS_MAX];
    uint32_t words = m->vocab->words, *bits = m->bits + ((size_t)m->slot_count + 2) * words;
    bool same = m->common_live;
    m->common_live = false;
    for (uint32_t k = 0; k < m->factor_count; k++) {
        exl2__grammar_mask *f = m->factors[k];
        const exl2__grammar_mask_slot *slot = exl2__grammar_mask_slot_of(f, &place->of[k]);
        if (!slot) {
            exl2__grammar_mask_collect(f, NULL, 0);
            slot = exl2__grammar_mask_slot_of(f, &place->of[k]);
        }
        if (!slot) {
            return NULL;
        }
        same = same && m->common[k] == slot->serial;
        m->common[k] = slot->serial;
        factors[k] = exl2__grammar_mask_bits(f, slot);
    }
    for (uint32_t i = 0; i < words && !same; i += EXL2__GRAMMAR_VOCAB_BLOCK) {
        uint32_t block[EXL2__GRAMMAR_VOCAB_BLOCK];
        memcpy(block, factors[0] + i, sizeof block);
        for (uint32_t k = 1; k < m->factor_count; k++) {
            for (uint32_t n = 0; n < EXL2__GRAMMAR_VOCAB_BLOCK; n++) {
                block[n] &= factors[k][i + n];
            }
        }
        memcpy(bits + i, block, sizeof block);
    }
    m->common_live = true;
    return bits;
}

/* Begins the mask of a place with a copy of what the factors' masks have in common. left: tokens that may follow one
   that is allowed. false: a factor is full. */
EXL2__PRIVATE bool exl2__grammar_mask_copy_common(exl2__grammar_mask *m, exl2__grammar_mask_walk *w,
                                                  exl2__grammar_mask_place *place, uint32_t left, uint32_t *bits)
{
    const uint32_t *common = exl2__grammar_mask_common(m, place);
    if (!common) {
        return false;
    }
    memcpy(bits, common, (size_t)m->vocab->words * 4);
    exl2__grammar_mask_begin_check(m, w, place->state, left, bits);
    m->shares++;
    return true;
}

/* The mask of a place by its factors; makes it if needed. NULL: a factor is full. */
EXL2__PRIVATE const uint32_t *exl2__grammar_mask_factored(exl2__grammar_mask *m, exl2__grammar_mask_place *place)
{
    exl2__grammar_mask_walk w;
    uint32_t reach;
    if (m->states.states[place->state].mask || exl2__grammar_mask_alike(m, place->state, &reach)) {
        return exl2__grammar_mask_bits(m, exl2__grammar_mask_slot_of(m, &place->state));
    }
    exl2__grammar_mask_slot *slot = exl2__grammar_mask_free_slot(m, 0);
    uint32_t *bits = exl2__grammar_mask_bits(m, slot);
    if (!exl2__grammar_mask_copy_common(m, &w, place, EXL2__GRAMMAR_LINK_NEVER, bits)) {
        return NULL;
    }
    exl2__grammar_mask_check(m, &w, UINT32_MAX);
    exl2__grammar_mask_use_slot(m, slot, &w);
    return bits;
}

/* The same close to the end: `after` tokens may follow one that is allowed. */
EXL2__PRIVATE const uint32_t *exl2__grammar_mask_factored_close(exl2__grammar_mask *m, exl2__grammar_mask_place *place,
                                                                uint32_t after)
{
    exl2__grammar_mask_walk w;
    uint32_t *bits = m->bits + (size_t)m->slot_count * m->vocab->words;
    if (m->part_live && m->part_done && m->part.left == after && m->part.path[0] == place->state) {
        return m->part.bits;
    }
    if (!exl2__grammar_mask_copy_common(m, &w, place, after, bits)) {
        return NULL;
    }
    exl2__grammar_mask_check(m, &w, UINT32_MAX);
    return bits;
}

/* ---- the mask of a place ---- */

EXL2__PRIVATE exl2_result exl2__grammar_mask_full(exl2__ctx *c)
{
    return exl2__fail(c, EXL2_ERR_BUDGET, "the grammar needs more cache_bytes: they have no room for a single step");
}

EXL2__PRIVATE bool exl2__grammar_mask_any(const exl2__grammar_mask *m, const uint32_t *bits)
{
    for (uint32_t i = 0; i < m->vocab->words; i++) {
        if (bits[i]) {
            return true;
        }
    }
    return false;
}

/* Fails because no token is allowed. Only the limits on parses and depth cause this: an automaton that
   exl2__grammar_open has accepted can end every text. */
EXL2__PRIVATE exl2_result exl2__grammar_mask_stuck(exl2__ctx *c, const exl2__grammar_mask *m)
{
    return exl2__fail(c, EXL2_ERR_BUDGET,
                      "the text cannot continue: the grammar is too ambiguous (more than %u parses at "
                      "once) or too deep (more than %u nested rules and loops)", m->states.parses_max,
                      EXL2__GRAMMAR_LINK_DEPTH_MAX);
}

/* *bits: [words], one bit per token that may come next, valid until the next call. Bits of special tokens are 0.
   `left`: tokens that may still come, including this one, or NEVER for any number; a token is allowed only if the text
   can then end within this limit. *may_end: the text may also end here. EXL2_ERR_BUDGET: the text can neither end nor
   go on. */
EXL2__COLD
EXL2__PRIVATE exl2_result exl2__grammar_mask_get(exl2__ctx *c, exl2__grammar_mask *m, exl2__grammar_mask_place *place,
                                                 uint32_t left, const uint32_t **bits, bool *may_end)
{
    uint32_t words = m->vocab->words, after = left ? left - 1 : 0;
    uint32_t *exact = m->bits + (size_t)m->slot_count * words;
    *may_end = m->states.states[place->state].may_end;
    m->stuck = false;
    if (exl2__grammar_mask_by_factors(m, place)) {
        *bits = exl2__grammar_mask_is_close(m, place, after) ? exl2__grammar_mask_factored_close(m, place, after)
            : exl2__grammar_mask_factored(m, place);
        return !*bits ? exl2__grammar_mask_full(c)
            : *may_end || exl2__grammar_mask_any(m, *bits) ? EXL2_OK : exl2__grammar_mask_stuck(c, m);
    }
    for (int tries = 0; tries < 2; tries++) {
        bool close = exl2__grammar_mask_is_close(m, place, after);
        const exl2__grammar_mask_slot *slot = close ? NULL : exl2__grammar_mask_slot_of(m, &place->state);
        bool far_from_end = slot && (m->factor_count || slot->needs <= after); /* with factors it is not close */
        bool parts = m->part_live && m->part_done && m->part.left == after && m->part.path[0] == place->state;
        *bits = far_from_end ? exl2__grammar_mask_bits(m, slot) : parts ? m->part.bits : exact;
        if (far_from_end
            || ((slot || close) && (parts || exl2__grammar_mask_make(m, &place->state, after, exact)))) {
            return *may_end || exl2__grammar_mask_any(m, *bits) ? EXL2_OK : exl2__grammar_mask_stuck(c, m);
        }
        exl2__grammar_mask_collect(m, NULL, 0);
    }
    return exl2__grammar_mask_full(c);
}

/* Trie nodes in the groups from `first` on, without those below a first byte that leads nowhere. */
EXL2__COLD
EXL2__PRIVATE uint32_t exl2__grammar_mask_nodes(exl2__grammar_mask *m, uint32_t state, uint32_t first)
{
    const exl2__grammar_vocab *v = m->vocab;
    const uint32_t *row = exl2__grammar_state_row(&m->states, state);
    uint32_t cost = 0;
    for (uint32_t i = v->begin[first]; i < v->begin[EXL2__GRAMMAR_VOCAB_GROUPS]; i = v->nodes[i].skip) {
        cost += row && row[m->states.link->class_of[v->nodes[i].byte]] == EXL2__GRAMMAR_STATE_DEAD ? 0
            : v->nodes[i].skip - i;
    }
    return cost;
}

/* The mask that the next exl2__grammar_mask_get lacks first. */
typedef struct exl2__grammar_mask_lack {
    exl2__grammar_mask *in;              /* the grammar itself, or a factor */
    uint32_t at;                         /* the place's state in it */
    uint32_t state, left;                /* state 0: none, or there is no room */
    const exl2__grammar_mask_slot *from; /* its mask is copied; NULL: none */
    bool common;                         /* what the factors' masks have in common is copied */
    uint32_t reach;
} exl2__grammar_mask_lack;

/* The mask is made from that of a state that allows the same texts, up to a length. false: there is none. */
EXL2__PRIVATE bool exl2__grammar_mask_lacks_alike(const exl2__grammar_mask *m, exl2__grammar_mask_lack *lack)
{
    bool made = m->states.states[lack->state].mask > 0;
    lack->from = made ? NULL : exl2__grammar_mask_alike(m, lack->state, &lack->reach);
    lack->state = made || (lack->from && lack->reach == UINT32_MAX) ? 0 : lack->state;
    return made || lack->from;
}

/* For a state that has no factors. */
EXL2__PRIVATE exl2__grammar_mask_lack exl2__grammar_mask_lacks_own(exl2__grammar_mask *m, uint32_t state,
                                                                   uint32_t after)
{
    exl2__grammar_mask_lack lack = { .in = m, .at = state, .state = state, .left = EXL2__GRAMMAR_LINK_NEVER };
    uint32_t slot = m->states.states[state].mask;
    if (slot) {
        lack.left = after;
        lack.state = m->slots[slot - 1].needs <= after ? 0 : state;
        return lack;
    }
    uint32_t base = exl2__grammar_reset_state(&m->states, state, &lack.reach);
    if (base == EXL2__GRAMMAR_STATE_FULL) {
        lack.state = 0;
        return lack;
    }
    uint32_t shared = base == state ? 0 : m->states.states[base].mask;
    lack.from = shared ? &m->slots[shared - 1] : NULL;
    lack.state = !shared ? base : lack.reach >= m->vocab->longest ? 0 : state;
    return lack;
}

EXL2__PRIVATE exl2__grammar_mask_lack exl2__grammar_mask_lacks(exl2__grammar_mask *m,
                                                               const exl2__grammar_mask_place *place, uint32_t left)
{
    uint32_t after = left ? left - 1 : 0, state = place->state;
    exl2__grammar_mask_lack lack = { .in = m, .at = state, .state = state, .left = after };
    bool close = exl2__grammar_mask_is_close(m, place, after);
    if (!m->factor_count) {
        return exl2__grammar_mask_lacks_own(m, state, after);
    }
    lack.left = close ? after : EXL2__GRAMMAR_LINK_NEVER;
    if ((!close && exl2__grammar_mask_lacks_alike(m, &lack)) || !exl2__grammar_mask_by_factors(m, place)) {
        return lack;
    }
    for (uint32_t k = 0; k < m->factor_count; k++) {
        exl2__grammar_mask_lack other = exl2__grammar_mask_lacks_own(m->factors[k], place->of[k],
                                                                     EXL2__GRAMMAR_LINK_NEVER);
        if (other.state) {
            return other;
        }
    }
    lack.common = true;
    return lack;
}

static inline bool exl2__grammar_mask_has_begun(const exl2__grammar_mask_lack *lack)
{
    return lack->in->part_live && lack->in->part.path[0] == lack->state && lack->in->part.left == lack->left;
}

/* Nodes to check what the factors allow, about. */
EXL2__PRIVATE uint32_t exl2__grammar_mask_check_cost(exl2__grammar_mask *m, const exl2__grammar_mask_lack *lack)
{
    const exl2__grammar_mask_bound *bound = &m->bounds[lack->state];
    bool only_long = bound->needs <= lack->left && bound->text >= EXL2__GRAMMAR_VOCAB_SHORT;
    uint32_t shapes = m->vocab->shapes.count + m->vocab->vocab->id_count / EXL2__GRAMMAR_MASK_CLEARED;
    uint32_t nodes = exl2__grammar_mask_nodes(m, lack->at, only_long ? EXL2__GRAMMAR_VOCAB_TEXT32
                                              : EXL2__GRAMMAR_VOCAB_TEXT4);
    return only_long ? nodes : exl2__min32(nodes, shapes);
}

/* Trie nodes of the mask that the next exl2__grammar_mask_get lacks first, about; 0: it lacks none. */
EXL2__COLD
EXL2__PRIVATE uint32_t exl2__grammar_mask_cost(exl2__grammar_mask *m, const exl2__grammar_mask_place *place,
                                               uint32_t left)
{
    exl2__grammar_mask_lack lack = exl2__grammar_mask_lacks(m, place, left);
    bool made = exl2__grammar_mask_has_begun(&lack) && lack.in->part_done;
    if (lack.in->stuck || !lack.state || made) {
        return 0;
    }
    if (lack.common) {
        return exl2__grammar_mask_check_cost(m, &lack);
    }
    return exl2__grammar_mask_nodes(lack.in, lack.at, lack.from ? EXL2__GRAMMAR_VOCAB_TEXT32
                                    : EXL2__GRAMMAR_VOCAB_TEXT4);
}

/* Whether the next call of exl2__grammar_mask_prepare walks nodes; else it begins a mask. */
static inline bool exl2__grammar_mask_walks(exl2__grammar_mask *m, const exl2__grammar_mask_place *place, uint32_t left)
{
    exl2__grammar_mask_lack lack = exl2__grammar_mask_lacks(m, place, left);
    return exl2__grammar_mask_has_begun(&lack);
}

/* Begins or walks the mask that *lack names. false: there is no room. */
EXL2__PRIVATE bool exl2__grammar_mask_go_on(exl2__grammar_mask *m, exl2__grammar_mask_place *place,
                                            const exl2__grammar_mask_lack *lack, uint32_t *bits, uint32_t most)
{
    exl2__grammar_mask *in = lack->in;
    if (!lack->state) {
        return false;
    }
    if (exl2__grammar_mask_has_begun(lack)) {
        uint64_t before = in->nodes;
        bool good = exl2__grammar_mask_run(in, &in->part, most);
        m->nodes += in == m ? 0 : in->nodes - before;
        return good;
    }
    if (lack->common) {
        return exl2__grammar_mask_copy_common(m, &m->part, place, lack->left, bits);
    }
    if (lack->from) {
        exl2__grammar_mask_share(in, &in->part, lack->state, lack->from, lack->reach, bits);
        return true;
    }
    return exl2__grammar_mask_begin(in, &in->part, lack->state, lack->left, bits);
}

/* Begins a mask that the next exl2__grammar_mask_get would make, or walks at most `most` more nodes for it. Repeat it
   while the cost is not 0. */
EXL2__COLD
EXL2__PRIVATE void exl2__grammar_mask_prepare(exl2__grammar_mask *m, exl2__grammar_mask_place *place, uint32_t left,
                                              uint32_t most)
{
    exl2__grammar_mask_lack lack = exl2__grammar_mask_lacks(m, place, left);
    exl2__grammar_mask *in = lack.in;
    uint32_t *bits = in->bits + (size_t)(in->slot_count + 1) * in->vocab->words;
    bool good = exl2__grammar_mask_go_on(m, place, &lack, bits, most);
    in->part_live = good;
    in->part_done = good && in->part.range == in->part.range_count;
    if (!good) {
        in->stuck = true;
    } else if (in->part_done && in->part.left == EXL2__GRAMMAR_LINK_NEVER) {
        exl2__grammar_mask_slot *slot = exl2__grammar_mask_free_slot(in, 0);
        memcpy(exl2__grammar_mask_bits(in, slot), bits, (size_t)in->vocab->words * 4);
        exl2__grammar_mask_use_slot(in, slot, &in->part);
        in->part_live = false;
    }
}

/* The state after a token, of whose text the first `skip` bytes do not belong to the grammar's; DEAD: the token is not
   allowed; FULL: the block has no room even after a collection, which may renumber *state. */
EXL2__COLD
EXL2__PRIVATE uint32_t exl2__grammar_mask_follow(exl2__grammar_mask *m, const uint32_t *state, exl2_token token,
                                                 size_t skip)
{
    size_t bytes;
    bool special;
    const char *text = exl2__vocab_piece(m->vocab->vocab, token, &bytes, &special);
    uint32_t next = EXL2__GRAMMAR_STATE_DEAD;
    for (int tries = 0; text && !special && bytes >= skip && tries < 2; tries++) {
        next = exl2__grammar_state_next(&m->states, *state, text + skip, bytes - skip);
        if (next != EXL2__GRAMMAR_STATE_FULL) {
            return next;
        }
        exl2__grammar_mask_collect(m, NULL, 0);
    }
    return next;
}

static inline uint32_t exl2__grammar_mask_after(exl2__grammar_mask *m, const exl2__grammar_mask_place *place,
                                                exl2_token token, size_t skip)
{
    return exl2__grammar_mask_follow(m, &place->state, token, skip);
}

/* Moves the place on by a token of the mask, without its first `skip` bytes. EXL2_ERR_ARG: the token is not allowed;
   the place does not change. */
EXL2__COLD
EXL2__PRIVATE exl2_result exl2__grammar_mask_accept(exl2__ctx *c, exl2__grammar_mask *m,
                                                    exl2__grammar_mask_place *place, exl2_token token, size_t skip)
{
    exl2__grammar_mask_place next = *place;
    next.state = exl2__grammar_mask_after(m, place, token, skip);
    bool full = next.state == EXL2__GRAMMAR_STATE_FULL, dead = next.state == EXL2__GRAMMAR_STATE_DEAD;
    for (uint32_t k = 0; k < m->factor_count && !full && !dead; k++) {
        next.of[k] = exl2__grammar_mask_follow(m->factors[k], &place->of[k], token, skip);
        full = next.of[k] == EXL2__GRAMMAR_STATE_FULL;
        dead = next.of[k] == EXL2__GRAMMAR_STATE_DEAD;
    }
    if (full) {
        return exl2__grammar_mask_full(c);
    }
    if (dead) {
        return exl2__fail(c, EXL2_ERR_ARG, "the grammar does not allow token %d here", (int)token);
    }
    *place = next;
    return EXL2_OK;
}

/* The number of tokens with which the text can end from here; nearly the fewest. */
static inline uint32_t exl2__grammar_mask_shortest(const exl2__grammar_mask *m, const exl2__grammar_mask_place *place)
{
    return m->states.states[place->state].tokens;
}

/* Is the text complete, so that nothing may follow? */
static inline bool exl2__grammar_mask_is_complete(const exl2__grammar_mask *m, const exl2__grammar_mask_place *place)
{
    return m->states.states[place->state].count == 0;
}

static inline bool exl2__grammar_mask_may_end(const exl2__grammar_mask *m, const exl2__grammar_mask_place *place)
{
    return m->states.states[place->state].may_end;
}

/* ---- places, opening ---- */

/* Starts a text in one grammar, whose state *state becomes until exl2__grammar_mask_drop. */
EXL2__PRIVATE exl2_result exl2__grammar_mask_begin_text(exl2__ctx *c, exl2__grammar_mask *m, uint32_t *state)
{
    *state = EXL2__GRAMMAR_STATE_DEAD;
    if (m->place_count == EXL2__GRAMMAR_MASK_PLACES_MAX) {
        return exl2__fail(c, EXL2_ERR_BUDGET, "a grammar supports at most %u jobs at a time",
                          EXL2__GRAMMAR_MASK_PLACES_MAX);
    }
    uint32_t start = exl2__grammar_state_start(&m->states);
    if (start == EXL2__GRAMMAR_STATE_FULL) {
        exl2__grammar_mask_collect(m, NULL, 0);
        start = exl2__grammar_state_start(&m->states);
    }
    if (start == EXL2__GRAMMAR_STATE_FULL) {
        return exl2__grammar_mask_full(c);
    }
    *state = start;
    m->places[m->place_count++] = state;
    return EXL2_OK;
}

/* Does nothing for a state that is not listed. */
EXL2__PRIVATE void exl2__grammar_mask_drop(exl2__grammar_mask *m, const uint32_t *state)
{
    for (uint32_t i = 0; i < m->place_count; i++) {
        if (m->places[i] == state) {
            m->places[i] = m->places[--m->place_count];
            return;
        }
    }
}

/* Does nothing for a place that never joined. */
EXL2__PRIVATE void exl2__grammar_mask_leave(exl2__grammar_mask *m, exl2__grammar_mask_place *place)
{
    exl2__grammar_mask_drop(m, &place->state);
    for (uint32_t k = 0; k < m->factor_count; k++) {
        exl2__grammar_mask_drop(m->factors[k], &place->of[k]);
    }
}

/* Starts a text at *place, which must not move until exl2__grammar_mask_leave. */
EXL2__COLD
EXL2__PRIVATE exl2_result exl2__grammar_mask_join(exl2__ctx *c, exl2__grammar_mask *m, exl2__grammar_mask_place *place)
{
    exl2_result r = exl2__grammar_mask_begin_text(c, m, &place->state);
    for (uint32_t k = 0; k < m->factor_count && r >= 0; k++) {
        r = exl2__grammar_mask_begin_text(c, m->factors[k], &place->of[k]);
    }
    if (r < 0) {
        exl2__grammar_mask_leave(m, place);
        place->state = EXL2__GRAMMAR_STATE_DEAD;
    }
    return r;
}

/* Makes *copy a second place of the same text. false: there are too many places. */
EXL2__PRIVATE bool exl2__grammar_mask_copy(exl2__grammar_mask *m, const exl2__grammar_mask_place *place,
                                           exl2__grammar_mask_place *copy)
{
    bool room = m->place_count < EXL2__GRAMMAR_MASK_PLACES_MAX;
    for (uint32_t k = 0; k < m->factor_count; k++) {
        room = room && m->factors[k]->place_count < EXL2__GRAMMAR_MASK_PLACES_MAX;
    }
    if (!room) {
        return false;
    }
    *copy = *place;
    m->places[m->place_count++] = &copy->state;
    for (uint32_t k = 0; k < m->factor_count; k++) {
        m->factors[k]->places[m->factors[k]->place_count++] = &copy->of[k];
    }
    return true;
}

EXL2__PRIVATE void exl2__grammar_mask_close(exl2__ctx *c, exl2__grammar_mask *m)
{
    exl2__grammar_state_close(c, &m->states);
    exl2__arena_close(c, &m->memory);
    *m = (exl2__grammar_mask){ 0 };
}

/* Rejects a grammar that does not even have a first state. */
EXL2__PRIVATE exl2_result exl2__grammar_mask_first(exl2__ctx *c, exl2__grammar_mask *m)
{
    uint32_t state = exl2__grammar_state_start(&m->states);
    return state == EXL2__GRAMMAR_STATE_FULL ? exl2__grammar_mask_full(c)
        : state == EXL2__GRAMMAR_STATE_DEAD ? exl2__grammar_mask_stuck(c, m) : EXL2_OK;
}

/* Makes room for masks in half of `cache_bytes`, which are at least CACHE_MIN. */
EXL2__PRIVATE exl2_result exl2__grammar_mask_open_slots(exl2__ctx *c, uint64_t cache_bytes, exl2__grammar_mask *m)
{
    uint64_t words = m->vocab->words, each = words * 4 + sizeof *m->slots;
    m->slot_count = (uint32_t)exl2__min64(exl2__max64(cache_bytes / 2 / (each + 1), 4), 4096);
    uint64_t alike = m->factor_count ? m->states.state_count * sizeof **m->alike : 0;
    uint64_t bytes = exl2__align_up(m->slot_count * sizeof *m->slots, 64) + (m->slot_count + 5) * words * 4
                   + EXL2__GRAMMAR_MASK_ALIKE * exl2__align_up(alike, 64) + 64;
    EXL2__TRY(exl2__arena_open(c, &m->memory, bytes, EXL2_MEM_GENERAL));
    m->slots = (exl2__grammar_mask_slot *)exl2__arena_alloc_zeroed(&m->memory, m->slot_count * sizeof *m->slots);
    m->bits = (uint32_t *)exl2__arena_alloc(&m->memory, (m->slot_count + 5) * words * 4);
    for (uint32_t i = 0; i < EXL2__GRAMMAR_MASK_ALIKE; i++) {
        m->alike[i] = (uint16_t *)exl2__arena_alloc_zeroed(&m->memory, alike);
    }
    return EXL2_OK;
}

/* States and masks share `cache_bytes`, or CACHE_MIN if that is more; each gets half of it. */
EXL2__COLD
EXL2__PRIVATE exl2_result exl2__grammar_mask_open(exl2__ctx *c, const exl2__grammar_link *link,
                                                  const exl2__grammar_vocab *vocab, uint64_t cache_bytes,
                                                  exl2__grammar_mask *m)
{
    *m = (exl2__grammar_mask){ 0 };
    m->vocab = vocab;
    cache_bytes = exl2__max64(cache_bytes, EXL2__GRAMMAR_MASK_CACHE_MIN);
    exl2_result result = exl2__grammar_state_open(c, link, cache_bytes / 2, &m->states);
    result = result < 0 ? result : exl2__grammar_mask_open_slots(c, cache_bytes, m);
    result = result < 0 ? result : exl2__grammar_mask_first(c, m);
    if (result < 0) {
        exl2__grammar_mask_close(c, m);
    }
    return result;
}

#endif

/* grammar_lengths.h: which TEXT tokens lead to a dead end of what the factors of a grammar have in common, by their
   lengths.

   Most characters are calm, they lead from state to state in a line. In `(.*g){2}.*` all are calm but g. Of tokens with
   calm characters alone, the state of the line after so many characters says whether they stay. The others remain to be
   followed one by one (grammar_check.h).
   takes: the states of a grammar with factors, all of which are there; the bits of tokens that all factors allow.
   gives: exl2__grammar_mask_by_lengths, exl2__grammar_mask_count. */
#ifndef EXL2__GRAMMAR_LENGTHS_H
#define EXL2__GRAMMAR_LENGTHS_H

#include "grammar_levels.h"
#include "grammar_walk.h"

#define EXL2__GRAMMAR_MASK_EACH 256u   /* most tokens other than TEXT that are followed one by one, not by shapes */
#define EXL2__GRAMMAR_MASK_RESTLESS 3u /* by lengths at most one of this many tokens is followed */

/* The state that most letters lead to; on: of those that lead on. Adds the kinds (grammar_vocab.h) of all characters
   that lead elsewhere to *restless, a bit for each. */
EXL2__PRIVATE uint32_t exl2__grammar_mask_calm(exl2__grammar_mask *m, uint32_t state, bool on, uint32_t *restless)
{
    const uint32_t *row = m->states.pool + m->states.states[state].row;
    const uint8_t *class_of = m->states.link->class_of;
    exl2__grammar_levels_text wide = { .least = EXL2__GRAMMAR_LINK_NEVER };
    uint32_t calm = EXL2__GRAMMAR_STATE_DEAD, most = 0, seen[4] = { 0 }, count[4] = { 0 }; /* [0]: of dead ends */
    for (uint32_t byte = 'a'; byte <= 'z'; byte++) {
        uint32_t next = row[class_of[byte]], k = next != EXL2__GRAMMAR_STATE_DEAD;
        while (next != EXL2__GRAMMAR_STATE_DEAD && k < EXL2__COUNT(seen) && seen[k] != next && seen[k]) {
            k++;
        }
        if (k < EXL2__COUNT(seen) && (k > 0 || !on)) {
            seen[k] = next;
            calm = ++count[k] > most ? next : calm;
            most = exl2__max32(most, count[k]);
        }
    }
    for (uint32_t byte = ' '; byte < 0x80; byte++) {
        bool other = byte != '"' && byte != '\\' && row[class_of[byte]] != calm;
        *restless |= (uint32_t)other << exl2__grammar_vocab_kind((uint8_t)byte);
    }
    exl2__grammar_levels_wide(&m->states, &wide, state);
    bool same = calm == EXL2__GRAMMAR_STATE_DEAD ? !wide.passed
        : !wide.blocked && wide.count == 1 && wide.seen[0] == calm;
    *restless |= (uint32_t)!same << exl2__grammar_vocab_kind(0x80);
    return calm;
}

/* What becomes of calm characters. Returns a bit for each length class of TEXT: tokens of calm characters alone stay.
   *restless: the kinds of the others; *longs: tokens of more than SHORT characters are no calm ones, either. */
EXL2__PRIVATE uint32_t exl2__grammar_mask_line(exl2__grammar_mask *m, const exl2__grammar_mask_walk *w, bool on,
                                               uint32_t *restless, bool *longs)
{
    uint32_t state = w->path[0], stay = 0;
    *restless = 0;
    *longs = true;
    for (uint32_t i = 0; i < EXL2__GRAMMAR_VOCAB_LENGTHS; i++) {
        bool moves = *longs && i <= EXL2__GRAMMAR_VOCAB_SHORT; /* what is longer is of one class with the next length */
        uint32_t next = moves ? exl2__grammar_mask_calm(m, state, on, restless) : state;
        *longs = *longs && (!moves || (next != state && next != EXL2__GRAMMAR_STATE_DEAD));
        stay |= (uint32_t)(next != EXL2__GRAMMAR_STATE_DEAD && m->states.states[next].tokens <= w->left) << i;
        state = next;
    }
    return stay;
}

/* Number of bits that are set in a block. */
static inline uint32_t exl2__grammar_mask_count(const uint32_t *block)
{
    uint32_t count = 0;
    for (uint32_t n = 0; n < EXL2__GRAMMAR_VOCAB_BLOCK; n++) {
        uint32_t bits = block[n];
        if (bits) {
            bits -= bits >> 1 & 0x55555555u;
            bits = (bits & 0x33333333u) + (bits >> 2 & 0x33333333u);
            count += ((bits + (bits >> 4)) & 0x0F0F0F0Fu) * 0x01010101u >> 24;
        }
    }
    return count;
}

/* Collects the masks of TEXT tokens with characters of the kinds in `restless`; longs: and of all with more than SHORT
   characters. kinds: [CHARS + 1]. Returns their number. */
EXL2__PRIVATE uint32_t exl2__grammar_mask_kinds(const exl2__grammar_mask *m, uint32_t restless, bool longs,
                                                const uint32_t **kinds)
{
    uint32_t used = 0;
    for (uint32_t k = 0; k < EXL2__GRAMMAR_VOCAB_CHARS; k++) {
        kinds[used] = m->vocab->with[k];
        used += restless >> k & 1;
    }
    kinds[used] = m->vocab->longs[0];
    return used + longs;
}

/* Those tokens of a block of w->due that are of these kinds. */
static inline void exl2__grammar_mask_restless(const exl2__grammar_mask_walk *w, const uint32_t *const *kinds,
                                               uint32_t used, uint32_t at, uint32_t *block)
{
    memset(block, 0, EXL2__GRAMMAR_VOCAB_BLOCK * sizeof *block);
    for (uint32_t k = 0; k < used; k++) {
        for (uint32_t n = 0; n < EXL2__GRAMMAR_VOCAB_BLOCK; n++) {
            block[n] |= kinds[k][at + n];
        }
    }
    for (uint32_t n = 0; n < EXL2__GRAMMAR_VOCAB_BLOCK; n++) {
        block[n] &= w->due[at + n];
    }
}

/* Number of tokens in w->due that are of these kinds. */
EXL2__PRIVATE uint32_t exl2__grammar_mask_count_due(const exl2__grammar_mask *m, const exl2__grammar_mask_walk *w,
                                                    const uint32_t *const *kinds, uint32_t used)
{
    uint32_t count = 0, block[EXL2__GRAMMAR_VOCAB_BLOCK];
    for (uint32_t i = 0; i < m->vocab->words; i += EXL2__GRAMMAR_VOCAB_BLOCK) {
        exl2__grammar_mask_restless(w, kinds, used, i, block);
        count += exl2__grammar_mask_count(block);
    }
    return count;
}

/* Leaves those tokens of these kinds in w->due. Of the others, clears the bits of those whose length does not stay:
   `stay` has a bit for each length class. */
EXL2__PRIVATE void exl2__grammar_mask_clear(const exl2__grammar_mask *m, exl2__grammar_mask_walk *w,
                                            const uint32_t *const *kinds, uint32_t used, uint32_t stay)
{
    const exl2__grammar_vocab *v = m->vocab;
    const uint32_t *gone[EXL2__GRAMMAR_VOCAB_LENGTHS], *before[EXL2__GRAMMAR_VOCAB_LENGTHS];
    uint32_t runs = 0; /* of lengths that do not stay */
    for (uint32_t i = 0; i < EXL2__GRAMMAR_VOCAB_LENGTHS; i++) {
        bool goes_on = i > 0 && !(stay >> (i - 1) & 1);
        if (stay >> i & 1) {
            continue;
        }
        before[runs] = i ? v->masks[i - 1] : NULL;
        gone[runs - goes_on] = v->masks[i];
        runs += !goes_on;
    }
    for (uint32_t i = 0; i < v->words; i += EXL2__GRAMMAR_VOCAB_BLOCK) {
        uint32_t block[EXL2__GRAMMAR_VOCAB_BLOCK], clear[EXL2__GRAMMAR_VOCAB_BLOCK] = { 0 };
        exl2__grammar_mask_restless(w, kinds, used, i, block);
        for (uint32_t k = 0; k < runs; k++) {
            for (uint32_t n = 0; n < EXL2__GRAMMAR_VOCAB_BLOCK; n++) {
                clear[n] |= gone[k][i + n] & ~(before[k] ? before[k][i + n] : 0);
            }
        }
        for (uint32_t n = 0; n < EXL2__GRAMMAR_VOCAB_BLOCK; n++) {
            clear[n] = w->bits[i + n] & ~(clear[n] & w->due[i + n] & ~block[n]);
        }
        memcpy(w->bits + i, clear, sizeof clear);
        memcpy(w->due + i, block, sizeof block);
    }
}

/* Checks the TEXT tokens in w->due by lengths: clears the bits of calm ones, and leaves the others there. false: those
   would be too many, and nothing was done. */
EXL2__PRIVATE bool exl2__grammar_mask_by_lengths(exl2__grammar_mask *m, exl2__grammar_mask_walk *w, uint32_t sure)
{
    const uint32_t *kinds[2][EXL2__GRAMMAR_VOCAB_CHARS + 1];
    uint32_t restless, used[2], stay[2], count[2] = { 0, UINT32_MAX }, best = 0;
    bool longs;
    if (sure >= EXL2__GRAMMAR_VOCAB_SHORT) {
        return true; /* only longer ones are due */
    }
    for (uint32_t i = 0; i < 2 && (i == 0 || count[0] > EXL2__GRAMMAR_MASK_EACH); i++) {
        stay[i] = exl2__grammar_mask_line(m, w, i, &restless, &longs);
        used[i] = exl2__grammar_mask_kinds(m, restless, longs, kinds[i]);
        count[i] = exl2__grammar_mask_count_due(m, w, kinds[i], used[i]);
        best = count[1] < count[0];
    }
    if (count[best] > m->vocab->vocab->id_count / EXL2__GRAMMAR_MASK_RESTLESS) {
        return false;
    }
    exl2__grammar_mask_clear(m, w, kinds[best], used[best], stay[best]);
    return true;
}

#endif

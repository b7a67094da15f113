/* grammar_forced.h: the token that a grammar leaves no choice about. Where only one byte may follow, and only one after
   it, and so on, the text goes on with that string, and the forced token is the longest token inside of it.
   takes: a grammar's states and the place of a text in them; a model's token table.
   gives: exl2__grammar_forced_token.

   Nothing is forced where the text may also end, nor where a token may begin with the whole string and go on with one
   of several bytes: `":"` and `": "` both begin with the string `":`, and a model that has to say `":` alone, as it
   never does by itself, goes on badly. So a token is forced only if all tokens that may follow lie inside the string.

   The walk goes through the tries of all groups side by side, one byte at a time, and ends when no longer token can
   follow: after as many bytes as the longest token has, at most. */
#ifndef EXL2__GRAMMAR_FORCED_H
#define EXL2__GRAMMAR_FORCED_H

#include "grammar_place.h"

/* The nodes [begin, end) of one trie that may continue the string. */
typedef struct exl2__grammar_forced_trie {
    uint32_t begin, end;
} exl2__grammar_forced_trie;

/* The byte of a class, or -1 if the class has several. Classes ascend with the bytes. */
EXL2__PRIVATE int32_t exl2__grammar_forced_class_byte(const exl2__grammar_link *link, uint32_t wanted)
{
    uint32_t low = 0, high = 255;
    while (low < high) { /* the first byte of the class */
        uint32_t middle = (low + high) / 2;
        if (link->class_of[middle] < wanted) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < 255 && link->class_of[low + 1] == wanted ? -1 : (int32_t)low;
}

#define EXL2__GRAMMAR_FORCED_NONE (-1)
#define EXL2__GRAMMAR_FORCED_FULL (-2)

/* The class of bytes that all parses of a state wait for, or VOCAB_NONE. */
EXL2__PRIVATE uint32_t exl2__grammar_forced_class(const exl2__grammar_state *s, const exl2__grammar_state_one *one)
{
    const exl2__grammar_state_item *items = (const exl2__grammar_state_item *)(const void *)(s->pool + one->items);
    uint32_t only = s->link->nodes[items[0].node].low;
    for (uint32_t i = 0; i < one->count; i++) { /* at most states the first node says no, before a row is needed */
        const exl2__grammar_code_node *n = &s->link->nodes[items[i].node];
        if (n->low != only || n->high != only) {
            return EXL2__GRAMMAR_VOCAB_NONE;
        }
    }
    return only;
}

/* The only byte that may follow a state. NONE: several may follow, or the text may end here. FULL: no room for the next
   state. *next: the state after the byte. A collection may change *state. */
EXL2__PRIVATE int32_t exl2__grammar_forced_byte(exl2__grammar_mask *m, uint32_t *state, uint32_t *next)
{
    const exl2__grammar_state *s = &m->states;
    const exl2__grammar_state_one *one = &s->states[*state];
    if (one->may_end || one->count == 0) {
        return EXL2__GRAMMAR_FORCED_NONE;
    }
    uint32_t only = s->whole ? one->items : exl2__grammar_forced_class(s, one);
    int32_t byte = only == EXL2__GRAMMAR_VOCAB_NONE ? -1 : exl2__grammar_forced_class_byte(s->link, only);
    const uint32_t *rows[1];
    if (byte < 0) {
        return EXL2__GRAMMAR_FORCED_NONE;
    }
    if (!exl2__grammar_mask_row(m, state, rows, 1)) {
        return EXL2__GRAMMAR_FORCED_FULL;
    }
    *next = rows[0][only];
    return *next == EXL2__GRAMMAR_STATE_DEAD ? EXL2__GRAMMAR_FORCED_NONE : byte;
}

/* Moves a trie on by a byte. Returns the lowest token that ends with it, or NONE. */
EXL2__PRIVATE uint32_t exl2__grammar_forced_step(const exl2__grammar_vocab *v, exl2__grammar_forced_trie *t,
                                                 uint8_t byte)
{
    uint32_t token = EXL2__GRAMMAR_VOCAB_NONE, i = t->begin, end = t->end;
    t->begin = t->end = 0;
    for (; i < end && v->nodes[i].byte <= byte; i = v->nodes[i].skip) { /* siblings ascend */
        if (v->nodes[i].byte == byte) { /* tokens with equal bytes are siblings; the last one has the longer tokens */
            token = token == EXL2__GRAMMAR_VOCAB_NONE ? v->nodes[i].token : token;
            t->begin = i + 1;
            t->end = v->nodes[i].skip;
        }
    }
    return token;
}

/* Whether a token may begin with the string so far and go on with a byte that the state allows. *full: no room. */
EXL2__PRIVATE bool exl2__grammar_forced_is_crossed(exl2__grammar_mask *m, uint32_t *state,
                                                   const exl2__grammar_forced_trie *tries, bool *full)
{
    const uint32_t *rows[1];
    *full = !exl2__grammar_mask_row(m, state, rows, 1);
    for (uint32_t k = 0; k < EXL2__GRAMMAR_VOCAB_GROUPS && !*full; k++) {
        for (uint32_t i = tries[k].begin; i < tries[k].end; i = m->vocab->nodes[i].skip) {
            if (rows[0][m->states.link->class_of[m->vocab->nodes[i].byte]] != EXL2__GRAMMAR_STATE_DEAD) {
                return true;
            }
        }
    }
    return false;
}

/* *token: the forced token, with which the text can end after at most `left` tokens, this one included; -1: none.
   EXL2_ERR_BUDGET: as exl2__grammar_mask_get. A collection may renumber the place's state. */
EXL2__COLD
EXL2__PRIVATE exl2_result exl2__grammar_forced_token(exl2__ctx *c, exl2__grammar_mask *m,
                                                     const exl2__grammar_mask_place *place, uint32_t left,
                                                     exl2_token *token)
{
    exl2__grammar_forced_trie tries[EXL2__GRAMMAR_VOCAB_GROUPS];
    uint32_t state = place->state, next = EXL2__GRAMMAR_STATE_DEAD;
    *token = -1;
    for (uint32_t i = 0; i < EXL2__GRAMMAR_VOCAB_GROUPS; i++) {
        tries[i] = (exl2__grammar_forced_trie){ m->vocab->begin[i], m->vocab->begin[i + 1] };
    }
    for (bool more = left > 0; more; state = next) {
        int32_t byte = exl2__grammar_forced_byte(m, &state, &next);
        if (byte < 0) {
            bool full = byte == EXL2__GRAMMAR_FORCED_FULL;
            bool crossed = !full && *token >= 0 && exl2__grammar_forced_is_crossed(m, &state, tries, &full);
            *token = crossed || full ? -1 : *token;
            return full ? exl2__grammar_mask_full(c) : EXL2_OK;
        }
        more = false;
        for (uint32_t i = 0; i < EXL2__GRAMMAR_VOCAB_GROUPS; i++) {
            uint32_t found = exl2__grammar_forced_step(m->vocab, &tries[i], (uint8_t)byte);
            bool ends = found != EXL2__GRAMMAR_VOCAB_NONE && m->states.states[next].tokens <= left - 1;
            *token = ends ? (exl2_token)found : *token;
            more |= tries[i].begin < tries[i].end;
        }
    }
    return EXL2_OK;
}

#endif

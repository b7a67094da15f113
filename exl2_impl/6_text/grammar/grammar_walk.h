/* grammar_walk.h: what is kept of the masks of a grammar: a bit per token that it allows after a state. A mask is made
   by a walk of the vocabulary, which can stop after any node; a collection of states in its middle keeps its path.
   takes: a linked automaton, a model's token table.
   gives: exl2__grammar_mask, exl2__grammar_mask_walk, _place, _bound, _slot, _bits, _collect, _row, _add. */
#ifndef EXL2__GRAMMAR_WALK_H
#define EXL2__GRAMMAR_WALK_H

#include "grammar_state.h"
#include "grammar_vocab.h"

#define EXL2__GRAMMAR_MASK_PLACES_MAX 256u /* jobs that use one grammar at a time */
#define EXL2__GRAMMAR_MASK_FACTORS_MAX (EXL2_JOB_GRAMMARS + 1u)
#define EXL2__GRAMMAR_MASK_ALIKE 3u /* lengths up to which states of a grammar with factors are compared */
#define EXL2__GRAMMAR_MASK_CACHE_MIN (1u << 20) /* a counted string in a schema needs about 600 states per mask */

/* The state that one text has reached. The grammar lists all joined places, because a collection renumbers states. */
typedef struct exl2__grammar_mask_place {
    uint32_t state;
    uint32_t of[EXL2__GRAMMAR_MASK_FACTORS_MAX]; /* its states in the factors */
} exl2__grammar_mask_place;

/* What is known of the texts that may follow a state of a grammar with factors. */
typedef struct exl2__grammar_mask_bound {
    uint32_t reach; /* characters up to which no text that all factors allow leads to a dead end */
    uint32_t text;  /* the same for texts of TEXT characters only (grammar_vocab.h) */
    uint32_t needs; /* tokens that an end needs after any text, at most */
    uint32_t nodes; /* of the tries below the first bytes that may follow */
    uint32_t alike[EXL2__GRAMMAR_MASK_ALIKE]; /* equal numbers: the same texts may follow, of up to SHORT characters, of
                                                 up to LONG (grammar_vocab.h), of those of the longest token */
} exl2__grammar_mask_bound;

typedef struct exl2__grammar_mask_slot {
    uint32_t state; /* 0: free */
    uint32_t needs; /* the mask is valid while at least this number of tokens is left after the next one */
    uint32_t serial; /* of the mask: no other of this grammar has the same */
} exl2__grammar_mask_slot;

#define EXL2__GRAMMAR_MASK_RANGES_MAX 7u /* of trie nodes: five of TEXT tokens, two of others */

/* A mask that is being made: ranges of the trie that are walked, node after node. It can stop after any node. */
typedef struct exl2__grammar_mask_walk {
    uint32_t path[EXL2__GRAMMAR_VOCAB_BYTES_MAX + 1]; /* states after the bytes before `node`; [0]: the mask's state */
    uint32_t begin[EXL2__GRAMMAR_MASK_RANGES_MAX], end[EXL2__GRAMMAR_MASK_RANGES_MAX];
    uint32_t range_count, range, node;
    uint32_t left;  /* tokens that may follow one that is allowed */
    uint32_t needs; /* the most that such a token needs */
    uint32_t *bits;
    bool checks;    /* instead, the tokens that the factors allow are checked (grammar_check.h), by the members below */
    uint32_t *due;  /* bits of the tokens to follow one by one */
    uint32_t word;  /* the next word of `due` */
    uint32_t shapes_end; /* then shapes of tokens are checked: nodes from `node` up to this one */
    uint32_t longest; /* characters of the longest TEXT token that factors allow; UINT32_MAX: more than SHORT */
} exl2__grammar_mask_walk;

typedef struct exl2__grammar_mask {
    const exl2__grammar_vocab *vocab;
    exl2__grammar_state states;
    exl2__grammar_mask_slot *slots;
    uint32_t *bits;   /* [slots + 5][words]; after the slots: of a text that must end soon; of `part`; `common`; `due`
                         of `part`, and of other walks */
    exl2__grammar_mask_walk part; /* a mask that is made in parts, if part_live */
    bool part_live, part_done;
    bool stuck;       /* even after a collection there was no room for a part: exl2__grammar_mask_get may fail, too */
    uint32_t slot_count, slot_next;
    /* states of the joined places; during a collection in the middle of a walk, the states of its path follow them */
    uint32_t *places[EXL2__GRAMMAR_MASK_PLACES_MAX + EXL2__GRAMMAR_VOCAB_BYTES_MAX + 1];
    uint32_t place_count;
    struct exl2__grammar_mask *factors[EXL2__GRAMMAR_MASK_FACTORS_MAX]; /* of grammars whose common texts these are */
    uint32_t factor_count;                  /* 0: it is a grammar of its own */
    const exl2__grammar_mask_bound *bounds; /* [states] with factors */
    uint16_t *alike[EXL2__GRAMMAR_MASK_ALIKE]; /* [states] with factors: slot + 1 of the newest mask by that number */
    uint32_t serial;                        /* of the newest mask */
    uint32_t common[EXL2__GRAMMAR_MASK_FACTORS_MAX]; /* serials of the masks whose common bits the last bits are */
    bool common_live;                                /* these bits are valid */
    uint64_t hits, shares, walks; /* masks found; made from the mask of a state with reset counts; made from nothing */
    uint64_t nodes, collections;  /* trie nodes visited; collections of states */
    exl2__arena memory;
} exl2__grammar_mask;

static inline uint32_t *exl2__grammar_mask_bits(const exl2__grammar_mask *m, const exl2__grammar_mask_slot *slot)
{
    return m->bits + (size_t)(slot - m->slots) * m->vocab->words;
}

/* Forgets all masks, and all states but those of the places and of the path, if a walk gives one. */
EXL2__COLD
EXL2__PRIVATE void exl2__grammar_mask_collect(exl2__grammar_mask *m, uint32_t *path, uint32_t path_count)
{
    if (m->states.whole) {
        return; /* nothing was made, so there is nothing to forget */
    }
    m->part_live = m->part_live && path == m->part.path; /* else its states have other numbers now */
    for (uint32_t i = 0; i < path_count; i++) {
        m->places[m->place_count + i] = &path[i];
    }
    exl2__grammar_state_collect(&m->states, m->places, m->place_count + path_count);
    memset(m->slots, 0, m->slot_count * sizeof *m->slots);
    m->collections++;
}

/* The row of the last state of a walk's path. If there is no room, collects states first: then the states of the path
   get new numbers, and the other rows are forgotten. NULL: full even after that. */
EXL2__PRIVATE const uint32_t *exl2__grammar_mask_row(exl2__grammar_mask *m, uint32_t *path, const uint32_t **rows,
                                                     uint32_t count)
{
    const uint32_t *row = exl2__grammar_state_row(&m->states, path[count - 1]);
    if (!row) {
        exl2__grammar_mask_collect(m, path, count);
        memset(rows, 0, count * sizeof *rows);
        row = exl2__grammar_state_row(&m->states, path[count - 1]);
    }
    return rows[count - 1] = row;
}

/* Adds groups [group, last] to what is walked. */
EXL2__PRIVATE void exl2__grammar_mask_add(const exl2__grammar_mask *m, exl2__grammar_mask_walk *w, uint32_t group,
                                          uint32_t last)
{
    w->begin[w->range_count] = m->vocab->begin[group];
    w->end[w->range_count++] = m->vocab->begin[last + 1];
}

#endif

/* grammar_levels.h: which texts of whole characters may follow a state, found without walking the vocabulary.
   takes: states of a linked automaton; the tokens that may be left after a text.
   gives: exl2__grammar_levels_groups, exl2__grammar_levels_explore; exl2__grammar_levels_text, _wide.

   To make a mask, the tries of the vocabulary could be walked token by token, but that is slow. Most tokens are TEXT:
   whole characters that a JSON string holds unescaped. For these, exl2__grammar_levels_explore looks only at states,
   level by level. Level n is the set of states that texts of n characters reach, without the states of lower levels.
   Inside a string of at most three characters, where every character is allowed, there is one state on each level:

       state --any character--> A --any character--> B --any character--> C --any character--> no state
       level                    1                    2                    3                    4

   Every character leads on up to level 3: these levels are open. So all TEXT tokens of 1 to 3 characters are allowed,
   if enough tokens are left to end the text after them. No character leads on to level 4: it has ended, and no TEXT
   token of 4 or more characters is allowed. A level without new states is closed: longer texts reach only known states.
   In a string of any length this is level 2. A level to which only some characters lead on is mixed: TEXT tokens of its
   length and of greater lengths are walked. */
#ifndef EXL2__GRAMMAR_LEVELS_H
#define EXL2__GRAMMAR_LEVELS_H

#include "grammar_state.h"

#define EXL2__GRAMMAR_LEVELS_TEXTS_MAX 64u /* states that one exploration holds, on all levels together */

/* The states that texts of TEXT characters reach, in the order of their levels. */
typedef struct exl2__grammar_levels_text {
    uint32_t seen[EXL2__GRAMMAR_LEVELS_TEXTS_MAX], count;
    uint32_t level;       /* index in `seen` of the first state of this level */
    uint32_t least, most; /* fewest and most tokens that a state seen so far needs to end */
    bool blocked, passed; /* on this level, some character leads nowhere; some character leads on */
    bool again;           /* a state of a lower level was reached again */
    bool full;            /* the block has no room for another state */
} exl2__grammar_levels_text;

/* Where the characters lead from the states of one level. The first level is the state itself. */
typedef enum exl2__grammar_levels_kind {
    EXL2__GRAMMAR_LEVELS_OPEN,   /* all of them lead on, some to new states: the next level */
    EXL2__GRAMMAR_LEVELS_CLOSED, /* all of them lead on, but to states of known levels only */
    EXL2__GRAMMAR_LEVELS_MIXED,  /* some lead on; or there are too many states to know */
    EXL2__GRAMMAR_LEVELS_ENDED,  /* none leads on */
    EXL2__GRAMMAR_LEVELS_FULL    /* unknown: the block has no room for the states */
} exl2__grammar_levels_kind;

typedef enum exl2__grammar_levels_verdict {
    EXL2__GRAMMAR_LEVELS_WALK, /* some, perhaps: walk the trie */
    EXL2__GRAMMAR_LEVELS_ALL,
    EXL2__GRAMMAR_LEVELS_NONE
} exl2__grammar_levels_verdict;

/* What the levels say about TEXT tokens of each length, and about CONTROL tokens. */
typedef struct exl2__grammar_levels_groups {
    uint8_t verdicts[EXL2__GRAMMAR_VOCAB_LENGTHS];
    uint32_t most[EXL2__GRAMMAR_VOCAB_LENGTHS];
    bool no_control; /* no control character is allowed after any explored text, so no CONTROL token is */
} exl2__grammar_levels_groups;

EXL2__PRIVATE void exl2__grammar_levels_reach(exl2__grammar_state *s, exl2__grammar_levels_text *t, uint32_t state)
{
    uint32_t tokens = s->states[state].tokens;
    for (uint32_t i = 0; i < t->count; i++) {
        if (t->seen[i] == state) {
            t->again = t->again || i < t->level;
            return;
        }
    }
    if (t->count == EXL2__GRAMMAR_LEVELS_TEXTS_MAX) { /* too many states: treated as if the character led nowhere */
        t->blocked = true;
    } else {
        t->seen[t->count++] = state;
        t->least = exl2__min32(t->least, tokens);
        t->most = exl2__max32(t->most, tokens);
    }
}

/* Follows bytes low..high from `state`, then `more` continuation bytes of UTF-8. Recurses at most three deep. */
EXL2__COLD
EXL2__PRIVATE void exl2__grammar_levels_bytes(exl2__grammar_state *s, exl2__grammar_levels_text *t, uint32_t state,
                                            uint8_t low, uint8_t high, uint32_t more)
{
    const uint8_t *class_of = s->link->class_of;
    const uint32_t *row = exl2__grammar_state_row(s, state);
    t->full = t->full || !row;
    uint32_t before = EXL2__GRAMMAR_STATE_FULL;
    for (uint32_t k = class_of[low]; !t->full && !(t->blocked && t->passed) && k <= class_of[high]; k++) {
        if (row[k] == before) {
            continue;
        }
        before = row[k];
        t->blocked = t->blocked || before == EXL2__GRAMMAR_STATE_DEAD;
        t->passed = t->passed || before != EXL2__GRAMMAR_STATE_DEAD;
        if (before == EXL2__GRAMMAR_STATE_DEAD) {
            continue;
        }
        if (more) {
            exl2__grammar_levels_bytes(s, t, before, 0x80, 0xBF, more - 1);
        } else {
            exl2__grammar_levels_reach(s, t, before);
        }
    }
}

/* Follows all characters beyond ASCII from `state`. */
EXL2__PRIVATE void exl2__grammar_levels_wide(exl2__grammar_state *s, exl2__grammar_levels_text *t, uint32_t state)
{
    static const uint8_t parts[][5] = { /* range of the first byte, range of the second byte, number of further bytes */
        { 0xC2, 0xDF, 0x80, 0xBF, 0 }, { 0xE0, 0xE0, 0xA0, 0xBF, 1 }, { 0xE1, 0xEC, 0x80, 0xBF, 1 },
        { 0xED, 0xED, 0x80, 0x9F, 1 }, { 0xEE, 0xEF, 0x80, 0xBF, 1 }, { 0xF0, 0xF0, 0x90, 0xBF, 2 },
        { 0xF1, 0xF3, 0x80, 0xBF, 2 }, { 0xF4, 0xF4, 0x80, 0x8F, 2 },
    };
    for (size_t i = 0; i < EXL2__COUNT(parts) && !(t->blocked && t->passed) && !t->full; i++) {
        const uint32_t *row = exl2__grammar_state_row(s, state);
        const uint8_t *class_of = s->link->class_of;
        uint32_t before = EXL2__GRAMMAR_STATE_FULL;
        for (uint32_t k = class_of[parts[i][0]]; row && k <= class_of[parts[i][1]]; k++) {
            if (row[k] == EXL2__GRAMMAR_STATE_DEAD) {
                t->blocked = true;
            } else if (row[k] != before) {
                before = row[k];
                t->passed = true;
                exl2__grammar_levels_bytes(s, t, before, parts[i][2], parts[i][3], parts[i][4]);
            }
        }
    }
}

/* Follows all TEXT characters from `state`. */
EXL2__PRIVATE void exl2__grammar_levels_characters(exl2__grammar_state *s, exl2__grammar_levels_text *t, uint32_t state)
{
    exl2__grammar_levels_bytes(s, t, state, 0x20, 0x21, 0);
    exl2__grammar_levels_bytes(s, t, state, 0x23, 0x5B, 0);
    exl2__grammar_levels_bytes(s, t, state, 0x5D, 0x7F, 0);
    exl2__grammar_levels_wide(s, t, state);
}

/* Is a control character allowed at `state`? */
EXL2__PRIVATE bool exl2__grammar_levels_controls(exl2__grammar_state *s, uint32_t state)
{
    const uint32_t *row = exl2__grammar_state_row(s, state);
    for (uint32_t k = 0; row && k <= s->link->class_of[0x1F]; k++) {
        if (row[k] != EXL2__GRAMMAR_STATE_DEAD) {
            return true;
        }
    }
    return false;
}

/* Follows every character from the states of the newest level, which makes the next level; from `state` if `first`. */
EXL2__PRIVATE exl2__grammar_levels_kind exl2__grammar_levels_next(exl2__grammar_state *s, exl2__grammar_levels_text *t,
                                                                     uint32_t state, bool first)
{
    uint32_t begin = t->level, end = t->count;
    t->level = end;
    t->passed = false;
    if (first) {
        exl2__grammar_levels_characters(s, t, state);
    }
    for (uint32_t i = begin; i < end && !(t->blocked && t->passed) && !t->full; i++) {
        exl2__grammar_levels_characters(s, t, t->seen[i]);
    }
    if (t->full) {
        return EXL2__GRAMMAR_LEVELS_FULL;
    }
    if (t->blocked) {
        return t->passed ? EXL2__GRAMMAR_LEVELS_MIXED : EXL2__GRAMMAR_LEVELS_ENDED;
    }
    return t->count == end ? EXL2__GRAMMAR_LEVELS_CLOSED : EXL2__GRAMMAR_LEVELS_OPEN;
}

/* The verdict on texts of a length that all characters lead to, if `left` tokens may follow them. */
EXL2__PRIVATE exl2__grammar_levels_verdict exl2__grammar_levels_verdict_of(const exl2__grammar_levels_text *t,
                                                                         uint32_t left)
{
    if (t->most <= left) {
        return EXL2__GRAMMAR_LEVELS_ALL;
    }
    return t->least > left ? EXL2__GRAMMAR_LEVELS_NONE : EXL2__GRAMMAR_LEVELS_WALK;
}

/* Is no control character allowed at `state`, nor at any explored state? */
EXL2__PRIVATE bool exl2__grammar_levels_lacks_controls(exl2__grammar_state *s, const exl2__grammar_levels_text *t,
                                                     uint32_t state)
{
    bool lacks = !exl2__grammar_levels_controls(s, state);
    for (uint32_t i = 0; i < t->count && lacks; i++) {
        lacks = !exl2__grammar_levels_controls(s, t->seen[i]);
    }
    return lacks;
}

/* Explores level by level, as described at the head of this file, until a level is MIXED or ENDED. verdicts[n] is
   about texts of n + 1 characters; the last two entries are about ranges of lengths, so only a CLOSED level settles
   them. Lengths without a verdict are walked. `left`: tokens that may come after the next one. false: full. */
EXL2__COLD
EXL2__PRIVATE bool exl2__grammar_levels_explore(exl2__grammar_state *s, uint32_t state, uint32_t left,
                                              exl2__grammar_levels_groups *g)
{
    exl2__grammar_levels_text t = { .least = EXL2__GRAMMAR_LINK_NEVER };
    exl2__grammar_levels_kind level = EXL2__GRAMMAR_LEVELS_OPEN;
    uint32_t length = 0;
    *g = (exl2__grammar_levels_groups){ { 0 }, { 0 }, false };
    for (; length < EXL2__GRAMMAR_VOCAB_LENGTHS; length++) {
        level = exl2__grammar_levels_next(s, &t, state, length == 0);
        if (level == EXL2__GRAMMAR_LEVELS_FULL) {
            return false;
        }
        if (level == EXL2__GRAMMAR_LEVELS_MIXED || level == EXL2__GRAMMAR_LEVELS_ENDED) {
            break;
        }
        if (level == EXL2__GRAMMAR_LEVELS_CLOSED || length < EXL2__GRAMMAR_VOCAB_SHORT) {
            g->verdicts[length] = (uint8_t)exl2__grammar_levels_verdict_of(&t, left);
            g->most[length] = t.most;
        }
    }
    bool ended = level == EXL2__GRAMMAR_LEVELS_ENDED && !t.again; /* no text of this length or more is allowed */
    for (uint32_t i = length; ended && i < EXL2__GRAMMAR_VOCAB_LENGTHS; i++) {
        g->verdicts[i] = EXL2__GRAMMAR_LEVELS_NONE;
    }
    bool all_seen = ended || !t.blocked; /* no text leads to a state that is not in t.seen */
    g->no_control = all_seen && exl2__grammar_levels_lacks_controls(s, &t, state);
    return !s->full;
}

#endif

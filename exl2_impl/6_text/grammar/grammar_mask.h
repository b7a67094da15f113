/* grammar_mask.h: masks of the tokens that a grammar allows next after each of its states, one bit per token. Most
   tokens need no walk of the vocabulary (grammar_levels.h). grammar_place.h makes the masks of texts.
   takes: a linked automaton, a model's token table.
   gives: exl2__grammar_mask, exl2__grammar_mask_begin, _share, _begin_check, _check, _run, _cached, _slot_of,
          _free_slot, _use_slot, _collect. */
#ifndef EXL2__GRAMMAR_MASK_H
#define EXL2__GRAMMAR_MASK_H

#include "grammar_levels.h"
#include "grammar_reset.h"

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
    uint32_t reach; /* up to so many characters, what all factors allow leads to no dead end */
    uint32_t text;  /* the same of texts of TEXT characters only (grammar_vocab.h) */
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
    bool checks;    /* instead, what factors allow is checked: */
    uint32_t *due;  /* tokens to follow one by one, */
    uint32_t word;  /* from this word on; */
    uint32_t shapes_end; /* then shapes of tokens, from `node` on; */
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
    uint32_t common[EXL2__GRAMMAR_MASK_FACTORS_MAX]; /* serials of the masks whose common bits are the last bits, */
    bool common_live;                                /* if they are there */
    uint64_t hits, shares, walks; /* masks found; made from the mask of a state with reset counts; made from nothing */
    uint64_t nodes, collections;  /* trie nodes visited; collections of states */
    exl2__arena memory;
} exl2__grammar_mask;

/* ---- masks ---- */

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

/* ---- checking what factors allow ----

   A token that all factors allow may lead to a dead end, or to a text that needs too many tokens to end. The grammar of
   their common texts says which do; all its states are there. TEXT tokens are checked in one of two ways:

   By lengths: most characters are calm, they lead from state to state in a line. In `(.*g){2}.*` all are calm but g. Of
   tokens with calm characters alone, the state of the line after so many characters says whether they stay. The others
   are followed one by one.

   By shapes (grammar_shapes.h), if these would be too many: down to where all that is below stays, or nothing does.
   Where the bytes of a shape lead to different states, the tokens of the shape are followed one by one. */

#define EXL2__GRAMMAR_MASK_EACH 256u   /* so many tokens that are not TEXT are followed one by one, not by shapes */
#define EXL2__GRAMMAR_MASK_CLEARED 8u  /* so many bits are cleared in the time of a node */
#define EXL2__GRAMMAR_MASK_RESTLESS 3u /* by lengths at most one in so many tokens is followed */

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
   text. most: about so many nodes. */
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

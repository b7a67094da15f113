/* grammar_state.h: the states of a walk through an automaton, made when they are reached, in a block of fixed size. A
   state is the set of all parses of the text so far. A parse is an item: a node that waits for a byte, with a stack of
   frames for the calls and loops that surround it.
   takes: a linked automaton; the bytes of memory to use.
   gives: exl2__grammar_state, exl2__grammar_state_open, _close, _start, _row, _next, _collect.
   owns:  one block, from open to close. */
#ifndef EXL2__GRAMMAR_STATE_H
#define EXL2__GRAMMAR_STATE_H

#include "grammar_link.h"

#define EXL2__GRAMMAR_STATE_DEAD 0u            /* the state without parses: the text does not match */
#define EXL2__GRAMMAR_STATE_FIRST 1u           /* the start, if all states are made at once */
#define EXL2__GRAMMAR_STATE_FULL UINT32_MAX    /* returned instead of a state: no room to make it */
#define EXL2__GRAMMAR_STATE_PARSES_MIN 4096u   /* least value of parses_max */
/* States of PRUNE_MIN to PRUNE_MAX parses are searched for redundant ones. The search is quadratic. */
#define EXL2__GRAMMAR_STATE_PRUNE_MIN 64u
#define EXL2__GRAMMAR_STATE_PRUNE_MAX 512u

/* What follows when a call or a loop's body ends. Equal frames are stored once. A frame's `below` is a lower number. */
typedef struct exl2__grammar_state_frame {
    uint32_t node, count; /* a CALL; or a REPEAT with the number of bodies begun */
    uint32_t below;       /* the surrounding frame; 0 = the end of the root */
    uint32_t tokens;      /* nearly the fewest tokens from the end of the body to the end of the text */
    uint32_t depth;
} exl2__grammar_state_frame;

typedef struct exl2__grammar_state_item {
    uint32_t node, frame;
} exl2__grammar_state_item;

typedef struct exl2__grammar_state_one {
    uint32_t items, count; /* index of its parses in pool; their number. Of a whole set of states: the class of the one
                              byte that may follow, or VOCAB_NONE; how many classes of bytes may follow */
    uint32_t row;          /* index in pool of the next state for each byte class; 0 = not computed yet */
    uint32_t tokens;       /* nearly the fewest tokens to the end of the text */
    uint32_t mask;         /* slot + 1 of its mask; 0 = none */
    bool may_end, kept;
} exl2__grammar_state_one;

/* parses_max bounds the pairs of node and frame that are visited to close one set. Without calls and counted loops
   there are at most as many as the automaton has nodes, and parses_max is never less. Calls and counts can multiply
   the pairs; a byte that leads to more than parses_max of them is treated as a byte that does not match. */

typedef struct exl2__grammar_state {
    const exl2__grammar_link *link;
    exl2__grammar_state_frame *frames;
    exl2__grammar_state_one *states;
    uint32_t *pool, *frame_slots, *state_slots;
    uint32_t frame_count, frame_room, state_count, state_room, pool_used, pool_room; /* state_, frame_room: 2^n */
    struct { uint32_t node, frame, stamp; } *seen;
    exl2__grammar_state_item *work, *items; /* [parses_max] parses to visit; parses of the closed set */
    uint32_t work_count, item_count, seen_count, stamp;
    uint32_t parses_max, seen_room; /* seen_room is a power of two */
    bool may_end, full;
    bool too_many; /* the set needs more than parses_max */
    bool whole;    /* all states are made at once, each with its row, and stay: those of grammar_common.h, without
                      parses */
    exl2__arena memory;
} exl2__grammar_state;

EXL2__PRIVATE void exl2__grammar_state_layout(exl2__grammar_state *s, exl2__arena *a)
{
    s->frames = (exl2__grammar_state_frame *)exl2__arena_alloc(a, (uint64_t)s->frame_room * sizeof *s->frames);
    s->states = (exl2__grammar_state_one *)exl2__arena_alloc(a, (uint64_t)s->state_room * sizeof *s->states);
    s->pool = (uint32_t *)exl2__arena_alloc(a, (uint64_t)s->pool_room * 4);
    s->frame_slots = (uint32_t *)exl2__arena_alloc_zeroed(a, (uint64_t)s->frame_room * 8);
    s->state_slots = (uint32_t *)exl2__arena_alloc_zeroed(a, (uint64_t)s->state_room * 8);
    void *seen = exl2__arena_alloc_zeroed(a, (uint64_t)s->seen_room * sizeof *s->seen);
    memcpy(&s->seen, &seen, sizeof seen);
    s->work = (exl2__grammar_state_item *)exl2__arena_alloc(a, (uint64_t)s->parses_max * sizeof *s->work);
    s->items = (exl2__grammar_state_item *)exl2__arena_alloc(a, (uint64_t)s->parses_max * sizeof *s->items);
}

EXL2__PRIVATE void exl2__grammar_state_close(exl2__ctx *c, exl2__grammar_state *s)
{
    exl2__arena_close(c, &s->memory);
    *s = (exl2__grammar_state){ 0 };
}

static inline uint32_t exl2__grammar_state_mix(uint32_t hash, uint32_t value)
{
    hash = (hash ^ value) * 0x9E3779B1u;
    return hash ^ hash >> 15;
}

/* ---- frames ---- */

/* Nearly the fewest tokens from the end of a call, or of body number `count` of a loop, to the end of the text. */
EXL2__PRIVATE uint32_t exl2__grammar_state_rest(const exl2__grammar_state *s, uint32_t node, uint32_t count,
                                                uint32_t below)
{
    const exl2__grammar_link *g = s->link;
    const exl2__grammar_code_node *n = &g->nodes[node];
    uint32_t tokens = exl2__grammar_link_sum(g->tokens[n->next], s->frames[below].tokens);
    if (n->kind == EXL2__GRAMMAR_CODE_REPEAT && count < n->min) {
        uint32_t bodies = exl2__grammar_link_times(n->min - count, g->tokens[n->other]);
        tokens = exl2__grammar_link_sum(tokens, bodies);
    }
    return tokens;
}

/* The frame with these values, found or made; 0: no room. */
EXL2__PRIVATE uint32_t exl2__grammar_state_frame_of(exl2__grammar_state *s, uint32_t node, uint32_t count,
                                                    uint32_t below)
{
    uint32_t mask = s->frame_room * 2 - 1;
    uint32_t hash = exl2__grammar_state_mix(exl2__grammar_state_mix(exl2__grammar_state_mix(1, node), count), below);
    uint32_t at = hash & mask;
    for (; s->frame_slots[at]; at = (at + 1) & mask) {
        const exl2__grammar_state_frame *f = &s->frames[s->frame_slots[at]];
        if (f->node == node && f->count == count && f->below == below) {
            return s->frame_slots[at];
        }
    }
    if (s->frame_count == s->frame_room) {
        s->full = true;
        return 0;
    }
    exl2__grammar_state_frame frame = { node, count, below, exl2__grammar_state_rest(s, node, count, below),
                                        s->frames[below].depth + 1 };
    EXL2__ASSERT(frame.depth <= EXL2__GRAMMAR_LINK_DEPTH_MAX && below < s->frame_count);
    s->frames[s->frame_count] = frame;
    s->frame_slots[at] = s->frame_count;
    return s->frame_count++;
}

/* ---- closing a set: everything that can be reached without a byte ---- */

EXL2__PRIVATE void exl2__grammar_state_push(exl2__grammar_state *s, uint32_t node, uint32_t frame)
{
    uint32_t mask = s->seen_room - 1;
    uint32_t at = exl2__grammar_state_mix(exl2__grammar_state_mix(2, node), frame) & mask;
    if (s->link->tokens[node] >= EXL2__GRAMMAR_LINK_HUGE
        || s->frames[frame].depth + s->link->depth[node] > EXL2__GRAMMAR_LINK_DEPTH_MAX) {
        return;
    }
    for (; s->seen[at].stamp == s->stamp; at = (at + 1) & mask) {
        if (s->seen[at].node == node && s->seen[at].frame == frame) {
            return;
        }
    }
    if (s->seen_count == s->parses_max) {
        s->too_many = true;
        return;
    }
    s->seen[at].node = node;
    s->seen[at].frame = frame;
    s->seen[at].stamp = s->stamp;
    s->seen_count++;
    s->work[s->work_count].node = node;
    s->work[s->work_count++].frame = frame;
}

/* Continues at a loop after `count` bodies: leaves the loop, begins another body, or both. */
EXL2__PRIVATE void exl2__grammar_state_loop(exl2__grammar_state *s, uint32_t node, uint32_t count, uint32_t below)
{
    const exl2__grammar_code_node *n = &s->link->nodes[node];
    if (count >= n->min) {
        exl2__grammar_state_push(s, n->next, below);
    }
    if (count < n->max) {
        bool counts = n->max != EXL2__GRAMMAR_CODE_ENDLESS || count < n->min;
        uint32_t frame = exl2__grammar_state_frame_of(s, node, count + counts, below);
        if (frame) {
            exl2__grammar_state_push(s, n->other, frame);
        }
    }
}

EXL2__PRIVATE void exl2__grammar_state_visit(exl2__grammar_state *s, uint32_t node, uint32_t frame)
{
    const exl2__grammar_code_node *n = &s->link->nodes[node];
    exl2__grammar_state_frame f = s->frames[frame];
    switch ((exl2__grammar_code_kind)n->kind) {
    case EXL2__GRAMMAR_CODE_BYTES:
        s->items[s->item_count].node = node;
        s->items[s->item_count++].frame = frame;
        break;
    case EXL2__GRAMMAR_CODE_SPLIT:
        exl2__grammar_state_push(s, n->other, frame);
        exl2__grammar_state_push(s, n->next, frame);
        break;
    case EXL2__GRAMMAR_CODE_JUMP:
        exl2__grammar_state_push(s, n->next, frame);
        break;
    case EXL2__GRAMMAR_CODE_CALL:
        frame = n->next ? exl2__grammar_state_frame_of(s, node, 0, frame) : frame;
        if (frame || !n->next) {
            exl2__grammar_state_push(s, n->other, frame);
        }
        break;
    case EXL2__GRAMMAR_CODE_REPEAT:
        exl2__grammar_state_loop(s, node, 0, frame);
        break;
    default:
        if (frame == 0) {
            s->may_end = true;
        } else if (s->link->nodes[f.node].kind == EXL2__GRAMMAR_CODE_REPEAT) {
            exl2__grammar_state_loop(s, f.node, f.count, f.below);
        } else {
            exl2__grammar_state_push(s, s->link->nodes[f.node].next, f.below);
        }
    }
}

EXL2__PRIVATE void exl2__grammar_state_begin_set(exl2__grammar_state *s)
{
    s->work_count = s->item_count = s->seen_count = 0;
    s->may_end = s->too_many = false;
    if (++s->stamp == 0) { /* the stamp has wrapped around: old entries must not look valid */
        memset(s->seen, 0, (uint64_t)s->seen_room * sizeof *s->seen);
        s->stamp = 1;
    }
}

EXL2__PRIVATE bool exl2__grammar_state_less(const exl2__grammar_state_item *a, const exl2__grammar_state_item *b)
{
    return a->node != b->node ? a->node < b->node : a->frame < b->frame;
}

EXL2__PRIVATE bool exl2__grammar_state_item_less(const void *items, uint32_t a, uint32_t b)
{
    const exl2__grammar_state_item *list = (const exl2__grammar_state_item *)items;
    return exl2__grammar_state_less(&list[a], &list[b]);
}

EXL2__PRIVATE void exl2__grammar_state_item_swap(void *items, uint32_t a, uint32_t b)
{
    exl2__grammar_state_item *list = (exl2__grammar_state_item *)items, item = list[a];
    list[a] = list[b];
    list[b] = item;
}

EXL2__PRIVATE uint32_t exl2__grammar_state_hash(const exl2__grammar_state_item *items, uint32_t count, bool may_end)
{
    uint32_t hash = may_end;
    for (uint32_t i = 0; i < count; i++) {
        hash = exl2__grammar_state_mix(exl2__grammar_state_mix(hash, items[i].node), items[i].frame);
    }
    return hash;
}

/* The state of the closed set in `items`, found or made; FULL: no room. */
EXL2__PRIVATE uint32_t exl2__grammar_state_intern(exl2__grammar_state *s)
{
    const exl2__grammar_state_item *items = s->items;
    uint32_t count = s->item_count, bytes = count * (uint32_t)sizeof *items, mask = s->state_room * 2 - 1;
    uint32_t at = exl2__grammar_state_hash(items, count, s->may_end) & mask;
    for (; s->state_slots[at]; at = (at + 1) & mask) {
        const exl2__grammar_state_one *one = &s->states[s->state_slots[at]];
        if (one->count == count && one->may_end == s->may_end && memcmp(s->pool + one->items, items, bytes) == 0) {
            return s->state_slots[at];
        }
    }
    if (s->state_count == s->state_room || s->pool_room - s->pool_used < 2 * count) {
        s->full = true;
        return EXL2__GRAMMAR_STATE_FULL;
    }
    exl2__grammar_state_one one = { s->pool_used, count, 0, EXL2__GRAMMAR_LINK_NEVER, 0, s->may_end, false };
    for (uint32_t i = 0; i < count; i++) {
        uint32_t tokens = s->link->tokens[items[i].node] + s->frames[items[i].frame].tokens;
        one.tokens = exl2__min32(one.tokens, tokens);
    }
    one.tokens = s->may_end ? 0 : one.tokens;
    memcpy(s->pool + s->pool_used, items, bytes);
    s->pool_used += 2 * count;
    s->states[s->state_count] = one;
    s->state_slots[at] = s->state_count;
    return s->state_count++;
}

/* For parses at the same node: does frame a allow every continuation that frame b allows, in no more tokens? It does
   if the stacks differ only in counts of loops of two kinds: loops with an upper bound that have run at least `min`
   times in both, and no more often in a; and loops without an upper bound that have run at least as often in a. */
EXL2__PRIVATE bool exl2__grammar_state_covers(const exl2__grammar_state *s, uint32_t a, uint32_t b)
{
    for (; a != b; a = s->frames[a].below, b = s->frames[b].below) {
        const exl2__grammar_state_frame *x = &s->frames[a], *y = &s->frames[b];
        const exl2__grammar_code_node *n = &s->link->nodes[x->node];
        if (!a || !b || x->node != y->node) {
            return false;
        }
        bool fewer = x->count <= y->count && x->count >= n->min && n->max != EXL2__GRAMMAR_CODE_ENDLESS;
        bool more = x->count >= y->count && n->max == EXL2__GRAMMAR_CODE_ENDLESS;
        if (x->count != y->count && !fewer && !more) {
            return false;
        }
    }
    return true;
}

/* Drops parses of a sorted set that another parse covers. ([a-z]{1,9} ?){1,99} has a parse for every way to cut a
   word, but only one or two of them matter. All pairs are compared, so the result does not depend on the numbering of
   the frames. */
EXL2__COLD
EXL2__PRIVATE void exl2__grammar_state_prune(exl2__grammar_state *s)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < s->item_count; i++) {
        exl2__grammar_state_item item = s->items[i];
        bool covered = false;
        uint32_t k = used;
        while (k > 0 && s->items[k - 1].node == item.node && !covered) {
            covered = exl2__grammar_state_covers(s, s->items[--k].frame, item.frame);
        }
        if (covered) {
            continue;
        }
        uint32_t kept = k; /* drop the earlier parses of this node that the new item covers */
        for (; k < used; k++) {
            s->items[kept] = s->items[k];
            kept += !exl2__grammar_state_covers(s, item.frame, s->items[k].frame);
        }
        s->items[kept] = item;
        used = kept + 1;
    }
    s->item_count = used;
}

/* Closes the parses pushed since begin_set. Returns their state: DEAD also if there are too many. */
EXL2__PRIVATE uint32_t exl2__grammar_state_finish_set(exl2__grammar_state *s)
{
    while (s->work_count && !s->too_many) {
        exl2__grammar_state_item item = s->work[--s->work_count];
        exl2__grammar_state_visit(s, item.node, item.frame);
    }
    if (s->full) {
        return EXL2__GRAMMAR_STATE_FULL;
    }
    if (s->too_many || (s->item_count == 0 && !s->may_end)) {
        return EXL2__GRAMMAR_STATE_DEAD;
    }
    if (s->item_count > 16) {
        exl2__sort_items order = { s->items, exl2__grammar_state_item_less, exl2__grammar_state_item_swap };
        exl2__sort(&order, s->item_count);
    } else {
        for (uint32_t i = 1; i < s->item_count; i++) {
            exl2__grammar_state_item item = s->items[i];
            uint32_t at = i;
            for (; at > 0 && exl2__grammar_state_less(&item, &s->items[at - 1]); at--) {
                s->items[at] = s->items[at - 1];
            }
            s->items[at] = item;
        }
    }
    if (s->item_count >= EXL2__GRAMMAR_STATE_PRUNE_MIN && s->item_count <= EXL2__GRAMMAR_STATE_PRUNE_MAX) {
        exl2__grammar_state_prune(s);
    }
    return exl2__grammar_state_intern(s);
}

/* ---- walking ---- */

EXL2__PRIVATE uint32_t exl2__grammar_state_start(exl2__grammar_state *s)
{
    if (s->whole) {
        return EXL2__GRAMMAR_STATE_FIRST;
    }
    exl2__grammar_state_begin_set(s);
    exl2__grammar_state_push(s, s->link->first, 0);
    return exl2__grammar_state_finish_set(s);
}

/* Computes a state's row. The next state can change only at a class where the range of one of its parses begins, or
   after one where such a range ends. */
EXL2__PRIVATE bool exl2__grammar_state_fill_row(exl2__grammar_state *s, uint32_t state)
{
    const exl2__grammar_state_one *one = &s->states[state];
    uint32_t classes = s->link->classes, count = one->count;
    if (s->pool_room - s->pool_used < classes) {
        s->full = true;
        return false;
    }
    uint32_t row = s->pool_used;
    const exl2__grammar_state_item *items = (const exl2__grammar_state_item *)(const void *)(s->pool + one->items);
    s->pool_used += classes;
    bool border[257] = { false };
    for (uint32_t i = 0; i < count; i++) {
        border[s->link->nodes[items[i].node].low] = true;
        border[s->link->nodes[items[i].node].high + 1] = true;
    }
    uint32_t next = EXL2__GRAMMAR_STATE_DEAD;
    for (uint32_t k = 0; k < classes; k++) {
        if (border[k]) {
            exl2__grammar_state_begin_set(s);
            for (uint32_t i = 0; i < count; i++) {
                const exl2__grammar_code_node *n = &s->link->nodes[items[i].node];
                if (n->low <= k && k <= n->high) {
                    exl2__grammar_state_push(s, n->next, items[i].frame);
                }
            }
            next = s->seen_count ? exl2__grammar_state_finish_set(s) : EXL2__GRAMMAR_STATE_DEAD;
            if (next == EXL2__GRAMMAR_STATE_FULL) {
                return false;
            }
        }
        s->pool[row + k] = next;
    }
    s->states[state].row = row;
    return true;
}

/* The row of a state: the next state for each byte class. NULL: full. */
static inline const uint32_t *exl2__grammar_state_row(exl2__grammar_state *s, uint32_t state)
{
    if (s->states[state].row == 0 && !exl2__grammar_state_fill_row(s, state)) {
        return NULL;
    }
    return s->pool + s->states[state].row;
}

/* The state after the bytes of `text`, or DEAD, or FULL. */
EXL2__PRIVATE uint32_t exl2__grammar_state_next(exl2__grammar_state *s, uint32_t state, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes && state != EXL2__GRAMMAR_STATE_DEAD; i++) {
        const uint32_t *row = exl2__grammar_state_row(s, state);
        if (!row) {
            return EXL2__GRAMMAR_STATE_FULL;
        }
        state = row[s->link->class_of[(uint8_t)text[i]]];
    }
    return state;
}

/* ---- collecting ---- */

/* Moves the frames that the kept states need to the front. new_frame[old number] becomes the new number. */
EXL2__PRIVATE void exl2__grammar_state_collect_frames(exl2__grammar_state *s, uint32_t *new_frame)
{
    uint32_t used = 1;
    for (uint32_t i = 1; i < s->state_count; i++) {
        const exl2__grammar_state_one *one = &s->states[i];
        for (uint32_t k = 0; one->kept && k < one->count; k++) {
            new_frame[s->pool[one->items + 2 * k + 1]] = 1;
        }
    }
    for (uint32_t i = s->frame_count; i-- > 1;) {
        new_frame[s->frames[i].below] |= new_frame[i];
    }
    for (uint32_t i = 1; i < s->frame_count; i++) { /* `below` is a lower number, so that frame has moved already */
        if (new_frame[i]) {
            exl2__grammar_state_frame frame = s->frames[i];
            frame.below = frame.below ? new_frame[frame.below] : 0;
            s->frames[used] = frame;
            new_frame[i] = used++;
        }
    }
    s->frame_count = used;
}

/* Moves the kept states to the front, without their rows and masks. new_state[old number] becomes the new number. */
EXL2__PRIVATE void exl2__grammar_state_collect_states(exl2__grammar_state *s, const uint32_t *new_frame,
                                                      uint32_t *new_state)
{
    uint32_t used = 1, pool_used = 1;
    for (uint32_t i = 1; i < s->state_count; i++) {
        exl2__grammar_state_one one = s->states[i];
        if (one.kept) {
            for (uint32_t k = 0; k < one.count; k++) { /* stays sorted: frames keep their order */
                uint32_t frame = s->pool[one.items + 2 * k + 1];
                s->pool[pool_used + 2 * k] = s->pool[one.items + 2 * k];
                s->pool[pool_used + 2 * k + 1] = frame ? new_frame[frame] : 0;
            }
            one.items = pool_used;
            one.row = one.mask = 0;
            one.kept = false;
            pool_used += 2 * one.count;
            s->states[used] = one;
            new_state[i] = used++;
        }
    }
    s->state_count = used;
    s->pool_used = pool_used;
}

/* Fills the hash tables anew with all frames and states. */
EXL2__PRIVATE void exl2__grammar_state_rehash(exl2__grammar_state *s)
{
    memset(s->frame_slots, 0, (uint64_t)s->frame_room * 8);
    memset(s->state_slots, 0, (uint64_t)s->state_room * 8);
    for (uint32_t i = 1; i < s->frame_count; i++) {
        const exl2__grammar_state_frame *f = &s->frames[i];
        uint32_t hash = exl2__grammar_state_mix(exl2__grammar_state_mix(1, f->node), f->count);
        uint32_t at = exl2__grammar_state_mix(hash, f->below) & (s->frame_room * 2 - 1);
        while (s->frame_slots[at]) {
            at = (at + 1) & (s->frame_room * 2 - 1);
        }
        s->frame_slots[at] = i;
    }
    for (uint32_t i = 1; i < s->state_count; i++) {
        const exl2__grammar_state_one *one = &s->states[i];
        const exl2__grammar_state_item *items = (const exl2__grammar_state_item *)(const void *)(s->pool + one->items);
        uint32_t at = exl2__grammar_state_hash(items, one->count, one->may_end) & (s->state_room * 2 - 1);
        while (s->state_slots[at]) {
            at = (at + 1) & (s->state_room * 2 - 1);
        }
        s->state_slots[at] = i;
    }
}

/* Frees all states but those in `kept`, and all frames that the kept states do not need. Kept states and frames get new
   numbers, and lose their rows and masks. */
EXL2__COLD
EXL2__PRIVATE void exl2__grammar_state_collect(exl2__grammar_state *s, uint32_t *const *kept, uint32_t kept_count)
{
    uint32_t *new_frame = s->frame_slots, *new_state = s->state_slots; /* scratch: _rehash fills them again */
    memset(new_frame, 0, (uint64_t)s->frame_room * 8);
    memset(new_state, 0, (uint64_t)s->state_room * 8);
    for (uint32_t i = 0; i < kept_count; i++) {
        s->states[*kept[i]].kept = *kept[i] != EXL2__GRAMMAR_STATE_DEAD;
    }
    exl2__grammar_state_collect_frames(s, new_frame);
    exl2__grammar_state_collect_states(s, new_frame, new_state);
    for (uint32_t i = 0; i < kept_count; i++) { /* each place is listed once */
        *kept[i] = *kept[i] ? new_state[*kept[i]] : 0;
    }
    exl2__grammar_state_rehash(s);
    s->full = false;
}

/* `bytes`: memory for frames, states and rows, about. */
EXL2__COLD
EXL2__PRIVATE exl2_result exl2__grammar_state_open(exl2__ctx *c, const exl2__grammar_link *link, uint64_t bytes,
                                                   exl2__grammar_state *s)
{
    *s = (exl2__grammar_state){ 0 };
    s->link = link;
    s->frame_room = s->state_room = 256;
    while ((uint64_t)s->state_room * 512 < bytes && s->state_room < 1u << 20) {
        s->state_room *= 2;
    }
    s->frame_room = s->state_room * 2;
    s->parses_max = exl2__max32(link->node_count, EXL2__GRAMMAR_STATE_PARSES_MIN);
    s->seen_room = 4 * EXL2__GRAMMAR_STATE_PARSES_MIN;
    while (s->seen_room < 2 * s->parses_max) {
        s->seen_room *= 2;
    }
    /* the pool must hold a few states of parses_max parses, because a step needs a state and its successor */
    s->pool_room = (uint32_t)exl2__min64(exl2__max64(bytes / 8, 8 * (uint64_t)s->parses_max), UINT32_MAX / 2);
    exl2__arena dry = { 0 };
    exl2__grammar_state_layout(s, &dry);
    EXL2__TRY(exl2__arena_open(c, &s->memory, dry.used, EXL2_MEM_GENERAL));
    exl2__grammar_state_layout(s, &s->memory);
    s->frames[0] = (exl2__grammar_state_frame){ 0 };
    s->states[0] = (exl2__grammar_state_one){ 0 };
    s->frame_count = s->state_count = s->pool_used = 1;
    return EXL2_OK;
}

#endif

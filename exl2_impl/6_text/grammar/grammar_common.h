/* grammar_common.h: the texts that several grammars all allow, as a set of states that are all there from the start.
   takes: the places of a product whose parts are these grammars; tokens that the end of a text must not need.
   gives: exl2__grammar_common_open.
   owns:  nothing; the states that it makes are the caller's.

   A place of the product is live if its text can end with the tokens of the model. Only live places become states:

       a(b|x)c and a(b|y)c:   a leads to a live place. There b leads on to a live place. x and y leave one of the two
                              grammars, so the product has no edge for them.
       (ax|by) and (ax|bz):   b is allowed by both, but leads to a place from which no end is reached: a dead end.

   Without dead ends a token is allowed if each grammar allows it, so the mask is what the masks of the grammars have in
   common. The bound of a state (grammar_walk.h) says for how many characters that holds, and how many tokens an end
   needs at most after any text from there. */
#ifndef EXL2__GRAMMAR_COMMON_H
#define EXL2__GRAMMAR_COMMON_H

#include "grammar_alike.h"
#include "grammar_mask.h"

typedef struct exl2__grammar_common {
    const exl2__grammar_product *product;
    const uint32_t *banned; /* bits of tokens that are not used, or NULL */
    uint32_t spelled[257];  /* [byte] how many bytes before it are tokens by themselves */
    uint32_t nodes[257];    /* [byte] of the tries below tokens that begin with bytes before it */
    exl2__grammar_way *ways;
    uint32_t way_count, live;
    uint32_t *begin, *users;  /* [places + 1] where the ways to each place begin in `users` */
    uint32_t *tokens, *needs; /* [places] fewest tokens to the end; the most of any place that follows; or NEVER */
    uint32_t *reach;          /* [places] characters up to a dead end, that of the last byte included; or NEVER */
    uint32_t *text;           /* [places] the same by ways of such characters only */
    uint32_t *order, *stack;  /* [places] the live ones by their tokens; scratch */
    uint32_t *alike[EXL2__GRAMMAR_MASK_ALIKE]; /* [places] as exl2__grammar_mask_bound.alike */
    exl2__heap heap;          /* reach << 32 | place */
} exl2__grammar_common;

/* ---- ways ---- */

EXL2__PRIVATE void exl2__grammar_common_know_bytes(exl2__grammar_common *s)
{
    const exl2__grammar_vocab *v = s->product->vocab;
    bool spelled[256] = { false };
    uint32_t nodes[256] = { 0 };
    for (uint32_t i = 0; i < v->begin[EXL2__GRAMMAR_VOCAB_GROUPS]; i = v->nodes[i].skip) { /* the first bytes */
        uint32_t token = v->nodes[i].token;
        nodes[v->nodes[i].byte] += v->nodes[i].skip - i;
        spelled[v->nodes[i].byte] |=
            token != EXL2__GRAMMAR_VOCAB_NONE && !exl2__grammar_vocab_is_banned(s->banned, token);
    }
    for (uint32_t byte = 0; byte < 256; byte++) {
        s->spelled[byte + 1] = s->spelled[byte] + spelled[byte];
        s->nodes[byte + 1] = s->nodes[byte] + nodes[byte];
    }
}

/* Adds tokens of several bytes that begin with this edge, as long as each place after it has one byte only. */
EXL2__PRIVATE void exl2__grammar_common_add_leaps(exl2__grammar_common *s, uint32_t from,
                                                  const exl2__grammar_product_edge *edge)
{
    const exl2__grammar_product *w = s->product;
    char text[EXL2__GRAMMAR_VOCAB_FIND_MAX];
    uint64_t hash = 0;
    uint32_t bytes = 0, first = s->way_count;
    while (edge && bytes < sizeof text && edge->low == edge->high) {
        const exl2__grammar_product_place *next = &w->places[edge->target];
        text[bytes++] = (char)edge->low;
        hash = exl2__grammar_vocab_hash(hash, edge->low);
        if (bytes > 1 && exl2__grammar_vocab_find(w->vocab, hash, text, bytes, s->banned)) {
            uint32_t at = s->way_count - first < EXL2__GRAMMAR_LINK_LEAPS ? s->way_count++ : first + bytes % 4;
            s->ways[at] = (exl2__grammar_way){ from, edge->target, true, true, false, false };
        }
        edge = next->edge_count == 1 ? &w->edges[next->edges] : NULL;
    }
}

/* Whether a byte of the edge may be in a TEXT character (grammar_vocab.h). */
static inline bool exl2__grammar_common_has_text(const exl2__grammar_product_edge *edge)
{
    bool alone = edge->low == edge->high && (edge->low == '"' || edge->low == '\\');
    return edge->high >= 0x20 && !alone;
}

/* Lists all ways, then their numbers by target. */
EXL2__PRIVATE void exl2__grammar_common_list(exl2__grammar_common *s)
{
    const exl2__grammar_product *w = s->product;
    for (uint32_t i = 0; i < w->place_count; i++) {
        for (uint32_t k = 0; k < w->places[i].edge_count; k++) {
            const exl2__grammar_product_edge *edge = &w->edges[w->places[i].edges + k];
            exl2__grammar_way way = { i, edge->target, false, s->spelled[edge->high + 1] > s->spelled[edge->low],
                                      exl2__grammar_alike_leads(edge), exl2__grammar_common_has_text(edge) };
            s->ways[s->way_count++] = way;
            exl2__grammar_common_add_leaps(s, i, edge);
        }
    }
    for (uint32_t i = 0; i < s->way_count; i++) {
        s->begin[s->ways[i].target]++;
    }
    for (uint32_t i = 0, sum = 0; i <= w->place_count; i++) {
        sum += s->begin[i];
        s->begin[i] = sum; /* the end of the place's list; filling counts down to its beginning */
    }
    for (uint32_t i = 0; i < s->way_count; i++) {
        s->users[--s->begin[s->ways[i].target]] = i;
    }
}

/* ---- what is known of places ---- */

/* Every way is one token, so places are found in the order of their tokens. */
EXL2__PRIVATE void exl2__grammar_common_solve_tokens(exl2__grammar_common *s)
{
    for (uint32_t i = 0; i < s->product->place_count; i++) {
        bool ends = s->product->places[i].outcome != EXL2__GRAMMAR_PRODUCT_NONE;
        s->tokens[i] = ends ? 0 : EXL2__GRAMMAR_LINK_NEVER;
        s->order[s->live] = i;
        s->live += ends;
    }
    for (uint32_t i = 0; i < s->live; i++) {
        uint32_t at = s->order[i];
        for (uint32_t k = s->begin[at]; k < s->begin[at + 1]; k++) {
            const exl2__grammar_way *way = &s->ways[s->users[k]];
            if (way->token && s->tokens[way->from] == EXL2__GRAMMAR_LINK_NEVER) {
                s->tokens[way->from] = s->tokens[at] + 1;
                s->order[s->live++] = way->from;
            }
        }
    }
}

/* From the place with the most tokens on, each place that leads there needs so many at most. */
EXL2__PRIVATE void exl2__grammar_common_solve_needs(exl2__grammar_common *s)
{
    for (uint32_t i = 0; i < s->product->place_count; i++) {
        s->needs[i] = EXL2__GRAMMAR_LINK_NEVER;
    }
    for (uint32_t i = s->live; i-- > 0;) {
        uint32_t most = s->tokens[s->order[i]], top = 0;
        if (s->needs[s->order[i]] == EXL2__GRAMMAR_LINK_NEVER) {
            s->needs[s->order[i]] = most;
            s->stack[top++] = s->order[i];
        }
        while (top) {
            uint32_t at = s->stack[--top];
            for (uint32_t k = s->begin[at]; k < s->begin[at + 1]; k++) {
                uint32_t from = s->ways[s->users[k]].from;
                if (s->needs[from] == EXL2__GRAMMAR_LINK_NEVER && s->tokens[from] != EXL2__GRAMMAR_LINK_NEVER) {
                    s->needs[from] = most;
                    s->stack[top++] = from;
                }
            }
        }
    }
}

EXL2__PRIVATE void exl2__grammar_common_shorten(exl2__grammar_common *s, uint32_t *to, uint32_t place, uint32_t reach)
{
    if (reach < to[place]) {
        to[place] = reach;
        exl2__heap_push(&s->heap, (uint64_t)reach << 32 | place);
    }
}

/* Dijkstra's algorithm, from the dead ends backwards. A byte inside a character counts nothing. to: [places] is filled
   in, by TEXT characters only or by all. */
EXL2__PRIVATE void exl2__grammar_common_solve_reach(exl2__grammar_common *s, uint32_t *to, bool text)
{
    for (uint32_t i = 0; i < s->product->place_count; i++) {
        to[i] = EXL2__GRAMMAR_LINK_NEVER;
    }
    for (uint32_t i = 0; i < s->way_count; i++) {
        const exl2__grammar_way *way = &s->ways[i];
        if (!way->leaps && way->text >= text && s->tokens[way->target] == EXL2__GRAMMAR_LINK_NEVER) {
            exl2__grammar_common_shorten(s, to, way->from, way->lead);
        }
    }
    while (s->heap.count) {
        uint64_t key = exl2__heap_pop(&s->heap);
        uint32_t at = (uint32_t)key;
        for (uint32_t k = s->begin[at]; to[at] == key >> 32 && k < s->begin[at + 1]; k++) {
            const exl2__grammar_way *way = &s->ways[s->users[k]];
            if (!way->leaps && way->text >= text) {
                exl2__grammar_common_shorten(s, to, way->from, to[at] + way->lead);
            }
        }
    }
}

/* Whether an end can be reached by bytes. */
EXL2__PRIVATE bool exl2__grammar_common_has_end(exl2__grammar_common *s)
{
    for (uint32_t i = 0; i < s->way_count; i++) {
        s->ways[i].token = true;
    }
    s->live = 0;
    exl2__grammar_common_solve_tokens(s);
    return s->tokens[0] != EXL2__GRAMMAR_LINK_NEVER;
}

/* Finds which places are alike up to the lengths of tokens. */
EXL2__PRIVATE void exl2__grammar_common_solve_alike(exl2__grammar_common *s, exl2__arena *a)
{
    const exl2__grammar_product *w = s->product;
    exl2__grammar_alike alike = { .product = w, .tokens = s->tokens, .ways = s->ways, .begin = s->begin,
                                  .users = s->users };
    exl2__grammar_alike_open(&alike, a);
    for (uint32_t i = 0, done = 0; i < EXL2__GRAMMAR_MASK_ALIKE; i++) {
        uint32_t length = i == 0 ? EXL2__GRAMMAR_VOCAB_SHORT : i == 1 ? EXL2__GRAMMAR_VOCAB_LONG : w->vocab->longest;
        exl2__grammar_alike_run(&alike, exl2__max32(length, done) - done);
        done = exl2__max32(length, done);
        memcpy(s->alike[i], alike.kind, w->place_count * sizeof *alike.kind);
    }
}

/* ---- states ---- */

/* Fills in the row of a state. numbers: [places] of the states; 0: the place is not live. */
EXL2__PRIVATE void exl2__grammar_common_fill_row(const exl2__grammar_common *s, const exl2__grammar_link *link,
                                                 const exl2__grammar_product_place *place, const uint32_t *numbers,
                                                 exl2__grammar_state_one *one, uint32_t *row, uint32_t *nodes)
{
    uint32_t only = EXL2__GRAMMAR_VOCAB_NONE;
    for (uint32_t k = 0; k < place->edge_count; k++) {
        const exl2__grammar_product_edge *edge = &s->product->edges[place->edges + k];
        uint32_t target = numbers[edge->target];
        for (uint32_t class_now = link->class_of[edge->low]; target && class_now <= link->class_of[edge->high];
             class_now++) {
            row[class_now] = target;
            only = class_now;
            one->count++;
        }
        *nodes += target ? s->nodes[edge->high + 1] - s->nodes[edge->low] : 0;
    }
    one->items = one->count == 1 ? only : EXL2__GRAMMAR_VOCAB_NONE;
}

/* Makes the states of the live places, and their bounds. */
EXL2__PRIVATE exl2_result exl2__grammar_common_write(exl2__ctx *c, const exl2__grammar_common *s,
                                                     exl2__grammar_link *link, exl2__grammar_state *states,
                                                     exl2__grammar_mask_bound **bounds)
{
    const exl2__grammar_product *w = s->product;
    uint64_t count = (uint64_t)s->live + 1, room = 1 + (uint64_t)s->live * link->classes;
    uint32_t *numbers = s->stack, used = EXL2__GRAMMAR_STATE_FIRST;
    EXL2__TRY(exl2__arena_open(c, &states->memory,
                               count * (sizeof *states->states + sizeof **bounds) + room * 4 + 64 * 3,
                               EXL2_MEM_GENERAL));
    states->states = (exl2__grammar_state_one *)exl2__arena_alloc_zeroed(&states->memory,
                                                                         count * sizeof *states->states);
    states->pool = (uint32_t *)exl2__arena_alloc_zeroed(&states->memory, room * 4);
    *bounds = (exl2__grammar_mask_bound *)exl2__arena_alloc_zeroed(&states->memory, count * sizeof **bounds);
    states->link = link;
    states->whole = true;
    states->state_count = states->state_room = (uint32_t)count;
    states->pool_used = states->pool_room = (uint32_t)room;
    for (uint32_t i = 0; i < w->place_count; i++) {
        numbers[i] = s->tokens[i] != EXL2__GRAMMAR_LINK_NEVER ? used++ : 0;
    }
    for (uint32_t i = 0; i < w->place_count; i++) {
        uint32_t state = numbers[i];
        if (state) {
            exl2__grammar_state_one *one = &states->states[state];
            one->row = 1 + (state - EXL2__GRAMMAR_STATE_FIRST) * link->classes;
            one->tokens = s->tokens[i];
            one->may_end = w->places[i].outcome != EXL2__GRAMMAR_PRODUCT_NONE;
            (*bounds)[state].needs = s->needs[i];
            (*bounds)[state].reach = s->reach[i] ? s->reach[i] - 1 : 0;
            (*bounds)[state].text = s->text[i] ? s->text[i] - 1 : 0;
            for (uint32_t k = 0; k < EXL2__GRAMMAR_MASK_ALIKE; k++) {
                (*bounds)[state].alike[k] = s->alike[k][i];
            }
            exl2__grammar_common_fill_row(s, link, &w->places[i], numbers, one, states->pool + one->row,
                                          &(*bounds)[state].nodes);
        }
    }
    return EXL2_OK;
}

/* Makes the states of what all parts of a product allow, whose edges are there: `link` with their classes of bytes, and
   the bound of each, which lies in the memory of the states. banned: bits of tokens, or NULL. *any: a text is left;
   EXL2_ERR_ARG: one would be without the bans. */
EXL2__PRIVATE exl2_result exl2__grammar_common_open(exl2__ctx *c, const exl2__grammar_product *w,
                                                    const uint32_t *banned, exl2__grammar_link *link,
                                                    exl2__grammar_state *states, exl2__grammar_mask_bound **bounds,
                                                    bool *any)
{
    exl2__arena a;
    exl2__grammar_common s = { .product = w, .banned = banned };
    uint64_t n = w->place_count, literals = 0;
    *states = (exl2__grammar_state){ 0 };
    for (uint32_t i = 0; i < w->edge_count; i++) {
        literals += w->edges[i].low == w->edges[i].high;
    }
    uint64_t ways = w->edge_count + literals * EXL2__GRAMMAR_LINK_LEAPS;
    uint64_t bytes = (n * (7 + EXL2__GRAMMAR_MASK_ALIKE) + 1) * 4 + ways * (sizeof *s.ways + 4 + 16) + 64 * 13
                   + exl2__grammar_alike_bytes(n);
    EXL2__TRY(exl2__arena_open(c, &a, bytes, EXL2_MEM_GENERAL));
    s.ways = (exl2__grammar_way *)exl2__arena_alloc(&a, ways * sizeof *s.ways);
    s.users = (uint32_t *)exl2__arena_alloc(&a, ways * 4);
    s.heap.keys = (uint64_t *)exl2__arena_alloc(&a, ways * 16);
    s.begin = (uint32_t *)exl2__arena_alloc_zeroed(&a, (n + 1) * 4);
    s.tokens = (uint32_t *)exl2__arena_alloc(&a, n * 4);
    s.needs = (uint32_t *)exl2__arena_alloc(&a, n * 4);
    s.reach = (uint32_t *)exl2__arena_alloc(&a, n * 4);
    s.text = (uint32_t *)exl2__arena_alloc(&a, n * 4);
    s.order = (uint32_t *)exl2__arena_alloc(&a, n * 4);
    s.stack = (uint32_t *)exl2__arena_alloc(&a, n * 4);
    for (uint32_t i = 0; i < EXL2__GRAMMAR_MASK_ALIKE; i++) {
        s.alike[i] = (uint32_t *)exl2__arena_alloc(&a, n * 4);
    }
    exl2__grammar_common_know_bytes(&s);
    exl2__grammar_common_list(&s);
    exl2__grammar_common_solve_tokens(&s);
    *any = s.tokens[0] != EXL2__GRAMMAR_LINK_NEVER;
    exl2_result r = EXL2_OK;
    if (!*any && banned && exl2__grammar_common_has_end(&s)) {
        r = exl2__grammar_link_banned(c);
    }
    if (*any) {
        exl2__grammar_common_solve_needs(&s);
        exl2__grammar_common_solve_reach(&s, s.reach, false);
        exl2__grammar_common_solve_reach(&s, s.text, true);
        exl2__grammar_common_solve_alike(&s, &a);
        for (uint32_t byte = 0, border = 0; byte < 256; byte++) {
            border += byte && w->borders[byte - 1] == byte;
            link->class_of[byte] = (uint8_t)border;
            link->classes = border + 1;
        }
        r = exl2__grammar_common_write(c, &s, link, states, bounds);
    }
    exl2__arena_close(c, &a);
    return r;
}

#endif

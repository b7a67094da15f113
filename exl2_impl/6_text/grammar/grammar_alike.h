/* grammar_alike.h: which places of a product allow the same texts up to a length.
   takes: the places of a product, how they lead to each other, and which of them are live.
   gives: exl2__grammar_way, exl2__grammar_alike, exl2__grammar_alike_bytes, _open, _run.
   owns:  nothing; its arrays lie in the caller's arena.

   Places of one kind allow the same texts of up to n characters. For n = 0 all live places are of one kind. Each round
   adds a character: a kind is split where equal bytes lead to different kinds of the round before. In a string of at
   most 100 characters the places after 0, 1 ... 84 of them are alike up to 16 characters, and each later one is of a
   kind of its own. Most rounds change few kinds, so a round looks only at places before those that have changed.

   A byte inside a character counts nothing: a place in the middle of a character is compared by what its bytes lead to
   in the same round, so places that are nearer to the end of their character come first. */
#ifndef EXL2__GRAMMAR_ALIKE_H
#define EXL2__GRAMMAR_ALIKE_H

#include "grammar_product.h"

#define EXL2__GRAMMAR_ALIKE_RANKS 4u /* bytes of a character, at most */

/* How one place leads to another: by one byte of several, or by a token of several bytes. */
typedef struct exl2__grammar_way {
    uint32_t from, target;
    bool leaps; /* by a token of several bytes; then also: */
    bool token; /* by a token: a byte of them is one by itself */
    bool lead;  /* each of the bytes begins a character */
    bool text;  /* some of the bytes are in characters that a JSON string holds unescaped */
} exl2__grammar_way;

#define EXL2__GRAMMAR_ALIKE_DUE 1u
#define EXL2__GRAMMAR_ALIKE_LATER 2u
#define EXL2__GRAMMAR_ALIKE_ODD 4u

typedef struct exl2__grammar_alike {
    const exl2__grammar_product *product;
    const uint32_t *tokens;        /* [places] NEVER: the place is not live */
    const exl2__grammar_way *ways;
    const uint32_t *begin, *users; /* [places + 1], [ways] the ways to each place */
    uint32_t *kind;                /* [places] of the live ones, from 0 on */
    uint32_t kinds;
    uint8_t *rank;                 /* [places] bytes up to the end of the character in which the place is, at most */
    uint32_t *due[EXL2__GRAMMAR_ALIKE_RANKS]; /* [places] by rank: places to look at in this round */
    uint32_t due_count[EXL2__GRAMMAR_ALIKE_RANKS];
    uint32_t *later, later_count;  /* [places] places to look at in the next round */
    uint8_t *listed;               /* [places] bits: it is in `due`, or in `later`, or exl2__grammar_alike_is_odd */
    uint32_t *group;               /* [places] index of a group of places in `due` that will be of one kind */
    uint32_t *first, *members;     /* [places] by group: its first place; how many it has */
    uint32_t *size, *moved, *best; /* [places] by kind: its places; those of them that are due; its largest group */
    uint32_t *slots, slot_mask;    /* hash table of groups: index + 1 */
} exl2__grammar_alike;

static inline uint32_t exl2__grammar_alike_slots(uint64_t places)
{
    uint32_t slots = 64;
    while (slots < 2 * places) {
        slots *= 2;
    }
    return slots;
}

/* Bytes of the arrays for `places` places. */
static inline uint64_t exl2__grammar_alike_bytes(uint64_t places)
{
    return places * (4 * (8 + EXL2__GRAMMAR_ALIKE_RANKS) + 2) + 4 * (uint64_t)exl2__grammar_alike_slots(places)
        + 64 * (11 + EXL2__GRAMMAR_ALIKE_RANKS);
}

static inline bool exl2__grammar_alike_is_live(const exl2__grammar_alike *s, uint32_t place)
{
    return s->tokens[place] != EXL2__GRAMMAR_LINK_NEVER;
}

/* Does the edge begin a character? Else its bytes are inside of one, or both. */
static inline bool exl2__grammar_alike_leads(const exl2__grammar_product_edge *edge)
{
    return edge->high < 0x80 || edge->low >= 0xC0;
}

/* The rank of a place: one more than those of the places that bytes inside of a character lead to. Places whose
   characters do not end are of the last rank. */
EXL2__PRIVATE uint8_t exl2__grammar_alike_rank_of(const exl2__grammar_alike *s, uint32_t place, uint32_t depth)
{
    const exl2__grammar_product_place *p = &s->product->places[place];
    uint32_t rank = 0;
    for (uint32_t k = 0; k < p->edge_count && depth < EXL2__GRAMMAR_ALIKE_RANKS; k++) {
        const exl2__grammar_product_edge *edge = &s->product->edges[p->edges + k];
        if (!exl2__grammar_alike_leads(edge)) {
            rank = exl2__max32(rank, 1u + exl2__grammar_alike_rank_of(s, edge->target, depth + 1));
        }
    }
    return (uint8_t)exl2__min32(rank, EXL2__GRAMMAR_ALIKE_RANKS - 1);
}

/* Places of which some bytes begin a character and some do not, or whose character has too many bytes, are each of a
   kind of their own. UTF-8 has no such places. */
EXL2__PRIVATE bool exl2__grammar_alike_is_odd(const exl2__grammar_alike *s, uint32_t place)
{
    const exl2__grammar_product_place *p = &s->product->places[place];
    bool lead = false, inside = false, ranks = true;
    for (uint32_t k = 0; k < p->edge_count; k++) {
        const exl2__grammar_product_edge *edge = &s->product->edges[p->edges + k];
        bool in = !exl2__grammar_alike_leads(edge);
        lead = lead || !in || edge->low < 0x80 || edge->high >= 0xC0;
        inside = inside || in;
        ranks = ranks && (!in || s->rank[edge->target] < s->rank[place]);
    }
    return (lead && inside) || !ranks;
}

/* The next run of bytes that lead to live places of one kind; false: there is none. */
static inline bool exl2__grammar_alike_next_run(const exl2__grammar_alike *s, uint32_t place, uint32_t *at,
                                                exl2__grammar_product_edge *run)
{
    const exl2__grammar_product_place *p = &s->product->places[place];
    const exl2__grammar_product_edge *edges = s->product->edges + p->edges;
    bool found = false;
    for (; *at < p->edge_count; ++*at) {
        const exl2__grammar_product_edge *edge = &edges[*at];
        if (!exl2__grammar_alike_is_live(s, edge->target)) {
            continue;
        }
        if (found && (run->target != s->kind[edge->target] || run->high + 1u != edge->low)) {
            break;
        }
        run->target = s->kind[edge->target];
        run->low = found ? run->low : edge->low;
        run->high = edge->high;
        found = true;
    }
    return found;
}

/* Are two places of one kind, and do equal bytes lead from them to equal kinds? */
EXL2__PRIVATE bool exl2__grammar_alike_same(const exl2__grammar_alike *s, uint32_t a, uint32_t b)
{
    uint32_t at = 0, other_at = 0;
    exl2__grammar_product_edge run = { 0 }, other = { 0 };
    bool more = s->kind[a] == s->kind[b], same = more;
    while (more) {
        more = exl2__grammar_alike_next_run(s, a, &at, &run);
        same = more == exl2__grammar_alike_next_run(s, b, &other_at, &other);
        same = same && (!more || (run.target == other.target && run.low == other.low && run.high == other.high));
        more = more && same;
    }
    return same;
}

EXL2__PRIVATE uint32_t exl2__grammar_alike_hash(const exl2__grammar_alike *s, uint32_t place)
{
    uint32_t hash = exl2__grammar_state_mix(3, s->kind[place]), at = 0;
    exl2__grammar_product_edge run = { 0 };
    while (exl2__grammar_alike_next_run(s, place, &at, &run)) {
        hash = exl2__grammar_state_mix(exl2__grammar_state_mix(hash, run.target), run.low * 256u + run.high);
    }
    return hash;
}

/* Finds the groups of the places that are due. Returns their number. */
EXL2__PRIVATE uint32_t exl2__grammar_alike_find_groups(exl2__grammar_alike *s, const uint32_t *due, uint32_t count)
{
    uint32_t groups = 0, *used = s->best; /* the slots to clear: as many as groups, before `best` is needed */
    for (uint32_t i = 0; i < count; i++) {
        uint32_t place = due[i], at = exl2__grammar_alike_hash(s, place) & s->slot_mask;
        for (; s->slots[at]; at = (at + 1) & s->slot_mask) {
            uint32_t other = s->first[s->slots[at] - 1];
            bool odd = (s->listed[place] | s->listed[other]) & EXL2__GRAMMAR_ALIKE_ODD;
            if (!odd && exl2__grammar_alike_same(s, place, other)) {
                break;
            }
        }
        if (!s->slots[at]) {
            used[groups] = at;
            s->first[groups] = place;
            s->members[groups++] = 0;
            s->slots[at] = groups;
        }
        s->group[place] = s->slots[at] - 1;
        s->members[s->group[place]]++;
    }
    for (uint32_t i = 0; i < groups; i++) {
        s->slots[used[i]] = 0;
    }
    return groups;
}

/* Lists the places that lead to one whose kind has changed. */
EXL2__PRIVATE void exl2__grammar_alike_list_users(exl2__grammar_alike *s, uint32_t place)
{
    for (uint32_t k = s->begin[place]; k < s->begin[place + 1]; k++) {
        const exl2__grammar_way *way = &s->ways[s->users[k]];
        uint32_t rank = s->rank[way->from];
        if (way->leaps || !exl2__grammar_alike_is_live(s, way->from)) {
            continue;
        }
        if (way->lead && !(s->listed[way->from] & EXL2__GRAMMAR_ALIKE_LATER)) {
            s->listed[way->from] |= EXL2__GRAMMAR_ALIKE_LATER;
            s->later[s->later_count++] = way->from;
        } else if (!way->lead && !(s->listed[way->from] & EXL2__GRAMMAR_ALIKE_DUE) && rank > s->rank[place]) {
            s->listed[way->from] |= EXL2__GRAMMAR_ALIKE_DUE;
            s->due[rank][s->due_count[rank]++] = way->from;
        }
    }
}

/* Splits the kinds of the places that are due. Those of a kind that are not due stay; if all are, the largest group
   does. */
EXL2__PRIVATE void exl2__grammar_alike_split(exl2__grammar_alike *s, uint32_t *due, uint32_t count)
{
    uint32_t groups = exl2__grammar_alike_find_groups(s, due, count), *number = s->members;
    for (uint32_t i = 0; i < count; i++) {
        s->moved[s->kind[due[i]]] = 0;
        s->best[s->kind[due[i]]] = UINT32_MAX;
        s->listed[due[i]] &= (uint8_t)~EXL2__GRAMMAR_ALIKE_DUE;
    }
    for (uint32_t i = 0; i < groups; i++) {
        uint32_t kind = s->kind[s->first[i]], best = s->best[kind];
        s->moved[kind] += s->members[i];
        s->best[kind] = best == UINT32_MAX || s->members[i] > s->members[best] ? i : best;
    }
    for (uint32_t i = 0; i < groups; i++) {
        uint32_t kind = s->kind[s->first[i]];
        if (s->moved[kind] == s->size[kind] && s->best[kind] == i) {
            s->first[i] = UINT32_MAX; /* it stays */
        }
    }
    for (uint32_t i = 0; i < groups; i++) {
        if (s->first[i] != UINT32_MAX) {
            uint32_t kind = s->kind[s->first[i]], places = s->members[i];
            s->size[s->kinds] = places;
            s->size[kind] -= places;
            number[i] = s->kinds++;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t group = s->group[due[i]];
        s->kind[due[i]] = s->first[group] == UINT32_MAX ? s->kind[due[i]] : number[group];
    }
    for (uint32_t i = 0; i < count; i++) {
        if (s->first[s->group[due[i]]] != UINT32_MAX) {
            exl2__grammar_alike_list_users(s, due[i]);
        }
    }
}

/* Makes all live places alike. The caller has filled in product, tokens, ways, begin and users. */
EXL2__PRIVATE void exl2__grammar_alike_open(exl2__grammar_alike *s, exl2__arena *a)
{
    uint32_t n = s->product->place_count, live = 0;
    uint32_t **const arrays[] = { &s->kind, &s->later, &s->group, &s->first, &s->members, &s->size, &s->moved,
                                  &s->best, &s->due[0], &s->due[1], &s->due[2], &s->due[3] };
    for (size_t i = 0; i < EXL2__COUNT(arrays); i++) {
        *arrays[i] = (uint32_t *)exl2__arena_alloc(a, (uint64_t)n * 4);
    }
    s->rank = (uint8_t *)exl2__arena_alloc(a, n);
    s->listed = (uint8_t *)exl2__arena_alloc_zeroed(a, n);
    s->slot_mask = exl2__grammar_alike_slots(n) - 1;
    s->slots = (uint32_t *)exl2__arena_alloc_zeroed(a, ((uint64_t)s->slot_mask + 1) * 4);
    for (uint32_t i = 0; i < n; i++) {
        s->kind[i] = 0;
        s->rank[i] = exl2__grammar_alike_rank_of(s, i, 0);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (exl2__grammar_alike_is_live(s, i)) {
            live++;
            s->listed[i] = EXL2__GRAMMAR_ALIKE_LATER;
            s->listed[i] |= exl2__grammar_alike_is_odd(s, i) ? EXL2__GRAMMAR_ALIKE_ODD : 0;
            s->later[s->later_count++] = i;
        }
    }
    s->kinds = 1;
    s->size[0] = live;
}

/* Adds `count` characters to the length up to which places are alike. */
EXL2__PRIVATE void exl2__grammar_alike_run(exl2__grammar_alike *s, uint32_t count)
{
    for (uint32_t round = 0; round < count && s->later_count > 0; round++) {
        for (uint32_t i = 0; i < s->later_count; i++) {
            uint32_t place = s->later[i], rank = s->rank[place];
            s->listed[place] ^= EXL2__GRAMMAR_ALIKE_DUE | EXL2__GRAMMAR_ALIKE_LATER; /* it was in `later` alone */
            s->due[rank][s->due_count[rank]++] = place;
        }
        s->later_count = 0;
        for (uint32_t rank = 0; rank < EXL2__GRAMMAR_ALIKE_RANKS; rank++) {
            uint32_t due = s->due_count[rank];
            s->due_count[rank] = 0;
            exl2__grammar_alike_split(s, s->due[rank], due);
        }
    }
}

#endif

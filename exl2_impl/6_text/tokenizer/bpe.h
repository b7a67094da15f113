/* bpe.h: byte-pair merging of one word in n log n time, and the hash table of merges.
   takes: merges in order of rank, the first symbols of a word.
   gives: exl2__bpe, exl2__bpe_make, exl2__bpe_add, exl2__bpe_find, exl2__bpe_symbol, exl2__bpe_run.
   owns:  nothing; the table lies in the caller's arena, and the caller gives the work space for a word. */
#ifndef EXL2__BPE_H
#define EXL2__BPE_H

#include "../../0_base/arena.h"
#include "../../0_base/heap.h"

#define EXL2__BPE_NONE UINT32_MAX /* no rank, symbol or id */

/* The adjacent symbols left and right become id. A merge's rank is its index; lower ranks merge first. */
typedef struct exl2__bpe_merge {
    uint32_t left, right, id;
} exl2__bpe_merge;

typedef struct exl2__bpe {
    exl2__bpe_merge *merges; /* [merge_count] */
    uint32_t *slots;         /* [mask + 1] open addressing, at most half full: rank + 1 in the bits of `mask`, bits of
                                the hash above them; 0 = empty */
    uint32_t merge_count, mask;
    uint64_t probes;         /* slots that adding tried beyond the first ones */
} exl2__bpe;

/* Allocates the arrays for merge_count merges, in memory that is zeroed already; with a dry arena it only counts
   bytes. */
static inline void exl2__bpe_make(exl2__bpe *b, exl2__arena *arena, uint32_t merge_count)
{
    uint64_t slots = 16;
    while (slots < (uint64_t)merge_count * 2) {
        slots *= 2;
    }
    b->merge_count = merge_count;
    b->mask = (uint32_t)(slots - 1);
    b->merges = (exl2__bpe_merge *)exl2__arena_alloc(arena, (uint64_t)merge_count * sizeof *b->merges);
    b->slots = (uint32_t *)exl2__arena_alloc(arena, slots * sizeof *b->slots);
}

static inline uint32_t exl2__bpe_hash(uint32_t left, uint32_t right)
{
    uint64_t key = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(key >> 32 ^ key);
}

/* The slot of the pair, or the empty slot where it belongs. */
static inline uint32_t exl2__bpe_slot(const exl2__bpe *b, uint32_t left, uint32_t right, uint64_t *probes)
{
    uint32_t hash = exl2__bpe_hash(left, right), at = hash & b->mask;
    for (uint32_t slot; (slot = b->slots[at]) != 0; at = (at + 1) & b->mask, (*probes)++) {
        if (((slot ^ hash) & ~b->mask) == 0) {
            const exl2__bpe_merge *m = &b->merges[(slot & b->mask) - 1];
            if (m->left == left && m->right == right) {
                break;
            }
        }
    }
    return at;
}

/* Writes merges[rank]; a pair that occurs twice keeps its later rank. false: the file's pairs are crafted to collide in
   the table, so that adding more would cost quadratic time. */
static inline bool exl2__bpe_add(exl2__bpe *b, uint32_t rank, exl2__bpe_merge merge)
{
    b->merges[rank] = merge;
    uint32_t at = exl2__bpe_slot(b, merge.left, merge.right, &b->probes);
    b->slots[at] = (exl2__bpe_hash(merge.left, merge.right) & ~b->mask) | (rank + 1);
    return b->probes <= 32u * (uint64_t)b->merge_count + 4096;
}

/* Rank of the pair, or EXL2__BPE_NONE. */
static inline uint32_t exl2__bpe_find(const exl2__bpe *b, uint32_t left, uint32_t right)
{
    uint64_t probes = 0;
    return (b->slots[exl2__bpe_slot(b, left, right, &probes)] & b->mask) - 1;
}

/* ---- one word ---- */

typedef struct exl2__bpe_symbol {
    uint32_t id;
    uint32_t rank; /* rank of the pair (this, next); EXL2__BPE_NONE: no such merge, or this symbol is merged away */
    uint32_t previous, next;
} exl2__bpe_symbol;

/* Work space: n symbols, and a heap of pairs with the key rank << 32 | position: the lowest rank comes first and, among
   equal ranks, the leftmost pair. Only pairs that merge before both of their neighbours are in it, as the next pair of
   the word always does. No two of them are adjacent: at most half of the n - 1 pairs enter at the start, and each of at
   most n - 1 merges removes one pair and adds at most two. */
static inline uint64_t exl2__bpe_work_bytes(uint64_t symbols)
{
    return symbols * (sizeof(exl2__bpe_symbol) + 2 * sizeof(uint64_t));
}

/* Looks up the pair (at, next). */
EXL2__HOT
EXL2__PRIVATE void exl2__bpe_rank(const exl2__bpe *b, exl2__bpe_symbol *s, uint32_t at)
{
    uint32_t next = s[at].next;
    s[at].rank = next == EXL2__BPE_NONE ? EXL2__BPE_NONE : exl2__bpe_find(b, s[at].id, s[next].id);
}

/* Adds the pair to the heap if it can merge, and merges before the pairs left and right of it. */
EXL2__HOT
EXL2__PRIVATE void exl2__bpe_push(const exl2__bpe_symbol *s, exl2__heap *h, uint32_t at)
{
    uint32_t rank = at == EXL2__BPE_NONE ? EXL2__BPE_NONE : s[at].rank;
    if (rank == EXL2__BPE_NONE || s[s[at].next].rank < rank) {
        return;
    }
    if (s[at].previous == EXL2__BPE_NONE || s[s[at].previous].rank > rank) {
        exl2__heap_push(h, (uint64_t)rank << 32 | at);
    }
}

/* Merges until no pair can merge. The result is the chain of ids from symbol 0 along `next`. `work` has
   exl2__bpe_work_bytes(count) bytes, is aligned to 8 and begins with the `count` symbols, whose ids are set.
   0 < count < 2^31. */
EXL2__PRIVATE void exl2__bpe_run(const exl2__bpe *b, void *work, uint32_t count)
{
    exl2__bpe_symbol *s = (exl2__bpe_symbol *)work;
    exl2__heap heap = { (uint64_t *)(void *)(s + count), 0 };
    for (uint32_t i = 0; i < count; i++) {
        s[i].previous = i - 1; /* EXL2__BPE_NONE for the first */
        s[i].next = i + 1 < count ? i + 1 : EXL2__BPE_NONE;
        exl2__bpe_rank(b, s, i);
    }
    for (uint32_t i = 0; i < count; i++) {
        exl2__bpe_push(s, &heap, i);
    }
    while (heap.count) {
        uint64_t key = exl2__heap_pop(&heap);
        uint32_t at = (uint32_t)key, rank = (uint32_t)(key >> 32);
        if (s[at].rank != rank) {
            continue; /* stale: one of the two symbols has merged since */
        }
        uint32_t right = s[at].next, next = s[right].next, previous = s[at].previous;
        s[at].id = b->merges[rank].id;
        s[at].next = next;
        s[right].rank = EXL2__BPE_NONE;
        exl2__bpe_rank(b, s, at);
        if (next != EXL2__BPE_NONE) {
            s[next].previous = at;
            exl2__bpe_push(s, &heap, next);
        }
        if (previous != EXL2__BPE_NONE) { /* its pair is another one now, and so is the neighbour of the pair before */
            exl2__bpe_rank(b, s, previous);
            exl2__bpe_push(s, &heap, previous);
            exl2__bpe_push(s, &heap, s[previous].previous);
        }
        exl2__bpe_push(s, &heap, at);
    }
}

#endif

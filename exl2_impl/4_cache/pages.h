/* pages.h: the KV pages of one model: a pool, and a tree that says which tokens each page has K and V of. K and V
   themselves belong to the backend.
   takes: a page count; token words.
   gives: exl2__pages, exl2__page, EXL2__PAGES_COPY_MIN; exl2__pages_make, _for, _room, _words, _rank, _oldest,
          _attach, _detach, _open, _close, _link, _shorten, _unlink, _match, _common, _closest, _pin, _unpin.
   owns:  nothing; its arrays come from the model's scratch arena.

   A page is free, or it is a node of the tree: it holds K and V of up to 64 tokens that follow the tokens of its parent
   page. The K and V of a token depend on all tokens before it, so the path from the root says what a page is good for.
   A lookup compares words: a hash only finds the candidates, so no text can get the pages of another one.

   In a model with windows a page may have lost K and V of the layers with a window (windows.h).

   A word is a token's id or names a vector (vectors.h); bit 31 is set if the backend computes a sampled token's K and V
   in another way than a prompt's. Each word of a page is a use of the vector that it names. A page is in use while
   running jobs have it in their tables. All others are the cache. */
#ifndef EXL2__PAGES_H
#define EXL2__PAGES_H

#include "../2_graph/phases.h"
#include "vectors.h"
#include "windows.h"

#define EXL2__PAGES_COPY_MIN 8u /* a page with fewer common words is not copied: they are computed again */

/* A page is open while the one job that fills it may still change its words; then it has no other user. A closed page
   has 64 words, and any job may use it, even before all of them have K and V. */
typedef struct exl2__page {
    uint64_t root;       /* of a page without a parent: the tree that it belongs to */
    uint64_t age;        /* when a job last used it, by exl2__pages.clock */
    uint32_t parent;     /* EXL2__NO_PAGE: the page begins a history */
    uint32_t child, next, previous; /* first child; siblings in a list */
    uint32_t same_hash;  /* next closed page of the bucket */
    uint32_t depth;      /* number of pages before it in a history */
    uint32_t count;      /* words */
    uint32_t filled;     /* words at the beginning whose K and V are computed */
    uint32_t users;      /* tables of running jobs that have it */
    uint32_t keepers;    /* idle sessions whose histories it belongs to */
    uint32_t pass;       /* number of the last pass with rows that fill it */
    bool open;
} exl2__page;

typedef struct exl2__table exl2__table;
typedef struct exl2__tier exl2__tier;

typedef struct exl2__pages {
    uint32_t count, free_count;
    uint32_t used, shared, cached; /* in use; by two or more jobs; the others with tokens */
    uint32_t owed;                 /* pages that were promised to running jobs, and that they did not take yet */
    uint32_t first;                /* list of the pages that begin histories */
    uint32_t sampled;              /* bit of the words of sampled tokens: EXL2__WORD_SAMPLED or 0 */
    uint32_t pass;                 /* number of the current pass */
    uint64_t clock, roots, evictions;
    exl2__table *idle;             /* list of the tables of idle sessions */
    exl2__tier *tier;              /* where evicted pages go; NULL: they are lost */
    exl2__vectors *vectors;        /* those that words name; NULL: all words are tokens */
    exl2__windows windows;         /* parts of pages; the caller makes them */
    exl2__page *page;              /* [count] */
    uint64_t *rank;                /* [count] order of eviction, lowest first; UINT64_MAX: cannot be evicted now */
    uint32_t *words;               /* [count, EXL2__PAGE_TOKENS] */
    uint32_t *free_list;           /* [count] stack of free pages */
    uint32_t *buckets;             /* [count] first closed page with a hash */
} exl2__pages;

EXL2__PRIVATE void exl2__pages_make(exl2__pages *p, exl2__arena *arena, uint32_t count)
{
    *p = (exl2__pages){ .count = count, .free_count = count, .first = EXL2__NO_PAGE };
    p->page = (exl2__page *)exl2__arena_alloc_zeroed(arena, (uint64_t)count * sizeof *p->page);
    p->rank = (uint64_t *)exl2__arena_alloc(arena, (uint64_t)count * sizeof *p->rank);
    p->words = (uint32_t *)exl2__arena_alloc(arena, (uint64_t)count * EXL2__PAGE_TOKENS * sizeof *p->words);
    p->free_list = (uint32_t *)exl2__arena_alloc(arena, (uint64_t)count * sizeof *p->free_list);
    p->buckets = (uint32_t *)exl2__arena_alloc(arena, (uint64_t)count * sizeof *p->buckets);
    for (uint32_t i = 0; p->buckets && i < count; i++) {
        p->free_list[i] = count - 1 - i; /* page 0 is taken first */
        p->rank[i] = UINT64_MAX;
        p->buckets[i] = EXL2__NO_PAGE;
    }
}

/* Number of pages that hold `tokens` tokens. */
static inline uint32_t exl2__pages_for(uint64_t tokens)
{
    return (uint32_t)exl2__div_up(tokens, EXL2__PAGE_TOKENS);
}

/* Pages that can be promised to another job: free ones, and cached ones, all of which can be evicted. */
static inline uint32_t exl2__pages_room(const exl2__pages *p)
{
    return p->free_count + p->cached - p->owed;
}

static inline uint32_t *exl2__pages_words(const exl2__pages *p, uint32_t page)
{
    return p->words + (size_t)page * EXL2__PAGE_TOKENS;
}

/* ---- the order of eviction ---- */

/* Only a leaf is evicted, so that a cached history has no holes. Leaves that no open session needs come first; then the
   one that was not used for the longest time. */
static inline void exl2__pages_rank(exl2__pages *p, uint32_t page)
{
    const exl2__page *n = &p->page[page];
    bool leaf = n->users == 0 && n->child == EXL2__NO_PAGE;
    p->rank[page] = leaf ? (uint64_t)(n->keepers > 0) << 63 | n->age : UINT64_MAX;
}

/* The page that is evicted next, or EXL2__NO_PAGE. It reads 8 bytes a page: 4,096 pages cost a few microseconds. */
static inline uint32_t exl2__pages_oldest(const exl2__pages *p)
{
    uint32_t oldest = EXL2__NO_PAGE;
    uint64_t rank = UINT64_MAX;
    for (uint32_t i = 0; i < p->count; i++) {
        oldest = p->rank[i] < rank ? i : oldest;
        rank = p->rank[i] < rank ? p->rank[i] : rank;
    }
    return oldest;
}

/* ---- the tree ---- */

static inline uint32_t exl2__pages_bucket(const exl2__pages *p, uint32_t parent, uint64_t root, const uint32_t *words)
{
    uint64_t hash = parent == EXL2__NO_PAGE ? ~root : parent;
    for (uint32_t i = 0; i < EXL2__PAGE_TOKENS; i++) {
        hash = (hash ^ words[i]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    return (uint32_t)(hash % p->count);
}

static inline uint32_t *exl2__pages_children(exl2__pages *p, uint32_t parent)
{
    return parent == EXL2__NO_PAGE ? &p->first : &p->page[parent].child;
}

static inline bool exl2__pages_is_child(const exl2__page *n, uint32_t parent, uint64_t root)
{
    return n->parent == parent && (parent != EXL2__NO_PAGE || n->root == root);
}

/* Puts a page under a parent. */
static inline void exl2__pages_attach(exl2__pages *p, uint32_t page, uint32_t parent)
{
    exl2__page *n = &p->page[page];
    uint32_t *list = exl2__pages_children(p, parent);
    n->parent = parent;
    n->depth = parent == EXL2__NO_PAGE ? 0 : p->page[parent].depth + 1;
    n->previous = EXL2__NO_PAGE;
    n->next = *list;
    if (n->next != EXL2__NO_PAGE) {
        p->page[n->next].previous = page;
    }
    *list = page;
    if (parent != EXL2__NO_PAGE) {
        exl2__pages_rank(p, parent);
    }
}

static inline void exl2__pages_detach(exl2__pages *p, uint32_t page)
{
    exl2__page *n = &p->page[page];
    uint32_t *from = n->previous == EXL2__NO_PAGE ? exl2__pages_children(p, n->parent) : &p->page[n->previous].next;
    *from = n->next;
    if (n->next != EXL2__NO_PAGE) {
        p->page[n->next].previous = n->previous;
    }
    if (n->parent != EXL2__NO_PAGE) {
        exl2__pages_rank(p, n->parent);
    }
}

/* Opens a closed page: its words may change. */
static inline void exl2__pages_open(exl2__pages *p, uint32_t page)
{
    exl2__page *n = &p->page[page];
    if (!n->open) {
        uint32_t *at = &p->buckets[exl2__pages_bucket(p, n->parent, n->root, exl2__pages_words(p, page))];
        while (*at != page) {
            at = &p->page[*at].same_hash;
        }
        *at = n->same_hash;
        n->open = true;
    }
}

/* Closes a page of 64 words. */
static inline void exl2__pages_close(exl2__pages *p, uint32_t page)
{
    exl2__page *n = &p->page[page];
    uint32_t *at = &p->buckets[exl2__pages_bucket(p, n->parent, n->root, exl2__pages_words(p, page))];
    n->same_hash = *at;
    *at = page;
    n->open = false;
}

/* A free page becomes an open one with `count` words and one user. free_count must be greater than 0. */
static inline uint32_t exl2__pages_link(exl2__pages *p, uint32_t parent, uint64_t root, const uint32_t *words,
                                        uint32_t count)
{
    EXL2__ASSERT(p->free_count > 0);
    uint32_t page = p->free_list[--p->free_count];
    p->page[page] = (exl2__page){ .root = root, .age = p->clock, .child = EXL2__NO_PAGE, .count = count, .users = 1,
                                  .open = true };
    exl2__vectors_use(p->vectors, words, count);
    memcpy(exl2__pages_words(p, page), words, count * sizeof *words);
    exl2__pages_attach(p, page, parent);
    p->used++;
    EXL2__ASSERT(p->used + p->cached + p->free_count == p->count);
    return page;
}

/* Leaves the page its first `count` words. */
static inline void exl2__pages_shorten(exl2__pages *p, uint32_t page, uint32_t count)
{
    exl2__page *n = &p->page[page];
    if (count < n->count) {
        exl2__vectors_drop(p->vectors, exl2__pages_words(p, page) + count, n->count - count);
        n->count = count;
    }
}

/* Frees a cached page without children. No idle session may list it. */
static inline void exl2__pages_unlink(exl2__pages *p, uint32_t page)
{
    EXL2__ASSERT(p->page[page].users == 0 && p->page[page].child == EXL2__NO_PAGE && p->page[page].keepers == 0);
    exl2__pages_open(p, page);
    exl2__pages_shorten(p, page, 0);
    exl2__pages_detach(p, page);
    exl2__windows_drop(&p->windows, page);
    p->rank[page] = UINT64_MAX;
    p->cached--;
    p->free_list[p->free_count++] = page;
    EXL2__ASSERT(p->used + p->cached + p->free_count == p->count);
}

/* ---- invariants, for EXL2__ASSERT ---- */

/* Each page is free, cached or in use; and each promised one is free, or can be evicted. */
static inline bool exl2__pages_add_up(const exl2__pages *p)
{
    return (uint64_t)p->used + p->cached + p->free_count == p->count && p->shared <= p->used
        && p->owed <= (uint64_t)p->free_count + p->cached;
}

/* No page is in two lists: a walk over the tree meets each page in use and each cached one once, and no free one. Reads
   all pages, and for each of the tree the stack of free ones. */
static inline bool exl2__pages_are_apart(const exl2__pages *p)
{
    uint32_t met = 0, used = 0, at = p->first;
    while (at != EXL2__NO_PAGE) {
        const exl2__page *n = &p->page[at];
        for (uint32_t i = 0; i < p->free_count; i++) {
            if (p->free_list[i] == at) {
                return false;
            }
        }
        used += n->users > 0;
        if (++met > p->count) {
            return false;
        }
        at = n->child;
        while (at == EXL2__NO_PAGE && n->next == EXL2__NO_PAGE && n->parent != EXL2__NO_PAGE) {
            n = &p->page[n->parent];
        }
        at = at == EXL2__NO_PAGE ? n->next : at;
    }
    return met == p->used + p->cached && used == p->used;
}

/* ---- lookups ---- */

/* The closed page with these 64 words under the parent, or EXL2__NO_PAGE. Of several the one with the most K and V. */
static inline uint32_t exl2__pages_match(const exl2__pages *p, uint32_t parent, uint64_t root, const uint32_t *words,
                                         uint32_t except)
{
    uint32_t best = EXL2__NO_PAGE, at = p->buckets[exl2__pages_bucket(p, parent, root, words)];
    for (; at != EXL2__NO_PAGE; at = p->page[at].same_hash) {
        const exl2__page *n = &p->page[at];
        bool same = at != except && exl2__pages_is_child(n, parent, root)
                 && memcmp(exl2__pages_words(p, at), words, EXL2__PAGE_TOKENS * sizeof *words) == 0;
        best = same && (best == EXL2__NO_PAGE || n->filled > p->page[best].filled) ? at : best;
    }
    return best;
}

/* Number of words at the beginning of the page that are the same. */
static inline uint32_t exl2__pages_common(const exl2__pages *p, uint32_t page, const uint32_t *words, uint32_t count)
{
    const uint32_t *own = exl2__pages_words(p, page);
    uint32_t most = exl2__min32(count, p->page[page].count), same = 0;
    while (same < most && own[same] == words[same]) {
        same++;
    }
    return same;
}

/* The page under the parent whose first words with K and V have most in common with these. *common: how many. whole: of
   the pages with all parts. */
static inline uint32_t exl2__pages_closest(const exl2__pages *p, uint32_t parent, uint64_t root, const uint32_t *words,
                                           uint32_t count, uint32_t except, bool whole, uint32_t *common)
{
    uint32_t best = EXL2__NO_PAGE, at = parent == EXL2__NO_PAGE ? p->first : p->page[parent].child;
    *common = 0;
    for (; at != EXL2__NO_PAGE; at = p->page[at].next) {
        bool usable = at != except && (!whole || exl2__windows_has(&p->windows, at));
        if (usable && exl2__pages_is_child(&p->page[at], parent, root)) {
            uint32_t same = exl2__pages_common(p, at, words, exl2__min32(count, p->page[at].filled));
            best = same > *common ? at : best;
            *common = exl2__max32(*common, same);
        }
    }
    return best;
}

/* ---- users ---- */

/* Adds a running job. */
static inline void exl2__pages_pin(exl2__pages *p, uint32_t page)
{
    exl2__page *n = &p->page[page];
    n->age = p->clock;
    p->shared += n->users == 1;
    p->used += n->users == 0;
    p->cached -= n->users == 0;
    n->users++;
    exl2__pages_rank(p, page);
}

/* Removes a running job. */
static inline void exl2__pages_unpin(exl2__pages *p, uint32_t page)
{
    exl2__page *n = &p->page[page];
    EXL2__ASSERT(n->users > 0);
    n->users--;
    n->age = p->clock;
    p->shared -= n->users == 1;
    p->used -= n->users == 0;
    p->cached += n->users == 0;
    exl2__pages_rank(p, page);
}

#endif

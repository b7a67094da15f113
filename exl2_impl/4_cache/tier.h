/* tier.h: a second tier of the cache: pages that were evicted, in slots of host memory.
   takes: pages that are evicted; texts that look for pages.
   gives: exl2__tier, exl2__tier_make, exl2__tier_forget; exl2__tier_keep, exl2__tier_find, exl2__tier_count,
          exl2__tier_closest, exl2__tier_hold, exl2__tier_list, exl2__tier_unpin.
   owns:  nothing; its arrays come from the model's scratch arena, and the slots are the backend's.

   A tree of its own says which text a slot belongs to: the same as that of the pages (pages.h), so a lookup compares
   the words of all pages before, and the root. A node has a slot with K and V of all of its words (`filled`), or leads
   to one that has. Moves between pages and slots are listed in order, and enqueued before the next pass begins
   (tier_moves.h). A slot keeps its content after it was copied back: when the same words are evicted again, nothing is
   copied.

   The last page of a text is filled in part. It is kept, too, as computing its words again would need a pass of the
   model for each run of prompt tokens and of sampled ones. Its node is open, as its page was, and has no children.
   Where texts part inside of a page, the words that they have in common come back. A page whose words are the beginning
   of a longer one's is not kept beside it: the longer one takes its place.

   Only tokens are kept. The words of a vector or of a row of a picture name memory that the tier does not hold, so they
   and all words after them are computed again. */
#ifndef EXL2__TIER_H
#define EXL2__TIER_H

#include "pages.h"

struct exl2__tier {
    exl2__pages tree;         /* count 0: there is no tier */
    uint32_t *slot;           /* [tree.count] of a node, or EXL2__NO_PAGE */
    uint32_t *free_slots;     /* [slots] stack */
    uint32_t slots, free_slot_count;
    uint32_t *path;           /* [path_max] scratch of exl2__tier_keep: the pages of a text */
    uint32_t path_max;
    exl2__tier_move *moves;   /* [move_max] */
    uint32_t move_count, move_max;
    bool worth;               /* copying a page is faster than computing it; else no page is kept or copied back */
    uint64_t out, in;         /* pages so far */
};

/* slots: 0 = no tier. pages: of the pool; context_pages: of a text. */
EXL2__PRIVATE void exl2__tier_make(exl2__tier *t, exl2__arena *arena, uint32_t slots, uint32_t pages,
                                   uint32_t context_pages)
{
    uint32_t nodes = slots ? slots + pages : 0; /* those on the way to a slot are pages that are not evicted yet */
    *t = (exl2__tier){ .slots = slots, .free_slot_count = slots, .path_max = slots ? context_pages : 0,
                       .move_max = slots ? 2 * pages : 0 };
    exl2__pages_make(&t->tree, arena, nodes);
    t->slot = (uint32_t *)exl2__arena_alloc(arena, (uint64_t)nodes * sizeof *t->slot);
    t->free_slots = (uint32_t *)exl2__arena_alloc(arena, (uint64_t)slots * sizeof *t->free_slots);
    t->path = (uint32_t *)exl2__arena_alloc(arena, (uint64_t)t->path_max * sizeof *t->path);
    t->moves = (exl2__tier_move *)exl2__arena_alloc(arena, (uint64_t)t->move_max * sizeof *t->moves);
    for (uint32_t i = 0; t->free_slots && i < slots; i++) {
        t->free_slots[i] = slots - 1 - i;
    }
}

/* ---- the tree ---- */

/* Frees a node, and those before it that lead nowhere then. */
EXL2__PRIVATE void exl2__tier_drop(exl2__tier *t, uint32_t node)
{
    while (node != EXL2__NO_PAGE) {
        const exl2__page *n = &t->tree.page[node];
        uint32_t parent = n->parent;
        if (n->users > 0 || n->child != EXL2__NO_PAGE) {
            return;
        }
        if (t->slot[node] != EXL2__NO_PAGE) {
            t->free_slots[t->free_slot_count++] = t->slot[node];
        }
        exl2__pages_unlink(&t->tree, node);
        node = parent != EXL2__NO_PAGE && t->slot[parent] == EXL2__NO_PAGE ? parent : EXL2__NO_PAGE;
    }
}

/* Forgets all texts. */
EXL2__PRIVATE void exl2__tier_forget(exl2__tier *t)
{
    for (uint32_t node; t->slots && (node = exl2__pages_oldest(&t->tree)) != EXL2__NO_PAGE;) {
        exl2__tier_drop(t, node);
    }
    t->move_count = 0;
}

/* A new node with a user and without a slot. EXL2__NO_PAGE: there is no room for it. */
EXL2__PRIVATE uint32_t exl2__tier_add(exl2__tier *t, uint32_t parent, uint64_t root, const uint32_t *words,
                                      uint32_t count)
{
    if (t->tree.free_count == 0) {
        uint32_t oldest = exl2__pages_oldest(&t->tree);
        if (oldest != EXL2__NO_PAGE) {
            exl2__tier_drop(t, oldest);
        }
    }
    if (t->tree.free_count == 0) {
        return EXL2__NO_PAGE;
    }
    uint32_t node = exl2__pages_link(&t->tree, parent, root, words, count);
    t->slot[node] = EXL2__NO_PAGE;
    if (count == EXL2__PAGE_TOKENS) {
        exl2__pages_close(&t->tree, node);
    }
    return node;
}

/* The node after `parent` with these 64 words, which gets a user; a new one if there is none and `make`. */
EXL2__PRIVATE uint32_t exl2__tier_pin(exl2__tier *t, uint32_t parent, uint64_t root, const uint32_t *words, bool make)
{
    uint32_t node = exl2__pages_match(&t->tree, parent, root, words, EXL2__NO_PAGE);
    if (node != EXL2__NO_PAGE) {
        exl2__pages_pin(&t->tree, node);
        return node;
    }
    return make ? exl2__tier_add(t, parent, root, words, EXL2__PAGE_TOKENS) : EXL2__NO_PAGE;
}

/* Gives a node and all before it a user. */
EXL2__PRIVATE void exl2__tier_hold(exl2__tier *t, uint32_t node)
{
    t->tree.clock++;
    for (uint32_t at = node; at != EXL2__NO_PAGE; at = t->tree.page[at].parent) {
        exl2__pages_pin(&t->tree, at);
    }
}

/* Removes a user of a node and of all nodes before it. A node without a slot that leads nowhere is freed. */
EXL2__PRIVATE void exl2__tier_unpin(exl2__tier *t, uint32_t node)
{
    for (uint32_t at = node; at != EXL2__NO_PAGE; at = t->tree.page[at].parent) {
        exl2__pages_unpin(&t->tree, at);
    }
    if (node != EXL2__NO_PAGE && t->slot[node] == EXL2__NO_PAGE) {
        exl2__tier_drop(t, node);
    }
}

/* A slot that is free, or that of the text that was not used for the longest time. EXL2__NO_PAGE: all are needed. */
EXL2__PRIVATE uint32_t exl2__tier_slot(exl2__tier *t)
{
    if (t->free_slot_count == 0) {
        uint32_t oldest = exl2__pages_oldest(&t->tree);
        if (oldest == EXL2__NO_PAGE) {
            return EXL2__NO_PAGE;
        }
        exl2__tier_drop(t, oldest);
    }
    return t->free_slot_count ? t->free_slots[--t->free_slot_count] : EXL2__NO_PAGE;
}

static inline void exl2__tier_list(exl2__tier *t, uint32_t slot, uint32_t page, bool out)
{
    EXL2__ASSERT(t->move_count < t->move_max);
    t->moves[t->move_count++] = (exl2__tier_move){ slot, page, out };
    *(out ? &t->out : &t->in) += 1;
}

/* ---- out ---- */

/* Number of words before the first that is no token. */
static inline uint32_t exl2__tier_tokens(const uint32_t *words, uint32_t count)
{
    uint32_t tokens = 0;
    while (tokens < count && !exl2__vectors_is(words[tokens])) {
        tokens++;
    }
    return tokens;
}

/* Frees the nodes after `parent` whose words are a beginning of these, of which there are more. */
EXL2__PRIVATE void exl2__tier_drop_beginnings(exl2__tier *t, uint32_t parent, uint64_t root, const uint32_t *words,
                                              uint32_t count)
{
    uint32_t at = *exl2__pages_children(&t->tree, parent);
    for (uint32_t next; at != EXL2__NO_PAGE; at = next) {
        const exl2__page *n = &t->tree.page[at];
        bool shorter = n->open && n->count < count && exl2__pages_is_child(n, parent, root);
        next = n->next;
        if (shorter && exl2__pages_common(&t->tree, at, words, n->count) == n->count) {
            exl2__tier_drop(t, at);
        }
    }
}

/* Lists the copy of the page, whose first `count` words follow the node `parent`, to a slot, unless one has them. */
EXL2__PRIVATE void exl2__tier_put(exl2__tier *t, uint32_t parent, uint64_t root, const uint32_t *words, uint32_t count,
                                  uint32_t page)
{
    uint32_t common, slot = EXL2__NO_PAGE;
    uint32_t node = exl2__pages_closest(&t->tree, parent, root, words, count, EXL2__NO_PAGE, false, &common);
    if (common == count) {
        exl2__pages_pin(&t->tree, node);
        exl2__pages_unpin(&t->tree, node); /* it was used now */
        return;
    }
    exl2__tier_drop_beginnings(t, parent, root, words, count);
    node = count == EXL2__PAGE_TOKENS ? exl2__tier_pin(t, parent, root, words, true)
                                      : exl2__tier_add(t, parent, root, words, count);
    if (node == EXL2__NO_PAGE) {
        return;
    }
    slot = exl2__tier_slot(t);
    exl2__pages_unpin(&t->tree, node);
    if (slot == EXL2__NO_PAGE) {
        exl2__tier_drop(t, node);
        return;
    }
    t->slot[node] = slot;
    t->tree.page[node].filled = count;
    exl2__tier_list(t, slot, page, true);
}

/* Before a page of the pool is evicted: it goes to a slot, if it has enough tokens. */
EXL2__PRIVATE void exl2__tier_keep(exl2__tier *t, const exl2__pages *p, uint32_t page)
{
    const exl2__page *n = &p->page[page];
    const uint32_t *words = exl2__pages_words(p, page);
    uint32_t at = page, count = exl2__tier_tokens(words, n->filled), parent = EXL2__NO_PAGE, i = 0;
    bool tokens = true;
    if (!t || !t->worth || count < EXL2__PAGES_COPY_MIN || n->depth >= t->path_max || t->move_count == t->move_max
        || n->age == 0) { /* roots.h: nothing finds the page any more */
        return;
    }
    for (uint32_t left = n->depth; left-- > 0;) {
        t->path[left] = at = p->page[at].parent;
        const uint32_t *before = exl2__pages_words(p, at);
        tokens = tokens && exl2__tier_tokens(before, EXL2__PAGE_TOKENS) == EXL2__PAGE_TOKENS;
    }
    uint64_t root = p->page[at].root;
    t->tree.clock++;
    for (uint32_t next; tokens && i < n->depth; i++, parent = next) {
        next = exl2__tier_pin(t, parent, root, exl2__pages_words(p, t->path[i]), true);
        if (next == EXL2__NO_PAGE) {
            break;
        }
    }
    if (tokens && i == n->depth) {
        exl2__tier_put(t, parent, root, words, count, page);
    }
    exl2__tier_unpin(t, parent);
}

/* ---- in ---- */

/* The node of a text's page `at`, with a user, as all before it; words(arg, i, out) gives the words of its pages.
   EXL2__NO_PAGE: the tier does not have the text up to this page. */
EXL2__PRIVATE uint32_t exl2__tier_find(exl2__tier *t, uint64_t root, uint32_t at,
                                       const uint32_t *(*words)(const void *arg, uint32_t page, uint32_t *memory),
                                       const void *arg)
{
    uint32_t node = EXL2__NO_PAGE, memory[EXL2__PAGE_TOKENS];
    t->tree.clock++;
    for (uint32_t i = 0; i <= at; i++) {
        uint32_t next = exl2__tier_pin(t, node, root, words(arg, i, memory), false);
        if (next == EXL2__NO_PAGE) {
            exl2__tier_unpin(t, node);
            return EXL2__NO_PAGE;
        }
        node = next;
    }
    return node;
}

/* Number of pages from page `at` of a text on, before page `end`, that would come back. */
EXL2__PRIVATE uint32_t exl2__tier_count(const exl2__tier *t, uint64_t root, uint32_t at, uint32_t end,
                                        const uint32_t *(*words)(const void *arg, uint32_t page, uint32_t *memory),
                                        const void *arg)
{
    uint32_t node = EXL2__NO_PAGE, memory[EXL2__PAGE_TOKENS], count = 0;
    for (uint32_t i = 0; t && t->worth && at < end && i < end; i++) {
        node = exl2__pages_match(&t->tree, node, root, words(arg, i, memory), EXL2__NO_PAGE);
        if (node == EXL2__NO_PAGE || (i >= at && t->slot[node] == EXL2__NO_PAGE)) {
            break;
        }
        count += i >= at;
    }
    return count;
}

/* The node that has most of the first `most` words of a text's page `at`. *common: how many; 0, and EXL2__NO_PAGE: too
   few for a copy. */
EXL2__PRIVATE uint32_t exl2__tier_closest(const exl2__tier *t, uint64_t root, uint32_t at, uint32_t most,
                                          const uint32_t *(*words)(const void *arg, uint32_t page, uint32_t *memory),
                                          const void *arg, uint32_t *common)
{
    uint32_t node = EXL2__NO_PAGE, memory[EXL2__PAGE_TOKENS];
    bool known = t && t->worth && most >= EXL2__PAGES_COPY_MIN;
    *common = 0;
    for (uint32_t i = 0; known && i < at; i++) {
        node = exl2__pages_match(&t->tree, node, root, words(arg, i, memory), EXL2__NO_PAGE);
        known = node != EXL2__NO_PAGE;
    }
    if (known) {
        node = exl2__pages_closest(&t->tree, node, root, words(arg, at, memory), most, EXL2__NO_PAGE, false, common);
    }
    if (*common < EXL2__PAGES_COPY_MIN) {
        *common = 0;
        node = EXL2__NO_PAGE;
    }
    return node;
}

#endif

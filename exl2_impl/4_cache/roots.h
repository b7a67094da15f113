/* roots.h: which tree of KV pages belongs to a session's texts with a set of adapters and control vectors.
   takes: the root that a session has without either; sets.
   gives: exl2__roots, exl2__roots_make, exl2__roots_of, exl2__roots_drop.
   owns:  nothing; its array lies in the model's scratch arena.

   K and V depend on adapters and control vectors. So each set of them has a tree of its own for each root of sessions,
   which equal sets share. No root, and no id of an adapter or control vector, is ever used twice. If the table is full,
   it forgets the root that was not used for the longest time: texts with that set are then computed again. */
#ifndef EXL2__ROOTS_H
#define EXL2__ROOTS_H

#include "table.h"

typedef struct exl2__root {
    uint64_t base, root; /* of the session without adapters; with them. root 0: a free place */
    uint64_t age;
    exl2__lora_set set;  /* its stores are not used */
} exl2__root;

typedef struct exl2__roots {
    exl2__root *items;   /* [count] */
    uint32_t count;
    uint64_t clock;
} exl2__roots;

static inline void exl2__roots_make(exl2__roots *r, exl2__arena *arena, uint32_t count)
{
    *r = (exl2__roots){ .count = count };
    r->items = (exl2__root *)exl2__arena_alloc_zeroed(arena, (uint64_t)count * sizeof *r->items);
}

/* The root of texts with the set; NULL: with neither adapters nor control vectors. */
EXL2__PRIVATE uint64_t exl2__roots_of(exl2__roots *r, exl2__pages *p, uint64_t base, const exl2__lora_set *set)
{
    exl2__root *oldest = r->items;
    if (!set) {
        return base;
    }
    for (uint32_t i = 0; i < r->count; i++) {
        exl2__root *one = &r->items[i];
        if (one->root && one->base == base && exl2__lora_same(&one->set, set)) {
            one->age = ++r->clock;
            return one->root;
        }
        oldest = one->age < oldest->age ? one : oldest;
    }
    *oldest = (exl2__root){ base, ++p->roots, ++r->clock, *set };
    return oldest->root;
}

/* The pages of a root are the first that are evicted. */
static inline void exl2__roots_age_pages(exl2__pages *p, uint64_t root)
{
    for (uint32_t i = 0; i < p->count; i++) {
        if (p->page[i].root == root) {
            p->page[i].age = 0;
            if (p->rank[i] != UINT64_MAX) {
                exl2__pages_rank(p, i);
            }
        }
    }
}

/* Nothing finds the pages of a root any more: they are the first that are evicted, also from the second tier, and none
   goes there. Histories of idle sessions keep them no longer. */
EXL2__PRIVATE void exl2__roots_age(exl2__pages *p, uint64_t root)
{
    for (exl2__table *t = p->idle, *next; t; t = next) {
        next = t->next;
        if (t->root == root) {
            exl2__table_forget(t, p);
        }
    }
    exl2__roots_age_pages(p, root);
    if (p->tier) {
        exl2__roots_age_pages(&p->tier->tree, root);
    }
}

/* The adapter or control vector has ended: nothing finds K and V of its sets any more. */
EXL2__PRIVATE void exl2__roots_drop(exl2__roots *r, exl2__pages *p, uint64_t id)
{
    for (uint32_t i = 0; i < r->count; i++) {
        bool has = false;
        for (uint32_t u = 0; r->items[i].root && u < r->items[i].set.count + r->items[i].set.steer_count; u++) {
            has = has || r->items[i].set.uses[u].id == id;
        }
        if (has) {
            exl2__roots_age(p, r->items[i].root);
            r->items[i] = (exl2__root){ 0 };
        }
    }
}

#endif

/* sort.h: heap sort in place: n log n steps for every input, without memory, recursion or globals. (qsort has no user
   pointer, and may be quadratic.)
   takes: any array, through two functions that compare and swap items.
   gives: exl2__sort, exl2__sort_slice. */
#ifndef EXL2__SORT_H
#define EXL2__SORT_H

#include "work.h"

typedef struct exl2__sort_items {
    void *items;
    bool (*less)(const void *items, uint32_t a, uint32_t b);
    void (*swap)(void *items, uint32_t a, uint32_t b);
} exl2__sort_items;

/* Restores the heap order below `root` in the first `count` items. */
static inline void exl2__sort_sink(const exl2__sort_items *s, uint32_t root, uint32_t count)
{
    for (uint32_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && s->less(s->items, child, child + 1)) {
            child++;
        }
        if (!s->less(s->items, root, child)) {
            return;
        }
        s->swap(s->items, root, child);
    }
}

/* Sorts ascending by `less`, not stable, in slices; *at is 0 at first. count < 2^31. The first count / 2 rounds build
   the heap, and each of the others moves its largest item to the end. */
EXL2__PRIVATE exl2_result exl2__sort_slice(const exl2__sort_items *s, uint32_t count, uint32_t *at, exl2__work *work)
{
    uint32_t heap = count / 2, rounds = count ? heap + count - 1 : 0;
    uint32_t levels = 0; /* a round costs about two comparisons and a swap per level */
    for (uint32_t left = count; left; left /= 2) {
        levels++;
    }
    for (; *at < rounds; ++*at) {
        if (!exl2__work_spend(work, *at < heap ? 60 : 20 * levels)) {
            return EXL2_PENDING;
        }
        if (*at < heap) {
            exl2__sort_sink(s, heap - 1 - *at, count);
        } else {
            s->swap(s->items, 0, rounds - *at);
            exl2__sort_sink(s, 0, rounds - *at);
        }
    }
    return EXL2_OK;
}

/* The same at once. */
static inline void exl2__sort(const exl2__sort_items *s, uint32_t count)
{
    exl2__work all = exl2__work_all();
    uint32_t at = 0;
    exl2__sort_slice(s, count, &at, &all);
}

#endif

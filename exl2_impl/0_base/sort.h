/* sort.h: heap sort in place: n log n steps for every input, without memory, recursion or globals. (qsort has no user
   pointer, and may be quadratic.)
   takes: any array, through two functions that compare and swap items.
   gives: exl2__sort.
   owns:  nothing. */
#ifndef EXL2__SORT_H
#define EXL2__SORT_H

#include "config.h"

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

/* Sorts ascending by `less`, not stable. count < 2^31. */
static inline void exl2__sort(const exl2__sort_items *s, uint32_t count)
{
    for (uint32_t root = count / 2; root > 0; root--) {
        exl2__sort_sink(s, root - 1, count);
    }
    for (uint32_t last = count; last > 1; last--) {
        s->swap(s->items, 0, last - 1);
        exl2__sort_sink(s, 0, last - 1);
    }
}

#endif

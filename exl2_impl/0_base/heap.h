/* heap.h: a binary heap of 64-bit keys in the caller's memory; the smallest key is on top.
   takes: memory for as many keys as are ever pushed and not popped.
   gives: exl2__heap, exl2__heap_push, exl2__heap_pop. */
#ifndef EXL2__HEAP_H
#define EXL2__HEAP_H

#include "config.h"

typedef struct exl2__heap {
    uint64_t *keys; /* [count], each at most as large as keys[2 * i + 1] and keys[2 * i + 2] */
    uint32_t count; /* below 2^31 */
} exl2__heap;

static inline void exl2__heap_push(exl2__heap *h, uint64_t key)
{
    uint32_t at = h->count++;
    for (; at > 0 && h->keys[(at - 1) / 2] > key; at = (at - 1) / 2) {
        h->keys[at] = h->keys[(at - 1) / 2];
    }
    h->keys[at] = key;
}

/* Removes and returns the smallest key. count > 0. */
static inline uint64_t exl2__heap_pop(exl2__heap *h)
{
    EXL2__ASSERT(h->count > 0);
    uint64_t top = h->keys[0], key = h->keys[--h->count];
    uint32_t at = 0;
    for (uint32_t child; (child = 2 * at + 1) < h->count; at = child) {
        child += child + 1 < h->count && h->keys[child + 1] < h->keys[child];
        if (h->keys[child] >= key) {
            break;
        }
        h->keys[at] = h->keys[child];
    }
    h->keys[at] = key;
    EXL2__ASSERT(h->count == 0 || h->keys[0] >= top);
    return top;
}

#endif

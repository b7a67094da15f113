/* pool.h: ids for fixed slots. An id is generation << 16 | slot + 1, so 0 is "none" and an id whose object was
   closed no longer matches its slot.
   takes: a capacity of at most 65,535.
   gives: exl2__pool_take, exl2__pool_slot, exl2__pool_give.
   owns:  nothing; the two arrays belong to the caller's arena.
   next:  half.h */
#ifndef EXL2__POOL_H
#define EXL2__POOL_H

#include "arena.h"

typedef struct exl2__pool {
    uint32_t *ids;  /* [capacity] id of the object in the slot; 0 = free */
    uint16_t *generations;
    uint32_t capacity, end; /* end: no slot from here on is taken */
} exl2__pool;

static inline void exl2__pool_make(exl2__pool *p, exl2__arena *arena, uint32_t capacity)
{
    p->capacity = capacity;
    p->end = 0;
    p->ids = (uint32_t *)exl2__arena_take_zeroed(arena, (uint64_t)capacity * sizeof *p->ids);
    p->generations = (uint16_t *)exl2__arena_take_zeroed(arena, (uint64_t)capacity * sizeof *p->generations);
}

/* A new id, or 0 when every slot is taken. The lowest free slot is used. */
static inline uint32_t exl2__pool_take(exl2__pool *p)
{
    for (uint32_t slot = 0; slot < p->capacity; slot++) {
        if (p->ids[slot] == 0) {
            p->generations[slot]++;
            p->end = p->end > slot ? p->end : slot + 1;
            exl2__atomic_store(&p->ids[slot], (uint32_t)p->generations[slot] << 16 | (slot + 1));
            return p->ids[slot];
        }
    }
    return 0;
}

/* Slot of a live id, or -1. */
static inline int32_t exl2__pool_slot(const exl2__pool *p, uint32_t id)
{
    uint32_t slot = (id & 0xFFFF) - 1;
    return id && slot < p->capacity && exl2__atomic_load(&p->ids[slot]) == id ? (int32_t)slot : -1;
}

static inline void exl2__pool_give(exl2__pool *p, uint32_t slot)
{
    exl2__atomic_store(&p->ids[slot], 0);
    while (p->end > 0 && p->ids[p->end - 1] == 0) {
        p->end--;
    }
}

#endif

/* pool.h: ids for a fixed number of slots. An id is generation << 32 | slot + 1, so 0 means "none". The id of a closed
   object never matches its slot again: a slot that has used up all generations stays empty.
   takes: a capacity.
   gives: exl2__pool, exl2__pool_alloc, exl2__pool_slot, exl2__pool_slot_of, exl2__pool_free, EXL2__POOL_NAME.
   owns:  nothing; the two arrays belong to the caller's arena. */
#ifndef EXL2__POOL_H
#define EXL2__POOL_H

#include "arena.h"

/* An id in a message: slot and generation, as in "3.17". NAME is the printf format, NAMED gives its arguments. */
#define EXL2__POOL_NAME "%u.%u"
#define EXL2__POOL_NAMED(id) (uint32_t)(id), (uint32_t)((id) >> 32)

typedef struct exl2__pool {
    uint32_t *live;         /* [capacity] generation of the object in the slot, 0 = free; any thread may read it */
    uint32_t *generations;  /* [capacity] most recent generation of the slot */
    uint32_t capacity, end; /* end: all slots from here on are free */
} exl2__pool;

static inline void exl2__pool_make(exl2__pool *p, exl2__arena *arena, uint32_t capacity)
{
    p->capacity = capacity;
    p->end = 0;
    p->live = (uint32_t *)exl2__arena_alloc_zeroed(arena, (uint64_t)capacity * sizeof *p->live);
    p->generations = (uint32_t *)exl2__arena_alloc_zeroed(arena, (uint64_t)capacity * sizeof *p->generations);
}

/* A slot is free, or live with its newest generation. */
static inline bool exl2__pool_is_newest(const exl2__pool *p, uint32_t slot)
{
    uint32_t live = exl2__atomic_load(&p->live[slot]);
    return live == 0 || live == p->generations[slot];
}

/* A new id, in the lowest free slot; 0 if no slot is free. */
static inline uint64_t exl2__pool_alloc(exl2__pool *p)
{
    for (uint32_t slot = 0; slot < p->capacity; slot++) {
        if (p->live[slot] == 0 && p->generations[slot] != UINT32_MAX) {
            p->generations[slot]++;
            p->end = p->end > slot ? p->end : slot + 1;
            exl2__atomic_store(&p->live[slot], p->generations[slot]);
            EXL2__ASSERT(slot < p->end);
            return (uint64_t)p->generations[slot] << 32 | (slot + 1);
        }
    }
    return 0;
}

/* Slot of an id that was valid at some time. */
static inline uint32_t exl2__pool_slot_of(uint64_t id)
{
    return (uint32_t)id - 1;
}

/* Slot of a live id; -1 if the id is stale or was never valid. */
static inline int32_t exl2__pool_slot(const exl2__pool *p, uint64_t id)
{
    uint32_t slot = exl2__pool_slot_of(id), generation = (uint32_t)(id >> 32);
    return generation && slot < p->capacity && exl2__atomic_load(&p->live[slot]) == generation ? (int32_t)slot : -1;
}

static inline void exl2__pool_free(exl2__pool *p, uint32_t slot)
{
    EXL2__ASSERT(p->live[slot] != 0 && exl2__pool_is_newest(p, slot));
    exl2__atomic_store(&p->live[slot], 0);
    while (p->end > 0 && p->live[p->end - 1] == 0) {
        p->end--;
    }
}

#endif

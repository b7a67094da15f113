/* arena.h: bump arenas. A dry arena has no memory and only counts, so that the code which lays out an object
   also measures it: run it dry, open an arena of the size it gave, run it again.
   takes: exl2__ctx, a size from a dry run.
   gives: exl2__arena, exl2__arena_open, exl2__arena_alloc, exl2__arena_close.
   owns:  one block; everything taken from it dies with it. */
#ifndef EXL2__ARENA_H
#define EXL2__ARENA_H

#include "alloc.h"

#define EXL2__ARENA_ALIGN 64 /* of every block: one cache line, one AVX-512 vector */

typedef struct exl2__arena {
    uint8_t *base; /* NULL: dry */
    uint64_t size, used;
    exl2_mem tag;
} exl2__arena;

/* A zeroed arena is a dry one. */
static inline exl2_result exl2__arena_open(exl2__ctx *c, exl2__arena *a, uint64_t bytes, exl2_mem tag)
{
    void *memory;
    *a = (exl2__arena){ 0 };
    EXL2__TRY(exl2__alloc(c, bytes, EXL2__ARENA_ALIGN, tag, &memory));
    a->base = (uint8_t *)memory;
    a->size = bytes;
    a->tag = tag;
    return EXL2_OK;
}

/* `bytes` uninitialised bytes on a cache line of their own, so that `used` does not depend on the order of
   requests. NULL when dry, or when the arena is full (a plan that does not match its dry run). */
EXL2__COLD
static void *exl2__arena_alloc(exl2__arena *a, uint64_t bytes)
{
    uint64_t start = a->used, end;
    if (!exl2__add64(start, bytes, &end) || end > UINT64_MAX - EXL2__ARENA_ALIGN) {
        a->used = UINT64_MAX / 2; /* a dry run that big is refused by exl2__arena_open */
        return NULL;
    }
    a->used = exl2__align_up(end, EXL2__ARENA_ALIGN);
    return a->base && a->used <= a->size ? a->base + start : NULL;
}

/* As exl2__arena_alloc, zeroed. */
EXL2__COLD
static void *exl2__arena_alloc_zeroed(exl2__arena *a, uint64_t bytes)
{
    void *memory = exl2__arena_alloc(a, bytes);
    if (memory) {
        memset(memory, 0, (size_t)bytes);
    }
    return memory;
}

static inline void exl2__arena_close(exl2__ctx *c, exl2__arena *a)
{
    exl2__free(c, a->base, a->size, a->tag);
    *a = (exl2__arena){ 0 };
}

#endif

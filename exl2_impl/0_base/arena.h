/* arena.h: bump arenas. A dry arena has no memory and only counts bytes, so that the code which lays out an object
   also measures it: run the layout on a dry arena, open an arena of the size it used, run the layout again.
   takes: exl2__ctx, a size from a dry run.
   gives: exl2__arena, exl2__arena_open, exl2__arena_alloc, exl2__arena_clear, exl2__arena_touch,
          exl2__arena_close.
   owns:  one block of memory, which is freed as a whole. */
#ifndef EXL2__ARENA_H
#define EXL2__ARENA_H

#include "alloc.h"
#include "work.h"

#define EXL2__ARENA_ALIGN 64 /* alignment of every allocation: one cache line, one AVX-512 vector */

typedef struct exl2__arena {
    uint8_t *base; /* NULL: a dry arena */
    uint64_t size, used;
    exl2_mem tag;
} exl2__arena;

/* Opens an arena with memory. (A zeroed arena is a dry one, and needs no opening.) */
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

/* `bytes` uninitialised bytes that begin on a new cache line, so that `used` does not depend on the order of the
   allocations. NULL if the arena is dry, or if it is full (the layout does not match its dry run). */
EXL2__COLD
EXL2__PRIVATE void *exl2__arena_alloc(exl2__arena *a, uint64_t bytes)
{
    uint64_t start = a->used, end;
    if (!exl2__add64(start, bytes, &end) || end > UINT64_MAX - EXL2__ARENA_ALIGN) {
        a->used = UINT64_MAX / 2; /* exl2__arena_open will reject such a size */
        return NULL;
    }
    a->used = exl2__align_up(end, EXL2__ARENA_ALIGN);
    return a->base && a->used <= a->size ? a->base + start : NULL;
}

/* The same, zeroed. */
EXL2__COLD
EXL2__PRIVATE void *exl2__arena_alloc_zeroed(exl2__arena *a, uint64_t bytes)
{
    void *memory = exl2__arena_alloc(a, bytes);
    if (memory) {
        memset(memory, 0, (size_t)bytes);
    }
    return memory;
}

/* Has the layout used exactly what its dry run counted? */
static inline bool exl2__arena_is_filled(const exl2__arena *a)
{
    return a->used == a->size;
}

/* Zeroes the whole arena in slices, in place of exl2__arena_alloc_zeroed for large tables: most of the time goes into
   the first access to its pages. *at: the bytes that are zeroed, 0 at first. */
static inline exl2_result exl2__arena_clear(exl2__arena *a, uint64_t *at, exl2__work *work)
{
    while (*at < a->size) {
        uint64_t part = exl2__min64(a->size - *at, 65536);
        if (!exl2__work_spend(work, part / 2)) {
            return EXL2_PENDING;
        }
        memset(a->base + *at, 0, (size_t)part);
        *at += part;
    }
    return EXL2_OK;
}

/* Touches the pages of the next `bytes` bytes in slices, so that the system provides the memory now, and not in one
   slice of later work that writes all over it. *at: the end of what has been touched, 0 at first. */
static inline exl2_result exl2__arena_touch(exl2__arena *a, uint64_t bytes, uint64_t *at, exl2__work *work)
{
    uint64_t end = exl2__min64(a->used + bytes, a->size);
    for (*at = exl2__max64(*at, a->used); *at < end;) {
        uint64_t to = exl2__min64(*at + 65536, a->size);
        if (!exl2__work_spend(work, 20000)) {
            return EXL2_PENDING;
        }
        exl2__platform_populate(a->base + *at, (size_t)(to - *at));
        for (; *at < to; *at = exl2__min64(*at + 4096, to)) {
            a->base[*at] = 0;
        }
    }
    return EXL2_OK;
}

static inline void exl2__arena_close(exl2__ctx *c, exl2__arena *a)
{
    exl2__free(c, a->base, a->size, a->tag);
    *a = (exl2__arena){ 0 };
}

#endif

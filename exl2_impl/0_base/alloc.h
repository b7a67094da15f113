/* alloc.h: host memory. Every allocation goes through the application's hook, is counted, and respects host_bytes_max.
   takes: exl2__ctx (hook, cap).
   gives: exl2__alloc, exl2__free, exl2__alloc_room.
   owns:  nothing; the caller frees with the same size and tag. */
#ifndef EXL2__ALLOC_H
#define EXL2__ALLOC_H

#include "bytes.h"
#include "platform_alloc.h"

/* Bytes that may still be allocated under the cap. */
static inline uint64_t exl2__alloc_room(const exl2__ctx *c)
{
    if (!c->host_bytes_max) {
        return UINT64_MAX;
    }
    return c->host_bytes_max > c->host_bytes ? c->host_bytes_max - c->host_bytes : 0;
}

/* Is memory with this tag only reserved? All of it counts nevertheless. */
static inline bool exl2__alloc_is_reserved(const exl2__ctx *c, exl2_mem tag)
{
    return c->reserves_cache && tag == EXL2_MEM_KV;
}

/* *out: `bytes` uninitialised bytes, aligned to `align` (a power of two). For 0 bytes *out is NULL, without error. */
EXL2__COLD
EXL2__PRIVATE exl2_result exl2__alloc(exl2__ctx *c, uint64_t bytes, size_t align, exl2_mem tag, void **out)
{
    *out = NULL;
    if (bytes == 0) {
        return EXL2_OK;
    }
    if (bytes > exl2__alloc_room(c)) {
        return exl2__fail(
            c, EXL2_ERR_BUDGET, "%llu more bytes would exceed host_bytes_max (%llu, of which %llu are in use)",
            (unsigned long long)bytes, (unsigned long long)c->host_bytes_max, (unsigned long long)c->host_bytes);
    }
    if (bytes <= PTRDIFF_MAX) {
        *out = exl2__alloc_is_reserved(c, tag) ? exl2__platform_reserve((size_t)bytes)
             : c->allocator.alloc_fn(c->allocator.user, (size_t)bytes, align, tag);
    }
    if (!*out) {
        return exl2__fail(c, EXL2_ERR_MEMORY, "the allocator returned no memory for %llu bytes",
                          (unsigned long long)bytes);
    }
    c->allocations++;
    c->host_bytes += bytes;
    c->host_peak = c->host_bytes > c->host_peak ? c->host_bytes : c->host_peak;
    return EXL2_OK;
}

/* `memory` may be NULL. */
EXL2__COLD
EXL2__PRIVATE void exl2__free(exl2__ctx *c, void *memory, uint64_t bytes, exl2_mem tag)
{
    if (memory) {
        c->host_bytes -= bytes;
    }
    if (memory && exl2__alloc_is_reserved(c, tag)) {
        exl2__platform_release(memory);
    } else if (memory) {
        c->allocator.free_fn(c->allocator.user, memory, (size_t)bytes, tag);
    }
}

#endif

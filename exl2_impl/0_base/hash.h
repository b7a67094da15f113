/* hash.h: 64-bit string hash and an index table over strings that others own.
   takes: byte strings.
   gives: exl2__hash, exl2__strtab.
   owns:  nothing; the table's slots come from the caller's arena. */
#ifndef EXL2__HASH_H
#define EXL2__HASH_H

#include "arena.h"

/* FNV-1a over 64 bits with a final mix (splitmix64's), so that the low bits are good. */
static inline uint64_t exl2__hash(const void *data, size_t bytes)
{
    const uint8_t *p = (const uint8_t *)data;
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < bytes; i++) {
        h = (h ^ p[i]) * 0x100000001B3u;
    }
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9u;
    h = (h ^ (h >> 27)) * 0x94D049BB133111EBu;
    return h ^ (h >> 31);
}

/* Open addressing over entry numbers; the caller's callback says what entry i is called. */
typedef struct exl2__strtab {
    uint32_t *slots; /* [mask + 1] entry + 1; 0 = empty */
    uint32_t mask;
    uint64_t probes; /* steps that entries lie beyond their first slot, together */
    const char *(*name)(const void *owner, uint32_t entry, size_t *bytes);
    const void *owner;
} exl2__strtab;

/* Room for `entries` strings at most half full. */
static inline void exl2__strtab_make(exl2__strtab *t, exl2__arena *arena, uint32_t entries)
{
    uint64_t slots = 16;
    while (slots < (uint64_t)entries * 2) {
        slots *= 2;
    }
    t->mask = (uint32_t)(slots - 1);
    t->probes = 0;
    t->slots = (uint32_t *)exl2__arena_alloc_zeroed(arena, slots * sizeof *t->slots);
}

/* The entry called so, or UINT32_MAX with *slot (may be NULL) where exl2__strtab_put may write it. */
static inline uint32_t exl2__strtab_find(const exl2__strtab *t, const char *name, size_t bytes, uint32_t *slot)
{
    uint32_t at = (uint32_t)exl2__hash(name, bytes) & t->mask;
    while (t->slots[at]) {
        uint32_t entry = t->slots[at] - 1;
        size_t entry_bytes;
        const char *entry_name = t->name(t->owner, entry, &entry_bytes);
        if (entry_bytes == bytes && memcmp(entry_name, name, bytes) == 0) {
            return entry;
        }
        at = (at + 1) & t->mask;
    }
    if (slot) {
        *slot = at;
    }
    return UINT32_MAX;
}

/* Enters what exl2__strtab_find did not find. false: the names of a file were made to collide in the table, and going
   on would take quadratic time. */
static inline bool exl2__strtab_put(exl2__strtab *t, uint32_t slot, uint32_t entry)
{
    size_t bytes;
    const char *name = t->name(t->owner, entry, &bytes);
    t->slots[slot] = entry + 1;
    t->probes += (slot - (uint32_t)exl2__hash(name, bytes)) & t->mask;
    return t->probes <= 16u * (uint64_t)t->mask + 4096;
}

#endif

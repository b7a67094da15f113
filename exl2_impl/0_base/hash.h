/* hash.h: 64-bit hashes of strings and of bytes, and an index table over strings that the caller owns.
   takes: byte strings.
   gives: exl2__hash, exl2__hash_words, exl2__hash_words_twice, exl2__strtab.
   owns:  nothing; the table's slots come from the caller's arena. */
#ifndef EXL2__HASH_H
#define EXL2__HASH_H

#include "arena.h"

/* The final mix of splitmix64. */
static inline uint64_t exl2__hash_mix(uint64_t h)
{
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9u;
    h = (h ^ h >> 27) * 0x94D049BB133111EBu;
    return h ^ h >> 31;
}

/* FNV-1a in 64 bits, followed by exl2__hash_mix, so that the low bits are well distributed. */
static inline uint64_t exl2__hash(const void *data, size_t bytes)
{
    const uint8_t *p = (const uint8_t *)data;
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < bytes; i++) {
        h = (h ^ p[i]) * 0x100000001B3u;
    }
    return exl2__hash_mix(h);
}

/* A hash of many bytes, eight at a time. */
static inline uint64_t exl2__hash_words(const void *data, size_t bytes, uint64_t seed)
{
    const uint8_t *p = (const uint8_t *)data;
    uint64_t h = seed ^ bytes * 0x9E3779B97F4A7C15u;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        h = (h ^ exl2__load64(p)) * 0x9FB21C651E98DF25u;
        h ^= h >> 32;
    }
    return h ^ exl2__hash(p, bytes) * 0x94D049BB133111EBu;
}

/* out [2]: exl2__hash_words with either seed, in one pass. */
static inline void exl2__hash_words_twice(const void *data, size_t bytes, const uint64_t seed[2], uint64_t out[2])
{
    const uint8_t *p = (const uint8_t *)data;
    uint64_t a = seed[0] ^ bytes * 0x9E3779B97F4A7C15u, b = seed[1] ^ bytes * 0x9E3779B97F4A7C15u;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t word = exl2__load64(p);
        a = (a ^ word) * 0x9FB21C651E98DF25u;
        b = (b ^ word) * 0x9FB21C651E98DF25u;
        a ^= a >> 32;
        b ^= b >> 32;
    }
    uint64_t rest = exl2__hash(p, bytes) * 0x94D049BB133111EBu;
    out[0] = a ^ rest;
    out[1] = b ^ rest;
}

/* A hash table with open addressing that holds entry numbers; the caller's callback gives the name of an entry. */
typedef struct exl2__strtab {
    uint32_t *slots; /* [mask + 1] entry + 1; 0 = empty */
    uint32_t mask;
    uint64_t probes; /* sum over all entries of their distance from their first slot */
    const char *(*name)(const void *owner, uint32_t entry, size_t *bytes);
    const void *owner;
} exl2__strtab;

/* Allocates slots so that `entries` strings fill at most half of them. */
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

/* The entry with this name. If there is none, UINT32_MAX, and *slot (may be NULL) is the slot for exl2__strtab_put. */
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

/* Adds an entry whose name exl2__strtab_find did not find. Returns false if far more names collide than by chance: a
   file was made for that, and to continue would need quadratic time. */
static inline bool exl2__strtab_put(exl2__strtab *t, uint32_t slot, uint32_t entry)
{
    size_t bytes;
    const char *name = t->name(t->owner, entry, &bytes);
    t->slots[slot] = entry + 1;
    t->probes += (slot - (uint32_t)exl2__hash(name, bytes)) & t->mask;
    return t->probes <= 16u * (uint64_t)t->mask + 4096;
}

#endif

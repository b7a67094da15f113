/* hash.h: FNV-1a of 64 bits.
   takes: bytes.
   gives: hash_bytes, HASH_BEGIN. */
#ifndef DEMO_HASH_H
#define DEMO_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_BEGIN 0xCBF29CE484222325u

/* hash: HASH_BEGIN, or the hash of the bytes before. */
static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ at[i]) * 0x100000001B3u;
    }
    return hash;
}

#endif

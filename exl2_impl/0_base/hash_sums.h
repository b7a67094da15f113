/* hash_sums.h: a hash of 128 bits for all weights of a model, which pass by while they are loaded.
   takes: bytes, in pieces of any size; the instruction set, which changes the speed and not the value.
   gives: exl2__hash_sums; exl2__hash_sums_begin, exl2__hash_sums_add, exl2__hash_sums_end.
   owns:  nothing.

   The bytes are 16 lanes of 64-bit words: word i belongs to lane i % 16. A lane has two sums, as Fletcher's checksum
   has: a of its words, and b of the values of a, which is rotated by three bytes before each addition, so that the
   highest bit of a word counts in lower bits, too. After every 4,096 bytes a becomes a XOR b, which is not linear: what
   one block changes cannot cancel what another one does by the place of both alone. AVX2 reads 32 bytes in a cycle. The
   hash does not protect against bytes that were chosen to collide. */
#ifndef EXL2__HASH_SUMS_H
#define EXL2__HASH_SUMS_H

#include "hash.h"
#include "simd.h"

#define EXL2__HASH_LANES 16u
#define EXL2__HASH_STRIPE 128u /* bytes of a word of each lane */
#define EXL2__HASH_BLOCK 32u   /* stripes between two XORs */

typedef struct exl2__hash_sums {
    uint64_t a[EXL2__HASH_LANES], b[EXL2__HASH_LANES];
    uint64_t bytes;                  /* all that were added */
    uint8_t rest[EXL2__HASH_STRIPE]; /* the last bytes % EXL2__HASH_STRIPE of them, which are not in the lanes yet */
} exl2__hash_sums;

static inline void exl2__hash_sums_begin(exl2__hash_sums *s)
{
    memset(s, 0, sizeof *s);
}

static inline uint64_t exl2__hash_turn(uint64_t sum)
{
    return sum << 24 | sum >> 40;
}

/* Adds stripes. Four lanes at a time fit into registers, and four variables, since gcc keeps no array in them. */
EXL2__PRIVATE void exl2__hash_stripes(exl2__hash_sums *s, const uint8_t *p, uint64_t count)
{
    for (uint32_t i = 0; i < EXL2__HASH_LANES; i += 4) {
        uint64_t *a = s->a + i, *b = s->b + i, a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3];
        uint64_t b0 = b[0], b1 = b[1], b2 = b[2], b3 = b[3];
        const uint8_t *at = p + 8 * i;
        for (uint64_t left = count; left > 0; left--, at += EXL2__HASH_STRIPE) {
            a0 += exl2__load64(at);
            a1 += exl2__load64(at + 8);
            a2 += exl2__load64(at + 16);
            a3 += exl2__load64(at + 24);
            b0 = exl2__hash_turn(b0) + a0;
            b1 = exl2__hash_turn(b1) + a1;
            b2 = exl2__hash_turn(b2) + a2;
            b3 = exl2__hash_turn(b3) + a3;
        }
        a[0] = a0, a[1] = a1, a[2] = a2, a[3] = a3;
        b[0] = b0, b[1] = b1, b[2] = b2, b[3] = b3;
    }
}

#if EXL2__X86_SIMD
EXL2__TARGET_AVX2 EXL2__PRIVATE void exl2__hash_stripes_avx2(exl2__hash_sums *s, const uint8_t *p, uint64_t count)
{
    EXL2__UNALIGNED_MOVES();
    const __m256i turn = _mm256_setr_epi8(5, 6, 7, 0, 1, 2, 3, 4, 13, 14, 15, 8, 9, 10, 11, 12,
                                          5, 6, 7, 0, 1, 2, 3, 4, 13, 14, 15, 8, 9, 10, 11, 12);
#define LANES(sum, i) ((__m256i *)(void *)(s->sum + 4 * (i)))
#define WORDS(i) _mm256_loadu_si256((const __m256i *)(const void *)(p + 32 * (i)))
    __m256i a0 = _mm256_loadu_si256(LANES(a, 0)), a1 = _mm256_loadu_si256(LANES(a, 1));
    __m256i a2 = _mm256_loadu_si256(LANES(a, 2)), a3 = _mm256_loadu_si256(LANES(a, 3));
    __m256i b0 = _mm256_loadu_si256(LANES(b, 0)), b1 = _mm256_loadu_si256(LANES(b, 1));
    __m256i b2 = _mm256_loadu_si256(LANES(b, 2)), b3 = _mm256_loadu_si256(LANES(b, 3));
    for (; count > 0; count--, p += EXL2__HASH_STRIPE) {
        a0 = _mm256_add_epi64(a0, WORDS(0));
        a1 = _mm256_add_epi64(a1, WORDS(1));
        a2 = _mm256_add_epi64(a2, WORDS(2));
        a3 = _mm256_add_epi64(a3, WORDS(3));
        b0 = _mm256_add_epi64(_mm256_shuffle_epi8(b0, turn), a0);
        b1 = _mm256_add_epi64(_mm256_shuffle_epi8(b1, turn), a1);
        b2 = _mm256_add_epi64(_mm256_shuffle_epi8(b2, turn), a2);
        b3 = _mm256_add_epi64(_mm256_shuffle_epi8(b3, turn), a3);
    }
    _mm256_storeu_si256(LANES(a, 0), a0);
    _mm256_storeu_si256(LANES(a, 1), a1);
    _mm256_storeu_si256(LANES(a, 2), a2);
    _mm256_storeu_si256(LANES(a, 3), a3);
    _mm256_storeu_si256(LANES(b, 0), b0);
    _mm256_storeu_si256(LANES(b, 1), b1);
    _mm256_storeu_si256(LANES(b, 2), b2);
    _mm256_storeu_si256(LANES(b, 3), b3);
#undef LANES
#undef WORDS
}
#else
#define exl2__hash_stripes_avx2 exl2__hash_stripes
#endif

/* Adds whole stripes, and the XOR after each block; the first of them is stripe `at` of all. */
EXL2__PRIVATE void exl2__hash_blocks(exl2_cpu_path path, exl2__hash_sums *s, uint64_t at, const uint8_t *p,
                                     uint64_t count)
{
    bool wide = path == EXL2_CPU_AVX2 || path == EXL2_CPU_AVX512;
    for (uint64_t some; count > 0; count -= some, at += some, p += some * EXL2__HASH_STRIPE) {
        some = exl2__min64(EXL2__HASH_BLOCK - at % EXL2__HASH_BLOCK, count);
        (wide ? exl2__hash_stripes_avx2 : exl2__hash_stripes)(s, p, some);
        for (uint32_t i = 0; (at + some) % EXL2__HASH_BLOCK == 0 && i < EXL2__HASH_LANES; i++) {
            s->a[i] ^= s->b[i];
        }
    }
}

/* Adds bytes: the result is that of all bytes at once. */
EXL2__PRIVATE void exl2__hash_sums_add(exl2_cpu_path path, exl2__hash_sums *s, const void *data, uint64_t bytes)
{
    const uint8_t *p = (const uint8_t *)data;
    uint64_t used = s->bytes % EXL2__HASH_STRIPE, at = s->bytes / EXL2__HASH_STRIPE;
    s->bytes += bytes;
    if (used > 0) {
        uint64_t some = exl2__min64(EXL2__HASH_STRIPE - used, bytes);
        memcpy(s->rest + used, p, (size_t)some);
        if (used + some < EXL2__HASH_STRIPE) {
            return;
        }
        exl2__hash_blocks(path, s, at, s->rest, 1);
        at++;
        p += some;
        bytes -= some;
    }
    exl2__hash_blocks(path, s, at, p, bytes / EXL2__HASH_STRIPE);
    memcpy(s->rest, p + bytes / EXL2__HASH_STRIPE * EXL2__HASH_STRIPE, (size_t)(bytes % EXL2__HASH_STRIPE));
}

/* hash [2]. The number of bytes and the seed are part of it. */
EXL2__PRIVATE void exl2__hash_sums_end(exl2__hash_sums *s, uint64_t seed, uint64_t hash[2])
{
    uint64_t used = s->bytes % EXL2__HASH_STRIPE;
    memset(s->rest + used, 0, (size_t)(EXL2__HASH_STRIPE - used));
    exl2__hash_stripes(s, s->rest, 1);
    hash[0] = exl2__hash_mix(seed ^ s->bytes * 0x9E3779B97F4A7C15u);
    hash[1] = exl2__hash_mix(hash[0] ^ seed);
    for (uint32_t i = 0; i < EXL2__HASH_LANES; i++) {
        hash[0] = exl2__hash_mix(exl2__hash_mix(hash[0] ^ s->a[i]) ^ s->b[i]);
        hash[1] = exl2__hash_mix(exl2__hash_mix(hash[1] + s->b[i]) + s->a[i]);
    }
}

#endif

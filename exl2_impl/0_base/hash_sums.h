/* hash_sums.h: a hash of 128 bits for all weights of a model, which pass by while they are loaded.
   takes: bytes, in pieces of any size; the instruction set, which changes the speed and not the value.
   gives: exl2__hash_sums; exl2__hash_sums_begin, exl2__hash_sums_add, exl2__hash_sums_end.
   owns:  nothing.

   The bytes are 32 lanes of 64-bit words: word i belongs to lane i % 32. Each lane is a generator of the kind
   "multiply with carry" (G. Marsaglia), to which its words are added: s = (s % 2^32) * K + s / 2^32 + word. That is a
   polynomial of the words modulo the prime K * 2^32 - 1, so the place of a word counts in all bits. No lane waits for
   another, so vectors of any width may hold them. The hash does not protect against bytes that were chosen to
   collide. */
#ifndef EXL2__HASH_SUMS_H
#define EXL2__HASH_SUMS_H

#include "hash.h"
#include "simd.h"

#define EXL2__HASH_LANES 32u
#define EXL2__HASH_STRIPE 256u    /* bytes of a word of each lane */
#define EXL2__HASH_K 0xFFFEB81Bu  /* K * 2^32 - 1 is a prime */

typedef struct exl2__hash_sums {
    uint64_t lanes[EXL2__HASH_LANES];
    uint64_t bytes;                  /* all that were added */
    uint8_t rest[EXL2__HASH_STRIPE]; /* the last bytes % EXL2__HASH_STRIPE of them, which are not in the lanes yet */
} exl2__hash_sums;

EXL2__PRIVATE void exl2__hash_sums_begin(exl2__hash_sums *s)
{
    s->bytes = 0;
    for (uint32_t i = 0; i < EXL2__HASH_LANES; i++) {
        s->lanes[i] = exl2__hash_mix(i + 1);
    }
}

static inline uint64_t exl2__hash_step(uint64_t s, const uint8_t *word)
{
    return (s & 0xFFFFFFFFu) * EXL2__HASH_K + (s >> 32) + exl2__load64(word);
}

/* Adds stripes: eight lanes at a time, which stay in registers (gcc keeps no array there), of as many stripes as stay
   in the first cache. */
EXL2__PRIVATE void exl2__hash_stripes(uint64_t *lanes, const uint8_t *p, uint64_t count)
{
    for (uint64_t some; count > 0; count -= some, p += some * EXL2__HASH_STRIPE) {
        some = exl2__min64(count, 32);
        for (uint32_t i = 0; i < EXL2__HASH_LANES; i += 8) {
            uint64_t s0 = lanes[i], s1 = lanes[i + 1], s2 = lanes[i + 2], s3 = lanes[i + 3];
            uint64_t s4 = lanes[i + 4], s5 = lanes[i + 5], s6 = lanes[i + 6], s7 = lanes[i + 7];
            const uint8_t *at = p + 8 * i;
            for (uint64_t left = some; left > 0; left--, at += EXL2__HASH_STRIPE) {
                s0 = exl2__hash_step(s0, at);
                s1 = exl2__hash_step(s1, at + 8);
                s2 = exl2__hash_step(s2, at + 16);
                s3 = exl2__hash_step(s3, at + 24);
                s4 = exl2__hash_step(s4, at + 32);
                s5 = exl2__hash_step(s5, at + 40);
                s6 = exl2__hash_step(s6, at + 48);
                s7 = exl2__hash_step(s7, at + 56);
            }
            lanes[i] = s0, lanes[i + 1] = s1, lanes[i + 2] = s2, lanes[i + 3] = s3;
            lanes[i + 4] = s4, lanes[i + 5] = s5, lanes[i + 6] = s6, lanes[i + 7] = s7;
        }
    }
}

#if EXL2__X86_SIMD
/* The same. i: four lanes. */
#define EXL2__HASH_LOAD(i) __m256i s##i = _mm256_loadu_si256((const __m256i *)(const void *)(lanes + 4 * (i)))
#define EXL2__HASH_STORE(i) _mm256_storeu_si256((__m256i *)(void *)(lanes + 4 * (i)), s##i)
#define EXL2__HASH_STEP(i)                                                                                \
    s##i = _mm256_add_epi64(_mm256_add_epi64(_mm256_mul_epu32(s##i, k), _mm256_srli_epi64(s##i, 32)),     \
                            _mm256_loadu_si256((const __m256i *)(const void *)(p + 32 * (i))))
#define EXL2__HASH_ALL(X) X(0); X(1); X(2); X(3); X(4); X(5); X(6); X(7)

EXL2__PRIVATE EXL2__TARGET_AVX2 void exl2__hash_stripes_avx2(uint64_t *lanes, const uint8_t *p, uint64_t count)
{
    EXL2__UNALIGNED_MOVES();
    const __m256i k = _mm256_set1_epi64x(EXL2__HASH_K);
    EXL2__HASH_ALL(EXL2__HASH_LOAD);
    for (; count > 0; count--, p += EXL2__HASH_STRIPE) {
        EXL2__HASH_ALL(EXL2__HASH_STEP);
    }
    EXL2__HASH_ALL(EXL2__HASH_STORE);
}

#undef EXL2__HASH_ALL
#undef EXL2__HASH_STEP
#undef EXL2__HASH_STORE
#undef EXL2__HASH_LOAD

/* The same. i: eight lanes. */
#define EXL2__HASH_STEP(i)                                                  \
    s##i = _mm512_add_epi64(_mm512_mul_epu32(s##i, k),                      \
                            _mm512_add_epi64(_mm512_srli_epi64(s##i, 32), _mm512_loadu_si512(p + 64 * (i))))

EXL2__PRIVATE EXL2__TARGET_AVX512 void exl2__hash_stripes_avx512(uint64_t *lanes, const uint8_t *p, uint64_t count)
{
    EXL2__UNALIGNED_MOVES();
    const __m512i k = _mm512_set1_epi64(EXL2__HASH_K);
    __m512i s0 = _mm512_loadu_si512(lanes), s1 = _mm512_loadu_si512(lanes + 8);
    __m512i s2 = _mm512_loadu_si512(lanes + 16), s3 = _mm512_loadu_si512(lanes + 24);
    for (; count > 0; count--, p += EXL2__HASH_STRIPE) {
        EXL2__HASH_STEP(0);
        EXL2__HASH_STEP(1);
        EXL2__HASH_STEP(2);
        EXL2__HASH_STEP(3);
    }
    _mm512_storeu_si512(lanes, s0);
    _mm512_storeu_si512(lanes + 8, s1);
    _mm512_storeu_si512(lanes + 16, s2);
    _mm512_storeu_si512(lanes + 24, s3);
}

#undef EXL2__HASH_STEP
#endif

/* Adds stripes by the fastest code of a path. */
EXL2__PRIVATE void exl2__hash_stripes_by(exl2_cpu_path path, uint64_t *lanes, const uint8_t *p, uint64_t count)
{
#if EXL2__X86_SIMD
    if (path == EXL2_CPU_AVX512) {
        exl2__hash_stripes_avx512(lanes, p, count);
        return;
    }
    if (path == EXL2_CPU_AVX2) {
        exl2__hash_stripes_avx2(lanes, p, count);
        return;
    }
#endif
    (void)path;
    exl2__hash_stripes(lanes, p, count);
}

/* Adds bytes: the result is that of all bytes at once. */
EXL2__PRIVATE void exl2__hash_sums_add(exl2_cpu_path path, exl2__hash_sums *s, const void *data, uint64_t bytes)
{
    const uint8_t *p = (const uint8_t *)data;
    uint64_t used = s->bytes % EXL2__HASH_STRIPE;
    s->bytes += bytes;
    if (used > 0) {
        uint64_t some = exl2__min64(EXL2__HASH_STRIPE - used, bytes);
        memcpy(s->rest + used, p, (size_t)some);
        if (used + some < EXL2__HASH_STRIPE) {
            return;
        }
        exl2__hash_stripes(s->lanes, s->rest, 1);
        p += some;
        bytes -= some;
    }
    exl2__hash_stripes_by(path, s->lanes, p, bytes / EXL2__HASH_STRIPE);
    memcpy(s->rest, p + bytes / EXL2__HASH_STRIPE * EXL2__HASH_STRIPE, (size_t)(bytes % EXL2__HASH_STRIPE));
}

/* hash [2]. The number of bytes and the seed are part of it. Bytes that are missing in the last stripe are 0. */
EXL2__PRIVATE void exl2__hash_sums_end(exl2__hash_sums *s, uint64_t seed, uint64_t hash[2])
{
    uint64_t used = s->bytes % EXL2__HASH_STRIPE;
    memset(s->rest + used, 0, (size_t)(EXL2__HASH_STRIPE - used));
    exl2__hash_stripes(s->lanes, s->rest, 1);
    hash[0] = exl2__hash_mix(seed ^ s->bytes * 0x9E3779B97F4A7C15u);
    hash[1] = exl2__hash_mix(hash[0] ^ seed);
    for (uint32_t i = 0; i < EXL2__HASH_LANES; i++) {
        hash[0] = exl2__hash_mix(hash[0] ^ s->lanes[i]);
        hash[1] = exl2__hash_mix(hash[1] + s->lanes[i]);
    }
}

#endif

/* bytes.h: arithmetic and reads that cannot go wrong on hostile numbers.
   takes: sizes from files, unaligned little-endian bytes.
   gives: checked u64 sums and products, align-up, words of bit sets, little-endian loads and stores, packed numbers.
   owns:  nothing.
   next:  half.h */
#ifndef EXL2__BYTES_H
#define EXL2__BYTES_H

#include "config.h"

/* false on overflow; *out is then UINT64_MAX. */
static inline bool exl2__add64(uint64_t a, uint64_t b, uint64_t *out)
{
    *out = a > UINT64_MAX - b ? UINT64_MAX : a + b;
    return a <= UINT64_MAX - b;
}

static inline bool exl2__mul64(uint64_t a, uint64_t b, uint64_t *out)
{
    bool fits = b == 0 || a <= UINT64_MAX / b;
    *out = fits ? a * b : UINT64_MAX;
    return fits;
}

/* Next multiple of `unit` (a power of two). */
static inline uint64_t exl2__align_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) & ~(unit - 1);
}

static inline uint64_t exl2__div_up(uint64_t value, uint64_t unit)
{
    return value / unit + (value % unit != 0);
}

/* u32 that hold so many bits. */
static inline uint32_t exl2__bit_words(uint32_t bits) { return bits / 32 + (bits % 32 > 0); }

static inline uint32_t exl2__min32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint32_t exl2__max32(uint32_t a, uint32_t b) { return a > b ? a : b; }
static inline uint64_t exl2__min64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t exl2__max64(uint64_t a, uint64_t b) { return a > b ? a : b; }

static inline uint16_t exl2__load16(const void *bytes)
{
    const uint8_t *p = (const uint8_t *)bytes;
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t exl2__load32(const void *bytes)
{
    const uint8_t *p = (const uint8_t *)bytes;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t exl2__load64(const void *bytes)
{
    const uint8_t *p = (const uint8_t *)bytes;
    return (uint64_t)exl2__load32(p) | (uint64_t)exl2__load32(p + 4) << 32;
}

/* A number in 7 bits a byte, low first; each byte but the last has bit 7 set. *at goes on behind it. */
static inline uint32_t exl2__load_packed(const uint8_t **at)
{
    uint32_t value = 0, shift = 0;
    do {
        value |= (**at & 127u) << shift;
        shift += 7;
    } while (*(*at)++ & 128);
    return value;
}

static inline void exl2__store32(void *bytes, uint32_t value)
{
    uint8_t *p = (uint8_t *)bytes;
    p[0] = (uint8_t)value;
    p[1] = (uint8_t)(value >> 8);
    p[2] = (uint8_t)(value >> 16);
    p[3] = (uint8_t)(value >> 24);
}

static inline void exl2__store64(void *bytes, uint64_t value)
{
    exl2__store32(bytes, (uint32_t)value);
    exl2__store32((uint8_t *)bytes + 4, (uint32_t)(value >> 32));
}

#endif

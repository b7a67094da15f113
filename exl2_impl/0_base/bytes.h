/* bytes.h: arithmetic that cannot overflow unnoticed, little-endian loads and stores, hexadecimal digits, and searches
   in eight bytes at a time.
   takes: sizes from untrusted files, unaligned little-endian bytes.
   gives: exl2__add64, exl2__mul64, exl2__align_up, exl2__div_up, exl2__bit_words; exl2__load32, exl2__store32 and their
          like; exl2__load_packed; exl2__hex_digit, exl2__hex_read; exl2__eight_load, exl2__eight_is and their like. */
#ifndef EXL2__BYTES_H
#define EXL2__BYTES_H

#include "config.h"

/* Both return false on overflow; *out is then UINT64_MAX. */
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

/* Smallest multiple of `unit` (a power of two) that is at least `value`. */
static inline uint64_t exl2__align_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) & ~(unit - 1);
}

static inline uint64_t exl2__div_up(uint64_t value, uint64_t unit)
{
    return value / unit + (value % unit != 0);
}

/* Number of u32 words that hold `bits` bits. */
static inline uint32_t exl2__bit_words(uint32_t bits) { return bits / 32 + (bits % 32 > 0); }

static inline uint32_t exl2__min32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint32_t exl2__max32(uint32_t a, uint32_t b) { return a > b ? a : b; }
static inline uint64_t exl2__min64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t exl2__max64(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* ---- little-endian numbers at any address; on a little-endian CPU each is one instruction ---- */

#if (defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) || defined(_WIN32)
static inline uint16_t exl2__load16(const void *bytes)
{
    uint16_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static inline uint32_t exl2__load32(const void *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static inline uint64_t exl2__load64(const void *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static inline void exl2__store32(void *bytes, uint32_t value)
{
    memcpy(bytes, &value, sizeof value);
}

static inline void exl2__store64(void *bytes, uint64_t value)
{
    memcpy(bytes, &value, sizeof value);
}
#else
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

/* A number in groups of 7 bits, lowest first; bit 7 is set in each byte but the last. *at moves past the number. */
static inline uint32_t exl2__load_packed(const uint8_t **at)
{
    uint32_t value = 0, shift = 0;
    do {
        value |= (**at & 127u) << shift;
        shift += 7;
    } while (*(*at)++ & 128);
    return value;
}

/* ---- hexadecimal digits ---- */

/* Value of a hexadecimal digit of either case, or 16. */
static inline uint32_t exl2__hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9') {
        return c - (uint32_t)'0';
    }
    uint32_t letter = (uint32_t)(c | 0x20) - 'a';
    return letter < 6 ? letter + 10 : 16;
}

/* Reads hexadecimal digits up to the first other character, but at most min(most, bytes), of which `most` is 0..8.
   Returns their number. */
static inline uint32_t exl2__hex_read(const void *text, size_t bytes, uint32_t most, uint32_t *value)
{
    const uint8_t *p = (const uint8_t *)text;
    uint32_t count = 0, digit;
    for (*value = 0; count < most && count < bytes && (digit = exl2__hex_digit(p[count])) < 16; count++) {
        *value = *value << 4 | digit;
    }
    return count;
}

/* ---- text ---- */

/* Bytes of the byte order mark that some editors put before UTF-8: 3, or 0 if there is none. */
static inline size_t exl2__utf8_mark(const char *text, size_t bytes)
{
    return bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}

/* ---- eight bytes as one word; the first byte is in the low bits ---- */

#define EXL2__EIGHT(byte) (0x0101010101010101u * (byte))

/* Fewer than eight bytes, followed by zeros. */
EXL2__NOINLINE
EXL2__PRIVATE uint64_t exl2__eight_tail(const void *bytes, size_t count)
{
    const uint8_t *p = (const uint8_t *)bytes;
    if (count >= 4) {
        return exl2__load32(p) | (uint64_t)exl2__load32(p + count - 4) << 8 * (count - 4);
    }
    return count ? p[0] | (uint64_t)p[count / 2] << 8 * (count / 2) | (uint64_t)p[count - 1] << 8 * (count - 1) : 0;
}

/* The first eight bytes, or all `count` bytes if there are fewer. */
static inline uint64_t exl2__eight_load(const void *bytes, size_t count)
{
    return count >= 8 ? exl2__load64(bytes) : exl2__eight_tail(bytes, count);
}

/* The `count` bytes before `end`, 1..8. The eight bytes before `end` must be readable. It has no branches, so it is
   faster than exl2__eight_load where lengths vary. */
static inline uint64_t exl2__eight_before(const void *end, size_t count)
{
    return exl2__load64((const uint8_t *)end - 8) >> (64 - 8 * count);
}

/* memcmp(bytes, others, count) == 0, fast for short strings. */
EXL2__NOINLINE
EXL2__PRIVATE bool exl2__eight_same(const void *bytes, const void *others, size_t count)
{
    const uint8_t *p = (const uint8_t *)bytes, *q = (const uint8_t *)others;
    for (; count > 8; count -= 8, p += 8, q += 8) {
        if (exl2__load64(p) != exl2__load64(q)) {
            return false;
        }
    }
    return exl2__eight_load(p, count) == exl2__eight_load(q, count);
}

/* Sets bit 7 of the first byte that equals `byte`, and perhaps also of some bytes after it. */
static inline uint64_t exl2__eight_is(uint64_t word, uint8_t byte)
{
    word ^= EXL2__EIGHT(byte);
    return (word - EXL2__EIGHT(1u)) & ~word & EXL2__EIGHT(0x80u);
}

/* Index of the first byte that is not 0, or 8. */
static inline uint32_t exl2__eight_first(uint64_t word)
{
    return word ? exl2__lowest_bit(word) / 8 : 8;
}

#endif

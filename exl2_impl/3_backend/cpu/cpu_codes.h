/* cpu_codes.h: K and V of a quantized cache: what their codes mean, where they lie in a page, and how they are written.
   takes: heads of q, k and v in exl2__real, the format of the cache.
   gives: exl2__cpu_codes_bits, exl2__cpu_codes_head_bytes, exl2__cpu_codes_of, exl2__cpu_codes_rotate,
          exl2__cpu_codes_put.

   MEANING  A head's dimensions form groups of 32; a last one may have 16. A group of k or v is multiplied by the
            orthonormal Hadamard matrix of its size, so that no dimension is much larger than others. Scores do not
            change if q is rotated, too; the weighted sum of V is rotated back, by the same matrix, since that is its
            own inverse. A group has one f16 scale, and its elements are code * scale. The scale's sign gives the
            element farthest from 0 the code -2^(bits - 1), which has no positive counterpart: so all codes are used.
   LAYOUT   A page has for each layer and each K/V head: K's codes, V's codes, K's scales, V's scales. A token is
            written without a change to the bits of another: K's words u32 [dim * bits / 32][64 tokens], the first
            dimension in the top bits; V's bytes [64 tokens][ceil(dim / 32)][4 * bits], 4 bits: dimension i below
            i + 16; scales f16 [ceil(dim / 32)][64 tokens]. A group of 16 has the room of 32. */
#ifndef EXL2__CPU_CODES_H
#define EXL2__CPU_CODES_H

#include "cpu_phases.h"

EXL2__ROUND_TWICE_BEGIN

#define EXL2__CPU_CODES_GROUP 32u

/* Bits of an element of K or V; 16: f16, which this file does not handle. */
static inline uint32_t exl2__cpu_codes_bits(exl2_kv format, bool value)
{
    return format == EXL2_KV_FP16 ? 16 : format == EXL2_KV_Q8 || (format == EXL2_KV_Q6 && !value) ? 8 : 4;
}

static inline uint32_t exl2__cpu_codes_bytes(uint32_t dim, uint32_t bits)
{
    return (uint32_t)exl2__div_up(dim, EXL2__CPU_CODES_GROUP) * EXL2__PAGE_TOKENS * 4 * bits;
}

EXL2__COLD
EXL2__PRIVATE uint64_t exl2__cpu_codes_head_bytes(uint32_t dim, exl2_kv format)
{
    uint32_t scales = 2 * (uint32_t)exl2__div_up(dim, EXL2__CPU_CODES_GROUP) * EXL2__PAGE_TOKENS * 2;
    return (uint64_t)exl2__cpu_codes_bytes(dim, exl2__cpu_codes_bits(format, false))
         + exl2__cpu_codes_bytes(dim, exl2__cpu_codes_bits(format, true)) + scales;
}

/* K or V of the head whose part of a page is at `head`. */
EXL2__PRIVATE exl2__cpu_codes exl2__cpu_codes_of(uint8_t *head, uint32_t dim, exl2_kv format, bool value)
{
    uint32_t key_bits = exl2__cpu_codes_bits(format, false), value_bits = exl2__cpu_codes_bits(format, true);
    uint32_t key_bytes = exl2__cpu_codes_bytes(dim, key_bits);
    uint16_t *scales = (uint16_t *)(void *)(head + key_bytes + exl2__cpu_codes_bytes(dim, value_bits));
    uint32_t groups = (uint32_t)exl2__div_up(dim, EXL2__CPU_CODES_GROUP);
    exl2__cpu_codes k = { head, scales, dim, key_bits };
    exl2__cpu_codes v = { head + key_bytes, scales + groups * EXL2__PAGE_TOKENS, dim, value_bits };
    return value ? v : k;
}

/* Multiplies the groups of x [dim] by Hadamard matrices and by `factor`. dim is a multiple of 16. */
EXL2__PRIVATE void exl2__cpu_codes_rotate(exl2__real *x, uint32_t dim, exl2__real factor)
{
    for (uint32_t left = dim, n; left; left -= n, x += n) {
        n = exl2__min32(left, EXL2__CPU_CODES_GROUP);
        exl2__cpu_phases_hadamard(x, n);
        exl2__real scale = factor * (exl2__real)(n == 16 ? 0.25 : 0.17677669529663688); /* 1 / sqrt(n) */
        for (uint32_t i = 0; i < n; i++) {
            x[i] *= scale;
        }
    }
}

/* Codes of n elements, as unsigned bytes. Returns the bits of the scale. A value that is not finite makes a scale that
   is not, so that all elements are NaN. */
EXL2__PRIVATE uint16_t exl2__cpu_codes_make(const exl2__real *x, uint32_t n, uint32_t bits, uint8_t *codes)
{
    exl2__real most = (exl2__real)(1u << (bits - 1)), farthest = x[0];
    for (uint32_t i = 1; i < n; i++) {
        farthest = x[i] * x[i] > farthest * farthest ? x[i] : farthest;
    }
    uint16_t scale = exl2__f32_to_f16((float)(farthest / -most));
    bool usable = (scale & 0x7FFFu) > 0 && (scale & 0x7C00u) < 0x7C00u;
    exl2__real inverse = usable ? 1 / (exl2__real)exl2__f16_to_f32(scale) : 0;
    for (uint32_t i = 0; i < n; i++) {
        exl2__real code = usable ? x[i] * inverse : 0;
        code = code > most - 1 ? most - 1 : code < -most ? -most : code;
        codes[i] = (uint8_t)((int32_t)(code + (code < 0 ? (exl2__real)-0.5 : (exl2__real)0.5)) & 0xFF);
    }
    return scale;
}

/* Writes the rotated K or V x [dim] of one token. Compiled for size: 64 elements last 0.3 us. */
EXL2__COLD
EXL2__PRIVATE void exl2__cpu_codes_put(const exl2__real *x, const exl2__cpu_codes *to, uint32_t token, bool value)
{
    uint32_t bits = to->bits, fields = 32 / bits, mask = (1u << bits) - 1;
    uint32_t groups = (uint32_t)exl2__div_up(to->dim, EXL2__CPU_CODES_GROUP);
    for (uint32_t g = 0; g < groups; g++) {
        uint8_t codes[EXL2__CPU_CODES_GROUP] = { 0 };
        uint32_t n = exl2__min32(to->dim - g * EXL2__CPU_CODES_GROUP, EXL2__CPU_CODES_GROUP);
        to->scales[g * EXL2__PAGE_TOKENS + token] = exl2__cpu_codes_make(x + g * EXL2__CPU_CODES_GROUP, n, bits, codes);
        uint8_t *bytes = to->codes + (size_t)(token * groups + g) * 4 * bits;
        uint8_t *words = to->codes + ((size_t)g * bits * EXL2__PAGE_TOKENS + token) * 4;
        for (uint32_t i = 0; !value && i < n; i += fields, words += 4 * EXL2__PAGE_TOKENS) {
            uint32_t word = 0;
            for (uint32_t f = 0; f < fields; f++) {
                word = word << bits | (codes[i + f] & mask);
            }
            exl2__store32(words, word);
        }
        for (uint32_t i = 0; value && i < 4 * bits; i++) {
            bytes[i] = (uint8_t)(bits == 8 ? codes[i] : (codes[i] & mask) | (codes[i + 16] & mask) << 4);
        }
    }
}

EXL2__ROUND_TWICE_END

#endif

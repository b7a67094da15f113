/* half.h: conversion of fp16 and bf16 to and from float, with the same bits on every CPU. Subnormals are kept: EXL2
   group scales are often fp16 subnormals (docs/formats.md, "EXL2: scales").
   takes: bit patterns.
   gives: exl2__f16_to_f32, exl2__f32_to_f16, exl2__bf16_to_f32, exl2__float_bits. */
#ifndef EXL2__HALF_H
#define EXL2__HALF_H

#include "config.h"

static inline uint32_t exl2__float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float exl2__bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Made from bits: under -ffast-math a compiler may assume that -INFINITY does not occur. */
static inline float exl2__minus_infinity(void) { return exl2__bits_float(0xFF800000u); }

/* Tests of bits, because applications compile with -ffast-math. */
static inline bool exl2__float_is_nan(float value)
{
    return (exl2__float_bits(value) & 0x7FFFFFFFu) > 0x7F800000u;
}

static inline bool exl2__float_is_finite(float value)
{
    return (exl2__float_bits(value) & 0x7F800000u) != 0x7F800000u;
}

static inline float exl2__bf16_to_f32(uint16_t half)
{
    return exl2__bits_float((uint32_t)half << 16);
}

static inline float exl2__f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 31u, mantissa = half & 0x3FFu;
    if (exponent == 31) {
        return exl2__bits_float(sign | 0x7F800000u | mantissa << 13);
    }
    if (exponent == 0) { /* zero or subnormal: mantissa * 2^-24, by normalising */
        if (mantissa == 0) {
            return exl2__bits_float(sign);
        }
        exponent = 1;
        while (!(mantissa & 0x400u)) {
            mantissa <<= 1;
            exponent--;
        }
        mantissa &= 0x3FFu;
    }
    return exl2__bits_float(sign | (exponent + 112u) << 23 | mantissa << 13);
}

/* Rounds to nearest, ties to even; values that are too large become infinity. */
static inline uint16_t exl2__f32_to_f16(float value)
{
    uint32_t bits = exl2__float_bits(value);
    uint32_t sign = (bits >> 16) & 0x8000u, size = bits & 0x7FFFFFFFu;
    if (size > 0x7F800000u) {
        return (uint16_t)(sign | 0x7E00u);
    }
    if (size >= 0x477FF000u) { /* 65,520 and above round to infinity */
        return (uint16_t)(sign | 0x7C00u);
    }
    uint32_t exponent = size >> 23;
    if (exponent < 102) { /* below 2^-25 */
        return (uint16_t)sign;
    }
    uint32_t mantissa = (size & 0x7FFFFFu) | 0x800000u;
    uint32_t shift = exponent < 113 ? 126 - exponent : 13; /* subnormals have the unit 2^-24 */
    uint32_t kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1), tie = 1u << (shift - 1);
    kept += rest > tie || (rest == tie && (kept & 1));
    if (exponent >= 113) {
        kept += (exponent - 113) << 10; /* the leading 1 of `kept` adds one more; a carry is right, too */
    }
    return (uint16_t)(sign | kept);
}

#endif

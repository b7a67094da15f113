/* json_number.h: converts the text of a JSON number to uint64_t or double, without libc (strtod depends on the locale).
   takes: text that the JSON grammar has already accepted.
   gives: exl2__json_number_read, exl2__json_number_u64, exl2__json_number_f64, exl2__json_number_f64_all. */
#ifndef EXL2__JSON_NUMBER_H
#define EXL2__JSON_NUMBER_H

#include "../bytes.h"

/* (-1)^negative * digits * 10^exponent; digits has no trailing zeros: -12.50e3 = -125 * 10^2.
   `cut`: digits that do not fit into 64 bits were dropped. */
typedef struct exl2__json_number {
    uint64_t digits;
    int64_t exponent;
    bool negative, cut;
} exl2__json_number;

/* *digits = *digits * 10^(zeros + 1) + digit. If that does not fit into 64 bits, *digits keeps its value: false. */
static inline bool exl2__json_number_append(uint64_t *digits, uint64_t zeros, uint64_t digit)
{
    uint64_t grown = *digits;
    for (uint64_t i = 0; i <= zeros; i++) {
        if (!exl2__mul64(grown, 10, &grown)) {
            return false;
        }
    }
    if (!exl2__add64(grown, digit, &grown)) {
        return false;
    }
    *digits = grown;
    return true;
}

static inline exl2__json_number exl2__json_number_read(const char *text, size_t bytes)
{
    exl2__json_number n = { 0, 0, bytes > 0 && text[0] == '-', false };
    uint64_t pending = 0; /* decimal places after `digits`: zeros that may be trailing ones, or dropped digits */
    bool fraction = false;
    size_t at = n.negative;
    for (; at < bytes && text[at] != 'e' && text[at] != 'E'; at++) {
        if (text[at] == '.') {
            fraction = true;
            continue;
        }
        uint64_t digit = (uint64_t)(text[at] - '0');
        n.exponent -= fraction;
        if (digit == 0) {
            pending += n.digits != 0;
        } else if (!n.cut && exl2__json_number_append(&n.digits, n.digits ? pending : 0, digit)) {
            pending = 0;
        } else {
            n.cut = true;
            pending++;
        }
    }
    n.exponent += (int64_t)pending;
    if (at + 1 < bytes) {
        at++;
        bool down = text[at] == '-';
        at += text[at] == '-' || text[at] == '+';
        int64_t power = 0; /* from 10^10 on its value does not matter: a text has fewer than 2^32 digits */
        for (; at < bytes; at++) {
            power = power < 10000000000 ? power * 10 + (text[at] - '0') : power;
        }
        n.exponent += down ? -power : power;
    }
    return n;
}

/* *out: the absolute value. true if it is an integer below 2^64: 8192, 8192.0 and 8.192e3 are. */
static inline bool exl2__json_number_u64(const exl2__json_number *n, uint64_t *out)
{
    *out = n->digits;
    if (n->digits == 0) {
        return true;
    }
    if (n->cut || n->exponent < 0 || n->exponent > 19) {
        return false;
    }
    for (int64_t i = 0; i < n->exponent; i++) {
        if (!exl2__mul64(*out, 10, out)) {
            return false;
        }
    }
    return true;
}

/* ---- double, by integer arithmetic: rounding modes, x87 or -ffast-math cannot change the result ---- */

#define EXL2__JSON_NUMBER_LIMBS 44 /* 1,408 bits: 64 for the digits, 64 guard bits, and 10^365 (1,213 bits) */

/* limbs = limbs * factor; the product must fit. */
static inline void exl2__json_number_multiply(uint32_t *limbs, uint32_t factor)
{
    uint64_t carry = 0;
    for (int i = 0; i < EXL2__JSON_NUMBER_LIMBS; i++) {
        carry += (uint64_t)limbs[i] * factor;
        limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

/* limbs = floor(limbs / divisor); returns true if the remainder is not 0. */
static inline bool exl2__json_number_divide(uint32_t *limbs, uint32_t divisor)
{
    uint64_t rest = 0;
    for (int i = EXL2__JSON_NUMBER_LIMBS - 1; i >= 0; i--) {
        rest = rest << 32 | limbs[i];
        limbs[i] = (uint32_t)(rest / divisor);
        rest %= divisor;
    }
    return rest != 0;
}

static inline uint32_t exl2__json_number_bit(const uint32_t *limbs, int at)
{
    return at < EXL2__JSON_NUMBER_LIMBS * 32 ? limbs[at / 32] >> (at % 32) & 1 : 0;
}

/* The bits of the double nearest to limbs * 2^-shift, ties to even. limbs >= 2^64. `more`: the exact value is slightly
   larger than limbs. */
static inline uint64_t exl2__json_number_round(const uint32_t *limbs, int shift, bool more)
{
    int top = EXL2__JSON_NUMBER_LIMBS * 32 - 1;
    while (!exl2__json_number_bit(limbs, top)) {
        top--;
    }
    int unit = top - shift - 52; /* exponent of the last of 53 bits; subnormals have fewer bits */
    unit = unit < -1074 ? -1074 : unit;
    int drop = unit + shift;
    uint64_t kept = 0;
    for (int i = top; i >= drop; i--) {
        kept = kept << 1 | exl2__json_number_bit(limbs, i);
    }
    for (int i = 0; i < drop - 1; i++) {
        more = more || exl2__json_number_bit(limbs, i);
    }
    kept += exl2__json_number_bit(limbs, drop - 1) && (more || (kept & 1));
    /* The leading 1 of `kept` adds one to the exponent; a carry out of the 53 bits gives the right result, too. */
    return unit == -1074 ? kept : ((uint64_t)(unit + 1074) << 52) + kept;
}

/* Correctly rounded for up to 19 significant digits; further digits are dropped. false: larger than any double. */
static inline bool exl2__json_number_f64(const exl2__json_number *n, double *out)
{
    uint64_t bits = 0;
    if (n->digits != 0 && n->exponent > 308) {
        return false;
    }
    if (n->digits != 0 && n->exponent >= -365) { /* smaller ones are less than half of the smallest double */
        uint32_t limbs[EXL2__JSON_NUMBER_LIMBS] = { 0 };
        int power = (int)(n->exponent < 0 ? -n->exponent : n->exponent);
        int words = n->exponent < 0 ? (64 + power * 10 / 3 + 32) / 32 : 2; /* 10^3 < 2^10: the quotient stays >= 2^64 */
        bool more = n->cut;
        limbs[words] = (uint32_t)n->digits;
        limbs[words + 1] = (uint32_t)(n->digits >> 32);
        for (; power > 0; power -= 9) {
            uint32_t step = 1;
            for (int i = 0; i < 9 && i < power; i++) {
                step *= 10;
            }
            if (n->exponent < 0) {
                more = exl2__json_number_divide(limbs, step) || more;
            } else {
                exl2__json_number_multiply(limbs, step);
            }
        }
        bits = exl2__json_number_round(limbs, words * 32, more);
    }
    if (bits >= (uint64_t)0x7FF << 52) {
        return false;
    }
    bits |= (uint64_t)n->negative << 63;
    memcpy(out, &bits, sizeof *out);
    return true;
}

/* The same for any count of digits: correctly rounded unless the dropped digits could change the result, which is
   false. They make the value larger by less than a unit of the last kept digit. */
static inline bool exl2__json_number_f64_all(const exl2__json_number *n, double *out)
{
    double above;
    exl2__json_number next = *n;
    next.digits++;
    next.cut = false;
    return exl2__json_number_f64(n, out) &&
           (!n->cut || (next.digits && exl2__json_number_f64(&next, &above) && memcmp(out, &above, sizeof above) == 0));
}

#endif

/* template_number.h: prints a double as Python does: the shortest decimal text that reads back as the same double.
   takes: a finite double.
   gives: exl2__template_number_print. */
#ifndef EXL2__TEMPLATE_NUMBER_H
#define EXL2__TEMPLATE_NUMBER_H

#include "../../0_base/result.h"
#include "../../0_base/json/json_number.h"

#define EXL2__TEMPLATE_NUMBER_BYTES 32 /* room for any printed double */

/* value = digits * 10^exponent, plus less than a unit of the last digit if `more`; 18 or 19 digits. */
typedef struct exl2__template_decimal {
    uint64_t digits;
    int exponent;
    bool more;
} exl2__template_decimal;

/* The decimal form of mantissa * 2^power, mantissa > 0. */
EXL2__PRIVATE exl2__template_decimal exl2__template_number_decimal(uint64_t mantissa, int power)
{
    exl2__template_decimal d = { 0, 0, false };
    uint32_t limbs[EXL2__JSON_NUMBER_LIMBS] = { 0 };
    int top = power;
    for (uint64_t m = mantissa; m > 1; m >>= 1) {
        top++;
    }
    /* floor(log10(value)), or one less: 1233 / 4096 is a little below log10(2), and division rounds down. */
    int size = top >= 0 ? top * 1233 / 4096 : -((-top * 1234 + 4095) / 4096);
    d.exponent = size - 17;
    int shift = power > 0 ? power : 0;
    for (int bit = 0; bit < 64; bit++) {
        limbs[(shift + bit) / 32] |= (uint32_t)(mantissa >> bit & 1) << (shift + bit) % 32;
    }
    for (int left = d.exponent < 0 ? -d.exponent : d.exponent; left > 0; left--) {
        if (d.exponent < 0) {
            exl2__json_number_multiply(limbs, 10);
        } else {
            d.more = exl2__json_number_divide(limbs, 10) || d.more;
        }
    }
    int drop = power < 0 ? -power : 0;
    for (int i = 0; i < drop; i++) {
        d.more = d.more || exl2__json_number_bit(limbs, i);
    }
    for (int i = 63; i >= 0; i--) {
        d.digits = d.digits << 1 | exl2__json_number_bit(limbs, drop + i);
    }
    return d;
}

EXL2__PRIVATE bool exl2__template_number_is(uint64_t digits, int exponent, uint64_t bits)
{
    exl2__json_number n = { digits, exponent, false, false };
    double value = 0;
    uint64_t read;
    bool fits = exl2__json_number_f64(&n, &value);
    memcpy(&read, &value, sizeof read);
    return fits && read == bits;
}

/* The shortest digits that read back as `bits` (a double above 0), and of these the nearest; *exponent as in
   exl2__template_decimal. */
EXL2__PRIVATE uint64_t exl2__template_number_shortest(uint64_t bits, int *exponent)
{
    uint64_t mantissa = bits & 0xFFFFFFFFFFFFFu;
    int power = (int)(bits >> 52);
    mantissa |= power ? (uint64_t)1 << 52 : 0;
    exl2__template_decimal d = exl2__template_number_decimal(mantissa, (power ? power : 1) - 1075);
    /* 10^18 leaves 1 digit of 19. The last unit, 10, leaves at least 17 digits, which always identify a double. */
    uint64_t unit = 1000000000000000000u;
    for (int places = 18; places > 0; unit /= 10, places--) {
        uint64_t kept = d.digits / unit, rest = d.digits % unit;
        bool up = rest > unit / 2 || (rest == unit / 2 && (d.more || (kept & 1)));
        *exponent = d.exponent + places;
        if (kept + up && exl2__template_number_is(kept + up, *exponent, bits)) {
            return kept + up;
        }
        /* Doubles are denser below a power of two, so the farther of the two decimals may be the right one. */
        if (kept + !up && exl2__template_number_is(kept + !up, *exponent, bits)) {
            return kept + !up;
        }
    }
    *exponent = d.exponent; /* not reached */
    return d.digits;
}

/* Writes "1.5", "1e-07", "-0.0" ... and returns the number of bytes. */
EXL2__PRIVATE size_t exl2__template_number_print(double value, char out[EXL2__TEMPLATE_NUMBER_BYTES])
{
    uint64_t bits;
    int exponent = 0;
    memcpy(&bits, &value, sizeof bits);
    size_t used = 0;
    if (bits >> 63) {
        out[used++] = '-';
        bits &= UINT64_MAX >> 1;
    }
    uint64_t digits = bits ? exl2__template_number_shortest(bits, &exponent) : 0;
    while (digits && digits % 10 == 0) {
        digits /= 10;
        exponent++;
    }
    char text[24];
    int count = (int)exl2__format(text, sizeof text, "%llu", (unsigned long long)digits), point = count + exponent;
    if (point > 16 || point < -3) { /* d.ddde+xx */
        out[used++] = text[0];
        if (count > 1) {
            out[used++] = '.';
            memcpy(out + used, text + 1, (size_t)count - 1);
            used += (size_t)count - 1;
        }
        int power = point - 1, size = power < 0 ? -power : power;
        return used + exl2__format(out + used, EXL2__TEMPLATE_NUMBER_BYTES - used, "e%c%s%d", power < 0 ? '-' : '+',
                                   size < 10 ? "0" : "", size);
    }
    if (point <= 0) { /* 0.000ddd */
        memcpy(out + used, "0.000", 5);
        used += (size_t)(2 - point);
        memcpy(out + used, text, (size_t)count);
        return used + (size_t)count;
    }
    for (int i = 0; i < point; i++) {
        out[used++] = i < count ? text[i] : '0';
    }
    out[used++] = '.';
    if (count <= point) {
        out[used++] = '0';
    } else {
        memcpy(out + used, text + point, (size_t)(count - point));
        used += (size_t)(count - point);
    }
    return used;
}

#endif

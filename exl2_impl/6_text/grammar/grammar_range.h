/* grammar_range.h: makes a piece of an automaton that matches the JSON numbers between two bounds.
   takes: bounds, as decimal numbers.
   gives: exl2__grammar_range_bound, exl2__grammar_range_set, exl2__grammar_range_piece. */
#ifndef EXL2__GRAMMAR_RANGE_H
#define EXL2__GRAMMAR_RANGE_H

#include "../../0_base/json/json_number.h"
#include "grammar_code.h"

#define EXL2__GRAMMAR_RANGE_DIGITS 15 /* most digits before and after the point together; doubles keep 15 digits */

/* 12.5 is whole "12", part "5". */
typedef struct exl2__grammar_range_bound {
    bool present, negative, exclusive;
    uint32_t digits, parts;
    char whole[EXL2__GRAMMAR_RANGE_DIGITS + 1], part[EXL2__GRAMMAR_RANGE_DIGITS + 1];
} exl2__grammar_range_bound;

/* Sets a bound to a JSON number. false: the number has too many digits. */
EXL2__PRIVATE bool exl2__grammar_range_set(exl2__grammar_range_bound *b, const exl2__json_number *n, bool exclusive)
{
    char digits[20];
    uint32_t count = 0;
    uint64_t rest = n->digits;
    *b = (exl2__grammar_range_bound){ 0 };
    b->present = true;
    b->exclusive = exclusive;
    b->negative = n->negative && n->digits;
    for (; rest; rest /= 10) {
        digits[count++] = (char)('0' + rest % 10); /* last digit first */
    }
    int64_t point = n->digits ? n->exponent : 0; /* power of ten of the last digit */
    if (n->cut || point > EXL2__GRAMMAR_RANGE_DIGITS || point < -EXL2__GRAMMAR_RANGE_DIGITS
        || (int64_t)count + point > EXL2__GRAMMAR_RANGE_DIGITS) {
        return false;
    }
    for (int64_t place = (int64_t)count + point - 1; place >= 0; place--) {
        b->whole[b->digits++] = place >= point ? digits[place - point] : '0';
    }
    for (int64_t place = -1; place >= point; place--) {
        b->part[b->parts++] = place - point < (int64_t)count ? digits[place - point] : '0';
    }
    if (b->digits == 0) {
        b->whole[b->digits++] = '0';
    }
    return b->digits + b->parts <= EXL2__GRAMMAR_RANGE_DIGITS;
}

EXL2__PRIVATE void exl2__grammar_range_set_integer(exl2__grammar_range_bound *b, int64_t value)
{
    exl2__json_number n = { value < 0 ? 0 - (uint64_t)value : (uint64_t)value, 0, value < 0, false };
    exl2__grammar_range_set(b, &n, false);
}

/* The least integer that a lower bound allows, or the greatest integer that an upper bound allows. */
EXL2__PRIVATE int64_t exl2__grammar_range_integer(const exl2__grammar_range_bound *b, bool upper)
{
    int64_t value = 0;
    bool fraction = false;
    for (uint32_t i = 0; i < b->digits; i++) {
        value = value * 10 + (b->whole[i] - '0');
    }
    for (uint32_t i = 0; i < b->parts; i++) {
        fraction = fraction || b->part[i] != '0';
    }
    if (fraction) { /* `value` is rounded towards zero so far */
        return b->negative ? (upper ? -value - 1 : -value) : upper ? value : value + 1;
    }
    value = b->negative ? -value : value;
    return b->exclusive ? (upper ? value - 1 : value + 1) : value;
}

/* ---- absolute values: low <= |number| <= high ---- */

/* Tables [2][2] of nodes are indexed by [digits so far equal those of low][digits so far equal those of high]. The list
   has all pairs of indices. */
static const struct { bool low, high; } exl2__grammar_range_sides[] = {
    { false, false }, { true, false }, { false, true }, { true, true },
};

typedef struct exl2__grammar_range_maker {
    exl2__grammar_code *g;
    const exl2__grammar_range_bound *low, *high;
    uint32_t end;      /* node to which all numbers lead */
    uint32_t parts;    /* most digits after the point */
    uint32_t loose[EXL2__GRAMMAR_RANGE_DIGITS + 1]; /* [digits] any fraction of up to that many digits; 0 = not made */
} exl2__grammar_range_maker;

EXL2__PRIVATE uint32_t exl2__grammar_range_or(exl2__grammar_range_maker *m, uint32_t a, uint32_t b)
{
    return a && b ? exl2__grammar_code_add(m->g, EXL2__GRAMMAR_CODE_SPLIT, a, b) : a ? a : b;
}

/* Node for a digit low..high that leads to `target`; 0 if there is no such digit or no target. */
EXL2__PRIVATE uint32_t exl2__grammar_range_digit(exl2__grammar_range_maker *m, int low, int high, uint32_t target)
{
    if (low > high || !target) {
        return 0;
    }
    exl2__grammar_code_piece digit = exl2__grammar_code_bytes(m->g, (uint32_t)low, (uint32_t)high);
    exl2__grammar_code_join(m->g, digit.first, target);
    return digit.first;
}

/* Node for a digit low..high that leads to the entry of `next` for the digits so far. `is_low`, `is_high`: the digits
   before this one equal those of that bound. */
EXL2__PRIVATE uint32_t exl2__grammar_range_place(exl2__grammar_range_maker *m, int low, int high, bool is_low,
                                                 bool is_high, uint32_t next[2][2])
{
    if (is_low && is_high && low == high) {
        return exl2__grammar_range_digit(m, low, high, next[1][1]);
    }
    uint32_t node = exl2__grammar_range_digit(m, low + is_low, high - is_high, next[0][0]);
    if (is_low && low <= high) {
        node = exl2__grammar_range_or(m, node, exl2__grammar_range_digit(m, low, low, next[1][0]));
    }
    if (is_high && low <= high) {
        node = exl2__grammar_range_or(m, node, exl2__grammar_range_digit(m, high, high, next[0][1]));
    }
    return node;
}

/* May a number end after `parts` digits of its fraction? `is_low`, `is_high`: its digits equal those of that bound. */
EXL2__PRIVATE bool exl2__grammar_range_may_end(const exl2__grammar_range_maker *m, bool is_low, bool is_high,
                                               uint32_t parts)
{
    bool low_more = false, high_more = false;
    for (uint32_t i = parts; i < EXL2__GRAMMAR_RANGE_DIGITS; i++) {
        low_more = low_more || (i < m->low->parts && m->low->part[i] != '0');
        high_more = high_more || (i < m->high->parts && m->high->part[i] != '0');
    }
    return !(is_low && (low_more || m->low->exclusive)) && !(is_high && !high_more && m->high->exclusive);
}

/* Node after the whole part: the end, or a point and at most `room` digits. */
EXL2__PRIVATE uint32_t exl2__grammar_range_fraction(exl2__grammar_range_maker *m, bool is_low, bool is_high,
                                                    uint32_t room)
{
    uint32_t next[2][2] = { { 0 } }, first = 0;
    uint32_t end = exl2__grammar_range_may_end(m, is_low, is_high, 0) ? m->end : 0;
    if (room == 0) {
        return end;
    }
    if (!is_low && !is_high && m->loose[room]) {
        return m->loose[room];
    }
    for (uint32_t digits = room + 1; digits-- > 0;) { /* from the last place to the first; `digits` precede the place */
        uint32_t here[2][2] = { { 0 } };
        for (size_t k = 0; k < EXL2__COUNT(exl2__grammar_range_sides); k++) {
            bool low_now = exl2__grammar_range_sides[k].low, high_now = exl2__grammar_range_sides[k].high;
            if ((low_now && !is_low) || (high_now && !is_high)) {
                continue;
            }
            int low = low_now && digits < m->low->parts ? m->low->part[digits] : '0';
            int high = !high_now ? '9' : digits < m->high->parts ? m->high->part[digits] : '0';
            uint32_t more = exl2__grammar_range_place(m, low, high, low_now, high_now, next);
            first = low_now == is_low && high_now == is_high ? more : first;
            bool stop = digits > 0 && exl2__grammar_range_may_end(m, low_now, high_now, digits);
            here[low_now][high_now] = exl2__grammar_range_or(m, more, stop ? m->end : 0);
        }
        memcpy(next, here, sizeof next);
    }
    uint32_t point = exl2__grammar_range_digit(m, '.', '.', first);
    uint32_t node = exl2__grammar_range_or(m, point, end);
    if (!is_low && !is_high) {
        m->loose[room] = node;
    }
    return node;
}

/* Node for the numbers whose whole part has `digits` digits. */
EXL2__PRIVATE uint32_t exl2__grammar_range_length(exl2__grammar_range_maker *m, uint32_t digits)
{
    bool low_tight = digits == m->low->digits, high_tight = m->high->present && digits == m->high->digits;
    uint32_t next[2][2] = { { 0 } };
    for (size_t k = 0; k < EXL2__COUNT(exl2__grammar_range_sides); k++) {
        bool low_now = exl2__grammar_range_sides[k].low, high_now = exl2__grammar_range_sides[k].high;
        if ((low_tight || !low_now) && (high_tight || !high_now)) {
            uint32_t room = exl2__min32(EXL2__GRAMMAR_RANGE_DIGITS - digits, m->parts);
            next[low_now][high_now] = exl2__grammar_range_fraction(m, low_now, high_now, room);
        }
    }
    for (uint32_t place = digits; place-- > 0;) {
        uint32_t here[2][2] = { { 0 } };
        for (size_t k = 0; k < EXL2__COUNT(exl2__grammar_range_sides); k++) {
            bool low_now = exl2__grammar_range_sides[k].low, high_now = exl2__grammar_range_sides[k].high;
            if ((low_now && !low_tight) || (high_now && !high_tight)
                || (place == 0 && (low_now != low_tight || high_now != high_tight))) {
                continue;
            }
            int low = low_now ? m->low->whole[place] : place == 0 && digits > 1 ? '1' : '0';
            int high = high_now ? m->high->whole[place] : '9';
            here[low_now][high_now] = exl2__grammar_range_place(m, low, high, low_now, high_now, next);
        }
        memcpy(next, here, sizeof next);
    }
    return next[low_tight][high_tight];
}

/* Node for the absolute values between the bounds; 0 if there are none. */
EXL2__PRIVATE uint32_t exl2__grammar_range_size(exl2__grammar_code *g, const exl2__grammar_range_bound *low,
                                                const exl2__grammar_range_bound *high, uint32_t parts, uint32_t end)
{
    exl2__grammar_range_maker m = { g, low, high, end, parts, { 0 } };
    uint32_t node = 0, most = high->present ? high->digits : EXL2__GRAMMAR_RANGE_DIGITS;
    for (uint32_t digits = low->digits; digits <= most; digits++) {
        node = exl2__grammar_range_or(&m, node, exl2__grammar_range_length(&m, digits));
    }
    return node;
}

/* Numbers from low to high (both may be absent), with at most 15 digits, of which `parts` may come after the point, and
   no exponent. The piece matches nothing if there are none. */
EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_range_piece(exl2__grammar_code *g, exl2__grammar_range_bound low,
                                                                 exl2__grammar_range_bound high, uint32_t parts)
{
    exl2__grammar_range_bound zero, opposite;
    exl2__grammar_range_set_integer(&zero, 0);
    if (parts == 0 && low.present) {
        exl2__grammar_range_set_integer(&low, exl2__grammar_range_integer(&low, false));
    }
    if (parts == 0 && high.present) {
        exl2__grammar_range_set_integer(&high, exl2__grammar_range_integer(&high, true));
    }
    uint32_t end = exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_JUMP, 0, 0), node = 0;
    exl2__grammar_range_maker joiner = { g, NULL, NULL, 0, 0, { 0 } };
    if (!high.present || !high.negative) {
        node = exl2__grammar_range_size(g, low.present && !low.negative ? &low : &zero, &high, parts, end);
    }
    if (!low.present || low.negative) { /* -low >= |number| >= -high, and not zero */
        opposite = high;
        zero.exclusive = true;
        uint32_t size = exl2__grammar_range_size(g, high.present && high.negative ? &opposite : &zero, &low, parts,
                                                 end);
        node = exl2__grammar_range_or(&joiner, node, exl2__grammar_range_digit(&joiner, '-', '-', size));
    }
    exl2__grammar_code_piece piece = { node ? node : exl2__grammar_code_bytes(g, 1, 0).first, end };
    return piece;
}

#endif

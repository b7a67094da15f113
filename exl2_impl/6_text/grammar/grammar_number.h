/* grammar_number.h: numbers of a schema, with bounds and multipleOf; and constants (const and enum), without those that
   the rest of the schema excludes.
   takes: expanded sets of subschemas.
   gives: exl2__grammar_number_piece, exl2__grammar_number_language, exl2__grammar_number_holds,
          exl2__grammar_number_apart, exl2__grammar_number_constants, exl2__grammar_number_lists. */
#ifndef EXL2__GRAMMAR_NUMBER_H
#define EXL2__GRAMMAR_NUMBER_H

#include "grammar_string.h"

#define EXL2__GRAMMAR_NUMBER_MULTIPLE_MAX 1000u /* of remainders */
#define EXL2__GRAMMAR_NUMBER_STATES 6000u /* that remainders may need, of those that a product can have */

/* ---- bounds ---- */

/* The conditions of a set on numbers. */
typedef struct exl2__grammar_number {
    exl2__grammar_range_bound bounds[2]; /* lower, upper */
    uint64_t multiple;                    /* a number is a multiple of multiple / 10^places; 0: any number */
    uint32_t places;                      /* 0: integers */
    uint32_t refused;                     /* a multipleOf that was left out, because it is not supported; or 0 */
} exl2__grammar_number;

/* The order of two numbers: below 0, 0 or above 0. */
EXL2__PRIVATE int exl2__grammar_number_order(const exl2__grammar_range_bound *a, const exl2__grammar_range_bound *b)
{
    if (a->negative != b->negative) {
        return a->negative ? -1 : 1;
    }
    int order = a->digits != b->digits ? (a->digits < b->digits ? -1 : 1) : memcmp(a->whole, b->whole, a->digits);
    order = order ? order : memcmp(a->part, b->part, sizeof a->part);
    return a->negative ? -order : order;
}

/* Is bound a stricter than b? */
EXL2__PRIVATE bool exl2__grammar_number_stricter(const exl2__grammar_range_bound *a,
                                                 const exl2__grammar_range_bound *b, bool upper)
{
    int order = b->present ? exl2__grammar_number_order(a, b) : 0;
    return !b->present || (order == 0 ? a->exclusive && !b->exclusive : (order < 0) == upper);
}

typedef struct exl2__grammar_number_keyword {
    const char *name;
    const char *flag; /* keyword of draft 4: if it is true, the bound is exclusive; or NULL */
    bool upper, exclusive;
} exl2__grammar_number_keyword;

static const exl2__grammar_number_keyword exl2__grammar_number_bounds[] = {
    { "minimum", "exclusiveMinimum", false, false }, { "exclusiveMinimum", NULL, false, true },
    { "maximum", "exclusiveMaximum", true, false }, { "exclusiveMaximum", NULL, true, true },
};

/* Replaces a bound by the number `token`, if that is stricter. */
EXL2__PRIVATE void exl2__grammar_number_bound(exl2__grammar_schema *s, exl2__grammar_number *f, uint32_t token,
                                              bool upper, bool exclusive)
{
    exl2__json_number n;
    exl2__grammar_range_bound bound;
    if (!exl2__json_number_of(&s->j, token, &n)) {
        exl2__grammar_schema_reject(s, EXL2_ERR_FORMAT, token, "the value of this keyword must be a number");
    } else if (exl2__grammar_range_set(&bound, &n, exclusive)) {
        if (exl2__grammar_number_stricter(&bound, &f->bounds[upper], upper)) {
            f->bounds[upper] = bound;
        }
    } else if (n.exponent < 0 || n.negative == upper) { /* otherwise all numbers of 15 digits lie within the bound */
        exl2__grammar_schema_reject(s, EXL2_ERR_UNSUPPORTED, token, "a bound must have at most 15 digits");
    }
}

/* The part's bound by this keyword, or 0. */
EXL2__PRIVATE uint32_t exl2__grammar_number_get(exl2__grammar_schema *s, uint32_t part,
                                                const exl2__grammar_number_keyword *word, bool *exclusive)
{
    uint32_t token = exl2__grammar_schema_get(s, part, word->name);
    uint32_t flag = word->flag ? exl2__grammar_schema_get(s, part, word->flag) : 0;
    exl2__json_kind kind = s->j.tokens[token].kind;
    *exclusive = word->exclusive || (flag && s->j.tokens[flag].kind == EXL2__JSON_TRUE);
    bool is_flag = word->exclusive && (kind == EXL2__JSON_TRUE || kind == EXL2__JSON_FALSE);
    return token && is_flag ? 0 : token;
}

/* ---- multiples ---- */

/* *value *= 10^count. false: it does not fit into 64 bits. */
EXL2__PRIVATE bool exl2__grammar_number_shift(uint64_t *value, uint64_t count)
{
    bool fits = true;
    for (uint64_t i = 0; i < count && fits; i++) {
        fits = exl2__mul64(*value, 10, value);
    }
    return fits;
}

EXL2__PRIVATE uint64_t exl2__grammar_number_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static inline bool exl2__grammar_number_is_power(uint64_t value)
{
    while (value && value % 10 == 0) {
        value /= 10;
    }
    return value == 1;
}

/* Combines multiple / 10^places with what the numbers are multiples of already: the least common multiple. false: its
   remainders are too many. */
EXL2__PRIVATE bool exl2__grammar_number_combine(exl2__grammar_number *f, uint64_t multiple, uint32_t places)
{
    uint32_t most = exl2__max32(f->places, places);
    uint64_t a = f->multiple, b = multiple;
    if (f->multiple == 0) {
        a = multiple;
        most = places;
    } else if (!exl2__grammar_number_shift(&a, most - f->places) || !exl2__grammar_number_shift(&b, most - places)
               || !exl2__mul64(a / exl2__grammar_number_divisor(a, b), b, &a)) {
        return false;
    }
    while (most && a % 10 == 0) {
        a /= 10;
        most--;
    }
    f->multiple = a;
    f->places = most;
    return a <= EXL2__GRAMMAR_NUMBER_MULTIPLE_MAX || (most == 0 && exl2__grammar_number_is_power(a));
}

/* Adds a multipleOf to the conditions. */
EXL2__PRIVATE void exl2__grammar_number_multiple(exl2__grammar_schema *s, exl2__grammar_number *f, uint32_t token)
{
    exl2__json_number n;
    if (!exl2__json_number_of(&s->j, token, &n) || n.digits == 0 || n.negative) {
        exl2__grammar_schema_reject(s, EXL2_ERR_FORMAT, token, "multipleOf must be a number above 0");
        return;
    }
    uint64_t multiple = n.digits;
    bool fits = !n.cut && n.exponent >= -EXL2__GRAMMAR_RANGE_DIGITS && n.exponent < EXL2__GRAMMAR_RANGE_DIGITS
                && exl2__grammar_number_shift(&multiple, n.exponent > 0 ? (uint64_t)n.exponent : 0);
    exl2__grammar_number both = *f;
    if (fits && exl2__grammar_number_combine(&both, multiple, n.exponent < 0 ? (uint32_t)-n.exponent : 0)) {
        *f = both;
    } else {
        f->refused = token;
    }
}

/* Is the constant a multiple? */
EXL2__PRIVATE bool exl2__grammar_number_divides(const exl2__grammar_number *f, const exl2__json_number *n)
{
    uint64_t value = n->digits, zeros = 1;
    int64_t shift = n->exponent + f->places; /* n * 10^places = digits * 10^shift */
    if (f->multiple == 0 || value == 0) {
        return true;
    }
    if (n->cut || shift < -19) {
        return false;
    }
    if (shift < 0) {
        exl2__grammar_number_shift(&zeros, (uint64_t)-shift);
        return value % zeros == 0 && value / zeros % f->multiple == 0;
    }
    value %= f->multiple; /* below 10^15, and 10 times that fits; 2 and 5 divide it fewer than 64 times */
    for (int64_t i = 0; i < shift && i < 64; i++) {
        value = value * 10 % f->multiple;
    }
    return value == 0;
}

/* The conditions of a set; `integer`: its types allow no fractions. */
EXL2__PRIVATE exl2__grammar_number exl2__grammar_number_of(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                                           bool integer)
{
    exl2__grammar_number f = { .multiple = integer };
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t part = set->parts[i].token, multiple = exl2__grammar_schema_get(s, part, "multipleOf");
        for (size_t k = 0; k < EXL2__COUNT(exl2__grammar_number_bounds); k++) {
            bool exclusive;
            const exl2__grammar_number_keyword *word = &exl2__grammar_number_bounds[k];
            uint32_t token = exl2__grammar_number_get(s, part, word, &exclusive);
            if (token) {
                exl2__grammar_number_bound(s, &f, token, word->upper, exclusive);
            }
        }
        if (multiple) {
            exl2__grammar_number_multiple(s, &f, multiple);
        }
    }
    return f;
}

/* The same where all conditions must hold. */
EXL2__PRIVATE exl2__grammar_number exl2__grammar_number_all(exl2__grammar_schema *s,
                                                            const exl2__grammar_schema_set *set, bool integer)
{
    exl2__grammar_number f = exl2__grammar_number_of(s, set, integer);
    if (f.refused) {
        exl2__grammar_schema_reject(s, EXL2_ERR_UNSUPPORTED, f.refused,
                                    "multipleOf, and the least common multiple of several, must be up to 1,000, such a "
                                    "number divided by up to 10^15, or a power of ten");
    }
    return f;
}

/* Digits before the point, so that the remainders of all places of a number are not too many. */
EXL2__PRIVATE uint32_t exl2__grammar_number_digits(const exl2__grammar_number *f)
{
    uint64_t power = 1, rests, fraction = f->places * f->multiple;
    exl2__grammar_number_shift(&power, f->places);
    rests = f->multiple / exl2__grammar_number_divisor(f->multiple, power);
    uint64_t most = rests > 100 ? 5 : rests > 16 ? 6 : EXL2__GRAMMAR_RANGE_DIGITS;
    uint64_t room = fraction < EXL2__GRAMMAR_NUMBER_STATES ? (EXL2__GRAMMAR_NUMBER_STATES - fraction) / rests : 0;
    return (uint32_t)exl2__max64(f->places ? exl2__min64(most, room) : most, 1);
}

/* ---- numbers that are excluded ---- */

/* Excludes one number in all spellings, such as 2, 2.0 and 2.00. */
EXL2__PRIVATE void exl2__grammar_number_not_one(exl2__grammar_schema *s, exl2__grammar_product *w, uint32_t token)
{
    exl2__json_number n;
    exl2__grammar_range_bound b;
    size_t used = 0;
    if (!exl2__json_number_of(&s->j, token, &n) || !exl2__grammar_range_set(&b, &n, false)) {
        return; /* no number that is generated is this long */
    }
    memcpy(s->buffer, "-?", 2);
    used = n.digits == 0 ? 2 : b.negative;
    memcpy(s->buffer + used, b.whole, b.digits);
    used += b.digits;
    if (b.parts) {
        s->buffer[used++] = '\\';
        s->buffer[used++] = '.';
        memcpy(s->buffer + used, b.part, b.parts);
        used += b.parts;
        memcpy(s->buffer + used, "0*", 2);
        used += 2;
    } else {
        memcpy(s->buffer + used, "(\\.0*)?", 7);
        used += 7;
    }
    exl2__grammar_product_regex(w, s->buffer, used, true, false, EXL2__GRAMMAR_PRODUCT_NOT);
}

/* Excludes the numbers that fulfil the bounds and the multipleOf of a set. A single bound becomes one of *f, the
   conditions of the numbers that are written; `fractions`: there are fractions among them. false: it has neither. */
EXL2__PRIVATE bool exl2__grammar_number_not_range(exl2__grammar_schema *s, exl2__grammar_product *w,
                                                  exl2__grammar_number *f, bool fractions,
                                                  const exl2__grammar_schema_set *set, bool integer)
{
    exl2__grammar_number other = exl2__grammar_number_of(s, set, integer);
    bool low = other.bounds[0].present, high = other.bounds[1].present;
    bool exact = other.multiple <= EXL2__GRAMMAR_NUMBER_MULTIPLE_MAX; /* without it more numbers are excluded */
    bool every = other.multiple == 0 || (other.multiple == 1 && other.places == 0 && !fractions);
    exl2__grammar_product_multiple of = { exact && !every ? (uint32_t)other.multiple : 0, other.places };
    exl2__grammar_code code;
    if (!low && !high && of.multiple == 0) {
        return false;
    }
    if (every && low != high) { /* below a lower bound, or above an upper one */
        exl2__grammar_range_bound bound = other.bounds[high];
        bound.exclusive = !bound.exclusive;
        f->bounds[low] = exl2__grammar_number_stricter(&bound, &f->bounds[low], low) ? bound : f->bounds[low];
        return true;
    }
    if (s->g->result == EXL2_OK) {
        s->g->result = exl2__grammar_code_open(s->g->c, &code, s->g->label);
        exl2__grammar_code_rule(&code);
        exl2__grammar_code_define(&code, 0, exl2__grammar_range_piece(&code, other.bounds[0], other.bounds[1],
                                                                      EXL2__GRAMMAR_RANGE_DIGITS));
        exl2__grammar_product_numbers(w, &code, of, EXL2__GRAMMAR_PRODUCT_NOT);
    }
    return true;
}

/* Excludes the numbers of a set that must not hold, by its constants, or else by its bounds and multipleOf. false: it
   has none of them. */
EXL2__PRIVATE bool exl2__grammar_number_not(exl2__grammar_schema *s, exl2__grammar_product *w, exl2__grammar_number *f,
                                            bool fractions, const exl2__grammar_schema_set *set, bool integer)
{
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t part = set->parts[i].token, one = exl2__grammar_schema_get(s, part, "const");
        uint32_t list = exl2__grammar_schema_get(s, part, "enum");
        if (one) {
            exl2__grammar_number_not_one(s, w, one);
            return true;
        }
        for (uint32_t k = list ? exl2__json_first(&s->j, list) : 0; k; k = exl2__json_next(&s->j, list, k)) {
            exl2__grammar_number_not_one(s, w, k);
        }
        if (list) {
            return true;
        }
    }
    return exl2__grammar_number_not_range(s, w, f, fractions, set, integer);
}

/* Does exl2__grammar_number_not exclude the numbers of the set and no others? */
EXL2__PRIVATE bool exl2__grammar_number_exact(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                              bool integer)
{
    exl2__grammar_number f = exl2__grammar_number_of(s, set, integer);
    bool plain = set->not_count == 0, lists = false;
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t part = set->parts[i].token;
        lists = lists || exl2__grammar_schema_get(s, part, "enum") || exl2__grammar_schema_get(s, part, "const");
        plain = plain && !exl2__grammar_schema_get(s, part, "anyOf") && !exl2__grammar_schema_get(s, part, "oneOf");
    }
    return lists ? exl2__grammar_types_conditions(s, set, EXL2__GRAMMAR_SCHEMA_NUMBER) == 1
        : plain && !f.refused && f.multiple <= EXL2__GRAMMAR_NUMBER_MULTIPLE_MAX;
}

/* ---- numbers ---- */

/* Digits after the point that are written. */
static inline uint32_t exl2__grammar_number_parts(const exl2__grammar_number *f)
{
    return f->multiple ? f->places : EXL2__GRAMMAR_RANGE_DIGITS;
}

/* Adds the numbers within the bounds that are multiples. */
EXL2__PRIVATE void exl2__grammar_number_numbers(exl2__grammar_schema *s, exl2__grammar_number *f,
                                                exl2__grammar_product *w)
{
    bool power = f->multiple > EXL2__GRAMMAR_NUMBER_MULTIPLE_MAX;
    exl2__grammar_product_multiple of = { f->multiple > 1 && !power ? (uint32_t)f->multiple : 0, f->places };
    uint32_t digits = of.multiple ? exl2__grammar_number_digits(f) : EXL2__GRAMMAR_RANGE_DIGITS;
    exl2__grammar_code code;
    uint64_t limit = 1;
    exl2__grammar_number_shift(&limit, digits);
    for (uint32_t upper = 0; digits < EXL2__GRAMMAR_RANGE_DIGITS && upper < 2; upper++) {
        exl2__grammar_range_bound bound;
        exl2__grammar_range_set_integer(&bound, ((int64_t)limit - 1) * (upper ? 1 : -1));
        if (!f->bounds[upper].present && (!f->bounds[!upper].present || f->bounds[!upper].digits <= digits)) {
            f->bounds[upper] = bound;
        }
    }
    if (power) { /* ends in as many zeros */
        char regex[40];
        uint32_t zeros = 0;
        for (uint64_t rest = f->multiple; rest > 1; rest /= 10) {
            zeros++;
        }
        size_t bytes = exl2__format(regex, sizeof regex, "-?(0|[0-9]*0{%u})", zeros);
        exl2__grammar_product_regex(w, regex, bytes, true, false, EXL2__GRAMMAR_PRODUCT_MUST);
    }
    if (s->g->result == EXL2_OK) {
        s->g->result = exl2__grammar_code_open(s->g->c, &code, s->g->label);
        exl2__grammar_code_rule(&code);
        exl2__grammar_code_define(&code, 0, exl2__grammar_range_piece(&code, f->bounds[0], f->bounds[1],
                                                                      exl2__grammar_number_parts(f)));
        exl2__grammar_product_numbers(w, &code, of, EXL2__GRAMMAR_PRODUCT_MUST);
    }
}

/* Adds all conditions of the set on numbers. */
EXL2__PRIVATE void exl2__grammar_number_language(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                                 uint32_t types, exl2__grammar_product *w)
{
    static const char integers[] = "-?[0-9]+(\\.0*)?";
    bool fractions = (types & EXL2__GRAMMAR_SCHEMA_FRACTION) != 0;
    exl2__grammar_number f = exl2__grammar_number_all(s, set, !fractions);
    for (uint32_t i = 0; i < set->not_count && s->g->result == EXL2_OK; i++) {
        exl2__grammar_schema_set other;
        uint32_t both = exl2__grammar_types_not(s, set->nots[i], types & EXL2__GRAMMAR_SCHEMA_NUMBER, &other);
        bool integer = !(both & EXL2__GRAMMAR_SCHEMA_FRACTION);
        if (both && !exl2__grammar_number_not(s, w, &f, fractions && exl2__grammar_number_parts(&f), &other, integer)) {
            exl2__grammar_types_reject_not(s, set->nots[i]);
        } else if (both && !exl2__grammar_number_exact(s, &other, integer)) {
            exl2__grammar_types_doubt_not(s, set->nots[i]);
        }
    }
    if (!(types & EXL2__GRAMMAR_SCHEMA_INTEGER)) {
        exl2__grammar_product_regex(w, integers, sizeof integers - 1, true, false, EXL2__GRAMMAR_PRODUCT_NOT);
    }
    exl2__grammar_number_numbers(s, &f, w);
}

EXL2__PRIVATE exl2__grammar_code_piece exl2__grammar_number_piece(exl2__grammar_schema *s,
                                                                  const exl2__grammar_schema_set *set, uint32_t types)
{
    exl2__grammar_number f = exl2__grammar_number_all(s, set, !(types & EXL2__GRAMMAR_SCHEMA_FRACTION));
    uint32_t nots = 0;
    for (uint32_t i = 0; i < set->not_count; i++) {
        exl2__grammar_schema_set other;
        nots += exl2__grammar_types_not(s, set->nots[i], types & EXL2__GRAMMAR_SCHEMA_NUMBER, &other) != 0;
    }
    if (f.multiple > 1 || nots || !(types & EXL2__GRAMMAR_SCHEMA_INTEGER)) {
        exl2__grammar_product w;
        exl2__grammar_product_open(s->g, s->vocab, &w);
        exl2__grammar_number_language(s, set, types, &w);
        exl2__grammar_code_piece piece = exl2__grammar_product_piece(&w, false);
        exl2__grammar_product_close(&w);
        return piece;
    }
    if (!f.bounds[0].present && !f.bounds[1].present && f.places == 0) {
        return exl2__grammar_value_call(
            s, f.multiple ? EXL2__GRAMMAR_SCHEMA_SHARED_INTEGER : EXL2__GRAMMAR_SCHEMA_SHARED_NUMBER);
    }
    return exl2__grammar_range_piece(s->g, f.bounds[0], f.bounds[1], exl2__grammar_number_parts(&f));
}

/* Do the bounds of two sets leave no number to both? */
EXL2__PRIVATE bool exl2__grammar_number_apart(exl2__grammar_schema *s, const exl2__grammar_schema_set *a,
                                              const exl2__grammar_schema_set *b)
{
    exl2__grammar_number x = exl2__grammar_number_of(s, a, false), y = exl2__grammar_number_of(s, b, false);
    for (uint32_t swap = 0; swap < 2; swap++) {
        const exl2__grammar_range_bound *high = swap ? &y.bounds[1] : &x.bounds[1];
        const exl2__grammar_range_bound *low = swap ? &x.bounds[0] : &y.bounds[0];
        int order = high->present && low->present ? exl2__grammar_number_order(high, low) : 1;
        if (order < 0 || (order == 0 && (high->exclusive || low->exclusive))) {
            return true;
        }
    }
    return false;
}

/* ---- constants ---- */

typedef enum exl2__grammar_number_answer {
    EXL2__GRAMMAR_NUMBER_NO,
    EXL2__GRAMMAR_NUMBER_YES,
    EXL2__GRAMMAR_NUMBER_UNKNOWN
} exl2__grammar_number_answer;

EXL2__PRIVATE bool exl2__grammar_number_listed(const exl2__grammar_schema *s, uint32_t list, uint32_t value)
{
    bool found = false;
    for (uint32_t k = exl2__json_first(&s->j, list); k && !found; k = exl2__json_next(&s->j, list, k)) {
        found = s->j.tokens[k].kind == s->j.tokens[value].kind && exl2__grammar_value_same(s, k, value);
    }
    return found;
}

EXL2__PRIVATE bool exl2__grammar_number_within(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                               uint32_t value)
{
    exl2__grammar_number f = exl2__grammar_number_all(s, set, false);
    exl2__grammar_range_bound bound;
    exl2__json_number n = { 0 };
    bool bounded = f.bounds[0].present || f.bounds[1].present;
    exl2__json_number_of(&s->j, value, &n);
    if (bounded && !exl2__grammar_range_set(&bound, &n, false)) {
        exl2__grammar_schema_reject(s, EXL2_ERR_UNSUPPORTED, value,
                                    "a constant must have at most 15 digits where a bound applies");
        return false;
    }
    for (uint32_t upper = 0; upper < 2; upper++) {
        if (f.bounds[upper].present && exl2__grammar_number_stricter(&f.bounds[upper], &bound, upper)) {
            return false;
        }
    }
    return exl2__grammar_number_divides(&f, &n);
}

/* Is the constant in a language of strings? */
EXL2__PRIVATE exl2__grammar_number_answer exl2__grammar_number_in(exl2__grammar_schema *s, exl2__grammar_product *w,
                                                                  uint32_t value)
{
    size_t bytes = exl2__json_text(&s->j, value, s->buffer, SIZE_MAX);
    return exl2__grammar_product_accepts(w, s->buffer, bytes) != EXL2__GRAMMAR_PRODUCT_NONE ? EXL2__GRAMMAR_NUMBER_YES
        : EXL2__GRAMMAR_NUMBER_NO;
}

/* Does the constant match the set, without its nots? `listed`: the caller knows that every const and enum of the set
   lists the value. `w`: the set's language of strings, or NULL if it has not been made. */
EXL2__PRIVATE exl2__grammar_number_answer exl2__grammar_number_fits(exl2__grammar_schema *s,
                                                                    const exl2__grammar_schema_set *set, uint32_t value,
                                                                    bool listed, exl2__grammar_product *w)
{
    uint32_t type = exl2__grammar_types_value(s, value);
    bool restricted = false;
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t part = set->parts[i].token, one = exl2__grammar_schema_get(s, part, "const");
        uint32_t list = exl2__grammar_schema_get(s, part, "enum");
        if (!listed && ((one && !exl2__grammar_value_same(s, one, value))
                        || (list && !exl2__grammar_number_listed(s, list, value)))) {
            return EXL2__GRAMMAR_NUMBER_NO;
        }
        for (size_t k = 0; k < EXL2__COUNT(exl2__grammar_schema_keywords); k++) {
            const exl2__grammar_schema_keyword *word = &exl2__grammar_schema_keywords[k];
            restricted = restricted || ((word->types & type) && exl2__grammar_schema_get(s, part, word->name));
        }
        if ((!set->parts[i].any_of_done && exl2__grammar_schema_get(s, part, "anyOf"))
            || (!set->parts[i].one_of_done && exl2__grammar_schema_get(s, part, "oneOf"))) {
            return EXL2__GRAMMAR_NUMBER_UNKNOWN;
        }
    }
    if (!restricted) {
        return EXL2__GRAMMAR_NUMBER_YES;
    }
    if (type & EXL2__GRAMMAR_SCHEMA_NUMBER) {
        return exl2__grammar_number_within(s, set, value) ? EXL2__GRAMMAR_NUMBER_YES : EXL2__GRAMMAR_NUMBER_NO;
    }
    if (type == EXL2__GRAMMAR_SCHEMA_STRING && !w) {
        exl2__grammar_product own_product;
        exl2__grammar_product_open(s->g, s->vocab, &own_product);
        exl2__grammar_string_language(s, set, &own_product);
        exl2__grammar_number_answer answer = exl2__grammar_number_in(s, &own_product, value);
        exl2__grammar_product_close(&own_product);
        return answer;
    }
    if (type == EXL2__GRAMMAR_SCHEMA_STRING) {
        return exl2__grammar_number_in(s, w, value);
    }
    return EXL2__GRAMMAR_NUMBER_UNKNOWN;
}

/* Does a constant that every const and enum of the set lists match the rest of the set, including its nots? */
EXL2__PRIVATE bool exl2__grammar_number_holds(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                              uint32_t types, uint32_t value, exl2__grammar_product *w)
{
    uint32_t type = exl2__grammar_types_value(s, value);
    if (!(type & types)) {
        return false;
    }
    exl2__grammar_number_answer answer = exl2__grammar_number_fits(s, set, value, true, w);
    if (answer == EXL2__GRAMMAR_NUMBER_UNKNOWN) {
        exl2__grammar_schema_reject(s, EXL2_ERR_UNSUPPORTED, value,
                                    "the constant cannot be checked against the other keywords");
    }
    for (uint32_t i = 0; i < set->not_count && answer == EXL2__GRAMMAR_NUMBER_YES; i++) {
        exl2__grammar_schema_set other;
        if (exl2__grammar_types_not(s, set->nots[i], type, &other)) {
            exl2__grammar_number_answer fits = exl2__grammar_number_fits(s, &other, value, false, NULL);
            bool unknown = fits == EXL2__GRAMMAR_NUMBER_UNKNOWN
                || (fits == EXL2__GRAMMAR_NUMBER_YES && other.not_count);
            if (unknown) {
                exl2__grammar_types_reject_not(s, set->nots[i]);
            }
            answer = fits == EXL2__GRAMMAR_NUMBER_NO ? answer : EXL2__GRAMMAR_NUMBER_NO;
        }
    }
    return answer == EXL2__GRAMMAR_NUMBER_YES;
}

/* A const of the set (*one is true) or else its shortest enum; 0: the set has neither. */
EXL2__PRIVATE uint32_t exl2__grammar_number_lists(const exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                                  bool *one)
{
    uint32_t best = 0;
    *one = false;
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t list = exl2__grammar_schema_get(s, set->parts[i].token, "enum");
        uint32_t value = exl2__grammar_schema_get(s, set->parts[i].token, "const");
        if (value) {
            *one = true;
            return value;
        }
        best = list && (!best || s->j.tokens[list].count < s->j.tokens[best].count) ? list : best;
    }
    return best;
}

/* Opens the language of the set's strings in *w and returns w; NULL if no constant has to be compared with it. */
EXL2__PRIVATE exl2__grammar_product *exl2__grammar_number_strings(exl2__grammar_schema *s,
                                                                  const exl2__grammar_schema_set *set, uint32_t types,
                                                                  exl2__grammar_product *w)
{
    static const char *const names[] = { "minLength", "maxLength", "pattern", "format" };
    exl2__grammar_schema_set plain = { .count = 0 };
    bool restricted = false;
    for (uint32_t i = 0; i < set->count; i++) {
        for (uint32_t k = 0; k < 4; k++) {
            restricted = restricted || exl2__grammar_schema_get(s, set->parts[i].token, names[k]);
        }
    }
    if (!restricted || !(types & EXL2__GRAMMAR_SCHEMA_STRING)) {
        return NULL;
    }
    memcpy(plain.parts, set->parts, sizeof plain.parts); /* nots are compared with each value */
    plain.count = set->count;
    exl2__grammar_product_open(s->g, s->vocab, w);
    exl2__grammar_string_language(s, &plain, w);
    return w;
}

/* Does the set have no condition on its constants besides const and enum? */
EXL2__PRIVATE bool exl2__grammar_number_bare(const exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                             uint32_t types)
{
    bool bare = set->not_count == 0;
    for (uint32_t i = 0; i < set->count; i++) {
        for (size_t k = 0; k < EXL2__COUNT(exl2__grammar_schema_keywords) && bare; k++) {
            const exl2__grammar_schema_keyword *word = &exl2__grammar_schema_keywords[k];
            bare = !(word->types & types) || !exl2__grammar_schema_get(s, set->parts[i].token, word->name);
        }
    }
    return bare;
}

/* Adds the text of a constant to `kept` if the constant matches the set and is in `common`. Returns the end of the
   texts in the buffer. */
EXL2__PRIVATE char *exl2__grammar_number_keep(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                              uint32_t types, uint32_t value, exl2__grammar_product *w,
                                              const exl2__grammar_choice *common, exl2__grammar_choice *kept)
{
    exl2__grammar_choice_text one = { s->buffer, exl2__grammar_value_text(s, value, s->buffer) };
    uint32_t low = 0, high = common->count;
    while (low < high) {
        uint32_t at = low + (high - low) / 2;
        int order = exl2__grammar_choice_order(&common->texts[at], &one);
        low = order < 0 ? at + 1 : low;
        high = order < 0 ? high : at;
    }
    char *room = s->buffer, *next = room + one.bytes;
    if (low == common->count || exl2__grammar_choice_order(&common->texts[low], &one) != 0) {
        return room;
    }
    s->buffer = next; /* texts of other constants are written after this one */
    bool stays = exl2__grammar_number_holds(s, set, types, value, w);
    s->buffer = room;
    if (stays) {
        exl2__grammar_choice_add(kept, one.text, one.bytes);
    }
    return stays ? next : room;
}

/* Writes the values that const and enum list to *out. false: the set has neither. */
EXL2__PRIVATE bool exl2__grammar_number_constants(exl2__grammar_schema *s, const exl2__grammar_schema_set *set,
                                                  uint32_t types, exl2__grammar_code_piece *out)
{
    exl2__grammar_product product;
    exl2__grammar_choice common, kept;
    bool one;
    uint32_t list = exl2__grammar_number_lists(s, set, &one);
    char *room = s->buffer;
    if (!list) {
        return false;
    }
    exl2__grammar_product *w = exl2__grammar_number_strings(s, set, types, &product);
    exl2__grammar_value_listed(s, set, types, &common);
    if (exl2__grammar_number_bare(s, set, types)) {
        *out = exl2__grammar_choice_piece(&common);
        exl2__grammar_choice_close(&common);
        return true;
    }
    exl2__grammar_choice_open(s->g, one ? 1 : s->j.tokens[list].count, &kept);
    s->buffer += s->lists; /* after the texts of `common` */
    for (uint32_t k = one ? list : exl2__json_first(&s->j, list); k && s->g->result == EXL2_OK;
         k = one ? 0 : exl2__json_next(&s->j, list, k)) {
        s->buffer = exl2__grammar_number_keep(s, set, types, k, w, &common, &kept);
    }
    exl2__grammar_choice_sort(&kept);
    *out = exl2__grammar_choice_piece(&kept);
    s->buffer = room;
    exl2__grammar_choice_close(&kept);
    exl2__grammar_choice_close(&common);
    if (w) {
        exl2__grammar_product_close(w);
    }
    return true;
}

#endif

/* template_operator.h: the operators + - * / // % ** == < in on values, by Python's rules.
   takes: exl2__template_run and values.
   gives: exl2__template_arithmetic, sign, comparison, equal, contains, sequence. */
#ifndef EXL2__TEMPLATE_OPERATOR_H
#define EXL2__TEMPLATE_OPERATOR_H

#include "template_text.h"

#include <math.h>

/* ---- equality and order ---- */

EXL2__PRIVATE exl2_result exl2__template_equal(exl2__template_run *r, const exl2__template_value *a,
                                               const exl2__template_value *b, uint32_t depth, bool *out);

/* Fails if a value cannot be a key: as in Python, lists and dicts cannot. */
EXL2__PRIVATE exl2_result exl2__template_check_key(exl2__template_run *r, const exl2__template_value *key,
                                                   uint32_t depth)
{
    if (depth == EXL2__TEMPLATE_VALUE_DEPTH) {
        return exl2__template_too_deep(r);
    }
    bool view = key->kind == EXL2__TEMPLATE_KIND_VIEW && key->why != EXL2__TEMPLATE_VIEW_VALUES;
    if (view || key->kind == EXL2__TEMPLATE_KIND_LIST || key->kind == EXL2__TEMPLATE_KIND_DICT) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "unhashable type: '%s'", exl2__template_type(key));
    }
    for (uint32_t i = 0; key->kind == EXL2__TEMPLATE_KIND_TUPLE && i < key->count; i++) {
        EXL2__TRY(exl2__template_step(r, 1));
        EXL2__TRY(exl2__template_check_key(r, &key->as.items[i], depth + 1));
    }
    return EXL2_OK;
}

/* The entry with this key, or NULL. 1, 1.0 and True are the same key. */
EXL2__PRIVATE exl2_result exl2__template_entry_find(exl2__template_run *r, const exl2__template_entry *entries,
                                                    uint32_t count, const exl2__template_value *key,
                                                    const exl2__template_entry **out)
{
    *out = NULL;
    for (uint32_t i = 0; i < count; i++) {
        bool same = false;
        EXL2__TRY(exl2__template_equal(r, &entries[i].key, key, 0, &same));
        if (same) {
            *out = &entries[i];
            return EXL2_OK;
        }
    }
    return EXL2_OK;
}

/* The double nearest to a number. false: it has no finite one, or (of a BIG) it is not certain. */
EXL2__PRIVATE bool exl2__template_to_real(const exl2__template_value *v, double *out)
{
    *out = v->kind == EXL2__TEMPLATE_KIND_BIG ? 0 : exl2__template_as_real(v);
    exl2__json_number number = { 0, 0, false, false };
    if (v->kind == EXL2__TEMPLATE_KIND_BIG) {
        number = exl2__json_number_read(v->as.text, v->count);
    }
    return v->kind != EXL2__TEMPLATE_KIND_BIG || exl2__json_number_f64_all(&number, out);
}

/* Sign of a - b for two numbers of which one or both are BIG. */
EXL2__PRIVATE exl2_result exl2__template_order_big(exl2__template_run *r, const exl2__template_value *a,
                                                   const exl2__template_value *b, int *out)
{
    const exl2__template_value *big = a->kind == EXL2__TEMPLATE_KIND_BIG ? a : b, *other = big == a ? b : a;
    int sign = big->as.text[0] == '-' ? -1 : 1;
    EXL2__TRY(exl2__template_step(r, big->count / 16 + 16));
    if (other->kind == EXL2__TEMPLATE_KIND_BIG && (other->as.text[0] == '-') == (sign < 0)) {
        int longer = (a->count > b->count) - (a->count < b->count);
        *out = sign * (longer ? longer : memcmp(a->as.text, b->as.text, a->count));
        return EXL2_OK;
    }
    if (other->kind == EXL2__TEMPLATE_KIND_REAL && big->count < 310) {
        double real;
        bool certain = exl2__template_to_real(big, &real) && (real < other->as.real || real > other->as.real);
        if (!certain) {
            return exl2__template_unsupported(r, "comparing an integer beyond 64 bits with a float so near to it");
        }
        sign = real > other->as.real ? 1 : -1;
    }
    *out = big == a ? sign : -sign;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_equal_dicts(exl2__template_run *r, const exl2__template_value *a,
                                                     const exl2__template_value *b, uint32_t depth, bool *out)
{
    *out = a->count == b->count;
    for (uint32_t i = 0; *out && i < a->count; i++) {
        const exl2__template_entry *other;
        EXL2__TRY(exl2__template_entry_find(r, b->as.entries, b->count, &a->as.entries[i].key, &other));
        *out = other != NULL;
        if (other) {
            EXL2__TRY(exl2__template_equal(r, &a->as.entries[i].value, &other->value, depth + 1, out));
        }
    }
    return EXL2_OK;
}

/* a == b, with all elements compared. */
EXL2__PRIVATE exl2_result exl2__template_equal(exl2__template_run *r, const exl2__template_value *a,
                                               const exl2__template_value *b, uint32_t depth, bool *out)
{
    *out = false;
    EXL2__TRY(exl2__template_step(r, 1));
    if (depth == EXL2__TEMPLATE_VALUE_DEPTH) {
        return exl2__template_too_deep(r);
    }
    bool big = a->kind == EXL2__TEMPLATE_KIND_BIG || b->kind == EXL2__TEMPLATE_KIND_BIG;
    if (big && exl2__template_is_numeric(a) && exl2__template_is_numeric(b)) {
        int order = 1;
        EXL2__TRY(exl2__template_order_big(r, a, b, &order));
        *out = order == 0;
        return EXL2_OK;
    }
    if (exl2__template_is_number(a) && exl2__template_is_number(b)) {
        bool real = a->kind == EXL2__TEMPLATE_KIND_REAL || b->kind == EXL2__TEMPLATE_KIND_REAL;
        *out = real ? exl2__template_as_real(a) == exl2__template_as_real(b) : a->as.integer == b->as.integer;
        return EXL2_OK;
    }
    if (a->kind != b->kind) {
        return EXL2_OK;
    }
    switch (a->kind) {
    case EXL2__TEMPLATE_KIND_UNDEFINED:
    case EXL2__TEMPLATE_KIND_NONE:
        *out = true;
        return EXL2_OK;
    case EXL2__TEMPLATE_KIND_TEXT:
        EXL2__TRY(exl2__template_step(r, a->count / 16));
        *out = a->count == b->count && (a->count == 0 || memcmp(a->as.text, b->as.text, a->count) == 0);
        return EXL2_OK;
    case EXL2__TEMPLATE_KIND_LIST:
    case EXL2__TEMPLATE_KIND_TUPLE:
    case EXL2__TEMPLATE_KIND_RANGE:
        *out = a->count == b->count;
        for (uint32_t i = 0; *out && i < a->count; i++) {
            EXL2__TRY(exl2__template_equal(r, &a->as.items[i], &b->as.items[i], depth + 1, out));
        }
        return EXL2_OK;
    case EXL2__TEMPLATE_KIND_DICT:
        return exl2__template_equal_dicts(r, a, b, depth, out);
    case EXL2__TEMPLATE_KIND_NAMESPACE:
        *out = a->as.space == b->as.space;
        return EXL2_OK;
    default:
        return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "comparing a %s is not supported", exl2__template_type(a));
    }
}

EXL2__PRIVATE exl2_result exl2__template_order(exl2__template_run *r, const exl2__template_value *a,
                                               const exl2__template_value *b, const char *sign, int *out);

/* Sign of a - b for two lists or two tuples: that of the first elements that differ. The search for them fails on lists
   that are nested too deeply, which bounds the recursion. */
EXL2__PRIVATE exl2_result exl2__template_order_lists(exl2__template_run *r, const exl2__template_value *a,
                                                     const exl2__template_value *b, const char *sign, int *out)
{
    for (uint32_t i = 0; i < a->count && i < b->count; i++) {
        bool same = false;
        EXL2__TRY(exl2__template_equal(r, &a->as.items[i], &b->as.items[i], 1, &same));
        if (!same) {
            return exl2__template_order(r, &a->as.items[i], &b->as.items[i], sign, out);
        }
    }
    *out = (a->count > b->count) - (a->count < b->count);
    return EXL2_OK;
}

/* Sign of a - b, for numbers, texts and lists. */
EXL2__PRIVATE exl2_result exl2__template_order(exl2__template_run *r, const exl2__template_value *a,
                                               const exl2__template_value *b, const char *sign, int *out)
{
    bool big = a->kind == EXL2__TEMPLATE_KIND_BIG || b->kind == EXL2__TEMPLATE_KIND_BIG;
    if (big && exl2__template_is_numeric(a) && exl2__template_is_numeric(b)) {
        return exl2__template_order_big(r, a, b, out);
    }
    if (exl2__template_is_integer(a) && exl2__template_is_integer(b)) {
        *out = (a->as.integer > b->as.integer) - (a->as.integer < b->as.integer);
        return EXL2_OK;
    }
    if (exl2__template_is_number(a) && exl2__template_is_number(b)) {
        double x = exl2__template_as_real(a), y = exl2__template_as_real(b);
        *out = (x > y) - (x < y);
        return EXL2_OK;
    }
    if (a->kind == EXL2__TEMPLATE_KIND_TEXT &&
        b->kind == EXL2__TEMPLATE_KIND_TEXT) { /* UTF-8 sorts as code points do */
        uint32_t common = exl2__min32(a->count, b->count);
        EXL2__TRY(exl2__template_step(r, common / 16));
        *out = common ? memcmp(a->as.text, b->as.text, common) : 0;
        *out = *out ? *out : (a->count > b->count) - (a->count < b->count);
        return EXL2_OK;
    }
    if (a->kind == EXL2__TEMPLATE_KIND_UNDEFINED || b->kind == EXL2__TEMPLATE_KIND_UNDEFINED) {
        return exl2__template_fail_undefined(r, a->kind == EXL2__TEMPLATE_KIND_UNDEFINED ? a : b);
    }
    if (a->kind == b->kind && (a->kind == EXL2__TEMPLATE_KIND_LIST || a->kind == EXL2__TEMPLATE_KIND_TUPLE)) {
        return exl2__template_order_lists(r, a, b, sign, out);
    }
    if (a->kind == b->kind && a->kind == EXL2__TEMPLATE_KIND_VIEW) {
        return exl2__template_unsupported(r, "comparing the order of views");
    }
    return exl2__template_fail(r, EXL2_ERR_FORMAT, "'%s' not supported between instances of '%s' and '%s'", sign,
                               exl2__template_type(a), exl2__template_type(b));
}

/* ---- iterables ---- */

/* The elements of an iterable as a list: the characters of a text, the keys of a dict, the elements of a sequence. */
EXL2__PRIVATE exl2_result exl2__template_sequence(exl2__template_run *r, const exl2__template_value *v,
                                                  exl2__template_value *out)
{
    if (exl2__template_is_sequence(v)) {
        *out = *v;
        return EXL2_OK;
    }
    if (v->kind == EXL2__TEMPLATE_KIND_TEXT) {
        return exl2__template_characters(r, v, out);
    }
    if (v->kind == EXL2__TEMPLATE_KIND_UNDEFINED || v->kind == EXL2__TEMPLATE_KIND_DICT) {
        uint32_t count = v->kind == EXL2__TEMPLATE_KIND_DICT ? v->count : 0;
        exl2__template_value *keys = NULL;
        EXL2__TRY(exl2__template_alloc_values(r, count, &keys));
        for (uint32_t i = 0; i < count; i++) {
            keys[i] = v->as.entries[i].key;
        }
        *out = exl2__template_items(EXL2__TEMPLATE_KIND_LIST, keys, count);
        out->marked = v->marked;
        return EXL2_OK;
    }
    if (v->kind == EXL2__TEMPLATE_KIND_LOOP) {
        return exl2__template_unsupported(r, "iterating over a loop object");
    }
    if (v->kind == EXL2__TEMPLATE_KIND_GENERATOR) { /* consumes the remaining elements */
        exl2__template_loop *rest = v->as.loop;
        *out = exl2__template_items(EXL2__TEMPLATE_KIND_LIST, rest->items + rest->at, rest->count - rest->at);
        out->marked = v->marked;
        rest->at = rest->count;
        return EXL2_OK;
    }
    return exl2__template_fail(r, EXL2_ERR_FORMAT, "'%s' object is not iterable", exl2__template_type(v));
}

/* part in whole */
EXL2__PRIVATE exl2_result exl2__template_contains(exl2__template_run *r, const exl2__template_value *part,
                                                  const exl2__template_value *whole, bool *out)
{
    *out = false;
    if (whole->kind == EXL2__TEMPLATE_KIND_TEXT) {
        if (part->kind != EXL2__TEMPLATE_KIND_TEXT) {
            return exl2__template_fail(r, EXL2_ERR_FORMAT, "'in <string>' requires string as left operand, not %s",
                                       exl2__template_type(part));
        }
        size_t at = 0;
        if (part->count) {
            EXL2__TRY(exl2__template_find(r, whole, part, 0, &at));
        }
        *out = at <= whole->count;
        return EXL2_OK;
    }
    if (whole->kind == EXL2__TEMPLATE_KIND_DICT) {
        const exl2__template_entry *entry;
        EXL2__TRY(exl2__template_check_key(r, part, 0));
        EXL2__TRY(exl2__template_entry_find(r, whole->as.entries, whole->count, part, &entry));
        *out = entry != NULL;
        return EXL2_OK;
    }
    exl2__template_value items;
    if (!exl2__template_is_sequence(whole) && whole->kind != EXL2__TEMPLATE_KIND_UNDEFINED &&
        whole->kind != EXL2__TEMPLATE_KIND_GENERATOR) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "argument of type '%s' is not iterable",
                                   exl2__template_type(whole));
    }
    EXL2__TRY(exl2__template_sequence(r, whole, &items));
    bool keys = whole->kind == EXL2__TEMPLATE_KIND_VIEW && whole->why == EXL2__TEMPLATE_VIEW_KEYS;
    EXL2__TRY(keys ? exl2__template_check_key(r, part, 0) : EXL2_OK);
    for (uint32_t i = 0; !*out && i < items.count; i++) {
        EXL2__TRY(exl2__template_equal(r, &items.as.items[i], part, 0, out));
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_comparison(exl2__template_run *r, exl2__template_compare compare,
                                                    const exl2__template_value *a, const exl2__template_value *b,
                                                    bool *out)
{
    static const char signs[][3] = { "==", "!=", "<", "<=", ">", ">=" };
    int order = 0;
    switch (compare) {
    case EXL2__TEMPLATE_EQ:
    case EXL2__TEMPLATE_NE:
        EXL2__TRY(exl2__template_equal(r, a, b, 0, out));
        *out = *out == (compare == EXL2__TEMPLATE_EQ);
        return EXL2_OK;
    case EXL2__TEMPLATE_IN:
    case EXL2__TEMPLATE_NOT_IN:
        EXL2__TRY(exl2__template_contains(r, a, b, out));
        *out = *out == (compare == EXL2__TEMPLATE_IN);
        return EXL2_OK;
    default:
        EXL2__TRY(exl2__template_order(r, a, b, signs[compare], &order));
        *out = compare == EXL2__TEMPLATE_LT   ? order < 0
               : compare == EXL2__TEMPLATE_LE ? order <= 0
               : compare == EXL2__TEMPLATE_GT ? order > 0
                                              : order >= 0;
        return EXL2_OK;
    }
}

/* ---- arithmetic ---- */

EXL2__PRIVATE exl2_result exl2__template_real_result(exl2__template_run *r, double real, exl2__template_value *out)
{
    uint64_t bits;
    memcpy(&bits, &real, sizeof bits);
    if ((bits >> 52 & 0x7FF) == 0x7FF) {
        return exl2__template_unsupported(r, "a number beyond the range of double");
    }
    *out = exl2__template_real(real);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_int_result(exl2__template_run *r, bool fits, int64_t integer,
                                                    exl2__template_value *out)
{
    if (!fits) {
        return exl2__template_unsupported(r, "an integer beyond 64 bits");
    }
    *out = exl2__template_int(integer);
    return EXL2_OK;
}

EXL2__PRIVATE bool exl2__template_multiply(int64_t a, int64_t b, int64_t *out)
{
    uint64_t size_a = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, size_b = b < 0 ? 0 - (uint64_t)b : (uint64_t)b, size;
    if (!exl2__mul64(size_a, size_b, &size) || size > INT64_MAX) {
        return false;
    }
    *out = (a < 0) != (b < 0) ? -(int64_t)size : (int64_t)size;
    return true;
}

EXL2__PRIVATE exl2_result exl2__template_integers(exl2__template_run *r, exl2__template_op op, int64_t a, int64_t b,
                                                  exl2__template_value *out)
{
    int64_t result = 0;
    bool fits = true;
    switch (op) {
    case EXL2__TEMPLATE_ADD:
        fits = b >= 0 ? a <= INT64_MAX - b : a >= INT64_MIN - b;
        result = fits ? a + b : 0;
        break;
    case EXL2__TEMPLATE_SUBTRACT:
        fits = b >= 0 ? a >= INT64_MIN + b : a <= INT64_MAX + b;
        result = fits ? a - b : 0;
        break;
    case EXL2__TEMPLATE_MULTIPLY:
        fits = exl2__template_multiply(a, b, &result);
        break;
    case EXL2__TEMPLATE_POWER:
        result = 1;
        if (b > 64 && (a > 1 || a < -1)) {
            fits = false;
        } else if (b > 64) { /* 0, 1 and -1 */
            result = a == 0 ? 0 : a == 1 || b % 2 == 0 ? 1 : -1;
        }
        for (int64_t i = 0; fits && b <= 64 && i < b; i++) {
            fits = exl2__template_multiply(result, a, &result);
        }
        break;
    default: /* // and %: rounded towards minus infinity; the remainder has the sign of the divisor */
        if (b == 0) {
            return exl2__template_fail(r, EXL2_ERR_FORMAT,
                                       op == EXL2__TEMPLATE_MODULO ? "integer modulo by zero"
                                                                   : "integer division or modulo by zero");
        }
        fits = b != -1 || a != INT64_MIN;
        if (fits) {
            int64_t quotient = a / b, rest = a % b;
            bool lower = rest != 0 && (rest < 0) != (b < 0);
            result = op == EXL2__TEMPLATE_MODULO ? (lower ? rest + b : rest) : quotient - lower;
        }
        break;
    }
    return exl2__template_int_result(r, fits, result, out);
}

EXL2__PRIVATE exl2_result exl2__template_reals(exl2__template_run *r, exl2__template_op op, double a, double b,
                                               exl2__template_value *out)
{
    if (b == 0 && (op == EXL2__TEMPLATE_DIVIDE || op == EXL2__TEMPLATE_FLOOR_DIVIDE || op == EXL2__TEMPLATE_MODULO)) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT,
                                   op == EXL2__TEMPLATE_DIVIDE ? "division by zero" : "float modulo");
    }
    if (op == EXL2__TEMPLATE_FLOOR_DIVIDE || op == EXL2__TEMPLATE_MODULO) { /* as CPython's float_divmod */
        EXL2__TRY(exl2__template_step(r, 64)); /* fmod may loop over each bit of the exponents' difference */
        double rest = fmod(a, b), quotient = (a - rest) / b;
        if (rest != 0) {
            bool lower = (rest < 0) != (b < 0);
            rest = lower ? rest + b : rest;
            quotient = lower ? quotient - 1 : quotient;
        } else {
            rest = copysign(0, b);
        }
        double whole = floor(quotient);
        whole = quotient - whole > 0.5 ? whole + 1 : whole;
        whole = quotient != 0 ? whole : copysign(0, a / b);
        return exl2__template_real_result(r, op == EXL2__TEMPLATE_MODULO ? rest : whole, out);
    }
    if (op == EXL2__TEMPLATE_POWER && ((a < 0 && floor(b) != b) || (a == 0 && b < 0))) {
        return exl2__template_unsupported(r, "a power whose result is not a real number");
    }
    return exl2__template_real_result(r, op == EXL2__TEMPLATE_ADD        ? a + b
                                         : op == EXL2__TEMPLATE_SUBTRACT ? a - b
                                         : op == EXL2__TEMPLATE_MULTIPLY ? a * b
                                         : op == EXL2__TEMPLATE_DIVIDE   ? a / b
                                                                         : pow(a, b),
                                      out);
}

/* [1] + [2], (1,) + (2,) */
EXL2__PRIVATE exl2_result exl2__template_join_lists(exl2__template_run *r, const exl2__template_value *a,
                                                    const exl2__template_value *b, exl2__template_value *out)
{
    exl2__template_value *items = NULL;
    EXL2__TRY(exl2__template_alloc_values(r, (uint64_t)a->count + b->count, &items));
    if (a->count) {
        memcpy(items, a->as.items, a->count * sizeof *items);
    }
    if (b->count) {
        memcpy(items + a->count, b->as.items, b->count * sizeof *items);
    }
    *out = exl2__template_items((exl2__template_kind)a->kind, items, a->count + b->count);
    out->marked = a->marked || b->marked;
    return EXL2_OK;
}

/* 'ab' * 3, [1] * 3 */
EXL2__PRIVATE exl2_result exl2__template_repeat(exl2__template_run *r, const exl2__template_value *v, int64_t times,
                                                exl2__template_value *out)
{
    uint64_t count = 0;
    size_t start = r->used;
    if (times > 0 && !exl2__mul64(v->count, (uint64_t)times, &count)) {
        count = UINT64_MAX / 64;
    }
    if (v->kind == EXL2__TEMPLATE_KIND_TEXT) {
        exl2__template_value unused;
        char *text = NULL;
        EXL2__TRY(exl2__template_alloc_text(r, count, &unused, &text));
        for (uint64_t at = 0, bytes = v->count; at < count; at += bytes) { /* each copy doubles the written part */
            bytes = at ? exl2__min64(at, count - at) : bytes;
            exl2__template_copy(r, text + at, at ? text : v->as.text, (size_t)bytes);
        }
        *out = exl2__template_written(r, start);
        out->why = v->why;
        return EXL2_OK;
    }
    exl2__template_value *items = NULL;
    EXL2__TRY(exl2__template_alloc_values(r, count, &items));
    for (uint64_t i = 0; i < count; i++) {
        items[i] = v->as.items[i % v->count];
    }
    *out = exl2__template_items((exl2__template_kind)v->kind, items, (uint32_t)count);
    out->marked = v->marked;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_arithmetic_fail(exl2__template_run *r, exl2__template_op op,
                                                         const exl2__template_value *a, const exl2__template_value *b)
{
    static const char *const signs[] = {
        "+", "-", "*", "/", "//", "%", "** or pow()"
    }; /* in the order of the operations */
    const char *sign = signs[op - EXL2__TEMPLATE_ADD];
    if (op == EXL2__TEMPLATE_MODULO && a->kind == EXL2__TEMPLATE_KIND_TEXT) {
        return exl2__template_unsupported(r, "formatting with %");
    }
    if (a->kind == EXL2__TEMPLATE_KIND_UNDEFINED || b->kind == EXL2__TEMPLATE_KIND_UNDEFINED) {
        return exl2__template_fail_undefined(r, a->kind == EXL2__TEMPLATE_KIND_UNDEFINED ? a : b);
    }
    bool big = a->kind == EXL2__TEMPLATE_KIND_BIG || b->kind == EXL2__TEMPLATE_KIND_BIG;
    if (big && exl2__template_is_numeric(a) && exl2__template_is_numeric(b)) {
        return exl2__template_unsupported(r, "arithmetic with an integer beyond 64 bits");
    }
    bool appends =
        op == EXL2__TEMPLATE_ADD && (a->kind == EXL2__TEMPLATE_KIND_TEXT || a->kind == EXL2__TEMPLATE_KIND_LIST ||
                                     a->kind == EXL2__TEMPLATE_KIND_TUPLE);
    if (appends) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "can only concatenate %s (not \"%s\") to %s",
                                   exl2__template_type(a), exl2__template_type(b), exl2__template_type(a));
    }
    return exl2__template_fail(r, EXL2_ERR_FORMAT, "unsupported operand type(s) for %s: '%s' and '%s'", sign,
                               exl2__template_type(a), exl2__template_type(b));
}

/* a op b for the operations ADD .. POWER */
EXL2__PRIVATE exl2_result exl2__template_arithmetic(exl2__template_run *r, exl2__template_op op,
                                                    const exl2__template_value *a, const exl2__template_value *b,
                                                    exl2__template_value *out)
{
    bool integers = exl2__template_is_integer(a) && exl2__template_is_integer(b);
    if (integers && op != EXL2__TEMPLATE_DIVIDE && !(op == EXL2__TEMPLATE_POWER && b->as.integer < 0)) {
        EXL2__TRY(exl2__template_integers(r, op, a->as.integer, b->as.integer, out));
        out->marked = a->marked || b->marked;
        return EXL2_OK;
    }
    if (exl2__template_is_number(a) && exl2__template_is_number(b)) {
        EXL2__TRY(exl2__template_reals(r, op, exl2__template_as_real(a), exl2__template_as_real(b), out));
        out->marked = a->marked || b->marked;
        return EXL2_OK;
    }
    bool list = a->kind == EXL2__TEMPLATE_KIND_LIST || a->kind == EXL2__TEMPLATE_KIND_TUPLE;
    if (op == EXL2__TEMPLATE_ADD && a->kind == b->kind && a->kind == EXL2__TEMPLATE_KIND_TEXT) {
        return exl2__template_append(r, a, b, out);
    }
    if (op == EXL2__TEMPLATE_ADD && a->kind == b->kind && list) {
        return exl2__template_join_lists(r, a, b, out);
    }
    if (op == EXL2__TEMPLATE_MULTIPLY && exl2__template_is_integer(a)) {
        const exl2__template_value *swap = a;
        a = b;
        b = swap;
        list = a->kind == EXL2__TEMPLATE_KIND_LIST || a->kind == EXL2__TEMPLATE_KIND_TUPLE;
    }
    if (op == EXL2__TEMPLATE_MULTIPLY && exl2__template_is_integer(b) &&
        (list || a->kind == EXL2__TEMPLATE_KIND_TEXT)) {
        return exl2__template_repeat(r, a, b->as.integer, out);
    }
    return exl2__template_arithmetic_fail(r, op, a, b);
}

/* -v for a BIG and for the smallest INT */
EXL2__PRIVATE exl2_result exl2__template_negate_big(exl2__template_run *r, const exl2__template_value *v,
                                                    exl2__template_value *out)
{
    static const char least[] = "9223372036854775808"; /* 2^63 */
    if (v->kind == EXL2__TEMPLATE_KIND_INT) {
        *out = exl2__template_big(least, sizeof least - 1);
        return EXL2_OK;
    }
    if (exl2__template_same(v->as.text, v->count, least)) {
        *out = exl2__template_int(INT64_MIN);
        return EXL2_OK;
    }
    if (v->as.text[0] == '-') {
        *out = exl2__template_big(v->as.text + 1, v->count - 1);
        return EXL2_OK;
    }
    size_t start = r->used;
    EXL2__TRY(exl2__template_put(r, "-", 1, v->marked));
    EXL2__TRY(exl2__template_put_copy(r, v->as.text, v->count));
    *out = exl2__template_big((const char *)r->block + start, r->used - start);
    return EXL2_OK;
}

/* -v and +v */
EXL2__PRIVATE exl2_result exl2__template_sign(exl2__template_run *r, bool minus, const exl2__template_value *v,
                                              exl2__template_value *out)
{
    bool marked = v->marked;
    if (v->kind == EXL2__TEMPLATE_KIND_UNDEFINED) {
        return exl2__template_fail_undefined(r, v);
    }
    bool least = v->kind == EXL2__TEMPLATE_KIND_INT && v->as.integer == INT64_MIN;
    if (minus && (least || v->kind == EXL2__TEMPLATE_KIND_BIG)) {
        EXL2__TRY(exl2__template_negate_big(r, v, out));
        out->marked = marked;
        return EXL2_OK;
    }
    if (v->kind == EXL2__TEMPLATE_KIND_BIG) {
        *out = *v;
        return EXL2_OK;
    }
    if (!exl2__template_is_number(v)) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "bad operand type for unary %c: '%s'", minus ? '-' : '+',
                                   exl2__template_type(v));
    }
    if (v->kind == EXL2__TEMPLATE_KIND_REAL) {
        *out = exl2__template_real(minus ? -v->as.real : v->as.real);
    } else {
        *out = exl2__template_int(minus ? -v->as.integer : v->as.integer);
    }
    out->marked = marked;
    return EXL2_OK;
}

#endif

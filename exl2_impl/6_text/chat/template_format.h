/* template_format.h: formats numbers and texts: % and the filter `format`, round, int, float, indent, truncate,
   padding.
   takes: exl2__template_run and values.
   gives: exl2__template_format, round, number, indent, truncate, pad. */
#ifndef EXL2__TEMPLATE_FORMAT_H
#define EXL2__TEMPLATE_FORMAT_H

#include "template_case.h"

/* ---- numbers ---- */

/* *out = |value| * 10^places, rounded to the nearest integer, ties to even. false: it has more than 18 digits. */
EXL2__PRIVATE bool exl2__template_fixed(double value, int32_t places, uint64_t *out)
{
    uint64_t bits, unit = 1;
    memcpy(&bits, &value, sizeof bits);
    bits &= UINT64_MAX >> 1;
    *out = 0;
    if (bits == 0) {
        return true;
    }
    int power = (int)(bits >> 52);
    uint64_t mantissa = (bits & 0xFFFFFFFFFFFFFu) | (power ? (uint64_t)1 << 52 : 0);
    exl2__template_decimal d = exl2__template_number_decimal(mantissa, (power ? power : 1) - 1075);
    int drop = -d.exponent - places;
    for (int i = drop < 0 ? drop : -drop; i < 0 && i >= -19; i++) {
        unit *= 10;
    }
    if (drop <= 0) {
        return !d.more && drop > -19 && exl2__mul64(d.digits, unit, out) && *out < 1000000000000000000u;
    }
    if (drop <= 19) {
        uint64_t rest = d.digits % unit, half = unit / 2;
        *out = d.digits / unit;
        *out += rest > half || (rest == half && (d.more || (*out & 1)));
    }
    return true;
}

/* Writes [-]123.450 with `places` digits after the point and returns the bytes; 0: there are too many digits. */
EXL2__PRIVATE size_t exl2__template_print_fixed(double value, uint32_t places, char out[48])
{
    uint64_t whole, unit = 1, bits;
    memcpy(&bits, &value, sizeof bits);
    if (places > 17 || !exl2__template_fixed(value, (int32_t)places, &whole)) {
        return 0;
    }
    for (uint32_t i = 0; i < places; i++) {
        unit *= 10;
    }
    size_t used = exl2__format(out, 48, "%s%llu", bits >> 63 ? "-" : "", (unsigned long long)(whole / unit));
    for (uint32_t i = 0; i < places; i++) {
        out[used] = '.';
        used += i == 0;
        unit /= 10;
        out[used++] = (char)('0' + whole / unit % 10);
    }
    out[used] = 0;
    return used;
}

/* An integer rounded to a multiple of 10^zeros, ties to even. */
EXL2__PRIVATE exl2_result exl2__template_round_integer(exl2__template_run *r, int64_t value, int64_t zeros,
                                                       exl2__template_value *out)
{
    uint64_t unit = 1, size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    for (int64_t i = 0; i < zeros; i++) {
        unit *= 10;
    }
    uint64_t whole = size / unit, rest = size % unit;
    whole += rest > unit / 2 || (rest == unit / 2 && unit > 1 && (whole & 1));
    whole *= unit;
    bool fits = whole <= INT64_MAX;
    return exl2__template_int_result(r, fits, !fits ? 0 : value < 0 ? -(int64_t)whole : (int64_t)whole, out);
}

EXL2__PRIVATE exl2_result exl2__template_round(exl2__template_run *r, const exl2__template_value *v,
                                               const exl2__template_value *precision,
                                               const exl2__template_value *method, exl2__template_value *out)
{
    char text[48];
    int64_t places = precision ? precision->as.integer : 0;
    bool common = !method || (method->kind == EXL2__TEMPLATE_KIND_TEXT &&
                              exl2__template_same(method->as.text, method->count, "common"));
    bool up = method && method->kind == EXL2__TEMPLATE_KIND_TEXT &&
              exl2__template_same(method->as.text, method->count, "ceil");
    bool whole = !precision || (exl2__template_is_integer(precision) && places >= 0);
    if (v->kind == EXL2__TEMPLATE_KIND_BIG && common && whole) {
        *out = *v;
        return EXL2_OK;
    }
    if (!exl2__template_is_number(v)) {
        return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "round of a value of type %s is not supported",
                                   exl2__template_type(v));
    }
    if ((precision && !exl2__template_is_integer(precision)) || places < -18 || places > 17) {
        return exl2__template_unsupported(r, "round to a number of places that is not an integer from -18 to 17");
    }
    *out = *v;
    EXL2__TRY(exl2__template_step(r, 32 + exl2__template_real_size(exl2__template_as_real(v)) / 4));
    if (common && v->kind != EXL2__TEMPLATE_KIND_REAL) {
        EXL2__TRY(exl2__template_round_integer(r, v->as.integer, places < 0 ? -places : 0, out));
        out->marked = v->marked;
        return EXL2_OK;
    }
    double value = exl2__template_as_real(v), unit = places < 0 ? pow(10, (double)places) : 1;
    if (common && places < 0) {
        exl2__json_number number = { 0, -places, copysign(1, value) < 0, false };
        if (!exl2__template_fixed(value, (int32_t)places, &number.digits) || !exl2__json_number_f64(&number, &value)) {
            return exl2__template_unsupported(r, "round to a result of more than 18 digits");
        }
    } else if (!common) {
        for (int64_t i = 0; i < places; i++) {
            unit *= 10;
        }
        value = (up ? ceil(value * unit) : floor(value * unit)) / unit;
    } else {
        size_t bytes = exl2__template_print_fixed(value, (uint32_t)places, text);
        exl2__json_number number = exl2__json_number_read(text, bytes);
        if (bytes == 0 || !exl2__json_number_f64(&number, &value)) {
            bool large = !(value > -1e15 && value < 1e15); /* has no digits to round */
            return large ? EXL2_OK : exl2__template_unsupported(r, "round to a result of more than 18 digits");
        }
    }
    *out = exl2__template_real(value);
    out->marked = v->marked;
    return EXL2_OK;
}

/* The parts of a number in a text: [sign] digits [. digits] [e [sign] digits]. */
typedef struct exl2__template_numeral {
    uint32_t digits; /* before e */
    bool point, exponent;
} exl2__template_numeral;

EXL2__PRIVATE size_t exl2__template_numeral_digits(const char *text, size_t bytes, size_t at)
{
    size_t begin = at;
    while (at < bytes && text[at] >= '0' && text[at] <= '9') {
        at++;
    }
    return at - begin;
}

/* false: the text is no number. */
EXL2__PRIVATE bool exl2__template_numeral_read(const char *text, size_t bytes, exl2__template_numeral *out)
{
    size_t at = bytes && (text[0] == '-' || text[0] == '+');
    size_t whole = exl2__template_numeral_digits(text, bytes, at), fraction = 0;
    at += whole;
    out->point = at < bytes && text[at] == '.';
    if (out->point) {
        fraction = exl2__template_numeral_digits(text, bytes, ++at);
        at += fraction;
    }
    out->digits = (uint32_t)(whole + fraction);
    out->exponent = at < bytes && (text[at] == 'e' || text[at] == 'E');
    if (out->exponent) {
        at++;
        at += at < bytes && (text[at] == '-' || text[at] == '+');
        size_t power = exl2__template_numeral_digits(text, bytes, at);
        at = power ? at + power : bytes + 1; /* e without digits */
    }
    return at == bytes && out->digits > 0;
}

/* The text without the underscores that Python allows between two digits. *good false: one is elsewhere. */
EXL2__PRIVATE exl2_result exl2__template_plain_digits(exl2__template_run *r, const exl2__template_value *v,
                                                      uint32_t base, bool *good, exl2__template_value *out)
{
    size_t start = r->used;
    *good = true;
    *out = *v;
    if (!memchr(v->as.text, '_', v->count)) {
        return EXL2_OK;
    }
    for (uint32_t i = 0; i < v->count; i++) {
        const char *at = v->as.text + i;
        if (*at != '_') {
            EXL2__TRY(exl2__template_put_copy(r, at, 1));
            continue;
        }
        *good = *good && i > 0 && i + 1 < v->count && exl2__hex_digit((uint8_t)at[-1]) < base &&
                exl2__hex_digit((uint8_t)at[1]) < base;
    }
    *out = exl2__template_written(r, start);
    return EXL2_OK;
}

/* The integer with these decimal digits, perhaps after a sign. */
EXL2__PRIVATE exl2_result exl2__template_int_of_digits(exl2__template_run *r, const exl2__template_value *v,
                                                       exl2__template_value *out)
{
    uint32_t at = v->as.text[0] == '-' || v->as.text[0] == '+';
    bool minus = v->as.text[0] == '-', fits = true;
    uint64_t value = 0;
    while (at + 1 < v->count && v->as.text[at] == '0') {
        at++;
    }
    for (uint32_t i = at; i < v->count; i++) {
        fits = fits && exl2__mul64(value, 10, &value) && exl2__add64(value, (uint64_t)(v->as.text[i] - '0'), &value);
    }
    if (fits && value <= (uint64_t)INT64_MAX + minus) {
        *out = exl2__template_int(minus ? (int64_t)(0 - value) : (int64_t)value);
        return EXL2_OK;
    }
    if (v->count - at > EXL2__TEMPLATE_DIGITS_MAX) {
        return exl2__template_unsupported(r, "an integer of so many digits");
    }
    size_t start = r->used;
    EXL2__TRY(exl2__template_put(r, "-", minus, v->marked));
    EXL2__TRY(exl2__template_put_copy(r, v->as.text + at, v->count - at));
    *out = exl2__template_big((const char *)r->block + start, r->used - start);
    return EXL2_OK;
}

/* int(text, base) for a base other than 10. *good false: the text is no such number. */
EXL2__PRIVATE exl2_result exl2__template_int_of_base(exl2__template_run *r, const exl2__template_value *v, int64_t base,
                                                     bool *good, exl2__template_value *out)
{
    exl2__template_value text;
    uint64_t value = 0;
    uint32_t at = 0;
    EXL2__TRY(exl2__template_step(r, v->count));
    EXL2__TRY(exl2__template_strip(r, v, NULL, EXL2__TEMPLATE_FRONT | EXL2__TEMPLATE_BACK, &text));
    bool minus = text.count && text.as.text[0] == '-';
    at += text.count && (minus || text.as.text[0] == '+');
    char letter = at + 2 < text.count && text.as.text[at] == '0' ? (char)(text.as.text[at + 1] | 0x20) : 0;
    uint32_t named = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    bool prefix = named && (base == 0 || base == named);
    uint32_t used = (uint32_t)(base ? base : named ? named : 10);
    *good = (base == 0 || (base >= 2 && base <= 36)) && at < text.count;
    at += prefix ? 2 : 0;
    bool after_digit = prefix, zeros = base == 0 && !prefix && at < text.count && text.as.text[at] == '0';
    for (uint32_t i = at; *good && i < text.count; i++) {
        char c = text.as.text[i], low = (char)(c | 0x20);
        uint32_t letter_digit = low >= 'a' && low <= 'z' ? (uint32_t)(low - 'a') + 10 : 99;
        uint32_t digit = c >= '0' && c <= '9' ? (uint32_t)(c - '0') : letter_digit;
        if (c == '_' && after_digit && i + 1 < text.count) {
            after_digit = false;
            continue;
        }
        *good = digit < used && !(zeros && digit); /* base 0 reads no 012 */
        after_digit = true;
        if (*good && (!exl2__mul64(value, used, &value) || !exl2__add64(value, digit, &value) || value > INT64_MAX)) {
            return exl2__template_unsupported(r, "an integer beyond 64 bits in another base than 10");
        }
    }
    *out = exl2__template_int(minus ? -(int64_t)value : (int64_t)value);
    return EXL2_OK;
}

/* Fails if Python reads the text as a number, but this interpreter does not: digits beyond ASCII, infinity, nan. */
EXL2__PRIVATE exl2_result exl2__template_check_numeral(exl2__template_run *r, const exl2__template_value *v, bool real)
{
    static const char *const words[] = { "inf", "infinity", "nan" };
    size_t sign = v->count && (v->as.text[0] == '-' || v->as.text[0] == '+'), step;
    bool word = false, digit = false;
    for (size_t i = 0; real && i < EXL2__COUNT(words); i++) {
        size_t length = strlen(words[i]), same = 0;
        while (v->count - sign == length && same < length && (v->as.text[sign + same] | 0x20) == words[i][same]) {
            same++;
        }
        word = word || same == length;
    }
    EXL2__TRY(exl2__template_step(r, v->count));
    for (size_t at = 0; at < v->count; at += step) {
        uint32_t code = exl2__template_code_point(v->as.text + at, v->count - at, &step);
        digit = digit || (code >= 0x80 && exl2__unicode_class(code) == EXL2__UNICODE_DIGIT);
    }
    return word || digit ? exl2__template_unsupported(r, word ? "a float that is not finite" : "a digit beyond ASCII")
                         : EXL2_OK;
}

/* Converts a text to a double if `real` or if it has a point or an exponent, else to an integer. *good: it can be
   converted. */
EXL2__PRIVATE exl2_result exl2__template_number_of_text(exl2__template_run *r, const exl2__template_value *v, bool real,
                                                        bool *good, exl2__template_value *out)
{
    exl2__template_value stripped, text;
    exl2__template_numeral numeral = { 0, false, false };
    double value = 0;
    EXL2__TRY(exl2__template_step(r, 8 + v->count));
    EXL2__TRY(exl2__template_strip(r, v, NULL, EXL2__TEMPLATE_FRONT | EXL2__TEMPLATE_BACK, &stripped));
    EXL2__TRY(exl2__template_plain_digits(r, &stripped, 10, good, &text));
    *good = *good && exl2__template_numeral_read(text.as.text, text.count, &numeral);
    if (!*good) {
        return exl2__template_check_numeral(r, &stripped, real);
    }
    if (!real && !numeral.point && !numeral.exponent) {
        return exl2__template_int_of_digits(r, &text, out);
    }
    size_t plus = text.as.text[0] == '+'; /* exl2__json_number_read reads no plus */
    exl2__json_number number = exl2__json_number_read(text.as.text + plus, text.count - plus);
    uint64_t power = number.exponent < 0 ? 0 - (uint64_t)number.exponent : (uint64_t)number.exponent;
    EXL2__TRY(exl2__template_step(r, 16 + (size_t)exl2__min64(power, 400)));
    if (!exl2__json_number_f64_all(&number, &value)) {
        *good = false;
        return real ? exl2__template_unsupported(r, "a float beyond the range of double") : EXL2_OK;
    }
    *out = exl2__template_real(value);
    return EXL2_OK;
}

/* int(v), or float(v) if `real`; the fallback (NULL: 0) if v cannot be converted. base: of a text; NULL: 10. */
EXL2__PRIVATE exl2_result exl2__template_number(exl2__template_run *r, const exl2__template_value *v, bool real,
                                                const exl2__template_value *fallback, const exl2__template_value *base,
                                                exl2__template_value *out)
{
    bool good = exl2__template_is_number(v);
    bool based = base && !(exl2__template_is_integer(base) && base->as.integer == 10);
    exl2__template_value number = *v;
    if (v->kind == EXL2__TEMPLATE_KIND_BIG) {
        double value = 0;
        if (real && !exl2__template_to_real(v, &value)) {
            return exl2__template_unsupported(r, "this integer as a float");
        }
        *out = real ? exl2__template_real(value) : *v;
        out->marked = v->marked;
        return EXL2_OK;
    }
    if (v->kind == EXL2__TEMPLATE_KIND_TEXT && based && exl2__template_is_integer(base)) {
        EXL2__TRY(exl2__template_int_of_base(r, v, base->as.integer, &good, &number));
    }
    if (v->kind == EXL2__TEMPLATE_KIND_TEXT && !good) { /* as Jinja: int(float(text)) if it is no integer of the base */
        EXL2__TRY(exl2__template_number_of_text(r, v, real || based, &good, &number));
    }
    if (v->kind == EXL2__TEMPLATE_KIND_UNDEFINED) {
        return exl2__template_fail_undefined(r, v);
    }
    if (!good) {
        *out = fallback ? *fallback : real ? exl2__template_real(0) : exl2__template_int(0);
        return EXL2_OK;
    }
    if (real) {
        *out = exl2__template_real(exl2__template_as_real(&number));
    } else if (number.kind == EXL2__TEMPLATE_KIND_REAL) {
        if (!(number.as.real > -9e18 && number.as.real < 9e18)) {
            return exl2__template_unsupported(r, "an integer beyond 64 bits");
        }
        *out = exl2__template_int((int64_t)number.as.real);
    } else if (number.kind == EXL2__TEMPLATE_KIND_BIG) {
        *out = number;
    } else {
        *out = exl2__template_int(number.as.integer);
    }
    out->marked = v->marked;
    return EXL2_OK;
}

/* ---- padding ---- */

EXL2__PRIVATE exl2_result exl2__template_put_times(exl2__template_run *r, const exl2__template_value *fill,
                                                   uint64_t times)
{
    for (uint64_t i = 0; i < times; i++) {
        EXL2__TRY(exl2__template_step(r, 1));
        EXL2__TRY(exl2__template_put_copy(r, fill->as.text, fill->count));
    }
    return EXL2_OK;
}

/* Pads to `width` code points; `side` says where the text is placed: 'l' left, 'r' right, 'c' center. */
EXL2__PRIVATE exl2_result exl2__template_pad(exl2__template_run *r, const exl2__template_value *v, int64_t width,
                                             char side, const exl2__template_value *fill, exl2__template_value *out)
{
    uint32_t count;
    EXL2__TRY(exl2__template_text_length(r, v, &count));
    uint64_t room = width > (int64_t)count ? (uint64_t)width - count : 0;
    uint64_t left = side == 'l' ? 0 : side == 'r' ? room : room / 2 + (room & (uint64_t)width & 1);
    size_t start = r->used;
    EXL2__TRY(exl2__template_put_times(r, fill, left));
    EXL2__TRY(exl2__template_put_copy(r, v->as.text, v->count));
    EXL2__TRY(exl2__template_put_times(r, fill, room - left));
    *out = exl2__template_written(r, start);
    return EXL2_OK;
}

/* ---- % ---- */

/* One conversion without its '%': flags, width, digits after the point, letter. */
typedef struct exl2__template_conversion {
    bool left, zero, plus, space, has_places;
    uint32_t width, places;
    char letter;
} exl2__template_conversion;

EXL2__PRIVATE size_t exl2__template_conversion_read(const char *text, size_t bytes, exl2__template_conversion *out)
{
    size_t at = 0;
    exl2__template_conversion c = { 0 };
    for (; at < bytes && strchr("-0+ ", text[at]) && text[at]; at++) {
        c.left = c.left || text[at] == '-';
        c.zero = c.zero || text[at] == '0';
        c.plus = c.plus || text[at] == '+';
        c.space = c.space || text[at] == ' ';
    }
    for (uint32_t *number = &c.width; at < bytes; at++) {
        if (text[at] == '.' && !c.has_places) {
            c.has_places = true;
            number = &c.places;
        } else if (text[at] >= '0' && text[at] <= '9' && *number < 10000) {
            *number = *number * 10 + (uint32_t)(text[at] - '0');
        } else {
            break;
        }
    }
    c.letter = at < bytes ? text[at] : 0;
    *out = c;
    return at + 1;
}

/* Writes a number's digits in base 16 ('x', 'X'), 8 ('o') or 2 ('b'), with a minus; returns the bytes, at most 65. */
EXL2__PRIVATE size_t exl2__template_print_base(int64_t value, char letter, char out[72])
{
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    uint32_t bits = letter == 'o' ? 3 : letter == 'b' ? 1 : 4, top = 63 / bits * bits;
    size_t used = 0;
    if (value < 0) {
        out[used++] = '-';
    }
    while (top > 0 && size >> top == 0) {
        top -= bits;
    }
    for (uint32_t at = top + bits; at > 0; at -= bits) {
        uint32_t digit = (uint32_t)(size >> (at - bits)) & ((1u << bits) - 1);
        out[used++] = (letter == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[digit];
    }
    return used;
}

/* The text of a conversion that is no number's: %s, %r, %c. */
EXL2__PRIVATE exl2_result exl2__template_convert_text(exl2__template_run *r, const exl2__template_conversion *c,
                                                      const exl2__template_value *v, bool safe,
                                                      exl2__template_value *text)
{
    size_t start = r->used;
    if (c->letter == 's') {
        EXL2__TRY(exl2__template_string(r, v, text));
    } else if (c->letter == 'r') {
        EXL2__TRY(exl2__template_put_repr(r, v, 0));
        *text = exl2__template_written(r, start);
    } else {
        char utf8[4];
        uint32_t count = 0;
        bool code = exl2__template_is_integer(v) && v->as.integer >= 0 && v->as.integer <= 0x10FFFF &&
                    (v->as.integer < 0xD800 || v->as.integer > 0xDFFF);
        if (v->kind == EXL2__TEMPLATE_KIND_TEXT) {
            EXL2__TRY(exl2__template_text_length(r, v, &count));
        }
        if (!code && count != 1) {
            return exl2__template_fail(r, EXL2_ERR_FORMAT, "%%c requires int or char");
        }
        *text = *v;
        if (code) {
            EXL2__TRY(exl2__template_put(r, utf8, exl2__json_encode_utf8((uint32_t)v->as.integer, utf8), v->marked));
            *text = exl2__template_written(r, start);
        }
    }
    exl2__template_value plain = *text;
    return safe && c->letter != 'c' ? exl2__template_escape(r, &plain, text) : EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_convert(exl2__template_run *r, const exl2__template_conversion *c,
                                                 const exl2__template_value *v, bool safe)
{
    char number[72];
    exl2__template_value text, fill = exl2__template_text(" ", 1);
    size_t before = r->used, bytes;
    if (strchr("src", c->letter) || (v->kind == EXL2__TEMPLATE_KIND_BIG && strchr("di", c->letter))) {
        exl2__template_conversion as_text = *c;
        as_text.letter = v->kind == EXL2__TEMPLATE_KIND_BIG && c->letter != 'r' ? 's' : c->letter;
        if (as_text.letter != c->letter && (c->zero || c->plus || c->space || c->has_places)) {
            return exl2__template_unsupported(r, "formatting an integer beyond 64 bits with a sign or zeros");
        }
        EXL2__TRY(exl2__template_convert_text(r, &as_text, v, safe, &text));
        if (c->has_places && c->letter != 'c') {
            exl2__template_value stop = exl2__template_int(c->places);
            EXL2__TRY(exl2__template_slice(r, &text, NULL, &stop, NULL, &text));
        }
    } else {
        if (v->kind == EXL2__TEMPLATE_KIND_BIG) {
            return exl2__template_unsupported(r, "formatting an integer beyond 64 bits this way");
        }
        if (!exl2__template_is_number(v)) {
            return exl2__template_fail(r, EXL2_ERR_FORMAT, "%%%c format: a number is required, not %s", c->letter,
                                       exl2__template_type(v));
        }
        bool based = strchr("xXo", c->letter) != NULL;
        if (based && !exl2__template_is_integer(v)) {
            return exl2__template_fail(r, EXL2_ERR_FORMAT, "%%%c format: an integer is required, not %s", c->letter,
                                       exl2__template_type(v));
        }
        exl2__template_value whole;
        EXL2__TRY(exl2__template_step(r, 32 + exl2__template_real_size(exl2__template_as_real(v)) / 4));
        EXL2__TRY(exl2__template_number(r, v, false, NULL, NULL, &whole));
        bytes = c->letter == 'f'
                    ? exl2__template_print_fixed(exl2__template_as_real(v), c->has_places ? c->places : 6, number)
                : based ? exl2__template_print_base(whole.as.integer, c->letter, number)
                    : exl2__format(number, sizeof number, "%lld", (long long)whole.as.integer);
        if (bytes == 0 || (c->letter != 'f' && c->has_places)) {
            return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED,
                                       "this precision of the conversion %%%c is not supported", c->letter);
        }
        const char *sign = number[0] == '-' ? "-" : c->plus ? "+" : c->space ? " " : "";
        size_t skip = number[0] == '-';
        if (c->zero && !c->left) {
            size_t size = bytes - skip + strlen(sign);
            EXL2__TRY(exl2__template_put(r, sign, strlen(sign), v->marked));
            fill = exl2__template_text("0", 1);
            EXL2__TRY(exl2__template_put_times(r, &fill, c->width > size ? c->width - size : 0));
            return exl2__template_put(r, number + skip, bytes - skip, v->marked);
        }
        EXL2__TRY(exl2__template_put(r, sign, strlen(sign), v->marked));
        EXL2__TRY(exl2__template_put(r, number + skip, bytes - skip, v->marked));
        text = exl2__template_written(r, before);
    }
    /* The unpadded text occupies the place of the result: the padded text is written after it, then moved there. */
    size_t made = r->used;
    EXL2__TRY(exl2__template_pad(r, &text, c->width, c->left ? 'l' : 'r', &fill, &text));
    memmove(r->block + before, r->block + made, text.count);
    for (size_t i = 0; i < text.count; i++) {
        exl2__template_mark(r, (const char *)r->block + before + i, 1, exl2__template_marked(r, text.as.text + i));
    }
    r->used = before + text.count;
    return EXL2_OK;
}

/* text % (a, b): %s %r %c %d %i %f %x %X %o %%, with flags, width and digits after the point. A safe text escapes what
   it inserts. As in Python it is no error if arguments
   stay unused when the first one is a list, a dict or undefined. */
EXL2__PRIVATE exl2_result exl2__template_format(exl2__template_run *r, const exl2__template_value *v,
                                                const exl2__template_value *args, uint32_t count,
                                                exl2__template_value *out)
{
    size_t start = r->used;
    uint32_t used = 0;
    EXL2__TRY(exl2__template_step(r, v->count / 8));
    for (size_t at = 0; at < v->count;) {
        const char *percent = (const char *)memchr(v->as.text + at, '%', v->count - at);
        size_t end = percent ? (size_t)(percent - v->as.text) : v->count;
        exl2__template_conversion c = { 0 };
        EXL2__TRY(exl2__template_put_copy(r, v->as.text + at, end - at));
        at = end;
        if (percent) {
            at += 1 + exl2__template_conversion_read(percent + 1, v->count - end - 1, &c);
        }
        if (percent && c.letter == '%' && at == end + 2) {
            EXL2__TRY(exl2__template_put_copy(r, percent, 1));
        } else if (percent) {
            if (!c.letter || !strchr("srcdifxXo", c.letter)) {
                return exl2__template_unsupported(r, "a conversion other than %s, %r, %c, %d, %i, %f, %x, %X, %o, %%");
            }
            if (used == count) {
                return exl2__template_fail(r, EXL2_ERR_FORMAT, "not enough arguments for format string");
            }
            EXL2__TRY(exl2__template_convert(r, &c, &args[used++], v->why != 0));
        }
    }
    bool optional = count && (args[0].kind == EXL2__TEMPLATE_KIND_LIST || args[0].kind == EXL2__TEMPLATE_KIND_DICT ||
                              args[0].kind == EXL2__TEMPLATE_KIND_UNDEFINED);
    if (used < count && !optional) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "not all arguments converted during string formatting");
    }
    *out = exl2__template_written(r, start);
    out->why = v->why;
    return EXL2_OK;
}

/* ---- texts ---- */

/* Bytes of the line break at `at`, by the rules of str.splitlines; 0: no line break. */
EXL2__PRIVATE size_t exl2__template_line_break(const exl2__template_value *v, size_t at)
{
    size_t step;
    uint32_t code = exl2__template_code_point(v->as.text + at, v->count - at, &step);
    if (code == '\r' && at + 1 < v->count && v->as.text[at + 1] == '\n') {
        return 2;
    }
    return (code >= 10 && code <= 13) || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 ||
                   code == 0x2029
               ? step
               : 0;
}

/* The line at *at without its line break; *at moves past both. */
EXL2__PRIVATE exl2__template_value exl2__template_line(const exl2__template_value *v, size_t *at, size_t *break_bytes)
{
    size_t begin = *at, end = begin;
    *break_bytes = 0;
    while (end < v->count && (*break_bytes = exl2__template_line_break(v, end)) == 0) {
        end++;
    }
    *at = end + *break_bytes;
    exl2__template_value line = exl2__template_text(v->as.text + begin, end - begin);
    line.marked = v->marked;
    return line;
}

EXL2__PRIVATE exl2_result exl2__template_indent(exl2__template_run *r, const exl2__template_value *v,
                                                const exl2__template_value *const *args, exl2__template_value *out)
{
    exl2__template_value fill = exl2__template_text(" ", 1);
    uint64_t times = 4;
    bool first = args[1] && exl2__template_truth(args[1]), blank = args[2] && exl2__template_truth(args[2]);
    if (args[0] && args[0]->kind == EXL2__TEMPLATE_KIND_TEXT) {
        fill = *args[0];
        times = 1;
    } else if (args[0]) {
        if (!exl2__template_is_integer(args[0])) {
            return exl2__template_unsupported(r, "indent with a width that is neither an integer nor a text");
        }
        times = args[0]->as.integer > 0 ? (uint64_t)args[0]->as.integer : 0;
    }
    size_t start = r->used, at = 0, broken = 0, step = 0;
    EXL2__TRY(exl2__template_step(r, v->count));
    for (bool again = true; again; first = true) {
        exl2__template_value line = exl2__template_line(v, &at, &broken);
        bool begins = line.as.text == v->as.text;
        if (!begins) {
            EXL2__TRY(exl2__template_put(r, "\n", 1, exl2__template_marked(r, line.as.text - 1)));
        }
        if (first && (begins || blank || line.count)) {
            EXL2__TRY(exl2__template_put_times(r, &fill, times));
        }
        EXL2__TRY(exl2__template_put_copy(r, line.as.text, line.count));
        step = broken;
        again = at < v->count || (step && v->as.text[v->count - 1] != '\r');
    }
    *out = exl2__template_written(r, start);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_truncate(exl2__template_run *r, const exl2__template_value *v,
                                                  const exl2__template_value *const *args, exl2__template_value *out)
{
    exl2__template_value end = exl2__template_text("...", 3), cut;
    int64_t size = 255, leeway = 5;
    uint32_t count, end_count;
    if ((args[0] && !exl2__template_is_integer(args[0])) || (args[3] && !exl2__template_is_integer(args[3]))) {
        return exl2__template_unsupported(r, "truncate with a length or leeway that is not an integer");
    }
    size = args[0] ? args[0]->as.integer : size;
    leeway = args[3] ? args[3]->as.integer : leeway;
    if (args[2]) {
        EXL2__TRY(exl2__template_string(r, args[2], &end));
    }
    EXL2__TRY(exl2__template_text_length(r, v, &count));
    EXL2__TRY(exl2__template_text_length(r, &end, &end_count));
    if (size < (int64_t)end_count || leeway < 0) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT,
                                   "truncate expected a length of at least %u and a leeway of at least 0", end_count);
    }
    *out = *v;
    if (count <= size || count - size <= leeway) {
        return EXL2_OK;
    }
    exl2__template_value stop = exl2__template_int(size - end_count);
    EXL2__TRY(exl2__template_slice(r, v, NULL, &stop, NULL, &cut));
    for (uint32_t i = cut.count; !(args[1] && exl2__template_truth(args[1])) && i > 0; i--) {
        if (cut.as.text[i - 1] == ' ') {
            cut.count = i - 1;
            break;
        }
    }
    return exl2__template_append(r, &cut, &end, out);
}

#endif

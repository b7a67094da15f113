/* unicode.c: character class counts of the tokenizers library, code points of every class, UTF-8 of every kind. */
#include "../check.h"
#include "private/unicode.h"

static void check_counts(void)
{
    uint32_t letters = 0, numbers = 0, spaces = 0, words = 0, marks = 0, upper = 0, lower = 0, caseless = 0, points = 0;
    uint32_t symbols = 0;
    for (uint32_t code = 0; code < 0x110000; code++) {
        uint32_t kind = exl2__unicode_class(code);
        CHECK(kind && (kind & (kind - 1)) == 0 && kind <= EXL2__UNICODE_SPACE);
        letters += (kind & EXL2__UNICODE_LETTER) != 0;
        marks += kind == EXL2__UNICODE_MARK;
        upper += kind == EXL2__UNICODE_UPPER;
        lower += kind == EXL2__UNICODE_LOWER;
        caseless += kind == EXL2__UNICODE_CASELESS;
        points += (kind & (EXL2__UNICODE_PUNCTUATION | EXL2__UNICODE_CONNECTOR)) != 0;
        symbols += (kind & (EXL2__UNICODE_SYMBOL | EXL2__UNICODE_WORD_SYMBOL)) != 0;
        numbers += (kind & EXL2__UNICODE_NUMBERS) != 0;
        spaces += kind == EXL2__UNICODE_SPACE;
        words += (kind & EXL2__UNICODE_WORD) != 0;
    }
    CHECK_INT(letters, 141028);
    CHECK_INT(numbers, 1911);
    CHECK_INT(marks, 2501);
    CHECK_INT(upper, 1858);
    CHECK_INT(lower, 2258);
    CHECK_INT(caseless, 136477);
    CHECK_INT(points, 855);
    CHECK_INT(symbols, 8514);
    CHECK_INT(spaces, 25);
    CHECK_INT(words, 144667);
}

static void check_classes(void)
{
    static const uint32_t spaces[] = { 9, 0xA, 0xB, 0xC, 0xD, 0x20, 0x85, 0xA0, 0x1680, 0x2000, 0x200A, 0x2028,
                                       0x2029, 0x202F, 0x205F, 0x3000 };
    static const uint32_t others[] = { 0, 8, 0xE, 0x1C, 0x1F, 0x21, 0x2F, 0x3A, 0x40, 0x5B, 0x60, 0x7B, 0x7F, 0x180E,
                                       0x200B, 0xFEFF, 0x378,
                                       0x1F642, 0xD800, 0xDFFF, 0x10FFFF, EXL2__UNICODE_BAD, EXL2__UNICODE_CUT };
    static const uint32_t letters[] = { 'A', 'Z', 'a', 'z', 0xAA, 0xB5, 0xE9, 0x17F, 0x1C5, 0x2B0, 0x4F60, 0xAC00,
                                        0x20000, 0x2A6DF };
    for (size_t i = 0; i < EXL2__COUNT(spaces); i++) {
        CHECK_INT(exl2__unicode_class(spaces[i]), EXL2__UNICODE_SPACE);
    }
    for (size_t i = 0; i < EXL2__COUNT(others); i++) {
        CHECK(exl2__unicode_class(others[i]) & ~(uint32_t)(EXL2__UNICODE_WORD | EXL2__UNICODE_SPACE));
    }
    for (size_t i = 0; i < EXL2__COUNT(letters); i++) {
        CHECK(exl2__unicode_class(letters[i]) & EXL2__UNICODE_LETTER);
    }
    for (uint32_t code = 0; code < 0x80; code++) { /* the table and the shortcut for ASCII agree */
        CHECK_INT(exl2__unicode_class(code), exl2__unicode_class_search(code));
    }
    CHECK_INT(exl2__unicode_class(0x100), EXL2__UNICODE_UPPER);
    CHECK_INT(exl2__unicode_class(0x101), EXL2__UNICODE_LOWER);
    CHECK_INT(exl2__unicode_class(0x139), EXL2__UNICODE_UPPER);
    CHECK_INT(exl2__unicode_class(0x13A), EXL2__UNICODE_LOWER);
    CHECK_INT(exl2__unicode_class('5'), EXL2__UNICODE_DIGIT);
    CHECK_INT(exl2__unicode_class(0x663), EXL2__UNICODE_DIGIT);
    CHECK_INT(exl2__unicode_class(0x2167), EXL2__UNICODE_LETTER_NUMBER);
    CHECK_INT(exl2__unicode_class(0xBD), EXL2__UNICODE_NUMERAL);
    CHECK_INT(exl2__unicode_class(0xB2), EXL2__UNICODE_NUMERAL);
    CHECK_INT(exl2__unicode_class('_'), EXL2__UNICODE_CONNECTOR);
    CHECK_INT(exl2__unicode_class(0x301), EXL2__UNICODE_MARK);
    CHECK_INT(exl2__unicode_class(0x200D), EXL2__UNICODE_WORD_OTHER);
}

static size_t encode(uint32_t code, char out[4])
{
    size_t bytes = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint8_t leads[] = { 0, 0, 0xC0, 0xE0, 0xF0 };
    for (size_t i = bytes; i-- > 1; code >>= 6) {
        out[i] = (char)(0x80 | (code & 0x3F));
    }
    out[0] = (char)(leads[bytes] | code);
    return bytes;
}

/* Every code point is read back; every proper prefix of one is CUT; surrogates are not UTF-8. */
static void check_utf8(void)
{
    for (uint32_t code = 0; code < 0x110000; code++) {
        char text[4];
        size_t bytes = encode(code, text);
        uint32_t got, length = exl2__unicode_next(text, bytes, &got);
        if (code >= 0xD800 && code < 0xE000) {
            CHECK(got == EXL2__UNICODE_BAD && length == 1);
            continue;
        }
        CHECK(got == code && length == bytes && exl2__unicode_valid(text, bytes) &&
              exl2__unicode_before(text, bytes) == 0);
        for (size_t cut = 1; cut < bytes; cut++) {
            length = exl2__unicode_next(text, cut, &got);
            CHECK(got == EXL2__UNICODE_CUT && length == cut && !exl2__unicode_valid(text, cut));
        }
    }
}

/* Maximal invalid parts: the table in section 3.9 of the Unicode Standard (U+FFFD substitution), also with one more
   byte. */
static void check_invalid(void)
{
    static const struct {
        const char *text;
        uint32_t lengths[8]; /* lengths of the parts; 0 = end */
    } rows[] = {
        { "\xC0\xAF\xE0\x80\xBF\xF0\x81\x82", { 1, 1, 1, 1, 1, 1, 1, 1 } },
        { "\xED\xA0\x80\xED\xBF\xBF\xED\xAF", { 1, 1, 1, 1, 1, 1, 1, 1 } },
        { "\xF4\x91\x92\x93\xFF\x80\xBF\xF5", { 1, 1, 1, 1, 1, 1, 1, 1 } },
        { "\xE1\x80\xE2\xF0\x91\x92\xF1\xBF", { 2, 1, 3, 2 } },
        { "\xF0\x9F\x99\xC3\xE2\x82\xF4\x8F", { 3, 1, 2, 2 } },
    };
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        size_t at = 0, bytes = strlen(rows[i].text);
        for (size_t part = 0; at < bytes; part++) {
            uint32_t code, length = exl2__unicode_next(rows[i].text + at, bytes - at, &code);
            CHECK_INT(length, rows[i].lengths[part]);
            CHECK_INT(code, at + length == bytes && length > 1 ? EXL2__UNICODE_CUT : EXL2__UNICODE_BAD);
            at += length;
        }
    }
}

int main(void)
{
    check_counts();
    check_classes();
    check_utf8();
    check_invalid();
    return check_done();
}

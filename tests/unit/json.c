/* json.c: what the parser accepts and rejects, the tokens it makes, escapes, numbers compared with the C library, and
   hostile inputs: depth, size, colliding keys. */
#include "private/platform_alloc.h"
#include "private/json.h"
#include "../check.h"

static exl2__ctx make_context(void)
{
    exl2__ctx c = { 0 };
    c.allocator = exl2__platform_allocator();
    return c;
}

/* ---- accept and reject ---- */

static const char *const good[] = {
    "0", "-0", "1.5", "-12e+3", "0.0E-0", "1e999", "\"\"", "true", "false", "null", "[]", "{}", " \t\r\n[ ]\n",
    "[[],{}]", "{\"\":0}", "{\"a\":1,\"b\":[1,2,{\"c\":null}]}", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"",
    "\"\\ud800\"", "\"\xC3\xA9\"", "\"\xF4\x8F\xBF\xBF\"", "\"\xEF\xBF\xBF\"", "\"\x7F\"", "{\"a\":{\"a\":{\"a\":0}}}",
    "[{\"k\":1},{\"k\":1}]", "\xEF\xBB\xBF{}", "\xEF\xBB\xBF \n[1]",
};

static const struct { const char *text; const char *wanted; unsigned at; } bad[] = {
    { "", "a value", 0 }, { "  ", "a value", 2 }, { "nul", "a value", 0 }, { "True", "a value", 0 },
    { "NaN", "a value", 0 }, { "Infinity", "a value", 0 }, { "-", "a digit", 1 }, { "-a", "a digit", 1 },
    { "+1", "a value", 0 }, { ".5", "a value", 0 }, { "1.", "a digit", 2 }, { "1e", "a digit", 2 },
    { "1e+", "a digit", 3 }, { "01", "nothing after", 1 }, { "-01", "nothing after", 2 },
    { "0x10", "nothing after", 1 }, { "1 2", "nothing after", 2 }, { "[]]", "nothing after", 2 },
    { "truex", "nothing after", 4 }, { "[", "a value", 1 }, { "[1", "',' or ']'", 2 }, { "[1,", "a value", 3 },
    { "[1,]", "a value", 3 }, { "[,1]", "a value", 1 }, { "[1 2]", "',' or ']'", 3 }, { "[1}", "',' or ']'", 2 },
    { "{", "a key in quotes or '}'", 1 }, { "{a:1}", "a key in quotes", 1 }, { "{1:1}", "a key in quotes", 1 },
    { "{\"a\"}", "':' after a key", 4 }, { "{\"a\":}", "a value", 5 }, { "{\"a\":1,}", "a key in quotes", 7 },
    { "{\"a\":1 \"b\":2}", "',' or '}'", 7 }, { "{\"a\":1]", "',' or '}'", 6 }, { "{'a':1}", "a key in quotes", 1 },
    { "\"", "a closing quote", 0 }, { "[\"abc", "a closing quote", 1 }, { "\"a\nb\"", "control character", 2 },
    { "\"\x01\"", "control character", 1 }, { "\"\\x\"", "after a backslash", 1 }, { "\"\\", "after a backslash", 1 },
    { "\"\\u12\"", "four hexadecimal digits", 1 }, { "\"\\u12G4\"", "four hexadecimal digits", 1 },
    { "\"\\u123", "four hexadecimal", 1 }, { "\"\x80\"", "valid UTF-8", 1 }, { "\"\xC0\xAF\"", "valid UTF-8", 1 },
    { "\"\xC3\"", "valid UTF-8", 1 }, { "\"\xE0\x80\x80\"", "valid UTF-8", 1 },
    { "\"\xED\xA0\x80\"", "valid UTF-8", 1 }, { "\"\xF4\x90\x80\x80\"", "valid UTF-8", 1 },
    { "\"\xF0\x8F\xBF\xBF\"", "valid UTF-8", 1 }, { "\"\xF5\x80\x80\x80\"", "valid UTF-8", 1 },
    { "\"\xE2\x82", "valid UTF-8", 1 }, { "\xEF\xBB\xBF", "a value", 3 },
    { "\xEF\xBB{}", "a value", 0 }, { " \xEF\xBB\xBF{}", "a value", 1 },
    { "\xEF\xBB\xBF\xEF\xBB\xBF{}", "a value", 3 },
    { "{\xEF\xBB\xBF}", "a key in quotes or '}'", 1 }, { "-Infinity", "a digit", 1 }, { "[1,NaN]", "a value", 3 },
    { "/* c */ 1", "a value", 0 },
    { "[1] // c", "nothing after", 4 },
};

static void check_grammar(void)
{
    exl2__ctx c = make_context();
    exl2__json j;
    for (size_t i = 0; i < EXL2__COUNT(good); i++) {
        if (!CHECK_INT(exl2__json_open(&c, "t", good[i], strlen(good[i]), &j), EXL2_OK)) {
            printf("  %s: %s\n", good[i], c.error.text);
        }
        exl2__json_close(&c, &j);
    }
    for (size_t i = 0; i < EXL2__COUNT(bad); i++) {
        size_t bytes = strlen(bad[i].text);
        char *copy = (char *)malloc(bytes ? bytes : 1), place[32]; /* without the NUL: ASan sees reads past the end */
        memcpy(copy, bad[i].text, bytes);
        CHECK_INT(exl2__json_open(&c, "file.json", copy, bytes, &j), EXL2_ERR_FORMAT);
        snprintf(place, sizeof place, "at byte %u (", bad[i].at);
        if (!CHECK(strstr(c.error.text, bad[i].wanted) && strstr(c.error.text, place) &&
                   strstr(c.error.text, "file.json"))) {
            printf("  %s: %s\n", bad[i].text, c.error.text);
        }
        CHECK(j.tokens == NULL);
        free(copy);
    }
    CHECK_INT(exl2__json_open(&c, "t", "[1,\n2,\n\n x]", 11, &j), EXL2_ERR_FORMAT);
    CHECK(strstr(c.error.text, "at byte 9 (line 4)") != NULL);
    CHECK_INT(exl2__json_open(&c, "t", "1\0", 2, &j), EXL2_ERR_FORMAT);
    CHECK_INT(c.host_bytes, 0);
}

/* Files may have the words that Python writes. They are values, but not numbers. */
static void check_nonfinite(void)
{
    static const char text[] = "{\"a\":NaN,\"b\":[Infinity,-Infinity],\"c\":-1}";
    static const char *const wrong[] = { "nan", "NaNs", "Inf", "+Infinity", "-NaN", "-Inf", "Infinit", "[NaN1]" };
    exl2__ctx c = make_context();
    exl2__json j;
    double value = 5;
    uint64_t whole = 5;
    int64_t integer = 5;
    bool flag;
    CHECK_INT(exl2__json_open_whole(&c, "t", text, sizeof text - 1, NULL, false, &j), EXL2_ERR_FORMAT);
    CHECK_INT(exl2__json_open_whole(&c, "t", text, sizeof text - 1, NULL, true, &j), EXL2_OK);
    uint32_t a = exl2__json_get(&j, 0, "a"), b = exl2__json_get(&j, 0, "b");
    CHECK(a && b && j.tokens[b].count == 2 && j.tokens[b + 2].end - j.tokens[b + 2].begin == 9);
    for (uint32_t token = a; token; token = token == a ? b + 1 : token == b + 1 ? b + 2 : 0) {
        CHECK_INT(j.tokens[token].kind, EXL2__JSON_NONFINITE);
        CHECK(!exl2__json_f64(&j, token, &value) && !exl2__json_u64(&j, token, &whole)
              && !exl2__json_i64(&j, token, &integer) && !exl2__json_bool(&j, token, &flag));
    }
    CHECK(value == 5 && whole == 5 && integer == 5);
    CHECK(exl2__json_i64(&j, exl2__json_get(&j, 0, "c"), &integer) && integer == -1);
    exl2__json_close(&c, &j);
    for (size_t i = 0; i < EXL2__COUNT(wrong); i++) {
        CHECK_INT(exl2__json_open_whole(&c, "t", wrong[i], strlen(wrong[i]), NULL, true, &j), EXL2_ERR_FORMAT);
    }
    CHECK_INT(c.host_bytes, 0);
}

/* ---- tokens ---- */

static void check_tokens(void)
{
    static const char text[] = " {\"a\" : [1, true, [], {\"x\":\"y\"}], \"b\\n\":null, \"\\u00e9\":-2.5}";
    exl2__ctx c = make_context();
    exl2__json j;
    CHECK_INT(exl2__json_open(&c, "t", text, sizeof text - 1, &j), EXL2_OK);
    CHECK_INT(c.host_bytes, j.token_count * sizeof(exl2__json_token));
    CHECK_INT(j.token_count, 13);
    CHECK(j.tokens[0].kind == EXL2__JSON_OBJECT && j.tokens[0].count == 3 && j.tokens[0].after == 13);
    CHECK(j.tokens[0].begin == 1 && j.tokens[0].end == sizeof text - 1);
    uint32_t list = exl2__json_get(&j, 0, "a");
    CHECK_INT(list, 2);
    CHECK(j.tokens[list].kind == EXL2__JSON_ARRAY && j.tokens[list].count == 4 && j.tokens[list].after == 9);
    uint32_t seen[4], count = 0;
    for (uint32_t at = exl2__json_first(&j, list); at; at = exl2__json_next(&j, list, at)) {
        seen[count++ & 3] = at;
    }
    CHECK_INT(count, 4);
    CHECK(seen[0] == 3 && seen[1] == 4 && seen[2] == 5 && seen[3] == 6);
    CHECK_INT(exl2__json_first(&j, 5), 0);
    CHECK_INT(exl2__json_first(&j, 3), 0);
    CHECK(exl2__json_is(&j, exl2__json_get(&j, 6, "x"), "y"));
    CHECK_INT(exl2__json_get(&j, 0, "b\n"), 0); /* null counts as absent */
    CHECK_INT(exl2__json_get(&j, 0, "nothing"), 0);
    CHECK_INT(exl2__json_get(&j, list, "a"), 0);
    double value = 0;
    CHECK(exl2__json_f64(&j, exl2__json_get(&j, 0, "\xC3\xA9"), &value) && value == -2.5);
    uint32_t key = exl2__json_first(&j, 0), keys = 0;
    for (; key; key = exl2__json_next(&j, 0, key)) {
        CHECK(j.tokens[key].kind == EXL2__JSON_STRING);
        keys++;
    }
    CHECK_INT(keys, 3);
    bool flag = false;
    CHECK(exl2__json_bool(&j, 4, &flag) && flag);
    CHECK(!exl2__json_bool(&j, 3, &flag) && flag);
    exl2__json_close(&c, &j);
    exl2__json_close(&c, &j);
    CHECK_INT(c.host_bytes, 0);
}

static void check_string(const char *text, const char *wanted, size_t wanted_bytes)
{
    exl2__ctx c = make_context();
    exl2__json j;
    char out[64];
    CHECK_INT(exl2__json_open(&c, "t", text, strlen(text), &j), EXL2_OK);
    memset(out, '#', sizeof out);
    CHECK_INT(exl2__json_text(&j, 0, out, sizeof out), wanted_bytes);
    CHECK(memcmp(out, wanted, wanted_bytes) == 0 && out[wanted_bytes] == '#');
    memset(out, '#', sizeof out);
    CHECK_INT(exl2__json_text(&j, 0, out, 2), wanted_bytes);
    CHECK(out[2] == '#');
    CHECK_INT(exl2__json_text(&j, 0, NULL, 0), wanted_bytes);
    if (strlen(wanted) == wanted_bytes) {
        CHECK(exl2__json_is(&j, 0, wanted));
        CHECK(!exl2__json_is(&j, 0, "other"));
    }
    exl2__json_close(&c, &j);
}

static void check_strings(void)
{
    check_string("\"\"", "", 0);
    check_string("\"abc\"", "abc", 3);
    check_string("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8);
    check_string("\"\\u0041\\u00E9\\u20ac\"", "A\xC3\xA9\xE2\x82\xAC", 6);
    check_string("\"\\uD83D\\uDE00!\"", "\xF0\x9F\x98\x80!", 5);
    check_string("\"\\uDBFF\\uDFFF\"", "\xF4\x8F\xBF\xBF", 4);
    check_string("\"\\uD83D\"", "\xEF\xBF\xBD", 3);               /* high alone */
    check_string("\"\\uDE00x\"", "\xEF\xBF\xBDx", 4);             /* low alone */
    check_string("\"\\uD83D\\u0041\"", "\xEF\xBF\xBD" "A", 4);     /* high, then no low */
    check_string("\"\\uD83D\\uD83D\\uDE00\"", "\xEF\xBF\xBD\xF0\x9F\x98\x80", 7);
    check_string("\"\\uD83Dabcdef\"", "\xEF\xBF\xBD" "abcdef", 9);
    check_string("\"a\\u0000b\"", "a\0b", 3);
    check_string("\"\xE2\x82\xAC\"", "\xE2\x82\xAC", 3);
}

/* Every kind of character at every position of strings of up to 28 bytes, as a value and as a key of a container that
   is never read. Also unterminated strings, and characters that strings must not contain. */
static void check_places(void)
{
    static const struct { const char *text, *bytes; } units[] = {
        { "", "" }, { " ", " " }, { "\x7F", "\x7F" }, { "\\\"", "\"" }, { "\\\\", "\\" }, { "\\u00e9", "\xC3\xA9" },
        { "\xC3\xA9", "\xC3\xA9" }, { "\xE2\x96\x81", "\xE2\x96\x81" }, { "\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80" },
        { "\x1F", NULL }, { "\n", NULL }, { "\x80", NULL }, { "\xE2\x96", NULL }, { "\\x", NULL },
    };
    static const char *const flat_keys[EXL2__JSON_FLAT_MAX] = { "flat", "other" };
    exl2__ctx c = make_context();
    for (size_t at = 0; at < 18 * EXL2__COUNT(units) * 10; at++) {
        const char *unit = units[at / 18 % EXL2__COUNT(units)].text, *bytes = units[at / 18 % EXL2__COUNT(units)].bytes;
        int before = (int)(at % 18), after = (int)(at / 18 / EXL2__COUNT(units));
        char text[128], wanted[64], got[64], place[32];
        exl2__json j;
        for (int flat = 0; flat < 3; flat++) {
            static const char *const frames[3][2] = { { "[", "]" }, { "{\"m\":{\"flat\":{", ":0}}}" },
                                                      { "[", "" } };
            snprintf(text, sizeof text, "%s\"%.*s%s%.*s%s%s", frames[flat][0], before, "aaaaaaaaaaaaaaaaaa", unit,
                     after, "bbbbbbbbbb", flat < 2 ? "\"" : "", frames[flat][1]);
            size_t size = strlen(text), begin = strlen(frames[flat][0]) + 1, wrong = begin + (size_t)before;
            char *copy = (char *)malloc(size); /* ASan sees reads past the end */
            memcpy(copy, text, size);
            exl2_result result = exl2__json_open_flat(&c, "t", copy, size, flat == 1 ? flat_keys : NULL, &j);
            const exl2__json *view = &j;
            uint32_t token = 1;
            exl2__json_walk walk;
            /* the inside is parsed lazily, so the error has not been found yet */
            if (flat == 1 && CHECK_INT(result, EXL2_OK)) {
                CHECK(j.flat[0].begin == 13 && j.flat[0].end == size - 2 && j.flat[0].members >= 1);
                CHECK_INT(j.flat[0].longest, size - 5 - begin + 1);
                exl2__json_walk_begin(&walk, &j, &j.flat[0]);
                result = exl2__json_walk_next(&walk) ? EXL2_OK : exl2__json_walk_end(&c, "t", &walk);
                view = &walk.view;
            }
            if (bytes && flat < 2) {
                snprintf(wanted, sizeof wanted, "%.*s%s%.*s", before, "aaaaaaaaaaaaaaaaaa", bytes, after, "bbbbbbbbbb");
                CHECK_INT(result, EXL2_OK);
                size_t used = exl2__json_text(view, token, got, sizeof got);
                CHECK(used == strlen(wanted) && memcmp(got, wanted, used) == 0);
            } else {
                snprintf(place, sizeof place, "at byte %zu (", bytes ? begin - 1 : wrong);
                CHECK_INT(result, EXL2_ERR_FORMAT);
                CHECK(strstr(c.error.text, place) != NULL);
            }
            exl2__json_close(&c, &j);
            free(copy);
        }
    }
    CHECK_INT(c.host_bytes, 0);
}

/* ---- numbers ---- */

static bool read_f64(const char *text, double *out)
{
    exl2__json_number n = exl2__json_number_read(text, strlen(text));
    return exl2__json_number_f64(&n, out);
}

/* Tests the bits, because applications (and this test) may be built with -ffast-math. */
static bool is_finite(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits >> 52 & 0x7FF) != 0x7FF;
}

static void check_double(const char *text)
{
    double got = -1, wanted = strtod(text, NULL); /* the test never leaves the "C" locale */
    bool finite = is_finite(wanted);
    bool held = read_f64(text, &got) == finite && (!finite || memcmp(&got, &wanted, sizeof got) == 0);
    if (!CHECK(held)) {
        printf("  %s is %.17g, wanted %.17g\n", text, got, wanted);
    }
}

static void check_doubles(void)
{
    static const char *const texts[] = {
        "0", "-0", "0.0", "0e5", "0.000e-999999999999999999999", "1", "-1", "10", "1e-05", "1e-5", "0.1", "0.3",
        "1e22", "1e23", "5e-324", "4.9406564584124654e-324", "2.4703282292062327e-324", "2.4703282292062328e-324",
        "2.2250738585072014e-308", "2.2250738585072011e-308", "2.2250738585072009e-308", "1.7976931348623157e308",
        "1.7976931348623158e308", "1.7976931348623159e308", "1e308", "1e309", "1e99999999999999999999",
        "1e-99999999999999999999", "1e-400", "9007199254740993", "9007199254740992.5", "9007199254740991.5",
        "18446744073709551615", "18446744073709551616", "123456789012345678901234567890",
        "0.00000000000000000000000000000000000000001", "1000000000000000000000000000000",
        "1000000000000000019884624838656", "0.1000000000000000055511151231257827", "500000.0", "10000.00",
        "3.14159265358979323846", "8.5e+01", "1.0e-6", "0.02", "100000000000000000000000000000000000000e-38",
        "0.0000000000000000000000000000000000001e37",
    };
    for (size_t i = 0; i < EXL2__COUNT(texts); i++) {
        check_double(texts[i]);
    }
    uint64_t state = 88172645463325252u;
    for (int i = 0; i < 200000; i++) { /* any bit pattern, written so that it reads back exactly */
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        double value;
        char text[64];
        memcpy(&value, &state, sizeof value);
        if (!is_finite(value)) {
            continue;
        }
        snprintf(text, sizeof text, "%.17g", value);
        check_double(text);
        if (i % 4 == 0) { /* shorter numbers fall between two doubles */
            snprintf(text, sizeof text, "%.*g", (int)(state % 17) + 1, value);
            check_double(text);
        }
    }
}

static void check_integer(const char *text, bool u64_fits, uint64_t u64, bool i64_fits, int64_t i64)
{
    exl2__ctx c = make_context();
    exl2__json j;
    uint64_t u = 77;
    int64_t i = 77;
    CHECK_INT(exl2__json_open(&c, "t", text, strlen(text), &j), EXL2_OK);
    bool held = exl2__json_u64(&j, 0, &u) == u64_fits && u == (u64_fits ? u64 : 77) && exl2__json_i64(&j, 0,
                                                                                                      &i) == i64_fits &&
                i == (i64_fits ? i64 : 77);
    if (!CHECK(held)) {
        printf("  %s is %llu, %lld\n", text, (unsigned long long)u, (long long)i);
    }
    exl2__json_close(&c, &j);
}

static void check_integers(void)
{
    check_integer("0", true, 0, true, 0);
    check_integer("-0", true, 0, true, 0);
    check_integer("-0.0e7", true, 0, true, 0);
    check_integer("8192", true, 8192, true, 8192);
    check_integer("8192.0", true, 8192, true, 8192);
    check_integer("8.192e3", true, 8192, true, 8192);
    check_integer("81920000e-4", true, 8192, true, 8192);
    check_integer("1e19", true, 10000000000000000000u, false, 0);
    check_integer("-5", false, 0, true, -5);
    check_integer("1.5", false, 0, false, 0);
    check_integer("1e-1", false, 0, false, 0);
    check_integer("9223372036854775807", true, 9223372036854775807u, true, INT64_MAX);
    check_integer("9223372036854775808", true, 9223372036854775808u, false, 0);
    check_integer("-9223372036854775808", false, 0, true, INT64_MIN);
    check_integer("-9223372036854775809", false, 0, false, 0);
    check_integer("18446744073709551615", true, UINT64_MAX, false, 0);
    check_integer("18446744073709551615.000", true, UINT64_MAX, false, 0);
    check_integer("18446744073709551616", false, 0, false, 0);
    check_integer("184467440737095516150", false, 0, false, 0);
    check_integer("1e20", false, 0, false, 0);
    check_integer("1e400", false, 0, false, 0);
    check_integer("\"5\"", false, 0, false, 0);
    check_integer("true", false, 0, false, 0);
    check_integer("[5]", false, 0, false, 0);
}

/* ---- hostile inputs ---- */

static void check_depth(char open, char shut, const char *inside)
{
    exl2__ctx c = make_context();
    exl2__json j;
    size_t step = 1 + strlen(inside);
    static const size_t depths[] = { 63, 64, 65, 66, 255, 256, 257, 10000 };
    for (size_t d = 0; d < EXL2__COUNT(depths); d++) {
        size_t depth = depths[d];
        char *text = (char *)malloc(depth * (step + 1));
        for (size_t i = 0; i < depth; i++) {
            text[i * step] = open;
            memcpy(text + i * step + 1, inside, step - 1);
        }
        size_t bytes = depth * step - (step - 1); /* the innermost one is empty */
        memset(text + bytes, shut, depth);
        exl2_result result = exl2__json_open(&c, "t", text, bytes + depth, &j);
        CHECK_INT(result, depth <= 64 ? EXL2_OK : EXL2_ERR_FORMAT);
        CHECK(depth <= 64 || strstr(c.error.text, "at most 64 levels of nesting"));
        exl2__json_close(&c, &j);
        result = exl2__json_open_deep(&c, "t", text, bytes + depth, &j);
        CHECK_INT(result, depth <= 256 ? EXL2_OK : EXL2_ERR_FORMAT);
        CHECK(depth <= 256 || strstr(c.error.text, "at most 256 levels of nesting"));
        exl2__json_close(&c, &j);
        CHECK_INT(exl2__json_open(&c, "t", text, bytes, &j), EXL2_ERR_FORMAT);
        free(text);
    }
    CHECK_INT(c.host_bytes, 0);
}

static void check_keys(void)
{
    static const char *const twice[] = { "{\"a\":1,\"a\":2}", "{\"a\":1,\"\\u0061\":2}",
                                         "[{\"b\":{}},{\"b\":[],\"c\":0,\"b\":1}]",
                                         "{\"\":1,\"\":2}", "{\"\\n\":1,\"\\u000A\":2}",
                                        "{\"\xC3\xA9\":1,\"\\u00e9\":2}" };
    exl2__ctx c = make_context();
    exl2__json j;
    for (size_t i = 0; i < EXL2__COUNT(twice); i++) {
        CHECK_INT(exl2__json_open(&c, "label", twice[i], strlen(twice[i]), &j), EXL2_ERR_FORMAT);
        CHECK(strstr(c.error.text, "twice in one object") && strstr(c.error.text, "label"));
    }
    /* Many keys are accepted, and a duplicate among them is found. */
    size_t cap = 100000 * 12 + 64, used = 0;
    char *text = (char *)malloc(cap);
    text[used++] = '{';
    for (unsigned i = 0; i < 100000; i++) {
        used += (size_t)snprintf(text + used, cap - used, "%s\"k%u\":0", i ? "," : "", i);
    }
    size_t end = used;
    text[end] = '}';
    CHECK_INT(exl2__json_open(&c, "t", text, end + 1, &j), EXL2_OK);
    CHECK_INT(j.tokens[0].count, 100000);
    exl2__json_close(&c, &j);
    used = end + (size_t)snprintf(text + end, cap - end, ",\"k77777\":1}");
    CHECK_INT(exl2__json_open(&c, "t", text, used, &j), EXL2_ERR_FORMAT);
    CHECK(strstr(c.error.text, "\"k77777\" twice") != NULL);
    free(text);
    CHECK_INT(c.host_bytes, 0);
}

/* Keys chosen to hash into one slot of the key table are rejected, because they would cost quadratic time. */
static void check_collisions(void)
{
    enum { WANTED = 2000, SLOTS = 4096 };
    exl2__ctx c = make_context();
    exl2__json j;
    size_t cap = WANTED * 24, used = 1;
    char *text = (char *)malloc(cap);
    unsigned found = 0;
    text[0] = '{';
    for (unsigned long long n = 0; found < WANTED; n++) {
        char key[40];
        uint32_t bytes = (uint32_t)snprintf(key, sizeof key, "{\"%llx\":0}", n);
        exl2__json_token tokens[2] = { { 0, bytes, 3, 1, EXL2__JSON_OBJECT, false },
                                       { 2, bytes - 4, 2, 0, EXL2__JSON_STRING, false } };
        exl2__json one = { .text = key, .bytes = bytes, .tokens = tokens, .token_count = 2 };
        if ((exl2__json_key_hash(&one, 0, 1) & (SLOTS - 1)) == 0) {
            used += (size_t)snprintf(text + used, cap - used, "%s\"%llx\":0", found ? "," : "", n);
            found++;
        }
    }
    text[used++] = '}';
    CHECK_INT(exl2__json_open(&c, "t", text, used, &j), EXL2_ERR_FORMAT);
    CHECK(strstr(c.error.text, "have the same hash as") != NULL);
    free(text);
    CHECK_INT(c.host_bytes, 0);
}

static void check_memory(void)
{
    exl2__ctx c = make_context();
    exl2__json j;
    CHECK_INT(exl2__json_open(&c, "big.json", "", (size_t)UINT32_MAX, &j),
              EXL2_ERR_FORMAT); /* rejected before it is read */
    CHECK(strstr(c.error.text, "big.json has 4294967295 bytes") != NULL);
    c.host_bytes_max = 60;
    CHECK_INT(exl2__json_open(&c, "t", "[1,2,3]", 7, &j), EXL2_ERR_BUDGET);
    CHECK(j.tokens == NULL);
    c.host_bytes_max = 100; /* the tokens fit, the table of keys does not */
    CHECK_INT(exl2__json_open(&c, "t", "{\"a\":1}", 7, &j), EXL2_ERR_BUDGET);
    CHECK(j.tokens == NULL);
    CHECK_INT(c.host_bytes, 0);
}

/* ---- slices ---- */

/* Parses in slices of one item, but closes the parser after `most` of them. *slices: their number. */
static exl2_result parse_sliced(exl2__ctx *c, const char *text, const char *const *flat_keys, int most, int *slices,
                                exl2__json *out)
{
    exl2__json_parse p;
    exl2_result r = EXL2_PENDING;
    CHECK_INT(exl2__json_parse_begin(c, &p, "t", text, strlen(text), flat_keys), EXL2_OK);
    for (*slices = 0; r == EXL2_PENDING && *slices < most; ++*slices) {
        exl2__work work = { 1 };
        r = exl2__json_parse_slice(c, &p, &work);
    }
    *out = p.j;
    p.j = r == EXL2_OK ? (exl2__json){ 0 } : p.j;
    exl2__json_parse_close(c, &p);
    return r;
}

/* In slices of one item, texts have the tokens and the errors that they have at once; a parser that is closed between
   two slices frees everything. */
static void check_slices(void)
{
    static const char *const flat_keys[EXL2__JSON_FLAT_MAX] = { "vocab", "merges" };
    static const char *const texts[] = {
        "{\"a\":[1,2,{\"c\":null}],\"m\":{\"vocab\":{\"x\":1,\n  \"y\\\"]\":{}},\"merges\":[\"a b\",[\"a\",\"b\"]]},"
        "\"z\":[]}",
        "{\"m\":{\"vocab\":[1,2]},\"n\":{\"vocab\":{\"k\":[3]},\"merges\":{}}}", /* the last vocab counts */
        "{\"m\":{\"vocab\":{\"x\":[1,2,3", "{\"m\":{\"merges\":[\"a", "{\"a\":1,\"b\":{\"c\":1,\"c\":2}}", "[1,2",
        "\"\\x\"", "", "[[[[[]]]]]", "  7 ", "{\"m\":{\"vocab\":{}}} x",
    };
    exl2__ctx c = make_context(), once = make_context();
    for (size_t i = 0; i < EXL2__COUNT(texts); i++) {
        exl2__json whole, sliced;
        int slices, less;
        exl2_result wanted = exl2__json_open_flat(&once, "t", texts[i], strlen(texts[i]), flat_keys, &whole);
        CHECK_INT(parse_sliced(&c, texts[i], flat_keys, 1000, &slices, &sliced), wanted);
        if (wanted == EXL2_OK) {
            CHECK_INT(sliced.token_count, whole.token_count);
            CHECK(memcmp(sliced.flat, whole.flat, sizeof whole.flat) == 0);
            for (uint32_t t = 0; t < whole.token_count; t++) {
                const exl2__json_token *a = &sliced.tokens[t], *b = &whole.tokens[t];
                CHECK(a->begin == b->begin && a->end == b->end && a->after == b->after);
                CHECK(a->count == b->count && a->kind == b->kind && a->escaped == b->escaped);
            }
            CHECK(slices > (int)whole.token_count); /* each token is a slice in both scans */
            exl2__json_close(&c, &sliced);
            exl2__json_close(&once, &whole);
        } else {
            CHECK_TEXT(c.error.text, once.error.text);
        }
        for (int most = 0; most < slices; most++) {
            CHECK(most == 0 || parse_sliced(&c, texts[i], flat_keys, most, &less, &sliced) == EXL2_PENDING);
            CHECK_INT(c.host_bytes, 0);
        }
    }
}

int main(void)
{
    check_grammar();
    check_nonfinite();
    check_slices();
    check_tokens();
    check_strings();
    check_places();
    check_doubles();
    check_integers();
    check_depth('[', ']', "");
    check_depth('{', '}', "\"a\":");
    check_keys();
    check_collisions();
    check_memory();
    return check_done();
}

/* json_text.c: exl2_json_text. Every prefix of generated documents is compared with what the generator knows of the
   document. For damaged documents, a search looks for an ending that the strict parser accepts. Also pointers, buffers,
   hostile texts. */
#include "rig.h"

#include "private/unicode.h"

#define DOC_BYTES 4096

static uint64_t state = 88172645463325252u;

static uint32_t draw(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 32) * below >> 32);
}

/* Works on a copy that ends with the last byte, so that ASan reports a read past the end. */
static exl2_result ask(const char *json, size_t bytes, const char *path, char *out, size_t cap, size_t *need,
                       bool *whole)
{
    char *exact = (char *)malloc(bytes ? bytes : 1);
    memcpy(exact, json, bytes);
    exl2_result r = exl2_json_text(exact, bytes, path, out, cap, need, whole);
    free(exact);
    return r;
}

/* ---- single cases ---- */

#define SMILE "\xF0\x9F\x98\x80"
#define BAD_CHAR "\xEF\xBF\xBD"

static const struct { const char *json, *path, *text; bool whole; exl2_result result; } rows[] = {
    { "", "/say", "", false, EXL2_OK },
    { "  {", "/say", "", false, EXL2_OK },
    { "{\"say", "/say", "", false, EXL2_OK },
    { "{\"say\" : \"", "/say", "", false, EXL2_OK },
    { "{\"say\":\"\"", "/say", "", true, EXL2_OK },
    { "{\"say\":\"Hello, tra", "/say", "Hello, tra", false, EXL2_OK },
    { "{\"say\":\"Hello.\",\"mo", "/say", "Hello.", true, EXL2_OK },
    { "{\"mood\":\"say\",\"say\":\"Yes", "/say", "Yes", false, EXL2_OK },
    { "{\"a\":{\"say\":\"no\"},\"say\":\"yes\"}", "/say", "yes", true, EXL2_OK },
    { "{\"a\":[{\"say\":\"no\"}],\"s\\u0061y\":\"yes\"}", "/say", "yes", true, EXL2_OK },
    { "{\"say\":\"first\",\"say\":\"second\"}", "/say", "first", true, EXL2_OK },
    { "{\"say\":[],\"say\":\"second\"}", "/say", "[]", true, EXL2_OK },
    /* escapes */
    { "{\"say\":\"a\\", "/say", "a", false, EXL2_OK },
    { "{\"say\":\"a\\n", "/say", "a\n", false, EXL2_OK },
    { "{\"say\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t", "/say", "\"\\/\b\f\n\r\t", false, EXL2_OK },
    { "{\"say\":\"a\\u00e", "/say", "a", false, EXL2_OK },
    { "{\"say\":\"a\\u00e9", "/say", "a\xC3\xA9", false, EXL2_OK },
    { "{\"say\":\"\xC3", "/say", "", false, EXL2_OK },
    { "{\"say\":\"a\xF0\x9F\x98", "/say", "a", false, EXL2_OK },
    { "{\"say\":\"a" SMILE, "/say", "a" SMILE, false, EXL2_OK },
    { "{\"say\":\"\x7F", "/say", "\x7F", false, EXL2_OK },
    /* surrogates */
    { "{\"say\":\"a\\uD83D", "/say", "a", false, EXL2_OK },
    { "{\"say\":\"a\\uD83D\\", "/say", "a", false, EXL2_OK },
    { "{\"say\":\"a\\uD83D\\uDE0", "/say", "a", false, EXL2_OK },
    { "{\"say\":\"a\\uD83D\\uDE00", "/say", "a" SMILE, false, EXL2_OK },
    { "{\"say\":\"a\\uD83Db", "/say", "a" BAD_CHAR "b", false, EXL2_OK },
    { "{\"say\":\"a\\uD83D\\n", "/say", "a" BAD_CHAR "\n", false, EXL2_OK },
    { "{\"say\":\"a\\uD83D\\u0041", "/say", "a" BAD_CHAR "A", false, EXL2_OK },
    { "{\"say\":\"a\\uD83D\\uD83D\\uDE00", "/say", "a" BAD_CHAR SMILE, false, EXL2_OK },
    { "{\"say\":\"a\\uD83D\"", "/say", "a" BAD_CHAR, true, EXL2_OK },
    { "{\"say\":\"\\uDE00", "/say", BAD_CHAR, false, EXL2_OK },
    /* values that are not strings */
    { "{\"trust\":-1", "/trust", "-1", false, EXL2_OK },
    { "{\"trust\":-1.5e+3 ", "/trust", "-1.5e+3", true, EXL2_OK },
    { "{\"trust\":-1}", "/trust", "-1", true, EXL2_OK },
    { "{\"yes\":tr", "/yes", "tr", false, EXL2_OK },
    { "{\"yes\":true", "/yes", "true", true, EXL2_OK },
    { "{\"yes\":false}", "/yes", "false", true, EXL2_OK },
    { "{\"no\":null", "/no", "null", true, EXL2_OK },
    { "{\"list\":[1, {\"a\":\"\\u00", "/list", "[1, {\"a\":\"", false, EXL2_OK },
    { "{\"list\":[1, {\"a\":\"\\u0041\"}] , ", "/list", "[1, {\"a\":\"\\u0041\"}]", true, EXL2_OK },
    { "[1,[2],\"x\"", "", "[1,[2],\"x\"", false, EXL2_OK },
    { " {\"a\":1} ", "", "{\"a\":1}", true, EXL2_OK },
    { "\"ab", "", "ab", false, EXL2_OK },
    { "12", "", "12", false, EXL2_OK },
    { "12 ", "", "12", true, EXL2_OK },
    /* pointers */
    { "{\"action\":{\"target\":\"Pike\"},\"target\":\"Marla\"}", "/action/target", "Pike", true, EXL2_OK },
    { "{\"action\":{\"target\":\"Pike\"},\"target\":\"Marla\"}", "/target", "Marla", true, EXL2_OK },
    { "{\"action\":{\"at\":0},\"action\":{\"target\":\"Pike\"}}", "/action/target", "", false, EXL2_OK },
    { "{\"action\":\"none\",\"target\":\"Pike\"}", "/action/target", "", false, EXL2_OK },
    { "{\"lines\":[{\"to\":\"a\"},{\"to\":[0,[7],\"b\"]}]}", "/lines/1/to/2", "b", true, EXL2_OK },
    { "{\"lines\":[{\"to\":\"a\"},{\"to\":[0,[7],\"b\"]}]}", "/lines/1/to/1/0", "7", true, EXL2_OK },
    { "{\"lines\":[0,1,2]}", "/lines/01", "", false, EXL2_OK },
    { "{\"lines\":[0,1,2]}", "/lines/-", "", false, EXL2_OK },
    { "{\"lines\":[0,1,2]}", "/lines/3", "", false, EXL2_OK },
    { "[0,1,2,3,4,5,6,7,8,9,10,11]", "/11", "11", true, EXL2_OK },
    { "[[0,1],2]", "/1", "2", true, EXL2_OK },
    { "{\"\":{\"\":\"deep\"}}", "//", "deep", true, EXL2_OK },
    { "{\"a/b\":1,\"m~n\":2,\"~1\":3}", "/a~1b", "1", true, EXL2_OK },
    { "{\"a/b\":1,\"m~n\":2,\"~1\":3}", "/m~0n", "2", true, EXL2_OK },
    { "{\"a/b\":1,\"m~n\":2,\"~1\":3}", "/~01", "3", true, EXL2_OK },
    { "{\"sa\":1,\"says\":2,\"say\":3}", "/say", "3", true, EXL2_OK },
    { "{\"say\\u0000\":1,\"say\":2}", "/say", "2", true, EXL2_OK },
    { "{\"\\ud83d\\ude00\":1}", "/" SMILE, "1", true, EXL2_OK },
    { "{\"a\":1}", "say", "", false, EXL2_ERR_ARG },
    { "{\"a\":1}", "/~2", "", false, EXL2_ERR_ARG },
    { "{\"a\":1}", "/a~", "", false, EXL2_ERR_ARG },
    /* input that can never become JSON; the text found before the error stays */
    { "say", "/say", "", false, EXL2_ERR_FORMAT },
    { "nul!", "", "nul", false, EXL2_ERR_FORMAT },
    { "{\"say\":\"a\nb", "/say", "a", false, EXL2_ERR_FORMAT },
    { "{\"say\":\"a\\x", "/say", "a", false, EXL2_ERR_FORMAT },
    { "{\"say\":\"a\\u00g", "/say", "a", false, EXL2_ERR_FORMAT },
    { "{\"say\":\"a\\uD83D\\ug", "/say", "a", false, EXL2_ERR_FORMAT },
    { "{\"say\":\"a\\uD83D\\x", "/say", "a" BAD_CHAR, false, EXL2_ERR_FORMAT },
    { "{\"say\":\"a\xC3x", "/say", "a", false, EXL2_ERR_FORMAT },
    { "{\"say\":\"a\xE0\x80", "/say", "a", false, EXL2_ERR_FORMAT },
    { "{\"say\":\"a\xED\xA0", "/say", "a", false, EXL2_ERR_FORMAT },
    { "{\"say\":\"a\xF4\x90", "/say", "a", false, EXL2_ERR_FORMAT },
    { "{\"say\":\"a\xF5", "/say", "a", false, EXL2_ERR_FORMAT },
    { "{\"say\":\"a\x80", "/say", "a", false, EXL2_ERR_FORMAT },
    { "{\"say\":\"a\"]", "/say", "a", true, EXL2_ERR_FORMAT },
    { "{\"say\":\"a\",}", "/say", "a", true, EXL2_ERR_FORMAT },
    { "{\"say\":\"a\"} x", "/say", "a", true, EXL2_ERR_FORMAT },
    { "{\"n\":01", "/n", "0", true, EXL2_ERR_FORMAT },
    { "{\"n\":-}", "/n", "-", false, EXL2_ERR_FORMAT },
    { "{\"n\":1.}", "/n", "1.", false, EXL2_ERR_FORMAT },
    { "{\"n\" 1", "/n", "", false, EXL2_ERR_FORMAT },
    { "{,", "/n", "", false, EXL2_ERR_FORMAT },
    { "[1}", "/0", "1", true, EXL2_ERR_FORMAT },
    { "[,", "/0", "", false, EXL2_ERR_FORMAT },
    { "1 2", "", "1", true, EXL2_ERR_FORMAT },
};

static void check_rows(void)
{
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        char out[64] = "?";
        size_t need = 77;
        bool whole = true;
        exl2_result r = ask(rows[i].json, strlen(rows[i].json), rows[i].path, out, sizeof out, &need, &whole);
        bool good = r == rows[i].result;
        good = good && (r == EXL2_ERR_ARG || (need == strlen(rows[i].text) && strcmp(out, rows[i].text) == 0
                                              && whole == rows[i].whole));
        if (!CHECK(good)) {
            printf("  %s of %s: %s, \"%s\"\n", rows[i].path, rows[i].json, exl2_result_name(r), out);
        }
    }
}

/* ---- buffers and arguments ---- */

static void check_buffers(void)
{
    static const char json[] = "{\"say\":\"a\xC3\xA9" SMILE "\\u0000b\"}", text[] = "a\xC3\xA9" SMILE "\0b";
    const size_t bytes = sizeof json - 1, said = sizeof text - 1;
    char out[16];
    size_t need = 0;
    bool whole = false;
    CHECK_INT(exl2_json_text(json, bytes, "/say", NULL, 0, &need, &whole), EXL2_OK); /* asks for the size */
    CHECK(need == said && whole);
    for (size_t cap = 0; cap < sizeof out; cap++) {
        size_t fits = cap > said ? said : cap < 2 ? 0 : cap < 4 ? 1 : cap < 8 ? 3 : cap - 1; /* whole code points */
        memset(out, '#', sizeof out);
        CHECK_INT(exl2_json_text(json, bytes, "/say", out, cap, &need, NULL), cap > said ? EXL2_OK
                                                                                         : EXL2_ERR_TOO_SMALL);
        CHECK_INT(need, said);
        CHECK(cap == 0 || (memcmp(out, text, fits) == 0 && out[fits] == 0));
        CHECK(out[cap] == '#');
    }
    CHECK_INT(exl2_json_text(NULL, 0, "/say", NULL, 0, &need, &whole), EXL2_OK);
    CHECK(need == 0 && !whole);
    CHECK_INT(exl2_json_text(NULL, 1, "/say", NULL, 0, &need, &whole), EXL2_ERR_ARG);
    CHECK_INT(exl2_json_text(json, bytes, NULL, NULL, 0, &need, &whole), EXL2_ERR_ARG);
    CHECK_INT(exl2_json_text(json, bytes, "/say", NULL, 5, &need, &whole), EXL2_ERR_ARG);
    CHECK_INT(exl2_json_text(json, bytes, "/say", out, sizeof out, NULL, &whole), EXL2_ERR_ARG);
}

static void check_depth(void)
{
    static char json[1 << 20], out[1 << 20];
    size_t need;
    bool whole;
    memset(json, '[', sizeof json);
    CHECK_INT(ask(json, 256, "", out, sizeof out, &need, &whole), EXL2_OK);
    CHECK(need == 256 && !whole);
    CHECK_INT(ask(json, 257, "", out, sizeof out, &need, &whole), EXL2_ERR_FORMAT);
    CHECK_INT(ask(json, sizeof json, "/0", NULL, 0, &need, &whole), EXL2_ERR_FORMAT);
    size_t bytes = 0;
    for (int i = 0; i < 128; i++, bytes += 6) { /* 256 levels of arrays and objects */
        memcpy(json + bytes, "[{\"a\":", 6);
    }
    json[bytes++] = '7';
    for (int i = 0; i < 128; i++, bytes += 2) {
        memcpy(json + bytes, "}]", 2);
    }
    CHECK_INT(ask(json, bytes, "", out, sizeof out, &need, &whole), EXL2_OK);
    CHECK(need == bytes && whole && memcmp(out, json, bytes) == 0);
    json[bytes - 1] = '}';
    CHECK_INT(ask(json, bytes, "", out, sizeof out, &need, &whole), EXL2_ERR_FORMAT);
}

/* ---- generated documents ---- */

/* A piece of a document that is either complete or missing. */
typedef struct atom {
    /* An atom counts as present once this many bytes of the document have arrived. */
    size_t end, settled;
    char text[4];           /* its meaning inside a string */
    uint32_t bytes;
} atom;

typedef struct document {
    char json[DOC_BYTES];
    atom atoms[DOC_BYTES];
    /* The target's atoms are [first, last); its bytes are [begin, ends). It is complete once whole_at bytes have
       arrived. unsettled: a high surrogate waits for the bytes that follow. */
    size_t bytes, count, first, last;
    size_t begin, ends;
    size_t whole_at;
    bool is_text, unsettled;
    char path[512];
} document;

/* Appends source text: one atom. */
static void put(document *d, const char *source, size_t bytes, const char *text, uint32_t text_bytes)
{
    memcpy(d->json + d->bytes, source, bytes);
    d->bytes += bytes;
    atom *a = &d->atoms[d->count++];
    *a = (atom){ d->bytes, d->bytes, { 0 }, text_bytes };
    if (text_bytes) {
        memcpy(a->text, text, text_bytes);
    }
    /* no low surrogate follows: known at the first byte that follows, or for \uXXXX at its last byte */
    if (d->unsettled) {
        bool escape = source[0] == '\\';
        a[-1].settled = d->bytes - bytes + (!escape ? 1 : source[1] == 'u' ? 6 : 2);
        d->unsettled = false;
    }
}

static void put_mark(document *d, char c)
{
    put(d, &c, 1, NULL, 0);
    while (draw(6) == 0) {
        put(d, &" \n\t\r"[draw(4)], 1, NULL, 0);
    }
}

/* A string of random code points, each written in one of the possible ways. With `name`, one of a fixed set of
   texts. */
static void put_string(document *d, const char *name, bool target)
{
    static const struct { const char *source, *text; } units[] = {
        { "a", "a" }, { "Z", "Z" }, { " ", " " }, { "/", "/" }, { "{", "{" }, { "]", "]" }, { ":", ":" }, { ",", "," },
        { "\\n", "\n" }, { "\\\"", "\"" }, { "\\\\", "\\" }, { "\\/", "/" }, { "\\u0041", "A" }, { "\\b", "\b" },
        { "\\u00E9", "\xC3\xA9" }, { "\xC3\xA9", "\xC3\xA9" }, { "\\u20aC", "\xE2\x82\xAC" },
        { "\xE2\x82\xAC", "\xE2\x82\xAC" }, { SMILE, SMILE }, { "\\uD83d\\uDe00", SMILE }, { "\\udbff\\udfff",
        "\xF4\x8F\xBF\xBF" }, { "\\uDC00", BAD_CHAR }, { "\\uD800", BAD_CHAR }, { "\\uDBFF", BAD_CHAR },
        { "\x7F", "\x7F" }, { "\\u001f", "\x1F" }, { "lantern", NULL },
    };
    put(d, "\"", 1, NULL, 0);
    d->first = target ? d->count : d->first;
    for (size_t i = 0; name && name[i]; i++) {
        char escape[16];
        bool plain = draw(3) != 0;
        snprintf(escape, sizeof escape, "\\u%04x", (unsigned)(uint8_t)name[i]);
        put(d, plain ? &name[i] : escape, plain ? 1 : 6, &name[i], 1);
    }
    for (uint32_t n = name ? 0 : draw(9); n > 0; n--) {
        uint32_t u = draw(EXL2__COUNT(units));
        const char *source = units[u].source, *text = units[u].text;
        bool high = strncmp(source, "\\uD800", 6) == 0 || strcmp(source, "\\uDBFF") == 0;
        bool low = strcmp(source, "\\uDC00") == 0;
        if (low && d->unsettled) {
            continue; /* the two would form a surrogate pair */
        }
        for (size_t i = 0; !text && source[i]; i++) {
            put(d, source + i, 1, source + i, 1);
        }
        if (text) {
            put(d, source, strlen(source), text, (uint32_t)strlen(text));
            d->unsettled = high;
        }
    }
    put(d, "\"", 1, NULL, 0); /* also settles a high surrogate that waits */
    if (target) {
        d->last = d->count - 1;
        d->is_text = true;
    }
}

static void put_scalar(document *d)
{
    static const char *const words[] = { "true", "false", "null", "0", "-0", "17", "-1.5", "2e9", "0.25E-3", "1e+0" };
    const char *word = words[draw(EXL2__COUNT(words))];
    for (size_t i = 0; word[i]; i++) {
        put(d, word + i, 1, NULL, 0);
    }
}

/* A value. If `target` is set and no deeper value is chosen, this value is the one that the path leads to. */
static void put_value(document *d, uint32_t depth, bool target)
{
    uint32_t kind = depth == 0 ? draw(10) % 3 : depth < 5 ? draw(5) : 2 + draw(3);
    uint32_t count = draw(5), chosen = count ? draw(count) : 0;
    bool deeper = target && kind < 2 && count > 0 && draw(8) > 0, ours = target && !deeper;
    size_t begin = d->bytes, first = d->count;
    if (kind < 2) {
        put_mark(d, kind ? '[' : '{');
        for (uint32_t i = 0; i < count; i++) {
            char name[16], *path = d->path + strlen(d->path);
            snprintf(name, sizeof name, "%s%u", i % 2 ? "ke/y~" : "say", i);
            if (deeper && i == chosen && kind) {
                snprintf(path, 24, "/%u", i);
            } else if (deeper && i == chosen) {
                snprintf(path, 24, i % 2 ? "/ke~1y~0%u" : "/say%u", i);
            }
            if (kind == 0) {
                put_string(d, name, false);
                put_mark(d, ':');
            }
            put_value(d, depth + 1, deeper && i == chosen);
            if (i + 1 < count) {
                put_mark(d, ',');
            }
        }
        put(d, kind ? "]" : "}", 1, NULL, 0);
    } else if (kind == 2) {
        put_scalar(d);
    } else {
        put_string(d, NULL, ours);
    }
    if (ours) {
        bool number = kind == 2 && strchr("-0123456789", d->json[begin]);
        d->begin = begin;
        d->ends = d->bytes;
        d->whole_at = d->bytes + number;
        d->first = d->is_text ? d->first : first;
        d->last = d->is_text ? d->last : d->count;
    }
    while (draw(8) == 0) {
        put(d, " ", 1, NULL, 0);
    }
}

static void make(document *d)
{
    memset(d, 0, sizeof *d);
    while (draw(4) == 0) {
        put(d, "\n", 1, NULL, 0);
    }
    put_value(d, 0, true);
    put(d, " ", 1, NULL, 0);
}

/* What must be known of the target when `bytes` of the document have arrived. */
static size_t known(const document *d, size_t bytes, char *out)
{
    size_t used = 0;
    for (size_t i = d->first; i < d->last; i++) {
        const atom *a = &d->atoms[i];
        if (a->settled > bytes) {
            break;
        }
        if (d->is_text) {
            memcpy(out + used, a->text, a->bytes);
            used += a->bytes;
        } else {
            used = a->end - d->begin;
        }
    }
    if (!d->is_text) {
        memcpy(out, d->json + d->begin, used);
    }
    return used;
}

static void check_made(uint32_t count)
{
    static document d;
    static char out[DOC_BYTES], wanted[DOC_BYTES];
    uint32_t texts = 0, deep = 0;
    for (uint32_t n = 0; n < count; n++) {
        make(&d);
        texts += d.is_text;
        deep += d.path[0] && strchr(d.path + 1, '/');
        for (size_t bytes = 0; bytes <= d.bytes; bytes++) {
            size_t need = 0, want = known(&d, bytes, wanted);
            bool whole = false;
            exl2_result r = ask(d.json, bytes, d.path, out, sizeof out, &need, &whole);
            bool good = r == EXL2_OK && need == want && memcmp(out, wanted, want) == 0 && out[need] == 0
                     && whole == (bytes >= d.whole_at);
            if (!CHECK(good)) {
                printf("  %s of %.*s: %s, %zu bytes \"%s\", wanted %zu \"%.*s\"\n", d.path, (int)bytes, d.json,
                       exl2_result_name(r), need, out, want, (int)want, wanted);
                return;
            }
        }
    }
    CHECK(texts > count / 10 && deep > count / 10); /* enough of the documents test what they are meant to test */
}

/* ---- damaged documents ---- */

static bool parses(const char *json, size_t bytes)
{
    exl2__json_scan scan = { 0 };
    scan.text = (const uint8_t *)json;
    scan.bytes = (uint32_t)bytes;
    return exl2__json_scan_all(&scan);
}

/* Can json[0, bytes) be completed to valid JSON? Tries every possible continuation: the rest of an escape, of a code
   point, or of a word; then a quote; then a colon, a key, or a value; then the closing brackets. */
static bool can_end(const char *json, size_t bytes)
{
    static const char *const pieces[] = { "", "n", "0", "00", "000", "0000", "u0000", "\x80", "\x80\x80",
        "\x80\x80\x80", "\xA0\x80", "\x90\x80\x80", "rue", "ue", "e", "alse", "lse", "se", "ull", "ll", "l" };
    static const char *const quotes[] = { "", "\"" };
    static const char *const values[] = { "", "0", ":0", "\"\":0" };
    char text[DOC_BYTES + 128], closers[64];
    size_t open = 0;
    bool quoted = false;
    for (size_t i = 0; i < bytes; i++) { /* enough for a text that is valid so far */
        if (quoted && json[i] == '\\') {
            i++;
        } else if (quoted) {
            quoted = json[i] != '"';
        } else if (json[i] == '"') {
            quoted = true;
        } else if (json[i] == '{' || json[i] == '[') {
            closers[open++] = json[i] == '{' ? '}' : ']';
        } else if ((json[i] == '}' || json[i] == ']') && open) {
            open--;
        }
        if (open == sizeof closers) {
            return false;
        }
    }
    memcpy(text, json, bytes);
    for (size_t i = 0; i < EXL2__COUNT(pieces) * 2 * EXL2__COUNT(values); i++) {
        size_t used = bytes + (size_t)snprintf(text + bytes, 64, "%s%s%s", pieces[i / 8], quotes[i / 4 % 2],
                                               values[i % 4]);
        for (size_t k = open; k > 0; k--) {
            text[used++] = closers[k - 1];
        }
        if (parses(text, used)) {
            return true;
        }
    }
    return false;
}

static void damage(document *d)
{
    static const char bytes[] = "\"\\{}[],:0-.eu \n\x80\xC3\xF0tn";
    for (uint32_t n = 1 + draw(3); n > 0 && d->bytes > 1; n--) {
        size_t at = draw((uint32_t)d->bytes);
        if (draw(2)) {
            d->json[at] = bytes[draw(sizeof bytes - 1)];
        } else {
            memmove(d->json + at, d->json + at + 1, d->bytes - at - 1);
            d->bytes--;
        }
    }
}

/* FORMAT is returned exactly from the first byte on after which no JSON can follow. A longer prefix only extends the
   text that a shorter one gave. */
static void check_damaged(uint32_t count)
{
    static document d;
    static char out[2][DOC_BYTES];
    uint32_t refused = 0;
    for (uint32_t n = 0; n < count; n++) {
        do {
            make(&d);
        } while (d.bytes > 200);
        damage(&d);
        size_t need[2] = { 0 }, bad = SIZE_MAX;
        bool whole[2] = { false };
        for (size_t bytes = 0; bytes <= d.bytes; bytes++) {
            size_t now = bytes % 2, before = 1 - now;
            exl2_result r = ask(d.json, bytes, d.path, out[now], DOC_BYTES, &need[now], &whole[now]);
            CHECK(need[now] >= need[before] && memcmp(out[now], out[before], need[before]) == 0);
            CHECK(whole[now] || !whole[before]);
            CHECK(!whole[before] || need[now] == need[before]);
            CHECK(exl2__unicode_valid(out[now], need[now]));
            CHECK(r == EXL2_ERR_FORMAT || (r == EXL2_OK && bad == SIZE_MAX));
            bad = r == EXL2_OK || bad != SIZE_MAX ? bad : bytes;
        }
        size_t good = bad == SIZE_MAX ? d.bytes : bad - 1;
        bool held = can_end(d.json, good) && (bad == SIZE_MAX || !can_end(d.json, bad));
        if (!CHECK(held)) {
            printf("  good: %.*s\n  bad: %.*s\n", (int)good, d.json, bad == SIZE_MAX ? 0 : (int)bad, d.json);
            return;
        }
        refused += bad != SIZE_MAX;
    }
    CHECK(refused > count / 3 && refused < count);
}

int main(void)
{
    check_rows();
    check_buffers();
    check_depth();
    check_made(CHECK_SANITIZED ? 300 : 3000);
    check_damaged(CHECK_SANITIZED ? 200 : 1500);
    return check_done();
}

/* encode.c: encoding against ids of the tokenizers library (tests/golden/README.md), forged markers, invalid UTF-8,
   time and memory. */
#include "../text_goldens.h"
#include "../text_pipelines.h"
#include "../text_tokenizer.h"

static int encode_rows(exl2__ctx *c, exl2__vocab *v, const char *path)
{
    rows_state s = { c, v, path };
    return rows_each(c, path, encode_row, &s);
}

/* The ids of a text, as "1 2 3". */
static const char *ids_of(exl2__ctx *c, exl2__vocab *v, const char *text, const uint8_t *marks, uint32_t flags)
{
    static char line[1024];
    rows_state s = { c, v, "" };
    exl2_token *ids;
    size_t count = encode(&s, text, strlen(text), marks, flags, &ids), used = 0;
    line[0] = 0;
    for (size_t i = 0; i < count && used + 16 < sizeof line; i++) {
        used += (size_t)snprintf(line + used, sizeof line - used, i ? " %d" : "%d", ids[i]);
    }
    free(ids);
    return line;
}

/* Special tokens that a message forges stay text. Those of the template around the message do not. */
static void check_messages(exl2__ctx *c, exl2__vocab *v)
{
    const char *text = "<|im_start|>a<|im_end|>b<|im_end|>";
    char parsed[256], plain[256], mixed[1024];
    snprintf(parsed, sizeof parsed, "%s", ids_of(c, v, "<|im_end|>", NULL, 0));
    CHECK_TEXT(parsed, "2");
    snprintf(plain, sizeof plain, "%s", ids_of(c, v, "a<|im_end|>b", NULL, EXL2_TEXT_PLAIN));
    CHECK(strstr(plain, " 2 ") == NULL);
    uint8_t marks[5] = { 0 };
    for (int i = 12; i < 24; i++) {
        marks[i / 8] = (uint8_t)(marks[i / 8] | 1 << i % 8);
    }
    snprintf(mixed, sizeof mixed, "1 %s 2", plain);
    CHECK_TEXT(ids_of(c, v, text, marks, 0), mixed);
    memset(marks, 0, sizeof marks);
    marks[22 / 8] = 1 << 22 % 8; /* one marked byte in the marker is enough */
    CHECK_TEXT(ids_of(c, v, text, marks, 0), mixed);
    /* a marker that begins in the template and ends in the message counts as forged */
    marks[22 / 8] = 0;
    marks[33 / 8] = 1 << 33 % 8;
    CHECK(strcmp(ids_of(c, v, text, marks, 0) + strlen(ids_of(c, v, text, marks, 0)) - 2, " 2") != 0);
}

static void check_invalid(exl2__ctx *c, exl2__vocab *v)
{
    static const char *const pairs[][2] = {
        { "a\xFF" "b", "a\xEF\xBF\xBD" "b" },
        { "\xF0\x9F\x99", "\xEF\xBF\xBD" },
        { "\xF0\x9F\x99 x", "\xEF\xBF\xBD x" },
        { "\xC0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD" },
        { "\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD" },
        { "x\xE2\x82<|im_end|>", "x\xEF\xBF\xBD<|im_end|>" },
    };
    for (size_t i = 0; i < EXL2__COUNT(pairs); i++) {
        char wanted[512];
        snprintf(wanted, sizeof wanted, "%s", ids_of(c, v, pairs[i][1], NULL, 0));
        CHECK_TEXT(ids_of(c, v, pairs[i][0], NULL, 0), wanted);
    }
    /* marks move with their bytes: x E2 82 becomes x U+FFFD, three bytes become four */
    uint8_t marks[2] = { 0, 0 }, wanted_marks[2] = { 0, 0 };
    marks[0] = 1 << 3;
    wanted_marks[0] = 1 << 4;
    char wanted[512];
    snprintf(wanted, sizeof wanted, "%s", ids_of(c, v, pairs[5][1], wanted_marks, 0));
    CHECK_TEXT(ids_of(c, v, pairs[5][0], marks, 0), wanted);
    CHECK(strstr(wanted, " 2") == NULL || strcmp(strstr(wanted, " 2"), " 2") != 0);
}

/* Rules that SmolLM2's file does not use; the ids are those of the tokenizers library. */
static void check_small(exl2__ctx *c)
{
#define WORDS "{\"a\":0,\"b\":1,\"c\":2,\"abc\":3,\"bc\":4,\"\\u0120\":5,\"\\u0120abc\":6}"
#define PREFIX "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"
#define TOKEN(id, content, flag) "{\"id\":" #id ",\"content\":\"" content "\",\"normalized\":false,\"" flag "\":true}"
    static const struct {
        tokenizer_parts parts;
        const char *text, *ids;
    } rows[] = {
        { { 0 }, "abc abab", "4 5 3 3" },
        { { 0 }, "axxb", "3" }, /* bytes without a token are dropped before merging */
        { { 0 }, "cab a", "2 3 6" },
        { { .options = ",\"unk_token\":\"c\"" }, "axxb", "0 2 2 1" },
        { { .options = ",\"unk_token\":\"c\"" }, "\xC3\xA9" "a", "2 2 0" },
        { { .options = ",\"unk_token\":\"c\",\"fuse_unk\":true" }, "axxb", "0 2 1" },
        { { .options = ",\"unk_token\":\"c\",\"fuse_unk\":true" }, "\xC3\xA9" "a x xx", "2 0 5 2 5 2" },
        { { .vocab = WORDS, .merges = "[\"b c\",\"a bc\",\"b c\"]" }, "abc", "3" },
        { { .vocab = "{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"bc\":4,\"\\u0120\":5}",
            .merges = "[\"a b\",\"b c\",\"a b\"]" }, "abc", "0 4" },
        { { .merges = "[\"#version: 0.2\",\"a b\",\"ab c\"]" }, "abc", "4" },
        { { .merges = "[[\"a\",\"b\"],[\"ab\",\"c\"]]" }, "abc ab", "4 5 3" },
        { { .vocab = WORDS, .merges = "[\"b c\"]" }, "abc abc", "0 4 5 0 4" },
        { { .vocab = WORDS, .merges = "[\"b c\"]", .options = ",\"ignore_merges\":true" }, "abc abc", "3 6" },
        { { .vocab = WORDS, .merges = "[\"b c\"]", .options = ",\"ignore_merges\":true" }, "abcb bc", "0 4 1 5 4" },
        { { .vocab = WORDS, .merges = "[\"b c\"]", .options = ",\"ignore_merges\":true", .pre_tokenizer = PREFIX },
          "abc abc", "6 6" },
        { { .vocab = WORDS, .merges = "[\"b c\"]", .options = ",\"ignore_merges\":true", .pre_tokenizer = PREFIX },
          "bc", "5 4" },
        /* the search continues after the token, not after the space that rstrip consumed */
        { { .added = "[" TOKEN(7, "<x>", "rstrip") "," TOKEN(8, " a", "x") "," TOKEN(9, "<y>", "lstrip") "]" },
          "<x>  abc", "7 8 1 2" },
        { { .added = "[" TOKEN(7, "<x>", "rstrip") "," TOKEN(8, " a", "x") "," TOKEN(9, "<y>", "lstrip") "]" },
          "<x>  a a", "7 8 8" },
        { { .added = "[" TOKEN(7, "<x>", "rstrip") "," TOKEN(8, " a", "x") "," TOKEN(9, "<y>", "lstrip") "]" },
          "a  <y>b <x> <y>", "0 9 1 5 7 9" },
        /* tokens with normalized = false are cut out first, wherever they occur */
        { { .added = "[" TOKEN(7, "bc", "x") ",{\"id\":8,\"content\":\"ab\"},{\"id\":9,\"content\":\"abca\"}]" },
          "abca", "0 7 0" },
    };
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        rows_folder folder = { tokenizer_text(rows[i].parts), NULL, 0, 0, 0, 0 };
        exl2__vocab v;
        c->files = rows_files(&folder);
        if (!CHECK(vocab_open(c, "memory", &v) == EXL2_OK) ||
            !CHECK_TEXT(ids_of(c, &v, rows[i].text, NULL, 0), rows[i].ids)) {
            printf("    row %zu: %s\n", i, c->error.text);
        }
        exl2__vocab_close(c, &v);
    }
}

/* How often the id occurs in the encoding; bytes [begin, end) of the text come from a message. */
static int times(exl2__ctx *c, exl2__vocab *v, const char *text, size_t begin, size_t end, uint32_t flags,
                 exl2_token id)
{
    rows_state s = { c, v, "" };
    uint8_t marks[8] = { 0 };
    exl2_token *ids;
    int found = 0;
    for (size_t i = begin; i < end; i++) {
        marks[i / 8] = (uint8_t)(marks[i / 8] | 1 << i % 8);
    }
    size_t count = encode(&s, text, strlen(text), marks, flags, &ids);
    for (size_t i = 0; i < count; i++) {
        found += ids[i] == id;
    }
    free(ids);
    return found;
}

/* No way of splitting or rewriting text makes a special token from plain text or from a message's text. */
static void check_forged(exl2__ctx *c)
{
    static const struct {
        const char *normalizer, *content, *text;
        size_t begin, end; /* bytes of the message; a marker written as text is not complete without them */
    } rows[] = {
        { "{\"type\":\"Lowercase\"}", "<e>", "a<E>b", 2, 3 },
        { "{\"type\":\"NFC\"}", "<\xC3\xA9>", "a<e\xCC\x81>", 3, 5 },
        { "{\"type\":\"NFD\"}", "<\xC3\xA9>", "a<\xC3\xA9>", 2, 4 },
        { "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"q+\"},\"content\":\"<e>\"}", "<e>", "aqqqb", 3, 4 },
        { "{\"type\":\"Replace\",\"pattern\":{\"String\":\"qq\"},\"content\":\"e\"}", "<e>", "a<qq>b", 3, 4 },
        { "{\"type\":\"Prepend\",\"prepend\":\"a\"}", "<e>", "<e>", 1, 2 },
        { "{\"type\":\"Strip\"}", "<e>", " <e> ", 3, 4 }
    };
    exl2__vocab v;
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        char added[128];
        snprintf(added, sizeof added, "[{\"id\":9,\"content\":\"%s\",\"special\":true,\"normalized\":true}]",
                 rows[i].content);
        rows_folder folder = { tokenizer_text((tokenizer_parts){ .added = added, .normalizer = rows[i].normalizer }),
                               NULL, 0, 0, 0, 0 };
        c->files = rows_files(&folder);
        CHECK(vocab_open(c, "memory", &v) == EXL2_OK);
        if (!CHECK_INT(times(c, &v, rows[i].text, 0, 0, 0, 9), 1) ||
            !CHECK_INT(times(c, &v, rows[i].text, rows[i].begin, rows[i].end, 0, 9), 0) ||
            !CHECK_INT(times(c, &v, rows[i].text, 0, *rows[i].text != '<', 0, 9), 1) || /* with text next to it */
            !CHECK_INT(times(c, &v, rows[i].text, 0, 0, EXL2_TEXT_PLAIN, 9), 0)) {
            printf("    %s\n", rows[i].normalizer);
        }
        exl2__vocab_close(c, &v);
    }
    for (int i = 0; i < PIPELINES; i++) {
        const char *text = "a<e>b <e> a";
        rows_folder folder = { pipeline_text(i), NULL, 0, 0, 0, 0 };
        c->files = rows_files(&folder);
        CHECK(vocab_open(c, "memory", &v) == EXL2_OK);
        int all = pipelines[i].added && !*pipelines[i].added ? 0 : 2; /* one of the pipelines has no added tokens */
        CHECK_INT(times(c, &v, text, 0, 0, 0, 300), all);
        CHECK_INT(times(c, &v, text, 3, 4, 0, 300), all / 2);
        CHECK_INT(times(c, &v, text, 0, 11, 0, 300), 0);
        CHECK_INT(times(c, &v, text, 0, 0, EXL2_TEXT_PLAIN, 300), 0);
        exl2__vocab_close(c, &v);
    }
}

/* The time for long inputs of the worst kinds is nearly linear. Ordinary text allocates nothing. */
static void check_limits(exl2__ctx *c, exl2__vocab *v)
{
    static const char *const kinds[] = { "a", " ", "<", "<|im_end|", "\n ", "\xE4\xBD\xA0", "The cat sat. " };
    size_t size = 1 << 20, need;
    char *text = malloc(size + 16);
    for (size_t k = 0; k < EXL2__COUNT(kinds); k++) {
        size_t unit = strlen(kinds[k]), bytes = 0;
        for (; bytes < size; bytes += unit) {
            memcpy(text + bytes, kinds[k], unit);
        }
        uint64_t before = c->allocations;
        double start = check_cpu_seconds();
        CHECK(exl2__encode(c, v, text, bytes, NULL, 0, NULL, 0, &need) == EXL2_ERR_TOO_SMALL);
        double seconds = check_cpu_seconds() - start;
        printf("1 MiB of \"%s\": %zu tokens, %.3f s, %.1f MB/s\n", k == 4 ? "\\n " : kinds[k], need, seconds,
               1.048576 / seconds);
        CHECK(seconds < 20); /* quadratic time would be hours; sanitizers are slow */
        if (k == 3 || k == 6) {
            CHECK_INT(c->allocations, before);
        }
    }
    free(text);
}

/* The same for every small tokenizer. 1 KiB of any input allocates nothing. */
static void check_pipelines(exl2__ctx *c)
{
    static const char *const kinds[] = { "a", " ", "\n", "\xCC\x81", "\xE6\xBC\xA2", "ab <e> 12, " };
    size_t size = 1 << 18, need;
    char *text = malloc(size + 16);
    for (int i = 0; i < PIPELINES; i++) {
        exl2__vocab v;
        rows_folder folder = { pipeline_text(i), NULL, 0, 0, 0, 0 };
        c->files = rows_files(&folder);
        CHECK(vocab_open(c, "memory", &v) == EXL2_OK);
        for (size_t k = 0; k < EXL2__COUNT(kinds); k++) {
            size_t unit = strlen(kinds[k]), bytes = 0;
            for (; bytes < size; bytes += unit) {
                memcpy(text + bytes, kinds[k], unit);
            }
            uint64_t before = c->allocations;
            double start = check_cpu_seconds();
            CHECK(exl2__encode(c, &v, text, 1024 - 1024 % unit, NULL, 0, NULL, 0, &need) == EXL2_ERR_TOO_SMALL);
            CHECK_INT(c->allocations, before);
            CHECK(exl2__encode(c, &v, text, bytes, NULL, 0, NULL, 0, &need) == EXL2_ERR_TOO_SMALL);
            if (!CHECK(check_cpu_seconds() - start < 10)) {
                printf("    pipeline %d: \"%s\"\n", i, kinds[k]);
            }
        }
        exl2__vocab_close(c, &v);
    }
    free(text);
}

/* The growth of a text in the normalizer is limited, so that no tokenizer.json can make hours of work from a short
   message. */
static void check_growth(exl2__ctx *c)
{
#define A16 "aaaaaaaaaaaaaaaa"
#define REPLACE(pattern, by) "{\"type\":\"Replace\",\"pattern\":" pattern ",\"content\":\"" by "\"}"
#define MANY REPLACE("{\"String\":\"a\"}", A16) ","
#define SEQUENCE(steps) "{\"type\":\"Sequence\",\"normalizers\":[" steps "]}"
#define RAW_TOKEN "[{\"id\":9,\"content\":\"<e>\",\"special\":true,\"normalized\":false}]"
#define RAW_SPACE "[{\"id\":9,\"content\":\" \",\"special\":true,\"normalized\":false}]"
    static char prepend[6000] = "{\"type\":\"Prepend\",\"prepend\":\"";
    memset(prepend + strlen(prepend), 'a', 5000);
    strcat(prepend, "\"}");
    static const struct {
        const char *normalizer, *added, *unit;
        int times;
        exl2_result wanted;
    } rows[] = {
        { SEQUENCE(MANY MANY MANY MANY REPLACE("{\"String\":\"a\"}", A16)), RAW_TOKEN, "a", 2, EXL2_ERR_FORMAT },
        { REPLACE("{\"String\":\"a\"}", A16), RAW_TOKEN, "a", 5000, EXL2_ERR_TOO_SMALL },
        { REPLACE("{\"String\":\"a\"}", A16 "a"), RAW_TOKEN, "a", 4096, EXL2_ERR_TOO_SMALL }, /* just fits */
        { REPLACE("{\"String\":\"a\"}", A16 "a"), RAW_TOKEN, "a", 4097, EXL2_ERR_FORMAT },
        { REPLACE("{\"Regex\":\"a\"}", A16 A16), RAW_TOKEN, "a", 5000, EXL2_ERR_FORMAT },
        /* intermediate results count, even if nothing remains of them */
        { SEQUENCE(MANY MANY REPLACE("{\"Regex\":\"a+\"}", "b")), RAW_TOKEN, "a", 100, EXL2_ERR_FORMAT },
        /* so do the results for all gaps between tokens, each of which would pass alone */
        { SEQUENCE(MANY REPLACE("{\"String\":\"a\"}", A16)), RAW_TOKEN, "<e>a", 15, EXL2_ERR_TOO_SMALL },
        { SEQUENCE(MANY REPLACE("{\"String\":\"a\"}", A16)), RAW_TOKEN, "<e>a", 500, EXL2_ERR_FORMAT },
        { "{\"type\":\"Prepend\",\"prepend\":\"" A16 A16 A16 "\"}", RAW_SPACE, " b", 500, EXL2_ERR_FORMAT },
        { "{\"type\":\"Prepend\",\"prepend\":\"\u2581\"}", RAW_SPACE, " b", 5000, EXL2_ERR_TOO_SMALL },
        { prepend, RAW_TOKEN, "a", 1, EXL2_ERR_FORMAT },
        /* the largest growth of a real normalizer: U+FDFA becomes 18 letters, and its three spaces become U+2581 */
        { SEQUENCE("{\"type\":\"NFKC\"},{\"type\":\"Lowercase\"}," REPLACE("{\"String\":\" \"}", "\u2581")),
          RAW_TOKEN, "\xEF\xB7\xBA", 5000, EXL2_OK },
        { SEQUENCE("{\"type\":\"NFKD\"}," REPLACE("{\"Regex\":\".\"}", A16)), RAW_TOKEN, "\xEF\xB7\xBA", 500,
          EXL2_ERR_FORMAT },
        { SEQUENCE(MANY "{\"type\":\"NFC\"}," MANY MANY "{\"type\":\"Lowercase\"}"), RAW_TOKEN, "a", 4,
          EXL2_ERR_FORMAT }
    };
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        exl2__vocab v;
        size_t unit = strlen(rows[i].unit), bytes = unit * (size_t)rows[i].times, need;
        rows_folder folder = { tokenizer_text((tokenizer_parts){ .added = rows[i].added,
                                                                 .normalizer = rows[i].normalizer }),
                               NULL, 0, 0, 0, 0 };
        char *text = malloc(bytes);
        for (size_t at = 0; at < bytes; at += unit) {
            memcpy(text + at, rows[i].unit, unit);
        }
        c->files = rows_files(&folder);
        CHECK(vocab_open(c, "memory", &v) == EXL2_OK);
        uint64_t before = c->host_peak = c->host_bytes;
        bool right = CHECK_INT(exl2__encode(c, &v, text, bytes, NULL, 0, NULL, 0, &need), rows[i].wanted);
        /* the limit is noticed before more memory is allocated: two texts, with marks */
        if (rows[i].wanted == EXL2_ERR_FORMAT) {
            right = CHECK(c->host_peak - before <= 2 * exl2__normal_bytes(bytes * 16 + 4097)) && right;
            right = CHECK(strstr(c->error.text, "the normalizer makes too much of a text") != NULL) && right;
        }
        if (!right) {
            printf("    row %zu: %s\n", i, c->error.text);
        }
        exl2__vocab_close(c, &v);
        free(text);
    }
    /* added tokens are normalized when the file is read, and compared in that form */
    static const struct {
        const char *normalizer;
        exl2_result wanted;
    } loads[] = {
        { SEQUENCE(MANY REPLACE("{\"String\":\"a\"}", A16)), EXL2_OK },
        { SEQUENCE(MANY MANY REPLACE("{\"String\":\"a\"}", "a")), EXL2_OK },
        { SEQUENCE(MANY MANY REPLACE("{\"String\":\"a\"}", "aaaaa")), EXL2_ERR_UNSUPPORTED },
        { SEQUENCE(MANY MANY MANY MANY REPLACE("{\"String\":\"a\"}", A16)), EXL2_ERR_FORMAT }
    };
    for (size_t i = 0; i < EXL2__COUNT(loads); i++) {
        exl2__vocab v;
        rows_folder folder = { tokenizer_text((tokenizer_parts){ .added = "[{\"id\":9,\"content\":\"a\"}]",
                                                                 .normalizer = loads[i].normalizer }),
                               NULL, 0, 0, 0, 0 };
        c->files = rows_files(&folder);
        if (!CHECK_INT(vocab_open(c, "memory", &v), loads[i].wanted)) {
            printf("    load %zu: %s\n", i, c->error.text);
        }
        exl2__vocab_close(c, &v);
    }
}

static void check_refusals(exl2__ctx *c, exl2__vocab *v)
{
    exl2__vocab none = { 0 };
    size_t need = 5;
    CHECK(exl2__encode(c, &none, "a", 1, NULL, 0, NULL, 0, &need) == EXL2_ERR_STATE && need == 0);
    CHECK(strstr(c->error.text, "tokenizer.json") != NULL);
    /* with U+FFFD for each byte the text stays below 2^30 bytes, the most that patterns can search */
    CHECK(exl2__encode(c, v, "", ((size_t)1 << 30) / 3, NULL, 0, NULL, 0, &need) == EXL2_ERR_ARG);
    exl2_token two[2];
    CHECK(exl2__encode(c, v, "a b c d e f", 11, NULL, 0, two, 2, &need) == EXL2_ERR_TOO_SMALL);
    CHECK(need == 6 && two[0] == 81);
    /* a word longer than the vocabulary's work space, and the allocation for it fails */
    char word[EXL2__VOCAB_WORD_BYTES + 2];
    memset(word, 'a', sizeof word);
    uint64_t used = c->host_bytes;
    c->host_bytes_max = used + 100;
    CHECK(exl2__encode(c, v, word, sizeof word, NULL, 0, NULL, 0, &need) == EXL2_ERR_BUDGET);
    CHECK(exl2__encode(c, v, word, EXL2__VOCAB_WORD_BYTES, NULL, 0, NULL, 0, &need) == EXL2_ERR_TOO_SMALL);
    c->host_bytes_max = 0;
    CHECK(exl2__encode(c, v, word, sizeof word, NULL, 0, NULL, 0, &need) == EXL2_ERR_TOO_SMALL);
    CHECK_INT(c->host_bytes, used);
}

int main(void)
{
    exl2__ctx c = rows_ctx();
    exl2__vocab v;
    CHECK(vocab_open(&c, EXL2_GOLDEN_DIR "/smollm2", &v) == EXL2_OK);
    CHECK_INT(encode_rows(&c, &v, EXL2_GOLDEN_DIR "/tokenizer/encode.jsonl"), 653);
    check_messages(&c, &v);
    check_invalid(&c, &v);
    check_limits(&c, &v);
    check_refusals(&c, &v);
    exl2__vocab_close(&c, &v);
    /* add_prefix_space, a template with BOS, and added tokens with every flag */
    CHECK(vocab_open(&c, EXL2_GOLDEN_DIR "/tokenizer/prefix", &v) == EXL2_OK);
    CHECK(encode_rows(&c, &v, EXL2_GOLDEN_DIR "/tokenizer/prefix/encode.jsonl") == 270);
    exl2__vocab_close(&c, &v);
    check_small(&c);
    check_forged(&c);
    check_growth(&c);
    check_pipelines(&c);
    CHECK_INT(c.host_bytes, 0);
    return check_done();
}

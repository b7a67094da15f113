/* words.c: words compared with the pre-tokenizers of the tokenizers library (tests/golden/README.md), one scanner after
   another. */
#include "../text_rows.h"
#include "private/words.h"

/* clang-format off */
#define GPT2 { .kind = EXL2__WORDS_GPT2 }
#define CLASS(mask, how) { .kind = EXL2__WORDS_CLASS, .value = (mask), .behavior = EXL2__WORDS_##how }
/* clang-format on */
#define POINTS (EXL2__UNICODE_PUNCTUATION | EXL2__UNICODE_CONNECTOR)
/* clang-format off */
#define SPACED(mask) { .kind = EXL2__WORDS_SPACED, .value = (mask) }
/* clang-format on */
#define DIGITS(how) CLASS(EXL2__UNICODE_NUMBERS, how)

static const struct {
    char name;
    exl2__words_rules rules;
} kinds[] = {
    { 'G', { .steps = { GPT2 }, .count = 1 } },
    { 'D', { .steps = { DIGITS(ISOLATED), GPT2 }, .count = 2 } },
    { 'R', { .steps = { DIGITS(CONTIGUOUS), GPT2 }, .count = 2 } },
    { 'L', { .steps = { { .kind = EXL2__WORDS_CL100K, .value = 3 } }, .count = 1 } },
    { 'Q', { .steps = { { .kind = EXL2__WORDS_CL100K, .value = 1 } }, .count = 1 } },
    { 'T', { .steps = { { .kind = EXL2__WORDS_CASED, .value = 1 } }, .count = 1 } },
    { 'O', { .steps = { { .kind = EXL2__WORDS_CASED, .value = 16 + 3 } }, .count = 1 } },
    { 'K', { .steps = { { .kind = EXL2__WORDS_NEWLINE }, SPACED(EXL2__UNICODE_LETTER), SPACED(POINTS),
                        { .kind = EXL2__WORDS_EASTERN }, DIGITS(ISOLATED) }, .count = 5 } },
    { 'U', { .steps = { CLASS(POINTS | 1u << 16, ISOLATED), CLASS(EXL2__UNICODE_SPACE, REMOVED) }, .count = 2 } },
};

static int rows_of[EXL2__COUNT(kinds)];

static void words_row(void *user, const exl2__json *j, int line)
{
    const exl2__words_rules *rules = NULL;
    uint32_t name = exl2__json_get(j, 0, "rules"), list = exl2__json_get(j, 0, "words"), wanted = exl2__json_first(j,
            list);
    for (size_t k = 0; k < EXL2__COUNT(kinds); k++) {
        char key[2] = { kinds[k].name, 0 };
        if (exl2__json_is(j, name, key)) {
            rules = &kinds[k].rules;
            rows_of[k]++;
        }
    }
    size_t bytes, done = 0;
    char *text = rows_text(j, exl2__json_get(j, 0, "text"), &bytes);
    exl2__words words = exl2__words_of(rules, text, bytes, true);
    exl2__word word;
    bool same = true;
    while (exl2__words_next(&words, &word)) {
        size_t wanted_bytes;
        char *wanted_text = rows_text(j, wanted, &wanted_bytes);
        done = rules->steps[1].behavior == EXL2__WORDS_REMOVED ? (size_t)(word.text - text) : done;
        same = same && wanted && word.text == text + done && word.bytes == wanted_bytes && !word.lead &&
               memcmp(word.text, wanted_text, wanted_bytes) == 0;
        done += word.bytes;
        wanted = wanted ? exl2__json_next(j, list, wanted) : 0;
        free(wanted_text);
    }
    if (!CHECK(same && wanted == 0 && (done == bytes || rules->steps[1].behavior == EXL2__WORDS_REMOVED))) {
        printf("    %s:%d: \"%s\"\n", (const char *)user, line, text);
    }
    free(text);
}

/* The words of text, with '|' between them and '^' for a space that the text does not have. */
static const char *cut(const exl2__words_rules *rules, const char *text)
{
    static char line[256];
    size_t used = 0;
    exl2__words words = exl2__words_of(rules, text, strlen(text), true);
    exl2__word word;
    while (exl2__words_next(&words, &word)) {
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%s%.*s", used ? "|" : "", word.lead ? "^" : "",
                                 (int)word.bytes,
                                 word.text);
    }
    line[used] = 0;
    return line;
}

/* add_prefix_space applies to each piece that ByteLevel gets, and the pattern sees the added space. */
static void check_prefix(void)
{
    exl2__words_rules rules = { .steps = { GPT2 }, .count = 1, .prefix = EXL2__WORDS_PREFIX };
    CHECK_TEXT(cut(&rules, "ab cd"), "^ab| cd");
    CHECK_TEXT(cut(&rules, " ab"), " ab");
    CHECK_TEXT(cut(&rules, "'s it"), "^'|s| it");
    CHECK_TEXT(cut(&rules, "\n"), "^\n");
    CHECK_TEXT(cut(&rules, "\nx"), "^|\n|x");
    CHECK_TEXT(cut(&rules, "\n\nx"), "^\n|\n|x");
    CHECK_TEXT(cut(&rules, ""), "");
    rules = (exl2__words_rules){ .steps = { DIGITS(ISOLATED), GPT2 }, .count = 2, .prefix = EXL2__WORDS_PREFIX,
                                 .prefix_step = 1 };
    CHECK_TEXT(cut(&rules, "a12 b"), "^a|^1|^2| b");
    rules.count = 1;
    CHECK_TEXT(cut(&rules, "a b12"), "^a b|^1|^2");
}

/* The library's behaviors for matches: the same text with each behavior, normal and inverted. */
static void check_behaviors(void)
{
    static const char *const wanted[2][5] = {
        { "a|-|-|b|-|c|-", "a|b|c", "a-|-|b-|c-", "a|-|-b|-c|-", "a|--|b|-|c|-" },
        { "a|-|-|b|-|c|-", "-|-|-|-", "a|-|-b|-c|-", "a-|-|b-|c-", "a|--|b|-|c|-" },
    };
    for (int invert = 0; invert < 2; invert++) {
        for (int how = 0; how < 5; how++) {
            exl2__words_rules rules = { .steps = { { .kind = EXL2__WORDS_STRING, .text = "-", .value = 1 } },
                                        .count = 1 };
            rules.steps[0].behavior = (exl2__words_behavior)how;
            rules.steps[0].invert = invert;
            CHECK_TEXT(cut(&rules, "a--b-c-"), wanted[invert][how]);
        }
    }
}

/* U+2581 and the space are equivalent; the text is not split where a merge may cross the space. */
static void check_marks(void)
{
    static const uint32_t kept[8] = { 0, 1u | 1u << ('>' - 32), 0, 0, 0, 0, 0, 0 };
    exl2__words_rules rules = { .steps = { { .kind = EXL2__WORDS_MARKS } }, .count = 1,
                                .prefix = EXL2__WORDS_PREFIX_FIRST };
    CHECK_TEXT(cut(&rules, "ab cd"), "^ab| cd");
    CHECK_TEXT(cut(&rules, " ab\xE2\x96\x81  c> d"), " ab|\xE2\x96\x81| | c>| d");
    rules.steps[0].kept = kept;
    rules.prefix = EXL2__WORDS_PREFIX_MARK;
    CHECK_TEXT(cut(&rules, "\xE2\x96\x81 ab> c d"), "\xE2\x96\x81 ab> c| d");
}

int main(void)
{
    exl2__ctx c = rows_ctx();
    char path[] = EXL2_GOLDEN_DIR "/tokenizer/words.jsonl";
    rows_each(&c, path, words_row, path);
    for (size_t k = 0; k < EXL2__COUNT(kinds); k++) {
        CHECK_INT(rows_of[k], 200);
    }
    check_prefix();
    check_behaviors();
    check_marks();
    return check_done();
}

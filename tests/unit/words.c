/* Words against the pre-tokenizers of the tokenizers library (tests/golden/README.md), one scanner after another. */
#include "../text_rows.h"
#include "../../exl2_impl/6_text/words.h"

static const struct {
    char name;
    exl2__words_rules rules;
} kinds[] = {
    { 'G', { EXL2__WORDS_WHOLE, 0, true, false } },
    { 'D', { EXL2__WORDS_DIGITS, 0, true, false } },
    { 'R', { EXL2__WORDS_DIGIT_RUNS, 0, true, false } },
    { 'L', { EXL2__WORDS_CL100K, 3, false, false } },
    { 'Q', { EXL2__WORDS_CL100K, 1, false, false } },
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
    exl2__words words = exl2__words_of(rules, text, bytes);
    exl2__word word;
    bool same = true;
    while (exl2__words_next(&words, &word)) {
        size_t wanted_bytes;
        char *wanted_text = rows_text(j, wanted, &wanted_bytes);
        same = same && wanted && word.text == text + done && word.bytes == wanted_bytes && !word.lead &&
               memcmp(word.text, wanted_text, wanted_bytes) == 0;
        done += word.bytes;
        wanted = wanted ? exl2__json_next(j, list, wanted) : 0;
        free(wanted_text);
    }
    if (!CHECK(same && wanted == 0 && done == bytes)) {
        printf("    %s:%d: \"%s\"\n", (const char *)user, line, text);
    }
    free(text);
}

/* Words of text, '|' between them and '^' for a space that the text does not have. */
static const char *cut(const exl2__words_rules *rules, const char *text)
{
    static char line[256];
    size_t used = 0;
    exl2__words words = exl2__words_of(rules, text, strlen(text));
    exl2__word word;
    while (exl2__words_next(&words, &word)) {
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%s%.*s", used ? "|" : "", word.lead ? "^" : "",
                                 (int)word.bytes,
                                 word.text);
    }
    line[used] = 0;
    return line;
}

/* add_prefix_space works on each piece that ByteLevel gets, and the pattern sees the space. */
static void check_prefix(void)
{
    exl2__words_rules rules = { EXL2__WORDS_WHOLE, 0, true, true };
    CHECK_TEXT(cut(&rules, "ab cd"), "^ab| cd");
    CHECK_TEXT(cut(&rules, " ab"), " ab");
    CHECK_TEXT(cut(&rules, "'s it"), "^'|s| it");
    CHECK_TEXT(cut(&rules, "\n"), "^\n");
    CHECK_TEXT(cut(&rules, "\nx"), "^|\n|x");
    CHECK_TEXT(cut(&rules, "\n\nx"), "^\n|\n|x");
    CHECK_TEXT(cut(&rules, ""), "");
    rules.split = EXL2__WORDS_DIGITS;
    CHECK_TEXT(cut(&rules, "a12 b"), "^a|^1|^2| b");
    rules.gpt2 = false;
    CHECK_TEXT(cut(&rules, "a b12"), "^a b|^1|^2");
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
    return check_done();
}

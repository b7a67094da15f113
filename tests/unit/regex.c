/* regex.c: regular expressions compared with the Split of the tokenizers library (tests/golden/README.md), the
   hand-written scanners compared with the patterns that they replace, rejected patterns, and time. */
#include "../text_rows.h"
#include "private/regex_parse.h"
#include "private/words.h"

static exl2__regex_parser parser;
static int rows, refused;

/* Compiles into memory of its own; NULL if the pattern is rejected. */
static exl2__regex *compiled(const char *pattern, size_t bytes, exl2__arena *memory)
{
    if (!exl2__regex_parse(&parser, pattern, bytes)) {
        return NULL;
    }
    exl2__arena dry = { 0 };
    exl2__regex_copy(&parser, &dry);
    *memory = (exl2__arena){ malloc(dry.used), dry.used, 0, EXL2_MEM_GENERAL };
    exl2__regex *regex = exl2__regex_copy(&parser, memory);
    CHECK(regex && memory->used == memory->size && regex->order_count <= regex->count);
    return regex;
}

static void regex_row(void *user, const exl2__json *j, int line)
{
    size_t bytes, pattern_bytes, done = 0;
    char *text = rows_text(j, exl2__json_get(j, 0, "text"), &bytes);
    char *pattern = rows_text(j, exl2__json_get(j, 0, "pattern"), &pattern_bytes);
    uint32_t list = exl2__json_get(j, 0, "words"), wanted = exl2__json_first(j, list);
    exl2__arena memory = { 0 };
    exl2__words_rules rules = { .steps = { { .kind = EXL2__WORDS_REGEX } }, .count = 1 };
    rules.steps[0].regex = compiled(pattern, pattern_bytes, &memory);
    if (rules.steps[0].regex) {
        exl2__words words = exl2__words_of(&rules, text, bytes, true);
        exl2__word word;
        bool same = true;
        while (exl2__words_next(&words, &word)) {
            size_t wanted_bytes;
            char *wanted_text = rows_text(j, wanted, &wanted_bytes);
            same = same && wanted && word.text == text + done && word.bytes == wanted_bytes &&
                   memcmp(word.text, wanted_text, wanted_bytes) == 0;
            done += word.bytes;
            wanted = wanted ? exl2__json_next(j, list, wanted) : 0;
            free(wanted_text);
        }
        if (!CHECK(same && wanted == 0 && done == bytes)) {
            printf("    %s:%d: %s on \"%s\"\n", (const char *)user, line, pattern, text);
        }
        rows++;
    } else {
        refused++;
        printf("%s:%d: refused: it has %s\n", (const char *)user, line, parser.rejected);
    }
    free(memory.base);
    free(pattern);
    free(text);
}

/* Splits each golden text of words.jsonl with every pattern of words.h and with its scanner. */
static void scanner_row(void *user, const exl2__json *j, int line)
{
    exl2__regex *const *programs = user;
    size_t bytes;
    char *text = rows_text(j, exl2__json_get(j, 0, "text"), &bytes);
    for (size_t i = 0; i < EXL2__COUNT(exl2__words_patterns); i++) {
        exl2__words_rules scan = { .steps = { { .kind = exl2__words_patterns[i].kind,
                                                .value = exl2__words_patterns[i].value } }, .count = 1 };
        exl2__words_rules match = { .steps = { { .kind = EXL2__WORDS_REGEX, .regex = programs[i] } }, .count = 1 };
        exl2__words a = exl2__words_of(&scan, text, bytes, true), b = exl2__words_of(&match, text, bytes, true);
        exl2__word x, y;
        bool more = true;
        while (more) {
            more = exl2__words_next(&a, &x);
            if (!CHECK(exl2__words_next(&b, &y) == more && (!more || (x.text == y.text && x.bytes == y.bytes)))) {
                printf("    words.jsonl:%d, pattern %zu: \"%s\"\n", line, i, text);
                break;
            }
        }
    }
    free(text);
}

static void check_scanners(exl2__ctx *c)
{
    exl2__regex *programs[EXL2__COUNT(exl2__words_patterns)];
    exl2__arena memory[EXL2__COUNT(exl2__words_patterns)];
    for (size_t i = 0; i < EXL2__COUNT(exl2__words_patterns); i++) {
        const char *text = exl2__words_patterns[i].text;
        programs[i] = compiled(text, strlen(text), &memory[i]);
        if (!CHECK(programs[i] != NULL)) {
            printf("    %s: %s\n", text, parser.rejected);
            return;
        }
    }
    CHECK_INT(rows_each(c, EXL2_GOLDEN_DIR "/tokenizer/words.jsonl", scanner_row, programs), 1800);
    for (size_t i = 0; i < EXL2__COUNT(exl2__words_patterns); i++) {
        free(memory[i].base);
    }
}

static void check_refused(void)
{
    static const char *const cases[][2] = {
        { "", "empty" }, { "a*", "empty" }, { "(?=a)", "empty" }, { "(a*)*b", "empty" }, { "(a|b", "without its )" },
        { "a)", "without its (" }, { "[a", "without its ]" }, { "[[:punct:]]", "[:...:]" }, { "[a&&b]", "&&" },
        { "(?<=a)b", "other than" }, { "(?<!a)b", "other than" }, { "(?>a)b", "other than" }, { "\\bx", "escape" },
        { "\\p{Han}", "property" }, { "\\pL", "property" }, { "\\p{L", "property" },
        { "(ab)++", "after more than one character" },
        { "*a", "nothing" }, { "a{300}", "too large a count" }, { "a{3,2}", "m > n" },
        { "[b-a]", "ends before it begins" },
        { "(?i)\xC3\xA9", "above U+007F" }, { "(?i:\\p{Lu})", "class of letters" }, { "a\\", "escape" },
        { "\\x", "escape" }, { "a{2}?", "{n}?" }, { "\\1", "escape" }, { "[a[^\xE6\xBC\xA2]]", "class" },
        { "((((((((((((((((((a))))))))))))))))))", "groups nested too deeply" },
        { "[[[[[[[[[[[[[[[[[[a]]]]]]]]]]]]]]]]]]", "nested too deeply" }
    };
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        bool parsed = exl2__regex_parse(&parser, cases[i][0], strlen(cases[i][0]));
        if (!CHECK(!parsed && parser.rejected && strstr(parser.rejected, cases[i][1]))) {
            printf("    %s: %s\n", cases[i][0], parsed ? "not refused" : parser.rejected);
        }
    }
    char *many = malloc(4096);
    memset(many, 'a', 4096);
    CHECK(!exl2__regex_parse(&parser, many, 4096) && strstr(parser.rejected, "too many characters"));
    free(many);
}

/* Texts that make backtracking matchers read the rest of the text again and again. */
static void check_time(void)
{
    static const char *const patterns[] = { "a+b|a", "(?:a|aa)+b|.", "a(?=a*b)|a", "\\s+(?!\\S)|\\s+|a",
                                            "(?:a|a?a){20}b|." };
    static const char *const units[] = { "a", " ", "\xCC\x81", "\xE6\xBC\xA2" };
    char *text = malloc((1 << 20) + 4);
    for (size_t p = 0; p < EXL2__COUNT(patterns); p++) {
        for (size_t u = 0; u < EXL2__COUNT(units); u++) {
            size_t unit = strlen(units[u]), bytes = 0, words = 0;
            for (; bytes < 1 << 20; bytes += unit) {
                memcpy(text + bytes, units[u], unit);
            }
            exl2__arena memory;
            exl2__words_rules rules = { .steps = { { .kind = EXL2__WORDS_REGEX } }, .count = 1 };
            rules.steps[0].regex = compiled(patterns[p], strlen(patterns[p]), &memory);
            double start = check_cpu_seconds();
            exl2__words walk = exl2__words_of(&rules, text, bytes, true);
            exl2__word word;
            while (exl2__words_next(&walk, &word)) {
                words++;
            }
            double seconds = check_cpu_seconds() - start;
            if (!CHECK(words > 0 && seconds < 5)) { /* includes sanitizers; quadratic time would be hours */
                printf("    %s on %s: %.1f s\n", patterns[p], units[u], seconds);
            }
            free(memory.base);
        }
    }
    free(text);
}

int main(int count, char **names)
{
    exl2__ctx c = rows_ctx();
    char golden[] = EXL2_GOLDEN_DIR "/tokenizer/regex.jsonl";
    char *path = count > 1 ? names[1] : golden;
    rows_each(&c, path, regex_row, path);
    printf("%d rows, %d rejected\n", rows, refused);
    CHECK(count > 1 || (rows >= 500 && refused == 0));
    check_scanners(&c);
    check_refused();
    check_time();
    return check_done();
}

/* grammar_limits.c: grammars at their limits: long lists of values, where the work must grow linearly with the length;
   texts with many possible parses at once; and what is rejected as too large, with its message. */
#define _GNU_SOURCE /* mkdtemp */
#include <string.h>

/* Counts comparisons: a list that is searched once for each of its values would show here. */
static unsigned long long compared;

static int count_memcmp(const void *a, const void *b, size_t bytes)
{
    compared++;
    return memcmp(a, b, bytes);
}
#define memcmp count_memcmp

#include "../grammar_rig.h"

/* Feeds the text byte by byte. If there is no room for another state, all states but the latest are evicted. */
static bool fits(exl2__grammar *g, const char *text, size_t bytes)
{
    exl2__grammar_state *s = &g->mask.states;
    uint32_t state = exl2__grammar_state_start(s);
    for (size_t i = 0; i < bytes && state != EXL2__GRAMMAR_STATE_DEAD; i++) {
        uint32_t next = exl2__grammar_state_next(s, state, text + i, 1);
        if (next == EXL2__GRAMMAR_STATE_FULL) {
            uint32_t *kept = &state;
            exl2__grammar_state_collect(s, &kept, 1);
            memset(g->mask.slots, 0, g->mask.slot_count * sizeof *g->mask.slots);
            next = exl2__grammar_state_next(s, state, text + i, 1);
        }
        if (!CHECK(next != EXL2__GRAMMAR_STATE_FULL)) {
            return false;
        }
        state = next;
    }
    return state != EXL2__GRAMMAR_STATE_DEAD && s->states[state].may_end;
}

/* ---- masks ---- */

/* The bit of every token, compared with walking the token's bytes alone. */
static void check_mask(exl2__grammar *g, const exl2__grammar_mask_place *place, const uint32_t *bits)
{
    exl2__grammar big = { .cache_bytes = 0 };
    exl2__grammar_state *s = &big.mask.states;
    uint32_t wrong = 0;
    CHECK(exl2__grammar_state_open(&context, &g->link, 256u << 20, s) == EXL2_OK);
    exl2__grammar_state_begin_set(s);
    const exl2__grammar_state_one *one = &g->mask.states.states[place->state];
    for (uint32_t i = 0; i < one->count; i++) { /* the same parses, as long as they are not inside a rule or loop */
        CHECK_INT(g->mask.states.pool[one->items + 2 * i + 1], 0);
        exl2__grammar_state_push(s, g->mask.states.pool[one->items + 2 * i], 0);
    }
    uint32_t state = exl2__grammar_state_finish_set(s);
    for (uint32_t id = 0; id < vocab.id_count; id++) {
        size_t bytes;
        bool special;
        const char *text = exl2__vocab_piece(&vocab, (exl2_token)id, &bytes, &special);
        uint32_t next = special || !bytes ? 0 : exl2__grammar_state_next(s, state, text, bytes);
        wrong += (next != EXL2__GRAMMAR_STATE_DEAD) != (bits[id / 32] >> id % 32 & 1);
    }
    CHECK_INT(wrong, 0);
    exl2__grammar_state_close(&context, s);
}

typedef struct said {
    char text[1 << 16];
    size_t bytes;
    exl2_result result;
} said;

/* A random text of at most `left` tokens. The first `masks` masks are compared. */
static void speak(exl2__grammar *g, uint32_t left, uint32_t masks, said *out)
{
    exl2__grammar_mask_place place;
    out->bytes = 0;
    out->result = exl2__grammar_mask_join(&context, &g->mask, &place);
    CHECK_INT(out->result, EXL2_OK);
    for (; out->result == EXL2_OK; left--) {
        const uint32_t *bits;
        bool may_end;
        uint32_t allowed = 0, id = 0;
        out->result = exl2__grammar_mask_get(&context, &g->mask, &place, left, &bits, &may_end);
        if (out->result < 0 || left == 0) {
            CHECK(out->result < 0 || may_end);
            break;
        }
        if (masks) {
            masks--;
            check_mask(g, &place, bits);
        }
        for (uint32_t i = 0; i < vocab.id_count; i++) {
            allowed += bits[i / 32] >> i % 32 & 1;
        }
        if (!allowed || (may_end && random_number(8) == 0)) {
            CHECK(may_end);
            break;
        }
        uint32_t pick = random_number(allowed);
        while (!(bits[id / 32] >> id % 32 & 1) || pick-- > 0) {
            id++;
        }
        size_t bytes;
        bool special;
        const char *text = exl2__vocab_piece(&vocab, (exl2_token)id, &bytes, &special);
        out->result = exl2__grammar_mask_accept(&context, &g->mask, &place, (exl2_token)id, 0);
        if (!CHECK(out->bytes + bytes < sizeof out->text)) {
            break;
        }
        memcpy(out->text + out->bytes, text, bytes);
        out->bytes += bytes;
    }
    exl2__grammar_mask_leave(&g->mask, &place);
}

/* ---- long lists ---- */

#define WORDS 8000u

static char words[WORDS][20], source[1 << 20];

/* Each word occurs once: it ends with its number, spelled in letters. */
static void make_words(bool numbers)
{
    for (uint32_t i = 0; i < WORDS; i++) {
        uint32_t bytes = 4 + random_number(8), letters = 4 + random_number(22);
        for (uint32_t k = 0; k < bytes; k++) {
            words[i][k] = "etaoinshrdlcumwfgypbvkjxqz"[random_number(letters)];
        }
        for (uint32_t rest = i, k = 0; k < 3; k++, rest /= 20) {
            words[i][bytes++] = (char)('a' + rest % 20);
        }
        words[i][bytes] = 0;
        if (numbers) {
            snprintf(words[i], sizeof words[i], "value_%05u", (unsigned)i);
        }
    }
}

/* Appends `count` words from `first` on to `source`, each written with `format`. */
static void list(uint32_t first, uint32_t count, const char *between, const char *format)
{
    size_t used = strlen(source);
    for (uint32_t i = first; i < first + count; i++) {
        used += (size_t)snprintf(source + used, sizeof source - used, "%s", i > first ? between : "");
        used += (size_t)snprintf(source + used, sizeof source - used, format, words[i]);
    }
    CHECK(used < sizeof source - 1);
}

static void append(const char *text)
{
    strcat(source, text);
}

/* Kinds of lists of n words. */
typedef enum long_list {
    LIST_ENUM, LIST_ANY_OF, LIST_ONE_OF, LIST_ALL_OF, LIST_ANY_CONST, LIST_ONE_CONST, LIST_CHOICES, LIST_REGEX,
    LIST_EBNF, LISTS
} long_list;

static exl2_grammar_kind write_list(long_list kind, uint32_t n)
{
    source[0] = 0;
    switch (kind) {
    case LIST_ENUM:
        append("{\"enum\":[");
        list(0, n, ",", "\"%s\"");
        append("]}");
        return EXL2_GRAMMAR_JSON_SCHEMA;
    case LIST_ANY_OF:
    case LIST_ONE_OF:
        append(kind == LIST_ANY_OF ? "{\"anyOf\":[{\"enum\":[" : "{\"oneOf\":[{\"enum\":[");
        list(0, n / 2, ",", "\"%s\"");
        append("]},{\"enum\":[");
        list(0, n / 2, ",", "\"%s!\"");
        append("]}]}");
        return EXL2_GRAMMAR_JSON_SCHEMA;
    case LIST_ALL_OF:
        append("{\"allOf\":[{\"enum\":[");
        list(0, n / 2, ",", "\"%s\"");
        append("]},{\"enum\":[");
        list(n / 4, n / 2, ",", "\"%s\"");
        append("]}]}");
        return EXL2_GRAMMAR_JSON_SCHEMA;
    case LIST_ANY_CONST:
    case LIST_ONE_CONST:
        append(kind == LIST_ANY_CONST ? "{\"type\":\"string\",\"anyOf\":[" : "{\"type\":\"string\",\"oneOf\":[");
        list(0, n, ",", "{\"const\":\"%s\",\"title\":\"x\"}");
        append("]}");
        return EXL2_GRAMMAR_JSON_SCHEMA;
    case LIST_CHOICES:
        list(0, n, "\n", "%s");
        return EXL2_GRAMMAR_CHOICES;
    case LIST_REGEX:
        list(0, n, "|", "%s");
        return EXL2_GRAMMAR_REGEX;
    default:
        append("root ::= ");
        list(0, n, "|", "\"%s\"");
        return EXL2_GRAMMAR_EBNF;
    }
}

static bool is_word(const char *text, size_t bytes)
{
    bytes -= bytes && text[bytes - 1] == '!';
    for (uint32_t i = 0; i < WORDS; i++) {
        if (strlen(words[i]) == bytes && strncmp(words[i], text, bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* For eight times as many values, the comparisons grow by at most a factor of eight and a logarithm; so do the
   nodes. */
static void check_growth(void)
{
    for (uint32_t numbers = 0; numbers < 2; numbers++) {
        make_words(numbers);
        for (long_list kind = LIST_ENUM; kind < LISTS; kind++) {
            unsigned long long work[2] = { 0, 0 }, nodes[2] = { 0, 0 }, steps[2] = { 0, 0 };
            for (uint32_t k = 0; k < 2; k++) {
                static said text;
                exl2__grammar g;
                exl2_grammar_kind type = write_list(kind, k ? 2000 : 250);
                compared = 0;
                if (open_grammar(type, source, 0, &g)) {
                    work[k] = compared;
                    nodes[k] = g.link.node_count;
                    speak(&g, 100, 0, &text);
                    CHECK_INT(text.result, EXL2_OK);
                    steps[k] = g.mask.nodes;
                    exl2__grammar_close(&context, &g);
                }
            }
            CHECK(work[0] > 250); /* they are counted */
            if (!CHECK(work[1] <= 13 * work[0] + 1000 && nodes[1] <= 9 * nodes[0] && steps[1] < 20 * table.begin[8])) {
                printf("  list %d: comparisons %llu, %llu; nodes %llu, %llu; steps %llu, %llu\n", (int)kind, work[0],
                       work[1], nodes[0], nodes[1], steps[0], steps[1]);
            }
        }
    }
}

/* Every kind of list of 8,000 words generates text: all masks are right, every text is a word of the list, and every
   word can be generated. */
static void check_lists(void)
{
    static said text;
    make_words(false);
    for (long_list kind = LIST_ENUM; kind < LISTS; kind++) {
        exl2__grammar g;
        bool quoted = kind < LIST_CHOICES;
        if (!open_grammar(write_list(kind, WORDS), source, 0, &g)) {
            continue;
        }
        for (uint32_t i = 0; i < 6; i++) {
            speak(&g, i < 3 ? 100 : EXL2__GRAMMAR_LINK_NEVER, i == 0 && kind >= LIST_CHOICES ? 2 : 0, &text);
            CHECK_INT(text.result, EXL2_OK);
            CHECK(is_word(text.text + quoted, text.bytes - 2 * quoted));
        }
        for (uint32_t i = 0; i < WORDS; i += 97) {
            char word[20];
            int bytes = snprintf(word, sizeof word, quoted ? "\"%s\"" : "%s", words[i]);
            bool half = kind == LIST_ANY_OF || kind == LIST_ONE_OF ? i < WORDS / 2
                : kind != LIST_ALL_OF || (i >= WORDS / 4 && i < WORDS / 2);
            CHECK(fits(&g, word, (size_t)bytes) == half);
            word[bytes - 1 - quoted] = '#';
            CHECK(!fits(&g, word, (size_t)bytes));
        }
        exl2__grammar_close(&context, &g);
    }
}

/* Objects with 2,500 optional members: as many ways to begin. */
static void check_members(void)
{
    static said text;
    exl2__grammar g;
    make_words(true);
    strcpy(source, "{\"properties\":{");
    list(0, 2500, ",", "\"%s\":{\"type\":\"null\"}");
    append("}}");
    if (open_grammar(EXL2_GRAMMAR_JSON_SCHEMA, source, 0, &g)) {
        CHECK(fits(&g, "{}", 2));
        CHECK(fits(&g, "{\"value_02499\":null}", 20));
        CHECK(fits(&g, "{\"value_00000\":null,\"value_02498\": null}", 40));
        CHECK(!fits(&g, "{\"value_02498\":null,\"value_00000\": null}", 40));
        speak(&g, 40, 0, &text);
        CHECK_INT(text.result, EXL2_OK);
        exl2__grammar_close(&context, &g);
    }
}

/* ---- lists against plain search ---- */

/* Small lists over few letters, many of which begin or end alike: a text of up to six letters fits exactly if it is in
   the list. */
static void check_small_lists(void)
{
    for (uint32_t round = 0; round < 100; round++) {
        char lines[600] = "", all[40][8];
        uint32_t count = 1 + random_number(30);
        exl2__grammar g;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t bytes = 1 + random_number(5);
            for (uint32_t k = 0; k < bytes; k++) {
                all[i][k] = (char)('a' + random_number(3));
            }
            all[i][bytes] = 0;
            strcat(strcat(lines, all[i]), random_number(4) ? "\n" : "\r\n\n");
        }
        if (!open_grammar(EXL2_GRAMMAR_CHOICES, lines, 0, &g)) {
            return;
        }
        uint32_t wrong = 0;
        for (uint32_t n = 0; n < 4096; n++) { /* digits of base 4: no letter, a, b, c */
            char text[8] = "";
            for (uint32_t rest = n, k = 0; rest; rest /= 4, k++) {
                text[k] = (char)('a' + rest % 4 - 1);
                text[k + 1] = 0;
            }
            bool wanted = false;
            for (uint32_t i = 0; i < count; i++) {
                wanted = wanted || strcmp(all[i], text) == 0;
            }
            wrong += wanted != fits(&g, text, strlen(text));
        }
        CHECK_INT(wrong, 0);
        exl2__grammar_close(&context, &g);
    }
}

/* ---- many parses at once ---- */

static void check_ambiguous(void)
{
    static said text;
    static const char *const regexes[] = { "(a|a)*b", "(a*)*b", "((a|b)*(b|c)*)*d", "(a|ab|b){0,40}c" };
    exl2__grammar g;
    for (size_t i = 0; i < EXL2__COUNT(regexes); i++) {
        if (open_grammar(EXL2_GRAMMAR_REGEX, regexes[i], 0, &g)) {
            for (uint32_t k = 0; k < 10; k++) {
                speak(&g, 30, 0, &text);
                CHECK_INT(text.result, EXL2_OK);
            }
            exl2__grammar_close(&context, &g);
        }
    }
    /* there are as many parses as ways to cut the text into words, and nearly all of them are equivalent */
    static char letters[10002];
    memset(letters, 'a', sizeof letters);
    if (open_grammar(EXL2_GRAMMAR_REGEX, "([a-z]{1,100} ?){1,100}", 0, &g)) {
        CHECK(fits(&g, letters, 10000) && !fits(&g, letters, 10001));
        CHECK(fits(&g, "the quick brown fox jumps over the lazy dog", 43) && !fits(&g, "the  fox", 8));
        exl2__grammar_close(&context, &g);
    }
    for (uint32_t round = 0; round < 60; round++) { /* m to n letters, p to q times */
        char regex[60];
        uint32_t m = 1 + random_number(9), n = m + random_number(30);
        uint32_t p = random_number(30), q = p + 1 + random_number(60);
        bool endless = random_number(3) == 0;
        snprintf(regex, sizeof regex, endless ? "(a{%u,%u}){%u,}" : "(a{%u,%u}){%u,%u}", (unsigned)m, (unsigned)n,
                 (unsigned)p, (unsigned)q);
        if (open_grammar(EXL2_GRAMMAR_REGEX, regex, 0, &g)) {
            uint32_t wrong = 0;
            for (uint32_t bytes = 1; bytes < 600; bytes += 1 + random_number(12)) {
                bool wanted = false;
                for (uint32_t times = p; times <= (endless ? 600 : q); times++) {
                    wanted = wanted || (m * times <= bytes && bytes <= n * times);
                }
                wrong += fits(&g, letters, bytes) != wanted;
            }
            if (!CHECK_INT(wrong, 0)) {
                printf("  %s\n", regex);
            }
            exl2__grammar_close(&context, &g);
        }
    }
    /* each letter doubles the parses: those beyond the limit are not begun, and the generated text is still right */
    if (open_grammar(EXL2_GRAMMAR_EBNF, "root ::= \"a\" root \"x\" | \"a\" root \"y\" | \"b\"", 0, &g)) {
        CHECK(fits(&g, "aabxy", 5) && !fits(&g, "aabx", 4));
        for (uint32_t k = 0; k < 20; k++) {
            speak(&g, 60, 0, &text);
            CHECK_INT(text.result, EXL2_OK);
            size_t before = 0;
            while (before < text.bytes && text.text[before] == 'a') {
                before++;
            }
            CHECK(text.bytes == 2 * before + 1 && text.text[before] == 'b');
        }
        exl2__grammar_close(&context, &g);
    }
    /* a text that cannot continue is reported */
    if (open_grammar(EXL2_GRAMMAR_EBNF, "root ::= \"a\" root \"x\" | \"a\" root \"y\" | \"a\"{40} \"b\"", 0, &g)) {
        speak(&g, EXL2__GRAMMAR_LINK_NEVER, 0, &text);
        CHECK_INT(text.result, EXL2_ERR_BUDGET);
        CHECK(strstr(context.error.text, "too ambiguous") != NULL);
        exl2__grammar_close(&context, &g);
    }
}

/* ---- rejected grammars ---- */

static void check_refusal(exl2_grammar_kind kind, const char *text, exl2_result code, const char *sentence)
{
    exl2__grammar g;
    uint64_t before = context.host_bytes;
    context.error.text[0] = 0;
    exl2_result result = exl2__grammar_open(&context, kind, false, text, strlen(text), &table, 0, &g);
    if (!CHECK(result == code && strstr(context.error.text, sentence))) {
        printf("  %.200s: %d %s\n", text, (int)result, context.error.text);
    }
    CHECK_INT(context.host_bytes, before);
}

static void check_refusals(void)
{
    static const struct refusal {
        exl2_grammar_kind kind;
        const char *text;
        exl2_result code;
        const char *sentence;
    } cases[] = {
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},"
          "\"b\":{\"$ref\":\"#/$defs/a\"}}}",
          EXL2_ERR_FORMAT, "leads back to itself with no value in between; found: #/$defs/" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#\"}", EXL2_ERR_FORMAT, "leads back to itself" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"properties\":{\"x\":{\"type\":\"string\",\"allOf\":[{\"$ref\":"
          "\"#/properties/x\"}]}}}", EXL2_ERR_FORMAT, "leads back to itself" },
        { EXL2_GRAMMAR_REGEX, "a{,5}", EXL2_ERR_UNSUPPORTED, "regex line 1, column 2: {,n} is a repetition in some" },
        { EXL2_GRAMMAR_REGEX, "a{,}", EXL2_ERR_UNSUPPORTED, "write {0,n}" },
        { EXL2_GRAMMAR_REGEX, "(x|{,5})", EXL2_ERR_UNSUPPORTED, "write {0,n}" },
        { EXL2_GRAMMAR_REGEX, "x|{5}", EXL2_ERR_FORMAT, "a repetition must follow what it repeats" },
        { EXL2_GRAMMAR_EBNF, "root ::= \"a\"{,5}", EXL2_ERR_UNSUPPORTED, "write {0,n}" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"a{,5}\"}", EXL2_ERR_UNSUPPORTED,
          "write {0,n}" },
        { EXL2_GRAMMAR_REGEX, "a{2000000}", EXL2_ERR_BUDGET, "more than 1,000,000" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"minItems\":1000000,\"items\":{\"type\":\"array\","
          "\"minItems\":1000000,\"items\":{\"type\":\"null\"}}}", EXL2_ERR_BUDGET, "the shortest text is too long" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"minLength\":1000001}", EXL2_ERR_BUDGET, "at most 1,000,000; found: 1000001" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"minLength\":-1}", EXL2_ERR_FORMAT, "a whole number" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"enum\":[]}", EXL2_ERR_FORMAT, "no text matches" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"allOf\":[{\"enum\":[1,2]},{\"const\":3}]}", EXL2_ERR_FORMAT,
          "no text matches" },
    };
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        check_refusal(cases[i].kind, cases[i].text, cases[i].code, cases[i].sentence);
    }
    /* 2^16 ways to begin: r0 calls r1 twice, which calls r2 twice ... */
    char text[2000] = "root ::= r0\n";
    for (uint32_t i = 0; i < 16; i++) {
        char line[60];
        snprintf(line, sizeof line, "r%u ::= r%u \"x\" | r%u \"y\"\n", (unsigned)i, (unsigned)i + 1, (unsigned)i + 1);
        strcat(text, line);
    }
    strcat(text, "r16 ::= \"z\"");
    check_refusal(EXL2_GRAMMAR_EBNF, text, EXL2_ERR_BUDGET, "too ambiguous");
}

/* A text that ends in the middle of a pair of surrogates: what lies after its end in memory is not read. */
static void check_cut(void)
{
    static const char text[] = "\\uD800\\?DC00";
    exl2__grammar g;
    exl2_result result = exl2__grammar_open(&context, EXL2_GRAMMAR_REGEX, false, text, 7, &table, 0, &g);
    if (!CHECK_INT(result, EXL2_ERR_FORMAT)) {
        exl2__grammar_close(&context, &g);
        return;
    }
    CHECK(strstr(context.error.text, "expected a hexadecimal digit"));
}

/* A branch whose texts are all too long is never begun. Two ways to the same part are not a cycle. */
static void check_kept(void)
{
    static said text;
    exl2__grammar g;
    static const char long_branch[] =
        "{\"anyOf\":[{\"type\":\"array\",\"minItems\":1000000,\"items\":{\"type\":\"array\",\"minItems\":1000000,"
        "\"items\":{\"type\":\"null\"}}},{\"type\":\"boolean\"}]}";
    static const char twice[] =
        "{\"allOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/b\"}],\"$defs\":{\"a\":{\"$ref\":\"#/$defs/c\"},"
        "\"b\":{\"$ref\":\"#/$defs/c\"},\"c\":{\"type\":\"boolean\"}}}";
    if (open_grammar(EXL2_GRAMMAR_JSON_SCHEMA, long_branch, 0, &g)) {
        for (uint32_t k = 0; k < 10; k++) {
            speak(&g, EXL2__GRAMMAR_LINK_NEVER, 0, &text);
            CHECK(text.result == EXL2_OK && (text.bytes == 4 || text.bytes == 5));
        }
        exl2__grammar_close(&context, &g);
    }
    if (open_grammar(EXL2_GRAMMAR_JSON_SCHEMA, twice, 0, &g)) {
        CHECK(fits(&g, "true", 4));
        exl2__grammar_close(&context, &g);
    }
    if (open_grammar(EXL2_GRAMMAR_REGEX, "a\\{,5}|[{]b", 0, &g)) {
        CHECK(fits(&g, "a{,5}", 5) && fits(&g, "{b", 2));
        exl2__grammar_close(&context, &g);
    }
}

int main(void)
{
    context = rows_ctx();
    if (!CHECK(vocab_open(&context, EXL2_GOLDEN_DIR "/smollm2", &vocab) == EXL2_OK)
        || !CHECK(exl2__grammar_vocab_open(&context, &vocab, &table) == EXL2_OK)) {
        return check_done();
    }
    check_growth();
    check_lists();
    check_members();
    check_small_lists();
    check_ambiguous();
    check_refusals();
    check_cut();
    check_kept();
    exl2__grammar_vocab_close(&context, &table);
    exl2__vocab_close(&context, &vocab);
    CHECK_INT(context.host_bytes, 0);
    return check_done();
}

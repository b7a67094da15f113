/* grammar.c: grammars without a model: texts that fit and texts that do not, rejected sources, masks and forced tokens
   compared with a walk token by token, values that end within a token limit, blocks that are too small, and random
   texts judged by Python's jsonschema and re. */
#define _GNU_SOURCE /* mkdtemp */
#include "../grammar_rig.h"

/* ---- texts ---- */

typedef struct text_case {
    exl2_grammar_kind kind;
    const char *source, *fit, *unfit; /* texts, one per line */
} text_case;

static const text_case text_cases[] = {
    { EXL2_GRAMMAR_REGEX, "a|b+c{2,3}|\\d{3,}x?", "a\nbcc\nbbbccc\n123\n1234567x", "b\nbc\nbcccc\n12\n12x\nab\n" },
    { EXL2_GRAMMAR_REGEX, "(a|ab)(c|bcd)(d*)", "ac\nabcd\nabc\nabbcdd\nacddd", "ab\na\nabcde" },
    { EXL2_GRAMMAR_REGEX, "[^a-c\\d]\\x41\\u00e9[\\]\\-z]", "xA\303\251]\n\342\202\254A\303\251-", "aA\303\251]"
    "\n5A\303\251z" },
    { EXL2_GRAMMAR_REGEX, "(a{2}){3,4}|x{0,2}y", "aaaaaa\naaaaaaaa\ny\nxxy", "aaaa\naaaaaaa\nxxxy" },
    { EXL2_GRAMMAR_REGEX, "(a*)*b|(x+x+)+y", "b\naaab\nxxy\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxy",
      "a\nxy\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" },
    { EXL2_GRAMMAR_REGEX, ".", "x\n\303\251\n\360\237\230\200", "\303\nxx\n\355\240\200\n\300\200\n"
    "\364\220\200\200" },
    { EXL2_GRAMMAR_CHOICES, "yes\nno\r\n\nnot at all\ncaf\303\251", "yes\nno\nnot at all\ncaf\303\251",
      "ye\nyess\nnot\ncaf\303\250\n " },
    { EXL2_GRAMMAR_EBNF, "list ::= '[' (item (\",\" item)*)? ']' # a list\nitem ::= [0-9]+ | list", "[]\n[1,[2,"
    "33],[]]",
      "[1,]\n[\n1\n[1,[2]" },
    { EXL2_GRAMMAR_EBNF, "s ::= \"a\" s \"b\" |\n root ::= s s", "ab\nabab\naabbab\naaabbb", "aab\nba\nabb" },
    { EXL2_GRAMMAR_EBNF, "root ::= (word \" \"?){2,3}\nword ::= [^ \"\\n]{1,3} '\\x21' | \"\\u20ac\"",
      "abc!\342\202\254\na! b! \342\202\254", "a!\nabcd!a!" },
    { EXL2_GRAMMAR_JSON, "", "{}\n[1, -2.5e+3,\"a\\u00e9\\\"\",true,{\"a\": null}]\n0",
      "01\n{a:1}\n[1,]\n\"\\x\"\n\"\\ud800\"\n1.\nnul\n{\"a\":  1}" },
    { EXL2_GRAMMAR_JSON_SCHEMA, "{\"type\":\"integer\",\"minimum\":-12,\"maximum\":105}",
      "0\n7\n99\n100\n105\n-1\n-9\n-12", "106\n-13\n-0\n00\n110\n1000\n-100\n1.0" },
    { EXL2_GRAMMAR_JSON_SCHEMA, "{\"type\":\"number\",\"exclusiveMinimum\":-0.5,\"maximum\":12.25}",
      "0\n12.25\n12.2\n12.250\n12\n-0.49999\n-0.4\n9.99\n0.0", "12.26\n12.251\n-0.5\n-0.50\n13\n-1\n1e1\n-0" },
    { EXL2_GRAMMAR_JSON_SCHEMA, "{\"minimum\":100,\"exclusiveMaximum\":9007199254740992}", "100\n12345678901234"
    "5\n100.5",
      "99.9\n1234567890123456" },
    { EXL2_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
      "\"ab\"\n\"\303\251\360\237\230\200\\n\"\n\"\\ud83d\\ude00x\"", "\"a\"\n\"abcd\"\n\"a\\ude00\"\nab" },
    { EXL2_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^\\\"?a|b\\\\\\\\$\"}", "\"abc\"\n\"\\\"a\""
    "\n\"xb\\\\\"",
      "\"xa\"\n\"b\"\n\"\"" },
    { EXL2_GRAMMAR_JSON_SCHEMA,
      "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"const\":[1,{\"x\":\"\\u00e9\"}]},"
      "\"c\":{\"enum\":[\"x\",\"xy\",2]}},\"required\":[\"b\"]}",
      "{\"b\":[1, {\"x\": \"\303\251\"}]}\n{\"a\":null, \"b\":[1, {\"x\": \"\303\251\"}],\"c\": \"xy\"}",
      "{}\n{\"a\":null}\n{\"b\":[1, {\"x\": \"\303\251\"}],}\n{\"b\":[1, {\"x\": \"\303\251\"}],\"d\":1}" },
    { EXL2_GRAMMAR_JSON_SCHEMA,
      "{\"properties\":{\"ab\":{\"type\":\"null\"},\"ac\":true},\"additionalProperties\":{\"type\":\"boolean\"}}",
      "{}\n{\"ab\":null}\n{\"a\":true,\"abc\":false}\n{\"\":true}\n{\"ac\":[],\"x\": true, \"ad\":true}",
      "{\"ab\":true}\n{\"x\":null}\n{\"a\":true,\"ab\":true}\n{\"\\u0061b\":true}" },
    { EXL2_GRAMMAR_JSON_SCHEMA,
      "{\"$ref\":\"#/$defs/t~1x\",\"$defs\":{\"t/x\":{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"maxItems\""
      ":2}}}",
      "[]\n[[],[[]]]", "[[],[],[]]\n[1]" },
    { EXL2_GRAMMAR_JSON_SCHEMA,
      "{\"allOf\":[{\"type\":[\"integer\",\"string\"],\"minimum\":3},{\"anyOf\":[{\"maximum\":5},{\"maxLength\":"
      "1}]}]}",
      "3\n6\n\"\"\n\"ab\"", "2\n3.5\n[]" },
};

static void check_texts(void)
{
    for (size_t i = 0; i < sizeof text_cases / sizeof *text_cases; i++) {
        exl2__grammar g;
        if (open_grammar(text_cases[i].kind, text_cases[i].source, 0, &g)) {
            check_lines(&g, text_cases[i].source, text_cases[i].fit, true);
            check_lines(&g, text_cases[i].source, text_cases[i].unfit, false);
            exl2__grammar_close(&context, &g);
        }
    }
}

/* A byte order mark before a source is no part of it. */
static void check_mark(void)
{
    static const struct { exl2_grammar_kind kind; const char *source; } cases[] = {
        { EXL2_GRAMMAR_REGEX, "yes" }, { EXL2_GRAMMAR_EBNF, "root ::= \"yes\"" }, { EXL2_GRAMMAR_CHOICES, "yes" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"const\": 7}" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char marked[64];
        exl2__grammar g;
        snprintf(marked, sizeof marked, "\xEF\xBB\xBF%s", cases[i].source);
        if (open_grammar(cases[i].kind, marked, 0, &g)) {
            bool schema = cases[i].kind == EXL2_GRAMMAR_JSON_SCHEMA;
            check_lines(&g, cases[i].source, schema ? "7" : "yes", true);
            check_lines(&g, cases[i].source, schema ? "\xEF\xBB\xBF" "7" : "\xEF\xBB\xBFyes", false);
            exl2__grammar_close(&context, &g);
        }
    }
}

/* ---- rejected sources ---- */

static void check_refusal(exl2_grammar_kind kind, const char *source, const char *sentence)
{
    exl2__grammar g;
    uint64_t before = context.host_bytes;
    context.error.text[0] = 0;
    exl2_result result = exl2__grammar_open(&context, kind, false, source, strlen(source), &table, 0, &g);
    if (!CHECK(result < 0 && strstr(context.error.text, sentence))) {
        printf("  %.200s: %s\n", source, context.error.text);
    }
    CHECK_INT(context.host_bytes, before);
}

static void check_refusals(void)
{
    static const struct { exl2_grammar_kind kind; const char *source, *sentence; } cases[] = {
        { EXL2_GRAMMAR_REGEX, "a(b", "regex line 1, column 4: ')' is missing" },
        { EXL2_GRAMMAR_REGEX, "\xEF\xBB\xBF" "a(b", "regex line 1, column 4: ')' is missing" },
        { EXL2_GRAMMAR_REGEX, "a)b", "')' has no matching '('" },
        { EXL2_GRAMMAR_REGEX, "*a", "a repetition must follow what it repeats" },
        { EXL2_GRAMMAR_REGEX, "a{3,2}", "m <= n" },
        { EXL2_GRAMMAR_REGEX, "(?=a)", "look-around" },
        { EXL2_GRAMMAR_REGEX, "(a)\\1", "the escape is not supported" },
        { EXL2_GRAMMAR_REGEX, "\\bword", "word borders" },
        { EXL2_GRAMMAR_REGEX, "(^a)", "outermost" },
        { EXL2_GRAMMAR_REGEX, "[z-a]", "ends before it begins" },
        { EXL2_GRAMMAR_REGEX, "(a?){3,5}", "may be empty" },
        { EXL2_GRAMMAR_REGEX, "\377", "valid UTF-8" },
        { EXL2_GRAMMAR_REGEX, "[^\\x00-\\u{10ffff}]", "no text matches" },
        { EXL2_GRAMMAR_EBNF, "root ::= root \"a\" | \"b\"", "left recursion" },
        { EXL2_GRAMMAR_EBNF, "root ::= a\na ::= (\"x\")? b\nb ::= \"\" a | \"c\"", "left recursion" },
        { EXL2_GRAMMAR_EBNF, "root ::= x", "the rule x is used but not defined" },
        { EXL2_GRAMMAR_EBNF, "root ::= \"a\"\nroot ::= \"b\"", "line 2, column 6: the rule is defined twice" },
        { EXL2_GRAMMAR_EBNF, "root = \"a\"", "expected `name ::=`" },
        { EXL2_GRAMMAR_EBNF, "root ::= \"a\" root", "no text matches" },
        { EXL2_GRAMMAR_EBNF, "# nothing", "expected at least one rule" },
        { EXL2_GRAMMAR_CHOICES, "\n\n", "expected at least one choice" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",}", "is not valid JSON" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"type\":\"text\"}", "object; found: text" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#/$defs/a\"}",
          "names a subschema that does not exist; found: #/$defs/a" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"anyOf\":[{\"$ref\":\"#\"}]}", "refers to itself" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"pattern\":\"a(\"}", "schema: pattern" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "no text matches" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"required\":[\"a\"],\"properties\":{\"a\":false}}", "no text matches" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "[]", "must be an object" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_refusal(cases[i].kind, cases[i].source, cases[i].sentence);
    }
    static char deep[40001];
    memset(deep, '(', 20000);
    memset(deep + 20000, ')', 20000);
    check_refusal(EXL2_GRAMMAR_REGEX, deep, "at most 64 nested groups");
    for (size_t i = 0; i < 20000; i += 5) {
        memcpy(deep + i, "{\"a\":", 5);
    }
    check_refusal(EXL2_GRAMMAR_JSON_SCHEMA, deep, "at most 256 levels");
    for (size_t i = 0; i + 8 <= 40000; i += 8) {
        memcpy(deep + i, "abcdefg|", 8);
    }
    deep[40000] = 0;
    exl2__grammar g;
    if (open_grammar(EXL2_GRAMMAR_REGEX, deep, 0, &g)) { /* 5,000 parses at once are more than a state can hold */
        CHECK(fits_at_once(&g, "abcdefg", 7));
        exl2__grammar_close(&context, &g);
    }
}

/* ---- masks and forced tokens ---- */

/* Forced tokens so far; those of more than 3 bytes; those not forced because a token goes on after the string. */
static uint32_t forced_seen, forced_long, forced_crossed;

/* The bit of every token, compared with walking the token's bytes alone. */
static void check_mask(exl2__grammar *g, const exl2__grammar_mask_place *place, uint32_t left, const uint32_t *bits)
{
    exl2__grammar_state *s = &g->mask.states;
    uint32_t wrong = 0;
    for (uint32_t id = 0; id < vocab.id_count; id++) {
        size_t bytes;
        bool special;
        const char *text = exl2__vocab_piece(&vocab, (exl2_token)id, &bytes, &special);
        uint32_t next = special || !bytes ? 0 : exl2__grammar_state_next(s, place->state, text, bytes);
        bool wanted = next != EXL2__GRAMMAR_STATE_DEAD && s->states[next].tokens <= left - 1;
        wrong += wanted != (bits[id / 32] >> id % 32 & 1);
    }
    CHECK_INT(wrong, 0);
}

/* The forced token, compared with trying all bytes, then all tokens. */
static void check_forced(exl2__grammar *g, exl2__grammar_mask_place *place, uint32_t left)
{
    exl2__grammar_state *s = &g->mask.states;
    char string[EXL2__GRAMMAR_VOCAB_BYTES_MAX];
    size_t length = 0, longest = 0;
    exl2_token wanted = -1, forced;
    uint32_t state = place->state;
    while (length < sizeof string && !s->states[state].may_end) {
        uint32_t follow = 0, next = 0;
        for (int byte = 0; byte < 256; byte++) {
            char text = (char)byte;
            uint32_t to = exl2__grammar_state_next(s, state, &text, 1);
            if (to != EXL2__GRAMMAR_STATE_DEAD && ++follow == 1) {
                string[length] = text;
                next = to;
            }
        }
        if (follow != 1) {
            break;
        }
        state = next;
        length++;
    }
    bool crossed = false; /* by a token that goes on after the string */
    for (uint32_t id = 0; id < vocab.id_count; id++) {
        size_t bytes;
        bool special;
        const char *text = exl2__vocab_piece(&vocab, (exl2_token)id, &bytes, &special);
        crossed |= text && !special && bytes > length && memcmp(text, string, length) == 0
                && exl2__grammar_state_next(s, state, text + length, 1) != EXL2__GRAMMAR_STATE_DEAD;
        if (text && !special && bytes > longest && bytes <= length && memcmp(text, string, bytes) == 0) {
            uint32_t next = exl2__grammar_state_next(s, place->state, text, bytes);
            if (s->states[next].tokens < left) {
                longest = bytes;
                wanted = (exl2_token)id;
            }
        }
    }
    CHECK(exl2__grammar_forced_token(&context, &g->mask, place, left, &forced) == EXL2_OK);
    CHECK_INT(forced, crossed ? -1 : wanted);
    forced_seen += forced >= 0;
    forced_long += forced >= 0 && longest > 3;
    forced_crossed += crossed && wanted >= 0;
}

static uint32_t ones(uint32_t x)
{
    x -= x >> 1 & 0x55555555u;
    x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
    return ((x + (x >> 4)) & 0x0F0F0F0Fu) * 0x01010101u >> 24;
}

static uint32_t parts_made; /* of masks */

/* Makes every second mask in parts of 1 to 400 nodes, as a step with a budget does. */
static void make_in_parts(exl2__grammar *g, exl2__grammar_mask_place *place, uint32_t left)
{
    exl2__grammar_mask *m = &g->mask;
    for (bool whole = left % 2 == 0; !whole; parts_made++) {
        uint32_t most = 1 + parts_made * 7 % 400;
        uint64_t before = m->nodes;
        bool walks = exl2__grammar_mask_walks(m, place, left);
        whole = exl2__grammar_mask_cost(m, place, left) == 0;
        if (!whole) {
            exl2__grammar_mask_prepare(m, place, left, most);
            CHECK(m->nodes - before <= (walks ? most : 0));
        }
    }
}

/* A random text of at most `left` tokens; returns its bytes. `compared`: one mask in this many is compared. */
static size_t walk(exl2__grammar *g, uint32_t left, uint32_t compared, char *out, size_t room)
{
    exl2__grammar_mask_place place;
    size_t used = 0;
    CHECK(exl2__grammar_mask_join(&context, &g->mask, &place) == EXL2_OK);
    CHECK(exl2__grammar_mask_shortest(&g->mask, &place) <= left);
    for (;; left--) {
        const uint32_t *bits;
        bool may_end;
        uint32_t allowed = 0, id = 0;
        exl2_token forced;
        make_in_parts(g, &place, left);
        if (!CHECK(exl2__grammar_mask_get(&context, &g->mask, &place, left, &bits, &may_end) == EXL2_OK)) {
            break;
        }
        if (left == 0 || (may_end && random_number(8) == 0)) {
            CHECK(may_end);
            break;
        }
        if (compared && random_number(compared) == 0) {
            check_mask(g, &place, left, bits);
            check_forced(g, &place, left);
        }
        for (uint32_t i = 0; i < table.words; i++) {
            allowed += ones(bits[i]);
        }
        if (!allowed) {
            CHECK(may_end);
            break;
        }
        uint32_t pick = random_number(allowed);
        for (; pick >= ones(bits[id / 32]); id += 32) {
            pick -= ones(bits[id / 32]);
        }
        while (!(bits[id / 32] >> id % 32 & 1) || pick-- > 0) {
            id++;
        }
        CHECK(exl2__grammar_forced_token(&context, &g->mask, &place, left, &forced) == EXL2_OK);
        CHECK(forced < 0 || bits[forced / 32] >> forced % 32 & 1);
        id = forced >= 0 && random_number(2) ? (uint32_t)forced : id;
        size_t bytes;
        bool special;
        const char *text = exl2__vocab_piece(&vocab, (exl2_token)id, &bytes, &special);
        if (!CHECK(exl2__grammar_mask_accept(&context, &g->mask, &place, (exl2_token)id, 0) == EXL2_OK)
            || !CHECK(used + bytes < room)) {
            break;
        }
        memcpy(out + used, text, bytes);
        used += bytes;
    }
    exl2__grammar_mask_leave(&g->mask, &place);
    return used;
}

static const char npc_schema[] =
    "{\"type\":\"object\",\"properties\":{\"mood\":{\"enum\":[\"calm\",\"angry\",\"afraid\"]},\"say\":{\"type\":"
    "\"string\","
    "\"maxLength\":60},\"act\":{\"enum\":[\"none\",\"give_key\",null]},\"trust\":{\"type\":\"integer\",\"minimum"
    "\":-2,"
    "\"maximum\":2},\"price\":{\"type\":\"number\",\"minimum\":-1.5,\"exclusiveMaximum\":99.95},\"tags\":{\"type\":"
    "\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^[a-z]{2,5}$|\\\\S-x\"},\"minItems\":1,\"maxItems\":"
    "3},\"when\":"
    "{\"type\":\"string\",\"format\":\"date-time\"},\"id\":{\"type\":\"string\",\"format\":\"uuid\"},\"mail\":{"
    "\"type\":"
    "\"string\",\"format\":\"email\"}},\"required\":[\"mood\",\"say\",\"trust\",\"when\"]}";

static const char *const schemas[] = {
    npc_schema,
    "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"number\"},\"kids\":{\"type\":\"array\","
    "\"items\":{\"$ref\":\"#/$defs/n\"},\"maxItems\":4},\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/n\"},{\"type\":"
    "\"null\"}"
    "]}},\"required\":[\"v\",\"kids\",\"next\"]}},\"$ref\":\"#/$defs/n\"}",
    "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"c\"},\"r\":{\"exclusiveMinimum\":0}},\""
    "required\":"
    "[\"k\",\"r\"]},{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"b\"},\"w\":{\"type\":\"integer\",\"m"
    "inimum\":1,"
    "\"maximum\":9007199254740991}},\"required\":[\"k\"],\"additionalProperties\":{\"type\":\"boolean\"}},{\"type\":"
    "\"string\",\"minLength\":3,\"maxLength\":8}]}",
    "{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"number\"},\"b\":{\"type\":\"string\"}},"
    "\"required\":"
    "[\"a\"]},{\"properties\":{\"a\":{\"minimum\":3,\"maximum\":100},\"caf\\u00e9\":{\"type\":\"boolean\"}},\"re"
    "quired\":["
    "\"caf\\u00e9\"],\"additionalProperties\":true}]}",
    "{}",
};

static void check_masks(void)
{
    static char text[1 << 16];
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        exl2__grammar g;
        if (open_grammar(EXL2_GRAMMAR_JSON_SCHEMA, schemas[i], 64u << 20, &g)) {
            for (int k = 0; k < 3; k++) {
                walk(&g, 120, 16, text, sizeof text);
            }
            exl2__grammar_close(&context, &g);
        }
    }
}

/* Forced tokens at every place of a text. */
static void check_forced_tokens(void)
{
    static char text[1 << 16];
    static const struct { exl2_grammar_kind kind; const char *source; } cases[] = {
        { EXL2_GRAMMAR_JSON_SCHEMA, npc_schema },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"const\":{\"the quick brown fox\":[\"caf\\u00e9 \\ud83d\\ude00\",1,2.5,"
                                    "null]}}" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"enum\":[\"understand\",\"understanding\",\"understood\"]}" },
        { EXL2_GRAMMAR_REGEX, "(hello|help)( there){2,5}, my (dear|deer)[!?]" },
        { EXL2_GRAMMAR_REGEX, "(the end)?of the world" },
        { EXL2_GRAMMAR_REGEX, "(and so on)+" },
        { EXL2_GRAMMAR_CHOICES, "the key\nthe keyhole\nthe crown\nnothing at all\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exl2__grammar g;
        if (open_grammar(cases[i].kind, cases[i].source, 64u << 20, &g)) {
            for (uint32_t k = 0; k < 3; k++) {
                exl2__grammar_mask_place place;
                CHECK(exl2__grammar_mask_join(&context, &g.mask, &place) == EXL2_OK);
                uint32_t shortest = exl2__grammar_mask_shortest(&g.mask, &place);
                exl2__grammar_mask_leave(&g.mask, &place);
                walk(&g, shortest + 20 * k, 1, text, sizeof text);
            }
            exl2__grammar_close(&context, &g);
        }
    }
    CHECK(forced_seen > 200 && forced_long > 30 && forced_crossed > 20);
    CHECK(parts_made > 2000);
    printf("%u forced tokens, %u of them of more than 3 bytes; %u crossed\n", forced_seen, forced_long, forced_crossed);
}

/* States that differ only in a loop's count share a mask. All masks are right, and few are computed again. */
static void check_counts(void)
{
    static char text[1 << 16];
    static const struct { exl2_grammar_kind kind; const char *source; uint32_t one_in; } cases[] = {
        { EXL2_GRAMMAR_REGEX, "[A-Z][ !#-;=?-Z_a-z]{2,2500}[.!?]", 8 },
        { EXL2_GRAMMAR_REGEX, "[A-Z][ !#-;=?-Z_a-z]{2,500}[.!?]", 3 },
        { EXL2_GRAMMAR_REGEX, "(\\w{1,900}( |\\d{2,40}!)){17,600}", 3 },
        { EXL2_GRAMMAR_REGEX, "<([a-z]{1,700};){1,800}>", 2 },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":3,\"maxLength\":2500}", 8 },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":250},"
          "\"minItems\":9,\"maxItems\":40}", 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exl2__grammar g;
        if (!open_grammar(cases[i].kind, cases[i].source, 64u << 20, &g)) {
            return;
        }
        walk(&g, 500, 4, text, sizeof text);
        uint64_t others = g.mask.hits + g.mask.shares;
        if (!CHECK(g.mask.walks * cases[i].one_in < g.mask.walks + others)) {
            printf("  %s: %u masks made, %u others\n", cases[i].source, (unsigned)g.mask.walks, (unsigned)others);
        }
        exl2__grammar_close(&context, &g);
    }
}

/* A block so small that states are evicted all the time gives the same texts, also with two texts at once. */
static void check_small_block(void)
{
    static char text[2][1 << 16];
    uint64_t collections = 0;
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        exl2__grammar big, small;
        if (!open_grammar(EXL2_GRAMMAR_JSON_SCHEMA, schemas[i], 0, &big)
            || !open_grammar(EXL2_GRAMMAR_JSON_SCHEMA, schemas[i], 1, &small)) {
            return;
        }
        exl2__grammar_mask_place other;
        CHECK(exl2__grammar_mask_join(&context, &small.mask, &other) == EXL2_OK);
        uint32_t shortest = exl2__grammar_mask_shortest(&small.mask, &other);
        for (int k = 0; k < 10; k++) {
            uint64_t seed = random_state;
            size_t bytes = walk(&big, 150, 0, text[0], sizeof text[0]);
            random_state = seed;
            size_t others = walk(&small, 150, 0, text[1], sizeof text[1]);
            CHECK(bytes == others && memcmp(text[0], text[1], bytes) == 0);
        }
        CHECK_INT(exl2__grammar_mask_shortest(&small.mask, &other), shortest);
        exl2__grammar_mask_leave(&small.mask, &other);
        collections += small.mask.collections;
        exl2__grammar_close(&context, &big);
        exl2__grammar_close(&context, &small);
    }
    CHECK(collections > 10);
    printf("room was made %llu times\n", (unsigned long long)collections);
}

/* ---- memory ---- */

static uint32_t allocations_left;

static void *scarce_alloc(void *user, size_t bytes, size_t align, exl2_mem tag)
{
    exl2_allocator plain = exl2__platform_allocator();
    (void)user;
    return allocations_left-- > 0 ? plain.alloc_fn(plain.user, bytes, align, tag) : NULL;
}

/* The n-th allocation fails, for every n: the call is rejected, and nothing is kept. */
static void check_memory(void)
{
    static const struct { exl2_grammar_kind kind; const char *source; } sources[] = {
        { EXL2_GRAMMAR_JSON_SCHEMA, npc_schema }, { EXL2_GRAMMAR_EBNF, "root ::= \"a\" root | [b-z]{2,3}" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"properties\":{\"a\":{}},\"additionalProperties\":true}" },
    };
    exl2_allocator plain = context.allocator;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        exl2_result result = EXL2_ERR_MEMORY;
        uint64_t before = context.host_bytes;
        for (uint32_t n = 0; result < 0 && n < 100; n++) {
            exl2__grammar g;
            context.allocator.alloc_fn = scarce_alloc;
            allocations_left = n;
            result = exl2__grammar_open(&context, sources[i].kind, false, sources[i].source, strlen(sources[i].source),
                                        &table, 0, &g);
            context.allocator = plain;
            CHECK(result == EXL2_OK || result == EXL2_ERR_MEMORY);
            exl2__grammar_close(&context, &g);
            CHECK_INT(context.host_bytes, before);
        }
        CHECK(result == EXL2_OK);
    }
}

/* ---- Python's judgement ---- */

/* Values for every token limit from the shortest possible value on, `count` of each source; all are valid. */
static void judge_sources(judge *j, uint32_t count)
{
    static char text[1 << 16];
    static const char *const regexes[] = { "(foo|ba+r)[0-9]{2,3}(\\.\\d+)?|\\w+@\\w+\\.(com|org)|x{0,50}y",
                                           "[^\\d\\s]{3,9}\\S\\W\\D.?" };
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas + 2; i++) {
        exl2__grammar g;
        bool regex = i < 2;
        const char *source = regex ? regexes[i] : schemas[i - 2];
        if (!open_grammar(regex ? EXL2_GRAMMAR_REGEX : EXL2_GRAMMAR_JSON_SCHEMA, source, 0, &g)) {
            continue;
        }
        exl2__grammar_mask_place place;
        exl2__grammar_mask_join(&context, &g.mask, &place);
        uint32_t shortest = exl2__grammar_mask_shortest(&g.mask, &place);
        exl2__grammar_mask_leave(&g.mask, &place);
        for (uint32_t k = 0; k < count; k++) {
            judge_add(j, regex ? 'r' : 's', source, text, walk(&g, shortest + k % 100, 0, text, sizeof text));
        }
        exl2__grammar_close(&context, &g);
    }
}

/* 10,000 values, with two vocabularies if the shared fixtures are present. */
static void check_judged(void)
{
    judge j = judge_open();
    const char *root = check_env("EXL2_TEST_DATA");
    char packed[600], folder[40], command[2000];
    snprintf(packed, sizeof packed, "%s/fixtures/tokenizers/qwen3", root ? root : ".");
    snprintf(folder, sizeof folder, "%s/qwen3", j.folder);
    snprintf(command, sizeof command, "mkdir '%s' && xz -dkc '%s/tokenizer.json.xz' > '%s/tokenizer.json' && "
             "cp '%s/tokenizer_config.json' '%s' 2>/dev/null", folder, packed, folder, packed, folder);
    judge_sources(&j, root ? 1000 : 1430);
    if (root && system(command) == 0) {
        exl2__vocab big;
        exl2__grammar_vocab big_table, small_table = table;
        exl2__vocab small = vocab;
        CHECK(vocab_open(&context, folder, &big) == EXL2_OK);
        vocab = big;
        CHECK(exl2__grammar_vocab_open(&context, &vocab, &big_table) == EXL2_OK);
        table = big_table;
        judge_sources(&j, 430);
        exl2__grammar_vocab_close(&context, &table);
        exl2__vocab_close(&context, &vocab);
        vocab = small;
        table = small_table;
    }
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    CHECK_INT(system(command), 0);
    judge_close(&j);
}

int main(void)
{
    context = rows_ctx();
    if (!CHECK(vocab_open(&context, EXL2_GOLDEN_DIR "/smollm2", &vocab) == EXL2_OK)
        || !CHECK(exl2__grammar_vocab_open(&context, &vocab, &table) == EXL2_OK)) {
        return check_done();
    }
    check_texts();
    check_mark();
    check_refusals();
    check_masks();
    check_forced_tokens();
    check_counts();
    check_small_block();
    check_memory();
    check_judged();
    exl2__grammar_vocab_close(&context, &table);
    exl2__vocab_close(&context, &vocab);
    CHECK_INT(context.host_bytes, 0);
    return check_done();
}

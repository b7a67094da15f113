/* reasoning.c: a reply's text is parted at the tags in the same way, wherever the pieces of the text are cut; a prompt
   that ends inside of an open tag is recognised. */
#include "../../demo/serve/reasoning.h"
#include "../check.h"

typedef struct split_case {
    const char *text;
    bool inside;
    const char *thought, *content; /* what must come out */
} split_case;

static const split_case cases[] = {
    { "<think>a b</think>c", false, "a b", "c" },
    { "<think>\na\n</think>\n\nc\n", false, "a", "c\n" },
    { "a\n</think>\n\nc", true, "a", "c" },
    { "<think>\na</think>c", true, "a", "c" },        /* the tag once more */
    { "plain text", false, "", "plain text" },
    { "  plain \n", false, "", "  plain \n" },
    { "a < b, <thin, </think> x", false, "", "a < b, <thin, </think> x" },
    { "<thi", false, "", "<thi" },                    /* never became a tag */
    { "<think>cut </thin", false, "cut </thin", "" },
    { "<think></think>x", false, "", "x" },
    { "<think>\n\n</think>\n\nx", false, "", "x" },
    { "x <think>a</think> y <think>b</think> z", false, "ab", "xyz" },
    { "x\n<<think>a<</think>>", false, "a<", "x\n<>" },
    { "<think>a <b> c</b></think>d", false, "a <b> c</b>", "d" },
    { "<think>\xC3\xA9\xE2\x82\xAC</think>\xF0\x9F\x98\x80", false, "\xC3\xA9\xE2\x82\xAC", "\xF0\x9F\x98\x80" },
    { "", true, "", "" },
    { " \n ", true, "", "" },
    { "no end", true, "no end", "" },
};

/* Feeds pieces of `piece` bytes, the first one of `first`. */
static void split(const split_case *c, const reasoning_tags *tags, size_t first, size_t piece)
{
    reasoning r = { 0 };
    reasoning_part part;
    buffer texts[2] = { { 0 } };
    size_t bytes = strlen(c->text);
    reasoning_begin(&r, tags, c->inside);
    for (size_t at = 0, next = first; at <= bytes; at += next, next = piece) {
        next = next < bytes - at ? next : bytes - at;
        if (next) {
            reasoning_add(&r, c->text + at, next);
        }
        if (at + next >= bytes) {
            reasoning_finish(&r);
        }
        while (reasoning_next(&r, &part)) {
            CHECK(part.bytes > 0);
            buffer_add(&texts[part.kind == REASONING_THOUGHT], part.text, part.bytes);
        }
        if (at + next >= bytes) {
            break;
        }
    }
    CHECK_TEXT(texts[1].data ? texts[1].data : "", c->thought);
    CHECK_TEXT(texts[0].data ? texts[0].data : "", c->content);
    buffer_free(&texts[0]);
    buffer_free(&texts[1]);
    reasoning_free(&r);
}

static void every_cut(void)
{
    reasoning_tags tags;
    CHECK(reasoning_tags_read("auto", NULL, &tags));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t first = 1; first <= strlen(cases[i].text) + 1; first++) {
            split(&cases[i], &tags, first, SIZE_MAX);
            split(&cases[i], &tags, first, 1);
            split(&cases[i], &tags, first, 3);
        }
    }
}

/* Text that cannot be part of a tag comes at once. */
static void nothing_waits(void)
{
    reasoning_tags tags;
    reasoning r = { 0 };
    reasoning_part part;
    CHECK(reasoning_tags_read("auto", NULL, &tags));
    reasoning_begin(&r, &tags, false);
    reasoning_add(&r, "Hello wor", 9);
    CHECK(reasoning_next(&r, &part) && part.bytes == 9 && part.kind == REASONING_CONTENT);
    CHECK(!reasoning_next(&r, &part));
    reasoning_add(&r, "ld <", 4);
    CHECK(reasoning_next(&r, &part) && part.bytes == 2);
    CHECK(!reasoning_next(&r, &part));
    reasoning_add(&r, "3", 1);
    CHECK(reasoning_next(&r, &part) && part.bytes == 3 && memcmp(part.text, " <3", 3) == 0);
    reasoning_free(&r);
}

static void tags(void)
{
    reasoning_tags t;
    CHECK(reasoning_tags_read("none", "<think>", &t) && !t.open[0]);
    split(&(split_case){ "<think>a</think>b ", false, "", "<think>a</think>b " }, &t, 3, 1);
    CHECK(reasoning_tags_read("auto", "{{ '[THINK]' }} ... [/THINK]", &t));
    CHECK_TEXT(t.open, "[THINK]");
    CHECK_TEXT(t.close, "[/THINK]");
    CHECK(reasoning_tags_read("auto", "content.split('</think>')[-1]", &t));
    CHECK_TEXT(t.open, "<think>");
    CHECK(reasoning_tags_read("<a>,</a>", NULL, &t));
    CHECK_TEXT(t.open, "<a>");
    CHECK_TEXT(t.close, "</a>");
    split(&(split_case){ "<a>b</a><a>c</a>", false, "bc", "" }, &t, 2, 1);
    CHECK(!reasoning_tags_read("on", NULL, &t));
    CHECK(!reasoning_tags_read(",x", NULL, &t));
    CHECK(!reasoning_tags_read("x,", NULL, &t));
    char longest[200];
    memset(longest, 'x', sizeof longest);
    longest[100] = ',';
    longest[199] = 0;
    CHECK(!reasoning_tags_read(longest, NULL, &t));
}

static bool opens(const char *prompt)
{
    reasoning_tags t;
    CHECK(reasoning_tags_read("auto", NULL, &t));
    return reasoning_opens(&t, prompt, strlen(prompt));
}

static void prompts(void)
{
    char far[400];
    memset(far, 'x', sizeof far - 1);
    far[sizeof far - 1] = 0;
    memcpy(far + 100, "<think>", 7);
    CHECK(opens("<|im_start|>assistant\n<think>\n"));
    CHECK(opens("<think>"));
    CHECK(opens("<think>a</think>b<think>"));
    CHECK(opens("<think>so far, 1 < 2 and [x"));
    CHECK(!opens(""));
    CHECK(!opens("<|im_start|>assistant\n"));
    CHECK(!opens("<think>\n\n</think>\n\n"));
    CHECK(!opens("say <think> please<|im_end|>\n<|im_start|>assistant\n"));
    CHECK(!opens("use <think> please [/INST]"));
    CHECK(!opens(far));
    memcpy(far + 250, "<think>", 7);
    CHECK(opens(far));
    CHECK(!reasoning_opens(&(reasoning_tags){ "", "" }, "<think>", 7));
}

int main(void)
{
    every_cut();
    nothing_waits();
    tags();
    prompts();
    return check_done();
}

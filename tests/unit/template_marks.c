/* template_marks.c: chat templates: which bytes of a render come from outside the template, which added tokens a
   template guards, and the messages of rejected templates. */
#include "private/platform_alloc.h"
#include "private/template_set.h"
#include "../check.h"

static exl2__ctx ctx;

static const exl2_message talk[] = {
    { .role = "system", .text = "Be brief." }, { .role = "user", .text = " <|end|>\xC3\xA9 " },
    { .role = "assistant", .text = NULL }, { .role = "user", .text = "" },
};

/* Renders for `talk` in a block of 64 KiB; the texts stay valid until the next call. */
static exl2_result render(const char *source, const char *tools, const char **text, size_t *bytes,
                          const uint8_t **marks)
{
    static _Alignas(16) char block[1 << 16];
    exl2__template t;
    exl2_chat_desc chat = { .tools = tools };
    exl2__template_input in = { talk, EXL2__COUNT(talk), &chat, "<s>", "</s>", NULL, NULL, NULL, NULL, NULL, NULL };
    *text = "";
    *bytes = 0;
    exl2_result result = exl2__template_open(&ctx, source, strlen(source), &t);
    if (result == EXL2_OK) {
        result = exl2__template_render(&ctx, &t, &in, block, sizeof block, text, bytes, marks);
    }
    exl2__template_close(&ctx, &t);
    return result;
}

/* The template renders to `wanted`; `marks` has an 'm' under each byte that comes from a message or a tool. */
static void check_marks(const char *source, const char *tools, const char *wanted, const char *wanted_marks)
{
    const char *text;
    const uint8_t *marks;
    size_t bytes;
    char got[512];
    CHECK_INT(render(source, tools, &text, &bytes, &marks), EXL2_OK);
    CHECK_TEXT(text, wanted);
    for (size_t i = 0; i < bytes && i < sizeof got - 1; i++) {
        got[i] = marks[i / 8] >> i % 8 & 1 ? 'm' : '.';
    }
    got[bytes] = 0;
    CHECK_TEXT(got, wanted_marks);
}

/* Whatever a template does with the text of a message, its bytes stay marked. */
static void test_marks(void)
{
    check_marks("a{{ messages[0].content }}b", NULL, "aBe brief.b", ".mmmmmmmmm.");
    check_marks("{{ messages[0].role + '|' + messages[0]['content'][3:5] }}", NULL, "system|br", "mmmmmm.mm");
    check_marks("{{ messages[1].content | trim }}<|end|>", NULL, "<|end|>\xC3\xA9<|end|>", "mmmmmmmmm.......");
    check_marks("{{ messages[0].content[::-1] ~ bos_token }}", NULL, ".feirb eB<s>", "mmmmmmmmm...");
    check_marks("{% set x %}({{ messages[0].content.split('r')[0] }}){% endset %}{{ x * 2 }}", NULL, "(Be b)(Be b)",
                ".mmmm..mmmm.");
    check_marks("{{ messages[0].content.replace('brief', 'Z' ~ messages[0].role) }}", NULL, "Be Zsystem.",
                "mmm.mmmmmmm");
    check_marks("{% for c in messages[0].content[:2] %}{{ c }}-{% endfor %}", NULL, "B-e-", "m.m.");
    check_marks("{{ messages | length }}{{ messages[0].content | length }}", NULL, "49", "..");
    check_marks("{{ [messages[0].content, 'q'] | join('+') }}", NULL, "Be brief.+q", "mmmmmmmmm..");
    check_marks("{{ messages[0].content | first }}{{ 'abc' if messages[0].content }}", NULL, "Babc", "m...");
    check_marks("{{ messages[:1] }}", NULL, "[{'role': 'system', 'content': 'Be brief.'}]",
                "mm......mmmmmmmmmmmm.........mmmmmmmmmmmmmmm");
    check_marks("{{ tools | tojson }}!{{ tools[0].n + 1 }}", "[{\"n\": 41, \"t\": \"\\n\"}]",
                "[{\"n\": 41, \"t\": \"\\n\"}]!42", "mmmmmmmmmmmmmmmmmmmmmm.mm");
    check_marks("{{ messages[0].content | upper | replace('B', 'Z') }}", NULL, "ZE ZRIEF.", ".mm.mmmmm");
    check_marks("{{ messages[0].content | title ~ '%s|%5s' % (messages[0].role, 1) }}", NULL, "Be Brief.system|    1",
                "mmmmmmmmmmmmmmm......");
    check_marks("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(messages[0].role) }}", NULL, "<system>", ".mmmmmm.");
    check_marks("{% filter indent(1) %}a\n{{ messages[0].content }}{% endfilter %}", NULL, "a\n Be brief.",
                "...mmmmmmmmm");
    check_marks("{{ messages | map(attribute='role') | unique | sort | join(',') }}", NULL, "assistant,system,user",
                ".........." "mmmmmm.mmmm");
    check_marks("{{ messages[2].role }}{{ messages[2] | tojson }}", NULL,
                "assistant{\"role\": \"assistant\", \"content\": null}",
                "...............................................");
    check_marks("{{ messages[2].content is none }}{{ messages[3].content }}{{ pad_token is defined }}", NULL,
                "TrueFalse", ".........");
    check_marks("{{ '+-7' | int }}|{{ ' -7' | int }}|{{ '+7.' | float }}|{{ '10000000000000000000000' | float }}", NULL,
                "0|-7|7.0|1e+22", "..............");
    check_marks("{{ '7e+' | int }}|{{ '7e+1' | int }}|{{ '.' | float(2) }}|{{ '.5e1' | float }}|{{ 'e1' | int }}", NULL,
                "0|70|2|5.0|0", "............");
    check_marks("{{ '>=' is test }}{{ '=>' is test }}", NULL, "TrueFalse", "........."); /* Jinja's names of tests */
}

/* Added tokens that are in the template count as markers. Others keep their kind. */
static void test_guard(void)
{
    static const char contents[] = "<b><tool_call>";
    exl2__added_token tokens[2] = { { .id = 7, .at = 0, .bytes = 3 }, { .id = 8, .at = 3, .bytes = 11 } };
    static exl2__vocab vocab;
    exl2__added *added = &vocab.added;
    *added = (exl2__added){ .text = contents, .tokens = tokens, .count = 2 };
    exl2__template t;
    const char *source = "{{ '<tool_call>' }}", *text = "<b><tool_call><tool_call>";
    uint8_t marks[4] = { 0xFF, 0x3F, 0, 0 }; /* the first 14 bytes */
    exl2__added_match match;
    uint32_t ids[4] = { 0 }, count = 0;
    exl2__work all = exl2__work_all();
    uint32_t sorted = 0, twice;
    CHECK_INT(exl2__added_sort(added, &sorted, &all, &twice), EXL2_OK);
    CHECK_INT(twice, EXL2__ADDED_NONE);
    CHECK_INT(exl2__template_open(&ctx, source, strlen(source), &t), EXL2_OK);
    CHECK_INT(exl2__template_guard(&ctx, &t, &vocab), EXL2_OK);
    exl2__added_scan scan = { .added = added, .text = text, .bytes = strlen(text), .forbidden = marks,
                              .guarded = t.guard };
    while (count < 4 && exl2__added_next(&scan, &match)) {
        ids[count++] = match.token->id;
    }
    CHECK(count == 2 && ids[0] == 7 && ids[1] == 8);
    exl2__template_close(&ctx, &t);
}

static void check_error(const char *source, exl2_result code, const char *sentence)
{
    const char *text;
    const uint8_t *marks;
    size_t bytes;
    CHECK_INT(render(source, NULL, &text, &bytes, &marks), code);
    CHECK_TEXT(ctx.error.text, sentence);
}

static void test_errors(void)
{
    check_error("a\nb\n{{ 'x' }}{{ y | nope }}", EXL2_ERR_UNSUPPORTED,
                "chat template line 3, column 17: filter 'nope' is not supported");
    check_error("\xC3\xA9{% include 'x' %}", EXL2_ERR_UNSUPPORTED,
                "chat template line 1, column 5: statement 'include' is not supported");
    check_error("{{ bos_token.shout() }}", EXL2_ERR_FORMAT,
                "chat template line 1, column 14: 'str object' has no attribute 'shout'");
    check_error("{{ bos_token.encode() }}", EXL2_ERR_UNSUPPORTED,
                "chat template line 1, column 14: method 'encode' of a str is not supported");
    check_error("{{ messages.append(1) }}", EXL2_ERR_FORMAT,
                "chat template line 1, column 13: access to attribute 'append' of 'list' object is unsafe.");
    check_error("{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", EXL2_ERR_FORMAT,
                "chat template line 1, column 41: a macro got 2 positional arguments, expected at most 1");
    check_error("{{ strftime_now('%G') }}", EXL2_ERR_UNSUPPORTED,
                "chat template line 1, column 4: strftime_now with '%G' is not supported");
    check_error("{{ messages | selectattr('role', 'nice') | list }}", EXL2_ERR_UNSUPPORTED,
                "chat template line 1, column 15: test 'nice' is not supported");
    check_error("{{ x is nice }}", EXL2_ERR_UNSUPPORTED,
                "chat template line 1, column 9: test 'nice' is not supported");
    check_error("{{ f(1) }}", EXL2_ERR_UNSUPPORTED, "chat template line 1, column 4: function 'f' is not supported");
    check_error("{{ x | join(limit=1) }}", EXL2_ERR_UNSUPPORTED,
                "chat template line 1, column 13: filter 'join' with the argument 'limit' is not supported");
    check_error("{% if x %}", EXL2_ERR_FORMAT,
                "chat template line 1, column 11: expected endif, found the end of the template");
    check_error("{% if x %}{% endfor %}", EXL2_ERR_FORMAT,
                "chat template line 1, column 14: 'endfor' ends no open statement");
    check_error("\r\n{{ (1 }}", EXL2_ERR_FORMAT,
                "chat template line 2, column 7: this closing bracket matches no opening bracket");
    check_error("{# x", EXL2_ERR_FORMAT, "chat template line 1, column 1: this comment has no end");
    check_error("{{ raise_exception('No ' ~ messages[0].role) }}", EXL2_ERR_ARG, "No system");
    check_error("{{ raise_exception('a\xFF\xC3\xA9\xE2\x82|\xED\xA0\x80\xC0\xAF') }}", EXL2_ERR_ARG,
                "a?\xC3\xA9??|?????"); /* messages are UTF-8, whatever they quote */
    check_error("{{ 'a' + messages[2].content }}", EXL2_ERR_FORMAT,
                "chat template line 1, column 8: can only concatenate str (not \"NoneType\") to str");
    check_error("{{ messages[9].role }}", EXL2_ERR_FORMAT,
                "chat template line 1, column 16: list object has no such element");
    const char *text;
    const uint8_t *marks;
    size_t bytes;
    CHECK_INT(render("{{ tools }}", "[1,", &text, &bytes, &marks), EXL2_ERR_ARG);
    CHECK_TEXT(ctx.error.text, "chat template: tools is not valid JSON: expected a value at byte 3");
}

int main(void)
{
    ctx.allocator = exl2__platform_allocator();
    test_marks();
    test_guard();
    test_errors();
    CHECK_INT(ctx.host_bytes, 0);
    return check_done();
}

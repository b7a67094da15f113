/* template_probe.c: whether a chat template reads tools and tool calls, found by rendering; and messages of errors,
   which are one line with words whatever a template raises. */
#include "private/log.h"
#include "private/platform_alloc.h"
#include "private/template_probe.h"
#include "../check.h"

static exl2__ctx ctx;

/* ---- tools ---- */

static void check_reads(const char *name, const char *source, bool tools, bool tool_calls)
{
    exl2__template t;
    exl2__template_input tokens = { .bos_token = "<s>", .eos_token = "</s>" };
    CHECK_INT(exl2__template_open(&ctx, source, strlen(source), &t), EXL2_OK);
    CHECK_INT(exl2__template_probe(&ctx, &t, &tokens), EXL2_OK);
    if (!CHECK(t.reads_tools == tools && t.reads_tool_calls == tool_calls)) {
        printf("%s: reads_tools %d, reads_tool_calls %d\n", name, t.reads_tools, t.reads_tool_calls);
    }
    exl2__template_close(&ctx, &t);
}

static void test_reads(void)
{
    static const char *const rows[][3] = { /* template, "t" reads tools, "c" tool calls */
        { "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}", "", "" },
        { "{{ tools | tojson }}", "t", "" },
        { "{% if tools %}{% for x in tools %}{{ x.function.name }}{% endfor %}{% endif %}", "t", "" },
        { "{{ tools }}", "t", "" },
        { "{% if messages[0].role == 'system' and tools %}{{ tools | tojson(indent=4) }}{% endif %}", "t", "" },
        { "{% for m in messages %}{{ m.tool_calls }}{% endfor %}", "", "c" },
        { "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.name }}{% endfor %}{% endfor %}", "", "c" },
        { "{% for m in messages %}{% if m.tool_calls and not m.content %}{{ m.tool_calls | tojson }}{% endif %}"
          "{% endfor %}", "", "c" },
        { "{% if not tools %}{{ raise_exception('tools!') }}{% endif %}{% for m in messages %}"
          "{{ m.tool_calls[0].function | tojson if m.tool_calls }}{% endfor %}", "", "c" },
        { "{% if messages[0].role != 'user' %}{{ raise_exception('no system') }}{% endif %}{{ tools }}"
          "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tool') }}{% endif %}"
          "{{ m.tool_calls }}{% endfor %}", "t", "c" },
        { "{{ tools | length }}{{ messages | selectattr('tool_calls') | list | length }}", "", "" },
        { "{{ raise_exception('never') }}", "", "" },
        { "{% include 'x' %}", "", "" },
    };
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        check_reads(rows[i][0], rows[i][0], rows[i][1][0] == 't', rows[i][2][0] == 'c');
    }
}

/* Templates of the shared fixtures. */
static void test_shared(void)
{
    static const struct {
        const char *name;
        bool tools, tool_calls;
    } rows[] = {
        { "chatml", false, false },       { "gemma_turns", false, false },  { "hermes_tools", true, true },
        { "llama2_inst", false, false },  { "llama3_tools", true, true },   { "phi3", false, false },
        { "qwen_think_tools", true, true }, { "vicuna", false, false },     { "zephyr", false, false },
    };
    const char *root = getenv("EXL2_TEST_DATA");
    for (size_t i = 0; root && i < EXL2__COUNT(rows); i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/fixtures/templates/%s/template.jinja", root, rows[i].name);
        char *source = check_read(path, NULL);
        check_reads(rows[i].name, source, rows[i].tools, rows[i].tool_calls);
        free(source);
    }
}

/* ---- messages ---- */

static uint32_t lines;

/* One line of valid UTF-8 that has a visible character. */
static void check_line(const char *text)
{
    bool words = false;
    CHECK(exl2__unicode_valid(text, strlen(text)));
    for (const char *at = text; *at; at++) {
        CHECK((uint8_t)*at >= 0x20 && *at != 0x7F);
        words = words || *at != ' ';
    }
    CHECK(words && !strstr(text, "\xC2\x85") && !strstr(text, "\xE2\x80\xA8") && !strstr(text, "\xE2\x80\xA9"));
}

static void hear_line(void *user, exl2_log_level level, exl2_log_id id, exl2_result code, const char *text)
{
    (void)user, (void)level, (void)id, (void)code;
    check_line(text);
    lines++;
}

static void test_messages(void)
{
    static const char *const texts[] = {
        "", " ", "\n", "\xFF", "\xC3", "\xF5\x80\x80\x80", "two\nlines", "a\r\nb\tc\x01\x7F", "\xC2\x85\xE2\x80\xA8",
        "\xE2\x80\xA9x", "\xE2\x80", "\xED\xA0\x80", "\xC0\xAF", "caf\xC3\xA9",
    };
    ctx.logger.line = hear_line;
    ctx.logger.max_level = EXL2_LOG_DEBUG;
    for (size_t i = 0; i < EXL2__COUNT(texts); i++) {
        lines = 0;
        CHECK_INT(exl2__fail(&ctx, EXL2_ERR_ARG, "%s", texts[i]), EXL2_ERR_ARG);
        check_line(ctx.error.text);
        CHECK_INT(exl2__fail(&ctx, EXL2_ERR_ARG, "%.*s", (int)strlen(texts[i]), texts[i]), EXL2_ERR_ARG);
        check_line(ctx.error.text);
        exl2__log(&ctx, EXL2_LOG_WARN, EXL2_LOG_ID_FAILED, "%s", texts[i]);
        CHECK_INT(lines, 3);
    }
    CHECK_INT(exl2__fail(&ctx, EXL2_ERR_ARG, "two\nlines, caf\xC3\xA9"), EXL2_ERR_ARG);
    CHECK_TEXT(ctx.error.text, "two lines, caf\xC3\xA9");
}

/* raise_exception with any text. */
static void test_raised(void)
{
    static const char *const rows[][2] = {
        { "{{ raise_exception('\xFF') }}", "?" },
        { "{{ raise_exception('') }}", "chat template line 1, column 4: the template rejects the messages without "
                                       "saying why" },
        { "{{ raise_exception(' \\n') }}", "chat template line 1, column 4: the template rejects the messages without "
                                           "saying why" },
        { "{{ raise_exception('two\\nlines') }}", "two lines" },
        { "{{ raise_exception(nothing) }}", "chat template line 1, column 4: the template rejects the messages without "
                                            "saying why" },
        { "{{ raise_exception('\xC3') }}", "(a message without text)" },
    };
    static _Alignas(16) char block[1 << 16];
    exl2_chat_desc chat = { 0 };
    exl2__template_input in = { .chat = &chat };
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        exl2__template t;
        const char *text;
        const uint8_t *marks;
        size_t bytes;
        CHECK_INT(exl2__template_open(&ctx, rows[i][0], strlen(rows[i][0]), &t), EXL2_OK);
        CHECK_INT(exl2__template_render(&ctx, &t, &in, block, sizeof block, &text, &bytes, &marks), EXL2_ERR_ARG);
        CHECK_TEXT(ctx.error.text, rows[i][1]);
        exl2__template_close(&ctx, &t);
    }
}

int main(void)
{
    ctx.allocator = exl2__platform_allocator();
    test_reads();
    test_shared();
    test_messages();
    test_raised();
    CHECK_INT(ctx.host_bytes, 0);
    return check_done();
}

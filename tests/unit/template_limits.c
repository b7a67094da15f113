/* template_limits.c: malicious chat templates, blocks that are too small, model folders, failing allocations. */
#include "private/platform_alloc.h"
#include "private/template_set.h"
#include "../check.h"
#include "../template_set_open.h"

static exl2__ctx ctx;

static const exl2_message talk[] = {
    { .role = "system", .text = "Be brief." }, { .role = "user", .text = " <|end|>\xC3\xA9 " },
    { .role = "assistant", .text = NULL }, { .role = "user", .text = "" },
};

static const exl2_chat_desc no_chat = { 0 };

/* ---- hostile templates ---- */

/* `count` times `piece` between the two ends. The caller frees it. */
static char *repeated(const char *front, const char *piece, size_t count, const char *back)
{
    size_t bytes = strlen(piece);
    char *text = malloc(strlen(front) + bytes * count + strlen(back) + 1), *at = text;
    at += sprintf(at, "%s", front);
    for (size_t i = 0; i < count; i++) {
        memcpy(at, piece, bytes);
        at += bytes;
    }
    sprintf(at, "%s", back);
    return text;
}

static exl2_result render_growing(const char *source)
{
    exl2__template t;
    exl2__template_input in = { talk, EXL2__COUNT(talk), &no_chat, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL };
    exl2_result result = exl2__template_open(&ctx, source, strlen(source), &t);
    for (size_t bytes = 1 << 16, go = result == EXL2_OK; go; bytes *= 4) {
        void *block = malloc(bytes);
        const char *text;
        const uint8_t *marks;
        size_t text_bytes;
        result = exl2__template_render(&ctx, &t, &in, block, bytes, &text, &text_bytes, &marks);
        go = result == EXL2_ERR_TOO_SMALL;
        free(block);
    }
    exl2__template_close(&ctx, &t);
    return result;
}

/* Frees the source. */
static void check_ends(char *source, exl2_result code)
{
    ctx.error.text[0] = 0;
    CHECK_INT(render_growing(source), code);
    CHECK(code == EXL2_OK || strlen(ctx.error.text) > 20);
    free(source);
}

static void test_limits(void)
{
    check_ends(repeated("{{ ", "(", 100000, "1"), EXL2_ERR_UNSUPPORTED);
    check_ends(repeated("{{ ", "-", 100000, "1 }}"), EXL2_ERR_UNSUPPORTED);
    check_ends(repeated("{{ ", "not ", 100000, "1 }}"), EXL2_OK);
    check_ends(repeated("{{ 1", " + 1", 100000, " }}"), EXL2_OK);
    check_ends(repeated("{{ 'a'", " ~ 'a'", 60000, " }}"), EXL2_OK);
    check_ends(repeated("{{ 'a'", " + 'a'", 60000, " }}"), EXL2_OK);
    check_ends(repeated("{{ x", ".a", 100000, " }}"), EXL2_ERR_FORMAT);
    check_ends(repeated("{{ 1", " if 1", 100000, " }}"), EXL2_ERR_UNSUPPORTED);
    check_ends(repeated("{{ 1", " if 1 else 1", 30000, " }}"), EXL2_ERR_UNSUPPORTED);
    check_ends(repeated("", "{% if 1 %}", 40000, ""), EXL2_ERR_UNSUPPORTED);
    check_ends(repeated("{{ [", "1,", 200000, "] | length }}"), EXL2_OK);
    check_ends(repeated("{{ {", "1:1,", 100000, "} | length }}"), EXL2_OK);
    check_ends(repeated("", "x", 600000, ""), EXL2_ERR_UNSUPPORTED);
    check_ends(repeated("{% for a in range(100000) %}{% for b in range(100000) %}", "x", 1, "{% endfor %}{% endfor %}"),
               EXL2_ERR_BUDGET);
    check_ends(repeated("{{ 'x'", " * 999999", 3, " }}"), EXL2_ERR_BUDGET);
    check_ends(repeated("{% set n = namespace(a=[]) %}{% for i in range(1000) %}{% set n.a = [n.a] %}{% endfor %}",
                        "{{ n.a }}", 1, ""),
               EXL2_ERR_UNSUPPORTED);
    check_ends(repeated("{% set n = namespace(a='aa') %}{% for i in range(100) %}{% set n.a = n.a ~ n.a %}", "", 0,
                        "{% endfor %}"),
               EXL2_ERR_BUDGET);
    check_ends(repeated("{% set a = 'a' * 4000000 %}{{ ", "(a ~ 'b') in a or ", 40, "1 }}"), EXL2_ERR_BUDGET);
    check_ends(repeated("{{ 9", " ** 9", 30, " }}"), EXL2_ERR_UNSUPPORTED);
    check_ends(repeated("{% macro m() %}{{ m() }}{% endmacro %}", "{{ m() }}", 1, ""), EXL2_ERR_UNSUPPORTED);
    check_ends(repeated("{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}", "{{ m() }}", 1, ""), EXL2_ERR_UNSUPPORTED);
    check_ends(repeated("{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}",
                        "{{ m(30) }}", 1, ""),
               EXL2_ERR_BUDGET);
    check_ends(repeated("{% set n = namespace() %}{% macro a() %}{% macro b() %}{% endmacro %}{% set n.f = b %}",
                        "{% endmacro %}{{ a() }}{% set g = n.f %}{{ g() }}", 1, ""),
               EXL2_ERR_UNSUPPORTED);
    check_ends(repeated("", "{% macro a() %}", 100, ""), EXL2_ERR_UNSUPPORTED);
    check_ends(repeated("", "{% filter upper %}", 100, ""), EXL2_ERR_UNSUPPORTED);
    check_ends(repeated("{{ 'a'", "|upper", 60000, " }}"), EXL2_OK);
    check_ends(repeated("{{ 'a'.center(", "9", 12, ") }}"), EXL2_ERR_BUDGET);
    check_ends(repeated("{{ '%9999s' % 'a'", " ~ '%9999s' % 'a'", 20000, " }}"), EXL2_ERR_BUDGET);
    check_ends(repeated("{{ [1] | slice(", "9", 9, ") | list | length }}"), EXL2_ERR_BUDGET);
    check_ends(repeated("{{ (range(100000) | list) | unique", "", 0, " | list | length }}"), EXL2_ERR_BUDGET);
    check_ends(repeated("{{ range(100000) | sort(reverse=true)", "", 0, " | first }}"), EXL2_OK);
    check_ends(repeated("{% set v = range(100000) %}{% for i in v %}{% set x = v | max %}", "", 0, "{% endfor %}"),
               EXL2_ERR_BUDGET);
    check_ends(repeated("{% for i in range(9999) %}{% set x = 2.2250738585072014e-308 ~ '' %}", "", 0, "{% endfor %}"),
               EXL2_ERR_BUDGET);
    check_ends(repeated("{% set v = 'ab ' * 300000 %}{% for i in range(99) %}{% set x = v.split(none, 0) | length %}",
                        "", 0, "{% endfor %}"), EXL2_ERR_BUDGET);
    check_ends(repeated("{{ ('", "a line of a long message\\n", 4000, "') | replace('\n', '|') | length }}"), EXL2_OK);
}

/* A block that is too small gives its error without a log line, whatever its size. A larger block then gives the same
   text. */
static void test_small_blocks(void)
{
    const char *source =
        "{% set n = namespace(a='') %}{% for m in messages %}{% set n.a = n.a ~ m.role %}{{ m }}{% endfor %}{{ n.a }}";
    exl2_message plain[] = { { .role = "system", .text = "Be" }, { .role = "user", .text = "Go" } };
    exl2_chat_desc chat = { .tools = "[{\"a\": [1, 2.5]}]" };
    exl2__template_input in = { plain, 2, &chat, "<s>", NULL, NULL, NULL, NULL, NULL, NULL, NULL };
    exl2__template t;
    const char *text;
    const uint8_t *marks;
    size_t bytes, fits = 0;
    CHECK_INT(exl2__template_open(&ctx, source, strlen(source), &t), EXL2_OK);
    memset(&ctx.error, 0, sizeof ctx.error);
    for (size_t size = 0; size < 32768; size += 29) {
        char *block = malloc(size + 3); /* exact size, so that a sanitizer sees every byte beyond it */
        exl2_result result = exl2__template_render(&ctx, &t, &in, block + 3, size, &text, &bytes, &marks);
        CHECK(result == EXL2_ERR_TOO_SMALL || result == EXL2_OK);
        CHECK(result == EXL2_OK || fits == 0);
        if (result == EXL2_OK) {
            CHECK_TEXT(text, "{'role': 'system', 'content': 'Be'}{'role': 'user', 'content': 'Go'}systemuser");
            fits++;
        }
        free(block);
    }
    CHECK(fits > 0);
    CHECK_INT(ctx.error.code, 0);
    exl2__template_close(&ctx, &t);
}

/* ---- model folders, in memory ---- */

typedef struct folder {
    const char *jinja, *config; /* NULL: the file is missing */
    int allocations_left;       /* -1: no limit */
} folder;

static void *folder_open(void *user, const char *path, uint64_t *bytes)
{
    const folder *f = user;
    const char *text = strstr(path, "chat_template.jinja")     ? f->jinja
                       : strstr(path, "tokenizer_config.json") ? f->config
                                                               : NULL;
    *bytes = text ? strlen(text) : 0;
    return (void *)(uintptr_t)text;
}

static int64_t folder_read(void *user, void *file, uint64_t offset, void *out, size_t bytes)
{
    (void)user;
    memcpy(out, (const char *)file + offset, bytes);
    return (int64_t)bytes;
}

static void folder_close(void *user, void *file)
{
    (void)user;
    (void)file;
}

static void *folder_alloc(void *user, size_t bytes, size_t align, exl2_mem tag)
{
    folder *f = user;
    (void)tag;
    if (f->allocations_left == 0) {
        return NULL;
    }
    f->allocations_left -= f->allocations_left > 0;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void folder_free(void *user, void *memory, size_t bytes, exl2_mem tag)
{
    (void)user;
    (void)bytes;
    (void)tag;
    free(memory);
}

static exl2_result folder_template(folder *f, exl2__ctx *c, exl2__template_set *t)
{
    memset(c, 0, sizeof *c);
    c->allocator = (exl2_allocator){ .alloc_fn = folder_alloc, .free_fn = folder_free, .user = f };
    c->files = (exl2_files){ folder_open, NULL, folder_read, folder_close, f };
    return template_set_open(c, "model", t);
}

static void test_config(void)
{
    static const struct {
        const char *jinja, *config;
        bool present;
        const char *text, *refusal; /* expected of the render */
    } rows[] = {
        { NULL, NULL, false, NULL, "the model has no chat template" },
        { NULL, "{}", false, NULL, "the model has no chat template" },
        { NULL, "{\"chat_template\": null}", false, NULL, "the model has no chat template" },
        { NULL, "{\"chat_template\": \"a{{ 1 }}\\n\\n\"}", true, "a1\n", NULL },
        { "J", "{\"chat_template\": \"C\"}", true, "J", NULL },
        { NULL,
          "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"T\"}, {\"name\": \"default\", \"template\": "
          "\"D\"}]}",
          true, "D", NULL },
        { NULL, "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"T\"}]}", false, NULL,
          "the model has no chat template" },
        { "{{ x | nope }}", NULL, true, NULL, "chat template line 1, column 8: filter 'nope' is not supported" },
        { "", NULL, true, "", NULL },
    };
    char block[1 << 14];
    exl2__template_input in = { talk, EXL2__COUNT(talk), &no_chat, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL };
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        folder f = { rows[i].jinja, rows[i].config, -1 };
        exl2__ctx c;
        exl2__template_set t;
        const char *text;
        const uint8_t *marks;
        size_t bytes;
        CHECK_INT(folder_template(&f, &c, &t), EXL2_OK);
        CHECK_INT(exl2__template_set_pick(&t, NULL, false) != NULL, rows[i].present);
        CHECK_INT(c.host_bytes, t.bytes);
        static const exl2__template absent;
        const exl2__template *picked = exl2__template_set_pick(&t, NULL, false);
        exl2_result result = exl2__template_render(&c, picked ? picked : &absent, &in, block, sizeof block,
                                                    &text, &bytes, &marks);
        CHECK_INT(result == EXL2_OK, rows[i].text != NULL);
        CHECK_TEXT(result == EXL2_OK ? text : c.error.text, rows[i].text ? rows[i].text : rows[i].refusal);
        exl2__template_set_close(&c, &t);
        exl2__template_set_close(&c, &t);
        CHECK_INT(c.host_bytes, 0);
    }
}

/* Every allocation fails once: the right code, and nothing is kept. */
static void test_faults(void)
{
    const char *configs[2] = { NULL,
                               "{\"chat_template\": \"{% for m in messages %}{{ m.role ~ '\\\\n' }}{% endfor %}\"}" };
    for (int which = 0; which < 2; which++) {
        exl2_result result = EXL2_ERR_MEMORY;
        for (int n = 0; result != EXL2_OK && n < 50; n++) {
            folder f = { configs[which] ? NULL : "{{ 'a\\n' }}", configs[which], n };
            exl2__ctx c;
            exl2__template_set t;
            result = folder_template(&f, &c, &t);
            CHECK(result == EXL2_OK ? n > 1 : result == EXL2_ERR_MEMORY && c.host_bytes == 0 && t.count == 0);
            exl2__template_set_close(&c, &t);
            CHECK_INT(c.host_bytes, 0);
        }
        CHECK_INT(result, EXL2_OK);
    }
}

int main(void)
{
    ctx.allocator = exl2__platform_allocator();
    test_limits();
    test_small_blocks();
    test_config();
    test_faults();
    CHECK_INT(ctx.host_bytes, 0);
    return check_done();
}

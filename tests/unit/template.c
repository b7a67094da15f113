/* template.c: the chat template interpreter against renders of Jinja2 and transformers, and against hostile input. */
#include "../check.h"
#include "../../exl2_impl/0_base/platform.h"
#include "../../exl2_impl/6_text/template.h"

#define LINE_COUNT_MAX 512

static exl2__ctx ctx;

typedef struct lines { /* a .jsonl file */
    char *text, *line[LINE_COUNT_MAX];
    size_t count;
} lines;

static lines lines_read(const char *path)
{
    lines l = { 0 };
    l.text = check_read(path, NULL);
    for (char *at = l.text; *at && l.count < LINE_COUNT_MAX;) {
        char *end = strchr(at, '\n');
        l.line[l.count++] = at;
        if (!end) {
            break;
        }
        *end = 0;
        at = end + 1;
    }
    return l;
}

static const char *golden(const char *name)
{
    static char path[1024];
    const char *root = getenv("EXL2_GOLDEN_DIR");
    snprintf(path, sizeof path, "%s/template/%s", root ? root : "tests/golden", name);
    return path;
}

/* What a render gave: text (malloc) or the failure. */
typedef struct outcome {
    exl2_result code;
    char *text;
    size_t bytes;
} outcome;

static char *json_string(const exl2__json *j, uint32_t token, size_t *bytes)
{
    *bytes = exl2__json_text(j, token, NULL, 0);
    char *text = malloc(*bytes + 1);
    exl2__json_text(j, token, text, *bytes);
    text[*bytes] = 0;
    return text;
}

static exl2_result set_members(exl2__template_run *r, const exl2__json *j, uint32_t object)
{
    for (uint32_t key = exl2__json_first(j, object); key; key = exl2__json_next(j, object, key)) {
        exl2__template_value value;
        size_t bytes;
        EXL2__TRY(exl2__template_json_value(r, j, key + 1, &value));
        char *name = json_string(j, key, &bytes);
        exl2__template_run_set(r, name, &value);
        free(name);
    }
    return EXL2_OK;
}

/* Renders with the members of these objects as variables, in blocks that grow from 512 bytes. */
static outcome render_json(const char *source, size_t source_bytes, const exl2__json *const *json, const uint32_t *objects, size_t count)
{
    outcome o = { EXL2_OK, NULL, 0 };
    exl2__template t = { 0 };
    o.code = exl2__template_open(&ctx, source, source_bytes, &t);
    for (size_t bytes = 512; o.code == EXL2_OK && !o.text; bytes *= 2) {
        exl2__template_run *run;
        void *block = malloc(bytes);
        const char *text;
        const uint8_t *marks;
        exl2_result code = exl2__template_run_open(&ctx, &t, block, bytes, &run);
        for (size_t i = 0; i < count && code == EXL2_OK; i++) {
            code = set_members(run, json[i], objects[i]);
        }
        if (code == EXL2_OK) {
            code = exl2__template_finish(run, &text, &o.bytes, &marks);
        }
        if (code == EXL2_OK) {
            CHECK(text[o.bytes] == 0);
            o.text = malloc(o.bytes + 1);
            memcpy(o.text, text, o.bytes + 1);
        } else if (code != EXL2_ERR_TOO_SMALL) {
            o.code = code;
        }
        free(block);
    }
    exl2__template_close(&ctx, &t);
    return o;
}

/* Equal, refused by name, or (counted as a failure) different. A golden error must be an error; its words, ours or a refusal. */
static void compare(const char *what, size_t line, const exl2__json *row, const outcome *o, size_t *equal, size_t *refused)
{
    uint32_t rendered = exl2__json_get(row, 0, "rendered"), error = exl2__json_get(row, 0, "error");
    size_t bytes;
    char *wanted = json_string(row, rendered ? rendered : error, &bytes);
    bool same = rendered ? o->code == EXL2_OK && o->bytes == bytes && memcmp(o->text, wanted, bytes) == 0 : o->code == EXL2_ERR_FORMAT;
    CHECK(rendered || error);
    if (same) {
        (*equal)++;
        if (error && getenv("SHOW")) {
            printf("%s %zu: \"%s\" / \"%s\"\n", what, line, ctx.error.text, wanted);
        }
    } else if (o->code == EXL2_ERR_UNSUPPORTED) {
        (*refused)++;
        CHECK(strstr(ctx.error.text, "not supported"));
        if (getenv("SHOW")) {
            printf("%s %zu: %s\n", what, line, ctx.error.text);
        }
    } else {
        CHECK(!"a render differs");
        printf("%s line %zu: got %d %s\n  wanted %s\n", what, line, o->code, o->text ? o->text : ctx.error.text, wanted);
    }
    free(wanted);
}

/* ---- goldens ---- */

/* Rows of Jinja2's own behaviour: every one is equal or refused. */
static void test_cases(void)
{
    lines l = lines_read(golden("cases.jsonl"));
    size_t variables_bytes, equal = 0, refused = 0;
    char *variables_text = check_read(golden("variables.json"), &variables_bytes);
    exl2__json variables, row;
    CHECK_INT(exl2__json_open(&ctx, "variables.json", variables_text, variables_bytes, &variables), EXL2_OK);
    for (size_t i = 0; i < l.count; i++) {
        size_t bytes;
        CHECK_INT(exl2__json_open(&ctx, "cases.jsonl", l.line[i], strlen(l.line[i]), &row), EXL2_OK);
        char *source = json_string(&row, exl2__json_get(&row, 0, "template"), &bytes);
        const exl2__json *json[1] = { &variables };
        uint32_t root = 0;
        outcome o = render_json(source, bytes, json, &root, 1);
        compare("cases", i + 1, &row, &o, &equal, &refused);
        free(o.text);
        free(source);
        exl2__json_close(&ctx, &row);
    }
    printf("cases: %zu equal, %zu refused of %zu\n", equal, refused, l.count);
    CHECK(equal >= 124); /* may only grow */
    exl2__json_close(&ctx, &variables);
    free(variables_text);
    free(l.text);
}

/* chat.jsonl of one template: each row is an object with messages, tools, ..., and maybe kwargs. */
static void test_rows(const char *name, const char *source, const char *rows_path, const char *tokens_text, size_t wanted_equal)
{
    lines l = lines_read(rows_path);
    exl2__json tokens, nulls, row;
    size_t equal = 0, refused = 0;
    const char *nulls_text = "{\"documents\":null}";
    CHECK_INT(exl2__json_open(&ctx, "tokens.json", tokens_text, strlen(tokens_text), &tokens), EXL2_OK);
    CHECK_INT(exl2__json_open(&ctx, "nulls", nulls_text, strlen(nulls_text), &nulls), EXL2_OK);
    for (size_t i = 0; i < l.count; i++) {
        CHECK_INT(exl2__json_open(&ctx, rows_path, l.line[i], strlen(l.line[i]), &row), EXL2_OK);
        uint32_t kwargs = exl2__json_get(&row, 0, "kwargs");
        const exl2__json *json[4] = { &tokens, &nulls, &row, &row };
        uint32_t objects[4] = { 0, 0, 0, kwargs };
        outcome o = render_json(source, strlen(source), json, objects, kwargs ? 4 : 3);
        compare(name, i + 1, &row, &o, &equal, &refused);
        free(o.text);
        exl2__json_close(&ctx, &row);
    }
    printf("%s: %zu equal, %zu refused of %zu\n", name, equal, refused, l.count);
    CHECK(equal >= wanted_equal);
    exl2__json_close(&ctx, &nulls);
    exl2__json_close(&ctx, &tokens);
    free(l.text);
}

static void test_smollm2(void)
{
    char *source = check_read(golden("smollm2.jinja"), NULL);
    test_rows("smollm2", source, golden("smollm2.jsonl"), "{\"bos_token\":\"<|im_start|>\",\"eos_token\":\"<|im_end|>\"}", 38);
    free(source);
}

int main(void)
{
    ctx.allocator = exl2__platform_allocator();
    ctx.files = exl2__platform_files();
    test_cases();
    test_smollm2();
    CHECK_INT(ctx.host_bytes, 0);
    return check_done();
}

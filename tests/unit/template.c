/* template.c: the chat template interpreter, compared with renders of Jinja2 and transformers. */
#include "private/platform_alloc.h"
#include "private/platform_files.h"
#include "private/template_set.h"
#include "../check.h"
#include "../template_set_open.h"

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
    const char *root = check_env("EXL2_GOLDEN_DIR");
    snprintf(path, sizeof path, "%s/template/%s", root ? root : "tests/golden", name);
    return path;
}

/* The result of a render: the text (malloc) or the error. */
typedef struct outcome {
    exl2_result code;
    char *text;
    size_t bytes;
} outcome;

static char *text_copy(const char *text, size_t bytes)
{
    char *copy = malloc(bytes + 1);
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    return copy;
}

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
        exl2__template_frame_set(r, name, &value);
        free(name);
    }
    return EXL2_OK;
}

/* Renders with the members of these objects as variables, in memory blocks that grow from 512 bytes. */
static outcome render_json(const char *source, size_t source_bytes, const exl2__json *const *json,
                           const uint32_t *objects, size_t count)
{
    outcome o = { EXL2_OK, NULL, 0 };
    exl2__template t = { 0 };
    o.code = exl2__template_open(&ctx, source, source_bytes, &t);
    if (t.rejected.code < 0) { /* what exl2__template_render would report */
        o.code = exl2__fail(&ctx, t.rejected.code, "%s", t.rejected.text);
    }
    for (size_t bytes = 512; o.code == EXL2_OK && !o.text; bytes *= 2) {
        exl2__template_run *run;
        void *block = malloc(bytes);
        const char *text;
        const uint8_t *marks;
        exl2_result code = exl2__template_frame_open(&ctx, &t, block, bytes, &run);
        if (code == EXL2_OK) {
            code = exl2__template_set_clock(run, "2025-03-07 09:05:03");
        }
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

/* A row is equal, rejected as unsupported, or (counted as a failure) different. Where the golden has an error, an error
   is required, but not its wording. */
static void compare(const char *what, size_t line, const exl2__json *row, const outcome *o, size_t *equal,
                    size_t *refused)
{
    uint32_t rendered = exl2__json_get(row, 0, "rendered"), error = exl2__json_get(row, 0, "error");
    size_t bytes;
    char *wanted = json_string(row, rendered ? rendered : error, &bytes);
    bool same = rendered ? o->code == EXL2_OK && o->bytes == bytes && memcmp(o->text, wanted, bytes) == 0
                         : o->code == EXL2_ERR_FORMAT || o->code == EXL2_ERR_ARG || o->code == EXL2_ERR_UNSUPPORTED;
    CHECK(rendered || error);
    if (same) {
        (*equal)++;
    } else if (o->code == EXL2_ERR_UNSUPPORTED) {
        (*refused)++;
        CHECK(strstr(ctx.error.text, "not supported"));
        printf("%s line %zu: refused %s\n  wanted %s\n", what, line, ctx.error.text, wanted);
    } else {
        CHECK(same /* or rejected */);
        printf("%s line %zu: got %d %s\n  wanted %s\n", what, line, o->code, o->text ? o->text : ctx.error.text,
               wanted);
    }
    free(wanted);
}

/* ---- goldens ---- */

/* Rows of Jinja2's behaviour over variables.json: every row is equal or rejected as unsupported. */
static void test_cases(const char *name, size_t wanted_equal)
{
    lines l = lines_read(golden(name));
    size_t variables_bytes, equal = 0, refused = 0;
    char *variables_text = check_read(golden("variables.json"), &variables_bytes);
    exl2__json variables, row;
    CHECK_INT(exl2__json_open(&ctx, "variables.json", variables_text, variables_bytes, &variables), EXL2_OK);
    for (size_t i = 0; i < l.count; i++) {
        size_t bytes;
        CHECK_INT(exl2__json_open(&ctx, name, l.line[i], strlen(l.line[i]), &row), EXL2_OK);
        char *source = json_string(&row, exl2__json_get(&row, 0, "template"), &bytes);
        const exl2__json *json[1] = { &variables };
        uint32_t root = 0;
        outcome o = render_json(source, bytes, json, &root, 1);
        compare(name, i + 1, &row, &o, &equal, &refused);
        free(o.text);
        free(source);
        exl2__json_close(&ctx, &row);
    }
    printf("%s: %zu equal, %zu refused of %zu\n", name, equal, refused, l.count);
    CHECK(equal >= wanted_equal);
    exl2__json_close(&ctx, &variables);
    free(variables_text);
    free(l.text);
}

/* chat.jsonl of one template: each row is an object with messages, tools, ..., and possibly kwargs. */
static void test_rows(const char *name, const char *source, const char *rows_path, const char *tokens_text,
                      size_t wanted_equal)
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

static char *json_raw(const exl2__json *j, uint32_t token)
{
    return token ? text_copy(j->text + j->tokens[token].begin, j->tokens[token].end - j->tokens[token].begin) : NULL;
}

/* Renders a row through the interface that jobs use: every message by its fields. */
static outcome render_row(exl2__template_set *set, const exl2__json *row, const char *tokens,
                          const char *const model_tokens[4])
{
    static _Alignas(16) char block[1 << 19];
    exl2_message messages[32] = { { 0 } };
    outcome o = { EXL2_OK, NULL, 0 };
    const uint8_t *marks;
    const char *text;
    uint32_t list = exl2__json_get(row, 0, "messages");
    char *tools = json_raw(row, exl2__json_get(row, 0, "tools"));
    char *variables = json_raw(row, exl2__json_get(row, 0, "kwargs"));
    exl2_chat_desc chat = { .tools = tools, .variables = variables, .special_tokens = tokens,
                            .now = "2025-03-07 09:05:03" };
    exl2__template_input in = {
        messages, 0, &chat, model_tokens[0], model_tokens[1], model_tokens[2], model_tokens[3], NULL, NULL, NULL, NULL
    };
    bool open = false;
    exl2__json_bool(row, exl2__json_get(row, 0, "add_generation_prompt"), &open);
    chat.close_reply = !open;
    for (uint32_t m = exl2__json_first(row, list); m && in.message_count < 32; m = exl2__json_next(row, list, m)) {
        messages[in.message_count++].fields = json_raw(row, m);
    }
    const exl2__template *t = exl2__template_set_pick(set, NULL, tools != NULL);
    CHECK(t);
    o.code = exl2__template_render(&ctx, t, &in, block, sizeof block, &text, &o.bytes, &marks);
    o.text = o.code == EXL2_OK ? text_copy(text, o.bytes) : NULL;
    for (size_t i = 0; i < in.message_count; i++) {
        free((void *)(uintptr_t)messages[i].fields);
    }
    free(tools);
    free(variables);
    return o;
}

static const char *const smollm2_tokens[4] = { "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_end|>" };

/* bos_token .. pad_token of a tokenizer_config.json, each a string or an object with `content`. The caller frees
   them. */
static void config_tokens(const char *path, char *tokens[4])
{
    static const char *const names[4] = { "bos_token", "eos_token", "unk_token", "pad_token" };
    exl2__json config;
    size_t bytes;
    char *text = check_read(path, &bytes);
    CHECK_INT(exl2__json_open(&ctx, path, text, bytes, &config), EXL2_OK);
    for (size_t i = 0; i < 4; i++) {
        uint32_t token = exl2__json_get(&config, 0, names[i]);
        if (token && config.tokens[token].kind == EXL2__JSON_OBJECT) {
            token = exl2__json_get(&config, token, "content");
        }
        tokens[i] = token ? json_string(&config, token, &bytes) : NULL;
    }
    exl2__json_close(&ctx, &config);
    free(text);
}

static void test_through(const char *name, exl2__template_set *set, const char *rows_path, const char *tokens,
                         const char *const model_tokens[4])
{
    exl2__json row;
    size_t equal = 0, refused = 0;
    lines l = lines_read(rows_path);
    for (size_t i = 0; i < l.count; i++) {
        CHECK_INT(exl2__json_open(&ctx, name, l.line[i], strlen(l.line[i]), &row), EXL2_OK);
        outcome o = render_row(set, &row, tokens, model_tokens);
        compare(name, i + 1, &row, &o, &equal, &refused);
        free(o.text);
        exl2__json_close(&ctx, &row);
    }
    printf("%s through the interface: %zu of %zu\n", name, equal, l.count);
    CHECK_INT(equal, l.count);
    CHECK(l.count >= 38);
    free(l.text);
}

/* The template of the model folder with every row: as JSON, and through the interface. */
static void test_smollm2(void)
{
    char folder[1024], config_path[1100];
    exl2__template_set set;
    exl2__json config;
    size_t bytes;
    snprintf(folder, sizeof folder, "%s", golden("../smollm2"));
    snprintf(config_path, sizeof config_path, "%s/tokenizer_config.json", folder);
    char *config_text = check_read(config_path, &bytes);
    CHECK_INT(exl2__json_open(&ctx, "tokenizer_config.json", config_text, bytes, &config), EXL2_OK);
    char *source = json_string(&config, exl2__json_get(&config, 0, "chat_template"), &bytes);
    test_rows("smollm2", source, golden("smollm2.jsonl"), config_text, 38);
    CHECK_INT(template_set_open(&ctx, folder, &set), EXL2_OK);
    CHECK(set.count == 1 && set.item[0].rejected.code == EXL2_OK);
    test_through("smollm2", &set, golden("smollm2.jsonl"), NULL, smollm2_tokens);
    exl2__template_set_close(&ctx, &set);
    exl2__json_close(&ctx, &config);
    free(config_text);
    free(source);
}

/* The templates of the model folders among the shared fixtures. */
static void test_shared_models(void)
{
    static const char *const names[] = { "gemma3", "llama3", "qwen3", "smollm2" };
    const char *root = check_env("EXL2_TEST_DATA");
    for (size_t i = 0; root && i < EXL2__COUNT(names); i++) {
        char folder[1024], rows[1100], config[1100];
        exl2__template_set set;
        snprintf(folder, sizeof folder, "%s/fixtures/tokenizers/%s", root, names[i]);
        snprintf(config, sizeof config, "%s/tokenizer_config.json", folder);
        snprintf(rows, sizeof rows, "%s/chat.jsonl", folder);
        char *tokens[4];
        config_tokens(config, tokens);
        CHECK_INT(template_set_open(&ctx, folder, &set), EXL2_OK);
        test_through(names[i], &set, rows, NULL, (const char *const *)tokens);
        exl2__template_set_close(&ctx, &set);
        for (size_t k = 0; k < 4; k++) {
            free(tokens[k]);
        }
    }
}

/* The thirteen templates of the shared fixtures; those named in `wanted` must render every row. */
static void test_shared_templates(void)
{
    static const struct {
        const char *name;
        size_t wanted;
    } rows[] = {
        { "alpaca", 38 },       { "chatml", 38 },     { "gemma_turns", 38 }, { "granite_docs", 38 },
        { "hermes_tools", 38 }, { "llama2_inst", 38 }, { "llama3_tools", 38 }, { "mistral_v7", 38 },
        { "phi3", 38 },        { "qwen_think_tools", 38 }, { "torture", 38 }, { "vicuna", 38 },
        { "zephyr", 38 },
    };
    const char *root = check_env("EXL2_TEST_DATA");
    for (size_t i = 0; root && i < EXL2__COUNT(rows); i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/fixtures/templates/%s/template.jinja", root, rows[i].name);
        char *source = check_read(path, NULL);
        snprintf(path, sizeof path, "%s/fixtures/templates/%s/tokens.json", root, rows[i].name);
        char *tokens = check_read(path, NULL);
        snprintf(path, sizeof path, "%s/fixtures/templates/%s/chat.jsonl", root, rows[i].name);
        test_rows(rows[i].name, source, path, tokens, rows[i].wanted);
        exl2__template_set set = { .count = 1 };
        CHECK_INT(exl2__template_open(&ctx, source, strlen(source), &set.item[0]), EXL2_OK);
        test_through(rows[i].name, &set, path, tokens, smollm2_tokens);
        exl2__template_set_close(&ctx, &set);
        free(tokens);
        free(source);
    }
}

/* Doubles are printed as Python prints them. */
static void test_numbers(void)
{
    static const struct {
        double value;
        const char *text;
    } rows[] = {
        { 0.1, "0.1" }, { -0.0, "-0.0" }, { 1e16, "1e+16" }, { 123456789012345680.0, "1.2345678901234568e+17" },
        { 1e15, "1000000000000000.0" }, { 0.0001, "0.0001" }, { 0.00001, "1e-05" }, { 5e-324, "5e-324" },
        { 1.7976931348623157e308, "1.7976931348623157e+308" }, { 2.2250738585072014e-308, "2.2250738585072014e-308" },
        { 5.684341886080802e-14, "5.684341886080802e-14" }, { 9007199254740993.0, "9007199254740992.0" },
        { 1e23, "1e+23" }, { 2.5, "2.5" }, { 100, "100.0" }, { 1.0 / 3, "0.3333333333333333" },
    };
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        char text[EXL2__TEMPLATE_NUMBER_BYTES + 1];
        text[exl2__template_number_print(rows[i].value, text)] = 0;
        CHECK_TEXT(text, rows[i].text);
    }
}

/* A byte order mark before a template is no part of it; one inside of it is text. */
static void test_mark(void)
{
    static const char source[] = "\xEF\xBB\xBF{{ 'a' }}\xEF\xBB\xBF";
    outcome o = render_json(source, sizeof source - 1, NULL, NULL, 0);
    CHECK(o.code == EXL2_OK && o.text && o.bytes == 4 && memcmp(o.text, "a\xEF\xBB\xBF", 4) == 0);
    free(o.text);
}

int main(void)
{
    ctx.allocator = exl2__platform_allocator();
    ctx.files = exl2__platform_files();
    test_mark();
    test_cases("cases.jsonl", 435);
    test_cases("random.jsonl", 300);
    test_smollm2();
    test_shared_templates();
    test_shared_models();
    test_numbers();
    CHECK_INT(ctx.host_bytes, 0);
    return check_done();
}

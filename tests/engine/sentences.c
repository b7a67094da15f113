/* sentences.c: exl2_last_error, the error in events and the log lines are UTF-8, whatever they quote: names, paths,
   texts and files that are not UTF-8, or so long that the message is cut. A code point that a cut would split is left
   out. */
#include "text_model.h"

#include "private/unicode.h"

static text_model model; /* global, because the files hook keeps a pointer to it */
static char config[8192]; /* of the folder "made" */

/* ---- untrusted text ---- */

static char quoted[2000]; /* NUL-terminated */
static bool broken;       /* the text is not UTF-8 */

/* Texts of code points of each length, shifted so that a cut falls on every byte of a code point; then invalid
   bytes. */
static bool next_text(uint32_t which)
{
    static const char *const units[] = { "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xFF", "\xC3", "\xE2\x82|",
                                         "\xED\xA0\x80", "\x80", "\xF4\x90\x80\x80", "\xC0\xAF" };
    static const uint32_t times[] = { 400, 3 };
    uint32_t unit = which / 4 % EXL2__COUNT(units), shift = which % 4, length = which / 4 / EXL2__COUNT(units);
    if (length == EXL2__COUNT(times)) {
        return false;
    }
    broken = unit >= 3;
    memcpy(quoted, "aaaa", shift);
    quoted[shift] = 0;
    for (uint32_t i = 0; i < times[length]; i++) {
        strcat(quoted, units[unit]);
    }
    return true;
}

/* `format` with the text in place of %s, allocated. */
static char *filled(const char *format)
{
    char *text = malloc(3 * strlen(quoted) + strlen(format) + 1);
    sprintf(text, format, quoted, quoted);
    return text;
}

/* ---- the engine's messages ---- */

static uint32_t lines;
static const char *asked;

/* The message is valid UTF-8. It has no '?' if the text that it quotes is valid, because no code point was split. */
static void check_sentence(const char *text, const char *where)
{
    if (!CHECK(text[0] && exl2__unicode_valid(text, strlen(text))) || !CHECK(broken || !strchr(text, '?'))) {
        printf("    %s of %s: %s\n", where, asked, text);
    }
}

static void hear_line(void *user, exl2_log_level level, exl2_log_id id, exl2_result code, const char *text)
{
    (void)user;
    (void)level;
    (void)id;
    (void)code;
    lines++;
    check_sentence(text, "log line");
}

/* The call failed, and its message quotes the argument: some of the letters before the text, or the replacement of its
   bytes. */
static void check_failed(const rig *r, exl2_result got, bool quotes)
{
    exl2_error error = { 0 };
    exl2_last_error(r->engine, &error);
    if (!CHECK(got < 0 && error.code == got)) {
        printf("    %s: %d, %s; text \"%.12s\"\n", asked, got, error.text, quoted);
    }
    check_sentence(error.text, "message");
    char piece[8] = { 0 };
    memcpy(piece, quoted, 4);
    if (quotes && !broken && !CHECK(strncmp(quoted, "aaa", 3) != 0 || strstr(error.text, "aaa") != NULL)) {
        printf("    message of %s: %s\n", asked, error.text);
    }
}

/* ---- conversations ---- */

static void check_chat(const rig *r, const char *what, exl2_chat_desc chat, bool quotes)
{
    const exl2_message message = { .role = quoted, .text = quoted };
    char text[64];
    size_t need;
    asked = what;
    check_failed(r, exl2_chat_render(r->engine, r->model, &message, 1, &chat, text, sizeof text, &need), quotes);
}

static void check_template(const rig *r, const char *format)
{
    char *text = filled(format);
    check_chat(r, format, (exl2_chat_desc){ .template_text = text }, false);
    free(text);
}

static void conversations(const rig *r)
{
    static const char *const templates[] = {
        "{{ raise_exception(messages[0].content) }}", "{{ raise_exception('%s') }}", "{{ 'a' | %s }}", "{{ %s( }}",
        "{{ 'a' is %s }}", "{%% %s %%}", "{{ 'a' ~ nothing['%s'].x }}", "{{ messages['%s'].x }}",
        "{{ messages[0][messages[0].role]() }}", "{{ strftime_now('%%Y') ~ messages[0].content.zzz.x }}",
        "{%% set n = namespace() %%}{%% set n['%s'].x = 1 %%}", "{{ [1] | map(messages[0].content) | list }}",
        "{{ [1] | select(messages[0].content) | list }}", "{{ dict(a=1)[messages[0].content].x }}",
        "{{ messages[0].content | int + 'x' }}", "{%% macro m() %%}{%% endmacro %%}{{ m(**{'%s': 1}) }}"
    };
    check_chat(r, "template_name", (exl2_chat_desc){ .template_name = quoted }, true);
    check_chat(r, "now", (exl2_chat_desc){ .now = quoted, .template_text = "{{ strftime_now('%Y') }}" }, true);
    for (size_t i = 0; i < EXL2__COUNT(templates); i++) {
        check_template(r, templates[i]);
    }
    static const char *const values[] = { "{\"%s\": x}", "[%s]", "{\"a\": \"%s" };
    for (size_t i = 0; i < EXL2__COUNT(values); i++) {
        char *json = filled(values[i]);
        check_chat(r, values[i], (exl2_chat_desc){ .variables = json }, false);
        check_chat(r, values[i], (exl2_chat_desc){ .tools = json }, false);
        check_chat(r, values[i], (exl2_chat_desc){ .special_tokens = json }, false);
        free(json);
    }
}

/* ---- grammars ---- */

static void grammars(const rig *r)
{
    static const struct {
        exl2_grammar_kind kind;
        const char *format;
    } rows[] = {
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"properties\": {\"%s\": 1}}" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"$ref\": \"#/%s\"}" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"type\": \"%s\"}" }, { EXL2_GRAMMAR_JSON_SCHEMA, "{\"pattern\": \"%s(\"}" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"properties\": {\"%s\": {\"type\": \"x\"}}}" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "{\"properties\": {\"%s\": {\"$ref\": \"#/%s\"}}}" },
        { EXL2_GRAMMAR_JSON_SCHEMA, "%s" }, { EXL2_GRAMMAR_REGEX, "(%s" }, { EXL2_GRAMMAR_REGEX, "[%s" },
        { EXL2_GRAMMAR_EBNF, "root ::= %s" }, { EXL2_GRAMMAR_EBNF, "root ::= \"%s" },
        { EXL2_GRAMMAR_EBNF, "%s ::=" }, { EXL2_GRAMMAR_EBNF, "root ::= rule%s" }
    };
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        char *source = filled(rows[i].format);
        exl2_grammar g = { 0 };
        exl2_grammar_desc d = { .model = r->model, .kind = rows[i].kind, .source = source };
        asked = rows[i].format;
        check_failed(r, exl2_grammar_make(r->engine, &d, &g), false);
        free(source);
    }
}

/* ---- folders ---- */

static void *made_open(void *user, const char *path, uint64_t *bytes)
{
    if (strncmp(path, "made/", 5) != 0) {
        return text_open(user, path, bytes);
    }
    if (strcmp(path, "made/config.json") != 0) {
        return NULL;
    }
    text_file file = { NULL, config };
    text_file *copy = malloc(sizeof *copy);
    *copy = file;
    *bytes = strlen(config);
    return copy;
}

static void folders(const rig *r)
{
    static const char *const configs[] = {
        "{\"%s\": 1, \"%s\": 2}", "{\"architectures\": [\"%s\"]}", "{\"architectures\": \"%s\"}", "{%s", "%s",
        "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": \"%s\"}",
        "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 64, \"hidden_act\": \"%s\"}"
    };
    exl2_model m;
    exl2_model_info info;
    exl2_model_desc d = { .path = quoted };
    asked = "a path";
    check_failed(r, exl2_model_load(r->engine, &d, &m), strlen(quoted) < 100);
    check_failed(r, exl2_model_measure(r->engine, &d, &info), strlen(quoted) < 100);
    d.path = "made";
    for (size_t i = 0; i < EXL2__COUNT(configs); i++) {
        char *text = filled(configs[i]);
        snprintf(config, sizeof config, "%s", text);
        asked = configs[i];
        check_failed(r, exl2_model_measure(r->engine, &d, &info), false);
        free(text);
    }
}

static void tokenizers(const rig *r)
{
    static const char *const files[] = {
        "{\"model\": {\"type\": \"%s\"}}", "{\"%s\": 1, \"%s\": 2}", "[%s",
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}, \"pre_tokenizer\": {\"type\": \"Split\", "
        "\"pattern\": {\"Regex\": \"(%s\"}, \"behavior\": \"Isolated\"}, \"decoder\": {\"type\": \"ByteLevel\"}}",
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": [\"%s x\"]}, \"pre_tokenizer\": {\"type\": "
        "\"ByteLevel\"}, \"decoder\": {\"type\": \"ByteLevel\"}}",
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}, \"pre_tokenizer\": {\"type\": \"ByteLevel\"}, "
        "\"decoder\": {\"type\": \"ByteLevel\"}, \"added_tokens\": [{\"id\": 1, \"content\": \"%s\", \"special\": "
        "true}, {\"id\": 2, \"content\": \"%s\", \"special\": true}]}"
    };
    static text_model whole;
    exl2_model m;
    exl2_model_desc d = text_folder();
    d.text_only = true;
    whole = model;
    for (size_t i = 0; i < EXL2__COUNT(files); i++) {
        char *text = filled(files[i]);
        snprintf(model.tokenizer, sizeof model.tokenizer, "%s", text);
        asked = files[i];
        exl2_result result = exl2_model_load(r->engine, &d, &m);
        if (result < 0) {
            check_failed(r, result, false);
        } else { /* merges of characters that stand for no byte are accepted */
            CHECK(strstr(files[i], "merges\": [\"%s") != NULL);
            CHECK_INT(exl2_model_close(r->engine, m), EXL2_OK);
        }
        free(text);
    }
    model = whole;
}

/* ---- events ---- */

static uint32_t events;

static exl2_flow hear_event(void *user, const exl2_event *ev)
{
    (void)user;
    if (ev->result < 0 && ev->result != EXL2_PENDING) {
        CHECK(ev->error != NULL);
        check_sentence(ev->error ? ev->error : "", "event");
        events++;
    }
    return EXL2_CONTINUE;
}

/* A load that fails ends with an event, whose message quotes a path or a name in config.json. */
static void told(const rig *r)
{
    char *text = filled("{\"architectures\": [\"%s\"]}");
    snprintf(config, sizeof config, "%s", text);
    free(text);
    for (int made = 0; made < 2; made++) {
        exl2_model m;
        exl2_model_desc d = { .path = made ? "made" : quoted, .on_event = hear_event };
        uint32_t before = events;
        asked = made ? "an event of config.json" : "an event of a path";
        exl2_result result = exl2_model_open(r->engine, &d, &m);
        if (result < 0) { /* a path that is too long is rejected at once */
            CHECK(!made && strlen(quoted) > 1000);
            check_failed(r, result, false);
            continue;
        }
        for (int steps = 0; steps < 1000 && events == before; steps++) {
            exl2_step(r->engine, NULL);
        }
        CHECK_INT(events, before + 1);
        CHECK_INT(exl2_model_close(r->engine, m), EXL2_OK);
    }
}

int main(void)
{
    static const char *const no_plan[1] = { "" };
    text_write(&model, no_plan, 0, TEXT_CHAT_CONFIG);
    exl2_engine_desc engine = text_engine(&model);
    exl2_model_desc desc = text_folder();
    engine.files.open = made_open;
    engine.log = (exl2_logger){ hear_line, NULL, EXL2_LOG_DEBUG };
    broken = true; /* a '?' is allowed in lines before the first text */
    desc.text_only = true;
    rig r = rig_open(&engine, &desc);
    for (uint32_t i = 0; next_text(i); i++) {
        uint32_t before = lines;
        conversations(&r);
        grammars(&r);
        folders(&r);
        tokenizers(&r);
        told(&r);
        CHECK(lines >= before + 40); /* each error is logged, too */
    }
    rig_close(&r);
    return check_done();
}

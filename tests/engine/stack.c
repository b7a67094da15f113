/* stack.c: the stack that a call needs. Each case runs on a thread whose stack has the size that the manual states,
   above memory that is not accessible. The stack is filled with a pattern first; bytes that have lost the pattern were
   used. The data that the C library keeps for a thread lies there, too. The size in the manual is for the engine as
   Meson builds it. For an engine that was built differently, pass another size in KiB as the argument. */
#define _DEFAULT_SOURCE
#include "text_model.h"

#include "../text_pipelines.h"

#include <pthread.h>
#include <sys/mman.h>

#define STACK_KIB 64          /* as section 5 of exl2.h says */
#define STACK_BELOW (1u << 20) /* more than any frame */
#define STACK_PAINT 0xA5
#define SOURCE_MAX (1u << 16)

static uint32_t stack_kib = STACK_KIB;
static rig one; /* the engine of the case that runs */
static text_model words;
static char source[SOURCE_MAX];
static size_t most_used;

/* ---- a thread with a stack full of a pattern ---- */

typedef void (*stack_case)(void);

static void *stack_thread(void *run)
{
    (*(stack_case *)run)();
    return NULL;
}

/* Runs the case and prints how much of its stack it used. */
static size_t stack_run(const char *name, stack_case run)
{
    size_t bytes = (size_t)stack_kib * 1024, unused = 0;
    uint8_t *memory = mmap(NULL, STACK_BELOW + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attributes;
    pthread_t thread;
    if (memory == MAP_FAILED || mprotect(memory, STACK_BELOW, PROT_NONE) != 0) {
        check_skip("no memory for a stack");
    }
    memset(memory + STACK_BELOW, STACK_PAINT, bytes);
    printf("%-24s ", name);
    fflush(stdout); /* flushed, because a case that needs more ends the program */
    CHECK_INT(pthread_attr_init(&attributes), 0);
    CHECK_INT(pthread_attr_setstack(&attributes, memory + STACK_BELOW, bytes), 0);
    CHECK_INT(pthread_create(&thread, &attributes, stack_thread, &run), 0);
    CHECK_INT(pthread_join(thread, NULL), 0);
    while (unused < bytes && memory[STACK_BELOW + unused] == STACK_PAINT) {
        unused++;
    }
    printf("%6zu bytes\n", bytes - unused);
    CHECK_INT(pthread_attr_destroy(&attributes), 0);
    CHECK_INT(munmap(memory, STACK_BELOW + bytes), 0);
    most_used = bytes - unused > most_used ? bytes - unused : most_used;
    return bytes - unused;
}

/* ---- sources that are nested as deeply as allowed ---- */

/* source = front, `count` times open, middle, `count` times close, back. */
static void nest(const char *front, const char *open, uint32_t count, const char *middle, const char *close,
                 const char *back)
{
    size_t used = (size_t)snprintf(source, sizeof source, "%s", front);
    for (uint32_t i = 0; i < count; i++) {
        used += (size_t)snprintf(source + used, sizeof source - used, "%s", open);
    }
    used += (size_t)snprintf(source + used, sizeof source - used, "%s", middle);
    for (uint32_t i = 0; i < count; i++) {
        used += (size_t)snprintf(source + used, sizeof source - used, "%s", close);
    }
    used += (size_t)snprintf(source + used, sizeof source - used, "%s", back);
    CHECK(used < sizeof source);
}

static void check_result(exl2_result got, exl2_result wanted)
{
    exl2_error error;
    exl2_last_error(one.engine, &error);
    if (!CHECK_INT(got, wanted)) {
        printf("  %s\n", error.text);
    }
}

/* ---- templates ---- */

static exl2_result render_result;

static void render(void)
{
    static char text[1 << 16], arrays[256];
    exl2_message turn = { .role = "user", .text = "h\xC3\xA9" };
    size_t need;
    memset(arrays, '[', 62); /* JSON of 64 levels, counting this array and the arguments */
    memset(arrays + 62, ']', 62);
    exl2_chat_desc chat = { .template_text = source, .tools = arrays, .documents = arrays };
    render_result = exl2_chat_render(one.engine, one.model, &turn, 1, &chat, text, sizeof text, &need);
}

/* The deepest nesting that is accepted, and the first that is rejected: both need stack. */
static void check_template(const char *name, const char *front, const char *open, const char *middle,
                           const char *close, const char *back)
{
    uint32_t low = 1, high = 70;
    while (high - low > 1) { /* the binary search runs on this thread */
        uint32_t count = (low + high) / 2;
        nest(front, open, count, middle, close, back);
        render();
        low = render_result == EXL2_OK ? count : low;
        high = render_result == EXL2_OK ? high : count;
    }
    char full[64];
    for (uint32_t count = low; count <= high; count++) {
        nest(front, open, count, middle, close, back);
        snprintf(full, sizeof full, "%s, %u deep", name, count);
        stack_run(full, render);
        CHECK_INT(render_result, count == low ? EXL2_OK : EXL2_ERR_UNSUPPORTED);
    }
    CHECK(low >= 20); /* otherwise something other than the depth is the limit */
}

static void templates(void)
{
    check_template("parentheses", "{{ ", "(", "1", ")", " }}");
    check_template("lists", "{{ ", "[", "1", "]", " }}");
    check_template("dicts", "{{ ", "{'a':", "1", "}", " }}");
    check_template("operators", "{{ ", "1 or 1 and not 1 < 1 + 1 ~ 1 * 1 ** (", "1", ")", " }}");
    check_template("arithmetic", "{{ ", "1 + 1 * 1 ** (", "1", ")", " }}");
    check_template("conditions", "{{ ", "1 if 1 else (", "1", ")", " }}");
    check_template("filters", "{{ ", "x|default(", "1", ")", " }}");
    check_template("methods", "{{ ", "''.replace('a', ", "''", ")", " }}");
    check_template("subscripts", "{{ ", "[1][0 * ", "0", "]", " }}");
    check_template("calls", "{% macro m(a) %}{% endmacro %}{{ ", "m(", "1", ")", " }}");
    check_template("signs", "{{ ", "-", "1", "", " }}");
    check_template("tests", "{{ ", "1 is eq (", "1", ")", " }}");
    check_template("statements", "", "{% if 1 %}{% for a in [1] %}", "{{ 1 | tojson }}", "{% endfor %}{% endif %}", "");
    check_template("loops", "", "{% for a in [1] %}{% set b = ((((((((((a)))))))))) %}", "1", "{% endfor %}", "");
    check_template("macros", "{% macro m(n) %}{% for a in [1] %}{% if n %}{{ m(n - 1) }}{% endif %}{% endfor %}"
                   "{% endmacro %}{% set n = [0", ", 1", "] %}{{ m(n | length - 2) }}", "", "");
}

static void check_render(const char *name, const char *text)
{
    snprintf(source, sizeof source, "%s", text);
    stack_run(name, render);
    check_result(render_result, EXL2_OK);
}

static void renders(void)
{
    check_render("values", "{{ tools }}{{ tools | tojson(indent=2) }}{{ tools == documents }}{{ tools in [documents] }}"
                 "{{ {'a': tools} | string | length }}");
    check_render("map of map", "{{ [[[[[['a']]]]]] | map('map', 'map', 'map', 'map', 'upper') | list | length }}");
    check_render("filters, methods",
                 "{{ [3, 1] | sort | join(', ', attribute='x') }}{{ '%5.3f %s' % (1.5, tools) }}{{ 1e300 * 3 }}"
                 "{{ [{'a': 1}, {'a': 2}] | groupby('a') | list }}{{ [{'a': 1}] | selectattr('a', 'eq', 1) | list }}"
                 "{{ 'a b' | title | indent | truncate(3) | center(9) }}{{ 'a,b'.split(',') | map('upper') | list }}"
                 "{{ {'b': 1} | dictsort }}{{ strftime_now('%A %d %B %Y') }}{{ 2.5 | round(1) }}{{ '1.5' | float }}"
                 "{{ messages[0].content | tojson | forceescape | wordcount }}{{ [1, 2, 3] | batch(2) | list }}");
}

/* ---- grammars ---- */

static exl2_grammar_kind grammar_kind;
static exl2_result grammar_result;

static void compile(void)
{
    exl2_grammar g = { 0 };
    exl2_grammar_desc d = { .model = one.model, .kind = grammar_kind, .source = source };
    grammar_result = exl2_grammar_make(one.engine, &d, &g);
    if (grammar_result == EXL2_OK) {
        CHECK_INT(exl2_grammar_close(one.engine, g), EXL2_OK);
    }
}

static void check_grammar(const char *name, exl2_grammar_kind kind, exl2_result wanted)
{
    grammar_kind = kind;
    stack_run(name, compile);
    check_result(grammar_result, wanted);
}

/* A schema in which " is written as '. */
static void check_schema(const char *name, exl2_result wanted)
{
    for (char *p = source; *p; p++) {
        *p = *p == '\'' ? '"' : *p;
    }
    check_grammar(name, EXL2_GRAMMAR_JSON_SCHEMA, wanted);
}

static void grammars(void)
{
    nest("", "(a|", 64, "[^\\D5-]{2,9}", ")", "");
    check_grammar("regex", EXL2_GRAMMAR_REGEX, EXL2_OK);
    nest("", "(a|", 64, "[^\\D5-", ")", "");
    check_grammar("regex, refused", EXL2_GRAMMAR_REGEX, EXL2_ERR_FORMAT);
    nest("root ::= ", "( \"a\" | ", 64, "[^\\D5-]{2,9}", ")", "");
    check_grammar("EBNF", EXL2_GRAMMAR_EBNF, EXL2_OK);
    nest("root ::= ", "( \"a\" | ", 65, "[^a]", ")", "");
    check_grammar("EBNF, refused", EXL2_GRAMMAR_EBNF, EXL2_ERR_UNSUPPORTED);
    nest("", "{'type':'object','required':['a'],'properties':{'a':", 100, "{}", "}}", "");
    check_schema("objects", EXL2_OK);
    nest("", "{'type':'array','minItems':1,'maxItems':2,'items':", 120, "{}", "}", "");
    check_schema("arrays", EXL2_OK);
    nest("", "{'allOf':[", 30, "{'type':'string','pattern':'^((((((((((a|b)))))))))) $'}", "]}", "");
    check_schema("allOf", EXL2_OK);
    nest("", "{'anyOf':[{'const':1},", 30, "{'type':'string','format':'date-time'}", "]}", "");
    check_schema("anyOf", EXL2_OK);
    size_t used = (size_t)snprintf(source, sizeof source, "{'$ref':'#/$defs/a0','$defs':{");
    for (int i = 0; i < 60; i++) {
        used += (size_t)snprintf(source + used, sizeof source - used, "'a%d':{'$ref':'#/$defs/a%d'},", i, i + 1);
    }
    snprintf(source + used, sizeof source - used, "'a60':{'type':['object','array','string','number']}}}");
    check_schema("chain of $ref", EXL2_OK);
    char pattern[300] = "";
    for (int i = 0; i < 64; i++) {
        strcat(pattern, "(");
    }
    strcat(pattern, "[^\\\\D5]{2}");
    for (int i = 0; i < 64; i++) {
        strcat(pattern, ")");
    }
    char middle[800];
    snprintf(middle, sizeof middle, "{'enum':['a','b'],'pattern':'a|%s'}", pattern);
    nest("{'type':'array','uniqueItems':true,'items':", "{'anyOf':[", 8, middle, "]}", "}");
    check_schema("unique, enum", EXL2_OK);
    snprintf(source, sizeof source, "{'type':'array','uniqueItems':true,'maxItems':3,'items':{'type':'string',"
             "'minLength':2,'pattern':'^[ab]%s'}}", pattern);
    check_schema("unique, pattern", EXL2_OK);
    snprintf(source, sizeof source, "{'type':'string','pattern':'^%s[a-c]?$','minLength':1,'maxLength':9,"
             "'not':{'pattern':'^%s$'}}", pattern, pattern);
    check_schema("not, pattern", EXL2_OK);
    snprintf(source, sizeof source, "{'properties':{'ab':{},'ac':{'type':'integer','multipleOf':7}},"
             "'patternProperties':{'^x%s':{'type':'null'}},'additionalProperties':{'type':'number','minimum':-1.5,"
             "'exclusiveMaximum':2e3}}", pattern);
    check_schema("keys, numbers", EXL2_OK);
    snprintf(source, sizeof source, "{'oneOf':[{'type':'object','properties':{'a':{'const':1}},'required':['a']},"
             "{'type':'object','properties':{'a':{'const':2},'b':{}},'required':['a','b']}]}");
    check_schema("oneOf", EXL2_OK);
    snprintf(source, sizeof source, "{'properties':{'a':{},'b':{},'c':{'type':'integer','multipleOf':7}},"
             "'dependentRequired':{'a':['b'],'c':['a','d'],'e':['a']},'additionalProperties':{'type':'null'}}");
    check_schema("dependentRequired", EXL2_OK);
}

/* ---- tokenizers ---- */

static const char *load_path;
static exl2_files load_files;

/* Opens an engine and a text_only model, and converts text to ids and back. */
static void tokenize(void)
{
    static char text[4096], back[1 << 16];
    static exl2_token ids[1 << 15];
    exl2_engine_desc engine = { .backend = RIG_BACKEND, .files = load_files };
    exl2_model_desc model = { .path = load_path, .text_only = true };
    size_t count, bytes = 0;
    rig r = rig_open(&engine, &model);
    static const char *const pieces[] = { "ab abc  a b<e>\n\n\xC3\xA9\xEF\xAC\x81 It's 12345 DON'T \xE2\x84\xAB",
                                          "a\xCC\x81\xCC\xA3 \xED\x95\x9C\xEA\xB5\xAD\xE1\x84\x92\xE1\x85\xA1",
                                          "\xFF\xC3 z" };
    for (uint32_t i = 0; bytes < sizeof text - 100; i++) {
        bytes += (size_t)snprintf(text + bytes, sizeof text - bytes, "%s", pieces[i % 3]);
    }
    CHECK_INT(exl2_tokenize(r.engine, r.model, text, bytes, 0, ids, EXL2__COUNT(ids), &count), EXL2_OK);
    CHECK(count > 100);
    CHECK_INT(exl2_detokenize(r.engine, r.model, ids, count, 0, back, sizeof back, &bytes), EXL2_OK);
    exl2_model_info info;
    exl2_model_desc measured = { .path = load_path };
    exl2_model_measure(r.engine, &measured, &info); /* not checked, because some of the folders have no weights */
    rig_close(&r);
}

static void tokenizers(void)
{
    static const char *const rewrites[] = {
        "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"NFD\"},{\"type\":\"Lowercase\"},"
        "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":false},{\"type\":\"Replace\",\"pattern\":"
        "{\"Regex\":\" {2,}\"},\"content\":\" \"}]}",
        "{\"type\":\"NFKC\"}" };
    char name[32];
    load_path = rig_golden("exl2-mixed");
    load_files = text_engine(&words).files;
    for (int i = 0; i < PIPELINES + (int)EXL2__COUNT(rewrites); i++) {
        if (i < PIPELINES) {
            snprintf(words.tokenizer, sizeof words.tokenizer, "%s", pipeline_text(i));
        } else {
            snprintf(words.tokenizer, sizeof words.tokenizer, "{\"normalizer\":%s,%s", rewrites[i - PIPELINES],
                     pipeline_text(2) + 1);
        }
        snprintf(name, sizeof name, "tokenizer %d", i);
        stack_run(name, tokenize);
    }
    load_files = (exl2_files){ 0 };
    load_path = EXL2_GOLDEN_DIR "/smollm2";
    stack_run("tokenizer of SmolLM2", tokenize);
}

/* ---- jobs ---- */

static rig_said said;

static void edit(void *user, exl2_job job, float *logits, uint32_t vocab)
{
    (void)user;
    (void)job;
    logits[vocab - 1] = -1;
}

static exl2_grammar made(exl2_grammar_kind kind, const char *text)
{
    exl2_grammar g;
    exl2_grammar_desc d = { .model = one.model, .kind = kind, .source = text };
    check_result(exl2_grammar_make(one.engine, &d, &g), EXL2_OK);
    return g;
}

static void generate(exl2_job_desc *d)
{
    exl2_job_size size;
    memset(&said, 0, sizeof said);
    d->model = one.model;
    d->on_event = rig_hear;
    d->user = &said;
    CHECK_INT(exl2_job_measure(one.engine, d, &size), EXL2_OK);
    CHECK_INT(exl2_generate(one.engine, d), EXL2_OK);
    CHECK(said.done_events == 1 && said.count > 0);
}

/* A model with weights loads and runs every kind of job. */
static void jobs(void)
{
    static const char *const stops[] = { "fox is the", "qqqq" }, *const bans[] = { "xx", "The fox" };
    exl2_message turns[] = { { .role = "system", .text = "hi" }, { .role = "user", .text = "f\xC3\xA9 <|im_end|>" } };
    exl2_engine_desc engine = text_engine(&words);
    exl2_model_desc model = text_folder();
    exl2_session s, fork;
    engine.host_bytes_max = (uint64_t)1 << 32;
    one = rig_open(&engine, &model);
    exl2_job_desc d = { .prompt.text = "fox is. The fox and a long prompt that is scored with many alternatives",
                        .max_tokens = 40, .score_prompt = true, .alts_per_token = EXL2_ALTS_MAX, .heal_prompt = true,
                        .stop_strings = stops, .stop_string_count = 2, .ban_strings = bans, .ban_string_count = 2,
                        .on_logits = edit, .show_markers = true };
    d.sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_NEUTRAL, .seed = 5, .top_k = 40, .top_p = 0.9f,
                                     .min_p = 0.01f, .tail_free = 0.9f, .typical = 0.9f, .repeat_penalty = 1.1f,
                                     .dry_multiplier = 0.8f, .dry_base = 1.75f, .dry_allowed = 2, .top_a = 0.1f,
                                     .dynamic_min = 0.5f, .dynamic_max = 1.5f, .xtc_probability = 0.5f };
    generate(&d);
    CHECK(said.scored > 30);
    d = (exl2_job_desc){ .prompt = { .messages = turns, .message_count = 2 }, .max_tokens = 30, .guidance = 1.5f,
                         .negative_prompt.text = "is", .alts_per_token = EXL2_ALTS_MAX };
    generate(&d);
    d = (exl2_job_desc){ .prompt.text = "{", .max_tokens = 60 };
    d.grammar = made(EXL2_GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\","
                     "\"items\":{}},\"b\":{\"type\":\"string\"}},\"required\":[\"b\"]}");
    generate(&d);
    CHECK(said.stop == EXL2_STOP_GRAMMAR || said.stop == EXL2_STOP_TOKEN);
    d.grammar = made(EXL2_GRAMMAR_REGEX, "((((a|b)*c){2,9})*|[^\\x00-\\x1F]*)*");
    generate(&d);
    CHECK_INT(exl2_session_open(one.engine, one.model, &s), EXL2_OK);
    d = (exl2_job_desc){ .session = s, .prompt.text = "The fox", .max_tokens = 5 };
    CHECK_INT(exl2_job_start(one.engine, &d, NULL), EXL2_OK);
    rig_drain(&one, 1);
    exl2_event event;
    for (int events = 0; exl2_next_event(one.engine, &event);) {
        CHECK(++events < 100);
    }
    CHECK_INT(exl2_session_fork(one.engine, s, &fork), EXL2_OK);
    CHECK_INT(exl2_session_rewind(one.engine, fork, 2), EXL2_OK);
    CHECK_INT(exl2_session_close(one.engine, s), EXL2_OK);
    rig_close(&one);
}

static void part_of_json(void)
{
    static char text[1000];
    size_t need;
    const char *part = "{\"a\":[{\"say\":\"h\\u00e9";
    CHECK(exl2_json_text(part, strlen(part), "/a/0/say", text, sizeof text, &need, NULL) >= 0);
}

int main(int count, char **arguments)
{
    if (CHECK_SANITIZED) {
        check_skip("sanitizers make frames larger: the manual's figure is of other builds");
    }
    stack_kib = count > 1 ? (uint32_t)strtoul(arguments[1], NULL, 10) : STACK_KIB;
    static const char *const plan[] = { "The ", "fox", " is", "." };
    text_find_plan(&words, 4);
    text_write(&words, plan, 4, TEXT_CHAT_CONFIG);
    one = text_load(&words);
    grammars();
    templates();
    renders();
    rig_close(&one);
    stack_run("jobs", jobs);
    stack_run("exl2_json_text", part_of_json);
    tokenizers();
    printf("%zu bytes at most, of %u KiB\n", most_used, stack_kib);
    return check_done();
}

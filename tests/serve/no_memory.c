/* no_memory.c: every allocation for a request, its tools, overrides and reasoning fails once. Each time there is a
   sentence about it and no crash, nothing stays allocated, and the next try gives the same as before. The library under
   test is compiled with the allocation functions below in place of malloc, calloc, realloc and free. */
#include "../../demo/serve/overrides.h"
#include "../../demo/serve/reasoning.h"
#include "../../demo/serve/request.h"
#include "../../demo/serve/tools_text.h"
#include "../check.h"

void *faults_malloc(size_t bytes);
void *faults_calloc(size_t count, size_t bytes);
void *faults_realloc(void *old, size_t bytes);
void faults_free(void *memory);

static long fails_at, calls, live; /* fails_at 0: none fails */

static bool fails(void)
{
    return ++calls == fails_at;
}

void *faults_malloc(size_t bytes)
{
    void *memory = fails() ? NULL : malloc(bytes);
    live += memory != NULL;
    return memory;
}

void *faults_calloc(size_t count, size_t bytes)
{
    void *memory = fails() ? NULL : calloc(count, bytes);
    live += memory != NULL;
    return memory;
}

void *faults_realloc(void *old, size_t bytes)
{
    void *memory = fails() ? NULL : realloc(old, bytes);
    live += memory && !old;
    return memory;
}

void faults_free(void *memory)
{
    live -= memory != NULL;
    free(memory);
}

/* ---- what is tried; true: it went through ---- */

typedef struct attempt {
    bool (*run)(const char *text, size_t bytes);
    const char *text;
} attempt;

static bool read_kind(request_kind kind, const char *text, size_t bytes)
{
    request r = { 0 };
    request_error error = { 0 };
    request_limits limits = { .vocab = 1000, .preset = EXL2_PRESET_NEUTRAL, .pictures_max = 1 };
    bool good = request_read(&r, kind, text, bytes, &limits, &error) && !r.warnings.failed;
    bool of_stb = strstr(error.message, "a picture cannot be read") != NULL; /* it does not say each time why */
    if (!CHECK(good || !error.set || of_stb || strstr(error.message, "memory") != NULL)) {
        printf("  %s\n", error.message);
    }
    CHECK(good || error.set || r.warnings.failed);
    request_free(&r);
    return good;
}

static bool read_completion(const char *text, size_t bytes)
{
    return read_kind(REQUEST_COMPLETION, text, bytes);
}

static bool read_chat(const char *text, size_t bytes)
{
    return read_kind(REQUEST_CHAT, text, bytes);
}

static bool read_responses(const char *text, size_t bytes)
{
    return read_kind(REQUEST_RESPONSES, text, bytes);
}

static bool use_tools(const char *text, size_t bytes)
{
    static const char list[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\","
                               "\"parameters\":{\"type\":\"object\","
                               "\"if\":{\"a\":1}}}}]";
    static const exl2_message messages[] = {
        { .role = "assistant", .tool_calls = "[{\"function\":{\"name\":\"f\",\"arguments\":{}}}]" },
        { .role = "tool", .text = "1" },
    };
    tools t = { 0 };
    buffer schema = { 0 }, warnings = { 0 };
    tools_parsed p = { 0 };
    tools_text out = { 0 };
    bool good = tools_open(&t, list) && tools_schema(&t, TOOLS_HERMES, 8, &schema);
    if (good) {
        char message[100];
        size_t at = (size_t)(strstr(schema.data, "\"if\"") - schema.data);
        snprintf(message, sizeof message, "schema line 1, column %zu, #: no", at + 1);
        good = tools_relax(&t, &schema, message, &warnings);
    }
    good = good && tools_parse(&t, TOOLS_HERMES, text, bytes, &p);
    CHECK(!good || p.count == 1);
    good = good && tools_text_messages(&t, TOOLS_HERMES, messages, 2, &out);
    tools_text_free(&out);
    tools_parsed_free(&p);
    buffer_free(&schema);
    buffer_free(&warnings);
    tools_close(&t);
    return good;
}

static bool use_overrides(const char *text, size_t bytes)
{
    static const char body[] = "{\"prompt\":\"x\",\"stop\":\"c\"}";
    overrides o = { 0 };
    request_error error = { 0 };
    buffer out = { 0 };
    bool good = overrides_read(text, bytes, 1000, &o, &error);
    if (!CHECK(good || strstr(error.message, "memory") != NULL)) {
        printf("  %s\n", error.message);
    }
    good = good && overrides_apply(&o, body, sizeof body - 1, &out);
    CHECK(!good || strcmp(out.data, "{\"prompt\":\"x\",\"stop\":[\"c\",\"a\",\"b\"]}") == 0);
    buffer_free(&out);
    overrides_free(&o);
    return good;
}

static bool use_reasoning(const char *text, size_t bytes)
{
    reasoning r = { 0 };
    reasoning_part part;
    reasoning_tags tags;
    size_t all = 0;
    reasoning_tags_read("auto", NULL, &tags);
    reasoning_begin(&r, &tags, false);
    reasoning_add(&r, text, bytes);
    reasoning_finish(&r);
    while (reasoning_next(&r, &part)) {
        all += part.bytes;
    }
    bool good = !r.held.failed;
    CHECK_INT(all, good ? 2 : 0);
    reasoning_free(&r);
    return good;
}

static const attempt attempts[] = {
    { read_completion, "{\"prompt\":[[1,2],\"\\u00e9\"],\"stop\":[\"a\","
                       "7],\"logit_bias\":{\"5\":1},\"banned_tokens\":[1],"
                       "\"allowed_tokens\":\"1,2\",\"dry_sequence_breakers\":\"a,b\","
                       "\"nsigma\":1,\"json_schema\":\"{}\"}" },
    { read_completion, "{\"prompt\":\"x\",\"dry_sequence_breakers\":\"[\\\"a\\\"]\"}" },
    { read_chat, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
                 "\"text\":\"a\"}]},{\"role\":\"assistant\","
                 "\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"f\","
                 "\"arguments\":\"{}\"}}]},{\"role\":\"tool\","
                 "\"tool_call_id\":\"c\","
                 "\"content\":\"1\"}],\"tools\":[{\"name\":\"f\"}],\"template_vars\":{\"a\":1}}" },
#ifdef HAVE_STB_IMAGE
    { read_chat, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":"
                 "\"data:image/png;base64,"
                 "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAAD0lEQVR4nGNgZGL+38AAAAQgAYZx"
                 "gK+fAAAAAElFTkSuQmCC\"""}]}]}" },
#endif
    { read_responses, "{\"input\":[{\"type\":\"reasoning\","
                      "\"summary\":[{\"text\":\"s\"}]},{\"role\":\"assistant\",\"content\":"
                      "\"b\"}],\"instructions\":\"i\",\"text\":{\"format\":{\"type\":\"json_object\"}}}" },
    { use_tools, "x<tool_call>{\"name\":\"f\",\"arguments\":\"{}\"}</tool_call>" },
    { use_overrides, "stop:\n  override: [a, 'b']\n  additive: true\n" },
    { use_reasoning, "<think>a</think>b" },
};

/* A request that was read may wait long: nothing is left of its tree. */
static void check_kept(request_kind kind, const char *begin)
{
    buffer body = { 0 };
    request r = { 0 };
    request_error error = { 0 };
    request_limits limits = { .vocab = 1000, .preset = EXL2_PRESET_NEUTRAL };
    fails_at = 0;
    buffer_format(&body, "{%s,\"stop\":[\"a\",\"b\"],\"dry_sequence_breakers\":\"c,d\",\"negative_prompt\":\"e\","
                  "\"loras\":[{\"name\":\"l\"}],\"regex_pattern\":\"[ab]\",\"unknown\":[0", begin);
    for (int i = 0; i < 1000; i++) {
        buffer_string(&body, ",0");
    }
    buffer_string(&body, "]}");
    long before = live;
    CHECK(request_read(&r, kind, body.data, body.bytes, &limits, &error));
    CHECK(!error.set && live - before < 12);
    memset(body.data, 'x', body.bytes);
    buffer_free(&body);
    CHECK(r.stop_count == 2 && r.sampling.desc.dry_breaker_count == 2 && r.lora_count == 1);
    CHECK_TEXT(r.model, "m");
    CHECK_TEXT(r.stops[1], "b");
    CHECK_TEXT(r.sampling.desc.dry_breakers[1], "d");
    CHECK_TEXT(r.negative, "e");
    CHECK_TEXT(r.loras[0].name, "l");
    CHECK(r.source_bytes == 4 && memcmp(r.source, "[ab]", 4) == 0);
    CHECK(r.message_count == 0 || strcmp(r.messages[r.message_count - 1].role, "user") == 0);
    CHECK(r.prompt_count == 0 || (r.prompts[0].bytes == 3 && memcmp(r.prompts[0].text, "p\0q", 3) == 0));
    request_free(&r);
    CHECK_INT(live, before - 1); /* the body */
}

#ifdef HAVE_STB_IMAGE
/* Allocations for a request with this picture, in base64. */
static long picture_calls(const char *png)
{
    char body[400];
    request r = { 0 };
    request_error error = { 0 };
    request_limits limits = { .vocab = 1000, .preset = EXL2_PRESET_NEUTRAL, .pictures_max = 1 };
    int bytes = snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":"
                         "\"image_url\",\"image_url\":\"data:image/png;base64,%s\"}]}]}", png);
    calls = 0;
    CHECK(request_read(&r, REQUEST_CHAT, body, (size_t)bytes, &limits, &error) && r.picture_count == 1);
    request_free(&r);
    return calls;
}

/* A PNG file with a transparent color is decoded once: with as many allocations as one with a chunk that says nothing,
   but for that of its alpha. */
static void check_decoded_once(void)
{
    long transparent = picture_calls(
        "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAABnRSTlMAAQACAAPJS6v1AAAAD0lEQVR4"
        "nGNgZGL+38AAAAQgAYZxgK+fAAAAAElFTkSuQmCC");
    long plain = picture_calls(
        "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAABnp6WnoAAQACAANMf/hjAAAAD0lEQVR4"
        "nGNgZGL+38AAAAQgAYZxgK+fAAAAAElFTkSuQmCC");
    CHECK(plain > 20 && transparent <= plain + 1); /* decoded twice: 4 more */
}
#endif

/* Some allocations may fail without harm: stb_image asks whether a PNG file is a JPEG file. */
static bool survives(const attempt *a)
{
    return strstr(a->text, "data:image") != NULL;
}

int main(void)
{
    for (size_t i = 0; i < sizeof attempts / sizeof attempts[0]; i++) {
        const char *text = attempts[i].text;
        bool all = false;
        for (long nth = 1; !all && nth < 5000; nth++) {
            fails_at = nth;
            calls = 0;
            bool good = attempts[i].run(text, strlen(text));
            all = calls < nth; /* none has failed */
            if (!CHECK_INT(live, 0) || !CHECK(good == all || (good && survives(&attempts[i])))) {
                printf("  attempt %zu, allocation %ld\n", i, nth);
                break;
            }
        }
        fails_at = calls = 0;
        CHECK(attempts[i].run(text, strlen(text)));
        CHECK_INT(live, 0);
    }
#ifdef HAVE_STB_IMAGE
    check_decoded_once();
#endif
    check_kept(REQUEST_COMPLETION, "\"model\":\"m\",\"prompt\":\"p\\u0000q\"");
    check_kept(REQUEST_CHAT, "\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"c\"}]");
    check_kept(REQUEST_RESPONSES, "\"model\":\"m\",\"input\":\"c\",\"instructions\":\"i\"");
    return check_done();
}

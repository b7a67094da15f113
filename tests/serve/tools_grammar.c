/* tools_grammar.c: schemas of calls over the engine's grammars, on a tiny model that samples at a high temperature: all
   texts under them are calls of the tools, in every format; $refs of each tool hold; what cannot be enforced is left
   out, by the engine's own messages; many tools. */
#include "../engine/text_model.h"

#include "../../demo/serve/tools.h"

static text_model model; /* global, because the files hook keeps a pointer to it */
static rig_said said;

static const char *const plan[16] = { "{\"", "\":", "\": \"", "\",\"", "\"}", "true", "null", "]}",
                                      "\xC3", "an", "\\\"", ", \"", "{}", "-1", "e", "\\u00e" };

/* Both tools have a $defs of their own under the same name. */
static const char two[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"move\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"to\":"
    "{\"$ref\":\"#/$defs/it\"}},\"required\":[\"to\"],\"$defs\":{\"it\":{\"enum\":[\"north\",\"south\"]}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"wait\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"turns\":"
    "{\"$ref\":\"#/$defs/it\"}},\"required\":[\"turns\"],\"$defs\":{\"it\":{\"type\":\"integer\",\"minimum\":1,"
    "\"maximum\":9}}}}}]";

static exl2_result compile(const rig *r, const buffer *schema, exl2_grammar *out, char message[512])
{
    exl2_error error = { EXL2_OK, 0, "" };
    exl2_grammar_desc d = { .model = r->model, .kind = EXL2_GRAMMAR_JSON_SCHEMA, .source = schema->data,
                            .source_bytes = schema->bytes, .prefer_end = true };
    exl2_result result = exl2_grammar_make(r->engine, &d, out);
    if (result < 0) {
        exl2_last_error(r->engine, &error);
    }
    snprintf(message, 512, "%s", error.text);
    return result;
}

/* What the model writes under the grammar. */
static void write_text(const rig *r, exl2_grammar g, uint64_t seed)
{
    exl2_job_desc d = rig_job(r, text_prompt, EXL2__COUNT(text_prompt), 400, &said);
    memset(&said, 0, sizeof said);
    d.sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_NEUTRAL, .temperature = 1.5f, .seed = seed };
    d.grammar = g;
    rig_run(r, &d);
    said.text[said.bytes] = 0;
}

static bool is_call(const char *name, const char *arguments)
{
    char to[16] = "", turns[16] = "";
    size_t need;
    exl2_json_text(arguments, strlen(arguments), "/to", to, sizeof to, &need, NULL);
    exl2_json_text(arguments, strlen(arguments), "/turns", turns, sizeof turns, &need, NULL);
    bool moves = strcmp(to, "north") == 0 || strcmp(to, "south") == 0;
    bool waits = turns[0] >= '1' && turns[0] <= '9' && !turns[1];
    return strcmp(name, "move") == 0 ? moves && !turns[0] : strcmp(name, "wait") == 0 && waits && !to[0];
}

/* The same calls by both ways: read at the end, and as they are being written. */
static void check_calls(const tools *t, tools_format format, const char *only, uint32_t most)
{
    tools_parsed p = { 0 };
    tools_stream s = { 0 };
    tools_piece piece;
    buffer reply = { 0 }, arguments[TOOLS_CALLS_MAX] = { { 0 } };
    uint32_t begun = 0;
    buffer_format(&reply, "%s%s%s", tools_marks_of(format)->forced, said.text, tools_marks_of(format)->close);
    CHECK(tools_parse(t, format, reply.data, reply.bytes, &p));
    CHECK(p.count >= 1 && p.count <= most && p.content.bytes == 0);
    for (size_t at = 1; at <= said.bytes; at++) {
        while (tools_stream_next(&s, format, said.text, at, &piece)) {
            begun += piece.name != NULL;
            if (piece.name && CHECK(piece.call < p.count)) {
                CHECK_TEXT(piece.name, p.call[piece.call].name);
            }
            buffer_add(&arguments[piece.call % TOOLS_CALLS_MAX], piece.text ? piece.text : "", piece.bytes);
        }
    }
    CHECK_INT(begun, p.count);
    for (uint32_t i = 0; i < p.count; i++) {
        CHECK_TEXT(arguments[i].data, p.call[i].arguments);
        CHECK(is_call(p.call[i].name, p.call[i].arguments) && (!only || strcmp(only, p.call[i].name) == 0));
    }
    for (uint32_t i = 0; i < TOOLS_CALLS_MAX; i++) {
        buffer_free(&arguments[i]);
    }
    buffer_free(&reply);
    tools_stream_free(&s);
    tools_parsed_free(&p);
}

static void calls(const rig *r)
{
    tools t = { 0 };
    char message[512];
    uint32_t names[2] = { 0 };
    static const char *const both[] = { "wait", "move" };
    CHECK(tools_open(&t, two));
    for (tools_format format = TOOLS_HERMES; format <= TOOLS_MISTRAL; format++) {
        for (uint32_t seed = 1; seed <= 12; seed++) {
            const char *only = seed % 3 == 0 ? "wait" : NULL;
            buffer schema = { 0 };
            exl2_grammar g = { 0 };
            tools_keep(&t, only ? &only : both, only ? 1 : 2);
            CHECK(tools_schema(&t, format, 3, &schema));
            if (CHECK_INT(compile(r, &schema, &g, message), EXL2_OK)) {
                write_text(r, g, seed);
                CHECK(said.stop == EXL2_STOP_GRAMMAR || said.stop == EXL2_STOP_EOS);
                check_calls(&t, format, only, format == TOOLS_MISTRAL ? 3 : 1);
                names[strstr(said.text, "move") != NULL]++;
                exl2_grammar_close(r->engine, g);
            } else {
                printf("  %s\n  %s\n", message, schema.data);
            }
            buffer_free(&schema);
        }
    }
    CHECK(names[0] > 0 && names[1] > 0); /* the model did choose */
    tools_close(&t);
}

/* The engine refuses the schema; without the keywords that it names it compiles. */
static void relaxed(const rig *r, const char *parameters, const char *warned)
{
    tools t = { 0 };
    buffer json = { 0 }, schema = { 0 }, warnings = { 0 };
    exl2_grammar g = { 0 };
    char message[512];
    buffer_format(&json, "[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":%s}}]", parameters);
    CHECK(tools_open(&t, json.data));
    for (tools_format format = TOOLS_HERMES; format <= TOOLS_MISTRAL; format += TOOLS_MISTRAL - TOOLS_HERMES) {
        buffer_clear(&schema);
        buffer_clear(&warnings);
        CHECK(tools_schema(&t, format, 8, &schema));
        exl2_result result = compile(r, &schema, &g, message);
        CHECK(result < 0);
        while (result < 0 && tools_relax(&t, &schema, message, &warnings)) {
            result = compile(r, &schema, &g, message);
        }
        if (!CHECK_INT(result, EXL2_OK)) {
            printf("  %s\n  %s\n", message, schema.data);
        } else {
            exl2_grammar_close(r->engine, g);
        }
        CHECK_TEXT(warnings.data, warned);
    }
    tools_close(&t);
    buffer_free(&json);
    buffer_free(&schema);
    buffer_free(&warnings);
}

static void relaxes(const rig *r)
{
    relaxed(
        r,
        "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"string\"}},\"if\":{\"required\":[\"x\"]},\"then\":{}}",
        "a: if");
    relaxed(r, "{\"type\":\"object\",\n \"properties\":{\"\xC3\xA9\":{\"type\":\"array\",\"contains\":{\"const\":1}}}}",
            "a: contains");
    relaxed(r, "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"string\",\"pattern\":\"(?<=a)b\"}}}",
            "a: pattern");
    relaxed(r, "{\"type\":\"object\",\"properties\":{\"x\":{\"$ref\":\"https://example.org/x\"}},\"required\":[\"x\"]}",
            "a: $ref");
    relaxed(r, "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"thing\"}}}", "a: type");
}

/* As many tools as a request may have. */
static void many(const rig *r)
{
    tools t = { 0 };
    buffer json = { 0 }, schema = { 0 };
    exl2_grammar g = { 0 };
    char message[512];
    buffer_array(&json, NULL);
    for (uint32_t i = 0; i < TOOLS_MAX; i++) {
        buffer_format(
            &json,
            "%s{\"type\":\"function\",\"function\":{\"name\":\"tool_%u\",\"parameters\":{\"type\":\"object\","
            "\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"integer\"}},\"required\":[\"a\"]}}}",
            i ? "," : "", (unsigned)i);
    }
    buffer_end(&json);
    CHECK(tools_open(&t, json.data) && t.count == TOOLS_MAX);
    CHECK(tools_schema(&t, TOOLS_HERMES, 8, &schema));
    if (CHECK_INT(compile(r, &schema, &g, message), EXL2_OK)) {
        exl2_grammar_close(r->engine, g);
    } else {
        printf("  %s\n", message);
    }
    tools_close(&t);
    buffer_free(&json);
    buffer_free(&schema);
}

int main(void)
{
    text_find_plan(&model, EXL2__COUNT(plan));
    text_write(&model, plan, EXL2__COUNT(plan), TEXT_CHAT_CONFIG);
    rig r = text_load(&model);
    calls(&r);
    relaxes(&r);
    many(&r);
    rig_close(&r);
    return check_done();
}

/* tools.c: calls out of whole replies in each format, what looks like a call but is none, calls as they are being
   written at every cut, the schema's text and what is left out of it, tools as text. */
#include "../../demo/serve/tools_text.h"
#include "../check.h"

static const char list[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":"
    "{\"city\":{\"type\":\"string\"}},\"required\":[\"city\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"pay\",\"strict\":true,\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"sum\":{\"$ref\":\"#/$defs/sum\"}},\"$defs\":{\"sum\":{\"type\":\"integer\"}}}}}]";

static tools opened;

/* ---- whole replies ---- */

typedef struct parse_case {
    tools_format format;
    const char *text, *content;
    const char *calls; /* NAME ARGUMENTS, one a line */
} parse_case;

#define PARIS "{\"city\": \"Paris\"}"
#define ROME "{\"city\":\"Rome }\\\" ]\"}"

static const parse_case parses[] = {
    { TOOLS_HERMES, "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " PARIS "}\n</tool_call>", "",
      "get_weather " PARIS "\n" },
    { TOOLS_HERMES, "Let me see.\n<tool_call>{\"name\":\"get_weather\",\"arguments\":" ROME "}</tool_call>\n"
                    "<tool_call>{\"arguments\":{},\"name\":\"now\"}</tool_call>\n",
      "Let me see.", "get_weather " ROME "\nnow {}\n" },
    { TOOLS_HERMES, "<tool_call>{\"name\":\"now\"}", "", "now {}\n" }, /* the closing tag was a stop string */
    { TOOLS_HERMES, "<tool_call>{\"name\":\"get_weather\",\"arguments\":\"{\\\"city\\\": 1}\"}</tool_call>", "",
      "get_weather {\"city\": 1}\n" },
    { TOOLS_HERMES, "<tool_call>{\"name\":\"now\",\"parameters\":{\"a\" : 1.50}}</tool_call> done", "done",
      "now {\"a\" : 1.50}\n" },
    /* none of these is a call */
    { TOOLS_HERMES, "<tool_call>{\"name\":\"rm\",\"arguments\":{}}</tool_call>",
      "<tool_call>{\"name\":\"rm\",\"arguments\":{}}</tool_call>", "" },
    { TOOLS_HERMES, " <tool_call>{\"name\":\"now\",\"arguments\":[]}</tool_call> ",
      " <tool_call>{\"name\":\"now\",\"arguments\":[]}</tool_call> ", "" },
    { TOOLS_HERMES, "<tool_call>{\"name\":\"now\",\"arguments\":\"no\"}</tool_call>",
      "<tool_call>{\"name\":\"now\",\"arguments\":\"no\"}</tool_call>", "" },
    { TOOLS_HERMES, "<tool_call>{\"name\":\"now\"} and so on</tool_call>",
      "<tool_call>{\"name\":\"now\"} and so on</tool_call>", "" },
    { TOOLS_HERMES, "<tool_call>{\"name\":\"now\",}</tool_call>", "<tool_call>{\"name\":\"now\",}</tool_call>", "" },
    { TOOLS_HERMES, "<tool_call>{\"name\":\"now\"", "<tool_call>{\"name\":\"now\"", "" },
    { TOOLS_HERMES, "<tool_call>", "<tool_call>", "" },
    { TOOLS_HERMES, "<tool_call>\n", "<tool_call>\n", "" },
    { TOOLS_HERMES, "{\"name\":\"now\",\"arguments\":{}}", "{\"name\":\"now\",\"arguments\":{}}", "" },
    { TOOLS_HERMES, "The mark <tool_call> begins <tool_call>{\"name\":\"now\"}</tool_call>",
      "The mark <tool_call> begins", "now {}\n" },
    { TOOLS_NONE, "<tool_call>{\"name\":\"now\"}</tool_call>", "<tool_call>{\"name\":\"now\"}</tool_call>", "" },
    { TOOLS_LLAMA3, "{\"name\": \"get_weather\", \"parameters\": " PARIS "}", "", "get_weather " PARIS "\n" },
    { TOOLS_LLAMA3, "\n<|python_tag|>{\"name\":\"now\",\"parameters\":{}}; {\"name\":\"now\"}\n", "",
      "now {}\nnow {}\n" },
    { TOOLS_LLAMA3, "Well: <|python_tag|>{\"name\":\"now\"}", "Well:", "now {}\n" },
    { TOOLS_LLAMA3, "{\"name\":\"now\"} is what I would call", "{\"name\":\"now\"} is what I would call", "" },
    { TOOLS_LLAMA3, "{\"name\":\"now\"};{\"name\":\"rm\"}", "{\"name\":\"now\"};{\"name\":\"rm\"}", "" },
    { TOOLS_LLAMA3, "Say {\"name\":\"now\"}", "Say {\"name\":\"now\"}", "" },
    { TOOLS_MISTRAL, "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": " PARIS "}, {\"name\":\"now\"}]", "",
      "get_weather " PARIS "\nnow {}\n" },
    { TOOLS_MISTRAL, "Yes.[TOOL_CALLS]{\"name\":\"now\"} ok", "Yes. ok", "now {}\n" },
    { TOOLS_MISTRAL, "[TOOL_CALLS][{\"name\":\"now\"},{\"name\":\"rm\"}]",
      "[TOOL_CALLS][{\"name\":\"now\"},{\"name\":\"rm\"}]", "" },
    { TOOLS_MISTRAL, "[TOOL_CALLS][]", "[TOOL_CALLS][]", "" },
};

static void whole_replies(void)
{
    for (size_t i = 0; i < sizeof parses / sizeof parses[0]; i++) {
        tools_parsed p = { 0 };
        buffer got = { 0 };
        const parse_case *c = &parses[i];
        CHECK(tools_parse(&opened, c->format, c->text, strlen(c->text), &p));
        buffer_string(&got, "");
        for (uint32_t k = 0; k < p.count; k++) {
            CHECK_INT(strlen(p.call[k].arguments), p.call[k].bytes);
            buffer_format(&got, "%s %s\n", p.call[k].name, p.call[k].arguments);
        }
        CHECK_TEXT(got.data, c->calls);
        CHECK_TEXT(p.content.data ? p.content.data : "", c->content);
        buffer_free(&got);
        tools_parsed_free(&p);
    }
}

/* No prefix of a reply is read beyond its end (ASan sees it), and what is no call stays as it is. */
static void cut_replies(void)
{
    for (size_t i = 0; i < sizeof parses / sizeof parses[0]; i++) {
        for (size_t bytes = 0; bytes < strlen(parses[i].text); bytes++) {
            tools_parsed p = { 0 };
            char *exact = malloc(bytes + 1);
            memcpy(exact, parses[i].text, bytes);
            CHECK(tools_parse(&opened, parses[i].format, exact, bytes, &p));
            if (p.count == 0) {
                CHECK(p.content.bytes == bytes && memcmp(p.content.data, exact, bytes) == 0);
            }
            tools_parsed_free(&p);
            free(exact);
        }
    }
}

static void too_many(void)
{
    static const char one[] = "<tool_call>{\"name\":\"now\"}</tool_call>";
    buffer text = { 0 };
    tools_parsed p = { 0 };
    for (uint32_t i = 0; i < TOOLS_CALLS_MAX + 2; i++) {
        buffer_string(&text, one);
    }
    CHECK(tools_parse(&opened, TOOLS_HERMES, text.data, text.bytes, &p));
    CHECK_INT(p.count, TOOLS_CALLS_MAX);
    CHECK_INT(p.content.bytes, 2 * (sizeof one - 1));
    tools_parsed_free(&p);
    buffer_clear(&text);
    for (uint32_t i = 0; i < 100000; i++) { /* must not cost the square of its length */
        buffer_string(&text, "<tool_call>{");
    }
    double before = check_cpu_seconds();
    CHECK(tools_parse(&opened, TOOLS_HERMES, text.data, text.bytes, &p));
    CHECK(check_cpu_seconds() - before < 5);
    CHECK_INT(p.content.bytes, text.bytes);
    tools_parsed_free(&p);
    buffer_free(&text);
}

/* ---- as it is being written ---- */

static void stream(tools_format format, const char *json, const char *wanted)
{
    for (size_t step = 1; step < 9; step++) {
        tools_stream s = { 0 };
        tools_piece piece;
        buffer got = { 0 };
        size_t bytes = strlen(json);
        buffer_string(&got, "");
        for (size_t at = 0; at < bytes;) {
            at = at + step < bytes ? at + step : bytes;
            char *exact = malloc(at);
            memcpy(exact, json, at);
            while (tools_stream_next(&s, format, exact, at, &piece)) {
                CHECK((piece.name == NULL) == (piece.bytes > 0));
                if (piece.name) {
                    buffer_format(&got, "|%u:%s|", (unsigned)piece.call, piece.name);
                } else {
                    buffer_add(&got, piece.text, piece.bytes);
                }
            }
            free(exact);
        }
        CHECK_TEXT(got.data, wanted);
        buffer_free(&got);
        tools_stream_free(&s);
    }
}

static void streams(void)
{
    stream(TOOLS_HERMES, "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"S\xC3\xA3o \\\"P\\\"\"}}",
           "|0:get_weather|{\"city\": \"S\xC3\xA3o \\\"P\\\"\"}");
    stream(TOOLS_HERMES, "{\"name\":\"now\",\"arguments\":{}}", "|0:now|{}");
    stream(TOOLS_HERMES, "{\"name\":\"now\",\"arguments\":{\"a\":[1,2", "|0:now|{\"a\":[1,2");
    stream(TOOLS_HERMES, "{\"name\":\"no", "");
    stream(TOOLS_LLAMA3, "{\"name\":\"now\",\"parameters\":{\"a\":1}}", "|0:now|{\"a\":1}");
    stream(TOOLS_MISTRAL, "[{\"name\":\"now\",\"arguments\":{}}, {\"name\":\"pay\",\"arguments\":{\"sum\":1}}]",
           "|0:now|{}|1:pay|{\"sum\":1}");
}

/* ---- the schema ---- */

static void schemas(void)
{
    buffer out = { 0 };
    static const char *const now[] = { "now" }, *const pay[] = { "none", "pay" };
    tools_keep(&opened, now, 1);
    CHECK(!tools_find(&opened, "pay", 3) && tools_find(&opened, "now", 3));
    CHECK(tools_schema(&opened, TOOLS_HERMES, 8, &out));
    CHECK_TEXT(out.data, "{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"now\"},\"arguments\":"
                         "{\"type\":\"object\"}},\"required\":[\"name\",\"arguments\"],"
                         "\"additionalProperties\":false}]}");
    buffer_clear(&out);
    tools_keep(&opened, pay, 2);
    CHECK(tools_schema(&opened, TOOLS_LLAMA3, 8, &out));
    CHECK_TEXT(out.data,
               "{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"pay\"},\"parameters\":"
               "{\"$id\":\"tool:002\",\"type\":\"object\",\"properties\":{\"sum\":{\"$ref\":\"#/$defs/sum\"}},"
               "\"$defs\":{\"sum\":{\"type\":\"integer\"}}}},\"required\":[\"name\",\"parameters\"],"
               "\"additionalProperties\":false}]}");
    buffer_clear(&out);
    for (uint32_t i = 0; i < opened.count; i++) {
        opened.tool[i].barred = false;
    }
    tools_keep(&opened, NULL, 0);
    CHECK(tools_schema(&opened, TOOLS_MISTRAL, 8, &out));
    CHECK(strncmp(out.data, "{\"type\":\"array\",\"minItems\":1,\"maxItems\":8,\"items\":{\"anyOf\":[", 60) == 0);
    buffer_free(&out);
}

/* The message points at `at` in the schema; what must be left of the parameters of tool a. */
static void relax(const char *parameters, const char *at, bool strict, const char *left, const char *warning)
{
    tools t = { 0 };
    buffer json = { 0 }, schema = { 0 }, warnings = { 0 };
    char message[200];
    buffer_format(&json, "[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"strict\":%s,\"parameters\":%s}}]",
                  strict ? "true" : "false", parameters);
    CHECK(tools_open(&t, json.data));
    CHECK(tools_schema(&t, TOOLS_HERMES, 8, &schema));
    const char *found = strstr(schema.data, at);
    uint32_t line = 1, column = 1;
    for (const char *c = schema.data; c < found; c++) {
        column = *c == '\n' ? 1 : column + ((*c & 0xC0) != 0x80);
        line += *c == '\n';
    }
    snprintf(message, sizeof message, "schema line %u, column %u, #/x: not supported", line, column);
    CHECK_INT(tools_relax(&t, &schema, message, &warnings), left != NULL);
    CHECK_TEXT(warnings.data ? warnings.data : "", left ? warning : "");
    if (left) {
        buffer wanted = { 0 };
        buffer_format(&wanted, "\"arguments\":%s},\"required\"", left);
        CHECK(strstr(schema.data, wanted.data) != NULL || (printf("%s\n", schema.data), 0));
        buffer_free(&wanted);
    }
    tools_close(&t);
    buffer_free(&json);
    buffer_free(&schema);
    buffer_free(&warnings);
}

static void relaxes(void)
{
    relax("{\"type\":\"object\",\"if\":{\"x\":1},\"then\":2}", "\"if\"", false,
          "{\"$id\":\"tool:000\",\"type\":\"object\",\"then\":2}", "a: if");
    relax("{\"type\":\"object\",\"if\":{\"x\":1}}", "{\"x\":1}", false, "{\"$id\":\"tool:000\",\"type\":\"object\"}",
          "a: if");
    relax("{\"type\":\"object\",\n\"properties\":{\"if\":{\"\xC3\xA9\":1, \"contains\" : 5}}}", "\"contains\"", false,
          "{\"$id\":\"tool:000\",\"type\":\"object\",\"properties\":{\"if\":{\"\xC3\xA9\":1}}}", "a: contains");
    relax("{\"properties\":{\"p\":{\"contains\":5,\"x\":1}},\"type\":\"object\"}", "\"contains\"", false,
          "{\"$id\":\"tool:000\",\"properties\":{\"p\":{\"x\":1}},\"type\":\"object\"}", "a: contains");
    relax("{\"type\":\"object\",\"properties\":{\"p\":{\"not\":{}}}}", "{\"not\"", false,
          "{\"$id\":\"tool:000\",\"type\":\"object\",\"properties\":{\"p\":{}}}", "a: p");
    relax("{\"type\":\"object\",\"anyOf\":[{\"type\":\"object\"},{\"x\":1}]}", "{\"x\"", false,
          "{\"$id\":\"tool:000\",\"type\":\"object\"}", "a: anyOf");
    relax("{\"type\":\"object\",\"allOf\":[1]}", "{\"$id\"", false, "{\"type\":\"object\"}", "a: parameters");
    relax("{\"type\":\"object\",\"if\":1}", "\"if\"", true, NULL, "");
    relax("{\"type\":\"object\",\"if\":1}", "\"const\"", false, NULL, ""); /* not in the tool's part */
}

static void relaxes_patterns(void)
{
    tools t = { 0 };
    buffer schema = { 0 }, warnings = { 0 };
    CHECK(tools_open(&t, "[{\"type\":\"function\",\"function\":{\"name\":\"s\",\"strict\":true,\"parameters\":"
                         "{\"properties\":{\"x\":{\"pattern\":\"(?<=a)\"}}}}},"
                         "{\"type\":\"function\",\"function\":{\"name\":\"b\",\"parameters\":{\"type\":\"object\","
                         "\"properties\":{\"pattern\":{\"type\":\"string\",\"pattern\":\"(?<=a)\"}}}}}]"));
    CHECK(tools_schema(&t, TOOLS_HERMES, 8, &schema));
    CHECK(tools_relax(&t, &schema, "schema: pattern line 1, column 2: no look-behind", &warnings));
    CHECK(strstr(schema.data, "\"properties\":{\"pattern\":{\"type\":\"string\"}}") != NULL);
    CHECK(!tools_relax(&t, &schema, "schema: pattern line 1, column 2: no look-behind", &warnings));
    CHECK(!tools_relax(&t, &schema, "schema: too large", &warnings));
    CHECK(!tools_relax(&t, &schema, "schema line 99999999, column 3, #: x", &warnings));
    CHECK_TEXT(warnings.data, "b: pattern");
    tools_close(&t);
    buffer_free(&schema);
    buffer_free(&warnings);
}

/* ---- tools as text ---- */

static void texts(void)
{
    static const exl2_message messages[] = {
        { .role = "system", .text = "Be brief." },
        { .role = "user", .text = "Weather?" },
        { .role = "assistant", .text = "So.", .tool_calls = "[{\"type\":\"function\",\"function\":{\"name\":"
                                                             "\"get_weather\",\"arguments\":" PARIS "}},"
                                                             "{\"function\":{\"name\":\"now\",\"arguments\":{}}}]" },
        { .role = "tool", .text = "rain" },
        { .role = "tool", .text = "noon" },
        { .role = "assistant", .text = "It rains." },
    };
    tools_text out = { 0 };
    CHECK(tools_text_messages(&opened, TOOLS_HERMES, messages, 6, &out));
    CHECK_INT(out.count, 5);
    CHECK(strncmp(out.messages[0].text, "Be brief.\n\n# Tools\n", 19) == 0);
    CHECK(strstr(out.messages[0].text, "\n{\"type\":\"function\",\"function\":{\"name\":\"now\"}}\n") != NULL);
    CHECK(strstr(out.messages[0].text, "<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n"
                                       "</tool_call>") != NULL);
    CHECK(out.messages[1].text == messages[1].text);
    CHECK_TEXT(out.messages[2].text, "So.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " PARIS "}\n"
                                     "</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>");
    CHECK(out.messages[2].tool_calls == NULL);
    CHECK_TEXT(out.messages[3].role, "user");
    CHECK_TEXT(out.messages[3].text, "<tool_response>\nrain\n</tool_response>\n<tool_response>\nnoon\n"
                                     "</tool_response>");
    CHECK(out.messages[4].text == messages[5].text);
    tools_text_free(&out);
    CHECK(tools_text_messages(&opened, TOOLS_MISTRAL, messages + 1, 2, &out));
    CHECK_INT(out.count, 3);
    CHECK_TEXT(out.messages[0].role, "system");
    CHECK(strncmp(out.messages[0].text, "# Tools", 7) == 0);
    CHECK_TEXT(out.messages[2].text, "So.\n[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": " PARIS "}, "
                                     "{\"name\": \"now\", \"arguments\": {}}]");
    tools_text_free(&out);
    /* What is written is read again. */
    CHECK(tools_text_messages(&opened, TOOLS_LLAMA3, messages + 2, 1, &out));
    tools_parsed p = { 0 };
    const char *text = out.messages[1].text;
    CHECK(tools_parse(&opened, TOOLS_LLAMA3, text + 4, strlen(text) - 4, &p));
    CHECK_INT(p.count, 2);
    tools_parsed_free(&p);
    tools_text_free(&out);
    /* Without tools, the calls and results alone; a result with pictures stays as it is. */
    static const exl2_message pictured[] = {
        { .role = "system", .text = "Be brief." },
        { .role = "assistant", .tool_calls = "[{\"function\":{\"name\":\"now\",\"arguments\":{}}}]" },
        { .role = "tool", .text = "noon" },
        { .role = "tool", .text = "a clock", .image_count = 1 },
        { .role = "tool", .text = "rain" },
    };
    CHECK(tools_text_messages(NULL, TOOLS_HERMES, pictured, 5, &out));
    CHECK_INT(out.count, 5);
    CHECK(out.messages[0].text == pictured[0].text);
    CHECK_TEXT(out.messages[1].text, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>");
    CHECK_TEXT(out.messages[2].text, "<tool_response>\nnoon\n</tool_response>");
    CHECK(out.messages[3].text == pictured[3].text && out.messages[3].image_count == 1);
    CHECK_TEXT(out.messages[3].role, "user");
    CHECK_TEXT(out.messages[4].text, "<tool_response>\nrain\n</tool_response>");
    tools_text_free(&out);
}

static void short_ids(void)
{
    exl2_message messages[] = {
        { .role = "assistant", .tool_calls = "[{\"id\":\"call_00017f80ff102030405060ab\",\"type\":\"function\"},"
                                             "{\"id\":\"c-1\"},{\"type\":\"function\"}]" },
        { .role = "tool", .tool_call_id = "call_00017f80ff102030405060ab", .text = "x" },
        { .role = "tool", .tool_call_id = "c-1" },
        { .role = "user", .text = "y" },
    };
    buffer ids = { 0 };
    CHECK(tools_text_short_ids(messages, 4, &ids));
    CHECK_TEXT(messages[0].tool_calls, "[{\"id\":\"0405060ab\",\"type\":\"function\"},{\"id\":\"0000000c1\"},"
                                       "{\"type\":\"function\"}]");
    CHECK_TEXT(messages[1].tool_call_id, "0405060ab");
    CHECK_TEXT(messages[2].tool_call_id, "0000000c1");
    CHECK(!messages[3].tool_call_id && !messages[3].tool_calls);
    buffer_free(&ids);
}

static void formats(void)
{
    CHECK_INT(tools_of_template("..<tool_call>.. \"parameters\": .."), TOOLS_HERMES);
    CHECK_INT(tools_of_template("<|python_tag|>"), TOOLS_LLAMA3);
    CHECK_INT(tools_of_template("'{\"name\": function name, \"parameters\": dict}'"), TOOLS_LLAMA3);
    CHECK_INT(tools_of_template("[TOOL_CALLS]"), TOOLS_MISTRAL);
    CHECK_INT(tools_of_template("<|im_start|>"), TOOLS_HERMES);
    CHECK_INT(tools_of_template(NULL), TOOLS_HERMES);
    CHECK(tools_may_begin(TOOLS_LLAMA3, "\n {\"x", 5) && tools_may_begin(TOOLS_LLAMA3, " ", 1));
    CHECK(!tools_may_begin(TOOLS_LLAMA3, "Well {", 6) && !tools_may_begin(TOOLS_HERMES, "{", 1));
    tools bad = { 0 };
    CHECK(!tools_open(&bad, "[{\"type\":\"function\"}]"));
    CHECK(!tools_open(&bad, "{}"));
    CHECK(!tools_open(&bad, "["));
}

int main(void)
{
    CHECK(tools_open(&opened, list));
    CHECK_INT(opened.count, 3);
    formats();
    whole_replies();
    cut_replies();
    too_many();
    streams();
    schemas();
    relaxes();
    relaxes_patterns();
    texts();
    short_ids();
    tools_close(&opened);
    return check_done();
}

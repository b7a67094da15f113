/* request_chat.c: the messages, tools and variables of chats, /v1/responses as a chat, and many of everything. */
#include "../../demo/serve/request.h"
#include "../check.h"

static const request_limits limits = { .vocab = 1000, .preset = EXL2_PRESET_NEUTRAL, .pictures_max = 2 };

static bool read_body(request *r, request_kind kind, const char *body, request_error *error)
{
    *r = (request){ 0 };
    *error = (request_error){ 0 };
    bool good = request_read(r, kind, body, strlen(body), &limits, error);
    CHECK_INT(good, !error->set);
    return good;
}

static request good(request_kind kind, const char *body)
{
    request r;
    request_error error;
    if (!CHECK(read_body(&r, kind, body, &error))) {
        printf("  %s: %s: %s\n", body, error.param, error.message);
        exit(1);
    }
    return r;
}

static void refused(request_kind kind, const char *body, const char *param, const char *words)
{
    request r;
    request_error error;
    if (CHECK(!read_body(&r, kind, body, &error))) {
        CHECK_TEXT(error.param, param);
        if (!CHECK(strstr(error.message, words) != NULL)) {
            printf("  \"%s\" in \"%s\"\n", words, error.message);
        }
    } else {
        printf("  %s\n", body);
    }
    request_free(&r);
}

/* ---- messages ---- */

#define CALL "{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}}"

static void messages(void)
{
    request r = good(
        REQUEST_CHAT,
        "{\"messages\":["
        "{\"role\":\"developer\",\"content\":\"be \\u00e9\"},"
        "{\"role\":\"user\",\"name\":\"ann\",\"content\":[{\"type\":\"text\","
        "\"text\":\"a\"},{\"type\":\"input_text\",\"text\":\"b\"},\"c\"]},"
        "{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"hm\",\"tool_calls\":[" CALL "]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"7\"},"
        "{\"role\":\"assistant\",\"content\":\"\",\"reasoning\":\"so\",\"tool_calls\":[]},"
        "{\"role\":\"system\",\"content\":\"late\"}]}");
    CHECK_INT(r.message_count, 6);
    CHECK_TEXT(r.messages[0].role, "system");
    CHECK_TEXT(r.messages[0].text, "be \xC3\xA9");
    CHECK_TEXT(r.messages[1].text, "abc");
    CHECK_TEXT(r.messages[1].name, "ann");
    CHECK(r.messages[2].text == NULL);
    CHECK_TEXT(r.messages[2].reasoning, "hm");
    CHECK_TEXT(r.messages[2].tool_calls, "[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
                                         "\"arguments\":{\"a\": 1}}}]");
    CHECK_TEXT(r.messages[3].role, "tool");
    CHECK_TEXT(r.messages[3].tool_call_id, "c1");
    CHECK_TEXT(r.messages[4].text, "");
    CHECK_TEXT(r.messages[4].reasoning, "so");
    CHECK(r.messages[4].tool_calls == NULL);
    CHECK_TEXT(r.messages[5].text, "late");
    request_free(&r);
    refused(REQUEST_CHAT, "{\"messages\":[]}", "messages", "at least one");
    refused(REQUEST_CHAT, "{}", "messages", "at least one");
    refused(REQUEST_CHAT, "{\"messages\":\"hi\"}", "messages", "list");
    refused(REQUEST_CHAT, "{\"messages\":[1]}", "messages", "objects");
    refused(REQUEST_CHAT, "{\"messages\":[{\"content\":\"x\"}]}", "messages", "role");
    refused(REQUEST_CHAT, "{\"messages\":[{\"role\":7,\"content\":\"x\"}]}", "messages.role", "text");
    refused(REQUEST_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":7}]}", "messages", "content");
    refused(REQUEST_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\u0000b\"}]}", "messages", "zero byte");
    refused(REQUEST_CHAT,
            "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\",\"input_audio\":{}}]}]}",
            "messages", "'input_audio'");
    refused(REQUEST_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}", "messages", "text");
    refused(REQUEST_CHAT, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[" CALL "]},"
                          "{\"role\":\"tool\",\"tool_call_id\":\"c2\",\"content\":\"7\"}]}", "messages", "'c2'");
    refused(REQUEST_CHAT, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"x\"}]}]}", "messages",
            "function.name");
}

/* ---- pictures ---- */

#define PNG \
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAAD0lEQVR4nGNgZGL+38AAAAQgAYZx" \
    "gK+fAAAAAElFTkSuQmCC" /* 2 x 1, RGB */
#define HUGE_PNG \
    "iVBORw0KGgoAAAANSUhEUgAAD6AAAA+gCAIAAABhHXRVAAAACElEQVR4nAMAAAAAAUgGidIAAAAA" \
    "SUVORK5CYII=" /* 4000 x 4000 by its header */
#define PART(url) "{\"type\":\"image_url\",\"image_url\":{\"url\":\"" url "\",\"detail\":\"low\"}}"
#define SAYS(parts) "{\"messages\":[{\"role\":\"user\",\"content\":[" parts "]}]}"

static const request_limits blind = { .vocab = 1000, .no_pictures = "the tower sleeps" };

static void bad_picture(const char *url, const char *words)
{
    char body[1000];
    snprintf(body, sizeof body, SAYS(PART("%s")), url);
    refused(REQUEST_CHAT, body, "messages", words);
}

static void pictures(void)
{
#ifdef HAVE_STB_IMAGE
    static const char two[] = "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":["
                              "{\"type\":\"text\",\"text\":\"a\\\"\"}," PART("data:image/png;base64," PNG) ",\"b\"]},"
                              "{\"role\":\"user\",\"content\":[" PART("DATA:image/JPEG;base64," PNG) "]}]}";
    request r = good(REQUEST_CHAT, two);
    CHECK_INT(r.picture_count, 2);
    CHECK_INT(r.picture_bytes, 12);
    CHECK(r.pictures[0].width == 2 && r.pictures[0].height == 1 && r.pictures[0].channels == 3);
    CHECK(memcmp(r.pictures[0].pixels, "\x01\x02\x03\xFF\x80", 6) == 0);
    CHECK(!r.messages[0].images && !r.messages[0].fields);
    CHECK(r.messages[1].images == r.images && r.messages[1].image_count == 1);
    CHECK(r.messages[2].images == r.images + 1 && r.messages[2].image_count == 1);
    CHECK_TEXT(r.messages[1].text, "a\"b");
    CHECK_TEXT(r.messages[1].fields, "{\"content\":[{\"type\":\"text\",\"text\":\"a\\\"\"},{\"type\":\"image\"},"
                                     "{\"type\":\"text\",\"text\":\"b\"}]}");
    request_free(&r);
    r = good(REQUEST_CHAT, SAYS(PART("data:image/png;base64,\\r\\n" /* with lines, as in mail */
                                     "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAAD0lE\\r\\n"
                                     "QVR4nGNgZGL+38AAAAQgAYZx\\n\\tgK+fAAAAAElFTkSuQmCC \\r\\n")));
    CHECK(r.picture_count == 1 && memcmp(r.pictures[0].pixels, "\x01\x02\x03\xFF\x80", 6) == 0);
    request_free(&r);
    r = good(REQUEST_CHAT, two);
    request_free_pixels(&r);
    CHECK(!r.pictures && !r.picture_bytes && r.images);
    request_free(&r);
    r = good(REQUEST_RESPONSES, "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"image_url\":"
                                "\"data:image/png;base64," PNG "\"},{\"type\":\"input_text\",\"text\":\"q\"}]}]}");
    CHECK_INT(r.picture_count, 1);
    request_free(&r);
#define ONE PART("data:image/png;base64," PNG)
    refused(REQUEST_CHAT, SAYS(ONE "," ONE "," ONE), "messages", "2 pictures at most");
#undef ONE
    bad_picture("data:image/png;base64," HUGE_PNG, "4000 x 4000 pixels");
#endif
    bad_picture("https://example.org/cat.png", "fetches no pictures");
    bad_picture("HTTP://example.org/cat.png", "fetches no pictures");
    bad_picture("file:///etc/passwd", "data:image/png");
    bad_picture("x", "data:image/png");
    bad_picture("data:image/gif;base64,R0lGODlh", "not 'image/gif;base64'");
    bad_picture("data:text/plain,hello", "not 'text/plain'");
    bad_picture("data:image/png,abc", "not 'image/png'");
    bad_picture("data:image/png;base64,", "base64");
    bad_picture("data:image/png;base64,abc", "base64");
    bad_picture("data:image/png;base64,abc=abcd", "base64");
    bad_picture("data:image/png;base64,ab*d", "base64");
    bad_picture("data:image/png;base64,====", "base64");
    bad_picture("data:image/png;base64,a===", "base64");
    bad_picture("data:image/png;base64,ab c", "base64");
    bad_picture("data:image/png;base64,abc=\\r\\n=", "base64");
    bad_picture("data:image/png;base64, \\r\\n", "base64");
    bad_picture("data:image/png;base64,aGVs\\r\\nbG8=\\r\\n", "neither PNG nor JPEG");
    bad_picture("data:image/png;base64,aGVsbG8=", "neither PNG nor JPEG");
    bad_picture("data:image/png;base64,iVBORw0KGgo=", "cannot be read");
    refused(REQUEST_CHAT, SAYS("{\"type\":\"image_url\"}"), "messages", "must have an image_url");
    refused(REQUEST_CHAT, SAYS("{\"type\":\"input_image\",\"file_id\":\"f\"}"), "messages", "must have an image_url");
    refused(REQUEST_CHAT, SAYS("{\"type\":\"image_url\",\"image_url\":7}"), "messages", "must have an image_url");
    request_error error = { 0 };
    r = (request){ 0 };
    static const char any[] = SAYS(PART("data:image/png;base64," PNG));
    CHECK(!request_read(&r, REQUEST_CHAT, any, sizeof any - 1, &blind, &error));
    CHECK_TEXT(error.message, "the tower sleeps");
    request_free(&r);
}

#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static void beginnings(void)
{
    request r = good(REQUEST_CHAT, "{" HI ",\"response_prefix\":\"Sure\"}");
    CHECK_TEXT(r.prefix, "Sure");
    CHECK(!r.begun_reply && !r.close_reply);
    request_free(&r);
    static const char *const names[] = { "continue_final_message", "continue_" };
    for (size_t i = 0; i < 2; i++) {
        char body[300];
        snprintf(body, sizeof body,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":"
                 "\"Well\"}],\"%s\":true,\"add_generation_prompt\":false}",
                 names[i]);
        r = good(REQUEST_CHAT, body);
        CHECK(r.begun_reply && !r.close_reply && !r.prefix);
        request_free(&r);
    }
    r = good(REQUEST_CHAT, "{" HI ",\"add_generation_prompt\":false}");
    CHECK(r.close_reply && !r.begun_reply);
    request_free(&r);
    refused(REQUEST_CHAT, "{" HI ",\"continue_final_message\":true}", "continue_final_message", "assistant");
    refused(REQUEST_CHAT,
            "{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\"}],\"continue_\":true,\"response_prefix\":\"y\"}",
            "response_prefix", "exclude");
    refused(REQUEST_CHAT, "{" HI ",\"add_generation_prompt\":false,\"response_prefix\":\"y\"}", "response_prefix",
            "needs");
}

static void variables(void)
{
    request r = good(REQUEST_CHAT,
                     "{" HI ",\"template_vars\":{\"a\":[1],\"verbosity\":\"low\"},\"enable_thinking\":false,"
                     "\"reasoning_effort\":\"high\",\"verbosity\":\"high\"}");
    CHECK_TEXT(r.variables,
               "{\"a\":[1],\"verbosity\":\"low\",\"reasoning_effort\":\"high\",\"enable_thinking\":false}");
    request_free(&r);
    r = good(REQUEST_CHAT,
             "{" HI ",\"chat_template_kwargs\":{\"enable_thinking\":true},\"reasoning\":{\"effort\":\"low\","
             "\"enabled\":false,\"max_tokens\":50}}");
    CHECK_TEXT(r.variables, "{\"enable_thinking\":true,\"reasoning_effort\":\"low\"}");
    CHECK_INT(r.reasoning_budget, 50);
    request_free(&r);
    r = good(REQUEST_CHAT, "{" HI ",\"reasoning\":{\"effort\":\"low\",\"max_tokens\":50},\"reasoning_effort\":\"high\","
                           "\"thinking_budget\":0}");
    CHECK_TEXT(r.variables, "{\"reasoning_effort\":\"high\"}");
    CHECK_INT(r.reasoning_budget, 0);
    request_free(&r);
    r = good(REQUEST_CHAT, "{" HI ",\"reasoning_budget_tokens\":-7}");
    CHECK_INT(r.reasoning_budget, -1);
    request_free(&r);
    refused(REQUEST_CHAT, "{" HI ",\"reasoning\":{\"effort\":7}}", "reasoning.effort", "text");
}

/* ---- tools ---- */

#define TOOL "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}}"
#define FLAT "{\"type\":\"function\",\"name\":\"f\",\"parameters\":{\"type\":\"object\"},\"strict\":true}"

#define NAMED(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"
#define THREE "\"tools\":[" NAMED("a") "," NAMED("b") "," NAMED("c") "]"
#define ALLOWED(inside) "{" HI "," THREE ",\"tool_choice\":{\"type\":\"allowed_tools\"" inside "}}"

static void allowed(void)
{
    request r = good(REQUEST_CHAT, ALLOWED(",\"allowed_tools\":{\"mode\":\"auto\",\"tools\":["
                                           NAMED("c") "," NAMED("a") "]}"));
    CHECK(r.tool_choice == REQUEST_TOOL_AUTO && r.tool_count == 3 && r.tool_name_count == 2);
    CHECK_TEXT(r.tool_names[0], "c");
    CHECK_TEXT(r.tool_names[1], "a");
    request_free(&r);
    r = good(REQUEST_RESPONSES, "{\"input\":\"x\",\"tools\":[" FLAT "],\"tool_choice\":{\"type\":\"allowed_tools\","
                                "\"mode\":\"required\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"}]}}");
    CHECK(r.tool_choice == REQUEST_TOOL_REQUIRED && r.tool_name_count == 1);
    CHECK_TEXT(r.tool_names[0], "f");
    request_free(&r);
    refused(REQUEST_CHAT, ALLOWED(""), "tool_choice", "mode of allowed_tools");
    refused(REQUEST_CHAT, ALLOWED(",\"mode\":\"none\",\"tools\":[" NAMED("a") "]"), "tool_choice", "auto or required");
    refused(REQUEST_CHAT, ALLOWED(",\"mode\":7"), "tool_choice.mode", "text");
    refused(REQUEST_CHAT, ALLOWED(",\"mode\":\"auto\""), "tool_choice", "list of tools");
    refused(REQUEST_CHAT, ALLOWED(",\"mode\":\"auto\",\"tools\":[]"), "tool_choice", "list of tools");
    refused(REQUEST_CHAT, ALLOWED(",\"mode\":\"auto\",\"tools\":[" NAMED("d") "]"), "tool_choice", "'d'");
    refused(REQUEST_CHAT, ALLOWED(",\"mode\":\"auto\",\"tools\":[{\"type\":\"mcp\",\"server_label\":\"s\"}]"),
            "tool_choice", "function with a name");
}

static void tools_and_choices(void)
{
    request r = good(REQUEST_CHAT, "{" HI ",\"tools\":[" TOOL "],\"parallel_tool_calls\":false}");
    CHECK_TEXT(r.tools, "[" TOOL "]");
    CHECK(r.tool_count == 1 && r.tool_choice == REQUEST_TOOL_AUTO && !r.parallel_tools);
    request_free(&r);
    r = good(REQUEST_CHAT, "{" HI ",\"functions\":[{\"name\":\"f\"}],\"function_call\":{\"name\":\"f\"}}");
    CHECK_TEXT(r.tools, "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]");
    CHECK_INT(r.tool_choice, REQUEST_TOOL_REQUIRED);
    CHECK_INT(r.tool_name_count, 1);
    CHECK_TEXT(r.tool_names[0], "f");
    request_free(&r);
    r = good(REQUEST_CHAT, "{" HI ",\"tools\":[" FLAT "],\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"}}");
    CHECK_TEXT(r.tools, "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"},"
                        "\"strict\":true}}]");
    CHECK_INT(r.tool_name_count, 1);
    CHECK_TEXT(r.tool_names[0], "f");
    request_free(&r);
    r = good(REQUEST_CHAT, "{" HI ",\"tools\":[" TOOL "],\"tool_choice\":\"required\"}");
    CHECK(r.tool_choice == REQUEST_TOOL_REQUIRED && !r.tool_name_count);
    request_free(&r);
    r = good(REQUEST_CHAT, "{" HI ",\"tools\":[" TOOL "],\"tool_choice\":\"none\"}");
    CHECK(r.tool_choice == REQUEST_TOOL_NONE && r.tools);
    request_free(&r);
    allowed();
    refused(REQUEST_CHAT,
            "{" HI ",\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}}",
            "tool_choice", "'g'");
    refused(REQUEST_CHAT, "{" HI ",\"tool_choice\":\"required\"}", "tool_choice", "no tools");
    refused(REQUEST_CHAT, "{" HI ",\"tools\":[" TOOL "],\"tool_choice\":\"maybe\"}", "tool_choice", "must be");
    refused(REQUEST_CHAT, "{" HI ",\"tools\":[{\"type\":\"web_search\"}]}", "tools", "'web_search'");
    refused(REQUEST_CHAT, "{" HI ",\"tools\":[{\"type\":\"function\",\"function\":{}}]}", "tools", "name");
    refused(REQUEST_CHAT, "{" HI ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":7}}]}",
            "tools", "no schema");
    buffer many = { 0 };
    buffer_string(&many, "{" HI ",\"tools\":[" TOOL);
    for (int i = 0; i < 128; i++) {
        buffer_string(&many, "," TOOL);
    }
    buffer_string(&many, "]}");
    refused(REQUEST_CHAT, many.data, "tools", "128");
    buffer_free(&many);
}

/* ---- /v1/responses ---- */

static void responses(void)
{
    request r = good(REQUEST_RESPONSES,
                     "{\"model\":\"m\",\"input\":\"hi\",\"instructions\":\"be brief\",\"max_output_tokens\":9,"
                     "\"n\":3,\"stream\":true,\"temperature\":0.5,\"store\":false,\"include\":[\"x\"]}");
    CHECK_INT(r.kind, REQUEST_RESPONSES);
    CHECK(r.message_count == 2 && r.max_tokens == 9 && r.n == 1 && r.stream);
    CHECK_TEXT(r.messages[0].role, "system");
    CHECK_TEXT(r.messages[0].text, "be brief");
    CHECK_TEXT(r.messages[1].text, "hi");
    CHECK_TEXT(r.model, "m");
    CHECK_INT(r.asked_count, 3);
    CHECK_TEXT(r.asked[0].name, "instructions");
    CHECK_TEXT(r.asked_texts.data, "\"be brief\"90.5");
    CHECK(r.asked[2].at == 11 && r.asked[2].bytes == 3);
    CHECK_TEXT(r.warnings.data, "include: x");
    CHECK(!r.logprobs);
    request_free(&r);
    r = good(REQUEST_RESPONSES, "{\"input\":\"x\",\"include\":[\"message.output_text.logprobs\"],\"top_logprobs\":3}");
    CHECK(r.logprobs && r.top_logprobs == 3 && !r.warnings.bytes);
    request_free(&r);
    refused(REQUEST_RESPONSES, "{\"input\":\"x\",\"include\":[7]}", "include", "texts");
    r = good(
        REQUEST_RESPONSES,
        "{\"input\":["
        "{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"}]},"
        "{\"type\":\"reasoning\",\"id\":\"r\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"s\"}]},"
        "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"b\","
        "\"annotations\":[]}]},"
        "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"},"
        "{\"type\":\"function_call\",\"call_id\":\"c2\",\"name\":\"g\",\"arguments\":\"{}\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"1\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"c2\",\"output\":[{\"type\":\"input_text\",\"text\":\"2\"}]},"
        "{\"type\":\"function_call\",\"call_id\":\"c3\",\"name\":\"f\",\"arguments\":\"{}\"}],"
        "\"tools\":[" FLAT "],\"tool_choice\":\"auto\",\"reasoning\":{\"effort\":\"low\",\"summary\":\"auto\"},"
        "\"text\":{\"verbosity\":\"low\",\"format\":{\"type\":\"json_schema\",\"name\":\"n\","
        "\"strict\":true,\"schema\":{\"type\":1}}}}");
    CHECK_INT(r.message_count, 5);
    CHECK_TEXT(r.messages[0].text, "a");
    CHECK_TEXT(r.messages[1].text, "b");
    CHECK_TEXT(r.messages[1].reasoning, "s");
    CHECK_TEXT(r.messages[1].tool_calls,
               "[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
               "{\"x\":1}}},{\"id\":\"c2\",\"type\":\"function\",\"function\":{\"name\":\"g\","
               "\"arguments\":{}}}]");
    CHECK_TEXT(r.messages[2].text, "1");
    CHECK_TEXT(r.messages[3].text, "2");
    CHECK_TEXT(r.messages[3].tool_call_id, "c2");
    CHECK_TEXT(r.messages[4].role, "assistant");
    CHECK(r.messages[4].text == NULL && r.messages[4].tool_calls);
    CHECK_TEXT(r.variables, "{\"verbosity\":\"low\",\"reasoning_effort\":\"low\"}");
    CHECK(r.has_grammar && r.strict && r.source_bytes == 10 && memcmp(r.source, "{\"type\":1}", 10) == 0);
    CHECK_INT(r.tool_count, 1);
    request_free(&r);
    refused(REQUEST_RESPONSES, "{}", "input", "input");
    refused(REQUEST_RESPONSES, "{\"input\":7}", "input", "input");
    refused(REQUEST_RESPONSES, "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_file\"}]}]}", "input",
            "'input_file'");
    refused(REQUEST_RESPONSES, "{\"input\":[{\"type\":\"item_reference\",\"id\":\"x\"}]}", "input", "'item_reference'");
    refused(REQUEST_RESPONSES, "{\"input\":[7]}", "input", "''");
    refused(REQUEST_RESPONSES, "{\"input\":[{\"type\":\"function_call\"}]}", "input", "name");
    refused(REQUEST_RESPONSES, "{\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"c9\",\"output\":\"x\"}]}",
            "input", "'c9'");
    refused(REQUEST_RESPONSES, "{\"input\":\"x\",\"previous_response_id\":\"resp_1\"}", "previous_response_id",
            "keeps no");
    refused(REQUEST_RESPONSES, "{\"input\":\"x\",\"background\":true}", "background", "keeps no");
    refused(REQUEST_RESPONSES, "{\"input\":\"x\",\"tools\":[{\"type\":\"file_search\"}]}", "tools", "'file_search'");
    refused(REQUEST_RESPONSES, "{\"input\":\"x\",\"text\":{\"format\":7}}", "text.format", "object");
    refused(REQUEST_RESPONSES, "{\"input\":\"x\",\"top_p\":7}", "top_p", "0 to 1");
}

/* Bodies as large as the server takes must not cost the square of their length. */
static void much(void)
{
    buffer body = { 0 };
    request r;
    request_error error;
    double before = check_cpu_seconds();
    buffer_string(&body, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[" CALL);
    for (int i = 0; i < 127; i++) {
        buffer_string(&body, "," CALL);
    }
    buffer_string(&body, "]}");
    for (int i = 0; i < 8000; i++) {
        buffer_format(&body, ",{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"%d\"}", i);
    }
    buffer_string(&body, "]}");
    CHECK(read_body(&r, REQUEST_CHAT, body.data, &error));
    request_free(&r);
    buffer_clear(&body);
    buffer_string(&body, "{" HI);
    for (int i = 0; i < 200000; i++) {
        buffer_format(&body, ",\"k%d\":0", i);
    }
    buffer_string(&body, "}");
    CHECK(read_body(&r, REQUEST_CHAT, body.data, &error));
    request_free(&r);
    buffer_clear(&body);
    buffer_string(&body, "{\"messages\":[" CALL);
    for (int i = 0; i < 8200; i++) {
        buffer_string(&body, "," CALL);
    }
    buffer_string(&body, "]}");
    refused(REQUEST_CHAT, body.data, "messages", "more than");
    buffer_free(&body);
    CHECK(check_cpu_seconds() - before < (CHECK_SANITIZED ? 20 : 5));
}

int main(void)
{
    messages();
    pictures();
    beginnings();
    variables();
    tools_and_choices();
    responses();
    much();
    return check_done();
}

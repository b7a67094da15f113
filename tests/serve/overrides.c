/* overrides.c: overrides from JSON and from YAML of two levels, and what they make of bodies. */
#include "../../demo/serve/overrides.h"
#include "../../demo/serve/request.h"
#include "../check.h"

static bool read_text(const char *text, overrides *out, request_error *error)
{
    char *exact = malloc(strlen(text) + 1);
    memcpy(exact, text, strlen(text));
    *out = (overrides){ 0 };
    *error = (request_error){ 0 };
    bool good = overrides_read(exact, strlen(text), 1000, out, error);
    CHECK_INT(good, !error->set);
    CHECK(good || out->count == 0);
    free(exact);
    return good;
}

/* The text of a file, as JSON again. */
static void reads(const char *text, const char *wanted)
{
    overrides o;
    request_error error;
    buffer json = { 0 };
    if (CHECK(read_text(text, &o, &error))) {
        overrides_json(&o, NULL, &json);
        CHECK_TEXT(json.data, wanted);
    } else {
        printf("  %s: %s\n", text, error.message);
    }
    buffer_free(&json);
    overrides_free(&o);
}

static void refused(const char *text, const char *words)
{
    overrides o;
    request_error error;
    if (!CHECK(!read_text(text, &o, &error)) || !CHECK(strstr(error.message, words) != NULL)) {
        printf("  %s: \"%s\"\n", text, error.message);
    }
    overrides_free(&o);
}

#define ROW(field, value, force, additive) \
    "\"" field "\":{\"override\":" value ",\"force\":" force ",\"additive\":" additive "}"

static void texts(void)
{
    reads("{}", "{}");
    reads("", "{}");
    reads("# nothing\n---\n\n", "{}");
    reads("{\"top_k\":{\"override\":5,\"force\":true},\"min_p\":{\"override\":null}}",
          "{" ROW("top_k", "5", "true", "false") "}");
    reads(overrides_safe_defaults, "{" ROW("temperature", "0.8", "false", "false") ","
                                       ROW("top_p", "0.9", "false", "false") "}");
    reads("stop:   # of groups\n"
          "  override: [\"a # b\", 'it''s', c d,]   # four\n"
          "  additive: true\n"
          "banned_strings:\n"
          "    override:\n"
          "    - \"x: \\\"y\\\"\"\n"
          "    - -z # w\n"
          "\n"
          "    force: True\r\n"
          "'response_prefix':\n"
          " override: Sure, here#1\n"
          "seed:\n  override:\n  force: false\n"
          "min_tokens: {}\n",
          "{" ROW("stop", "[\"a # b\",\"it's\",\"c d\"]", "false", "true") ","
              ROW("banned_strings", "[\"x: \\\"y\\\"\",\"-z\"]", "true", "false") ","
              ROW("response_prefix", "\"Sure, here#1\"", "false", "false") "}");
    refused("temperature: 0.8\n", "line 1");
    refused("temperature:\n\toverride: 1\n", "line 2: a tab");
    refused("  override: 1\n", "line 1: it is indented");
    refused("temperature:\n  override\n", "line 2");
    refused("temperature:\n  - 1\n", "line 2");
    refused("temperature:\n  override: 'x\n", "line 2: a text in quotes");
    refused("stop:\n  override: 'it's'\n", "line 2: a text in quotes");
    refused("temperature:\n  override: &a 1\n", "not understood");
    refused("temperature:\n  override: 11\n", "0 to 10");
    refused("temperature:\n  override: hot\n", "number");
    refused("top_k:\n  override: 5\n  force: 1\n", "force must be");
    refused("prompt:\n  override: x\n", "cannot be overridden");
    refused("top_k:\n  override: 5\n  additive: true\n", "no list");
    refused("top_k:\n  override: 5\ntop_k:\n  override: 6\n", "twice");
    refused("{\"top_k\":5}", "members");
    refused("{\"top_k\":", "JSON");
    refused("{\"tool_choice\":{\"override\":\"maybe\"}}", "must be");
}

static void applied(const char *text, const char *body, const char *wanted)
{
    overrides o;
    request_error error;
    buffer out = { 0 };
    CHECK(read_text(text, &o, &error));
    CHECK(overrides_apply(&o, body, strlen(body), &out));
    CHECK_TEXT(out.data, wanted);
    buffer_free(&out);
    overrides_free(&o);
}

static void bodies(void)
{
    static const char soft[] = "{\"repetition_penalty\":{\"override\":1.1}}";
    static const char hard[] = "{\"rep_pen\":{\"override\":1.1,\"force\":true}}";
    static const char more[] = "{\"stop\":{\"override\":[\"b\"],\"additive\":true}}";
    static const char ids[] = "{\"banned_tokens\":{\"override\":[5],\"additive\":true}}";
    applied(soft, "{\"prompt\":\"x\"}", "{\"prompt\":\"x\",\"repetition_penalty\":1.1}");
    applied(soft, "{\"rep_pen\":1.3}", "{\"rep_pen\":1.3}");
    applied(soft, "{\"rep_pen\":null,\"repetition_penalty\":\"\"}", "{\"repetition_penalty\":1.1}");
    applied(hard, "{\"repetition_penalty\":1.3,\"a\":1}", "{\"a\":1,\"rep_pen\":1.1}");
    applied(more, "{\"stopping_strings\":[\"a\"],\"stop\":[]}", "{\"stop\":[\"a\",\"b\"]}");
    applied(more, "{\"stop\":\"a\"}", "{\"stop\":[\"a\",\"b\"]}");
    applied(more, "{}", "{\"stop\":[\"b\"]}");
    applied(ids, "{\"custom_token_bans\":\" 1, 2\"}", "{\"banned_tokens\":[1,2,5]}");
    applied(ids, "{\"a\":1,\"a\":2}", "{\"a\":1,\"a\":2,\"banned_tokens\":[5]}"); /* request_read refuses it */
    applied(hard, "[1]", "[1]");
    applied(hard, "{\"a\":", "{\"a\":");
    applied("", "{\"a\" : 1}", "{\"a\" : 1}");
}

int main(void)
{
    texts();
    bodies();
    return check_done();
}

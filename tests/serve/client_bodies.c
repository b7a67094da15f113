/* client_bodies.c: bodies as the clients send them (tests/fuzz/seeds/request; the fields are those of their sources at
   the dates that the shared clients.md names), and what each must become. Defaults that mean "off" must stay off, names
   that come several times must agree, and nothing that a client always sends may be refused. */
#include "../../demo/serve/overrides.h"
#include "../../demo/serve/request.h"
#include "../../demo/serve/tools_text.h"
#include "../check.h"

#include <math.h>

static request read_client(const char *name, request_kind kind)
{
    char path[200];
    size_t bytes;
    request r = { 0 };
    request_error error = { 0 };
    request_limits limits = { .vocab = 1000, .preset = EXL2_PRESET_MODEL };
    snprintf(path, sizeof path, "tests/fuzz/seeds/request/%s", name);
    char *body = check_read(path, &bytes);
    if (!CHECK(request_read(&r, kind, body, bytes, &limits, &error))) {
        printf("  %s: %s: %s\n", name, error.param, error.message);
        exit(1);
    }
    free(body);
    CHECK_INT(r.sampling.desc.preset, EXL2_PRESET_MODEL);
    return r;
}

static void sillytavern(void)
{
    request r = read_client("sillytavern_completion.json", REQUEST_COMPLETION);
    const exl2_sampler_desc *d = &r.sampling.desc;
    CHECK(r.prompt_count == 1 && r.n == 2 && r.stream && r.max_tokens == 250 && r.min_tokens == 0);
    CHECK(r.logprobs && r.top_logprobs == 10 && !r.no_bos && !r.no_end && !r.model);
    CHECK(!r.has_grammar && r.guidance == 0 && r.ban_count == 0 && d->ban_count == 0);
    CHECK(r.stop_count == 3 && strcmp(r.stops[2], "<|im_end|>") == 0);
    CHECK(d->temperature == 0.9f && d->temperature_last && !d->greedy && d->seed == 0);
    CHECK(d->dynamic_min == 0.5f && d->dynamic_max == 1.5f && d->dynamic_exponent == 1);
    CHECK(d->top_k == EXL2_OFF && d->top_p == EXL2_OFF && d->min_p == 0.05f && d->top_a == EXL2_OFF);
    CHECK(d->tail_free == EXL2_OFF && d->typical == EXL2_OFF && d->skew == EXL2_OFF && d->smoothing == EXL2_OFF);
    CHECK(d->repeat_penalty == 1.1f && d->penalty_range == 1024 && d->penalty_decay == EXL2_OFF);
    CHECK(d->frequency_penalty == EXL2_OFF && d->presence_penalty == EXL2_OFF);
    CHECK(d->xtc_probability == EXL2_OFF && d->mirostat_tau == EXL2_OFF);
    CHECK(d->dry_multiplier == 0.8f && d->dry_base == 1.75f && d->dry_allowed == 2 && d->dry_range == -1);
    CHECK(d->dry_breaker_count == 4 && strcmp(d->dry_breakers[2], "\"") == 0);
    CHECK(d->bias_count == 2 && d->bias[0].add == -INFINITY && d->bias[1].add == 2.5f);
    CHECK_INT(r.warnings.bytes, 0);
    request_free(&r);
    r = read_client("sillytavern_chat.json", REQUEST_CHAT);
    CHECK(r.message_count == 6 && r.n == 2 && r.logprobs && r.top_logprobs == 5 && r.stop_count == 0);
    CHECK_TEXT(r.messages[2].name, "Bob");
    CHECK_TEXT(r.messages[5].role, "system");
    CHECK(r.tool_count == 1 && r.tool_choice == REQUEST_TOOL_AUTO);
    request_free(&r);
}

static void textgen(void)
{
    request r = read_client("textgen_completion.json", REQUEST_COMPLETION);
    const exl2_sampler_desc *d = &r.sampling.desc;
    CHECK(r.echo && r.logprobs && r.top_logprobs == 3 && r.max_tokens == 512 && !r.stream && !r.has_grammar);
    CHECK(d->dynamic_max == 0 && d->dry_multiplier == EXL2_OFF && d->dry_breaker_count == 4 && d->temperature == 0);
    CHECK(d->repeat_penalty == EXL2_OFF && d->penalty_range == 1024);
    CHECK_INT(r.warnings.bytes, 0);
    request_free(&r);
    r = read_client("textgen_chat.json", REQUEST_CHAT);
    CHECK(r.begun_reply && r.tool_count == 0 && r.sampling.desc.greedy && r.sampling.desc.seed == 8
          && r.max_tokens == 0);
    CHECK_TEXT(r.variables, "{\"reasoning_effort\":\"medium\",\"enable_thinking\":true,\"preserve_thinking\":false}");
    request_free(&r);
}

static void openwebui(void)
{
    request r = read_client("openwebui_chat.json", REQUEST_CHAT);
    CHECK(r.stream && r.include_usage && r.max_tokens == 1024 && r.message_count == 4 && !r.has_grammar);
    CHECK_TEXT(r.messages[1].text, "What is the time?");
    CHECK_TEXT(r.messages[2].text, "");
    CHECK(strstr(r.messages[2].tool_calls, "\"arguments\":{\"zone\": \"UTC\"}") != NULL);
    CHECK_TEXT(r.messages[3].tool_call_id, "call_0123456789abcdef01234567");
    CHECK(r.sampling.desc.presence_penalty == -0.1f && r.sampling.desc.seed == 43);
    CHECK_TEXT(r.variables, "{\"reasoning_effort\":\"low\"}");
    request_free(&r);
    r = read_client("openwebui_continue_chat.json", REQUEST_CHAT);
    CHECK(r.begun_reply && !r.close_reply);
    request_free(&r);
    r = read_client("openwebui_responses.json", REQUEST_RESPONSES);
    CHECK(r.message_count == 6 && r.max_tokens == 200 && r.stream && r.tool_count == 1);
    CHECK_TEXT(r.messages[4].text, "It is noon.");
    request_free(&r);
}

static void libraries(void)
{
    request r = read_client("lollms_chat.json", REQUEST_CHAT);
    CHECK(r.sampling.desc.frequency_penalty == 1.1f && r.tool_count == 1);
    CHECK_TEXT(r.variables, "{\"enable_thinking\":false,\"reasoning_effort\":\"low\"}");
    request_free(&r);
    r = read_client("langchain_chat.json", REQUEST_CHAT);
    CHECK(r.sampling.desc.greedy && r.max_tokens == 64 && r.has_grammar && r.strict && !r.whole_text
          && !r.parallel_tools);
    CHECK(strncmp(r.source, "{\"type\":\"object\",\"properties\":", 29) == 0);
    CHECK_TEXT(r.messages[0].role, "system");
    request_free(&r);
    r = read_client("langchain_completion.json", REQUEST_COMPLETION);
    CHECK(r.prompt_count == 1 && r.max_tokens == 256 && r.sampling.desc.bias_count == 0 && r.sampling.desc.seed == 0);
    request_free(&r);
    r = read_client("continue_chat.json", REQUEST_CHAT);
    CHECK(!r.parallel_tools && r.message_count == 4 && r.tool_count == 1);
    request_free(&r);
    r = read_client("continue_completion.json", REQUEST_COMPLETION);
    CHECK(r.stop_count == 9 && strcmp(r.stops[5], "\n\n") == 0 && r.sampling.desc.temperature == 0.01f);
    request_free(&r);
    r = read_client("tools_chat.json", REQUEST_CHAT);
    tools t = { 0 };
    CHECK(tools_open(&t, r.tools) && t.count == 2 && t.tool[0].strict && !t.tool[1].parameters);
    CHECK_INT(r.tool_name_count, 1);
    CHECK_TEXT(r.tool_names[0], "f");
    CHECK_TEXT(r.prefix, "<think>");
    tools_close(&t);
    request_free(&r);
}

int main(void)
{
    sillytavern();
    textgen();
    openwebui();
    libraries();
    return check_done();
}

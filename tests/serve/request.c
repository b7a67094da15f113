/* request.c: requests of completions and chats: what each field becomes under each of its names, values that count as
   absent, wrong values of every field, limits, and bodies that are no JSON. */
#include "../../demo/serve/request.h"
#include "../../demo/serve/request_names.h"
#include "../check.h"

#include <math.h>

#define VOCAB 1000u

static const request_limits limits = { .vocab = VOCAB, .preset = EXL2_PRESET_NEUTRAL };

/* Reads a body, and checks that an error is a whole one. */
static bool read_kind(request *r, request_kind kind, const char *body, size_t bytes, request_error *error)
{
    char *exact = malloc(bytes ? bytes : 1); /* so that ASan reports a read past the end */
    memcpy(exact, body, bytes);
    *r = (request){ 0 };
    *error = (request_error){ 0 };
    bool good = request_read(r, kind, exact, bytes, &limits, error);
    free(exact);
    CHECK_INT(good, !error->set);
    CHECK(good || (error->message[0] && error->code));
    return good;
}

/* A completion with the given members ("\"a\":1"), which must be good. The caller frees it. */
static request good_completion(const char *members)
{
    request r;
    request_error error;
    buffer body = { 0 };
    buffer_format(&body, "{\"prompt\":\"x\"%s%s}", *members ? "," : "", members);
    if (!CHECK(read_kind(&r, REQUEST_COMPLETION, body.data, body.bytes, &error))) {
        printf("  %s: %s\n", body.data, error.message);
    }
    buffer_free(&body);
    return r;
}

static request good_chat(const char *members)
{
    request r;
    request_error error;
    buffer body = { 0 };
    buffer_format(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]%s%s}", *members ? "," : "", members);
    if (!CHECK(read_kind(&r, REQUEST_CHAT, body.data, body.bytes, &error))) {
        printf("  %s: %s\n", body.data, error.message);
    }
    buffer_free(&body);
    return r;
}

/* A body that must be refused, with this param ("" = none) and these words in the message. */
static void refused(request_kind kind, const char *body, const char *param, const char *words)
{
    request r;
    request_error error;
    if (CHECK(!read_kind(&r, kind, body, strlen(body), &error))) {
        CHECK_TEXT(error.param, param);
        if (!CHECK(strstr(error.message, words) != NULL)) {
            printf("  \"%s\" in \"%s\"\n", words, error.message);
        }
    } else {
        printf("  %s\n", body);
    }
    request_free(&r);
}

/* ---- every field with wrong values ---- */

static const char *const fields_known[] = {
    "prompt", "messages", "model", "stream", "stream_options", "response_format", "n", "best_of", "echo", "suffix",
    "user", "seed", "sampler_seed", "max_tokens", "max_completion_tokens", "max_new_tokens", "max_output_tokens",
    "max_length", "n_predict", "num_predict", "min_tokens", "min_length", "stop", "stop_sequence",
    "stopping_strings", "banned_strings", "banned_tokens", "custom_token_bans", "allowed_tokens",
    "allowed_token_ids", "token_healing", "temperature", "temperature_last", "smoothing_factor", "smoothing_curve",
    "top_k", "top_p", "top_a", "min_p", "tfs", "typical", "typical_p", "skew", "xtc_probability", "xtc_threshold",
    "frequency_penalty", "presence_penalty", "repetition_penalty", "rep_pen", "repeat_penalty", "penalty_range",
    "repetition_range", "repetition_penalty_range", "rep_pen_range", "repeat_last_n", "repetition_decay",
    "dry_multiplier", "dry_base", "dry_allowed_length", "dry_range", "dry_penalty_last_n", "dry_sequence_breakers",
    "mirostat_mode", "mirostat", "mirostat_tau", "mirostat_eta", "min_temp", "dynatemp_low", "max_temp",
    "dynatemp_high", "temp_exponent", "dynatemp_exponent", "dynamic_temperature", "logit_bias", "ban_eos_token",
    "ignore_eos", "add_bos_token", "skip_special_tokens", "json_schema", "regex_pattern", "grammar_string",
    "logprobs", "n_probs", "top_logprobs", "negative_prompt", "cfg_scale", "guidance_scale", "speculative_ngram",
    "adaptive_target", "adaptive_decay", "loop_detect_window", "add_generation_prompt", "response_prefix",
    "continue_final_message", "continue_", "template_vars", "chat_template_kwargs", "tools", "functions",
    "tool_choice", "function_call", "parallel_tool_calls", "prompt_template", "reasoning_effort", "enable_thinking",
    "verbosity", "reasoning", "reasoning_budget_tokens", "reasoning_budget", "thinking_budget",
    "thinking_token_budget", "reasoning_budget_message", "preserve_thinking", "nsigma", "top_n_sigma", "min_keep",
};

static const char *const wrong[] = {
    "null", "true", "false", "0", "-1", "1e999", "-1e308", "0.5", "1e-320", "99999999999999999999", "\"\"", "\"text\"",
    "\"\\u0000\"", "[]", "[[[{\"a\":[null]}]]]", "{}", "{\"a\":{\"b\":[1]}}", "[1,\"a\",null,{},-1,1.5,1e30]",
    "{\"type\":5,\"schema\":7,\"include_usage\":\"x\",\"effort\":1,\"function\":[],\"name\":{}}",
};

/* Each becomes a value or an error that names the field. */
static void wrong_values(void)
{
    for (size_t i = 0; i < sizeof fields_known / sizeof fields_known[0]; i++) {
        for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
            for (int kind = 0; kind < 2; kind++) {
                const char *needs = kind ? "messages" : "prompt", *field = fields_known[i];
                bool own = strcmp(field, needs) == 0;
                request r;
                request_error error;
                buffer body = { 0 };
                buffer_format(&body, "{%s\"%s\":%s}", own ? ""
                              : kind ? "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]," : "\"prompt\":\"x\",",
                              field, wrong[k]);
                if (!read_kind(&r, (request_kind)kind, body.data, body.bytes, &error)) {
                    if (!CHECK(strncmp(error.param, field, strlen(field)) == 0)) {
                        printf("  %s: param \"%s\", %s\n", body.data, error.param, error.message);
                    }
                }
                request_free(&r);
                buffer_free(&body);
            }
        }
    }
}

/* What counts as absent leaves everything as it is without the field. */
static void absent_values(void)
{
    static const char *const empty[] = { "null", "\"\"", "[]", "{}" };
    request plain = good_completion("");
    for (size_t i = 2; i < sizeof fields_known / sizeof fields_known[0]; i++) {
        for (size_t k = 0; k < 4; k++) {
            char members[100];
            snprintf(members, sizeof members, "\"%s\":%s", fields_known[i], empty[k]);
            request r = good_completion(members);
            CHECK(memcmp(&r.sampling.desc, &plain.sampling.desc, sizeof plain.sampling.desc) == 0);
            CHECK(r.max_tokens == 0 && r.n == 1 && !r.stream && !r.has_grammar && r.stop_count == 0 && !r.logprobs
                  && !r.no_end && r.warnings.bytes == 0);
            request_free(&r);
            request chat = good_chat(members);
            CHECK(!chat.tools && !chat.prefix && !chat.begun_reply && chat.reasoning_budget == -1
                  && chat.tool_choice == REQUEST_TOOL_AUTO);
            CHECK_TEXT(chat.variables, "{}");
            request_free(&chat);
        }
    }
    request_free(&plain);
}

/* ---- what fields become ---- */

typedef struct number_case {
    const char *member; /* as JSON */
    size_t at;
    float wanted;
    bool is_int;
} number_case;

#define FLOAT(member) offsetof(exl2_sampler_desc, member)

static const number_case numbers[] = {
    { "\"temperature\":0.7", FLOAT(temperature), 0.7f, false },
    { "\"top_p\":0.9", FLOAT(top_p), 0.9f, false },
    { "\"top_p\":1", FLOAT(top_p), EXL2_OFF, false },
    { "\"top_p\":1e-50", FLOAT(top_p), 1.17549435e-38f, false },
    { "\"top_k\":40", FLOAT(top_k), 40, true },
    { "\"top_k\":0", FLOAT(top_k), EXL2_OFF, true },
    { "\"top_k\":-1", FLOAT(top_k), EXL2_OFF, true },
    { "\"min_p\":0.05", FLOAT(min_p), 0.05f, false },
    { "\"min_p\":0", FLOAT(min_p), EXL2_OFF, false },
    { "\"top_a\":0.2", FLOAT(top_a), 0.2f, false },
    { "\"tfs\":0.9", FLOAT(tail_free), 0.9f, false },
    { "\"tfs\":1", FLOAT(tail_free), EXL2_OFF, false },
    { "\"typical\":0.9", FLOAT(typical), 0.9f, false },
    { "\"typical_p\":0.9", FLOAT(typical), 0.9f, false },
    { "\"typical_p\":1.0", FLOAT(typical), EXL2_OFF, false },
    { "\"smoothing_factor\":0.3", FLOAT(smoothing), 0.3f, false },
    { "\"skew\":-0.5", FLOAT(skew), -0.5f, false },
    { "\"skew\":0", FLOAT(skew), EXL2_OFF, false },
    { "\"repetition_penalty\":1.1", FLOAT(repeat_penalty), 1.1f, false },
    { "\"rep_pen\":1.1", FLOAT(repeat_penalty), 1.1f, false },
    { "\"repeat_penalty\":1.1", FLOAT(repeat_penalty), 1.1f, false },
    { "\"repetition_penalty\":1", FLOAT(repeat_penalty), EXL2_OFF, false },
    { "\"frequency_penalty\":-2", FLOAT(frequency_penalty), -2, false },
    { "\"frequency_penalty\":0", FLOAT(frequency_penalty), EXL2_OFF, false },
    { "\"presence_penalty\":2", FLOAT(presence_penalty), 2, false },
    { "\"penalty_range\":100", FLOAT(penalty_range), 100, true },
    { "\"repetition_range\":100", FLOAT(penalty_range), 100, true },
    { "\"repetition_penalty_range\":100", FLOAT(penalty_range), 100, true },
    { "\"rep_pen_range\":0", FLOAT(penalty_range), -1, true },
    { "\"repeat_last_n\":-1", FLOAT(penalty_range), -1, true },
    { "\"repetition_decay\":0", FLOAT(penalty_decay), EXL2_OFF, true },
    { "\"repetition_decay\":64", FLOAT(penalty_decay), 64, true },
    { "\"dry_multiplier\":0.8", FLOAT(dry_multiplier), 0.8f, false },
    { "\"dry_multiplier\":0", FLOAT(dry_multiplier), EXL2_OFF, false },
    { "\"dry_base\":2", FLOAT(dry_base), 2, false },
    { "\"dry_base\":0", FLOAT(dry_base), 0, false }, /* the default */
    { "\"dry_allowed_length\":3", FLOAT(dry_allowed), 3, true },
    { "\"dry_penalty_last_n\":0", FLOAT(dry_range), -1, true },
    { "\"dry_range\":500", FLOAT(dry_range), 500, true },
    { "\"xtc_probability\":0.5", FLOAT(xtc_probability), 0.5f, false },
    { "\"xtc_probability\":0", FLOAT(xtc_probability), EXL2_OFF, false },
    { "\"xtc_threshold\":0.2", FLOAT(xtc_threshold), 0.2f, false },
    { "\"mirostat_mode\":2", FLOAT(mirostat_tau), 1.5f, false },
    { "\"mirostat_mode\":2", FLOAT(mirostat_eta), 0.3f, false },
    { "\"mirostat\":2,\"mirostat_tau\":5", FLOAT(mirostat_tau), 5, false },
    { "\"mirostat_mode\":0,\"mirostat_tau\":5", FLOAT(mirostat_tau), EXL2_OFF, false },
    { "\"mirostat_tau\":5", FLOAT(mirostat_tau), 0, false },
    { "\"adaptive_target\":0.4", FLOAT(adaptive_target), 0.4f, false },
    { "\"adaptive_target\":-0.01", FLOAT(adaptive_target), EXL2_OFF, false },
    { "\"adaptive_target\":1", FLOAT(adaptive_target), EXL2_OFF, false },
    { "\"adaptive_target\":0.4,\"adaptive_decay\":0.5", FLOAT(adaptive_decay), 0.5f, false },
    { "\"adaptive_target\":0.4,\"adaptive_decay\":1", FLOAT(adaptive_decay), 0.99f, false },
    { "\"min_temp\":0.5,\"max_temp\":1.5", FLOAT(dynamic_min), 0.5f, false },
    { "\"dynatemp_low\":0.5,\"dynatemp_high\":1.5", FLOAT(dynamic_max), 1.5f, false },
    { "\"dynatemp_low\":0,\"dynatemp_high\":1.5", FLOAT(dynamic_min), EXL2_OFF, false },
    { "\"dynatemp_low\":0.5,\"dynatemp_high\":1.5,\"dynatemp_exponent\":2", FLOAT(dynamic_exponent), 2, false },
    { "\"dynamic_temperature\":false,\"dynatemp_low\":0.5,\"dynatemp_high\":1.5", FLOAT(dynamic_max), 0, false },
    { "\"max_temp\":1,\"min_temp\":1", FLOAT(dynamic_max), 0, false },
};

static void sampler_fields(void)
{
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        request r = good_completion(numbers[i].member);
        const char *at = (const char *)&r.sampling.desc + numbers[i].at;
        float number;
        int32_t whole;
        memcpy(&number, at, sizeof number);
        memcpy(&whole, at, sizeof whole);
        float got = numbers[i].is_int ? (float)whole : number;
        if (!CHECK(got == numbers[i].wanted)) {
            printf("  %s: %g, wanted %g\n", numbers[i].member, (double)got, (double)numbers[i].wanted);
        }
        CHECK_INT(r.sampling.desc.preset, EXL2_PRESET_NEUTRAL);
        request_free(&r);
    }
    request r = good_completion("\"temperature\":0,\"temperature_last\":true");
    CHECK(r.sampling.desc.greedy && r.sampling.desc.temperature_last);
    request_free(&r);
    r = good_completion("\"temperature\":1e-60");
    CHECK(!r.sampling.desc.greedy && r.sampling.desc.temperature > 0);
    request_free(&r);
}

static void check_seed(const char *member, uint64_t wanted)
{
    request r = good_completion(member);
    CHECK(r.sampling.desc.seed == wanted);
    request_free(&r);
}

static void lists(void)
{
    check_seed("\"seed\":-1", 0);
    check_seed("\"seed\":0", 1);
    check_seed("\"sampler_seed\":41", 42);
    check_seed("\"seed\":9007199254740993", 9007199254740994u);
    check_seed("\"seed\":18446744073709551615", UINT64_MAX);
    request r = good_completion("\"logit_bias\":{\"5\":-100,\"6\":1.5,\"7\":1e300,\"5000\":1}");
    CHECK_INT(r.sampling.desc.bias_count, 3);
    CHECK(r.sampling.desc.bias[0].token == 5 && r.sampling.desc.bias[0].add == -INFINITY);
    CHECK(r.sampling.desc.bias[1].token == 6 && r.sampling.desc.bias[1].add == 1.5f);
    CHECK(isfinite(r.sampling.desc.bias[2].add));
    request_free(&r);
    r = good_completion("\"custom_token_bans\":\" 1, 2 ,3\",\"allowed_token_ids\":[4,5]");
    CHECK(r.sampling.desc.ban_count == 3 && r.sampling.desc.ban[2] == 3);
    CHECK(r.sampling.desc.allow_count == 2 && r.sampling.desc.allow[0] == 4);
    request_free(&r);
    static const char *const breakers[] = { "[\"\\n\",\":\",\"a b\"]", "\"[\\\"\\\\n\\\", \\\":\\\", \\\"a b\\\"]\"",
                                            "\"\\\"\\\\n\\\", \\\":\\\", \\\"a b\\\"\"", "\"\\n,:,a b\"" };
    for (size_t i = 0; i < 4; i++) {
        char members[200];
        snprintf(members, sizeof members, "\"dry_sequence_breakers\":%s", breakers[i]);
        r = good_completion(members);
        CHECK_INT(r.sampling.desc.dry_breaker_count, 3);
        if (r.sampling.desc.dry_breaker_count == 3) {
            CHECK_TEXT(r.sampling.desc.dry_breakers[0], "\n");
            CHECK_TEXT(r.sampling.desc.dry_breakers[1], ":");
            CHECK_TEXT(r.sampling.desc.dry_breakers[2], "a b");
        }
        request_free(&r);
    }
    r = good_completion("\"stop\":[\"a\",\"\",null,17],\"stopping_strings\":[\"b\"],\"banned_strings\":\"no\"");
    CHECK(r.stop_count == 1 && r.stop_token_count == 1 && r.stop_tokens[0] == 17 && r.ban_count == 1);
    request_free(&r);
    r = good_completion("\"stop\":[],\"stopping_strings\":[\"b\"]"); /* the first name that holds something */
    CHECK(r.stop_count == 1);
    request_free(&r);
}

static void limits_and_logprobs(void)
{
    static const char *const names[] = { "max_tokens", "max_completion_tokens", "max_new_tokens", "max_output_tokens",
                                         "max_length", "n_predict", "num_predict" };
    for (size_t i = 0; i < 7; i++) {
        char members[100];
        snprintf(members, sizeof members, "\"%s\":7,\"min_length\":3,\"n\":16", names[i]);
        request r = good_completion(members);
        CHECK(r.max_tokens == 7 && r.min_tokens == 3 && r.n == 16);
        request_free(&r);
    }
    request r = good_completion("\"max_tokens\":-5");
    CHECK(r.max_tokens == 0 && !r.no_new_tokens);
    request_free(&r);
    r = good_completion("\"max_tokens\":1000000000000");
    CHECK(r.max_tokens == UINT32_MAX);
    request_free(&r);
    r = good_completion("\"max_tokens\":0,\"echo\":true,\"logprobs\":true");
    CHECK(r.no_new_tokens && r.echo && r.logprobs && r.top_logprobs == 1);
    request_free(&r);
    r = good_completion("\"logprobs\":10,\"ignore_eos\":true,\"add_bos_token\":false,\"skip_special_tokens\":false");
    CHECK(r.logprobs && r.top_logprobs == 10 && r.no_end && r.no_bos && r.show_markers);
    request_free(&r);
    r = good_chat("\"logprobs\":true,\"top_logprobs\":20,\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    CHECK(r.logprobs && r.top_logprobs == 20 && r.stream && r.include_usage);
    request_free(&r);
    r = good_chat("\"logprobs\":false,\"top_logprobs\":5");
    CHECK(!r.logprobs);
    request_free(&r);
    r = good_completion(
        "\"best_of\":4,\"nsigma\":1.5,\"mirostat_mode\":1,\"smoothing_curve\":1,\"guidance_scale\":1.5");
    CHECK_TEXT(r.warnings.data, "nsigma, best_of, mirostat_mode");
    CHECK(r.guidance == 1.5);
    request_free(&r);
}

static void prompts(void)
{
    request r;
    request_error error;
    const char *body = "{\"prompt\":[\"a\\u0000b\",[1,2,3],\"\"]}";
    CHECK(read_kind(&r, REQUEST_COMPLETION, body, strlen(body), &error));
    CHECK(r.prompt_count == 3 && r.prompts[0].bytes == 3 && r.prompts[1].token_count == 3 && r.prompts[2].bytes == 0);
    request_free(&r);
    body = "{\"prompt\":[1,2,999]}";
    CHECK(read_kind(&r, REQUEST_COMPLETION, body, strlen(body), &error));
    CHECK(r.prompt_count == 1 && r.prompts[0].tokens[2] == 999);
    request_free(&r);
    refused(REQUEST_COMPLETION, "{}", "prompt", "missing");
    refused(REQUEST_COMPLETION, "{\"prompt\":[]}", "prompt", "empty");
    refused(REQUEST_COMPLETION, "{\"prompt\":[1000]}", "prompt", "no token id");
    refused(REQUEST_COMPLETION, "{\"prompt\":[1,\"a\"]}", "prompt", "no token id");
    refused(REQUEST_COMPLETION, "{\"prompt\":{\"a\":1}}", "prompt", "must be");
    buffer many = { 0 };
    buffer_string(&many, "{\"prompt\":[\"x\"");
    for (int i = 0; i < 64; i++) {
        buffer_string(&many, ",\"x\"");
    }
    buffer_string(&many, "]}");
    refused(REQUEST_COMPLETION, many.data, "prompt", "more than 64");
    buffer_free(&many);
}

static void grammars(void)
{
    request r = good_chat("\"response_format\":{\"type\":\"json_object\"}");
    CHECK(r.has_grammar && !r.whole_text && r.grammar == EXL2_GRAMMAR_JSON_SCHEMA);
    CHECK(strncmp(r.source, "{\"type\":\"object\"}", r.source_bytes) == 0);
    request_free(&r);
    static const char *const schemas[] = {
        "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
        "\"strict\":true,\"schema\":{\"type\":1}}}",
        "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"type\":1}}",
        "\"response_format\":{\"type\":\"json_schema\",\"schema\":{\"type\":1}}",
        "\"json_schema\":{\"type\":1}",
        "\"json_schema\":\"{\\\"type\\\":1}\"",
    };
    for (size_t i = 0; i < 5; i++) {
        r = good_chat(schemas[i]);
        CHECK(r.has_grammar && r.strict == (i == 0));
        CHECK(r.source_bytes == 10 && memcmp(r.source, "{\"type\":1}", 10) == 0);
        request_free(&r);
    }
    r = good_completion("\"regex_pattern\":\"a+\"");
    CHECK(r.whole_text && r.grammar == EXL2_GRAMMAR_REGEX);
    request_free(&r);
    r = good_completion(
        "\"grammar_string\":\"root ::= \\\"a\\\"\",\"response_format\":{\"type\":\"text\"},\"json_schema\":{}");
    CHECK(r.whole_text && r.grammar == EXL2_GRAMMAR_EBNF);
    request_free(&r);
    refused(REQUEST_COMPLETION, "{\"prompt\":\"x\",\"regex_pattern\":\"a\",\"json_schema\":{\"a\":1}}", "regex_pattern",
            "one of");
    refused(REQUEST_COMPLETION, "{\"prompt\":\"x\",\"response_format\":{\"type\":\"xml\"}}", "response_format",
            "'xml'");
    refused(REQUEST_COMPLETION, "{\"prompt\":\"x\",\"response_format\":{\"type\":5}}", "response_format.type", "text");
    refused(REQUEST_COMPLETION, "{\"prompt\":\"x\",\"response_format\":{\"type\":\"json_schema\"}}", "response_format",
            "missing");
    refused(REQUEST_COMPLETION, "{\"prompt\":\"x\",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{}}}",
            "response_format", "missing");
}

static void refusals(void)
{
    refused(REQUEST_COMPLETION, "{\"prompt\":\"x\",\"dynatemp_low\":1.5,\"max_temp\":1.4}", "dynatemp_low",
            "larger");
    refused(REQUEST_COMPLETION, "{\"prompt\":\"x\",\"dry_base\":0.5}", "dry_base", "must be");
    refused(REQUEST_COMPLETION, "{\"prompt\":\"x\",\"frequency_penalty\":2.1}", "frequency_penalty", "-2 to 2");
    refused(REQUEST_COMPLETION, "{\"prompt\":\"x\",\"rep_pen\":0}", "rep_pen", "rep_pen must be");
    refused(REQUEST_COMPLETION, "{\"prompt\":\"x\",\"temperature\":10.5}", "temperature", "0 to 10");
    refused(REQUEST_COMPLETION, "{\"prompt\":\"x\",\"n\":17}", "n", "1 to 16");
    refused(REQUEST_COMPLETION, "{\"prompt\":\"x\",\"n\":1.5}", "n", "whole");
    refused(REQUEST_COMPLETION, "{\"prompt\":\"x\",\"logprobs\":21}", "logprobs", "0 to 20");
    refused(REQUEST_COMPLETION, "{\"prompt\":\"x\",\"min_tokens\":8,\"max_tokens\":7}", "min_tokens", "larger");
    refused(REQUEST_COMPLETION, "{\"prompt\":\"x\",\"stop\":[\"a\",1000]}", "stop", "text");
    refused(REQUEST_COMPLETION, "{\"prompt\":\"x\",\"stop\":[\"a\\u0000b\"]}", "stop", "text");
    refused(REQUEST_COMPLETION, "{\"prompt\":\"x\",\"logit_bias\":{\"a\":1}}", "logit_bias", "ids");
    refused(REQUEST_COMPLETION, "{\"prompt\":\"x\",\"custom_token_bans\":\"1;2\"}", "custom_token_bans", "id");
    refused(REQUEST_COMPLETION, "{\"prompt\":\"x\",\"dry_sequence_breakers\":[1]}", "dry_sequence_breakers", "texts");
    buffer stops = { 0 };
    buffer_string(&stops, "{\"prompt\":\"x\",\"stop\":[\"s\"");
    for (int i = 0; i < 128; i++) {
        buffer_string(&stops, ",\"s\"");
    }
    buffer_string(&stops, "]}");
    refused(REQUEST_COMPLETION, stops.data, "stop", "128");
    buffer_free(&stops);
}

/* ---- bodies ---- */

static void refused_json(const char *body, size_t bytes, const char *words)
{
    request r;
    request_error error;
    if (CHECK(!read_kind(&r, REQUEST_COMPLETION, body, bytes, &error))) {
        CHECK_TEXT(error.code, "invalid_json");
        CHECK_TEXT(error.param, "");
        if (!CHECK(strstr(error.message, words) != NULL)) {
            printf("  %s\n", error.message);
        }
    }
    request_free(&r);
}

static void nested(size_t levels, bool good)
{
    buffer body = { 0 };
    request r;
    request_error error;
    buffer_string(&body, "{\"prompt\":\"x\",\"user\":");
    for (size_t i = 1; i < levels; i++) {
        buffer_string(&body, "[");
    }
    for (size_t i = 1; i < levels; i++) {
        buffer_string(&body, "]");
    }
    buffer_string(&body, "}");
    if (good) {
        CHECK(read_kind(&r, REQUEST_COMPLETION, body.data, body.bytes, &error));
        request_free(&r);
    } else {
        refused_json(body.data, body.bytes, "too deeply");
    }
    buffer_free(&body);
}

static void bodies(void)
{
    static const char *const bad[] = {
        "", " ", "[]", "\"x\"", "{", "{\"prompt\"}", "{\"prompt\":}", "{\"prompt\":\"x\",}", "{\"prompt\":\"x\"} x",
        "{\"prompt\":\"x\",\"n\":01}", "{\"prompt\":\"x\",\"n\":+1}", "{\"prompt\":\"x\",\"n\":.5}",
        "{\"prompt\":\"x\",\"n\":1.}", "{'prompt':'x'}", "{\"prompt\":\"\\x\"}", "{\"prompt\":\"\t\"}",
        "{\"prompt\":NaN}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        refused_json(bad[i], strlen(bad[i]), "JSON");
    }
    static const char twice[] = "{\"prompt\":\"x\",\"user\":{\"a\":1,\"b\":2,\"\\u0061\":3}}";
    refused_json(twice, sizeof twice - 1, "'a' comes twice");
    static const char latin[] = "{\"prompt\":\"\xE9t\xE9\"}", cut[] = "{\"prompt\":\"\xE2\x82\"}";
    refused_json(latin, sizeof latin - 1, "UTF-8");
    refused_json(cut, sizeof cut - 1, "UTF-8");
    nested(64, true);
    nested(65, false);
    buffer many = { 0 };
    buffer_string(&many, "{\"prompt\":\"x\",\"user\":[0");
    for (uint32_t i = 0; i < FIELDS_VALUES_MAX; i++) {
        buffer_string(&many, ",0");
    }
    buffer_string(&many, "]}");
    refused_json(many.data, many.bytes, "too many values");
    buffer_free(&many);
    request r = good_completion("\"prompt_lookup_num_tokens\":{\"x\":[1]},\"user\":{\"id\":1},\"api_type\":5");
    request_free(&r);
}

/* A name of one list is in no other list, so that an override of a field is one of all its names. */
static void names(void)
{
    static const char *const all[] = NAMES_ALL;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        for (const char *at = all[i]; *at;) {
            char name[64];
            size_t bytes = strcspn(at, "|");
            snprintf(name, sizeof name, "%.*s", (int)bytes, at);
            CHECK_TEXT(fields_names(name), all[i]);
            at += bytes + (at[bytes] == '|');
        }
    }
    CHECK_TEXT(fields_names("top_p"), "top_p");
}

int main(void)
{
    names();
    wrong_values();
    absent_values();
    sampler_fields();
    lists();
    limits_and_logprobs();
    prompts();
    grammars();
    refusals();
    bodies();
    return check_done();
}

/* request.c: fuzz target: any bytes as the body of each kind of request, as a text of overrides, and as a reply that is
   searched for calls and reasoning.
   By hand, with a build folder: clang -g -O1 -fsanitize=fuzzer,address,undefined -I. tests/fuzz/request.c
   demo/common/json_in.c demo/serve/{buffer,overrides*,reasoning,request*,sampling_fields,tools*}.c
   build/tests/libengine_tests.a -lm -ldl -lpthread. The suite runs it with run_seeds.c. */
#include "../../demo/serve/overrides.h"
#include "../../demo/serve/reasoning.h"
#include "../../demo/serve/request.h"
#include "../../demo/serve/tools_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds) {
        abort();
    }
}

static void check_request(const request *r)
{
    const exl2_sampler_desc *d = &r->sampling.desc;
    require(r->n >= 1 && r->n <= REQUEST_CHOICES_MAX && r->stop_count + r->stop_token_count <= REQUEST_STOPS_MAX);
    require(r->kind == REQUEST_COMPLETION ? r->prompt_count > 0 : r->message_count > 0);
    require(isfinite(d->temperature) && (d->temperature >= 0 || d->greedy) && isfinite(d->top_p));
    require(d->bias_count == 0 || d->bias != NULL);
    require(!r->has_grammar || r->source != NULL);
    for (size_t i = 0; i < r->message_count; i++) {
        require(r->messages[i].role != NULL);
    }
    for (uint32_t i = 0; i < r->stop_count; i++) {
        require(r->stops[i][0] != 0);
    }
}

/* The tools of a request, all that is made of them, and `reply` as an answer to it. */
static void check_tools(const request *r, const char *reply, size_t bytes)
{
    tools t = { 0 };
    require(tools_open(&t, r->tools));
    tools_keep(&t, r->tool_names, r->tool_name_count);
    for (tools_format format = TOOLS_HERMES; format <= TOOLS_MISTRAL; format++) {
        const char *error;
        buffer schema = { 0 }, warnings = { 0 };
        tools_parsed parsed = { 0 };
        tools_text text = { 0 };
        tools_stream stream = { 0 };
        tools_piece piece;
        require(tools_schema(&t, format, 8, &schema));
        json_value *tree = json_read(schema.data, schema.bytes, &error);
        require(tree != NULL);
        json_free(tree);
        for (size_t place = 0; place < 8; place++) {
            char message[100];
            size_t before = schema.bytes;
            snprintf(message, sizeof message, "schema line 1, column %zu, #: no",
                     1 + bytes * 37 * place % schema.bytes);
            require(!tools_relax(&t, &schema, message, &warnings) || schema.bytes < before);
            tree = json_read(schema.data, schema.bytes, &error);
            require(tree != NULL);
            json_free(tree);
        }
        require(tools_parse(&t, format, reply, bytes, &parsed) && parsed.count <= TOOLS_CALLS_MAX);
        require(parsed.count > 0 || parsed.content.bytes == bytes);
        require(tools_text_messages(&t, format, r->messages, r->message_count, &text) && text.count > 0);
        while (tools_stream_next(&stream, format, reply, bytes, &piece)) {
            require(piece.name || piece.bytes > 0);
        }
        tools_stream_free(&stream);
        tools_text_free(&text);
        tools_parsed_free(&parsed);
        buffer_free(&schema);
        buffer_free(&warnings);
    }
    tools_close(&t);
}

static void check_overrides(const char *text, size_t bytes)
{
    static const char body[] = "{\"prompt\":\"x\",\"stop\":\"a\",\"custom_token_bans\":\"1, 2\",\"temperature\":1}";
    overrides o = { 0 };
    request_error error = { 0 };
    buffer out = { 0 };
    require(overrides_read(text, bytes, 1000, &o, &error) == !error.set);
    require(overrides_apply(&o, text, bytes, &out));
    buffer_clear(&out);
    require(overrides_apply(&o, body, sizeof body - 1, &out));
    const char *why;
    json_value *tree = json_read(out.data, out.bytes, &why);
    require(tree != NULL);
    json_free(tree);
    buffer_free(&out);
    overrides_free(&o);
}

/* The same parts, whole and in pieces. */
static size_t split(const char *text, size_t bytes, size_t piece, buffer both[2])
{
    reasoning r = { 0 };
    reasoning_part part;
    reasoning_tags tags;
    reasoning_tags_read("auto", NULL, &tags);
    reasoning_begin(&r, &tags, bytes % 2);
    for (size_t at = 0; at < bytes; at += piece) {
        reasoning_add(&r, text + at, bytes - at < piece ? bytes - at : piece);
        while (reasoning_next(&r, &part)) {
            buffer_add(&both[part.kind], part.text, part.bytes);
        }
    }
    reasoning_finish(&r);
    while (reasoning_next(&r, &part)) {
        buffer_add(&both[part.kind], part.text, part.bytes);
    }
    reasoning_free(&r);
    return both[0].bytes + both[1].bytes;
}

static void check_reasoning(const char *text, size_t bytes)
{
    buffer whole[2] = { { 0 } }, cut[2] = { { 0 } };
    size_t all = split(text, bytes, bytes + 1, whole);
    require(all <= bytes && split(text, bytes, 1 + bytes % 3, cut) == all);
    for (int i = 0; i < 2; i++) {
        require(whole[i].bytes == cut[i].bytes
                && (!whole[i].bytes || memcmp(whole[i].data, cut[i].data, cut[i].bytes) == 0));
        buffer_free(&whole[i]);
        buffer_free(&cut[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    request_limits limits = { .vocab = 1000, .preset = EXL2_PRESET_NEUTRAL, .pictures_max = 2 };
    for (int kind = REQUEST_COMPLETION; kind <= REQUEST_RESPONSES; kind++) {
        request r = { 0 };
        request_error error = { 0 };
        bool good = request_read(&r, (request_kind)kind, text, size, &limits, &error);
        require(good == !error.set && (good || (error.message[0] && error.code)));
        if (good) {
            check_request(&r);
        }
        if (good && r.tools) {
            check_tools(&r, r.messages[0].text ? r.messages[0].text : text,
                        r.messages[0].text ? strlen(r.messages[0].text) : size);
        }
        request_free(&r);
    }
    check_overrides(text, size);
    check_reasoning(text, size);
    return 0;
}

/* answer.c: see answer.h.
   takes: a call, its choices.
   gives: what answer.h declares, but for log-probabilities.
   owns:  nothing. */
#include "answer.h"

#include <stdio.h>
#include <string.h>

static bool is_chat(const call *c)
{
    return c->request.kind == REQUEST_CHAT;
}

static bool is_responses(const call *c)
{
    return c->request.kind == REQUEST_RESPONSES;
}

/* ---- what all shapes have ---- */

static void put_head(const call *c, buffer *b, const char *object)
{
    buffer_name(b, "id", c->id);
    buffer_name(b, "object", object);
    buffer_int(b, "created", c->created);
    buffer_name(b, "model", c->model->name);
    buffer_format(b, ",\"system_fingerprint\":\"exl2_%u\"", EXL2_VERSION);
}

const char *answer_finish_reason(const choice *c)
{
    return c->call_count ? (c->stop == EXL2_STOP_LENGTH ? "length" : "tool_calls")
                         : c->stop == EXL2_STOP_LENGTH ? "length" : "stop";
}

static const char *stop_string(const choice *c)
{
    const request *r = &c->call->request;
    uint32_t at = c->stats.stop_string;
    return c->stop == EXL2_STOP_STRING && at < r->stop_count ? r->stops[at] : NULL;
}

static void put_finish(const choice *c, buffer *b)
{
    buffer_name(b, "finish_reason", answer_finish_reason(c));
    buffer_name(b, "eos_reason", host_stop_name(c->stop));
    buffer_name(b, "stop_str", stop_string(c));
}

static void put_speed(buffer *b, const char *time, const char *speed, uint64_t ns, uint64_t tokens)
{
    double seconds = (double)ns * 1e-9;
    buffer_number(b, time, seconds);
    if (speed && ns) {
        buffer_number(b, speed, (double)tokens / seconds);
    } else if (speed) {
        buffer_null(b, speed);
    }
}

static void put_usage(const call *c, buffer *b)
{
    uint64_t prompt = 0, cached = 0, completion = 0, reasoning = 0, prefill_ns = 0, decode_ns = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        const choice *one = &c->choices[i];
        if (i % c->request.n == 0) { /* the choices of a prompt share it */
            prompt += one->prompt_tokens;
            cached += one->cached_tokens;
        }
        completion += one->new_tokens;
        reasoning += one->reasoning_tokens;
        prefill_ns = one->prefill_ns > prefill_ns ? one->prefill_ns : prefill_ns;
        decode_ns = one->decode_ns > decode_ns ? one->decode_ns : decode_ns;
    }
    buffer_object(b, "usage");
    buffer_uint(b, "prompt_tokens", prompt);
    put_speed(b, "prompt_time", "prompt_tokens_per_sec", prefill_ns, prompt - cached);
    buffer_uint(b, "completion_tokens", completion);
    put_speed(b, "completion_time", "completion_tokens_per_sec", decode_ns, completion);
    buffer_uint(b, "total_tokens", prompt + completion);
    put_speed(b, "total_time", NULL, prefill_ns + decode_ns, 0);
    buffer_object(b, "prompt_tokens_details");
    buffer_uint(b, "cached_tokens", cached);
    buffer_end(b);
    buffer_object(b, "completion_tokens_details");
    buffer_uint(b, "reasoning_tokens", reasoning);
    buffer_end(b);
    buffer_end(b);
}

/* ---- chunks ---- */

static buffer *begin_chunk(call *c)
{
    buffer *b = &c->chunk;
    buffer_clear(b);
    buffer_string(b, "data: ");
    buffer_object(b, NULL);
    put_head(c, b, is_chat(c) ? "chat.completion.chunk" : "text_completion");
    buffer_array(b, "choices");
    return b;
}

/* A chunk of one choice; the caller goes on inside of it. */
static buffer *begin_choice(const choice *c)
{
    buffer *b = begin_chunk(c->call);
    buffer_object(b, NULL);
    buffer_uint(b, "index", c->index);
    return b;
}

void answer_send(call *c)
{
    buffer *b = &c->chunk;
    while (b->depth) {
        buffer_end(b);
    }
    buffer_string(b, "\n\n");
    if (b->failed) {
        call_lacks_memory(c);
    } else if (c->x && c->begun) {
        http_stream_write(c->x, b->data, b->bytes);
    }
}

static bool streams(const choice *c)
{
    return c->call->request.stream && c->call->x && !c->call->failed;
}

/* A choice with one text in its delta, or as its text; log-probabilities where there are any. */
static void send_text(choice *c, const char *key, const char *text, size_t bytes, bool logprobs)
{
    buffer *b = begin_choice(c);
    if (is_chat(c->call)) {
        buffer_object(b, "delta");
        buffer_text(b, key, text, bytes);
        buffer_end(b);
    } else {
        buffer_text(b, "text", text, bytes);
    }
    if (logprobs) {
        answer_logprobs_put(c, b);
        answer_logprobs_clear(c);
    } else {
        buffer_null(b, "logprobs");
    }
    buffer_null(b, "finish_reason");
    answer_send(c->call);
}

void answer_started(choice *c)
{
    if (is_responses(c->call)) {
        responses_started(c);
        return;
    }
    if (!streams(c) || !is_chat(c->call)) {
        return;
    }
    static const char first[] = "{\"role\":\"assistant\",\"content\":\"\"}";
    buffer *b = begin_choice(c);
    buffer_raw(b, "delta", first, sizeof first - 1);
    buffer_null(b, "logprobs");
    buffer_null(b, "finish_reason");
    answer_send(c->call);
}

void answer_content(choice *c, const char *text, size_t bytes, const engine_record *record)
{
    if (is_responses(c->call)) {
        answer_logprobs_add(c, record, text, bytes);
        responses_text(c, RESPONSES_MESSAGE, text, bytes);
        buffer_add(&c->content, text, bytes);
        return;
    }
    buffer_add(&c->content, text, bytes);
    answer_logprobs_add(c, record, text, bytes);
    bool logprobs = c->call->request.logprobs && (c->logprobs.bytes || c->token_texts.bytes);
    if (streams(c) && (bytes || logprobs)) {
        send_text(c, "content", text, bytes, logprobs);
    }
}

void answer_echo(choice *c, const char *text, size_t bytes)
{
    bool scored = c->token_texts.bytes > 0; /* then the offset has run on with the tokens */
    uint32_t offset = c->offset;
    answer_content(c, text, bytes, NULL);
    c->offset = scored ? offset : c->offset;
}

void answer_reasoning(choice *c, const char *text, size_t bytes)
{
    if (is_responses(c->call)) {
        responses_text(c, RESPONSES_REASONING, text, bytes);
        buffer_add(&c->reasoning, text, bytes);
        return;
    }
    buffer_add(&c->reasoning, text, bytes);
    if (streams(c) && bytes) {
        send_text(c, "reasoning_content", text, bytes, false);
    }
}

/* The head of a delta with one call; the caller goes on inside "function". */
static buffer *begin_call_chunk(choice *c, bool first)
{
    buffer *b = begin_choice(c);
    const tool_call *t = &c->calls[c->call_count - 1];
    buffer_null(b, "finish_reason");
    buffer_null(b, "logprobs");
    buffer_object(b, "delta");
    buffer_array(b, "tool_calls");
    buffer_object(b, NULL);
    buffer_uint(b, "index", c->call_count - 1);
    if (first) {
        buffer_name(b, "id", t->id);
        buffer_name(b, "type", "function");
    }
    buffer_object(b, "function");
    return b;
}

void answer_call(choice *c)
{
    if (is_responses(c->call)) {
        responses_call(c);
        return;
    }
    if (streams(c)) {
        const tool_call *t = &c->calls[c->call_count - 1];
        buffer *b = begin_call_chunk(c, true);
        buffer_text(b, "name", t->name.data ? t->name.data : "", t->name.bytes);
        buffer_name(b, "arguments", "");
        answer_send(c->call);
    }
}

void answer_arguments(choice *c, const char *text, size_t bytes)
{
    buffer_add(&c->calls[c->call_count - 1].arguments, text, bytes);
    if (is_responses(c->call)) {
        responses_arguments(c, text, bytes);
        return;
    }
    if (streams(c) && bytes) {
        buffer *b = begin_call_chunk(c, false);
        buffer_text(b, "arguments", text, bytes);
        answer_send(c->call);
    }
}

void answer_finish(choice *c)
{
    if (is_responses(c->call)) {
        responses_finish(c);
        return;
    }
    if (!streams(c) || c->told) {
        return;
    }
    c->told = true;
    buffer *b = begin_choice(c);
    if (is_chat(c->call)) {
        buffer_raw(b, "delta", "{}", 2);
    } else {
        buffer_name(b, "text", "");
    }
    buffer_null(b, "logprobs");
    put_finish(c, b);
    answer_send(c->call);
}

void answer_end(call *c)
{
    static const char done[] = "data: [DONE]\n\n";
    if (is_responses(c)) {
        responses_end(c);
        return;
    }
    if (c->request.include_usage && c->x && !c->failed) {
        buffer *b = begin_chunk(c);
        buffer_end(b);
        put_usage(c, b);
        answer_send(c);
    }
    if (c->x) {
        http_stream_write(c->x, done, sizeof done - 1);
    }
}

void answer_error_put(buffer *b, const char *type, const char *code, const char *message)
{
    buffer_object(b, "error");
    buffer_name(b, "message", message);
    buffer_name(b, "type", type);
    buffer_null(b, "param");
    buffer_name(b, "code", code);
    buffer_end(b);
    buffer_name(b, "detail", message);
}

void answer_error_write(http_exchange *x, const char *type, const char *code, const char *message)
{
    static const char none[] = "data: {\"error\":{\"message\":\"There is no memory left.\",\"type\":\"server_error\","
                               "\"param\":null,\"code\":\"out_of_memory\"},"
                               "\"detail\":\"There is no memory left.\"}\n\n";
    buffer b = { 0 };
    buffer_string(&b, "data: ");
    buffer_object(&b, NULL);
    answer_error_put(&b, type, code, message);
    buffer_end(&b);
    buffer_string(&b, "\n\n");
    http_stream_write(x, b.failed ? none : b.data, b.failed ? sizeof none - 1 : b.bytes);
    buffer_free(&b);
}

void answer_error_event(call *c, const char *type, const char *code, const char *message)
{
    if (is_responses(c)) {
        responses_error(c, code, message);
        return;
    }
    answer_error_write(c->x, type, code, message);
}

/* ---- whole answers ---- */

static void put_message(const choice *c, buffer *b)
{
    buffer_object(b, "message");
    buffer_name(b, "role", "assistant");
    if (c->call_count && !c->content.bytes) {
        buffer_null(b, "content");
    } else {
        buffer_text(b, "content", c->content.data ? c->content.data : "", c->content.bytes);
    }
    buffer_null(b, "refusal");
    buffer_text(b, "reasoning_content", c->reasoning.bytes ? c->reasoning.data : NULL, c->reasoning.bytes);
    if (c->call_count) {
        buffer_array(b, "tool_calls");
        for (uint32_t i = 0; i < c->call_count; i++) {
            const tool_call *t = &c->calls[i];
            buffer_object(b, NULL);
            buffer_name(b, "id", t->id);
            buffer_name(b, "type", "function");
            buffer_object(b, "function");
            buffer_text(b, "name", t->name.data ? t->name.data : "", t->name.bytes);
            buffer_text(b, "arguments", t->arguments.data ? t->arguments.data : "", t->arguments.bytes);
            buffer_end(b);
            buffer_end(b);
        }
        buffer_end(b);
    }
    buffer_end(b);
}

void answer_ids(const exl2_token *ids, size_t count, bool with_ids, buffer *b)
{
    buffer_object(b, NULL);
    if (with_ids) {
        buffer_array(b, "tokens");
        for (size_t i = 0; i < count; i++) {
            buffer_int(b, NULL, ids[i]);
        }
        buffer_end(b);
    }
    buffer_uint(b, "length", count);
    buffer_end(b);
}

void answer_whole(const call *c, buffer *b)
{
    if (c->request.counts) {
        answer_ids(c->choices[0].ids, c->choices[0].id_count, !c->request.no_ids, b);
        return;
    }
    if (is_responses(c)) {
        responses_whole(c, b);
        return;
    }
    buffer_object(b, NULL);
    put_head(c, b, is_chat(c) ? "chat.completion" : "text_completion");
    buffer_array(b, "choices");
    for (uint32_t i = 0; i < c->count; i++) {
        const choice *one = &c->choices[i];
        buffer_object(b, NULL);
        buffer_uint(b, "index", one->index);
        if (is_chat(c)) {
            put_message(one, b);
        } else {
            buffer_text(b, "text", one->content.data ? one->content.data : "", one->content.bytes);
        }
        answer_logprobs_put(one, b);
        put_finish(one, b);
        buffer_end(b);
    }
    buffer_end(b);
    put_usage(c, b);
    buffer_end(b);
}

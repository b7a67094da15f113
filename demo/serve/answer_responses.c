/* answer_responses.c: see answer_responses.h.
   takes: a choice.
   gives: what answer_responses.h declares.
   owns:  nothing; the items lie in the call. */
#include "answer_responses.h"

#include "answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- events ---- */

static buffer *begin_event(call *c, const char *type)
{
    buffer *b = &c->chunk;
    buffer_clear(b);
    buffer_format(b, "event: %s\ndata: ", type);
    buffer_object(b, NULL);
    buffer_name(b, "type", type);
    buffer_uint(b, "sequence_number", c->responses.sequence++);
    return b;
}

static bool streams(const call *c)
{
    return c->request.stream && c->x && !c->failed;
}

/* An event about the open item. */
static buffer *begin_item_event(call *c, const char *type, bool part)
{
    buffer *b = begin_event(c, type);
    buffer_name(b, "item_id", c->responses.id);
    buffer_uint(b, "output_index", c->responses.index);
    if (part) {
        buffer_uint(b, "content_index", 0);
    }
    return b;
}

/* ---- the whole ---- */

static void put_asked(const call *c, buffer *b, const char *name, const char *otherwise)
{
    const request *r = &c->request;
    for (uint32_t i = 0; i < r->asked_count; i++) {
        if (strcmp(r->asked[i].name, name) == 0) {
            buffer_raw(b, name, r->asked_texts.data + r->asked[i].at, r->asked[i].bytes);
            return;
        }
    }
    buffer_raw(b, name, otherwise, strlen(otherwise));
}

static void put_usage(const call *c, buffer *b)
{
    const choice *one = &c->choices[0];
    buffer_object(b, "usage");
    buffer_uint(b, "input_tokens", one->prompt_tokens);
    buffer_object(b, "input_tokens_details");
    buffer_uint(b, "cached_tokens", one->cached_tokens);
    buffer_uint(b, "cache_write_tokens", one->prompt_tokens - one->cached_tokens);
    buffer_end(b);
    buffer_uint(b, "output_tokens", one->new_tokens);
    buffer_object(b, "output_tokens_details");
    buffer_uint(b, "reasoning_tokens", one->reasoning_tokens);
    buffer_end(b);
    buffer_uint(b, "total_tokens", one->prompt_tokens + one->new_tokens);
    buffer_end(b);
}

static void put_response(const call *c, buffer *b, const char *key, const char *status)
{
    static const char reason[] = "{\"reason\":\"max_output_tokens\"}";
    bool over = strcmp(status, "in_progress") != 0;
    bool cut = strcmp(status, "incomplete") == 0;
    buffer_object(b, key);
    buffer_name(b, "id", c->id);
    buffer_name(b, "object", "response");
    buffer_int(b, "created_at", c->created);
    buffer_name(b, "status", status);
    buffer_null(b, "error");
    buffer_raw(b, "incomplete_details", cut ? reason : "null", cut ? sizeof reason - 1 : 4);
    put_asked(c, b, "instructions", "null");
    put_asked(c, b, "max_output_tokens", "null");
    put_asked(c, b, "metadata", "{}");
    buffer_name(b, "model", c->model->name);
    buffer_array(b, "output");
    buffer_add(b, c->responses.items.data ? c->responses.items.data : "", c->responses.items.bytes);
    buffer_end(b);
    put_asked(c, b, "parallel_tool_calls", "true");
    buffer_null(b, "previous_response_id");
    buffer_bool(b, "store", false);
    put_asked(c, b, "temperature", "null");
    put_asked(c, b, "text", "{\"format\":{\"type\":\"text\"}}");
    put_asked(c, b, "tool_choice", "\"auto\"");
    put_asked(c, b, "tools", "[]");
    put_asked(c, b, "top_logprobs", "0");
    put_asked(c, b, "top_p", "null");
    buffer_name(b, "truncation", "disabled");
    if (over) {
        put_usage(c, b);
    } else {
        buffer_null(b, "usage");
    }
    buffer_end(b);
    b->failed = b->failed || c->responses.items.failed;
}

static const char *status_of(const call *c)
{
    return strcmp(answer_finish_reason(&c->choices[0]), "length") == 0 ? "incomplete" : "completed";
}

/* ---- items ---- */

/* The part of the open item. whole: with its text; else it is just beginning. */
static void put_part(const choice *c, buffer *b, const char *key, bool whole)
{
    const responses *r = &c->call->responses;
    const buffer *text = r->open == RESPONSES_MESSAGE ? &c->content : &c->reasoning;
    buffer_object(b, key);
    buffer_name(b, "type", r->open == RESPONSES_MESSAGE ? "output_text" : "reasoning_text");
    buffer_text(b, "text", text->bytes ? text->data + r->from : "", text->bytes - r->from);
    if (r->open == RESPONSES_MESSAGE) {
        buffer_raw(b, "annotations", "[]", 2);
        answer_logprobs_list(c, whole ? 0 : c->logprobs.bytes, b);
    }
    buffer_end(b);
}

/* The open item. whole: with its text and its status at the end. */
static void put_item(const choice *c, buffer *b, const char *key, bool whole)
{
    const responses *r = &c->call->responses;
    const tool_call *t = c->call_count ? &c->calls[c->call_count - 1] : NULL;
    const char *status = !whole ? "in_progress" : c->stop == EXL2_STOP_LENGTH && c->ended ? "incomplete" : "completed";
    buffer_object(b, key);
    buffer_name(b, "id", r->id);
    buffer_name(b, "type", r->open == RESPONSES_MESSAGE ? "message" : r->open == RESPONSES_CALL ? "function_call"
                                                                                                : "reasoning");
    buffer_name(b, "status", status);
    if (r->open == RESPONSES_CALL && t) {
        buffer_name(b, "call_id", t->id);
        buffer_text(b, "name", t->name.data ? t->name.data : "", t->name.bytes);
        buffer_text(b, "arguments", whole && t->arguments.data ? t->arguments.data : "",
                    whole ? t->arguments.bytes : 0);
    } else {
        if (r->open == RESPONSES_MESSAGE) {
            buffer_name(b, "role", "assistant");
        } else {
            buffer_raw(b, "summary", "[]", 2);
        }
        buffer_array(b, "content");
        if (whole) {
            put_part(c, b, NULL, true);
        }
        buffer_end(b);
    }
    buffer_end(b);
}

static void send_part_done(choice *c)
{
    call *whole = c->call;
    const responses *r = &whole->responses;
    const tool_call *t = c->call_count ? &c->calls[c->call_count - 1] : NULL;
    bool message = r->open == RESPONSES_MESSAGE;
    const buffer *text = message ? &c->content : &c->reasoning;
    if (r->open == RESPONSES_CALL) {
        buffer *b = begin_item_event(whole, "response.function_call_arguments.done", false);
        buffer_text(b, "name", t && t->name.data ? t->name.data : "", t ? t->name.bytes : 0);
        buffer_text(b, "arguments", t && t->arguments.data ? t->arguments.data : "", t ? t->arguments.bytes : 0);
        answer_send(whole);
        return;
    }
    buffer *b = begin_item_event(whole, message ? "response.output_text.done" : "response.reasoning_text.done", true);
    buffer_text(b, "text", text->bytes ? text->data + r->from : "", text->bytes - r->from);
    if (message) {
        answer_logprobs_list(c, 0, b);
    }
    answer_send(whole);
    b = begin_item_event(whole, "response.content_part.done", true);
    put_part(c, b, "part", true);
    answer_send(whole);
}

/* More text of the open item, and the log-probabilities that no event has had. */
static void send_delta(choice *c, const char *text, size_t bytes)
{
    responses *r = &c->call->responses;
    bool message = r->open == RESPONSES_MESSAGE;
    const char *type = message ? "response.output_text.delta" : "response.reasoning_text.delta";
    buffer *b = begin_item_event(c->call, type, true);
    buffer_text(b, "delta", text, bytes);
    if (message) {
        answer_logprobs_list(c, r->logprobs_from, b);
        r->logprobs_from = c->logprobs.bytes;
    }
    answer_send(c->call);
}

static void close_item(choice *c)
{
    call *whole = c->call;
    responses *r = &whole->responses;
    if (r->open == RESPONSES_NONE) {
        return;
    }
    if (streams(whole) && r->open == RESPONSES_MESSAGE && r->logprobs_from < c->logprobs.bytes) {
        send_delta(c, "", 0); /* of tokens whose text was held back, and of the last one */
    }
    if (streams(whole)) {
        send_part_done(c);
        buffer *b = begin_event(whole, "response.output_item.done");
        buffer_uint(b, "output_index", r->index);
        put_item(c, b, "item", true);
        answer_send(whole);
    }
    if (r->items.bytes) {
        buffer_add(&r->items, ",", 1);
    }
    put_item(c, &r->items, NULL, true);
    if (r->open == RESPONSES_MESSAGE) {
        answer_logprobs_clear(c);
        r->logprobs_from = 0;
    }
    r->open = RESPONSES_NONE;
    r->index++;
}

static void open_item(choice *c, responses_item kind)
{
    static const char *const prefixes[] = { "", "msg", "rs", "fc" };
    call *whole = c->call;
    responses *r = &whole->responses;
    char id[25];
    close_item(c);
    server_id(whole->server, id);
    snprintf(r->id, sizeof r->id, "%s_%s", prefixes[kind], id);
    r->open = kind;
    r->from = kind == RESPONSES_MESSAGE ? c->content.bytes : c->reasoning.bytes;
    if (!streams(whole)) {
        return;
    }
    buffer *b = begin_event(whole, "response.output_item.added");
    buffer_uint(b, "output_index", r->index);
    put_item(c, b, "item", false);
    answer_send(whole);
    if (kind != RESPONSES_CALL) {
        b = begin_item_event(whole, "response.content_part.added", true);
        put_part(c, b, "part", false);
        answer_send(whole);
    }
}

/* ---- what answer.c calls ---- */

void responses_started(choice *c)
{
    static const char *const types[] = { "response.created", "response.in_progress" };
    for (int i = 0; i < 2 && streams(c->call); i++) {
        buffer *b = begin_event(c->call, types[i]);
        put_response(c->call, b, "response", "in_progress");
        answer_send(c->call);
    }
}

void responses_text(choice *c, responses_item kind, const char *text, size_t bytes)
{
    if (!bytes) {
        return;
    }
    if (c->call->responses.open != kind) {
        open_item(c, kind);
    }
    if (streams(c->call)) {
        send_delta(c, text, bytes);
    }
}

void responses_call(choice *c)
{
    c->call_count--; /* the item that is open belongs to the call before */
    close_item(c);
    c->call_count++;
    open_item(c, RESPONSES_CALL);
}

void responses_arguments(choice *c, const char *text, size_t bytes)
{
    if (streams(c->call) && bytes) {
        buffer *b = begin_item_event(c->call, "response.function_call_arguments.delta", false);
        buffer_text(b, "delta", text, bytes);
        answer_send(c->call);
    }
}

void responses_finish(choice *c)
{
    close_item(c);
}

void responses_end(call *c)
{
    if (streams(c)) {
        const char *status = status_of(c);
        buffer *b = begin_event(c, strcmp(status, "incomplete") == 0 ? "response.incomplete" : "response.completed");
        put_response(c, b, "response", status);
        answer_send(c);
    }
}

void responses_whole(const call *c, buffer *out)
{
    put_response(c, out, NULL, status_of(c));
}

void responses_error(call *c, const char *code, const char *message)
{
    buffer *b = begin_event(c, "error");
    buffer_name(b, "code", code);
    buffer_name(b, "message", message);
    buffer_null(b, "param");
    answer_send(c);
}

void responses_free(responses *r)
{
    buffer_free(&r->items);
}

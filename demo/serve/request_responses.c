/* request_responses.c: the body of /v1/responses as the body of a chat.
   takes: the tree of a request.
   gives: request_responses_chat of request.h.
   owns:  nothing.

   The endpoint keeps no state: what refers to something that the server would have to remember is refused by name. The
   items of `input` become messages: calls join the assistant's message before them, and reasoning the one after it. */
#include "request.h"

#include <string.h>

static const char *type_of(const json_value *item)
{
    const json_value *type = json_member(item, "type");
    return type && type->kind == JSON_TEXT ? type->text : json_member(item, "role") ? "message" : "";
}

static bool is_type(const json_value *item, const char *name)
{
    return item && item->kind == JSON_OBJECT && strcmp(type_of(item), name) == 0;
}

static bool is_assistant(const json_value *item)
{
    const json_value *role = json_member(item, "role");
    return is_type(item, "message") && role && role->kind == JSON_TEXT && strcmp(role->text, "assistant") == 0;
}

static void put_raw(buffer *out, const char *key, const json_value *v)
{
    if (v) {
        buffer_raw(out, key, v->raw, v->raw_bytes);
    }
}

/* One call; it may lack its id, as clients write calls of their own. */
static bool put_call(buffer *out, const json_value *item, request_error *error)
{
    const json_value *id = json_member(item, "call_id"), *name = json_member(item, "name");
    if (!name || name->kind != JSON_TEXT) {
        return fields_fail(error, "input", "input: a function_call must have a name");
    }
    buffer_object(out, NULL);
    put_raw(out, "id", id ? id : json_member(item, "id"));
    buffer_name(out, "type", "function");
    buffer_object(out, "function");
    put_raw(out, "name", name);
    put_raw(out, "arguments", json_member(item, "arguments"));
    buffer_end(out);
    buffer_end(out);
    return true;
}

/* The texts of a reasoning item, one after the other. */
static void add_reasoning(buffer *texts, const json_value *item)
{
    static const char *const lists[] = { "content", "summary" };
    for (size_t i = 0; i < 2; i++) {
        const json_value *list = json_member(item, lists[i]);
        bool any = list && list->kind == JSON_ARRAY && list->child;
        for (const json_value *part = any ? list->child : NULL; part; part = part->next) {
            const json_value *text = json_member(part, "text");
            if (text && text->kind == JSON_TEXT) {
                buffer_string(texts, texts->bytes ? "\n" : "");
                buffer_add(texts, text->text, text->text_bytes);
            }
        }
        if (any) { /* a summary is read where there is no full text */
            return;
        }
    }
}

/* A turn of the assistant: a message, calls, or a message with the calls after it. Returns its last item; NULL: an
   error. */
static const json_value *put_assistant(buffer *out, const json_value *item, buffer *reasoning, request_error *error)
{
    const json_value *last = item;
    buffer_object(out, NULL);
    buffer_name(out, "role", "assistant");
    if (reasoning->bytes) {
        buffer_text(out, "reasoning_content", reasoning->data, reasoning->bytes);
        buffer_clear(reasoning);
    }
    if (is_type(item, "message")) {
        put_raw(out, "content", json_member(item, "content"));
        item = item->next;
    }
    if (is_type(item, "function_call")) {
        buffer_array(out, "tool_calls");
        for (; is_type(item, "function_call"); item = item->next) {
            if (!put_call(out, item, error)) {
                return NULL;
            }
            last = item;
        }
        buffer_end(out);
    }
    buffer_end(out);
    return last;
}

static bool put_message(buffer *out, const json_value *item)
{
    bool result = is_type(item, "function_call_output");
    buffer_object(out, NULL);
    if (result) {
        buffer_name(out, "role", "tool");
        put_raw(out, "tool_call_id", json_member(item, "call_id"));
    } else {
        put_raw(out, "role", json_member(item, "role"));
    }
    put_raw(out, "content", json_member(item, result ? "output" : "content"));
    buffer_end(out);
    return true;
}

static bool put_items(buffer *out, const json_value *input, request_error *error)
{
    buffer reasoning = { 0 };
    bool good = true;
    for (const json_value *item = input->child; item && good; item = item->next) {
        if (is_type(item, "reasoning")) {
            add_reasoning(&reasoning, item);
        } else if (is_assistant(item) || is_type(item, "function_call")) {
            item = put_assistant(out, item, &reasoning, error);
            good = item != NULL;
        } else if (is_type(item, "message") || is_type(item, "function_call_output")) {
            good = put_message(out, item);
        } else {
            good = fields_fail(error, "input", "input: an item of type '%.40s' is not supported by this server",
                               item->kind == JSON_OBJECT ? type_of(item) : "");
        }
        if (!item) {
            break;
        }
    }
    out->failed = out->failed || reasoning.failed;
    buffer_free(&reasoning);
    return good;
}

static bool put_messages(buffer *out, fields *f)
{
    const json_value *input = fields_find(f, "input");
    const char *instructions = NULL;
    size_t bytes = 0;
    buffer_array(out, "messages");
    if (fields_text(f, "instructions", &instructions, &bytes)) {
        buffer_object(out, NULL);
        buffer_name(out, "role", "system");
        buffer_text(out, "content", instructions, bytes);
        buffer_end(out);
    }
    if (!input || (input->kind != JSON_TEXT && input->kind != JSON_ARRAY)) {
        return fields_fail(f->error, "input", "input must be a text or a list of items, and not empty");
    }
    if (input->kind == JSON_TEXT) {
        buffer_object(out, NULL);
        buffer_name(out, "role", "user");
        put_raw(out, "content", input);
        buffer_end(out);
    } else if (!put_items(out, input, f->error)) {
        return false;
    }
    buffer_end(out);
    return !f->error->set;
}

/* text: {"format": {"type", "name", "schema", "strict"}, "verbosity"} */
static bool put_text(buffer *out, fields *f)
{
    const json_value *text = NULL, *format = NULL;
    if (!fields_object(f, "text", &text)) {
        return !f->error->set;
    }
    fields inside = { text, f->error };
    put_raw(out, "verbosity", json_member(f->object, "verbosity") ? NULL : json_member(text, "verbosity"));
    if (fields_object(&inside, "format", &format)) {
        buffer_object(out, "response_format");
        put_raw(out, "type", json_member(format, "type"));
        if (json_member(format, "schema")) {
            buffer_object(out, "json_schema");
            put_raw(out, "strict", json_member(format, "strict"));
            put_raw(out, "schema", json_member(format, "schema"));
            buffer_end(out);
        }
        buffer_end(out);
    }
    fields_within(f->error, "text");
    return !f->error->set;
}

static bool refuse_state(fields *f)
{
    static const char *const names[] = { "previous_response_id", "conversation", "prompt" };
    bool background = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (fields_find(f, names[i])) {
            return fields_fail(f->error, names[i], "%s is not supported: this server keeps no responses", names[i]);
        }
    }
    if (fields_bool(f, "background", &background) && background) {
        return fields_fail(f->error, "background", "background is not supported: this server keeps no responses");
    }
    return !f->error->set;
}

bool request_responses_chat(const json_value *tree, buffer *out, request_error *error)
{
    static const char *const ours[] = { "messages", "input", "instructions", "text", "response_format", "n",
                                        "functions" };
    fields f = { tree, error };
    buffer_object(out, NULL);
    for (const json_value *v = tree->child; v; v = v->next) {
        bool copied = true;
        for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
            copied = copied && strcmp(v->key, ours[i]) != 0;
        }
        put_raw(out, v->key, copied ? v : NULL);
    }
    if (!refuse_state(&f) || !put_messages(out, &f) || !put_text(out, &f)) {
        return false;
    }
    buffer_end(out);
    return !out->failed || fields_fail(error, NULL, "there is no memory left for this request");
}

/* request_chat.c: the messages, tools and variables of a chat.
   takes: the tree of a request.
   gives: request_read_chat, request_read_messages of request.h.
   owns:  nothing; what it makes lies in the request. */
#include "request.h"

#include <stdlib.h>
#include <string.h>

static bool no_memory(request_error *error)
{
    return fields_fail(error, NULL, "there is no memory left for this request");
}

/* Texts that are made here are written into r->texts, which moves while it grows. So an offset + 1 is kept in place of
   the pointer until all are written. */
static const char *made(size_t offset)
{
    return (const char *)(uintptr_t)(offset + 1);
}

/* Ends the text that begins at `offset` of r->texts. */
static bool end_text(request *r, size_t offset, request_error *error)
{
    if (r->texts.failed) {
        return no_memory(error);
    }
    if (memchr(r->texts.data + offset, 0, r->texts.bytes - offset)) {
        return fields_fail(error, "messages", "a message must not have a zero byte");
    }
    buffer_add(&r->texts, "", 1);
    return true;
}

/* One part of a content in parts: its text is added to r->texts. Other kinds have their place here. */
static bool read_part(request *r, const json_value *part, request_error *error)
{
    const json_value *type = json_member(part, "type"), *text = json_member(part, "text");
    const char *name = type && type->kind == JSON_TEXT ? type->text : part->kind == JSON_TEXT ? "text" : "";
    bool is_text = strcmp(name, "text") == 0 || strcmp(name, "input_text") == 0 || strcmp(name, "output_text") == 0;
    text = part->kind == JSON_TEXT ? part : text;
    if (!is_text) {
        return fields_fail(error, "messages", "a content part of type '%.40s' is not supported by this server", name);
    }
    if (!text || text->kind != JSON_TEXT) {
        return fields_fail(error, "messages", "a content part of type 'text' must have a text");
    }
    buffer_add(&r->texts, text->text, text->text_bytes);
    return true;
}

/* The content of a message: a text, null, or parts. */
static bool read_content(request *r, const json_value *v, const char **out, request_error *error)
{
    size_t offset = r->texts.bytes;
    *out = NULL;
    if (!v) {
        return true;
    }
    if (v->kind == JSON_TEXT) {
        buffer_add(&r->texts, v->text, v->text_bytes);
    } else if (v->kind == JSON_ARRAY) {
        for (const json_value *part = v->child; part; part = part->next) {
            if (!read_part(r, part, error)) {
                return false;
            }
        }
    } else {
        return fields_fail(error, "messages", "the content of a message must be a text, null or a list of parts");
    }
    *out = made(offset);
    return end_text(r, offset, error);
}

/* tool_calls for the template, with arguments as objects where they are the text of one. */
static bool read_calls(request *r, const json_value *calls, const char **out, request_error *error)
{
    size_t offset = r->texts.bytes;
    buffer_array(&r->texts, NULL);
    for (const json_value *call = calls->child; call; call = call->next) {
        const json_value *fn = json_member(call, "function"), *id = json_member(call, "id");
        const json_value *name = json_member(fn, "name"), *arguments = json_member(fn, "arguments");
        if (!name || name->kind != JSON_TEXT) {
            return fields_fail(error, "messages", "a call in tool_calls must have function.name");
        }
        buffer_object(&r->texts, NULL);
        if (id && id->kind == JSON_TEXT) {
            buffer_text(&r->texts, "id", id->text, id->text_bytes);
        }
        buffer_name(&r->texts, "type", "function");
        buffer_object(&r->texts, "function");
        buffer_text(&r->texts, "name", name->text, name->text_bytes);
        if (arguments && arguments->kind == JSON_TEXT) {
            const char *why;
            json_value *inside = json_read(arguments->text, arguments->text_bytes, &why);
            if (inside && inside->kind == JSON_OBJECT) {
                buffer_raw(&r->texts, "arguments", inside->raw, inside->raw_bytes);
            } else {
                buffer_text(&r->texts, "arguments", arguments->text, arguments->text_bytes);
            }
            json_free(inside);
        } else if (arguments) {
            buffer_raw(&r->texts, "arguments", arguments->raw, arguments->raw_bytes);
        } else {
            buffer_raw(&r->texts, "arguments", "{}", 2);
        }
        buffer_end(&r->texts);
        buffer_end(&r->texts);
    }
    buffer_end(&r->texts);
    *out = made(offset);
    return end_text(r, offset, error);
}

static bool is_call_id(const json_value *list, const json_value *end, const char *id)
{
    for (const json_value *message = list->child; message && message != end; message = message->next) {
        const json_value *calls = json_member(message, "tool_calls");
        for (const json_value *call = calls ? calls->child : NULL; call; call = call->next) {
            const json_value *known = json_member(call, "id");
            if (known && known->kind == JSON_TEXT && strcmp(known->text, id) == 0) {
                return true;
            }
        }
    }
    return false;
}

static bool read_message(request *r, const json_value *list, const json_value *v, exl2_message *out,
                         request_error *error)
{
    fields f = { v, error };
    const char *role = NULL;
    if (v->kind != JSON_OBJECT) {
        return fields_fail(error, "messages", "messages must have objects only");
    }
    if (!fields_text(&f, "role", &role, NULL)) {
        return fields_fail(error, "messages", "a message has no role");
    }
    out->role = strcmp(role, "developer") == 0 ? "system" : role;
    fields_text(&f, "name", &out->name, NULL);
    fields_text(&f, "tool_call_id", &out->tool_call_id, NULL);
    bool tool = strcmp(role, "tool") == 0;
    if (tool && out->tool_call_id && !is_call_id(list, v, out->tool_call_id)) {
        return fields_fail(error, "messages", "the result for tool_call_id '%.60s' follows no call of that id",
                           out->tool_call_id);
    }
    if (strcmp(role, "assistant") == 0) {
        const json_value *calls = NULL;
        fields_text(&f, "reasoning_content|reasoning", &out->reasoning, NULL);
        if (fields_array(&f, "tool_calls", REQUEST_TOOLS_MAX, &calls) && !read_calls(r, calls, &out->tool_calls, error)) {
            return false;
        }
    }
    return !error->set && read_content(r, json_member(v, "content"), &out->text, error);
}

bool request_read_messages(request *r, const json_value *list, request_error *error)
{
    if (!list || list->kind != JSON_ARRAY || !list->child) {
        return fields_fail(error, "messages", "messages must be a list with at least one message");
    }
    if (list->child_count > REQUEST_MESSAGES_MAX) {
        return fields_fail(error, "messages", "there are more than %u messages", REQUEST_MESSAGES_MAX);
    }
    r->messages = calloc(list->child_count, sizeof *r->messages);
    if (!r->messages) {
        return no_memory(error);
    }
    for (const json_value *v = list->child; v; v = v->next) {
        if (!read_message(r, list, v, &r->messages[r->message_count++], error)) {
            return false;
        }
    }
    return true;
}

/* ---- tools ---- */

static bool read_tools(request *r, fields *f, size_t *tools_at)
{
    const json_value *tools = NULL, *functions = NULL;
    const json_value *list = fields_array(f, "tools", REQUEST_TOOLS_MAX, &tools) ? tools : NULL;
    if (!list && fields_array(f, "functions", REQUEST_TOOLS_MAX, &functions)) {
        list = functions;
    }
    if (!list) {
        return !f->error->set;
    }
    *tools_at = r->texts.bytes;
    buffer_array(&r->texts, NULL);
    for (const json_value *tool = list->child; tool; tool = tool->next) {
        const json_value *fn = functions ? tool : json_member(tool, "function");
        const json_value *name = json_member(fn, "name");
        if (!name || name->kind != JSON_TEXT || !name->text_bytes) {
            return fields_fail(f->error, "tools", "a tool must be {\"type\":\"function\",\"function\":{\"name\":...}}");
        }
        buffer_object(&r->texts, NULL);
        buffer_name(&r->texts, "type", "function");
        buffer_raw(&r->texts, "function", fn->raw, fn->raw_bytes);
        buffer_end(&r->texts);
        r->tool_count++;
    }
    buffer_end(&r->texts);
    return end_text(r, *tools_at, f->error);
}

static bool has_tool(const request *r, const char *name)
{
    const json_value *list = json_member(r->tree, "tools");
    for (const json_value *tool = list ? list->child : NULL; tool; tool = tool->next) {
        const json_value *known = json_member(json_member(tool, "function"), "name");
        if (known && strcmp(known->text, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool read_tool_choice(request *r, fields *f)
{
    const json_value *v = f->error->set ? NULL : fields_find(f, "tool_choice");
    fields_bool(f, "parallel_tool_calls", &r->parallel_tools);
    if (!v) {
        return !f->error->set;
    }
    const char *word = v->kind == JSON_TEXT ? v->text : "";
    const json_value *fn = json_member(v, "function");
    const json_value *name = json_member(fn ? fn : v, "name");
    if (v->kind == JSON_OBJECT && name && name->kind == JSON_TEXT) {
        r->tool_choice = REQUEST_TOOL_REQUIRED;
        r->tool_name = name->text;
        return has_tool(r, name->text)
            || fields_fail(f->error, "tool_choice", "tool_choice names '%.60s', which is none of the tools", name->text);
    }
    if (strcmp(word, "required") == 0 || strcmp(word, "any") == 0) {
        r->tool_choice = REQUEST_TOOL_REQUIRED;
        return r->tool_count > 0
            || fields_fail(f->error, "tool_choice", "tool_choice is '%s', but there are no tools", word);
    }
    r->tool_choice = strcmp(word, "none") == 0 ? REQUEST_TOOL_NONE : REQUEST_TOOL_AUTO;
    return strcmp(word, "none") == 0 || strcmp(word, "auto") == 0
        || fields_fail(f->error, "tool_choice", "tool_choice must be none, auto, required or a named function");
}

/* ---- variables and the beginning of the reply ---- */

static bool read_variables(request *r, fields *f, size_t *at)
{
    static const char *const flat[] = { "reasoning_effort", "enable_thinking", "verbosity", "preserve_thinking" };
    const json_value *given = NULL;
    fields_object(f, "template_vars|chat_template_kwargs", &given);
    *at = r->texts.bytes;
    buffer_object(&r->texts, NULL);
    for (const json_value *v = given ? given->child : NULL; v; v = v->next) {
        buffer_raw(&r->texts, v->key, v->raw, v->raw_bytes);
    }
    for (size_t i = 0; i < sizeof flat / sizeof flat[0]; i++) {
        const json_value *v = f->error->set ? NULL : fields_find(f, flat[i]);
        if (v && v->kind != JSON_TEXT && v->kind != JSON_TRUE && v->kind != JSON_FALSE) {
            return fields_fail(f->error, flat[i], "%s must be a text or a boolean", flat[i]);
        }
        if (v && !(given && json_member(given, flat[i]))) {
            buffer_raw(&r->texts, flat[i], v->raw, v->raw_bytes);
        }
    }
    buffer_end(&r->texts);
    return end_text(r, *at, f->error);
}

static bool read_beginning(request *r, fields *f)
{
    bool continues = false, opening = true;
    fields_text(f, "response_prefix", &r->prefix, NULL);
    fields_bool(f, "continue_final_message|continue_", &continues);
    fields_bool(f, "add_generation_prompt", &opening);
    if (f->error->set || !continues) {
        return !f->error->set;
    }
    const exl2_message *last = &r->messages[r->message_count - 1];
    if (r->prefix) {
        return fields_fail(f->error, "response_prefix", "response_prefix and continue_final_message exclude each other");
    }
    if (strcmp(last->role, "assistant") != 0 || !last->text) {
        return fields_fail(f->error, "continue_final_message", "the last message is none of the assistant's with a text");
    }
    r->begun_reply = true;
    return true;
}

static const char *settled(const request *r, const char *offset_and_1)
{
    return offset_and_1 ? r->texts.data + ((uintptr_t)offset_and_1 - 1) : NULL;
}

bool request_read_chat(request *r, fields *f)
{
    size_t tools_at = 0, variables_at = 0;
    int64_t budget;
    if (!request_read_messages(r, json_member(r->tree, "messages"), f->error) || !read_tools(r, f, &tools_at)
        || !read_tool_choice(r, f) || !read_variables(r, f, &variables_at) || !read_beginning(r, f)) {
        return false;
    }
    if (fields_whole(f, "reasoning_budget_tokens|reasoning_budget|thinking_budget|thinking_token_budget", -2e9, 1e9,
                     &budget)) {
        r->reasoning_budget = budget < 0 ? -1 : budget;
    }
    for (size_t i = 0; i < r->message_count; i++) {
        r->messages[i].text = settled(r, r->messages[i].text);
        r->messages[i].tool_calls = settled(r, r->messages[i].tool_calls);
    }
    r->tools = r->tool_count ? r->texts.data + tools_at : NULL;
    r->variables = r->texts.data + variables_at;
    return true;
}

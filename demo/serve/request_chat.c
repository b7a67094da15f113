/* request_chat.c: the messages, the tools and the variables of a chat.
   takes: the tree of a request.
   gives: request_read_chat, request_read_messages of request.h.
   owns:  nothing; what it makes lies in the request. */
#include "request.h"

#include "request_names.h"

#include <stdlib.h>
#include <string.h>

#define CALL_DEPTH 3 /* of arguments in a list of calls */

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
    if (r->texts.bytes > offset && memchr(r->texts.data + offset, 0, r->texts.bytes - offset)) {
        return fields_fail(error, "messages", "a message must not have a zero byte");
    }
    buffer_add(&r->texts, "", 1);
    return true;
}

static const json_value *text_of(const json_value *part)
{
    return part->kind == JSON_TEXT ? part : json_member(part, "text");
}

/* One part of a content in parts: its text is added to r->texts, its picture to r->pictures. */
static bool read_part(request *r, const json_value *part, request_error *error)
{
    const json_value *type = json_member(part, "type"), *text = text_of(part);
    const char *name = type && type->kind == JSON_TEXT ? type->text : part->kind == JSON_TEXT ? "text" : "";
    bool is_text = strcmp(name, "text") == 0 || strcmp(name, "input_text") == 0 || strcmp(name, "output_text") == 0;
    if (request_is_picture(part)) {
        return request_read_picture(r, part, error);
    }
    if (!is_text) {
        return fields_fail(error, "messages", "a content part of type '%.40s' is not supported by this server", name);
    }
    if (!text || text->kind != JSON_TEXT) {
        return fields_fail(error, "messages", "a content part of type 'text' must have a text");
    }
    buffer_add(&r->texts, text->text, text->text_bytes);
    return true;
}

/* {"content": parts} for the template, which must know where the pictures are. */
static bool put_parts(request *r, const json_value *parts, const char **out, request_error *error)
{
    size_t offset = r->texts.bytes;
    buffer_object(&r->texts, NULL);
    buffer_array(&r->texts, "content");
    for (const json_value *part = parts->child; part; part = part->next) {
        bool is_picture = request_is_picture(part);
        buffer_object(&r->texts, NULL);
        buffer_name(&r->texts, "type", is_picture ? "image" : "text");
        if (!is_picture) {
            buffer_text(&r->texts, "text", text_of(part)->text, text_of(part)->text_bytes);
        }
        buffer_end(&r->texts);
    }
    buffer_end(&r->texts);
    buffer_end(&r->texts);
    *out = made(offset);
    return end_text(r, offset, error);
}

/* The content of a message: a text, null, or parts. */
static bool read_content(request *r, const json_value *v, exl2_message *out, request_error *error)
{
    size_t offset = r->texts.bytes;
    uint32_t pictures = r->picture_count;
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
    out->text = made(offset);
    out->image_count = r->picture_count - pictures;
    return end_text(r, offset, error) && (!out->image_count || put_parts(r, v, &out->fields, error));
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
            const char *why = NULL;
            json_rules rules = { .values_max = FIELDS_VALUES_MAX, .depth = CALL_DEPTH };
            json_value *inside = json_read_rules(arguments->text, arguments->text_bytes, &rules, &why);
            if (inside && inside->kind == JSON_OBJECT) {
                buffer_raw(&r->texts, "arguments", inside->raw, inside->raw_bytes);
            } else {
                buffer_text(&r->texts, "arguments", arguments->text, arguments->text_bytes);
            }
            json_free(inside);
            if (why == json_no_memory) {
                return no_memory(error);
            }
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

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The ids of all calls, sorted; the caller frees *out. */
static bool collect_ids(const json_value *list, const char ***out, size_t *count, request_error *error)
{
    size_t most = 0;
    for (const json_value *message = list->child; message; message = message->next) {
        const json_value *calls = json_member(message, "tool_calls");
        most += calls ? calls->child_count : 0;
    }
    const char **ids = calloc(most + 1, sizeof *ids);
    *out = ids;
    *count = 0;
    if (!ids) {
        return no_memory(error);
    }
    for (const json_value *message = list->child; message; message = message->next) {
        const json_value *calls = json_member(message, "tool_calls");
        for (const json_value *call = calls ? calls->child : NULL; call; call = call->next) {
            const json_value *id = json_member(call, "id");
            if (id && id->kind == JSON_TEXT) {
                ids[(*count)++] = id->text;
            }
        }
    }
    qsort((void *)ids, *count, sizeof *ids, by_text);
    return true;
}

/* Every result of a tool answers a call. The ids are sorted, as both may be many. */
static bool check_results(const request *r, const json_value *list, request_error *error)
{
    const char **ids;
    size_t count;
    bool good = collect_ids(list, &ids, &count, error);
    for (size_t i = 0; i < r->message_count && good; i++) {
        const char *id = strcmp(r->messages[i].role, "tool") == 0 ? r->messages[i].tool_call_id : NULL;
        if (id && !bsearch(&id, (const void *)ids, count, sizeof *ids, by_text)) {
            good = fields_fail(error, "messages", "the result for tool_call_id '%.60s' answers no call of that id", id);
        }
    }
    free((void *)ids);
    return good;
}

static bool read_message(request *r, const json_value *v, exl2_message *out, request_error *error)
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
    if (strcmp(role, "assistant") == 0) {
        const json_value *calls = NULL;
        fields_text(&f, "reasoning_content|reasoning", &out->reasoning, NULL);
        if (fields_array(&f, "tool_calls", REQUEST_TOOLS_MAX, &calls)
            && !read_calls(r, calls, &out->tool_calls, error)) {
            return false;
        }
    }
    return !error->set && read_content(r, json_member(v, "content"), out, error);
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
        if (!read_message(r, v, &r->messages[r->message_count], error)) {
            fields_within(error, "messages");
            return false;
        }
        r->message_count++;
    }
    return check_results(r, list, error);
}

/* ---- tools, and which of them must be called ---- */

/* One tool as {"type":"function","function":{...}}, whether it came so, as one of `functions`, or in the flat form of
   /v1/responses. */
static bool read_tool(request *r, const json_value *tool, const char *field, request_error *error)
{
    const json_value *inner = json_member(tool, "function"), *fn = inner ? inner : tool;
    const json_value *type = json_member(tool, "type"), *name = json_member(fn, "name");
    const json_value *parameters = json_member(fn, "parameters");
    if (type && (type->kind != JSON_TEXT || strcmp(type->text, "function") != 0)) {
        return fields_fail(error, field, "a tool of type '%.40s' is not supported by this server",
                           type->kind == JSON_TEXT ? type->text : "");
    }
    if (!name || name->kind != JSON_TEXT || !name->text_bytes || strlen(name->text) != name->text_bytes) {
        return fields_fail(error, field, "a tool must be {\"type\":\"function\",\"function\":{\"name\":...}}");
    }
    if (parameters && parameters->kind != JSON_OBJECT && parameters->kind != JSON_TRUE) {
        return fields_fail(error, field, "the parameters of the tool '%.60s' are no schema", name->text);
    }
    buffer_object(&r->texts, NULL);
    buffer_name(&r->texts, "type", "function");
    if (inner) {
        buffer_raw(&r->texts, "function", fn->raw, fn->raw_bytes);
    } else {
        buffer_object(&r->texts, "function");
        for (const json_value *v = fn->child; v; v = v->next) {
            if (strcmp(v->key, "type") != 0) {
                buffer_raw(&r->texts, v->key, v->raw, v->raw_bytes);
            }
        }
        buffer_end(&r->texts);
    }
    buffer_end(&r->texts);
    r->tool_count++;
    return true;
}

static const json_value *tool_list(fields *f)
{
    const json_value *list = NULL;
    fields_array(f, NAMES_TOOLS, REQUEST_TOOLS_MAX, &list);
    return list;
}

static bool has_tool(const json_value *list, const char *name)
{
    for (const json_value *tool = list ? list->child : NULL; tool; tool = tool->next) {
        const json_value *inner = json_member(tool, "function");
        const json_value *known = json_member(inner ? inner : tool, "name");
        if (known && known->kind == JSON_TEXT && strcmp(known->text, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool add_name(request *r, fields *f, const char *param, const json_value *name, const json_value *list)
{
    r->tool_names[r->tool_name_count++] = name->text;
    return has_tool(list, name->text)
        || fields_fail(f->error, param, "%s names '%.60s', which is none of the tools", param, name->text);
}

/* {"type": "allowed_tools", "mode", "tools"}, or a chat's {"type", "allowed_tools": {"mode", "tools"}}. The prompt has
   all tools, as the choice is meant to change no prompt. */
static bool read_allowed(request *r, fields *f, const json_value *v, const json_value *list)
{
    const json_value *inner = json_member(v, "allowed_tools"), *names = NULL;
    fields inside = { inner ? inner : v, f->error };
    const char *mode = "";
    fields_text(&inside, "mode", &mode, NULL);
    fields_array(&inside, "tools", REQUEST_TOOLS_MAX, &names);
    fields_within(f->error, v->key);
    bool required = strcmp(mode, "required") == 0;
    if (!f->error->set && !required && strcmp(mode, "auto") != 0) {
        return fields_fail(f->error, v->key, "%s: the mode of allowed_tools must be auto or required", v->key);
    }
    if (!f->error->set && (!names || !names->child)) {
        return fields_fail(f->error, v->key, "%s: allowed_tools must have a list of tools", v->key);
    }
    r->tool_choice = required ? REQUEST_TOOL_REQUIRED : REQUEST_TOOL_AUTO;
    for (const json_value *tool = names ? names->child : NULL; tool && !f->error->set; tool = tool->next) {
        const json_value *fn = json_member(tool, "function"), *name = json_member(fn ? fn : tool, "name");
        if (!name || name->kind != JSON_TEXT) {
            return fields_fail(f->error, v->key, "%s: a tool of allowed_tools must be a function with a name", v->key);
        }
        add_name(r, f, v->key, name, list);
    }
    return !f->error->set;
}

static bool read_choice(request *r, fields *f, const json_value *list)
{
    const json_value *v = f->error->set ? NULL : fields_find(f, NAMES_TOOL_CHOICE);
    fields_bool(f, "parallel_tool_calls", &r->parallel_tools);
    if (!v || f->error->set) {
        return !f->error->set;
    }
    const char *word = v->kind == JSON_TEXT ? v->text : "";
    const json_value *fn = json_member(v, "function"), *name = json_member(fn ? fn : v, "name");
    const json_value *type = json_member(v, "type");
    if (type && type->kind == JSON_TEXT && strcmp(type->text, "allowed_tools") == 0) {
        return read_allowed(r, f, v, list);
    }
    if (v->kind == JSON_OBJECT && name && name->kind == JSON_TEXT) {
        r->tool_choice = REQUEST_TOOL_REQUIRED;
        return add_name(r, f, v->key, name, list);
    }
    if (strcmp(word, "required") == 0 || strcmp(word, "any") == 0) {
        r->tool_choice = REQUEST_TOOL_REQUIRED;
        return r->tool_count > 0
            || fields_fail(f->error, v->key, "%s is '%s', but there are no tools", v->key, word);
    }
    r->tool_choice = strcmp(word, "none") == 0 ? REQUEST_TOOL_NONE : REQUEST_TOOL_AUTO;
    return strcmp(word, "none") == 0 || strcmp(word, "auto") == 0
        || fields_fail(f->error, v->key, "%s must be none, auto, required, a named function or allowed_tools", v->key);
}

/* *at: where r->texts has the list. */
static bool read_tools(request *r, fields *f, size_t *at)
{
    const json_value *list = tool_list(f);
    *at = r->texts.bytes;
    buffer_array(&r->texts, NULL);
    for (const json_value *tool = list ? list->child : NULL; tool; tool = tool->next) {
        if (!read_tool(r, tool, list->key, f->error)) {
            return false;
        }
    }
    buffer_end(&r->texts);
    if (r->texts.failed) {
        return no_memory(f->error);
    }
    if (memchr(r->texts.data + *at, 0, r->texts.bytes - *at)) {
        return fields_fail(f->error, "tools", "tools must not have a zero byte");
    }
    buffer_add(&r->texts, "", 1);
    return read_choice(r, f, list);
}

/* ---- variables and the beginning of the reply ---- */

static bool has_variable(const json_value *given, const char *name)
{
    return given && json_member(given, name);
}

/* A variable from a field of the request, under its own name or another one; template_vars come first. */
static bool read_variable(request *r, fields *f, const json_value *given, const char *field, const char *name)
{
    const json_value *v = f->error->set ? NULL : fields_find(f, field);
    if (v && v->kind != JSON_TEXT && v->kind != JSON_TRUE && v->kind != JSON_FALSE) {
        return fields_fail(f->error, field, "%s must be a text or a boolean", field);
    }
    if (v && !has_variable(given, name)) {
        buffer_raw(&r->texts, name, v->raw, v->raw_bytes);
    }
    return !f->error->set;
}

/* reasoning: {"effort", "enabled", "max_tokens"}; the flat fields come first. */
static bool read_reasoning(request *r, fields *f, const json_value *given)
{
    const json_value *reasoning = NULL;
    int64_t budget;
    if (!fields_object(f, "reasoning", &reasoning)) {
        return !f->error->set;
    }
    fields inside = { reasoning, f->error };
    if (!fields_find(f, "reasoning_effort")) {
        read_variable(r, &inside, given, "effort", "reasoning_effort");
    }
    if (!fields_find(f, "enable_thinking")) {
        read_variable(r, &inside, given, "enabled", "enable_thinking");
    }
    if (fields_whole(&inside, "max_tokens", -2e9, 1e9, &budget)) {
        r->reasoning_budget = budget < 0 ? -1 : budget;
    }
    fields_within(f->error, "reasoning");
    return !f->error->set;
}

static bool read_variables(request *r, fields *f, size_t *at)
{
    static const char *const flat[] = { "reasoning_effort", "enable_thinking", "verbosity", "preserve_thinking" };
    const json_value *given = NULL;
    fields_object(f, NAMES_VARIABLES, &given);
    *at = r->texts.bytes;
    buffer_object(&r->texts, NULL);
    for (const json_value *v = given ? given->child : NULL; v; v = v->next) {
        buffer_raw(&r->texts, v->key, v->raw, v->raw_bytes);
    }
    for (size_t i = 0; i < sizeof flat / sizeof flat[0]; i++) {
        if (!read_variable(r, f, given, flat[i], flat[i])) {
            return false;
        }
    }
    if (!read_reasoning(r, f, given)) {
        return false;
    }
    buffer_end(&r->texts);
    return end_text(r, *at, f->error);
}

static bool read_beginning(request *r, fields *f)
{
    bool continues = false, opening = true;
    fields_text(f, "response_prefix", &r->prefix, NULL);
    fields_bool(f, NAMES_CONTINUE, &continues);
    fields_bool(f, "add_generation_prompt", &opening);
    if (f->error->set || !continues) {
        r->close_reply = !opening;
        return !f->error->set
            && (!r->close_reply || !r->prefix
                || fields_fail(f->error, "response_prefix", "response_prefix needs add_generation_prompt"));
    }
    const exl2_message *last = &r->messages[r->message_count - 1];
    if (r->prefix) {
        return fields_fail(f->error, "response_prefix",
                           "response_prefix and continue_final_message exclude each other");
    }
    if (strcmp(last->role, "assistant") != 0 || !last->text) {
        return fields_fail(f->error, "continue_final_message",
                           "the last message is none of the assistant's with a text");
    }
    r->begun_reply = true;
    return true;
}

static const char *settled(const request *r, const char *offset_and_1)
{
    return offset_and_1 ? r->texts.data + ((uintptr_t)offset_and_1 - 1) : NULL;
}

/* Lets the messages point to their texts, which do not move any more, and to the handles of their pictures. */
static bool settle_messages(request *r, request_error *error)
{
    r->images = r->picture_count ? calloc(r->picture_count, sizeof *r->images) : NULL;
    if (r->picture_count && !r->images) {
        return no_memory(error);
    }
    exl2_image *images = r->images;
    for (size_t i = 0; i < r->message_count; i++) {
        exl2_message *m = &r->messages[i];
        m->text = settled(r, m->text);
        m->tool_calls = settled(r, m->tool_calls);
        m->fields = settled(r, m->fields);
        m->images = m->image_count ? images : NULL;
        images += m->image_count;
    }
    return true;
}

bool request_read_chat(request *r, fields *f)
{
    size_t tools_at = 0, variables_at = 0;
    int64_t budget;
    if (!request_read_messages(r, json_member(r->tree, "messages"), f->error) || !read_tools(r, f, &tools_at)
        || !read_variables(r, f, &variables_at) || !read_beginning(r, f)) {
        return false;
    }
    if (fields_whole(f, NAMES_REASONING_BUDGET, -2e9, 1e9, &budget)) {
        r->reasoning_budget = budget < 0 ? -1 : budget;
    }
    r->tools = r->tool_count ? r->texts.data + tools_at : NULL;
    r->variables = r->texts.data + variables_at;
    return settle_messages(r, f->error);
}

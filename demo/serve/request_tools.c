/* request_tools.c: the tools of a chat, and which of them must be called.
   takes: the tree of a request.
   gives: request_read_tools of request.h.
   owns:  nothing; what it makes lies in the request. */
#include "request.h"

#include "request_names.h"

#include <string.h>

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

static bool read_choice(request *r, fields *f, const json_value *list)
{
    const json_value *v = f->error->set ? NULL : fields_find(f, NAMES_TOOL_CHOICE);
    fields_bool(f, "parallel_tool_calls", &r->parallel_tools);
    if (!v || f->error->set) {
        return !f->error->set;
    }
    const char *word = v->kind == JSON_TEXT ? v->text : "";
    const json_value *fn = json_member(v, "function"), *name = json_member(fn ? fn : v, "name");
    if (v->kind == JSON_OBJECT && name && name->kind == JSON_TEXT) {
        r->tool_choice = REQUEST_TOOL_REQUIRED;
        r->tool_name = name->text;
        return has_tool(list, name->text)
            || fields_fail(f->error, v->key, "%s names '%.60s', which is none of the tools", v->key, name->text);
    }
    if (strcmp(word, "required") == 0 || strcmp(word, "any") == 0) {
        r->tool_choice = REQUEST_TOOL_REQUIRED;
        return r->tool_count > 0
            || fields_fail(f->error, v->key, "%s is '%s', but there are no tools", v->key, word);
    }
    r->tool_choice = strcmp(word, "none") == 0 ? REQUEST_TOOL_NONE : REQUEST_TOOL_AUTO;
    return strcmp(word, "none") == 0 || strcmp(word, "auto") == 0
        || fields_fail(f->error, v->key, "%s must be none, auto, required or a named function", v->key);
}

bool request_read_tools(request *r, fields *f, size_t *at)
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
        return fields_fail(f->error, NULL, "there is no memory left for this request");
    }
    if (memchr(r->texts.data + *at, 0, r->texts.bytes - *at)) {
        return fields_fail(f->error, "tools", "tools must not have a zero byte");
    }
    buffer_add(&r->texts, "", 1);
    return read_choice(r, f, list);
}

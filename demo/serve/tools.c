/* tools.c: the formats of calls, the tools of a request, and a call as it is being written; see tools.h.
   takes: the tools of a request, a template's text, the JSON of a call so far.
   gives: tools_of_template, tools_marks_of, tools_open, tools_close, tools_find, tools_may_begin,
          tools_stream_next, tools_stream_free of tools.h.
   owns:  the tree of a tools. */
#include "tools.h"

#include "exl2.h"

#include <stdio.h>
#include <string.h>

/* ---- formats ---- */

const tools_marks *tools_marks_of(tools_format format)
{
    static const tools_marks hermes = { .mark = "<tool_call>", .after = "\n", .forced = "<tool_call>\n",
                                        .close = "\n</tool_call>", .arguments = "arguments", .again = true };
    static const tools_marks llama3 = { .mark = "<|python_tag|>", .after = "", .forced = "", .close = "",
                                        .arguments = "parameters" };
    static const tools_marks mistral = { .mark = "[TOOL_CALLS]", .after = "", .forced = "[TOOL_CALLS]", .close = "",
                                         .arguments = "arguments", .list = true };
    return format == TOOLS_LLAMA3 ? &llama3 : format == TOOLS_MISTRAL ? &mistral : &hermes;
}

tools_format tools_of_template(const char *text)
{
    bool hermes = !text || strstr(text, "<tool_call>");
    bool llama3 = !hermes && (strstr(text, "<|python_tag|>") || strstr(text, "\"parameters\":"));
    bool mistral = !hermes && !llama3 && strstr(text, "[TOOL_CALLS]");
    return llama3 ? TOOLS_LLAMA3 : mistral ? TOOLS_MISTRAL : TOOLS_HERMES;
}

bool tools_may_begin(tools_format format, const char *text, size_t bytes)
{
    size_t spaces = 0;
    while (spaces < bytes && text[spaces] && strchr(" \n\t\r", text[spaces])) {
        spaces++;
    }
    return format == TOOLS_LLAMA3 && (spaces == bytes || text[spaces] == '{');
}

/* ---- the tools of a request ---- */

static bool read_tool(const json_value *item, tools_tool *out)
{
    const json_value *fn = json_member(item, "function"), *name = json_member(fn, "name");
    const json_value *strict = json_member(fn, "strict"), *parameters = json_member(fn, "parameters");
    if (!name || name->kind != JSON_TEXT) {
        return false;
    }
    bool empty = parameters && parameters->kind == JSON_OBJECT && !parameters->child;
    *out = (tools_tool){ name->text, empty ? NULL : parameters, strict && strict->kind == JSON_TRUE, false };
    return true;
}

bool tools_open(tools *t, const char *json)
{
    const char *error;
    t->tree = json_read(json, strlen(json), &error);
    bool good = t->tree && t->tree->kind == JSON_ARRAY && t->tree->child_count <= TOOLS_MAX;
    for (const json_value *item = good ? t->tree->child : NULL; item && good; item = item->next) {
        good = read_tool(item, &t->tool[t->count]);
        t->count += good;
    }
    if (!good) {
        tools_close(t);
    }
    return good;
}

void tools_keep(tools *t, const char *const *names, uint32_t count)
{
    for (uint32_t i = 0; i < t->count && count; i++) {
        bool kept = false;
        for (uint32_t j = 0; j < count && !kept; j++) {
            kept = strcmp(names[j], t->tool[i].name) == 0;
        }
        t->tool[i].barred = !kept;
    }
}

void tools_close(tools *t)
{
    json_free(t->tree);
    *t = (tools){ 0 };
}

const tools_tool *tools_find(const tools *t, const char *name, size_t bytes)
{
    for (uint32_t i = 0; i < t->count; i++) {
        if (!t->tool[i].barred && strlen(t->tool[i].name) == bytes && memcmp(t->tool[i].name, name, bytes) == 0) {
            return &t->tool[i];
        }
    }
    return NULL;
}

/* ---- a call as it is being written ---- */

/* Reads the value at `member` of the current call into s->value. false: it has not begun, or no memory. */
static bool read_value(tools_stream *s, bool list, const char *member, const char *json, size_t bytes, bool *whole)
{
    char path[64];
    size_t need = 0;
    if (list) {
        snprintf(path, sizeof path, "/%u/%s", (unsigned)s->call, member);
    } else {
        snprintf(path, sizeof path, "/%s", member);
    }
    exl2_json_text(json, bytes, path, NULL, 0, &need, whole);
    buffer_clear(&s->value);
    if (need == 0 && !*whole) {
        return false;
    }
    buffer_room(&s->value, need);
    if (s->value.failed) {
        return false;
    }
    exl2_json_text(json, bytes, path, s->value.data, s->value.cap, &need, whole);
    s->value.bytes = need;
    return true;
}

bool tools_stream_next(tools_stream *s, tools_format format, const char *json, size_t bytes, tools_piece *out)
{
    const tools_marks *marks = tools_marks_of(format);
    bool whole = false;
    if (!s->named) {
        if (!read_value(s, marks->list, "name", json, bytes, &whole) || !whole) {
            return false;
        }
        s->named = true;
        *out = (tools_piece){ .call = s->call, .name = s->value.data };
        return true;
    }
    if (!read_value(s, marks->list, marks->arguments, json, bytes, &whole)) {
        return false;
    }
    if (s->value.bytes > s->sent) {
        *out = (tools_piece){ .call = s->call, .text = s->value.data + s->sent, .bytes = s->value.bytes - s->sent };
        s->sent = s->value.bytes;
        return true;
    }
    if (!whole || !marks->list) {
        return false;
    }
    s->call++; /* the list's next call, if there is one */
    s->named = false;
    s->sent = 0;
    return tools_stream_next(s, format, json, bytes, out);
}

void tools_stream_free(tools_stream *s)
{
    buffer_free(&s->value);
    *s = (tools_stream){ 0 };
}

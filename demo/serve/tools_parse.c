/* tools_parse.c: calls out of a whole reply that no grammar has bound; see tools.h.
   takes: the text of a reply, the tools of its request.
   gives: tools_parse, tools_parsed_free of tools.h.
   owns:  nothing.

   A reply is read from left to right. At each mark one or several calls are tried; if they are good, they leave the
   text, else the mark is text like any other and reading goes on behind it. */
#include "tools.h"

#include <stdlib.h>
#include <string.h>

#define TRIES_MAX 64u /* marks at which a call is tried: each may cost a pass over the rest of the reply */

typedef struct parser {
    const tools *tools;
    const tools_marks *marks;
    const char *text; /* of the reply */
    size_t bytes;
    tools_parsed *out;
    size_t name_at[TOOLS_CALLS_MAX], arguments_at[TOOLS_CALLS_MAX]; /* in out->texts, which moves while it grows */
} parser;

static size_t skip_space(const parser *p, size_t at)
{
    while (at < p->bytes && p->text[at] && strchr(" \n\t\r", p->text[at])) {
        at++;
    }
    return at;
}

static bool has(const parser *p, size_t at, const char *word)
{
    size_t bytes = strlen(word);
    return bytes && p->bytes - at >= bytes && memcmp(p->text + at, word, bytes) == 0;
}

/* Offset after the object or array at `at`; 0: there is none, or it does not end. */
static size_t value_end(const parser *p, size_t at)
{
    size_t depth = 0;
    bool quoted = false;
    if (at >= p->bytes || (p->text[at] != '{' && p->text[at] != '[')) {
        return 0;
    }
    for (; at < p->bytes; at++) {
        char c = p->text[at];
        if (quoted) {
            at += c == '\\';
            quoted = c != '"';
            continue;
        }
        quoted = c == '"';
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        if (depth == 0) {
            return at + 1;
        }
    }
    return 0;
}

/* ---- one call ---- */

/* Adds the arguments of a call as text. false: they are no object, or memory ran out. */
static bool add_arguments(buffer *texts, const json_value *arguments)
{
    const char *error;
    if (!arguments) { /* a tool without arguments */
        buffer_add(texts, "{}", 3);
        return !texts->failed;
    }
    if (arguments->kind == JSON_OBJECT) {
        buffer_add(texts, arguments->raw, arguments->raw_bytes);
        buffer_add(texts, "", 1);
        return !texts->failed;
    }
    bool is_text = arguments->kind == JSON_TEXT;
    json_value *inside = is_text ? json_read(arguments->text, arguments->text_bytes, &error) : NULL;
    bool good = inside && inside->kind == JSON_OBJECT;
    json_free(inside);
    texts->failed = texts->failed || (is_text && error == json_no_memory);
    buffer_add(texts, good ? arguments->text : "", (good ? arguments->text_bytes : 0) + 1);
    return good && !texts->failed;
}

static bool add_call(parser *p, const json_value *call)
{
    tools_parsed *out = p->out;
    const json_value *name = json_member(call, "name"), *arguments = json_member(call, "arguments");
    const json_value *parameters = json_member(call, "parameters");
    bool known = name && name->kind == JSON_TEXT && tools_find(p->tools, name->text, name->text_bytes);
    if (!known || out->count == TOOLS_CALLS_MAX) {
        return false;
    }
    p->name_at[out->count] = out->texts.bytes;
    buffer_add(&out->texts, name->text, name->text_bytes + 1);
    p->arguments_at[out->count] = out->texts.bytes;
    if (!add_arguments(&out->texts, arguments ? arguments : parameters)) {
        return false;
    }
    out->call[out->count].bytes = out->texts.bytes - 1 - p->arguments_at[out->count];
    out->count++;
    return true;
}

/* Reads the call, or the list of calls, in [at, end). All of them are good, or none is taken. */
static bool add_value(parser *p, size_t at, size_t end, bool list)
{
    const char *error;
    uint32_t count = p->out->count;
    size_t bytes = p->out->texts.bytes;
    json_value *tree = json_read(p->text + at, end - at, &error);
    bool good = tree && tree->kind == (list ? JSON_ARRAY : JSON_OBJECT) && tree->child;
    for (const json_value *call = !good ? NULL : list ? tree->child : tree; call && good; call = call->next) {
        good = add_call(p, call);
    }
    json_free(tree);
    p->out->texts.failed = p->out->texts.failed || error == json_no_memory;
    if (!good) {
        p->out->count = count;
        buffer_cut(&p->out->texts, bytes);
    }
    return good;
}

/* ---- formats: each returns the offset after the calls that begin at `at`; 0: there is none ---- */

static size_t take_hermes(parser *p, size_t at)
{
    static const char close[] = "</tool_call>";
    if (!has(p, at, p->marks->mark)) {
        return 0;
    }
    at = skip_space(p, at + strlen(p->marks->mark));
    size_t end = value_end(p, at), after = end ? skip_space(p, end) : 0;
    bool closed = end && has(p, after, close);
    if (!end || (!closed && after < p->bytes) || !add_value(p, at, end, false)) {
        return 0;
    }
    return closed ? after + sizeof close - 1 : after;
}

static size_t take_mistral(parser *p, size_t at)
{
    if (!has(p, at, p->marks->mark)) {
        return 0;
    }
    at = skip_space(p, at + strlen(p->marks->mark));
    size_t end = value_end(p, at);
    bool list = end && p->text[at] == '[';
    return end && add_value(p, at, end, list) ? end : 0;
}

/* Calls with semicolons between them, up to the end of the reply. They begin at the mark, or at the reply's first
   byte. */
static size_t take_llama3(parser *p, size_t at)
{
    uint32_t count = p->out->count;
    size_t bytes = p->out->texts.bytes;
    bool marked = has(p, at, p->marks->mark);
    if (!marked && at > 0) {
        return 0;
    }
    at = skip_space(p, at + (marked ? strlen(p->marks->mark) : 0));
    while (at < p->bytes) {
        size_t end = value_end(p, at);
        if (!end || !add_value(p, at, end, false)) {
            p->out->count = count;
            buffer_cut(&p->out->texts, bytes);
            return 0;
        }
        at = skip_space(p, end);
        at = skip_space(p, at + has(p, at, ";"));
    }
    return p->out->count > count ? at : 0;
}

bool tools_parse(const tools *t, tools_format format, const char *text, size_t bytes, tools_parsed *out)
{
    parser p = { .tools = t, .marks = tools_marks_of(format), .text = text, .bytes = bytes, .out = out };
    size_t plain = 0; /* text from here on is not in the content yet */
    uint32_t tries = t->count && format != TOOLS_NONE ? TRIES_MAX : 0;
    for (size_t at = 0; at < bytes && tries;) {
        tries -= has(&p, at, p.marks->mark);
        size_t end = format == TOOLS_LLAMA3 ? take_llama3(&p, at)
                   : format == TOOLS_MISTRAL ? take_mistral(&p, at)
                                             : take_hermes(&p, at);
        if (end) {
            buffer_add(&out->content, text + plain, at - plain);
            plain = end;
        }
        at = end ? end : at + 1;
    }
    buffer_add(&out->content, text + plain, bytes - plain);
    if (out->count) {
        size_t spaces = strspn(out->content.data ? out->content.data : "", " \n\t\r");
        buffer_drop(&out->content, spaces);
        while (out->content.bytes && strchr(" \n\t\r", out->content.data[out->content.bytes - 1])) {
            buffer_cut(&out->content, out->content.bytes - 1);
        }
    }
    for (uint32_t i = 0; i < out->count; i++) {
        out->call[i].name = out->texts.data + p.name_at[i];
        out->call[i].arguments = out->texts.data + p.arguments_at[i];
    }
    return !out->content.failed && !out->texts.failed;
}

void tools_parsed_free(tools_parsed *p)
{
    buffer_free(&p->content);
    buffer_free(&p->texts);
    *p = (tools_parsed){ 0 };
}

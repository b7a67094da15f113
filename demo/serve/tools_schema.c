/* tools_schema.c: the schema that a call must fit, and leaving out of it what cannot be enforced; see tools.h.
   takes: the tools of a request, a message of exl2_grammar_make.
   gives: tools_schema, tools_relax of tools.h.
   owns:  nothing. */
#include "tools.h"

#include <stdlib.h>
#include <string.h>

/* ---- the schema ---- */

/* Does a schema say by itself what kind of value it is about? */
static bool says_kind(const json_value *schema)
{
    static const char *const words[] = { "type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (json_member(schema, words[i])) {
            return true;
        }
    }
    return false;
}

static void put_parameters(buffer *out, const char *key, const json_value *schema, uint32_t index)
{
    bool is_object = schema && schema->kind == JSON_OBJECT;
    const json_value *properties = json_member(schema, "properties");
    bool open_ended = json_member(schema, "additionalProperties") || json_member(schema, "patternProperties");
    buffer_object(out, key);
    if (is_object && !json_member(schema, "$id")) {
        char id[24] = "tool:";
        size_t at = 5;
        id[at++] = (char)('0' + index / 100 % 10);
        id[at++] = (char)('0' + index / 10 % 10);
        id[at++] = (char)('0' + index % 10);
        buffer_text(out, "$id", id, at);
    }
    if (!is_object || !says_kind(schema)) {
        buffer_name(out, "type", "object");
    }
    for (const json_value *v = is_object ? schema->child : NULL; v; v = v->next) {
        buffer_raw(out, v->key, v->raw, v->raw_bytes);
    }
    if (properties && properties->kind == JSON_OBJECT && !properties->child && !open_ended) {
        buffer_bool(out, "additionalProperties", false); /* a tool without arguments; the engine would take any */
    }
    buffer_end(out);
}

static void put_tool(buffer *out, const tools_tool *tool, const char *arguments, uint32_t index)
{
    buffer_object(out, NULL);
    buffer_name(out, "type", "object");
    buffer_object(out, "properties");
    buffer_object(out, "name");
    buffer_name(out, "const", tool->name);
    buffer_end(out);
    put_parameters(out, arguments, tool->parameters, index);
    buffer_end(out);
    buffer_array(out, "required");
    buffer_name(out, NULL, "name");
    buffer_name(out, NULL, arguments);
    buffer_end(out);
    buffer_bool(out, "additionalProperties", false);
    buffer_end(out);
}

bool tools_schema(const tools *t, tools_format format, uint32_t most, buffer *out)
{
    const tools_marks *marks = tools_marks_of(format);
    buffer_object(out, NULL);
    if (marks->list) {
        buffer_name(out, "type", "array");
        buffer_uint(out, "minItems", 1);
        buffer_uint(out, "maxItems", most ? most : 1);
        buffer_object(out, "items");
    }
    buffer_array(out, "anyOf");
    for (uint32_t i = 0; i < t->count; i++) {
        if (!t->tool[i].barred) {
            put_tool(out, &t->tool[i], marks->arguments, i);
        }
    }
    buffer_end(out);
    if (marks->list) {
        buffer_end(out);
    }
    buffer_end(out);
    return !out->failed;
}

/* ---- leaving out what cannot be enforced ---- */

/* Offset of the place that a message names; SIZE_MAX: it names none. Columns are code points. */
static size_t place_of(const char *message, const char *text, size_t bytes)
{
    const char *line_at = strstr(message, "line "), *column_at = line_at ? strstr(line_at, ", column ") : NULL;
    unsigned long line = line_at ? strtoul(line_at + 5, NULL, 10) : 0;
    unsigned long column = column_at ? strtoul(column_at + 9, NULL, 10) : 0;
    size_t at = 0;
    for (; line > 1 && at < bytes; at++) {
        line -= text[at] == '\n';
    }
    for (; column > 1 && at < bytes; column--) {
        size_t count = buffer_character(text + at, bytes - at);
        at += count ? count : 1;
    }
    return line == 1 && column == 1 && at < bytes ? at : SIZE_MAX;
}

/* Where a member or an item begins: with its key, or with the comma before it. */
static const char *begin_of(const json_value *parent, const json_value *before)
{
    return before ? before->raw + before->raw_bytes : parent->raw + 1;
}

typedef struct spot { /* a member of an object */
    const json_value *parent, *before, *member;
    bool is_name; /* the member is the name of a property or a definition, and its value a schema */
} spot;

/* Are the members of a keyword's value names, and not keywords? */
static bool has_names(const char *keyword)
{
    static const char *const maps[] = { "properties", "patternProperties", "$defs", "definitions" };
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++) {
        if (strcmp(keyword, maps[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* The innermost member of a schema at `place`; member NULL: none. */
static spot find_spot(const json_value *schema, const char *place)
{
    spot found = { 0 };
    bool is_map = false; /* the members of `at` are names */
    for (const json_value *at = schema; at;) {
        const json_value *before = NULL, *v = at->child;
        while (v && v->raw + v->raw_bytes <= place) {
            before = v;
            v = v->next;
        }
        if (!v || place < begin_of(at, before)) {
            return found;
        }
        bool names_next = at->kind == JSON_OBJECT && !is_map && v->kind == JSON_OBJECT && has_names(v->key);
        if (at->kind == JSON_OBJECT) {
            found = (spot){ at, before, v, is_map };
        }
        is_map = names_next;
        at = v;
    }
    return found;
}

/* Replaces [from, from + bytes) of the schema. */
static void replace(buffer *schema, size_t from, size_t bytes, const char *by)
{
    buffer rest = { 0 };
    buffer_add(&rest, schema->data + from + bytes, schema->bytes - from - bytes);
    schema->failed = schema->failed || rest.failed;
    buffer_cut(schema, from);
    buffer_string(schema, by);
    buffer_add(schema, rest.data, rest.bytes);
    buffer_free(&rest);
}

static void take_out(buffer *schema, const spot *s)
{
    size_t from = (size_t)(begin_of(s->parent, s->before) - schema->data);
    size_t end = (size_t)(s->member->raw - schema->data) + s->member->raw_bytes;
    if (s->is_name) {
        from = (size_t)(s->member->raw - schema->data);
    } else if (!s->before && s->member->next) { /* the comma after it, too */
        end = (size_t)((const char *)memchr(schema->data + end, ',', schema->bytes - end) + 1 - schema->data);
    }
    replace(schema, from, end - from, s->is_name ? "{}" : "");
}

/* The schema of the arguments in that of a call, and the tool; NULL: none. */
static const json_value *arguments_of(const tools *t, const json_value *call, const tools_tool **tool)
{
    const json_value *properties = json_member(call, "properties");
    const json_value *name = json_member(json_member(properties, "name"), "const");
    *tool = name && name->kind == JSON_TEXT ? tools_find(t, name->text, name->text_bytes) : NULL;
    return *tool ? properties->child->next : NULL; /* as put_tool writes it */
}

/* The first schema of a call in that of the reply; the others follow it. NULL: none. */
static const json_value *first_call(const json_value *tree)
{
    const json_value *items = json_member(tree, "items");
    const json_value *calls = json_member(items ? items : tree, "anyOf");
    return calls ? calls->child : NULL;
}

static const json_value *find_arguments(const tools *t, const json_value *tree, const char *place,
                                        const tools_tool **tool)
{
    for (const json_value *call = first_call(tree); call; call = call->next) {
        const json_value *arguments = arguments_of(t, call, tool);
        if (arguments && place >= arguments->raw && place < arguments->raw + arguments->raw_bytes) {
            return arguments;
        }
    }
    return NULL;
}

/* The first member `keyword` of a schema and of those inside of it; member NULL: none. json_in.h limits the depth. */
static spot find_keyword(const json_value *at, const char *keyword, bool is_map)
{
    spot found = { 0 };
    const json_value *before = NULL;
    for (const json_value *v = at->child; v && !found.member; before = v, v = v->next) {
        if (at->kind == JSON_OBJECT && !is_map && strcmp(v->key, keyword) == 0) {
            return (spot){ at, before, v, false };
        }
        found = find_keyword(v, keyword, at->kind == JSON_OBJECT && !is_map && has_names(v->key));
    }
    return found;
}

/* A regular expression that cannot be compiled has its place inside of the expression, so it is not known which one it
   is: the first one goes. */
static const json_value *find_pattern(const tools *t, const json_value *tree, const char *keyword, spot *out,
                                      const tools_tool **tool)
{
    for (const json_value *call = first_call(tree); call; call = call->next) {
        const json_value *arguments = arguments_of(t, call, tool);
        *out = arguments && !(*tool)->strict ? find_keyword(arguments, keyword, false) : (spot){ 0 };
        if (out->member) {
            return arguments;
        }
    }
    return NULL;
}

bool tools_relax(const tools *t, buffer *schema, const char *message, buffer *warnings)
{
    static const char any[] = "{\"type\":\"object\"}";
    const char *error, *pattern = strstr(message, "schema: pattern");
    const tools_tool *tool = NULL;
    const json_value *arguments = NULL;
    spot s = { 0 };
    size_t bytes = schema->bytes, warned = warnings->bytes;
    json_value *tree = json_read(schema->data, schema->bytes, &error);
    if (tree && pattern) {
        bool of_names = strncmp(pattern + 15, "Properties", 10) == 0;
        arguments = find_pattern(t, tree, of_names ? "patternProperties" : "pattern", &s, &tool);
    } else if (tree) {
        size_t place = place_of(message, schema->data, schema->bytes);
        arguments = place == SIZE_MAX ? NULL : find_arguments(t, tree, schema->data + place, &tool);
        s = arguments ? find_spot(arguments, schema->data + place) : s;
    }
    if (arguments && !tool->strict) {
        buffer_format(warnings, "%s%.60s: %.60s", warned ? ", " : "", tool->name,
                      s.member ? s.member->key : "parameters");
        if (s.member) {
            take_out(schema, &s);
        } else {
            replace(schema, (size_t)(arguments->raw - schema->data), arguments->raw_bytes, any);
        }
    }
    json_free(tree);
    if (schema->bytes < bytes && !schema->failed && !warnings->failed) {
        return true;
    }
    buffer_cut(warnings, warned);
    return false;
}

/* overrides_yaml.c: YAML of two levels as JSON: all that presets of sampling overrides use of it.
   takes: the text of a file.
   gives: overrides_yaml of overrides.h.
   owns:  nothing.

   field:
     override: a number, true, false, null, text with or without quotes, [a, list]
     force: true
   A value may also be a list of lines that begin with "- ". Comments begin with #. Anchors, several documents, texts of
   several lines and deeper levels are errors. */
#include "overrides.h"

#include <string.h>

typedef struct yaml {
    const char *at, *end; /* of the text */
    uint32_t line;
    buffer *out;
    request_error *error;
    bool in_field, in_list; /* what is open in *out */
    bool wants_value;       /* the line before was "key:", so that a list may follow */
    char key[64];
} yaml;

static bool fail(yaml *y, const char *what)
{
    return fields_fail(y->error, NULL, "the overrides, line %u: %s", (unsigned)y->line, what);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Takes a comment and white space off the end. A # counts after white space and outside of quotes. */
static size_t content_bytes(const char *text, size_t bytes)
{
    char quote = 0;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (quote) {
            i += c == '\\' && quote == '"';
            quote = c == quote ? 0 : quote;
        } else if (c == '#' && (i == 0 || is_space(text[i - 1]))) {
            bytes = i;
        } else if ((c == '"' || c == '\'') && (i == 0 || strchr(" [,:", text[i - 1]))) {
            quote = c;
        }
    }
    while (bytes && is_space(text[bytes - 1])) {
        bytes--;
    }
    return bytes;
}

static bool is_word(const char *text, size_t bytes, const char *const words[3])
{
    for (int i = 0; i < 3; i++) {
        if (strlen(words[i]) == bytes && memcmp(text, words[i], bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* 'text' with '' for a quote. */
static bool put_single_quoted(yaml *y, const char *key, const char *text, size_t bytes)
{
    buffer plain = { 0 };
    bool ends = bytes >= 2 && text[bytes - 1] == '\'';
    for (size_t i = 1; ends && i + 1 < bytes; i++) {
        bool twice = text[i] == '\'';
        ends = !twice || (i + 2 < bytes && text[i + 1] == '\'');
        buffer_add(&plain, text + i, 1);
        i += twice;
    }
    if (ends) {
        buffer_text(y->out, key, plain.data ? plain.data : "", plain.bytes);
    }
    y->out->failed = y->out->failed || plain.failed;
    buffer_free(&plain);
    return ends || fail(y, "a text in quotes does not end");
}

/* A value that is no list. */
static bool put_scalar(yaml *y, const char *key, const char *text, size_t bytes)
{
    static const char *const yes[] = { "true", "True", "TRUE" }, *const no[] = { "false", "False", "FALSE" };
    static const char *const nothing[] = { "null", "~", "" };
    const char *why;
    if (bytes && text[0] == '\'') {
        return put_single_quoted(y, key, text, bytes);
    }
    if (is_word(text, bytes, yes) || is_word(text, bytes, no)) {
        buffer_bool(y->out, key, is_word(text, bytes, yes));
        return true;
    }
    if (is_word(text, bytes, nothing)) {
        buffer_null(y->out, key);
        return true;
    }
    json_rules rules = { .strict_numbers = true };
    json_value *json = json_read_rules(text, bytes, &rules, &why);
    bool is_json = json && (json->kind == JSON_NUMBER || json->kind == JSON_TEXT || json->kind == JSON_ARRAY
                            || json->kind == JSON_OBJECT);
    json_free(json);
    if (is_json) {
        buffer_raw(y->out, key, text, bytes);
        return true;
    }
    if (!json && why == json_no_memory) {
        return fail(y, json_no_memory);
    }
    if (strchr("\"[]{}&*!|>%@`", text[0])) {
        return fail(y, "this value is not understood");
    }
    buffer_text(y->out, key, text, bytes);
    return true;
}

/* [a, 'b', "c"] whose items are no JSON. */
static bool put_value(yaml *y, const char *key, const char *text, size_t bytes)
{
    const char *why = NULL;
    bool list = bytes >= 2 && text[0] == '[' && text[bytes - 1] == ']';
    json_value *json = list ? json_read(text, bytes, &why) : NULL;
    json_free(json);
    if (!list || json || why == json_no_memory) {
        return why == json_no_memory ? fail(y, why) : put_scalar(y, key, text, bytes);
    }
    buffer_array(y->out, key);
    bool good = true;
    for (size_t at = 1, end; at + 1 < bytes && good; at = end + 1) {
        char quote = 0;
        for (end = at; end + 1 < bytes && (quote || text[end] != ','); end++) {
            char c = text[end];
            end += quote == '"' && c == '\\';
            quote = quote ? (c == quote ? 0 : quote) : c == '"' || c == '\'' ? c : 0;
        }
        end = end + 1 < bytes ? end : bytes - 1;
        size_t first = at;
        while (first < end && is_space(text[first])) {
            first++;
        }
        good = put_scalar(y, NULL, text + first, content_bytes(text + first, end - first));
    }
    buffer_end(y->out);
    return good;
}

static void close_list(yaml *y)
{
    if (y->in_list) {
        buffer_end(y->out);
    } else if (y->wants_value) {
        buffer_null(y->out, y->key);
    }
    y->in_list = y->wants_value = false;
}

/* "key: value", or "key:" before a level or a list. */
static bool put_member(yaml *y, const char *text, size_t bytes, bool field)
{
    char key[64];
    const char *colon = memchr(text, ':', bytes);
    size_t key_bytes = colon ? (size_t)(colon - text) : 0, after = key_bytes + 1;
    bool quoted = key_bytes >= 2 && (text[0] == '"' || text[0] == '\'') && text[key_bytes - 1] == text[0];
    size_t copied = quoted ? key_bytes - 2 : key_bytes;
    if (!copied || copied >= sizeof key || (after < bytes && !is_space(text[after]))) {
        return fail(y, "there is no 'name: value'");
    }
    memcpy(key, text + quoted, copied);
    key[copied] = 0;
    while (after < bytes && is_space(text[after])) {
        after++;
    }
    if (field) {
        bool none = bytes - after == 2 && memcmp(text + after, "{}", 2) == 0;
        if (after < bytes && !none) {
            return fail(y, "a field has no value of its own, but override, force and additive below it");
        }
        buffer_object(y->out, key);
        y->in_field = true;
        return true;
    }
    if (after < bytes) {
        return put_value(y, key, text + after, bytes - after);
    }
    memcpy(y->key, key, copied + 1);
    y->wants_value = true;
    return true;
}

static bool put_line(yaml *y, const char *text, size_t bytes)
{
    size_t indent = 0;
    while (indent < bytes && text[indent] == ' ') {
        indent++;
    }
    text += indent;
    bytes = content_bytes(text, bytes - indent);
    if (bytes == 0 || (indent == 0 && bytes == 3 && memcmp(text, "---", 3) == 0)) {
        return true;
    }
    if (text[0] == '\t') {
        return fail(y, "a tab indents it");
    }
    if (text[0] == '-' && (bytes == 1 || is_space(text[1]))) {
        size_t first = 1;
        while (first < bytes && is_space(text[first])) {
            first++;
        }
        if (!y->wants_value && !y->in_list) {
            return fail(y, "this item belongs to no list");
        }
        if (!y->in_list) {
            buffer_array(y->out, y->key);
            y->in_list = true;
            y->wants_value = false;
        }
        return put_scalar(y, NULL, text + first, bytes - first);
    }
    close_list(y);
    if (indent == 0 && y->in_field) {
        buffer_end(y->out);
        y->in_field = false;
    }
    if (indent > 0 && !y->in_field) {
        return fail(y, "it is indented below nothing");
    }
    return put_member(y, text, bytes, indent == 0);
}

bool overrides_yaml(const char *text, size_t bytes, buffer *out, request_error *error)
{
    yaml y = { .at = text, .end = text + bytes, .out = out, .error = error };
    bool good = true;
    buffer_object(out, NULL);
    while (y.at < y.end && good) {
        const char *line_end = memchr(y.at, '\n', (size_t)(y.end - y.at));
        line_end = line_end ? line_end : y.end;
        y.line++;
        good = put_line(&y, y.at, (size_t)(line_end - y.at));
        y.at = line_end + (line_end < y.end);
    }
    if (good) {
        close_list(&y);
        buffer_end(out);
        if (y.in_field) {
            buffer_end(out);
        }
    }
    return good && (!out->failed || fail(&y, "there is no memory left"));
}

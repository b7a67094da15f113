/* tools_text.c: see tools_text.h.
   takes: messages, the tools of a request.
   gives: what tools_text.h declares.
   owns:  the new messages and their texts. */
#include "tools_text.h"

#include <stdlib.h>
#include <string.h>

/* The wording is that of the models which were trained on the hermes format. */
static void put_system(buffer *b, const tools *t, const tools_marks *marks)
{
    bool marked = marks->forced[0] != 0;
    buffer_string(b, "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided "
                     "with function signatures within <tools></tools> XML tags:\n<tools>\n");
    for (const json_value *tool = t->tree ? t->tree->child : NULL; tool; tool = tool->next) {
        buffer_add(b, tool->raw, tool->raw_bytes);
        buffer_string(b, "\n");
    }
    buffer_string(b, "</tools>\n\nFor each function call, return a json object with function name and arguments");
    buffer_format(b, "%s\n%s%s{\"name\": <function-name>, \"%s\": <args-json-object>}%s%s",
                  marked ? " in this form:" : ", and nothing else:", marks->forced, marks->list ? "[" : "",
                  marks->arguments, marks->list ? "]" : "", marks->close);
}

static void put_calls(buffer *b, const json_value *calls, const tools_marks *marks)
{
    buffer_string(b, marks->list ? marks->forced : "");
    buffer_string(b, marks->list ? "[" : "");
    for (const json_value *call = calls->child; call; call = call->next) {
        const json_value *fn = json_member(call, "function"), *name = json_member(fn, "name");
        const json_value *arguments = json_member(fn, "arguments");
        if (call != calls->child) {
            buffer_string(b, marks->list ? ", " : "\n");
        }
        buffer_string(b, marks->list ? "" : marks->forced);
        buffer_string(b, "{\"name\": ");
        buffer_text(b, NULL, name ? name->text : "", name ? name->text_bytes : 0);
        buffer_format(b, ", \"%s\": ", marks->arguments);
        buffer_add(b, arguments ? arguments->raw : "{}", arguments ? arguments->raw_bytes : 2);
        buffer_string(b, "}");
        buffer_string(b, marks->list ? "" : marks->close);
    }
    buffer_string(b, marks->list ? "]" : "");
}

/* The text of a reply with calls. */
static bool put_reply(buffer *b, const exl2_message *message, const tools_marks *marks)
{
    const char *error;
    json_value *calls = json_read(message->tool_calls, strlen(message->tool_calls), &error);
    if (message->text && message->text[0]) {
        buffer_string(b, message->text);
        buffer_string(b, "\n");
    }
    if (calls) {
        put_calls(b, calls, marks);
    }
    json_free(calls);
    return calls != NULL;
}

static bool has_role(const exl2_message *message, const char *role)
{
    return message->role && strcmp(message->role, role) == 0;
}

/* A result with pictures stays as its parts are. */
static bool is_text_result(const exl2_message *message)
{
    return has_role(message, "tool") && message->image_count == 0;
}

bool tools_text_messages(const tools *t, tools_format format, const exl2_message *messages, size_t count,
                         tools_text *out)
{
    const tools_marks *marks = tools_marks_of(format);
    bool leads = count && has_role(&messages[0], "system");
    size_t *at = calloc(count + 1, sizeof *at); /* offset of a text that is made here + 1; 0: it was copied */
    bool good = at != NULL;
    out->messages = calloc(count + 1, sizeof *out->messages);
    if (!out->messages || !at) {
        free(at);
        return false;
    }
    if (t) {
        at[0] = 1;
        out->messages[out->count++] = leads ? messages[0] : (exl2_message){ .role = "system" };
        if (leads && messages[0].text && messages[0].text[0]) {
            buffer_string(&out->texts, messages[0].text);
            buffer_string(&out->texts, "\n\n");
        }
        put_system(&out->texts, t, marks);
        buffer_add(&out->texts, "", 1);
    }
    for (size_t i = t && leads; i < count && good; i++) {
        exl2_message message = messages[i];
        bool result = is_text_result(&message), follows = result && i > 0 && is_text_result(&messages[i - 1]);
        size_t begin = out->texts.bytes + 1;
        if (result) { /* consecutive results are one turn */
            buffer_cut(&out->texts, out->texts.bytes - follows);
            buffer_string(&out->texts, follows ? "\n<tool_response>\n" : "<tool_response>\n");
            buffer_string(&out->texts, message.text ? message.text : "");
            buffer_string(&out->texts, "\n</tool_response>");
            message = (exl2_message){ .role = "user" };
        } else if (message.tool_calls) {
            good = put_reply(&out->texts, &message, marks);
            message.tool_calls = NULL;
        } else {
            begin = 0;
            message.role = has_role(&message, "tool") ? "user" : message.role;
        }
        if (begin) {
            buffer_add(&out->texts, "", 1);
        }
        if (!follows) {
            at[out->count] = begin;
            out->messages[out->count++] = message;
        }
    }
    good = good && !out->texts.failed;
    for (size_t i = 0; i < out->count && good; i++) {
        out->messages[i].text = at[i] ? out->texts.data + at[i] - 1 : out->messages[i].text;
    }
    free(at);
    return good;
}

/* ---- short ids ---- */

#define SHORT_ID 9u

static void add_short(buffer *b, const char *id)
{
    char out[SHORT_ID];
    size_t at = SHORT_ID;
    for (size_t i = strlen(id); i > 0 && at > 0; i--) {
        char c = id[i - 1];
        if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
            out[--at] = c;
        }
    }
    memset(out, '0', at);
    buffer_add(b, out, SHORT_ID);
}

/* Calls as request_read_messages writes them, with their ids replaced. */
static bool add_calls(buffer *b, const char *json)
{
    const char *error, *copied = json;
    json_value *calls = json_read(json, strlen(json), &error);
    for (const json_value *call = calls ? calls->child : NULL; call; call = call->next) {
        const json_value *id = json_member(call, "id");
        if (id && id->kind == JSON_TEXT) {
            buffer_add(b, copied, (size_t)(id->raw - copied));
            buffer_string(b, "\"");
            add_short(b, id->text);
            buffer_string(b, "\"");
            copied = id->raw + id->raw_bytes;
        }
    }
    buffer_string(b, copied);
    json_free(calls);
    return calls != NULL;
}

bool tools_text_short_ids(exl2_message *messages, size_t count, buffer *texts)
{
    size_t *at = calloc(2 * count + 1, sizeof *at); /* offset of the calls and of the id of each message + 1; 0: none */
    bool good = at != NULL;
    for (size_t i = 0; i < count && good; i++) {
        if (messages[i].tool_calls) {
            at[2 * i] = texts->bytes + 1;
            good = add_calls(texts, messages[i].tool_calls);
            buffer_add(texts, "", 1);
        }
        if (messages[i].tool_call_id && good) {
            at[2 * i + 1] = texts->bytes + 1;
            add_short(texts, messages[i].tool_call_id);
            buffer_add(texts, "", 1);
        }
    }
    good = good && !texts->failed;
    for (size_t i = 0; i < count && good; i++) {
        messages[i].tool_calls = at[2 * i] ? texts->data + at[2 * i] - 1 : messages[i].tool_calls;
        messages[i].tool_call_id = at[2 * i + 1] ? texts->data + at[2 * i + 1] - 1 : messages[i].tool_call_id;
    }
    free(at);
    return good;
}

void tools_text_free(tools_text *t)
{
    free(t->messages);
    buffer_free(&t->texts);
    *t = (tools_text){ 0 };
}

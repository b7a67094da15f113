/* call_tools.c: tools of a chat: what the template gets of them, the schema of a call, and calls as they are written.
   takes: a choice, the tools of its request.
   gives: turn_tools_begin, turn_call_text, turn_held_end, turn_is_marker of call_turn.h.
   owns:  nothing. */
#include "call_turn.h"

#include "answer.h"
#include "call_prepare.h"

#include <stdio.h>
#include <string.h>

#define RELAX_MAX 64 /* keywords that may be left out of one request's tools */

bool turn_is_marker(const choice *c, const char *text)
{
    const engine_load *l = &c->call->model->load;
    exl2_token ids[4];
    size_t count = 0, need = 1;
    exl2_result result = exl2_tokenize(l->text, l->text_model, text, strlen(text), EXL2_TEXT_NO_BOS, ids, 4, &count);
    return result >= 0 && count == 1
        && exl2_detokenize(l->text, l->text_model, ids, 1, EXL2_TEXT_SKIP_MARKERS, NULL, 0, &need) >= 0 && need == 0;
}

/* Compiles the schema with the I/O thread's engine; what a tool that is not strict asks for in vain is left out. */
static bool make_schema(choice *c, turn *t, request_error *error)
{
    call *whole = c->call;
    const engine_load *l = &whole->model->load;
    const request *r = &whole->request;
    uint32_t most = r->parallel_tools ? CALL_TOOLS_MAX : 1;
    buffer again = { 0 }, *warnings = c->index == 0 ? &whole->request.warnings : &again; /* each is said once */
    if (!tools_schema(&t->tools, t->format, most, &t->schema)) {
        return fields_fail(error, NULL, "there is no memory left for this request");
    }
    for (int i = 0; i < RELAX_MAX; i++) {
        exl2_grammar g;
        exl2_error why;
        exl2_grammar_desc d = { .model = l->text_model, .kind = EXL2_GRAMMAR_JSON_SCHEMA, .source = t->schema.data,
                                .source_bytes = t->schema.bytes, .prefer_end = true };
        if (exl2_grammar_make(l->text, &d, &g) >= 0) {
            exl2_grammar_close(l->text, g);
            buffer_free(&again);
            return true;
        }
        exl2_last_error(l->text, &why);
        if (!tools_relax(&t->tools, &t->schema, why.text, warnings)) {
            fields_fail(error, "tools", "%s", why.text);
            error->code = "invalid_grammar";
            buffer_free(&again);
            return false;
        }
    }
    buffer_free(&again);
    return fields_fail(error, "tools", "the schemas of the tools have too many keywords that are not supported");
}

/* Does the template read tools? Another one than the model's is rendered with them and without. */
static bool reads_tools(const choice *c)
{
    const engine_load *l = &c->call->model->load;
    const exl2_prompt *p = &c->run.desc.prompt;
    exl2_chat_desc chat = c->run.desc.chat;
    size_t with = 0, without = 0;
    if (!chat.template_text) {
        return l->info.reads_tools;
    }
    exl2_result result =
        exl2_chat_render(l->text, l->text_model, p->messages, p->message_count, &chat, NULL, 0, &with);
    chat.tools = NULL;
    return result < 0 /* the job says why */
        || exl2_chat_render(l->text, l->text_model, p->messages, p->message_count, &chat, NULL, 0, &without) < 0
        || with != without;
}

bool turn_tools_begin(choice *c, turn *t, request_error *error)
{
    const call *whole = c->call;
    const request *r = &whole->request;
    exl2_job_desc *d = &c->run.desc;
    tools_format format = (tools_format)whole->server->options->tools;
    if (!r->tools || format == TOOLS_NONE) {
        d->chat.tools = format == TOOLS_NONE ? NULL : d->chat.tools;
        return true;
    }
    if (!tools_open(&t->tools, r->tools)) {
        return fields_fail(error, "tools", "tools must be a list of {\"type\":\"function\",\"function\":{...}}");
    }
    tools_keep(&t->tools, r->tool_names, r->tool_name_count);
    const char *text = call_template(whole);
    t->format = format == TOOLS_AUTO ? tools_of_template(text) : format;
    t->marks = tools_marks_of(t->format);
    if (!reads_tools(c)) {
        if (!tools_text_messages(&t->tools, t->format, r->messages, r->message_count, &t->text)) {
            return fields_fail(error, NULL, "there is no memory left for this request");
        }
        d->chat.tools = NULL;
        d->prompt.messages = t->text.messages;
        d->prompt.message_count = t->text.count;
    }
    t->calls = r->tool_choice != REQUEST_TOOL_NONE;
    return !t->calls || make_schema(c, t, error);
}

/* ---- calls as they are written ---- */

static bool new_call(choice *c, const char *name)
{
    char id[25];
    if (c->call_count == CALL_TOOLS_MAX) {
        return false;
    }
    tool_call *one = &c->calls[c->call_count++];
    server_id(c->call->server, id);
    snprintf(one->id, sizeof one->id, "call_%s", id);
    buffer_string(&one->name, name);
    if (one->name.failed) {
        call_lacks_memory(c->call);
        return false;
    }
    answer_call(c);
    return true;
}

void turn_call_text(choice *c, turn *t, const char *text, size_t bytes)
{
    tools_piece piece;
    buffer_add(&t->json, text, bytes);
    while (!t->json.failed && tools_stream_next(&t->stream, t->format, t->json.data, t->json.bytes, &piece)) {
        if (piece.name) {
            if (!new_call(c, piece.name)) {
                return;
            }
        } else {
            answer_arguments(c, piece.text, piece.bytes);
        }
    }
    if (t->json.failed || t->stream.value.failed) {
        call_lacks_memory(c->call);
    }
}

void turn_held_end(choice *c, turn *t)
{
    tools_parsed parsed = { 0 };
    if (!t->held.bytes) {
        return;
    }
    if (!t->calls || !tools_parse(&t->tools, t->format, t->held.data, t->held.bytes, &parsed)) {
        answer_content(c, t->held.data, t->held.bytes, NULL);
    } else {
        if (parsed.content.bytes) {
            answer_content(c, parsed.content.data, parsed.content.bytes, NULL);
        }
        uint32_t most = c->call->request.parallel_tools ? CALL_TOOLS_MAX : 1;
        for (uint32_t i = 0; i < parsed.count && c->call_count < most && new_call(c, parsed.call[i].name); i++) {
            answer_arguments(c, parsed.call[i].arguments, parsed.call[i].bytes);
        }
    }
    if (parsed.content.failed || parsed.texts.failed) {
        call_lacks_memory(c->call);
    }
    buffer_clear(&t->held);
    tools_parsed_free(&parsed);
}

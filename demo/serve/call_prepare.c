/* call_prepare.c: see call_prepare.h. Texts above 16 KiB become ids here, with the I/O thread's own engine, so that no
   call on the engine's thread takes long; but not beside pictures, which that engine does not know.
   takes: a choice, its request.
   gives: call_prepare, call_choice_free, call_headers, call_echo, call_template, call_earlier.
   owns:  ids of prompts, until call_choice_free. */
#include "call_prepare.h"

#include "answer.h"
#include "models.h"
#include "tools_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG_TEXT (16u << 10) /* bytes; longer prompts are tokenized here */

const char *call_template(const call *c)
{
    return c->template_text ? c->template_text : c->model->template_text;
}

/* Does the template in use read earlier calls? The model says so of its own one; another is rendered with a call and
   without. */
static bool reads_calls(const server *s, const model *m)
{
    const engine_load *l = &m->load;
    const exl2_chat_desc chat = { .template_text = s->template_text };
    exl2_message probe[] = { { .role = "user", .text = "a" }, { .role = "assistant", .text = "" } };
    size_t with = 0, without = 0;
    if (!s->template_text) {
        return l->info.reads_tool_calls;
    }
    exl2_result result = exl2_chat_render(l->text, l->text_model, probe, 2, &chat, NULL, 0, &without);
    probe[1].tool_calls = "[{\"id\":\"000000000\","
                          "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{}}}]";
    return result < 0 /* the job says why */
        || exl2_chat_render(l->text, l->text_model, probe, 2, &chat, NULL, 0, &with) < 0 || with != without;
}

static bool has_calls(const request *r)
{
    bool any = false;
    for (size_t i = 0; i < r->message_count; i++) {
        any = any || r->messages[i].tool_calls;
    }
    return any;
}

bool call_earlier(const server *s, const model *m, request *r)
{
    tools_format format = (tools_format)s->options->tools;
    format = format == TOOLS_AUTO ? tools_of_template(models_template(s, m)) : format;
    if (!has_calls(r)) {
        return true;
    }
    if (reads_calls(s, m)) {
        return format != TOOLS_MISTRAL || tools_text_short_ids(r->messages, r->message_count, &r->calls);
    }
    tools_text text = { 0 };
    if (!tools_text_messages(NULL, format, r->messages, r->message_count, &text)) {
        tools_text_free(&text);
        return false;
    }
    free(r->messages);
    r->messages = text.messages;
    r->message_count = text.count;
    r->calls = text.texts;
    return true;
}

static size_t length(const char *text)
{
    return text ? strlen(text) : 0;
}

static size_t prompt_bytes(const choice *c)
{
    const request *r = &c->call->request;
    size_t bytes = length(r->tools);
    if (r->kind == REQUEST_COMPLETION) {
        return r->prompts[c->prompt].bytes;
    }
    for (size_t i = 0; i < r->message_count; i++) {
        const exl2_message *m = &r->messages[i];
        bytes += length(m->text) + length(m->reasoning) + length(m->tool_calls);
    }
    return bytes;
}

static bool is_first_of_prompt(const choice *c)
{
    return c->index % c->call->request.n == 0;
}

/* The prompt's ids; they replace text and messages in the desc. */
static bool to_ids(choice *c, request_error *error)
{
    const engine_load *l = &c->call->model->load;
    exl2_prompt *p = &c->run.desc.prompt;
    exl2_result result = engine_ids(l->text, l->text_model, p, &c->run.desc.chat, &c->ids, &c->id_count);
    if (result == EXL2_ERR_MEMORY) {
        return fields_fail(error, NULL, "there is no memory left for this request");
    }
    if (result < 0) {
        exl2_error why;
        exl2_last_error(l->text, &why);
        return fields_fail(error, p->messages ? "messages" : "prompt", "%s", why.text);
    }
    *p = (exl2_prompt){ .tokens = c->ids, .token_count = c->id_count };
    return true;
}

static void set_prompt(choice *c)
{
    const request *r = &c->call->request;
    exl2_job_desc *d = &c->run.desc;
    if (r->kind == REQUEST_COMPLETION) {
        const request_prompt *p = &r->prompts[c->prompt];
        d->prompt = (exl2_prompt){ .text = p->tokens ? NULL : p->text, .text_bytes = p->bytes, .tokens = p->tokens,
                                   .token_count = p->token_count, .flags = r->no_bos ? EXL2_TEXT_NO_BOS : 0 };
        return;
    }
    d->prompt = (exl2_prompt){ .messages = r->messages, .message_count = r->message_count, .text = r->prefix,
                               .text_bytes = length(r->prefix) };
    d->chat = (exl2_chat_desc){ .tools = r->tools, .variables = r->variables, .begun_reply = r->begun_reply,
                                .close_reply = r->close_reply,
                                .template_text = c->call->template_text };
}

static void set_limits(choice *c)
{
    const call *whole = c->call;
    const request *r = &whole->request;
    engine_run *run = &c->run;
    exl2_job_desc *d = &run->desc;
    run->max_tokens = r->max_tokens;
    run->no_end = r->no_end;
    d->min_tokens = r->min_tokens;
    d->prefill_only = r->no_new_tokens;
    d->score_prompt = r->echo && r->logprobs;
    d->show_markers = r->show_markers;
    d->heal_prompt = r->heal;
    d->stop_strings = r->stops;
    d->stop_string_count = r->stop_count;
    d->stop_tokens = r->stop_tokens;
    d->stop_token_count = r->stop_token_count;
    d->ban_strings = r->bans;
    d->ban_string_count = r->ban_count;
    d->alts_per_token = r->logprobs ? r->top_logprobs : 0;
    d->loras = whole->uses;
    d->lora_count = whole->use_count;
    run->loras_epoch = whole->uses_epoch;
    d->sampler = r->sampling.desc;
    if (d->sampler.seed) {
        d->sampler.seed += c->index % r->n;
    }
    d->draft.ngram = whole->server->options->ngram && r->guidance == 0;
    if (r->guidance != 0) {
        d->guidance = (float)r->guidance;
        d->negative_prompt.text = r->negative ? r->negative : "";
    }
    if (r->has_grammar) {
        run->has_grammar = true;
        run->grammar = (exl2_grammar_desc){ .kind = r->grammar, .source = r->source, .source_bytes = r->source_bytes,
                                            .strict = r->strict, .prefer_end = r->grammar == EXL2_GRAMMAR_JSON_SCHEMA };
    }
}

void call_prepare(choice *c, request_error *error)
{
    call *whole = c->call;
    const request *r = &whole->request;
    engine_run *run = &c->run;
    run->user = c;
    run->load = &whole->model->load;
    set_prompt(c);
    set_limits(c);
    c->echoes = r->echo;
    run->counts = r->counts;
    if (r->counts) { /* the ids of the prompt are the answer */
        return;
    }
    if (r->kind != REQUEST_COMPLETION && !call_turn_begin(c, error)) {
        return;
    }
    if (!is_first_of_prompt(c)) { /* the choices of a prompt share its ids */
        const choice *first = &whole->choices[c->index - c->index % r->n];
        run->twin = &whole->choices[first->index].run;
        c->ids = first->ids;
        c->id_count = first->id_count;
        if (c->ids) {
            run->desc.prompt = first->run.desc.prompt;
        }
    } else if (!r->picture_count && !run->desc.prompt.tokens
               && (prompt_bytes(c) > LONG_TEXT || (r->echo && r->logprobs))) {
        if (!to_ids(c, error)) {
            return;
        }
    } else if (run->desc.prompt.tokens && r->echo && r->logprobs) { /* ids of the request */
        c->ids = malloc((run->desc.prompt.token_count + 1) * sizeof *c->ids);
        if (!c->ids) {
            fields_fail(error, NULL, "there is no memory left for this request");
            return;
        }
        c->id_count = run->desc.prompt.token_count;
        memcpy(c->ids, run->desc.prompt.tokens, c->id_count * sizeof *c->ids);
    }
    if (run->desc.score_prompt) {
        answer_logprobs_prompt(c, NULL);
    }
}

void call_choice_free(choice *c)
{
    call_turn_free(c);
    engine_run_free(c->call->server->engine, &c->run);
    if (is_first_of_prompt(c)) {
        free(c->ids);
    }
    buffer *const all[] = { &c->content,        &c->reasoning,  &c->logprobs, &c->token_texts,
                            &c->token_logprobs, &c->token_tops, &c->token_offsets };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        buffer_free(all[i]);
    }
    for (uint32_t i = 0; i < c->call_count; i++) {
        buffer_free(&c->calls[i].name);
        buffer_free(&c->calls[i].arguments);
    }
}

void call_headers(const call *c, char *out, size_t cap)
{
    const buffer *w = &c->request.warnings;
    char names[401];
    size_t bytes = w->bytes < sizeof names ? w->bytes : sizeof names - 1;
    for (size_t i = 0; i < bytes; i++) { /* the names of tools are the client's: a line end would begin a field */
        names[i] = w->data[i] < ' ' || w->data[i] > '~' ? '?' : w->data[i];
    }
    names[bytes] = 0;
    snprintf(out, cap, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n%s%s%s",
             bytes ? "X-Warning: not supported and ignored: " : "", names, bytes ? "\r\n" : "");
}

void call_echo(choice *c)
{
    const engine_load *l = &c->call->model->load;
    const request_prompt *p = &c->call->request.prompts[c->prompt];
    c->echoes = false;
    if (!p->tokens) {
        answer_echo(c, p->text, p->bytes);
        return;
    }
    size_t need = 0;
    exl2_detokenize(l->text, l->text_model, p->tokens, p->token_count, 0, NULL, 0, &need);
    char *text = malloc(need + 1);
    if (text && exl2_detokenize(l->text, l->text_model, p->tokens, p->token_count, 0, text, need + 1, &need) >= 0) {
        answer_echo(c, text, need);
    }
    free(text);
}

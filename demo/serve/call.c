/* call.c: see call.h. The life of a request: begin, records of its runs, end.
   takes: an exchange, a model, a request; records of the engine's thread.
   gives: what call.h declares.
   owns:  all calls, until their runs have ended. */
#include "call.h"

#include "../common/clock.h"
#include "adapters.h"
#include "answer.h"
#include "call_prepare.h"
#include "metrics.h"
#include "models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the end ---- */

static void cancel_runs(call *c)
{
    for (uint32_t i = 0; i < c->count; i++) {
        if (!c->choices[i].ended) {
            engine_cancel(c->server->engine, &c->choices[i].run);
        }
    }
}

void call_fail(call *c, int status, const char *code, const char *message)
{
    if (c->failed) {
        return;
    }
    c->failed = true;
    cancel_runs(c);
    if (!c->x) {
        return;
    }
    http_exchange *x = c->x;
    http_set_user(x, NULL);
    if (c->begun) {
        answer_error_event(c, status >= 500 ? "server_error" : "invalid_request_error", code, message);
        answer_end(c);
        c->x = NULL;
        http_stream_end(x);
    } else {
        c->x = NULL;
        endpoint_fail(x, status, code, message);
    }
    c->server->metrics.cancelled_error += status >= 500;
}

void call_lacks_memory(call *c)
{
    call_fail(c, 500, "out_of_memory", "There is no memory left for the answer.");
}

/* Is a part of its answer missing? */
static bool lacks_memory(const choice *c)
{
    bool lacks = c->content.failed || c->reasoning.failed || c->logprobs.failed || c->token_texts.failed
              || c->token_logprobs.failed || c->token_tops.failed || c->token_offsets.failed
              || c->call->responses.items.failed;
    for (uint32_t i = 0; i < c->call_count; i++) {
        lacks = lacks || c->calls[i].name.failed || c->calls[i].arguments.failed;
    }
    return lacks;
}

/* The pixels of its pictures are not needed any more. */
static void drop_pixels(call *c)
{
    c->server->picture_bytes -= c->request.picture_bytes;
    request_free_pixels(&c->request);
}

static void free_call(call *c)
{
    for (uint32_t i = 0; i < c->count; i++) {
        call_choice_free(&c->choices[i]);
    }
    *c->link = c->next;
    if (c->next) {
        c->next->link = c->link;
    }
    adapters_leave(c);
    c->model->calls--;
    drop_pixels(c);
    request_free(&c->request);
    free(c->template_text);
    buffer_free(&c->chunk);
    responses_free(&c->responses);
    free(c->choices);
    free((void *)c->runs);
    free(c);
}

static void answer_plain(call *c)
{
    buffer body = { 0 };
    http_exchange *x = c->x;
    char headers[768];
    call_headers(c, headers, sizeof headers);
    answer_whole(c, &body);
    if (body.failed) {
        call_lacks_memory(c);
    } else {
        c->x = NULL;
        http_set_user(x, NULL);
        http_answer(x, 200, "application/json", headers, body.data, body.bytes);
    }
    buffer_free(&body);
}

/* All runs have ended: the rest of the answer goes out. */
static void end_call(call *c)
{
    if (c->x && !c->failed && c->request.stream) {
        answer_end(c);
    }
    if (c->x && !c->failed && c->request.stream) {
        http_exchange *x = c->x;
        c->x = NULL;
        http_set_user(x, NULL);
        http_stream_end(x);
    } else if (c->x && !c->failed) {
        answer_plain(c);
    }
    metrics_add(&c->server->metrics.request, (double)(clock_ns() - c->begin_ns) * 1e-9);
    free_call(c);
}

/* ---- records ---- */

static void begin_stream(call *c)
{
    char headers[768];
    if (!c->request.stream || c->begun || !c->x) {
        return;
    }
    call_headers(c, headers, sizeof headers);
    c->begun = true;
    http_stream_begin(c->x, 200, "text/event-stream; charset=utf-8", headers, true);
    if (c->request.kind == REQUEST_COMPLETION) { /* a first byte, as a chat has its first chunk */
        static const char comment[] = ": keep-alive\n\n";
        http_stream_write(c->x, comment, sizeof comment - 1);
    }
}

static void on_started(choice *c, const engine_record *r)
{
    call *whole = c->call;
    if (c->started) { /* a job that goes on in the session: its prompt is text that was given */
        c->new_tokens += r->given_tokens;
        return;
    }
    c->started = true;
    c->prompt_tokens = r->prompt_tokens;
    drop_pixels(whole);
    begin_stream(whole);
    answer_started(c);
    if (whole->paused) {
        engine_pause(whole->server->engine, &c->run, true);
    }
    if (c->echoes && !whole->request.logprobs) {
        call_echo(c);
    }
}

static void on_refused(choice *c, const engine_record *r)
{
    char message[512];
    c->ended = true;
    c->call->ended++;
    if (r->result == EXL2_ERR_CANCELLED) {
        return;
    }
    bool ours_full = r->result == EXL2_ERR_CONTEXT_FULL || r->result == EXL2_ERR_ARG || r->result == EXL2_ERR_BUDGET;
    if (c->started && ours_full) { /* a job that was to go on: there is no room for it */
        c->stop = EXL2_STOP_LENGTH;
        answer_finish(c);
        return;
    }
    if (r->result == EXL2_ERR_CONTEXT_FULL && r->context_max) {
        snprintf(message, sizeof message,
                 "This model's maximum context length is %u tokens. However, the prompt has %u "
                 "tokens. Please shorten it.",
                 r->context_max, r->prompt_tokens);
        call_fail(c->call, 400, "context_length_exceeded", message);
        return;
    }
    bool ours = r->refusal == ENGINE_BY_MODEL || r->refusal == ENGINE_BY_MEMORY || r->result == EXL2_ERR_MEMORY
               || r->result == EXL2_ERR_DEVICE_MEMORY || r->result == EXL2_ERR_DEVICE_LOST
               || r->result == EXL2_ERR_INTERNAL || r->result == EXL2_ERR_STATE;
    int status = !ours ? 400 : r->refusal == ENGINE_BY_MODEL ? 503 : 500;
    const char *code = ours ? "engine_failed" : r->refusal == ENGINE_BY_GRAMMAR ? "invalid_grammar"
                     : r->result == EXL2_ERR_CONTEXT_FULL ? "context_length_exceeded" : "invalid_value";
    call_fail(c->call, status, code, r->text ? r->text : "");
}

static void on_text(choice *c, const engine_record *r)
{
    metrics *m = &c->call->server->metrics;
    uint64_t now = clock_ns();
    if (!c->last_ns) {
        metrics_add(&m->first_token, (double)(now - c->call->begin_ns) * 1e-9);
        c->first_ns = now;
    } else if (r->token_count) {
        metrics_add(&m->token, (double)(now - c->last_ns) * 1e-9 / r->token_count);
    }
    c->last_ns = now;
    if (c->echoes) {
        call_echo(c);
    }
    if (c->turn) {
        call_turn_text(c, r);
    } else {
        answer_content(c, r->text, r->bytes, r);
    }
    if (lacks_memory(c)) {
        call_lacks_memory(c->call);
    }
}

static void on_done(choice *c, const engine_record *r)
{
    bool first = c->prefill_ns == 0 && c->decode_ns == 0;
    c->stats = r->stats;
    c->stop = r->stop;
    c->new_tokens += r->stats.new_tokens;
    c->prefill_ns += r->stats.prefill_ns;
    c->decode_ns += r->stats.decode_ns;
    if (first) {
        c->cached_tokens = r->stats.reused_tokens;
        c->prompt_tokens = r->stats.prompt_tokens ? r->stats.prompt_tokens : c->prompt_tokens;
        c->call->server->metrics.tokens_reused += r->stats.reused_tokens;
    }
    bool cut = r->stop == EXL2_STOP_CANCELLED || r->result < 0;
    if (!cut && c->echoes) {
        call_echo(c);
    }
    if (!cut && !c->call->failed && c->turn && call_turn_done(c)) {
        return; /* another job follows in the session */
    }
    c->ended = true;
    c->call->ended++;
    if (r->result < 0 && r->result != EXL2_ERR_CANCELLED) {
        call_fail(c->call, 500, "engine_failed", r->text ? r->text : "The engine has failed.");
    } else if (cut && c->call->x) {
        call_fail(c->call, 503, "unloaded", "The model was unloaded while it wrote.");
    } else if (!cut && lacks_memory(c)) {
        call_lacks_memory(c->call);
    } else if (!cut) {
        answer_finish(c);
    }
}

static void on_ids(choice *c, const engine_record *r)
{
    c->ids = malloc(r->bytes + 1);
    if (!c->ids) {
        call_lacks_memory(c->call);
        return;
    }
    memcpy(c->ids, r->text, r->bytes);
    c->id_count = r->bytes / sizeof *c->ids;
}

void call_record(choice *c, const engine_record *r)
{
    switch (r->kind) {
    case ENGINE_STARTED: on_started(c, r); break;
    case ENGINE_REFUSED: on_refused(c, r); break;
    case ENGINE_SCORES: answer_logprobs_prompt(c, r); break;
    case ENGINE_TEXT: on_text(c, r); break;
    case ENGINE_IDS: on_ids(c, r); break;
    case ENGINE_VECTOR: break; /* of no call */
    case ENGINE_DONE: on_done(c, r); break;
    }
}

static void pause_runs(call *c, bool paused)
{
    c->paused = paused;
    for (uint32_t i = 0; i < c->count; i++) {
        if (!c->choices[i].ended) {
            engine_pause(c->server->engine, &c->choices[i].run, paused);
        }
    }
}

void call_records_end(choice *c)
{
    call *whole = c->call;
    if (whole->ended == whole->count) {
        end_call(whole);
    } else if (whole->x && whole->begun && !whole->paused && http_stream_pending(whole->x) > HTTP_FULL) {
        pause_runs(whole, true);
    }
}

void call_gone(call *c)
{
    c->x = NULL;
    c->server->metrics.cancelled_gone++;
    cancel_runs(c);
}

void call_room(call *c)
{
    if (c->paused) {
        pause_runs(c, false);
    }
}

void call_end_all(server *s, const char *why)
{
    for (call *c = s->calls; c; c = c->next) {
        s->metrics.cancelled_shutdown += !c->failed && c->x;
        call_fail(c, 503, "shutting_down", why);
    }
}

/* ---- the beginning ---- */

static call *make_call(server *s, http_exchange *x, model *m, request *r)
{
    call *c = calloc(1, sizeof *c);
    uint32_t count = r->kind == REQUEST_COMPLETION ? r->prompt_count * r->n : r->n;
    choice *choices = calloc(count, sizeof *choices);
    engine_run **runs = calloc(count, sizeof *runs);
    char *template_text = s->template_text ? buffer_copy(s->template_text, strlen(s->template_text)) : NULL;
    if (!c || !choices || !runs || (s->template_text && !template_text)
        || !call_earlier(s, m, r)) {
        free(template_text);
        free(c);
        free(choices);
        free((void *)runs);
        return NULL;
    }
    static const char *const prefixes[] = { "cmpl-", "chatcmpl-", "resp_" };
    char id[25];
    server_id(s, id);
    *c = (call){ .owner = { OWNER_CALL }, .server = s, .x = x, .model = m, .request = *r, .choices = choices,
                 .template_text = template_text,
                 .count = count, .runs = runs, .created = (int64_t)time(NULL), .begin_ns = clock_ns() };
    *r = (request){ 0 };
    c->batch = (engine_batch){ .runs = runs, .count = count, .pictures = c->request.pictures,
                               .images = c->request.images, .picture_count = c->request.picture_count };
    s->picture_bytes += c->request.picture_bytes;
    snprintf(c->id, sizeof c->id, "%s%s", prefixes[c->request.kind], id);
    for (uint32_t i = 0; i < count; i++) {
        choices[i] = (choice){ .call = c, .index = i, .prompt = i / c->request.n };
        runs[i] = &choices[i].run;
    }
    m->calls++;
    c->next = s->calls;
    c->link = &s->calls;
    if (c->next) {
        c->next->link = &c->next;
    }
    s->calls = c;
    return c;
}

void call_begin(server *s, http_exchange *x, model *m, request *r)
{
    request_error error = { 0 };
    if (s->stopping) {
        endpoint_fail(x, 503, "shutting_down", "The server is shutting down.");
    } else if (m->load.state != ENGINE_READY || !m->load.text || m->leaving || m->adapters_lost) {
        endpoint_fail(x, 503, "loading", "The model is not ready.");
    } else if (engine_waiting(s->engine) >= s->options->queue
               || (r->picture_count && s->picture_bytes + r->picture_bytes > SERVER_PICTURE_BYTES)) {
        endpoint_fail(x, 429, "queue_full", "Too many requests wait already. Try again later.");
    } else {
        call *c = make_call(s, x, m, r);
        if (!c) {
            endpoint_fail(x, 500, "out_of_memory", "There is no memory left for the request.");
            return;
        }
        adapters_join(c, &error);
        for (uint32_t i = 0; i < c->count && !error.set; i++) {
            call_prepare(&c->choices[i], &error);
        }
        if (error.set) {
            endpoint_bad(x, &error);
            c->x = NULL;
            free_call(c);
            return;
        }
        http_set_user(x, c);
        http_drop_body(x);
        engine_submit(s->engine, &c->batch);
    }
}

/* call_turn.c: the turn of a chat that has reasoning or tools: which job follows which, and what their texts are.
   takes: a choice of a chat.
   gives: call_turn_begin, call_turn_text, call_turn_done, call_turn_free of call_prepare.h.
   owns:  the turns. */
#include "call_turn.h"

#include "answer.h"
#include "call_prepare.h"

#include <stdlib.h>
#include <string.h>

#define PROBE_TOKENS 8u  /* in which a mark must have come */
#define AFTER_TOKENS 16u /* after a call, until the next mark */

/* ---- the beginning ---- */

/* Does the rendered prompt end inside of an open tag? Rendered only where the template writes such a tag. */
static bool opens(const choice *c, const turn *t)
{
    const call *whole = c->call;
    const engine_load *l = &whole->model->load;
    const exl2_prompt *p = &c->run.desc.prompt;
    const char *text = call_template(whole);
    size_t need = 0;
    bool inside = false;
    if (!text || !strstr(text, t->tags.open)) {
        return false;
    }
    exl2_result result =
        exl2_chat_render(l->text, l->text_model, p->messages, p->message_count, &c->run.desc.chat, NULL, 0, &need);
    char *out = result >= 0 ? malloc(need + 1) : NULL;
    if (out
        && exl2_chat_render(l->text, l->text_model, p->messages, p->message_count, &c->run.desc.chat, out, need + 1,
                            &need) >= 0) {
        inside = reasoning_opens(&t->tags, out, need);
    }
    free(out);
    return inside;
}

/* The text after the opening of the reply: it closes an open tag, unless it has that tag itself. */
static void begin_opening(const choice *c, turn *t, bool forced)
{
    const char *prefix = c->call->request.prefix;
    bool closes = t->inside && ((prefix && !strstr(prefix, t->tags.close)) || (!prefix && forced));
    if (closes) {
        buffer_string(&t->opening, t->tags.close);
        buffer_string(&t->opening, "\n\n");
    }
    buffer_string(&t->opening, prefix ? prefix : "");
    if (prefix || forced) {
        t->inside = prefix && !closes && reasoning_opens(&t->tags, prefix, strlen(prefix));
    }
    if (forced) {
        buffer_string(&t->opening, t->marks->forced);
    }
}

/* Sets what the desc has of a phase: stop strings, grammar, limit, what the text shows. */
static void set_phase(choice *c, turn *t, turn_phase phase)
{
    const request *r = &c->call->request;
    exl2_job_desc *d = &c->run.desc;
    engine_run *run = &c->run;
    uint32_t used = c->new_tokens + t->given_count;
    uint32_t left = r->max_tokens > used ? r->max_tokens - used : 0;
    const char *ours = phase == TURN_THINK ? t->tags.close
                     : (phase == TURN_FREE || phase == TURN_PROBE || phase == TURN_AFTER) && t->calls ? t->marks->mark
                                                                                                     : "";
    uint32_t count = phase == TURN_CALL || phase == TURN_AFTER ? 0 : r->stop_count;
    t->phase = phase;
    memcpy((void *)t->stops, (const void *)r->stops, count * sizeof t->stops[0]);
    t->stops[count] = ours;
    d->stop_strings = t->stops;
    d->stop_string_count = count + (*ours != 0);
    t->has_stop = *ours != 0;
    t->stop_at = count;
    run->no_end = r->no_end && (phase == TURN_FREE || phase == TURN_GRAMMAR);
    d->show_markers = r->show_markers || (*ours && turn_is_marker(c, ours))
                   || (t->tags.close[0] && phase == TURN_FREE && turn_is_marker(c, t->tags.close));
    run->max_tokens = r->max_tokens ? left : 0;
    uint32_t most = phase == TURN_PROBE ? PROBE_TOKENS : phase == TURN_AFTER ? AFTER_TOKENS : 0;
    if (phase == TURN_THINK && r->reasoning_budget >= 0) {
        most = r->reasoning_budget > 0 ? (uint32_t)r->reasoning_budget : 1;
    }
    run->max_tokens = most && (!run->max_tokens || most < run->max_tokens) ? most : run->max_tokens;
    run->has_grammar = phase == TURN_CALL || phase == TURN_GRAMMAR || (phase == TURN_HOLD && r->has_grammar);
    if (phase == TURN_CALL) {
        run->grammar = (exl2_grammar_desc){ .kind = EXL2_GRAMMAR_JSON_SCHEMA, .source = t->schema.data,
                                            .source_bytes = t->schema.bytes, .prefer_end = true };
        buffer_clear(&t->json);
        tools_stream_free(&t->stream);
        t->stream = (tools_stream){ 0 };
    } else if (run->has_grammar) {
        run->grammar = t->grammar;
    }
    if (phase == TURN_THINK || phase == TURN_FREE) {
        reasoning_free(&t->splitter);
        reasoning_begin(&t->splitter, &t->tags, t->inside);
    }
}

/* What comes where no reasoning is open (any more). */
static turn_phase after_thought(const turn *t)
{
    return !t->has_format ? TURN_FREE : t->calls ? TURN_PROBE : TURN_GRAMMAR;
}

bool call_turn_begin(choice *c, request_error *error)
{
    const call *whole = c->call;
    const request *r = &whole->request;
    const char *text = call_template(whole);
    turn *t = calloc(1, sizeof *t);
    if (!t) {
        return fields_fail(error, NULL, "there is no memory left for this request");
    }
    c->turn = t;
    const char *word = whole->server->options->reasoning;
    reasoning_tags_read(word ? word : "auto", text, &t->tags);
    t->has_format = r->has_grammar && !r->whole_text;
    t->grammar = c->run.grammar;
    if (!turn_tools_begin(c, t, error)) {
        return false;
    }
    t->inside = t->tags.open[0] && opens(c, t);
    bool forced = t->calls && r->tool_choice == REQUEST_TOOL_REQUIRED && !(r->has_grammar && r->whole_text);
    if (forced && r->begun_reply) {
        return fields_fail(error, "tool_choice", "tool_choice demands a call, which cannot continue a message");
    }
    if (!r->begun_reply) {
        begin_opening(c, t, forced);
        c->run.desc.prompt.text = t->opening.bytes ? t->opening.data : NULL;
        c->run.desc.prompt.text_bytes = t->opening.bytes;
    }
    if (t->opening.failed) {
        return fields_fail(error, NULL, "there is no memory left for this request");
    }
    turn_phase phase = r->has_grammar && r->whole_text ? TURN_HOLD : forced ? TURN_CALL : after_thought(t);
    bool thinks = t->inside && !forced && phase != TURN_HOLD && (t->has_format || r->reasoning_budget >= 0);
    phase = thinks ? TURN_THINK : phase;
    phase = phase == TURN_HOLD && !t->calls ? TURN_GRAMMAR : phase; /* all of its text is content */
    c->run.keeps_session = t->calls || thinks;
    set_phase(c, t, phase);
    return true;
}

/* ---- texts ---- */

static void content(choice *c, turn *t, const char *text, size_t bytes, const engine_record *r)
{
    if (!t->calls || t->plain) {
        answer_content(c, text, bytes, r);
        return;
    }
    buffer_add(&t->held, text, bytes);
    if (r) {
        answer_logprobs_add(c, r, "", 0);
    }
    if (t->held.failed) {
        call_lacks_memory(c->call);
    } else if (!tools_may_begin(t->format, t->held.data ? t->held.data : "", t->held.bytes)) {
        t->plain = true;
        answer_content(c, t->held.data ? t->held.data : "", t->held.bytes, NULL);
        buffer_clear(&t->held);
    }
}

/* Gives the parts that are certain. The tokens of a record belong to its first content. */
static void give_parts(choice *c, turn *t, const engine_record *r)
{
    reasoning_part part;
    bool thought = t->splitter.kind == REASONING_THOUGHT;
    const engine_record *left = r;
    while (reasoning_next(&t->splitter, &part)) {
        if (part.kind == REASONING_THOUGHT) {
            answer_reasoning(c, part.text, part.bytes);
        } else {
            content(c, t, part.text, part.bytes, left);
            left = NULL;
        }
    }
    thought = thought || t->splitter.kind == REASONING_THOUGHT;
    if (r && thought) {
        c->reasoning_tokens += r->token_count;
    } else if (left) {
        answer_logprobs_add(c, left, "", 0); /* its text is held back */
    }
    if (t->splitter.held.failed) {
        call_lacks_memory(c->call);
    }
}

void call_turn_text(choice *c, const engine_record *r)
{
    turn *t = c->turn;
    switch (t->phase) {
    case TURN_FREE:
    case TURN_THINK:
        reasoning_add(&t->splitter, r->text, r->bytes);
        give_parts(c, t, r);
        break;
    case TURN_HOLD:
        buffer_add(&t->held, r->text, r->bytes);
        if (t->held.failed) {
            call_lacks_memory(c->call);
        }
        break;
    case TURN_GRAMMAR: answer_content(c, r->text, r->bytes, r); break;
    case TURN_CALL: turn_call_text(c, t, r->text, r->bytes); break;
    case TURN_PROBE:
    case TURN_AFTER: break;
    }
}

/* ---- the next job ---- */

static uint32_t count_tokens(const choice *c, const buffer *text)
{
    const engine_load *l = &c->call->model->load;
    size_t count = 0;
    if (text->bytes) {
        exl2_tokenize(l->text, l->text_model, text->data, text->bytes, EXL2_TEXT_NO_BOS, NULL, 0, &count);
    }
    return (uint32_t)count;
}

/* Goes on in the session with this text. false: no token is left. */
static bool follow(choice *c, turn *t, turn_phase phase, const char *first, const char *second)
{
    const request *r = &c->call->request;
    exl2_job_desc *d = &c->run.desc;
    buffer_clear(&t->given);
    buffer_string(&t->given, first);
    buffer_string(&t->given, second);
    t->given_count = count_tokens(c, &t->given);
    if (t->given.failed) {
        call_lacks_memory(c->call);
        return false;
    }
    if (r->max_tokens && c->new_tokens + t->given_count >= r->max_tokens) {
        c->stop = EXL2_STOP_LENGTH;
        return false;
    }
    set_phase(c, t, phase);
    d->prompt = (exl2_prompt){ .text = t->given.bytes ? t->given.data : NULL, .text_bytes = t->given.bytes };
    d->chat = (exl2_chat_desc){ 0 };
    d->priority = 1;
    d->min_tokens = 0;
    d->heal_prompt = false;
    c->run.draws_back = false;
    return true;
}

static bool go_on(choice *c)
{
    engine_continue(c->call->server->engine, &c->run);
    return true;
}

static bool stopped_at_ours(const choice *c)
{
    const turn *t = c->turn;
    return t->has_stop && c->stop == EXL2_STOP_STRING && c->stats.stop_string == t->stop_at;
}

static bool begin_call(choice *c, turn *t)
{
    t->first_call = c->call_count;
    return follow(c, t, TURN_CALL, t->marks->mark, t->marks->after) && go_on(c);
}

static bool done_free(choice *c, turn *t)
{
    bool mark = stopped_at_ours(c);
    reasoning_finish(&t->splitter);
    give_parts(c, t, NULL);
    if (mark) {
        if (t->held.bytes) { /* text before the mark, which was no call */
            answer_content(c, t->held.data, t->held.bytes, NULL);
            buffer_clear(&t->held);
        }
        return begin_call(c, t);
    }
    turn_held_end(c, t);
    if (c->logprobs.bytes) {
        answer_content(c, "", 0, NULL);
    }
    return false;
}

static bool done_think(choice *c, turn *t)
{
    const request *r = &c->call->request;
    bool used_up = c->stop == EXL2_STOP_LENGTH && r->reasoning_budget >= 0
                && (!r->max_tokens || c->new_tokens < r->max_tokens);
    bool closes = stopped_at_ours(c) || used_up || (t->has_format && c->stop == EXL2_STOP_EOS);
    if (closes) {
        reasoning_add(&t->splitter, t->tags.close, strlen(t->tags.close));
    } else {
        reasoning_finish(&t->splitter);
    }
    give_parts(c, t, NULL);
    t->inside = false;
    return closes && follow(c, t, after_thought(t), t->tags.close, "\n\n") && go_on(c);
}

static bool done_probe(choice *c, turn *t)
{
    if (stopped_at_ours(c)) {
        return begin_call(c, t);
    }
    c->new_tokens -= c->stats.new_tokens; /* they are taken back */
    if (!follow(c, t, TURN_GRAMMAR, "", "")) {
        return false;
    }
    c->run.draws_back = true;
    return go_on(c);
}

static bool done_call(choice *c, turn *t)
{
    bool more = c->stop != EXL2_STOP_LENGTH && t->marks->again && c->call->request.parallel_tools
             && c->call_count < CALL_TOOLS_MAX && c->call_count > t->first_call;
    exl2_stop stop = c->stop;
    if (more && follow(c, t, TURN_AFTER, t->marks->close, "")) {
        return go_on(c);
    }
    c->stop = stop;
    return false;
}

static bool done_after(choice *c, turn *t)
{
    bool again = stopped_at_ours(c);
    c->stop = EXL2_STOP_EOS; /* the calls before are whole */
    return again && begin_call(c, t);
}

bool call_turn_done(choice *c)
{
    turn *t = c->turn;
    switch (t->phase) {
    case TURN_FREE: return done_free(c, t);
    case TURN_HOLD: turn_held_end(c, t); return false;
    case TURN_THINK: return done_think(c, t);
    case TURN_PROBE: return done_probe(c, t);
    case TURN_GRAMMAR: return false;
    case TURN_CALL: return done_call(c, t);
    case TURN_AFTER: return done_after(c, t);
    }
    return false;
}

void call_turn_free(choice *c)
{
    turn *t = c->turn;
    if (!t) {
        return;
    }
    reasoning_free(&t->splitter);
    tools_close(&t->tools);
    tools_text_free(&t->text);
    tools_stream_free(&t->stream);
    buffer_free(&t->schema);
    buffer_free(&t->json);
    buffer_free(&t->held);
    buffer_free(&t->opening);
    buffer_free(&t->given);
    free(t);
    c->turn = NULL;
}

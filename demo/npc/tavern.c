/* tavern.c: see tavern.h.
   takes: the engine's events.
   gives: what tavern.h declares.
   owns:  what tavern.h says.
   next:  transcript.c */
#include "tavern.h"

#include "../common/clock.h"
#include "../common/memory.h"
#include "recall.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VISITOR "Stranger"

/* ---- the play ---- */

static void add_talk(npc *n, const char *what, const char *text)
{
    size_t bytes = strlen(what) + strlen(text);
    n->talk = memory_grow(n->talk, n->talk_bytes + bytes + 1, 1);
    snprintf(n->talk + n->talk_bytes, bytes + 1, "%s%s", what, text);
    n->talk_bytes += bytes;
}

static void add_question(npc *n, const char *question)
{
    add_talk(n, "\n" VISITOR ": ", question);
    add_talk(n, "\n", n->who->name);
    add_talk(n, ":", "");
}

/* Forgets the older half of what was said. false: there is nothing but the newest question. */
static bool forget_half(npc *n)
{
    char *from = n->talk, *next = strstr(from + 1, "\n" VISITOR ": ");
    while (next && (size_t)(from - n->talk) < n->talk_bytes / 2) {
        from = next;
        next = strstr(from + 1, "\n" VISITOR ": ");
    }
    size_t cut = (size_t)(from - n->talk);
    n->talk_bytes -= cut;
    memmove(n->talk, from, n->talk_bytes + 1);
    return cut > 0;
}

/* ---- lines ---- */

static tavern_line *add_line(tavern *t, const npc *by, const char *to)
{
    if (t->count == t->cap) {
        t->cap = t->cap ? t->cap * 2 : 64;
        t->lines = memory_grow(t->lines, t->cap, sizeof *t->lines);
    }
    tavern_line *l = &t->lines[t->count++];
    *l = (tavern_line){ .by = by, .to = to, .asked_ns = clock_ns(), .cap = 256, .text = memory_take(256, 1) };
    return l;
}

static void add_text(tavern_line *l, const char *text, size_t bytes)
{
    while (l->bytes == 0 && bytes && isspace((unsigned char)*text)) {
        text++;
        bytes--;
    }
    if (l->bytes + bytes + 1 > l->cap) {
        l->cap = (l->bytes + bytes + 1) * 2;
        l->text = memory_grow(l->text, l->cap, 1);
    }
    memcpy(l->text + l->bytes, text, bytes);
    l->bytes += bytes;
    l->text[l->bytes] = 0;
}

static const char *add_player_line(tavern *t, const char *to, const char *text)
{
    tavern_line *l = add_line(t, NULL, to);
    add_text(l, text, strlen(text));
    l->ended = true;
    return l->text;
}

static bool sentence_ends(const tavern_line *l)
{
    return l->bytes && strchr(".!?", l->text[l->bytes - 1]);
}

/* ---- jobs ---- */

static exl2_flow on_event(void *user, const exl2_event *event);

static bool failed(tavern *t)
{
    exl2_error error;
    exl2_last_error(t->engine, &error);
    snprintf(t->error, sizeof t->error, "%s", error.text);
    return false;
}

/* Appends the text to the session; speaks: the model goes on with it, up to the end of the line. What players type
   cannot forge markers of the model. */
static exl2_result start_job(npc *n, const char *text, bool speaks)
{
    exl2_session_info info;
    static const char *const stops[] = { "\n" };
    exl2_job_desc d = { .session = n->session, .prompt = text, .text_flags = EXL2_TEXT_PLAIN, .prefill_only = !speaks,
                        .max_tokens = TAVERN_LINE_TOKENS, .stop_strings = stops, .stop_string_count = 1,
                        .on_event = on_event, .user = n };
    d.sampler.preset = EXL2_PRESET_BALANCED;
    d.sampler.temperature = 0.4f;
    d.sampler.min_p = 0.1f;
    d.sampler.penalty_range = TAVERN_ENOUGH_TOKENS; /* no repeats inside a line, while names and facts may come back */
    d.sampler.seed = n->place->seed + n->place->count; /* another one for every line, the same in every run */
    exl2_result result = exl2_session_get(n->place->engine, n->session, &info);
    if (result >= 0 && (result = exl2_job_start(n->place->engine, &d, &n->job)) >= 0) {
        n->reused_tokens = info.tokens_cached;
        n->place->prompt_reused += info.tokens_cached;
    }
    return result;
}

/* Persona and examples, behind the world. The last line's end comes with the next question. */
static exl2_result start_past(npc *n)
{
    const character *who = n->who;
    add_talk(n, "\n\n", who->persona);
    add_talk(n, "\n", "");
    for (uint32_t i = 0; i < who->example_count; i++) {
        add_question(n, who->examples[i].question);
        add_talk(n, " ", who->examples[i].answer);
    }
    exl2_result result = start_job(n, n->talk, false);
    n->talk_bytes = 0;
    return result;
}

/* What the question brings to mind goes in front of it: small models say what they have just read.
   When the session is full, it goes back to where the talk began and takes the newer half of it again. */
static bool speak(npc *n, const char *question)
{
    size_t before = n->talk_bytes;
    const example *memory = recall(n->who, question);
    if (memory) {
        add_question(n, memory->question);
        add_talk(n, " ", memory->answer);
    }
    add_question(n, question);
    exl2_result result = start_job(n, n->talk + before, true);
    while (result == EXL2_ERR_CONTEXT_FULL && forget_half(n)) {
        result = exl2_session_rewind(n->place->engine, n->session, n->past_tokens);
        result = result < 0 ? result : start_job(n, n->talk, true);
    }
    if (result < 0) {
        return failed(n->place);
    }
    n->line = n->place->count;
    add_line(n->place, n, NULL)->reused_tokens = n->reused_tokens;
    return true;
}

/* ---- events ---- */

static exl2_flow on_words(npc *n, const exl2_event *event)
{
    tavern *t = n->place;
    tavern_line *l = &t->lines[n->line];
    add_text(l, event->text, event->bytes);
    l->tokens += event->token_count;
    if (l->first_ms <= 0) {
        l->first_ms = (double)(clock_ns() - l->asked_ns) * 1e-6;
    }
    if (l->tokens >= TAVERN_ENOUGH_TOKENS && sentence_ends(l)) {
        return EXL2_STOP_JOB;
    }
    n->waits = t->hear_tokens && l->tokens >= t->hear_tokens;
    return n->waits ? EXL2_PAUSE_JOB : EXL2_CONTINUE;
}

static void on_line_end(npc *n, const exl2_event *event)
{
    tavern_line *l = &n->place->lines[n->line];
    while (l->bytes && isspace((unsigned char)l->text[l->bytes - 1])) {
        l->text[--l->bytes] = 0;
    }
    l->ended = true;
    l->stop = event->stop;
    l->tokens = event->stats.new_tokens;
    l->prompt_tokens = event->stats.prompt_tokens;
    add_talk(n, " ", l->text); /* as far as it was heard */
}

/* The person knows who he is: from here on he talks. */
static void on_past(npc *n)
{
    exl2_session_info info;
    if (exl2_session_get(n->place->engine, n->session, &info) >= 0) {
        n->past_tokens = info.tokens;
    }
    n->place->ready++;
}

static exl2_flow on_event(void *user, const exl2_event *event)
{
    npc *n = user;
    tavern *t = n->place;
    if (event->kind == EXL2_EVENT_TEXT) {
        return on_words(n, event);
    }
    if (event->kind != EXL2_EVENT_DONE) {
        return EXL2_CONTINUE;
    }
    n->job.id = 0;
    n->waits = false;
    t->prompt_computed += event->stats.prompt_tokens;
    if (event->stop == EXL2_STOP_ERROR) {
        snprintf(t->error, sizeof t->error, "%s", event->error);
    }
    if (n->past_tokens == 0) {
        on_past(n);
    } else {
        on_line_end(n, event);
    }
    return EXL2_CONTINUE;
}

/* The world is in the cache: everybody forks it and goes on with his own persona, all in one batch. */
static exl2_flow on_world(void *user, const exl2_event *event)
{
    tavern *t = user;
    if (event->kind != EXL2_EVENT_DONE) {
        return EXL2_CONTINUE;
    }
    t->prompt_computed += event->stats.prompt_tokens;
    if (event->result < 0) {
        snprintf(t->error, sizeof t->error, "%s", event->error);
        return EXL2_CONTINUE;
    }
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        npc *n = &t->npcs[i];
        if (exl2_session_fork(t->engine, t->world, &n->session) < 0 || start_past(n) < 0) {
            failed(t);
            break;
        }
    }
    return EXL2_CONTINUE;
}

/* ---- what the game calls ---- */

bool tavern_open(tavern *t, const host *h, const cast *c, uint32_t seed)
{
    exl2_job job;
    exl2_job_desc d = { .prompt = c->world, .text_flags = EXL2_TEXT_PLAIN, .prefill_only = true,
                        .on_event = on_world, .user = t };
    *t = (tavern){ .engine = h->engine, .people = c, .seed = seed };
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        t->npcs[i].place = t;
        t->npcs[i].who = &c->people[i];
    }
    if (exl2_session_open(t->engine, h->model, &t->world) < 0) {
        return failed(t);
    }
    d.session = t->world;
    return exl2_job_start(t->engine, &d, &job) >= 0 || failed(t);
}

bool tavern_is_ready(const tavern *t)
{
    return t->ready == CAST_SIZE;
}

/* DONE of cancelled jobs comes with the next step: the shortest one will do. */
static void take_ends(tavern *t)
{
    exl2_step_desc shortest = { .cpu_us = 1, .gpu_us = 1 };
    uint64_t start = clock_ns();
    exl2_step(t->engine, &shortest);
    t->hush_ns += clock_ns() - start;
}

bool tavern_ask(tavern *t, npc *n, const char *text)
{
    if (n->job.id) {
        exl2_job_cancel(t->engine, n->job);
        take_ends(t);
    }
    return speak(n, add_player_line(t, n->who->name, text));
}

bool tavern_shout(tavern *t, const char *text)
{
    tavern_hush(t);
    const char *heard = add_player_line(t, "all", text);
    bool good = true;
    for (uint32_t i = 0; good && i < CAST_SIZE; i++) {
        good = speak(&t->npcs[i], heard);
    }
    return good;
}

uint32_t tavern_hush(tavern *t)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        if (t->npcs[i].job.id) {
            exl2_job_cancel(t->engine, t->npcs[i].job);
            count++;
        }
    }
    if (count) {
        take_ends(t);
    }
    return count;
}

void tavern_go_on(tavern *t)
{
    t->hear_tokens = 0;
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        npc *n = &t->npcs[i];
        if (n->waits) {
            exl2_job_pause(t->engine, n->job, false);
            n->waits = false;
        }
    }
}

uint32_t tavern_speakers(const tavern *t)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        count += t->npcs[i].job.id != 0;
    }
    return count;
}

bool tavern_waits(const tavern *t)
{
    bool waits = true;
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        waits = waits && (t->npcs[i].job.id == 0 || t->npcs[i].waits);
    }
    return waits;
}

npc *tavern_find(tavern *t, const char *name, size_t bytes)
{
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        const char *known = t->npcs[i].who->name;
        size_t at = 0;
        while (at < bytes && tolower((unsigned char)known[at]) == tolower((unsigned char)name[at])) {
            at++;
        }
        if (at == bytes && known[at] == 0) {
            return &t->npcs[i];
        }
    }
    return NULL;
}

void tavern_close(tavern *t)
{
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        free(t->npcs[i].talk);
    }
    for (size_t i = 0; i < t->count; i++) {
        free(t->lines[i].text);
    }
    free(t->lines);
    *t = (tavern){ 0 };
}

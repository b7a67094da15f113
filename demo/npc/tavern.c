/* tavern.c: see tavern.h.
   takes: the engine's events.
   gives: what tavern.h declares.
   owns:  what tavern.h says. */
#include "tavern.h"

#include "../common/clock.h"
#include "../common/memory.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VISITOR "Stranger"
#define LOOP_TIMES 2u /* a turn ends when its newest 32 or more tokens are this many repetitions of one piece */

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

/* Bytes of the older half of the talk, up to a question; 0: only the newest question is left. */
static size_t older_half(const npc *n)
{
    char *from = n->talk, *next = strstr(from + 1, "\n" VISITOR ": ");
    while (next && (size_t)(from - n->talk) < n->talk_bytes / 2) {
        from = next;
        next = strstr(from + 1, "\n" VISITOR ": ");
    }
    return (size_t)(from - n->talk);
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

static double ms_since(uint64_t start)
{
    return (double)(clock_ns() - start) * 1e-6;
}

static const char *add_player_line(tavern *t, const char *to, const char *text)
{
    tavern_line *l = add_line(t, NULL, to);
    add_text(l, text, strlen(text));
    l->ended = true;
    return l->text;
}

/* ---- things and turns ---- */

static void take_things(tavern *t, const npc *n)
{
    const char *at = n->who->holds ? n->who->holds : "";
    for (size_t bytes; (bytes = strcspn(at, " ")) > 0 && t->thing_count < TURN_THINGS_MAX; t->thing_count++) {
        snprintf(t->things[t->thing_count].name, sizeof t->things[0].name, "%.*s", (int)bytes, at);
        t->things[t->thing_count].owner = n;
        at += bytes + (at[bytes] == ' ');
    }
}

/* Who is present beside the person. */
static void add_targets(const npc *n, turn_state *s)
{
    s->targets[0] = VISITOR;
    s->target_count = 1;
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        if (&n->place->npcs[i] != n) {
            s->targets[s->target_count++] = n->place->npcs[i].who->name;
        }
    }
}

/* The current state: who is present, what the person holds, how far the person trusts. */
static turn_state state_of(const npc *n)
{
    const tavern *t = n->place;
    turn_state s = { .trust = n->trust };
    add_targets(n, &s);
    for (uint32_t i = 0; i < t->thing_count; i++) {
        if (t->things[i].owner == n) {
            s.things[s.thing_count++] = t->things[i].name;
        }
    }
    return s;
}

/* Does what the turn says. */
static void act(npc *n, tavern_line *l)
{
    static const char *const deeds[][2] = { { "nod", "nods to" }, { "laugh", "laughs at" }, { "point", "points at" } };
    tavern *t = n->place;
    n->mood = l->turn.mood;
    n->trust = l->turn.trust;
    for (size_t i = 0; i < sizeof deeds / sizeof deeds[0]; i++) {
        if (strcmp(l->turn.act, deeds[i][0]) == 0) {
            snprintf(l->deed, sizeof l->deed, "%s %s", deeds[i][1], l->turn.target);
        }
    }
    for (uint32_t i = 0; l->turn.thing && i < t->thing_count; i++) {
        if (t->things[i].name == l->turn.thing) {
            t->things[i].owner = tavern_find(t, l->turn.target, strlen(l->turn.target));
            snprintf(l->deed, sizeof l->deed, "gives %s to %s", l->turn.thing, l->turn.target);
        }
    }
}

/* ---- jobs ---- */

static exl2_flow on_event(void *user, const exl2_event *event);

bool tavern_failed(tavern *t)
{
    exl2_error error;
    exl2_last_error(t->engine, &error);
    snprintf(t->error, sizeof t->error, "%s", error.text);
    return false;
}

/* The text is plain, so players cannot forge special tokens by typing them. */
static exl2_result tokens_of(const npc *n, exl2_model model, const char *text, size_t bytes, exl2_token *out,
                             size_t cap, size_t *count)
{
    exl2_result result = exl2_tokenize(n->place->engine, model, text, bytes, EXL2_TEXT_PLAIN | EXL2_TEXT_NO_BOS, out,
                                       cap, count);
    return result == EXL2_ERR_TOO_SMALL ? EXL2_ERR_CONTEXT_FULL : result;
}

/* Sampler settings of a turn. What is not written word for word has no words of the plot: the model would admit or deny
   something that the author decides. */
static exl2_sampler_desc sampler_of(const npc *n)
{
    const tavern *t = n->place;
    bool written = n->state.evasion_count || (n->state.says && !n->state.says[n->state.says_bytes]);
    exl2_sampler_desc s = { .preset = t->temperature > 0 ? EXL2_PRESET_BALANCED : EXL2_PRESET_GREEDY };
    s.temperature = t->temperature;
    s.min_p = t->temperature > 0 ? 0.1f : 0;
    s.repeat_penalty = 1.1f;
    s.penalty_range = TAVERN_REPEAT_TOKENS;
    s.ban = n->banned;
    s.ban_count = written ? 0 : n->banned_count;
    s.seed = t->seed + t->count; /* differs from line to line, but not between runs */
    return s;
}

/* A job of the person. With a grammar it generates a turn, without one it only prefills. */
static exl2_job_desc desc_of(npc *n, exl2_grammar grammar)
{
    exl2_job_desc d = { .session = n->session, .grammar = grammar, .loop_stop = LOOP_TIMES, .on_event = on_event,
                        .user = n, .loras = &n->lora, .lora_count = n->lora.lora.id != 0,
                        .steers = &n->feels, .steer_count = n->feels.steer.id != 0 };
    d.prefill_only = grammar.id == 0;
    d.priority = d.prefill_only ? -1 : 0; /* whoever speaks goes first */
    d.draft.one_by_one = n->place->one_by_one;
    d.draft.ngram = !n->place->one_by_one;
    d.sampler = d.prefill_only ? (exl2_sampler_desc){ 0 } : sampler_of(n);
    return d;
}

/* Starting a job with banned words copies its grammar, whose ends must not need them. */
static void count_grammar(tavern *t, const exl2_job_desc *d, const exl2_engine_stats *before)
{
    exl2_engine_stats after;
    if (d->grammar.id && d->sampler.ban_count) {
        exl2_stats(t->engine, &after);
        t->grammar_allocations += after.allocations - before->allocations;
    }
}

/* The prompt of a turn with a picture, which stands before the talk that the session does not hold yet. All of it is
   rewound after the turn; the talk is read again without the picture. */
static void set_look(const npc *n, const char *ask, char *text, size_t cap, exl2_job_desc *d)
{
    snprintf(text, cap, "%s%s", n->talk + n->talk_known, ask);
    d->prompt.text = text;
    d->prompt.flags = EXL2_TEXT_PLAIN | EXL2_TEXT_NO_BOS;
    d->prompt.images = &n->picture;
    d->prompt.image_count = 1;
}

/* Starts a job with the talk that the session does not hold yet, followed by `ask`. The talk stays in the session;
   `ask` is rewound after the turn. */
static exl2_result start_job(npc *n, const char *ask, exl2_grammar grammar, exl2_job *job)
{
    exl2_session_info info;
    exl2_engine_stats before;
    exl2_token *ids = n->place->ids;
    size_t said = 0, asked = 0, room = n->place->context;
    exl2_job_desc d = desc_of(n, grammar);
    bool looks = grammar.id && n->picture.id;
    char *text = NULL;
    exl2_stats(n->place->engine, &before);
    d.max_tokens = TAVERN_TURN_TOKENS;
    exl2_result result = exl2_session_get(n->place->engine, n->session, &info);
    if (looks) {
        size_t cap = n->talk_bytes - n->talk_known + strlen(ask) + 1;
        text = memory_take(cap, 1);
        set_look(n, ask, text, cap, &d);
    } else {
        d.prompt.tokens = ids;
        result = result < 0 ? result : tokens_of(n, info.model, n->talk + n->talk_known, n->talk_bytes - n->talk_known,
                                                 ids, room, &said);
        result = result < 0 ? result : tokens_of(n, info.model, ask, strlen(ask), ids + said, room - said, &asked);
        d.prompt.token_count = said + asked;
    }
    if (result >= 0 && (result = exl2_job_start(n->place->engine, &d, job)) >= 0) {
        n->known_tokens = info.tokens + (uint32_t)said;
        n->talk_known = looks ? n->talk_known : n->talk_bytes;
        n->reused_tokens = info.tokens_cached;
        n->place->prompt_reused += info.tokens_cached;
    }
    count_grammar(n->place, &d, &before);
    free(text);
    return result;
}

/* Bans a word of the plot, inside of a text and at its beginning, where it is one token: the first of several tokens is
   the beginning of common words, too. */
static exl2_result ban_word(npc *n, exl2_model model, const char *word, size_t bytes)
{
    exl2_result result = EXL2_OK;
    for (int i = 0; result >= 0 && i < 4; i++) {
        char text[64];
        exl2_token ids[64];
        size_t count = 0;
        int letter = i % 2 ? toupper((unsigned char)word[0]) : tolower((unsigned char)word[0]);
        int length = snprintf(text, sizeof text, "%s%c%.*s", i / 2 ? "" : " ", letter,
                              (int)(bytes < 60 ? bytes : 60) - 1, word + 1);
        result = tokens_of(n, model, text, (size_t)length, ids, sizeof ids / sizeof ids[0], &count);
        if (result >= 0 && count == 1 && n->banned_count < TAVERN_BANNED_MAX) {
            n->banned[n->banned_count++] = ids[0];
        }
    }
    return result;
}

static exl2_result ban_plot(npc *n)
{
    exl2_session_info info;
    exl2_result result = exl2_session_get(n->place->engine, n->session, &info);
    const char *at = n->who->plot ? n->who->plot : "";
    for (size_t bytes; result >= 0 && (bytes = strcspn(at, " ")) > 0; at += bytes + (at[bytes] == ' ')) {
        result = ban_word(n, info.model, at, bytes);
    }
    return result;
}

/* Prefills persona and examples after the world. The newline after the last answer comes with the next question. */
static exl2_result start_past(npc *n)
{
    const character *who = n->who;
    add_talk(n, "\n\n", who->persona);
    add_talk(n, "\n", "");
    for (uint32_t i = 0; i < who->example_count; i++) {
        add_question(n, who->examples[i].question);
        add_talk(n, " ", who->examples[i].answer);
    }
    exl2_result result = start_job(n, "", (exl2_grammar){ 0 }, &n->job);
    n->talk_bytes = n->talk_known = 0;
    n->talk[0] = 0;
    return result < 0 ? result : ban_plot(n);
}

/* Makes the grammar of the turn: what is not in its schema cannot be done. */
static exl2_result make_grammar(npc *n, exl2_grammar *out)
{
    char schema[TURN_SCHEMA_BYTES];
    tavern *t = n->place;
    exl2_session_info info;
    exl2_engine_stats before, after;
    uint64_t start = clock_ns();
    exl2_stats(t->engine, &before);
    turn_schema(&n->state, schema);
    exl2_result result = exl2_session_get(t->engine, n->session, &info);
    exl2_grammar_desc d = { .model = info.model, .kind = EXL2_GRAMMAR_JSON_SCHEMA, .source = schema };
    result = result < 0 ? result : exl2_grammar_make(t->engine, &d, out);
    exl2_stats(t->engine, &after);
    t->grammar_allocations += after.allocations - before.allocations;
    t->extra_ns += clock_ns() - start;
    samples_add(&t->grammar_ms, ms_since(start));
    return result;
}

/* Runs the shortest possible step, since DONE of cancelled jobs comes with the next step. */
static void take_ends(tavern *t)
{
    exl2_step_desc shortest = { .cpu_us = 1, .gpu_us = 1 };
    uint64_t start = clock_ns();
    exl2_step(t->engine, &shortest);
    t->extra_ns += clock_ns() - start;
}

/* Drops the first `cut` bytes of the talk, and their tokens from the middle of the session: after world and persona.
   The tokens that follow stay as they are; the next job computes them again. */
static exl2_result forget(npc *n, size_t cut)
{
    exl2_engine *e = n->place->engine;
    exl2_token *ids = n->place->ids;
    exl2_session_info info;
    size_t count = 0, bytes = 0, left = n->talk_known > cut ? n->talk_known - cut : 0;
    exl2_result result = exl2_session_get(e, n->session, &info);
    result = result < 0 ? result : exl2_session_tokens(e, n->session, ids, n->place->context, &count);
    uint32_t from = n->past_tokens, end = (uint32_t)count; /* the first token that stays is in [from, end] */
    while (result >= 0 && from < end) {
        uint32_t middle = from + (end - from) / 2;
        result = exl2_detokenize(e, info.model, ids + middle, count - middle, 0, NULL, 0, &bytes);
        from = bytes > left ? middle + 1 : from;
        end = bytes > left ? end : middle;
    }
    char *text = memory_take(left + 1, 1);
    bool same = result >= 0 && left > 0
             && exl2_detokenize(e, info.model, ids + from, count - from, 0, text, left + 1, &bytes) >= 0
             && bytes == left && memcmp(text, n->talk + cut, left) == 0;
    free(text);
    from = same ? from : (uint32_t)count; /* a token lies across the cut: all of the talk is tokenized again */
    n->place->forgotten_tokens += from - n->past_tokens;
    n->place->kept_tokens += count - from;
    n->talk_known = same ? left : 0;
    n->talk_bytes -= cut;
    memmove(n->talk, n->talk + cut, n->talk_bytes + 1);
    return result < 0 ? result : exl2_session_trim(e, n->session, n->past_tokens, from - n->past_tokens);
}

/* The answer follows the example that was recalled: its first words, or all of it if s->whole. Then the prompt needs no
   more than the question, and the first word comes soon. Models of many words only keep to the plot. */
static void follow_example(const npc *n, turn_state *s)
{
    const example *e = n->recalled.last;
    if (e && (s->whole || !n->place->own_words)) {
        turn_follow(s, e->answer, e->act, e->at ? e->at : VISITOR);
    }
}

/* Whether the question, or the example that was recalled, touches the plot: then the person says what the file has. */
static bool is_of_plot(const npc *n, const char *question)
{
    const example *e = n->recalled.last;
    return e && (cast_is_plot(n->who, e->answer) || cast_is_plot(n->who, e->question)
                 || cast_is_plot(n->who, question));
}

/* Writes what comes before the question, and goes with it after the turn; sets the state of the turn. */
static void recall_for(npc *n, const char *question, char *out, size_t cap)
{
    n->state = state_of(n);
    if (n->picture.id) { /* nothing that was written before */
        n->recalled.last = NULL;
        return;
    }
    const example *known = recall(n->who, &n->recalled, question);
    n->state.whole = is_of_plot(n, question);
    follow_example(n, &n->state);
    if (!known && !n->place->own_words) {
        n->state.evasion_count = recall_evasions(n->who, &n->recalled, n->state.evasions);
    }
    if (n->place->own_words) {
        snprintf(out, cap, "\n(%s)", n->who->persona); /* a reminder of the persona */
    }
}

/* Starts the turn that answers the question. If the session is full, the older half of the talk is forgotten. */
static bool speak(npc *n, const char *question)
{
    if (n->thinks.id) {
        exl2_job_cancel(n->place->engine, n->thinks);
        take_ends(n->place);
    }
    char ask[6 * TURN_BYTES] = "";
    recall_for(n, question, ask, sizeof ask - TURN_BYTES);
    size_t used = strlen(ask);
    snprintf(ask + used, sizeof ask - used, "\n" VISITOR ": %.800s\n%s:", question, n->who->name);
    exl2_grammar grammar = { 0 };
    exl2_result result = make_grammar(n, &grammar);
    result = result < 0 ? result : start_job(n, ask, grammar, &n->job);
    for (size_t cut; result == EXL2_ERR_CONTEXT_FULL && (cut = older_half(n)) > 0;) {
        result = forget(n, cut);
        result = result < 0 ? result : start_job(n, ask, grammar, &n->job);
    }
    exl2_grammar_close(n->place->engine, grammar); /* the job keeps the grammar alive */
    if (result < 0) {
        return tavern_failed(n->place);
    }
    if (!n->state.evasion_count) {
        add_question(n, question);
    }
    n->asked = question;
    n->line = n->place->count;
    n->said_bytes = 0;
    n->said[0] = 0;
    add_line(n->place, n, NULL)->reused_tokens = n->reused_tokens;
    return true;
}

/* ---- events ---- */

/* Bytes of the words that are heard: up to the blank after `most` words (0 = all); *count: those that a blank ends. An
   event may bring several words, more of them with forced tokens than without. */
static size_t heard_of(const char *words, size_t bytes, uint32_t most, uint32_t *count)
{
    *count = 0;
    for (size_t i = 0; i < bytes; i++) {
        *count += words[i] == ' ';
        if (most && *count == most) {
            return i;
        }
    }
    return bytes;
}

/* Shows the words that have arrived, as far as they are heard now. */
static void show_words(npc *n, uint32_t most)
{
    tavern_line *l = &n->place->lines[n->line];
    char words[TURN_BYTES];
    size_t bytes = turn_words(n->said, n->said_bytes, words);
    bytes = heard_of(words, bytes, most, &l->heard);
    if (bytes > l->bytes) {
        add_text(l, words + l->bytes, bytes - l->bytes);
        l->first_ms = l->first_ms > 0 ? l->first_ms : ms_since(l->asked_ns);
    }
}

static exl2_flow on_words(npc *n, const exl2_event *event)
{
    tavern *t = n->place;
    size_t room = sizeof n->said - 1 - n->said_bytes, more = event->bytes < room ? event->bytes : room;
    t->spoken_tokens += event->token_count;
    memcpy(n->said + n->said_bytes, event->text, more);
    n->said_bytes += more;
    n->said[n->said_bytes] = 0;
    show_words(n, t->hear_words);
    n->waits = t->hear_words && t->lines[n->line].heard >= t->hear_words;
    return n->waits ? EXL2_PAUSE_JOB : EXL2_CONTINUE;
}

/* The question stays in the session: it is the end of the talk, and nothing else came before the turn. */
static void keep_question(npc *n)
{
    exl2_session_info info;
    size_t count = 0;
    if (exl2_session_get(n->place->engine, n->session, &info) >= 0
        && tokens_of(n, info.model, n->talk + n->talk_known, n->talk_bytes - n->talk_known, n->place->ids,
                     n->place->context, &count) >= 0 && n->known_tokens + count <= info.tokens) {
        n->known_tokens += (uint32_t)count;
        n->talk_known = n->talk_bytes;
    }
}

static void on_line_end(npc *n, const exl2_event *event)
{
    tavern_line *l = &n->place->lines[n->line];
    if (event->stop != EXL2_STOP_CANCELLED) {
        show_words(n, 0);
    }
    l->ended = true;
    l->stop = event->stop;
    l->tokens = event->stats.new_tokens;
    l->prompt_tokens = event->stats.prompt_tokens;
    if (event->stop == EXL2_STOP_GRAMMAR || event->stop == EXL2_STOP_LENGTH) { /* other ends drop tokens of passes */
        n->place->turn_tokens += event->stats.new_tokens;
        n->place->turn_passes += event->stats.new_tokens - event->stats.forced_tokens - event->stats.accepted;
    }
    if (event->result >= 0) {
        bool valid = turn_read(&n->state, n->said, n->said_bytes, &l->turn);
        n->place->turns++;
        n->place->invalid_turns += !valid && event->stop != EXL2_STOP_LOOP;
        if (valid) {
            act(n, l);
        }
    }
    bool evaded = n->state.evasion_count > 0;
    bool kept = !evaded && !tavern_is_unsaid(l); /* evasions are not kept: a small model would repeat them */
    if (evaded) {
        recall_used(n->who, &n->recalled, l->text ? l->text : "");
    }
    if (kept && !n->place->own_words && !n->picture.id) {
        keep_question(n);
    }
    if (exl2_session_rewind(n->place->engine, n->session, n->known_tokens) < 0) {
        tavern_failed(n->place);
    }
    if (!kept) { /* the talk goes on as if the question had not been asked */
        n->talk_bytes = evaded ? n->talk_bytes : n->talk_known;
        n->talk[n->talk_bytes] = 0;
        return;
    }
    add_talk(n, " ", l->text); /* as far as it was shown */
    n->place->thinking += start_job(n, "", (exl2_grammar){ 0 }, &n->thinks) >= 0; /* if not, the next turn makes room */
}

/* The persona is in the cache: from now on the person can be asked. */
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
    if (event->job.id != n->job.id && event->job.id != n->thinks.id) { /* of an evening that a saved one replaced */
        return EXL2_CONTINUE;
    }
    if (event->kind != EXL2_EVENT_DONE) {
        return event->kind == EXL2_EVENT_TEXT ? on_words(n, event) : EXL2_CONTINUE;
    }
    t->prompt_computed += event->stats.prompt_tokens;
    if (event->job.id == n->thinks.id) {
        n->thinks.id = 0;
        t->thinking--;
        return EXL2_CONTINUE;
    }
    n->job.id = 0;
    n->waits = false;
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

/* The world is in the cache: each person forks its session and prefills a persona, all in one batch. */
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
            tavern_failed(t);
            break;
        }
    }
    return EXL2_CONTINUE;
}

/* ---- what the game calls ---- */

bool tavern_open(tavern *t, const host *h, const cast *c, const tavern_options *o)
{
    exl2_job job;
    exl2_job_desc d = { .prompt = { .text = c->world, .flags = EXL2_TEXT_PLAIN }, .prefill_only = true,
                        .on_event = on_world, .user = t };
    *t = (tavern){ .engine = h->engine, .people = c, .seed = o->seed, .temperature = o->temperature,
                   .one_by_one = o->one_by_one };
    t->own_words = h->info.hidden >= TAVERN_OWN_WORDS;
    t->context = h->info.context_max;
    t->ids = calloc(t->context, sizeof *t->ids);
    if (!t->ids) {
        snprintf(t->error, sizeof t->error, "out of memory");
        return false;
    }
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        t->npcs[i].place = t;
        t->npcs[i].who = &c->people[i];
        t->npcs[i].lora = o->loras[i];
        t->npcs[i].feels = o->moods[i];
        t->npcs[i].mood = c->people[i].mood;
        take_things(t, &t->npcs[i]);
    }
    if (exl2_session_open(t->engine, h->model, &t->world) < 0) {
        return tavern_failed(t);
    }
    d.session = t->world;
    return exl2_job_start(t->engine, &d, &job) >= 0 || tavern_failed(t);
}

bool tavern_is_ready(const tavern *t)
{
    return t->ready == CAST_SIZE;
}

/* What the person has to answer: the new line, and the one before it if a turn that answers it has not begun. The turn
   has ended when this returns. */
static const char *question_of(npc *n, const char *text)
{
    tavern *t = n->place;
    bool speaks = n->job.id != 0;
    if (speaks) {
        exl2_job_cancel(t->engine, n->job);
        take_ends(t);
    }
    if (!speaks || !tavern_is_unsaid(&t->lines[n->line]) || !n->asked) {
        return text;
    }
    char *before = memory_copy_text(n->asked, strlen(n->asked)); /* it may lie in n->together */
    snprintf(n->together, sizeof n->together, "%.900s %.900s", before, text);
    free(before);
    return n->together;
}

bool tavern_is_unsaid(const tavern_line *l)
{
    return l->by && l->ended && l->bytes == 0;
}

bool tavern_ask(tavern *t, npc *n, const char *text)
{
    const char *heard = add_player_line(t, n->who->name, text), *question = question_of(n, heard);
    n->picture = (exl2_image){ 0 };
    return speak(n, question);
}

bool tavern_look(tavern *t, npc *n, exl2_image picture, const char *id)
{
    static const char words[] = "Look at this. What do you see?";
    char line[128];
    snprintf(line, sizeof line, "%s [picture %s]", words, id);
    add_player_line(t, n->who->name, line);
    const char *question = question_of(n, words);
    n->picture = picture;
    return speak(n, question);
}

bool tavern_shout(tavern *t, const char *text)
{
    const char *heard = add_player_line(t, "all", text), *questions[CAST_SIZE];
    bool good = true;
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        questions[i] = question_of(&t->npcs[i], heard);
    }
    for (uint32_t i = 0; good && i < CAST_SIZE; i++) {
        t->npcs[i].picture = (exl2_image){ 0 };
        good = speak(&t->npcs[i], questions[i]);
    }
    return good;
}

uint32_t tavern_hush(tavern *t)
{
    uint32_t count = tavern_speakers(t);
    for (uint32_t i = 0; i < CAST_SIZE && count; i++) {
        exl2_job_cancel(t->engine, t->npcs[i].job); /* fails without effect for people who are silent */
    }
    if (count) {
        take_ends(t);
    }
    return count;
}

void tavern_go_on(tavern *t)
{
    t->hear_words = 0;
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        npc *n = &t->npcs[i];
        if (n->waits) {
            exl2_job_pause(t->engine, n->job, false);
            n->waits = false;
        }
    }
}

/* The seed and the limits are those of the saved job. */
bool tavern_resume(tavern *t, npc *n, bool speaks)
{
    exl2_session_info info;
    exl2_grammar grammar = { 0 };
    exl2_result result = exl2_session_get(t->engine, n->session, &info);
    add_targets(n, &n->state);
    follow_example(n, &n->state);
    n->asked = NULL;
    if (result >= 0 && !info.resumes) {
        return true;
    }
    result = result >= 0 && speaks ? make_grammar(n, &grammar) : result;
    if (result >= 0) {
        exl2_job_desc d = desc_of(n, grammar);
        exl2_engine_stats before;
        d.resume = true;
        d.sampler.seed = 0;
        exl2_stats(t->engine, &before);
        result = exl2_job_start(t->engine, &d, speaks ? &n->job : &n->thinks);
        count_grammar(t, &d, &before);
        t->thinking += result >= 0 && !speaks;
    }
    exl2_grammar_close(t->engine, grammar); /* the job keeps the grammar alive */
    if (result >= 0 && speaks) {
        t->lines[n->line].asked_ns = clock_ns();
    }
    return result >= 0 || tavern_failed(t);
}

uint32_t tavern_speakers(const tavern *t)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        count += t->npcs[i].job.id != 0;
    }
    return count;
}

double tavern_tokens_per_pass(const tavern *t)
{
    return t->turn_passes ? (double)t->turn_tokens / (double)t->turn_passes : 0;
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

const char *tavern_things(const tavern *t, const npc *owner, char *out, size_t cap)
{
    size_t used = 0;
    snprintf(out, cap, "nothing");
    for (uint32_t i = 0; i < t->thing_count && used < cap; i++) {
        if (t->things[i].owner == owner) {
            used += (size_t)snprintf(out + used, cap - used, "%s%s", used ? ", " : "", t->things[i].name);
        }
    }
    return out;
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
    free(t->file);
    free(t->ids);
    samples_free(&t->grammar_ms);
    *t = (tavern){ 0 };
}

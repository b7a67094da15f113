/* chat_talk.c: see chat_talk.h.
   takes: a loaded model with a session.
   gives: what chat_talk.h declares. */
#include "chat_talk.h"

#include "../common/gap.h"
#include "../common/interrupt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHAT_STEP_US 30000u /* Ctrl-C is checked after each step of this length */

void chat_add(chat *c, const char *role, const char *text, size_t bytes)
{
    if (c->count == c->cap) {
        c->cap = c->cap ? c->cap * 2 : 16;
        c->messages = memory_grow(c->messages, c->cap, sizeof *c->messages);
    }
    c->messages[c->count++] = (exl2_message){ .role = role, .text = memory_copy_text(text, bytes) };
}

void chat_add_shown(chat *c)
{
    exl2_message *m = &c->messages[c->count - 1];
    if (c->shown_count > 0) {
        exl2_image *list = memory_take(c->shown_count, sizeof *list);
        memcpy(list, c->shown, c->shown_count * sizeof *list);
        m->images = list;
        m->image_count = c->shown_count;
        c->shown_count = 0;
    }
}

static void free_message(const chat *c, exl2_message *m)
{
    for (size_t i = 0; i < m->image_count; i++) {
        exl2_image_close(c->host.engine, m->images[i]);
    }
    free((void *)(uintptr_t)m->images);
    free((void *)(uintptr_t)m->text);
}

void chat_keep(chat *c, size_t count)
{
    while (c->count > count) {
        free_message(c, &c->messages[--c->count]);
    }
}

/* Forgets the older half of the turns, but not the system message and the newest message. false: there is none. */
static bool forget_turns(chat *c)
{
    size_t first = c->system != NULL, turns = (c->count - first - 1) / 2, drop = 2 * ((turns + 1) / 2);
    for (size_t i = first; i < first + drop; i++) {
        free_message(c, &c->messages[i]);
    }
    memmove(c->messages + first, c->messages + first + drop, (c->count - first - drop) * sizeof *c->messages);
    c->count -= drop;
    return drop > 0;
}

/* Takes the tokens of `turns` forgotten turns out of the session. The system message before them stays as it is, and
   the turns after them are computed again, by the next job. A history with pictures is left to that job, as it has
   rows where a rendered text has marks. false: failed, message printed. */
static bool trim_history(chat *c, size_t turns)
{
    exl2_engine *e = c->host.engine;
    size_t bytes = 0, now_count = 0, old_count = 0, pictures = 0;
    uint32_t from = 0, gap = 0;
    char *text = NULL;
    exl2_token *now = NULL, *old = NULL;
    if (exl2_session_pictures(e, c->session, NULL, 0, &pictures) >= 0 && pictures > 0) {
        fprintf(stderr, "(forgot the oldest %zu turns)\n", turns);
        return true;
    }
    exl2_result r = exl2_chat_render(e, c->host.model, c->messages, c->count, &c->template, NULL, 0, &bytes);
    if (r >= 0) {
        text = memory_take(bytes + 1, 1);
        now = memory_take(bytes + 1, sizeof *now); /* no text has more tokens than bytes */
        r = exl2_chat_render(e, c->host.model, c->messages, c->count, &c->template, text, bytes + 1, &bytes);
    }
    r = r < 0 ? r : exl2_tokenize(e, c->host.model, text, bytes, EXL2_TEXT_NO_BOS, now, bytes + 1, &now_count);
    r = r < 0 ? r : exl2_session_tokens(e, c->session, NULL, 0, &old_count);
    if (r >= 0) {
        old = memory_take(old_count + 1, sizeof *old);
        r = exl2_session_tokens(e, c->session, old, old_count, &old_count);
    }
    if (r >= 0) {
        gap = gap_find(old, old_count, now, now_count, &from);
        r = exl2_session_trim(e, c->session, from, gap);
    }
    free(text);
    free(now);
    free(old);
    if (r < 0) {
        host_failed(&c->host);
        return false;
    }
    fprintf(stderr, "(forgot the oldest %zu turns, %u tokens)\n", turns, gap);
    return true;
}

static void forget_shown(chat *c)
{
    while (c->shown_count > 0) {
        exl2_image_close(c->host.engine, c->shown[--c->shown_count]);
    }
}

void chat_begin(chat *c)
{
    chat_keep(c, 0);
    forget_shown(c);
    if (c->system) {
        chat_add(c, "system", c->system, strlen(c->system));
    }
}

static exl2_flow on_event(void *user, const exl2_event *event)
{
    chat *c = user;
    host_end_take(&c->end, event);
    if (event->kind == EXL2_EVENT_TEXT) {
        memory_text_add(&c->reply, event->text, event->bytes);
        reply_view_text(&c->view, event->text, event->bytes);
        fflush(stdout);
    }
    return ferror(stdout) ? EXL2_STOP_JOB : EXL2_CONTINUE;
}

static void print_timings(const exl2_job_stats *s)
{
    double first = (double)(s->queued_ns + s->prefill_ns) * 1e-9, rest = (double)s->decode_ns * 1e-9;
    fprintf(stderr, "(prompt: %u tokens, %u of them known; first token after %.2f s; %u tokens, %.1f a second)\n",
            s->prompt_tokens, s->reused_tokens, first, s->new_tokens, rest > 0 ? s->new_tokens / rest : 0);
}

bool chat_reply(chat *c)
{
    exl2_job job;
    exl2_job_desc d = { .session = c->session, .loras = c->host.loras.uses, .lora_count = c->host.loras.count,
                        .steers = c->host.steers.uses, .steer_count = c->host.steers.count,
                        .prompt = { .messages = c->messages, .message_count = c->count }, .chat = c->template,
                        .max_tokens = c->max_tokens, .sampler = c->sampler, .stop_tokens = c->ending.tokens,
                        .stop_token_count = c->ending.token_count, .stop_strings = c->ending.strings,
                        .stop_string_count = c->ending.string_count, .on_event = on_event, .user = c };
    uint32_t quarter = c->host.info.context_max / 4;
    uint32_t least = c->max_tokens ? c->max_tokens : quarter < 512 ? quarter : 512; /* tokens of a reply */
    exl2_job_size size = { 0 };
    exl2_result fits = exl2_job_measure(c->host.engine, &d, &size);
    size_t before = c->count;
    while ((fits == EXL2_ERR_CONTEXT_FULL || (fits >= 0 && size.max_tokens < least)) && forget_turns(c)) {
        d.prompt.message_count = c->count;
        fits = exl2_job_measure(c->host.engine, &d, &size);
    }
    if (c->count < before && !trim_history(c, (before - c->count) / 2)) {
        return false;
    }
    c->reply.bytes = 0;
    c->end = (host_end){ 0 };
    reply_view_open(&c->view);
    exl2_result result = exl2_job_start(c->host.engine, &d, &job);
    while (result >= 0 && !c->end.done) {
        result = host_step(&c->host, job, CHAT_STEP_US);
    }
    interrupt_forget(); /* Ctrl-C ended the reply, not the conversation */
    if (result < 0) {
        host_failed(&c->host);
        return false;
    }
    reply_view_end(&c->view);
    fflush(stdout);
    if (c->end.stop != EXL2_STOP_CANCELLED && !host_end_good(&c->host, &c->end)) {
        return false;
    }
    chat_add(c, "assistant", c->reply.data, c->reply.bytes);
    if (c->timings) {
        print_timings(&c->end.stats);
    }
    return true;
}

void chat_set_system(chat *c, const char *text)
{
    free(c->system);
    c->system = text && *text ? memory_copy_text(text, strlen(text)) : NULL;
    chat_begin(c);
}

bool chat_show(chat *c, const char *path)
{
    char sentence[1280] = "";
    exl2_image_info info = { 0 };
    exl2_image *image = &c->shown[c->shown_count];
    if (!*path) {
        snprintf(sentence, sizeof sentence, "/image needs a file");
    } else if (c->images->open + c->images->files.count == 0) {
        snprintf(sentence, sizeof sentence, "the model was loaded without its tower for pictures: give --images N, "
                 "the number of pictures in a conversation");
    } else if (c->shown_count == ARGS_LIST_MAX) {
        snprintf(sentence, sizeof sentence, "a message has at most %d pictures", ARGS_LIST_MAX);
    } else if (images_make_file(c->host.engine, c->host.model, path, image, sentence, sizeof sentence) >= 0) {
        exl2_image_get(c->host.engine, *image, &info);
        c->shown_count++;
        fprintf(stderr, "(%s: %u tokens of the next message)\n", path, info.tokens);
        return true;
    }
    fprintf(stderr, "%s\n", sentence);
    return false;
}

void chat_close(chat *c)
{
    forget_shown(c);
    chat_keep(c, 0);
    free(c->messages);
    free(c->system);
    free(c->reply.data);
}

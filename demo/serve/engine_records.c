/* engine_records.c: how events cross from the engine's thread to the I/O thread: as records in a run's inbox, which the
   I/O thread takes as a whole.
   takes: events; the lock of the engine's thread.
   gives: engine_put, engine_put_event, engine_give_slots, engine_take, engine_read of engine_inside.h and
          engine_thread.h.
   owns:  nothing; the buffers are the run's. */
#include "../common/clock.h"
#include "engine_inside.h"

#include <stdlib.h>
#include <string.h>

#define RECORD_ALIGN 8u

/* A record in an inbox: this, the tokens, the alternatives, the text and a NUL; a multiple of RECORD_ALIGN bytes. */
typedef struct record_head {
    engine_record record; /* its pointers are set when it is read */
    size_t size;          /* of all of it */
    bool has_alts, has_text;
} record_head;

static size_t aligned(size_t bytes)
{
    return (bytes + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN;
}

static void list_run(engine_thread *t, engine_run *run)
{
    if (!run->listed) {
        run->listed = true;
        run->next_ready = NULL;
        *t->ready_end = run;
        t->ready_end = &run->next_ready;
    }
}

void engine_put(engine_thread *t, engine_run *run, const engine_record *r)
{
    record_head head = { .record = *r, .has_alts = r->alts != NULL, .has_text = r->text != NULL };
    size_t tokens = r->tokens ? r->token_count * sizeof(exl2_alt) : 0;
    size_t alts = r->alts ? (size_t)r->token_count * r->alts_per_token * sizeof(exl2_alt) : 0;
    size_t start = aligned(sizeof head);
    head.size = aligned(start + tokens + alts + (r->text ? r->bytes + 1 : 0));
    if (r->kind == ENGINE_DONE || r->kind == ENGINE_REFUSED) {
        run->ended = true; /* also when there is no memory for the record: engine_read then makes one */
    }
    list_run(t, run);
    if (!buffer_room(&run->inbox, head.size)) {
        return;
    }
    char *at = run->inbox.data + run->inbox.bytes;
    run->inbox.bytes += head.size;
    memcpy(at, &head, sizeof head);
    if (tokens) {
        memcpy(at + start, r->tokens, tokens);
    }
    if (alts) {
        memcpy(at + start + tokens, r->alts, alts);
    }
    if (r->text) {
        memcpy(at + start + tokens + alts, r->text, r->bytes);
        at[start + tokens + alts + r->bytes] = 0;
    }
}

void engine_give_slots(engine_thread *t, engine_run *run)
{
    t->slots -= run->held;
    run->held = 0;
}

void engine_put_event(engine_thread *t, const exl2_event *event)
{
    engine_run *run = event->user;
    engine_record r = { .token_count = event->token_count, .tokens = event->tokens, .alts = event->alts,
                        .alts_per_token = event->alts_per_token };
    if (event->kind == EXL2_EVENT_TEXT) {
        r.kind = ENGINE_TEXT;
        r.text = event->text;
        r.bytes = event->bytes;
    } else if (event->kind == EXL2_EVENT_EMBEDDING) {
        r.kind = ENGINE_VECTOR;
        r.text = (const char *)event->values;
        r.bytes = event->value_count * sizeof(float);
    } else if (event->kind == EXL2_EVENT_PREFILL) {
        if (!run->desc.score_prompt || !event->token_count) {
            return;
        }
        r.kind = ENGINE_SCORES;
    } else {
        r.kind = ENGINE_DONE;
        r.result = event->result;
        r.stop = event->stop;
        r.stats = event->stats;
        r.text = event->error;
        r.bytes = event->error ? strlen(event->error) : 0;
        r.tokens = NULL;
        r.alts = NULL;
        r.token_count = 0;
        run->job = (exl2_job){ 0 };
        run->active = false;
        t->active--;
        if (!run->keeps_session) { /* else its place is kept for the job that follows */
            engine_give_slots(t, run);
        }
        t->lost = t->lost || event->result == EXL2_ERR_DEVICE_LOST;
    }
    engine_put(t, run, &r);
    if (run->inbox.failed && !run->ended && !run->cancelled) { /* the text cannot be whole any more */
        run->cancelled = true;
        exl2_job_cancel(t->host->engine, run->job);
    }
}

/* Takes the first load with news out of the list. The lock is held, and let go while on_news runs. */
static void tell_load(engine_thread *t)
{
    engine_load *l = t->ready_loads;
    t->ready_loads = l->next_ready;
    l->listed = false;
    l->progress = l->new_progress;
    l->info = l->new_info;
    memcpy(l->error, l->new_error, sizeof l->error);
    memcpy(l->blind, l->new_blind, sizeof l->blind);
    bool ready = l->new_state == ENGINE_READY && l->state != ENGINE_READY;
    l->state = l->new_state;
    if (ready && l->text_loading) { /* from now on it is the I/O thread's */
        l->text = l->text_loading;
        l->text_model = l->text_loading_model;
        l->text_loading = NULL;
    }
    lock_release(&t->lock);
    if (l->on_news) {
        l->on_news(l);
    }
    lock_take(&t->lock);
}

/* The same for the first task that is done. */
static void tell_task(engine_thread *t)
{
    engine_task *task = t->done_tasks;
    t->done_tasks = task->next;
    lock_release(&t->lock);
    if (task->done) {
        task->done(task);
    }
    lock_take(&t->lock);
}

engine_run *engine_take(engine_thread *t)
{
    lock_take(&t->lock);
    while (t->ready_loads || t->done_tasks) {
        t->ready_loads ? tell_load(t) : tell_task(t);
    }
    engine_run *run = t->ready;
    if (!run) {
        t->woken = false; /* all lists are empty under this lock: the engine's thread wakes for what comes next */
        lock_release(&t->lock);
        return NULL;
    }
    t->ready = run->next_ready;
    if (!t->ready) {
        t->ready_end = &t->ready;
    }
    run->listed = false;
    buffer old = run->outbox;
    run->outbox = run->inbox;
    run->inbox = old;
    run->inbox.bytes = 0;
    run->inbox.failed = run->outbox.failed; /* stays: what is missing never comes */
    run->read = 0;
    run->taken_end = run->ended;
    lock_release(&t->lock);
    return run;
}

bool engine_read(engine_run *run, engine_record *out)
{
    record_head head;
    if (run->read >= run->outbox.bytes) {
        bool missing = run->outbox.failed && run->taken_end && !run->told_end;
        if (missing) {
            static const char why[] = "there is no memory left for the text";
            *out = (engine_record){ .kind = ENGINE_DONE, .result = EXL2_ERR_MEMORY, .stop = EXL2_STOP_ERROR,
                                    .text = why, .bytes = sizeof why - 1 };
            run->told_end = true;
        }
        return missing;
    }
    const char *at = run->outbox.data + run->read;
    memcpy(&head, at, sizeof head);
    *out = head.record;
    size_t start = aligned(sizeof head);
    size_t tokens = out->tokens ? out->token_count * sizeof(exl2_alt) : 0;
    size_t alts = head.has_alts ? (size_t)out->token_count * out->alts_per_token * sizeof(exl2_alt) : 0;
    out->tokens = tokens ? (const exl2_alt *)(const void *)(at + start) : NULL;
    out->alts = alts ? (const exl2_alt *)(const void *)(at + start + tokens) : NULL;
    out->text = head.has_text ? at + start + tokens + alts : NULL;
    run->read += head.size;
    run->told_end = run->told_end || out->kind == ENGINE_DONE || out->kind == ENGINE_REFUSED;
    return true;
}

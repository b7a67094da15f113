/* jobs.h: a running job from its first result to its end: it accepts tokens, delivers text that cannot change any more,
   and ends with one DONE.
   takes: results of a pass; flags that other threads set.
   gives: exl2__jobs_accept, exl2__jobs_score, exl2__jobs_deliver_text, exl2__jobs_end, exl2__jobs_finish.
   owns:  nothing; held text and tokens lie in the job's block. */
#ifndef EXL2__JOBS_H
#define EXL2__JOBS_H

#include "gate.h"
#include "grammars.h"

/* ---- delivery ---- */

/* Where an event goes. */
typedef enum exl2__way {
    EXL2__WAY_CALLBACK, /* to on_event, now */
    EXL2__WAY_DEFERRED, /* into the worker's ring: exl2_step calls on_event with it */
    EXL2__WAY_QUEUE,    /* into the ring that exl2_next_event reads */
    EXL2__WAY_NOWHERE   /* nobody wants it */
} exl2__way;

/* The one place that chooses where an event of a job or a model goes. deferred: its callback cannot be called now. */
static inline exl2__way exl2__jobs_choose_way(exl2_event_fn on_event, bool discard, bool deferred)
{
    return on_event ? deferred ? EXL2__WAY_DEFERRED : EXL2__WAY_CALLBACK
                    : discard ? EXL2__WAY_NOWHERE : EXL2__WAY_QUEUE;
}

/* The way of the job's next event. It is deferred if the worker, which calls none, is stepping, or if
   earlier events wait, such as those of a paused job. */
static inline exl2__way exl2__jobs_way(const exl2_engine *e, const exl2__job *job)
{
    const exl2__job_delivery *d = &job->delivery;
    return exl2__jobs_choose_way(d->on_event, d->discard, e->worker.stepping || d->deferred > 0);
}

static inline bool exl2__jobs_is_deferred(const exl2_engine *e, const exl2__job *job)
{
    return exl2__jobs_way(e, job) == EXL2__WAY_DEFERRED;
}

/* Whether earlier events of the job, which the worker wrote, must be delivered before another one. */
static inline bool exl2__jobs_deferred_first(const exl2_engine *e, const exl2__job *job)
{
    const exl2__job_delivery *d = &job->delivery;
    return d->deferred > (e->worker.stepping ? EXL2__JOB_DEFERRED_MAX - 1 : 0)
        || d->deferred_bytes >= EXL2__JOB_DEFERRED_BYTES;
}

/* The ring in which events of that way wait until the application reads or hears them; NULL: in none. */
static inline exl2__events *exl2__jobs_ring(exl2_engine *e, exl2__way way)
{
    return way == EXL2__WAY_DEFERRED ? &e->worker.events : way == EXL2__WAY_QUEUE ? &e->events : NULL;
}

/* Passes the event to the callback, or puts it into its way's ring. false: the ring is full; nothing has changed. */
static inline bool exl2__jobs_deliver(exl2_engine *e, exl2__way way, exl2_event_fn on_event, const exl2_event *event,
                                      exl2_flow *flow)
{
    exl2__events *ring = exl2__jobs_ring(e, way);
    *flow = EXL2_CONTINUE;
    if (way == EXL2__WAY_CALLBACK) {
        exl2__gate_call(e);
        *flow = on_event(event->user, event);
        exl2__gate_called(e);
    }
    return !ring || exl2__events_push(ring, event);
}

static inline exl2_event exl2__jobs_event(const exl2_engine *e, const exl2__job *job, exl2_event_kind kind)
{
    exl2_event event = { 0 };
    event.kind = kind;
    event.model.id = e->models[job->model].id;
    event.session.id = e->sessions[job->session].id;
    event.job.id = job->id;
    event.user = job->user;
    return event;
}

/* Updates what exl2_job_get shows to any thread, which adds whether the job is paused. */
static inline void exl2__jobs_publish(exl2_engine *e, exl2__job *job)
{
    const exl2__sequence *s = &job->sequence;
    exl2__lock(&e->lock);
    job->shared.info.state = !s->active ? EXL2_JOB_QUEUED
                           : exl2__sequence_decodes(s) ? EXL2_JOB_DECODE : EXL2_JOB_PREFILL;
    job->shared.info.session.id = e->sessions[job->session].id;
    job->shared.info.stats = job->stats;
    exl2__unlock(&e->lock);
}

/* ---- ending ---- */

/* Decides how the job ends; a later decision is ignored. DONE follows once all earlier events are delivered. */
static inline void exl2__jobs_end(exl2__job *job, exl2_stop stop, exl2_result result, const char *text)
{
    if (!job->ending) {
        job->ending = true;
        job->stop = stop;
        job->result = result;
        job->error.code = result;
        job->error.native = 0;
        exl2__format(job->error.text, sizeof job->error.text, "%s", text ? text : "");
        job->sequence.held = true;
    }
}

/* Ends the job with the error of a call that failed. */
EXL2__PRIVATE void exl2__jobs_fail(exl2_engine *e, exl2__job *job, exl2_result result)
{
    exl2_error error;
    exl2__error_copy(&e->ctx, &error);
    exl2__jobs_end(job, EXL2_STOP_ERROR, result, error.text);
    job->error.native = job->result == result ? error.native : 0;
}

/* Whether the application has ended the job: it hears no more of its text. */
static inline bool exl2__jobs_is_dropped(const exl2__job *job)
{
    return job->ending && (job->stop == EXL2_STOP_CALLBACK || job->stop == EXL2_STOP_CANCELLED);
}

/* Before a job ends by what the application wants: if it has ended already, but the application has not heard all of
   its text, the rest of the text is dropped with that end. */
static inline void exl2__jobs_end_deferred(exl2__job *job)
{
    job->ending = job->ending && (job->delivery.deferred == 0 || exl2__jobs_is_dropped(job));
}

/* Ends the job at once, because its model ends: text that the application has not heard yet is dropped, also that of a
   job that has ended already. DONE must follow. */
EXL2__PRIVATE void exl2__jobs_end_now(exl2__job *job, exl2_result result, const char *text)
{
    exl2__job_delivery *d = &job->delivery;
    d->deferred += (uint32_t)d->text_due + d->embedding_due;
    exl2__jobs_end_deferred(job);
    exl2__jobs_end(job, EXL2_STOP_CANCELLED, result, text);
    d->text_due = d->progress_due = d->embedding_due = false;
    /* Events in the worker's rings name a job that has ended. */
    d->deferred = d->deferred_bytes = d->deferred_tokens = 0;
}

/* Applies what the callback returned. */
static inline void exl2__jobs_flow(exl2_engine *e, exl2__job *job, exl2_flow flow)
{
    if (flow == EXL2_STOP_JOB) {
        exl2__jobs_end_deferred(job);
        exl2__jobs_end(job, EXL2_STOP_CALLBACK, EXL2_OK, NULL);
    } else if (flow == EXL2_PAUSE_JOB) {
        exl2__lock(&e->lock);
        job->shared.pause = job->id;
        exl2__unlock(&e->lock);
    }
}

/* Frees the job's pages, session and slot. The session's history keeps `delivered` new tokens. */
EXL2__PRIVATE void exl2__jobs_free(exl2_engine *e, exl2__job *job, uint32_t delivered)
{
    exl2__model *m = &e->models[job->model];
    exl2__session *session = &e->sessions[job->session];
    uint32_t slot = exl2__pool_slot_of(job->id);
    if (job->sequence.rows) {
        exl2__batch_drop_sequence(&m->batch, slot);
    }
    exl2__events_reserve_less(job->scores.ring, 0, 0, &job->scores.reserved);
    if (job->sequence.active) {
        exl2__table_release(&session->table, &m->pages, job->sequence.prompt_end + delivered);
        job->sequence.active = false;
    }
    if (!job->sequence.begun) {
        exl2__vectors_drop(m->pages.vectors, job->sequence.prompt, job->sequence.prompt_count);
    } else {
        exl2__table_rewind(&session->table, &m->pages, job->sequence.prompt_end + delivered);
    }
    session->job = 0;
    if (session->closing || session->one_shot) {
        exl2__objects_free_session(e, session);
    }
    exl2__free(&e->ctx, job->guidance.logits, m->plan.shape.vocab * sizeof *job->guidance.logits, EXL2_MEM_SCRATCH);
    exl2__lock(&e->lock);
    job->sequence.live = false;
    job->shared.cancel = job->shared.pause = 0;
    if (!job->delivery.done_due) {
        exl2__pool_free(&e->job_ids, slot);
    }
    exl2__unlock(&e->lock);
}

/* Ends the job's drafter, whose K and V become cache. */
EXL2__PRIVATE void exl2__jobs_free_drafter(exl2_engine *e, exl2__job *job)
{
    exl2__job *drafter = job->drafting.drafter;
    job->drafting.drafter = NULL;
    if (drafter) {
        exl2__jobs_free(e, drafter, drafter->sequence.final_end - drafter->sequence.prompt_end);
    }
}

/* The DONE event; delivery.done_model and done_session are set. */
static inline exl2_event exl2__jobs_done(const exl2__job *job)
{
    exl2_event event = { 0 };
    event.kind = EXL2_EVENT_DONE;
    event.model = job->delivery.done_model;
    event.session = job->delivery.done_session;
    event.job.id = job->id;
    event.user = job->user;
    event.stop = job->stop;
    event.result = job->result;
    event.error = job->result < 0 ? job->error.text : NULL;
    event.stats = job->stats;
    return event;
}

/* Adds the time since the last change of phase to the time of the phase in which the job ended. */
static inline void exl2__jobs_end_phase(exl2__job *job)
{
    uint64_t now = exl2__platform_ns();
    if (job->first_token_ns) {
        job->stats.decode_ns = now - job->first_token_ns;
    } else if (job->active_ns) {
        job->stats.prefill_ns = now - job->active_ns;
    } else {
        job->stats.queued_ns = now - job->start_ns;
    }
}

/* Frees everything that the job holds and delivers DONE, by the way of the job's events: no earlier one waits any more.
   Before the callback runs, the handle is stale and the session is free, so that the callback can start the next job.
   Where the queue has no room, the job's slot keeps the contents of DONE, which is delivered later even if the model is
   closed meanwhile. */
static inline void exl2__jobs_finish(exl2_engine *e, exl2__job *job)
{
    exl2__job_delivery *d = &job->delivery;
    exl2__way way = exl2__jobs_way(e, job);
    EXL2__ASSERT(way != EXL2__WAY_DEFERRED);
    exl2__jobs_end_phase(job);
    job->stats.new_tokens = d->delivered - d->resumed;
    d->done_model.id = e->models[job->model].id;
    d->done_session.id = e->sessions[job->session].id;
    exl2_event event = exl2__jobs_done(job);
    d->done_due = way == EXL2__WAY_QUEUE && !exl2__events_push(&e->events, &event);
    exl2_error error = job->error; /* another job may use the slot when the callback runs */
    event.error = event.error ? error.text : NULL;
    exl2_event_fn on_event = d->on_event;
    if (e->watched == job->id) {
        e->watched = 0;
        e->watched_result = job->result;
        e->watched_error = job->error;
    }
    exl2__grammars_leave(e, job);
    exl2__jobs_free_drafter(e, job);
    if (job->guidance.negative) {
        exl2__jobs_free(e, job->guidance.negative, d->delivered);
    }
    exl2__jobs_free(e, job, d->delivered);
    if (way == EXL2__WAY_CALLBACK) {
        exl2_flow ignored;
        exl2__jobs_deliver(e, way, on_event, &event, &ignored);
    }
}

/* Delivers DONE events for which the ring had no room, as far as it has room now. */
EXL2__PRIVATE void exl2__jobs_deliver_due_dones(exl2_engine *e)
{
    for (uint32_t i = 0; i < e->job_ids.end; i++) {
        exl2__job *job = &e->jobs[i];
        exl2_event event = exl2__jobs_done(job);
        if (job->delivery.done_due && exl2__events_push(&e->events, &event)) {
            job->delivery.done_due = false;
            exl2__lock(&e->lock);
            exl2__pool_free(&e->job_ids, i);
            exl2__unlock(&e->lock);
        }
    }
}

/* ---- text ---- */

/* Sets the number of tokens that count as delivered, also in what exl2_job_get shows. */
static inline void exl2__jobs_set_delivered(exl2_engine *e, exl2__job *job, uint32_t tokens)
{
    job->delivery.delivered = tokens;
    job->stats.new_tokens = tokens - job->delivery.resumed;
    job->sequence.final_end = job->sequence.prompt_end + tokens;
    if (job->guidance.negative) {
        exl2__sequence *negative = &job->guidance.negative->sequence;
        negative->final_end = negative->prompt_end + tokens;
    }
    exl2__jobs_publish(e, job);
}

/* Removes the text and the tokens that were due from the beginning of what is held. */
static inline void exl2__jobs_remove_due(exl2__job *job)
{
    exl2__job_delivery *d = &job->delivery;
    exl2__job_block *block = job->block;
    uint32_t alts = job->sequence.alts;
    d->shown = d->due_bytes + (d->due_tokens ? 0 : d->shown) - (d->due_tokens ? block->held[d->due_tokens - 1].end : 0);
    d->held_tokens -= d->due_tokens;
    d->held_bytes -= d->due_bytes;
    memmove(block->held, block->held + d->due_tokens, d->held_tokens * sizeof *block->held);
    memmove(block->alts, block->alts + (size_t)d->due_tokens * alts,
            (size_t)d->held_tokens * alts * sizeof *block->alts);
    memmove(block->hold, block->hold + d->due_bytes, d->held_bytes);
    for (uint32_t i = 0; i < d->held_tokens; i++) {
        block->held[i].end -= d->due_bytes;
    }
    if (d->held_tokens) { /* a code point cut before it was shown as U+FFFD, which a rewind cannot change */
        block->held[0].stream.held_bytes = 0;
    }
    job->bans.from -= exl2__min32(job->bans.from, d->due_bytes);
    d->due_bytes = d->due_tokens = 0;
    d->text_due = false;
}

/* Delivers the text that is due as one TEXT event. false: the ring is full; a later step tries again. */
static inline bool exl2__jobs_deliver_text(exl2_engine *e, exl2__job *job)
{
    exl2__job_delivery *d = &job->delivery;
    exl2__job_block *block = job->block;
    if (!d->text_due) {
        return true;
    }
    if (exl2__jobs_deferred_first(e, job)) {
        return false;
    }
    exl2_event event = exl2__jobs_event(e, job, EXL2_EVENT_TEXT);
    char after = block->hold[d->due_bytes];
    block->hold[d->due_bytes] = 0;
    for (uint32_t i = 0; i < d->due_tokens; i++) {
        block->event_tokens[i] = block->held[i].token;
    }
    event.text = block->hold;
    event.bytes = d->due_bytes;
    event.tokens = block->event_tokens;
    event.token_count = d->due_tokens;
    event.alts = job->sequence.alts ? block->alts : NULL;
    event.alts_per_token = job->sequence.alts;
    /* The tokens count as delivered before the callback runs, because it may fork the session or query the job. */
    exl2__way way = exl2__jobs_way(e, job);
    uint32_t now = way == EXL2__WAY_DEFERRED ? 0 : d->due_tokens;
    exl2__jobs_set_delivered(e, job, d->delivered + now);
    exl2_flow flow;
    bool delivered = exl2__jobs_deliver(e, way, d->on_event, &event, &flow);
    block->hold[d->due_bytes] = after;
    if (!delivered) {
        exl2__jobs_set_delivered(e, job, d->delivered - now);
        return false;
    }
    d->deferred += way == EXL2__WAY_DEFERRED;
    d->deferred_bytes += way == EXL2__WAY_DEFERRED ? exl2__events_size(&event) : 0;
    d->deferred_tokens += d->due_tokens - now;
    exl2__jobs_remove_due(job);
    exl2__jobs_flow(e, job, flow);
    return true;
}

/* Makes the first `bytes` of the held text, and the tokens that end in them, due for delivery. With forced tokens more
   can become due before that. What is due counts as delivered: it can neither be rewound nor cut any more. */
static inline void exl2__jobs_set_due(exl2__job *job, size_t bytes)
{
    exl2__job_delivery *d = &job->delivery;
    uint32_t count = 0;
    while (count < d->held_tokens && job->block->held[count].end <= bytes) {
        count++;
    }
    job->bans.rewinds = bytes > d->due_bytes || count > d->due_tokens ? 0 : job->bans.rewinds;
    job->bans.from = exl2__max32(job->bans.from, (uint32_t)bytes);
    d->due_bytes = (uint32_t)bytes;
    d->due_tokens = count;
    d->text_due = bytes > 0 || count > 0;
}

static inline bool exl2__jobs_is_in(const exl2_token *tokens, uint32_t count, exl2_token token)
{
    for (uint32_t i = 0; i < count; i++) {
        if (tokens[i] == token) {
            return true;
        }
    }
    return false;
}

/* The text of a token that can be healed; NULL: it has none of its own. */
static inline const char *exl2__jobs_healable(const exl2__model *m, exl2_token token, size_t *bytes)
{
    bool special = true;
    const char *text = m->vocab.present ? exl2__vocab_piece(&m->vocab, token, bytes, &special) : NULL;
    return text && !special && *bytes > 0 && exl2__unicode_valid(text, *bytes) ? text : NULL;
}

/* Whether the token's text begins with `prefix`, which is that of a healed token. */
static inline bool exl2__jobs_can_replace(const exl2__model *m, exl2_token token, const char *prefix,
                                          size_t prefix_bytes)
{
    size_t bytes;
    bool special;
    const char *text = exl2__vocab_piece(&m->vocab, token, &bytes, &special);
    return text && !special && bytes >= prefix_bytes && memcmp(text, prefix, prefix_bytes) == 0;
}

/* Whether the next sampled token replaces the prompt's last one (token healing). */
static inline bool exl2__jobs_heals(const exl2__job *job)
{
    return job->healed >= 0 && job->sequence.active && job->sequence.table->tokens == job->sequence.prompt_end;
}

/* Whether the most recent token has replaced it. */
static inline bool exl2__jobs_has_healed(const exl2__job *job)
{
    return job->healed >= 0 && job->sequence.table->tokens == job->sequence.prompt_end + 1;
}

/* Decodes the token, and appends its text to the held text. flush: also what the decoder holds back. */
static inline void exl2__jobs_hold_text(const exl2__model *m, exl2__job *job, exl2_token token, bool flush)
{
    exl2__job_delivery *d = &job->delivery;
    char *hold = job->block->hold;
    size_t room = EXL2__JOB_HOLD_BYTES - d->held_bytes;
    if (m->vocab.present) {
        d->held_bytes += (uint32_t)exl2__stream_push(&d->stream, &m->vocab, token, hold + d->held_bytes, room);
        if (flush) {
            room = EXL2__JOB_HOLD_BYTES - d->held_bytes;
            d->held_bytes += (uint32_t)exl2__stream_flush(&d->stream, hold + d->held_bytes, room);
        }
    }
    if (exl2__jobs_has_healed(job)) { /* the text begins with that of the healed token, which is part of the prompt */
        size_t healed_bytes;
        bool special;
        exl2__vocab_piece(&m->vocab, job->healed, &healed_bytes, &special);
        d->held_bytes -= (uint32_t)healed_bytes;
        memmove(hold, hold + healed_bytes, d->held_bytes);
    }
}

/* Adds the token and its text to the held ones. */
static inline void exl2__jobs_hold(exl2__model *m, exl2__job *job, const exl2__logit_result *result, bool flush)
{
    exl2__job_delivery *d = &job->delivery;
    exl2__held_token *held = &job->block->held[d->held_tokens];
    exl2_alt *alts = job->block->alts + (size_t)d->held_tokens * job->sequence.alts;
    held->stream = d->stream;
    held->state = job->sequence.sampling.state;
    exl2__jobs_hold_text(m, job, result->token, flush);
    held->token.token = result->token;
    held->token.logprob = result->logprob;
    held->end = d->held_bytes + exl2__stream_pending(&d->stream); /* an incomplete code point counts */
    for (uint32_t i = 0; i < job->sequence.alts; i++) {
        exl2_alt none = { -1, 0 };
        alts[i] = i < result->alt_count ? result->alts[i] : none;
    }
    d->held_tokens++;
}

/* Removes the last `tokens` tokens. The token before them is computed again, for its logits. */
static inline void exl2__jobs_shorten(exl2__table *t, exl2__pages *pages, uint32_t tokens)
{
    tokens = t->tokens - tokens;
    exl2__table_cut(t, pages, tokens, exl2__min32(t->cached, tokens - 1));
}

/* Rewinds to the token that contains byte `at`, where the banned text starts, so that a different token is sampled
   there. false: too many tokens were tried; the text is shown. */
EXL2__PRIVATE bool exl2__jobs_rewind_ban(exl2__job *job, exl2__pages *pages, size_t at)
{
    exl2__sequence *s = &job->sequence;
    exl2__job_delivery *d = &job->delivery;
    uint32_t first = 0;
    while (first + 1 < d->held_tokens && job->block->held[first].end <= at) {
        first++;
    }
    const exl2__held_token *held = &job->block->held[first];
    uint32_t position = s->prompt_end + d->delivered + d->deferred_tokens + first;
    s->tried_count = s->tried_at == position ? s->tried_count : 0;
    s->tried_at = position;
    job->grammar.place_tokens = UINT32_MAX; /* its place is found again from the start */
    if (s->tried_count == EXL2__SEQUENCE_TRIED_MAX || job->bans.rewinds == EXL2__JOB_REWINDS_MAX) {
        job->stats.bans_shown++;
        job->bans.from = (uint32_t)at + 1;
        return false;
    }
    s->tried[s->tried_count++] = held->token.token;
    s->attempt++;
    job->bans.rewinds++;
    job->stats.bans_avoided++;
    d->stream = held->stream;
    s->sampling.state = held->state;
    d->held_tokens = first;
    d->held_bytes = first ? job->block->held[first - 1].end - exl2__stream_pending(&d->stream) : 0;
    job->bans.from = exl2__min32(job->bans.from, d->held_bytes);
    uint32_t removed = s->table->tokens - position;
    exl2__jobs_shorten(s->table, pages, removed);
    if (job->guidance.negative) {
        exl2__jobs_shorten(job->guidance.negative->sequence.table, pages, removed);
    }
    return true;
}

/* Length of the text of whole tokens within the first `bytes` of the held text. Only whole tokens are shown, because a
   token cannot be rewound once a part of it is shown. A token that ends within a code point is whole only together with
   the token that completes it: the next token decides whether the bytes become that code point or U+FFFD, and after a
   rewind another token may decide differently. */
static inline size_t exl2__jobs_whole_tokens(const exl2__job *job, size_t bytes)
{
    const exl2__job_delivery *d = &job->delivery;
    const exl2__held_token *held = job->block->held;
    size_t whole = 0;
    for (uint32_t i = 0; i < d->held_tokens && held[i].end <= bytes; i++) {
        const exl2__stream *after = i + 1 < d->held_tokens ? &held[i + 1].stream : &d->stream;
        whole = exl2__stream_pending(after) ? whole : held[i].end;
    }
    return whole;
}

/* Looks for a banned string in the first `bytes` of the held text, as exl2__stops_match. */
static inline bool exl2__jobs_match_ban(const exl2__job *job, size_t bytes, size_t *before, size_t *at)
{
    size_t from = exl2__min64(job->bans.from, bytes);
    uint32_t which;
    bool found = exl2__stops_match(&job->bans.strings, job->block->hold + from, bytes - from, before, at, &which);
    *before += from;
    *at += from;
    return found;
}

/* Length of the beginning of the held text, at most `bytes`, that can be shown even if the following tokens are rewound
   and replaced: no stop string and no banned string may begin at its end. */
static inline size_t exl2__jobs_final_bytes(const exl2__job *job, size_t bytes)
{
    for (;;) {
        size_t whole = exl2__jobs_whole_tokens(job, bytes), before_stop, before_ban, at;
        uint32_t which;
        exl2__stops_match(&job->stops.strings, job->block->hold, whole, &before_stop, &at, &which);
        exl2__jobs_match_ban(job, whole, &before_ban, &at);
        bytes = exl2__min64(before_stop, before_ban);
        if (bytes == whole) {
            return whole;
        }
    }
}

/* Appends the token to the history, and to that of the negative prompt. */
static inline void exl2__jobs_append(exl2_engine *e, exl2__job *job, exl2_token token)
{
    const exl2__pages *pages = &e->models[job->model].pages;
    if (!job->first_token_ns && job->sequence.table->cached >= job->sequence.prompt_end) { /* the prompt is computed */
        job->first_token_ns = exl2__platform_ns();
        job->stats.prefill_ns = job->first_token_ns - job->active_ns;
        bool healed = job->healed >= 0 && job->stats.prompt_tokens > 0;
        e->stats.tokens_in += healed; /* the token is replaced, but counts as one of the prompt */
    }
    EXL2__ASSERT(token >= 0 && (uint32_t)token < e->models[job->model].plan.shape.vocab);
    exl2__table_append(job->sequence.table, pages, token, true);
    if (job->guidance.negative) {
        exl2__table_append(job->guidance.negative->sequence.table, pages, token, true);
    }
    e->stats.tokens_out++;
}

/* Looks for banned strings and stop strings in the held text. false: one of them ended the job or rewound it. *due:
   bytes of the text that can be delivered, because neither may begin there. */
static inline bool exl2__jobs_find_strings(exl2__job *job, exl2__pages *pages, size_t *due)
{
    size_t bytes = job->delivery.held_bytes, before_ban, at;
    uint32_t which;
    while (exl2__jobs_match_ban(job, bytes, &before_ban, &at)) {
        if (exl2__jobs_rewind_ban(job, pages, at)) {
            return false;
        }
    }
    if (exl2__stops_match(&job->stops.strings, job->block->hold, bytes, due, &at, &which)) {
        exl2__jobs_set_due(job, at);
        job->stats.stop_string = which;
        exl2__jobs_end(job, EXL2_STOP_STRING, EXL2_OK, NULL);
        return false;
    }
    if (job->bans.strings.count > 0) {
        *due = exl2__jobs_final_bytes(job, exl2__min64(*due, before_ban));
    }
    return true;
}

/* No token could be sampled. If that is because all that the grammar allows here were tried and led to banned strings,
   the row is computed again, and one of the strings will be shown. false: it has another cause. */
EXL2__PRIVATE bool exl2__jobs_show_ban(exl2__job *job, exl2__pages *pages)
{
    exl2__sequence *s = &job->sequence;
    if (!job->grammar.slot || s->tried_count == 0 || s->tried_at != s->table->tokens) {
        return false;
    }
    s->tried_count = 0;
    s->attempt++;
    job->bans.rewinds = EXL2__JOB_REWINDS_MAX; /* until text is delivered */
    exl2__jobs_shorten(s->table, pages, 0);
    if (job->guidance.negative) {
        exl2__jobs_shorten(job->guidance.negative->sequence.table, pages, 0);
    }
    return true;
}

#define EXL2__JOBS_LOOP_PIECE 64u  /* tokens of the longest piece that counts as a loop when it is repeated */
#define EXL2__JOBS_LOOP_TOKENS 32u /* tokens of a loop, at least */

/* Whether the new tokens end with a piece that came loop_stop times in a row. */
EXL2__PRIVATE bool exl2__jobs_is_loop(const exl2__job *job)
{
    const exl2__table *t = job->sequence.table;
    uint32_t said = t->tokens - job->sequence.prompt_end;
    for (uint32_t piece = 1; job->loop_stop && piece <= EXL2__JOBS_LOOP_PIECE && piece < said; piece++) {
        uint32_t same = piece;
        while (same < said && exl2__table_token(t, t->tokens - 1 - same)
                              == exl2__table_token(t, t->tokens - 1 - same + piece)) {
            same++;
        }
        if (same / piece >= job->loop_stop && same >= EXL2__JOBS_LOOP_TOKENS) {
            return true;
        }
    }
    return false;
}

/* The sampler's state after a token. Adaptive-p keeps two sums in its source: decay * sum + p, and decay * sum + 1. The
   second one begins with its limit 1 / (1 - decay), so it never changes, and the quotient of both is this mean. */
static inline float exl2__jobs_next_state(const exl2__sampling *s, const exl2__logit_result *result)
{
    if (s->adaptive_target > 0) {
        float before = exl2__mul_float(s->adaptive_decay, s->state);
        return before + exl2__mul_float(1 - s->adaptive_decay, result->chance);
    }
    float mu = s->state + exl2__mul_float(s->mirostat_eta, s->mirostat_tau - result->surprise);
    return mu < -100 ? -100 : mu > 100 ? 100 : mu;
}

/* Accepts one sampled token. It checks banned strings, stop strings, end tokens, then the length. Text in which a stop
   string or a banned string might begin stays held. */
static inline void exl2__jobs_accept(exl2_engine *e, exl2__job *job, const exl2__logit_result *result)
{
    exl2__model *m = &e->models[job->model];
    exl2__sequence *s = &job->sequence;
    if (result->token < 0 && exl2__jobs_show_ban(job, &m->pages)) {
        return;
    }
    if (result->token < 0) {
        exl2__jobs_end(job, EXL2_STOP_ERROR, EXL2_ERR_ARG,
                       job->grammar.slot
                           ? "no token can be sampled: biases and lists ban all tokens that the grammar allows"
                           : "no token can be sampled: bias, ban, allow and ban_strings exclude all tokens");
        return;
    }
    exl2__jobs_append(e, job, result->token);
    const exl2__config *config = &m->weights.config;
    bool stop_token = exl2__jobs_is_in(job->stops.tokens, job->stops.token_count, result->token);
    bool stop = stop_token || exl2__jobs_is_in(config->eos, config->eos_count, result->token), whole = false;
    bool full = s->table->tokens - s->prompt_end >= job->max_tokens + (job->healed >= 0);
    exl2_result r = exl2__grammars_accept(e, job, result->token, &stop, &whole);
    if (r < 0) {
        exl2__jobs_fail(e, job, r);
        return;
    }
    bool loop = exl2__jobs_is_loop(job);
    exl2__jobs_hold(m, job, result, stop || whole || full || loop);
    s->sampling.state = exl2__jobs_next_state(&s->sampling, result);
    size_t due;
    if (!exl2__jobs_find_strings(job, &m->pages, &due)) {
        return;
    }
    if (job->delivery.held_tokens == job->delivery.held_tokens_max) {
        due = job->delivery.held_bytes; /* hundreds of tokens without text within a possible stop string */
    }
    if (stop || whole || full || loop) {
        due = job->delivery.held_bytes;
        exl2__jobs_end(job, stop && stop_token ? EXL2_STOP_TOKEN : stop ? EXL2_STOP_EOS : whole ? EXL2_STOP_GRAMMAR
                                : loop ? EXL2_STOP_LOOP : EXL2_STOP_LENGTH, EXL2_OK, NULL);
    }
    exl2__jobs_set_due(job, due);
}

/* Ends the job when its grammar allows no further token: all held text is due. */
EXL2__PRIVATE void exl2__jobs_end_text(exl2__job *job, const exl2__model *m)
{
    exl2__job_delivery *d = &job->delivery;
    if (m->vocab.present) {
        d->held_bytes += (uint32_t)exl2__stream_flush(&d->stream, job->block->hold + d->held_bytes,
                                                      EXL2__JOB_HOLD_BYTES - d->held_bytes);
    }
    exl2__jobs_set_due(job, d->held_bytes);
    exl2__jobs_end(job, EXL2_STOP_GRAMMAR, EXL2_OK, NULL);
}

/* Fraction of the prompt that is, or before a preemption was, in the KV cache. */
static inline float exl2__jobs_progress(exl2__job *job)
{
    const exl2__sequence *s = &job->sequence;
    uint32_t begin = s->prompt_end - s->prompt_count, done = exl2__min32(s->table->cached, s->prompt_end);
    job->delivery.prompt_done = done = exl2__max32(done, job->delivery.prompt_done);
    return done <= begin || s->prompt_count == 0 ? 0 : (float)(done - begin) / (float)s->prompt_count;
}

/* Delivers an event that was due, and does what its callback says. false: the ring is full; nothing has changed. */
EXL2__PRIVATE bool exl2__jobs_deliver_due(exl2_engine *e, exl2__job *job, const exl2_event *event, bool *due)
{
    exl2__way way = exl2__jobs_way(e, job);
    exl2_flow flow;
    if (!exl2__jobs_deliver(e, way, job->delivery.on_event, event, &flow)) {
        return false;
    }
    *due = false;
    job->delivery.deferred += way == EXL2__WAY_DEFERRED;
    job->delivery.deferred_bytes += way == EXL2__WAY_DEFERRED ? exl2__events_size(event) : 0;
    exl2__jobs_flow(e, job, flow);
    return true;
}

/* Delivers the prompt's progress, once a pass; later if the ring is full. false: it is full. */
static inline bool exl2__jobs_deliver_progress(exl2_engine *e, exl2__job *job)
{
    if (!job->delivery.progress_due) {
        return true;
    }
    if (exl2__jobs_deferred_first(e, job)) {
        return false;
    }
    exl2_event event = exl2__jobs_event(e, job, EXL2_EVENT_PREFILL);
    event.progress = exl2__jobs_progress(job);
    return exl2__jobs_deliver_due(e, job, &event, &job->delivery.progress_due);
}

/* Number of the first `tokens` tokens of the history that belong to the prompt, which ends at prompt_end. A healed
   token counts as one of the prompt, but is not in the history. */
static inline uint32_t exl2__jobs_prompt_part(const exl2__job *job, uint32_t tokens, uint32_t prompt_end)
{
    uint32_t begin = prompt_end + (job->healed >= 0) - job->stats.prompt_tokens;
    tokens = exl2__min32(tokens, prompt_end);
    return tokens > begin ? tokens - begin : 0;
}

/* Counts the rows of a pass whose K and V are computed. Returns the number of prompt tokens among them that this job
   did not compute before. */
static inline uint32_t exl2__jobs_computed(exl2__job *job, exl2__pages *pages)
{
    exl2__sequence *s = &job->sequence;
    uint32_t before = exl2__max32(s->table->cached, s->computed_end);
    exl2__table_computed(s->table, pages, s->rows - s->draft_count);
    s->computed_end = exl2__max32(s->computed_end, s->table->cached);
    uint32_t count = exl2__jobs_prompt_part(job, s->computed_end, s->prompt_end)
                   - exl2__jobs_prompt_part(job, before, s->prompt_end);
    job->computed += count;
    if (!job->first_token_ns) {
        job->stats.reused_tokens = exl2__jobs_prompt_part(job, s->table->cached, s->prompt_end) - job->computed;
    }
    return count;
}

/* Delivers the log-probabilities of prompt tokens of one job, at most EXL2__EVENT_TOKENS_MAX, in order of position.
   Room in the ring was reserved when the pass began. */
static inline void exl2__jobs_score(exl2_engine *e, exl2__job *job, const exl2__logit_result *results, uint32_t count)
{
    exl2_alt tokens[EXL2__EVENT_TOKENS_MAX], alts[EXL2__EVENT_TOKENS_MAX * EXL2_ALTS_MAX];
    float logsumexp[EXL2__EVENT_TOKENS_MAX];
    uint32_t per_token = job->sequence.alts;
    for (uint32_t i = 0; i < count; i++) {
        tokens[i] = (exl2_alt){ results[i].token, results[i].logprob };
        logsumexp[i] = results[i].logsumexp;
        for (uint32_t k = 0; k < per_token; k++) {
            exl2_alt none = { -1, 0 };
            alts[i * per_token + k] = k < results[i].alt_count ? results[i].alts[k] : none;
        }
    }
    exl2_event event = exl2__jobs_event(e, job, EXL2_EVENT_PREFILL);
    event.tokens = tokens;
    event.token_count = count;
    event.alts = per_token ? alts : NULL;
    event.alts_per_token = per_token;
    event.logsumexp = logsumexp;
    event.progress = exl2__jobs_progress(job);
    exl2__way way = exl2__jobs_way(e, job);
    exl2__events *ring = exl2__jobs_ring(e, way);
    if (ring) {
        EXL2__ASSERT(ring == job->scores.ring);
        exl2__events_push_reserved(ring, &event, &job->scores.reserved);
        job->delivery.deferred += way == EXL2__WAY_DEFERRED;
        job->delivery.deferred_bytes += way == EXL2__WAY_DEFERRED ? exl2__events_size(&event) : 0;
        return;
    }
    exl2_flow flow;
    exl2__jobs_deliver(e, way, job->delivery.on_event, &event, &flow);
    exl2__jobs_flow(e, job, flow);
}

#endif

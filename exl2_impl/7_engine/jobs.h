/* jobs.h: a running job from its first result to its end: it accepts tokens, delivers text that cannot change any more,
   and ends with one DONE.
   takes: results of a pass; flags that other threads set.
   gives: exl2__jobs_accept, exl2__jobs_score, exl2__jobs_release, exl2__jobs_end, exl2__jobs_finish.
   owns:  nothing; held text and tokens lie in the job's block. */
#ifndef EXL2__JOBS_H
#define EXL2__JOBS_H

#include "grammars.h"

/* ---- delivery ---- */

/* Whether the job's events wait in the ring until the application reads them. */
static inline bool exl2__jobs_is_pulled(const exl2__job *job)
{
    return !job->on_event && !job->discard_events;
}

/* Whether the next pass computes scores that would wait in the ring, too. */
static inline bool exl2__jobs_waits_to_score(const exl2__job *job)
{
    return exl2__jobs_is_pulled(job) && job->sequence.score_prompt && exl2__sequence_pending(&job->sequence) > 1;
}

/* Passes the event to the callback, or puts it into the ring. false: the ring is full; nothing has changed. */
static inline bool exl2__jobs_deliver(exl2_engine *e, exl2_event_fn on_event, void *user, bool discard,
                                      const exl2_event *event, exl2_flow *flow)
{
    *flow = EXL2_CONTINUE;
    if (on_event) {
        e->in_callback++;
        *flow = on_event(user, event);
        e->in_callback--;
        return true;
    }
    return discard || exl2__events_push(&e->events, event);
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

/* Updates what exl2_job_get shows to any thread. */
static inline void exl2__jobs_publish(exl2_engine *e, exl2__job *job)
{
    const exl2__sequence *s = &job->sequence;
    exl2__lock(&e->lock);
    job->published.state = job->pause == job->id ? EXL2_JOB_PAUSED
                         : !s->active ? EXL2_JOB_QUEUED
                         : exl2__sequence_decodes(s) ? EXL2_JOB_DECODE : EXL2_JOB_PREFILL;
    job->published.session.id = e->sessions[job->session].id;
    job->published.stats = job->stats;
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
EXL2__COLD
static void exl2__jobs_fail(exl2_engine *e, exl2__job *job, exl2_result result)
{
    exl2_error error;
    exl2__error_copy(&e->ctx, &error);
    exl2__jobs_end(job, EXL2_STOP_ERROR, result, error.text);
    job->error.native = job->result == result ? error.native : 0;
}

/* Applies what the callback returned. */
static inline void exl2__jobs_flow(exl2_engine *e, exl2__job *job, exl2_flow flow)
{
    if (flow == EXL2_STOP_JOB) {
        exl2__jobs_end(job, EXL2_STOP_CALLBACK, EXL2_OK, NULL);
    } else if (flow == EXL2_PAUSE_JOB) {
        exl2__lock(&e->lock);
        job->pause = job->id;
        exl2__unlock(&e->lock);
    }
}

/* Frees the job's pages, session and slot. The session's history keeps `delivered` new tokens. */
EXL2__COLD
static void exl2__jobs_give_up(exl2_engine *e, exl2__job *job, uint32_t delivered)
{
    exl2__model *m = &e->models[job->model];
    exl2__session *session = &e->sessions[job->session];
    uint32_t slot = exl2__pool_slot_of(job->id);
    if (job->sequence.rows) {
        exl2__batch_forget(&m->batch, slot);
    }
    exl2__events_reserve_less(&e->events, 0, 0, &job->reserved);
    if (job->sequence.active) {
        exl2__table_rewind(&session->table, &m->pages, job->sequence.prompt_end + delivered);
    }
    session->job = 0;
    if (session->closing || session->one_shot) {
        exl2__objects_free_session(e, session);
    }
    exl2__free(&e->ctx, job->guide, m->plan.shape.vocab * sizeof *job->guide, EXL2_MEM_SCRATCH);
    exl2__lock(&e->lock);
    job->sequence.live = false;
    job->cancel = job->pause = 0;
    if (!job->owes_done) {
        exl2__pool_free(&e->job_ids, slot);
    }
    exl2__unlock(&e->lock);
}

static inline exl2_event exl2__jobs_done(const exl2__job *job, exl2_model model, exl2_session session)
{
    exl2_event event = { 0 };
    event.kind = EXL2_EVENT_DONE;
    event.model = model;
    event.session = session;
    event.job.id = job->id;
    event.user = job->user;
    event.stop = job->stop;
    event.result = job->result;
    event.error = job->result < 0 ? job->error.text : NULL;
    event.stats = job->stats;
    return event;
}

/* Frees everything that the job holds and delivers DONE. Before the callback runs, the handle is stale and the session
   is free, so that the callback can start the next job. Where the ring has no room, the job's slot keeps the contents
   of DONE, which is delivered later even if the model is closed meanwhile. */
static inline void exl2__jobs_finish(exl2_engine *e, exl2__job *job)
{
    uint64_t now = exl2__platform_ns();
    job->stats.new_tokens = job->delivered;
    *(job->first_ns ? &job->stats.decode_ns : job->active_ns ? &job->stats.prefill_ns : &job->stats.queued_ns)
        = now - (job->first_ns ? job->first_ns : job->active_ns ? job->active_ns : job->start_ns);
    job->owed_model.id = e->models[job->model].id;
    job->owed_session.id = e->sessions[job->session].id;
    exl2_event event = exl2__jobs_done(job, job->owed_model, job->owed_session);
    job->owes_done = exl2__jobs_is_pulled(job) && !exl2__events_push(&e->events, &event);
    exl2_error error = job->error; /* another job may use the slot when the callback runs */
    event.error = event.error ? error.text : NULL;
    exl2_event_fn on_event = job->on_event;
    void *user = job->user;
    if (e->watched == job->id) {
        e->watched = 0;
        e->watched_result = job->result;
        e->watched_error = job->error;
    }
    exl2__grammars_leave(e, job);
    if (job->twin) {
        exl2__jobs_give_up(e, job->twin, job->delivered);
    }
    exl2__jobs_give_up(e, job, job->delivered);
    if (on_event) {
        exl2_flow ignored;
        exl2__jobs_deliver(e, on_event, user, false, &event, &ignored);
    }
}

/* Delivers DONE events that had found no room in the ring, as far as it has room now. */
EXL2__COLD
static void exl2__jobs_pay_done(exl2_engine *e)
{
    for (uint32_t i = 0; i < e->job_ids.end; i++) {
        exl2__job *job = &e->jobs[i];
        exl2_event event = exl2__jobs_done(job, job->owed_model, job->owed_session);
        if (job->owes_done && exl2__events_push(&e->events, &event)) {
            job->owes_done = false;
            exl2__lock(&e->lock);
            exl2__pool_free(&e->job_ids, i);
            exl2__unlock(&e->lock);
        }
    }
}

/* ---- text ---- */

/* Delivers the text that is due as one TEXT event. false: the ring is full; a later step tries again. */
static inline bool exl2__jobs_release(exl2_engine *e, exl2__job *job)
{
    if (!job->releasing) {
        return true;
    }
    exl2__job_block *block = job->block;
    exl2_event event = exl2__jobs_event(e, job, EXL2_EVENT_TEXT);
    char after = block->hold[job->release_bytes];
    block->hold[job->release_bytes] = 0;
    for (uint32_t i = 0; i < job->release_count; i++) {
        block->event_tokens[i] = block->held[i].token;
    }
    event.text = block->hold;
    event.bytes = job->release_bytes;
    event.tokens = block->event_tokens;
    event.token_count = job->release_count;
    event.alts = job->sequence.alts ? block->alts : NULL;
    event.alts_per_token = job->sequence.alts;
    /* Counted before the callback runs, because the callback may fork the session or query its tokens or the job.
       Undone if the ring is full. */
    job->delivered += job->release_count;
    job->stats.new_tokens = job->delivered;
    exl2__jobs_publish(e, job);
    exl2_flow flow;
    bool delivered = exl2__jobs_deliver(e, job->on_event, job->user, job->discard_events, &event, &flow);
    block->hold[job->release_bytes] = after;
    if (!delivered) {
        job->delivered -= job->release_count;
        job->stats.new_tokens = job->delivered;
        exl2__jobs_publish(e, job);
        return false;
    }
    uint32_t alts = job->sequence.alts;
    job->taken_back = 0;
    job->held_count -= job->release_count;
    job->hold_bytes -= job->release_bytes;
    memmove(block->held, block->held + job->release_count, job->held_count * sizeof *block->held);
    memmove(block->alts, block->alts + (size_t)job->release_count * alts,
            (size_t)job->held_count * alts * sizeof *block->alts);
    memmove(block->hold, block->hold + job->release_bytes, job->hold_bytes);
    for (uint32_t i = 0; i < job->held_count; i++) {
        block->held[i].end -= job->release_bytes;
    }
    if (job->held_count) { /* a code point cut before it was shown as U+FFFD, which a rewind cannot change */
        block->held[0].stream.held_bytes = 0;
    }
    job->releasing = false;
    exl2__jobs_flow(e, job, flow);
    return true;
}

/* Makes the first `bytes` of the held text, and the tokens that end in them, due for delivery. */
static inline void exl2__jobs_due(exl2__job *job, size_t bytes)
{
    uint32_t count = 0;
    while (count < job->held_count && job->block->held[count].end <= bytes) {
        count++;
    }
    job->release_bytes = (uint32_t)bytes;
    job->release_count = count;
    job->releasing = bytes > 0 || count > 0;
}

static inline bool exl2__jobs_is_stop_token(const exl2__job *job, exl2_token token)
{
    for (uint32_t i = 0; i < job->stop_token_count; i++) {
        if (job->stop_tokens[i] == token) {
            return true;
        }
    }
    return false;
}

static inline bool exl2__jobs_is_eos(const exl2__model *m, exl2_token token)
{
    for (uint32_t i = 0; i < m->load.config.eos_count; i++) {
        if (m->load.config.eos[i] == token) {
            return true;
        }
    }
    return false;
}

/* Whether the next sampled token replaces the prompt's last one (token healing). */
static inline bool exl2__jobs_heals(const exl2__job *job)
{
    return job->healed >= 0 && job->sequence.active && job->sequence.table->tokens == job->sequence.prompt_end;
}

/* Whether the newest token has replaced it. */
static inline bool exl2__jobs_drew_healed(const exl2__job *job)
{
    return job->healed >= 0 && job->sequence.table->tokens == job->sequence.prompt_end + 1;
}

/* Adds the token and its text to the held ones. */
static inline void exl2__jobs_hold(exl2__model *m, exl2__job *job, const exl2__logit_result *result, bool flush)
{
    exl2__job_block *block = job->block;
    exl2__held_token *held = &block->held[job->held_count];
    size_t room = EXL2__JOB_HOLD_BYTES - job->hold_bytes;
    held->stream = job->stream;
    held->mu = job->sequence.sampling.mirostat_mu;
    if (m->vocab.present) {
        job->hold_bytes +=
            (uint32_t)exl2__stream_push(&job->stream, &m->vocab, result->token, block->hold + job->hold_bytes, room);
        if (flush) {
            room = EXL2__JOB_HOLD_BYTES - job->hold_bytes;
            job->hold_bytes += (uint32_t)exl2__stream_flush(&job->stream, block->hold + job->hold_bytes, room);
        }
    }
    if (exl2__jobs_drew_healed(job)) { /* the prompt has the beginning of its text; nothing else is held */
        size_t said;
        bool special;
        exl2__vocab_piece(&m->vocab, job->healed, &said, &special);
        job->hold_bytes -= (uint32_t)said;
        memmove(block->hold, block->hold + said, job->hold_bytes);
    }
    held->token.token = result->token;
    held->token.logprob = result->logprob;
    held->end = job->hold_bytes + exl2__stream_pending(&job->stream); /* an incomplete code point counts */
    uint32_t alts = job->sequence.alts;
    for (uint32_t i = 0; i < alts; i++) {
        exl2_alt none = { -1, 0 };
        block->alts[(size_t)job->held_count * alts + i] = i < result->alt_count ? result->alts[i] : none;
    }
    job->held_count++;
}

/* Removes the last `tokens` tokens. The token before them is computed again, for its logits. */
static inline void exl2__jobs_shorten(exl2__table *t, uint32_t tokens)
{
    t->tokens -= tokens;
    t->cached = exl2__min32(t->cached, t->tokens - 1);
}

/* Rewinds to the token that contains byte `at`, where the banned text starts, so that a different token is sampled
   there. false: too many tokens were tried; the text stays. */
EXL2__COLD
static bool exl2__jobs_take_back(exl2__job *job, size_t at)
{
    exl2__sequence *s = &job->sequence;
    uint32_t first = 0;
    while (first + 1 < job->held_count && job->block->held[first].end <= at) {
        first++;
    }
    const exl2__held_token *held = &job->block->held[first];
    uint32_t position = s->prompt_end + job->delivered + first;
    s->tried_count = s->tried_at == position ? s->tried_count : 0;
    s->tried_at = position;
    if (s->tried_count == EXL2__SEQUENCE_TRIED_MAX || job->taken_back == EXL2__JOB_TAKEN_BACK_MAX) {
        job->stats.bans_shown++;
        return false;
    }
    s->tried[s->tried_count++] = held->token.token;
    s->attempt++;
    job->taken_back++;
    job->stats.bans_avoided++;
    job->stream = held->stream;
    s->sampling.mirostat_mu = held->mu;
    job->held_count = first;
    job->hold_bytes = first ? job->block->held[first - 1].end - exl2__stream_pending(&job->stream) : 0;
    uint32_t back = s->table->tokens - position;
    exl2__jobs_shorten(s->table, back);
    if (job->twin) {
        exl2__jobs_shorten(job->twin->sequence.table, back);
    }
    return true;
}

/* Length of the text of whole tokens within the first `bytes` of the held text. Only whole tokens are shown, because a
   token cannot be rewound once a part of it is shown. A token that ends within a code point is whole only together with
   the token that completes it: the next token decides whether the bytes become that code point or U+FFFD, and after a
   rewind another token may decide differently. */
static inline size_t exl2__jobs_whole_tokens(const exl2__job *job, size_t bytes)
{
    const exl2__held_token *held = job->block->held;
    size_t whole = 0;
    for (uint32_t i = 0; i < job->held_count && held[i].end <= bytes; i++) {
        const exl2__stream *after = i + 1 < job->held_count ? &held[i + 1].stream : &job->stream;
        whole = exl2__stream_pending(after) ? whole : held[i].end;
    }
    return whole;
}

/* Length of the beginning of the held text, at most `bytes`, that can be shown even if the following tokens are rewound
   and replaced: no stop string and no banned string may begin at its end. */
static inline size_t exl2__jobs_kept(const exl2__job *job, size_t bytes)
{
    for (;;) {
        size_t whole = exl2__jobs_whole_tokens(job, bytes), settled, ban_settled, at;
        exl2__stops_match(&job->stops, job->block->hold, whole, &settled, &at);
        exl2__stops_match(&job->bans, job->block->hold, whole, &ban_settled, &at);
        bytes = exl2__min64(settled, ban_settled);
        if (bytes == whole) {
            return whole;
        }
    }
}

/* Accepts one sampled token. It checks banned strings, stop strings, end tokens, then the length. Text in which a stop
   string or a banned string might begin stays held. */
static inline void exl2__jobs_accept(exl2_engine *e, exl2__job *job, const exl2__logit_result *result)
{
    exl2__model *m = &e->models[job->model];
    exl2__sequence *s = &job->sequence;
    if (result->token < 0) {
        exl2__jobs_end(job, EXL2_STOP_ERROR, EXL2_ERR_ARG,
                       job->grammar ? "no token is allowed: the biases and lists ban all that the grammar allows here"
                                    : "no token is allowed: biases, ban, allow and banned texts leave none");
        return;
    }
    if (!job->first_ns) {
        job->first_ns = exl2__platform_ns();
        job->stats.prefill_ns = job->first_ns - job->active_ns;
    }
    exl2__table_append(s->table, &m->pages, result->token);
    if (job->twin) {
        exl2__table_append(job->twin->sequence.table, &m->pages, result->token);
    }
    e->stats.tokens_out++;
    bool eos = exl2__jobs_is_eos(m, result->token), stop_token = exl2__jobs_is_stop_token(job, result->token);
    bool full = s->table->tokens - s->prompt_end >= job->max_tokens + (job->healed >= 0), whole = false;
    bool stop = eos || stop_token;
    exl2_result followed = exl2__grammars_accept(e, job, result->token, &stop, &whole);
    if (followed < 0) {
        exl2__jobs_fail(e, job, followed);
        return;
    }
    exl2__jobs_hold(m, job, result, stop || whole || full);
    float mu = s->sampling.mirostat_mu + s->sampling.mirostat_eta * (s->sampling.mirostat_tau - result->surprise);
    s->sampling.mirostat_mu = mu < -100 ? -100 : mu > 100 ? 100 : mu;

    size_t settled, stop_at, ban_settled = job->hold_bytes;
    if (exl2__stops_match(&job->bans, job->block->hold, job->hold_bytes, &ban_settled, &stop_at)) {
        if (exl2__jobs_take_back(job, stop_at)) {
            return;
        }
        ban_settled = job->hold_bytes;
    }
    if (exl2__stops_match(&job->stops, job->block->hold, job->hold_bytes, &settled, &stop_at)) {
        exl2__jobs_due(job, stop_at);
        exl2__jobs_end(job, EXL2_STOP_STRING, EXL2_OK, NULL);
        return;
    }
    if (job->bans.count > 0) {
        settled = exl2__jobs_kept(job, exl2__min64(settled, ban_settled));
    }
    if (job->held_count == job->held_max) { /* hundreds of tokens without text within a possible stop string */
        settled = job->hold_bytes;
    }
    if (stop || whole || full) {
        settled = job->hold_bytes;
        exl2__jobs_end(job, stop && stop_token ? EXL2_STOP_TOKEN : stop ? EXL2_STOP_EOS
                                : whole ? EXL2_STOP_GRAMMAR : EXL2_STOP_LENGTH, EXL2_OK, NULL);
    }
    exl2__jobs_due(job, settled);
}

/* Ends the job when its grammar allows no further token: all held text is due. */
EXL2__COLD
static void exl2__jobs_end_text(exl2__job *job, const exl2__model *m)
{
    if (m->vocab.present) {
        job->hold_bytes += (uint32_t)exl2__stream_flush(&job->stream, job->block->hold + job->hold_bytes,
                                                        EXL2__JOB_HOLD_BYTES - job->hold_bytes);
    }
    exl2__jobs_due(job, job->hold_bytes);
    exl2__jobs_end(job, EXL2_STOP_GRAMMAR, EXL2_OK, NULL);
}

/* Fraction of the prompt that is in the KV cache. */
static inline float exl2__jobs_progress(const exl2__job *job)
{
    const exl2__sequence *s = &job->sequence;
    uint32_t begin = s->prompt_end - s->prompt_count, done = exl2__min32(s->table->cached, s->prompt_end);
    return done <= begin || s->prompt_count == 0 ? 0 : (float)(done - begin) / (float)s->prompt_count;
}

/* Delivers the prompt's progress, once a pass; later if the ring is full. false: it is full. */
static inline bool exl2__jobs_tell_progress(exl2_engine *e, exl2__job *job)
{
    if (!job->progress_due) {
        return true;
    }
    exl2_event event = exl2__jobs_event(e, job, EXL2_EVENT_PREFILL);
    event.progress = exl2__jobs_progress(job);
    exl2_flow flow;
    if (!exl2__jobs_deliver(e, job->on_event, job->user, job->discard_events, &event, &flow)) {
        return false;
    }
    job->progress_due = false;
    exl2__jobs_flow(e, job, flow);
    return true;
}

/* Number of prompt tokens that are already in the cache when the job becomes active. `cached` tokens of its session
   are; the session's history then ends at prompt_end. A healed token counts as one of the prompt, but is not in that
   history. */
static inline uint32_t exl2__jobs_reused(const exl2__job *job, uint32_t cached, uint32_t prompt_end)
{
    uint32_t begin = prompt_end + (job->healed >= 0) - job->stats.prompt_tokens;
    return cached > begin ? cached - begin : 0;
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
    if (exl2__jobs_is_pulled(job)) {
        exl2__events_push_reserved(&e->events, &event, &job->reserved);
        return;
    }
    exl2_flow flow;
    exl2__jobs_deliver(e, job->on_event, job->user, job->discard_events, &event, &flow);
    exl2__jobs_flow(e, job, flow);
}

#endif

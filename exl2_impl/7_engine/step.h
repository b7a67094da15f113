/* step.h: exl2_step, the one place where work happens. It delivers events, admits jobs, runs a pass and distributes the
   pass's results.
   Read this first in this folder.
   takes: an engine, a budget.
   gives: exl2__step_engine. */
#ifndef EXL2__STEP_H
#define EXL2__STEP_H

#include "../2_graph/forward_queue.h"
#include "embeddings.h"
#include "forced.h"
#include "host_sample.h"
#include "image_work.h"
#include "loading_run.h"
#include "masks.h"
#include "step_cards.h"

/* A unit has at most 1 / UNITS of a step's budget: a prediction that is wrong by a fifth then costs a fortieth of the
   budget. But it may always have UNIT_LEAST_NS, as a thread is not worth waking for less. */
#define EXL2__STEP_UNITS 8u
#define EXL2__STEP_UNIT_LEAST_NS 100000u

/* Most predicted time of a unit in a step with this budget; budget_ns 0 = no budget. */
static inline uint64_t exl2__step_unit_ns(uint64_t budget_ns)
{
    return budget_ns ? exl2__max64(budget_ns / EXL2__STEP_UNITS, EXL2__STEP_UNIT_LEAST_NS) : 0;
}

/* For the trace: the time, if the application wants to hear of units. */
static inline uint64_t exl2__step_trace_begin(const exl2_engine *e)
{
    return e->ctx.zones.unit ? exl2__platform_ns() : 0;
}

static inline void exl2__step_trace_end(const exl2_engine *e, const char *name, uint64_t begin_ns)
{
    if (e->ctx.zones.unit) {
        exl2__zone_unit(&e->ctx, name, 0, exl2__platform_ns() - begin_ns);
    }
}

/* What a step has done so far. */
typedef struct exl2__progress {
    bool anything, pass_ended;
} exl2__progress;

/* ---- jobs ---- */

/* Ends the job if another thread has cancelled it. Returns whether it is paused. */
static inline bool exl2__step_read_flags(exl2_engine *e, exl2__job *job)
{
    exl2__lock(&e->lock);
    bool cancelled = job->shared.cancel == job->id, paused = job->shared.pause == job->id;
    exl2__unlock(&e->lock);
    if (cancelled) {
        exl2__jobs_end_deferred(job);
        exl2__jobs_end(job, EXL2_STOP_CANCELLED, EXL2_ERR_CANCELLED, "the job was cancelled");
        job->delivery.text_due = job->delivery.text_due && job->stop != EXL2_STOP_CANCELLED;
        job->delivery.embedding_due = job->delivery.embedding_due && job->stop != EXL2_STOP_CANCELLED;
        job->delivery.progress_due = false;
    }
    return paused;
}

/* Applies the flags that other threads set, repeats deliveries for which the ring had no room, and delivers DONE if the
   job is ending; for a job whose callback the worker cannot call, exl2_step does that. */
static inline void exl2__step_update_job(exl2_engine *e, exl2__job *job, exl2__progress *progress)
{
    bool paused = exl2__step_read_flags(e, job);
    uint64_t id = job->id;
    bool waits = exl2__jobs_is_deferred(e, job) || exl2__jobs_deferred_first(e, job); /* for its end */
    bool was_due = job->delivery.text_due || job->delivery.progress_due || job->delivery.embedding_due
                || (job->ending && !waits);
    bool clear = exl2__jobs_deliver_progress(e, job) && exl2__jobs_deliver_text(e, job)
              && exl2__embeddings_deliver(e, job);
    waits = exl2__jobs_is_deferred(e, job) || exl2__jobs_deferred_first(e, job);
    if (job->ending && clear && !waits) {
        exl2__jobs_finish(e, job);
    }
    progress->anything |= was_due && clear;
    if (job->id == id && job->sequence.live) {
        job->sequence.held = paused || !clear || job->ending;
        if (job->guidance.negative) {
            job->guidance.negative->sequence.held = job->sequence.held;
        }
        exl2__jobs_publish(e, job);
    }
}

/* Updates all jobs of a model. A job that a callback starts meanwhile may wait for the next call. */
static inline void exl2__step_update_jobs(exl2_engine *e, const exl2__model *m, exl2__progress *progress)
{
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        if (!exl2__objects_is_hidden(job)) {
            exl2__step_update_job(e, job, progress);
        }
    }
}

/* ---- passes ---- */

/* The sequences of the model's jobs, by job slot. */
static inline uint32_t exl2__step_sequences(exl2_engine *e, exl2__model *m, uint32_t *active)
{
    *active = 0;
    for (uint32_t i = 0; i < e->job_ids.end; i++) {
        m->sequences[i] = &m->no_sequence;
    }
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        m->sequences[job - e->jobs] = &job->sequence;
        *active += job->sequence.active;
    }
    return e->job_ids.end;
}

/* Promises pages to jobs that outgrew theirs, then starts waiting sequences while the batch and the cache have room;
   one of a high priority may preempt others. */
static inline void exl2__step_admit(exl2_engine *e, exl2__model *m, uint32_t count, uint32_t active)
{
    exl2__schedule_room room = { &m->pages, m->plan.sequences_max - active };
    exl2__sequence *next;
    e->stats.preemptions += exl2__schedule_grow(m->sequences, count, &m->pages, &room);
    e->stats.preemptions += exl2__schedule_make_room(m->sequences, count, &m->pages, &room);
    while ((next = exl2__schedule_next(m->sequences, count, &room)) != NULL) {
        exl2__schedule_start(next, m->sequences, count, &m->pages);
        if (next->negative) {
            exl2__schedule_start(next->negative, m->sequences, count, &m->pages);
        }
        room.places -= 1u + (next->negative != NULL);
        for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
            if (&job->sequence == next && !job->active_ns && !job->drafting.target) {
                job->active_ns = exl2__platform_ns();
                job->stats.queued_ns = job->active_ns - job->start_ns;
                job->stats.reused_tokens = exl2__jobs_prompt_part(job, next->table->cached, next->prompt_end);
                exl2__forced_begin(e, job);
            }
            exl2__jobs_publish(e, job);
        }
    }
}

/* Preempts the jobs that have lost K and V that they need. */
static inline void exl2__step_slide(exl2_engine *e, exl2__model *m, uint32_t count, uint32_t *active)
{
    uint32_t preempted = exl2__schedule_slide(m->sequences, count, &m->pages);
    *active -= preempted;
    e->stats.preemptions += preempted;
    for (exl2__job *job = NULL; preempted > 0 && (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        exl2__jobs_publish(e, job);
    }
}

/* The first job whose scores still need room in the ring, in the order in which jobs get rows. */
static inline exl2__job *exl2__step_next_scores(exl2_engine *e, const exl2__model *m)
{
    exl2__job *first = NULL;
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        if (job->scores.due && (!first || exl2__sequence_before(&job->sequence, &first->sequence))) {
            first = job;
        }
    }
    return first;
}

/* Reserves room for scores. A pass continues even if the application reads no events, so the scores of its rows must
   have room in the ring before the pass begins: a job gets as many rows as have room, or none. While there is a worker,
   a pass that a call begins may end in the worker, or after the job was paused, so it has room for a callback, too;
   if there is none, a callback that hears its events at once needs none. */
static inline void exl2__step_reserve_scores(exl2_engine *e, exl2__model *m)
{
    exl2__job *job = NULL;
    while ((job = exl2__objects_next_job(e, m, job)) != NULL) {
        const exl2__job_delivery *d = &job->delivery;
        exl2__sequence *s = &job->sequence;
        exl2__way way = exl2__jobs_choose_way(d->on_event, d->discard, e->worker.runs || d->deferred > 0);
        job->scores.ring = s->score_prompt ? exl2__jobs_ring(e, way) : NULL;
        job->scores.due = job->scores.ring && s->active && !s->held && exl2__sequence_unscored(s) > 0;
        job->scores.blocked = false;
        s->rows_most = 0;
    }
    while ((job = exl2__step_next_scores(e, m)) != NULL) {
        exl2__sequence *s = &job->sequence;
        uint32_t scores = exl2__sequence_unscored(s);
        uint32_t most = exl2__min32(scores, m->plan.rows_max);
        if (job->scores.ring == &e->worker.events) { /* the job may be paused: then these events wait in
                                                        exl2__worker.paused */
            bool full = job->delivery.deferred_bytes >= EXL2__JOB_DEFERRED_BYTES;
            most = full ? 0 : exl2__events_rows(most, s->alts, EXL2__JOB_EVENT_BYTES);
        }
        uint32_t rows = exl2__events_reserve(job->scores.ring, most, s->alts, &job->scores.reserved);
        bool at_once = job->delivery.on_event && !exl2__jobs_is_deferred(e, job);
        job->scores.due = false;
        s->rows_most = rows < scores ? rows : 0; /* 0: any number */
        s->held = job->scores.blocked = rows == 0 && !at_once;
    }
}

/* Once the rows of the pass are known: releases the room that they do not need. */
static inline void exl2__step_reserve_less(exl2_engine *e, exl2__model *m)
{
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        if (job->scores.reserved) {
            exl2__events_reserve_less(job->scores.ring, job->sequence.rows, job->sequence.alts, &job->scores.reserved);
        }
    }
}

/* Makes a repeated pass that was queued early the current pass, if a job still needs it. */
static inline bool exl2__step_begin_repeated(exl2__model *m)
{
    if (!m->forward.ahead || exl2__batch_next(&m->batch, m->sequences) == 0) {
        return false;
    }
    exl2__forward_begin_repeated(&m->forward);
    return true;
}

/* Takes a job's rows and page copies out of the pass that is being planned. Returns the number of its rows. */
static inline uint32_t exl2__step_drop_rows(exl2__model *m, exl2__job *job)
{
    const exl2__table *t = job->sequence.table;
    uint32_t rows = job->sequence.rows, kept = 0;
    for (uint32_t i = 0; i < m->batch.copy_count; i++) {
        bool own = false;
        for (uint32_t k = 0; k < t->page_count && rows; k++) {
            own = own || t->pages[k] == m->batch.copies[i].to;
        }
        m->batch.copies[kept] = m->batch.copies[i];
        if (m->pages.windows.count > 0) {
            m->pages.windows.copies[kept] = m->pages.windows.copies[i];
        }
        kept += !own;
    }
    m->batch.copy_count = kept;
    job->sequence.rows = 0;
    exl2__events_reserve_less(job->scores.ring, 0, 0, &job->scores.reserved);
    return rows;
}

/* Gives memory to the table's pages, and to the window parts that the next rows see. */
static inline exl2_result exl2__step_commit_table(const exl2__model *m, const exl2__table *t)
{
    const exl2__windows *w = &m->pages.windows;
    for (uint32_t i = t->seen; w->count > 0 && i < t->seen_end; i++) {
        EXL2__TRY(exl2__spans_commit(&m->spans, &w->part[t->pages[i]], 1, true));
    }
    return exl2__spans_commit(&m->spans, t->pages, t->page_count, false);
}

/* Gives memory to the pages of the pass that is being planned. A job for which the system has none fails, with the
   other prompt of its guidance. Returns the number of rows that this takes out of the pass. */
static inline uint32_t exl2__step_commit(exl2_engine *e, exl2__model *m)
{
    uint32_t dropped = 0;
    exl2__job *job = NULL;
    while (exl2__objects_backend(m)->commit_pages && (job = exl2__objects_next_job(e, m, job)) != NULL) {
        exl2_result r = job->sequence.rows ? exl2__step_commit_table(m, job->sequence.table) : EXL2_OK;
        exl2__job *positive = exl2__objects_positive(job);
        if (r < 0 && job->drafting.target) {
            dropped += exl2__step_drop_rows(m, job);
            exl2__jobs_free_drafter(e, job->drafting.target);
        } else if (r < 0) {
            exl2__jobs_fail(e, positive, r);
            dropped += exl2__step_drop_rows(m, positive);
            dropped += positive->guidance.negative ? exl2__step_drop_rows(m, positive->guidance.negative) : 0;
        }
    }
    return dropped;
}

/* Rows of prompts that the next pass may have: with a budget so few that units are short, and rows exact. */
static inline uint32_t exl2__step_prompt_rows(const exl2__model *m, const exl2__budget *budget)
{
    const exl2__backend *backend = exl2__objects_backend(m);
    bool queues = exl2__backend_is_async(backend);
    uint64_t budget_ns = queues ? budget->gpu_ns : budget->unit_ns;
    if (budget_ns == 0) {
        return m->plan.rows_max - m->plan.picture_rows;
    }
    uint32_t rows = exl2__forward_rows_for(&m->forward, queues ? budget_ns / 2 : budget_ns);
    return backend->two_kinds ? exl2__min32(rows, backend->exact_rows) : rows;
}

/* Number of further passes that may be queued for this pass's rows before their tokens are known on the CPU. 0 if
   another job waits to join the next pass, or if a row needs its token, or a mask that may differ in the next pass (as
   with a healed token). */
static inline uint32_t exl2__step_repeats(exl2_engine *e, exl2__model *m)
{
    uint32_t active, count = exl2__step_sequences(e, m, &active), more = 0, covered = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        const exl2__sequence *s = m->sequences[i];
        if (s->live && s->active && !s->held && (s->rows == 0 || exl2__jobs_heals(&e->jobs[i]))) {
            return 0;
        }
        if (s->live && s->rows && (s->waits || m->guesses || exl2__sequence_is_short(s))) {
            return 0;
        }
        if (s->live && s->rows) {
            uint32_t end = exl2__batch_covered(s);
            more = exl2__max32(more, s->tokens_end - s->table->tokens);
            covered = end < s->tokens_end ? exl2__min32(covered, end - s->table->tokens) : covered;
        }
    }
    exl2__schedule_room room = { &m->pages, m->plan.sequences_max - active };
    bool others = exl2__schedule_next(m->sequences, count, &room) || exl2__schedule_outranks(m->sequences, count);
    more = exl2__min32(more, covered); /* then a new pass begins, with more pages */
    return others || more == 0 ? 0 : more - 1;
}

/* Starts the next pass, if a job has rows for it. */
static inline exl2_result exl2__step_begin(exl2_engine *e, exl2__model *m, const exl2__budget *budget)
{
    uint32_t active, count = exl2__step_sequences(e, m, &active);
    m->tables_updated = false;
    m->pass_begin_ns = exl2__platform_ns();
    if (exl2__step_begin_repeated(m)) {
        return EXL2_OK;
    }
    exl2__tier_moves_weigh(m);
    exl2__draft_models_all_follow(e, m, false);
    exl2__step_slide(e, m, count, &active);
    exl2__step_admit(e, m, count, active);
    exl2__draft_models_all_follow(e, m, true); /* those that have just started, too */
    exl2__step_reserve_scores(e, m);
    exl2__drafts_ask(e, m);
    m->pass_ns = 0;
    uint32_t most = exl2__min32(m->plan.rows_max, exl2__windows_rows_most(&m->pages.windows));
    exl2__schedule_limits limits = { .kind = m->forward.step.kind, .rows = most - m->plan.picture_rows,
                                     .prompt_rows = exl2__step_prompt_rows(m, budget),
                                     .sequences = m->plan.sequences_max,
                                     .sampled_rows = exl2__objects_backend(m)->decode_rows,
                                     .picture_rows = m->plan.picture_rows, .lora_turn = m->lora_turn };
    limits.lora_rows = m->plan.lora_max ? exl2__objects_backend(m)->loras->rows : 0;
    exl2__schedule_kind(m->sequences, count, &m->pages, limits.kind, &limits);
    exl2__images_gate(e, m);
    exl2__drafts_make(e, m, limits.kind);
    uint32_t rows = exl2__schedule_rows(m->sequences, count, &m->pages, &limits, m->batch.copies, &m->batch.copy_count);
    EXL2__TRY(exl2__tier_moves_run(e, m));
    rows -= exl2__step_commit(e, m);
    exl2__step_reserve_less(e, m);
    exl2__masks_plan(e, m);
    if (rows == 0) {
        return EXL2_OK;
    }
    exl2__step step;
    exl2__batch_fill(&m->batch, m->sequences, count, &m->pages, limits.kind, &step);
    m->forward.may_group = budget->gpu_ns == 0 && m->spans.count > 1 && exl2__step_repeats(e, m) > 0;
    return exl2__forward_begin(&m->forward, &step);
}

/* After the layers: K and V of the pass's rows are in the cache, and the tables are updated. */
static inline void exl2__step_update_tables(exl2_engine *e, exl2__model *m)
{
    if (m->tables_updated) {
        return;
    }
    m->tables_updated = true;
    bool counts = false;
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        exl2__sequence *s = &job->sequence;
        if (s->rows == 0) {
            continue;
        }
        if (!exl2__sequence_decodes(s) && s->attempt == 0) {
            bool silent = s->score_prompt || s->pool != EXL2_EMBED_OFF || exl2__objects_is_hidden(job);
            job->delivery.progress_due = !job->first_token_ns && !silent;
        }
        counts |= !job->drafting.target;
        e->stats.tokens_in += exl2__jobs_computed(job, &m->pages);
        exl2__drafts_count(e, job);
        if (s->prefill_only && s->table->cached == s->table->tokens) {
            job->prefilled = true;
        }
    }
    e->stats.forwards += counts; /* not those of drafters alone */
}

/* Samples the row on the CPU if its logits were fetched, and gives the token to the job of the positive prompt. false:
   the row needs more time than the step has. */
static inline bool exl2__step_token(exl2_engine *e, exl2__model *m, exl2__job *job, uint32_t row,
                                    const exl2__budget *budget, bool *at_least_one, uint64_t *spent_ns)
{
    exl2__job *positive = exl2__objects_positive(job);
    const exl2__forward *f = &m->forward;
    const exl2__logit_row *logit = &f->step.logits[f->logit0 + row];
    uint64_t position = logit->sample_position;
    bool drafts = job->drafting.target != NULL, begins = !m->sampling.run;
    exl2__host_outcome outcome = EXL2__HOST_SAMPLED;
    if (begins && !drafts) {
        if (!exl2__drafts_wants(e, job, position, logit->attempt)) {
            return true;
        }
        exl2__jobs_deliver_progress(e, positive);
    }
    if (logit->use == EXL2__LOGIT_FETCH) {
        outcome = exl2__host_sample_row(e, m, job, row, budget, at_least_one, spent_ns);
    }
    bool sampled = outcome == EXL2__HOST_SAMPLED;
    if (outcome == EXL2__HOST_MORE) {
        return false;
    }
    if (drafts) {
        exl2__draft_models_token(m, job, sampled ? f->results[row].token : -1, position);
        return true;
    }
    if (sampled && positive->on_token && f->results[row].token >= 0 && !positive->ending) {
        exl2__host_replace(e, m, positive, &m->forward.results[row]);
    }
    if (sampled && !positive->ending) {
        exl2__jobs_accept(e, positive, f->results + row);
        exl2__forced_append(e, positive);
        exl2__drafts_confirm(e, m, job, position);
    }
    if (!positive->delivery.progress_due) {
        exl2__jobs_deliver_text(e, positive);
    }
    return true;
}

/* Gives the results of a group of logit rows to their jobs, from m->results_read on. false: a later step goes on. */
static inline bool exl2__step_results(exl2_engine *e, exl2__model *m, const exl2__budget *budget, bool at_least_one,
                                      uint64_t *spent_ns)
{
    const exl2__forward *f = &m->forward;
    const exl2__logit_row *rows = f->step.logits + f->logit0;
    const uint16_t *owners = m->batch.logit_owner + f->logit0;
    const uint64_t *orders = m->batch.logit_order + f->logit0;
    for (uint32_t count; m->results_read < f->result_count; m->results_read += count) {
        uint32_t first = m->results_read;
        count = 1;
        exl2__job *job = &e->jobs[owners[first]];
        bool wanted = job->sequence.live && job->sequence.rows && &e->models[job->model] == m;
        wanted = wanted && job->sequence.order == orders[first] && !exl2__objects_positive(job)->ending;
        if (rows[first].use == EXL2__LOGIT_SCORE) {
            while (first + count < f->result_count && orders[first + count] == orders[first]
                   && count < EXL2__EVENT_TOKENS_MAX && rows[first + count].use == EXL2__LOGIT_SCORE) {
                count++;
            }
            if (wanted) {
                exl2__jobs_score(e, job, f->results + first, count);
            }
        } else if (rows[first].use == EXL2__LOGIT_HIDDEN) {
            bool last = rows[first].layer == 0 || rows[first].layer == m->plan.shape.layers;
            exl2__embeddings_rows(e, m, wanted && last ? job : NULL, exl2__spans_last(&m->spans), f->logit0 + first,
                                  f->logit0 + f->result_count, &count);
        } else if (wanted && !exl2__step_token(e, m, job, first, budget, &at_least_one, spent_ns)) {
            return false;
        }
        m->sampling.run = NULL; /* of a job that has ended since the row began */
    }
    return true;
}

/* Ends the pass: its rows are free again, and finished prefills end their jobs. */
static inline void exl2__step_end_pass(exl2_engine *e, exl2__model *m, exl2_result result)
{
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        if (job->sequence.rows == 0) {
            continue;
        }
        job->sequence.rows = job->sequence.draft_count = 0;
        exl2__events_reserve_less(job->scores.ring, 0, 0, &job->scores.reserved);
        if (job->drafting.target) {
            if (result < 0 || job->ending) {
                exl2__jobs_free_drafter(e, job->drafting.target);
            }
        } else if (result < 0) {
            exl2__jobs_fail(e, exl2__objects_positive(job), result);
        } else if (job->prefilled) {
            if (job->sequence.pool != EXL2_EMBED_OFF) {
                exl2__embeddings_finish(e, m, job);
            }
            job->delivery.text_due = job->delivery.due_bytes > 0 || job->delivery.due_tokens > 0; /* all of it forced */
            exl2__jobs_end(job, job->stop ? job->stop : EXL2_STOP_LENGTH, EXL2_OK, NULL);
        }
    }
    if (exl2__objects_is_async(m)) {
        m->pass_ns = exl2__platform_ns() - m->pass_begin_ns;
    }
    if (result >= 0 && !m->pass_reads) {
        exl2__drafts_learn(m, m->forward.step.row_count, m->pass_ns);
    }
}

/* Drops a pass whose jobs have all ended. */
static inline void exl2__step_drop_unused(exl2_engine *e, exl2__model *m)
{
    bool wanted = false;
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        wanted |= job->sequence.rows > 0;
    }
    m->forward.active = m->forward.active && wanted;
}

/* ---- a model's share of a step ---- */

/* Continues the pass: on the CPU until the deadline, on a GPU as far as its queue budget allows. ran: work was done in
   this step. */
static inline exl2_result exl2__step_forward(exl2_engine *e, exl2__model *m, const exl2__budget *budget,
                                             exl2__queue_budget *queue_budget, bool ran, exl2__forward_status *status)
{
    if (m->forward.masks == EXL2__MASKS_WANTED) { /* filling them in may end jobs, whose DONE is delivered first */
        bool made = exl2__masks_fill_due(e, m, budget, !ran);
        m->forward.masks = made ? EXL2__MASKS_MADE : EXL2__MASKS_WANTED;
        *status = made ? EXL2__FORWARD_MASKS : EXL2__FORWARD_MORE;
        return EXL2_OK;
    }
    if (m->forward.masks == EXL2__MASKS_MADE) {
        EXL2__TRY(exl2__forward_masked(&m->forward));
    }
    m->forward.unit_ns = budget->unit_ns;
    m->forward.wanted = e->worker.stepping ? &e->worker.wanted : NULL;
    if (!exl2__objects_is_async(m)) {
        uint64_t begin_ns = exl2__platform_ns();
        exl2_result r = exl2__forward_run(&m->forward, budget->deadline_ns, !ran, status);
        m->pass_ns += exl2__platform_ns() - begin_ns;
        return r;
    }
    const exl2__span *last = exl2__spans_last(&m->spans);
    uint32_t most = budget->wait ? last->backend->queue->ahead(last->device) : 1;
    queue_budget->ahead = queue_budget->timed ? 0 : exl2__min32(most, exl2__step_repeats(e, m));
    queue_budget->host_first = !ran;
    return exl2__forward_queue(&m->forward, queue_budget, status);
}

/* GPU time that this step may queue. Work that earlier steps queued counts until it has ended. */
static inline exl2__queue_budget exl2__step_queue_budget(const exl2_engine *e, const exl2__model *m,
                                                         const exl2__budget *budget)
{
    exl2__queue_budget queue_budget = { .timed = budget->gpu_ns > 0, .cpu_end_ns = budget->deadline_ns,
                                        .wait = budget->wait };
    for (uint32_t i = 0; i < m->spans.count && queue_budget.timed && exl2__objects_is_async(m); i++) {
        uint64_t queued_ns = exl2__span_queued_ns(&m->spans.span[i]);
        uint64_t ns = exl2__step_card_ns(e, m, budget, i);
        queue_budget.ns[i] = ns - exl2__min64(ns, queued_ns);
        queue_budget.idle[i] = queued_ns == 0;
    }
    return queue_budget;
}

/* Time that this step gives to the model, in nanoseconds: on a GPU the time that it may queue, on the CPU the time
   until the deadline. 0: no budget, so one whole pass. A deadline that has passed gives 1 ns, which runs one unit. */
static inline uint64_t exl2__step_share_ns(const exl2__model *m, const exl2__budget *budget)
{
    if (exl2__objects_is_async(m)) {
        return budget->gpu_ns;
    }
    uint64_t now = exl2__platform_ns();
    return budget->deadline_ns == 0 ? 0 : budget->deadline_ns > now ? budget->deadline_ns - now : 1;
}

/* How far exl2__step_advance came. */
typedef enum exl2__step_outcome {
    EXL2__STEP_IDLE,    /* no job has rows for a pass, so none was begun */
    EXL2__STEP_BLOCKED, /* the budget is used up, or the GPU has no results yet: a later step continues the pass */
    EXL2__STEP_MASKS,   /* the masks are filled in; jobs that this ended get their DONE before the pass continues */
    EXL2__STEP_RESULTS, /* the results of a group of logit rows went to their jobs; the pass continues */
    EXL2__STEP_ENDED    /* the pass has ended, perhaps with an error, which has ended its jobs */
} exl2__step_outcome;

/* Gives results to their jobs. */
static inline exl2__step_outcome exl2__step_give_results(exl2_engine *e, exl2__model *m, const exl2__budget *budget,
                                                         bool *ran)
{
    uint64_t begin_ns = exl2__step_trace_begin(e), spent_ns = 0; /* by units with a trace of their own */
    bool all = exl2__step_results(e, m, budget, !*ran, &spent_ns);
    exl2__step_trace_end(e, "exl2 results", begin_ns + spent_ns);
    *ran = true;
    return all ? EXL2__STEP_RESULTS : EXL2__STEP_BLOCKED;
}

/* Advances the pass until it blocks, or has masks or results; begins a pass if none is active. *ran: work was done in
   this step. Only the first work of a step may exceed the budget. */
static inline exl2__step_outcome exl2__step_advance(exl2_engine *e, exl2__model *m, const exl2__budget *budget,
                                                    exl2__queue_budget *queue_budget, bool *ran)
{
    uint64_t begin_ns = exl2__step_trace_begin(e);
    exl2_result r = EXL2_OK;
    if (m->forward.active && m->results_read < m->forward.result_count) {
        return exl2__step_give_results(e, m, budget, ran);
    }
    if (!m->forward.active) {
        r = exl2__step_begin(e, m, budget);
        exl2__step_trace_end(e, "exl2 begin", begin_ns);
    }
    if (r >= 0 && !m->forward.active) {
        return EXL2__STEP_IDLE;
    }
    exl2__forward_status status = EXL2__FORWARD_DONE;
    if (r >= 0) {
        r = exl2__step_forward(e, m, budget, queue_budget, *ran, &status);
        *ran = true;
    }
    if (r >= 0 && status == EXL2__FORWARD_MORE) {
        return EXL2__STEP_BLOCKED;
    }
    if (r >= 0 && status == EXL2__FORWARD_MASKS) {
        return EXL2__STEP_MASKS;
    }
    if (r >= 0 && status == EXL2__FORWARD_LAYER) {
        exl2__embeddings_taps(e, m);
        return EXL2__STEP_RESULTS;
    }
    if (r >= 0) {
        exl2__step_update_tables(e, m);
    }
    if (r >= 0 && status == EXL2__FORWARD_RESULTS) {
        m->results_read = 0;
        m->sampling.run = NULL;
        return exl2__step_give_results(e, m, budget, ran);
    }
    exl2__step_end_pass(e, m, r);
    return EXL2__STEP_ENDED;
}

/* Runs passes until the budget is used, or one pass without a budget. */
static inline void exl2__step_passes(exl2_engine *e, exl2__model *m, const exl2__budget *budget,
                                     exl2__queue_budget *queue_budget, exl2__progress *progress)
{
    uint64_t share_ns = exl2__step_share_ns(m, budget);
    bool has_deadline = share_ns > 0 && !exl2__objects_is_async(m), ran = false;
    exl2__step_outcome outcome;
    do {
        exl2__step_update_jobs(e, m, progress);
        if (m->id == 0) { /* a callback closed the model */
            return;
        }
        exl2__step_drop_unused(e, m);
        outcome = exl2__step_advance(e, m, budget, queue_budget, &ran);
        progress->anything |= ran;
        if (outcome == EXL2__STEP_BLOCKED) {
            return;
        }
        if (outcome == EXL2__STEP_IDLE) {
            exl2__step_update_jobs(e, m, progress); /* beginning a pass may have ended the last job */
            progress->anything |= m->asked;
            m->asked = false;
            return;
        }
        if (outcome == EXL2__STEP_ENDED) {
            exl2__step_update_jobs(e, m, progress);
            progress->pass_ended = true;
            if (m->id == 0 || (share_ns == 0 && !exl2__draft_models_owe(e, m))) {
                return;
            }
        }
    } while (outcome == EXL2__STEP_MASKS || !has_deadline || exl2__platform_ns() < budget->deadline_ns);
}

#ifndef EXL2_NO_VISION
/* Passes and pictures, which have half of the time first while a job waits for one, and else what passes leave. */
static inline void exl2__step_pictures(exl2_engine *e, exl2__model *m, const exl2__budget *budget,
                                       exl2__queue_budget *queue_budget, exl2__progress *progress)
{
    uint64_t deadline = budget->deadline_ns, now = deadline ? exl2__platform_ns() : 0, id = m->id;
    bool timed = budget->gpu_ns > 0 && exl2__objects_is_async(m);
    uint64_t gpu_ns = timed ? exl2__max64(budget->card_ns[exl2__cards_device(e, m, 0)], 1) : 0;
    exl2__image_budget pictures = { deadline, budget->unit_ns, gpu_ns, budget->wait };
    exl2__image_budget first = pictures;
    exl2__images_deliver(e, m, &progress->anything);
    bool ended = m->id == id;
    if (ended && (deadline || gpu_ns) && exl2__images_has_wanted(m)) {
        first.deadline_ns = deadline ? now + (deadline - exl2__min64(now, deadline)) / 2 : 0;
        first.gpu_ns = exl2__max64(gpu_ns / 2, gpu_ns > 0);
        exl2__images_run(e, m, &first, &progress->anything);
        *queue_budget = exl2__step_queue_budget(e, m, budget);
    }
    while (ended) {
        bool before = progress->pass_ended;
        progress->pass_ended = false;
        exl2__step_passes(e, m, budget, queue_budget, progress);
        bool passed = progress->pass_ended;
        progress->pass_ended = before || passed;
        bool left = deadline ? exl2__platform_ns() < deadline || !progress->anything
                             : !passed || exl2__images_has_wanted(m);
        ended = m->id == id && left && exl2__images_run(e, m, &pictures, &progress->anything)
             && deadline && exl2__platform_ns() < deadline;
    }
    if (m->id == id) {
        exl2__images_deliver(e, m, &progress->anything);
    }
}
#endif

/* A model's share of a step; sets budget->card_ns to the GPU time that is left. */
static inline void exl2__step_model(exl2_engine *e, exl2__model *m, exl2__budget *budget, exl2__progress *progress)
{
    exl2__queue_budget queue_budget = exl2__step_queue_budget(e, m, budget);
    bool pictures = false;
#ifndef EXL2_NO_VISION
    pictures = m->images.on;
    if (pictures) {
        exl2__step_pictures(e, m, budget, &queue_budget, progress);
    }
#endif
    if (!pictures) {
        exl2__step_passes(e, m, budget, &queue_budget, progress);
    }
    for (uint32_t i = 0; i < m->spans.count && m->id && exl2__objects_is_async(m); i++) {
        exl2__step_card_left(e, m, budget, i, queue_budget.ns[i]);
    }
}

/* Counts a step of the application that began at begin_ns. */
static inline void exl2__step_count(exl2_engine *e, uint64_t begin_ns)
{
    uint64_t step_ns = exl2__platform_ns() - begin_ns;
    e->stats.steps++;
    e->stats.last_step_ns = step_ns;
    e->stats.slowest_step_ns = exl2__max64(e->stats.slowest_step_ns, step_ns);
}

/* Without budgets: one pass (or one slice of loading) of every model. With budgets the models share them. kinds: of
   exl2__step_kind; other models have no share. */
static inline exl2__progress exl2__step_models(exl2_engine *e, const exl2_step_desc *desc, uint32_t kinds)
{
    uint64_t begin_ns = exl2__platform_ns(), cpu_ns = (uint64_t)desc->cpu_us * 1000u;
    exl2__step_cards cards = exl2__step_share_cards(e, desc->gpu_us, kinds);
    exl2__progress progress = { false, false };
    exl2__zone_begin(&e->ctx, "exl2_step");
    uint32_t models = 0;
    for (uint32_t i = 0; i < e->max_models; i++) {
        models += exl2__step_has_work(&e->models[i], kinds);
    }
    for (uint32_t i = 0; i < e->max_models; i++) {
        exl2__model *m = &e->models[(e->first_model + i) % e->max_models];
        if (!exl2__step_has_work(m, kinds)) {
            continue;
        }
        uint64_t now = exl2__platform_ns(), end_ns = begin_ns + cpu_ns;
        exl2__budget budget = { .wait = desc->wait };
        budget.deadline_ns = !cpu_ns ? 0 : now < end_ns ? now + (end_ns - now) / models : now;
        budget.unit_ns = exl2__step_unit_ns(cpu_ns);
        if (desc->gpu_us) {
            exl2__step_take_cards(e, m, &cards, &budget);
        }
        if (m->park != EXL2__PARK_NONE) {
            exl2__step_update_jobs(e, m, &progress); /* they wait, but may be cancelled */
        }
        bool adapters = (kinds & EXL2__STEP_LOADS) && exl2__loras_have_work(m);
        uint64_t id = m->id;
        if (adapters) { /* a slice, before passes take the time */
            exl2__loras_run(e, m, 0, &progress.anything);
        }
        bool closed = m->id != id; /* by a callback */
        if (!closed && (m->state == EXL2_PENDING || m->park == EXL2__PARK_LOADS)) {
            exl2__loading_run(e, m, budget.deadline_ns, &progress.anything);
        } else if (!closed && m->park == EXL2__PARK_NONE && (kinds & EXL2__STEP_PASSES)) {
            exl2__budget share = budget;
            exl2__step_model(e, m, &budget, &progress);
            exl2__step_return_cards(e, m, &share, &budget, &cards);
        }
        if (adapters && m->id == id && budget.deadline_ns > exl2__platform_ns()) {
            exl2__loras_run(e, m, budget.deadline_ns, &progress.anything);
        }
        models -= models > 1;
    }
    e->first_model = (e->first_model + 1) % e->max_models; /* the last model gets the time that is left */
    progress.anything = progress.anything || ((kinds & EXL2__STEP_PASSES) && exl2__drafts_wait(e));
    exl2__zone_end(&e->ctx);
    return progress;
}

/* Loads, on the application's thread, models that the worker may not load. Returns whether anything was done. */
static inline bool exl2__step_loads(exl2_engine *e, const exl2_step_desc *desc)
{
    return exl2__step_models(e, desc, EXL2__STEP_LOADS).anything;
}

/* A whole step, on the worker's thread or the application's. */
static inline exl2_result exl2__step_engine(exl2_engine *e, const exl2_step_desc *desc)
{
    EXL2__ASSERT_SLOW(exl2__objects_sessions_agree(e));
    uint64_t begin_ns = exl2__platform_ns();
    bool loads = !(e->worker.stepping && e->loads_on_caller);
    exl2__progress progress = exl2__step_models(e, desc, EXL2__STEP_PASSES | (loads ? EXL2__STEP_LOADS : 0));
    if (!e->worker.stepping) {
        exl2__step_count(e, begin_ns);
    }
    exl2__objects_publish(e);
    return progress.pass_ended ? EXL2_OK : progress.anything ? EXL2_PENDING : EXL2_IDLE;
}

#endif

/* step.h: exl2_step, the one place where work happens: tend the jobs, admit, run a pass, hand out its results.
   Read this first in this folder.
   takes: an engine, a budget.
   gives: exl2__step_engine.
   owns:  nothing.
   next:  api.h */
#ifndef EXL2__STEP_H
#define EXL2__STEP_H

#include "jobs.h"
#include "loading.h"

/* What a step has done so far. */
typedef struct exl2__progress {
    bool anything, pass_ended;
} exl2__progress;

/* ---- jobs ---- */

/* Flags of other threads, deliveries that the ring had no room for, DONE. */
static inline void exl2__step_tend(exl2_engine *e, exl2__job *job, exl2__progress *progress)
{
    exl2__lock(&e->lock);
    bool cancelled = job->cancel == job->id, paused = job->pause == job->id;
    exl2__unlock(&e->lock);
    if (cancelled) {
        exl2__jobs_end(job, EXL2_STOP_CANCELLED, EXL2_ERR_CANCELLED, "the job was cancelled");
        job->releasing = job->releasing && job->stop != EXL2_STOP_CANCELLED;
        job->progress_due = false;
    }
    uint32_t id = job->id;
    bool was_due = job->releasing || job->progress_due || job->ending;
    bool clear = exl2__jobs_tell_progress(e, job) && exl2__jobs_release(e, job);
    if (job->ending && clear) {
        clear = exl2__jobs_finish(e, job);
    }
    progress->anything |= was_due && clear;
    if (job->id == id && job->sequence.live) {
        job->sequence.held = paused || !clear || job->ending;
        exl2__jobs_publish(e, job);
    }
}

/* The jobs of a model; a callback may start another one meanwhile, which then is tended in the next step. */
static inline void exl2__step_tend_all(exl2_engine *e, const exl2__model *m, exl2__progress *progress)
{
    for (uint32_t i = 0; i < e->max_jobs; i++) {
        if (e->jobs[i].sequence.live && &e->models[e->jobs[i].model] == m) {
            exl2__step_tend(e, &e->jobs[i], progress);
        }
    }
}

/* ---- passes ---- */

/* The sequences of the model's jobs, by job slot. */
static inline uint32_t exl2__step_sequences(exl2_engine *e, exl2__model *m, uint32_t *active)
{
    *active = 0;
    for (uint32_t i = 0; i < e->max_jobs; i++) {
        exl2__job *job = &e->jobs[i];
        bool ours = job->sequence.live && &e->models[job->model] == m;
        m->sequences[i] = ours ? &job->sequence : &m->no_sequence;
        *active += ours && job->sequence.active;
    }
    return e->max_jobs;
}

static inline void exl2__step_admit(exl2_engine *e, exl2__model *m, uint32_t count, uint32_t active)
{
    while (active < m->plan.sequences_max) {
        exl2__sequence *next = exl2__schedule_next(m->sequences, count, &m->pages);
        if (!next) {
            return;
        }
        exl2__schedule_start(next, m->sequences, count, &m->pages, m->batch.copies, &m->batch.copy_count);
        for (uint32_t i = 0; i < e->max_jobs; i++) {
            exl2__job *job = &e->jobs[i];
            if (&job->sequence == next) {
                job->active_ns = exl2__platform_ns();
                job->stats.queued_ns = job->active_ns - job->start_ns;
                uint32_t begin = next->prompt_end - job->stats.prompt_tokens;
                job->stats.reused_tokens = next->table->cached > begin ? next->table->cached - begin : 0;
                exl2__jobs_publish(e, job);
            }
        }
        active++;
    }
}

/* Starts the next pass, if a job has rows for it. budget_ns 0 = none. */
static inline exl2_result exl2__step_begin(exl2_engine *e, exl2__model *m, uint64_t budget_ns)
{
    uint32_t active, count = exl2__step_sequences(e, m, &active);
    exl2__step_admit(e, m, count, active);
    uint32_t prompt_rows = budget_ns ? exl2__forward_rows_for(&m->forward, budget_ns / 2) : m->plan.rows_max;
    uint32_t rows = exl2__schedule_rows(m->sequences, count, m->plan.rows_max, prompt_rows, m->plan.sequences_max);
    if (rows == 0 && m->batch.copy_count == 0) { /* copies do not wait for rows: their sessions may change before */
        return EXL2_OK;
    }
    exl2__step step;
    exl2__batch_fill(&m->batch, m->sequences, count, &m->pages, &step);
    m->pass_settled = false;
    m->next_result = 0;
    return exl2__forward_begin(&m->forward, &step);
}

/* Once the layers are done: K and V of the pass's rows are in the cache. */
static inline void exl2__step_settle(exl2_engine *e, exl2__model *m)
{
    if (m->pass_settled) {
        return;
    }
    m->pass_settled = true;
    e->stats.forwards++;
    for (uint32_t i = 0; i < e->max_jobs; i++) {
        exl2__job *job = &e->jobs[i];
        exl2__sequence *s = &job->sequence;
        if (!s->live || &e->models[job->model] != m || s->rows == 0) {
            continue;
        }
        if (!exl2__sequence_decodes(s)) {
            e->stats.tokens_in += s->rows;
            job->progress_due = !s->score_prompt;
        }
        s->table->cached += s->rows;
        if (s->prefill_only && s->table->cached == s->table->tokens) {
            job->prefilled = true;
        }
    }
}

/* Hands out the results of a group of logit rows. false: an event found no room; go on in a later step. */
static inline bool exl2__step_results(exl2_engine *e, exl2__model *m)
{
    const exl2__forward *f = &m->forward;
    const exl2__logit_row *rows = f->step.logits + f->logit0;
    const uint16_t *owners = m->batch.logit_owner + f->logit0;
    while (m->next_result < f->result_count) {
        uint32_t first = m->next_result, count = 1;
        exl2__job *job = &e->jobs[owners[first]];
        bool ours = job->sequence.live && job->sequence.rows && &e->models[job->model] == m && !job->ending;
        if (rows[first].use == EXL2__LOGIT_SCORE) {
            while (first + count < f->result_count && owners[first + count] == owners[first]
                   && count < EXL2__EVENT_TOKENS_MAX && rows[first + count].use == EXL2__LOGIT_SCORE) {
                count++;
            }
            if (ours && !exl2__jobs_score(e, job, f->results + first, count)) {
                return false;
            }
        } else if (ours) {
            exl2__jobs_tell_progress(e, job);
            exl2__jobs_accept(e, job, f->results + first);
            if (!job->progress_due) {
                exl2__jobs_release(e, job);
            }
        }
        m->next_result += count;
    }
    return true;
}

/* The pass is over: its rows are free again, and finished prefills end their jobs. */
static inline void exl2__step_end_pass(exl2_engine *e, exl2__model *m, exl2_result result)
{
    for (uint32_t i = 0; i < e->max_jobs; i++) {
        exl2__job *job = &e->jobs[i];
        if (!job->sequence.live || &e->models[job->model] != m || job->sequence.rows == 0) {
            continue;
        }
        job->sequence.rows = 0;
        if (result < 0) {
            exl2_error error;
            exl2_last_error(e, &error);
            exl2__jobs_end(job, EXL2_STOP_ERROR, result, error.text);
        } else if (job->prefilled) {
            exl2__jobs_end(job, EXL2_STOP_LENGTH, EXL2_OK, NULL);
        }
    }
}

/* A pass whose jobs have all ended is dropped, unless it still owes copies of shared pages to sessions that stay. */
static inline void exl2__step_drop_orphan(exl2_engine *e, exl2__model *m)
{
    bool wanted = m->forward.phase == EXL2__PHASE_copy_pages;
    for (uint32_t i = 0; i < e->max_jobs && !wanted; i++) {
        wanted = e->jobs[i].sequence.live && &e->models[e->jobs[i].model] == m && e->jobs[i].sequence.rows;
    }
    m->forward.active = m->forward.active && wanted;
}

/* ---- a model's share of a step ---- */

/* Until `deadline_ns`, or for one pass if that is 0. */
static inline void exl2__step_model(exl2_engine *e, exl2__model *m, uint64_t deadline_ns, exl2__progress *progress)
{
    uint64_t begin_ns = exl2__platform_ns();
    uint64_t budget_ns = deadline_ns > begin_ns ? deadline_ns - begin_ns : deadline_ns ? 1 : 0;
    bool ran = false;
    for (;;) {
        exl2__step_tend_all(e, m, progress);
        if (m->id == 0) { /* a callback closed it */
            return;
        }
        exl2__step_drop_orphan(e, m);
        exl2_result r = EXL2_OK;
        if (!m->forward.active) {
            r = exl2__step_begin(e, m, budget_ns);
            if (r >= 0 && !m->forward.active) {
                return;
            }
        }
        exl2__forward_status status = EXL2__FORWARD_DONE;
        if (r >= 0) {
            if (m->next_result < m->forward.result_count && !exl2__step_results(e, m)) {
                return;
            }
            r = exl2__forward_run(&m->forward, deadline_ns, !ran, &status);
            progress->anything = ran = true;
        }
        if (r >= 0 && status == EXL2__FORWARD_MORE) {
            return;
        }
        if (r >= 0) {
            exl2__step_settle(e, m);
        }
        if (r >= 0 && status == EXL2__FORWARD_RESULTS) {
            m->next_result = 0;
            exl2__step_results(e, m);
        } else {
            exl2__step_end_pass(e, m, r);
            exl2__step_tend_all(e, m, progress);
            progress->pass_ended = true;
            if (!deadline_ns || m->id == 0) {
                return;
            }
        }
        if (deadline_ns && exl2__platform_ns() >= deadline_ns) {
            return;
        }
    }
}

/* cpu_us 0: one pass (or one slice of loading) of every model. Else the models share the time. */
static inline exl2_result exl2__step_engine(exl2_engine *e, uint32_t cpu_us)
{
    uint64_t begin_ns = exl2__platform_ns(), budget_ns = (uint64_t)cpu_us * 1000u;
    exl2__progress progress = { false, false };
    exl2__zone_begin(&e->ctx, "exl2_step");
    uint32_t models = 0;
    for (uint32_t i = 0; i < e->max_models; i++) {
        models += e->models[i].id != 0;
    }
    for (uint32_t i = 0; i < e->max_models; i++) {
        exl2__model *m = &e->models[(e->first_model + i) % e->max_models];
        if (m->id == 0) {
            continue;
        }
        uint64_t now = exl2__platform_ns(), end_ns = begin_ns + budget_ns;
        uint64_t deadline_ns = !budget_ns ? 0 : now < end_ns ? now + (end_ns - now) / models : now;
        if (m->state == EXL2_PENDING) {
            exl2__loading_run(e, m, deadline_ns, &progress.anything);
        } else if (m->state == EXL2_OK) {
            exl2__step_model(e, m, deadline_ns, &progress);
        }
        models -= models > 1;
    }
    e->first_model = (e->first_model + 1) % e->max_models; /* the last one's share is what the others left */
    uint64_t step_ns = exl2__platform_ns() - begin_ns;
    e->stats.steps++;
    e->stats.last_step_ns = step_ns;
    e->stats.slowest_step_ns = exl2__max64(e->stats.slowest_step_ns, step_ns);
    exl2__objects_publish(e);
    exl2__zone_end(&e->ctx);
    return progress.pass_ended ? EXL2_OK : progress.anything ? EXL2_PENDING : EXL2_IDLE;
}

#endif

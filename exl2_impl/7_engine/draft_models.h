/* draft_models.h: a second, smaller model guesses a job's next tokens. Beside the job runs a hidden one on that model,
   the drafter, with a session of its own that follows the job's history. It samples as the job does, with the same
   random numbers and under the job's masks (masks.h), and never has events. Its K and V are found, shared and evicted
   as those of any other session.
   takes: exl2_draft_desc.model; jobs that decode.
   gives: exl2__draft_models_check, _make, _follow, _all_follow, _token, _ask, _owe.
   owns:  nothing; a drafter ends with its job, or with its model. */
#ifndef EXL2__DRAFT_MODELS_H
#define EXL2__DRAFT_MODELS_H

#include "jobs.h"

#define EXL2__DRAFT_MODELS_BEHIND 256u /* tokens by which a drafter may be late when it is asked */

/* ---- making one ---- */

/* Both models have the same tokens. */
EXL2__PRIVATE bool exl2__draft_models_are_alike(const exl2__model *m, const exl2__model *draft)
{
    const exl2__vocab *a = &m->vocab, *b = &draft->vocab;
    bool same = a->present == b->present;
    same = same && (a->present ? a->id_count == b->id_count : m->plan.shape.vocab == draft->plan.shape.vocab);
    for (uint32_t i = 0; same && a->present && i < a->id_count; i++) {
        size_t bytes[2] = { 0, 0 };
        bool special[2] = { false, false };
        const char *text[2] = { exl2__vocab_piece(a, (exl2_token)i, &bytes[0], &special[0]),
                                exl2__vocab_piece(b, (exl2_token)i, &bytes[1], &special[1]) };
        same = !text[0] == !text[1] && bytes[0] == bytes[1] && special[0] == special[1]
            && (!text[0] || memcmp(text[0], text[1], bytes[0]) == 0);
    }
    return same;
}

/* Finds the model that guesses for a job of `m`. *draft NULL: there is none. */
EXL2__PRIVATE exl2_result exl2__draft_models_check(exl2_engine *e, exl2__model *m, const exl2_draft_desc *d,
                                                   exl2__model **draft)
{
    exl2__model *found = exl2__objects_model(e, d->model);
    *draft = NULL;
    if (d->tokens > EXL2__SEQUENCE_DRAFT_MAX) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "draft.tokens is %u, but at most %u tokens are drafted", d->tokens,
                          EXL2__SEQUENCE_DRAFT_MAX);
    }
    if (!d->model.id) {
        return EXL2_OK;
    }
    if (!found) {
        return exl2__objects_stale(e, "draft model", d->model.id);
    }
    if (found == m) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "%s: a model cannot draft for itself", m->path);
    }
    if (found->state != EXL2_OK || found->desc.text_only) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "%s: the draft model is not loaded, or was opened with text_only",
                          found->path);
    }
    EXL2__TRY(exl2__objects_not_closing(e, found));
    if (found->weights.headless) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "%s has no head: it cannot draft", found->path);
    }
    if (m->alike != found->id && !exl2__draft_models_are_alike(m, found)) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "%s cannot draft for %s: its vocabulary is another one", found->path,
                          m->path);
    }
    m->alike = found->id;
    *draft = found;
    return EXL2_OK;
}

/* Makes the job's drafter, which is held until the job begins. */
EXL2__PRIVATE exl2_result exl2__draft_models_make(exl2_engine *e, exl2__model *draft, exl2__job *job)
{
    exl2__session *session = NULL;
    uint64_t id = exl2__pool_alloc(&e->job_ids);
    if (!id) {
        return exl2__fail(&e->ctx, EXL2_ERR_BUDGET, "all %u jobs are in use, and a draft model needs one for each job "
                          "that it drafts for; raise max_jobs", e->max_jobs);
    }
    uint32_t slot = exl2__pool_slot_of(id);
    exl2_result r = exl2__objects_new_session(e, draft, &session);
    if (r < 0) {
        exl2__pool_free(&e->job_ids, slot);
        return r;
    }
    exl2__job *d = &e->jobs[slot];
    exl2__lock(&e->lock);
    *d = (exl2__job){ 0 };
    d->id = id;
    exl2__unlock(&e->lock);
    d->model = (uint32_t)(draft - e->models);
    d->session = (uint32_t)(session - e->sessions);
    d->block = &draft->blocks[slot];
    d->delivery.discard = true;
    d->one_by_one = true;
    d->healed = -1;
    d->drafting.target = job;
    d->sequence.table = &session->table;
    d->sequence.priority = INT32_MIN; /* it gives way to every job of the model */
    d->sequence.order = e->order++;
    d->sequence.held = true;
    session->job = id;
    session->one_shot = true;
    job->drafting.drafter = d;
    exl2__lock(&e->lock);
    d->sequence.live = true;
    exl2__unlock(&e->lock);
    return EXL2_OK;
}

/* ---- following the job ---- */

/* Whether the drafter has been asked for tokens that follow the job's history as it is. */
static inline bool exl2__draft_models_is_asked(const exl2__job *drafter)
{
    const exl2__job *job = drafter->drafting.target;
    return drafter->drafting.wanted > 0 && drafter->sequence.draft_at == job->sequence.table->tokens;
}

/* Whether the drafter still has to sample some of these tokens. */
static inline bool exl2__draft_models_owes(const exl2__job *drafter)
{
    return exl2__draft_models_is_asked(drafter) && !drafter->drafting.ready;
}

/* Brings a drafter's history to the end of its job's, between two passes of its model; with what it has drafted, if the
   job has not gone on. Without a question it computes K and V of the prompt alone: where drafts do not pay, following
   each token would cost more than they do. It ends where it cannot follow: at the end of its context, at a vector, and
   at a token that only the job's model has, whose matrices may have more rows than the tokenizer has tokens.
   started: the pass's sequences have started. Before that its history may grow to the end of its job's, and pages are
   promised for all of it: it may give way to another sequence and start again, for the same pass. */
EXL2__PRIVATE void exl2__draft_models_follow(exl2_engine *e, exl2__model *m, exl2__job *drafter, bool started)
{
    exl2__job *job = drafter->drafting.target;
    const exl2__sequence *of = &job->sequence;
    exl2__sequence *s = &drafter->sequence;
    exl2__table *t = s->table;
    uint32_t end = exl2__min32(of->tokens_end, m->info.context_max), tokens = of->table->tokens;
    s->held = true;
    if (!of->begun || tokens >= of->tokens_end) {
        drafter->drafting.wanted = 0;
        return;
    }
    uint32_t keep = exl2__min32(s->final_end, t->tokens); /* words before do not change any more */
    while (keep < exl2__min32(t->tokens, tokens) && t->words[keep] == of->table->words[keep]) {
        keep++;
    }
    uint32_t known = keep;
    while (known < tokens && (of->table->words[known] & ~EXL2__WORD_SAMPLED) < m->plan.shape.vocab) {
        known++;
    }
    if (tokens >= end || known < tokens) {
        exl2__jobs_free_drafter(e, job);
        return;
    }
    bool drafted = keep == tokens && exl2__draft_models_is_asked(drafter);
    if (!s->active) {
        exl2__table_forget(t, &m->pages);
        t->tokens = keep;
    } else if (!drafted) {
        exl2__table_cut(t, &m->pages, keep, exl2__min32(t->cached, keep));
    }
    if (!drafted || !s->active) {
        memcpy(t->words + keep, of->table->words + keep, (tokens - keep) * sizeof *t->words);
        t->tokens = tokens;
    }
    s->begun = true;
    s->prompt_end = of->prompt_end;
    s->final_end = of->final_end;
    bool owes = exl2__draft_models_owes(drafter);
    s->tokens_end = started && s->active && owes ? exl2__min32(end, s->draft_at + drafter->drafting.wanted) : end;
    if (s->active && owes && t->cached == t->tokens) {
        exl2__table_cut(t, &m->pages, t->tokens, t->tokens - 1);
    }
    s->held = of->held || (s->active && t->cached + 1 >= s->prompt_end && !owes);
    s->leaves_last = !owes;
}

static inline void exl2__draft_models_all_follow(exl2_engine *e, exl2__model *m, bool started)
{
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        if (job->drafting.target) {
            exl2__draft_models_follow(e, m, job, started);
        }
    }
}

/* A token that the drafter has sampled for `position`. */
static inline void exl2__draft_models_token(exl2__model *m, exl2__job *drafter, exl2_token token, uint64_t position)
{
    exl2__sequence *s = &drafter->sequence;
    exl2__table *t = s->table;
    const exl2__config *config = &m->weights.config;
    if (!exl2__draft_models_owes(drafter) || t->tokens != position) {
        return;
    }
    bool ends = token < 0 || exl2__jobs_is_in(config->eos, config->eos_count, token);
    if (!ends) {
        exl2__table_append(t, &m->pages, token, true);
    }
    drafter->drafting.ready = ends || t->tokens >= s->tokens_end;
}

/* ---- questions ---- */

/* Asks the job's drafter for `count` tokens. */
static inline void exl2__draft_models_ask(const exl2_engine *e, exl2__job *job, uint32_t count)
{
    exl2__job *drafter = job->drafting.drafter;
    exl2__sequence *s = &drafter->sequence, *of = &job->sequence;
    const exl2__backend *backend = exl2__objects_backend(&e->models[drafter->model]);
    drafter->drafting.wanted = count;
    drafter->drafting.ready = false;
    s->draft_at = of->table->tokens;
    s->sampling = of->sampling;
    s->penalty_range = of->penalty_range;
    s->dry = of->dry;
    s->ends = of->ends;
    s->end_count = of->end_count;
    s->min_end = of->min_end;
    s->attempt = of->attempt;
    s->tried_count = of->tried_count;
    s->tried_at = of->tried_at;
    memcpy(s->tried, of->tried, of->tried_count * sizeof *s->tried);
    s->fetches_logits = backend->can_sample && !backend->can_sample(&s->sampling);
    s->waits = s->fetches_logits || s->dry.multiplier > 0;
}

/* Whether the job's drafter can be asked now. */
static inline bool exl2__draft_models_can_draft(const exl2__job *job)
{
    const exl2__job *drafter = job->drafting.drafter;
    const exl2__sequence *s = drafter ? &drafter->sequence : NULL;
    return s && s->active && s->begun && job->sequence.table->tokens < s->table->cached + EXL2__DRAFT_MODELS_BEHIND;
}

/* Whether drafters of this model have to sample tokens that jobs wait for. */
static inline bool exl2__draft_models_owe(exl2_engine *e, const exl2__model *m)
{
    bool owe = false;
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        owe |= job->drafting.target && job->sequence.active && exl2__draft_models_owes(job);
    }
    return owe;
}

#endif

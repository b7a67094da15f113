/* job_start.h: makes a queued job from an exl2_job_desc: its session, its prompt's ids, its sampler, its stops.
   takes: a desc; everything in it is copied.
   gives: exl2__job_start_job, exl2__job_start_measure. */
#ifndef EXL2__JOB_START_H
#define EXL2__JOB_START_H

#include "draft_models.h"
#include "embeddings.h"
#include "job_lists.h"
#include "job_prompt.h"
#include "loras.h"
#include "snapshot_resume.h"
#include "steers.h"

#define EXL2__DEFAULT_MAX_TOKENS 512u

/* Token healing: removes the last token of the prompt; the first sampled token will begin with that token's text. Only
   if the token has text of its own and is not the only token of the history. */
static inline void exl2__job_start_heal(const exl2__model *m, exl2__job *job)
{
    exl2__sequence *s = &job->sequence;
    size_t bytes;
    exl2_token last = s->prompt_count ? (exl2_token)s->prompt[s->prompt_count - 1] : -1;
    if (!exl2__vectors_is((uint32_t)last) && exl2__jobs_healable(m, last, &bytes) && s->keep + s->prompt_count > 1) {
        s->prompt_count--;
        job->healed = last;
        job->grammar.begun_tokens -= job->grammar.begun_tokens > 0;
    }
}

/* Fails if the cache can never hold `tokens` tokens. */
EXL2__PRIVATE exl2_result exl2__job_start_pages(exl2_engine *e, const exl2__model *m, uint32_t tokens)
{
    uint32_t pages = exl2__pages_for(tokens);
    if (pages > m->pages.count) {
        return exl2__fail(&e->ctx, EXL2_ERR_BUDGET,
                          "the job needs %u KV pages of 64 tokens, but the cache has %u: raise cache.tokens to %u",
                          pages, m->pages.count, pages * EXL2__PAGE_TOKENS);
    }
    return EXL2_OK;
}

/* Sets the largest number of new tokens, and with it the largest length of the history. */
EXL2__PRIVATE exl2_result exl2__job_start_length(exl2_engine *e, const exl2__model *m, exl2__job *job,
                                                 const exl2_job_desc *d)
{
    exl2__sequence *s = &job->sequence;
    uint64_t prompt_end = (uint64_t)s->keep + s->prompt_count + (job->healed >= 0);
    uint32_t context_max = m->info.context_max;
    uint64_t new_tokens = s->prefill_only ? 0 : d->max_tokens ? d->max_tokens : EXL2__DEFAULT_MAX_TOKENS;
    uint64_t positions = prompt_end;
#ifndef EXL2_NO_VISION
    positions += exl2__images_ahead(m, s);
#endif
    if (!d->max_tokens && positions < context_max) { /* the default is limited to the rest of the context */
        new_tokens = exl2__min64(new_tokens, context_max - positions);
    }
    s->tokens_end = (uint32_t)exl2__min64(prompt_end + new_tokens, UINT32_MAX);
    job->max_tokens = (uint32_t)new_tokens;
    if (prompt_end == 0) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG,
                          "the prompt and the session are empty: there is no token to generate from");
    }
    if (prompt_end + new_tokens > context_max) {
        return exl2__fail(&e->ctx, EXL2_ERR_CONTEXT_FULL,
                          "the job needs a context of %llu tokens (%llu of prompt, %llu new), but a session holds %u",
                          (unsigned long long)(prompt_end + new_tokens), (unsigned long long)prompt_end,
                          (unsigned long long)new_tokens, context_max);
    }
    s->min_end = (uint32_t)exl2__min64(prompt_end + d->min_tokens, UINT32_MAX);
    if (d->min_tokens > new_tokens) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "min_tokens is %u, but at most %llu new tokens are allowed",
                          d->min_tokens, (unsigned long long)new_tokens);
    }
    return exl2__job_start_pages(e, m, s->tokens_end);
}

/* ---- the job ---- */

/* The scale of an adapter in a message, "-0.500": messages format no floats. */
static inline void exl2__job_start_scale(float scale, char out[16])
{
    uint32_t thousandths = (uint32_t)((scale < 0 ? -scale : scale) * 1000 + 0.5f);
    exl2__format(out, 16, "%s%u.%u%u%u", scale < 0 ? "-" : "", thousandths / 1000, thousandths / 100 % 10,
                 thousandths / 10 % 10, thousandths % 10);
}

/* Fails unless the job has the adapters and control vectors of the saved one. */
EXL2__PRIVATE exl2_result exl2__job_start_check_loras(exl2_engine *e, const exl2__model *m, const exl2__job *job)
{
    const exl2__session_resume *r = &e->sessions[job->session].resume;
    exl2__lora_names wanted = { r->lora_count ? 1 : 0, { r->lora } }, given = exl2__loras_names(m, job->sequence.loras);
    wanted = m->lora_names ? m->lora_names[job->session] : wanted;
    for (uint32_t i = 0; i < wanted.count; i++) {
        const exl2__lora_name *name = &wanted.names[i];
        bool found = false;
        for (uint32_t k = 0; k < given.count; k++) {
            found = found || (memcmp(name->content_id, given.names[k].content_id, sizeof name->content_id) == 0
                              && exl2__float_bits(name->scale) == exl2__float_bits(given.names[k].scale));
        }
        if (!found) {
            char id[33], scale[16];
            exl2__snapshot_digits(name->content_id, id);
            exl2__job_start_scale(name->scale, scale);
            return exl2__fail(&e->ctx, EXL2_ERR_ARG, "resume: the saved job had the adapter or control vector with "
                              "content_id %s and scale %s, which the desc lacks", id, scale);
        }
    }
    return given.count == wanted.count ? EXL2_OK
         : exl2__fail(&e->ctx, EXL2_ERR_ARG, "resume: the desc has %u adapters and control vectors, but the saved "
                      "job had %u", given.count, wanted.count);
}

/* A job that goes on where its session was saved: the prompt and the limits are those of the snapshot. */
EXL2__PRIVATE exl2_result exl2__job_start_resumed(exl2_engine *e, const exl2__model *m, exl2__job *job,
                                                  const exl2_job_desc *d)
{
    const exl2__session_resume *r = &e->sessions[job->session].resume;
    const exl2_prompt *p = &d->prompt;
    exl2__sequence *s = &job->sequence;
    bool guided = d->guidance < 0 || d->guidance > 0;
    if (!r->present || p->text || p->tokens || p->messages || guided) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, !r->present ? "resume: the session has no job to go on with"
                                                 : guided ? "resume: not with guidance"
                                                 : "resume: the job has its prompt already, but the desc has one, too");
    }
    if ((d->max_tokens && d->max_tokens != r->max_tokens) || (d->min_tokens && d->min_tokens != r->min_tokens)) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "resume: max_tokens and min_tokens are %u and %u, but those of the "
                          "snapshot are %u and %u", d->max_tokens, d->min_tokens, r->max_tokens, r->min_tokens);
    }
    if (d->prefill_only != (r->max_tokens == 0)) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "resume: prefill_only is %s, but the saved job has max_tokens %u",
                          d->prefill_only ? "set" : "not set", r->max_tokens);
    }
    EXL2__TRY(exl2__job_start_check_loras(e, m, job));
    s->begun = true;
    s->prompt_end = r->prompt_end;
    s->prompt_count = r->prompt_count;
    s->final_end = r->prompt_end + r->delivered;
    s->computed_end = r->computed_end;
    s->tokens_end = r->prompt_end + (r->healed >= 0) + r->max_tokens;
    s->min_end = r->prompt_end + (r->healed >= 0) + r->min_tokens;
    job->healed = r->healed;
    job->max_tokens = r->max_tokens;
    job->grammar.begun = r->begun;
    job->grammar.begun_tokens = r->begun_tokens;
    job->grammar.begun_skip = r->begun_skip;
    return exl2__job_start_pages(e, m, s->tokens_end);
}

/* A job with a prompt, or one that continues the history. */
EXL2__PRIVATE exl2_result exl2__job_start_prompted(exl2_engine *e, exl2__model *m, exl2__job *job,
                                                   const exl2_job_desc *d)
{
    exl2__sequence *s = &job->sequence;
    if (d->prompt.tokens && d->prompt.image_count) {
        EXL2__TRY(exl2__job_lists_check_ids(e, m, d->prompt.tokens, d->prompt.token_count, "prompt token"));
    }
    EXL2__TRY(exl2__job_prompt_fill(e, m, job, d, s->table));
    if (job->stats.image_rows == 0) {
        EXL2__TRY(exl2__job_lists_check_ids(e, m, (const exl2_token *)s->prompt, s->prompt_count, "prompt token"));
    }
    job->healed = -1;
    if (d->heal_prompt && !d->prefill_only) {
        exl2__job_start_heal(m, job);
    }
    EXL2__TRY(exl2__job_start_length(e, m, job, d));
    return s->pool == EXL2_EMBED_OFF || s->prompt_count > 0
               ? EXL2_OK
               : exl2__fail(&e->ctx, EXL2_ERR_ARG, "embed: the prompt is empty, so there is nothing to make an "
                            "embedding of");
}

/* The job's adapters and control vectors. The session's history moves into the tree of its set. */
EXL2__PRIVATE exl2_result exl2__job_start_loras(exl2_engine *e, exl2__model *m, exl2__session *session, exl2__job *job,
                                                const exl2_job_desc *d)
{
    exl2__lora_set set;
    EXL2__TRY(exl2__loras_of_desc(e, m, d, &set));
    EXL2__TRY(exl2__steers_of_desc(e, m, d, &set));
    if (set.count + set.steer_count) {
        exl2__lora_set *own = &m->lora_sets[exl2__pool_slot_of(job->id)];
        *own = set;
        job->sequence.loras = own;
    }
    exl2__loras_root(m, session, job->sequence.loras);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__job_start_fill(exl2_engine *e, exl2__model *m, exl2__session *session, exl2__job *job,
                                               const exl2_job_desc *d)
{
    exl2__sequence *s = &job->sequence;
    uint32_t used = 0;
    s->table = &session->table;
    EXL2__TRY(exl2__job_start_loras(e, m, session, job, d));
    s->priority = d->priority;
    s->reserve = d->reserve;
    s->order = e->order++;
    s->pool = d->embed.pool;
    s->pool_layer = d->embed.layer;
    job->embeds_raw = d->embed.raw;
    s->prefill_only = d->prefill_only || s->pool != EXL2_EMBED_OFF;
    s->score_prompt = d->score_prompt;
    if (m->weights.headless && (!s->prefill_only || s->score_prompt)) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "%s has no head: it makes embeddings, but no text and no "
                          "log-probabilities", m->path);
    }
    s->alts = d->alts_per_token;
    EXL2__TRY(d->resume ? exl2__job_start_resumed(e, m, job, d) : exl2__job_start_prompted(e, m, job, d));
    EXL2__TRY(exl2__job_lists_stops(e, m, job, d, &used));
    EXL2__TRY(exl2__job_lists_sampler(e, m, job, d, &used));
    exl2__stream_make(&job->delivery.stream, d->show_markers, true);
    uint32_t tokens = s->table->tokens;
    EXL2__TRY(d->resume ? exl2__snapshot_resume(e, m, job, d) : EXL2_OK);
    exl2_result r = exl2__grammars_join(e, job, d); /* last, as _leave undoes it */
    if (r < 0) {
        s->table->tokens = tokens;
        return r;
    }
    bool single = d->draft.one_by_one || d->on_logits || d->on_token || exl2__sampling_has_state(&s->sampling)
                  || exl2__objects_backend(m)->decode_rows < 2;
    job->one_by_one = single || d->alts_per_token;
    job->drafting = (exl2__job_drafting){
        .on = (d->draft.ngram || d->draft.model.id) && !single && !d->prefill_only
              && !(job->grammar.slot && !job->grammar.slot->made),
        .ngram = d->draft.ngram, .most = d->draft.tokens ? d->draft.tokens : EXL2__SEQUENCE_DRAFT_MAX,
        .rate = EXL2__FIRST_DRAFT_RATE
    };
    bool forces = job->grammar.slot && job->grammar.slot->made && !job->one_by_one;
    s->waits |= forces; /* forced tokens follow a token that is known */
    job->delivery.on_event = d->on_event;
    job->on_logits = d->on_logits;
    job->on_token = d->on_token;
    job->user = d->user;
    job->loop_stop = d->loop_stop;
    job->start_ns = exl2__platform_ns();
    return EXL2_OK;
}

/* The session and the model that a desc names, if the session is free and the model ready. *session NULL: the job gets
   a session of its own. */
EXL2__PRIVATE exl2_result exl2__job_start_target(exl2_engine *e, const exl2_job_desc *d, exl2__session **session,
                                                 exl2__model **model)
{
    exl2__model *m;
    *session = NULL;
    if (d->session.id) {
        exl2__session *s = exl2__objects_session(e, d->session);
        if (!s) {
            return exl2__objects_stale(e, "session", d->session.id);
        }
        EXL2__TRY(exl2__objects_not_busy(e, s));
        m = &e->models[s->model];
        if (d->model.id && d->model.id != m->id) {
            return exl2__fail(&e->ctx, EXL2_ERR_ARG,
                              "the job's session belongs to another model than the one that the job names");
        }
        *session = s;
    } else if (!(m = exl2__objects_model(e, d->model))) {
        return d->model.id ? exl2__objects_stale(e, "model", d->model.id)
                           : exl2__fail(&e->ctx, EXL2_ERR_STALE, "exl2_job_desc sets neither model nor session: a job "
                                        "needs one of them");
    }
    if (m->state != EXL2_OK) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE,
                          m->state == EXL2_PENDING ? "the model is still loading" : "the model did not load");
    }
    if (m->desc.text_only) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "the model was opened with text_only: it has no weights");
    }
    EXL2__TRY(exl2__objects_not_closing(e, m));
    *model = m;
    return EXL2_OK;
}

/* Fills in a job of a model, which is not live yet, in the session of exl2__job_start_target. The session is busy with
   job `of`, or with this job if `of` is 0. On failure nothing has changed; *out, if it was set, still points to the
   job's figures in a slot that is free again. */
EXL2__PRIVATE exl2_result exl2__job_start_one(exl2_engine *e, const exl2_job_desc *d, exl2__model *m,
                                              exl2__session *session, bool discard_events, uint64_t of,
                                              exl2__job **out)
{
    uint64_t job_id = exl2__pool_alloc(&e->job_ids);
    if (!job_id) {
        return exl2__fail(&e->ctx, EXL2_ERR_BUDGET, "all %u jobs are in use; raise max_jobs", e->max_jobs);
    }
    uint32_t slot = exl2__pool_slot_of(job_id);
    bool one_shot = session == NULL;
    exl2_result r = one_shot ? exl2__objects_new_session(e, m, &session) : EXL2_OK;
    if (r < 0) {
        exl2__pool_free(&e->job_ids, slot);
        return r;
    }
    exl2__job *job = &e->jobs[slot];
    exl2__lock(&e->lock);
    *job = (exl2__job){ 0 };
    job->id = job_id;
    exl2__unlock(&e->lock);
    job->model = (uint32_t)(m - e->models);
    job->session = (uint32_t)(session - e->sessions);
    job->block = &m->blocks[slot];
    job->delivery.discard = discard_events;
    job->root_before = session->table.root;
    *out = job;
    r = exl2__job_start_fill(e, m, session, job, d);
    if (r < 0) {
        exl2__table_move(&session->table, &m->pages, job->root_before);
        exl2__pool_free(&e->job_ids, slot);
        if (one_shot) {
            exl2__objects_free_session(e, session);
        }
        return r;
    }
#ifndef EXL2_NO_VISION
    if ((r = exl2__images_check_history(e, m, job)) < 0) {
        exl2__grammars_leave(e, job);
        exl2__pool_free(&e->job_ids, slot);
        if (one_shot) {
            exl2__objects_free_session(e, session);
        }
        return r;
    }
#endif
    if (!job->sequence.begun) {
        exl2__vectors_use(m->pages.vectors, job->sequence.prompt, job->sequence.prompt_count);
    }
    session->job = of ? of : job_id;
    session->one_shot = one_shot;
    return EXL2_OK;
}

/* Fills in the job of the negative prompt, and pairs it with the positive job, with which it is undone on failure. */
EXL2__PRIVATE exl2_result exl2__job_start_negative(exl2_engine *e, const exl2_job_desc *d, exl2__job *positive)
{
    exl2__model *m = &e->models[positive->model];
    exl2_job_desc other = { .session = d->negative_session, .prompt = d->negative_prompt, .chat = d->chat,
                            .max_tokens = positive->max_tokens, .reserve = d->reserve, .heal_prompt = d->heal_prompt,
                            .loras = d->loras, .lora_count = d->lora_count,
                            .steers = d->steers, .steer_count = d->steer_count,
                            .prefill_only = d->prefill_only, .priority = d->priority };
    other.model.id = m->id;
    exl2__session *session;
    exl2__job *job;
    void *logits = NULL;
    EXL2__TRY(exl2__job_start_target(e, &other, &session, &m));
    EXL2__TRY(exl2__job_start_one(e, &other, m, session, true, positive->id, &job));
    positive->guidance.negative = job;
    uint32_t pages = exl2__pages_for(positive->sequence.tokens_end) + exl2__pages_for(job->sequence.tokens_end);
    if (m->plan.sequences_max < 2 || pages > m->pages.count) {
        return exl2__fail(&e->ctx, EXL2_ERR_BUDGET, "guidance needs two sequences (batch_max is %u) and %u KV pages of "
                          "64 tokens (the cache has %u)", m->plan.sequences_max, pages, m->pages.count);
    }
    if (job->healed != positive->healed) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG,
                          "heal_prompt with guidance needs prompts that end with the same token");
    }
    EXL2__TRY(exl2__alloc(&e->ctx, m->plan.shape.vocab * sizeof(float), 64, EXL2_MEM_SCRATCH, &logits));
    positive->guidance.logits = (float *)logits;
    positive->guidance.scale = d->guidance;
    job->guidance.positive = positive;
    positive->sequence.negative = &job->sequence;
    job->sequence.positive = &positive->sequence;
    positive->one_by_one = true;
    positive->sequence.fetches_logits = positive->sequence.waits = true;
    job->sequence.fetches_logits = job->sequence.waits = true;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__job_start_check_guidance(exl2_engine *e, const exl2_job_desc *d)
{
    const exl2_prompt *prompt = &d->negative_prompt;
    bool negative = d->negative_session.id || prompt->text || prompt->tokens || prompt->messages;
    if (!exl2__sampler_fits(d->guidance, -100, 100)) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "guidance must be in the range -100 to 100");
    }
    if (negative && (d->draft.ngram || d->draft.model.id)) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "a job with guidance cannot have drafts: draft.%s is set",
                          d->draft.ngram ? "ngram" : "model");
    }
    if (negative != (d->guidance < 0 || d->guidance > 0)) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, negative ? "a negative prompt needs guidance that is not 0"
                                                          : "guidance needs a negative prompt or session");
    }
    return EXL2_OK;
}

/* Frees a job that was never live: its session's history goes back to where it was. */
EXL2__PRIVATE void exl2__job_start_free(exl2_engine *e, exl2__job *job, uint32_t delivered)
{
    exl2__session *session = &e->sessions[job->session];
    uint64_t root = job->root_before;
    exl2__jobs_free(e, job, delivered);
    if (session->id) {
        exl2__table_move(&session->table, &e->models[session->model].pages, root);
    }
}

/* Undoes a job that was filled in and is not live yet, with what belongs to it. */
EXL2__PRIVATE void exl2__job_start_undo(exl2_engine *e, exl2__job *job)
{
    exl2__grammars_leave(e, job);
    exl2__jobs_free_drafter(e, job);
    if (job->guidance.negative) {
        exl2__job_start_free(e, job->guidance.negative, 0);
    }
    exl2__job_start_free(e, job, job->delivery.delivered); /* not 0 with `resume` */
}

/* Fills in the job, which is not live yet, and all that it needs: with guidance the job of its negative prompt, with a
   draft model its drafter. On failure as exl2__job_start_one. A start and a measure both call it, so that they fail
   alike. */
EXL2__PRIVATE exl2_result exl2__job_start_whole(exl2_engine *e, const exl2_job_desc *d, bool discard_events,
                                                exl2__job **job)
{
    exl2__session *session;
    exl2__model *m, *draft;
    EXL2__TRY(exl2__job_start_check_guidance(e, d));
    EXL2__TRY(exl2__job_start_target(e, d, &session, &m));
    if (session && d->negative_session.id == session->id) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "negative_session: the session is busy with the positive prompt of "
                          "the same job");
    }
    EXL2__TRY(exl2__embeddings_check(e, m, d));
    EXL2__TRY(exl2__draft_models_check(e, m, &d->draft, &draft));
    EXL2__TRY(exl2__job_start_one(e, d, m, session, discard_events, 0, job));
    exl2_result r = d->guidance < 0 || d->guidance > 0 ? exl2__job_start_negative(e, d, *job) : EXL2_OK;
    if (r >= 0 && draft && (*job)->drafting.on) {
        r = exl2__draft_models_make(e, draft, *job);
    }
    if (r < 0) {
        exl2__job_start_undo(e, *job);
    }
    return r;
}

/* The session belongs to the new job. */
static inline void exl2__job_start_ends_resume(exl2_engine *e, const exl2__job *job)
{
    exl2__model *m = &e->models[job->model];
    e->sessions[job->session].resume.present = false;
    if (m->lora_names) {
        m->lora_names[job->session] = exl2__loras_names(m, job->sequence.loras);
    }
}

/* Queues the job. On failure nothing has changed. */
EXL2__PRIVATE exl2_result exl2__job_start_job(exl2_engine *e, const exl2_job_desc *d, bool discard_events,
                                              exl2_job *out)
{
    exl2__job *job = NULL;
    EXL2__TRY(exl2__job_start_whole(e, d, discard_events, &job));
    exl2__job *negative = job->guidance.negative;
    exl2__lock(&e->lock); /* another thread may read any slot, even through a guessed handle */
    if (negative) {
        negative->sequence.live = true;
    }
    job->sequence.live = true;
    exl2__unlock(&e->lock);
    exl2__job_start_ends_resume(e, job);
    if (negative) {
        exl2__job_start_ends_resume(e, negative);
    }
    exl2__jobs_publish(e, job);
    exl2__objects_publish(e);
    out->id = job->id;
    return EXL2_OK;
}

/* Puts vectors in place of `count` tokens of the prompt of a job that has not begun, from the prompt's token `at` on.
   words [count]: of exl2__vectors_add; the prompt gets uses of its own. */
static inline void exl2__job_start_vectors(exl2__model *m, exl2__job *job, uint32_t at, const uint32_t *words,
                                           uint32_t count)
{
    uint32_t *prompt = (uint32_t *)m->prompts + (job->sequence.prompt - (const uint32_t *)m->prompts);
    EXL2__ASSERT(!job->sequence.begun && at <= job->sequence.prompt_count && count <= job->sequence.prompt_count - at);
    exl2__vectors_use(m->pages.vectors, words, count);
    exl2__vectors_drop(m->pages.vectors, prompt + at, count);
    memcpy(prompt + at, words, count * sizeof *words);
}

/* ---- measure ---- */

/* Number of prompt tokens that the job would find in the cache now. */
static inline uint32_t exl2__job_start_reused(const exl2__job *job, const exl2__pages *pages)
{
    const exl2__sequence *s = &job->sequence;
    exl2__table_text text = exl2__sequence_text(s);
    uint32_t found = exl2__table_find(pages, &text, exl2__sequence_shared(s, text.tokens),
                                      exl2__sequence_reuse(s, text.tokens));
    return exl2__jobs_prompt_part(job, found, text.tokens);
}

/* Makes the job without setting it live, reads its figures, and undoes it. */
EXL2__PRIVATE exl2_result exl2__job_start_measure(exl2_engine *e, const exl2_job_desc *d, exl2_job_size *out)
{
    exl2__job *job = NULL;
    exl2_result r = exl2__job_start_whole(e, d, true, &job);
    memset(out, 0, sizeof *out);
    if (job) {
        const exl2__model *m = &e->models[job->model];
        out->prompt_tokens = job->stats.prompt_tokens;
        out->max_tokens = job->max_tokens;
        out->context_tokens = job->sequence.tokens_end;
        out->context_max = m->info.context_max;
        out->pages_free = exl2__pages_room(&m->pages);
    }
    if (r < 0) {
        return r;
    }
    const exl2__pages *pages = &e->models[job->model].pages;
    out->reused_tokens = exl2__job_start_reused(job, pages);
    out->pages_needed = exl2__schedule_demand_all(&job->sequence, pages);
    exl2__job_start_undo(e, job);
    exl2__objects_publish(e);
    return EXL2_OK;
}

#endif

/* api_jobs.h: the functions of sessions, sampling, grammars and jobs. They check arguments, resolve handles and call
   the functions of this folder; nothing else.
   takes: calls from the application: those that may come from any thread directly, the others through public.h.
   gives: the functions of sections 8 to 10 of exl2.h. */
#ifndef EXL2__API_JOBS_H
#define EXL2__API_JOBS_H

#include "api_images.h"
#include "api_text.h"
#include "job_wait.h"

/* ---- sessions ---- */

/* The session of a handle; with must_be_free, one that no job is using. */
EXL2__PRIVATE exl2_result exl2__api_session(exl2_engine *e, exl2_session handle, bool must_be_free, exl2__session **out)
{
    *out = exl2__objects_session(e, handle);
    if (!*out) {
        return exl2__objects_stale(e, "session", handle.id);
    }
    return must_be_free ? exl2__objects_not_busy(e, *out) : EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__api_new_session(exl2_engine *e, exl2__model *m, exl2__session **out)
{
    if (m->state != EXL2_OK || m->desc.text_only) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE,
                          "%s: the model is loading, and has no KV cache yet, or was opened with text_only",
                          m->path);
    }
    EXL2__TRY(exl2__objects_not_closing(e, m));
    return exl2__objects_new_session(e, m, out);
}

EXL2__PRIVATE exl2_result exl2__api_session_open(exl2_engine *e, exl2_model handle, exl2_session *out)
{
    exl2__model *m;
    exl2__session *s;
    EXL2__TRY(exl2__api_argument(e, out != NULL, "exl2_session_open", "out is NULL"));
    EXL2__TRY(exl2__api_model(e, handle, &m));
    EXL2__TRY(exl2__api_new_session(e, m, &s));
    out->id = s->id;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__api_session_fork(exl2_engine *e, exl2_session handle, exl2_session *out)
{
    exl2__session *from, *to;
    EXL2__TRY(exl2__api_argument(e, out != NULL, "exl2_session_fork", "out is NULL"));
    EXL2__TRY(exl2__api_session(e, handle, false, &from));
    exl2__model *m = &e->models[from->model];
    EXL2__TRY(exl2__api_new_session(e, m, &to));
    exl2__table_fork(&from->table, &m->pages, &to->table, exl2__objects_final_tokens(e, from));
    to->base_root = from->base_root;
    if (m->lora_names) {
        m->lora_names[to - e->sessions] = m->lora_names[from - e->sessions];
    }
    exl2__objects_publish(e);
    out->id = to->id;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__api_session_rewind(exl2_engine *e, exl2_session handle, uint32_t tokens)
{
    exl2__session *s;
    EXL2__TRY(exl2__api_engine(e));
    EXL2__TRY(exl2__api_session(e, handle, true, &s));
    if (tokens > s->table.tokens) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "the session has %u tokens: it cannot be rewound to %u",
                          s->table.tokens, tokens);
    }
    EXL2__TRY(exl2__api_images_cut(e, s, tokens));
    exl2__table_rewind(&s->table, &e->models[s->model].pages, tokens);
    s->resume.present = false;
    exl2__objects_publish(e);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__api_session_trim(exl2_engine *e, exl2_session handle, uint32_t from, uint32_t count)
{
    exl2__session *s;
    EXL2__TRY(exl2__api_engine(e));
    EXL2__TRY(exl2__api_session(e, handle, true, &s));
    if (from > s->table.tokens || count > s->table.tokens - from) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "the session has %u tokens: %u cannot be taken out from token %u on",
                          s->table.tokens, count, from);
    }
    EXL2__TRY(exl2__api_images_cut(e, s, from));
    EXL2__TRY(exl2__api_images_cut(e, s, from + count));
    exl2__table_trim(&s->table, &e->models[s->model].pages, from, count);
    s->resume.present = false;
    exl2__objects_publish(e);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__api_session_get(exl2_engine *e, exl2_session handle, exl2_session_info *out)
{
    exl2__session *s;
    EXL2__TRY(exl2__api_argument(e, out != NULL, "exl2_session_get", "out is NULL"));
    EXL2__TRY(exl2__api_session(e, handle, false, &s));
    exl2__model *m = &e->models[s->model];
    exl2__table *t = &s->table;
    memset(out, 0, sizeof *out);
    out->model.id = m->id;
    out->busy_with.id = s->job;
    out->tokens = exl2__objects_final_tokens(e, s);
    out->resumes = s->resume.present && !s->job;
    out->context_max = m->info.context_max;
    out->pictures_missing = exl2__api_images_missing(m, t);
    if (t->previous != t) { /* the cache may have changed since its last job */
        exl2__table_remember(t, &m->pages);
    }
    out->tokens_cached = exl2__min32(exl2__table_cached(t, &m->pages), out->tokens);
    out->pages = t->page_count;
    for (uint32_t i = 0; i < t->page_count; i++) {
        out->pages_shared += m->pages.page[t->pages[i]].users + m->pages.page[t->pages[i]].keepers > 1;
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__api_session_tokens(exl2_engine *e, exl2_session handle, exl2_token *out, size_t cap,
                                                   size_t *need)
{
    exl2__session *s;
    EXL2__TRY(exl2__api_argument(e, (out || !cap) && need, "exl2_session_tokens", "out or need is NULL"));
    EXL2__TRY(exl2__api_session(e, handle, false, &s));
    uint32_t tokens = exl2__objects_final_tokens(e, s);
    *need = tokens;
    for (uint32_t i = 0; i < tokens && i < cap; i++) { /* a vector has no id; that of a row is its family's */
        uint32_t word = s->table.words[i];
        out[i] = exl2__pictures_is(word) ? exl2__api_images_row(&e->models[s->model], word)
               : exl2__table_is_vector(&s->table, i) ? -1 : exl2__table_token(&s->table, i);
    }
    if (tokens > cap && out) { /* with out NULL only the size is asked for */
        return exl2__fail(&e->ctx, EXL2_ERR_TOO_SMALL, "the history has %u tokens, but the buffer holds %zu", tokens,
                          cap);
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__api_session_save(exl2_engine *e, exl2_session handle, uint32_t flags, void *out,
                                                 size_t cap, size_t *need)
{
    exl2__session *s;
    EXL2__TRY(exl2__api_outside(e, "exl2_session_save"));
    EXL2__TRY(exl2__api_argument(e, (out || !cap) && need, "exl2_session_save", "out or need is NULL"));
    bool known = (flags & ~(uint32_t)(EXL2_SAVE_KV | EXL2_SAVE_IMAGES)) == 0;
    EXL2__TRY(exl2__api_argument(e, known, "exl2_session_save", "a flag is unknown"));
    EXL2__TRY(exl2__api_session(e, handle, false, &s));
    return exl2__snapshot_save(e, s, flags, out, cap, need);
}

EXL2__PRIVATE exl2_result exl2__api_session_restore(exl2_engine *e, exl2_session handle, const void *data, size_t bytes)
{
    exl2__session *s;
    EXL2__TRY(exl2__api_outside(e, "exl2_session_restore"));
    EXL2__TRY(exl2__api_argument(e, data != NULL, "exl2_session_restore", "data is NULL"));
    EXL2__TRY(exl2__api_session(e, handle, true, &s));
    exl2__step_end_active_pass(e, &e->models[s->model]); /* it may still write to pages of jobs that have ended */
    EXL2__TRY(exl2__api_session(e, handle, true, &s));
    exl2_result r = exl2__snapshot_restore(e, s, data, bytes);
    exl2__objects_publish(e);
    return r;
}

EXL2__PRIVATE exl2_result exl2__api_session_close(exl2_engine *e, exl2_session handle)
{
    exl2__session *s;
    EXL2__TRY(exl2__api_engine(e));
    EXL2__TRY(exl2__api_session(e, handle, false, &s));
    if (s->job) {
        exl2_job job = { s->job };
        s->closing = true; /* the handle is stale from now on; the slot is free after the job's DONE */
        return exl2_job_cancel(e, job);
    }
    exl2__objects_free_session(e, s);
    exl2__objects_publish(e);
    return EXL2_OK;
}

/* ---- sampling ---- */

EXL2__PRIVATE exl2_result exl2__api_sampler_resolve(exl2_engine *e, exl2_model handle, const exl2_sampler_desc *d,
                                                    exl2_sampler_desc *out)
{
    exl2__model *m;
    EXL2__TRY(exl2__api_argument(e, d && out, "exl2_sampler_resolve", "d or out is NULL"));
    EXL2__TRY(EXL2__CHECK_ZEROED(&e->ctx, d, exl2_sampler_desc));
    EXL2__TRY(exl2__api_model(e, handle, &m));
    return exl2__sampler_resolve(&e->ctx, &m->weights.config.defaults, d, out);
}

/* ---- grammars ---- */

EXL2__PRIVATE exl2_result exl2__api_grammar_make(exl2_engine *e, const exl2_grammar_desc *d, exl2_grammar *out)
{
    exl2__model *m;
    static const char *const call = "exl2_grammar_make";
    EXL2__TRY(exl2__api_argument(e, d && out, call, "d or out is NULL"));
    EXL2__TRY(EXL2__CHECK_ZEROED(&e->ctx, d, exl2_grammar_desc));
    EXL2__TRY(exl2__api_argument(e, (uint32_t)d->kind <= EXL2_GRAMMAR_CUSTOM, call,
                                 "the desc has a kind that does not exist"));
    EXL2__TRY(exl2__api_argument(e, d->kind == EXL2_GRAMMAR_JSON || d->kind == EXL2_GRAMMAR_CUSTOM || d->source, call,
                                 "the desc has no source"));
    EXL2__TRY(exl2__api_argument(e, d->kind != EXL2_GRAMMAR_CUSTOM || d->allow, call, "the desc has no allow"));
    EXL2__TRY(exl2__api_argument(e, d->kind != EXL2_GRAMMAR_CUSTOM || !d->prefer_end, call,
                                 "a CUSTOM grammar ends its text itself, so prefer_end must not be set"));
    bool custom = d->kind == EXL2_GRAMMAR_CUSTOM;
    EXL2__TRY(custom ? exl2__api_model(e, d->model, &m) : exl2__api_text_model(e, d->model, &m));
    exl2_result r = exl2__grammars_make(e, m, d, out);
    exl2__objects_publish(e);
    return r;
}

EXL2__PRIVATE exl2_result exl2__api_grammar_close(exl2_engine *e, exl2_grammar handle)
{
    EXL2__TRY(exl2__api_engine(e));
    exl2__grammar_slot *g = exl2__objects_grammar(e, handle);
    if (!g) {
        return exl2__objects_stale(e, "grammar", handle.id);
    }
    exl2__grammars_close(e, g);
    exl2__objects_publish(e);
    return EXL2_OK;
}

/* ---- jobs ---- */

EXL2__PRIVATE exl2_result exl2__api_check_job(exl2_engine *e, const exl2_job_desc *d, const char *call)
{
    EXL2__TRY(exl2__api_argument(e, d != NULL, call, "the desc is NULL"));
    EXL2__TRY(EXL2__CHECK_ZEROED(&e->ctx, d, exl2_job_desc));
    EXL2__TRY(EXL2__CHECK_ZEROED(&e->ctx, &d->chat, exl2_chat_desc));
    EXL2__TRY(EXL2__CHECK_ZEROED(&e->ctx, &d->sampler, exl2_sampler_desc));
    EXL2__TRY(EXL2__CHECK_ZEROED(&e->ctx, &d->draft, exl2_draft_desc));
    EXL2__TRY(EXL2__CHECK_ZEROED(&e->ctx, &d->embed, exl2_embed_desc));
    bool whole = exl2__api_prompt_whole(&d->prompt) && exl2__api_prompt_whole(&d->negative_prompt)
              && (d->stop_strings || !d->stop_string_count) && (d->ban_strings || !d->ban_string_count)
              && (d->stop_tokens || !d->stop_token_count) && (d->loras || !d->lora_count)
              && (d->grammars || !d->grammar_count) && (d->steers || !d->steer_count);
    EXL2__TRY(exl2__api_argument(e, d->loop_stop != 1, call, "loop_stop is 1: a text that comes once is no loop"));
    return exl2__api_argument(e, whole, call, "a count is set but its array is NULL");
}

EXL2__PRIVATE exl2_result exl2__api_job_start(exl2_engine *e, const exl2_job_desc *d, exl2_job *out)
{
    exl2_job handle;
    EXL2__TRY(exl2__api_check_job(e, d, "exl2_job_start"));
    exl2_result r = exl2__job_start_job(e, d, false, out ? out : &handle);
    exl2__objects_publish_memory(e);
    return r;
}

EXL2__PRIVATE exl2_result exl2__api_job_measure(exl2_engine *e, const exl2_job_desc *d, exl2_job_size *out)
{
    EXL2__TRY(exl2__api_argument(e, out != NULL, "exl2_job_measure", "out is NULL"));
    memset(out, 0, sizeof *out);
    EXL2__TRY(exl2__api_check_job(e, d, "exl2_job_measure"));
    return exl2__job_start_measure(e, d, out);
}

EXL2__PRIVATE exl2_result exl2__api_generate(exl2_engine *e, const exl2_job_desc *d)
{
    exl2_job handle;
    EXL2__TRY(exl2__api_outside(e, "exl2_generate"));
    EXL2__TRY(exl2__api_check_job(e, d, "exl2_generate"));
    exl2_result started = exl2__job_start_job(e, d, d->on_event == NULL, &handle);
    exl2__objects_publish_memory(e);
    EXL2__TRY(started);
    e->watched = handle.id;
    exl2__api_wait_begin(e);
    bool cancelled = false;
    while (e->watched == handle.id) {
        exl2_result r = exl2__worker_step_held(e);
        exl2__job *job = exl2__objects_job(e, handle);
        if (job && !cancelled && (r < 0 || exl2__api_interrupted(e))) {
            cancelled = true;
            exl2_job_cancel(e, handle);
        } else if (job && r == EXL2_IDLE) {
            exl2__job_wait_end_stuck(e, job);
            if (!job->ending) {
                exl2__platform_sleep_ms();
            }
        }
    }
    exl2__api_wait_end(e);
    if (e->watched_result < 0) {
        exl2__fail(&e->ctx, e->watched_result, "%s", e->watched_error.text);
        exl2__lock(&e->ctx.error_lock);
        e->ctx.error.native = e->watched_error.native;
        exl2__unlock(&e->ctx.error_lock);
    }
    return e->watched_result;
}

EXL2_API exl2_result exl2_job_cancel(exl2_engine *e, exl2_job handle)
{
    EXL2__TRY(exl2__api_engine(e));
    exl2__lock(&e->lock);
    exl2__job *job = exl2__objects_job(e, handle);
    if (job) {
        job->shared.cancel = handle.id; /* the next step reads it */
    }
    exl2__unlock(&e->lock);
    exl2__gate_news(e);
    return job ? EXL2_OK : exl2__objects_stale(e, "job", handle.id);
}

EXL2_API exl2_result exl2_job_pause(exl2_engine *e, exl2_job handle, bool paused)
{
    EXL2__TRY(exl2__api_engine(e));
    exl2__lock(&e->lock);
    exl2__job *job = exl2__objects_job(e, handle);
    if (job) {
        job->shared.pause = paused ? handle.id : 0; /* the next step reads it */
    }
    exl2__unlock(&e->lock);
    exl2__gate_news(e);
    return job ? EXL2_OK : exl2__objects_stale(e, "job", handle.id);
}

EXL2__PRIVATE exl2_result exl2__api_job_priority(exl2_engine *e, exl2_job handle, int32_t priority)
{
    EXL2__TRY(exl2__api_engine(e));
    exl2__job *job = exl2__objects_job(e, handle);
    if (!job) {
        return exl2__objects_stale(e, "job", handle.id);
    }
    job->sequence.priority = priority;
    if (job->guidance.negative) {
        job->guidance.negative->sequence.priority = priority;
    }
    return EXL2_OK;
}

EXL2_API exl2_result exl2_job_get(exl2_engine *e, exl2_job handle, exl2_job_info *out)
{
    EXL2__TRY(exl2__api_argument(e, out != NULL, "exl2_job_get", "out is NULL"));
    exl2__lock(&e->lock);
    const exl2__job *job = exl2__objects_job(e, handle);
    if (job) {
        *out = job->shared.info;
        out->state = job->shared.pause == handle.id ? EXL2_JOB_PAUSED : out->state;
    }
    exl2__unlock(&e->lock);
    return job ? EXL2_OK : exl2__objects_stale(e, "job", handle.id);
}

#endif

/* embeddings.h: jobs that make a vector of their prompt. Hidden states of its rows are added up as passes compute them,
   and one event delivers the result.
   takes: exl2_job_desc.embed; the rows of a pass whose logits are EXL2__LOGIT_HIDDEN.
   gives: exl2__embeddings_check, exl2__embeddings_add, exl2__embeddings_taps, exl2__embeddings_finish,
          exl2__embeddings_deliver.
   owns:  nothing; the vector lies in the job's block, where other jobs hold text, and rows that were copied from the
          backend lie for a moment in the model's block for templates. */
#ifndef EXL2__EMBEDDINGS_H
#define EXL2__EMBEDDINGS_H

#include "jobs.h"

/* ---- start ---- */

/* The first setting of the desc that has no meaning for an embedding, or NULL. */
EXL2__PRIVATE const char *exl2__embeddings_other(const exl2_job_desc *d)
{
    const struct {
        const char *name;
        bool set;
    } others[] = { { "max_tokens", d->max_tokens != 0 }, { "min_tokens", d->min_tokens != 0 }, { "resume", d->resume },
                   { "score_prompt", d->score_prompt }, { "heal_prompt", d->heal_prompt },
                   { "grammar", d->grammar.id || d->grammar_count }, { "draft.model", d->draft.model.id != 0 },
                   { "draft.ngram", d->draft.ngram }, { "alts_per_token", d->alts_per_token != 0 },
                   { "guidance", d->guidance < 0 || d->guidance > 0 }, { "on_logits", d->on_logits != NULL },
                   { "on_token", d->on_token != NULL } };
    for (size_t i = 0; i < EXL2__COUNT(others); i++) {
        if (others[i].set) {
            return others[i].name;
        }
    }
    return NULL;
}

EXL2__PRIVATE exl2_result exl2__embeddings_check(exl2_engine *e, const exl2__model *m, const exl2_job_desc *d)
{
    const exl2_embed_desc *embed = &d->embed;
    const exl2__shape *s = &m->plan.shape;
    const char *other = exl2__embeddings_other(d);
    if (embed->pool == EXL2_EMBED_OFF) {
        return !embed->raw && !embed->layer ? EXL2_OK
             : exl2__fail(&e->ctx, EXL2_ERR_ARG, "embed.%s is set, but embed.pool is EXL2_EMBED_OFF",
                          embed->raw ? "raw" : "layer");
    }
    if ((uint32_t)embed->pool > EXL2_EMBED_FIRST) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "embed.pool is %u, which is no exl2_embed_pool",
                          (uint32_t)embed->pool);
    }
    if (other) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "embed: a job that makes an embedding has no text, but %s is set",
                          other);
    }
    if (embed->layer > s->layers) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "embed.layer is %u, but the model has %u layers", embed->layer,
                          s->layers);
    }
    if (m->pooling.unsupported[0]) {
        return exl2__fail(&e->ctx, EXL2_ERR_UNSUPPORTED, "%s/%s", m->path, m->pooling.unsupported);
    }
    if (s->hidden > EXL2__JOB_EMBED_MAX) {
        return exl2__fail(&e->ctx, EXL2_ERR_UNSUPPORTED, "embed: the model has hidden states of %u values, but an "
                          "embedding has at most %u", s->hidden, EXL2__JOB_EMBED_MAX);
    }
    if (embed->layer && embed->layer < s->layers && exl2__objects_is_async(m)) {
        return exl2__fail(&e->ctx, EXL2_ERR_UNSUPPORTED, "embed.layer is %u, but on a GPU only the residual after the "
                          "last block, %u, is read", embed->layer, s->layers);
    }
    return EXL2_OK;
}

/* ---- rows ---- */

/* Adds rows [row, row + count) of the step, which the device of `span` has. Sums in f32, in order of tokens. */
EXL2__PRIVATE exl2_result exl2__embeddings_add(exl2__model *m, exl2__job *job, const exl2__span *span, uint32_t row,
                                               uint32_t count)
{
    uint32_t hidden = m->plan.shape.hidden, most = EXL2__RENDER_BYTES / (uint32_t)(hidden * sizeof(float));
    float *values = job->block->embedding, *rows = (float *)m->render;
    bool raw = job->sequence.pool_layer > 0;
    for (uint32_t at = 0; at < count;) {
        uint32_t some = exl2__min32(count - at, most);
        EXL2__TRY(span->backend->hidden(span->device, row + at, some, raw, rows));
        for (uint32_t r = 0; r < some; r++) {
            const float *from = rows + (size_t)r * hidden;
            for (uint32_t i = 0; i < hidden; i++) {
                values[i] = job->embedded || r ? values[i] + from[i] : from[i];
            }
        }
        job->embedded += some;
        at += some;
    }
    return EXL2_OK;
}

/* Adds the rows [first, first + *count) of the step's logit rows to the job that owns them: as many as follow each
   other. end: the end of the logit rows that can be read now. job NULL: no job wants them. */
EXL2__PRIVATE void exl2__embeddings_rows(exl2_engine *e, exl2__model *m, exl2__job *job, const exl2__span *span,
                                         uint32_t first, uint32_t end, uint32_t *count)
{
    const exl2__logit_row *rows = m->forward.step.logits + first;
    const uint64_t *orders = m->batch.logit_order + first;
    *count = 1;
    while (first + *count < end && orders[*count] == orders[0] && rows[*count].use == EXL2__LOGIT_HIDDEN
           && rows[*count].row == rows[0].row + *count) {
        ++*count;
    }
    exl2_result r = job ? exl2__embeddings_add(m, job, span, rows[0].row, *count) : EXL2_OK;
    if (r < 0) {
        exl2__jobs_fail(e, job, r);
    }
}

/* The job that wants a logit row, or NULL. */
static inline exl2__job *exl2__embeddings_owner(exl2_engine *e, const exl2__model *m, uint32_t row)
{
    exl2__job *job = &e->jobs[m->batch.logit_owner[row]];
    bool wanted = job->sequence.live && job->sequence.rows && &e->models[job->model] == m && !job->ending;
    return wanted && job->sequence.order == m->batch.logit_order[row] ? job : NULL;
}

/* After FORWARD_LAYER: adds the rows that want the residual of the layer before forward.layer. */
EXL2__PRIVATE void exl2__embeddings_taps(exl2_engine *e, exl2__model *m)
{
    const exl2__step *step = &m->forward.step;
    const exl2__span *span = m->spans.span;
    while (span->end < m->forward.layer) {
        span++;
    }
    for (uint32_t first = 0, count; first < step->logit_count; first += count) {
        const exl2__logit_row *row = &step->logits[first];
        bool tapped = row->use == EXL2__LOGIT_HIDDEN && row->layer == m->forward.layer;
        count = 1;
        if (tapped) {
            exl2__embeddings_rows(e, m, exl2__embeddings_owner(e, m, first), span, first, step->logit_count, &count);
        }
    }
}

/* ---- the result ---- */

/* All rows are added: makes the vector, and its event due. */
EXL2__PRIVATE void exl2__embeddings_finish(exl2_engine *e, const exl2__model *m, exl2__job *job)
{
    float *values = job->block->embedding;
    uint32_t hidden = m->plan.shape.hidden;
    double square = 0;
    if (job->ending) {
        return;
    }
    EXL2__ASSERT(job->embedded == (job->sequence.pool == EXL2_EMBED_MEAN ? job->sequence.prompt_count : 1));
    for (uint32_t i = 0; i < hidden; i++) {
        values[i] = job->sequence.pool == EXL2_EMBED_MEAN ? values[i] / (float)job->embedded : values[i];
        square += exl2__mul_double((double)values[i], (double)values[i]);
    }
    float length = (float)sqrt(square);
    if (!exl2__float_is_finite(length)) {
        exl2__fail(&e->ctx, EXL2_ERR_FORMAT, "%s: a hidden state is not a finite number", m->path);
        exl2__jobs_fail(e, job, EXL2_ERR_FORMAT);
        return;
    }
    for (uint32_t i = 0; i < hidden && !job->embeds_raw && square > 0; i++) {
        values[i] = (float)((double)values[i] / sqrt(square));
    }
    job->delivery.embedding_due = true;
}

/* Delivers the event. false: the ring is full; a later step tries again. */
static inline bool exl2__embeddings_deliver(exl2_engine *e, exl2__job *job)
{
    if (!job->delivery.embedding_due) {
        return true;
    }
    if (exl2__jobs_deferred_first(e, job)) {
        return false;
    }
    exl2_event event = exl2__jobs_event(e, job, EXL2_EVENT_EMBEDDING);
    event.values = job->block->embedding;
    event.value_count = e->models[job->model].plan.shape.hidden;
    return exl2__jobs_deliver_due(e, job, &event, &job->delivery.embedding_due);
}

#endif

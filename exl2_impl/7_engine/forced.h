/* forced.h: tokens that a job's grammar forces. Nothing is sampled for them: they join history and text at once, and
   their rows are computed in the next pass, before the row that is sampled.
   takes: a job whose newest token has been accepted.
   gives: exl2__forced_token, exl2__forced_append, exl2__forced_begin. */
#ifndef EXL2__FORCED_H
#define EXL2__FORCED_H

#include "jobs.h"

/* Whether the job's settings ban the token at the end of its history. */
EXL2__PRIVATE bool exl2__forced_is_banned(const exl2__job *job, exl2_token token)
{
    const exl2__sequence *s = &job->sequence;
    const exl2__job_lists *lists = &job->lists;
    bool banned = lists->allow_count && !exl2__jobs_is_in(lists->allow, lists->allow_count, token);
    banned |= exl2__sequence_is_short(s) && exl2__jobs_is_in(s->ends, s->end_count, token);
    banned |= s->tried_at == s->table->tokens && exl2__jobs_is_in(s->tried, s->tried_count, token);
    for (uint32_t i = 0; i < s->sampling.bias_count && !banned; i++) {
        banned = s->sampling.bias[i].token == token && s->sampling.bias[i].add <= exl2__minus_infinity();
    }
    return banned;
}

/* *token: the token that the job's grammar forces now; -1: none. One that the job's settings ban is not forced: shorter
   tokens may say the same text. */
static inline exl2_result exl2__forced_token(exl2_engine *e, exl2__job *job, exl2_token *token)
{
    *token = -1;
    if (job->grammar.slot && job->grammar.slot->made) {
        EXL2__TRY(exl2__grammars_forced(e, job, token));
    }
    bool usable = *token >= 0 && (uint32_t)*token < e->models[job->model].plan.shape.vocab;
    *token = usable && !exl2__forced_is_banned(job, *token) ? *token : -1;
    return EXL2_OK;
}

/* Whether a forced token may join the history: the next pass has room for its row, and the held text for the token and
   for one that is sampled after it. */
static inline bool exl2__forced_has_room(const exl2_engine *e, const exl2__job *job)
{
    const exl2__sequence *s = &job->sequence;
    const exl2__job_delivery *d = &job->delivery;
    uint32_t prompt_rows = s->prompt_end - exl2__min32(s->prompt_end, s->table->cached);
    const exl2__backend *backend = exl2__objects_backend(&e->models[job->model]);
    return exl2__sequence_pending(s) - prompt_rows < backend->decode_rows
        && d->held_bytes <= EXL2__JOB_STOP_BYTES_MAX && d->held_tokens < d->held_tokens_max;
}

/* Appends the tokens that are forced after the job's newest token; a later step of the caller delivers their text. */
static inline void exl2__forced_append(exl2_engine *e, exl2__job *job)
{
    while (!job->one_by_one && !job->ending && !exl2__jobs_heals(job) && exl2__forced_has_room(e, job)) {
        exl2__logit_result forced = { 0 };
        exl2_result r = exl2__forced_token(e, job, &forced.token);
        if (r < 0) {
            exl2__jobs_fail(e, job, r);
        }
        if (r < 0 || forced.token < 0) {
            return;
        }
        job->stats.forced_tokens++;
        e->stats.forced_tokens++;
        exl2__jobs_accept(e, job, &forced);
    }
}

/* Appends the tokens that are forced at the beginning of the text, when the prompt has joined the history: their rows
   follow the prompt's. Their text is held until the first token after them is sampled, so that the events of the prompt
   come first. If they are the whole text, the job ends when the prompt is computed. */
static inline void exl2__forced_begin(exl2_engine *e, exl2__job *job)
{
    exl2__forced_append(e, job);
    if (!job->ending || job->result >= 0) {
        job->sequence.prefill_only |= job->ending;
        job->ending = job->sequence.held = job->delivery.text_due = false;
    }
}

#endif

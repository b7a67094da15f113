/* snapshot_resume.h: a new job goes on where the job of a restored snapshot was.
   takes: a session with what exl2__snapshot_restore has read of its job.
   gives: exl2__snapshot_resume. */
#ifndef EXL2__SNAPSHOT_RESUME_H
#define EXL2__SNAPSHOT_RESUME_H

#include "snapshot.h"

/* Can a text end after `bytes` bytes of this one, which has `end` bytes? Not within a code point. */
static inline bool exl2__snapshot_ends_at(const char *text, uint32_t bytes, uint32_t end)
{
    return bytes == end || (bytes < end && (text[bytes] & 0xC0) != 0x80);
}

/* Decodes the job's tokens again, so that the text which was held at the save is held again. */
EXL2__PRIVATE exl2_result exl2__snapshot_hold(exl2_engine *e, exl2__model *m, exl2__job *job, const exl2__session *s)
{
    const exl2__session_resume *r = &s->resume;
    exl2__table *t = job->sequence.table;
    exl2__job_delivery *d = &job->delivery;
    size_t room = m->vocab.present ? exl2__stream_room(&m->vocab) + 16 : 0;
    uint32_t shown = r->shown; /* and what was delivered of a code point that the last delivered token begins */
    for (uint32_t i = 0; i < r->tokens - r->prompt_end; i++) {
        t->tokens = r->prompt_end + i + 1; /* a healed token is recognized by it */
        exl2__logit_result held = { .token = exl2__table_token(t, t->tokens - 1) };
        if (d->held_bytes + room > EXL2__JOB_HOLD_BYTES || d->held_tokens == d->held_tokens_max) {
            return exl2__fail(&e->ctx, EXL2_ERR_ARG, "the snapshot holds back more text than a job may");
        }
        if (r->states && i >= r->delivered) {
            job->sequence.sampling.state = exl2__bits_float(exl2__snapshot_states(m, s)[i - r->delivered]);
        }
        exl2__jobs_hold(m, job, &held, false);
        if (i < r->delivered) {
            d->held_tokens = d->held_bytes = 0;
            shown = r->shown + exl2__stream_pending(&d->stream);
        }
    }
    if (shown > d->held_bytes) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "the snapshot has shown %u bytes of held text, but there are %u",
                          shown, d->held_bytes);
    }
    if (!exl2__snapshot_ends_at(job->block->hold, shown, d->held_bytes)) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "the text that the snapshot has shown ends within a character");
    }
    d->held_bytes -= shown;
    memmove(job->block->hold, job->block->hold + shown, d->held_bytes);
    for (uint32_t i = 0; i < d->held_tokens; i++) {
        job->block->held[i].end -= exl2__min32(job->block->held[i].end, shown);
    }
    if (shown) { /* as after a delivery: a rewind cannot change what was shown */
        job->block->held[0].stream.held_bytes = 0;
    }
    d->shown = r->shown;
    job->bans.from = exl2__min32(r->from, d->held_bytes);
    if (d->held_tokens == d->held_tokens_max) { /* no more can be held */
        exl2__jobs_set_due(job, d->held_bytes);
    }
    return EXL2_OK;
}

/* Makes the job the one of the snapshot. Its lists and its sampler are made already. */
EXL2__PRIVATE exl2_result exl2__snapshot_resume(exl2_engine *e, exl2__model *m, exl2__job *job, const exl2_job_desc *d)
{
    const exl2__session *session = &e->sessions[job->session];
    const exl2__session_resume *r = &session->resume;
    exl2__sequence *s = &job->sequence;
    uint32_t before = s->table->tokens;
    if (d->sampler.seed && d->sampler.seed != r->seed) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "the job's seed is %llu, but that of the snapshot is %llu",
                          (unsigned long long)d->sampler.seed, (unsigned long long)r->seed);
    }
    job->stats.seed = s->sampling.seed = r->seed;
    s->attempt = r->attempt;
    s->tried_count = r->tried_count;
    s->tried_at = r->tried_at;
    memcpy(s->tried, r->tried, r->tried_count * sizeof *s->tried);
    job->bans.rewinds = r->rewinds;
    job->delivery.delivered = job->delivery.resumed = r->delivered;
    exl2_result result = exl2__snapshot_hold(e, m, job, session);
    s->sampling.state = r->state;
    s->table->tokens = result < 0 ? before : r->tokens;
    return result;
}

#endif

/* job_wait.h: ends a job that a call waits for, when no job can advance any more.
   takes: an engine after a step that found nothing to do.
   gives: exl2__job_wait_end_stuck. */
#ifndef EXL2__JOB_WAIT_H
#define EXL2__JOB_WAIT_H

#include "jobs.h"

/* Why an active job gets no rows: it is paused, or its events wait to be read. NULL: it can continue. */
EXL2__PRIVATE const char *exl2__job_wait_why_blocked(exl2_engine *e, exl2__job *job)
{
    exl2__lock(&e->lock);
    bool paused = job->shared.pause == job->id;
    exl2__unlock(&e->lock);
    const exl2__job_delivery *d = &job->delivery;
    bool unread = d->text_due || d->progress_due || d->embedding_due || job->scores.blocked;
    return paused ? "is paused: resume it, or cancel it"
         : unread ? "has events that were not read: call exl2_next_event, or cancel it" : NULL;
}

/* Called when no job can advance. The job ends with an error if it waits for a place in the batch or for pages that
   nothing will free while the caller waits. If the job itself is paused or active, another thread may resume it. */
EXL2__PRIVATE void exl2__job_wait_end_stuck(exl2_engine *e, exl2__job *job)
{
    const exl2__model *m = &e->models[job->model];
    if (m->park == EXL2__PARK_PARKED) {
        exl2__jobs_end(job, EXL2_STOP_ERROR, EXL2_ERR_STATE,
                       "the model is parked: exl2_model_park with false loads it again");
        return;
    }
    if (job->sequence.active || job->sequence.held) {
        return;
    }
    const exl2__job *holder = NULL;
    const char *why = NULL;
    for (exl2__job *other = NULL; (other = exl2__objects_next_job(e, m, other)) != NULL;) {
        if (exl2__objects_is_hidden(other) || !other->sequence.active) {
            continue;
        }
        const char *blocked = exl2__job_wait_why_blocked(e, other);
        if (!blocked) { /* another thread has just resumed it */
            return;
        }
        holder = holder ? holder : other;
        why = why ? why : blocked;
    }
    char text[sizeof job->error.text];
    if (holder) { /* alone, a job always fits */
        exl2__format(text, sizeof text, "the job waits for a place in the batch, or for KV pages, which job "
                     EXL2__POOL_NAME " holds. That job %s", EXL2__POOL_NAMED(holder->id), why);
        exl2__jobs_end(job, EXL2_STOP_ERROR, EXL2_ERR_STATE, text);
    }
}

#endif

/* embedding_jobs.h: texts on their way to their vectors, in jobs with exl2_job_desc.embed.
   takes: a host with a model.
   gives: embedding_job, embedding_jobs_hear, embedding_jobs_finish. */
#ifndef EMBEDDING_JOBS_H
#define EMBEDDING_JOBS_H

#include "../common/host.h"

typedef struct embedding_job {
    float *values; /* [hidden]; the caller's */
    bool done, good;
    uint32_t tokens; /* of the prompt */
    char error[sizeof(((exl2_error *)0)->text)];
} embedding_job;

/* on_event of such a job, whose user is an embedding_job. */
exl2_flow embedding_jobs_hear(void *user, const exl2_event *event);

/* Steps until the items are done, each perhaps with an error. false: Ctrl-C, or the engine fails, message printed. */
bool embedding_jobs_finish(host *h, const embedding_job *items, uint32_t count);

#endif

/* embedding_jobs.c: see embedding_jobs.h. */
#include "embedding_jobs.h"

#include "../common/interrupt.h"

#include <stdio.h>
#include <string.h>

#define EMBEDDING_JOBS_STEP_US 100000u /* Ctrl-C is checked after each step of this length */

exl2_flow embedding_jobs_hear(void *user, const exl2_event *event)
{
    embedding_job *item = user;
    if (event->kind == EXL2_EVENT_EMBEDDING) {
        memcpy(item->values, event->values, event->value_count * sizeof *item->values);
        item->good = true;
    } else if (event->kind == EXL2_EVENT_DONE) {
        item->done = true;
        item->good = item->good && event->result >= 0;
        item->tokens = event->stats.prompt_tokens;
        snprintf(item->error, sizeof item->error, "%s", event->error ? event->error : "");
    }
    return EXL2_CONTINUE;
}

bool embedding_jobs_finish(host *h, const embedding_job *items, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        while (!items[i].done) {
            exl2_step_desc step = { .cpu_us = EMBEDDING_JOBS_STEP_US, .wait = true };
            if (interrupted()) {
                fputs("interrupted\n", stderr);
                return false;
            }
            if (exl2_step(h->engine, &step) < 0) {
                host_failed(h);
                return false;
            }
        }
    }
    return true;
}

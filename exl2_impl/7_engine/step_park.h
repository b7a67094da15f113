/* step_park.h: parks a model between two steps.
   takes: an engine between two steps.
   gives: exl2__step_end_active_pass, exl2__step_park. */
#ifndef EXL2__STEP_PARK_H
#define EXL2__STEP_PARK_H

#include "step.h"

/* Ends the pass in flight, if there is one. */
EXL2__PRIVATE void exl2__step_end_active_pass(exl2_engine *e, exl2__model *m)
{
    exl2__progress ignored = { false, false };
    uint64_t id = m->id;
    while (m->id == id && m->forward.active) { /* a callback may close the model */
        exl2__budget budget = { .wait = true };
        exl2__step_model(e, m, &budget, &ignored);
    }
}

/* Gives back the memory of weights and pages. The model's jobs wait again; histories stay. */
EXL2__PRIVATE void exl2__step_park(exl2_engine *e, exl2__model *m)
{
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        if (job->sequence.active) {
            exl2__schedule_preempt(&job->sequence, &m->pages);
            exl2__jobs_publish(e, job);
        }
    }
    for (uint32_t page; (page = exl2__pages_oldest(&m->pages)) != EXL2__NO_PAGE;) {
        exl2__table_drop_page(&m->pages, page);
    }
    exl2__tier_forget(&m->tier);
    m->forward.active = false;
    m->forward.ahead = 0;
    exl2__loading_free_parked(e, m);
}

#endif

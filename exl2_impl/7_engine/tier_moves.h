/* tier_moves.h: the second tier of a model's cache: what is copied to host memory and back, and when.
   takes: what exl2__tier_keep and exl2__table_start have listed.
   gives: exl2__tier_moves_plan, exl2__tier_moves_weigh, exl2__tier_moves_run. */
#ifndef EXL2__TIER_MOVES_H
#define EXL2__TIER_MOVES_H

#include "jobs.h"

/* Sets the plan's number of slots. On the CPU the cache lies in host memory, so there is no second tier. */
EXL2__PRIVATE exl2_result exl2__tier_moves_plan(exl2__ctx *c, exl2__model *m, uint64_t page_bytes)
{
    uint64_t bytes = m->desc.cache.host_bytes;
    m->plan.host_pages = 0;
    if (bytes == 0 || !exl2__objects_has_memory(m)) {
        return EXL2_OK;
    }
    m->plan.host_pages = (uint32_t)exl2__min64(bytes / page_bytes, UINT32_MAX / 4);
    return m->plan.host_pages ? EXL2_OK
         : exl2__fail(c, EXL2_ERR_ARG, "%s: cache.host_bytes is %llu, but a page of K and V has %llu: raise it, or set "
                      "it to 0", m->path,
                      (unsigned long long)bytes, (unsigned long long)page_bytes);
}

/* Before pages are looked for: is copying a page faster than computing it? */
static inline void exl2__tier_moves_weigh(exl2__model *m)
{
    m->tier.worth = m->tier.slots && exl2__spans_tier_ns(&m->spans, true) < exl2__spans_tier_ns(&m->spans, false);
}

/* Does the table count on tokens of a page that was to come back? */
static inline bool exl2__tier_moves_lacks(const exl2__tier *t, const exl2__pages *p, const exl2__table *table)
{
    bool lacks = false;
    for (uint32_t i = 0; i < t->move_count; i++) {
        uint32_t at = p->page[t->moves[i].page].depth;
        bool counts = !t->moves[i].out && at * EXL2__PAGE_TOKENS < table->cached;
        lacks = lacks || (counts && table->pages[at] == t->moves[i].page);
    }
    return lacks;
}

/* The copies were not enqueued: pages hold nothing, and jobs that count on them fail. */
EXL2__PRIVATE void exl2__tier_moves_failed(exl2_engine *e, exl2__model *m, exl2_result result)
{
    exl2__tier *t = &m->tier;
    for (uint32_t i = 0; i < t->move_count; i++) {
        m->pages.page[t->moves[i].page].filled = t->moves[i].out ? m->pages.page[t->moves[i].page].filled : 0;
    }
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        bool lacks = job->sequence.active && exl2__tier_moves_lacks(t, &m->pages, job->sequence.table);
        if (lacks && job->drafting.target) {
            exl2__jobs_free_drafter(e, job->drafting.target);
        } else if (lacks) {
            exl2__jobs_fail(e, exl2__objects_positive(job), result);
        }
    }
    exl2__tier_forget(t);
}

/* Enqueues the copies that are listed, before anything else uses the pages. */
EXL2__PRIVATE exl2_result exl2__tier_moves_run(exl2_engine *e, exl2__model *m)
{
    exl2__tier *t = &m->tier;
    exl2_result r = t->move_count ? exl2__spans_tier_move(&m->spans, t->moves, t->move_count) : EXL2_OK;
    if (r < 0) {
        exl2__tier_moves_failed(e, m, r);
    }
    t->move_count = 0;
    return r;
}

#endif

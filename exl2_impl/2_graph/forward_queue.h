/* forward_queue.h: walks a forward pass of a backend whose device works by itself: queues units, collects results.
   takes: a pass begun, device time to queue, whether to wait.
   gives: exl2__queue_budget, exl2__forward_queue, exl2__forward_begin_repeated.
   owns:  nothing. */
#ifndef EXL2__FORWARD_QUEUE_H
#define EXL2__FORWARD_QUEUE_H

#include "forward.h"

/* What one step may queue. */
typedef struct exl2__queue_budget {
    bool timed;       /* false: whole passes */
    uint64_t ns;      /* timed: device time that is left */
    bool whole;       /* timed: the device has nothing to do, so one unit is queued even if it takes longer */
    uint32_t ahead;   /* passes that may be queued behind one that decodes, before its tokens are known */
    bool wait;        /* for results */
} exl2__queue_budget;

/* Units [f->unit, end) that fit; at least one if the device has nothing to do. */
static inline uint32_t exl2__forward_units_that_fit(const exl2__forward *f, uint32_t end, exl2__queue_budget *pace)
{
    uint32_t unit = f->unit;
    while (pace->timed && unit < end) {
        uint64_t ns = f->backend->unit_ns(f->device, unit);
        if (ns > pace->ns && !pace->whole) {
            return unit;
        }
        pace->ns -= exl2__min64(pace->ns, ns);
        pace->whole = false;
        unit++;
    }
    return end;
}

/* Queues what fits: layers, and once the masks are there the rest. After it f->queued says whether the next results can
   be waited for. */
static inline exl2_result exl2__forward_queue_units(exl2__forward *f, exl2__queue_budget *pace)
{
    uint32_t group = f->logit0 / f->plan->logit_rows_max;
    bool masks = f->masks == EXL2__MASKS_READY;
    uint32_t end = f->backend->units(f->device) + (f->step.logit_count && masks ? group + 1 : 0);
    uint32_t fit = exl2__forward_units_that_fit(f, end, pace);
    if (fit > f->unit) {
        EXL2__TRY(f->backend->queue(f->device, f->unit, fit, pace->timed));
        f->unit = fit;
    }
    f->queued = fit == end && masks;
    f->masks = fit == end && !masks ? EXL2__MASKS_WANTED : f->masks;
    bool repeats = f->queued && f->ahead == 0 && f->step.decodes && f->step.logit_count <= f->plan->logit_rows_max;
    for (uint32_t i = 0; repeats && i < pace->ahead; i++) {
        EXL2__TRY(f->backend->repeat(f->device));
        f->ahead++;
    }
    return EXL2_OK;
}

static inline exl2_result exl2__forward_queue_pass(exl2__forward *f, exl2__queue_budget *pace, exl2__forward_status *status)
{
    bool all = f->logit0 == f->step.logit_count && f->step.logit_count;
    *status = all ? EXL2__FORWARD_DONE : EXL2__FORWARD_MORE;
    if (!all && !f->queued) {
        EXL2__TRY(exl2__forward_queue_units(f, pace));
    }
    if (all || !f->queued) {
        *status = f->masks == EXL2__MASKS_WANTED ? EXL2__FORWARD_MASKS : *status;
        return EXL2_OK;
    }
    uint32_t count = exl2__forward_group(f);
    exl2_result r = f->backend->collect(f->device, f->logit0, count, pace->wait, f->results);
    if (r != EXL2_PENDING) {
        EXL2__TRY(r);
        f->result_count = count;
        f->queued = false;
        *status = count ? EXL2__FORWARD_RESULTS : EXL2__FORWARD_DONE;
    }
    return EXL2_OK;
}

/* As exl2__forward_run. MORE: the pace allows no more, or results are not there yet. */
static inline exl2_result exl2__forward_queue(exl2__forward *f, exl2__queue_budget *pace, exl2__forward_status *status)
{
    f->logit0 += f->result_count; /* the caller has read them */
    f->result_count = 0;
    exl2__zone_begin(f->c, "exl2 queue");
    exl2_result r = exl2__forward_queue_pass(f, pace, status);
    exl2__zone_end(f->c);
    f->active = r >= 0 && *status != EXL2__FORWARD_DONE;
    f->ahead = r >= 0 ? f->ahead : 0;
    return r;
}

/* The repeated pass, whose rows the step says by now, is the one that results are waited for. */
static inline void exl2__forward_begin_repeated(exl2__forward *f)
{
    f->logit0 = f->result_count = 0;
    f->ahead--;
    f->queued = false; /* all units are, but perhaps a repetition is not; of a step with masks the layers are */
    f->unit = f->step.masked ? f->backend->units(f->device) : f->unit;
    f->masks = f->step.masked ? EXL2__MASKS_LATER : EXL2__MASKS_READY;
    f->active = true;
}

#endif

/* forward_queue.h: runs a forward pass on an asynchronous backend: enqueues units, collects results. The units of a
   span are enqueued at once after those of the span before, and the devices wait for each other; between units of
   layers whose MLPs the host computes, it does so here.
   takes: a pass begun, the device time that may be queued, whether to wait.
   gives: exl2__queue_budget, exl2__forward_queue, exl2__forward_begin_repeated. */
#ifndef EXL2__FORWARD_QUEUE_H
#define EXL2__FORWARD_QUEUE_H

#include "forward_host.h"

#define EXL2__FORWARD_FIRST_ENQUEUE_NS 20000u /* guess for what enqueueing a unit costs, before one was measured */

/* What one step may enqueue. */
typedef struct exl2__queue_budget {
    bool timed;        /* false: whole passes */
    uint64_t ns[EXL2__SPANS_MAX]; /* timed: time that is left on the device of each span */
    bool idle[EXL2__SPANS_MAX];   /* timed: it is idle, so one unit is enqueued even if it runs longer than `ns` */
    uint64_t cpu_end_ns; /* timed: by exl2__platform_ns, until when the thread may enqueue; 0: no limit */
    uint32_t ahead;    /* repetitions of a decode pass that may be enqueued before its tokens are known */
    bool wait;         /* wait for results */
    bool host_first;   /* the thread has done nothing yet in this step, so one item of the host runs in any case */
} exl2__queue_budget;

/* Returns the end of the units [f->unit, end) that fit into the budget, and subtracts their device time. */
static inline uint32_t exl2__forward_units_that_fit(const exl2__forward *f, uint32_t end, exl2__queue_budget *budget)
{
    const exl2__span *span = exl2__forward_span(f);
    uint32_t unit = f->unit;
    uint64_t known = f->enqueue_ns[f->step.kind == EXL2__ROWS_PROMPT], now = exl2__platform_ns();
    uint64_t each_ns = known ? known : EXL2__FORWARD_FIRST_ENQUEUE_NS;
    uint64_t cpu_ns = !budget->cpu_end_ns ? UINT64_MAX : budget->cpu_end_ns - exl2__min64(now, budget->cpu_end_ns);
    while (budget->timed && unit < end) {
        uint64_t ns = span->backend->queue->unit_ns(span->device, unit);
        if ((ns > budget->ns[f->span] || each_ns > cpu_ns) && !budget->idle[f->span]) {
            return unit;
        }
        budget->ns[f->span] -= exl2__min64(budget->ns[f->span], ns);
        cpu_ns -= exl2__min64(cpu_ns, each_ns);
        budget->idle[f->span] = false;
        unit++;
    }
    return end;
}

/* Learns what enqueueing a unit costs the thread: kernels of prompts are enqueued one by one. A new measurement counts
   a quarter. */
static inline void exl2__forward_learn_enqueue(exl2__forward *f, uint32_t units, uint64_t begin_ns)
{
    uint64_t *known = &f->enqueue_ns[f->step.kind == EXL2__ROWS_PROMPT];
    uint64_t now = (exl2__platform_ns() - begin_ns) / units;
    *known = *known ? (3 * *known + now) / 4 : now;
}

/* Enqueues the pass, or one of its groups, once more, in all spans. */
static inline exl2_result exl2__forward_repeat(const exl2__forward *f, uint32_t group)
{
    const exl2__span *last = exl2__spans_last(f->spans);
    for (uint32_t i = 0; i < f->spans->count && f->group_count > 1; i++) {
        const exl2__span *span = &f->spans->span[i];
        EXL2__TRY(span->backend->queue->select(span->device, group));
    }
    for (uint32_t i = 0; i < f->spans->count; i++) {
        const exl2__span *span = &f->spans->span[i];
        if (span != last) {
            EXL2__TRY(span->backend->queue->follow(span->device, last->device));
        }
        if (i > 0) {
            EXL2__TRY(span->backend->queue->cross(span->device));
        }
        EXL2__TRY(span->backend->queue->repeat(span->device));
    }
    return EXL2_OK;
}

/* Enqueues the units of the span that fit: layers, up to where rows cross to the host; then, once the masks are ready,
   head and sampling of the current group, in the last span. Sets f->queued if what comes next can be waited for. Goes
   to the next span, or to the next part of the pass, once all of the span's units are enqueued; *more is set then. */
static inline exl2_result exl2__forward_queue_units(exl2__forward *f, exl2__queue_budget *budget, bool *more)
{
    const exl2__span *span = exl2__forward_span(f);
    const exl2__backend_queue *queue = span->backend->queue;
    bool crosses = f->crossed < exl2__forward_host_mlps(f), last = exl2__forward_in_last_span(f) && !crosses;
    bool ends = last && !exl2__forward_has_parts(f);
    bool grouped = f->group_count > 1, gives = ends || (last && grouped); /* rows of the part want logits */
    bool masks = !gives || f->masks == EXL2__MASKS_READY;
    uint32_t group = grouped ? 0 : f->logit0 / f->plan->logit_rows_max, units = queue->units(span->device);
    uint32_t groups = gives && f->step.logit_count && masks ? group + 1 : 0;
    uint32_t end = crosses ? exl2__forward_crossing(f, units) : units + groups * queue->head_units(span->device);
    uint32_t fit = exl2__forward_units_that_fit(f, end, budget);
    if (fit > f->unit) {
        uint64_t begin_ns = exl2__platform_ns();
        EXL2__TRY(queue->enqueue(span->device, f->unit, fit, budget->timed));
        if (budget->timed) {
            exl2__forward_learn_enqueue(f, fit - f->unit, begin_ns);
        }
        f->unit = fit;
    }
    f->queued = fit == end && masks;
    f->masks = fit == end && !masks ? EXL2__MASKS_WANTED : f->masks;
    *more = f->queued && !ends && !crosses;
    if (*more && last) {
        return grouped ? exl2__forward_select(f, f->part.group + 1)
                       : exl2__forward_begin_part(f, f->part.rows_before + f->part.row_count);
    }
    if (*more) {
        f->span++;
        f->unit = f->crossed = 0;
        f->queued = false;
        return queue->cross(exl2__forward_span(f)->device);
    }
    bool repeats = f->queued && f->ahead == 0 && f->step.repeats && f->step.logit_count <= f->plan->logit_rows_max;
    uint32_t ahead = grouped ? exl2__min32(budget->ahead, 1) : budget->ahead;
    for (uint32_t i = 0; repeats && i < ahead; i++) {
        for (uint32_t g = 0; g < f->group_count; g++) {
            EXL2__TRY(exl2__forward_repeat(f, g));
        }
        f->ahead++;
    }
    return EXL2_OK;
}

/* A crossing is polled for SPIN_NS. Then, if the caller waits for results, the thread sleeps between two looks, for
   1 / SLEEP_PART of the time waited so far. */
#define EXL2__FORWARD_SPIN_NS 200000u
#define EXL2__FORWARD_SLEEP_PART 16u

/* Looks whether the rows that cross to the host have arrived, for a moment or, if the caller waits for results, as long
   as the thread has time: the device needs less for a part of a layer than the driver for a wake-up. PENDING: they have
   not. */
static inline exl2_result exl2__forward_cross(exl2__forward *f, const exl2__queue_budget *budget)
{
    const exl2__span *span = exl2__forward_span(f);
    uint64_t begin_ns = exl2__platform_ns(), now = begin_ns;
    uint64_t stop_ns = budget->wait ? UINT64_MAX : begin_ns + EXL2__FORWARD_SPIN_NS;
    stop_ns = budget->cpu_end_ns ? exl2__min64(stop_ns, budget->cpu_end_ns) : stop_ns;
    exl2_result r = span->backend->collect(span->device, f->logit0, 0, false, f->results);
    while (r == EXL2_PENDING && now < stop_ns && !(f->wanted && exl2__atomic_load(f->wanted))) {
        uint64_t sleep_ns = exl2__min64((now - begin_ns) / EXL2__FORWARD_SLEEP_PART, stop_ns - now);
        if (now - begin_ns > EXL2__FORWARD_SPIN_NS) {
            exl2__platform_sleep_us((uint32_t)(sleep_ns / 1000));
        }
        r = span->backend->collect(span->device, f->logit0, 0, false, f->results);
        now = exl2__platform_ns();
    }
    return r;
}

/* At a crossing whose units are enqueued, or on the host: CONTINUES once the device may go on. */
static inline exl2_result exl2__forward_queue_host(exl2__forward *f, exl2__queue_budget *budget,
                                                   exl2__forward_status *status)
{
    *status = EXL2__FORWARD_MORE;
    if (!f->on_host) {
        exl2_result r = exl2__forward_cross(f, budget);
        if (r == EXL2_PENDING) {
            return EXL2_OK;
        }
        EXL2__TRY(r);
        f->queued = false;
        EXL2__TRY(exl2__forward_host_begin(f));
    }
    bool timed = budget->cpu_end_ns > 0 || f->wanted;
    exl2__forward_clock clock = { budget->cpu_end_ns, timed ? exl2__platform_ns() : 0, budget->host_first };
    exl2_result r = exl2__forward_host_run(f, &clock, status);
    budget->host_first = clock.at_least_one;
    return r;
}

static inline exl2_result exl2__forward_queue_pass(exl2__forward *f, exl2__queue_budget *budget,
                                                   exl2__forward_status *status)
{
    bool all = f->logit0 == f->step.logit_count && f->step.logit_count;
    *status = all ? EXL2__FORWARD_DONE : EXL2__FORWARD_MORE;
    for (bool more = !all && !f->queued && !f->on_host; more;) { /* once for each span of each part */
        EXL2__TRY(exl2__forward_queue_units(f, budget, &more));
    }
    if (f->on_host || (f->queued && f->crossed < exl2__forward_host_mlps(f))) {
        return exl2__forward_queue_host(f, budget, status);
    }
    if (all || !f->queued) {
        *status = f->masks == EXL2__MASKS_WANTED ? EXL2__FORWARD_MASKS : *status;
        return EXL2_OK;
    }
    const exl2__span *last = exl2__spans_last(f->spans);
    uint32_t count = exl2__forward_group(f);
    uint32_t logit0 = f->group_count > 1 ? 0 : f->logit0; /* of the pass that the group is */
    exl2_result r = last->backend->collect(last->device, logit0, count, budget->wait, f->results);
    if (r == EXL2_PENDING) {
        return EXL2_OK;
    }
    EXL2__TRY(r);
    f->result_count = count;
    f->queued = false;
    *status = count ? EXL2__FORWARD_RESULTS : EXL2__FORWARD_DONE;
    return EXL2_OK;
}

/* As exl2__forward_run. MORE: the budget is used up, or results are not ready yet. */
static inline exl2_result exl2__forward_queue(exl2__forward *f, exl2__queue_budget *budget,
                                              exl2__forward_status *status)
{
    f->logit0 += f->result_count; /* the caller has read the results of the last group */
    f->result_count = 0;
    exl2__zone_begin(f->c, "exl2 queue");
    exl2_result r;
    do { /* once for each crossing */
        r = exl2__forward_queue_pass(f, budget, status);
    } while (r >= 0 && *status == EXL2__FORWARD_CONTINUES);
    exl2__zone_end(f->c);
    f->active = r >= 0 && *status != EXL2__FORWARD_DONE;
    f->ahead = r >= 0 ? f->ahead : 0;
    return r;
}

/* Makes the first repeated pass the current one, whose results come next. The caller has already moved the rows of the
   step by one position. */
static inline void exl2__forward_begin_repeated(exl2__forward *f)
{
    f->logit0 = f->result_count = 0;
    f->ahead--;
    f->queued = false; /* its units are enqueued (of a step with masks the layers), but another repetition may be due */
    const exl2__span *span = exl2__forward_span(f); /* the last one */
    f->unit = f->step.masked ? span->backend->queue->units(span->device) : f->unit;
    f->masks = f->step.masked ? EXL2__MASKS_LATER : EXL2__MASKS_READY;
    f->active = true;
}

#endif

/* forward.h: runs a forward pass unit by unit, span by span, so that it can stop after any unit and continue in a later
   frame.
   takes: a step (rows of several sequences), a deadline.
   gives: exl2__forward, exl2__forward_begin, exl2__forward_run, exl2__forward_rows_for.
   owns:  nothing; the step's arrays belong to the batch, the results to the model's scratch. */
#ifndef EXL2__FORWARD_H
#define EXL2__FORWARD_H

#include "../0_base/log.h"
#include "../0_base/platform.h"
#include "span.h"

typedef enum exl2__forward_status {
    EXL2__FORWARD_CONTINUES, /* inside of exl2__forward_run only: the next unit may run */
    EXL2__FORWARD_MORE,      /* the next unit does not fit before the deadline, or results are not ready yet */
    EXL2__FORWARD_MASKS,     /* make the masks of the step's rows, call exl2__forward_masked, run again */
    EXL2__FORWARD_LAYER,     /* the step is tapped, and layer - 1 has been computed: read the residual of rows that want
                                it, run again */
    EXL2__FORWARD_RESULTS,   /* the results of logit rows [logit0, logit0 + result_count) are ready; run again */
    EXL2__FORWARD_DONE
} exl2__forward_status;

/* LATER: not needed yet. WANTED: the engine has to make them. MADE: made by the engine, not given to the backend yet.
   READY: the backend has them, or the step has none. */
typedef enum exl2__masks {
    EXL2__MASKS_LATER, EXL2__MASKS_WANTED, EXL2__MASKS_MADE, EXL2__MASKS_READY
} exl2__masks;

/* Times are learned separately for passes of 1 row, of 2 to 8 rows and of more rows: the fewer rows share the reading
   of the weights, the more a multiply-add costs. */
#define EXL2__FORWARD_CLASSES 3

typedef struct exl2__forward {
    exl2__ctx *c;
    const exl2__spans *spans;
    const exl2__plan *plan;               /* of the whole model */
    float *handed;                        /* synchronous: [rows_max, hidden] rows that pass from span to span; NULL:
                                             there is one */
    exl2__step step;
    exl2__step part;                      /* asynchronous: rows of the step that are enqueued now, as a pass of their
                                             own; all of them unless spans share a long prompt */
    uint32_t part_rows;                   /* rows of such a part, but for the last one; 0: there is one */
    bool may_group;                       /* set before exl2__forward_begin: a pass that repeats will be repeated */
    uint32_t group_count;                 /* groups of the rows of a pass that repeats; 1: all rows are together */
    exl2__step group[EXL2__STEP_GROUPS]; /* [group_count] more than one: the groups, as passes of their own */
    bool active;
    exl2__masks masks;
    uint32_t span;                        /* index of the span of the next unit */
    uint32_t layer, phase, item;          /* synchronous backend: the next unit */
    uint32_t at;                          /* index of `phase` in the layer's list */
    uint32_t unit;                        /* asynchronous backend: the next unit of the span to enqueue */
    bool queued;                          /* asynchronous: all units of the span before its next results are enqueued */
    uint32_t ahead;                       /* asynchronous: repeated passes that are enqueued after this one */
    uint32_t crossed;                     /* asynchronous: MLPs of the span that the host has computed */
    bool on_host;                         /* the host computes one: the next unit is its `layer`, `phase`, `item` */
    float *crossing;                      /* the rows that cross, as exl2__backend_queue.crossing has them */
    uint32_t host_row;                    /* the first one of those that the host computes now */
    exl2__step host_step;                 /* the pass in which the host computes them */
    uint64_t enqueue_ns[2];               /* asynchronous: learned cost of enqueueing a unit; [1]: of a prompt */
    uint64_t unit_ns;                     /* synchronous: most predicted time of a unit of several items; 0: any */
    const uint32_t *wanted;               /* atomic: threads that wait until this pass stops; NULL: none can */
    uint32_t logit0, result_count;        /* group of logit rows that head and sample work on */
    exl2__logit_result *results;          /* [logit_rows_max] */
    /* Learned nanoseconds per multiply-add, by phase, kind of items and class of rows; 0 = not known yet */
    float ns_per_cost[EXL2__PHASE_COUNT][EXL2__PHASE_KINDS][EXL2__FORWARD_CLASSES];
} exl2__forward;

#define EXL2__FORWARD_FIRST_NS_PER_COST 0.1f /* guess for phases that never ran: 10 G multiply-adds a second */
#define EXL2__FORWARD_PROBE 32u /* the first unit of its kind is so much shorter, because the core may be slow */

#define EXL2__FORWARD_SHARED_NS 250000u /* aim for a unit while another thread may wait for it */

static const char *const exl2__phase_names[EXL2__PHASE_COUNT] = {
#define X(name) "exl2 " #name,
    EXL2__PHASES(X)
#undef X
};

/* The span of the next unit. */
static inline const exl2__span *exl2__forward_span(const exl2__forward *f)
{
    return f->on_host ? &f->spans->host : &f->spans->span[f->span];
}

static inline bool exl2__forward_in_last_span(const exl2__forward *f)
{
    return f->span + 1 == f->spans->count;
}

/* Copies rows of the residual that the span before has computed to f->handed, from which `embed` of the span reads. */
static inline exl2_result exl2__forward_hand(exl2__forward *f, uint32_t begin, uint32_t end)
{
    const exl2__span *before = &f->spans->span[f->span - 1];
    return before->backend->hand(before->device, begin, end, f->handed);
}

static inline exl2_result exl2__forward_phase(exl2__forward *f, const exl2__layer *layer, const exl2__range *range)
{
    const exl2__span *span = exl2__forward_span(f);
    if (f->phase == EXL2__PHASE_embed && f->span > 0 && !f->on_host) {
        EXL2__TRY(exl2__forward_hand(f, range->begin, range->end));
    }
    switch ((exl2__phase)f->phase) {
#define X(name) case EXL2__PHASE_##name: return span->backend->name(span->device, layer, range);
        EXL2__PHASES(X)
#undef X
    case EXL2__PHASE_COUNT:
        break;
    }
    return EXL2_ERR_INTERNAL;
}

/* Rows of the parts that the step is cut into; 0: it is not. */
static inline uint32_t exl2__forward_part_rows(const exl2__forward *f, const exl2__step *step)
{
    uint32_t rows = 0;
    if (f->spans->count == 1 || !exl2__backend_is_async(f->spans->span->backend)
        || step->kind != EXL2__ROWS_PROMPT || step->adapted
        || exl2__step_has_hidden(step, 0, step->logit_count, false)) {
        return 0;
    }
    for (uint32_t i = 0; i < f->spans->count; i++) {
        const exl2__span *span = &f->spans->span[i];
        uint32_t own = span->backend->queue->part_rows(span->device, step->row_count);
        if (own == 0) {
            return 0;
        }
        rows = exl2__max32(rows, own);
    }
    return rows;
}

/* Whether another part follows. */
static inline bool exl2__forward_has_parts(const exl2__forward *f)
{
    return f->part.rows_before + f->part.row_count < f->step.row_count;
}

/* Begins the part from row `first` on. Rows that want logits are in the last part. */
static inline exl2_result exl2__forward_begin_part(exl2__forward *f, uint32_t first)
{
    const exl2__step *s = &f->step;
    uint32_t end = s->row_count, logits = s->logit_count ? s->logits[0].row : s->row_count;
    if (f->part_rows && first + f->part_rows <= logits && first + 2 * f->part_rows <= s->row_count) {
        end = first + f->part_rows;
    }
    f->part = *s;
    f->part.rows = s->rows + first;
    f->part.row_loras = s->row_loras ? s->row_loras + first : NULL;
    f->part.rows_before = first;
    f->part.row_count = end - first;
    f->part.copy_count = first ? 0 : s->copy_count;
    f->part.logit_count = end == s->row_count ? s->logit_count : 0;
    f->span = f->unit = f->crossed = 0;
    f->queued = false;
    for (uint32_t i = 0; i < f->spans->count; i++) {
        const exl2__span *span = &f->spans->span[i];
        EXL2__TRY(span->backend->begin(span->device, &f->part));
    }
    return EXL2_OK;
}

/* Begins all groups of the step, and makes the first one the current one. */
static inline exl2_result exl2__forward_begin_groups(exl2__forward *f)
{
    uint32_t first = 0, count = f->group_count;
    for (uint32_t g = 0; g < count; g++) {
        exl2__step *s = &f->group[g];
        *s = f->step;
        s->rows = f->step.rows + first;
        s->row_loras = f->step.row_loras ? f->step.row_loras + first : NULL;
        s->logits = f->step.logits + first; /* every row wants logits */
        s->rows_before = first;
        s->row_count = s->logit_count = f->step.row_count * (g + 1) / count - first;
        s->copy_count = g ? 0 : f->step.copy_count;
        s->group = g;
        s->groups = count;
        first += s->row_count;
        for (uint32_t i = 0; i < f->spans->count; i++) {
            EXL2__TRY(f->spans->span[i].backend->begin(f->spans->span[i].device, s));
        }
    }
    return EXL2_OK;
}

/* The current part is this group. */
static inline exl2_result exl2__forward_select(exl2__forward *f, uint32_t group)
{
    f->part = f->group[group];
    f->span = f->unit = f->crossed = 0;
    f->queued = false;
    for (uint32_t i = 0; i < f->spans->count; i++) {
        const exl2__span *span = &f->spans->span[i];
        EXL2__TRY(span->backend->queue->select(span->device, group));
    }
    return EXL2_OK;
}

static inline exl2_result exl2__forward_begin(exl2__forward *f, const exl2__step *step)
{
    f->step = *step;
    f->step.handed = f->handed;
    bool host = f->spans->host.backend != NULL; /* the thread has to come back for its MLPs */
    f->step.repeats = step->repeats && !host;
    f->layer = f->phase = f->at = f->item = f->logit0 = f->result_count = 0;
    f->on_host = false;
    f->ahead = 0;
    f->masks = step->masked ? EXL2__MASKS_LATER : EXL2__MASKS_READY;
    f->part_rows = host ? 0 : exl2__forward_part_rows(f, step);
    bool groups = f->spans->count > 1 && exl2__backend_is_async(f->spans->span->backend) && f->may_group
               && f->step.repeats && !step->masked && !step->adapted
               && step->row_count >= EXL2__STEP_GROUPED_LEAST && step->row_count <= EXL2__STEP_GROUPED_ROWS;
    f->group_count = groups ? EXL2__STEP_GROUPS : 1;
    if (groups) {
        EXL2__TRY(exl2__forward_begin_groups(f));
    }
    EXL2__TRY(groups ? exl2__forward_select(f, 0) : exl2__forward_begin_part(f, 0));
    f->active = true;
    return EXL2_OK;
}

/* After FORWARD_MASKS, once the masks are made: gives them to the backend. On failure the pass has ended. */
static inline exl2_result exl2__forward_masked(exl2__forward *f)
{
    f->masks = EXL2__MASKS_READY;
    const exl2__span *last = exl2__spans_last(f->spans);
    bool uploads = exl2__backend_is_async(last->backend);
    exl2_result r = uploads ? last->backend->queue->masks_ready(last->device) : EXL2_OK;
    f->active = r >= 0;
    return r;
}

/* Rows of logits of the current group. Without a queue, rows that want hidden states are groups of their own, so that
   no head is computed for them; a queue has groups of one size. */
static inline uint32_t exl2__forward_group(const exl2__forward *f)
{
    uint32_t most = exl2__min32(f->step.logit_count - f->logit0, f->plan->logit_rows_max), count = 1;
    const exl2__logit_row *rows = f->step.logits + f->logit0;
    for (uint32_t g = 0; g < f->group_count && f->group_count > 1; g++) {
        if (f->group[g].rows_before == f->logit0) {
            return f->group[g].row_count;
        }
    }
    if (most == 0 || exl2__backend_is_async(f->spans->span[0].backend)) {
        return most;
    }
    while (count < most && (rows[count].use == EXL2__LOGIT_HIDDEN) == (rows[0].use == EXL2__LOGIT_HIDDEN)) {
        count++;
    }
    return count;
}

/* Whether a row of a tapped step wants the residual after layer - 1, which is not the last one's. */
static inline bool exl2__forward_taps(const exl2__forward *f)
{
    bool found = false;
    for (uint32_t i = 0; f->step.tapped && !found && i < f->step.logit_count; i++) {
        found = f->step.logits[i].use == EXL2__LOGIT_HIDDEN && f->step.logits[i].layer == f->layer;
    }
    return found && f->layer < f->plan->shape.layers;
}

/* ---- learned speed ---- */

static inline uint32_t exl2__forward_class(uint32_t rows)
{
    return rows <= 1 ? 0 : rows <= 8 ? 1 : 2;
}

/* Nanoseconds of a multiply-add. A figure that is not known yet is taken from passes of fewer rows, which are slower;
   where no figure is known it is a guess. */
static inline double exl2__forward_speed(const exl2__forward *f, uint32_t phase, uint32_t kind, uint32_t rows)
{
    for (uint32_t size = exl2__forward_class(rows) + 1; size-- > 0;) {
        if (f->ns_per_cost[phase][kind][size] > 0) {
            return (double)f->ns_per_cost[phase][kind][size];
        }
    }
    return (double)EXL2__FORWARD_FIRST_NS_PER_COST;
}

/* Predicted nanoseconds of `items` of the run's items, in the current phase. */
static inline uint64_t exl2__forward_predict(const exl2__forward *f, const exl2__item_run *run, uint32_t rows,
                                             uint32_t items)
{
    return (uint64_t)((double)run->cost * (double)items * exl2__forward_speed(f, f->phase, run->kind, rows));
}

/* Number of the run's items, in the current phase, that are expected to fit into `ns`. */
static inline uint32_t exl2__forward_fit(const exl2__forward *f, const exl2__item_run *run, uint32_t rows, uint64_t ns)
{
    double item_ns = (double)run->cost * exl2__forward_speed(f, f->phase, run->kind, rows);
    double fit = item_ns > 0 ? (double)ns / item_ns : 1;
    return fit > 1e9 ? 1000000000u : (uint32_t)fit;
}

/* A new measurement has a weight of one quarter, so that one preempted unit does not halve the learned speed. */
static inline void exl2__forward_learn(exl2__forward *f, const exl2__item_run *run, uint32_t rows, uint32_t items,
                                       uint64_t ns)
{
    double cost = (double)run->cost * (double)items;
    if (cost > 0) {
        float *known = &f->ns_per_cost[f->phase][run->kind][exl2__forward_class(rows)];
        float now = (float)((double)ns / cost);
        *known = *known > 0 ? *known + exl2__mul_float(0.25f, now - *known) : now;
    }
}

/* ---- one unit ---- */

typedef struct exl2__forward_clock {
    uint64_t deadline_ns, now_ns; /* of exl2__platform_ns; deadline 0: there is none */
    bool at_least_one;            /* the next unit runs even if it does not fit */
} exl2__forward_clock;

/* The layer that the next unit belongs to; NULL outside of the layers. */
static inline const exl2__layer *exl2__forward_layer(const exl2__forward *f)
{
    const exl2__layer *layers = f->on_host ? f->plan->host_layers : f->plan->layers;
    return f->phase >= EXL2__PHASE_qkv && f->phase <= EXL2__PHASE_steer ? &layers[f->layer] : NULL;
}

/* Runs the items from range->begin on that fit before the deadline. MORE: none fits. Else CONTINUES. */
static inline exl2_result exl2__forward_items(exl2__forward *f, exl2__forward_clock *clock, uint32_t items,
                                              exl2__range *range, exl2__forward_status *status)
{
    bool timed = clock->deadline_ns > 0 || f->wanted;
    uint64_t left = clock->deadline_ns == 0 ? UINT64_MAX
                  : clock->now_ns < clock->deadline_ns ? clock->deadline_ns - clock->now_ns : 0;
    const exl2__layer *layer = exl2__forward_layer(f);
    uint32_t rows = range->logit_count ? range->logit_count : f->on_host ? f->host_step.row_count : f->step.row_count;
    const exl2__span *span = exl2__forward_span(f);
    exl2__item_run run = span->backend->item_run(span->device, (exl2__phase)f->phase, layer, rows, range->begin);
    uint32_t fit = exl2__forward_fit(f, &run, rows, left), last = timed ? run.end : items;
    *status = EXL2__FORWARD_CONTINUES;
    if (fit == 0 && !clock->at_least_one) {
        *status = EXL2__FORWARD_MORE;
        return EXL2_OK;
    }
    if (f->unit_ns) {
        bool measured = f->ns_per_cost[f->phase][run.kind][exl2__forward_class(rows)] > 0;
        uint64_t most_ns = measured ? f->unit_ns : f->unit_ns / EXL2__FORWARD_PROBE;
        fit = exl2__min32(fit, exl2__forward_fit(f, &run, rows, most_ns));
    }
    if (f->wanted) {
        fit = exl2__min32(fit, exl2__forward_fit(f, &run, rows, EXL2__FORWARD_SHARED_NS));
    }
    range->end = range->begin + exl2__min32(last - range->begin, exl2__max32(fit, 1));
    exl2__zone_begin(f->c, exl2__phase_names[f->phase]);
    exl2_result r = exl2__forward_phase(f, layer, range);
    exl2__zone_end(f->c);
    EXL2__TRY(r);
    clock->at_least_one = false;
    f->item = range->end;
    if (timed) {
        uint64_t begin_ns = clock->now_ns;
        uint64_t predicted_ns = exl2__forward_predict(f, &run, rows, range->end - range->begin);
        clock->now_ns = exl2__platform_ns();
        exl2__zone_unit(f->c, exl2__phase_names[f->phase], predicted_ns, clock->now_ns - begin_ns);
        exl2__forward_learn(f, &run, rows, range->end - range->begin, clock->now_ns - begin_ns);
    }
    return EXL2_OK;
}

/* After phase `sample` of a group: RESULTS, or MORE if they are not ready. Without a deadline it waits for them. */
static inline exl2_result exl2__forward_collect(exl2__forward *f, const exl2__forward_clock *clock,
                                                exl2__forward_status *status)
{
    const exl2__span *last = exl2__spans_last(f->spans);
    uint32_t count = exl2__forward_group(f);
    exl2_result r = last->backend->collect(last->device, f->logit0, count, clock->deadline_ns == 0, f->results);
    *status = r == EXL2_PENDING ? EXL2__FORWARD_MORE : EXL2__FORWARD_RESULTS;
    if (r == EXL2_PENDING) {
        return EXL2_OK;
    }
    EXL2__TRY(r);
    f->result_count = count;
    f->phase = EXL2__PHASE_head; /* of the next group */
    f->item = 0;
    return EXL2_OK;
}

/* Goes from a finished phase to the next one. The phases of a layer are repeated for each layer. All spans copy pages
   before the first one computes; after a span's last layer comes `embed` of the next span. */
static inline void exl2__forward_next(exl2__forward *f)
{
    const exl2__layer *layer = exl2__forward_layer(f);
    f->item = 0;
    if (layer && f->at + 1 < layer->phase_count) {
        f->phase = layer->phases[++f->at];
    } else if (layer && f->layer + 1 == exl2__forward_span(f)->end && !exl2__forward_in_last_span(f)) {
        f->layer++;
        f->span++;
        f->phase = EXL2__PHASE_embed;
    } else if (layer || f->phase == EXL2__PHASE_embed) {
        f->layer += layer != NULL;
        f->at = 0;
        f->phase = f->layer < f->plan->shape.layers ? f->plan->layers[f->layer].phases[0] : EXL2__PHASE_head;
    } else if (f->phase == EXL2__PHASE_copy_pages) {
        f->span = exl2__forward_in_last_span(f) ? 0 : f->span + 1;
        f->phase = f->span ? EXL2__PHASE_copy_pages : EXL2__PHASE_embed;
    } else {
        f->phase++;
    }
}

/* Runs one unit: items of one phase that fit. *status is CONTINUES if another unit may follow. */
static inline exl2_result exl2__forward_unit(exl2__forward *f, exl2__forward_clock *clock, exl2__forward_status *status)
{
    bool has_logits = f->phase == EXL2__PHASE_head || f->phase == EXL2__PHASE_sample;
    exl2__range range = { f->item, 0, f->logit0, has_logits ? exl2__forward_group(f) : 0, EXL2__PHASE_COUNT };
    *status = EXL2__FORWARD_CONTINUES;
    if (f->phase == EXL2__PHASE_COUNT || (has_logits && range.logit_count == 0)) {
        *status = EXL2__FORWARD_DONE;
        return EXL2_OK;
    }
    bool skipped = has_logits && exl2__step_has_hidden(&f->step, f->logit0, range.logit_count, true);
    if (f->phase == EXL2__PHASE_sample && !skipped && f->masks != EXL2__MASKS_READY) {
        f->masks = EXL2__MASKS_WANTED;
        *status = EXL2__FORWARD_MASKS;
        return EXL2_OK;
    }
    const exl2__layer *layer = exl2__forward_layer(f);
    EXL2__ASSERT(!layer || (f->at < layer->phase_count && layer->phases[f->at] == f->phase));
    range.before = layer && f->at ? layer->phases[f->at - 1] : EXL2__PHASE_COUNT;
    const exl2__span *span = exl2__forward_span(f);
    uint32_t items = skipped ? 0 : span->backend->items(span->device, (exl2__phase)f->phase, layer, &range);
    if (f->item < items) {
        EXL2__TRY(exl2__forward_items(f, clock, items, &range, status));
    }
    if (f->item < items) {
        return EXL2_OK;
    }
    if (f->phase == EXL2__PHASE_sample) {
        return exl2__forward_collect(f, clock, status);
    }
    uint32_t before = f->layer;
    exl2__forward_next(f);
    *status = f->layer > before && exl2__forward_taps(f) ? EXL2__FORWARD_LAYER : EXL2__FORWARD_CONTINUES;
    return EXL2_OK;
}

/* Runs units that are expected to end before `deadline_ns` (of exl2__platform_ns; 0 = no deadline). With at_least_one
   the first unit runs in any case. MORE also when another thread waits for the engine. After RESULTS the caller reads
   f->results. On failure the pass has ended. */
static inline exl2_result exl2__forward_run(exl2__forward *f, uint64_t deadline_ns, bool at_least_one,
                                            exl2__forward_status *status)
{
    exl2__forward_clock clock = { deadline_ns, deadline_ns || f->wanted ? exl2__platform_ns() : 0, at_least_one };
    exl2_result r;
    EXL2__ASSERT(f->logit0 + f->result_count <= f->step.logit_count);
    f->logit0 += f->result_count; /* the caller has read the results of the last group */
    f->result_count = 0;
    do {
        r = exl2__forward_unit(f, &clock, status);
        if (r >= 0 && *status == EXL2__FORWARD_CONTINUES && f->wanted && exl2__atomic_load(f->wanted)) {
            *status = EXL2__FORWARD_MORE;
        }
    } while (r >= 0 && *status == EXL2__FORWARD_CONTINUES);
    f->active = r >= 0 && *status != EXL2__FORWARD_DONE;
    return r;
}

/* The most rows, up to `most`, of a pass of a synchronous backend so that its most expensive item is expected to run at
   most `ns`; at least 1. */
static inline uint32_t exl2__forward_span_rows(const exl2__forward *f, const exl2__span *span, uint32_t most,
                                               uint64_t ns)
{
    double rows = (double)most;
    for (uint32_t phase = EXL2__PHASE_qkv; phase <= EXL2__PHASE_steer; phase++) {
        uint32_t item = 0;
        exl2__item_run run;
        for (; (run = span->backend->item_run(span->device, (exl2__phase)phase, NULL, most, item)).end;
             item = run.end) {
            double row_ns = (double)run.cost / (double)most * exl2__forward_speed(f, phase, run.kind, most);
            rows = row_ns > 0 && (double)ns / row_ns < rows ? (double)ns / row_ns : rows;
        }
    }
    return rows < 1 ? 1 : (uint32_t)rows;
}

/* The most rows that a pass may have so that its most expensive unit is expected to run at most `ns`; at least 1. */
static inline uint32_t exl2__forward_rows_for(const exl2__forward *f, uint64_t ns)
{
    const exl2__span *span = f->spans->span;
    if (exl2__backend_is_async(span->backend)) {
        uint32_t most = UINT32_MAX;
        for (uint32_t i = 0; i < f->spans->count; i++) {
            most = exl2__min32(most, span[i].backend->queue->rows_for(span[i].device, ns));
        }
        return most;
    }
    return exl2__forward_span_rows(f, span, f->plan->rows_max, ns);
}

#endif

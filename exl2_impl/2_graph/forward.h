/* forward.h: walks a forward pass unit by unit, so that it can stop at any border and go on in a later frame.
   takes: a step (rows of several sequences), a deadline.
   gives: exl2__forward, exl2__forward_begin, exl2__forward_run, exl2__forward_rows_for.
   owns:  nothing; the step's arrays belong to the batch, results to the model's scratch. */
#ifndef EXL2__FORWARD_H
#define EXL2__FORWARD_H

#include "../0_base/log.h"
#include "../0_base/platform.h"
#include "phases.h"

typedef enum exl2__forward_status {
    EXL2__FORWARD_MORE,    /* the deadline came first */
    EXL2__FORWARD_MASKS,   /* the masks of the step's rows have to be made now; exl2__forward_masked, and run again */
    EXL2__FORWARD_RESULTS, /* results of logit rows [logit0, logit0 + result_count) are there; run again */
    EXL2__FORWARD_DONE
} exl2__forward_status;

/* MADE: by the caller, who says so; THERE: the backend has them, or there are none. */
typedef enum exl2__masks {
    EXL2__MASKS_LATER, EXL2__MASKS_WANTED, EXL2__MASKS_MADE, EXL2__MASKS_READY
} exl2__masks;

#define EXL2__FORWARD_CLASSES 3 /* 1 row, 2..8, more: fewer rows use the weights that are read less */

typedef struct exl2__forward {
    exl2__ctx *c;
    const exl2__backend *backend;
    exl2__device *device;
    const exl2__plan *plan;
    exl2__step step;
    bool active;
    exl2__masks masks;
    uint32_t layer, phase, item;          /* the next unit, of a backend that works phase by phase; */
    uint32_t unit;                        /* of one that queues: the next one to queue; */
    bool queued;                          /* all that the next results need is queued; */
    uint32_t ahead;                       /* passes after this one that are queued, too */
    uint32_t logit0, result_count;        /* the group of logit rows that head and sample work on */
    exl2__logit_result *results;          /* [logit_rows_max] */
    /* Learnt, by kind of items and by rows; 0 = not yet: */
    float ns_per_cost[EXL2__PHASE_COUNT][EXL2__PHASE_KINDS][EXL2__FORWARD_CLASSES];
} exl2__forward;

#define EXL2__FORWARD_FIRST_NS_PER_COST 0.1f /* a guess for phases that never ran: 10 G multiply-adds a second */

static const char *const exl2__phase_names[EXL2__PHASE_COUNT] = {
#define X(name) "exl2 " #name,
    EXL2__PHASES(X)
#undef X
};

static inline exl2_result exl2__forward_phase(exl2__forward *f, const exl2__layer *layer, const exl2__range *range)
{
    switch ((exl2__phase)f->phase) {
#define X(name) case EXL2__PHASE_##name: return f->backend->name(f->device, layer, range);
        EXL2__PHASES(X)
#undef X
    case EXL2__PHASE_COUNT:
        break;
    }
    return EXL2_ERR_INTERNAL;
}

static inline exl2_result exl2__forward_begin(exl2__forward *f, const exl2__step *step)
{
    f->step = *step;
    f->layer = f->phase = f->item = f->unit = f->logit0 = f->result_count = 0;
    f->queued = false;
    f->ahead = 0;
    f->masks = step->masked ? EXL2__MASKS_LATER : EXL2__MASKS_READY;
    EXL2__TRY(f->backend->begin(f->device, &f->step));
    f->active = true;
    return EXL2_OK;
}

/* After MASKS: they are made. On failure the pass is over. */
static inline exl2_result exl2__forward_masked(exl2__forward *f)
{
    f->masks = EXL2__MASKS_READY;
    exl2_result r = f->backend->masks ? f->backend->masks(f->device) : EXL2_OK;
    f->active = r >= 0;
    return r;
}

/* Copies of pages that nobody has begun with. */
static inline bool exl2__forward_copies_pending(const exl2__forward *f)
{
    return f->step.copy_count > 0 && f->phase == EXL2__PHASE_copy_pages && f->unit == 0 && !f->queued;
}

/* Rows of logits of the current group. */
static inline uint32_t exl2__forward_group(const exl2__forward *f)
{
    return exl2__min32(f->step.logit_count - f->logit0, f->plan->logit_rows_max);
}

static inline uint32_t exl2__forward_class(uint32_t rows)
{
    return rows <= 1 ? 0 : rows <= 8 ? 1 : 2;
}

/* What a multiply-add of such items takes. What is not known yet is taken from fewer rows, which are slower, or
   guessed. */
static inline double exl2__forward_speed(const exl2__forward *f, uint32_t phase, uint32_t kind, uint32_t rows)
{
    for (uint32_t size = exl2__forward_class(rows) + 1; size-- > 0;) {
        if (f->ns_per_cost[phase][kind][size] > 0) {
            return (double)f->ns_per_cost[phase][kind][size];
        }
    }
    return (double)EXL2__FORWARD_FIRST_NS_PER_COST;
}

/* Such items of the current phase that fit into `ns`. */
static inline uint32_t exl2__forward_fit(const exl2__forward *f, const exl2__item_run *alike, uint32_t rows, uint64_t ns)
{
    double item_ns = (double)alike->cost * exl2__forward_speed(f, f->phase, alike->kind, rows);
    double fit = item_ns > 0 ? (double)ns / item_ns : 1;
    return fit > 1e9 ? 1000000000u : (uint32_t)fit;
}

/* The new figure counts a quarter, so that one preempted unit does not halve the speed that we believe in. */
static inline void exl2__forward_learn(exl2__forward *f, const exl2__item_run *alike, uint32_t rows, uint32_t items,
                                       uint64_t ns)
{
    double cost = (double)alike->cost * (double)items;
    if (cost > 0) {
        float *known = &f->ns_per_cost[f->phase][alike->kind][exl2__forward_class(rows)];
        float now = (float)((double)ns / cost);
        *known = *known > 0 ? *known + 0.25f * (now - *known) : now;
    }
}

/* After a finished phase: the next one. The layers' phases repeat; head and sample repeat per group of rows. */
static inline void exl2__forward_next(exl2__forward *f)
{
    f->item = 0;
    if (f->phase == EXL2__PHASE_down && f->layer + 1 < f->plan->shape.layers) {
        f->layer++;
        f->phase = EXL2__PHASE_qkv;
    } else {
        f->phase++;
    }
}

/* Runs units that are expected to end before `deadline_ns` (of exl2__platform_ns; 0 = none); with at_least_one the
   first runs in any case. After RESULTS and DONE the caller reads f->results. On failure the pass is over. */
static inline exl2_result exl2__forward_run(exl2__forward *f, uint64_t deadline_ns, bool at_least_one,
                                            exl2__forward_status *status)
{
    uint64_t now = deadline_ns ? exl2__platform_ns() : 0;
    if (f->result_count) { /* the caller has read them */
        f->logit0 += f->result_count;
        f->result_count = 0;
    }
    for (;;) {
        bool has_logits = f->phase == EXL2__PHASE_head || f->phase == EXL2__PHASE_sample;
        exl2__range range = { f->item, 0, f->logit0, has_logits ? exl2__forward_group(f) : 0 };
        if (f->phase == EXL2__PHASE_COUNT || (has_logits && range.logit_count == 0)) {
            f->active = false;
            *status = EXL2__FORWARD_DONE;
            return EXL2_OK;
        }
        if (f->phase == EXL2__PHASE_sample && f->masks != EXL2__MASKS_READY) {
            f->masks = EXL2__MASKS_WANTED;
            *status = EXL2__FORWARD_MASKS;
            return EXL2_OK;
        }
        uint32_t items = f->backend->items(f->device, (exl2__phase)f->phase, &range);
        uint32_t rows = has_logits ? range.logit_count : f->step.row_count;
        if (range.begin < items) {
            uint64_t left = !deadline_ns ? UINT64_MAX : now < deadline_ns ? deadline_ns - now : 0;
            exl2__item_run alike = f->backend->item_run(f->device, (exl2__phase)f->phase, rows, range.begin);
            uint32_t fit = exl2__forward_fit(f, &alike, rows, left), last = deadline_ns ? alike.end : items;
            if (fit == 0 && !at_least_one) {
                *status = EXL2__FORWARD_MORE;
                return EXL2_OK;
            }
            range.end = range.begin + exl2__min32(last - range.begin, exl2__max32(fit, 1));
            bool in_layer = f->phase >= EXL2__PHASE_qkv && f->phase <= EXL2__PHASE_down;
            exl2__zone_begin(f->c, exl2__phase_names[f->phase]);
            exl2_result r = exl2__forward_phase(f, in_layer ? &f->plan->layers[f->layer] : NULL, &range);
            exl2__zone_end(f->c);
            if (r < 0) {
                f->active = false;
                return r;
            }
            at_least_one = false;
            f->item = range.end;
            if (deadline_ns) {
                uint64_t then = now;
                now = exl2__platform_ns();
                exl2__forward_learn(f, &alike, rows, range.end - range.begin, now - then);
            }
        }
        if (f->item < items) {
            continue;
        }
        if (f->phase == EXL2__PHASE_sample) {
            bool wait = deadline_ns == 0;
            exl2_result r = f->backend->collect(f->device, f->logit0, range.logit_count, wait, f->results);
            if (r == EXL2_PENDING) {
                *status = EXL2__FORWARD_MORE;
                return EXL2_OK;
            }
            if (r < 0) {
                f->active = false;
                return r;
            }
            f->result_count = range.logit_count;
            f->phase = EXL2__PHASE_head;
            f->item = 0;
            *status = EXL2__FORWARD_RESULTS;
            return EXL2_OK;
        }
        exl2__forward_next(f);
    }
}

/* The most rows a pass may have so that its dearest unit takes about `ns` or less; at least 1. */
static inline uint32_t exl2__forward_rows_for(const exl2__forward *f, uint64_t ns)
{
    double rows = (double)f->plan->rows_max;
    if (f->backend->rows_for) {
        return f->backend->rows_for(f->device, ns);
    }
    for (uint32_t phase = EXL2__PHASE_qkv; phase <= EXL2__PHASE_down; phase++) {
        uint32_t most = f->plan->rows_max, item = 0;
        for (exl2__item_run a; (a = f->backend->item_run(f->device, (exl2__phase)phase, most, item)).end; item = a.end) {
            double row_ns = (double)a.cost / (double)most * exl2__forward_speed(f, phase, a.kind, most);
            rows = row_ns > 0 && (double)ns / row_ns < rows ? (double)ns / row_ns : rows;
        }
    }
    return rows < 1 ? 1 : (uint32_t)rows;
}

#endif

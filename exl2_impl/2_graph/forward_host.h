/* forward_host.h: the MLPs that an asynchronous pass leaves to another backend, item by item, so that a step can stop
   after any item and continue in a later frame.
   takes: a pass at a crossing: rows of the residual in pinned memory; the time that the thread has.
   gives: exl2__forward_crossing, exl2__forward_host_begin, exl2__forward_host_run.

   A layer whose MLP the host computes is two parts. The device computes attention and copies the rows of its residual
   to pinned memory; the host adds the MLP to them, with the layer's norm before it; the device goes on with what it
   finds there. Nothing else crosses. The host has the rows in pieces, whose size changes no bits (a row's bits do not
   depend on other rows there).

   Which device computes these MLPs depends on the kind of the rows alone, not on their number. The host computes those
   of sampled rows. It also computes those of rows of prompts, unless the span has room to compute them with weights
   that are copied to it (exl2__streamed). */
#ifndef EXL2__FORWARD_HOST_H
#define EXL2__FORWARD_HOST_H

#include "forward.h"

/* Layers of the span whose MLPs the host computes in this pass. */
static inline uint32_t exl2__forward_host_mlps(const exl2__forward *f)
{
    const exl2__span *span = exl2__forward_span(f);
    bool streamed = f->step.kind == EXL2__ROWS_PROMPT && span->streamed.parts > 0;
    return streamed ? 0 : span->host_mlps;
}

/* The unit before which rows cross next; `units`, the number of units of the span, if no more rows cross. */
static inline uint32_t exl2__forward_crossing(const exl2__forward *f, uint32_t units)
{
    return units - exl2__forward_host_mlps(f) + f->crossed;
}

/* Begins the next piece of rows. */
static inline exl2_result exl2__forward_host_piece(exl2__forward *f)
{
    const exl2__span *host = &f->spans->host;
    uint32_t left = f->step.row_count - f->host_row, most = exl2__min32(left, host->plan.rows_max);
    most = f->unit_ns && most > 1 ? exl2__forward_span_rows(f, host, most, f->unit_ns) : most;
    f->host_step = (exl2__step){ .rows = f->step.rows + f->host_row, .row_count = most,
                                 .handed = f->crossing + (size_t)f->host_row * f->plan->shape.hidden };
    if (f->step.steered) { /* after the MLP, which ends the layer */
        f->host_step.row_loras = f->step.row_loras + f->host_row;
        f->host_step.lora_sets = f->step.lora_sets;
        f->host_step.lora_set_count = f->step.lora_set_count;
        f->host_step.steered = true;
    }
    f->phase = EXL2__PHASE_embed;
    f->at = f->item = 0;
    return host->backend->begin(host->device, &f->host_step);
}

/* The device has copied the rows of the next layer of the host to pinned memory. */
static inline exl2_result exl2__forward_host_begin(exl2__forward *f)
{
    const exl2__span *span = exl2__forward_span(f);
    f->layer = span->end - span->host_mlps + f->crossed;
    f->crossing = span->backend->queue->crossing(span->device);
    f->host_row = 0;
    f->on_host = true;
    return exl2__forward_host_piece(f);
}

/* Goes from a finished phase to the next one. After the last one, copies the rows back to pinned memory. */
static inline exl2_result exl2__forward_host_next(exl2__forward *f)
{
    const exl2__span *host = &f->spans->host;
    const exl2__layer *layer = &host->plan.layers[f->layer];
    f->item = 0;
    f->at += f->phase != EXL2__PHASE_embed;
    if (f->at < layer->phase_count) {
        f->phase = layer->phases[f->at];
        return EXL2_OK;
    }
    float *out = f->crossing + (size_t)f->host_row * f->plan->shape.hidden;
    EXL2__TRY(host->backend->hand(host->device, 0, f->host_step.row_count, out));
    f->host_row += f->host_step.row_count;
    f->on_host = f->host_row < f->step.row_count;
    f->crossed += !f->on_host;
    return f->on_host ? exl2__forward_host_piece(f) : EXL2_OK;
}

/* Runs items that are expected to end before the clock's deadline. MORE: they do not all fit, or another thread waits
   for the engine. CONTINUES: the device may go on. */
static inline exl2_result exl2__forward_host_run(exl2__forward *f, exl2__forward_clock *clock,
                                                 exl2__forward_status *status)
{
    const exl2__span *host = &f->spans->host;
    *status = EXL2__FORWARD_CONTINUES;
    while (f->on_host && *status == EXL2__FORWARD_CONTINUES) {
        const exl2__layer *layer = exl2__forward_layer(f);
        exl2__range range = { f->item, 0, 0, 0, layer && f->at ? layer->phases[f->at - 1] : EXL2__PHASE_COUNT };
        uint32_t items = host->backend->items(host->device, (exl2__phase)f->phase, layer, &range);
        if (f->item < items) {
            EXL2__TRY(exl2__forward_items(f, clock, items, &range, status));
        }
        if (*status == EXL2__FORWARD_CONTINUES && f->item >= items) {
            EXL2__TRY(exl2__forward_host_next(f));
        }
        if (f->on_host && f->wanted && exl2__atomic_load(f->wanted)) {
            *status = EXL2__FORWARD_MORE;
        }
    }
    return EXL2_OK;
}

#endif

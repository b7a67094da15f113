/* cuda_timing.h: how long units run on the GPU, learned from timestamps, and how much of the queued time is left.
   takes: an open device whose context is current; estimates.
   gives: exl2__cuda_timing with open, close; exl2__cuda_timing_begin, _end, _queued; exl2__cuda_timing_ns.
   owns:  events, until close.

   A span is what one step enqueues: consecutive units between two timestamps. The ratio of its measured time to its
   estimate corrects the estimates of its class of passes. Work of other programs on the same GPU counts, too, since it
   delays the frame as well. */
#ifndef EXL2__CUDA_TIMING_H
#define EXL2__CUDA_TIMING_H

#include "cuda_device.h"

#define EXL2__CUDA_SPANS 16u  /* spans in flight at most; further ones are not timed */
#define EXL2__CUDA_ROW_CLASSES 7u /* of passes that graphs are captured for: see exl2__cuda_row_class */
#define EXL2__CUDA_PASS_CLASSES (EXL2__CUDA_ROW_CLASSES + 2) /* besides: more sampled rows; rows of prompts */

#define EXL2__CUDA_TIMING_TOWER EXL2__CUDA_PASS_CLASSES /* of spans with launches of a tower, which are of no pass */
#define EXL2__CUDA_TIMING_STREAMED (EXL2__CUDA_PASS_CLASSES + 1) /* of spans whose units wait for weights */
#define EXL2__CUDA_TIMING_CLASSES (EXL2__CUDA_PASS_CLASSES + 2)

typedef struct exl2__cuda_span {
    exl2__cuda_event *begin, *end;
    uint64_t estimate_ns; /* before correction */
    uint32_t kind;
} exl2__cuda_span;

typedef struct exl2__cuda_timing {
    exl2__cuda_span slices[EXL2__CUDA_SPANS]; /* a ring */
    uint32_t first, count;
    float factor[EXL2__CUDA_TIMING_CLASSES];         /* measured / estimated; 0: not measured yet */
} exl2__cuda_timing;

EXL2__PRIVATE void exl2__cuda_timing_close(exl2__cuda_device *d, exl2__cuda_timing *p)
{
    for (uint32_t i = 0; i < EXL2__CUDA_SPANS; i++) {
        if (p->slices[i].begin) {
            d->driver.event_free(p->slices[i].begin);
        }
        if (p->slices[i].end) {
            d->driver.event_free(p->slices[i].end);
        }
    }
    *p = (exl2__cuda_timing){ 0 };
}

EXL2__PRIVATE exl2_result exl2__cuda_timing_open(exl2__cuda_device *d, exl2__cuda_timing *p)
{
    int made = 0;
    for (uint32_t i = 0; i < EXL2__CUDA_SPANS && made == 0; i++) {
        made = d->driver.event_make(&p->slices[i].begin, EXL2__CUDA_EVENT_PLAIN);
        made = made == 0 ? d->driver.event_make(&p->slices[i].end, EXL2__CUDA_EVENT_PLAIN) : made;
    }
    return exl2__cuda_device_check(d, made, "creating an event");
}

/* The estimate, corrected by measured times. */
static inline uint64_t exl2__cuda_timing_ns(const exl2__cuda_timing *p, uint32_t kind, uint64_t estimate_ns)
{
    return p->factor[kind] > 0 ? (uint64_t)((double)estimate_ns * (double)p->factor[kind]) : estimate_ns;
}

/* Called before a span is enqueued. */
static inline exl2_result exl2__cuda_timing_begin(exl2__cuda_device *d, exl2__cuda_timing *p)
{
    if (p->count == EXL2__CUDA_SPANS) {
        return EXL2_OK;
    }
    exl2__cuda_span *s = &p->slices[(p->first + p->count) % EXL2__CUDA_SPANS];
    return exl2__cuda_device_check(d, d->driver.event_record(s->begin, d->stream), "recording a timestamp");
}

/* Called after a span was enqueued. */
static inline exl2_result exl2__cuda_timing_end(exl2__cuda_device *d, exl2__cuda_timing *p, uint32_t kind,
                                                uint64_t estimate_ns)
{
    if (p->count == EXL2__CUDA_SPANS) {
        return EXL2_OK;
    }
    exl2__cuda_span *s = &p->slices[(p->first + p->count) % EXL2__CUDA_SPANS];
    s->estimate_ns = estimate_ns;
    s->kind = kind;
    p->count++;
    return exl2__cuda_device_check(d, d->driver.event_record(s->end, d->stream), "recording a timestamp");
}

/* A new measurement counts a quarter, so that one preempted span does not halve the assumed speed. */
static inline void exl2__cuda_timing_learn(exl2__cuda_timing *p, const exl2__cuda_span *s, float milliseconds)
{
    float *known = &p->factor[s->kind], now = milliseconds * 1e6f / (float)exl2__max64(s->estimate_ns, 1);
    *known = *known > 0 ? *known + 0.25f * (now - *known) : now;
}

/* Expected time of the spans that have not ended; learns from those that have. Errors are reported by the next call
   that enqueues or collects: a span whose event cannot be queried counts as ended, or a lost device would look busy for
   ever. */
static inline uint64_t exl2__cuda_timing_queued(exl2__cuda_device *d, exl2__cuda_timing *p)
{
    uint64_t ns = 0;
    while (p->count) {
        exl2__cuda_span *s = &p->slices[p->first];
        float milliseconds = 0;
        int state = d->driver.event_query(s->end);
        if (state == EXL2__CUDA_NOT_READY) {
            break;
        }
        if (state == 0 && d->driver.event_ms(&milliseconds, s->begin, s->end) == 0) {
            exl2__cuda_timing_learn(p, s, milliseconds);
        }
        p->first = (p->first + 1) % EXL2__CUDA_SPANS;
        p->count--;
    }
    for (uint32_t i = 0; i < p->count; i++) {
        const exl2__cuda_span *s = &p->slices[(p->first + i) % EXL2__CUDA_SPANS];
        ns += exl2__cuda_timing_ns(p, s->kind, s->estimate_ns);
    }
    return ns;
}

#endif

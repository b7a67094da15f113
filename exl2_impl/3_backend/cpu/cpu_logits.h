/* cpu_logits.h: rows of logits on the processor: phase `sample`, and rows that the engine draws.
   takes: logits of the group that head has done.
   gives: exl2__cpu_sample; exl2__cpu_row_logits, exl2__cpu_row_sample of the backend.
   owns:  nothing. */
#ifndef EXL2__CPU_LOGITS_H
#define EXL2__CPU_LOGITS_H

#include "cpu_device.h"

/* The logits of a row as the sampler wants them. */
static float *exl2__cpu_sample_logits(const exl2__cpu_device *d, uint32_t row, uint32_t task)
{
#ifdef EXL2__REAL
    float *out = d->sample_logits + (size_t)task * d->shape.vocab;
    for (uint32_t i = 0; i < d->shape.vocab; i++) {
        out[i] = (float)d->logits[(size_t)row * d->vocab_stride + i];
    }
    return out;
#else
    (void)task;
    return d->logits + (size_t)row * d->vocab_stride;
#endif
}

/* Items: logit rows. A row that fails reads as: no token is allowed. */
static void exl2__cpu_sample(exl2__cpu_device *d, const exl2__layer *layer, const exl2__range *range,
                             uint32_t begin, uint32_t end, uint32_t task)
{
    (void)layer;
    for (uint32_t r = begin; r < end; r++) {
        exl2__logit_result *result = &d->results[r];
        *result = (exl2__logit_result){ .token = -1, .alts = d->alts + (size_t)r * EXL2_ALTS_MAX };
        if (d->step->logits[range->logit0 + r].use == EXL2__LOGIT_FETCH) {
            continue;
        }
        exl2_result failed = exl2__sample_row(exl2__cpu_sample_logits(d, r, task), d->shape.vocab,
                                              &d->step->logits[range->logit0 + r], d->task[task].sample, result);
        if (failed < 0) {
            result->token = -1;
        }
    }
}

static exl2_result exl2__cpu_row_logits(exl2__device *device, uint32_t row, float **out)
{
    *out = exl2__cpu_sample_logits(exl2__cpu_of(device), row, 0);
    return EXL2_OK;
}

static exl2_result exl2__cpu_row_sample(exl2__device *device, float *logits, const exl2__logit_row *row,
                                      exl2__logit_result *result)
{
    const exl2__cpu_device *d = exl2__cpu_of(device);
    return exl2__sample_row(logits, d->shape.vocab, row, d->task->sample, result);
}

#endif

/* cpu_logits.h: rows of logits on the CPU: the phase `sample`, and rows whose logits the engine fetches.
   takes: the logits of one group, which the phase `head` has computed.
   gives: exl2__cpu_sample, exl2__cpu_row_logits, exl2__cpu_row_sample, exl2__cpu_row_hidden. */
#ifndef EXL2__CPU_LOGITS_H
#define EXL2__CPU_LOGITS_H

#include "cpu_device.h"

/* The logits of a row as float, which the sampler may overwrite. */
EXL2__PRIVATE float *exl2__cpu_sample_logits(const exl2__cpu_device *d, uint32_t row, uint32_t task)
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

/* Items: logit rows. A row that fails gets the token -1, as if no token were allowed. */
EXL2__PRIVATE void exl2__cpu_sample(const exl2__cpu_share *s)
{
    exl2__cpu_device *d = s->d;
    for (uint32_t r = s->begin; r < s->end; r++) {
        const exl2__logit_row *row = &d->step->logits[s->range->logit0 + r];
        exl2__logit_result *result = &d->results[r];
        *result = (exl2__logit_result){ .token = -1, .alts = d->alts + (size_t)r * EXL2_ALTS_MAX };
        if (row->use == EXL2__LOGIT_FETCH || row->use == EXL2__LOGIT_HIDDEN) {
            continue;
        }
        float *logits = exl2__cpu_sample_logits(d, r, s->task);
        if (exl2__sample_row(d->c->cpu_path, logits, d->shape.vocab, row, d->task[s->task].sample, result) < 0) {
            result->token = -1;
        }
    }
}

EXL2__PRIVATE exl2_result exl2__cpu_row_logits(exl2__device *device, uint32_t row, float **out)
{
    *out = exl2__cpu_sample_logits(exl2__cpu_of(device), row, 0);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cpu_row_sample(exl2__device *device, float *logits, const exl2__logit_row *row,
                                               exl2__logit_result *result)
{
    const exl2__cpu_device *d = exl2__cpu_of(device);
    return exl2__sample_row(d->c->cpu_path, logits, d->shape.vocab, row, d->task->sample, result);
}

EXL2__PRIVATE exl2_result exl2__cpu_row_hidden(exl2__device *device, uint32_t row, uint32_t count, bool raw, float *out)
{
    const exl2__cpu_device *d = exl2__cpu_of(device);
    for (uint32_t r = 0; r < count; r++) {
        const exl2__real *residual = d->residual + (size_t)(row + r) * d->hidden_stride;
        exl2__real *x = d->task->rows;
        if (!raw) {
            exl2__cpu_norm_or_copy(d, &d->final_norm, residual, x);
        }
        const exl2__real *from = raw ? residual : x;
        for (uint32_t i = 0; i < d->shape.hidden; i++) {
            out[(size_t)r * d->shape.hidden + i] = (float)from[i];
        }
    }
    return EXL2_OK;
}

#endif

/* cpu_logits.h: rows of logits on the CPU: the phase `sample`, and rows whose logits the engine fetches.
   takes: the logits of one group, which the phase `head` has computed.
   gives: exl2__cpu_sample, exl2__cpu_sample_items, exl2__cpu_sample_item_run; exl2__cpu_row_logits,
          exl2__cpu_row_sample, exl2__cpu_row_hidden. */
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

/* Begins a row's result. false: nothing is sampled from the row here. */
EXL2__PRIVATE bool exl2__cpu_sample_result(exl2__cpu_device *d, const exl2__range *range, uint32_t r)
{
    exl2__logit_use use = d->step->logits[range->logit0 + r].use;
    d->results[r] = (exl2__logit_result){ .token = -1, .alts = d->alts + (size_t)r * EXL2_ALTS_MAX };
    return use != EXL2__LOGIT_FETCH && use != EXL2__LOGIT_HIDDEN;
}

/* ---- whole rows: items are rows. One that fails gets the token -1, as if no token were allowed ---- */

EXL2__PRIVATE void exl2__cpu_sample_rows(const exl2__cpu_share *s)
{
    exl2__cpu_device *d = s->d;
    for (uint32_t r = s->begin; r < s->end; r++) {
        const exl2__logit_row *row = &d->step->logits[s->range->logit0 + r];
        exl2__logit_result *result = &d->results[r];
        if (!exl2__cpu_sample_result(d, s->range, r)) {
            continue;
        }
        float *logits = exl2__cpu_sample_logits(d, r, s->task);
        if (exl2__sample_row(d->c->cpu_path, logits, d->shape.vocab, row, d->task[s->task].sample, result) < 0) {
            result->token = -1;
        }
    }
}

/* ---- with a budget: one row after the other, in parts ---- */

/* Begins the first row from d->sampled_row on that is sampled. */
EXL2__PRIVATE void exl2__cpu_sample_next_row(exl2__cpu_device *d, const exl2__range *range)
{
    bool begun = false;
    d->sampled_parts = 0;
    while (d->sampled_row < range->logit_count && !begun) {
        uint32_t r = d->sampled_row;
        begun = exl2__cpu_sample_result(d, range, r)
             && exl2__sample_begin(&d->sampling, d->c->cpu_path, exl2__cpu_sample_logits(d, r, 0), d->shape.vocab,
                                   &d->step->logits[range->logit0 + r], d->task->sample, &d->results[r]) >= 0;
        d->sampled_row += !begun;
    }
}

EXL2__PRIVATE void exl2__cpu_sample_parts(const exl2__cpu_share *s)
{
    exl2__sample_part(&s->d->sampling, s->begin, s->end);
}

/* Items are parts of the passes of exl2__sample_run. How many a row has is known at its end, so the phase has more
   items than it needs, until the last row has ended. It begins with item 0. */
EXL2__PRIVATE uint32_t exl2__cpu_sample_items(exl2__cpu_device *d, const exl2__range *range)
{
    if (range->begin == 0) {
        d->sampled_row = 0;
        exl2__cpu_sample_next_row(d, range);
    }
    return d->sampled_row < range->logit_count ? range->logit_count * exl2__sample_parts_most(d->shape.vocab)
                                               : range->begin;
}

EXL2__PRIVATE exl2__item_run exl2__cpu_sample_item_run(const exl2__cpu_device *d, uint32_t item)
{
    const exl2__sample_run *x = &d->sampling;
    uint32_t left = exl2__sample_parts(x) - d->sampled_parts;
    return (exl2__item_run){ exl2__sample_part_cost(x), exl2__sample_kind(x), item + left };
}

/* Items [range->begin, range->end); all that are left, if the range ends with the last one. */
EXL2__PRIVATE void exl2__cpu_sample(exl2__cpu_device *d, const exl2__range *range)
{
    uint32_t most = range->logit_count * exl2__sample_parts_most(d->shape.vocab), left = range->end - range->begin;
    bool to_the_end = range->end >= most;
    exl2__cpu_share share = { d, NULL, range, 0, range->logit_count, 0 };
    if (to_the_end && range->begin == 0) {
        exl2__cpu_device_split(exl2__cpu_sample_rows, &share, (uint64_t)range->logit_count * d->shape.vocab * 64);
        d->sampled_row = range->logit_count;
    }
    while (d->sampled_row < range->logit_count && (to_the_end || left > 0)) {
        exl2__sample_run *x = &d->sampling;
        uint32_t parts = exl2__sample_parts(x), now = parts - d->sampled_parts;
        now = to_the_end ? now : exl2__min32(now, left);
        share.begin = d->sampled_parts;
        share.end = d->sampled_parts = share.begin + now;
        uint64_t cost = exl2__sample_is_parallel(x) ? now * 16ull * EXL2__SAMPLE_PART : 0;
        exl2__cpu_device_split(exl2__cpu_sample_parts, &share, cost);
        left -= to_the_end ? 0 : now;
        if (d->sampled_parts == parts) {
            d->sampled_parts = 0;
            exl2__sample_next(x);
        }
        if (x->pass == EXL2__SAMPLE_ENDED) {
            d->sampled_row++;
            exl2__cpu_sample_next_row(d, range);
        }
    }
}

EXL2__PRIVATE exl2_result exl2__cpu_row_logits(exl2__device *device, uint32_t row, float **out)
{
    *out = exl2__cpu_sample_logits(exl2__cpu_of(device), row, 0);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cpu_row_sample(exl2__device *device, float *logits, const exl2__logit_row *row,
                                               exl2__logit_result *result, exl2__sample_run **out)
{
    exl2__cpu_device *d = exl2__cpu_of(device);
    *out = &d->sampling; /* the phase `sample` has ended */
    return exl2__sample_begin(&d->sampling, d->c->cpu_path, logits, d->shape.vocab, row, d->task->sample, result);
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

/* runner_logits.h: the logits of a pass: of all rows and tokens, or of some strips of the head.
   takes: exl2__runner whose pass has gone through all layers.
   gives: exl2__runner_logits_fn, exl2__runner_logits, exl2__runner_logits_strips, exl2__runner_head. */
#ifndef EXL2__RUNNER_LOGITS_H
#define EXL2__RUNNER_LOGITS_H

#include "runner_pass.h"

/* Called with the logits [vocab] of each row, in any order, by the application's threads. */
typedef void (*exl2__runner_logits_fn)(void *user, uint32_t row, const float *logits);

typedef struct exl2__runner_rows { /* the logits that were computed */
    const exl2__cpu_device *d;
    uint32_t first;
    exl2__runner_logits_fn fn;
    void *user;
} exl2__runner_rows;

/* Task: one row. */
EXL2__PRIVATE void exl2__runner_logits_row(void *arg, uint32_t index)
{
    const exl2__runner_rows *rows = (const exl2__runner_rows *)arg;
    rows->fn(rows->user, rows->first + index, rows->d->logits + (size_t)index * rows->d->vocab_stride);
}

#ifndef EXL2_NO_CUDA
EXL2__PRIVATE exl2_result exl2__runner_head_steps(exl2__runner *r, exl2__range range)
{
    exl2__cpu_device *d = exl2__runner_cpu(r);
    uint32_t columns = exl2__cpu_matrix_of(r->plan.head)->parts->strips * EXL2__CPU_STRIP;
    exl2k_u64 logits;
    uint64_t bytes = (uint64_t)range.logit_count * columns * sizeof(float);
    EXL2__TRY(exl2__gpu_need(r->gpu, bytes, EXL2__GPU_Y, &logits));
    EXL2__TRY(exl2__gpu_pass_logits(&r->pass, range.logit0, range.logit_count, logits));
    bool more = columns > d->vocab_stride; /* an embedding that is the head may have more columns */
    EXL2__TRY(exl2__gpu_down(r->gpu, more ? r->output : d->logits, logits, bytes));
    for (uint32_t i = 0; more && i < range.logit_count; i++) {
        memcpy(d->logits + (size_t)i * d->vocab_stride, r->output + (size_t)i * columns,
               d->vocab_stride * sizeof *d->logits);
    }
    exl2__cpu_share all = { d, NULL, &range, 0, d->vocab_stride / EXL2__CPU_STRIP, 0 };
    exl2__cpu_device_split(exl2__cpu_head_scale, &all, (uint64_t)range.logit_count * d->vocab_stride * 16);
    return EXL2_OK;
}
#endif

/* The logits of the rows of a range, which the CPU backend has then. */
EXL2__PRIVATE exl2_result exl2__runner_head(exl2__runner *r, exl2__range range)
{
#ifndef EXL2_NO_CUDA
    if (exl2__runner_on_gpu(r, UINT32_MAX, EXL2__RUNNER_QKV)) {
        EXL2__TRY(exl2__runner_move(r, true));
        EXL2__TRY(exl2__cuda_device_enter(r->gpu->d));
        return exl2__cuda_device_leave_with(r->gpu->d, exl2__runner_head_steps(r, range));
    }
#endif
    return exl2__runner_phase(r, EXL2__PHASE_head, NULL, range);
}

typedef struct exl2__runner_strips { /* of the head, that are computed */
    exl2__cpu_device *d;
    const exl2__range *range;
    const uint32_t *strips;
} exl2__runner_strips;

/* Task: one strip. */
EXL2__PRIVATE void exl2__runner_strip(void *arg, uint32_t index)
{
    const exl2__runner_strips *s = (const exl2__runner_strips *)arg;
    exl2__cpu_share share = { s->d, NULL, s->range, s->strips[index], s->strips[index] + 1, 0 };
    exl2__cpu_head_strips(&share);
}

/* The logits of some strips of the head alone, on the CPU. */
EXL2__PRIVATE exl2_result exl2__runner_head_strips(exl2__runner *r, exl2__range range, const uint32_t *strips,
                                                   uint32_t count)
{
    exl2__cpu_device *d = exl2__runner_cpu(r);
    exl2__runner_strips some = { d, &range, strips };
    range.end = exl2__cpu_device_tiles(d, range.logit_count); /* the head's input */
    EXL2__TRY(exl2__cpu_run(r->device, EXL2__PHASE_head, NULL, &range));
    exl2__tasks_run(r->c, count, exl2__runner_strip, &some);
    return EXL2_OK;
}

/* Computes the logits of all rows from the residual. count: 0, or strips [count] of the head alone are computed, on the
   CPU, where the residual is; the others have no logits then. */
EXL2__PRIVATE exl2_result exl2__runner_logits_strips(exl2__runner *r, const uint32_t *strips, uint32_t count,
                                                     exl2__runner_logits_fn fn, void *user)
{
    exl2__runner_rows rows = { exl2__runner_cpu(r), 0, fn, user };
    for (uint32_t row = 0; row < r->row_count; row += r->plan.logit_rows_max) {
        exl2__range range = { 0 };
        range.logit0 = row;
        range.logit_count = exl2__min32(r->row_count - row, r->plan.logit_rows_max);
        EXL2__TRY(count ? exl2__runner_head_strips(r, range, strips, count) : exl2__runner_head(r, range));
        rows.first = row;
        exl2__tasks_run(r->c, range.logit_count, exl2__runner_logits_row, &rows);
    }
    return EXL2_OK;
}

static inline exl2_result exl2__runner_logits(exl2__runner *r, exl2__runner_logits_fn fn, void *user)
{
    return exl2__runner_logits_strips(r, NULL, 0, fn, user);
}

#endif

/* runner_states.h: states, the residuals of many tokens between two layers, in host memory or on a GPU.
   takes: exl2__runner; a pass that has begun.
   gives: exl2__runner_states, exl2__runner_states_at, exl2__runner_states_copy, exl2__runner_states_sync;
          exl2__runner_get, exl2__runner_put; exl2__runner_move. */
#ifndef EXL2__RUNNER_STATES_H
#define EXL2__RUNNER_STATES_H

#include "runner_place.h"

typedef struct exl2__runner_states {
    float *host;  /* [tokens, hidden] */
    uint64_t gpu; /* 0, or the address of the same in device memory, which then counts */
} exl2__runner_states;

static inline exl2__runner_states exl2__runner_states_at(const exl2__runner *r, const exl2__runner_states *s,
                                                         uint64_t token)
{
    uint64_t at = token * r->plan.shape.hidden;
    return (exl2__runner_states){ s->host ? s->host + at : NULL, s->gpu ? s->gpu + at * sizeof(float) : 0 };
}

/* Copies `tokens` states, which may be those of the other memory. */
EXL2__PRIVATE exl2_result exl2__runner_states_copy(const exl2__runner *r, const exl2__runner_states *to,
                                                   const exl2__runner_states *from, uint64_t tokens)
{
    uint64_t bytes = tokens * r->plan.shape.hidden * sizeof(float);
#ifndef EXL2_NO_CUDA
    if (to->gpu || from->gpu) {
        EXL2__TRY(exl2__cuda_device_enter(r->gpu->d));
        return exl2__cuda_device_leave_with(r->gpu->d, !from->gpu ? exl2__gpu_up(r->gpu, to->gpu, from->host, bytes)
            : to->gpu ? exl2__gpu_copy(r->gpu, to->gpu, from->gpu, bytes)
                      : exl2__gpu_down(r->gpu, to->host, from->gpu, bytes));
    }
#endif
    memcpy(to->host, from->host, (size_t)bytes);
    return EXL2_OK;
}

/* Has the host's copy up to date, or the device's after the host's has changed. */
EXL2__PRIVATE exl2_result exl2__runner_states_sync(const exl2__runner *r, const exl2__runner_states *s, uint64_t tokens,
                                                   bool to_host)
{
    exl2__runner_states host = { s->host, 0 };
    return s->gpu ? exl2__runner_states_copy(r, to_host ? &host : s, to_host ? s : &host, tokens) : EXL2_OK;
}

#ifndef EXL2_NO_CUDA
/* Copies the pass's residual between the CPU backend and the GPU, if it is not there yet. */
EXL2__PRIVATE exl2_result exl2__runner_move(exl2__runner *r, bool to_gpu)
{
    exl2__cpu_device *d = exl2__runner_cpu(r);
    uint64_t bytes = (uint64_t)r->row_count * d->shape.hidden * sizeof(float); /* hidden is a multiple of 32 */
    if (r->residual_on_gpu == to_gpu) {
        return EXL2_OK;
    }
    if (!r->pass.residual) {
        EXL2__TRY(exl2__gpu_pass_own(&r->pass));
    }
    r->residual_on_gpu = to_gpu;
    EXL2__TRY(exl2__cuda_device_enter(r->gpu->d));
    return exl2__cuda_device_leave_with(r->gpu->d, to_gpu ? exl2__gpu_up(r->gpu, r->pass.residual, d->residual, bytes)
                                                   : exl2__gpu_down(r->gpu, d->residual, r->pass.residual, bytes));
}

/* The pass's residual from or to states on a GPU: nothing is copied if it is in place. */
EXL2__PRIVATE exl2_result exl2__runner_get_gpu(exl2__runner *r, const exl2__runner_states *s, uint64_t first, bool keep)
{
    uint64_t row = r->plan.shape.hidden * sizeof(float), from = s->gpu + first * row;
    r->residual_on_gpu = true;
    if (s->gpu && !keep) {
        r->pass.residual = from;
        return EXL2_OK;
    }
    EXL2__TRY(exl2__gpu_pass_own(&r->pass));
    EXL2__TRY(exl2__cuda_device_enter(r->gpu->d));
    return exl2__cuda_device_leave_with(r->gpu->d, s->gpu
        ? exl2__gpu_copy(r->gpu, r->pass.residual, from, r->row_count * row)
        : exl2__gpu_up(r->gpu, r->pass.residual, s->host + first * r->plan.shape.hidden, r->row_count * row));
}

EXL2__PRIVATE exl2_result exl2__runner_put_gpu(exl2__runner *r, const exl2__runner_states *s, uint64_t first)
{
    uint64_t row = r->plan.shape.hidden * sizeof(float), to = s->gpu + first * row;
    if (s->gpu && !r->residual_on_gpu) {
        r->pass.residual = to;
    }
    EXL2__TRY(exl2__runner_move(r, true));
    if (s->gpu && r->pass.residual == to) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__cuda_device_enter(r->gpu->d));
    return exl2__cuda_device_leave_with(r->gpu->d, s->gpu
        ? exl2__gpu_copy(r->gpu, to, r->pass.residual, r->row_count * row)
        : exl2__gpu_down(r->gpu, s->host + first * r->plan.shape.hidden, r->pass.residual, r->row_count * row));
}
#endif

/* The states of r->row_count tokens from `first` on become the residual of the pass begun. keep: the states must not
   change with it. */
EXL2__PRIVATE exl2_result exl2__runner_get(exl2__runner *r, const exl2__runner_states *s, uint64_t first, bool keep)
{
    const exl2__cpu_device *d = exl2__runner_cpu(r);
    size_t hidden = d->shape.hidden;
#ifndef EXL2_NO_CUDA
    if (exl2__runner_on_gpu(r, UINT32_MAX, EXL2__RUNNER_QKV)) {
        return exl2__runner_get_gpu(r, s, first, keep);
    }
#endif
    (void)keep;
    for (uint32_t i = 0; i < r->row_count; i++) {
        memcpy(d->residual + (size_t)i * d->hidden_stride, s->host + (first + i) * hidden, hidden * sizeof(float));
    }
    return EXL2_OK;
}

/* The other direction. */
EXL2__PRIVATE exl2_result exl2__runner_put(exl2__runner *r, const exl2__runner_states *s, uint64_t first)
{
    const exl2__cpu_device *d = exl2__runner_cpu(r);
    size_t hidden = d->shape.hidden;
#ifndef EXL2_NO_CUDA
    if (exl2__runner_on_gpu(r, UINT32_MAX, EXL2__RUNNER_QKV) && (s->gpu || r->residual_on_gpu)) {
        return exl2__runner_put_gpu(r, s, first);
    }
#endif
    for (uint32_t i = 0; i < r->row_count; i++) {
        memcpy(s->host + (first + i) * hidden, d->residual + (size_t)i * d->hidden_stride, hidden * sizeof(float));
    }
    return EXL2_OK;
}

#endif

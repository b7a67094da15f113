/* runner_place.h: which blocks of a pass run on a GPU, and how many sequences go together.
   takes: exl2__runner; no weights.
   gives: exl2__runner_can, exl2__runner_on_gpu, exl2__runner_fits, exl2__runner_together_on, exl2__runner_together.

   With a GPU, all phases run there, from the residual to the residual. Blocks with matrices whose inputs are no
   multiple of 32 stay on the CPU: the residual then moves where the next phase needs it. */
#ifndef EXL2__RUNNER_PLACE_H
#define EXL2__RUNNER_PLACE_H

#include "runner.h"

#define EXL2__RUNNER_GPU_TOKENS 4096u /* of a pass on a GPU, unless one sequence has more */

/* Can matrices that read an input of a layer, or of the head (layer UINT32_MAX), run on a GPU? Needs no weights. */
EXL2__PRIVATE bool exl2__runner_can(const exl2__runner *r, uint32_t layer, uint32_t input)
{
#ifndef EXL2_NO_CUDA
    const exl2__shape *s = &r->plan.shape;
    const exl2__config *config = &r->load.config;
    bool hidden = s->hidden % EXL2__CPU_STRIP == 0;
    if (layer == UINT32_MAX || !hidden) {
        return hidden;
    }
    bool attention = s->heads * s->head_dim % EXL2__CPU_STRIP == 0 && exl2__gpu_pass_attends(s);
    uint32_t sizes = exl2__unit_sparse(config, layer) ? s->experts.inter | s->experts.shared_inter : config->inter;
    bool mlp = sizes % EXL2__CPU_STRIP == 0; /* all of them */
    if (s->parallel) {
        return attention && mlp;
    }
    return input == EXL2__RUNNER_QKV || input == EXL2__RUNNER_OUT ? attention : mlp;
#else
    (void)r;
    (void)layer;
    (void)input;
    return false;
#endif
}

/* Do they? */
static inline bool exl2__runner_on_gpu(const exl2__runner *r, uint32_t layer, uint32_t input)
{
    return r->gpu && exl2__runner_can(r, layer, input);
}

/* Does all of a layer run on the GPU? */
static inline bool exl2__runner_fits(const exl2__runner *r, uint32_t layer)
{
    return exl2__runner_on_gpu(r, layer, EXL2__RUNNER_QKV) && exl2__runner_on_gpu(r, layer, EXL2__RUNNER_UP);
}

/* Sequences of `each` tokens that a pass can have, all of it on the GPU or not. */
static inline uint32_t exl2__runner_together_on(const exl2__runner *r, bool on_gpu, uint32_t each)
{
    uint32_t pages = (uint32_t)exl2__div_up(each, EXL2__PAGE_TOKENS);
    uint32_t count = on_gpu ? EXL2__RUNNER_GPU_TOKENS / each : exl2__min32(r->length / each, r->plan.pages / pages);
    return exl2__max32(count, 1);
}

/* The same of a pass through a layer; layer UINT32_MAX: one on the CPU. */
static inline uint32_t exl2__runner_together(const exl2__runner *r, uint32_t layer, uint32_t each)
{
    return exl2__runner_together_on(r, layer != UINT32_MAX && exl2__runner_fits(r, layer), each);
}

#endif

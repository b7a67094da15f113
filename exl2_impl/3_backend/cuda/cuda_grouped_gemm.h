/* cuda_grouped_gemm.h: enqueues the experts of a layer for many rows.
   takes: a model with a current pass; cuda_grouped_plan.h.
   gives: exl2__cuda_grouped_gemm. */
#ifndef EXL2__CUDA_GROUPED_GEMM_H
#define EXL2__CUDA_GROUPED_GEMM_H

#include "cuda_grouped_plan.h"
#include "cuda_meet.h"

#ifndef EXL2_NO_MOE

/* Enqueues all kernels. `e` holds everything but `partial`, which this function fills in. */
static inline exl2_result exl2__cuda_grouped_gemm(exl2__cuda_model *m, exl2__cuda_grouped *e)
{
    e->partial = m->b.gemm_partial;
    exl2__cuda_grouped_plan plan = exl2__cuda_grouped_plan_make(e, m->gpu->sm_count, m->limits.shared_bytes);
    if (plan.count == 0) {
        return exl2__cuda_too_few_shared(m);
    }
    for (uint32_t i = 0; i < plan.count; i++) {
        const exl2__cuda_grouped_launch *l = &plan.launch[i];
        EXL2__TRY(l->grid.x ? exl2__cuda_chain(m, l->kernel, l->grid, &l->args) : EXL2_OK);
        if (i == EXL2__CUDA_GROUPED_UP) {
            EXL2__TRY(exl2__cuda_meet_expert_h(m, offsetof(exl2__cuda_buffers, routed.grouped), plan.h,
                                               e->rows * e->active, plan.h_pitch));
        }
    }
    return EXL2_OK;
}

#endif
#endif

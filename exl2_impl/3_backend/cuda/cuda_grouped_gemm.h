/* cuda_grouped_gemm.h: enqueues the experts of a layer for many rows.
   takes: a model with a current pass; cuda_grouped_plan.h.
   gives: exl2__cuda_grouped_gemm. */
#ifndef EXL2__CUDA_GROUPED_GEMM_H
#define EXL2__CUDA_GROUPED_GEMM_H

#include "cuda_grouped_plan.h"
#include "cuda_product.h"

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
        EXL2__TRY(exl2__cuda_chain(m, plan.launch[i].kernel, plan.launch[i].grid, &plan.launch[i].args));
    }
    return EXL2_OK;
}

#endif
#endif

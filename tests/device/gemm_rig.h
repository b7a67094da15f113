/* gemm_rig.h: launches of products of many rows, as the CUDA backend makes them.
   takes: rig.h, product_rig.h; kernels gemm.cu, gemm_affine.cu.
   gives: gemm_scratch, gemm_prepare, gemm_run, gemm_order.
   owns:  gemm_scratch: device memory, until gemm_scratch_close. */
#ifndef GEMM_RIG_H
#define GEMM_RIG_H

#include "../../exl2_impl/3_backend/cuda/cuda_gemm.h"
#include "product_rig.h"

typedef struct gemm_scratch {
    rig_buffer partial, tickets;
} gemm_scratch;

static gemm_scratch gemm_scratch_open(uint64_t partial_bytes)
{
    static const uint32_t zeros[65536];
    gemm_scratch s = { rig_buffer_make(partial_bytes), rig_buffer_of(zeros, sizeof zeros) };
    return s;
}

static void gemm_scratch_close(gemm_scratch *s)
{
    rig_buffer_free(&s->partial);
    rig_buffer_free(&s->tickets);
}

/* Makes the plan and fills in the arguments that follow from it. */
static exl2__cuda_gemm_plan gemm_prepare(exl2k_gemm_args *a, const product_matrix *m, const gemm_scratch *s,
                                         uint32_t budget)
{
    a->matrix = m->device;
    a->partial = s->partial.address;
    a->tickets = s->tickets.address;
    exl2__cuda_gemm_plan plan = exl2__cuda_gemm_plan_make(a, m->chunk_bytes, (uint32_t)rig.sm_count, budget);
    if (plan.rows == 0 || plan.partial_bytes > s->partial.bytes || plan.tickets * 4 > s->tickets.bytes) {
        printf("no plan for %u rows, %u inputs, %u bytes of shared memory, or more scratch than there is\n", a->rows,
               a->matrix.rows, budget);
        exit(1);
    }
    return plan;
}

static void gemm_run(const rig_module *gemm, const exl2k_gemm_args *a, const exl2__cuda_gemm_plan *plan)
{
    const char *name = strcmp(gemm->name, "gemm_affine.cu") == 0 ? "exl2k_gemm_affine" : "exl2k_gemm";
    rig_launch(gemm, name, plan->ctas, 1, EXL2K_GEMM_THREADS, plan->shared_bytes, a, sizeof *a);
}

/* Permutes each row in place: element n moves to map[n]. */
static void gemm_order(const rig_module *gemm, uint64_t values, uint64_t map, uint32_t rows, uint32_t columns,
                       uint32_t pitch)
{
    exl2k_gemm_permute_args a = { .values = values, .map = map, .columns = columns, .pitch = pitch };
    rig_launch(gemm, "exl2k_gemm_permute", rows, 1, EXL2K_GEMM_THREADS, 2 * columns, &a, sizeof a);
}

#endif

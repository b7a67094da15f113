/* gemm_rig.h: launches of products of many rows, as the CUDA backend makes them.
   takes: rig.h, product_rig.h; kernels gemm.cu, gemm_affine.cu, gemm_wg.cu, gemm_wg32.cu.
   gives: gemm_scratch, gemm_prepare, gemm_run, gemm_order; with wgmma gemm_wg_prepare, gemm_wg_run, gemm_wg_order.
   owns:  gemm_scratch: device memory, until gemm_scratch_close. */
#ifndef GEMM_RIG_H
#define GEMM_RIG_H

#include "../../exl2_impl/3_backend/cuda/cuda_gemm_wg.h"
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

static void gemm_scratch_check(const gemm_scratch *s, const exl2__cuda_gemm_plan *plan)
{
    if (plan->rows == 0 || plan->partial_bytes > s->partial.bytes || plan->tickets * 4 > s->tickets.bytes) {
        printf("no plan for the product, or more scratch than there is\n");
        exit(1);
    }
}

/* Makes the plan and fills in the arguments that follow from it. */
static exl2__cuda_gemm_plan gemm_prepare(exl2k_gemm_args *a, const product_matrix *m, const gemm_scratch *s,
                                         uint32_t budget)
{
    a->matrix = m->device;
    a->partial = s->partial.address;
    a->tickets = s->tickets.address;
    exl2__cuda_gemm_plan plan = exl2__cuda_gemm_plan_make(a, m->chunk_bytes, (uint32_t)rig.sm_count, budget);
    gemm_scratch_check(s, &plan);
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

/* ---- products by wgmma, sm_90a ---- */

static inline exl2__cuda_gemm_plan gemm_wg_prepare(exl2k_gemm_args *a, const product_matrix *m, const gemm_scratch *s,
                                                   bool sampled)
{
    a->matrix = m->device;
    a->partial = s->partial.address;
    a->tickets = s->tickets.address;
    exl2__cuda_gemm_plan plan = exl2__cuda_wg_plan_make(a, (uint32_t)rig.sm_count, sampled);
    gemm_scratch_check(s, &plan);
    return plan;
}

/* wg: gemm_wg.cu, gemm_wg32.cu. */
static inline void gemm_wg_run(const rig_module wg[2], const exl2k_gemm_args *a, const exl2__cuda_gemm_plan *plan)
{
    static const char *const names[] = { "exl2k_gemm_wg64", "exl2k_gemm_wg128", "exl2k_gemm_wg256" };
    bool few = plan->rows == 32;
    rig_launch(&wg[few], few ? "exl2k_gemm_wg32" : names[plan->rows / 128], plan->ctas, 1, EXL2K_WG_THREADS,
               plan->shared_bytes, a, sizeof *a);
}

/* Writes rows as tiles; from_pitch 0: rows that the product has written as act(gate) * up. */
static inline void gemm_wg_order(const rig_module wg[2], uint64_t from, uint64_t to, uint64_t map, uint32_t rows,
                                 uint32_t columns, uint32_t from_pitch)
{
    exl2k_wg_order_args a = { .from = from, .to = to, .map = map, .columns = columns, .from_pitch = from_pitch,
                              .rows = exl2__cuda_wg_rows(rows) };
    rig_launch(&wg[0], "exl2k_wg_order", rows, 1, EXL2K_GEMM_THREADS, 2 * columns, &a, sizeof a);
}

#endif

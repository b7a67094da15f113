/* gemm_rig.h: launches of products of many rows, as the CUDA backend makes them.
   takes: rig.h, product_rig.h; kernels gemm.cu, gemm_affine.cu, gemm_wg*.cu.
   gives: product_is_affine, gemm_scratch, gemm_prepare, gemm_run; with wgmma gemm_wg_open, gemm_wg_close,
          gemm_wg_prepare, gemm_wg_run, gemm_wg_order.
   owns:  gemm_scratch: device memory, until gemm_scratch_close. */
#ifndef GEMM_RIG_H
#define GEMM_RIG_H

#include "private/cuda_gemm_wg.h"
#include "product_rig.h"

static inline bool product_is_affine(const product_matrix *m)
{
    return m->part[0].desc.kind == EXL2__MATRIX_AFFINE;
}

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

/* ---- products by wgmma, sm_90a ---- */

typedef struct gemm_wg {
    rig_module order, tiles[2][5]; /* [affine][rows of a tile / 64]; empty: there is no such kernel */
    rig_module roles[3];           /* [rows of a tile / 32]: 16, 32 or 64 rows of a prompt */
} gemm_wg;

/* affine: with the kernels for affine matrices. */
static inline gemm_wg gemm_wg_open(bool affine)
{
    gemm_wg wg = { .order = rig_load("gemm_wg_order.cu", NULL) };
    wg.tiles[0][0] = rig_load("gemm_wg32.cu", NULL);
    wg.tiles[0][1] = rig_load("gemm_wg64.cu", NULL);
    wg.tiles[0][2] = rig_load("gemm_wg128.cu", NULL);
    wg.tiles[0][4] = rig_load("gemm_wg256.cu", NULL);
    wg.roles[0] = rig_load("gemm_wg16_roles.cu", NULL);
    wg.roles[1] = rig_load("gemm_wg32_roles.cu", NULL);
    wg.roles[2] = rig_load("gemm_wg64_roles.cu", NULL);
    if (!affine) {
        return wg;
    }
    wg.tiles[1][0] = rig_load("gemm_wg32_affine.cu", NULL);
    wg.tiles[1][1] = rig_load("gemm_wg64_affine.cu", NULL);
    wg.tiles[1][2] = rig_load("gemm_wg128_affine.cu", NULL);
    wg.tiles[1][4] = rig_load("gemm_wg256_affine.cu", NULL);
    return wg;
}

static inline void gemm_wg_close(gemm_wg *wg)
{
    rig_unload(&wg->order);
    for (uint32_t i = 0; i < 3; i++) {
        rig_unload(&wg->roles[i]);
    }
    for (uint32_t i = 0; i < 10; i++) {
        if (wg->tiles[i / 5][i % 5].module) {
            rig_unload(&wg->tiles[i / 5][i % 5]);
        }
    }
}

/* A test may leave out clusters, and tiles that two CTAs compute. */
static bool gemm_wg_clusters = true, gemm_wg_cuts = true;
static uint32_t gemm_wg_sms; /* for how many SMs a plan is made; 0: as many as there are */

static inline exl2__cuda_gemm_plan gemm_wg_prepare(exl2k_gemm_args *a, const product_matrix *m, const gemm_scratch *s,
                                                   bool sampled)
{
    a->matrix = m->device;
    a->partial = s->partial.address;
    a->tickets = s->tickets.address;
    uint32_t variant = product_is_affine(m) ? 2 : 0, sms = gemm_wg_sms ? gemm_wg_sms : (uint32_t)rig.sm_count;
    exl2__cuda_gemm_plan plan = exl2__cuda_wg_plan_make(a, sms, sampled, variant);
    if (!sampled && a->rows <= EXL2__CUDA_WG_FEW_ROWS) {
        exl2__cuda_wg_plan_few(a, &plan, sms, variant);
    }
    if (!sampled && gemm_wg_clusters) {
        exl2__cuda_wg_plan_cluster(a, &plan, sms);
    }
    if (!sampled && gemm_wg_cuts) {
        exl2__cuda_wg_plan_cut(a, &plan, sms);
    }
    gemm_scratch_check(s, &plan);
    return plan;
}

static inline void gemm_wg_run(const gemm_wg *wg, const product_matrix *m, const exl2k_gemm_args *a,
                               const exl2__cuda_gemm_plan *plan)
{
    char name[40];
    bool affine = product_is_affine(m);
    const rig_module *module = &wg->tiles[affine][plan->rows / 64];
    uint32_t threads = EXL2K_WG_THREADS;
    snprintf(name, sizeof name, "exl2k_gemm_wg%u%s", plan->rows, affine ? "_affine" : plan->roles ? "_roles" : "");
    if (plan->roles) {
        module = &wg->roles[plan->rows / 32];
        threads = EXL2K_WG_ROLE_THREADS;
    }
    rig.cluster = plan->cluster;
    rig_launch(module, name, plan->ctas, 1, threads, plan->shared_bytes, a, sizeof *a);
    rig.cluster = 0;
}

/* Writes rows as tiles. */
static inline void gemm_wg_order(const gemm_wg *wg, uint64_t from, uint64_t to, uint64_t map, uint32_t rows,
                                 uint32_t columns, uint32_t from_pitch)
{
    exl2k_wg_order_args a = { .from = from, .to = to, .map = map, .columns = columns, .from_pitch = from_pitch,
                              .rows = exl2__cuda_wg_rows(rows) };
    rig_launch(&wg->order, "exl2k_wg_order", rows, 1, EXL2K_GEMM_THREADS, 2 * columns, &a, sizeof a);
}

#endif

/* cuda_product.h: launches of a pass: products with a matrix, for few rows (GEMV) and for many (GEMM); norms.
   takes: a model with a current pass.
   gives: exl2__cuda_chain, exl2__cuda_kind, exl2__cuda_folds, exl2__cuda_needs_any, exl2__cuda_split_part,
          exl2__cuda_product, exl2__cuda_product_next, exl2__cuda_may_wg, exl2__cuda_has_wg, exl2__cuda_tiles,
          exl2__cuda_gemm, exl2__cuda_norm, exl2__cuda_norm_all. */
#ifndef EXL2__CUDA_PRODUCT_H
#define EXL2__CUDA_PRODUCT_H

#include "../../../kernels_src/lora_wg_args.h"
#include "../../../kernels_src/norm_args.h"
#include "../../../kernels_src/settle_args.h"
#include "cuda_gemm_wg.h"
#include "cuda_pass.h"

/* Enqueues a kernel of the pass. It may start while the preceding kernel of the pass ends. */
EXL2__PRIVATE exl2_result exl2__cuda_chain(exl2__cuda_model *m, exl2__cuda_kernel kernel, exl2__cuda_grid grid,
                                           const void *arguments)
{
    grid.programmatic = m->pass.chained;
    m->pass.chained = true;
    return exl2__cuda_device_launch(m->gpu, kernel, grid, arguments);
}

/* ---- products ---- */

/* EXL2K_GEMV_WARPS chunks of 256 inputs. Tests use the kernels for large matrices in small models, too. */
#ifndef EXL2__CUDA_LARGE_HIDDEN
#define EXL2__CUDA_LARGE_HIDDEN 4096
#endif

/* As exl2k_gemv_args.kind. */
typedef enum exl2__cuda_kind {
    EXL2__CUDA_STORE = EXL2K_GEMV_STORE, EXL2__CUDA_RESIDUAL = EXL2K_GEMV_RESIDUAL, EXL2__CUDA_ACT = EXL2K_GEMV_ACT
} exl2__cuda_kind;

/* Whether norms are folded into products: each block has an RMSNorm before it, and no other norm. Products of EXL3
   matrices know no norms. */
static inline bool exl2__cuda_folds(const exl2__shape *s)
{
    return !s->exl3 && s->pre_norms && !s->post_norms && !s->layer_norm && !s->parallel;
}

/* Whether products need the kernels for any family, not those for Llama (gemv_args.h). */
static inline bool exl2__cuda_needs_any(const exl2__shape *s)
{
    bool scaled = s->residual_scale != 1 || s->logit_scale != 1 || s->final_softcap > 0;
    return scaled || !s->gated || s->act != EXL2__ACT_SILU || !exl2__cuda_folds(s) || exl2__experts_any(&s->experts);
}

/* Whether Llama's products use the kernels for large matrices (gemv_large.cuh): if each of the 16 warps of a CTA has a
   whole chunk of a strip. Smaller matrices have shorter chunks, and were 1 to 5 % slower by these kernels. */
static inline bool exl2__cuda_is_large(const exl2__cuda_device *gpu, const exl2__shape *s)
{
    return gpu->info.arch == 90 && s->hidden >= EXL2__CUDA_LARGE_HIDDEN && !s->affine;
}

/* As exl2k_gemv_args.act. */
static inline uint32_t exl2__cuda_act(const exl2__cuda_model *m)
{
    switch (m->plan->shape.act) {
    case EXL2__ACT_SILU:
        break;
    case EXL2__ACT_CLAMPED: return EXL2K_ACT_CLAMPED;
    case EXL2__ACT_GELU_TANH: return EXL2K_ACT_GELU_TANH;
    case EXL2__ACT_GELU: return EXL2K_ACT_GELU;
    case EXL2__ACT_RELU_SQUARED: return EXL2K_ACT_RELU_SQUARED;
    }
    return EXL2K_ACT_SILU;
}

static inline void exl2__cuda_advance(exl2k_u64 *address, uint64_t bytes)
{
    *address += *address ? bytes : 0;
}

/* Bytes of the sums of squares of `rows` rows. */
static inline uint64_t exl2__cuda_slots(uint32_t rows)
{
    return (uint64_t)rows * EXL2K_SLOTS_MAX * sizeof(float);
}

/* Advances the addresses in `a` by `rows` rows. */
EXL2__PRIVATE void exl2__cuda_product_next(exl2k_gemv_args *a, exl2__cuda_kind kind, uint32_t rows)
{
    uint64_t slots = exl2__cuda_slots(rows);
    bool half = kind == EXL2__CUDA_RESIDUAL || kind == EXL2__CUDA_ACT;
    exl2__cuda_advance(&a->x, (uint64_t)rows * a->x_pitch * 2);
    exl2__cuda_advance(&a->out, (uint64_t)rows * a->out_pitch * (half ? 2 : 4));
    exl2__cuda_advance(&a->residual, (uint64_t)rows * a->residual_pitch * 4);
    exl2__cuda_advance(&a->added, (uint64_t)rows * a->residual_pitch * 4);
    exl2__cuda_advance(&a->sums_now, slots);
    exl2__cuda_advance(&a->sums_before, slots);
    exl2__cuda_advance(&a->sums_out, slots);
}

EXL2__PRIVATE exl2_result exl2__cuda_too_few_shared(exl2__cuda_model *m)
{
    return exl2__fail(m->c, EXL2_ERR_UNSUPPORTED, "GPU %s: %u bytes of shared memory are too few for a matrix product",
                      m->gpu->info.name, m->limits.shared_bytes);
}

/* Address of the number of rows, for products of few rows that are captured for more rows than a pass may have; 0: all
   rows of the launch are computed. In a pass of many rows a product of few may begin after the last row of the pass. */
static inline uint64_t exl2__cuda_rows_at(const exl2__cuda_model *m)
{
    bool fewer = m->pass.captured && !m->pass.by_gemm;
    return fewer ? m->pass.groups + offsetof(exl2k_pass, row_count) : 0;
}

/* Whether products of the pass add what adapters add themselves (cuda_lora.h). */
static inline bool exl2__cuda_lora_fused(const exl2__cuda_model *m) { return m->pass.adapted && !m->pass.apart; }

/* Whether kernels of the pass add control vectors themselves. All products of few rows, or all launches of `settle`,
   are those that can, as another kernel in each layer would have to fetch its code anew: 2 us (H200). */
static inline bool exl2__cuda_steers_few(const exl2__cuda_model *m) { return m->pass.steered && !m->pass.by_gemm; }

/* Part `index` as a separate matrix. Its results keep their columns in the whole output. */
EXL2__PRIVATE exl2__cuda_matrix exl2__cuda_split_part(const exl2__cuda_matrix *matrix, uint32_t index)
{
    exl2__cuda_matrix one = *matrix;
    one.device.part[0] = matrix->device.part[index];
    one.device.parts = 1;
    one.device.interleaved = 0;
    one.device.strips = one.device.part[0].strips;
    exl2__cuda_matrix_firsts(&one.device);
    one.order = (exl2__cuda_order){ .inputs = { matrix->order.inputs[index] } };
    return one;
}

/* CTAs of a product with `strips` strips, or pairs of strips, on `sms` SMs. No CTA is launched without work. If a third
   of the SMs can be left to the next kernel, which starts there early, without more work for any CTA, it is left. */
static inline uint32_t exl2__cuda_ctas_on(uint32_t sms, uint32_t strips)
{
    uint32_t few = (uint32_t)exl2__div_up(strips, exl2__div_up(strips, sms));
    return 3 * few <= 2 * sms ? few : exl2__min32(sms, strips);
}

/* The same for a product of the pass. With adapters, SMs are left to the CTAs that compute t
   (kernels_src/gemv_lora.cuh), if no other CTA gets more work by it. */
static inline uint32_t exl2__cuda_product_ctas(const exl2__cuda_model *m, uint32_t strips)
{
    uint32_t all = m->limits.ctas, others = all > EXL2K_LORA_CTAS ? all - EXL2K_LORA_CTAS : all;
    bool leaves = exl2__cuda_lora_fused(m) && exl2__div_up(strips, others) == exl2__div_up(strips, all);
    return exl2__cuda_ctas_on(leaves ? others : all, strips);
}

/* CTAs of a product whose results are added to the residual; a row has as many sums of squares. */
static inline uint32_t exl2__cuda_residual_ctas(const exl2__cuda_model *m)
{
    return exl2__cuda_product_ctas(m, (uint32_t)exl2__align_up(m->plan->shape.hidden, 32) / 16);
}

/* Variant of the product kernels: 0 for Llama, 1 for any family, 2 for affine matrices of any family. */
static inline uint32_t exl2__cuda_variant(const exl2__cuda_model *m, const exl2__cuda_matrix *w)
{
    return w->affine ? 2 : exl2__cuda_needs_any(&m->plan->shape);
}

/* Whether 9 to 16 rows have a product of their own: for Llama, on sm_90, also with affine matrices but for passes with
   control vectors. Elsewhere two products of 8 rows do it. */
static inline bool exl2__cuda_has_sixteen(const exl2__cuda_model *m, uint32_t variant)
{
    bool affine = variant == 2 && !exl2__cuda_needs_any(&m->plan->shape) && !exl2__cuda_steers_few(m);
    return (variant == 0 || affine) && exl2__cuda_many_decode(m->plan) && m->gpu->info.arch == 90;
}

/* Rows of the tiles that products of this pass hand over to each other (gemv_args.h); 0: they hand over rows. Tiles lie
   over the padding of rows, so there are none where GEMM without wgmma reads that padding in other passes. */
EXL2__PRIVATE uint32_t exl2__cuda_tile_rows(const exl2__cuda_model *m)
{
    const exl2__shape *s = &m->plan->shape;
    uint32_t rows = m->pass.row_count;
    if (m->pass.by_gemm || !m->has_wg || !exl2__cuda_folds(s) || rows < 2) {
        return 0;
    }
    bool sixteen = exl2__cuda_has_sixteen(m, s->affine ? 2 : exl2__cuda_needs_any(s));
    return rows <= 8 ? 8 : rows <= 16 && sixteen ? 16 : 0;
}

/* Sets pitch and step of what one product of this pass writes and the next one reads, if these are tiles. */
EXL2__PRIVATE void exl2__cuda_tiled(const exl2__cuda_model *m, exl2k_u32 *pitch, exl2k_u32 *step)
{
    uint32_t rows = exl2__cuda_tile_rows(m);
    if (rows > 0) {
        *pitch = EXL2K_STEP / 2;
        *step = EXL2K_STEP * rows;
    }
}

/* Whether attention of this pass writes such tiles, too: unless several GPUs put its outputs in order. */
static inline bool exl2__cuda_attends_in_few_tiles(const exl2__cuda_model *m)
{
    return exl2__cuda_tile_rows(m) > 0 && !exl2__columns_are_cut(&m->plan->columns);
}

/* Fills in what `a` lacks but for rows and shared memory. */
EXL2__PRIVATE void exl2__cuda_product_fill(const exl2__cuda_model *m, const exl2__cuda_matrix *w, exl2__cuda_kind kind,
                                           exl2k_gemv_args *a)
{
    a->matrix = w->device;
    a->eps = m->plan->shape.norm_eps;
    a->inverse_hidden = 1.0f / (float)m->plan->shape.hidden;
    a->slots = exl2__cuda_residual_ctas(m);
    a->rows_at = exl2__cuda_rows_at(m);
    a->kind = kind;
    a->act = exl2__cuda_act(m);
    a->act_limit = m->plan->shape.act_limit;
}

/* Multiplies any number of rows, 16 or 8 at a time: a row has the same bits in each kernel. `a` holds all but the
   matrix, rows, activation and shared memory, and is changed. */
EXL2__PRIVATE exl2_result exl2__cuda_product(exl2__cuda_model *m, const exl2__matrix *matrix, exl2__cuda_kind kind,
                                             exl2k_gemv_args *a, uint32_t rows)
{
    const exl2__cuda_matrix *w = exl2__cuda_matrix_of(matrix);
    uint32_t variant = exl2__cuda_variant(m, w);
    exl2__cuda_product_fill(m, w, kind, a);
    uint32_t ctas = exl2__cuda_product_ctas(m, a->matrix.strips >> a->matrix.interleaved);
    static const exl2__cuda_kernel kernels[][2] = {
        { EXL2__KERNEL_exl2k_gemv1, EXL2__KERNEL_exl2k_gemv8 },
        { EXL2__KERNEL_exl2k_gemv1_any, EXL2__KERNEL_exl2k_gemv8_any },
        { EXL2__KERNEL_exl2k_gemv1_affine, EXL2__KERNEL_exl2k_gemv8_affine },
        { EXL2__KERNEL_exl2k_gemv1_large, EXL2__KERNEL_exl2k_gemv8_large },
    };
    static const exl2__cuda_kernel steering[][2] = {
        { EXL2__KERNEL_exl2k_gemv1_steer, EXL2__KERNEL_exl2k_gemv8_steer },
        { EXL2__KERNEL_exl2k_gemv1_any_steer, EXL2__KERNEL_exl2k_gemv8_any_steer },
        { EXL2__KERNEL_exl2k_gemv1_affine_steer, EXL2__KERNEL_exl2k_gemv8_affine_steer },
        { EXL2__KERNEL_exl2k_gemv1_large_steer, EXL2__KERNEL_exl2k_gemv8_large_steer },
    };
    uint32_t which = variant == 0 && exl2__cuda_is_large(m->gpu, &m->plan->shape) ? 3 : variant;
    bool steers = exl2__cuda_steers_few(m) && exl2__cuda_folds(&m->plan->shape); /* else `settle` adds them */
    const exl2__cuda_kernel *kernel = steers ? steering[which] : kernels[which];
    exl2__cuda_kernel sixteen = steers ? EXL2__KERNEL_exl2k_gemv16_steer : EXL2__KERNEL_exl2k_gemv16;
    sixteen = variant == 2 ? EXL2__KERNEL_exl2k_gemv16_affine : sixteen;
    for (uint32_t done = 0; done < rows; done += a->rows) {
        a->matrix = w->device; /* of rows before, it may have been changed */
        uint32_t left = rows - done, lanes = left == 1 ? 1 : left > 8 && exl2__cuda_has_sixteen(m, variant) ? 16 : 8;
        uint32_t shared = exl2__cuda_gemv_shared(a, w->chunk_bytes, lanes, ctas, m->limits.shared_bytes, 0, w->affine);
        if (shared == 0 && lanes == 16) { /* eight rows need less */
            lanes = 8;
            shared = exl2__cuda_gemv_shared(a, w->chunk_bytes, lanes, ctas, m->limits.shared_bytes, 0, w->affine);
        }
        if (shared == 0) {
            return exl2__cuda_too_few_shared(m);
        }
        exl2__cuda_kernel runs = lanes == 16 ? sixteen : kernel[lanes == 8];
        bool chains = kind == EXL2__CUDA_STORE && variant == 0 && (lanes == 16 || (lanes == 8 && which == 3));
        uint32_t count = chains ? w->chain_count : 0;
        uint32_t chained = exl2__cuda_gemv_chain(a, w->chain, count, lanes, m->limits.shared_bytes);
        if (chained > 0) {
            runs = lanes == 16 ? EXL2__KERNEL_exl2k_gemv16_head : EXL2__KERNEL_exl2k_gemv8_head;
            shared = chained;
        }
        a->rows = exl2__min32(left, lanes);
        a->before = done;
        exl2__cuda_grid grid = { .x = ctas, .y = 1, .threads = EXL2K_GEMV_THREADS, .shared_bytes = shared };
        EXL2__TRY(exl2__cuda_chain(m, runs, grid, a));
        exl2__cuda_product_next(a, kind, a->rows);
    }
    return EXL2_OK;
}

/* ---- products of many rows: GEMM ---- */

/* Whether the model's kernels of wgmma compute products with the matrix. */
static inline bool exl2__cuda_by_wg(const exl2__shape *s, const exl2__matrix *matrix)
{
    const exl2__cuda_matrix *w = exl2__cuda_matrix_of(matrix);
    return w->affine == s->affine && !w->order.apart && w->chunk_bytes <= EXL2K_WG_CHUNK_BYTES(w->affine)
           && exl2__cuda_wg_serves(&w->device);
}

/* Whether all products of many rows may run by wgmma, on sm_90a: those of Llama, and of families that have a gate, no
   experts, rows that `settle` can write as tiles, and with parallel blocks room in x2 for those of attention. */
static inline bool exl2__cuda_may_wg(const exl2__cuda_device *gpu, const exl2__shape *s)
{
    bool known = !s->affine && !s->exl3 && s->gated && (s->act == EXL2__ACT_SILU || s->act == EXL2__ACT_GELU_TANH)
                 && !exl2__experts_any(&s->experts);
    bool room = !s->parallel || exl2__shape_attended(s) <= s->hidden;
    room = exl2__cuda_folds(s) || (room && s->hidden <= EXL2K_SETTLE_STAGED);
    return gpu->info.arch == 90 && gpu->shared_bytes >= EXL2K_WG_SHARED(256, s->affine)
           && (!exl2__cuda_needs_any(s) || (known && room));
}

/* Whether all products of many rows run by wgmma: exl2__cuda_may_wg, and the kernels compute with every matrix of the
   model's layers. Layers of other spans count, too, so that the bits of a layer do not depend on where a model is cut.
   */
EXL2__PRIVATE bool exl2__cuda_has_wg(const exl2__cuda_model *m, const exl2__plan *p)
{
    bool has = exl2__cuda_may_wg(m->gpu, &p->shape);
    for (uint32_t i = 0; i < p->shape.layers && has; i++) {
        const exl2__layer *layer = &p->layers[i];
        const exl2__matrix *matrices[] = { layer->matrix[EXL2__ROLE_QKV], layer->matrix[EXL2__ROLE_OUT],
                                           layer->matrix[EXL2__ROLE_GATE_UP], layer->matrix[EXL2__ROLE_DOWN] };
        for (uint32_t k = 0; k < EXL2__COUNT(matrices); k++) {
            has = has && (!matrices[k] || exl2__cuda_by_wg(&p->shape, matrices[k])); /* NULL: the host has it */
        }
    }
    return has;
}

/* Copies the outputs of attention, for all rows of the pass, to tiles in the order of `out`. */
EXL2__PRIVATE exl2_result exl2__cuda_tiles(exl2__cuda_model *m, uint64_t to, const exl2__matrix *out)
{
    const exl2__cuda_matrix *w = exl2__cuda_matrix_of(out);
    exl2k_wg_order_args a = { .from = m->b.attended, .to = to, .map = exl2__cuda_inputs(out), .columns = w->in,
                              .from_pitch = m->b.attended_pitch, .rows = exl2__cuda_wg_rows(m->pass.row_count) };
    exl2__cuda_grid grid = { .x = m->pass.row_count, .y = 1, .shared_bytes = 2 * a.columns };
    grid.threads = grid.x <= m->gpu->sm_count ? EXL2K_WG_ORDER_THREADS : EXL2K_GEMM_THREADS; /* one CTA on an SM */
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_wg_order, grid, &a);
}

/* Columns of tiles of the whole matrix, of which the device may have a part. */
EXL2__PRIVATE uint32_t exl2__cuda_whole_tiles(const exl2__cuda_matrix *w, const exl2k_gemm_args *a, bool by_wg)
{
    exl2k_gemm_args whole = { .kind = a->kind, .matrix = { .parts = w->device.parts } };
    for (uint32_t i = 0; i < w->device.parts; i++) {
        whole.matrix.part[i].strips = w->cut[i].whole;
    }
    return by_wg ? exl2__cuda_wg_columns(&whole) : exl2__cuda_gemm_columns(&whole);
}

/* The product by wgmma that `a` describes, and what adapters add to it, unless loras is NULL. */
EXL2__PRIVATE exl2_result exl2__cuda_gemm_wg(exl2__cuda_model *m, const exl2__cuda_matrix *w, exl2k_gemm_args *a,
                                             const exl2k_lora_wg_args *loras)
{
    static const exl2__cuda_kernel by_rows[3][5] = { /* [variant][rows of a tile / 64] */
        { EXL2__KERNEL_exl2k_gemm_wg32, EXL2__KERNEL_exl2k_gemm_wg64, EXL2__KERNEL_exl2k_gemm_wg128, 0,
          EXL2__KERNEL_exl2k_gemm_wg256 },
        { 0, EXL2__KERNEL_exl2k_gemm_wg64_any, EXL2__KERNEL_exl2k_gemm_wg128_any, 0,
          EXL2__KERNEL_exl2k_gemm_wg256_any },
        { EXL2__KERNEL_exl2k_gemm_wg32_affine, EXL2__KERNEL_exl2k_gemm_wg64_affine,
          EXL2__KERNEL_exl2k_gemm_wg128_affine, 0, EXL2__KERNEL_exl2k_gemm_wg256_affine }
    };
    static const exl2__cuda_kernel adapted[3][5] = {
        { 0, EXL2__KERNEL_exl2k_gemm_wg64_lora, EXL2__KERNEL_exl2k_gemm_wg128_lora, 0,
          EXL2__KERNEL_exl2k_gemm_wg256_lora },
        { 0, EXL2__KERNEL_exl2k_gemm_wg64_any_lora, EXL2__KERNEL_exl2k_gemm_wg128_any_lora, 0,
          EXL2__KERNEL_exl2k_gemm_wg256_any_lora },
        { 0, EXL2__KERNEL_exl2k_gemm_wg64_affine_lora, EXL2__KERNEL_exl2k_gemm_wg128_affine_lora, 0,
          EXL2__KERNEL_exl2k_gemm_wg256_affine_lora }
    };
    static const exl2__cuda_kernel roles[] = { /* [rows of a tile / 32] */
        EXL2__KERNEL_exl2k_gemm_wg16_roles, EXL2__KERNEL_exl2k_gemm_wg32_roles, EXL2__KERNEL_exl2k_gemm_wg64_roles
    };
    uint32_t variant = exl2__cuda_variant(m, w), sms = m->gpu->sm_count;
    bool cut = exl2__columns_are_cut(&m->columns), sampled = !m->pass.prompts;
    exl2__cuda_gemm_plan plan = cut ? exl2__cuda_wg_plan_part(a, sms, sampled, variant,
                                                              exl2__cuda_whole_tiles(w, a, true))
                                    : exl2__cuda_wg_plan_make(a, sms, sampled, variant);
    if (!loras && !sampled && a->rows <= EXL2__CUDA_WG_FEW_ROWS) {
        exl2__cuda_wg_plan_few(a, &plan, sms, variant);
    }
    if (!sampled && !loras) {
        exl2__cuda_wg_plan_cluster(a, &plan, sms);
        exl2__cuda_wg_plan_cut(a, &plan, sms);
    }
    exl2__cuda_grid grid = { .x = plan.ctas, .y = 1, .threads = EXL2K_WG_THREADS, .shared_bytes = plan.shared_bytes,
                             .cluster = plan.cluster };
    if (plan.roles) {
        grid.threads = EXL2K_WG_ROLE_THREADS;
        return exl2__cuda_chain(m, roles[plan.rows / 32], grid, a);
    }
    if (loras) {
        exl2k_gemm_lora_args both = { *a, *loras };
        return exl2__cuda_chain(m, adapted[variant][plan.rows / 64], grid, &both);
    }
    return exl2__cuda_chain(m, by_rows[variant][plan.rows / 64], grid, a);
}

/* Multiplies `rows` rows. `a` holds x, out and scale (gemm_args.h); this function fills in the rest. Sums of splits lie
   where logits are, so the head has no splits. loras: what adapters add to products by wgmma, or NULL. */
EXL2__PRIVATE exl2_result exl2__cuda_gemm(exl2__cuda_model *m, const exl2__matrix *matrix, exl2__cuda_kind kind,
                                          exl2k_gemm_args *a, uint32_t rows, const exl2k_lora_wg_args *loras)
{
    const exl2__cuda_matrix *w = exl2__cuda_matrix_of(matrix);
    a->matrix = w->device;
    a->rows = rows;
    a->kind = kind == EXL2__CUDA_ACT ? EXL2K_GEMM_ACT : kind == EXL2__CUDA_RESIDUAL ? EXL2K_GEMM_RESIDUAL
                                                                                    : EXL2K_GEMM_STORE;
    a->act = exl2__cuda_act(m);
    a->act_limit = m->plan->shape.act_limit;
    a->partial = a->out == m->b.logits ? 0 : m->b.gemm_partial;
    a->tickets = m->b.gemm_tickets;
    if (m->pass.by_wg) {
        return exl2__cuda_gemm_wg(m, w, a, loras);
    }
    EXL2__ASSERT(!loras);
    uint32_t sms = m->gpu->sm_count, budget = m->limits.shared_bytes;
    exl2__cuda_gemm_plan plan = exl2__columns_are_cut(&m->columns)
        ? exl2__cuda_gemm_plan_part(a, w->chunk_bytes, sms, budget, exl2__cuda_whole_tiles(w, a, false))
        : exl2__cuda_gemm_plan_make(a, w->chunk_bytes, sms, budget);
    if (plan.rows == 0) {
        return exl2__cuda_too_few_shared(m);
    }
    exl2__cuda_grid grid = { .x = plan.ctas, .y = 1, .threads = EXL2K_GEMM_THREADS, .shared_bytes = plan.shared_bytes };
    static const exl2__cuda_kernel kernels[] = { EXL2__KERNEL_exl2k_gemm, EXL2__KERNEL_exl2k_gemm_any,
                                                 EXL2__KERNEL_exl2k_gemm_affine };
    return exl2__cuda_chain(m, kernels[exl2__cuda_variant(m, w)], grid, a);
}

/* Writes rows of the residual after RMSNorm, as inputs of `reader`. */
EXL2__PRIVATE exl2_result exl2__cuda_norm(exl2__cuda_model *m, exl2k_norm_args a, uint32_t rows,
                                          const exl2__vector *weight, const exl2__matrix *reader)
{
    exl2__cuda_grid grid = { .x = rows, .y = 1, .threads = EXL2K_NORM_THREADS };
    a.residual = m->b.residual;
    a.weight = exl2__cuda_values(weight);
    a.map = exl2__cuda_inputs(reader);
    a.hidden = a.residual_pitch = m->plan->shape.hidden;
    a.out_pitch = m->b.x_pitch;
    a.eps = m->plan->shape.norm_eps;
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_norm, grid, &a);
}

/* Normalises all rows; nothing to do if norms are not folded, because `settle` has done it. */
EXL2__PRIVATE exl2_result exl2__cuda_norm_all(exl2__cuda_model *m, const exl2__vector *weight,
                                              const exl2__matrix *reader)
{
    if (!exl2__cuda_folds(&m->plan->shape)) {
        return EXL2_OK;
    }
    exl2k_norm_args a = { .rows_at = m->pass.groups + offsetof(exl2k_pass, row_count), .out = m->b.x,
                          .tile_rows = m->pass.by_wg ? exl2__cuda_wg_rows(m->pass.row_count) : 0 };
    return exl2__cuda_norm(m, a, m->pass.row_count, weight, reader);
}

#endif

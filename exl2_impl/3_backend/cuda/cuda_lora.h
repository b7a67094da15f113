/* cuda_lora.h: what adapters add to products on the GPU, and their memory.
   takes: a model with a current pass that has rows with adapters; operands (phases.h).
   gives: exl2__cuda_lora_serves, exl2__cuda_lora_product; exl2__cuda_multiply_many; exl2__cuda_lora_needs,
          exl2__cuda_lora_many; exl2__cuda_loras.
   owns:  the blocks of adapters, until `close`.

   Rows with adapters have passes of their own, so adapters change nothing in passes without them. Rows of sampled
   tokens, at most EXL2__CUDA_LORA_ROWS in a pass, run by the products of few rows. Such a product computes what
   adapters add in its own launch (kernels_src/gemv_lora.cuh), whether its matrix has adapters or not: which adapters a
   pass has, and what they add to, is data in device memory. So captured graphs serve all adapters. If none of the
   pass's adapters adds to anything but q, k and v, as is usual, the other products of the pass add nothing: such
   passes (`narrow`) have graphs of their own. A row has the same bits in both kinds: products have the same CTAs.

   Rows of prompts run by GEMM. t = factor A x is a kernel before the base's product. By wgmma the product adds B t to
   its sums (kernels_src/gemm_wg_lora.cuh), so nothing else is stored. Without wgmma B t is added after the product,
   and gate and up, whose product applies the activation, are stored without it (kernels_src/lora_rows.cu). B t is also
   added after the product, for any rows, in models with EXL3 matrices, where A multiplies x before signs and
   transform, and for rows of prompts where the parts of a matrix order their inputs differently (cuda_multiply.h).

   Adapters of routers and of experts by number add to what the router, and the experts' kernels of few rows, compute
   (cuda_experts.h). Their passes are enqueued kernel by kernel, so that no other pass has these launches, and their
   prompts go through the experts in slices. */
#ifndef EXL2__CUDA_LORA_H
#define EXL2__CUDA_LORA_H

#include "cuda_product.h"

/* Whether exl2__cuda_multiply adds what adapters add to the operand in this pass: not to the head, routers, experts. */
static inline bool exl2__cuda_lora_serves(const exl2__cuda_model *m, exl2__operand of)
{
    return m->pass.adapted && of.layer && of.role < EXL2__ROLE_ROUTER;
}

/* Epochs of a pass: a power of two above the number of its products. */
static inline uint32_t exl2__cuda_lora_epochs(const exl2__plan *p)
{
    uint32_t epochs = 1;
    while (epochs <= p->shape.layers * EXL2__LORA_PARTS) {
        epochs *= 2;
    }
    return epochs;
}

/* Multiplies `rows` rows, and adds what their adapters add. `a` as in exl2__cuda_product. part: of the operand, that is
   the first one of the matrix. x: the rows that A reads, as a->x has them, in their own order. */
EXL2__PRIVATE exl2_result exl2__cuda_lora_product(exl2__cuda_model *m, exl2__operand of, uint32_t part, uint64_t x,
                                                  exl2__cuda_kind kind, exl2k_gemv_args *a, uint32_t rows)
{
    static const exl2__cuda_kernel kernels[][2] = {
        { EXL2__KERNEL_exl2k_gemv1_large_lora, EXL2__KERNEL_exl2k_gemv8_large_lora },
        { EXL2__KERNEL_exl2k_gemv1_any_lora, EXL2__KERNEL_exl2k_gemv8_any_lora },
        { EXL2__KERNEL_exl2k_gemv1_affine_lora, EXL2__KERNEL_exl2k_gemv8_affine_lora }
    };
    const exl2__cuda_matrix *w = exl2__cuda_matrix_of(of.matrix);
    const exl2__plan *p = m->plan;
    bool large = !exl2__cuda_needs_any(&p->shape) && exl2__cuda_is_large(m->gpu, &p->shape);
    const exl2__cuda_kernel *kernel = kernels[w->affine ? 2 : !large];
    uint32_t place = exl2__role_lora_place(of.role, of.expert, part);
    exl2k_lora_gemv_args l = {
        .pass = m->pass.loras, .tables = m->b.lora_tables, .t = m->b.lora_t, .turn = m->b.lora_turn, .in = w->in,
        .slots = p->lora_max, .table = exl2__cuda_lora_table(p),
        .parts_inverse = 65536 / w->device.parts + 1,
        .place = of.layer->index * exl2__lora_places(p->shape.experts.count) + place,
        .rank_stride = exl2__cuda_lora_rank_stride(p), .epochs = exl2__cuda_lora_epochs(p),
        .epoch = 1 + of.layer->index * EXL2__LORA_PARTS + place
    };
    exl2__cuda_product_fill(m, w, kind, a);
    a->matrix.adapted = !m->pass.narrow || of.role == EXL2__ROLE_QKV;
    a->ctas_before = a->matrix.adapted * EXL2K_LORA_CTAS;
    uint32_t ctas = exl2__cuda_product_ctas(m, a->matrix.strips >> a->matrix.interleaved);
    uint32_t slots = a->matrix.adapted ? l.slots : 0;
    EXL2__ASSERT(rows <= EXL2__CUDA_LORA_ROWS);
    for (uint32_t done = 0; done < rows; done += a->rows) {
        uint32_t lanes = rows == 1 ? 1 : 8, budget = m->limits.shared_bytes;
        uint32_t shared = exl2__cuda_gemv_shared(a, w->chunk_bytes, lanes, ctas, budget, slots, w->affine);
        if (shared == 0 && lanes == 8) { /* one row needs less */
            lanes = 1;
            shared = exl2__cuda_gemv_shared(a, w->chunk_bytes, lanes, ctas, budget, slots, w->affine);
        }
        if (shared == 0) {
            return exl2__cuda_too_few_shared(m);
        }
        a->rows = exl2__min32(rows - done, lanes);
        a->before = l.row = done;
        l.x = x + (uint64_t)done * a->x_pitch * sizeof(uint16_t);
        l.gemv = *a;
        exl2__cuda_grid grid = { .x = ctas + a->ctas_before, .y = 1, .threads = EXL2K_GEMV_THREADS,
                                 .shared_bytes = shared };
        EXL2__TRY(exl2__cuda_chain(m, kernel[lanes == 8], grid, &l));
        exl2__cuda_product_next(a, kind, a->rows);
    }
    return EXL2_OK;
}

/* ---- products of many rows ---- */

/* GEMM of what `a` says: it adds to the residual itself, and its `h` may be tiles. loras as in exl2__cuda_gemm. */
EXL2__PRIVATE exl2_result exl2__cuda_multiply_many(exl2__cuda_model *m, const exl2__matrix *matrix,
                                                   exl2__cuda_kind kind, const exl2k_gemv_args *a, uint32_t rows,
                                                   const exl2k_lora_wg_args *loras)
{
    exl2k_gemm_args gemm = { .x = a->x, .x_pitch = a->x_pitch, .out = a->out, .out_pitch = a->out_pitch,
                             .scale = a->scale };
    if (kind == EXL2__CUDA_RESIDUAL) {
        gemm.out = a->residual;
        gemm.out_pitch = a->residual_pitch;
    } else if (kind == EXL2__CUDA_ACT && m->pass.by_wg) {
        gemm.out_pitch = exl2__cuda_wg_rows(m->pass.row_count);
    }
    return exl2__cuda_gemm(m, matrix, kind, &gemm, rows, loras);
}

/* Parts of a matrix of any kind. */
static inline uint32_t exl2__cuda_lora_parts(const exl2__cuda_matrix *w)
{
    uint32_t parts = 0;
    while (parts < EXL2K_PARTS_MAX && w->feed[parts].out) {
        parts++;
    }
    return parts;
}

/* Whether an adapter of the pass adds something to the operand. A captured pass may have any. */
EXL2__PRIVATE bool exl2__cuda_lora_needs(const exl2__cuda_model *m, exl2__operand of)
{
    bool needs = m->pass.captured;
    uint32_t parts = exl2__cuda_lora_parts(exl2__cuda_matrix_of(of.matrix));
    if (needs) {
        return true;
    }
    for (uint32_t s = 0; s < m->step->lora_set_count; s++) {
        const exl2__lora_set *set = &m->step->lora_sets[s];
        for (uint32_t u = 0; u < set->count * parts; u++) {
            needs = needs || exl2__operand_lora(set->uses[u / parts].store, of, u % parts)->rank > 0;
        }
    }
    return needs;
}

EXL2__PRIVATE exl2k_lora_rows_args exl2__cuda_lora_rows_args(const exl2__cuda_model *m, exl2__operand of,
                                                             const exl2k_gemv_args *a, uint32_t rows)
{
    const exl2__plan *p = m->plan;
    const exl2__cuda_matrix *w = exl2__cuda_matrix_of(of.matrix);
    exl2k_lora_rows_args l = {
        .row_sets = m->pass.row_sets, .sets = m->pass.sets, .tables = m->b.lora_tables, .t = m->b.lora_rows_t,
        .x = a->x, .out = a->out, .rows = rows, .table = exl2__cuda_lora_table(p), .parts = exl2__cuda_lora_parts(w),
        .place = of.layer->index * exl2__lora_places(p->shape.experts.count)
               + exl2__role_lora_place(of.role, of.expert, 0),
        .in = w->in, .uses = exl2__cuda_lora_uses(p), .rank_stride = exl2__cuda_lora_rank_stride(p),
        .x_pitch = a->x_pitch, .out_pitch = a->out_pitch, .scale = a->scale, .act = exl2__cuda_act(m),
        .act_limit = p->shape.act_limit
    };
    for (uint32_t i = 0; i < l.parts; i++) {
        l.columns[i] = w->feed[i].out;
        l.column[i] = i ? l.column[i - 1] + l.columns[i - 1] : l.parts == 1 ? w->cut[0].first : 0;
    }
    return l;
}

/* Columns and rows of the grid that computes B t of `rows` rows. */
EXL2__PRIVATE exl2__cuda_grid exl2__cuda_lora_rows_grid(const exl2k_lora_rows_args *l, uint32_t parts, uint32_t rows)
{
    uint32_t columns = exl2__max32(l->columns[0], exl2__max32(l->columns[1], l->columns[2]));
    return (exl2__cuda_grid){ .x = (uint32_t)exl2__div_up(columns, 2 * EXL2K_LORA_ROWS_THREADS), .y = parts,
                              .z = (uint32_t)exl2__div_up(rows, EXL2K_LORA_ROWS_OUT),
                              .threads = EXL2K_LORA_ROWS_THREADS };
}

/* Gate and up are stored without activation, for some rows at a time; B t and the activation follow. */
EXL2__PRIVATE exl2_result exl2__cuda_lora_act(exl2__cuda_model *m, exl2__operand of, const exl2k_gemv_args *a,
                                              exl2k_lora_rows_args l, uint32_t rows)
{
    const exl2__cuda_matrix *w = exl2__cuda_matrix_of(of.matrix);
    l.from = m->b.lora_act;
    for (; l.row0 < rows; l.row0 = l.rows) {
        uint32_t some = exl2__min32(rows - l.row0, EXL2__CUDA_LORA_ACT_ROWS);
        l.rows = l.row0 + some;
        for (uint32_t i = 0; i < l.parts; i++) {
            exl2__cuda_matrix one = exl2__cuda_split_part(w, i);
            one.device.part[0].column = i * l.columns[0];
            exl2k_gemm_args store = { .x = a->x + (uint64_t)l.row0 * a->x_pitch * 2, .x_pitch = a->x_pitch,
                                      .out = l.from, .out_pitch = l.parts * l.columns[0], .scale = 1 };
            EXL2__TRY(exl2__cuda_gemm(m, (const exl2__matrix *)(const void *)&one, EXL2__CUDA_STORE, &store, some,
                                      NULL));
        }
        EXL2__TRY(exl2__cuda_chain(m, EXL2__KERNEL_exl2k_lora_rows_act, exl2__cuda_lora_rows_grid(&l, 1, some), &l));
    }
    return EXL2_OK;
}

/* t of all rows, before the product. */
EXL2__PRIVATE exl2_result exl2__cuda_lora_rows_t(exl2__cuda_model *m, const exl2k_lora_rows_args *l)
{
    exl2__cuda_grid grid = { .x = (uint32_t)exl2__div_up(l->rows, EXL2K_LORA_ROWS_T), .y = l->parts,
                             .threads = EXL2K_LORA_ROWS_THREADS };
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_lora_rows_t, grid, l);
}

/* Adds B t to what the product has stored, or to the residual. */
EXL2__PRIVATE exl2_result exl2__cuda_lora_rows_add(exl2__cuda_model *m, exl2__cuda_kind kind, const exl2k_gemv_args *a,
                                                   exl2k_lora_rows_args l)
{
    if (kind == EXL2__CUDA_RESIDUAL) {
        l.out = a->residual;
        l.out_pitch = a->residual_pitch;
    }
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_lora_rows_add, exl2__cuda_lora_rows_grid(&l, l.parts, l.rows), &l);
}

/* t of all rows, and the product by wgmma that adds B t to its sums. */
EXL2__PRIVATE exl2_result exl2__cuda_lora_wg(exl2__cuda_model *m, exl2__operand of, exl2__cuda_kind kind,
                                             const exl2k_gemv_args *a, uint32_t rows)
{
    static const exl2__cuda_kernel kernels[] = { EXL2__KERNEL_exl2k_lora_wg_t16, EXL2__KERNEL_exl2k_lora_wg_t32,
                                                 EXL2__KERNEL_exl2k_lora_wg_t64 };
    const exl2__plan *p = m->plan;
    const exl2__cuda_matrix *w = exl2__cuda_matrix_of(of.matrix);
    exl2k_lora_wg_args l = {
        .row_sets = m->pass.row_sets, .sets = m->pass.sets, .tables = m->b.lora_tables, .t = m->b.lora_rows_t,
        .zeros = m->b.lora_zeros, .x = a->x, .rows = rows, .tile_rows = exl2__cuda_wg_rows(rows),
        .table = exl2__cuda_lora_table(p), .parts = exl2__cuda_lora_parts(w),
        .place = of.layer->index * exl2__lora_places(p->shape.experts.count)
               + exl2__role_lora_place(of.role, of.expert, 0),
        .in = w->in, .blocks = exl2__cuda_lora_blocks(p)
    };
    uint32_t some = 0; /* as few rows of a cluster as still leave an SM for each CTA */
    while (some < 2 && exl2__div_up(rows, 16u << some) * EXL2K_LORA_WG_CLUSTER > m->gpu->sm_count) {
        some++;
    }
    exl2__cuda_grid grid = { .x = EXL2K_LORA_WG_CLUSTER, .y = (uint32_t)exl2__div_up(rows, 16u << some),
                             .threads = EXL2K_LORA_WG_THREADS };
    EXL2__TRY(exl2__cuda_chain(m, kernels[some], grid, &l));
    return exl2__cuda_multiply_many(m, of.matrix, kind, a, rows, &l);
}

/* Multiplies rows of prompts, and adds what their adapters add. `a` as in exl2__cuda_multiply. */
EXL2__PRIVATE exl2_result exl2__cuda_lora_many(exl2__cuda_model *m, exl2__operand of, exl2__cuda_kind kind,
                                               const exl2k_gemv_args *a, uint32_t rows)
{
    if (m->pass.by_wg) {
        return exl2__cuda_lora_wg(m, of, kind, a, rows);
    }
    exl2k_lora_rows_args l = exl2__cuda_lora_rows_args(m, of, a, rows);
    EXL2__TRY(exl2__cuda_lora_rows_t(m, &l));
    if (kind == EXL2__CUDA_ACT) {
        return exl2__cuda_lora_act(m, of, a, l, rows);
    }
    EXL2__TRY(exl2__cuda_multiply_many(m, of.matrix, kind, a, rows, NULL));
    return exl2__cuda_lora_rows_add(m, kind, a, l);
}

/* ---- memory ---- */

EXL2__PRIVATE exl2_result exl2__cuda_lora_open(exl2__device *device, uint64_t bytes, uint64_t *block)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    *block = 0;
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_device_alloc(m->gpu, bytes, EXL2_MEM_WEIGHTS, block));
}

/* Waits before it frees the block: passes that were dropped may still run. */
EXL2__PRIVATE void exl2__cuda_lora_close(exl2__device *device, uint64_t block, uint64_t bytes)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    bool entered = m->gpu->driver.context_push(m->gpu->context) == 0;
    m->gpu->driver.stream_wait(m->gpu->stream);
    exl2__cuda_device_free(m->gpu, block, bytes, EXL2_MEM_WEIGHTS);
    if (entered) {
        exl2__cuda_device_leave(m->gpu);
    }
}

EXL2__PRIVATE exl2_result exl2__cuda_lora_write(exl2__device *device, uint64_t at, const void *data, uint64_t bytes)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_upload(m, at, data, bytes));
}

#ifndef EXL2_NO_MOE
/* exl2__cuda_lora_order for an expert, or for a router, whose adapters read the rows of the experts. Rows are in the
   order of the file if the experts have several orders, or are of EXL3. */
EXL2__PRIVATE void exl2__cuda_lora_order_expert(const exl2__cuda_model *m, exl2__operand of, uint32_t *in_at,
                                                uint32_t *out_at)
{
    const exl2__cuda_experts *e = exl2__cuda_experts_of(of.layer);
    uint32_t inter = m->plan->shape.experts.inter, hidden = m->plan->shape.hidden;
    bool up = of.role == EXL2__ROLE_EXPERT_UP, inner = up || of.role == EXL2__ROLE_EXPERT_DOWN;
    const uint16_t *down = inner && e->downs ? e->downs + (size_t)of.expert * inter : NULL;
    for (uint32_t i = 0; down && i < inter; i++) {
        (up ? out_at : in_at)[i] = down[i];
    }
    for (uint32_t i = 0; (up || !inner) && e->first && !e->order.apart && i < hidden; i++) {
        in_at[i] = e->first[i];
    }
}
#endif

/* A's columns lie in the order of x of its matrix (cuda_order.h), rows of B of gate and up in that of `down`. */
EXL2__PRIVATE exl2_result exl2__cuda_lora_order(const exl2__device *device, exl2__operand of, uint32_t part,
                                                uint32_t *in_at, uint32_t *out_at)
{
    (void)device, (void)part;
    bool expert = of.role >= EXL2__ROLE_SINGLES;
#ifndef EXL2_NO_MOE
    if (expert || of.role == EXL2__ROLE_ROUTER) {
        exl2__cuda_lora_order_expert(exl2__cuda_of(device), of, in_at, out_at);
        return EXL2_OK;
    }
#endif
    const exl2__cuda_matrix *w = exl2__cuda_matrix_of(of.matrix);
    if (expert || w->exl3.parts > 0 || w->alone[0]) {
        return EXL2_OK; /* inputs and outputs are in the order of the file */
    }
    for (uint32_t i = 0; w->order_host && !w->natural && !w->order.apart && i < w->in; i++) {
        in_at[i] = w->order_host[i];
    }
    const exl2__matrix *down = of.layer->matrix[EXL2__ROLE_DOWN];
    const exl2__cuda_matrix *reader = w->order.by_down ? exl2__cuda_matrix_of(down) : NULL;
    const uint16_t *outputs = reader && !reader->natural ? reader->order_host : NULL;
    for (uint32_t i = 0; outputs && i < w->cut[0].all; i++) {
        out_at[i] = outputs[i];
    }
    return EXL2_OK;
}

static const exl2__backend_loras exl2__cuda_loras = {
    .rows = EXL2__CUDA_LORA_ROWS, .open = exl2__cuda_lora_open, .close = exl2__cuda_lora_close,
    .write = exl2__cuda_lora_write, .order = exl2__cuda_lora_order,
};

#endif

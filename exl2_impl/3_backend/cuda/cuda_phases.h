/* cuda_phases.h: every phase of a pass: which kernels it launches, with which arguments.
   takes: a model with a current pass.
   gives: exl2__cuda_do.

   A phase only enqueues kernels. In passes of few rows, norms are part of the products around them: a product writes
   residual * weight * rho, where rho is that of the previous norm, and the next product multiplies its outputs by the
   missing factor rho_now / rho_before (gemv_args.h). Passes of many rows run norms as separate kernels before GEMM.
   Models with other norms, or with parallel blocks, run `settle` between their blocks instead (cuda_settle.h). */
#ifndef EXL2__CUDA_PHASES_H
#define EXL2__CUDA_PHASES_H

#include "../../../kernels_src/copy_args.h"
#include "cuda_attend.h"
#include "cuda_cross.h"
#include "cuda_experts.h"
#include "cuda_multiply.h"

/* ---- results of blocks ---- */

/* The result of a block whose norms are not folded: r += x * matrix; with a norm after it branch = x * matrix. */
EXL2__PRIVATE exl2_result exl2__cuda_block(exl2__cuda_model *m, exl2__operand of, uint64_t x, uint32_t x_pitch)
{
    const exl2__shape *s = &m->plan->shape;
    exl2k_gemv_args a = { .x = x, .x_pitch = x_pitch, .out = m->b.branch, .out_pitch = s->hidden, .scale = 1 };
    if (!s->post_norms) {
        a.out = 0; /* `settle` writes the next inputs */
        a.residual = m->b.residual;
        a.residual_pitch = s->hidden;
        a.scale = s->residual_scale;
    }
    EXL2__TRY(exl2__cuda_multiply(m, of, s->post_norms ? EXL2__CUDA_STORE : EXL2__CUDA_RESIDUAL, &a,
                                  m->pass.row_count));
    if (of.role == EXL2__ROLE_DOWN && exl2__cuda_is_sparse(of.layer) && !s->post_norms) {
        return EXL2_OK; /* experts add to the same columns first */
    }
    return exl2__cuda_meet_floats(m, s->post_norms ? offsetof(exl2__cuda_buffers, branch)
                                                   : offsetof(exl2__cuda_buffers, residual));
}

/* r += x * matrix; then, in passes of few rows, writes what the product of the next norm will read. */
EXL2__PRIVATE exl2_result exl2__cuda_residual(exl2__cuda_model *m, exl2__operand of, uint64_t x, uint32_t x_pitch,
                                              const exl2__vector *next_norm, const exl2__matrix *next)
{
    exl2k_gemv_args a = {
        .x = x, .x_pitch = x_pitch, .out = m->b.x, .out_pitch = m->b.x_pitch, .residual = m->b.residual,
        .residual_pitch = m->plan->shape.hidden, .weight = exl2__cuda_values(next_norm),
        .map = next ? exl2__cuda_inputs(next) : 0, .sums_before = exl2__cuda_sums(m, 0),
        .sums_out = exl2__cuda_sums(m, 1), .scale = m->plan->shape.residual_scale,
        .added = of.role == EXL2__ROLE_DOWN ? exl2__cuda_steer_rows(m, of.layer) : 0
    };
    if (a.added && exl2__cuda_lora_fused(m)) {
        a.added = 0;
        EXL2__TRY(exl2__cuda_steer_layer(m, of.layer));
    }
    if (x == m->b.h || exl2__cuda_attends_in_few_tiles(m)) {
        exl2__cuda_tiled(m, &a.x_pitch, &a.x_step);
    }
    if (next != m->plan->head) { /* whose rows are chosen */
        exl2__cuda_tiled(m, &a.out_pitch, &a.out_step);
    }
    exl2k_gemv_args all = a;
    if (exl2__cuda_gives(m)) {
        EXL2__TRY(exl2__cuda_give_residual(m, of, a));
    } else {
        EXL2__TRY(exl2__cuda_multiply(m, of, EXL2__CUDA_RESIDUAL, &a, m->pass.row_count));
        EXL2__TRY(m->pass.by_gemm ? exl2__cuda_meet_floats(m, offsetof(exl2__cuda_buffers, residual))
                                  : exl2__cuda_meet_norm(m, &all, false));
    }
    if (!m->pass.by_gemm) {
        m->pass.norm = (m->pass.norm + 1) % EXL2__CUDA_SUMS;
        m->pass.first_norm = false;
    }
    return EXL2_OK;
}

#ifndef EXL2_NO_VISION
/* After a layer: what rows of pictures have for it is added to the residual, before any norm reads it. Such rows are
   only in passes by GEMM. */
EXL2__PRIVATE exl2_result exl2__cuda_add_deep(exl2__cuda_model *m, const exl2__layer *layer)
{
    uint32_t level = layer->index + 1;
    bool any = false;
    for (uint32_t i = 0; level < m->plan->shape.row_levels && m->pass.prompts && i < m->step->row_count; i++) {
        any = any || m->step->rows[i].vector;
    }
    if (!any) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__cuda_meet_all(m)); /* other GPUs may still read the residual */
    exl2k_tower_add_args a = { .pass = m->pass.groups, .rows = m->pass.rows, .residual = m->b.residual,
                               .added = exl2__cuda_deep(m, level), .hidden = m->plan->shape.hidden };
    exl2__cuda_grid grid = { .x = m->pass.row_count, .y = 1, .threads = 256 };
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_tower_add, grid, &a);
}
#else
static inline exl2_result exl2__cuda_add_deep(exl2__cuda_model *m, const exl2__layer *layer)
{
    (void)m, (void)layer;
    return EXL2_OK;
}
#endif

/* ---- phases ---- */

EXL2__PRIVATE exl2_result exl2__cuda_do_copy_pages(exl2__cuda_model *m, const exl2__layer *layer,
                                                   const exl2__range *range)
{
    (void)layer;
    (void)range;
    exl2k_copy_args a = { .copies = m->pass.copies, .pages = m->b.pages, .count = m->step->copy_count,
                          .page_count = m->plan->pages, .page_bytes = m->b.page_bytes };
    uint32_t windowed = exl2__plan_place(m->plan, exl2__plan_end(m->plan), true);
    exl2__cuda_grid grid = { .x = (uint32_t)exl2__div_up(m->b.page_bytes, 16 * EXL2K_COPY_THREADS),
                             .y = exl2__plan_span(m->plan) - windowed, .threads = EXL2K_COPY_THREADS };
    if (grid.y > 0) {
        EXL2__TRY(exl2__cuda_chain(m, EXL2__KERNEL_exl2k_copy_pages, grid, &a));
    }
    a.copies = m->pass.part_copies;
    a.pages = m->b.parts;
    a.page_count = m->plan->window_pages;
    grid.y = windowed;
    if (grid.y > 0) {
        EXL2__TRY(exl2__cuda_chain(m, EXL2__KERNEL_exl2k_copy_pages, grid, &a));
    }
    m->pass.chained = false; /* attention reads pages before it waits for the preceding kernel */
    return EXL2_OK;
}

/* What the span before has handed over: its residual and, where norms are folded into products, the sums of squares
   that its last product has left for the next one. So the bits are those of a model that is not cut. */
EXL2__PRIVATE void exl2__cuda_embed_handed(const exl2__cuda_model *m, exl2k_embed_args *a)
{
    const exl2__shape *s = &m->plan->shape;
    a->table = m->b.handed;
    a->kind = EXL2K_TABLE_HANDED;
    if (exl2__cuda_takes_sums(m)) {
        a->handed_now = m->b.handed + exl2__cuda_handed_sums(m->plan);
        a->handed_before = a->handed_now + EXL2__CUDA_HANDED_SLOTS;
        a->sums_before = exl2__cuda_sums(m, EXL2__CUDA_SUMS - 1);
        a->by_lanes = exl2__cuda_is_sparse(&m->plan->layers[exl2__plan_first(m->plan) - 1]);
        a->eps = s->norm_eps;
        a->inverse_hidden = 1.0f / (float)s->hidden;
    }
}

/* The table of the phase `embed`. */
EXL2__PRIVATE void exl2__cuda_embed_table(const exl2__cuda_model *m, exl2k_embed_args *a)
{
    const exl2__cuda_matrix *table = exl2__cuda_matrix_of(m->plan->embed);
    if (exl2__plan_first(m->plan) > 0) {
        exl2__cuda_embed_handed(m, a);
        return;
    }
    a->table = table->table;
    a->table_rows = table->feed[0].rows;
    a->kind = table->feed[0].type;
    a->scale = m->plan->shape.embed_scale;
}

/* What the kernel that begins with rows of the residual, or makes them, is told besides tables, and the norm and its
   reader. */
EXL2__PRIVATE exl2k_embed_args exl2__cuda_embed_args(const exl2__cuda_model *m)
{
    return (exl2k_embed_args){ .pass = m->pass.groups, .rows = m->pass.rows,
                               .residual = m->b.residual, .sums = m->b.sums[m->pass.norm],
                               .hidden = m->plan->shape.hidden, .residual_pitch = m->plan->shape.hidden,
                               .out_pitch = m->b.x_pitch, .slots_pitch = EXL2K_SLOTS_MAX,
                               .slots = exl2__cuda_residual_ctas(m) };
}

EXL2__PRIVATE exl2_result exl2__cuda_embed(exl2__cuda_model *m, const exl2k_embed_args *a)
{
    uint32_t parts = (uint32_t)exl2__div_up(a->hidden, EXL2K_EMBED_THREADS);
    exl2__cuda_grid grid = { .x = m->pass.row_count, .y = m->pass.prompts ? 1 : exl2__min32(parts, a->slots),
                             .threads = EXL2K_EMBED_THREADS };
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_embed, grid, a);
}

EXL2__PRIVATE exl2_result exl2__cuda_do_embed(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    const exl2__cuda_matrix *positions = exl2__cuda_matrix_of(m->plan->positions);
    const exl2__layer *first = &m->plan->layers[exl2__plan_first(m->plan)];
    bool folds = exl2__cuda_folds(&m->plan->shape);
    (void)layer;
    (void)range;
    EXL2__TRY(exl2__cuda_steer_fill(m));
    exl2k_embed_args a = exl2__cuda_embed_args(m);
    a.turn = exl2__cuda_lora_fused(m) ? m->b.lora_turn : 0;
    exl2__cuda_embed_table(m, &a);
#if EXL2__EXL3
    const exl2__cuda_matrix *embed = exl2__cuda_matrix_of(m->plan->embed); /* NULL in a later span */
    if (embed && a.table == embed->table && embed->exl3.signs) {
        EXL2__TRY(exl2__cuda_exl3_embed(m, &a));
    }
#endif
    if (positions) {
        a.positions = positions->table;
        a.position_rows = positions->feed[0].rows;
        a.position_kind = positions->feed[0].type;
    }
    if (folds) {
        a.out = m->b.x;
        a.map = exl2__cuda_inputs(first->matrix[EXL2__ROLE_QKV]);
        a.weight = exl2__cuda_values(first->attn_norm.weight);
    }
    EXL2__TRY(exl2__cuda_embed(m, &a));
    return folds ? EXL2_OK : exl2__cuda_settle_down(m, NULL);
}

EXL2__PRIVATE exl2_result exl2__cuda_do_qkv(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    exl2k_gemv_args a = { .x = m->b.x, .x_pitch = m->b.x_pitch, .out = m->b.qkv, .out_pitch = m->b.qkv_pitch,
                          .sums_now = exl2__cuda_sums(m, 0), .sums_before = exl2__cuda_sums_before(m), .scale = 1 };
    (void)range;
    if (m->pass.by_gemm) {
        EXL2__TRY(exl2__cuda_norm_all(m, layer->attn_norm.weight, layer->matrix[EXL2__ROLE_QKV]));
    }
    if (!exl2__cuda_is_first(m, layer)) {
        exl2__cuda_tiled(m, &a.x_pitch, &a.x_step);
    }
    if (exl2__cuda_gives(m)) {
        return exl2__cuda_give_qkv(m, layer, a);
    }
    return exl2__cuda_multiply(m, exl2__operand_of(layer, EXL2__ROLE_QKV), EXL2__CUDA_STORE, &a, m->pass.row_count);
}

EXL2__PRIVATE exl2_result exl2__cuda_do_out(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    const exl2__shape *s = &m->plan->shape;
    (void)range;
    uint64_t x = m->b.attended;
    if (m->pass.by_wg) { /* q, k and v are not needed any more: tiles may lie where h will be, or beside h */
        x = s->parallel ? m->b.x2 : m->b.h;
        EXL2__TRY(exl2__cuda_tiles(m, x, layer->matrix[EXL2__ROLE_OUT]));
    }
    bool host = exl2__plan_is_host(m->plan, layer->index);
    if (exl2__cuda_folds(s)) { /* nothing reads what is written for the norm before an MLP of the host: any will do */
        return exl2__cuda_residual(m, exl2__operand_of(layer, EXL2__ROLE_OUT), x, m->b.attended_pitch,
                                   (host ? layer->attn_norm : layer->mlp_norm).weight,
                                   layer->matrix[EXL2__ROLE_GATE_UP]);
    }
    EXL2__TRY(exl2__cuda_block(m, exl2__operand_of(layer, EXL2__ROLE_OUT), x, m->b.attended_pitch));
    if (host) {
        return s->parallel ? exl2__cuda_settle_down(m, layer) : EXL2_OK; /* its MLP was the first part of the layer */
    }
    bool settled = s->post_norms || s->parallel || exl2__cuda_is_sparse(layer); /* by another phase */
    return settled ? EXL2_OK : exl2__cuda_settle_out(m, layer);
}

/* h = act(gate) * up of a dense MLP or of a shared expert. */
EXL2__PRIVATE exl2_result exl2__cuda_do_mlp(exl2__cuda_model *m, const exl2__layer *layer)
{
    exl2k_gemv_args a = { .x = exl2__cuda_mlp_input(m, layer), .x_pitch = m->b.x_pitch, .out = m->b.h,
                          .out_pitch = m->b.h_pitch, .sums_now = exl2__cuda_sums(m, 0),
                          .sums_before = exl2__cuda_sums_before(m), .scale = 1 };
    if (m->pass.by_gemm) {
        EXL2__TRY(exl2__cuda_norm_all(m, layer->mlp_norm.weight, layer->matrix[EXL2__ROLE_GATE_UP]));
    }
    exl2__cuda_tiled(m, &a.x_pitch, &a.x_step);
    exl2__cuda_tiled(m, &a.out_pitch, &a.out_step);
    if (exl2__cuda_gives(m)) {
        return exl2__cuda_give_h(m, layer, a);
    }
    return exl2__cuda_multiply(m, exl2__operand_of(layer, EXL2__ROLE_GATE_UP), EXL2__CUDA_ACT, &a, m->pass.row_count);
}

EXL2__PRIVATE exl2_result exl2__cuda_do_gate_up(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    (void)range;
    EXL2__TRY(exl2__cuda_do_mlp(m, layer));
#ifndef EXL2_NO_MOE
    EXL2__TRY(exl2__cuda_is_sparse(layer) ? exl2__cuda_expert_switch(m, layer) : EXL2_OK);
#endif
    return exl2__cuda_gives(m) ? EXL2_OK : exl2__cuda_meet_h(m, layer);
}

EXL2__PRIVATE exl2_result exl2__cuda_do_down(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    const exl2__shape *s = &m->plan->shape;
    (void)range;
    if (exl2__cuda_folds(s) && !exl2__cuda_is_sparse(layer)) {
        exl2__cuda_follower next = exl2__cuda_follower_of(m, layer);
        EXL2__TRY(exl2__cuda_residual(m, exl2__operand_of(layer, EXL2__ROLE_DOWN), m->b.h, m->b.h_pitch,
                                      next.norm->weight, next.reader));
        EXL2__TRY(exl2__cuda_add_deep(m, layer));
        return exl2__cuda_steer_add(m, layer);
    }
    EXL2__TRY(exl2__cuda_block(m, exl2__operand_of(layer, EXL2__ROLE_DOWN), m->b.h, m->b.h_pitch));
    EXL2__TRY(exl2__cuda_add_deep(m, layer));
    bool sparse = exl2__cuda_is_sparse(layer), settled = s->post_norms || sparse; /* sparse: by expert_down */
    EXL2__TRY(sparse ? EXL2_OK : exl2__cuda_steer_add(m, layer));
    return settled ? EXL2_OK : exl2__cuda_settle_down(m, layer);
}

EXL2__PRIVATE exl2_result exl2__cuda_do_settle(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    return range->before == EXL2__PHASE_out ? exl2__cuda_settle_out(m, layer) : exl2__cuda_settle_down(m, layer);
}

#ifndef EXL2_NO_MOE
EXL2__PRIVATE exl2_result exl2__cuda_do_route(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    (void)range;
    return exl2__cuda_route(m, layer);
}

EXL2__PRIVATE exl2_result exl2__cuda_do_expert_up(exl2__cuda_model *m, const exl2__layer *layer,
                                                  const exl2__range *range)
{
    (void)range;
    return exl2__cuda_expert_up(m, layer);
}

EXL2__PRIVATE exl2_result exl2__cuda_do_expert_down(exl2__cuda_model *m, const exl2__layer *layer,
                                                    const exl2__range *range)
{
    (void)range;
    EXL2__TRY(exl2__cuda_expert_down(m, layer));
    EXL2__TRY(exl2__cuda_steer_add(m, layer));
    if (exl2__cuda_folds(&m->plan->shape)) {
        m->pass.norm = m->pass.by_gemm ? m->pass.norm : (m->pass.norm + 1) % EXL2__CUDA_SUMS;
        return EXL2_OK;
    }
    return exl2__cuda_settle_down(m, layer);
}
#else
EXL2__PRIVATE exl2_result exl2__cuda_do_route(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    (void)layer;
    (void)range;
    return exl2__fail(m->c, EXL2_ERR_INTERNAL, "cuda: this build has EXL2_NO_MOE");
}

EXL2__PRIVATE exl2_result exl2__cuda_do_expert_up(exl2__cuda_model *m, const exl2__layer *layer,
                                                  const exl2__range *range)
{
    return exl2__cuda_do_route(m, layer, range);
}

EXL2__PRIVATE exl2_result exl2__cuda_do_expert_down(exl2__cuda_model *m, const exl2__layer *layer,
                                                    const exl2__range *range)
{
    return exl2__cuda_do_route(m, layer, range);
}
#endif

/* Address of the exl2k_pass that holds the number of logit rows of the group. */
static inline uint64_t exl2__cuda_group_pass(const exl2__cuda_model *m, const exl2__range *range)
{
    return m->pass.groups + range->logit0 / m->plan->logit_rows_max * sizeof(exl2k_pass);
}

/* Gathers what the last residual product wrote for the rows that want logits, as inputs of the head. */
EXL2__PRIVATE exl2_result exl2__cuda_head_rows(exl2__cuda_model *m, const exl2__range *range, exl2k_gemv_args *head)
{
    exl2k_head_rows_args a = { .rows_at = exl2__cuda_group_pass(m, range) + offsetof(exl2k_pass, logit_count),
                               .samplings = m->pass.samplings + range->logit0 * sizeof(exl2k_sampling), .x = m->b.x,
                               .out = m->b.head_x, .sums_now = exl2__cuda_sums(m, 0),
                               .sums_before = exl2__cuda_sums_before(m), .now_out = m->b.head_sums[0],
                               .before_out = m->b.head_sums[1], .row_bytes = m->b.x_pitch * 2,
                               .slots_bytes = (uint32_t)exl2__cuda_slots(1) };
    exl2__cuda_grid grid = { .x = range->logit_count, .y = 1, .threads = EXL2K_COPY_THREADS };
    head->x = a.out;
    head->sums_now = a.now_out;
    head->sums_before = a.sums_before ? a.before_out : 0;
    a.sums_before = a.sums_before ? a.sums_before : a.sums_now; /* the kernel copies some */
    return range->begin > 0 ? EXL2_OK : exl2__cuda_chain(m, EXL2__KERNEL_exl2k_head_rows, grid, &a);
}

/* The columns of units [range->begin, range->end) of the head, as a matrix. Their results keep their places. The last
   unit has the strip of padding, too, if there is one. */
EXL2__PRIVATE exl2__cuda_matrix exl2__cuda_head_columns(const exl2__cuda_model *m, const exl2__range *range)
{
    exl2__cuda_matrix w = *exl2__cuda_matrix_of(m->plan->head);
    exl2k_part *p = &w.device.part[0];
#if EXL2__EXL3
    if (w.exl3.parts > 0) {
        uint32_t strips = exl2__cuda_exl3_blocks(w.exl3.part[0].columns);
        w.exl3 = exl2__cuda_exl3_range(&w.exl3, strips * range->begin / m->head_units,
                                       strips * range->end / m->head_units);
        return w;
    }
#endif
    uint32_t real = (uint32_t)exl2__div_up(p->columns, EXL2__CUDA_STRIP), first = real * range->begin / m->head_units;
    uint32_t end = range->end == m->head_units ? p->strips : real * range->end / m->head_units;
    p->base += (uint64_t)first * p->pitch;
    exl2__cuda_advance(&p->bias, first * EXL2__CUDA_STRIP * sizeof(float));
    p->column += first * EXL2__CUDA_STRIP;
    p->columns = exl2__min32(p->columns, end * EXL2__CUDA_STRIP) - first * EXL2__CUDA_STRIP;
    p->strips = w.device.strips = end - first;
    return w;
}

/* If every row wants logits, the head reads what the last residual product wrote. The first unit prepares the rows for
   all of them. */
EXL2__PRIVATE exl2_result exl2__cuda_do_head(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    uint64_t pass = exl2__cuda_group_pass(m, range);
    bool folds = exl2__cuda_folds(&m->plan->shape), decodes = m->pass.decodes && !m->pass.by_gemm;
    bool later = range->begin > 0, by_wg = exl2__cuda_head_by_wg(m, range->logit_count);
    (void)layer;
    exl2k_gemv_args a = { .x = m->b.x, .x_pitch = m->b.x_pitch, .out = m->b.logits, .out_pitch = m->b.stride,
                          .scale = m->plan->shape.logit_scale, .cap = m->plan->shape.final_softcap };
    if (!folds && decodes) {
        a.x += (uint64_t)range->logit0 * a.x_pitch * 2;
    } else if (!folds) {
        exl2k_settle_args settle = { .rows_at = pass + offsetof(exl2k_pass, logit_count), .out = { m->b.head_x, 0 },
                                     .samplings = m->pass.samplings + range->logit0 * sizeof(exl2k_sampling) };
        exl2__cuda_next head = { &m->plan->final_norm, { m->plan->head, NULL } };
        EXL2__TRY(later ? EXL2_OK : exl2__cuda_settle_rows(m, settle, range->logit_count, head));
        a.x = m->b.head_x;
    } else if (m->pass.by_gemm) {
        exl2k_norm_args norm = { .rows_at = pass + offsetof(exl2k_pass, logit_count), .out = m->b.head_x,
                                 .tile_rows = by_wg ? exl2__cuda_wg_rows(range->logit_count) : 0,
                                 .samplings = m->pass.samplings + range->logit0 * sizeof(exl2k_sampling) };
        EXL2__TRY(later ? EXL2_OK : exl2__cuda_norm(m, norm, range->logit_count, m->plan->final_norm.weight,
                                                    m->plan->head));
        a.x = m->b.head_x;
    } else if (decodes) {
        a.x += (uint64_t)range->logit0 * a.x_pitch * 2;
        a.sums_now = exl2__cuda_sums(m, 0) + exl2__cuda_slots(range->logit0);
        a.sums_before = exl2__cuda_sums_before(m) + exl2__cuda_slots(range->logit0);
    } else {
        EXL2__TRY(exl2__cuda_head_rows(m, range, &a));
    }
    exl2__cuda_matrix columns = exl2__cuda_head_columns(m, range);
    exl2__operand head = { .matrix = (const exl2__matrix *)(const void *)&columns };
    EXL2__TRY(later || range->logit0 == 0 ? EXL2_OK : exl2__cuda_meet_all(m)); /* the logits before are read */
    EXL2__TRY(exl2__cuda_gives(m) ? exl2__cuda_give_head(m, head.matrix, a, range)
                                  : exl2__cuda_multiply(m, head, EXL2__CUDA_STORE, &a, range->logit_count));
    return range->end == m->head_units ? exl2__cuda_meet_logits(m, range->logit_count) : EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_do_sample(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    (void)layer;
    exl2k_sample_args a = { .pass = exl2__cuda_group_pass(m, range), .rows = m->pass.rows,
                            .samplings = m->pass.samplings + range->logit0 * sizeof(exl2k_sampling),
                            .logits = m->b.logits,
                            .adjusted = m->b.adjusted, .keys = m->b.keys, .sums = m->b.key_sums,
                            .states = m->b.sample_states, .bins = m->b.sample_bins,
                            .results = (uint64_t)(uintptr_t)m->b.results,
                            .vocab = m->plan->shape.vocab, .stride = m->b.stride,
                            .rows_max = m->plan->logit_rows_max,
                            .chunks = exl2__cuda_sample_chunks(m->plan->shape.vocab) };
    exl2__cuda_grid grid = { .x = a.chunks, .y = range->logit_count, .threads = EXL2K_SAMPLE_THREADS };
    EXL2__TRY(exl2__cuda_chain(m, EXL2__KERNEL_exl2k_sample_keys, grid, &a));
    grid.x = exl2__cuda_sample_ctas(a.chunks, grid.y, m->gpu->sm_count);
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_sample_token, grid, &a);
}

/* The kernel that has ended the layer has added them (cuda_steer.h). */
EXL2__PRIVATE exl2_result exl2__cuda_do_steer(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    (void)m, (void)layer, (void)range;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_do(exl2__cuda_model *m, exl2__phase phase, const exl2__layer *layer,
                                        const exl2__range *range)
{
    static exl2_result (*const phases[])(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range) = {
#define X(name) exl2__cuda_do_##name,
        EXL2__PHASES(X)
#undef X
    };
    return phases[phase](m, layer, range);
}

#endif

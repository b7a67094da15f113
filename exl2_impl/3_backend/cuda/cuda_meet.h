/* cuda_meet.h: the GPUs that share every matrix of a model give each other the columns that each has computed.
   takes: models of one group (cuda_group.h), with a current pass.
   gives: exl2__cuda_meet_heads, _attended, _h, _expert_h, _floats, _norm, _logits, _all.

   Each function does nothing for a model whose GPU has all columns. The GPUs enqueue the same meetings in the same
   order (kernels_src/meet_args.h). What a GPU reads of another one must stay there until the next meeting. The memory
   of logits is used by other kernels, too, so a pass, and a further group of logits, begin with a meeting. */
#ifndef EXL2__CUDA_MEET_H
#define EXL2__CUDA_MEET_H

#include "cuda_product.h"

/* What all meetings need. buffer: where exl2__cuda_buffers has the address of what is read. */
EXL2__PRIVATE exl2k_meet_args exl2__cuda_meet_args(const exl2__cuda_model *m, size_t buffer)
{
    exl2k_meet_args a = { .state = m->b.meet, .count = m->columns.count, .own = m->columns.index,
                          .stop = (uint64_t)(uintptr_t)m->b.stop };
    for (uint32_t i = 0; i < a.count; i++) {
        const exl2__cuda_buffers *b = &m->mates[i]->b;
        memcpy(&a.from[i], (const uint8_t *)b + buffer, sizeof a.from[i]);
        a.flags[i] = b->meet + a.own * sizeof(exl2k_meet_flag);
    }
    a.to = a.from[a.own];
    return a;
}

/* Sets where the columns of each GPU end in a row. bytes: size of `each` columns, which stay together. */
EXL2__PRIVATE void exl2__cuda_meet_ends(const exl2__cuda_model *m, exl2k_meet_args *a, uint32_t columns, uint32_t unit,
                                        uint32_t each, uint32_t bytes)
{
    for (uint32_t i = 0; i < a->count; i++) {
        uint64_t end = exl2__columns_begin(&m->columns, columns, unit, i + 1);
        a->ends[i] = (uint32_t)exl2__align_up(exl2__div_up(end, each) * bytes, 16);
    }
}

/* Launches the kernel for `rows` rows. */
EXL2__PRIVATE exl2_result exl2__cuda_meet(exl2__cuda_model *m, const exl2k_meet_args *a, uint32_t rows)
{
    uint64_t pieces = exl2__div_up(exl2__max32(a->ends[a->count - 1], 16) / 16, EXL2K_MEET_THREADS);
    uint64_t most = exl2__max32(4 * m->gpu->sm_count / rows, 1); /* longer rows: each thread has several pieces */
    exl2__cuda_grid grid = { .x = (uint32_t)exl2__min64(pieces, most), .y = rows, .threads = EXL2K_MEET_THREADS };
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_meet, grid, a);
}

/* A meeting that copies nothing: no GPU continues before all have arrived. */
EXL2__PRIVATE exl2_result exl2__cuda_meet_all(exl2__cuda_model *m)
{
    if (!exl2__columns_are_cut(&m->columns)) {
        return EXL2_OK;
    }
    exl2k_meet_args a = exl2__cuda_meet_args(m, offsetof(exl2__cuda_buffers, natural));
    return exl2__cuda_meet(m, &a, 1);
}

/* q and k of all heads, for norms of all of them; nothing for other models. k: those of k, else of q. Each GPU has its
   heads in a row of qkv, and all of them in one of all_heads. */
EXL2__PRIVATE exl2_result exl2__cuda_meet_heads_of(exl2__cuda_model *m, bool k)
{
    const exl2__shape *s = &m->plan->shape;
    const exl2__columns *c = &m->plan->columns;
    uint32_t unit = exl2__columns_heads(s->head_dim, s->columns_unit) * s->head_dim, group = c->heads / c->kv_heads;
    uint32_t all = c->kv_heads * s->head_dim, each = (k ? 1 : group) * (uint32_t)sizeof(float);
    exl2k_meet_args a = exl2__cuda_meet_args(m, offsetof(exl2__cuda_buffers, qkv));
    a.to = m->b.all_heads + (k ? (uint64_t)all * group * sizeof(float) : 0);
    exl2__cuda_meet_ends(m, &a, all, unit, 1, each);
    for (uint32_t i = 0; i < a.count; i++) {
        uint32_t first = exl2__columns_begin(&m->columns, all, unit, i);
        uint32_t own = exl2__columns_begin(&m->columns, all, unit, i + 1) - first;
        a.from[i] += (k ? (uint64_t)own * group * sizeof(float) : 0) - (uint64_t)first * each;
    }
    a.from_pitch = m->b.qkv_pitch * (uint32_t)sizeof(float);
    a.to_pitch = exl2__cuda_all_pitch(m->plan) * (uint32_t)sizeof(float);
    return exl2__cuda_meet(m, &a, m->pass.row_count);
}

/* q and k of all heads, for models that need them. Afterwards each GPU may write to its own q and k. */
EXL2__PRIVATE exl2_result exl2__cuda_meet_heads(exl2__cuda_model *m)
{
    if (exl2__cuda_all_pitch(m->plan) == 0) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__cuda_meet_heads_of(m, false));
    EXL2__TRY(exl2__cuda_meet_heads_of(m, true));
    return exl2__cuda_meet_all(m);
}

/* Copies the outputs of attention to where the product `out` reads them. */
EXL2__PRIVATE exl2_result exl2__cuda_meet_attended(exl2__cuda_model *m, const exl2__layer *layer)
{
    const exl2__shape *s = &m->plan->shape;
    const exl2__columns *c = &m->plan->columns;
    if (!exl2__columns_are_cut(&m->columns)) {
        return EXL2_OK;
    }
    exl2k_meet_args a = exl2__cuda_meet_args(m, offsetof(exl2__cuda_buffers, natural));
    uint32_t unit = exl2__columns_heads(s->head_dim, s->columns_unit) * s->head_dim * (c->heads / c->kv_heads);
    exl2__cuda_meet_ends(m, &a, exl2__shape_attended(s), unit, 1, 2);
    a.from_pitch = a.to_pitch = m->b.attended_pitch * 2;
    a.to = m->b.attended;
    a.map = m->pass.by_wg ? 0 : exl2__cuda_inputs(layer->matrix[EXL2__ROLE_OUT]);
    return exl2__cuda_meet(m, &a, m->pass.row_count);
}

/* The outputs of gate and up, which may be tiles. */
EXL2__PRIVATE exl2_result exl2__cuda_meet_h(exl2__cuda_model *m, const exl2__layer *layer)
{
    if (!exl2__columns_are_cut(&m->columns)) {
        return EXL2_OK;
    }
    uint32_t rows = m->pass.by_wg ? exl2__cuda_wg_rows(m->pass.row_count) : exl2__cuda_tile_rows(m);
    uint32_t inter = exl2__cuda_matrix_of(layer->matrix[EXL2__ROLE_DOWN])->in;
    exl2k_meet_args a = exl2__cuda_meet_args(m, offsetof(exl2__cuda_buffers, h));
    exl2__cuda_meet_ends(m, &a, inter, m->plan->shape.columns_unit, rows ? 32 : 1, rows ? rows * EXL2K_STEP : 2);
    a.from_pitch = a.to_pitch = m->b.h_pitch * 2;
    return exl2__cuda_meet(m, &a, rows ? 1 : m->pass.row_count);
}

#ifndef EXL2_NO_MOE
#define EXL2__CUDA_MEET_ROWS 32768u /* of one meeting: fewer than a grid may have */

/* h of experts: `rows` rows of `pitch` elements, which begin `offset` bytes after where `buffer` points. */
EXL2__PRIVATE exl2_result exl2__cuda_meet_expert_h(exl2__cuda_model *m, size_t buffer, uint64_t offset, uint32_t rows,
                                                   uint32_t pitch)
{
    if (!exl2__columns_are_cut(&m->columns)) {
        return EXL2_OK;
    }
    exl2k_meet_args a = exl2__cuda_meet_args(m, buffer);
    exl2__cuda_meet_ends(m, &a, m->plan->shape.experts.inter, m->plan->shape.columns_unit, 1, 2);
    a.from_pitch = a.to_pitch = pitch * 2;
    for (uint32_t some; rows > 0; rows -= some, offset = (uint64_t)some * a.to_pitch) {
        some = exl2__min32(rows, EXL2__CUDA_MEET_ROWS);
        for (uint32_t i = 0; i < a.count; i++) {
            a.from[i] += offset;
        }
        a.to += offset;
        EXL2__TRY(exl2__cuda_meet(m, &a, some));
    }
    return EXL2_OK;
}
#endif

/* Rows of `hidden` floats: the residual, or results of blocks. */
EXL2__PRIVATE exl2_result exl2__cuda_meet_floats(exl2__cuda_model *m, size_t buffer)
{
    uint32_t hidden = m->plan->shape.hidden;
    if (!exl2__columns_are_cut(&m->columns)) {
        return EXL2_OK;
    }
    exl2k_meet_args a = exl2__cuda_meet_args(m, buffer);
    exl2__cuda_meet_ends(m, &a, hidden, m->plan->shape.columns_unit, 1, sizeof(float));
    a.from_pitch = a.to_pitch = hidden * (uint32_t)sizeof(float);
    return exl2__cuda_meet(m, &a, m->pass.row_count);
}

/* After a product of few rows that adds to the residual as `of` says (exl2__cuda_residual). experts: the product is one
   with experts. */
EXL2__PRIVATE exl2_result exl2__cuda_meet_norm(exl2__cuda_model *m, const exl2k_gemv_args *of, bool experts)
{
    const exl2__shape *s = &m->plan->shape;
    if (!exl2__columns_are_cut(&m->columns)) {
        return EXL2_OK;
    }
    uint32_t strips = (uint32_t)exl2__align_up(s->hidden, experts ? EXL2__CUDA_STRIP : 32) / EXL2__CUDA_STRIP;
    exl2k_meet_norm_args a = {
        .meet = exl2__cuda_meet_args(m, offsetof(exl2__cuda_buffers, residual)), .rows_at = exl2__cuda_rows_at(m),
        .out = of->out, .weight = of->weight, .sums_before = of->sums_before, .sums_out = of->sums_out,
        .out_pitch = of->out_pitch, .out_step = of->out_step ? of->out_step : EXL2K_STEP,
        .slots = exl2__cuda_residual_ctas(m), .hidden = s->hidden, .eps = s->norm_eps,
        .inverse_hidden = 1.0f / (float)s->hidden, .by_lanes = experts
    };
    a.strips = strips / a.slots;
    a.slots_with_more = strips % a.slots;
    a.meet.map = of->map;
    a.meet.from_pitch = a.meet.to_pitch = s->hidden * (uint32_t)sizeof(float);
    exl2__cuda_meet_ends(m, &a.meet, s->hidden, s->columns_unit, 1, sizeof(float));
    uint32_t each = EXL2K_MEET_THREADS / 32;
    exl2__cuda_grid grid = { .x = (uint32_t)exl2__div_up(a.slots, each), .y = m->pass.row_count,
                             .threads = EXL2K_MEET_THREADS };
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_meet_norm, grid, &a);
}

/* Logits of `rows` rows. */
EXL2__PRIVATE exl2_result exl2__cuda_meet_logits(exl2__cuda_model *m, uint32_t rows)
{
    if (!exl2__columns_are_cut(&m->columns)) {
        return EXL2_OK;
    }
    exl2k_meet_args a = exl2__cuda_meet_args(m, offsetof(exl2__cuda_buffers, logits));
    exl2__cuda_meet_ends(m, &a, exl2__cuda_matrix_of(m->plan->head)->cut[0].all, m->plan->shape.columns_unit, 1,
                         sizeof(float));
    a.from_pitch = a.to_pitch = m->b.stride * (uint32_t)sizeof(float);
    for (uint32_t i = 0; i < a.count; i++) { /* the table of a tied head may have more rows than there are logits */
        a.ends[i] = exl2__min32(a.ends[i], a.from_pitch);
    }
    return exl2__cuda_meet(m, &a, rows);
}

#endif

/* cuda_multiply.h: the one function of the CUDA backend that multiplies rows by a matrix of some role.
   takes: a model with a current pass; operands (phases.h); rows in device memory.
   gives: exl2__cuda_multiply, exl2__cuda_head_by_wg.

   It chooses among products of few rows, GEMM, those of EXL3 matrices, and products whose parts order their inputs
   differently, or of which only some are of EXL3. It knows layer and role, so whatever is added to a product, such as a
   matrix of low rank, is added here. The experts of a layer are not among its operands: their kernels
   multiply by all of them at once (cuda_experts.h). */
#ifndef EXL2__CUDA_MULTIPLY_H
#define EXL2__CUDA_MULTIPLY_H

#include "cuda_exl3.h"
#include "cuda_split.h"
#include "cuda_lora.h"

/* Whether the head's products of `rows` rows run by wgmma; else they are products of few rows, in any pass. */
EXL2__PRIVATE bool exl2__cuda_head_by_wg(const exl2__cuda_model *m, uint32_t rows)
{
    return m->pass.by_wg && m->pass.decodes && rows > EXL2__CUDA_GEMV_ROWS
           && !exl2__cuda_needs_any(&m->plan->shape) && exl2__cuda_by_wg(&m->plan->shape, m->plan->head);
}

/* Moves the addresses of outputs to where the device's columns begin. Those of products that store are the matrix's
   (exl2k_part.column), and with GEMM those of the residual, too. */
EXL2__PRIVATE void exl2__cuda_columns_shift(const exl2__cuda_model *m, const exl2__cuda_matrix *w, exl2__cuda_kind kind,
                                            bool by_gemm, exl2k_gemv_args *a)
{
    uint32_t first = w->cut[0].first, step = a->out_step ? a->out_step : EXL2K_STEP;
    if (by_gemm && m->pass.by_wg) {
        step = EXL2K_STEP * exl2__cuda_wg_rows(m->pass.row_count);
    }
    if (first > 0 && kind == EXL2__CUDA_RESIDUAL && !by_gemm) {
        a->residual += first * sizeof(float);
        exl2__cuda_advance(&a->added, first * sizeof(float));
        exl2__cuda_advance(&a->weight, first * sizeof(float));
        exl2__cuda_advance(&a->map, first * sizeof(exl2k_u16));
        exl2__cuda_advance(&a->out, a->map ? 0 : (uint64_t)first / 32 * step);
    } else if (first > 0 && kind == EXL2__CUDA_ACT) {
        a->out += (uint64_t)first / 32 * step;
    }
}

/* The product of a matrix of one kind, without what adapters add. */
EXL2__PRIVATE exl2_result exl2__cuda_multiply_one(exl2__cuda_model *m, exl2__operand of, exl2__cuda_kind kind,
                                                  exl2k_gemv_args *a, uint32_t rows)
{
#if EXL2__EXL3
    if (exl2__cuda_matrix_of(of.matrix)->exl3.parts > 0) {
        return exl2__cuda_exl3_product(m, of, kind, a, rows);
    }
    EXL2__TRY(exl2__cuda_exl3_permute(m, exl2__cuda_matrix_of(of.matrix), a, rows));
#endif
    exl2__cuda_columns_shift(m, exl2__cuda_matrix_of(of.matrix), kind, of.layer && m->pass.by_gemm, a);
    if (exl2__cuda_matrix_of(of.matrix)->device.strips == 0) {
        return EXL2_OK; /* the device has no columns of it */
    }
    if (exl2__cuda_matrix_of(of.matrix)->order.apart) {
        return exl2__cuda_split_product(m, of, kind, *a, rows);
    }
    bool many = of.layer ? m->pass.by_gemm : exl2__cuda_head_by_wg(m, rows);
    return many ? exl2__cuda_multiply_many(m, of.matrix, kind, a, rows, NULL)
                : exl2__cuda_product(m, of.matrix, kind, a, rows);
}

#if EXL2__EXL3
/* out = x * matrix, part by part. */
EXL2__PRIVATE exl2_result exl2__cuda_alone_parts(exl2__cuda_model *m, exl2__operand of, exl2k_gemv_args a,
                                                 uint32_t rows)
{
    const exl2__cuda_matrix *w = exl2__cuda_matrix_of(of.matrix);
    for (uint32_t i = 0; i < EXL2K_PARTS_MAX && w->alone[i]; i++) {
        exl2k_gemv_args part = a;
        of.matrix = (const exl2__matrix *)(const void *)w->alone[i];
        EXL2__TRY(exl2__cuda_multiply_one(m, of, EXL2__CUDA_STORE, &part, rows));
    }
    return EXL2_OK;
}

/* Multiplies rows in natural order by parts of which some are of EXL3. Gate and up are stored, for some rows at a time,
   and the activation follows. */
EXL2__PRIVATE exl2_result exl2__cuda_alone_product(exl2__cuda_model *m, exl2__operand of, exl2__cuda_kind kind,
                                                   exl2k_gemv_args a, uint32_t rows)
{
    if (kind != EXL2__CUDA_ACT) {
        return exl2__cuda_alone_parts(m, of, a, rows);
    }
    const exl2__cuda_matrix *w = exl2__cuda_matrix_of(of.matrix);
    uint32_t inter = w->feed[0].out, some;
    uint32_t most = m->pass.by_gemm ? exl2__cuda_split_rows_max(m->plan) : EXL2__CUDA_SPLIT_ROWS;
    exl2k_act_mul_args join = { .from = m->b.split_out, .to = a.out + w->cut[0].first * sizeof(uint16_t),
                                .rows_at = exl2__cuda_rows_at(m), .count = inter, .pitch = a.out_pitch,
                                .act = exl2__cuda_act(m), .act_limit = m->plan->shape.act_limit };
    if (inter == 0) {
        return EXL2_OK; /* the device has no columns of it */
    }
    a.out_pitch = 2 * inter;
    a.out = m->b.split_out;
    for (uint32_t row = 0; row < rows; row += some) {
        some = exl2__min32(rows - row, most);
        EXL2__TRY(exl2__cuda_alone_parts(m, of, a, some));
        exl2__cuda_grid grid = { .x = some, .y = 1, .threads = EXL2K_GATHER_THREADS };
        EXL2__TRY(exl2__cuda_chain(m, EXL2__KERNEL_exl2k_act_mul, grid, &join));
        join.to += (uint64_t)some * join.pitch * 2;
        a.x += (uint64_t)some * a.x_pitch * 2;
    }
    return EXL2_OK;
}
#endif

/* The product, without what adapters add. */
EXL2__PRIVATE exl2_result exl2__cuda_multiply_base(exl2__cuda_model *m, exl2__operand of, exl2__cuda_kind kind,
                                                   exl2k_gemv_args *a, uint32_t rows)
{
#if EXL2__EXL3
    if (exl2__cuda_matrix_of(of.matrix)->alone[0]) {
        return exl2__cuda_alone_product(m, of, kind, *a, rows);
    }
#endif
    return exl2__cuda_multiply_one(m, of, kind, a, rows);
}

/* Stores the parts of gate and up, or up alone, of `rows` rows side by side, without the activation. */
EXL2__PRIVATE exl2_result exl2__cuda_lora_store(exl2__cuda_model *m, exl2__operand of, exl2k_gemv_args a, uint32_t rows)
{
    const exl2__cuda_matrix *w = exl2__cuda_matrix_of(of.matrix);
    if (w->order.apart) {
        return exl2__cuda_split_store(m, of, a, rows);
    }
#if EXL2__EXL3
    if (w->alone[0]) {
        return exl2__cuda_alone_parts(m, of, a, rows);
    }
    for (uint32_t i = 0; i < exl2__cuda_lora_parts(w); i++) {
        exl2k_gemv_args part = a;
        exl2__cuda_matrix one = *w;
        if (w->exl3.parts > 0) {
            one.exl3.parts = 1;
            one.exl3.part[0] = w->exl3.part[i];
            one.exl3.part[0].column = i * w->cut[0].columns;
        } else {
            one = exl2__cuda_split_part(w, i);
            one.device.part[0].column = i * w->cut[0].columns;
        }
        of.matrix = (const exl2__matrix *)(const void *)&one;
        EXL2__TRY(exl2__cuda_multiply_one(m, of, EXL2__CUDA_STORE, &part, rows));
    }
#endif
    return EXL2_OK;
}

/* A product of rows in natural order, and what adapters add: of a model with EXL3 matrices, in any pass, and of a
   matrix whose parts order their inputs differently, in prompts. */
EXL2__PRIVATE exl2_result exl2__cuda_lora_natural(exl2__cuda_model *m, exl2__operand of, exl2__cuda_kind kind,
                                                  exl2k_gemv_args *a, uint32_t rows)
{
    if (kind == EXL2__CUDA_ACT) {
        exl2__cuda_columns_shift(m, exl2__cuda_matrix_of(of.matrix), kind, m->pass.by_gemm, a);
    }
    exl2k_lora_rows_args l = exl2__cuda_lora_rows_args(m, of, a, rows);
    EXL2__TRY(exl2__cuda_lora_rows_t(m, &l));
    if (kind != EXL2__CUDA_ACT) {
        exl2k_gemv_args base = *a;
        EXL2__TRY(exl2__cuda_multiply_base(m, of, kind, &base, rows));
        return exl2__cuda_lora_rows_add(m, kind, a, l);
    }
    l.from = m->b.lora_act;
    for (; l.row0 < rows; l.row0 = l.rows) {
        uint32_t some = exl2__min32(rows - l.row0, EXL2__CUDA_LORA_ACT_ROWS);
        exl2k_gemv_args store = { .x = a->x + (uint64_t)l.row0 * a->x_pitch * 2, .x_pitch = a->x_pitch, .out = l.from,
                                  .out_pitch = l.parts * l.columns[0], .scale = 1 };
        l.rows = l.row0 + some;
        EXL2__TRY(exl2__cuda_lora_store(m, of, store, some));
        EXL2__TRY(exl2__cuda_chain(m, EXL2__KERNEL_exl2k_lora_rows_act, exl2__cuda_lora_rows_grid(&l, 1, some), &l));
    }
    return EXL2_OK;
}

/* Multiplies `rows` rows, as `kind` says (gemv_args.h). `a` holds all but the matrix, rows, activation and shared
   memory, and is changed; GEMM uses what it needs of it, and expects rows that are normalised already. */
EXL2__PRIVATE exl2_result exl2__cuda_multiply(exl2__cuda_model *m, exl2__operand of, exl2__cuda_kind kind,
                                              exl2k_gemv_args *a, uint32_t rows)
{
    if (exl2__columns_are_cut(&m->columns) && exl2__cuda_matrix_of(of.matrix)->cut[0].columns == 0) {
        return EXL2_OK; /* the device has no columns of it */
    }
    if (!exl2__cuda_lora_serves(m, of) || (m->pass.apart && !exl2__cuda_lora_needs(m, of))) {
        return exl2__cuda_multiply_base(m, of, kind, a, rows);
    }
    bool apart = exl2__cuda_matrix_of(of.matrix)->order.apart;
    if (m->plan->shape.exl3 || (apart && m->pass.apart)) {
        return exl2__cuda_lora_natural(m, of, kind, a, rows);
    }
    if (apart) { /* its parts have products of their own, which add what adapters add */
        return exl2__cuda_multiply_base(m, of, kind, a, rows);
    }
    exl2__cuda_columns_shift(m, exl2__cuda_matrix_of(of.matrix), kind, m->pass.by_gemm, a);
    return m->pass.by_gemm ? exl2__cuda_lora_many(m, of, kind, a, rows)
                           : exl2__cuda_lora_product(m, of, 0, a->x, kind, a, rows);
}

#endif

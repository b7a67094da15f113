/* cuda_split.h: products of q, k, v and of gate, up whose parts order their inputs differently.
   takes: a model with a current pass; rows in natural order.
   gives: exl2__cuda_split_product, exl2__cuda_split_store.

   No known converter writes such files, but the format allows them. The kernel that writes rows for such a matrix has
   no map, so the rows are in natural order. For each part, some rows at a time are permuted to the order of that
   part and multiplied with it. Adapters read the rows in natural order. */
#ifndef EXL2__CUDA_SPLIT_H
#define EXL2__CUDA_SPLIT_H

#include "../../../kernels_src/gather_args.h"
#include "cuda_lora.h"
#include "cuda_settle.h"

/* out = x * matrix, as a.out says, for a.rows <= EXL2__CUDA_SPLIT_ROWS rows at a.x. */
EXL2__PRIVATE exl2_result exl2__cuda_split_rows(exl2__cuda_model *m, exl2__operand of, exl2k_gemv_args a)
{
    const exl2__cuda_matrix *w = exl2__cuda_matrix_of(of.matrix);
    bool adapted = exl2__cuda_lora_serves(m, of) && exl2__cuda_lora_fused(m);
    uint64_t x = a.x;
    a.x = m->b.split_x;
    for (uint32_t i = 0; i < w->device.parts; i++) {
        exl2__cuda_matrix one = exl2__cuda_split_part(w, i);
        exl2k_gather_args gather = { .from = x, .to = a.x, .map = one.order.inputs[0], .rows_at = exl2__cuda_rows_at(m),
                                     .count = w->in, .pitch = a.x_pitch };
        exl2__cuda_grid grid = { .x = a.rows, .y = 1, .threads = EXL2K_GATHER_THREADS };
        EXL2__TRY(exl2__cuda_chain(m, EXL2__KERNEL_exl2k_gather, grid, &gather));
        exl2k_gemv_args part = a;
        of.matrix = (const exl2__matrix *)(const void *)&one;
        EXL2__TRY(adapted ? exl2__cuda_lora_product(m, of, i, x, EXL2__CUDA_STORE, &part, a.rows)
                          : exl2__cuda_product(m, of.matrix, EXL2__CUDA_STORE, &part, a.rows));
    }
    return EXL2_OK;
}

/* out = x * matrix, part beside part. */
EXL2__PRIVATE exl2_result exl2__cuda_split_store(exl2__cuda_model *m, exl2__operand of, exl2k_gemv_args a,
                                                 uint32_t rows)
{
    for (uint32_t row = 0; row < rows; row += a.rows) {
        a.rows = exl2__min32(rows - row, EXL2__CUDA_SPLIT_ROWS);
        EXL2__TRY(exl2__cuda_split_rows(m, of, a));
        exl2__cuda_product_next(&a, EXL2__CUDA_STORE, a.rows);
    }
    return EXL2_OK;
}

/* out = act(x * gate) * (x * up). */
EXL2__PRIVATE exl2_result exl2__cuda_split_gate_up(exl2__cuda_model *m, exl2__operand of, exl2k_gemv_args a,
                                                   uint32_t rows)
{
    uint32_t inter = exl2__cuda_matrix_of(of.matrix)->device.part[0].columns;
    exl2k_act_mul_args join = { .from = m->b.split_out, .to = a.out, .rows_at = exl2__cuda_rows_at(m), .count = inter,
                                .pitch = a.out_pitch, .act = exl2__cuda_act(m),
                                .act_limit = m->plan->shape.act_limit };
    a.out_pitch = 2 * inter;
    for (uint32_t row = 0; row < rows; row += a.rows) {
        a.rows = exl2__min32(rows - row, EXL2__CUDA_SPLIT_ROWS);
        a.out = m->b.split_out;
        EXL2__TRY(exl2__cuda_split_rows(m, of, a));
        exl2__cuda_grid grid = { .x = a.rows, .y = 1, .threads = EXL2K_GATHER_THREADS };
        EXL2__TRY(exl2__cuda_chain(m, EXL2__KERNEL_exl2k_act_mul, grid, &join));
        join.to += (uint64_t)a.rows * join.pitch * 2;
        exl2__cuda_product_next(&a, EXL2__CUDA_STORE, a.rows);
    }
    return EXL2_OK;
}

/* a: as for a matrix whose parts share one order. In passes of many rows a separate kernel has normalised the input, so
   there are no sums of squares. */
EXL2__PRIVATE exl2_result exl2__cuda_split_product(exl2__cuda_model *m, exl2__operand of, exl2__cuda_kind kind,
                                                   exl2k_gemv_args a, uint32_t rows)
{
    if (m->pass.by_gemm) {
        a.sums_now = a.sums_before = 0;
    }
    return kind == EXL2__CUDA_ACT ? exl2__cuda_split_gate_up(m, of, a, rows) : exl2__cuda_split_store(m, of, a, rows);
}

#endif

/* cuda_split.h: products of q, k, v and of gate, up whose parts order their inputs differently.
   takes: a model with a current pass; rows in natural order.
   gives: exl2__cuda_split_qkv, exl2__cuda_split_gate_up.

   No known converter writes such files, but the format allows them. The kernel that writes rows for such a matrix has
   no map, so the rows are in natural order. For each part, eight rows at a time are permuted to the order of that
   part and multiplied with it. */
#ifndef EXL2__CUDA_SPLIT_H
#define EXL2__CUDA_SPLIT_H

#include "../../../kernels_src/gather_args.h"
#include "cuda_settle.h"

/* Part `index` as a separate matrix. Its results keep their columns in the whole output. */
EXL2__PRIVATE exl2__cuda_matrix exl2__cuda_split_part(const exl2__cuda_matrix *matrix, uint32_t index)
{
    exl2__cuda_matrix one = *matrix;
    one.device.part[0] = matrix->device.part[index];
    one.device.parts = 1;
    one.device.interleaved = 0;
    one.device.strips = one.device.part[0].strips;
    exl2__cuda_matrix_firsts(&one.device);
    one.map = matrix->maps[index];
    return one;
}

/* out = x * matrix, as a.out says, for a.rows <= EXL2__CUDA_SPLIT_ROWS rows at a.x. */
EXL2__PRIVATE exl2_result exl2__cuda_split_rows(exl2__cuda_model *m, const exl2__matrix *matrix, exl2k_gemv_args a)
{
    const exl2__cuda_matrix *w = exl2__cuda_matrix_of(matrix);
    uint64_t x = a.x;
    a.x = m->b.split_x;
    for (uint32_t i = 0; i < w->device.parts; i++) {
        exl2__cuda_matrix one = exl2__cuda_split_part(w, i);
        exl2k_gather_args gather = { .from = x, .to = a.x, .map = one.map, .rows_at = exl2__cuda_rows_at(m),
                                     .count = w->in, .pitch = a.x_pitch };
        exl2__cuda_grid grid = { .x = a.rows, .y = 1, .threads = EXL2K_GATHER_THREADS };
        EXL2__TRY(exl2__cuda_chain(m, EXL2__KERNEL_exl2k_gather, grid, &gather));
        exl2k_gemv_args part = a;
        EXL2__TRY(exl2__cuda_product(m, (const exl2__matrix *)(const void *)&one, EXL2__CUDA_STORE, &part, a.rows));
    }
    return EXL2_OK;
}

/* In a pass of many rows the input is normalised by a separate kernel, without sums of squares. */
EXL2__PRIVATE exl2_result exl2__cuda_split_begin(exl2__cuda_model *m, const exl2__vector *norm,
                                                 const exl2__matrix *matrix, exl2k_gemv_args *a)
{
    if (!m->pass.by_gemm) {
        return EXL2_OK;
    }
    a->sums_now = a->sums_before = 0;
    return exl2__cuda_norm_all(m, norm, matrix);
}

/* a: as for a matrix whose parts share one order. */
EXL2__PRIVATE exl2_result exl2__cuda_split_qkv(exl2__cuda_model *m, const exl2__layer *layer, exl2k_gemv_args a)
{
    EXL2__TRY(exl2__cuda_split_begin(m, layer->attn_norm.weight, layer->matrix[EXL2__ROLE_QKV], &a));
    for (uint32_t row = 0; row < m->pass.row_count; row += a.rows) {
        a.rows = exl2__min32(m->pass.row_count - row, EXL2__CUDA_SPLIT_ROWS);
        EXL2__TRY(exl2__cuda_split_rows(m, layer->matrix[EXL2__ROLE_QKV], a));
        exl2__cuda_product_next(&a, EXL2__CUDA_STORE, a.rows);
    }
    return EXL2_OK;
}

/* a: as for a matrix whose parts share one order; its out is that of act(gate) * up. */
EXL2__PRIVATE exl2_result exl2__cuda_split_gate_up(exl2__cuda_model *m, const exl2__layer *layer, exl2k_gemv_args a)
{
    uint32_t inter = exl2__cuda_matrix_of(layer->matrix[EXL2__ROLE_DOWN])->in;
    exl2k_act_mul_args join = { .from = m->b.split_out, .to = a.out, .rows_at = exl2__cuda_rows_at(m), .count = inter,
                                .pitch = a.out_pitch, .act = exl2__cuda_act(m),
                                .act_limit = m->plan->shape.act_limit };
    EXL2__TRY(exl2__cuda_split_begin(m, layer->mlp_norm.weight, layer->matrix[EXL2__ROLE_GATE_UP], &a));
    a.out_pitch = 2 * inter;
    for (uint32_t row = 0; row < m->pass.row_count; row += a.rows) {
        a.rows = exl2__min32(m->pass.row_count - row, EXL2__CUDA_SPLIT_ROWS);
        a.out = m->b.split_out;
        EXL2__TRY(exl2__cuda_split_rows(m, layer->matrix[EXL2__ROLE_GATE_UP], a));
        exl2__cuda_grid grid = { .x = a.rows, .y = 1, .threads = EXL2K_GATHER_THREADS };
        EXL2__TRY(exl2__cuda_chain(m, EXL2__KERNEL_exl2k_act_mul, grid, &join));
        join.to += (uint64_t)a.rows * join.pitch * 2;
        exl2__cuda_product_next(&a, EXL2__CUDA_STORE, a.rows);
    }
    return EXL2_OK;
}

#endif

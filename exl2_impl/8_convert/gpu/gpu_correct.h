/* gpu_correct.h: corrected targets on the GPU (quantizer/correct.h says what they are).
   takes: the input of the original model and that of the quantized one, as the input on the GPU, in turns; a factor; an
          open quantizer with its weights.
   gives: exl2__gpu_correct_begin, exl2__gpu_correct_keep, exl2__gpu_correct_add, exl2__gpu_correct_finish,
          exl2__gpu_correct_weights.
   owns:  nothing. The context need not be current. */
#ifndef EXL2__GPU_CORRECT_H
#define EXL2__GPU_CORRECT_H

#include "gpu_solve.h"

#ifndef EXL2_NO_CUDA

/* Begins the sums of an input. */
EXL2__PRIVATE exl2_result exl2__gpu_correct_begin(exl2__gpu *g, uint32_t in)
{
    exl2k_u64 cross;
    uint64_t bytes = (uint64_t)in * in * sizeof(float);
    EXL2__TRY(exl2__cuda_device_enter(g->d));
    exl2_result result = exl2__gpu_need(g, bytes, EXL2__GPU_CROSS, &cross);
    return exl2__cuda_device_leave_with(g->d, result < 0 ? result : exl2__gpu_fill(g, cross, bytes));
}

/* Keeps the input: it is the original model's. */
EXL2__PRIVATE exl2_result exl2__gpu_correct_keep(exl2__gpu *g)
{
    exl2k_u64 other;
    uint64_t bytes = (uint64_t)g->rows * g->in * sizeof(float);
    EXL2__TRY(exl2__cuda_device_enter(g->d));
    exl2_result result = exl2__gpu_need(g, bytes, EXL2__GPU_OTHER, &other);
    return exl2__cuda_device_leave_with(g->d, result < 0 ? result : exl2__gpu_copy(g, other, g->input, bytes));
}

EXL2__PRIVATE exl2_result exl2__gpu_correct_add_steps(exl2__gpu *g)
{
    uint32_t pitch = (uint32_t)exl2__align_up(g->rows, EXL2K_HALF_DEPTH);
    exl2k_half_columns_args a = { .x = g->scratch[EXL2__GPU_OTHER].address, .minus = g->input, .in = g->in,
                                  .rows = g->rows, .pitch = pitch };
    EXL2__TRY(exl2__gpu_need(g, exl2__align_up(g->in, EXL2K_HALF_TILE) * pitch * 2, EXL2__GPU_OTHER_COLUMNS, &a.out));
    EXL2__TRY(exl2__gpu_need(g, g->in * sizeof(float), EXL2__GPU_OTHER_SCALES, &a.scale));
    exl2k_half_product_args p = { .a = a.out, .b = g->scratch[EXL2__GPU_COLUMNS].address,
                                  .c = g->scratch[EXL2__GPU_CROSS].address, .a_scale = a.scale,
                                  .b_scale = g->scratch[EXL2__GPU_COLUMN_SCALES].address, .m = g->in, .n = g->in,
                                  .k = pitch, .c_pitch = g->in, .add = 1 };
    EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_half_columns, g->in / 32, 1, 256, 0, &a));
    return exl2__gpu_half_product(g, &p);
}

/* The input is the quantized model's now, and its moments were added just before. */
EXL2__PRIVATE exl2_result exl2__gpu_correct_add(exl2__gpu *g)
{
    EXL2__TRY(exl2__cuda_device_enter(g->d));
    return exl2__cuda_device_leave_with(g->d, exl2__gpu_correct_add_steps(g));
}

EXL2__PRIVATE exl2_result exl2__gpu_correct_finish_steps(const exl2__gpu_factor *f, uint32_t in, float share)
{
    exl2__gpu *g = f->gpu;
    uint64_t bytes = (uint64_t)in * in * sizeof(float);
    exl2k_correct_args a = { .cross = g->scratch[EXL2__GPU_CROSS].address, .order = f->order.address,
                             .feedback = f->feedback.address, .in = in, .factor = share };
    EXL2__TRY(exl2__gpu_need(g, bytes, EXL2__GPU_TURNED, &a.turned));
    EXL2__TRY(exl2__gpu_need(g, bytes, EXL2__GPU_LOWER, &a.lower));
    EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_correct_read, (uint32_t)exl2__div_up(in, 256), in, 256, 0, &a));
    return exl2__gpu_launch(g, EXL2__KERNEL_exl2k_correct_turn, in / 32, in / 32, 256, 0, &a);
}

/* Brings the sums, times `share`, into the order of a factor of the same input. */
EXL2__PRIVATE exl2_result exl2__gpu_correct_finish(const exl2__gpu_factor *f, uint32_t in, float share)
{
    EXL2__TRY(exl2__cuda_device_enter(f->gpu->d));
    return exl2__cuda_device_leave_with(f->gpu->d, exl2__gpu_correct_finish_steps(f, in, share));
}

/* One block of rows, after what the blocks before account for: matrix [k, rows of the block]' g [k], from row `first`
   of both on. */
EXL2__PRIVATE exl2_result exl2__gpu_correct_block(exl2__gpu_solve *s, exl2k_correct_args *a, uint64_t matrix,
                                                  uint32_t first, uint32_t k)
{
    s->a.row = a->row;
    s->a.rows = a->rows;
    EXL2__TRY(exl2__gpu_solve_product(s, matrix + (uint64_t)first * a->in * sizeof(float), k,
                                      a->g + (uint64_t)first * EXL2K_CONVERT_STRIP * sizeof(float)));
    a->slices = k ? s->a.slices : 0;
    return exl2__gpu_launch(s->g, EXL2__KERNEL_exl2k_correct_solve, s->a.strips, 1, EXL2K_SOLVE_THREADS,
                            a->rows * EXL2K_CONVERT_STRIP * (uint32_t)sizeof(float), a);
}

EXL2__PRIVATE exl2_result exl2__gpu_correct_weights_steps(exl2__gpu_solve *s, const exl2__gpu_factor *f, float factor,
                                                          float most)
{
    exl2__gpu *g = s->g;
    uint32_t in = s->a.in;
    uint64_t strip = (uint64_t)in * EXL2K_CONVERT_STRIP;
    exl2k_correct_args a = { .feedback = f->feedback.address, .diagonal = f->diagonal.address, .g = s->a.errors,
                             .weights = s->a.weights, .partial = s->a.partial, .in = in, .factor = factor,
                             .most = most };
    exl2k_float_product_args p = { .a = g->scratch[EXL2__GPU_TURNED].address, .b = a.weights, .c = a.g,
                                   .b_strip = strip, .c_strip = strip, .m = in, .n = s->a.columns, .k = in,
                                   .a_pitch = in, .b_width = EXL2K_CONVERT_STRIP, .c_width = EXL2K_CONVERT_STRIP,
                                   .factor = 1 };
    EXL2__TRY(exl2__gpu_float_product(g, &p, 1));
    for (uint32_t end = in; end > 0; end = a.row) {
        a.row = end > EXL2K_SOLVE_ROWS ? end - EXL2K_SOLVE_ROWS : 0;
        a.rows = end - a.row;
        EXL2__TRY(exl2__gpu_correct_block(s, &a, g->scratch[EXL2__GPU_LOWER].address, end, in - end));
    }
    a.down = 1;
    for (a.row = 0; a.row < in; a.row += a.rows) {
        a.rows = exl2__min32(EXL2K_SOLVE_ROWS, in - a.row);
        EXL2__TRY(exl2__gpu_correct_block(s, &a, a.feedback, 0, a.row));
    }
    return exl2__gpu_launch(g, EXL2__KERNEL_exl2k_correct_add, s->a.strips, 1, EXL2K_SOLVE_THREADS, 0, &a);
}

/* Changes the weights to their targets, after exl2__gpu_correct_finish with the same factor. factor: what the step is
   multiplied by; most: the largest weight, above which the strip stays as it is. */
EXL2__PRIVATE exl2_result exl2__gpu_correct_weights(exl2__gpu_solve *s, const exl2__gpu_factor *f, float factor,
                                                    float most)
{
    EXL2__TRY(exl2__cuda_device_enter(s->g->d));
    return exl2__cuda_device_leave_with(s->g->d, exl2__gpu_correct_weights_steps(s, f, factor, most));
}
#endif

#endif

/* cuda_steer.h: control vectors of the rows of a pass: what is added to the residual after each layer.
   takes: a model with a current pass.
   gives: exl2__cuda_steer_rows, exl2__cuda_steer_fill, exl2__cuda_steer_layer, exl2__cuda_steer_add.

   A launch in each layer would cost a row 2 to 4 %. In passes of few rows the kernel that ends a layer (`down`, the
   experts' `down`, or `settle`) adds a row to the residual before the next norm reads it. One launch when the pass
   begins makes these rows for all layers (kernels_src/steer_args.h). Passes without control vectors have kernels and
   graphs of their own, which control vectors do not change. In passes of many rows, which run by GEMM, the addition is
   a launch of its own. It is one, too, before a product of few rows that adds adapters, as that kernel has no registers
   left. So the phase `steer` has nothing to do. In layers whose MLPs the host computes, the host adds the control
   vectors. */
#ifndef EXL2__CUDA_STEER_H
#define EXL2__CUDA_STEER_H

#include "cuda_meet.h"

/* Rows that the kernel at the end of a layer adds to the residual; 0: it adds none. */
static inline uint64_t exl2__cuda_steer_rows(const exl2__cuda_model *m, const exl2__layer *layer)
{
    uint64_t bytes = EXL2K_STEER_ROWS * (uint64_t)m->plan->shape.hidden * sizeof(float);
    bool adds = exl2__cuda_steers_few(m) && !exl2__plan_is_host(m->plan, layer->index);
    return adds ? m->b.steered + (layer->index - exl2__plan_first(m->plan)) * bytes : 0;
}

EXL2__PRIVATE exl2_result exl2__cuda_steer_launch(exl2__cuda_model *m, exl2__cuda_kernel kernel, uint32_t layer,
                                                  uint32_t layers)
{
    exl2k_steer_args a = { .rows_at = m->pass.groups + offsetof(exl2k_pass, row_count),
                           .row_sets = m->pass.row_steers, .sets = m->pass.steers, .vectors = m->b.steers,
                           .added = m->b.steered, .residual = m->b.residual,
                           .layers = exl2__cuda_steer_layers(m->plan), .hidden = m->plan->shape.hidden,
                           .layer = layer };
    exl2__cuda_grid grid = { .x = (uint32_t)exl2__div_up(a.hidden, EXL2K_STEER_THREADS), .y = m->pass.row_count,
                             .z = layers, .threads = EXL2K_STEER_THREADS };
    return exl2__cuda_chain(m, kernel, grid, &a);
}

/* At the beginning of a pass. */
EXL2__PRIVATE exl2_result exl2__cuda_steer_fill(exl2__cuda_model *m)
{
    uint32_t layers = exl2__cuda_steer_layers(m->plan);
    bool fills = exl2__cuda_steers_few(m) && layers > 0;
    return fills ? exl2__cuda_steer_launch(m, EXL2__KERNEL_exl2k_steer_fill, 0, layers) : EXL2_OK;
}

/* Adds those of a layer to the residual. */
EXL2__PRIVATE exl2_result exl2__cuda_steer_layer(exl2__cuda_model *m, const exl2__layer *layer)
{
    return exl2__cuda_steer_launch(m, EXL2__KERNEL_exl2k_steer_add, layer->index - exl2__plan_first(m->plan), 1);
}

/* At the end of a layer, before `settle`. Other GPUs may still read the residual. */
EXL2__PRIVATE exl2_result exl2__cuda_steer_add(exl2__cuda_model *m, const exl2__layer *layer)
{
    bool adds = m->pass.steered && m->pass.by_gemm && !exl2__plan_is_host(m->plan, layer->index);
    EXL2__TRY(adds ? exl2__cuda_meet_all(m) : EXL2_OK);
    return adds ? exl2__cuda_steer_layer(m, layer) : EXL2_OK;
}

#endif

/* cuda_lora.h: what adapters add to products on the GPU, and their memory.
   takes: a model with a current pass that has rows with adapters; operands (phases.h).
   gives: exl2__cuda_lora_needs, exl2__cuda_lora_args, exl2__cuda_lora_shrink, exl2__cuda_lora_expand,
          exl2__cuda_lora_act; exl2__cuda_loras.
   owns:  the blocks of adapters, until `close`.

   Rows with adapters have passes of their own, of at most EXL2__CUDA_LORA_ROWS rows, prompts too. Such a pass runs by
   the products and by the attention of few sampled rows, kernel by kernel: its graphs are not captured. So a row's bits
   depend on its set alone, and passes without adapters are what they were.

   t = A x is a kernel before the base's product. B t is added to the residual before the product that adds to it, and
   to stored outputs after their product. Gate and up, whose product applies the activation, are multiplied once more
   without it; B t and the activation follow, and replace h of the rows with adapters. */
#ifndef EXL2__CUDA_LORA_H
#define EXL2__CUDA_LORA_H

#include "cuda_split.h"

/* Whether an adapter of the pass adds something to the operand. */
EXL2__PRIVATE bool exl2__cuda_lora_needs(const exl2__cuda_model *m, exl2__operand of)
{
    bool needs = false;
    if (!m->pass.adapted || !of.layer) {
        return false;
    }
    uint32_t parts = exl2__cuda_matrix_of(of.matrix)->device.parts;
    for (uint32_t s = 0; s < m->step->lora_set_count; s++) {
        const exl2__lora_set *set = &m->step->lora_sets[s];
        for (uint32_t u = 0; u < set->count * parts; u++) {
            needs = needs || exl2__operand_lora(set->uses[u / parts].store, of, u % parts)->rank > 0;
        }
    }
    return needs;
}

/* ---- kernels ---- */

EXL2__PRIVATE exl2k_lora_args exl2__cuda_lora_args(const exl2__cuda_model *m, exl2__operand of,
                                                   const exl2k_gemv_args *g)
{
    const exl2k_matrix *w = &exl2__cuda_matrix_of(of.matrix)->device;
    const exl2__plan *p = m->plan;
    uint32_t places = exl2__lora_places(p->shape.experts.count);
    exl2k_lora_args a = {
        .rows = m->pass.loras, .t = m->b.lora_t, .x = g->x, .sums_now = g->sums_now, .sums_before = g->sums_before,
        .place = of.layer->index * places + exl2__role_lora_place(of.role, of.expert, 0), .parts = w->parts,
        .in = exl2__cuda_matrix_of(of.matrix)->in, .x_pitch = g->x_pitch, .x_step = g->x_step ? g->x_step : EXL2K_STEP,
        .rank_stride = exl2__cuda_lora_rank_stride(p), .stride = exl2__cuda_lora_stride(p),
        .slots = exl2__cuda_residual_ctas(m), .eps = p->shape.norm_eps,
        .inverse_hidden = 1.0f / (float)p->shape.hidden, .scale = g->scale, .act = exl2__cuda_act(m),
        .act_limit = p->shape.act_limit
    };
    for (uint32_t i = 0; i < w->parts; i++) {
        a.columns[i] = w->part[i].columns;
        a.column[i] = w->part[i].column;
    }
    return a;
}

EXL2__PRIVATE exl2_result exl2__cuda_lora_shrink(exl2__cuda_model *m, const exl2k_lora_args *a)
{
    uint32_t warps = EXL2K_LORA_THREADS / 32;
    exl2__cuda_grid grid = { .x = (uint32_t)exl2__div_up(a->stride, warps), .y = a->parts, .z = m->step->row_count,
                             .threads = EXL2K_LORA_THREADS };
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_lora_shrink, grid, a);
}

/* Adds B t to rows of out f32 [rows, pitch]. */
EXL2__PRIVATE exl2_result exl2__cuda_lora_expand(exl2__cuda_model *m, exl2k_lora_args a, uint64_t out, uint32_t pitch)
{
    uint32_t columns = exl2__max32(a.columns[0], exl2__max32(a.columns[1], a.columns[2]));
    exl2__cuda_grid grid = { .x = (uint32_t)exl2__div_up(columns, 2 * EXL2K_LORA_THREADS), .y = a.parts,
                             .z = m->step->row_count, .threads = EXL2K_LORA_THREADS };
    a.out = out;
    a.out_pitch = pitch;
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_lora_expand, grid, &a);
}

/* h of rows with adapters, from products of gate and up without activation. g: of the product with it. */
EXL2__PRIVATE exl2_result exl2__cuda_lora_act(exl2__cuda_model *m, exl2__operand of, exl2k_lora_args a,
                                              const exl2k_gemv_args *g)
{
    const exl2__cuda_matrix *w = exl2__cuda_matrix_of(of.matrix);
    uint32_t rows = m->step->row_count;
    for (uint32_t i = 0; i < w->device.parts; i++) {
        exl2__cuda_matrix one = exl2__cuda_split_part(w, i);
        exl2k_gemv_args store = *g;
        store.out = m->b.split_out;
        store.out_pitch = w->device.parts * w->device.part[0].columns;
        store.out_step = 0;
        store.out_half = 0;
        EXL2__TRY(exl2__cuda_product(m, (const exl2__matrix *)(const void *)&one, EXL2__CUDA_STORE, &store, rows));
    }
    a.from = m->b.split_out;
    a.out = g->out;
    a.out_pitch = g->out_pitch;
    a.out_step = g->out_step ? g->out_step : EXL2K_STEP;
    exl2__cuda_grid grid = { .x = (uint32_t)exl2__div_up(a.columns[0], 2 * EXL2K_LORA_THREADS), .y = 1, .z = rows,
                             .threads = EXL2K_LORA_THREADS };
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_lora_act, grid, &a);
}

/* ---- memory ---- */

EXL2__PRIVATE exl2_result exl2__cuda_lora_open(exl2__device *device, uint64_t bytes, uint64_t *block)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    *block = 0;
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_device_alloc(m->gpu, bytes, EXL2_MEM_WEIGHTS, block));
}

/* Passes that were dropped may still run. */
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

/* A's columns lie in the order of x of its matrix (cuda_order.h), rows of B of gate and up in that of `down`. */
EXL2__PRIVATE exl2_result exl2__cuda_lora_order(const exl2__device *device, exl2__operand of, uint32_t part,
                                                uint32_t *in_at, uint32_t *out_at)
{
    const exl2__cuda_model *m = exl2__cuda_of(device);
    (void)part;
    if (of.role >= EXL2__ROLE_ROUTER) {
        return exl2__fail(m->c, EXL2_ERR_UNSUPPORTED, "layer %u: adapters of routers and experts are not computed on "
                          "the GPU yet: open the engine with EXL2_BACKEND_CPU", of.layer->index);
    }
    const exl2__cuda_matrix *w = exl2__cuda_matrix_of(of.matrix);
    if (w->order.apart) {
        return exl2__fail(m->c, EXL2_ERR_UNSUPPORTED, "layer %u: adapters of matrices whose parts order their inputs "
                          "differently are not computed on the GPU: open the engine with EXL2_BACKEND_CPU",
                          of.layer->index);
    }
    for (uint32_t i = 0; w->order_host && i < w->in; i++) {
        in_at[i] = w->order_host[i];
    }
    const exl2__matrix *down = of.layer->matrix[EXL2__ROLE_DOWN];
    const uint16_t *outputs = w->order.by_down ? exl2__cuda_matrix_of(down)->order_host : NULL;
    for (uint32_t i = 0; outputs && i < w->device.part[0].columns; i++) {
        out_at[i] = outputs[i];
    }
    return EXL2_OK;
}

static const exl2__backend_loras exl2__cuda_loras = {
    .rows = EXL2__CUDA_LORA_ROWS, .open = exl2__cuda_lora_open, .close = exl2__cuda_lora_close,
    .write = exl2__cuda_lora_write, .order = exl2__cuda_lora_order,
};

#endif

/* cuda_phases.h: every phase of a pass: which kernels, with which arguments.
   takes: a model whose pass was begun.
   gives: exl2__cuda_phase_* for each phase of the list, exl2__cuda_collect.
   owns:  nothing.
   next:  cuda.h

   A phase only queues. Norms live in the products around them (kernels.md 3.1): what is written for a product is
   residual * weight * rho of the norm before, and the product multiplies its outputs by the missing factor. Passes of
   many rows have norms of their own, before products that read the weights once for 64 rows. */
#ifndef EXL2__CUDA_PHASES_H
#define EXL2__CUDA_PHASES_H

#include "../../kernels_src/copy_args.h"
#include "../../kernels_src/gemm_args.h"
#include "cuda_pass.h"

/* ---- products ---- */

typedef enum exl2__cuda_kind { /* as exl2k_gemv_args.kind */
    EXL2__CUDA_STORE = EXL2K_GEMV_STORE, EXL2__CUDA_RESIDUAL = EXL2K_GEMV_RESIDUAL, EXL2__CUDA_ACT = EXL2K_GEMV_ACT,
    EXL2__CUDA_HEAD = EXL2K_GEMV_HEAD
} exl2__cuda_kind;

static inline void exl2__cuda_move(exl2k_u64 *address, uint64_t bytes)
{
    *address += *address ? bytes : 0;
}

/* `a` for the rows behind the first `rows`. */
static void exl2__cuda_product_next(exl2k_gemv_args *a, exl2__cuda_kind kind, uint32_t rows)
{
    uint64_t slots = (uint64_t)rows * EXL2K_SLOTS_MAX * sizeof(float);
    bool half = kind == EXL2__CUDA_RESIDUAL || kind == EXL2__CUDA_ACT;
    exl2__cuda_move(&a->x, (uint64_t)rows * a->x_pitch * 2);
    exl2__cuda_move(&a->out, (uint64_t)rows * a->out_pitch * (half ? 2 : 4));
    exl2__cuda_move(&a->residual, (uint64_t)rows * a->residual_pitch * 4);
    exl2__cuda_move(&a->sums_now, slots);
    exl2__cuda_move(&a->sums_before, slots);
    exl2__cuda_move(&a->sums_out, slots);
    exl2__cuda_move(&a->best, 2 * slots);
}

/* Any number of rows, eight at a time. `a` holds all but the matrix, rows and shared memory. */
static exl2_result exl2__cuda_product(exl2__cuda_model *m, const exl2__matrix *matrix, exl2__cuda_kind kind,
                                      exl2k_gemv_args a, uint32_t rows)
{
    const exl2__cuda_matrix *w = exl2__cuda_matrix_of(matrix);
    a.matrix = w->device;
    a.eps = m->plan->shape.norm_eps;
    a.inverse_hidden = 1.0f / (float)m->plan->shape.hidden;
    a.slots = m->form.ctas;
    a.kind = kind;
    for (uint32_t done = 0; done < rows; done += a.rows) {
        a.rows = exl2__min32(rows - done, 8);
        uint32_t lanes = a.rows == 1 ? 1 : 8;
        uint32_t shared = exl2__cuda_gemv_shared(&a, w->chunk_bytes, lanes, m->form.ctas, m->form.shared_bytes);
        if (shared == 0) {
            return exl2__fail(m->c, EXL2_ERR_UNSUPPORTED, "GPU %s: %u bytes of shared memory are too few for a product",
                              m->gpu->info.name, m->form.shared_bytes);
        }
        exl2__cuda_grid grid = { .x = m->form.ctas, .y = 1, .threads = EXL2K_GEMV_THREADS, .shared_bytes = shared };
        exl2__cuda_kernel kernel = lanes == 1 ? EXL2__KERNEL_exl2k_gemv1 : EXL2__KERNEL_exl2k_gemv8;
        EXL2__TRY(exl2__cuda_device_launch(m->gpu, kernel, grid, &a));
        exl2__cuda_product_next(&a, kind, a.rows);
    }
    return EXL2_OK;
}

/* ---- products of many rows ---- */

/* out and map as in gemm_args.h. */
static exl2_result exl2__cuda_many(exl2__cuda_model *m, const exl2__matrix *matrix, exl2__cuda_kind kind,
                                   exl2k_gemm_args a)
{
    static const exl2__cuda_kernel kernels[] = { EXL2__KERNEL_exl2k_gemm_store, EXL2__KERNEL_exl2k_gemm_residual,
                                                 EXL2__KERNEL_exl2k_gemm_act };
    exl2__cuda_grid grid = { .y = (uint32_t)exl2__div_up(m->step->row_count, EXL2K_GEMM_ROWS),
                             .threads = EXL2K_GEMM_THREADS, .shared_bytes = EXL2K_GEMM_SHARED };
    a.matrix = exl2__cuda_matrix_of(matrix)->device;
    a.rows = m->step->row_count;
    for (uint32_t i = 0; i < (kind == EXL2__CUDA_ACT ? 1 : a.matrix.parts); i++) {
        grid.x += (uint32_t)exl2__div_up(a.matrix.part[i].strips, EXL2K_GEMM_STRIPS);
    }
    return exl2__cuda_device_launch(m->gpu, kernels[kind], grid, &a);
}

/* Rows of the residual, normalised, as inputs of `reader`. */
static exl2_result exl2__cuda_norm(exl2__cuda_model *m, exl2k_norm_args a, uint32_t rows, const exl2__vector *weight,
                                   const exl2__matrix *reader)
{
    exl2__cuda_grid grid = { .x = rows, .y = 1, .threads = EXL2K_NORM_THREADS };
    a.residual = m->b.residual;
    a.weight = exl2__cuda_values(weight);
    a.map = exl2__cuda_matrix_of(reader)->map;
    a.hidden = a.residual_pitch = m->plan->shape.hidden;
    a.out_pitch = m->b.x_pitch;
    a.eps = m->plan->shape.norm_eps;
    return exl2__cuda_device_launch(m->gpu, EXL2__KERNEL_exl2k_norm, grid, &a);
}

static exl2_result exl2__cuda_norm_all(exl2__cuda_model *m, const exl2__vector *weight, const exl2__matrix *reader)
{
    exl2k_norm_args a = { .rows_at = m->pass.steps + offsetof(exl2k_step, row_count), .out = m->b.x };
    return exl2__cuda_norm(m, a, m->step->row_count, weight, reader);
}

/* ---- norms between products ---- */

static inline uint64_t exl2__cuda_sums(const exl2__cuda_model *m, uint32_t later)
{
    return m->b.sums[(m->pass.now + later) % EXL2__CUDA_SUMS];
}

/* Of the norm before the one now; 0 when there is none. */
static inline uint64_t exl2__cuda_sums_before(const exl2__cuda_model *m)
{
    return m->pass.first ? 0 : exl2__cuda_sums(m, EXL2__CUDA_SUMS - 1);
}

/* r += x * matrix; then what the next norm's product will read. */
static exl2_result exl2__cuda_residual(exl2__cuda_model *m, const exl2__matrix *matrix, uint64_t x, uint32_t x_pitch,
                                       const exl2__vector *next_norm, const exl2__matrix *next)
{
    if (m->pass.many) {
        exl2k_gemm_args many = { .x = x, .x_pitch = x_pitch, .out = m->b.residual,
                                 .out_pitch = m->plan->shape.hidden };
        return exl2__cuda_many(m, matrix, EXL2__CUDA_RESIDUAL, many);
    }
    exl2k_gemv_args a = {
        .x = x, .x_pitch = x_pitch, .out = m->b.x, .out_pitch = m->b.x_pitch, .residual = m->b.residual,
        .residual_pitch = m->plan->shape.hidden, .weight = exl2__cuda_values(next_norm),
        .map = next ? exl2__cuda_matrix_of(next)->map : 0, .sums_before = exl2__cuda_sums(m, 0),
        .sums_out = exl2__cuda_sums(m, 1)
    };
    EXL2__TRY(exl2__cuda_product(m, matrix, EXL2__CUDA_RESIDUAL, a, m->step->row_count));
    m->pass.now = (m->pass.now + 1) % EXL2__CUDA_SUMS;
    m->pass.first = false;
    return EXL2_OK;
}

/* ---- phases ---- */

static exl2_result exl2__cuda_do_copy_pages(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    (void)layer;
    (void)range;
    exl2k_copy_args a = { .copies = m->pass.copies, .pages = m->b.pages, .count = m->step->copy_count,
                          .page_count = m->plan->pages, .page_bytes = m->b.page_bytes };
    exl2__cuda_grid grid = { .x = (uint32_t)exl2__div_up(m->b.page_bytes, 16 * EXL2K_COPY_THREADS),
                             .y = m->plan->shape.layers, .threads = EXL2K_COPY_THREADS };
    return exl2__cuda_device_launch(m->gpu, EXL2__KERNEL_exl2k_copy_pages, grid, &a);
}

static exl2_result exl2__cuda_do_embed(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    const exl2__cuda_matrix *table = exl2__cuda_matrix_of(m->plan->embed);
    const exl2__layer *first = &m->plan->layers[0];
    (void)layer;
    (void)range;
    exl2k_embed_args a = { .step = m->pass.steps, .rows = m->pass.rows, .table = table->table,
                           .residual = m->b.residual, .out = m->b.x, .map = exl2__cuda_matrix_of(first->qkv)->map,
                           .weight = exl2__cuda_values(first->attn_norm), .sums = exl2__cuda_sums(m, 0),
                           .table_rows = table->feed[0].rows, .hidden = m->plan->shape.hidden,
                           .kind = table->feed[0].type, .residual_pitch = m->plan->shape.hidden,
                           .out_pitch = m->b.x_pitch, .slots_pitch = EXL2K_SLOTS_MAX, .slots = m->form.ctas };
    exl2__cuda_grid grid = { .x = m->step->row_count, .y = 1, .threads = EXL2K_EMBED_THREADS };
    return exl2__cuda_device_launch(m->gpu, EXL2__KERNEL_exl2k_embed, grid, &a);
}

static exl2_result exl2__cuda_do_qkv(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    exl2k_gemv_args a = { .x = m->b.x, .x_pitch = m->b.x_pitch, .out = m->b.qkv, .out_pitch = m->b.qkv_pitch,
                          .sums_now = exl2__cuda_sums(m, 0), .sums_before = exl2__cuda_sums_before(m) };
    (void)range;
    if (m->pass.many) {
        exl2k_gemm_args many = { .x = a.x, .x_pitch = a.x_pitch, .out = a.out, .out_pitch = a.out_pitch };
        EXL2__TRY(exl2__cuda_norm_all(m, layer->attn_norm, layer->qkv));
        return exl2__cuda_many(m, layer->qkv, EXL2__CUDA_STORE, many);
    }
    return exl2__cuda_product(m, layer->qkv, EXL2__CUDA_STORE, a, m->step->row_count);
}

#define EXL2__CUDA_DECODE_STATIC 8192u /* at most, of shared memory, besides the rings */

/* The class of head sizes: 0: up to 64, 1: 128, 2: 256. */
static inline uint32_t exl2__cuda_head_class(uint32_t dim)
{
    return dim <= 64 ? 0 : dim <= 128 ? 1 : 2;
}

/* Rows [first, end), each the only one of its sequence: the kernel stores their K and V, too. */
static exl2_result exl2__cuda_decode(exl2__cuda_model *m, exl2k_attend_args a, uint32_t first, uint32_t end)
{
    static const exl2__cuda_kernel kernels[] = { EXL2__KERNEL_exl2k_attend_decode64,
                                                 EXL2__KERNEL_exl2k_attend_decode128,
                                                 EXL2__KERNEL_exl2k_attend_decode256 };
    uint32_t kind = exl2__cuda_head_class(a.dim), threads = kind == 2 ? 128 : 256;
    uint32_t stage = threads / 32 * 32 * (64u << kind);
    exl2__cuda_grid grid = { .x = m->pass.splits, .y = a.kv_heads * m->b.head_rows, .z = end - first,
                             .threads = threads };
    a.stages = 2 * stage + EXL2__CUDA_DECODE_STATIC <= m->form.shared_bytes ? 2 : 1;
    a.rows += first * sizeof(exl2k_row);
    a.qkv += (uint64_t)first * a.qkv_pitch * sizeof(float);
    a.out += (uint64_t)first * a.out_pitch * 2;
    grid.shared_bytes = a.stages * stage;
    return exl2__cuda_device_launch(m->gpu, kernels[kind], grid, &a);
}

/* All other rows. */
static exl2_result exl2__cuda_prefill(exl2__cuda_model *m, const exl2k_attend_args *a)
{
    static const exl2__cuda_kernel kernels[] = { EXL2__KERNEL_exl2k_attend_prefill64,
                                                 EXL2__KERNEL_exl2k_attend_prefill128,
                                                 EXL2__KERNEL_exl2k_attend_prefill256 };
    exl2__cuda_grid store = { .x = m->step->row_count, .y = 1, .threads = 256 };
    exl2__cuda_grid grid = { .x = m->pass.tile_count, .y = a->kv_heads, .z = a->dim > 128 ? 2 : 1, .threads = 256 };
    EXL2__TRY(exl2__cuda_device_launch(m->gpu, EXL2__KERNEL_exl2k_attend_store, store, a));
    return exl2__cuda_device_launch(m->gpu, kernels[exl2__cuda_head_class(a->dim)], grid, a);
}

static exl2_result exl2__cuda_do_attend(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    const exl2__shape *s = &m->plan->shape;
    (void)range;
    exl2k_attend_args a = { .step = m->pass.steps, .rows = m->pass.rows, .tables = m->pass.tables, .qkv = m->b.qkv,
                            .rope = m->b.rope, .out = m->b.attended, .map = exl2__cuda_matrix_of(layer->out)->map,
                            .partial = m->b.partial, .tickets = m->b.attend_tickets, .tiles = m->pass.tiles,
                            .qkv_pitch = m->b.qkv_pitch, .out_pitch = m->b.attended_pitch,
                            .table_pitch = m->pass.table_pitch, .page_bytes = m->b.page_bytes, .heads = s->heads,
                            .kv_heads = s->kv_heads, .group = s->heads / s->kv_heads, .dim = s->head_dim,
                            .scale = s->attn_scale };
    a.pages = m->b.pages + (uint64_t)layer->index * m->plan->pages * m->b.page_bytes;
    EXL2__TRY(m->pass.tile_count ? exl2__cuda_prefill(m, &a) : EXL2_OK);
    for (uint32_t first = 0, end; first < m->step->row_count; first = end) {
        if (exl2__cuda_run(m->step, first, &end)) {
            EXL2__TRY(exl2__cuda_decode(m, a, first, end));
        }
    }
    return EXL2_OK;
}

static exl2_result exl2__cuda_do_out(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    (void)range;
    return exl2__cuda_residual(m, layer->out, m->b.attended, m->b.attended_pitch, layer->mlp_norm, layer->gate_up);
}

static exl2_result exl2__cuda_do_gate_up(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    exl2k_gemv_args a = { .x = m->b.x, .x_pitch = m->b.x_pitch, .out = m->b.h, .out_pitch = m->b.h_pitch,
                          .map = exl2__cuda_matrix_of(layer->down)->map, .sums_now = exl2__cuda_sums(m, 0),
                          .sums_before = exl2__cuda_sums_before(m) };
    (void)range;
    if (m->pass.many) {
        exl2k_gemm_args many = { .x = a.x, .x_pitch = a.x_pitch, .out = a.out, .out_pitch = a.out_pitch,
                                 .map = a.map };
        EXL2__TRY(exl2__cuda_norm_all(m, layer->mlp_norm, layer->gate_up));
        return exl2__cuda_many(m, layer->gate_up, EXL2__CUDA_ACT, many);
    }
    return exl2__cuda_product(m, layer->gate_up, EXL2__CUDA_ACT, a, m->step->row_count);
}

static exl2_result exl2__cuda_do_down(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    bool last = layer->index + 1 == m->plan->shape.layers;
    (void)range;
    return exl2__cuda_residual(m, layer->down, m->b.h, m->b.h_pitch, last ? m->plan->final_norm : layer[1].attn_norm,
                               last ? NULL : layer[1].qkv);
}

/* The step that says how many rows of logits the group has. */
static inline uint64_t exl2__cuda_group_step(const exl2__cuda_model *m, const exl2__range *range)
{
    return m->pass.steps + range->logit0 / m->plan->logit_rows_max * sizeof(exl2k_step);
}

static exl2_result exl2__cuda_do_head(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    uint64_t step = exl2__cuda_group_step(m, range);
    (void)layer;
    exl2k_norm_args norm = { .rows_at = step + offsetof(exl2k_step, draw_count), .out = m->b.head_x,
                             .draws = m->pass.draws + range->logit0 * sizeof(exl2k_draw) };
    EXL2__TRY(exl2__cuda_norm(m, norm, range->logit_count, m->plan->final_norm, m->plan->head));
    exl2k_gemv_args a = { .x = m->b.head_x, .x_pitch = m->b.x_pitch, .out = m->b.logits, .out_pitch = m->b.stride,
                          .best = m->b.best };
    return exl2__cuda_product(m, m->plan->head, EXL2__CUDA_HEAD, a, range->logit_count);
}

static exl2_result exl2__cuda_do_sample(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    (void)layer;
    exl2k_sample_args a = { .step = exl2__cuda_group_step(m, range), .rows = m->pass.rows,
                            .draws = m->pass.draws + range->logit0 * sizeof(exl2k_draw), .logits = m->b.logits,
                            .adjusted = m->b.adjusted, .keys = m->b.keys, .sums = m->b.key_sums,
                            .states = m->b.sample_states, .results = (uint64_t)(uintptr_t)m->b.results,
                            .vocab = m->plan->shape.vocab, .stride = m->b.stride,
                            .rows_max = m->plan->logit_rows_max };
    exl2__cuda_grid grid = { .x = exl2__cuda_sample_chunks(a.vocab), .y = range->logit_count,
                             .threads = EXL2K_SAMPLE_THREADS };
    EXL2__TRY(exl2__cuda_device_launch(m->gpu, EXL2__KERNEL_exl2k_sample_keys, grid, &a));
    EXL2__TRY(exl2__cuda_device_launch(m->gpu, EXL2__KERNEL_exl2k_sample_draw, grid, &a));
    exl2__cuda_device_flush(m->gpu);
    int marked = m->gpu->driver.event_record(m->b.sampled, m->gpu->stream);
    return exl2__cuda_device_check(m->gpu, marked, "marking results");
}

/* PENDING while the device is still at it and wait is false. */
static exl2_result exl2__cuda_collect(exl2__device *device, uint32_t logit0, uint32_t count, bool wait,
                                      exl2__logit_result *results)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    const exl2__cuda_driver *driver = &m->gpu->driver;
    (void)logit0;
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    int state = wait ? driver->event_wait(m->b.sampled) : driver->event_query(m->b.sampled);
    exl2__cuda_device_leave(m->gpu);
    exl2_result r = exl2__cuda_device_check(m->gpu, state, "running a pass");
    if (r != EXL2_OK) {
        return r;
    }
    const exl2k_result *from = m->b.results + (m->pass.ticket & 1) * m->plan->logit_rows_max;
    for (uint32_t i = 0; i < count; i++) {
        exl2__cuda_sample_result(&from[i], &results[i]);
    }
    m->pass.ticket++;
    return EXL2_OK;
}

#define X(name)                                                                                                        \
    static exl2_result exl2__cuda_phase_##name(exl2__device *d, const exl2__layer *layer, const exl2__range *range)    \
    {                                                                                                                  \
        exl2__cuda_model *m = exl2__cuda_of(d);                                                                        \
        EXL2__TRY(exl2__cuda_device_enter(m->gpu));                                                                    \
        exl2_result r = exl2__cuda_do_##name(m, layer, range);                                                         \
        exl2__cuda_device_leave(m->gpu);                                                                               \
        return r;                                                                                                      \
    }
EXL2__PHASES(X)
#undef X

#endif

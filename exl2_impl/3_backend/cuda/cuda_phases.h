/* cuda_phases.h: every phase of a pass: which kernels it launches, with which arguments.
   takes: a model with a current pass.
   gives: exl2__cuda_do.
   owns:  nothing.

   A phase only enqueues kernels. In passes of few rows, norms are part of the products around them: a product writes
   residual * weight * rho, where rho is that of the previous norm, and the next product multiplies its outputs by the
   missing factor rho_now / rho_before (gemv_args.h). Passes of many rows run norms as separate kernels before GEMM. */
#ifndef EXL2__CUDA_PHASES_H
#define EXL2__CUDA_PHASES_H

#include "../../../kernels_src/copy_args.h"
#include "cuda_split.h"

/* ---- norms between products ---- */

static inline uint64_t exl2__cuda_sums(const exl2__cuda_model *m, uint32_t later)
{
    return m->b.sums[(m->pass.norm + later) % EXL2__CUDA_SUMS];
}

/* Sums of squares of the previous norm; 0 if there is none. */
static inline uint64_t exl2__cuda_sums_before(const exl2__cuda_model *m)
{
    return m->pass.first_norm ? 0 : exl2__cuda_sums(m, EXL2__CUDA_SUMS - 1);
}

/* r += x * matrix; then writes what the product of the next norm will read. */
static exl2_result exl2__cuda_residual(exl2__cuda_model *m, const exl2__matrix *matrix, uint64_t x, uint32_t x_pitch,
                                       const exl2__vector *next_norm, const exl2__matrix *next)
{
    if (m->pass.by_gemm) {
        exl2k_gemm_args gemm = { .x = x, .x_pitch = x_pitch, .out = m->b.residual,
                                 .out_pitch = m->plan->shape.hidden };
        return exl2__cuda_gemm(m, matrix, EXL2__CUDA_RESIDUAL, &gemm);
    }
    exl2k_gemv_args a = {
        .x = x, .x_pitch = x_pitch, .out = m->b.x, .out_pitch = m->b.x_pitch, .residual = m->b.residual,
        .residual_pitch = m->plan->shape.hidden, .weight = exl2__cuda_values(next_norm),
        .map = next ? exl2__cuda_matrix_of(next)->map : 0, .sums_before = exl2__cuda_sums(m, 0),
        .sums_out = exl2__cuda_sums(m, 1)
    };
    EXL2__TRY(exl2__cuda_product(m, matrix, EXL2__CUDA_RESIDUAL, &a, m->pass.row_count));
    m->pass.norm = (m->pass.norm + 1) % EXL2__CUDA_SUMS;
    m->pass.first_norm = false;
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
    EXL2__TRY(exl2__cuda_chain(m, EXL2__KERNEL_exl2k_copy_pages, grid, &a));
    m->pass.chained = false; /* attention reads pages before it waits for the preceding kernel */
    return EXL2_OK;
}

static exl2_result exl2__cuda_do_embed(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    const exl2__cuda_matrix *table = exl2__cuda_matrix_of(m->plan->embed);
    const exl2__layer *first = &m->plan->layers[0];
    (void)layer;
    (void)range;
    exl2k_embed_args a = { .pass = m->pass.groups, .rows = m->pass.rows, .table = table->table,
                           .residual = m->b.residual, .out = m->b.x, .map = exl2__cuda_matrix_of(first->qkv)->map,
                           .weight = exl2__cuda_values(first->attn_norm.weight), .sums = exl2__cuda_sums(m, 0),
                           .table_rows = table->feed[0].rows, .hidden = m->plan->shape.hidden,
                           .kind = table->feed[0].type, .residual_pitch = m->plan->shape.hidden,
                           .out_pitch = m->b.x_pitch, .slots_pitch = EXL2K_SLOTS_MAX,
                           .slots = exl2__cuda_residual_ctas(m) };
    uint32_t parts = (uint32_t)exl2__div_up(a.hidden, EXL2K_EMBED_THREADS);
    exl2__cuda_grid grid = { .x = m->pass.row_count, .y = m->pass.by_gemm ? 1 : exl2__min32(parts, a.slots),
                             .threads = EXL2K_EMBED_THREADS };
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_embed, grid, &a);
}

static exl2_result exl2__cuda_do_qkv(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    exl2k_gemv_args a = { .x = m->b.x, .x_pitch = m->b.x_pitch, .out = m->b.qkv, .out_pitch = m->b.qkv_pitch,
                          .sums_now = exl2__cuda_sums(m, 0), .sums_before = exl2__cuda_sums_before(m) };
    (void)range;
    if (exl2__cuda_matrix_of(layer->qkv)->split) {
        return exl2__cuda_split_qkv(m, layer, a);
    }
    if (m->pass.by_gemm) {
        exl2k_gemm_args gemm = { .x = a.x, .x_pitch = a.x_pitch, .out = a.out, .out_pitch = a.out_pitch };
        EXL2__TRY(exl2__cuda_norm_all(m, layer->attn_norm.weight, layer->qkv));
        return exl2__cuda_gemm(m, layer->qkv, EXL2__CUDA_STORE, &gemm);
    }
    return exl2__cuda_product(m, layer->qkv, EXL2__CUDA_STORE, &a, m->pass.row_count);
}

/* Splits of a row whose context has `tokens` tokens, as attend_args.h defines them. */
static inline uint32_t exl2__cuda_splits(uint32_t tokens)
{
    return (uint32_t)exl2__div_up(tokens, EXL2K_SPLIT_LENGTH(tokens));
}

#define EXL2__CUDA_DECODE_STATIC 8192u /* upper bound of static shared memory, besides the rings */

/* The class of head sizes. 0: up to 64, 1: 128, 2: 256. */
static inline uint32_t exl2__cuda_head_class(uint32_t dim)
{
    return dim <= 64 ? 0 : dim <= 128 ? 1 : 2;
}

/* Attention of rows [first, end), each the only one of its sequence. The kernel stores their K and V, too. */
static exl2_result exl2__cuda_decode(exl2__cuda_model *m, exl2k_attend_args a, uint32_t first, uint32_t end)
{
    static const exl2__cuda_kernel kernels[] = { EXL2__KERNEL_exl2k_attend_decode64,
                                                 EXL2__KERNEL_exl2k_attend_decode128,
                                                 EXL2__KERNEL_exl2k_attend_decode256 };
    static const uint32_t warps[] = { EXL2K_WARPS64, EXL2K_WARPS128, EXL2K_WARPS256 };
    uint32_t kind = exl2__cuda_head_class(a.dim), threads = warps[kind] * 32;
    uint32_t stage = threads / 32 * 32 * (64u << kind);
    exl2__cuda_grid grid = { .x = m->pass.splits ? m->pass.splits : exl2__cuda_splits(m->pass.longest_context),
                             .y = a.kv_heads * m->b.head_rows, .z = end - first, .threads = threads };
    uint32_t most = end - first == 1 ? 128u << 10 : 64u << 10; /* several rows: two CTAs on an SM */
    for (a.stages = exl2__min32(most / stage, 8); a.stages > 1; a.stages /= 2) {
        if (a.stages * stage + EXL2__CUDA_DECODE_STATIC <= m->limits.shared_bytes) {
            break;
        }
    }
    grid.shared_bytes = a.stages * stage;
    uint32_t shared = grid.shared_bytes + EXL2K_INBOX_BYTES(grid.x, a.dim);
    if (grid.x > 1 && grid.x <= EXL2K_CLUSTER_MAX && shared + EXL2__CUDA_DECODE_STATIC <= m->limits.shared_bytes
        && exl2__cuda_device_launches_with(m->gpu)) {
        grid.cluster = grid.x;
        grid.shared_bytes = shared;
    }
    a.rows += first * sizeof(exl2k_row);
    a.qkv += (uint64_t)first * a.qkv_pitch * sizeof(float);
    a.out += (uint64_t)first * a.out_pitch * 2;
    return exl2__cuda_chain(m, kernels[kind], grid, &a);
}

/* Attention of all other rows. */
static exl2_result exl2__cuda_prefill(exl2__cuda_model *m, const exl2k_attend_args *a)
{
    static const exl2__cuda_kernel kernels[] = { EXL2__KERNEL_exl2k_attend_prefill64,
                                                 EXL2__KERNEL_exl2k_attend_prefill128,
                                                 EXL2__KERNEL_exl2k_attend_prefill256 };
    exl2__cuda_grid store = { .x = m->pass.row_count, .y = 1, .threads = 256 };
    exl2__cuda_grid grid = { .x = m->pass.tile_count, .y = a->kv_heads,
                             .z = EXL2K_ATTEND_PARTS * (a->dim > 128 ? 2 : 1), .threads = EXL2K_ATTEND_THREADS };
    exl2__cuda_grid order = { .x = m->pass.tile_count, .y = EXL2K_PERMUTE_PARTS, .threads = 256 };
    exl2k_attend_args natural = *a;
    bool ordered = !a->map || a->heads * a->dim > EXL2K_PERMUTE_MAX;
    natural.map = ordered ? a->map : 0;
    EXL2__TRY(exl2__cuda_chain(m, EXL2__KERNEL_exl2k_attend_store, store, a));
    EXL2__TRY(exl2__cuda_chain(m, kernels[exl2__cuda_head_class(a->dim)], grid, &natural));
    return ordered ? EXL2_OK : exl2__cuda_chain(m, EXL2__KERNEL_exl2k_attend_permute, order, a);
}

static exl2_result exl2__cuda_do_attend(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    const exl2__shape *s = &m->plan->shape;
    (void)range;
    exl2k_attend_args a = { .pass = m->pass.groups, .rows = m->pass.rows, .qkv = m->b.qkv,
                            .rope = m->b.rope, .out = m->b.attended, .map = exl2__cuda_matrix_of(layer->out)->map,
                            .partial = m->b.partial, .tickets = m->b.attend_tickets,
                            .qkv_pitch = m->b.qkv_pitch, .out_pitch = m->b.attended_pitch,
                            .page_bytes = m->b.page_bytes, .heads = s->heads,
                            .kv_heads = s->kv_heads, .group = s->heads / s->kv_heads, .dim = s->head_dim,
                            .scale = s->attn_scale, .early = 1 };
    a.pages = m->b.pages + (uint64_t)layer->index * m->plan->pages * m->b.page_bytes;
    if (m->pass.decodes) {
        return exl2__cuda_decode(m, a, 0, m->pass.row_count);
    }
    EXL2__TRY(m->pass.tile_count ? exl2__cuda_prefill(m, &a) : EXL2_OK);
    for (uint32_t first = 0, end; first < m->pass.row_count; first = end) {
        if (exl2__cuda_row_group(m->step, first, &end)) {
            EXL2__TRY(exl2__cuda_decode(m, a, first, end));
        }
    }
    return EXL2_OK;
}

static exl2_result exl2__cuda_do_out(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    (void)range;
    return exl2__cuda_residual(m, layer->out, m->b.attended, m->b.attended_pitch, layer->mlp_norm.weight,
                               layer->gate_up);
}

static exl2_result exl2__cuda_do_gate_up(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    exl2k_gemv_args a = { .x = m->b.x, .x_pitch = m->b.x_pitch, .out = m->b.h, .out_pitch = m->b.h_pitch,
                          .map = exl2__cuda_matrix_of(layer->down)->map, .sums_now = exl2__cuda_sums(m, 0),
                          .sums_before = exl2__cuda_sums_before(m) };
    (void)range;
    if (exl2__cuda_matrix_of(layer->gate_up)->split) {
        return exl2__cuda_split_gate_up(m, layer, a);
    }
    if (m->pass.by_gemm) {
        exl2k_gemm_args gemm = { .x = a.x, .x_pitch = a.x_pitch, .out = a.out, .out_pitch = a.out_pitch,
                                 .map = a.map };
        EXL2__TRY(exl2__cuda_norm_all(m, layer->mlp_norm.weight, layer->gate_up));
        return exl2__cuda_gemm_act(m, layer->gate_up, &gemm);
    }
    return exl2__cuda_product(m, layer->gate_up, EXL2__CUDA_ACT, &a, m->pass.row_count);
}

static exl2_result exl2__cuda_do_down(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    bool last = layer->index + 1 == m->plan->shape.layers;
    (void)range;
    return exl2__cuda_residual(m, layer->down, m->b.h, m->b.h_pitch,
                               last ? m->plan->final_norm.weight : layer[1].attn_norm.weight,
                               last ? m->plan->head : layer[1].qkv);
}

/* No model that the backend supports has this phase. */
static exl2_result exl2__cuda_do_settle(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    (void)layer;
    (void)range;
    return exl2__fail(m->c, EXL2_ERR_INTERNAL, "cuda: norms after blocks are not supported");
}

static exl2_result exl2__cuda_do_route(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    (void)layer;
    (void)range;
    return exl2__fail(m->c, EXL2_ERR_INTERNAL, "cuda: experts are not supported");
}

static exl2_result exl2__cuda_do_expert_up(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    return exl2__cuda_do_route(m, layer, range);
}

static exl2_result exl2__cuda_do_expert_down(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    return exl2__cuda_do_route(m, layer, range);
}

/* Address of the exl2k_pass that holds the number of logit rows of the group. */
static inline uint64_t exl2__cuda_group_pass(const exl2__cuda_model *m, const exl2__range *range)
{
    return m->pass.groups + range->logit0 / m->plan->logit_rows_max * sizeof(exl2k_pass);
}

/* Gathers what the last residual product wrote for the rows that want logits, as inputs of the head. */
static exl2_result exl2__cuda_head_rows(exl2__cuda_model *m, const exl2__range *range, exl2k_gemv_args *head)
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
    head->sums_before = a.before_out;
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_head_rows, grid, &a);
}

/* If every row wants logits, the head reads what the last residual product wrote. */
static exl2_result exl2__cuda_do_head(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    uint64_t pass = exl2__cuda_group_pass(m, range);
    (void)layer;
    exl2k_gemv_args a = { .x = m->b.x, .x_pitch = m->b.x_pitch, .out = m->b.logits, .out_pitch = m->b.stride };
    if (m->pass.by_gemm) {
        exl2k_norm_args norm = { .rows_at = pass + offsetof(exl2k_pass, logit_count), .out = m->b.head_x,
                                 .samplings = m->pass.samplings + range->logit0 * sizeof(exl2k_sampling) };
        EXL2__TRY(exl2__cuda_norm(m, norm, range->logit_count, m->plan->final_norm.weight, m->plan->head));
        a.x = m->b.head_x;
    } else if (m->pass.decodes) {
        a.x += (uint64_t)range->logit0 * a.x_pitch * 2;
        a.sums_now = exl2__cuda_sums(m, 0) + exl2__cuda_slots(range->logit0);
        a.sums_before = exl2__cuda_sums_before(m) + exl2__cuda_slots(range->logit0);
    } else {
        EXL2__TRY(exl2__cuda_head_rows(m, range, &a));
    }
    return exl2__cuda_product(m, m->plan->head, EXL2__CUDA_STORE, &a, range->logit_count);
}

static exl2_result exl2__cuda_do_sample(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    (void)layer;
    exl2k_sample_args a = { .pass = exl2__cuda_group_pass(m, range), .rows = m->pass.rows,
                            .samplings = m->pass.samplings + range->logit0 * sizeof(exl2k_sampling),
                            .logits = m->b.logits,
                            .adjusted = m->b.adjusted, .keys = m->b.keys, .sums = m->b.key_sums,
                            .states = m->b.sample_states, .bins = m->b.sample_bins,
                            .results = (uint64_t)(uintptr_t)m->b.results,
                            .vocab = m->plan->shape.vocab, .stride = m->b.stride,
                            .rows_max = m->plan->logit_rows_max };
    exl2__cuda_grid grid = { .x = exl2__cuda_sample_chunks(a.vocab), .y = range->logit_count,
                             .threads = EXL2K_SAMPLE_THREADS };
    EXL2__TRY(exl2__cuda_chain(m, EXL2__KERNEL_exl2k_sample_keys, grid, &a));
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_sample_token, grid, &a);
}

static exl2_result exl2__cuda_do(exl2__cuda_model *m, exl2__phase phase, const exl2__layer *layer,
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

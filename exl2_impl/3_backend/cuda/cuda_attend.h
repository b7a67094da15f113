/* cuda_attend.h: phase attend: which kernels it launches, with which arguments.
   takes: a model with a current pass; q, k, v of its rows.
   gives: exl2__cuda_splits, exl2__cuda_head_class, exl2__cuda_do_attend.
   owns:  nothing. */
#ifndef EXL2__CUDA_ATTEND_H
#define EXL2__CUDA_ATTEND_H

#include "cuda_product.h"

/* The most splits of a row that attends to at most `tokens` tokens, as attend_args.h defines splits: a row with 2,048
   tokens has 16, a row with 2,049 has 11. */
static inline uint32_t exl2__cuda_splits(uint32_t tokens)
{
    tokens = exl2__min32(tokens, EXL2K_SPLIT_TOKENS * EXL2K_SPLITS_MAX);
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
    uint32_t splits = m->pass.splits ? m->pass.splits : exl2__cuda_splits(m->pass.longest_context);
    exl2__cuda_grid grid = { .x = exl2__min32(splits, exl2__cuda_splits(a.window)),
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

/* Fills in the table of RoPE and the pairs that it rotates. */
static void exl2__cuda_attend_rope(const exl2__cuda_model *m, uint32_t rope, exl2k_attend_args *a)
{
    const exl2__shape *s = &m->plan->shape;
    bool rotated = rope != EXL2__NO_ROPE;
    a->rope = rotated ? m->b.rope + rope * exl2__cuda_rope_bytes(m->plan) : m->b.unrotated;
    a->rope_pitch = rotated ? s->head_dim / 2 : 0;
    a->rope_split = !rotated ? s->head_dim / 2 : s->pairs ? 0 : s->rotary / 2;
}

static exl2_result exl2__cuda_do_attend(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    const exl2__shape *s = &m->plan->shape;
    (void)range;
    exl2k_attend_args a = { .pass = m->pass.groups, .rows = m->pass.rows, .qkv = m->b.qkv, .out = m->b.attended, .map = exl2__cuda_matrix_of(layer->out)->map,
                            .partial = m->b.partial, .tickets = m->b.attend_tickets,
                            .qkv_pitch = m->b.qkv_pitch, .out_pitch = m->b.attended_pitch,
                            .page_bytes = m->b.page_bytes, .heads = s->heads,
                            .kv_heads = s->kv_heads, .group = s->heads / s->kv_heads, .dim = s->head_dim,
                            .window = exl2__min32(layer->window, EXL2K_WINDOW_MAX), .early = 1 };
    a.scale = s->attn_softcap > 0 ? s->attn_softcap : s->attn_scale;
    a.tanh_scale = s->attn_softcap > 0 ? s->attn_scale / s->attn_softcap : 0;
    a.pages = m->b.pages + (uint64_t)layer->index * m->plan->pages * m->b.page_bytes;
    exl2__cuda_attend_rope(m, layer->rope, &a);
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

#endif

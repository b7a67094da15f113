/* cuda_attend.h: phase attend: which kernels it launches, with which arguments.
   takes: a model with a current pass; q, k, v of its rows.
   gives: exl2__cuda_splits, exl2__cuda_head_class, exl2__cuda_attends_by_wg, exl2__cuda_attends_few,
          exl2__cuda_attend_prepares,
          exl2__cuda_do_attend. */
#ifndef EXL2__CUDA_ATTEND_H
#define EXL2__CUDA_ATTEND_H

#include "cuda_peers.h"

/* The most splits of a row that attends to at most `tokens` tokens, as attend_args.h defines splits: a row with 2,048
   tokens has 16, a row with 2,049 has 11. */
static inline uint32_t exl2__cuda_splits(uint32_t tokens)
{
    tokens = exl2__min32(tokens, EXL2K_SPLIT_TOKENS * EXL2K_SPLITS_MAX);
    return (uint32_t)exl2__div_up(tokens, EXL2K_SPLIT_LENGTH(tokens));
}

#define EXL2__CUDA_DECODE_STATIC 21504u /* upper bound of static shared memory, besides the rings */
#define EXL2__CUDA_CROWD_STATIC 5120u   /* the same of exl2k_attend_decode_crowd128 */
#define EXL2__CUDA_CTA_SHARED 1024u     /* what an SM keeps of the shared memory of each CTA; it has as much more than a
                                           CTA may have */

#define EXL2__CUDA_ROTATED_ROWS 512u /* most rows of prompts whose queries are rotated before attention */

/* The class of head sizes. 0: up to 64, 1: 128, 2: 256. */
static inline uint32_t exl2__cuda_head_class(uint32_t dim)
{
    return dim <= 64 ? 0 : dim <= 128 ? 1 : 2;
}

/* Whether prefill uses wgmma: on Hopper, if its memory fits and outputs are permuted by a kernel of their own. */
static inline bool exl2__cuda_attends_by_wg(const exl2__cuda_device *gpu, const exl2__shape *s)
{
    return gpu->info.arch == 90 && s->head_dim <= 128 && exl2__shape_attended(s) <= EXL2K_PERMUTE_MAX
        && EXL2K_ATTEND_SHARED(64u << exl2__cuda_head_class(s->head_dim)) <= gpu->shared_bytes;
}

/* Whether decode of at most EXL2K_KEPT rows runs by the kernels without norms. */
static inline bool exl2__cuda_attends_few(const exl2__shape *s) { return s->qk_norm != EXL2__QK_NORM_HEADS; }

/* Stores K and V of all rows in a quantized cache. */
EXL2__PRIVATE exl2_result exl2__cuda_quantize(exl2__cuda_model *m, const exl2k_attend_args *a)
{
    exl2__cuda_grid grid = { .x = m->pass.row_count, .y = (a->kv_heads + 1) / 2, .threads = 128 };
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_attend_quantize, grid, a);
}

/* Whether more CTAs of decode wait than run: two run on an SM. Then CTAs half as large are faster. */
static inline bool exl2__cuda_decode_crowds(const exl2__cuda_model *m, uint32_t ctas)
{
    return m->gpu->info.arch == 90 && m->plan->kv == EXL2_KV_FP16 && m->pass.row_count > EXL2K_KEPT
           && exl2__cuda_head_class(m->plan->shape.head_dim) == 1 && ctas > 2 * m->gpu->sm_count;
}

/* Attention by these CTAs, which share the memory of an SM. The bits are those of the larger ones. */
EXL2__PRIVATE exl2_result exl2__cuda_decode_crowd(exl2__cuda_model *m, exl2k_attend_args a, exl2__cuda_grid grid)
{
    uint32_t sums = EXL2K_WARPS128 / 2 * EXL2K_SUMS_BYTES(128), ctas = grid.x * grid.y * grid.z;
    uint32_t each = exl2__min32((uint32_t)exl2__div_up(ctas, m->gpu->sm_count), EXL2K_CROWD_CTAS);
    uint32_t room = (m->limits.shared_bytes + EXL2__CUDA_CTA_SHARED) / each - EXL2__CUDA_CTA_SHARED;
    uint32_t used = EXL2__CUDA_CROWD_STATIC + sums; /* a warp has two chains of sums; the ring of one is as large */
    a.stages = room > used ? exl2__max32((room - used) / sums, 1) : 1;
    grid.threads = EXL2K_WARPS128 / 2 * 32;
    grid.shared_bytes = (a.stages + 1) * sums;
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_attend_decode_crowd128, grid, &a);
}

/* Attention of rows of sampled tokens. The kernel stores their K and V, too, unless many are quantized. */
EXL2__PRIVATE exl2_result exl2__cuda_decode(exl2__cuda_model *m, exl2k_attend_args a)
{
    static const exl2__cuda_kernel kernels[3][3] = {
        { EXL2__KERNEL_exl2k_attend_decode64, EXL2__KERNEL_exl2k_attend_decode128,
          EXL2__KERNEL_exl2k_attend_decode256 },
        { EXL2__KERNEL_exl2k_attend_codes64, EXL2__KERNEL_exl2k_attend_codes128, EXL2__KERNEL_exl2k_attend_codes256 },
        { EXL2__KERNEL_exl2k_attend_decode_few64, EXL2__KERNEL_exl2k_attend_decode_few128,
          EXL2__KERNEL_exl2k_attend_decode_few256 }
    };
    static const uint32_t warps[] = { EXL2K_WARPS64, EXL2K_WARPS128, EXL2K_WARPS256 };
    bool codes = m->plan->kv != EXL2_KV_FP16;
    uint32_t kind = exl2__cuda_head_class(a.dim), threads = warps[kind] * 32;
    uint32_t sums = EXL2K_SUMS_BYTES(64u << kind); /* as many as 16 tokens of K or V in fp16 */
    uint32_t slot = codes ? EXL2K_CODES_SLOT(a.key_bits, a.value_bits, 2u << kind) : sums;
    uint32_t stage = warps[kind] * slot;
    uint32_t splits = m->pass.splits ? m->pass.splits : exl2__cuda_splits(m->pass.longest_context);
    exl2__cuda_grid grid = { .x = exl2__min32(splits, exl2__cuda_splits(a.window)),
                             .y = a.kv_heads * m->b.head_rows, .z = m->pass.row_count, .threads = threads };
    if (exl2__cuda_decode_crowds(m, grid.x * grid.y * grid.z)) {
        return exl2__cuda_decode_crowd(m, a, grid);
    }
    /* Where half of the SMs are idle, twice as many copies may be in flight before the wait for q, k and v. */
    bool alone = grid.z == 1 || 2 * grid.x * grid.y * grid.z <= m->gpu->sm_count;
    uint32_t most = alone ? 128u << 10 : codes ? 96u << 10 : 64u << 10;
    for (a.stages = exl2__min32(most / stage, 8); a.stages > 1; a.stages /= 2) {
        if (a.stages * stage + EXL2__CUDA_DECODE_STATIC <= m->limits.shared_bytes) {
            break;
        }
    }
    a.ring_bytes = exl2__max32(a.stages * slot, sums);
    /* One row: never two CTAs on an SM while others are idle, as there could be beside the preceding kernel. */
    if (codes && grid.z == 1 && most + EXL2__CUDA_DECODE_STATIC <= m->limits.shared_bytes) {
        a.ring_bytes = exl2__max32(a.ring_bytes, most / warps[kind]);
    }
    grid.shared_bytes = warps[kind] * a.ring_bytes;
    /* Clusters of more CTAs than there are SMs would wait for each other. */
    uint32_t shared = grid.shared_bytes + EXL2K_INBOX_BYTES(grid.x, a.dim);
    if (grid.x > 1 && grid.x <= EXL2K_CLUSTER_MAX && shared + EXL2__CUDA_DECODE_STATIC <= m->limits.shared_bytes
        && grid.x * grid.y * grid.z <= m->gpu->sm_count && exl2__cuda_device_launches_with(m->gpu)) {
        grid.cluster = grid.x;
        grid.shared_bytes = shared;
    }
    a.stores = grid.z <= EXL2K_KEPT;
    EXL2__TRY(codes && !a.stores ? exl2__cuda_quantize(m, &a) : EXL2_OK);
    uint32_t set = codes ? 1 : grid.z <= EXL2K_KEPT && exl2__cuda_attends_few(&m->plan->shape) ? 2 : 0;
    return exl2__cuda_chain(m, kernels[set][kind], grid, &a);
}

/* Stores K and V of prompts' rows in a cache of fp16. For attention by wgmma, in short prompts, the kernel also rotates
   the queries: on all SMs, where attention would have few. true: it has. */
EXL2__PRIVATE exl2_result exl2__cuda_store(exl2__cuda_model *m, const exl2k_attend_args *a, bool *rotated)
{
    exl2__cuda_grid grid = { .x = m->pass.row_count, .y = 1, .threads = 256 };
    *rotated = exl2__cuda_attends_by_wg(m->gpu, &m->plan->shape) && m->pass.row_count <= EXL2__CUDA_ROTATED_ROWS
               && !a->qkv_half && a->rope_split == a->dim / 2 && a->dim % 16 == 0;
    if (!*rotated) {
        return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_attend_store, grid, a);
    }
    grid.threads = EXL2K_QUERIES_THREADS;
    grid.y = (uint32_t)exl2__div_up((a->heads + 2 * a->kv_heads) * (a->dim / 16), EXL2K_QUERIES_THREADS);
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_attend_store_queries, grid, a);
}

/* Attention of rows of prompts. */
EXL2__PRIVATE exl2_result exl2__cuda_prefill(exl2__cuda_model *m, const exl2k_attend_args *a)
{
    static const exl2__cuda_kernel kernels[] = { EXL2__KERNEL_exl2k_attend_prefill64,
                                                 EXL2__KERNEL_exl2k_attend_prefill128,
                                                 EXL2__KERNEL_exl2k_attend_prefill256,
                                                 EXL2__KERNEL_exl2k_attend_wg64, EXL2__KERNEL_exl2k_attend_wg128 };
    uint32_t kind = exl2__cuda_head_class(a->dim);
    exl2__cuda_grid grid = { .x = m->pass.tile_count, .y = a->kv_heads,
                             .z = EXL2K_ATTEND_PARTS * (a->dim > 128 ? 2 : 1), .threads = EXL2K_ATTEND_THREADS };
    exl2__cuda_grid order = { .x = m->pass.tile_count, .y = EXL2K_PERMUTE_PARTS, .threads = 256 };
    exl2k_attend_args natural = *a;
    bool ordered = !a->map || a->heads * a->dim > EXL2K_PERMUTE_MAX;
    natural.map = ordered ? a->map : 0;
    if (exl2__cuda_attends_by_wg(m->gpu, &m->plan->shape)) {
        grid = (exl2__cuda_grid){ .x = exl2__min32(m->pass.tile_count * a->kv_heads, m->gpu->sm_count), .y = 1,
                                  .threads = EXL2K_ATTEND_WG_THREADS,
                                  .shared_bytes = EXL2K_ATTEND_SHARED(64u << kind) };
        kind += 3;
    }
    if (m->plan->kv == EXL2_KV_FP16) {
        bool rotated = false;
        EXL2__TRY(exl2__cuda_store(m, a, &rotated));
        natural.rotated = rotated;
    } else {
        uint32_t pages = m->pass.longest_context / EXL2K_PAGE_TOKENS + 2;
        exl2__cuda_grid expand = { .x = m->pass.tile_count, .y = a->kv_heads,
                                   .z = (uint32_t)exl2__div_up(pages, m->pass.tile_count), .threads = 256 };
        EXL2__TRY(exl2__cuda_quantize(m, a));
        EXL2__TRY(exl2__cuda_chain(m, EXL2__KERNEL_exl2k_attend_expand, expand, a));
        natural.pages = a->expanded;
        natural.page_bytes = exl2__cuda_page_bytes(&m->plan->shape, EXL2_KV_FP16);
    }
    EXL2__TRY(exl2__cuda_chain(m, kernels[kind], grid, &natural));
    return ordered ? EXL2_OK : exl2__cuda_chain(m, EXL2__KERNEL_exl2k_attend_permute, order, a);
}

/* The table of RoPE of a layer, and the pairs that it rotates. */
typedef struct exl2__cuda_rope {
    uint64_t table;
    uint32_t pitch, split, divided; /* as in exl2k_attend_args */
} exl2__cuda_rope;

EXL2__PRIVATE exl2__cuda_rope exl2__cuda_rope_of(const exl2__cuda_model *m, uint32_t rope)
{
    const exl2__shape *s = &m->plan->shape;
    uint32_t half = s->head_dim / 2;
    if (rope == EXL2__NO_ROPE) {
        return (exl2__cuda_rope){ .table = m->b.unrotated, .split = half };
    }
    return (exl2__cuda_rope){ .table = m->b.rope + rope * exl2__cuda_rope_bytes(m->plan), .pitch = half,
                              .split = s->pairs ? 0 : s->rotary / 2, .divided = exl2__cuda_rope_divided(m->plan) };
}

/* Whether layers may need the kernel exl2k_attend_prepare. */
static inline bool exl2__cuda_attend_prepares(const exl2__shape *s)
{
    return s->qk_norm != EXL2__QK_NORM_NONE || s->clip_qkv > 0 || s->query_growth > 0;
}

/* Whether attention of sampled rows applies the norms of q and k, and needs no kernel before it. */
static inline bool exl2__cuda_attend_norms(const exl2__cuda_model *m, const exl2__layer *layer)
{
    const exl2__shape *s = &m->plan->shape;
    bool biased = layer->q_norm.bias || layer->k_norm.bias;
    return !m->pass.prompts && !m->pass.turned && m->plan->kv == EXL2_KV_FP16 && s->qk_norm == EXL2__QK_NORM_HEADS
           && !s->layer_norm && !biased && !(s->clip_qkv > 0) && !(s->query_growth > 0);
}

/* A vector with `each` values for each head of q (group > 0: heads of q for each of K), or of K: where those of the
   device's heads begin. */
static inline uint64_t exl2__cuda_head_values(const exl2__cuda_model *m, const exl2__vector *values, uint32_t group,
                                              uint32_t each)
{
    uint64_t first = (uint64_t)m->plan->columns.first_kv_head * (group ? group : 1) * each;
    return values ? exl2__cuda_values(values) + first * sizeof(float) : 0;
}

/* Norms and bounds of q, k, v, and what makes q grow, if the layer has any of these and attention does not apply them.
   *rope: the layer's, or none if q and k have been rotated here. */
EXL2__PRIVATE exl2_result exl2__cuda_attend_prepare(exl2__cuda_model *m, const exl2__layer *layer,
                                                    exl2__cuda_rope *rope)
{
    const exl2__shape *s = &m->plan->shape;
    uint32_t group = s->heads / s->kv_heads;
    bool normed = layer->q_norm.weight || layer->k_norm.weight, whole = s->qk_norm == EXL2__QK_NORM_WHOLE;
    *rope = exl2__cuda_rope_of(m, layer->rope);
    if (exl2__cuda_attend_norms(m, layer)) {
        return EXL2_OK;
    }
    if (!normed && !(s->clip_qkv > 0) && !(s->query_growth > 0)) {
        return EXL2_OK;
    }
    exl2k_prepare_args a = { .pass = m->pass.groups, .rows = m->pass.rows, .qkv = m->b.qkv,
                             .weight = { exl2__cuda_head_values(m, layer->q_norm.weight, group, s->head_dim),
                                         exl2__cuda_head_values(m, layer->k_norm.weight, 0, s->head_dim) },
                             .bias = { exl2__cuda_head_values(m, layer->q_norm.bias, group, s->head_dim),
                                       exl2__cuda_head_values(m, layer->k_norm.bias, 0, s->head_dim) },
                             .pitch = m->b.qkv_pitch, .heads = s->heads, .kv_heads = s->kv_heads, .dim = s->head_dim,
                             .all = m->b.all_heads, .all_pitch = exl2__cuda_all_pitch(m->plan),
                             .all_heads = m->plan->columns.heads, .all_kv_heads = m->plan->columns.kv_heads,
                             .part_heads = whole ? exl2__max32(s->heads, s->kv_heads) : EXL2K_PREPARE_HEADS,
                             .whole = whole, .layer_norm = s->layer_norm, .eps = s->norm_eps, .clip = s->clip_qkv,
                             .growth = s->query_growth, .context = s->query_context, .rope_split = rope->split };
    if (normed && s->qk_norm == EXL2__QK_NORM_HEADS_ROTATED) {
        a.rope = rope->table;
        a.rope_pitch = rope->pitch;
        a.rope_divided = rope->divided;
        *rope = exl2__cuda_rope_of(m, EXL2__NO_ROPE);
    }
    uint32_t k_parts = (uint32_t)exl2__div_up(s->kv_heads, a.part_heads);
    uint32_t parts = (uint32_t)exl2__div_up(s->heads, a.part_heads) + k_parts * (s->clip_qkv > 0 ? 2 : 1);
    exl2__cuda_grid grid = { .x = m->pass.row_count, .y = parts, .threads = EXL2K_PREPARE_THREADS };
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_attend_prepare, grid, &a);
}

/* Rotates q and k of all rows by the angles of three axes, if rows of the pass have such. *rope: the layer's; its
   angles are 0 then, while pairs keep their places. */
EXL2__PRIVATE exl2_result exl2__cuda_turn(exl2__cuda_model *m, const exl2__layer *layer, exl2__cuda_rope *rope)
{
#ifndef EXL2_NO_VISION
    const exl2__shape *s = &m->plan->shape;
    if (!m->pass.turned || layer->rope == EXL2__NO_ROPE) {
        return EXL2_OK;
    }
    exl2k_turn_args a = { .pass = m->pass.groups, .rows = m->pass.rows, .turns = m->pass.turns, .axes = m->b.axes,
                          .qkv = m->b.qkv, .rope = rope->table, .rope_pitch = rope->pitch, .rope_split = rope->split,
                          .rope_divided = rope->divided, .pitch = m->b.qkv_pitch, .dim = s->head_dim };
    exl2__cuda_grid grid = { .x = m->pass.row_count, .y = s->heads + s->kv_heads, .threads = EXL2K_TURN_THREADS };
    rope->table = m->b.unrotated;
    rope->pitch = rope->divided = 0;
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_attend_turn, grid, &a);
#else
    (void)m, (void)layer, (void)rope;
    return EXL2_OK;
#endif
}

EXL2__PRIVATE exl2_result exl2__cuda_do_attend(exl2__cuda_model *m, const exl2__layer *layer, const exl2__range *range)
{
    const exl2__shape *s = &m->plan->shape;
    const exl2__columns *c = &m->plan->columns;
    exl2__cuda_rope rope;
    (void)range;
    EXL2__TRY(exl2__cuda_meet_heads(m));
    if (c->idle) {
        return exl2__cuda_meet_attended(m, layer);
    }
    bool shared = exl2__columns_are_cut(c);
    uint32_t group = s->heads / s->kv_heads;
    uint32_t first = c->first_kv_head * group * s->head_dim;
    EXL2__TRY(exl2__cuda_attend_prepare(m, layer, &rope));
    EXL2__TRY(exl2__cuda_turn(m, layer, &rope));
    exl2k_attend_args a = { .rows = m->pass.rows, .qkv = m->b.qkv, .rope = rope.table,
                            .out = shared ? m->b.natural + (uint64_t)first * 2 : m->b.attended,
                            .map = m->pass.by_wg || shared ? 0 : exl2__cuda_inputs(layer->matrix[EXL2__ROLE_OUT]),
                            .partial = m->b.partial, .tickets = m->b.attend_tickets,
                            .sinks = exl2__cuda_head_values(m, layer->sinks, group, 1),
                            .qkv_pitch = m->b.qkv_pitch, .out_pitch = m->b.attended_pitch,
                            .page_bytes = m->b.page_bytes, .heads = s->heads,
                            .kv_heads = s->kv_heads, .group = group, .dim = s->head_dim,
                            .rope_pitch = rope.pitch, .rope_split = rope.split,
                            .rope_divided = rope.divided,
                            .window = exl2__min32(layer->window, EXL2K_WINDOW_MAX), .early = 1,
                            .expanded = m->b.expanded, .key_bits = exl2__cuda_key_bits(m->plan->kv),
                            .value_bits = exl2__cuda_value_bits(m->plan->kv) };
    if (exl2__cuda_attends_in_few_tiles(m)) {
        a.out_pitch = EXL2K_STEP / 2;
        a.out_gap = EXL2K_STEP * (exl2__cuda_tile_rows(m) - 1);
    }
    if (exl2__cuda_gives_attended(m)) {
        exl2__cuda_give_attended(m, layer, first, &a);
    }
    if (exl2__cuda_attend_norms(m, layer)) {
        a.norm[0] = exl2__cuda_head_values(m, layer->q_norm.weight, group, s->head_dim);
        a.norm[1] = exl2__cuda_head_values(m, layer->k_norm.weight, 0, s->head_dim);
        a.norm_eps = s->norm_eps;
    }
    a.scale = s->attn_softcap > 0 ? s->attn_softcap : s->attn_scale;
    a.tanh_scale = s->attn_softcap > 0 ? s->attn_scale / s->attn_softcap : 0;
    bool part = exl2__plan_parts(m->plan, layer->index);
    uint64_t place = exl2__plan_place(m->plan, layer->index, part);
    a.pages = part ? m->b.parts + place * m->plan->window_pages * m->b.page_bytes
                   : m->b.pages + place * m->plan->pages * m->b.page_bytes;
    a.pass = part ? m->pass.windowed : m->pass.groups;
    EXL2__TRY(m->pass.prompts ? exl2__cuda_prefill(m, &a) : exl2__cuda_decode(m, a));
    return exl2__cuda_gives_attended(m) ? EXL2_OK : exl2__cuda_meet_attended(m, layer);
}

#endif

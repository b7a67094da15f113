/* cpu.h: the CPU backend: its table of functions, and each phase as a series of stages.
   takes: calls through exl2__backend.
   gives: exl2__cpu_backend.
   owns:  the device struct. */
#ifndef EXL2__CPU_H
#define EXL2__CPU_H

#include "cpu_attend.h"
#include "cpu_avx2.h"
#include "cpu_avx512.h"
#include "cpu_experts.h"
#include "cpu_exl3_pairs.h"
#include "cpu_logits.h"
#include "cpu_neon.h"
#include "cpu_plain.h"
#include "cpu_product.h"

/* ---- stages ---- */

/* Items: the span's layers of each copy, because a whole page may be large. */
EXL2__PRIVATE void exl2__cpu_copy_pages(const exl2__cpu_share *s)
{
    const exl2__cpu_device *d = s->d;
    for (uint32_t i = s->begin; i < s->end; i++) {
        uint32_t layer = d->first_layer + i % d->layers;
        bool part = exl2__cpu_device_parts(d, layer);
        const exl2__page_copy *copy = &(part ? d->step->part_copies : d->step->copies)[i / d->layers];
        memcpy(exl2__cpu_device_layer(d, copy->to, layer), exl2__cpu_device_layer(d, copy->from, layer),
               (size_t)d->layer_bytes);
    }
}

/* Items: rows, which the span before has handed over. */
EXL2__PRIVATE void exl2__cpu_embed_handed(const exl2__cpu_share *s)
{
    const exl2__cpu_device *d = s->d;
    for (uint32_t r = s->begin; r < s->end; r++) {
        const float *from = d->step->handed + (size_t)r * d->shape.hidden;
        exl2__real *out = d->residual + (size_t)r * d->hidden_stride;
        for (uint32_t i = 0; i < d->shape.hidden; i++) {
            out[i] = (exl2__real)from[i];
        }
    }
}

/* Decodes a row of an embedding of EXL3 into row r of the residual. false: the table is dense. */
EXL2__PRIVATE bool exl2__cpu_embed_codes(const exl2__cpu_device *d, const exl2__cpu_part *table, uint32_t token,
                                         uint32_t r)
{
#if EXL2__EXL3
    if (table->source == EXL2__CPU_EXL3_TABLE) {
        exl2__cpu_exl3_embed(table, token, d->shape.hidden, d->residual + (size_t)r * d->hidden_stride);
        return true;
    }
#else
    (void)d;
    (void)table;
    (void)token;
    (void)r;
#endif
    return false;
}

/* Items: rows. */
EXL2__PRIVATE void exl2__cpu_embed(const exl2__cpu_share *s)
{
    exl2__cpu_device *d = s->d;
    const exl2__cpu_part *table = &exl2__cpu_matrix_of(d->embed)->parts[0];
    for (uint32_t r = s->begin; r < s->end; r++) {
        const exl2__step_row *row = &d->step->rows[r];
        uint32_t token = (uint32_t)row->token;
        bool decoded = !row->vector && exl2__cpu_embed_codes(d, table, token, r);
        exl2__real *out = d->residual + (size_t)r * d->hidden_stride;
        EXL2__ASSERT(row->vector || token < d->shape.vocab);
        for (uint32_t i = 0; i < d->shape.hidden; i++) {
            out[i] = row->vector ? (exl2__real)row->vector[i]
                   : (decoded ? out[i] : (exl2__real)exl2__cpu_matrix_weight(table, i, token))
                         * (exl2__real)d->shape.embed_scale;
        }
        for (uint32_t i = 0; d->positions && i < d->shape.hidden; i++) {
            const exl2__cpu_part *positions = &exl2__cpu_matrix_of(d->positions)->parts[0];
            out[i] += (exl2__real)exl2__cpu_matrix_weight(positions, i, row->position);
        }
    }
}

/* Items: tiles of rows. The rows of the residual are normalised (if the layer has this norm) and gathered; `logits`:
   only the rows that want logits ([rows] of them), else NULL. */
EXL2__PRIVATE void exl2__cpu_norm_tiles(const exl2__cpu_share *s, exl2__operand of, const exl2__norm *norm,
                                        const exl2__logit_row *logits, uint32_t rows)
{
    exl2__cpu_device *d = s->d;
    uint32_t most = d->ops->tile_rows;
    exl2__real *x = d->task[s->task].rows;
    for (uint32_t t = s->begin; t < s->end; t++) {
        uint32_t row = exl2__cpu_tile_start(rows, most, t), n = exl2__cpu_tile_start(rows, most, t + 1) - row;
        for (uint32_t r = 0; r < n; r++) {
            const exl2__real *from = d->residual + (size_t)(logits ? logits[row + r].row : row + r) * d->hidden_stride;
            exl2__real *to = x + (size_t)r * d->hidden_stride;
            exl2__cpu_norm_or_copy(d, norm, from, to);
        }
        exl2__cpu_gather(d, of, rows, row, n, x, d->hidden_stride);
    }
}

/* Items: tiles of rows, which are gathered without a norm. */
EXL2__PRIVATE void exl2__cpu_gather_tiles(const exl2__cpu_share *s, exl2__operand of, const exl2__real *x,
                                          size_t stride)
{
    const exl2__cpu_device *d = s->d;
    uint32_t rows = d->step->row_count, most = d->ops->tile_rows;
    for (uint32_t t = s->begin; t < s->end; t++) {
        uint32_t row = exl2__cpu_tile_start(rows, most, t), n = exl2__cpu_tile_start(rows, most, t + 1) - row;
        exl2__cpu_gather(d, of, rows, row, n, x + row * stride, stride);
    }
}

/* Adds what rows of pictures get after the layer before this one. */
EXL2__PRIVATE void exl2__cpu_add_levels(const exl2__cpu_share *s)
{
    exl2__cpu_device *d = s->d;
    uint32_t level = s->layer->index, hidden = d->shape.hidden, rows = d->step->row_count, most = d->ops->tile_rows;
    if (level == 0 || level >= d->shape.row_levels) {
        return;
    }
    uint32_t end = exl2__cpu_tile_start(rows, most, s->end);
    for (uint32_t r = exl2__cpu_tile_start(rows, most, s->begin); r < end; r++) {
        const float *vector = d->step->rows[r].vector;
        exl2__real *out = d->residual + (size_t)r * d->hidden_stride;
        for (uint32_t i = 0; vector && i < hidden; i++) {
            out[i] += (exl2__real)vector[(size_t)level * hidden + i];
        }
    }
}

EXL2__PRIVATE void exl2__cpu_qkv_input(const exl2__cpu_share *s)
{
    exl2__cpu_add_levels(s);
    exl2__cpu_norm_tiles(s, exl2__operand_of(s->layer, EXL2__ROLE_QKV), &s->layer->attn_norm, NULL,
                         s->d->step->row_count);
}

/* Items of strips (exl2__cpu_device_item) of q, then of k, then of v. */
EXL2__PRIVATE void exl2__cpu_qkv_strips(const exl2__cpu_share *s)
{
    const exl2__cpu_device *d = s->d;
    exl2__real *out[3] = { d->query, d->key, d->value };
    for (uint32_t i = 0, first = 0; i < 3; i++) {
        uint32_t stride = i ? d->key_stride : d->query_stride, items = exl2__cpu_device_items(d, stride);
        exl2__cpu_share part = *s;
        part.begin = exl2__max32(s->begin, first) - first;
        part.end = exl2__max32(exl2__min32(s->end, first + items), first) - first;
        part = exl2__cpu_device_strips(&part, stride);
        exl2__cpu_multiply_rows(d, exl2__operand_of(s->layer, EXL2__ROLE_QKV), i, d->step->row_count, part.begin,
                                part.end, out[i], stride, 0);
        first += items;
    }
}

EXL2__PRIVATE void exl2__cpu_out_input(const exl2__cpu_share *s)
{
    exl2__cpu_gather_tiles(s, exl2__operand_of(s->layer, EXL2__ROLE_OUT), s->d->query, s->d->query_stride);
}

/* Strips of a block's result, which is added to the residual, or kept for the norm that follows. */
EXL2__PRIVATE void exl2__cpu_block_strips(const exl2__cpu_share *s, exl2__operand of, const exl2__norm *post)
{
    const exl2__cpu_device *d = s->d;
    exl2__cpu_share strips = exl2__cpu_device_strips(s, d->hidden_stride);
    exl2__cpu_multiply_rows(d, of, 0, d->step->row_count, strips.begin, strips.end,
                            post->weight ? d->branch : d->residual, d->hidden_stride,
                            post->weight ? 0 : (exl2__real)d->shape.residual_scale);
}

EXL2__PRIVATE void exl2__cpu_out_strips(const exl2__cpu_share *s)
{
    exl2__cpu_block_strips(s, exl2__operand_of(s->layer, EXL2__ROLE_OUT), &s->layer->attn_post_norm);
}

EXL2__PRIVATE void exl2__cpu_gate_up_input(const exl2__cpu_share *s)
{
    exl2__cpu_norm_tiles(s, exl2__operand_of(s->layer, EXL2__ROLE_GATE_UP), &s->layer->mlp_norm, NULL,
                         s->d->step->row_count);
}

/* Activation of strips, whose products are complete. */
EXL2__PRIVATE void exl2__cpu_gate_up_act(const exl2__cpu_share *s)
{
    const exl2__cpu_device *d = s->d;
    uint32_t rows = d->step->row_count;
    /* The shared expert has a weight. */
    bool switched = s->layer->matrix[EXL2__ROLE_ROUTER] && d->shape.experts.shared_switch;
    for (uint32_t r = 0; r < rows; r++) {
        size_t at = (size_t)r * d->inter_stride + s->begin * EXL2__CPU_STRIP;
        exl2__cpu_activate(d, d->gate + at, d->shape.gated ? d->up + at : NULL, (s->end - s->begin) * EXL2__CPU_STRIP);
        exl2__real weight = switched ? d->routed.shared[(size_t)r * EXL2__CPU_STRIP] : 1;
        for (uint32_t i = 0; switched && i < (s->end - s->begin) * EXL2__CPU_STRIP; i++) {
            d->gate[at + i] *= weight;
        }
    }
}

/* Items: strips of gate together with the same strips of up; without a gate only the latter. */
EXL2__PRIVATE void exl2__cpu_gate_up_strips(const exl2__cpu_share *s)
{
    const exl2__cpu_device *d = s->d;
    exl2__operand of = exl2__operand_of(s->layer, EXL2__ROLE_GATE_UP);
    uint32_t rows = d->step->row_count;
    exl2__cpu_share strips = exl2__cpu_device_strips(s, exl2__cpu_part_of(of, 0)->out);
    exl2__cpu_multiply_rows(d, of, 0, rows, strips.begin, strips.end, d->gate, d->inter_stride, 0);
    if (d->shape.gated) {
        exl2__cpu_multiply_rows(d, of, 1, rows, strips.begin, strips.end, d->up, d->inter_stride, 0);
    }
    exl2__cpu_gate_up_act(&strips);
}

EXL2__PRIVATE void exl2__cpu_down_input(const exl2__cpu_share *s)
{
    exl2__cpu_gather_tiles(s, exl2__operand_of(s->layer, EXL2__ROLE_DOWN), s->d->gate, s->d->inter_stride);
}

EXL2__PRIVATE void exl2__cpu_down_strips(const exl2__cpu_share *s)
{
    exl2__cpu_block_strips(s, exl2__operand_of(s->layer, EXL2__ROLE_DOWN), &s->layer->mlp_post_norm);
}

/* The norm after the block that `settle` follows. */
EXL2__PRIVATE const exl2__norm *exl2__cpu_settle_norm(const exl2__layer *layer, exl2__phase before)
{
    return before == EXL2__PHASE_out ? &layer->attn_post_norm : &layer->mlp_post_norm;
}

/* Items: tiles of rows. */
EXL2__PRIVATE void exl2__cpu_settle(const exl2__cpu_share *s)
{
    exl2__cpu_device *d = s->d;
    uint32_t rows = d->step->row_count, most = d->ops->tile_rows;
    uint32_t last = exl2__cpu_tile_start(rows, most, s->end);
    exl2__real *y = d->task[s->task].rows, scale = (exl2__real)d->shape.residual_scale;
    for (uint32_t row = exl2__cpu_tile_start(rows, most, s->begin); row < last; row++) {
        size_t at = (size_t)row * d->hidden_stride;
        exl2__cpu_norm(d, exl2__cpu_settle_norm(s->layer, s->range->before), 0, d->branch + at, d->shape.hidden, y);
        for (uint32_t i = 0; i < d->shape.hidden; i++) {
            d->residual[at + i] += exl2__cpu_phases_mul(scale, y[i]);
        }
    }
}

/* Items: tiles of rows. Adds the control vectors of the rows to what the layer has made of them. */
EXL2__PRIVATE void exl2__cpu_steer(const exl2__cpu_share *s)
{
    const exl2__cpu_device *d = s->d;
    uint32_t rows = d->step->row_count, most = d->ops->tile_rows, hidden = d->shape.hidden, layer = s->layer->index;
    uint32_t last = exl2__cpu_tile_start(rows, most, s->end);
    for (uint32_t row = exl2__cpu_tile_start(rows, most, s->begin); row < last; row++) {
        uint32_t index = d->step->row_loras[row];
        const exl2__lora_set *set = index ? &d->step->lora_sets[index - 1] : NULL;
        exl2__real *out = d->residual + (size_t)row * d->hidden_stride;
        for (uint32_t u = set ? set->count : 0; set && u < set->count + set->steer_count; u++) {
            const exl2__steer_store *store = set->uses[u].steer;
            const float *vector = store->values + (size_t)layer * hidden;
            exl2__real factor = (exl2__real)set->uses[u].scale;
            for (uint32_t i = 0; store->has[layer] && i < hidden; i++) {
                out[i] += exl2__cpu_phases_mul(factor, (exl2__real)vector[i]);
            }
        }
    }
}

static inline exl2__operand exl2__cpu_head(const exl2__cpu_device *d)
{
    return (exl2__operand){ .matrix = d->head };
}

EXL2__PRIVATE void exl2__cpu_head_input(const exl2__cpu_share *s)
{
    const exl2__cpu_device *d = s->d;
    exl2__cpu_norm_tiles(s, exl2__cpu_head(d), &d->final_norm, d->step->logits + s->range->logit0,
                         s->range->logit_count);
}

/* Scale and cap of strips, whose products are complete. */
EXL2__PRIVATE void exl2__cpu_head_scale(const exl2__cpu_share *s)
{
    const exl2__cpu_device *d = s->d;
    exl2__real scale = (exl2__real)d->shape.logit_scale, cap = (exl2__real)d->shape.final_softcap;
    uint32_t count = (s->end - s->begin) * EXL2__CPU_STRIP;
    for (uint32_t r = 0; r < s->range->logit_count; r++) {
        exl2__real *logits = d->logits + (size_t)r * d->vocab_stride + s->begin * EXL2__CPU_STRIP;
        for (uint32_t i = 0; scale != 1 && i < count; i++) {
            logits[i] *= scale;
        }
        if (cap > 0) {
            d->ops->softcap(logits, count, cap);
        }
    }
}

EXL2__PRIVATE void exl2__cpu_head_strips(const exl2__cpu_share *s)
{
    const exl2__cpu_device *d = s->d;
    exl2__cpu_share strips = exl2__cpu_device_strips(s, d->vocab_stride);
    exl2__cpu_multiply_rows(d, exl2__cpu_head(d), 0, s->range->logit_count, strips.begin, strips.end, d->logits,
                            d->vocab_stride, 0);
    exl2__cpu_head_scale(&strips);
}

/* ---- phases: stages run one after the other; the items of a stage, except page copies, are independent ---- */

#define EXL2__CPU_STAGES 4u

/* Width of the layer's MLP or shared expert; layer NULL: of the widest one. */
EXL2__PRIVATE uint32_t exl2__cpu_inter(const exl2__cpu_device *d, const exl2__layer *layer)
{
    const exl2__matrix *gate_up = layer ? layer->matrix[EXL2__ROLE_GATE_UP] : NULL;
    return gate_up ? exl2__cpu_matrix_of(gate_up)->parts->out : d->shape.inter;
}

EXL2__PRIVATE void exl2__cpu_stages(const exl2__cpu_device *d, exl2__phase phase, const exl2__layer *layer,
                                    uint32_t rows, exl2__cpu_stage *out)
{
    const exl2__shape *s = &d->shape;
    uint32_t tiles = exl2__cpu_device_tiles(d, rows);
    uint64_t strip = (uint64_t)rows * exl2__cpu_device_item(d) * EXL2__CPU_STRIP, tile = d->ops->tile_rows;
    uint64_t queries = exl2__max32(d->ops->tile_queries, s->heads / s->kv_heads);
    uint64_t inter = exl2__cpu_inter(d, layer);
    exl2__cpu_stage stages[EXL2__CPU_STAGES] = { { NULL, 0, 0 } };
    switch (phase) {
    case EXL2__PHASE_copy_pages:
        stages[0] = (exl2__cpu_stage){ exl2__cpu_copy_pages, d->step ? d->step->copy_count * d->layers : 0,
                                       d->layer_bytes / 4 };
        break;
    case EXL2__PHASE_embed:
        stages[0] = (exl2__cpu_stage){ d->first_layer ? exl2__cpu_embed_handed : exl2__cpu_embed, rows,
                                       (uint64_t)s->hidden * 64 };
        break;
    case EXL2__PHASE_qkv:
        stages[0] = (exl2__cpu_stage){ exl2__cpu_qkv_input, tiles, tile * s->hidden * 16 };
        stages[1] = (exl2__cpu_stage){ exl2__cpu_qkv_strips, exl2__cpu_device_items(d, d->query_stride)
                                       + 2 * exl2__cpu_device_items(d, d->key_stride), strip * s->hidden };
        stages[2] = (exl2__cpu_stage){ exl2__cpu_attend_store_tiles, tiles,
                                       tile * (d->query_stride + 2 * d->key_stride) * 16 };
        break;
    case EXL2__PHASE_attend:
        stages[0] = (exl2__cpu_stage){ exl2__cpu_attend, d->attend_count * s->kv_heads,
                                       queries * d->attend_keys * s->head_dim * 2 };
        break;
    case EXL2__PHASE_out:
        stages[0] = (exl2__cpu_stage){ exl2__cpu_out_input, tiles, tile * d->query_stride * 8 };
        stages[1] = (exl2__cpu_stage){ exl2__cpu_out_strips, exl2__cpu_device_items(d, d->hidden_stride),
                                       strip * d->query_stride };
        break;
    case EXL2__PHASE_gate_up:
        stages[0] = (exl2__cpu_stage){ exl2__cpu_gate_up_input, tiles, tile * s->hidden * 16 };
        stages[1] = (exl2__cpu_stage){ exl2__cpu_gate_up_strips, exl2__cpu_device_items(d, (uint32_t)inter),
                                       (1 + (uint64_t)s->gated) * strip * s->hidden };
        break;
    case EXL2__PHASE_down:
        stages[0] = (exl2__cpu_stage){ exl2__cpu_down_input, tiles, tile * inter * 8 };
        stages[1] = (exl2__cpu_stage){ exl2__cpu_down_strips, exl2__cpu_device_items(d, d->hidden_stride),
                                       strip * inter };
        break;
    case EXL2__PHASE_route:
    case EXL2__PHASE_expert_up:
    case EXL2__PHASE_expert_down:
#ifndef EXL2_NO_MOE
        exl2__cpu_expert_stages(d, phase, layer, rows, stages);
#endif
        break;
    case EXL2__PHASE_settle:
        stages[0] = (exl2__cpu_stage){ exl2__cpu_settle, tiles, tile * s->hidden * 16 };
        break;
    case EXL2__PHASE_steer:
        stages[0] = (exl2__cpu_stage){ exl2__cpu_steer, d->step && d->step->steered ? tiles : 0, tile * s->hidden * 4 };
        break;
    case EXL2__PHASE_head:
        stages[0] = (exl2__cpu_stage){ exl2__cpu_head_input, tiles, tile * s->hidden * 16 };
        stages[1] = (exl2__cpu_stage){ exl2__cpu_head_strips, exl2__cpu_device_items(d, d->vocab_stride),
                                       strip * s->hidden };
        break;
    case EXL2__PHASE_sample: /* has none: see cpu_logits.h */
    case EXL2__PHASE_COUNT:
        break;
    }
    exl2__cpu_lora_stages(d, phase, rows, stages);
    memcpy(out, stages, sizeof stages);
}

EXL2__PRIVATE uint32_t exl2__cpu_rows_of(const exl2__cpu_device *d, exl2__phase phase, const exl2__range *range)
{
    bool has_logits = phase == EXL2__PHASE_head || phase == EXL2__PHASE_sample;
    return has_logits ? range->logit_count : d->step->row_count;
}

/* Computes items [range->begin, range->end) of a phase, which may lie in several stages. */
EXL2__PRIVATE exl2_result exl2__cpu_run(exl2__device *device, exl2__phase phase, const exl2__layer *layer,
                                        const exl2__range *range)
{
    exl2__cpu_device *d = exl2__cpu_of(device);
    exl2__cpu_stage stages[EXL2__CPU_STAGES];
    uint32_t first = 0;
    bool in_order = phase == EXL2__PHASE_copy_pages; /* a copy may overwrite what an earlier copy reads */
    if (phase == EXL2__PHASE_sample) {
        exl2__cpu_sample(d, range);
        return EXL2_OK;
    }
    exl2__cpu_stages(d, phase, layer, exl2__cpu_rows_of(d, phase, range), stages);
    for (uint32_t i = 0; i < EXL2__CPU_STAGES; i++) {
        const exl2__cpu_stage *stage = &stages[i];
        uint32_t begin = exl2__max32(range->begin, first), end = exl2__min32(range->end, first + stage->items);
        if (begin < end) {
            exl2__cpu_share all = { d, layer, range, begin - first, end - first, 0 };
            exl2__cpu_device_split(stage->work, &all, in_order ? 0 : (end - begin) * stage->cost);
        }
        first += stage->items;
    }
    return EXL2_OK;
}

/* ---- the table ---- */

/* The operations of a path, which this CPU must support. */
EXL2__PRIVATE const exl2__cpu_ops *exl2__cpu_choose(exl2_cpu_path path)
{
    (void)path;
#if defined(EXL2__CPU_FAST) && EXL2__X86_SIMD
    if (path == EXL2_CPU_AVX512) {
        return &exl2__cpu_avx512_ops;
    }
    if (path == EXL2_CPU_AVX2) {
        return &exl2__cpu_avx2_ops;
    }
#elif defined(EXL2__CPU_FAST)
    if (path == EXL2_CPU_NEON) {
        return &exl2__cpu_neon_ops;
    }
#endif
#ifdef EXL2__CPU_AS_SHIPPED
    return &exl2__cpu_plain_ops;
#else
    return &exl2__cpu_phases_ops;
#endif
}

EXL2__PRIVATE exl2_result exl2__cpu_open(exl2__ctx *c, void *hardware, exl2__device **out)
{
    void *memory;
    (void)hardware;
    *out = NULL;
    EXL2__TRY(exl2__alloc(c, sizeof(exl2__cpu_device), EXL2__ARENA_ALIGN, EXL2_MEM_GENERAL, &memory));
    exl2__cpu_device *d = (exl2__cpu_device *)memory;
    *d = (exl2__cpu_device){ 0 };
    d->c = c;
    d->ops = exl2__cpu_choose(c->cpu_path);
#if defined(EXL2__CPU_FAST) && EXL2__X86_SIMD
#if EXL2__EXL3
    d->ops = c->cpu_splits && c->cpu_path == EXL2_CPU_AVX2 ? &exl2__cpu_avx2_pairs_ops : d->ops;
#endif
    d->ops = c->cpu_vnni && c->cpu_path == EXL2_CPU_AVX512 ? &exl2__cpu_vnni_ops : d->ops;
#if EXL2__AVX_VNNI
    d->ops = c->cpu_vnni && c->cpu_path == EXL2_CPU_AVX2 ? &exl2__cpu_avxvnni_ops : d->ops;
#endif
#endif
    d->tasks = c->parallel.run ? exl2__max32(exl2__min32(c->parallel.width, EXL2__CPU_TASKS_MAX), 1) : 1;
    *out = (exl2__device *)memory;
    return EXL2_OK;
}

EXL2__PRIVATE void exl2__cpu_close(exl2__device *device)
{
    if (device) {
        exl2__free(exl2__cpu_of(device)->c, device, sizeof(exl2__cpu_device), EXL2_MEM_GENERAL);
    }
}

EXL2__PRIVATE uint64_t exl2__cpu_matrix_bytes_of(const exl2__device *d, const exl2__matrix_desc *parts, uint32_t count)
{
    (void)d;
    return exl2__cpu_matrix_bytes(parts, count);
}

EXL2__PRIVATE exl2_result exl2__cpu_matrix_make_in(exl2__device *d, exl2__arena *weights,
                                                   const exl2__matrix_desc *parts, uint32_t count, exl2__matrix **out)
{
    exl2__cpu_matrix *made = NULL;
    exl2_result r = exl2__cpu_matrix_make(exl2__cpu_of(d)->c, weights, parts, count, &made);
    *out = (exl2__matrix *)(void *)made;
    return r;
}

EXL2__PRIVATE exl2_result exl2__cpu_matrix_feed_to(exl2__device *d, exl2__matrix *m, uint32_t part,
                                                   const exl2__rows_slice *slice, exl2__work *work)
{
    (void)d;
    return exl2__cpu_matrix_feed(&exl2__cpu_matrix_of(m)->parts[part], slice, work);
}

EXL2__PRIVATE uint64_t exl2__cpu_vector_bytes(const exl2__device *d, uint32_t count)
{
    (void)d;
    return exl2__align_up((uint64_t)count * sizeof(float), EXL2__ARENA_ALIGN);
}

EXL2__PRIVATE exl2_result exl2__cpu_vector_make(exl2__device *d, exl2__arena *weights, const float *values,
                                                uint32_t count, exl2__vector **out)
{
    void *memory = exl2__arena_alloc(weights, (uint64_t)count * sizeof(float));
    *out = (exl2__vector *)memory;
    if (!memory) {
        return exl2__fail(exl2__cpu_of(d)->c, EXL2_ERR_INTERNAL,
                          "cpu: the arena for weights is smaller than the sum of vector_bytes");
    }
    memcpy(memory, values, count * sizeof(float));
    return EXL2_OK;
}

EXL2__PRIVATE uint64_t exl2__cpu_page_bytes(const exl2__device *d, const exl2__plan *plan, bool part)
{
    exl2__cpu_device measured = *exl2__cpu_of(d);
    exl2__cpu_device_measure(&measured, plan);
    return part ? measured.part_bytes : measured.page_bytes;
}

EXL2__COLD
EXL2__PRIVATE exl2_result exl2__cpu_prepare(exl2__device *d, const exl2__plan *plan, exl2__arena *pages,
                                            exl2__arena *scratch)
{
    return exl2__cpu_device_prepare(exl2__cpu_of(d), plan, pages, scratch);
}

EXL2__PRIVATE exl2_result exl2__cpu_commit_pages(exl2__device *d, const uint32_t *pages, uint32_t count, bool part)
{
    return exl2__cpu_device_commit(exl2__cpu_of(d), pages, count, part);
}

EXL2__PRIVATE exl2_result exl2__cpu_begin(exl2__device *d, const exl2__step *step)
{
    exl2__cpu_device_begin(exl2__cpu_of(d), step);
    return EXL2_OK;
}

EXL2__PRIVATE uint32_t exl2__cpu_items(const exl2__device *device, exl2__phase phase, const exl2__layer *layer,
                                       const exl2__range *range)
{
    exl2__cpu_device *d = exl2__cpu_of(device);
    exl2__cpu_stage stages[EXL2__CPU_STAGES];
    if (phase == EXL2__PHASE_sample) {
        return exl2__cpu_sample_items(d, range);
    }
    exl2__cpu_stages(d, phase, layer, exl2__cpu_rows_of(d, phase, range), stages);
    return stages[0].items + stages[1].items + stages[2].items + stages[3].items;
}

EXL2__PRIVATE exl2__item_run exl2__cpu_item_run(const exl2__device *d, exl2__phase phase, const exl2__layer *layer,
                                                uint32_t rows, uint32_t item)
{
    exl2__cpu_stage stages[EXL2__CPU_STAGES];
    uint32_t end = 0;
    if (phase == EXL2__PHASE_sample) {
        return exl2__cpu_sample_item_run(exl2__cpu_of(d), item);
    }
    exl2__cpu_stages(exl2__cpu_of(d), phase, layer, rows, stages);
    for (uint32_t i = 0; i < EXL2__CPU_STAGES; i++) {
        end += stages[i].items;
        if (item < end) {
            exl2__item_run run = { stages[i].cost, i, end };
#ifndef EXL2_NO_MOE
            if (phase == EXL2__PHASE_expert_up && i == 1 && layer) {
                exl2__cpu_expert_run(exl2__cpu_of(d), end - stages[i].items, item, &run);
            }
#endif
            return run;
        }
    }
    return (exl2__item_run){ 0, 0, 0 };
}

EXL2__PRIVATE exl2_result exl2__cpu_collect(exl2__device *device, uint32_t logit0, uint32_t count, bool wait,
                                            exl2__logit_result *results)
{
    const exl2__cpu_device *d = exl2__cpu_of(device);
    (void)wait;
    for (uint32_t i = 0; i < count; i++) {
        exl2_alt *alts = results[i].alts;
        const exl2__logit_result none = { .token = -1 }, *result = &d->results[i];
        if (d->step->logits[logit0 + i].use == EXL2__LOGIT_HIDDEN) {
            result = &none;
        }
        if (alts && result->alt_count) {
            memcpy(alts, result->alts, result->alt_count * sizeof *alts);
        }
        results[i] = *result;
        results[i].alts = alts;
    }
    return EXL2_OK;
}

#define X(name) \
    static exl2_result exl2__cpu_phase_##name(exl2__device *d, const exl2__layer *layer, const exl2__range *range) \
    { \
        return exl2__cpu_run(d, EXL2__PHASE_##name, layer, range); \
    }
EXL2__PHASES(X)
#undef X

/* Where a page or a window part lies, and its size. */
EXL2__PRIVATE uint8_t *exl2__cpu_page_at(const exl2__cpu_device *d, uint32_t page, bool part, uint64_t *bytes)
{
    *bytes = part ? d->part_bytes : d->page_bytes;
    return (part ? d->parts : d->pages) + page * *bytes;
}

EXL2__PRIVATE exl2_result exl2__cpu_page_get(exl2__device *d, uint32_t page, bool part, void *out)
{
    uint64_t bytes;
    const uint8_t *from = exl2__cpu_page_at(exl2__cpu_of(d), page, part, &bytes);
    memcpy(out, from, (size_t)bytes);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cpu_page_set(exl2__device *d, uint32_t page, bool part, const void *in)
{
    exl2__cpu_device *cpu = exl2__cpu_of(d);
    uint64_t bytes;
    EXL2__TRY(exl2__cpu_device_commit(cpu, &page, 1, part));
    uint8_t *to = exl2__cpu_page_at(cpu, page, part, &bytes);
    memcpy(to, in, (size_t)bytes);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cpu_hand(exl2__device *device, uint32_t begin, uint32_t end, float *out)
{
    const exl2__cpu_device *d = exl2__cpu_of(device);
    for (uint32_t r = begin; r < end; r++) {
        for (uint32_t i = 0; i < d->shape.hidden; i++) {
            out[(size_t)r * d->shape.hidden + i] = (float)d->residual[(size_t)r * d->hidden_stride + i];
        }
    }
    return EXL2_OK;
}

static const exl2__backend exl2__cpu_backend = {
    .name = "cpu",
    .open = exl2__cpu_open,
    .close = exl2__cpu_close,
    .loras = &exl2__cpu_loras,
    .decode_rows = 16,
    .has_exl3 = true,
    .matrix_bytes = exl2__cpu_matrix_bytes_of,
    .vector_bytes = exl2__cpu_vector_bytes,
    .matrix_make = exl2__cpu_matrix_make_in,
    .matrix_feed = exl2__cpu_matrix_feed_to,
    .vector_make = exl2__cpu_vector_make,
    .page_bytes = exl2__cpu_page_bytes,
    .prepare = exl2__cpu_prepare,
    .commit_pages = exl2__cpu_commit_pages,
    .page_get = exl2__cpu_page_get,
    .page_set = exl2__cpu_page_set,
    .hand = exl2__cpu_hand,
    .begin = exl2__cpu_begin,
    .items = exl2__cpu_items,
    .item_run = exl2__cpu_item_run,
    .collect = exl2__cpu_collect,
    .logits = exl2__cpu_row_logits,
    .sample_row = exl2__cpu_row_sample,
    .hidden = exl2__cpu_row_hidden,
#define X(name) .name = exl2__cpu_phase_##name,
    EXL2__PHASES(X)
#undef X
};

#endif

/* gpu_pass.h: the phases of a layer on the GPU, over whole sequences, from their residual to their residual.
   takes: layers of the CPU backend, a residual in device memory.
   gives: exl2__gpu_pass, exl2__gpu_pass_attends, exl2__gpu_pass_open, exl2__gpu_pass_own, exl2__gpu_pass_input,
          exl2__gpu_pass_phase, exl2__gpu_pass_logits, exl2__gpu_pass_kl.

   A pass has some sequences of `each` tokens, at the positions 0 .. each - 1, and keeps no K and V: attention sees the
   rows of the pass. Phases run in the order of the layer's list; nothing goes to the host between them. The context
   need not be current. */
#ifndef EXL2__GPU_PASS_H
#define EXL2__GPU_PASS_H

#include "gpu_experts.h"

#ifndef EXL2_NO_CUDA

typedef struct exl2__gpu_pass {
    exl2__gpu *g;
    const exl2__plan *plan;
    const exl2__shape *shape;
    uint32_t index;      /* of the model: its own buffers RESIDUAL and ANGLES */
    uint32_t positions;  /* that have angles */
    uint32_t rows, each; /* tokens of the pass, and of each of its sequences */
    uint64_t residual;   /* [rows, hidden] f32 */
    exl2__gpu_routed *routed; /* of a layer with experts */
} exl2__gpu_pass;

/* Can attention of this shape run here? */
static inline bool exl2__gpu_pass_attends(const exl2__shape *s)
{
    bool whole = s->qk_norm == EXL2__QK_NORM_WHOLE && s->kv_heads * s->head_dim % EXL2__CPU_STRIP != 0;
    return s->head_dim % 8 == 0 && s->head_dim <= EXL2K_PASS_DIM_MAX && !whole;
}

/* ---- open ---- */

EXL2__PRIVATE void exl2__gpu_pass_angles(const exl2__plan *plan, uint32_t positions, float *to)
{
    uint32_t half = plan->shape.rotary / 2;
    for (uint32_t r = 0; r < plan->rope_count; r++) {
        for (uint32_t p = 0; p < positions; p++, to += 2 * half) {
            for (uint32_t i = 0; i < half; i++) {
                double angle = (double)p * plan->ropes[r].frequency[i], magnitude = plan->ropes[r].magnitude;
                to[i] = (float)(magnitude * cos(angle));
                to[half + i] = (float)(magnitude * sin(angle));
            }
        }
    }
}

EXL2__PRIVATE exl2_result exl2__gpu_pass_open_steps(exl2__gpu_pass *p, const void *angles, uint64_t bytes)
{
    exl2k_u64 address;
    if (p->shape->experts.count > 0) {
        EXL2__TRY(exl2__gpu_experts_open(p->g));
    }
    EXL2__TRY(exl2__gpu_need(p->g, bytes, EXL2__GPU_ANGLES + p->index, &address));
    return exl2__gpu_up(p->g, address, angles, bytes);
}

/* For passes of a model over sequences of at most `positions` tokens. index: 0 or 1. routed: lists for a layer with
   experts, which must last as long as *p. */
EXL2__PRIVATE exl2_result exl2__gpu_pass_open(exl2__gpu_pass *p, exl2__gpu *g, uint32_t index, const exl2__plan *plan,
                                              exl2__gpu_routed *routed, uint32_t positions)
{
    exl2__ctx *c = g->d->c;
    uint64_t bytes = (uint64_t)plan->rope_count * positions * plan->shape.rotary * sizeof(float);
    void *memory;
    *p = (exl2__gpu_pass){ .g = g, .plan = plan, .shape = &plan->shape, .index = index, .positions = positions,
                           .routed = routed };
    EXL2__TRY(exl2__alloc(c, bytes, EXL2__ARENA_ALIGN, EXL2_MEM_SCRATCH, &memory));
    exl2__gpu_pass_angles(plan, positions, (float *)memory);
    exl2_result result = exl2__cuda_device_enter(g->d);
    if (result >= 0) {
        result = exl2__cuda_device_leave_with(g->d, exl2__gpu_pass_open_steps(p, memory, bytes));
    }
    exl2__free(c, memory, bytes, EXL2_MEM_SCRATCH);
    return result;
}

/* The residual of the pass is in the model's own buffer. */
EXL2__PRIVATE exl2_result exl2__gpu_pass_own(exl2__gpu_pass *p)
{
    uint64_t bytes = (uint64_t)p->rows * p->shape->hidden * sizeof(float);
    EXL2__TRY(exl2__cuda_device_enter(p->g->d));
    exl2k_u64 address = 0;
    exl2_result result = exl2__gpu_need(p->g, bytes, EXL2__GPU_RESIDUAL + p->index, &address);
    p->residual = address;
    return exl2__cuda_device_leave_with(p->g->d, result);
}

/* ---- norms ---- */

/* With y = norm(x), of `rows` rows: out [rows, count] = y, or out += add y. The norm may be absent. */
EXL2__PRIVATE exl2_result exl2__gpu_pass_norm(const exl2__gpu_pass *p, const exl2__norm *norm, uint64_t x,
                                              uint32_t rows, uint32_t count, uint64_t out, float add)
{
    exl2k_pass_norm_args a = { .x = x, .out = out, .count = count, .layer_norm = p->shape->layer_norm,
                               .eps = p->shape->norm_eps, .add = add };
    EXL2__TRY(exl2__gpu_vector(p->g, (const float *)(const void *)norm->weight, count, 1, &a.weight));
    EXL2__TRY(exl2__gpu_vector(p->g, (const float *)(const void *)norm->bias, count, 2, &a.bias));
    return exl2__gpu_launch(p->g, EXL2__KERNEL_exl2k_pass_norm, rows, 1, EXL2K_PASS_THREADS, 0, &a);
}

/* Norms of residual rows become the input. */
EXL2__PRIVATE exl2_result exl2__gpu_pass_normed(const exl2__gpu_pass *p, const exl2__norm *norm, uint32_t first,
                                                uint32_t rows)
{
    exl2k_u64 x;
    uint32_t hidden = p->shape->hidden;
    EXL2__TRY(exl2__gpu_need(p->g, (uint64_t)rows * hidden * sizeof(float), EXL2__GPU_X, &x));
    EXL2__TRY(exl2__gpu_pass_norm(p, norm, p->residual + (uint64_t)first * hidden * sizeof(float), rows, hidden, x, 0));
    return exl2__gpu_rows_halves(p->g, x, rows, hidden);
}

EXL2__PRIVATE exl2_result exl2__gpu_pass_input_steps(const exl2__gpu_pass *p, const exl2__layer *layer,
                                                     exl2__phase phase)
{
    exl2__gpu *g = p->g;
    if (!layer) {
        return exl2__gpu_pass_normed(p, &p->plan->final_norm, 0, p->rows);
    }
    switch (phase) {
    case EXL2__PHASE_qkv:
        return exl2__gpu_pass_normed(p, &layer->attn_norm, 0, p->rows);
    case EXL2__PHASE_out:
        return exl2__gpu_rows_halves(g, g->scratch[EXL2__GPU_ATTENDED].address, p->rows,
                                     p->shape->heads * p->shape->head_dim);
    case EXL2__PHASE_gate_up:
    case EXL2__PHASE_route:
        return exl2__gpu_pass_normed(p, &layer->mlp_norm, 0, p->rows);
    case EXL2__PHASE_expert_down: /* expert_up has left it */
        return EXL2_OK;
    default:
        return exl2__gpu_rows_halves(g, g->scratch[EXL2__GPU_ACTIVE].address, p->rows,
                                     exl2__cpu_matrix_of(layer->matrix[EXL2__ROLE_DOWN])->parts->in);
    }
}

/* Before a phase with products: what its matrices read becomes the input on the GPU. layer NULL: what the head
   reads. */
EXL2__PRIVATE exl2_result exl2__gpu_pass_input(const exl2__gpu_pass *p, const exl2__layer *layer, exl2__phase phase)
{
    EXL2__TRY(exl2__cuda_device_enter(p->g->d));
    return exl2__cuda_device_leave_with(p->g->d, exl2__gpu_pass_input_steps(p, layer, phase));
}

/* ---- phases ---- */

/* q, k or v (part 0, 1, 2): product, norms, RoPE. */
EXL2__PRIVATE exl2_result exl2__gpu_pass_heads(const exl2__gpu_pass *p, const exl2__layer *layer, uint32_t part)
{
    exl2__gpu *g = p->g;
    const exl2__shape *s = p->shape;
    const exl2__cpu_part *matrix = &exl2__cpu_matrix_of(layer->matrix[EXL2__ROLE_QKV])->parts[part];
    const exl2__norm none = { NULL, NULL }, *norm = part == 0 ? &layer->q_norm : part == 1 ? &layer->k_norm : &none;
    bool rotates = part < 2 && layer->rope != EXL2__NO_ROPE, whole = s->qk_norm == EXL2__QK_NORM_WHOLE;
    uint32_t columns = matrix->strips * EXL2__CPU_STRIP, heads = part == 0 ? s->heads : s->kv_heads;
    uint32_t count = heads * s->head_dim;
    exl2k_pass_heads_args a = { .pitch = columns, .heads = heads, .dim = s->head_dim, .each = p->each,
                                .rotary = rotates ? s->rotary : 0, .pairs = s->pairs,
                                .after = s->qk_norm == EXL2__QK_NORM_HEADS_ROTATED, .layer_norm = s->layer_norm,
                                .eps = s->norm_eps, .clip = s->clip_qkv, .scale = part == 0 ? s->attn_scale : 1,
                                .growth = part == 0 ? s->query_growth : 0, .context = s->query_context };
    if (rotates) {
        a.angles = g->scratch[EXL2__GPU_ANGLES + p->index].address
                 + (uint64_t)layer->rope * p->positions * s->rotary * sizeof(float);
    }
    EXL2__TRY(exl2__gpu_need(g, (uint64_t)p->rows * columns * sizeof(float), EXL2__GPU_Y, &a.x));
    EXL2__TRY(exl2__gpu_need(g, (uint64_t)p->rows * count * 2, EXL2__GPU_HEADS_Q + part, &a.out));
    EXL2__TRY(exl2__gpu_multiply(g, matrix, a.x, 0));
    if (norm->weight && whole) {
        EXL2__TRY(exl2__gpu_pass_norm(p, norm, a.x, p->rows, count, a.x, 0));
    } else {
        EXL2__TRY(exl2__gpu_vector(g, (const float *)(const void *)norm->weight, count, 1, &a.weight));
        EXL2__TRY(exl2__gpu_vector(g, (const float *)(const void *)norm->bias, count, 2, &a.bias));
    }
    return exl2__gpu_launch(g, EXL2__KERNEL_exl2k_pass_heads,
                            (uint32_t)exl2__div_up(heads, EXL2K_PASS_HEAD_THREADS / 32), p->rows,
                            EXL2K_PASS_HEAD_THREADS, 0, &a);
}

EXL2__PRIVATE exl2_result exl2__gpu_pass_attend(const exl2__gpu_pass *p, const exl2__layer *layer)
{
    exl2__gpu *g = p->g;
    const exl2__shape *s = p->shape;
    bool wide = s->head_dim > 128;
    uint32_t queries = wide ? 32 : 64; /* of a CTA */
    exl2__cuda_kernel kernel = wide ? EXL2__KERNEL_exl2k_pass_attend256
                             : s->head_dim > 64 ? EXL2__KERNEL_exl2k_pass_attend128 : EXL2__KERNEL_exl2k_pass_attend64;
    exl2k_pass_attend_args a = { .q = g->scratch[EXL2__GPU_HEADS_Q].address,
                                 .k = g->scratch[EXL2__GPU_HEADS_K].address,
                                 .v = g->scratch[EXL2__GPU_HEADS_V].address, .heads = s->heads,
                                 .group = s->heads / s->kv_heads, .dim = s->head_dim, .each = p->each,
                                 .window = layer->window, .softcap = s->attn_softcap };
    exl2__cuda_grid grid = { .x = (uint32_t)exl2__div_up(p->each, queries), .y = s->heads, .z = p->rows / p->each,
                             .threads = 2 * queries };
    EXL2__TRY(exl2__gpu_vector(g, (const float *)(const void *)layer->sinks, s->heads, 1, &a.sinks));
    EXL2__TRY(exl2__gpu_need(g, (uint64_t)p->rows * s->heads * s->head_dim * sizeof(float), EXL2__GPU_ATTENDED,
                             &a.out));
    return exl2__cuda_device_launch(g->d, kernel, grid, &a);
}

/* out, down: the result of a block goes into the residual, or waits for its norm. */
EXL2__PRIVATE exl2_result exl2__gpu_pass_block(const exl2__gpu_pass *p, const exl2__matrix *matrix,
                                               const exl2__norm *post)
{
    exl2k_u64 branch;
    const exl2__cpu_part *part = exl2__cpu_matrix_of(matrix)->parts;
    if (!post->weight) {
        return exl2__gpu_multiply(p->g, part, p->residual, p->shape->residual_scale);
    }
    EXL2__TRY(exl2__gpu_need(p->g, (uint64_t)p->rows * p->shape->hidden * sizeof(float), EXL2__GPU_BRANCH, &branch));
    return exl2__gpu_multiply(p->g, part, branch, 0);
}

EXL2__PRIVATE exl2_result exl2__gpu_pass_phase_steps(const exl2__gpu_pass *p, const exl2__layer *layer,
                                                     exl2__phase phase, exl2__phase before)
{
    const exl2__shape *s = p->shape;
    const exl2__cpu_part *gate;
    exl2k_u64 active;
    switch (phase) {
    case EXL2__PHASE_qkv:
        for (uint32_t i = 0; i < 3; i++) {
            EXL2__TRY(exl2__gpu_pass_heads(p, layer, i));
        }
        return EXL2_OK;
    case EXL2__PHASE_attend:
        return exl2__gpu_pass_attend(p, layer);
    case EXL2__PHASE_out:
        return exl2__gpu_pass_block(p, layer->matrix[EXL2__ROLE_OUT], &layer->attn_post_norm);
    case EXL2__PHASE_gate_up:
        gate = exl2__cpu_matrix_of(layer->matrix[EXL2__ROLE_GATE_UP])->parts;
        EXL2__TRY(exl2__gpu_act(p->g, gate, s->gated ? gate + 1 : NULL, (uint32_t)s->act, s->act_limit, &active));
        return layer->matrix[EXL2__ROLE_ROUTER]
                   ? exl2__gpu_experts_switch(p->g, s, active, gate->strips * EXL2__CPU_STRIP) : EXL2_OK;
    case EXL2__PHASE_route:
        return exl2__gpu_experts_route(p->g, s, layer, p->routed);
    case EXL2__PHASE_expert_up:
        return exl2__gpu_experts_up(p->g, s, layer, p->routed);
    case EXL2__PHASE_expert_down:
        return exl2__gpu_experts_down(p->g, s, layer, p->routed, p->residual);
    case EXL2__PHASE_down:
        return exl2__gpu_pass_block(p, layer->matrix[EXL2__ROLE_DOWN], &layer->mlp_post_norm);
    default: /* settle */
        return exl2__gpu_pass_norm(p, before == EXL2__PHASE_out ? &layer->attn_post_norm : &layer->mlp_post_norm,
                                   p->g->scratch[EXL2__GPU_BRANCH].address, p->rows, s->hidden, p->residual,
                                   s->residual_scale);
    }
}

/* One phase: of attention, of an MLP or of experts, or settle after `before`. Its input is ready. */
EXL2__PRIVATE exl2_result exl2__gpu_pass_phase(const exl2__gpu_pass *p, const exl2__layer *layer, exl2__phase phase,
                                               exl2__phase before)
{
    EXL2__TRY(exl2__cuda_device_enter(p->g->d));
    return exl2__cuda_device_leave_with(p->g->d, exl2__gpu_pass_phase_steps(p, layer, phase, before));
}

/* ---- logits ---- */

/* out [rows, columns of the head] in device memory: logits of residual rows from `first` on, neither scaled nor
   capped. The context is current. */
EXL2__PRIVATE exl2_result exl2__gpu_pass_logits(const exl2__gpu_pass *p, uint32_t first, uint32_t rows, uint64_t out)
{
    EXL2__TRY(exl2__gpu_pass_normed(p, &p->plan->final_norm, first, rows));
    return exl2__gpu_multiply(p->g, exl2__cpu_matrix_of(p->plan->head)->parts, out, 0);
}

/* kl [rows]: divergences of the logits of residual rows from `first` on from logits x [rows, columns of the head] in
   device memory. The context is current. */
EXL2__PRIVATE exl2_result exl2__gpu_pass_kl(const exl2__gpu_pass *p, uint32_t first, uint32_t rows, uint64_t x,
                                            double *kl)
{
    exl2__gpu *g = p->g;
    uint32_t columns = exl2__cpu_matrix_of(p->plan->head)->parts->strips * EXL2__CPU_STRIP;
    exl2k_pass_kl_args a = { .x = x, .vocab = p->shape->vocab, .pitch = columns, .scale = p->shape->logit_scale,
                             .cap = p->shape->final_softcap };
    EXL2__TRY(exl2__gpu_need(g, (uint64_t)rows * columns * sizeof(float), EXL2__GPU_Y, &a.y));
    EXL2__TRY(exl2__gpu_pass_logits(p, first, rows, a.y));
    EXL2__TRY(exl2__gpu_need(g, rows * sizeof *kl, EXL2__GPU_UP, &a.kl));
    EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_pass_kl, rows, 1, EXL2K_PASS_THREADS, 0, &a));
    return exl2__gpu_down(g, kl, a.kl, rows * sizeof *kl);
}
#endif

#endif

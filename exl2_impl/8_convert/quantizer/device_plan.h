/* device_plan.h: what a conversion will allocate on a GPU, from headers alone; the same sizes are what it allocates.
   takes: a source with headers, its linears, a dry exl2__measure.
   gives: exl2__device_plan, exl2__device_plan_make.

   Buffers that grow to what is asked of them get all of it at once (exl2__gpu.planned). Beside them there are the
   factor and the quantizer of one matrix, quantized forms that are tried, and the model's weights as halves, which are
   kept up to what the rest leaves. With too little memory for all of it at once, what passes use is freed for each
   matrix (exl2__gpu.tight). */
#ifndef EXL2__DEVICE_PLAN_H
#define EXL2__DEVICE_PLAN_H

#include "linears.h"
#include "measure_probe.h"

#ifndef EXL2_NO_CUDA

#define EXL2__DEVICE_PLAN_STATES_SHARE 4u /* states stay on the device if they need at most 1 / PART of its memory */

typedef struct exl2__device_plan {
    exl2__ctx *c;
    exl2__gpu *g;
    const exl2__runner *r;
    const exl2__measure *m;
    const exl2__linears *linears;
    bool corrected, compared; /* compared: the output is written, and compared with the source */
    uint64_t room;           /* bytes that can be allocated */
    /* results: */
    uint64_t needs;          /* the least memory that is enough */
    uint64_t peak;           /* what will be used */
    /* while it is made: */
    uint64_t weights, head;  /* of all layers with the head, and of the head; as halves */
    uint64_t largest, tried; /* the largest matrix; matrices that are tried together, at most */
    uint32_t trials;         /* of a layer, at most, that run through the layers after it */
} exl2__device_plan;

/* ---- buffers ---- */

static inline void exl2__device_plan_need(exl2__device_plan *p, uint32_t index, uint64_t bytes)
{
    p->g->planned[index] = exl2__max64(p->g->planned[index], bytes);
}

/* Tokens of a pass through a layer, at most: of calibration, or of the probes. */
EXL2__PRIVATE uint32_t exl2__device_plan_tokens(const exl2__device_plan *p, uint32_t layer, bool probes)
{
    const exl2__measure *m = p->m;
    bool fits = exl2__runner_can(p->r, layer, EXL2__RUNNER_QKV) && exl2__runner_can(p->r, layer, EXL2__RUNNER_UP);
    uint32_t each = probes ? m->probe_length : m->length, count = probes ? p->trials * m->probes : m->rows;
    return exl2__min32(count, exl2__runner_together_on(p->r, fits, each)) * each;
}

/* An input of `tokens` rows as halves, and in f32. */
EXL2__PRIVATE void exl2__device_plan_rows(exl2__device_plan *p, uint64_t tokens, uint64_t in)
{
    exl2__device_plan_need(p, EXL2__GPU_X, tokens * in * sizeof(float));
    exl2__device_plan_need(p, EXL2__GPU_HALVES, exl2__align_up(tokens, EXL2K_HALF_TILE) * in * 2);
    exl2__device_plan_need(p, EXL2__GPU_SCALES, tokens * sizeof(float));
}

/* Moments of an input of a layer over chunks of `tokens` rows. layer NULL: the head's. */
EXL2__PRIVATE void exl2__device_plan_moments(exl2__device_plan *p, const exl2__layer *layer, uint32_t input,
                                             uint64_t tokens)
{
    uint64_t in = exl2__runner_input_size(p->r, layer, input), square = in * in * sizeof(float);
    uint64_t pitch = exl2__align_up(tokens, EXL2K_HALF_DEPTH);
    uint64_t columns = exl2__align_up(in, EXL2K_HALF_TILE) * pitch * 2;
    if (in % EXL2__PANELS_LANES != 0) {
        return;
    }
    exl2__device_plan_need(p, EXL2__GPU_Y, square);
    exl2__device_plan_need(p, EXL2__GPU_COLUMNS, columns);
    exl2__device_plan_need(p, EXL2__GPU_COLUMN_SCALES, in * sizeof(float));
    if (input >= EXL2__RUNNER_EXPERTS) {
        exl2__device_plan_need(p, EXL2__GPU_EXPERT_SUMS, p->r->plan.shape.experts.count * square);
        return;
    }
    exl2__device_plan_need(p, EXL2__GPU_SUMS + input, square);
    if (p->corrected) {
        exl2__device_plan_need(p, EXL2__GPU_OTHER, tokens * in * sizeof(float));
        exl2__device_plan_need(p, EXL2__GPU_OTHER_COLUMNS, columns);
        exl2__device_plan_need(p, EXL2__GPU_OTHER_SCALES, in * sizeof(float));
        for (uint32_t i = EXL2__GPU_CROSS; i <= EXL2__GPU_LOWER; i++) {
            exl2__device_plan_need(p, i, square);
        }
    }
}

EXL2__PRIVATE void exl2__device_plan_attention(exl2__device_plan *p, uint64_t tokens)
{
    const exl2__shape *s = &p->r->plan.shape;
    uint64_t queries = (uint64_t)s->heads * s->head_dim, keys = (uint64_t)s->kv_heads * s->head_dim;
    exl2__device_plan_rows(p, tokens, s->hidden);
    exl2__device_plan_need(p, EXL2__GPU_HALVES, exl2__align_up(tokens, EXL2K_HALF_TILE) * queries * 2);
    exl2__device_plan_need(p, EXL2__GPU_Y, tokens * queries * sizeof(float));
    exl2__device_plan_need(p, EXL2__GPU_HEADS_Q, tokens * queries * 2);
    exl2__device_plan_need(p, EXL2__GPU_HEADS_K, tokens * keys * 2);
    exl2__device_plan_need(p, EXL2__GPU_HEADS_V, tokens * keys * 2);
    exl2__device_plan_need(p, EXL2__GPU_ATTENDED, tokens * queries * sizeof(float));
}

/* A dense MLP, or a shared expert. */
EXL2__PRIVATE void exl2__device_plan_mlp(exl2__device_plan *p, uint64_t tokens, uint64_t inter)
{
    uint64_t bytes = tokens * inter * sizeof(float);
    exl2__device_plan_rows(p, tokens, p->r->plan.shape.hidden);
    exl2__device_plan_need(p, EXL2__GPU_HALVES, exl2__align_up(tokens, EXL2K_HALF_TILE) * inter * 2);
    exl2__device_plan_need(p, EXL2__GPU_Y, bytes);
    exl2__device_plan_need(p, EXL2__GPU_UP, p->r->plan.shape.gated ? bytes : 0);
    exl2__device_plan_need(p, EXL2__GPU_ACTIVE, bytes);
}

EXL2__PRIVATE void exl2__device_plan_experts(exl2__device_plan *p, uint64_t tokens)
{
    const exl2__shape *s = &p->r->plan.shape;
    const exl2__experts *e = &s->experts;
    exl2__gpu_route route;
    uint64_t choices = tokens * e->active, widest = exl2__max32(s->hidden, e->inter);
    exl2__device_plan_need(p, EXL2__GPU_ROUTE, exl2__gpu_route_of(&route, e, tokens, 0));
    exl2__device_plan_need(p, EXL2__GPU_HALVES, (choices + EXL2K_HALF_TILE) * widest * 2);
    exl2__device_plan_need(p, EXL2__GPU_SCALES, choices * sizeof(float));
    exl2__device_plan_need(p, EXL2__GPU_Y, choices * widest * sizeof(float));
    exl2__device_plan_need(p, EXL2__GPU_UP, s->gated ? choices * e->inter * sizeof(float) : 0);
    exl2__device_plan_need(p, EXL2__GPU_EXPERT_ACTIVE, choices * e->inter * sizeof(float));
}

/* What passes through a layer use. */
EXL2__PRIVATE void exl2__device_plan_layer(exl2__device_plan *p, const exl2__layer *layer)
{
    const exl2__config *config = &p->r->load.config;
    uint32_t chunk = exl2__device_plan_tokens(p, layer->index, false);
    uint32_t tokens = exl2__max32(chunk, exl2__device_plan_tokens(p, layer->index, true));
    bool sparse = exl2__unit_sparse(config, layer->index);
    uint32_t inter = sparse ? config->experts.shared_inter : config->inter;
    for (uint32_t i = 0; i < exl2__runner_inputs(p->r) && i <= EXL2__RUNNER_EXPERTS; i++) {
        bool there = exl2__runner_can(p->r, layer->index, i);
        if (i < EXL2__RUNNER_EXPERTS || there) {
            exl2__device_plan_moments(p, layer, i, chunk);
        }
        if (!there && i < EXL2__RUNNER_EXPERTS) { /* uploaded for their moments */
            exl2__device_plan_rows(p, chunk, exl2__runner_input_size(p->r, layer, i));
        }
    }
    if (exl2__runner_can(p->r, layer->index, EXL2__RUNNER_QKV)) {
        exl2__device_plan_attention(p, tokens);
    }
    if (inter && exl2__runner_can(p->r, layer->index, EXL2__RUNNER_UP)) {
        exl2__device_plan_mlp(p, tokens, inter);
    }
    if (sparse && exl2__runner_can(p->r, layer->index, EXL2__RUNNER_EXPERTS)) {
        exl2__device_plan_experts(p, tokens);
    }
    if (p->r->plan.shape.post_norms) {
        exl2__device_plan_need(p, EXL2__GPU_BRANCH, (uint64_t)tokens * p->r->plan.shape.hidden * sizeof(float));
    }
}

/* What the head, states, and vectors use. */
EXL2__PRIVATE void exl2__device_plan_rest(exl2__device_plan *p)
{
    const exl2__measure *m = p->m;
    const exl2__shape *s = &p->r->plan.shape;
    uint64_t row = s->hidden * sizeof(float), tokens = (uint64_t)m->probes * m->probe_length;
    uint64_t states = (uint64_t)m->rows * m->length * row, own = exl2__max64(tokens, p->compared ? m->length : 0);
    uint64_t columns = exl2__align_up(exl2__max32(s->vocab, s->embed_rows), EXL2__CPU_STRIP);
    uint64_t angles = (uint64_t)p->r->plan.rope_count * p->r->length * s->rotary * sizeof(float);
    if (s->hidden % EXL2__CPU_STRIP != 0) {
        return;
    }
    exl2__device_plan_rows(p, exl2__max64(m->length, exl2__min64(tokens, EXL2__MEASURE_LOGITS)), s->hidden);
    exl2__device_plan_moments(p, NULL, EXL2__RUNNER_QKV, m->length);
    exl2__device_plan_need(p, EXL2__GPU_Y, exl2__min64(tokens, EXL2__MEASURE_LOGITS) * columns * sizeof(float));
    exl2__device_plan_need(p, EXL2__GPU_LOGITS, tokens * columns * sizeof(float));
    exl2__device_plan_need(p, EXL2__GPU_BEFORE, tokens * row);
    exl2__device_plan_need(p, EXL2__GPU_COPIES, EXL2__MEASURE_COPIES * tokens * row);
    bool stay = states <= p->room / EXL2__DEVICE_PLAN_STATES_SHARE;
    exl2__device_plan_need(p, EXL2__GPU_STATES, stay ? states : 0);
    exl2__device_plan_need(p, EXL2__GPU_STATES_TOO, stay && p->corrected ? states : 0);
    own = exl2__max64(own, stay && !p->corrected ? 0 : exl2__device_plan_tokens(p, s->layers - 1, false));
    exl2__device_plan_need(p, EXL2__GPU_RESIDUAL, own * row);
    exl2__device_plan_need(p, EXL2__GPU_ANGLES, angles);
    if (p->compared) {
        exl2__device_plan_need(p, EXL2__GPU_RESIDUAL + 1, m->length * row);
        exl2__device_plan_need(p, EXL2__GPU_ANGLES + 1, angles);
    }
    exl2__device_plan_need(p, EXL2__GPU_VECTORS + 1, row);
    exl2__device_plan_need(p, EXL2__GPU_VECTORS + 2, s->layer_norm ? row : 0);
}

/* ---- matrices ---- */

/* The input that a unit reads, or UINT32_MAX. */
EXL2__PRIVATE uint32_t exl2__device_plan_input(const exl2__unit *u)
{
    return u->kind == EXL2__UNIT_ROUTER ? EXL2__RUNNER_UP : u->kind == EXL2__UNIT_HEAD ? EXL2__RUNNER_QKV
                                                                                  : exl2__linears_input(u);
}

/* Adds the matrices of a unit to p->weights, and to layers [layers]. */
EXL2__PRIVATE exl2_result exl2__device_plan_unit(exl2__device_plan *p, uint32_t index, uint64_t *layers)
{
    exl2__unit u;
    exl2__matrix_desc parts[3];
    EXL2__TRY(exl2__weights_find(p->c, &p->r->load, index, &u, parts));
    bool head = u.kind == EXL2__UNIT_HEAD || (u.kind == EXL2__UNIT_EMBED && p->r->load.tied);
    uint32_t input = head ? EXL2__RUNNER_QKV : exl2__device_plan_input(&u);
    for (uint32_t i = 0; i < u.count && input != UINT32_MAX; i++) {
        uint64_t columns = exl2__align_up(parts[i].out, EXL2__CPU_STRIP);
        uint32_t bytes = parts[i].kind == EXL2__MATRIX_DENSE && parts[i].dtype == EXL2__F32 ? 4 : 2;
        uint64_t halves = exl2__gpu_halves_bytes(u.in, (uint32_t)columns);
        exl2__device_plan_need(p, EXL2__GPU_RAW, columns * u.in * bytes);
        exl2__device_plan_need(p, EXL2__GPU_VECTORS, parts[i].has_bias ? columns * sizeof(float) : 0);
        if (u.kind == EXL2__UNIT_EXPERT_DOWN && parts[i].has_bias) {
            uint64_t biases = p->r->plan.shape.experts.count * columns * sizeof(float);
            exl2__device_plan_need(p, EXL2__GPU_EXPERT_BIAS, biases);
        }
        if (exl2__runner_can(p->r, head ? UINT32_MAX : u.layer, input)) {
            p->weights += halves;
            *(head ? &p->head : &layers[u.layer]) += halves;
            p->largest = exl2__max64(p->largest, halves);
        }
    }
    return EXL2_OK;
}

/* What stays allocated while a stage runs: buffers that passes use, or the others up to `last`. */
EXL2__PRIVATE uint64_t exl2__device_plan_sum(const exl2__gpu *g, uint32_t first, uint32_t last)
{
    uint64_t sum = 0;
    for (uint32_t i = first; i < last; i++) {
        sum += g->planned[i];
    }
    return sum;
}

/* What passes without moments use: of probes, or of the comparison. All is allocated, unless it was freed before. */
EXL2__PRIVATE uint64_t exl2__device_plan_light(const exl2__device_plan *p)
{
    static const uint8_t moments[] = { EXL2__GPU_COLUMNS, EXL2__GPU_COLUMN_SCALES, EXL2__GPU_EXPERT_SUMS,
                                       EXL2__GPU_SUMS, EXL2__GPU_SUMS + 1, EXL2__GPU_SUMS + 2, EXL2__GPU_SUMS + 3 };
    uint64_t sum = exl2__device_plan_sum(p->g, 0, EXL2__GPU_WORK);
    for (size_t i = 0; p->g->tight && i < EXL2__COUNT(moments); i++) {
        sum -= p->g->planned[moments[i]];
    }
    return sum;
}

/* The most of a matrix's factor and quantizer: with quantized forms `kept` before it, and its own; probed: passes run
   while the factor is allocated. */
EXL2__PRIVATE uint64_t exl2__device_plan_linear(const exl2__device_plan *p, const exl2__linear *linear, uint64_t kept,
                                                uint64_t own, bool probed)
{
    const exl2__gpu *g = p->g;
    uint64_t sizes[EXL2__GPU_SOLVE_BUFFERS], factor = exl2__gpu_factor_bytes(linear->in, false);
    uint64_t solve = exl2__gpu_solve_sizes(linear->in, linear->columns, linear->in / 32, sizes);
    uint64_t making = exl2__gpu_factor_bytes(linear->in, true), passes = exl2__device_plan_sum(g, 0, EXL2__GPU_WORK);
    solve += exl2__max64(probed ? exl2__gpu_losses_bytes(linear->in, linear->columns) : 0, own);
    if (!g->tight) {
        return passes + factor + kept + exl2__max64(making, solve);
    }
    uint64_t one = factor + exl2__max64(making, solve + g->planned[EXL2__GPU_RAW]);
    uint64_t pass = probed ? exl2__device_plan_light(p) + factor + own : p->corrected ? passes + own : 0;
    return kept + exl2__max64(one, pass);
}

/* The most that is allocated at once, with at most `limit` of the model's weights. layers: weights of each. */
EXL2__PRIVATE uint64_t exl2__device_plan_peak(exl2__device_plan *p, const uint64_t *layers, uint64_t limit)
{
    const exl2__gpu *g = p->g;
    uint64_t all = exl2__device_plan_sum(g, EXL2__GPU_WORK, EXL2__GPU_SCRATCH_COUNT), tried = 0, made = 0, most = 0;
    uint64_t quantized = all - g->planned[EXL2__GPU_RESIDUAL + 1] - g->planned[EXL2__GPU_ANGLES + 1];
    uint64_t measured = quantized - exl2__device_plan_sum(g, EXL2__GPU_OTHER, EXL2__GPU_ANGLES)
                      - g->planned[EXL2__GPU_STATES_TOO];
    uint32_t last = p->r->plan.shape.layers - 1;
    for (uint32_t i = 0; i < p->linears->count; i++) {
        const exl2__linear *linear = &p->linears->items[i], *before = i ? linear - 1 : NULL;
        bool head = linear->layer == EXL2__LINEARS_NO_LAYER;
        bool there = exl2__runner_can(p->r, head ? UINT32_MAX : linear->layer, linear->input);
        uint64_t own = there ? exl2__gpu_halves_bytes(linear->in, linear->columns) : 0;
        uint64_t weights = !p->r->streamed ? p->weights
                         : (head ? p->head : layers[linear->layer]) + (linear->layer == last ? p->head : 0);
        tried = before && exl2__linears_together(before, linear) ? tried : 0;
        made = before && before->layer == linear->layer ? made : 0; /* with corrected targets they stay in place */
        p->tried = exl2__max64(p->tried, tried + own);
        weights = exl2__min64(weights, limit);
        most = exl2__max64(most, measured + weights + exl2__device_plan_sum(g, 0, EXL2__GPU_WORK)); /* moments */
        if (!head || p->linears->head_bits == 0) {
            most = exl2__max64(most, measured + weights + exl2__device_plan_linear(p, linear, tried, own, true));
        }
        if (p->compared) {
            uint64_t stays = p->corrected && !head ? own : 0;
            most = exl2__max64(most, quantized + weights + exl2__device_plan_linear(p, linear, made, stays, false));
            made += stays;
        }
        tried += own;
    }
    uint64_t both = 2 * (p->r->streamed ? p->head : p->weights) + (p->r->streamed ? layers[last] : 0);
    uint64_t compared = all + exl2__device_plan_light(p) + exl2__min64(both, limit);
    return exl2__max64(most, p->compared ? compared : 0);
}

/* Most trials of a layer before the last one, at least 1. */
EXL2__PRIVATE uint32_t exl2__device_plan_trials(const exl2__linears *s, uint32_t last)
{
    uint32_t count = 0, most = 1;
    for (uint32_t i = 0; i < s->first[last]; i++) {
        const exl2__linear *linear = &s->items[i];
        bool first = i == 0 || linear[-1].layer != linear->layer;
        count = first ? 1 : count + !exl2__linears_together(linear - 1, linear);
        most = exl2__max32(most, count);
    }
    return most;
}

/* Sets p->g's planned sizes and limits, p->needs and p->peak. */
EXL2__PRIVATE exl2_result exl2__device_plan_make(exl2__device_plan *p)
{
    exl2__gpu *g = p->g;
    exl2__arena dry = { 0 }, memory;
    uint32_t layers = p->r->plan.shape.layers;
    exl2__arena_alloc(&dry, layers * sizeof(uint64_t));
    EXL2__TRY(exl2__arena_open(p->c, &memory, dry.used, EXL2_MEM_SCRATCH));
    uint64_t *sums = (uint64_t *)exl2__arena_alloc_zeroed(&memory, layers * sizeof *sums);
    exl2_result result = EXL2_OK;
    memset(g->planned, 0, sizeof g->planned);
    p->trials = exl2__device_plan_trials(p->linears, layers - 1);
    for (uint32_t i = 0; i < exl2__weights_units(&p->r->load) && result >= 0; i++) {
        result = exl2__device_plan_unit(p, i, sums);
    }
    for (uint32_t i = 0; i < layers && result >= 0; i++) {
        exl2__device_plan_layer(p, &p->r->plan.layers[i]);
    }
    if (result >= 0) {
        exl2__device_plan_rest(p);
        for (uint32_t tight = 0; tight < 2; tight++) {
            g->tight = tight != 0;
            p->needs = exl2__device_plan_peak(p, sums, 0);
            p->needs += p->tried + p->largest + EXL2__GPU_SPARE_BYTES;
            if (p->needs <= p->room) {
                break;
            }
        }
        g->weight_max = p->room > p->needs ? p->room - p->needs + p->tried + p->largest : p->tried + p->largest;
        p->peak = exl2__device_plan_peak(p, sums, g->weight_max);
    }
    exl2__arena_close(p->c, &memory);
    return result;
}
#endif

#endif

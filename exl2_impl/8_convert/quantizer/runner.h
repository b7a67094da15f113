/* runner.h: a model on the CPU that runs whole sequences, layer by layer if need be, through the phases of the CPU
   backend: the same code that the engine runs.
   takes: a model folder, the number of tokens of a sequence.
   gives: exl2__runner, exl2__runner_headers, exl2__runner_load, exl2__runner_open, exl2__runner_begin,
          exl2__runner_embed, exl2__runner_layer, exl2__runner_until, exl2__runner_logits, exl2__runner_close;
          exl2__runner_decode, exl2__runner_bytes, exl2__runner_hold; exl2__runner_input, exl2__runner_expert.
   owns:  weights, pages and scratch of the model, until exl2__runner_close.

   A model that does not fit memory is streamed: the weights of one layer at a time are in memory, besides embeddings
   and head. Each layer that runs replaces the one before. */
#ifndef EXL2__RUNNER_H
#define EXL2__RUNNER_H

#include "../../1_load/model_config_read.h"
#include "../../2_graph/weights.h"
#include "../../3_backend/cpu/cpu.h"
#include "../gpu/gpu_inputs.h"

#define EXL2__RUNNER_LOGITS 64u /* most rows whose logits are in memory together */

/* The inputs of a layer's matrices. The input of expert e's down is EXL2__RUNNER_EXPERTS + e. The experts' gate and up
   have the same input as those of a dense MLP or of the shared expert. */
enum { EXL2__RUNNER_QKV, EXL2__RUNNER_OUT, EXL2__RUNNER_UP, EXL2__RUNNER_DOWN, EXL2__RUNNER_EXPERTS };

/* Called before a phase whose matrices have an input that no phase before had; EXPERTS: the inputs of all experts. */
typedef exl2_result (*exl2__runner_fn)(void *user, uint32_t input);

/* Bytes of weights: as they are loaded, and what exl2__runner_decode adds. */
typedef struct exl2__runner_sizes {
    uint64_t loaded, decoded;
} exl2__runner_sizes;

typedef struct exl2__runner {
    exl2__ctx *c;
    exl2__weights load;
    exl2__plan plan;
    exl2__device *device;
    exl2__arena lists;       /* layers, rows, pages */
    exl2__arena weights, cache, scratch, decoded;
    exl2__runner_sizes all, outside, layer; /* of all weights; of those outside the layers; of the largest layer */
    uint64_t other_bytes;    /* what exl2__runner_load allocates besides */
    bool streamed;           /* set after exl2__runner_headers */
    bool decodes;            /* exl2__runner_decode was called */
    uint32_t held;           /* streamed: the layer whose weights are in memory, or UINT32_MAX */
    uint32_t length;         /* the most tokens of a sequence */
    exl2__step_row *rows;    /* [length] */
    exl2__logit_row *wanted; /* [length] every row wants logits */
    uint32_t *pages;         /* 0, 1, 2 ... */
    const uint32_t **tables; /* [sequences] */
    uint32_t sequences;      /* the most of a pass */
    uint32_t count, each;    /* of the pass begun: its sequences, their tokens */
    exl2__step step;
    exl2__gpu *gpu;          /* NULL: all runs on the CPU; else products of dense matrices and of many rows run there */
    exl2__arena copies;      /* of what goes to the GPU, and comes back: */
    float *input;            /* [length, widest input] */
    float *output;           /* [length, widest output] */
    const exl2__layer *copied_layer; /* of the input that is being copied */
    uint32_t copied, first;  /* its number, its first row */
} exl2__runner;

static inline exl2__cpu_device *exl2__runner_cpu(const exl2__runner *r) { return exl2__cpu_of(r->device); }

/* Accepts zeroed ones. */
static void exl2__runner_close(exl2__runner *r)
{
    if (r->c) {
        exl2__weights_close(r->c, &r->load);
        exl2__arena_close(r->c, &r->scratch);
        exl2__arena_close(r->c, &r->cache);
        exl2__arena_close(r->c, &r->weights);
        exl2__arena_close(r->c, &r->decoded);
        exl2__arena_close(r->c, &r->lists);
        exl2__arena_close(r->c, &r->copies);
        exl2__cpu_backend.close(r->device);
    }
    *r = (exl2__runner){ 0 };
}

static void exl2__runner_layout_layers(exl2__runner *r, exl2__arena *a)
{
    const exl2__config *config = &r->load.config;
    uint64_t angles = (uint64_t)r->plan.rope_count * (config->rotary / 2);
    double *frequencies = (double *)exl2__arena_alloc(a, angles * sizeof *frequencies);
    exl2__rope_angles *ropes = (exl2__rope_angles *)exl2__arena_alloc(a, r->plan.rope_count * sizeof *ropes);
    exl2__layer *layers = (exl2__layer *)exl2__arena_alloc_zeroed(a, config->layers * sizeof *layers);
    uint64_t pointers = exl2__plan_expert_pointers(config);
    exl2__matrix **experts = (exl2__matrix **)exl2__arena_alloc_zeroed(a, pointers * sizeof *experts);
    if (layers) {
        r->plan.layers = layers;
        exl2__plan_layers(&r->plan, config, layers);
        exl2__plan_experts(config, experts, layers);
        exl2__plan_ropes(&r->plan, config, frequencies, ropes);
    }
}

static void exl2__runner_layout_rows(exl2__runner *r, exl2__arena *a)
{
    r->rows = (exl2__step_row *)exl2__arena_alloc(a, r->length * sizeof *r->rows);
    r->wanted = (exl2__logit_row *)exl2__arena_alloc_zeroed(a, r->length * sizeof *r->wanted);
    r->pages = (uint32_t *)exl2__arena_alloc(a, r->plan.pages * sizeof *r->pages);
    r->tables = (const uint32_t **)exl2__arena_alloc(a, r->sequences * sizeof *r->tables);
}

/* Reads the headers of all tensors. */
static exl2_result exl2__runner_measure(exl2__runner *r, const char *dir)
{
    exl2__weights_reader reader;
    exl2__work all = exl2__work_all();
    exl2__weights_read_begin(&reader, r->c, &r->load, dir, &exl2__cpu_backend, r->device);
    exl2_result result = exl2__weights_read_some(&reader, &all);
    exl2__weights_read_end(&reader);
    return result;
}

/* First unit of a layer; of the number of layers: that of the head. */
static uint32_t exl2__runner_unit(const exl2__runner *r, uint32_t layer)
{
    const exl2__config *config = &r->load.config;
    uint32_t unit = 1 + (config->arch.names[EXL2__NAME_POSITIONS][0] != 0);
    for (uint32_t i = 0; i < layer; i++) {
        unit += exl2__unit_of_layer(config, i);
    }
    return unit;
}

/* Bytes of the matrices of the units [begin, end). */
static exl2_result exl2__runner_units_bytes(const exl2__runner *r, uint32_t begin, uint32_t end,
                                            exl2__runner_sizes *out)
{
    *out = (exl2__runner_sizes){ 0, 0 };
    for (uint32_t i = begin; i < end; i++) {
        exl2__unit u;
        exl2__matrix_desc parts[3];
        EXL2__TRY(exl2__weights_find(r->c, &r->load, i, &u, parts));
        out->loaded += exl2__cpu_backend.matrix_bytes(r->device, parts, u.count);
        for (uint32_t k = 0; k < u.count && !u.table; k++) {
            out->decoded += parts[k].kind == EXL2__MATRIX_DENSE ? 0
                          : exl2__align_up(parts[k].out, EXL2__CPU_STRIP) * u.in * sizeof(uint16_t);
        }
    }
    return EXL2_OK;
}

/* The same of one layer, with its norms. */
static exl2_result exl2__runner_layer_bytes(const exl2__runner *r, uint32_t layer, exl2__runner_sizes *out)
{
    exl2__unit_vector vectors[EXL2__UNIT_VECTORS_MAX];
    uint32_t count = exl2__unit_vectors(&r->load.config, layer, vectors);
    EXL2__TRY(exl2__runner_units_bytes(r, exl2__runner_unit(r, layer), exl2__runner_unit(r, layer + 1), out));
    for (uint32_t i = 0; i < count; i++) {
        bool present;
        EXL2__TRY(exl2__unit_vector_check(r->c, &r->load.tensors, &vectors[i], &present));
        out->loaded += present ? exl2__cpu_backend.vector_bytes(r->device, vectors[i].count) : 0;
    }
    return EXL2_OK;
}

/* Fills in r->all, r->outside and r->layer. */
static exl2_result exl2__runner_sizes_make(exl2__runner *r)
{
    EXL2__TRY(exl2__runner_units_bytes(r, 0, exl2__weights_units(&r->load), &r->all));
    r->all.loaded = r->load.weight_bytes; /* with norms */
    r->outside = r->all;
    for (uint32_t layer = 0; layer < r->plan.shape.layers; layer++) {
        exl2__runner_sizes one;
        EXL2__TRY(exl2__runner_layer_bytes(r, layer, &one));
        r->outside.loaded -= one.loaded;
        r->outside.decoded -= one.decoded;
        r->layer.loaded = exl2__max64(r->layer.loaded, one.loaded);
        r->layer.decoded = exl2__max64(r->layer.decoded, one.decoded);
    }
    return EXL2_OK;
}

/* What exl2__runner_load allocates, and exl2__runner_decode, if it is called. */
static uint64_t exl2__runner_bytes(const exl2__runner *r, bool decode)
{
    exl2__runner_sizes s = r->all;
    if (r->streamed) {
        s = (exl2__runner_sizes){ r->outside.loaded + r->layer.loaded, r->outside.decoded + r->layer.decoded };
    }
    return r->other_bytes + s.loaded + (decode ? s.decoded : 0);
}

static exl2_result exl2__runner_headers_steps(exl2__runner *r, const char *dir)
{
    exl2__ctx *c = r->c;
    exl2__arena lists = { 0 }, pages = { 0 }, scratch = { 0 };
    EXL2__TRY(exl2__config_read(c, dir, &r->load.config));
    EXL2__TRY(exl2__cpu_backend.open(c, NULL, &r->device));
    EXL2__TRY(exl2__runner_measure(r, dir));
    exl2__plan_make(&r->plan, &r->load.config, r->load.embed_rows, r->length, r->length, 1);
    r->plan.shape.affine = r->load.has_affine;
    r->plan.pages = r->plan.context_max / EXL2__PAGE_TOKENS;
    r->plan.logit_rows_max = exl2__min32(r->length, EXL2__RUNNER_LOGITS);
    r->sequences = r->plan.pages;
    if (r->length > r->load.config.context_max) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s has a context of %u tokens, fewer than the %u of a row", dir,
                          r->load.config.context_max, r->length);
    }
    exl2__runner_layout_layers(r, &lists);
    exl2__runner_layout_rows(r, &lists);
    EXL2__TRY(exl2__arena_open(c, &r->lists, lists.used, EXL2_MEM_SCRATCH));
    exl2__runner_layout_layers(r, &r->lists);
    exl2__runner_layout_rows(r, &r->lists);
    for (uint32_t i = 0; i < r->length; i++) {
        r->wanted[i].row = i;
    }
    for (uint32_t i = 0; i < r->plan.pages; i++) {
        r->pages[i] = i;
    }
    EXL2__TRY(exl2__cpu_backend.prepare(r->device, &r->plan, &pages, &scratch));
    r->other_bytes = exl2__weights_more_bytes(&r->load) + pages.used + scratch.used;
    return exl2__runner_sizes_make(r);
}

/* Reads and checks the headers of the model in `dir`; what needs no weights can be asked then. After a failure *r is
   zeroed. */
static exl2_result exl2__runner_headers(exl2__ctx *c, const char *dir, uint32_t length, exl2__runner *r)
{
    *r = (exl2__runner){ 0 };
    r->c = c;
    r->length = length;
    exl2_result result = exl2__runner_headers_steps(r, dir);
    if (result < 0) {
        exl2__runner_close(r);
    }
    return result;
}

/* Reads the weights, after the headers; of a streamed model those outside the layers. */
static exl2_result exl2__runner_load(exl2__runner *r)
{
    exl2__ctx *c = r->c;
    exl2__arena pages = { 0 }, scratch = { 0 };
    exl2__work all = exl2__work_all();
    uint64_t bytes = r->streamed ? r->outside.loaded + r->layer.loaded : r->all.loaded;
    EXL2__TRY(exl2__cpu_backend.prepare(r->device, &r->plan, &pages, &scratch));
    EXL2__TRY(exl2__arena_open(c, &r->weights, bytes, EXL2_MEM_WEIGHTS));
    EXL2__TRY(exl2__arena_open(c, &r->cache, pages.used, EXL2_MEM_KV));
    EXL2__TRY(exl2__arena_open(c, &r->scratch, scratch.used, EXL2_MEM_SCRATCH));
    EXL2__TRY(exl2__weights_begin(c, &r->load));
    if (r->streamed) {
        EXL2__TRY(exl2__weights_until(c, &r->load, exl2__runner_unit(r, 0), &r->plan, &exl2__cpu_backend, r->device,
                                      &r->weights, &all));
        r->load.unit = exl2__runner_unit(r, r->plan.shape.layers);
        r->held = UINT32_MAX;
    }
    EXL2__TRY(exl2__weights_some(c, &r->load, &r->plan, &exl2__cpu_backend, r->device, &r->weights, &all));
    return exl2__cpu_backend.prepare(r->device, &r->plan, &r->cache, &r->scratch);
}

/* Both. After a failure *r is zeroed. */
static exl2_result exl2__runner_open(exl2__ctx *c, const char *dir, uint32_t length, exl2__runner *r)
{
    EXL2__TRY(exl2__runner_headers(c, dir, length, r));
    exl2_result result = exl2__runner_load(r);
    if (result < 0) {
        exl2__runner_close(r);
    }
    return result;
}

/* ---- sources that are quantized ---- */

/* Makes a part dense: its weights become the FP16 numbers that its codes stand for, which are exact. */
static void exl2__runner_decode_part(exl2__cpu_part *p, exl2__arena *a)
{
    uint64_t strip_bytes = (uint64_t)p->in * EXL2__CPU_STRIP * sizeof(uint16_t);
    uint16_t *data = (uint16_t *)exl2__arena_alloc(a, p->strips * strip_bytes);
    if (!data) {
        return; /* a dry run */
    }
    for (uint32_t i = 0; i < p->in; i++) {
        for (uint32_t column = 0; column < p->strips * EXL2__CPU_STRIP; column++) {
            float w = column < p->out ? exl2__cpu_matrix_weight(p, i, column) : 0;
            data[((size_t)(column / EXL2__CPU_STRIP) * p->in + p->order[i]) * EXL2__CPU_STRIP
                 + column % EXL2__CPU_STRIP] = exl2__f32_to_f16(w);
        }
    }
    p->source = EXL2__CPU_F16;
    p->data = (uint8_t *)data;
    p->strip_bytes = strip_bytes;
    p->block = NULL;
    p->order = NULL;
}

/* The same for all parts of a matrix, which may be NULL. */
static void exl2__runner_decode_matrix(exl2__matrix *matrix, exl2__arena *a)
{
    const exl2__cpu_matrix *m = matrix ? exl2__cpu_matrix_of(matrix) : NULL;
    bool changed = false;
    for (uint32_t i = 0; m && i < m->count; i++) {
        if (exl2__cpu_matrix_is_codes(m->parts[i].source)) {
            exl2__runner_decode_part(&m->parts[i], a);
            changed = true;
        }
    }
    for (uint32_t i = 0; changed && a->base && i < m->count; i++) {
        for (m->parts[i].input_part = 0; !exl2__cpu_matrix_same_input(&m->parts[m->parts[i].input_part], &m->parts[i]);
             m->parts[i].input_part++) {
        }
    }
}

static void exl2__runner_decode_layer(exl2__runner *r, uint32_t index, exl2__arena *a)
{
    exl2__layer *layer = &r->plan.layers[index];
    exl2__matrix *all[] = { layer->qkv, layer->out, layer->gate_up, layer->down, layer->router };
    for (size_t k = 0; k < EXL2__COUNT(all); k++) {
        exl2__runner_decode_matrix(all[k], a);
    }
    for (uint32_t e = 0; layer->router && e < r->plan.shape.experts.count; e++) {
        exl2__runner_decode_matrix(layer->expert_up[e], a);
        exl2__runner_decode_matrix(layer->expert_down[e], a);
    }
}

/* Makes all matrices dense, so that each can be measured and replaced alone; of a streamed model also those that are
   loaded later. */
static exl2_result exl2__runner_decode(exl2__runner *r)
{
    uint64_t bytes = r->streamed ? r->outside.decoded + r->layer.decoded : r->all.decoded;
    r->decodes = true;
    if (bytes > 0) {
        EXL2__TRY(exl2__arena_open(r->c, &r->decoded, bytes, EXL2_MEM_WEIGHTS));
        exl2__runner_decode_matrix(r->plan.head, &r->decoded);
        for (uint32_t i = 0; i < r->plan.shape.layers && !r->streamed; i++) {
            exl2__runner_decode_layer(r, i, &r->decoded);
        }
    }
    return EXL2_OK;
}

/* ---- streaming ---- */

/* Has the weights of a layer in memory. Those of another layer, and pointers to them, are then invalid. */
static exl2_result exl2__runner_hold(exl2__runner *r, uint32_t layer)
{
    exl2__work all = exl2__work_all();
    if (!r->streamed || r->held == layer) {
        return EXL2_OK;
    }
    r->held = UINT32_MAX;
    r->weights.used = r->outside.loaded;
    r->load.unit = exl2__runner_unit(r, layer);
    EXL2__TRY(exl2__weights_until(r->c, &r->load, exl2__runner_unit(r, layer + 1), &r->plan, &exl2__cpu_backend,
                                  r->device, &r->weights, &all));
    if (r->decodes && r->layer.decoded > 0) {
        r->decoded.used = r->outside.decoded;
        exl2__runner_decode_layer(r, layer, &r->decoded);
    }
    r->held = layer;
    return EXL2_OK;
}

/* ---- a pass ---- */

/* Sequences of `each` tokens that a pass can have. */
static inline uint32_t exl2__runner_together(const exl2__runner *r, uint32_t each)
{
    uint32_t pages = (uint32_t)exl2__div_up(each, EXL2__PAGE_TOKENS);
    return exl2__max32(exl2__min32(r->length / each, r->plan.pages / pages), 1);
}

/* Begins a pass over `count` sequences of `each` tokens, which are valid ids. Where the last pass had as many, only the
   tokens are new. */
static exl2_result exl2__runner_begin_all(exl2__runner *r, const exl2_token *const *tokens, uint32_t count,
                                          uint32_t each)
{
    for (uint32_t i = 0; i < count * each; i++) {
        r->rows[i] = (exl2__step_row){ tokens[i / each][i % each], i % each, i / each };
    }
    if (r->count == count && r->each == each) {
        return EXL2_OK;
    }
    for (uint32_t i = 0; i < count; i++) {
        r->tables[i] = r->pages + i * exl2__div_up(each, EXL2__PAGE_TOKENS);
    }
    r->step = (exl2__step){ 0 };
    r->step.rows = r->rows;
    r->step.row_count = count * each;
    r->step.sequence_count = count;
    r->step.page_tables = r->tables;
    r->step.logits = r->wanted;
    r->step.logit_count = count * each;
    r->count = count;
    r->each = each;
    return exl2__cpu_backend.begin(r->device, &r->step);
}

/* Begins a pass over one sequence. */
static exl2_result exl2__runner_begin(exl2__runner *r, const exl2_token *tokens, uint32_t count)
{
    return exl2__runner_begin_all(r, &tokens, 1, count);
}

/* ---- inputs ---- */

/* Number of inputs that a layer can have. */
static inline uint32_t exl2__runner_inputs(const exl2__runner *r)
{
    return EXL2__RUNNER_EXPERTS + r->plan.shape.experts.count;
}

/* Features of an input; 0 if the layer does not have it. layer NULL: of the head. Needs no weights. */
static uint32_t exl2__runner_input_size(const exl2__runner *r, const exl2__layer *layer, uint32_t input)
{
    const exl2__shape *s = &r->plan.shape;
    const exl2__config *config = &r->load.config;
    bool sparse = layer && exl2__unit_sparse(config, layer->index);
    if (layer && input == EXL2__RUNNER_OUT) {
        return s->heads * s->head_dim;
    }
    if (layer && input == EXL2__RUNNER_DOWN) {
        return sparse ? s->experts.shared_inter : config->inter;
    }
    if (input >= EXL2__RUNNER_EXPERTS) {
        return sparse ? s->experts.inter : 0;
    }
    return layer || input == EXL2__RUNNER_QKV ? s->hidden : 0;
}

/* Row `row` of an input but EXPERTS, as the following phase will compute it, to x [input size]. layer NULL: that of the
   head. */
static void exl2__runner_input(const exl2__runner *r, const exl2__layer *layer, uint32_t input, uint32_t row, float *x)
{
    const exl2__cpu_device *d = exl2__runner_cpu(r);
    const float *residual = d->residual + (size_t)row * d->hidden_stride;
    if (layer && input == EXL2__RUNNER_OUT) {
        memcpy(x, d->query + (size_t)row * d->query_stride, exl2__runner_input_size(r, layer, input) * sizeof *x);
    } else if (layer && input == EXL2__RUNNER_DOWN) {
        memcpy(x, d->gate + (size_t)row * d->inter_stride, exl2__runner_input_size(r, layer, input) * sizeof *x);
    } else {
        exl2__cpu_norm_or_copy(d, !layer ? &r->plan.final_norm
                                  : input == EXL2__RUNNER_QKV ? &layer->attn_norm : &layer->mlp_norm, residual, x);
    }
}

/* ---- products on a GPU ---- */

#ifndef EXL2_NO_CUDA

/* The matrix of a phase that can run on the GPU: one of many rows whose parts are dense; else NULL. A layer with a
   router keeps its MLP on the CPU. */
static const exl2__cpu_matrix *exl2__runner_matrix(const exl2__runner *r, exl2__phase phase, const exl2__layer *layer)
{
    const exl2__matrix *matrix = phase == EXL2__PHASE_qkv ? layer->qkv : phase == EXL2__PHASE_out ? layer->out
                               : phase == EXL2__PHASE_head ? r->plan.head
                               : phase == EXL2__PHASE_gate_up && !layer->router ? layer->gate_up
                               : phase == EXL2__PHASE_down && !layer->router ? layer->down : NULL;
    const exl2__cpu_matrix *m = r->gpu && matrix ? exl2__cpu_matrix_of(matrix) : NULL;
    for (uint32_t i = 0; m && i < m->count; i++) {
        if (exl2__cpu_matrix_is_codes(m->parts[i].source) || m->parts[i].in % EXL2__CPU_STRIP != 0) {
            return NULL;
        }
    }
    return m;
}

/* Task: one row of an input. */
static void exl2__runner_copy_row(void *arg, uint32_t row)
{
    const exl2__runner *r = (const exl2__runner *)arg;
    uint32_t in = exl2__runner_input_size(r, r->copied_layer, r->copied);
    exl2__runner_input(r, r->copied_layer, r->copied, r->first + row, r->input + (size_t)row * in);
}

/* Copies rows of an input to the GPU. layer NULL: that of the head. */
static exl2_result exl2__runner_upload(exl2__runner *r, const exl2__layer *layer, uint32_t input, uint32_t first,
                                       uint32_t rows)
{
    r->copied_layer = layer;
    r->copied = input;
    r->first = first;
    exl2__tasks_run(r->c, rows, exl2__runner_copy_row, r);
    return exl2__gpu_rows(r->gpu, r->input, rows, exl2__runner_input_size(r, layer, input));
}

/* A product that is being copied to where the CPU's phases have it. */
typedef struct exl2__runner_result {
    const float *from;
    float *to;
    const float *bias; /* [count] or NULL */
    size_t from_stride, to_stride, count;
    float add; /* 0: replaces what is there; else is multiplied, and added to it */
} exl2__runner_result;

/* Task: one row. */
static void exl2__runner_result_row(void *arg, uint32_t row)
{
    const exl2__runner_result *p = (const exl2__runner_result *)arg;
    const float *from = p->from + row * p->from_stride;
    float *to = p->to + row * p->to_stride;
    for (size_t i = 0; i < p->count; i++) {
        float y = p->bias ? from[i] + p->bias[i] : from[i];
        to[i] = p->add != 0 ? to[i] + p->add * y : y;
    }
}

/* The rows on the GPU times one part, as exl2__cpu_product. */
static exl2_result exl2__runner_product(exl2__runner *r, const exl2__cpu_part *p, float *out, size_t stride, float add)
{
    size_t columns = (size_t)p->strips * EXL2__CPU_STRIP;
    EXL2__TRY(exl2__gpu_product(r->gpu, p, r->output));
    exl2__runner_result result = { r->output, out, p->bias, columns, stride, columns < stride ? columns : stride, add };
    exl2__tasks_run(r->c, r->gpu->rows, exl2__runner_result_row, &result);
    return EXL2_OK;
}

/* Does the activation stay on the GPU? It is the input of `down` there, if no other product comes between them. */
static bool exl2__runner_keeps_act(const exl2__runner *r, const exl2__layer *layer)
{
    bool follows = false;
    for (uint32_t i = 1; i < layer->phase_count; i++) {
        follows |= layer->phases[i - 1] == EXL2__PHASE_gate_up && layer->phases[i] == EXL2__PHASE_down;
    }
    return follows && exl2__runner_matrix(r, EXL2__PHASE_gate_up, layer)
           && exl2__runner_matrix(r, EXL2__PHASE_down, layer);
}

/* Both products of the MLP, or one, and the activation. */
static exl2_result exl2__runner_gate_up(exl2__runner *r, const exl2__cpu_matrix *m, const exl2__layer *layer)
{
    exl2__cpu_device *d = exl2__runner_cpu(r);
    if (exl2__runner_keeps_act(r, layer)) {
        return exl2__gpu_act(r->gpu, &m->parts[0], d->shape.gated ? &m->parts[1] : NULL, (uint32_t)d->shape.act,
                             d->shape.act_limit);
    }
    EXL2__TRY(exl2__runner_product(r, &m->parts[0], d->gate, d->inter_stride, 0));
    if (d->shape.gated) {
        EXL2__TRY(exl2__runner_product(r, &m->parts[1], d->up, d->inter_stride, 0));
    }
    exl2__cpu_share all = { d, layer, NULL, 0, m->parts[0].strips, 0 }; /* no scratch is used */
    exl2__cpu_device_split(exl2__cpu_gate_up_act, &all, (uint64_t)r->step.row_count * d->inter_stride * 16);
    return EXL2_OK;
}

/* A phase whose products run on the GPU, where its input is already; what is not a product runs on the CPU. */
static exl2_result exl2__runner_phase_gpu(exl2__runner *r, exl2__phase phase, const exl2__layer *layer,
                                          const exl2__cpu_matrix *m, exl2__range range)
{
    exl2__cpu_device *d = exl2__runner_cpu(r);
    const exl2__norm *post;
    float *out[3] = { d->query, d->key, d->value };
    switch (phase) {
    case EXL2__PHASE_qkv:
        for (uint32_t i = 0; i < 3; i++) {
            EXL2__TRY(exl2__runner_product(r, &m->parts[i], out[i], i ? d->key_stride : d->query_stride, 0));
        }
        range.begin = range.end - exl2__cpu_device_tiles(d, r->step.row_count); /* the last stage */
        return exl2__cpu_run(r->device, phase, layer, &range);
    case EXL2__PHASE_gate_up:
        return exl2__runner_gate_up(r, m, layer);
    case EXL2__PHASE_head: {
        EXL2__TRY(exl2__runner_product(r, &m->parts[0], d->logits, d->vocab_stride, 0));
        exl2__cpu_share all = { d, NULL, &range, 0, d->vocab_stride / EXL2__CPU_STRIP, 0 };
        exl2__cpu_device_split(exl2__cpu_head_scale, &all, (uint64_t)range.logit_count * d->vocab_stride * 16);
        return EXL2_OK;
    }
    default: /* out, down */
        post = phase == EXL2__PHASE_out ? &layer->attn_post_norm : &layer->mlp_post_norm;
        return exl2__runner_product(r, &m->parts[0], post->weight ? d->branch : d->residual, d->hidden_stride,
                                    post->weight ? 0 : (float)d->shape.residual_scale);
    }
}

/* Are the products of this part computed on the GPU? */
static bool exl2__runner_computes(const exl2__runner *r, const exl2__cpu_part *p)
{
    static const exl2__phase phases[] = { EXL2__PHASE_qkv, EXL2__PHASE_out, EXL2__PHASE_gate_up, EXL2__PHASE_down };
    const exl2__cpu_matrix *m = exl2__runner_matrix(r, EXL2__PHASE_head, NULL);
    bool found = m && p == m->parts;
    for (uint32_t i = 0; i < r->plan.shape.layers && !found; i++) {
        for (size_t k = 0; k < EXL2__COUNT(phases) && !found; k++) {
            m = exl2__runner_matrix(r, phases[k], &r->plan.layers[i]);
            found = m && p >= m->parts && p < m->parts + m->count;
        }
    }
    return found;
}

static void exl2__runner_layout_copies(exl2__runner *r, exl2__arena *a)
{
    const exl2__cpu_device *d = exl2__runner_cpu(r);
    uint64_t in = exl2__max32(d->hidden_stride, exl2__max32(d->query_stride, d->inter_stride));
    uint64_t rows = exl2__min32(r->length, r->plan.logit_rows_max);
    uint64_t logits = rows * exl2__align_up(exl2__cpu_matrix_of(r->plan.head)->parts->out, EXL2__CPU_STRIP);
    r->input = (float *)exl2__arena_alloc(a, r->length * in * sizeof *r->input);
    r->output = (float *)exl2__arena_alloc(a, exl2__max64(r->length * in, logits) * sizeof *r->output);
}

/* From here on products run on the GPU. The runner has its weights. */
static exl2_result exl2__runner_use(exl2__runner *r, exl2__gpu *gpu)
{
    exl2__arena dry = { 0 };
    exl2__runner_layout_copies(r, &dry);
    EXL2__TRY(exl2__arena_open(r->c, &r->copies, dry.used, EXL2_MEM_SCRATCH));
    exl2__runner_layout_copies(r, &r->copies);
    r->gpu = gpu;
    return EXL2_OK;
}
#endif

/* ---- phases ---- */

/* All items of one phase. On a GPU, its input has been copied there. */
static exl2_result exl2__runner_phase(exl2__runner *r, exl2__phase phase, const exl2__layer *layer, exl2__range range)
{
    range.begin = 0;
    range.end = exl2__cpu_backend.items(r->device, phase, layer, &range);
#ifndef EXL2_NO_CUDA
    const exl2__cpu_matrix *m = exl2__runner_matrix(r, phase, layer);
    if (m) {
        return exl2__runner_phase_gpu(r, phase, layer, m, range);
    }
#endif
    return exl2__cpu_run(r->device, phase, layer, &range);
}

/* The residual becomes the embeddings of the tokens. */
static exl2_result exl2__runner_embed(exl2__runner *r)
{
    return exl2__runner_phase(r, EXL2__PHASE_embed, NULL, (exl2__range){ 0 });
}

/* The input that a phase reads first, or UINT32_MAX. */
static uint32_t exl2__runner_input_of(const exl2__layer *layer, exl2__phase phase)
{
    switch (phase) {
    case EXL2__PHASE_qkv:
        return EXL2__RUNNER_QKV;
    case EXL2__PHASE_out:
        return EXL2__RUNNER_OUT;
    case EXL2__PHASE_route:
        return EXL2__RUNNER_UP;
    case EXL2__PHASE_gate_up:
        return layer->router ? UINT32_MAX : EXL2__RUNNER_UP;
    case EXL2__PHASE_down:
        return EXL2__RUNNER_DOWN;
    case EXL2__PHASE_expert_down:
        return EXL2__RUNNER_EXPERTS;
    default:
        return UINT32_MAX;
    }
}

/* One layer, on the residual of the pass begun. tap: NULL, or called for each input. */
static exl2_result exl2__runner_layer(exl2__runner *r, uint32_t index, exl2__runner_fn tap, void *user)
{
    const exl2__layer *layer = &r->plan.layers[index];
    EXL2__TRY(exl2__runner_hold(r, index));
    for (uint32_t i = 0; i < layer->phase_count; i++) {
        exl2__phase phase = layer->phases[i];
        exl2__range range = { 0 };
        range.before = i ? layer->phases[i - 1] : EXL2__PHASE_COUNT;
        uint32_t input = exl2__runner_input_of(layer, phase);
#ifndef EXL2_NO_CUDA
        bool wanted = tap && input < EXL2__RUNNER_EXPERTS && exl2__runner_input_size(r, layer, input) % 32 == 0;
        bool there = phase == EXL2__PHASE_down && exl2__runner_keeps_act(r, layer);
        if (r->gpu && !there && (wanted || exl2__runner_matrix(r, phase, layer))) {
            EXL2__TRY(exl2__runner_upload(r, layer, input, 0, r->step.row_count));
        }
#endif
        if (tap && input != UINT32_MAX) {
            EXL2__TRY(tap(user, input));
        }
        EXL2__TRY(exl2__runner_phase(r, phase, layer, range));
    }
    return EXL2_OK;
}

/* On the CPU: the phases of a layer before the one that reads an input first. */
static exl2_result exl2__runner_until(exl2__runner *r, uint32_t index, uint32_t input)
{
    const exl2__layer *layer = &r->plan.layers[index];
    EXL2__TRY(exl2__runner_hold(r, index));
    for (uint32_t i = 0; i < layer->phase_count && exl2__runner_input_of(layer, layer->phases[i]) != input; i++) {
        exl2__range range = { 0 };
        range.before = i ? layer->phases[i - 1] : EXL2__PHASE_COUNT;
        EXL2__TRY(exl2__runner_phase(r, layer->phases[i], layer, range));
    }
    return EXL2_OK;
}

/* Before expert_down: the inputs [*count, *stride] of one of the experts that the pass uses, whose index is
   *expert. `number` is below the device's routed.expert_count. */
static const float *exl2__runner_expert(const exl2__runner *r, uint32_t number, uint32_t *expert, uint32_t *count,
                                        uint32_t *stride)
{
    const exl2__cpu_routed *routed = &exl2__runner_cpu(r)->routed;
    const exl2__cpu_expert *one = &routed->experts[number];
    *expert = one->index;
    *count = one->rows;
    *stride = routed->expert_stride;
    return routed->h + (size_t)routed->tiles[one->tile].slot * routed->expert_stride;
}

/* ---- logits ---- */

/* Called with the logits [vocab] of each row, in any order, by the application's threads. */
typedef void (*exl2__runner_logits_fn)(void *user, uint32_t row, const float *logits);

typedef struct exl2__runner_rows { /* the logits that are there */
    const exl2__cpu_device *d;
    uint32_t first;
    exl2__runner_logits_fn fn;
    void *user;
} exl2__runner_rows;

/* Task: one row. */
static void exl2__runner_logits_row(void *arg, uint32_t index)
{
    const exl2__runner_rows *rows = (const exl2__runner_rows *)arg;
    rows->fn(rows->user, rows->first + index, rows->d->logits + (size_t)index * rows->d->vocab_stride);
}

/* The logits of the rows of a range. */
static exl2_result exl2__runner_head(exl2__runner *r, exl2__range range)
{
#ifndef EXL2_NO_CUDA
    if (exl2__runner_matrix(r, EXL2__PHASE_head, NULL)) {
        EXL2__TRY(exl2__runner_upload(r, NULL, EXL2__RUNNER_QKV, range.logit0, range.logit_count));
    }
#endif
    return exl2__runner_phase(r, EXL2__PHASE_head, NULL, range);
}

/* Computes the logits of all rows from the residual. */
static exl2_result exl2__runner_logits(exl2__runner *r, exl2__runner_logits_fn fn, void *user)
{
    exl2__runner_rows rows = { exl2__runner_cpu(r), 0, fn, user };
    for (uint32_t row = 0; row < r->step.row_count; row += r->plan.logit_rows_max) {
        exl2__range range = { 0 };
        range.logit0 = row;
        range.logit_count = exl2__min32(r->step.row_count - row, r->plan.logit_rows_max);
        EXL2__TRY(exl2__runner_head(r, range));
        rows.first = row;
        exl2__tasks_run(r->c, range.logit_count, exl2__runner_logits_row, &rows);
    }
    return EXL2_OK;
}

#endif

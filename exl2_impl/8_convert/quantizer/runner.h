/* runner.h: a model that runs whole sequences, layer by layer if need be: its weights. runner_pass.h has the passes.
   takes: a model folder, the number of tokens of a sequence.
   gives: exl2__runner, exl2__runner_headers, exl2__runner_load, exl2__runner_open, exl2__runner_close;
          exl2__runner_decode, exl2__runner_bytes, exl2__runner_hold.
   owns:  weights, pages and scratch of the model, until exl2__runner_close.

   A model that does not fit memory is streamed: the weights of one layer at a time are in memory, besides embeddings
   and head. Each layer that runs replaces the one before. */
#ifndef EXL2__RUNNER_H
#define EXL2__RUNNER_H

#include "../../1_load/model_config_read.h"
#include "../decode.h"
#include "../gpu/gpu_pass.h"
#include "runner_read.h"

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
    uint32_t row_count;      /* tokens of the pass begun */
    exl2__gpu *gpu;          /* NULL: all runs on the CPU; else what exl2__runner_on_gpu says runs there */
    bool residual_on_gpu;    /* the residual of the pass is in its memory, not in that of the CPU */
#ifndef EXL2_NO_CUDA
    exl2__gpu_pass pass;
    exl2__arena copies;      /* memory of `input` and `output` */
    float *input;            /* [length, widest input] copied to the GPU */
    float *output;           /* [logit rows, columns of the head] copied from there */
    exl2__gpu_routed routed; /* of a pass there */
    const exl2__layer *copied_layer; /* layer of the input that is being copied */
    uint32_t copied;         /* number of that input */
#endif
} exl2__runner;

static inline exl2__cpu_device *exl2__runner_cpu(const exl2__runner *r) { return exl2__cpu_of(r->device); }

/* Accepts zeroed ones. */
EXL2__PRIVATE void exl2__runner_close(exl2__runner *r)
{
    if (r->c) {
        exl2__weights_close(r->c, &r->load);
        exl2__arena_close(r->c, &r->scratch);
        exl2__arena_close(r->c, &r->cache);
        exl2__arena_close(r->c, &r->weights);
        exl2__arena_close(r->c, &r->decoded);
        exl2__arena_close(r->c, &r->lists);
#ifndef EXL2_NO_CUDA
        exl2__arena_close(r->c, &r->copies);
#endif
        exl2__cpu_backend.close(r->device);
    }
    *r = (exl2__runner){ 0 };
}

EXL2__PRIVATE void exl2__runner_layout_layers(exl2__runner *r, exl2__arena *a)
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

EXL2__PRIVATE void exl2__runner_layout_rows(exl2__runner *r, exl2__arena *a)
{
    r->rows = (exl2__step_row *)exl2__arena_alloc(a, r->length * sizeof *r->rows);
    r->wanted = (exl2__logit_row *)exl2__arena_alloc_zeroed(a, r->length * sizeof *r->wanted);
    r->pages = (uint32_t *)exl2__arena_alloc(a, r->plan.pages * sizeof *r->pages);
    r->tables = (const uint32_t **)exl2__arena_alloc(a, r->sequences * sizeof *r->tables);
}

/* Reads the headers of all tensors. */
EXL2__PRIVATE exl2_result exl2__runner_measure(exl2__runner *r, const char *dir)
{
    exl2__weights_reader reader;
    exl2__work all = exl2__work_all();
    exl2__weights_read_begin(&reader, r->c, &r->load, dir, &exl2__cpu_backend, r->device);
    r->load.decodes_exl3 = true; /* their codes say nothing in the model's basis */
    exl2_result result = exl2__weights_read_slice(&reader, &all);
    exl2__weights_read_end(&reader);
    return result < 0 || !r->load.headless ? result
         : exl2__fail(r->c, EXL2_ERR_UNSUPPORTED, "%s has no head, so its text cannot be compared", dir);
}

/* First unit of a layer; of the number of layers: that of the head. */
EXL2__PRIVATE uint32_t exl2__runner_unit(const exl2__runner *r, uint32_t layer)
{
    const exl2__config *config = &r->load.config;
    uint32_t unit = 1 + (config->arch.names[EXL2__NAME_POSITIONS][0] != 0);
    for (uint32_t i = 0; i < layer; i++) {
        unit += exl2__unit_of_layer(config, i);
    }
    return unit;
}

/* Bytes of the matrices of the units [begin, end). */
EXL2__PRIVATE exl2_result exl2__runner_units_bytes(const exl2__runner *r, uint32_t begin, uint32_t end,
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
EXL2__PRIVATE exl2_result exl2__runner_layer_bytes(const exl2__runner *r, uint32_t layer, exl2__runner_sizes *out)
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
EXL2__PRIVATE exl2_result exl2__runner_sizes_make(exl2__runner *r)
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
EXL2__PRIVATE uint64_t exl2__runner_bytes(const exl2__runner *r, bool decode)
{
    exl2__runner_sizes s = r->all;
    if (r->streamed) {
        s = (exl2__runner_sizes){ r->outside.loaded + r->layer.loaded, r->outside.decoded + r->layer.decoded };
    }
    return r->other_bytes + s.loaded + (decode ? s.decoded : 0);
}

EXL2__PRIVATE exl2_result exl2__runner_headers_steps(exl2__runner *r, const char *dir, const exl2__config_rope *rope)
{
    exl2__ctx *c = r->c;
    exl2__arena lists = { 0 }, pages = { 0 }, scratch = { 0 };
    EXL2__TRY(exl2__config_read(c, dir, &r->load.config));
    EXL2__TRY(rope ? exl2__config_stretch(c, dir, rope, &r->load.config) : EXL2_OK);
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
    r->other_bytes += exl2__runner_read_bytes(c, &r->load);
    return exl2__runner_sizes_make(r);
}

/* Reads and checks the headers of the model in `dir`; what needs no weights can be asked then. rope: NULL, or in place
   of the model's own. After a failure *r is zeroed. */
EXL2__PRIVATE exl2_result exl2__runner_headers(exl2__ctx *c, const char *dir, uint32_t length,
                                               const exl2__config_rope *rope, exl2__runner *r)
{
    *r = (exl2__runner){ 0 };
    r->c = c;
    r->length = length;
    exl2_result result = exl2__runner_headers_steps(r, dir, rope);
    if (result < 0) {
        exl2__runner_close(r);
    }
    return result;
}

/* Reads the weights, after the headers; of a streamed model those outside the layers. */
EXL2__PRIVATE exl2_result exl2__runner_load(exl2__runner *r)
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
        EXL2__TRY(exl2__runner_read_until(c, &r->load, exl2__runner_unit(r, 0), &r->plan, r->device, &r->weights));
        r->load.unit = exl2__runner_unit(r, r->plan.shape.layers);
        r->held = UINT32_MAX;
    }
    EXL2__TRY(exl2__runner_read_until(c, &r->load, exl2__weights_units(&r->load), &r->plan, r->device, &r->weights));
    EXL2__TRY(exl2__weights_slice(c, &r->load, &r->plan, &exl2__cpu_backend, r->device, &r->weights, &all));
    return exl2__cpu_backend.prepare(r->device, &r->plan, &r->cache, &r->scratch);
}

/* Both. After a failure *r is zeroed. */
EXL2__PRIVATE exl2_result exl2__runner_open(exl2__ctx *c, const char *dir, uint32_t length,
                                            const exl2__config_rope *rope, exl2__runner *r)
{
    EXL2__TRY(exl2__runner_headers(c, dir, length, rope, r));
    exl2_result result = exl2__runner_load(r);
    if (result < 0) {
        exl2__runner_close(r);
    }
    return result;
}

/* ---- sources that are quantized ---- */

/* Makes a part dense: its weights become the FP16 numbers that its codes stand for, which are exact. */
EXL2__PRIVATE void exl2__runner_decode_part(const exl2__ctx *c, exl2__cpu_part *p, exl2__arena *a)
{
    uint64_t strip_bytes = (uint64_t)p->in * EXL2__CPU_STRIP * sizeof(uint16_t);
    uint16_t *data = (uint16_t *)exl2__arena_alloc(a, p->strips * strip_bytes);
    if (!data) {
        return; /* a dry run */
    }
    exl2__decode_part(c, p, data);
    p->source = EXL2__CPU_F16;
    p->data = (uint8_t *)data;
    p->strip_bytes = strip_bytes;
    p->block = NULL;
    p->order = NULL;
}

/* The same for all parts of a matrix, which may be NULL. */
EXL2__PRIVATE void exl2__runner_decode_matrix(const exl2__ctx *c, exl2__matrix *matrix, exl2__arena *a)
{
    const exl2__cpu_matrix *m = matrix ? exl2__cpu_matrix_of(matrix) : NULL;
    bool changed = false;
    for (uint32_t i = 0; m && i < m->count; i++) {
        if (exl2__cpu_matrix_is_codes(m->parts[i].source)) {
            exl2__runner_decode_part(c, &m->parts[i], a);
            changed = true;
        }
    }
    for (uint32_t i = 0; changed && a->base && i < m->count; i++) {
        for (m->parts[i].input_part = 0; !exl2__cpu_matrix_same_input(&m->parts[m->parts[i].input_part], &m->parts[i]);
             m->parts[i].input_part++) {
        }
    }
}

EXL2__PRIVATE void exl2__runner_decode_layer(exl2__runner *r, uint32_t index, exl2__arena *a)
{
    exl2__layer *layer = &r->plan.layers[index];
    for (uint32_t role = 0; role < EXL2__ROLE_SINGLES; role++) {
        exl2__runner_decode_matrix(r->c, layer->matrix[role], a);
    }
    for (uint32_t e = 0; layer->matrix[EXL2__ROLE_ROUTER] && e < r->plan.shape.experts.count; e++) {
        for (uint32_t role = 0; role < EXL2__COUNT(layer->experts); role++) {
            exl2__runner_decode_matrix(r->c, layer->experts[role][e], a);
        }
    }
}

/* Makes all matrices dense, so that each can be measured and replaced alone; of a streamed model also those that are
   loaded later. */
EXL2__PRIVATE exl2_result exl2__runner_decode(exl2__runner *r)
{
    uint64_t bytes = r->streamed ? r->outside.decoded + r->layer.decoded : r->all.decoded;
    r->decodes = true;
    if (bytes > 0) {
        EXL2__TRY(exl2__arena_open(r->c, &r->decoded, bytes, EXL2_MEM_WEIGHTS));
        exl2__runner_decode_matrix(r->c, r->plan.head, &r->decoded);
        for (uint32_t i = 0; i < r->plan.shape.layers && !r->streamed; i++) {
            exl2__runner_decode_layer(r, i, &r->decoded);
        }
    }
    return EXL2_OK;
}

/* ---- streaming ---- */

/* Has the weights of a layer in memory. Those of another layer, and pointers to them, are then invalid. */
EXL2__PRIVATE exl2_result exl2__runner_hold(exl2__runner *r, uint32_t layer)
{
    if (!r->streamed || r->held == layer) {
        return EXL2_OK;
    }
#ifndef EXL2_NO_CUDA
    if (r->gpu) { /* its copies are of weights at the same addresses */
        EXL2__TRY(exl2__cuda_device_enter(r->gpu->d));
        exl2__gpu_forget(r->gpu, NULL);
        EXL2__TRY(exl2__cuda_device_leave_with(r->gpu->d, EXL2_OK));
    }
#endif
    r->held = UINT32_MAX;
    r->weights.used = r->outside.loaded;
    r->load.unit = exl2__runner_unit(r, layer);
    EXL2__TRY(exl2__runner_read_until(r->c, &r->load, exl2__runner_unit(r, layer + 1), &r->plan, r->device,
                                      &r->weights));
    if (r->decodes && r->layer.decoded > 0) {
        r->decoded.used = r->outside.decoded;
        exl2__runner_decode_layer(r, layer, &r->decoded);
    }
    r->held = layer;
    return EXL2_OK;
}

#endif

/* cpu_synth.h: random matrices and models for the tests of the CPU backend, made without the backend's code. Codes are
   packed here bit by bit as the file format says, and every matrix keeps its weights in double. */
#ifndef CPU_SYNTH_H
#define CPU_SYNTH_H

#include "private/half.h"
#include "private/platform_alloc.h"
#include "private/plan.h"
#include "../check.h"

#include <math.h>

static uint64_t synth_state = 1;

static inline uint32_t synth_bits(void)
{
    synth_state = synth_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(synth_state >> 33);
}

/* in [-1, 1] */
static inline float synth_float(void)
{
    return (float)((int32_t)(synth_bits() & 0xFFFFFFu) - 0x800000) / 8388608.0f;
}

static inline void *synth_alloc(size_t bytes)
{
    void *memory = calloc(1, bytes ? bytes : 1);
    if (!memory) {
        exit(1);
    }
    return memory;
}

typedef struct synth_group {
    uint32_t bits, rows;
} synth_group;

typedef struct synth_matrix {
    exl2__matrix_desc desc;
    void *data;        /* q_weight or rows, as in the file */
    uint32_t rows;     /* number of rows of data */
    size_t row_bytes;
    double *weight;    /* [in, out_stored] code * scale, unrounded, in the order of the input features */
    double *reach;     /* the same for the largest weight that a code of this width can express; dense: |weight| */
    uint16_t *rounded; /* the same as weight, fp16(code * scale) bits; codes only */
} synth_matrix;

static inline void synth_matrix_free(synth_matrix *m)
{
    free((void *)(uintptr_t)m->desc.groups);
    free((void *)(uintptr_t)m->desc.scale_codes);
    free((void *)(uintptr_t)m->desc.scale_max);
    free((void *)(uintptr_t)m->desc.scales);
    free((void *)(uintptr_t)m->desc.zeros);
    free((void *)(uintptr_t)m->desc.inverse_perm);
    free((void *)(uintptr_t)m->desc.bias);
    free(m->data);
    free(m->weight);
    free(m->reach);
    free(m->rounded);
    *m = (synth_matrix){ 0 };
}

static inline void synth_bias(synth_matrix *m)
{
    float *bias = (float *)synth_alloc(m->desc.out_stored * sizeof *bias);
    for (uint32_t n = 0; n < m->desc.out; n++) {
        bias[n] = synth_float();
    }
    m->desc.has_bias = true;
    m->desc.bias = bias;
}

static inline synth_matrix synth_dense(uint32_t in, uint32_t out, exl2__dtype dtype)
{
    synth_matrix m = { { 0 }, NULL, out, in * (dtype == EXL2__F32 ? 4u : 2u), NULL, NULL, NULL };
    m.desc = (exl2__matrix_desc){ .name = "dense", .in = in, .out = out, .out_stored = (out + 31) / 32 * 32,
                                  .kind = EXL2__MATRIX_DENSE, .dtype = dtype };
    m.data = synth_alloc(m.rows * m.row_bytes);
    m.weight = (double *)synth_alloc((size_t)in * m.desc.out_stored * sizeof *m.weight);
    m.reach = (double *)synth_alloc((size_t)in * m.desc.out_stored * sizeof *m.reach);
    for (uint32_t n = 0; n < out; n++) {
        for (uint32_t k = 0; k < in; k++) {
            float value = synth_float() * 0.1f;
            uint16_t half = dtype == EXL2__F16 ? exl2__f32_to_f16(value) : (uint16_t)(exl2__float_bits(value) >> 16);
            uint8_t *to = (uint8_t *)m.data + n * m.row_bytes;
            if (dtype == EXL2__F32) {
                memcpy(to + 4 * k, &value, 4);
            } else {
                memcpy(to + 2 * k, &half, 2);
                value = dtype == EXL2__F16 ? exl2__f16_to_f32(half) : exl2__bf16_to_f32(half);
            }
            m.weight[(size_t)k * m.desc.out_stored + n] = value;
            m.reach[(size_t)k * m.desc.out_stored + n] = fabs((double)value);
        }
    }
    return m;
}

/* `shuffle`: use a random permutation; otherwise none. `seed_order`: the same number gives the same permutation. */
static inline synth_matrix synth_codes(uint32_t out, const synth_group *groups, uint32_t count, bool shuffle,
                                       uint64_t seed_order)
{
    synth_matrix m = { { 0 }, NULL, 0, 0, NULL, NULL, NULL };
    uint32_t in = 0, words = 0, stored = (out + 31) / 32 * 32;
    exl2__group *table = (exl2__group *)synth_alloc(count * sizeof *table);
    for (uint32_t g = 0; g < count; g++) {
        table[g] = (exl2__group){ in, groups[g].rows, words, groups[g].bits };
        in += groups[g].rows;
        words += groups[g].rows * groups[g].bits / 32;
    }
    uint32_t *scale_codes = (uint32_t *)synth_alloc((size_t)count * stored / 8 * 4);
    uint16_t *scale_max = (uint16_t *)synth_alloc(count * sizeof *scale_max);
    uint32_t *inverse = (uint32_t *)synth_alloc(in * sizeof *inverse);
    uint32_t *data = (uint32_t *)synth_alloc((size_t)words * stored * 4);
    for (uint32_t i = 0; i < count * stored / 8; i++) {
        scale_codes[i] = synth_bits() << 1 ^ synth_bits();
    }
    for (uint32_t g = 0; g < count; g++) { /* 8-bit groups have subnormal maxima */
        scale_max[g] = exl2__f32_to_f16((1.2f + synth_float()) * 0.25f / 256 / (float)(1u << (groups[g].bits - 1)));
    }
    uint64_t state = synth_state;
    synth_state = seed_order;
    for (uint32_t j = 0; j < in; j++) {
        inverse[j] = j;
    }
    for (uint32_t j = in; shuffle && j > 1; j--) {
        uint32_t other = synth_bits() % j, kept = inverse[j - 1];
        inverse[j - 1] = inverse[other];
        inverse[other] = kept;
    }
    synth_state = state;
    uint32_t *order = (uint32_t *)synth_alloc(in * sizeof *order);
    for (uint32_t j = 0; j < in; j++) {
        order[inverse[j]] = j;
    }
    m.weight = (double *)synth_alloc((size_t)in * stored * sizeof *m.weight);
    m.reach = (double *)synth_alloc((size_t)in * stored * sizeof *m.reach);
    m.rounded = (uint16_t *)synth_alloc((size_t)in * stored * sizeof *m.rounded);
    for (uint32_t g = 0; g < count; g++) {
        for (uint32_t n = 0; n < stored; n++) {
            uint32_t level = (scale_codes[g * (stored / 8) + n / 8] >> 4 * (n % 8) & 15) + 1;
            float scale = exl2__f16_to_f32(exl2__f32_to_f16((float)(level * level) * exl2__f16_to_f32(scale_max[g])));
            for (uint32_t r = 0; r < table[g].rows; r++) {
                uint32_t code = synth_bits() & ((1u << table[g].bits) - 1);
                for (uint32_t bit = 0; bit < table[g].bits; bit++) {
                    uint32_t at = r * table[g].bits + bit;
                    data[(size_t)(table[g].word + at / 32) * stored + n] |= (code >> bit & 1) << at % 32;
                }
                float q = (float)code - (float)(1u << (table[g].bits - 1));
                size_t to = (size_t)order[table[g].row + r] * stored + n;
                m.weight[to] = (double)q * (double)scale;
                m.reach[to] = (double)(1u << (table[g].bits - 1)) * (double)scale;
                m.rounded[to] = exl2__f32_to_f16(q * scale);
            }
        }
    }
    free(order);
    m.data = data;
    m.rows = words;
    m.row_bytes = stored * 4;
    m.desc = (exl2__matrix_desc){ .name = "codes", .in = in, .out = out, .out_stored = stored, .group_count = count,
                                  .words = words, .groups = table, .scale_codes = scale_codes, .scale_max = scale_max,
                                  .inverse_perm = inverse };
    return m;
}

/* An affine matrix: `in` inputs in groups of `group` rows of one width, the last one shorter if need be. Zeros reach
   both ends of 0..2^bits. */
static inline synth_matrix synth_affine(uint32_t in, uint32_t out, uint32_t bits, uint32_t group, uint64_t seed_order)
{
    synth_group groups[256];
    uint32_t count = 0;
    for (uint32_t row = 0; row < in; row += group, count++) {
        groups[count] = (synth_group){ bits, in - row < group ? in - row : group };
    }
    synth_matrix m = synth_codes(out, groups, count, true, seed_order);
    uint32_t stored = m.desc.out_stored;
    uint16_t *scales = (uint16_t *)synth_alloc((size_t)count * stored * sizeof *scales);
    uint16_t *zeros = (uint16_t *)synth_alloc((size_t)count * stored * sizeof *zeros);
    for (uint32_t i = 0; i < count * stored; i++) {
        uint32_t chance = synth_bits();
        bool used = i % stored < out;
        scales[i] = used ? exl2__f32_to_f16((1.2f + synth_float()) * 0.1f / (float)(1u << (bits - 1))) : 0;
        zeros[i] = (uint16_t)(!used || chance % 8 == 0 ? 0 : chance % 8 == 1 ? 1u << bits : chance / 8 % (1u << bits));
    }
    for (uint32_t j = 0; j < in; j++) {
        uint32_t row = m.desc.inverse_perm[j], bit = row * bits, shift = bit % 32;
        const uint32_t *words = (const uint32_t *)m.data + (size_t)(bit / 32) * stored;
        for (uint32_t n = 0; n < stored; n++) {
            uint64_t pair = words[n] | (shift + bits > 32 ? (uint64_t)words[stored + n] << 32 : 0);
            size_t of = (size_t)(row / group) * stored + n, to = (size_t)j * stored + n;
            float scale = exl2__f16_to_f32(scales[of]);
            float level = (float)(pair >> shift & ((1u << bits) - 1)) - (float)zeros[of];
            m.weight[to] = (double)level * (double)scale;
            m.reach[to] = (double)(1u << bits) * (double)scale;
            m.rounded[to] = exl2__f32_to_f16(level * scale);
        }
    }
    free((void *)(uintptr_t)m.desc.scale_codes);
    free((void *)(uintptr_t)m.desc.scale_max);
    m.desc.name = "affine";
    m.desc.kind = EXL2__MATRIX_AFFINE;
    m.desc.scale_codes = NULL;
    m.desc.scale_max = NULL;
    m.desc.scales = scales;
    m.desc.zeros = zeros;
    return m;
}

/* `in` rows of mixed widths; `mix` picks the widths. */
static inline synth_matrix synth_mixed(uint32_t in, uint32_t out, uint32_t mix, uint64_t seed_order)
{
    static const uint32_t widths[6] = { 8, 6, 5, 4, 3, 2 };
    synth_group groups[256];
    uint32_t count = 0;
    for (uint32_t row = 0, w = mix % 6; row < in; count++) {
        uint32_t rows = 32 * (1 + (mix + count) % 4);
        groups[count].bits = widths[w];
        groups[count].rows = rows > in - row ? in - row : rows;
        row += groups[count].rows;
        w += w < 5 && (mix >> count % 8 & 1 || count % 2);
    }
    return synth_codes(out, groups, count, true, seed_order);
}

/* Feeds all rows, `step` at a time, from the backend's staging buffer if it has one. */
static inline void synth_feed(const exl2__backend *b, exl2__device *d, exl2__matrix *m, uint32_t part,
                              const synth_matrix *from, uint32_t step)
{
    for (uint32_t row = 0; row < from->rows; row += step) {
        uint32_t rows = from->rows - row < step ? from->rows - row : step;
        exl2__rows_slice slice = { row, rows, (const uint8_t *)from->data + row * from->row_bytes };
        if (exl2__backend_has_memory(b)) {
            void *staging = NULL;
            CHECK_INT(b->memory->staging(d, rows * from->row_bytes, &staging), EXL2_OK);
            slice.data = memcpy(staging, slice.data, rows * from->row_bytes);
        }
        exl2_result fed = EXL2_PENDING;
        while (fed == EXL2_PENDING) {
            exl2__work work = { 1 }; /* a strip at a time */
            fed = b->matrix_feed(d, m, part, &slice, &work);
        }
        CHECK_INT(fed, EXL2_OK);
    }
}

/* ---- models ---- */

#define SYNTH_AFFINE 1000u /* added to synth_shape.mix: affine matrices in the place of EXL2 */

typedef struct synth_shape {
    uint32_t hidden, inter, layers, heads, kv_heads, head_dim, vocab;
    uint32_t mix;           /* chooses widths and group sizes, or the types of dense matrices */
    bool dense, bias, tied; /* tied: the embedding, which is always dense, is also the head */
    bool one_order;         /* v has the permutation of q and k; up has that of gate */
} synth_shape;

/* How a model's blocks differ from Llama's. A factor of 0 means 1. */
typedef struct synth_family {
    exl2__act act;
    bool ungated, layer_norm, post_norms, no_pre_norms, parallel, positions;
    float embed_scale, residual_scale, logit_scale, final_softcap;
    exl2__experts experts; /* of every layer; shape.inter is the width of the shared expert, 0: there is none */
    bool apart;            /* experts order their inputs differently */
    float choice_bias;     /* of the first expert; that of the others is smaller by chance; 0: there are none */
} synth_family;

static const synth_family synth_llama = { .act = EXL2__ACT_SILU };
static const synth_family *synth_now = &synth_llama; /* of the next models that are opened */
static exl2_kv synth_kv;                             /* the format of their K and V */
static uint32_t synth_sequences = 16, synth_logits = 8; /* sequences of a pass, rows of a group of logits */

#ifndef SYNTH_LAYERS
#define SYNTH_LAYERS 3 /* most layers of a model */
#endif
#define SYNTH_POSITIONS 2304 /* rows of the table of learned positions */
#define SYNTH_MATRICES (4 * SYNTH_LAYERS + 2)
#define SYNTH_EXPERTS 128

typedef struct synth_model {
    exl2__ctx c;
    const exl2__backend *b;
    exl2__device *d;
    exl2__arena weights, pages, scratch;
    exl2__plan plan;
    exl2__layer layers[SYNTH_LAYERS];
    exl2__matrix *experts[SYNTH_LAYERS][EXL2__ROLE_COUNT - EXL2__ROLE_SINGLES][SYNTH_EXPERTS];
    uint16_t *down_order[SYNTH_LAYERS]; /* packed row of each input of `down` */
    uint32_t downs;
    double frequency[128];
    exl2__rope_angles angles;
} synth_model;

static inline void synth_need(const synth_model *m, exl2_result result)
{
    if (!CHECK_INT(result, EXL2_OK)) {
        printf("%s: %s\n", m->b->name, m->c.error.text);
        exit(1);
    }
}

static inline exl2__vector *synth_vector(synth_model *m, uint32_t count, float centre)
{
    float values[1024];
    exl2__vector *out = NULL;
    for (uint32_t i = 0; i < count; i++) {
        values[i] = centre + 0.3f * synth_float();
    }
    synth_need(m, m->b->vector_make(m->d, &m->weights, values, count, &out));
    return out;
}

static inline exl2__norm synth_norm(synth_model *m, uint32_t count)
{
    exl2__norm norm = { synth_vector(m, count, 1), NULL };
    norm.bias = synth_now->layer_norm ? synth_vector(m, count, 0) : NULL;
    return norm;
}

/* The parts of one matrix, with the widths of `mix`. q and k have the same groups, and so have gate and up; v has
   others. */
static inline void synth_parts(const synth_shape *s, uint32_t in, const uint32_t *outs, uint32_t count, uint32_t mix,
                               synth_matrix *parts)
{
    for (uint32_t i = 0; i < count; i++) {
        bool other = !s->one_order && i > 0 && i + 1 == count;
        exl2__dtype dtype = mix % 3 == 0 ? EXL2__F16 : mix % 3 == 1 ? EXL2__BF16 : EXL2__F32;
        uint32_t bits = mix % 4 == 3 ? 8 : mix % 4 + 2, group = 32 * (1 + mix / 4 % 4);
        parts[i] = s->dense ? synth_dense(in, outs[i], dtype)
                 : s->mix >= SYNTH_AFFINE ? synth_affine(in, outs[i], bits, group, mix + other)
                            : synth_mixed(in, outs[i], mix + (i == 2 ? 5 : 0), mix + other);
        if (s->bias) {
            synth_bias(&parts[i]);
        }
    }
}

/* Makes a matrix of its parts, which it frees. uses: EXL2__USE_*; expert: its number. */
static inline exl2__matrix *synth_make_of(synth_model *m, synth_matrix *parts, uint32_t count, uint32_t uses,
                                          uint32_t expert)
{
    exl2__matrix_desc descs[3];
    exl2__matrix *out = NULL;
    uint64_t before = m->weights.used;
    for (uint32_t i = 0; i < count; i++) {
        descs[i] = parts[i].desc;
        descs[i].uses = uses;
        descs[i].expert = expert;
        descs[i].experts = synth_now->experts.count;
    }
    uint64_t bytes = m->b->matrix_bytes(m->d, descs, count);
    synth_need(m, m->b->matrix_make(m->d, &m->weights, descs, count, &out));
    CHECK(exl2__backend_has_memory(m->b) || m->weights.used - before == bytes);
    if ((uses & (EXL2__USE_DOWN | EXL2__USE_EXPERT)) == EXL2__USE_DOWN) {
        uint16_t *order = m->down_order[m->downs++] = (uint16_t *)synth_alloc(descs[0].in * sizeof *order);
        for (uint32_t i = 0; i < descs[0].in; i++) {
            order[i] = (uint16_t)(descs[0].kind == EXL2__MATRIX_DENSE ? i : descs[0].inverse_perm[i]);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        synth_feed(m->b, m->d, out, i, &parts[i], 7);
        synth_matrix_free(&parts[i]);
    }
    return out;
}

static inline exl2__matrix *synth_make(synth_model *m, const synth_shape *s, uint32_t in, const uint32_t *outs,
                                       uint32_t count, uint32_t mix, uint32_t uses)
{
    synth_matrix parts[3];
    synth_parts(s, in, outs, count, s->mix + mix, parts);
    return synth_make_of(m, parts, count, uses, 0);
}

/* The parts of a matrix of an expert. Widths and groups differ among experts; so do the orders of inputs if `apart`. */
static inline void synth_expert_parts(const synth_shape *s, uint32_t in, uint32_t out, uint32_t count, uint32_t mix,
                                      uint32_t expert, synth_matrix *parts)
{
    uint32_t outs[2] = { out, out };
    synth_shape own = *s;
    own.mix += own.mix >= SYNTH_AFFINE ? 0 : expert % 7;
    own.one_order = true;
    if (s->dense || s->mix >= SYNTH_AFFINE) {
        synth_parts(&own, in, outs, count, own.mix + mix, parts);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        parts[i] = synth_mixed(in, out, own.mix + mix, synth_now->apart ? 100 + expert : mix);
        if (s->bias) {
            synth_bias(&parts[i]);
        }
    }
}

static inline void synth_model_close(synth_model *m)
{
    for (uint32_t i = 0; i < m->downs; i++) {
        free(m->down_order[i]);
    }
    exl2__arena_close(&m->c, &m->weights);
    exl2__arena_close(&m->c, &m->pages);
    exl2__arena_close(&m->c, &m->scratch);
    m->b->close(m->d);
    CHECK_INT(m->c.host_bytes, 0);
}

/* The norms of a layer's blocks, and the list of its phases. */
static inline void synth_make_norms(synth_model *m, const synth_shape *s, exl2__layer *layer)
{
    const synth_family *f = synth_now;
    layer->phases = f->parallel ? exl2__plan_parallel_phases
                  : f->post_norms ? exl2__plan_settled_phases : exl2__plan_plain_phases;
    layer->phase_count = f->post_norms ? EXL2__COUNT(exl2__plan_settled_phases) : EXL2__COUNT(exl2__plan_plain_phases);
    layer->phase_count--; /* `steer` */
    if (!f->no_pre_norms) {
        layer->attn_norm = synth_norm(m, s->hidden);
        layer->mlp_norm = f->parallel ? layer->attn_norm : synth_norm(m, s->hidden);
    }
    if (f->post_norms) {
        layer->attn_post_norm = synth_norm(m, s->hidden);
        layer->mlp_post_norm = synth_norm(m, s->hidden);
    }
}

static inline void synth_make_experts(synth_model *m, const synth_shape *s, exl2__layer *layer)
{
    const exl2__experts *e = &synth_now->experts;
    uint32_t outs[2] = { e->count, 1 }, i = layer->index;
    float bias[SYNTH_EXPERTS];
    synth_shape natural = *s;
    natural.dense = true;
    for (uint32_t k = 0; k < EXL2__COUNT(layer->experts); k++) {
        layer->experts[k] = m->experts[i][k];
    }
    layer->matrix[EXL2__ROLE_ROUTER] = synth_make(m, &natural, s->hidden, outs, e->shared_switch ? 2 : 1, 10 * i + 6,
                               EXL2__USE_PRODUCT | EXL2__USE_ROUTER);
    for (uint32_t k = 0; k < e->count; k++) {
        synth_matrix up[2], down;
        uint32_t ups = synth_now->ungated ? 1 : 2;
        synth_expert_parts(s, s->hidden, e->inter, ups, 10 * i + 7, k, up);
        synth_expert_parts(s, e->inter, s->hidden, 1, 10 * i + 8, k, &down);
        *exl2__layer_matrix(layer, EXL2__ROLE_EXPERT_DOWN, k) =
            synth_make_of(m, &down, 1, EXL2__USE_PRODUCT | EXL2__USE_EXPERT_DOWN, k);
        *exl2__layer_matrix(layer, EXL2__ROLE_EXPERT_UP, k) =
            synth_make_of(m, up, ups, EXL2__USE_PRODUCT | EXL2__USE_EXPERT_UP, k);
        bias[k] = synth_now->choice_bias * (k ? synth_float() / 2 : 1);
    }
    if (synth_now->choice_bias > 0) {
        synth_need(m, m->b->vector_make(m->d, &m->weights, bias, e->count, &layer->choice_bias));
    }
    layer->phases = s->inter ? exl2__plan_shared_phases : exl2__plan_sparse_phases;
    layer->phase_count = s->inter ? EXL2__COUNT(exl2__plan_shared_phases) : EXL2__COUNT(exl2__plan_sparse_phases);
    layer->phase_count--; /* `steer` */
}

static inline void synth_make_all(synth_model *m, const synth_shape *s)
{
    exl2__plan *p = &m->plan;
    uint32_t attention = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    uint32_t qkv[3] = { attention, kv, kv }, gate_up[2] = { s->inter, s->inter };
    uint32_t hidden[1] = { s->hidden }, vocab[1] = { s->vocab };
    for (uint32_t i = 0; i < s->layers; i++) {
        exl2__layer *layer = &m->layers[i];
        layer->index = i;
        layer->matrix[EXL2__ROLE_QKV] = synth_make(m, s, s->hidden, qkv, 3, 10 * i + 1, EXL2__USE_PRODUCT);
        layer->matrix[EXL2__ROLE_OUT] = synth_make(m, s, attention, hidden, 1, 10 * i + 2, EXL2__USE_PRODUCT);
        if (s->inter) {
            synth_matrix up[3], down;
            uint32_t ups = synth_now->ungated ? 1 : 2;
            synth_parts(s, s->hidden, gate_up, ups, s->mix + 10 * i + 3, up);
            synth_parts(s, s->inter, hidden, 1, s->mix + 10 * i + 4, &down);
            layer->matrix[EXL2__ROLE_DOWN] = synth_make_of(m, &down, 1, EXL2__USE_PRODUCT | EXL2__USE_DOWN, 0);
            layer->matrix[EXL2__ROLE_GATE_UP] = synth_make_of(m, up, ups, EXL2__USE_PRODUCT | EXL2__USE_UP, 0);
        }
        synth_make_norms(m, s, layer);
        if (synth_now->experts.count) {
            synth_make_experts(m, s, layer);
        }
        layer->window = UINT32_MAX;
    }
    synth_shape table = *s;
    table.dense = true;
    table.bias = false;
    p->embed = synth_make(m, &table, s->hidden, vocab, 1, 3, EXL2__USE_ROWS | (s->tied ? EXL2__USE_PRODUCT : 0));
    p->head = s->tied ? p->embed : synth_make(m, s, s->hidden, vocab, 1, 5, EXL2__USE_PRODUCT);
    p->final_norm = synth_norm(m, s->hidden);
    if (synth_now->positions) {
        uint32_t positions[1] = { SYNTH_POSITIONS };
        p->positions = synth_make(m, &table, s->hidden, positions, 1, 4, EXL2__USE_ROWS);
    }
}

static inline float synth_factor(float factor)
{
    return factor > 0 ? factor : 1;
}

/* Allocates pages and scratch; those in host memory are poisoned with NaNs. */
static inline void synth_prepare(synth_model *m)
{
    exl2__arena dry_pages = { 0 }, dry_scratch = { 0 };
    uint64_t more = exl2__backend_has_memory(m->b) ? EXL2__ARENA_ALIGN : 0; /* an arena of a dry run has no bytes */
    synth_need(m, m->b->prepare(m->d, &m->plan, &dry_pages, &dry_scratch));
    synth_need(m, exl2__arena_open(&m->c, &m->pages, dry_pages.used, EXL2_MEM_KV));
    synth_need(m, exl2__arena_open(&m->c, &m->scratch, dry_scratch.used + more, EXL2_MEM_SCRATCH));
    if (m->pages.size) {
        memset(m->pages.base, 0xFF, (size_t)m->pages.size);
    }
    memset(m->scratch.base, 0xFF, (size_t)m->scratch.size);
    synth_need(m, m->b->prepare(m->d, &m->plan, &m->pages, &m->scratch));
    CHECK_INT(m->pages.used, m->pages.size);
    CHECK_INT(m->scratch.used + more, m->scratch.size);
}

/* The same seed gives the same model on every backend. `tweak` may change the device before it is prepared. hardware:
   as in exl2__backend.open. */
static inline void synth_model_open_on(synth_model *m, const exl2__backend *b, void *hardware, const synth_shape *s,
                                       uint64_t seed, exl2_parallel parallel, uint32_t rows_max, uint32_t context_max,
                                       uint32_t pages, void (*tweak)(exl2__device *d))
{
    *m = (synth_model){ .b = b };
    m->c.allocator = exl2__platform_allocator();
    m->c.parallel = parallel;
    synth_state = seed;
    synth_need(m, b->open(&m->c, hardware, &m->d));
    if (tweak) {
        tweak(m->d);
    }
    if (exl2__backend_has_memory(b)) {
        exl2_result r = EXL2_PENDING;
        while (r == EXL2_PENDING) { /* compiles a few kernels at a time */
            r = b->memory->reserve(m->d, &(const uint64_t){ 64u << 20 });
        }
        synth_need(m, r);
    } else {
        synth_need(m, exl2__arena_open(&m->c, &m->weights, 64u << 20, EXL2_MEM_WEIGHTS));
    }
    synth_make_all(m, s);
    exl2__plan *p = &m->plan;
    p->shape = (exl2__shape){ .vocab = s->vocab, .hidden = s->hidden, .layers = s->layers, .heads = s->heads,
                              .kv_heads = s->kv_heads, .head_dim = s->head_dim, .inter = s->inter,
                              .embed_rows = s->vocab, .rotary = s->head_dim, .gated = !synth_now->ungated,
                              .act = synth_now->act, .act_limit = 1.5f, .layer_norm = synth_now->layer_norm,
                              .parallel = synth_now->parallel, .post_norms = synth_now->post_norms,
                              .qk_norm = EXL2__QK_NORM_NONE, .pre_norms = !synth_now->no_pre_norms,
                              .norm_eps = 1e-5f, .attn_scale = 1.0f / sqrtf((float)s->head_dim),
                              .embed_scale = synth_factor(synth_now->embed_scale),
                              .residual_scale = synth_factor(synth_now->residual_scale),
                              .logit_scale = synth_factor(synth_now->logit_scale),
                              .final_softcap = synth_now->final_softcap, .affine = s->mix >= SYNTH_AFFINE,
                              .experts = synth_now->experts };
    for (uint32_t i = 0; i < s->head_dim / 2; i++) {
        m->frequency[i] = pow(10000.0, -2.0 * i / s->head_dim);
    }
    m->angles = (exl2__rope_angles){ .frequency = m->frequency, .magnitude = 1 };
    p->ropes = &m->angles;
    p->rope_count = 1;
    p->rows_max = rows_max;
    p->logit_rows_max = synth_logits;
    p->sequences_max = synth_sequences;
    p->context_max = context_max;
    p->pages = pages;
    p->kv = synth_kv;
    p->layers = m->layers;
    synth_prepare(m);
}

static inline void synth_model_open(synth_model *m, const exl2__backend *b, const synth_shape *s, uint64_t seed,
                                    exl2_parallel parallel, uint32_t rows_max, uint32_t context_max, uint32_t pages,
                                    void (*tweak)(exl2__device *d))
{
    synth_model_open_on(m, b, NULL, s, seed, parallel, rows_max, context_max, pages, tweak);
}

/* Runs one phase, `step` items at a time (0: all at once). before: the phase before `settle`. */
static inline void synth_phase_after(synth_model *m, exl2__phase phase, exl2__phase before, const exl2__layer *layer,
                                     uint32_t logit0, uint32_t logit_count, uint32_t step)
{
    exl2__range range = { 0, 0, logit0, logit_count, before };
    uint32_t items = m->b->items(m->d, phase, layer, &range);
    for (uint32_t i = 0; i < items; i = range.end) {
        range.begin = i;
        range.end = step && step < items - i ? i + step : items;
        switch (phase) {
#define X(name) case EXL2__PHASE_##name: CHECK_INT(m->b->name(m->d, layer, &range), EXL2_OK); break;
            EXL2__PHASES(X)
#undef X
        case EXL2__PHASE_COUNT:
            break;
        }
    }
}

static inline void synth_phase(synth_model *m, exl2__phase phase, const exl2__layer *layer, uint32_t logit0,
                               uint32_t logit_count, uint32_t step)
{
    synth_phase_after(m, phase, EXL2__PHASE_COUNT, layer, logit0, logit_count, step);
}

/* Runs the phases from copy_pages to the last one of the last layer. */
static inline void synth_layers(synth_model *m, const exl2__step *step, uint32_t items)
{
    CHECK_INT(m->b->begin(m->d, step), EXL2_OK);
    synth_phase(m, EXL2__PHASE_copy_pages, NULL, 0, 0, items);
    synth_phase(m, EXL2__PHASE_embed, NULL, 0, 0, items);
    for (uint32_t i = 0; i < m->plan.shape.layers; i++) {
        for (uint32_t k = 0; k < m->layers[i].phase_count; k++) {
            exl2__phase before = k ? m->layers[i].phases[k - 1] : EXL2__PHASE_COUNT;
            synth_phase_after(m, m->layers[i].phases[k], before, &m->layers[i], 0, 0, items);
        }
    }
}

#endif

/* units.h: the model as a list of units and of vectors, made from its row and its config.
   takes: exl2__config.
   gives: exl2__unit, exl2__unit_kind, exl2__unit_count, exl2__unit_make; exl2__unit_vector, exl2__unit_vectors,
          exl2__unit_vector_check, exl2__unit_vector_read, exl2__unit_vector_place.

   A unit is a set of matrices that a backend packs together: the embedding; learned positions; for each layer q, k, v |
   o | down | gate, up; the head. A layer with experts has the units q, k, v | o | router | down | gate, up of the
   shared expert, if there is one | and for each expert down | gate, up. down comes first, as a backend may store the
   columns of gate and up in the order in which it reads them. */
#ifndef EXL2__UNITS_H
#define EXL2__UNITS_H

#include "../1_load/matrix_desc.h"
#include "plan.h"

typedef enum exl2__unit_kind {
    EXL2__UNIT_EMBED, EXL2__UNIT_POSITIONS, EXL2__UNIT_QKV, EXL2__UNIT_OUT, EXL2__UNIT_DOWN, EXL2__UNIT_GATE_UP,
    EXL2__UNIT_ROUTER, EXL2__UNIT_EXPERT_DOWN, EXL2__UNIT_EXPERT_UP, EXL2__UNIT_HEAD
} exl2__unit_kind;

typedef struct exl2__unit {
    exl2__unit_kind kind;
    bool table;                        /* read by row: the number of its rows is that of the file, not out[0] */
    uint32_t layer, expert, count, in, out[3]; /* count: matrices */
    char keys[3][EXL2__KEY_BYTES], fused[3][EXL2__KEY_BYTES];
    exl2__matrix_source source[3];     /* points to keys and fused */
} exl2__unit;

#define EXL2__UNIT_NO_LAYER UINT32_MAX

static inline bool exl2__unit_sparse(const exl2__config *c, uint32_t layer)
{
    return exl2__experts_any(&c->experts) && exl2__config_layer(c->sparse, layer);
}

/* Number of units of a layer. */
static inline uint32_t exl2__unit_of_layer(const exl2__config *c, uint32_t layer)
{
    return exl2__unit_sparse(c, layer) ? 3u + (c->experts.shared_inter ? 2u : 0) + 2 * c->experts.count : 4u;
}

/* Index of the first unit of a layer, or of the unit after the last layer. */
static inline uint32_t exl2__unit_first_of(const exl2__config *c, uint32_t layer)
{
    uint32_t count = 1 + (c->arch.names[EXL2__NAME_POSITIONS][0] != 0);
    for (uint32_t i = 0; i < layer; i++) {
        count += exl2__unit_of_layer(c, i);
    }
    return count;
}

static inline uint32_t exl2__unit_count(const exl2__config *c, bool tied)
{
    return exl2__unit_first_of(c, c->layers) + !tied;
}

/* Where q, k and v lie in the tensor that holds them all. */
static inline void exl2__unit_split_qkv(const exl2__config *c, exl2__unit *u)
{
    uint64_t first = 0;
    bool groups = c->arch.traits[EXL2__TRAIT_QKV_ORDER] == EXL2__QKV_ORDER_GROUPS;
    uint32_t heads[3] = { c->heads, c->kv_heads, c->kv_heads }, in_group = c->heads / c->kv_heads;
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t run = groups ? heads[i] / c->kv_heads * c->head_dim : u->out[i];
        u->source[i].fused_rows = (uint64_t)u->out[0] + u->out[1] + u->out[2];
        u->source[i].view = (exl2__matrix_view){ first, run, groups ? (in_group + 2) * c->head_dim : run, false, 0, 0 };
        first += run;
    }
}

static inline void exl2__unit_split_gate_up(exl2__unit *u)
{
    for (uint32_t i = 0; i < u->count; i++) {
        u->source[i].fused_rows = 2 * (uint64_t)u->out[0];
        u->source[i].view = (exl2__matrix_view){ (uint64_t)i * u->out[0], u->out[0], u->out[0], false, 0, 0 };
    }
}

static inline void exl2__unit_name(const exl2__config *c, exl2__unit *u, uint32_t part, exl2__name name, uint32_t out)
{
    u->out[part] = out;
    exl2__arch_expert_key(u->keys[part], u->layer, u->expert, c->arch.names[name]);
}

/* The tensor with several matrices that part `part` may be in. */
static inline void exl2__unit_fuse(const exl2__config *c, exl2__unit *u, uint32_t part, exl2__name name)
{
    if (c->arch.names[name][0]) {
        exl2__arch_key(u->fused[part], u->layer, c->arch.names[name]);
    }
}

#ifndef EXL2_NO_MOE
/* Where the matrices of one expert lie in the tensors of all experts (exl2__experts_order). */
static inline void exl2__unit_split_experts(const exl2__config *c, exl2__unit *u)
{
    bool down = u->kind == EXL2__UNIT_EXPERT_DOWN, both = !down && c->arch.names[EXL2__NAME_EXPERTS_GATE_UP][0];
    uint8_t order = c->arch.traits[EXL2__TRAIT_EXPERTS_ORDER];
    bool transposed = order == EXL2__EXPERTS_COLUMNS || (down && order == EXL2__EXPERTS_DOWN_TRANSPOSED);
    for (uint32_t i = 0; i < u->count; i++) {
        uint32_t out = u->out[i], parts = both ? u->count : 1;
        uint64_t width = (uint64_t)parts * out;
        exl2__unit_fuse(c, u, i, down ? EXL2__NAME_EXPERTS_DOWN : both ? EXL2__NAME_EXPERTS_GATE_UP
                                : i + 1 < u->count ? EXL2__NAME_EXPERTS_GATE : EXL2__NAME_EXPERTS_UP);
        u->source[i].stack = c->experts.count;
        u->source[i].fused_rows = width;
        u->source[i].view = transposed && both
            ? (exl2__matrix_view){ i, 1, parts, true, u->expert, 0 }
            : (exl2__matrix_view){ transposed ? 0 : u->expert * width + (both ? i * out : 0), out, out, transposed,
                                   u->expert, 0 };
    }
}
#endif

/* gate and up of a dense MLP, of the shared expert or of an expert: their names, and their width. */
static inline void exl2__unit_make_up(const exl2__config *c, exl2__unit *u, exl2__name gate, exl2__name up,
                                      uint32_t width)
{
    bool gated = c->arch.traits[EXL2__TRAIT_GATED] == EXL2__YES;
    u->count = gated ? 2 : 1;
    u->in = c->hidden;
    exl2__unit_name(c, u, 0, gated ? gate : up, width);
    if (gated) {
        exl2__unit_name(c, u, 1, up, width);
    }
}

/* The matrices of a layer. */
static inline void exl2__unit_make_layer(const exl2__config *c, exl2__unit *u)
{
    uint32_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    bool shared = exl2__unit_sparse(c, u->layer);
    uint32_t inter = shared ? c->experts.shared_inter : c->inter;
    exl2__name fused = EXL2__NAME_COUNT;
    switch (u->kind) {
    case EXL2__UNIT_QKV:
        u->count = 3;
        u->in = c->hidden;
        fused = EXL2__NAME_QKV;
        exl2__unit_name(c, u, 0, EXL2__NAME_Q, q);
        exl2__unit_name(c, u, 1, EXL2__NAME_K, kv);
        exl2__unit_name(c, u, 2, EXL2__NAME_V, kv);
        exl2__unit_split_qkv(c, u);
        break;
    case EXL2__UNIT_OUT:
        u->count = 1;
        u->in = q;
        exl2__unit_name(c, u, 0, EXL2__NAME_OUT, c->hidden);
        break;
    case EXL2__UNIT_GATE_UP:
        exl2__unit_make_up(c, u, shared ? EXL2__NAME_SHARED_GATE : EXL2__NAME_GATE,
                           shared ? EXL2__NAME_SHARED_UP : EXL2__NAME_UP, inter);
        if (u->count == 2) {
            fused = shared ? EXL2__NAME_SHARED_GATE_UP : EXL2__NAME_GATE_UP;
            exl2__unit_split_gate_up(u);
        }
        break;
#ifndef EXL2_NO_MOE
    case EXL2__UNIT_ROUTER:
        u->count = c->experts.shared_switch ? 2 : 1;
        u->in = c->hidden;
        exl2__unit_name(c, u, 0, EXL2__NAME_ROUTER, c->experts.count);
        if (u->count == 2) {
            exl2__unit_name(c, u, 1, EXL2__NAME_SHARED_SWITCH, 1);
        }
        break;
    case EXL2__UNIT_EXPERT_UP:
        exl2__unit_make_up(c, u, EXL2__NAME_EXPERT_GATE, EXL2__NAME_EXPERT_UP, c->experts.inter);
        exl2__unit_split_experts(c, u);
        break;
    case EXL2__UNIT_EXPERT_DOWN:
        u->count = 1;
        u->in = c->experts.inter;
        exl2__unit_name(c, u, 0, EXL2__NAME_EXPERT_DOWN, c->hidden);
        exl2__unit_split_experts(c, u);
        break;
#endif
    default:
        u->count = 1;
        u->in = inter;
        exl2__unit_name(c, u, 0, shared ? EXL2__NAME_SHARED_DOWN : EXL2__NAME_DOWN, c->hidden);
        break;
    }
    for (uint32_t i = 0; i < u->count; i++) {
        if (fused != EXL2__NAME_COUNT) {
            exl2__unit_fuse(c, u, i, fused);
        }
        u->source[i].key = u->keys[i];
        u->source[i].fused = u->fused[i];
        u->source[i].own_transposed = c->arch.traits[EXL2__TRAIT_TRANSPOSED] == EXL2__YES;
        u->source[i].view.transposed = u->source[i].view.transposed || u->source[i].own_transposed;
        u->source[i].quant = &c->quant;
    }
}

/* The kind of the unit with this index among those of a layer; sets u->expert. */
static inline exl2__unit_kind exl2__unit_kind_of(const exl2__config *c, exl2__unit *u, uint32_t index)
{
    uint32_t first = c->experts.shared_inter ? 5 : 3; /* unit of the first expert */
    if (!exl2__unit_sparse(c, u->layer) || index < 2) {
        return (exl2__unit_kind)(EXL2__UNIT_QKV + index);
    }
    if (index < first) {
        return index == 2 ? EXL2__UNIT_ROUTER : index == 3 ? EXL2__UNIT_DOWN : EXL2__UNIT_GATE_UP;
    }
    u->expert = (index - first) / 2;
    return (index - first) % 2 == 0 ? EXL2__UNIT_EXPERT_DOWN : EXL2__UNIT_EXPERT_UP;
}

/* Fills *u with the matrices of unit `index`. */
static inline void exl2__unit_make(const exl2__config *c, uint32_t index, exl2__unit *u)
{
    uint32_t tables = 1 + (c->arch.names[EXL2__NAME_POSITIONS][0] != 0);
    memset(u, 0, sizeof *u);
    uint32_t left = index >= tables ? index - tables : 0; /* index among the units of the layers from u->layer on */
    while (index >= tables && u->layer < c->layers && left >= exl2__unit_of_layer(c, u->layer)) {
        left -= exl2__unit_of_layer(c, u->layer++);
    }
    if (index >= tables && u->layer < c->layers) {
        u->kind = exl2__unit_kind_of(c, u, left);
        exl2__unit_make_layer(c, u);
        return;
    }
    u->layer = 0;
    u->kind = index >= tables ? EXL2__UNIT_HEAD : index == 1 ? EXL2__UNIT_POSITIONS : EXL2__UNIT_EMBED;
    exl2__name name = u->kind == EXL2__UNIT_HEAD ? EXL2__NAME_HEAD
                    : u->kind == EXL2__UNIT_POSITIONS ? EXL2__NAME_POSITIONS : EXL2__NAME_EMBED;
    u->table = u->kind != EXL2__UNIT_HEAD;
    u->count = 1;
    u->in = c->hidden;
    u->out[0] = c->vocab;
    exl2__format(u->keys[0], EXL2__KEY_BYTES, "%s", c->arch.names[name]);
    u->source[0].key = u->keys[0];
    u->source[0].quant = &c->quant;
}

/* ---- vectors ---- */

typedef struct exl2__unit_vector {
    exl2__name name;           /* a norm, CHOICE_BIAS or SINKS */
    char tensor[EXL2__KEY_BYTES + 8];
    bool bias;                 /* of a norm: its bias, which may be absent; else its weight */
    bool plus_one;             /* the file holds weight - 1 */
    uint32_t count, file_count; /* values; the file may have file_count of them, which are then repeated */
} exl2__unit_vector;

#define EXL2__UNIT_VECTORS_MAX 14u

static inline uint32_t exl2__unit_add_norm(const exl2__config *c, uint32_t layer, exl2__name name, uint32_t count,
                                           uint32_t file_count, exl2__unit_vector *out)
{
    exl2__norm_kind kind = (exl2__norm_kind)c->arch.traits[EXL2__TRAIT_NORM];
    bool plus_one = kind == EXL2__NORM_RMS_PLUS_ONE || kind == EXL2__NORM_LAYER_PLUS_ONE;
    bool biased = kind == EXL2__NORM_LAYER || kind == EXL2__NORM_LAYER_PLUS_ONE;
    char key[EXL2__KEY_BYTES];
    if (!c->arch.names[name][0]) {
        return 0;
    }
    exl2__format(key, sizeof key, "%s", c->arch.names[name]);
    if (layer != EXL2__UNIT_NO_LAYER) {
        exl2__arch_key(key, layer, c->arch.names[name]);
    }
    for (uint32_t i = 0; i < 1u + biased; i++) {
        out[i] = (exl2__unit_vector){ .name = name, .bias = i == 1, .plus_one = plus_one && i == 0, .count = count,
                                      .file_count = file_count };
        exl2__format(out[i].tensor, sizeof out[i].tensor, "%s.%s", key, i == 0 ? "weight" : "bias");
    }
    return 1u + biased;
}

/* A vector whose name is that of the whole tensor. */
static inline uint32_t exl2__unit_add_vector(const exl2__config *c, uint32_t layer, exl2__name name, uint32_t count,
                                             exl2__unit_vector *out)
{
    if (!c->arch.names[name][0]) {
        return 0;
    }
    *out = (exl2__unit_vector){ .name = name, .count = count, .file_count = count };
    exl2__arch_key(out->tensor, layer, c->arch.names[name]);
    return 1;
}

/* The vectors of a layer, or the final norm (EXL2__UNIT_NO_LAYER). Returns their number. */
static inline uint32_t exl2__unit_vectors(const exl2__config *c, uint32_t layer, exl2__unit_vector *out)
{
    static const exl2__name blocks[] = { EXL2__NAME_ATTN_NORM, EXL2__NAME_ATTN_POST_NORM, EXL2__NAME_MLP_NORM,
                                         EXL2__NAME_MLP_POST_NORM };
    uint32_t n = 0, head = c->head_dim;
    if (layer == EXL2__UNIT_NO_LAYER) {
        return exl2__unit_add_norm(c, layer, EXL2__NAME_FINAL_NORM, c->hidden, c->hidden, out);
    }
    for (uint32_t i = 0; i < EXL2__COUNT(blocks); i++) {
        bool shared = c->parallel && blocks[i] == EXL2__NAME_MLP_NORM; /* it is the norm of attention */
        n += shared ? 0 : exl2__unit_add_norm(c, layer, blocks[i], c->hidden, c->hidden, out + n);
    }
    if (c->qk_norm != EXL2__QK_NORM_NONE) {
        bool whole = c->qk_norm == EXL2__QK_NORM_WHOLE;
        uint32_t q = c->heads * head, k = c->kv_heads * head;
        n += exl2__unit_add_norm(c, layer, EXL2__NAME_Q_NORM, q, whole ? q : head, out + n);
        n += exl2__unit_add_norm(c, layer, EXL2__NAME_K_NORM, k, whole ? k : head, out + n);
    }
    n += exl2__unit_add_vector(c, layer, EXL2__NAME_SINKS, c->heads, out + n);
    if (exl2__unit_sparse(c, layer)) {
        n += exl2__unit_add_vector(c, layer, EXL2__NAME_CHOICE_BIAS, c->experts.count, out + n);
    }
    return n;
}

/* Fails unless the tensor has the right type and size, or is a bias that may be absent. Norms of heads are vectors
   [head_dim], or [heads, head_dim] in files of ExLlamaV2. A CHOICE_BIAS may be [1, experts]. */
EXL2__PRIVATE exl2_result exl2__unit_vector_check(exl2__ctx *c, const exl2__tensors *t, exl2__unit_vector *v,
                                                  bool *present)
{
    const exl2__tensor *entry = exl2__tensors_find(t, v->tensor);
    *present = entry != NULL;
    if (!entry && v->bias) {
        return EXL2_OK;
    }
    bool matrix = v->name == EXL2__NAME_Q_NORM || v->name == EXL2__NAME_K_NORM || v->name == EXL2__NAME_CHOICE_BIAS;
    if (entry && matrix && entry->rank == 2 && exl2__tensor_is_float(entry) &&
        entry->dims[0] == v->count / v->file_count && entry->dims[1] == v->file_count) {
        v->file_count = v->count;
        return EXL2_OK;
    }
    return exl2__tensor_check_floats(c, t, v->tensor, v->file_count);
}

/* Reads the values [v->count] of a vector that was checked. */
EXL2__PRIVATE exl2_result exl2__unit_vector_read(exl2__ctx *c, const exl2__tensors *t, const exl2__unit_vector *v,
                                                 float *values)
{
    EXL2__TRY(exl2__tensor_floats_range(c, t, exl2__tensors_find(t, v->tensor), 0, v->file_count, values));
    for (uint32_t i = v->file_count; i < v->count; i++) {
        values[i] = values[i - v->file_count];
    }
    for (uint32_t i = 0; v->plus_one && i < v->count; i++) {
        values[i] += 1.0f;
    }
    return EXL2_OK;
}

/* The member of the plan that the vector belongs to. */
static inline exl2__vector **exl2__unit_vector_place(const exl2__unit_vector *v, exl2__plan *plan, uint32_t layer)
{
    exl2__norm *norm = &plan->final_norm;
    if (layer != EXL2__UNIT_NO_LAYER) {
        exl2__layer *l = &plan->layers[layer];
        if (v->name == EXL2__NAME_SINKS || v->name == EXL2__NAME_CHOICE_BIAS) {
            return v->name == EXL2__NAME_SINKS ? &l->sinks : &l->choice_bias;
        }
        norm = v->name == EXL2__NAME_ATTN_NORM ? &l->attn_norm
             : v->name == EXL2__NAME_ATTN_POST_NORM ? &l->attn_post_norm
             : v->name == EXL2__NAME_MLP_NORM ? &l->mlp_norm
             : v->name == EXL2__NAME_MLP_POST_NORM ? &l->mlp_post_norm
             : v->name == EXL2__NAME_Q_NORM ? &l->q_norm : &l->k_norm;
    }
    return v->bias ? &norm->bias : &norm->weight;
}

#endif

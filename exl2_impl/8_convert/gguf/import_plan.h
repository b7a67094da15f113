/* import_plan.h: plans an import: finds the GGUF tensor for each tensor of the model, and checks all shapes.
   takes: an open GGUF file, the model's config.
   gives: exl2__import_plan, exl2__import_plan_make, exl2__import_plan_list, exl2__import_plan_close.
   owns:  the list of tensors, until exl2__import_plan_close. */
#ifndef EXL2__IMPORT_PLAN_H
#define EXL2__IMPORT_PLAN_H

#include "../shards.h"
#include "import_config.h"

/* One linear layer. GGUF stores it as [out, in], the order in which a quantizer of columns reads it. */
typedef struct exl2__import_matrix {
    char name[EXL2__SHARDS_NAME_MAX]; /* "model.layers.0.self_attn.q_proj" */
    exl2__gguf_tensor *weight, *bias; /* bias NULL with has_bias: the bias is zeros */
    uint32_t in, out, stored;         /* stored: `out` rounded up to a multiple of 32 */
    uint64_t first;                   /* row of `weight` and `bias` with which the matrix begins */
    uint32_t pair_dim, bias_pair_dim; /* not 0: head size; rows are permuted back from GGUF's RoPE order */
    uint32_t bits, group;
    uint32_t group_count, words;
    bool has_bias;
    bool transposed;                  /* written as [in, out]; only f16 */
    uint32_t entry, bias_entry;       /* numbers of its first tensor and of its bias in the output */
} exl2__import_matrix;

/* Embedding or learned positions, stored as f16; or norm, router or vector, stored as f16, or as f32 in an import that
   does not quantize. */
typedef struct exl2__import_plain {
    char name[EXL2__SHARDS_NAME_MAX]; /* with .weight or .bias, if the tensor has one of them */
    exl2__gguf_tensor *tensor;
    uint32_t rank, dim0, dim1;        /* shape in the output */
    bool table;                       /* embedding or positions */
    bool minus_one;                   /* the file holds the values plus 1 */
    uint32_t entry;
} exl2__import_plain;

#define EXL2__IMPORT_PLAN_LAYER_PLAINS 17u   /* most of a layer: 6 norms and the router, with biases; 3 vectors */
#define EXL2__IMPORT_PLAN_LAYER_MATRICES 10u /* besides those of experts: q, k, v, out, and 3 of each of 2 MLPs */

typedef struct exl2__import_plan {
    exl2__gguf *g;
    exl2__import_config *config;
    exl2__arena list;
    exl2__import_matrix *matrices; /* [matrix_count] */
    exl2__import_plain *plains;    /* [plain_count] */
    uint32_t matrix_count, plain_count;
    uint64_t numbers;              /* numbers to be processed, including padding; for progress */
    bool dense;                    /* matrices are written as f16, not quantized */
} exl2__import_plan;

/* Finds a tensor, and checks shape and type. *out is NULL if it is absent and optional. */
EXL2__PRIVATE exl2_result exl2__import_plan_want(exl2__gguf *g, const char *name, bool optional, uint64_t dim0,
                                                 uint64_t dim1, uint64_t dim2, exl2__gguf_tensor **out)
{
    exl2__gguf_tensor *t = exl2__gguf_tensor_find(g, name);
    *out = t;
    if (!t) {
        return optional ? EXL2_OK : exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: tensor %s is missing", g->path, name);
    }
    if (t->dims[0] != dim0 || t->dims[1] != dim1 || t->dims[2] != dim2 || t->dims[3] != 1) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT,
                          "%s: tensor %s has the shape %llu x %llu x %llu x %llu, expected %llu x %llu x %llu x 1",
                          g->path, name, (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                          (unsigned long long)t->dims[2], (unsigned long long)t->dims[3], (unsigned long long)dim0,
                          (unsigned long long)dim1, (unsigned long long)dim2);
    }
    if (!t->type->read) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: tensor %s is of type %s, which is not imported", g->path,
                          name, t->type->name);
    }
    t->used = true;
    return EXL2_OK;
}

/* ---- names ---- */

#define EXL2__IMPORT_PLAN_NO_LAYER UINT32_MAX

/* Writes "blk.<layer>.<name>.<suffix>", or "<name>.<suffix>" without a layer, into out[GGUF_NAME_MAX + 1]. */
EXL2__PRIVATE const char *exl2__import_plan_tensor(char *out, uint32_t layer, const char *name, const char *suffix)
{
    if (layer == EXL2__IMPORT_PLAN_NO_LAYER) {
        exl2__format(out, EXL2__GGUF_NAME_MAX + 1, "%s.%s", name, suffix);
    } else {
        exl2__format(out, EXL2__GGUF_NAME_MAX + 1, "blk.%u.%s.%s", layer, name, suffix);
    }
    return out;
}

EXL2__PRIVATE bool exl2__import_plan_has(const exl2__import_plan *p, uint32_t layer, const char *name,
                                         const char *suffix)
{
    char tensor[EXL2__GGUF_NAME_MAX + 1];
    return exl2__gguf_tensor_find(p->g, exl2__import_plan_tensor(tensor, layer, name, suffix)) != NULL;
}

/* Writes the name in the output, without a suffix, into out[SHARDS_NAME_MAX]. `expert`: for names of experts. */
EXL2__PRIVATE void exl2__import_plan_name(const exl2__import_plan *p, char *out, uint32_t layer, exl2__name name,
                                          uint32_t expert)
{
    const char *own = p->config->arch.names[name];
    if (layer == EXL2__IMPORT_PLAN_NO_LAYER) {
        exl2__format(out, EXL2__SHARDS_NAME_MAX, "%s", own);
    } else {
        char key[EXL2__KEY_BYTES];
        exl2__format(out, EXL2__SHARDS_NAME_MAX, "%s", exl2__arch_expert_key(key, layer, expert, own));
    }
}

/* ---- matrices ---- */

/* Where a matrix lies in GGUF. */
typedef struct exl2__import_place {
    const char *tensor;   /* "attn_q" */
    uint32_t first, rows; /* its first row; rows of the whole tensor, or of one expert in it */
    uint32_t experts;     /* number of experts whose rows the tensor has; 0: it is one matrix */
    uint32_t expert;
} exl2__import_place;

EXL2__PRIVATE exl2_result exl2__import_plan_bias(exl2__import_plan *p, uint32_t layer, const exl2__import_place *place,
                                                 bool for_all, exl2__import_matrix *x)
{
    char tensor[EXL2__GGUF_NAME_MAX + 1];
    exl2__import_plan_tensor(tensor, layer, place->tensor, "bias");
    EXL2__TRY(exl2__import_plan_want(p->g, tensor, true, place->rows, place->experts ? place->experts : 1, 1,
                                     &x->bias));
    x->has_bias = x->bias || for_all;
    if (x->has_bias && !p->dense && x->out % EXL2__PACK_UNIT != 0) {
        return exl2__fail(p->g->ctx, EXL2_ERR_UNSUPPORTED,
                          "%s: %s has a bias and %u outputs, expected a multiple of %u", p->g->path, x->name, x->out,
                          EXL2__PACK_UNIT);
    }
    return EXL2_OK;
}

/* for_all: the matrix has a bias even if the file has none. pairs: rows are in the order of pairs. */
EXL2__PRIVATE exl2_result exl2__import_plan_add_matrix(exl2__import_plan *p, uint32_t layer, exl2__name name,
                                                       const exl2__import_place *place, uint32_t in, uint32_t out,
                                                       bool pairs, bool for_all)
{
    const exl2__import_config *f = p->config;
    exl2__import_matrix *x = &p->matrices[p->matrix_count++];
    char tensor[EXL2__GGUF_NAME_MAX + 1];
    exl2__import_plan_name(p, x->name, layer, name, place->expert);
    exl2__import_plan_tensor(tensor, layer, place->tensor, "weight");
    EXL2__TRY(exl2__import_plan_want(p->g, tensor, false, in, place->rows, place->experts ? place->experts : 1,
                                     &x->weight));
    x->in = in;
    x->out = out;
    x->stored = p->dense ? out : (uint32_t)exl2__align_up(out, EXL2__PACK_UNIT);
    x->first = place->first + (uint64_t)place->expert * place->rows;
    x->transposed = p->dense && layer != EXL2__IMPORT_PLAN_NO_LAYER &&
                    f->arch.traits[EXL2__TRAIT_TRANSPOSED] == EXL2__YES;
    bool both = pairs && f->family->undo & EXL2__IMPORT_UNDO_PAIRS;
    x->pair_dim = both || (pairs && f->family->undo & EXL2__IMPORT_UNDO_WEIGHT_PAIRS) ? f->head_dim : 0;
    x->bias_pair_dim = both ? f->head_dim : 0;
    x->bits = name == EXL2__NAME_HEAD ? f->head_bits : f->bits;
    x->group = f->group;
    p->numbers += (uint64_t)in * x->stored;
    EXL2__TRY(exl2__import_plan_bias(p, layer, place, for_all, x));
    exl2__pack_band band = { x->bits, in, x->group };
    return p->dense ? EXL2_OK
                    : exl2__pack_layout(p->g->ctx, x->name, in, &band, 1, NULL, &x->group_count, &x->words);
}

/* A tensor that is stored as it is, [rows, columns] (rows 0: a vector). suffixes: in GGUF, and in the output. An
   optional one may be absent. */
EXL2__PRIVATE exl2_result exl2__import_plan_add_plain(exl2__import_plan *p, uint32_t layer, exl2__name name,
                                                      const char *const suffixes[2], uint32_t rows, uint32_t columns,
                                                      bool optional)
{
    exl2__import_plain *plain = &p->plains[p->plain_count];
    char tensor[EXL2__GGUF_NAME_MAX + 1], own[EXL2__SHARDS_NAME_MAX];
    exl2__import_plan_tensor(tensor, layer, exl2__import_family_tensor(name), suffixes[0]);
    EXL2__TRY(exl2__import_plan_want(p->g, tensor, optional, columns, rows ? rows : 1, 1, &plain->tensor));
    if (!plain->tensor) {
        return EXL2_OK;
    }
    exl2__import_plan_name(p, own, layer, name, 0);
    exl2__format(plain->name, sizeof plain->name, "%s%s", own, suffixes[1]);
    plain->rank = rows ? 2 : 1;
    plain->dim0 = rows ? rows : columns;
    plain->dim1 = rows ? columns : 0;
    p->numbers += (uint64_t)(rows ? rows : 1) * columns;
    p->plain_count++;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__import_plan_add_attention(exl2__import_plan *p, uint32_t layer)
{
    static const exl2__name names[3] = { EXL2__NAME_Q, EXL2__NAME_K, EXL2__NAME_V };
    const exl2__import_config *f = p->config;
    const char *fused = exl2__import_family_tensor(EXL2__NAME_QKV);
    uint32_t q = f->heads * f->head_dim, kv = f->kv_heads * f->head_dim, rows[3] = { q, kv, kv }, first = 0;
    bool single = !exl2__import_plan_has(p, layer, fused, "weight");
    bool for_all = f->family->bias_for_all && f->attention_bias;
    for (uint32_t i = 0; i < 3; i++) {
        exl2__import_place place = { single ? exl2__import_family_tensor(names[i]) : fused, single ? 0 : first,
                                     single ? rows[i] : q + 2 * kv, 0, 0 };
        EXL2__TRY(exl2__import_plan_add_matrix(p, layer, names[i], &place, f->hidden, rows[i], i < 2, for_all));
        first += rows[i];
    }
    if (f->arch.names[EXL2__NAME_SINKS][0]) {
        static const char *const suffixes[2] = { "weight", "" };
        EXL2__TRY(exl2__import_plan_add_plain(p, layer, EXL2__NAME_SINKS, suffixes, 0, f->heads, false));
    }
    exl2__import_place out = { exl2__import_family_tensor(EXL2__NAME_OUT), 0, f->hidden, 0, 0 };
    return exl2__import_plan_add_matrix(p, layer, EXL2__NAME_OUT, &out, q, f->hidden, false, for_all);
}

EXL2__PRIVATE exl2_result exl2__import_plan_add_mlp(exl2__import_plan *p, uint32_t layer)
{
    const exl2__import_config *f = p->config;
    const char *gate = exl2__import_family_tensor(EXL2__NAME_GATE), *up = exl2__import_family_tensor(EXL2__NAME_UP);
    bool gated = f->arch.traits[EXL2__TRAIT_GATED] == EXL2__YES;
    bool fused = f->family->undo & EXL2__IMPORT_UNDO_GATE_UP && !exl2__import_plan_has(p, layer, gate, "weight");
    bool for_all = f->family->bias_for_all && f->mlp_bias;
    exl2__import_place places[2] = { { fused ? up : gate, 0, fused ? 2 * f->inter : f->inter, 0, 0 },
                                     { up, fused ? f->inter : 0, fused ? 2 * f->inter : f->inter, 0, 0 } };
    if (gated) {
        EXL2__TRY(exl2__import_plan_add_matrix(p, layer, EXL2__NAME_GATE, &places[0], f->hidden, f->inter, false,
                                               for_all));
    }
    EXL2__TRY(exl2__import_plan_add_matrix(p, layer, EXL2__NAME_UP, &places[1], f->hidden, f->inter, false, for_all));
    exl2__import_place down = { exl2__import_family_tensor(EXL2__NAME_DOWN), 0, f->hidden, 0, 0 };
    return exl2__import_plan_add_matrix(p, layer, EXL2__NAME_DOWN, &down, f->inter, f->hidden, false, for_all);
}

/* ---- tables and norms ---- */

EXL2__PRIVATE exl2_result exl2__import_plan_add_table(exl2__import_plan *p, exl2__name name, uint32_t rows)
{
    exl2__import_plain *plain = &p->plains[p->plain_count++];
    char tensor[EXL2__GGUF_NAME_MAX + 1], own[EXL2__SHARDS_NAME_MAX];
    exl2__import_plan_name(p, own, EXL2__IMPORT_PLAN_NO_LAYER, name, 0);
    exl2__format(plain->name, sizeof plain->name, "%s.weight", own);
    plain->table = true;
    plain->rank = 2;
    plain->dim0 = rows;
    plain->dim1 = p->config->hidden;
    p->numbers += (uint64_t)rows * plain->dim1;
    exl2__import_plan_tensor(tensor, EXL2__IMPORT_PLAN_NO_LAYER, exl2__import_family_tensor(name), "weight");
    return exl2__import_plan_want(p->g, tensor, false, plain->dim1, rows, 1, &plain->tensor);
}

/* Adds a norm of `count` values, or of `heads` times as many (heads 0 or 1: always of `count`), and its bias if the
   norm may have one. `from`: its GGUF name. */
EXL2__PRIVATE exl2_result exl2__import_plan_add_norm(exl2__import_plan *p, uint32_t layer, exl2__name name,
                                                     const char *from, uint32_t count, uint32_t heads)
{
    uint8_t kind = p->config->arch.traits[EXL2__TRAIT_NORM];
    bool biased = kind == EXL2__NORM_LAYER || kind == EXL2__NORM_LAYER_PLUS_ONE;
    for (uint32_t i = 0; i < 1u + biased; i++) {
        exl2__import_plain *plain = &p->plains[p->plain_count];
        const char *suffix = i == 0 ? "weight" : "bias";
        char tensor[EXL2__GGUF_NAME_MAX + 1], own[EXL2__SHARDS_NAME_MAX];
        exl2__import_plan_tensor(tensor, layer, from, suffix);
        exl2__gguf_tensor *found = exl2__gguf_tensor_find(p->g, tensor);
        bool each = heads > 1 && found && found->dims[1] == heads;
        EXL2__TRY(exl2__import_plan_want(p->g, tensor, i == 1, count, each ? heads : 1, 1, &plain->tensor));
        if (!plain->tensor) {
            continue;
        }
        exl2__import_plan_name(p, own, layer, name, 0);
        exl2__format(plain->name, sizeof plain->name, "%s.%s", own, suffix);
        plain->rank = each ? 2 : 1;
        plain->dim0 = each ? heads : count;
        plain->dim1 = each ? count : 0;
        plain->minus_one = i == 0 && p->config->family->undo & EXL2__IMPORT_UNDO_PLUS_ONE;
        p->numbers += (uint64_t)count * (each ? heads : 1);
        p->plain_count++;
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__import_plan_add_norms(exl2__import_plan *p, uint32_t layer)
{
    static const exl2__name names[4] = { EXL2__NAME_ATTN_NORM, EXL2__NAME_ATTN_POST_NORM, EXL2__NAME_MLP_NORM,
                                         EXL2__NAME_MLP_POST_NORM };
    const exl2__import_config *f = p->config;
    bool whole = f->qk_norm == EXL2__QK_NORM_WHOLE;
    for (uint32_t i = 0; i < 4; i++) {
        const char *from = exl2__import_family_tensor(names[i]);
        if (!f->arch.names[names[i]][0] || (f->parallel && names[i] == EXL2__NAME_MLP_NORM)) {
            continue; /* in parallel blocks it is the norm of attention */
        }
        /* Some converters call the norm before the MLP by where it stands. */
        const char *others[2] = { exl2__import_family_tensor(EXL2__NAME_ATTN_POST_NORM), "attn_output_norm" };
        for (uint32_t k = 0; k < 2 && names[i] == EXL2__NAME_MLP_NORM && !f->arch.names[EXL2__NAME_ATTN_POST_NORM][0] &&
                             !exl2__import_plan_has(p, layer, from, "weight"); k++) {
            from = exl2__import_plan_has(p, layer, others[k], "weight") ? others[k] : from;
        }
        EXL2__TRY(exl2__import_plan_add_norm(p, layer, names[i], from, f->hidden, 0));
    }
    if (f->qk_norm == EXL2__QK_NORM_NONE) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__import_plan_add_norm(p, layer, EXL2__NAME_Q_NORM, exl2__import_family_tensor(EXL2__NAME_Q_NORM),
                                         whole ? f->heads * f->head_dim : f->head_dim, whole ? 0 : f->heads));
    return exl2__import_plan_add_norm(p, layer, EXL2__NAME_K_NORM, exl2__import_family_tensor(EXL2__NAME_K_NORM),
                                      whole ? f->kv_heads * f->head_dim : f->head_dim, whole ? 0 : f->kv_heads);
}

/* ---- layers with experts ---- */

EXL2__PRIVATE exl2_result exl2__import_plan_add_router(exl2__import_plan *p, uint32_t layer)
{
    static const char *const weight[2] = { "weight", ".weight" }, *const bias[2] = { "bias", ".bias" };
    static const char *const choice[2] = { "bias", "" };
    const exl2__import_config *f = p->config;
    uint32_t count = f->experts.count;
    EXL2__TRY(exl2__import_plan_add_plain(p, layer, EXL2__NAME_ROUTER, weight, count, f->hidden, false));
    EXL2__TRY(exl2__import_plan_add_plain(p, layer, EXL2__NAME_ROUTER, bias, 0, count, true));
    if (f->arch.names[EXL2__NAME_CHOICE_BIAS][0]) {
        EXL2__TRY(exl2__import_plan_add_plain(p, layer, EXL2__NAME_CHOICE_BIAS, choice, 0, count, true));
    }
    return f->experts.shared_inter && f->arch.names[EXL2__NAME_SHARED_SWITCH][0]
               ? exl2__import_plan_add_plain(p, layer, EXL2__NAME_SHARED_SWITCH, weight, 1, f->hidden, false) : EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__import_plan_add_shared(exl2__import_plan *p, uint32_t layer)
{
    const exl2__import_config *f = p->config;
    uint32_t inter = f->experts.shared_inter;
    exl2__import_place gate = { exl2__import_family_tensor(EXL2__NAME_SHARED_GATE), 0, inter, 0, 0 };
    exl2__import_place up = { exl2__import_family_tensor(EXL2__NAME_SHARED_UP), 0, inter, 0, 0 };
    exl2__import_place down = { exl2__import_family_tensor(EXL2__NAME_SHARED_DOWN), 0, f->hidden, 0, 0 };
    EXL2__TRY(exl2__import_plan_add_matrix(p, layer, EXL2__NAME_SHARED_GATE, &gate, f->hidden, inter, false, false));
    EXL2__TRY(exl2__import_plan_add_matrix(p, layer, EXL2__NAME_SHARED_UP, &up, f->hidden, inter, false, false));
    return exl2__import_plan_add_matrix(p, layer, EXL2__NAME_SHARED_DOWN, &down, inter, f->hidden, false, false);
}

/* Gate and up of all experts are two tensors, or one with the rows of gate and then those of up for each expert. */
EXL2__PRIVATE exl2_result exl2__import_plan_add_experts(exl2__import_plan *p, uint32_t layer)
{
    const exl2__import_config *f = p->config;
    uint32_t inter = f->experts.inter, count = f->experts.count;
    const char *both = exl2__import_family_tensor(EXL2__NAME_EXPERTS_GATE_UP);
    bool fused = exl2__import_plan_has(p, layer, both, "weight");
    uint32_t rows = fused ? 2 * inter : inter;
    EXL2__TRY(exl2__import_plan_add_router(p, layer));
    if (f->experts.shared_inter) {
        EXL2__TRY(exl2__import_plan_add_shared(p, layer));
    }
    for (uint32_t i = 0; i < count; i++) {
        exl2__import_place gate = { fused ? both : exl2__import_family_tensor(EXL2__NAME_EXPERT_GATE), 0, rows, count,
                                    i };
        exl2__import_place up = { fused ? both : exl2__import_family_tensor(EXL2__NAME_EXPERT_UP), fused ? inter : 0,
                                  rows, count, i };
        exl2__import_place down = { exl2__import_family_tensor(EXL2__NAME_EXPERT_DOWN), 0, f->hidden, count, i };
        EXL2__TRY(exl2__import_plan_add_matrix(p, layer, EXL2__NAME_EXPERT_GATE, &gate, f->hidden, inter, false,
                                               false));
        EXL2__TRY(exl2__import_plan_add_matrix(p, layer, EXL2__NAME_EXPERT_UP, &up, f->hidden, inter, false, false));
        EXL2__TRY(exl2__import_plan_add_matrix(p, layer, EXL2__NAME_EXPERT_DOWN, &down, inter, f->hidden, false,
                                               false));
    }
    return EXL2_OK;
}

/* ---- all ---- */

/* attention_bias and mlp_bias of config.json apply to all layers, so one bias in any layer sets them. */
EXL2__PRIVATE void exl2__import_plan_find_biases(exl2__import_plan *p)
{
    static const exl2__name names[8] = { EXL2__NAME_Q, EXL2__NAME_K, EXL2__NAME_V, EXL2__NAME_OUT, EXL2__NAME_QKV,
                                         EXL2__NAME_GATE, EXL2__NAME_UP, EXL2__NAME_DOWN };
    for (uint32_t i = 0; i < p->config->layers * 8; i++) {
        if (exl2__import_plan_has(p, i / 8, exl2__import_family_tensor(names[i % 8]), "bias")) {
            *(i % 8 < 5 ? &p->config->attention_bias : &p->config->mlp_bias) = true;
        }
    }
}

EXL2__PRIVATE exl2_result exl2__import_plan_allocate(exl2__import_plan *p)
{
    uint64_t layers = p->config->layers, experts = 0;
    for (uint32_t i = 0; i < layers; i++) {
        experts += exl2__import_config_is_sparse(p->config, i) ? p->config->experts.count : 0;
    }
    uint64_t matrix_bytes = (layers * EXL2__IMPORT_PLAN_LAYER_MATRICES + 3 * experts + 1) * sizeof *p->matrices;
    uint64_t plain_bytes = (layers * EXL2__IMPORT_PLAN_LAYER_PLAINS + 4) * sizeof *p->plains;
    EXL2__TRY(exl2__arena_open(p->g->ctx, &p->list,
                               exl2__align_up(matrix_bytes, EXL2__ARENA_ALIGN) +
                                   exl2__align_up(plain_bytes, EXL2__ARENA_ALIGN),
                               EXL2_MEM_GENERAL));
    p->matrices = (exl2__import_matrix *)exl2__arena_alloc_zeroed(&p->list, matrix_bytes);
    p->plains = (exl2__import_plain *)exl2__arena_alloc_zeroed(&p->list, plain_bytes);
    return EXL2_OK;
}

/* The embedding, learned positions, and the final norm. */
EXL2__PRIVATE exl2_result exl2__import_plan_add_tables(exl2__import_plan *p)
{
    const exl2__import_config *f = p->config;
    EXL2__TRY(exl2__import_plan_add_table(p, EXL2__NAME_EMBED, f->vocab));
    if (f->arch.names[EXL2__NAME_POSITIONS][0]) {
        EXL2__TRY(exl2__import_plan_add_table(p, EXL2__NAME_POSITIONS, f->context));
    }
    return exl2__import_plan_add_norm(p, EXL2__IMPORT_PLAN_NO_LAYER, EXL2__NAME_FINAL_NORM,
                                      exl2__import_family_tensor(EXL2__NAME_FINAL_NORM), f->hidden, 0);
}

/* The tensor belongs to a layer that is not imported. */
EXL2__PRIVATE bool exl2__import_plan_is_skipped(const exl2__import_config *m, exl2__gguf_text name)
{
    uint64_t layer = 0;
    uint32_t at = 4;
    if (m->skipped_layers == 0 || name.bytes < 4 || memcmp(name.data, "blk.", 4) != 0) {
        return false;
    }
    for (; at < name.bytes && at < 12 && name.data[at] >= '0' && name.data[at] <= '9'; at++) {
        layer = layer * 10 + (uint64_t)(name.data[at] - '0');
    }
    return at > 4 && at < name.bytes && name.data[at] == '.' && layer >= m->layers &&
           layer < m->layers + m->skipped_layers;
}

/* Finds every tensor, and fills the list and the bias flags of the config. *p must be closed, even after a failure. */
EXL2__PRIVATE exl2_result exl2__import_plan_make(exl2__gguf *g, exl2__import_config *config, exl2__import_plan *p)
{
    *p = (exl2__import_plan){ 0 };
    p->g = g;
    p->config = config;
    p->dense = config->bits == EXL2__IMPORT_DENSE_BITS;
    exl2__import_plan_find_biases(p);
    EXL2__TRY(exl2__import_plan_allocate(p));
    EXL2__TRY(exl2__import_plan_add_tables(p));
    for (uint32_t i = 0; i < config->layers; i++) {
        EXL2__TRY(exl2__import_plan_add_attention(p, i));
        EXL2__TRY(exl2__import_config_is_sparse(config, i) ? exl2__import_plan_add_experts(p, i)
                                                           : exl2__import_plan_add_mlp(p, i));
        EXL2__TRY(exl2__import_plan_add_norms(p, i));
    }
    exl2__import_place head = { exl2__import_family_tensor(config->tied ? EXL2__NAME_EMBED : EXL2__NAME_HEAD), 0,
                                config->vocab, 0, 0 };
    if (!config->tied || !p->dense) {
        EXL2__TRY(exl2__import_plan_add_matrix(p, EXL2__IMPORT_PLAN_NO_LAYER, EXL2__NAME_HEAD, &head, config->hidden,
                                               config->vocab, false, false));
    }
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        if (!g->tensors[i].used && !exl2__import_plan_is_skipped(config, g->tensors[i].name)) {
            return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                              "%s: tensor %.*s is not one of a %s model, and cannot be imported", g->path,
                              EXL2__GGUF_NAME(g->tensors[i].name), config->arch.family);
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE void exl2__import_plan_list_matrix(exl2__import_plan *p, exl2__import_matrix *x, exl2__shards *s)
{
    x->entry = s->count;
    if (p->dense) {
        exl2__shards_add(s, x->name, ".weight", EXL2__TENSOR_F16, 2, x->transposed ? x->in : x->out,
                         x->transposed ? x->out : x->in);
    } else {
        exl2__shards_add(s, x->name, ".q_weight", EXL2__TENSOR_I32, 2, x->words, x->stored);
        exl2__shards_add(s, x->name, ".q_scale", EXL2__TENSOR_I32, 2, x->group_count, x->stored / 8);
        exl2__shards_add(s, x->name, ".q_scale_max", EXL2__TENSOR_F16, 1, x->group_count, 0);
        exl2__shards_add(s, x->name, ".q_groups", EXL2__TENSOR_I16, 1, x->group_count * 2, 0);
        exl2__shards_add(s, x->name, ".q_invperm", EXL2__TENSOR_I32, 1, x->in, 0);
    }
    x->bias_entry = s->count;
    if (x->has_bias) {
        exl2__shards_add(s, x->name, ".bias", p->dense ? EXL2__TENSOR_F32 : EXL2__TENSOR_F16, 1, x->stored, 0);
    }
}

/* Adds the output tensors to *s, in the order in which they will be written. *s must be closed, even after a
   failure. */
EXL2__PRIVATE exl2_result exl2__import_plan_list(exl2__import_plan *p, uint64_t shard_bytes, exl2__shards *s)
{
    EXL2__TRY(exl2__shards_begin(p->g->ctx, s, p->dense ? "model" : "output", p->plain_count + p->matrix_count * 6,
                                 shard_bytes));
    for (uint32_t i = 0; i < p->plain_count; i++) {
        exl2__import_plain *plain = &p->plains[i];
        plain->entry = s->count;
        exl2__shards_add(s, plain->name, "", p->dense && !plain->table ? EXL2__TENSOR_F32 : EXL2__TENSOR_F16,
                         plain->rank, plain->dim0, plain->dim1);
    }
    for (uint32_t i = 0; i < p->matrix_count; i++) {
        exl2__import_plan_list_matrix(p, &p->matrices[i], s);
    }
    return EXL2_OK;
}

EXL2__PRIVATE void exl2__import_plan_close(exl2__import_plan *p)
{
    if (p->g) {
        exl2__arena_close(p->g->ctx, &p->list);
    }
    *p = (exl2__import_plan){ 0 };
}

#endif

/* import_plan.h: plans an import: finds the GGUF tensor for each EXL2 tensor, and checks all shapes.
   takes: an open GGUF file, the model's config.
   gives: exl2__import_plan, exl2__import_plan_make, exl2__import_plan_list, exl2__import_plan_close.
   owns:  the list of tensors, until exl2__import_plan_close. */
#ifndef EXL2__IMPORT_PLAN_H
#define EXL2__IMPORT_PLAN_H

#include "import_config.h"
#include "../shards.h"

/* One linear layer. GGUF stores it as [out, in], the order in which a quantizer of columns reads it. */
typedef struct exl2__import_matrix {
    char name[EXL2__SHARDS_NAME_MAX]; /* "model.layers.0.self_attn.q_proj" */
    exl2__gguf_tensor *weight, *bias; /* bias NULL with has_bias: the bias is zeros */
    uint32_t in, out, stored;         /* stored: `out` rounded up to a multiple of 32 */
    uint32_t pair_dim;                /* not 0: head size; rows are permuted back from GGUF's RoPE order */
    uint32_t bits, group;
    uint32_t group_count, words;
    bool has_bias;
    uint32_t entry;                   /* number of its first tensor in the output */
} exl2__import_matrix;

typedef struct exl2__import_plain { /* embedding or norm, stored as f16 */
    exl2__gguf_tensor *tensor;
    uint32_t entry;
} exl2__import_plain;

typedef struct exl2__import_plan {
    exl2__gguf *g;
    exl2__import_config *config;
    exl2__arena list;
    exl2__import_matrix *matrices; /* [matrix_count] */
    exl2__import_plain *plains;    /* [plain_count] embedding, final norm, then two per layer */
    uint32_t matrix_count, plain_count;
    uint64_t numbers;              /* numbers to be processed, including padding; for progress */
} exl2__import_plan;

/* Finds a tensor, and checks shape and type. *out is NULL if it is absent and optional. dim1 0: a vector. */
static exl2_result exl2__import_plan_want(exl2__gguf *g, const char *name, bool optional, uint32_t dim0, uint32_t dim1,
                                          exl2__gguf_tensor **out)
{
    exl2__gguf_tensor *t = exl2__gguf_tensor_find(g, name);
    *out = t;
    if (!t) {
        return optional ? EXL2_OK : exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: tensor %s is missing", g->path, name);
    }
    if (t->dims[0] != dim0 || t->dims[1] != (dim1 ? dim1 : 1) || t->dims[2] != 1 || t->dims[3] != 1) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: tensor %s has the shape %llu x %llu x %llu, expected %u x %u",
                          g->path, name, (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                          (unsigned long long)t->dims[2], dim0, dim1 ? dim1 : 1);
    }
    if (!t->type->read) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: tensor %s is of type %s, which is not imported", g->path,
                          name, t->type->name);
    }
    t->used = true;
    return EXL2_OK;
}

static exl2_result exl2__import_plan_add_matrix(exl2__import_plan *p, const char *gguf_name, const char *name,
                                                uint32_t in, uint32_t out, uint32_t pair_dim, bool with_bias)
{
    exl2__import_matrix *x = &p->matrices[p->matrix_count++];
    bool head = strcmp(name, "lm_head") == 0;
    char tensor[EXL2__GGUF_NAME_MAX + 1];
    exl2__format(x->name, sizeof x->name, "%s", name);
    exl2__format(tensor, sizeof tensor, "%s.weight", gguf_name);
    EXL2__TRY(exl2__import_plan_want(p->g, tensor, false, in, out, &x->weight));
    if (with_bias) {
        exl2__format(tensor, sizeof tensor, "%s.bias", gguf_name);
        EXL2__TRY(exl2__import_plan_want(p->g, tensor, true, out, 0, &x->bias));
        if (out % EXL2__PACK_UNIT != 0) {
            return exl2__fail(p->g->ctx, EXL2_ERR_UNSUPPORTED,
                              "%s: %s has a bias and %u outputs, expected a multiple of %u", p->g->path, name, out,
                              EXL2__PACK_UNIT);
        }
    }
    x->in = in;
    x->out = out;
    x->stored = (uint32_t)exl2__align_up(out, EXL2__PACK_UNIT);
    x->pair_dim = pair_dim;
    x->bits = head ? p->config->head_bits : p->config->bits;
    x->group = p->config->group;
    x->has_bias = with_bias;
    exl2__pack_band band = { x->bits, in, x->group };
    EXL2__TRY(exl2__pack_layout(p->g->ctx, name, in, &band, 1, NULL, &x->group_count, &x->words));
    p->numbers += (uint64_t)in * x->stored;
    return EXL2_OK;
}

static exl2_result exl2__import_plan_add_plain(exl2__import_plan *p, const char *gguf_name, uint32_t dim0,
                                               uint32_t dim1)
{
    exl2__import_plain *plain = &p->plains[p->plain_count++];
    p->numbers += (uint64_t)dim0 * (dim1 ? dim1 : 1);
    return exl2__import_plan_want(p->g, gguf_name, false, dim0, dim1, &plain->tensor);
}

static exl2_result exl2__import_plan_add_layer(exl2__import_plan *p, uint32_t layer)
{
    exl2__import_config *f = p->config;
    uint32_t q = f->heads * f->head_dim, kv = f->kv_heads * f->head_dim;
    const struct {
        const char *from, *to;
        uint32_t in, out, pair_dim;
        bool with_bias;
    } linears[7] = {
        { "attn_q", "self_attn.q_proj", f->hidden, q, f->head_dim, f->attention_bias },
        { "attn_k", "self_attn.k_proj", f->hidden, kv, f->head_dim, f->attention_bias },
        { "attn_v", "self_attn.v_proj", f->hidden, kv, 0, f->attention_bias },
        { "attn_output", "self_attn.o_proj", q, f->hidden, 0, f->attention_bias },
        { "ffn_gate", "mlp.gate_proj", f->hidden, f->inter, 0, f->mlp_bias },
        { "ffn_up", "mlp.up_proj", f->hidden, f->inter, 0, f->mlp_bias },
        { "ffn_down", "mlp.down_proj", f->inter, f->hidden, 0, f->mlp_bias },
    };
    char from[EXL2__GGUF_NAME_MAX + 1], to[EXL2__SHARDS_NAME_MAX];
    for (uint32_t i = 0; i < 7; i++) {
        exl2__format(from, sizeof from, "blk.%u.%s", layer, linears[i].from);
        exl2__format(to, sizeof to, "model.layers.%u.%s", layer, linears[i].to);
        EXL2__TRY(exl2__import_plan_add_matrix(p, from, to, linears[i].in, linears[i].out, linears[i].pair_dim,
                                               linears[i].with_bias));
    }
    exl2__format(from, sizeof from, "blk.%u.attn_norm.weight", layer);
    EXL2__TRY(exl2__import_plan_add_plain(p, from, f->hidden, 0));
    exl2__format(from, sizeof from, "blk.%u.ffn_norm.weight", layer);
    return exl2__import_plan_add_plain(p, from, f->hidden, 0);
}

/* attention_bias and mlp_bias of config.json apply to all layers, so one bias in any layer sets them. */
static void exl2__import_plan_find_biases(exl2__import_plan *p)
{
    static const char *const names[7] = {
        "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"
    };
    for (uint32_t i = 0; i < p->config->layers * 7; i++) {
        char name[EXL2__GGUF_NAME_MAX + 1];
        exl2__format(name, sizeof name, "blk.%u.%s.bias", i / 7, names[i % 7]);
        if (exl2__gguf_tensor_find(p->g, name)) {
            *(i % 7 < 4 ? &p->config->attention_bias : &p->config->mlp_bias) = true;
        }
    }
}

/* Finds every tensor, and fills the list and the bias flags of the config. *p must be closed, even after a failure. */
static exl2_result exl2__import_plan_make(exl2__gguf *g, exl2__import_config *config, exl2__import_plan *p)
{
    *p = (exl2__import_plan){ 0 };
    p->g = g;
    p->config = config;
    exl2__import_plan_find_biases(p);
    uint64_t matrix_bytes = ((uint64_t)config->layers * 7 + 1) * sizeof *p->matrices;
    uint64_t plain_bytes = ((uint64_t)config->layers * 2 + 2) * sizeof *p->plains;
    EXL2__TRY(exl2__arena_open(g->ctx, &p->list,
                               exl2__align_up(matrix_bytes, EXL2__ARENA_ALIGN) +
                                   exl2__align_up(plain_bytes, EXL2__ARENA_ALIGN),
                               EXL2_MEM_GENERAL));
    p->matrices = (exl2__import_matrix *)exl2__arena_alloc_zeroed(&p->list, matrix_bytes);
    p->plains = (exl2__import_plain *)exl2__arena_alloc_zeroed(&p->list, plain_bytes);
    EXL2__TRY(exl2__import_plan_add_plain(p, "token_embd.weight", config->hidden, config->vocab));
    EXL2__TRY(exl2__import_plan_add_plain(p, "output_norm.weight", config->hidden, 0));
    for (uint32_t i = 0; i < config->layers; i++) {
        EXL2__TRY(exl2__import_plan_add_layer(p, i));
    }
    EXL2__TRY(exl2__import_plan_add_matrix(p, config->tied ? "token_embd" : "output", "lm_head", config->hidden,
                                           config->vocab, 0, false));
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        if (!g->tensors[i].used) {
            return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                              "%s: tensor %.*s is not one of a Llama model, and cannot be imported", g->path,
                              EXL2__GGUF_NAME(g->tensors[i].name));
        }
    }
    return EXL2_OK;
}

/* Adds the output tensors to *s, in the order in which they will be written. *s must be closed, even after a
   failure. */
static exl2_result exl2__import_plan_list(exl2__import_plan *p, uint64_t shard_bytes, exl2__shards *s)
{
    exl2__import_config *f = p->config;
    EXL2__TRY(exl2__shards_begin(p->g->ctx, s, p->plain_count + p->matrix_count * 6, shard_bytes));
    for (uint32_t i = 0; i < p->plain_count; i++) {
        char name[EXL2__SHARDS_NAME_MAX];
        exl2__import_plain *plain = &p->plains[i];
        plain->entry = s->count;
        if (i < 2) { /* embedding, final norm */
            exl2__shards_add(s, i == 0 ? "model.embed_tokens" : "model.norm", ".weight", EXL2__SHARDS_F16,
                             i == 0 ? 2 : 1, i == 0 ? f->vocab : f->hidden, f->hidden);
            continue;
        }
        exl2__format(name, sizeof name, "model.layers.%u.%s", (i - 2) / 2,
                     i % 2 == 0 ? "input_layernorm" : "post_attention_layernorm");
        exl2__shards_add(s, name, ".weight", EXL2__SHARDS_F16, 1, f->hidden, 0);
    }
    for (uint32_t i = 0; i < p->matrix_count; i++) {
        exl2__import_matrix *x = &p->matrices[i];
        x->entry = s->count;
        exl2__shards_add(s, x->name, ".q_weight", EXL2__SHARDS_I32, 2, x->words, x->stored);
        exl2__shards_add(s, x->name, ".q_scale", EXL2__SHARDS_I32, 2, x->group_count, x->stored / 8);
        exl2__shards_add(s, x->name, ".q_scale_max", EXL2__SHARDS_F16, 1, x->group_count, 0);
        exl2__shards_add(s, x->name, ".q_groups", EXL2__SHARDS_I16, 1, x->group_count * 2, 0);
        exl2__shards_add(s, x->name, ".q_invperm", EXL2__SHARDS_I32, 1, x->in, 0);
        if (x->has_bias) {
            exl2__shards_add(s, x->name, ".bias", EXL2__SHARDS_F16, 1, x->stored, 0);
        }
    }
    return EXL2_OK;
}

static void exl2__import_plan_close(exl2__import_plan *p)
{
    if (p->g) {
        exl2__arena_close(p->g->ctx, &p->list);
    }
    *p = (exl2__import_plan){ 0 };
}

#endif

/* weights.h: the tensors of a model as a list of units, and the matrices of each unit as the files hold them.
   takes: config, the tensor table.
   gives: exl2__weights, exl2__weights_is_host, exl2__weights_role, exl2__weights_place, exl2__weights_use,
          exl2__weights_find; exl2__weights_is_streamed, exl2__weights_is_twice.
   owns:  the tensor table and the staging buffer, until exl2__weights_close.

   The model is a list of units (units.h). The norms of a layer are read before its first unit. Where the embedding is
   the head, too, and the two are in different spans, the last unit is the embedding's table once more. */
#ifndef EXL2__WEIGHTS_H
#define EXL2__WEIGHTS_H

#include "../1_load/content_id.h"
#include "../1_load/matrix_tables.h"
#include "span.h"
#include "units.h"
#include "weights_rows.h"

#define EXL2__SLICE_BYTES (256u << 10) /* maximum size of a slice, unless one row is larger: about 0.7 ms on a CPU.
                                         Backends with memory of their own get twice as much. */

/* Bytes of the matrices and norms that a layer's MLP has: in its span's memory, or in that of the host. */
typedef struct exl2__weights_mlp {
    uint64_t span_bytes, host_bytes;
    uint64_t up_bytes, down_bytes; /* part of span_bytes that exl2__streamed may have: gate and up, and experts; down */
} exl2__weights_mlp;

typedef struct exl2__weights {
    exl2__config config;
    exl2__tensors tensors;
    bool tied;                        /* there is no head: the embedding is used as the head */
    bool headless;                    /* tied, too, but only because it costs nothing: the model was saved without its
                                         head */
    bool one_kind;                    /* as the backend says */
    bool decodes_exl3;                /* the backend gets matrices and embeddings of EXL3 as dense ones of F32 */
    bool has_affine;                  /* the backend gets matrices of GPTQ or AWQ */
    uint32_t span_count, span_end[EXL2__SPANS_MAX]; /* of exl2__spans; 0: one span */
    uint32_t host_mlps[EXL2__SPANS_MAX]; /* number of a span's last layers whose MLPs go to exl2__spans.host */
    uint32_t embed_rows, position_rows;
    /* Set by exl2__weights_read_slice: */
    uint64_t weight_bytes;            /* packed, in the backend's memory */
    uint64_t span_bytes[EXL2__SPANS_MAX]; /* the same of each span, or of each device if several share the only one */
    uint64_t *layer_bytes;            /* NULL, or [layers + 1]: the same of each layer, and of what follows them */
    exl2__weights_mlp *mlp_bytes;     /* NULL, or [layers], where MLPs may go to the host */
    uint64_t host_bytes;              /* packed, in the memory of the host; not part of weight_bytes */
    exl2__streamed streamed[EXL2__SPANS_MAX]; /* of spans */
    uint64_t streamed_bytes;          /* of all of these, in pinned host memory; not part of either */
    uint64_t moved[EXL2__SPANS_MAX];  /* bytes that a span has less by this */
    bool host_affine;                 /* the host would get matrices of GPTQ or AWQ */
    exl2__span *host;                 /* while loading: exl2__spans.host, or NULL */
    uint64_t disk_bytes;              /* all matrices as stored, for bits per weight */
    uint64_t pass_bytes;              /* part of disk_bytes that a pass of one row reads: without tables that are read
                                         by row, and with the experts that a row uses */
    uint64_t expert_bytes;            /* part of disk_bytes that experts are */
    uint64_t weight_count;
    uint64_t row_weights, expert_weights; /* elements of matrices of layers that a row is multiplied with; of experts */
    bool has_exl2, has_dense;         /* matrices of attention and MLPs, in the files */
    bool has_gptq;                    /* matrices of GPTQ or AWQ, in the files */
    uint32_t has_exl3;                /* codebooks of EXL3 in the files, as exl2__shape.exl3 */
    bool mixes_exl3;                  /* matrices of EXL3 are multiplied together with others */
    uint32_t columns_unit;            /* as exl2__shape.columns_unit */
    bool plain_experts;               /* some experts are of other kinds than EXL3, as the backend gets them */
    uint32_t dequantized;             /* matrices of codes that the backend gets as F16, as it needs one kind */
    uint32_t affine_experts[EXL2__CONFIG_LAYERS_MAX / 32], exl3_experts[EXL2__CONFIG_LAYERS_MAX / 32],
             other_experts[EXL2__CONFIG_LAYERS_MAX / 32]; /* one_kind: a bit per layer that has such experts */
    uint64_t code_bytes;              /* part of disk_bytes that is read in slices */
    uint64_t slice_bytes, tables_bytes; /* size of the largest slice, size of the largest unit's tables */
    uint64_t content_head[2];         /* of content_id.h */
    uint64_t staging_bytes;           /* for slices and norms; for norms only, if the backend has staging buffers */
    /* Set while loading: */
    uint32_t unit, part, row;         /* begin of the next slice */
    bool found, opened;               /* w->now is the unit; the unit's matrix is in the backend */
    bool part_begun;                  /* the tables of part `part_opened` are being read */
    uint32_t part_opened;             /* parts of the unit whose tables have been read */
    bool part_read;                   /* these tables are read, and are being added to the sum */
    uint32_t part_group;              /* groups of them that are added */
    uint32_t part_row;                /* rows of its codes that are added, if the backend gets it dequantized */
    exl2__matrix_tables part_tables;
    exl2__rows_slice slice;           /* rows that are read, and not yet given to the backend; data NULL: none */
    bool second;                      /* the span has the unit, and the host gets it, too */
    bool keeping;                     /* a part of exl2__streamed is complete, and is being copied to host memory */
    uint64_t touched;                 /* position in the span's arena for weights */
    uint64_t read_bytes;              /* part of code_bytes that has been read */
    exl2__hash_sums content;          /* of content_id.h: of the tables or codes that are being read */
    uint64_t content_sum[2];          /* of all parts before it: whole once the last unit is read */
    void *staging;                    /* [staging_bytes] */
    exl2__arena tables;               /* tables of the unit that is being read */
    exl2__unit now;                   /* the unit that is being read */
    exl2__matrix_desc parts[3];       /* its matrices */
    exl2__matrix *matrix;             /* the same, in the backend */
} exl2__weights;

/* Bytes in host memory of a model whose spans have memory of their own. */
static inline uint64_t exl2__weights_away(const exl2__weights *w)
{
    return w->host_bytes + w->streamed_bytes;
}

/* Whether the head of a tied model is a copy of the embedding in another span, which is the last unit. */
static inline bool exl2__weights_has_copy(const exl2__weights *w)
{
    return w->tied && w->span_count > 1;
}

static inline uint32_t exl2__weights_units(const exl2__weights *w)
{
    return exl2__unit_count(&w->config, w->tied && !exl2__weights_has_copy(w));
}

static inline bool exl2__weights_is_copy(const exl2__weights *w, uint32_t index)
{
    return exl2__weights_has_copy(w) && index + 1 == exl2__weights_units(w);
}

/* The span of a layer; of EXL2__UNIT_NO_LAYER, what comes after the layers, it is the last one. */
static inline uint32_t exl2__weights_span_of(const exl2__weights *w, uint32_t layer)
{
    uint32_t span = 0;
    while (span + 1 < w->span_count && layer >= w->span_end[span]) {
        span++;
    }
    return span;
}

/* Whether the host has the layer's MLP. */
static inline bool exl2__weights_is_host(const exl2__weights *w, uint32_t layer)
{
    uint32_t span = exl2__weights_span_of(w, layer);
    return w->host_mlps[span] && layer < w->config.layers && layer + w->host_mlps[span] >= w->span_end[span];
}

/* Whether the unit belongs to the MLP of its layer, or to the experts in its place. */
static inline bool exl2__weights_is_mlp(exl2__unit_kind kind)
{
    return kind == EXL2__UNIT_DOWN || kind == EXL2__UNIT_GATE_UP || kind == EXL2__UNIT_ROUTER
        || kind == EXL2__UNIT_EXPERT_DOWN || kind == EXL2__UNIT_EXPERT_UP;
}

/* The same of a vector. Parallel blocks share a norm, of which the host gets a copy: exl2__weights_is_shared. */
static inline bool exl2__weights_is_mlp_vector(const exl2__unit_vector *v)
{
    return v->name == EXL2__NAME_MLP_NORM || v->name == EXL2__NAME_MLP_POST_NORM || v->name == EXL2__NAME_CHOICE_BIAS;
}

static inline bool exl2__weights_is_shared(const exl2__weights *w, const exl2__unit_vector *v)
{
    return w->config.parallel && v->name == EXL2__NAME_ATTN_NORM;
}

/* Adds the bytes of what belongs to a layer, or follows the layers (EXL2__UNIT_NO_LAYER). */
static inline void exl2__weights_add_bytes(exl2__weights *w, uint32_t layer, uint64_t bytes)
{
    w->weight_bytes += bytes;
    w->span_bytes[exl2__weights_span_of(w, layer)] += bytes;
    if (w->layer_bytes) {
        w->layer_bytes[exl2__min32(layer, w->config.layers)] += bytes;
    }
}

/* What the matrix of a unit of a layer is for. */
static inline exl2__role exl2__weights_role(exl2__unit_kind kind)
{
    static const exl2__role roles[] = {
        [EXL2__UNIT_QKV] = EXL2__ROLE_QKV, [EXL2__UNIT_OUT] = EXL2__ROLE_OUT,
        [EXL2__UNIT_GATE_UP] = EXL2__ROLE_GATE_UP, [EXL2__UNIT_DOWN] = EXL2__ROLE_DOWN,
        [EXL2__UNIT_ROUTER] = EXL2__ROLE_ROUTER, [EXL2__UNIT_EXPERT_UP] = EXL2__ROLE_EXPERT_UP,
        [EXL2__UNIT_EXPERT_DOWN] = EXL2__ROLE_EXPERT_DOWN
    };
    return roles[kind];
}

static inline void exl2__weights_close(exl2__ctx *c, exl2__weights *w)
{
    exl2__free(c, w->staging, w->staging_bytes, EXL2_MEM_STAGING);
    w->staging = NULL;
    exl2__arena_close(c, &w->tables);
    exl2__tensors_close(c, &w->tensors);
}

/* ---- headers only: no tensor data is read ---- */

/* What a backend must know of a unit's role in a layer: EXL2__USE_*. */
static inline uint32_t exl2__weights_use(exl2__unit_kind kind)
{
    static const uint8_t uses[] = { [EXL2__UNIT_GATE_UP] = EXL2__USE_UP, [EXL2__UNIT_DOWN] = EXL2__USE_DOWN,
                                    [EXL2__UNIT_ROUTER] = EXL2__USE_ROUTER,
                                    [EXL2__UNIT_EXPERT_UP] = EXL2__USE_EXPERT_UP,
                                    [EXL2__UNIT_EXPERT_DOWN] = EXL2__USE_EXPERT_DOWN, [EXL2__UNIT_HEAD] = 0 };
    return uses[kind];
}

static inline bool exl2__weights_is_expert(const exl2__unit *u)
{
    return u->kind == EXL2__UNIT_EXPERT_UP || u->kind == EXL2__UNIT_EXPERT_DOWN;
}

/* Describes the matrices of a unit as the files hold them. *kinds: a bit 1 << exl2__matrix_kind for each kind. */
EXL2__PRIVATE exl2_result exl2__weights_find_stored(exl2__ctx *c, const exl2__weights *w, uint32_t index, exl2__unit *u,
                                                    exl2__matrix_desc *parts, uint32_t *kinds)
{
    *kinds = 0;
    bool copy = exl2__weights_is_copy(w, index);
    exl2__unit_make(&w->config, copy ? 0 : index, u);
    u->kind = copy ? EXL2__UNIT_HEAD : u->kind;
    for (uint32_t part = 0; part < u->count; part++) {
        const char *key = u->keys[part];
        EXL2__TRY(u->table ? exl2__matrix_find_table(c, &w->tensors, key, u->in, u->out[part], &parts[part])
                           : exl2__matrix_find_source(c, &w->tensors, &u->source[part], u->in, u->out[part],
                                                      &parts[part]));
        *kinds |= 1u << parts[part].kind;
    }
    return EXL2_OK;
}

/* Whether matrices of these kinds, which are multiplied together, stay of several kinds for a backend that needs one:
   beside EXL3 each matrix is multiplied by itself. */
static inline bool exl2__weights_apart(const exl2__weights *w, uint32_t kinds)
{
    return EXL2__EXL3 && !w->decodes_exl3 && (kinds >> EXL2__MATRIX_EXL3 & 1) != 0;
}

/* For a backend that needs one kind: whether the codes of this unit must be dequantized. *natural: it is a `down` that
   reads what matrices of EXL3 give. */
EXL2__PRIVATE exl2_result exl2__weights_must_dequantize(exl2__ctx *c, const exl2__weights *w, uint32_t index,
                                                        const exl2__unit *u, uint32_t kinds, bool *must, bool *natural)
{
    *must = (kinds & (kinds - 1)) != 0 && !exl2__weights_apart(w, kinds);
    if (exl2__weights_is_expert(u)) {
        *must = *must || (exl2__config_layer(w->affine_experts, u->layer)
                          && exl2__config_layer(w->other_experts, u->layer));
    }
    if (u->kind == EXL2__UNIT_DOWN || u->kind == EXL2__UNIT_EXPERT_DOWN) { /* gate and up are the next unit */
        exl2__unit up;
        exl2__matrix_desc parts[3];
        EXL2__TRY(exl2__weights_find_stored(c, w, index + 1, &up, parts, &kinds));
        *natural = exl2__weights_apart(w, kinds);
        *must = *must || (!*natural && ((kinds & (kinds - 1)) != 0 || kinds == 1u << EXL2__MATRIX_DENSE));
    }
    return EXL2_OK;
}

/* Describes the matrices of a unit as a backend gets them, which may need one kind. */
EXL2__PRIVATE exl2_result exl2__weights_find_for(exl2__ctx *c, const exl2__weights *w, uint32_t index, bool one_kind,
                                                 exl2__unit *u, exl2__matrix_desc *parts)
{
    uint32_t kinds;
    bool must = false, natural = false;
    EXL2__TRY(exl2__weights_find_stored(c, w, index, u, parts, &kinds));
    if (one_kind && kinds != 1u << EXL2__MATRIX_DENSE && u->kind != EXL2__UNIT_ROUTER) {
        EXL2__TRY(exl2__weights_must_dequantize(c, w, index, u, kinds, &must, &natural));
    }
    for (uint32_t part = 0; part < u->count; part++) {
        bool decoded = w->decodes_exl3 && exl2__matrix_is_exl3(parts[part].kind);
        bool codes = parts[part].kind == EXL2__MATRIX_EXL2 || parts[part].kind == EXL2__MATRIX_AFFINE;
        if (decoded || (must && codes)) {
            exl2__matrix_dequantize(&parts[part]);
        }
        bool by_row = u->kind == EXL2__UNIT_EMBED || u->kind == EXL2__UNIT_POSITIONS;
        bool is_head = u->kind == EXL2__UNIT_EMBED && w->tied && !exl2__weights_has_copy(w);
        parts[part].uses = by_row ? EXL2__USE_ROWS | (is_head ? EXL2__USE_PRODUCT : 0)
                                  : EXL2__USE_PRODUCT | exl2__weights_use(u->kind);
        parts[part].uses |= natural && codes ? EXL2__USE_NATURAL : 0u;
        uint32_t dim = w->config.head_dim, group = part == 0 ? w->config.heads / w->config.kv_heads : 1;
        uint32_t heads = exl2__columns_heads(dim, w->columns_unit);
        parts[part].unit = u->kind == EXL2__UNIT_QKV ? heads * dim * group : w->columns_unit;
        parts[part].expert = u->expert;
        parts[part].experts = w->config.experts.count;
    }
    bool shared = u->kind == EXL2__UNIT_DOWN && exl2__unit_sparse(&w->config, u->layer);
    if (shared && w->config.experts.shared_switch && parts[0].has_bias) { /* the weight is applied before the product */
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s has a bias, which is not supported for a shared expert with a "
                          "weight per row", u->keys[0]);
    }
    return EXL2_OK;
}

/* Whether the span and the host get the MLP of a layer. */
static inline bool exl2__weights_is_streamed(const exl2__weights *w, uint32_t layer)
{
    return exl2__weights_is_host(w, layer) && w->streamed[exl2__weights_span_of(w, layer)].parts > 0;
}

/* Whether the span gets the unit, and then the host. */
static inline bool exl2__weights_is_twice(const exl2__weights *w, const exl2__unit *u)
{
    return exl2__weights_is_mlp(u->kind) && exl2__weights_is_streamed(w, u->layer);
}

/* Whether the host gets the unit now. */
static inline bool exl2__weights_to_host(const exl2__weights *w, const exl2__unit *u)
{
    bool host = exl2__weights_is_mlp(u->kind) && exl2__weights_is_host(w, u->layer);
    return host && (w->second || !exl2__weights_is_twice(w, u));
}

/* The layer of a unit, as its span or the host has it. */
static inline exl2__layer *exl2__weights_layer(const exl2__weights *w, const exl2__unit *u, exl2__plan *plan)
{
    bool host = exl2__weights_to_host(w, u), streamed = !host && exl2__weights_is_twice(w, u);
    return &(streamed ? plan->prompt_layers : host ? plan->host_layers : plan->layers)[u->layer];
}

/* The member of the plan that the unit belongs to. */
static inline exl2__matrix **exl2__weights_place(const exl2__weights *w, const exl2__unit *u,
                                                 exl2__plan *plan)
{
    switch (u->kind) {
    case EXL2__UNIT_EMBED:
        return &plan->embed;
    case EXL2__UNIT_POSITIONS:
        return &plan->positions;
    case EXL2__UNIT_HEAD:
        return &plan->head;
    default:
        return exl2__layer_matrix(exl2__weights_layer(w, u, plan), exl2__weights_role(u->kind), u->expert);
    }
}

/* exl2__matrix_desc.streamed of the unit's matrices. */
static inline uint32_t exl2__weights_streamed(const exl2__weights *w, const exl2__unit *u)
{
    const exl2__streamed *s = &w->streamed[exl2__weights_span_of(w, u->layer)];
    if (!exl2__weights_is_twice(w, u) || u->kind == EXL2__UNIT_ROUTER || w->second) {
        return 0;
    }
    uint32_t layer = u->layer - s->first;
    return 1 + (s->by_layer ? layer : 2 * layer + (u->kind == EXL2__UNIT_DOWN));
}

/* The same as the backend that computes with the unit gets them. The host computes with all kinds. */
EXL2__PRIVATE exl2_result exl2__weights_find(exl2__ctx *c, const exl2__weights *w, uint32_t index, exl2__unit *u,
                                             exl2__matrix_desc *parts)
{
    exl2__unit_make(&w->config, index, u);
    EXL2__TRY(exl2__weights_find_for(c, w, index, w->one_kind && !exl2__weights_to_host(w, u), u, parts));
    for (uint32_t part = 0; part < u->count; part++) {
        parts[part].streamed = exl2__weights_streamed(w, u);
    }
    return EXL2_OK;
}

#endif

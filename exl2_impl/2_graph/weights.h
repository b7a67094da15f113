/* weights.h: reads every tensor of the model in slices, and gives them to the backend, which packs them.
   takes: config, model folder, a backend's device.
   gives: exl2__weights; exl2__weights_reader and exl2__weights_read_begin, _slice and _end (headers only);
          exl2__weights_begin, exl2__weights_slice, exl2__weights_until; exl2__weights_cut, exl2__weights_spans.
   owns:  the tensor table and the staging buffer, until exl2__weights_close.

   The model is a list of units (units.h). The norms of a layer are read before its first unit. Where the embedding is
   the head, too, and the two are in different spans, the last unit is the embedding's table once more. */
#ifndef EXL2__WEIGHTS_H
#define EXL2__WEIGHTS_H

#include "../1_load/content_id.h"
#include "span.h"
#include "units.h"
#include "weights_rows.h"

#define EXL2__SLICE_BYTES (256u << 10) /* maximum size of a slice, unless one row is larger: about 0.7 ms on a CPU.
                                         Backends with memory of their own get twice as much. */

typedef struct exl2__weights {
    exl2__config config;
    exl2__tensors tensors;
    bool tied;                        /* there is no head: the embedding is used as the head */
    bool one_kind;                    /* as the backend says */
    bool has_affine;                  /* the backend gets matrices of GPTQ or AWQ */
    uint32_t span_count, span_end[EXL2__SPANS_MAX]; /* of exl2__spans; 0: one span */
    uint32_t embed_rows, position_rows;
    /* Set by exl2__weights_read_slice: */
    uint64_t weight_bytes;            /* packed, in the backend's memory */
    uint64_t span_bytes[EXL2__SPANS_MAX]; /* the same of each span */
    uint64_t disk_bytes;              /* all matrices as stored, for bits per weight */
    uint64_t pass_bytes;              /* part of disk_bytes that a pass of one row reads: without tables that are read
                                         by row, and with the experts that a row uses */
    uint64_t expert_bytes;            /* part of disk_bytes that experts are */
    uint64_t weight_count;
    bool has_exl2, has_dense;         /* matrices of attention and MLPs, in the files */
    bool has_gptq;                    /* matrices of GPTQ or AWQ, in the files */
    uint32_t dequantized;             /* matrices of codes that the backend gets as F16, as it needs one kind */
    uint32_t affine_experts[EXL2__CONFIG_LAYERS_MAX / 32], other_experts[EXL2__CONFIG_LAYERS_MAX / 32]; /* one_kind: a
                                         bit per layer that has such experts */
    uint64_t code_bytes;              /* part of disk_bytes that is read in slices */
    uint64_t slice_bytes, tables_bytes; /* size of the largest slice, size of the largest unit's tables */
    uint64_t content_head[2];         /* of content_id.h */
    uint64_t staging_bytes;           /* for slices and norms; for norms only, if the backend has staging buffers */
    /* Set while loading: */
    uint32_t unit, part, row;         /* begin of the next slice */
    bool found, opened;               /* w->now is the unit; the unit's matrix is in the backend */
    bool part_begun;                  /* the tables of part `part_opened` are being read */
    uint32_t part_opened;             /* parts of the unit whose tables have been read */
    bool part_read;                   /* the tables of part `part_opened` are read, and are being added to the sum, */
    uint32_t part_group;              /* up to this group */
    uint32_t part_row;                /* and of its codes up to this row, if the backend gets it dequantized */
    exl2__matrix_tables part_tables;
    exl2__rows_slice slice;           /* rows that are read, and not yet given to the backend; data NULL: none */
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

/* Adds the bytes of what belongs to a layer, or follows the layers (EXL2__UNIT_NO_LAYER). */
static inline void exl2__weights_add_bytes(exl2__weights *w, uint32_t layer, uint64_t bytes)
{
    w->weight_bytes += bytes;
    w->span_bytes[exl2__weights_span_of(w, layer)] += bytes;
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

/* The member of the plan that the unit belongs to. */
static inline exl2__matrix **exl2__weights_place(const exl2__unit *u, exl2__plan *plan)
{
    switch (u->kind) {
    case EXL2__UNIT_EMBED:
        return &plan->embed;
    case EXL2__UNIT_POSITIONS:
        return &plan->positions;
    case EXL2__UNIT_HEAD:
        return &plan->head;
    default:
        return exl2__layer_matrix(&plan->layers[u->layer], exl2__weights_role(u->kind), u->expert);
    }
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

/* For a backend that needs one kind: whether the codes of this unit must be dequantized. */
EXL2__PRIVATE exl2_result exl2__weights_must_dequantize(exl2__ctx *c, const exl2__weights *w, uint32_t index,
                                                        const exl2__unit *u, uint32_t kinds, bool *must)
{
    *must = (kinds & (kinds - 1)) != 0;
    if (exl2__weights_is_expert(u)) {
        *must = *must || (exl2__config_layer(w->affine_experts, u->layer)
                          && exl2__config_layer(w->other_experts, u->layer));
    }
    if (u->kind == EXL2__UNIT_DOWN || u->kind == EXL2__UNIT_EXPERT_DOWN) { /* gate and up are the next unit */
        exl2__unit up;
        exl2__matrix_desc parts[3];
        EXL2__TRY(exl2__weights_find_stored(c, w, index + 1, &up, parts, &kinds));
        *must = *must || (kinds & (kinds - 1)) != 0 || kinds == 1u << EXL2__MATRIX_DENSE;
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__weights_find(exl2__ctx *c, const exl2__weights *w, uint32_t index, exl2__unit *u,
                                             exl2__matrix_desc *parts)
{
    uint32_t kinds;
    bool must = false;
    EXL2__TRY(exl2__weights_find_stored(c, w, index, u, parts, &kinds));
    if (w->one_kind && kinds != 1u << EXL2__MATRIX_DENSE && u->kind != EXL2__UNIT_ROUTER) {
        EXL2__TRY(exl2__weights_must_dequantize(c, w, index, u, kinds, &must));
    }
    for (uint32_t part = 0; part < u->count; part++) {
        if (must && parts[part].kind != EXL2__MATRIX_DENSE) {
            exl2__matrix_dequantize(&parts[part]);
        }
        bool by_row = u->kind == EXL2__UNIT_EMBED || u->kind == EXL2__UNIT_POSITIONS;
        bool is_head = u->kind == EXL2__UNIT_EMBED && w->tied && !exl2__weights_has_copy(w);
        parts[part].uses = by_row ? EXL2__USE_ROWS | (is_head ? EXL2__USE_PRODUCT : 0)
                                  : EXL2__USE_PRODUCT | exl2__weights_use(u->kind);
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

/* The state of reading headers. It works in stages, each of them in slices. */
typedef struct exl2__weights_reader {
    exl2__ctx *c;
    exl2__weights *w;
    const char *dir;
    const exl2__backend *backend;
    const exl2__device *device;
    exl2__tensors_reader tensors;
    exl2__arena groups; /* of the matrices of a unit; as large as any unit so far needed */
    uint32_t stage, at; /* at: position in the stage, 0 at its begin: a unit, a layer, a tensor */
} exl2__weights_reader;

/* Bytes of a unit in the backend's memory. */
EXL2__PRIVATE exl2_result exl2__weights_unit_bytes(exl2__weights_reader *r, exl2__matrix_desc *parts, uint32_t count,
                                                   uint64_t *bytes)
{
    uint64_t needed = 0;
    for (uint32_t part = 0; r->backend->needs_groups && part < count; part++) {
        needed += exl2__matrix_groups_bytes(&parts[part]);
    }
    if (needed > r->groups.size) {
        exl2__arena_close(r->c, &r->groups);
        EXL2__TRY(exl2__arena_open(r->c, &r->groups, needed, EXL2_MEM_GENERAL));
    }
    r->groups.used = 0;
    for (uint32_t part = 0; r->backend->needs_groups && part < count; part++) {
        EXL2__TRY(exl2__matrix_groups_read(r->c, &r->w->tensors, &parts[part], &r->groups));
    }
    *bytes = r->backend->matrix_bytes(r->device, parts, count);
    return EXL2_OK;
}

/* Opens the tensor files, and finds out which of the optional tensors there are. */
EXL2__PRIVATE exl2_result exl2__weights_read_tensors(exl2__weights_reader *r, exl2__work *work)
{
    exl2__ctx *c = r->c;
    exl2__weights *w = r->w;
    exl2__matrix_desc table;
    const exl2__arch *arch = &w->config.arch;
    const char *embed = arch->names[EXL2__NAME_EMBED], *positions = arch->names[EXL2__NAME_POSITIONS];
    EXL2__TRY_DONE(exl2__tensors_read_slice(&r->tensors, work));
    exl2__tensors_read_end(&r->tensors);
    EXL2__TRY(exl2__matrix_find_table(c, &w->tensors, embed, w->config.hidden, w->config.vocab, &table));
    if (table.out < w->config.vocab) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s.weight has %u rows, fewer than the vocabulary of %u", r->dir,
                          embed, table.out, w->config.vocab);
    }
    w->embed_rows = table.out;
    if (positions[0]) {
        EXL2__TRY(exl2__matrix_find_table(c, &w->tensors, positions, w->config.hidden, w->config.context_max, &table));
        w->position_rows = table.out;
        w->config.context_max = exl2__min32(w->config.context_max, table.out);
    }
    w->tied = w->config.tie_embeddings && !exl2__matrix_exists(&w->tensors, arch->names[EXL2__NAME_HEAD]);
    w->slice_bytes = exl2__backend_has_memory(r->backend) ? EXL2__SLICE_BYTES * 2 : EXL2__SLICE_BYTES;
    return EXL2_OK;
}

/* Adds the sizes of a unit. */
EXL2__PRIVATE exl2_result exl2__weights_measure_unit(exl2__weights_reader *r, uint32_t index)
{
    exl2__ctx *c = r->c;
    exl2__weights *w = r->w;
    exl2__unit u;
    exl2__matrix_desc parts[3];
    uint64_t tables = 0, bytes;
    bool copy = exl2__weights_is_copy(w, index);
    EXL2__TRY(exl2__weights_find(c, w, index, &u, parts));
    for (uint32_t part = 0; part < u.count; part++) {
        uint64_t codes = exl2__weights_rows(&parts[part]) * exl2__weights_row_bytes(&parts[part]);
        bool read = (parts[part].uses & EXL2__USE_PRODUCT) != 0;
        w->code_bytes += codes;
        exl2__matrix_kind stored = exl2__matrix_stored(&parts[part]);
        w->disk_bytes += copy ? 0 : exl2__weights_file_bytes(&parts[part]);
        uint64_t *sum = exl2__weights_is_expert(&u) ? &w->expert_bytes : &w->pass_bytes;
        *sum += read ? exl2__weights_file_bytes(&parts[part]) : 0;
        w->weight_count += copy ? 0 : (uint64_t)u.in * parts[part].out;
        bool block = !u.table && u.kind != EXL2__UNIT_HEAD && u.kind != EXL2__UNIT_ROUTER;
        w->has_exl2 = w->has_exl2 || (block && stored == EXL2__MATRIX_EXL2);
        w->has_dense = w->has_dense || (block && stored == EXL2__MATRIX_DENSE);
        w->has_gptq = w->has_gptq || stored == EXL2__MATRIX_AFFINE;
        w->dequantized += parts[part].dequantized;
        tables += exl2__matrix_tables_bytes(&parts[part]);
        w->slice_bytes = exl2__max64(w->slice_bytes, exl2__weights_unit_rows(&parts[part])
                                                         * exl2__weights_row_bytes(&parts[part]));
        w->has_affine = w->has_affine || parts[part].kind == EXL2__MATRIX_AFFINE;
    }
    w->tables_bytes = exl2__max64(w->tables_bytes, tables);
    EXL2__TRY(exl2__weights_unit_bytes(r, parts, u.count, &bytes));
    exl2__weights_add_bytes(w, u.kind == EXL2__UNIT_HEAD ? EXL2__UNIT_NO_LAYER : u.layer, bytes);
    return EXL2_OK;
}

/* For a backend that needs one kind: finds out which layers have experts in GPTQ or AWQ, and which have others. */
EXL2__PRIVATE exl2_result exl2__weights_sort_experts(exl2__weights_reader *r, exl2__work *work)
{
    exl2__weights *w = r->w;
    uint32_t units = w->one_kind && exl2__experts_any(&w->config.experts) ? exl2__weights_units(w) : 0;
    for (; r->at < units; r->at++) {
        exl2__unit u;
        if (!exl2__work_spend(work, 6000)) {
            return EXL2_PENDING;
        }
        exl2__unit_make(&w->config, r->at, &u);
        for (uint32_t part = 0; exl2__weights_is_expert(&u) && part < u.count; part++) {
            bool affine = exl2__tensors_find_part(&w->tensors, u.keys[part], "qweight") != NULL;
            (affine ? w->affine_experts : w->other_experts)[u.layer / 32] |= 1u << u.layer % 32;
        }
    }
    return EXL2_OK;
}

/* Symmetric GPTQ whose stored zeros are all 2^(bits-1) is of version 2, whatever the files say: as version 1 all zeros
   would be one too high. */
EXL2__PRIVATE exl2_result exl2__weights_find_version(exl2__weights_reader *r, exl2__work *work)
{
#if EXL2__GPTQ
    exl2__weights *w = r->w;
    exl2__quant *quant = &w->config.quant;
    bool may = quant->symmetric && !quant->v2 && quant->method == EXL2__QUANT_GPTQ, zeros = w->has_gptq;
    for (; may && zeros && r->at < exl2__weights_units(w); r->at++) {
        exl2__unit u;
        exl2__matrix_desc parts[3];
        const exl2__tensor *last = NULL;
        if (!exl2__work_spend(work, 20000)) {
            return EXL2_PENDING;
        }
        EXL2__TRY(exl2__weights_find(r->c, w, r->at, &u, parts));
        for (uint32_t part = 0; zeros && part < u.count; part++) {
            bool affine = exl2__matrix_stored(&parts[part]) == EXL2__MATRIX_AFFINE;
            if (affine && parts[part].affine.zeros != last) { /* parts may be in one tensor */
                last = parts[part].affine.zeros;
                exl2__work_spend(work, last->bytes / 2);
                EXL2__TRY(exl2__affine_zeros_are_v2(r->c, &w->tensors, &parts[part], &zeros));
            }
        }
    }
    if (may && zeros) {
        quant->v2 = true;
        exl2__log(r->c, EXL2_LOG_WARN, EXL2_LOG_ID_GPTQ_VERSION, "%s: the matrices are read as checkpoint_format "
                  "gptq_v2, though the files do not say so: all their zeros are those of symmetric ones", r->dir);
    }
#else
    (void)r;
    (void)work;
#endif
    return EXL2_OK;
}

/* Checks the norms of a layer (the final norm: layer UINT32_MAX), and adds their sizes. */
EXL2__PRIVATE exl2_result exl2__weights_measure_norms(exl2__ctx *c, exl2__weights *w, uint32_t layer,
                                                      const exl2__backend *backend, const exl2__device *device)
{
    exl2__unit_vector vectors[EXL2__UNIT_VECTORS_MAX];
    uint32_t count = exl2__unit_vectors(&w->config, layer, vectors);
    for (uint32_t i = 0; i < count; i++) {
        exl2__unit_vector *v = &vectors[i];
        bool present;
        EXL2__TRY(exl2__unit_vector_check(c, &w->tensors, v, &present));
        exl2__weights_add_bytes(w, layer, present ? backend->vector_bytes(device, v->count) : 0);
        w->staging_bytes = exl2__max64(w->staging_bytes, v->count * sizeof(float));
    }
    return EXL2_OK;
}

/* Is it a tensor of a layer after the last one, which predicts further tokens? */
EXL2__PRIVATE bool exl2__weights_is_draft(const exl2__config *config, const char *name)
{
    bool draft = false;
    for (uint32_t i = 0; i < config->draft_layers && !draft; i++) {
        char key[EXL2__KEY_BYTES];
        exl2__arch_key(key, config->layers + i, "");
        draft = strncmp(name, key, strlen(key)) == 0;
    }
    return draft;
}

/* A tensor of the language model that nothing has asked for means a computation that this engine does not do. */
EXL2__PRIVATE exl2_result exl2__weights_check_leftover(exl2__weights_reader *r, exl2__work *work)
{
    const exl2__weights *w = r->w;
    static const char *const towers[] = { "model.visual.", "model.vision_tower.", "model.multi_modal_projector.",
                                          "model.vision_model.", "model.connector.", "model.audio_tower.",
                                          "model.mtp" /* further tokens, predicted at once */ };
    static const char *const ignored[] = { "rotary_emb.inv_freq", ".attn.bias", ".self_attn.bias", ".masked_bias",
                                           ".q_perm" };
    for (; r->at < w->tensors.count; r->at++) {
        const exl2__tensor *entry = &w->tensors.entries[r->at];
        if (!exl2__work_spend(work, 1000)) {
            return EXL2_PENDING;
        }
        bool text = strncmp(entry->name, "model.", 6) == 0 || strncmp(entry->name, "lm_head.", 8) == 0;
        bool known = entry->used || !text || exl2__weights_is_draft(&w->config, entry->name);
        for (size_t k = 0; k < EXL2__COUNT(towers); k++) {
            known = known || strncmp(entry->name, towers[k], strlen(towers[k])) == 0;
        }
        for (size_t k = 0; k < EXL2__COUNT(ignored); k++) {
            size_t bytes = strlen(entry->name), end = strlen(ignored[k]);
            known = known || (bytes >= end && strcmp(entry->name + bytes - end, ignored[k]) == 0);
        }
        known = known || exl2__tensors_find_part(&w->tensors, entry->name, "q_weight") /* a dequantized copy */
                || exl2__tensors_find_part(&w->tensors, entry->name, "qweight");
        if (!known) {
            return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED,
                              "%s: the tensor '%s' has no use in %s, so the model computes something else",
                              w->tensors.files.items[entry->file].name, entry->name, w->config.arch.name);
        }
    }
    return EXL2_OK;
}

/* Checks the headers of all matrices, and adds up their sizes. */
EXL2__PRIVATE exl2_result exl2__weights_measure_units(exl2__weights_reader *r, exl2__work *work)
{
    for (; r->at < exl2__weights_units(r->w); r->at++) {
        if (!exl2__work_spend(work, 20000)) {
            return EXL2_PENDING;
        }
        EXL2__TRY(exl2__weights_measure_unit(r, r->at));
    }
    return EXL2_OK;
}

/* The same for the norms of the layers, and the final norm. */
EXL2__PRIVATE exl2_result exl2__weights_measure_vectors(exl2__weights_reader *r, exl2__work *work)
{
    exl2__weights *w = r->w;
    for (; r->at <= w->config.layers; r->at++) {
        uint32_t layer = r->at < w->config.layers ? r->at : EXL2__UNIT_NO_LAYER;
        if (!exl2__work_spend(work, 10000)) {
            return EXL2_PENDING;
        }
        EXL2__TRY(exl2__weights_measure_norms(r->c, w, layer, r->backend, r->device));
    }
    w->staging_bytes = exl2__max64(w->staging_bytes, exl2__backend_has_memory(r->backend) ? 0 : w->slice_bytes);
    if (exl2__experts_any(&w->config.experts)) {
        w->pass_bytes += w->expert_bytes / w->config.experts.count * w->config.experts.active;
    }
    return EXL2_OK;
}

/* Makes the head of the content id, tensor by tensor. */
EXL2__PRIVATE exl2_result exl2__weights_identify(exl2__weights_reader *r, exl2__work *work)
{
    exl2__weights *w = r->w;
    for (; r->at <= w->tensors.count; r->at++) {
        if (!exl2__work_spend(work, 5000)) {
            return EXL2_PENDING;
        }
        EXL2__TRY(r->at == 0 ? exl2__content_id_begin(r->c, r->dir, w->content_head)
                             : exl2__content_id_add_tensor(r->c, &w->tensors, r->at - 1, w->content_head));
    }
    return EXL2_OK;
}

typedef exl2_result (*exl2__weights_stage)(exl2__weights_reader *r, exl2__work *work);

static const exl2__weights_stage exl2__weights_stages[] = {
    exl2__weights_read_tensors, exl2__weights_sort_experts, exl2__weights_measure_units,
    exl2__weights_find_version, exl2__weights_measure_vectors, exl2__weights_check_leftover, exl2__weights_identify,
};

/* Begins to open the tensor files, to check the headers of everything that the model needs, and to add up the sizes. */
EXL2__PRIVATE void exl2__weights_read_begin(exl2__weights_reader *r, exl2__ctx *c, exl2__weights *w, const char *dir,
                                            const exl2__backend *backend, const exl2__device *device)
{
    memset(r, 0, sizeof *r);
    r->c = c;
    r->w = w;
    r->dir = dir;
    r->backend = backend;
    r->device = device;
    w->one_kind = backend->one_kind;
    exl2__tensors_read_begin(&r->tensors, c, dir, w->config.arch.renames, &w->tensors);
}

/* Right after exl2__weights_read_begin: the model is cut into these spans. */
static inline void exl2__weights_cut(exl2__weights *w, const exl2__spans *spans)
{
    w->span_count = spans->count;
    for (uint32_t i = 0; i < spans->count; i++) {
        w->span_end[i] = spans->span[i].end;
    }
}

/* Reads on, in slices. Of what it allocates, only the tensor table remains after the end. */
EXL2__PRIVATE exl2_result exl2__weights_read_slice(exl2__weights_reader *r, exl2__work *work)
{
    while (r->stage < EXL2__COUNT(exl2__weights_stages)) {
        EXL2__TRY_DONE(exl2__weights_stages[r->stage](r, work));
        r->stage++;
        r->at = 0;
    }
    return EXL2_OK;
}

/* Frees what reading needed. Accepts a zeroed reader. */
EXL2__PRIVATE void exl2__weights_read_end(exl2__weights_reader *r)
{
    exl2__tensors_read_end(&r->tensors);
    exl2__arena_close(r->c, &r->groups);
    memset(r, 0, sizeof *r);
}

/* Bytes that exl2__weights_begin allocates. */
static inline uint64_t exl2__weights_more_bytes(const exl2__weights *w)
{
    return w->staging_bytes + w->tables_bytes;
}

/* Host bytes that are used only while the weights are loaded. */
static inline uint64_t exl2__weights_loading_bytes(const exl2__weights *w)
{
    return exl2__weights_more_bytes(w) + w->tensors.memory.size + w->tensors.renamed.size
           + w->tensors.files.memory.size;
}

/* ---- loading ---- */

EXL2__PRIVATE exl2_result exl2__weights_begin(exl2__ctx *c, exl2__weights *w)
{
    EXL2__TRY(exl2__alloc(c, w->staging_bytes, EXL2__ARENA_ALIGN, EXL2_MEM_STAGING, &w->staging));
    return w->tables_bytes ? exl2__arena_open(c, &w->tables, w->tables_bytes, EXL2_MEM_STAGING) : EXL2_OK;
}

static inline bool exl2__weights_done(const exl2__weights *w)
{
    return w->unit == exl2__weights_units(w);
}

/* Reads the norms of a layer (EXL2__UNIT_NO_LAYER: the final norm) into the plan. */
EXL2__PRIVATE exl2_result exl2__weights_norms(exl2__ctx *c, exl2__weights *w, exl2__plan *plan, uint32_t layer,
                                              const exl2__backend *backend, exl2__device *device, exl2__arena *arena)
{
    exl2__unit_vector vectors[EXL2__UNIT_VECTORS_MAX];
    uint32_t count = exl2__unit_vectors(&w->config, layer, vectors);
    float *values = (float *)w->staging;
    for (uint32_t i = 0; i < count; i++) {
        exl2__unit_vector *v = &vectors[i];
        exl2__vector **place = exl2__unit_vector_place(v, plan, layer);
        bool present;
        EXL2__TRY(exl2__unit_vector_check(c, &w->tensors, v, &present));
        if (present) {
            EXL2__TRY(exl2__unit_vector_read(c, &w->tensors, v, values));
            exl2__hash_sums_begin(&w->content);
            exl2__hash_sums_add(c->cpu_path, &w->content, values, v->count * sizeof *values);
            exl2__content_id_add_part(w->content_sum, &w->content, layer, i, EXL2__CONTENT_ID_VECTOR);
            EXL2__TRY(backend->vector_make(device, arena, values, v->count, place));
        }
    }
    if (w->config.parallel && layer != EXL2__UNIT_NO_LAYER) {
        plan->layers[layer].mlp_norm = plan->layers[layer].attn_norm;
    }
    return EXL2_OK;
}

/* Adds the tables of a part, which are read, to the content id, in slices. */
EXL2__PRIVATE exl2_result exl2__weights_add_tables(const exl2__ctx *c, exl2__weights *w, const exl2__matrix_desc *d,
                                                   exl2__work *work)
{
    exl2_cpu_path path = c->cpu_path;
    exl2__matrix_kind stored = exl2__matrix_stored(d);
    if (exl2__weights_is_copy(w, w->unit)) { /* it counts once */
        return EXL2_OK;
    }
    if (w->part_group == 0) {
        exl2__hash_sums_begin(&w->content);
    }
    for (uint32_t row = d->out_stored; w->part_group < d->group_count; w->part_group++) {
        size_t at = (size_t)w->part_group * row;
        if (!exl2__work_spend(work, row / 8)) {
            return EXL2_PENDING;
        }
        if (stored == EXL2__MATRIX_EXL2) {
            exl2__hash_sums_add(path, &w->content, d->scale_codes + at / 8, row / 8 * sizeof *d->scale_codes);
        } else {
            exl2__hash_sums_add(path, &w->content, d->scales + at, row * sizeof *d->scales);
            exl2__hash_sums_add(path, &w->content, d->zeros + at, row * sizeof *d->zeros);
        }
    }
    if (stored != EXL2__MATRIX_DENSE) {
        exl2__hash_sums_add(path, &w->content, d->groups, d->group_count * sizeof *d->groups);
        exl2__hash_sums_add(path, &w->content, d->inverse_perm, d->in * sizeof *d->inverse_perm);
    }
    if (stored == EXL2__MATRIX_EXL2) {
        exl2__hash_sums_add(path, &w->content, d->scale_max, d->group_count * sizeof *d->scale_max);
    }
    if (d->has_bias) {
        exl2__hash_sums_add(path, &w->content, d->bias, d->out * sizeof *d->bias);
    }
    exl2__content_id_add_part(w->content_sum, &w->content, w->unit, w->part_opened, EXL2__CONTENT_ID_TABLES);
    return EXL2_OK;
}

/* Adds the codes of a part that the backend gets as a dense matrix, in the order of the file: so the content id is that
   of a backend that computes with the codes. They are read for this alone, since exl2__dequantize_rows reads them in
   another order. */
EXL2__PRIVATE exl2_result exl2__weights_add_codes(exl2__ctx *c, exl2__weights *w, const exl2__matrix_desc *d,
                                                  exl2__work *work)
{
    exl2__matrix_desc codes = *d;
    codes.kind = d->stored;
    codes.dequantized = false;
    bool awq = codes.kind == EXL2__MATRIX_AFFINE && codes.affine.awq;
    codes.affine.content = awq ? &w->content : NULL;
    uint64_t row_bytes = exl2__weights_row_bytes(&codes);
    uint32_t unit = exl2__weights_unit_rows(&codes), count = exl2__weights_rows(&codes);
    uint32_t fit = (uint32_t)(exl2__matrix_codes_bytes(d) / row_bytes) / unit * unit;
    if (w->part_row == 0) {
        exl2__hash_sums_begin(&w->content);
    }
    for (uint32_t rows; w->part_row < count; w->part_row += rows) {
        rows = exl2__min32(exl2__max32(fit, unit), count - w->part_row);
        if (!exl2__work_spend(work, rows * row_bytes / 2)) {
            return EXL2_PENDING;
        }
        EXL2__TRY(exl2__weights_read_rows(c, &w->tensors, &codes, w->part_row, rows, false, d->codes));
        if (!awq) {
            exl2__hash_sums_add(c->cpu_path, &w->content, d->codes, rows * row_bytes);
        }
    }
    exl2__content_id_add_part(w->content_sum, &w->content, w->unit, w->part_opened, EXL2__CONTENT_ID_CODES);
    return EXL2_OK;
}

/* Reads the tables of the unit's parts into w->parts, in slices. */
EXL2__PRIVATE exl2_result exl2__weights_open_parts(exl2__ctx *c, exl2__weights *w, exl2__work *work)
{
    for (; w->part_opened < w->now.count; w->part_opened++) {
        exl2__matrix_desc *part = &w->parts[w->part_opened];
        if (!w->part_begun) {
            uint64_t bytes = exl2__matrix_tables_bytes(part);
            if (!exl2__work_spend(work, EXL2__WORK_SLICE / 4)) {
                return EXL2_PENDING;
            }
            w->part_tables = (exl2__matrix_tables){ .memory = { .size = bytes } };
            w->part_tables.memory.base = (uint8_t *)exl2__arena_alloc(&w->tables, bytes);
            w->part_begun = true;
            EXL2__TRY(exl2__matrix_tables_begin(c, &w->tensors, 1.0f, part, &w->part_tables));
        }
        if (!w->part_read) {
            EXL2__TRY_DONE(exl2__matrix_tables_slice(c, &w->tensors, part, &w->part_tables, work));
            w->part_read = true;
            w->part_group = w->part_row = 0;
        }
        EXL2__TRY_DONE(exl2__weights_add_tables(c, w, part, work));
        if (part->dequantized) {
            EXL2__TRY_DONE(exl2__weights_add_codes(c, w, part, work));
        }
        w->part_begun = w->part_read = false;
    }
    return EXL2_OK;
}

/* Begins a unit: reads its tables, makes its matrix in the backend, reads the norms of its layer. In slices. */
EXL2__PRIVATE exl2_result exl2__weights_open_unit(exl2__ctx *c, exl2__weights *w, exl2__plan *plan,
                                                  const exl2__backend *backend, exl2__device *device,
                                                  exl2__arena *arena, exl2__work *work)
{
    if (!w->found) {
        EXL2__TRY(exl2__weights_find(c, w, w->unit, &w->now, w->parts));
        w->found = true;
        w->part_opened = 0;
        w->tables.used = 0;
    }
    EXL2__TRY_DONE(exl2__weights_open_parts(c, w, work));
    if (!exl2__backend_has_memory(backend)) { /* for each unit, as new pages are in the CPU's cache for a while */
        uint64_t bytes = backend->matrix_bytes(device, w->parts, w->now.count);
        EXL2__TRY_DONE(exl2__arena_touch(arena, bytes, &w->touched, work));
    }
    if (!exl2__work_spend_all(work)) {
        return EXL2_PENDING;
    }
    EXL2__TRY(backend->matrix_make(device, arena, w->parts, w->now.count, &w->matrix));
    *exl2__weights_place(&w->now, plan) = w->matrix;
    w->found = false;
    w->opened = true;
    return w->now.kind == EXL2__UNIT_QKV ? exl2__weights_norms(c, w, plan, w->now.layer, backend, device, arena)
                                         : EXL2_OK;
}

/* Reads the next rows into w->slice. */
EXL2__PRIVATE exl2_result exl2__weights_read(exl2__ctx *c, exl2__weights *w, const exl2__backend *backend,
                                             exl2__device *device, exl2__work *work)
{
    exl2__matrix_desc *desc = &w->parts[w->part];
    uint64_t row_bytes = exl2__weights_row_bytes(desc), fit = w->slice_bytes / row_bytes;
    bool awq = desc->kind == EXL2__MATRIX_AFFINE && desc->affine.awq;
    fit -= fit % exl2__weights_unit_rows(desc);
    uint32_t rows = (uint32_t)exl2__min64(exl2__weights_rows(desc) - w->row, fit);
    void *memory = w->staging;
    if (!exl2__work_spend(work, rows * row_bytes / 2 * (desc->dequantized ? 4 : 1))) {
        return EXL2_PENDING;
    }
    bool has_memory = exl2__backend_has_memory(backend);
    if (has_memory) {
        EXL2__TRY(backend->memory->staging(device, rows * row_bytes, &memory));
    }
    if (w->row == 0) {
        exl2__hash_sums_begin(&w->content);
    }
    desc->affine.content = awq ? &w->content : NULL;
    EXL2__TRY(exl2__weights_read_rows(c, &w->tensors, desc, w->row, rows, has_memory, memory));
    bool copy = exl2__weights_is_copy(w, w->unit);
    if (!awq && !desc->dequantized && !copy) { /* those are added by exl2__weights_add_codes */
        exl2__hash_sums_add(c->cpu_path, &w->content, memory, rows * row_bytes);
    }
    if (!desc->dequantized && !copy && w->row + rows == exl2__weights_rows(desc)) {
        exl2__content_id_add_part(w->content_sum, &w->content, w->unit, w->part, EXL2__CONTENT_ID_CODES);
    }
    if (w->now.kind == EXL2__UNIT_HEAD && !copy && w->config.norm_head && desc->kind == EXL2__MATRIX_DENSE) {
        exl2__matrix_normalize_rows(desc, rows, memory);
    }
    w->slice = (exl2__rows_slice){ w->row, rows, memory };
    return EXL2_OK;
}

/* The backend has w->slice: goes on to the next rows, part or unit. */
static inline void exl2__weights_next(exl2__weights *w)
{
    const exl2__matrix_desc *desc = &w->parts[w->part];
    w->read_bytes += w->slice.rows * exl2__weights_row_bytes(desc);
    w->row += w->slice.rows;
    w->slice = (exl2__rows_slice){ 0, 0, NULL };
    if (w->row == exl2__weights_rows(desc)) {
        w->row = 0;
        w->part++;
    }
    if (w->part == w->now.count) {
        w->part = 0;
        w->unit++;
        w->opened = false;
    }
}

/* Loads on, in slices, up to a unit. */
EXL2__PRIVATE exl2_result exl2__weights_until(exl2__ctx *c, exl2__weights *w, uint32_t end, exl2__plan *plan,
                                              const exl2__backend *backend, exl2__device *device, exl2__arena *arena,
                                              exl2__work *work)
{
    while (w->unit < end) {
        if (!w->opened) {
            EXL2__TRY_DONE(exl2__weights_open_unit(c, w, plan, backend, device, arena, work));
        }
        if (!w->slice.data) {
            EXL2__TRY_DONE(exl2__weights_read(c, w, backend, device, work));
        }
        EXL2__TRY_DONE(backend->matrix_feed(device, w->matrix, w->part, &w->slice, work));
        exl2__weights_next(w);
    }
    return EXL2_OK;
}

/* Loads on, in slices. OK: all weights are in the plan. */
EXL2__PRIVATE exl2_result exl2__weights_slice(exl2__ctx *c, exl2__weights *w, exl2__plan *plan,
                                              const exl2__backend *backend, exl2__device *device, exl2__arena *arena,
                                              exl2__work *work)
{
    EXL2__TRY_DONE(exl2__weights_until(c, w, exl2__weights_units(w), plan, backend, device, arena, work));
    plan->head = w->tied && !exl2__weights_has_copy(w) ? plan->embed : plan->head;
    return exl2__weights_norms(c, w, plan, EXL2__UNIT_NO_LAYER, backend, device, arena);
}

/* The same, into the devices and arenas of the spans. */
EXL2__PRIVATE exl2_result exl2__weights_spans(exl2__ctx *c, exl2__weights *w, exl2__plan *plan, exl2__spans *spans,
                                              exl2__work *work)
{
    exl2__span *span = spans->span;
    for (; span->end < w->config.layers; span++) {
        uint32_t end = exl2__unit_first_of(&w->config, span->end);
        if (w->unit < end) {
            EXL2__TRY_DONE(exl2__weights_until(c, w, end, plan, span->backend, span->device, &span->weights, work));
            w->touched = 0;
        }
    }
    return exl2__weights_slice(c, w, plan, span->backend, span->device, &span->weights, work);
}

#endif

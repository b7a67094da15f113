/* weights_headers.h: reads the headers of all tensors in slices, checks each one, and adds up what the model will need.
   takes: config, model folder, a backend's device.
   gives: exl2__weights_reader and exl2__weights_read_begin, _slice and _end; exl2__weights_cut,
          exl2__weights_may_move, exl2__weights_move, exl2__weights_move_back;
          exl2__weights_more_bytes, exl2__weights_loading_bytes. */
#ifndef EXL2__WEIGHTS_HEADERS_H
#define EXL2__WEIGHTS_HEADERS_H

#include "../1_load/content_id.h"
#include "weights.h"

/* The state of reading headers. It works in stages, each of them in slices. */
typedef struct exl2__weights_reader {
    exl2__ctx *c;
    exl2__weights *w;
    const char *dir;
    const exl2__backend *backend;
    const exl2__device *device;
    const exl2__backend *host; /* NULL, or the backend that may get MLPs: exl2__weights.mlp_bytes is filled */
    exl2__tensors_reader tensors;
    exl2__arena groups; /* of the matrices of a unit; as large as any unit so far needed */
    uint32_t stage, at; /* at: position in the stage, 0 at its begin: a unit, a layer, a tensor */
} exl2__weights_reader;

/* Adds the bytes of a matrix or, parts NULL, those that a vector has on all devices. Returns their sum. */
EXL2__PRIVATE uint64_t exl2__weights_add_for(exl2__weights_reader *r, uint32_t layer, const exl2__matrix_desc *parts,
                                             uint32_t count, uint64_t vector_bytes)
{
    const exl2__backend_memory *memory = r->backend->memory;
    uint32_t sharers = memory && memory->sharers ? memory->sharers(r->device) : 0;
    uint64_t sum = 0;
    if (sharers == 0) {
        sum = parts ? r->backend->matrix_bytes(r->device, parts, count) : vector_bytes;
        exl2__weights_add_bytes(r->w, layer, sum);
    }
    for (uint32_t i = 0; i < sharers; i++) {
        uint64_t own = parts ? memory->own_bytes(r->device, i, parts, count) : vector_bytes / sharers;
        r->w->span_bytes[i] += own;
        r->w->weight_bytes += own;
        sum += own;
    }
    return sum;
}

/* Adds the bytes that a unit has in the backend's memory, and gives their sum. */
EXL2__PRIVATE exl2_result exl2__weights_add_unit(exl2__weights_reader *r, uint32_t layer, exl2__matrix_desc *parts,
                                                 uint32_t count, uint64_t *bytes)
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
    *bytes = exl2__weights_add_for(r, layer, parts, count, 0);
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
    bool head = exl2__matrix_exists(&w->tensors, arch->names[EXL2__NAME_HEAD]);
    w->headless = !head && !w->config.tie_embeddings && exl2__tensors_is_renamed(&w->tensors, embed);
    w->tied = !head && (w->config.tie_embeddings || w->headless);
    if (w->tied && table.kind == EXL2__MATRIX_EXL3_TABLE) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: there is no %s, and %s, which is a trellis, is not supported "
                          "as a head", r->dir, arch->names[EXL2__NAME_HEAD], embed);
    }
    w->slice_bytes = exl2__backend_has_memory(r->backend) ? EXL2__SLICE_BYTES * 2 : EXL2__SLICE_BYTES;
    return EXL2_OK;
}

/* Adds the bytes that the host needs for a unit of an MLP, which has `span_bytes` in the memory of its span, of which
   exl2__streamed may have `streamed`. Buffers of loading are as large as either of the two needs. */
EXL2__PRIVATE exl2_result exl2__weights_measure_host(exl2__weights_reader *r, uint32_t index, uint64_t span_bytes,
                                                     uint64_t streamed)
{
    exl2__weights *w = r->w;
    exl2__unit u;
    exl2__matrix_desc parts[3];
    uint64_t tables = 0;
    EXL2__TRY(exl2__weights_find_for(r->c, w, index, false, &u, parts));
    for (uint32_t part = 0; part < u.count; part++) {
        tables += exl2__matrix_tables_bytes(&parts[part]);
        w->slice_bytes = exl2__max64(w->slice_bytes, exl2__weights_unit_rows(&parts[part])
                                                         * exl2__weights_row_bytes(&parts[part]));
        w->host_affine = w->host_affine || parts[part].kind == EXL2__MATRIX_AFFINE;
    }
    w->tables_bytes = exl2__max64(w->tables_bytes, tables);
    bool down = u.kind == EXL2__UNIT_DOWN;
    w->mlp_bytes[u.layer].span_bytes += span_bytes;
    w->mlp_bytes[u.layer].up_bytes += down ? 0 : streamed;
    w->mlp_bytes[u.layer].down_bytes += down ? streamed : 0;
    w->mlp_bytes[u.layer].host_bytes += r->host->matrix_bytes(NULL, parts, u.count);
    return EXL2_OK;
}

/* A backend that needs one kind multiplies by all experts of a layer in EXL3, or by none. */
EXL2__PRIVATE exl2_result exl2__weights_check_experts(const exl2__weights_reader *r, const exl2__unit *u)
{
    const exl2__weights *w = r->w;
    bool others = exl2__config_layer(w->affine_experts, u->layer) || exl2__config_layer(w->other_experts, u->layer);
    if (!exl2__weights_is_expert(u) || !others || !exl2__config_layer(w->exl3_experts, u->layer)) {
        return EXL2_OK;
    }
    return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED, "%s: layer %u has experts of EXL3 and others (%s): the %s backend "
                      "computes only one of both in a layer; EXL2_BACKEND_CPU does", r->dir, u->layer, u->keys[0],
                      r->backend->name);
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
    EXL2__TRY(exl2__weights_check_experts(r, &u));
    for (uint32_t part = 0; part < u.count; part++) {
        uint64_t codes = exl2__weights_rows(&parts[part]) * exl2__weights_row_bytes(&parts[part]);
        bool read = (parts[part].uses & EXL2__USE_PRODUCT) != 0;
        w->code_bytes += codes;
        exl2__matrix_kind stored = exl2__matrix_stored(&parts[part]);
        w->disk_bytes += copy ? 0 : exl2__weights_file_bytes(&parts[part]);
        uint64_t *sum = exl2__weights_is_expert(&u) ? &w->expert_bytes : &w->pass_bytes;
        *sum += read ? exl2__weights_file_bytes(&parts[part]) : 0;
        w->weight_count += copy ? 0 : (uint64_t)u.in * parts[part].out;
        uint64_t *count = exl2__weights_is_expert(&u) ? &w->expert_weights : &w->row_weights;
        *count += read && u.kind != EXL2__UNIT_HEAD ? (uint64_t)u.in * parts[part].out : 0;
        bool block = !u.table && u.kind != EXL2__UNIT_HEAD && u.kind != EXL2__UNIT_ROUTER;
        w->has_exl2 = w->has_exl2 || (block && stored == EXL2__MATRIX_EXL2);
        w->has_dense = w->has_dense || (block && stored == EXL2__MATRIX_DENSE);
        w->has_gptq = w->has_gptq || stored == EXL2__MATRIX_AFFINE;
        w->dequantized += parts[part].dequantized;
        tables += exl2__matrix_tables_bytes(&parts[part]);
        w->slice_bytes = exl2__max64(w->slice_bytes, exl2__weights_unit_rows(&parts[part])
                                                         * exl2__weights_row_bytes(&parts[part]));
        w->has_affine = w->has_affine || parts[part].kind == EXL2__MATRIX_AFFINE;
        w->has_exl3 |= exl2__matrix_is_exl3(stored) ? 1u << parts[part].exl3.codebook : 0;
        if (exl2__matrix_is_exl3(parts[part].kind) && !r->backend->has_exl3) {
            return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: %s is a matrix of EXL3, which the %s backend does not "
                              "compute", r->dir, parts[part].name, r->backend->name);
        }
        w->plain_experts = w->plain_experts
                           || (exl2__weights_is_expert(&u) && !exl2__matrix_is_exl3(parts[part].kind));
        bool beside = exl2__matrix_is_exl3(parts[part].kind) != exl2__matrix_is_exl3(parts[0].kind);
        w->mixes_exl3 = w->mixes_exl3 || beside || (parts[part].uses & EXL2__USE_NATURAL) != 0;
    }
    w->tables_bytes = exl2__max64(w->tables_bytes, tables);
    uint32_t layer = u.kind == EXL2__UNIT_HEAD ? EXL2__UNIT_NO_LAYER : u.layer;
    EXL2__TRY(exl2__weights_add_unit(r, layer, parts, u.count, &bytes));
    if (!r->host || !exl2__weights_is_mlp(u.kind)) {
        return EXL2_OK;
    }
    for (uint32_t part = 0; part < u.count; part++) {
        parts[part].streamed = 1;
    }
    uint64_t streamed = u.kind == EXL2__UNIT_ROUTER ? 0 : r->backend->matrix_bytes(r->device, parts, u.count);
    return exl2__weights_measure_host(r, index, bytes, streamed);
}

/* For a backend that needs one kind: finds out which layers have experts in GPTQ or AWQ, in EXL3, and others. Before
   that, which columns stay together where devices share matrices: all matrices are cut alike. */
EXL2__PRIVATE exl2_result exl2__weights_sort_experts(exl2__weights_reader *r, exl2__work *work)
{
    exl2__weights *w = r->w;
    for (uint32_t i = 0; i < w->tensors.count && w->columns_unit == 0; i++) {
        const char *name = w->tensors.entries[i].name;
        size_t length = strlen(name);
        bool exl3 = length > 8 && strcmp(name + length - 8, ".trellis") == 0;
        w->columns_unit = exl3 ? EXL2__COLUMNS_UNIT_EXL3 : i + 1 == w->tensors.count ? EXL2__COLUMNS_UNIT : 0;
    }
    uint32_t units = w->one_kind && exl2__experts_any(&w->config.experts) ? exl2__weights_units(w) : 0;
    for (; r->at < units; r->at++) {
        exl2__unit u;
        if (!exl2__work_spend(work, 6000)) {
            return EXL2_PENDING;
        }
        exl2__unit_make(&w->config, r->at, &u);
        for (uint32_t part = 0; exl2__weights_is_expert(&u) && part < u.count; part++) {
            bool affine = exl2__tensors_find_part(&w->tensors, u.keys[part], "qweight") != NULL;
            bool exl3 = exl2__exl3_exists(&w->tensors, u.keys[part]) && !w->decodes_exl3;
            uint32_t *layers = exl3 ? w->exl3_experts : affine ? w->affine_experts : w->other_experts;
            layers[u.layer / 32] |= 1u << u.layer % 32;
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
EXL2__PRIVATE exl2_result exl2__weights_measure_norms(exl2__weights_reader *r, uint32_t layer)
{
    exl2__ctx *c = r->c;
    exl2__weights *w = r->w;
    exl2__unit_vector vectors[EXL2__UNIT_VECTORS_MAX];
    uint32_t count = exl2__unit_vectors(&w->config, layer, vectors);
    for (uint32_t i = 0; i < count; i++) {
        exl2__unit_vector *v = &vectors[i];
        bool present;
        EXL2__TRY(exl2__unit_vector_check(c, &w->tensors, v, &present));
        uint64_t bytes = present ? r->backend->vector_bytes(r->device, v->count) : 0;
        bool mlp = exl2__weights_is_mlp_vector(v), shared = exl2__weights_is_shared(w, v);
        exl2__weights_add_for(r, layer, NULL, 0, bytes);
        if (r->host && present && (mlp || shared)) {
            w->mlp_bytes[layer].span_bytes += mlp ? bytes : 0;
            w->mlp_bytes[layer].host_bytes += r->host->vector_bytes(NULL, v->count);
        }
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
        EXL2__TRY(exl2__weights_measure_norms(r, layer));
    }
    w->staging_bytes = exl2__max64(w->staging_bytes, exl2__backend_has_memory(r->backend) ? 0 : w->slice_bytes);
    if (exl2__experts_any(&w->config.experts)) {
        w->pass_bytes += w->expert_bytes / w->config.experts.count * w->config.experts.active;
        w->row_weights += w->expert_weights / w->config.experts.count * w->config.experts.active;
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

/* Right after it, too: the backend `host` may get MLPs. mlp_bytes: [layers], zeroed. */
static inline void exl2__weights_may_move(exl2__weights_reader *r, const exl2__backend *host,
                                          exl2__weights_mlp *mlp_bytes)
{
    r->host = host;
    r->w->mlp_bytes = mlp_bytes;
}

/* Once the headers are read: the spans leave MLPs to their host. */
EXL2__PRIVATE void exl2__weights_move(exl2__weights *w, const exl2__spans *spans)
{
    for (uint32_t i = 0; i < spans->count; i++) {
        const exl2__streamed *streamed = &spans->span[i].streamed;
        w->host_mlps[i] = spans->span[i].host_mlps;
        w->streamed[i] = *streamed;
        w->streamed_bytes += streamed->host_bytes;
        w->moved[i] = 0;
        for (uint32_t layer = w->span_end[i] - w->host_mlps[i]; layer < w->span_end[i]; layer++) {
            const exl2__weights_mlp *mlp = &w->mlp_bytes[layer];
            w->moved[i] += streamed->parts ? mlp->up_bytes + mlp->down_bytes : mlp->span_bytes;
            w->host_bytes += mlp->host_bytes;
        }
        w->moved[i] -= streamed->area_bytes[0] + streamed->area_bytes[1];
        w->weight_bytes -= w->moved[i];
        w->span_bytes[i] -= w->moved[i];
    }
    if (w->host_bytes) { /* slices of these are read there */
        w->staging_bytes = exl2__max64(w->staging_bytes, w->slice_bytes);
    }
}

/* Undoes exl2__weights_move: the spans have all of their MLPs again. */
EXL2__PRIVATE void exl2__weights_move_back(exl2__weights *w, const exl2__spans *spans)
{
    for (uint32_t i = 0; i < spans->count; i++) {
        w->weight_bytes += w->moved[i];
        w->span_bytes[i] += w->moved[i];
        w->moved[i] = w->host_mlps[i] = 0;
        w->streamed[i] = (exl2__streamed){ 0 };
    }
    w->host_bytes = w->streamed_bytes = 0;
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

#endif

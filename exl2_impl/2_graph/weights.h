/* weights.h: reads every tensor of the model in slices, and gives them to the backend, which packs them.
   takes: config, model folder, a backend's device.
   gives: exl2__weights; exl2__weights_measure (headers only), exl2__weights_begin, exl2__weights_slice until
          exl2__weights_done.
   owns:  the tensor table and the staging buffer, until exl2__weights_close.

   The model is a list of units. A unit is a set of matrices that a backend packs together: the embedding; for each
   layer q, k, v | o | gate, up | down; the head. The norm that is applied before q, k, v or gate, up belongs to their
   unit. */
#ifndef EXL2__WEIGHTS_H
#define EXL2__WEIGHTS_H

#include "../1_load/exl2_matrix.h"
#include "plan.h"

#define EXL2__SLICE_BYTES (1u << 20) /* maximum size of a slice, unless one row is larger */

typedef struct exl2__unit {
    uint32_t count, in, out[3];
    char keys[3][EXL2__KEY_BYTES];
    char norm[EXL2__KEY_BYTES];       /* tensor name of the norm without ".weight"; "" = none */
} exl2__unit;

typedef struct exl2__weights {
    exl2__config config;
    exl2__tensors tensors;
    bool tied;                        /* there is no head: the embedding is used as the head */
    uint32_t embed_rows;
    /* Set by exl2__weights_measure: */
    uint64_t weight_bytes;            /* packed, in the backend's memory */
    uint64_t disk_bytes;              /* all matrices as stored, for bits per weight */
    uint64_t pass_bytes;              /* part of disk_bytes that a pass reads: without an embedding read by row */
    uint64_t weight_count;
    uint64_t code_bytes;              /* part of disk_bytes that is read in slices */
    uint64_t slice_bytes, tables_bytes; /* size of the largest slice, size of the largest unit's tables */
    uint64_t staging_bytes;           /* for slices and norms; for norms only, if the backend has staging buffers */
    /* Set while loading: */
    uint32_t unit, part, row;         /* begin of the next slice; part 0, row 0: the unit has not begun */
    uint64_t read_bytes;              /* part of code_bytes that has been read */
    void *staging;                    /* [staging_bytes] */
    exl2__arena tables;               /* tables of the unit that is being read */
    exl2__unit now;                   /* the unit that is being read */
    exl2__matrix_desc parts[3];       /* its matrices, from headers */
    exl2__matrix *matrix;             /* the same, in the backend */
} exl2__weights;

static inline uint32_t exl2__weights_units(const exl2__weights *w)
{
    return 4 * w->config.layers + 1 + !w->tied;
}

/* Fills *u with the matrices of unit `index`, and its norm. */
static inline void exl2__weights_unit(const exl2__weights *w, uint32_t index, exl2__unit *u)
{
    static const struct { uint32_t count; exl2__linear linear[3]; } kinds[4] = {
        { 3, { EXL2__LINEAR_Q, EXL2__LINEAR_K, EXL2__LINEAR_V } },
        { 1, { EXL2__LINEAR_OUT } },
        { 2, { EXL2__LINEAR_GATE, EXL2__LINEAR_UP } },
        { 1, { EXL2__LINEAR_DOWN } },
    };
    const exl2__config *c = &w->config;
    const exl2__arch *a = w->config.arch;
    uint32_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim, layer = (index - 1) / 4,
             kind = (index - 1) % 4;
    const uint32_t in[EXL2__LINEAR_COUNT] = { c->hidden, c->hidden, c->hidden, q, c->hidden, c->hidden, c->inter };
    const uint32_t out[EXL2__LINEAR_COUNT] = { q, kv, kv, c->hidden, c->inter, c->inter, c->hidden };
    memset(u, 0, sizeof *u);
    if (index == 0 || index > 4 * c->layers) {
        u->count = 1;
        u->in = c->hidden;
        u->out[0] = index == 0 ? w->embed_rows : c->vocab;
        exl2__format(u->keys[0], EXL2__KEY_BYTES, "%s", index == 0 ? a->embed : a->head);
        return;
    }
    u->count = kinds[kind].count;
    for (uint32_t part = 0; part < u->count; part++) {
        exl2__linear linear = kinds[kind].linear[part];
        u->in = in[linear];
        u->out[part] = out[linear];
        exl2__arch_key(u->keys[part], layer, a->linear[linear]);
    }
    if (kind == 0 || kind == 2) {
        exl2__arch_key(u->norm, layer, kind == 0 ? a->attn_norm : a->mlp_norm);
    }
}

/* The member of the plan that the unit belongs to. */
static inline exl2__matrix **exl2__weights_place(const exl2__weights *w, exl2__plan *plan, uint32_t index)
{
    if (index == 0) {
        return &plan->embed;
    }
    if (index > 4 * w->config.layers) {
        return &plan->head;
    }
    exl2__layer *layer = &plan->layers[(index - 1) / 4];
    exl2__matrix **places[4] = { &layer->qkv, &layer->out, &layer->gate_up, &layer->down };
    return places[(index - 1) % 4];
}

static inline void exl2__weights_close(exl2__ctx *c, exl2__weights *w)
{
    exl2__free(c, w->staging, w->staging_bytes, EXL2_MEM_STAGING);
    w->staging = NULL;
    exl2__arena_close(c, &w->tables);
    exl2__tensors_close(c, &w->tensors);
}

/* Number of rows in which a matrix is stored, and bytes of a row. */
static inline uint32_t exl2__weights_rows(const exl2__matrix_desc *d)
{
    return d->dense ? d->out : d->words;
}

static inline uint64_t exl2__weights_row_bytes(const exl2__matrix_desc *d)
{
    return d->dense ? (uint64_t)d->in * (d->dtype == EXL2__F32 ? 4 : 2) : (uint64_t)d->out_stored * sizeof(uint32_t);
}

/* Bytes of a stored matrix in addition to its weights: for each group 2 of q_scale_max, 4 of q_groups and half a byte
   per output of q_scale; 4 per input of q_invperm; 2 per output of the bias. */
static inline uint64_t exl2__weights_extra_bytes(const exl2__matrix_desc *d)
{
    uint64_t tables = d->dense ? 0 : d->group_count * (6 + (uint64_t)d->out_stored / 2) + (uint64_t)d->in * 4;
    return tables + (d->has_bias ? (uint64_t)d->out * 2 : 0);
}

/* ---- headers only: no tensor data is read ---- */

EXL2__COLD
static exl2_result exl2__weights_find(exl2__ctx *c, const exl2__weights *w, uint32_t index, exl2__unit *u,
                                      exl2__matrix_desc *parts)
{
    exl2__weights_unit(w, index, u);
    for (uint32_t part = 0; part < u->count; part++) {
        EXL2__TRY(index == 0
                      ? exl2__matrix_find_table(c, &w->tensors, u->keys[part], u->in, w->config.vocab, &parts[part])
                      : exl2__matrix_find(c, &w->tensors, u->keys[part], u->in, u->out[part], &parts[part]));
        parts[part].uses = index > 0 ? EXL2__USE_PRODUCT : EXL2__USE_ROWS | (w->tied ? EXL2__USE_PRODUCT : 0);
    }
    return EXL2_OK;
}

/* Fails unless q, k, v and o are all EXL2 or all dense, and gate, up and down likewise. `first_unit`: that of q or
   gate. */
static exl2_result exl2__weights_check_block(exl2__ctx *c, const exl2__weights *w, uint32_t first_unit)
{
    exl2__unit u[2];
    exl2__matrix_desc parts[2][3];
    const exl2__matrix_desc *all[4];
    uint32_t count = 0;
    for (uint32_t i = 0; i < 2; i++) {
        EXL2__TRY(exl2__weights_find(c, w, first_unit + i, &u[i], parts[i]));
        for (uint32_t part = 0; part < u[i].count; part++) {
            all[count++] = &parts[i][part];
        }
    }
    return exl2__matrix_check_block(c, all, count);
}

/* Bytes of a unit in the backend's memory. */
static exl2_result exl2__weights_unit_bytes(exl2__ctx *c, const exl2__weights *w, const exl2__backend *backend,
                                            const exl2__device *device, exl2__matrix_desc *parts, uint32_t count,
                                            uint64_t *bytes)
{
    exl2__matrix_tables tables[3] = { 0 };
    exl2_result r = EXL2_OK;
    for (uint32_t part = 0; backend->needs_groups && part < count && r >= 0; part++) {
        r = exl2__matrix_groups_open(c, &w->tensors, &parts[part], &tables[part]);
    }
    *bytes = r < 0 ? 0 : backend->matrix_bytes(device, parts, count);
    for (uint32_t part = 0; part < count; part++) {
        exl2__matrix_tables_close(c, &tables[part]);
    }
    return r;
}

/* Opens the tensor files, checks the headers of every matrix that the model needs, and adds up the sizes. Allocates
   only the tensor table. */
EXL2__COLD
static exl2_result exl2__weights_measure(exl2__ctx *c, exl2__weights *w, const char *dir, const exl2__backend *backend,
                                         const exl2__device *device)
{
    exl2__matrix_desc embed;
    const exl2__arch *arch = w->config.arch;
    EXL2__TRY(exl2__tensors_open(c, dir, &w->tensors));
    EXL2__TRY(exl2__matrix_find_table(c, &w->tensors, arch->embed, w->config.hidden, w->config.vocab, &embed));
    if (embed.out < w->config.vocab) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s.weight has %u rows, fewer than the vocabulary of %u", dir,
                          arch->embed, embed.out, w->config.vocab);
    }
    w->embed_rows = embed.out;
    w->tied = w->config.tie_embeddings && !exl2__matrix_exists(&w->tensors, arch->head);
    w->weight_bytes = backend->vector_bytes(device, w->config.hidden) * (2u * w->config.layers + 1);
    w->slice_bytes = EXL2__SLICE_BYTES;
    for (uint32_t index = 0; index < exl2__weights_units(w); index++) {
        exl2__unit u;
        exl2__matrix_desc parts[3];
        uint64_t tables = 0, bytes;
        EXL2__TRY(exl2__weights_find(c, w, index, &u, parts));
        for (uint32_t part = 0; part < u.count; part++) {
            uint64_t codes = exl2__weights_rows(&parts[part]) * exl2__weights_row_bytes(&parts[part]);
            w->code_bytes += codes;
            w->disk_bytes += codes + exl2__weights_extra_bytes(&parts[part]);
            w->pass_bytes += index > 0 || w->tied ? codes + exl2__weights_extra_bytes(&parts[part]) : 0;
            w->weight_count += (uint64_t)u.in * parts[part].out;
            tables += exl2__matrix_tables_bytes(&parts[part]);
            w->slice_bytes = exl2__max64(w->slice_bytes, exl2__weights_row_bytes(&parts[part]));
        }
        w->tables_bytes = exl2__max64(w->tables_bytes, tables);
        EXL2__TRY(exl2__weights_unit_bytes(c, w, backend, device, parts, u.count, &bytes));
        w->weight_bytes += bytes;
        if (index > 0 && index <= 4 * w->config.layers && index % 2 == 1) {
            EXL2__TRY(exl2__weights_check_block(c, w, index));
        }
    }
    w->staging_bytes = exl2__max64(exl2__backend_has_memory(backend) ? 0 : w->slice_bytes,
                                     (uint64_t)w->config.hidden * sizeof(float));
    return EXL2_OK;
}

/* Bytes that exl2__weights_begin allocates. */
static inline uint64_t exl2__weights_more_bytes(const exl2__weights *w)
{
    return w->staging_bytes + w->tables_bytes;
}

/* Host bytes that are used only while the weights are loaded. */
static inline uint64_t exl2__weights_loading_bytes(const exl2__weights *w)
{
    return exl2__weights_more_bytes(w) + w->tensors.memory.size + w->tensors.files.memory.size;
}

/* ---- loading ---- */

static exl2_result exl2__weights_begin(exl2__ctx *c, exl2__weights *w)
{
    EXL2__TRY(exl2__alloc(c, w->staging_bytes, EXL2__ARENA_ALIGN, EXL2_MEM_STAGING, &w->staging));
    return w->tables_bytes ? exl2__arena_open(c, &w->tables, w->tables_bytes, EXL2_MEM_STAGING) : EXL2_OK;
}

static inline bool exl2__weights_done(const exl2__weights *w)
{
    return w->unit == exl2__weights_units(w);
}

static exl2_result exl2__weights_norm(exl2__ctx *c, const exl2__weights *w, const exl2__backend *backend,
                                      exl2__device *device, exl2__arena *arena, const char *key, exl2__vector **out)
{
    char name[EXL2__KEY_BYTES + 8];
    float *values = (float *)w->staging;
    exl2__format(name, sizeof name, "%s.weight", key);
    EXL2__TRY(exl2__tensor_floats(c, &w->tensors, name, w->config.hidden, values));
    return backend->vector_make(device, arena, values, w->config.hidden, out);
}

/* Begins a unit: reads its tables, makes its matrix in the backend, reads its norm. */
EXL2__COLD
static exl2_result exl2__weights_open_unit(exl2__ctx *c, exl2__weights *w, exl2__plan *plan,
                                           const exl2__backend *backend, exl2__device *device, exl2__arena *arena)
{
    exl2__matrix_desc parts[3];
    EXL2__TRY(exl2__weights_find(c, w, w->unit, &w->now, w->parts));
    memcpy(parts, w->parts, sizeof parts);
    w->tables.used = 0;
    for (uint32_t part = 0; part < w->now.count; part++) {
        uint64_t bytes = exl2__matrix_tables_bytes(&parts[part]);
        exl2__matrix_tables tables = { .memory = { .size = bytes } };
        tables.memory.base = (uint8_t *)exl2__arena_alloc(&w->tables, bytes);
        EXL2__TRY(exl2__matrix_tables_fill(c, &w->tensors, 1.0f, &parts[part], &tables));
    }
    EXL2__TRY(backend->matrix_make(device, arena, parts, w->now.count, &w->matrix));
    *exl2__weights_place(w, plan, w->unit) = w->matrix;
    if (w->now.norm[0]) {
        exl2__layer *layer = &plan->layers[(w->unit - 1) / 4];
        EXL2__TRY(exl2__weights_norm(c, w, backend, device, arena, w->now.norm,
                                     (w->unit - 1) % 4 == 0 ? &layer->attn_norm : &layer->mlp_norm));
    }
    return EXL2_OK;
}

/* Reads one slice and gives it to the backend. */
static exl2_result exl2__weights_slice(exl2__ctx *c, exl2__weights *w, exl2__plan *plan, const exl2__backend *backend,
                                       exl2__device *device, exl2__arena *arena)
{
    if (w->part == 0 && w->row == 0) {
        EXL2__TRY(exl2__weights_open_unit(c, w, plan, backend, device, arena));
    }
    const exl2__matrix_desc *desc = &w->parts[w->part];
    const exl2__tensor *data = exl2__matrix_data(&w->tensors, desc->name, desc->dense);
    uint64_t row_bytes = exl2__weights_row_bytes(desc), fit = w->slice_bytes / row_bytes;
    uint32_t rows = (uint32_t)exl2__min64(exl2__weights_rows(desc) - w->row, fit);
    void *memory = w->staging;
    if (exl2__backend_has_memory(backend)) {
        EXL2__TRY(backend->memory->staging(device, rows * row_bytes, &memory));
    }
    EXL2__TRY(exl2__tensors_read(c, &w->tensors, data, w->row * row_bytes, memory, rows * row_bytes));
    exl2__rows_slice slice = { w->row, rows, memory };
    EXL2__TRY(backend->matrix_feed(device, w->matrix, w->part, &slice));
    w->read_bytes += rows * row_bytes;
    w->row += rows;
    if (w->row == exl2__weights_rows(desc)) {
        w->row = 0;
        w->part++;
    }
    if (w->part == w->now.count) {
        w->part = 0;
        w->unit++;
    }
    if (exl2__weights_done(w)) {
        if (w->tied) {
            plan->head = plan->embed;
        }
        EXL2__TRY(exl2__weights_norm(c, w, backend, device, arena, w->config.arch->final_norm, &plan->final_norm));
    }
    return EXL2_OK;
}

#endif

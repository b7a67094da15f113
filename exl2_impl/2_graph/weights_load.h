/* weights_load.h: reads the data of all tensors in slices, and gives it to the backend, which packs it.
   takes: an exl2__weights whose headers are read, backends' devices.
   gives: exl2__weights_begin, exl2__weights_slice, exl2__weights_until, exl2__weights_spans. */
#ifndef EXL2__WEIGHTS_LOAD_H
#define EXL2__WEIGHTS_LOAD_H

#include "weights_headers.h"

EXL2__PRIVATE exl2_result exl2__weights_begin(exl2__ctx *c, exl2__weights *w)
{
    EXL2__TRY(exl2__alloc(c, w->staging_bytes, EXL2__ARENA_ALIGN, EXL2_MEM_STAGING, &w->staging));
    return w->tables_bytes ? exl2__arena_open(c, &w->tables, w->tables_bytes, EXL2_MEM_STAGING) : EXL2_OK;
}

/* Reads the norms of a layer (EXL2__UNIT_NO_LAYER: the final norm) into the plan. */
EXL2__PRIVATE exl2_result exl2__weights_norms(exl2__ctx *c, exl2__weights *w, exl2__plan *plan, uint32_t layer,
                                              const exl2__backend *backend, exl2__device *device, exl2__arena *arena)
{
    exl2__unit_vector vectors[EXL2__UNIT_VECTORS_MAX];
    uint32_t count = exl2__unit_vectors(&w->config, layer, vectors);
    float *values = (float *)w->staging;
    bool host = exl2__weights_is_host(w, layer), streamed = exl2__weights_is_streamed(w, layer);
    for (uint32_t i = 0; i < count; i++) {
        exl2__unit_vector *v = &vectors[i];
        bool present;
        EXL2__TRY(exl2__unit_vector_check(c, &w->tensors, v, &present));
        if (present) {
            EXL2__TRY(exl2__unit_vector_read(c, &w->tensors, v, values));
            exl2__hash_sums_begin(&w->content);
            exl2__hash_sums_add(c->cpu_path, &w->content, values, v->count * sizeof *values);
            exl2__content_id_add_part(w->content_sum, &w->content, layer, i, EXL2__CONTENT_ID_VECTOR);
        }
        bool mlp = host && exl2__weights_is_mlp_vector(v);
        if (present && (!mlp || streamed)) {
            exl2__plan of_prompts = { .layers = plan->prompt_layers };
            EXL2__TRY(backend->vector_make(device, arena, values, v->count,
                                           exl2__unit_vector_place(v, mlp ? &of_prompts : plan, layer)));
        }
        if (present && host && (mlp || exl2__weights_is_shared(w, v))) {
            exl2__plan of_host = { .layers = plan->host_layers };
            EXL2__TRY(w->host->backend->vector_make(w->host->device, &w->host->weights, values, v->count,
                                                    exl2__unit_vector_place(v, &of_host, layer)));
        }
    }
    if (w->config.parallel && layer != EXL2__UNIT_NO_LAYER) {
        exl2__layer *mlp = &(host ? plan->host_layers : plan->layers)[layer];
        mlp->mlp_norm = mlp->attn_norm;
    }
    return EXL2_OK;
}

/* Adds the tables of a part, which are read, to the content id, in slices. */
EXL2__PRIVATE exl2_result exl2__weights_add_tables(const exl2__ctx *c, exl2__weights *w, const exl2__matrix_desc *d,
                                                   exl2__work *work)
{
    exl2_cpu_path path = c->cpu_path;
    exl2__matrix_kind stored = exl2__matrix_stored(d);
    if (exl2__weights_is_copy(w, w->unit) || w->second) { /* it counts once */
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
    if (exl2__matrix_is_exl3(stored)) { /* names and shapes say the rate and the codebook */
        exl2__hash_sums_add(path, &w->content, d->in_scales, d->exl3.in_stored * sizeof *d->in_scales);
    }
    if (stored == EXL2__MATRIX_EXL3) {
        exl2__hash_sums_add(path, &w->content, d->out_scales, d->out_stored * sizeof *d->out_scales);
    }
    if (stored == EXL2__MATRIX_EXL2 || stored == EXL2__MATRIX_AFFINE) {
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
        if (part->dequantized && !w->second) {
            EXL2__TRY_DONE(exl2__weights_add_codes(c, w, part, work));
        }
        w->part_begun = w->part_read = false;
    }
    return EXL2_OK;
}

typedef struct exl2__weights_target { /* what gets a unit */
    const exl2__backend *backend;
    exl2__device *device;
    exl2__arena *arena;
} exl2__weights_target;

/* What gets the unit that is being read: the host, or else what the caller says. */
static inline exl2__weights_target exl2__weights_target_of(const exl2__weights *w, const exl2__backend *backend,
                                                           exl2__device *device, exl2__arena *arena)
{
    return exl2__weights_to_host(w, &w->now)
               ? (exl2__weights_target){ w->host->backend, w->host->device, &w->host->weights }
               : (exl2__weights_target){ backend, device, arena };
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
    exl2__weights_target to = exl2__weights_target_of(w, backend, device, arena);
    if (!exl2__backend_has_memory(to.backend)) { /* for each unit, as new pages are in the CPU's cache for a while */
        uint64_t bytes = to.backend->matrix_bytes(to.device, w->parts, w->now.count);
        EXL2__TRY_DONE(exl2__arena_touch(to.arena, bytes, &w->touched, work));
    }
    if (!exl2__work_spend_all(work)) {
        return EXL2_PENDING;
    }
    EXL2__TRY(to.backend->matrix_make(to.device, to.arena, w->parts, w->now.count, &w->matrix));
    *exl2__weights_place(w, &w->now, plan) = w->matrix;
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
    bool copy = exl2__weights_is_copy(w, w->unit) || w->second;
    desc->affine.content = awq && !copy ? &w->content : NULL;
    EXL2__TRY(exl2__weights_read_rows(c, &w->tensors, desc, w->row, rows, has_memory, memory));
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
    w->read_bytes += w->second ? 0 : w->slice.rows * exl2__weights_row_bytes(desc);
    w->row += w->slice.rows;
    w->slice = (exl2__rows_slice){ 0, 0, NULL };
    if (w->row == exl2__weights_rows(desc)) {
        w->row = 0;
        w->part++;
    }
    if (w->part == w->now.count) {
        bool streamed = exl2__weights_streamed(w, &w->now) > 0;
        const exl2__streamed *s = &w->streamed[exl2__weights_span_of(w, w->now.layer)];
        w->keeping = streamed && (!s->by_layer || w->unit + 1 == exl2__unit_first_of(&w->config, w->now.layer + 1));
        w->second = !w->second && exl2__weights_is_twice(w, &w->now);
        w->part = 0;
        w->unit += !w->second;
        w->opened = false;
    }
}

/* Loads on, in slices, up to a unit. */
EXL2__PRIVATE exl2_result exl2__weights_until(exl2__ctx *c, exl2__weights *w, uint32_t end, exl2__plan *plan,
                                              const exl2__backend *backend, exl2__device *device, exl2__arena *arena,
                                              exl2__work *work)
{
    while (w->unit < end) {
        if (w->keeping) { /* the host's turn with the unit comes after it */
            EXL2__TRY_DONE(backend->memory->keep_streamed(device, work));
            w->keeping = false;
        }
        if (!w->opened) {
            EXL2__TRY_DONE(exl2__weights_open_unit(c, w, plan, backend, device, arena, work));
        }
        exl2__weights_target to = exl2__weights_target_of(w, backend, device, arena);
        if (!w->slice.data) {
            EXL2__TRY_DONE(exl2__weights_read(c, w, to.backend, to.device, work));
        }
        EXL2__TRY_DONE(to.backend->matrix_feed(to.device, w->matrix, w->part, &w->slice, work));
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
    for (uint32_t i = 0; plan->prompt_layers && i < w->config.layers; i++) {
        exl2__plan_join(plan, &plan->layers[i], exl2__weights_is_streamed(w, i), &plan->prompt_layers[i]);
    }
    return exl2__weights_norms(c, w, plan, EXL2__UNIT_NO_LAYER, backend, device, arena);
}

/* The same, into the devices and arenas of the spans. */
EXL2__PRIVATE exl2_result exl2__weights_spans(exl2__ctx *c, exl2__weights *w, exl2__plan *plan, exl2__spans *spans,
                                              exl2__work *work)
{
    exl2__span *span = spans->span;
    w->host = &spans->host;
    for (; span->end < w->config.layers; span++) {
        uint32_t end = exl2__unit_first_of(&w->config, span->end);
        if (w->unit < end) {
            EXL2__TRY_DONE(exl2__weights_until(c, w, end, plan, span->backend, span->device, &span->weights, work));
            w->touched = w->host->backend ? w->touched : 0; /* the host has one arena for all spans */
        }
    }
    return exl2__weights_slice(c, w, plan, span->backend, span->device, &span->weights, work);
}

#endif

/* cuda_model.h: one model on a CUDA device: its matrices and norms, packed there slab by slab while it loads.
   takes: checked matrix descriptions, slices of rows.
   gives: exl2__cuda_model, exl2__cuda_matrix; bytes, make and feed of the backend.
   owns:  device memory of the weights; a raw buffer while loading; the list of its matrices.
   next:  cuda_buffers.h */
#ifndef EXL2__CUDA_MODEL_H
#define EXL2__CUDA_MODEL_H

#include "../../kernels_src/embed_args.h"
#include "../../kernels_src/shuffle_args.h"
#include "cuda_buffers.h"
#include "cuda_matrix.h"
#include "cuda_ring.h"

#define EXL2__CUDA_SLOT_BYTES (2u << 20) /* pinned; two of them carry slices of weights, then the data of passes */
#define EXL2__CUDA_SPARE 64u             /* finite elements behind every input row */

/* A part while it is fed: what the kernels of shuffle.cu need once its last slice is there. */
typedef struct exl2__cuda_feed {
    bool dense;
    uint32_t out, out_stored, rows, chunks, type; /* rows: as stored; type: EXL2K_FROM_*, EXL2K_TABLE_* alike */
    uint64_t row_bytes;
} exl2__cuda_feed;

typedef struct exl2__cuda_matrix {
    struct exl2__cuda_matrix *next; /* of the model */
    exl2k_matrix device;            /* parts 0: only read by rows */
    uint32_t in, pitch;             /* pitch: elements of an input row */
    uint32_t chunk_bytes;           /* of its largest chunk */
    uint64_t map;                   /* u16 [in]: packed row of each input; 0: they are the same */
    uint64_t table;                 /* [feed[0].rows, in], natural order; 0: not read by rows */
    exl2__cuda_feed feed[EXL2K_PARTS_MAX];
} exl2__cuda_matrix;

typedef struct exl2__cuda_vector {
    struct exl2__cuda_vector *next;
    uint64_t values; /* f32 */
} exl2__cuda_vector;

typedef struct exl2__cuda_model { /* what exl2__device is with this backend */
    exl2__ctx *c;
    exl2__cuda_device *gpu;
    exl2__cuda_form form;
    exl2__cuda_matrix *matrices;
    exl2__cuda_vector *vectors;
    exl2__cuda_arena weights, rest; /* rest: pages, then buffers */
    exl2__cuda_ring ring;
    uint64_t raw, raw_bytes;        /* a part as the file has it */
    uint64_t results_bytes;
    exl2__cuda_buffers b;
    const exl2__plan *plan;
    const exl2__step *step;
    exl2__cuda_pass pass;
} exl2__cuda_model;

static inline exl2__cuda_model *exl2__cuda_of(const exl2__device *d)
{
    return (exl2__cuda_model *)(uintptr_t)d;
}

static inline const exl2__cuda_matrix *exl2__cuda_matrix_of(const exl2__matrix *m)
{
    return (const exl2__cuda_matrix *)(const void *)m;
}

static inline uint64_t exl2__cuda_values(const exl2__vector *v)
{
    return ((const exl2__cuda_vector *)(const void *)v)->values;
}

static inline uint64_t exl2__cuda_round(uint64_t bytes)
{
    return exl2__align_up(bytes, EXL2__CUDA_ALIGN);
}

/* ---- sizes ---- */

static inline uint64_t exl2__cuda_row_bytes(const exl2__matrix_desc *d)
{
    return d->dense ? (uint64_t)d->in * (d->dtype == EXL2__F32 ? 4 : 2) : (uint64_t)d->out_stored * sizeof(uint32_t);
}

static uint64_t exl2__cuda_matrix_bytes(const exl2__device *device, const exl2__matrix_desc *parts, uint32_t count)
{
    const exl2__cuda_model *m = exl2__cuda_of(device);
    uint64_t bytes = 0, strips = 0;
    if (parts->uses & EXL2__USE_ROWS) {
        bytes += exl2__cuda_round(parts->out * exl2__cuda_row_bytes(parts));
    }
    if (!(parts->uses & EXL2__USE_PRODUCT)) {
        return bytes;
    }
    for (uint32_t i = 0; i < count; i++) {
        strips += exl2__cuda_layout_bytes(&parts[i], &m->form);
        bytes += exl2__cuda_round((uint64_t)exl2__cuda_layout_chunks_max(&parts[i]) * sizeof(exl2k_chunk));
        bytes += parts[i].has_bias ? exl2__cuda_round(parts[i].out * sizeof(float)) : 0;
    }
    return bytes + exl2__cuda_round(strips) + (parts->dense ? 0 : exl2__cuda_round(parts->in * sizeof(uint16_t)));
}

static uint64_t exl2__cuda_vector_bytes(const exl2__device *device, uint32_t count)
{
    (void)device;
    return exl2__cuda_round(count * sizeof(float));
}

/* ---- transfers; the context is current ---- */

/* Copies through the pinned ring; when it returns `data` may go. */
static exl2_result exl2__cuda_upload(exl2__cuda_model *m, uint64_t to, const void *data, uint64_t bytes)
{
    const uint8_t *from = (const uint8_t *)data;
    while (bytes) {
        void *slot;
        uint64_t part = exl2__min64(bytes, m->ring.slot_bytes);
        EXL2__TRY(exl2__cuda_ring_take(m->gpu, &m->ring, true, &slot));
        memcpy(slot, from, (size_t)part);
        EXL2__TRY(exl2__cuda_ring_send(m->gpu, &m->ring, to, 0, part, true));
        to += part;
        from += part;
        bytes -= part;
    }
    return EXL2_OK;
}

/* At least `bytes` at m->raw. What was there may still be read by kernels: they are waited for when it moves. */
static exl2_result exl2__cuda_raw(exl2__cuda_model *m, uint64_t bytes)
{
    if (bytes <= m->raw_bytes) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__cuda_device_check(m->gpu, m->gpu->driver.stream_wait(m->gpu->stream), "packing weights"));
    exl2__cuda_device_free(m->gpu, m->raw, m->raw_bytes, EXL2_MEM_STAGING);
    m->raw_bytes = 0;
    EXL2__TRY(exl2__cuda_device_alloc(m->gpu, bytes, EXL2_MEM_STAGING, &m->raw));
    m->raw_bytes = bytes;
    return EXL2_OK;
}

/* ---- making ---- */

/* q, k and v share one order of their inputs, and so do gate and up: true for every file that converters write. */
static exl2_result exl2__cuda_check_order(exl2__cuda_model *m, const exl2__matrix_desc *parts, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        if (!parts[i].dense && memcmp(parts[i].inverse_perm, parts->inverse_perm, parts->in * sizeof(uint32_t)) != 0) {
            return exl2__fail(m->c, EXL2_ERR_UNSUPPORTED, "%s and %s order their inputs differently, which the CUDA "
                              "backend does not support", parts->name, parts[i].name);
        }
    }
    return EXL2_OK;
}

static exl2_result exl2__cuda_make_map(exl2__cuda_model *m, const exl2__matrix_desc *part, exl2__cuda_matrix *out)
{
    void *memory;
    if (part->dense) {
        return EXL2_OK;
    }
    uint64_t bytes = part->in * sizeof(uint16_t);
    EXL2__TRY(exl2__alloc(m->c, bytes, 16, EXL2_MEM_STAGING, &memory));
    uint16_t *map = (uint16_t *)memory;
    for (uint32_t i = 0; i < part->in; i++) {
        map[i] = (uint16_t)part->inverse_perm[i];
    }
    out->map = exl2__cuda_arena_take(&m->weights, bytes);
    exl2_result r = exl2__cuda_upload(m, out->map, map, bytes);
    exl2__free(m->c, memory, bytes, EXL2_MEM_STAGING);
    return r;
}

/* Chunk table, bias and scale words of a part, whose strips begin at device.part[index].base. */
static exl2_result exl2__cuda_make_part(exl2__cuda_model *m, const exl2__matrix_desc *desc, uint32_t index,
                                        const exl2__cuda_layout *l, exl2__cuda_matrix *out)
{
    exl2k_part *part = &out->device.part[index];
    uint64_t table_bytes = l->count * sizeof(exl2k_chunk), group_bytes = l->count * sizeof *l->group_of;
    uint64_t scale_bytes = exl2__align_up((uint64_t)desc->group_count * desc->out_stored / 2, 16);
    part->chunks = exl2__cuda_arena_take(&m->weights, table_bytes);
    EXL2__TRY(exl2__cuda_upload(m, part->chunks, l->chunks, table_bytes));
    if (desc->has_bias) {
        part->bias = exl2__cuda_arena_take(&m->weights, desc->out * sizeof(float));
        EXL2__TRY(exl2__cuda_upload(m, part->bias, desc->bias, desc->out * sizeof(float)));
    }
    if (desc->dense) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__cuda_raw(m, scale_bytes + group_bytes));
    EXL2__TRY(exl2__cuda_upload(m, m->raw, desc->scale_codes, (uint64_t)desc->group_count * desc->out_stored / 2));
    EXL2__TRY(exl2__cuda_upload(m, m->raw + scale_bytes, l->group_of, group_bytes));
    exl2k_shuffle_args a = { .source = m->raw, .base = part->base, .chunks = part->chunks,
                             .group_of = m->raw + scale_bytes, .pitch = part->pitch, .columns = desc->out_stored };
    exl2__cuda_grid grid = { .x = desc->out_stored / EXL2__CUDA_STRIP, .y = l->count, .threads = 32 };
    return exl2__cuda_device_launch(m->gpu, EXL2__KERNEL_exl2k_shuffle_scales, grid, &a);
}

/* Places of the parts' strips; all layouts are there. */
static exl2_result exl2__cuda_make_strips(exl2__cuda_model *m, const exl2__matrix_desc *parts, uint32_t count,
                                          const exl2__cuda_layout *l, exl2__cuda_matrix *out)
{
    uint64_t bytes = 0, pair = count == 2 ? l[0].bytes + l[1].bytes : 0, at[EXL2K_PARTS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        exl2k_part *part = &out->device.part[i];
        part->pitch = (exl2k_u32)(count == 2 ? pair : l[i].bytes);
        part->strips = exl2__cuda_strips(&parts[i]);
        part->columns = parts[i].out;
        part->column = i ? part[-1].column + part[-1].columns : 0;
        memcpy(part->slice, l[i].slice, sizeof part->slice);
        memcpy(part->first, l[i].first, sizeof part->first);
        memcpy(part->row, l[i].row, sizeof part->row);
        at[i] = count == 2 ? (i ? l[0].bytes : 0) : bytes;
        bytes += l[i].bytes * part->strips;
        out->device.strips += part->strips;
        out->device.widths |= l[i].widths;
        out->chunk_bytes = exl2__max32(out->chunk_bytes, l[i].chunk_bytes_max);
    }
    uint64_t strips = exl2__cuda_arena_take(&m->weights, bytes);
    for (uint32_t i = 0; i < count; i++) {
        out->device.part[i].base = strips + at[i];
        EXL2__TRY(exl2__cuda_make_part(m, &parts[i], i, &l[i], out));
    }
    return EXL2_OK;
}

static exl2_result exl2__cuda_make_product(exl2__cuda_model *m, const exl2__matrix_desc *parts, uint32_t count,
                                           exl2__cuda_matrix *out)
{
    exl2__cuda_layout l[EXL2K_PARTS_MAX];
    uint64_t entries = 0, entry = sizeof(exl2k_chunk) + sizeof *l->group_of;
    uint32_t ways = exl2__cuda_layout_ways(parts, count, &m->form);
    void *memory;
    for (uint32_t i = 0; i < count; i++) {
        entries += exl2__cuda_layout_chunks_max(&parts[i]);
    }
    EXL2__TRY(exl2__cuda_check_order(m, parts, count));
    EXL2__TRY(exl2__alloc(m->c, entries * entry, 16, EXL2_MEM_STAGING, &memory));
    exl2k_chunk *chunks = (exl2k_chunk *)memory;
    uint16_t(*group_of)[8] = (uint16_t(*)[8])(void *)(chunks + entries);
    out->device = (exl2k_matrix){ .parts = count, .interleaved = count == 2, .ways = ways, .rows = parts->in };
    for (uint32_t i = 0; i < count; i++) {
        exl2__cuda_layout_part(&l[i], &parts[i], ways, m->form.chunk_bytes, chunks, group_of);
        out->feed[i].chunks = l[i].count;
        chunks += exl2__cuda_layout_chunks_max(&parts[i]);
        group_of += exl2__cuda_layout_chunks_max(&parts[i]);
    }
    exl2_result r = exl2__cuda_make_map(m, parts, out);
    r = r < 0 ? r : exl2__cuda_make_strips(m, parts, count, l, out);
    exl2__free(m->c, memory, entries * entry, EXL2_MEM_STAGING);
    return r;
}

static exl2_result exl2__cuda_matrix_build(exl2__cuda_model *m, const exl2__matrix_desc *parts, uint32_t count,
                                           exl2__matrix **out)
{
    void *memory;
    EXL2__TRY(exl2__alloc(m->c, sizeof(exl2__cuda_matrix), 16, EXL2_MEM_GENERAL, &memory));
    exl2__cuda_matrix *matrix = (exl2__cuda_matrix *)memory;
    *matrix = (exl2__cuda_matrix){ .next = m->matrices, .in = parts->in,
                                   .pitch = (uint32_t)exl2__align_up(parts->in, 64) + EXL2__CUDA_SPARE };
    m->matrices = matrix;
    for (uint32_t i = 0; i < count; i++) {
        const exl2__matrix_desc *d = &parts[i];
        matrix->feed[i] = (exl2__cuda_feed){ .dense = d->dense, .out = d->out, .out_stored = d->out_stored,
                                             .rows = d->dense ? d->out : d->words,
                                             .row_bytes = exl2__cuda_row_bytes(d) };
        matrix->feed[i].type = d->dtype == EXL2__F16    ? EXL2K_FROM_F16
                               : d->dtype == EXL2__BF16 ? EXL2K_FROM_BF16
                                                        : EXL2K_FROM_F32;
    }
    if (parts->uses & EXL2__USE_ROWS) {
        matrix->table = exl2__cuda_arena_take(&m->weights, parts->out * exl2__cuda_row_bytes(parts));
    }
    if (parts->uses & EXL2__USE_PRODUCT) {
        EXL2__TRY(exl2__cuda_make_product(m, parts, count, matrix));
    }
    *out = (exl2__matrix *)(void *)matrix;
    return EXL2_OK;
}

static exl2_result exl2__cuda_matrix_make(exl2__device *device, exl2__arena *weights, const exl2__matrix_desc *parts,
                                          uint32_t count, exl2__matrix **out)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    (void)weights;
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    exl2_result r = exl2__cuda_matrix_build(m, parts, count, out);
    exl2__cuda_device_leave(m->gpu);
    return r;
}

static exl2_result exl2__cuda_vector_make(exl2__device *device, exl2__arena *weights, const float *values,
                                          uint32_t count, exl2__vector **out)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    void *memory;
    (void)weights;
    EXL2__TRY(exl2__alloc(m->c, sizeof(exl2__cuda_vector), 16, EXL2_MEM_GENERAL, &memory));
    exl2__cuda_vector *vector = (exl2__cuda_vector *)memory;
    *vector = (exl2__cuda_vector){ m->vectors, exl2__cuda_arena_take(&m->weights, count * sizeof(float)) };
    m->vectors = vector;
    *out = (exl2__vector *)memory;
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    exl2_result r = exl2__cuda_upload(m, vector->values, values, count * sizeof(float));
    exl2__cuda_device_leave(m->gpu);
    return r;
}

/* ---- feeding ---- */

/* All of the part is at m->raw: into strips with it. */
static exl2_result exl2__cuda_feed_pack(exl2__cuda_model *m, const exl2__cuda_matrix *matrix, uint32_t index)
{
    const exl2__cuda_feed *f = &matrix->feed[index];
    const exl2k_part *part = &matrix->device.part[index];
    exl2k_shuffle_args a = { .source = m->raw, .base = part->base, .chunks = part->chunks, .pitch = part->pitch,
                             .columns = f->dense ? f->out : f->out_stored };
    if (f->dense) {
        a.rows = f->out;
        a.inputs = matrix->in;
        a.records = (uint32_t)exl2__div_up(matrix->in, EXL2__CUDA_RECORD_ROWS);
        a.type = f->type;
        exl2__cuda_grid grid = { .x = part->strips, .y = (uint32_t)exl2__div_up(a.records, 8),
                                 .threads = EXL2K_SHUFFLE_THREADS };
        return exl2__cuda_device_launch(m->gpu, EXL2__KERNEL_exl2k_shuffle_dense, grid, &a);
    }
    exl2__cuda_grid grid = { .x = f->out_stored / 32, .y = f->chunks, .threads = EXL2K_SHUFFLE_THREADS };
    return exl2__cuda_device_launch(m->gpu, EXL2__KERNEL_exl2k_shuffle_codes, grid, &a);
}

static exl2_result exl2__cuda_feed_slice(exl2__cuda_model *m, const exl2__cuda_matrix *matrix, uint32_t index,
                                         const exl2__rows_slice *slice)
{
    const exl2__cuda_feed *f = &matrix->feed[index];
    uint64_t at = slice->row * f->row_bytes, bytes = slice->rows * f->row_bytes;
    if (matrix->table) {
        EXL2__TRY(exl2__cuda_upload(m, matrix->table + at, slice->data, bytes));
    }
    if (matrix->device.parts == 0) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__cuda_raw(m, f->rows * f->row_bytes));
    EXL2__TRY(exl2__cuda_upload(m, m->raw + at, slice->data, bytes));
    return slice->row + slice->rows == f->rows ? exl2__cuda_feed_pack(m, matrix, index) : EXL2_OK;
}

static exl2_result exl2__cuda_matrix_feed(exl2__device *device, exl2__matrix *matrix, uint32_t part,
                                          const exl2__rows_slice *slice)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    exl2_result r = exl2__cuda_feed_slice(m, exl2__cuda_matrix_of(matrix), part, slice);
    exl2__cuda_device_leave(m->gpu);
    return r;
}

#endif

/* cuda_load.h: makes the matrices and norms of a model, and packs rows as they arrive, block by block.
   takes: checked matrix descriptions, slices of rows.
   gives: exl2__cuda_matrix_make, exl2__cuda_vector_make, exl2__cuda_stage, exl2__cuda_matrix_feed of the backend. */
#ifndef EXL2__CUDA_LOAD_H
#define EXL2__CUDA_LOAD_H

#include "cuda_make_experts.h"
#include "cuda_make_exl3.h"

/* ---- making ---- */

/* Adds a record to the model's list. */
EXL2__PRIVATE exl2_result exl2__cuda_record_open(exl2__cuda_model *m, const exl2__matrix_desc *parts, uint32_t count,
                                                 exl2__cuda_matrix **out)
{
    void *memory;
    EXL2__TRY(exl2__alloc(m->c, sizeof(exl2__cuda_matrix), 16, EXL2_MEM_GENERAL, &memory));
    exl2__cuda_matrix *matrix = *out = (exl2__cuda_matrix *)memory;
    *matrix = exl2__cuda_matrix_record(m, parts, count);
    matrix->next = m->matrices;
    m->matrices = matrix;
    return EXL2_OK;
}

#if EXL2__EXL3
/* Makes each part a matrix of its own, which reads x in natural order. Where chunks end (m->ends) is kept for every
   part, so the first one is made last. */
EXL2__PRIVATE exl2_result exl2__cuda_make_alone(exl2__cuda_model *m, const exl2__matrix_desc *parts, uint32_t count,
                                                exl2__cuda_matrix *whole)
{
    uint32_t column = 0;
    for (uint32_t i = 0; i < count; i++) {
        column += whole->cut[i].columns;
    }
    for (uint32_t i = count; i-- > 0;) {
        exl2__cuda_matrix *one;
        EXL2__TRY(exl2__cuda_record_open(m, &parts[i], 1, &one));
        whole->alone[i] = one;
        column -= whole->cut[i].columns;
        if (exl2__matrix_is_exl3(parts[i].kind)) {
            EXL2__TRY(exl2__cuda_make_exl3(m, &parts[i], 1, one));
            one->exl3.part[0].column = column;
            continue;
        }
        EXL2__TRY(exl2__cuda_make_product(m, &parts[i], 1, one));
        one->natural = true;
        one->device.part[0].column = column;
        memcpy(m->ends[i], m->ends[0], i > 0 ? sizeof m->ends[0] : 0);
    }
    return EXL2_OK;
}
#endif

EXL2__PRIVATE exl2_result exl2__cuda_matrix_build(exl2__cuda_model *m, const exl2__matrix_desc *parts, uint32_t count,
                                                  exl2__matrix **out)
{
    exl2__cuda_matrix *matrix;
#ifndef EXL2_NO_MOE
    if (exl2__cuda_is_expert(parts)) {
        return exl2__cuda_expert_build(m, parts, count, out);
    }
#endif
    EXL2__TRY(exl2__cuda_record_open(m, parts, count, &matrix));
    *out = (exl2__matrix *)(void *)matrix;
#ifndef EXL2_NO_MOE
    if (parts->uses & EXL2__USE_ROUTER) {
        return exl2__cuda_make_router(m, parts, count, matrix);
    }
#endif
    if (parts->uses & EXL2__USE_ROWS) {
        matrix->table = exl2__cuda_arena_take(&m->weights, parts->out * exl2__weights_row_bytes(parts));
    }
#if EXL2__EXL3
    if (exl2__cuda_parts_alone(parts, count)) {
        return exl2__cuda_make_alone(m, parts, count, matrix);
    }
    if (exl2__matrix_is_exl3(parts->kind)) {
        return exl2__cuda_make_exl3(m, parts, count, matrix);
    }
#endif
    if (parts->uses & EXL2__USE_PRODUCT) {
        EXL2__TRY(exl2__cuda_make_product(m, parts, count, matrix));
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_matrix_make(exl2__device *device, exl2__arena *weights,
                                                 const exl2__matrix_desc *parts, uint32_t count, exl2__matrix **out)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    (void)weights;
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    exl2__cuda_streamed_enter(m, parts);
    exl2_result r = exl2__cuda_matrix_build(m, parts, count, out);
    exl2__cuda_streamed_leave(m, parts);
    return exl2__cuda_device_leave_with(m->gpu, r);
}

EXL2__PRIVATE exl2_result exl2__cuda_vector_make(exl2__device *device, exl2__arena *weights, const float *values,
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
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_upload(m, vector->values, values, count * sizeof(float)));
}

/* ---- feeding ---- */

/* Gives memory of the ring. If a slice is larger than every slot, the ring is replaced by a larger one. */
EXL2__PRIVATE exl2_result exl2__cuda_stage_slot(exl2__cuda_model *m, uint64_t bytes, void **out)
{
    if (bytes > m->ring.slot_bytes) {
        uint32_t slots = m->ring.slots;
        exl2__cuda_stream *stream = m->ring.stream;
        exl2__cuda_ring_close(m->gpu, &m->ring);
        EXL2__TRY(exl2__cuda_ring_open(m->gpu, &m->ring, slots, bytes, stream));
    }
    return exl2__cuda_ring_take(m->gpu, &m->ring, bytes, true, out);
}

EXL2__PRIVATE exl2_result exl2__cuda_stage(exl2__device *device, uint64_t bytes, void **out)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_stage_slot(m, bytes, out));
}

/* Begins a staged block at row `first`: as many rows as fit, in whole chunks of codes, or whole strips of a dense part,
   and at least one of them. */
EXL2__PRIVATE void exl2__cuda_staged_begin(exl2__cuda_model *m, const exl2__cuda_feed *f, const uint16_t *ends,
                                           uint32_t first)
{
    uint32_t rows = f->dense ? f->out : f->rows; /* of the device */
    uint32_t fit = (uint32_t)exl2__min64(EXL2__CUDA_STAGING_BYTES / f->row_bytes, rows - first);
    exl2__cuda_staged s = { .first = first, .chunk = first ? m->staged.chunk_end : 0 };
    s.chunk_end = s.chunk;
    if (f->dense) {
        uint32_t strips = exl2__max32(fit / EXL2__CUDA_STRIP, 1);
        s.end = fit == rows - first ? rows : exl2__min32(first + strips * EXL2__CUDA_STRIP, rows);
    } else {
        do {
            s.end = ends[s.chunk_end++];
        } while (s.chunk_end < f->chunks && ends[s.chunk_end] - first <= fit);
    }
    m->staged = s;
}

/* Packs the staged block into strips; all of its rows are at `source`. */
EXL2__PRIVATE exl2_result exl2__cuda_staged_pack(exl2__cuda_model *m, const exl2__cuda_matrix *matrix, uint32_t index,
                                                 uint64_t source)
{
    const exl2__cuda_feed *f = &matrix->feed[index];
    const exl2k_part *part = &matrix->device.part[index];
    const exl2__cuda_staged *s = &m->staged;
    exl2k_shuffle_args a = { .source = source, .base = part->base, .chunks = part->chunks,
                             .columns_from = exl2__cuda_columns_from(m, matrix), .pitch = part->pitch,
                             .columns = f->dense ? f->out : f->out_stored, .chunk = s->chunk, .first = s->first,
                             .type = f->type };
    if (f->dense) {
        uint32_t strip = s->first / EXL2__CUDA_STRIP;
        a.rows = s->end - s->first;
        a.inputs = matrix->in;
        a.records = (uint32_t)exl2__div_up(matrix->in, EXL2__CUDA_RECORD_ROWS);
        exl2__cuda_grid grid = { .x = (s->end == f->out ? part->strips : s->end / EXL2__CUDA_STRIP) - strip,
                                 .y = (uint32_t)exl2__div_up(a.records, 8), .threads = EXL2K_SHUFFLE_THREADS };
        return grid.x == 0 ? EXL2_OK
                           : exl2__cuda_device_launch(m->gpu, EXL2__KERNEL_exl2k_shuffle_dense, grid, &a);
    }
    bool awq = f->type == EXL2K_FROM_AWQ;
    exl2__cuda_shuffle_from(&a, matrix->cut[index].first, awq ? 8 : 1, sizeof(uint32_t));
    exl2__cuda_grid grid = { .x = part->strips / 2, .y = s->chunk_end - s->chunk, .threads = EXL2K_SHUFFLE_THREADS };
    return grid.x == 0 ? EXL2_OK : exl2__cuda_device_launch(m->gpu, EXL2__KERNEL_exl2k_shuffle_codes, grid, &a);
}

/* Loads rows of a part that is only multiplied, block by block. ends: of its chunks. A slice may end one block and
   begin the next. Of a dense part the device has the rows [cut.first, cut.first + f->out). */
EXL2__PRIVATE exl2_result exl2__cuda_feed_staged(exl2__cuda_model *m, const exl2__cuda_matrix *matrix, uint32_t index,
                                                 const uint16_t *ends, const exl2__rows_slice *slice)
{
    const exl2__cuda_feed *f = &matrix->feed[index];
    exl2__cuda_staged *s = &m->staged;
    uint32_t first = f->dense ? matrix->cut[index].first : 0, before = exl2__max32(first, slice->row) - slice->row;
    uint32_t row = slice->row + before - first, rows_end = f->dense ? f->out : f->rows;
    uint32_t end = exl2__min32(slice->row + exl2__max32(slice->rows, before) - first, rows_end);
    while (row < end) {
        if (row == 0 || row == s->end) {
            exl2__cuda_staged_begin(m, f, ends, row);
            EXL2__TRY(exl2__cuda_staging_reserve(m, (s->end - s->first) * f->row_bytes));
        }
        uint32_t rows = exl2__min32(end, s->end) - row;
        EXL2__TRY(exl2__cuda_ring_copy(m->gpu, &m->ring, m->staging + (row - s->first) * f->row_bytes,
                                       (row + first - slice->row) * f->row_bytes, rows * f->row_bytes));
        row += rows;
        if (row == s->end) {
            EXL2__TRY(exl2__cuda_staged_pack(m, matrix, index, m->staging));
        }
    }
    return EXL2_OK;
}

/* Loads rows of a router, which stay as they are. */
static inline exl2_result exl2__cuda_feed_router(exl2__cuda_model *m, const exl2__cuda_matrix *matrix, uint32_t index,
                                                 const exl2__rows_slice *slice)
{
    uint64_t row_bytes = matrix->feed[index].row_bytes;
    return exl2__cuda_ring_copy(m->gpu, &m->ring, matrix->tables[index] + slice->row * row_bytes, 0,
                                slice->rows * row_bytes);
}

/* Loads rows of a table, which stays in device memory as it is. If it is multiplied, too, it is packed from there. */
EXL2__PRIVATE exl2_result exl2__cuda_feed_table(exl2__cuda_model *m, const exl2__cuda_matrix *matrix,
                                                const exl2__rows_slice *slice)
{
    const exl2__cuda_feed *f = &matrix->feed[0];
    EXL2__TRY(exl2__cuda_ring_copy(m->gpu, &m->ring, matrix->table + slice->row * f->row_bytes, 0,
                                   slice->rows * f->row_bytes));
    if (matrix->device.parts == 0 || slice->row + slice->rows < f->rows) {
        return EXL2_OK;
    }
    m->staged = (exl2__cuda_staged){ .end = f->out };
    return exl2__cuda_staged_pack(m, matrix, 0, matrix->table + matrix->cut[0].first * f->row_bytes);
}

EXL2__PRIVATE exl2_result exl2__cuda_feed_slice(exl2__cuda_model *m, const exl2__cuda_matrix *matrix, uint32_t index,
                                                const exl2__rows_slice *slice)
{
    const uint16_t *ends = m->ends[index];
    EXL2__ASSERT(slice->data == m->ring.memory + m->ring.next * m->ring.slot_bytes + m->ring.used); /* of stage */
    if (matrix->alone[index]) {
        matrix = matrix->alone[index];
        index = 0;
    }
#if EXL2__EXL3
    if (matrix->exl3.parts > 0) {
        EXL2__TRY(exl2__cuda_feed_exl3(m, matrix, index, slice));
        return exl2__cuda_ring_next(m->gpu, &m->ring);
    }
#endif
    EXL2__TRY(matrix->table           ? exl2__cuda_feed_table(m, matrix, slice)
              : matrix->tables[index] ? exl2__cuda_feed_router(m, matrix, index, slice)
                                      : exl2__cuda_feed_staged(m, matrix, index, ends, slice));
    return exl2__cuda_ring_next(m->gpu, &m->ring); /* slots that are used only in part stay in the CPU's cache */
}

EXL2__PRIVATE exl2_result exl2__cuda_matrix_feed(exl2__device *device, exl2__matrix *matrix, uint32_t part,
                                                 const exl2__rows_slice *slice, exl2__work *work)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    (void)work; /* enqueueing is short */
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_feed_slice(m, exl2__cuda_matrix_of(matrix), part, slice));
}

#endif

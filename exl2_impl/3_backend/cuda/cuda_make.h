/* cuda_make.h: makes a matrix on the device before its rows arrive: strips, chunk tables, scales, biases, orders.
   takes: checked matrix descriptions; the context must be current.
   gives: exl2__cuda_make_product, exl2__cuda_matrix_record, exl2__cuda_columns_from. */
#ifndef EXL2__CUDA_MAKE_H
#define EXL2__CUDA_MAKE_H

#include "cuda_streamed.h"

/* map [part->in] is free for it. */
EXL2__PRIVATE exl2_result exl2__cuda_make_map(exl2__cuda_model *m, const exl2__matrix_desc *part, uint16_t *map,
                                              uint64_t *out)
{
    uint64_t bytes = part->in * sizeof *map;
    for (uint32_t i = 0; i < part->in; i++) {
        map[i] = exl2__cuda_order_in_memory(part, i);
    }
    *out = exl2__cuda_arena_take(exl2__cuda_streamed_rest(m), bytes);
    return exl2__cuda_upload(m, *out, map, bytes);
}

/* Keeps the order of inputs in host memory, for adapters. */
EXL2__PRIVATE void exl2__cuda_make_order_host(exl2__cuda_model *m, const exl2__matrix_desc *part,
                                              exl2__cuda_matrix *out)
{
    if (part->kind == EXL2__MATRIX_DENSE || exl2__cuda_is_expert(part) || m->orders_max - m->orders_used < part->in) {
        return;
    }
    uint16_t *order = m->orders + m->orders_used;
    for (uint32_t i = 0; i < part->in; i++) {
        order[i] = exl2__cuda_order_in_memory(part, i);
    }
    m->orders_used += part->in;
    out->order_host = order;
}

/* The order of inputs of `down`. */
EXL2__PRIVATE exl2_result exl2__cuda_make_order(exl2__cuda_model *m, const exl2__matrix_desc *down)
{
    exl2__cuda_down_order *o = &m->down;
    o->count = down->kind == EXL2__MATRIX_DENSE ? 0 : (uint32_t)exl2__align_up(down->in, 32);
    uint64_t bytes = o->count * sizeof(uint16_t);
    EXL2__TRY(exl2__cuda_making_reserve(m, bytes, &o->host, &o->host_bytes));
    EXL2__TRY(exl2__cuda_loading_reserve(m, bytes, &o->device, &o->device_bytes));
    for (uint32_t i = 0; i < o->count; i++) {
        ((uint16_t *)o->host)[i < down->in ? exl2__cuda_order_in_memory(down, i) : i] = (uint16_t)i;
    }
    return exl2__cuda_upload(m, o->device, o->host, bytes);
}

EXL2__PRIVATE exl2_result exl2__cuda_make_maps(exl2__cuda_model *m, const exl2__matrix_desc *parts, uint32_t count,
                                               uint16_t *map, exl2__cuda_matrix *out)
{
    exl2__cuda_make_order_host(m, parts, out);
    out->natural = (parts->uses & EXL2__USE_NATURAL) != 0;
    if (exl2__cuda_is_down(parts) && !out->natural) {
        return exl2__cuda_make_order(m, parts);
    }
    if (exl2__cuda_is_down(parts)) {
        m->down.count = 0; /* h is in natural order */
    }
    if (parts->kind == EXL2__MATRIX_DENSE) {
        return EXL2_OK;
    }
    out->order.apart = exl2__cuda_orders_differ(parts, count);
    for (uint32_t i = 0; i < (out->order.apart ? count : 1); i++) {
        EXL2__TRY(exl2__cuda_make_map(m, &parts[i], map, &out->order.inputs[i]));
    }
    return EXL2_OK;
}

/* The table that says which column of the file is stored at each place; 0: none is moved. */
static inline uint64_t exl2__cuda_columns_from(const exl2__cuda_model *m, const exl2__cuda_matrix *matrix)
{
    return matrix->order.by_down ? m->down.device : 0;
}

/* Lets a kernel of shuffle.cu read the columns of the device. bytes: of so many columns in a row of the source. */
static inline void exl2__cuda_shuffle_from(exl2k_shuffle_args *a, uint32_t first, uint32_t columns, uint32_t bytes)
{
    if (a->columns_from) {
        a->columns_from += first * sizeof(uint16_t);
    } else {
        a->source += (uint64_t)first / columns * bytes;
        a->zeros += (uint64_t)first / columns * bytes;
    }
}

/* Writes the scale words of a part, whose chunk table lies on the device. */
EXL2__PRIVATE exl2_result exl2__cuda_make_scales(exl2__cuda_model *m, const exl2__matrix_desc *desc,
                                                 const exl2__cuda_layout *l, const exl2k_part *part,
                                                 exl2__cuda_cut cut, uint64_t columns_from)
{
    bool affine = desc->kind == EXL2__MATRIX_AFFINE;
    uint64_t entries = (uint64_t)desc->group_count * desc->out_stored, group_bytes = l->count * sizeof *l->group_of;
    uint64_t scale_bytes = affine ? entries * sizeof(uint16_t) : entries / 2;
    uint64_t zeros_at = exl2__align_up(scale_bytes, 16);
    uint64_t groups_at = affine ? 2 * zeros_at : zeros_at;
    EXL2__TRY(exl2__cuda_staging_reserve(m, groups_at + group_bytes));
    EXL2__TRY(exl2__cuda_upload(m, m->staging, affine ? (const void *)desc->scales : desc->scale_codes, scale_bytes));
    if (affine) {
        EXL2__TRY(exl2__cuda_upload(m, m->staging + zeros_at, desc->zeros, scale_bytes));
    }
    EXL2__TRY(exl2__cuda_upload(m, m->staging + groups_at, l->group_of, group_bytes));
    exl2k_shuffle_args a = { .source = m->staging, .zeros = m->staging + zeros_at, .base = part->base,
                             .chunks = part->chunks, .group_of = m->staging + groups_at,
                             .columns_from = columns_from, .pitch = part->pitch, .columns = desc->out_stored };
    exl2__cuda_shuffle_from(&a, cut.first, 8, affine ? 8 * sizeof(uint16_t) : sizeof(uint32_t));
    exl2__cuda_grid grid = { .x = cut.strips, .y = l->count, .threads = affine ? EXL2K_AFFINE_THREADS : 32 };
    return grid.x == 0 ? EXL2_OK : exl2__cuda_device_launch(m->gpu, affine ? EXL2__KERNEL_exl2k_shuffle_affine
                                                   : EXL2__KERNEL_exl2k_shuffle_scales, grid, &a);
}

/* Uploads the bias of a part, in the order of its columns. */
EXL2__PRIVATE exl2_result exl2__cuda_make_bias(exl2__cuda_model *m, const exl2__matrix_desc *desc, exl2__cuda_cut cut,
                                               bool by_down, exl2k_u64 *out)
{
    uint64_t bytes = cut.columns * sizeof(float);
    void *slot;
    *out = exl2__cuda_arena_take(&m->weights, bytes);
    if (!by_down) {
        return exl2__cuda_upload(m, *out, desc->bias + cut.first, bytes);
    }
    EXL2__TRY(exl2__cuda_ring_take(m->gpu, &m->ring, bytes, true, &slot)); /* 256 KB at most: a slot is larger */
    for (uint32_t i = 0; i < cut.columns; i++) {
        ((float *)slot)[i] = desc->bias[exl2__cuda_order_in_file(&m->down, cut.first + i)];
    }
    return exl2__cuda_ring_send(m->gpu, &m->ring, *out, bytes);
}

/* Makes the chunk table, the bias and the scale words of a part whose strips begin at device.part[index].base. */
EXL2__PRIVATE exl2_result exl2__cuda_make_part(exl2__cuda_model *m, const exl2__matrix_desc *desc, uint32_t index,
                                               const exl2__cuda_layout *l, exl2__cuda_matrix *out)
{
    exl2k_part *part = &out->device.part[index];
    uint64_t table_bytes = l->count * sizeof(exl2k_chunk);
    part->chunks = out->chunks ? out->chunks + index * out->chunks_step
                               : exl2__cuda_arena_take(&m->weights, table_bytes);
    EXL2__TRY(exl2__cuda_upload(m, part->chunks, l->chunks, table_bytes));
    if (desc->has_bias) {
        EXL2__TRY(exl2__cuda_make_bias(m, desc, out->cut[index], out->order.by_down, &part->bias));
    }
    if (desc->kind == EXL2__MATRIX_DENSE) {
        return EXL2_OK;
    }
    return exl2__cuda_make_scales(m, desc, l, part, out->cut[index], exl2__cuda_columns_from(m, out));
}

/* Allocates the strips of all parts, whose layouts are complete, and makes the parts. */
EXL2__PRIVATE exl2_result exl2__cuda_make_strips(exl2__cuda_model *m, const exl2__matrix_desc *parts, uint32_t count,
                                                 const exl2__cuda_layout *l, exl2__cuda_matrix *out)
{
    uint64_t bytes = 0, pair = count == 2 ? l[0].bytes + l[1].bytes : 0, at[EXL2K_PARTS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        exl2k_part *part = &out->device.part[i];
        part->pitch = (exl2k_u32)(count == 2 ? pair : l[i].bytes);
        part->strips = out->cut[i].strips;
        part->columns = out->cut[i].columns;
        part->column = i ? part[-1].column + part[-1].columns : count == 1 ? out->cut[i].first : 0;
        part->chunk_count = l[i].count;
        memcpy(part->slice, l[i].entries, sizeof part->slice);
        at[i] = count == 2 ? (i ? l[0].bytes : 0) : bytes;
        bytes += l[i].bytes * part->strips;
        out->device.strips += part->strips;
        out->device.widths |= l[i].widths;
        out->chunk_bytes = exl2__max32(out->chunk_bytes, l[i].chunk_bytes_max);
    }
    exl2__cuda_matrix_firsts(&out->device);
    uint64_t strips = exl2__cuda_arena_take(&m->weights, bytes);
    for (uint32_t i = 0; i < count; i++) {
        out->device.part[i].base = strips + at[i];
        EXL2__TRY(exl2__cuda_make_part(m, &parts[i], i, &l[i], out));
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_make_product(exl2__cuda_model *m, const exl2__matrix_desc *parts, uint32_t count,
                                                  exl2__cuda_matrix *out)
{
    exl2__cuda_layout l[EXL2K_PARTS_MAX];
    uint64_t entries = 0;
    exl2__cuda_slicing slicing = exl2__cuda_slicing_of(parts, count, &m->limits);
    for (uint32_t i = 0; i < count; i++) {
        entries += exl2__cuda_layout_chunks_max(parts[i].in);
    }
    EXL2__TRY(exl2__cuda_making_reserve(m, exl2__cuda_making_bytes(parts->in, count), &m->making, &m->making_bytes));
    out->order.by_down = parts->uses & EXL2__USE_UP && parts->kind != EXL2__MATRIX_DENSE && m->down.count > 0;
    EXL2__ASSERT(!out->order.by_down || m->down.count == parts->out_stored);
    exl2k_chunk *chunks = (exl2k_chunk *)m->making;
    uint16_t(*group_of)[8] = (uint16_t(*)[8])(void *)(chunks + entries);
    uint16_t *map = (uint16_t *)(void *)(group_of + entries);
    out->device = (exl2k_matrix){ .parts = count, .interleaved = count == 2, .slices = slicing.slices,
                                  .rest = slicing.rest, .rows = parts->in };
    for (uint32_t i = 0; i < count; i++) {
        exl2__cuda_layout_part(&l[i], &parts[i], slicing, m->limits.chunk_bytes, chunks, group_of);
        out->feed[i].chunks = l[i].count;
        out->chain_count = count == 1 && !out->affine ? exl2__cuda_layout_chain(&l[i], chunks, out->chain) : 0;
        for (uint32_t k = 0; k < l[i].count && parts[i].kind != EXL2__MATRIX_DENSE; k++) {
            m->ends[i][k] = (uint16_t)(k + 1 < l[i].count ? chunks[k + 1].word : parts[i].words);
        }
        chunks += exl2__cuda_layout_chunks_max(parts[i].in);
        group_of += exl2__cuda_layout_chunks_max(parts[i].in);
    }
    EXL2__TRY(exl2__cuda_make_maps(m, parts, count, map, out));
    return exl2__cuda_make_strips(m, parts, count, l, out);
}

/* The record of a matrix, with what feeding it needs. */
EXL2__PRIVATE exl2__cuda_matrix exl2__cuda_matrix_record(const exl2__cuda_model *m, const exl2__matrix_desc *parts,
                                                         uint32_t count)
{
    exl2__cuda_matrix record = { .in = parts->in, .affine = parts->kind == EXL2__MATRIX_AFFINE,
                                 .pitch = (uint32_t)exl2__align_up(parts->in, 64) + EXL2__CUDA_SPARE };
    for (uint32_t i = 0; i < count; i++) {
        const exl2__matrix_desc *d = &parts[i];
        record.cut[i] = exl2__cuda_cut_of(m, d);
        record.feed[i] = (exl2__cuda_feed){ .dense = d->kind == EXL2__MATRIX_DENSE, .out = record.cut[i].columns,
                                           .out_stored = d->out_stored, .rows = exl2__weights_rows(d),
                                           .row_bytes = exl2__weights_row_bytes(d) };
        bool awq = d->kind == EXL2__MATRIX_AFFINE && d->affine.awq;
        record.feed[i].type = awq                      ? EXL2K_FROM_AWQ
                               : d->dtype == EXL2__F16  ? EXL2K_FROM_F16
                               : d->dtype == EXL2__BF16 ? EXL2K_FROM_BF16
                                                        : EXL2K_FROM_F32;
    }
    return record;
}

#endif

/* cuda_make_experts.h: makes the matrices of layers with experts: the router, and one record for a layer's experts.
   takes: checked matrix descriptions, a layer's `down` of expert 0 first; the context must be current.
   gives: exl2__cuda_make_router, exl2__cuda_expert_build, exl2__cuda_experts_close.
   owns:  the records, until exl2__cuda_experts_close. */
#ifndef EXL2__CUDA_MAKE_EXPERTS_H
#define EXL2__CUDA_MAKE_EXPERTS_H

#include "cuda_make_exl3.h"

#ifndef EXL2_NO_MOE

/* A router stays in natural order and in the type of the file: its products are computed in f32. */
EXL2__PRIVATE exl2_result exl2__cuda_make_router(exl2__cuda_model *m, const exl2__matrix_desc *parts, uint32_t count,
                                                 exl2__cuda_matrix *out)
{
    for (uint32_t i = 0; i < count; i++) {
        if (parts[i].kind != EXL2__MATRIX_DENSE) {
            return exl2__fail(m->c, EXL2_ERR_UNSUPPORTED, "the CUDA backend does not compute quantized routers, and %s "
                              "is one; EXL2_BACKEND_CPU does", parts[i].name);
        }
        out->tables[i] = exl2__cuda_arena_take(&m->weights, parts[i].out * exl2__weights_row_bytes(&parts[i]));
        if (parts[i].has_bias) {
            uint64_t bytes = parts[i].out * sizeof(float);
            out->bias[i] = exl2__cuda_arena_take(&m->weights, bytes);
            EXL2__TRY(exl2__cuda_upload(m, out->bias[i], parts[i].bias, bytes));
        }
    }
    return EXL2_OK;
}

/* Makes the record of a layer, whose first matrix is `down` of expert 0. */
EXL2__PRIVATE exl2_result exl2__cuda_experts_open(exl2__cuda_model *m, const exl2__matrix_desc *down,
                                                  exl2__cuda_experts **out)
{
    void *memory;
    bool codes = down->kind == EXL2__MATRIX_EXL2 || down->kind == EXL2__MATRIX_AFFINE;
    uint64_t first_bytes = codes ? down->out * sizeof(uint16_t) : 0;
    EXL2__TRY(exl2__alloc(m->c, sizeof(exl2__cuda_experts) + first_bytes, 16, EXL2_MEM_GENERAL, &memory));
    exl2__cuda_experts *e = *out = (exl2__cuda_experts *)memory;
    *e = (exl2__cuda_experts){ .next = m->experts, .count = down->experts, .first_bytes = first_bytes,
                               .affine = down->kind == EXL2__MATRIX_AFFINE,
                               .exl3 = exl2__matrix_is_exl3(down->kind), .streamed = down->streamed,
                               .table_chunks = exl2__cuda_expert_chunks(down) };
    m->experts = e;
    if (e->exl3) {
        uint64_t parts = (uint64_t)e->count * EXL2K_EXL3_EXPERT_PARTS;
        e->device = exl2__cuda_arena_take(&m->weights, parts * sizeof(exl2k_exl3_part));
        return EXL2_OK;
    }
    uint64_t tables = (uint64_t)e->count * EXL2K_EXPERT_PARTS * e->table_chunks * sizeof(exl2k_chunk);
    e->device = exl2__cuda_arena_take(&m->weights, e->count * sizeof(exl2k_expert));
    e->tables = exl2__cuda_arena_take(&m->weights, tables);
    e->first = first_bytes ? (uint16_t *)(void *)(e + 1) : NULL;
    return EXL2_OK;
}

/* Whether the inputs of up are ordered as those of expert 0, whose table this function writes. */
EXL2__PRIVATE bool exl2__cuda_experts_alike(const exl2__cuda_experts *e, const exl2__matrix_desc *up)
{
    bool dense = up->kind == EXL2__MATRIX_DENSE, alike = dense == (e->first == NULL);
    for (uint32_t i = 0; alike && !dense && i < up->in; i++) {
        uint16_t place = exl2__cuda_order_in_memory(up, i);
        e->first[i] = up->expert == 0 ? place : e->first[i];
        alike = e->first[i] == place;
    }
    return alike;
}

#if EXL2__EXL3
/* Makes a matrix of an expert in EXL3, and writes the descriptions of its parts into the layer's array. */
EXL2__PRIVATE exl2_result exl2__cuda_make_expert_exl3(exl2__cuda_model *m, const exl2__matrix_desc *parts,
                                                      uint32_t count, exl2__cuda_experts *e)
{
    bool down = exl2__cuda_is_down(parts);
    uint32_t first = down ? EXL2K_EXL3_EXPERT_PARTS - 1 : 0;
    e->now = exl2__cuda_matrix_record(m, parts, count);
    e->now.exl3.parts = count;
    e->parts = down ? e->parts : count;
    for (uint32_t i = 0; i < count; i++) {
        exl2k_exl3_part *part = &e->now.exl3.part[i];
        uint64_t at = (uint64_t)parts->expert * EXL2K_EXL3_EXPERT_PARTS + first + i;
        EXL2__TRY(exl2__cuda_exl3_part(m, &parts[i], e->now.cut[i], 0, part));
        EXL2__TRY(exl2__cuda_upload(m, e->device + at * sizeof *part, part, sizeof *part));
        e->books[first + i] |= (uint8_t)(1u << part->book);
    }
    return EXL2_OK;
}
#endif

/* Keeps the order of inputs of a `down` in host memory, for adapters. */
EXL2__PRIVATE void exl2__cuda_experts_keep(exl2__cuda_model *m, const exl2__matrix_desc *down, exl2__cuda_experts *e)
{
    uint64_t all = (uint64_t)e->count * down->in;
    bool first = down->expert == 0 && down->kind != EXL2__MATRIX_DENSE;
    if (first && m->orders_max - m->orders_used >= all) {
        e->downs = m->orders + m->orders_used;
        m->orders_used += all;
    }
    for (uint32_t i = 0; e->downs && i < down->in; i++) {
        uint16_t *order = m->orders + (e->downs - m->orders) + (size_t)down->expert * down->in;
        order[i] = exl2__cuda_order_in_memory(down, i);
    }
}

/* Makes a matrix of an expert, and writes its description into the layer's array. */
EXL2__PRIVATE exl2_result exl2__cuda_make_expert(exl2__cuda_model *m, const exl2__matrix_desc *parts, uint32_t count,
                                                 exl2__cuda_experts *e)
{
    bool down = exl2__cuda_is_down(parts);
    EXL2__ASSERT(e->exl3 == exl2__matrix_is_exl3(parts->kind)); /* exl2__weights_check_experts */
#if EXL2__EXL3
    if (e->exl3) {
        return exl2__cuda_make_expert_exl3(m, parts, count, e);
    }
#endif
    if (e->affine != (parts->kind == EXL2__MATRIX_AFFINE)) {
        return exl2__fail(m->c, EXL2_ERR_UNSUPPORTED, "the CUDA backend does not compute layers with some experts in "
                          "GPTQ or AWQ and others not, such as %s; EXL2_BACKEND_CPU does", parts->name);
    }
    uint64_t expert = e->device + parts->expert * sizeof(exl2k_expert);
    e->now = exl2__cuda_matrix_record(m, parts, count);
    e->now.chunks_step = e->table_chunks * sizeof(exl2k_chunk);
    e->now.chunks = e->tables + (parts->expert * EXL2K_EXPERT_PARTS + (down ? 2u : 0u)) * e->now.chunks_step;
    EXL2__TRY(exl2__cuda_make_product(m, parts, count, &e->now));
    if (e->now.order.apart) {
        return exl2__fail(m->c, EXL2_ERR_UNSUPPORTED, "the CUDA backend does not compute experts whose gate and up "
                          "order their inputs differently, as in %s; EXL2_BACKEND_CPU does", parts->name);
    }
    for (uint32_t i = 0; i < count; i++) {
        e->chunks[down] = exl2__max32(e->chunks[down], e->now.device.part[i].chunk_count);
    }
    e->chunk_bytes[down] = exl2__max32(e->chunk_bytes[down], e->now.chunk_bytes);
    if (down) {
        exl2__cuda_experts_keep(m, parts, e);
        return exl2__cuda_upload(m, expert + offsetof(exl2k_expert, down), &e->now.device, sizeof e->now.device);
    }
    e->parts = count;
    e->order.inputs[0] = parts->expert == 0 ? e->now.order.inputs[0] : e->order.inputs[0];
    e->order.apart = e->order.apart || !exl2__cuda_experts_alike(e, parts);
    EXL2__TRY(exl2__cuda_upload(m, expert + offsetof(exl2k_expert, up), &e->now.device, sizeof e->now.device));
    return exl2__cuda_upload(m, expert + offsetof(exl2k_expert, up_map), e->now.order.inputs, sizeof(exl2k_u64));
}

EXL2__PRIVATE void exl2__cuda_experts_close(exl2__cuda_model *m)
{
    while (m->experts) {
        exl2__cuda_experts *next = m->experts->next;
        exl2__free(m->c, m->experts, sizeof *m->experts + m->experts->first_bytes, EXL2_MEM_GENERAL);
        m->experts = next;
    }
}

EXL2__PRIVATE exl2_result exl2__cuda_expert_build(exl2__cuda_model *m, const exl2__matrix_desc *parts, uint32_t count,
                                                  exl2__matrix **out)
{
    exl2__cuda_experts *e = m->experts;
    if (parts->expert == 0 && exl2__cuda_is_down(parts)) {
        EXL2__TRY(exl2__cuda_experts_open(m, parts, &e));
    }
    *out = (exl2__matrix *)(void *)e;
    return exl2__cuda_make_expert(m, parts, count, e);
}
#endif

#endif

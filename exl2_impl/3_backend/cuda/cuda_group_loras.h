/* cuda_group_loras.h: adapters of a model that several GPUs share by columns: each has A, and the part of B that adds
   to its columns.
   takes: a group; an adapter's matrices and its table.
   gives: exl2__cuda_group_loras.
   owns:  a block of each adapter on each GPU, until `close`.

   So each GPU computes t = factor A x alike, and B t of its own columns, each of which is one sum on one GPU. */
#ifndef EXL2__CUDA_GROUP_LORAS_H
#define EXL2__CUDA_GROUP_LORAS_H

#include "cuda_group_members.h"

EXL2__PRIVATE void exl2__cuda_group_lora_close(exl2__device *device, uint64_t block, uint64_t bytes)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    exl2__cuda_lora_block **at = &g->lora_blocks;
    (void)bytes;
    while (*at && (*at)->of[0] != block) {
        at = &(*at)->next;
    }
    exl2__cuda_lora_block *found = *at;
    for (uint32_t i = 0; found && i < g->count; i++) {
        if (found->of[i]) {
            exl2__cuda_lora_close(g->of[i], found->of[i], found->bytes);
        }
    }
    if (found) {
        *at = found->next;
        exl2__free(g->c, found, sizeof *found, EXL2_MEM_GENERAL);
    }
}

EXL2__PRIVATE exl2_result exl2__cuda_group_lora_open(exl2__device *device, uint64_t bytes, uint64_t *out)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    void *memory;
    *out = 0;
    EXL2__TRY(exl2__alloc(g->c, sizeof(exl2__cuda_lora_block), 16, EXL2_MEM_GENERAL, &memory));
    exl2__cuda_lora_block *block = (exl2__cuda_lora_block *)memory;
    *block = (exl2__cuda_lora_block){ .next = g->lora_blocks, .bytes = bytes };
    g->lora_blocks = block;
    exl2_result r = EXL2_OK;
    for (uint32_t i = 0; i < g->count && r >= 0; i++) {
        r = exl2__cuda_lora_open(g->of[i], bytes, &block->of[i]);
    }
    if (r < 0) {
        exl2__cuda_group_lora_close(device, block->of[0], bytes);
        return r;
    }
    *out = block->of[0];
    return EXL2_OK;
}

EXL2__PRIVATE uint32_t exl2__cuda_group_lora_copies(const exl2__device *device)
{
    return exl2__cuda_group_of(device)->count;
}

EXL2__PRIVATE exl2_result exl2__cuda_group_lora_write(exl2__device *device, uint64_t at, const void *data,
                                                      uint64_t bytes)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    for (uint32_t i = 0; i < g->count; i++) {
        uint64_t own = exl2__cuda_lora_own(exl2__cuda_of(g->of[i]), at);
        EXL2__TRY(exl2__cuda_lora_write(g->of[i], own, data, bytes));
    }
    return EXL2_OK;
}

/* A member's rows of B are as long as its columns. */
EXL2__PRIVATE exl2_result exl2__cuda_group_lora_write_b(exl2__device *device, uint64_t at, const uint16_t *b,
                                                        uint32_t rank, uint32_t stride, exl2__operand of, uint32_t part)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    for (uint32_t i = 0; i < g->count; i++) {
        const exl2__cuda_model *m = exl2__cuda_of(g->of[i]);
        const exl2__shape *s = &g->plans[i].shape;
        const exl2__cuda_cut *cut = &exl2__cuda_matrix_of(exl2__cuda_group_matrix(of.matrix, i))->cut[part];
        exl2__columns_run own = { cut->first, cut->columns };
        if (of.role >= EXL2__ROLE_SINGLES) {
            uint32_t columns = of.role == EXL2__ROLE_EXPERT_UP ? s->experts.inter : s->hidden;
            own = exl2__columns_of(&m->columns, columns, s->columns_unit);
        }
        uint64_t to = exl2__cuda_lora_own(m, at), bytes = exl2__lora_b_stride(own.count) * sizeof *b;
        for (uint32_t k = 0; k < rank && bytes > 0; k++) {
            EXL2__TRY(exl2__cuda_lora_write(g->of[i], to + k * bytes, b + (size_t)k * stride + own.first, bytes));
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_group_lora_write_table(exl2__device *device, uint64_t at,
                                                            const exl2__lora_matrix *table, uint64_t bytes)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    void *memory;
    EXL2__TRY(exl2__alloc(g->c, bytes, 16, EXL2_MEM_STAGING, &memory));
    exl2__lora_matrix *own = (exl2__lora_matrix *)memory;
    exl2_result r = EXL2_OK;
    for (uint32_t i = 0; i < g->count && r >= 0; i++) {
        const exl2__cuda_model *m = exl2__cuda_of(g->of[i]);
        memcpy(own, table, (size_t)bytes);
        for (uint64_t k = 0; k < bytes / sizeof *own; k++) {
            own[k].a = own[k].rank ? exl2__cuda_lora_own(m, own[k].a) : 0;
            own[k].b = own[k].rank ? exl2__cuda_lora_own(m, own[k].b) : 0;
        }
        r = exl2__cuda_lora_write(g->of[i], exl2__cuda_lora_own(m, at), own, bytes);
    }
    exl2__free(g->c, memory, bytes, EXL2_MEM_STAGING);
    return r;
}

/* All members order inputs and outputs alike. */
EXL2__PRIVATE exl2_result exl2__cuda_group_lora_order(const exl2__device *device, exl2__operand of, uint32_t part,
                                                      uint32_t *in_at, uint32_t *out_at)
{
    const exl2__cuda_group *g = exl2__cuda_group_of(device);
    of.matrix = exl2__cuda_group_matrix(of.matrix, 0);
    of.layer = &g->plans[0].layers[of.layer->index];
    return exl2__cuda_lora_order(g->of[0], of, part, in_at, out_at);
}

static const exl2__backend_loras exl2__cuda_group_loras = {
    .rows = EXL2__CUDA_LORA_ROWS, .open = exl2__cuda_group_lora_open, .close = exl2__cuda_group_lora_close,
    .write = exl2__cuda_group_lora_write, .copies = exl2__cuda_group_lora_copies,
    .write_b = exl2__cuda_group_lora_write_b, .write_table = exl2__cuda_group_lora_write_table,
    .order = exl2__cuda_group_lora_order,
};

#endif

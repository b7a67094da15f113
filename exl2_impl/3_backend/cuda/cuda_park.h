/* cuda_park.h: gives back the device memory of a model, and fills it again from a copy of the packed weights in pinned
   host memory.
   takes: a loaded model.
   gives: exl2__cuda_release; exl2__cuda_keep_packed, exl2__cuda_drop, exl2__cuda_restore of the backend.
   owns:  the copy, until exl2__cuda_packed_free.

   The weights may come back at another address, so every address of theirs is moved: in the records of matrices and
   norms, and in the descriptions of experts, which lie among the weights themselves. */
#ifndef EXL2__CUDA_PARK_H
#define EXL2__CUDA_PARK_H

#include "cuda_tier.h"

#define EXL2__CUDA_PACKED_BYTES (16u << 20) /* of a block of the copy: pinning and copying one needs about 5 ms */

/* Gives back all memory of the model that the driver allocated, pinned memory included, but the copy of the weights.
   Waits for the device. */
EXL2__PRIVATE void exl2__cuda_release(exl2__cuda_model *m)
{
    exl2__cuda_device *gpu = m->gpu;
    bool entered = gpu->driver.context_push(gpu->context) == 0;
    gpu->driver.stream_wait(gpu->stream);
    exl2__cuda_streamed_release(m);
    exl2__cuda_ring_close(gpu, &m->ring);
    exl2__cuda_unpin(gpu, m->b.results, m->results_bytes);
    exl2__cuda_graphs_close(m);
    exl2__cuda_timing_close(gpu, &m->timing);
    exl2__cuda_cross_close(m);
    for (uint32_t i = 0; i < EXL2__COUNT(m->b.fences); i++) {
        if (m->b.fences[i]) {
            gpu->driver.event_free(m->b.fences[i]);
        }
    }
#ifndef EXL2_NO_VISION
    if (m->tower.done) {
        gpu->driver.event_free(m->tower.done);
    }
    if (m->tower.queued) {
        gpu->driver.event_free(m->tower.queued);
    }
    if (m->tower.held) {
        gpu->driver.host_unregister(m->tower.held);
    }
    m->tower.done = m->tower.queued = NULL;
    m->tower.down = NULL;
    m->tower.held = NULL;
    m->tower.active = false;
#endif
    exl2__cuda_tier_close(m);
    exl2__cuda_making_close(m);
    exl2__cuda_arena_close(gpu, &m->pass_memory);
    exl2__cuda_arena_close(gpu, &m->weights);
    m->results_bytes = 0;
    m->fences_queued = m->fences_collected = 0;
    memset(&m->b, 0, sizeof m->b);
    if (entered) {
        exl2__cuda_device_leave(gpu);
    }
}

EXL2__PRIVATE void exl2__cuda_packed_free(exl2__cuda_model *m)
{
    uint32_t blocks = (uint32_t)exl2__div_up(m->packed_size, EXL2__CUDA_PACKED_BYTES);
    bool entered = m->packed && m->gpu->driver.context_push(m->gpu->context) == 0;
    for (uint32_t i = 0; m->packed && i < blocks; i++) {
        uint64_t left = m->packed_size - (uint64_t)i * EXL2__CUDA_PACKED_BYTES;
        exl2__cuda_unpin(m->gpu, m->packed[i], exl2__min64(left, EXL2__CUDA_PACKED_BYTES));
    }
    if (entered) {
        exl2__cuda_device_leave(m->gpu);
    }
    exl2__free(m->c, m->packed, blocks * sizeof *m->packed, EXL2_MEM_GENERAL);
    m->packed = NULL;
}

/* Copies the block at packed_done between host and device, and waits for it. */
EXL2__PRIVATE exl2_result exl2__cuda_packed_copy(exl2__cuda_model *m, bool down)
{
    const exl2__cuda_driver *driver = &m->gpu->driver;
    uint64_t bytes = exl2__min64(m->packed_size - m->packed_done, EXL2__CUDA_PACKED_BYTES);
    uint64_t address = m->weights.base + m->packed_done;
    void **block = &m->packed[m->packed_done / EXL2__CUDA_PACKED_BYTES];
    if (down) {
        EXL2__TRY(exl2__cuda_pin(m->gpu, bytes, block));
    }
    int result = down ? driver->copy_down(*block, address, (size_t)bytes, m->gpu->stream)
                      : driver->copy_up(address, *block, (size_t)bytes, m->gpu->stream);
    result = result == 0 ? driver->stream_wait(m->gpu->stream) : result;
    EXL2__TRY(exl2__cuda_device_check(m->gpu, result, "copying weights"));
    m->packed_done += bytes;
    return EXL2_OK;
}

/* Copies blocks as far as the work lasts. */
EXL2__PRIVATE exl2_result exl2__cuda_packed_slice(exl2__cuda_model *m, bool down, exl2__work *work)
{
    while (m->packed_done < m->packed_size) {
        if (!exl2__work_spend_all(work)) {
            return EXL2_PENDING;
        }
        EXL2__TRY(exl2__cuda_device_enter(m->gpu));
        EXL2__TRY(exl2__cuda_device_leave_with(m->gpu, exl2__cuda_packed_copy(m, down)));
    }
    return EXL2_OK;
}

/* Makes the copy, block by block (PENDING), once all weights are packed. */
EXL2__PRIVATE exl2_result exl2__cuda_keep_packed(exl2__device *device, exl2__work *work)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    if (!m->packed) {
        void *memory;
        uint64_t bytes = exl2__div_up(m->weights.used, EXL2__CUDA_PACKED_BYTES) * sizeof *m->packed;
        EXL2__TRY(exl2__alloc(m->c, bytes, 16, EXL2_MEM_GENERAL, &memory));
        memset(memory, 0, (size_t)bytes);
        m->packed = (void **)memory;
        m->packed_size = m->weights.used;
        m->packed_base = m->weights.base;
        m->packed_done = 0;
    }
    return exl2__cuda_packed_slice(m, true, work);
}

EXL2__PRIVATE void exl2__cuda_drop(exl2__device *device)
{
    exl2__cuda_release(exl2__cuda_of(device));
}

/* ---- addresses ---- */

static inline void exl2__cuda_move(uint64_t *address, uint64_t by)
{
    *address += *address ? by : 0;
}

/* The same for an address that kernels read. */
static inline void exl2__cuda_move_read(exl2k_u64 *address, uint64_t by)
{
    *address += *address ? by : 0;
}

EXL2__PRIVATE void exl2__cuda_move_product(exl2k_matrix *matrix, uint64_t by)
{
    for (uint32_t i = 0; i < matrix->parts; i++) {
        exl2__cuda_move_read(&matrix->part[i].base, by);
        exl2__cuda_move_read(&matrix->part[i].chunks, by);
        exl2__cuda_move_read(&matrix->part[i].bias, by);
    }
}

EXL2__PRIVATE void exl2__cuda_move_matrix(exl2__cuda_matrix *matrix, uint64_t by)
{
    exl2__cuda_move_product(&matrix->device, by);
    exl2__cuda_move(&matrix->table, by);
#if EXL2__EXL3
    exl2__cuda_move_exl3(&matrix->exl3, by);
#endif
    for (uint32_t i = 0; i < EXL2K_PARTS_MAX; i++) {
        exl2__cuda_move(&matrix->order.inputs[i], by);
        exl2__cuda_move(&matrix->tables[i], by);
        exl2__cuda_move(&matrix->bias[i], by);
    }
}

#ifndef EXL2_NO_MOE
/* Copies bytes at an offset of memory in blocks; they may lie in several. One of `out` and `in` is NULL. */
EXL2__PRIVATE void exl2__cuda_blocks_access(void *const *blocks, uint64_t block_bytes, uint64_t at, uint64_t bytes,
                                            uint8_t *out, const uint8_t *in)
{
    while (bytes) {
        uint64_t in_block = at % block_bytes, part = exl2__min64(bytes, block_bytes - in_block);
        uint8_t *block = (uint8_t *)blocks[at / block_bytes] + in_block;
        memcpy(out ? out : block, out ? block : in, (size_t)part);
        out += out ? part : 0;
        in += in ? part : 0;
        at += part;
        bytes -= part;
    }
}

/* Copies bytes at an offset of the descriptions of a layer's experts. They lie in the copy, or in a part that is
   streamed to an area of the weights. */
EXL2__PRIVATE void exl2__cuda_experts_access(exl2__cuda_model *m, const exl2__cuda_experts *e, uint64_t at,
                                             uint64_t bytes, uint8_t *out, const uint8_t *in)
{
    uint64_t from = e->device - m->packed_base + at; /* in the weights */
    if (e->streamed == 0) {
        exl2__cuda_blocks_access(m->packed, EXL2__CUDA_PACKED_BYTES, from, bytes, out, in);
        return;
    }
    uint32_t part = e->streamed - 1;
    uint64_t in_part = from - (m->streamed.area[part % 2] - m->weights.base);
    exl2__cuda_blocks_access(m->streamed.parts[part].blocks, EXL2__CUDA_STREAMED_BLOCK, in_part, bytes, out, in);
}

#if EXL2__EXL3
/* The parts of a layer's experts in EXL3, in the copy. */
EXL2__PRIVATE void exl2__cuda_move_experts_exl3(exl2__cuda_model *m, exl2__cuda_experts *e, uint64_t by)
{
    for (uint64_t i = 0; i < (uint64_t)e->count * EXL2K_EXL3_EXPERT_PARTS; i++) {
        exl2__cuda_exl3 one = { .parts = 1 };
        uint64_t at = i * sizeof one.part[0];
        exl2__cuda_experts_access(m, e, at, sizeof one.part[0], (uint8_t *)one.part, NULL);
        exl2__cuda_move_exl3(&one, by);
        exl2__cuda_experts_access(m, e, at, sizeof one.part[0], NULL, (const uint8_t *)one.part);
    }
    exl2__cuda_move(&e->device, by);
}
#endif

/* The descriptions of a layer's experts, in the copy. */
EXL2__PRIVATE void exl2__cuda_move_experts(exl2__cuda_model *m, exl2__cuda_experts *e, uint64_t by)
{
#if EXL2__EXL3
    if (e->exl3) {
        exl2__cuda_move_experts_exl3(m, e, by);
        return;
    }
#endif
    for (uint32_t i = 0; i < e->count; i++) {
        exl2k_expert expert;
        uint64_t at = i * sizeof expert;
        exl2__cuda_experts_access(m, e, at, sizeof expert, (uint8_t *)&expert, NULL);
        exl2__cuda_move_product(&expert.up, by);
        exl2__cuda_move_product(&expert.down, by);
        exl2__cuda_move_read(&expert.up_map, by);
        exl2__cuda_experts_access(m, e, at, sizeof expert, NULL, (const uint8_t *)&expert);
    }
    exl2__cuda_move(&e->device, by);
    exl2__cuda_move(&e->tables, by);
    exl2__cuda_move(&e->order.inputs[0], by);
}
#endif

EXL2__PRIVATE void exl2__cuda_move_all(exl2__cuda_model *m)
{
    uint64_t by = m->weights.base - m->packed_base; /* modulo 2^64 */
    for (exl2__cuda_matrix *matrix = m->matrices; matrix; matrix = matrix->next) {
        exl2__cuda_move_matrix(matrix, by);
    }
#ifndef EXL2_NO_MOE
    for (exl2__cuda_experts *e = m->experts; e; e = e->next) {
        exl2__cuda_move_experts(m, e, by);
    }
#endif
    for (exl2__cuda_vector *v = m->vectors; v; v = v->next) {
        exl2__cuda_move(&v->values, by);
    }
#ifndef EXL2_NO_VISION
    exl2__cuda_move(&m->tower.base, by);
#endif
    m->packed_base = m->weights.base;
}

/* After exl2__cuda_reserve: fills the weights from the copy, block by block (PENDING). */
EXL2__PRIVATE exl2_result exl2__cuda_restore(exl2__device *device, exl2__work *work)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    if (m->weights.used < m->packed_size) { /* no more than the areas of exl2__cuda_streamed */
        m->weights.used = m->packed_size;
        m->packed_done = 0;
        exl2__cuda_move_all(m);
    }
    return exl2__cuda_packed_slice(m, false, work);
}

#endif

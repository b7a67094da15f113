/* cuda_tier.h: a second tier of K and V in pinned host memory: slots that hold one page each.
   takes: a model whose memory is reserved; moves between pages and slots.
   gives: exl2__cuda_tier_open, _move, _ns of the backend; exl2__cuda_tier_close.
   owns:  the slots, until exl2__cuda_tier_close; they count as host bytes.

   A move is enqueued on the stream of the passes, after the moves before it: it reads a page after all passes before
   have written it, and fills one before the passes that follow read it. The thread waits for neither. */
#ifndef EXL2__CUDA_TIER_H
#define EXL2__CUDA_TIER_H

#include "cuda_prepare.h"

#define EXL2__CUDA_TIER_BYTES (16u << 20) /* of a block of slots: pinning one needs about 5 ms */

static inline uint64_t exl2__cuda_tier_slot_bytes(const exl2__plan *p)
{
    return (uint64_t)exl2__plan_span(p) * exl2__cuda_page_bytes(&p->shape, p->kv);
}

/* Gives the slots back. The context is current, and the stream has ended. */
EXL2__PRIVATE void exl2__cuda_tier_close(exl2__cuda_model *m)
{
    exl2__cuda_tier *t = &m->tier;
    for (uint32_t i = 0; i < t->block_count; i++) {
        uint32_t slots = exl2__min32(t->slots - i * t->block_slots, t->block_slots);
        exl2__cuda_unpin(m->gpu, t->blocks[i], slots * t->slot_bytes);
    }
    exl2__free(m->c, t->blocks, t->block_max * sizeof *t->blocks, EXL2_MEM_GENERAL);
    *t = (exl2__cuda_tier){ 0 };
}

/* Measures what the copy of a slot costs, by one of as many bytes of the weights. The first copy warms up. */
EXL2__PRIVATE exl2_result exl2__cuda_tier_time(exl2__cuda_model *m)
{
    exl2__cuda_tier *t = &m->tier;
    const exl2__cuda_driver *driver = &m->gpu->driver;
    uint64_t bytes = exl2__max64(exl2__min64(t->slot_bytes, m->weights.used), 1);
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t begin_ns = exl2__platform_ns();
        int result = driver->copy_down(t->blocks[0], m->weights.base, (size_t)bytes, m->gpu->stream);
        result = result == 0 ? driver->stream_wait(m->gpu->stream) : result;
        EXL2__TRY(exl2__cuda_device_check(m->gpu, result, "copying weights"));
        t->copy_ns = (exl2__platform_ns() - begin_ns) * exl2__max64(t->slot_bytes / bytes, 1);
    }
    return EXL2_OK;
}

/* Pins the next block. */
EXL2__PRIVATE exl2_result exl2__cuda_tier_block(exl2__cuda_model *m)
{
    exl2__cuda_tier *t = &m->tier;
    uint32_t slots = exl2__min32(t->slots - t->block_count * t->block_slots, t->block_slots);
    EXL2__TRY(exl2__cuda_pin(m->gpu, slots * t->slot_bytes, &t->blocks[t->block_count]));
    return t->block_count++ == 0 ? exl2__cuda_tier_time(m) : EXL2_OK;
}

/* As exl2__backend_memory.tier_open. */
EXL2__PRIVATE exl2_result exl2__cuda_tier_open(exl2__device *device, const exl2__plan *plan, uint32_t slots,
                                               exl2__work *work)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    exl2__cuda_tier *t = &m->tier;
    if (!t->blocks) {
        void *memory;
        uint64_t bytes = exl2__cuda_tier_slot_bytes(plan);
        uint32_t each = (uint32_t)exl2__max64(EXL2__CUDA_TIER_BYTES / bytes, 1);
        uint32_t most = (uint32_t)exl2__div_up(slots, each);
        EXL2__TRY(exl2__alloc(m->c, most * sizeof *t->blocks, 16, EXL2_MEM_GENERAL, &memory));
        *t = (exl2__cuda_tier){ .blocks = (void **)memory, .block_max = most, .block_slots = each, .slots = slots,
                                .slot_bytes = bytes };
    }
    while (t->block_count < t->block_max) {
        if (!exl2__work_spend_all(work)) {
            return EXL2_PENDING;
        }
        EXL2__TRY(exl2__cuda_device_enter(m->gpu));
        EXL2__TRY(exl2__cuda_device_leave_with(m->gpu, exl2__cuda_tier_block(m)));
    }
    return EXL2_OK;
}

#define EXL2__CUDA_PITCH_MAX INT32_MAX /* of rows that one call copies */

/* Enqueues the copy of a page, which lies in as many pieces as the span has layers: in one call, as a copy for each
   piece costs more than its bytes do. */
EXL2__PRIVATE int exl2__cuda_tier_copy(exl2__cuda_model *m, exl2__tier_move move)
{
    const exl2__cuda_tier *t = &m->tier;
    uint64_t bytes = m->b.page_bytes, pitch = m->plan->pages * bytes;
    uint32_t layers = exl2__plan_span(m->plan), rows = pitch <= EXL2__CUDA_PITCH_MAX ? layers : 1;
    uint8_t *slot = (uint8_t *)t->blocks[move.slot / t->block_slots] + move.slot % t->block_slots * t->slot_bytes;
    int result = 0;
    for (uint32_t layer = 0; layer < layers && result == 0; layer += rows) {
        uint64_t at = m->b.pages + layer * pitch + move.page * bytes;
        exl2__cuda_rows device = { .kind = EXL2__CUDA_MEMORY_DEVICE, .device = at,
                                   .pitch = (size_t)(rows > 1 ? pitch : bytes) };
        exl2__cuda_rows host = { .kind = EXL2__CUDA_MEMORY_HOST, .host = slot + layer * bytes,
                                 .pitch = (size_t)bytes };
        exl2__cuda_copy_rows copy = { .from = move.out ? device : host, .to = move.out ? host : device,
                                      .bytes = (size_t)bytes, .rows = rows };
        result = m->gpu->driver.copy_rows(&copy, m->gpu->stream);
    }
    return result;
}

/* As exl2__backend_memory.tier_move. */
EXL2__PRIVATE exl2_result exl2__cuda_tier_move(exl2__device *device, const exl2__tier_move *moves, uint32_t count)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    int result = 0;
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    for (uint32_t i = 0; i < count && result == 0; i++) {
        result = exl2__cuda_tier_copy(m, moves[i]);
    }
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_device_check(m->gpu, result, "copying K and V"));
}

/* As exl2__backend_memory.tier_ns: computing a page is 64 more rows of a prompt. */
EXL2__PRIVATE uint64_t exl2__cuda_tier_ns(const exl2__device *device, bool copy)
{
    const exl2__cuda_model *m = exl2__cuda_of(device);
    uint64_t layer = exl2__cuda_timing_ns(&m->timing, EXL2__CUDA_PASS_CLASSES - 1,
                                          exl2__cuda_read_ns(m, m->layer_bytes));
    return copy ? m->tier.copy_ns : layer * exl2__plan_span(m->plan);
}

#endif

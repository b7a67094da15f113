/* cuda_streamed.h: matrices that stay in pinned host memory, and come to two areas of device memory while a pass of
   prompts runs (exl2__streamed).
   takes: a plan with `streamed`; matrices of its parts, in the order of the file.
   gives: exl2__cuda_streamed_open, _close; _enter, _leave around the making of a matrix; exl2__cuda_keep_streamed of
          the backend; exl2__cuda_streamed_events, _release; _begin, _take, _done in a pass.
   owns:  the parts in host memory, until _close; events, until _release.

   The areas are the first bytes of the weights. A matrix is packed in its area as any other is in its place, so its
   record and its tables have addresses there; a complete part is then copied to host memory as it is. Tables by which
   other kernels write inputs for a matrix stay on the device: these kernels run before the part has arrived.

   In a pass, copies are enqueued on the stream `upload`: the first two parts with the first unit, and part i + 2 once
   the kernels that read part i are enqueued. Events order the two streams, and no thread waits. So gate and up of a
   layer arrive while attention and the down of the layer before are computed, and down arrives while gate and up are
   computed. */
#ifndef EXL2__CUDA_STREAMED_H
#define EXL2__CUDA_STREAMED_H

#include "cuda_model.h"

#define EXL2__CUDA_NO_PART UINT32_MAX

/* Host bytes of the lists of parts and blocks. */
static inline uint64_t exl2__cuda_streamed_lists(const exl2__plan *p)
{
    const exl2__streamed *s = &p->streamed;
    uint64_t blocks = s->host_bytes / EXL2__CUDA_STREAMED_BLOCK + s->parts;
    return s->parts * sizeof(exl2__cuda_part) + blocks * sizeof(void *);
}

/* Bytes of a block of a part. */
static inline uint64_t exl2__cuda_streamed_block(const exl2__cuda_part *p, uint64_t block)
{
    return exl2__min64(p->bytes - block * EXL2__CUDA_STREAMED_BLOCK, EXL2__CUDA_STREAMED_BLOCK);
}

/* ---- loading ---- */

/* Once the memory of the weights is open: takes the areas, and lists the parts, unless a parked model has kept them. */
EXL2__PRIVATE exl2_result exl2__cuda_streamed_open(exl2__cuda_model *m)
{
    exl2__cuda_streamed *s = &m->streamed;
    const exl2__streamed *plan = m->plan ? &m->plan->streamed : NULL;
    void *memory;
    if (!plan || plan->parts == 0) {
        return EXL2_OK;
    }
    for (uint32_t i = 0; i < 2; i++) {
        s->area[i] = exl2__cuda_arena_take(&m->weights, plan->area_bytes[i]);
    }
    if (s->parts) {
        return EXL2_OK;
    }
    uint64_t bytes = plan->parts * sizeof *s->parts;
    EXL2__TRY(exl2__alloc(m->c, bytes, 16, EXL2_MEM_GENERAL, &memory));
    memset(memory, 0, (size_t)bytes);
    s->parts = (exl2__cuda_part *)memory;
    s->count = plan->parts;
    return EXL2_OK;
}

/* Frees the parts. The device has ended all copies of them. */
EXL2__PRIVATE void exl2__cuda_streamed_close(exl2__cuda_model *m)
{
    exl2__cuda_streamed *s = &m->streamed;
    bool entered = s->parts && m->gpu->driver.context_push(m->gpu->context) == 0;
    for (uint32_t i = 0; i < s->count; i++) {
        exl2__cuda_part *p = &s->parts[i];
        uint64_t blocks = exl2__div_up(p->bytes, EXL2__CUDA_STREAMED_BLOCK);
        for (uint64_t block = 0; p->blocks && block < blocks; block++) {
            exl2__cuda_unpin(m->gpu, p->blocks[block], exl2__cuda_streamed_block(p, block));
        }
        exl2__free(m->c, p->blocks, p->blocks ? blocks * sizeof *p->blocks : 0, EXL2_MEM_GENERAL);
    }
    if (entered) {
        exl2__cuda_device_leave(m->gpu);
    }
    exl2__free(m->c, s->parts, s->count * sizeof *s->parts, EXL2_MEM_GENERAL);
    *s = (exl2__cuda_streamed){ 0 };
}

/* If the matrix has a part, its memory is taken from the area of that part until exl2__cuda_streamed_leave, in place of
   the memory of the weights. */
EXL2__PRIVATE void exl2__cuda_streamed_enter(exl2__cuda_model *m, const exl2__matrix_desc *parts)
{
    exl2__cuda_streamed *s = &m->streamed;
    if (parts->streamed == 0) {
        return;
    }
    uint32_t part = parts->streamed - 1;
    s->making = parts->streamed;
    s->rest = m->weights;
    m->weights = (exl2__cuda_arena){ .base = s->area[part % 2], .size = m->plan->streamed.area_bytes[part % 2],
                                     .used = s->parts[part].bytes, .tag = s->rest.tag };
}

EXL2__PRIVATE void exl2__cuda_streamed_leave(exl2__cuda_model *m, const exl2__matrix_desc *parts)
{
    exl2__cuda_streamed *s = &m->streamed;
    if (parts->streamed == 0) {
        return;
    }
    EXL2__ASSERT(m->weights.used <= m->weights.size);
    s->parts[parts->streamed - 1].bytes = m->weights.used;
    m->weights = s->rest;
    s->rest = (exl2__cuda_arena){ 0 };
}

/* The memory for tables that must be on the device all the time. */
static inline exl2__cuda_arena *exl2__cuda_streamed_rest(exl2__cuda_model *m)
{
    return m->streamed.rest.base ? &m->streamed.rest : &m->weights;
}

/* Copies the next block of the part that is made. */
EXL2__PRIVATE exl2_result exl2__cuda_streamed_keep(exl2__cuda_model *m, exl2__cuda_part *p, uint64_t from)
{
    uint64_t block = p->kept / EXL2__CUDA_STREAMED_BLOCK, bytes = exl2__cuda_streamed_block(p, block);
    exl2_result r = exl2__cuda_pin(m->gpu, bytes, &p->blocks[block]);
    if (r == EXL2_ERR_MEMORY) {
        return exl2__cuda_fail(m->c, r, EXL2__CUDA_OUT_OF_MEMORY, "the driver could not pin %llu bytes of host memory "
                               "for the MLPs with which the GPU computes rows of prompts; with "
                               "exl2_model_desc.host_prompts the CPU computes these",
                               (unsigned long long)m->plan->streamed.host_bytes);
    }
    EXL2__TRY(r);
    int copied = m->gpu->driver.copy_down(p->blocks[block], from + p->kept, (size_t)bytes, m->gpu->stream);
    p->kept += bytes;
    return exl2__cuda_device_check(m->gpu, copied, "copying weights");
}

EXL2__PRIVATE exl2_result exl2__cuda_keep_streamed(exl2__device *device, exl2__work *work)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    exl2__cuda_streamed *s = &m->streamed;
    EXL2__ASSERT(s->making > 0);
    exl2__cuda_part *p = &s->parts[s->making - 1];
    if (!p->blocks) {
        void *memory;
        uint64_t bytes = exl2__div_up(p->bytes, EXL2__CUDA_STREAMED_BLOCK) * sizeof *p->blocks;
        EXL2__TRY(exl2__alloc(m->c, bytes, 16, EXL2_MEM_GENERAL, &memory));
        memset(memory, 0, (size_t)bytes);
        p->blocks = (void **)memory;
    }
    while (p->kept < p->bytes) {
        if (!exl2__work_spend_all(work)) {
            return EXL2_PENDING;
        }
        EXL2__TRY(exl2__cuda_device_enter(m->gpu));
        exl2_result r = exl2__cuda_streamed_keep(m, p, s->area[(s->making - 1) % 2]);
        EXL2__TRY(exl2__cuda_device_leave_with(m->gpu, r));
    }
    s->making = 0;
    return EXL2_OK;
}

/* ---- passes ---- */

/* Makes what orders the copies. */
EXL2__PRIVATE exl2_result exl2__cuda_streamed_events(exl2__cuda_model *m)
{
    for (uint32_t i = 0; i < 4 && m->streamed.count; i++) {
        exl2__cuda_event **event = i < 2 ? &m->streamed.arrived[i] : &m->streamed.used[i - 2];
        int made = m->gpu->driver.event_make(event, EXL2__CUDA_EVENT_NO_TIMING);
        EXL2__TRY(exl2__cuda_device_check(m->gpu, made, "creating an event"));
    }
    return EXL2_OK;
}

/* Frees the events, once all copies have ended. The context is current. */
EXL2__PRIVATE void exl2__cuda_streamed_release(exl2__cuda_model *m)
{
    exl2__cuda_streamed *s = &m->streamed;
    if (s->count) {
        m->gpu->driver.stream_wait(m->gpu->upload);
    }
    for (uint32_t i = 0; i < 4; i++) {
        exl2__cuda_event **event = i < 2 ? &s->arrived[i] : &s->used[i - 2];
        if (*event) {
            m->gpu->driver.event_free(*event);
        }
        *event = NULL;
    }
}

/* Enqueues the copy of a part to its area, after the kernels that read the part there now. */
EXL2__PRIVATE exl2_result exl2__cuda_streamed_send(exl2__cuda_model *m, uint32_t part)
{
    const exl2__cuda_driver *driver = &m->gpu->driver;
    const exl2__cuda_streamed *s = &m->streamed;
    const exl2__cuda_part *p = &s->parts[part];
    uint64_t blocks = exl2__div_up(p->bytes, EXL2__CUDA_STREAMED_BLOCK);
    int result = driver->stream_wait_event(m->gpu->upload, s->used[part % 2], 0);
    for (uint64_t i = 0; i < blocks && result == 0; i++) {
        result = driver->copy_up(s->area[part % 2] + i * EXL2__CUDA_STREAMED_BLOCK, p->blocks[i],
                                 (size_t)exl2__cuda_streamed_block(p, i), m->gpu->upload);
    }
    result = result == 0 ? driver->event_record(s->arrived[part % 2], m->gpu->upload) : result;
    return exl2__cuda_device_check(m->gpu, result, "copying weights to the GPU");
}

/* Whether layers of the current pass have parts. */
static inline bool exl2__cuda_streamed_used(const exl2__cuda_model *m)
{
    return m->pass.prompts && m->plan->streamed.parts > 0;
}

/* The part that a phase of the layer is the first to read, or the last (last); NO_PART: of none. */
static inline uint32_t exl2__cuda_streamed_part(const exl2__cuda_model *m, const exl2__layer *layer, exl2__phase phase,
                                                bool last)
{
    const exl2__streamed *s = &m->plan->streamed;
    if (!exl2__cuda_streamed_used(m) || layer->index < s->first) {
        return EXL2__CUDA_NO_PART;
    }
    uint32_t at = layer->index - s->first;
    bool sparse = layer->matrix[EXL2__ROLE_ROUTER] != NULL;
    if (!s->by_layer) {
        return phase == EXL2__PHASE_gate_up ? 2 * at : phase == EXL2__PHASE_down ? 2 * at + 1 : EXL2__CUDA_NO_PART;
    }
    exl2__phase from = sparse ? EXL2__PHASE_route : EXL2__PHASE_gate_up;
    exl2__phase to = sparse ? EXL2__PHASE_expert_down : EXL2__PHASE_down;
    return phase == (last ? to : from) ? at : EXL2__CUDA_NO_PART;
}

/* A pass begins. */
EXL2__PRIVATE exl2_result exl2__cuda_streamed_begin(exl2__cuda_model *m)
{
    if (!exl2__cuda_streamed_used(m)) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__cuda_streamed_send(m, 0));
    return exl2__cuda_streamed_send(m, 1);
}

/* Before a phase: the kernels that follow wait for the part that they read. */
EXL2__PRIVATE exl2_result exl2__cuda_streamed_take(exl2__cuda_model *m, const exl2__layer *layer, exl2__phase phase)
{
    uint32_t part = exl2__cuda_streamed_part(m, layer, phase, false);
    if (part == EXL2__CUDA_NO_PART) {
        return EXL2_OK;
    }
    m->pass.chained = false;
    int waits = m->gpu->driver.stream_wait_event(m->gpu->stream, m->streamed.arrived[part % 2], 0);
    return exl2__cuda_device_check(m->gpu, waits, "waiting for weights");
}

/* After a phase: the area of a part that has been read gets the part after the next one. */
EXL2__PRIVATE exl2_result exl2__cuda_streamed_done(exl2__cuda_model *m, const exl2__layer *layer, exl2__phase phase)
{
    uint32_t part = exl2__cuda_streamed_part(m, layer, phase, true);
    if (part == EXL2__CUDA_NO_PART) {
        return EXL2_OK;
    }
    int recorded = m->gpu->driver.event_record(m->streamed.used[part % 2], m->gpu->stream);
    EXL2__TRY(exl2__cuda_device_check(m->gpu, recorded, "recording an event"));
    m->pass.chained = false;
    return part + 2 < m->streamed.count ? exl2__cuda_streamed_send(m, part + 2) : EXL2_OK;
}

#endif

/* cuda.h: the CUDA backend: a model on a device that the engine has opened.
   takes: an open exl2__cuda_device.
   gives: exl2__cuda_backend.
   owns:  the model's device memory, ring and events; the device is the engine's. */
#ifndef EXL2__CUDA_H
#define EXL2__CUDA_H

#include "cuda_park.h"
#include "cuda_tower.h"

EXL2__PRIVATE exl2_result exl2__cuda_open(exl2__ctx *c, void *hardware, exl2__device **out)
{
    exl2__cuda_device *gpu = (exl2__cuda_device *)hardware;
    void *memory;
    *out = NULL;
    EXL2__TRY(exl2__alloc(c, sizeof(exl2__cuda_model), 16, EXL2_MEM_GENERAL, &memory));
    exl2__cuda_model *m = (exl2__cuda_model *)memory;
    *m = (exl2__cuda_model){ .c = c, .gpu = gpu };
    m->limits = (exl2__cuda_limits){ exl2__min32(gpu->sm_count, EXL2K_SLOTS_MAX), EXL2__CUDA_CHUNK_BYTES,
                                     gpu->shared_bytes };
    if (gpu->shared_bytes < 96u << 10) {
        m->limits.chunk_bytes = 1088;
    }
    *out = (exl2__device *)memory;
    return EXL2_OK;
}

EXL2__PRIVATE void exl2__cuda_close(exl2__device *device)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    if (!m) {
        return;
    }
    exl2__ctx *c = m->c;
    exl2__cuda_release(m);
    exl2__cuda_packed_free(m);
    exl2__cuda_streamed_close(m);
    exl2__free(c, m->orders, m->orders_max * sizeof *m->orders, EXL2_MEM_GENERAL);
    while (m->matrices) {
        exl2__cuda_matrix *next = m->matrices->next;
        exl2__free(c, m->matrices, sizeof *m->matrices, EXL2_MEM_GENERAL);
        m->matrices = next;
    }
#ifndef EXL2_NO_MOE
    exl2__cuda_experts_close(m);
#endif
    while (m->vectors) {
        exl2__cuda_vector *next = m->vectors->next;
        exl2__free(c, m->vectors, sizeof *m->vectors, EXL2_MEM_GENERAL);
        m->vectors = next;
    }
    exl2__free(c, m, sizeof *m, EXL2_MEM_GENERAL);
}

EXL2__PRIVATE uint64_t exl2__cuda_page_bytes_all(const exl2__device *device, const exl2__plan *plan, bool part)
{
    (void)device;
    uint32_t layers = exl2__plan_place(plan, exl2__plan_end(plan), part);
    return (uint64_t)layers * exl2__cuda_page_bytes(&plan->shape, plan->kv);
}

/* A page, or a window part, lies in as many pieces as it has layers. One of `out` and `in` is NULL. */
EXL2__PRIVATE exl2_result exl2__cuda_page_copy(exl2__device *device, uint32_t page, bool part, uint8_t *out,
                                               const uint8_t *in)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    const exl2__cuda_driver *driver = &m->gpu->driver;
    uint64_t bytes = m->b.page_bytes, pages = part ? m->b.parts : m->b.pages;
    uint32_t count = part ? m->plan->window_pages : m->plan->pages;
    uint32_t layers = exl2__plan_place(m->plan, exl2__plan_end(m->plan), part);
    int result = 0;
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    for (uint32_t layer = 0; layer < layers && result == 0; layer++) {
        uint64_t at = pages + ((uint64_t)layer * count + page) * bytes;
        result = out ? driver->copy_down(out + layer * bytes, at, (size_t)bytes, m->gpu->stream)
                     : driver->copy_up(at, in + layer * bytes, (size_t)bytes, m->gpu->stream);
    }
    result = result == 0 ? driver->stream_wait(m->gpu->stream) : result;
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_device_check(m->gpu, result, "copying K and V"));
}

EXL2__PRIVATE exl2_result exl2__cuda_page_get(exl2__device *device, uint32_t page, bool part, void *out)
{
    return exl2__cuda_page_copy(device, page, part, (uint8_t *)out, NULL);
}

EXL2__PRIVATE exl2_result exl2__cuda_page_set(exl2__device *device, uint32_t page, bool part, const void *in)
{
    return exl2__cuda_page_copy(device, page, part, NULL, (const uint8_t *)in);
}

/* Device bytes of all pages and window parts. */
static inline uint64_t exl2__cuda_cache_bytes(const exl2__plan *plan)
{
    return exl2__cuda_page_bytes_all(NULL, plan, false) * plan->pages
         + exl2__cuda_page_bytes_all(NULL, plan, true) * plan->window_pages;
}

/* Device bytes of the buffers of passes, if the cache has as many pages as the plan. */
EXL2__PRIVATE uint64_t exl2__cuda_buffer_bytes(const exl2__device *device, const exl2__plan *plan)
{
    exl2__cuda_buffers b;
    exl2__cuda_arena dry = { 0 };
    exl2__cuda_buffers_layout(&b, plan, exl2__cuda_of(device)->gpu, &dry);
    return dry.used - exl2__cuda_cache_bytes(plan);
}

EXL2__PRIVATE uint64_t exl2__cuda_allowed(const exl2__device *device)
{
    return exl2__cuda_device_room(exl2__cuda_of(device)->gpu);
}

/* Free bytes of the device, within the application's cap. */
EXL2__PRIVATE uint64_t exl2__cuda_room(const exl2__device *device)
{
    const exl2__cuda_model *m = exl2__cuda_of(device);
    uint64_t room = exl2__cuda_device_room(m->gpu);
    size_t bytes_free = 0, bytes_total = 0;
    if (exl2__cuda_device_enter(m->gpu) < 0) {
        return room;
    }
    int asked = m->gpu->driver.memory_info(&bytes_free, &bytes_total);
    exl2__cuda_device_leave(m->gpu);
    return asked == 0 ? exl2__min64(room, bytes_free) : room;
}

EXL2__PRIVATE uint32_t exl2__cuda_read_mbps(const exl2__device *device)
{
    return exl2__cuda_of(device)->gpu->memory_mbps;
}

/* Rejects a model that would exceed the application's cap before any of its weights are read. */
EXL2__PRIVATE exl2_result exl2__cuda_check_cap(exl2__cuda_model *m, uint64_t weight_bytes)
{
    exl2__cuda_buffers b;
    exl2__cuda_arena dry = { 0 };
    if (!m->plan) {
        return EXL2_OK;
    }
    exl2__cuda_buffers_layout(&b, m->plan, m->gpu, &dry);
    uint64_t room = exl2__cuda_device_room(m->gpu), pages = exl2__cuda_cache_bytes(m->plan);
    if (weight_bytes + dry.used <= room) {
        return EXL2_OK;
    }
    bool alone = m->plan->host_mlps == 0 && !exl2__columns_are_cut(&m->columns);
    return exl2__fail(m->c, EXL2_ERR_BUDGET, "the model needs %llu bytes on GPU %u (weights %llu, cache %llu), but its "
                      "cap of %llu (device_bytes_max or bytes_max) leaves %llu%s",
                      (unsigned long long)(weight_bytes + dry.used), m->gpu->info.index,
                      (unsigned long long)weight_bytes, (unsigned long long)pages,
                      (unsigned long long)m->gpu->bytes_max, (unsigned long long)room,
                      alone ? "; with exl2_model_desc.offload the CPU would compute a part" : "");
}

/* Loads kernels, a few in each call (PENDING); then makes the ring and allocates memory for the weights. */
EXL2__PRIVATE exl2_result exl2__cuda_reserve_all(exl2__cuda_model *m, uint64_t weight_bytes)
{
    bool wanted[EXL2__KERNEL_COUNT];
    uint32_t threads = m->c->parallel.run ? exl2__max32(m->c->parallel.width, 1) : 1;
    EXL2__TRY(exl2__cuda_check_cap(m, weight_bytes));
    const exl2__shape *s = m->plan ? &m->plan->shape : NULL;
    exl2__cuda_needs needs = { 0 };
    if (s) {
        needs = (exl2__cuda_needs){ .arch = m->gpu->info.arch, .head_class = 64u << exl2__cuda_head_class(s->head_dim),
                                    .any = exl2__cuda_needs_any(s), .large = exl2__cuda_is_large(m->gpu, s),
                                    .affine = s->affine, .exl3 = s->exl3,
                                    .exl3_wg = exl2__cuda_exl3_by_wg(m->gpu),
                                    .settles = !exl2__cuda_folds(s), .experts = exl2__experts_any(&s->experts),
                                    .exl3_experts = s->exl3_experts,
                                    .by_wg = exl2__cuda_may_wg(m->gpu, s),
                                    .attend_wg = exl2__cuda_attends_by_wg(m->gpu, s),
                                    .codes = m->plan->kv != EXL2_KV_FP16, .loras = m->plan->lora_max > 0,
                                    .steers = m->plan->steer_max > 0,
                                    .attend_few = exl2__cuda_attends_few(s),
                                    .many = exl2__cuda_many_decode(m->plan),
                                    .crowd = m->plan->sequences_max > EXL2__CUDA_GEMV_ROWS,
                                    .turns = exl2__cuda_turns(m->plan),
                                    .columns = exl2__columns_are_cut(&m->columns) };
#ifndef EXL2_NO_VISION
        needs.tower = m->plan->tower != NULL;
        needs.tower_wg = needs.tower && exl2__cuda_tower_by_wg(m->gpu);
        needs.deep = exl2__plan_first(m->plan) == 0 && s->row_levels > 1;
#endif
    }
    exl2__cuda_modules_of(&needs, wanted);
    if (s && exl2__cuda_attend_prepares(s)) {
        wanted[exl2__cuda_module_of(EXL2__KERNEL_exl2k_attend_prepare)] = true;
    }
    exl2_result r = m->plan ? exl2__cuda_device_kernels_slice(m->gpu, wanted, threads)
                            : exl2__cuda_device_kernels(m->gpu, NULL);
    if (r != EXL2_OK) {
        return r;
    }
    if (m->plan && exl2__cuda_orders_max(m->plan) && !m->orders) {
        void *orders;
        EXL2__TRY(exl2__alloc(m->c, exl2__cuda_orders_max(m->plan) * sizeof *m->orders, 16, EXL2_MEM_GENERAL, &orders));
        m->orders = (uint16_t *)orders;
        m->orders_max = exl2__cuda_orders_max(m->plan);
    }
    uint32_t slots = exl2__cuda_slot_count(m->plan);
    EXL2__TRY(exl2__cuda_ring_open(m->gpu, &m->ring, slots, EXL2__CUDA_SLOT_BYTES, m->gpu->stream));
    EXL2__TRY(exl2__cuda_arena_open(m->gpu, &m->weights, weight_bytes, EXL2_MEM_WEIGHTS));
    return exl2__cuda_streamed_open(m);
}

/* Products of 2,048 rows use a large GPU better than two of 1,024: an 8B model on an H200 is an eighth faster. Small
   models are fast anyway, and such buffers would be large compared with their weights. */
EXL2__PRIVATE uint32_t exl2__cuda_prefill_chunk(uint64_t weight_bytes)
{
    return weight_bytes >= 2000000000u ? 2048 : 1024;
}

EXL2__PRIVATE exl2_result exl2__cuda_reserve(exl2__device *device, const uint64_t *weight_bytes)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_reserve_all(m, *weight_bytes));
}

/* ---- single phases, for tests; the engine runs passes unit by unit ---- */

/* A phase is one item, since it only enqueues kernels; the head can be cut by columns. */
EXL2__PRIVATE uint32_t exl2__cuda_items(const exl2__device *device, exl2__phase phase, const exl2__layer *layer,
                                        const exl2__range *range)
{
    const exl2__cuda_model *m = exl2__cuda_of(device);
    (void)layer;
    (void)range;
    return phase == EXL2__PHASE_copy_pages ? m->step->copy_count > 0 : phase == EXL2__PHASE_head ? m->head_units : 1;
}

EXL2__PRIVATE exl2_result exl2__cuda_phase(exl2__device *d, exl2__phase phase, const exl2__layer *layer,
                                           const exl2__range *range)
{
    exl2__cuda_model *m = exl2__cuda_of(d);
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    m->pass.first_norm = phase == EXL2__PHASE_qkv ? exl2__cuda_begins_anew(m, layer) : m->pass.first_norm;
    exl2_result r = exl2__cuda_do(m, phase, layer, range);
    if (r >= 0 && phase == EXL2__PHASE_sample) {
        r = exl2__cuda_queue_fence(m);
    }
    exl2__cuda_device_leave(m->gpu);
    return r;
}

#define X(name)                                                                                                        \
    static exl2_result exl2__cuda_phase_##name(exl2__device *d, const exl2__layer *layer, const exl2__range *range)    \
    {                                                                                                                  \
        return exl2__cuda_phase(d, EXL2__PHASE_##name, layer, range);                                                  \
    }
EXL2__PHASES(X)
#undef X

static const exl2__backend_memory exl2__cuda_backend_memory = {
    .prefill_chunk = exl2__cuda_prefill_chunk,
    .tier_open = exl2__cuda_tier_open,
    .tier_move = exl2__cuda_tier_move,
    .tier_ns = exl2__cuda_tier_ns,
    .bytes_allowed = exl2__cuda_allowed,
    .bytes_free = exl2__cuda_room,
    .read_mbps = exl2__cuda_read_mbps,
    .buffer_bytes = exl2__cuda_buffer_bytes,
    .host_bytes = exl2__cuda_host_bytes,
    .reserve = exl2__cuda_reserve,
    .staging = exl2__cuda_stage,
    .keep_packed = exl2__cuda_keep_packed,
    .drop = exl2__cuda_drop,
    .restore = exl2__cuda_restore,
    .keep_streamed = exl2__cuda_keep_streamed,
};

static const exl2__backend_queue exl2__cuda_backend_queue = {
    .units = exl2__cuda_units,
    .head_units = exl2__cuda_head_units,
    .enqueue = exl2__cuda_queue,
    .unit_ns = exl2__cuda_unit_ns,
    .queued_ns = exl2__cuda_queued_ns,
    .rows_for = exl2__cuda_rows_for,
    .masks_ready = exl2__cuda_masks,
    .repeat = exl2__cuda_repeat,
    .ahead = exl2__cuda_ahead,
    .link = exl2__cuda_link,
    .part_rows = exl2__cuda_part_rows,
    .select = exl2__cuda_select,
    .cross = exl2__cuda_cross,
    .follow = exl2__cuda_follow,
    .crossing = exl2__cuda_crossing,
};

static const exl2__backend exl2__cuda_backend = {
    .name = "cuda",
    .memory = &exl2__cuda_backend_memory,
    .queue = &exl2__cuda_backend_queue,
    .loras = &exl2__cuda_loras,
#ifndef EXL2_NO_VISION
    .towers = &exl2__cuda_towers,
#endif
    .open = exl2__cuda_open,
    .close = exl2__cuda_close,
    .decode_rows = EXL2__CUDA_SAMPLED_ROWS,
    .logit_rows = EXL2__CUDA_LOGIT_ROWS,
    .exact_rows = 128, /* one class of GEMM (cuda_gemm.h) */
    .two_kinds = true,
    .needs_groups = true,
    .one_kind = true,
    .has_exl3 = EXL2__EXL3,
    .matrix_bytes = exl2__cuda_matrix_bytes,
    .vector_bytes = exl2__cuda_vector_bytes,
    .matrix_make = exl2__cuda_matrix_make,
    .matrix_feed = exl2__cuda_matrix_feed,
    .vector_make = exl2__cuda_vector_make,
    .supports = exl2__cuda_supports,
    .page_bytes = exl2__cuda_page_bytes_all,
    .prepare = exl2__cuda_prepare,
    .page_get = exl2__cuda_page_get,
    .page_set = exl2__cuda_page_set,
    .begin = exl2__cuda_begin,
    .items = exl2__cuda_items,
    .collect = exl2__cuda_collect,
    .can_sample = exl2__cuda_sample_supports,
    .logits = exl2__cuda_row_logits,
    .sample_row = exl2__cuda_row_sample,
    .hidden = exl2__cuda_row_hidden,
#define X(name) .name = exl2__cuda_phase_##name,
    EXL2__PHASES(X)
#undef X
};

#endif

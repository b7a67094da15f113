/* cuda_prepare.h: the work between loading and the first pass: buffers, pages, the table of RoPE, graphs.
   takes: a plan; a model whose weights are packed.
   gives: exl2__cuda_prepare, exl2__cuda_host_bytes.
   owns:  nothing; the memory is the model's. */
#ifndef EXL2__CUDA_PREPARE_H
#define EXL2__CUDA_PREPARE_H

#include "cuda_queue.h"
#include "cuda_tower_load.h"

EXL2__PRIVATE exl2_result exl2__cuda_make_table(exl2__cuda_model *m, exl2k_rope_args a)
{
    a.frequency = m->b.data;
    a.half = m->plan->shape.head_dim / 2;
    exl2__cuda_grid grid = { .x = (uint32_t)exl2__div_up((uint64_t)a.positions * a.half, 256), .y = 1,
                             .threads = 256 };
    return exl2__cuda_device_launch(m->gpu, EXL2__KERNEL_exl2k_rope_table, grid, &a);
}

/* Computes the tables of cosine and sine on the device, from frequencies in double. */
EXL2__PRIVATE exl2_result exl2__cuda_make_ropes(exl2__cuda_model *m, const exl2__plan *p)
{
    for (uint32_t i = 0; i < p->rope_count; i++) {
        exl2k_rope_args a = { .table = m->b.rope + i * exl2__cuda_rope_bytes(p), .positions = p->context_max, .step = 1,
                              .rotated = p->shape.rotary / 2, .magnitude = (float)p->ropes[i].magnitude };
        EXL2__TRY(exl2__cuda_upload(m, m->b.data, p->ropes[i].frequency, a.rotated * sizeof(double)));
        if (exl2__cuda_rope_divided(p)) {
            exl2k_rope_args block = a;
            block.positions = EXL2K_ROPE_BLOCK;
            block.magnitude = 1;
            EXL2__TRY(exl2__cuda_make_table(m, block));
            a.table += EXL2K_ROPE_BLOCK * p->shape.head_dim * sizeof(float);
            a.positions = (uint32_t)exl2__div_up(p->context_max, EXL2K_ROPE_BLOCK);
            a.step = EXL2K_ROPE_BLOCK;
        }
        EXL2__TRY(exl2__cuda_make_table(m, a));
    }
    if (m->b.axes) {
        uint8_t axes[256] = { 0 }; /* of pairs that RoPE does not rotate: any */
        EXL2__ASSERT(p->shape.head_dim <= 2 * sizeof axes && p->ropes[0].axis);
        memcpy(axes, p->ropes[0].axis, p->shape.rotary / 2);
        EXL2__TRY(exl2__cuda_upload(m, m->b.axes, axes, p->shape.head_dim / 2));
    }
    return exl2__cuda_make_table(m, (exl2k_rope_args){ .table = m->b.unrotated, .positions = 1, .step = 1 });
}

#define EXL2__CUDA_HEAD_UNITS_MAX 32u

/* Chooses the number of layers of a unit and of units of the head, from an estimate of what units read. The head's
   share of the weight bytes is close to its share of the parameters, and measured times correct the estimates. */
EXL2__PRIVATE void exl2__cuda_prepare_units(exl2__cuda_model *m)
{
    const exl2__shape *s = &m->plan->shape;
    uint64_t attention = ((uint64_t)s->heads * 2 + s->kv_heads * 2) * s->head_dim * s->hidden;
    uint64_t layer = attention + (uint64_t)s->inter * s->hidden * (s->gated ? 3 : 2);
    uint64_t expert = s->experts.count ? (uint64_t)s->experts.inter * s->hidden * (s->gated ? 3 : 2) : 0;
    bool has_head = exl2__plan_has_head(m->plan);
    uint64_t head = has_head ? (uint64_t)s->vocab * s->hidden : 0;
    uint32_t layers = exl2__plan_span(m->plan);
    double mlps = ((double)layer - (double)attention + (double)expert * s->experts.count) * exl2__cuda_host_plain(m);
    double all = (double)attention * layers + mlps + (double)head;
    uint64_t areas = m->plan->streamed.area_bytes[0] + m->plan->streamed.area_bytes[1];
    double bytes = (double)(m->weights.used - areas) / all;
    layer += expert * s->experts.active; /* what a row reads */
    m->layer_bytes = (uint64_t)(bytes * (double)layer);
    m->attention_bytes = (uint64_t)(bytes * (double)attention);
    m->head_bytes = (uint64_t)(bytes * (double)head);
    uint64_t fit = EXL2__CUDA_UNIT_NS / exl2__cuda_read_ns(m, m->layer_bytes);
    m->whole_graphs = exl2__cuda_read_ns(m, m->layer_bytes * layers + m->head_bytes) < EXL2__CUDA_WHOLE_NS;
    m->layers_per_unit = (uint32_t)exl2__min64(exl2__max64(fit, 1), layers);
    uint64_t head_units = exl2__div_up(exl2__cuda_read_ns(m, m->head_bytes), EXL2__CUDA_UNIT_NS);
    uint64_t strips = exl2__div_up(s->vocab, s->exl3 ? EXL2K_EXL3_BLOCK : EXL2__CUDA_STRIP);
    head_units = exl2__min64(head_units, exl2__min64(strips, EXL2__CUDA_HEAD_UNITS_MAX));
    m->head_units = has_head ? (uint32_t)head_units : 0;
}

/* Offset of the row of logits that is sampled on the CPU, in the pinned block after the results. */
static inline uint64_t exl2__cuda_host_logits_at(const exl2__plan *p)
{
    return exl2__align_up(EXL2K_RESULT_SETS * p->logit_rows_max * sizeof(exl2k_result), 64);
}

/* Offset of the rows that cross to the host, in the same block. */
static inline uint64_t exl2__cuda_crossing_at(const exl2__plan *p)
{
    return exl2__align_up(exl2__cuda_host_logits_at(p) + p->shape.vocab * sizeof(float), 64);
}

/* Offset of exl2__cuda_buffers.stop, in the same block. */
static inline uint64_t exl2__cuda_stop_at(const exl2__plan *p)
{
    uint64_t rows = p->host_mlps ? p->rows_max : 0;
    return exl2__align_up(exl2__cuda_crossing_at(p) + rows * p->shape.hidden * sizeof(float), 64);
}

/* Offset of the rows of pictures that come down, at the end of the same block. */
static inline uint64_t exl2__cuda_down_at(const exl2__plan *p)
{
    return exl2__cuda_stop_at(p) + (exl2__columns_are_cut(&p->columns) ? 64 : 0);
}

static inline uint64_t exl2__cuda_results_bytes(const exl2__plan *p)
{
    uint64_t bytes = exl2__cuda_down_at(p);
#ifndef EXL2_NO_VISION
    bytes += p->tower ? EXL2__CUDA_TOWER_DOWN_BYTES + sizeof(uint32_t) : 0;
#endif
    return bytes;
}

/* As exl2__backend.host_bytes: records of matrices and norms, the pinned ring, and what making a matrix needs, or
   pinned results and lists of graphs. It is an upper bound: a model with tied embeddings or without learned positions
   has fewer matrices, the matrix that needs most may be made before the last one, layers have fewer norms than the most
   that a family has, and units of several layers have fewer graphs. The difference is less than 1 MiB. Sources and
   images of kernels are not part of it: they are freed before any of this is allocated (but for one or two modules that
   are loaded late), and all modules together (1.6 MB for sm_90a) are smaller than the ring. */
EXL2__PRIVATE uint64_t exl2__cuda_host_bytes(const exl2__device *device, const exl2__plan *p, uint64_t slice_bytes,
                                             bool ready)
{
    const exl2__shape *s = &p->shape;
    uint64_t layers = exl2__plan_span(p), slot = exl2__max64(EXL2__CUDA_SLOT_BYTES, slice_bytes);
    uint64_t alone = s->mixes_exl3 ? 5 : 0; /* q, k, v, gate, up */
    uint64_t matrices = ((s->experts.count ? 5 : 4) + alone) * layers + 3;
    uint64_t vectors = EXL2__UNIT_VECTORS_MAX * layers + 2;
    uint64_t bytes = matrices * sizeof(exl2__cuda_matrix) + vectors * sizeof(exl2__cuda_vector);
    bytes += exl2__cuda_orders_max(p) * sizeof(uint16_t) + exl2__cuda_streamed_lists(p);
    if (exl2__experts_any(&s->experts)) { /* records of layers, and the order of their inputs */
        bytes += layers * (sizeof(exl2__cuda_experts) + s->hidden * sizeof(uint16_t));
    }
    if (ready) {
        slot = exl2__max64(slot, exl2__cuda_data_bytes(p));
        uint64_t classes = exl2__cuda_row_class(exl2__cuda_graph_rows(p)) + 1 + exl2__cuda_lora_classes(p);
        classes *= p->steer_max ? 2 : 1;
        uint64_t graphs = classes * (layers + (p->host_mlps > 0) + EXL2__CUDA_HEAD_UNITS_MAX);
        bytes += exl2__cuda_results_bytes(p) + graphs * sizeof(exl2__cuda_graph_exec *);
        bytes += exl2__cuda_handing_bytes(exl2__cuda_of(device), p);
        bytes += p->layers_before && exl2__plan_has_head(p) ? EXL2__CUDA_NEXT_ROWS_BYTES : 0;
    } else {
        uint32_t attention = s->heads * s->head_dim;
        uint64_t making = exl2__cuda_making_bytes(s->hidden, EXL2K_PARTS_MAX);
        uint32_t inter = exl2__max32(s->inter, s->experts.inter);
        bytes += exl2__max64(making, exl2__cuda_making_bytes(exl2__max32(inter, attention), 1));
        bytes += exl2__align_up(inter, 32) * sizeof(uint16_t); /* exl2__cuda_down_order */
    }
    return bytes + exl2__cuda_slot_count(p) * exl2__align_up(slot, EXL2__CUDA_ALIGN);
}

/* Chooses how products of many rows run. Where wgmma could compute them but for their matrices, modules are loaded that
   such models do not need otherwise. */
EXL2__PRIVATE exl2_result exl2__cuda_prepare_products(exl2__cuda_model *m, const exl2__plan *p)
{
    bool wanted[EXL2__KERNEL_COUNT] = { false };
    m->has_wg = exl2__cuda_has_wg(m, p->prompt_layers ? &m->prompt_plan : p);
    if (m->has_wg || !exl2__cuda_may_wg(m->gpu, &p->shape)) {
        return EXL2_OK;
    }
    wanted[EXL2__KERNEL_exl2k_gemm_any] = exl2__cuda_needs_any(&p->shape);
    wanted[EXL2__KERNEL_exl2k_gemm] = !wanted[EXL2__KERNEL_exl2k_gemm_any];
    wanted[EXL2__KERNEL_exl2k_gemm_affine] = p->shape.affine;
    return exl2__cuda_device_kernels(m->gpu, wanted);
}

/* Makes the buffers of passes. Weights are packed, so memory that only loading needs is freed first. */
EXL2__PRIVATE exl2_result exl2__cuda_prepare_buffers(exl2__cuda_model *m, const exl2__plan *p)
{
    exl2__cuda_device *gpu = m->gpu;
    exl2__cuda_arena dry = { 0 };
    void *results;
    EXL2__TRY(exl2__cuda_device_check(gpu, gpu->driver.stream_wait(gpu->stream), "packing weights"));
    exl2__cuda_making_close(m);
    exl2__cuda_buffers_layout(&m->b, p, gpu, &dry);
    EXL2__TRY(exl2__cuda_arena_open(gpu, &m->pass_memory, dry.used, EXL2_MEM_KV));
    exl2__cuda_buffers_layout(&m->b, p, gpu, &m->pass_memory);
    if (m->b.data_bytes > m->ring.slot_bytes) {
        exl2__cuda_ring_close(gpu, &m->ring);
        EXL2__TRY(exl2__cuda_ring_open(gpu, &m->ring, exl2__cuda_slot_count(p), m->b.data_bytes, gpu->stream));
    }
    m->results_bytes = exl2__cuda_results_bytes(p);
    EXL2__TRY(exl2__cuda_pin(gpu, m->results_bytes, &results));
    m->b.results = (exl2k_result *)results;
    m->host_logits = (float *)(void *)((uint8_t *)results + exl2__cuda_host_logits_at(p));
    m->b.stop = exl2__columns_are_cut(&p->columns) ? (uint32_t *)(void *)((uint8_t *)results + exl2__cuda_stop_at(p))
                                                   : NULL;
    m->b.crossing = p->host_mlps ? (float *)(void *)((uint8_t *)results + exl2__cuda_crossing_at(p)) : NULL;
    memset(results, 0, (size_t)m->results_bytes);
#ifndef EXL2_NO_VISION
    m->tower.down = p->tower ? (uint8_t *)results + exl2__cuda_down_at(p) : NULL;
    int made = p->tower ? gpu->driver.event_make(&m->tower.done, EXL2__CUDA_EVENT_NO_TIMING) : 0;
    bool queued = made == 0 && p->tower && exl2__columns_are_cut(&p->columns);
    made = queued ? gpu->driver.event_make(&m->tower.queued, EXL2__CUDA_EVENT_NO_TIMING) : made;
    EXL2__TRY(exl2__cuda_device_check(gpu, made, "creating an event"));
#endif
    /* A thread that waits in the driver must sleep there. Events that allow it cost interrupts. */
    unsigned waiting = EXL2__PLATFORM_HAS_SLEEP_US ? 0 : EXL2__CUDA_EVENT_BLOCKING;
    for (uint32_t i = 0; i < EXL2__COUNT(m->b.fences); i++) {
        int fence = gpu->driver.event_make(&m->b.fences[i], EXL2__CUDA_EVENT_NO_TIMING | waiting);
        EXL2__TRY(exl2__cuda_device_check(gpu, fence, "creating an event"));
    }
    EXL2__TRY(exl2__cuda_device_check(gpu, gpu->driver.fill8(m->b.zeroed, 0, (size_t)m->b.zeroed_bytes, gpu->stream),
                                      "clearing buffers"));
    memset(m->lora_slots, 0, sizeof m->lora_slots);
    memset(m->steer_slots, 0, sizeof m->steer_slots);
    EXL2__TRY(exl2__cuda_make_ropes(m, p));
#ifndef EXL2_NO_VISION
    EXL2__TRY(p->tower ? exl2__cuda_tower_tables(m) : EXL2_OK);
#endif
    EXL2__TRY(exl2__cuda_prepare_products(m, p));
    exl2__cuda_prepare_units(m);
    EXL2__TRY(exl2__cuda_timing_open(gpu, &m->timing));
    EXL2__TRY(exl2__cuda_streamed_events(m));
    EXL2__TRY(exl2__cuda_cross_open(m));
    return exl2__columns_are_cut(&m->columns) ? EXL2_OK : exl2__cuda_graphs_open(m); /* once all know each other */
}

/* What the backend does not compute, in words; NULL: it computes everything that the shape asks for. */
EXL2__PRIVATE const char *exl2__cuda_missing(const exl2__shape *s)
{
    return exl2__experts_any(&s->experts) && s->post_norms ? "experts with norms after their blocks"
         : exl2__experts_any(&s->experts) && s->parallel ? "experts in parallel blocks"
         : s->affine && s->act == EXL2__ACT_CLAMPED ? "clamped activations of GPTQ and AWQ matrices"
         : s->parallel && s->post_norms ? "norms after parallel blocks" : NULL;
}

/* As exl2__backend.supports. */
EXL2__PRIVATE exl2_result exl2__cuda_supports(exl2__device *device, const exl2__shape *s)
{
    const char *missing = exl2__cuda_missing(s);
    return missing ? exl2__fail(exl2__cuda_of(device)->c, EXL2_ERR_UNSUPPORTED,
                                "the CUDA backend does not compute %s; EXL2_BACKEND_CPU does", missing) : EXL2_OK;
}

/* Limits of the kernels: maps are u16, heads are divided into runs of 8 elements, tokens are 24 bits of a key. */
EXL2__PRIVATE exl2_result exl2__cuda_check_shape(exl2__cuda_model *m, const exl2__shape *s)
{
    uint64_t attention = (uint64_t)s->heads * s->head_dim;
    uint32_t inter = exl2__max32(s->inter, s->experts.count ? s->experts.inter : 0);
    uint32_t widest = (uint32_t)exl2__max64(exl2__max32(s->hidden, inter), exl2__min64(attention, UINT32_MAX));
    if (s->head_dim % 8 != 0 || s->head_dim > 256) {
        return exl2__fail(m->c, EXL2_ERR_UNSUPPORTED, "the CUDA backend has no kernels for heads of %u elements, only "
                          "for multiples of 8 up to 256", s->head_dim);
    }
    if (widest > 1u << 16) {
        return exl2__fail(m->c, EXL2_ERR_UNSUPPORTED, "the CUDA backend supports rows of up to 65536 elements, this "
                          "model has rows of %u", widest);
    }
    if (s->vocab > 1u << 24) {
        return exl2__fail(m->c, EXL2_ERR_UNSUPPORTED, "the CUDA backend supports vocabularies of up to 16777216 "
                          "tokens, this model has %u", s->vocab);
    }
    return EXL2_OK;
}

/* Dry arenas measure host memory only; exl2__cuda_buffer_bytes measures device memory. */
EXL2__PRIVATE exl2_result exl2__cuda_prepare(exl2__device *device, const exl2__plan *plan, exl2__arena *pages,
                                             exl2__arena *scratch)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    (void)pages;
    m->plan = m->given = plan;
    m->prompt_plan = *plan;
    m->prompt_plan.layers = plan->prompt_layers;
    m->prompt_plan.host_mlps = 0;
    EXL2__TRY(exl2__cuda_check_shape(m, &plan->shape));
    m->host_scratch = exl2__arena_alloc(scratch, exl2__sample_scratch_bytes(plan->shape.vocab));
#ifndef EXL2_NO_VISION
    if (plan->tower) {
        exl2__cuda_tower_buffers b;
        exl2__cuda_arena dry = { 0 };
        exl2__cuda_tower_layout(&b, plan->tower, &plan->tower_limits, &dry);
        m->tower.index = (uint32_t *)exl2__arena_alloc(scratch, 4ull * b.rows_max * sizeof(uint32_t));
    }
#endif
    if (!scratch->base) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_prepare_buffers(m, plan));
}

#endif

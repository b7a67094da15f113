/* span.h: a model is a list of spans: consecutive layers, each list of them on a device of its own.
   takes: a backend, a device of the engine for each span, the plan of the whole model.
   gives: exl2__span, exl2__spans, exl2__spans_backend, exl2__spans_last; exl2__spans_cut, _open, _close;
          exl2__spans_open_host, _host_count; exl2__spans_page_bytes, _buffer_bytes, _host_bytes, _prepare;
          exl2__spans_open_weights, _open_pages, _free_pages; exl2__spans_reserve, _keep_packed, _drop, _restore;
          exl2__spans_commit, _page_get, _page_set; exl2__spans_tier_open, _tier_move, _tier_ns; exl2__span_queued_ns.
   owns:  the devices, and their arenas for weights and pages.

   A span holds the weights of its layers, their K and V, and the work memory of its device. The first one has the
   embedding, the last one final norm, head and sampling. Pages have the same numbers in all spans. A page as a whole is
   the spans' parts one after the other, in the order of its layers: it does not depend on where the model is cut.
   Between two spans rows of the residual are handed over (exl2__backend.hand, or exl2__backend_queue.cross).

   Where a model is larger than the memory of its devices, another backend, the host, computes the MLPs of the last
   layers of each span (forward_host.h). Everything else of these layers stays in the span. */
#ifndef EXL2__SPAN_H
#define EXL2__SPAN_H

#include "phases.h"

#define EXL2__SPANS_MAX EXL2_DEVICES_MAX

typedef struct exl2__span {
    const exl2__backend *backend;
    exl2__device *device;        /* NULL: not open */
    uint32_t end;                /* the span's layers end before this one; they begin where the span before ends */
    exl2__plan plan;             /* the model's, as the device sees it */
    exl2__arena weights, cache;  /* if the backend has no memory of its own */
    bool reserved;               /* the backend has its own memory, and that for the weights is reserved */
    uint32_t host_mlps;          /* number of its last layers whose MLPs the host computes */
    exl2__streamed streamed;     /* matrices of these MLPs, with which the device itself computes rows of prompts */
} exl2__span;

#define EXL2__SPANS_HOST_ROWS 128u /* rows that the host computes at a time, which limits its work memory */

typedef struct exl2__spans {
    exl2__span span[EXL2__SPANS_MAX];
    uint32_t count;              /* 0: the model has no weights */
    exl2__span host;             /* computes MLPs of layers of all spans, without pages. backend NULL: there is none */
    bool host_affine;            /* the host may have matrices of GPTQ or AWQ */
    bool host_prompts;           /* it computes rows of prompts, too: no span has `streamed` */
} exl2__spans;

/* The backend, which is the same for all spans; NULL: the model has no weights. */
static inline const exl2__backend *exl2__spans_backend(const exl2__spans *s)
{
    return s->span[0].backend;
}

/* The span that has the head: where logits and tokens come from. */
static inline const exl2__span *exl2__spans_last(const exl2__spans *s)
{
    return &s->span[s->count - 1];
}

/* The number of the span that has the layer. */
static inline uint32_t exl2__spans_of_layer(const exl2__spans *s, uint32_t layer)
{
    uint32_t i = 0;
    while (i + 1 < s->count && layer >= s->span[i].end) {
        i++;
    }
    return i;
}

/* ---- open and close ---- */

/* Sets where the spans end: ends [count], ascending, the last one is the number of layers. */
static inline void exl2__spans_cut(exl2__spans *s, const uint32_t *ends, uint32_t count)
{
    s->count = count;
    for (uint32_t i = 0; i < count; i++) {
        s->span[i].end = ends[i];
    }
}

/* Opens the devices. hardware [count]: what each of them runs on, as the backend's `open` takes it. After a failure,
   too, exl2__spans_close closes those that are open. */
EXL2__PRIVATE exl2_result exl2__spans_open(exl2__ctx *c, exl2__spans *s, const exl2__backend *backend,
                                           void *const *hardware)
{
    for (uint32_t i = 0; i < s->count; i++) {
        s->span[i].backend = backend;
        EXL2__TRY(backend->open(c, hardware[i], &s->span[i].device));
        if (i > 0 && backend->queue) {
            backend->queue->link(s->span[i].device, s->span[i - 1].device);
        }
    }
    return EXL2_OK;
}

/* Opens a device that computes MLPs beside the spans' devices, if they leave some to it. */
EXL2__PRIVATE exl2_result exl2__spans_open_host(exl2__ctx *c, exl2__spans *s, const exl2__backend *backend)
{
    s->host.backend = backend;
    return backend->open(c, NULL, &s->host.device);
}

/* Layers whose MLPs the host computes. */
static inline uint32_t exl2__spans_host_count(const exl2__spans *s)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        count += s->span[i].host_mlps;
    }
    return count;
}

/* Whether a span computes rows of prompts with MLPs of the host. */
static inline bool exl2__spans_stream(const exl2__spans *s)
{
    bool streams = false;
    for (uint32_t i = 0; i < s->count; i++) {
        streams = streams || s->span[i].streamed.parts > 0;
    }
    return streams;
}

static inline bool exl2__spans_are_open(const exl2__spans *s)
{
    return s->count > 0 && exl2__spans_last(s)->device != NULL;
}

/* Frees the arenas for pages. */
EXL2__PRIVATE void exl2__spans_free_pages(exl2__ctx *c, exl2__spans *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        exl2__arena_close(c, &s->span[i].cache);
    }
}

/* Closes the devices and frees weights and pages. The spans may be opened again, and leave as many MLPs to the host. */
EXL2__PRIVATE void exl2__spans_close(exl2__ctx *c, exl2__spans *s)
{
    exl2__spans_free_pages(c, s);
    exl2__arena_close(c, &s->host.weights);
    if (s->host.backend) {
        s->host.backend->close(s->host.device);
    }
    s->host = (exl2__span){ 0 };
    for (uint32_t i = 0; i < s->count; i++) {
        exl2__span *span = &s->span[i];
        exl2__arena_close(c, &span->weights);
        if (span->backend) {
            span->backend->close(span->device);
        }
        span->device = NULL;
        span->reserved = false;
    }
}

/* ---- the plan: sizes ---- */

/* The plan of the host: a span without layers between two others, so it has neither embedding nor head, and takes rows
   that are handed over. It computes no attention: heads are as small as they can be, as work memory depends on them. */
static inline void exl2__spans_share_host(exl2__spans *s, const exl2__plan *plan)
{
    exl2__plan *p = &s->host.plan;
    *p = *plan;
    p->layers = plan->host_layers;
    p->streamed = (exl2__streamed){ 0 };
    p->shape.layers = 2;
    p->layers_before = p->layers_after = 1;
    p->embed = p->positions = p->head = NULL;
    p->final_norm = (exl2__norm){ NULL, NULL };
    p->rows_max = exl2__min32(plan->rows_max, EXL2__SPANS_HOST_ROWS);
    p->rope_count = p->pages = p->window_pages = p->lora_max = p->steer_max = 0;
    p->context = p->context_max = EXL2__PAGE_TOKENS;
    p->kv = EXL2_KV_FP16;
    p->shape.heads = p->shape.kv_heads = 1;
    p->shape.head_dim = 32;
    p->shape.rotary = 0;
    p->shape.affine = plan->shape.affine || s->host_affine;
}

/* Gives each span the model's plan as it is now. */
static inline void exl2__spans_share(exl2__spans *s, const exl2__plan *plan)
{
    for (uint32_t i = 0; i < s->count; i++) {
        exl2__plan *p = &s->span[i].plan;
        *p = *plan;
        p->layers_before = i ? s->span[i - 1].end : 0;
        p->layers_after = plan->shape.layers - s->span[i].end;
        p->span = i;
        p->embed = i == 0 ? plan->embed : NULL;
        p->positions = i == 0 ? plan->positions : NULL;
        p->head = exl2__plan_has_head(p) ? plan->head : NULL;
        p->final_norm = exl2__plan_has_head(p) ? plan->final_norm : (exl2__norm){ NULL, NULL };
        p->host_mlps = s->span[i].host_mlps;
        p->streamed = s->span[i].streamed;
#ifndef EXL2_NO_VISION
        p->tower = i == 0 ? plan->tower : NULL;
#endif
    }
    exl2__spans_share_host(s, plan);
}

/* Bytes of K and V of a page, or of a window part, in one span, whose plan is set. */
static inline uint64_t exl2__span_page_bytes(const exl2__span *span, bool part)
{
    return span->backend->page_bytes(span->device, &span->plan, part);
}

/* Bytes of the span's cache. */
static inline uint64_t exl2__span_cache_bytes(const exl2__span *span)
{
    uint64_t parts = span->plan.window_pages ? exl2__span_page_bytes(span, true) * span->plan.window_pages : 0;
    return exl2__span_page_bytes(span, false) * span->plan.pages + parts;
}

/* Bytes of K and V of a page, or of a window part. */
EXL2__PRIVATE uint64_t exl2__spans_page_bytes(exl2__spans *s, const exl2__plan *plan, bool part)
{
    uint64_t bytes = 0;
    exl2__spans_share(s, plan);
    for (uint32_t i = 0; i < s->count; i++) {
        bytes += exl2__span_page_bytes(&s->span[i], part);
    }
    return bytes;
}

/* As exl2__backend_memory.buffer_bytes, of all spans. */
EXL2__PRIVATE uint64_t exl2__spans_buffer_bytes(exl2__spans *s, const exl2__plan *plan)
{
    uint64_t bytes = 0;
    exl2__spans_share(s, plan);
    for (uint32_t i = 0; i < s->count; i++) {
        bytes += s->span[i].backend->memory->buffer_bytes(s->span[i].device, &s->span[i].plan);
    }
    return bytes;
}

/* As exl2__backend_memory.host_bytes, of all spans; their plans are set. */
EXL2__PRIVATE uint64_t exl2__spans_host_bytes(const exl2__spans *s, uint64_t slice_bytes, bool ready)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const exl2__span *span = &s->span[i];
        bytes += span->backend->memory->host_bytes(span->device, &span->plan, slice_bytes, ready);
    }
    return bytes;
}

/* As exl2__backend.prepare; dry: without the spans' arenas for pages. */
EXL2__PRIVATE exl2_result exl2__spans_prepare(exl2__spans *s, const exl2__plan *plan, bool dry, exl2__arena *scratch)
{
    exl2__spans_share(s, plan);
    for (uint32_t i = 0; i < s->count; i++) {
        exl2__span *span = &s->span[i];
        exl2__arena none = { 0 };
        EXL2__TRY(span->backend->prepare(span->device, &span->plan, dry ? &none : &span->cache, scratch));
    }
    exl2__arena none = { 0 };
    return s->host.backend ? s->host.backend->prepare(s->host.device, &s->host.plan, &none, scratch) : EXL2_OK;
}

/* ---- memory of a backend that has none of its own ---- */

/* Opens the arenas for weights: weight_bytes [count]. */
EXL2__PRIVATE exl2_result exl2__spans_open_weights(exl2__ctx *c, exl2__spans *s, const uint64_t *weight_bytes)
{
    for (uint32_t i = 0; i < s->count; i++) {
        EXL2__TRY(exl2__arena_open(c, &s->span[i].weights, weight_bytes[i], EXL2_MEM_WEIGHTS));
    }
    return EXL2_OK;
}

/* Opens the arena for what the host gets. */
EXL2__PRIVATE exl2_result exl2__spans_open_host_weights(exl2__ctx *c, exl2__spans *s, uint64_t bytes)
{
    return bytes ? exl2__arena_open(c, &s->host.weights, bytes, EXL2_MEM_WEIGHTS) : EXL2_OK;
}

/* Opens the arenas for pages. */
EXL2__PRIVATE exl2_result exl2__spans_open_pages(exl2__ctx *c, exl2__spans *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        uint64_t bytes = exl2__span_cache_bytes(&s->span[i]);
        EXL2__TRY(exl2__arena_open(c, &s->span[i].cache, bytes, EXL2_MEM_KV));
    }
    return EXL2_OK;
}

/* Has loading used exactly what the plan counted, in all arenas? */
static inline bool exl2__spans_are_filled(const exl2__spans *s)
{
    bool filled = true;
    for (uint32_t i = 0; i < s->count; i++) {
        filled = filled && exl2__arena_is_filled(&s->span[i].weights) && exl2__arena_is_filled(&s->span[i].cache);
    }
    return filled && exl2__arena_is_filled(&s->host.weights);
}

/* Whether an arena has been used beyond its size: the plan was wrong. */
static inline bool exl2__spans_overflow(const exl2__spans *s)
{
    bool overflow = false;
    for (uint32_t i = 0; i < s->count; i++) {
        const exl2__span *span = &s->span[i];
        overflow |= span->cache.used > span->cache.size || span->weights.used > span->weights.size;
    }
    return overflow || s->host.weights.used > s->host.weights.size;
}

/* ---- memory of a backend that has its own ---- */

/* Reserves memory for the weights: weight_bytes as exl2__weights.span_bytes. PENDING: call it again. */
EXL2__PRIVATE exl2_result exl2__spans_reserve(exl2__spans *s, const uint64_t *weight_bytes)
{
    for (uint32_t i = 0; i < s->count; i++) {
        exl2__span *span = &s->span[i];
        if (!span->reserved) {
            EXL2__TRY_DONE(span->backend->memory->reserve(span->device, weight_bytes + i));
            span->reserved = true;
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__spans_keep_packed(exl2__spans *s, exl2__work *work)
{
    for (uint32_t i = 0; i < s->count; i++) {
        EXL2__TRY_DONE(s->span[i].backend->memory->keep_packed(s->span[i].device, work));
    }
    return EXL2_OK;
}

EXL2__PRIVATE void exl2__spans_drop(exl2__spans *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        s->span[i].backend->memory->drop(s->span[i].device);
        s->span[i].reserved = false;
    }
}

EXL2__PRIVATE exl2_result exl2__spans_restore(exl2__spans *s, exl2__work *work)
{
    for (uint32_t i = 0; i < s->count; i++) {
        EXL2__TRY_DONE(s->span[i].backend->memory->restore(s->span[i].device, work));
    }
    return EXL2_OK;
}

/* ---- pages ---- */

/* As exl2__backend.commit_pages. */
EXL2__PRIVATE exl2_result exl2__spans_commit(const exl2__spans *s, const uint32_t *pages, uint32_t count, bool part)
{
    for (uint32_t i = 0; i < s->count; i++) {
        EXL2__TRY(s->span[i].backend->commit_pages(s->span[i].device, pages, count, part));
    }
    return EXL2_OK;
}

/* Copies the K and V of a page or of a window part, of all layers, to host memory. */
EXL2__PRIVATE exl2_result exl2__spans_page_get(const exl2__spans *s, uint32_t page, bool part, uint8_t *out)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const exl2__span *span = &s->span[i];
        EXL2__TRY(span->backend->page_get(span->device, page, part, out));
        out += exl2__span_page_bytes(span, part);
    }
    return EXL2_OK;
}

/* Copies the K and V of a page or of a window part back from host memory. */
EXL2__PRIVATE exl2_result exl2__spans_page_set(const exl2__spans *s, uint32_t page, bool part, const uint8_t *in)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const exl2__span *span = &s->span[i];
        EXL2__TRY(span->backend->page_set(span->device, page, part, in));
        in += exl2__span_page_bytes(span, part);
    }
    return EXL2_OK;
}

/* Slots for pages in host memory, on each device for its part. */
EXL2__PRIVATE exl2_result exl2__spans_tier_open(exl2__spans *s, uint32_t slots, exl2__work *work)
{
    for (uint32_t i = 0; i < s->count; i++) {
        exl2__span *span = &s->span[i];
        EXL2__TRY_DONE(span->backend->memory->tier_open(span->device, &span->plan, slots, work));
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__spans_tier_move(const exl2__spans *s, const exl2__tier_move *moves, uint32_t count)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const exl2__span *span = &s->span[i];
        EXL2__TRY(span->backend->memory->tier_move(span->device, moves, count));
    }
    return EXL2_OK;
}

/* Estimated time of a page, of all devices together. */
static inline uint64_t exl2__spans_tier_ns(const exl2__spans *s, bool copy)
{
    uint64_t ns = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        ns += s->span[i].backend->memory->tier_ns(s->span[i].device, copy);
    }
    return ns;
}

/* ---- queues of an asynchronous backend ---- */

/* Time of all timed units that have not ended yet on the device of a span. */
static inline uint64_t exl2__span_queued_ns(const exl2__span *span)
{
    return span->backend->queue->queued_ns(span->device);
}

#endif

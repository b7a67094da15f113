/* loading.h: the stages in which a model is loaded from its folder, the last of which load its weights. loading_run.h
   runs them.
   takes: exl2_model_desc.
   gives: exl2__loading_stages; exl2__loading_way, exl2__loading_deliver.

   exl2__loading_stages lists the stages of a load, in order. Each works in slices (work.h), and keeps its position in
   exl2__loading or, for the weights, in exl2__weights. */
#ifndef EXL2__LOADING_H
#define EXL2__LOADING_H

#include "loading_sizes.h"

/* ---- load ---- */

static inline exl2__way exl2__loading_way(const exl2_engine *e, const exl2__model *m)
{
    return exl2__jobs_choose_way(m->desc.on_event, m->discard_events, e->worker.stepping);
}

/* Delivers a LOAD event. false: the ring is full; loading waits. */
EXL2__PRIVATE bool exl2__loading_deliver(exl2_engine *e, exl2__model *m, float progress, exl2_result result)
{
    exl2_event event = { 0 };
    event.kind = EXL2_EVENT_LOAD;
    event.model.id = m->id;
    event.user = m->desc.user;
    event.progress = progress;
    event.result = result;
    event.error = result < 0 ? m->error.text : NULL;
    exl2_flow ignored;
    return exl2__jobs_deliver(e, exl2__loading_way(e, m), m->desc.on_event, &event, &ignored);
}

/* Memory for the tower's weights. */
EXL2__PRIVATE exl2_result exl2__loading_open_tower(exl2__ctx *c, exl2__model *m)
{
#ifndef EXL2_NO_VISION
    bool given = m->images.on && !exl2__images_towers(m);
    return given ? exl2__arena_open(c, &m->images.weights, m->images.tower.weight_bytes, EXL2_MEM_WEIGHTS)
                        : EXL2_OK;
#else
    (void)c, (void)m;
    return EXL2_OK;
#endif
}

EXL2__PRIVATE exl2_result exl2__loading_tower_weights(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    (void)e;
#ifndef EXL2_NO_VISION
    if (m->images.on) {
        EXL2__TRY_DONE(exl2__tower_read_weights(&m->images.reader, &m->images.weights, work));
        exl2__tower_read_end(&m->images.reader);
    }
#else
    (void)m, (void)work;
#endif
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__loading_allocate(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    exl2__ctx *c = &e->ctx;
    if (!exl2__work_spend_all(work)) {
        return EXL2_PENDING;
    }
    if (m->desc.text_only) {
        EXL2__TRY(exl2__arena_open(c, &m->scratch, EXL2__RENDER_BYTES, EXL2_MEM_SCRATCH));
        m->render = exl2__arena_alloc(&m->scratch, EXL2__RENDER_BYTES);
        return EXL2_OK;
    }
    const exl2_model_info *info = &m->info;
    bool on_device = exl2__objects_has_memory(m);
    uint64_t more = exl2__loading_more(m) + (on_device ? 0 : info->weight_bytes + info->cache_bytes);
    if (more > exl2__alloc_room(c)) {
        return exl2__fail(c, EXL2_ERR_BUDGET,
                          "%s needs %llu bytes (weights %llu, cache %llu), but host_bytes_max leaves %llu", m->path,
                          (unsigned long long)(info->weight_bytes + info->cache_bytes + info->scratch_bytes
                                               - info->device_bytes),
                          (unsigned long long)(on_device ? info->host_weight_bytes : info->weight_bytes),
                          (unsigned long long)(on_device ? 0 : info->cache_bytes),
                          (unsigned long long)exl2__alloc_room(c));
    }
    if (on_device) {
        EXL2__TRY_DONE(exl2__spans_reserve(&m->spans, m->span_bytes));
        EXL2__TRY(exl2__spans_open_host_weights(c, &m->spans, m->weights.host_bytes));
    } else {
        EXL2__TRY(exl2__spans_open_weights(c, &m->spans, m->span_bytes));
        EXL2__TRY(exl2__loading_open_tower(c, m));
        EXL2__TRY(exl2__spans_open_pages(c, &m->spans));
    }
    EXL2__TRY(exl2__arena_open(c, &m->scratch, m->scratch_bytes, EXL2_MEM_SCRATCH));
    exl2__loading_layers(m, &m->scratch);
    return exl2__weights_begin(c, &m->weights);
}

EXL2__PRIVATE exl2_result exl2__loading_weights(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    return m->desc.text_only ? EXL2_OK
         : exl2__weights_spans(&e->ctx, &m->weights, &m->plan, &m->spans, work);
}

EXL2__PRIVATE exl2_result exl2__loading_keep_packed(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    bool keeps = !m->desc.text_only && m->desc.keep_packed && exl2__objects_has_memory(m);
    (void)e;
    return keeps ? exl2__spans_keep_packed(&m->spans, work) : EXL2_OK;
}

/* Host memory for the cache's second tier. */
EXL2__PRIVATE exl2_result exl2__loading_tier(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    (void)e;
    return m->plan.host_pages ? exl2__spans_tier_open(&m->spans, m->plan.host_pages, work) : EXL2_OK;
}

/* Once all weights are packed: lays out the rest of the scratch memory. */
EXL2__PRIVATE exl2_result exl2__loading_finish(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    if (m->desc.text_only) {
        return EXL2_OK;
    }
    if (!exl2__work_spend_all(work)) {
        return EXL2_PENDING;
    }
    exl2__weights_close(&e->ctx, &m->weights);
    exl2__content_id_end(m->weights.content_head, m->weights.content_sum, m->info.content_id);
    EXL2__TRY(exl2__loading_layout(e, m, false, &m->scratch));
    if (m->scratch.used > m->scratch.size || exl2__spans_overflow(&m->spans)) {
        return exl2__fail(&e->ctx, EXL2_ERR_INTERNAL, "%s: the model needs more memory than its plan reserved",
                          m->path);
    }
    EXL2__ASSERT(exl2__arena_is_filled(&m->scratch) && exl2__spans_are_filled(&m->spans));
#ifndef EXL2_NO_VISION
    exl2__images_hold(m, true);
#endif
    m->mask_ns = EXL2__FIRST_MASK_NS;
    m->mask_begin_ns = EXL2__FIRST_MASK_BEGIN_NS;
    m->forward.c = &e->ctx;
    m->forward.spans = &m->spans;
    m->forward.plan = &m->plan;
    return EXL2_OK;
}

/* ---- the stages ---- */

typedef exl2_result (*exl2__loading_stage)(exl2_engine *e, exl2__model *m, exl2__work *work);

static const exl2__loading_stage exl2__loading_stages[] = {
    exl2__loading_config, exl2__loading_vocab, exl2__loading_grammar_vocab, exl2__loading_chats,
    exl2__loading_open_backend, exl2__loading_headers, exl2__loading_tower, exl2__loading_sizes,
    exl2__loading_allocate, exl2__loading_weights, exl2__loading_tower_weights, exl2__loading_keep_packed,
    exl2__loading_tier, exl2__loading_finish,
};

#define EXL2__LOADING_MEASURED 8u /* stages that exl2_model_measure needs, too */

#endif

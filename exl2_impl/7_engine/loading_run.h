/* loading_run.h: loads a model in slices short enough for a frame: a new one, or one that was parked.
   takes: the stages of loading.h; exl2_model_desc.
   gives: exl2__loading_open, exl2__loading_measure, exl2__loading_run; exl2__loading_free_parked,
          exl2__loading_begin_again.
   owns:  nothing; what loading makes is the model's. */
#ifndef EXL2__LOADING_RUN_H
#define EXL2__LOADING_RUN_H

#include "loading.h"

/* ---- a parked model loads again ---- */

/* Frees what a parked model does not keep: all that the backend has, or, with keep_packed, all but packed weights. */
EXL2__PRIVATE void exl2__loading_free_parked(exl2_engine *e, exl2__model *m)
{
    exl2__loading_end_reading(e, m);
    exl2__loras_park(e, m);
    exl2__weights_close(&e->ctx, &m->weights);
    if (!m->desc.keep_packed) {
#ifndef EXL2_NO_VISION
        exl2__images_park(&e->ctx, m);
#endif
        exl2__spans_close(&e->ctx, &m->spans);
    } else if (exl2__objects_has_memory(m)) {
#ifndef EXL2_NO_VISION
        exl2__images_interrupt(m);
#endif
        exl2__spans_drop(&m->spans);
    } else {
        exl2__spans_free_pages(&e->ctx, &m->spans);
    }
    m->park = EXL2__PARK_PARKED;
}

/* Begins with the headers, or, with keep_packed, with the memory. */
EXL2__PRIVATE exl2_result exl2__loading_again_begin(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    exl2__config config = m->weights.config;
    void *memory;
    (void)work;
    if (m->desc.keep_packed) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__alloc(&e->ctx, sizeof *m->loading, 64, EXL2_MEM_GENERAL, &memory));
    memset(memory, 0, sizeof *m->loading);
    m->loading = (exl2__loading *)memory;
    memset(&m->weights, 0, sizeof m->weights);
    m->weights.config = config;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__loading_changed(exl2_engine *e, const exl2__model *m)
{
    return exl2__fail(&e->ctx, EXL2_ERR_FORMAT, "%s: the files have changed since the model was loaded", m->path);
}

EXL2__PRIVATE exl2_result exl2__loading_again_read(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    uint8_t head[16];
    if (m->desc.keep_packed) {
        return EXL2_OK;
    }
    if (!exl2__spans_are_open(&m->spans)) {
        EXL2__TRY_DONE(exl2__loading_open_backend(e, m, work));
    }
    EXL2__TRY_DONE(exl2__loading_headers(e, m, work));
    EXL2__TRY(exl2__offload_again(&e->ctx, m));
    exl2__loading_end_reading(e, m);
    exl2__store64(head, m->weights.content_head[0]);
    exl2__store64(head + 8, m->weights.content_head[1]);
    bool same = memcmp(head, m->content_head, sizeof head) == 0
             && m->weights.weight_bytes + exl2__weights_away(&m->weights) + m->info.tower_bytes == m->info.weight_bytes;
    return same ? EXL2_OK : exl2__loading_changed(e, m);
}

EXL2__PRIVATE exl2_result exl2__loading_again_towers(exl2_engine *e, exl2__model *m, exl2__work *work)
{
#ifndef EXL2_NO_VISION
    if (m->images.on && !m->desc.keep_packed) {
        return exl2__loading_tower_headers(&e->ctx, m, work);
    }
#endif
    (void)e, (void)m, (void)work;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__loading_again_allocate(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    exl2__ctx *c = &e->ctx;
    if (!exl2__work_spend_all(work)) {
        return EXL2_PENDING;
    }
    if (exl2__objects_has_memory(m)) {
        exl2__arena dry = { 0 };
        EXL2__TRY(exl2__spans_prepare(&m->spans, &m->plan, true, &dry)); /* devices that are new know the plan */
        EXL2__TRY_DONE(exl2__spans_reserve(&m->spans, m->span_bytes));
        EXL2__TRY(exl2__spans_open_host_weights(c, &m->spans, m->desc.keep_packed ? 0 : m->weights.host_bytes));
    } else {
        EXL2__TRY(exl2__spans_open_pages(c, &m->spans));
    }
    if (m->desc.keep_packed) {
        return EXL2_OK;
    }
    if (!exl2__objects_has_memory(m)) {
        EXL2__TRY(exl2__spans_open_weights(c, &m->spans, m->span_bytes));
        EXL2__TRY(exl2__loading_open_tower(c, m));
    }
    return exl2__weights_begin(c, &m->weights);
}

EXL2__PRIVATE exl2_result exl2__loading_again_weights(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    return !m->desc.keep_packed ? exl2__loading_weights(e, m, work)
         : exl2__objects_has_memory(m) ? exl2__spans_restore(&m->spans, work) : EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__loading_again_tower(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    return m->desc.keep_packed ? EXL2_OK : exl2__loading_tower_weights(e, m, work);
}

/* The backend's part of the scratch memory, and the tower's, are laid out again in their places. */
EXL2__PRIVATE exl2_result exl2__loading_again_finish(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    exl2__arena scratch = m->scratch;
    uint8_t id[16];
    if (!exl2__work_spend_all(work)) {
        return EXL2_PENDING;
    }
    exl2__content_id_end(m->weights.content_head, m->weights.content_sum, id);
    if (!m->desc.keep_packed && memcmp(id, m->info.content_id, sizeof id) != 0) {
        return exl2__loading_changed(e, m);
    }
    exl2__weights_close(&e->ctx, &m->weights);
    scratch.used = m->prepared_at;
    EXL2__TRY(exl2__spans_prepare(&m->spans, &m->plan, false, &scratch));
#ifndef EXL2_NO_VISION
    exl2__images_hold(m, true);
    if (m->images.on && !m->desc.keep_packed && !exl2__images_towers(m)) {
        scratch.used = m->images.prepared_at;
        exl2__tower_prepare(&m->images.tower, exl2__images_cpu(m), &m->images.limits, &scratch);
    }
#endif
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__loading_again_loras(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    return exl2__loras_unpark(e, m, work);
}

static const exl2__loading_stage exl2__loading_again[] = {
    exl2__loading_again_begin, exl2__loading_again_read, exl2__loading_again_towers, exl2__loading_again_allocate,
    exl2__loading_again_weights, exl2__loading_again_tower, exl2__loading_tier, exl2__loading_again_finish,
    exl2__loading_again_loras,
};

/* Begins to load a parked model again. */
static inline void exl2__loading_begin_again(exl2__model *m)
{
    m->park = EXL2__PARK_LOADS;
    m->loading_stage = 0;
    m->load_result = EXL2_PENDING;
    m->progress = 0;
    m->progress_sent = -1; /* one event before the first slice */
}

/* ---- slices ---- */

/* Runs the stages that read. */
EXL2__PRIVATE exl2_result exl2__loading_read(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    while (m->loading_stage < EXL2__LOADING_MEASURED) {
        EXL2__TRY_DONE(exl2__loading_stages[m->loading_stage](e, m, work));
        m->loading_stage++;
        m->loading->begun = false;
    }
    return EXL2_OK;
}

/* The same, and frees their readers. Also predicts the peak: if reading needed more memory than the
   loaded model will (a large tokenizer), the peak of reading is the prediction. Other models may load between two
   slices, so that each slice counts its own memory. */
EXL2__PRIVATE exl2_result exl2__loading_measure(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    exl2__ctx *c = &e->ctx;
    exl2_model_info *info = &m->info;
    uint64_t before = c->host_bytes, peak = c->host_peak;
    if (!m->loading) {
        void *memory;
        EXL2__TRY(exl2__alloc(c, sizeof *m->loading, 64, EXL2_MEM_GENERAL, &memory));
        memset(memory, 0, sizeof *m->loading);
        m->loading = (exl2__loading *)memory;
        m->loading->bytes = c->host_bytes - before;
        before = c->host_bytes;
    }
    exl2__loading *l = m->loading;
    c->host_peak = before;
    exl2_result r = exl2__loading_read(e, m, work);
    l->peak = exl2__max64(l->peak, l->bytes + (c->host_peak - before));
    l->bytes += c->host_bytes - before;
    c->host_peak = exl2__max64(c->host_peak, peak);
    if (r == EXL2_OK) {
        uint64_t ready = info->weight_bytes + info->cache_bytes + info->scratch_bytes;
        info->scratch_bytes += l->peak > ready ? l->peak - ready : 0;
    }
    if (r != EXL2_PENDING) {
        exl2__loading_end_reading(e, m);
    }
    return r;
}

/* One slice. */
EXL2__PRIVATE exl2_result exl2__loading_slice(exl2_engine *e, exl2__model *m)
{
    exl2__work work = exl2__work_slice();
    while (m->park == EXL2__PARK_LOADS && m->loading_stage < EXL2__COUNT(exl2__loading_again)) {
        EXL2__TRY_DONE(exl2__loading_again[m->loading_stage](e, m, &work));
        m->loading_stage++;
    }
    if (m->park == EXL2__PARK_LOADS) {
        return EXL2_OK;
    }
    if (m->loading_stage < EXL2__LOADING_MEASURED) {
        EXL2__TRY_DONE(exl2__loading_measure(e, m, &work));
    }
    while (m->loading_stage < EXL2__COUNT(exl2__loading_stages)) {
        EXL2__TRY_DONE(exl2__loading_stages[m->loading_stage](e, m, &work));
        m->loading_stage++;
    }
    return EXL2_OK;
}

/* All events of a load are delivered. A parked model that could not be loaded again stays parked. */
EXL2__PRIVATE void exl2__loading_end(exl2_engine *e, exl2__model *m)
{
    if (m->park == EXL2__PARK_NONE) {
        m->state = m->load_result;
    } else if (m->load_result >= 0) {
        m->park = EXL2__PARK_NONE;
        m->loading_stage = (uint32_t)EXL2__COUNT(exl2__loading_stages);
    } else {
        exl2__loading_free_parked(e, m);
    }
}

/* Whether the worker runs this, and a call waits until it stops. */
static inline bool exl2__loading_must_stop(exl2_engine *e)
{
    return e->worker.stepping && exl2__atomic_load(&e->worker.wanted);
}

/* Loads slices until the deadline, at least one; deadline 0 = one slice. */
EXL2__PRIVATE void exl2__loading_run(exl2_engine *e, exl2__model *m, uint64_t deadline_ns, bool *progressed)
{
    uint64_t id = m->id;
    if (m->load_deferred) {
        return;
    }
    do {
        if (m->progress_sent < m->progress && !exl2__loading_deliver(e, m, m->progress, EXL2_PENDING)) {
            return;
        }
        if (m->id != id) { /* the callback closed the model */
            return;
        }
        m->progress_sent = m->progress;
        if (m->load_result == EXL2_PENDING) {
            m->load_result = exl2__loading_slice(e, m);
            *progressed = true;
            if (m->load_result < 0) { /* before another call fails: the event may have to wait for room */
                exl2__error_copy(&e->ctx, &m->error);
            }
        }
        if (m->load_result != EXL2_PENDING) {
            bool deferred = exl2__loading_way(e, m) == EXL2__WAY_DEFERRED;
            if (exl2__loading_deliver(e, m, m->load_result < 0 ? m->progress : 1.0f, m->load_result)) {
                if (m->id == id && deferred) {
                    m->load_deferred = true;
                } else if (m->id == id) {
                    exl2__loading_end(e, m);
                }
                *progressed = true;
            }
            return;
        }
        float now = m->weights.code_bytes ? (float)((double)m->weights.read_bytes / (double)m->weights.code_bytes) : 0;
        m->progress = now >= m->progress + EXL2__LOADING_STEP ? now : m->progress;
    } while (deadline_ns && exl2__platform_ns() < deadline_ns && !exl2__loading_must_stop(e));
}

/* Allocates a slot for the model; exl2_step does the rest. */
EXL2__PRIVATE exl2_result exl2__loading_open(exl2_engine *e, const exl2_model_desc *d, exl2_model *out)
{
    if (e->closing) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "the engine is being closed");
    }
    uint64_t id = exl2__pool_alloc(&e->model_ids);
    if (!id) {
        return exl2__fail(&e->ctx, EXL2_ERR_BUDGET, "all %u models are in use; raise max_models", e->max_models);
    }
    exl2__model *m = &e->models[exl2__pool_slot_of(id)];
    memset(m, 0, sizeof *m);
    m->id = id;
    m->state = m->load_result = EXL2_PENDING;
    exl2__format(m->path, sizeof m->path, "%s", d->path);
    m->desc = *d;
    m->desc.path = m->path;
    m->desc.cards = m->cards;
    if (d->card_count) {
        memcpy(m->cards, d->cards, d->card_count * sizeof *m->cards);
    }
    exl2__cards_list(e, m);
    out->id = id;
    return EXL2_OK;
}

#endif

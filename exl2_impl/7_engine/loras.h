/* loras.h: the adapters of a model: how they are loaded in slices, which jobs have them, and when they are freed.
   takes: exl2_lora_desc; the loras of a job's desc.
   gives: exl2__lora, exl2__loras_find_any, exl2__loras_find, exl2__loras_open, exl2__loras_measure, exl2__loras_run,
          exl2__loras_delivered, exl2__loras_close, exl2__loras_close_all; exl2__loras_of_desc, exl2__loras_root; for
          steers.h exl2__loras_is_used, exl2__loras_is_factor, exl2__loras_insert.
   owns:  an adapter's memory, from its load until its last job and pass have ended after exl2_lora_close. */
#ifndef EXL2__LORAS_H
#define EXL2__LORAS_H

#include "../2_graph/lora_load.h"
#include "jobs.h"

#define EXL2__LORAS_RANK_MAX 64u /* of an adapter, if the model's desc has none */

typedef struct exl2__lora {
    uint64_t id;                 /* 0 = free slot */
    exl2_result state;           /* PENDING, OK, or the error */
    exl2_error error;            /* the message for state < 0 */
    char path[EXL2__PATH_BYTES];
    exl2_event_fn on_event;
    void *user;
    bool discard_events;         /* exl2_lora_load without on_event */
    bool closing;                /* its handle is stale; it is freed when nothing uses it */
    bool awaited;                /* exl2_lora_load reads how it ended: it is not freed before */
    exl2__lora_loader *loader;   /* while it loads */
    exl2_result load_result;     /* of loading, or PENDING; `state` becomes it once the last LOAD event is delivered */
    bool load_deferred;          /* that event waits in the worker's ring for the callback */
    float progress, progress_sent;
    exl2_lora_info info;
    exl2__lora_memory memory;
    exl2__lora_store store;
} exl2__lora;

/* The adapter of a handle, also one that was closed and is not freed yet, and its model; NULL: there is none. */
EXL2__PRIVATE exl2__lora *exl2__loras_find_any(exl2_engine *e, exl2_lora handle, exl2__model **model)
{
    for (uint32_t i = 0; handle.id && i < e->max_models; i++) {
        exl2__model *m = &e->models[i];
        for (uint32_t k = 0; m->id && m->loras && k < m->desc.lora_max; k++) {
            if (m->loras[k].id == handle.id) {
                *model = m;
                return &m->loras[k];
            }
        }
    }
    return NULL;
}

/* The adapter of a handle, and its model; NULL: it is stale. */
EXL2__PRIVATE exl2__lora *exl2__loras_find(exl2_engine *e, exl2_lora handle, exl2__model **model)
{
    exl2__lora *l = exl2__loras_find_any(e, handle, model);
    return l && !l->closing ? l : NULL;
}

/* ---- use ---- */

static inline bool exl2__loras_has(const exl2__lora_set *set, uint64_t id)
{
    bool has = false;
    for (uint32_t i = 0; set && i < set->count + set->steer_count; i++) {
        has = has || set->uses[i].id == id;
    }
    return has;
}

/* Whether a job, or the pass in flight, has the adapter or the control vector with this id. */
EXL2__PRIVATE bool exl2__loras_is_used(exl2_engine *e, const exl2__model *m, uint64_t id)
{
    bool used = false;
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        used = used || exl2__loras_has(job->sequence.loras, id);
    }
    for (uint32_t i = 0; m->forward.active && i < m->forward.step.lora_set_count; i++) {
        used = used || exl2__loras_has(&m->batch.lora_sets[i], id);
    }
    return used;
}

static inline void exl2__loras_free_loader(exl2_engine *e, exl2__lora *l)
{
    if (l->loader) {
        exl2__lora_load_end(l->loader);
        exl2__free(&e->ctx, l->loader, sizeof *l->loader, EXL2_MEM_GENERAL);
        l->loader = NULL;
    }
}

EXL2__PRIVATE void exl2__loras_free(exl2_engine *e, exl2__model *m, exl2__lora *l)
{
    exl2__loras_free_loader(e, l);
    if (l->memory.table) {
        exl2__lora_load_free(&e->ctx, &m->spans, &l->memory);
    }
    exl2__roots_drop(&m->roots, &m->pages, l->id);
    memset(l, 0, sizeof *l);
}

/* Frees the adapters that were closed, and that nothing uses any more. */
EXL2__PRIVATE void exl2__loras_collect(exl2_engine *e, exl2__model *m)
{
    for (uint32_t i = 0; m->loras && i < m->desc.lora_max; i++) {
        exl2__lora *l = &m->loras[i];
        if (l->id && l->closing && !l->awaited && !exl2__loras_is_used(e, m, l->id)) {
            exl2__loras_free(e, m, l);
        }
    }
}

/* The handle is stale from now on. */
EXL2__PRIVATE void exl2__loras_close(exl2_engine *e, exl2__model *m, exl2__lora *l)
{
    l->closing = true;
    exl2__loras_free_loader(e, l);
    if (!e->in_callback) {
        exl2__loras_collect(e, m);
    }
}

/* The model ends, and its jobs have ended. */
EXL2__PRIVATE void exl2__loras_close_all(exl2_engine *e, exl2__model *m)
{
    for (uint32_t i = 0; m->loras && i < m->desc.lora_max; i++) {
        if (m->loras[i].id) {
            exl2__loras_free(e, m, &m->loras[i]);
        }
    }
}

/* ---- loading ---- */

/* Fails unless the model can have adapters now. headers: it is enough that the model's headers are read. */
EXL2__PRIVATE exl2_result exl2__loras_check_model(exl2_engine *e, const exl2__model *m, bool headers)
{
    if (m->desc.lora_max == 0) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "%s was opened with lora_max 0: set exl2_model_desc.lora_max to the "
                          "number of adapters", m->path);
    }
    bool read = headers && m->state == EXL2_PENDING && m->plan.lora_max > 0;
    if ((m->state != EXL2_OK && !read) || m->desc.text_only || m->park != EXL2__PARK_NONE) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE,
                          "%s is not loaded, or is parked: an adapter can be opened once the model is ready",
                          m->path);
    }
    return exl2__objects_not_closing(e, m);
}

EXL2__PRIVATE exl2_result exl2__loras_make_loader(exl2_engine *e, exl2__model *m, const char *path,
                                                  exl2__lora_loader **out)
{
    void *memory;
    EXL2__TRY(exl2__alloc(&e->ctx, sizeof **out, EXL2__ARENA_ALIGN, EXL2_MEM_GENERAL, &memory));
    *out = (exl2__lora_loader *)memory;
    exl2__lora_load_begin(*out, &e->ctx, path, &m->weights.config, &m->plan, &m->spans);
    return EXL2_OK;
}

/* Reads headers, and checks the rank; then the info is known, but for the content_id. */
EXL2__PRIVATE exl2_result exl2__loras_measure_slice(exl2_engine *e, const exl2__model *m, exl2__lora_loader *l,
                                                    exl2_lora_info *info, exl2__work *work)
{
    EXL2__TRY_DONE(exl2__lora_load_measure(l, work));
    bool on_device = exl2__objects_has_memory(m);
    info->rank_max = l->files.rank_max;
    info->matrices = l->files.count;
    uint64_t blocks = exl2__lora_memory_blocks(&l->memory);
    info->bytes = blocks + (on_device ? l->memory.table_bytes : 0);
    info->device_bytes = on_device ? blocks : 0;
    exl2__format(info->warning, sizeof info->warning, "%s", l->files.warning);
    if (l->files.rank_max > m->plan.lora_rank_max) {
        return exl2__fail(&e->ctx, EXL2_ERR_BUDGET, "the adapter has rank %u, but exl2_model_desc.lora_rank_max is %u",
                          l->files.rank_max, m->plan.lora_rank_max);
    }
    return EXL2_OK;
}

/* Measures an adapter at once, and fills in *info. */
EXL2__PRIVATE exl2_result exl2__loras_measure(exl2_engine *e, exl2__model *m, const char *path, exl2_lora_info *info)
{
    exl2__lora_loader *loader;
    exl2__work all = exl2__work_all();
    EXL2__TRY(exl2__loras_check_model(e, m, true));
    EXL2__TRY(exl2__loras_make_loader(e, m, path, &loader));
    exl2_result r = exl2__loras_measure_slice(e, m, loader, info, &all);
    exl2__lora_load_end(loader);
    exl2__free(&e->ctx, loader, sizeof *loader, EXL2_MEM_GENERAL);
    return r;
}

/* Allocates a slot for the adapter; exl2_step does the rest. */
EXL2__PRIVATE exl2_result exl2__loras_open(exl2_engine *e, exl2__model *m, const exl2_lora_desc *d, exl2_lora *out)
{
    exl2__lora *l = NULL;
    EXL2__TRY(exl2__loras_check_model(e, m, false));
    exl2__loras_collect(e, m);
    for (uint32_t i = 0; i < m->desc.lora_max && !l; i++) {
        l = m->loras[i].id ? NULL : &m->loras[i];
    }
    if (!l) {
        return exl2__fail(&e->ctx, EXL2_ERR_BUDGET, "%s has %u adapters already, and exl2_model_desc.lora_max is %u: "
                          "close one of them", m->path, m->desc.lora_max, m->desc.lora_max);
    }
    *l = (exl2__lora){ .id = ++e->loras_made, .state = EXL2_PENDING, .load_result = EXL2_PENDING,
                       .on_event = d->on_event, .user = d->user, .progress_sent = -1 };
    exl2__format(l->path, sizeof l->path, "%s", d->path);
    out->id = l->id;
    return EXL2_OK;
}

/* Reads the next slice. OK: the adapter is in memory. id: its content_id. */
EXL2__PRIVATE exl2_result exl2__loras_read(exl2_engine *e, exl2__model *m, exl2__lora *l, uint8_t id[16],
                                           exl2__work *work)
{
    exl2_lora_info info = l->info;
    if (!l->loader) {
        EXL2__TRY(exl2__loras_make_loader(e, m, l->path, &l->loader));
    }
    exl2__lora_loader *loader = l->loader;
    if (loader->stage < EXL2__LORA_LOAD_MEASURED) {
        EXL2__TRY_DONE(exl2__loras_measure_slice(e, m, loader, &info, work));
        l->info = l->state == EXL2_PENDING ? info : l->info;
    }
    exl2_result r = exl2__lora_load_slice(loader, work);
    l->progress = loader->bytes ? (float)((double)loader->read_bytes / (double)loader->bytes) : 0;
    EXL2__TRY_DONE(r);
    l->store = exl2__lora_load_store(loader);
    l->memory = loader->memory;
    loader->memory = (exl2__lora_memory){ 0 };
    exl2__store64(id, loader->content[0]);
    exl2__store64(id + 8, loader->content[1]);
    return EXL2_OK;
}

/* ---- parking ---- */

/* The model is parked: gives the memory of its adapters back, and begins loads in progress anew later. On the CPU the
   packed weights stay with keep_packed, and so do adapters. */
EXL2__PRIVATE void exl2__loras_park(exl2_engine *e, exl2__model *m)
{
    bool stays = m->desc.keep_packed && !exl2__objects_has_memory(m);
    for (uint32_t i = 0; m->loras && i < m->desc.lora_max; i++) {
        exl2__lora *l = &m->loras[i];
        exl2__loras_free_loader(e, l);
        if (l->memory.table && !stays) {
            exl2__lora_load_free(&e->ctx, &m->spans, &l->memory);
        }
    }
}

/* Loads the adapters of a parked model again, in slices. */
EXL2__PRIVATE exl2_result exl2__loras_unpark(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    for (uint32_t i = 0; m->loras && i < m->desc.lora_max; i++) {
        exl2__lora *l = &m->loras[i];
        uint8_t id[16];
        bool needed = l->id && l->load_result == EXL2_OK && !l->memory.table
                   && (!l->closing || exl2__loras_is_used(e, m, l->id));
        if (!needed) {
            continue;
        }
        EXL2__TRY_DONE(exl2__loras_read(e, m, l, id, work));
        exl2__loras_free_loader(e, l);
        if (memcmp(id, l->info.content_id, sizeof id) != 0) {
            return exl2__fail(&e->ctx, EXL2_ERR_FORMAT, "%s: the files have changed since the adapter was loaded",
                              l->path);
        }
    }
    return EXL2_OK;
}

/* ---- loads in steps ---- */

static inline exl2__way exl2__loras_way(const exl2_engine *e, const exl2__lora *l)
{
    return exl2__jobs_choose_way(l->on_event, l->discard_events, e->worker.stepping);
}

/* Delivers a LOAD event. false: the ring is full; loading waits. */
EXL2__PRIVATE bool exl2__loras_deliver(exl2_engine *e, const exl2__model *m, const exl2__lora *l, float progress,
                                       exl2_result result)
{
    exl2_event event = { 0 };
    event.kind = EXL2_EVENT_LOAD;
    event.model.id = m->id;
    event.lora.id = l->id;
    event.user = l->user;
    event.progress = progress;
    event.result = result;
    exl2_error error = l->error; /* the callback may close the adapter */
    event.error = result < 0 ? error.text : NULL;
    exl2_flow ignored;
    return exl2__jobs_deliver(e, exl2__loras_way(e, l), l->on_event, &event, &ignored);
}

#ifndef EXL2_NO_THREADS
/* Delivers a LOAD event that the worker wrote. The last one ends the load. */
EXL2__PRIVATE void exl2__loras_delivered(exl2_engine *e, const exl2_event *event)
{
    exl2__model *m;
    exl2_flow ignored;
    exl2__lora *l = exl2__loras_find(e, event->lora, &m);
    if (!l) {
        return;
    }
    exl2__jobs_deliver(e, EXL2__WAY_CALLBACK, l->on_event, event, &ignored);
    l = exl2__loras_find(e, event->lora, &m);
    if (l && event->result != EXL2_PENDING) {
        l->load_deferred = false;
        l->state = l->load_result;
    }
}
#endif

#define EXL2__LORAS_STEP 0.05f /* least progress between two LOAD events */

/* Loads one slice of an adapter, and delivers what is due. */
EXL2__PRIVATE void exl2__loras_advance(exl2_engine *e, exl2__model *m, exl2__lora *l, bool *progressed)
{
    uint64_t id = l->id, model = m->id;
    if (l->progress_sent < 0 || l->progress >= l->progress_sent + EXL2__LORAS_STEP) {
        if (!exl2__loras_deliver(e, m, l, l->progress, EXL2_PENDING)) {
            return;
        }
        if (m->id != model || l->id != id || l->closing) { /* the callback closed it */
            return;
        }
        l->progress_sent = l->progress;
    }
    if (l->load_result == EXL2_PENDING) {
        exl2__work work = exl2__work_slice();
        l->load_result = exl2__loras_read(e, m, l, l->info.content_id, &work);
        *progressed = true;
        if (l->load_result < 0) {
            exl2__error_copy(&e->ctx, &l->error);
        }
        if (l->load_result != EXL2_PENDING) {
            exl2__loras_free_loader(e, l);
        }
    }
    if (l->load_result != EXL2_PENDING) {
        bool deferred = exl2__loras_way(e, l) == EXL2__WAY_DEFERRED;
        if (exl2__loras_deliver(e, m, l, l->load_result < 0 ? l->progress : 1.0f, l->load_result)) {
            *progressed = true;
            if (m->id == model && l->id == id) {
                l->load_deferred = deferred;
                l->state = deferred ? l->state : l->load_result;
            }
        }
    }
}

static inline bool exl2__loras_loads(const exl2__lora *l)
{
    return l->id && !l->closing && l->state == EXL2_PENDING && !l->load_deferred;
}

/* Whether an adapter of the model loads, or waits to be freed. */
EXL2__PRIVATE bool exl2__loras_have_work(const exl2__model *m)
{
    bool work = false;
    for (uint32_t i = 0; m->loras && m->park == EXL2__PARK_NONE && i < m->desc.lora_max; i++) {
        work = work || exl2__loras_loads(&m->loras[i]) || (m->loras[i].id && m->loras[i].closing);
    }
    return work;
}

/* Loads adapters until the deadline, at least one slice; deadline 0 = one slice. Frees those that were closed. */
EXL2__PRIVATE void exl2__loras_run(exl2_engine *e, exl2__model *m, uint64_t deadline_ns, bool *progressed)
{
    uint64_t model = m->id;
    exl2__loras_collect(e, m);
    do {
        exl2__lora *l = NULL;
        bool advanced = false;
        for (uint32_t i = 0; i < m->desc.lora_max && !l; i++) {
            l = exl2__loras_loads(&m->loras[i]) ? &m->loras[i] : NULL;
        }
        if (!l) {
            return;
        }
        exl2__loras_advance(e, m, l, &advanced);
        *progressed = *progressed || advanced;
        if (!advanced || m->id != model) {
            return;
        }
    } while (deadline_ns && exl2__platform_ns() < deadline_ns
             && !(e->worker.stepping && exl2__atomic_load(&e->worker.wanted)));
}

/* ---- the set of a job ---- */

/* Whether an application may give this factor: -100 to 100, or EXL2_OFF. */
static inline bool exl2__loras_is_factor(float factor)
{
    return (factor >= -100 && factor <= 100) || (factor >= EXL2_OFF && factor <= EXL2_OFF); /* not NaN */
}

EXL2__PRIVATE exl2_result exl2__loras_check_use(exl2_engine *e, const exl2__model *m, const exl2_lora_use *use,
                                                exl2__lora **out)
{
    exl2__model *owner;
    exl2__lora *l = exl2__loras_find(e, use->lora, &owner);
    if (!l) {
        return exl2__fail(&e->ctx, EXL2_ERR_STALE, "lora handle %llu names no adapter; it was closed, or never made",
                          (unsigned long long)use->lora.id);
    }
    if (owner != m) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "the adapter of %s belongs to another model than the job's", l->path);
    }
    if (l->state != EXL2_OK) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, l->state == EXL2_PENDING ? "the adapter of %s is still loading"
                                                                             : "the adapter of %s did not load",
                          l->path);
    }
    if (!exl2__loras_is_factor(use->scale)) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "the scale of the adapter of %s must be from -100 to 100",
                          l->path);
    }
    *out = l;
    return EXL2_OK;
}

/* The content_id of an adapter or control vector that has not been freed; NULL: there is none. */
EXL2__PRIVATE const uint8_t *exl2__loras_content(const exl2__model *m, uint64_t id)
{
    const uint8_t *content = NULL;
    for (uint32_t k = 0; k < m->desc.lora_max; k++) {
        content = m->loras[k].id == id ? m->loras[k].info.content_id : content;
    }
    for (uint32_t k = 0; k < m->desc.steer_max; k++) {
        content = m->steers[k].id == id ? m->steers[k].info.content_id : content;
    }
    return content;
}

/* Adds a use to `uses` [*count], in the order of sums: by content_id, so that it is that of another run, too. Factor 0
   is 1. */
EXL2__PRIVATE void exl2__loras_insert(const exl2__model *m, exl2__lora_use *uses, uint32_t *count, exl2__lora_use use)
{
    const uint8_t *content = exl2__loras_content(m, use.id);
    uint32_t at = (*count)++;
    for (; at > 0; at--) {
        int order = memcmp(content, exl2__loras_content(m, uses[at - 1].id), 16);
        if (order > 0 || (order == 0 && use.id > uses[at - 1].id)) {
            break;
        }
        uses[at] = uses[at - 1];
    }
    use.scale = use.scale >= 0 && use.scale <= 0 ? 1.0f : use.scale;
    uses[at] = use;
}

/* Makes the adapters of the set that a desc asks for; steers.h adds its control vectors. */
EXL2__PRIVATE exl2_result exl2__loras_of_desc(exl2_engine *e, const exl2__model *m, const exl2_job_desc *d,
                                              exl2__lora_set *set)
{
    set->count = set->steer_count = 0;
    if (d->lora_count > EXL2_JOB_LORAS) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "the job names %u adapters, but a job has at most %u", d->lora_count,
                          EXL2_JOB_LORAS);
    }
    for (uint32_t i = 0; i < d->lora_count; i++) {
        const exl2_lora_use *use = &d->loras[i];
        exl2__lora *l = NULL;
        EXL2__TRY(exl2__loras_check_use(e, m, use, &l));
        for (uint32_t k = 0; k < i; k++) {
            if (d->loras[k].lora.id == l->id) {
                return exl2__fail(&e->ctx, EXL2_ERR_ARG, "the job names the adapter of %s twice", l->path);
            }
        }
        if (use->scale >= -100) { /* else EXL2_OFF */
            exl2__loras_insert(m, set->uses, &set->count, (exl2__lora_use){ &l->store, NULL, l->id, use->scale });
        }
    }
    return EXL2_OK;
}

/* What the adapters and control vectors of a set are; NULL: none. */
EXL2__PRIVATE exl2__lora_names exl2__loras_names(const exl2__model *m, const exl2__lora_set *set)
{
    exl2__lora_names names = { .count = 0 };
    for (uint32_t i = 0; set && i < set->count + set->steer_count; i++) {
        const uint8_t *content = exl2__loras_content(m, set->uses[i].id);
        if (content) {
            exl2__lora_name *name = &names.names[names.count++];
            memcpy(name->content_id, content, sizeof name->content_id);
            name->scale = set->uses[i].scale;
        }
    }
    return names;
}

/* Adds what has this name to a set whose adapters are all in it before the first control vector. false: it is not
   loaded. */
EXL2__PRIVATE bool exl2__loras_add_name(const exl2__model *m, const exl2__lora_name *name, exl2__lora_set *set)
{
    exl2__lora_use *use = &set->uses[set->count + set->steer_count];
    for (uint32_t k = 0; k < m->desc.lora_max && set->steer_count == 0 && set->count < EXL2_JOB_LORAS; k++) {
        const exl2__lora *l = &m->loras[k];
        if (l->id && !l->closing && l->state == EXL2_OK && !exl2__loras_has(set, l->id)
            && memcmp(l->info.content_id, name->content_id, sizeof name->content_id) == 0) {
            *use = (exl2__lora_use){ &l->store, NULL, l->id, name->scale };
            set->count++;
            return true;
        }
    }
    for (uint32_t k = 0; k < m->desc.steer_max && set->steer_count < EXL2_JOB_STEERS; k++) {
        const exl2__steer *s = &m->steers[k];
        if (s->id && !s->closing && !exl2__loras_has(set, s->id)
            && memcmp(s->info.content_id, name->content_id, sizeof name->content_id) == 0) {
            *use = (exl2__lora_use){ NULL, &s->store, s->id, name->scale };
            set->steer_count++;
            return true;
        }
    }
    return false;
}

/* Makes a set of the adapters and control vectors with these names. false: one of them is not loaded. */
EXL2__PRIVATE bool exl2__loras_of_names(const exl2__model *m, const exl2__lora_names *names, exl2__lora_set *set)
{
    bool all = true;
    set->count = set->steer_count = 0;
    for (uint32_t i = 0; i < names->count && all; i++) {
        all = exl2__loras_add_name(m, &names->names[i], set);
    }
    return all;
}

/* Moves the session's history into the tree of the set; NULL: of the base. */
static inline void exl2__loras_root(exl2__model *m, exl2__session *s, const exl2__lora_set *set)
{
    if (m->lora_sets) {
        exl2__table_move(&s->table, &m->pages, exl2__roots_of(&m->roots, &m->pages, s->base_root, set));
    }
}

#endif
